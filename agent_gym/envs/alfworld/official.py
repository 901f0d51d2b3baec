"""Writes generated games as files, in the layout of the official release, so that ALFWorld itself can play them.

    OUT/generated.json                                       which settings the games were made with
    OUT/json_2.1.1/<split>/<task>-<object>-None-<receptacle>-<room>/<trial>/game.tw-pddl          the game
                                                                          /traj_data.json        what it is about, as the original's expert asks
                                                                          /initial_state.pddl    its PDDL problem

Point `ALFWORLD_DATA` at OUT and the original's `AlfredTWEnv` finds them. Every game is played to its end by our expert before it is written, and
carries that play as its `walkthrough`.

A game appears in its place as a whole: its folder is written elsewhere in OUT and moved. So a writer that is stopped leaves whole games only, and
called again it goes on where it was; games that are there are compared and kept.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_gym.envs.alfworld.expert import plan
from agent_gym.envs.alfworld.game import TASK_TYPES, parse_game
from agent_gym.envs.alfworld.generator import SPLITS, GeneratedGame, generate
from agent_gym.envs.alfworld.rooms import LAYOUTS_PER_KIND
from agent_gym.envs.alfworld.simulator import Simulator

__all__ = ["WriteError", "WriteSummary", "game_files", "write_games"]

DATA_FOLDER = "json_2.1.1"
_SETTINGS_FILE = "generated.json"


class WriteError(OSError):
    """The games could not all be written. Those that are there are whole; the message says how many, and what to do."""


@dataclass(frozen=True)
class WriteSummary:
    """What `write_games` did.

    Attributes:
        folder: the folder that `ALFWORLD_DATA` has to name.
        written: how many games were written, by split.
        kept: how many were there already, by split.
        size: bytes of all these games.
    """

    folder: Path
    written: Mapping[str, int]
    kept: Mapping[str, int]
    size: int


def write_games(
    out: str | Path,
    *,
    counts: int | Mapping[str, int],
    grammar: str = "move",
    level: str = "full",
    task_types: Collection[str] = TASK_TYPES,
    first_index: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> WriteSummary:
    """Write generated games in the official layout.

    Args:
        out: the folder; it is made. A folder with games of other settings is refused.
        counts: how many games of each split, or of all three.
        grammar: "move" (current wording) or "put" (before 0.4).
        level: "full" or "small".
        task_types: the task types to draw from.
        first_index: the number of the first game of each split; the games are those of `generate_game` with these numbers.
        progress: called with (games done, games asked for) after every game.

    Returns:
        What was written and what was there already.

    Raises:
        ValueError: for a setting that does not exist, or a folder that holds games of other settings.
        WriteError: where the disk refuses, most often because it is full.
    """
    asked = dict.fromkeys(SPLITS, counts) if isinstance(counts, int) else dict(counts)
    for split, count in asked.items():
        if split not in SPLITS or count < 0:
            raise ValueError(f"counts should give a number from 0 for {', '.join(SPLITS)}; got {split!r}: {count}")
    numbers = [(split, index) for split, count in asked.items() for index in range(first_index, first_index + count)]
    settings = {
        "grammar": grammar,
        "level": level,
        "task_types": [each for each in TASK_TYPES if each in task_types],
        "rooms": LAYOUTS_PER_KIND,
    }
    generate("train", first_index, grammar=grammar, level=level, task_types=task_types)  # says what is wrong before anything is written
    out = _home(out)
    written, kept, size = dict.fromkeys(asked, 0), dict.fromkeys(asked, 0), 0
    try:
        with _workshop(out, settings) as workshop:
            for done, (split, index) in enumerate(numbers, start=1):
                game = generate(split, index, grammar=grammar, level=level, task_types=task_types)
                contents = game_files(game)
                size += sum(map(len, contents.values()))
                if _put_in_place(out / DATA_FOLDER / split / game.meta.folder / game.meta.trial, contents, workshop):
                    written[split] += 1
                else:
                    kept[split] += 1
                if progress is not None:
                    progress(done, len(numbers))
    except OSError as error:
        whole = sum(written.values()) + sum(kept.values())
        raise WriteError(
            f"could not write the games to {out}: {error.strerror or error}. {whole} of {len(numbers)} are there, all of them whole. "
            f"Free space or mend the folder, and call again with the same settings: what is there is kept."
        ) from error
    return WriteSummary(out, written, kept, size)


def game_files(game: GeneratedGame) -> dict[str, bytes]:
    """Play a game to its end and give the files that it consists of.

    Args:
        game: a generated game.

    Returns:
        The contents by file name.

    Raises:
        RuntimeError: if the expert does not win it, which would be a fault of this package.
    """
    walkthrough = _walkthrough(game)
    return {
        "game.tw-pddl": _json({**game.data, "walkthrough": walkthrough}),
        "traj_data.json": _json(_trajectory(game)),
        "initial_state.pddl": game.data["pddl_problem"].encode("utf-8"),
    }


def _walkthrough(game: GeneratedGame) -> list[str]:
    name = f"{game.meta.split}/{game.meta.trial}"
    simulator = Simulator(parse_game(game.data, where=name))
    commands = plan(simulator)
    for command in commands:
        simulator.step(command)
    if not simulator.won or not commands:
        raise RuntimeError(f"the expert does not win the generated game {name}; this is a fault of agent-gym, please report it")
    return commands


def _trajectory(game: GeneratedGame) -> dict[str, Any]:
    """What the original's expert and loaders read of a game's `traj_data.json`; pictures and the robot's actions there are none."""
    meta = game.meta
    return {
        "task_type": meta.task_type,
        "task_id": meta.trial,
        "pddl_params": {
            "object_target": meta.object_target,
            "parent_target": meta.parent_target,
            "mrecep_target": "",
            "toggle_target": meta.toggle_target,
            "object_sliced": False,
        },
        "scene": {"floor_plan": f"Generated{meta.scene}", "scene_num": meta.scene},
        "turk_annotations": {"anns": [{"task_desc": meta.task, "high_descs": [], "votes": []}]},
        "images": [],
        "plan": {"high_pddl": [], "low_actions": []},
    }


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8")


