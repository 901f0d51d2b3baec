"""`OpenAIPolicy`: replies by any server of OpenAI's chat API (`/v1/chat/completions`), for evaluation. It works on text, and so it is not token-exact.

What is lost against policies that speak ids, and why no trainer takes these episodes (`token_exact` is False, and there are no log-probabilities):

* The server renders the messages by its own chat template and tokenizer. What it reads are the messages behind the environment's prompt, word for word, but not its ids:
  turns may be joined, tools are described in the system message and not by a template, tool messages come as user messages, and control tokens that stand in
  text of the world are no longer kept from being control tokens, since that is up to the server.
* The action's ids are those that the environment's tokenizer gives the reply's text, not those that were sampled. White space at the ends, other spellings of the same text
  and thoughts that the server keeps to itself are gone; a reply that has more of our tokens than the limit allows is cut.
* `max_tokens`, the length of a context and what the prices count are in the server's tokens; the environment's limits are in ours.

Faults are those of a network: what may pass (408, 409, 425, 429, 5xx, a broken connection, an answer that is none) is asked again with growing, scattered waits, never before the
server's `Retry-After` or `x-ratelimit-reset-*`; a key that is refused or a model that is not there fails at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import random
import re
import secrets
import time
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from agent_gym._background import WorkerThreads
from agent_gym.core import EnvFault
from agent_gym.policies.base import Sampling, derive_seed
from agent_gym.policies.chat_text import Said, action_of, messages_of
from agent_gym.policies.engine import ContextFull, EngineDown, EngineError, ask_again
from agent_gym.policies.engine_http import NotServed, field_of
from agent_gym.policies.metering import RequestRecord
from agent_gym.policies.rate_limit import RateLimit, asked_wait
from agent_gym.search.transport import Cancellation, JsonClient, parse_json
from agent_gym.trajectory import Generation

__all__ = ["API_KEY_ENV", "ChatAnswer", "ChatServer", "OpenAIPolicy"]

API_KEY_ENV = "OPENAI_API_KEY"
"""The environment variable whose content is sent as bearer token, where no other is named."""

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_EXAMPLE = "http://127.0.0.1:8000/v1"
_PASSING = frozenset({408, 409, 425, 429})  # and everything from 500 on
_REQUEST_REFUSED = frozenset({400, 413, 422})
_LEAST_SECRET = 4  # shorter keys are placeholders, and hiding them would spoil every message
_TOO_LONG = re.compile(
    r"context[_ ](?:length|size|window)|max_model_len|maximum (?:model|allowed) length|(?:prompt|input|request) is too (?:long|large)|too many (?:input )?tokens",
    re.IGNORECASE,
)
_NO_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing", re.IGNORECASE)
_ENDS = MappingProxyType(
    {
        "stop": True,
        "tool_calls": True,
        "function_call": True,
        "eos": True,
        "end_turn": True,
        "length": False,
        "max_tokens": False,
        "content_filter": False,
    }
)
"""Finish reason -> whether the reply came to its end."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """An answer of `/chat/completions`, read.

    Attributes:
        said: the reply.
        finish_reason: the server's own word.
        refused: it is a refusal.
        prompt_tokens: from `usage`; None where the server tells none.
        completion_tokens: likewise.
        cached_tokens: likewise; 0 where it tells none.
        seconds: from sending the request to its answer.
    """

    said: Said
    finish_reason: str
    refused: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int
    seconds: float = 0.0


class ChatServer:
    """Carries requests to one server. Safe to use from several event loops.

    Args:
        url: with the path before `/chat/completions`, such as `/v1`, which is taken where there is none.
        api_key_env: the environment variable that holds the key; None sends no key. The default may be missing, another one may not.
        timeout: seconds for one try.
        longest_wait: a server that asks to wait longer than so many seconds is given up.
        limit: told of waits that the server asks for.

    Attributes:
        url: without key and path of the request.

    Raises:
        ValueError: for an address, a number or a key that cannot be used.
    """

    def __init__(self, url: str, *, api_key_env: str | None, timeout: float, longest_wait: float, limit: RateLimit) -> None:
        if "@" in urlsplit(url).netloc:
            raise ValueError(
                f"url must look like {_EXAMPLE}, without a user or a password in it; put the key into ${api_key_env or API_KEY_ENV}"
            )
        self._key_from, self._key = api_key_env, _key_of(api_key_env)
        self._client = JsonClient(
            url,
            what="OpenAI-compatible server",
            timeout=timeout,
            max_retries=0,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            example=_EXAMPLE,
        )
        self._path = self._client.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
        self.url = f"{self._client.base}{self._path}"
        self.what = f"OpenAI-compatible server at {self.url}"
        self._longest_wait, self._limit = longest_wait, limit
        self._threads = WorkerThreads()

    async def models(self) -> list[str] | None:
        """Return the names that the server serves; None where it does not tell.

        Returns:
            Names, or None.

        Raises:
            EngineDown: if no answer came.
            EngineError: if the key was refused.
        """
        try:
            names, _ = await self._ask(
                "GET", "/models", None, lambda value: [field_of(one, "id", str) for one in field_of(value, "data", list)]
            )
        except NotServed:
            return None
        return names

    async def chat(self, body: Mapping[str, Any]) -> ChatAnswer:
        """Ask for a reply.

        Args:
            body: of the request.

        Returns:
            The answer.

        Raises:
            EngineDown: if another try may help; it says how long the server wants to be left alone.
            ContextFull: if the conversation is too long.
            EngineError: for all else.
        """
        answer, seconds = await self._ask("POST", "/chat/completions", body, _read_answer)
        return ChatAnswer(**{name: getattr(answer, name) for name in ChatAnswer.__slots__ if name != "seconds"}, seconds=seconds)

    async def _ask(self, method: str, target: str, body: Mapping[str, Any] | None, read: Callable[[Any], _Result]) -> tuple[_Result, float]:
        content = None if body is None else json.dumps(body).encode("ascii")
        cancellation = Cancellation()
        call = self._threads.submit(lambda: self._exchange(method, target, content, read, cancellation))
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            cancellation.cancel()
            raise

    def _exchange(
        self, method: str, target: str, content: bytes | None, read: Callable[[Any], _Result], cancellation: Cancellation
    ) -> tuple[_Result, float]:
        """One try, in a thread."""

        def believe(answer: bytes) -> _Result:
            try:
                value = parse_json(answer)
                error = value.get("error") if isinstance(value, Mapping) else None
                if error:  # some gateways answer 200 and tell the failure inside
                    code = error.get("code") if isinstance(error, Mapping) else None
                    self._refuse(code if isinstance(code, int) and code >= 400 else 502, None, answer, target)
                return read(value)
            except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
                raise EngineDown(
                    f"the answer of the {self.what} to {target} is not of its documented form: {self._hidden(repr(error))}"
                ) from None

        def watch(status: int, headers: Mapping[str, str], answer: bytes) -> None:
            wait = asked_wait(headers, time.time(), used_up_only=status == 200)
            if wait is not None and wait <= self._longest_wait and (status == 200 or status in _PASSING or status >= 500):
                self._limit.hold(wait)
            if status != 200:
                self._refuse(status, wait, answer, target)

        began = time.perf_counter()
        try:
            found = self._client.ask(
                method,
                f"{self._path}{target}{self._client.query}",
                content,
                believe,
                deadline=self._client.deadline(),
                contract="documented form",
                cancellation=cancellation,
                watch=watch,
            )
        except EnvFault as fault:
            raise EngineDown(self._hidden(str(fault))) from None
        return found, time.perf_counter() - began

    def _refuse(self, status: int, wait: float | None, answer: bytes, target: str) -> NoReturn:
        """Say what a status means."""
        said = self._hidden(_message_of(answer))
        line = f"the {self.what} answered {target} with status {status}: {said}"
        if status in (401, 403):
            key = f"the key in ${self._key_from}" if self._key else f"a request without a key (set ${self._key_from or API_KEY_ENV})"
            raise EngineError(f"{line}. It refuses {key}")
        if status in (404, 405, 501):
            raise NotServed(f"{line}. See that the address ends before /chat/completions and that it serves this model")
        if status in _REQUEST_REFUSED and _TOO_LONG.search(said):
            raise ContextFull
        if status not in _PASSING and status < 500:
            raise EngineError(line)
        if status == 429 and _NO_QUOTA.search(said):
            raise EngineError(f"{line}. Waiting does not help: there is no quota left")
        if wait is not None and wait > self._longest_wait:
            raise EngineError(f"{line}. It asks to wait {wait:.0f} s, and longest_wait is {self._longest_wait:g} s")
        raise EngineDown(line, lost=False, after=wait)

    def _hidden(self, text: str) -> str:
        """Text in which the key does not stand."""
        return text.replace(self._key, "[the key]") if len(self._key) >= _LEAST_SECRET else text

    def close(self) -> None:
        """Close the connections that are kept open."""
        self._client.close()


def _key_of(name: str | None) -> str:
    key = "" if name is None else os.environ.get(name, "").strip()
    if name is not None and not key and name != API_KEY_ENV:
        raise ValueError(f"the environment variable {name} should hold the server's key, and it is not set; set it, or name another one")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(
            f"the key in the environment variable {name} holds characters that no header can carry; see that it is the key alone"
        )
    return key


def _message_of(answer: bytes) -> str:
    """What an error's body says, in one line."""
    text = answer[:20_000].decode("utf-8", "replace")
    found: Any = text
    try:
        found = json.loads(text)
        for name in ("error", "message", "detail"):
            if isinstance(found, Mapping) and name in found:
                found = found[name]
        code = found.get("code") or found.get("type") if isinstance(found, Mapping) else None
        found = found if isinstance(found, str) else json.dumps(found)
        found = f"{found} ({code})" if isinstance(code, str) else found
    except (ValueError, RecursionError):
        found = text
    line = " ".join(str(found).split()) or "(nothing)"
    return line if len(line) <= 500 else f"{line[:500]}..."


