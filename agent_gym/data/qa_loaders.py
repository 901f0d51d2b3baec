"""Multi-hop question answering from the files that their authors publish: HotpotQA, 2WikiMultihopQA, MuSiQue, and rows of the sample schema.

Every layout ends in one dataclass, `QATask`. Which layout a row has is told by its keys, so one file may even mix them:

- HotpotQA (arXiv 1809.09600): `context` is a list of [title, sentences], `supporting_facts` a list of [title, sentence number]; the copy on the
  Hugging Face hub holds both as dicts of lists. 2WikiMultihopQA (arXiv 2011.01060) is the same plus `evidences`, triples from which the order of
  the hops is read.
- MuSiQue (arXiv 2108.00573): `paragraphs` with `paragraph_text` and `is_supporting`, `question_decomposition` with the paragraph of each hop,
  and `answer_aliases`.
- The sample schema of `agent_gym.data.samples`, with or without paragraphs in `extra_info`.

A row whose gold answer normalises to nothing ("The The", "!!!") can be won by saying nothing, and an unanswerable row not at all: both kinds are
left out, and one warning says how many. (Who scores the verdict that a question has no answer can keep the unanswerable ones.) Other names that
2WikiMultihopQA accepts stand in a file of their own, and are added to a task by `accept_aliases`. A malformed row is an error that names file,
row and field.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agent_gym.data.faults import missing_field, require_object
from agent_gym.data.multihop_metrics import AliasTable
from agent_gym.data.qa_metrics import normalize_answer
from agent_gym.data.samples import accepted_answers, drop_none, is_sample, parse_sample, read_rows

__all__ = ["Paragraph", "QATask", "UnusableRow", "accept_aliases", "load_qa", "parse_qa"]


_WANTED = (
    "a row is of HotpotQA or 2WikiMultihopQA (question, answer, context, supporting_facts), MuSiQue (question, answer, paragraphs) or the sample "
    "schema (prompt, reward_model)"
)


class UnusableRow(ValueError):
    """A well-formed row that is no task: its gold normalises to nothing, or it has no answer. `reason` says which, in a few words.

    Args:
        message: says which row, and what is wrong with it.
        reason: kept as an attribute.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One page: its title and its sentences, which joined together are its text."""

    title: str
    sentences: tuple[str, ...]

    @property
    def text(self) -> str:
        """The sentences in one string; a blank stands between two that bring none of their own."""
        text = ""
        for sentence in self.sentences:
            glue = " " if text and sentence and not text[-1].isspace() and not sentence[0].isspace() else ""
            text += glue + sentence
        return text.strip()


@dataclass(frozen=True, slots=True)
class QATask:
    """One question with everything that its row knows.

    Attributes:
        id: the row's own id, or its place in the file.
        question: the question.
        golds: the gold answers; sub-EM looks at these alone.
        aliases: other spellings that exact match and F1 accept.
        type: such as "bridge" or "comparison"; empty when the row has none.
        level: such as "hard"; empty when the row has none.
        paragraphs: the row's own pages; empty where it has none.
        supporting_facts: (title, sentence number) pairs in the row's order.
        hops: the supporting titles, each once, in the order in which somebody who answers the question would look them up.
        prompt: the chat messages of a sample row; empty for other layouts.
        data_source: the name of the layout or of the data set.
        extra: keys of the row that nothing here reads.
        answerable: False for a question that its paragraphs do not answer; such a task has no gold.
    """

    id: str
    question: str
    golds: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    type: str = ""
    level: str = ""
    paragraphs: tuple[Paragraph, ...] = ()
    supporting_facts: tuple[tuple[str, int], ...] = ()
    hops: tuple[str, ...] = ()
    prompt: tuple[Mapping[str, Any], ...] = ()
    data_source: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    answerable: bool = True

    @property
    def answers(self) -> tuple[str, ...]:
        """All accepted answers, the golds first."""
        return self.golds + self.aliases


class _Row:
    """A row with its place: typed access whose errors name file, row and field."""

    def __init__(self, row: Mapping[str, Any], where: str) -> None:
        self.row, self.where = row, where

    def fault(self, name: str, wanted: str, value: object) -> ValueError:
        shown = repr(value)
        return ValueError(f"{self.where}: field {name!r} must be {wanted}, not {shown if len(shown) <= 120 else shown[:117] + '...'}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self.row.get(name, default)
        if value is None:
            raise ValueError(f"{self.where}: the field {name!r} is missing; the row has {sorted(map(str, self.row))}")
        if not isinstance(value, str):
            raise self.fault(name, "a text", value)
        return value

    def question(self) -> str:
        question = self.text("question")
        if not question.strip():
            raise self.fault("question", "a question", question)
        return question.strip()

    def answer(self) -> list[str]:
        if "answer" not in self.row:
            raise ValueError(f"{self.where}: the field 'answer' is missing; test files without answers cannot be scored")
        return accepted_answers(self.row["answer"], where=self.where, name="answer")

    def place(self, name: str, default: int | None) -> Any:
        """What names a paragraph within its row."""
        value = self.row.get(name, default)
        if value is not None and not isinstance(value, (int, float, str)):
            raise self.fault(name, "the number of a paragraph", value)
        return value

    def key(self) -> str:
        value = self.row.get("_id", self.row.get("id", self.where))
        return str(value)


def _spellings(answers: Iterable[str], where: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Golds that normalise to something, and their composed Unicode spelling where it differs.

    Many tokenizers compose accents (NFC) when they read; a gold in decomposed spelling could then never be answered exactly.
    """
    golds = tuple(answer for answer in answers if normalize_answer(answer))
    if not golds:
        raise UnusableRow(
            f"{where}: the gold answer normalises to nothing, so saying nothing would match it", "the gold answer normalises to nothing"
        )
    composed = (unicodedata.normalize("NFC", answer) for answer in golds)
    return golds, tuple(spelling for spelling in composed if spelling not in golds)


