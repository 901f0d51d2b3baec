"""Stand-ins for inference servers, on this machine. They are fakes, and say nothing about the real engines.

Each speaks a server's protocol over real sockets: it refuses every request that is not of the documented form (unknown members, wrong types, what a real
one answers by 400), and answers in the documented form. What samples behind it is a `TransformersPolicy` on a tiny model, so that ids, log-probabilities,
seeds and stops are real ones. The vLLM one keeps what was measured on vLLM 0.30 and 0.31 on a CPU: a stop id stays in the ids, `max_tokens` beyond the
context is 400 with vLLM's sentence, ids come only when asked for, and a prompt whose beginning was seen before a reload is answered by the OLD weights
until the prefix cache is dropped. Its answers have the form of those that were recorded from the real engine (`vllm_recording.py`).

`faults` is a queue: each reply that is asked for takes one and misbehaves so.
"""

from __future__ import annotations

import contextlib
import copy
import json
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import TimeoutError as NotYet
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch
from http_thread import HttpThread
from transformers import AutoModelForCausalLM

from agent_gym._background import BackgroundLoop
from agent_gym.policies import Sampling, TransformersPolicy

BLOCK = 32
INT, NUMBER, TEXT, BOOL, IDS = "int", "number", "text", "bool", "ids"


class Refusal(Exception):
    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param


def check_members(request: Any, known: dict[str, str], wanted: set[str], where: str = "request") -> None:
    """Refuse what is not of the documented form."""
    if not isinstance(request, dict):
        raise Refusal(400, f"{where} should be an object")
    if set(request) - set(known) or wanted - set(request):
        raise Refusal(
            400, f"{where} has {sorted(set(request) - set(known))} that nobody documents, and lacks {sorted(wanted - set(request))}"
        )
    for name, value in request.items():
        kind = known[name]
        fine = {
            INT: isinstance(value, int) and not isinstance(value, bool),
            NUMBER: isinstance(value, (int, float)) and not isinstance(value, bool),
            TEXT: isinstance(value, str),
            BOOL: isinstance(value, bool),
            IDS: isinstance(value, list) and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in value),
            "object": isinstance(value, dict),
        }[kind]
        if not fine:
            raise Refusal(400, f"{where}: {name} should be {kind}, not {value!r:.60}")


class FakeServer:
    """What the two kinds share. `model` is not touched: each server has its own copy."""

    def __init__(self, model: Any, *, max_model_len: int = 256, port: int = 0) -> None:
        self.model = copy.deepcopy(model).eval()
        self.max_model_len = max_model_len
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self.loop = BackgroundLoop()
        self.policy = TransformersPolicy(self.model, pad_id=0)
        self.old: TransformersPolicy | None = None
        self.faults: deque[str] = deque()
        self.requests: list[dict[str, Any]] = []
        self.controls: list[tuple[str, Any]] = []
        self.disconnected = 0
        self.overflows = 0
        self.authorisation = ""
        self.connections: set[socket.socket] = set()
        self.aborting: dict[str, threading.Event] = {}
        self.seen: set[str] = set()
        self.seen_prompts: list[list[int]] = []
        self.paused = threading.Event()
        self.running = 0
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self.weight_version = "default"
        self.slow = 0.0
        self.slow_prompt: list[int] | None = None  # the one that is slow; None: all are
        self.missing: set[str] = set()
        handler = type("Handler", (_Handler,), {"owner": self})
        self.http = HttpThread(handler, port)
        self.url = self.http.url

    def close(self) -> None:
        self.closing.set()
        self.http.close()
        for connection in list(self.connections):  # as the system does when a process ends
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.policy.close()
        if self.old is not None:
            self.old.close()
        self.loop.abandon()

    # -------------------------------------------------------------- what it does
    def answer(self, path: str, query: dict[str, list[str]], request: Any, connection: socket.socket) -> Any:
        raise NotImplementedError

    def reload(self, folder: str) -> None:
        new = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with self.lock:
            self.old = self.policy
            self.model, self.policy = new, TransformersPolicy(new, pad_id=0)

    def drop_cache(self) -> bool:
        with self.lock:
            if self.running:
                return False
            self.seen_prompts.clear()
            self.old = None
        return True

    def sample(self, prompt: list[int], sampling: Sampling, name: str, connection: socket.socket) -> tuple[Any, bool]:
        """Sample; ends when the client leaves, or by abort, which leaves a part."""
        with self.lock:
            if name in self.seen:
                raise Refusal(400, f"Request id {name} already running")
            self.seen.add(name)
            self.aborting[name] = threading.Event()
        while self.paused.is_set() and not self.closing.is_set():
            time.sleep(0.005)
        with self.lock:
            stale = self.old is not None and any(prompt[:BLOCK] == one[:BLOCK] for one in self.seen_prompts if len(one) >= BLOCK)
            policy = self.old if stale and self.old is not None else self.policy
            self.seen_prompts.append(prompt)
            self.running += 1
        try:
            future = self.loop.submit(policy.generate(prompt, sampling))
            began, slow = time.monotonic(), self.slow if self.slow_prompt in (None, prompt) else 0.0
            while True:
                with contextlib.suppress(NotYet):
                    generation = future.result(0.01)
                    if time.monotonic() - began >= slow:
                        return generation, False
                    time.sleep(0.01)
                if self.aborting[name].is_set():
                    future.cancel()
                    done = future.result() if future.done() and not future.cancelled() else None
                    return done, True
                if self.closing.is_set() or gone(connection):
                    future.cancel()
                    self.disconnected += 1
                    raise ConnectionAbortedError
        finally:
            with self.lock:
                self.running -= 1
                del self.aborting[name]

    def misbehave(self, fault: str, connection: socket.socket) -> None:
        """Those faults that need no answer."""
        if fault == "hang":
            while not self.closing.is_set() and not gone(connection):
                time.sleep(0.01)
            self.disconnected += 1
            raise ConnectionAbortedError
        if fault == "dead":
            raise ConnectionAbortedError
        if fault.isdecimal():
            raise Refusal(int(fault), "out of order")


