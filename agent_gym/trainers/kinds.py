"""The trainers by name, for command lines, recipes and the embedded run. Knows neither TRL nor torch until one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["TRAINERS", "TrainerKind", "get_trainer"]


class TrainerKind(NamedTuple):
    """A trainer.

    Attributes:
        title: for people.
        config: where its settings are, "module:Class".
        trainer: where it is, "module:Class".
        advantage: the estimator that it takes where none is named.
        critic: whether it has a critic.
        teacher: whether it has a teacher.
    """

    title: str
    config: str
    trainer: str
    advantage: str
    critic: bool = False
    teacher: bool = False

    def load_config(self) -> Any:
        """Return the class of its settings.

        Returns:
            The class; importing it loads torch and TRL.
        """
        return _load(self.config)

    def load_trainer(self) -> Any:
        """Return the class of the trainer.

        Returns:
            The class; importing it loads torch and TRL.
        """
        return _load(self.trainer)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


TRAINERS: Mapping[str, TrainerKind] = MappingProxyType(
    {
        "grpo": TrainerKind("GRPO", "agent_gym.trainers.config:AgentGRPOConfig", "agent_gym.trainers.grpo:AgentGRPOTrainer", "grpo"),
        "ppo": TrainerKind(
            "PPO", "agent_gym.trainers.ppo_config:AgentPPOConfig", "agent_gym.trainers.ppo:AgentPPOTrainer", "step_gae", critic=True
        ),
        "distill": TrainerKind(
            "on-policy distillation",
            "agent_gym.trainers.distill_config:AgentDistillConfig",
            "agent_gym.trainers.distill:AgentDistillTrainer",
            "grpo",
            teacher=True,
        ),
    }
)
"""Name -> trainer."""


def get_trainer(name: str) -> TrainerKind:
    """Look a trainer up.

    Args:
        name: a key of `TRAINERS`.

    Returns:
        The trainer.

    Raises:
        ValueError: with the names that exist.
    """
    if name not in TRAINERS:
        raise ValueError(f"there is no trainer {name!r}; choose one of {', '.join(TRAINERS)}")
    return TRAINERS[name]
