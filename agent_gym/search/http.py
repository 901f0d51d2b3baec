r"""`HttpSearcher`: a client of the `/retrieve` contract that retrieval servers for search agents share.

    POST /retrieve {"queries": ["..."], "topk": 3, "return_scores": true}
    -> {"result": [[{"document": {"id": "7", "contents": "\"Title\"\ntext"}, "score": 1.5}]]}

A stuck server must not stall a rollout, and a broken one must not pay or punish the policy. So a call to `search` has one deadline over
everything that it does, at most two retries, and it ends with results or with `EnvFault`; whatever a server sends is checked before it is
believed. Only the standard library is used; proxies of the environment are ignored, redirects are not followed.
"""

from __future__ import annotations

import functools
import http.client
import io
import json
import math
import os
import random
import socket
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from agent_gym.core import EnvFault
from agent_gym.search.types import Document, Hit, split_contents

__all__ = ["HttpSearcher", "exchange"]

_RETRIED = frozenset({429, 502, 503, 504})
_FIRST_DELAY = 0.2
"""Seconds before the first retry; doubled for each further one, and scattered by half."""


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
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must look like http://127.0.0.1:8000/retrieve, got {url!r}")
        if not (math.isfinite(timeout) and timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        if max_retries not in (0, 1, 2):
            raise ValueError(f"max_retries must be 0, 1 or 2, got {max_retries!r}")
        if cache_size < 0 or batch_size < 1:
            raise ValueError(f"cache_size must be at least 0 and batch_size at least 1, got {cache_size} and {batch_size}")
        path = parts.path if parts.path not in ("", "/") else "/retrieve"
        self._target = path + (f"?{parts.query}" if parts.query else "")
        self._server = (parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.url = f"{parts.scheme}://{host}:{self._server[2]}{self._target}"
        self.index_id = index_id
        self._timeout, self._max_retries, self._batch_size, self._max_bytes = timeout, max_retries, batch_size, max_response_bytes
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
        self._cache: OrderedDict[tuple[str, int, str], tuple[Hit, ...]] = OrderedDict()
        self._cache_size = cache_size
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._process = os.getpid()
        self._random = random.Random()  # only scatters the delays; never the global generator
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
        deadline = time.monotonic() + self._timeout
        found: dict[str, tuple[Hit, ...]] = {}
        with self._lock:
            for query in queries:
                hits = self._cache.get((query, k, self.index_id))
                if hits is not None:
                    self._cache.move_to_end((query, k, self.index_id))
                    found[query] = hits
        missing = list(dict.fromkeys(query for query in queries if query not in found))
        for start in range(0, len(missing), self._batch_size):
            batch = missing[start : start + self._batch_size]
            answers = self._ask(batch, k, deadline)
            found.update(zip(batch, answers, strict=True))
            self._remember(batch, k, answers)
        return [list(found[query]) for query in queries]

    def close(self) -> None:
        """Closes the connections that are kept open. The searcher can be used again afterwards."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _remember(self, batch: Sequence[str], k: int, answers: Sequence[tuple[Hit, ...]]) -> None:
        with self._lock:
            for query, hits in zip(batch, answers, strict=True):
                self._cache[query, k, self.index_id] = hits
                self._cache.move_to_end((query, k, self.index_id))
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)

    def _ask(self, batch: Sequence[str], k: int, deadline: float) -> list[tuple[Hit, ...]]:
        """One batch, with retries."""
        body = json.dumps({"queries": list(batch), "topk": k, "return_scores": True}).encode("ascii")
        tries = 0
        while True:
            tries += 1
            reply = self._try(body, deadline)
            if isinstance(reply, bytes):
                try:
                    return _read_result(reply, len(batch), k)
                except (ValueError, RecursionError, OverflowError) as error:
                    reply = _Failure(f"its answer is not of the /retrieve contract: {error}")
            delay = _FIRST_DELAY * 2 ** (tries - 1) * self._random.uniform(0.5, 1.5)
            if not reply.retry or tries > self._max_retries or time.monotonic() + delay >= deadline:
                raise EnvFault(
                    f"the search server {self.url} failed ({tries} of {1 + self._max_retries} tries, {self._timeout:g} s in all): "
                    f"{reply.reason}; see that it runs and is reachable"
                )
            time.sleep(delay)

    def _try(self, body: bytes, deadline: float) -> bytes | _Failure:
        """One request; a connection that the server closed while it was idle does not count."""
        while True:
            connection, fresh = self._connection()
            response: http.client.HTTPResponse | None = None
            try:
                connection.deadline = deadline
                connection.request("POST", self._target, body, self._headers)
                response = connection.getresponse()
                content = _read_body(response, self._max_bytes, connection)
            except TimeoutError:
                _drop(connection, response)
                return _Failure("no complete answer before the deadline")
            except http.client.IncompleteRead as error:
                _drop(connection, response)
                return _Failure(f"its answer broke off after {len(error.partial)} bytes")
            except (ConnectionError, ssl.SSLEOFError) as error:
                _drop(connection, response)
                if fresh:
                    return _Failure(f"{type(error).__name__}: {error}", retry=True)
                continue
            except (http.client.HTTPException, OSError, ValueError) as error:
                _drop(connection, response)
                return _Failure(f"{type(error).__name__}: {error}")
            if response.will_close or content is None:
                _drop(connection, response)
            else:
                self._keep(connection)
            if content is None:
                return _Failure(f"its answer is longer than {self._max_bytes} bytes")
            if response.status != 200:
                start = content[:200].decode("utf-8", "replace").strip()
                return _Failure(f"HTTP status {response.status} {response.reason}: {start!r}", retry=response.status in _RETRIED)
            return content

    def _connection(self) -> tuple[_Connection, bool]:
        with self._lock:
            if self._process != os.getpid():  # a fork must not share its parent's connections
                self._process, self._idle = os.getpid(), []
            if self._idle:
                return self._idle.pop(), False
        return _Connection(*self._server), True

    def _keep(self, connection: _Connection) -> None:
        with self._lock:
            self._idle.append(connection)


@dataclass(frozen=True)
class _Failure:
    reason: str
    retry: bool = False


class _Connection(http.client.HTTPConnection):
    """A connection whose every wait ends at one deadline, however slowly the other side drips."""

    def __init__(self, scheme: str, host: str, port: int) -> None:
        super().__init__(host, port)
        self.deadline = math.inf
        self._scheme = scheme

    def remaining(self) -> float:
        """Seconds to the deadline; raises TimeoutError behind it."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the deadline is over")
        return seconds

    def connect(self) -> None:
        failure: OSError = ConnectionError(f"{self.host} has no address")
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            raise ConnectionError(f"cannot find the host {self.host}: {error}") from error
        for family, kind, protocol, _, address in addresses:
            plain = socket.socket(family, kind, protocol)
            try:
                plain.settimeout(self.remaining())
                plain.connect(address)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._scheme == "https":
                    plain = ssl.create_default_context().wrap_socket(plain, server_hostname=self.host)
            except TimeoutError:
                plain.close()
                raise
            except OSError as error:
                plain.close()
                failure = error
            else:
                self.sock = _DeadlineSocket(plain, self)
                return
        if isinstance(failure, ConnectionError):
            raise failure
        raise ConnectionError(str(failure)) from failure


def exchange(
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    timeout: float = 10.0,
    max_response_bytes: int = 64 << 20,
) -> tuple[int, bytes]:
    """Asks a server once, on a connection of its own, with one deadline over all of it. Proxies are ignored, redirects are not followed.

    Args:
        url: `http://` or `https://`.
        body: posted; None gets.
        headers: sent with it.
        timeout: Seconds in all.
        max_response_bytes: A longer answer is an error.

    Returns:
        The HTTP status and the answer's content.

    Raises:
        ValueError: for an address of another form, or a content that is too long.
        OSError: If the server is out of reach, breaks off or is too slow (TimeoutError).
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"url must look like http://127.0.0.1:8000/path, got {url!r}")
    connection = _Connection(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
    connection.deadline = time.monotonic() + timeout
    response: http.client.HTTPResponse | None = None
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET" if body is None else "POST", target, body, dict(headers))
        response = connection.getresponse()
        content = _read_body(response, max_response_bytes, connection)
    except http.client.HTTPException as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    finally:
        _drop(connection, response)
    if content is None:
        raise ValueError(f"the answer is longer than {max_response_bytes} bytes")
    return response.status, content


def _drop(connection: _Connection, response: http.client.HTTPResponse | None) -> None:
    """Close a connection and the answer that is read from it: either may hold the socket."""
    if response is not None:
        response.close()
    connection.close()


class _DeadlineSocket:
    """What `http.client` needs of a socket, with the time limit set anew before each wait.

    `http.client` closes the socket of an answer that is the connection's last (HTTP/1.0, `Connection: close`) before it has read the body, so a
    socket with an open reader is closed with its reader.
    """

    def __init__(self, plain: socket.socket, connection: _Connection) -> None:
        self._plain, self._connection = plain, connection
        self._readers = 0
        self._closed = False

    def sendall(self, data: bytes) -> None:
        self._plain.settimeout(self._connection.remaining())
        self._plain.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        self._readers += 1
        return io.BufferedReader(_DeadlineReader(self._plain, self._connection, self._reader_closed))

    def close(self) -> None:
        self._closed = True
        if not self._readers:
            self._plain.close()

    def _reader_closed(self) -> None:
        self._readers -= 1
        if self._closed:
            self.close()


class _DeadlineReader(io.RawIOBase):
    def __init__(self, plain: socket.socket, connection: _Connection, closed: Callable[[], None]) -> None:
        self._plain, self._connection, self._tell = plain, connection, closed

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._tell()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._plain.settimeout(self._connection.remaining())
        return self._plain.recv_into(buffer)


def _read_body(response: http.client.HTTPResponse, limit: int, connection: _Connection) -> bytes | None:
    """The body, or None where it is longer than the limit."""
    if response.length is not None and response.length > limit:
        return None
    content = response.read(limit + 1)
    if len(content) > limit:
        return None
    if response.length:  # a length was promised and the body ended before it
        raise http.client.IncompleteRead(content, response.length)
    connection.remaining()
    return content


def _read_result(content: bytes, queries: int, k: int) -> list[tuple[Hit, ...]]:
    """Checks an answer and takes its hits, at most `k` for each query.

    Raises:
        ValueError: Saying what is wrong with it.
    """
    try:
        answer = json.loads(content)
    except ValueError as error:
        raise ValueError(f"no JSON ({error})") from error
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
