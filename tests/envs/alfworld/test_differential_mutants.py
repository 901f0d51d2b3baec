"""The differential test can fail: engines of ours that are wrong in one small thing are caught."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from differential import SideBySide, remembered_parses, sharing
from differential_plays import after_the_win, expert_play, nonsense, opening, visit

from agent_gym.envs.alfworld.expert import next_command
from agent_gym.envs.alfworld.game import Game, parse_game
from agent_gym.envs.alfworld.generator import generate_game
from agent_gym.envs.alfworld.simulator import Simulator


@pytest.fixture(autouse=True)
def parses() -> Iterator[None]:
    with remembered_parses():
        yield


@cache
def game(task_type: str = "pick_heat_then_place_in_recep") -> Game:
    """A small game with a shared location."""
    return sharing(parse_game(generate_game("train", 0, level="small", task_types=[task_type]), where="a generated game"))


def play_all(make_fast: Any, task_type: str = "pick_heat_then_place_in_recep") -> None:
    pair = SideBySide(make_fast=make_fast)
    rng = random.Random(3)
    pair.begin(game(task_type))
    opening(pair, rng)
    nonsense(pair, rng)
    pair.begin(game(task_type))
    expert_play(pair, next_command)
    after_the_win(pair, rng)
    pair.begin(game(task_type))
    visit(pair, rng)


class ExaminesWhatLiesThere(Simulator):
    """Quirk 1 forgotten."""

    def admissible(self) -> list[str]:
        commands = super().admissible()
        return sorted({*commands, *(f"examine {c[5:].partition(' from ')[0]}" for c in commands if c.startswith("take "))})


class GoesToSharedLocations(Simulator):
    """Quirk 2 forgotten in what `step` does, not in the list."""

    def step(self, command: str) -> str:
        name = command.removeprefix("go to ")
        if command.startswith("go to ") and command not in self.admissible():
            here = [place.name for place in self.game.receptacles.values() if place.location == self.location]
            if name in here:
                return super().step(f"examine {name}")
        return super().step(command)


class LooksAroundAtFirst(Simulator):
    """Quirk 3 forgotten."""

    def step(self, command: str) -> str:
        answer = super().step(command)
        return self.reset().split("\n\n")[1] if command == "look" and answer.endswith("you see nothing.") and "middle" in answer else answer


class TurnsOff(Simulator):
    """Quirk 4 forgotten."""

    used = 0

    def step(self, command: str) -> str:
        answer = super().step(command)
        self.used += answer.startswith("You turn on")
        return answer.replace("You turn on", "You turn off") if self.used == 2 else answer


class ForgivesCase(Simulator):
    """Quirk 5 forgotten."""

    def step(self, command: str) -> str:
        return super().step(command.lower())


class DoesNotStrip(Simulator):
    """Blanks around a command are not forgiven."""

    def step(self, command: str) -> str:
        return super().step(command if command == command.strip() else "?")


class PaysOnce(Simulator):
    """Quirk 6 forgotten: the score of a later step is 0."""

    paid = False

    @property
    def score(self) -> int:
        score = 0 if self.paid else super().score
        return score

    def step(self, command: str) -> str:
        self.paid = self.won
        return super().step(command)


class KeepsTheWin(Simulator):
    """A win that is undone stays a win."""

    ever = False

    def reset(self) -> str:
        self.ever = False
        return super().reset()

    @property
    def won(self) -> bool:
        self.ever = self.ever or super().won
        return self.ever


class JoinsWithoutComma(Simulator):
    """Another separator in front of the last of a list."""

    def step(self, command: str) -> str:
        return super().step(command).replace(", and ", " and ")


class IntroducesWithoutBanner(Simulator):
    """The introduction lacks its first line."""

    def reset(self) -> str:
        return super().reset().split("\n\n", 1)[1]


class HidesHelp(Simulator):
    """The list lacks a command."""

    def admissible(self) -> list[str]:
        return [command for command in super().admissible() if command != "help"]


class ListsInAnotherOrder(Simulator):
    """The list is not sorted."""

    def admissible(self) -> list[str]:
        return super().admissible()[::-1]


MUTANTS = [
    ExaminesWhatLiesThere,
    GoesToSharedLocations,
    LooksAroundAtFirst,
    ForgivesCase,
    DoesNotStrip,
    PaysOnce,
    KeepsTheWin,
    JoinsWithoutComma,
    IntroducesWithoutBanner,
    HidesHelp,
    ListsInAnotherOrder,
]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_an_engine_that_is_wrong_in_one_thing_is_caught(mutant: type[Simulator]) -> None:
    with pytest.raises(AssertionError, match=r"differs? after|is not admissible, but"):
        play_all(mutant, "pick_and_place_simple" if mutant in (KeepsTheWin, JoinsWithoutComma) else "pick_heat_then_place_in_recep")


def test_a_lamp_that_can_be_turned_off_is_caught() -> None:
    with pytest.raises(AssertionError, match="differs after"):
        play_all(TurnsOff, "look_at_obj_in_light")


@pytest.mark.parametrize("task_type", ["pick_heat_then_place_in_recep", "look_at_obj_in_light", "pick_and_place_simple"])
def test_the_engine_itself_is_not(task_type: str) -> None:
    play_all(Simulator, task_type)
