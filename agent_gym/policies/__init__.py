"""Policies: token ids in, token ids and log-probabilities out. `TransformersPolicy` is imported when it is first asked for, since it loads torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agent_gym.policies.base import Policy, Sampling, check_training_sampling, derive_seed
from agent_gym.policies.scripted import RandomPolicy, ScriptedPolicy

if TYPE_CHECKING:
    from agent_gym.policies.transformers_policy import TransformersPolicy

__all__ = ["Policy", "RandomPolicy", "Sampling", "ScriptedPolicy", "TransformersPolicy", "check_training_sampling", "derive_seed"]


def __getattr__(name: str) -> Any:
    if name == "TransformersPolicy":
        try:
            from agent_gym.policies.transformers_policy import TransformersPolicy
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError('TransformersPolicy needs torch: pip install "agentr1-gym[train]"') from error
        return TransformersPolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
