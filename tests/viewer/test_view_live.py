"""`agent-gym train --live`: the page of a training that goes on."""

from __future__ import annotations

import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import train_arguments
from test_view_browser import click_text, column, shown_count, until, visit

from agent_gym.cli import main
from agent_gym.runs import RunFolder
from agent_gym.trajectory_io import load_trajectories


def test_the_page_follows_a_training_and_says_when_it_is_over(
    browser: Any, tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    kept = tmp_path / "run" / "trajectories" / "train.jsonl"
    allowed, let_go, status = [0], threading.Condition(), []

    def count() -> int:
        return len(load_trajectories(kept)) if kept.is_file() else 0

    def hold() -> None:
        with let_go:
            let_go.wait_for(lambda: -(-count() // 8) <= allowed[0], timeout=240)

    monkeypatch.setitem(sys.modules, "viewed_env", __import__("viewed_env"))
    monkeypatch.setattr(sys.modules["viewed_env"].Parity, "hook", staticmethod(hold))
    arguments = train_arguments(tiny_model, tmp_path / "run", "--live", "--set", "data.eval_tasks=0")
    training = threading.Thread(target=lambda: status.append(main(arguments)), daemon=True)
    training.start()
    said = ""
    while "live view: " not in said and training.is_alive():
        time.sleep(0.1)
        said += capsys.readouterr().out
    address = re.search(r"live view: (http://127\.0\.0\.1:\d+/)", said)
    assert address is not None, said
    run = RunFolder(tmp_path / "run")
    try:
        visit(browser, address.group(1), "episodes")
        for update in (1, 2):
            until(
                browser,
                "return document.querySelector('.status').textContent.match(/^\\d+ episodes;/) && document.querySelectorAll('.episodes tbody tr').length > arguments[0]",
                8 * (update - 1),
            )
            episodes = load_trajectories(kept)
            assert shown_count(browser) == f"{len(episodes)} episodes; {sum(one.is_success for one in episodes)} solved"
            assert [float(text) for text in column(browser, 2)] == pytest.approx([one.total_reward for one in episodes], abs=6e-4)
            click_text(browser, "Overview")
            until(
                browser,
                "return [...document.querySelectorAll('.tile')].some((one) => one.innerText.startsWith(`Updates\\n${arguments[0]}`))",
                update,
            )
            reward = until(browser, "return document.querySelector('[data-metric=reward] .latest')?.innerText")
            assert float(reward) == pytest.approx(run.metrics("train")[-1]["reward"], rel=1e-3)
            assert browser.execute_script("return document.getElementById('live').innerText") == "live"
            click_text(browser, "Episodes")
            allowed[0] = update
            with let_go:
                let_go.notify_all()
    finally:
        allowed[0] = 99
        with let_go:
            let_go.notify_all()
        training.join(240)
    assert status == [0]
    assert until(browser, "return document.getElementById('live').innerText").startswith(("live", "no longer live"))
    until(browser, "return document.getElementById('live').innerText.startsWith('no longer live')")
    assert all("ERR_CONNECTION_REFUSED" in entry["message"] for entry in browser.get_log("browser"))
    assert run.summary is not None and run.report_path.is_file()
