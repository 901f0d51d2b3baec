"""Environments as a flow sees them: `RolloutEnv` awaits resets and steps, `EnvPool` makes environments and uses them again.

They live in this process, where `agent_gym.flows.pacing` decides how a call is run, or in workers (`agent_gym.flows.remote`), where the same rules
hold. The record of an episode is kept on this side in both cases: the ids that the policy sampled and their log-probabilities never travel.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agent_gym.core import EnvFault
from agent_gym.flows.base import Row, keyword_field, reset_field
from agent_gym.flows.pacing import EnvCalls, Pace
from agent_gym.flows.remote import RemoteEnv, Workers, make_row
from agent_gym.policies.base import Sampling
from agent_gym.trajectory import Generation, StopReason, Trajectory
from agent_gym.wrappers import StepRecorder, as_token_env, can_await

__all__ = ["EnvPool", "RolloutEnv"]


def _kind(row: Row) -> str:
    """The environments that may stand in for one another."""
    return json.dumps([row["env_id"], row["env_kwargs"]], sort_keys=True, default=repr)


class EnvPool:
    """Makes environments for rows and keeps them for the next row that asks for the same.

    Args:
        env_factory: (normalised row) -> environment; None makes `row["env_id"]` with `row["env_kwargs"]` through `gymnasium.make`.
        max_idle: the most idle environments of one kind that are kept, and half of those of all kinds together: where the rows of a file have
            keywords each of their own, those used longest ago are closed.
        workers: where the environments live: None for this process, or worker processes or Ray (`agent_gym.flows.open_workers`), which must have been
            given the same `env_factory`. The pool closes them.

    Attributes:
        made: environments made so far.
        workers: as given.
    """

    def __init__(
        self,
        env_factory: Callable[[dict[str, Any]], gymnasium.Env[Any, Any]] | None = None,
        *,
        max_idle: int = 256,
        workers: Workers | None = None,
    ) -> None:
        self._factory = env_factory or make_row
        self._max_idle = max_idle
        self._idle: dict[str, list[StepRecorder]] = {}
        self._paces: dict[tuple[str, str], Pace] = {}
        self.made = 0
        self.workers = workers

    def pace(self, kind: str, call: str) -> Pace:
        """Return the measured pace of one kind of call.

        Args:
            kind: of environments.
            call: "make", "reset" or "step".

        Returns:
            The pace, the same object each time.
        """
        return self._paces.setdefault((kind, call), Pace())

    def take(self, kind: str) -> StepRecorder | None:
        """Return an idle environment, or None; those whose worker has died are let go.

        Args:
            kind: of environments.

        Returns:
            The environment, which is the caller's until `give_back`; None where one must be made.
        """
        idle = self._idle.get(kind)
        while idle:
            env = idle.pop()
            if not isinstance(env.unwrapped, RemoteEnv) or env.unwrapped.alive:
                return env
        return None

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

    async def make_in_worker(self, row: dict[str, Any]) -> StepRecorder:
        """Make an environment in a worker, recorded here; only where the pool has workers.

        Args:
            row: a normalised row.

        Returns:
            The environment.

        Raises:
            agent_gym.flows.WorkerDied: if the worker died meanwhile.
        """
        assert self.workers is not None
        env = StepRecorder(await self.workers.make(row))
        self.made += 1
        return env

    def give_back(self, kind: str, env: StepRecorder) -> None:
        """Keep an environment for the next row, or close it when there are enough.

        Args:
            kind: of environments.
            env: from `take`, or made for this kind.
        """
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
        """Close all idle environments, and the workers; new ones are started when they are needed again."""
        idle, self._idle = self._idle, {}
        for envs in idle.values():
            for env in envs:
                env.close()
        if self.workers is not None:
            self.workers.close()


class RolloutEnv:
    """One environment of the pool while a flow uses it. Made by `make_env(row)`; nothing happens before `reset`.

    Args:
        row: the normalised row; kept as an attribute.
        pool: where the environment comes from and goes back to.
        threads: in which calls run that must not hold the event loop.
        sampling: the run's settings.
        deadline: the event loop's time at which waiting ends, or None.

    Attributes:
        row: the normalised row.
        session: a name for the policy's cache, new with each reset.
        beginning: it is being made or reset, or that failed.
    """

    def __init__(
        self, row: dict[str, Any], pool: EnvPool, threads: ThreadPoolExecutor, sampling: Sampling, deadline: float | None = None
    ) -> None:
        self.row = row
        self.session: object = object()
        self._pool = pool
        self._sampling = sampling
        self._kind = _kind(row)
        self._calls = EnvCalls(lambda name: pool.pace(self._kind, name), threads, deadline)
        self._env: StepRecorder | None = None
        self._awaitable = False
        self.beginning = False

    @property
    def seconds(self) -> float:
        """Seconds spent in or waiting for the environment."""
        return self._calls.seconds

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
        """The present prompt, without padding: int64, shape (n,)."""
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
        return replace(sampling, stop_token_ids=stops, max_tokens=min(sampling.max_tokens, space.max_length))  # type: ignore[attr-defined]  # a TokenBox

    async def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> NDArray[np.int64]:
        """Begin an episode.

        Args:
            seed: the row's when None.
            options: the row's when None.

        Returns:
            The first prompt, without padding: int64, shape (n,).
        """
        self.beginning = True
        if self._env is None:
            self._env = self._pool.take(self._kind)
        if self._env is None:
            with self._naming(lambda error: keyword_field(self.row["env_kwargs"], error)):
                if self._pool.workers is not None:
                    self._env = await self._calls.wait("make", self._pool.make_in_worker(self.row))
                else:
                    self._env = await self._calls.call("make", lambda: self._pool.make(self.row))
        self._awaitable = can_await(self._env)
        env, given = self._env, dict(self.row["options"] if options is None else options)
        env.group_id = self.row["group_id"]
        env.sampling = {**self.sampling(self._sampling).to_dict(), "seed": self._sampling.seed}
        chosen = self.row["seed"] if seed is None else seed
        self.session = object()
        with self._naming(lambda error: reset_field(self.row, error)):
            if isinstance(env.unwrapped, RemoteEnv):
                await self._calls.wait("reset", env.areset(seed=chosen, options=given or None))
            else:
                await self._calls.call("reset", lambda: env.reset(seed=chosen, options=given or None), in_thread=not self._awaitable)
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
        if isinstance(env.unwrapped, RemoteEnv):
            _, reward, terminated, truncated, info = await self._calls.wait("step", env.astep(action))
        else:
            _, reward, terminated, truncated, info = await self._calls.step(env, action, awaitable=self._awaitable)
        return float(reward), terminated, truncated, info

    def cut(self, reason: StopReason) -> None:
        """End the episode from outside, as a truncation of its last step.

        Args:
            reason: of the truncation.
        """
        if self._env is not None:
            self._env.cut(reason)

    def discard(self) -> None:
        """Have `release` close the environment: a world that broke is not used again."""
        self._calls.broken = True

    def release(self) -> None:
        """Give the environment back to the pool; one that broke, or is still busy in a thread, is closed."""
        env, self._env = self._env, None
        if env is None:
            return
        if self._calls.broken:
            self._calls.close(env)
        else:
            self._pool.give_back(self._kind, env)
