"""`HttpEngine`: what the engines behind HTTP share: JSON in threads, one deadline per answer, and requests that end in the server when they are cancelled.

The client is the one that asks search servers (`agent_gym.search.transport`): the standard library alone, so that a trainer or an evaluation talks to an
engine without having it installed. A reply is one request whose answer comes in one piece; to cancel it, the connection is shut, by which vLLM and SGLang
learn that nobody waits and free its place.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from agent_gym._background import WorkerThreads
from agent_gym.core import EnvFault
from agent_gym.policies.base import Sampling
from agent_gym.policies.engine import ContextFull, EngineDown, EngineError, Reply
from agent_gym.search.transport import Cancellation, JsonClient, parse_json

__all__ = ["HttpEngine", "NotServed", "field_of", "filters"]

_Result = TypeVar("_Result")
_REFUSED = (400, 404, 405, 422)
_TOO_LONG = re.compile(r"(?:context|model|input) length|longer than the|max_model_len|allowed length", re.IGNORECASE)
_LIMIT = re.compile(r"(?:maximum (?:context|model|allowed) length|context length|max_model_len)\D{0,30}?(\d+)", re.IGNORECASE)


class NotServed(EngineError):
    """The server has no such address."""


class _Refused(Exception):
    """The server understood the request and refused it."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status, line


