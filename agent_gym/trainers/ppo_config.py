"""`AgentPPOConfig`: the settings of `AgentGRPOConfig`, and those of a critic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.critic_settings import check_critic_settings

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
    takes_groups_of_one: ClassVar[bool] = True

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
        super().__post_init__()
        names = [item.name for item in fields(self) if item.name not in {inherited.name for inherited in fields(AgentGRPOConfig)}]
        check_critic_settings(
            self.advantage,
            self.advantage_kwargs if isinstance(self.advantage_kwargs, Mapping) else None,
            {name: getattr(self, name) for name in names},
            replayed=self.replay_correction if self.replay_files else None,
        )
        if self.fp16:
            raise ValueError("fp16=True: the critic's loss is not scaled, and small gradients of 16 bits would vanish; use bf16")

    @property
    def lam_step(self) -> dict[str, float]:
        """The keyword of the estimator that `lam` stands for; empty where it is not given."""
        return {} if self.lam is None else {"lam_step": self.lam}
