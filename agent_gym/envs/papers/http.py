"""`HttpLibrary`: a client of paper servers that speak as the Semantic Scholar Academic Graph does.

    GET {base_url}/paper/search?query=...&offset=0&limit=10&fields=...&publicationDateOrYear=:2023-02-23
    -> {"total": 120, "offset": 0, "next": 10, "data": [{"paperId": "...", "title": "...", "externalIds": {"ArXiv": "2301.00001"}, ...}]}
    GET {base_url}/paper/{paperId}/citations?offset=0&limit=30&fields=...   -> {"offset": 0, "data": [{"citingPaper": {...}}]}
    GET {base_url}/paper/{paperId}/references?offset=0&limit=99&fields=...  -> {"offset": 0, "data": [{"citedPaper": {...}}]}

A paper's id here is its arXiv id where it has one, else the server's own, under which it is asked for in any case. Answers are believed only as far as they
were checked (see `agent_gym.search.transport`), and dates are checked again here: a server that knows no `publicationDateOrYear` leaks nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

from agent_gym.data.papers import DateBound, Paper, normalize_paper_id, parse_paper
from agent_gym.envs.papers.library import joined
from agent_gym.search.transport import JsonClient, Remembered, parse_json

__all__ = ["FIELDS", "HttpLibrary"]

FIELDS = "paperId,externalIds,title,abstract,year,publicationDate,authors"
"""What is asked for of each paper."""

_LONGEST_QUERY = 500
"""Characters of a query that are sent; an address has an end."""
_PAGES = 4
"""So many pages of a list are read at most, where papers on the first ones appeared too late."""
_BIGGEST_PAGE = 100
"""Papers of one page, as much as a search of Semantic Scholar gives."""

Page = tuple[tuple[Paper, ...], int | None]
"""Papers, and where the next page begins."""


class HttpLibrary:
    """Searches by asking a server. Safe to use from several threads; connections are kept open and shared.

    Args:
        base_url: what stands before `/paper/search`, such as http://localhost:4000 or https://api.semanticscholar.org/graph/v1.
        timeout: seconds for one call of `search` or `neighbours`, over all their requests and tries.
        max_retries: 0 to 2 of each request; after failed connections and the answers 429, 502, 503 and 504.
        headers: sent with every request, such as {"x-api-key": "..."}.
        cache_size: so many pages are remembered, the least recently used go first.

    Attributes:
        name, remote: see `PaperLibrary`.

    Raises:
        ValueError: for an address or a number that cannot be used.
    """

    remote = True

    def __init__(
        self,
        base_url: str,
        *,
        timeout: float = 30.0,
        max_retries: int = 2,
        headers: Mapping[str, str] = MappingProxyType({}),
        cache_size: int = 4096,
    ) -> None:
        self._client = JsonClient(
            base_url,
            what="paper server",
            timeout=timeout,
            max_retries=max_retries,
            headers=headers,
            example="http://localhost:4000 or https://api.semanticscholar.org/graph/v1",
        )
        if self._client.query:
            raise ValueError(f"base_url must have no query behind a '?', got {base_url!r}")
        self._root = self._client.path.rstrip("/")
        self.name = f"{self._client.base}{self._root}"
        self._known: Remembered[str, Page] = Remembered(cache_size)
        self._again = functools.partial(
            HttpLibrary, base_url, timeout=timeout, max_retries=max_retries, headers=dict(headers), cache_size=cache_size
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    def search(self, query: str, k: int, bound: DateBound) -> list[Paper]:
        """See `PaperLibrary.search`. A query without a word finds nothing, and the server is not asked.

        Raises:
            EnvFault: if no usable answer came in time.
            ValueError: if the server says that it cannot read this query.
        """
        words = " ".join(query.encode("utf-8", "replace").decode("utf-8").split())[:_LONGEST_QUERY]
        if not words:
            return []
        found: dict[str, Paper] = {}
        deadline, start = self._client.deadline(), 0
        for _ in range(_PAGES):
            asked = {"query": words, "offset": start, "limit": min(k, _BIGGEST_PAGE), "fields": FIELDS}
            if bound.before is not None and bound.before > date.min:
                asked["publicationDateOrYear"] = f":{bound.before - timedelta(days=1)}"
            papers, following = self._page("/paper/search", asked, "", deadline)
            for paper in papers:
                if bound.allows(paper):
                    found.setdefault(paper.id, paper)
            if len(found) >= k or following is None or following <= start:
                break
            start = following
        return list(found.values())[:k]

    def neighbours(self, paper: Paper, citations: int, references: int, bound: DateBound) -> list[Paper]:
        """See `PaperLibrary.neighbours`. A paper that the server does not know has none.

        Raises:
            EnvFault: if no usable answer came in time.
        """
        deadline = self._client.deadline()
        where = f"/paper/{quote(paper.key or paper.id, safe='')}"
        citing = self._listed(f"{where}/citations", "citingPaper", citations, bound, deadline)
        cited = self._listed(f"{where}/references", "citedPaper", references, bound, deadline)
        return joined(citing, cited, paper, citations, references, bound)

    def idf(self, terms: Sequence[str]) -> list[float]:
        """See `PaperLibrary.idf`; of a server nothing is known."""
        return [1.0] * len(terms)

    def close(self) -> None:
        """Close the connections that are kept open. The library can be used again afterwards."""
        self._client.close()

    def _listed(self, target: str, member: str, count: int, bound: DateBound, deadline: float) -> list[Paper]:
        found: list[Paper] = []
        start = 0
        for _ in range(_PAGES if count else 0):
            asked = {"offset": start, "limit": min(count, _BIGGEST_PAGE), "fields": FIELDS}
            papers, following = self._page(target, asked, member, deadline)
            found += [paper for paper in papers if bound.allows(paper)]
            if len(found) >= count or following is None or following <= start:
                break
            start = following
        return found

    def _page(self, target: str, asked: Mapping[str, Any], member: str, deadline: float) -> Page:
        """One page of a list, from the memory if it was read before."""
        whole = f"{self._root}{target}?{urlencode(asked)}"
        known = self._known.get(whole)
        if known is None:
            known = self._client.ask(
                "GET",
                whole,
                None,
                lambda content: _read_page(content, member),
                deadline=deadline,
                contract="form of Semantic Scholar",
                accepted={404: _no_page, 400: _no_page} if member else {400: _refused, 414: _refused},
            )
            self._known.put(whole, known)
        return known


def _no_page(_: str) -> Page:
    return (), None


def _refused(said: str) -> Page:
    raise ValueError(f"the paper server refused this query ({said})")


def _read_page(content: bytes, member: str) -> Page:
    """Check a page and take its papers.

    Args:
        content: of the answer.
        member: of each entry that holds the paper; empty where the entry is the paper.

    Returns:
        The papers and where the next page begins. Entries without an id, which Semantic Scholar has for what it knows only by title, are left out.

    Raises:
        ValueError: saying what is wrong with it.
    """
    answer = parse_json(content)
    if not isinstance(answer, dict) or "data" not in answer:
        raise ValueError('it should be an object with "data"')
    data = [] if answer["data"] is None else answer["data"]  # null: the publisher does not want it shown
    if not isinstance(data, list):
        raise ValueError('its "data" should be a list')
    following = answer.get("next")
    if following is not None and (isinstance(following, bool) or not isinstance(following, int)):
        raise ValueError(f'its "next" should be a whole number, not {following!r:.100}')
    papers = []
    for place, entry in enumerate(data):
        row = entry.get(member) if member and isinstance(entry, dict) else entry
        if member and isinstance(entry, dict) and row is None:
            continue
        if not isinstance(row, dict):
            raise ValueError(f"data[{place}] should be an object{f' with {member!r}' if member else ''}, not {row!r:.100}")
        if row.get("paperId") is None and not _arxiv_id(row):
            continue
        papers.append(_read_paper(row, f"data[{place}]"))
    return tuple(papers), following


def _arxiv_id(row: Mapping[str, Any]) -> str:
    ids = row.get("externalIds")
    named = ids.get("ArXiv") if isinstance(ids, dict) else None
    return named if isinstance(named, str) else ""


def _read_paper(row: Mapping[str, Any], where: str) -> Paper:
    named = _arxiv_id(row)
    key = row.get("paperId")
    if key is not None and (isinstance(key, bool) or not isinstance(key, (str, int)) or not str(key).strip()):
        raise ValueError(f"{where}: 'paperId' should be a text, not {key!r:.100}")
    plain = parse_paper({**row, "paper_id": named or str(key), "title": row.get("title") or "", "references": []}, where=where)
    return Paper(
        id=normalize_paper_id(named) if named else plain.id,
        title=plain.title,
        abstract=plain.abstract,
        year=plain.year,
        published=plain.published,
        authors=plain.authors,
        key=str(key) if key is not None else f"ARXIV:{plain.id}",
    )
