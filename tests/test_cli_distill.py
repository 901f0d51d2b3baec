"""`agent-gym train --algorithm distill`: recipes and the embedded run, what they say of a teacher, and a run that stops and goes on with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file
from test_cli_train import arguments, stop_at_once
from transformers import AutoModelForCausalLM

from agent_gym.cli import main
from agent_gym.cli import train as train_module
from agent_gym.cli.memory import ModelNumbers, estimate, teacher_memory
from agent_gym.runs import RunFolder

DISTILL = ["--algorithm", "distill"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_a_dry_run_of_the_embedded_run_shows_the_teacher(tiny_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dry-run", *DISTILL, "--teacher", tiny_model, "--set", "num_generations=1"]) == 0
    shown = capsys.readouterr().out
    assert "algorithm = 'distill'" in shown and f"the teacher {Path(tiny_model).resolve()} reads the ids of the student" in shown
    assert main(["train", "--dry-run", *DISTILL, "--teacher", "http://127.0.0.1:9"]) == 0
    assert "is asked for its vocabulary when the run begins" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["embedded", "recipe"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (DISTILL, "which model is learned from? --teacher FOLDER or ADDRESS"),
        (["--teacher", "x"], "--teacher goes with --algorithm distill"),
        (["--algorithm", "ppo", "--teacher", "x"], "--teacher goes with --algorithm distill"),
        ([*DISTILL, "--teacher", "./nowhere"], "'./nowhere': there is no such folder"),
        ([*DISTILL, "--teacher", "expert"], "'expert' is no model, and tells no log-probabilities"),
        ([*DISTILL, "--teacher", "empty"], "the folder has no config.json"),
        ([*DISTILL, "--teacher", "http://127.0.0.1:9", "--advantage", "step_gae"], "--algorithm ppo"),
    ],
    ids=["none", "grpo", "ppo", "nowhere", "expert", "empty", "critic"],
)
def test_what_does_not_go_together_is_refused(
    where: str, words: list[str], message: str, tiny_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    recipe = ["AgentR1/HotpotQA-v0", "--model", tiny_model] if where == "recipe" else []
    assert main(["train", *recipe, *words, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_a_teacher_with_other_ids_is_refused_before_anything_begins(tiny_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(tiny_model, "other")
    file = Path("other/tokenizer.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    one, other = sorted(vocabulary, key=lambda token: vocabulary[token])[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    file.write_text(json.dumps(content), encoding="utf-8")
    assert main(["train", "--output-dir", "run", *DISTILL, "--teacher", "other"]) == 2
    assert "has another vocabulary" in capsys.readouterr().err
    assert not list(Path("run").rglob("*.safetensors"))


def test_a_recipe_with_a_teacher_is_checked_and_its_memory_counted(tiny_model: str, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = {"env": "AgentR1/HotpotQA-v0", "model": tiny_model, "algorithm": "distill", "data": {"train_tasks": 4, "eval_tasks": 0}}
    for trainer, status, message in (
        ({"teacher": tiny_model, "reward_weight": 0.5, "num_generations": 2}, 0, "whole on each GPU"),
        ({"teacher": "http://127.0.0.1:9"}, 0, "is asked for its vocabulary when the run begins"),
        ({"teacher": tiny_model, "teacher_temperatur": 1.0}, 2, "did you mean"),
        ({"teacher": "http://127.0.0.1:9", "distill_loss": "full"}, 2, "given ids alone"),
        ({}, 2, "trainer.teacher"),
    ):
        Path("r.yaml").write_text(yaml.safe_dump({**recipe, "trainer": trainer}))
        assert main(["train", "--config", "r.yaml", "--dry-run"]) == status
        told = capsys.readouterr()
        assert message in told.out + told.err


def test_the_teacher_is_held_whole_on_each_gpu(tiny_model: str) -> None:
    found = teacher_memory(tiny_model, "bfloat16")
    count = sum(one.numel() for one in AutoModelForCausalLM.from_pretrained(tiny_model).parameters())
    assert found is not None and found[0] == pytest.approx(2 * count)
    assert teacher_memory("http://127.0.0.1:9", "auto") is None
    numbers = ModelNumbers(4e9, 4e9, 36, 2560, 2048, 150_000, "stated")
    common = {"dtype": "float32", "sharding": "fsdp", "gpus": 8, "tokens": 100, "checkpointing": True, "reference_model": False}
    rest = {"vllm_share": None, "gpu_memory_gb": 80.0, "context_tokens": 100, "episodes": 8}
    with_it, without = (
        {name: size for name, size, _ in estimate(numbers, teacher=teacher, **common, **rest)}  # type: ignore[arg-type]
        for teacher in ((64e9, "why"), None)
    )
    assert with_it["sum"] - without["sum"] == pytest.approx(1.1 * 64e9 / 2**30)


def test_a_run_with_a_teacher_stops_and_goes_on_and_leaves_the_student_alone(
    tiny_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher = AutoModelForCausalLM.from_pretrained(tiny_model)
    for parameter in teacher.parameters():
        parameter.data *= 1.1
    teacher.save_pretrained("teacher")
    more = [*DISTILL, "--teacher", "teacher", "--set", "data.eval_tasks=0", "--set", "trainer.num_generations=1"]
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "_gentle_interrupt", stop_at_once)
        assert main(arguments(tiny_model, *more, updates=2)) == 130
    run = RunFolder.open("run")
    assert run.config["recipe"]["trainer"]["teacher"] == str(Path("teacher").resolve()) and run.summary is None
    assert main(["train", "--output-dir", "run", "--resume", "--teacher", "teacher"]) == 2
    assert "leave out --teacher" in capsys.readouterr().err
    assert main(["train", "--output-dir", "run", "--resume"]) == 0
    assert [one["step"] for one in run.metrics("train")] == [1, 2] and run.summary is not None
    assert all(one["distill/reverse_kl"] > 0 for one in run.metrics("train"))
    saved = load_file(run.checkpoints / "final" / "model.safetensors")
    assert set(saved) <= {name for name, _ in teacher.named_parameters()}
