"""The plain-PyTorch loop learns, and stays short."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from helpers import require

SCRIPT = Path(__file__).parents[2] / "examples" / "reinforce_pytorch.py"


@pytest.fixture(scope="module")
def example():
    require("torch")
    spec = importlib.util.spec_from_file_location("reinforce_pytorch", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [0, 1])
def test_reinforce_learns_to_repeat(example, seed):
    curve = example.train(updates=45, seed=seed)
    assert np.mean(curve[:3]) < 0.5
    assert np.mean(curve[-5:]) > 0.9


def test_it_stays_within_120_lines():
    assert len(SCRIPT.read_text().splitlines()) <= 120
