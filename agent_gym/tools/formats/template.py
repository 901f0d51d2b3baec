"""Any response template of transformers as a format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import regex

from agent_gym.tools.calls import InvalidJSON, ParsedAction, ToolCall, read_call, read_json
from agent_gym.tools.formats.base import Schemas, ToolCallFormat, join_pieces, refuse_infinite, schema_lines

__all__ = ["TemplateFormat"]


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
        shown = join_pieces(content)
        marked = bool(calls) or any(mark in shown for mark in self._call_marks)
        return ParsedAction(shown, join_pieces(reasoning), tuple(calls), marked, tuple(content))

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
        calls = [refuse_infinite(read_call(payload, whole)) for payload in payloads]
        return calls or [ToolCall("", {}, whole, "it could not be read")]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Refuse: a response template says how to read, not how to write; see `ToolCallFormat.render_call`."""
        raise ValueError(f"a response template cannot write calls ({name}); an expert needs a named format such as 'hermes'")

    def instructions(self, tools: Schemas = ()) -> str:
        """List the tools; the chat template has to say how to call them. See `ToolCallFormat.instructions`."""
        return schema_lines(tools).strip()
