"""An environment in the middle of an episode can be pickled: the copy goes on as the original does."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import pytest

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.registration import ENVIRONMENTS

ITS_ENGINE_IS_A_PROCESS = {"AgentR1/TextWorld-v0"}


@pytest.mark.parametrize("env_id", sorted({entry.id for entry in ENVIRONMENTS} - ITS_ENGINE_IS_A_PROCESS))
def test_a_pickled_environment_goes_on_alike(env_id: str) -> None:
    env: Any = gymnasium.make(env_id).unwrapped
    env.reset(seed=1)
    copy = pickle.loads(pickle.dumps(env))
    for _ in range(2):
        action = env.encode_action(env.expert()())
        (ids, *rest, info), (ids_, *rest_, info_) = env.step(action), copy.step(action)
        assert ids.tolist() == ids_.tolist() and rest == rest_ and info == info_
        if rest[1] or rest[2]:
            break
    env.close()
    copy.close()
