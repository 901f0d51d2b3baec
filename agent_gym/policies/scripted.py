"""Policies without a model: random ids, fixed texts, and the environment's own expert."""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_gym.policies.base import Sampling, derive_seed
from agent_gym.trajectory import Generation

__all__ = ["RandomPolicy", "ScriptedPolicy"]

Script = Callable[[Any, int], str]
"""(unwrapped environment, turn counted from 0) -> the text of the action."""


class RandomPolicy:
    """Draws ids uniformly from the vocabulary, control ids included, a uniform number of them; ends at a stop id it happens to draw.

    Args:
        vocab_size: ids run below it; None takes that of each episode's action space when a loop binds its environment.
        max_length: the longest reply, also bounded by `Sampling.max_tokens`.
        seed: of requests without a seed of their own; None draws one from the system.

    Raises:
        ValueError: for a `max_length` below 1.
    """

    def __init__(self, vocab_size: int | None = None, *, max_length: int = 32, seed: int | None = None) -> None:
        if max_length < 1:
            raise ValueError(f"max_length must be positive, not {max_length}")
        self.version = 0
        self.vocab_size = vocab_size
        self.max_length = max_length
        self._seed = secrets.randbits(63) if seed is None else seed
        self._numbers = itertools.count()
        self._vocabularies: dict[Hashable, int] = {}

    def bind(self, env: Any, session: Hashable | None = None) -> None:
        """Take the vocabulary of an environment's action space for a session, unless one was given for all.

        Args:
            env: just reset, with a `TokenBox` for actions.
            session: the episode; None where there is one at a time.
        """
        self._vocabularies[session] = int(env.get_wrapper_attr("action_space").vocab_size)

    async def generate(
        self, prompt_ids: Sequence[int] | NDArray[np.int64], sampling: Sampling, *, session: Hashable | None = None
    ) -> Generation:
        """Draw a reply.

        Args:
            prompt_ids: int64 of shape (n,); ignored.
            sampling: `max_tokens`, `seed` and `stop_token_ids` are used.
            session: the session that was bound.

        Returns:
            The ids, each with log-probability -log(vocab_size).

        Raises:
            ValueError: if no vocabulary is known.
        """
        vocab_size = self.vocab_size if self.vocab_size is not None else self._vocabularies.get(session)
        if vocab_size is None:
            raise ValueError("RandomPolicy needs vocab_size=..., or a loop that binds an environment with a TokenBox action space")
        seed = sampling.seed if sampling.seed is not None else derive_seed(self._seed, next(self._numbers))
        draw = np.random.default_rng(seed)
        ids = draw.integers(0, vocab_size, int(draw.integers(1, min(self.max_length, sampling.max_tokens) + 1)))
        stops = np.flatnonzero(np.isin(ids, sampling.stop_token_ids))
        ids = ids[: stops[0] + 1] if len(stops) else ids
        return Generation(ids, np.full(len(ids), -math.log(vocab_size)), "stop" if len(stops) else "length", self.version)

    def forget(self, session: Hashable) -> None:
        """Drop a session's vocabulary.

        Args:
            session: as given to `bind`; an unknown one is ignored.
        """
        self._vocabularies.pop(session, None)


class ScriptedPolicy:
    """Plays texts, encoded by the environment's own `encode_action`.

    A loop binds each episode's environment with its session; by hand, pass `env` or call `bind(env)`. The log-probabilities are unknown
    (None): a script is no distribution to train against.

    Args:
        script: one text per turn (the last is repeated), or a callable of (unwrapped environment, turn from 0) that returns the text.
        env: the environment of calls without a session.

    Raises:
        ValueError: if there is no text at all.
    """

    def __init__(self, script: Sequence[str] | Script, *, env: Any = None) -> None:
        if isinstance(script, str):
            script = [script]
        if not callable(script) and not len(script):
            raise ValueError("ScriptedPolicy needs at least one text, or a callable")
        self.version = 0
        self._script = script
        self._envs: dict[Hashable, tuple[Any, int]] = {}
        if env is not None:
            self.bind(env, None)

    @classmethod
    def expert(cls, env: Any = None) -> ScriptedPolicy:
        """Make the policy that plays the environment's own expert.

        Args:
            env: the environment of calls without a session; not needed in a loop, which binds its own.

        Returns:
            The policy. It raises ValueError when an environment has no expert.
        """
        return cls(_ask_expert, env=env)

    def bind(self, env: Any, session: Hashable | None = None) -> None:
        """Begin a session on an environment that was just reset.

        Args:
            env: just reset; one of ours.
            session: the episode; None where there is one at a time.
        """
        self._envs[session] = (env.unwrapped, 0)

    async def generate(
        self, prompt_ids: Sequence[int] | NDArray[np.int64], sampling: Sampling, *, session: Hashable | None = None
    ) -> Generation:
        """Return the text of this turn as ids.

        Args:
            prompt_ids: int64 of shape (n,); ignored.
            sampling: ignored; the text is given whole.
            session: the session that was bound.

        Returns:
            The ids of the text, closed by the end of turn, without log-probabilities.

        Raises:
            ValueError: if no environment was bound to the session.
        """
        if session not in self._envs:
            raise ValueError(
                f"ScriptedPolicy knows no environment for session {session!r}; call bind(env, session) after reset, or pass env=..."
            )
        env, turn = self._envs[session]
        self._envs[session] = (env, turn + 1)
        script = self._script if callable(self._script) else self._script[min(turn, len(self._script) - 1)]
        elsewhere = getattr(env, "arun", None)  # of an environment in a worker (agent_gym.flows.remote)
        ids = _written(env, script, turn) if elsewhere is None else await elsewhere(_written, script, turn)
        return Generation(ids, None, "stop", self.version)

    def forget(self, session: Hashable) -> None:
        """Drop a session's environment.

        Args:
            session: as given to `bind`; an unknown one is ignored.
        """
        self._envs.pop(session, None)


def _written(env: Any, script: str | Script, turn: int) -> Any:
    """The ids of a turn."""
    return env.encode_action(script(env, turn) if callable(script) else script)


def _ask_expert(env: Any, turn: int) -> str:
    ask = env.expert()
    if ask is None:
        raise ValueError(f"{type(env).__name__} has no expert; write expert(), or use another policy")
    return str(ask())
