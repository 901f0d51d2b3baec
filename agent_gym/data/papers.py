"""Papers and what cites what: `Paper`, ids in one spelling, dates as far as they are known, and the corpus of a `papers.jsonl`.

One paper is known under many ids: `arXiv:2301.00001v2`, its address, `2301.00001`. `normalize_paper_id` makes one of them. The version is cut off an arXiv
id and nothing else: cutting at the first "v", as published evaluation code does, turns `solv-int/9901001` into `sol`.

A question may ask for what was known before a day, and the paper that the question was taken from lists every answer. `DateBound` therefore lets through
what is known to be earlier ("strict"), or all but what is known to be later ("lenient"). What is known of a date is an interval: a day, the month in an
arXiv id, or a year.
"""

from __future__ import annotations

import calendar
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from agent_gym.data.faults import field_fault, missing_field, require_object
from agent_gym.data.files import read_once
from agent_gym.data.samples import drop_none, read_rows
from agent_gym.search import Document, LuceneBM25
from agent_gym.search.corpus import default_cache_dir

__all__ = ["DateBound", "Paper", "PaperCorpus", "normalize_paper_id", "open_papers", "parse_date", "parse_paper", "published_between"]

_NEW_ID = re.compile(r"(\d{2})(0[1-9]|1[0-2])\.\d{4,5}(v\d+)?", re.ASCII)
_OLD_ID = re.compile(r"([a-z][a-z-]*[a-z])(\.[a-z]{2})?/(\d{2})(0[1-9]|1[0-2])(\d{3})(v\d+)?", re.ASCII | re.IGNORECASE)
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.|export\.)?arxiv\.org/(?:abs|pdf|html)/(.+?)(?:\.pdf)?/?", re.IGNORECASE)
_PREFIX = re.compile(r"arxiv\s*:\s*", re.IGNORECASE)
_DATE = re.compile(r"(\d{4})(?:-?(\d{2})(?:-?(\d{2}))?)?(?:[T ].*)?", re.ASCII)
_FIRST_ARXIV_YEAR = 91  # of the old ids, whose years have two digits
_MANY = 20_000
"""Papers from which on the index is kept on the disk."""

_ID_NAMES = ("paper_id", "paperId", "arxiv_id", "id")
_DATE_NAMES = ("published", "publicationDate", "published_date", "date")


@dataclass(frozen=True, slots=True)
class Paper:
    """One paper.

    Attributes:
        id: in the one spelling of `normalize_paper_id`.
        title: may be empty.
        abstract: may be empty.
        year: of publication, if known.
        published: "YYYY-MM-DD" or "YYYY-MM", empty where unknown.
        authors: names.
        references: ids of the papers that it cites, in its order, each once; they need not be in a corpus.
        key: under which a server knows it; empty where that is its id.
    """

    id: str
    title: str
    abstract: str = ""
    year: int | None = None
    published: str = ""
    authors: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    key: str = ""


def normalize_paper_id(text: str) -> str:
    """Return the one spelling of a paper's id.

    Args:
        text: an arXiv id, old or new, with or without version, prefix "arXiv:" or address; or an id of another kind.

    Returns:
        `2301.00001`; `cs/0112017` (the archive in small letters, without a subject class, as arXiv lists it); anything else on one line, without the blanks around it.
    """
    plain = " ".join(text.split())
    bare = _PREFIX.sub("", plain, count=1) if _PREFIX.match(plain) else plain
    address = _ADDRESS.fullmatch(bare)
    if address is not None:
        bare = address.group(1)
    if found := _NEW_ID.fullmatch(bare):
        return bare[: found.start(3)] if found.group(3) else bare
    if found := _OLD_ID.fullmatch(bare):
        archive, _, year, month, number, _ = found.groups()
        return f"{archive.lower()}/{year}{month}{number}"
    return plain


def parse_date(text: str) -> date:
    """Read a day; of a month or year alone, its first day.

    Args:
        text: "20230224", "2023-02-24", "2023-02" or "2023"; a time of day behind it is left out.

    Returns:
        The day.

    Raises:
        ValueError: for anything else.
    """
    return _interval(text)[0]


@lru_cache(maxsize=1 << 12)
def _interval(text: str) -> tuple[date, date]:
    """First and last day that a date may mean."""
    found = _DATE.fullmatch(text.strip())
    try:
        if found is None:
            raise ValueError("no such form")
        year, month, day = (int(part) if part else None for part in found.groups())
        assert year is not None
        if month is None:
            return date(year, 1, 1), date(year, 12, 31)
        if day is None:
            return date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1])
        return date(year, month, day), date(year, month, day)
    except (ValueError, IndexError) as error:
        raise ValueError(f"a date must look like 2023-02-24, 20230224, 2023-02 or 2023, not {text!r:.100} ({error})") from error