def gone(connection: socket.socket) -> bool:
    """The other side has closed."""
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: FakeServer

    def log_message(self, *_: object) -> None:
        pass

    def setup(self) -> None:
        self.owner.connections.add(self.request)
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.owner.connections.discard(self.request)

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        self._serve(json.loads(body) if body else None)

    def _serve(self, request: Any) -> None:
        parts = urlsplit(self.path)
        self.owner.authorisation = self.headers.get("Authorization", "")
        try:
            if parts.path in self.owner.missing:
                raise Refusal(404, "Not Found")
            content = self.owner.answer(parts.path, parse_qs(parts.query), request, self.connection)
            status = 200
        except Refusal as refusal:
            status, content = refusal.status, error_of(refusal)
        except ConnectionAbortedError:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        half = isinstance(content, dict) and content.pop("_half", False)
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()  # NaN stays NaN
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[: len(body) // 2] if half else body)
            if half:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_WR)


def error_of(refusal: Refusal) -> dict[str, Any]:
    """An error as vLLM and SGLang tell it; an address that they do not have is answered by what they are built on."""
    if refusal.message == "Not Found":
        return {"detail": "Not Found"}
    return {"error": {"message": refusal.message, "type": "BadRequestError", "param": refusal.param, "code": refusal.status}}


# ------------------------------------------------------------------------------------------------ vLLM

VLLM_REQUEST = {
    "model": TEXT, "prompt": IDS, "n": INT, "max_tokens": INT, "seed": INT, "logprobs": INT, "return_token_ids": BOOL,
    "return_tokens_as_token_ids": BOOL, "ignore_eos": BOOL, "min_tokens": INT, "add_special_tokens": BOOL, "skip_special_tokens": BOOL,
    "stream": BOOL, "request_id": TEXT, "temperature": NUMBER, "top_p": NUMBER, "top_k": INT, "min_p": NUMBER, "repetition_penalty": NUMBER,
    "presence_penalty": NUMBER, "frequency_penalty": NUMBER, "stop_token_ids": IDS, "prompt_logprobs": INT,
}  # fmt: skip


