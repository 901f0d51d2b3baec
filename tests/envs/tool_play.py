"""Ways to play a step of a `ToolEnv`, which the tests of it and of Tool-v0 share."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agent_gym.envs.tool import ToolEnv

INFO_KEYS = {
    "n_tool_calls": int,
    "n_tool_errors": int,
    "n_malformed": int,
    "answer": str,
    "total_tool_calls": int,
    "total_tool_errors": int,
    "reward_parts": dict,
    "action_valid": bool,
    "is_success": bool,
    "feedback": str,
}


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def act(env: ToolEnv, text: str, how: str = "step") -> tuple[float, bool, bool, dict[str, Any]]:
    ids = env.encode_action(text)
    _, reward, terminated, truncated, info = env.step(ids) if how == "step" else asyncio.run(env.astep(ids))
    for key, kind in INFO_KEYS.items():
        assert type(info[key]) is kind, key
    return reward, terminated, truncated, info
