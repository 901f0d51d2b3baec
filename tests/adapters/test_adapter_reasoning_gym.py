"""reasoning-gym's tasks as environments of ours, with the real package."""

from __future__ import annotations

import pytest
from helpers import require

from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

reasoning_gym = require("reasoning_gym")

from agent_gym.adapters.reasoning_gym import ReasoningGymEnv  # noqa: E402  # where the package is missing the tests above say so


def answer(env, text, **reset):
    env.reset(**reset)
    return env.step(env.encode_action(text))


def test_an_adapted_task_passes_the_conformance_checks():
    report = check_agent_env("agent_gym.adapters.reasoning_gym:ReasoningGymEnv", kwargs={"dataset": "chain_sum"})
    report.raise_if_failed()
    passed = {result.name for result in report.results if result.outcome == "passed"}
    assert {"expert_succeeds", "wrong_answer", "token_exactness", "seeded_episode", "global_generators", "other_process"} <= passed


def test_questions_answers_and_scores_are_those_of_the_package():
    env = ReasoningGymEnv(dataset="basic_arithmetic", config={"max_digits": 2}, split="validation")
    original = reasoning_gym.create_dataset("basic_arithmetic", seed=1_000_000_000, size=10_000, max_digits=2)
    for index in range(20):
        entry = original[index]
        observation, info = env.reset(options={"index": index})
        assert entry["question"] in env.decode(observation, info)
        for text in (entry["answer"], f"{entry['answer']} apples", "12345678", "x"):
            _, reward, terminated, _, info = answer(env, f"so <answer>{text}</answer>", options={"index": index})
            assert terminated and reward == pytest.approx(original.score_answer(text, entry))
            assert info["is_success"] == (reward == 1.0) and info["stop_reason"] is StopReason.ANSWER


# Data sets of all kinds: arithmetic, algorithms, games, graphs, logic; many have scorers of their own.
SAMPLE = ["chain_sum", "leg_counting", "prime_factorization", "caesar_cipher", "spell_backward", "word_sorting", "countdown", "mini_sudoku"]
SAMPLE += ["family_relationships", "knights_knaves", "polynomial_equations", "number_sequence", "pool_matrix", "course_schedule", "maze"]


@pytest.mark.parametrize("name", SAMPLE)
def test_the_own_answer_of_a_data_set_scores_one_and_a_seed_is_a_task(name):
    envs = [ReasoningGymEnv(dataset=name) for _ in range(2)]
    prompts = []
    for seed in (0, 7):
        shown = [env.decode(*env.reset(seed=seed)) for env in envs]
        assert shown[0] == shown[1]
        prompts.append(shown[0])
        _, reward, _, _, info = envs[0].step(envs[0].encode_action(envs[0].expert()()))
        assert reward == 1.0 and info["is_success"]
    assert prompts[0] != prompts[1]


def test_no_answer_and_unreadable_answers_score_nothing():
    env = ReasoningGymEnv(dataset="polynomial_equations")
    for text in (
        "I do not know",
        "<answer></answer>",
        "<answer>)((</answer>",
        "<answer>__import__</answer>",
        f"<answer>{'9' * 300}</answer>",
    ):
        _, reward, terminated, _, info = answer(env, text, seed=0)
        assert terminated and reward == 0.0 and not info["is_success"]


def test_tools_may_be_added():
    env = ReasoningGymEnv(dataset="basic_arithmetic", tools=["calculator"], max_turns=3)
    env.reset(seed=0)
    _observation, _, terminated, _, info = env.step(env.encode_action(env.tool_format.render_call("calculator", {"expression": "2 + 2"})))
    assert not terminated and "4" in info["feedback"]
    assert env.step(env.encode_action(env.expert()()))[4]["is_success"]


def test_no_task_stands_in_two_splits():
    prompts = [
        {env.decode(*env.reset(options={"index": index})) for index in range(50)}
        for env in (ReasoningGymEnv(dataset="chain_sum", split=split) for split in ("train", "validation", "test"))
    ]
    assert not prompts[0] & prompts[1] and not prompts[1] & prompts[2] and not prompts[0] & prompts[2]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"dataset": "no_such_set"}, "no_such_set"),
        ({"config": {"colour": 3}}, "colour"),
        ({"config": {"seed": 3}}, "no part of config"),
        ({"config": {"min_terms": 9, "max_terms": 2}}, "cannot make"),
        ({"size": 0}, "size"),
        ({"tasks": []}, "tasks is no keyword"),
    ],
)
def test_a_wrong_keyword_is_told(keywords, message):
    with pytest.raises(ValueError, match=message):
        ReasoningGymEnv(**keywords)


def test_an_index_outside_is_told():
    with pytest.raises(ValueError, match="there are 5 tasks"):
        ReasoningGymEnv(size=5).reset(options={"index": 5})
