"""`AgentR1/ALFWorld-v0`: household tasks in text, played by commands (ALFWorld, arXiv 2010.03768).

The default games are generated; the official files of old and current releases are played as they are. Two engines print the same characters: our own
simulator, and the original one (`engine="textworld"`), which is some thousand times slower.

What counts is what the engine says, and when: success is that the goal holds (`won`), never that an episode ended; reward is 1 once, on the step
that wins; a command counts only to the letter, and anything else costs a turn and is answered "Nothing happens."; after 50 turns an episode is
truncated. Every info says data set, engine, grammar and split, so that figures on generated games are not taken for those of the benchmark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from gymnasium.error import ResetNeeded

from agent_gym.envs.alfworld.game import Game
from agent_gym.envs.alfworld.library import SPLITS, Task, given_task, open_games
from agent_gym.envs.alfworld.simulator import Simulator
from agent_gym.envs.commands import CommandEnv, Opening, Reply
from agent_gym.envs.whole_numbers import whole_number

__all__ = ["ENGINES", "ALFWorldEnv"]

ENGINES = ("fast", "textworld")

_HIDDEN = frozenset({"help"})  # admissible, and left out of the lists that are shown, as everyone leaves it out
_TASK = "Your task is to: "
_PROMPT = "You are in a house and carry out a task in it, by one text command per reply. You can hold one object at a time."
_COMMANDS = (
    "The commands are: look, inventory, go to X, open X, close X, examine X, take X from Y, {put}, use X, clean X with Y, heat X with Y, cool X with Y "
    "and slice X with Y, where X and Y are names with their numbers, such as mug 1."
)
_PUT: Mapping[str, str] = {"move": "move X to Y", "put": "put X in/on Y", "": "move X to Y (in games of old releases: put X in/on Y)"}


class _Engine(Protocol):
    """What both engines do."""

    def reset(self) -> str: ...
    def step(self, command: str) -> str: ...
    def admissible(self) -> list[str]: ...
    @property
    def won(self) -> bool: ...
    @property
    def score(self) -> int: ...
    def close(self) -> None: ...


class ALFWorldEnv(CommandEnv):
    """Household tasks in text.

    Args:
        split: "train", "valid_seen" or "valid_unseen".
        dataset: "embedded" (generated games without end, whatever lies on the disk); "official"; "auto", which is "official" where that split is
            there and "embedded" where it is not; or a path: a folder of data, the folder of a split, or one `game.tw-pddl`.
        data_dir: where official data lie (the folder above `json_2.1.1`) and relative paths begin; None for the variable ALFWORLD_DATA, and
            without it for the place where `alfworld-download` puts them.
        engine: "fast", or "textworld", the original (extra `alfworld`).
        task_types: which kinds of task, by name or by ALFWorld's numbers 1 to 6; None for all six.
        level: of generated games: "full", or "small" (few receptacles and objects).
        grammar: of generated games: "move" (`move X to Y`, the current release) or "put" (`put X in/on Y`, before 0.4). Files bring their own.
        show_admissible: whether each observation lists the commands that would do something.
        system_prompt: text of the first message; None for ours, which names the commands where `show_admissible` does not.
        **kwargs: see `CommandEnv` and `AgentEnv`.

    Attributes:
        source: the games.
        task: the running game and where it is from.

    Raises:
        ValueError: for keywords that cannot be used, or where no game can be played.
        FileNotFoundError: for data that are not there.
        ImportError: for engine="textworld" without alfworld and textworld.
        RuntimeError: for engine="textworld" on a Python on which it does not work (3.13 and later).
    """

    splits: ClassVar[tuple[str, ...]] = SPLITS
    option_names: ClassVar[tuple[str, ...]] = ("index", "gamefile", "task")
    setting_names: ClassVar[tuple[str, ...]] = ("dataset", "engine", "grammar", "split", "level")
    breakdown_names: ClassVar[tuple[str, ...]] = ("task_type",)
    extra_info: ClassVar[Mapping[str, Any]] = {
        **CommandEnv.extra_info,
        "dataset": "",
        "engine": "",
        "grammar": "",
        "split": "",
        "level": "",
        "task_type": "",
        "gamefile": "",
        "won": False,
    }
    """Beside those of `CommandEnv`: where the game is from and how it speaks (level and gamefile are empty where there is none), the kind of task, and
    whether the goal holds."""
    system_prompt: ClassVar[str] = _PROMPT

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str | Path = "embedded",
        data_dir: str | Path | None = None,
        engine: str = "fast",
        task_types: Iterable[str | int] | None = None,
        level: str = "full",
        grammar: str = "move",
        show_admissible: bool = True,
        system_prompt: str | None = None,
        **kwargs: Any,
    ) -> None:
        if engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {engine!r}")
        self.engine = engine
        self._foreign = engine == "textworld"  # it also plays games that ours refuses
        self.source = open_games(
            dataset, split=split, data_dir=data_dir, grammar=grammar, level=level, task_types=task_types, foreign=self._foreign
        )
        if system_prompt is None and not show_admissible:
            generated = self.source.num_tasks is None
            system_prompt = f"{_PROMPT} {_COMMANDS.format(put=_PUT[grammar if generated else ''])}"
        super().__init__(split=split, show_admissible=show_admissible, system_prompt=system_prompt, **kwargs)
        self.task: Task | None = None
        self._stock = _stock_engine() if engine == "textworld" else None
        # Beside the stock engine the simulator follows, for states and the expert; None where it cannot play the game.
        self._simulator: Simulator | None = None
        self._engine: _Engine | None = None
        self._all: list[str] = []
        self._played: list[str] = []  # what the stock engine would have to play again

    # ------------------------------------------------------------------------------------------------ the task

    @property
    def num_tasks(self) -> int | None:
        """The number of games in the files; None for generated games, which have no end."""
        return self.source.num_tasks

    def _start(self, options: dict[str, Any]) -> Opening:
        """Choose a game and begin it; see `CommandEnv._start`."""
        if len(options) > 1:
            raise ValueError(f"reset takes one of the options {', '.join(self.option_names)}, not {' and '.join(options)} together")
        name, value = next(iter(options.items())) if options else ("draw", int(self.np_random.integers(2**53)))
        task = self._find(name, value)
        intro = self._take(task)
        before, _, text = intro.rpartition(_TASK)
        seen = "\n\n".join(part for part in before.strip().split("\n\n") if not part.startswith("-="))
        return Opening(text.strip() or task.game.task, seen or intro, intro.strip())

    def _find(self, name: str, value: Any) -> Task:
        if name == "draw":
            return self.source.draw(value)
        if name == "index":
            return self.source.by_index(whole_number("options['index']", value))
        if not isinstance(value, (str, Path) if name == "gamefile" else Mapping):
            raise ValueError(
                f"options[{name!r}] must be {'the path of a game.tw-pddl' if name == 'gamefile' else 'the JSON object of a game'}, not {value!r:.200}"
            )
        return given_task(value, self.source, foreign=self._foreign)

    def _take(self, task: Task) -> str:
        """Load a game into the engine and begin it."""
        if not isinstance(task.game, Game):
            self._simulator = None
        elif self._simulator is None:
            self._simulator = Simulator(task.game)
        elif self._simulator.game is not task.game:
            self._simulator.load(task.game)
        if self._stock is not None:
            self._stock.load(task.data, where=task.game.where)
            self._engine = self._stock
            if self._simulator is not None:
                self._simulator.reset()
        else:
            self._engine = self._simulator
        self.task = task
        self.task_id = task.id
        self._played = []
        assert self._engine is not None  # the fast engine is handed no game that it refuses
        return self._engine.reset()

    @property
    def _running_engine(self) -> _Engine:
        if self._engine is None:
            raise ResetNeeded("no game has begun; call reset() first")
        return self._engine

    # ------------------------------------------------------------------------------------------------ the episode

    def _play(self, command: str) -> Reply:
        """Give the command to the engine; see `CommandEnv._play`."""
        engine = self._running_engine
        before, valid = engine.score, command in self._all
        text = engine.step(command)
        if self._stock is not None and valid:
            self._follow(command)
        won = engine.won
        return Reply(text, float(engine.score - before), done=won, success=won, valid=valid)

    def _follow(self, command: str) -> None:
        """Note a command that the stock engine carried out, and let the simulator do the same."""
        self._played.append(command)
        if self._simulator is not None:
            self._simulator.step(command)

    def _admissible(self) -> Sequence[str]:
        """All that the engine admits but `help`; see `CommandEnv._admissible`."""
        self._all = self._running_engine.admissible()
        return [command for command in self._all if command not in _HIDDEN]

    def _state(self) -> str:
        """The game and a digest of its situation; for a game that only the stock engine plays, of the commands that led there."""
        if self._simulator is None:
            said = repr(self._played)
        else:
            said = repr([sorted(part) if isinstance(part, frozenset) else part for part in self._simulator.get_state()])
        return f"{self.task_id} {hashlib.blake2b(said.encode(), digest_size=16).hexdigest()}"

    def _standing(self) -> Mapping[str, Any]:
        """Where the game is from, and whether it is won; see `CommandEnv._standing`."""
        task = self.task
        if task is None:
            return {}
        return {
            "dataset": task.dataset,
            "engine": self.engine,
            "grammar": task.game.grammar,
            "split": task.split,
            "level": task.level,
            "task_type": task.game.task_type,
            "gamefile": task.gamefile,
            "won": self._running_engine.won,
        }

    # ------------------------------------------------------------------------------------------------ moments

    def _get_world(self) -> Any:
        """The game, and its situation (the commands that led there, for the stock engine); see `CommandEnv._get_world`."""
        if self.task is None:
            return None
        state = self._simulator.get_state() if self._simulator is not None and self._stock is None else None
        return self.task.origin, _name_of(self.task), state, tuple(self._played), tuple(self._all)

    def _set_world(self, world: Any) -> None:
        """Return to a situation. The stock engine begins anew and plays the commands again: seconds, not microseconds."""
        if world is None:
            self.task = self._engine = self._simulator = None
            return
        origin, name, state, played, admissible = world
        task = self.task if self.task is not None and self.task.origin == origin else self._find(*origin)
        if _name_of(task) != name:
            raise ValueError(
                f"the state is one of the game {name}, which is {_name_of(task)} here; make both environments with the same keywords"
            )
        if task is not self.task or self._stock is not None:
            self._take(task)
        if self._stock is None:
            assert self._simulator is not None
            self._simulator.set_state(state)
        else:
            for command in played:  # each was admissible in its turn
                self._stock.step(command)
                self._follow(command)
        self._played, self._all = list(played), list(admissible)

    # ------------------------------------------------------------------------------------------------ the expert

    def _next_command(self) -> str | None:
        """Plan from the present situation; see `CommandEnv._next_command`."""
        from agent_gym.envs.alfworld.expert import next_command

        if self._simulator is None:
            if self.task is None:
                raise ResetNeeded("no game has begun; call reset() before you ask the expert")
            raise ValueError(f"{self.task.game.where}: the expert plans on our own engine, which does not understand this game")
        return next_command(self._simulator)

    def close(self) -> None:
        """Free what the engine holds; may be called twice, and a later reset opens it again."""
        if self._stock is not None:
            self._stock.close()
            self._set_world(None)
        super().close()


def _name_of(task: Task) -> tuple[str, str, str]:
    """What tells a game from others of the same origin in environments with other keywords."""
    return task.id, task.game.grammar, task.game.task


def _stock_engine() -> Any:
    from agent_gym.envs.alfworld.stock import StockEngine

    return StockEngine()
