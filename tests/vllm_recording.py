"""What was said between our client and a real vLLM server, kept in a file: the talk that is recorded, what records it, and what plays it back.

`make test-vllm` holds the file against the engine of that run; with `--record-vllm` it writes the file anew (`tests/recorded/`). The version of the
engine stands in the file. `tests/policies/test_vllm_recording.py` plays it back on every machine.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from http_thread import HttpThread

from agent_gym.chat import load_tokenizer
from agent_gym.policies import Sampling, VLLMPolicy
from agent_gym.policies.engine import EngineError
from agent_gym.trainers.teacher import ServerTeacher

FILE = Path(__file__).parent / "recorded" / "vllm.json"
NAMED_ANEW = ("request_id", "weights_path")
"""Members of a request that differ between two talks."""
PROMPTS = ([5, 6, 7], list(range(40, 110)), list(range(40, 110)))
SAMPLINGS = (
    Sampling(temperature=1.0, max_tokens=6, seed=1),
    Sampling(temperature=0.7, top_p=0.9, top_k=20, min_p=0.01, max_tokens=5, seed=2, stop_token_ids=(9, 10)),
    Sampling(temperature=0.0, max_tokens=4),
)
ROWS = ([5, 6, 7, 8], list(range(300, 312)))
_MESSAGE = re.compile(r'"message": ?"([^"]*)"')
MEMBERS = {"method", "target", "request", "status", "answer"}


def talk(url: str, context: int, weights: Path) -> list[Any]:
    """Have a policy and a teacher do all that they do with a server, one request behind the other.

    Args:
        url: of the server, or of what stands in front of it.
        context: the length of the server's context.
        weights: a folder that the server can read.

    Returns:
        What came of it: ids, log-probabilities, errors.
    """
    found: list[Any] = []
    policy = VLLMPolicy(url, seed=3, retries=0)

    def reply(prompt: list[int], sampling: Sampling) -> None:
        try:
            made = asyncio.run(policy.generate(prompt, sampling))
        except (ValueError, EngineError) as error:  # an id that the server refuses, an answer that is not to be believed
            told = _MESSAGE.search(str(error))
            found.append(f"{type(error).__name__}: {told[1] if told else error}")
            return
        assert made.logprobs is not None
        found.append([made.token_ids.tolist(), made.logprobs.tolist(), made.finish_reason, made.policy_version])

    for prompt, sampling in zip(PROMPTS, SAMPLINGS, strict=True):
        reply(prompt, sampling)
    reply([20] * (context - 4), Sampling(max_tokens=16, seed=4))  # the context is full behind four ids
    reply([5, 10**6], Sampling(max_tokens=2, seed=5))
    asyncio.run(policy.update_weights(weights, version=7))
    reply(PROMPTS[1], SAMPLINGS[0])  # its beginning was seen under the old weights
    policy.close()

    teacher = ServerTeacher(url, concurrency=1, retries=0)
    teacher.connect(load_tokenizer(None))
    for scores in teacher.score(ROWS):
        found.append([scores.logprobs.tolist(), scores.likeliest.tolist()])
    teacher.close()
    body = {"model": "tiny", "prompt": [20] * 10, "max_tokens": context, "seed": 0, "n": 1, "stream": False, "request_id": "too-long"}
    found.append(post(f"{url}/v1/completions", body)[0])  # what the policy never asks for: its sentence is read by `engine_http`
    found.append(post(f"{url}/nothing-is-here", {})[0])
    return found


def post(url: str, body: Any) -> tuple[int, bytes]:
    """POST JSON, or GET where there is none."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def nameless(value: Any) -> Any:
    """A request without what differs between two talks."""
    if isinstance(value, dict):
        return {key: key.upper() if key in NAMED_ANEW else nameless(one) for key, one in value.items()}
    return value


def shape_of(value: Any) -> Any:
    """The members of an answer and the kinds of their values. A list has the shapes of its members, a member named by a number is any number."""
    if isinstance(value, dict):
        return {re.sub(r"\d+$", "#", key): shape_of(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(shape_of(one), sort_keys=True) for one in value})
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return "number" if isinstance(value, (int, float)) else "text"


class _Between(BaseHTTPRequestHandler):
    """What recording and playing back share: one request at a time, in order."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answered(self, method: str, target: str, request: Any) -> tuple[int, bytes]:
        raise NotImplementedError

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, content = self.answered(method, self.path, json.loads(body) if body else None)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def recording(url: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Stand in front of a server and write down what is said.

    Args:
        url: of the server.

    Yields:
        The address to talk to, and what has been said.
    """
    said: list[dict[str, Any]] = []

    class Recorder(_Between):
        def answered(self, method: str, target: str, request: Any) -> tuple[int, bytes]:
            status, content = post(url + target, None if method == "GET" else request)
            said.append(
                {
                    "method": method,
                    "target": target,
                    "request": nameless(request),
                    "status": status,
                    "answer": json.loads(content or b"null"),
                }
            )
            return status, content

    with closing(HttpThread(Recorder)) as server:
        yield server.url, said


@contextmanager
def playing(exchanges: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Answer as was recorded, as long as the requests are those of the recording.

    Args:
        exchanges: of the file.

    Yields:
        The address to talk to, and what was asked that is not in the recording.
    """
    left = iter(exchanges)
    wrong: list[str] = []

    class Player(_Between):
        def answered(self, method: str, target: str, request: Any) -> tuple[int, bytes]:
            wanted = next(left, None)
            asked = {"method": method, "target": target, "request": nameless(request)}
            if wanted is None or asked != {key: wanted[key] for key in asked}:
                wrong.append(f"{asked} where the recording has {None if wanted is None else {key: wanted[key] for key in asked}}")
                return 500, b"{}"
            answer = wanted["answer"]
            return wanted["status"], b"" if answer is None else json.dumps(answer, separators=(",", ":")).encode()

    with closing(HttpThread(Player)) as server:
        yield server.url, wrong
    wrong.extend(f"{exchange['method']} {exchange['target']} was never asked" for exchange in left)
