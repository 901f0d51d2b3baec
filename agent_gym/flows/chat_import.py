"""Chat logs become trajectories: who spoke is kept, and each reply is the very ids that say it.

A log is flat text; a trajectory is steps of token ids. The prompt that a reply was given to is rendered by the tokenizer's chat template as the
environments do it (what was shown is never rendered again, text from the world makes no control token), and the reply is written in the
tokenizer's own format of calls: reasoning, content, calls. Then it is read back. The ids have to say the message of the log, to the character, and
the template has to show every other message once, whole and in order. A log of which anything would be lost is refused with line and
message: a template that trims, drops or repeats, a tokenizer that normalises, a content that forges a call.

What was imported can be held against its log later (`check_import`): each trajectory keeps a digest of every message and of its own ids, so that one
altered character in either file is found and named.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
import numpy as np

from agent_gym.chat import Chat, Message, load_tokenizer, tokenizer_fingerprint
from agent_gym.data.chat_log import ChatLogError, Conversation, LogCall, LogMessage, read_chat_log
from agent_gym.envs.tool_prompt import ToolPrompt, generation_prefix
from agent_gym.tools.calls import REASONING_TAGS, ParsedAction, opens_reasoning
from agent_gym.tools.formats import Llama3JsonFormat, ToolCallFormat
from agent_gym.tools.parsing import get_format
from agent_gym.trajectory import Step, StopReason, Trajectory

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["CHAT_LOG", "ChatImporter", "ImportedLog", "check_import", "content_digest", "import_chat", "is_intact"]

CHAT_LOG = "ChatLog"
"""The `env_id` of imported trajectories: no environment of ours played them."""
_TEMPLATE_ERRORS = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_MOST_CHATS = 64


@dataclass(frozen=True, slots=True)
class ImportedLog:
    """What came of a log.

    Attributes:
        trajectories: one per conversation, in order.
        bad: why the others were left out, in order; empty unless they were to be skipped.
    """

    trajectories: list[Trajectory] = field(default_factory=list)
    bad: list[ChatLogError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Setting:
    """A chat with the tools of a conversation, and how these are shown."""

    chat: Chat
    prompt: ToolPrompt
    prefix: str


class ChatImporter:
    """Turns conversations into trajectories under one tokenizer.

    Args:
        tokenizer: an object, a folder, a name, or None for the project's own.
        tool_format: how calls are written; "auto" takes what the chat template teaches (see `agent_gym.tools.parsing.get_format`).
        template_kwargs: for the chat template.

    Attributes:
        fingerprint: of the tokenizer.

    Raises:
        ValueError: if the tokenizer or the format cannot be used.
    """

    def __init__(
        self,
        tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
        *,
        tool_format: str | Mapping[str, Any] | ToolCallFormat = "auto",
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer = load_tokenizer(tokenizer)
        self.tool_format = get_format(tool_format, self.tokenizer)
        self.fingerprint = tokenizer_fingerprint(self.tokenizer)
        self._template_kwargs = dict(template_kwargs or {})
        self._settings: dict[str, _Setting] = {}

    def setting(self, tools: Sequence[Mapping[str, Any]]) -> _Setting:
        """The chat for prompts with these tools; those of the latest tool lists are kept.

        Args:
            tools: JSON schemas, as a request names them.

        Returns:
            The chat, and what else belongs to it.
        """
        key = json.dumps(list(tools))
        found = self._settings.get(key)
        if found is None:
            prompt = ToolPrompt(self.tokenizer, self.tool_format, tools, template_kwargs=self._template_kwargs)
            chat = Chat(self.tokenizer, markers=self.tool_format.markers, template_kwargs=self._template_kwargs, tools=prompt.tools)
            found = _Setting(chat, prompt, generation_prefix(chat))
            while len(self._settings) >= _MOST_CHATS:
                self._settings.pop(next(iter(self._settings)))
            self._settings[key] = found
        return found

    def trajectory(self, conversation: Conversation) -> Trajectory:
        """Import one conversation.

        Args:
            conversation: of a log.

        Returns:
            Its trajectory: one step per assistant's message; a context that only grows.

        Raises:
            ChatLogError: if anything of it would be lost, naming the message.
        """
        try:
            return _Import(self, conversation).trajectory()
        except RecursionError:
            raise ChatLogError("it is nested too deeply", file=conversation.file, line=conversation.line) from None


class _Import:
    """One conversation on its way."""

    def __init__(self, importer: ChatImporter, conversation: Conversation) -> None:
        self.conversation = conversation
        self.format = importer.tool_format
        self.fingerprint = importer.fingerprint
        try:
            setting = importer.setting(conversation.tools)
        except _TEMPLATE_ERRORS as error:
            self.fail(f"a prompt with its tools cannot be rendered: {error}")
        self.chat, self.prompt, self.prefix = setting.chat, setting.prompt, setting.prefix

    def fail(self, what: str, message: LogMessage | None = None) -> NoReturn:
        raise ChatLogError(
            what,
            file=self.conversation.file,
            line=self.conversation.line,
            message=None if message is None else message.index,
            role="" if message is None else message.role,
        )

    def trajectory(self) -> Trajectory:
        worlds, replies = self._parts()
        parsed = [self._reply(one) for one in replies]
        self._check_answers(worlds, replies, [reading for _, reading in parsed])
        observation = self._first_prompt(worlds[0])
        steps = []
        for number, (message, (ids, reading)) in enumerate(zip(replies, parsed, strict=True)):
            last = number == len(replies) - 1
            reason = self._end(message, reading, worlds[-1]) if last else StopReason.RUNNING
            reward = (message.reward or 0.0) + (self.conversation.reward or 0.0 if last else 0.0)
            steps.append(
                Step(
                    observation_ids=np.array(observation, dtype=np.int64),
                    action_ids=np.array(ids, dtype=np.int64),
                    logprobs=None if message.logprobs is None else np.array(message.logprobs, dtype=np.float32),
                    finish_reason=message.finish_reason,
                    policy_version=self.conversation.policy_version,
                    feedback=_texts(worlds[number + 1]),
                    reward=reward,
                    reward_parts={"log": reward},
                    terminated=last and reason is not StopReason.MAX_TURNS,
                    truncated=reason is StopReason.MAX_TURNS,
                    stop_reason=reason,
                    state_key=_texts(worlds[number]),
                    info={
                        "message": message.index,
                        "weight": message.weight,
                        "action_valid": all(call.error is None for call in reading.calls),
                        "is_success": last and self.conversation.is_success,
                    },
                )
            )
            observation = [*observation, *ids, *self._turn(worlds[number + 1], message, self.chat.ends_turn(ids))]
        made = Trajectory(
            env_id=CHAT_LOG,
            env_kwargs={"tool_format": self.format.name, "tools": [dict(one) for one in self.conversation.tools]},
            task_id=self.conversation.task_id,
            group_id=self.conversation.group_id or self._group(worlds[0]),
            tokenizer_fingerprint=self.fingerprint,
            steps=steps,
            final_observation=np.array(observation, dtype=np.int64),
        )
        origin = {
            "log": self.conversation.file,
            "line": self.conversation.line,
            "messages": [one.digest for one in self.conversation.messages],
        }
        return replace(made, options={**origin, "digest": content_digest(made)})

    def _group(self, first: Sequence[LogMessage]) -> str:
        """Conversations that begin with the same messages and tools are attempts at one task."""
        begun = [[one.role, one.content] for one in first]
        text = json.dumps([begun, [dict(one) for one in self.conversation.tools]], sort_keys=True)
        return f"chat-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def _end(self, message: LogMessage, reading: ParsedAction, behind: Sequence[LogMessage]) -> StopReason:
        """A log that ends with the world's words, a call or a reply that was cut off ended by a limit."""
        if behind or message.finish_reason == "length":
            return StopReason.MAX_TURNS
        if reading.answer is not None:
            return StopReason.ANSWER
        return StopReason.MAX_TURNS if reading.calls else StopReason.NO_CALL

    # ------------------------------------------------------------------------------------------------ who speaks when

    def _parts(self) -> tuple[list[list[LogMessage]], list[LogMessage]]:
        """What the world says before each reply, and behind the last, and the replies."""
        worlds: list[list[LogMessage]] = [[]]
        replies: list[LogMessage] = []
        for one in self.conversation.messages:
            if one.role != "assistant":
                worlds[-1].append(one)
                continue
            if not worlds[-1]:
                what = (
                    "the conversation begins with it: nothing was shown before it"
                    if not replies
                    else "it follows another assistant's message, with nothing in between; join the two"
                )
                self.fail(what, one)
            replies.append(one)
            worlds.append([])
        return worlds, replies

    def _check_answers(
        self, worlds: Sequence[Sequence[LogMessage]], replies: Sequence[LogMessage], readings: Sequence[ParsedAction]
    ) -> None:
        """Tool messages have to answer calls: behind the reply that made them, no more than it made, each once."""
        for one in worlds[0]:
            if one.role == "tool":
                self.fail("it answers no call: no assistant has spoken yet", one)
        for number, (message, reading) in enumerate(zip(replies, readings, strict=True)):
            waiting = [one.call_id for one in message.calls]
            named = [one for one in waiting if one]
            answered = 0
            others = False
            for one in worlds[number + 1]:
                if one.role != "tool":
                    others = True
                    continue
                if others:
                    self.fail("a tool's message stands behind another role's; answers come directly behind the calls", one)
                answered += 1
                if answered > len(reading.calls):
                    self.fail(f"it answers no call: messages[{message.index}] makes {len(reading.calls)}", one)
                if one.call_id and named:
                    if one.call_id not in waiting:
                        self.fail(
                            f"its tool_call_id {one.call_id!r} names no call of messages[{message.index}] that waits for an answer", one
                        )
                    waiting.remove(one.call_id)
            if answered < len(message.calls) and number + 1 < len(replies):
                self.fail(f"{len(message.calls) - answered} of its {len(message.calls)} calls have no answer in the log", message)

    # ------------------------------------------------------------------------------------------------ what the world says

    def _first_prompt(self, messages: Sequence[LogMessage]) -> list[int]:
        shown = [_plain(one) for one in messages]
        owners = list(messages)
        extra = self.prompt.system_text("")
        if extra:  # the template does not say how to call tools, so that our own words do, as in the environments
            if owners[0].role == "system":
                shown[0] = {**shown[0], "content": self.prompt.system_text(owners[0].content)}
            else:
                shown.insert(0, {"role": "system", "content": extra, "trusted": True})
                owners.insert(0, owners[0])
        self._check_shown(shown, owners, behind_reply=False)
        try:
            return self.chat.render(shown, tools=self.prompt.tools)
        except _TEMPLATE_ERRORS as error:
            self.fail(f"the chat template refuses the prompt up to here: {error}", owners[-1])

    def _turn(self, messages: Sequence[LogMessage], reply: LogMessage, closed: bool) -> list[int]:
        shown = [_plain(one) for one in messages]
        if shown:
            self._check_shown(shown, messages, behind_reply=True)
        try:
            return self.chat.turn(shown, closed=closed)
        except _TEMPLATE_ERRORS as error:
            self.fail(f"the chat template refuses what follows: {error}", messages[0] if messages else reply)

    def _check_shown(self, shown: Sequence[Message], owners: Sequence[LogMessage], *, behind_reply: bool) -> None:
        try:
            altered = self.chat.altered_message(shown, None if behind_reply else self.prompt.tools, behind_reply=behind_reply)
        except _TEMPLATE_ERRORS as error:
            self.fail(f"the chat template refuses it: {error}", owners[-1])
        if altered is not None:
            self.fail(
                "the tokenizer's chat template does not show its content as it is (it trims, drops, repeats or moves it), so the trajectory "
                "would hold another conversation than the log",
                owners[altered],
            )

    # ------------------------------------------------------------------------------------------------ what the assistant says

    def _reply(self, message: LogMessage) -> tuple[list[int], ParsedAction]:
        """The ids of a reply, proven to say the message, and how they are read."""
        if message.token_ids is not None:
            return self._sampled(message, list(message.token_ids))
        text = self._text(message)
        ids = self.chat.encode_action(text)
        if message.finish_reason == "length" and self.chat.end_of_turn_ids:
            ids = ids[:-1]
        said = self._said(message, ids)
        if said != text:
            self._differs(message, said, text, "the tokenizer does not give its text back")
        return ids, self._read(message, text)

    def _text(self, message: LogMessage) -> str:
        """What the assistant wrote: reasoning, content, calls."""
        opening, closing = REASONING_TAGS
        content = message.content
        if message.calls and (loose := self.format.parse(content, tools=self.conversation.tools).calls):
            self.fail(f"its content holds a tool call beside its tool_calls: {loose[0].raw[:80]!r}", message)
        inside = opens_reasoning(self.prefix)
        if message.reasoning is not None:
            thought = message.reasoning
            if any(tag in thought for tag in REASONING_TAGS):
                self.fail(f"its reasoning holds {opening} or {closing} itself", message)
            head = f"{thought}\n{closing}\n\n" if inside else f"{opening}\n{thought}\n{closing}\n\n"
        elif inside and closing not in content:
            head = f"\n{closing}\n\n"  # the prompt opens reasoning; this reply has none
        else:
            head = ""
            if inside and content.startswith(opening):  # the prompt says that already
                begun = self.prefix[self.prefix.rfind(opening) :]
                if not content.startswith(begun):
                    self.fail(f"its reasoning begins with {content[: len(begun)]!r}, and the prompt has begun it with {begun!r}", message)
                content = content.removeprefix(begun)
        return head + content + self._calls(message, bool(content))

    def _calls(self, message: LogMessage, behind_content: bool) -> str:
        between = "; " if isinstance(self.format, Llama3JsonFormat) else "\n"
        try:
            written = [self._call(one) for one in message.calls]
        except ValueError as error:
            self.fail(f"the format {self.format.name!r} cannot write its call: {error}", message)
        return ("\n" if behind_content and written else "") + between.join(written)

    def _call(self, call: LogCall) -> str:
        """A call in the format of the tokenizer; where the log has its arguments as a text, in that very spelling if the format can hold it."""
        if call.spelling is not None:
            empty = self.format.render_call(call.name, {})
            place = empty.rfind("{}")
            spelled = empty[:place] + call.spelling + empty[place + 2 :]
            if place >= 0:
                read = self.format.parse(spelled, tools=self.conversation.tools)
                if not read.content and len(read.calls) == 1 and _same_call(read.calls[0], call):
                    return spelled
        return self.format.render_call(call.name, call.arguments)

    def _said(self, message: LogMessage, ids: Sequence[int]) -> str:
        """The text of ids, without the end of turn; there is none before the last."""
        end = self.chat.first_end(ids)
        if end is not None and end < len(ids) - 1:
            self.fail(f"the end of turn stands in it (id {ids[end]} at {end} of {len(ids)})", message)
        return self.chat.decode(ids[:-1] if end is not None else ids)

    def _read(self, message: LogMessage, text: str) -> ParsedAction:
        """Read the text as an environment would; it has to be the calls and the reasoning of the message."""
        read = self.format.parse(text, prefix=self.prefix, tools=self.conversation.tools)
        if message.calls:
            if len(read.calls) != len(message.calls):
                self.fail(
                    f"it makes {len(message.calls)} calls, and in the format {self.format.name!r} they are read as {len(read.calls)}",
                    message,
                )
            for number, (found, meant) in enumerate(zip(read.calls, message.calls, strict=True)):
                if not _same_call(found, meant):
                    was = found.error or f"{found.name}({json.dumps(found.arguments, ensure_ascii=False)})"
                    self.fail(f"tool_calls[{number}] is read back as another call: {was[:200]}", message)
        if message.reasoning is not None and read.reasoning != message.reasoning.strip():
            self._differs(message, read.reasoning, message.reasoning.strip(), "its reasoning is read back otherwise")
        return read

    def _sampled(self, message: LogMessage, ids: list[int]) -> tuple[list[int], ParsedAction]:
        """The engine's own ids, which have to say what the log says."""
        if outside := [one for one in ids if one >= self.chat.vocab_size]:
            self.fail(
                f"its token_ids {outside[:5]} lie outside the vocabulary of {self.chat.vocab_size}: they are another tokenizer's", message
            )
        said = self._said(message, ids)
        read = self._read(message, said)
        if not message.calls and message.reasoning is None:
            if message.content not in (said, said.strip()):
                self._differs(message, said, message.content, "its token_ids say something else")
        elif said != self._text(message) and message.content not in ("".join(read.pieces), read.content):
            self._differs(message, read.content, message.content, "its token_ids say something else")
        elif not message.calls and read.calls and not self.format.parse(message.content, tools=self.conversation.tools).calls:
            self.fail("its token_ids make a call that the message does not have", message)
        return ids, read

    def _differs(self, message: LogMessage, found: str, wanted: str, what: str) -> NoReturn:
        at = next((n for n, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other), min(len(found), len(wanted)))
        self.fail(f"{what}: at character {at} the ids have {found[at : at + 20]!r}, the log {wanted[at : at + 20]!r}", message)


