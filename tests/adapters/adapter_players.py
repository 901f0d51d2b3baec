"""Players and experts of the adapted games, under names that other processes can import."""

from __future__ import annotations

import re
from typing import Any

import numpy as np


def crack(game: Any) -> str:
    """The secret code of Mastermind."""
    return "[" + " ".join(str(number) for number in game.state.game_state["secret_code"]) + "]"


def any_free_cell(text: str, rng: np.random.Generator) -> str:
    """A legal move of Tic Tac Toe, drawn."""
    return f"[{rng.choice(re.findall(r'[0-9]', text.rpartition('Available Moves:')[2]))}]"
