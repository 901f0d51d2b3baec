"""What the families write, as response templates of transformers: data for other programs, and the oracle of our own readers in the tests.

    tokenizer.response_template = RESPONSE_TEMPLATES["kimi"]

Each describes a whole message. transformers' parser raises on the first broken call, or passes over it in silence; our formats read each
call alone, and tests hold the two equal on well-formed text. Two header orders and any channel of `gpt_oss` are one pattern here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["DSML_ARGUMENT", "GLM_ARGUMENT", "RESPONSE_TEMPLATES"]

_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
_THINK = {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"}


def _template(anchor: str, end: str, calls: Mapping[str, Any], reasoning: Mapping[str, Any] = _THINK) -> dict[str, Any]:
    """A response template: where the assistant's message begins, what ends it, how calls and reasoning are written."""
    return {
        "defaults": {"role": "assistant"},
        "start_anchor": anchor,
        "fields": {
            "reasoning_content": dict(reasoning),
            "tool_calls": {"repeats": True, "transform": _CALL, **calls},
            "content": {"close_pattern": end, "content": "text", "repeats": True, "join": "\n"},
        },
    }


# One argument. The dot stops at the next tag, so that values without an end cost linear time; GLM-4.7 writes no break between key and value.
GLM_ARGUMENT = r"<arg_key>(?P<key>[^<]++)</arg_key>\s*+<arg_value>(?P<value>(?:(?!</?arg_value>|<arg_key>).)*+)</arg_value>"
DSML_ARGUMENT = (
    r'<｜DSML｜parameter\s+name="(?P<key>[^"]*+)"\s+string="(?P<kind>true|false)"\s*>(?P<value>(?:(?!</?｜DSML｜).)*+)</｜DSML｜parameter>'
)
_TEXT = {"name": "text", "args": {"strip": False}}
_EACH = {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}}
_HARMONY_START = r"(?:\s*<\|start\|>assistant)?\s*"
_HARMONY_TO = r"to=(?:functions\.)?(?P<name>[^\s<]+)"

