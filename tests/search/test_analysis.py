"""The analyzer finds Lucene's terms: against a slow grammar, on named cases, and in linear time."""

from __future__ import annotations

import string

import lucene_oracle as oracle
import pytest
from helpers import assert_linear
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.search import analysis
from agent_gym.search.analysis import MAX_TOKEN_LENGTH, STOP_WORDS, analyze, tokenize
from agent_gym.search.porter import stem

ALPHABET = "".join(oracle.CLASS_OF)
ASCII = "".join(character for character in ALPHABET if character.isascii())


@given(st.text(ALPHABET, max_size=9))
@settings(max_examples=400, deadline=None)
def test_tokens_are_those_of_the_grammar(text: str) -> None:
    assert tokenize(text) == oracle.tokens(text)


@given(st.text("aא0ア_:,.'\"\u0301\u200d\ufe0f👍🏽❤🇺#\u20e3 ", max_size=9))
@settings(max_examples=600, deadline=None)
def test_tokens_are_those_of_the_grammar_where_classes_meet(text: str) -> None:
    assert tokenize(text) == oracle.tokens(text)


@given(st.text(string.printable, max_size=600) | st.text("ab1_.:,;' ", max_size=700))
@settings(max_examples=300, deadline=None)
def test_the_ascii_path_equals_the_full_one(text: str) -> None:
    full: list[str] = []
    analysis._add_full_tokens(text, 0, len(text), full)
    assert tokenize(text) == full


@given(st.text(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_text_gives_tokens_that_stand_in_it_in_order(text: str) -> None:
    place = 0
    for token in tokenize(text):
        place = text.index(token, place) + len(token)
        assert len(token.encode("utf-16-le", "surrogatepass")) <= 2 * MAX_TOKEN_LENGTH


@given(
    st.lists(
        st.sampled_from(
            ["ation", "eed", "ing", "y", "ies", "sses", "l", "ll", "e", "bli", "logi", "t", "x", "a", "ness", "ful", "ion", "s"]
        ),
        max_size=6,
    )
)
@settings(max_examples=500, deadline=None)
def test_stems_are_those_of_a_second_program(parts: list[str]) -> None:
    word = "".join(parts)
    assert stem(word) == oracle.porter(word)


@given(st.text("aeiouybcdlmnrstz0é'", max_size=10))
@settings(max_examples=500, deadline=None)
def test_stems_of_any_letters_are_those_of_a_second_program(word: str) -> None:
    assert stem(word) == oracle.porter(word)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"), ("ponies", "poni"), ("ties", "ti"), ("cats", "cat"), ("agreed", "agre"), ("feed", "feed"), ("plastered", "plaster"),
        ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"), ("hopping", "hop"), ("falling", "fall"), ("filing", "file"),
        ("happy", "happi"), ("sky", "sky"), ("relational", "relat"), ("possibly", "possibl"), ("apology", "apolog"), ("adoption", "adopt"),
        ("controll", "control"), ("rate", "rate"), ("cease", "ceas"), ("is", "is"), ("oed", "o"), ("", ""), ("bli", "bli"), ("ion", "ion"),
    ],
)  # fmt: skip
def test_known_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick brown-fox", ["quick", "brown", "fox"]),
        ("O'Neil's dog’s ＇s CHILDREN'S", ["o'neil", "dog", "s", "children"]),
        ("3,677.5 1,a a.1 U.S.A. x:y 9:30", ["3,677.5", "1", "1", "u.s.a", "x:y", "9", "30"]),
        ("foo_bar _x_ ___", ["foo_bar", "_x_"]),
        ("naïve café 漢字 テスト ひら 한국어 ภาษาไทย", ["naïv", "café", "漢", "字", "テスト", "ひ", "ら", "한국어", "ภาษาไทย"]),
        ("foo™ ★☆♡ 👍🏽 👨‍👩‍👧 🇺🇸🇺 1️⃣ #️⃣ # ❤️", ["foo", "™", "★", "♡", "👍🏽", "👨‍👩‍👧", "🇺🇸", "1️⃣", "#️⃣", "❤️"]),
        ("ℹabc Ⓜ\u200d❤ İ ΣΑΣ", ["ℹabc", "ⓜ\u200d❤", "i", "σασ"]),
        ("", []),
        ("--- ...", []),
    ],
)
def test_known_terms(text: str, expected: list[str]) -> None:
    assert analyze(text) == expected


def test_long_tokens_are_cut_at_255_units() -> None:
    assert [len(token) for token in tokenize("x" * 600)] == [255, 255, 90]
    assert [len(token) for token in tokenize("𝐚" * 200)] == [127, 73]
    assert [len(token) for token in tokenize("a" * 254 + ".b" + "c" * 300)] == [254, 255, 46]
    assert tokenize("_" * 300 + "a") == ["_" * 45 + "a"]
    assert [len(term) for term in analyze("x" * 600 + " b")] == [255, 255, 90, 1]
    assert tokenize("é" * 256 + " b") == ["é" * 255, "é", "b"]


def test_there_are_33_stop_words_and_none_is_indexed() -> None:
    assert len(STOP_WORDS) == 33 == len(oracle.STOP)
    assert STOP_WORDS == oracle.STOP
    assert analyze(" ".join(STOP_WORDS)) == analyze(" ".join(STOP_WORDS).upper()) == []


def test_the_table_of_terms_stays_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    table = analysis._Terms()
    monkeypatch.setattr(analysis._Terms, "_size", 100)
    monkeypatch.setattr(analysis, "_terms", table)
    assert (
        analyze(" ".join(f"cats{number}x" for number in range(1000)) + " y" * 50)
        == [f"cats{number}x" for number in range(1000)] + ["y"] * 50
    )
    assert len(table) <= 100
    analyze("z" * 200)
    assert "z" * 200 not in table


@pytest.mark.parametrize(
    "piece",
    ["_", "a.", "\u200d", "\u0301", "#\u0301", 'א"', "❤\ufe0f\u200d", "🇺", "1,", "‿", "a b ", "é'", "x", "é", "👍\U000e0062", "_\u0301"],
    ids=ascii,
)
def test_tokenizing_takes_linear_time(piece: str) -> None:
    assert_linear(tokenize, lambda size: piece * (size // len(piece)), 10_000)
