"""`--data FILE`: rows of the sample schema are checked, played, evaluated and trained on from the command line, with no code."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import require
from judge_server import judge_server

from agent_gym.cli import main
from agent_gym.data.samples import write_rows
from agent_gym.runs import RunFolder
from agent_gym.tools.base import _REGISTRY, BaseTool, ToolContext, ToolResult, register_tool


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def row(number: int, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "data_source": "made/up",
        "agent_name": "agent_env_loop",
        "prompt": [{"role": "user", "content": f"What is {number} times 7?"}],
        "reward_model": {"style": "rule", "ground_truth": str(7 * number)},
        "env_kwargs": {"env_type": "tool", "tools": ["calculator"]},
        "extra_info": {"index": number},
    }
    return {**made, **changes}


def by_length(number: int) -> dict[str, Any]:
    return row(number, reward_model={"style": "function", "function": "rewards_of_rows:length"})


def write_function() -> None:
    Path("rewards_of_rows.py").write_text(
        "def length(data_source, solution_str, ground_truth, extra_info):\n"
        "    assert data_source == 'made/up' and 'index' in extra_info\n"
        "    return (len(solution_str) % 11) / 11\n"
    )


# ---------------------------------------------------------------------------------------------------- data check


def test_the_check_prints_each_kind_of_row_with_what_it_would_be_played_by(capsys: pytest.CaptureFixture[str]) -> None:
    require("pyarrow")
    rows = [row(n) for n in range(3)] + [
        row(7, reward_model={"style": "model", "ground_truth": "49"}),
        row(8, agent_name="single_step_agent", env_kwargs={}, reward_model={"style": "rule", "ground_truth": None}),
    ]
    write_rows(rows, "rows.parquet")
    assert main(["data", "check", "rows.parquet", "--judge", "http://127.0.0.1:9/v1"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "kind 1, 3 of 5 rows", "kind 2, 1 of 5 rows", "kind 3, 1 of 5 rows", "made/up", "agent_env_loop", "single_step_agent", "AgentR1/Tool-v0",
        "calculator", "rule: 1 where the answer equals", "model: judged by", "refused: field 'reward_model.ground_truth' is null", "tokens",
        "5 rows are whole; 4 of them can be trained on",
    ):  # fmt: skip
        assert part in shown, part


def test_the_check_names_file_row_and_field_of_what_cannot_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    good = json.dumps(row(1))
    bad = [
        {**row(2), "prompt": None},
        row(3, env_kwargs={"env_type": "tool", "tools": ["calculater"]}),
        row(4, env_kwargs='{"env_type": "tool"'),
        row(5, reward_model={"style": "function", "function": "os:system"}),
        row(6, data_source="hotpotqa_distractor", env_kwargs={"env_type": "hotpotqa"}),
        row(7, env_kwargs={"env_type": "tool", "max_turns": "many"}),
    ]
    Path("rows.jsonl").write_text("\n".join([good, *map(json.dumps, bad), good]) + "\n")
    assert main(["data", "check", "rows.jsonl"]) == 1
    found = capsys.readouterr()
    assert "6 of 8 rows cannot be played" in found.err and "Traceback" not in found.err
    for part in (
        "rows.jsonl line 2: the field 'prompt' is missing",
        "rows.jsonl line 3: field 'env_kwargs.tools': AgentR1/Tool-v0 cannot be made of it: there is no tool named 'calculater'",
        "rows.jsonl line 4: field 'env_kwargs' is a string, but no JSON",
        "rows.jsonl line 5: field 'reward_model.function' names 'os:system', which would import",
        "rows.jsonl line 6: field 'extra_info.context': task '6' has no paragraphs",
        "rows.jsonl line 7: field 'env_kwargs.max_turns'",
    ):
        assert part in found.out, part


def test_the_check_says_what_cannot_begin_whether_it_has_a_gold_answer_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    kind = {"data_source": "hotpotqa_distractor", "env_kwargs": {"env_type": "hotpotqa"}}
    papers = {"env_kwargs": {"env_type": "paper_search"}, "reward_model": {"style": "rule", "ground_truth": None}}
    write_rows([row(1), row(2, **kind), row(3, **{**kind, **papers}), row(4, reward_model=papers["reward_model"])], "rows.jsonl")
    assert main(["data", "check", "rows.jsonl"]) == 1
    found = capsys.readouterr()
    assert "rows.jsonl line 2: field 'extra_info.context': task '2' has no paragraphs" in found.out
    assert "rows.jsonl line 3: question '3' has no papers to search in" in found.out.replace("rows.jsonl line 3: rows.jsonl", "rows.jsonl")
    assert "2 of 4 rows cannot be played" in found.err and "rows.jsonl line 4" not in found.out, "the last can be played, if not scored"


def test_the_check_prints_every_kind_and_the_reward_that_the_command_makes_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    pages = {"context": [["Ovrun bridge", ["Mila Sond built it."]]]}
    asked = {"data_source": "hotpotqa", "extra_info": pages}
    write_rows([row(1, **asked, env_kwargs={"max_turns": n}) for n in range(1, 13)], "rows.jsonl")
    assert main(["data", "check", "rows.jsonl", "--env-arg", "reward=f1"]) == 0
    shown = capsys.readouterr().out
    assert all(f"kind {n}, 1 of 12 rows" in shown for n in range(1, 13))
    assert shown.count("rule: F1 with the nearest accepted answer") == 12 and "exact match" not in shown
    write_rows([row(1, env_kwargs={"env_type": "textworld"}, seed=3)], "own.jsonl")
    assert main(["data", "check", "own.jsonl"]) == 0
    assert "prompt and ground truth of the row are not used" in capsys.readouterr().out


@pytest.fixture
def confirms() -> Iterator[str]:
    """A registered tool of one's own that knows the answer."""

    class Confirms(BaseTool):
        name, description, oracle = "confirms", "Is it right?", True
        parameters: Mapping[str, Any] = {"type": "object", "properties": {}}

        def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            return ToolResult(str(context.task["answer"]))

    register_tool("confirms")(Confirms)
    yield "confirms"
    del _REGISTRY["confirms"]


