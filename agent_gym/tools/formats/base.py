"""The interface of every format of tool calls, and what all of them share: the list of schemas, pieces of content, reasoning that a prompt opened.

Every format reads a reply in linear time, reads each call on its own (a broken call costs only itself), and never raises.

What is shared with transformers' parser: reasoning and calls are regions; whatever stands first opens; inside a region only its own end
counts, so a tag inside reasoning is text. Where the two read well-formed text, tests hold them equal.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from agent_gym.tools.calls import REASONING_TAGS, ParsedAction, ToolCall

__all__ = [
    "NAME",
    "Schemas",
    "ToolCallFormat",
    "check_name",
    "join_pieces",
    "json_text",
    "open_reasoning",
    "refuse_infinite",
    "schema_lines",
    "split_regions",
]

Schemas = Sequence[Mapping[str, Any]]

NAME = re.compile(r"[A-Za-z0-9_][\w.\-]{0,255}", re.ASCII)
"""A tool's name that every format can write and read: what function-calling interfaces allow, with dots."""


class ToolCallFormat(ABC):
    """How calls are written.

    Attributes:
        name: in `get_format`.
        markers: the literals that are control text in this format; text from the world must not forge them (see `agent_gym.chat.Chat`).
        reasoning: the literals that open and close reasoning, in pairs.
        turn_ends: literals that end a reply, beside those that the chat template shows. Those that are one token end actions.
        response_template: how transformers' parser reads a whole message of this family (`tokenizer.response_template`), as data for
            other programs. None where it cannot say it. It does not part good calls from broken ones, as `parse` does.
    """

    name: str
    markers: tuple[str, ...]
    reasoning: ClassVar[tuple[tuple[str, str], ...]] = (REASONING_TAGS,)
    turn_ends: ClassVar[tuple[str, ...]] = ()
    response_template: Mapping[str, Any] | None = None

    @abstractmethod
    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply. Never raises.

        Args:
            text: one action's text, control tokens as their literals.
            prefix: the end of the prompt, from the assistant's turn on; it may have opened reasoning.
            tools: schemas in OpenAI's form; formats that write every argument as text (`qwen3_coder`, `glm`) take the types from them.

        Returns:
            The reply, taken apart.
        """

    @abstractmethod
    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call, as an expert does.

        Args:
            name: of the tool.
            arguments: JSON values by name.

        Returns:
            Text that `parse` reads as this one call.

        Raises:
            ValueError: where the format cannot write the call.
        """

    def render_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Write the calls of one reply.

        Args:
            calls: name and arguments of each.

        Returns:
            Text that `parse` reads as these calls.

        Raises:
            ValueError: where the format cannot write one of them.
        """
        return "\n".join(self.render_call(name, arguments) for name, arguments in calls)

    def as_reply(self, text: str) -> tuple[str, str | None]:
        """Bring a reply that a person or an expert wrote into the form of the family's replies.

        Args:
            text: calls and text.

        Returns:
            The text, and the literal that ends such a reply; None for the end of turn that the chat template shows. Most families write
            replies as they are; `gpt_oss` puts a header before an answer.
        """
        return text, None

    def close_reasoning(self, prefix: str) -> str:
        """Return what an expert writes first where the prompt ends inside reasoning.

        Args:
            prefix: the end of the prompt, from the assistant's turn on.

        Returns:
            The closing of that reasoning and an empty line; nothing where the prompt opened none.
        """
        closing = open_reasoning(prefix, self.reasoning)
        return "" if closing is None else f"{closing}\n\n"

    @abstractmethod
    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call, for chat templates that do not.

        Args:
            tools: schemas in OpenAI's form.

        Returns:
            Text for the system message.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


# ------------------------------------------------------------------------------------------------ writing


def schema_lines(tools: Schemas) -> str:
    """Return the paragraph of our own instructions that lists the tools; empty without any.

    Args:
        tools: JSON schemas.

    Returns:
        Text that ends with an empty line, or nothing.
    """
    if not tools:
        return ""
    lines = "\n".join(json.dumps(dict(one), ensure_ascii=False) for one in tools)
    return f"You can call these tools; each line is the JSON schema of one:\n{lines}\n\n"


def check_name(name: str, form: str) -> str:
    """Return a tool's name, or raise ValueError where this format could not read it again.

    Args:
        name: of a tool.
        form: the format's name, for the message.

    Returns:
        The name as it is.

    Raises:
        ValueError: where it could not be read again.
    """
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{form} cannot write a call of {name!r}: a tool's name has letters, digits, underscores, hyphens and dots, and at most 256 of them"
        )
    return name


def json_text(value: Any, markers: Iterable[str] = ()) -> str:
    """Return a value as JSON in which no marker stands: the first character of one that stands in a string is written as its escape.

    Args:
        value: JSON values.
        markers: literals that are control text.

    Returns:
        One line.

    Raises:
        ValueError: for NaN and Infinity, which JSON has not.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    for marker in markers:
        if marker in text:
            text = text.replace(marker, f"\\u{ord(marker[0]):04x}{marker[1:]}")
    return text


# ------------------------------------------------------------------------------------------------ reading


def join_pieces(pieces: Sequence[str]) -> str:
    """Strip the pieces and join those that hold something by line breaks.

    Args:
        pieces: of a reply's text.

    Returns:
        The text; empty where no piece holds anything.
    """
    if len(pieces) == 1:
        return pieces[0].strip()
    return "\n".join(stripped for piece in pieces if (stripped := piece.strip()))


def refuse_infinite(call: ToolCall) -> ToolCall:
    """The call, or its error where an argument is no number that JSON can write.

    Args:
        call: as it was read.

    Returns:
        The same call, or one with an error.
    """
    waiting: list[Any] = [call.arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return ToolCall(call.name, {}, call.raw, "it holds NaN or Infinity")
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return call


def open_reasoning(prefix: str, pairs: Sequence[tuple[str, str]]) -> str | None:
    """Return the literal that closes the reasoning in which a prompt ends; None where it ends in none.

    Args:
        prefix: the end of the prompt, from the assistant's turn on.
        pairs: openings and closings.

    Returns:
        The closing.
    """
    if not prefix:
        return None
    last, closing = -1, None
    for opens, closes in pairs:
        at = prefix.rfind(opens)
        if at > max(last, prefix.rfind(closes)):
            last, closing = at, closes
    return closing


def split_regions(text: str, prefix: str, pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """Part a reply into what stands outside and inside reasoning. Reasoning that nothing closes runs to the end.

    Args:
        text: the reply.
        prefix: the end of the prompt, from the assistant's turn on.
        pairs: openings and closings of reasoning.

    Returns:
        The pieces outside and the pieces inside, in order.
    """
    outside: list[str] = []
    inside: list[str] = []
    closing = open_reasoning(prefix, pairs)
    closings = dict(pairs)
    pattern = re.compile("|".join(map(re.escape, closings)))
    at = 0
    while True:
        if closing is not None:
            end = text.find(closing, at)
            inside.append(text[at:] if end < 0 else text[at:end])
            if end < 0:
                return outside, inside
            at, closing = end + len(closing), None
        found = pattern.search(text, at)
        if found is None:
            outside.append(text[at:])
            return outside, inside
        outside.append(text[at : found.start()])
        at, closing = found.end(), closings[found.group()]
