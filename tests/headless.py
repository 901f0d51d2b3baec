"""A headless Chromium for tests of pages: it reaches no other machine, and keeps what its console says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import require


@contextmanager
def headless_chromium(profile: Path, *more: str) -> Iterator[Any]:
    """Start a browser, and end it behind the block; the test is skipped, with the reason, where there is none.

    Args:
        profile: an empty folder.
        more: flags.

    Yields:
        Selenium's driver.
    """
    selenium = require("selenium.webdriver")
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if binary is None or driver is None:
        if os.environ.get("AGENT_GYM_REQUIRE_ALL"):
            pytest.fail("AGENT_GYM_REQUIRE_ALL is set, but Chromium or its driver is missing")
        pytest.skip("needs Chromium and its driver")
    options = selenium.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--no-first-run", "--mute-audio",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
        "--proxy-server=http://127.0.0.1:9", f"--user-data-dir={profile}", *more,
    ):  # fmt: skip
        options.add_argument(flag)
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium refuses to sandbox as root
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()
