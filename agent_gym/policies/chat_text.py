"""Between token ids and chat messages: the messages behind an environment's prompt, and the action ids that say a server's reply.

A server of OpenAI's chat API takes no ids. What it is shown is made of the very messages that the environment's prompt was rendered from, found by comparing ids and
not by reading text: the head of the history, its actions and answers, or what a context policy rebuilt. The functions need nothing but the environment, so that they run
where it lives, also in a worker process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_gym._arrange import join_same_roles, tool_messages_as_user_turns, tools_text
from agent_gym.context import Exchange, Rebuild, summary_message
from agent_gym.context.cuts import spliced
from agent_gym.tools.calls import REASONING_TAGS, InvalidJSON, read_json
from agent_gym.tools.formats.base import open_reasoning
from agent_gym.tools.parsing import get_format

__all__ = ["Said", "action_of", "messages_of"]

_PROBE = {"agentgymargument": 0}


@dataclass(frozen=True, slots=True)
class Said:
    """A reply of a chat server.

    Attributes:
        content: its text; a refusal's where it refused.
        reasoning: the text of a reasoning model's thoughts, where the server gives them apart.
        calls: (name, arguments as the server wrote them) of its structured calls.
        finished: it came to its end, and was not cut off.
    """

    content: str
    reasoning: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    finished: bool = True


def messages_of(env: Any, prompt_ids: Sequence[int]) -> tuple[list[dict[str, str]], bool]:
    """Return a prompt of an environment as chat messages: roles system, user and assistant, content alone, no role twice in a row.

    Tools that the chat template would show stand in the system message, in the words of the environment's tool format; tool messages are user messages in
    `<tool_response>` tags, as for chat templates without that role.

    Args:
        env: an `AgentEnv`, unwrapped, in the episode of the prompt.
        prompt_ids: the prompt, without padding.

    Returns:
        The messages; and whether they are those that the prompt was rendered from. False where it came as ids (also in part): those are decoded.

    Raises:
        TypeError: for an environment without a chat.
    """
    if getattr(env, "chat", None) is None or getattr(env, "history", None) is None:
        raise TypeError(
            f"{type(env).__name__} has no chat messages that a text server could be shown; OpenAIPolicy plays AgentEnv environments"
        )
    ids = tuple(int(one) for one in prompt_ids)
    found = _from_history(env, ids) or _rebuilt(env, ids)
    messages, exact = found if found is not None else ([{"role": "user", "content": env.chat.decode(ids, skip_special=True)}], False)
    if env.tools:
        told = _instructions(env)
        if messages and messages[0]["role"] == "system":
            messages[0] = {**messages[0], "content": f"{messages[0]['content']}\n\n{told}".strip()}
        else:
            messages.insert(0, {"role": "system", "content": told})
    return join_same_roles(tool_messages_as_user_turns(messages)), exact


def _from_history(env: Any, ids: tuple[int, ...]) -> tuple[list[dict[str, str]], bool] | None:
    """The head, perhaps with a summary, and the exchanges behind it that the prompt still shows."""
    history = env.history
    fronts: list[tuple[tuple[int, ...], list[Mapping[str, Any]]]] = [(history.head_ids, list(history.head_messages))]
    if history.front_ids:
        note = summary_message(history.summary, history.summarised)
        fronts.append((history.front_ids, [*history.head_messages, note] if history.head_messages else []))
    for front, messages in fronts:
        size, first = len(front), len(history.exchanges)
        while size < len(ids) and first:
            first -= 1
            size += len(history.exchanges[first])
        kept = history.exchanges[first:]
        if size == len(ids) and spliced(front, kept) == ids:
            exact = bool(messages)
            shown = _plain(env, messages) if exact else [{"role": "user", "content": env.chat.decode(front, skip_special=True)}]
            for exchange in kept:
                answer, told = _answer(env, exchange)
                shown += [{"role": "assistant", "content": exchange.action_text}, *answer]
                exact = exact and told
            return shown, exact
    return None


def _answer(env: Any, exchange: Exchange) -> tuple[list[dict[str, str]], bool]:
    if exchange.messages:
        return _plain(env, exchange.messages), True
    text = env.chat.decode(exchange.turn_ids, skip_special=True).strip()
    return ([{"role": "user", "content": text}], False) if text else ([], True)


def _rebuilt(env: Any, ids: tuple[int, ...]) -> tuple[list[dict[str, str]], bool] | None:
    """What `Rebuild` makes of the history, where that is this prompt, id for id."""
    if not isinstance(env.context, Rebuild):
        return None
    messages = env.context.next_prompt(env.history)
    return (_plain(env, messages), True) if tuple(env.chat.render(messages, env.tools)) == ids else None


def _plain(env: Any, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Role and content alone; kept actions as text."""
    return [
        {"role": str(one["role"]), "content": str(one["content"]) if one.get("token_ids") is None else _text(env, one)} for one in messages
    ]


