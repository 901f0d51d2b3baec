"""The process that makes games. `games.py` starts it and talks to it; nothing else runs or imports it.

It is a process of its own for four reasons: the order of lists in a game's `.json` follows the hash seed, which is fixed here; TextWorld's generation
draws from and reseeds generators that are global; it is not safe in threads; and Inform 7 writes into the home and temporary folders, which are
folders inside the game's own one here, so that whatever an interrupted run leaves lies in one place.

Requests are lines of JSON on the standard input (`challenge`, `settings`, `text`, `seeds`, `folder`, `cpu_seconds`), answers lines of JSON on the standard output:
`{"seed": s}` for the first of the seeds that gave a game, else `{"error": text, "errno": number or null}`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

_SERIAL = slice(0x12, 0x18)
"""Where a story file's header holds the day on which it was compiled."""


class GaveUp(ValueError):
    """TextWorld looked for a game for too long; for a quest that fits no map it looks for ever."""


def make_game(request: Mapping[str, Any]) -> int:
    """Write `game.z8` and `game.json` into a folder.

    Args:
        request: see the module.

    Returns:
        The seed of the game: not every seed gives one, since a quest may not fit the map that was drawn.

    Raises:
        OSError: if the files cannot be written.
        ValueError: if none of the seeds gives a game.
    """
    folder = Path(request["folder"])
    work = folder / "work"
    work.mkdir()
    tempfile.tempdir = str(work)  # where TextWorld puts the project of Inform 7 ...
    os.environ["HOME"] = str(work)  # ... and Inform 7 its own settings
    failures = []
    for seed in request["seeds"]:
        try:
            _compile(request, int(seed), work / "game.z8")
        except (OSError, GaveUp):
            raise
        except Exception as error:  # a seed without a game: KeyError, ValueError, QuestGenerationError, a compiler's refusal ...
            if shutil.disk_usage(work).free < 1 << 21:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            if died := re.search(r"FAIL: -(\d+)", str(error)):  # a compiler did, which is no fault of the seed
                limit = died[1] == str(signal.SIGXFSZ.value)
                raise OSError(errno.EFBIG if limit else errno.EIO, f"Inform 7 was ended by {signal.Signals(int(died[1])).name}") from error
            failures.append(f"{type(error).__name__}: {error}")
            continue
        story = bytearray((work / "game.z8").read_bytes())
        story[_SERIAL] = b"000000"  # the same game has the same bytes on any day; the checksum leaves the header out
        (folder / "game.z8").write_bytes(story)
        shutil.move(work / "game.json", folder / "game.json")
        shutil.rmtree(work)
        return int(seed)
    raise ValueError(f"{len(failures)} seeds gave no game; the last one failed with {failures[-1]:.500}")


def _compile(request: Mapping[str, Any], seed: int, path: Path) -> None:
    import textworld
    from textworld.generator import compile_game

    options = textworld.GameOptions()
    options.seeds = seed
    options.path = str(path)
    options.force_recompile = True
    for name, value in request["text"].items():
        setattr(options.grammar, name, value)
    compile_game(_design(request["challenge"], dict(request["settings"]), options), options)


def _design(challenge: str, settings: dict[str, Any], options: Any) -> Any:
    """The game before it is compiled, by the challenge's own function."""
    if challenge == "custom":
        from textworld.generator import make_game as make_custom

        options.nb_rooms = settings["world_size"]
        options.nb_objects = settings["nb_objects"]
        options.nb_parallel_quests = settings["nb_parallel_quests"]
        options.quest_length = settings["quest_length"]
        options.quest_breadth = settings["quest_breadth"]
        options.grammar.theme = settings["theme"]
        return make_custom(options)
    from importlib import import_module

    return import_module(f"textworld.challenges.tw_{challenge}.{challenge}").make(settings, options)


@contextlib.contextmanager
def _at_most(cpu_seconds: float) -> Iterator[None]:
    """Raise `GaveUp` after so much CPU time of this process."""

    def give_up(_number: int, _frame: Any) -> None:
        raise GaveUp(f"there was none after {cpu_seconds:g} seconds of CPU time")

    signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds, 1.0)  # and again every second, should TextWorld take the first one for its own
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are none.

    Args:
        requests: lines of JSON.
        answers: lines of JSON.
    """
    for line in requests:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            with _at_most(float(request["cpu_seconds"])):
                answer = {"seed": make_game(request)}
        except OSError as error:
            answer = {"error": error.strerror or str(error), "errno": error.errno}
        except (ValueError, ImportError) as error:
            answer = {"error": str(error), "errno": None}
        try:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        except BrokenPipeError:  # whoever asked is gone, and will not take the game
            shutil.rmtree(request["folder"], ignore_errors=True)
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
            return


if __name__ == "__main__":
    # What TextWorld or a compiler prints goes to the standard error and never between two answers.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as own_output:
        os.dup2(2, 1)
        serve(sys.stdin, own_output)
