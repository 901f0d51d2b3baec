"""Fixtures that every room shares: the folder of real test input and its tokenizer."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real test input; the test is skipped, with the reason, where it is not."""
    folder = os.environ.get("AGENT_GYM_TEST_DATA", "")
    if not folder or not Path(folder).is_dir():
        if os.environ.get("AGENT_GYM_REQUIRE_ALL"):
            pytest.fail("AGENT_GYM_REQUIRE_ALL is set, but AGENT_GYM_TEST_DATA names no folder")
        pytest.skip("set AGENT_GYM_TEST_DATA to the folder of real test input")
    return Path(folder)


@pytest.fixture(scope="session")
def qwen3_path(data_dir: Path) -> str:
    """The folder of the real Qwen3 tokenizer."""
    return str(data_dir / "tokenizers" / "qwen3")
