"""What a reply is read into: `ToolCall` and `ParsedAction`, with the strict JSON reader and the answer tag that all formats share.

JSON is read strictly, because a lenient reader decides for the model: NaN and Infinity, a key given twice, single quotes, a number that no
float can hold and half a Unicode surrogate are errors that the model is told about. Every error is one line and the same on every machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

__all__ = [
    "REASONING_TAGS",
    "InvalidJSON",
    "ParsedAction",
    "ToolCall",
    "extract_answer",
    "opens_reasoning",
    "read_call",
    "read_json",
    "read_json_at",
    "split_reasoning",
]

REASONING_TAGS = ("<think>", "</think>")
"""What opens and closes reasoning. Nothing inside it is a call, an answer or content."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model wrote.

    Attributes:
        name: of the tool; empty where it could not be read.
        arguments: by name; empty where they could not be read.
        raw: the text of the call as the model wrote it.
        error: what is wrong with the text, one line; None for a call that could be read.
    """

    name: str
    arguments: dict[str, Any]
    raw: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """A reply, taken apart.

    Attributes:
        content: the text outside reasoning and calls; its pieces are stripped and joined by line breaks.
        reasoning: the text inside reasoning, likewise.
        calls: in the order of the text, the broken ones among them.
        has_marker: whether the reply holds a call or anything that looks like the beginning or the end of one, outside reasoning.
        pieces: the pieces of `content` in order; reasoning or calls stand between two. Empty where a format tells of none.
    """

    content: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = field(default=())
    has_marker: bool = False
    pieces: tuple[str, ...] = field(default=(), compare=False)

    @property
    def answer(self) -> str | None:
        """The text of the last closed `<answer>` tag; one that reasoning or a call stands in is none. None without one."""
        found = (extract_answer(piece) for piece in reversed(self.pieces or (self.content,)))
        return next((one for one in found if one is not None), None)


# ------------------------------------------------------------------------------------------------ JSON


class InvalidJSON(ValueError):
    """The text is no JSON that we accept; the message is one line for the model."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add returns None
        raise InvalidJSON(f"the key {_short(twice)} stands in it twice")
    return made


def _refuse(constant: str) -> NoReturn:
    raise InvalidJSON(f"{constant} is not a JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidJSON(f"the number {_short(text)} is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)


def _short(text: str) -> str:
    return json.dumps(text if len(text) <= 40 else f"{text[:40]}...")


def read_json(text: str) -> Any:
    """Read a JSON text strictly.

    Args:
        text: the whole text; white space around it is allowed.

    Returns:
        The value.

    Raises:
        InvalidJSON: with a line that says what is wrong.
    """
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise _as_invalid(error, text) from None
    return _without_surrogates(value, text)


def read_json_at(text: str, at: int) -> tuple[Any, int]:
    """Read the JSON value that begins at a place of a text, whatever stands behind it.

    Args:
        text: the text.
        at: where the value begins; no white space is skipped.

    Returns:
        The value, and where it ends.

    Raises:
        InvalidJSON: with a line that says what is wrong.
    """
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        raise _as_invalid(error, "." if at < len(text) else "") from None
    return _without_surrogates(value, text[at:end]), end


def _as_invalid(error: Exception, text: str) -> InvalidJSON:
    """The error of the decoder in our words, which are the same in every version of Python."""
    if isinstance(error, InvalidJSON):
        return error
    if isinstance(error, json.JSONDecodeError):
        return InvalidJSON("it is empty" if not text.strip() else f"it is not valid JSON at character {error.pos}")
    if isinstance(error, RecursionError):
        return InvalidJSON("it is nested too deeply")
    return InvalidJSON("it holds a number with too many digits")


def _without_surrogates(value: Any, text: str) -> Any:
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidJSON("it holds half a Unicode surrogate pair") from None
    return value


def read_call(payload: Any, raw: str, *, arguments_key: str = "arguments") -> ToolCall:
    """Make a call of a decoded JSON value.

    Args:
        payload: what the model wrote as the call.
        raw: its text.
        arguments_key: "arguments" in most formats, "parameters" in Llama's.

    Returns:
        The call, with `error` set where the value is none.
    """
    if type(payload) is not dict:
        return ToolCall("", {}, raw, f"a call is one JSON object, not {_kind(payload)}")
    name = payload.get("name")
    if type(name) is not str or not name:
        return ToolCall(
            "", {}, raw, 'the key "name" is missing' if name is None else f'"name" must be the name of a tool, not {_kind(name)}'
        )
    arguments = payload.get(arguments_key, payload)
    if arguments is payload:
        if len(payload) == 1:
            return ToolCall(name, {}, raw)
        return ToolCall(name, {}, raw, f'the key "{arguments_key}" is missing')
    if type(arguments) is str:  # some models write the arguments as a JSON text; that is undone once
        try:
            arguments = read_json(arguments)
        except InvalidJSON as error:
            return ToolCall(name, {}, raw, f'"{arguments_key}" is a text, and as JSON {error}')
    if type(arguments) is not dict:
        return ToolCall(name, {}, raw, f'"{arguments_key}" must be a JSON object, not {_kind(arguments)}')
    return ToolCall(name, arguments, raw)


def _kind(value: Any) -> str:
    """JSON's name of a value's type, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    return (
        "a text"
        if isinstance(value, str)
        else "a list"
        if isinstance(value, Sequence)
        else "an object"
        if isinstance(value, Mapping)
        else "this"
    )


# ------------------------------------------------------------------------------------------------ reasoning and answers


def opens_reasoning(prefix: str) -> bool:
    """Whether a prompt ends inside reasoning, as templates that write `<think>` for the model do.

    Args:
        prefix: the end of the prompt, from the assistant's turn on.

    Returns:
        True if its last reasoning tag opens.
    """
    return bool(prefix) and prefix.rfind(REASONING_TAGS[0]) > prefix.rfind(REASONING_TAGS[1])


def split_reasoning(text: str, *, inside: bool = False) -> tuple[list[str], list[str]]:
    """Part a reply into what stands outside and inside reasoning. Reasoning that nothing closes runs to the end.

    Args:
        text: the reply.
        inside: whether it begins inside reasoning.

    Returns:
        The pieces outside and the pieces inside, in order.
    """
    opening, closing = REASONING_TAGS
    if not inside and opening not in text:
        return [text], []
    outside: list[str] = []
    reasoning: list[str] = []
    at = 0
    while True:
        end = text.find(closing if inside else opening, at)
        piece = text[at:] if end < 0 else text[at:end]
        (reasoning if inside else outside).append(piece)
        if end < 0:
            return outside, reasoning
        at = end + len(closing if inside else opening)
        inside = not inside


def extract_answer(text: str, *, tag: str = "answer", prefix: str = "") -> str | None:
    """Return the answer that a reply gives: the text of its last closed answer tag outside reasoning.

    Args:
        text: one action's text alone. Text of the world (tool results, pages, the prompt) does not belong in here: it would be paid for.
        tag: the tag's name.
        prefix: the end of the prompt, which may have opened the reasoning.

    Returns:
        The text between the tags, stripped; None without a closed tag.
    """
    opening, closing = f"<{tag}>", f"</{tag}>"
    if closing not in text:
        return None
    for piece in reversed(split_reasoning(text, inside=opens_reasoning(prefix))[0]):
        start = piece.rfind(opening, 0, max(piece.rfind(closing), 0))
        if start >= 0:
            start += len(opening)
            return piece[start : piece.find(closing, start)].strip()
    return None
