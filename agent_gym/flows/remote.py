"""Environments in other processes, as a run sees them: `RemoteEnv` stands for one, `Workers` starts workers and deals environments to them.

A worker hosts many environments (`agent_gym.flows.hosting`). Only actions travel there and only prompts, rewards and infos come back; the record is kept
here. A worker that dies takes its environments with it: whatever was asked of them raises `WorkerDied`, an `EnvFault`, so the episode is begun again
within the budget of faults. The next environment gets a fresh worker.

| where the worker dies | what comes of it |
|---|---|
| in `make`, `reset`, `step` or a script | `WorkerDied`: the episodes that it hosted are begun again, with the same seed and options |
| while an environment is idle in the pool | nothing: `EnvPool.take` passes it by |
| in `close` | nothing: it was to go anyway |
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agent_gym.core import EnvFault
from agent_gym.flows.messages import pack, raise_packed, unpack, unpack_error
from agent_gym.spaces import TokenBox

__all__ = ["RemoteEnv", "Worker", "WorkerDied", "Workers", "make_row"]

_ROW_ADVICE = (
    "Give plain values (numbers, texts, lists, dictionaries), or make the object where the environment is made; or play without workers"
)
_FACTORY_ADVICE = "Make such objects inside the function or the environment, where the worker makes its own; or play without workers"
_ACTION_ADVICE = "Give token ids"
_SCRIPT_ADVICE = (
    "A script is run where the environment lives; write it as a function of (env, turn) without such objects; or play without workers"
)


class WorkerDied(EnvFault):
    """The process in which an environment lived is gone."""


class Worker(ABC):
    """One process that hosts environments.

    Attributes:
        hosted: how many environments live there.
    """

    def __init__(self) -> None:
        self.hosted = 0

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Nothing is known of its death."""

    @abstractmethod
    def submit(self, request: bytes) -> Future[bytes]:
        """Send a request of `EnvHost`.

        Args:
            request: packed.

        Returns:
            Of the packed reply; its exception is a `WorkerDied` where the worker dies first.
        """

    @abstractmethod
    def begin_close(self) -> None:
        """Ask the worker to close its environments and end, without waiting."""

    @abstractmethod
    def close(self, seconds: float) -> None:
        """End the worker for certain.

        Args:
            seconds: that it may take to end by itself, after `begin_close`.
        """


