"""Where the tasks of a question-answering environment come from: a generated world, or the rows of a file.

A `QASource` turns a number into a task, the same one in every process. Files are read once per process and shared by all environments in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from agent_gym.data.qa_loaders import QATask, load_qa, parse_qa, split_file

__all__ = ["LEVELS", "EmbeddedSource", "QASource", "RowSource", "open_source"]

LEVELS = ("full", "bridge")
"""The generated worlds: `wiki_world` and `bridge_world`."""
_SPLITS = ("train", "validation", "test")
Task = TypeVar("Task")


class QASource(Protocol):
    """Tasks by number."""

    @property
    def name(self) -> str:
        """The data set, for info and reports."""
        ...

    @property
    def num_tasks(self) -> int | None:
        """How many tasks `by_index` knows; None for a world without end."""
        ...

    def by_index(self, index: int) -> QATask:
        """Return the task of an index.

        Raises:
            ValueError: for an index that names none.
        """
        ...

    def draw(self, number: int) -> QATask:
        """Return the task that a random number of 53 bits names."""
        ...


@lru_cache(maxsize=256)
def _generated(level: str, split: str, index: int) -> QATask:
    """One generated task; kept for a while, since the episodes of a group share it."""
    if level == "bridge":
        from agent_gym.data.bridge_world import bridge_row

        return parse_qa(bridge_row(split, index))
    from agent_gym.data.wiki_world import wiki_row

    return parse_qa(wiki_row(split, index))


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """A generated world: the index is the world's seed.

    Attributes:
        split: "train", "validation" or "test".
        level: "full" or "bridge".
    """

    split: str
    level: str = "full"

    @property
    def name(self) -> str:
        """See `QASource`."""
        return "embedded"

    @property
    def num_tasks(self) -> int | None:
        """See `QASource`."""
        return None

    def by_index(self, index: int) -> QATask:
        """See `QASource`.

        Args:
            index: at least 0.

        Returns:
            The task.

        Raises:
            ValueError: for a negative index.
        """
        if index < 0:
            raise ValueError(f"options['index'] is {index}; generated tasks are counted from 0")
        return _generated(self.level, self.split, index)

    def draw(self, number: int) -> QATask:
        """See `QASource`.

        Args:
            number: of 53 bits.

        Returns:
            The task.
        """
        return self.by_index(number)


@dataclass(frozen=True, slots=True)
class RowSource(Generic[Task]):
    """The rows of a file, which are those of one split.

    Attributes:
        name: of the file.
        split: enters the draw, so that one seed names different rows in different splits.
        tasks: the rows.
    """

    name: str
    split: str
    tasks: tuple[Task, ...]

    @property
    def num_tasks(self) -> int | None:
        """See `QASource`."""
        return len(self.tasks)

    def by_index(self, index: int) -> Task:
        """See `QASource`.

        Args:
            index: from 0.

        Returns:
            The task.

        Raises:
            ValueError: for an index outside the rows.
        """
        if not 0 <= index < len(self.tasks):
            raise ValueError(f"options['index'] is {index}, and {self.name} has {len(self.tasks)} tasks, counted from 0")
        return self.tasks[index]

    def draw(self, number: int) -> Task:
        """See `QASource`.

        Args:
            number: of 53 bits.

        Returns:
            The task.
        """
        rng = np.random.default_rng(np.random.SeedSequence([_SPLITS.index(self.split), number]))
        return self.tasks[int(rng.integers(len(self.tasks)))]


@lru_cache(maxsize=8)
def _load_once(path: Path, _changed: int, _size: int) -> tuple[QATask, ...]:
    return tuple(load_qa(path))


def open_source(
    dataset: str | Path | Iterable[Mapping[str, Any]] = "embedded",
    *,
    split: str = "train",
    data_dir: str | Path | None = None,
    level: str = "full",
) -> QASource:
    """Open the tasks that the keywords of an environment name.

    Args:
        dataset: "embedded" (a generated world, whatever lies on the disk), "official" (the files of HotpotQA or another known set in
            `data_dir`, by their published names), the path of a file or of a folder with one file per split, or rows.
        split: "train", "validation" or "test". A single file holds the rows of one split: name another file for another split.
        data_dir: where "official" files lie and relative paths begin.
        level: of the generated world.

    Returns:
        The source.

    Raises:
        FileNotFoundError: if there is no such file, or none of the split.
        ValueError: for an unknown level, "official" without `data_dir`, or a malformed file.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    if split not in _SPLITS:
        raise ValueError(f"split must be one of {', '.join(_SPLITS)}, not {split!r}")
    if not isinstance(dataset, (str, Path)):
        return RowSource("rows", split, tuple(load_qa(dataset)))
    if str(dataset) == "embedded":
        return EmbeddedSource(split, level)
    if str(dataset) == "official":
        if data_dir is None:
            raise ValueError(
                "dataset='official' needs data_dir, the folder with the published files (hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json; see "
                "hotpotqa.github.io); dataset='embedded' needs nothing"
            )
        path = split_file(data_dir, split)
    else:
        path = Path(data_dir or "") / Path(dataset)
        if path.is_dir():
            path = split_file(path, split)
        elif not path.is_file():
            raise FileNotFoundError(
                f"dataset must be 'embedded', 'official' or the path of a file or folder, and there is nothing at {str(path)!r}"
            )
    facts = path.stat()
    return RowSource(path.name, split, _load_once(path.resolve(), facts.st_mtime_ns, facts.st_size))