def _same_call(read: Any, meant: LogCall) -> bool:
    """Whether a call was read as it was meant, types and order of the arguments included (True is not 1, 1 is not 1.0)."""
    return read.error is None and read.name == meant.name and json.dumps(read.arguments) == json.dumps(dict(meant.arguments))


def _plain(message: LogMessage) -> Message:
    """A message for the chat. The system's words are the author's own, in which markers may stand for what they are."""
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    return {**plain, "trusted": True} if message.role == "system" else plain


def _texts(messages: Iterable[LogMessage]) -> str:
    return "\n".join(one.content for one in messages)


# ---------------------------------------------------------------------------------------------------- whole files


def import_chat(path: str | Path, importer: ChatImporter, *, skip_bad: bool = False) -> ImportedLog:
    """Import a log.

    Args:
        path: a JSONL file, one conversation per line (see `agent_gym.data.chat_log`).
        importer: of the tokenizer.
        skip_bad: leave out conversations that cannot be used, and say so in the result.

    Returns:
        The trajectories, and what was left out.

    Raises:
        ChatLogError: for the first conversation that cannot be used, unless they are skipped.
        ValueError: if the file holds no conversation at all.
        FileNotFoundError: if there is no such file.
    """
    result = ImportedLog()
    for one in read_chat_log(path):
        try:
            if isinstance(one, ChatLogError):
                raise one
            result.trajectories.append(importer.trajectory(one))
        except ChatLogError as error:
            if not skip_bad:
                raise
            result.bad.append(error)
    if not result.trajectories and not result.bad:
        raise ValueError(f"{path} holds no conversation; wanted JSON lines, one conversation per line")
    return result