class Workers(ABC):
    """Starts workers as they are needed, up to a number, and puts each environment where the fewest live.

    Args:
        factory: (normalised row) -> environment; None makes `row["env_id"]` with `row["env_kwargs"]` through `gymnasium.make`.

    Attributes:
        limit: the most workers alive at once.

    Raises:
        TypeError: if the factory cannot be sent to another process, with the part that is to blame.
    """

    grace = 5.0
    """Seconds that the workers have to close their environments before they are ended."""

    def __init__(self, factory: Callable[[dict[str, Any]], gymnasium.Env[Any, Any]] | None = None) -> None:
        self.limit = 1
        self._factory = pack({"env_factory": factory or make_row}, _FACTORY_ADVICE, by_value=True)
        self._workers: list[Worker] = []
        weakref.finalize(self, _end_all, self._workers, self.grace)  # workers that nobody closed
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    @abstractmethod
    def _start(self) -> Worker:
        """Start a worker."""

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Those that are alive."""
        return tuple(worker for worker in self._workers if worker.alive)

    async def make(self, row: Mapping[str, Any]) -> RemoteEnv:
        """Make an environment.

        Args:
            row: a normalised row.

        Returns:
            What stands for it here.

        Raises:
            WorkerDied: if its worker died meanwhile.
            TypeError: if the row cannot be sent.
        """
        number = next(self._numbers)
        request = pack({"operation": "make", "number": number, "row": dict(row), "spec": _spec_of(row)}, _ROW_ADVICE, by_value=True)
        worker = self._choose()
        try:
            reply = _opened(await asyncio.wrap_future(worker.submit(request)))
        except BaseException:  # the deadline, too
            self._forget(worker, number)
            raise
        return RemoteEnv(reply["described"], worker, number, self._forget)

    def _choose(self) -> Worker:
        with self._lock:
            for gone in [worker for worker in self._workers if not worker.alive]:
                self._workers.remove(gone)
                gone.close(0.0)
            if len(self._workers) < self.limit and all(worker.hosted for worker in self._workers):
                self._workers.append(self._start())
            worker = min(self._workers, key=lambda one: one.hosted)
            worker.hosted += 1
            return worker

    def _forget(self, worker: Worker, number: int) -> None:
        """Have an environment closed, whatever it does at present; nobody waits for it."""
        with self._lock:
            worker.hosted -= 1
        if worker.alive:
            worker.submit(pack({"operation": "close", "number": number}))

    def close(self) -> None:
        """End all workers, their environments closed, and whatever processes those have started. New ones are started when they are needed again."""
        with self._lock:
            _end_all(self._workers, self.grace)


def _end_all(workers: list[Worker], grace: float) -> None:
    """End workers, side by side, and take them off the list."""
    for worker in workers:
        worker.begin_close()
    ends = time.monotonic() + grace
    while workers:
        workers[-1].close(max(0.0, ends - time.monotonic()))
        workers.pop()


class RemoteEnv(gymnasium.Env[NDArray[np.int64], Any]):
    """Stands for an environment in a worker. A `StepRecorder` around it keeps the record.

    What a script would ask of the environment itself is asked there: `await env.arun(function, ...)`.

    Args:
        described: by the worker.
        worker: where it lives.
        number: its name there.
        forget: called once when it is closed.

    Attributes:
        recorded_as: id and keywords under which it is recorded.
        tokenizer_fingerprint: of its tokenizer.
        end_of_turn_ids: at which a policy stops; missing where the environment names none.
        fault: what ended the episode, where the world broke; else None.
    """

    def __init__(self, described: Mapping[str, Any], worker: Worker, number: int, forget: Callable[[Worker, int], None]) -> None:
        spaces: list[Any] = [TokenBox(*sizes) for sizes in described["spaces"]]
        self.observation_space, self.action_space = spaces
        self.recorded_as: tuple[str, dict[str, Any]] = described["recorded_as"]
        self.tokenizer_fingerprint: str = described["tokenizer_fingerprint"]
        self.metric_names: tuple[str, ...] = described["metric_names"]
        if described["end_of_turn_ids"] is not None:
            self.end_of_turn_ids: tuple[int, ...] = described["end_of_turn_ids"]
        if described["takes_unpadded"]:
            self.encode_action = self._encode_action
        self.fault: BaseException | None = None
        self._name: str = described["name"]
        self._worker = worker
        self._number = number
        self._forget = forget
        self._ids = np.empty(0, dtype=np.int64)
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name!r} is not known here: the environment lives in a worker process. Have it asked there, by `await env.arun(function)` with a "
            "function of the environment, or play without workers"
        )

    def __str__(self) -> str:
        return f"<RemoteEnv of {self._name}>"

    @property
    def alive(self) -> bool:
        """Its worker lives."""
        return self._worker.alive

    async def areset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Reset the environment.

        Args:
            seed: as in `reset`.
            options: as in `reset`.

        Returns:
            As `reset`: int64 ids of shape (max_length,), and info.

        Raises:
            WorkerDied: if the worker died.
        """
        return self._began(await self._ask("reset", _ROW_ADVICE, seed=seed, options=options))

    async def astep(self, action: Any) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        """Step the environment.

        Args:
            action: as in `step`.

        Returns:
            As `step`, with int64 ids of shape (max_length,).

        Raises:
            WorkerDied: if the worker died.
        """
        return self._stepped(await self._ask("step", _ACTION_ADVICE, action=action))

    async def arun(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function in the worker.

        Args:
            function: of the unwrapped environment and the arguments. It travels as a copy: what it changes outside the environment stays there.
            arguments: of the function.

        Returns:
            What it returns.

        Raises:
            WorkerDied: if the worker died.
        """
        reply = await self._ask("run", _SCRIPT_ADVICE, function=function, arguments=arguments)
        return reply["result"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[NDArray[np.int64], dict[str, Any]]:
        """Reset the environment, and wait.

        Args:
            seed: of the environment.
            options: of the environment.

        Returns:
            What the environment returns: int64 ids of shape (max_length,), and info.
        """
        return self._began(_opened(self._send("reset", _ROW_ADVICE, seed=seed, options=options).result()))

    def step(self, action: Any) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        """Step the environment, and wait.

        Args:
            action: as the environment takes it.

        Returns:
            What the environment returns: int64 ids of shape (max_length,), numbers as Python's, and info.
        """
        return self._stepped(_opened(self._send("step", _ACTION_ADVICE, action=action).result()))

    def close(self) -> None:
        """Have the environment closed; does not wait for it."""
        if not self._closed:
            self._closed = True
            self._forget(self._worker, self._number)

    def _encode_action(self, text: str) -> list[int]:
        ids: list[int] = _opened(self._send("run", "", function=_encode, arguments=(text,)).result())["result"]
        return ids

    async def _ask(self, operation: str, advice: str, **parts: Any) -> dict[str, Any]:
        return _opened(await asyncio.wrap_future(self._send(operation, advice, **parts)))

    def _send(self, operation: str, advice: str, **parts: Any) -> Future[bytes]:
        by_value = operation != "step"
        return self._worker.submit(pack({"operation": operation, "number": self._number, **parts}, advice, by_value=by_value))

    def _began(self, reply: Mapping[str, Any]) -> tuple[NDArray[np.int64], dict[str, Any]]:
        self.fault = None
        observation = self._observation(reply["kept"], reply["ids"])
        return observation, {**reply["info"], "observation_length": len(self._ids)}

    def _stepped(self, reply: Mapping[str, Any]) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        observation, info = self._began(reply)
        self.fault = None if reply["fault"] is None else unpack_error(reply["fault"])
        return observation, reply["reward"], reply["terminated"], reply["truncated"], info

    def _observation(self, kept: int, ids: bytes) -> NDArray[np.int64]:
        self._ids = np.concatenate([self._ids[:kept], np.frombuffer(ids, dtype=np.int64)])
        space: TokenBox = self.observation_space  # type: ignore[assignment]  # set above
        return space.pad(self._ids)


def make_row(row: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Make the environment of a row through `gymnasium.make`.

    Args:
        row: a normalised row.

    Returns:
        The environment.

    Raises:
        ValueError: if the row names none.
    """
    if not row["env_id"]:
        raise ValueError("a row without env_id needs run_rows(..., env_factory=...)")
    env: gymnasium.Env[Any, Any] = gymnasium.make(row["env_id"], **row["env_kwargs"])
    return env


def _spec_of(row: Mapping[str, Any]) -> Any:
    """How an id is registered that a worker may not know, since a script of the caller's has registered it."""
    spec = gymnasium.registry.get(row["env_id"])
    return None if spec is None or spec.namespace == "AgentR1" else spec


def _opened(reply: bytes) -> dict[str, Any]:
    """What came of a request; raises what was raised there."""
    opened: dict[str, Any] = unpack(reply)
    if not opened["done"]:
        raise_packed(opened["error"])
    return opened


def _encode(env: Any, text: str) -> list[int]:
    return [int(one) for one in env.encode_action(text)]
