"""Generated tasks of Tool-v0: a function of split and number, disjoint splits, plans that lead to the answer."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from agent_gym.envs.tool_tasks import SPLITS, make_task, split_of
from agent_gym.tools import ToolCall, ToolSet, run_calls


def test_a_task_is_a_function_of_split_and_number() -> None:
    assert make_task("train", 5) == make_task("train", 5)
    assert make_task("train", 5)["question"] != make_task("test", 5)["question"]
    with pytest.raises(ValueError, match="split must be one of"):
        make_task("tset", 0)


def test_no_question_stands_in_two_splits() -> None:
    questions = {split: {make_task(split, number)["question"] for number in range(400)} for split in SPLITS}
    assert not questions["train"] & questions["test"]
    assert not questions["train"] & questions["validation"]
    assert not questions["validation"] & questions["test"]
    assert all(split_of(question) == split for split, asked in questions.items() for question in asked)
    assert len(questions["train"]) > 380


def test_the_plan_gives_its_results_and_the_last_is_the_answer() -> None:
    tools = ToolSet(["calculator", "unit_converter"])
    lengths = set()
    for number in range(300):
        task = make_task("train", number)
        for step in task["plan"]:
            result = run_calls(tools, [ToolCall(step["name"], step["arguments"], "")])[0]
            assert (result.error, result.text) == (None, step["result"])
        assert task["answer"] == task["plan"][-1]["result"]
        assert Fraction(task["answer"]) == Fraction(Decimal(task["answer"]))
        lengths.add(len(task["plan"]))
    assert lengths == {1, 2, 3}


def test_no_constant_answers_many_questions() -> None:
    answers = [make_task("test", number)["answer"] for number in range(500)]
    assert max(answers.count(one) for one in set(answers)) <= 10
