"""`StockEngine`: the original ALFWorld engine (textworld's PDDL environment, through alfworld) behind the interface of our simulator.

It is there to be compared with: it prints the same characters as the fast engine, a thousand times slower. What it wraps has traps, and each is
closed here:

- **One library per process.** textworld opens a new copy of Fast Downward's library for every environment and never closes it. Closing it is worse:
  its copies share a registry of plugins, and once one of several copies was unloaded the process crashes when it ends, or opens another. So it opens one
  copy, at the first engine, and keeps it; closing an engine frees the game that the library holds.
- **Many environments.** The library holds one game. Each engine has a textworld environment of its own (about 4 MB) and remembers the operators it
  applied; when another engine used the library meanwhile, its own game is put back and the operators are applied again, which takes a few
  milliseconds.
- **Threads.** textworld's parsers are shared by the whole process, and so is the library: one lock is around every call. Processes scale, threads
  do not; and what other threads print while a game is loaded is lost, since the translator replaces `sys.stdout` meanwhile.
- **Errors.** The planner's translator ends the process (`SystemExit`) where a file is wrong. Whatever comes while a game is loaded or reset is raised as
  one `GameError` that names the file; whatever comes in a step is an `EnvFault`.
- **Traces.** Importing alfworld makes a folder in the home directory and sets `ALFWORLD_DATA`; translating a problem replaces `sys.argv`. Both are
  put back.

The stock engine evaluates expressions in a game file as Python code: play files from sources that you trust.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from agent_gym.core import EnvFault
from agent_gym.envs.alfworld.game import Game, GameError

__all__ = ["StockEngine"]

_BROKEN_SINCE = (3, 13)
_LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):  # no child begins in the middle of another thread's call
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class _Stock(NamedTuple):
    """What is taken from textworld, alfworld and Fast Downward, and the one copy of the library."""

    environment: type[Any]
    textworld_environment: type[Any]
    demangler: type[Any]
    infos: type[Any]
    library: Any

    def make(self) -> Any:
        """Make a textworld environment that uses the one library instead of opening a copy of its own."""
        inner = object.__new__(self.environment)
        self.textworld_environment.__init__(inner, self.infos(won=True, admissible_commands=True))
        inner.downward_lib = self.library
        return self.demangler(inner, shuffle=False)


class _Process:
    """The state that textworld forces on a process: the modules and the library, opened once, and the engine whose game the library holds."""

    stock: _Stock | None = None
    holder: weakref.ref[StockEngine] | None = None


def _open_stock() -> _Stock:
    if sys.version_info[:2] >= _BROKEN_SINCE:
        raise RuntimeError(
            f'engine="textworld" does not work on Python {sys.version_info[0]}.{sys.version_info[1]}: textworld writes its texts by '
            "locals().update, which has had no effect since Python 3.13 (PEP 667). Use Python 3.11 or 3.12, or the default "
            'engine="fast", which prints the same characters.'
        )
    if _Process.stock is None:
        try:
            with _no_traces():
                textworld = importlib.import_module("textworld")
                pddl = importlib.import_module("textworld.envs.pddl")
                alfworld = importlib.import_module("alfworld.agents.environment.alfred_tw_env")
                fast_downward = importlib.import_module("fast_downward")
        except ImportError as error:
            raise ImportError(
                f'engine="textworld" needs alfworld and textworld ({error}): pip install "agentr1-gym[alfworld]" (it compiles the planner Fast Downward, '
                'which is under the GPL-3, and takes some ten minutes). The default engine="fast" prints the same characters without them.'
            ) from error
        try:
            library = fast_downward.load_lib()
        except (OSError, RuntimeError) as error:
            raise EnvFault(f"Fast Downward's library could not be opened: {error}") from error
        _Process.stock = _Stock(pddl.PddlEnv, textworld.Environment, alfworld.AlfredDemangler, textworld.EnvInfos, library)
    return _Process.stock


@contextmanager
def _no_traces() -> Iterator[None]:
    """Let alfworld be imported without a folder in the home directory and with `ALFWORLD_DATA` as it was."""
    if "alfworld" in sys.modules:
        yield
        return
    given = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = str(Path(__file__).parent)  # a folder that exists, so that none is made
    try:
        yield
    finally:
        if given is None:
            del os.environ["ALFWORLD_DATA"]
        else:
            os.environ["ALFWORLD_DATA"] = given
        for name in ("alfworld", "alfworld.info"):
            if module := sys.modules.get(name):
                module.ALFWORLD_DATA = given or os.path.expanduser("~/.cache/alfworld")  # type: ignore[attr-defined]  # alfworld sets it


@contextmanager
def _own_arguments() -> Iterator[None]:
    """Keep `sys.argv`, which the translator replaces."""
    arguments = sys.argv
    try:
        yield
    finally:
        sys.argv = arguments


class StockEngine:
    """The stock engine. Load a game, reset it, play it; any number of engines may be alive and take turns.

    On one core a step takes some 50 ms, and loading and resetting a kitchen about a second each.

    Attributes:
        won: whether the goal holds now.
        score: 1 while the goal holds, else 0.

    Raises:
        ImportError: without alfworld and textworld.
        RuntimeError: on a Python on which textworld does not work.
        EnvFault: when the planner's library cannot be opened.
    """

    def __init__(self) -> None:
        with _LOCK:
            self._stock = _open_stock()
        self._env: Any = None
        self._data: dict[str, Any] | None = None
        self._where: str | None = None
        self._state: Any = None
        self._applied: list[int] = []  # ids of the operators applied since the reset

    def load(self, game: Game | Mapping[str, Any] | str | Path, *, where: str = "") -> None:
        """Take a game; `reset` begins it. The game before is forgotten, unless it is the same one.

        Args:
            game: a game; or, also for one that the fast engine refuses, the JSON object of a game file or the path of one.
            where: what the game came from, for errors; what the game or path says by default.

        Raises:
            GameError: when the stock engine cannot read it, naming the file.
        """
        if isinstance(game, Game):
            where, game = where or game.where, game.data
        where = where or ("the given game" if isinstance(game, Mapping) else str(game))
        with _LOCK, _blamed_on(where, "load"):
            try:
                data = dict(game if isinstance(game, Mapping) else json.loads(Path(game).read_text(encoding="utf-8")))
                if data != self._data:
                    self._forget()
                    self._env = self._stock.make()
                    with self._holding_library():
                        self._env.load(data)
            except BaseException:
                self._forget()
                raise
            self._data, self._where = data, where
            self._forget_state()

    def reset(self) -> str:
        """Begin the game from its initial state.

        Returns:
            The introduction, as the engine prints it: banner, room and task.

        Raises:
            GameError: when the engine cannot begin the game, naming the file.
            RuntimeError: when no game was loaded.
        """
        with _LOCK:
            where = self._loaded()
            self._applied = []
            self._forget_state()
            with _blamed_on(where, "reset"), self._holding_library():
                self._state = self._env.reset()
            return str(self._state.feedback)

    def step(self, command: str) -> str:
        """Play a command.

        Args:
            command: as the engine takes it, white space around it aside; anything that is not admissible changes nothing.

        Returns:
            What the engine answers.

        Raises:
            EnvFault: when the engine breaks; only a reset helps.
            RuntimeError: before a reset.
        """
        with _LOCK:
            where = self._begun()
            operators = None
            try:
                self._take_library()
                self._state, _, _ = self._env.step(command)
                operators = self._state["_last_action"]
            except (Exception, SystemExit) as error:
                self._forget_state()
                raise EnvFault(f"{where}: the stock engine broke in the step {command[:80]!r}: {_in_words(error)}; reset it") from error
            if operators is not None:
                self._applied.append(operators.id)
            return str(self._state.feedback)

    def admissible(self) -> list[str]:
        """Return the commands that do something now.

        Returns:
            The engine's own list, sorted, "help" included where the game has it.

        Raises:
            RuntimeError: before a reset.
        """
        self._begun()
        return list(self._state["admissible_commands"])

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        self._begun()
        return bool(self._state["won"])

    @property
    def score(self) -> int:
        """1 while the goal holds, else 0."""
        return int(self.won)

    def close(self) -> None:
        """Forget the game and free what the library holds of it. May be called twice; a later `load` opens the engine again."""
        with _LOCK:
            self._forget()

    def _loaded(self) -> str:
        if self._where is None:
            raise RuntimeError("no game is loaded: call load(game), then reset()")
        return self._where

    def _begun(self) -> str:
        where = self._loaded()
        if self._state is None:
            raise RuntimeError(f"{where}: the game has not begun: call reset()")
        return where

    def _take_library(self) -> None:
        """Have the library hold this engine's game in its present state."""
        if _Process.holder is not None and _Process.holder() is self:
            return
        _Process.holder = None  # until all is done
        self._stock.library.load_sas(self._env.unwrapped._pddl_state.sas.encode())
        for operator in self._applied:
            self._stock.library.apply_operator(operator, None)
        _Process.holder = weakref.ref(self)

    @contextmanager
    def _holding_library(self) -> Iterator[None]:
        """What is done inside hands this engine's game to the library."""
        _Process.holder = None
        with _own_arguments():
            yield
        _Process.holder = weakref.ref(self)

    def _forget_state(self) -> None:
        self._state = None
        if _Process.holder is not None and _Process.holder() in (self, None):
            _Process.holder = None

    def _forget(self) -> None:
        if _Process.holder is not None and _Process.holder() is self:
            self._stock.library.cleanup()
        self._forget_state()
        self._env = self._data = self._where = None
        self._applied = []


@contextmanager
def _blamed_on(where: str, what: str) -> Iterator[None]:
    """Raise whatever is raised inside as the one error of a game."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise GameError(where, f"the stock engine cannot {what} it: {_in_words(error)}") from error


def _in_words(error: BaseException) -> str:
    """Return kind and text of an error on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyError) and text.startswith("'val"):
        text += " (the planner finds that the goal can never hold)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
