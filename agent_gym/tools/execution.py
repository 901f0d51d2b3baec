"""Running the calls of one turn: look the tool up, check the arguments, run all calls at once, answer in the order of the calls.

Nothing that a tool raises comes out as an exception, except `agent_gym.core.EnvFault` (the world broke) and `KeyboardInterrupt` (a person
did). Every error is one stable line without a traceback: an observation for the model, the same on every machine. Only a `ToolResult`
whose reward, info or end of episode is unusable is a `ValueError`: the model cannot mend that, and would be trained on it.

What costs nothing stays on the caller's thread: a synchronous tool without a time limit is called, and a coroutine that cannot wait is
driven by hand (0.9 microseconds; an event loop takes 55 to 160). `run_calls` and `arun_calls` share all of it and differ only in how they
wait for the rest.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_gym._background import BackgroundLoop, background, never_waits, workers
from agent_gym._names import nearest
from agent_gym.core import EnvFault
from agent_gym.tools.base import _NOTHING, BaseTool, OpenToolkit, ToolContext, Toolkit, ToolResult, get_tool
from agent_gym.tools.calls import ToolCall
from agent_gym.tools.schema import FunctionTool

__all__ = ["ERROR_KINDS", "CallResult", "ToolSet", "arun_calls", "run_calls"]

ERROR_KINDS = ("unknown_tool", "invalid_json", "invalid_arguments", "timeout", "exception", "limit")
"""What `CallResult.error` may be."""

_GRACE = 1.0  # seconds that a cancelled coroutine has to end before its loop is taken for blocked
_MAX_MESSAGE = 200
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


@dataclass(frozen=True, slots=True)
class CallResult:
    """What came of one call.

    Attributes:
        name: of the tool, as the model wrote it.
        text: for the model, the tool's own or one line that begins with `Error`.
        error: one of `ERROR_KINDS`; None where the tool answered.
        reward: the tool's, None where it gave none.
        terminated: whether the tool ends the episode.
        info: the tool's.
    """

    name: str
    text: str
    error: str | None = None
    reward: float | None = None
    terminated: bool = False
    info: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


class _Prepared:
    """A tool with everything that does not change from call to call."""

    __slots__ = ("check", "drive", "execute", "fast", "threaded", "timeout", "tool")

    def __init__(self, tool: BaseTool) -> None:
        checker = tool.check()
        self.tool = tool
        self.execute = tool.execute
        self.check = checker.error
        self.fast = checker.fast
        self.timeout = tool.timeout
        work = tool.function if isinstance(tool, FunctionTool) else tool.execute
        is_async = inspect.iscoroutinefunction(work)
        self.threaded = tool.timeout is not None and not is_async
        self.drive = is_async and never_waits(work)


class ToolSet(Mapping[str, BaseTool]):
    """The tools of an environment, by name.

    Args:
        tools: tools, names of registered ones, and toolkits, which are opened.

    Raises:
        ValueError: if two have one name, a name is not registered or a tool is not valid.
        TypeError: if one is none of them.
        EnvFault: if a toolkit cannot be opened.
    """

    def __init__(self, tools: Iterable[BaseTool | Toolkit | str] = ()) -> None:
        self._tools: dict[str, BaseTool] = {}
        self._open: list[OpenToolkit] = []
        try:
            for given in tools:
                self._add(given)
        except BaseException:
            self.close()
            raise
        self._prepared = {name: _Prepared(made) for name, made in self._tools.items()}

    def _add(self, given: BaseTool | Toolkit | str) -> None:
        if isinstance(given, Toolkit):
            opened = given.open()
            self._open.append(opened)
            for one in opened.tools:
                self._add(one)
            return
        made = get_tool(given) if isinstance(given, str) else given
        if not isinstance(made, BaseTool):
            raise TypeError(
                f"a tool is a BaseTool, a Toolkit or the name of a registered one, not {given!r}; "
                "agent_gym.tools.tool makes one from a typed function"
            )
        made.check()
        if made.name in self._tools:
            raise ValueError(f"two tools are named {made.name!r}; give one of them another name")
        self._tools[made.name] = made

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the tools, and not what was worked out from them."""
        return {key: value for key, value in self.__dict__.items() if key != "_prepared"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepared = {name: _Prepared(made) for name, made in self._tools.items()}

    @property
    def told(self) -> str:
        """The names in order, oracles marked as such: `"calculator, calc_gsm8k_reward (oracle)"`."""
        return ", ".join(f"{name} (oracle)" if one.oracle else name for name, one in self._tools.items())

    def begin_episode(self) -> None:
        """Get what is held open ready for an episode.

        Raises:
            EnvFault: if the world is broken.
        """
        for one in self._open:
            one.begin()

    def close(self) -> None:
        """Close what is held open."""
        for one in self._open:
            one.close()

    def __getitem__(self, name: str) -> BaseTool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """All tools in OpenAI's form."""
        return [made.schema for made in self._tools.values()]

    # -------------------------------------------------------------------------------------------- one call

    def begin(self, call: ToolCall, context: ToolContext, index: int) -> CallResult | Awaiting:
        """Do as much of a call as needs no waiting.

        Args:
            call: as parsed.
            context: of the turn.
            index: the number of the call within the turn.

        Returns:
            The result, or what has to be waited for.

        Raises:
            EnvFault: if the tool says that the world broke.
            ValueError: for a result with a reward that is no finite number, or an info that is no mapping.
        """
        if call.error is not None:
            return CallResult(call.name, f"Error (invalid_json): the call was not run: {call.error}.", "invalid_json")
        name = call.name
        prepared = self._prepared.get(name)
        if prepared is None:
            return self._unknown(name)
        fast = prepared.fast
        if fast is None or not fast(call.arguments):
            wrong = prepared.check(call.arguments)
            if wrong is not None:
                return CallResult(name, f"Error (invalid_arguments): {name} was not run: {wrong}.", "invalid_arguments")
        own = context.for_call(index, prepared.timeout)
        if prepared.threaded:
            return Awaiting(name, prepared.timeout, future=workers.submit(lambda: _in_thread(prepared.execute, call.arguments, own)))
        try:
            value: Any = prepared.execute(call.arguments, own)
            if prepared.drive:
                try:
                    value.send(None)
                except StopIteration as stop:
                    value = stop.value
        except EnvFault:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # no tool may end a rollout; SystemExit and the like are errors of the tool
            return _failed(name, error)
        if type(value) is ToolResult:
            return _finished(name, value)
        if inspect.isawaitable(value):
            return Awaiting(name, prepared.timeout, awaitable=value)
        return _finished(name, value)

    def _unknown(self, name: str) -> CallResult:
        known = ", ".join(self._tools) or "none"
        shown = name if len(name) <= 64 else f"{name[:64]}..."
        hint = nearest(name[:64], self._tools) or "."
        return CallResult(name, f"Error (unknown_tool): there is no tool named {shown!r}; the tools are: {known}{hint}", "unknown_tool")


class Awaiting:
    """A call that has begun and is being waited for: an awaitable of an asynchronous tool or a future of a worker thread."""

    __slots__ = ("awaitable", "future", "name", "started", "timeout")

    def __init__(
        self, name: str, timeout: float | None, *, awaitable: Awaitable[Any] | None = None, future: Future[Any] | None = None
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.awaitable = awaitable
        self.future = future
        self.started = time.monotonic()

    @property
    def deadline(self) -> float:
        """`time.monotonic()` at which the call is given up. A coroutine gets some time more, in which it is cancelled by its own loop."""
        if self.timeout is None:
            return math.inf
        return self.started + self.timeout + (0.0 if self.awaitable is None else _GRACE)

    def drop(self) -> None:
        """Give up what has begun, because another call of the turn ended it."""
        if isinstance(self.awaitable, Coroutine):
            self.awaitable.close()

    async def wait(self) -> CallResult:
        """Wait in the running loop, at most until the time limit."""
        if self.future is not None:
            task: asyncio.Future[Any] = asyncio.wrap_future(self.future)
        else:
            assert self.awaitable is not None
            task = asyncio.ensure_future(_settle(self.awaitable))
        task.add_done_callback(_retrieve)
        try:
            # Not wait_for: that waits until a cancelled tool has really ended, and a tool may refuse to.
            left = None if self.timeout is None else max(0.0, self.started + self.timeout - time.monotonic())
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            task.cancel()
            return _late(self.name, self.timeout)
        if task.cancelled():
            return _failed(self.name, asyncio.CancelledError("the tool cancelled itself"))
        error = task.exception()
        return _finished(self.name, task.result()) if error is None else _failed(self.name, error)


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Look at the exception of a task that nobody waits for any more, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


async def _settle(awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt) as error:  # either would stop the event loop itself
        raise RuntimeError(f"the tool raised {type(error).__name__}") from error


class _Raised:
    """An exception on its way out of a worker thread: a future cannot carry every one (`StopIteration`)."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _in_thread(execute: Callable[..., Any], arguments: dict[str, Any], context: ToolContext) -> Any:
    """A call inside a worker thread; a synchronous `execute` that returns an awaitable is run to its end here."""
    try:
        value = execute(arguments, context)
        return asyncio.run(_settle(value)) if inspect.isawaitable(value) else value
    except EnvFault:
        raise
    except BaseException as error:  # noqa: BLE001  # as in `ToolSet.begin`
        return _Raised(error)


def _finished(name: str, value: Any) -> CallResult:
    """The result of what a tool returned."""
    if type(value) is _Raised:
        return _failed(name, value.error)
    if isinstance(value, ToolResult) and isinstance(value.text, str):
        if value.reward is None and value.info is _NOTHING and type(value.terminated) is bool:  # most of them
            return CallResult(name, value.text, None, None, value.terminated)
        return _checked(name, value)
    if isinstance(value, str):
        return CallResult(name, value)
    kind = f"ToolResult(text={type(value.text).__name__})" if isinstance(value, ToolResult) else type(value).__name__
    return CallResult(name, f"Error (exception): the tool {name} returned {kind} instead of a text.", "exception")


def _checked(name: str, value: ToolResult) -> CallResult:
    """The result of a tool that gives more than a text. What it gives besides is for the trainer: a mistake in it is not the model's."""
    if not isinstance(value.info, Mapping):
        raise ValueError(f"the tool {name!r} returned ToolResult(info={value.info!r:.100}); info must be a mapping, such as a dict")
    if not isinstance(value.terminated, (bool, np.bool_)):
        raise ValueError(f"the tool {name!r} returned ToolResult(terminated={value.terminated!r:.100}); terminated must be True or False")
    return CallResult(name, value.text, None, _checked_reward(name, value.reward), bool(value.terminated), value.info)


def _checked_reward(name: str, reward: Any) -> float | None:
    if reward is None:
        return None
    try:
        number = math.nan if isinstance(reward, (str, bytes, bytearray)) else float(reward)
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the tool {name!r} returned ToolResult(reward={reward!r:.100}); a reward must be a finite number, or None")
    return number


def _failed(name: str, error: BaseException) -> CallResult:
    """The result of a tool that raised. An `EnvFault` goes on."""
    if isinstance(error, EnvFault):
        raise error
    try:
        message = " ".join(str(error).split())
    except Exception:  # noqa: BLE001  # an exception that cannot say what it is
        message = ""
    message = _ADDRESS.sub("0x...", message)
    if len(message) > _MAX_MESSAGE:
        message = f"{message[:_MAX_MESSAGE]}..."
    return CallResult(name, f"Error (exception): {name} failed: {type(error).__name__}{': ' if message else ''}{message}", "exception")


def _late(name: str, timeout: float | None) -> CallResult:
    return CallResult(name, f"Error (timeout): {name} did not answer within {timeout:g} seconds.", "timeout")


# ------------------------------------------------------------------------------------------------ the calls of a turn


def _begin_all(tools: ToolSet, calls: Sequence[ToolCall], context: ToolContext, limit: int) -> tuple[list[CallResult | Awaiting], bool]:
    begin = tools.begin
    started: list[CallResult | Awaiting] = []
    try:
        for index, call in enumerate(calls[:limit]):
            started.append(begin(call, context, index))
    except BaseException:
        for one in started:
            if isinstance(one, Awaiting):
                one.drop()
        raise
    if len(calls) > limit:
        text = f"Error (limit): the call was not run: at most {limit} calls are run in one turn."
        started += [CallResult(call.name, text, "limit") for call in calls[limit:]]
    waiting = False
    for one in started:
        if type(one) is Awaiting:
            one.started = time.monotonic()  # its time begins now, and not while the synchronous tools of the turn ran
            waiting = True
    return started, waiting


def run_calls(
    tools: ToolSet, calls: Sequence[ToolCall], context: ToolContext | None = None, *, max_parallel_calls: int = 4
) -> list[CallResult]:
    """Run the calls of one turn.

    Args:
        tools: that may be called.
        calls: as parsed; broken ones are answered by their error.
        context: of the turn; each call gets its own from it.
        max_parallel_calls: calls beyond it are answered by an error and not run.

    Returns:
        One result per call, in the order of the calls.

    Raises:
        EnvFault: if a tool says that the world broke.
        ValueError: for a result with a reward that is no finite number, or an info that is no mapping.
    """
    started, waiting = _begin_all(tools, calls, context or ToolContext(), max_parallel_calls)
    if not waiting:
        return started  # type: ignore[return-value]  # nothing in it is being waited for
    return _wait_for(started)


def _wait_for(started: Sequence[CallResult | Awaiting]) -> list[CallResult]:
    """Wait for the calls of a turn without an event loop of the caller's. Ends at once when a tool says that the world broke."""
    loop = BackgroundLoop() if background.owns_current_thread() else background
    waiting = {index: one for index, one in enumerate(started) if isinstance(one, Awaiting)}
    futures = {index: loop.submit(one.wait()) if one.future is None else one.future for index, one in waiting.items()}
    pending = dict(futures)
    try:
        while pending:
            left = min(waiting[index].deadline for index in pending) - time.monotonic()
            done = wait_for_futures(pending.values(), None if left == math.inf else max(0.0, left), FIRST_EXCEPTION).done
            for future in done:
                future.result()  # raises an EnvFault, or the ValueError of a result that is none
            for index in list(pending):
                if pending[index].done():
                    del pending[index]
                elif waiting[index].deadline <= time.monotonic():
                    if waiting[index].future is None:
                        loop.abandon()  # it does not even end a call that is over: a tool blocks it
                    del pending[index]
    finally:
        for future in futures.values():
            future.cancel()
        if loop is not background:
            loop.abandon()
    return [one if isinstance(one, CallResult) else _outcome(one, futures[index]) for index, one in enumerate(started)]


def _outcome(one: Awaiting, future: Future[Any]) -> CallResult:
    if not future.done() or future.cancelled():
        return _late(one.name, one.timeout)
    value = future.result()
    return value if isinstance(value, CallResult) else _finished(one.name, value)


async def arun_calls(
    tools: ToolSet, calls: Sequence[ToolCall], context: ToolContext | None = None, *, max_parallel_calls: int = 4
) -> list[CallResult]:
    """Run the calls of one turn in the running event loop; see `run_calls`.

    Args:
        tools: that may be called.
        calls: as parsed.
        context: of the turn.
        max_parallel_calls: calls beyond it are answered by an error and not run.

    Returns:
        One result per call, in the order of the calls.

    Raises:
        EnvFault: if a tool says that the world broke.
        ValueError: for a result with a reward that is no finite number, or an info that is no mapping.
    """
    started, waiting = _begin_all(tools, calls, context or ToolContext(), max_parallel_calls)
    if not waiting:
        return started  # type: ignore[return-value]  # nothing in it is being waited for
    tasks = [asyncio.ensure_future(one.wait() if isinstance(one, Awaiting) else _given(one)) for one in started]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        raise


async def _given(result: CallResult) -> CallResult:
    return result
