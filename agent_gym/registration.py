"""The table of environment ids. Strings only: nothing is imported before an environment is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium

__all__ = ["ENVIRONMENTS", "Entry", "register_all"]

NAMESPACE = "AgentR1"


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered environment.

    Attributes:
        id: as in `gymnasium.make`.
        entry_point: "module:Class".
        summary: one line for people.
        kwargs: default keywords.
    """

    id: str
    entry_point: str
    summary: str
    kwargs: dict[str, Any] = field(default_factory=dict)


ENVIRONMENTS: tuple[Entry, ...] = (
    Entry(
        f"{NAMESPACE}/HotpotQA-v0",
        "agent_gym.envs.hotpotqa:HotpotQAEnv",
        "multi-hop questions answered with a search tool; generated worlds, or HotpotQA, 2WikiMultihopQA and MuSiQue files",
    ),
    Entry(
        f"{NAMESPACE}/Tool-v0",
        "agent_gym.envs.tool:ToolTaskEnv",
        "tool calling: sums and unit conversions with a calculator and a converter, or your own tasks and tools",
    ),
)


def register_all() -> None:
    """Register every id with Gymnasium; ids that are registered already are left alone. No `max_episode_steps`: limits are `max_turns`."""
    for entry in ENVIRONMENTS:
        if entry.id not in gymnasium.registry:
            gymnasium.register(id=entry.id, entry_point=entry.entry_point, kwargs=dict(entry.kwargs))
