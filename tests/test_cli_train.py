"""`agent-gym train` with a model of one's own and with the embedded run: run folder, resuming, Ctrl-C."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import require

from agent_gym.cli import main
from agent_gym.cli import train as train_module
from agent_gym.runs import RunFolder
from agent_gym.trajectory_io import load_trajectories

HOTPOT = "AgentR1/HotpotQA-v0"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def arguments(model: str, *more: str, updates: int = 2) -> list[str]:
    settings = {
        "trainer.max_steps": updates, "trainer.num_generations": 2, "trainer.per_device_train_batch_size": 4, "trainer.max_completion_length": 8,
        "trainer.max_no_signal_batches": 0, "data.eval_tasks": 2, "data.train_tasks": 8, "trainer.save_steps": 1,
    }  # fmt: skip
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return ["train", HOTPOT, "--model", model, "--env-arg", "level=bridge", "--output-dir", "run", *sets, *more]


def test_a_run_leaves_a_whole_folder_and_its_checkpoint_is_evaluated_by_the_ordinary_path(
    tiny_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tiny_model)) == 0
    shown = capsys.readouterr().out
    assert "success" in shown and "before RL" in shown and "after RL" in shown and "report.html" in shown
    run = RunFolder.open("run")
    for name in (
        "config.yaml",
        "versions.json",
        "metrics.jsonl",
        "summary.json",
        "report.html",
        "trajectories/final.jsonl",
        "checkpoints/final/config.json",
    ):
        assert (run.path / name).is_file(), name
    assert [one["step"] for one in run.metrics("train")] == [1, 2]
    assert all("rollout/success" in one for one in run.metrics("train"))
    assert run.summary is not None and {"warm_start", "final", "tasks", "seed"} <= set(run.summary) and run.summary["tasks"] == 2
    assert run.config["evaluation"]["env_kwargs"]["split"] == "validation"

    assert main(["eval", "--model", "run", "--tasks", "2", "--output-dir", "ev"]) == 0
    content = json.loads(Path("ev/evaluation.json").read_text())
    assert content["split"] == "validation" and content["level"] == "bridge" and content["max_tokens"] == 8
    assert content["arms"]["greedy"]["estimates"]["success"]["mean"] == run.summary["final"]["greedy"]
    assert (content["arms"]["sampled"]["temperature"], content["arms"]["greedy"]["temperature"]) == (1.0, 0.0)

    assert main(arguments(tiny_model)) == 2
    assert "already holds a run" in capsys.readouterr().err
    assert main(["train", "--output-dir", "run", "--resume", "--seed", "3"]) == 2
    assert "leave out --seed" in capsys.readouterr().err
    assert main(["rollout", "--model", "run", "--episodes", "2", "--out", "more.jsonl"]) == 0
    more = load_trajectories("more.jsonl")
    assert all(one.env_id == HOTPOT and one.env_kwargs == {"level": "bridge"} for one in more)
    assert all(len(step.action_ids) <= 8 for one in more for step in one.steps)  # as in the run


@contextlib.contextmanager
def stop_at_once(request_stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    request_stop()
    yield


def test_a_stopped_run_goes_on_and_does_nothing_twice(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "_gentle_interrupt", stop_at_once)
        assert main(arguments(tiny_model, updates=3)) == 130
    assert "go on with: agent-gym train --output-dir run --resume" in capsys.readouterr().err
    run = RunFolder.open("run")
    assert run.summary is None and [one["step"] for one in run.metrics("train")] == [1]
    before = (run.path / "evaluation.before.json").read_bytes()
    run.log("train", 2, {"rollout/success": 0.123})  # an update whose checkpoint was lost
    assert main(["train", "--output-dir", "run", "--resume"]) == 0
    records = run.metrics("train")
    assert [one["step"] for one in records] == [1, 2, 3] and records[1]["rollout/success"] != 0.123
    assert (run.path / "evaluation.before.json").read_bytes() == before
    assert run.summary is not None and run.summary["updates"] == 3


def test_lora_trains_an_adapter_that_can_be_evaluated(tiny_model: str) -> None:
    assert main(arguments(tiny_model, "--set", "lora.r=2", "--set", "lora.target_modules=all-linear", updates=1)) == 0
    assert Path("run/checkpoints/final/adapter_config.json").is_file()
    assert main(["eval", "--model", "run", "--tasks", "1", "--output-dir", "ev"]) == 0


def test_resume_and_dry_run_check_the_run_and_begin_nothing(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tiny_model, "--set", "data.eval_tasks=0", updates=1)) == 0
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")}
    monkeypatch.setattr(train_module, "_recipe_run", lambda *_: pytest.fail("a run was begun"))
    capsys.readouterr()
    assert main(["train", "--output-dir", "run", "--resume", "--dry-run"]) == 0
    assert "dry run passed" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")} == before
    assert main(["train", "--output-dir", "run", "--resume", "--smoke"]) == 2
    assert "--smoke begins a run" in capsys.readouterr().err


def test_at_temperature_0_there_is_one_arm_and_its_name_is_greedy(tiny_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["eval", HOTPOT, "--model", tiny_model, "--tasks", "1", "--max-tokens", "4", "--temperature", "0", "--output-dir", "ev"]
    assert main([*common, "--env-arg", "level=bridge"]) == 0
    arms = json.loads(Path("ev/evaluation.json").read_text())["arms"]
    assert list(arms) == ["greedy"] and arms["greedy"]["temperature"] == 0.0
    for more, message in ((["--arms", "sampled"], "nothing is sampled"), (["--samples", "2"], "does the same every time")):
        assert main([*common, *more]) == 2
        assert message in capsys.readouterr().err


def test_one_file_is_split_and_what_is_evaluated_was_not_trained_on(tiny_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {
            "_id": str(n), "question": f"Who wrote book {n}?", "answer": f"Ann{n}", "context": [[f"Book {n}", [f"Ann{n} wrote it."]]],
            "supporting_facts": [[f"Book {n}", 0]], "type": "bridge", "level": "easy",
        }
        for n in range(20)
    ]  # fmt: skip
    Path("one.json").write_text(json.dumps(rows))
    command = arguments(tiny_model, "--env-arg", "dataset=one.json", "--set", "data.train_tasks=null", updates=1)
    assert main([part for part in command if part not in ("level=bridge",)][:4] + command[6:]) == 0
    assert "last 2 of 20 rows are held out" in capsys.readouterr().out
    content = json.loads(Path("run/evaluation.final.json").read_text())
    assert [line["options"]["index"] for line in content["arms"]["greedy"]["per_task"]] == [18, 19]
    assert main(["eval", "--model", "run", "--output-dir", "ev", "--tasks", "9"]) == 0
    again = json.loads(Path("ev/evaluation.json").read_text())
    assert [line["options"]["index"] for line in again["arms"]["greedy"]["per_task"]] == [18, 19]


def test_an_environment_without_splits_trains_by_its_recipe(tiny_model: str) -> None:
    command = [part if part != HOTPOT else "FrozenLake-v1" for part in arguments(tiny_model, updates=1)]
    at = command.index("--env-arg")
    assert main(command[:at] + command[at + 2 :] + ["--set", "trainer.max_turns=2"]) == 0
    seeds = [line["seed"] for line in json.loads(Path("run/evaluation.final.json").read_text())["arms"]["greedy"]["per_task"]]
    assert seeds == [1_000_000, 1_000_001]


def test_smoke_is_two_updates_of_the_same_run(tiny_model: str) -> None:
    assert main(arguments(tiny_model, "--smoke", updates=500)) == 0
    assert [one["step"] for one in RunFolder.open("run").metrics("train")] == [1, 2]


def test_nothing_to_learn_from_is_a_message_and_status_1(tiny_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tiny_model, "--set", "trainer.max_no_signal_batches=1", "--set", "data.eval_tasks=0")) == 1
    said = capsys.readouterr().err
    assert "nothing to learn from" in said and "--resume" in said and "Traceback" not in said


def test_a_full_disk_ends_a_run_with_a_message(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import errno

    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    real_log = RunFolder.log

    def log(self: RunFolder, *args: object, **kwargs: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            real_log(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(RunFolder, "log", log)
    assert main(arguments(tiny_model, "--set", "data.eval_tasks=0", "--set", "trainer.on_fault=stop")) == 1
    said = capsys.readouterr().err
    assert "fault disk_full: " in said and "No space left" in said and "Traceback" not in said


def test_ctrl_c_saves_and_the_run_goes_on(tiny_model: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agent_gym.cli", *arguments(tiny_model, "--set", "data.eval_tasks=0", updates=2000)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    watchdog = threading.Timer(150, process.kill)
    watchdog.start()
    try:
        run = RunFolder(tmp_path / "run")
        while not run.metrics("train") and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=100)
    finally:
        watchdog.cancel()
        process.kill()
    assert process.returncode == 130, said
    assert "stopped and saved; go on with" in said and "Traceback" not in said
    last = max(one["step"] for one in run.metrics("train"))
    checkpoint = run.latest_checkpoint()
    assert checkpoint is not None and checkpoint.name == f"checkpoint-{last}"


# ---------------------------------------------------------------------------------------------------- the embedded run


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--set", "updats=3"], "did you mean 'updates'?"),
        (["--set", "updates=many"], "updates: wanted a whole number"),
        (["--set", "updates=0"], "updates=0"),
        (["--set", "warm_start.max_step=3"], "did you mean 'max_steps'?"),
        (["--set", "warm_start.max_steps=x"], "warm_start.max_steps"),
        (["--env-arg", "level=full"], "--set"),
    ],
)
def test_settings_of_the_embedded_run_are_checked(more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--output-dir", "run", *more]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said and not Path("run").exists()


def test_the_embedded_dry_run_shows_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dry-run", "--set", "updates=7"]) == 0
    shown = capsys.readouterr().out
    assert "updates = 7" in shown and "dry run passed" in shown and not list(Path.cwd().iterdir())


@pytest.mark.slow
def test_the_embedded_smoke_run_is_whole_and_its_evaluation_repeats_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--smoke", "--output-dir", "run", "--set", "eval_tasks=20", "--set", "report_to=tensorboard"]) == 0
    run = RunFolder.open("run")
    require("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reported = EventAccumulator(str(run.path / "tensorboard")).Reload().Scalars("train/reward")
    assert [(one.step, one.value) for one in reported] == [
        (record["step"] * run.config["settings"]["num_iterations"], pytest.approx(record["reward"])) for record in run.metrics("train")
    ]
    assert run.summary is not None and set(run.summary["final"]) == {"sampled", "greedy"} and run.summary["updates"] == 2
    page = run.report_path.read_text(encoding="utf-8")
    for part in ("imitation ceiling", "RL begins", "held out, greedy", "Before reinforcement learning"):
        assert part in page, part
    command = [
        "eval",
        HOTPOT,
        "--model",
        "run/checkpoints/final",
        "--split",
        "test",
        "--tasks",
        str(run.summary["tasks"]),
        "--output-dir",
        "ev",
    ]
    program = f"import sys; from agent_gym.cli import main; sys.exit(main({[*command, '--env-arg', 'level=bridge']!r}))"
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    arms = json.loads(Path("ev/evaluation.json").read_text())["arms"]
    assert arms["greedy"]["estimates"]["success"]["mean"] == run.summary["final"]["greedy"]
    interval = arms["sampled"]["estimates"]["success"]
    assert interval["low"] <= run.summary["final"]["sampled"] <= interval["high"]
