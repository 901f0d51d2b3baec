"""Where the games of an ALFWorld environment come from: generated ones, or the files of the official release.

A `GameSource` turns a number into a game, the same one in every process. Nothing is read before it is needed: generated games are made one by one,
and of an official split of thousands of files only the names and the last bytes are looked at, where the files say whether they can be solved.
That scan is made once per process and folder; a game is parsed when it is played, and the last few hundred are kept.

What the original leaves out is left out here too, with the reason: tasks with movable receptacles and sliced objects (by the name of the folder),
games that the planner could not solve, and files without that flag. Files that end in the middle count as unreadable.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from agent_gym.envs.alfworld.game import MAX_BYTES, TASK_TYPES, Game, GameError, parse_game, read_game

__all__ = [
    "OFFICIAL_COUNTS",
    "SPLITS",
    "EmbeddedGames",
    "FileGames",
    "ForeignGame",
    "GameSource",
    "Scan",
    "Task",
    "chosen_types",
    "given_task",
    "open_games",
    "scan",
]

SPLITS = ("train", "valid_seen", "valid_unseen")
OFFICIAL_COUNTS: Mapping[str, int] = MappingProxyType({"train": 3553, "valid_seen": 140, "valid_unseen": 134})
"""Games that the official release has in each split, after everything is left out that the original leaves out."""
GRAMMARS = ("move", "put")
LEVELS = ("full", "small")

_DATA = "json_2.1.1"
_GAME = "game.tw-pddl"
_TAIL = 4096  # bytes at the end of a file, where the flag stands; the whole file is read where it does not
_FLAG = re.compile(rb'(?<!\\)"solvable"\s*:\s*(true|false)')
_NO_FLAG = "without the key 'solvable'"
_UNREADABLE = "unreadable"
_FOREIGN = 'engine="textworld"'  # stands in the message of a game that the fast engine alone refuses
_OWN_TRIALS = ("trial_full_", "trial_small_")  # how `agent-gym data alfworld` names the folders of generated games
_DATASETS = frozenset({"embedded", "official", "auto", "generated", "given"})  # names that mean something else than a folder
_NAMED = 3  # files that a message names, of each kind


class ForeignGame(NamedTuple):
    """A game that the fast engine refuses and the stock engine may play; what could be read of it.

    Attributes:
        where: the file, or what else it came from.
        task: the task's text; empty where it could not be read.
        grammar: "move" or "put"; empty where it could not be read.
        task_type: from the name of its folder; empty where that has none.
    """

    where: str
    task: str
    grammar: str
    task_type: str


@dataclass(frozen=True, slots=True)
class Task:
    """A game and where it is from.

    Attributes:
        game: the game.
        data: what the stock engine loads: the JSON object or the path of its file.
        origin: by what options of a reset it can be had again: ("index", number), ("gamefile", path) or ("task", JSON object).
        id: the same on every machine.
        gamefile: path of the file; empty for generated games.
        dataset: "embedded"; "official"; the name of a folder or file; "generated" for files that `agent-gym data alfworld` wrote; or "given" for
            a game that was named or handed over at a reset.
        split: the split that the game belongs to; empty where that is unknown.
        level: of a generated game; empty for others.
    """

    game: Game | ForeignGame
    data: Mapping[str, Any] | Path
    origin: tuple[str, Any]
    id: str
    gamefile: str
    dataset: str
    split: str
    level: str = ""


class GameSource(Protocol):
    """Games by number."""

    @property
    def num_tasks(self) -> int | None:
        """How many games `by_index` knows; None for generated ones, which have no end."""
        ...

    def by_index(self, index: int) -> Task:
        """Return the game of an index.

        Args:
            index: as in `options={"index": ...}`.

        Returns:
            The game and where it is from; the same index is the same game.

        Raises:
            ValueError: for an index that names none, or a game that cannot be read.
        """
        ...

    def draw(self, number: int) -> Task:
        """Return the game that a random number of 53 bits names.

        Args:
            number: at least 0 and below 2**53.

        Returns:
            The game and where it is from; the same number is the same game.
        """
        ...


# ------------------------------------------------------------------------------------------------ generated games


@lru_cache(maxsize=256)
def _generated(split: str, index: int, grammar: str, level: str, task_types: tuple[str, ...]) -> tuple[Game, Mapping[str, Any]]:
    """One generated game; kept for a while, since the episodes of a group share it."""
    from agent_gym.envs.alfworld.generator import generate_game

    data = generate_game(split, index, grammar=grammar, level=level, task_types=task_types)
    return parse_game(data, where=f"generated game {index} of {split}"), data


@dataclass(frozen=True, slots=True)
class EmbeddedGames:
    """Generated games: the index is the game's seed.

    Attributes:
        split: one of `SPLITS`.
        grammar: "move" or "put".
        level: "full" or "small".
        task_types: the kinds of task.
    """

    split: str
    grammar: str = "move"
    level: str = "full"
    task_types: tuple[str, ...] = TASK_TYPES

    @property
    def num_tasks(self) -> int | None:
        """See `GameSource`."""
        return None

    def by_index(self, index: int) -> Task:
        """See `GameSource`.

        Args:
            index: at least 0.

        Returns:
            The game.

        Raises:
            ValueError: for a negative index.
        """
        if index < 0:
            raise ValueError(f"options['index'] is {index}; generated games are counted from 0")
        game, data = _generated(self.split, index, self.grammar, self.level, self.task_types)
        return Task(game, data, ("index", index), f"{self.level}/{self.split}/{index}", "", "embedded", self.split, self.level)

    def draw(self, number: int) -> Task:
        """See `GameSource`.

        Args:
            number: of 53 bits.

        Returns:
            The game.
        """
        return self.by_index(number)


# ------------------------------------------------------------------------------------------------ files


@dataclass(frozen=True, slots=True)
class Scan:
    """What lies in a folder.

    Attributes:
        folder: the folder.
        games: paths of the games that can be played, relative to it, with `/`, sorted.
        left_out: reason -> paths of those that cannot.
        trials: folders with a `traj_data.json` and no game, as a download without its PDDL part leaves them.
    """

    folder: Path
    games: tuple[str, ...]
    left_out: Mapping[str, tuple[str, ...]]
    trials: int = 0

    def explain(self) -> str:
        """Return how many games were left out and why, naming a few of each kind; empty where none was.

        Returns:
            One text for a log or an error.
        """
        told = []
        for reason, names in self.left_out.items():
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            told.append(f"{len(names)} {reason} ({', '.join(names[:_NAMED])}{more})")
        return "; ".join(told)


@lru_cache(maxsize=64)
def scan(folder: Path) -> Scan:
    """Find the games below a folder. Done once per process and folder: files that come later are not seen.

    Args:
        folder: the folder.

    Returns:
        The games, and what was left out and why.
    """
    found: list[str] = []
    trials = 0
    closed: list[str] = []
    for place, folders, files in os.walk(folder, onerror=lambda error: closed.append(str(error.filename))):
        folders.sort()
        inside = [name for name in files if name.endswith(".tw-pddl")]
        found += [Path(place, name).relative_to(folder).as_posix() for name in inside]
        trials += not inside and "traj_data.json" in files
    games: list[str] = []
    left_out: dict[str, list[str]] = {}
    if closed:
        left_out["in folders that may not be read"] = sorted(Path(place).relative_to(folder).as_posix() for place in closed)
    for name in sorted(found):
        reason = _unfit(name) or _unsolved(folder / name)
        if reason:
            left_out.setdefault(reason, []).append(name)
        else:
            games.append(name)
    return Scan(folder, tuple(games), MappingProxyType({reason: tuple(names) for reason, names in sorted(left_out.items())}), trials)


def _unfit(name: str) -> str:
    """Why ALFWorld leaves out a game of this name; empty if it does not."""
    if "movable" in name:
        return "with a movable receptacle"
    return "with sliced objects" if "Sliced" in name else ""


def _unsolved(path: Path) -> str:
    """Why a file cannot be played, from its last bytes where they tell; empty if it can."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            return _UNREADABLE  # a pipe has no end that could be waited for
        if facts.st_size > MAX_BYTES:
            return f"with more than {MAX_BYTES:,} bytes"
        with path.open("rb") as file:
            file.seek(max(0, facts.st_size - _TAIL))
            tail = file.read()
            if not tail.rstrip().endswith(b"}"):
                return _UNREADABLE
            flags = _FLAG.findall(tail)
            if flags:
                return "" if flags[-1] == b"true" else "unsolvable"
            file.seek(0)
            content = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return _UNREADABLE
    if not isinstance(content, dict):
        return _UNREADABLE
    if "solvable" not in content:
        return _NO_FLAG
    return "" if content["solvable"] is True else "unsolvable"


