"""The play of one `.z8` game through TextWorld.

TextWorld's state tracking and its interpreter (a Z-machine in C) take much for granted; what they do otherwise is closed here:

* module-global parsers: one lock per process around every call (processes scale, threads do not);
* a story that the interpreter cannot read ends the process: files are checked first (`check_game`);
* a command with a NUL byte is a segmentation fault, and one with a backslash an endless loop of the interpreter's own commands: a command is letters,
  digits, blanks, hyphens and apostrophes, and anything else is answered here;
* `save`, `script` and `restore` write and read files, `restart`, `quit`, `undo` and TextWorld's own `tw-...` change the game behind the back of the state
  tracking, and several commands in one line answer late: all of them are answered here too, and the game stays as it was;
* importing it draws from numpy's global generator, whose state is put back.

The text is the game's own, without the picture of letters at the beginning, the status line of the interpreter behind each answer, and its menu behind the
end.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import warnings
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from agent_gym.core import EnvFault
from agent_gym.envs.textworld.games import GameError, check_game, require_textworld

__all__ = ["Situation", "TextWorldEngine", "refusal"]

_BANNER = re.compile(r"\A.*\$\$\$\$\$\$\$ *\n", re.DOTALL)
_STATUS = re.compile(r"(?:\n>[^\n]*| {20,}-= [^\n]*)\Z")
_ROOM = re.compile(r"^-= .* =-$", re.MULTILINE)
_MENU = re.compile(r"\n+Would you like to RESTART[^\n]*\Z")
_CENTRED = re.compile(r"^ +(?=\*\*\* .* \*\*\*$)", re.MULTILINE)
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
_TAILS = re.compile(r"[ \t]+$", re.MULTILINE)
_COMMAND = re.compile(r"[A-Za-z0-9 '\-]+")
_LONGEST = 150  # characters; the interpreter cuts at 198 bytes
_META = frozenset(("save", "restore", "restart", "quit", "q", "script", "transcript", "oops", "o", "version"))
_SEED = 1  # of the interpreter's generator; its own default changes with time, and 0 means the default

_lock = threading.RLock()


def _renew_lock() -> None:
    """A process that was forked while a thread held the lock would wait for ever."""
    global _lock  # one per process
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@cache
def _textworld() -> ModuleType:
    """TextWorld, imported without a trace in numpy's global generator."""
    require_textworld()
    state = np.random.get_state()
    try:
        return import_module("textworld")
    finally:
        np.random.set_state(state)


def _hush() -> None:
    """Leave out the interpreter's remark that it knows nothing of a game's inside, which TextWorld keeps track of."""
    warnings.filterwarnings("ignore", category=import_module("jericho").UnsupportedGameWarning)


