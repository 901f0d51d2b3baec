"""Games and plays that several test files use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agent_gym.envs.textworld import TextWorldEnv
from agent_gym.envs.textworld.engine import TextWorldEngine
from agent_gym.envs.textworld.games import GeneratedGames

GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "coin": ("coin_collector", {"level": 3}),
    "hunt": ("treasure_hunter", {"level": 12}),
    "cook": ("cooking", {"recipe": 2, "take": 2, "cook": True, "cut": True, "open": True, "go": 6}),
    "drop": ("cooking", {"recipe": 2, "take": 2, "cook": True, "cut": True, "drop": True}),
    "simple": ("simple", {}),
    "custom": ("custom", {"world_size": 3, "nb_objects": 6, "quest_length": 3}),
}


def games(name: str, cache: Path, **kwargs: Any) -> GeneratedGames:
    game, settings = GAMES[name]
    return GeneratedGames(game, settings, **{"num_games": 4, "cache_dir": cache, **kwargs})


def environment(name: str, cache: Path, **kwargs: Any) -> TextWorldEnv:
    game, settings = GAMES[name]
    return TextWorldEnv(**{"game": game, "settings": settings, "num_games": 4, "cache_dir": cache, **kwargs})


def opened(name: str, cache: Path, index: int = 0) -> TextWorldEngine:
    engine = TextWorldEngine()
    engine.open(games(name, cache).path(index))
    return engine


def send(env: TextWorldEnv, command: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    return env.step(env.encode_action(env.write_command(command)))


def played_by_the_expert(env: TextWorldEnv, seed: int | None = None, index: int = 0) -> tuple[list[float], dict[str, Any]]:
    """The rewards and the last info of an episode."""
    env.reset(seed=seed, options=None if seed is not None else {"index": index})
    ask, rewards = env.expert(), []
    while True:
        _, reward, terminated, truncated, info = env.step(env.encode_action(ask()))
        rewards.append(reward)
        if terminated or truncated:
            return rewards, info


def interpreters() -> int:
    """How many copies of the interpreter's library are mapped into this process."""
    with open("/proc/self/maps") as maps:
        return len({line.split()[0].split("-")[0] for line in maps if "libfrotz" in line and "r-xp" in line})


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