def _titled_lists(row: _Row, name: str, second: str) -> list[tuple[Any, Any]]:
    """The pairs of a field that is a list of pairs (official files) or a dict of two lists (the hub's copy)."""
    value = row.row.get(name, [])
    if isinstance(value, Mapping):
        titles, others = value.get("title"), value.get(second)
        if not isinstance(titles, list) or not isinstance(others, list) or len(titles) != len(others):
            raise row.fault(name, f"a dict of two equally long lists, 'title' and {second!r}", value)
        for index, title in enumerate(titles):
            if not isinstance(title, str):
                raise row.fault(f"{name}.title[{index}]", "a text", title)
        return list(zip(titles, others, strict=True))
    if not isinstance(value, list):
        raise row.fault(name, "a list of pairs", value)
    pairs = []
    for index, pair in enumerate(value):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise row.fault(f"{name}[{index}]", f"a pair of a title and {second}", pair)
        pairs.append((pair[0], pair[1]))
    return pairs


def _context(row: _Row) -> tuple[Paragraph, ...]:
    paragraphs = []
    for index, (title, sentences) in enumerate(_titled_lists(row, "context", "sentences")):
        lines = [sentences] if isinstance(sentences, str) else sentences
        if not isinstance(lines, (list, tuple)) or not all(isinstance(line, str) for line in lines):
            raise row.fault(f"context[{index}][1]", "a list of sentences", sentences)
        paragraphs.append(Paragraph(str(title), tuple(lines)))
    return tuple(paragraphs)


def _facts(row: _Row) -> tuple[tuple[str, int], ...]:
    facts = []
    for index, (title, number) in enumerate(_titled_lists(row, "supporting_facts", "sent_id")):
        if isinstance(number, bool) or not isinstance(number, int):
            raise row.fault(f"supporting_facts[{index}][1]", "a sentence number", number)
        facts.append((title, number))
    return tuple(facts)


def _mentions(text: str, title: str) -> bool:
    bare = title.split(" (")[0].strip().lower()
    return bool(bare) and bare in text.lower()


