"""The toy-text tasks: the same game as Gymnasium's, told whole, played best by their experts."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.toy_text.blackjack import BlackjackEnv
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.envs.toy_text import BlackjackTextEnv, CliffWalkingTextEnv, FrozenLakeTextEnv, TaxiTextEnv, ToyTextEnv
from agent_gym.envs.toy_text.planning import plan, solve_blackjack
from agent_gym.evaluation import evaluate
from agent_gym.policies import ScriptedPolicy
from agent_gym.trajectory import StopReason

GAMES: dict[str, tuple[type[ToyTextEnv], dict[str, Any]]] = {
    "FrozenLake": (FrozenLakeTextEnv, {}),
    "FrozenLake slippery": (FrozenLakeTextEnv, {"is_slippery": True}),
    "FrozenLake 8x8": (FrozenLakeTextEnv, {"is_slippery": True, "map": "8x8"}),
    "Taxi": (TaxiTextEnv, {}),
    "Taxi rainy": (TaxiTextEnv, {"is_rainy": True, "fickle_passenger": True}),
    "CliffWalking": (CliffWalkingTextEnv, {}),
    "CliffWalking slippery": (CliffWalkingTextEnv, {"is_slippery": True, "start": "fixed"}),
    "Blackjack": (BlackjackTextEnv, {}),
    "Blackjack casino": (BlackjackTextEnv, {"sab": False, "natural": True}),
}
_MADE: dict[str, ToyTextEnv] = {}


def game(name: str) -> ToyTextEnv:
    """An environment that the tests share: making one anew for each example would take most of the time."""
    if name not in _MADE:
        kind, keywords = GAMES[name]
        _MADE[name] = kind(**keywords)
    return _MADE[name]


def raw_of(env: ToyTextEnv) -> tuple[gym.Env, Any]:
    """Gymnasium's own environment, made and reset from what the running episode says of its task."""
    row = env.game_task
    if isinstance(env, FrozenLakeTextEnv):
        raw: gym.Env = FrozenLakeEnv(desc=row["map"], is_slippery=env.is_slippery)
    elif isinstance(env, TaxiTextEnv):
        raw = TaxiEnv(is_rainy=env.chance, fickle_passenger=env.chance)
    elif isinstance(env, CliffWalkingTextEnv):
        raw = CliffWalkingEnv(is_slippery=env.chance)
    else:
        raw = BlackjackEnv(sab=env.sab, natural=env.natural)
    observation, _ = raw.reset(seed=row["seed"])
    if "start" in row:
        raw.s = observation = row["start"]
    return raw, observation


def reply(env: ToyTextEnv, word: str) -> list[int]:
    return env.encode_action(env.write_command(word))


@pytest.mark.parametrize("name", GAMES)
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 6), max_size=12))
def test_every_step_is_that_of_gymnasiums_own_environment(name: str, seed: int, choices: list[int]) -> None:
    """State for state, reward for reward, end for end; replies without an action in between change nothing."""
    env = game(name)
    _, info = env.reset(seed=seed)
    raw, observation = raw_of(env)
    names = list(env.words.actions)
    told = env.words.describe(observation, raw)
    assert told in info["feedback"] and info["game_seed"] == env.game_task["seed"]
    for choice in choices:
        before = info["feedback"]
        if choice >= len(names):
            *_, info = env.step(reply(env, "jump"))
            assert (info["action_valid"], info["reward_parts"]["task"]) == (False, 0.0)
            assert told in info["feedback"] and told in before, "the state is told again"
            assert info["reward_parts"]["invalid"] == pytest.approx(-env.invalid_penalty)
            continue
        observation, wanted, ended, _, _ = raw.step(choice)
        told = env.words.describe(observation, raw)
        _, reward, terminated, truncated, info = env.step(reply(env, names[choice]))
        assert (reward, terminated, truncated, info["action_valid"]) == (wanted, ended, False, True)
        assert told in info["feedback"]
        if ended:
            assert info["is_success"] == (wanted > 0 if name[0] in "FB" else True)
            return
    assert not info["is_success"]


def test_the_row_of_a_seed_is_gymnasiums_episode_of_that_seed() -> None:
    env = TaxiTextEnv()
    made = gym.make("Taxi-v4")
    for seed in (0, 7, 2**31):
        _, info = env.reset(options={"task": {"seed": seed}})
        assert env.words.describe(made.reset(seed=seed)[0], made.unwrapped) in info["feedback"]
    cards = BlackjackTextEnv()
    for seed in range(5):
        _, info = cards.reset(options={"task": {"seed": seed}})
        assert cards.words.describe(gym.make("Blackjack-v1").reset(seed=seed)[0], None) in info["feedback"]
    lake = FrozenLakeTextEnv(is_slippery=True)
    _, info = lake.reset(options={"task": {"seed": 3, "map": "4x4"}})
    assert "@FFF\nFHFH\nFFFH\nHFFG" in info["feedback"]


