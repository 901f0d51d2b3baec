"""TextArena's games as environments of ours, played with the real package."""

from __future__ import annotations

import itertools
import random
import threading

import numpy as np
import pytest
from adapters.adapter_players import any_free_cell, crack
from helpers import require

from agent_gym.core import EnvFault
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason
from agent_gym.wrappers import StepRecorder

textarena = require("textarena")

from agent_gym.adapters.textarena import TextArenaEnv  # noqa: E402  # where the package is missing the tests above say so


def play(env, moves, seed=0):
    """The prompts, rewards and ends of an episode."""
    observation, info = env.reset(seed=seed)
    seen = [(env.decode(observation, info), 0.0, False, False)]
    for move in moves:
        observation, reward, terminated, truncated, info = env.step(env.encode_action(move))
        seen.append((env.decode(observation, info), reward, terminated, truncated))
        if terminated or truncated:
            break
    return seen, info


@pytest.fixture(scope="module")
def mastermind():
    return TextArenaEnv(game="Mastermind-v0", expert=crack)


def test_an_adapted_game_passes_the_conformance_checks():
    kwargs = {"game": "Mastermind-v0", "expert": "adapters.adapter_players:crack", "max_turns": 12}
    report = check_agent_env("agent_gym.adapters.textarena:TextArenaEnv", kwargs=kwargs)
    report.raise_if_failed()
    passed = {result.name for result in report.results if result.outcome == "passed"}
    assert {"expert_succeeds", "token_exactness", "seeded_episode", "interleaved", "global_generators", "other_process"} <= passed


def test_the_game_is_the_one_that_textarena_deals_for_that_seed(mastermind):
    mastermind.reset(seed=5)
    entropy = int(mastermind.task_id.rpartition("-")[2])
    seed = int(np.random.SeedSequence([0, entropy]).generate_state(2)[0]) % 2**31
    original = textarena.make("Mastermind-v0-raw")
    before = random.getstate()
    original.reset(num_players=1, seed=seed)
    random.setstate(before)
    assert original.state.game_state["secret_code"] == mastermind._game.state.game_state["secret_code"]


def test_the_whole_episode_is_shown_as_the_ids_that_were_sampled(mastermind):
    env = StepRecorder(mastermind)
    env.reset(seed=3)
    moves = [mastermind.encode_action(text) for text in ("I try [1 2 3 4]", "[2 1 4 3]")]
    for move in moves:
        env.step(move)
    _, _, terminated, _, info = env.step(mastermind.encode_action(mastermind.expert()()))
    assert terminated and info["is_success"] and info["stop_reason"] is StopReason.SUCCESS
    steps = env.trajectory.steps
    for step, nxt in itertools.pairwise(steps):
        shown = [*step.observation_ids, *step.action_ids]
        assert nxt.observation_ids[: len(shown)].tolist() == shown
    assert "peg" in steps[0].feedback and "I try" not in steps[0].feedback  # its own words stand in the prompt already


def test_nothing_is_left_of_the_episodes_before(mastermind):
    first, _ = play(mastermind, ["[1 2 3 4]"], seed=1)
    for seed in range(3):
        play(mastermind, ["[4 3 2 1]", "[1 2 3 4]"], seed=seed)
    again, _ = play(mastermind, ["[1 2 3 4]"], seed=1)
    assert again == first


def test_the_original_wrapper_does_remember_which_is_why_it_is_left_out():
    before = random.getstate()
    game = textarena.make("Mastermind-v0")
    lengths = []
    for _ in range(2):
        game.reset(num_players=1, seed=1)
        lengths.append(len(game.get_observation()[1]))
    random.setstate(before)
    assert lengths[1] > 1.5 * lengths[0]


def test_an_invalid_move_is_told_and_a_second_one_ends_the_game_without_success(mastermind):
    seen, info = play(mastermind, ["no idea"])
    assert not info["action_valid"] and "invalid move" in seen[-1][0]
    _, info = play(mastermind, ["no idea", "none"])
    assert info["invalid_move"] and not info["is_success"] and info["stop_reason"] is StopReason.FAILURE
    assert info["reason"].startswith("Invalid Move")
    _, info = play(mastermind, ["no idea", "[1 2 3 4]"])
    assert info["action_valid"]