def _hop_order(
    question: str, answers: Sequence[str], titles: Sequence[str], paragraphs: Sequence[Paragraph], subjects: Sequence[str]
) -> tuple[str, ...]:
    """Order the supporting titles by how a reader comes upon them.

    A page that the question names comes first, then pages that an already opened page names, in the order of `subjects` (the subjects of 2Wiki's
    evidence triples) or of the row; of two that neither names, the one that holds the answer comes last.
    """
    texts = {paragraph.title: paragraph.text for paragraph in paragraphs}
    ranked = sorted(titles, key=lambda title: next((rank for rank, subject in enumerate(subjects) if _mentions(title, subject)), 0))
    golds = [answer.lower() for answer in answers if answer.lower() not in ("yes", "no")]
    seen, order, left = question, [], list(ranked)
    while left:
        known = [title for title in left if _mentions(seen, title)]
        pick = known[0] if known else min(left, key=lambda title: any(gold in texts.get(title, "").lower() for gold in golds))
        left.remove(pick)
        order.append(pick)
        seen += "\n" + texts.get(pick, "")
    return tuple(order)


def _unread(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    read = set(names)
    return {key: value for key, value in row.items() if key not in read}


def _from_hotpot(row: _Row) -> QATask:
    question, (golds, aliases) = row.question(), _spellings(row.answer(), row.where)
    paragraphs, facts = _context(row), _facts(row)
    evidences = row.row.get("evidences", [])
    subjects = (
        [str(triple[0]) for triple in evidences if isinstance(triple, (list, tuple)) and triple] if isinstance(evidences, list) else []
    )
    titles = list(dict.fromkeys(title for title, _ in facts))
    return QATask(
        id=row.key(),
        question=question,
        golds=golds,
        aliases=aliases,
        type=row.text("type", ""),
        level=row.text("level", ""),
        paragraphs=paragraphs,
        supporting_facts=facts,
        hops=_hop_order(question, golds, titles, paragraphs, subjects),
        data_source="2wikimultihopqa" if "evidences" in row.row else "hotpotqa",
        extra=_unread(row.row, ("_id", "id", "question", "answer", "type", "level", "context", "supporting_facts", "evidences")),
    )


def _from_musique(row: _Row, unanswerable: bool) -> QATask:
    question = row.question()
    answerable = row.row.get("answerable", True)
    if not isinstance(answerable, bool):
        raise row.fault("answerable", "true or false", answerable)
    if not answerable and not unanswerable:
        raise UnusableRow(f"{row.where}: the row says that its question has no answer among its paragraphs", "the question is unanswerable")
    golds, composed = _spellings(row.answer(), row.where) if answerable else ((), ())
    names = accepted_answers(row.row.get("answer_aliases", []), where=row.where, name="answer_aliases")
    listed = row.row["paragraphs"]
    if not isinstance(listed, list):
        raise row.fault("paragraphs", "a list of paragraphs", listed)
    paragraphs, supporting, by_index = [], [], {}
    for index, member in enumerate(listed):
        entry = _Row(member if isinstance(member, Mapping) else {}, f"{row.where}: paragraphs[{index}]")
        page = Paragraph(entry.text("title"), (entry.text("paragraph_text"),))
        paragraphs.append(page)
        by_index[entry.place("idx", index)] = page.title
        if entry.row.get("is_supporting"):
            supporting.append(page.title)
    steps = row.row.get("question_decomposition", [])
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise row.fault("question_decomposition", "a list of steps", steps)
    places = [
        _Row(step, f"{row.where}: question_decomposition[{index}]").place("paragraph_support_idx", None) for index, step in enumerate(steps)
    ]
    planned = [by_index[place] for place in places if place in by_index]
    return QATask(
        id=row.key(),
        question=question,
        golds=golds,
        aliases=tuple(name for name in dict.fromkeys([*composed, *names]) if normalize_answer(name) and name not in golds)
        if answerable
        else (),
        type=row.text("type", f"{len(steps)}hop" if steps else ""),
        level=row.text("level", ""),
        paragraphs=tuple(paragraphs),
        supporting_facts=tuple((title, 0) for title in supporting),
        hops=tuple(dict.fromkeys([*planned, *supporting])),
        data_source="musique",
        extra=_unread(row.row, ("id", "question", "answer", "answer_aliases", "answerable", "paragraphs", "question_decomposition")),
        answerable=answerable,
    )


def _from_sample(row: _Row) -> QATask:
    sample = parse_sample(row.row, where=row.where)
    if not sample.answers:
        raise UnusableRow(
            f"{row.where}: the field 'reward_model.ground_truth' is empty, so no answer can be scored", "there is no ground truth"
        )
    if not sample.question.strip():
        raise row.fault("prompt", "a text or messages with a user message", row.row["prompt"])
    golds, aliases = _spellings(sample.answers, row.where)
    details = _Row(sample.extra_info, f"{row.where}: extra_info")
    paragraphs, facts = _context(details), _facts(details)
    titles = list(dict.fromkeys(title for title, _ in facts))
    question = str(sample.extra_info.get("question", sample.question)).strip()
    identity = next((sample.extra_info[name] for name in ("question_id", "id", "_id", "index") if name in sample.extra_info), row.key())
    return QATask(
        id=str(identity),
        question=question,
        golds=golds,
        aliases=aliases,
        type=details.text("type", ""),
        level=details.text("level", ""),
        paragraphs=paragraphs,
        supporting_facts=facts,
        hops=_hop_order(question, golds, titles, paragraphs, ()),
        prompt=({"role": "user", "content": sample.prompt},) if isinstance(sample.prompt, str) else sample.prompt,
        data_source=sample.data_source,
        extra={
            **sample.other,
            "env_kwargs": dict(sample.env_kwargs),
            "agent_name": sample.agent_name,
            "reward_model": dict(sample.reward_model),
            "extra_info": dict(sample.extra_info),
            "data_source": sample.data_source,
        },
    )


def accept_aliases(task: QATask, table: AliasTable) -> QATask:
    """Add the other names that 2WikiMultihopQA accepts for the answer of a task.

    Args:
        task: with its row's `answer_id` in `extra`; one without it stays as it is.
        table: id -> names, as `agent_gym.data.multihop_metrics.read_aliases` gives it.

    Returns:
        The task with the names among its aliases. Those that normalise to nothing are left out.
    """
    names = table.get(str(task.extra.get("answer_id")), ())
    new = tuple(name for name in names if normalize_answer(name) and name not in task.answers)
    return replace(task, aliases=task.aliases + new) if new else task


def parse_qa(row: Mapping[str, Any], *, where: str = "row", unanswerable: bool = False) -> QATask:
    """Read one row of any supported layout.

    Args:
        row: a row of HotpotQA, 2WikiMultihopQA, MuSiQue or the sample schema, or question and answer alone.
        where: file and row, for error texts.
        unanswerable: take rows that say that their question has no answer, too.

    Returns:
        The task.

    Raises:
        UnusableRow: if the gold answer normalises to nothing, there is no ground truth, or the question is unanswerable and such rows are not taken.
        ValueError: if the row is malformed; the text names file, row and field.
    """
    require_object(row, where)
    if is_sample(row):
        return _from_sample(_Row(row, where))
    cleaned: dict[str, Any] = drop_none(row)
    if "paragraphs" in cleaned:
        return _from_musique(_Row(cleaned, where), unanswerable)
    if "question" in cleaned:
        return _from_hotpot(_Row(cleaned, where))
    raise missing_field(where, "question", row, _WANTED)


def load_qa(
    source: str | Path | Iterable[Mapping[str, Any]], *, unanswerable: bool = False, aliases: AliasTable | None = None
) -> list[QATask]:
    """Read a whole file or collection of rows.

    Args:
        source: as for `agent_gym.data.samples.read_rows`.
        unanswerable: as for `parse_qa`.
        aliases: as for `accept_aliases`; None for none.

    Returns:
        The tasks in order. Rows that are no task are left out, with one warning that counts them by reason.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: for Parquet without pyarrow.
        ValueError: for the first malformed row, with file, row and field, or if no row is left.
    """
    tasks, dropped = [], Counter[str]()
    for where, row in read_rows(source):
        try:
            tasks.append(accept_aliases(parse_qa(row, where=where, unanswerable=unanswerable), aliases or {}))
        except UnusableRow as unusable:
            dropped[unusable.reason] += 1
    name = Path(source).name if isinstance(source, (str, Path)) else "the rows"
    if dropped:
        reasons = ", ".join(f"{count} because {reason}" for reason, count in sorted(dropped.items()))
        warnings.warn(
            f"{name}: {dropped.total()} of {dropped.total() + len(tasks)} rows were dropped: {reasons}", UserWarning, stacklevel=2
        )
    if not tasks:
        raise ValueError(f"{name}: there is no usable row in it")
    return tasks
