"""Environments as a flow sees them: `RolloutEnv` awaits resets and steps, `EnvPool` makes environments and uses them again.

How a step is run is decided per environment and never changes what comes of it:

* A chain that can be awaited (`agent_gym.wrappers.can_await`) is stepped in the event loop: its waiting tools hold nobody, and a cheap
  step costs no thread (a hop to a worker thread and back costs 100 microseconds and more, a step of most environments less).
* How long such an environment keeps the event loop is measured; one that blocks (a web request, a pause) or computes for long moves to
  worker threads.
* Any other chain is stepped in a worker thread, since its wrappers know only `step`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agent_gym.core import EnvFault
from agent_gym.flows.base import DeadlineReached, Row, keyword_field, reset_field
from agent_gym.policies.base import Sampling
from agent_gym.trajectory import Generation, StopReason, Trajectory
from agent_gym.wrappers import StepRecorder, as_token_env, can_await

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

__all__ = ["EnvPool", "RolloutEnv"]

BLOCKED_SECONDS = 0.005 if hasattr(resource, "RUSAGE_THREAD") else 0.02
"""A call that waits longer than this without computing has blocked the event loop. Where the system counts how often a thread gave its
processor away by itself, a thread that lost it to other programs on a loaded machine is not mistaken for one that waits."""
HEAVY_SECONDS = 0.05
"""A call that computes longer than this has held the event loop."""
_HANGING_SECONDS = 0.25
_LAST, _TOO_MANY = 10, 3


@dataclass(slots=True)
class _Spent:
    """What a thread spends: wall and processor seconds, and how often it gave way by itself (waited for something)."""

    wall: float = 0.0
    computing: float = 0.0
    gave_way: int = 0

    @classmethod
    def now(cls) -> _Spent:
        """Return the clocks of this thread; where its waits are not counted, there is always one more."""
        waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw if hasattr(resource, "RUSAGE_THREAD") else next(_COUNT)
        return cls(time.perf_counter(), time.thread_time(), waits)

    def add_since(self, begin: _Spent) -> _Spent:
        """Add what was spent since then."""
        now = _Spent.now()
        self.wall += now.wall - begin.wall
        self.computing += now.computing - begin.computing
        self.gave_way += now.gave_way - begin.gave_way
        return self


_COUNT = itertools.count()


class _Pace:
    """Judges from calls in the event loop whether further calls of their kind belong into threads.

    They do when 3 of the last 10 have blocked or held the loop, or one has hung for a quarter of a second. The first call of all does not
    count: it opens files and fills caches. Once moved they stay moved: in threads, waiting for the interpreter's lock looks like blocking.
    """

    def __init__(self) -> None:
        self.slow = False
        self._first = True
        self._bad: deque[bool] = deque(maxlen=_LAST)

    def add(self, spent: _Spent, heavy: bool = True) -> None:
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


class _Timed:
    """Awaits a coroutine and adds up how long it keeps the event loop busy, without the time it waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.coroutine = coroutine
        self.spent = _Spent()

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.coroutine.__await__()
        resume: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            begin = _Spent.now()
            try:
                waits_for = resume()
            except StopIteration as end:
                return end.value
            finally:
                self.spent.add_since(begin)
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001  # cancellation and all else belong to the coroutine
                thrown = error
                resume = lambda thrown=thrown: steps.throw(thrown)  # type: ignore[misc]  # noqa: E731
            else:
                resume = lambda value=value: steps.send(value)  # type: ignore[misc]  # noqa: E731


def _kind(row: Row) -> str:
    """The environments that may stand in for one another."""
    return json.dumps([row["env_id"], row["env_kwargs"]], sort_keys=True, default=repr)


