"""Many episodes at once: order, seeds, slow worlds, broken worlds, deadlines, interrupts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import gymnasium as gym
import pytest
from flow_envs import COUNTS, Chooser, Doubling, Flaky, Sleeper
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit
from small_envs import Parrot

from agent_gym.core import EnvFault
from agent_gym.flows import AgentFlowBase, EnvPool, FaultMonitor, TooManyFaults, arun_rows, get_flow, normalize_row, register_flow, run_rows
from agent_gym.flows.pacing import HEAVY_SECONDS
from agent_gym.policies import RandomPolicy, Sampling, ScriptedPolicy
from agent_gym.trajectory import Generation, StopReason

SMALL = {"max_observation_tokens": 2048, "max_action_tokens": 32}


def parrot(row):
    return Parrot(**SMALL, **row["env_kwargs"])


def rows(count, **more):
    return [{"env_id": "", "env_kwargs": {}, "seed": seed, "group_id": seed // 4, **more} for seed in range(count)]


def test_trajectories_come_in_the_order_of_the_rows_with_all_their_names():
    policy = Chooser()
    seen = []
    result = run_rows(
        rows(20, options='{"index": 3}'), policy, env_factory=parrot, max_concurrency=7, on_episode=lambda i, t: seen.append((i, len(t)))
    )
    assert result.row_indices == tuple(range(20))
    assert sorted(seen) == [(i, 1) for i in range(20)]
    for index, trajectory in enumerate(result.trajectories):
        assert (trajectory.seed, trajectory.group_id, trajectory.options) == (index, str(index // 4), {"index": 3})
        assert trajectory.task_id == "train/3"
        assert trajectory.tokenizer_fingerprint
        assert trajectory.sampling["max_tokens"] == 32
        assert trajectory.sampling["stop_token_ids"] == Parrot(**SMALL).end_of_turn_ids
        assert trajectory.steps[0].policy_version == 4
        assert trajectory.stop_reason is StopReason.MAX_TURNS
    assert not policy.sessions, "every session is forgotten"
    assert set(result.seconds) == {"wall", "policy", "env"}


def test_a_row_has_the_seeds_of_its_number_wherever_it_is_played():
    """As when several processes share a batch, and one of them leaves a row out."""

    def play(chosen, **more):
        policy = RandomPolicy(300, seed=1)
        found = run_rows([rows(6)[number] for number in chosen], policy, env_factory=parrot, seed=5, **more).trajectories
        return {number: [step.action_ids.tolist() for step in one.steps] for number, one in zip(chosen, found, strict=True)}

    whole = play(range(6))
    assert len({str(actions) for actions in whole.values()}) == 6
    assert play((0, 2), row_numbers=[0, 2]) | play((3, 4, 5), row_numbers=[3, 4, 5]) == {n: a for n, a in whole.items() if n != 1}
    assert play((3, 4, 5)) != {n: whole[n] for n in (3, 4, 5)}
    with pytest.raises(ValueError, match="1 row_numbers came for 2 rows"):
        play((0, 1), row_numbers=[0])


def test_the_ids_that_the_policy_sees_and_samples_are_the_record():
    policy = Chooser()
    result = run_rows(rows(6), policy, env_factory=parrot)
    recorded = {(tuple(step.observation_ids.tolist()), tuple(step.action_ids.tolist())) for t in result.trajectories for step in t.steps}
    assert {prompt for prompt, _ in recorded} == {prompt for prompt, _, _ in policy.requests}


def test_request_seeds_are_unique_and_a_function_of_the_run():
    def seeds(seed):
        policy = Chooser()
        run_rows(rows(30), policy, env_factory=parrot, seed=seed)
        return [sampling.seed for _, sampling, _ in policy.requests]

    one = seeds(0)
    assert len(set(one)) == len(one) == 150
    assert sorted(seeds(0)) == sorted(one)
    assert not set(seeds(1)) & set(one)


def test_the_same_run_gives_the_same_trajectories_at_any_concurrency():
    def play(**settings):
        return run_rows(rows(12), Chooser(), env_factory=parrot, seed=5, **settings).trajectories

    assert play(max_concurrency=1) == play(max_concurrency=64) == play(max_concurrency=5)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: OrderEnforcing(PassiveEnvChecker(env)),
        lambda env: RecordEpisodeStatistics(env),
        lambda env: TimeLimit(env, 100),
    ],
)
def test_awaited_inline_and_threaded_chains_give_the_same_trajectories(wrap, monkeypatch):
    def play(wrapped, slow=False):
        monkeypatch.setattr("agent_gym.flows.pacing.HEAVY_SECONDS", -1.0 if slow else HEAVY_SECONDS)
        found = run_rows(rows(8), Chooser(), env_factory=lambda row: wrapped(parrot(row))).trajectories
        return [[(s.observation_ids.tolist(), s.action_ids.tolist(), s.reward, s.stop_reason, s.state_key) for s in t.steps] for t in found]

    bare = play(lambda env: env)
    assert play(wrap) == bare
    assert play(wrap, slow=True) == bare
    assert play(lambda env: env, slow=True) == bare


def test_a_foreign_wrapper_is_never_skipped():
    script = ScriptedPolicy.expert()
    result = run_rows(rows(5), script, env_factory=lambda row: Doubling(parrot(row)))
    assert [t.total_reward for t in result.trajectories] == [2.0] * 5


@pytest.mark.parametrize("awaits", [True, False])
def test_64_slow_environments_wait_side_by_side(awaits):
    """64 episodes of 4 steps of 0.05 s each: 12.8 s one after another."""
    begin = time.perf_counter()
    result = run_rows(rows(64), Chooser(), env_factory=lambda row: Sleeper(0.05, awaits, max_turns=4, **SMALL), max_concurrency=64)
    assert len(result.trajectories) == 64
    assert time.perf_counter() - begin < 6.4


def test_a_slow_environment_does_not_hold_the_others():
    done: list[tuple[int, float]] = []
    begin = time.perf_counter()

    def factory(row):
        return Sleeper(0.4, row["seed"] % 2 == 1, max_turns=3, **SMALL) if row["seed"] < 4 else parrot(row)

    slow = [{**row, "env_kwargs": {} if row["seed"] >= 4 else {"split": "train"}} for row in rows(40)]
    run_rows(slow, Chooser(), env_factory=factory, on_episode=lambda index, _: done.append((index, time.perf_counter() - begin)))
    quick = [at for index, at in done if index >= 4]
    assert max(quick) < min(at for index, at in done if index < 4), "the 36 quick ones are over before the first slow one"


def test_environments_are_used_again_and_closed_in_the_end():
    made = []

    def factory(row):
        made.append(Sleeper(0.0, max_turns=2, **SMALL))
        return made[-1]

    run_rows(rows(40), Chooser(delay=0.001), env_factory=factory, max_concurrency=4)
    assert len(made) == 4
    assert all(env.closed for env in made)
    pool = EnvPool(factory)
    for _ in range(3):
        run_rows(rows(4), Chooser(delay=0.001), pool=pool, max_concurrency=2)
    assert len(made) == 6
    assert not made[-1].closed
    pool.close()
    assert made[-1].closed


def _flaky(plan):
    COUNTS.clear()
    return lambda row: Flaky(plan, **SMALL)


def _numbered(count):
    return [{**row, "options": {"index": row["seed"]}} for row in rows(count)]


def test_a_fault_is_begun_again_with_the_same_task_and_other_sampling_seeds():
    policy = Chooser()
    result = run_rows(_numbered(6), policy, env_factory=_flaky({2: {0: 1, 1: -1}, 4: {0: 0}}))
    assert result.row_indices == tuple(range(6))
    assert result.dropped == ()
    assert result.retries == 3
    assert COUNTS == {0: 1, 1: 1, 2: 3, 3: 1, 4: 2, 5: 1}
    assert sum(result.faults_by_task.values()) == 3
    firsts = [
        (prompt, sampling.seed)
        for prompt, sampling, _ in policy.requests
        if "word2" in Parrot(**SMALL).chat.decode(prompt) and len(prompt) < 100
    ]
    again = [seed for prompt, seed in firsts if prompt == firsts[0][0]]
    assert len(set(again)) == len(again) >= 2
    assert all(t.stop_reason is not StopReason.ENV_FAULT for t in result.trajectories)


def test_a_row_that_breaks_each_time_is_dropped_and_counted():
    result = run_rows(_numbered(5), Chooser(), env_factory=_flaky({3: {0: 1, 1: 2, 2: 0}}))
    assert result.row_indices == (0, 1, 2, 4)
    (dropped,) = result.dropped
    assert (dropped.row_index, dropped.task_id, dropped.attempts) == (3, "train/3", 3)
    assert "broken in turn 0" in dropped.reason
    assert result.faults_by_task == {"train/3": 3}
    once = run_rows(_numbered(5), Chooser(), env_factory=_flaky({3: {0: 1}}), max_fault_retries=0)
    assert len(once.dropped) == 1


def test_on_fault_stop_stops_at_the_first_drop():
    with pytest.raises(TooManyFaults, match="train/3"):
        run_rows(_numbered(5), Chooser(), env_factory=_flaky({3: {0: 1, 1: 1, 2: 1}}), on_fault="stop")
    run_rows(_numbered(5), Chooser(), env_factory=_flaky({3: {0: 1, 1: 1}}), on_fault="stop")


def test_the_drop_rate_warns_above_five_and_stops_above_twenty_percent_of_the_last_200():
    monitor = FaultMonitor()

    def play(good, bad):
        plan = {index: {0: 0} for index in range(good, good + bad)}
        return run_rows(_numbered(good + bad), Chooser(), env_factory=_flaky(plan), max_fault_retries=0, monitor=monitor)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(30, 10)  # 10 of the last 200: 5 %, not above
    with pytest.warns(UserWarning, match="11 of the last 200"):
        play(1, 1)
    with pytest.raises(TooManyFaults, match="41 of the last 200"):
        play(1, 30)
    for _ in range(200):
        monitor.played()
    assert monitor.rate == 0.0


def test_nothing_left_is_an_error():
    with pytest.raises(TooManyFaults, match="every one"):
        run_rows(_numbered(2), Chooser(), env_factory=_flaky({0: dict.fromkeys(range(9), 0), 1: dict.fromkeys(range(9), -1)}))


def test_a_single_faulty_row_is_dropped_and_no_alarm():
    plan = {0: dict.fromkeys(range(9), 0), 1: dict.fromkeys(range(9), 0)}
    result = run_rows(_numbered(1), Chooser(), env_factory=_flaky(plan))
    assert (result.trajectories, len(result.dropped)) == ((), 1)
    monitor = FaultMonitor()
    result = run_rows(_numbered(2), Chooser(), env_factory=_flaky(plan), monitor=monitor)
    assert len(result.dropped) == 2 and monitor.rate == 2 / 200, "a monitor decides over many calls"


def test_a_pool_and_an_env_factory_together_are_refused():
    with pytest.raises(ValueError, match="EnvPool\\(env_factory\\)"):
        run_rows(rows(1), Chooser(), env_factory=parrot, pool=EnvPool(parrot))


def test_rows_are_read_alike_everywhere():
    arrow = {
        "env_id": "X",
        "options": {"task": {"a": None, "b": {"c": None, "d": [1, {"e": None}]}}},
        "env_kwargs": '{"x": null, "y": {"z": null}}',
    }
    wanted = {"task": {"b": {"d": [1, {}]}}}
    read = normalize_row(arrow)
    assert (read["options"], read["env_kwargs"]) == (wanted, {"y": {}})
    from agent_gym.trainers.environments import read_row

    other = read_row(arrow, "X")
    assert (other["options"], other["env_kwargs"]) == (wanted, {"y": {}})
    for reader in (normalize_row, lambda row: read_row(row, "X")):
        for broken in ({"seed": 1.5}, {"seed": -1}, {"seed": True}, {"options": 3}, {"env_kwargs": "{"}, {"env_kwargs": "[1]"}):
            with pytest.raises(ValueError, match="of a data set row"):
                reader({"env_id": "X", **broken})


def test_a_row_without_an_environment_is_refused_unless_something_makes_it():
    with pytest.raises(ValueError, match="env_id"):
        normalize_row({"seed": 1})
    with pytest.raises(ValueError, match="env_id"):
        run_rows([{"seed": 1}], Chooser())
    assert normalize_row({"seed": 1}, needs_env=False)["env_id"] == ""


class NoRoom(Chooser):
    """A policy whose context is full at a turn of its own."""

    def __init__(self, turn):
        super().__init__()
        self.turn = turn

    async def generate(self, prompt_ids, sampling, *, session=None):
        if len(self.requests) == self.turn:
            return Generation([], [], "length", 4)
        return await super().generate(prompt_ids, sampling, session=session)


@pytest.mark.parametrize("turn", [0, 2])
def test_an_episode_whose_prompt_leaves_no_room_is_truncated_and_the_world_is_not_asked(turn):
    seen = []

    class Watched(Parrot):
        def _respond(self, action):
            seen.append(action.text)
            return super()._respond(action)

    (trajectory,) = run_rows(rows(1), NoRoom(turn), env_factory=lambda row: Watched(**SMALL)).trajectories
    last = trajectory.steps[-1]
    assert (len(trajectory), len(seen), len(last.action_ids)) == (turn + 1, turn, 0)
    assert (last.terminated, last.truncated, last.stop_reason, last.reward) == (False, True, StopReason.CONTEXT_LIMIT, 0.0)
    assert last.reward_parts == {"task": 0.0} and last.info["turn"] == turn and not trajectory.is_success
    assert trajectory.final_observation.tolist() == last.observation_ids.tolist()


def test_a_programmers_mistake_is_raised_with_its_row():
    with pytest.raises(ValueError, match="does not know the option") as caught:
        run_rows(rows(3, options={"idx": 1}), Chooser(), env_factory=parrot)
    assert "row 0" in caught.value.__notes__[0]
    with pytest.raises(ValueError, match="seed"):
        run_rows(rows(1), Chooser(), env_factory=parrot, sampling=Sampling(seed=1))


def test_a_deadline_cuts_what_runs_and_lists_what_never_began():
    result = run_rows(
        rows(12), Chooser(delay=0.05), env_factory=lambda row: parrot({"env_kwargs": {"max_turns": 100}}), max_concurrency=4, deadline=0.4
    )
    assert result.seconds["wall"] < 2.0
    assert result.row_indices == (0, 1, 2, 3)
    assert {t.stop_reason for t in result.trajectories} == {StopReason.DEADLINE}
    assert all(t.truncated and len(t) >= 2 for t in result.trajectories)
    assert result.unfinished == tuple(range(4, 12))


@pytest.mark.parametrize("awaits", [True, False])
def test_a_deadline_does_not_wait_for_a_hanging_environment(awaits):
    made = []

    def factory(row):
        made.append(Sleeper(0.0 if row["seed"] else 1.5, awaits, max_turns=3, **SMALL))
        return RecordEpisodeStatistics(made[-1]) if not awaits else made[-1]

    result = run_rows(rows(2), Chooser(), env_factory=factory, deadline=0.3)
    assert result.seconds["wall"] < 1.2
    assert (result.row_indices, result.unfinished) == ((1,), (0,))
    time.sleep(1.4)
    assert all(env.closed for env in made)


def test_it_runs_inside_a_running_event_loop():
    async def notebook():
        return run_rows(rows(3), Chooser(), env_factory=parrot)

    assert len(asyncio.run(notebook()).trajectories) == 3

    async def awaited():
        return await arun_rows(rows(3), Chooser(), env_factory=parrot)

    assert len(asyncio.run(awaited()).trajectories) == 3

    async def failing():
        return run_rows(rows(1, options={"bad": 1}), Chooser(), env_factory=parrot)

    with pytest.raises(ValueError, match="option"):
        asyncio.run(failing())


@pytest.mark.parametrize("inside_loop", [False, True])
def test_an_interrupt_closes_the_environments(inside_loop):
    code = f"""
        import asyncio, sys
        sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
        from flow_envs import Chooser, Sleeper
        from agent_gym.flows import run_rows

        class Loud(Sleeper):
            def _begin(self, options):
                print("begun", flush=True)
                return super()._begin(options)

            def close(self):
                print("closed", flush=True)

        def play():
            run_rows([{{"env_id": "", "seed": i}} for i in range(3)], Chooser(), env_factory=lambda row: Loud(0.01, True, max_turns=10**6))

        async def notebook():
            play()

        try:
            asyncio.run(notebook()) if {inside_loop} else play()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(3)]
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert lines == ["begun"] * 3
    assert sorted(rest.split()) == ["closed"] * 3 + ["interrupted"]
    assert rest.split()[-1] == "interrupted"


