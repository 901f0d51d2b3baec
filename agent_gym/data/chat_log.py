"""Chat logs: conversations as OpenAI's messages, one per line of a JSONL file, read so strictly that nothing is lost on the way.

A line is `{"messages": [...]}`, or the list of messages itself. Beside `messages` it may hold `tools` (OpenAI's schemas), `reward`, `is_success`,
`id`, `group_id` and `policy_version`. A message has a `role` (system, developer, user, assistant, tool) and a `content`: a text, parts of type text,
or null beside tool calls. An assistant's message may have `tool_calls`, whose arguments are a JSON text or an object, `reasoning_content` (or
`reasoning`), `reward`, `weight` (0: not to be learned), `finish_reason`, and, where the engine told them, `token_ids` and `logprobs` of its own.

What would be lost is refused and not passed over: pictures and sound, refusals, calls in the old form, keys that stand twice. Every error
names the file, the line and the message.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from agent_gym.tools.calls import InvalidJSON, read_json

__all__ = ["ChatLogError", "Conversation", "LogCall", "LogMessage", "parse_conversation", "read_chat_log"]

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_LOST = {
    "refusal": "a refusal is no content; leave the conversation out, or write what was said as content",
    "function_call": "this is the old form of a call; write it as tool_calls",
    "audio": "sound has no place in token ids",
}
_OF_ASSISTANTS = ("tool_calls", "reasoning_content", "reasoning", "reward", "weight", "token_ids", "logprobs", "finish_reason")


class ChatLogError(ValueError):
    """A conversation that cannot be used.

    Args:
        what: is wrong, one line.
        file: name of the log.
        line: of the conversation, from 1.
        message: index into its messages; None where the whole is meant.
        role: of that message.
    """

    def __init__(self, what: str, *, file: str = "", line: int = 0, message: int | None = None, role: str = "") -> None:
        self.what, self.file, self.line, self.message, self.role = what, file, line, message, role
        place = f"{file or 'chat log'}, line {line}"
        if message is not None:
            place += f", messages[{message}]" + (f" ({role})" if role else "")
        super().__init__(f"{place}: {what}")


@dataclass(frozen=True, slots=True)
class LogCall:
    """A tool call of the log.

    Attributes:
        name: of the tool.
        arguments: JSON values by name.
        spelling: the JSON text that the log has for them; None where it has an object.
        call_id: that the answer refers to; empty where there is none.
    """

    name: str
    arguments: Mapping[str, Any]
    spelling: str | None = None
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A message of the log.

    Attributes:
        index: its place among the messages, from 0.
        role: "system" (also for developer), "user", "assistant" or "tool".
        content: its text; parts of type text are joined.
        digest: 16 hexadecimal digits of the message as the log has it.
        reasoning: of an assistant, outside the content; None where the log has none.
        calls: of an assistant.
        reward: of an assistant's message; None where the log has none.
        weight: 0.0 says that it is not to be learned.
        finish_reason: "stop", or "length" where it was cut off.
        token_ids: that the engine sampled; None where the log has none.
        logprobs: of these ids, natural logarithm.
        call_id: of a tool's message.
    """

    index: int
    role: str
    content: str
    digest: str
    reasoning: str | None = None
    calls: tuple[LogCall, ...] = ()
    reward: float | None = None
    weight: float = 1.0
    finish_reason: str = "stop"
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A line of the log.

    Attributes:
        file: name of the log, without its folder.
        line: from 1.
        messages: in order.
        tools: schemas in OpenAI's form.
        reward: of the whole; None where the log has none.
        is_success: as the log says; False where it says nothing.
        task_id: the log's `id`, or file name and line.
        group_id: the log's own; empty where it has none.
        policy_version: of the model that spoke.
    """

    file: str
    line: int
    messages: tuple[LogMessage, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    reward: float | None = None
    is_success: bool = False
    task_id: str = ""
    group_id: str = ""
    policy_version: int = 0


def read_chat_log(path: str | Path) -> Iterator[Conversation | ChatLogError]:
    """Read a chat log line by line.

    Args:
        path: a JSONL file; blank lines are passed over.

    Yields:
        Each conversation, or the error that says why its line cannot be used; the caller decides whether to raise it.

    Raises:
        FileNotFoundError: if there is no such file.
    """
    source = Path(path)
    with source.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            try:
                text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8") if number == 1 else raw.decode("utf-8")
                yield parse_conversation(read_json(text), file=source.name, line=number)
            except UnicodeDecodeError as error:
                yield ChatLogError(f"it is no UTF-8 (byte {error.start})", file=source.name, line=number)
            except InvalidJSON as error:
                cut = "" if raw.endswith(b"\n") else "; it is the last one and has no line break, so it may have been cut off"
                yield ChatLogError(f"{error}{cut}", file=source.name, line=number)
            except RecursionError:
                yield ChatLogError("it is nested too deeply", file=source.name, line=number)
            except ChatLogError as error:
                yield error


def parse_conversation(record: Any, *, file: str = "", line: int = 0) -> Conversation:
    """Read one conversation.

    Args:
        record: the decoded JSON of a line.
        file: name of the log, for messages.
        line: from 1, for messages.

    Returns:
        The conversation.

    Raises:
        ChatLogError: naming the message that is wrong.
    """
    return _Reader(file, line).conversation(record)


class _Reader:
    """Reads one line; knows where it is, for its errors."""

    def __init__(self, file: str, line: int) -> None:
        self.file, self.line = file, line
        self.at: int | None = None
        self.role = ""

    def fail(self, what: str) -> NoReturn:
        raise ChatLogError(what, file=self.file, line=self.line, message=self.at, role=self.role)

    def conversation(self, record: Any) -> Conversation:
        if isinstance(record, list):
            record = {"messages": record}
        if not isinstance(record, dict):
            self.fail(f"wanted a conversation ({{'messages': [...]}}), not {_shown(record)}")
        if "messages" not in record:
            hint = "it is a single message; a line is a whole conversation" if "role" in record else f"its keys are {sorted(record)}"
            self.fail(f"the key 'messages' is missing: {hint}")
        messages = record["messages"]
        if not isinstance(messages, list) or not messages:
            self.fail(f"'messages' must be a list of at least one message, not {_shown(messages)}")
        tools = self._tools(record.get("tools"))
        read = tuple(self._message(index, one) for index, one in enumerate(messages))
        self.at, self.role = None, ""
        if all(one.role != "assistant" for one in read):
            self.fail("no message is an assistant's, so there is nothing to learn in it")
        reward = self._number("reward", record.get("reward"))
        if reward is not None and any(one.reward is not None for one in read):
            self.fail("both the conversation and a message have a reward; give the rewards of the messages, or the one of the whole")
        success = record.get("is_success")
        if success is not None and not isinstance(success, bool):
            self.fail(f"'is_success' must be true or false, not {_shown(success)}")
        return Conversation(
            file=self.file,
            line=self.line,
            messages=read,
            tools=tools,
            reward=reward,
            is_success=bool(success),
            task_id=self._name("id", record.get("id")) or f"{self.file}-{self.line}",
            group_id=self._name("group_id", record.get("group_id")),
            policy_version=self._whole("policy_version", record.get("policy_version")),
        )

    # ------------------------------------------------------------------------------------------------ values

    def _name(self, key: str, value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            self.fail(f"{key!r} must be a text or a whole number, not {_shown(value)}")
        return str(value)

    def _whole(self, key: str, value: Any) -> int:
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
            self.fail(f"{key!r} must be a whole number that is not negative, not {_shown(value)}")
        return value

    def _number(self, key: str, value: Any) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(f"{key!r} must be a number, not {_shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.fail(f"{key!r} must be a finite number, not {_shown(value)}")
        return number

    def _tools(self, given: Any) -> tuple[Mapping[str, Any], ...]:
        if given is None:
            return ()
        if not isinstance(given, list):
            self.fail(f"'tools' must be a list of schemas, not {_shown(given)}")
        for number, one in enumerate(given):
            function = one.get("function") if isinstance(one, dict) else None
            if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
                self.fail(f"tools[{number}] must be a schema {{'type': 'function', 'function': {{'name': ...}}}}, not {_shown(one)}")
        return tuple(given)

    # ------------------------------------------------------------------------------------------------ messages

    def _message(self, index: int, given: Any) -> LogMessage:
        self.at, self.role = index, ""
        if not isinstance(given, dict):
            self.fail(f"a message is an object with 'role' and 'content', not {_shown(given)}")
        stated = given.get("role")
        if not isinstance(stated, str) or stated not in _ROLES:
            self.fail(f"the role must be one of {', '.join(_ROLES)}, not {_shown(stated)}")
        role = self.role = _ROLES[stated]
        for key, why in _LOST.items():
            if given.get(key) not in (None, "", [], {}):
                self.fail(f"it has the key {key!r}: {why}")
        digest = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()[:16]
        if role != "assistant":
            for key in _OF_ASSISTANTS[:-1]:
                if given.get(key) not in (None, [], ""):
                    self.fail(f"it has the key {key!r}, which only an assistant's message can have")
            content = self._content(given.get("content"))
            if content is None:
                self.fail("its content is missing or null")
            return LogMessage(
                index, role, content, digest, call_id=self._name("tool_call_id", given.get("tool_call_id")) if role == "tool" else ""
            )
        return self._reply(index, given, digest)

    def _reply(self, index: int, given: Mapping[str, Any], digest: str) -> LogMessage:
        content = self._content(given.get("content"))
        calls = self._calls(given.get("tool_calls"))
        reasoning = self._reasoning(given)
        if content is None and not calls and reasoning is None:
            self.fail("it has neither content nor tool calls")
        ended = given.get("finish_reason")
        if ended not in (None, "stop", "tool_calls", "length"):
            self.fail(f"its finish_reason is {_shown(ended)}; known are 'stop', 'tool_calls' and 'length'")
        weight = self._number("weight", given.get("weight"))
        if weight not in (None, 0.0, 1.0):
            self.fail(f"its weight must be 0 or 1, not {_shown(given.get('weight'))}")
        ids, logprobs = self._sampled(given)
        return LogMessage(
            index,
            "assistant",
            content or "",
            digest,
            reasoning=reasoning,
            calls=calls,
            reward=self._number("reward", given.get("reward")),
            weight=1.0 if weight is None else weight,
            finish_reason="length" if ended == "length" else "stop",
            token_ids=ids,
            logprobs=logprobs,
        )

    def _content(self, given: Any) -> str | None:
        if given is None or isinstance(given, str):
            return given
        if not isinstance(given, list):
            self.fail(f"its content must be a text, a list of parts or null, not {_shown(given)}")
        texts = []
        for number, part in enumerate(given):
            kind = part.get("type") if isinstance(part, dict) else None
            if kind != "text" or not isinstance(part.get("text"), str):
                self.fail(f"content[{number}] is {_shown(kind or part)}; only parts of type text have token ids")
            texts.append(part["text"])
        return "".join(texts)

    def _reasoning(self, given: Mapping[str, Any]) -> str | None:
        found = [given[key] for key in ("reasoning_content", "reasoning") if given.get(key) not in (None, "")]
        for one in found:
            if not isinstance(one, str):
                self.fail(f"its reasoning must be a text, not {_shown(one)}")
        if len(found) == 2 and found[0] != found[1]:
            self.fail("'reasoning_content' and 'reasoning' are both there and differ")
        return found[0] if found else None

    def _calls(self, given: Any) -> tuple[LogCall, ...]:
        if given is None:
            return ()
        if not isinstance(given, list):
            self.fail(f"'tool_calls' must be a list, not {_shown(given)}")
        calls = tuple(self._call(number, one) for number, one in enumerate(given))
        named = [one.call_id for one in calls if one.call_id]
        if len(set(named)) != len(named):
            self.fail(f"two of its tool calls have the same id: {sorted(named)}")
        return calls

    def _call(self, number: int, given: Any) -> LogCall:
        where = f"tool_calls[{number}]"
        if not isinstance(given, dict):
            self.fail(f"{where} must be an object, not {_shown(given)}")
        if given.get("type", "function") != "function":
            self.fail(f"{where} is of type {_shown(given.get('type'))}; only calls of functions can be written")
        function = given.get("function")
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            self.fail(f"{where} has no function with a name: {_shown(given)}")
        arguments = function.get("arguments")
        spelling = None
        if isinstance(arguments, str):
            spelling = arguments
            try:
                arguments = read_json(arguments)
            except InvalidJSON as error:
                self.fail(f"{where}: its arguments are a text, and as JSON {error}: {_shown(spelling)}")
        if not isinstance(arguments, dict):
            self.fail(f"{where}: its arguments must be a JSON object or its text, not {_shown(arguments)}")
        return LogCall(function["name"], arguments, spelling, self._name(f"{where}.id", given.get("id")))

    def _sampled(self, given: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
        """The engine's own ids and their log-probabilities. OpenAI's `logprobs` objects name tokens of another vocabulary and are left alone."""
        ids, logprobs = given.get("token_ids"), given.get("logprobs")
        if ids is not None and (not isinstance(ids, list) or not ids or not all(type(one) is int and one >= 0 for one in ids)):
            self.fail(f"'token_ids' must be a list of token ids, not {_shown(ids)}")
        if not isinstance(logprobs, list):
            return (None if ids is None else tuple(ids)), None
        if ids is None:
            self.fail("it has 'logprobs' but no 'token_ids' that they belong to")
        if len(logprobs) != len(ids):
            self.fail(f"it has {len(ids)} token_ids and {len(logprobs)} logprobs; one per id is wanted")
        values = tuple(self._number("logprobs", one) for one in logprobs)
        if any(one is None or one > 0.0 for one in values):
            self.fail("a log-probability is null or above 0")
        return tuple(ids), tuple(float(one) for one in values if one is not None)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True, default=str) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