class FakeVLLM(FakeServer):
    """vLLM's OpenAI-compatible server with VLLM_SERVER_DEV_MODE=1.

    Args:
        model: a tiny model.
        raw: log-probabilities are those of temperature 1, as without --logprobs-mode processed_logprobs.
        version: that GET /version tells.
        told_len: the length of its context that it tells, where that is not the true one.
        eos: ids at which it stops unless `ignore_eos`.
        tokenizer: what `/tokenize` encodes with; None serves no such address.
    """

    def __init__(
        self,
        model: Any,
        *,
        raw: bool = False,
        version: str = "0.30.0",
        told_len: int | None = None,
        eos: tuple[int, ...] = (),
        tokenizer: Any = None,
        **more: Any,
    ) -> None:
        self.raw, self.version, self.told_len, self.eos, self.tokenizer = raw, version, told_len, eos, tokenizer
        super().__init__(model, **more)

    def answer(self, path: str, query: dict[str, list[str]], request: Any, connection: socket.socket) -> Any:
        if path == "/v1/completions":
            return self.completion(request, connection)
        if path == "/v1/models":
            length = self.told_len or self.max_model_len
            entry = {
                "id": "tiny",
                "object": "model",
                "created": int(time.time()),
                "owned_by": "vllm",
                "root": "/models/tiny",
                "parent": None,
            }
            return {"object": "list", "data": [{**entry, "max_model_len": length, "permission": []}]}
        if path == "/version":
            return {"version": self.version}
        if path == "/health":
            return ""
        if path == "/tokenize" and self.tokenizer is not None:
            check_members(request, {"model": TEXT, "prompt": TEXT, "add_special_tokens": BOOL}, {"prompt"})
            ids = self.tokenizer.encode(request["prompt"], add_special_tokens=request.get("add_special_tokens", True))
            return {"count": len(ids), "max_model_len": self.max_model_len, "tokens": ids, "token_strs": None}
        return self.control(path, query, request)

    def control(self, path: str, query: dict[str, list[str]], request: Any) -> Any:
        self.controls.append((path, request if not query else {key: value[0] for key, value in query.items()}))
        if path == "/pause":
            if query.get("mode") != ["wait"]:
                raise Refusal(400, "this stand-in only waits")
            self.paused.set()
            while self.running and not self.closing.is_set():
                time.sleep(0.005)
            return {"status": "paused"}
        if path == "/resume":
            self.paused.clear()
            return {"status": "resumed"}
        if path == "/collective_rpc":
            check_members(request, {"method": TEXT, "kwargs": "object"}, {"method", "kwargs"})
            assert request["method"] == "reload_weights" and set(request["kwargs"]) == {"weights_path"}
            try:
                self.reload(request["kwargs"]["weights_path"])
            except OSError as error:
                raise Refusal(500, f"Call to collective_rpc method failed: {error}") from error
            return {"results": [None]}
        if path == "/reset_prefix_cache":
            return {"success": self.drop_cache()}
        if path == "/abort_requests":
            named = request["request_ids"]
            assert isinstance(named, list) and named and all(isinstance(one, str) for one in named), (
                "an empty list ends everybody's requests"
            )
            with self.lock:
                for one in named:
                    if one in self.aborting:
                        self.aborting[one].set()
            return {"status": "aborted", "aborted": len(named)}
        raise Refusal(404, "Not Found")

    def completion(self, request: Any, connection: socket.socket) -> Any:
        check_members(request, VLLM_REQUEST, {"model", "prompt", "max_tokens", "seed", "request_id"})
        if request["model"] != "tiny":
            raise Refusal(404, f"The model `{request['model']}` does not exist.")
        prompt, asked = request["prompt"], request["max_tokens"]
        probe = request["request_id"].startswith("agent-gym-probe")
        fault = self.faults.popleft() if self.faults and not probe else ""
        if not probe:
            self.requests.append(request)
        self.misbehave(fault, connection)
        if not prompt or asked < 1 or request["n"] != 1 or request["stream"] or not -(2**63) <= request["seed"] < 2**63:
            raise Refusal(400, "this is nothing that a policy should ask for")
        if max(prompt) >= self.vocabulary:
            raise Refusal(400, f"Token id {max(prompt)} is out of vocabulary")
        limit = 200 if fault == "shrunk" else self.max_model_len
        if len(prompt) + asked > limit:
            self.overflows += 1
            raise Refusal(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {asked} output tokens and your prompt contains "
                f"{len(prompt)} input tokens, for a total of {len(prompt) + asked} tokens. Please reduce the length of the input prompt or the "
                f"number of requested output tokens. (parameter=input_tokens, value={len(prompt)})",
                "input_tokens",
            )
        sampling = Sampling(
            temperature=request["temperature"], top_p=request["top_p"], top_k=max(0, request["top_k"]), min_p=request["min_p"], max_tokens=asked,
            seed=request["seed"],
            stop_token_ids=(*request["stop_token_ids"], *(() if request.get("ignore_eos") else self.eos)),
        )  # fmt: skip
        name = f"cmpl-{request['request_id']}"
        generation, aborted = self.sample(prompt, sampling, f"{name}-0", connection)
        ids = [] if generation is None else generation.token_ids.tolist()
        logprobs: list[Any] = [] if generation is None else [float(one) for one in generation.logprobs]
        if self.raw and ids:
            logprobs = plain_logprobs(self.model, prompt, ids)
        reason = "abort" if aborted or fault == "abort" else "stop" if generation.finish_reason == "stop" else "length"
        told = request["return_token_ids"]
        tokens = [f"token_id:{one}" for one in ids] if request.get("return_tokens_as_token_ids") else ["x"] * len(ids)
        tops = [{token: p} for token, p in zip(tokens, logprobs, strict=True)]
        choice = {
            "index": 0,
            "text": "".join(tokens),
            "logprobs": {"text_offset": [0] * len(ids), "token_logprobs": logprobs, "tokens": tokens, "top_logprobs": tops}
            if "logprobs" in request
            else None,
            "finish_reason": reason,
            "stop_reason": ids[-1] if reason == "stop" else None,
            "token_ids": ids if told else None,
            "prompt_logprobs": prompt_scores(self.model, prompt) if request.get("prompt_logprobs") == 0 else None,
            "prompt_token_ids": prompt if told else None,
        }
        usage = {
            "prompt_tokens": len(prompt),
            "total_tokens": len(prompt) + len(ids),
            "completion_tokens": len(ids),
            "prompt_tokens_details": None,
        }
        content = {
            "id": name, "object": "text_completion", "created": int(time.time()), "model": "tiny", "choices": [choice], "service_tier": None,
            "system_fingerprint": f"vllm-{self.version}", "usage": usage, "kv_transfer_params": None,
        }  # fmt: skip
        spoil_vllm(fault, content, choice)
        return content


