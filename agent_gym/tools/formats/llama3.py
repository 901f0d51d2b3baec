"""Calls that are the whole reply, as JSON: Llama 3.1, 3.2 and 3.3."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from agent_gym.tools.formats.base import Schemas, ToolCallFormat, join_pieces, schema_lines

__all__ = ["Llama3JsonFormat"]


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
        content = join_pieces(outside)
        before, tag, after = content.partition(self._tag)
        if not tag and not content.startswith("{"):
            return ParsedAction(content, join_pieces(reasoning), (), False, tuple(outside))
        calls, rest = self._read_all(after.strip() if tag else content)
        left: tuple[str, ...] = (before if tag else "", rest)
        shown, texts = join_pieces(left), [one.strip() for one in outside if one.strip()]
        if len(texts) > 1:  # reasoning stands between: of these, the pieces that are no part of a call
            left = tuple(one for text in texts if (one := text.partition(self._tag)[0].strip()) and one in shown)
        return ParsedAction(shown, join_pieces(reasoning), tuple(calls), True, left)

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
        return f'{schema_lines(tools)}To call a tool, answer with nothing but one JSON object: {{"name": "...", "parameters": {{...}}}}'
