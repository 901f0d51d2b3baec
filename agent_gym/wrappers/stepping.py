"""Awaiting a step through a chain of wrappers.

An environment of ours can be awaited (`astep`), so that a tool that waits holds nobody. A wrapper that only knows `step` would be skipped
by that, so a chain is awaited only where every wrapper in between is one that this module knows how to pass, or defines `astep` itself.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

__all__ = ["astep", "can_await"]


def can_await(env: gymnasium.Env[Any, Any]) -> bool:
    """Say whether awaiting steps gives what `step` gives.

    Args:
        env: an environment, wrapped or not.

    Returns:
        True where each wrapper is Gymnasium's checker or order wrapper or defines `astep`, and the environment inside defines it too. A
        class that overrides `step` below the class that defines `astep` does not count.
    """
    while True:
        if type(env) not in (OrderEnforcing, PassiveEnvChecker):
            if not _defines_both(type(env)):
                return False
            if not isinstance(env, gymnasium.Wrapper):
                return True
        assert isinstance(env, gymnasium.Wrapper)
        env = env.env


def _defines_both(kind: type) -> bool:
    """The newest `astep` of a class is at least as new as its newest `step`."""
    for base in kind.__mro__:
        if "astep" in vars(base):
            return True
        if "step" in vars(base):
            return False
    return False


async def astep(env: Any, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
    """Step an environment for which `can_await` holds.

    Args:
        env: the environment.
        action: as for `step`.

    Returns:
        As `step`.

    Raises:
        gymnasium.error.ResetNeeded: if it was never reset.
    """
    while type(env) in (OrderEnforcing, PassiveEnvChecker):
        if type(env) is OrderEnforcing and not env.has_reset:
            raise ResetNeeded("Cannot call env.step() before calling env.reset()")
        env = env.env
    result: tuple[Any, Any, bool, bool, dict[str, Any]] = await env.astep(action)
    return result
