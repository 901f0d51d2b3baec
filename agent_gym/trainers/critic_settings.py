"""The checks of a critic's settings, for a trainer's configuration and for whoever wants to know before torch is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from agent_gym.trainers.advantages import get_advantage

__all__ = ["check_critic_settings"]


def check_critic_settings(
    advantage: str, advantage_kwargs: Mapping[str, Any] | None, settings: Mapping[str, Any], *, replayed: str | None = None
) -> None:
    """Refuse settings that a critic cannot work with.

    Args:
        advantage: name of a registered estimator.
        advantage_kwargs: its settings.
        settings: fields of `AgentPPOConfig` by name; what is left out is not checked.
        replayed: how saved episodes are corrected for, where some are trained on again; None where none are.

    Raises:
        ValueError: with the name of the setting, what was given and what is wanted.
    """
    estimator = get_advantage(advantage)
    if not estimator.needs_values:
        raise ValueError(
            f"advantage={advantage!r} asks no critic, so there would be nothing for one to do; use AgentGRPOTrainer (algorithm grpo), or step_gae or "
            "token_gae"
        )
    for name, least in (("critic_epochs", 1), ("critic_minibatches", 1), ("critic_warmup_updates", 0)):
        value = settings.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"{name}={value!r} must be a whole number of at least {least}")
    if "critic_learning_rate" in settings:
        _positive("critic_learning_rate", settings["critic_learning_rate"], "")
    if settings.get("value_clip") is not None:
        _positive("value_clip", settings["value_clip"], ", or None for no clipping")
    for name in ("gamma", "lam", "critic_lam"):
        value = settings.get(name)
        if value is not None and not (isinstance(value, (int, float)) and 0.0 <= value <= 1.0):
            raise ValueError(f"{name}={value!r} lies outside [0, 1]")
    lam = settings.get("lam")
    if lam is not None and "lam_step" in (advantage_kwargs or {}):
        raise ValueError(
            f"lam={lam} and advantage_kwargs.lam_step={(advantage_kwargs or {})['lam_step']} are one setting; give one of them"
        )
    if lam is not None and "lam_step" not in estimator.settings:
        raise ValueError(f"lam={lam}: the estimator {advantage!r} has no lam_step; give its own settings as advantage_kwargs")
    if replayed is not None and replayed != "imitation":
        raise ValueError(
            f"replay with replay_correction={replayed!r}: the advantages of old episodes would need values under the weights that sampled them; use "
            "replay_correction='imitation', which needs none, or AgentGRPOTrainer (algorithm grpo)"
        )


def _positive(name: str, value: Any, otherwise: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value!r} must be a positive number{otherwise}")