@lru_cache(maxsize=256)
def _read_once(path: Path, _changed: int, _size: int, foreign: bool) -> Game | ForeignGame:
    try:
        return read_game(path)
    except GameError as error:
        if not foreign or _FOREIGN not in error.reason:
            raise
        return _foreign(json.loads(path.read_text(encoding="utf-8")), str(path))


def _read(path: Path, foreign: bool) -> Game | ForeignGame:
    try:
        facts = path.stat()
    except OSError as error:
        raise GameError(str(path), f"the file cannot be read: {error.strerror}") from error
    return _read_once(path, facts.st_mtime_ns, facts.st_size, foreign)


def _foreign(data: Mapping[str, Any], where: str) -> ForeignGame:
    task = re.search(r"Your task is to: ([^\"\\]+)", data["grammar"])
    wording = re.search(r'template\s*::\s*"(move|put) ', data["grammar"])
    kind = next((kind for part in Path(where).parts if (kind := part.partition("-")[0]) in TASK_TYPES), "")
    return ForeignGame(where, task[1].strip() if task else "", wording[1] if wording else "", kind)


@dataclass(frozen=True, slots=True)
class FileGames:
    """Games of a folder.

    Attributes:
        name: of the data set.
        folder: where the paths begin.
        games: paths relative to it, in the order of the index.
        split: that the games belong to; it enters the draw, so that one seed names different games in different splits.
        foreign: games that the fast engine refuses are wanted too.
    """

    name: str
    folder: Path
    games: tuple[str, ...]
    split: str
    foreign: bool = False

    @property
    def num_tasks(self) -> int | None:
        """See `GameSource`."""
        return len(self.games)

    def by_index(self, index: int) -> Task:
        """See `GameSource`.

        Args:
            index: from 0.

        Returns:
            The game.

        Raises:
            ValueError: for an index outside the list, or a game that cannot be read.
        """
        if not 0 <= index < len(self.games):
            raise ValueError(f"options['index'] is {index}, and {self.folder} has {len(self.games)} games, counted from 0")
        path = self.folder / self.games[index]
        return Task(_read(path, self.foreign), path, ("index", index), self._id(self.games[index]), str(path), self.name, self.split)

    def draw(self, number: int) -> Task:
        """See `GameSource`.

        Args:
            number: of 53 bits.

        Returns:
            The game.
        """
        rng = np.random.default_rng(np.random.SeedSequence([SPLITS.index(self.split) if self.split in SPLITS else len(SPLITS), number]))
        return self.by_index(int(rng.integers(len(self.games))))

    def _id(self, name: str) -> str:
        return "/".join(part for part in (self.split, name.removesuffix(f"/{_GAME}")) if part)