def refusal(command: str) -> str:
    """Return what is said of a command that must not reach the interpreter.

    Args:
        command: with single blanks, none around it.

    Returns:
        The answer, or "" where the command may be sent.
    """
    if len(command) > _LONGEST:
        return "That command is too long."
    words = command.lower().split()
    if not words:
        return "Say what you want to do."
    if re.search(r"[.,;\n]", command) or "then" in words:
        return "One command at a time, please."
    if not _COMMAND.fullmatch(command):
        return "Commands are made of words; leave other signs out."
    if words[0] in _META or words[0].startswith("tw-"):
        return f'"{words[0]}" is no part of the game.'
    return ""


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a game stands.

    Attributes:
        score: so far.
        moves: turns that the game has counted.
        won: the game was won.
        lost: the game was lost.
        admissible: commands that would be carried out now, sorted.
        carried_out: the last command was one of them, or means the same as one.
        facts: what is true of the world, in TextWorld's logic, without the numbers of the places in the player's hands that things take up.
        action: what the last command was in that logic; None where it was nothing.
        plan: commands that win from here, where the engine was asked for them; None where it was not, or knows none.
    """

    score: int = 0
    moves: int = 0
    won: bool = False
    lost: bool = False
    admissible: tuple[str, ...] = ()
    carried_out: bool = True
    facts: frozenset[Any] = frozenset()
    action: Any = None
    plan: tuple[str, ...] | None = None

    @property
    def done(self) -> bool:
        """Whether the game ended."""
        return self.won or self.lost

    @property
    def key(self) -> str:
        """A text that is the same for the same facts, in every process."""
        return hashlib.blake2b("\n".join(sorted(map(str, self.facts))).encode(), digest_size=16).hexdigest()


class TextWorldEngine:
    """Plays games, one at a time.

    Attributes:
        situation: where the game stands.
        objective: what the game asks for, as it is printed at the beginning; "" where it does not say.
        max_score: the sum of all scores of the game; 0 where there is no such sum.
        walkthrough: commands that win from the beginning; none where the game does not say.
    """

    def __init__(self) -> None:
        self._env: Any = None
        self._path: Path | None = None
        self._played: list[str] = []
        self._undoing: Any = None
        self.situation = Situation()
        self.objective = ""
        self.max_score = 0
        self.walkthrough: tuple[str, ...] = ()

    def open(self, path: Path) -> None:
        """Load a game, unless it is the one that is loaded.

        Args:
            path: of the `.z8`.

        Raises:
            FileNotFoundError: if it is not there, or its `.json` is not.
            GameError: if it cannot be played.
            ImportError: without TextWorld.
        """
        if self._env is not None and path == self._path:
            return
        self.close()
        check_game(path)
        with _lock:
            textworld = _textworld()
            _hush()
            try:
                env = textworld.start(str(path), textworld.EnvInfos(admissible_commands=True))
                env.seed(_SEED)
                game = env._wrapped_env._game
                self.max_score = int(game.max_score) if np.isfinite(game.max_score) else 0
                self.walkthrough = tuple(game.walkthrough or ())
            except (Exception, SystemExit) as error:  # TextWorld's own errors are of every kind
                raise GameError(f"TextWorld cannot load {path}: {type(error).__name__}: {error}") from error
        self._env, self._path = env, path

    def reset(self, *, plan: bool = False) -> str:
        """Begin the loaded game.

        Args:
            plan: keep `situation.plan`, which costs as much again as everything else.

        Returns:
            What the game prints first, the objective included.

        Raises:
            EnvFault: if the engine breaks.
        """
        self._played = []
        with _lock:
            self._infos.policy_commands = plan
            text = _clean(self._call(self._env.reset), first=True)
        head = _ROOM.search(text)
        self.objective = text[: head.start()].strip() if head else ""
        return text

    def step(self, command: str) -> str:
        """Play a command. One that must not reach the interpreter is answered here, and the game stays as it is.

        Args:
            command: any text.

        Returns:
            The game's answer.

        Raises:
            EnvFault: if the engine breaks.
        """
        command = " ".join(command.split()).rstrip(" .")
        answer = refusal(command)
        if answer:
            self.situation = replace(self.situation, carried_out=False)
            return answer
        before = self.situation.admissible
        with _lock:
            self._tracker._last_action = None
            text = _clean(self._call(self._env.step, command))
        self._played.append(command)
        if command.lower() in before and not self.situation.carried_out:
            self.situation = replace(self.situation, carried_out=True)
        return text

    def plan(self) -> tuple[str, ...]:
        """Return commands that win from here, as far as TextWorld knows any. The first time in an episode the game is played again for it.

        Returns:
            The commands; none at the end, or where TextWorld has lost the way.

        Raises:
            EnvFault: if the engine breaks.
        """
        if not self._infos.policy_commands and not self.situation.done:
            carried_out = self.situation.carried_out
            with _lock:
                self._infos.policy_commands = True
                self._call(self._env.reset)
                for command in self._played:
                    self._call(self._env.step, command)
            self.situation = replace(self.situation, carried_out=carried_out)
        return self.situation.plan or ()

    def command_back(self, action: Any) -> str:
        """Return the command that undoes an action.

        Args:
            action: of a `Situation`.

        Returns:
            The command; "" where there is none, or it cannot be carried out now.
        """
        if action is None:
            return ""
        game = self._tracker._game
        with _lock:
            back = game.kb.get_reverse_action(action)
            commands = self._tracker._inform7.gen_commands_from_actions([back]) if back is not None else []
        return str(commands[0]) if commands and commands[0] in self.situation.admissible else ""

    def close(self) -> None:
        """Let go of the game and of the interpreter, which is a library of its own."""
        if self._env is not None:
            with _lock:
                self._env.close()
        self._env = self._path = None
        self._played = []

    # ------------------------------------------------------------------------------------------------ TextWorld's own objects

    @property
    def _tracker(self) -> Any:
        """The wrapper that follows the state of the world."""
        return self._env._wrapped_env

    @property
    def _infos(self) -> Any:
        """What the wrappers are asked for; one object for all of them."""
        return self._env.request_infos

    def _call(self, method: Any, *args: str) -> str:
        """Reset or step, and take note of the state; the caller holds the lock."""
        try:
            result = method(*args)
        except (Exception, SystemExit) as error:
            path = self._path
            self.close()
            raise EnvFault(f"TextWorld broke in {path}: {type(error).__name__}: {error}") from error
        state = result[0] if isinstance(result, tuple) else result
        plan = state["policy_commands"] if self._infos.policy_commands else None
        self.situation = Situation(
            score=int(state["score"] or 0),
            moves=int(state["moves"] or 0),
            won=bool(state["won"]),
            lost=bool(state["lost"]),
            admissible=tuple(state["admissible_commands"]),
            carried_out=not args or state["_last_action"] is not None,
            facts=frozenset(fact for fact in state["_facts"] if "slot" not in fact.types),
            action=state["_last_action"],
            plan=tuple(plan) if plan else None,
        )
        return str(state["feedback"])


def _clean(text: str, *, first: bool = False) -> str:
    text = _STATUS.sub("", text)
    if first:
        text = _BANNER.sub("", text)
    text = _BLANK_LINES.sub("\n\n", _TAILS.sub("", text)).strip()
    return _MENU.sub("", _CENTRED.sub("", text))
