"""Questions whose answer is a set of papers: `PaperTask`, and a loader of the layouts that they are published in.

Three layouts are read as they are: AutoScholarQuery and RealScholarQuery (PaSa, arXiv 2501.10120: `question`, `answer`, `answer_arxiv_id`,
`source_meta.published_time`, `qid`), rows of the Agent-R1 sample schema (`prompt`, `reward_model`), and the rows of the generated worlds, which are the first
with `papers`, a corpus of their own, and `type`.

A row of the sample schema may have no ground truth; it can be played and trained on with a relevance of another kind, and not scored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_gym.data.faults import field_fault, missing_field, require_object
from agent_gym.data.files import named_file, read_once
from agent_gym.data.papers import PaperCorpus, normalize_paper_id, parse_date
from agent_gym.data.qa_source import RowSource
from agent_gym.data.samples import drop_none, is_sample, parse_sample, read_rows

__all__ = ["PaperTask", "PaperWorldSource", "load_paper_tasks", "open_paper_tasks", "parse_paper_task"]


_WANTED = (
    "a row is of AutoScholarQuery or RealScholarQuery (question, answer, answer_arxiv_id) or of the sample schema (prompt, reward_model)"
)
_PUBLISHED = "the questions of each split (train.jsonl, dev.jsonl, test.jsonl of AutoScholarQuery; see bytedance/pasa)"


@dataclass(frozen=True, slots=True)
class PaperTask:
    """One question.

    Attributes:
        id: of the row, or its place in the file.
        question: in words.
        gold: ids of the papers that answer it, in one spelling, each once; empty where the row does not say.
        titles: of the gold papers, in their order; empty where the row does not say.
        before: the papers appeared before this day; None where the row sets no day.
        type: of the question; empty where unnamed.
        papers: the corpus of this question alone; None where it shares one.
        prompt: the row's own chat messages; empty for questions.
        data_source: the name of the data set; empty where unnamed.
        extra: what else the row holds.
    """

    id: str
    question: str
    gold: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    before: date | None = None
    type: str = ""
    papers: PaperCorpus | None = field(default=None, repr=False)
    prompt: tuple[Mapping[str, Any], ...] = ()
    data_source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def gold_titles(self) -> Mapping[str, str]:
        """The titles of the gold papers by id, as far as the row has them."""
        return dict(zip(self.gold, self.titles, strict=False))


def _texts(row: Mapping[str, Any], name: str, where: str) -> list[str]:
    listed = row.get(name, [])
    if isinstance(listed, str):
        listed = [listed]
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise field_fault(where, name, "a list of texts", listed)
    return listed


def _gold(ids: Iterable[str], titles: list[str], where: str, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Gold ids, each once, and the titles that stand at their places."""
    first: dict[str, str] = {}
    for place, one in enumerate(ids):
        key = normalize_paper_id(one)
        if not key:
            raise field_fault(where, f"{name}[{place}]", "an id that is not empty", one)
        first.setdefault(key, titles[place] if place < len(titles) else "")
    return tuple(first), tuple(first.values()) if titles else ()


def _before(row: Mapping[str, Any], where: str) -> date | None:
    meta = row.get("source_meta", {})
    if not isinstance(meta, Mapping):
        raise field_fault(where, "source_meta", 'an object such as {"published_time": "20230224"}', meta)
    for holder, name, shown in ((row, "published_before", "published_before"), (meta, "published_time", "source_meta.published_time")):
        value = holder.get(name)
        if value not in (None, ""):
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                raise field_fault(where, shown, "a date", value)
            try:
                return parse_date(str(value))
            except ValueError as error:
                raise ValueError(f"{where}: field {shown!r}: {error}") from error
    return None


def _own_papers(row: Mapping[str, Any], where: str) -> PaperCorpus | None:
    if "papers" not in row:
        return None
    if not isinstance(row["papers"], list):
        raise field_fault(where, "papers", "a list of papers", row["papers"])
    try:
        return PaperCorpus.read(row["papers"])
    except ValueError as error:
        raise ValueError(f"{where}: papers: {error}") from error


def _from_sample(row: Mapping[str, Any], where: str) -> PaperTask:
    sample = parse_sample(row, where=where)
    question = str(sample.extra_info.get("question", sample.question)).strip()
    if not question:
        raise field_fault(where, "prompt", "a text or messages with a user message", row["prompt"])
    gold, titles = _gold(sample.answers, _texts(sample.extra_info, "titles", f"{where}: extra_info"), where, "reward_model.ground_truth")
    key = next((sample.extra_info[name] for name in ("qid", "id", "index") if name in sample.extra_info), where)
    return PaperTask(
        id=str(key),
        question=question,
        gold=gold,
        titles=titles,
        before=_before(sample.extra_info, f"{where}: extra_info"),
        type=str(sample.extra_info.get("type", "")),
        papers=_own_papers(sample.extra_info, f"{where}: extra_info"),
        prompt=() if isinstance(sample.prompt, str) else sample.prompt,
        data_source=sample.data_source,
        extra={**sample.other, "env_kwargs": dict(sample.env_kwargs), "agent_name": sample.agent_name},
    )


