"""`ToyTextEnv`: what the toy-text tasks share. The game is Gymnasium's own; this room only speaks for it.

A task is a row: `{"seed": ...}`, which seeds the game, and what else a game needs to be the same again (a map, a start). The same row gives the same
episode in Gymnasium's own environment, state for state and reward for reward (tested): `env.unwrapped.game_task` is the row of the running episode.

A reply that names no action leaves the game alone, costs a turn, and `invalid_penalty`.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np

from agent_gym.envs.commands import CommandEnv, Opening, Reply
from agent_gym.envs.toy_text.words import VERBALIZERS
from agent_gym.envs.whole_numbers import whole_number

__all__ = ["ToyTextEnv", "random_player", "shares"]

_SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}
_TRIES = 10_000


def digest(text: str) -> int:
    """Return a number below 2**32 for a text, the same in every process.

    Args:
        text: anything.

    Returns:
        The number.
    """
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def shares(names: Iterable[str]) -> dict[str, list[str]]:
    """Deal a few names to the splits, 8 : 1 : 1, at least one each, in an order that has nothing to do with their meaning.

    Args:
        names: at least three.

    Returns:
        The names of each split.
    """
    ordered = sorted(names, key=digest)
    held_out = max(1, round(len(ordered) * _SHARES["test"]))
    return {"train": ordered[2 * held_out :], "validation": ordered[:held_out], "test": ordered[held_out : 2 * held_out]}


def random_player(seed: int) -> Callable[[Any, int], str]:
    """Return a player that names actions at random; a baseline.

    Args:
        seed: of its choices; the same task and turn get the same draw.

    Returns:
        The script.
    """

    def script(env: Any, turn: int) -> str:
        names = list(env.words.actions)
        rng = np.random.default_rng(np.random.SeedSequence([seed, digest(env.task_id), turn]))
        return str(env.write_command(names[int(rng.integers(len(names)))]))

    return script


class ToyTextEnv(CommandEnv):
    """A toy-text task in words. Subclasses say which.

    A seed draws a task of the split, and no task is in two splits; `options={"index": i}` is the i-th of a split's tasks, which have no end;
    `options={"task": row}` is any, `{"seed": 7}` what Gymnasium's environment plays after `reset(seed=7)`.

    Rewards are Gymnasium's. What a reply without an action costs is a part of its own ("invalid").

    Args:
        max_turns: replies that an episode has.
        invalid_penalty: taken off for a reply that names no action.
        settings: keywords of the game that are told in info.
        **kwargs: see `CommandEnv`.

    Raises:
        ValueError: for keywords that cannot be used.
    """

    game: ClassVar[str] = ""
    """The name of Gymnasium's environment, without version."""
    moving: ClassVar[tuple[str, ...]] = ("s", "lastaction")
    """The attributes of Gymnasium's environment that a step changes, beside its generator."""
    task_keys: ClassVar[tuple[str, ...]] = ("seed",)
    """The keys of a row; all but `seed` may be left out."""
    setting_names: ClassVar[tuple[str, ...]] = ("game", "settings", "split")
    extra_info: ClassVar[Mapping[str, Any]] = {**CommandEnv.extra_info, "game": "", "settings": "", "split": "", "game_seed": 0}
    """Which game it is, with which settings (JSON), the split, and the seed of Gymnasium's environment."""
    system_prompt: ClassVar[str] = "You play a game, one action per reply."
    metric_names: ClassVar[tuple[str, ...] | None] = ()
    baselines: ClassVar[Mapping[str, Callable[[int], Callable[[Any, int], str]]]] = {"random_actions": random_player}

    def __init__(self, *, max_turns: int, invalid_penalty: float, settings: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(max_turns=max_turns, invalid_penalty=invalid_penalty, **kwargs)
        self.words = VERBALIZERS[self.game]
        self._told = {"game": self.game, "settings": json.dumps(dict(settings), sort_keys=True), "split": self.split}
        self.inner: gymnasium.Env[Any, Any] | None = None
        self.game_task: Mapping[str, Any] = {}
        self._seen: Any = None

    # ------------------------------------------------------------------------------------------------ for games

    def _draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw a task of this split.

        Args:
            rng: of this environment, or of an index.

        Returns:
            The row.
        """
        return {"seed": self.seed_of_split(rng)}

    def _checked(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row that was handed over, complete.

        Args:
            row: with known keys, and a seed.

        Returns:
            The row.

        Raises:
            ValueError: naming key and value.
        """
        return dict(row)

    def _open(self, row: Mapping[str, Any]) -> tuple[gymnasium.Env[Any, Any], Any]:
        """Begin a row's episode.

        Args:
            row: complete.

        Returns:
            Gymnasium's environment, unwrapped and reset, and its first observation.
        """
        raise NotImplementedError

    def _event(self, before: Any, action: int, after: Any, reward: float, terminated: bool) -> str:
        """Return what is said of a step beside the state it led to; may be empty.

        Args:
            before: the observation before it.
            action: its number.
            after: the observation behind it.
            reward: Gymnasium's.
            terminated: Gymnasium's.

        Returns:
            The text.
        """
        return ""

    def _won(self, reward: float, terminated: bool) -> bool:
        """Whether a step solved the task."""
        return terminated and reward > 0

    def _best(self) -> int:
        """The best action in the present state."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------ tasks

    def seed_of_split(self, rng: np.random.Generator) -> int:
        """Draw a seed of the game that no other split has.

        Args:
            rng: draws it.

        Returns:
            The seed.
        """
        return int(rng.integers(2**30)) * len(self.splits) + self.splits.index(self.split)

    def _choose(self, options: Mapping[str, Any]) -> dict[str, Any]:
        if "task" not in options:
            if "index" not in options:
                return self._draw(self.np_random)
            index = whole_number("options['index']", options["index"], 0)
            return self._draw(np.random.default_rng(np.random.SeedSequence([self.splits.index(self.split), index])))
        row = options["task"]
        if not isinstance(row, Mapping) or "seed" not in row or not set(row) <= set(self.task_keys):
            raise ValueError(f"options['task'] must be a row with the key 'seed' and any of {', '.join(self.task_keys)}, not {row!r:.300}")
        return self._checked({**row, "seed": whole_number("options['task']['seed']", row["seed"], 0)})

    def _start(self, options: dict[str, Any]) -> Opening:
        """Begin a game; see `CommandEnv._start`."""
        self._begin_game(self._choose(options))
        task = self.words.task_of(self.inner)
        if not self.show_admissible:
            task += f" The actions are {', '.join(self.words.actions)}."
        return Opening(task, self._described())

    def _begin_game(self, row: Mapping[str, Any]) -> None:
        self.inner, self._seen = self._open(row)
        self.game_task = row
        told = "".join(
            f"/{name}={row[name]}" if not isinstance(row[name], list) else f"/{'-'.join(row[name])}" for name in self.task_keys[1:]
        )
        self.task_id = f"{self.game}{told}/{row['seed']}"

    # ------------------------------------------------------------------------------------------------ the game

    def _described(self) -> str:
        return self.words.describe(self._seen, self.inner)

    def _play(self, command: str) -> Reply:
        """Take the action that a command names; see `CommandEnv._play`."""
        number = self.words.read(command)
        if number is None:
            return self._unread(f"A command names exactly one of the actions: {', '.join(self.words.actions)}. Nothing was done.")
        assert self.inner is not None  # an episode runs
        before = self._seen
        self._seen, paid, terminated, _, _ = self.inner.step(number)
        reward = float(paid)
        event = self._event(before, number, self._seen, reward, bool(terminated))
        return Reply(f"{event}\n{self._described()}".strip(), reward, bool(terminated), self._won(reward, bool(terminated)))

    def _unread(self, mistake: str) -> Reply:
        """Answer a reply that names no action: the state is told again, since a prompt that is made anew shows nothing else of it."""
        return Reply(f"{mistake}\n{self._described()}", valid=False)

    def _admissible(self) -> Sequence[str]:
        return tuple(self.words.actions)

    def _state(self) -> str:
        return self._described()

    def _standing(self) -> Mapping[str, Any]:
        return {**self._told, "game_seed": self.game_task["seed"]}

    def _next_command(self) -> str:
        best = self._best()
        return next(name for name, number in self.words.actions.items() if number == best)

    # ------------------------------------------------------------------------------------------------ moments

    def _get_world(self) -> Any:
        """The row, and what a step changes; see `CommandEnv._get_world`."""
        if self.inner is None:
            return None
        now = {name: copy.deepcopy(getattr(self.inner, name)) for name in self.moving if hasattr(self.inner, name)}
        return dict(self.game_task), self._seen, now, copy.deepcopy(self.inner.np_random.bit_generator.state)

    def _set_world(self, world: Any) -> None:
        """Return to a moment of a game; see `CommandEnv._set_world`."""
        if world is None:
            self.inner, self.game_task = None, {}
            return
        row, seen, now, generator = world
        self._begin_game(row)
        assert self.inner is not None
        for name, value in now.items():
            setattr(self.inner, name, copy.deepcopy(value))
        self.inner.np_random.bit_generator.state = generator
        self._seen = seen

    def close(self) -> None:
        """Let go of the game."""
        if self.inner is not None:
            self.inner.close()
        super().close()