RESPONSE_TEMPLATES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "glm": _template(
            "<|assistant|>",
            r"<\|(?:user|observation)\|>\s*",
            {
                "open_pattern": r"<tool_call>\s*(?P<name>[^\s<]+)",
                "close_pattern": r"</tool_call>\s*",
                "content": "xml-inline",
                "content_args": {"tag_pattern": GLM_ARGUMENT, "value_parser": _TEXT},
            },
        ),
        "gpt_oss": {
            "defaults": {"role": "assistant"},
            "start_anchor": "<|start|>assistant",
            "fields": {
                "thinking": {
                    "open_pattern": _HARMONY_START + r"<\|channel\|>analysis<\|message\|>",
                    "close_pattern": r"<\|(?:end|return)\|>",
                    "content": "text",
                    "repeats": True,
                    "join": "\n",
                },
                "tool_calls": {
                    # The recipient stands in the role's part of the header or behind the channel, whichever that is.
                    "open_pattern": _HARMONY_START
                    + rf"(?:{_HARMONY_TO}\s*(?:<\|channel\|>\w+)?|<\|channel\|>\w+\s+{_HARMONY_TO})"
                    + r"\s*(?:<\|constrain\|>)?\s*\w*\s*<\|message\|>",
                    "close_pattern": r"<\|(?:call|end|return)\|>|\Z",
                    "repeats": True,
                    "content": "json",
                    "transform": _CALL,
                },
                "content": {
                    "open_pattern": _HARMONY_START + r"<\|channel\|>(?:final|commentary)<\|message\|>",
                    "close_pattern": r"<\|(?:end|return)\|>",
                    "content": "text",
                    "repeats": True,
                    "join": "\n",
                },
            },
        },
        "mistral": _template(
            "[/INST]",
            r"</s>\s*",
            {
                "open_pattern": r"\[TOOL_CALLS\]\s*(?P<name>[^\s\[\]{}\"]+)\s*(?:\[CALL_ID\]\s*[^\s\[\]{}\"]*\s*)?(?:\[ARGS\])?\s*(?=\{)",
                "close_pattern": r"(?=\[TOOL_CALLS\]|</s>|\Z)",
                "content": "json",
            },
            {"open": "[THINK]", "close_pattern": r"\[/THINK\]\s*", "content": "text"},
        ),
        "mistral_list": _template(
            "[/INST]",
            r"</s>\s*",
            {
                "open_pattern": r"\[TOOL_CALLS\]\s*(?=\[)",
                "close_pattern": r"(?=\[TOOL_CALLS\]|</s>|\Z)",
                "content": "json",
                "transform": _EACH,
                "transform_each": True,
            },
            {"open": "[THINK]", "close_pattern": r"\[/THINK\]\s*", "content": "text"},
        ),
        "deepseek": _template(
            "<｜Assistant｜>",
            r"<｜end▁of▁sentence｜>\s*",
            {
                "open_pattern": r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>\s*(?P<name>[^\s<>`{}]+)\s*<｜tool▁sep｜>",
                "close_pattern": r"<｜tool▁call▁end｜>\s*(?:<｜tool▁calls▁end｜>\s*)?",
                "content": "json",
            },
        ),
        "deepseek_v3": _template(
            "<｜Assistant｜>",
            r"<｜end▁of▁sentence｜>\s*",
            {
                "open_pattern": r"(?:<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>\s*[a-z_]*<｜tool▁sep｜>(?P<name>[^\s<>`{}]+)\s*```(?:json)?",
                "close_pattern": r"```\s*<｜tool▁call▁end｜>\s*(?:<｜tool▁calls▁end｜>\s*)?",
                "content": "json",
            },
        ),
        "deepseek_v32": _template(
            "<｜Assistant｜>",
            r"<｜end▁of▁sentence｜>\s*",
            {
                "open_pattern": r'(?:<｜DSML｜(?:function|tool)_calls>\s*)?<｜DSML｜invoke\s+name="(?P<name>[^"\n]+)"\s*>',
                "close_pattern": r"</｜DSML｜invoke>\s*(?:</｜DSML｜(?:function|tool)_calls>\s*)?",
                "content": "xml-inline",
                "content_args": {"tag_pattern": DSML_ARGUMENT, "value_parser": _TEXT},
            },
        ),
        "kimi": _template(
            "<|im_assistant|>assistant<|im_middle|>",
            r"<\|im_end\|>\s*",
            {
                "open_pattern": r"(?:<\|tool_calls?_section_begin\|>\s*)?<\|tool_call_begin\|>\s*(?:functions\.)?(?P<name>[^\s:<>]+)(?::\d+)?"
                r"\s*<\|tool_call_argument_begin\|>",
                "close_pattern": r"<\|tool_call_end\|>\s*(?:<\|tool_calls?_section_end\|>\s*)?",
                "content": "json",
            },
        ),
        "gemma": _template(
            "<|turn>model\n",
            r"(?:<turn\|>|<\|tool_response>)\s*",
            {
                "open_pattern": r"<\|tool_call>\s*call:(?P<name>[^\s{}<>]+)\s*(?=\{)",
                "close_pattern": r"<tool_call\|>\s*",
                "content": "json",
                "content_args": {"string_delims": [['<|"|>', '<|"|>']], "unquoted_keys": True},
            },
            {"open_pattern": r"<\|channel>(?:thought\n)?", "close_pattern": r"<channel\|>\s*", "content": "text"},
        ),
        "functiongemma": _template(
            "<start_of_turn>model\n",
            r"(?:<end_of_turn>|<start_function_response>)\s*",
            {
                "open_pattern": r"<start_function_call>\s*call:(?P<name>[^\s{}<>]+)\s*(?=\{)",
                "close_pattern": r"<end_function_call>\s*",
                "content": "json",
                "content_args": {"string_delims": [["<escape>", "<escape>"]], "unquoted_keys": True},
            },
        ),
        "pythonic": _template(
            "<|im_start|>assistant\n",
            r"<\|im_end\|>\s*",
            {
                "open": "<|tool_call_start|>",
                "close_pattern": r"<\|tool_call_end\|>\s*",
                "content": "python-call-list",
                "transform": _EACH,
                "transform_each": True,
            },
        ),
    }
)
"""By the name of the format."""
