"""Small things that several rooms' tests use."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest


def require(name: str) -> ModuleType:
    """The optional module; without it the test is skipped with the reason, or fails where AGENT_GYM_REQUIRE_ALL=1 says that nothing may be missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if os.environ.get("AGENT_GYM_REQUIRE_ALL") == "1":
            pytest.fail(f"AGENT_GYM_REQUIRE_ALL=1, but {name} cannot be imported: {error}")
        pytest.skip(f"{name} is not installed ({error})", allow_module_level=True)
