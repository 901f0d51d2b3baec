"""`AgentGRPOConfig`: TRL's `GRPOConfig` for step-level, multi-turn rollouts.

It adds what an agent's run needs, gives defaults that fit it (also on a CPU, where TRL's own turn on bfloat16 and gradient checkpointing), and
refuses, with the reason, each setting under which "merged rows have the gradient of separate rows" or "what is trained is what was
sampled" would stop being true. It knows nothing of environments.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agent_gym.flows.workers import parse_workers
from agent_gym.trainers.advantages import check_advantage
from agent_gym.trainers.replay import CORRECTIONS
from agent_gym.trainers.reporting import check_trackers
from agent_gym.trainers.rows import LEVELS

try:
    from trl.trainer.grpo_config import GRPOConfig
except ImportError as error:  # pragma: no cover - exercised where the extra is absent
    raise ImportError(f'training needs TRL and torch: pip install "agentr1-gym[train]" ({error})') from error

__all__ = ["CISPO_EPSILON_HIGH", "IS_CORRECTIONS", "LOSS_TYPES", "AgentGRPOConfig"]

LOSS_TYPES = ("dapo", "cispo")
IS_LEVELS = ("token", "step")
IS_CORRECTIONS = ("auto", "none", "token_truncate", "step_truncate")
CISPO_EPSILON_HIGH = 5.0
"""The cap of CISPO's importance ratio when `epsilon_high` is not given (ScaleRL, arXiv 2510.13786); TRL would cap it at `epsilon`, 0.2."""


