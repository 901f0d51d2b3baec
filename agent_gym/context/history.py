"""What a context policy is given, `History`, and what it must be able to do, `ContextPolicy`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from agent_gym.chat import Message

__all__ = ["ContextPolicy", "Exchange", "History"]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn: an action and the environment's answer.

    Attributes:
        action_ids: the sampled ids, the end of turn included.
        action_text: the same for people.
        turn_ids: the ids that the environment put behind them.
        messages: the answer as messages; empty where it came as ids, or where there was none.
    """

    action_ids: tuple[int, ...]
    action_text: str
    turn_ids: tuple[int, ...]
    messages: tuple[Message, ...] = ()

    @property
    def answer(self) -> str:
        """The answer as text for people."""
        return "\n".join(str(message.get("content", "")) for message in self.messages)

    def __len__(self) -> int:
        """The tokens that the turn takes in a prompt."""
        return len(self.action_ids) + len(self.turn_ids)


@dataclass(slots=True)
class History:
    """What happened in the running episode.

    Attributes:
        head_ids: the first prompt, or the last one that the environment rewrote as a whole: the task.
        head_messages: the messages behind it; empty where it came as ids.
        exchanges: actions and answers since then, oldest first.
        ended: the newest exchange ended the task, so that nobody will act on the next prompt.
        summary: what `summarise` put in the place of the oldest exchanges.
        summarised: how many of them it tells of.
        front_ids: the task with that summary as it was shown; empty without one.
    """

    head_ids: tuple[int, ...] = ()
    head_messages: tuple[Message, ...] = ()
    exchanges: list[Exchange] = field(default_factory=list)
    ended: bool = False
    summary: str = ""
    summarised: int = 0
    front_ids: tuple[int, ...] = ()


@runtime_checkable
class ContextPolicy(Protocol):
    """Decides on the next prompt. Exactly one of three answers is given by `next_prompt`.

    Three further members are optional:

    * `bound(env) -> ContextPolicy`, called once when an environment is made: the policy for this environment, which may know its `chat`, `tools` and
      `max_observation_tokens`. The policy itself stays as it is, so that environments can share it.
    * `budget`, an int: no prompt may have more tokens. A first prompt that has more is an error of `reset`, a later one ends the episode by CONTEXT_LIMIT.
    * `async anext_prompt(history)`, the same as `next_prompt` for a policy that waits; `AgentEnv.astep` awaits it.
    """

    def next_prompt(self, history: History) -> tuple[int, ...] | Sequence[Message] | None:
        """Choose the prompt after the newest exchange.

        Args:
            history: the episode so far, the newest exchange last.

        Returns:
            None to append the exchange to the last prompt; a tuple of token ids, the whole next prompt; or a list of messages, which are
            rendered as the whole next prompt.
        """
        ...
