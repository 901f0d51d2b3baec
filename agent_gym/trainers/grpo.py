"""`AgentGRPOTrainer`: TRL's `GRPOTrainer`, fed by step-level episodes.

TRL keeps what it is good at: model and adapter loading, the sampler that repeats each task `num_generations` times, optimiser, scheduler,
accumulation, checkpoints, callbacks, the reference model, logging. Three of its methods are replaced, because one task is many rows here:

- `_generate_and_score_completions` plays the episodes, estimates the advantages over all ranks, builds and plans the rows;
- `_prepare_inputs` hands out the planned micro-steps (TRL would cut the batch by counting rows, and drop the remainder);
- `compute_loss` runs a micro-step's sub-batches one after another and divides by the tokens of the optimiser window.

The private methods that are replaced, called or read are listed with their signatures in a contract test.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import PrinterCallback

from agent_gym.flows import EnvPool, open_workers
from agent_gym.policies.base import check_training_policy, derive_seed
from agent_gym.policies.transformers_policy import TransformersPolicy
from agent_gym.trainers.advantages import Advantages, get_advantage, screen, zero_variance_groups
from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.engine import EngineWeights, make_engine_policy
from agent_gym.trainers.environments import as_dataset, as_datasets, as_tokenizer, routed
from agent_gym.trainers.figures import batch_metrics, completions_table
from agent_gym.trainers.losses import LossFigures, ratio_weights, token_losses
from agent_gym.trainers.replay import ReplayBuffer, replay_rows
from agent_gym.trainers.rows import DUMMY, Plan, Row, apply_level, build_rows, plan, shift_window
from agent_gym.trainers.scores import with_scores
from agent_gym.trainers.scoring import score_tokens
from agent_gym.trainers.tensors import SubBatch, collate
from agent_gym.trainers.update_guard import UpdateGuard
from agent_gym.trajectory import CUT_OFF, Trajectory

try:
    from accelerate.utils import is_peft_model
    from trl.trainer.utils import use_adapter

    from agent_gym.trainers.playing import PlayingTrainer
except ImportError as error:  # pragma: no cover - exercised where the extra is absent
    raise ImportError(f'training needs TRL and torch: pip install "agentr1-gym[train]" ({error})') from error

__all__ = ["AgentGRPOTrainer", "NoLearningSignalError", "Rollout"]

Rollout: TypeAlias = Callable[["AgentGRPOTrainer", Sequence[dict[str, Any]]], Sequence[Trajectory]]
"""`rollout(trainer, examples) -> trajectories`. An example is `{"env_id", "env_kwargs", "seed", "options", "group_id"}`; a trajectory
without a group_id gets that of the example at its position."""

_NOT_OURS = {
    "reward_funcs": "the environment's step reward is the reward",
    "reward_processing_classes": "the environment's step reward is the reward",
    "tools": "tools belong to the environment",
    "rollout_func": "its rows carry one reward per prompt; use rollout=",
    "environment_factory": "it keeps one text conversation per prompt; use env=",
}


class NoLearningSignalError(RuntimeError):
    """Several generation batches in a row gave no advantage to any token."""


def _no_reward_function(**_: Any) -> list[float | None]:
    raise RuntimeError("the environment gives the reward; TRL's reward functions are never called")


class AgentGRPOTrainer(PlayingTrainer):
    """Trains a language model on episodes of a Gymnasium environment, step by step.

    Args:
        model: a causal language model of transformers, a PEFT model, or a path or name.
        args: the settings.
        env: a registered environment id, or `callable(row) -> gymnasium.Env`.
        train_dataset: rows `{"env_id", "env_kwargs", "seed", "options"}`, or of the Agent-R1 sample schema (see `agent_gym.flows.samples`), as a
            `datasets.Dataset` or a sequence of dictionaries; None takes the environment's own tasks (`task_seeds`, or one row per task of a
            finite data set).
        eval_dataset: the same for evaluation; None for no evaluation.
        processing_class: the tokenizer, or its path or name; None takes the model's.
        policy: samples the replies (see `agent_gym.policies.Policy`); None samples from the model itself, or by vLLM with `use_vllm=True`. An
            `EnginePolicy` is given the model's weights before it samples with older ones (`args.sync_every`). Any other policy with weights of its own is not
            updated; its `version` tells how old they are (`rollout/staleness_max`).
        flow: how episodes are played: a registered name or an `AgentFlowBase`; None is one environment loop per episode.
        env_kwargs: keywords for every environment (`{"split": "train", "level": "bridge"}`).
        rollout: `callable(trainer, examples) -> list[Trajectory]` in place of policy and flow (see `Rollout`).
        replay: episodes that are trained on again, with settings of its own; None opens `args.replay_files`, if there are any.
        **kwargs: `callbacks`, `optimizers`, `peft_config`, `quantization_config` as TRL takes them.

    Attributes:
        trajectories: the episodes of the latest generation batch, over all ranks, those that were left out included.
        mode: "train" or "eval", also while a rollout function runs.
        replayed: the episodes of the replay buffer that were trained on beside them.
        engine: keeps the weights of an engine those of the model; None without one.
        faults: the monitor of episodes lost to broken environments, over all ranks and the same on each.

    Raises:
        TypeError: for arguments of `GRPOTrainer` that have no meaning here, with what to use.
        ValueError: for settings that cannot work together, or an environment with another tokenizer.
    """

    _name = "Agent-GRPO"
    pad_to_multiple_of: int | None
    _logs: Any
    _buffered_inputs: Any
    _scores: tuple[Advantages, list[Row]] | None = None

    def __init__(
        self,
        model: Any,
        args: AgentGRPOConfig | None = None,
        env: str | Callable[[Mapping[str, Any]], Any] = "AgentR1/HotpotQA-v0",
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        policy: Any = None,
        flow: Any = None,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        rollout: Rollout | None = None,
        replay: ReplayBuffer | None = None,
        **kwargs: Any,
    ) -> None:
        for name in sorted(set(kwargs) & set(_NOT_OURS)):
            raise TypeError(f"AgentGRPOTrainer takes no {name}: {_NOT_OURS[name]}")
        args = AgentGRPOConfig() if args is None else args
        if not isinstance(args, AgentGRPOConfig):
            raise TypeError(f"args must be an AgentGRPOConfig, which refuses what would break exactness, not {type(args).__name__}")
        if args.use_vllm:
            if policy is not None or rollout is not None:
                raise ValueError("use_vllm=True makes a policy of its own; leave it out, or leave out policy= and rollout=")
            policy = make_engine_policy(args, model)
        check_training_policy(policy)
        if rollout is not None and (policy is not None or flow is not None):
            raise ValueError("rollout= replaces policy and flow; pass either rollout, or policy and flow")
        if rollout is not None and args.workers is not None:
            raise ValueError(
                f"workers={args.workers!r} with rollout=: that function plays the episodes itself; give the workers to what it calls"
            )
        own_tasks = train_dataset is None
        train_dataset, eval_dataset = routed(train_dataset, env, env_kwargs), routed(eval_dataset, env, env_kwargs)
        asked, args.use_vllm = args.use_vllm, False  # TRL would start an engine of its own
        try:
            super().__init__(
                model=model,
                reward_funcs=_no_reward_function,
                args=args,
                train_dataset=as_dataset([{"seed": 0}] if own_tasks else train_dataset),
                eval_dataset=as_datasets(eval_dataset),
                processing_class=as_tokenizer(processing_class, model),
                **kwargs,
            )
        finally:
            args.use_vllm = asked
        if args.max_tokens_per_microbatch is not None and self.is_deepspeed_enabled:
            raise ValueError(
                "max_tokens_per_microbatch makes several backward passes per micro-step, and DeepSpeed counts each as a micro-step; leave it out "
                "and raise gradient_accumulation_steps instead"
            )
        self.policy = policy
        self.flow = flow
        self.rollout = rollout
        self.estimator = get_advantage(args.advantage)
        self.make_env = self._environment_maker(env, env_kwargs)
        if own_tasks:
            self.train_dataset = as_dataset(self._own_rows())
        self._is_mode = args.is_correction
        if self._is_mode == "auto":
            self._is_mode = "none" if policy is None and rollout is None else "token_truncate"
        self.replayed: tuple[Trajectory, ...] = ()
        self.replay = self._replay_buffer(replay)
        self._window_has_signal = False
        self._figures = LossFigures(self.accelerator.device)
        self._replay_figures = LossFigures(self.accelerator.device)
        self._no_signal_batches = 0
        self._generation: tuple[str, int, int] = ("train", -1, 0)
        self.engine = EngineWeights.of(policy, args, self.accelerator)
        self._pool = EnvPool(self.make_env, max_idle=args.max_concurrency, workers=open_workers(args.workers, self.make_env))
        if policy is None and rollout is None:
            self.policy = TransformersPolicy(self.accelerator.unwrap_model(self.model), tokenizer=self._tokenizer)
        self.add_callback(UpdateGuard(self))
        if args.disable_tqdm:
            self.remove_callback(PrinterCallback)

    # ------------------------------------------------------------------------------------------------ from episodes to micro-steps

    def _generate_and_score_completions(  # type: ignore[override]  # micro-steps of sub-batches in place of one padded batch
        self, inputs: list[dict[str, Any]]
    ) -> list[list[SubBatch]]:
        """Play a generation batch and turn it into this rank's micro-steps.

        Args:
            inputs: this rank's data set rows, each repeated `num_generations` times (over all ranks).

        Returns:
            `steps_per_generation` micro-steps (one in evaluation), each a list of sub-batches.
        """
        self.mode = "train" if self.model.training else "eval"
        step = int(self.state.global_step)
        self._generation = (self.mode, step, self._generation[2] + 1 if self._generation[:2] == (self.mode, step) else 0)
        synced = {} if self.engine is None else self.engine.before_batch(self.model_wrapped, step, training=self.mode == "train")
        played, figures = self._play_with_others(self._examples(inputs))
        self.trajectories = self._gather_trajectories(played, figures | synced)
        self._watch_faults(len(inputs) * self.accelerator.num_processes)
        advantages = self.estimator(self.trajectories, **self._estimator_settings())
        flat = zero_variance_groups(self.trajectories, self.args.gamma) if self._has_groups() else []
        rows, dropped = self._rows(advantages, flat)
        if self.mode == "train":
            self._scores = (advantages, list(rows))
        self._record(batch_metrics(self.trajectories, rows, advantages, zero_groups=len(flat), version=step))
        rows += self._replay_rows()
        self._record({"batch/dropped_groups": float(dropped), "rollout/fault_frac": self.faults.rate})
        self._watch_signal(any(row.has_signal for row in rows))
        self._log_completions(advantages)
        return self._plan(rows)

    def scored_trajectories(self, limit: int | None = None) -> list[Trajectory]:
        """Return episodes of the latest training batch with the mask and the advantages of their tokens in their info (see `scores.with_scores`).

        Args:
            limit: only the first so many; None gives all.

        Returns:
            The episodes; none before the first batch, and none of an evaluation.
        """
        if self._scores is None or self.mode != "train":
            return []
        advantages, rows = self._scores
        return with_scores(self.trajectories[:limit], rows, advantages if self._estimates_advantages() else None)

    def _estimates_advantages(self) -> bool:
        """Whether the advantages are those that the loss uses. A trainer whose loss makes its own says no."""
        return True

    def _memory(self) -> dict[str, Any]:
        return {
            **super()._memory(),
            "no_signal_batches": self._no_signal_batches,
            "synced_batches": 0 if self.engine is None else self.engine.batches,
        }

    def _remember(self, memory: Mapping[str, Any]) -> None:
        super()._remember(memory)
        self._no_signal_batches = int(memory["no_signal_batches"])
        if self.engine is not None:
            self.engine.batches = int(memory.get("synced_batches", 0))

    def _estimator_settings(self) -> dict[str, Any]:
        """The settings that every batch is estimated with. A trainer with a critic adds `values` and `bootstrap` of `self.trajectories`."""
        return {**(self.args.advantage_kwargs or {}), "gamma": self.args.gamma, "scale": self.args.scale_rewards}

    def _has_groups(self) -> bool:
        return all(item.group_id for item in self.trajectories)

    def _rows(self, advantages: Advantages, flat: Sequence[Sequence[int]]) -> tuple[list[Row], int]:
        """Build the rows of all episodes that count. Returns them and the number of groups left out for want of variance."""
        kept, _ = screen(self.trajectories)
        dropping = self.args.drop_zero_variance and self.estimator.silent_when_flat
        left_out = {position for group in flat for position in group} if dropping else set()
        rows: list[Row] = []
        for position in kept:
            if position in left_out:
                continue
            item = self.trajectories[position]
            trained = [step.finish_reason not in CUT_OFF for step in item.steps] if self.args.mask_truncated_steps else None
            rows += build_rows(item, advantages[position], position, self.args.merge_prefix, trained)
        return rows, len(flat) if dropping else 0

    # ------------------------------------------------------------------------------------------------ replay

    def _replay_buffer(self, given: ReplayBuffer | None) -> ReplayBuffer | None:
        """The buffer of the run: the one that was given, or the files of the settings. It has to speak the model's tokenizer."""
        args = self.args
        if given is not None:
            if args.replay_files:
                raise ValueError("replay= and args.replay_files are two buffers; give one of them")
            for name, own in (("replay_max_age", "max_age"), ("replay_correction", "correction"), ("replay_base_version", "base_version")):
                if getattr(args, name) != getattr(AgentGRPOConfig, name):
                    raise ValueError(
                        f"{name}={getattr(args, name)!r} is for args.replay_files, and replay= is a buffer with settings of its own; make it with {own}="
                    )
            if given.fingerprint != self.make_env.fingerprint:
                raise ValueError(f"the replay buffer speaks tokenizer {given.fingerprint}, the model {self.make_env.fingerprint}")
            given.check_fits(self.estimator, self.make_env.vocab_size)
            return given
        if not args.replay_files:
            return None
        return ReplayBuffer.from_files(
            args.replay_files,
            fingerprint=self.make_env.fingerprint,
            vocab_size=self.make_env.vocab_size,
            correction=args.replay_correction,
            max_age=args.replay_max_age,
            base_version=args.replay_base_version,
            group_relative=self.estimator.group_relative,
        )

    def _replay_rows(self) -> list[Row]:
        """The rows of the episodes that this generation batch replays: the same on all ranks."""
        self.replayed = ()
        if self.replay is None or self.mode != "train":
            return []
        if len(set(self._gather([self.replay.digest]))) > 1:
            raise ValueError("the ranks replay different files; every rank needs the same ones, in the same order")
        args = self.args
        drawn = self.replay.draw(
            args.replay_ratio * len(self.trajectories),
            updates=int(self.state.global_step),
            seed=derive_seed(args.seed, "replay", *self._generation),
        )
        self._record(drawn.figures())
        self.replayed = drawn.trajectories
        return replay_rows(
            self.replay,
            drawn,
            self.estimator,
            first=len(self.trajectories),
            gamma=args.gamma,
            scale=args.scale_rewards,
            settings=args.advantage_kwargs,
            merge=args.merge_prefix,
            mask_truncated=args.mask_truncated_steps,
            drop_zero_variance=args.drop_zero_variance and self.estimator.silent_when_flat,
        )

    def _weights(self, old: torch.Tensor, sub: SubBatch, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What each token counts, and the raw ratios and differences of the fresh ones; those of replayed ones are noted apart."""
        segments, sampled = sub["segments"], sub["sampling_per_token_logps"]
        weights, ratios, differences = ratio_weights(old, sampled, mask, segments, self._is_mode, self.args.is_clip)
        if self.replay is None or not self.model.training:
            return weights, ratios, differences
        replayed = sub["replayed"][:, None].expand_as(mask)
        mode = "token_truncate" if self.replay.imitates else self.replay.correction
        corrected, raw, gaps = ratio_weights(old, sampled, mask, segments, mode, self.args.is_clip)
        unknown = torch.full_like(ratios, float("nan"))
        nothing = torch.zeros_like(mask)
        self._replay_figures.add(
            mask & replayed,
            None,
            nothing,
            nothing,
            None,
            torch.where(replayed, raw, unknown),
            torch.where(replayed, gaps, unknown),
            self.args.is_clip,
        )
        fresh = ~replayed
        return torch.where(replayed, corrected, weights), torch.where(fresh, ratios, unknown), torch.where(fresh, differences, unknown)

    def _record_replayed(self) -> None:
        """Log the ratios of what was replayed in an optimiser window, over all ranks."""
        if self.replay is None:
            return
        found = self._replay_figures.results(self.accelerator, self.loss_type, kl=False)
        names = {"is/mean": "is_mean", "is/max": "is_max", "is/clipped_frac": "is_clipped_frac", "logp_diff/mean": "logp_diff_mean"}
        self._record({f"replay/{short}": found[name] for name, short in names.items() if name in found})
        self._replay_figures = LossFigures(self.accelerator.device)

    # ------------------------------------------------------------------------------------------------ the plan

    def _trains_everything(self) -> bool:
        """Whether tokens without advantage have a gradient too (KL, entropy or router terms)."""
        return bool(self.beta != 0.0 or self.entropy_coef != 0.0 or self.aux_loss_enabled)

    def _plan(self, rows: list[Row]) -> list[list[SubBatch]]:
        """Deal rows to windows, weigh them, leave out those without gradient, deal the rest, and make this rank's tensors."""
        args = self.args
        training = self.mode == "train"
        per_generation = args.steps_per_generation if training else 1
        windows = max(1, per_generation // args.gradient_accumulation_steps) if training else 1
        micro = per_generation // windows
        world = self.accelerator.num_processes
        whole = plan([len(row) for row in rows], windows=windows, groups=[row.trajectory for row in rows])
        kept: list[Row] = []
        tokens: list[int] = []
        dealt = []
        for window in range(windows):
            mine = apply_level([rows[index] for index in whole.rows_of_window(window)], args.loss_level)
            tokens.append(sum(row.num_trained for row in mine))
            if not self._trains_everything():
                mine = [row for row in mine if row.has_signal]
            part = plan([len(row) for row in mine], world=world, micro=micro, max_tokens=args.max_tokens_per_microbatch)
            dealt.append(shift_window(part.windows[0], len(kept)))
            kept += mine
        planned = Plan(tuple(dealt), tuple(len(row) for row in kept))
        self._record({f"batch/{name}": value for name, value in planned.stats().items()})
        self._record({"batch/trained_tokens": float(sum(tokens))})
        steps: list[list[SubBatch]] = []
        for micro_steps, count in zip(planned.windows, tokens, strict=True):
            # TRL's normaliser spans the generation batch and is cut down to a window by accumulation / steps_per_generation
            scale = max(per_generation / args.gradient_accumulation_steps, 1.0) if training else 1.0
            for micro_step in micro_steps:
                subs = []
                for ranks in micro_step:
                    sub = collate(kept, ranks[self.accelerator.process_index], self.accelerator.device, self.pad_to_multiple_of)
                    sub["num_items_in_batch"] = torch.tensor(count * scale, device=self.accelerator.device)
                    sub["has_signal"] = self._trains_everything() or any(index != DUMMY for rank in ranks for index in rank)
                    subs.append(sub)
                steps.append(subs)
        self._add_reference_logps(steps)
        return steps

    def _add_reference_logps(self, steps: list[list[SubBatch]]) -> None:
        """Compute, per sub-batch, the old log-probabilities where samples outlive an update, and the reference model's."""
        args = self.args
        outlives = args.gradient_accumulation_steps % (args.steps_per_generation * self.num_iterations) != 0
        need_old = self.mode == "train" and outlives
        if not need_old and self.beta == 0.0:
            return
        with self._sampling_mode():
            for sub in (sub for step in steps for sub in step):
                if need_old:
                    sub["old_per_token_logps"] = self._score(self.model, sub)[0]
                if self.beta != 0.0:
                    sub["ref_per_token_logps"] = self._reference_logps(sub)

    def _reference_logps(self, sub: SubBatch) -> torch.Tensor:
        if self.ref_model is not None:
            return self._score(self.ref_model, sub)[0]
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
            return self._score(self.model, sub)[0]

    def _score(self, model: Any, sub: SubBatch) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Log-probabilities and entropies (B, C) of the trained tokens, 0 elsewhere, and the router loss of a sub-batch."""
        causal = self.accelerator.unwrap_model(model)
        return score_tokens(
            model,
            causal.get_base_model() if is_peft_model(causal) else causal,
            torch.cat([sub["prompt_ids"], sub["completion_ids"]], dim=1),
            torch.cat([sub["prompt_mask"], sub["completion_mask"]], dim=1),
            (sub["completion_mask"] * sub["tool_mask"]).bool(),
            router_logits=self.aux_loss_enabled and model is not self.ref_model,
            autocast=self.accelerator.autocast(),
            reader=sub.get("reader"),
        )

    def _prepare_inputs(self, generation_batch: Any) -> list[SubBatch]:  # type: ignore[override]  # sub-batches of a micro-step
        """Hand out the sub-batches of the current micro-step; play a new generation batch when the last one is used up."""
        if not self.model.training:
            return self._generate_and_score_completions(generation_batch)[0]
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0 or self._buffered_inputs is None:
            self._buffered_inputs = self._generate_and_score_completions(generation_batch)
        micro_step: list[SubBatch] = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return micro_step

    # ------------------------------------------------------------------------------------------------ the loss

    def compute_loss(  # type: ignore[override]  # a micro-step is several sub-batches
        self, model: Any, inputs: list[SubBatch], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Compute the loss of one micro-step, which may be several forward passes.

        All passes but the last run their backward pass at once, so that memory is that of one; the last is left to the caller.

        Args:
            model: the (wrapped) model.
            inputs: the sub-batches of `_prepare_inputs`.
            return_outputs: must be False.
            num_items_in_batch: not used; the windows' own token counts are.

        Returns:
            The loss, a float32 scalar with the gradient of the last sub-batch.

        Raises:
            ValueError: when outputs are asked for.
        """
        if return_outputs:
            raise ValueError("AgentGRPOTrainer does not return outputs of its forward passes; call the model directly")
        training = bool(self.model.training)
        total: torch.Tensor | float = 0.0
        figures = self._figures if training else LossFigures(self.accelerator.device)
        for position, sub in enumerate(inputs):
            last = position == len(inputs) - 1
            with nullcontext() if last or not training else self.accelerator.no_sync(model):
                loss = self._sub_batch_loss(model, sub, len(inputs), figures)
                if training and not last:
                    self.accelerator.backward(loss)
                    loss = loss.detach()
            total = loss + total
        if training:
            self._window_has_signal |= any(sub["has_signal"] for sub in inputs)
        if self.accelerator.sync_gradients or not training:  # the figures are those of a whole optimiser window
            self._record(figures.results(self.accelerator, self.loss_type, kl=self.beta != 0.0))
            self._figures = LossFigures(self.accelerator.device)
            if training:
                self._record_replayed()
        assert isinstance(total, torch.Tensor)  # a micro-step has at least one sub-batch
        return total

    def _sub_batch_loss(self, model: Any, sub: SubBatch, passes: int, figures: LossFigures) -> torch.Tensor:
        logps, entropies, aux_loss = self._score(model, sub)
        mask = (sub["completion_mask"] * sub["tool_mask"]).bool()
        segments = sub["segments"]
        old = sub.get("old_per_token_logps")
        before = logps.detach() if old is None else old
        weights, ratios, differences = self._weights(before, sub, mask)
        terms = token_losses(
            logps,
            old,
            self._advantages(sub, before, mask) * weights,
            mask,
            loss_type=self.loss_type,
            epsilon_low=self.epsilon_low,
            epsilon_high=self.epsilon_high,
            delta=self.args.delta,
            segments=segments if self.args.importance_sampling_level == "step" else None,
        )
        per_token = terms.loss
        divergence = None
        if self.beta != 0.0:
            gap = torch.where(mask, sub["ref_per_token_logps"] - logps, torch.zeros_like(logps))
            divergence = torch.exp(gap) - gap - 1.0
            if self.args.use_bias_correction_kl:
                change = torch.where(mask, logps - before, torch.zeros_like(logps))
                divergence = divergence * torch.exp(change)
            per_token = per_token + self.beta * divergence
        if self.entropy_coef != 0.0 and entropies is not None:
            per_token = per_token - self.entropy_coef * entropies
        per_token = self._add_own_loss(per_token, sub, mask)
        training = bool(self.model.training)
        normalizer = sub["num_items_in_batch"].clamp(min=1.0) / self.accelerator.num_processes
        if training:
            normalizer = normalizer * self.current_gradient_accumulation_steps / self.args.steps_per_generation
        loss: torch.Tensor = torch.where(mask, per_token, torch.zeros_like(per_token)).sum() / normalizer
        if aux_loss is not None:
            share = passes * (self.current_gradient_accumulation_steps if training else 1)
            loss = loss + self.router_aux_loss_coef * aux_loss / share
        figures.add(mask, entropies, terms.low, terms.high, divergence, ratios, differences, self.args.is_clip)
        return loss

    def _advantages(self, sub: SubBatch, before: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The advantages of a sub-batch (B, C); `before` holds the log-probabilities under the model before the update."""
        advantages: torch.Tensor = sub["advantages"]
        return advantages

    def _add_own_loss(self, per_token: torch.Tensor, sub: SubBatch, mask: torch.Tensor) -> torch.Tensor:
        """The losses (B, C) with those of a trainer that has others than the policy's."""
        return per_token

    # ------------------------------------------------------------------------------------------------ watching and logging

    def _record(self, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            if not math.isnan(value):  # nothing to average
                self._metrics[self.mode][name].append(value)

    def _watch_signal(self, signal: bool) -> None:
        self._record({"batch/no_signal": float(not signal)})
        if self.mode != "train":
            return
        self._no_signal_batches = 0 if signal else self._no_signal_batches + 1
        if signal:
            return
        kept, reasons = screen(self.trajectories)
        totals = [self.trajectories[position].total_reward for position in kept]
        seen = f"all returns between {min(totals):g} and {max(totals):g}" if totals else "no episode left"
        lost = f", {len(reasons)} of {len(self.trajectories)} episodes left out" if reasons else ""
        what = f"step {self.state.global_step}: no group of this generation batch has any variance in its returns ({seen}{lost})"
        limit = self.args.max_no_signal_batches
        if limit and self._no_signal_batches >= limit:
            raise NoLearningSignalError(
                f"{what}, for the {self._no_signal_batches}th time in a row: there is nothing to learn from. The policy has collapsed, or the task is "
                "too hard or too easy for it; warm-start it, choose easier tasks, raise num_generations or the temperature, or lower the learning "
                "rate (max_no_signal_batches=0 never stops)"
            )
        skipped = "" if self._trains_everything() else "; the update is skipped"
        warnings.warn(
            f"{what}{skipped}. {self._no_signal_batches} such batch(es) in a row; training stops at {limit or 'no number'}", stacklevel=2
        )

    def create_model_card(  # type: ignore[override]  # TRL's signature differs from transformers'
        self, model_name: str | None = None, dataset_name: str | None = None, tags: str | list[str] | None = None
    ) -> None:
        """Write no model card: TRL's would describe another method, and knows nothing of the environment. The run folder holds what was done.

        Args:
            model_name: ignored.
            dataset_name: ignored.
            tags: ignored.
        """

    def _log_completions(self, advantages: Advantages) -> None:
        """Fill TRL's completions table: one line per episode."""
        if not (self.log_completions and self.accelerator.is_main_process):
            return
        table = completions_table(self.trajectories, advantages, lambda ids: self._tokenizer.decode(np.asarray(ids).tolist()))
        own: dict[str, Any] = {
            "prompt": self._logs["prompt"],
            "completion": self._logs["completion"],
            "advantage": self._logs["advantages"],
        }
        for column in (*own.values(), *self._logs["rewards"].values(), *self._logs["extra"].values()):
            column.clear()
        for name, values in table.items():
            target = own.get(name)
            if target is None:
                target = self._logs["rewards" if name == "return" else "extra"][name]
            target.extend(values)
