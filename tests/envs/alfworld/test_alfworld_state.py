"""`get_state` and `set_state` of the ALFWorld environment: a moment can be returned to from every step of an episode, here and elsewhere."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from agent_gym.core import EnvState
from agent_gym.envs.alfworld import ALFWorldEnv
from agent_gym.envs.alfworld.generator import generate_game

Frame = tuple[Any, float, bool, bool, dict[str, Any]]
FORMS: list[dict[str, Any]] = [
    {},
    {"context": "append", "show_admissible": False},
    {"context": "window:3"},
    {"context": "append", "action_format": "tool", "expert_actions": True},
    {"action_format": "line", "grammar": "put", "invalid_penalty": 0.5},
]


def names(kwargs: dict[str, Any]) -> str:
    return "-".join(map(str, kwargs.values())) or "defaults"


def script(env: ALFWorldEnv, rng: np.random.Generator) -> list[list[int]]:
    """The expert, with commands of all sorts and none between."""
    expert = env.expert()
    assert expert is not None
    actions = []
    while True:
        odd = [env.write_command(str(rng.choice(env._commands))), env.write_command("dance"), "nothing at all", env.write_command("help")]
        text = expert() if rng.random() < 0.5 else str(rng.choice(odd))
        actions.append(env.encode_action(text))
        *_, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            return actions


def same(one: Frame, other: Frame) -> bool:
    return bool(one[0].tobytes() == other[0].tobytes() and one[1:] == other[1:])


@pytest.mark.parametrize("kwargs", FORMS, ids=names)
def test_from_every_step_the_same_actions_give_the_same_bytes(kwargs: dict[str, Any]) -> None:
    env, other = ALFWorldEnv(level="small", **kwargs), ALFWorldEnv(level="small", **kwargs)
    env.reset(seed=11)
    actions = script(env, np.random.default_rng(1))
    assert len(actions) > 6
    env.reset(seed=11)
    moments: list[EnvState] = [env.get_state()]
    prompts, frames = [env.prompt_ids], []
    for action in actions:
        frames.append(env.step(action))
        moments.append(env.get_state())
        prompts.append(env.prompt_ids)
    next_task = env.reset()[1]["task_id"]
    kept = pickle.dumps(moments)
    for player, moment_list in ((env, moments), (other, pickle.loads(kept))):
        for at in reversed(range(len(actions))):
            shown = player.set_state(moment_list[at])
            assert (player.observation_space.unpad(shown, len(prompts[at])) == prompts[at]).all()
            for action, frame in zip(actions[at:], frames[at:], strict=True):
                assert same(player.step(action), frame)
            assert player.reset()[1]["task_id"] == next_task, "the generator that draws tasks is a part of the moment"
    assert pickle.dumps(moments) == kept, "playing on leaves a moment alone"


def test_two_branches_of_one_moment_do_not_meet() -> None:
    env = ALFWorldEnv()
    _, info = env.reset(seed=0)
    moment = env.get_state()
    ways = [command for command in info["admissible_commands"] if command.startswith("go to ")][:4]
    ends = []
    for _ in range(2):
        for way in ways:
            env.set_state(moment)
            *_, info = env.step(env.encode_action(env.write_command(way)))
            assert info["command"] == way and info["turn"] == 1
            ends.append((info["feedback"], info["state_key"], tuple(env.prompt_ids.tolist())))
    assert ends[:4] == ends[4:] and len(set(ends)) == 4


def test_a_finished_episode_stays_finished_and_a_running_one_runs() -> None:
    env = ALFWorldEnv(level="small")
    env.reset(seed=0)
    expert = env.expert()
    assert expert is not None
    before = env.get_state()
    while not env.step(env.encode_action(expert()))[2]:
        before = env.get_state()
    over = env.get_state()
    env.set_state(before)
    assert env.step(env.encode_action(expert()))[4]["won"]
    env.set_state(over)
    with pytest.raises(ResetNeeded):
        env.step(env.encode_action("x"))


def test_a_moment_of_another_game_brings_its_game_along(tmp_path: Path) -> None:
    game = generate_game("valid_seen", 3, level="small")
    path = tmp_path / "valid_seen" / "a" / "b" / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(game))
    env = ALFWorldEnv()
    moments, frames = [], []
    options: list[dict[str, Any]] = [{"index": 4}, {"task": game}, {"gamefile": str(path)}, {"index": 5}]
    for one in options:
        env.reset(options=one)
        moments.append(env.get_state())
        frames.append(env.step(env.encode_action("<action>look</action>")))
    for moment, frame in zip(pickle.loads(pickle.dumps(moments)), frames, strict=True):
        fresh = ALFWorldEnv()
        for player in (env, fresh):
            player.set_state(moment)
            assert same(player.step(player.encode_action("<action>look</action>")), frame)


def test_a_moment_of_another_kind_of_environment_is_refused(qwen3_path: str) -> None:
    env = ALFWorldEnv()
    env.reset(seed=0)
    moment = env.get_state()
    with pytest.raises(ValueError, match="make both environments"):
        ALFWorldEnv(tokenizer=qwen3_path).set_state(moment)
    with pytest.raises(ValueError, match="make both environments"):
        ALFWorldEnv(max_observation_tokens=100).set_state(moment)


@pytest.mark.parametrize(
    "other", [{"split": "valid_seen"}, {"level": "full"}, {"grammar": "put"}, {"task_types": ["pick_two_obj_and_place"]}], ids=names
)
def test_a_moment_does_not_begin_another_game_of_the_same_number(other: dict[str, Any]) -> None:
    keywords: dict[str, Any] = {"level": "small", "task_types": ["pick_and_place_simple"]}
    env, elsewhere = ALFWorldEnv(**keywords), ALFWorldEnv(**{**keywords, **other})
    for player in (env, elsewhere):
        player.reset(options={"index": 5})
    moment, kept = env.get_state(), elsewhere.get_state()
    with pytest.raises(ValueError, match="make both environments with the same keywords"):
        elsewhere.set_state(moment)
    assert elsewhere.get_state() == kept, "a refused moment changes nothing"


def test_before_the_first_reset_there_is_a_moment_too() -> None:
    env = ALFWorldEnv()
    moment = env.get_state()
    env.reset(seed=0)
    env.set_state(moment)
    with pytest.raises(ResetNeeded):
        env.step([1])


# ------------------------------------------------------------------------------------------------ mutants


class ForgetsTheWorld(ALFWorldEnv):
    """Returns to the prompt and not to the situation."""

    def _set_world(self, world: Any) -> None:
        if self.task is None:
            super()._set_world(world)


class ForgetsTheCommands(ALFWorldEnv):
    """Returns to the situation and forgets what was admissible in it."""

    def _set_world(self, world: Any) -> None:
        super()._set_world(world)
        self._all = []


class ForgetsThePast(ALFWorldEnv):
    """Returns to the situation and keeps the commands that came later."""

    def _set_state(self, state: Any) -> None:
        past = list(self._shown_past)
        super()._set_state(state)
        self._shown_past = past


def returns(kind: type[ALFWorldEnv]) -> bool:
    """Whether replaying from the second step gives the same bytes."""
    env = kind(level="small", invalid_penalty=0.5)
    _, info = env.reset(seed=2)
    ways = [command for command in info["admissible_commands"] if command.startswith("go to ")]
    actions = [env.encode_action(env.write_command(command)) for command in (ways[0], "look", ways[0], ways[1])]
    frames, moment = [], None
    for index, action in enumerate(actions):
        if index == 1:
            moment = env.get_state()
        frames.append(env.step(action))
    assert moment is not None
    env.set_state(moment)
    return all(same(env.step(action), frame) for action, frame in zip(actions[1:], frames[1:], strict=True))


@pytest.mark.parametrize("mutant", [ForgetsTheWorld, ForgetsTheCommands, ForgetsThePast])
def test_a_way_back_that_forgets_something_is_found(mutant: type[ALFWorldEnv]) -> None:
    assert returns(ALFWorldEnv) and not returns(mutant)
