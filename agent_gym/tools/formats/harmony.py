"""Calls of gpt-oss: messages with headers and channels (OpenAI's "harmony" form), of which one reply may hold several.

    <|channel|>analysis<|message|>I look it up.<|end|><|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{...}

The recipient stands behind the channel, as the model most often writes it, or in the role's part of the header, as the chat template prints
it; the channel of a call may be any. Analysis is reasoning, and so is a message of any role but the assistant's, which a model can only forge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import regex

from agent_gym.tools.calls import InvalidJSON, ParsedAction, ToolCall, read_call, read_json
from agent_gym.tools.formats.base import Schemas, ToolCallFormat, check_name, join_pieces, json_text, schema_lines
from agent_gym.tools.formats.response_templates import RESPONSE_TEMPLATES

__all__ = ["GptOssFormat"]

_TOKEN = regex.compile(r"<\|(?:start|channel|message|end|call|return)\|>")
_FUNCTION = regex.compile(r"to=functions\.([^\s<]+)")
_RECIPIENT = regex.compile(r"(?<![^\s>])to=([^\s<]+)")
_CHANNEL = regex.compile(r"<\|channel\|>\s*([^\s<]*)")
_ROLE = regex.compile(r"\s*([^\s<]*)")
_AGAIN = regex.compile(r"\s*assistant(?=\s*\Z|\s+to=)")
_START, _CHANNEL_TAG, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_NOT_TOOLS = frozenset({"assistant", "user", "all"})


@dataclass(slots=True)
class _Message:
    """One message of a reply: its role, the rest of its header, and its text, None where the header has no `<|message|>`."""

    role: str
    header: str = ""
    body: list[str] | None = None

    @property
    def text(self) -> str:
        """What the message says; of a header without a message, what is no channel."""
        return _CHANNEL.sub("", self.header) if self.body is None else "".join(self.body)

    @property
    def recipient(self) -> str:
        """The tool that the header names; empty for none. Text without a header may hold `to=` like any text."""
        found = _FUNCTION.search(self.header)
        if found is None and (self.body is not None or _CHANNEL_TAG in self.header):
            found = _RECIPIENT.search(self.header)
        return "" if found is None or found.group(1) in _NOT_TOOLS else str(found.group(1))

    @property
    def channel(self) -> str:
        """The channel; empty for none."""
        found = _CHANNEL.search(self.header)
        return "" if found is None else str(found.group(1))


class GptOssFormat(ToolCallFormat):
    """`<|channel|>commentary to=functions.name <|constrain|>json<|message|>{...}`: gpt-oss, see the module."""

    name = "gpt_oss"
    markers = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
    turn_ends = ("<|call|>", "<|return|>")
    response_template = RESPONSE_TEMPLATES["gpt_oss"]

    def parse(self, text: str, *, prefix: str = "", tools: Schemas = ()) -> ParsedAction:
        """Read a reply; see `ToolCallFormat.parse`."""
        content: list[str] = []
        reasoning: list[str] = []
        calls: list[ToolCall] = []
        for message in _messages(prefix.rpartition(_START)[2] if _START in prefix else "assistant", text):
            if message.role not in ("assistant", ""):
                reasoning.append(message.text)
            elif recipient := message.recipient:
                calls.append(self._call(recipient, message))
            elif message.channel == "analysis":
                reasoning.append(message.text)
            else:
                content.append(message.text)
        shown = join_pieces(content)
        marked = bool(calls) or any(mark in shown for mark in ("<|constrain", "<|call", "<|channel", "<|message", "to=functions."))
        return ParsedAction(shown, join_pieces(reasoning), tuple(calls), marked, tuple(content))

    @staticmethod
    def _call(name: str, message: _Message) -> ToolCall:
        raw = f"{message.header}{'' if message.body is None else _MESSAGE}{'' if message.body is None else message.text}"
        if message.body is None:
            return ToolCall("", {}, raw, f"the header of the call has no {_MESSAGE} behind it")
        try:
            return read_call({"name": name, "arguments": read_json(message.text)}, raw)
        except InvalidJSON as error:
            return ToolCall(name, {}, raw, f"in its arguments {error}")

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Write a call; see `ToolCallFormat.render_call`."""
        header = f"{_CHANNEL_TAG}commentary to=functions.{check_name(name, self.name)} <|constrain|>json{_MESSAGE}"
        return f"{header}{json_text(dict(arguments), self.markers)}"

    def render_calls(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
        """Write the calls of one reply, each a message; see `ToolCallFormat.render_calls`."""
        return f"<|end|>{_START}assistant".join(self.render_call(name, arguments) for name, arguments in calls)

    def as_reply(self, text: str) -> tuple[str, str | None]:
        """Put the header of the final channel before an answer, and that of a preamble before text that calls follow; see `ToolCallFormat.as_reply`."""
        first = _TOKEN.search(text)
        before = text if first is None else text[: first.start()]
        if before.strip() and not _FUNCTION.search(before):
            if first is None:
                text = f"{_CHANNEL_TAG}final{_MESSAGE}{text}"
            elif first.group() == _CHANNEL_TAG:
                text = f"{_CHANNEL_TAG}commentary{_MESSAGE}{before.strip()}<|end|>{_START}assistant{text[first.start() :]}"
        last = text.rpartition(_START)[2]
        return text, "<|call|>" if _RECIPIENT.search(last.partition(_MESSAGE)[0]) else "<|return|>"

    def instructions(self, tools: Schemas = ()) -> str:
        """Tell a model how to call; see `ToolCallFormat.instructions`."""
        return (
            f"{schema_lines(tools)}To call a tool, write a message to it on the commentary channel, a JSON object of its arguments, as in this "
            f"example:\n{self.render_call('name', {'key': 'value'})}"
        )


def _messages(begun: str, text: str) -> list[_Message]:
    """The messages of a reply whose first header the prompt began. Text without any header is a message too."""
    role, message_tag, first = begun.partition(_MESSAGE)
    named = _ROLE.match(role)
    now = _Message(named.group(1), role[named.end() :], [first] if message_tag else None)
    messages: list[_Message] = []
    at = 0

    def end(token: str | None) -> _Message:
        """Keep the present message if there is anything to it, and begin the next."""
        if now.body is not None or now.header.strip():
            messages.append(now)
        return _Message("" if token == _START else "assistant", token if token == _CHANNEL_TAG else "")

    for found in _TOKEN.finditer(text):
        piece, token = text[at : found.start()], found.group()
        at = found.end()
        _say(now, piece)
        if token == _MESSAGE:
            if now.body is None:
                now.body = []
            else:
                now.body.append(token)  # the token inside a message is text
        elif token == _CHANNEL_TAG and now.body is None:
            now.header += token
        else:
            now = end(token)
    _say(now, text[at:])
    end(None)
    return messages


def _say(message: _Message, piece: str) -> None:
    """Put text into a message: its role first where that is not known, then its header or its body."""
    if message.body is not None:
        message.body.append(piece)
        return
    if not message.header:
        role = _ROLE.match(piece)
        again = message.role == "assistant" and _AGAIN.match(piece) is not None  # the role, written though the prompt holds it
        if not message.role or again:
            message.role, piece = role.group(1), piece[role.end() :]
    message.header += piece
