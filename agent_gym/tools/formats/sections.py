"""Calls whose arguments are a JSON object behind a head with the tool's name: Kimi, DeepSeek up to V3.1, Mistral.

The JSON is read strictly by our own reader; `response_template` says the same to transformers' parser, which tests hold equal on well-formed
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import regex

from agent_gym.tools.calls import REASONING_TAGS, InvalidJSON, ParsedAction, ToolCall, read_call, read_json, read_json_at
from agent_gym.tools.formats.base import Schemas, ToolCallFormat, check_name, join_pieces, json_text, schema_lines, split_regions
from agent_gym.tools.formats.response_templates import RESPONSE_TEMPLATES
from agent_gym.tools.formats.tags import TagFormat

__all__ = ["DeepSeekFormat", "DeepSeekV3Format", "KimiFormat", "MistralFormat", "MistralListFormat"]


def _arguments(name: str, text: str, raw: str) -> ToolCall:
    """The call of a tool whose arguments are this JSON text."""
    try:
        return read_call({"name": name, "arguments": read_json(text.strip())}, raw)
    except InvalidJSON as error:
        return ToolCall(name, {}, raw, f"in its arguments {error}")


class HeadFormat(TagFormat):
    """A format whose calls are a head with the tool's name and a JSON object, between tags, and several of them in a section.

    Attributes:
        heads: what may stand between the opening tag and the JSON object, tried in this order; the group `name` is the tool's.
        head_text: the head, for the message of a call without one.
        fence: what may stand behind the object.
    """

    heads: ClassVar[tuple[Any, ...]]
    head_text: ClassVar[str]
    fence: ClassVar[str] = ""

    def _read(self, body: str, tools: Schemas) -> ToolCall:
        head = next((found for one in self.heads if (found := one.match(body)) is not None), None)
        if head is None:
            return ToolCall("", {}, body, f"{self.head_text} is missing behind {self.opening}" if body.strip() else "it is empty")
        text = body[head.end() :]
        if self.fence and head.groupdict().get("fence"):
            text, fence, rest = text.rpartition(self.fence)
            if not fence or rest.strip():
                return ToolCall(head["name"], {}, body, f"the closing {self.fence} is missing")
        return _arguments(head["name"], text, body)

    def _head(self, name: str, index: int) -> str:
        """The head of a call, as it is written."""
        raise NotImplementedError

    def _call(self, name: str, arguments: Mapping[str, Any], index: int) -> str:
        head = self._head(check_name(name, self.name), index)
        return f"{self.opening}{head}{json_text(dict(arguments), self.markers)}{self.closing}"

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call in a section of its own; see `ToolCallFormat.render_call`."""
        return self.render_calls([(name, arguments)])

    def render_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Write the calls of one reply in one section; see `ToolCallFormat.render_calls`."""
        written = "".join(self._call(name, arguments, index) for index, (name, arguments) in enumerate(calls))
        return f"{self.sections[0]}{written}{self.sections[1]}"

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return (
            f"{schema_lines(tools)}To call a tool, write its name and a JSON object of its arguments in these tags; for several calls, several "
            f"within one section:\n{self.render_call('name', {'key': 'value'})}"
        )


class KimiFormat(HeadFormat):
    """`<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|>` in a section: Kimi K2 and K2.5."""

    name = "kimi"
    opening, closing = "<|tool_call_begin|>", "<|tool_call_end|>"
    sections = (
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_section_begin|>",  # the model also writes the singular
        "<|tool_call_section_end|>",
    )
    markers = (*sections, opening, closing, "<|tool_call_argument_begin|>", *REASONING_TAGS)
    heads = (regex.compile(r"\s*(?:functions\.)?(?P<name>[^\s:<>]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>"),)
    head_text = "functions.name:index<|tool_call_argument_begin|>"
    response_template = RESPONSE_TEMPLATES["kimi"]

    def _head(self, name: str, index: int) -> str:
        return f"functions.{name}:{index}<|tool_call_argument_begin|>"


_SEP = "<｜tool▁sep｜>"
_V3_HEAD = regex.compile(rf"\s*[a-z_]*{_SEP}(?P<name>[^\s<>`{{}}]+)\s*(?P<fence>```)(?:json)?")
_V31_HEAD = regex.compile(rf"\s*(?P<name>[^\s<>`{{}}]+)\s*{_SEP}")


class DeepSeekFormat(HeadFormat):
    """`<｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>` in a section: DeepSeek V3.1. Calls of V3 and R1 are read as well."""

    name = "deepseek"
    opening, closing = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
    sections = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
    markers = (
        *sections,
        opening,
        closing,
        _SEP,
        "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>",
        "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>",
        *REASONING_TAGS,
    )
    heads = (_V3_HEAD, _V31_HEAD)
    head_text = f"name{_SEP}"
    fence = "```"
    response_template = RESPONSE_TEMPLATES["deepseek"]

    def _head(self, name: str, index: int) -> str:
        return f"{name}{_SEP}"


class DeepSeekV3Format(DeepSeekFormat):
    """``function<｜tool▁sep｜>name``, a line break, and the object between fences of three backquotes: DeepSeek V3 and R1. V3.1 is read as well."""

    name = "deepseek_v3"
    head_text = f"function{_SEP}name and a fence"
    response_template = RESPONSE_TEMPLATES["deepseek_v3"]

    def _call(self, name: str, arguments: Mapping[str, Any], index: int) -> str:
        body = json_text(dict(arguments), self.markers)
        line = "\n" if index else ""
        return f"{line}{self.opening}function{_SEP}{check_name(name, self.name)}\n```json\n{body}\n```{self.closing}"


# ------------------------------------------------------------------------------------------------ Mistral


class MistralFormat(ToolCallFormat):
    """`[TOOL_CALLS]name[ARGS]{...}` for each call: Mistral models since tokenizer v11 (Small 3.2, Magistral, Devstral, Ministral 3).

    The list of older models, `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, is read as well. Nothing closes a call, so text behind
    its object is content.
    """

    name = "mistral"
    opening = "[TOOL_CALLS]"
    markers = (
        "[TOOL_CALLS]",
        "[ARGS]",
        "[CALL_ID]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[TOOL_CONTENT]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[THINK]",
        "[/THINK]",
        *REASONING_TAGS,
    )
    reasoning = (("[THINK]", "[/THINK]"), REASONING_TAGS)
    response_template = RESPONSE_TEMPLATES["mistral"]
    _head = regex.compile(r"\s*(?P<name>[^\s\[\]{}\"]++)\s*(?:\[CALL_ID\]\s*[^\s\[\]{}\"]*+\s*)?(?P<arguments>\[ARGS\])?\s*")
    _gap = regex.compile(r"[\s,]*+")
    _between = regex.compile(r",\s*+(?=\{\s*+\"(?:name|arguments|id|function|type)\")")

    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply; see `ToolCallFormat.parse`."""
        outside, thoughts = split_regions(text, prefix, self.reasoning)
        content: list[str] = []
        calls: list[ToolCall] = []
        for piece in outside:
            first = piece.find(self.opening)
            content.append(piece if first < 0 else piece[:first])
            while first >= 0:
                start = first + len(self.opening)
                first = piece.find(self.opening, start)
                stop = len(piece) if first < 0 else first
                found, rest = self._read(piece[start:stop])
                if found[-1].error is not None and first >= 0:  # the opening may stand inside a text of its arguments
                    second = piece.find(self.opening, first + len(self.opening))
                    longer, further = self._read(piece[start : len(piece) if second < 0 else second])
                    if longer[-1].error is None and len(longer) == 1:
                        found, rest, first = longer, further, second
                calls += found
                if rest.strip():
                    content.append(rest)
        shown = join_pieces(content)
        marked = bool(calls) or any(one in shown for one in ("[TOOL_CALLS", "[ARGS]", "[CALL_ID]"))
        return ParsedAction(shown, join_pieces(thoughts), tuple(calls), marked, tuple(content))

    def _read(self, body: str) -> tuple[list[ToolCall], str]:
        """The calls behind one opening, and the text behind them."""
        if body.lstrip().startswith("["):
            return self._read_list(body)
        head = self._head.match(body)
        if head is None:
            return [ToolCall("", {}, body, f"a tool's name is missing behind {self.opening}" if body.strip() else "it is empty")], ""
        name, at = head["name"], head.end()
        if not head["arguments"] and not body.startswith("{", at):
            return [ToolCall(name, {}, body, f"[ARGS] and a JSON object are missing behind the name {name[:40]!r}")], ""
        try:
            arguments, end = read_json_at(body, at)
        except InvalidJSON as error:
            return [ToolCall(name, {}, body, f"in its arguments {error}")], ""
        rest = body[end:]
        if rest.lstrip()[:1] in tuple('{}[],:"'):
            return [ToolCall(name, {}, body, "there is more than one JSON object in its arguments")], ""
        return [read_call({"name": name, "arguments": arguments}, body[:end])], rest

    def _read_list(self, body: str) -> tuple[list[ToolCall], str]:
        """The calls of a list of JSON objects, each alone, and the text behind it."""
        calls: list[ToolCall] = []
        at = body.index("[") + 1
        while True:
            at = self._gap.match(body, at).end()
            if at >= len(body) or body[at] == "]":
                return calls or [ToolCall("", {}, body, "the list holds no call")], body[at + 1 :]
            try:
                payload, end = read_json_at(body, at)
            except InvalidJSON:
                break
            calls.append(read_call(payload, body[at:end]))
            at = end
        parts = self._between.split(body[at:])
        for number, part in enumerate(parts, start=1):
            text = part.rstrip().removesuffix("]") if number == len(parts) else part
            try:
                calls.append(read_call(read_json(text), part))
            except InvalidJSON as error:
                calls.append(ToolCall("", {}, part, str(error)))
        return calls, ""

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`."""
        return f"{self.opening}{check_name(name, self.name)}[ARGS]{json_text(dict(arguments), self.markers)}"

    def render_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Write the calls of one reply; see `ToolCallFormat.render_calls`."""
        return "".join(self.render_call(name, arguments) for name, arguments in calls)

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return (
            f"{schema_lines(tools)}To call a tool, write its name and a JSON object of its arguments, as in this example; for several calls, "
            f"several of it:\n{self.render_call('name', {'key': 'value'})}"
        )


class MistralListFormat(MistralFormat):
    """`[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`: Mistral models before tokenizer v11. The newer form is read as well."""

    name = "mistral_list"
    response_template = RESPONSE_TEMPLATES["mistral_list"]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`."""
        return self.render_calls([(name, arguments)])

    def render_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Write the calls of one reply as one list; see `ToolCallFormat.render_calls`."""
        listed = [{"name": check_name(name, self.name), "arguments": dict(arguments)} for name, arguments in calls]
        return f"{self.opening} {json_text(listed, self.markers)}"
