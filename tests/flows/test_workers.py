"""Environments in worker processes: equal trajectories, deaths by SIGKILL, errors, and nothing left behind. Real processes, real signals."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import pytest
from flow_envs import Chooser
from small_envs import Unanswered
from worker_envs import Counter, TwoArguments, count

from agent_gym.core import EnvFault
from agent_gym.flows import EnvPool, Fault, TooManyFaults, WorkerDied, open_workers, parse_workers, run_rows
from agent_gym.flows.messages import RemoteTraceback
from agent_gym.flows.processes import ProcessWorkers
from agent_gym.policies import RandomPolicy, ScriptedPolicy
from agent_gym.trajectory import StopReason

HERE = Path(__file__).resolve().parent


def rows(number, env_kwargs=None, **more):
    return [{"env_id": "", "env_kwargs": env_kwargs or {}, "seed": seed, "group_id": seed // 4, **more} for seed in range(number)]


@pytest.fixture(scope="module")
def counting():
    """Two workers that host counters, for the tests that need no fresh ones."""
    pool = EnvPool(count, workers=ProcessWorkers(2, count))
    yield pool
    pool.close()


def pids(pool):
    return [worker.pid for worker in pool.workers.workers]


def gone(pid, within=20.0):
    """The process ended (a zombie that someone else has to collect counts)."""
    ends = time.monotonic() + within
    while time.monotonic() < ends:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


# ---------------------------------------------------------------------------------------------------- the same as without


def mixed():
    """Episodes of several kinds: growing and rewritten prompts, different lengths."""
    return [*rows(6), *rows(4, {"turns": 5}, options={"rewrite": True})]


def test_trajectories_are_those_without_workers(counting):
    here = run_rows(mixed(), Chooser(), env_factory=count, seed=3)
    assert any(step.info["turn"] == 5 for one in here.trajectories for step in one.steps)
    there = run_rows(mixed(), Chooser(), pool=counting, seed=3)
    assert len(pids(counting)) == 2
    again = run_rows(mixed(), Chooser(), pool=counting, seed=3, max_concurrency=3)
    one = run_rows(mixed(), Chooser(), env_factory=count, seed=3, workers=1)
    for other in (there, again, one):
        assert other.trajectories == here.trajectories and other.row_indices == here.row_indices
        assert (other.retries, other.dropped, other.faults_by_task) == (0, (), {})
        for ours, theirs in zip(here.trajectories, other.trajectories, strict=True):
            assert [step.info for step in ours.steps] == [step.info for step in theirs.steps]
            assert [{key: type(value) for key, value in step.info.items()} for step in ours.steps] == [
                {key: type(value) for key, value in step.info.items()} for step in theirs.steps
            ]
            assert ours.metrics == theirs.metrics and ours.metrics


def test_environments_with_a_tokenizer_are_the_same_too_with_more_workers_than_episodes():
    script = ["no", "the word is word3", "stop"]
    tools = [{"env_id": "AgentR1/Tool-v0", "env_kwargs": {"split": "validation"}, "seed": seed} for seed in range(3)]
    pool = EnvPool(workers=open_workers(8))
    try:
        for policy in (ScriptedPolicy(script), ScriptedPolicy.expert(), RandomPolicy(seed=1)):
            here, there = run_rows(tools, policy, seed=5), run_rows(tools, policy, pool=pool, seed=5)
            assert there.trajectories == here.trajectories
            assert here.trajectories[0].env_id == "AgentR1/Tool-v0"
        assert here.trajectories[0].sampling["stop_token_ids"]
        assert len(pids(pool)) == 3, "no worker is started that has nothing to host"
    finally:
        pool.close()


def test_sleeping_environments_of_one_worker_overlap():
    slow = rows(16, {"seconds": 0.25})
    pool = EnvPool(count, workers=ProcessWorkers(1, count))
    try:
        run_rows(rows(1), Chooser(), pool=pool)  # the start
        begin = time.perf_counter()
        run_rows(slow, Chooser(), pool=pool)
        assert time.perf_counter() - begin < 16 * 3 * 0.25 / 2
    finally:
        pool.close()


def test_the_environments_of_a_main_module_are_made_without_running_it_again(tmp_path):
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
            import gymnasium
            from flow_envs import Chooser
            from worker_envs import Counter
            from agent_gym.flows import run_rows

            class Mine(Counter):
                tokenizer_fingerprint = "of main"

            gymnasium.register("Main/Mine-v0", entry_point=Mine)
            print("once")
            rows = [{{"env_id": "Main/Mine-v0", "env_kwargs": {{}}, "seed": 1}}]
            a, b = run_rows(rows, Chooser()), run_rows(rows, Chooser(), workers=1)
            assert a.trajectories == b.trajectories and b.trajectories[0].tokenizer_fingerprint == "of main"
            made = run_rows(rows, Chooser(), env_factory=lambda row: Mine(), workers=1)
            assert made.trajectories[0].steps == a.trajectories[0].steps
            """
        )
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "once\n"), done.stderr


