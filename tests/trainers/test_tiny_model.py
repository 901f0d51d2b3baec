"""The tokenizer of a preset with words of its own: the words are one entry each, and no text is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.chat import load_tokenizer, tokenizer_fingerprint
from agent_gym.trainers.tiny_model import TinyShape, build_tiny_model, tokenizer_with_words

WORDS = ("mug", "pan", "saucepan", "The", "put")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tokenizer_with_words(WORDS)


def pieces(tokenizer: Any, text: str) -> list[str]:
    return [tokenizer.decode([index]) for index in tokenizer.encode(text)]


def test_a_word_is_one_entry_with_the_blank_behind_it_and_one_without(tokenizer: Any) -> None:
    assert pieces(tokenizer, "mug 1 mug. mug\nsaucepan 2") == ["mug ", "1", " ", "mug", ". ", "mug", "\n", "saucepan ", "2"]
    assert "mug" not in pieces(tokenizer, "smuggle") and "pan" not in pieces(tokenizer, "saucepans")


def test_a_phrase_is_one_entry_as_it_stands() -> None:
    tokenizer = tokenizer_with_words(["mug"], [" [SEP] ", "buy now", "click["])
    assert pieces(tokenizer, "click[buy now] [SEP] mug [SEP] buy nowhere") == [
        "click[", "buy now", "]", " [SEP] ", "mug ", *pieces(load_tokenizer("default"), "[SEP] buy nowhere"),
    ]  # fmt: skip
    with_mark = tokenizer_with_words((), [" [SEP] "])
    assert pieces(with_mark, "lamp [SEP] star") == ["lamp", " [SEP] ", "star"]


def test_the_default_tokenizer_stays_as_it_is(tokenizer: Any) -> None:
    default = load_tokenizer("default")
    assert len(tokenizer) == len(default) + 2 * len(WORDS) - 1  # "The" without its blank is an entry of the default one
    assert "mug " not in pieces(default, "mug 1")
    assert tokenizer.eos_token_id == default.eos_token_id and tokenizer.chat_template == default.chat_template


@settings(max_examples=60)
@given(st.lists(st.sampled_from([*"mugpantsauce TheWt 1.\n<|>é", "mug ", "<|im_end|>"]), max_size=40).map("".join))
def test_no_text_is_lost(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_it_is_the_same_after_it_was_saved_and_whatever_the_order_of_the_words(tokenizer: Any, tmp_path: Path) -> None:
    tokenizer.save_pretrained(str(tmp_path))
    again = load_tokenizer(str(tmp_path))
    other = tokenizer_with_words([*reversed(WORDS), "mug"])
    assert pieces(again, "put The mug 1") == pieces(tokenizer, "put The mug 1") == pieces(other, "put The mug 1")
    assert tokenizer_fingerprint(again) == tokenizer_fingerprint(tokenizer) == tokenizer_fingerprint(other)


def test_the_model_has_a_row_for_every_entry_and_the_shape_that_was_asked_for(tokenizer: Any) -> None:
    model = build_tiny_model(tokenizer, 0, TinyShape(layers=3, hidden_size=32))
    assert model.get_input_embeddings().weight.shape == (len(tokenizer), 32)
    assert model.config.num_hidden_layers == 3