def content_digest(trajectory: Trajectory) -> str:
    """Return 32 hexadecimal digits that change with any id, log-probability, reward or end of a trajectory.

    Args:
        trajectory: any.

    Returns:
        The start of a SHA-256.
    """
    digest = hashlib.sha256()
    for step in trajectory.steps:
        logprobs = None if step.logprobs is None else step.logprobs.astype("<f4").tobytes().hex()
        told = [
            step.finish_reason,
            step.policy_version,
            float(step.reward),
            step.terminated,
            step.truncated,
            str(step.stop_reason),
            logprobs,
        ]
        told += [step.info.get("weight", 1.0), len(step.observation_ids), len(step.action_ids)]
        digest.update(json.dumps(told).encode())
        digest.update(step.observation_ids.astype("<i8").tobytes() + step.action_ids.astype("<i8").tobytes())
    digest.update(trajectory.final_observation.astype("<i8").tobytes())
    digest.update(json.dumps([trajectory.group_id, trajectory.tokenizer_fingerprint]).encode())
    return digest.hexdigest()[:32]


def is_intact(trajectory: Trajectory) -> bool:
    """Whether a trajectory holds the ids that it was written with.

    Args:
        trajectory: as it was read.

    Returns:
        False for an imported one that was altered; True for any other, which keeps no digest.
    """
    return trajectory.env_id != CHAT_LOG or trajectory.options.get("digest") == content_digest(trajectory)


