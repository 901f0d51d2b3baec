"""The game of the step benchmark: guess a number between 1 and 1000 in twelve turns, told higher or lower. Bare logic, and as an `AgentEnv`."""

from __future__ import annotations

import random
import re
from typing import Any

from agent_gym.core import Action, AgentEnv, Observation, Outcome

NUMBER = re.compile(r"\[(\d+)\]")
PROMPT = "Guess the number between 1 and 1000 within 12 turns. Only the number in square brackets counts, e.g. [5]."


class Game:
    """The bare logic."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.target = self.turn = 0

    def reset(self) -> str:
        self.target, self.turn = self.random.randint(1, 1000), 0
        return PROMPT

    def step(self, action: str) -> tuple[str, float, bool]:
        self.turn += 1
        found = NUMBER.search(action)
        if found is None:
            return "Invalid format.", -0.1, True
        guess = int(found.group(1))
        if guess == self.target:
            return f"Correct in {self.turn} turns.", 1.0, True
        hint = "lower" if guess > self.target else "higher"
        return f"At turn {self.turn}, you guessed {guess}; the target is {hint}.", 0.0, self.turn >= 12


class Bisection:
    """The player: bisects on the feedback."""

    def start(self) -> None:
        self.low, self.high = 1, 1000

    def guess(self, feedback: str | None) -> int:
        if feedback is not None:
            middle = (self.low + self.high) // 2
            if "higher" in feedback:
                self.low = min(middle + 1, 1000)
            elif "lower" in feedback:
                self.high = max(middle - 1, 1)
        if self.low > self.high:
            self.start()
        return (self.low + self.high) // 2


class GuessEnv(AgentEnv):
    """The same game, ids in and ids out. `game` may be another class of the same face."""

    def __init__(self, game: Any = Game, **kwargs: Any) -> None:
        super().__init__(**{"max_turns": 20, **kwargs})
        self.game = game()

    def _begin(self, options: dict[str, Any]) -> Observation:
        return Observation(text=self.game.reset())

    def _respond(self, action: Action) -> Outcome:
        text, reward, done = self.game.step(action.text)
        return Outcome(Observation(text=text), reward, done)
