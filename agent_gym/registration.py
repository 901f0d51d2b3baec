"""The table of environment ids. Strings only: nothing is imported before an environment is made."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import gymnasium

__all__ = ["ENVIRONMENTS", "Entry", "register_all", "registered_id"]

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
        f"{NAMESPACE}/TwoWikiMultihopQA-v0",
        "agent_gym.envs.multihop:TwoWikiMultihopQAEnv",
        "multi-hop questions of four kinds, answered with a search tool; generated worlds, or the files of 2WikiMultihopQA with their aliases",
    ),
    Entry(
        f"{NAMESPACE}/MuSiQue-v0",
        "agent_gym.envs.multihop:MuSiQueEnv",
        "questions of two to four hops, answered with a search tool; generated worlds, or the files of MuSiQue, unanswerable twins included",
    ),
    Entry(
        f"{NAMESPACE}/Tool-v0",
        "agent_gym.envs.tool_tasks:ToolTaskEnv",
        "tool calling: sums and unit conversions with a calculator and a converter, or your own tasks and tools",
    ),
    Entry(
        f"{NAMESPACE}/GSM8K-v0",
        "agent_gym.envs.gsm8k:GSM8KEnv",
        "word problems worked out with a calculator; generated problems, or the files of GSM8K",
    ),
    Entry(
        f"{NAMESPACE}/ALFWorld-v0",
        "agent_gym.envs.alfworld:ALFWorldEnv",
        "household tasks in text, played by commands; generated games, or the files of ALFWorld",
    ),
    Entry(
        f"{NAMESPACE}/TextWorld-v0",
        "agent_gym.envs.textworld:TextWorldEnv",
        "text adventures: TextWorld's challenges, generated on first use, or your own games (extra textworld)",
    ),
    Entry(
        f"{NAMESPACE}/WebShop-v0",
        "agent_gym.envs.webshop.env:WebShopEnv",
        "buying what somebody asks for in a web shop, in text or in a real browser; generated products, or the files of WebShop",
    ),
    Entry(
        f"{NAMESPACE}/PaperSearch-v0",
        "agent_gym.envs.papers:PaperSearchEnv",
        "finding the papers that answer a question by searching and following citations; a generated literature, or your papers and questions",
    ),
    Entry(
        f"{NAMESPACE}/FrozenLake-v0",
        "agent_gym.envs.toy_text:FrozenLakeTextEnv",
        "Gymnasium's FrozenLake in words: crossing ice with holes on generated maps, slippery or not",
    ),
    Entry(
        f"{NAMESPACE}/Taxi-v0",
        "agent_gym.envs.toy_text:TaxiTextEnv",
        "Gymnasium's Taxi in words: picking a passenger up and driving to the destination",
    ),
    Entry(
        f"{NAMESPACE}/Blackjack-v0",
        "agent_gym.envs.toy_text:BlackjackTextEnv",
        "Gymnasium's Blackjack in words",
    ),
    Entry(
        f"{NAMESPACE}/CliffWalking-v0",
        "agent_gym.envs.toy_text:CliffWalkingTextEnv",
        "Gymnasium's CliffWalking in words: the shortest way along a cliff",
    ),
)


def register_all() -> None:
    """Register every id with Gymnasium; ids that are registered already are left alone. No `max_episode_steps`: limits are `max_turns`."""
    for entry in ENVIRONMENTS:
        if entry.id not in gymnasium.registry:
            gymnasium.register(id=entry.id, entry_point=entry.entry_point, kwargs=dict(entry.kwargs))


def registered_id(env: str) -> str:
    """Return the id under which Gymnasium knows an environment, importing what registers it.

    Args:
        env: an id; "module:Namespace/Name-v0" for one that a module registers when it is imported; or "module:Class" for a class that is registered
            nowhere, which then is registered as "Local/Class-v0".

    Returns:
        The id, without a module; an unknown id comes back as it is.

    Raises:
        ImportError: if the module cannot be imported.
        ValueError: if the module has no such class, or another class stands under that id.
    """
    module, colon, name = env.rpartition(":")
    if not colon:
        return env
    loaded = importlib.import_module(module)
    if name in gymnasium.registry or "/" in name or not name.isidentifier():
        return name
    if not isinstance(getattr(loaded, name, None), type):
        raise ValueError(f"the module {module!r} has no class {name!r}")
    local = f"Local/{name}-v0"
    known = gymnasium.registry.get(local)
    if known is None:
        gymnasium.register(id=local, entry_point=env)
    elif known.entry_point != env:
        raise ValueError(f"{local!r} already stands for {known.entry_point!r}; register {env!r} under an id of its own")
    return local
