"""`AgentR1/ALFWorld-v0`: what is shown, paid and counted, on generated and on real games, and what users of the original have been bitten by."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.envs.alfworld import ALFWorldEnv
from agent_gym.envs.alfworld.game import TASK_TYPES, Game
from agent_gym.envs.alfworld.generator import generate_game
from agent_gym.envs.alfworld.simulator import Simulator
from agent_gym.envs.commands import Reply
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

NOTHING = "Nothing happens."


@pytest.fixture(scope="module")
def env() -> ALFWorldEnv:
    return ALFWorldEnv()


def act(env: ALFWorldEnv, command: str) -> tuple[float, bool, bool, dict[str, Any]]:
    _, reward, terminated, truncated, info = env.step(env.encode_action(env.write_command(command)))
    return reward, terminated, truncated, info


def follow(env: ALFWorldEnv, policy: Callable[[ALFWorldEnv], str] | None = None, **reset: Any) -> tuple[list[float], dict[str, Any]]:
    """Play the expert, or a policy, to the end; the rewards and the last info."""
    env.reset(**reset)
    expert = env.expert()
    assert expert is not None
    rewards = []
    while True:
        _, reward, terminated, truncated, info = env.step(env.encode_action(expert() if policy is None else policy(env)))
        rewards.append(reward)
        if terminated or truncated:
            return rewards, info


def real_games(data_dir: Path, release: str, **kwargs: Any) -> ALFWorldEnv:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ALFWorldEnv(dataset="official", data_dir=data_dir / "alfworld" / release, split="valid_unseen", **kwargs)


# ------------------------------------------------------------------------------------------------ tasks


def test_it_is_made_by_its_id_with_the_defaults_of_the_benchmark() -> None:
    made = gymnasium.make("AgentR1/ALFWorld-v0")
    observation, info = made.reset(seed=0)
    assert made.observation_space.contains(observation)
    told = {name: info[name] for name in ("dataset", "engine", "grammar", "split", "level", "gamefile", "won")}
    assert told == {
        "dataset": "embedded",
        "engine": "fast",
        "grammar": "move",
        "split": "train",
        "level": "full",
        "gamefile": "",
        "won": False,
    }
    own: Any = made.unwrapped
    assert (own.max_turns, own.max_observation_tokens, own.max_action_tokens, own.num_tasks) == (50, 8192, 512, None)
    assert own.show_admissible and own.action_format == "tag" and own.invalid_penalty == 0.0
    assert info["task_type"] in TASK_TYPES
    made.close()


def test_the_task_is_a_function_of_split_and_seed() -> None:
    tasks: dict[tuple[str, int], str] = {}
    for split in ALFWorldEnv.splits:
        first, second = (ALFWorldEnv(split=split) for _ in range(2))
        for seed in (0, 1, 2):
            one, info = first.reset(seed=seed)
            second.reset(seed=seed + 1)
            other, again = second.reset(seed=seed)
            assert (one == other).all() and info == again and info["split"] == split
            assert first.task is not None
            tasks[split, seed] = str(first.task.data)
    assert len(set(tasks.values())) == len(tasks)


def test_reset_without_a_seed_goes_on_drawing(env: ALFWorldEnv) -> None:
    env.reset(seed=3)
    first = env.task_id
    env.reset()
    assert env.task_id != first


def test_an_option_chooses_the_game_and_two_are_one_too_many(env: ALFWorldEnv) -> None:
    env.reset(options={"index": 5})
    assert env.task_id == "full/train/5" and env.task is not None
    game = generate_game("train", 5)
    assert env.task.data == game
    env.reset(options={"task": game})
    assert env.task_id.startswith("given/")
    for options, text in (
        ({"index": -1}, "counted from 0"),
        ({"index": "5"}, "whole number"),
        ({"index": True}, "whole number"),
        ({"task": "game.tw-pddl"}, "JSON object"),
        ({"gamefile": 3}, "path of a game"),
        ({"index": 1, "task": game}, "one of the options index, gamefile, task, not index and task"),
        ({"file": "x"}, "did you mean"),
    ):
        with pytest.raises(ValueError, match=text):
            env.reset(options=options)


def test_engines_are_fast_or_textworld() -> None:
    with pytest.raises(ValueError, match="fast, textworld"):
        ALFWorldEnv(engine="stock")


def test_the_fast_engine_needs_neither_textworld_nor_torch_nor_a_planner(tmp_path: Path) -> None:
    """The original's planner in `step` cost minutes per update; and its import makes a folder and sets a variable."""
    code = (
        "import os, sys; from agent_gym.envs.alfworld import ALFWorldEnv; e = ALFWorldEnv(); e.reset(seed=0); x = e.expert();\n"
        "while not e.step(e.encode_action(x()))[2]: pass\n"
        "print([n for n in ('torch', 'textworld', 'alfworld', 'fast_downward', 'jericho') if n in sys.modules], 'ALFWORLD_DATA' in os.environ)"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[] False" and not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------ success and reward


@pytest.mark.parametrize("level", ["full", "small"])
@pytest.mark.parametrize("kind", TASK_TYPES)
def test_the_expert_wins_every_kind_of_task_and_is_paid_once(kind: str, level: str) -> None:
    for split in ALFWorldEnv.splits:
        env = ALFWorldEnv(split=split, task_types=[kind], level=level)
        rewards, info = follow(env, options={"index": 7})
        assert rewards[-1] == 1.0 and not any(rewards[:-1]), "the engine's score is a total; a reward is what a step adds"
        assert info["won"] and info["is_success"] and info["stop_reason"] is StopReason.SUCCESS and info["task_type"] == kind


@pytest.mark.parametrize("action_format", ["tag", "tool", "line"])
@pytest.mark.parametrize("grammar", ["move", "put"])
def test_the_expert_wins_in_every_form_and_wording(grammar: str, action_format: str, qwen3_path: str) -> None:
    env = ALFWorldEnv(grammar=grammar, action_format=action_format, tokenizer=qwen3_path)
    for index in range(6):
        assert follow(env, options={"index": index})[1]["won"]


@pytest.mark.parametrize("release", ["current", "old_grammar"])
def test_the_expert_wins_the_real_games(release: str, data_dir: Path) -> None:
    env = real_games(data_dir, release)
    for index in range(24):
        rewards, info = follow(env, options={"index": index})
        assert info["won"] and sum(rewards) == 1.0 and len(rewards) < 50


def test_the_end_of_an_episode_is_no_success(env: ALFWorldEnv) -> None:
    """Many took `done` for success, which it is at the limit too."""
    rewards, info = follow(env, lambda env: env.write_command("look"), seed=0)
    assert len(rewards) == 50 and sum(rewards) == 0.0
    assert info["stop_reason"] is StopReason.MAX_TURNS and not info["won"] and not info["is_success"]


def test_a_win_on_the_last_turn_is_a_success(env: ALFWorldEnv) -> None:
    rewards, _ = follow(env, seed=0)
    short = ALFWorldEnv(max_turns=len(rewards))
    _, info = follow(short, seed=0)
    assert info["won"] and info["is_success"] and info["stop_reason"] is StopReason.SUCCESS


def test_a_penalty_is_taken_off_for_what_the_engine_does_not_admit() -> None:
    env = ALFWorldEnv(invalid_penalty=0.1)
    env.reset(seed=0)
    reward, *_, info = act(env, "dance")
    assert reward == -0.1 and info["feedback"] == NOTHING and info["reward_parts"] == {"task": 0.0, "invalid": -0.1}
    assert act(env, "look")[0] == 0.0 and act(env, "help")[0] == 0.0


# ------------------------------------------------------------------------------------------------ commands


def test_only_the_exact_command_counts_and_costs_a_turn_otherwise(env: ALFWorldEnv) -> None:
    """The original forgives nothing; an environment that does is another task."""
    _, info = env.reset(seed=0)
    there = info["admissible_commands"][0]
    assert there.startswith("go to ")
    for wrong in (there.upper(), there.replace(" ", "  ", 1), f"{there}.", there.replace("go to", "goto"), f"{there}\n{there}"):
        _, terminated, truncated, info = act(env, wrong)
        assert info["feedback"] == NOTHING and not info["action_valid"] and not terminated and not truncated
    assert env.turn == 5
    assert act(env, f"  {there} ")[3]["action_valid"]


def test_help_is_admissible_and_not_shown(env: ALFWorldEnv) -> None:
    _, info = env.reset(seed=0)
    assert "help" not in info["admissible_commands"] and "- help" not in env.chat.decode(env.prompt_ids.tolist())
    assert info["admissible_commands"] == tuple(sorted(info["admissible_commands"]))
    *_, info = act(env, "help")
    assert info["action_valid"] and "Available commands" in info["feedback"]


def test_a_receptacle_at_the_place_where_one_stands_cannot_be_gone_to(env: ALFWorldEnv) -> None:
    """ "go to drawer 3" was reported as broken: it stands where the agent is already."""
    shared = 0
    for index in range(12):
        env.reset(options={"index": index})
        assert env.task is not None and isinstance(env.task.game, Game)
        game = env.task.game
        for here in game.receptacles_at.values():
            if len(here) < 2:
                continue
            shared += 1
            one, other = game.names[here[0]], game.names[here[1]]
            act(env, f"go to {one}")
            *_, info = act(env, f"go to {other}")
            assert info["feedback"] == NOTHING and f"go to {other}" not in env._commands
            *_, info = act(env, "look")
            assert one in info["feedback"] and other in info["feedback"]
            break
    assert shared >= 6


@pytest.mark.parametrize("release", [None, "current", "old_grammar"])
def test_the_wording_is_that_of_the_games_own_grammar_and_is_told(release: str | None, request: pytest.FixtureRequest) -> None:
    """A change of `put X in/on Y` to `move X to Y` broke plans and prompts, and a success of 0.09 was explained by it much later."""
    if release is None:
        envs = {grammar: ALFWorldEnv(grammar=grammar) for grammar in ("move", "put")}
    else:
        envs = {"move" if release == "current" else "put": real_games(request.getfixturevalue("data_dir"), release)}
    for grammar, env in envs.items():
        seen = Counter()
        for index in range(3):
            env.reset(options={"index": index})
            expert = env.expert()
            assert expert is not None
            while True:
                *_, terminated, truncated, info = env.step(env.encode_action(expert()))
                seen.update(command.split()[0] for command in info["admissible_commands"])
                assert info["grammar"] == grammar
                if terminated or truncated:
                    break
        assert seen[grammar] and not seen[{"move": "put", "put": "move"}[grammar]]


# ------------------------------------------------------------------------------------------------ prompts


def test_contexts_that_grow_show_the_engines_text_to_the_letter(data_dir: Path) -> None:
    for env in (
        ALFWorldEnv(context="append", show_admissible=False),
        real_games(data_dir, "current", context="append", show_admissible=False),
    ):
        env.reset(options={"index": 2})
        assert env.task is not None and isinstance(env.task.game, Game)
        engine = Simulator(env.task.game)
        expert = env.expert()
        assert expert is not None
        shown = env.chat.decode(env.prompt_ids.tolist())
        intro = engine.reset()
        assert intro.strip() in shown and "-= Welcome to TextWorld, ALFRED! =-" in shown and "Your task is to: " in shown
        for command in ("look", "help", "nonsense", "inventory"):
            before = env.prompt_ids.size
            action = env.encode_action(env.write_command(command))
            env.step(action)
            turn = env.chat.decode(env.prompt_ids.tolist()[before + len(action) :])
            assert engine.step(command) in turn


def test_a_rebuilt_prompt_is_task_observation_past_and_admissible_commands(env: ALFWorldEnv) -> None:
    _, info = env.reset(seed=0)
    first = env.chat.decode(env.prompt_ids.tolist())
    assert env.task is not None
    assert (
        f"Task: {env.task.game.task}\n\nNow: You are in the middle of a room." in first
        and "Welcome" not in first
        and "Your task is" not in first
    )
    assert "Past commands" not in first
    there = info["admissible_commands"][0]
    *_, info = act(env, there)
    content = env._rebuild()[1]["content"]
    listed = "\n".join(f"- {command}" for command in info["admissible_commands"])
    assert content == (
        f"Task: {env.task.game.task}\n\nNow: {info['feedback']}\n\nPast commands:\n1. {there}\n\nAdmissible commands:\n{listed}"
    )


@pytest.mark.parametrize(("grammar", "put"), [("move", "move X to Y"), ("put", "put X in/on Y")])
def test_without_the_list_the_system_message_names_the_commands(grammar: str, put: str, env: ALFWorldEnv) -> None:
    assert "The commands are" not in env.decode(*env.reset(seed=0))
    hidden = ALFWorldEnv(grammar=grammar, show_admissible=False)
    assert f"{put}," in hidden.decode(*hidden.reset(seed=0))
    own = ALFWorldEnv(show_admissible=False, system_prompt="Be brief.")
    assert "The commands are" not in own.decode(*own.reset(seed=0))


def waste(env: ALFWorldEnv) -> str:
    return env.write_command(("look", "help", "inventory")[env.turn % 3])


def say_nothing(env: ALFWorldEnv) -> str:
    return "é€ " * 40


def waste_much(env: ALFWorldEnv) -> str:
    """As long as an action may be, all of it a command."""
    ids = env.chat.encode_text("again " * env.max_action_tokens)
    room = env.max_action_tokens - len(env.encode_action(env.write_command(""))) - 2
    return env.write_command(env.chat.decode(ids[:room]).strip())


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["default", "qwen3"])
def test_nobody_meets_the_context_limit_under_the_defaults(tokenizer: str, request: pytest.FixtureRequest) -> None:
    opened = request.getfixturevalue("qwen3_path") if tokenizer == "qwen3" else None
    made = [ALFWorldEnv(tokenizer=opened, split=split) for split in ALFWorldEnv.splits]
    much = waste_much(made[0])
    assert 500 < len(made[0].encode_action(much)) <= 512
    for index in range(200):
        assert follow(made[index % 3], options={"index": index})[1]["stop_reason"] is StopReason.SUCCESS
    lengths = []
    for index, policy in enumerate((waste, say_nothing, *[lambda env: much] * 6)):
        _, info = follow(made[index % 3], policy, options={"index": index})
        assert info["stop_reason"] is StopReason.MAX_TURNS
        lengths.append(info["observation_length"])
    for index in range(200):  # the same for every task, with the turns before the last two taken as wasted
        env = made[index % 3]
        worst = env._shown_past[:48] if index else made[(len(lengths) - 1) % 3]._shown_past[:48]
        env.reset(options={"index": index})
        env._shown_past[:], env.turn = worst, 48
        for text in (much, much):
            *_, truncated, info = env.step(env.encode_action(text))
        assert truncated and info["stop_reason"] is StopReason.MAX_TURNS
        lengths.append(info["observation_length"])
    assert 3000 < max(lengths) < 6000, "a rebuilt prompt keeps all 50 commands, and half of the room is left"


