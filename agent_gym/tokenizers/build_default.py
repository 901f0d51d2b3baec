"""Builds the default tokenizer: byte-level BPE, small enough for a model of a hundred thousand parameters, and lossless on any text.

The three files in `default/` are what this script writes, byte for byte; run `python -m agent_gym.tokenizers.build_default` to write them again.

Three decisions shape it.

* **A blank belongs to the word before it** (`for `, `in `), never to the word behind it. A name is then the same token in a page, after a quotation
  mark and at the start of a line, and the token before it says how the name is related to the sentence. Small models find what to copy by exactly
  that token.
* **Names of the embedded worlds are whole entries**, without merges that would split other words oddly (`ignore_merges`).
* The rest is BPE learned from `corpus.txt` and from the texts of the tool-calling protocol by the plain counting algorithm (Sennrich et al. 2016,
  arXiv 1508.07909) below. It is written out here, since a result that is pinned byte for byte must not hang on a library's order of ties.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import regex

from agent_gym.data.bridge_world import PEOPLE, questions_and_pages
from agent_gym.tokenizers import DEFAULT_PATH

__all__ = ["CHAT_TEMPLATE", "build", "main"]

SPECIAL_TOKENS = ("<|pad|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<answer>", "</answer>")
PIECES = r"[A-Z][a-z]*|[a-z]+ ?|[0-9]|[^A-Za-z0-9]+"
MERGES = 700
MODEL_MAX_LENGTH = 32768

# ChatML; tool results of one turn share a user turn, reasoning is never dropped, and an assistant's words are printed as they are.
CHAT_TEMPLATE = """\
{%- macro words(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content -%}
        {%- for part in content -%}{{- part.text -}}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set has_system = messages and messages[0].role == 'system' -%}
{%- if tools -%}
    {{- '<|im_start|>system\\n' -}}
    {%- if has_system -%}{{- words(messages[0].content) + '\\n' -}}{%- endif -%}
    {{- '<tools>\\n' -}}
    {%- for tool in tools -%}{{- (tool | tojson) + '\\n' -}}{%- endfor -%}
    {{- '</tools><|im_end|>\\n' -}}
{%- elif has_system -%}
    {{- '<|im_start|>system\\n' + words(messages[0].content) + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {{- '<|im_start|>assistant\\n' -}}
        {%- generation -%}
        {%- if message.reasoning_content -%}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}{%- endif -%}
        {{- words(message.content) -}}
        {%- for call in message.tool_calls or [] -%}
            {%- set call = call.function or call -%}
            {%- if message.content or not loop.first -%}{{- '\\n' -}}{%- endif -%}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' -}}
            {{- call.arguments if call.arguments is string else call.arguments | tojson -}}
            {{- '}\\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>' -}}
        {%- endgeneration -%}
        {{- '\\n' -}}
    {%- elif message.role == 'tool' -%}
        {%- if loop.first or loop.previtem.role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
        {{- '\\n<tool_response>\\n' + words(message.content) + '\\n</tool_response>' -}}
        {%- if loop.last or loop.nextitem.role != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
    {%- elif not (loop.first and message.role == 'system') -%}
        {{- '<|im_start|>' + message.role + '\\n' + words(message.content) + '<|im_end|>\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def _byte_characters() -> dict[int, str]:
    """Map every byte to the printable character that stands for it in a byte-level vocabulary (the GPT-2 convention)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    characters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in characters:
            characters[byte] = chr(0x100 + len(characters) - len(printable))
    return characters


_BYTES = _byte_characters()


def _spell(text: str) -> str:
    """Return the text in the alphabet of the vocabulary."""
    return "".join(_BYTES[byte] for byte in text.encode())


def protocol_texts() -> list[str]:
    """Return the texts that every tool conversation prints, cut where control tokens stand between them.

    Returns:
        Texts whose pieces all become entries.
    """
    schema = {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the pages.",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
    name = PEOPLE["train"][0]
    call = "\n" + json.dumps({"name": "search", "arguments": {"query": name}}) + "\n"
    texts = [f"\n{text}\n" for text in questions_and_pages()]
    return [
        *questions_and_pages(),
        *texts,
        call,
        "assistant\n",
        "user\n",
        "\n",
        f"system\nSearch, then answer.\n<tools>\n{json.dumps(schema)}\n</tools>",
    ]


def _pieces(texts: Iterable[str]) -> Counter[str]:
    """Count the pieces that the pre-tokenizer cuts the texts into."""
    return Counter(piece for text in texts for piece in regex.findall(PIECES, text))


def learn_merges(counts: Counter[str], number: int) -> list[tuple[str, str]]:
    """Learn byte-pair merges: the most frequent pair of neighbours first, ties in the order of the pair's spelling.

    Args:
        counts: how often each piece occurs.
        number: how many merges to learn.

    Returns:
        At most `number` merges, in the order in which they apply; fewer when no pair occurs twice.
    """
    words = [list(_spell(piece)) for piece in counts]
    weights = list(counts.values())
    pairs: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for index, word in enumerate(words):
        for pair in pairwise(word):
            pairs[pair] += weights[index]
            places[pair].add(index)
    merges: list[tuple[str, str]] = []
    while len(merges) < number and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            break
        merges.append(best)
        for index in sorted(places[best]):
            word = words[index]
            for pair in pairwise(word):
                pairs[pair] -= weights[index]
            merged: list[str] = []
            for symbol in word:
                if merged and (merged[-1], symbol) == best:
                    merged[-1] += symbol
                else:
                    merged.append(symbol)
            words[index] = merged
            for pair in pairwise(merged):
                pairs[pair] += weights[index]
                places[pair].add(index)
        del pairs[best]
    return merges


def build() -> dict[str, str]:
    """Build the tokenizer.

    Returns:
        The contents of the files of the tokenizer's folder by their names.
    """
    corpus = (Path(__file__).parent / "corpus.txt").read_text(encoding="utf-8")
    protocol = protocol_texts()
    merges = learn_merges(_pieces([corpus, *protocol]), MERGES)
    names = [name for pool in PEOPLE.values() for name in pool]
    entries: list[str] = [*SPECIAL_TOKENS, *MARKERS, *_BYTES.values(), *(one + other for one, other in merges)]
    entries += [_spell(piece) for piece in sorted(_pieces(protocol))] + names
    vocabulary = {entry: index for index, entry in enumerate(dict.fromkeys(entries))}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(index, text) for index, text in enumerate((*SPECIAL_TOKENS, *MARKERS))],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PIECES}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": True,
            "vocab": vocabulary,
            "merges": [list(pair) for pair in merges],
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<|pad|>",
        "eos_token": "<|im_end|>",
        "bos_token": None,
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MODEL_MAX_LENGTH,
    }
    return {
        "tokenizer.json": json.dumps(tokenizer, ensure_ascii=False, indent=1) + "\n",
        "tokenizer_config.json": json.dumps(config, indent=2) + "\n",
        "chat_template.jinja": CHAT_TEMPLATE,
    }


def _added_token(index: int, text: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": text, **flags, "special": text in SPECIAL_TOKENS}


def main(folder: Path = DEFAULT_PATH) -> Sequence[Path]:
    """Write the tokenizer's files.

    Args:
        folder: where to; the package's own folder by default.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in build().items():
        (folder / name).write_text(content, encoding="utf-8", newline="\n")
        written.append(folder / name)
    return written


if __name__ == "__main__":
    main()
