"""Both engines say the same in every real game at hand, with the wording of alfworld `move X to Y`, 0.4."""

from __future__ import annotations

from pathlib import Path

import pytest
from differential_files import Part, play_all, real_games


@pytest.fixture(scope="module")
def part(data_dir: Path) -> Part:
    return play_all(real_games(data_dir / "alfworld" / "current"), perturbed=1, every=4)


@pytest.mark.slow
def test_real_games_are_played_alike_and_enough_was_tried(part: Part) -> None:
    part.check("move", games=24, perturbed=6)
