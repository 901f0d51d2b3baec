"""`agent-gym train --advantage NAME`: for recipes and the embedded run; estimators that need a critic are refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_gym.cli import main
from agent_gym.trainers.advantages import ADVANTAGES

CRITIC_FREE = sorted(name for name, item in ADVANTAGES.items() if not item.needs_values)
RECIPE = ["AgentR1/HotpotQA-v0", "--model", "default-tokenizer-only"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("name", CRITIC_FREE)
def test_the_embedded_run_takes_every_estimator_that_needs_no_critic(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dry-run", "--advantage", name]) == 0
    shown = capsys.readouterr().out
    assert f"advantage = '{name}'" in shown and "dry run passed" in shown


def test_the_recipe_of_a_run_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("agent_gym.cli.train._recipe_run", lambda args, recipe, earlier: seen.append(recipe.trainer) or 0)
    more = ["--set", "trainer.advantage=rloo", "--set", "trainer.advantage_kwargs.similarity=0.9", "--advantage", "gigpo"]
    assert main(["train", *RECIPE, *more]) == 0
    assert seen[0]["advantage"] == "gigpo" and seen[0]["advantage_kwargs"] == {"similarity": 0.9}


@pytest.mark.parametrize("where", [[], RECIPE], ids=["embedded", "recipe"])
@pytest.mark.parametrize(
    ("name", "message"),
    [("grop", "choose one of gigpo, grpo"), ("step_gae", "needs the values of a critic"), ("token_gae", "needs the values of a critic")],
)
def test_an_estimator_that_cannot_be_used_is_refused(where: list[str], name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *where, "--advantage", name, "--output-dir", "run"]) == 2
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said and not Path("run").exists()


def test_settings_of_the_estimator_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dry-run", "--advantage", "gigpo", "--set", "advantage_kwargs.similarty=0.9"]) == 2
    assert "the settings of 'gigpo' there are similarity, step_weight" in capsys.readouterr().err
    assert main(["train", "--dry-run", "--advantage", "gigpo", "--set", "advantage_kwargs.similarity=0.9"]) == 0
