"""`DiscreteTokens`: token actions for agents that know only discrete spaces (stable-baselines3, CleanRL, Tianshou)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from agent_gym.spaces import TokenBox
from agent_gym.wrappers.stepping import astep

__all__ = ["DiscreteTokens"]


class DiscreteTokens(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Gives an environment a `MultiDiscrete([vocab_size] * length)` action space: each action is `length` ids.

    What stands behind an end-of-turn id is dropped by the environment, so that shorter replies can be said.

    Args:
        env: an environment with a `TokenBox` action space.
        length: ids per action.

    Raises:
        TypeError: if the action space is not a `TokenBox`.
        ValueError: if `length` does not fit into it.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], length: int = 16) -> None:
        RecordConstructorArgs.__init__(self, length=length)
        gymnasium.Wrapper.__init__(self, env)
        space = env.action_space
        if not isinstance(space, TokenBox):
            raise TypeError(f"DiscreteTokens needs a TokenBox action space, not {space}; see agent_gym.wrappers.as_token_env")
        if not 1 <= length <= space.max_length:
            raise ValueError(f"length must lie in [1, {space.max_length}] (the environment's max_action_tokens), not {length}")
        self._inner_space = space
        self.action_space = spaces.MultiDiscrete(np.full(length, space.vocab_size, dtype=np.int64))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act.

        Args:
            action: ids, shape (length,).

        Returns:
            What the environment returns.
        """
        return self.env.step(self._handed(action))

    async def astep(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act, awaiting the environment; only where `can_await(env)` holds.

        Args:
            action: ids, shape (length,).

        Returns:
            As `step`.
        """
        return await astep(self.env, self._handed(action))

    def _handed(self, action: Any) -> Any:
        ids = np.asarray(action)
        # A list is taken whole; an array as long as the space would lose the pad ids at its end, which were said like any other.
        return ids.tolist() if hasattr(self.unwrapped, "encode_action") else self._inner_space.pad(ids)