@pytest.mark.parametrize("name", ["FrozenLake", "FrozenLake slippery", "Taxi", "Taxi rainy", "CliffWalking", "Blackjack"])
def test_states_with_the_same_words_have_the_same_future(name: str) -> None:
    """Over all states that Gymnasium knows: no two that behave otherwise are told alike."""
    env = game(name)
    env.reset(seed=1)
    if name == "Blackjack":
        told = {env.words.describe(state, env.inner) for state in solve_blackjack().hit}
        assert len(told) == len(solve_blackjack().hit)
        return
    table = env.inner.P  # type: ignore[union-attr]
    told = [env.words.describe(state, env.inner) for state in table]
    assert len(set(told)) == len(table)
    task = env.words.task_of(env.inner)
    slippery = any(len(outcomes) > 1 for outcomes in table[0].values())
    assert ("is slippery: " in task or "It rains" in task) is slippery
    if slippery:
        assert f"{max(one[0] for one in table[0][0]):.2f}" in task


# ---------------------------------------------------------------------------------------------------- the experts


def test_the_plan_of_frozen_lake_is_worth_what_gymnasium_says_of_it() -> None:
    """0.74 of 100 steps on the 4x4 map, 0.91 of 200 on the 8x8 one: the optima in Gymnasium's registration."""
    for name, steps, wanted in (("4x4", 100, 0.74), ("8x8", 200, 0.91)):
        assert plan(FrozenLakeEnv(map_name=name).P, steps).values[steps, 0] == pytest.approx(wanted, abs=0.005)
    assert plan(FrozenLakeEnv(is_slippery=False).P, 5).values[5, 0] == 0.0
    assert plan(FrozenLakeEnv(is_slippery=False).P, 6).values[6, 0] == 1.0
    taxi = plan(TaxiEnv().P, 200)
    starts = np.flatnonzero(TaxiEnv().initial_state_distrib)
    assert taxi.values[200, starts].mean() == pytest.approx(7.93, abs=0.01), "the optimum of Taxi under uniform starts"
    assert plan(CliffWalkingEnv().P, 50).values[50, 36] == -13.0


def test_blackjack_is_played_as_in_the_book() -> None:
    """Sutton and Barto (2018), figure 5.2, and the known value of the game under these rules."""
    best = solve_blackjack()
    for dealer in range(1, 11):
        hard = [total for total in range(11, 22) if best.hit[total, dealer, 0]]
        soft = [total for total in range(12, 22) if best.hit[total, dealer, 1]]
        assert max(hard) == {1: 16, 2: 12, 3: 12, 4: 11, 5: 11, 6: 11}.get(dealer, 16)
        assert max(soft) == (18 if dealer in (1, 9, 10) else 17)
    assert best.value == pytest.approx(-0.0431, abs=1e-3)


def played_by_expert(env: ToyTextEnv) -> tuple[float, bool]:
    """The return of the expert from here on, and whether it succeeded."""
    total, done, info = 0.0, False, {}
    while not done:
        _, reward, terminated, truncated, info = env.step(env.encode_action(env.expert()()))
        total, done = total + float(reward), terminated or truncated
    return total, info["is_success"]


@pytest.mark.parametrize(("name", "episodes"), [("FrozenLake", 40), ("Taxi", 12), ("CliffWalking", 25)])
def test_without_chance_the_expert_always_succeeds_and_earns_the_value_of_the_start(name: str, episodes: int) -> None:
    env = game(name)
    for seed in range(episodes):
        env.reset(seed=seed)
        value = env.solution().values[env.max_turns, int(env._seen)]
        total, won = played_by_expert(env)
        assert won and total == pytest.approx(value)


@pytest.mark.parametrize(
    ("kind", "keywords"),
    [
        (FrozenLakeTextEnv, {"is_slippery": True, "map": "4x4", "max_turns": 30}),
        (CliffWalkingTextEnv, {"is_slippery": True, "start": "fixed", "max_turns": 40}),
        (TaxiTextEnv, {"is_rainy": True, "max_turns": 25}),
    ],
)
def test_with_chance_the_experts_mean_return_is_the_value_function(kind: type[ToyTextEnv], keywords: dict[str, Any]) -> None:
    env = kind(tokenizer=None, show_admissible=False, action_format="line", context="window:1", **keywords)
    values, totals = [], []
    for seed in range(100):
        env.reset(seed=seed)
        values.append(env.solution().values[env.max_turns, int(env._seen)])
        totals.append(played_by_expert(env)[0])
    errors = np.array(totals) - np.array(values)
    assert abs(errors.mean()) < 4 * errors.std(ddof=1) / np.sqrt(len(errors))
    if kind is FrozenLakeTextEnv:
        assert 0 < values[0] < 0.74, "the success rate that the value function gives for 30 replies"


