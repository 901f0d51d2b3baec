"""The families whose forms the tests of this folder read, and the tool that is called in them."""

from __future__ import annotations

from typing import Any

from agent_gym.tools import FORMATS

FAMILIES = [name for name in FORMATS if name not in ("hermes", "qwen3_coder", "llama3_json", "search_tags")]
BY_SCHEMA = ("glm", "qwen3_coder")  # their arguments have types in the schema alone

SEARCH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "k": {"type": "integer"}, "tags": {"type": "array"}}},
    },
}
