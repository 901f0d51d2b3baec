"""Numbers as people and models write them: what is one number, what is none, and that no list of guesses is worth more than its first."""

from __future__ import annotations

from decimal import Decimal

import pytest
from helpers import cpu_time
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.tools.numbers import find_number, marked_answer, read_number


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("18", "18"), ("1,800", "1800"), ("$1,800.00", "1800"), ("18.0", "18"), ("18.", "18"), ("$18", "18"), ("18%", "18"), ("-3", "-3"),
        ("$-3", "-3"), ("-$3", "-3"), ("−3", "-3"), ("+5", "5"), (".5 l", "0.5"), ("€5", "5"), ("18 dollars", "18"), ("18kg", "18"), ("(18)", "18"),
        ("= 18", "18"), ("x = 18", "18"), ("It is $1,800.", "1800"), ("18. Thanks 2.", "18"), ("18 or 19", "18"), ("18, 19", "18"),
        ("18 - the end", "18"), ("10,000,000", "10000000"), ("12,345 apples", "12345"), ("1e3", "1000"), (" 18\n", "18"), ("1.800", "1.8"), ("5th", "5"),
    ],
)  # fmt: skip
def test_a_number_with_what_stands_around_it_is_that_number(text: str, wanted: str) -> None:
    assert find_number(text) == Decimal(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "", "half", "3/4", "1 1/2", "18-20", "18 – 20", "2 million", "12 dozen", "5k", "1,80", "1,0000", "1 800", "18:30", "2^3", "3*6=18", "1.2.3", "--3", "v2",
        "1e3 apples", "1__0", "NaN", "Infinity", "１８", "9" * 200, "18/2", "x2 = 18", "1,800,00", "$", "18,00",
    ],
)  # fmt: skip
def test_what_is_no_single_number_is_read_as_none(text: str) -> None:
    assert find_number(text) is None


@given(st.integers(-(10**12), 10**12), st.integers(0, 99), st.sampled_from(["{}", "{} apples", "It is {}.", "$ {}", "= {}"]))
def test_every_way_of_writing_a_number_is_that_number(whole: int, cents: int, around: str) -> None:
    for written in (f"{whole}", f"{whole:,}", f"{whole}.{cents:02d}", f"{whole:,}.{cents:02d}", f"{whole}.{cents:02d}000"):
        assert find_number(around.format(written)) == Decimal(written.replace(",", ""))


@given(st.text(alphabet="0123456789.,-+$%/ #ekxm*\n", max_size=30))
def test_a_reading_is_finite_and_exact_or_none(text: str) -> None:
    value = find_number(text)
    assert value is None or value.is_finite()
    if read_number(text) is not None:
        assert value == read_number(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("#### 18", "18"), ("####18", "18"), ("so\n#### $18", "$18"), ("#### 18.", "18"), ("#### 1,800", "1,800"), ("a #### 18 b", "18"), ("#### **18**", "18"),
        ("#### 18\n#### Notes", "18"), ("#### 3\nno:\n#### 4", "4"), ("#### -5", "-5"), ("#### 18. Thanks 2.", "18"), ("#### Step\n#### 7 eggs", "7"),
        ("#### Step one", None), ("##### 18", None), ("####\n18", None), ("#### 18/2", None), ("#### 3*6 = 18", None), ("18", None), ("#### ", None),
        ("### 18", None),
    ],
)  # fmt: skip
def test_the_answer_stands_behind_the_last_mark_that_a_number_follows(text: str, wanted: str | None) -> None:
    assert marked_answer(text) == wanted


@pytest.mark.parametrize(
    "text", ["#" * 60_000, "#### " * 20_000, "1," * 40_000, "#### 1" + " " * 60_000, "1 " * 40_000, "9" * 100_000, "#### -$" * 12_000]
)
def test_reading_takes_linear_time(text: str) -> None:
    assert cpu_time(lambda: (marked_answer(text), find_number(text))) < 1.0  # no benchmark: quadratic work on these takes minutes
