"""`run_rows`: many rows at once, with faults begun again, counted and bounded."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import gymnasium

from agent_gym.core import EnvFault
from agent_gym.flows.base import AgentFlowBase, DeadlineReached, Row, RowPolicy, get_flow, normalize_row
from agent_gym.flows.environment import EnvPool, RolloutEnv
from agent_gym.flows.remote import Workers
from agent_gym.flows.workers import open_workers
from agent_gym.policies.base import Policy, Sampling, derive_seed
from agent_gym.trajectory import StopReason, Trajectory

__all__ = ["DroppedRow", "FaultMonitor", "RolloutResult", "TooManyFaults", "arun_rows", "run_rows"]

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class TooManyFaults(RuntimeError):
    """The world breaks so often that going on would train or measure on what is left of it."""


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A row whose every attempt met a fault of the environment.

    Attributes:
        row_index: its place among the rows.
        task_id: the environment's name of the task, empty where the reset failed.
        reason: the last fault in words.
        attempts: how often it was begun.
    """

    row_index: int
    task_id: str
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """What came of the rows.

    Attributes:
        trajectories: in the order of the rows; a branching flow gives several per row.
        row_indices: the row of each trajectory.
        dropped: rows lost to faults.
        unfinished: rows that the deadline kept from a first finished step.
        retries: attempts that met a fault and were begun again.
        faults_by_task: faults (retried ones included) by task.
        seconds: "wall" of the whole call; "policy" and "env" summed over the episodes, which wait side by side.
    """

    trajectories: tuple[Trajectory, ...]
    row_indices: tuple[int, ...]
    dropped: tuple[DroppedRow, ...] = ()
    unfinished: tuple[int, ...] = ()
    retries: int = 0
    faults_by_task: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class FaultMonitor:
    """Watches the share of episodes that are dropped after their retries, over calls of `run_rows` when it is passed to each.

    Args:
        on_fault: "drop" goes on without the row, warns above `warn_above` and stops above `stop_above`; "stop" stops at the first drop.
        window: shares are of this many last episodes (also while fewer have been played, so that a first fault is no alarm).
        warn_above: share at which it warns.
        stop_above: share at which it raises.

    Raises:
        ValueError: for another `on_fault`.
    """

    def __init__(self, on_fault: str = "drop", *, window: int = 200, warn_above: float = 0.05, stop_above: float = 0.20) -> None:
        if on_fault not in ("drop", "stop"):
            raise ValueError(f"on_fault must be 'drop' or 'stop', not {on_fault!r}")
        self.on_fault = on_fault
        self.window = window
        self.warn_above, self.stop_above = warn_above, stop_above
        self.dropped_by_task: Counter[str] = Counter()
        self._last: deque[bool] = deque(maxlen=window)
        self._warned = False

    @property
    def rate(self) -> float:
        """The share of dropped episodes among the last `window`."""
        return sum(self._last) / self.window

    def played(self) -> None:
        """Count an episode that was kept."""
        self._last.append(False)
        if self.rate <= self.warn_above:
            self._warned = False

    def dropped(self, row: DroppedRow, *, log: bool = True) -> None:
        """Count a dropped episode.

        Args:
            row: what is known of it.
            log: write it into the log.

        Raises:
            TooManyFaults: when the run should stop.
        """
        self._last.append(True)
        self.dropped_by_task[row.task_id] += 1
        what = f"task {row.task_id!r} (row {row.row_index}) was dropped after {row.attempts} attempts: {row.reason}"
        if log:
            _log.warning("%s; drop rate %.1f %%", what, 100 * self.rate)
        if self.on_fault == "stop":
            raise TooManyFaults(f"{what}. on_fault='stop' stops at the first; repair the environment, or use on_fault='drop'")
        often = ", ".join(f"{task or 'reset'} ({count})" for task, count in self.dropped_by_task.most_common(3))
        if self.rate > self.stop_above:
            raise TooManyFaults(
                f"{sum(self._last)} of the last {self.window} episodes were dropped, above {self.stop_above:.0%}; most often: {often}. Last: {what}"
            )
        if self.rate > self.warn_above and not self._warned:
            self._warned = True
            warnings.warn(
                f"{sum(self._last)} of the last {self.window} episodes were dropped, above {self.warn_above:.0%}; most often: {often}",
                stacklevel=2,
            )


def run_rows(rows: Iterable[Row], policy: Policy, **settings: Any) -> RolloutResult:
    """Play rows with a policy, many at once, and wait for the result. Works inside a running event loop too (Jupyter), in a thread then.

    Args:
        rows: `{"env_id", "env_kwargs", "seed"}`, optionally `options`, `group_id` and `agent_name` (a flow of its own).
        policy: any policy.
        settings: those of `arun_rows`.

    Returns:
        The result. On Ctrl-C all environments are closed before KeyboardInterrupt goes on.
    """
    return _run_sync(lambda: arun_rows(rows, policy, **settings))