def test_the_expert_and_a_random_policy_play_through_the_same_loop():
    expert = run_rows(rows(10), ScriptedPolicy.expert(), env_factory=parrot)
    assert all(t.is_success and t.stop_reason is StopReason.SUCCESS for t in expert.trajectories)
    assert expert.trajectories[0].steps[0].logprobs is None
    texts = run_rows(rows(4), ScriptedPolicy(["no", "never", "word"]), env_factory=parrot)
    assert [len(t) for t in texts.trajectories] == [5] * 4
    random = run_rows(rows(10), RandomPolicy(seed=1), env_factory=parrot)
    assert len(random.trajectories) == 10
    again = run_rows(rows(10), RandomPolicy(seed=2), env_factory=parrot)
    assert random.trajectories == again.trajectories, "requests carry their own seeds"


def test_registered_environments_are_made_by_their_id():
    gym.register("FlowTest/Parrot-v0", entry_point="small_envs:Parrot")
    try:
        row = {"env_id": "FlowTest/Parrot-v0", "env_kwargs": '{"max_turns": 2, "split": null}', "seed": 1}
        (trajectory,) = run_rows([row], Chooser()).trajectories
    finally:
        del gym.registry["FlowTest/Parrot-v0"]
    assert (trajectory.env_id, trajectory.env_kwargs, len(trajectory)) == ("FlowTest/Parrot-v0", {"max_turns": 2}, 2)