_READ = ("question", "answer", "answer_arxiv_id", "source_meta", "published_before", "qid", "id", "type", "papers", "data_source")


def parse_paper_task(row: Mapping[str, Any], *, where: str = "row") -> PaperTask:
    """Read one question.

    Args:
        row: of any of the layouts; see the module.
        where: file and row, for error texts.

    Returns:
        The question.

    Raises:
        ValueError: if the row is malformed; the text names file, row and field.
    """
    require_object(row, where)
    if is_sample(row):
        return _from_sample(row, where)
    cleaned: dict[str, Any] = drop_none(row)
    for name in ("question", "answer_arxiv_id"):
        if name not in cleaned:
            raise missing_field(where, name, row, _WANTED)
    question = cleaned["question"]
    if not isinstance(question, str) or not question.strip():
        raise field_fault(where, "question", "a text that is not empty", question)
    ids = _texts(cleaned, "answer_arxiv_id", where)
    if not ids:
        raise field_fault(where, "answer_arxiv_id", "a list of at least one id", ids)
    gold, titles = _gold(ids, _texts(cleaned, "answer", where), where, "answer_arxiv_id")
    return PaperTask(
        id=str(cleaned.get("qid", cleaned.get("id", where))),
        question=question.strip(),
        gold=gold,
        titles=titles,
        before=_before(cleaned, where),
        type=str(cleaned.get("type", "")),
        papers=_own_papers(cleaned, where),
        data_source=str(cleaned.get("data_source", "")),
        extra={name: value for name, value in cleaned.items() if name not in _READ},
    )


def load_paper_tasks(source: str | Path | Iterable[Mapping[str, Any]]) -> list[PaperTask]:
    """Read all questions of a file or of rows.

    Args:
        source: as for `agent_gym.data.samples.read_rows`.

    Returns:
        The questions in order.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: for Parquet without pyarrow.
        ValueError: for the first malformed row, with file, row and field; and if there is no row.
    """
    tasks = [parse_paper_task(row, where=where) for where, row in read_rows(source)]
    if not tasks:
        raise ValueError(f"{Path(source).name if isinstance(source, (str, Path)) else 'the rows'}: there is no question in it")
    return tasks


# ---------------------------------------------------------------------------------------------------- sources


@lru_cache(maxsize=64)
def _generated(split: str, index: int) -> PaperTask:
    """One generated question with its corpus; kept for a while, since the episodes of a group share it."""
    from agent_gym.data.paper_world import paper_row

    return parse_paper_task(paper_row(split, index), where=f"generated {split} task {index}")


@dataclass(frozen=True, slots=True)
class PaperWorldSource:
    """The generated worlds: an index is a seed.

    Attributes:
        split: "train", "validation" or "test".
        name: for info and reports.
        num_tasks: None, there is no end to them.
    """

    split: str
    name: str = "embedded"
    num_tasks: int | None = None

    def by_index(self, index: int) -> PaperTask:
        """Return the task of an index.

        Args:
            index: at least 0.

        Returns:
            The task.

        Raises:
            ValueError: for a negative index.
        """
        if index < 0:
            raise ValueError(f"options['index'] is {index}; generated tasks are counted from 0")
        return _generated(self.split, index)

    def draw(self, number: int) -> PaperTask:
        """Return the task that a random number of 53 bits names.

        Args:
            number: of 53 bits.

        Returns:
            The task.
        """
        return self.by_index(number)


@read_once(maxsize=8)
def _load(path: Path) -> tuple[PaperTask, ...]:
    return tuple(load_paper_tasks(path))


def open_paper_tasks(
    dataset: str | Path | Iterable[Mapping[str, Any]] = "embedded", *, split: str = "train", data_dir: str | Path | None = None
) -> PaperWorldSource | RowSource[PaperTask]:
    """Open the questions that the keywords of an environment name.

    Args:
        dataset: "embedded" (a generated world, whatever lies on the disk), "official" (a file of the split in `data_dir`), the path of a file or of a
            folder with one file per split, or rows.
        split: "train", "validation" or "test". A single file holds the same questions in every split.
        data_dir: where "official" files lie and relative paths begin.

    Returns:
        The source.

    Raises:
        FileNotFoundError: if there is no such file, or none of the split.
        ValueError: for "official" without `data_dir`, or a malformed file.
    """
    if not isinstance(dataset, (str, Path)):
        return RowSource("rows", split, tuple(load_paper_tasks(dataset)))
    if str(dataset) == "embedded":
        return PaperWorldSource(split)
    path = named_file(dataset, split=split, data_dir=data_dir, published=_PUBLISHED)
    return RowSource(path.name, split, _load(path))