# ---------------------------------------------------------------------------------------------------- what a server answers


def _read_answer(value: Any) -> ChatAnswer:
    choices = field_of(value, "choices", list)
    if len(choices) != 1:
        raise ValueError(f"{len(choices)} choices for one request")
    message = field_of(choices[0], "message", dict)
    content, refusal = _text(message.get("content")), message.get("refusal")
    refused = isinstance(refusal, str) and bool(refusal) and not content
    reason = choices[0].get("finish_reason")
    reason = "stop" if reason is None else reason
    if not isinstance(reason, str):
        raise ValueError(f"finish_reason is {reason!r:.100}")
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    said = Said(
        content=str(refusal) if refused else content,
        reasoning=thoughts if isinstance(thoughts, str) else "",
        calls=_calls(message),
        finished=_ENDS.get(reason, True),
    )
    usage = value.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    details = usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, Mapping) else _count(usage, "prompt_cache_hit_tokens")
    return ChatAnswer(said, reason, refused, _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"), cached or 0)


def _text(content: Any) -> str:
    """The text of a message's content: a text, its parts of type text, or nothing."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "".join(
            field_of(part, "text", str) for part in content if isinstance(part, Mapping) and part.get("type") in ("text", "output_text")
        )
    raise ValueError(f"content is {content!r:.100}")


def _calls(message: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    listed = message.get("tool_calls") or []
    if not isinstance(listed, list):
        raise ValueError(f"tool_calls is {listed!r:.100}")
    functions = [field_of(one, "function", dict) for one in listed]
    if isinstance(message.get("function_call"), Mapping):
        functions.append(message["function_call"])
    return tuple((field_of(one, "name", str), one.get("arguments")) for one in functions)


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


# ---------------------------------------------------------------------------------------------------- the policy


class OpenAIPolicy:
    """Plays by a chat server's text. For evaluation: not token-exact (see the module), and refused by every trainer. See `agent_gym.policies.Policy`.

    A loop binds each episode's environment with its session (`agent_gym.flows`); by hand, call `bind(env, session)` after `reset`.

    Args:
        url: of the server, with the path before `/chat/completions` ("https://api.openai.com/v1"); `/v1` where there is no path.
        model: its name there; None asks the server and takes its first.
        api_key_env: the environment variable whose content is sent as bearer token, to this server and nowhere else; it is in no message, record or file. None sends none.
        requests_per_minute: see `RateLimit`.
        tokens_per_minute: see `RateLimit`; a request counts for its prompt in our tokens and the longest reply until the server's usage is known.
        concurrency: at most so many requests at once.
        timeout: seconds for one try.
        retries: how often a request is sent again after what may pass.
        retry_delay: seconds before the first of these, doubled for each further one, at most 30, scattered by half; more where the server asks for it.
        longest_wait: a server that asks to wait longer than so many seconds is given up.
        keep_reasoning: put thoughts that the server gives apart (`reasoning_content`) before the action's text, in the environment's reasoning tags; they count against
            its limits, and the server reads them again in every later turn.
        request: further members of every request (`{"reasoning_effort": "low"}`), in place of ours of the same name; None leaves that member out
            (`{"max_tokens": None, "max_completion_tokens": 4096}`).
        seed: of requests without a seed of their own; None draws one from the system.

    Attributes:
        records: one `RequestRecord` per answered request: tokens of the server's usage, and seconds.
        counts: requests, retries, no_room (the server's context was full), cut (replies longer than our limit), refusals, filtered (by the server's content filter),
            decoded_prompts (prompts whose messages are not known, shown as decoded text).

    Raises:
        ValueError: for an address, a number or a key that cannot be used.
    """

    token_exact = False

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key_env: str | None = API_KEY_ENV,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrency: int | None = 16,
        timeout: float = 120.0,
        retries: int = 6,
        retry_delay: float = 1.0,
        longest_wait: float = 120.0,
        keep_reasoning: bool = False,
        request: Mapping[str, Any] = MappingProxyType({}),
        seed: int | None = None,
    ) -> None:
        if retries < 0 or not 0 <= retry_delay < math.inf or not longest_wait >= 0:
            raise ValueError(f"retries, retry_delay and longest_wait must not be negative, not {retries}, {retry_delay} and {longest_wait}")
        if "messages" in request or "stream" in request:
            raise ValueError(
                "request= may not set messages or stream: the messages are the environment's, and answers are read in one piece"
            )
        self.limit = RateLimit(requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute, concurrency=concurrency)
        self.server = ChatServer(url, api_key_env=api_key_env, timeout=timeout, longest_wait=longest_wait, limit=self.limit)
        self.version = 0
        self.model = model
        self.retries, self.retry_delay = retries, retry_delay
        self.keep_reasoning = keep_reasoning
        self.records: list[RequestRecord] = []
        self.counts = {"requests": 0, "retries": 0, "no_room": 0, "cut": 0, "refusals": 0, "filtered": 0, "decoded_prompts": 0}
        self._request = dict(request)
        self._seed = secrets.randbits(63) if seed is None else seed
        self._numbers = itertools.count()
        self._scatter = random.Random()  # of delays alone; never the global generator
        self._envs: dict[Hashable, Any] = {}
        self._warned: set[str] = set()

    async def connect(self, retries: int | None = None) -> str:
        """See that the server is there and takes the key; the first request does so too.

        Args:
            retries: how often it is asked again; None takes those of the policy.

        Returns:
            The name of the model.

        Raises:
            EngineError: if it cannot be used.
        """
        names = await ask_again(
            self.server.models, self.retries if retries is None else retries, self.retry_delay, self._failed, self._factor
        )
        if self.model is None:
            if not names:
                raise EngineError(f"the {self.server.what} names no model; pass model=")
            self.model = names[0]
        return self.model

    def bind(self, env: Any, session: Hashable | None = None) -> None:
        """Begin a session on an environment that was just reset.

        Args:
            env: just reset; one of ours.
            session: the episode; None where there is one at a time.
        """
        self._envs[session] = env.unwrapped

    def forget(self, session: Hashable) -> None:
        """Drop a session's environment.

        Args:
            session: as given to `bind`; an unknown one is ignored.
        """
        self._envs.pop(session, None)

    def close(self) -> None:
        """Close the connections that are kept open."""
        self.server.close()

    async def generate(
        self, prompt_ids: Sequence[int] | NDArray[np.int64], sampling: Sampling, *, session: Hashable | None = None
    ) -> Generation:
        """Ask for one reply.

        Args:
            prompt_ids: the whole prompt, int64 of shape (n,): that of the session's environment, whose messages are sent.
            sampling: temperature, top_p, max_tokens (in the server's tokens, and then in ours) and seed.
            session: the session that was bound.

        Returns:
            The ids of the reply's text, without log-probabilities, `token_exact` False. A reply that came to its end is closed by the end of turn,
            one that was cut off is not. Empty, with finish_reason "context", where the server says that its context is full.

        Raises:
            ValueError: if no environment was bound to the session, or for top_k and min_p, which OpenAI's API does not have.
            EngineError: if the server cannot be used; it names server and status.
        """
        if session not in self._envs:
            raise ValueError(f"OpenAIPolicy knows no environment for session {session!r}; call bind(env, session) after reset")
        if sampling.top_k or sampling.min_p:
            raise ValueError(
                f"OpenAI's API has no top_k and min_p, and top_k={sampling.top_k}, min_p={sampling.min_p} were asked for; a server that knows them takes them by request="
            )
        env = self._envs[session]
        if self.model is None:
            await self.connect()
        ids = [int(one) for one in prompt_ids]
        messages, exact = await _there(env, messages_of, ids)
        if not exact:
            self.counts["decoded_prompts"] += 1
            self._warn("decoded", "a prompt is not made of messages that are known; the server is shown its decoded text")
        self.counts["requests"] += 1
        body = self._body(messages, sampling)
        try:
            answer = await self._insist(body, len(ids) + sampling.max_tokens)
        except ContextFull:
            self.counts["no_room"] += 1
            self._warn(
                "room",
                f"a conversation does not fit into the context of the {self.server.what}: it gets no reply, and its episode ends by context_limit",
            )
            return Generation(np.zeros(0, dtype=np.int64), None, "context", self.version, token_exact=False)
        self.counts["refusals"] += answer.refused
        self.counts["filtered"] += answer.finish_reason == "content_filter"
        if answer.finish_reason not in _ENDS:
            self._warn("reason", f"the {self.server.what} ended a reply by {answer.finish_reason!r:.60}, which is taken as its end")
        action, _, cut = await _there(env, action_of, answer.said, sampling.max_tokens, self.keep_reasoning)
        self.counts["cut"] += cut
        reason = "stop" if answer.said.finished and not cut else "length"
        return Generation(np.array(action, dtype=np.int64), None, reason, self.version, token_exact=False)

    def _body(self, messages: list[dict[str, str]], sampling: Sampling) -> dict[str, Any]:
        seed = derive_seed(self._seed, next(self._numbers)) if sampling.seed is None else sampling.seed
        body: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
            "seed": seed % 2**31,
            **({"top_p": sampling.top_p} if sampling.top_p < 1.0 else {}),
            **self._request,
        }
        return {name: value for name, value in body.items() if value is not None}

    async def _insist(self, body: Mapping[str, Any], tokens: int) -> ChatAnswer:
        """Ask until there is an answer or all tries are spent, each try in its turn."""
        tries = 0

        async def attempt() -> ChatAnswer:
            nonlocal tries
            async with self.limit.turn(tokens) as place:
                tries += 1
                answer = await self.server.chat(body)
                if answer.prompt_tokens is not None and answer.completion_tokens is not None:
                    place.settle(answer.prompt_tokens + answer.completion_tokens)
                return answer

        answer = await ask_again(attempt, self.retries, self.retry_delay, self._failed, self._factor)
        self.records.append(RequestRecord(answer.seconds, answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens, tries))
        return answer

    def _failed(self, down: EngineDown, again: bool) -> None:
        self.counts["retries"] += again

    def _factor(self) -> float:
        return self._scatter.uniform(0.5, 1.5)

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, stacklevel=3)


async def _there(env: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of an environment where that lives (`agent_gym.flows.remote`)."""
    elsewhere = getattr(env, "arun", None)
    return function(env, *arguments) if elsewhere is None else await elsewhere(function, *arguments)