def test_the_check_marks_every_tool_that_knows_the_answer(confirms: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows([row(1, env_kwargs={"env_type": "tool", "tools": [confirms]}), row(2)], "rows.jsonl")
    assert main(["data", "check", "rows.jsonl"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("confirms (oracle): an oracle tells") == 1 and shown.count("oracle)") == 1
    write_rows([row(1, env_kwargs={"env_type": "gsm8k"})], "sums.jsonl")
    assert main(["data", "check", "sums.jsonl", "--env-arg", "oracle_tool=true"]) == 0
    assert "calculator, calc_gsm8k_reward (oracle)" in capsys.readouterr().out, "asked for by the command"


def test_no_training_is_promised_for_rows_that_cannot_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    kind = {"data_source": "hotpotqa_distractor", "env_kwargs": {"env_type": "hotpotqa"}}
    write_rows([row(1), row(2, **kind)], "rows.jsonl")
    assert main(["data", "check", "rows.jsonl"]) == 1
    trained = [
        line.split("training", 1)[1].strip() for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("training")
    ]
    assert trained == ["yes", "no: none of these rows can be played"]


def test_rows_that_are_twins_are_told_of_and_played_apart(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows([row(1), row(2), row(2), row(3, extra_info={"index": 1})], "rows.jsonl")
    assert main(["data", "check", "rows.jsonl"]) == 0
    shown = capsys.readouterr().out
    assert "rows.jsonl line 2 and rows.jsonl line 3 are the same row" in shown
    assert "rows.jsonl line 1 and rows.jsonl line 4 have the same id in extra_info" in shown
    assert main(["rollout", "--data", "rows.jsonl", "--model", "random", "--out", "e.jsonl"]) == 0
    assert len(Path("e.jsonl").read_text().splitlines()) >= 4


def test_the_check_of_published_files(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("pyarrow")
    papers = f"corpus={data_dir / 'papers' / 'unarxive_sample' / 'papers.jsonl'}"
    rows = str(data_dir / "papers" / "pasa_rows.parquet")
    assert main(["data", "check", rows]) == 1, "there are no papers to search in"
    assert "18 of 18 rows cannot be played" in capsys.readouterr().err
    assert main(["data", "check", rows, "--env-arg", papers, "--env-arg", "reward=process", "--env-arg", "relevance=bm25"]) == 0
    shown = capsys.readouterr().out
    assert "rule: the relevance of new papers by bm25" in shown and "gold papers" not in shown and "18 of them can be trained on" in shown
    assert main(["data", "check", rows, "--env-arg", papers]) == 0
    shown = capsys.readouterr().out
    assert "rule: the relevance of new papers by bm25" in shown, "rows without gold are played by what pays without"
    assert "AgentR1/PaperSearch-v0" in shown and "paper_search_agent" in shown and "18 rows are whole; 0 of them can be trained on" in shown
    assert main(["data", "check", str(data_dir / "gsm8k" / "rows_agent_r1.parquet")]) == 0
    shown = capsys.readouterr().out
    assert "AgentR1/GSM8K-v0" in shown and "an oracle" in shown and "20 of them can be trained on" in shown


# ---------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["data", "check", "absent.jsonl"], "there is no file 'absent.jsonl'"),
        (["data", "check", "other.jsonl"], "other.jsonl line 1: this is no file of the sample schema"),
        (["data", "check", "empty.jsonl"], "has no rows"),
        (["data", "check", "rows.jsonl", "--env-arg", "max_turn=3"], "did you mean 'max_turns'"),
        (["data", "check", "rows.jsonl", "--env", "AgentR1/Tol-v0"], "did you mean"),
        (["data", "check", "rows.jsonl", "--judge-model", "m"], "--judge-model"),
        (["data", "check", "rows.jsonl", "--judge", "nobody"], "there is no judge 'nobody'"),
        (["eval", "--data", "absent.jsonl", "--model", "random"], "there is no file"),
        (["eval", "--data", "bare.jsonl", "--model", "random"], "bare.jsonl line 1: field 'reward_model.ground_truth' is null"),
        (["eval", "AgentR1/HotpotQA-v0", "--data", "rows.jsonl", "--model", "random"], "rows.jsonl line 1 is of AgentR1/Tool-v0"),
        (["eval", "--data", "rows.jsonl", "--model", "random", "--split", "test"], "--split"),
        (["eval", "--data", "rows.jsonl", "--model", "random", "--baselines"], "--baselines"),
        (["rollout", "--data", "rows.jsonl", "--model", "random", "--out", "x.jsonl", "--split", "test"], "--split"),
        (["rollout", "--data", "rows.jsonl", "--model", "random", "--out", "x.jsonl", "--episodes", "3"], "rows.jsonl has 2 rows"),
        (["rollout", "--model", "random", "--out", "x.jsonl"], "which environment?"),
        (["rollout", "--data", "damaged.jsonl", "--model", "random", "--out", "x.jsonl"], "damaged.jsonl line 2: no valid JSON"),
        (
            ["rollout", "--data", "untold.jsonl", "--model", "random", "--out", "x.jsonl"],
            "untold.jsonl line 2: field 'extra_info.context': task",
        ),
        (["train", "--data", "rows.jsonl"], "--model M"),
        (["train", "--data", "absent.jsonl", "--model", "m"], "there is no file 'absent.jsonl'"),
        (
            ["train", "AgentR1/HotpotQA-v0", "--data", "rows.jsonl", "--model", ".", "--set", "tokenizer=default", "--dry-run"],
            "AgentR1/Tool-v0",
        ),
        (["train", "--data", "rows.jsonl", "--model", "m", "--set", "data.judge=3"], "data.judge"),
        (["train", "--data", "rows.jsonl", "--model", "m", "--set", "data.allow_functions=3"], "data.allow_functions"),
    ],
)
def test_mistakes_are_one_message_with_status_2(command: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows([row(1), row(2)], "rows.jsonl")
    write_rows([row(1, reward_model={"style": "rule", "ground_truth": None})], "bare.jsonl")
    write_rows([row(1), row(2, data_source="hotpotqa", env_kwargs={"env_type": "hotpotqa"})], "untold.jsonl")
    Path("damaged.jsonl").write_text(json.dumps(row(1)) + "\n{\n")
    Path("other.jsonl").write_text('{"question": "q"}\n')
    Path("empty.jsonl").write_text("")
    Path("config.json").write_text("{}")
    assert main(command) == 2
    found = capsys.readouterr()
    assert message in found.err and "Traceback" not in found.err


# ---------------------------------------------------------------------------------------------------- play, evaluate, train


def test_a_file_is_rolled_out_row_by_row(data_dir: Path) -> None:
    require("pyarrow")
    rows = str(data_dir / "gsm8k" / "rows_agent_r1.parquet")
    assert main(["rollout", "--data", rows, "--model", "expert", "--out", "e.jsonl", "--env-arg", "max_turns=2"]) == 0
    from agent_gym.trajectory_io import load_trajectories

    episodes = list(load_trajectories("e.jsonl"))
    assert len(episodes) == 20 and all(one.total_reward == 1.0 for one in episodes)
    assert {one.env_id for one in episodes} == {"AgentR1/GSM8K-v0"}


def test_a_file_of_several_environments_is_evaluated_with_a_table_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    pages = {"context": [["Ovrun bridge", ["Mila Sond built it."]]], "supporting_facts": [["Ovrun bridge", 0]]}
    multihop = row(3, data_source="hotpotqa", env_kwargs={}, extra_info=pages, reward_model={"style": "rule", "ground_truth": "Mila Sond"})
    problem = row(4, data_source="openai/gsm8k", env_kwargs={})
    write_rows([problem, multihop, problem], "rows.jsonl")
    assert main(["eval", "--data", "rows.jsonl", "--model", "expert", "--output-dir", "ev"]) == 0
    told = {name: json.loads(Path(f"ev/{name}/evaluation.json").read_text()) for name in ("GSM8K-v0", "HotpotQA-v0")}
    assert [told[name]["arms"]["expert"]["tasks"] for name in told] == [2, 1]
    assert all(content["arms"]["expert"]["estimates"]["success"]["mean"] == 1.0 for content in told.values())
    assert all(content["data_source"] == "rows.jsonl" for content in told.values())
    assert "HotpotQA" in capsys.readouterr().out
    assert main(["eval", "--data", "rows.jsonl", "--model", "expert", "--tasks", "1", "--output-dir", "one"]) == 0
    assert Path("one/evaluation.json").is_file()


def test_an_evaluation_tells_the_keywords_of_every_kind_of_row_and_lets_each_reply_be_as_long_as_its_environment_allows() -> None:
    kinds = [{"env_type": "tool", "max_turns": 2, "max_action_tokens": 8}, {"env_type": "tool", "max_turns": 2, "max_action_tokens": 64}]
    write_rows([row(n, env_kwargs=kinds[n > 0]) for n in range(3)], "rows.jsonl")
    command = ["--data", "rows.jsonl", "--model", "random", "--env-arg", "max_parallel_calls=2"]
    assert main(["eval", *command, "--output-dir", "ev", "--save-episodes"]) == 0
    told = json.loads(Path("ev/evaluation.json").read_text())
    assert told["env_kwargs"] == {"max_turns": 2, "max_parallel_calls": 2}
    assert [(one["rows"], one["env_kwargs"]["max_action_tokens"]) for one in told["row_kinds"]] == [(1, 8), (2, 64)]
    assert told["max_tokens"] == 64
    assert main(["rollout", *command, "--out", "e.jsonl"]) == 0
    from agent_gym.trajectory_io import load_trajectories

    for path in ("e.jsonl", "ev/episodes.random.jsonl"):
        longest: dict[int, int] = {}
        for one in load_trajectories(path):
            allowed = int(one.env_kwargs["max_action_tokens"])
            longest[allowed] = max([longest.get(allowed, 0), *(len(step.action_ids) for step in one.steps)])
        assert longest[8] <= 8 < longest[64] <= 64
    write_rows([row(n) for n in range(2)], "alike.jsonl")
    assert main(["eval", "--data", "alike.jsonl", "--model", "random", "--output-dir", "alike"]) == 0
    told = json.loads(Path("alike/evaluation.json").read_text())
    assert told["env_kwargs"] == {"tools": ["calculator"]} and "row_kinds" not in told


def test_a_judge_at_an_address_scores_an_evaluation() -> None:
    write_rows([row(n, reward_model={"style": "model", "ground_truth": str(n)}) for n in range(3)], "rows.jsonl")
    with judge_server() as server:
        command = ["eval", "--data", "rows.jsonl", "--model", "random", "--judge", server.url, "--output-dir", "ev"]
        assert main([*command, "--judge-model", "strict"]) == 0
    assert server.asked and {one["model"] for one in server.asked} == {"strict"}
    arm = json.loads(Path("ev/evaluation.json").read_text())["arms"]["random"]
    assert arm["episodes"] == 3 and arm["faults"] == 0 and arm["estimates"]["reward"]["mean"] == 0.0


def test_a_model_is_trained_on_a_file_and_evaluated_from_it(tiny_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    require("pyarrow")
    write_function()
    write_rows([by_length(n) for n in range(12)] + [row(12, reward_model={"style": "rule", "ground_truth": None})], "rows.parquet")
    settings = ("trainer.max_completion_length=8", "trainer.learning_rate=0.1", "trainer.max_turns=2", "trainer.num_generations=4")
    command = ["train", "--data", "rows.parquet", "--model", tiny_model, "--smoke", "--output-dir", "run"]
    command += [part for one in settings for part in ("--set", one)]
    assert main(command) == 2
    assert "rows.parquet row 0: field 'reward_model.function'" in capsys.readouterr().err
    assert main([*command, "--allow-functions"]) == 0
    shown = capsys.readouterr().out
    assert "1 of 13 rows are left out" in shown and "rows.parquet row 12: field 'reward_model.ground_truth' is null" in shown
    assert "its last 1 of 12 rows are held out" in shown
    run = RunFolder.open("run")
    trained = run.metrics("train")
    assert [one["step"] for one in trained] == [1, 2] and any(one["grad_norm"] > 0 for one in trained)
    assert run.config["env_id"] == "AgentR1/Tool-v0"

    assert main(["eval", "--model", "run", "--output-dir", "ev"]) == 0, "the held-out row of the same file, by the same rewards"
    again = json.loads(Path("ev/evaluation.json").read_text())
    final = json.loads((run.path / "evaluation.final.json").read_text())
    assert again["arms"]["greedy"]["per_task"] == final["arms"]["greedy"]["per_task"]
    assert [line["task_id"] for line in again["arms"]["greedy"]["per_task"]] == ["11"]
    assert again["arms"]["greedy"]["estimates"]["reward"] == final["arms"]["greedy"]["estimates"]["reward"]
    assert main(["eval", "--model", "run", "--data", "rows.parquet", "--allow-functions", "--tasks", "3", "--output-dir", "three"]) == 0
    assert len(json.loads(Path("three/evaluation.json").read_text())["arms"]["greedy"]["per_task"]) == 3


def test_rows_without_gold_are_no_training_data(tiny_model: str, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("pyarrow")
    rows = str(data_dir / "papers" / "pasa_rows.parquet")
    assert main(["train", "--data", rows, "--model", tiny_model, "--smoke", "--output-dir", "run"]) == 2
    said = capsys.readouterr().err
    assert "all 18 rows are refused" in said and "pasa_rows.parquet row 0: field 'reward_model.ground_truth' is null" in said
    assert not Path("run").exists()


def test_the_trainer_takes_a_data_set_of_samples(tiny_model: str, tmp_path: Path) -> None:
    """In Python, without the command line: several environments in one `datasets.Dataset`."""
    datasets = require("datasets")
    from agent_gym.envs.row_rewards import register_reward, reward_names
    from agent_gym.trainers import AgentGRPOConfig, AgentGRPOTrainer

    if "length_of_reply" not in reward_names():
        register_reward("length_of_reply")(lambda **row: len(row["solution_str"]) % 7)
    kinds = ({"env_type": "tool"}, {"env_type": "tool", "tools": ["calculator"]})
    rows = [
        row(n, env_kwargs=json.dumps(kinds[n % 2]), reward_model={"style": "function", "function": "length_of_reply"}) for n in range(4)
    ]
    args = AgentGRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=1, num_generations=2, per_device_train_batch_size=8, max_completion_length=6, use_cpu=True,
        report_to="none", save_strategy="no", disable_tqdm=True, learning_rate=0.1,
    )  # fmt: skip
    trainer = AgentGRPOTrainer(
        tiny_model, args, env="AgentR1/Tool-v0", train_dataset=datasets.Dataset.from_list(rows), processing_class=tiny_model
    )
    trainer.train()
    assert len(trainer.trajectories) == 8
    assert {json.dumps(dict(one.env_kwargs).get("tools")) for one in trainer.trajectories} == {"null", '["calculator"]'}
    assert any(one.total_reward > 0 for one in trainer.trajectories)