# ------------------------------------------------------------------------------------------------ keywords


def chosen_types(task_types: Iterable[str | int] | None) -> tuple[str, ...]:
    """Return kinds of task by name, each once, in the order of `TASK_TYPES`.

    Args:
        task_types: names, or ALFWorld's numbers 1 to 6; None for all.

    Returns:
        The names.

    Raises:
        ValueError: for an unknown one, or none.
    """
    if task_types is None:
        return TASK_TYPES
    if isinstance(task_types, (str, int)):
        task_types = (task_types,)
    known: dict[Any, str] = {name: name for name in TASK_TYPES}
    known.update(enumerate(TASK_TYPES, start=1))
    listed = list(task_types) if isinstance(task_types, Iterable) else [task_types]
    wrong = [one for one in listed if isinstance(one, bool) or not isinstance(one, (str, int, np.integer)) or one not in known]
    if wrong or not listed:
        raise ValueError(f"task_types must be some of {', '.join(TASK_TYPES)} (or 1 to {len(TASK_TYPES)}), not {wrong or listed!r}")
    chosen = {known[one] for one in listed}
    return tuple(name for name in TASK_TYPES if name in chosen)


def open_games(
    dataset: str | Path = "embedded",
    *,
    split: str = "train",
    data_dir: str | Path | None = None,
    grammar: str = "move",
    level: str = "full",
    task_types: Iterable[str | int] | None = None,
    foreign: bool = False,
) -> GameSource:
    """Open the games that the keywords of an environment name.

    Args:
        dataset: "embedded" (generated games, whatever lies on the disk); "official"; "auto", which is "official" where the split is there and
            "embedded" where it is not; or a path: a folder of data, the folder of a split, or one file.
        split: "train", "valid_seen" or "valid_unseen".
        data_dir: where official data lie and relative paths begin; None for the variable ALFWORLD_DATA, and without it for the place where
            `alfworld-download` puts them.
        grammar: of generated games, "move" or "put".
        level: of generated games, "full" or "small".
        task_types: which kinds of task; None for all.
        foreign: games of files that the fast engine refuses are wanted too, for the stock engine.

    Returns:
        The games. A warning names files and counts where games were left out or the release has another number of them.

    Raises:
        FileNotFoundError: if the data are not there.
        ValueError: for an unknown keyword, or where nothing is left to play.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
    for keyword, value, allowed in (("grammar", grammar, GRAMMARS), ("level", level, LEVELS)):
        if value not in allowed:
            raise ValueError(f"{keyword} must be one of {', '.join(allowed)}, not {value!r}")
    types = chosen_types(task_types)
    if str(dataset) == "embedded":
        return EmbeddedGames(split, grammar, level, types)
    if str(dataset) in ("official", "auto"):
        root, origin = _official_root(data_dir)
        folder = _split_folder(root, split)
        if str(dataset) == "auto" and (folder is None or not scan(folder).games):
            return EmbeddedGames(split, grammar, level, types)
        if folder is None:
            raise FileNotFoundError(_not_there(split, root / _DATA / split, origin))
        return _from_folder("official", folder, split, types, origin, foreign)
    if not isinstance(dataset, (str, Path)) or not str(dataset).strip():
        raise ValueError(f"dataset must be 'embedded', 'official', 'auto' or a path, not {dataset!r}")
    named = Path(dataset)
    path = _home(named) if data_dir is None or named.parts[0].startswith("~") else _official_root(data_dir)[0] / named
    if os.path.isfile(path):
        task = given_task(path, foreign=foreign)
        if task.game.task_type not in types:
            raise ValueError(f"{path} is a game of type {task.game.task_type}, and task_types are {', '.join(types)}")
        path = path.resolve()
        in_layout = path.name == _GAME and len(path.parts) > 3
        base = (
            path.parents[2] if in_layout else path.parent
        )  # the folder of the split, so that the game's id is the same as among the others
        return FileGames(
            _label(path.parent.name if in_layout else path.name), base, (path.relative_to(base).as_posix(),), _split_of(path), foreign
        )
    if not os.path.isdir(path):
        raise FileNotFoundError(
            f"dataset must be 'embedded', 'official', 'auto' or the path of a folder of data, of a split or of a {_GAME}, and there is nothing at {str(path)!r}"
        )
    folder = _split_folder(path, split)
    if folder is None and any(_split_folder(path, other) for other in SPLITS):
        raise FileNotFoundError(_not_there(split, path, f"dataset={str(dataset)!r}"))
    return _from_folder(
        _label(path.resolve().name),
        folder or path,
        split if folder else _split_of(path / _GAME),
        types,
        f"dataset={str(dataset)!r}",
        foreign,
    )


def given_task(game: str | Path | Mapping[str, Any], source: GameSource | None = None, *, foreign: bool = False) -> Task:
    """Return a game that was named by its file or handed over, whatever the source is.

    Args:
        game: the path of a `game.tw-pddl`, also relative to the source's folder or to the folder of data; or its JSON object.
        source: of the environment. A file of its own keeps data set and split.
        foreign: a game that the fast engine refuses is wanted too.

    Returns:
        The game.

    Raises:
        ValueError: for a game that cannot be played.
        FileNotFoundError: if there is no such file.
    """
    if isinstance(game, Mapping):
        where = "options['task']"
        try:
            parsed: Game | ForeignGame = parse_game(game, where=where)
        except GameError as error:
            if not foreign or _FOREIGN not in error.reason:
                raise
            parsed = _foreign(game, where)
        name = hashlib.blake2b(repr([game["pddl_problem"], parsed.task, parsed.grammar]).encode(), digest_size=8).hexdigest()
        data = {**game}  # the caller may go on changing its own
        return Task(parsed, data, ("task", data), f"given/{name}", "", "given", "")
    path = _found(Path(game) if not str(game).startswith("~") else _home(game), source)
    read = _read(path, foreign)
    if isinstance(source, FileGames) and path.is_relative_to(source.folder.resolve()):
        name = source._id(path.relative_to(source.folder.resolve()).as_posix())
        return Task(read, path, ("gamefile", str(path)), name, str(path), source.name, source.split)
    split = _split_of(path)
    name = "/".join(part for part in ("given", split, *path.parts[-3:-1]) if part)
    return Task(read, path, ("gamefile", str(path)), name, str(path), "given", split)


# ------------------------------------------------------------------------------------------------ places


def _official_root(data_dir: str | Path | None) -> tuple[Path, str]:
    """Where official data should lie, and who says so. The variable is read here, before anything of alfworld could set it."""
    if data_dir is not None:
        if not isinstance(data_dir, (str, Path)) or not str(data_dir).strip():
            raise ValueError(f"data_dir must be a folder or None, not {data_dir!r}")
        return _home(data_dir), f"data_dir={str(data_dir)!r}"
    named = os.environ.get("ALFWORLD_DATA")
    if named:
        return _home(named), f"the variable ALFWORLD_DATA={named!r}"
    return _home("~/.cache/alfworld"), "the variable ALFWORLD_DATA is not set, so the place where alfworld-download puts them"


def _home(path: str | Path) -> Path:
    """A path, absolute, so that it means the same when the working folder changes; `~` is the home folder, where it names one that is known."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError:
        return Path(path).absolute()