class HttpEngine:
    """Carries requests to one server. Safe to use from several event loops.

    Args:
        url: of the server, without a path, or with the `/v1` of OpenAI-compatible ones.
        what: it is, for messages.
        timeout: seconds for one reply, over its whole way.
        load_timeout: seconds for loading weights.
        api_key: sent as a bearer's, where the server asks for one.
        example: of an address, for the error text.

    Raises:
        ValueError: for an address or a number that cannot be used.
    """

    def __init__(self, url: str, *, what: str, timeout: float, load_timeout: float, api_key: str | None, example: str) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

        def client(seconds: float) -> JsonClient:
            return JsonClient(
                url, what=what, timeout=seconds, max_retries=0, headers=headers, example=example, max_response_bytes=256 << 20
            )

        self._client, self._slow = client(timeout), client(load_timeout)
        path = self._client.path.rstrip("/")
        if path not in ("", "/v1") or self._client.query:
            raise ValueError(f"url must look like {example}, got {url!r}")
        self.url = url
        self.what = f"{what} at {self._client.base}"
        self._threads = WorkerThreads()
        self._live: dict[str, tuple[Cancellation, set[str]]] = {}

    async def ask(
        self,
        method: str,
        target: str,
        body: Mapping[str, Any] | None,
        read: Callable[[Any], _Result],
        *,
        cancellation: Cancellation | None = None,
        slow: bool = False,
        raw: bool = False,
    ) -> _Result:
        """Ask the server.

        Args:
            method: "GET" or "POST".
            target: path and query.
            body: of the request, as JSON; None sends none.
            read: makes the result of the answer's JSON value; raises ValueError, KeyError or TypeError where it is not what was agreed on.
            cancellation: by which the request can be broken off.
            slow: it takes as long as loading weights does.
            raw: the answer may be words, or nothing; `read` gets None then.

        Returns:
            What `read` made.

        Raises:
            EngineDown: if no answer came.
            EngineError: if it is not of the contract, or was refused for a reason that a repetition does not change.
            ContextFull: if the prompt or what was asked for is too long.
            ValueError: if the server refused what the request asks for.
        """
        content = None if body is None else json.dumps(body).encode("ascii")
        cancellation = cancellation or Cancellation()
        call = self._threads.submit(lambda: self._ask(method, target, content, read, cancellation, slow, raw))
        try:
            result: _Result = await asyncio.wrap_future(call)
            return result
        except asyncio.CancelledError:
            cancellation.cancel()
            raise
        except _Refused as refusal:
            self._explain(refusal, target)

    def _ask(
        self,
        method: str,
        target: str,
        content: bytes | None,
        read: Callable[[Any], _Result],
        cancellation: Cancellation,
        slow: bool,
        raw: bool,
    ) -> _Result:
        client = self._slow if slow else self._client

        def believe(answer: bytes) -> _Result:
            try:
                return read(_json_or_none(answer) if raw else parse_json(answer))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
                raise EngineError(f"the answer of the {self.what} to {target} is not of its documented form: {error!r}") from error

        def refuse(status: int) -> Callable[[str], NoReturn]:
            def do(line: str) -> NoReturn:
                raise _Refused(status, line)

            return do

        def busy(line: str) -> NoReturn:
            raise EngineDown(f"the {self.what} is busy: {line}", lost=False)

        def locked(line: str) -> NoReturn:
            raise EngineError(f"the {self.what} wants a key (api_key=): {line}")

        accepted: dict[int, Callable[[str], _Result]] = {status: refuse(status) for status in _REFUSED}
        accepted |= {429: busy, 503: busy, 401: locked, 403: locked}
        try:
            return client.ask(
                method,
                target,
                content,
                believe,
                deadline=client.deadline(),
                contract="documented form",
                accepted=MappingProxyType(accepted),
                cancellation=cancellation,
            )
        except EnvFault as fault:
            raise EngineDown(str(fault)) from None

    def _explain(self, refusal: _Refused, target: str) -> NoReturn:
        if refusal.status in (404, 405):
            raise NotServed(f"the {self.what} has no {target.partition('?')[0]}: {refusal.line}") from None
        if "already running" in refusal.line:  # sent twice over a connection that broke off; under another name it is taken
            raise EngineDown(f"the {self.what} still works on a request of that name: {refusal.line}", lost=False) from None
        if _TOO_LONG.search(refusal.line):
            found = _LIMIT.search(refusal.line)
            raise ContextFull(int(found[1]) if found else None) from None
        raise ValueError(f"the {self.what} refused the request: {refusal.line}") from None

    async def reply(
        self, target: str, body: Mapping[str, Any], read: Callable[[Any], Reply], request_id: str, names: Sequence[str]
    ) -> Reply:
        """Ask for a reply that `abort` can end.

        Args:
            target: path.
            body: of the request.
            read: makes the reply of the answer.
            request_id: the policy's name of the request.
            names: the server's names of it.

        Returns:
            The reply.
        """
        cancellation = Cancellation()
        self._live[request_id] = (cancellation, set(names))
        try:
            return await self.ask("POST", target, body, read, cancellation=cancellation)
        except EngineDown:
            if cancellation.cancelled:  # by `abort`
                return Reply([], [], "abort", None)
            raise
        finally:
            del self._live[request_id]

    def names_of(self, request_ids: Sequence[str]) -> list[str]:
        """Return the server's names of requests in flight.

        Args:
            request_ids: the policy's.

        Returns:
            Those of the ones that are in flight.
        """
        return sorted(name for one in request_ids if one in self._live for name in self._live[one][1])

    def hang_up(self, request_ids: Sequence[str]) -> None:
        """End requests by shutting their connections; what they sampled is lost.

        Args:
            request_ids: the policy's names.
        """
        for one in request_ids:
            if one in self._live:
                self._live[one][0].cancel()

    def close(self) -> None:
        """Close the connections that are kept open."""
        self._client.close()
        self._slow.close()


def _json_or_none(answer: bytes) -> Any:
    try:
        return parse_json(answer)
    except ValueError:
        return None


def filters(sampling: Sampling, nothing: int) -> dict[str, Any]:
    """Return the settings that every server knows, each told, so that no default of the model's own `generation_config.json` takes its place.

    Args:
        sampling: the settings.
        nothing: the server's `top_k` that keeps all.

    Returns:
        Name -> value.
    """
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or nothing,
        "min_p": sampling.min_p,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": list(sampling.stop_token_ids),
    }


def field_of(value: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    """Return a member of an answer.

    Args:
        value: the object.
        name: of the member.
        kind: it must be of.

    Returns:
        The member.

    Raises:
        ValueError: if it is missing or of another kind.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get(name), kind) or isinstance(value.get(name), bool) != (kind is bool):
        shown = value.get(name) if isinstance(value, Mapping) else value
        raise ValueError(f"{name!r} is missing or wrong: {shown!r:.100}")
    return value[name]
