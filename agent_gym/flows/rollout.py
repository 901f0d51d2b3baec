"""`run_rows`: many rows at once, with faults begun again, counted and bounded."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import gymnasium

from agent_gym.core import EnvFault, PromptTooLong
from agent_gym.flows.base import AgentFlowBase, DeadlineReached, Row, RowPolicy, get_flow, normalize_row
from agent_gym.flows.environment import EnvPool, RolloutEnv
from agent_gym.flows.faults import DroppedRow, Fault, FaultMonitor, TooManyFaults
from agent_gym.flows.remote import Workers
from agent_gym.flows.workers import open_workers
from agent_gym.policies.base import Policy, Sampling, derive_seed
from agent_gym.trajectory import StopReason, Trajectory

__all__ = ["RolloutResult", "arun_rows", "run_rows"]

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_NOT_TRIED_AGAIN = (Fault.ROW_ERROR, Fault.PROMPT_TOO_LONG)  # the same row would meet the same end


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
    row_numbers: Sequence[int] | None = None,
    deadline: float | None = None,
    max_fault_retries: int = 2,
    on_fault: str = "drop",
    monitor: FaultMonitor | None = None,
    drop_bad_rows: bool = False,
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
        row_numbers: of the rows among those that several processes share, in the order of the rows: each then has the seeds that it has in one process. None
            counts from 0.
        deadline: seconds after which nothing new is begun and running episodes are cut.
        max_fault_retries: how often a row that met a fault is begun again, with the same seed and options and new sampling seeds.
        on_fault: see `FaultMonitor`; unused when `monitor` is given.
        monitor: watches the drop rate over several calls.
        drop_bad_rows: drop a row that cannot be played, whose environment cannot be made or reset or whose first prompt does not fit, as one that
            met a fault, without another attempt; else its error is raised.
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
    played = [normalize_row(row, needs_env=pool is None and env_factory is None) for row in rows]
    if row_numbers is not None and len(row_numbers) != len(played):
        raise ValueError(f"{len(row_numbers)} row_numbers came for {len(played)} rows; give one for each")
    run = _Run(
        rows=played,
        policy=policy,
        sampling=sampling,
        flow=flow,
        pool=pool or EnvPool(env_factory, max_idle=max_concurrency, workers=open_workers(workers, env_factory)),
        seed=seed,
        row_numbers=range(len(played)) if row_numbers is None else row_numbers,
        deadline=None if deadline is None else asyncio.get_running_loop().time() + deadline,
        max_fault_retries=max_fault_retries,
        monitor=monitor or FaultMonitor(on_fault),
        drop_bad_rows=drop_bad_rows,
        on_episode=on_episode,
        threads=ThreadPoolExecutor(max_concurrency, thread_name_prefix="agent-gym-env"),
    )
    begin = time.perf_counter()
    players = [asyncio.create_task(run.work()) for _ in range(min(max_concurrency, len(run.rows)))]
    try:
        await asyncio.gather(*players)
    finally:
        for player in players:
            player.cancel()
        await asyncio.gather(*players, return_exceptions=True)
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
    row_numbers: Sequence[int]
    deadline: float | None
    max_fault_retries: int
    monitor: FaultMonitor
    drop_bad_rows: bool
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
        for attempt in range(self.max_fault_retries + 1):
            trajectories, lost = await self.attempt(index, attempt)
            if trajectories is None:
                self.unfinished.append(index)
                return
            if lost is None:
                self.done[index] = trajectories
                self.monitor.played()
                if self.on_episode is not None:
                    self.on_episode(index, trajectories)
                return
            self.faults[lost.task_id] += 1
            if attempt == self.max_fault_retries or lost.fault in _NOT_TRIED_AGAIN:
                break
            self.retries += 1
            _log.info("task %r (row %d) met a fault in attempt %d: %s", lost.task_id, index, attempt + 1, lost.reason)
        assert lost is not None  # the loop was left by its break
        self.dropped.append(lost)
        self.monitor.dropped(lost)

    async def attempt(self, index: int, attempt: int) -> tuple[list[Trajectory] | None, DroppedRow | None]:
        """Run the flow once. Returns the trajectories (None at the deadline), and the fault if there was one."""
        row = self.rows[index]
        policy = RowPolicy(self.policy, self.sampling, derive_seed(self.seed, self.row_numbers[index], attempt), self.deadline)
        used: list[RolloutEnv] = []

        def make_env(asked: Row) -> RolloutEnv:
            env = RolloutEnv(normalize_row(asked, needs_env=False), self.pool, self.threads, self.sampling, self.deadline)
            used.append(env)
            return env

        def lost(fault: Fault, reason: str, task: str) -> tuple[list[Trajectory], DroppedRow]:
            for env in used:
                env.discard()
            return [], DroppedRow(index, task, reason, attempt + 1, fault)

        try:
            trajectories = await get_flow(row.get("agent_name") or self.flow).run(row, policy, make_env)
            broken = next((trajectory for trajectory in trajectories if trajectory.stop_reason is StopReason.ENV_FAULT), None)
            if broken is not None:
                met = next((env.fault for env in used if env.fault is not None), None)
                reason = broken.steps[-1].feedback or "environment fault"
                return [], DroppedRow(index, broken.task_id, reason, attempt + 1, Fault.of(met))
            if self.drop_bad_rows and trajectories and all(_had_no_room(trajectory) for trajectory in trajectories):
                ids = len(trajectories[0].steps[0].observation_ids)
                return lost(
                    Fault.PROMPT_TOO_LONG,
                    f"its first prompt of {ids} tokens leaves no room in the model's context",
                    trajectories[0].task_id,
                )
        except DeadlineReached:
            return None, None
        except EnvFault as fault:
            task = next((env.trajectory.task_id for env in used if env.started), "")
            return lost(Fault.of(fault), str(fault) or type(fault).__name__, task)
        except Exception as error:
            if not self.drop_bad_rows or not any(env.beginning for env in used):
                raise
            too_long = isinstance(error, PromptTooLong) or isinstance(error.__cause__, PromptTooLong)
            return lost(Fault.PROMPT_TOO_LONG if too_long else Fault.ROW_ERROR, f"{type(error).__name__}: {error}", "")
        finally:
            policy.forget_all()
            self.policy_seconds += policy.seconds
            self.env_seconds += sum(env.seconds for env in used)
            for env in used:
                if env.started and env.trajectory.stop_reason is StopReason.ENV_FAULT:
                    env.discard()
                env.release()
        if not trajectories and self.deadline is not None and asyncio.get_running_loop().time() >= self.deadline:
            return None, None
        return trajectories, None


def _had_no_room(trajectory: Trajectory) -> bool:
    """Whether the model's context had no room for any reply to the first prompt."""
    if len(trajectory.steps) != 1 or trajectory.stop_reason is not StopReason.CONTEXT_LIMIT:
        return False
    step = trajectory.steps[0]
    return not len(step.action_ids) and step.finish_reason in ("context", "length")


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