def _split_folder(root: Path, split: str) -> Path | None:
    """The folder of a split below a folder of data, if there is one."""
    return next((folder for folder in (root / _DATA / split, root / split) if os.path.isdir(folder)), None)


def _split_of(path: Path) -> str:
    """The split in whose folder a file lies, or empty."""
    return next((part for part in reversed(path.absolute().parts[:-1]) if part in SPLITS), "")


def _found(path: Path, source: GameSource | None) -> Path:
    """The file that a path names, seen from here or from the source's folders."""
    bases = [Path()]
    if isinstance(source, FileGames):
        bases += [source.folder, *list(source.folder.parents)[:3]]  # the split, its data (json_2.1.1), and their root
    root, _ = _official_root(None)
    bases += [root, root / _DATA]
    for base in bases:
        for candidate in (base / path, base / path / _GAME):
            if os.path.isfile(candidate):  # False for what cannot be a path, too
                return candidate.resolve()
    raise FileNotFoundError(f"there is no game at {str(path)!r}, neither from here nor from {', '.join(str(base) for base in bases[1:])}")


def _from_folder(name: str, folder: Path, split: str, types: Sequence[str], origin: str, foreign: bool) -> FileGames:
    """The games of a folder that are of these types; a warning where they are not all."""
    found = scan(folder.resolve())
    left_out = found.explain()
    if not found.games:
        if not found.left_out:
            raise FileNotFoundError(_not_there(split or folder.name, folder, origin, found.trials))
        raise ValueError(f"nothing in {folder} can be played; left out were {left_out}")
    generated = any(part.startswith(_OWN_TRIALS) for game in found.games for part in game.split("/"))
    name = "generated" if generated else name
    expected = None if generated else OFFICIAL_COUNTS.get(split)
    notes = []
    if expected is not None and len(found.games) != expected:
        notes.append(
            f"{folder} has {len(found.games)} games, and {split} of the official release has {expected}: figures are not those of the benchmark"
        )
    if left_out and (
        len(found.games) != expected or _UNREADABLE in found.left_out
    ):  # a whole release is silent: it holds games that nobody plays
        notes.append(f"{sum(map(len, found.left_out.values()))} games of {folder} were left out: {left_out}")
    if notes:
        warnings.warn(". ".join(notes), stacklevel=4)  # at the line that makes the environment
    kept = tuple(game for game in found.games if len(types) == len(TASK_TYPES) or _type_of(folder, game) in types)
    if not kept:
        raise ValueError(f"none of the {len(found.games)} games in {folder} is of the task_types {', '.join(types)}")
    return FileGames(name, folder, kept, split, foreign)


def _label(name: str) -> str:
    """The name of a folder or file as that of a data set; one that would claim to be another data set says that it is a path."""
    return f"./{name}" if name in _DATASETS or not name else name


def _type_of(folder: Path, game: str) -> str:
    """The kind of task: from the name of its folder, as ALFWorld writes it, else from the game itself."""
    for part in game.split("/")[:-1]:
        if (kind := part.partition("-")[0]) in TASK_TYPES:
            return kind
    return _read(folder / game, True).task_type


def _not_there(split: str, folder: Path, origin: str, trials: int = 0) -> str:
    what = f"ALFWorld's split {split!r} is not there: looked for {folder} (from {origin})"
    if trials:
        what = f"{folder} (from {origin}) has {trials} folders of tasks and no {_GAME} in any of them: the games are a part of the download of their own"
    return (
        f"{what}. Run `alfworld-download` (pip install alfworld; about 145 MB) and name its folder by data_dir or the variable ALFWORLD_DATA; "
        'or take dataset="embedded", the default: generated games that need no download'
    )
