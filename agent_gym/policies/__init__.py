"""Policies: token ids in, token ids and log-probabilities out.

`TransformersPolicy` is imported when it is first asked for, since it loads torch, and the policies on servers (`VLLMPolicy`, `SGLangPolicy`, `OpenAIPolicy`)
likewise, which most runs do without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent_gym.policies.base import Policy, Sampling, check_training_policy, check_training_sampling, derive_seed
from agent_gym.policies.scripted import RandomPolicy, ScriptedPolicy

if TYPE_CHECKING:
    from agent_gym.policies.engine import EngineError, EnginePolicy
    from agent_gym.policies.metering import MeteredPolicy, Prices, RequestRecord, Traffic
    from agent_gym.policies.openai_policy import OpenAIPolicy
    from agent_gym.policies.rate_limit import RateLimit
    from agent_gym.policies.sglang_policy import SGLangPolicy
    from agent_gym.policies.transformers_policy import TransformersPolicy
    from agent_gym.policies.vllm_policy import VLLMPolicy

__all__ = [
    "EngineError",
    "EnginePolicy",
    "MeteredPolicy",
    "OpenAIPolicy",
    "Policy",
    "Prices",
    "RandomPolicy",
    "RateLimit",
    "RequestRecord",
    "SGLangPolicy",
    "Sampling",
    "ScriptedPolicy",
    "Traffic",
    "TransformersPolicy",
    "VLLMPolicy",
    "check_training_policy",
    "check_training_sampling",
    "derive_seed",
]

_ENGINES = {
    "EngineError": "engine",
    "EnginePolicy": "engine",
    "MeteredPolicy": "metering",
    "OpenAIPolicy": "openai_policy",
    "Prices": "metering",
    "RateLimit": "rate_limit",
    "RequestRecord": "metering",
    "SGLangPolicy": "sglang_policy",
    "Traffic": "metering",
    "VLLMPolicy": "vllm_policy",
}


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
