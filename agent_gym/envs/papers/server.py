"""Serves a corpus of papers in the form of the Semantic Scholar Academic Graph, for many rollout workers to share one, and for tests.

`GET /paper/search`, `/paper/{id}`, `/paper/{id}/citations` and `/paper/{id}/references`, each also below `/graph/v1`, and `GET /health`. Parameters are `query`,
`offset`, `limit`, `fields`, `year` ("2019", "2016-2020", "-2020") and `publicationDateOrYear` (":2023-02-23"). Ids are those of the corpus, with or without a prefix
`ARXIV:`; an old arXiv id may have its slash as it is or as %2F.

    with serve_papers(corpus) as server:
        HttpLibrary(server.url).search("graph networks", 10, DateBound())
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from agent_gym.data.papers import DateBound, Paper, PaperCorpus, normalize_paper_id, parse_date, published_between
from agent_gym.search.serving import JsonHandler, JsonServer, Refused

__all__ = ["PaperServer", "serve_papers"]

_ALWAYS = ("paperId", "title")
_FIELDS = frozenset(
    re.findall(
        r"\w+",
        "paperId corpusId externalIds url title abstract venue publicationVenue year referenceCount citationCount influentialCitationCount isOpenAccess "
        "openAccessPdf fieldsOfStudy s2FieldsOfStudy publicationTypes publicationDate journal citationStyles authors citations references embedding tldr "
        "textAvailability contexts contextsWithIntent intents isInfluential",
    )
)
"""What Semantic Scholar lets one ask for; what a corpus does not hold is left out of the answer."""
_YEARS = re.compile(r"(\d{4})?(?:(-)(\d{4})?)?", re.ASCII)
_NEW = re.compile(r"\d{4}\.\d{4,5}|[a-z-]+/\d{7}", re.ASCII)


@dataclass(frozen=True)
class _Content:
    corpus: PaperCorpus
    max_limit: int


class PaperServer(JsonServer):
    """A running or runnable server. The port is taken at construction, so `url` is known before it answers.

    Args:
        corpus: what is served.
        host: the address to listen on.
        port: 0 takes a free one.
        max_limit: papers of one page at most.

    Raises:
        OSError: if the port is taken.
    """

    def __init__(self, corpus: PaperCorpus, host: str = "127.0.0.1", port: int = 0, *, max_limit: int = 1000) -> None:
        super().__init__(_Handler, _Content(corpus, max_limit), host, port)

    @property
    def url(self) -> str:
        """What `base_url` takes."""
        return self.base


def serve_papers(corpus: PaperCorpus, host: str = "127.0.0.1", port: int = 0, *, max_limit: int = 1000) -> PaperServer:
    """Return a server for `with`, which has `url`, or, by `serve_papers(...).run()`, one that blocks.

    Args:
        corpus: what is served.
        host: the address to listen on; this machine alone by default.
        port: 0 takes a free one.
        max_limit: papers of one page at most.

    Returns:
        The server.

    Raises:
        OSError: if the port is taken.
    """
    return PaperServer(corpus, host, port, max_limit=max_limit)


class _Handler(JsonHandler):
    @property
    def _content(self) -> _Content:
        content: _Content = self.server.content
        return content

    def do_GET(self) -> None:
        """Answer a request."""
        if (
            "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        ):  # the next request cannot be found behind a body that is not read
            self.close_connection = True
        try:
            self.reply(200, self._answer())
        except Refused as refusal:
            self.fail(refusal)

    def _answer(self) -> dict[str, Any]:
        parts = urlsplit(self.path)
        try:
            asked = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True, max_num_fields=20).items()}
        except ValueError as error:
            raise Refused(400, f"the parameters cannot be read: {error}") from error
        path = parts.path.removeprefix("/graph/v1")
        if path == "/health":
            return {"status": "ok", "papers": len(self._content.corpus), "name": self._content.corpus.name}
        if not path.startswith("/paper/"):
            raise Refused(404, "there are GET /paper/search, /paper/{id}, /paper/{id}/citations, /paper/{id}/references and /health")
        rest = path.removeprefix("/paper/")
        if rest == "search":
            return self._search(asked)
        name, _, last = rest.rpartition("/")
        if last == "citations" and name:
            return self._linked(name, "citingPaper", self._content.corpus.citations, asked)
        if last == "references" and name:
            return self._linked(name, "citedPaper", self._content.corpus.references, asked)
        return _record(self._paper(rest), _fields(asked))

    def _paper(self, quoted: str) -> Paper:
        paper = self._content.corpus.get(normalize_paper_id(unquote(quoted)))
        if paper is None:
            raise Refused(404, f"Paper with id {unquote(quoted)[:100]} not found")
        return paper

    def _search(self, asked: Mapping[str, str]) -> dict[str, Any]:
        query = asked.get("query", "")
        if not query.strip():
            raise Refused(400, "Missing required parameter: query")
        start, count = self._range(asked, 10)
        bound, fields = _bound(asked), _fields(asked)
        corpus = self._content.corpus
        earliest = _earliest(asked)
        # A lower bound is rare; then all are ranked and those too early taken out.
        wanted = corpus.ranked(query, bound, 0, len(corpus)) if earliest else corpus.ranked(query, bound, 0, start + count + 1)
        kept = [paper for paper in wanted if earliest is None or _appeared_from(paper, earliest)]
        return _page(kept, start, count, [_record(paper, fields) for paper in kept[start : start + count]], total=len(kept))

    def _linked(self, name: str, member: str, follow: Callable[[Paper], Sequence[Paper]], asked: Mapping[str, str]) -> dict[str, Any]:
        start, count = self._range(asked, 100)
        bound, fields = _bound(asked), _fields(asked)
        linked = [paper for paper in follow(self._paper(name)) if bound.allows(paper)]
        return _page(linked, start, count, [{member: _record(paper, fields)} for paper in linked[start : start + count]])

    def _range(self, asked: Mapping[str, str], usual: int) -> tuple[int, int]:
        numbers = []
        for name, default, least, most in (("offset", 0, 0, 10**7), ("limit", usual, 1, self._content.max_limit)):
            text = asked.get(name, str(default))
            if not re.fullmatch(r"\d{1,8}", text, re.ASCII) or not least <= int(text) <= most:
                raise Refused(400, f"{name} should be a whole number from {least} to {most}, not {text[:100]!r}")
            numbers.append(int(text))
        return numbers[0], numbers[1]


def _page(papers: Sequence[Paper], start: int, count: int, data: list[dict[str, Any]], total: int | None = None) -> dict[str, Any]:
    head = {} if total is None else {"total": total}
    following = {"next": start + count} if len(papers) > start + count else {}
    return {**head, "offset": start, **following, "data": data}


def _fields(asked: Mapping[str, str]) -> tuple[str, ...]:
    names = [name.strip().partition(".")[0] for name in asked.get("fields", "").split(",") if name.strip()]
    unknown = [name for name in names if name not in _FIELDS]
    if unknown:
        raise Refused(400, f"Unrecognized or unsupported fields: [{', '.join(unknown)[:200]}]")
    return (*_ALWAYS, *names)


def _record(paper: Paper, fields: Sequence[str]) -> dict[str, Any]:
    """A paper as Semantic Scholar shows it, with the fields that were asked for."""
    values: dict[str, Any] = {
        "paperId": paper.id,
        "externalIds": {"ArXiv": paper.id} if _NEW.fullmatch(paper.id) else {},
        "title": paper.title,
        "abstract": paper.abstract or None,
        "year": paper.year,
        "publicationDate": paper.published if len(paper.published) == len("2023-02-24") else None,
        "authors": [{"authorId": None, "name": name} for name in paper.authors],
        "referenceCount": len(paper.references),
    }
    return {name: value for name, value in values.items() if name in fields}


def _bound(asked: Mapping[str, str]) -> DateBound:
    """Up to which day papers are shown: what may have appeared by then, as Semantic Scholar does."""
    texts = [asked[name] for name in ("publicationDateOrYear", "year") if asked.get(name)]
    lasts = [last for text in texts if (last := _span(text)[1]) is not None]
    last = min(lasts, default=date.max)
    return DateBound(None if last == date.max else last + timedelta(days=1), strict=False)


def _earliest(asked: Mapping[str, str]) -> date | None:
    firsts = [first for name in ("publicationDateOrYear", "year") if asked.get(name) and (first := _span(asked[name])[0]) is not None]
    return max(firsts) if firsts else None


def _appeared_from(paper: Paper, earliest: date) -> bool:
    known = published_between(paper)
    return known is not None and known[1] >= earliest


def _span(text: str) -> tuple[date | None, date | None]:
    """First and last day of "2019", "2016-2020", "2010-", "-2015", "2016-03-05:2020-06-06", "1981-08-25:" or ":2015-01"."""
    try:
        if ":" in text:
            first, last = text.split(":")
        elif (years := _YEARS.fullmatch(text)) and text:
            first, last = years.group(1) or "", years.group(3) or ("" if years.group(2) else years.group(1))
        else:
            first = last = text
        return (parse_date(first) if first else None), (_last_day(last) if last else None)
    except ValueError as error:
        raise Refused(400, f"a range of dates should be like 2016-2020 or 2016-03-05:2020-06-06, not {text[:100]!r} ({error})") from error


def _last_day(text: str) -> date:
    found = published_between(Paper("", "", published=text))
    assert found is not None
    return found[1]
