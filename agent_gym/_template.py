"""One chat template: what it prints, what it refuses and drops, and how a turn behind a reply looks. Used by `chat.py` alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_gym._arrange import join_same_roles, system_into_user_turn, tool_messages_as_user_turns, tools_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["FIXED_DATE", "Template"]

FIXED_DATE = "01 January 2025"
"""What a template that prints today's date gets to print, since the same task must give the same ids on every day."""

_USER = {"role": "user", "content": "Ready?"}
_REPLY = {"role": "assistant", "content": "agentgymdummyreply"}
_DUMMY = _REPLY["content"]


class Template:
    """A tokenizer's chat template with fallbacks for what it does not print.

    Args:
        tokenizer: with a chat template.
        kwargs: for the template.
        tools: JSON schemas that every prompt of this chat shows; a template may print its turns differently where there are tools.

    Attributes:
        notes: what had to fall back.
        shows_tool_role: whether role tool is printed.
        closing: what the template prints between a reply and whatever comes behind it.

    Raises:
        ValueError: if it does not print a plain conversation, or changes what the assistant said.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, kwargs: Mapping[str, Any], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        self.tokenizer = tokenizer
        template = tokenizer.chat_template
        self.text = "\n".join(template.values()) if isinstance(template, dict) else str(template)
        self._kwargs = dict(kwargs)
        self._dated = "strftime_now" in self.text
        self._shows_tools = self.shows_tool_role = self._shows_system = self._shows_repeats = True
        self._tools: list[Any] | None = None
        self.notes: tuple[str, ...] = tuple(self._probe(list(tools) if tools else None))
        self._tools = list(tools) if tools and self._shows_tools else None
        self.closing = self._find_closing()
        flags = (self._shows_tools, self.shows_tool_role, self._shows_system, self._shows_repeats)
        self.key = (self._source(self._tools), json.dumps([self._kwargs, self._tools], sort_keys=True, default=str), flags)

    # ------------------------------------------------------------------------------------------------ printing

    def print(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """Print a whole prompt, the opening of the assistant's turn included."""
        return self._apply(self.arrange(messages, tools), list(tools) if tools and self._shows_tools else None)

    def print_turn(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Print messages behind a fixed dummy conversation and cut at the dummy's reply."""
        return _behind_reply(self._apply(self.arrange([_USER, _REPLY, *messages]), self._tools))

    def print_watched_turn(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Print the same with contents whose use by the template is being watched (see `_skeleton.py`)."""
        printed: str = self._compiled().render(
            messages=self.arrange([_USER, _REPLY, *messages]),
            tools=self._tools,
            documents=None,
            add_generation_prompt=True,
            **{**self.tokenizer.special_tokens_map, **self._kwargs},
        )
        return _behind_reply(printed)

    def printable(self) -> str:
        """Return what the template can print of its own: the text around its code and the string constants in it, not its keywords and names."""
        import jinja2

        tokens = jinja2.Environment().lex(self.text)
        return "\n".join(value for _, kind, value in tokens if kind in ("data", "string"))

    def constants(self) -> list[str]:
        """Return the string constants of the template: what it could hold a content against."""
        import jinja2.nodes

        tree = self._compiled().environment.parse(self._source(self._tools))
        found = {node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)}
        return sorted(one for one in found if one.strip() and len(one) <= 64)

    def arrange(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> list[dict[str, Any]]:
        """Bring messages into the form that this template prints."""
        arranged = [dict(message) for message in messages]
        if tools and not self._shows_tools:
            text = tools_text(tools)
            if arranged and arranged[0]["role"] == "system":
                arranged[0]["content"] = f"{arranged[0]['content']}\n\n{text}"
            else:
                arranged.insert(0, {"role": "system", "content": text})
        if not self.shows_tool_role:
            arranged = tool_messages_as_user_turns(arranged)
        if not self._shows_system:
            arranged = system_into_user_turn(arranged)
        if not self._shows_repeats:
            arranged = join_same_roles(arranged)
        return arranged

    def _apply(self, messages: list[dict[str, Any]], tools: list[Any] | None, opening: bool = True) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tools=tools,
                chat_template=self._source(tools),
                tokenize=False,
                add_generation_prompt=opening,
                **self._kwargs,
            )
        )

    def _source(self, tools: list[Any] | None) -> str:
        """The template for prompts with or without tools; a macro takes the place of the function that prints today's date."""
        template = str(self.tokenizer.get_chat_template(tools=tools))
        return f"{{%- macro strftime_now(format) -%}}{FIXED_DATE}{{%- endmacro -%}}{template}" if self._dated else template

    def _compiled(self) -> Any:
        from transformers.utils.chat_template_utils import _compile_jinja_template

        return _compile_jinja_template(self._source(self._tools))

    # ------------------------------------------------------------------------------------------------ probing

    def _probe(self, own_tools: list[Any] | None) -> list[str]:
        """Find out what the template prints, refuses and drops, and set the fallbacks."""
        notes: list[str] = []
        refusals: list[Exception] = []
        user, reply = {"role": "user", "content": "probeuser"}, {"role": "assistant", "content": "probereply"}

        def prints(messages: list[dict[str, Any]], *wanted: str, tools: list[Any] | None = None) -> bool:
            try:
                text = self._apply(messages, tools).lower()
            except Exception as error:  # noqa: BLE001  # a template refuses in its own words: any error means that it does not print this
                refusals.append(error)
                return False
            places = [text.find(one) for one in wanted]
            return -1 not in places and places == sorted(places)

        if not prints([user], "probeuser") or not prints([user, reply, user], "probeuser", "probereply"):
            raise ValueError(
                "the chat template does not print a plain conversation of user, assistant and user; pass a tokenizer with a chat template, and look "
                f"at template_kwargs={self._kwargs}"
            ) from (refusals[0] if refusals else None)
        schema = {"name": "probefunction", "description": "d", "parameters": {"type": "object", "properties": {}}}
        if not prints([user], "probefunction", tools=[{"type": "function", "function": schema}]):
            self._shows_tools = False
        shown = own_tools if self._shows_tools else None
        if not prints([{"role": "system", "content": "probesystem"}, user], "probesystem", "probeuser", tools=shown):
            self._shows_system = False
            notes.append("the template has no system role: the system message heads the first user turn")
        tools = [{"role": "tool", "content": "probetoolone"}, {"role": "tool", "content": "probetooltwo"}]
        follow = {"role": "user", "content": "probefollow"}
        if not prints([user, reply, *tools], "probereply", "probetoolone", "probetooltwo", tools=shown):
            self.shows_tool_role = False
            notes.append("the template does not print role tool: tool messages become one user turn of <tool_response> blocks")
        elif not prints([user, reply, *tools, follow], "probetoolone", "probetooltwo", "probefollow", tools=shown):
            self.shows_tool_role = False
            notes.append("the template refuses a user turn behind tool messages: tool messages become part of the user turn")
        if not prints([user, reply, follow, {"role": "user", "content": "probeagain"}], "probefollow", "probeagain", tools=shown):
            self._shows_repeats = False
            notes.append("the template refuses repeated roles: adjacent messages of one role are joined")
        if not self._shows_tools:
            notes.append("the template ignores tools: they are described in the system message")
        if self._dated:
            notes.append(f"the template prints today's date: it gets {FIXED_DATE}")
        return notes

    def _find_closing(self) -> str:
        """What stands between a reply and the next turn.

        Most templates print it behind the last reply too. One that does not is asked for a reply with a user turn behind it, whose header is known
        from the first user turn.
        """
        last = _behind_reply(self._apply([dict(_USER), dict(_REPLY)], self._tools, opening=False))
        if last:
            return last
        follow = "probefollow"
        behind = _behind_reply(self._apply([dict(_USER), dict(_REPLY), {"role": "user", "content": follow}], self._tools, opening=False))
        first = self._apply([{"role": "user", "content": follow}], self._tools, opening=False)
        before, header = behind.split(follow)[0], first.split(follow)[0]
        same = 0
        while same < min(len(before), len(header)) and before[-1 - same] == header[-1 - same]:
            same += 1
        return before[: len(before) - same]


def _behind_reply(printed: str) -> str:
    before, found, behind = printed.partition(_DUMMY)
    if not found:
        raise ValueError(
            f"the chat template changes what the assistant said ({_DUMMY!r} does not stand in {before[-300:]!r}), so no reply could be kept as it was sampled; "
            "pass a tokenizer whose template prints the assistant's content as it is"
        )
    return behind
