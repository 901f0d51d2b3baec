"""`agent-gym train --replay`: imported logs and saved episodes are trained on again, in a recipe's run and in the embedded one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from agent_gym.cli import main
from agent_gym.runs import RunFolder
from agent_gym.trainers.embedded import EmbeddedConfig
from agent_gym.trajectory_io import load_trajectories, save_trajectories

HOTPOT = "AgentR1/HotpotQA-v0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a random model that speaks the default tokenizer."""
    from agent_gym.chat import load_tokenizer
    from agent_gym.trainers.tiny_model import TinyShape, build_tiny_model

    folder = tmp_path_factory.mktemp("model") / "tiny"
    tokenizer = load_tokenizer(None)
    build_tiny_model(tokenizer, 0, TinyShape(layers=1)).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return str(folder)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")


def command(model: str, *more: str, run: str = "run") -> list[str]:
    settings = {
        "trainer.max_steps": 2, "trainer.num_generations": 2, "trainer.per_device_train_batch_size": 4, "trainer.max_completion_length": 4,
        "trainer.max_no_signal_batches": 0, "trainer.max_turns": 1, "data.eval_tasks": 0, "data.train_tasks": 8, "trainer.save_steps": 1,
        "trainer.learning_rate": 1e-3,
    }  # fmt: skip
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return ["train", HOTPOT, "--model", model, "--env-arg", "level=bridge", "--output-dir", run, *sets, *more]


def chats(path: Path) -> None:
    lines = [
        [{"role": "user", "content": f"Say {word}."}, {"role": "assistant", "content": f"<answer>{word}</answer>"}]
        for word in ("one", "two", "three")
    ]
    path.write_text("".join(json.dumps({"messages": one}) + "\n" for one in lines), encoding="utf-8")


def weights(run: str) -> dict[str, Any]:
    return load_file(f"{run}/checkpoints/final/model.safetensors")


def same(one: str, other: str) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_an_imported_log_is_imitated_beside_fresh_episodes_and_again_alike(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    chats(Path("log.jsonl"))
    assert main(["data", "import-chat", "log.jsonl", "--tokenizer", model]) == 0
    replay = ["--replay", "log.trajectories.jsonl", "--replay-correction", "imitation"]
    assert main(command(model, "--replay", "log.trajectories.jsonl")) == 2
    assert "log.trajectories.jsonl, trajectory 0 (task 'log.jsonl-1'): step 0 has no log-probabilities" in capsys.readouterr().err
    assert not Path("run").exists()
    assert main([*command(model, *replay), "--dry-run"]) == 0
    assert "replay: 3 episodes in 3 groups, 0.5 per fresh episode; imitated with weight 1" in capsys.readouterr().out
    for run in ("first", "again"):
        assert main(command(model, *replay, run=run)) == 0
    assert same("first", "again")
    before = load_file(f"{model}/model.safetensors")
    moved = weights("first")
    assert any(not torch.equal(before[name], moved[name]) for name in before)  # a random model finds no reward of its own
    records = RunFolder.open("first").metrics("train")
    assert [one["replay/episodes"] for one in records] == [2.0, 2.0]


def test_a_run_goes_on_with_the_same_files_only(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    chats(Path("log.jsonl"))
    assert main(["data", "import-chat", "log.jsonl", "--tokenizer", model]) == 0
    assert (
        main(command(model, "--replay", "log.trajectories.jsonl", "--replay-correction", "imitation", "--set", "trainer.max_steps=1")) == 0
    )
    capsys.readouterr()
    assert main(["train", "--output-dir", "run", "--resume", "--replay-ratio", "1"]) == 2
    assert "leave out --replay-ratio" in capsys.readouterr().err
    save_trajectories("log.trajectories.jsonl", load_trajectories("log.trajectories.jsonl")[:2])
    assert main(["train", "--output-dir", "run", "--resume"]) == 2
    assert "hold other episodes than those that the run" in capsys.readouterr().err


def test_mistakes_are_one_message(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        (["train", "--replay", "no.jsonl", HOTPOT], "no trajectory file no.jsonl"),
        (["train", "--replay-ratio", "0.5", "--dry-run"], "'files' is missing"),
        ([*command(model), "--replay-max-age", "3"], "--replay-max-age goes with --replay FILES"),
        ([*command(model), "--replay-max-age", "-3"], "is negative"),
        ([*command(model), "--replay-correction", "none"], "choose from token_truncate"),
        (["train", "--set", "replay.fils=x", "--dry-run"], "unknown are fils"),
        (["train", "--set", "replay.files=[x]", "--set", "replay.ratio=0", "--dry-run"], "must be a positive number"),
    ):
        assert main(words) == 2, words
        said = capsys.readouterr().err
        assert says in said and "Traceback" not in said, said
    Path("some.jsonl").write_text("", encoding="utf-8")
    assert main(["train", "--replay", "some.jsonl", HOTPOT]) == 2
    assert "no trajectory file AgentR1/HotpotQA-v0; ENV goes before --replay" in capsys.readouterr().err
    assert main(["train", "--replay", "some.jsonl", "--dry-run"]) == 2
    assert "some.jsonl is empty" in capsys.readouterr().err
    assert main(["train", "--replay", "some.jsonl", "--output-dir", "run"]) == 2  # before the warm start, which takes minutes
    assert not list(Path("run").glob("checkpoints/*"))


def test_the_settings_of_an_embedded_run_hold_what_is_replayed() -> None:
    config = EmbeddedConfig(replay={"files": ["a.jsonl"], "ratio": 0.25})
    assert config.smoke().replay == config.replay
    with pytest.raises(ValueError, match="'files' is missing"):
        EmbeddedConfig(replay={"ratio": 0.25})


def begun(folder: str, source: RunFolder, replay: dict[str, Any] | None) -> str:
    """The same run up to the warm start, with something to replay."""
    target = Path(folder)
    shutil.copytree(source.checkpoints / "warm_start", target / "checkpoints" / "warm_start")
    for name in ("versions.json", "evaluation.before.json"):
        shutil.copy(source.path / name, target / name)
    config = source.config
    config["settings"]["replay"] = replay or {}
    (target / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_the_embedded_smoke_run_replays_its_own_episodes_moves_otherwise_and_again_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--smoke", "--output-dir", "plain", "--set", "eval_tasks=4"]) == 0
    plain = RunFolder.open("plain")
    saved = plain.trajectories_path("last_batch")
    assert main(["train", "--replay", str(saved), "--replay-max-age", "0", "--smoke", "--dry-run"]) == 0
    assert (
        "replay: 32 episodes in 4 groups, 0.5 per fresh episode; token_truncate, base version 1, at most 0 versions old"
        in capsys.readouterr().out
    )
    replay = {"files": [str(saved.resolve())], "ratio": 0.5, "max_age": 1}
    for name in ("one", "two"):
        assert main(["train", "--output-dir", begun(name, plain, replay), "--resume"]) == 0
    assert main(["train", "--output-dir", begun("without", plain, None), "--resume"]) == 0
    assert same("plain", "without")
    assert same("one", "two") and not same("one", "plain")
    records = RunFolder.open("one").metrics("train")
    assert [(one["replay/episodes"], one["replay/too_old"], one["replay/age_max"]) for one in records] == [
        (16.0, 0.0, 0.0),
        (16.0, 0.0, 1.0),
    ]
    assert all(0.0 < one["replay/is_mean"] < 3.0 for one in records)
    page = RunFolder.open("one").report_path.read_text(encoding="utf-8")
    assert "replay" in page