def _id_month(paper_id: str) -> tuple[date, date] | None:
    """The month in an arXiv id."""
    if found := _NEW_ID.fullmatch(paper_id):
        year, month = 2000 + int(found.group(1)), int(found.group(2))
    elif found := _OLD_ID.fullmatch(paper_id):
        short, month = int(found.group(3)), int(found.group(4))
        year = (1900 if short >= _FIRST_ARXIV_YEAR else 2000) + short
    else:
        return None
    return date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1])


def published_between(paper: Paper) -> tuple[date, date] | None:
    """Return what is known of the day on which a paper appeared first.

    Args:
        paper: any paper.

    Returns:
        First and last day that it may be: of the date and of the month in an arXiv id whichever is earlier, the year where there is neither; None where
        nothing is known.
    """
    known = [_interval(paper.published)] if paper.published else []
    month = _id_month(paper.id)
    if month is not None:
        known.append(month)
    if not known and paper.year is not None:
        known.append((date(paper.year, 1, 1), date(paper.year, 12, 31)))
    return min(known, key=lambda one: (one[1], one[0])) if known else None


@dataclass(frozen=True, slots=True)
class DateBound:
    """Which papers a question may be answered with.

    Attributes:
        before: the day before which a paper must have appeared; None lets all through.
        strict: True: a paper is let through when it certainly appeared before that day. False: unless it certainly did not.
    """

    before: date | None = None
    strict: bool = True

    def allows(self, paper: Paper) -> bool:
        """Whether a paper is let through.

        Args:
            paper: any paper.

        Returns:
            True if it is. One of which no date is known is so only where the bound is not strict.
        """
        if self.before is None:
            return True
        known = published_between(paper)
        if known is None:
            return not self.strict
        return (known[1] if self.strict else known[0]) < self.before


# ---------------------------------------------------------------------------------------------------- records


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row.get(name, "")
    if not isinstance(value, str):
        raise field_fault(where, name, "a text", value)
    return value


def _id_of(row: Mapping[str, Any], where: str) -> str:
    for name in _ID_NAMES:
        if name in row:
            value = row[name]
            if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
                raise field_fault(where, name, "an id: a text that is not empty, or a whole number", value)
            return normalize_paper_id(str(value))
    raise missing_field(where, "paper_id", row)


