"""Text, discrete and multi-discrete faces."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import InvalidAction
from gymnasium.utils.env_checker import check_env
from small_envs import Parrot

from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason
from agent_gym.wrappers import DiscreteTokens, StepRecorder, TokenizeText, VerbalizeObservation, Verbalizer, as_token_env


class Guess(gym.Env):
    """A text game that is not one of ours."""

    def __init__(self) -> None:
        self.observation_space = spaces.Text(200, charset=frozenset("abcdefghijklmnopqrstuvwxyz 0123456789.?"))
        self.action_space = spaces.Text(3, min_length=1, charset=frozenset("0123456789"))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(100)) if not options else options["number"]
        return "which number from 0 to 99?", {}

    def step(self, action):
        guess = int(action)
        won = guess == self.number
        return "right." if won else "too small." if guess < self.number else "too large.", float(won), won, False, {}


def _say(env, text):
    return env.step(env.unwrapped.encode_action(text))


def test_a_text_environment_becomes_an_agent_env():
    env = TokenizeText(Guess(), instructions="Guess.", max_action_tokens=16, max_observation_tokens=512)
    check_env(env, skip_render_check=True)
    observation, info = env.reset(seed=3)
    assert "Guess.\n\nwhich number" in env.decode(observation, info)
    inner = Guess()
    inner.reset(seed=3)
    observation, reward, terminated, _, info = _say(env, "100000")
    assert (reward, terminated, info["action_valid"]) == (0.0, False, False)
    assert "at most 3" in info["feedback"]
    observation, reward, terminated, _, info = _say(env, "x")
    assert not info["action_valid"]
    observation, reward, terminated, _truncated, info = _say(env, f" {inner.number} ")
    assert (reward, terminated, info["is_success"], info["stop_reason"]) == (1.0, True, True, StopReason.SUCCESS)


def test_seeds_splits_and_options_reach_the_inner_environment():
    env, test = TokenizeText(Guess()), TokenizeText(Guess(), split="test")

    def numbers(env):
        found = []
        for seed in range(20):
            env.reset(seed=seed)
            found.append(env.inner.number)
        return found

    assert numbers(env) == numbers(env)
    assert numbers(env) != numbers(test)
    env.reset(seed=1)
    drawn = [env.reset()[1]["task_id"] for _ in range(5)]
    env.reset(seed=1)
    assert [env.reset()[1]["task_id"] for _ in range(5)] == drawn
    assert len(set(drawn)) == 5
    env.reset(seed=1, options={"number": 42})
    assert env.inner.number == 42


def test_the_inner_limit_truncates_outside_too():
    env = StepRecorder(as_token_env(gym.wrappers.TimeLimit(Guess(), 2), max_turns=9))
    env.reset(seed=0, options={"number": 50})
    _say(env, "1")
    _, _, terminated, truncated, info = _say(env, "2")
    assert (terminated, truncated, info["stop_reason"]) == (False, True, StopReason.TIME_LIMIT)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("FrozenLake-v1", ["down", "hole"]),
        ("FrozenLake8x8-v1", ["row 0, column 0"]),
        ("CliffWalking-v1", ["row 3, column 0"]),
        ("Blackjack-v1", ["dealer shows"]),
        ("Taxi-v4", ["passenger is"]),
    ],
)
def test_known_toy_text_tasks_are_told_in_words(name, words):
    env = as_token_env(gym.make(name), max_action_tokens=16, max_turns=30)
    observation, info = env.reset(seed=0)
    text = env.decode(observation, info)
    assert all(word in text for word in words), text
    names = list(env.inner.words.actions)
    draw = np.random.default_rng(0)
    recorder = StepRecorder(env)
    for seed in range(3):
        recorder.reset(seed=seed)
        while recorder.running:
            _say(recorder, str(draw.choice(names)))
        assert all(step.info["action_valid"] for step in recorder.trajectory.steps)


def test_frozen_lake_is_won_in_words():
    env = StepRecorder(as_token_env(gym.make("FrozenLake-v1", is_slippery=False)))
    env.reset(seed=0)
    for word in ("down", "I go Down.", "right", "right", "down"):
        _say(env, word)
    _, reward, terminated, _, info = _say(env, "right")
    assert (reward, terminated, info["is_success"]) == (1.0, True, True)


def test_a_reply_that_names_no_or_several_actions_is_answered_without_a_step():
    env = VerbalizeObservation(gym.make("FrozenLake-v1", is_slippery=False))
    _first, _ = env.reset(seed=0)
    for reply in ("", "jump", "left or right", "leftish"):
        text, reward, terminated, truncated, info = env.step(reply)
        assert "exactly one action" in text
        assert (reward, terminated, truncated, info["action_valid"]) == (0.0, False, False, False)
    assert "row 1, column 0" in env.step("**down**")[0]


def test_your_own_words_serve_for_other_discrete_environments():
    words = Verbalizer("Balance the pole.", {"left": 0, "right": 1}, lambda observation, env: f"angle {observation[2]:.3f}")
    env = as_token_env(gym.make("CartPole-v1"), verbalizer=words, max_turns=3)
    _, info = env.reset(seed=0)
    assert "angle" in info["feedback"]
    _say(env, "left")
    with pytest.raises(ValueError, match="must name each"):
        as_token_env(gym.make("CartPole-v1"), verbalizer=Verbalizer("", {"left": 0}, lambda observation, env: ""))


class Lights(gym.Env):
    """A discrete environment of somebody else, whose actions do not begin at 0."""

    def __init__(self, count: int = 3) -> None:
        self.count = count
        self.observation_space, self.action_space = spaces.MultiBinary(count), spaces.Discrete(count, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.lit = np.zeros(self.count, dtype=np.int8)
        return self.lit.copy(), {}

    def step(self, action):
        self.lit[action - 1] ^= 1
        return self.lit.copy(), float(self.lit.all()), bool(self.lit.all()), False, {}


def test_a_discrete_environment_of_somebody_else_with_words_that_depend_on_it():
    words = Verbalizer(
        lambda env: f"Light all {env.count} lamps.", {"red": 1, "green": 2, "blue": 3}, lambda lit, env: "lit: " + "".join(map(str, lit))
    )
    env = as_token_env(Lights(), verbalizer=words, context="token_budget:400", max_turns=8)
    observation, info = env.reset(seed=0)
    assert "Light all 3 lamps.\nActions: red, green, blue.\n\nlit: 000" in env.decode(observation, info)
    for word, lit in (("Red!", "100"), ("the blue one", "101"), ("red or blue", "101"), ("green", "111")):
        _, reward, terminated, _, info = _say(env, word)
        assert f"lit: {lit}" in info["feedback"]
    assert (reward, terminated, info["is_success"]) == (1.0, True, True)
    with pytest.raises(TypeError, match=r"(?s)TokenBox.*TokenizeText.*VerbalizeObservation.*verbalizer=Verbalizer"):
        as_token_env(Lights())


def test_as_token_env_leaves_token_spaces_and_names_the_three_ways_otherwise():
    parrot = Parrot()
    assert as_token_env(parrot) is parrot
    with pytest.raises(TypeError, match=r"(?s)TokenBox.*TokenizeText.*VerbalizeObservation"):
        as_token_env(gym.make("Pendulum-v1"))
    with pytest.raises(TypeError, match="verbalizer"):
        as_token_env(gym.make("CartPole-v1"))


def test_discrete_tokens_hands_its_ids_on():
    parrot = Parrot(max_action_tokens=8)
    env = DiscreteTokens(StepRecorder(parrot), length=3)
    assert env.action_space == spaces.MultiDiscrete([parrot.chat.vocab_size] * 3)
    env.reset(seed=0)
    env.step(np.array([4, 5, 6]))
    assert env.get_wrapper_attr("trajectory").steps[0].action_ids.tolist() == [4, 5, 6]
    env.step(env.action_space.sample())
    with pytest.raises(InvalidAction):
        env.step(np.array([0.5, 1.0, 2.0]))
    with pytest.raises(ValueError, match="length"):
        DiscreteTokens(parrot, length=9)
    with pytest.raises(TypeError, match="TokenBox"):
        DiscreteTokens(gym.make("CartPole-v1"))


def test_a_wrapped_environment_passes_the_conformance_checks():
    report = check_agent_env(_taxi)
    assert not report.failed, str(report)


def _taxi(**keywords):
    return as_token_env(gym.make("Taxi-v4"), max_action_tokens=32, **keywords)


def test_ids_of_another_tokenizer_are_refused_and_not_passed_off():
    from agent_gym.chat import load_tokenizer

    parrot = Parrot()
    assert as_token_env(parrot, load_tokenizer()) is parrot
    assert as_token_env(parrot, "default") is parrot
    other = copy.deepcopy(load_tokenizer())
    other.add_tokens(["zzzz"])
    with pytest.raises(ValueError, match="cannot be translated"):
        as_token_env(parrot, other)
    assert as_token_env(Guess(), other).chat.vocab_size == len(other)


def test_sampled_pad_ids_at_the_end_of_a_discrete_action_are_kept_at_every_length():
    parrot = Parrot(max_action_tokens=6)
    pad = parrot.chat.pad_id
    for length in (5, 6):
        env = DiscreteTokens(parrot, length=length)
        env.reset(seed=0)
        env.step(np.array([50, 51] + [pad] * (length - 2)))
        assert list(parrot.history.exchanges[-1].action_ids) == [50, 51] + [pad] * (length - 2)


def test_a_reply_in_any_letters_may_name_an_action():
    env = as_token_env(gym.make("FrozenLake-v1", is_slippery=False))
    env.reset(seed=0)
    *_, info = env.step(env.unwrapped.encode_action("I go → right, naïvely. 好"))
    assert info["action_valid"] is True
    assert "column 1" in info["feedback"]