class Pair(AgentFlowBase):
    """Two environments in one row, and prompts of its own."""

    async def run(self, row, policy, make_env):
        one, other = make_env(row), make_env({**row, "seed": row["seed"] + 100})
        await asyncio.gather(one.reset(), other.reset())
        for env in (one, other):
            await env.step(await policy.generate([1, 2, 3], env.sampling(policy.sampling)))
        if row.get("break_it"):
            raise EnvFault("by hand")
        return [one.trajectory, other.trajectory]


def test_a_flow_of_your_own_is_found_by_its_name():
    register_flow("pair")(Pair)
    register_flow("pair")(Pair)
    with pytest.raises(ValueError, match="taken"):
        register_flow("agent_env_loop")(Pair)
    with pytest.raises(KeyError, match="did you mean 'agent_env_loop'"):
        get_flow("agent_env_lop")
    with pytest.raises(TypeError, match="AgentFlowBase"):
        register_flow("no")(Parrot)
    result = run_rows([*rows(2), *rows(1, agent_name="pair")], Chooser(), env_factory=parrot)
    assert result.row_indices == (0, 1, 2, 2)
    assert [t.seed for t in result.trajectories] == [0, 1, 0, 100]
    broken = run_rows([*rows(1), *rows(1, break_it=True, agent_name="pair")], Chooser(), env_factory=parrot)
    assert broken.dropped[0].reason == "by hand"


