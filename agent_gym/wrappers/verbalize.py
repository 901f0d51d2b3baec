"""`VerbalizeObservation`: discrete environments in words, and the words for Gymnasium's toy-text tasks."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from agent_gym.wrappers.stepping import astep

__all__ = ["VERBALIZERS", "VerbalizeObservation", "Verbalizer", "find_verbalizer"]

_CHARACTERS = string.printable


@dataclass(frozen=True)
class Verbalizer:
    """The words for one environment.

    Attributes:
        task: what the task is and how it is won.
        actions: the name of each action, in lower case, and its number.
        describe: (observation, unwrapped environment) -> the state in words.
    """

    task: str
    actions: Mapping[str, int]
    describe: Callable[[Any, Any], str]


class _Reply(spaces.Text):
    """Text of any letters: only the name of an action in it counts. Samples are of the plain ones."""

    def contains(self, x: Any) -> bool:
        """Whether x is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length


class VerbalizeObservation(gymnasium.Wrapper[str, str, Any, Any], RecordConstructorArgs):
    """Shows an environment with discrete actions as text, and reads the action's name from a reply.

    A reply that names no action, or several, is answered by the list of names; the environment is not stepped and the reward is 0.
    `info["action_valid"]` tells the two apart.

    Args:
        env: an environment with a `Discrete` action space.
        verbalizer: its words; None takes the known ones (`VERBALIZERS`).

    Raises:
        TypeError: if the actions are not discrete, or the environment is not known and no verbalizer was given.
        ValueError: if the names do not cover the action space.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], verbalizer: Verbalizer | None = None) -> None:
        RecordConstructorArgs.__init__(self, verbalizer=verbalizer)
        gymnasium.Wrapper.__init__(self, env)
        words = verbalizer or find_verbalizer(env)
        if not isinstance(env.action_space, spaces.Discrete) or words is None:
            raise TypeError(
                f"VerbalizeObservation needs discrete actions and words for them; {type(env.unwrapped).__name__} has {env.action_space}"
                f" and is not among the known ones ({', '.join(VERBALIZERS)}). Pass verbalizer=Verbalizer(task, actions, describe)"
            )
        first, size = int(env.action_space.start), int(env.action_space.n)
        if sorted(words.actions.values()) != list(range(first, first + size)):
            raise ValueError(f"the verbalizer's actions {dict(words.actions)} must name each of {first} to {first + size - 1} once")
        self.words = words
        self._pattern = re.compile(
            r"(?<!\w)(" + "|".join(re.escape(name) for name in sorted(words.actions, key=len, reverse=True)) + r")(?!\w)", re.IGNORECASE
        )
        self.observation_space = spaces.Text(max_length=8192, charset=_CHARACTERS)
        self.action_space = _Reply(min_length=0, max_length=8192, charset=_CHARACTERS)
        self._state = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of the environment.
            options: of the environment.

        Returns:
            Task, action names and state in words; the environment's info with `action_valid`.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        self._state = self.words.describe(observation, self.unwrapped)
        return f"{self.words.task}\n{self._names()}\n\n{self._state}", {**info, "action_valid": True}

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Act by name.

        Args:
            action: a reply that names one action.

        Returns:
            The state in words, and the rest as the environment returns it.
        """
        number = self._read(action)
        return self._unread() if number is None else self._described(self.env.step(number))  # type: ignore[arg-type]  # the inner action space is discrete

    async def astep(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Act by name, awaiting the environment; only where `can_await(env)` holds.

        Args:
            action: a reply that names one action.

        Returns:
            As `step`.
        """
        number = self._read(action)
        return self._unread() if number is None else self._described(await astep(self.env, number))

    def _read(self, reply: str) -> int | None:
        named = {name.lower() for name in self._pattern.findall(reply)}
        return self.words.actions[named.pop()] if len(named) == 1 else None

    def _unread(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"The reply must name exactly one action. {self._names()}\n\n{self._state}", 0.0, False, False, {"action_valid": False}

    def _described(self, result: tuple[Any, Any, bool, bool, dict[str, Any]]) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = result
        self._state = self.words.describe(observation, self.unwrapped)
        return self._state, reward, terminated, truncated, {**info, "action_valid": True}

    def _names(self) -> str:
        return f"Actions: {', '.join(self.words.actions)}."


def _frozen_lake(observation: Any, env: Any) -> str:
    rows = [[cell.decode() for cell in row] for row in env.desc]
    row, column = divmod(int(observation), len(rows[0]))
    grid = "\n".join("".join("@" if (r, c) == (row, column) else cell for c, cell in enumerate(line)) for r, line in enumerate(rows))
    return f"You (@) stand in row {row}, column {column}, on {_LAKE[rows[row][column]]}.\n{grid}"


_LAKE = {"S": "the start", "F": "ice", "H": "a hole", "G": "the goal"}


def _cliff(observation: Any, env: Any) -> str:
    row, column = divmod(int(observation), 12)
    lines = [["." for _ in range(12)] for _ in range(4)]
    lines[3] = ["S", *["C"] * 10, "G"]
    lines[row][column] = "@"
    return f"You (@) stand in row {row}, column {column}.\n" + "\n".join("".join(line) for line in lines)


_STOPS = ("red (row 0, column 0)", "green (row 0, column 4)", "yellow (row 4, column 0)", "blue (row 4, column 3)")


def _taxi(observation: Any, env: Any) -> str:
    row, column, passenger, goal = env.decode(int(observation))
    where = "in the taxi" if passenger == 4 else f"at {_STOPS[passenger]}"
    walls = "\n".join(line.decode() if isinstance(line, bytes) else "".join(cell.decode() for cell in line) for line in env.desc)
    return f"The taxi is in row {row}, column {column}. The passenger is {where} and wants to go to {_STOPS[goal]}.\n{walls}"


def _blackjack(observation: Any, env: Any) -> str:
    total, dealer, ace = (int(value) for value in observation)
    return f"Your cards sum to {total}{' with a usable ace' if ace else ''}. The dealer shows {'an ace' if dealer == 1 else dealer}."


VERBALIZERS: Mapping[str, Verbalizer] = {
    "FrozenLake": Verbalizer(
        "Cross the frozen lake from S to the goal G without falling into a hole H. F is ice; on slippery ice you may slide sideways.",
        {"left": 0, "down": 1, "right": 2, "up": 3},
        _frozen_lake,
    ),
    "CliffWalking": Verbalizer(
        "Walk from S to the goal G. A step costs 1; stepping onto the cliff C costs 100 and puts you back to the start.",
        {"up": 0, "right": 1, "down": 2, "left": 3},
        _cliff,
    ),
    "Taxi": Verbalizer(
        "Drive the taxi to the passenger, pick the passenger up, drive to the destination and drop the passenger off. | and lines are walls, : can be passed.",
        {"south": 0, "north": 1, "east": 2, "west": 3, "pickup": 4, "dropoff": 5},
        _taxi,
    ),
    "Blackjack": Verbalizer(
        "Beat the dealer's cards without going over 21. Face cards count 10, an ace 11 or 1.",
        {"stick": 0, "hit": 1},
        _blackjack,
    ),
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
