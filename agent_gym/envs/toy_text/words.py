"""The words for Gymnasium's toy-text tasks: what the task is, how its actions are called, and what a state looks like.

A description holds all that a player needs to know of the state: under the same words, the same action has the same consequences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium

__all__ = ["VERBALIZERS", "Verbalizer", "find_verbalizer"]


@dataclass(frozen=True)
class Verbalizer:
    """The words for one environment.

    Attributes:
        task: what the task is and how it is won; or a function that says so of an unwrapped environment.
        actions: the name of each action, in lower case, and its number.
        describe: (observation, unwrapped environment) -> the state in words.
    """

    task: str | Callable[[Any], str]
    actions: Mapping[str, int]
    describe: Callable[[Any, Any], str]

    def task_of(self, env: Any) -> str:
        """Return the task of an environment.

        Args:
            env: the unwrapped environment.

        Returns:
            The text.
        """
        return self.task if isinstance(self.task, str) else self.task(env)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        names = "|".join(re.escape(name) for name in sorted(self.actions, key=len, reverse=True))
        return re.compile(rf"(?<!\w)({names})(?!\w)", re.IGNORECASE)

    def read(self, reply: str) -> int | None:
        """Return the number of the action that a reply names.

        Args:
            reply: any text.

        Returns:
            The number; None where no action, or more than one, is named.
        """
        named = {name.lower() for name in self._pattern.findall(reply)}
        return self.actions[named.pop()] if len(named) == 1 else None


def _frozen_lake_task(env: Any) -> str:
    told = "Cross the frozen lake from S to the goal G without falling into a hole H. F is ice, @ is you. Row 0 is the top row, column 0 the left one."
    slips = env.P[0][1]  # down, from the start
    if len(slips) == 1:
        return f"{told} The ice is not slippery: a move goes where you want it to go."
    return (
        f"{told} The ice is slippery: with probability {slips[1][0]:.2f} a move goes where you want it to go, and with {slips[0][0]:.2f} each to the left and "
        "to the right of that. A move off the lake leaves you where you are."
    )


_LAKE = {"S": "the start", "F": "ice", "H": "a hole", "G": "the goal"}


def _frozen_lake(observation: Any, env: Any) -> str:
    rows = [[cell.decode() for cell in row] for row in env.desc]
    row, column = divmod(int(observation), len(rows[0]))
    grid = "\n".join("".join("@" if (r, c) == (row, column) else cell for c, cell in enumerate(line)) for r, line in enumerate(rows))
    return f"You (@) stand on {_LAKE[rows[row][column]]} in row {row}, column {column}.\n{grid}"


def _cliff_task(env: Any) -> str:
    told = (
        "Walk to the goal G. @ is you, row 0 is the top row, column 0 the left one. A step costs 1; stepping onto the cliff C costs 100 and puts you to the "
        "start S. A step off the grid leaves you where you are."
    )
    slips = len(env.P[0][0])
    return (
        told
        if slips == 1
        else f"{told} The ground is slippery: a step goes where you want it to go, to the left or to the right of that, each as likely."
    )


def _cliff(observation: Any, env: Any) -> str:
    row, column = divmod(int(observation), 12)
    lines = [["." for _ in range(12)] for _ in range(4)]
    lines[3] = ["S", *["C"] * 10, "G"]
    lines[row][column] = "@"
    return f"You (@) stand in row {row}, column {column}.\n" + "\n".join("".join(line) for line in lines)


STOPS = ("red (row 0, column 0)", "green (row 0, column 4)", "yellow (row 4, column 0)", "blue (row 4, column 3)")
"""Where passengers wait and go, by Gymnasium's number."""


def _taxi_task(env: Any) -> str:
    told = (
        "Drive the taxi to the passenger, pick the passenger up, drive to the destination and drop the passenger off there. North is up, row 0 is the top row, "
        "column 0 the left one. | is a wall, : can be passed. An action costs 1, a pickup or dropoff where it is not possible 10; the right dropoff pays 20."
    )
    if len(env.P[0][0]) > 1:
        told += f" It rains: with probability {env.P[0][0][0][0]:.2f} a move goes where you want it to go, else to the left or to the right of that."
    return f"{told} The passenger may change the destination on the way." if getattr(env, "fickle_passenger", False) else told


def _taxi(observation: Any, env: Any) -> str:
    row, column, passenger, goal = env.decode(int(observation))
    where = "in the taxi" if passenger == 4 else f"at {STOPS[passenger]}"
    walls = "\n".join(line.decode() if isinstance(line, bytes) else "".join(cell.decode() for cell in line) for line in env.desc)
    return f"The taxi is in row {row}, column {column}. The passenger is {where} and wants to go to {STOPS[goal]}.\n{walls}"


def _blackjack_task(env: Any) -> str:
    told = (
        "Come closer to 21 than the dealer without going over it. Cards are drawn with replacement; face cards count 10, an ace 11 or 1 (a usable ace counts "
        "11 now). hit takes a card, and going over 21 loses; stick ends your turn, and the dealer draws up to 17 or more. Winning pays 1, a draw 0, losing -1."
    )
    if env.sab:
        return f"{told} 21 with the first two cards wins unless the dealer has the same."
    return f"{told} Winning by 21 with the first two cards pays 1.5." if env.natural else told


def _blackjack(observation: Any, env: Any) -> str:
    total, dealer, ace = (int(value) for value in observation)
    return f"Your cards sum to {total}{' with a usable ace' if ace else ''}. The dealer shows {'an ace' if dealer == 1 else dealer}."


VERBALIZERS: Mapping[str, Verbalizer] = {
    "FrozenLake": Verbalizer(_frozen_lake_task, {"left": 0, "down": 1, "right": 2, "up": 3}, _frozen_lake),
    "CliffWalking": Verbalizer(_cliff_task, {"up": 0, "right": 1, "down": 2, "left": 3}, _cliff),
    "Taxi": Verbalizer(_taxi_task, {"south": 0, "north": 1, "east": 2, "west": 3, "pickup": 4, "dropoff": 5}, _taxi),
    "Blackjack": Verbalizer(_blackjack_task, {"stick": 0, "hit": 1}, _blackjack),
}
"""The known environments, by the name of their id without version."""


def find_verbalizer(env: gymnasium.Env[Any, Any]) -> Verbalizer | None:
    """Return the known words for an environment.

    Args:
        env: a Gymnasium toy-text environment, whatever its version and size.

    Returns:
        The words, or None.
    """
    name = type(env.unwrapped).__name__
    return next((words for known, words in VERBALIZERS.items() if name == f"{known}Env"), None)
