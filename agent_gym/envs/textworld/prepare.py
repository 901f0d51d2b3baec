"""Makes many games beforehand, several at a time, so that no `reset` has to wait for one."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from agent_gym.envs.textworld.games import GeneratedGames, Generator

__all__ = ["PrepareSummary", "prepare_games"]


@dataclass(frozen=True, slots=True)
class PrepareSummary:
    """What `prepare_games` did.

    Attributes:
        made: games that were made.
        kept: games that were there already.
    """

    made: int
    kept: int


def prepare_games(
    sources: Sequence[GeneratedGames], *, workers: int | None = None, progress: Callable[[int, int], None] | None = None
) -> PrepareSummary:
    """Make all games that are not in the cache yet. Interrupted, it leaves whole games only, and called again it goes on where it was.

    Args:
        sources: whose games are wanted, all of them.
        workers: processes that make games at the same time; None: as many as there are processors for this process.
        progress: called with (games that are there, games that are wanted), at the beginning and after every game, from any thread.

    Returns:
        How many were made and kept.

    Raises:
        GameError: if a challenge gives no game with its settings.
        OSError: if a game cannot be written.
        ValueError: for less than one worker.
    """
    number = len(os.sched_getaffinity(0)) if workers is None and hasattr(os, "sched_getaffinity") else workers or os.cpu_count() or 1
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    missing = deque((source, index) for source in sources for index in range(len(source)) if not source.is_made(index))
    wanted, todo = sum(map(len, sources)), len(missing)
    counted, stop = threading.Lock(), threading.Event()
    there = wanted - todo
    if progress is not None:
        progress(there, wanted)

    def work(generator: Generator) -> None:
        nonlocal there
        with generator:
            while not stop.is_set():
                try:
                    source, index = missing.popleft()
                except IndexError:
                    return
                source.path(index, generator)
                with counted:
                    there += 1
                    if progress is not None:
                        progress(there, wanted)

    generators = [Generator() for _ in range(min(number, todo))]
    if generators:
        with ThreadPoolExecutor(len(generators)) as pool:
            try:
                for one in as_completed([pool.submit(work, generator) for generator in generators]):
                    one.result()
            except BaseException:
                stop.set()
                for generator in generators:
                    generator.stop()
                raise
    return PrepareSummary(todo, wanted - todo)
