"""`AgentR1/GSM8K-v0`: decimal answers, trap by trap, on generated problems and on every gold solution of the real file; the oracle only on request."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.chat import load_tokenizer
from agent_gym.envs.gsm8k import GSM8KEnv
from agent_gym.evaluation import evaluate
from agent_gym.policies import ScriptedPolicy
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

ROW = {
    "question": "A hen lays 3 eggs a day. How many eggs do 600 hens lay in a day?",
    "answer": "They lay 600 * 3 = <<600*3=1800>>1,800 eggs.\n#### 1,800",
}


@pytest.fixture(scope="module")
def env() -> GSM8KEnv:
    return GSM8KEnv()


@pytest.fixture(params=["default", "qwen3"])
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("qwen3_path") if request.param == "qwen3" else None


def play(env: GSM8KEnv, *texts: str, **reset: Any) -> tuple[float, dict[str, Any], bool]:
    """Play these replies; returns the total reward, the last info and whether the episode is over."""
    env.reset(**reset)
    total, over, info = 0.0, False, {}
    for text in texts:
        _, reward, terminated, truncated, info = env.step(env.encode_action(text))
        total, over = total + float(reward), terminated or truncated
    return total, info, over


def follow(env: GSM8KEnv, **reset: Any) -> tuple[float, dict[str, Any]]:
    """Play the expert to the end."""
    env.reset(**reset)
    expert = env.expert()
    assert expert is not None
    total = 0.0
    while True:
        _, reward, terminated, truncated, info = env.step(env.encode_action(expert()))
        total += float(reward)
        if terminated or truncated:
            return total, info


def call(env: GSM8KEnv, expression: str) -> str:
    return env.tool_format.render_call("calculator", {"expression": expression})


# ------------------------------------------------------------------------------------------------ the promise


def test_it_conforms(tokenizer: Any) -> None:
    report = check_agent_env("AgentR1/GSM8K-v0", kwargs={"tokenizer": tokenizer} if tokenizer else {})
    report.raise_if_failed()
    assert all(result.outcome == "passed" for result in report.results)


def test_its_defaults_are_generated_problems_and_a_calculator_alone() -> None:
    made = gymnasium.make("AgentR1/GSM8K-v0")
    _, info = made.reset(seed=0)
    own: Any = made.unwrapped
    assert (own.max_turns, own.max_observation_tokens, own.num_tasks, list(own.tool_set)) == (5, 8192, None, ["calculator"])
    assert (info["dataset"], info["tools"]) == ("embedded", "calculator") and info["question_type"].endswith(" steps")


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_task_is_a_function_of_split_and_seed(split: str) -> None:
    first, second = GSM8KEnv(split=split), GSM8KEnv(split=split)
    for seed in (0, 1, 2):
        one, info = first.reset(seed=seed)
        second.reset(seed=seed + 1)
        other, again = second.reset(seed=seed)
        assert (one == other).all() and info == again and info["task_id"].startswith(f"gsm8k-{split}-")
    first.reset()
    assert first.task_id != second.task_id


def test_playing_it_loads_no_torch() -> None:
    code = (
        "import sys; from agent_gym.envs.gsm8k import GSM8KEnv; e = GSM8KEnv(); e.reset(seed=0); "
        "e.step(e.encode_action(e.expert()())); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_neither_the_expert_nor_a_policy_that_wastes_every_turn_meets_the_context_limit(tokenizer: Any) -> None:
    opened = load_tokenizer(tokenizer)
    envs = [GSM8KEnv(tokenizer=opened, split=split) for split in ("train", "validation", "test")]
    waste = [envs[0].encode_action("<tool_call>" * 600)[:512], envs[0].encode_action(call(envs[0], "9" * 400) * 9)[:512]]
    for seed in range(200):
        reward, info = follow(envs[seed % 3], seed=seed)
        assert reward == 1.0 and info["stop_reason"] is StopReason.ANSWER
        if seed < 24:
            envs[seed % 3].reset(seed=seed)
            for turn in range(5):
                *_, info = envs[seed % 3].step(waste[(seed + turn) % 2])
            assert info["stop_reason"] is StopReason.MAX_TURNS


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    "text",
    [
        "<answer>1800</answer>", "<answer>1,800</answer>", "<answer>$1,800</answer>", "<answer>1800.0</answer>", "<answer>1800.</answer>",
        "<answer>1800 eggs</answer>", "<answer>It is 1,800.</answer>", "#### 1,800", "####1800", "#### $1800", "#### 1800.0", "#### 1800.",
        "#### 1800. Thanks 2.", "so\n#### 17\nno:\n#### 1800", "<think>#### 3</think>#### 1800", "<answer>#### 1800</answer>",
        "<answer>17</answer> no: <answer>1800</answer>", "#### 17 <answer>1800</answer>", "#### 1800\n" + "and so on " * 60, "#### **1800**",
        "<think>17 eggs</think>It is\n#### 1800 eggs\n#### Notes",
    ],
)  # fmt: skip
def test_a_right_answer_is_right_however_it_is_written(env: GSM8KEnv, text: str) -> None:
    total, info, over = play(env, text, options={"task": ROW})
    assert over and total == 1.0 and info["is_success"] and info["stop_reason"] is StopReason.ANSWER and info["answer"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<answer>1801</answer>", StopReason.ANSWER),
        ("<answer>180</answer>", StopReason.ANSWER),
        ("<answer>18,00</answer>", StopReason.ANSWER),
        ("<answer>17 or 1800</answer>", StopReason.ANSWER),
        ("<answer>600 * 3 = 1800</answer>", StopReason.ANSWER),
        ("<answer>1800-1801</answer>", StopReason.ANSWER),
        ("<answer>-1800</answer>", StopReason.ANSWER),
        ("<answer></answer>", StopReason.ANSWER),
        ("<answer>eighteen hundred</answer>", StopReason.ANSWER),
        ("<answer>1800</answer><answer>17</answer>", StopReason.ANSWER),
        ("#### 1800\n#### 17", StopReason.ANSWER),
        ("#### 1 800", StopReason.NO_CALL),
        ("The answer is 1800", StopReason.NO_CALL),
        ("1800", StopReason.NO_CALL),
        ("", StopReason.NO_CALL),
        ("<think>#### 1800</think>", StopReason.NO_CALL),
        ("<think><answer>1800</answer></think>", StopReason.NO_CALL),
        ("#### The answer\n1800", StopReason.NO_CALL),
        ("<answer>1800", StopReason.NO_CALL),
    ],
)
def test_a_wrong_answer_or_none_is_worth_nothing(env: GSM8KEnv, text: str, reason: StopReason) -> None:
    total, info, over = play(env, text, options={"task": ROW})
    assert over and total == 0.0 and not info["is_success"] and info["stop_reason"] is reason


def test_a_mark_beside_a_call_ends_nothing(env: GSM8KEnv) -> None:
    total, info, over = play(env, f"#### 1800\n{call(env, '2 + 2')}", options={"task": ROW})
    assert not over and total == 0.0 and info["feedback"] == "4"
    total, info, over = play(env, "#### 1800 <tool_call>", options={"task": ROW})
    assert not over and not info["action_valid"]


def test_what_a_tool_or_the_question_says_is_no_answer(env: GSM8KEnv) -> None:
    row = {**ROW, "question": "End with #### 1800 or <answer>1800</answer>."}
    assert play(env, "I give up.", options={"task": row})[0] == 0.0
    assert play(env, call(env, "600*3"), "I give up.", options={"task": ROW})[0] == 0.0


def test_every_gold_solution_of_the_real_file_is_accepted_as_a_reply(data_dir: Path, qwen3_path: str) -> None:
    path = data_dir / "gsm8k" / "test.jsonl"
    made = GSM8KEnv(dataset=path, split="test", tokenizer=qwen3_path)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert made.num_tasks == len(rows) == 300
    won = [play(made, row["answer"], options={"index": index}) for index, row in enumerate(rows)]
    assert [total for total, _, _ in won] == [1.0] * 300
    assert all(info["stop_reason"] is StopReason.ANSWER and info["dataset"] == "test.jsonl" for _, info, _ in won)
    shifted = [play(made, rows[index - 1]["answer"], options={"index": index})[0] for index in range(0, 300, 5)]
    assert sum(shifted) < 5, "the solution of another problem is no answer"


def test_the_expert_solves_the_real_rows_by_their_own_sums(data_dir: Path) -> None:
    made = GSM8KEnv(dataset=data_dir / "gsm8k" / "test.jsonl", split="test")
    calls = 0
    for index in range(0, 300, 3):
        reward, info = follow(made, options={"index": index})
        assert reward == 1.0 and info["stop_reason"] is StopReason.ANSWER and info["total_tool_errors"] == 0
        calls += info["total_tool_calls"]
    assert calls > 200


@pytest.mark.parametrize("max_turns", [1, 2, 3])
def test_an_expert_with_few_turns_calls_in_parallel(max_turns: int) -> None:
    made = GSM8KEnv(max_turns=max_turns)
    for index in range(20):
        reward, info = follow(made, options={"index": index})
        assert reward == 1.0 and info["turn"] <= max_turns
        assert info["total_tool_calls"] == (0 if max_turns == 1 else min(info["total_tool_calls"], 4 * (max_turns - 1)))


# ------------------------------------------------------------------------------------------------ data


def test_official_files_and_rows_load_as_they_are(tmp_path: Path) -> None:
    for split, count in (("train", 5), ("test", 3)):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(ROW) + "\n" for _ in range(count)), encoding="utf-8")
        made = GSM8KEnv(dataset="official", data_dir=tmp_path, split=split)
        assert made.num_tasks == count and made.reset(seed=0)[1]["dataset"] == f"{split}.jsonl"
        assert follow(made, options={"index": count - 1})[0] == 1.0
        with pytest.raises(ValueError, match=f"there are {count} tasks"):
            made.reset(options={"index": count})
    assert GSM8KEnv(dataset=[ROW, ROW]).reset(seed=1)[1]["dataset"] == "rows"
    with pytest.raises(ValueError, match=r"dataset=\[\.\.\.\]"):
        GSM8KEnv(tasks=[ROW])
    with pytest.raises(FileNotFoundError, match="no validation set"):
        GSM8KEnv(dataset="official", data_dir=tmp_path, split="validation")
    with pytest.raises(ValueError, match="train, validation, test, not 'dev'"):
        GSM8KEnv(split="dev")
    with pytest.raises(ValueError, match=r"options\['task'\]: field 'answer'"):
        GSM8KEnv().reset(options={"task": {"question": "How many?", "answer": "many"}})


def test_published_sample_rows_are_played(data_dir: Path) -> None:
    made = GSM8KEnv(dataset=data_dir / "gsm8k" / "rows_agent_r1.jsonl")
    assert made.num_tasks == 20
    for index in range(20):
        assert follow(made, options={"index": index})[0] == 1.0
        observation, info = made.reset(options={"index": index})
        assert "#### <answer>" in made.decode(observation, info), "the row's own system message is shown"
        assert play(made, "#### 123456789", options={"index": index})[0] == 0.0


# ------------------------------------------------------------------------------------------------ the oracle


def test_the_oracle_is_there_only_on_request_and_every_info_says_so(env: GSM8KEnv) -> None:
    observation, info = env.reset(options={"task": ROW})
    assert "calc_gsm8k_reward" not in env.decode(observation, info)
    asked = env.tool_format.render_call("calc_gsm8k_reward", {"answer": "1800"})
    assert "unknown_tool" in play(env, asked, options={"task": ROW})[1]["feedback"]
    with_oracle = GSM8KEnv(oracle_tool=True)
    total, info, over = play(with_oracle, asked, options={"task": ROW})
    assert not over and total == 0.0 and info["feedback"] == "Current parsed answer=1800 reward=1.0"
    assert info["tools"] == "calculator, calc_gsm8k_reward (oracle)"
    wrong = with_oracle.tool_format.render_call("calc_gsm8k_reward", {"answer": 17})
    assert play(with_oracle, wrong, options={"task": ROW})[1]["feedback"] == "Current parsed answer=17 reward=0.0"
    by_name = GSM8KEnv(tools=["calc_gsm8k_reward"])
    assert by_name.reset(seed=0)[1]["tools"] == "calc_gsm8k_reward (oracle)"
    assert play(by_name, asked, options={"task": ROW})[1]["feedback"].endswith("reward=1.0")


@pytest.mark.parametrize("oracle", [False, True])
def test_an_evaluation_says_whether_the_oracle_was_there(oracle: bool) -> None:
    policy = ScriptedPolicy(lambda env, turn: "<answer>1</answer>")
    done, _ = evaluate("AgentR1/GSM8K-v0", policy, env_kwargs={"oracle_tool": oracle}, tasks=2, samples=1)
    assert ("oracle" in done.settings["told"]["tools"]) is oracle
    assert done.settings["told"]["dataset"] == "embedded"


def test_own_tools_and_own_rewards_are_kept() -> None:
    made = GSM8KEnv(tools=["unit_converter"], reward=lambda answer, task: 0.5 if answer == "x" else 0.0)
    assert list(made.tool_set) == ["unit_converter"]
    assert play(made, "<answer>x</answer>", options={"task": ROW})[0] == 0.5
    assert follow(made, seed=0)[1]["stop_reason"] is StopReason.ANSWER, "without the calculator the expert answers at once"
