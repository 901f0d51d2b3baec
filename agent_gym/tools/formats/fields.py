"""Calls whose arguments stand in tags of their own, each as text: Qwen3-Coder and Qwen3.5, GLM, and DeepSeek since V3.2.

The first two take the types of the arguments from the tools' schemas, through transformers' parser and template data, one call at a time,
around a splitter of our own that finds what that parser passes over in silence.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import regex

from agent_gym.tools.calls import REASONING_TAGS, InvalidJSON, ToolCall, read_json
from agent_gym.tools.formats.base import Schemas, check_name, refuse_infinite, schema_lines
from agent_gym.tools.formats.response_templates import DSML_ARGUMENT, GLM_ARGUMENT, RESPONSE_TEMPLATES
from agent_gym.tools.formats.tags import TagFormat

__all__ = ["GLM_TEMPLATE", "QWEN3_CODER_TEMPLATE", "DeepSeekV32Format", "GlmFormat", "Qwen3CoderFormat"]

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


GLM_TEMPLATE: dict[str, Any] = {
    "defaults": {},
    "start_anchor_pattern": r"\A",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*(?P<name>[^\s<]+)",
            "close": "</tool_call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": GLM_ARGUMENT, "value_parser": {"name": "text", "args": {"strip": False}}},
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"content": "text"},
    },
}
"""Our response template of the calls of GLM-4.5 and later, for one call alone."""


class FieldsFormat(TagFormat):
    """A format with one tag for each argument.

    Attributes:
        template: how transformers' parser reads one call.
        head: what opens a call behind its tag; its group is the name.
        argument: one argument, with the groups `key` and `value`.
        tail: what must stand behind the last argument.
        argument_opening, argument_closing, head_text: for the messages of broken calls.
    """

    template: ClassVar[Mapping[str, Any]]
    head: ClassVar[Any]
    argument: ClassVar[Any]
    tail: ClassVar[str] = ""
    argument_opening: ClassVar[str]
    argument_closing: ClassVar[str]
    head_text: ClassVar[str]
    argument_text: ClassVar[str]

    @cached_property
    def _loaded(self) -> Any:
        from transformers.utils.chat_parsing.response_templates import load_response_template

        return load_response_template(dict(self.template))

    def _read(self, body: str, tools: Schemas) -> ToolCall:
        name, error = self._check(body)
        if error is None:
            try:
                return refuse_infinite(self._values(name, body, tools))
            except InvalidJSON as invalid:
                error = str(invalid)
            except (ValueError, KeyError, TypeError, RecursionError):
                error = "it could not be read"
        return ToolCall("", {}, body, f"{error}" if not name else f"{error} (in the call of {name})")

    def _values(self, name: str, body: str, tools: Schemas) -> ToolCall:
        """The call of a body that `_check` found whole."""
        from transformers.utils.chat_parsing.response_parser import parse_response

        text = f"{self.opening}{body}{self.closing}"
        message = parse_response(text, self._loaded, prefix="", tools=[dict(one) for one in tools])
        function = message["tool_calls"][0]["function"]
        return ToolCall(str(function["name"]), dict(function["arguments"]), body)

    def _check(self, body: str) -> tuple[str, str | None]:
        """Find what transformers' parser passes over in silence: missing ends, repeated arguments, text between the tags."""
        head = self.head.match(body)
        if head is None:
            return "", f"{self.head_text} is missing behind {self.opening}"
        name = head.group(1)
        at = head.end()
        seen: set[str] = set()
        while (found := self.argument.match(body, at)) is not None:
            if found["key"] in seen:
                return name, f"the parameter {found['key']!r} stands in it twice"
            seen.add(found["key"])
            at = found.end()
            while at < len(body) and body[at] in " \t\r\n":
                at += 1
        rest = body[at:].strip()
        if rest == self.tail:
            return name, None
        if not rest:
            return name, f"{self.tail} is missing"
        if rest.startswith(self.argument_opening):
            return name, f"a parameter has no closing {self.argument_closing}"
        return name, f"there is text that is no {self.argument_text}"

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`."""
        return self._written(check_name(name, self.name), [self._argument(key, value) for key, value in arguments.items()])

    def _argument(self, key: str, value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
        written = self._written_argument(key, text, isinstance(value, str))
        found = self.argument.fullmatch(written)
        if found is None or found["key"] != key or found["value"] != text or self.closing in written:
            raise ValueError(
                f"{self.name} cannot write the value {text!r} of {key!r}: it holds a tag of the format, or its key a character that ends it"
            )
        return written

    @abstractmethod
    def _written(self, name: str, arguments: list[str]) -> str:
        """The text of a call."""

    @abstractmethod
    def _written_argument(self, key: str, text: str, is_text: bool) -> str:
        """The text of one argument."""


class Qwen3CoderFormat(FieldsFormat):
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
    template = QWEN3_CODER_TEMPLATE
    head = regex.compile(r"\s*<function=([^\n>]+)>\s*")
    argument = regex.compile(QWEN3_CODER_TEMPLATE["fields"]["tool_calls"]["content_args"]["tag_pattern"], regex.DOTALL)
    tail = "</function>"
    argument_opening, argument_closing = "<parameter=", "</parameter>"
    head_text, argument_text = "<function=name>", "<parameter=...>...</parameter>"

    def _written(self, name: str, arguments: list[str]) -> str:
        return "\n".join([self.opening, f"<function={name}>", *arguments, self.tail, self.closing])

    def _written_argument(self, key: str, text: str, is_text: bool) -> str:
        return f"<parameter={key}>\n{text}\n</parameter>"

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return (
            f"{schema_lines(tools)}To call a tool, write its name and arguments in these tags:\n"
            "<tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>"
        )


class GlmFormat(FieldsFormat):
    """`<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`: GLM-4.5 and later."""

    name = "glm"
    opening, closing = "<tool_call>", "</tool_call>"
    markers = (
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<arg_key>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        *REASONING_TAGS,
    )
    turn_ends = ("<|observation|>", "<|user|>")
    template = GLM_TEMPLATE
    response_template = RESPONSE_TEMPLATES["glm"]
    head = regex.compile(r"\s*([^\s<]++)\s*")
    argument = regex.compile(GLM_ARGUMENT, regex.DOTALL)
    argument_opening, argument_closing = "<arg_", "</arg_key> or </arg_value>"
    head_text, argument_text = "the name of a tool", "<arg_key>...</arg_key><arg_value>...</arg_value>"

    def _written(self, name: str, arguments: list[str]) -> str:
        return "\n".join([f"{self.opening}{name}", *arguments, self.closing])

    def _written_argument(self, key: str, text: str, is_text: bool) -> str:
        return f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>"

    def as_reply(self, text: str) -> tuple[str, str | None]:
        """End calls with the token that begins a tool's turn, anything else with that of a user's; see `ToolCallFormat.as_reply`."""
        return text, "<|observation|>" if self.closing in text else "<|user|>"

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return (
            f"{schema_lines(tools)}To call a tool, write its name, and behind it each argument in two tags; what is no text is JSON:\n"
            "<tool_call>name\n<arg_key>key</arg_key>\n<arg_value>value</arg_value>\n</tool_call>"
        )


_DSML = "｜DSML｜"


class DeepSeekV32Format(FieldsFormat):
    """`<｜DSML｜invoke name="...">` with one `<｜DSML｜parameter name="..." string="true">` for each argument: DeepSeek V3.2 and V4.

    Whether an argument is a text is written beside it, so that no schema is needed; anything else is JSON, read strictly.
    """

    name = "deepseek_v32"
    opening, closing = f"<{_DSML}invoke", f"</{_DSML}invoke>"
    sections = tuple(f"<{end}{_DSML}{name}>" for name in ("function_calls", "tool_calls") for end in ("", "/"))
    markers = (_DSML, *REASONING_TAGS)
    head = regex.compile(r"\s+name=\"([^\"\n]+)\"\s*>\s*")
    argument = regex.compile(DSML_ARGUMENT, regex.DOTALL)
    response_template = RESPONSE_TEMPLATES["deepseek_v32"]
    argument_opening, argument_closing = f"<{_DSML}parameter", f"</{_DSML}parameter>"
    head_text, argument_text = 'name="..."', f'<{_DSML}parameter name="..." string="true|false">...</{_DSML}parameter>'

    def _values(self, name: str, body: str, tools: Schemas) -> ToolCall:
        arguments = {
            found["key"]: found["value"] if found["kind"] == "true" else read_json(found["value"]) for found in self.argument.finditer(body)
        }
        return ToolCall(name, arguments, body)

    def _written(self, name: str, arguments: list[str]) -> str:
        return "\n".join([f'{self.opening} name="{name}">', *arguments, self.closing])

    def _written_argument(self, key: str, text: str, is_text: bool) -> str:
        return f'<{_DSML}parameter name="{key}" string="{"true" if is_text else "false"}">{text}</{_DSML}parameter>'

    def render_calls(self, calls: Any) -> str:
        """Write the calls of one reply in one section; see `ToolCallFormat.render_calls`."""
        return "\n".join([self.sections[0], super().render_calls(calls), self.sections[1]])

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        example = self.render_calls([("name", {"key": "a text", "number": 3})])
        return f'{schema_lines(tools)}To call tools, write this; what is no text has string="false" and is JSON:\n{example}'
