"""What `gymnasium.make` gives for each id."""

import gymnasium
import pytest
from helpers import require

import agent_gym


def time_limits(env_id: str) -> list[object]:
    """Whatever of Gymnasium's would end an episode: the limit of the spec, and its wrapper."""
    if "TextWorld" in env_id:
        require("textworld")
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


def test_a_class_of_a_module_is_registered_when_it_is_named(tmp_path, monkeypatch):
    from agent_gym.registration import registered_id

    (tmp_path / "my_rooms.py").write_text(
        "from agent_gym.core import AgentEnv, Observation, Outcome\n"
        "class Room(AgentEnv):\n"
        "    def _begin(self, options):\n        return Observation(text='Say hello.')\n"
        "    def _respond(self, action):\n        return Outcome(Observation(text='Good.'), 1.0, True, {'is_success': True})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert registered_id("my_rooms:Room") == "Local/Room-v0" == registered_id("my_rooms:Room")
    env = gymnasium.make("Local/Room-v0")
    env.reset(seed=0)
    assert env.step(env.unwrapped.encode_action("hello"))[1:3] == (1.0, True)
    assert registered_id("agent_gym:AgentR1/Tool-v0") == "AgentR1/Tool-v0" == registered_id("AgentR1/Tool-v0")
    with pytest.raises(ValueError, match="no class"):
        registered_id("my_rooms:Hall")
    with pytest.raises(ImportError):
        registered_id("no_such_module_anywhere:Room")
