"""The oracle tool of the original: by its own name, never a default, and what it compares."""

from __future__ import annotations

from typing import Any

import pytest

from agent_gym.tools import ToolCall, ToolContext, ToolSet, get_tool, run_calls
from agent_gym.tools.gsm8k import GSM8KOracle


def ask(answer: Any, task: Any = None, **kwargs: Any) -> str:
    call = ToolCall("calc_gsm8k_reward", {"answer": answer}, "")
    return run_calls(ToolSet([get_tool("calc_gsm8k_reward", **kwargs)]), [call], ToolContext(task))[0].text


@pytest.mark.parametrize("answer", ["18", 18, 18.0, "$18.00", "18.", "so it is\n#### 18", "18 eggs"])
def test_it_says_that_a_right_answer_is_right(answer: Any) -> None:
    assert ask(answer, ground_truth="18").endswith(" reward=1.0")
    assert ask(answer, ground_truth=18).startswith("Current parsed answer=18")


@pytest.mark.parametrize("answer", ["17", "", "none", "18-20", "8", "118", 1.8])
def test_it_says_that_a_wrong_answer_is_wrong(answer: Any) -> None:
    assert ask(answer, ground_truth="18").endswith(" reward=0.0")


@pytest.mark.parametrize(
    "task",
    [
        {"answer": "18"},
        {"answer": ["17", "18"]},
        {"reward_model": {"ground_truth": "18"}},
        {"reward_model": {"ground_truth": {"target": ["18"]}}},
        {"answer": "She sells 9 * 2 = <<9*2=18>>18.\n#### 18"},
    ],
)
def test_without_a_ground_truth_it_looks_into_the_task(task: dict[str, Any]) -> None:
    assert ask("18", task).endswith("=1.0")
    assert ask("19", task).endswith("=0.0")


def test_what_it_cannot_compare_with_is_an_error_that_says_what_is_wanted() -> None:
    with pytest.raises(ValueError, match="ground_truth, such as 18"):
        GSM8KOracle(ground_truth="eighteen")
    with pytest.raises(ValueError, match="ground_truth"):
        GSM8KOracle(ground_truth=True)
    for task in (None, {}, {"answer": "half"}, {"reward_model": {"ground_truth": None}}):
        assert ask("18", task).startswith("Error")


def test_it_pays_nothing_itself_and_marks_its_results() -> None:
    result = GSM8KOracle(ground_truth=18).execute({"answer": "18"}, ToolContext())
    assert result.reward is None and not result.terminated and result.info["oracle"] is True
    assert "oracle" in GSM8KOracle(ground_truth=18).description
