"""`AgentR1/Tool-v0` and how answers are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tool_play import act, call

from agent_gym.chat import load_tokenizer
from agent_gym.envs.answers import answers_match, read_number
from agent_gym.envs.tool_tasks import ToolTaskEnv
from agent_gym.tools import BaseTool, ToolContext, ToolResult
from agent_gym.trajectory import StopReason


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_expert_scores_the_maximum_and_a_wrong_answer_nothing(split: str) -> None:
    env = ToolTaskEnv(split=split, expert_actions=True)
    for seed in range(60):
        _, info = env.reset(seed=seed)
        ended, turns = False, 0
        while not ended:
            reward, terminated, truncated, info = act(env, info["expert_action"])
            ended, turns = terminated or truncated, turns + 1
        assert (reward, terminated, info["stop_reason"], info["is_success"]) == (1.0, True, StopReason.ANSWER, True)
        assert turns == len(env.task["plan"]) + 1
        env.reset(seed=seed)
        assert act(env, "<answer>-1</answer>")[0] == 0.0


def test_the_expert_goes_on_from_where_the_model_is() -> None:
    env = ToolTaskEnv(expert_actions=True)
    index = next(one for one in range(50) if len((env.reset(options={"index": one}), env.task["plan"])[1]) == 2)
    _, info = env.reset(options={"index": index})
    first = info["expert_action"]
    info = act(env, call("calculator", expression="1 + 1"))[3]
    assert info["expert_action"] == first
    info = act(env, first)[3]
    assert info["expert_action"] != first
    info = act(env, info["expert_action"])[3]
    assert info["expert_action"] == f"<answer>{env.task['answer']}</answer>"


def test_the_task_is_a_function_of_split_and_seed() -> None:
    def prompts(split: str) -> list[list[int]]:
        env = ToolTaskEnv(split=split)
        return [env.reset(seed=seed)[0].tolist() for seed in range(5)]

    assert prompts("train") == prompts("train")
    assert prompts("train") != prompts("test")
    env = ToolTaskEnv()
    env.reset(seed=0)
    assert not np.array_equal(env.reset()[0], env.reset()[0])
    assert env.reset(options={"index": 3})[1]["task_id"] == "train-3"


def test_tasks_of_a_file(tmp_path: Any) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"question": "6 * 7?", "answer": 42}\n{"prompt": "1 + 1?", "reward_model": {"ground_truth": {"target": ["2"]}}}\n'
    )
    env = ToolTaskEnv(dataset="rows.jsonl", data_dir=tmp_path)
    assert env.num_tasks == 2
    env.reset(options={"index": 0})
    assert act(env, "<answer>$42.00</answer>")[0] == 1.0
    env.reset(options={"index": 1})
    assert act(env, "<answer>2</answer>")[0] == 1.0
    assert env.expert() is None


def test_tools_of_ones_own_replace_the_built_in_ones() -> None:
    class Twice(BaseTool):
        name = "twice"
        description = "Double a number."
        parameters = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}  # noqa: RUF012

        def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            return ToolResult(str(2 * arguments["n"]))

    env = ToolTaskEnv(tools=[Twice()], tasks=[{"question": "Twice 21?", "answer": "42"}])
    observation, info = env.reset(seed=0)
    assert "calculator" not in env.decode(observation, info)
    assert act(env, call("twice", n=21))[3]["feedback"] == "42"


@pytest.mark.parametrize("tokenizer", ["default", "qwen3"])
@pytest.mark.parametrize("policy", ["expert", "waster"])
def test_neither_the_expert_nor_a_policy_that_wastes_every_turn_meets_the_context_limit(
    tokenizer: str, policy: str, request: pytest.FixtureRequest
) -> None:
    opened = load_tokenizer(request.getfixturevalue("qwen3_path") if tokenizer == "qwen3" else None)
    envs = [ToolTaskEnv(tokenizer=opened, split=split) for split in ("train", "validation", "test")]
    rng = np.random.default_rng(0)
    opening = envs[0].encode_action("<tool_call>")[:-1]
    waste = [
        (opening * 512)[:512],
        envs[0].encode_action("word " * 2000)[:500],
        envs[0].encode_action(call("calculator", expression="x" * 300) * 9)[:512],
        [*rng.integers(0, envs[0].chat.vocab_size, 512).tolist()],
    ]
    for seed in range(200):  # 200 tasks, of all splits in turn
        env = envs[seed % 3]
        env.reset(seed=seed)
        expert = env.expert()
        assert expert is not None
        ended = False
        while not ended:
            ids = env.encode_action(expert()) if policy == "expert" else [*opening, *waste[(seed + env.turn) % len(waste)]][:512]
            _, _, terminated, truncated, info = env.step(ids)
            ended = terminated or truncated
        assert info["stop_reason"] is StopReason.ANSWER if policy == "expert" else info["stop_reason"] is not StopReason.CONTEXT_LIMIT


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    ("answer", "accepted", "right"),
    [
        ("18", "18.0", True),
        ("1,800", "1800", True),
        ("$5.", "5", True),
        ("12 %", "12", True),
        ("18.01", "18", False),
        ("eighteen", "18", False),
        ("", "18", False),
        ("nan", "18", False),
        ("Infinity", "18", False),
        ("1e1", "10", True),
        ("The  Hague", "the hague", True),
        ("", "", False),
        ("a", "b", False),
        ("−3", "-3", True),
        ("18 apples", "18", False),
    ],
)
def test_answers_are_compared_as_numbers_or_as_text(answer: str, accepted: str, right: bool) -> None:
    assert answers_match(answer, accepted) is right


def test_numbers_are_read_as_people_write_them_and_nothing_else_is_one() -> None:
    assert read_number(" $1,234.50. ") == read_number("1234.5")
    assert [read_number(text) for text in ("", "x", "1_0", "NaN", "1" * 101, "１２")] == [None] * 6
