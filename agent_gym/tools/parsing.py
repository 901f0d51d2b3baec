"""Reading tool calls out of a model's reply: the door to `calls` (what a reply is read into) and `formats` (how families write).

hermes = get_format("hermes")
parsed = hermes.parse('<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>')
parsed.calls[0].arguments        # {"a": 1, "b": 2}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent_gym.tools.base import nearest
from agent_gym.tools.calls import ParsedAction, ToolCall, extract_answer
from agent_gym.tools.formats import (
    HermesFormat,
    Llama3JsonFormat,
    Qwen3CoderFormat,
    SearchTagsFormat,
    TemplateFormat,
    ToolCallFormat,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["FORMATS", "ParsedAction", "ToolCall", "ToolCallFormat", "detect_format", "extract_answer", "get_format"]

FORMATS: Mapping[str, Callable[[], ToolCallFormat]] = {
    "hermes": HermesFormat,
    "qwen3_coder": Qwen3CoderFormat,
    "llama3_json": Llama3JsonFormat,
    "search_tags": SearchTagsFormat,
}
"""The formats by name. Beside these `get_format` knows "auto" and response templates."""


def detect_format(chat_template: str) -> str | None:
    """Name the format that a chat template teaches.

    Args:
        chat_template: the template's text.

    Returns:
        A key of `FORMATS`; "" where the template says nothing of tools; None where it teaches a format that has no name here.
    """
    if "<function=" in chat_template:
        return "qwen3_coder"
    if any(mark in chat_template for mark in ("<arg_key>", "<|channel|>", "[TOOL_CALLS]", "<|tool_call", "<｜tool", "tool_call_start")):
        return None
    if "<tool_call>" in chat_template:
        return "hermes"
    if '"parameters":' in chat_template and ("ipython" in chat_template or "python_tag" in chat_template):
        return "llama3_json"
    return ""


def get_format(
    tool_format: str | Mapping[str, Any] | ToolCallFormat = "hermes", tokenizer: PreTrainedTokenizerBase | None = None
) -> ToolCallFormat:
    """Return a format.

    Args:
        tool_format: a key of `FORMATS`; "auto", which takes the tokenizer's response template if it has one and else reads its chat
            template ("hermes" where that says nothing of tools); a response template of transformers as a dict; or a format.
        tokenizer: for "auto".

    Returns:
        The format.

    Raises:
        ValueError: for an unknown name, "auto" without a tokenizer, or a chat template that teaches a format without a name here.
    """
    if isinstance(tool_format, ToolCallFormat):
        return tool_format
    if isinstance(tool_format, Mapping):
        return TemplateFormat(tool_format)
    if tool_format in FORMATS:
        return FORMATS[tool_format]()
    if tool_format != "auto":
        raise ValueError(
            f"tool_format must be one of {', '.join(FORMATS)}, 'auto', a response template or a ToolCallFormat, not {tool_format!r}."
            f"{nearest(str(tool_format), [*FORMATS, 'auto'])}"
        )
    if tokenizer is None:
        raise ValueError("tool_format='auto' reads the tokenizer's chat template; pass the tokenizer")
    template = getattr(tokenizer, "chat_template", None) or ""
    found = detect_format("\n".join(template.values()) if isinstance(template, Mapping) else template)
    if found:
        return FORMATS[found]()
    response = getattr(tokenizer, "response_template", None)
    if isinstance(response, Mapping) and "tool_calls" in response.get("fields", {}):
        return TemplateFormat(response)
    if found is None:
        raise ValueError(
            "the tokenizer's chat template teaches a format of tool calls that has no name here. Pass tool_format= as a response template "
            "(transformers documents them; trl.chat_template_utils holds many), or as one of " + ", ".join(FORMATS)
        )
    return HermesFormat()
