"""`CommandEnv`: worlds that are played by one text command per reply (ALFWorld, TextWorld, WebShop).

A reply is read for its command, the world answers, and the next prompt shows the answer. A reply without a command, and a command that the world
does not admit, cost a turn and end nothing.

Three ways to write a command (`action_format`): "tag" (`<action>go to desk 1</action>`, the last closed one outside reasoning), "tool" (a tool call, in
any `tool_format`) and "line" (the last line of the reply outside reasoning that is not empty).

Contexts: with "append", "window:K", "token_budget:N" and `summarise(...)` the world's answers follow one another as turns. With "rebuild" each prompt is made anew from the state in the
form of StepPO (arXiv 2604.18401): task, present observation, past commands, admissible commands.

An author writes

    _start(options)     -> `Opening`: the task and what is seen first; sets `self.task_id`
    _play(command)      -> `Reply`: what came of a command
    _admissible()       -> the commands that may be shown now
    _state()            -> a text that names the present state, without its history
    _next_command()     -> the expert's next command, or None where there is no expert
    _get_world(), _set_world(world)     the world's part of `get_state` and `set_state`, where it knows a way back
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from agent_gym.chat import Message, load_tokenizer
from agent_gym.context import ContextPolicy
from agent_gym.core import Action, AgentEnv, Observation, Outcome
from agent_gym.envs.tool_prompt import PromptEnd, ToolPrompt, turn_end_ids
from agent_gym.envs.whole_numbers import switch
from agent_gym.tools.base import BaseTool, ToolContext, ToolResult
from agent_gym.tools.calls import REASONING_TAGS, opens_reasoning, split_reasoning
from agent_gym.tools.execution import Awaiting, ToolSet
from agent_gym.tools.formats import ToolCallFormat
from agent_gym.tools.parsing import get_format

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["ACTION_FORMATS", "CommandEnv", "CommandTool", "Opening", "Reply"]

ACTION_FORMATS = ("tag", "tool", "line")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_TAG = re.compile(r"<action>((?:(?!</?action>).)*)</action>", re.DOTALL)
_COMMAND_TOKENS = 48  # where a past command is cut in a rebuilt prompt; admissible ones are far shorter
_LEAST = 16  # tokens that every answer is shown with
_MERGES = 64  # more than what the template's text can lose in merges at its borders


@dataclass(frozen=True, slots=True)
class Opening:
    """How an episode begins.

    Attributes:
        task: what is to be done, one line or a few.
        observation: what is seen first, without the task.
        text: the first user message of contexts that grow; empty for the task and the observation below it.
    """

    task: str
    observation: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a command.

    Attributes:
        text: the world's answer.
        reward: of this step.
        done: the task ended, by success or failure. Limits are not the author's business.
        success: the task is solved.
        valid: the command was admissible.
        parts: the reward's named summands; None puts all of it on the first of `reward_part_names`.
        info: values of keys in `extra_info`.
    """

    text: str
    reward: float = 0.0
    done: bool = False
    success: bool = False
    valid: bool = True
    parts: Mapping[str, float] | None = None
    info: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


