"""A judge that speaks OpenAI's chat API: a real server on this machine, whose verdict is whether the answer equals a reference."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def compare(shown: dict[str, Any]) -> str:
    """The judge's reply: what it was shown decides."""
    right = shown["answer"].strip().casefold() in [one.casefold() for one in shown["reference"]]
    return f"<think>SCORE: 0.5 perhaps?</think>The answer is {'right' if right else 'wrong'}.\nSCORE: {int(right)}"


@dataclass
class JudgeServer:
    """Where it listens, and what it was asked."""

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)


@contextlib.contextmanager
def judge_server(
    reply: Callable[[dict[str, Any]], str] = compare, *, fails: int = 0, status: int = 503, raw: bytes | None = None
) -> Iterator[JudgeServer]:
    """Serve until the block ends.

    Args:
        reply: makes the judge's words of the JSON object that it is shown.
        fails: so many requests are answered by `status` first.
        status: see `fails`.
        raw: the body of every answer, in place of a chat completion.
    """
    left = [fails]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def _send(self, content: object, code: int = 200) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._send({"data": [{"id": "the-judge"}]} if self.path == "/v1/models" else {}, 200 if self.path == "/v1/models" else 404)

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.asked.append({**request, "path": self.path})
            server.headers.append(dict(self.headers))
            if left[0] > 0:
                left[0] -= 1
                self._send({"error": "busy"}, status)
                return
            words = reply(json.loads(request["messages"][-1]["content"]))
            self._send({"choices": [{"message": {"role": "assistant", "content": words}}]} if raw is None else raw)

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server = JudgeServer(f"http://127.0.0.1:{listener.server_address[1]}/v1")
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
