"""A server that says what a test wants, on a free port of this machine."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class OddServer:
    """Its address, what was asked of it (path, body), and whether the test is over, for answers that never come."""

    url: str
    asked: list[tuple[str, bytes]] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)


Answer = Callable[[BaseHTTPRequestHandler, OddServer], None]


def send(handler: BaseHTTPRequestHandler, content: Any, status: int = 200) -> None:
    """Answer with JSON, or with bytes as they are."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextlib.contextmanager
def odd_server(answer: Answer) -> Iterator[OddServer]:
    """Serve until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.asked.append((self.path, body))
            answer(self, seen)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.block_on_close = False
    server.handle_error = lambda *args: None  # type: ignore[method-assign]
    seen = OddServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.closing.set()
        server.shutdown()
        server.server_close()
        thread.join(10)