def _home(path: str | Path) -> Path:
    """The path, `~` being the home folder where it names one that is known, as where the games are looked for."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


@contextmanager
def _workshop(out: Path, settings: Mapping[str, Any]) -> Iterator[Path]:
    """Give a folder inside OUT in which games are put together, and remove it in the end."""
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=out))
    try:
        _check_settings(out, settings, folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_settings(out: Path, settings: Mapping[str, Any], workshop: Path) -> None:
    """Refuse a folder that holds other games; note the settings in a new one."""
    file = out / _SETTINGS_FILE
    has_games = (out / DATA_FOLDER).exists()  # asked first: another writer may be at work, and it notes its settings before its games
    if not file.exists():
        if has_games:
            raise ValueError(f"{out / DATA_FOLDER} holds games that were not generated here; take another folder")
        draft = workshop / _SETTINGS_FILE
        draft.write_bytes(_json(settings))
        try:
            os.link(draft, file)  # refuses where another writer was faster
            return
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            os.replace(draft, file)
            return
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = "settings that cannot be read any more"
    if found != settings:
        raise ValueError(f"{out} holds games that were made with {found}, and now {settings} is asked for; take another folder")


def _put_in_place(target: Path, contents: Mapping[str, bytes], workshop: Path) -> bool:
    """Write a game, unless it is there; a folder that is not this very game (a lost machine can leave such a one) is replaced."""
    if target.is_dir():
        if _holds(target, contents):
            return False
        with suppress(FileNotFoundError):  # another writer was faster
            os.rename(target, workshop / f"old-{target.name}")
    draft = workshop / target.name
    draft.mkdir()
    for name, content in contents.items():
        (draft / name).write_bytes(content)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.rename(draft, target)
    except OSError:
        if not _holds(target, contents):  # else another writer was faster
            raise
        return False
    return True


def _holds(folder: Path, contents: Mapping[str, bytes]) -> bool:
    return all((folder / name).is_file() and (folder / name).read_bytes() == content for name, content in contents.items())
