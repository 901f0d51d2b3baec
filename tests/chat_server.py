"""A stand-in for servers of OpenAI's chat API, on this machine. It is a fake, and says nothing about any real server.

It refuses every request that is not of the documented form: unknown members, wrong types, messages with other members than role and content, roles out of order, a
wrong key. What it says is a function of the test's. `faults` is a queue: each chat request takes one and is answered by it; "dead" closes the connection, "hang" never
answers, "garbage" is no JSON.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from http_thread import HttpThread

Reply = Callable[[list[dict[str, str]]], str | dict[str, Any]]
KNOWN = {
    "model": str,
    "messages": list,
    "temperature": (int, float),
    "top_p": (int, float),
    "max_tokens": int,
    "max_completion_tokens": int,
    "seed": int,
    "reasoning_effort": str,
}


@dataclass
class Fault:
    """An answer that is none: status, headers, and the body's error message."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "out of order"
    code: str | None = None


def mistake(request: Any, model: str) -> str:
    """What is not of the documented form; nothing where all is."""
    if not isinstance(request, dict) or not {"model", "messages"} <= set(request):
        return "model and messages are wanted"
    for name, value in request.items():
        if name not in KNOWN:
            return f"Unrecognized request argument supplied: {name}"
        if not isinstance(value, KNOWN[name]) or isinstance(value, bool):
            return f"{name} is of the wrong type"
    if request["model"] != model:
        return f"the model {request['model']} does not exist"
    if not 0 <= request.get("temperature", 1) <= 2 or request.get("max_tokens", 1) < 1:
        return "out of range"
    before = ""
    for place, one in enumerate(request["messages"]):
        if set(one) != {"role", "content"} or not isinstance(one["content"], str):
            return f"messages[{place}] should have role and content, not {sorted(one)}"
        allowed = {"": ("system", "user"), "system": ("user",), "user": ("assistant",), "assistant": ("user",)}[before]
        if one["role"] not in allowed:
            return f"messages[{place}]: {one['role']!r} behind {before!r}"
        before = one["role"]
    return "" if before == "user" else f"the last message is of {before!r}"


class ChatStandIn:
    """The server. `asked` holds the requests that were of the right form, `refused` what was wrong with the others."""

    def __init__(self, reply: Reply, *, key: str = "", model: str = "stand-in", usage: bool = True) -> None:
        self.reply, self.key, self.model, self.usage = reply, key, model, usage
        self.faults: deque[Fault | str] = deque()
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.times: list[float] = []
        self.most_at_once = self._at_once = 0
        self.slow = 0.0
        self.closing = threading.Event()
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"owner": self})
        self.http = HttpThread(handler)
        self.url = f"{self.http.url}/v1"

    def close(self) -> None:
        self.closing.set()
        self.http.close()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.times.append(time.monotonic())
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            yield
        finally:
            with self._lock:
                self._at_once -= 1

    def completion(self, request: dict[str, Any]) -> dict[str, Any]:
        said = self.reply(request["messages"])
        given = {"content": said} if isinstance(said, str) else dict(said)
        reason = given.pop("finish_reason", "tool_calls" if given.get("tool_calls") else "stop")
        words = sum(len(one["content"].split()) for one in request["messages"])
        content = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": self.model,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": None, **given}, "finish_reason": reason}],
        }
        if self.usage:
            spoken = len(str(given.get("content") or "").split())
            content["usage"] = {
                "prompt_tokens": words,
                "completion_tokens": spoken,
                "total_tokens": words + spoken,
                "prompt_tokens_details": {"cached_tokens": words // 2},
            }
        return content


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ChatStandIn

    def log_message(self, *_: object) -> None:
        pass

    def send(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {**self.owner.headers, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the client may be gone
            self.wfile.write(body)

    def fail(self, status: int, message: str, headers: Mapping[str, str] | None = None, code: str | None = None) -> None:
        self.send(status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}, headers)

    def locked(self) -> bool:
        wanted = f"Bearer {self.owner.key}" if self.owner.key else None
        given = self.headers.get("Authorization")
        if wanted is not None and given != wanted:
            self.fail(401, f"Incorrect API key provided: {given}", code="invalid_api_key")
            return True
        return False

    def do_GET(self) -> None:
        if self.locked():
            return
        if self.path != "/v1/models":
            self.fail(404, "no such address")
            return
        self.send(200, {"object": "list", "data": [{"id": self.owner.model, "object": "model"}]})

    def do_POST(self) -> None:
        owner = self.owner
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.locked():
            return
        if self.path != "/v1/chat/completions":
            self.fail(404, "no such address")
            return
        with owner.counted():
            wrong = mistake(request, owner.model)
            if wrong:
                owner.refused.append(wrong)
                self.fail(404 if "does not exist" in wrong else 400, wrong)
                return
            owner.asked.append(request)
            if owner.slow:
                owner.closing.wait(owner.slow)
            try:
                fault = owner.faults.popleft() if owner.faults else None
            except IndexError:
                fault = None
            if isinstance(fault, Fault):
                self.fail(fault.status, fault.message, fault.headers, fault.code)
            elif fault == "dead":
                self.close_connection = True
                self.connection.close()
            elif fault == "hang":
                owner.closing.wait(30)
            elif fault == "garbage":
                self.send(200, b"<html>hello</html>")
            elif fault is not None:
                self.send(200, json.loads(fault))
            else:
                self.send(200, owner.completion(request))


@contextlib.contextmanager
def chat_server(reply: Reply, **settings: Any) -> Iterator[ChatStandIn]:
    """Serve until the block ends."""
    server = ChatStandIn(reply, **settings)
    try:
        yield server
    finally:
        server.close()
