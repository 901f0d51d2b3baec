"""What the two methods of an environment are given and give back, and the errors they raise. `agent_gym.core` has all of these names too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent_gym.chat import Message

__all__ = ["Action", "EnvFault", "EnvTimeout", "Observation", "Outcome", "PromptTooLong", "TaskError"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class TaskError(ValueError):
    """A task that cannot be begun as it stands.

    Args:
        field: of a row of the sample schema that is to blame, such as "prompt".
        text: what is wrong.

    Attributes:
        field: see above. The text does not repeat it, since tasks come from elsewhere too.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, str(self))


class PromptTooLong(TaskError):
    """A task whose first prompt does not fit."""


class EnvFault(RuntimeError):
    """The world broke: a search server is down, a browser died. Not the model's mistake, and never paid or punished as one.

    Raised inside an environment during a step it comes out as reward 0, truncated, `StopReason.ENV_FAULT`; out of `reset` it is raised.
    """


class EnvTimeout(EnvFault):
    """The world did not answer within its time: a server that hangs. Counted apart (see `agent_gym.flows.Fault`)."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the environment has to say. Exactly one of the first three is given.

    Attributes:
        text: shown as a user message.
        messages: chat messages, `{"role", "content"}` each.
        token_ids: ids, taken as they are.
        rewrite: False: these are only the new messages, appended behind the action. True: this is the whole next prompt.

    Raises:
        ValueError: unless exactly one of the three is given.
    """

    text: str | None = None
    messages: Sequence[Message] | None = None
    token_ids: Sequence[int] | None = None
    rewrite: bool = False

    def __post_init__(self) -> None:
        if (self.text is not None) + (self.messages is not None) + (self.token_ids is not None) != 1:
            raise ValueError(f"an Observation needs exactly one of text, messages and token_ids, not {self!r}")

    def as_messages(self) -> tuple[Message, ...]:
        """Return the observation as messages.

        Returns:
            The messages; none where it came as ids.
        """
        if self.text is not None:
            return ({"role": "user", "content": self.text},)
        return tuple(self.messages or ())


@dataclass(frozen=True, slots=True)
class Action:
    """What the model did.

    Attributes:
        token_ids: the sampled ids up to and including the first end-of-turn id.
        text: the same as text, control tokens as their literals, without the end of turn.
    """

    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an action.

    Attributes:
        observation: the environment's answer.
        reward: of this step.
        terminated: the task ended. Limits are the base class's business.
        info: any of stop_reason, is_success, reward_parts, feedback, action_valid, state_key, and the keys of `AgentEnv.extra_info`.
    """

    observation: Observation
    reward: float = 0.0
    terminated: bool = False
    info: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
