"""`agent-gym train --replay`: imported logs and saved episodes are trained on again, in a recipe's run and in the embedded one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from agent_gym.cli import main
from agent_gym.cli import train as train_module
from agent_gym.runs import RunFolder
from agent_gym.trainers.embedded import EmbeddedConfig
from agent_gym.trajectory_io import load_trajectories, save_trajectories

HOTPOT = "AgentR1/HotpotQA-v0"


@pytest.fixture
def model(tiny_model: str) -> str:
    return tiny_model


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


@contextlib.contextmanager
def stop_at_once(request_stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    request_stop()
    yield


def same(one: str, other: str) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_an_imported_log_is_imitated_beside_fresh_episodes_and_again_alike(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    chats(Path("log.jsonl"))
    assert main(["data", "import-chat", "log.jsonl", "--tokenizer", model]) == 0
    replay = ["--replay", "log.trajectories.jsonl", "--replay-correction", "imitation"]
    assert main(command(model, "--replay", "log.trajectories.jsonl")) == 2
    assert "log.trajectories.jsonl, trajectory 0 (task 'log.jsonl-1'): step 0 has no log-probabilities" in capsys.readouterr().err
    assert not RunFolder("run").exists
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


@pytest.fixture
def untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded run without its warm start, which takes a minute: its model is the untrained one."""
    from agent_gym.trainers.presets.hotpotqa import HotpotQAPreset
    from agent_gym.trainers.tiny_model import TinyShape, build_tiny_model

    monkeypatch.setattr(
        HotpotQAPreset,
        "warm_start",
        lambda self, config, tokenizer, *, seed, report, success: build_tiny_model(tokenizer, seed, TinyShape(layers=1)),
    )


SMALL = {
    "updates": 2, "num_iterations": 1, "eval_tasks": 2, "curve_tasks": 0, "tasks_per_update": 2, "num_generations": 4, "max_action_tokens": 6,
    "save_every": 1,
}  # fmt: skip


def embedded(run: str, *more: str) -> list[str]:
    return ["train", "--output-dir", run, *(part for name, value in SMALL.items() for part in ("--set", f"{name}={value}")), *more]


@pytest.mark.usefixtures("untrained")
def test_the_embedded_run_replays_saved_episodes_moves_by_them_and_again_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(embedded("plain")) == 0
    episodes = load_trajectories(RunFolder.open("plain").trajectories_path("last_batch"))
    assert len(episodes) == 8 and all(step.logprobs is not None and step.policy_version == 1 for one in episodes for step in one.steps)
    paid = [replace(one, steps=[*one.steps[:-1], replace(one.steps[-1], reward=float(number % 2))]) for number, one in enumerate(episodes)]
    save_trajectories("paid.parquet", paid)  # an untrained model earns nothing by itself
    replay = ["--replay", "paid.parquet", "--replay-ratio", "0.5", "--replay-max-age", "0"]
    assert main(embedded("shown", *replay, "--dry-run")) == 0
    said = "replay: 8 episodes in 2 groups, 0.5 per fresh episode; token_truncate, base version 1, at most 0 versions old"
    assert said in capsys.readouterr().out
    for name in ("one", "two"):
        assert main(embedded(name, *replay)) == 0
    assert same("one", "two") and not same("one", "plain")
    records = RunFolder.open("one").metrics("train")
    assert [(record["replay/episodes"], record["replay/too_old"]) for record in records] == [(4.0, 0.0), (0.0, 8.0)]
    assert records[0]["replay/age_max"] == 0.0 and 0.0 < records[0]["replay/is_mean"] < 3.0
    assert [record["replay/episodes"] for record in RunFolder.open("one").metrics("train")] == [4.0, 0.0]


@pytest.mark.usefixtures("untrained")
def test_an_embedded_run_that_was_stopped_goes_on_with_its_replay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chats(Path("log.jsonl"))
    assert main(["data", "import-chat", "log.jsonl"]) == 0
    replay = ["--replay", "log.trajectories.jsonl", "--replay-correction", "imitation"]
    assert main(embedded("whole", *replay)) == 0
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "_gentle_interrupt", stop_at_once)
        assert main(embedded("cut", *replay)) == 130
    assert len(RunFolder.open("cut").metrics("train")) == 1
    assert main(["train", "--output-dir", "cut", "--resume"]) == 0
    assert same("cut", "whole")
    assert [record["replay/episodes"] for record in RunFolder.open("cut").metrics("train")] == [3.0, 3.0]
