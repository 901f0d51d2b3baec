"""`agent-gym train --algorithm ppo`: recipes and the embedded run, what they say of a critic, and a run that stops and goes on with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from test_cli_train import arguments, stop_at_once

from agent_gym.cli import main
from agent_gym.cli import train as train_module
from agent_gym.cli.memory import ModelNumbers, estimate
from agent_gym.runs import RunFolder
from agent_gym.trainers.ppo import CRITIC_FILE


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("name", ["step_gae", "token_gae"])
def test_the_embedded_run_takes_the_estimators_with_a_critic(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ["--set", "ppo.critic_epochs=3", "--set", "num_generations=1"]
    assert main(["train", "--dry-run", "--algorithm", "ppo", "--advantage", name, *settings]) == 0
    shown = capsys.readouterr().out
    assert f"advantage = '{name}'" in shown and "algorithm = 'ppo'" in shown and "'critic_epochs': 3" in shown and "dry run passed" in shown
    assert main(["train", "--dry-run", "--algorithm", "ppo"]) == 0
    assert "advantage = 'step_gae'" in capsys.readouterr().out


RECIPE = ["AgentR1/HotpotQA-v0", "--model", "default-tokenizer-only"]


@pytest.mark.parametrize("where", [[], RECIPE], ids=["embedded", "recipe"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algorithm", "ppo", "--advantage", "rloo"], "asks no critic"),
        (["--advantage", "step_gae"], "--algorithm ppo"),
        (["--set", "algorithm=pop"], "grpo, ppo"),
    ],
    ids=["no use for a critic", "no critic", "unknown"],
)
def test_what_does_not_go_together_is_refused(where: list[str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *where, *words, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said


def test_settings_of_the_critic_are_checked_before_anything_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--algorithm", "ppo", "--set", "ppo.critic_epochs=0", "--output-dir", "run"]) == 2
    assert "critic_epochs=0 must be a whole number of at least 1" in capsys.readouterr().err and not Path("run").exists()
    assert main(["train", "--set", "ppo.critic_epochs=2", "--output-dir", "run"]) == 2
    assert "algorithm='grpo' has no critic" in capsys.readouterr().err and not Path("run").exists()


def test_a_recipe_with_a_critic_is_checked_and_its_memory_counted(
    tiny_model: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    recipe = {"env": "AgentR1/HotpotQA-v0", "model": tiny_model, "algorithm": "ppo", "data": {"train_tasks": 4, "eval_tasks": 0}}
    for trainer, status, message in (
        ({"critic_learning_rate": 1e-5, "critic_warmup_updates": 5}, 0, "critic"),
        ({"critic_learning_rat": 1e-5}, 2, "did you mean"),
        ({"critic_learning_rate": -1.0}, 2, "critic_learning_rate=-1.0 must be a positive number"),
    ):
        Path("r.yaml").write_text(yaml.safe_dump({**recipe, "trainer": trainer}))
        assert main(["train", "--config", "r.yaml", "--dry-run"]) == status
        told = capsys.readouterr()
        assert message in told.out + told.err
    Path("r.yaml").write_text(yaml.safe_dump({**recipe, "algorithm": "grpo", "trainer": {"critic_learning_rate": 1e-5}}))
    assert main(["train", "--config", "r.yaml", "--dry-run"]) == 2
    assert "critic_learning_rate" in capsys.readouterr().err


def test_the_critic_is_held_whole_on_each_gpu() -> None:
    numbers = ModelNumbers(4e9, 4e9, 36, 2560, 2048, 150_000, "stated")
    common = {"dtype": "float32", "sharding": "fsdp", "gpus": 8, "tokens": 100, "checkpointing": True, "reference_model": False}
    rest = {"vllm_share": None, "gpu_memory_gb": 80.0, "context_tokens": 100, "episodes": 8}
    with_it, without = (
        {name: size for name, size, _ in estimate(numbers, critic=critic, **common, **rest)}  # type: ignore[arg-type]
        for critic in (True, False)
    )
    assert with_it["critic"] == pytest.approx(4 * 4e9 * 4 / 2**30) and "critic" not in without
    assert with_it["sum"] - without["sum"] == pytest.approx(1.1 * with_it["critic"])


def test_a_run_with_a_critic_stops_and_goes_on_and_leaves_a_policy_alone(
    tiny_model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ["--algorithm", "ppo", "--advantage", "token_gae", "--set", "data.eval_tasks=0", "--set", "trainer.num_generations=1"]
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "_gentle_interrupt", stop_at_once)
        assert main(arguments(tiny_model, *more, updates=2)) == 130
    run = RunFolder.open("run")
    assert run.config["recipe"]["algorithm"] == "ppo" and run.summary is None
    first = torch.load(run.checkpoints / "checkpoint-1" / CRITIC_FILE, weights_only=True)
    assert main(["train", "--output-dir", "run", "--resume", "--algorithm", "ppo"]) == 2
    assert "leave out --algorithm" in capsys.readouterr().err
    assert main(["train", "--output-dir", "run", "--resume"]) == 0
    assert [one["step"] for one in run.metrics("train")] == [1, 2] and run.summary is not None
    assert all("critic/value_loss" in one for one in run.metrics("train"))
    second = torch.load(run.checkpoints / "checkpoint-2" / CRITIC_FILE, weights_only=True)
    steps = [int(next(iter(one["optimizer"]["state"].values()))["step"]) for one in (first, second)]
    assert steps == [1, 2]
    final = run.checkpoints / "final"
    assert not (final / CRITIC_FILE).exists()
    assert not any("backbone" in name or "head.bias" in name for name in load_file(final / "model.safetensors"))


def test_the_smoke_run_of_groups_of_one_has_two_episodes(tiny_model: str) -> None:
    assert main(arguments(tiny_model, "--algorithm", "ppo", "--set", "trainer.num_generations=1", "--smoke")) == 0
    run = RunFolder.open("run")
    assert [one["rollout/episodes"] for one in run.metrics("train")] == [2.0, 2.0]