def check_import(path: str | Path, trajectories: Iterable[Trajectory], importer: ChatImporter, *, skip_bad: bool = False) -> int:
    """Hold imported trajectories against their log: import it again, and compare everything.

    Args:
        path: of the log.
        trajectories: as they were read from their file.
        importer: of the tokenizer.
        skip_bad: conversations that cannot be used have no trajectory, and need none.

    Returns:
        The number of trajectories.

    Raises:
        ChatLogError: naming line and message of the first difference.
        ValueError: if a trajectory belongs to no line of the log.
    """
    name = Path(path).name
    stored: dict[int, Trajectory] = {}
    for number, one in enumerate(trajectories):
        line = one.options.get("line")
        if one.env_id != CHAT_LOG or not isinstance(line, int):
            raise ValueError(f"trajectory {number} (task {one.task_id!r}) was not imported from a chat log")
        if line in stored:
            raise ValueError(f"two trajectories name line {line} of {name}")
        stored[line] = one
    count = len(stored)
    for entry in read_chat_log(path):
        kept = stored.pop(entry.line, None)
        try:
            if isinstance(entry, ChatLogError):
                raise entry
            made = importer.trajectory(entry)
        except ChatLogError:
            if skip_bad and kept is None:
                continue
            raise
        assert isinstance(entry, Conversation)
        if kept is None:
            raise ChatLogError("this conversation has no trajectory", file=name, line=entry.line)
        _compare(entry, made, kept, importer.fingerprint)
    if stored:
        raise ValueError(
            f"{name} has no line {min(stored)}, which a trajectory was imported from; a line was taken out of the log, or moved"
        )
    return count