def test_the_blackjack_expert_wins_what_its_value_says() -> None:
    """On Gymnasium's own environment many games, and through ours some of the very same."""
    for keywords in ({"sab": True}, {"sab": False, "natural": True}):
        best, raw, paid = solve_blackjack(**keywords), BlackjackEnv(**keywords), []
        state, _ = raw.reset(seed=0)
        for _ in range(6_000):
            ended = False
            while not ended:
                state, reward, ended, _, _ = raw.step(int(best.hit[state]))
            paid.append(reward)
            state, _ = raw.reset()
        assert abs(np.mean(paid) - best.value) < 4 * np.std(paid) / np.sqrt(len(paid))
    env = game("Blackjack")
    for seed in range(60):
        env.reset(seed=seed)
        raw, state = raw_of(env)
        total, won = played_by_expert(env)
        ended = False
        while not ended:
            state, reward, ended, _, _ = raw.step(int(solve_blackjack().hit[tuple(map(int, state))]))
        assert (total, won) == (reward, reward > 0)


def test_the_expert_hurries_where_few_replies_are_left_and_a_worse_player_earns_less() -> None:
    env = FrozenLakeTextEnv(is_slippery=True, map="4x4")
    env.reset(seed=0)
    solved = env.solution()
    assert any(solved.action(state, 3) != solved.action(state, 100) for state in range(16))
    assert (np.diff(solved.values, axis=0) >= -1e-12).all(), "more replies are never worth less"


# ---------------------------------------------------------------------------------------------------- tasks and splits


@pytest.mark.parametrize("name", GAMES)
def test_no_task_is_in_two_splits_and_a_seed_names_another_in_each(name: str) -> None:
    kind, keywords = GAMES[name]
    rows: dict[str, set[str]] = {}
    seeds: dict[str, list[int]] = {}
    starts: dict[str, set[str]] = {}
    for split in ("train", "validation", "test"):
        env = kind(split=split, **keywords)
        env.reset(seed=0)
        rng = np.random.default_rng(5)
        drawn = [env._draw(rng) for _ in range(40)]
        rows[split] = {repr(row) for row in drawn}
        seeds[split] = [row["seed"] for row in drawn]
        starts[split] = set()
        for row in drawn:
            env._begin_game(row)
            starts[split].add(f"{row.get('map')} {env._seen}")
        indexed = [env.reset(options={"index": index})[1]["task_id"] for index in (0, 1, 0)]
        assert indexed[0] == indexed[2] != indexed[1]
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not rows[one] & rows[other] and not set(seeds[one]) & set(seeds[other])
        if name in ("FrozenLake", "FrozenLake slippery", "Taxi", "Taxi rainy", "CliffWalking"):
            assert not starts[one] & starts[other], "what is seen first is held out too"


def test_wrong_keywords_and_rows_are_refused_by_name() -> None:
    for kind, keywords, message in (
        (FrozenLakeTextEnv, {"size": 2}, "size"),
        (FrozenLakeTextEnv, {"size": 4.0}, "size"),
        (FrozenLakeTextEnv, {"frozen": 0.1}, "frozen"),
        (FrozenLakeTextEnv, {"frozen": True}, "frozen"),
        (FrozenLakeTextEnv, {"map": "5x5"}, "map must be"),
        (FrozenLakeTextEnv, {"map": ["SH", "HG"]}, "has a way"),
        (FrozenLakeTextEnv, {"map": ["SF", "FFG"]}, "square"),
        (FrozenLakeTextEnv, {"map": ["SS", "FG"]}, "one S"),
        (FrozenLakeTextEnv, {"map": 7}, "square"),
        (FrozenLakeTextEnv, {"success_rate": 1.5}, "success_rate"),
        (CliffWalkingTextEnv, {"start": "anywhere"}, "start"),
        (TaxiTextEnv, {"split": "valid"}, "split"),
        (TaxiTextEnv, {"invalid_penalty": -1}, "invalid_penalty"),
    ):
        with pytest.raises(ValueError, match=message):
            kind(**keywords)  # type: ignore[arg-type]
    for name, options, message in (
        ("Taxi", {"task": {}}, "'seed'"),
        ("Taxi", {"task": {"seed": 1, "map": "4x4"}}, "'seed'"),
        ("Taxi", {"task": {"seed": -1}}, "seed"),
        ("Taxi", {"task": {"seed": 1.5}}, "seed"),
        ("Taxi", {"task": 3}, "row"),
        ("Taxi", {"index": -1}, "index"),
        ("CliffWalking", {"task": {"seed": 1, "start": 40}}, "start"),
        ("FrozenLake", {"task": {"seed": 1}}, "needs a map"),
        ("FrozenLake", {"task": {"seed": 1, "map": ["SHF"]}}, "square"),
    ):
        with pytest.raises(ValueError, match=message):
            game(name).reset(options=options)
    only = FrozenLakeTextEnv(frozen=1.0, size=3, split="test")
    with pytest.raises(ValueError, match="fell to the split"):
        only.reset(seed=0)


