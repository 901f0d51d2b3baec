"""Packages whose requirements do not go with our pins: installed without them into a folder of its own, behind everything else on the path.

The folder is named by AGENT_GYM_FOREIGN (see .ci/foreign.txt). What the environment has itself is taken from the environment.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

import pytest
from helpers import require


def require_foreign(name: str) -> ModuleType:
    """The module, from the environment or from the folder; else the test is skipped, or fails where nothing may be missing."""
    folder = os.environ.get("AGENT_GYM_FOREIGN", "")
    if folder and not os.path.isdir(folder):
        pytest.fail(f"AGENT_GYM_FOREIGN names no folder: {folder}")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    return require(name)
