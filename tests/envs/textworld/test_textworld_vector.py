"""Many environments in processes of their own, for a long time: nothing grows and nothing is left."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv
from helpers import require
from textworld_play import environment, games, interpreters, open_files

from agent_gym.envs.textworld import TextWorldEnv

require("textworld.core")

NUMBER = 16
STEPS = 1000
GAMES = 3


def resident() -> int:
    """Resident memory of this process, in KiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class Measured(TextWorldEnv):
    """Tells in info what its process holds, measured at every hundredth info."""

    extra_info = {**TextWorldEnv.extra_info, "pid": 0, "resident": 0, "files": 0, "interpreters": 0}  # noqa: RUF012
    infos = 0

    def _standing(self) -> dict[str, Any]:
        if self.infos % 100 == 0:
            self.held = {"pid": os.getpid(), "resident": resident(), "files": open_files(), "interpreters": interpreters()}
        self.infos += 1
        return {**super()._standing(), **self.held}


def make(cache: str) -> TextWorldEnv:
    return Measured(
        settings={"level": 3},
        num_games=GAMES,
        cache_dir=cache,
        context="window:4",
        max_turns=25,
        max_observation_tokens=2048,
        max_action_tokens=64,
    )


def children() -> set[int]:
    """The living processes that descend from this one."""
    found, todo = set(), [os.getpid()]
    while todo:
        for task in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                found.add(child)
                todo.append(child)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_files_processes_and_memory_stay_flat(game_cache: Path, method: str) -> None:
    source = games("coin", game_cache, num_games=GAMES)
    for index in range(GAMES):
        source.path(index)
    probe = environment("coin", game_cache, num_games=GAMES, max_action_tokens=64)
    moves = [
        probe.encode_action(probe.write_command(command))
        for command in ("look", "inventory", "go north", "go south", "go east", "go west", "xyzzy")
    ]
    actions = np.full((len(moves), probe.max_action_tokens), probe.chat.pad_id, dtype=np.int64)
    for row, ids in zip(actions, moves, strict=True):
        row[: len(ids)] = ids
    probe.close()
    del probe
    gc.collect()
    inherited = interpreters() if method == "fork" else 0  # what earlier tests of this process hold, a forked worker has mapped too
    before, own_files = children(), open_files()
    makers: list[Callable[[], TextWorldEnv]] = [partial(make, str(game_cache))] * NUMBER
    vector = AsyncVectorEnv(makers, context=method)
    try:
        vector.reset(seed=0)
        rng = np.random.default_rng(0)
        measures: list[dict[str, Any]] = []
        processes = []
        for step in range(1, STEPS + 1):
            _, _, _, _, info = vector.step(actions[rng.integers(len(moves), size=NUMBER)])
            if step % 100 == 0:
                measures.append({name: np.asarray(info[name]).copy() for name in ("pid", "resident", "files", "interpreters")})
                processes.append(children())
    finally:
        vector.close()
        del vector
        gc.collect()
    early, late = measures[1], measures[-1]
    assert (early["pid"] == late["pid"]).all() and len(set(late["pid"])) == NUMBER
    assert all(one == processes[0] for one in processes) and len(processes[0] - before) <= NUMBER + 1  # spawn brings a resource tracker
    assert (late["files"] == early["files"]).all(), (early["files"], late["files"])
    assert (late["interpreters"] == inherited + 1).all(), (inherited, late["interpreters"])
    assert int((late["resident"] - early["resident"]).max()) < 4 * 1024, "a worker grew by more than 4 MiB in 800 steps and some 40 games"
    assert len(children() - before) <= 1 and open_files() <= own_files + 4  # the tracker's own; the workers' pipes would be 32
