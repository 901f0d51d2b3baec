"""Token ids from outside: what a caller gave as an action, and what an environment gave as a prompt. Used by `core.py` alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from agent_gym.spaces import TokenBox
from agent_gym.trajectory import Generation

__all__ = ["action_ids", "world_ids"]


def action_ids(action: Any, space: TokenBox, highest: int) -> list[int]:
    """Check an action and take its padding off: an array as long as the space is padded, a list or a `Generation` is taken whole.

    Args:
        action: anything.
        space: of the actions.
        highest: id that an action may hold.

    Returns:
        The ids.

    Raises:
        gymnasium.error.InvalidAction: for floats, ids outside the space, or too many of them.
    """
    plain = type(action) is list and action and len(action) <= space.max_length and set(map(type, action)) == {int}
    if plain and min(action) >= 0 and max(action) <= highest:  # the common case, without a detour over an array
        return list(action)
    array = _checked(action.token_ids if isinstance(action, Generation) else action, space.max_length, highest)
    if len(array) == space.max_length and hasattr(action, "dtype"):
        array = space.unpad(array)
    ids: list[int] = array.tolist()
    return ids


def world_ids(ids: Sequence[int], vocab_size: int) -> list[int]:
    """Check ids that an environment shows.

    Args:
        ids: whole numbers of any type.
        vocab_size: above all of them.

    Returns:
        The ids.

    Raises:
        ValueError: for anything else.
    """
    listed = [int(one) for one in ids]
    if any(one != other for one, other in zip(listed, ids, strict=True)):
        raise ValueError(f"the environment's token ids must be whole numbers, not {list(ids)[:10]!r}")
    if listed and (min(listed) < 0 or max(listed) >= vocab_size):
        raise ValueError(f"the environment's token ids must lie in [0, {vocab_size - 1}], not {min(listed)} to {max(listed)}")
    return listed


def _checked(action: Any, most: int, highest: int) -> NDArray[np.int64]:
    try:
        array = np.asarray(action)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidAction(f"an action is a sequence of token ids, not {action!r:.200}") from error
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind == "f":
        raise InvalidAction(
            f"an action is a sequence of int64 token ids, and floats came (dtype {array.dtype}, shape {array.shape}). An agent with continuous "
            "actions needs agent_gym.wrappers.DiscreteTokens(env, length=k), whose actions are MultiDiscrete"
        )
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise InvalidAction(f"an action is a one-dimensional sequence of token ids, not dtype {array.dtype} of shape {array.shape}")
    if len(array) > most:
        raise InvalidAction(f"an action has at most max_action_tokens={most} ids, and {len(array)} came")
    low_id, high_id = int(array.min()), int(array.max())
    if low_id < 0 or high_id > highest:
        raise InvalidAction(f"action ids must lie in [0, {highest}], and {low_id if low_id < 0 else high_id} came")
    return array.astype(np.int64, copy=False)