# ------------------------------------------------------------------------------------------------ info


def test_the_same_situation_has_one_key_whatever_led_there(env: ALFWorldEnv) -> None:
    _, info = env.reset(options={"index": 0})
    first, second = [command for command in info["admissible_commands"] if command.startswith("go to ")][:2]
    keys = []
    for way in ((first,), (second, first), ("look", second, "nonsense", first, "inventory"), (second,), ("look",), ()):
        _, info = env.reset(options={"index": 0})
        for command in way:
            *_, info = act(env, command)
        keys.append(info["state_key"])
    assert keys[0] == keys[1] == keys[2] and len(set(keys)) == 3 and keys[4] == keys[5]
    other = env.reset(options={"index": 1})[1]["state_key"]
    assert other not in keys


def test_the_key_changes_with_everything_that_matters() -> None:
    env = ALFWorldEnv(task_types=["pick_heat_then_place_in_recep"])
    env.reset(options={"index": 3})
    expert = env.expert()
    assert expert is not None
    keys = [env._state_key]
    while True:
        *_, terminated, _, info = env.step(env.encode_action(expert()))
        keys.append(info["state_key"])
        if terminated:
            break
    assert len(set(keys)) == len(keys) >= 5, "each command of an expert changes the state"


def test_info_tells_where_a_real_game_is_from(data_dir: Path) -> None:
    env = real_games(data_dir, "old_grammar")
    _, info = env.reset(options={"index": 0})
    assert (info["dataset"], info["engine"], info["grammar"], info["split"], info["level"]) == (
        "official",
        "fast",
        "put",
        "valid_unseen",
        "",
    )
    assert info["task_id"] == "valid_unseen/look_at_obj_in_light-AlarmClock-None-DeskLamp-308/trial_T20190908_222917_366542"
    assert info["gamefile"].endswith(f"{info['task_id']}/game.tw-pddl") and info["task_type"] == "look_at_obj_in_light"
    _, given = ALFWorldEnv().reset(options={"gamefile": info["gamefile"]})
    assert (given["dataset"], given["split"]) == ("given", "valid_unseen")
    assert Path(given["gamefile"]).resolve() == Path(info["gamefile"]).resolve()


