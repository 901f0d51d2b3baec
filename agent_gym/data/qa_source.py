"""Where the tasks of a question-answering environment come from: a generated world, or the rows of a file.

A `QASet` is what a data set is to its environment: its generated worlds, and the names of its published files. HotpotQA, 2WikiMultihopQA and MuSiQue
stand here; rows of any of them are read under any of them, since a row's layout is told by its keys.

A `QASource` turns a number into a task, the same one in every process. Files are read once per process and shared by all environments in it.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from agent_gym.data.files import SPLIT_FILES, named_file, read_once
from agent_gym.data.multihop_metrics import AliasTable, read_aliases
from agent_gym.data.qa_loaders import QATask, accept_aliases, load_qa, parse_qa

__all__ = [
    "HOTPOTQA",
    "LEVELS",
    "MUSIQUE",
    "MUSIQUE_FULL",
    "TWO_WIKI",
    "EmbeddedSource",
    "QASet",
    "QASource",
    "RowSource",
    "open_source",
]


@dataclass(frozen=True, slots=True, eq=False)
class QASet:
    """A multi-hop data set, as an environment stands for it.

    Attributes:
        name: for people.
        worlds: level -> "module:function" of (split, seed) that makes a row in the set's official layout.
        files: split -> names of the published files without their endings, the first choice first.
        published: the files and where to get them, for errors.
        aliases: "module:function" of (split, seed) that makes the table of other names of a generated row; empty where the row has its own.
    """

    name: str
    worlds: Mapping[str, str]
    published: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: SPLIT_FILES)
    aliases: str = ""


HOTPOTQA = QASet(
    "HotpotQA",
    {"full": "agent_gym.data.wiki_world:wiki_row", "bridge": "agent_gym.data.bridge_world:bridge_row"},
    "hotpot_train_v1.1.json, hotpot_dev_distractor_v1.json; see hotpotqa.github.io",
)
TWO_WIKI = QASet(
    "2WikiMultihopQA",
    {"full": "agent_gym.data.two_wiki_world:two_wiki_row"},
    "train.json, dev.json and id_aliases.json; see github.com/Alab-NII/2wikimultihop",
    {"train": ("train",), "validation": ("dev", "validation", "valid"), "test": ("test",)},
    "agent_gym.data.two_wiki_world:two_wiki_aliases",
)
MUSIQUE = QASet(
    "MuSiQue",
    {"full": "agent_gym.data.musique_world:musique_row"},
    "musique_ans_v1.0_train.jsonl, musique_ans_v1.0_dev.jsonl; see github.com/StonyBrookNLP/musique",
    {
        "train": ("musique_ans_v1.0_train", "train"),
        "validation": ("musique_ans_v1.0_dev", "dev", "validation", "valid"),
        "test": ("musique_ans_v1.0_test", "test"),
    },
)
MUSIQUE_FULL = QASet(
    "MuSiQue-Full",
    MUSIQUE.worlds,
    "musique_full_v1.0_train.jsonl, musique_full_v1.0_dev.jsonl; see github.com/StonyBrookNLP/musique",
    {
        "train": ("musique_full_v1.0_train", "train"),
        "validation": ("musique_full_v1.0_dev", "dev", "validation", "valid"),
        "test": ("musique_full_v1.0_test", "test"),
    },
)
"""MuSiQue with its unanswerable twins, which only `open_source(unanswerable=True)` keeps."""
LEVELS = tuple(HOTPOTQA.worlds)
"""The generated worlds of HotpotQA: `wiki_world` and `bridge_world`."""
ALIAS_FILE = "id_aliases.json"
"""Where 2WikiMultihopQA keeps the other names of its answers."""
_SPLITS = ("train", "validation", "test")
Task = TypeVar("Task")


class QASource(Protocol):
    """Tasks by number."""

    @property
    def aliases(self) -> AliasTable:
        """Other names by id, for rows that are given as they are."""
        ...

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

        Args:
            index: as in `options={"index": ...}`.

        Returns:
            The task; the same index is the same task.

        Raises:
            ValueError: for an index that names none.
        """
        ...

    def draw(self, number: int) -> QATask:
        """Return the task that a random number of 53 bits names.

        Args:
            number: at least 0 and below 2**53.

        Returns:
            The task; the same number is the same task.
        """
        ...


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


