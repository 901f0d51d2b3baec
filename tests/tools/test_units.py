"""The unit converter: exact factors, by definition."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.tools import ToolCall, ToolSet, run_calls
from agent_gym.tools.units import UNITS, UnitError, convert, find_unit


def ask(value: Any, source: str, target: str) -> str:
    return run_calls(
        ToolSet(["unit_converter"]), [ToolCall("unit_converter", {"value": value, "from_unit": source, "to_unit": target}, "")]
    )[0].text


@pytest.mark.parametrize(
    ("value", "source", "target", "shown"),
    [
        (12, "inches", "cm", "30.48"),
        (1, "mile", "Kilometres", "1.609344"),
        (98.6, "°F", "celsius", "37"),
        (-40, "degrees Celsius", "Fahrenheit", "-40"),
        (0, "kelvin", "c", "-273.15"),
        (100, "c", "k", "373.15"),
        (2, "hours", "minutes", "120"),
        (1, "pound", "g", "453.59237"),
        (16, "oz", "lb", "1"),
        (1, "US gallon", "litres", "3.785411784"),
        (36, "km/h", "m/s", "10"),
        (1, "knot", "km/h", "1.852"),
        (1, "acre", "m2", "4046.8564224"),
        (1, "kib", "bytes", "1024"),
        (0.1, "m", "mm", "100"),
        (1, "feet", "metres", "0.3048"),
        (1, "meter", "meters", "1"),
    ],
)
def test_conversions_are_those_of_the_definitions(value: float, source: str, target: str, shown: str) -> None:
    assert ask(value, source, target) == shown


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(UNITS), st.sampled_from(UNITS), st.fractions(-1000, 1000))
def test_there_and_back_is_the_same_number(source: Any, target: Any, value: Fraction) -> None:
    if source.kind == target.kind:
        assert convert(convert(value, source, target), target, source) == value
    else:
        with pytest.raises(UnitError, match="cannot be converted"):
            convert(value, source, target)


def test_every_name_of_a_unit_finds_that_unit() -> None:
    for unit in UNITS:
        for name in (unit.name, unit.plural, *unit.symbols, unit.name.upper()):
            assert find_unit(name) is unit


def test_mistakes_are_answered_in_one_line() -> None:
    assert ask(1, "fete", "m").startswith("Error: there is no unit 'fete'; did you mean 'f")
    assert ask(1, "m", "kg") == "Error: a metre measures length and a kilogram mass: they cannot be converted."
    assert ask(1e300, "m", "km") == "Error: the value is too large."
    assert (
        "'value' is a required property"
        in run_calls(ToolSet(["unit_converter"]), [ToolCall("unit_converter", {"from_unit": "m", "to_unit": "m"}, "")])[0].text
    )
