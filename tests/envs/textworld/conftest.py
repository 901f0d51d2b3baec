"""One cache of games for all tests of this folder, also for several workers: the games that they share are made once, under the library's own lock."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import require


@pytest.fixture(scope="session")
def game_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("textworld.core")
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "textworld-games"


@contextmanager
def ended_after(seconds: int) -> Iterator[None]:
    """A test that hangs in the interpreter's C code would hold everything up; the alarm ends the process."""
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
