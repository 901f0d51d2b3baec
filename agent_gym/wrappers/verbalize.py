"""`VerbalizeObservation`: discrete environments in words. Those of Gymnasium's toy-text tasks are known (`agent_gym.envs.toy_text.words`)."""

from __future__ import annotations

import string
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from agent_gym.envs.toy_text.words import VERBALIZERS, Verbalizer, find_verbalizer
from agent_gym.wrappers.stepping import astep

__all__ = ["VERBALIZERS", "VerbalizeObservation", "Verbalizer", "find_verbalizer"]

_CHARACTERS = string.printable


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
        return f"{self.words.task_of(self.unwrapped)}\n{self._names()}\n\n{self._state}", {**info, "action_valid": True}

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Act by name.

        Args:
            action: a reply that names one action.

        Returns:
            The state in words, and the rest as the environment returns it.
        """
        number = self.words.read(action)
        return self._unread() if number is None else self._described(self.env.step(number))  # type: ignore[arg-type]  # the inner action space is discrete

    async def astep(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """Act by name, awaiting the environment; only where `can_await(env)` holds.

        Args:
            action: a reply that names one action.

        Returns:
            As `step`.
        """
        number = self.words.read(action)
        return self._unread() if number is None else self._described(await astep(self.env, number))

    def _unread(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"The reply must name exactly one action. {self._names()}\n\n{self._state}", 0.0, False, False, {"action_valid": False}

    def _described(self, result: tuple[Any, Any, bool, bool, dict[str, Any]]) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = result
        self._state = self.words.describe(observation, self.unwrapped)
        return self._state, reward, terminated, truncated, {**info, "action_valid": True}

    def _names(self) -> str:
        return f"Actions: {', '.join(self.words.actions)}."
