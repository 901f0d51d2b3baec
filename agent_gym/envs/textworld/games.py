"""Which games there are, and the cache of those that were made.

A challenge of TextWorld (`challenges.py`) with settings gives games without end; an environment plays `num_games` of them per split. The seed of a game
follows from its split and number, so that no two splits share one; the cooking and simple challenges keep their splits apart by food as well.

A game is made when it is first asked for, in a process of its own (`generator.py`), and kept in a cache: a folder with `game.z8` and `game.json`,
whose name tells challenge, split and number and hashes all that the game depends on, TextWorld's version among it. It is made under another name and
renamed when complete, under a lock, so that several processes make it once and an interrupted one leaves nothing that looks like a game.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module, metadata, util
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

import numpy as np

from agent_gym._names import nearest
from agent_gym.envs.textworld.challenges import CHALLENGES, SPLITS, TEXT_SETTINGS, check_settings
from agent_gym.search.storage import locked

__all__ = [
    "GameError",
    "GameFiles",
    "GameSource",
    "GeneratedGames",
    "Generator",
    "check_game",
    "default_cache_dir",
    "open_games",
    "require_textworld",
    "textworld_version",
]

ATTEMPTS = 16
"""Seeds that a game has: the first one that gives a game is taken, since a challenge cannot be made with every seed."""
_FORMAT = 1  # of the cache; counted up when the same name would mean another game
_HEADER = 64
_CPU_SECONDS = 900.0  # for a game; the hardest that there are take a third of it
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class GameError(ValueError):
    """A game that cannot be played or made. The message names it and says why."""


# ------------------------------------------------------------------------------------------------ TextWorld


def require_textworld() -> None:
    """Check that TextWorld is there, without importing it.

    Raises:
        ImportError: naming the extra.
    """
    found = util.find_spec("textworld")
    if found is None or found.origin is None:  # the latter is any folder of that name
        raise ImportError('TextWorld games need the package textworld: pip install "agentr1-gym[textworld]"')


def textworld_version() -> str:
    """Return the version of the installed TextWorld.

    Returns:
        Such as "1.7.0".

    Raises:
        ImportError: naming the extra.
    """
    require_textworld()
    try:
        return metadata.version("textworld")
    except metadata.PackageNotFoundError:  # found by its path alone
        return str(import_module("textworld.version").__version__)


def default_cache_dir() -> Path:
    """`agent-gym/textworld` in the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`).

    Returns:
        The folder, which need not exist.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agent-gym" / "textworld"


def check_game(path: Path, *, whole: bool = True) -> None:
    """Check a game before the engine opens it.

    TextWorld's interpreter ends the whole process on a story that it cannot read, and plays one without its `.json` with every further information
    silently missing.

    Args:
        path: of the `.z8`; the `.json` lies beside it under the same name.
        whole: read both files; False looks at the names, the size and the header alone.

    Raises:
        FileNotFoundError: if one of the two is not there.
        GameError: if one of them is not what it should be.
    """
    if path.suffix == ".ulx":
        raise GameError(
            f"{path} is a Glulx game, which TextWorld plays no longer since version 1.7; make it again as .z8 (tw-make --format z8)"
        )
    if path.suffix != ".z8":
        raise GameError(f"{path} is no TextWorld game: wanted a file that ends in .z8, with its .json beside it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no game {path}")
    notes = path.with_suffix(".json")
    if not notes.is_file():
        raise FileNotFoundError(
            f"{path} has no {notes.name} beside it; without it TextWorld knows no score, commands or walkthrough. Copy it there, or make the game again"
        )
    with path.open("rb") as file:
        story = file.read() if whole else file.read(_HEADER)
    if fault := _fault_of(story, path.stat().st_size) or (_wrong_sum(story) if whole else ""):
        raise GameError(f"{path} is damaged: {fault}. Copy or make it again")
    if not whole:
        return
    try:
        data = json.loads(notes.read_bytes())
    except ValueError as error:
        raise GameError(f"{notes} is damaged: no JSON ({error}). Copy or make it again") from error
    missing = [key for key in ("version", "world", "KB", "quests", "infos", "grammar") if not isinstance(data, dict) or key not in data]
    if missing:
        raise GameError(f"{notes} is not the description of a TextWorld game: it lacks {', '.join(missing)}")


def _fault_of(story: bytes, size: int) -> str:
    """What is wrong with a story file, by its own header (Z-Machine Standard 1.1, section 11); "" if nothing is."""
    if len(story) < _HEADER:
        return f"it has {size} bytes, and the header alone has {_HEADER}"
    if story[0] != 8:
        return f"it begins with the byte {story[0]}, and a Z-machine story of version 8 with 8"
    length = _told_length(story)
    return "" if _HEADER < length <= size else f"its header tells of {length} bytes, and it has {size}"


def _told_length(story: bytes) -> int:
    return int.from_bytes(story[0x1A:0x1C], "big") * 8


def _wrong_sum(story: bytes) -> str:
    """Whether the checksum in the header is another than that of the file; "" if it is the same."""
    told = int.from_bytes(story[0x1C:0x1E], "big")
    found = int(np.frombuffer(story, dtype=np.uint8)[_HEADER : _told_length(story)].sum(dtype=np.int64)) & 0xFFFF
    return "" if told == found else f"its checksum is {found}, and its header tells {told}"


# ------------------------------------------------------------------------------------------------ where games come from


class GameSource(Protocol):
    """Games with numbers from 0."""

    dataset: str
    game: str
    settings: str

    def __len__(self) -> int:
        """The number of games."""
        ...

    def path(self, index: int) -> Path:
        """Return the `.z8` of a game, which is made if it is not there yet.

        Args:
            index: of the game.

        Returns:
            The file.
        """
        ...

    def name(self, index: int) -> str:
        """Return the name of a game, the same on every machine.

        Args:
            index: of the game.

        Returns:
            The name, without an ending.
        """
        ...


class GeneratedGames:
    """The games of a challenge.

    Args:
        game: the challenge's name.
        settings: see `check_settings`.
        split: "train", "validation" or "test".
        num_games: how many.
        cache_dir: where they are kept; None: `default_cache_dir()`.

    Attributes:
        dataset: "generated".
        game: the same.
        settings: what differs from the defaults, as "name=value, name=value"; "default" where nothing does.
        cache_dir: the same.

    Raises:
        ValueError: for settings that cannot be used.
        ImportError: without TextWorld.
    """

    dataset = "generated"

    def __init__(
        self,
        game: str,
        settings: Mapping[str, Any] | None = None,
        *,
        split: str = "train",
        num_games: int = 1000,
        cache_dir: str | Path | None = None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
        if isinstance(num_games, bool) or not isinstance(num_games, (int, np.integer)) or not 1 <= num_games <= 10_000_000:
            raise ValueError(f"num_games must be a whole number from 1 to 10,000,000, not {num_games!r}")
        self.game = game
        self._full = check_settings(game, settings)
        defaults = {**CHALLENGES[game].settings, **TEXT_SETTINGS}
        changed = [f"{name}={value}" for name, value in self._full.items() if value != defaults[name].default]
        self.settings = ", ".join(changed) or "default"
        self.split = split
        self.cache_dir = default_cache_dir() if cache_dir is None else Path(cache_dir).expanduser()
        self._count = int(num_games)
        self._version = textworld_version()

    def __len__(self) -> int:
        """The number of games."""
        return self._count

    def seeds(self, index: int) -> list[int]:
        """Return the seeds of a game, of which the first that gives one is taken. No two games, of whatever splits, share a seed.

        Args:
            index: from 0.

        Returns:
            `ATTEMPTS` numbers.
        """
        first = (index * len(SPLITS) + SPLITS.index(self.split)) * ATTEMPTS
        return list(range(first, first + ATTEMPTS))

    def name(self, index: int) -> str:
        """Return the name of a game.

        Args:
            index: from 0.

        Returns:
            Such as "cooking-train-17-0123456789abcdef".
        """
        told = {**self._request(index), "textworld": self._version, "format": _FORMAT}
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        return f"{self.game}-{self.split}-{index}-{digest[:16]}"

    def is_made(self, index: int) -> bool:
        """Return whether a game is in the cache.

        Args:
            index: from 0.

        Returns:
            The same.
        """
        return self._folder(index).is_dir()

    def path(self, index: int, generator: Generator | None = None) -> Path:
        """Return the `.z8` of a game, which is made if it is not in the cache: a few seconds.

        Args:
            index: from 0.
            generator: a running one; None starts one where it is needed.

        Returns:
            The file.

        Raises:
            IndexError: if there is no such game.
            GameError: if none can be made with these settings.
            OSError: if it cannot be written.
        """
        if not 0 <= index < self._count:
            raise IndexError(f"there is no game {index} of {self._count}")
        folder = self._folder(index)
        if not folder.is_dir():
            try:
                self._make(index, folder, generator)
            except OSError as error:
                advice = (
                    "Free some space, or name another folder by cache_dir" if error.errno in _NO_ROOM else "cache_dir names another folder"
                )
                what = f"the game {folder.name} cannot be written to {self.cache_dir}: {error.strerror or error}. {advice}"
                raise OSError(error.errno or errno.EIO, what) from error
        return folder / "game.z8"

    def _folder(self, index: int) -> Path:
        return self.cache_dir / self.name(index)

    def _request(self, index: int) -> dict[str, Any]:
        own = {name: self._full[name] for name in CHALLENGES[self.game].settings}
        return {
            "challenge": self.game,
            "settings": {**own, **CHALLENGES[self.game].by_split(self.split)},
            "text": {name: self._full[name] for name in TEXT_SETTINGS},
            "seeds": self.seeds(index),
            "cpu_seconds": _CPU_SECONDS,
        }

    def _make(self, index: int, folder: Path, generator: Generator | None) -> None:
        """Make a game in a folder beside its own and rename that, unless another process was faster."""
        locks = self.cache_dir / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with locked(locks / folder.name):
            if folder.is_dir():
                return
            for left in self.cache_dir.glob(f".{folder.name}.*"):  # of a process that died with this lock
                shutil.rmtree(left, ignore_errors=True)
            unfinished = Path(tempfile.mkdtemp(dir=self.cache_dir, prefix=f".{folder.name}."))
            try:
                with contextlib.nullcontext(generator) if generator is not None else Generator() as running:
                    running.make({**self._request(index), "folder": str(unfinished)}, self.settings)
                check_game(unfinished / "game.z8")
                unfinished.chmod(0o755)
                unfinished.rename(folder)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise


class Generator:
    """A running `generator.py`; use it in `with`. It makes one game after another."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._noise: IO[bytes] | None = None

    def __enter__(self) -> Generator:
        """Return itself; the process starts with the first game."""
        return self

    def make(self, request: Mapping[str, Any], settings: str) -> None:
        """Make a game.

        Args:
            request: see `generator.py`.
            settings: for the message.

        Raises:
            GameError: if the challenge gives none.
            OSError: if it cannot be written.
        """
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            noise, status = self._last_words(), process.wait()
            raise GameError(f"the process that makes {request['challenge']} games ended with status {status}: {noise}")
        answer = json.loads(line)
        if "seed" in answer:
            return
        if answer["errno"] is not None:
            raise OSError(answer["errno"], answer["error"])
        raise GameError(f"TextWorld makes no game of {request['challenge']} with the settings {settings}: {answer['error']}")

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            require_textworld()
            self._noise = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
            # Modules are found where this process finds them.
            environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("generator.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._noise,
                text=True,
                encoding="utf-8",
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process, which then ends that one
            )
        return self._process

    def _last_words(self) -> str:
        assert self._noise is not None
        self._noise.seek(0)
        return self._noise.read()[-500:].decode(errors="replace").strip() or "it said nothing"

    def stop(self) -> None:
        """End the process, and the compiler if it runs, from whatever thread; a `make` that waits for it raises `GameError`."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the process."""
        self.stop()
        if self._process is None:
            return
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._noise):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process = self._noise = None


class GameFiles:
    """Games that are there as files. All splits have the same ones.

    Args:
        given: a `.z8` file, a folder of them (in the order of their names), or a list of files.

    Attributes:
        dataset: "files".
        game: the file's name where there is one, else "files".
        settings: always "files".

    Raises:
        FileNotFoundError: if a file is not there, or its `.json` is not.
        GameError: if a file is not a game.
        ImportError: without TextWorld.
    """

    dataset = "files"
    settings = "files"

    def __init__(self, given: str | Path | Sequence[str | Path]) -> None:
        require_textworld()
        self._paths = list(_files_of(given))
        if not self._paths:
            raise FileNotFoundError(f"there is no .z8 game in {given!s}")
        for path in self._paths:
            check_game(path, whole=False)
        self.game = self._paths[0].name if len(self._paths) == 1 else "files"

    def __len__(self) -> int:
        """The number of games."""
        return len(self._paths)

    def path(self, index: int) -> Path:
        """Return the `.z8` of a game.

        Args:
            index: from 0.

        Returns:
            The file.
        """
        return self._paths[index]

    def name(self, index: int) -> str:
        """Return the name of a game.

        Args:
            index: from 0.

        Returns:
            The file's name without its ending, and its number where two files have the same one.
        """
        stem = self._paths[index].stem
        return stem if self._stems.count(stem) == 1 else f"{stem}-{index}"

    @cached_property
    def _stems(self) -> list[str]:
        return [path.stem for path in self._paths]


def _files_of(given: str | Path | Sequence[str | Path]) -> Iterator[Path]:
    if not isinstance(given, (str, Path)):
        for one in given:
            yield Path(one).expanduser()
        return
    path = Path(given).expanduser()
    if path.is_dir():
        yield from sorted(path.glob("*.z8"))
    else:
        yield path


def open_games(
    game: str | Path | Sequence[str | Path],
    settings: Mapping[str, Any] | None = None,
    *,
    split: str = "train",
    num_games: int = 1000,
    cache_dir: str | Path | None = None,
) -> GameSource:
    """Return the games that the keyword `game` names.

    Args:
        game: the name of a challenge, a `.z8` file, a folder of them, or a list of files.
        settings: of a challenge; see `check_settings`.
        split: "train", "validation" or "test".
        num_games: of a challenge.
        cache_dir: where the games of a challenge are kept; None: `default_cache_dir()`.

    Returns:
        The games.

    Raises:
        ValueError: if there is neither a challenge nor a file of that name, or for settings that cannot be used.
        FileNotFoundError: if a file is missing.
        ImportError: without TextWorld.
    """
    if isinstance(game, str) and game in CHALLENGES:
        return GeneratedGames(game, settings, split=split, num_games=num_games, cache_dir=cache_dir)
    if isinstance(game, str) and not Path(game).expanduser().is_dir() and Path(game).suffix not in (".z8", ".ulx"):
        wanted = f"{', '.join(CHALLENGES)}, or .z8 games (a file, a folder or a list)"
        raise ValueError(f"game must be one of {wanted}, not {game!r}{nearest(game, CHALLENGES)}")
    if not isinstance(game, (str, Path)) and (not isinstance(game, Sequence) or not all(isinstance(one, (str, Path)) for one in game)):
        raise ValueError(f"game must be the name of a challenge, or .z8 games (a file, a folder or a list), not {game!r}")
    if settings:
        raise ValueError(f"settings belong to a challenge ({', '.join(CHALLENGES)}); games from files have none, and {dict(settings)} came")
    return GameFiles(game)
