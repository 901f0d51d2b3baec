"""`JsonClient`: asks an HTTP server of somebody's for JSON, within one deadline, and believes nothing that was not checked.

A stuck server must not stall a rollout, and a broken one must not pay or punish the policy. So whatever is asked has one deadline over everything
that is done for it, at most two retries, and ends with an answer that `read` accepted or with `EnvFault`. Only the standard library is used; proxies
of the environment are ignored, redirects are not followed. The clients of search servers (`http`) and of paper servers share it.
"""

from __future__ import annotations

import contextlib
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
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from agent_gym.core import EnvFault, EnvTimeout

__all__ = ["Cancellation", "JsonClient", "Remembered", "parse_json"]

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_RETRIED = frozenset({429, 502, 503, 504})
_FIRST_DELAY = 0.2
"""Seconds before the first retry; doubled for each further one, and scattered by half."""


class Remembered(Generic[K, T]):
    """The answers asked for last, the least recently used forgotten first. Safe to use from several threads."""

    def __init__(self, size: int) -> None:
        """Makes an empty memory.

        Args:
            size: At most so many answers; 0 remembers none.

        Raises:
            ValueError: If the size is negative.
        """
        if size < 0:
            raise ValueError(f"cache_size must be at least 0, got {size}")
        self._size = size
        self._known: OrderedDict[K, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> T | None:
        """The answer under a key, or None.

        Args:
            key: As given to `put`.

        Returns:
            The answer, which counts as used just now.
        """
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def put(self, key: K, value: T) -> None:
        """Remembers an answer.

        Args:
            key: Whatever can be hashed.
            value: The answer; where there are too many, the one that was not used for the longest time goes.
        """
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            while len(self._known) > self._size:
                self._known.popitem(last=False)


class Cancellation:
    """Breaks off a request of `JsonClient.ask` from another thread: its connection is shut, by which the server learns of it, and `ask` ends at once."""

    def __init__(self) -> None:
        self.cancelled = False
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    def cancel(self) -> None:
        """Break the request off, or the next one where none is under way."""
        with self._lock:
            self.cancelled = True
            if self._connection is not None:
                self._connection.shut()

    def watch(self, connection: _Connection | None) -> None:
        """Say which connection the request uses now; None when it is over.

        Args:
            connection: Closed when the call is cancelled.
        """
        with self._lock:
            self._connection = connection


class JsonClient:
    """Sends requests to one server. Safe to use from several threads; connections are kept open and shared.

    Attributes:
        base: Scheme, host and port of the server, without a path.
        path: Of the address that was given; empty where it has none.
        query: Of the address, with its question mark; empty where it has none.
        timeout: Seconds for one call, over all that it asks for.
    """

    def __init__(
        self,
        url: str,
        *,
        what: str = "search server",
        timeout: float = 10.0,
        max_retries: int = 2,
        max_response_bytes: int = 64 << 20,
        headers: Mapping[str, str] = MappingProxyType({}),
        example: str = "http://127.0.0.1:8000/retrieve",
    ) -> None:
        """Makes a client; nothing is sent yet.

        Args:
            url: Of the server, `http` or `https`.
            what: The server is, for error texts.
            timeout: See the class. (Looking up a host name has the system's own limit.)
            max_retries: 0 to 2; after failed connections and the answers 429, 502, 503 and 504.
            max_response_bytes: A longer answer is a fault.
            headers: Sent with every request, for example an authorisation.
            example: Of an address, for the error text.

        Raises:
            ValueError: For an address or a number that cannot be used.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"url must look like {example}, got {url!r} ({error})") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must look like {example}, got {url!r}")
        if not (math.isfinite(timeout) and timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        if max_retries not in (0, 1, 2):
            raise ValueError(f"max_retries must be 0, 1 or 2, got {max_retries!r}")
        self._server = (parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80))
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.base = f"{parts.scheme}://{host}:{self._server[2]}"
        self.path = parts.path
        self.query = f"?{parts.query}" if parts.query else ""
        self.timeout = timeout
        self._what, self._max_retries, self._max_bytes = what, max_retries, max_response_bytes
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._process = os.getpid()
        self._random = random.Random()  # only scatters the delays; never the global generator

    def deadline(self) -> float:
        """The `time.monotonic()` at which a call that begins now must have ended.

        Returns:
            Seconds of that clock.
        """
        return time.monotonic() + self.timeout

    def ask(
        self,
        method: str,
        target: str,
        body: bytes | None,
        read: Callable[[bytes], T],
        *,
        deadline: float,
        contract: str,
        accepted: Mapping[int, Callable[[str], T]] = MappingProxyType({}),
        cancellation: Cancellation | None = None,
        watch: Callable[[int, Mapping[str, str], bytes], None] | None = None,
    ) -> T:
        """Sends a request, with retries, and reads the answer.

        Args:
            method: "GET" or "POST".
            target: Path and query.
            body: Of the request, or None.
            read: Makes the result of the answer's body; raises ValueError where it is not what was agreed on.
            deadline: See `deadline`.
            contract: That the answer should be of, for the error text.
            accepted: For a status that is no failure of the server's: makes the result of a line that says what it answered, or raises.
            cancellation: By which somebody may break the request off.
            watch: Told of every answer before it is judged: status, headers by their names in lower case, body. What it raises goes to the caller.

        Returns:
            What `read` made.

        Raises:
            EnvFault: If no usable answer came before the deadline, or the request was broken off.
        """
        tries = 0
        while True:
            tries += 1
            reply = self._try(method, target, body, deadline, cancellation or Cancellation(), watch)
            if isinstance(reply, bytes):
                try:
                    return read(reply)
                except (ValueError, RecursionError, OverflowError) as error:
                    reply = _Failure(f"its answer is not of the {contract}: {error}")
            elif reply.status in accepted:
                return accepted[reply.status](reply.reason)
            delay = _FIRST_DELAY * 2 ** (tries - 1) * self._random.uniform(0.5, 1.5)
            if not reply.retry or tries > self._max_retries or time.monotonic() + delay >= deadline:
                shown = target.partition("?")[0]
                raise (EnvTimeout if reply.timeout else EnvFault)(
                    f"the {self._what} {self.base}{shown} failed ({tries} of {1 + self._max_retries} tries, {self.timeout:g} s in all): "
                    f"{reply.reason}; see that it runs and is reachable"
                )
            time.sleep(delay)

    def close(self) -> None:
        """Closes the connections that are kept open. The client can be used again afterwards."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _try(
        self,
        method: str,
        target: str,
        body: bytes | None,
        deadline: float,
        cancellation: Cancellation,
        watch: Callable[[int, Mapping[str, str], bytes], None] | None,
    ) -> bytes | _Failure:
        """One request; a connection that the server closed while it was idle does not count."""
        while True:
            connection, fresh = self._connection()
            response: http.client.HTTPResponse | None = None
            try:
                connection.deadline = deadline
                connection.cancellation = cancellation
                cancellation.watch(connection)
                connection.request(method, target, body, self._headers)
                response = connection.getresponse()
                content = _read_body(response, self._max_bytes, connection)
            except (http.client.HTTPException, OSError, ValueError) as error:
                cancellation.watch(None)
                _drop(connection, response)
                if cancellation.cancelled:
                    return _Failure("the request was broken off")
                if not fresh and isinstance(error, (ConnectionError, ssl.SSLEOFError)):
                    continue
                return _failure_of(error)
            cancellation.watch(None)
            if response.will_close or content is None:
                _drop(connection, response)
            else:
                self._keep(connection)
            if content is None:
                return _Failure(f"its answer is longer than {self._max_bytes} bytes")
            if watch is not None:
                watch(response.status, {name.lower(): value for name, value in response.getheaders()}, content)
            if response.status != 200:
                start = content[:200].decode("utf-8", "replace").strip()
                reason = f"HTTP status {response.status} {response.reason}: {start!r}"
                return _Failure(reason, retry=response.status in _RETRIED, status=response.status)
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


