"""Wrappers: recording episodes, and faces between token environments and the rest of the Gymnasium world. None of them loads torch."""

if not __name__.startswith("agent_gym."):
    raise ImportError("the folder wrappers/ at the repository's root is a link for people; import agent_gym.wrappers instead")

from agent_gym.wrappers.convert import as_token_env
from agent_gym.wrappers.discrete import DiscreteTokens
from agent_gym.wrappers.recorder import StepRecorder
from agent_gym.wrappers.stepping import astep, can_await
from agent_gym.wrappers.text import TokenizeText
from agent_gym.wrappers.verbalize import VERBALIZERS, VerbalizeObservation, Verbalizer

__all__ = [
    "VERBALIZERS",
    "DiscreteTokens",
    "StepRecorder",
    "TokenizeText",
    "VerbalizeObservation",
    "Verbalizer",
    "as_token_env",
    "astep",
    "can_await",
]
