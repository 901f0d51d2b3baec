"""stable-baselines3 on environments of ours."""

from __future__ import annotations

import warnings

import gymnasium as gym
import pytest
from helpers import require

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.wrappers import DiscreteTokens

SMALL = {"max_observation_tokens": 1024, "max_action_tokens": 16, "max_turns": 4}


@pytest.fixture(scope="module")
def env():
    return gym.make("AgentR1/Tool-v0", **SMALL)


@pytest.mark.parametrize("face", [lambda env: env, lambda env: DiscreteTokens(env, length=4)])
def test_its_checker_takes_both_faces(env, face):
    checker = require("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on the shape of Box spaces, which token ids do not follow
        checker.check_env(face(env), skip_render_check=True)


def test_its_ppo_learns_through_discrete_tokens(env):
    sb3 = require("stable_baselines3")
    model = sb3.PPO(
        "MlpPolicy",
        DiscreteTokens(env, length=4),
        n_steps=50,
        batch_size=25,
        n_epochs=1,
        device="cpu",
        seed=0,
        policy_kwargs={"net_arch": [16]},
    )
    before = [parameter.detach().clone() for parameter in model.policy.parameters()]
    model.learn(200)
    assert model.num_timesteps == 200
    assert any((one != other).any() for one, other in zip(before, model.policy.parameters(), strict=True))