async def arun_rows(
    rows: Iterable[Row],
    policy: Policy,
    *,
    sampling: Sampling | None = None,
    flow: str | AgentFlowBase = "agent_env_loop",
    max_concurrency: int = 64,
    env_factory: Callable[[dict[str, Any]], gymnasium.Env[Any, Any]] | None = None,
    pool: EnvPool | None = None,
    seed: int = 0,
    first_row: int = 0,
    deadline: float | None = None,
    max_fault_retries: int = 2,
    on_fault: str = "drop",
    monitor: FaultMonitor | None = None,
    on_episode: Callable[[int, Sequence[Trajectory]], None] | None = None,
    workers: int | str | Workers | None = None,
) -> RolloutResult:
    """Play rows with a policy, many at once.

    Args:
        rows: as in `run_rows`.
        policy: any policy.
        sampling: its settings. Without stop ids an episode stops at its environment's end-of-turn ids; replies are never longer than the
            action space. A seed here would be the same for all requests and is refused.
        flow: a registered name or a flow; a row's `agent_name` goes before it.
        max_concurrency: rows in flight.
        env_factory: (normalised row) -> environment, used in place of `gymnasium.make`.
        pool: environments of earlier calls, kept open, with an env_factory of its own; None makes a pool for this call and closes it.
        seed: of the run. Each request's seed is derived from it, the row, the retry and the request's number, so give every call of a
            training run another one.
        first_row: the number of the first row among those that several processes share: each row then has the seeds that it has in one process.
        deadline: seconds after which nothing new is begun and running episodes are cut.
        max_fault_retries: how often a row that met a fault is begun again, with the same seed and options and new sampling seeds.
        on_fault: see `FaultMonitor`; unused when `monitor` is given.
        monitor: watches the drop rate over several calls.
        on_episode: called with the row's index and its trajectories as rows are finished.
        workers: where the environments live: None or 0 for this process; a number of worker processes, "ray", or the address of a Ray cluster. The
            trajectories are the same. A worker that dies costs the episodes it hosts a retry. A pool brings its own.

    Returns:
        The result.

    Raises:
        TooManyFaults: see `FaultMonitor`; without a `monitor`, also when there were several rows and every one was dropped.
        ValueError: for an unusable setting or row.
        TypeError: if something cannot be sent to a worker, with the part that is to blame.
    """
    if pool is not None and workers:
        raise ValueError(
            "a pool's environments live where it was told: pass EnvPool(env_factory, workers=open_workers(...)), or workers alone"
        )
    if pool is not None and env_factory is not None:
        raise ValueError("a pool makes its environments by its own env_factory: pass EnvPool(env_factory), or env_factory alone")
    sampling = sampling or Sampling()
    if sampling.seed is not None:
        raise ValueError("sampling.seed would give every request the same random numbers; leave it None and pass seed=... of the run")
    if max_concurrency < 1 or max_fault_retries < 0:
        raise ValueError(
            f"max_concurrency must be positive and max_fault_retries not negative, not {max_concurrency} and {max_fault_retries}"
        )
    run = _Run(
        rows=[normalize_row(row, needs_env=pool is None and env_factory is None) for row in rows],
        policy=policy,
        sampling=sampling,
        flow=flow,
        pool=pool or EnvPool(env_factory, max_idle=max_concurrency, workers=open_workers(workers, env_factory)),
        seed=seed,
        first_row=first_row,
        deadline=None if deadline is None else asyncio.get_running_loop().time() + deadline,
        max_fault_retries=max_fault_retries,
        monitor=monitor or FaultMonitor(on_fault),
        on_episode=on_episode,
        threads=ThreadPoolExecutor(max_concurrency, thread_name_prefix="agent-gym-env"),
    )
    begin = time.perf_counter()
    workers = [asyncio.create_task(run.work()) for _ in range(min(max_concurrency, len(run.rows)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        run.threads.shutdown(wait=False, cancel_futures=True)
        if pool is None:
            run.pool.close()
    if monitor is None and len(run.rows) > 1 and len(run.dropped) == len(run.rows):
        last = run.dropped[-1]
        raise TooManyFaults(f"every one of the {len(run.rows)} rows was dropped; the last, task {last.task_id!r}: {last.reason}")
    pairs = [(index, trajectory) for index in sorted(run.done) for trajectory in run.done[index]]
    return RolloutResult(
        trajectories=tuple(trajectory for _, trajectory in pairs),
        row_indices=tuple(index for index, _ in pairs),
        dropped=tuple(sorted(run.dropped, key=lambda row: row.row_index)),
        unfinished=tuple(sorted(run.unfinished)),
        retries=run.retries,
        faults_by_task=dict(run.faults),
        seconds={"wall": time.perf_counter() - begin, "policy": run.policy_seconds, "env": run.env_seconds},
    )


@dataclass
class _Run:
    """The state of one `arun_rows`."""

    rows: list[dict[str, Any]]
    policy: Policy
    sampling: Sampling
    flow: str | AgentFlowBase
    pool: EnvPool
    seed: int
    first_row: int
    deadline: float | None
    max_fault_retries: int
    monitor: FaultMonitor
    on_episode: Callable[[int, Sequence[Trajectory]], None] | None
    threads: ThreadPoolExecutor
    next_row: int = 0
    done: dict[int, list[Trajectory]] = field(default_factory=dict)
    dropped: list[DroppedRow] = field(default_factory=list)
    unfinished: list[int] = field(default_factory=list)
    retries: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    policy_seconds: float = 0.0
    env_seconds: float = 0.0

    async def work(self) -> None:
        """Play rows until there are none left."""
        while self.next_row < len(self.rows):
            index, self.next_row = self.next_row, self.next_row + 1
            await asyncio.sleep(0)  # where no row ever waits, the loop would hear Ctrl-C after the last one alone
            if self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline:
                self.unfinished.append(index)
                continue
            try:
                await self.play(index)
            except Exception as error:
                row = self.rows[index]
                error.add_note(
                    f"while playing row {index}: env_id={row['env_id']!r}, env_kwargs={row['env_kwargs']!r}, seed={row['seed']!r}"
                )
                raise

    async def play(self, index: int) -> None:
        """Play one row, again after faults."""
        task, reason = "", ""
        for attempt in range(self.max_fault_retries + 1):
            trajectories, task, reason = await self.attempt(index, attempt)
            if trajectories is None:
                self.unfinished.append(index)
                return
            if not reason:
                self.done[index] = trajectories
                self.monitor.played()
                if self.on_episode is not None:
                    self.on_episode(index, trajectories)
                return
            self.faults[task] += 1
            self.retries += attempt < self.max_fault_retries
            _log.info("task %r (row %d) met a fault in attempt %d: %s", task, index, attempt + 1, reason)
        row = DroppedRow(index, task, reason, self.max_fault_retries + 1)
        self.dropped.append(row)
        self.monitor.dropped(row)

    async def attempt(self, index: int, attempt: int) -> tuple[list[Trajectory] | None, str, str]:
        """Run the flow once. Returns the trajectories (None at the deadline), the task, and the fault in words if there was one."""
        row = self.rows[index]
        policy = RowPolicy(self.policy, self.sampling, derive_seed(self.seed, self.first_row + index, attempt), self.deadline)
        used: list[RolloutEnv] = []

        def make_env(asked: Row) -> RolloutEnv:
            env = RolloutEnv(normalize_row(asked, needs_env=False), self.pool, self.threads, self.sampling, self.deadline)
            used.append(env)
            return env

        try:
            trajectories = await get_flow(row.get("agent_name") or self.flow).run(row, policy, make_env)
        except DeadlineReached:
            return None, "", ""
        except EnvFault as fault:
            task = next((env.trajectory.task_id for env in used if env.started), "")
            for env in used:
                env.discard()
            return [], task, str(fault) or type(fault).__name__
        finally:
            policy.forget_all()
            self.policy_seconds += policy.seconds
            self.env_seconds += sum(env.seconds for env in used)
            for env in used:
                if env.started and env.trajectory.stop_reason is StopReason.ENV_FAULT:
                    env.discard()
                env.release()
        broken = next((trajectory for trajectory in trajectories if trajectory.stop_reason is StopReason.ENV_FAULT), None)
        if broken is not None:
            return [], broken.task_id, broken.steps[-1].feedback or "environment fault"
        if not trajectories and self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline:
            return None, "", ""
        return trajectories, trajectories[0].task_id if trajectories else "", ""


def _run_sync(make: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Run a coroutine to its end, whether or not this thread has a running event loop."""
    outcome: list[_Result] = []
    failure: list[BaseException] = []
    started: dict[str, Any] = {}

    async def main() -> None:
        # The result goes out by the side: asyncio's signal handling takes the repr of the main task, with all arrays of its result.
        started["loop"], started["task"] = asyncio.get_running_loop(), asyncio.current_task()
        outcome.append(await make())

    def target() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # noqa: BLE001  # raised again in the calling thread
            failure.append(error)

    try:
        asyncio.get_running_loop()
        running = True
    except RuntimeError:
        running = False
    if not running:
        asyncio.run(main())
        return outcome[0]
    thread = threading.Thread(target=target, name="agent-gym-rollout")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        if started:
            started["loop"].call_soon_threadsafe(started["task"].cancel)
        thread.join()
        raise
    if failure:
        raise failure[0]
    return outcome[0]