def test_an_index_covers_every_real_game_once(data_dir: Path) -> None:
    env = real_games(data_dir, "current")
    assert env.num_tasks == 24
    files = [env.reset(options={"index": index})[1]["gamefile"] for index in range(24)]
    assert files == sorted(files) and len(set(files)) == 24
    with pytest.raises(ValueError, match="has 24 games"):
        env.reset(options={"index": 24})


class Total(ALFWorldEnv):
    """The mutant that pays the engine's score as it is, a total."""

    def _play(self, command: str) -> Reply:
        reply = super()._play(command)
        return dataclasses.replace(reply, reward=float(self._running_engine.score), done=False)


class Ended(ALFWorldEnv):
    """The mutant that takes the end of an episode for success."""

    def _play(self, command: str) -> Reply:
        reply = super()._play(command)
        return dataclasses.replace(reply, success=reply.success or self.turn + 1 >= self.max_turns)


class Historical(ALFWorldEnv):
    """The mutant whose key knows the way."""

    def _state(self) -> str:
        return f"{super()._state()} {self._past}"


def faults(kind: type[ALFWorldEnv]) -> list[str]:
    """What is wrong with an environment's pay, success and keys."""
    env = kind(level="small", max_turns=14)
    env.reset(seed=0)
    expert = env.expert()
    assert expert is not None
    total, keys, ended = 0.0, [env._state_key], False
    while not ended:
        text = expert() if env.task is not None and not env._running_engine.won else env.write_command("look")
        _, reward, terminated, truncated, info = env.step(env.encode_action(text))
        total, ended = total + reward, terminated or truncated
    found = ["pay"] if total != 1.0 else []
    _, info = follow(env, lambda env: env.write_command("look"), seed=0)
    found += ["success"] if info["is_success"] else []
    env.reset(seed=0)
    keys = [env._state_key, act(env, "look")[3]["state_key"]]
    return found + (["key"] if keys[0] != keys[1] else [])