def _text(env: Any, message: Mapping[str, Any]) -> str:
    ids = [int(one) for one in message["token_ids"]]
    end = env.chat.first_end(ids)
    return str(env.chat.decode(ids if end is None else ids[:end]))


def _instructions(env: Any) -> str:
    own = getattr(env, "tool_format", None)
    return str(own.instructions(env.tools)) if own is not None else tools_text(env.tools)


def action_of(env: Any, said: Said, max_tokens: int, keep_reasoning: bool = False) -> tuple[list[int], bool, bool]:
    """Return the ids that say a reply: the text by the environment's tokenizer, structured calls in its tool format.

    The ids are made as for a reply written by hand (`AgentEnv.encode_action`): markers of calls and of reasoning are those that the text holds, other control
    tokens in it are only text, so no reply ends a turn or begins one.

    Args:
        env: an `AgentEnv`, unwrapped, at the prompt that was answered.
        said: the reply.
        max_tokens: the most ids.
        keep_reasoning: put reasoning that came apart before the text, in its tags.

    Returns:
        The ids; whether they end with the end of turn (a reply that was cut off does not); whether ids were cut away for `max_tokens`. A reply without any text is
        the end of turn alone, since an action without ids would mean that there was no room for one.
    """
    ids = [int(one) for one in env.encode_action(_written(env, said, keep_reasoning))]
    ends = bool(ids) and env.chat.ends_turn(ids)
    if ends and not said.finished and len(ids) > 1:
        ids, ends = ids[:-1], False
    cut = len(ids) > max_tokens
    return (ids[:max_tokens], False, True) if cut else (ids, ends, False)


def _written(env: Any, said: Said, keep_reasoning: bool) -> str:
    own = getattr(env, "tool_format", None) or get_format("hermes")
    text = said.content
    if said.calls:
        text = f"{text}\n{_calls(own, said.calls)}".strip()
    pairs = own.reasoning or (REASONING_TAGS,)
    closing = open_reasoning(_prompt_end(env), pairs)
    thoughts = said.reasoning.strip() if keep_reasoning else ""
    if closing is not None and closing not in text:  # the template has opened reasoning, in which no call and no answer is seen
        return f"{thoughts}\n{closing}\n\n{text}".lstrip("\n") if thoughts else f"{closing}\n\n{text}"
    opens, closes = pairs[0]
    return f"{opens}\n{thoughts}\n{closes}\n\n{text}" if thoughts and closing is None else text


def _prompt_end(env: Any) -> str:
    from agent_gym.envs.tool_prompt import PromptEnd

    known = getattr(env, "_prompt_end", None)
    return (known if isinstance(known, PromptEnd) else PromptEnd(env.chat)).of(env.prompt_ids)


def _calls(own: Any, calls: Sequence[tuple[str, Any]]) -> str:
    """Structured calls as the environment's format writes them; one that it cannot write is written all the same, for the environment to answer."""
    readable: list[tuple[str, dict[str, Any]]] = []
    for name, arguments in calls:
        try:
            value = read_json(arguments or "{}") if isinstance(arguments, str) else {} if arguments is None else arguments
        except InvalidJSON:
            value = None
        if not isinstance(value, dict):
            return "\n".join(_as_it_came(own, *call) for call in calls)
        readable.append((name, value))
    try:
        return str(own.render_calls(readable))
    except ValueError:
        return "\n".join(_as_it_came(own, *call) for call in calls)


def _as_it_came(own: Any, name: str, arguments: Any) -> str:
    """A call whose arguments are no JSON object, or that the format has no form for: its own text stands where the arguments do."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    piece = json.dumps(_PROBE)
    try:
        form = str(own.render_call(name, _PROBE))
    except ValueError:
        form = ""
    if piece in form:
        return form.replace(piece, raw)
    return f'{own.markers[0] if own.markers else ""}{{"name": {json.dumps(name)}, "arguments": {raw}}}'
