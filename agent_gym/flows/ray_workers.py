"""`RayWorkers`: environments on the machines of a Ray cluster (extra `ray`).

Each worker is an actor with one processor of the cluster, and actors are spread over its nodes. An actor hosts environments as a worker process does
(`agent_gym.flows.hosting`), and what dies with an actor or its node is begun again in the same way.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import gymnasium

from agent_gym.flows.remote import Worker, WorkerDied, Workers

try:
    import ray
except ImportError as error:
    raise ImportError(f'workers on Ray need Ray: pip install "agentr1-gym[ray]" ({error})') from error

__all__ = ["RayWorkers"]

_MOST_CALLS = 1000


class RayWorkers(Workers):
    """Actors on a Ray cluster. It is reached with the first environment, and left when the workers are closed if it was entered here.

    Args:
        address: of the cluster; None takes the one that this process has entered, else one that runs on this machine, else starts one.
        factory: see `Workers`. Its modules must be importable on every node.
        limit: the most actors at once; None takes the processors of the cluster that are free then.

    Raises:
        TypeError: if the factory cannot be sent.
    """

    grace = 10.0

    def __init__(
        self,
        address: str | None = None,
        factory: Callable[[dict[str, Any]], gymnasium.Env[Any, Any]] | None = None,
        *,
        limit: int | None = None,
    ) -> None:
        super().__init__(factory)
        self._address = address
        self._asked_limit = limit
        self._entered = False
        self._reached = False

    def _start(self) -> Worker:
        if not self._reached:
            if not ray.is_initialized():
                ray.init(address=self._address, log_to_driver=True, include_dashboard=None if self._address else False)
                self._entered = True
            self.limit = self._asked_limit or _free_processors()
            self._reached = True
        return _RayWorker(self._factory)

    def close(self) -> None:
        """End the actors, and leave the cluster if it was entered here; one that was started here ends with that."""
        super().close()
        if self._entered:
            ray.shutdown()
        self._entered = self._reached = False


def _free_processors() -> int:
    """How many processors of the cluster this process may take: what is free, shared out among the processes of a training.

    Raises:
        RuntimeError: where there is none: an actor would wait for one for ever.
    """
    free, all_of_them = ray.available_resources, ray.cluster_resources  # untyped
    sharing = max(1, int(os.environ.get("WORLD_SIZE", "1")))
    mine = int(cast(Any, free)().get("CPU", 0)) // sharing  # a resource of which nothing is left is not named at all
    if mine < 1:
        among = "" if sharing == 1 else f" for each of {sharing} processes"
        raise RuntimeError(
            f"the Ray cluster has no free processor{among} (it has {cast(Any, all_of_them)().get('CPU', 0):g}); end what holds them, or play with worker "
            "processes (workers=N)"
        )
    return mine


class _Actor:
    """What runs in an actor."""

    def __init__(self, factory: bytes) -> None:
        from agent_gym.flows.hosting import EnvHost

        self._host = EnvHost(factory)

    async def handle(self, request: bytes) -> bytes:
        return await self._host.handle(request)

    async def close(self) -> None:
        await self._host.close()

    async def place(self) -> tuple[str, int]:
        """Node and process number."""
        import os

        return str(ray.get_runtime_context().get_node_id()), os.getpid()


class _RayWorker(Worker):
    def __init__(self, factory: bytes) -> None:
        super().__init__()
        as_actor: Any = ray.remote  # typed for functions alone
        actor = as_actor(num_cpus=1, max_restarts=0, max_concurrency=_MOST_CALLS, scheduling_strategy="SPREAD")(_Actor)
        self._actor: Any = actor.remote(factory)
        self._alive = True
        self._closing: Any = None

    @property
    def alive(self) -> bool:
        return self._alive

    def place(self) -> tuple[str, int]:
        """Node and process number; waits for the actor's start."""
        node, process = ray.get(self._actor.place.remote())
        return node, process

    def submit(self, request: bytes) -> Future[bytes]:
        reply: Future[bytes] = Future()
        reply.set_running_or_notify_cancel()
        try:
            there = self._actor.handle.remote(request).future()
        except ray.exceptions.RayError as error:
            self._lose(reply, error)
        else:
            there.add_done_callback(lambda done: self._settle(reply, done))
        return reply

    def begin_close(self) -> None:
        if self._alive:
            with contextlib.suppress(ray.exceptions.RayError):
                self._closing = self._actor.close.remote()

    def close(self, seconds: float) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            if self._closing is not None:
                ray.wait([self._closing], timeout=seconds)
            ray.kill(self._actor)
        self._alive = False

    def _settle(self, reply: Future[bytes], done: Future[bytes]) -> None:
        error = done.exception()
        if error is None:
            reply.set_result(done.result())
        elif isinstance(error, ray.exceptions.RayError):
            self._lose(reply, error)
        else:
            reply.set_exception(error)

    def _lose(self, reply: Future[bytes], error: Exception) -> None:
        self._alive = False
        reply.set_exception(
            WorkerDied(f"the Ray actor died: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}")
        )
