"""Conversations brought into a form that a chat template prints: what it refuses or drops falls back to roles that it knows. Used by `chat.py` alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["join_same_roles", "system_into_user_turn", "tool_messages_as_user_turns", "tools_text"]


def tool_messages_as_user_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    arranged: list[dict[str, Any]] = []
    inside = False
    for message in messages:
        if message["role"] != "tool":
            arranged.append(message)
            inside = False
            continue
        block = f"<tool_response>\n{message['content']}\n</tool_response>"
        if inside:
            arranged[-1] = {"role": "user", "content": f"{arranged[-1]['content']}\n{block}"}
        else:
            arranged.append({"role": "user", "content": block})
        inside = True
    return arranged


def system_into_user_turn(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    arranged: list[dict[str, Any]] = []
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "system":
            waiting.append(message["content"])
        elif message["role"] == "user" and waiting:
            arranged.append({**message, "content": "\n\n".join([*waiting, message["content"]])})
            waiting = []
        else:
            arranged.append(message)
    return [*arranged, {"role": "user", "content": "\n\n".join(waiting)}] if waiting else arranged


def join_same_roles(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    arranged: list[dict[str, Any]] = []
    for message in messages:
        if arranged and arranged[-1]["role"] == message["role"]:
            arranged[-1] = {**arranged[-1], "content": f"{arranged[-1]['content']}\n\n{message['content']}"}
        else:
            arranged.append(dict(message))
    return arranged


def tools_text(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return f"You may call these tools. Their JSON schemas:\n<tools>\n{lines}\n</tools>"
