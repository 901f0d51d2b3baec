"""Calls as a list of Python calls, `[search(query="x"), add(a=1, b=2)]`: Llama 3.2 and 4, LFM2, and models trained on such lists.

Nothing is evaluated: names and arguments are read by our own strict reader (see `literals`), each call alone. Where transformers' parser of
such lists reads a text, tests hold the two equal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import regex

from agent_gym.tools.calls import REASONING_TAGS, InvalidJSON, ParsedAction, ToolCall
from agent_gym.tools.formats.base import NAME, Schemas, ToolCallFormat, check_name, join_pieces, schema_lines, split_regions
from agent_gym.tools.formats.literals import PythonReader
from agent_gym.tools.formats.response_templates import RESPONSE_TEMPLATES

__all__ = ["PythonicFormat"]

_KEYWORD = regex.compile(r"[^\W\d]\w*+")


class _CallReader(PythonReader):
    def call(self) -> tuple[str, dict[str, Any]]:
        """A name and, in brackets, arguments by name."""
        self.sees("")
        found = NAME.match(self.text, self.at)
        if found is None:
            self.fail("a tool's name is missing")
        self.at = found.end()
        self.expect("(")
        pairs: list[tuple[str, Any]] = []
        for given in self.items(")", self.argument, trailing=True):
            pairs += given
        return found.group(), self.unique(pairs)

    def argument(self) -> list[tuple[str, Any]]:
        """One argument, or the many of `**{...}`."""
        if self.takes("**"):
            value = self.value()
            if not isinstance(value, dict):
                self.fail("behind ** stands no dict")
            return list(value.items())
        self.sees("")
        found = _KEYWORD.match(self.text, self.at)
        start = self.at
        if found is not None:
            self.at = found.end()
            if self.takes("=") and not self.text.startswith("=", self.at):
                return [(str(found.group()), self.value())]
            self.at = start
        self.fail("each argument is written name=value" if start < len(self.text) else "it ends too early")


class PythonicFormat(ToolCallFormat):
    """`[name(key="text", number=3), ...]`, as the whole reply or between the tokens that Llama 4 and LFM2 put around it.

    A reply that begins with `[name(` outside reasoning is meant as calls; text behind the list is content.
    """

    name = "pythonic"
    regions = (("<|tool_call_start|>", "<|tool_call_end|>"), ("<|python_start|>", "<|python_end|>"))
    markers = (*regions[0], *regions[1], *REASONING_TAGS)
    response_template = RESPONSE_TEMPLATES["pythonic"]
    _list = regex.compile(r"\s*\[\s*[A-Za-z_][\w.\-]*+\s*\(", regex.ASCII)
    _between = regex.compile(r"(?<=\))\s*,\s*(?=[A-Za-z_][\w.\-]*+\()", regex.ASCII)

    @cached_property
    def _openings(self) -> Any:
        return regex.compile("|".join(regex.escape(opening) for opening, _ in self.regions))

    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply; see `ToolCallFormat.parse`."""
        outside, thoughts = split_regions(text, prefix, self.reasoning)
        content: list[str] = []
        calls: list[ToolCall] = []
        closings = dict(self.regions)
        for piece in outside:
            at = 0
            while True:
                found = self._openings.search(piece, at)
                before = piece[at:] if found is None else piece[at : found.start()]
                if not content and not calls:
                    before = self._read_lists(before, calls)
                if before.strip():
                    content.append(before)
                if found is None:
                    break
                closing = closings[found.group()]
                end = piece.find(closing, found.end())
                body = piece[found.end() :] if end < 0 else piece[found.end() : end]
                at = len(piece) if end < 0 else end + len(closing)
                first = len(calls)
                rest = self._read_lists(body, calls)
                if len(calls) == first:
                    calls.append(ToolCall("", {}, body, "calls are a list such as [name(key=value)]" if body.strip() else "it is empty"))
                elif rest.strip():
                    calls.append(ToolCall("", {}, rest, "there is text behind the list of calls"))
                elif end < 0 and calls[-1].error is None:
                    calls[-1] = ToolCall("", {}, body, f"the calls have no closing {closing}")
        shown = join_pieces(content)
        marked = bool(calls) or any(marker[:-1] in shown for pair in self.regions for marker in pair)
        return ParsedAction(shown, join_pieces(thoughts), tuple(calls), marked, tuple(content))

    def _read_lists(self, text: str, calls: list[ToolCall]) -> str:
        """Read the lists that a text begins with, and return what stands behind them."""
        at = 0
        while self._list.match(text, at):
            at = self._read(text, at, calls)
        return text[at:] if at else text

    def _read(self, text: str, at: int, calls: list[ToolCall]) -> int:
        """Read a list of calls, and return the place behind it."""
        reader = _CallReader(text, at)
        reader.expect("[")
        while True:
            reader.sees("")
            start = reader.at
            try:
                name, arguments = reader.call()
                if not reader.sees("]") and not reader.sees(","):
                    reader.fail("it ends too early" if reader.at >= len(text) else ", or ] is missing")
            except InvalidJSON:
                return self._read_apart(text, start, calls)
            calls.append(ToolCall(name, arguments, text[start : reader.at].rstrip()))
            if reader.takes("]") or (reader.takes(",") and reader.takes("]")):
                return reader.at

    def _read_apart(self, text: str, at: int, calls: list[ToolCall]) -> int:
        """Read what a broken call left over: it is parted where a call ends and another begins, and each part is read alone."""
        parts = self._between.split(text[at:])
        for number, part in enumerate(parts, start=1):
            reader = _CallReader(part)
            last = number == len(parts)
            try:
                name, arguments = reader.call()
                if last:
                    reader.takes(",")
                    reader.expect("]")
                    calls.append(ToolCall(name, arguments, part))
                    return len(text) - len(part) + reader.at
                reader.sees("")
                if reader.at < len(part):
                    reader.fail(", or ] is missing")
                calls.append(ToolCall(name, arguments, part))
            except InvalidJSON as error:
                calls.append(ToolCall("", {}, part, str(error)))
        return len(text)

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call as a list of its own; see `ToolCallFormat.render_call`."""
        return self.render_calls([(name, arguments)])

    def render_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Write the calls of one reply as one list; see `ToolCallFormat.render_calls`."""
        return "[" + ", ".join(f"{check_name(name, self.name)}({self._arguments(arguments)})" for name, arguments in calls) + "]"

    def _arguments(self, arguments: Mapping[str, Any]) -> str:
        plain = [f"{key}={self._written(value)}" for key, value in arguments.items() if _KEYWORD.fullmatch(key)]
        odd = {key: value for key, value in arguments.items() if not _KEYWORD.fullmatch(key)}  # names that Python has no word for
        return ", ".join([*plain, *([f"**{self._written(odd)}"] if odd else [])])

    def _written(self, value: Any) -> str:
        if isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False)
            for marker in self.markers:
                text = text.replace(marker, f"\\x{ord(marker[0]):02x}{marker[1:]}")
            return text
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{self._written(key)}: {self._written(item)}" for key, item in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self._written, value)) + "]"
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{self.name} cannot write the number {value}")
        return repr(value)

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        example = self.render_calls([("name", {"key": "a text", "number": 3})])
        return f"{schema_lines(tools)}To call tools, answer with nothing but a list of Python calls with named arguments:\n{example}"