def _names(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    listed = row.get("authors", [])
    if isinstance(listed, str):
        return (listed,) if listed.strip() else ()
    if not isinstance(listed, list):
        raise field_fault(where, "authors", "a list of names", listed)
    names = []
    for index, one in enumerate(listed):
        name = one.get("name") if isinstance(one, Mapping) else one
        if not isinstance(name, str):
            raise field_fault(where, f"authors[{index}]", 'a name, or {"name": ...}', one)
        names.append(name)
    return tuple(names)


def _references(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    listed = row.get("references", [])
    if not isinstance(listed, list):
        raise field_fault(where, "references", "a list of ids", listed)
    ids: dict[str, None] = {}
    for index, one in enumerate(listed):
        if isinstance(one, Mapping):  # a record of a reference; one without an id cannot be followed
            one = next((one[name] for name in _ID_NAMES if one.get(name)), None)
        if one is None:
            continue
        if isinstance(one, bool) or not isinstance(one, (str, int)):
            raise field_fault(where, f"references[{index}]", 'an id, or {"paper_id": ...}', one)
        ids[normalize_paper_id(str(one))] = None
    return tuple(one for one in ids if one)


def _year(row: Mapping[str, Any], where: str) -> int | None:
    value = row.get("year")
    if value is None or value == "":
        return None
    try:
        number = int(value)
        if isinstance(value, bool) or number != float(value) or not 1 <= number <= 9999:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise field_fault(where, "year", "a year", value) from None
    return number


def parse_paper(row: Mapping[str, Any], *, where: str = "row") -> Paper:
    """Read one paper.

    Args:
        row: with `paper_id` (or `paperId`, `arxiv_id`, `id`) and `title`; `abstract`, `year`, `published` (a date), `authors` (names, or objects with
            `name`) and `references` (ids, or objects with an id) may be missing. Other fields are left alone.
        where: file and row, for error texts.

    Returns:
        The paper.

    Raises:
        ValueError: if the row is malformed; the text names file, row and field.
    """
    require_object(row, where)
    cleaned: dict[str, Any] = drop_none(row)
    identity = _id_of(cleaned, where)
    if "title" not in cleaned:
        raise missing_field(where, "title", cleaned)
    published = ""
    for name in _DATE_NAMES:
        if cleaned.get(name):
            published = _text(cleaned, name, where).strip()
            try:
                _interval(published)
            except ValueError as error:
                raise ValueError(f"{where}: field {name!r}: {error}") from error
            break
    return Paper(
        id=identity,
        title=" ".join(_text(cleaned, "title", where).split()),
        abstract=_text(cleaned, "abstract", where).strip(),
        year=_year(cleaned, where),
        published=published,
        authors=_names(cleaned, where),
        references=_references(cleaned, where),
    )


class PaperCorpus:
    """Papers with their citations in both directions, and an index over title and abstract. It never changes.

    Attributes:
        papers: in their order.
        name: of the file, for error texts and reports.
    """

    def __init__(self, papers: Iterable[Paper], name: str = "papers") -> None:
        """Takes the papers.

        Args:
            papers: in any order; references to papers that are not among them cannot be followed and do no harm.
            name: see the class.

        Raises:
            ValueError: if two papers have one id.
        """
        self.papers: tuple[Paper, ...] = tuple(papers)
        self.name = name
        self._by_id: dict[str, Paper] = {}
        for paper in self.papers:
            if paper.id in self._by_id:
                raise ValueError(f"{name}: two papers have the id {paper.id!r}")
            self._by_id[paper.id] = paper
        self._citing: dict[str, list[Paper]] = {}
        for paper in self.papers:
            for cited in paper.references:
                if cited in self._by_id and cited != paper.id:
                    self._citing.setdefault(cited, []).append(paper)
        self._index: LuceneBM25 | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy makes its index anew when it is first asked for."""
        return type(self), (self.papers, self.name)

    @classmethod
    def read(cls, source: str | Path | Iterable[Mapping[str, Any]], name: str = "") -> PaperCorpus:
        """Read the papers of a file or of rows.

        Args:
            source: a path to JSON lines, JSON or Parquet, or rows; see `parse_paper`.
            name: see the class; the file's own when empty.

        Returns:
            The corpus.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: for the first malformed row, with file, row and field; and if there is no row or an id comes twice.
        """
        shown = name or (Path(source).name if isinstance(source, (str, Path)) else "papers")
        places: dict[str, str] = {}
        papers = []
        for where, row in read_rows(source):
            paper = parse_paper(row, where=where)
            if paper.id in places:
                raise ValueError(f"{where}: the paper {paper.id!r} stands in {places[paper.id]} already")
            places[paper.id] = where
            papers.append(paper)
        if not papers:
            raise ValueError(f"{shown}: there is no paper in it")
        return cls(papers, shown)

    def __len__(self) -> int:
        """How many papers there are."""
        return len(self.papers)

    def get(self, paper_id: str) -> Paper | None:
        """Return a paper.

        Args:
            paper_id: in any spelling.

        Returns:
            The paper, None where there is none of that id.
        """
        return self._by_id.get(paper_id) or self._by_id.get(normalize_paper_id(paper_id))

    def references(self, paper: Paper) -> list[Paper]:
        """Return the papers of this corpus that a paper cites, in its order.

        Args:
            paper: of this corpus or another.

        Returns:
            The papers; what the corpus lacks, and the paper itself, are left out.
        """
        return [self._by_id[one] for one in paper.references if one in self._by_id and one != paper.id]

    def citations(self, paper: Paper) -> list[Paper]:
        """Return the papers of this corpus that cite a paper, in the corpus's order.

        Args:
            paper: of this corpus or another; its id counts.

        Returns:
            The papers; empty where nothing cites it.
        """
        return list(self._citing.get(paper.id, ()))

    @property
    def index(self) -> LuceneBM25:
        """The index over titles and abstracts, document ids being paper ids; made when it is first asked for."""
        with self._lock:
            if self._index is None:
                documents = [Document(paper.id, paper.title, paper.abstract) for paper in self.papers]
                many = len(documents) > _MANY
                self._index = LuceneBM25.cached(documents, default_cache_dir()) if many else LuceneBM25.build(documents)
            return self._index

    def ranked(self, query: str, bound: DateBound, start: int, count: int) -> list[Paper]:
        """Search.

        Args:
            query: any text.
            bound: papers outside of it are as if they were not there.
            start: so many of the best are left out.
            count: at most so many are returned.

        Returns:
            The papers, best first.
        """
        wanted = start + count
        k = wanted
        while True:
            hits = self.index.search([query], k)[0]
            found = [paper for hit in hits if bound.allows(paper := self._by_id[hit.document.id])]
            if len(found) >= wanted or len(hits) < k:
                return found[start:wanted]
            k = min(max(2 * k, 64), len(self.papers) + 1)


@read_once(maxsize=4)
def _read(path: Path) -> PaperCorpus:
    return PaperCorpus.read(path)


def open_papers(source: str | Path | PaperCorpus | Sequence[Mapping[str, Any]]) -> PaperCorpus:
    """Open a corpus; a file is read once per process and shared.

    Args:
        source: a file (`papers.jsonl`), a corpus, or rows.

    Returns:
        The corpus.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for malformed papers.
    """
    if isinstance(source, PaperCorpus):
        return source
    if not isinstance(source, (str, Path)):
        return PaperCorpus.read(source)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(
            f'there is no file of papers {str(source)!r}; wanted: JSON lines with {{"paper_id", "title", "abstract", "year", "authors", "references"}}'
        )
    return _read(path)
