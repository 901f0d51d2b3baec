"""Formats of tool calls: how a model family writes a call, read from text and written to text.

Every format reads a reply in linear time, reads each call on its own (a broken call costs only itself), and never raises. `hermes`,
`search_tags` and `llama3_json` are our own scanners: transformers' parser raises on the first broken call, and takes NaN, repeated keys and
lists for calls. `qwen3_coder` and every response template given as a dict go through transformers' parser, one call at a time, around a
splitter of our own.

What is shared with transformers' parser: reasoning and calls are regions; whatever stands first opens; inside a region only its own end
counts, so a tag inside reasoning is text. Where the two read well-formed text, tests hold them equal.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import regex

from agent_gym.tools.calls import (
    REASONING_TAGS,
    InvalidJSON,
    ParsedAction,
    ToolCall,
    opens_reasoning,
    read_call,
    read_json,
    read_json_at,
    split_reasoning,
)

__all__ = ["HermesFormat", "Llama3JsonFormat", "Qwen3CoderFormat", "SearchTagsFormat", "TagFormat", "TemplateFormat", "ToolCallFormat"]

Schemas = Sequence[Mapping[str, Any]]


class ToolCallFormat(ABC):
    """How calls are written.

    Attributes:
        name: in `get_format`.
        markers: the literals that are control text in this format; text from the world must not forge them (see `agent_gym.chat.Chat`).
    """

    name: str
    markers: tuple[str, ...]

    @abstractmethod
    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply. Never raises.

        Args:
            text: one action's text, control tokens as their literals.
            prefix: the end of the prompt, from the assistant's turn on; it may have opened reasoning.
            tools: schemas in OpenAI's form; formats that write every argument as text (`qwen3_coder`) take the types from them.

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


def _schema_lines(tools: Schemas) -> str:
    if not tools:
        return ""
    lines = "\n".join(json.dumps(dict(one), ensure_ascii=False) for one in tools)
    return f"You can call these tools; each line is the JSON schema of one:\n{lines}\n\n"


def _join(pieces: Sequence[str]) -> str:
    if len(pieces) == 1:
        return pieces[0].strip()
    return "\n".join(stripped for piece in pieces if (stripped := piece.strip()))


def _refuse_infinite(call: ToolCall) -> ToolCall:
    """The call, or its error where an argument is no number that JSON can write."""
    waiting: list[Any] = [call.arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return ToolCall(call.name, {}, call.raw, "it holds NaN or Infinity")
        waiting += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return call


# ------------------------------------------------------------------------------------------------ calls between two tags


class TagFormat(ToolCallFormat):
    """A format whose calls stand between an opening and a closing tag. Subclasses read one body.

    An opening tag inside a body is text if the body as a whole can be read, as a tag inside a JSON string is. Otherwise it begins a call of
    its own, and the one before it lacks its closing tag.
    """

    opening: str
    closing: str

    @abstractmethod
    def _read(self, body: str, tools: Schemas) -> ToolCall:
        """Read what stands between the tags."""

    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply; see `ToolCallFormat.parse`."""
        opening, closing = self.opening, self.closing
        think, unthink = REASONING_TAGS
        size = len(text)
        content: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall] = []
        at = 0
        if prefix and opens_reasoning(prefix):
            end = text.find(unthink)
            reasoning.append(text if end < 0 else text[:end])
            at = size if end < 0 else end + len(unthink)
        next_think = text.find(think, at)
        next_call = text.find(opening, at)
        while at < size:
            if 0 <= next_think < at:
                next_think = text.find(think, at)
            if 0 <= next_call < at:
                next_call = text.find(opening, at)
            if next_call >= 0 and (next_think < 0 or next_call < next_think):
                if next_call > at:
                    content.append(text[at:next_call])
                start = next_call + len(opening)
                end = text.find(closing, start)
                if end < 0:
                    calls += [self._unclosed(part) for part in text[start:].split(opening)]
                    at = size
                else:
                    self._read_region(text[start:end], tools, calls)
                    at = end + len(closing)
            elif next_think >= 0:
                if next_think > at:
                    content.append(text[at:next_think])
                start = next_think + len(think)
                end = text.find(unthink, start)
                reasoning.append(text[start:] if end < 0 else text[start:end])
                at = size if end < 0 else end + len(unthink)
            else:
                content.append(text[at:])
                break
        shown = _join(content)
        marked = bool(calls) or opening[:-1] in shown or closing[:-1] in shown
        return ParsedAction(shown, _join(reasoning), tuple(calls), marked, tuple(content))

    def _read_region(self, body: str, tools: Schemas, calls: list[ToolCall]) -> None:
        call = self._read(body, tools)
        if call.error is not None and self.opening in body:
            parts = body.split(self.opening)
            calls += [self._unclosed(part) for part in parts[:-1]]
            call = self._read(parts[-1], tools)
        calls.append(call)

    def _unclosed(self, body: str) -> ToolCall:
        return ToolCall("", {}, body, f"the call has no closing {self.closing}")


