"""The command line: what people type, and what they get wrong."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from agent_gym.cli import main
from agent_gym.cli.parser import build_parser
from agent_gym.registration import ENVIRONMENTS
from agent_gym.trajectory_io import load_trajectories

HOTPOT = "AgentR1/HotpotQA-v0"
COMMANDS = ("list", "play", "rollout", "eval", "train", "report", "view", "data", "serve-search", "serve-papers")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def feed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


# ---------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example_that_parses(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    examples = [line.split() for line in text.splitlines() if line.strip().startswith(f"agent-gym {command}")]
    assert examples
    for example in examples:
        assert build_parser().parse_args(example[1:]).command == command


def test_the_examples_of_a_run_that_need_no_files_pass_their_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    lines = [line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.strip().startswith("agent-gym train")]
    without = [line for line in lines if not {"--model", "--config", "--resume", "--replay", "--teacher"} & set(line)]  # those need files
    assert without
    for line in without:
        assert main([*line, "--dry-run"]) == 0, line
        assert "dry run passed" in capsys.readouterr().out


def test_every_command_has_a_module_and_is_tested_here() -> None:
    from agent_gym.cli import _COMMANDS

    assert set(_COMMANDS) == set(COMMANDS)


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "COMMAND" in capsys.readouterr().out


def test_the_light_commands_load_neither_torch_nor_transformers() -> None:
    for arguments in (["--help"], ["list"], ["list", "--json"], ["eval", "--help"], ["train", "--help"]):
        program = (
            f"import sys; from agent_gym.cli import main; assert main({arguments!r}) == 0; "
            "heavy = {'torch', 'transformers', 'trl'} & set(sys.modules); assert not heavy, heavy"
        )
        subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_the_module_runs_as_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "agent_gym.cli", "lisst"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "did you mean 'list'?" in done.stderr and "Traceback" not in done.stderr


# ---------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evl"], "did you mean 'eval'?"),
        (["eval", HOTPOT, "--model", "expert", "--taks", "3"], "did you mean '--tasks'?"),
        (["eval", HOTPOT, "--model", "expert", "--tasks", "none"], "--tasks"),
        (["eval", HOTPOT, "--model", "expert", "--tasks", "0"], "at least 1"),
        (["eval", HOTPOT, "--model", "expert", "--arms", "gredy"], "did you mean 'greedy'?"),
        (["eval", HOTPOT], "--model"),
        (["eval", "--model", "expert"], "which environment?"),
        (["eval", "AgentR1/HotpotQ-v0", "--model", "expert"], f"did you mean '{HOTPOT}'?"),
        (["eval", "agentr1/hotpotqa-v0", "--model", "expert"], f"did you mean '{HOTPOT}'?"),
        (["eval", "HotpotQA", "--model", "expert"], f"did you mean '{HOTPOT}'?"),
        (["eval", "no_such_module:X-v0", "--model", "expert"], "no_such_module"),
        (["eval", HOTPOT, "--model", "expret"], "did you mean 'expert'?"),
        (["eval", HOTPOT, "--model", "./nowhere"], "no such folder"),
        (["eval", HOTPOT, "--model", "."], "config.json"),
        (["eval", HOTPOT, "--model", "expert", "--env-arg", "levl=bridge"], "did you mean 'level'?"),
        (["eval", HOTPOT, "--model", "expert", "--env-arg", "level"], "NAME=VALUE"),
        (["eval", HOTPOT, "--model", "expert", "--env-arg", "level=a", "--env-arg", "level=b"], "twice"),
        (["eval", HOTPOT, "--model", "expert", "--env-arg", "level=brigde"], "brigde"),
        (["eval", HOTPOT, "--model", "expert", "--env-arg", "max_turns=0"], "max_turns"),
        (["eval", HOTPOT, "--model", "expert", "--split", "tset"], "tset"),
        (["eval", HOTPOT, "--model", "expert", "--env-arg", "dataset=missing.json"], "missing.json"),
        (["eval", HOTPOT, "--model", "expert", "--tokenizer", "./nowhere"], "nowhere"),
        (["eval", HOTPOT, "--model", "expert", "surplus"], "surplus"),
        (["rollout", HOTPOT, "--model", "expert", "--out", "x.jsn"], ".jsonl"),
        (["rollout", HOTPOT, "--model", "expert", "--out", "x.jsonl", "--temperature", "-1"], "temperature"),
        (["play", "AgentR1/Tol-v0"], "did you mean 'AgentR1/Tool-v0'?"),
        (["report", "nowhere"], "no run folder"),
        (["serve-search", "nowhere.jsonl"], "nowhere.jsonl"),
        (["serve-search", "nowhere.jsonl", "--port", "99999"], "99999 is no port"),
        (["serve-search", "nowhere.jsonl", "--port", "x"], "whole number"),
        (["serve-papers", "nowhere.jsonl"], "nowhere.jsonl"),
        (["play", ":AgentR1/Tool-v0"], "could not be found"),
        (["play", "AgentR1/Tool-v0", "--env-arg", "max_observation_tokens=99999999999999"], "Unable to allocate"),
        (["rollout", HOTPOT, "--model", "expert", "--out", "x.jsonl", "--env-arg", "reward=5"], "reward must be"),
        (["rollout", HOTPOT, "--model", "expert", "--out", "x.jsonl", "--env-arg", "corpus=5"], "corpus must be"),
        (["rollout", "AgentR1/Tool-v0", "--model", "expert", "--out", "x.jsonl", "--env-arg", "reward=5"], "reward must be"),
        (["train", "--resume"], "--output-dir"),
        (["train", "--resume", "--output-dir", "nowhere"], "holds no run"),
        (["train", "--config", "nowhere.yaml"], "no recipe"),
        (["train", "AgentR1/Tool-v0"], "--model"),
    ],
)
def test_a_mistake_is_one_clear_message_and_status_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert message in said.err and "Traceback" not in said.err and not said.out.strip()
    assert len(said.err.strip().splitlines()) <= 3
    assert not list(Path.cwd().iterdir()), "a mistake leaves nothing behind"


@pytest.mark.parametrize(
    "arguments",
    [["eval", HOTPOT, "--model", "no-such-owner/no-such-model"], ["play", HOTPOT, "--tokenizer", "no-such-owner/no-such-model"]],
)
def test_a_name_out_of_reach_is_said_at_once(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import socket

    def unreachable(*_args: object, **_keywords: object) -> None:
        raise OSError("no network")

    for proxy in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr(socket, "create_connection", unreachable)
    assert main(arguments) == 2
    assert "cannot be reached" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- list


def test_list_shows_every_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in listed] == [entry.id for entry in ENVIRONMENTS]
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(entry.id in shown for entry in ENVIRONMENTS)


# ---------------------------------------------------------------------------------------------------- play


def test_a_person_can_win_by_doing_what_the_expert_says(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import gymnasium

    env = gymnasium.make(HOTPOT, level="bridge")
    env.reset(seed=5)
    ask, lines, over = env.unwrapped.expert(), [], False
    while not over:
        text = ask()
        lines.append(text.replace("\n", "\\\n"))
        _, _, terminated, truncated, _ = env.step(env.unwrapped.encode_action(text))
        over = terminated or truncated
    feed(monkeypatch, "\n".join([*lines, ":quit"]) + "\n")
    assert main(["play", HOTPOT, "--env-arg", "level=bridge", "--seed", "5"]) == 0
    shown = capsys.readouterr().out
    assert "solved: reward 1" in shown and "not solved" not in shown and env.unwrapped.qa.question in shown


def test_the_commands_of_play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        ":help", ":tools", ":ids", ":prompt", ":expert", ":call search", ":call search {broken", ':call search {"query": "nobody"}',
        ":nonsense", ":answer Rome", "too late", ":expert", ":new 9", ":answer Rome",
    ]  # fmt: skip
    feed(monkeypatch, "\n".join(lines))  # the end of the input ends the game, and the last line may lack its line break
    assert main(["play", HOTPOT, "--env-arg", "level=bridge"]) == 0
    shown = capsys.readouterr().out
    for part in (
        '"name": "search"',
        "<|im_start|>",
        "a call looks like",
        "unknown command :nonsense",
        "The episode is over",
        "seed 9",
        "<tool_call>",
    ):
        assert part in shown, part
    assert shown.count("not solved") == 2


def test_play_shows_text_from_the_world_as_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "Who wrote \x1b[2J\x1b]0;title\x07 [bold red]it[/]?"
    row = {
        "_id": "1",
        "question": hostile,
        "answer": "Ann",
        "context": [["Ann", [hostile]]],
        "supporting_facts": [["Ann", 0]],
        "type": "bridge",
        "level": "easy",
    }
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    feed(monkeypatch, ':call search {"query": "wrote"}\n:quit\n')
    assert main(["play", HOTPOT, "--env-arg", "dataset=rows.jsonl"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("[bold red]it[/]") == 2 and shown.count("\u241b[2J") == 2 and "\x1b" not in shown and "\x07" not in shown


def test_play_needs_an_environment_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "CartPole-v1"]) == 2
    assert "AgentEnv" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- rollout and eval


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_rollout_saves_episodes(suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "rollout",
        HOTPOT,
        "--model",
        "expert",
        "--episodes",
        "3",
        "--out",
        f"deep/e.{suffix}",
        "--env-arg",
        "level=bridge",
        "--split",
        "validation",
    ]
    assert main(arguments) == 0
    episodes = load_trajectories(Path("deep") / f"e.{suffix}")
    assert [one.is_success for one in episodes] == [True] * 3 and len({one.task_id for one in episodes}) == 3
    assert all(one.env_kwargs == {"level": "bridge", "split": "validation"} for one in episodes)
    assert "3 episodes, 3 solved" in capsys.readouterr().out


def test_rollout_writes_over_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("e.jsonl").write_text("mine", encoding="utf-8")
    assert main(["rollout", "AgentR1/Tool-v0", "--model", "random", "--episodes", "1", "--out", "e.jsonl"]) == 2
    assert "e.jsonl is there already" in capsys.readouterr().err and Path("e.jsonl").read_text(encoding="utf-8") == "mine"


def test_rollout_makes_a_page() -> None:
    assert main(["rollout", "AgentR1/Tool-v0", "--model", "random", "--episodes", "2", "--out", "e.html"]) == 0
    found = re.findall(r'<script type="application/json" id="(e-\d+-\d+)">(.*?)</script>', Path("e.html").read_text(encoding="utf-8"))
    assert [name for name, _ in found] == ["e-0-0", "e-0-1"]
    assert all(json.loads(content)["env"] == "AgentR1/Tool-v0" for _, content in found)


def test_eval_prints_and_saves_table_json_and_figure(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["eval", HOTPOT, "--model", "expert", "--tasks", "4", "--env-arg", "level=bridge", "--split", "test"]
    assert main([*arguments, "--save-episodes"]) == 0
    folder = Path("evals") / "HotpotQA-v0-expert-test-seed0"
    assert sorted(one.name for one in folder.iterdir()) == ["episodes.expert.jsonl", "evaluation.json", "evaluation.svg", "evaluation.txt"]
    shown = capsys.readouterr().out
    assert "success" in shown and "1.000" in shown
    assert "success" in (folder / "evaluation.txt").read_text() and (folder / "evaluation.svg").read_text().startswith("<svg")
    content = json.loads((folder / "evaluation.json").read_text())
    assert content["tasks"] == 4 and content["split"] == "test" and content["arms"]["expert"]["estimates"]["success"]["mean"] == 1.0
    first = (folder / "evaluation.json").read_bytes()
    assert main(arguments) == 0 and (folder / "evaluation.json").read_bytes() == first


def test_the_random_policy_is_evaluated_too() -> None:
    assert main(["eval", "AgentR1/Tool-v0", "--model", "random", "--tasks", "3", "--output-dir", "out"]) == 0
    assert json.loads(Path("out/evaluation.json").read_text())["arms"]["random"]["estimates"]["success"]["mean"] == 0.0


def test_official_data_is_read_with_a_real_tokenizer(data_dir: Path, qwen3_path: str) -> None:
    data = data_dir / "hotpotqa" / "distractor.jsonl"
    arguments = [
        "eval",
        HOTPOT,
        "--model",
        "expert",
        "--tasks",
        "5",
        "--tokenizer",
        qwen3_path,
        "--env-arg",
        f"dataset={data}",
        "--output-dir",
        "out",
    ]
    assert main(arguments) == 0
    content = json.loads(Path("out/evaluation.json").read_text())
    assert content["arms"]["expert"]["estimates"]["success"]["mean"] == 1.0 and content["data_source"] != "embedded"


def shown_and_saved(capsys: pytest.CaptureFixture[str], folder: str) -> tuple[str, dict[str, object]]:
    return capsys.readouterr().out, json.loads((Path(folder) / "evaluation.json").read_text())


def test_without_a_split_the_held_out_one_is_measured_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["eval", HOTPOT, "--model", "expert", "--tasks", "2", "--env-arg", "level=bridge"]
    assert main([*common, "--output-dir", "default"]) == 0
    shown, content = shown_and_saved(capsys, "default")
    assert "test, the held-out default" in shown and content["split"] == "test"
    assert "test, the held-out default" in Path("default/evaluation.txt").read_text()
    assert main([*common, "--split", "train", "--output-dir", "train"]) == 0
    shown, content = shown_and_saved(capsys, "train")
    assert "  train  " in shown and "default" not in shown and content["split"] == "train"


def test_a_data_set_without_a_test_split_has_another_held_out_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    from agent_gym.cli import evaluate

    args = Namespace(split=None, env_arg=[])
    for splits, wanted in (
        (("train", "valid_seen", "valid_unseen"), "valid_seen"),
        (("train", "validation"), "validation"),
        (("train",), None),
    ):
        monkeypatch.setattr(evaluate, "splits_of", lambda _env_id, splits=splits: splits)
        assert evaluate.which_tasks(args, HOTPOT, {}, {})[0] == wanted
    assert evaluate.which_tasks(args, HOTPOT, {"split": "train"}, {})[0] == "train"
    assert evaluate.which_tasks(args, HOTPOT, {}, {"split": "validation", "first": 7})[:2] == ("validation", 7)


def test_an_environment_without_splits_is_measured_on_seeds_that_are_not_trained_on(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["eval", "FrozenLake-v1", "--model", "random", "--tasks", "2"]
    assert main([*common, "--output-dir", "out"]) == 0
    shown, content = shown_and_saved(capsys, "out")
    assert "no splits: seeds from 1,000,000 on" in shown and content["split"] == "" and content["env_kwargs"] == {}
    assert [line["seed"] for line in content["arms"]["random"]["per_task"]] == [1_000_000, 1_000_001]  # type: ignore[index]
    assert main([*common, "--split", "test"]) == 2
    assert "has no splits" in capsys.readouterr().err


def test_an_evaluation_is_never_written_over_another_one(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["eval", HOTPOT, "--model", "expert", "--tasks", "2"]
    for level in ("bridge", "full", "bridge"):
        assert main([*common, "--env-arg", f"level={level}"]) == 0
    assert sorted(one.name for one in Path("evals").iterdir()) == ["HotpotQA-v0-expert-test-seed0", "HotpotQA-v0-expert-test-seed0-2"]
    assert json.loads(Path("evals/HotpotQA-v0-expert-test-seed0-2/evaluation.json").read_text())["level"] == "full"
    folder = ["--env-arg", "level=bridge", "--output-dir", "out"]
    assert main([*common, *folder]) == 0 and main([*common, *folder]) == 0
    capsys.readouterr()
    assert main([*common, *folder, "--seed", "1"]) == 2
    assert "holds another evaluation (with other seed)" in capsys.readouterr().err


def test_several_samples_are_played_where_they_tell_something(capsys: pytest.CaptureFixture[str]) -> None:
    tool = ["eval", "AgentR1/Tool-v0", "--tasks", "2", "--samples", "3", "--output-dir", "out"]
    assert main([*tool, "--model", "random"]) == 0
    shown, content = shown_and_saved(capsys, "out")
    assert "random (3 samples)" in shown and content["samples"] == 3
    assert content["arms"]["random"]["samples"] == 3 and content["arms"]["random"]["episodes"] == 6  # type: ignore[index]
    assert main([*tool, "--model", "expert"]) == 2
    assert "does the same every time" in capsys.readouterr().err


def test_the_commands_send_no_telemetry() -> None:
    program = (
        "import os; os.environ.pop('HF_HUB_DISABLE_TELEMETRY', None); from agent_gym.cli import main; assert main(['list']) == 0; "
        "from huggingface_hub import constants; assert constants.HF_HUB_DISABLE_TELEMETRY"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


# ---------------------------------------------------------------------------------------------------- serve-search


def test_serve_search_answers_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    import signal

    (tmp_path / "corpus.jsonl").write_text(
        '{"id": "a", "title": "Owls", "text": "Owls hunt at night."}\n{"id": "b", "title": "Ducks", "text": "Ducks swim."}\n'
    )
    server = subprocess.Popen(
        [sys.executable, "-m", "agent_gym.cli", "serve-search", "corpus.jsonl", "--port", "0", "--cache-dir", "cache"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    watchdog = threading.Timer(60, server.kill)
    watchdog.start()
    try:
        assert server.stdout is not None
        url = next(word for line in server.stdout for word in line.split() if word.startswith("http"))
        body = json.dumps({"queries": ["who hunts at night"], "topk": 1, "return_scores": True}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert "Owls" in json.dumps(json.load(answer))
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=20) == 0
    finally:
        watchdog.cancel()
        server.kill()
        server.wait()


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{\n"data": 5\n}', b"\xff\xfe", b'{"question": "q?", "answer": "x", "context": {"title": [5], "sentences": [[]]}}'],
)
def test_a_damaged_data_file_is_one_message(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("rows.json").write_bytes(content)
    assert main(["eval", HOTPOT, "--model", "expert", "--env-arg", "dataset=rows.json"]) == 2
    assert "rows.json" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]])
def test_a_full_disk_behind_the_output_is_one_message(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "agent_gym.cli", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and "agent-gym list: " in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]])
def test_a_reader_that_has_seen_enough_is_no_failure(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "agent_gym.cli", *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")
