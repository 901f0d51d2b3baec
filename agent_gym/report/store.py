"""Where the page's episodes come from: a run's folder or a single file, read in pieces.

`EpisodeFile` knows where each line of a JSONL file begins as far as it has been asked for, so that the first hundred of ten thousand episodes cost a
hundred, and one episode is read without the others. A file that grows is read on; one that was replaced is begun again, under a new `generation`.
Parquet has no lines: its episodes are put into a temporary file as they are asked for. `Source` is what stands behind one side of the page.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_gym.chat import load_tokenizer, tokenizer_fingerprint
from agent_gym.report.episodes import episode_record, episode_summary
from agent_gym.runs import RunFolder, RunFolderError
from agent_gym.trajectory import Trajectory
from agent_gym.trajectory_io import dump_line, iter_trajectories, parse_line

__all__ = ["EpisodeFile", "Source", "matching_tokenizer", "open_source"]

LABELS = {
    "warm_start": "before training",
    "before": "before training",
    "train": "training",
    "last_batch": "last training batch",
    "final": "after training",
}
"""What the files of a run are called on the page, in this order."""


class EpisodeFile:
    """A trajectory file, read in pieces. Safe for several threads.

    Args:
        path: ending in .jsonl or .parquet.
        label: on the page.

    Attributes:
        path: of the file.
        label: on the page.
        generation: counts how often the file was replaced while it was open.
    """

    def __init__(self, path: str | Path, label: str = "") -> None:
        self.path = Path(path)
        self.label = label or self.path.stem
        self.generation = 0
        self._parquet = self.path.suffix.lower() == ".parquet"
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._places: list[tuple[int, int]] = []
        self._summaries: list[dict[str, Any]] = []
        self._read_to = 0
        self._inode = 0
        self._rows: Iterator[Trajectory] | None = None
        self._spool: Any = None
        self._done = False

    def rows(self, first: int, count: int) -> dict[str, Any]:
        """Return summaries of some episodes.

        Args:
            first: number of the first one.
            count: how many at most.

        Returns:
            `rows` (see `episode_summary`), `end` (there are no more at present), `generation`.

        Raises:
            ValueError: if the file is damaged or none of ours.
            OSError: if it cannot be read.
        """
        with self._lock:
            self._look()
            self._read(first + count + 1)
            rows = self._summaries[first : first + count]
            return {"rows": rows, "end": len(self._summaries) <= first + count, "generation": self.generation}

    def episode(self, number: int) -> Trajectory:
        """Return one episode.

        Args:
            number: from 0.

        Returns:
            The episode.

        Raises:
            IndexError: if there is none of that number.
            ValueError: if the file is damaged.
            OSError: if it cannot be read.
        """
        with self._lock:
            self._look()
            self._read(number + 1)
            if not 0 <= number < len(self._places):
                raise IndexError(f"{self.path.name} has {len(self._places)} episodes, and none of number {number}")
            start, length = self._places[number]
            if self._spool is not None:
                self._spool.seek(start)
                line = self._spool.read(length)
            else:
                with self.path.open("rb") as file:
                    file.seek(start)
                    line = file.read(length)
        found = parse_line(line, self.path, f"{self.path}, episode {number}")
        if found is None:
            raise ValueError(f"{self.path}, episode {number}: a header stands where an episode was")
        return found

    @property
    def state(self) -> tuple[int, int]:
        """Generation and size in bytes: what changes when there is more to read."""
        with self._lock:
            return self.generation, self._look()

    def _look(self) -> int:
        """Begin again where the file was replaced. Returns its size."""
        status = self.path.stat()
        if self._inode and (status.st_ino != self._inode or status.st_size < self._read_to):
            if self._spool is not None:
                self._spool.close()
            self._begin()
            self.generation += 1
        self._inode = status.st_ino
        return status.st_size

    def _read(self, wanted: int) -> None:
        """Read on until so many episodes are known, or there are no more."""
        if self._parquet:
            self._read_parquet(wanted)
            return
        if len(self._places) >= wanted:
            return
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            while len(self._places) < wanted:
                line = file.readline()
                if not line.endswith(b"\n"):  # the end, or a line that is still being written
                    return
                start = self._read_to
                if start == 0 and b'"format"' not in line[:64]:
                    raise ValueError(f"{self.path} is no trajectory file: its first line is not the header that agent-gym writes")
                found = parse_line(line, self.path, f"{self.path}, byte {start}")
                self._read_to = start + len(line)
                if found is not None:
                    self._places.append((start, len(line)))
                    self._summaries.append(episode_summary(found))

    def _read_parquet(self, wanted: int) -> None:
        if self._rows is None and not self._done:
            self._rows = iter_trajectories(self.path)
            self._spool = tempfile.TemporaryFile(prefix="agent-gym-view-")  # noqa: SIM115  # lives as long as the file is open
        while self._rows is not None and len(self._places) < wanted:
            found = next(self._rows, None)
            if found is None:
                self._rows, self._done = None, True
                return
            line = dump_line(found)
            self._spool.seek(self._read_to)
            self._spool.write(line)
            self._places.append((self._read_to, len(line)))
            self._summaries.append(episode_summary(found))
            self._read_to += len(line)

    def close(self) -> None:
        """Let go of what was put aside."""
        with self._lock:
            if self._spool is not None:
                self._spool.close()
                self._spool = None
                self._done = True
                self._rows = None


def matching_tokenizer(tokenizer: Any, episode: Trajectory) -> Any:
    """Return the tokenizer if the episode's ids are its own; else None, and ids are shown as numbers.

    Args:
        tokenizer: or None.
        episode: states a fingerprint, or none.

    Returns:
        The tokenizer, or None.
    """
    wanted = episode.tokenizer_fingerprint
    return tokenizer if tokenizer is not None and (not wanted or tokenizer_fingerprint(tokenizer) == wanted) else None


class Source:
    """One side of the page: a run, or a file of episodes.

    Args:
        name: on the page.
        run: the run's folder; None for a file.
        file: the file; None takes those of the run, also those that are still to come.
        tokenizer: of the episodes; None takes the one saved with the run's weights, or the project's own.

    Attributes:
        name: on the page.
        run: the run, or None.
    """

    def __init__(self, name: str, run: RunFolder | None = None, file: str | Path | None = None, tokenizer: Any = None) -> None:
        self.name = name
        self.run = run
        self._own_file = None if file is None else EpisodeFile(file)
        self._files: dict[str, EpisodeFile] = {}
        self._tokenizer = tokenizer
        self._searched: Path | str | None = "never"
        self._lock = threading.Lock()

    def files(self) -> list[EpisodeFile]:
        """Return the files of episodes, those of a run in the order of the run.

        Returns:
            One for each file.
        """
        if self._own_file is not None:
            return [self._own_file]
        if self.run is None:
            return []
        folder = self.run.path / "trajectories"
        found = [path for path in folder.glob("*.*") if path.suffix in (".jsonl", ".parquet") and not path.name.startswith(".")]
        order = list(LABELS)
        found.sort(key=lambda path: (order.index(path.stem) if path.stem in order else len(order), path.name))
        with self._lock:
            for path in found:
                self._files.setdefault(path.name, EpisodeFile(path, LABELS.get(path.stem, "")))
            return [self._files[path.name] for path in found]

    def file(self, name: str) -> EpisodeFile:
        """Return the file of a name.

        Args:
            name: as `EpisodeFile.path.name`.

        Returns:
            The file.

        Raises:
            KeyError: if there is none.
        """
        for one in self.files():
            if one.path.name == name:
                return one
        raise KeyError(name)

    def record(self, name: str, number: int) -> dict[str, Any]:
        """Return one episode as the page reads it (see `episode_record`).

        Args:
            name: of the file.
            number: from 0.

        Returns:
            What JSON can hold.

        Raises:
            KeyError: if there is no such file.
            IndexError: if there is no such episode.
            ValueError: if the file is damaged.
        """
        episode = self.file(name).episode(number)
        return episode_record(episode, matching_tokenizer(self.tokenizer(), episode))

    def tokenizer(self) -> Any:
        """Return the tokenizer of the episodes.

        Returns:
            That of the run's newest model, or the default one.
        """
        with self._lock:
            if self._tokenizer is None or self._searched != "never":
                folder = None if self.run is None else _tokenizer_folder(self.run)
                if folder != self._searched:  # a run that has only begun may get one
                    self._searched = folder
                    self._tokenizer = load_tokenizer(None if folder is None else str(folder))
            return self._tokenizer

    def close(self) -> None:
        """Let go of what was opened."""
        for one in [*self._files.values(), *([] if self._own_file is None else [self._own_file])]:
            one.close()


def _tokenizer_folder(run: RunFolder) -> Path | None:
    for folder in (run.best_model(), run.checkpoints / "warm_start", run.checkpoints / "final"):
        if folder is not None and ((folder / "tokenizer.json").is_file() or (folder / "tokenizer_config.json").is_file()):
            return folder
    return None


def open_source(path: str | Path, tokenizer: Any = None) -> Source:
    """Open a run's folder or a file of episodes.

    Args:
        path: of either.
        tokenizer: of the episodes; None finds it.

    Returns:
        The source.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if it is neither, or no trajectory file of ours.
        RunFolderError: if the folder is no run.
    """
    where = Path(path)
    if where.is_dir():
        run = RunFolder.open(where)
        return Source(where.resolve().name, run, tokenizer=tokenizer)
    if where.suffix.lower() not in (".jsonl", ".parquet"):
        raise ValueError(f"{where} is neither a run's folder nor a trajectory file (.jsonl, .parquet)")
    if not where.is_file():
        raise FileNotFoundError(f"there is no file {where}")
    of_run = RunFolder.containing(where.resolve().parent) if tokenizer is None else None
    if of_run is not None:
        try:
            folder = _tokenizer_folder(of_run)
            tokenizer = None if folder is None else load_tokenizer(str(folder))
        except (RunFolderError, ValueError):
            tokenizer = None
    source = Source(where.name, file=where, tokenizer=tokenizer)
    source.files()[0].rows(0, 1)
    return source
