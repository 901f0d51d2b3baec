"""How the calls of an environment are run in an event loop: quick ones at once, those that block or compute for long in worker threads.

How a step is run is decided per environment and never changes what comes of it:

* A chain that can be awaited (`agent_gym.wrappers.can_await`) is stepped in the event loop: its waiting tools hold nobody, and a cheap
  step costs no thread (a hop to a worker thread and back costs 100 microseconds and more, a step of most environments less).
* How long such an environment keeps the event loop is measured; one that blocks (a web request, a pause) or computes for long moves to
  worker threads.
* Any other chain is stepped in a worker thread, since its wrappers know only `step`.

The loop of `run_rows` and a worker that hosts environments for another process run them by the same rules.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium

from agent_gym.flows.base import DeadlineReached

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]  # whoever uses it asks what it has

__all__ = ["EnvCalls", "Pace"]

BLOCKED_SECONDS = 0.005 if hasattr(resource, "RUSAGE_THREAD") else 0.02
"""A call that waits longer than this without computing has blocked the event loop. Where the system counts how often a thread gave its
processor away by itself, a thread that lost it to other programs on a loaded machine is not mistaken for one that waits."""
HEAVY_SECONDS = 0.05
"""A call that computes longer than this has held the event loop."""
_HANGING_SECONDS = 0.25
_LAST, _TOO_MANY = 10, 3


@dataclass(slots=True)
class Spent:
    """What a thread spends: wall and processor seconds, and how often it gave way by itself (waited for something)."""

    wall: float = 0.0
    computing: float = 0.0
    gave_way: int = 0

    @classmethod
    def now(cls) -> Spent:
        """Return the clocks of this thread; where its waits are not counted, there is always one more.

        Returns:
            A reading, of use only beside another one of the same thread.
        """
        waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if hasattr(resource, "RUSAGE_THREAD") else next(_COUNT)
        return cls(time.perf_counter(), time.thread_time(), waits)

    def add_since(self, begin: Spent) -> Spent:
        """Add what was spent since then.

        Args:
            begin: a reading of `now` in this thread.

        Returns:
            This object.
        """
        now = Spent.now()
        self.wall += now.wall - begin.wall
        self.computing += now.computing - begin.computing
        self.gave_way += now.gave_way - begin.gave_way
        return self


_COUNT = itertools.count()


class Pace:
    """Judges from calls in the event loop whether further calls of their kind belong into threads.

    They do when 3 of the last 10 have blocked or held the loop, or one has hung for a quarter of a second. The first call of all does not
    count: it opens files and fills caches. Once moved they stay moved: in threads, waiting for the interpreter's lock looks like blocking.
    """

    def __init__(self) -> None:
        self.slow = False
        self._first = True
        self._bad: deque[bool] = deque(maxlen=_LAST)

    def add(self, spent: Spent, heavy: bool = True) -> None:
        """Count a call.

        Args:
            spent: while it kept the event loop.
            heavy: whether computing alone counts as holding.
        """
        if self._first:
            self._first = False
            return
        blocked, computing = spent.wall - spent.computing, spent.computing
        waits = blocked > max(BLOCKED_SECONDS, 4 * computing) and spent.gave_way > 0
        self._bad.append(waits or (heavy and computing > HEAVY_SECONDS))
        self.slow = self.slow or sum(self._bad) >= _TOO_MANY or (waits and blocked > _HANGING_SECONDS)


class Timed:
    """Awaits a coroutine and adds up how long it keeps the event loop busy, without the time it waits.

    Args:
        coroutine: awaited once.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.spent = Spent()

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.coroutine.__await__()
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            begin = Spent.now()
            try:
                waits_for = resume()
            except StopIteration as end:
                return end.value
            finally:
                self.spent.add_since(begin)
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001  # cancellation and all else belong to the coroutine
                resume = partial(steps.throw, error)
            else:
                resume = partial(steps.send, value)


class EnvCalls:
    """Runs the calls of one environment.

    Args:
        pace: gives the measured pace of a kind of call ("make", "reset", "step"), shared by all environments of a kind.
        threads: for calls that block.
        deadline: the event loop's time at which waiting ends, or None.

    Attributes:
        seconds: spent in or waiting for the environment.
        broken: a call ended in an error, the deadline or a cancellation, so nobody knows the environment's state.
        left_behind: a call that still runs in its thread.
    """

    def __init__(self, pace: Callable[[str], Pace], threads: ThreadPoolExecutor, deadline: float | None = None) -> None:
        self.seconds = 0.0
        self.broken = False
        self.left_behind: Future[Any] | None = None
        self._pace = pace
        self._threads = threads
        self._deadline = deadline

    async def step(self, env: Any, action: Any, *, awaitable: bool) -> Any:
        """Step an environment.

        Args:
            env: a `StepRecorder`.
            action: as it takes it.
            awaitable: whether `can_await(env)` holds.

        Returns:
            What `env.step` returns.

        Raises:
            DeadlineReached: when the deadline passes first.
        """
        pace = self._pace("step")
        if not awaitable or pace.slow:
            return await self._in_thread("step", lambda: env.step(action))
        timed = Timed(env.astep(action))
        try:
            return await self.wait("step", timed)
        finally:
            pace.add(timed.spent)

    async def wait(self, name: str, awaitable: Awaitable[Any]) -> Any:
        """Await what holds nobody, until the deadline.

        Args:
            name: of the call, for the message.
            awaitable: of it.

        Returns:
            Its result.

        Raises:
            DeadlineReached: when the deadline passes first.
        """
        begin = time.perf_counter()
        try:
            if self._deadline is None:
                return await awaitable
            async with asyncio.timeout_at(self._deadline):
                return await awaitable
        except TimeoutError as error:
            self.broken = True
            if self._deadline is None or asyncio.get_running_loop().time() < self._deadline:
                raise
            raise DeadlineReached(f"the deadline passed during a {name}") from error
        except BaseException:
            self.broken = True
            raise
        finally:
            self.seconds += time.perf_counter() - begin

    async def call(self, name: str, call: Callable[[], Any], *, in_thread: bool = False) -> Any:
        """Run a short blocking call: in the event loop while calls of its kind are quick, else in a thread.

        Args:
            name: of its kind.
            call: takes no arguments.
            in_thread: never in the event loop.

        Returns:
            Its result.

        Raises:
            DeadlineReached: when the deadline passes first.
        """
        pace = self._pace(name)
        if pace.slow or in_thread:
            return await self._in_thread(name, call)
        begin = Spent.now()
        try:
            return call()
        except BaseException:
            self.broken = True
            raise
        finally:
            spent = Spent().add_since(begin)
            pace.add(spent, heavy=name != "make")  # a make that computes would not be faster in threads
            self.seconds += spent.wall

    async def _in_thread(self, name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        future = self._threads.submit(call)
        try:
            async with asyncio.timeout_at(self._deadline):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError as error:
            self.broken = True
            if not future.done():
                self.left_behind = future
                raise DeadlineReached(f"the deadline passed during a {name}") from error
            raise
        except asyncio.CancelledError:
            self.broken = True
            if not future.done():
                self.left_behind = future
            raise
        except BaseException:
            self.broken = True
            raise
        finally:
            self.seconds += time.perf_counter() - begin

    def close(self, env: gymnasium.Env[Any, Any]) -> None:
        """Close the environment; one that is still busy in a thread there, when it comes back.

        Args:
            env: the one whose calls these are.
        """
        if self.left_behind is not None:
            self.left_behind.add_done_callback(lambda _: env.close())
        else:
            env.close()
