"""What `gymnasium.make` gives for each id."""

import gymnasium
import pytest

import agent_gym


def time_limits(env_id: str) -> list[object]:
    """Whatever of Gymnasium's would end an episode: the limit of the spec, and its wrapper."""
    spec = gymnasium.spec(env_id)
    env = gymnasium.make(env_id)
    found: list[object] = [spec.max_episode_steps] if spec.max_episode_steps is not None else []
    while isinstance(env, gymnasium.Wrapper):
        found += [env] if isinstance(env, gymnasium.wrappers.TimeLimit) else []
        env = env.env
    return found


@pytest.mark.parametrize("env_id", [entry.id for entry in agent_gym.ENVIRONMENTS])
def test_no_id_has_a_limit_of_steps_beside_max_turns(env_id: str) -> None:
    assert time_limits(env_id) == []
    assert "max_episode_steps" not in gymnasium.spec(env_id).kwargs


def test_a_limit_of_steps_would_be_seen() -> None:
    entry = agent_gym.ENVIRONMENTS[0]
    gymnasium.register("Limited-v0", entry_point=entry.entry_point, max_episode_steps=3)
    try:
        assert len(time_limits("Limited-v0")) == 2
    finally:
        del gymnasium.registry["Limited-v0"]