class HermesFormat(TagFormat):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: Hermes, Qwen2.5, Qwen3 and many others."""

    name = "hermes"
    opening, closing = "<tool_call>", "</tool_call>"
    markers = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", *REASONING_TAGS)

    def _read(self, body: str, tools: Schemas) -> ToolCall:
        try:
            payload = read_json(body)
        except InvalidJSON as error:
            return ToolCall("", {}, body, str(error))
        return read_call(payload, body)

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`."""
        payload = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
        if self.closing in payload:  # inside a JSON string; the closing tag would end the call
            payload = payload.replace(self.closing, "<\\/tool_call>")
        return f"{self.opening}\n{payload}\n{self.closing}"

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return (
            f"{_schema_lines(tools)}To call a tool, write one JSON object with its name and arguments between the tags:\n"
            '<tool_call>\n{"name": "...", "arguments": {...}}\n</tool_call>'
        )


class SearchTagsFormat(TagFormat):
    """`<search>query</search>`: one tool with one text argument, as Search-R1 (arXiv 2503.09516) writes it.

    Args:
        tool: the name of the tool that the tag calls.
        argument: the name of its argument.
    """

    name = "search_tags"
    opening, closing = "<search>", "</search>"
    markers = ("<search>", "</search>", "<answer>", "</answer>", *REASONING_TAGS)

    def __init__(self, tool: str = "search", argument: str = "query") -> None:
        self.tool = tool
        self.argument = argument

    def _read(self, body: str, tools: Schemas) -> ToolCall:
        if self.opening in body:
            return self._unclosed(body)
        return ToolCall(self.tool, {self.argument: body.strip()}, body)

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`."""
        query = arguments.get(self.argument)
        if name != self.tool or set(arguments) != {self.argument} or not isinstance(query, str):
            raise ValueError(f"search_tags can only call {self.tool}({self.argument}=text), not {name}({', '.join(arguments)})")
        if self.opening in query or self.closing in query or query != query.strip():
            raise ValueError(f"search_tags cannot write the query {query!r}: it holds a tag, or blanks at an end")
        return f"{self.opening}{query}{self.closing}"

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return "To search, write the query between the tags: <search>query</search>"


QWEN3_CODER_TEMPLATE: dict[str, Any] = {
    "defaults": {},
    "start_anchor_pattern": r"\A",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^\n>]+)>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                # One line break on each side belongs to the format, further white space to the value. The dot stops at the next tag, so
                # that parameters without an end cost linear time.
                "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>(?:(?!\n?</parameter>|<parameter=).)*+)\n?</parameter>",
                "value_parser": {"name": "text", "args": {"strip": False}},
            },
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"content": "text"},
    },
}
"""Our response template of the XML-like calls of Qwen3-Coder and Qwen3.5, for one call alone."""


class Qwen3CoderFormat(TagFormat):
    """`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`: Qwen3-Coder, Qwen3.5, Nemotron 3."""

    name = "qwen3_coder"
    opening, closing = "<tool_call>", "</tool_call>"
    markers = (
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<function=",
        "</function>",
        "<parameter=",
        "</parameter>",
        *REASONING_TAGS,
    )
    _parameter = regex.compile(QWEN3_CODER_TEMPLATE["fields"]["tool_calls"]["content_args"]["tag_pattern"], regex.DOTALL)
    _function = regex.compile(r"\s*<function=([^\n>]+)>\s*")

    @cached_property
    def _template(self) -> Any:
        from transformers.utils.chat_parsing.response_templates import load_response_template

        return load_response_template(QWEN3_CODER_TEMPLATE)

    def _read(self, body: str, tools: Schemas) -> ToolCall:
        name, error = self._check(body)
        if error is None:
            from transformers.utils.chat_parsing.response_parser import parse_response

            try:
                message = parse_response(f"<tool_call>{body}</tool_call>", self._template, prefix="", tools=[dict(one) for one in tools])
                function = message["tool_calls"][0]["function"]
                return _refuse_infinite(ToolCall(str(function["name"]), dict(function["arguments"]), body))
            except (ValueError, KeyError, TypeError, RecursionError):
                error = "it could not be read"
        return ToolCall("", {}, body, f"{error}" if not name else f"{error} (in the call of {name})")

    def _check(self, body: str) -> tuple[str, str | None]:
        """Find what transformers' parser passes over in silence: missing ends, repeated parameters, text between the tags."""
        head = self._function.match(body)
        if head is None:
            return "", "<function=name> is missing behind <tool_call>"
        name = head.group(1)
        at = head.end()
        seen: set[str] = set()
        while (found := self._parameter.match(body, at)) is not None:
            if found["key"] in seen:
                return name, f"the parameter {found['key']!r} stands in it twice"
            seen.add(found["key"])
            at = found.end()
            while at < len(body) and body[at] in " \t\r\n":
                at += 1
        rest = body[at:].strip()
        if rest == "</function>":
            return name, None
        if not rest:
            return name, "</function> is missing"
        if rest.startswith("<parameter="):
            return name, "a parameter has no closing </parameter>"
        return name, "there is text that is no <parameter=...>...</parameter>"

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`."""
        lines = [self.opening, f"<function={name}>"]
        for key, value in arguments.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if any(tag in text for tag in ("</parameter>", "<parameter=", "</tool_call>")):
                raise ValueError(f"qwen3_coder cannot write the value {text!r} of {key!r}: it holds a tag of the format")
            lines += [f"<parameter={key}>", text, "</parameter>"]
        return "\n".join([*lines, "</function>", self.closing])

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return (
            f"{_schema_lines(tools)}To call a tool, write its name and arguments in these tags:\n"
            "<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>"
        )


# ------------------------------------------------------------------------------------------------ Llama 3


class Llama3JsonFormat(ToolCallFormat):
    """`{"name": ..., "parameters": {...}}` as the whole reply, several joined by `;`: Llama 3.1, 3.2 and 3.3.

    A reply that begins with `{` or `<|python_tag|>` is meant as a call. transformers' template for this family refuses `<|python_tag|>` and
    several calls; where it reads a reply, tests hold the two equal.
    """

    name = "llama3_json"
    markers = ("<|python_tag|>", *REASONING_TAGS)
    _tag = "<|python_tag|>"
    _gap = regex.compile(r"\s*;?\s*")
    _between = regex.compile(r";\s*(?=\{)|(?<=\})\s+(?=\{)")

    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply; see `ToolCallFormat.parse`."""
        outside, reasoning = split_reasoning(text, inside=opens_reasoning(prefix))
        content = _join(outside)
        before, tag, after = content.partition(self._tag)
        if not tag and not content.startswith("{"):
            return ParsedAction(content, _join(reasoning), (), False, tuple(outside))
        calls, rest = self._read_all(after.strip() if tag else content)
        left: tuple[str, ...] = (before if tag else "", rest)
        shown, texts = _join(left), [one.strip() for one in outside if one.strip()]
        if len(texts) > 1:  # reasoning stands between: of these, the pieces that are no part of a call
            left = tuple(one for text in texts if (one := text.partition(self._tag)[0].strip()) and one in shown)
        return ParsedAction(shown, _join(reasoning), tuple(calls), True, left)

    def _read_all(self, text: str) -> tuple[list[ToolCall], str]:
        """The calls of a text that should hold nothing else, and what stands behind them."""
        calls: list[ToolCall] = []
        at = 0
        while at < len(text):
            try:
                payload, end = read_json_at(text, at)
            except InvalidJSON:
                break
            calls.append(self._call(payload, text[at:end]))
            at = self._gap.match(text, end).end()
        rest = text[at:]
        if calls and "{" not in rest:
            return calls, rest
        for part in (piece.strip() for piece in self._between.split(rest)):
            if part:
                try:
                    calls.append(self._call(read_json(part), part))
                except InvalidJSON as error:
                    calls.append(ToolCall("", {}, part, str(error)))
        return calls or [ToolCall("", {}, text, "it is empty")], ""

    @staticmethod
    def _call(payload: Any, raw: str) -> ToolCall:
        key = "arguments" if type(payload) is dict and "arguments" in payload and "parameters" not in payload else "parameters"
        return read_call(payload, raw, arguments_key=key)

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`. Several calls are joined by `; `."""
        return json.dumps({"name": name, "parameters": dict(arguments)}, ensure_ascii=False)

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return f'{_schema_lines(tools)}To call a tool, answer with nothing but one JSON object: {{"name": "...", "parameters": {{...}}}}'


# ------------------------------------------------------------------------------------------------ any response template


class TemplateFormat(ToolCallFormat):
    """A format given as a response template of transformers (`tokenizer.response_template`).

    The text is split here, with the template's own patterns, and each region of calls is then read alone by transformers' parser, so that a
    broken one costs only itself. The fields `content` and `tool_calls` are what they are called; text in any other field is reasoning.

    Args:
        template: see transformers' documentation of response templates.

    Raises:
        ValueError: if it is no valid template or has no field `tool_calls`.
    """

    name = "template"
    _tag = regex.compile(r"<[^<>\s\\()\[\]?*+]{1,40}>")

    def __init__(self, template: Mapping[str, Any]) -> None:
        from transformers.utils.chat_parsing.response_templates import load_response_template

        self.template = dict(template)
        self._loaded = load_response_template(self.template)
        if "tool_calls" not in self._loaded.fields:
            raise ValueError(
                f"the response template has the fields {sorted(self._loaded.fields)}, and no 'tool_calls'; it cannot read calls"
            )
        self._call_marks = self._literals("tool_calls")
        self.markers = tuple(dict.fromkeys(mark for name in self._loaded.fields for mark in self._literals(name)))
        self._strict = self.template["fields"]["tool_calls"].get("content") == "json" and not self.template["fields"]["tool_calls"].get(
            "content_args"
        )

    def _literals(self, name: str) -> list[str]:
        """The literals that open and close a field, those inside its patterns included."""
        field = self.template["fields"][name]
        found: list[str] = []
        for key in ("open", "close"):
            value = field.get(key, [])
            found += [value] if isinstance(value, str) else list(value)
        for key in ("open_pattern", "close_pattern"):
            found += self._tag.findall(field.get(key, "").replace("\\|", "|"))
        return [mark for one in found if (mark := one.strip())]

    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply; see `ToolCallFormat.parse`."""
        start = self._loaded.truncate_past_last_anchor(prefix) if prefix else ""
        regions = self._split(start + text)
        content: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall] = []
        for name, whole, body in regions:
            if name == "tool_calls":
                calls += self._read(whole, body, tools)
            elif name == "content":
                content.append(body)
            elif name is not None:
                reasoning.append(body)
        shown = _join(content)
        marked = bool(calls) or any(mark in shown for mark in self._call_marks)
        return ParsedAction(shown, _join(reasoning), tuple(calls), marked, tuple(content))

    def _split(self, text: str) -> list[tuple[str | None, str, str]]:
        """The regions of a text: field, text with delimiters, text without. Each pattern looks at each place once."""
        fields = self._loaded.fields
        implicit = self._loaded.implicit
        ahead: dict[tuple[str, str], Any] = {}

        def following(name: str, kind: str, at: int) -> Any:
            """The next match of a delimiter, looked for again only when it has been passed."""
            key = (name, kind)
            if key not in ahead or (ahead[key] is not None and ahead[key].start() < at):
                pattern = fields[name].open_re if kind == "open" else fields[name].close_re
                ahead[key] = pattern.search(text, at)
            return ahead[key]

        regions: list[tuple[str | None, str, str]] = []
        at = 0
        while at < len(text):
            found = [
                (match.start(), -match.end(), name)
                for name in fields
                if fields[name].open_re is not None and (match := following(name, "open", at))
            ]
            ending = following(implicit, "close", at) if implicit is not None and fields[implicit].close_re is not None else None
            if ending is not None and ending.end() > ending.start() and (not found or ending.start() < min(found)[0]):
                regions.append((implicit, text[at : ending.end()], text[at : ending.start()]))
                at = ending.end()
                continue
            if not found:
                regions.append((implicit, text[at:], text[at:]))
                break
            start, minus_end, name = min(found)
            if start > at:
                regions.append((implicit, text[at:start], text[at:start]))
            opened = -minus_end
            close = fields[name].close_re.search(text, opened) if fields[name].close_re is not None else None
            stop = len(text) if close is None else close.start()
            at = len(text) if close is None else close.end()
            regions.append((name, text[start:at], text[opened:stop]))
            if close is None or at == start:
                break
        return regions

    def _read(self, whole: str, body: str, tools: Schemas) -> list[ToolCall]:
        """Read one region of calls with transformers' parser."""
        from transformers.utils.chat_parsing.response_parser import parse_response

        try:
            if self._strict:
                read_json(body)
            message = parse_response(whole, self._loaded, prefix="", tools=[dict(one) for one in tools])
        except InvalidJSON as error:
            return [ToolCall("", {}, whole, str(error))]
        except (ValueError, KeyError, TypeError, RecursionError):
            return [ToolCall("", {}, whole, "it could not be read")]
        found: list[Any] = []
        for one in message.get("tool_calls", []):
            found += one if isinstance(one, list) else [one]
        payloads = [one.get("function", one) if isinstance(one, dict) else one for one in found]
        calls = [_refuse_infinite(read_call(payload, whole)) for payload in payloads]
        return calls or [ToolCall("", {}, whole, "it could not be read")]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Refuse: a response template says how to read, not how to write; see `ToolCallFormat.render_call`."""
        raise ValueError(f"a response template cannot write calls ({name}); an expert needs a named format such as 'hermes'")

    def instructions(self, tools: Schemas = ()) -> str:
        """List the tools; the chat template has to say how to call them. See `ToolCallFormat.instructions`."""
        return _schema_lines(tools).strip()
