"""Both engines say the same in generated games of all six task types, with the wording "move"."""

from __future__ import annotations

import pytest
from differential_files import Part, generated_games, play_all


@pytest.fixture(scope="module")
def part() -> Part:
    return play_all(generated_games("move", small=4, full=2), perturbed=3)


@pytest.mark.slow
def test_generated_games_are_played_alike_and_enough_was_tried(part: Part) -> None:
    part.check("move", games=36, perturbed=100)
