r"""`HttpSearcher`: a client of the `/retrieve` contract that retrieval servers for search agents share.

    POST /retrieve {"queries": ["..."], "topk": 3, "return_scores": true}
    -> {"result": [[{"document": {"id": "7", "contents": "\"Title\"\ntext"}, "score": 1.5}]]}

A call to `search` has one deadline over everything that it does, at most two retries, and it ends with results or with `EnvFault`; whatever a server
sends is checked before it is believed (see `transport`).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agent_gym.search.transport import JsonClient, Remembered, parse_json
from agent_gym.search.types import Document, Hit, split_contents

__all__ = ["HttpSearcher"]


class HttpSearcher:
    """Searches by asking a server. Safe to use from several threads; connections are kept open and shared.

    Attributes:
        url: Where queries are posted to.
        index_id: Names the index behind the server, in the cache's keys and the fingerprint.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 10.0,
        max_retries: int = 2,
        cache_size: int = 4096,
        index_id: str = "",
        batch_size: int = 256,
        max_response_bytes: int = 64 << 20,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Makes a client; nothing is sent yet.

        Args:
            url: `http://host:port/retrieve`, or without a path, then `/retrieve` is added. `https` works too.
            timeout: Seconds for one call of `search`, over all its tries and batches. (Looking up a host name has the system's own limit.)
            max_retries: 0 to 2; after failed connections and the answers 429, 502, 503 and 504.
            cache_size: So many answers are remembered, the least recently used go first; 0 remembers none.
            index_id: See the class; give one where the server may change its corpus.
            batch_size: At most so many queries in one request.
            max_response_bytes: A longer answer is a fault.
            headers: Sent with every request, for example an authorisation.

        Raises:
            ValueError: If the address or a number cannot be used.
        """
        self._client = JsonClient(url, timeout=timeout, max_retries=max_retries, max_response_bytes=max_response_bytes, headers=headers)
        if cache_size < 0 or batch_size < 1:
            raise ValueError(f"cache_size must be at least 0 and batch_size at least 1, got {cache_size} and {batch_size}")
        path = self._client.path if self._client.path not in ("", "/") else "/retrieve"
        self._target = path + self._client.query
        self.url = f"{self._client.base}{self._target}"
        self.index_id = index_id
        self._batch_size = batch_size
        self._known: Remembered[tuple[str, int, str], tuple[Hit, ...]] = Remembered(cache_size)
        self._again = functools.partial(
            HttpSearcher,
            url,
            timeout=timeout,
            max_retries=max_retries,
            cache_size=cache_size,
            index_id=index_id,
            batch_size=batch_size,
            max_response_bytes=max_response_bytes,
            headers=dict(headers),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    @property
    def fingerprint(self) -> str:
        """Address and index id: what stands behind the server is the server's business."""
        return f"{self.url}#{self.index_id}"

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Asks the server for what is not in the cache. See `Searcher.search`.

        Raises:
            EnvFault: If no usable answer came before the deadline.
        """
        if isinstance(queries, str):
            raise TypeError(f"queries must be a list of strings, got the one string {queries!r}; write [query]")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        deadline = self._client.deadline()
        found: dict[str, tuple[Hit, ...]] = {}
        for query in queries:
            hits = self._known.get((query, k, self.index_id))
            if hits is not None:
                found[query] = hits
        missing = list(dict.fromkeys(query for query in queries if query not in found))
        for start in range(0, len(missing), self._batch_size):
            batch = missing[start : start + self._batch_size]
            answers = self._ask(batch, k, deadline)
            for query, hits in zip(batch, answers, strict=True):
                found[query] = hits
                self._known.put((query, k, self.index_id), hits)
        return [list(found[query]) for query in queries]

    def close(self) -> None:
        """Closes the connections that are kept open. The searcher can be used again afterwards."""
        self._client.close()

    def _ask(self, batch: Sequence[str], k: int, deadline: float) -> list[tuple[Hit, ...]]:
        """One batch, with retries."""
        body = json.dumps({"queries": list(batch), "topk": k, "return_scores": True}).encode("ascii")
        return self._client.ask(
            "POST",
            self._target,
            body,
            lambda content: _read_result(content, len(batch), k),
            deadline=deadline,
            contract="/retrieve contract",
        )


def _read_result(content: bytes, queries: int, k: int) -> list[tuple[Hit, ...]]:
    """Checks an answer and takes its hits, at most `k` for each query.

    Raises:
        ValueError: Saying what is wrong with it.
    """
    answer = parse_json(content)
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, list) or not all(isinstance(hits, list) for hits in result):
        raise ValueError('it should be an object whose "result" is a list of lists')
    if len(result) != queries:
        raise ValueError(f"{len(result)} lists of hits for {queries} queries")
    return [tuple(_read_hit(hit) for hit in hits[:k]) for hits in result]


def _read_hit(hit: Any) -> Hit:
    document = hit.get("document") if isinstance(hit, dict) else None
    if not isinstance(document, dict):
        raise ValueError('a hit should be {"document": {...}, "score": number}')
    score = hit.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise ValueError(f"a score should be a finite number, not {score!r:.100}")
    name = document.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ValueError(f"a document's id should be a string or a whole number, not {name!r:.100}")
    title, text = document.get("title"), document.get("text")
    if not (isinstance(title, str) and isinstance(text, str)):
        contents = document.get("contents")
        if not isinstance(contents, str):
            raise ValueError('a document should have its text in "contents"')
        title, text = split_contents(contents)
    return Hit(Document(str(name), title, text), float(score))
