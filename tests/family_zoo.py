"""Small tokenizers of the model families that write calls in a form of their own: the family's control tokens, and a chat template of its shape.

The templates here are ours, cut down to what matters (the control tokens, the roles, how tools and their results are shown). Where TRL is
installed, tests take its copies of the families' own templates as well.
"""

from __future__ import annotations

import copy
import importlib.util
from functools import lru_cache
from pathlib import Path

from tokenizer_zoo import make
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

_TOOLS = "{% if tools %}{{ 'BEGIN' + (tools | tojson) + 'END' }}{% endif %}"
_ROLES = "{% for m in messages %}{{ 'OPEN' + m.role + 'MIDDLE' + m.content + 'CLOSE' }}{% endfor %}"


def _plain(opening: str, middle: str, close: str, tools: tuple[str, str], assistant: str = "assistant") -> str:
    roles = _ROLES.replace("OPEN", opening).replace("MIDDLE", middle).replace("CLOSE", close)
    shown = _TOOLS.replace("BEGIN", tools[0]).replace("END", tools[1])
    return f"{shown}{roles}{{% if add_generation_prompt %}}{{{{ '{opening}{assistant}{middle}' }}}}{{% endif %}}"


_KIMI = _plain("<|im_system|>", "<|im_middle|>", "<|im_end|>", ("<|im_system|>tool_declare<|im_middle|>", "<|im_end|>"))
_MISTRAL = (
    "{{ '<s>' }}{% for m in messages %}{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
    "{% elif m.role == 'user' %}{% if tools and loop.index0 < 2 %}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{% endif %}"
    "{{ '[INST]' + m.content + '[/INST]' }}"
    "{% elif m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}{{ raise_exception('an id of 9 characters') }}{% endif %}"
    "{{ '[TOOL_RESULTS]' + m.content + '[/TOOL_RESULTS]' }}{% else %}{{ m.content + '</s>' }}{% endif %}{% endfor %}"
)
_DEEPSEEK = (
    "{{ '<｜begin▁of▁sentence｜>' }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
    "{% elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
    "{% elif m.role == 'tool' %}{{ '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}"
    "{% else %}{{ ('<｜Assistant｜></think>' if messages[loop.index0 - 1].role == 'user' else '') + m.content + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1].role == 'user' %}{{ '<｜Assistant｜></think>' }}{% endif %}"
)
_GPT_OSS = (
    "{{ '<|start|>system<|message|>Channels: analysis, commentary, final.<|end|>' }}"
    "{% if messages[0].role == 'system' or tools %}{{ '<|start|>developer<|message|>' + (messages[0].content if messages[0].role == 'system' else '') }}"
    "{% if tools %}{{ '\\nnamespace functions ' + (tools | tojson) }}{% endif %}{{ '<|end|>' }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}"
    "{% elif m.role == 'tool' %}{{ raise_exception('no call before this result') }}"
    "{% elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + "
    "('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)
_GLM = (
    "{{ '[gMASK]<sop>' }}{% if tools %}{{ '<|system|>\\n# Tools\\n' + (tools | tojson) + '\\n<tool_call>{name}\\n<arg_key>{key}</arg_key>\\n"
    "<arg_value>{value}</arg_value>\\n</tool_call>' }}{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}{{ '<|observation|>\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{% else %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
_GEMMA = (
    "{{ '<bos>' }}{% if tools %}{{ '<|turn>system\\n<|tool>' + (tools | tojson) + '<tool|><turn|>\\n' }}{# <|tool_call>call: #}{% endif %}"
    "{% for m in messages %}{{ '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content + '<turn|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn>model\\n' }}{% endif %}"
)

FAMILIES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "kimi": (
        _KIMI,
        "<|im_end|>",
        (
            "<|im_system|>",
            "<|im_middle|>",
            "<|im_end|>",
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
    ),
    "mistral": (
        _MISTRAL + "{# [TOOL_CALLS] [ARGS] #}",
        "</s>",
        (
            "<s>",
            "[INST]",
            "[/INST]",
            "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]",
            "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]",
            "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]",
            "[TOOL_CALLS]",
            "[ARGS]",
            "[CALL_ID]",
            "[THINK]",
            "[/THINK]",
        ),
    ),
    "mistral_list": (
        _MISTRAL + "{# [TOOL_CALLS] #}",
        "</s>",
        (
            "<s>",
            "[INST]",
            "[/INST]",
            "[SYSTEM_PROMPT]",
            "[/SYSTEM_PROMPT]",
            "[AVAILABLE_TOOLS]",
            "[/AVAILABLE_TOOLS]",
            "[TOOL_RESULTS]",
            "[/TOOL_RESULTS]",
            "[TOOL_CALLS]",
        ),
    ),
    "deepseek": (
        _DEEPSEEK + "{# <｜tool▁sep｜> #}",
        "<｜end▁of▁sentence｜>",
        (
            "<｜begin▁of▁sentence｜>",
            "<｜end▁of▁sentence｜>",
            "<｜User｜>",
            "<｜Assistant｜>",
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁output▁begin｜>",
            "<｜tool▁output▁end｜>",
        ),
    ),
    "gpt_oss": (
        _GPT_OSS,
        "<|return|>",
        ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>", "<|endoftext|>"),
    ),
    "glm": (
        _GLM,
        "<|endoftext|>",
        ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"),
    ),
    "gemma": (
        _GEMMA,
        "<turn|>",
        (
            "<bos>",
            "<|turn>",
            "<turn|>",
            "<|tool>",
            "<tool|>",
            "<|tool_call>",
            "<tool_call|>",
            "<|tool_response>",
            "<tool_response|>",
            "<|channel>",
            "<channel|>",
            '<|"|>',
        ),
    ),
    "functiongemma": (
        _GEMMA.replace("<|turn>", "<start_of_turn>")
        .replace("<turn|>", "<end_of_turn>")
        .replace("<|tool_call>call:", "<start_function_call>"),
        "<end_of_turn>",
        (
            "<bos>",
            "<start_of_turn>",
            "<end_of_turn>",
            "<start_function_call>",
            "<end_function_call>",
            "<start_function_response>",
            "<end_function_response>",
            "<escape>",
        ),
    ),
    "pythonic": (
        "{% if tools %}{{ '<|im_start|>system\\nTools: ' + (tools | tojson) + '<|im_end|>\\n' }}{# <|tool_call_start|> #}{% endif %}"
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "<|im_end|>",
        ("<|im_start|>", "<|im_end|>", "<|tool_call_start|>", "<|tool_call_end|>"),
    ),
}
"""By the format's name: chat template, end of sequence, special tokens."""
FAMILIES["deepseek_v3"] = (_DEEPSEEK + "{# <｜tool▁sep｜> ```json #}", *FAMILIES["deepseek"][1:])
FAMILIES["deepseek_v32"] = (
    _DEEPSEEK + "{# ｜DSML｜ #}",
    "<｜end▁of▁sentence｜>",
    ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "｜DSML｜"),
)
_NOT_SPECIAL = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
THEIR_OWN = {"gpt_oss": "gptoss", "glm": "glm4moe", "gemma": "gemma4", "deepseek_v3": "deepseekv3", "pythonic": "lfm2_2_5"}
"""TRL's file of the family's own template."""


@lru_cache(maxsize=64)
def family(name: str, template: str | None = None, tokens: bool = True) -> PreTrainedTokenizerFast:
    """A tokenizer of the family; without its tokens, every marker is ordinary text."""
    own, eos, special = FAMILIES[name]
    tokenizer = copy.deepcopy(make("chatml", kind="words"))
    if tokens:
        backend = tokenizer.backend_tokenizer
        backend.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in special])
        backend.add_tokens([AddedToken(one, special=False, normalized=False) for one in _NOT_SPECIAL])
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, pad_token="<|unused|>")
    tokenizer.chat_template = own if template is None else template
    return tokenizer


def template_of_the_family(name: str) -> str | None:
    """The family's own template, where TRL holds it."""
    spec = importlib.util.find_spec("trl")
    if spec is None or spec.origin is None or name not in THEIR_OWN:
        return None
    path = Path(spec.origin).parent / "chat_templates" / f"{THEIR_OWN[name]}.jinja"
    return path.read_text(encoding="utf-8") if path.is_file() else None