@pytest.mark.parametrize("branch_turn", [0, 2])
def test_best_of_n_branches_behind_a_common_trunk(branch_turn):
    flow = get_flow("best_of_n", n=5, branch_turn=branch_turn, keep="all")
    branches = run_rows(rows(1), Chooser(), env_factory=parrot, flow=flow).trajectories
    assert len(branches) == 5
    heads = {tuple(tuple(step.action_ids.tolist()) for step in t.steps[:branch_turn]) for t in branches}
    tails = {tuple(tuple(step.action_ids.tolist()) for step in t.steps[branch_turn:]) for t in branches}
    assert (len(heads), len(tails)) == (1, 5)

    def word_or_not(env, turn):
        word_or_not.calls += 1
        return env.word if word_or_not.calls == 7 else "no"

    word_or_not.calls = 0
    best = run_rows(rows(1), ScriptedPolicy(word_or_not), env_factory=parrot, flow=get_flow("best_of_n", n=3, branch_turn=branch_turn))
    assert [t.total_reward for t in best.trajectories] == [1.0]


def test_ctrl_c_is_obeyed_between_rows_that_never_wait():
    played = []

    def stop_early(index, episodes):
        played.append(index)
        if len(played) == 3:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_rows(rows(60), ScriptedPolicy.expert(), env_factory=parrot, max_concurrency=2, on_episode=stop_early)
    assert len(played) < 10
