"""The environment: rewards and ends, the expert from wherever the player is, info, files, and the conformance checks."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import require
from textworld_play import GAMES, environment, games, played_by_the_expert, send

from agent_gym.envs.textworld import TextWorldEnv
from agent_gym.envs.textworld.games import GameError
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

require("textworld.core")


# ---------------------------------------------------------------------------------------------------- rewards and ends


@pytest.mark.parametrize("name", GAMES)
def test_the_expert_wins_and_the_scores_add_up_to_one(game_cache: Path, name: str) -> None:
    env = environment(name, game_cache)
    rewards, info = played_by_the_expert(env)
    assert info["is_success"] and info["won"] and not info["lost"] and info["stop_reason"] is StopReason.SUCCESS
    assert sum(rewards) == pytest.approx(1.0) and min(rewards) >= 0 and info["score"] == info["max_score"] > 0
    env.close()


def test_a_score_pays_its_share_when_it_grows_and_nothing_else_does(game_cache: Path) -> None:
    env = environment("cook", game_cache)
    env.reset(options={"index": 0})
    score = 0
    for command in ("look", *env._engine.walkthrough):
        _, reward, *_, info = send(env, command)
        assert reward == pytest.approx((info["score"] - score) / info["max_score"])
        score = info["score"]
    assert score == info["max_score"]
    env.close()


def test_sparse_pays_for_winning_alone(game_cache: Path) -> None:
    env = environment("cook", game_cache, reward="sparse")
    rewards, _ = played_by_the_expert(env)
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    env.close()


def test_intermediate_pays_for_coming_nearer_and_ends_nothing(game_cache: Path) -> None:
    env = environment("simple", game_cache, reward="intermediate")
    env.reset(options={"index": 0})
    plan = env._engine.walkthrough
    found = [send(env, command)[1:4] for command in (plan[0], "look", "close " + plan[0].removeprefix("open "), plan[0])]
    assert [reward for reward, *_ in found] == [1.0, 0.0, -1.0, 1.0]
    assert not any(terminated or truncated for _, terminated, truncated in found)
    rewards, info = played_by_the_expert(env)
    assert rewards[-1] == 1.0 and set(rewards) <= {-1.0, 0.0, 1.0} and info["is_success"]
    env.close()


def test_a_lost_game_ends_as_a_failure_and_costs_only_the_intermediate_reward(game_cache: Path) -> None:
    """Eating an ingredient before the meal is prepared loses a cooking game."""
    for reward, wanted in (("score", 0.0), ("sparse", 0.0), ("intermediate", -1.0)):
        env = TextWorldEnv(game="cooking", settings={"take": 0, "cut": True}, num_games=20, cache_dir=game_cache, reward=reward)
        for index in range(20):
            env.reset(options={"index": index})
            asked = {food for food, *_ in env._engine._tracker._game.metadata["ingredients"]}
            eat = [one for one in env._engine.situation.admissible if one.startswith("eat ") and one[4:] in asked]
            if eat:
                break
        _, paid, terminated, truncated, info = send(env, eat[0])
        assert info["lost"] and not info["won"] and not info["is_success"] and info["stop_reason"] is StopReason.FAILURE
        assert terminated and not truncated and paid == wanted and "*** You lost! ***" in info["feedback"]
        env.close()


def test_the_limit_of_turns_is_no_success_and_no_end_of_the_game(game_cache: Path) -> None:
    env = environment("coin", game_cache, max_turns=2)
    env.reset(options={"index": 0})
    send(env, "look")
    _, reward, terminated, truncated, info = send(env, "look")
    assert truncated and not terminated and reward == 0 and not info["is_success"] and info["stop_reason"] is StopReason.MAX_TURNS
    env.close()


def test_commands_that_the_game_does_not_carry_out_are_invalid_and_cost_the_penalty(game_cache: Path) -> None:
    env = environment("coin", game_cache, invalid_penalty=0.25)
    env.reset(options={"index": 0})
    for command, valid in (("look", True), ("xyzzy", False), ("save", False), ("go up", False), ("LOOK.", True)):
        _, reward, *_, info = send(env, command)
        assert info["action_valid"] is valid and reward == (0.0 if valid else -0.25), command
    env.close()


def test_a_game_without_a_highest_score_is_refused_for_the_score_alone(game_cache: Path, tmp_path: Path) -> None:
    source = games("coin", game_cache).path(0)
    shutil.copy(source, tmp_path / "endless.z8")
    notes = json.loads(source.with_suffix(".json").read_text())
    notes["quests"][0].update(repeatable=True, optional=True)
    (tmp_path / "endless.json").write_text(json.dumps(notes))
    env = TextWorldEnv(game=tmp_path / "endless.z8")
    with pytest.raises(GameError, match="has no highest score"):
        env.reset()
    TextWorldEnv(game=tmp_path / "endless.z8", reward="sparse").reset()


# ---------------------------------------------------------------------------------------------------- the expert


@pytest.mark.parametrize("name", GAMES)
def test_the_expert_wins_after_any_detour_that_can_be_made_good(game_cache: Path, name: str) -> None:
    env = environment(name, game_cache, max_turns=200)
    for trial in range(5):
        rng = random.Random(trial)
        env.reset(options={"index": 0})
        ask = env.expert()
        detours, ended = rng.randrange(1, 9), False
        while not ended:
            own = detours > 0 and rng.random() < 0.6
            safe = [
                one
                for one in env._engine.situation.admissible
                if one.split()[0] not in ("eat", "drink", "cook", "chop", "slice", "dice", "take", "prepare")
            ]
            action = env.write_command(rng.choice(safe)) if own else ask()
            detours -= own
            *_, terminated, truncated, info = env.step(env.encode_action(action))
            ended = terminated or truncated
        assert info["is_success"], (trial, info["stop_reason"])
    env.close()


def test_what_can_not_be_undone_does_not_hold_the_expert_up(game_cache: Path) -> None:
    """In a game with `drop`, where TextWorld knows no plan, food that the recipe does not ask for is eaten, and the expert wins all the same."""
    env = environment("drop", game_cache, max_turns=100, num_games=20)
    for index in range(20):
        env.reset(options={"index": index})
        asked = {food for food, *_ in env._engine._tracker._game.metadata["ingredients"]}
        spare = [
            one
            for one in env._engine.situation.admissible
            if one.startswith("take ") and one[5:].split(" from ")[0] not in {*asked, "knife", "cookbook"}
        ]
        food = spare[0][5:].split(" from ")[0] if spare else ""
        if food and send(env, spare[0])[-1]["action_valid"] and f"eat {food}" in env._engine.situation.admissible:
            break
    *_, info = send(env, f"eat {food}")
    assert info["action_valid"] and not info["lost"] and not env._engine.plan()
    ask, ended = env.expert(), False
    while not ended:
        *_, terminated, truncated, info = env.step(env.encode_action(ask()))
        ended = terminated or truncated
    assert info["is_success"]
    env.close()


def test_asking_the_expert_changes_nothing_that_is_seen(game_cache: Path) -> None:
    asked, left = environment("cook", game_cache, expert_actions=True), environment("cook", game_cache)
    first, _ = asked.reset(seed=3)
    other, _ = left.reset(seed=3)
    assert (first == other).all()
    rng = random.Random(0)
    for _ in range(15):
        command = rng.choice(left._engine.situation.admissible)
        one, two = send(asked, command), send(left, command)
        assert (one[0] == two[0]).all() and one[1:4] == two[1:4]
        assert one[4].pop("expert_action") or one[2]
        two[4].pop("expert_action")
        assert one[4] == two[4]
        if one[2] or one[3]:
            break
    asked.close()
    left.close()


# ---------------------------------------------------------------------------------------------------- prompts and info


def test_info_has_the_same_keys_and_types_always_and_tells_where_the_game_is_from(game_cache: Path) -> None:
    env = environment("cook", game_cache, split="test")
    _, info = env.reset(seed=0)
    kinds = {key: type(value) for key, value in info.items()}
    assert (
        info["dataset"] == "generated"
        and info["game"] == "cooking"
        and info["split"] == "test"
        and info["engine"].startswith("textworld 1.")
    )
    assert info["settings"] == "recipe=2, take=2, go=6, open=True, cook=True, cut=True" and info["task_id"].startswith("cooking-test-")
    assert (info["score"], info["moves"], info["won"], info["lost"]) == (0, info["moves"], False, False) and info["max_score"] > 0
    for command in ("look", "xyzzy", "save", ""):
        *_, info = env.step(env.encode_action(env.write_command(command)))
        assert {key: type(value) for key, value in info.items()} == kinds
    env.close()


def test_commands_are_shown_on_request_alone(game_cache: Path) -> None:
    for shown in (False, True):
        env = environment("coin", game_cache, show_admissible=shown)
        observation, info = env.reset(options={"index": 0})
        assert info["admissible_commands"] == env._engine.situation.admissible and "look" in info["admissible_commands"]
        assert ("Admissible commands:" in env.decode(observation, info)) is shown
        env.close()


def test_the_first_prompt_holds_task_and_room_once(game_cache: Path) -> None:
    for context in ("rebuild", "append"):
        env = environment("coin", game_cache, context=context)
        observation, info = env.reset(options={"index": 0})
        text = env.decode(observation, info)
        assert text.count(env._engine.objective) == 1 and text.count("-= ") == 1 and "$" not in text
        env.close()


def test_a_game_without_an_objective_has_a_task_all_the_same(game_cache: Path) -> None:
    env = TextWorldEnv(game="simple", settings={"goal": "none"}, num_games=1, cache_dir=game_cache)
    observation, info = env.reset(seed=0)
    assert env._engine.objective == "" and "Find out what there is to do" in env.decode(observation, info)
    assert played_by_the_expert(env, seed=0)[1]["is_success"]
    env.close()


def test_the_same_state_has_the_same_key_on_different_ways(game_cache: Path) -> None:
    env = environment("coin", game_cache)
    _, start = env.reset(options={"index": 0})
    *_, same = send(env, "look")
    *_, other = send(env, env._engine.walkthrough[0])
    assert start["state_key"] == same["state_key"] != other["state_key"]
    env.close()


def test_a_moment_can_be_returned_to_here_and_in_another_environment(game_cache: Path) -> None:
    env, other = environment("drop", game_cache, reward="score"), environment("drop", game_cache)
    env.reset(options={"index": 1})
    commands = [*env._engine.walkthrough[:3], "save", *env._engine.walkthrough[3:]]
    moments = []
    for command in commands:
        moments.append(env.get_state())
        moments[-1] = (moments[-1], send(env, command))
    for place in (0, 4, len(commands) - 1):
        for one in (env, other):
            one.set_state(moments[place][0])
            for (_, before), command in zip(moments[place:], commands[place:], strict=True):
                again = send(one, command)
                assert (again[0] == before[0]).all() and again[1:] == before[1:]
    other.set_state(moments[5][0])
    assert other.read_command(other.expert()()) == commands[5]
    env.close()
    other.close()


# ---------------------------------------------------------------------------------------------------- which game


@pytest.mark.slow
def test_seeds_and_numbers_choose_games_and_splits_have_their_own(game_cache: Path) -> None:
    train, test = environment("coin", game_cache), environment("coin", game_cache, split="test", num_games=2)
    assert (train.num_tasks, test.num_tasks) == (4, 2)
    ids = {env.split: {env.reset(options={"index": index})[1]["task_id"] for index in range(env.num_tasks)} for env in (train, test)}
    assert len(ids["train"] | ids["test"]) == 6
    assert train.reset(seed=5)[1]["task_id"] == train.reset(seed=5)[1]["task_id"]
    assert len({train.reset(seed=seed)[1]["task_id"] for seed in range(12)}) > 1
    for wrong in (-1, 4):
        with pytest.raises(ValueError, match="there are 4 games"):
            train.reset(options={"index": wrong})
    train.close()
    test.close()


def test_files_are_played_in_every_split(game_cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for index in range(3):
        source = games("coin", game_cache).path(index)
        for suffix in (".z8", ".json"):
            shutil.copy(source.with_suffix(suffix), folder / f"g{index}{suffix}")
    for given in (folder, str(folder), [folder / f"g{index}.z8" for index in range(3)]):
        env = TextWorldEnv(game=given)
        assert env.num_tasks == 3
        _, info = env.reset(options={"index": 1})
        assert (info["task_id"], info["dataset"], info["settings"]) == ("g1", "files", "files")
        env.close()
    drawn = {
        split: [TextWorldEnv(game=folder, split=split).reset(seed=seed)[1]["task_id"] for seed in range(4)] for split in ("train", "test")
    }
    assert drawn["train"] != drawn["test"]
    env = environment("cook", game_cache)
    _, info = env.reset(options={"task": {"file": str(folder / "g2.z8")}})
    assert info["task_id"] == "g2" and played_by_the_expert(env)[1]["is_success"]
    with pytest.raises(ValueError, match="row"):
        env.reset(options={"task": "g2.z8"})
    (folder / "g2.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"no g2\.json beside it"):
        TextWorldEnv(game=folder)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"reward": "dense"}, "score, intermediate, sparse"),
        ({"split": "valid"}, "train, validation, test"),
        ({"game": "cookin"}, "did you mean 'cooking'?"),
        ({"settings": {"level": 999}}, "1 to 300"),
        ({"num_games": 0}, "num_games"),
    ],
)
def test_keywords_that_cannot_be_used_are_refused_at_construction(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        TextWorldEnv(**kwargs)


def test_no_game_is_made_in_a_step(game_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = environment("coin", game_cache)
    env.reset(options={"index": 0})
    monkeypatch.setattr("agent_gym.envs.textworld.games.Generator.make", lambda *args: pytest.fail("a step made a game"))
    monkeypatch.setattr("agent_gym.envs.textworld.games.GeneratedGames.path", lambda *args: pytest.fail("a step asked for a game"))
    for command in ("look", *env._engine.walkthrough):
        send(env, command)
    env.close()


# ---------------------------------------------------------------------------------------------------- conformance

FACES: dict[str, dict[str, Any]] = {
    "rebuild": {},
    "append, shown, a tool": {"context": "append", "show_admissible": True, "action_format": "tool"},
    "window, intermediate, a line": {"context": "window:3", "reward": "intermediate", "action_format": "line"},
}


@pytest.mark.parametrize("face", FACES)
def test_it_conforms(game_cache: Path, face: str) -> None:
    kwargs = {"game": "coin_collector", "settings": {"level": 3}, "num_games": 4, "cache_dir": str(game_cache), **FACES[face]}
    report = check_agent_env("agent_gym.envs.textworld:TextWorldEnv", kwargs=kwargs)
    report.raise_if_failed()
    assert {one.name for one in report.results if one.outcome == "skipped"} <= {"wrong_answer", "token_exactness", "control_tokens"}


@pytest.mark.slow
def test_it_conforms_under_the_qwen3_tokenizer_with_a_real_quest(game_cache: Path, qwen3_path: str) -> None:
    game, settings = GAMES["cook"]
    kwargs = {"game": game, "settings": settings, "num_games": 2, "cache_dir": str(game_cache), "tokenizer": qwen3_path}
    checks = (
        "expert_succeeds",
        "token_exactness",
        "observation_length",
        "padding",
        "end_of_turn",
        "control_tokens",
        "any_action",
    )  # what a tokenizer changes
    check_agent_env("agent_gym.envs.textworld:TextWorldEnv", checks=checks, kwargs=kwargs).raise_if_failed()
