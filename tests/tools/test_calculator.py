"""The calculator: exact numbers, and nothing but numbers."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import Any

import pytest
from helpers import cpu_time
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.tools import ToolCall, ToolSet, run_calls
from agent_gym.tools.calculator import CalculatorError, evaluate, format_number


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("0.1 + 0.2", "0.3"),
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("-3 ** 2", "-9"),
        ("2 ^ 10", "1024"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("10 / 4", "2.5"),
        ("1 / 3", "0.333333333333"),
        ("2 / 3 * 3", "2"),
        ("1e3 + 1", "1001"),
        ("1.50", "1.5"),
        ("4 ** 0.5", "2"),
        ("2 ** 0.5", "1.41421356237"),
        ("2 ** -2", "0.25"),
        ("6 × 7 ÷ 2 − 1", "20"),
        ("1_000 * 2", "2000"),
        ("1e5", "100000"),
        ("3×4", "12"),
        ("100 * 1.1 ** 2", "121"),
        ("0.000001 / 1000", "0.000000001"),
        ("1 ** 100000", "1"),
        ("0 ** 0.5", "0"),
        ("2 ** 100", "1267650600228229401496703205376"),
    ],
)
def test_arithmetic_is_exact_and_shown_as_decimals(expression: str, shown: str) -> None:
    assert format_number(evaluate(expression)) == shown


@settings(max_examples=200, deadline=None)
@given(st.integers(-999, 999), st.integers(-999, 999), st.integers(1, 99), st.sampled_from(["+", "-", "*", "/", "//", "%"]))
def test_arithmetic_equals_that_of_fractions(a: int, b: int, c: int, operator: str) -> None:
    expression = f"({a} + {b}) {operator} {c}"
    left = Fraction(a + b)
    expected = {"+": left + c, "-": left - c, "*": left * c, "/": left / c, "//": Fraction(left // c), "%": left % c}[operator]
    assert evaluate(expression) == expected
    assert abs(Fraction(format_number(expected)) - expected) <= abs(expected) * Fraction(1, 10**11)


@pytest.mark.parametrize(
    "expression",
    [
        "", "   ", "1 +", "abc", "pi", "__import__('os')", "().__class__", "'a' * 3", "[1] * 3", "1 if 1 else 2", "1 < 2", "lambda: 1", "True", "1j", "f'{1}'",
        "1 and 2", "1 | 2", "1 << 9", "~1", "not 1", "(1, 2)", "{1}", "x := 1", "1; 2", "1\n2", "max(1, 2)", "1 / 0", "1 // 0", "1 % 0", "0 ** -1", "(-8) ** 0.5",
        "9 ** 9 ** 9", "9 ** 99999", "(10 ** 500) * (10 ** 800)", "1e99999999", "2 ** 0.5 ** 99999999 ** 99999", "9" * 501, "9" * 400 + " * " + "9" * 90 + "** 40",
        "1,800 + 1", "$5 * 3", "5%", "1__000", "0x10", "(" * 400 + "1" + ")" * 400, "\x00", "1\x00", "😀", "１ + é", "None", "...", "1 @ 2", "await 1",
    ],
)  # fmt: skip
def test_what_is_no_bounded_arithmetic_is_refused_in_one_line(expression: str) -> None:
    with pytest.raises(CalculatorError) as caught:
        evaluate(expression)
    assert "\n" not in str(caught.value)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.text(alphabet="0123456789.+-*/%()e ", max_size=120)))
def test_no_text_raises_out_of_the_tool_or_takes_long(expression: str) -> None:
    tools, results = ToolSet(["calculator"]), []
    seconds = cpu_time(lambda: results.extend(run_calls(tools, [ToolCall("calculator", {"expression": expression}, "")])))
    assert seconds < 1.0  # no benchmark: without the bounds one expression takes minutes
    assert results[0].error is None
    assert results[0].text.startswith("Error: ") or Fraction(results[0].text) is not None


@pytest.mark.parametrize("expression", ["-" * 499 + "1", "1" + "+1" * 249, "(" * 60 + "1" + ")" * 60, "1**" * 160 + "1", "2**" * 160 + "1"])
def test_deep_expressions_end(expression: str) -> None:
    with contextlib.suppress(CalculatorError):
        evaluate(expression)


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("(1e-60) ** 0.7", "1E-42"),
        ("(1e-100) ** (1/3) * 1e33", "0.464158883361"),
        ("(1e-999) ** 0.5 * 1e499", "0.316227766017"),
        ("2 ** 1000 ** 0.5", "3306772393.6"),
        ("(1e300 * 1e300) ** 0.25", "1" + "0" * 150),
        ("8 ** (1/3)", "2"),
        ("27 ** (2/3)", "9"),
        ("0.04 ** 1.5", "0.008"),
        ("(2 ** 0.5) ** 2", "2"),
        ("10 ** 0.5 * 10 ** 0.5", "10"),
    ],
)
def test_roots_are_right_to_all_digits_that_are_shown(expression: str, shown: str) -> None:
    assert Fraction(format_number(evaluate(expression))) == Fraction(shown)
    assert len(format_number(evaluate(expression)).strip("0.")) <= 13


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**6), st.integers(-300, 300), st.integers(2, 9))
def test_a_root_raised_again_is_the_number(mantissa: int, scale: int, degree: int) -> None:
    number = Fraction(mantissa) * Fraction(10) ** scale
    root = evaluate(f"({mantissa} * 10 ** {scale}) ** (1/{degree})")
    assert abs(root**degree - number) < number / 10**40


def test_a_power_too_small_to_be_held_is_no_zero() -> None:
    with pytest.raises(CalculatorError):
        evaluate("(1e-9) ** 123456789.5")


@pytest.mark.parametrize("expression", ["e", "E", "e1", "_", "__", "e(1)", "1 e 5", "1e", "ee", "_1", "(e)", "1_", "1__0"])
def test_letters_and_underscores_of_numbers_make_no_names(expression: str) -> None:
    with pytest.raises(CalculatorError):
        evaluate(expression)


def test_numbers_on_the_way_never_outgrow_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quotients and remainders too: each result, not only those of + - * /, has at most `MAX_BITS`."""
    from agent_gym.tools import calculator

    seen = []
    value = calculator._value

    def watched(node: Any, text: str) -> Fraction:
        result = value(node, text)
        seen.append(max(result.numerator.bit_length(), result.denominator.bit_length()))
        return result

    monkeypatch.setattr(calculator, "_value", watched)
    big, small = "2**4000", "(1/3**2500)"
    expressions = [
        f"{big} // {small}",
        f"{big} % {small}",
        f"{small} % (1/5**1700)",
        " % ".join(f"(1/{n}**1000)" for n in range(2, 16)),
        f"{big} // {small} // {small}",
    ]
    for expression in expressions:
        with contextlib.suppress(CalculatorError):
            evaluate(expression)
    assert seen and max(seen) <= calculator.MAX_BITS


def test_text_that_python_would_warn_of_is_refused_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    for expression in ("1or 2", "0x1for x in y", "1 is 1", "'\\d'", "1if 1else 2"):
        with pytest.raises(CalculatorError):
            evaluate(expression)
    assert not recwarn.list
