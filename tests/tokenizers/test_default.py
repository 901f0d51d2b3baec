"""The default tokenizer: reproducible, lossless, with one token per name and a chat template that only grows."""

import itertools
import json
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from agent_gym.data.bridge_world import PEOPLE, page, question
from agent_gym.tokenizers import DEFAULT_PATH
from agent_gym.tokenizers.build_default import MARKERS, SPECIAL_TOKENS, build, learn_merges

NAMES = sorted(name for pool in PEOPLE.values() for name in pool)
TOOL = {"type": "function", "function": {"name": "search", "description": "d", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def tokenizer():
    return PreTrainedTokenizerFast.from_pretrained(DEFAULT_PATH)


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


def test_the_script_writes_the_shipped_files_byte_for_byte():
    for name, content in build().items():
        assert (DEFAULT_PATH / name).read_bytes() == content.encode(), f"{name}: run python -m agent_gym.tokenizers.build_default"


def test_building_does_not_depend_on_the_hash_seed():
    script = "import hashlib, json; from agent_gym.tokenizers.build_default import build; print(hashlib.sha256(json.dumps(build()).encode()).hexdigest())"
    digests = set()
    for hash_seed in ("0", "12345"):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": hash_seed})
        digests.add(done.stdout)
    assert len(digests) == 1


def test_it_opens_without_torch():
    script = (
        "import sys; from transformers import PreTrainedTokenizerFast; from agent_gym.tokenizers import DEFAULT_PATH;"
        "tokenizer = PreTrainedTokenizerFast.from_pretrained(DEFAULT_PATH);"
        "tokenizer.apply_chat_template([{'role': 'user', 'content': 'hello'}], tokenize=False); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_it_is_small_and_its_special_tokens_are_distinct(tokenizer):
    assert len(tokenizer) <= 4096
    ids = tokenizer.convert_tokens_to_ids([*SPECIAL_TOKENS, *MARKERS])
    assert ids == list(range(len(ids)))
    assert tokenizer.pad_token == "<|pad|>" and tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    assert all(tokenizer.decode([one]) == text for one, text in zip(ids, [*SPECIAL_TOKENS, *MARKERS], strict=True))
    assert all(ids_of(tokenizer, text) == [one] for one, text in zip(ids, [*SPECIAL_TOKENS, *MARKERS], strict=True))


def test_ids_are_dense_and_every_byte_is_an_entry(tokenizer):
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))
    for byte in range(256):
        text = bytes([byte]).decode("latin-1")
        assert tokenizer.decode(ids_of(tokenizer, text)) == text


@settings(max_examples=200, deadline=None)
@given(st.text())
@example("﻿\0 emoji 👩‍👩‍👧 شكرا e\u0301\r\n\t  trailing ")
@example("ABC dEf  two  blanks 1234567 x=1;\n\n\n")
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(ids_of(tokenizer, text), skip_special_tokens=False) == text


@pytest.mark.parametrize("frame", ["{}", '"{}"', "of {} live", "for {}.", "\n{} lives", "<answer>{}</answer>", "({})", "x{}"])
def test_every_name_is_the_same_single_token_everywhere(tokenizer, frame):
    before, after = frame.split("{}")
    for name in NAMES:
        wanted = [*ids_of(tokenizer, before), *ids_of(tokenizer, name), *ids_of(tokenizer, after)]
        assert len(ids_of(tokenizer, name)) == 1
        assert ids_of(tokenizer, frame.format(name)) == wanted


def test_the_token_before_a_name_on_a_page_carries_the_relation_and_the_blank(tokenizer):
    text = " ".join(page("Nendo", "Davo")) + " " + question("Nendo", 3)
    pieces = [tokenizer.decode([one]) for one in ids_of(tokenizer, text)]
    assert pieces[pieces.index("Davo") - 1] == "for "
    assert [before for before, name in itertools.pairwise(pieces) if name == "Nendo"][-1] == "of "


def conversation():
    call = {"type": "function", "function": {"name": "search", "arguments": {"query": "Ann's 2 < 3 é"}}}
    return [
        {"role": "system", "content": "Be short. "},
        {"role": "user", "content": " Where?\n"},
        {"role": "assistant", "reasoning_content": "I look.", "content": "Wait.", "tool_calls": [call, call]},
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
        {"role": "assistant", "content": "<answer>Rome</answer>"},
        {"role": "user", "content": "Sure?"},
        {"role": "user", "content": "Really?"},
        {"role": "assistant", "reasoning_content": "Yes.", "content": "Yes."},
    ]


def test_the_template_prints_chatml_with_hermes_calls(tokenizer):
    text = tokenizer.apply_chat_template(conversation(), tools=[TOOL], tokenize=False)
    assert text == (
        f"<|im_start|>system\nBe short. \n<tools>\n{json.dumps(TOOL)}\n</tools><|im_end|>\n"
        "<|im_start|>user\n Where?\n<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nI look.\n</think>\n\nWait."
        '\n<tool_call>\n{"name": "search", "arguments": {"query": "Ann\'s 2 < 3 é"}}\n</tool_call>'
        '\n<tool_call>\n{"name": "search", "arguments": {"query": "Ann\'s 2 < 3 é"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<answer>Rome</answer><|im_end|>\n"
        "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>user\nReally?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nYes.\n</think>\n\nYes.<|im_end|>\n"
    )


@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_what_was_printed_is_never_printed_differently_later(tokenizer, tools):
    messages = conversation()
    whole = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    for length in (2, 3, 5, 6, 7, 8):
        part = tokenizer.apply_chat_template(messages[:length], tools=tools, tokenize=False)
        assert whole.startswith(part)
        if messages[length]["role"] == "assistant":
            opened = tokenizer.apply_chat_template(messages[:length], tools=tools, tokenize=False, add_generation_prompt=True)
            assert opened == part + "<|im_start|>assistant\n" and whole.startswith(opened)


def test_the_assistant_mask_covers_exactly_what_a_model_would_sample(tokenizer):
    encoded = tokenizer.apply_chat_template(conversation(), tools=[TOOL], return_dict=True, return_assistant_tokens_mask=True)
    runs = [
        tokenizer.decode([one for one, _ in run])
        for masked, run in itertools.groupby(zip(encoded["input_ids"], encoded["assistant_masks"], strict=True), key=lambda pair: pair[1])
        if masked
    ]
    assert len(runs) == 3
    assert runs[0].startswith("<think>\nI look.") and runs[0].endswith("</tool_call><|im_end|>")
    assert runs[1:] == ["<answer>Rome</answer><|im_end|>", "<think>\nYes.\n</think>\n\nYes.<|im_end|>"]


def test_arguments_may_be_a_string_and_content_a_list_or_none(tokenizer):
    call = {"function": {"name": "f", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert (
        text
        == '<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n'
    )


def test_merges_are_learned_most_frequent_first_with_ties_in_spelling_order():
    assert learn_merges({"ab": 3, "cd": 5, "ef": 3}, 3) == [("c", "d"), ("a", "b"), ("e", "f")]
    assert learn_merges({"aaa": 2}, 5) == [("a", "a"), ("aa", "a")]
    assert learn_merges({"xy": 1}, 5) == []


def test_english_is_read_in_words_rather_than_letters(tokenizer):
    text = "You open the drawer. The name of the river is not known, but the town was founded by the people of the region."
    assert len(ids_of(tokenizer, text)) < len(text) / 2.5
