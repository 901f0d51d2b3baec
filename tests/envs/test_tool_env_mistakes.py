"""`ToolEnv` against what does not fit: split answers, unusable results of tools, and rows that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_tool_env import TASKS, act, both_ways, call, make

from agent_gym.envs.tool import ToolEnv
from agent_gym.envs.tool_tasks import ToolTaskEnv
from agent_gym.tools import BaseTool, ToolContext, ToolResult
from agent_gym.trajectory import StopReason


@pytest.mark.parametrize("text", ["<answer>re<think>hm</think>d</answer>", "<think>a</think><answer>red<think>hm</think></answer>"])
@both_ways
def test_an_answer_that_reasoning_stands_in_is_not_paid(text: str, how: str) -> None:
    reward, terminated, _, info = act(make(), text, how)
    assert (reward, terminated, info["stop_reason"], info["answer"]) == (0.0, True, StopReason.NO_CALL, "")


def test_an_answer_that_a_call_stands_in_is_not_paid_and_the_call_is_run() -> None:
    reward, terminated, _, info = act(make(), f"<answer>red{call('lookup', key='a')}</answer>")
    assert (reward, terminated, info["answer"], info["feedback"]) == (0.0, False, "", "value of a")


@pytest.mark.parametrize("result", [{"reward": float("nan")}, {"reward": "1"}, {"info": None}, {"info": {"is_success": np.array([1, 0])}}])
@both_ways
def test_a_result_that_would_spoil_the_training_stops_it_with_the_name_of_the_tool(result: dict[str, Any], how: str) -> None:
    class Odd(BaseTool):
        name = "odd"

        def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            return ToolResult("x", terminated=True, **result)

    with pytest.raises(ValueError, match="the tool 'odd' returned"):
        act(make(tools=[Odd()]), call("odd"), how)


@pytest.mark.parametrize("answer", [True, float("nan"), {"a": 1}, [["x"], object()]])
def test_an_answer_that_is_none_is_refused_before_the_episode(answer: Any) -> None:
    row = {"question": "q?", "answer": answer}
    with pytest.raises(ValueError, match=r"tasks\[1\]: field 'answer"):
        ToolEnv(tasks=[TASKS[0], row])
    with pytest.raises(ValueError, match=r"options\['task'\]: field 'answer"):
        make().reset(options={"task": row})
    judged = ToolEnv(tasks=[row], reward=lambda given, task: task["answer"] is answer)
    judged.reset(seed=0)
    assert act(judged, "<answer>any</answer>")[0] == 1.0, "who brings a reward may hold anything as the answer"


def test_a_number_of_any_size_is_an_answer() -> None:
    env = make(tasks=[{"question": "q?", "answer": 10**400}])
    assert act(env, "<answer>1</answer>")[0] == 0.0
    env.reset(seed=0)
    assert act(env, f"<answer>1{'0' * 400}</answer>")[0] == 1.0


def test_a_prompt_may_be_parts_and_what_is_no_message_is_refused() -> None:
    env = make()
    parts = [{"type": "text", "text": "What is "}, {"type": "image"}, {"type": "text", "text": "red?"}]
    observation, info = env.reset(options={"task": {"prompt": [{"role": "user", "content": parts}], "answer": "x"}})
    assert "What is red?" in env.decode(observation, info)
    for message in ({"role": "user"}, {"content": "x"}, {"role": "user", "content": None}, {"role": 5, "content": "x"}, "user", None):
        with pytest.raises(ValueError, match=r"task 'given': prompt\[0\] must be a message"):
            env.reset(options={"task": {"prompt": [message], "answer": "x"}})


def test_a_row_without_a_plan_may_say_so() -> None:
    env = ToolTaskEnv(tasks=[{"question": "q?", "answer": "7", "plan": None}])
    env.reset(seed=0)
    assert env.expert() is None
    assert act_on(env, '<tool_call>{"name": "calculator", "arguments": {"expression": "3+4"}}</tool_call>') == 0.0
    assert act_on(env, "<answer>7</answer>") == 1.0


def act_on(env: ToolTaskEnv, text: str) -> float:
    return float(env.step(env.encode_action(text))[1])
