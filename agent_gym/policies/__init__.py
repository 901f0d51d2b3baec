"""Policies: token ids in, token ids and log-probabilities out.

`TransformersPolicy` is imported when it is first asked for, since it loads torch, and the policies on engines (`VLLMPolicy`, `SGLangPolicy`) likewise,
which most runs do without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_gym.policies.base import Policy, Sampling, check_training_sampling, derive_seed
from agent_gym.policies.scripted import RandomPolicy, ScriptedPolicy

if TYPE_CHECKING:
    from agent_gym.policies.engine import EngineError, EnginePolicy
    from agent_gym.policies.sglang_policy import SGLangPolicy
    from agent_gym.policies.transformers_policy import TransformersPolicy
    from agent_gym.policies.vllm_policy import VLLMPolicy

__all__ = [
    "EngineError",
    "EnginePolicy",
    "Policy",
    "RandomPolicy",
    "SGLangPolicy",
    "Sampling",
    "ScriptedPolicy",
    "TransformersPolicy",
    "VLLMPolicy",
    "check_training_sampling",
    "derive_seed",
]

_ENGINES = {"EngineError": "engine", "EnginePolicy": "engine", "SGLangPolicy": "sglang_policy", "VLLMPolicy": "vllm_policy"}


def __getattr__(name: str) -> Any:
    if name == "TransformersPolicy":
        try:
            from agent_gym.policies.transformers_policy import TransformersPolicy
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError('TransformersPolicy needs torch: pip install "agentr1-gym[train]"') from error
        return TransformersPolicy
    if name in _ENGINES:
        return getattr(import_module(f"agent_gym.policies.{_ENGINES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
