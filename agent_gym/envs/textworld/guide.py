"""The expert: the game's walkthrough for whoever follows it, and the way back or onwards for whoever left it.

TextWorld can plan from most states (`TextWorldEngine.plan`), and where it has lost the way, as in cooking games with `drop` from the first step on, what was
done since the walkthrough was left is undone, newest first, until the walkthrough goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_gym.envs.textworld.engine import Situation, TextWorldEngine

__all__ = ["Guide"]


class Guide:
    """Knows the next right command in a running game.

    Args:
        walkthrough: commands that win from the beginning; may be none.
        start: the situation at the beginning.
    """

    def __init__(self, walkthrough: Sequence[str], start: Situation) -> None:
        self._walkthrough = tuple(walkthrough)
        self._place = 0
        self._left = start.facts  # what is true at that place of the walkthrough
        self._astray: list[tuple[Any, frozenset[Any]]] = []  # actions since then, and what was true behind each

    def note(self, command: str, now: Situation) -> None:
        """Take note of a command that was played.

        Args:
            command: the same.
            now: the situation behind it.
        """
        if not self._astray and self._place < len(self._walkthrough) and _plain(command) == _plain(self._walkthrough[self._place]):
            self._place += 1
            self._left = now.facts
            return
        if now.facts == self._left:
            self._astray.clear()
            return
        for index, (_, facts) in enumerate(self._astray):
            if facts == now.facts:  # back where it was before, or nothing changed
                del self._astray[index + 1 :]
                return
        self._astray.append((now.action, now.facts))

    def next_command(self, engine: TextWorldEngine) -> str:
        """Return the next right command.

        Args:
            engine: with the running game.

        Returns:
            The command; "look" where nothing is known to help.
        """
        if not self._astray and self._place < len(self._walkthrough):
            return self._walkthrough[self._place]
        if plan := engine.plan():
            return plan[0]
        while self._astray:
            if back := engine.command_back(self._astray[-1][0]):
                return back
            self._accept()
        return self._walkthrough[self._place] if self._place < len(self._walkthrough) else "look"

    def _accept(self) -> None:
        """What the last action did stays (something was eaten); the way back goes on from the action before."""
        _, facts = self._astray.pop()
        if self._astray:
            self._astray[-1] = (self._astray[-1][0], facts)
        else:
            self._left = facts


def _plain(command: str) -> str:
    return " ".join(command.lower().split()).rstrip(" .")