class EnvPool:
    """Makes environments for rows and keeps them for the next row that asks for the same.

    Args:
        env_factory: (normalised row) -> environment; None makes `row["env_id"]` with `row["env_kwargs"]` through `gymnasium.make`.
        max_idle: the most idle environments of one kind that are kept, and half of those of all kinds together: where the rows of a file have
            keywords each of their own, those used longest ago are closed.
    """

    def __init__(self, env_factory: Callable[[dict[str, Any]], gymnasium.Env[Any, Any]] | None = None, *, max_idle: int = 256) -> None:
        self._factory = env_factory or _make
        self._max_idle = max_idle
        self._idle: dict[str, list[StepRecorder]] = {}
        self._paces: dict[tuple[str, str], _Pace] = {}
        self.made = 0

    def pace(self, kind: str, call: str) -> _Pace:
        """Return the measured pace of one kind of call."""
        return self._paces.setdefault((kind, call), _Pace())

    def take(self, kind: str) -> StepRecorder | None:
        """Return an idle environment, or None."""
        idle = self._idle.get(kind)
        return idle.pop() if idle else None

    def make(self, row: dict[str, Any]) -> StepRecorder:
        """Make an environment, over token ids and recorded.

        Args:
            row: a normalised row.

        Returns:
            The environment.
        """
        env = as_token_env(self._factory(row))
        self.made += 1
        return env if isinstance(env, StepRecorder) else StepRecorder(env)

    def give_back(self, kind: str, env: StepRecorder) -> None:
        """Keep an environment for the next row, or close it when there are enough."""
        idle = self._idle.pop(kind, [])
        self._idle[kind] = idle  # the kind used last stands last
        if len(idle) < self._max_idle:
            idle.append(env)
        else:
            env.close()
        while sum(map(len, self._idle.values())) > 2 * self._max_idle:
            oldest = next(iter(self._idle))
            if not self._idle[oldest]:
                del self._idle[oldest]
                continue
            self._idle[oldest].pop(0).close()

    def close(self) -> None:
        """Close all idle environments."""
        idle, self._idle = self._idle, {}
        for envs in idle.values():
            for env in envs:
                env.close()


