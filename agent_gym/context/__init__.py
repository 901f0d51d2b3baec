"""Context policies: what the model is shown after a step. The environment owns the context.

| policy | the next prompt |
|---|---|
| `append` | everything so far: the last prompt, the action's own ids and the new turn |
| `window(k)`, "window:K" | the first prompt and the last k turns |
| `token_budget(n)`, "token_budget:N" | the first prompt and as many of the last turns as fit n tokens |
| `summarise(writer)` | the first prompt, a summary of the oldest turns by a function or a model, and the last turns |
| `rebuild(callable)`, "rebuild" where the environment has a way of its own | a new conversation made from the state |

Every environment takes each of them as `context=...`, those of other people too. What is kept is spliced as ids: an action stands there as it was
sampled. A prompt that does not begin with the last one and the action sets `info["context_rewritten"]`, and opens a new training row.

A policy is stateless and may be shared by environments; what happened stands in the `History` that the environment hands it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agent_gym.context.cuts import Append, Rebuild, TokenBudget, Window
from agent_gym.context.history import ContextPolicy, Exchange, History
from agent_gym.context.summary import Summarise, SummaryWriter, summary_message

if TYPE_CHECKING:
    from agent_gym.chat import Message

__all__ = [
    "Append",
    "ContextPolicy",
    "Exchange",
    "History",
    "Rebuild",
    "Summarise",
    "SummaryWriter",
    "TokenBudget",
    "Window",
    "append",
    "parse_context",
    "rebuild",
    "summarise",
    "summary_message",
    "token_budget",
    "window",
]

_NAMES = "'append', 'window:K', 'token_budget:N' or 'token_budget:N:KEEP', 'rebuild'"


def append() -> Append:
    """Return the policy that keeps everything.

    Returns:
        An `Append`.
    """
    return Append()


def window(size: int) -> Window:
    """Return the policy that keeps the first prompt and the last turns.

    Args:
        size: how many, at least 1.

    Returns:
        A `Window`.
    """
    return Window(size)


def token_budget(tokens: int, keep: int | None = None) -> TokenBudget:
    """Return the policy that keeps the first prompt and as many of the last turns as fit; whole turns are dropped, oldest first.

    Args:
        tokens: what a prompt may have at most. Leave room for the task, which is never dropped, and for the longest turn.
        keep: where a prompt exceeds it, turns are dropped until it has at most so many; None for `tokens`. A smaller number rewrites more seldom.

    Returns:
        A `TokenBudget`.
    """
    return TokenBudget(tokens, keep)


def summarise(writer: Any, *, over: int | None = None, keep: int = 1, max_tokens: int = 256) -> Summarise:
    """Return the policy that replaces the oldest turns by a summary when the prompt has grown beyond a size.

    Args:
        writer: (turns) -> text, plain or `async`, each turn an `Exchange`; or a policy (`agent_gym.policies.Policy`), which is asked in token ids.
        over: tokens of a prompt beyond which it is summarised; None for the environment's `max_observation_tokens`.
        keep: turns that stay as they are, at least 1.
        max_tokens: where the summary is cut, with a visible mark.

    Returns:
        A `Summarise`.

    Raises:
        ValueError: for a writer that is neither, or sizes below 1.
    """
    return Summarise(writer, over, keep, max_tokens)


def rebuild(make: Callable[[History], Sequence[Message]]) -> Rebuild:
    """Return the policy that makes each prompt anew.

    Args:
        make: from the history to the messages of the next prompt.

    Returns:
        A `Rebuild`.
    """
    return Rebuild(make)


def parse_context(context: str | ContextPolicy, own: Callable[[History], Sequence[Message]] | None = None) -> ContextPolicy:
    """Return the policy that a keyword names.

    Args:
        context: a policy, "append", "window:K", "token_budget:N", "token_budget:N:KEEP", or "rebuild" for the environment's own way.
        own: how the environment makes its prompt from its state, if it can.

    Returns:
        The policy.

    Raises:
        ValueError: for an unknown name, a size that is missing or below 1, or "rebuild" where the environment has no way of its own.
    """
    if not isinstance(context, str):
        if isinstance(context, type) or not isinstance(context, ContextPolicy):
            raise ValueError(f"context must be {_NAMES} or an object with next_prompt(history), not {context!r}")
        return context
    name, *sizes = context.split(":")
    numbers = [int(one) for one in sizes if re.fullmatch("[0-9]{1,9}", one)]
    given = len(numbers) == len(sizes) and all(numbers)
    if name == "append" and not sizes:
        return Append()
    if name == "window" and given and len(sizes) == 1:
        return Window(numbers[0])
    if name == "token_budget" and given and 1 <= len(sizes) <= 2:
        return TokenBudget(*numbers)
    if name == "rebuild" and not sizes:
        if own is None:
            raise ValueError(
                "this environment has no way of its own to rebuild its prompt; pass context=agent_gym.context.rebuild(callable)"
            )
        return Rebuild(own)
    hint = ""
    if name in ("summarise", "summarize"):
        hint = "; a summary needs somebody who writes it: pass context=agent_gym.context.summarise(callable or policy)"
    raise ValueError(f"context must be {_NAMES}, with sizes of at least 1, or a policy object, not {context!r}{hint}")
