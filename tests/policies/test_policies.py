"""What all policies share, and the policies without a model."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_envs import Parrot

from agent_gym.policies import Policy, RandomPolicy, Sampling, ScriptedPolicy, check_training_sampling, derive_seed
from agent_gym.policies.base import uniforms


@pytest.mark.parametrize(
    ("setting", "reason"),
    [({"top_p": 0.9}, "nucleus"), ({"top_k": 5}, "cut tokens"), ({"min_p": 0.1}, "cut tokens"), ({"temperature": 0.0}, "greedy")],
)
def test_training_refuses_what_it_cannot_train_on_with_the_reason(setting, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        check_training_sampling(Sampling(**setting))
    assert next(iter(setting)) in str(caught.value)


def test_training_refuses_stop_strings_and_takes_plain_sampling():
    check_training_sampling(Sampling(temperature=0.7, stop_token_ids=(1,)))
    with pytest.raises(ValueError, match="text and ids disagree"):
        check_training_sampling(Sampling(), stop_strings=["</s>"])


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": -1.0},
        {"temperature": float("inf")},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_k": -1},
        {"min_p": 2.0},
        {"max_tokens": 0},
    ],
)
def test_settings_out_of_range_are_named(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Sampling(**setting)


def test_uniform_numbers_are_uniform_and_independent_over_seeds_and_places():
    seeds, places = np.meshgrid(np.arange(300, dtype=np.uint64), np.arange(300, dtype=np.uint64), indexing="ij")
    drawn = uniforms(seeds.reshape(-1), places.reshape(-1)).reshape(300, 300)
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    counts = np.histogram(drawn, bins=100, range=(0, 1))[0]
    assert np.abs(counts - 900).max() < 6 * 30
    for one, other in ((drawn[:-1], drawn[1:]), (drawn[:, :-1], drawn[:, 1:])):
        assert abs(np.corrcoef(one.reshape(-1), other.reshape(-1))[0, 1]) < 0.02
    assert len(np.unique(drawn)) > 89_990


@given(seed=st.integers(0, 2**63), path=st.lists(st.one_of(st.integers(0, 99), st.text(max_size=3)), max_size=4))
def test_derived_seeds_fit_and_tell_places_apart(seed, path):
    derived = derive_seed(seed, *path)
    assert 0 <= derived < 2**63
    assert derived == derive_seed(seed, *path)
    assert derived != derive_seed(seed + 1, *path)
    assert derived != derive_seed(seed, *path, 0)


def test_derived_seeds_are_the_same_in_another_process():
    code = "from agent_gym.policies import derive_seed; print(derive_seed(3, 1, 'a', 2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"}, cwd=".")
    assert int(done.stdout) == derive_seed(3, 1, "a", 2)


@pytest.mark.parametrize("policy", [RandomPolicy(10), ScriptedPolicy(["x"])])
def test_policies_follow_the_protocol(policy):
    assert isinstance(policy, Policy)


def test_random_replies_follow_their_seed_and_end_at_stop_ids():
    policy = RandomPolicy(20, max_length=12, seed=0)

    def reply(**settings):
        return asyncio.run(policy.generate([1], Sampling(**settings)))

    assert reply(seed=3) == reply(seed=3)
    assert len({tuple(reply().token_ids.tolist()) for _ in range(20)}) > 15
    for seed in range(100):
        generation = reply(seed=seed, stop_token_ids=(1, 2, 3), max_tokens=6)
        ids = generation.token_ids.tolist()
        assert 1 <= len(ids) <= 6
        assert not set(ids[:-1]) & {1, 2, 3}
        assert (generation.finish_reason == "stop") == (ids[-1] in (1, 2, 3))
        np.testing.assert_allclose(generation.logprobs, -np.log(20), rtol=1e-6)
    with pytest.raises(ValueError, match="vocab_size"):
        asyncio.run(RandomPolicy().generate([1], Sampling()))


def test_scripts_are_played_by_hand_too():
    env = Parrot()
    env.reset(seed=3)

    def reply(policy, session=None):
        return env.chat.decode(asyncio.run(policy.generate([], Sampling(), session=session)).token_ids.tolist()[:-1])

    assert reply(ScriptedPolicy.expert(env)) == env.word
    policy = ScriptedPolicy(["one", "two"], env=env)
    assert [reply(policy) for _ in range(3)] == ["one", "two", "two"]
    policy.bind(env, "other")
    assert reply(policy, "other") == "one"
    policy.forget("other")
    with pytest.raises(ValueError, match="bind"):
        reply(policy, "other")
    assert reply(ScriptedPolicy(lambda env, turn: f"{env.word}:{turn}", env=env)) == f"{env.word}:0"
    with pytest.raises(ValueError, match="at least one"):
        ScriptedPolicy([])


def test_an_environment_without_an_expert_is_named():
    class Silent(Parrot):
        def expert(self):
            return None

    env = Silent()
    env.reset()
    with pytest.raises(ValueError, match="Silent has no expert"):
        asyncio.run(ScriptedPolicy.expert(env).generate([], Sampling()))


def test_the_random_policy_takes_the_vocabulary_of_each_episode() -> None:
    class Space:
        def __init__(self, size: int) -> None:
            self.vocab_size = size

        def get_wrapper_attr(self, name: str) -> object:
            return self

    policy = RandomPolicy(seed=0, max_length=200)
    policy.bind(Space(1000), "big")
    policy.bind(Space(5), "small")

    def drawn(session: str) -> set[int]:
        return set(asyncio.run(policy.generate([1], Sampling(seed=4), session=session)).token_ids.tolist())

    assert max(drawn("small")) < 5 < max(drawn("big"))
    policy.forget("small")
    with pytest.raises(ValueError, match="vocab_size"):
        drawn("small")
