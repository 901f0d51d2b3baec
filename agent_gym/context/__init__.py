"""Context policies: what the model is shown after a step. The environment owns the context.

* `append`: everything so far. The next prompt is the last one, the action's own ids and the new turn.
* `window(k)`: the first prompt and the last k exchanges, spliced as ids: a kept action stands there as it was sampled.
* `rebuild(callable)`: a new conversation made from the state, rendered anew at each step.

A policy is stateless and may be shared by environments; what happened stands in the `History` that the environment hands it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from agent_gym.chat import Message

__all__ = ["Append", "ContextPolicy", "Exchange", "History", "Rebuild", "Window", "append", "parse_context", "rebuild", "window"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One action and the environment's answer.

    Attributes:
        action_ids: the sampled ids, the end of turn included.
        action_text: the same for people.
        turn_ids: the ids that the environment put behind them.
        messages: the answer as messages.
    """

    action_ids: tuple[int, ...]
    action_text: str
    turn_ids: tuple[int, ...]
    messages: tuple[Message, ...] = ()


@dataclass(slots=True)
class History:
    """What happened in the running episode.

    Attributes:
        head_ids: the first prompt, or the last one that the environment rewrote as a whole.
        head_messages: the messages behind it; empty where it came as ids.
        exchanges: actions and answers since then, oldest first.
    """

    head_ids: tuple[int, ...] = ()
    head_messages: tuple[Message, ...] = ()
    exchanges: list[Exchange] = field(default_factory=list)


@runtime_checkable
class ContextPolicy(Protocol):
    """Decides on the next prompt. Exactly one of three answers is given by `next_prompt`."""

    def next_prompt(self, history: History) -> tuple[int, ...] | Sequence[Message] | None:
        """Choose the prompt after the newest exchange.

        Args:
            history: the episode so far, the newest exchange last.

        Returns:
            None to append the exchange to the last prompt; a tuple of token ids, the whole next prompt; or a list of messages, which are
            rendered as the whole next prompt.
        """
        ...


@dataclass(frozen=True, slots=True)
class Append:
    """Keep everything."""

    def next_prompt(self, history: History) -> None:
        """See `ContextPolicy.next_prompt`.

        Args:
            history: unused.
        """
        return None


@dataclass(frozen=True, slots=True)
class Window:
    """Keep the first prompt and the last `size` exchanges.

    Attributes:
        size: at least 1.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a window keeps at least 1 exchange, not {self.size}")

    def next_prompt(self, history: History) -> tuple[int, ...] | None:
        """See `ContextPolicy.next_prompt`.

        Args:
            history: the episode so far.

        Returns:
            None while nothing falls out of the window, else the ids of head and kept exchanges.
        """
        if len(history.exchanges) <= self.size:
            return None
        ids = list(history.head_ids)
        for exchange in history.exchanges[-self.size :]:
            ids += exchange.action_ids
            ids += exchange.turn_ids
        return tuple(ids)


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Make the whole conversation anew from the state.

    Attributes:
        make: from the history to the messages of the next prompt. Messages may carry `token_ids` of kept actions.
    """

    make: Callable[[History], Sequence[Message]]

    def next_prompt(self, history: History) -> Sequence[Message]:
        """See `ContextPolicy.next_prompt`.

        Args:
            history: the episode so far.

        Returns:
            The messages.
        """
        return list(self.make(history))


def append() -> Append:
    """Return the policy that keeps everything.

    Returns:
        An `Append`.
    """
    return Append()


def window(size: int) -> Window:
    """Return the policy that keeps the first prompt and the last exchanges.

    Args:
        size: how many, at least 1.

    Returns:
        A `Window`.
    """
    return Window(size)


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
        context: a policy, "append", "window:K", or "rebuild" for the environment's own way.
        own: how the environment makes its prompt from its state, if it can.

    Returns:
        The policy.

    Raises:
        ValueError: for an unknown name, a window without a size, or "rebuild" where the environment has no way of its own.
    """
    if not isinstance(context, str):
        if not isinstance(context, ContextPolicy):
            raise ValueError(f"context must be 'append', 'window:K', 'rebuild' or an object with next_prompt(history), not {context!r}")
        return context
    name, _, size = context.partition(":")
    if name == "append" and not size:
        return Append()
    if name == "window" and size.isdigit() and int(size) > 0:
        return Window(int(size))
    if name == "rebuild" and not size:
        if own is None:
            raise ValueError(
                "this environment has no way of its own to rebuild its prompt; pass context=agent_gym.context.rebuild(callable)"
            )
        return Rebuild(own)
    raise ValueError(f"context must be 'append', 'window:K' with K at least 1, 'rebuild' or a policy object, not {context!r}")
