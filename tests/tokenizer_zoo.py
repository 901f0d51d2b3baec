"""Tokenizers and templates of many habits, made here, so that the tests of exact ids do not hold for one family alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "trims": CHATML.replace("m.content", "m.content | trim"),
    "strips_in_place": "{% for m in messages %}{% set c = m.content.strip() %}{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "no_tool_role": CHATML.replace(
        "{% for m in messages %}", "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tool role here') }}{% endif %}"
    ),
    "drops_tools": CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role != 'tool' %}"),
    "alternates": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<|im_start|>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\\n' }}{% endif %}",
    "dated": "{{ '<|im_start|>system\\nToday is ' + strftime_now('%d %B %Y') + '<|im_end|>\\n' }}" + CHATML,
    "merges_tools": "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
    "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "drops_old_reasoning": "{% for m in messages %}{% set c = m.content.split('</think>')[-1].lstrip('\\n') if '</think>' in m.content and not loop.last else m.content %}"
    "{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}",
    "headers": "{{ '<|bos|>' }}{% for m in messages %}{{ '<|start_header|>' + m.role + '<|end_header|>\\n\\n' + m.content | trim + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header|>assistant<|end_header|>\\n\\n' }}{% endif %}",
    "plain_text": "{% for m in messages %}{{ m.role + ': ' + m.content + ('</s>' if m.role == 'assistant' else '') + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}",
    "shouts": CHATML.replace("m.content", "(m.content | upper if m.role == 'tool' else m.content)"),
    "end_behind_blank": "{% for m in messages %}{% if m.role == 'assistant' %}{{ ' ' + m.content + ' </s>' }}{% else %}"
    "{{ '[INST] ' + m.content + ' [/INST]' }}{% endif %}{% endfor %}",
    "end_behind_newline": CHATML.replace("m.content + '<|im_end|>'", "m.content + '\\n<|im_end|>'"),
    "no_closing_at_the_end": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
    "{% if not (loop.last and m.role == 'assistant') %}{{ '<|im_end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "asks_by_macro": "{% macro show(c) %}{{ c }}{% endmacro %}{% for m in messages %}{% set c = show(m.content) %}"
    "{{ '<|im_start|>' + m.role + ('!' if 'zebra' in c else '') + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "cuts_long_ones": CHATML.replace("m.content", "m.content | truncate(1000)"),
    "joins_by_tilde": "{% for m in messages %}{% set c = '' ~ m.content %}"
    "{{ '<|im_start|>' + m.role + ('!' if c.startswith('zebra') else '') + '\\n' + c + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "looks_inside": "{% for m in messages %}{{ '<|im_start|>' + m.role + ('!' if 'zebra' in m.content else '') + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
}
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|bos|>", "<|start_header|>", "<|end_header|>", "</s>", "<|unused|>"]
NOT_SPECIAL = ["<tool_response>", "</tool_response>", "<think>", "</think>", "<tool_call>", "</tool_call>"]
_TEXT = [
    "Paris.\n\nhe said \"x\"\nfoo (bar)\n", "The answer is 42.\n", "a b c\n\n\n", "), and (\n", "user\nassistant\nsystem\ntool\n",
    ".\n.\n.\n", "\"\n\"\n", ")\n)\n", "\n\n", "one two three\n", " \n \n", "The cat sat on the mat.\nThe dog ran.\n",
] * 20  # fmt: skip


@lru_cache(maxsize=64)
def make(
    template: str, *, kind: str = "greedy", pad: str | None = "<|unused|>", eos: str = "<|im_end|>", rstrip: bool = False
) -> PreTrainedTokenizerFast:
    """A tokenizer. Kinds: "greedy" merges across every border it can, "words" splits at words, "metaspace" puts a mark before words."""
    if kind == "metaspace":
        backend = Tokenizer(models.BPE(unk_token=None, byte_fallback=True))
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first", split=False)])
        alphabet = [*(chr(code) for code in range(32, 127)), "\n", "▁"]
        trainer = trainers.BpeTrainer(
            vocab_size=600, initial_alphabet=alphabet, special_tokens=[f"<0x{byte:02X}>" for byte in range(256)], show_progress=False
        )
        backend.train_from_iterator(_TEXT, trainer)
        state = backend.to_str()
        import json

        data = json.loads(state)
        data["added_tokens"] = []  # the byte tokens are part of the model, not added tokens
        backend = Tokenizer.from_str(json.dumps(data))
    else:
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind == "words")
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
        backend.train_from_iterator(_TEXT, trainer)
    backend.add_special_tokens([AddedToken(one, special=True, normalized=False, rstrip=rstrip and one == "<|im_end|>") for one in SPECIAL])
    backend.add_tokens([AddedToken(one, special=False, normalized=False) for one in NOT_SPECIAL])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, pad_token=pad, bos_token="<|bos|>")
    tokenizer.chat_template = TEMPLATES[template]
    return tokenizer


GENERATED: dict[str, dict[str, Any]] = {
    **{name: {"template": name} for name in TEMPLATES},
    "words": {"template": "merges_tools", "kind": "words"},
    "metaspace": {"template": "merges_tools", "kind": "metaspace"},
    "no_pad": {"template": "chatml", "pad": None},
    "pad_is_eos": {"template": "merges_tools", "pad": "<|im_end|>"},
    "eos_is_another": {"template": "chatml", "eos": "</s>"},
    "rstrip": {"template": "chatml", "rstrip": True},
    "metaspace_plain": {"template": "plain_text", "kind": "metaspace", "eos": "</s>"},
    "inst": {"template": "end_behind_blank", "eos": "</s>"},
}


def generated(name: str) -> PreTrainedTokenizerFast:
    """One of `GENERATED` by name."""
    return make(**GENERATED[name])