def parse_json(content: bytes) -> Any:
    """The value of a JSON text.

    Args:
        content: UTF-8, UTF-16 or UTF-32.

    Returns:
        Plain values.

    Raises:
        ValueError: If it is none.
    """
    try:
        return json.loads(content)
    except ValueError as error:
        raise ValueError(f"no JSON ({error})") from error


@dataclass(frozen=True)
class _Failure:
    reason: str
    retry: bool = False
    status: int = 0
    timeout: bool = False


def _failure_of(error: Exception) -> _Failure:
    if isinstance(error, TimeoutError):
        return _Failure("no complete answer before the deadline", timeout=True)
    if isinstance(error, http.client.IncompleteRead):
        return _Failure(f"its answer broke off after {len(error.partial)} bytes")
    return _Failure(f"{type(error).__name__}: {error}", retry=isinstance(error, (ConnectionError, ssl.SSLEOFError)))


class _Connection(http.client.HTTPConnection):
    """A connection whose every wait ends at one deadline, however slowly the other side drips."""

    def __init__(self, scheme: str, host: str, port: int) -> None:
        super().__init__(host, port)
        self.deadline = math.inf
        self.cancellation = Cancellation()
        self._scheme = scheme
        self._socket: _DeadlineSocket | None = None

    def shut(self) -> None:
        """End whatever wait another thread is in."""
        if self._socket is not None:  # also that of an answer that is the connection's last, which has left `sock`
            self._socket.shut()

    def remaining(self) -> float:
        """Seconds to the deadline; raises TimeoutError behind it, and ConnectionAbortedError when the request was broken off."""
        if self.cancellation.cancelled:
            raise ConnectionAbortedError("the request was broken off")
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
                self.sock = self._socket = _DeadlineSocket(plain, self)
                return
        if isinstance(failure, ConnectionError):
            raise failure
        raise ConnectionError(str(failure)) from failure


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

    def shut(self) -> None:
        with contextlib.suppress(OSError):  # it may be closed already
            self._plain.shutdown(socket.SHUT_RDWR)

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
