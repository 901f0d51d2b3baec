"""Reading tool calls out of a model's reply: the door to `calls` (what a reply is read into) and `formats` (how families write).

hermes = get_format("hermes")
parsed = hermes.parse('<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>')
parsed.calls[0].arguments        # {"a": 1, "b": 2}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent_gym._names import nearest
from agent_gym.tools.calls import ParsedAction, ToolCall, extract_answer
from agent_gym.tools.formats import (
    DeepSeekFormat,
    DeepSeekV3Format,
    DeepSeekV32Format,
    FunctionGemmaFormat,
    GemmaFormat,
    GlmFormat,
    GptOssFormat,
    HermesFormat,
    KimiFormat,
    Llama3JsonFormat,
    MistralFormat,
    MistralListFormat,
    PythonicFormat,
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
    "glm": GlmFormat,
    "gpt_oss": GptOssFormat,
    "mistral": MistralFormat,
    "mistral_list": MistralListFormat,
    "deepseek": DeepSeekFormat,
    "deepseek_v3": DeepSeekV3Format,
    "deepseek_v32": DeepSeekV32Format,
    "kimi": KimiFormat,
    "gemma": GemmaFormat,
    "functiongemma": FunctionGemmaFormat,
    "pythonic": PythonicFormat,
}
"""The formats by name. Beside these `get_format` knows "auto" and response templates."""

# What a chat template of a family prints and no other does, looked for in this order. None: the family's form has no name here.
_SIGNS: tuple[tuple[tuple[str, ...], str | None], ...] = (
    (("<function=",), "qwen3_coder"),
    (("<arg_key>",), "glm"),
    (("<|start|>", "<|channel|>", "<|message|>"), "gpt_oss"),
    (("｜DSML｜",), "deepseek_v32"),
    (("<｜tool▁sep｜>", "```json"), "deepseek_v3"),
    (("<｜tool▁sep｜>",), "deepseek"),
    (("[TOOL_CALLS]", "[ARGS]"), "mistral"),
    (("[TOOL_CALLS]",), "mistral_list"),
    (("<|tool_calls_section_begin|>",), "kimi"),
    (("<|im_middle|>", "tool_declare"), "kimi"),
    (("<|tool_call>call:",), "gemma"),
    (("<start_function_call>",), "functiongemma"),
    (("<|tool_call_start|>",), "pythonic"),
    (("<|tool_call",), None),
    (("tool_call_start",), None),
    (("<｜tool",), None),
    (("<|channel|>",), None),
    (("<|open|>", "<|sep|>"), None),
    (("minimax:tool_call",), None),
    (("<tool_call>",), "hermes"),
)


def detect_format(chat_template: str) -> str | None:
    """Name the format that a chat template teaches.

    Args:
        chat_template: the template's text.

    Returns:
        A key of `FORMATS`; "" where the template says nothing of tools; None where it teaches a format that has no name here.
    """
    for signs, name in _SIGNS:
        if all(sign in chat_template for sign in signs):
            return name
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
            f"tool_format must be one of {', '.join(FORMATS)}, 'auto', a response template or a ToolCallFormat, not {tool_format!r}"
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