def _make(row: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    if not row["env_id"]:
        raise ValueError("a row without env_id needs run_rows(..., env_factory=...)")
    env: gymnasium.Env[Any, Any] = gymnasium.make(row["env_id"], **row["env_kwargs"])
    return env


class RolloutEnv:
    """One environment of the pool while a flow uses it. Made by `make_env(row)`; nothing happens before `reset`.

    Attributes:
        row: the normalised row.
        session: a name for the policy's cache, new with each reset.
        seconds: spent in or waiting for the environment.
        beginning: it is being made or reset, or that failed.
    """

    def __init__(
        self, row: dict[str, Any], pool: EnvPool, threads: ThreadPoolExecutor, sampling: Sampling, deadline: float | None = None
    ) -> None:
        self.row = row
        self.session: object = object()
        self.seconds = 0.0
        self._pool = pool
        self._threads = threads
        self._sampling = sampling
        self._deadline = deadline
        self._kind = _kind(row)
        self._env: StepRecorder | None = None
        self._awaitable = False
        self._left_behind: Future[Any] | None = None
        self._broken = False
        self.beginning = False

    @property
    def env(self) -> StepRecorder:
        """The recorded environment.

        Raises:
            RuntimeError: before the first reset.
        """
        if self._env is None:
            raise RuntimeError("await env.reset() first")
        return self._env

    @property
    def started(self) -> bool:
        """An environment stands behind it (`reset` was called)."""
        return self._env is not None

    @property
    def fault(self) -> EnvFault | None:
        """The fault that ended the episode, None where none did or the environment does not say."""
        met = None if self._env is None else getattr(self._env.unwrapped, "fault", None)
        return met if isinstance(met, EnvFault) else None

    @property
    def prompt_ids(self) -> NDArray[np.int64]:
        """The present prompt, without padding."""
        return self.env.prompt_ids

    @property
    def running(self) -> bool:
        """The episode goes on."""
        return self._env is not None and self._env.running

    @property
    def trajectory(self) -> Trajectory:
        """The episode so far, under the row's names."""
        trajectory = self.env.trajectory
        if self.row["env_id"]:
            trajectory = replace(trajectory, env_id=self.row["env_id"], env_kwargs=self.row["env_kwargs"])
        return trajectory

    def sampling(self, sampling: Sampling) -> Sampling:
        """Return sampling settings with this environment's limits.

        Args:
            sampling: the run's settings.

        Returns:
            The same, stopping at the environment's end-of-turn ids unless others are named, and never longer than its action space.
        """
        space, stops = self.env.action_space, sampling.stop_token_ids
        if not stops:
            stops = tuple(getattr(self.env.unwrapped, "end_of_turn_ids", ()))
        return replace(sampling, stop_token_ids=stops, max_tokens=min(sampling.max_tokens, space.max_length))  # type: ignore[attr-defined]

    async def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> NDArray[np.int64]:
        """Begin an episode.

        Args:
            seed: the row's when None.
            options: the row's when None.

        Returns:
            The first prompt, without padding.
        """
        self.beginning = True
        if self._env is None:
            self._env = self._pool.take(self._kind)
        if self._env is None:
            with self._naming(lambda error: keyword_field(self.row["env_kwargs"], error)):
                self._env = await self._call("make", lambda: self._pool.make(self.row))
        self._awaitable = can_await(self._env)
        env, given = self._env, dict(self.row["options"] if options is None else options)
        env.group_id = self.row["group_id"]
        env.sampling = {**self.sampling(self._sampling).to_dict(), "seed": self._sampling.seed}
        chosen = self.row["seed"] if seed is None else seed
        self.session = object()
        with self._naming(lambda error: reset_field(self.row, error)):
            await self._call("reset", lambda: env.reset(seed=chosen, options=given or None))
        self.beginning = False
        return env.prompt_ids

    @contextmanager
    def _naming(self, field: Callable[[Exception], str]) -> Iterator[None]:
        """Say of which row of a file an environment could not be made or reset: whoever wrote the row wants to know."""
        try:
            yield
        except (ValueError, TypeError, LookupError, OSError, ImportError) as error:
            where = self.row.get("where")
            if not where:
                raise
            words = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise ValueError(f"{where}: {field(error)}{words}") from error

    async def step(self, action: Generation | Any) -> tuple[float, bool, bool, dict[str, Any]]:
        """Act.

        Args:
            action: a `Generation` or ids. A `Generation` without ids that ended for its length or the context had no room: the episode is truncated by
                CONTEXT_LIMIT, and the environment is not stepped.

        Returns:
            Reward, terminated, truncated and info; the next prompt stands in `prompt_ids`.

        Raises:
            DeadlineReached: when the deadline passes first; the environment is thrown away then.
        """
        env = self.env
        if isinstance(action, Generation) and not len(action.token_ids) and action.finish_reason in ("context", "length"):
            _, reward, terminated, truncated, info = env.unanswered(action)
            return float(reward), terminated, truncated, info
        pace = self._pool.pace(self._kind, "step")
        if self._awaitable and not pace.slow:
            begin = time.perf_counter()
            timed = _Timed(env.astep(action))
            try:
                if self._deadline is None:
                    _, reward, terminated, truncated, info = await timed
                else:
                    async with asyncio.timeout_at(self._deadline):
                        _, reward, terminated, truncated, info = await timed
            except TimeoutError as error:
                self._broken = True
                if self._deadline is None or asyncio.get_running_loop().time() < self._deadline:
                    raise
                raise DeadlineReached("the deadline passed during a step") from error
            except BaseException:
                self._broken = True
                raise
            finally:
                pace.add(timed.spent)
                self.seconds += time.perf_counter() - begin
        else:
            _, reward, terminated, truncated, info = await self._in_thread("step", lambda: env.step(action))
        return float(reward), terminated, truncated, info

    async def _call(self, name: str, call: Callable[[], Any]) -> Any:
        """Run a short blocking call: in the event loop while calls of its kind are quick, else in a thread."""
        pace = self._pool.pace(self._kind, name)
        if pace.slow or (name == "reset" and not self._awaitable):
            return await self._in_thread(name, call)
        begin = _Spent.now()
        try:
            return call()
        except BaseException:
            self._broken = True
            raise
        finally:
            spent = _Spent().add_since(begin)
            pace.add(spent, heavy=name != "make")  # a make that computes would not be faster in threads
            self.seconds += spent.wall

    async def _in_thread(self, name: str, call: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        future = self._threads.submit(call)
        try:
            async with asyncio.timeout_at(self._deadline):
                return await asyncio.shield(asyncio.wrap_future(future))
        except TimeoutError as error:
            self._broken = True
            if not future.done():
                self._left_behind = future
                raise DeadlineReached(f"the deadline passed during a {name}") from error
            raise
        except asyncio.CancelledError:
            self._broken = True
            if not future.done():
                self._left_behind = future
            raise
        except BaseException:
            self._broken = True
            raise
        finally:
            self.seconds += time.perf_counter() - begin

    def cut(self, reason: StopReason) -> None:
        """End the episode from outside, as a truncation of its last step."""
        if self._env is not None:
            self._env.cut(reason)

    def discard(self) -> None:
        """Have `release` close the environment: a world that broke is not used again."""
        self._broken = True

    def release(self) -> None:
        """Give the environment back to the pool; one that broke, or is still busy in a thread, is closed."""
        env, self._env = self._env, None
        if env is None:
            return
        if self._left_behind is not None:
            self._left_behind.add_done_callback(lambda _: env.close())  # in its thread, when it comes back
        elif self._broken:
            env.close()
        else:
            self._pool.give_back(self._kind, env)