def test_a_worker_imports_torch_only_where_the_environment_does(counting):
    async def ask():
        env = await counting.make_in_worker(rows(1)[0] | {"options": {}})
        try:
            return await env.unwrapped.arun(_heavy_modules)
        finally:
            env.close()

    assert asyncio.run(ask()) == []


def _heavy_modules(_env):
    return sorted({"torch", "trl", "datasets", "ray", "pandas"} & set(sys.modules))


# ---------------------------------------------------------------------------------------------------- deaths


@pytest.mark.parametrize("moment", ["make", "reset", "step"])
def test_a_worker_that_dies_costs_its_episodes_a_retry_and_nothing_else(moment, tmp_path):
    """One episode in eight kills the worker that hosts it. Greedy play, so that new sampling seeds change nothing."""
    once = str(tmp_path / "died")
    plan = rows(8)
    plan[5] = {**plan[5], "env_kwargs": {"kill": moment, "once": once}}
    policy = Steady()
    pool = EnvPool(count, workers=ProcessWorkers(2, count))
    try:
        result = run_rows(plan, policy, pool=pool, seed=2)
        after = run_rows(plan, policy, pool=pool, seed=2)
    finally:
        pool.close()
    assert Path(once).exists()
    without = run_rows(plan, policy, env_factory=count, seed=2)
    for found in (result, after):
        assert found.row_indices == tuple(range(8)) and not found.dropped
        assert found.trajectories == without.trajectories
    assert 1 <= result.retries <= 5, "those of the other worker are not begun again"
    assert after.retries == 0


class Steady(Chooser):
    """Chooses by the prompt alone."""

    async def generate(self, prompt_ids, sampling, *, session=None):
        return await super().generate(prompt_ids, replace(sampling, seed=int(sum(prompt_ids))), session=session)


def test_a_kill_from_outside_leaves_the_episodes_of_the_others_untouched():
    """The sampling seeds of an episode are its own, so those that were not hosted by the killed worker are equal to the last id."""
    pool = EnvPool(count, workers=ProcessWorkers(2, count))
    without = run_rows(rows(10, {"turns": 6}), Chooser(), env_factory=count, seed=4)
    killed, seen = [], []

    class Watching(Chooser):
        async def generate(self, prompt_ids, sampling, *, session=None):
            if len(self.requests) == 25 and not killed:
                killed.extend(pids(pool)[:1])
                os.kill(killed[0], signal.SIGKILL)
            return await super().generate(prompt_ids, sampling, session=session)

    try:
        result = run_rows(rows(10, {"turns": 6}), Watching(), pool=pool, seed=4, on_episode=lambda index, _: seen.append(index))
        assert len(killed) == 1 and killed[0] not in pids(pool)
        run_rows(rows(10, {"turns": 6}), Chooser(), pool=pool, seed=5)
        assert len(pids(pool)) == 2, "another one is started as soon as there is work for it"
    finally:
        pool.close()
    assert result.row_indices == tuple(range(10)) and not result.dropped
    assert sorted(seen) == list(range(10)), "each row is finished once"
    same = [a == b for a, b in zip(result.trajectories, without.trajectories, strict=True)]
    assert same.count(False) <= result.retries == sum(result.faults_by_task.values()) <= 5
    assert result.retries >= 1 and same.count(True) >= 5
    assert [(one.seed, one.task_id) for one in result.trajectories] == [(one.seed, one.task_id) for one in without.trajectories]


def test_a_worker_that_dies_between_batches_costs_nothing(counting):
    first = run_rows(mixed(), Chooser(), pool=counting, seed=3)
    killed = pids(counting)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
        assert gone(pid)
    time.sleep(0.3)
    second = run_rows(mixed(), Chooser(), pool=counting, seed=3)
    assert second.retries == 0 and second.trajectories == first.trajectories
    assert not set(killed) & set(pids(counting))


def test_an_episode_that_kills_every_worker_is_dropped_and_named():
    with pytest.raises(TooManyFaults, match=r"every one of the 2 rows was dropped.*killed by SIGKILL"):
        run_rows(rows(2), Chooser(), env_factory=lambda row: Deadly(), workers=1, max_fault_retries=1)