# ---------------------------------------------------------------------------------------------------- replies


def test_an_action_is_read_from_any_sentence_that_names_one() -> None:
    env = FrozenLakeTextEnv(map="4x4")
    for text, valid in (
        ("<action>down</action>", True),
        ("<action>I go DOWN now</action>", True),
        ("<action>**right**</action>", True),
        ("<action>left or right</action>", False),
        ("<action>leftish</action>", False),
        ("<action></action>", False),
        ("down", False),
        ("", False),
    ):
        env.reset(seed=0)
        _, reward, terminated, _, info = env.step(env.encode_action(text))
        assert (info["action_valid"], reward, terminated) == (valid, 0.0, False)
        if not valid:
            assert "@FFF\nFHFH" in env.decode(env._observe()), "a prompt made anew still shows the state"


@pytest.mark.parametrize("name", ["Taxi", "CliffWalking", "Blackjack"])
def test_silence_never_pays(name: str) -> None:
    """Where rewards are costs, or the best play loses on average, a reply that does nothing must not be the way out."""
    env = game(name)
    env.reset(seed=0)
    total, stop = 0.0, False
    while not stop:
        _, reward, _, stop, info = env.step(env.encode_action("hm"))
        total += float(reward)
    assert info["stop_reason"] is StopReason.MAX_TURNS and total <= -2.0


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("action_format", ["tag", "tool", "line"])
def test_the_expert_speaks_every_action_format_and_render_shows_the_prompt(name: str, action_format: str) -> None:
    kind, keywords = GAMES[name]
    env = kind(action_format=action_format, render_mode="ansi", **keywords)
    env.reset(seed=2)
    *_, info = env.step(env.encode_action(env.expert()()))
    assert info["action_valid"] and info["command"] in env.words.actions
    assert env._described() in str(env.render()) or info["stop_reason"] is not StopReason.RUNNING


@pytest.mark.parametrize("name", GAMES)
def test_a_moment_can_be_returned_to_also_elsewhere(name: str) -> None:
    kind, keywords = GAMES[name]
    env, other = game(name), kind(**keywords)
    for seed in range(3):
        env.reset(seed=seed)
        *_, ended, cut, _ = env.step(reply(env, list(env.words.actions)[1]))
        if ended or cut:
            continue
        moment = pickle.loads(pickle.dumps(env.get_state()))
        plays = [reply(env, word) for word in (*env.words.actions, *env.words.actions)][:4]

        def go_on(env: ToyTextEnv, plays: list[list[int]] = plays) -> list[bytes]:
            frames = []
            for play in plays:
                observation, reward, terminated, truncated, _ = env.step(play)
                frames.append(observation.tobytes() + repr((reward, terminated, truncated)).encode())
                if terminated or truncated:
                    break
            return frames

        wanted = go_on(env)
        assert other.set_state(moment).tobytes() == env.set_state(moment).tobytes()
        assert go_on(other) == go_on(env) == wanted


def test_evaluation_tells_the_settings_and_has_the_expert_and_a_random_player() -> None:
    keywords = {"map": "4x4", "is_slippery": False}
    results = {}
    for name, policy in (("expert", ScriptedPolicy.expert()), ("random", ScriptedPolicy(FrozenLakeTextEnv.baselines["random_actions"](0)))):
        evaluation, _ = evaluate(
            "AgentR1/FrozenLake-v0", policy, env_kwargs=keywords, split="test", tasks=12, arms={name: None}, model=name
        )
        results[name] = evaluation
    assert "FrozenLake" in str(results["expert"].settings["told"]) and "is_slippery" in str(results["expert"].settings["told"])
    assert results["expert"].scores() == {"expert": 1.0} and results["random"].scores()["random"] < 0.8
