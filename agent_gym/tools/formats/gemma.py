"""Calls of Gemma 4 and FunctionGemma: a name and arguments in braces, texts between two tokens instead of quotes.

An own reader (`literals`): transformers' parser of this family takes time that grows with the square of the number of texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import regex

from agent_gym.tools.calls import REASONING_TAGS, InvalidJSON, ToolCall
from agent_gym.tools.formats.base import Schemas, check_name, schema_lines
from agent_gym.tools.formats.literals import LiteralReader
from agent_gym.tools.formats.response_templates import RESPONSE_TEMPLATES
from agent_gym.tools.formats.tags import TagFormat

__all__ = ["FunctionGemmaFormat", "GemmaFormat"]

_BARE_KEY = regex.compile(r"[^\W\d][\w\-]*+")
_PLAIN_KEY = regex.compile(r"[^\W\d]\w*+")  # what transformers' parser takes for a key too


class _Reader(LiteralReader):
    def __init__(self, text: str, at: int, quote: str) -> None:
        super().__init__(text, at)
        self.quote = quote

    def string(self) -> str | None:
        if not self.takes(self.quote):
            return None
        end = self.text.find(self.quote, self.at)
        if end < 0:
            self.fail(f"a text has no closing {self.quote}")
        start, self.at = self.at, end + len(self.quote)
        return self.text[start:end]

    def key(self) -> str:
        text = self.string()
        if text is not None:
            return text
        found = _BARE_KEY.match(self.text, self.at)
        if found is None:
            self.fail("a key is missing")
        self.at = found.end()
        return str(found.group())


class GemmaFormat(TagFormat):
    """`<|tool_call>call:name{key:<|"|>text<|"|>,number:3}<tool_call|>`: Gemma 4.

    Attributes:
        quote: what stands before and behind a text.
    """

    name = "gemma"
    opening, closing = "<|tool_call>", "<tool_call|>"
    quote: ClassVar[str] = '<|"|>'
    markers: tuple[str, ...] = (
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|tool>",
        "<tool|>",
        "<|channel>",
        "<channel|>",
        '<|"|>',
    )
    reasoning: ClassVar[tuple[tuple[str, str], ...]] = (("<|channel>", "<channel|>"), REASONING_TAGS)
    turn_ends = ("<|tool_response>",)
    response_template = RESPONSE_TEMPLATES["gemma"]
    _head = regex.compile(r"\s*call:\s*(?P<name>[^\s{}<>]++)\s*(?=\{)")

    def _thought(self, text: str) -> str:
        return text.lstrip().removeprefix("thought\n") if text.lstrip() != "thought" else ""

    def _read(self, body: str, tools: Schemas) -> ToolCall:
        head = self._head.match(body)
        if head is None:
            return ToolCall("", {}, body, f"call:name and braces are missing behind {self.opening}" if body.strip() else "it is empty")
        reader = _Reader(body, head.end(), self.quote)
        try:
            arguments = reader.value()
            if reader.sees("") and reader.at < len(body):
                reader.fail("there is text behind the arguments")
        except InvalidJSON as error:
            return ToolCall(head["name"], {}, body, f"in its arguments {error}")
        return ToolCall(head["name"], arguments, body)

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`."""
        return f"{self.opening}call:{check_name(name, self.name)}{self._written(dict(arguments))}{self.closing}"

    def render_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Write the calls of one reply; see `ToolCallFormat.render_calls`."""
        return "".join(self.render_call(name, arguments) for name, arguments in calls)

    def _text(self, text: str) -> str:
        if self.quote in text or self.closing in text:
            raise ValueError(f"{self.name} cannot write the text {text!r}: it holds {self.quote} or {self.closing}")
        return f"{self.quote}{text}{self.quote}"

    def _written(self, value: Any) -> str:
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        if isinstance(value, Mapping):
            pairs = (f"{key if _PLAIN_KEY.fullmatch(key) else self._text(key)}:{self._written(item)}" for key, item in value.items())
            return "{" + ",".join(pairs) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ",".join(map(self._written, value)) + "]"
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{self.name} cannot write the number {value}")
        return repr(value)

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return (
            f"{schema_lines(tools)}To call a tool, write its name and its arguments, texts between {self.quote} and {self.quote}, as in this "
            f"example:\n{self.render_call('name', {'key': 'a text', 'number': 3})}"
        )


class FunctionGemmaFormat(GemmaFormat):
    """`<start_function_call>call:name{key:<escape>text<escape>}<end_function_call>`: FunctionGemma."""

    name = "functiongemma"
    opening, closing = "<start_function_call>", "<end_function_call>"
    quote = "<escape>"
    markers = (
        "<start_function_call>",
        "<end_function_call>",
        "<start_function_response>",
        "<end_function_response>",
        "<start_function_declaration>",
        "<end_function_declaration>",
        "<escape>",
        *REASONING_TAGS,
    )
    reasoning = (REASONING_TAGS,)
    turn_ends = ("<start_function_response>",)
    response_template = RESPONSE_TEMPLATES["functiongemma"]