@lru_cache(maxsize=256)
def _generated(data_set: QASet, level: str, split: str, index: int, twins: bool) -> QATask:
    """One generated task; kept for a while, since the episodes of a group share it."""
    make = _named(data_set.worlds[level])
    if twins:
        seed, odd = divmod(index, 2)
        return parse_qa(make(split, seed, answerable=not odd), unanswerable=True)
    task = parse_qa(make(split, index))
    return accept_aliases(task, _named(data_set.aliases)(split, index)) if data_set.aliases else task


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """A generated world: the index is the world's seed.

    Attributes:
        split: "train", "validation" or "test".
        level: a key of the data set's worlds.
        data_set: whose world.
        twins: every second task is the unanswerable twin of the one before it (MuSiQue).
        aliases: see `QASource`; generated rows bring their own.
    """

    split: str
    level: str = "full"
    data_set: QASet = HOTPOTQA
    twins: bool = False
    aliases: AliasTable = field(default_factory=dict, compare=False)

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
        return _generated(self.data_set, self.level, self.split, index, self.twins)

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
        aliases: see `QASource`.
    """

    name: str
    split: str
    tasks: tuple[Task, ...]
    aliases: AliasTable = field(default_factory=dict, compare=False)

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


@read_once(maxsize=8)
def _load(path: Path, unanswerable: bool, aliases: Path | None) -> tuple[QATask, ...]:
    return tuple(load_qa(path, unanswerable=unanswerable, aliases=None if aliases is None else read_aliases(aliases)))


def open_source(
    dataset: str | Path | Iterable[Mapping[str, Any]] = "embedded",
    *,
    split: str = "train",
    data_dir: str | Path | None = None,
    level: str = "full",
    data_set: QASet = HOTPOTQA,
    unanswerable: bool = False,
    aliases: str | Path | None = None,
) -> QASource:
    """Open the tasks that the keywords of an environment name.

    Args:
        dataset: "embedded" (a generated world, whatever lies on the disk), "official" (the files of the data set in `data_dir`, by their
            published names), the path of a file or of a folder with one file per split, or rows.
        split: "train", "validation" or "test". A single file holds the rows of one split: name another file for another split.
        data_dir: where "official" files lie and relative paths begin.
        level: of the generated world.
        data_set: whose world and files.
        unanswerable: keep rows that say that their question has no answer; in the generated world every second task is one.
        aliases: `id_aliases.json` of 2WikiMultihopQA, for rows that come from a file or are given; "auto" takes the one beside the dataset, and
            warns where rows have ids and there is none; None accepts the golds alone.

    Returns:
        The source.

    Raises:
        FileNotFoundError: if there is no such file, or none of the split.
        ValueError: for an unknown level, "official" without `data_dir`, or a malformed file.
    """
    if level not in data_set.worlds:
        raise ValueError(f"level must be one of {', '.join(data_set.worlds)}, not {level!r}")
    if split not in _SPLITS:
        raise ValueError(f"split must be one of {', '.join(_SPLITS)}, not {split!r}")
    given = None if aliases is None or aliases == "auto" else Path(aliases)
    table: AliasTable = {} if given is None else read_aliases(given)
    if not isinstance(dataset, (str, Path)):
        source = RowSource("rows", split, tuple(load_qa(dataset, unanswerable=unanswerable, aliases=table)), table)
    elif str(dataset) == "embedded":
        return EmbeddedSource(split, level, data_set, unanswerable, table)
    else:
        published = f"the published files ({data_set.published})"
        path = named_file(dataset, split=split, data_dir=data_dir, published=published, stems=data_set.files)
        if aliases == "auto" and (path.parent / ALIAS_FILE).is_file():
            given = path.parent / ALIAS_FILE
            table = read_aliases(given)
        source = RowSource(path.name, split, _load(path, unanswerable, given), table)
    if aliases == "auto" and given is None and any(task.extra.get("answer_id") for task in source.tasks):
        warnings.warn(
            f"{source.name}: there is no {ALIAS_FILE} beside it, so only the golds themselves are accepted, and figures are lower than those of the "
            "data set's own script; pass aliases=FILE, or aliases=None if that is meant",
            UserWarning,
            stacklevel=2,
        )
    return source