class Deadly(Counter):
    def step(self, action):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_broken_world_in_a_worker_is_the_fault_that_it_is_without(counting):
    plan = [*rows(3), *rows(1, options={"reset": True})]
    here = run_rows(plan, Chooser(), env_factory=count)
    there = run_rows(plan, Chooser(), pool=counting)
    assert there.trajectories == here.trajectories
    assert [(one.row_index, one.attempts, one.reason) for one in there.dropped] == [(3, 3, "no count today")]
    assert there.retries == here.retries == 2


def test_a_world_that_does_not_answer_keeps_that_name():
    for workers in (None, 1):
        done = run_rows(
            rows(1),
            ScriptedPolicy(lambda env, turn: "hm"),
            env_factory=lambda row: Unanswered(max_turns=2, max_action_tokens=6),
            workers=workers,
            max_fault_retries=0,
        )
        assert [row.fault for row in done.dropped] == [Fault.ENV_TIMEOUT], workers


def test_the_deadline_cuts_an_episode_that_hangs_in_a_worker_and_close_ends_the_worker():
    pool = EnvPool(count, workers=ProcessWorkers(1, count))
    pool.workers.grace = 0.5
    try:
        run_rows(rows(1), Chooser(), pool=pool)
        (pid,) = pids(pool)
        begin = time.perf_counter()
        result = run_rows(rows(1, {"note": "x"}, options={"do": "hang"}), Chooser(), pool=pool, deadline=3.0)
        assert time.perf_counter() - begin < 20
    finally:
        pool.close()
    assert [one.stop_reason for one in result.trajectories] == [StopReason.DEADLINE]
    assert gone(pid)


# ---------------------------------------------------------------------------------------------------- errors


def test_an_error_comes_back_as_itself_with_the_traceback_of_the_worker(counting):
    with pytest.raises(TwoArguments, match=r"^lost count at 7\b") as caught:
        run_rows(rows(1, options={"do": "raise"}), Chooser(), pool=counting)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "_misbehave" in str(caught.value.__cause__) and "worker_envs.py" in str(caught.value.__cause__)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'") as other:
        run_rows(rows(1, {"colour": 1}), Chooser(), pool=counting)
    assert type(other.value) is TypeError
    with pytest.raises(ValueError, match=r"^rows\.jsonl, row 3: field 'env_kwargs.colour'"):
        run_rows(rows(1, {"colour": 1}, where="rows.jsonl, row 3"), Chooser(), pool=counting)
    assert len(pids(counting)) >= 1, "no worker is lost by that"


def test_what_cannot_be_sent_is_named_with_what_to_do(counting):
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"row\['env_kwargs'\]\['note'\] cannot be sent to another process: _thread.lock .*without workers"):
        run_rows(rows(1, {"note": lock}), Chooser(), pool=counting)
    with pytest.raises(TypeError, match=r"env_factory: 'lock' of .*<lambda> cannot be sent.*where the worker makes its own"):
        run_rows(rows(1), Chooser(), env_factory=lambda row: Counter(note=lock), workers=1)
    with pytest.raises(TypeError, match=r"info\['note'\] cannot be sent.*_thread.lock.*plain values"):
        run_rows(rows(1, options={"do": "unsendable"}), Chooser(), pool=counting)
    with pytest.raises(TypeError, match=r"'lock' of .*<lambda> cannot be sent.*function of \(env, turn\)"):
        run_rows(rows(1), ScriptedPolicy(lambda env, turn: str(lock)), pool=counting)


def test_what_is_asked_of_an_environment_elsewhere_says_how_to_ask(counting):
    with pytest.raises(AttributeError, match=r"'ids' is not known here.*arun"):
        run_rows(rows(1), Peeking(), pool=counting)


class Peeking(Chooser):
    def bind(self, env, session=None):
        assert env.unwrapped.ids


def test_where_environments_live_is_read_strictly():
    assert [parse_workers(one) for one in (None, 0, "0", 3, "3", "none")] == [None, None, None, 3, 3, None]
    assert [parse_workers(one) for one in ("ray", "auto", "127.0.0.1:6379", "ray://head:10001")] == [
        "ray",
        "auto",
        "127.0.0.1:6379",
        "ray://head:10001",
    ]
    for wrong in (-1, "-2", "rya", True, 1.5, "host", ""):
        with pytest.raises(ValueError, match="workers"):
            parse_workers(wrong)
    with pytest.raises(ValueError, match="a pool's environments live"):
        run_rows(rows(1), Chooser(), pool=EnvPool(count), workers=2)


