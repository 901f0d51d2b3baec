"""Serves any `Searcher` over HTTP by the `/retrieve` contract (see `http` for its form), for many rollout workers to share one index.

`POST /retrieve` answers queries, `GET /health` says that the server lives and what it serves. Each connection has a thread, and one more thread
does the searching: requests that arrive while it is busy are searched together in one call. Requests are checked, and limits hold on body, number
of queries and hits. It listens on this machine alone unless told otherwise; it has no authorisation, so put one in front of it before it
faces a network.

    with serve(index) as server:
        HttpSearcher(server.url).search(["who wrote it"], 3)
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import Any

from agent_gym.core import EnvFault
from agent_gym.search.serving import JsonHandler, JsonServer, Refused
from agent_gym.search.types import Hit, Searcher, join_contents

__all__ = ["SearchServer", "serve"]

_log = logging.getLogger(__name__)


class SearchServer(JsonServer):
    """A running or runnable server. The port is taken at construction, so `url` is known before it answers."""

    def __init__(
        self,
        searcher: Searcher,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_body_bytes: int = 4 << 20,
        max_queries: int = 1024,
        max_k: int = 1000,
    ) -> None:
        """Takes the port.

        Args:
            searcher: What to serve.
            host: The address to listen on.
            port: 0 takes a free one.
            max_body_bytes: A longer request is refused.
            max_queries: A request with more queries is refused.
            max_k: A request for more hits per query is refused.

        Raises:
            OSError: If the port is taken.
        """
        self._batcher = _Batcher(searcher)
        try:
            super().__init__(_Handler, _Content(self._batcher, searcher, max_body_bytes, max_queries, max_k), host, port)
        except OSError:
            self._batcher.close()
            raise

    @property
    def url(self) -> str:
        """Where queries are posted to."""
        return f"{self.base}/retrieve"

    def _release(self) -> None:
        """Ends the search thread; requests that wait are answered 503."""
        self._batcher.close()


def serve(searcher: Searcher, host: str = "127.0.0.1", port: int = 0, **limits: int) -> SearchServer:
    """A server for `with`, which has `url`, or, by `serve(...).run()`, one that blocks.

    Args:
        searcher: What to serve.
        host: The address to listen on; this machine alone by default.
        port: 0 takes a free one.
        **limits: `max_body_bytes`, `max_queries`, `max_k` of `SearchServer`.

    Returns:
        The server, which answers nobody until it is entered or run.
    """
    return SearchServer(searcher, host, port, **limits)


class _Batcher:
    """Searches in one thread, all waiting requests with the same `k` in one call."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        self._waiting: queue.SimpleQueue[tuple[list[str], int, Future[list[list[Hit]]]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="agent-gym-search-batches", daemon=True)
        self._thread.start()

    def search(self, queries: list[str], k: int) -> list[list[Hit]]:
        """Waits for the result; raises what the searcher raised, or CancelledError when the server closes."""
        future: Future[list[list[Hit]]] = Future()
        with self._lock:
            if self._closed:
                raise CancelledError
            self._waiting.put((queries, k, future))
        return future.result()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            requests = [request for request in batch if request is not None]
            if None in batch:
                for _, _, future in requests:
                    future.cancel()
                return
            for k in dict.fromkeys(k for _, k, _ in requests):
                self._answer([(queries, future) for queries, wanted, future in requests if wanted == k], k)

    def _answer(self, requests: Sequence[tuple[list[str], Future[list[list[Hit]]]]], k: int) -> None:
        try:
            together = [query for queries, _ in requests for query in queries]
            results = self._searcher.search(together, k)
            if len(results) != len(together):
                raise RuntimeError(f"{type(self._searcher).__name__} gave {len(results)} results for {len(together)} queries")
        except Exception as error:  # noqa: BLE001 - handed to the requests
            if len(requests) == 1:
                requests[0][1].set_exception(error)
            else:  # only the request that is at fault shall fail
                for request in requests:
                    self._answer([request], k)
            return
        start = 0
        for queries, future in requests:
            future.set_result(results[start : start + len(queries)])
            start += len(queries)


@dataclass(frozen=True)
class _Content:
    batcher: _Batcher
    searcher: Searcher
    max_body_bytes: int
    max_queries: int
    max_k: int


class _Handler(JsonHandler):
    @property
    def _content(self) -> _Content:
        content: _Content = self.server.content
        return content

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/health":
            self.reply(200, {"status": "ok", "fingerprint": self._content.searcher.fingerprint})
        else:
            self.fail(Refused(404, "there are POST /retrieve and GET /health"))

    def do_POST(self) -> None:
        try:
            if self.path.partition("?")[0] != "/retrieve":
                raise Refused(404, "there are POST /retrieve and GET /health")
            queries, k, with_scores = self._request()
        except Refused as refusal:
            self.fail(refusal)
            return
        try:
            results = self._content.batcher.search(queries, k)
        except (EnvFault, CancelledError) as error:
            self.fail(Refused(503, f"the search engine is not available: {error}"))
        except Exception as error:  # noqa: BLE001 - a search engine may raise anything; the server stays up
            _log.warning("the search engine failed", exc_info=True)
            self.fail(Refused(500, f"the search engine failed: {type(error).__name__}"))
        else:
            self.reply(200, {"result": [[_as_json(hit, with_scores) for hit in hits] for hits in results]})

    def _request(self) -> tuple[list[str], int, bool]:
        """Reads and checks a request: its queries, hits per query, and whether scores are asked for."""
        if "Transfer-Encoding" in self.headers or not (length := self.headers.get("Content-Length", "")).isdecimal():
            raise Refused(411, "send the body in one piece with its Content-Length")
        if int(length[:20]) > self._content.max_body_bytes:
            raise Refused(413, f"the body has {length[:20]} bytes, at most {self._content.max_body_bytes} are taken")
        body = self.rfile.read(int(length))
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the body is no JSON: {error}") from error
        if not isinstance(request, dict):
            raise Refused(400, 'the body should be an object {"queries": [...], "topk": 3, "return_scores": true}')
        queries = request.get("queries")
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise Refused(400, '"queries" should be a list of strings')
        if len(queries) > self._content.max_queries:
            raise Refused(400, f'"queries" has {len(queries)} entries, at most {self._content.max_queries} are taken')
        k = 3 if request.get("topk") is None else request["topk"]
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= self._content.max_k:
            raise Refused(400, f'"topk" should be a whole number from 1 to {self._content.max_k}, not {k!r:.100}')
        with_scores = False if request.get("return_scores") is None else request["return_scores"]
        if not isinstance(with_scores, bool):
            raise Refused(400, f'"return_scores" should be true or false, not {with_scores!r:.100}')
        return queries, k, with_scores


def _as_json(hit: Hit, with_score: bool) -> dict[str, Any]:
    document = hit.document
    content = {
        "id": document.id,
        "contents": join_contents(document.title, document.text),
        "title": document.title,
        "text": document.text,
    }
    return {"document": content, "score": hit.score} if with_score else content