@dataclass
class AgentGRPOConfig(GRPOConfig):  # type: ignore[misc,unused-ignore]  # TRL's classes are partly untyped
    """Settings of `AgentGRPOTrainer`: every field of `trl.GRPOConfig`, and those below.

    Three inherited fields count episodes and turns here: `per_device_train_batch_size` is episodes per rank and micro-step,
    `max_completion_length` is tokens per action (not per episode), and `num_generations` is episodes per task.

    Defaults that differ from TRL's: `bf16` and `gradient_checkpointing` follow the device (off on a CPU), `lr_scheduler_type="constant"`
    (a linear one with warm-up starts at a learning rate of exactly 0 and wastes the first rollouts), `adam_beta2=0.95`,
    `vllm_importance_sampling_mode="token_truncate"`, `logging_steps=1`; `epsilon_high` under `loss_type="cispo"` is 5.0.

    Attributes:
        advantage: name of a registered estimator (`agent_gym.trainers.advantages`); `scale_rewards` is its `scale`.
        advantage_kwargs: settings of the estimator, by its own names (`{"step_weight": 0.5, "similarity": 0.9}` for gigpo); None for its defaults.
        gamma: discount of the return per step; None means the plain sum of the rewards (for gigpo: its own discount of step returns).
        loss_level: what counts the same in the loss: every "token", "trajectory" or "step".
        merge_prefix: merge steps whose observation extends all before into one row (same gradient, several times faster).
        max_tokens_per_microbatch: padded tokens per forward pass and rank; None runs each micro-step in one pass.
        importance_sampling_level: "token", or "step": one ratio per action, the geometric mean of its tokens' ratios, in the GSPO-token
            form (arXiv 2507.18071, section 4.3) with the step as the sequence. Unchanged by merging.
        is_correction: weights for the mismatch between the engine that sampled and the model that is trained: "none",
            "token_truncate" (min(ratio, is_clip) per token), "step_truncate" (the same on the product over an action), or "auto":
            "token_truncate" when the trainer got a policy or rollout function of its own, "none" when the model itself samples.
        is_clip: the cap of those weights.
        drop_zero_variance: leave groups without reward variance out of the loss and of its denominator (estimators that give them no advantage).
        mask_truncated_steps: leave actions that were cut off out of the loss and of its denominator.
        max_turns: step limit of the environments; None leaves theirs.
        max_concurrency: so many episodes are played at once on each rank.
        on_fault: an episode whose world broke or whose row cannot be played is left out ("drop": warns above 5 % and stops above 20 % of the last 200
            episodes) or ends the training ("stop"). `agent_gym.flows.FAULTS` has every fault by name and what either means to it.
        workers: where the environments live: None for the trainer's own process, a number of worker processes on each rank, "ray", or the address of a
            Ray cluster.
        max_fault_retries: so often such an episode is begun again before it counts as a fault.
        sync_every: generation batches from one update of an engine's weights to the next (`use_vllm`, or an `EnginePolicy` as policy=); 0 leaves the
            engine's weights alone.
        engine_weights_dir: the folder below which weights are written for an engine that `use_vllm` asks for; it must see it. None takes the system's
            temporary folder; `/dev/shm` is quickest.
        engine_weights_dtype: the format in which they are written, "bfloat16", "float16" or "float32"; None leaves the model's.
        max_no_signal_batches: stop after so many generation batches in a row without any advantage; 0 never stops.
        replay_files: trajectory files whose episodes are trained on again beside the fresh ones (see `agent_gym.trainers.replay`).
        replay_ratio: replayed episodes per fresh one, as close as whole groups come.
        replay_max_age: the greatest age of a replayed episode in policy versions; older ones are left out and counted. None: no limit.
        replay_correction: weight of what is replayed: "token_truncate" (min(ratio, is_clip) per token), "step_truncate" (the same on the product over
            an action), or "imitation": weight 1 and advantage 1 for every action, for episodes without log-probabilities.
        replay_base_version: policy version of the weights that the run begins with; None takes the newest in the files.
    """

    has_critic: ClassVar[bool] = False
    """Whether the trainer that these settings are for has a critic, so that estimators that need values can be chosen."""
    takes_groups_of_one: ClassVar[bool] = False
    """Whether that trainer can do with `num_generations=1`, having something else to compare an episode with than its group."""
    _VALID_DICT_FIELDS = [*GRPOConfig._VALID_DICT_FIELDS, "advantage_kwargs"]  # noqa: RUF012  # transformers declares it so

    lr_scheduler_type: str = field(default="constant", metadata={"help": "Learning-rate schedule."})
    adam_beta2: float = field(default=0.95, metadata={"help": "Second moment decay of AdamW."})
    logging_steps: float = field(default=1, metadata={"help": "Log every so many optimiser steps."})
    gradient_checkpointing: bool | None = field(  # type: ignore[assignment,unused-ignore]  # None is decided in __post_init__
        default=None, metadata={"help": "Recompute activations in the backward pass. Default: off on a CPU, on elsewhere."}
    )
    vllm_importance_sampling_mode: str = field(default="token_truncate", metadata={"help": "See `is_correction`."})
    importance_sampling_level: str = field(default="token", metadata={"help": "Importance ratio per 'token' or per 'step'."})

    advantage: str = field(default="grpo", metadata={"help": "Advantage estimator by name."})
    advantage_kwargs: dict[str, Any] | str | None = field(default=None, metadata={"help": "Settings of the estimator, by its own names."})
    gamma: float | None = field(default=None, metadata={"help": "Discount of the return per step; None: plain sum."})
    loss_level: str = field(default="token", metadata={"help": "What counts the same: 'token', 'trajectory' or 'step'."})
    merge_prefix: bool = field(default=True, metadata={"help": "Merge steps of a growing context into one row."})
    max_tokens_per_microbatch: int | None = field(default=None, metadata={"help": "Padded tokens per forward pass and rank."})
    is_correction: str = field(default="auto", metadata={"help": "'auto', 'none', 'token_truncate' or 'step_truncate'."})
    is_clip: float = field(default=2.0, metadata={"help": "Cap of the correction weights."})
    drop_zero_variance: bool = field(default=False, metadata={"help": "Leave zero-variance groups out of loss and denominator."})
    mask_truncated_steps: bool = field(default=False, metadata={"help": "Leave cut-off actions out of loss and denominator."})
    max_turns: int | None = field(default=None, metadata={"help": "Step limit of the environments."})
    max_concurrency: int = field(default=256, metadata={"help": "Episodes played at once on each rank."})
    on_fault: str = field(default="drop", metadata={"help": "'drop' or 'stop'."})
    max_fault_retries: int = field(default=2, metadata={"help": "Retries of an episode whose world broke."})
    sync_every: int = field(
        default=1, metadata={"help": "Generation batches from one update of an engine's weights to the next; 0: never."}
    )
    engine_weights_dir: str | None = field(default=None, metadata={"help": "Folder below which weights are written for an engine."})
    engine_weights_dtype: str | None = field(default=None, metadata={"help": "'bfloat16', 'float16' or 'float32'; None: the model's."})
    workers: str | int | None = field(default=None, metadata={"help": "Worker processes, 'ray' or the address of a Ray cluster."})
    max_no_signal_batches: int = field(default=3, metadata={"help": "Stop after so many batches without signal; 0: never."})
    replay_files: list[str] | None = field(default=None, metadata={"help": "Trajectory files that are trained on again."})
    replay_ratio: float = field(default=0.5, metadata={"help": "Replayed episodes per fresh one."})
    replay_max_age: int | None = field(default=None, metadata={"help": "Greatest age of a replayed episode in policy versions."})
    replay_correction: str = field(default="token_truncate", metadata={"help": "'token_truncate', 'step_truncate' or 'imitation'."})
    replay_base_version: int | None = field(default=None, metadata={"help": "Policy version that the run begins with; None: the newest."})

    def __post_init__(self) -> None:
        """Fill in device-dependent defaults, let TRL check its own, then refuse what would break exactness.

        Raises:
            ValueError: for each refused setting, with what was given, why it is refused and what to use.
        """
        cpu = _runs_on_cpu(self)
        if self.bf16 is None:
            self.bf16 = False if cpu else not self.fp16
        if self.gradient_checkpointing is None and self.activation_checkpointing is None:
            self.activation_checkpointing = not cpu
        if self.loss_type == "cispo" and self.epsilon_high is None:
            self.epsilon_high = CISPO_EPSILON_HIGH
        alone = self.takes_groups_of_one and self.num_generations == 1
        if alone:  # TRL asks for two at least, to compare them; any number that divides the batch serves to have the rest checked
            self.num_generations = self._own_episodes()
            if self.num_generations_eval is None:
                self.num_generations_eval = 1
        super().__post_init__()  # type: ignore[no-untyped-call,unused-ignore]  # partly untyped base
        self.workers = parse_workers(self.workers)
        check_trackers(list(self.report_to or ()))
        if alone:
            self.num_generations = 1
        _check_choices(self)
        _refuse(self)
        _check_windows(self)

    def _own_episodes(self) -> int:
        """The episodes of a generation batch on one rank."""
        share = self.steps_per_generation or self.gradient_accumulation_steps
        own = int(self.generation_batch_size or self.per_device_train_batch_size * share)
        if own < 2:
            raise ValueError(
                f"per_device_train_batch_size={self.per_device_train_batch_size} and gradient_accumulation_steps={self.gradient_accumulation_steps}: "
                "an update on one episode per rank; give it two at least"
            )
        return own


