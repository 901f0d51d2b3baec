"""Two processes over gloo distil as one does, and say the same of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distill_distributed_worker import CASES, run_case
from toy_training import relative_error
from two_processes import run_on_two_ranks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ddp-distill")
    return folder, run_on_two_ranks("distill_distributed_worker.py", folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_two_processes_with_a_teacher_equal_one(name: str, ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, results = ranks
    alone = run_case(name, folder / "alone", 1, 0)
    assert alone["figures"]["distill/reverse_kl"] != 0 and set(alone["figures"]) >= {"distill/agreement", "distill/tokens_scored"}
    for result in results:
        seen = result[name]
        assert len(seen["gradients"]) == len(alone["gradients"]) == 1
        assert alone["gradients"][0].norm() > 1e-3 and relative_error(seen["gradients"][0], alone["gradients"][0]) < 1e-6
        for key, value in alone["figures"].items():
            assert seen["figures"][key] == pytest.approx(value, rel=1e-4, abs=1e-6), key