def spoil_vllm(fault: str, content: dict[str, Any], choice: dict[str, Any]) -> None:
    """Break an answer as a proxy, another version or a diverged model would."""
    told = choice["logprobs"]
    if fault == "other prompt":
        choice["prompt_token_ids"] = [*choice["prompt_token_ids"][:-1], 1 + choice["prompt_token_ids"][-1]]
    elif fault == "retokenised":
        choice["prompt_token_ids"] = choice["prompt_token_ids"][1:]
    elif fault == "no ids":
        choice["token_ids"] = choice["prompt_token_ids"] = None
    elif fault == "text ids":
        choice["token_ids"] = [str(one) for one in choice["token_ids"]]
    elif fault == "fewer ids":
        choice["token_ids"] = choice["token_ids"][:-1]
    elif fault == "more ids":
        choice["token_ids"] = choice["token_ids"] + [3]
        told["token_logprobs"] = told["token_logprobs"] + [-1.0]
    elif fault == "nan":
        told["token_logprobs"] = [float("nan")] * len(told["token_logprobs"])
    elif fault == "one null":
        told["token_logprobs"] = [None, *told["token_logprobs"][1:]]
    elif fault == "positive":
        told["token_logprobs"] = [0.5 for _ in told["token_logprobs"]]
    elif fault == "no logprobs":
        choice["logprobs"] = None
    elif fault == "other stop":
        choice["finish_reason"] = "stop"
    elif fault == "repetition":
        choice["finish_reason"] = "repetition"
    elif fault == "two choices":
        content["choices"] = [choice, choice]
    elif fault == "no choices":
        del content["choices"]
    elif fault == "half":
        content["_half"] = True
    elif fault == "no scores":
        choice["prompt_logprobs"] = None
    elif fault == "fewer scores":
        choice["prompt_logprobs"] = choice["prompt_logprobs"][:-1]
    elif fault == "scores of others":
        choice["prompt_logprobs"][2] = {str(1 + int(next(iter(choice["prompt_logprobs"][2])))): {"logprob": -1.0, "rank": 1}}
    elif fault in ("positive score", "impossible", "null score"):
        (entry,) = choice["prompt_logprobs"][2].values()
        entry["logprob"] = {"positive score": 0.5, "impossible": -9999.0, "null score": None}[fault]


