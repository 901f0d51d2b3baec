"""Both ALFWorld engines side by side: every command goes to ours and to the stock one, and all that they say is compared.

`SideBySide` plays; `Coverage` counts what was tried, so that a test can assert that it tried enough. The stock engine is slow because it parses the same
few texts in every step; `remembered_parses` keeps what its parsers returned (the parsers are functions of their text alone, a test holds
the engine's words with and without it equal), which makes it three times faster. Nothing of its logic is replaced.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import pytest
from helpers import require

from agent_gym.envs.alfworld.game import Game, parse_game
from agent_gym.envs.alfworld.simulator import Simulator
from agent_gym.envs.alfworld.stock import StockEngine

NOTHING = "Nothing happens."
VERBS = (
    "go to",
    "open",
    "close",
    "take",
    "put",
    "heat",
    "cool",
    "clean",
    "use",
    "slice",
    "examine receptacle",
    "examine object",
    "look",
    "inventory",
)
QUIRKS = {
    1: "only a held object can be examined",
    2: "one cannot go to a receptacle that shares the location",
    3: "look before the first go to sees nothing",
    4: "appliances work closed, lamps only turn on",
    5: "what is not admissible changes nothing",
    6: "the score stays after the win",
}


def need_stock_engine() -> None:
    """Skip the test where the stock engine is not installed or cannot work (or fail it, where nothing may be missing)."""
    if sys.version_info[:2] >= (3, 13):
        reason = "the stock engine does not work on Python 3.13 and later"
        pytest.fail(reason) if os.environ.get("AGENT_GYM_REQUIRE_ALL") == "1" else pytest.skip(reason)
    for name in ("textworld", "fast_downward"):
        require(name)
    if find_spec("alfworld") is None:  # it is not imported here: that would leave traces
        require("alfworld")


def sharing(game: Game) -> Game:
    """The game with its first two places in one: small generated games have no receptacles that share a location."""
    one, other = list(game.receptacles_at)[:2]
    before, init, after = game.data["pddl_problem"].partition("(:init")
    data = {**game.data, "pddl_problem": before + init + re.sub(rf"(?i)\b{other}\b", one, after)}
    return parse_game(data, where=f"{game.where}, two places in one")


@dataclass
class Coverage:
    """What was tried and what came of it.

    Attributes:
        succeeded: verb to the number of commands that the engines took.
        failed: verb to the number of commands that changed nothing.
        won: task type to the number of wins.
        quirks: number of a quirk (see `QUIRKS`) to how often it showed.
        perturbed: episodes in which three random commands came before each command of the expert.
        steps: commands played.
    """

    succeeded: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    won: Counter[str] = field(default_factory=Counter)
    quirks: Counter[int] = field(default_factory=Counter)
    perturbed: int = 0
    steps: int = 0

    def require(self, least: int, verbs: tuple[str, ...] = VERBS) -> None:
        """Assert that each verb succeeded and failed `least` times."""
        few = {verb: (self.succeeded[verb], self.failed[verb]) for verb in verbs if min(self.succeeded[verb], self.failed[verb]) < least}
        assert not few, f"succeeded or failed less than {least} times (succeeded, failed): {few}"


class SideBySide:
    """Our engine and the stock one, in the same game.

    Args:
        coverage: is told what happens.
        make_fast: makes our engine from a game; a mutant in tests of this harness.
    """

    def __init__(self, coverage: Coverage | None = None, make_fast: Callable[[Game], Any] = Simulator) -> None:
        self.coverage = coverage or Coverage()
        self.stock = StockEngine()
        self._make_fast = make_fast
        self._game: Game | None = None

    def begin(self, game: Game) -> str:
        """Begin a game in both engines and return its introduction."""
        if game is not self._game:
            self.stock.load(game)
            self.fast = self._make_fast(game)
            self._game = game
        self.game = game
        self.receptacles = sorted(receptacle.name for receptacle in game.receptacles.values())
        self.commands: list[str] = []
        self.here = ""
        self.lamps_used: set[str] = set()
        return self._compare("the introduction", self.fast.reset(), self.stock.reset())

    def play(self, command: str, *, meant: str | None = None) -> str:
        """Play a command in both engines and return the answer.

        Args:
            command: any text.
            meant: the verb that it is counted under; found from the text by default.
        """
        before, was_won = self.admissible, self.fast.won
        self.commands.append(command)
        answer = self._compare("the answer", self.fast.step(command), self.stock.step(command))
        self._count(command.strip(), meant, before, was_won, answer)
        return answer

    def try_to(self, command: str) -> bool:
        """Play a command where it is admissible; return whether it was."""
        if command in self.admissible:
            self.play(command)
            return True
        return False

    def starting_with(self, *beginnings: str) -> list[str]:
        """The admissible commands that begin so."""
        return [command for command in self.admissible if command.startswith(beginnings)]

    @property
    def won(self) -> bool:
        """Whether the goal holds (the engines agree)."""
        return self.fast.won

    def verb(self, command: str) -> str:
        """The verb that a command, or something like one, tries."""
        words = command.lower().split() or ["empty"]
        if words[0] == "examine":
            return "examine receptacle" if " ".join(words[1:]) in self.receptacles else "examine object"
        return {"go": "go to", "move": "put"}.get(words[0], words[0])

    def _compare(self, what: str, fast: Any, stock: Any) -> Any:
        pairs = [(what, fast, stock), ("won", self.fast.won, self.stock.won), ("score", self.fast.score, self.stock.score)]
        ours, theirs = self.fast.admissible(), self.stock.admissible()
        if ours != theirs:
            only = ([c for c in ours if c not in theirs], [c for c in theirs if c not in ours])
            pairs.append(
                ("the admissible commands, those of one side only" if any(only) else "the order of the admissible commands", *only)
            )
            if not any(only):
                pairs[-1] = (pairs[-1][0], ours, theirs)
        for name, a, b in pairs:
            if a != b or type(a) is not type(b):
                raise AssertionError(f"{self.game.where}: {name} differs after {self.commands}\nfast:  {a!r}\nstock: {b!r}")
        self.admissible = theirs
        return stock

    def _count(self, command: str, meant: str | None, before: list[str], was_won: bool, answer: str) -> None:
        coverage, verb = self.coverage, meant or self.verb(command)
        coverage.steps += 1
        if command not in before:
            assert answer == NOTHING and self.admissible == before, f"{command!r} is not admissible, but {answer!r}"
            coverage.failed[verb] += 1
            coverage.quirks[5] += 1
            name = command.partition(" ")[2]
            if verb == "examine object" and any(c.startswith(f"take {name} from ") for c in before):
                coverage.quirks[1] += 1
            if verb == "go to" and self.here and (name := name.removeprefix("to ")) in self.receptacles and name != self.here:
                coverage.quirks[2] += 1
        else:
            coverage.succeeded[verb] += 1
            if verb == "go to":
                self.here = command.removeprefix("go to ")
            elif verb == "look" and not self.here:
                assert answer.endswith("you see nothing."), answer
                coverage.quirks[3] += 1
            elif verb in ("heat", "cool") and f"open {command.partition(' with ')[2]}" in before:
                coverage.quirks[4] += 1
            elif verb == "use":
                assert answer.startswith("You turn on"), answer
                coverage.quirks[4] += command in self.lamps_used
                self.lamps_used.add(command)
        if was_won and self.won:
            assert self.fast.score == 1
            coverage.quirks[6] += 1
        if self.won and not was_won:
            coverage.won[self.game.task_type] += 1


@contextmanager
def remembered_parses() -> Iterator[None]:
    """Let the stock engine's parsers keep what they returned for a text: grammar symbols, queries, and the planner's translation of a problem."""
    need_stock_engine()
    import fast_downward
    from textworld.envs.pddl import textgen
    from textworld.logic import Rule

    parse_symbols, parse_query, translate = textgen._parse_and_convert, Rule.parse_conjunctive_query, fast_downward.pddl2sas
    symbols: dict[Any, Any] = {}
    queries: dict[str, Any] = {}
    translations: dict[Any, Any] = {}

    def remembered_symbols(text: str, **keywords: Any) -> Any:
        key = (text, *sorted(keywords.items()))
        if key not in symbols:
            symbols[key] = parse_symbols(text, **keywords)
        return copy.deepcopy(symbols[key])  # the engine writes into them

    def remembered_query(text: str) -> Any:
        if text not in queries:
            queries[text] = parse_query(text)
        return queries[text]

    def remembered_translation(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        key = (domain, problem, verbose, optimize)
        if key not in translations:
            if len(translations) == 8:
                translations.clear()
            translations[key] = translate(domain, problem, verbose=verbose, optimize=optimize)
        return translations[key]

    textgen._parse_and_convert, Rule.parse_conjunctive_query = remembered_symbols, staticmethod(remembered_query)
    fast_downward.pddl2sas = remembered_translation
    try:
        yield
    finally:
        textgen._parse_and_convert, fast_downward.pddl2sas = parse_symbols, translate
        Rule.parse_conjunctive_query = parse_query
