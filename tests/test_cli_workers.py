"""`agent-gym train|eval|rollout --workers`: where the environments live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_gym.cli import main

TOOL = ["AgentR1/Tool-v0", "--model", "expert"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_a_rollout_in_workers_writes_the_same_file() -> None:
    for name, more in (("here", []), ("there", ["--workers", "1"])):
        assert main(["rollout", *TOOL, "--episodes", "3", *more, "--out", f"{name}.jsonl"]) == 0
    assert Path("here.jsonl").read_bytes() == Path("there.jsonl").read_bytes()


def test_an_evaluation_in_workers_measures_the_same() -> None:
    for name, more in (("here", []), ("there", ["--workers", "1"])):
        assert main(["eval", *TOOL, "--tasks", "3", *more, "--output-dir", name]) == 0
    here, there = (json.loads(Path(name, "evaluation.json").read_text())["arms"] for name in ("here", "there"))
    assert here == there and here["expert"]["episodes"] == 3


@pytest.mark.parametrize("command", [["eval", *TOOL], ["rollout", *TOOL, "--out", "x.jsonl"], ["train"]], ids=["eval", "rollout", "train"])
def test_what_names_no_place_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--workers", "rya"]) == 2
    assert "workers must be a number of worker processes, 'ray', or the address" in capsys.readouterr().err


def test_training_gets_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    monkeypatch.setattr("agent_gym.cli.train._recipe_run", lambda args, recipe, earlier: seen.append(recipe.trainer) or 0)
    recipe = ["AgentR1/HotpotQA-v0", "--model", "m"]
    assert main(["train", *recipe, "--set", "trainer.max_steps=3", "--workers", "4"]) == 0
    assert main(["train", *recipe, "--set", "trainer.workers=ray"]) == 0
    assert [one["workers"] for one in seen] == [4, "ray"] and seen[0]["max_steps"] == 3
    assert main(["train", "--dry-run", "--workers", "2"]) == 0
    assert "workers = 2" in capsys.readouterr().out
