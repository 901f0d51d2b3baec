"""`AgentPPOConfig`: the settings of `AgentGRPOConfig`, and those of a critic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agent_gym.trainers.advantages import get_advantage
from agent_gym.trainers.config import AgentGRPOConfig

__all__ = ["AgentPPOConfig"]


@dataclass
class AgentPPOConfig(AgentGRPOConfig):
    """Settings of `AgentPPOTrainer`: every field of `AgentGRPOConfig`, and those below.

    Defaults that differ: `num_generations=1`, since a critic takes the place of the group (so a generation batch is as many tasks as episodes), and
    `advantage="step_gae"`. `optim` is the policy's; the critic has an AdamW with `adam_beta1`, `adam_beta2`, `adam_epsilon` and `weight_decay`, a
    constant learning rate, and its gradient is clipped to `max_grad_norm` by itself. Having an optimiser of its own, its loss needs no coefficient.

    Attributes:
        critic_model: folder or name of the critic's backbone, with the policy's tokenizer; None for a copy of the policy's.
        critic_learning_rate: of the critic's optimiser.
        critic_epochs: passes of the critic over each generation batch; None for `num_iterations`, those of the policy.
        critic_minibatches: optimiser steps of the critic in each pass, each over whole episodes.
        critic_warmup_updates: so many updates at the start train the critic alone; they count in `max_steps`.
        value_clip: a value is trained until it has moved so far from the one that the batch was judged by; None never stops it.
        lam: the trace's decay from step to step; None for `advantage_kwargs` (`lam_step`), or the estimator's default, 0.95.
        critic_lam: the decay of the critic's targets, between steps and between tokens; None for those of the advantages. 1 makes them the returns
            that were seen (and V behind a limit): slower to be precise, but free of what the critic believed (VC-PPO, arXiv 2503.01491).
    """

    has_critic: ClassVar[bool] = True

    num_generations: int | None = field(default=1, metadata={"help": "Episodes per task."})
    advantage: str = field(default="step_gae", metadata={"help": "Advantage estimator by name, one that takes the values of a critic."})
    critic_model: str | None = field(default=None, metadata={"help": "Backbone of the critic; default: a copy of the policy's."})
    critic_learning_rate: float = field(default=1e-5, metadata={"help": "Learning rate of the critic."})
    critic_epochs: int | None = field(default=None, metadata={"help": "Passes of the critic over a generation batch."})
    critic_minibatches: int = field(default=1, metadata={"help": "Optimiser steps of the critic in each pass."})
    critic_warmup_updates: int = field(default=0, metadata={"help": "Updates at the start that train the critic alone."})
    value_clip: float | None = field(default=0.2, metadata={"help": "Clip range of the value loss."})
    lam: float | None = field(default=None, metadata={"help": "Decay of the trace from step to step."})
    critic_lam: float | None = field(default=None, metadata={"help": "The same for the critic's targets."})

    def __post_init__(self) -> None:
        """Check as `AgentGRPOConfig` does, but for groups of one, and then what a critic needs.

        Raises:
            ValueError: for each refused setting, with what was given, why it is refused and what to use.
        """
        alone = self.num_generations == 1
        if alone:  # TRL asks for two at least, to compare them; any number that divides the batch serves to have the rest checked
            share = self.steps_per_generation or self.gradient_accumulation_steps
            own = self.generation_batch_size or self.per_device_train_batch_size * share
            if own < 2:
                raise ValueError(
                    f"per_device_train_batch_size={self.per_device_train_batch_size} and gradient_accumulation_steps={self.gradient_accumulation_steps}: "
                    "an update on one episode per rank; give it two at least"
                )
            self.num_generations = own
            if self.num_generations_eval is None:
                self.num_generations_eval = 1
        super().__post_init__()
        if alone:
            self.num_generations = 1
        _check_critic(self)

    @property
    def lam_step(self) -> dict[str, float]:
        """The keyword of the estimator that `lam` stands for; empty where it is not given."""
        return {} if self.lam is None else {"lam_step": self.lam}


def _check_critic(args: Any) -> None:
    if not get_advantage(args.advantage).needs_values:
        raise ValueError(
            f"advantage={args.advantage!r} asks no critic, so there would be nothing for one to do; use AgentGRPOTrainer, or step_gae or token_gae"
        )
    for name in ("critic_epochs", "critic_minibatches"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise ValueError(f"{name}={getattr(args, name)} must be at least 1")
    if args.critic_warmup_updates < 0:
        raise ValueError(f"critic_warmup_updates={args.critic_warmup_updates} must not be negative")
    if not (math.isfinite(args.critic_learning_rate) and args.critic_learning_rate > 0):
        raise ValueError(f"critic_learning_rate={args.critic_learning_rate} must be a positive number")
    if args.value_clip is not None and not (math.isfinite(args.value_clip) and args.value_clip > 0):
        raise ValueError(f"value_clip={args.value_clip} must be a positive number, or None for no clipping")
    for name in ("lam", "critic_lam"):
        value = getattr(args, name)
        if value is not None and not 0.0 <= value <= 1.0:
            raise ValueError(f"{name}={value} lies outside [0, 1]")
    if args.lam is not None and "lam_step" in (args.advantage_kwargs or {}):
        raise ValueError(
            f"lam={args.lam} and advantage_kwargs.lam_step={args.advantage_kwargs['lam_step']} are one setting; give one of them"
        )
    if args.lam is not None and "lam_step" not in get_advantage(args.advantage).settings:
        raise ValueError(f"lam={args.lam}: the estimator {args.advantage!r} has no lam_step; give its own settings as advantage_kwargs")
    if args.fp16:
        raise ValueError("fp16=True: the critic's loss is not scaled, and small gradients of 16 bits would vanish; use bf16")
    if args.replay_files and args.replay_correction != "imitation":
        raise ValueError(
            f"replay_files with replay_correction={args.replay_correction!r}: the advantages of old episodes would need values under the weights that "
            "sampled them; use replay_correction='imitation', which needs none, or AgentGRPOTrainer"
        )