def _compare(conversation: Conversation, made: Trajectory, kept: Trajectory, fingerprint: str) -> None:
    """Raise for the first difference between a conversation as it is now and its stored trajectory."""

    def fail(what: str, message: int | None = None) -> NoReturn:
        role = "" if message is None else conversation.messages[message].role
        raise ChatLogError(what, file=conversation.file, line=conversation.line, message=message, role=role)

    if kept.tokenizer_fingerprint != fingerprint:
        fail(
            f"its trajectory has the tokenizer {kept.tokenizer_fingerprint}, not {fingerprint}; check with the tokenizer it was imported with"
        )
    digests = kept.options.get("messages", [])
    for number, message in enumerate(conversation.messages):
        if digests[number : number + 1] != [message.digest]:
            fail("it is not the message that was imported: the log was altered since", number)
    if len(digests) != len(conversation.messages):
        fail(f"{len(digests)} messages were imported, and the log has {len(conversation.messages)}: the log was altered since")
    before = 0
    for number, (one, other) in enumerate(zip(made.steps, kept.steps, strict=False)):
        index = int(one.info["message"])
        if not np.array_equal(one.observation_ids, other.observation_ids):
            fail(f"the trajectory shows it otherwise (the prompt of step {number} was altered)", before)
        if one != other:
            fail(f"the trajectory's step {number} is not this message: its ids, its reward or its info were altered", index)
        before = index + 1
    if len(made) != len(kept):
        fail(f"the trajectory has {len(kept)} steps, the log {len(made)} assistant's messages")
    if made != kept:
        last = made.steps[-1].info["message"]
        ending = None if np.array_equal(made.final_observation, kept.final_observation) else int(last)
        fail("the trajectory was altered: its end or its head is another", ending)
