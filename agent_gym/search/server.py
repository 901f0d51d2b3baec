"""Serves any `Searcher` over HTTP by the `/retrieve` contract (see `http` for its form), for many rollout workers to share one index.

`POST /retrieve` answers queries, `GET /health` says that the server lives and what it serves. Each connection has a thread, and one more thread
does the searching: requests that arrive while it is busy are searched together in one call. Requests are checked, and limits hold on body, number
of queries and hits. It listens on this machine alone unless told otherwise; it has no authorisation, so put one in front of it before it
faces a network.

    with serve(index) as server:
        HttpSearcher(server.url).search(["who wrote it"], 3)
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import socketserver
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar

from agent_gym.core import EnvFault
from agent_gym.search.types import Hit, Searcher, join_contents

__all__ = ["SearchServer", "serve"]

_log = logging.getLogger(__name__)


class SearchServer:
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
            self._server = _Server((host, port), self._batcher, searcher, max_body_bytes, max_queries, max_k)
        except OSError as error:
            self._batcher.close()
            raise OSError(
                error.errno, f"cannot serve on {host}:{port}: {error.strerror}; take another port, or 0 for a free one"
            ) from error
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Where queries are posted to."""
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/retrieve"

    def __enter__(self) -> SearchServer:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="agent-gym-search", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def run(self) -> None:
        """Serves in this thread until it is interrupted (Ctrl-C), then closes."""
        try:
            self._server.serve_forever()
        except KeyboardInterrupt:
            _log.info("interrupted, closing")
        finally:
            self.close()

    def close(self) -> None:
        """Stops serving and gives the port back. Requests that wait are answered 503. May be called twice."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._batcher.close()
        self._server.server_close()
        self._server.close_connections()


def serve(searcher: Searcher, host: str = "127.0.0.1", port: int = 0, **limits: int) -> SearchServer:
    """A server for `with`, which has `url`, or, by `serve(...).run()`, one that blocks.

    Args:
        searcher: What to serve.
        host: The address to listen on; this machine alone by default.
        port: 0 takes a free one.
        **limits: `max_body_bytes`, `max_queries`, `max_k` of `SearchServer`.
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


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(
        self, address: tuple[str, int], batcher: _Batcher, searcher: Searcher, max_body_bytes: int, max_queries: int, max_k: int
    ) -> None:
        self.batcher, self.searcher = batcher, searcher
        self.max_body_bytes, self.max_queries, self.max_k = max_body_bytes, max_queries, max_k
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Ends connections that clients keep open, so that their threads end."""
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        # The base class looks up the host's name here, which can take seconds without a network.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("the connection from %s broke", client_address, exc_info=True)


class _Refused(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "agent-gym"
    sys_version = ""
    timeout: ClassVar[float] = 60.0
    """Seconds that a connection may stay silent."""
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/health":
            self._reply(200, {"status": "ok", "fingerprint": self.server.searcher.fingerprint})
        else:
            self._fail(_Refused(404, "there are POST /retrieve and GET /health"))

    def do_POST(self) -> None:
        try:
            if self.path.partition("?")[0] != "/retrieve":
                raise _Refused(404, "there are POST /retrieve and GET /health")
            queries, k, with_scores = self._request()
        except _Refused as refusal:
            self._fail(refusal)
            return
        try:
            results = self.server.batcher.search(queries, k)
        except (EnvFault, CancelledError) as error:
            self._fail(_Refused(503, f"the search engine is not available: {error}"))
        except Exception as error:  # noqa: BLE001 - a search engine may raise anything; the server stays up
            _log.warning("the search engine failed", exc_info=True)
            self._fail(_Refused(500, f"the search engine failed: {type(error).__name__}"))
        else:
            self._reply(200, {"result": [[_as_json(hit, with_scores) for hit in hits] for hits in results]})

    def _request(self) -> tuple[list[str], int, bool]:
        """Reads and checks a request: its queries, hits per query, and whether scores are asked for."""
        if "Transfer-Encoding" in self.headers or not (length := self.headers.get("Content-Length", "")).isdecimal():
            raise _Refused(411, "send the body in one piece with its Content-Length")
        if int(length[:20]) > self.server.max_body_bytes:
            raise _Refused(413, f"the body has {length[:20]} bytes, at most {self.server.max_body_bytes} are taken")
        body = self.rfile.read(int(length))
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _Refused(400, f"the body is no JSON: {error}") from error
        if not isinstance(request, dict):
            raise _Refused(400, 'the body should be an object {"queries": [...], "topk": 3, "return_scores": true}')
        queries = request.get("queries")
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise _Refused(400, '"queries" should be a list of strings')
        if len(queries) > self.server.max_queries:
            raise _Refused(400, f'"queries" has {len(queries)} entries, at most {self.server.max_queries} are taken')
        k = 3 if request.get("topk") is None else request["topk"]
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= self.server.max_k:
            raise _Refused(400, f'"topk" should be a whole number from 1 to {self.server.max_k}, not {k!r:.100}')
        with_scores = False if request.get("return_scores") is None else request["return_scores"]
        if not isinstance(with_scores, bool):
            raise _Refused(400, f'"return_scores" should be true or false, not {with_scores!r:.100}')
        return queries, k, with_scores

    def _fail(self, refusal: _Refused) -> None:
        if refusal.status in (404, 411, 413):  # the body was not read, so the next request cannot be found behind it
            self.close_connection = True
        self._reply(refusal.status, {"error": str(refusal)})

    def _reply(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode("ascii")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug("%s %s", self.address_string(), format % args)


def _as_json(hit: Hit, with_score: bool) -> dict[str, Any]:
    document = hit.document
    content = {
        "id": document.id,
        "contents": join_contents(document.title, document.text),
        "title": document.title,
        "text": document.text,
    }
    return {"document": content, "score": hit.score} if with_score else content
