"""The parts of the differential test: which games are played, how, and what each part has to have tried."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from differential import QUIRKS, VERBS, Coverage, SideBySide, remembered_parses, sharing
from differential_plays import after_the_win, expert_play, perturbed_play, visit

from agent_gym.envs.alfworld.expert import next_command
from agent_gym.envs.alfworld.game import TASK_TYPES, Game, parse_game, read_game
from agent_gym.envs.alfworld.generator import generate_game

SPLITS = ("train", "valid_seen", "valid_unseen")


@dataclass
class Part:
    """What came of playing some games in both engines."""

    coverage: Coverage = field(default_factory=Coverage)
    games: int = 0
    differences: list[str] = field(default_factory=list)

    def check(self, grammar: str, *, games: int, perturbed: int) -> None:
        """Assert that there was no difference and that enough was tried. Only the wording "move" has `help`."""
        assert not self.differences, "\n\n".join([f"{len(self.differences)} games differ", *self.differences])
        assert self.games == games
        self.coverage.require(20, (*VERBS, "help") if grammar == "move" else VERBS)
        assert all(self.coverage.won[task_type] >= 4 for task_type in TASK_TYPES), self.coverage.won
        assert all(self.coverage.quirks[quirk] >= 10 for quirk in QUIRKS), self.coverage.quirks
        assert self.coverage.perturbed >= perturbed


def play_all(games: Iterable[Game], *, perturbed: int, every: int = 1) -> Part:
    """Play each game as a visitor and as the expert, and some so many times as an expert who is disturbed. A game that differs is noted, and the next one played.

    Args:
        games: to be played.
        perturbed: plays of the disturbed expert.
        every: how many games have one that he plays among them.
    """
    part = Part()
    with remembered_parses():
        pair = SideBySide(part.coverage)
        for game in games:
            part.games += 1
            rng = random.Random(part.games)
            try:
                pair.begin(game)
                visit(pair, rng, foods=3)
                pair.begin(game)
                expert_play(pair, next_command)
                after_the_win(pair, rng)
                for _ in range(perturbed if part.games % every == 0 else 0):
                    pair.begin(game)
                    perturbed_play(pair, rng, next_command)
            except AssertionError as error:
                part.differences.append(str(error))
        pair.stock.close()
    return part


def real_games(folder: Path) -> Iterator[Game]:
    """The games of the folder, in order."""
    for path in sorted(folder.glob("json_2.1.1/*/*/*/game.tw-pddl")):
        yield read_game(path)


def generated_games(grammar: str, *, small: int, full: int) -> Iterator[Game]:
    """So many small and full games of each task type, of all splits; every other small one with a shared location."""
    for level, number in (("small", small), ("full", full)):
        for index in range(number):
            for task_type in TASK_TYPES:
                split = SPLITS[index % 3]
                data = generate_game(split, index, grammar=grammar, level=level, task_types=[task_type])
                game = parse_game(data, where=f"generated game {index} of {split}, {level}, {grammar}, {task_type}")
                yield sharing(game) if level == "small" and index % 2 else game
