"""The recorder against the environment that it records."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics, TimeLimit
from helpers import require
from hypothesis import given, settings
from hypothesis import strategies as st
from small_envs import Parrot

from agent_gym.compat import let_text_through_array_conversion
from agent_gym.core import AgentEnv, Observation, Outcome
from agent_gym.spaces import TokenBox
from agent_gym.trajectory import Generation, StopReason
from agent_gym.wrappers import DiscreteTokens, StepRecorder, can_await


@pytest.fixture(scope="module")
def parrot() -> Parrot:
    return Parrot(max_turns=6, max_observation_tokens=1024, max_action_tokens=24)


class PlainTokens(gym.Env):
    """A token environment that is not one of ours: it knows nothing of info and wants padded actions."""

    def __init__(self) -> None:
        self.observation_space = TokenBox(8, 50, 0)
        self.action_space = TokenBox(4, 50, 0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observation_space.pad([1, 2]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.count += 1
        return self.observation_space.pad([1, 2, self.count]), 1.0, self.count == 2, False, {"is_success": True} if self.count == 2 else {}


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_record_is_what_happened_id_for_id(parrot, data):
    """Random ids, ends of turn in the middle, given in every form that a step takes."""
    env = StepRecorder(parrot)
    observation, info = env.reset(seed=data.draw(st.integers(0, 5)))
    end, vocab = parrot.end_of_turn_ids[0], parrot.chat.vocab_size
    want = []
    while env.running:
        prompt = observation[: info["observation_length"]].tolist()
        key = info["state_key"]
        ids = data.draw(st.lists(st.one_of(st.integers(0, vocab - 1), st.just(end)), max_size=24))
        logprobs = [-float(place) for place in range(len(ids))]
        form = data.draw(st.sampled_from(["generation", "list", "array", "padded"]))
        if form == "padded" or (form != "generation" and len(ids) == 24):
            while ids and ids[-1] == parrot.chat.pad_id:
                ids.pop()
            logprobs = None
            action = parrot.action_space.pad(ids)
        elif form == "generation":
            action = Generation(ids, logprobs, "length", 3)
        else:
            action, logprobs = (ids if form == "list" else np.array(ids, dtype=np.int64)), None
        observation, reward, terminated, truncated, info = env.step(action)
        kept = ids[: ids.index(end) + 1] if end in ids else ids
        want.append(
            (prompt, kept, None if logprobs is None else logprobs[: len(kept)], reward, terminated, truncated, key, info["stop_reason"])
        )
        assert info["dropped_ids"] == len(ids) - len(kept)
    trajectory = env.get_wrapper_attr("trajectory")
    got = [
        (
            s.observation_ids.tolist(),
            s.action_ids.tolist(),
            None if s.logprobs is None else s.logprobs.tolist(),
            s.reward,
            s.terminated,
            s.truncated,
            s.state_key,
            s.stop_reason,
        )
        for s in trajectory.steps
    ]
    assert got == want
    assert trajectory.final_observation.tolist() == observation[: info["observation_length"]].tolist()
    for transition in trajectory.transitions():  # with the default context each observation begins with the last one and the action
        joined = [*transition.step.observation_ids.tolist(), *transition.step.action_ids.tolist()]
        if transition.step.stop_reason is not StopReason.CONTEXT_LIMIT:
            assert transition.next_observation_ids.tolist()[: len(joined)] == joined


def test_a_generation_as_long_as_the_space_keeps_its_trailing_pad_ids(parrot):
    env = StepRecorder(parrot)
    env.reset(seed=0)
    pad = parrot.chat.pad_id
    env.step(Generation([5] * 23 + [pad], [0.0] * 24))
    assert env.trajectory.steps[0].action_ids.tolist() == [5] * 23 + [pad]


@pytest.mark.parametrize("outside", [TimeLimit, lambda env, n: RecordEpisodeStatistics(TimeLimit(env, n))])
def test_a_wrappers_limit_is_a_time_limit_and_ends_the_episode(parrot, outside):
    env = StepRecorder(outside(parrot, 2))
    env.reset(seed=0)
    assert env.step([7])[4]["stop_reason"] is StopReason.RUNNING
    _, _, terminated, truncated, info = env.step([8])
    assert (terminated, truncated, info["stop_reason"]) == (False, True, StopReason.TIME_LIMIT)
    with pytest.raises(ResetNeeded):
        env.step([9])
    trajectory = env.trajectory
    assert trajectory.truncated
    assert [step.stop_reason for step in trajectory.steps] == [StopReason.RUNNING, StopReason.TIME_LIMIT]
    env.reset(seed=0)
    assert len(env.trajectory) == 0


def test_an_end_of_the_environments_own_keeps_its_reason(parrot):
    env = StepRecorder(TimeLimit(parrot, 1))
    env.reset(seed=0)
    assert env.step(parrot.encode_action(parrot.word))[4]["stop_reason"] is StopReason.SUCCESS
    assert env.trajectory.is_success
    env.reset(seed=0)
    env.step(parrot.encode_action("fault"))
    assert env.trajectory.stop_reason is StopReason.ENV_FAULT


def test_any_environment_over_token_boxes_is_recorded():
    env = StepRecorder(PlainTokens())
    env.reset()
    env.step(Generation([3, 4], [-1.0, -2.0]))
    env.step(np.array([5, 0, 0, 0]))
    trajectory = env.trajectory
    assert [step.action_ids.tolist() for step in trajectory.steps] == [[3, 4], [5]]
    assert [step.observation_ids.tolist() for step in trajectory.steps] == [[1, 2], [1, 2, 1]]
    assert trajectory.stop_reason is StopReason.SUCCESS


def test_other_spaces_are_refused_with_the_way_out(parrot):
    with pytest.raises(TypeError, match="as_token_env"):
        StepRecorder(gym.make("FrozenLake-v1"))
    with pytest.raises(TypeError, match="as_token_env"):
        StepRecorder(DiscreteTokens(parrot, 4))


def test_astep_gives_the_same_record(parrot):
    def play(awaited: bool):
        env = StepRecorder(OrderEnforcing(PassiveEnvChecker(parrot)))
        assert can_await(env)
        env.reset(seed=4)
        for ids in ([3, 4], [], [9] * 24):
            asyncio.run(env.astep(Generation(ids, [0.0] * len(ids)))) if awaited else env.step(Generation(ids, [0.0] * len(ids)))
        return env.trajectory

    assert play(True) == play(False)


def test_a_chain_is_awaited_only_where_nothing_is_skipped(parrot):
    class Doubles(StepRecorder):
        def step(self, action):
            return super().step(action)

    class Both(Doubles):
        async def astep(self, action):
            return await super().astep(action)

    class OldStyle(Parrot):
        def step(self, action):
            return super().step(action)

    assert can_await(parrot)
    assert can_await(DiscreteTokens(StepRecorder(parrot), 3))
    assert can_await(Both(parrot))
    assert not can_await(Doubles(parrot))
    assert not can_await(StepRecorder(TimeLimit(parrot, 3)))
    assert not can_await(StepRecorder(OldStyle(max_action_tokens=8)))
    assert not can_await(StepRecorder(PlainTokens()))


def test_numbers_of_extra_info_become_metrics_and_fields_are_not_repeated():
    class Scores(AgentEnv):
        extra_info: ClassVar = {"f1": 0.0, "hits": 0, "exact": False, "note": ""}

        def _begin(self, options):
            return Observation(text="go")

        def _respond(self, action):
            return Outcome(Observation(text="done"), 0.5, True, {"f1": 0.25, "hits": 3, "note": "x", "is_success": True})

    env = StepRecorder(Scores())
    env.reset()
    env.step([4])
    assert env.trajectory.metrics == {"f1": 0.25, "hits": 3.0, "exact": 0.0}
    step = env.trajectory.steps[0]
    assert step.reward_parts == {"task": 0.5}
    assert not {"feedback", "reward_parts", "state_key", "stop_reason"} & set(step.info)
    assert step.info["is_success"] is True


def test_a_cut_ends_the_episode_with_its_reason(parrot):
    env = StepRecorder(parrot)
    env.reset(seed=0)
    assert len(env.cut(StopReason.DEADLINE)) == 0
    env.reset(seed=0)
    env.step([4])
    trajectory = env.cut(StopReason.DEADLINE)
    assert (trajectory.stop_reason, trajectory.truncated, trajectory.terminated) == (StopReason.DEADLINE, True, False)
    with pytest.raises(ResetNeeded):
        env.step([4])


def test_behind_a_torch_conversion_the_record_is_the_same(parrot):
    require("torch")
    wrappers = require("gymnasium.wrappers.numpy_to_torch")
    let_text_through_array_conversion()

    def play(env):
        env.reset(seed=1)
        for ids in ([3, 4, 5], [6]):
            env.step(Generation(ids, [-0.5] * len(ids)))
        return env.trajectory

    outer, plain = play(StepRecorder(wrappers.NumpyToTorch(parrot))), play(StepRecorder(parrot))
    assert outer == plain
    env = wrappers.NumpyToTorch(StepRecorder(parrot))
    env.reset(seed=1)
    assert len(env.get_wrapper_attr("trajectory")) == 0


def test_wrappers_and_flows_load_without_torch():
    code = "import sys, agent_gym.wrappers, agent_gym.policies, agent_gym.flows, agent_gym.trajectory_io; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_door_at_the_root_is_no_import_name(tmp_path):
    code = "import importlib.util as u, agent_gym.wrappers as w\ns = u.spec_from_file_location('wrappers', w.__file__)\nm = u.module_from_spec(s)\ns.loader.exec_module(m)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "agent_gym.wrappers" in done.stderr
    assert "ImportError" in done.stderr
