"""Parts of environments whose prompt is made anew from the state at each step: what is left out of a prompt that is too long, and where text is put."""

from __future__ import annotations

from collections.abc import Callable

from agent_gym.chat import Message
from agent_gym.envs.tool import ToolEnv

__all__ = ["require_room", "shortened", "with_text"]


def fewest_dropped(droppable: int, fits: Callable[[int], bool]) -> int:
    """Find how many items must go until a prompt fits.

    Args:
        droppable: with so many dropped it fits.
        fits: whether it does with so many dropped; once it does, it does with more.

    Returns:
        The smallest number; found by bisection, none being tried first, since most often nothing needs to go.
    """
    low, high = 0, droppable
    middle = 0
    while low < high:
        if fits(middle):
            high = middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return low


def shortened(env: ToolEnv, budget: int, droppable: int, messages: Callable[[int], list[Message]]) -> list[Message]:
    """Make a prompt that fits.

    Args:
        env: whose chat and tools it is rendered with.
        budget: tokens that the prompt may have.
        droppable: with so many items dropped it fits.
        messages: makes the prompt with so many dropped.

    Returns:
        The prompt with as few dropped as will do.
    """
    return messages(fewest_dropped(droppable, lambda count: len(env.chat.render(messages(count), env.tools)) <= budget))


def require_room(env: ToolEnv, budget: int, messages: list[Message]) -> None:
    """Refuse a task that even without any state is longer than the budget of a rebuilt prompt.

    Args:
        env: whose task it is.
        budget: tokens that the prompt may have.
        messages: the task alone.

    Raises:
        ValueError: if it is longer.
    """
    length = len(env.chat.render(messages, env.tools))
    if length > budget:
        raise ValueError(
            f"task {env.task_id!r} and the text of the tools alone have {length} tokens, and rebuild_tokens is {budget}; "
            "make the environment with larger rebuild_tokens (by default they are max_observation_tokens)"
        )


def with_text(messages: list[Message], more: str) -> list[Message]:
    """Put text of the world behind messages.

    Args:
        messages: a prompt.
        more: the text.

    Returns:
        The prompt with a further paragraph of its last message; or a message of its own, where the last one is trusted or not the user's.
    """
    last = messages[-1]
    if last.get("trusted") or last["role"] != "user":
        return [*messages, {"role": "user", "content": more}]
    return [*messages[:-1], {**last, "content": f"{last['content']}\n\n{more}"}]