def _runs_on_cpu(args: Any) -> bool:
    import torch

    if args.use_cpu:
        return True
    accelerator = getattr(torch, "accelerator", None)
    return not (accelerator.is_available() if accelerator is not None else torch.cuda.is_available())


def _check_choices(args: Any) -> None:
    _check_advantage(args)
    choices: tuple[tuple[str, tuple[str, ...]], ...] = (
        ("loss_level", LEVELS),
        ("is_correction", IS_CORRECTIONS),
        ("on_fault", ("drop", "stop")),
        ("replay_correction", CORRECTIONS),
        ("scale_rewards", ("group", "batch", "none")),
    )
    for name, allowed in choices:
        if getattr(args, name) not in allowed:
            raise ValueError(f"{name}={getattr(args, name)!r} is unknown; choose one of {', '.join(allowed)}")
    if args.gamma is not None and not 0.0 <= args.gamma <= 1.0:
        raise ValueError(f"gamma={args.gamma} lies outside [0, 1]")
    if not (math.isfinite(args.is_clip) and args.is_clip > 0):
        raise ValueError(f"is_clip={args.is_clip} must be a positive number")
    for name in ("max_tokens_per_microbatch", "max_turns", "max_concurrency"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    if args.engine_weights_dtype not in (None, "bfloat16", "float16", "float32"):
        raise ValueError(
            f"engine_weights_dtype={args.engine_weights_dtype!r} is unknown; choose bfloat16, float16, float32 or leave it out"
        )
    if not (math.isfinite(args.replay_ratio) and args.replay_ratio > 0):
        raise ValueError(f"replay_ratio={args.replay_ratio} must be a positive number: replayed episodes per fresh one")
    for name in ("max_fault_retries", "max_no_signal_batches", "sync_every", "replay_max_age", "replay_base_version"):
        if getattr(args, name) is not None and getattr(args, name) < 0:
            raise ValueError(f"{name}={getattr(args, name)} must not be negative")


def _check_advantage(args: Any) -> None:
    estimator = check_advantage(args.advantage, args.advantage_kwargs, critic=args.has_critic)
    if args.drop_zero_variance and not estimator.silent_when_flat:
        why = "compares more than the returns of a group" if estimator.group_relative else "does not compare the members of a group"
        raise ValueError(
            f"drop_zero_variance=True with advantage={args.advantage!r}, which {why}: episodes of a group with equal returns still have "
            "advantages; leave drop_zero_variance out"
        )


_REFUSED: tuple[tuple[str, Any, str], ...] = (
    ("mask_truncated_completions", False, "it looks at a row's last token only and blanks its earlier turns; use mask_truncated_steps"),
    ("reward_weights", None, "the environment's step reward is the reward; weigh its parts in the environment"),
    ("multi_objective_aggregation", "sum_then_normalize", "the environment gives one reward per step; there is nothing to aggregate"),
    ("off_policy_mask_threshold", None, "it masks whole rows, so merged and separate rows would differ; use is_correction"),
    ("top_entropy_quantile", 1.0, "the quantile is taken per forward pass, so the gradient would depend on how rows are packed"),
    ("use_adaptive_entropy", False, "its controller counts forward passes, whose number depends on how rows are packed; use entropy_coef"),
    ("repetition_penalty", 1.0, "the log-probabilities that are trained are those of the unpenalised distribution"),
    ("generation_kwargs", None, "TRL's generation is not used; give sampling settings through temperature and max_completion_length"),
    ("cache_implementation", None, "TRL's generation is not used; the policy keeps its own cache"),
    ("use_transformers_continuous_batching", False, "TRL's generation is not used; give the trainer a policy"),
    ("max_tool_calling_iterations", None, "the environment ends the episode; use max_turns"),
    (
        "include_num_input_tokens_seen",
        "no",
        "it would log 0: what is counted is not what a micro-step holds here; see batch/trained_tokens",
    ),
    ("remove_unused_columns", False, "it would remove env_id, env_kwargs, seed and options from the rows"),
)


def _refuse(args: Any) -> None:
    if args.loss_type not in LOSS_TYPES:
        raise ValueError(
            f"loss_type={args.loss_type!r} weighs a token by its row (its length, or the number of rows), so one episode would count by how its "
            f"context was cut into rows; use one of {', '.join(LOSS_TYPES)} with loss_level 'token', 'trajectory' or 'step'"
        )
    if args.loss_type == "cispo" and args.epsilon_high <= 1.0:
        raise ValueError(
            f"loss_type='cispo' with epsilon_high={args.epsilon_high}: under CISPO this is the cap of the importance ratio itself, so a value "
            f"of at most 1 would only scale every gradient; leave it out for {CISPO_EPSILON_HIGH}"
        )
    if args.importance_sampling_level not in IS_LEVELS:
        raise ValueError(
            f"importance_sampling_level={args.importance_sampling_level!r}: a ratio over a whole row depends on how steps were merged into it; "
            "use 'token', or 'step' for one ratio per action"
        )
    if str(args.vllm_importance_sampling_mode).startswith("sequence"):
        raise ValueError(
            f"vllm_importance_sampling_mode={args.vllm_importance_sampling_mode!r} multiplies the ratios of a whole row: it depends on merging and "
            "discards long episodes for their length alone; use is_correction='token_truncate' or 'step_truncate'"
        )
    for name, given, neutral in (("top_p", args.top_p, (1.0,)), ("top_k", args.top_k, (0, None)), ("min_p", args.min_p, (0.0, None))):
        if given not in neutral:
            raise ValueError(
                f"{name}={given} truncates the distribution that is sampled, while the log-probabilities that are trained are those of the whole "
                f"distribution: a biased importance ratio; leave {name} out in training"
            )
    if not args.temperature > 0:
        raise ValueError(f"temperature={args.temperature}: training samples, so it must be above 0")
    for name, neutral_value, reason in _REFUSED:
        if getattr(args, name) != neutral_value:
            raise ValueError(f"{name}={getattr(args, name)!r} is refused: {reason}")


def _check_windows(args: Any) -> None:
    per_generation, accumulation = args.steps_per_generation, args.gradient_accumulation_steps
    if per_generation % accumulation and accumulation % per_generation:
        raise ValueError(
            f"steps_per_generation={per_generation} and gradient_accumulation_steps={accumulation}: one must divide the other, or an optimiser "
            "step would train parts of two generation batches, each normalised by its own number of tokens"
        )
    if per_generation != accumulation:
        what = (
            f"each generation batch is used for {per_generation // accumulation} optimiser steps, all but the first off-policy"
            if per_generation > accumulation
            else f"each optimiser step averages {accumulation // per_generation} generation batches, each normalised by its own number of tokens"
        )
        warnings.warn(
            f"steps_per_generation={per_generation} differs from gradient_accumulation_steps={accumulation}: {what}; "
            "leave steps_per_generation out for one optimiser step per generation batch",
            UserWarning,
            stacklevel=4,
        )
    updates = max(1, per_generation * args.num_iterations // accumulation)
    by_steps = getattr(args.save_strategy, "value", args.save_strategy) == "steps"
    if by_steps and args.save_steps >= 1 and int(args.save_steps) % updates:
        raise ValueError(
            f"save_steps={args.save_steps}: a generation batch lasts {updates} optimiser steps and is not part of a checkpoint, so a run can only "
            f"go on from its end; use a multiple of {updates}, for example {math.ceil(args.save_steps / updates) * updates}"
        )
