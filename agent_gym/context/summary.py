"""`Summarise`: the oldest turns are replaced by a text about them, written by a function or by a model.

The summary is text from the world: it is encoded like a page or a tool's result, so that it can forge neither a turn nor a call, whatever its writer
made of the turns that it read. Kept turns are spliced as the ids that they were.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_gym._background import background
from agent_gym._sampling import Sampling
from agent_gym.context.cuts import _at_least, spliced
from agent_gym.context.history import Exchange, History

if TYPE_CHECKING:
    from agent_gym.chat import Chat, Message

__all__ = ["Summarise", "SummaryWriter", "summary_message"]

SummaryWriter = Callable[[list[Exchange]], "str | Awaitable[str]"]
"""(turns, oldest first) -> the text that stands for them; may be `async`."""

_OVERHEAD = 64  # tokens around a summary: its message and its first line
_LEAST = 16  # tokens that every text in the writer's prompt is shown with
_ASK = (
    "An agent works on a task in turns, and its oldest turns are about to be left out of what it sees. Write down what it must still know of them: what was "
    "tried, what was found, what is left to do. Facts, names and numbers, no advice. At most {words} words, plain text."
)


@dataclass(frozen=True, slots=True)
class _Place:
    """What a summary is put into.

    Attributes:
        chat: of the environment.
        tools: that its prompts show.
        room: tokens of its observation space.
    """

    chat: Chat
    tools: Sequence[Any] | None
    room: int


@dataclass(frozen=True, slots=True)
class Summarise:
    """Keep the first prompt, a summary of the oldest turns, and the last turns as they are.

    Until a prompt exceeds `over` tokens, turns are appended. Then all but the last `keep` are replaced by a summary, which opens a new training row, and
    turns are appended again. Where these do not fit, fewer are kept; the newest always is, and where it does not fit, the episode ends by CONTEXT_LIMIT.

    Attributes:
        writer: a function from the turns that are left out (`Exchange`, all since the task began, oldest first) to a text, plain or `async`; or a policy
            (`agent_gym.policies.Policy`), which is asked greedily, with the task, the summary so far and the turns since then in words. A plain
            function holds up the environments that are stepped beside this one, an `async` one does not.
        over: tokens of a prompt beyond which it is summarised; None for the environment's `max_observation_tokens`, and never more.
        keep: turns that stay as they are, at least 1.
        max_tokens: where the summary is cut, with a visible mark.
        place: set by `bound`.
    """

    writer: Any
    over: int | None = None
    keep: int = 1
    max_tokens: int = 256
    place: _Place | None = None

    def __post_init__(self) -> None:
        if not callable(self.writer) and not callable(getattr(self.writer, "generate", None)):
            raise ValueError(
                f"summarise needs a callable (turns) -> text, or a policy with generate(prompt_ids, sampling), not {self.writer!r:.200}"
            )
        if self.over is not None:
            _at_least(1, self.over, "over is at least 1 token")
        _at_least(1, self.keep, "keep is at least 1 turn")
        _at_least(1, self.max_tokens, "max_tokens is at least 1 token")

    def __deepcopy__(self, memo: Any) -> Summarise:
        """Return itself: it has no state, and Gymnasium copies the keywords of an environment, which must not copy a model."""
        return self

    def bound(self, env: Any) -> Summarise:
        """Return the policy for an environment; see the optional members of `ContextPolicy`.

        Args:
            env: an `AgentEnv`.

        Returns:
            The same, for this environment.
        """
        room = int(env.max_observation_tokens)
        return replace(self, over=room if self.over is None else min(self.over, room), place=_Place(env.chat, env.tools, room))

    def next_prompt(self, history: History) -> tuple[int, ...] | None:
        """See `ContextPolicy.next_prompt`.

        Args:
            history: the episode so far; the summary is noted in it.

        Returns:
            None where nothing has to be summarised now, else the ids of task, summary and kept turns.

        Raises:
            TypeError: if the writer returns something else than a text.
        """
        count = self._count(history)
        if count is None:
            return None
        text = self._write(history, count)
        return self._put(history, count, _waited_for(text) if inspect.isawaitable(text) else text)

    async def anext_prompt(self, history: History) -> tuple[int, ...] | None:
        """Do the same, awaiting the writer.

        Args:
            history: as in `next_prompt`.

        Returns:
            As `next_prompt`.

        Raises:
            TypeError: as `next_prompt`.
        """
        count = self._count(history)
        if count is None:
            return None
        text = self._write(history, count)
        return self._put(history, count, await text if inspect.isawaitable(text) else text)

    # ------------------------------------------------------------------------------------------------ its parts

    @property
    def reserve(self) -> int:
        """Tokens that a summary takes at most, with what stands around it."""
        return self.max_tokens + _OVERHEAD

    @property
    def _bound_to(self) -> _Place:
        if self.place is None:
            raise ValueError("this Summarise belongs to no environment: pass it as context=..., or take bound(env)")
        return self.place

    def _count(self, history: History) -> int | None:
        """How many turns, from the oldest on, the next summary tells of; None where there is none to be made."""
        exchanges, told = history.exchanges, history.summarised
        over = self._bound_to.room if self.over is None else self.over
        size = len(history.front_ids or history.head_ids) + sum(map(len, exchanges[told:]))
        if size <= over or history.ended or len(exchanges) - told < 2:
            return None
        count = max(told + 1, len(exchanges) - self.keep)
        kept = len(history.head_ids) + self.reserve + sum(map(len, exchanges[count:]))
        while count < len(exchanges) - 1 and kept > over:
            kept -= len(exchanges[count])
            count += 1
        return count

    def _put(self, history: History, count: int, text: Any) -> tuple[int, ...]:
        """Note a summary, and make the prompt that shows it."""
        if not isinstance(text, str):
            raise TypeError(f"a summary is a text, and {self.writer!r:.200} returned {text!r:.200}")
        place = self._bound_to
        shown = place.chat.truncate_text(text.strip(), self.max_tokens)
        note = summary_message(shown, count)
        if history.head_messages:
            front = place.chat.render([*history.head_messages, note], place.tools)
        else:  # the task came as ids: they stay, and an empty reply stands between them and the summary
            front = [*history.head_ids, *place.chat.turn([note], closed=False)]
        history.summary, history.summarised, history.front_ids = shown, count, tuple(front)
        return spliced(front, history.exchanges[count:])

    def _write(self, history: History, count: int) -> Any:
        """Ask the writer, for a text or something to be awaited."""
        if callable(getattr(self.writer, "generate", None)):
            return self._ask(history, count)
        return self.writer([self._in_words(one) for one in history.exchanges[:count]])

    def _in_words(self, exchange: Exchange) -> Exchange:
        """A turn whose answer is there as text, also where it came as ids."""
        if exchange.messages or not exchange.turn_ids:
            return exchange
        return replace(exchange, messages=({"role": "user", "content": self._bound_to.chat.decode(exchange.turn_ids, skip_special=True)},))

    async def _ask(self, history: History, count: int) -> str:
        """Let a policy write the summary: token ids in, token ids out, and only their text goes further."""
        chat = self._bound_to.chat
        room = min(self._bound_to.room, int(getattr(self.writer, "max_context", self._bound_to.room))) - self.max_tokens
        prompt = chat.render(self._question(history, count, room))
        seed = int.from_bytes(hashlib.blake2b(repr(prompt).encode(), digest_size=8).digest(), "little") >> 1
        sampling = Sampling(temperature=0.0, max_tokens=self.max_tokens, seed=seed, stop_token_ids=chat.end_of_turn_ids)
        reply = await self.writer.generate(prompt, sampling)
        text = chat.decode([int(one) for one in reply.token_ids], skip_special=True)
        return text.rpartition("</think>")[2]

    def _question(self, history: History, count: int, room: int) -> list[Message]:
        """The writer's prompt, its texts cut alike where they would not fit into `room` tokens."""
        chat = self._bound_to.chat
        task = "\n".join(str(message.get("content", "")) for message in history.head_messages) or chat.decode(
            history.head_ids, skip_special=True
        )
        head = [("Task", task)]
        if history.summary:
            head.append((f"What was noted of the first {history.summarised} turns", history.summary))
        turns = [
            piece
            for number, turn in enumerate(history.exchanges[history.summarised : count], start=history.summarised + 1)
            for piece in ((f"Turn {number}, the agent", turn.action_text), (f"Turn {number}, the answer", self._in_words(turn).answer))
        ]
        ask: Message = {"role": "system", "content": _ASK.format(words=max(8, self.max_tokens // 2))}
        each = max(_LEAST, room)
        while True:
            told = "\n\n".join(f"{name}:\n{chat.truncate_text(text, each)}" for name, text in (*head, *turns))
            messages: list[Message] = [ask, {"role": "user", "content": told}]
            if len(chat.render(messages)) <= room or (each == _LEAST and not turns):
                return messages
            if each == _LEAST:  # so many turns that not even their first words fit: the oldest are left out
                turns = turns[max(2, len(turns) // 8 * 2) :]
            else:
                each = max(_LEAST, min(each * 2 // 3, 2 * room // (len(head) + len(turns))))


def summary_message(summary: str, count: int) -> Message:
    """Return the message that shows a summary.

    Args:
        summary: its text.
        count: turns that it stands for.

    Returns:
        A user message.
    """
    turns = "turn" if count == 1 else f"{count} turns"
    return {"role": "user", "content": f"Summary of the first {turns}, which are left out:\n{summary or '(nothing)'}"}


def _waited_for(text: Awaitable[Any]) -> Any:
    """What an awaitable gives, where nobody can await it: the loop in which tools wait does."""
    if background.owns_current_thread():
        raise RuntimeError("step was called inside agent-gym's own event loop, where a summary cannot be waited for; use astep there")

    async def await_it() -> Any:
        return await text

    return background.submit(await_it()).result()