def test_another_player_moves_between_the_models_moves_and_is_seeded():
    def game(seat):
        env = TextArenaEnv(game="TicTacToe-v0", num_players=2, seat=seat, opponent=any_free_cell)
        return [play(env, [f"[{cell}]" for cell in range(9)], seed=seed) for seed in range(6)]

    for seat in (0, 1):
        games = game(seat)
        assert games == game(seat)
        assert len({seen[-1][0] for seen, _ in games}) > 1
        for seen, info in games:
            assert info["reason"] and seen[-1][2]
            assert seen[-1][1] in (-1.0, 0.0, 1.0) and info["is_success"] == (seen[-1][1] == 1.0)
            assert f"[Player {1 - seat}] [" in seen[-1][0]
            assert seen[-1][0].count("Current Board") == len(seen) - (seen[-1][0].count("Current Board") < len(seen))


def test_splits_deal_different_games_for_the_same_seed():
    secrets = set()
    for split in ("train", "validation", "test"):
        env = TextArenaEnv(game="Mastermind-v0-extreme", split=split, expert=crack)
        env.reset(options={"index": 0})
        secrets.add(env.expert()())
    assert len(secrets) == 3


def test_a_game_that_raises_is_a_fault_of_the_world():
    # GuessTheNumber makes an int of any digits, and Python refuses to read more than 4,300 of them.
    env = TextArenaEnv(game="GuessTheNumber-v0", max_action_tokens=8192, max_observation_tokens=16384)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.encode_action(f"[{'9' * 5000}]"))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["stop_reason"] is StopReason.ENV_FAULT and info["env_fault"]
    assert "GuessTheNumber-v0 raised ValueError" in info["feedback"]
    env.reset(seed=0)  # and the next episode is a whole one
    assert env.step(env.encode_action("[5]"))[4]["stop_reason"] is not StopReason.ENV_FAULT


def test_an_opponent_that_never_ends_or_is_missing_is_told():
    with pytest.raises(ValueError, match="needs opponent="):
        TextArenaEnv(game="TicTacToe-v0", num_players=2)
    env = TextArenaEnv(game="TicTacToe-v0", num_players=2, seat=1, opponent=lambda text, rng: "nonsense")
    with pytest.raises(EnvFault, match="ended TicTacToe-v0 before"):
        env.reset(seed=0)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"game": "NoSuchGame-v0"}, "no game 'NoSuchGame-v0'"),
        ({"seat": 1}, "seat is 1"),
        ({"num_players": 0}, "num_players"),
        ({"num_players": 2, "opponent": any_free_cell}, "cannot be made and dealt to 2 players"),
        ({"game_kwargs": {"colour": "red"}}, "colour"),
        ({"expert": "no_module:crack"}, "cannot be imported"),
        ({"expert": 3}, "callable"),
    ],
)
def test_a_wrong_keyword_is_told(keywords, message):
    with pytest.raises(ValueError, match=message):
        TextArenaEnv(**keywords)


def test_games_in_several_threads_are_the_same_games():
    alone = [play(TextArenaEnv(), ["[1 2 3 4]", "[2 1 3 4]"], seed=seed)[0] for seed in range(4)]
    together: dict[int, object] = {}
    threads = [
        threading.Thread(target=lambda s=seed: together.update({s: play(TextArenaEnv(), ["[1 2 3 4]", "[2 1 3 4]"], seed=s)[0]}))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[seed] for seed in range(4)] == alone


def test_a_moment_comes_back_and_leads_to_the_same_end():
    env = TextArenaEnv(game="TicTacToe-v0", num_players=2, opponent=any_free_cell)
    env.reset(seed=2)
    env.step(env.encode_action("[0]"))
    moment = env.get_state()

    def rest(env):
        seen = []
        for cell in range(1, 9):
            observation, reward, terminated, _truncated, info = env.step(env.encode_action(f"[{cell}]"))
            seen.append((observation.tolist(), reward, terminated, info["feedback"]))
            if terminated:
                return seen
        return seen

    first = rest(env)
    env.set_state(moment)
    assert rest(env) == first
    other = TextArenaEnv(game="TicTacToe-v0", num_players=2, opponent=any_free_cell)
    other.set_state(moment)
    assert rest(other) == first