class CommandTool(BaseTool):
    """A tool whose call means a command; it runs nothing itself.

    Args:
        name: of the tool.
        description: for the model.
        argument: the name of its one text argument.
        about: what the argument is, for the model.
        pattern: the command, `{}` standing for the argument.
    """

    def __init__(self, name: str, description: str, argument: str, about: str, pattern: str = "{}") -> None:
        parameters = {"type": "object", "properties": {argument: {"type": "string", "description": about}}, "required": [argument]}
        super().__init__(name=name, description=description, parameters=parameters)
        self.argument = argument
        self._before, _, self._behind = pattern.partition("{}")

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Return the command that a call means.

        Args:
            arguments: checked against the schema.
            context: unused.

        Returns:
            The command as the result's text.
        """
        return ToolResult(f"{self._before}{arguments[self.argument]}{self._behind}")

    def arguments_of(self, command: str) -> dict[str, str] | None:
        """Return the arguments of the call that means a command.

        Args:
            command: as the world takes it.

        Returns:
            The arguments, or None where this tool cannot mean it.
        """
        fits = command.startswith(self._before) and command.endswith(self._behind) and len(command) >= len(self._before) + len(self._behind)
        return {self.argument: command[len(self._before) : len(command) - len(self._behind)]} if fits else None


class CommandEnv(AgentEnv):
    """A world that is played by one text command per reply.

    Args:
        action_format: "tag", "tool" or "line"; see the module.
        tool_format: how calls are written, for action_format="tool"; see `ToolEnv`.
        show_admissible: whether prompts list the admissible commands.
        invalid_penalty: taken off the reward of a step whose reply holds no command or one that is not admissible; not negative.
        system_prompt: text of the first message; None for the environment's own. How a command is written is added to it.
        context: "append", "window:K", "token_budget:N", "rebuild" or a policy; see `agent_gym.context`.
        tokenizer: see `AgentEnv`.
        markers: further literals that text from the world must not forge.
        max_turns: replies that an episode has.
        **kwargs: see `AgentEnv`. `max_tool_result_tokens` is where the answer to one command is cut, with a visible mark.

    Raises:
        ValueError: for keywords that cannot be used.
    """

    reward_part_names: ClassVar[tuple[str, ...]] = ("task", "invalid")
    extra_info: ClassVar[Mapping[str, Any]] = {"command": "", "admissible_commands": ()}
    """The command of the last reply, empty where it held none; and the commands that may be shown now, a tuple of str."""
    system_prompt: ClassVar[str] = "You act in a world of text, one command per reply."
    command_tools: ClassVar[tuple[CommandTool, ...]] = (
        CommandTool("env_step", "Carry out one command in the world.", "action", "the command, for example: look"),
    )
    """The tools of action_format="tool"."""

    def __init__(
        self,
        *,
        action_format: str = "tag",
        tool_format: str | Mapping[str, Any] | ToolCallFormat = "hermes",
        show_admissible: bool = True,
        invalid_penalty: float = 0.0,
        system_prompt: str | None = None,
        context: str | ContextPolicy = "rebuild",
        tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
        markers: Sequence[str] = (),
        max_turns: int = 50,
        **kwargs: Any,
    ) -> None:
        if action_format not in ACTION_FORMATS:
            raise ValueError(f"action_format must be one of {', '.join(ACTION_FORMATS)}, not {action_format!r}")
        if (
            isinstance(invalid_penalty, bool)
            or not isinstance(invalid_penalty, (int, float))
            or not 0 <= invalid_penalty <= sys.float_info.max
        ):
            raise ValueError(f"invalid_penalty must be a number that is not negative, not {invalid_penalty!r}; it is taken off the reward")
        show_admissible = switch("show_admissible", show_admissible)
        if not isinstance(system_prompt, (str, type(None))):
            raise ValueError(f"system_prompt must be a text or None, not {system_prompt!r}")
        opened = load_tokenizer(tokenizer)
        text = self.system_prompt if system_prompt is None else system_prompt
        self.action_format = action_format
        self.show_admissible = show_admissible
        self.invalid_penalty = float(invalid_penalty)
        self._rebuilds = context == "rebuild"
        self._tools = ToolSet(self.command_tools if action_format == "tool" else ())
        self._schemas = self._tools.schemas
        self.tool_format: ToolCallFormat | None = None
        own: tuple[str, ...] = ()
        tools = None
        if action_format == "tool":
            self.tool_format = get_format(tool_format, opened)
            own = self.tool_format.markers
            kwargs["end_of_turn_ids"] = (*kwargs.get("end_of_turn_ids", ()), *turn_end_ids(opened, self.tool_format))
            prompt = ToolPrompt(opened, self.tool_format, self._schemas, markers=markers, template_kwargs=kwargs.get("template_kwargs"))
            tools = prompt.tools
            text = prompt.system_text(f"{text} Call a tool in each reply, once.")
        elif action_format == "tag":
            own = ("<action>", "</action>")
            text = f"{text} Write the command between <action> and </action>; of several the last one counts."
        else:
            text = f"{text} The last line of your reply is the command, and nothing else stands on it."
        super().__init__(tokenizer=opened, markers=(*own, *markers), tools=tools, context=context, max_turns=max_turns, **kwargs)
        self._system: Message = {"role": "system", "content": text.strip(), "trusted": True}
        self._prompt_end = PromptEnd(self.chat)
        self._opening = Opening("", "")
        self._observed = ""
        self._past: list[str] = []
        self._shown_past: list[str] = []  # the same as rebuilt prompts show it
        self._commands: tuple[str, ...] = ()
        frame: list[Message] = [self._system, {"role": "user", "content": "-"}]
        self._frame_length = len(self.chat.render(frame, self.tools)) if self._rebuilds else 0

    # ------------------------------------------------------------------------------------------------ for authors

    def _start(self, options: dict[str, Any]) -> Opening:
        """Start a task drawn with `self.np_random`, or chosen by `options`, and set `self.task_id`.

        Args:
            options: of `reset`; only keys in `option_names`.

        Returns:
            The task and what is seen first.
        """
        raise NotImplementedError

    def _play(self, command: str) -> Reply:
        """Carry out a command. What the world does not admit is answered; what breaks it raises `EnvFault`.

        Args:
            command: without blanks around it, not empty.

        Returns:
            What came of it.
        """
        raise NotImplementedError

    def _unread(self, mistake: str) -> Reply:
        """Answer a reply that holds no command. A world whose state stands in its answers alone tells it again here.

        Args:
            mistake: what is wrong with the reply.

        Returns:
            The answer.
        """
        return Reply(mistake, valid=False)

    def _admissible(self) -> Sequence[str]:
        """Return the commands that may be shown now.

        Returns:
            The commands, in the order in which they are shown.
        """
        return ()

    def _state(self) -> str:
        """Return a text that names the present state, without its history: equal in any two moments with the same future.

        Returns:
            The text, for `info["state_key"]`.
        """
        return f"{self._opening.task}\n{self._observed}"

    def _next_command(self) -> str | None:
        """Return the expert's next command in the present state.

        Returns:
            The command, or None where there is no expert.
        """
        return None

    def _get_world(self) -> Any:
        """Return the world's present state, as a value that later commands leave alone; see `AgentEnv.get_state`.

        Returns:
            The value, for `_set_world`.
        """
        return super()._get_state()

    def _set_world(self, world: Any) -> None:
        """Return to a state of the world.

        Args:
            world: what `_get_world` returned, maybe in another environment with the same keywords.
        """
        super()._set_state(world)

    def _standing(self) -> Mapping[str, Any]:
        """Return the values of own keys of `extra_info` that stand in every info.

        Returns:
            Values by key.
        """
        return _NOTHING

    # ------------------------------------------------------------------------------------------------ the episode

    def _begin(self, options: dict[str, Any]) -> Observation:
        """Start a task; see `AgentEnv._begin`."""
        self._past, self._shown_past = [], []
        self._opening = opening = self._start(options)
        self._observed = opening.observation
        self._commands = tuple(self._admissible())
        if self._rebuilds:
            return Observation(messages=self._rebuild())
        text = opening.text or f"{opening.task}\n\n{opening.observation}"
        return Observation(messages=(self._system, {"role": "user", "content": self._with_commands(text)}))

    def _respond(self, action: Action) -> Outcome:
        """Answer a reply; see `AgentEnv._respond`."""
        command, mistake, role = self._read(action.text)
        reply = self._unread(mistake) if command is None else self._play(command)
        self._past.append(command or "")
        if self._rebuilds:
            self._shown_past.append(self.chat.truncate_text(" ".join((command or "").split()), _COMMAND_TOKENS) or "(no command)")
        self._observed = reply.text
        self._commands = tuple(self._admissible()) if not reply.done else ()
        reward, parts = reply.reward, dict(reply.parts) if reply.parts is not None else {self.reward_part_names[0]: reply.reward}
        if not reply.valid and self.invalid_penalty:
            reward -= self.invalid_penalty
            parts["invalid"] = -self.invalid_penalty
        info = {
            "feedback": reply.text,
            "action_valid": reply.valid,
            "is_success": reply.success,
            "reward_parts": parts,
            "state_key": self._state(),
            "command": command or "",
            **reply.info,
        }
        shown: Sequence[Message] = ()
        if not reply.done:
            limit = self._result_limit(len(action.token_ids))
            if self.show_admissible and self._commands:
                shown = ({"role": role, "content": self._with_commands(self.chat.truncate_text(reply.text, limit))},)
            else:
                shown = ({"role": role, "content": reply.text, "max_tokens": limit},)
        return Outcome(Observation(messages=shown), reward, reply.done, info)

    def read_command(self, text: str) -> str | None:
        """Return the command that a reply holds.

        Args:
            text: the reply.

        Returns:
            The command, or None where there is none.
        """
        return self._read(text)[0]

    def _get_state(self) -> Any:
        return self._opening, self._observed, tuple(self._past), tuple(self._shown_past), self._commands, self._get_world()

    def _set_state(self, state: Any) -> None:
        opening, observed, past, shown, commands, world = state
        self._set_world(world)  # first, since it may refuse
        self._opening, self._observed, self._commands = opening, observed, commands
        self._past, self._shown_past = list(past), list(shown)

    def _read(self, text: str) -> tuple[str | None, str, str]:
        """The command of a reply, or None; what is said of it where there is none; and the role in which it is answered."""
        if self.tool_format is not None:
            return self._read_call(self.tool_format, text)
        pieces, _ = split_reasoning(text, inside=opens_reasoning(self._prefix))
        if self.action_format == "line":
            lines = [line.strip() for piece in pieces for line in piece.splitlines() if line.strip()]
            return (lines[-1], "", "user") if lines else (None, "Your reply holds no command; its last line must be one.", "user")
        found = [match.group(1).strip() for piece in pieces for match in _TAG.finditer(piece)]
        if found and found[-1]:
            return found[-1], "", "user"
        return None, "Your reply holds no command between action tags. Nothing was done.", "user"

    def _read_call(self, tool_format: ToolCallFormat, text: str) -> tuple[str | None, str, str]:
        """The command that a reply's one tool call means; the rest as `_read`."""
        parsed = tool_format.parse(text, prefix=self._prefix, tools=self._schemas)
        if len(parsed.calls) != 1:
            many = f"{len(parsed.calls)} tool calls, and one is allowed" if parsed.calls else "no whole tool call"
            return None, f"Error: your reply holds {many}. Nothing was done.", "tool" if parsed.has_marker else "user"
        result = self._tools.begin(parsed.calls[0], ToolContext(_NOTHING, self.turn, 0, None, {}, 0), 0)
        assert not isinstance(result, Awaiting)  # a CommandTool never waits
        if result.error is not None:
            return None, result.text, "tool"
        command = result.text.strip()
        return (command, "", "tool") if command else (None, "Error: the command is empty. Nothing was done.", "tool")

    def _info(self, feedback: str, given: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        standing = {"admissible_commands": self._commands, **self._standing()}
        if self.turn == 0:
            standing |= {"feedback": self._opening.observation}
            self._state_key = self._state()
        return super()._info(feedback, {**standing, **given}, *args, **kwargs)

    # ------------------------------------------------------------------------------------------------ prompts

    def _result_limit(self, action_tokens: int) -> int:
        """Return where the answer to the present command is cut, in tokens: before `max_tool_result_tokens` where it would find no room beside the task."""
        room = self._answer_room(action_tokens)
        if room is None:
            return self.max_tool_result_tokens
        if self.show_admissible and self._commands:
            room -= len(self.chat.encode_text(self._command_list()))
        return max(_LEAST, min(self.max_tool_result_tokens, room - _MERGES))

    def _with_commands(self, text: str) -> str:
        return f"{text}\n\n{self._command_list()}" if self.show_admissible and self._commands else text

    def _command_list(self) -> str:
        return "Admissible commands:\n" + "\n".join(f"- {command}" for command in self._commands)

    def _rebuild(self) -> list[Message]:
        """Make the whole prompt from the state; see `AgentEnv._rebuild`. Past commands are left out, oldest first, where there is no room."""
        low, high = 0, len(self._shown_past)  # the smallest number of commands to leave out, by bisection; most often none
        middle = 0
        while low < high:
            if self._fits(self._state_messages(middle)):
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
        return self._state_messages(low)

    def _fits(self, messages: Sequence[Message]) -> bool:
        """Whether a rebuilt prompt has room. Text of ASCII has at most one token per character, so that most prompts are rendered once and not twice."""
        text = str(messages[-1]["content"])
        if text.isascii() and self._frame_length + len(text) + 3 * text.count("<") + _MERGES <= self.max_observation_tokens:
            return True
        return len(self.chat.render(messages, self.tools)) <= self.max_observation_tokens

    def _state_messages(self, left_out: int) -> list[Message]:
        past, observed = self._shown_past, self._observed
        if past:
            observed = self.chat.truncate_text(observed, self.max_tool_result_tokens)
        parts = [f"Task: {self._opening.task}"]
        if past and not self.show_admissible:
            parts.append(f"At the beginning: {self._opening.observation}")
        parts.append(f"Now: {observed}")
        if past:
            head = f"Past commands ({left_out} earlier ones are left out):" if left_out else "Past commands:"
            numbered = [f"{number}. {command}" for number, command in enumerate(past[left_out:], start=left_out + 1)]
            parts.append("\n".join([head, *numbered]))
        if self.show_admissible and self._commands:
            parts.append(self._command_list())
        return [self._system, {"role": "user", "content": "\n\n".join(parts)}]

    # ------------------------------------------------------------------------------------------------ the expert

    @property
    def _prefix(self) -> str:
        """What the present prompt ends with, which may have opened reasoning."""
        return self._prompt_end.of(self._prompt[: self._length])

    def encode_action(self, text: str) -> list[int]:
        """Return the ids of a reply written by hand, in the form of the format's family; see `AgentEnv.encode_action`.

        Args:
            text: the reply.

        Returns:
            Token ids for `step`.
        """
        return super().encode_action(text) if self.tool_format is None else self.chat.encode_action(*self.tool_format.as_reply(text))

    def write_command(self, command: str) -> str:
        """Return the reply that gives a command in this environment's action format. It closes reasoning that the chat template opened.

        Args:
            command: as the world takes it.

        Returns:
            Text for `encode_action`.

        Raises:
            ValueError: where no tool can mean the command.
        """
        if self.tool_format is None:
            reasoned = f"{REASONING_TAGS[1]}\n\n" if opens_reasoning(self._prefix) else ""  # the template began to reason
            return reasoned + (f"<action>{command}</action>" if self.action_format == "tag" else command)
        for tool in self.command_tools:
            arguments = tool.arguments_of(command)
            if arguments is not None:
                return self.tool_format.close_reasoning(self._prefix) + self.tool_format.render_call(tool.name, arguments)
        raise ValueError(f"no tool of {type(self).__name__} can mean the command {command!r}")

    def expert(self) -> Callable[[], str] | None:
        """Return the expert, in this environment's action format.

        Returns:
            The function; None where the world has no expert.
        """
        return self._expert_reply if type(self)._next_command is not CommandEnv._next_command else None

    def _expert_reply(self) -> str:
        command = self._next_command()
        if command is None:
            raise ValueError(f"the expert of {type(self).__name__} knows no next command in the present state")
        return self.write_command(command)
