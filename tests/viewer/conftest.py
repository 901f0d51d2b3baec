"""Two runs that `agent-gym train` really wrote, and a headless Chromium whose console has to stay empty."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headless import headless_chromium

from agent_gym.cli import main
from agent_gym.report.serve import ViewServer
from agent_gym.report.store import open_source
from agent_gym.runs import RunFolder

ENV = "viewed_env:Parity"


def train_arguments(model: str, folder: Path, *more: str, updates: int = 3) -> list[str]:
    settings = {
        "trainer.max_steps": updates, "trainer.num_generations": 4, "trainer.per_device_train_batch_size": 8, "trainer.max_completion_length": 6,
        "trainer.max_no_signal_batches": 0, "data.eval_tasks": 6, "data.train_tasks": 40, "trainer.save_strategy": "no",
    }  # fmt: skip
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return ["train", ENV, "--model", model, "--output-dir", str(folder), *sets, *more]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_model: str) -> tuple[RunFolder, RunFolder]:
    """Two runs of the same tasks with other settings."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        assert main(train_arguments(tiny_model, folder / "first")) == 0
        assert main(train_arguments(tiny_model, folder / "second", "--set", "trainer.learning_rate=0.01", updates=2)) == 0
    assert "viewed_env" in sys.modules
    return RunFolder.open(folder / "first"), RunFolder.open(folder / "second")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with headless_chromium(tmp_path_factory.mktemp("profile"), "--proxy-bypass-list=127.0.0.1") as started:
        started.set_script_timeout(60)
        yield started


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """The browser at a desk, in light colours; nothing may be said on its console."""
    window(chromium)
    chromium.get_log("browser")
    yield chromium
    assert chromium.get_log("browser") == []
    assert chromium.execute_script("return typeof window.hacked") == "undefined"
    chromium.get("about:blank")


def window(browser: Any, width: int = 1200, *, dark: bool = False) -> None:
    """Give the browser a window and a colour scheme."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


@pytest.fixture(scope="session")
def served(runs: tuple[RunFolder, RunFolder]) -> Iterator[str]:
    """The address of the first run."""
    with ViewServer([open_source(runs[0].path)]) as server:
        yield server.url


@pytest.fixture(scope="session")
def served_pair(runs: tuple[RunFolder, RunFolder]) -> Iterator[str]:
    """The address of both runs."""
    with ViewServer([open_source(run.path) for run in runs]) as server:
        yield server.url
