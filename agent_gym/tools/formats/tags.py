"""Calls between an opening and a closing tag: the scanner that most families share, and the two formats that are nothing but a tag.

`hermes` and `search_tags` are our own scanners: transformers' parser raises on the first broken call, and takes NaN, repeated keys and lists
for calls.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from agent_gym.tools.calls import REASONING_TAGS, InvalidJSON, ParsedAction, ToolCall, read_call, read_json
from agent_gym.tools.formats.base import Schemas, ToolCallFormat, join_pieces, open_reasoning, schema_lines

__all__ = ["HermesFormat", "SearchTagsFormat", "TagFormat"]


class TagFormat(ToolCallFormat):
    """A format whose calls stand between an opening and a closing tag. Subclasses read one body.

    An opening tag inside a body is text if the body as a whole can be read, as a tag inside a JSON string is. Otherwise it begins a call of
    its own, and the one before it lacks its closing tag.

    Attributes:
        opening, closing: of one call.
        sections: literals that may stand around a turn's calls and say nothing by themselves.
    """

    opening: str
    closing: str
    sections: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _read(self, body: str, tools: Schemas) -> ToolCall:
        """Read what stands between the tags."""

    @cached_property
    def _tags(self) -> re.Pattern[str]:
        """What a region, or a section, may begin or end with."""
        literals = [self.opening, *self.sections, *(opens for opens, _ in self.reasoning)]
        return re.compile("|".join(map(re.escape, sorted(literals, key=len, reverse=True))))

    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply; see `ToolCallFormat.parse`."""
        size = len(text)
        content: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall] = []
        closings = dict(self.reasoning)
        marked = False
        at = 0
        unthink = open_reasoning(prefix, self.reasoning)
        while at < size or unthink is not None:
            if unthink is not None:
                end = text.find(unthink, at)
                reasoning.append(text[at:] if end < 0 else text[at:end])
                at, unthink = (size if end < 0 else end + len(unthink)), None
                continue
            found = self._tags.search(text, at)
            if found is None:
                content.append(text[at:])
                break
            if found.start() > at:
                content.append(text[at : found.start()])
            at, tag = found.end(), found.group()
            if tag in closings:
                unthink = closings[tag]
            elif tag != self.opening:
                marked = True
            else:
                end = text.find(self.closing, at)
                if end < 0:
                    calls += [self._unclosed(part) for part in text[at:].split(self.opening)]
                    break
                self._read_region(text[at:end], tools, calls)
                at = end + len(self.closing)
        shown = join_pieces(content)
        marked = marked or bool(calls) or self.opening[:-1] in shown or self.closing[:-1] in shown
        return ParsedAction(shown, join_pieces([self._thought(one) for one in reasoning]), tuple(calls), marked, tuple(content))

    def _thought(self, text: str) -> str:
        """The text of a piece of reasoning."""
        return text

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
            f"{schema_lines(tools)}To call a tool, write one JSON object with its name and arguments between the tags:\n"
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
