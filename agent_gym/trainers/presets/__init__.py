"""Presets of the embedded run, one module per environment: what `agent-gym train ENV` does where no model is given.

A preset says which tasks are trained on and which are held out, how the tiny model gets its warm start, and with which settings reinforcement learning
goes on from there; `agent_gym.trainers.embedded` runs it. A further one is a module here with a subclass of `Preset`, and a line in `PRESETS`. The
modules are imported on first use, since they load torch.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent_gym.trainers.presets.base import Preset

__all__ = ["DEFAULT_ENV", "PRESETS", "get_preset"]

PRESETS: Mapping[str, str] = MappingProxyType(
    {
        "AgentR1/HotpotQA-v0": "agent_gym.trainers.presets.hotpotqa:HotpotQAPreset",
        "AgentR1/ALFWorld-v0": "agent_gym.trainers.presets.alfworld:ALFWorldPreset",
        "AgentR1/WebShop-v0": "agent_gym.trainers.presets.webshop:WebShopPreset",
    }
)
"""Environment id -> where its preset is."""
DEFAULT_ENV = "AgentR1/HotpotQA-v0"


def get_preset(env_id: str = DEFAULT_ENV) -> Preset:
    """Make the preset of an environment.

    Args:
        env_id: a key of `PRESETS`.

    Returns:
        The preset.

    Raises:
        ValueError: where the environment has none.
    """
    if env_id not in PRESETS:
        raise ValueError(f"the embedded run has no preset for {env_id}, only for {', '.join(PRESETS)}; for other environments give a model")
    module, _, name = PRESETS[env_id].partition(":")
    preset: Preset = getattr(import_module(module), name)()
    return preset
