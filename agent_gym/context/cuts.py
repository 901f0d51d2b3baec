"""The context policies that need no model: keep everything, keep the last turns, keep what fits a budget, or make the prompt anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_gym.context.history import Exchange, History

if TYPE_CHECKING:
    from agent_gym.chat import Message

__all__ = ["Append", "Rebuild", "TokenBudget", "Window", "spliced"]


def spliced(head: Iterable[int], exchanges: Iterable[Exchange]) -> tuple[int, ...]:
    """Put a prompt together from ids that are there: nothing is encoded.

    Args:
        head: the ids that it begins with.
        exchanges: the turns that follow, each with its action as it was sampled.

    Returns:
        The ids of the prompt.
    """
    ids = list(head)
    for exchange in exchanges:
        ids += exchange.action_ids
        ids += exchange.turn_ids
    return tuple(ids)


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
    """Keep the first prompt and the last `size` turns.

    Attributes:
        size: at least 1.
    """

    size: int

    def __post_init__(self) -> None:
        _at_least(1, self.size, "a window keeps at least 1 exchange")

    def next_prompt(self, history: History) -> tuple[int, ...] | None:
        """See `ContextPolicy.next_prompt`.

        Args:
            history: the episode so far.

        Returns:
            None while nothing falls out of the window, else the ids of head and kept exchanges.
        """
        if len(history.exchanges) <= self.size:
            return None
        return spliced(history.head_ids, history.exchanges[-self.size :])


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """Keep the first prompt and as many of the last turns as fit. Whole turns are dropped, oldest first; the task never is.

    A prompt from which nothing had to be dropped is the last one with the new turn appended, so that both share a training row. With `keep` below the
    budget more is dropped at once, and so more seldom: fewer prompts are rewritten, and an update has fewer rows.

    The newest turn is never dropped, since its answer is what the model acts on: where it alone does not fit beside the task, the episode ends by
    `StopReason.CONTEXT_LIMIT`. (Environments of ours cut the results of tools and commands before that.) A task that does not fit is an error of `reset`.

    Attributes:
        tokens: what a prompt may have at most; never more than the environment's `max_observation_tokens`.
        keep: where a prompt exceeds it, turns are dropped until it has at most so many; None for `tokens`.
    """

    tokens: int
    keep: int | None = None

    def __post_init__(self) -> None:
        _at_least(1, self.tokens, "a token budget is at least 1 token")
        if self.keep is not None:
            _at_least(1, self.keep, "keep is at least 1 token")
            if self.keep > self.tokens:
                raise ValueError(
                    f"keep={self.keep} is above the budget of {self.tokens} tokens; it says how much stays when turns are dropped"
                )

    @property
    def budget(self) -> int:
        """The most tokens that a prompt may have."""
        return self.tokens

    def bound(self, env: Any) -> TokenBudget:
        """Return the policy for an environment; see the optional members of `ContextPolicy`.

        Args:
            env: an `AgentEnv`.

        Returns:
            The same, with a budget that the observation space holds.
        """
        room = int(env.max_observation_tokens)
        return self if self.tokens <= room else replace(self, tokens=room, keep=None if self.keep is None else min(self.keep, room))

    def next_prompt(self, history: History) -> tuple[int, ...] | None:
        """See `ContextPolicy.next_prompt`.

        Args:
            history: the episode so far.

        Returns:
            None where no turn has to be dropped now, else the ids of head and kept exchanges.
        """
        exchanges = history.exchanges
        keep = self.tokens if self.keep is None else self.keep
        size = len(history.head_ids)
        first = before = (
            0  # the oldest turn that is kept, and what it was before the newest turn; what was dropped earlier follows from the sizes
        )
        for index, exchange in enumerate(exchanges):
            before = first
            size += len(exchange)
            if size > self.tokens:
                while first < index and size > keep:
                    size -= len(exchanges[first])
                    first += 1
        return None if first == before else spliced(history.head_ids, exchanges[first:])


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


def _at_least(least: int, value: Any, rule: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{rule}, not {value!r}")
