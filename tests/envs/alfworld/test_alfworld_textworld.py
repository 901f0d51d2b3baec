"""The environment on the original engine: the same bytes as on ours, and what only the original plays."""

from __future__ import annotations

from typing import Any

import pytest
from differential import need_stock_engine
from gymnasium.error import ResetNeeded

from agent_gym.envs.alfworld import ALFWorldEnv
from agent_gym.envs.alfworld.game import GameError
from agent_gym.envs.alfworld.generator import generate_game
from agent_gym.testing import check_agent_env


@pytest.fixture(autouse=True)
def stock_engine() -> None:
    need_stock_engine()


def steps(env: ALFWorldEnv, commands: list[str]) -> list[Any]:
    frames = []
    for command in commands:
        observation, *rest = env.step(env.encode_action(env.write_command(command)))
        rest[-1] = {key: value for key, value in rest[-1].items() if key != "engine"}
        frames.append((observation.tobytes(), *rest))
    return frames


@pytest.mark.parametrize("context", ["append", "rebuild"])
@pytest.mark.parametrize("grammar", ["move", "put"])
def test_prompts_rewards_and_infos_are_those_of_the_fast_engine(grammar: str, context: str) -> None:
    fast, stock = (
        ALFWorldEnv(engine=engine, grammar=grammar, context=context, level="small", invalid_penalty=0.1) for engine in ("fast", "textworld")
    )
    for index in range(2):
        observation, info = fast.reset(options={"index": index})
        other, told = stock.reset(options={"index": index})
        assert observation.tobytes() == other.tobytes()
        assert (info.pop("engine"), told.pop("engine")) == ("fast", "textworld") and info == told
        ahead = ["look", "dance", "help", "inventory"]
        assert steps(fast, ahead) == steps(stock, ahead)
        expert = stock.expert()
        assert expert is not None
        while True:
            command = stock._next_command()
            assert command == fast._next_command()
            one, two = steps(fast, [str(command)]), steps(stock, [str(command)])
            assert one == two
            if one[0][2]:
                assert one[0][-1]["won"]
                break
    stock.close()


def test_a_moment_is_returned_to_by_playing_the_commands_again() -> None:
    env = ALFWorldEnv(engine="textworld", level="small")
    env.reset(options={"index": 3})
    first = [command for command in env._commands if command.startswith("go to ")]
    steps(env, [first[0], "dance"])
    moment = env.get_state()
    ahead = [first[1], "look", "nonsense"]
    frames = steps(env, ahead)
    other = ALFWorldEnv(engine="textworld", level="small")
    other.reset(options={"index": 4})
    for player in (env, other):
        player.set_state(moment)
        assert steps(player, ahead) == frames
    other.close()
    with pytest.raises(ResetNeeded):
        other._next_command()
    other.reset(options={"index": 3})
    env.close()
    env.close()


def test_from_every_step_of_the_experts_play_the_state_is_the_same_again() -> None:
    """Commands that are not possible in the state that is left have to be played again too, and the expert has to follow."""
    env = ALFWorldEnv(engine="textworld", level="small", task_types=["pick_heat_then_place_in_recep"])
    env.reset(options={"index": 1})
    moments, commands, frames = [], [], []
    while not frames or not frames[-1][2]:
        moments.append(env.get_state())
        commands.append(str(env._next_command()))
        frames += steps(env, commands[-1:])
    assert len(frames) >= 5
    for at in reversed(range(len(moments))):
        env.set_state(moments[at])
        assert env._next_command() == commands[at]
        assert steps(env, commands[at : at + 1]) == frames[at : at + 1]
    env.close()


def test_a_game_that_the_fast_engine_refuses_is_played_without_an_expert() -> None:
    data = generate_game("train", 0, level="small")
    odd = {**data, "pddl_domain": data["pddl_domain"].replace("(:action inventory", "(:action list_things_held")}
    odd["grammar"] = data["grammar"].replace("action inventory", "action list_things_held")
    with pytest.raises(GameError, match='engine="textworld"'):
        ALFWorldEnv().reset(options={"task": odd})
    env = ALFWorldEnv(engine="textworld")
    _, info = env.reset(options={"task": odd})
    assert (info["dataset"], info["engine"], info["grammar"], info["task_type"]) == ("given", "textworld", "move", "")
    assert "Task: " in env.chat.decode(env.prompt_ids.tolist()) and len(info["admissible_commands"]) > 3
    frames = steps(env, ["look", info["admissible_commands"][0]])
    assert len({info["state_key"], *(frame[-1]["state_key"] for frame in frames)}) == 3, "its key is what was played"
    with pytest.raises(ValueError, match="the expert plans on our own engine"):
        env._next_command()
    env.close()


@pytest.mark.slow
def test_it_conforms() -> None:
    check_agent_env("AgentR1/ALFWorld-v0", kwargs={"engine": "textworld", "level": "small"}, steps=4).raise_if_failed()
