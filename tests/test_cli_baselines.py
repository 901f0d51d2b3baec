"""Players without a model that an environment names: alone and beside one in `agent-gym eval`; and `agent-gym play --browser`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from agent_gym.cli import main
from agent_gym.envs.webshop import chromium
from agent_gym.envs.webshop.env import WebShopEnv

SHOP = "AgentR1/WebShop-v0"
SMALL = ["--tasks", "6", "--env-arg", "level=small"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def figures(folder: str) -> dict[str, Any]:
    return dict(json.loads((Path(folder) / "evaluation.json").read_text(encoding="utf-8"))["arms"])


@pytest.mark.parametrize("name", sorted(WebShopEnv.baselines))
def test_a_baseline_is_a_model_by_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", SHOP, "--model", name, *SMALL, "--output-dir", "one"]) == 0
    arms = figures("one")
    assert list(arms) == [name]
    shown = capsys.readouterr().out
    rows = [line.split()[0] for line in shown.splitlines() if line.strip()]
    assert rows.count("success") == 1 and rows.count("score") == 1 and rows.index("score") == rows.index("success") + 1
    assert "goal_index" not in shown and "w_att" not in shown
    assert arms[name]["estimates"]["score"]["mean"] == pytest.approx(arms[name]["estimates"]["reward"]["mean"])


def test_baselines_stand_beside_a_model_on_the_same_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", SHOP, "--model", "expert", "--baselines", *SMALL, "--output-dir", "all"]) == 0
    arms = figures("all")
    assert list(arms) == ["expert", *WebShopEnv.baselines]
    tasks = {name: [one["task_id"] for one in arm["per_task"]] for name, arm in arms.items()}
    assert tasks["expert"] == tasks["first_result"] == tasks["random_shopper"] and len(set(tasks["expert"])) == 6
    score = {name: arm["estimates"]["score"]["mean"] for name, arm in arms.items()}
    assert score["expert"] == 1.0 > score["first_result"] > score["random_shopper"]
    first, head = capsys.readouterr().out, ("expert", "first_result", "random_shopper")
    assert any(all(name in line for name in head) for line in first.splitlines())
    assert main(["eval", SHOP, "--model", "first_result", *SMALL, "--output-dir", "alone"]) == 0
    alone = figures("alone")["first_result"]
    assert alone["estimates"] == arms["first_result"]["estimates"] and alone["per_task"] == arms["first_result"]["per_task"]


def test_a_baseline_writes_episodes_too() -> None:
    command = ["rollout", SHOP, "--model", "first_result", "--episodes", "2", "--env-arg", "level=small", "--out", "episodes.jsonl"]
    assert main(command) == 0 and Path("episodes.jsonl").stat().st_size > 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["eval", SHOP, "--model", "first_resul", *SMALL], "did you mean 'first_result'?"),
        (["eval", "AgentR1/Tool-v0", "--model", "expert", "--baselines", "--tasks", "2"], "names no players"),
        (["eval", "AgentR1/Tool-v0", "--model", "random_shopper/", "--tasks", "2"], "random_shopper"),
        (["eval", SHOP, "--model", "random_shopper", "--samples", "3", *SMALL], "the same every time"),
        (["play", "AgentR1/Tool-v0", "--browser"], "has no browser"),
        (["play", SHOP, "--browser", "--env-arg", "browser=false"], "leave one of the two out"),
        (["play", SHOP, "--browser", "--env-arg", "browser_options=5"], "JSON object"),
    ],
)
def test_mistakes_are_named(words: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(words) == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_a_window_without_a_display_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from helpers import require

    require("selenium")
    monkeypatch.setattr(chromium.BrowserOptions, "programs", lambda self: ("chromium", "chromedriver"))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert main(["play", SHOP, "--browser", "--env-arg", "level=small"]) == 2
    assert "no display" in " ".join(capsys.readouterr().err.split())


def test_the_browser_is_shown_as_the_options_say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made: list[dict[str, Any]] = []

    class Shown(WebShopEnv):
        def __init__(self, *, browser: bool = False, browser_options: Any = None, **kwargs: Any) -> None:
            made.append({"browser": browser, **browser_options})
            super().__init__(**kwargs)

    monkeypatch.setattr("agent_gym.envs.webshop.env.WebShopEnv", Shown)
    for more in ([], ["--env-arg", 'browser_options={"headless": true, "step_timeout": 3}']):
        monkeypatch.setattr("sys.stdin", io.StringIO("search[mug]\n:quit\n"))
        assert main(["play", SHOP, "--browser", "--env-arg", "level=small", *more]) == 0
    assert made == [{"browser": True, "headless": False}, {"browser": True, "headless": True, "step_timeout": 3}]
    assert "Total results" in capsys.readouterr().out
