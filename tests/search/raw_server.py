"""A server that misbehaves on purpose: real sockets on this machine, each connection handed to a function."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass
class RawServer:
    """Counts connections; `closing` is set when the test is over, for handlers that hang."""

    url: str
    closing: threading.Event = field(default_factory=threading.Event)
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)


def read_request(connection: socket.socket) -> bytes:
    """One whole request with its body, or nothing when the client left."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return b""
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(65536)
    return body


def response(content: bytes | object, status: str = "200 OK", length: int | None = None, extra: str = "") -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n{extra}\r\n".encode() + body


@contextlib.contextmanager
def raw_server(handle: Callable[[socket.socket, RawServer], None]) -> Iterator[RawServer]:
    """Serves until the block ends. `handle` gets each connection, which is closed behind it."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = RawServer(f"http://127.0.0.1:{listener.getsockname()[1]}/retrieve")
    threads = []

    def work(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            handle(connection, server)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                server.connections += 1
                threads.append(threading.Thread(target=work, args=(connection,), daemon=True))
                threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield server
    finally:
        server.closing.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in [acceptor, *threads]:
            thread.join(20)


def answering(*replies: bytes) -> Callable[[socket.socket, RawServer], None]:
    """Answers request after request, over all connections, with these replies; the last one for ever. Closes each connection after its reply."""

    def handle(connection: socket.socket, server: RawServer) -> None:
        body = read_request(connection)
        if body:
            server.requests.append(body)
            connection.sendall(replies[min(len(server.requests), len(replies)) - 1])

    return handle