def prompt_scores(model: Any, prompt: list[int]) -> list[Any]:
    """As vLLM tells them for prompt_logprobs=0: nothing for the first id, then each id with its log-probability at temperature 1 and its rank."""
    with torch.no_grad():
        logps = model(input_ids=torch.tensor([prompt])).logits[0, :-1].float().log_softmax(-1)
    found: list[Any] = [None]
    for line, token in zip(logps, prompt[1:], strict=True):
        own = float(line[token])
        found.append({str(token): {"logprob": own, "rank": int((line > line[token]).sum()) + 1, "decoded_token": "x"}})
    return found


def plain_logprobs(model: Any, prompt: list[int], ids: list[int], temperature: float = 1.0) -> list[float]:
    """By one forward of the whole sequence."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].float() / temperature
    found: list[float] = logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)].tolist()
    return found


# ------------------------------------------------------------------------------------------------ SGLang

SGLANG_REQUEST = {
    "input_ids": IDS, "sampling_params": "object", "return_logprob": BOOL, "logprob_start_len": INT, "top_logprobs_num": INT,
    "return_prompt_token_ids": BOOL, "stream": BOOL, "rid": TEXT,
}  # fmt: skip
SGLANG_SAMPLING = {
    "temperature": NUMBER, "top_p": NUMBER, "top_k": INT, "min_p": NUMBER, "repetition_penalty": NUMBER, "presence_penalty": NUMBER,
    "frequency_penalty": NUMBER, "stop_token_ids": IDS, "max_new_tokens": INT, "min_new_tokens": INT, "n": INT, "sampling_seed": INT,
    "ignore_eos": BOOL, "no_stop_trim": BOOL, "skip_special_tokens": BOOL,
}  # fmt: skip


class FakeSGLang(FakeServer):
    """SGLang's native API, from its documentation, with --enable-deterministic-inference.

    Args:
        model: a tiny model.
        eos: ids at which it stops unless `ignore_eos`, which switches `stop_token_ids` off as well.
        gives_prompt: whether it knows return_prompt_token_ids.
    """

    def __init__(self, model: Any, *, eos: tuple[int, ...] = (), gives_prompt: bool = True, **more: Any) -> None:
        self.eos, self.gives_prompt = eos, gives_prompt
        super().__init__(model, **more)

    def answer(self, path: str, query: dict[str, list[str]], request: Any, connection: socket.socket) -> Any:
        if path == "/generate":
            return self.generation(request, connection)
        if path == "/get_model_info":
            return {"model_path": "/models/tiny", "is_generation": True, "weight_version": self.weight_version}
        if path == "/get_server_info":
            return {"version": "0.5.23", "context_length": self.max_model_len, "max_req_input_len": self.max_model_len - 6}
        self.controls.append((path, request))
        if path == "/pause_generation":
            check_members(request, {"mode": TEXT}, {"mode"})
            self.paused.set()
            while self.running and not self.closing.is_set():
                time.sleep(0.005)
            return {"message": "Generation paused successfully.", "status": "ok"}
        if path == "/continue_generation":
            self.paused.clear()
            return {"message": "Generation continued successfully.", "status": "ok"}
        if path == "/update_weights_from_disk":
            known = {"model_path": TEXT, "weight_version": TEXT, "flush_cache": BOOL, "abort_all_requests": BOOL}
            check_members(request, known, {"model_path"})
            try:
                self.reload(request["model_path"])
            except OSError as error:
                return {"success": False, "message": f"Failed to get weights iterator: {error}", "num_paused_requests": 0}
            self.weight_version = request["weight_version"]
            return {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}
        if path == "/flush_cache":
            if not self.drop_cache():
                raise Refusal(400, "Flush cache failed.")
            return "Cache flushed.\nPlease check backend logs for more details.\n"
        if path == "/abort_request":
            check_members(request, {"rid": TEXT}, {"rid"})
            with self.lock:
                if request["rid"] in self.aborting:
                    self.aborting[request["rid"]].set()
            return ""
        raise Refusal(404, "Not Found")

    def generation(self, request: Any, connection: socket.socket) -> Any:
        check_members(request, SGLANG_REQUEST, {"input_ids", "sampling_params"})
        given = request["sampling_params"]
        check_members(given, SGLANG_SAMPLING, {"max_new_tokens"}, "sampling_params")
        prompt, asked = request["input_ids"], given["max_new_tokens"]
        self.requests.append(request)
        fault = self.faults.popleft() if self.faults else ""
        self.misbehave(fault, connection)
        if not 0 <= given["sampling_seed"] < 2**31 or given["top_k"] == 0 or given["n"] != 1 or not request["return_logprob"]:
            raise Refusal(400, "this is nothing that a policy should ask for")
        self.overflows += len(prompt) + asked > self.max_model_len
        if max(prompt) >= self.vocabulary:
            raise Refusal(400, f"The input_ids {prompt} contains values greater than the vocab size ({self.vocabulary}).")
        if len(prompt) >= self.max_model_len:
            raise Refusal(
                400,
                f"Input length ({len(prompt)} tokens) exceeds the maximum allowed length ({self.max_model_len - 1} tokens). Use a shorter input.",
            )
        if len(prompt) + asked > self.max_model_len:
            raise Refusal(
                400,
                f"Requested token count exceeds the model's maximum context length of {self.max_model_len} tokens. You requested a total of "
                f"{len(prompt) + asked} tokens.",
            )
        stops = () if given["ignore_eos"] else (*given["stop_token_ids"], *self.eos)
        sampling = Sampling(
            temperature=given["temperature"], top_p=given["top_p"], top_k=max(0, given["top_k"]), min_p=given["min_p"], max_tokens=asked,
            seed=given["sampling_seed"], stop_token_ids=stops,
        )  # fmt: skip
        generation, aborted = self.sample(prompt, sampling, request["rid"], connection)
        ids = [] if generation is None else generation.token_ids.tolist()
        logprobs = plain_logprobs(self.model, prompt, ids, sampling.temperature or 1.0) if ids else []
        if self.old is not None and generation is not None:
            logprobs = generation.logprobs.tolist()
        reason: dict[str, Any] = {"type": "length", "length": asked}
        if aborted or fault == "abort":
            reason = {"type": "abort", "message": "Abort before prefill"}
        elif generation.finish_reason == "stop":
            reason = {"type": "stop", "matched": ids[-1]}
        meta: dict[str, Any] = {
            "id": request["rid"], "finish_reason": reason, "prompt_tokens": len(prompt), "weight_version": self.weight_version,
            "completion_tokens": len(ids), "cached_tokens": 0, "e2e_latency": 0.01,
            "output_token_logprobs": [[float(p), one, None] for p, one in zip(logprobs, ids, strict=True)],
        }  # fmt: skip
        content = {"text": "x", "output_ids": ids, "meta_info": meta}
        if self.gives_prompt:
            content["prompt_token_ids"] = prompt
        pairs = meta["output_token_logprobs"]
        if fault == "no logprobs" or fault == "no ids":
            del meta["output_token_logprobs"]
        elif fault == "nan":
            meta["output_token_logprobs"] = [[float("nan"), *rest] for _, *rest in pairs]
        elif fault == "one null":
            pairs[0][0] = None
        elif fault == "retokenised":
            meta["prompt_tokens"] += 1
            content["prompt_token_ids"] = [0, *prompt]
            if not self.gives_prompt:
                del content["prompt_token_ids"]
        elif fault == "half":
            content["_half"] = True
        return content


@contextlib.contextmanager
def serving(server: FakeServer) -> Iterator[FakeServer]:
    """Close it behind the block."""
    try:
        yield server
    finally:
        server.close()


__all__ = ["BLOCK", "FakeSGLang", "FakeServer", "FakeVLLM", "gone", "plain_logprobs", "serving"]
