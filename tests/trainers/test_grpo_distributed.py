"""Two processes over gloo have the gradient, the advantages and the figures of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from distributed_worker import CASES, run_case
from toy_training import relative_error
from two_processes import run_on_two_ranks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("ddp")
    return folder, run_on_two_ranks("distributed_worker.py", folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
def test_two_processes_equal_one(name: str, ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, results = ranks
    alone, figures = run_case(name, folder / "alone", 1, 0)
    for result in results:
        gradients, seen = result["cases"][name]
        assert len(gradients) == len(alone)
        for got, expected in zip(gradients, alone, strict=True):
            assert expected.norm() > 1e-3
            assert relative_error(got, expected) < 1e-6
        for key, value in figures.items():
            assert seen[key] == pytest.approx(value, rel=1e-4, abs=1e-6), key


def test_a_group_over_both_ranks_is_one_task_with_different_samples(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    _, results = ranks
    seen = results[0]["environment"]
    assert seen == results[1]["environment"]
    assert len(seen["tasks"]) == 4
    assert len(set(seen["tasks"])) == len(set(seen["groups"])) == 1
    assert len({tuple(action) for action in seen["actions"]}) == 4


def test_a_rank_whose_world_is_broken_holds_nobody_and_all_ranks_stop_together(ranks: tuple[Path, list[dict[str, Any]]]) -> None:
    _, results = ranks
    seen = results[0]["faults"]
    assert seen == results[1]["faults"]
    assert seen["drop"] == (2, 2 / 200)  # the second rank's two episodes are gone, the first one's are trained on
    assert seen["stop"].startswith("on rank 1: ") and "on_fault='stop'" in seen["stop"]