@pytest.mark.parametrize(("mutant", "fault"), [(Total, "pay"), (Ended, "success"), (Historical, "key")])
def test_the_checks_find_what_others_got_wrong(mutant: type[ALFWorldEnv], fault: str) -> None:
    assert faults(ALFWorldEnv) == [] and faults(mutant) == [fault]


# ------------------------------------------------------------------------------------------------ side by side


def test_environments_in_threads_do_not_influence_each_other() -> None:
    """The state of concurrent tasks got mixed elsewhere, and every episode became a success."""

    def play(index: int) -> tuple[Any, ...]:
        env = ALFWorldEnv(level="small")
        policy = None if index % 2 else (lambda env: env.write_command(env._commands[env.turn % len(env._commands)]))
        rewards, info = follow(env, policy, options={"index": index})
        return rewards, info["state_key"], info["won"]

    alone = [play(index) for index in range(16)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(play, range(16)))
    assert together == alone and {won for *_, won in alone} == {True, False}


# ------------------------------------------------------------------------------------------------ conformance


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"context": "append", "show_admissible": False},
        {"context": "window:2"},
        {"action_format": "tool", "context": "append", "max_observation_tokens": 16384},
        {"action_format": "line", "grammar": "put"},
        {"level": "small", "invalid_penalty": 0.1},
    ],
    ids=lambda kwargs: "-".join(map(str, kwargs.values())) or "defaults",
)
def test_it_conforms(kwargs: dict[str, Any]) -> None:
    report = check_agent_env("AgentR1/ALFWorld-v0", kwargs=kwargs)
    report.raise_if_failed()
    skipped = {result.name for result in report.results if result.outcome == "skipped"}
    assert skipped <= {"token_exactness", "control_tokens"}, "prompts that are made anew show no action, and no answer repeats one"
