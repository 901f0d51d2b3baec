"""The report in a real browser: it says what the run says, in a window of any size, and hostile text runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headless import headless_chromium
from html_events import HOSTILE
from test_page import make_run

from agent_gym.report import write_report


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with headless_chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


def open_report(browser: Any, folder: Path, **texts: str) -> str:
    path = write_report(make_run(folder / "run", **texts))
    browser.get(path.as_uri())
    return str(browser.execute_script("return document.body.innerText"))


def test_it_shows_the_figures_of_the_run_and_an_empty_console(browser: Any, tmp_path: Path) -> None:
    text = open_report(browser, tmp_path, said="Oslo")
    for part in ("0.9", "0.7", "Before reinforcement learning"):
        assert part in text, part
    waiting = (
        "const [done] = arguments; const look = () => document.body.innerText.includes('Oslo') ? done(true) : setTimeout(look, 20); look();"
    )
    assert browser.execute_async_script(waiting)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_hostile_text_is_shown_and_runs_nothing(browser: Any, tmp_path: Path) -> None:
    for number, hostile in enumerate(HOSTILE):
        safe = hostile.encode("utf-8", "replace").decode().replace("\x00", "\x01")
        open_report(browser, tmp_path / str(number), said=safe, word=safe)
        assert browser.execute_script("return document.querySelectorAll('img, iframe, object, embed, base, link').length") == 0
        kinds = browser.execute_script("return [...document.scripts].map((one) => one.type)")
        assert kinds.count("") == 1 and set(kinds) == {"", "application/json"}  # its own script and its data
        assert browser.execute_script("return [typeof window.hacked, document.title === '']") == ["undefined", False]


def test_it_fits_a_telephone(browser: Any, tmp_path: Path) -> None:
    browser.set_window_size(500, 800)  # the smallest window that headless Chromium makes
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True})
    open_report(browser, tmp_path)
    wide, window = browser.execute_script("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert wide <= window == 390