# ---------------------------------------------------------------------------------------------------- nothing is left


def open_files():
    return len(os.listdir("/proc/self/fd"))


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_files_threads_and_memory_stay_flat_over_many_batches_and_pools(counting):
    run_rows(rows(4), Chooser(), pool=counting)
    before, threads, size = open_files(), threading.active_count(), resident()
    for _ in range(25):
        run_rows(rows(4), Chooser(), pool=counting)
    assert open_files() <= before and threading.active_count() <= threads
    assert resident() - size < 8e6
    for _ in range(2):
        run_rows(rows(1), Chooser(), env_factory=count, workers=1)
    assert open_files() <= before and threading.active_count() <= threads


def test_close_closes_the_environments_and_ends_what_they_have_started(tmp_path):
    log, child = tmp_path / "log", tmp_path / "child"
    pool = EnvPool(count, workers=ProcessWorkers(1, count))
    pool.workers.grace = 3.0
    run_rows(rows(3, {"once": str(log)}), Chooser(), pool=pool)
    run_rows(rows(1, {"note": 1}, options={"do": "child", "file": str(child)}), Chooser(), pool=pool, deadline=3.0)
    (pid,) = pids(pool)
    pool.close()
    assert gone(pid) and gone(int(child.read_text()))
    assert log.read_text() == "closed\n" * 3
    assert pool.workers.workers == ()


def test_an_exception_ends_the_workers():
    seen = []

    def fail(index, _episodes):
        seen.extend(thread.name for thread in threading.enumerate() if thread.name.startswith("agent-gym-read-"))
        raise KeyError("no more")

    known = {thread.name for thread in threading.enumerate()}
    with pytest.raises(KeyError, match="no more"):
        run_rows(rows(3), Chooser(), env_factory=count, workers=1, on_episode=fail)
    (started,) = {*seen} - known
    assert gone(int(started.rpartition("-")[2]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_no_worker_outlives_its_parent(number, tmp_path):
    child = tmp_path / "child"
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
            from flow_envs import Chooser
            from worker_envs import count
            from agent_gym.flows import EnvPool, open_workers, run_rows

            pool = EnvPool(count, workers=open_workers(2, count))
            pool.workers.grace = 1.0
            rows = [{{"env_id": "", "env_kwargs": {{}}, "seed": i, "options": {{}}}} for i in range(2)]
            run_rows(rows, Chooser(), pool=pool)
            print(*[worker.pid for worker in pool.workers.workers], flush=True)
            rows[0]["options"] = {{"do": "child", "file": {str(child)!r}}}
            rows[1]["options"] = {{"do": "hang"}}
            try:
                run_rows(rows, Chooser(), pool=pool)
            finally:
                pool.close()
            """
        )
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        workers = [int(one) for one in process.stdout.readline().split()]
        assert len(workers) == 2
        ends = time.monotonic() + 60
        while not (child.exists() and child.read_text()) and time.monotonic() < ends:
            time.sleep(0.05)
        process.send_signal(number)
        process.wait(timeout=60)
        for pid in (*workers, int(child.read_text())):
            assert gone(pid, within=20), f"process {pid} outlived its parent"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_workers_that_nobody_closed_end_with_their_pool():
    pool = EnvPool(count, workers=ProcessWorkers(1, count))
    run_rows(rows(1), Chooser(), pool=pool)
    (pid,) = pids(pool)
    del pool
    gc.collect()
    assert gone(pid)


# ---------------------------------------------------------------------------------------------------- Gymnasium's own face


def test_a_remote_environment_can_be_stepped_without_an_event_loop():
    workers = ProcessWorkers(1, count)
    try:
        env = asyncio.run(workers.make(rows(1)[0] | {"options": {}}))
        here = Counter()
        (a, _), (b, _) = env.reset(seed=3), here.reset(seed=3)
        assert isinstance(env, gym.Env) and (a == b).all() and a.dtype == b.dtype
        for action in ([5, 6], env.action_space.pad([7, 8])):
            (a, *rest, info), (b, *others, other) = env.step(action), here.step(action)
            assert (a == b).all() and rest == others and info == other
        env.close()
        env.close()
        with pytest.raises(RuntimeError, match="hosts no environment"):
            env.step([1])
        os.kill(workers.workers[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match=r"worker process \d+ was killed by SIGKILL") as died:
            env.step([1])
        assert isinstance(died.value, EnvFault)
    finally:
        workers.close()
