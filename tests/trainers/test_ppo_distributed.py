"""Two processes over gloo train the policy and the critic as one does, and say the same of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ppo_distributed_worker import CASES, run_case
from toy_training import relative_error
from two_processes import run_on_two_ranks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ddp-ppo")
    return folder, run_on_two_ranks("ppo_distributed_worker.py", folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_two_processes_with_a_critic_equal_one(name: str, ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, results = ranks
    alone = run_case(name, folder / "alone", 1, 0)
    assert alone["moved"].norm() > 1e-3 and 0 < alone["figures"]["critic/clip_frac"] < 1
    for result in results:
        seen = result[name]
        assert torch.equal(seen["before"], alone["before"])  # the first rank's critic on both
        assert relative_error(seen["moved"], alone["moved"]) < 1e-6
        assert len(seen["gradients"]) == len(alone["gradients"]) == 1
        assert alone["gradients"][0].norm() > 1e-3 and relative_error(seen["gradients"][0], alone["gradients"][0]) < 1e-6
        for key, value in alone["figures"].items():
            assert seen["figures"][key] == pytest.approx(value, rel=1e-4, abs=1e-6), key
