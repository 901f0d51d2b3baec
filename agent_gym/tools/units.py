"""A unit converter: lengths, masses, temperatures, times, volumes, areas, speeds and amounts of data, with exact factors.

The table holds the factor to the base unit of its kind, as an exact fraction (an inch is 0.0254 m by definition), so that converting there
and back gives the same number. Temperatures also have an offset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from agent_gym._names import nearest
from agent_gym.tools.base import BaseTool, ToolContext, ToolResult
from agent_gym.tools.calculator import format_number

__all__ = ["UNITS", "Unit", "UnitConverter", "UnitError", "convert", "find_unit"]


class UnitError(ValueError):
    """The conversion is not possible; the message is one line for the model."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit.

    Attributes:
        name: singular.
        plural: as in "three feet".
        kind: units of one kind can be converted into one another.
        factor: base units in one of these.
        offset: base units at zero of these (temperatures).
        symbols: further names.
    """

    name: str
    plural: str
    kind: str
    factor: Fraction
    offset: Fraction = Fraction(0)
    symbols: tuple[str, ...] = ()


def _unit(kind: str, name: str, factor: str, *symbols: str, plural: str = "", offset: str = "0") -> Unit:
    return Unit(name, plural or f"{name}s", kind, Fraction(factor), Fraction(offset), symbols)


UNITS: tuple[Unit, ...] = (
    _unit("length", "millimetre", "1/1000", "mm", "millimeter"),
    _unit("length", "centimetre", "1/100", "cm", "centimeter"),
    _unit("length", "metre", "1", "m", "meter"),
    _unit("length", "kilometre", "1000", "km", "kilometer"),
    _unit("length", "inch", "0.0254", "in", plural="inches"),
    _unit("length", "foot", "0.3048", "ft", plural="feet"),
    _unit("length", "yard", "0.9144", "yd"),
    _unit("length", "mile", "1609.344", "mi"),
    _unit("length", "nautical mile", "1852", "nmi"),
    _unit("mass", "milligram", "1/1000", "mg"),
    _unit("mass", "gram", "1", "g"),
    _unit("mass", "kilogram", "1000", "kg"),
    _unit("mass", "tonne", "1000000", "t"),
    _unit("mass", "ounce", "28.349523125", "oz"),
    _unit("mass", "pound", "453.59237", "lb"),
    _unit("mass", "stone", "6350.29318", "st", plural="stone"),
    _unit("time", "millisecond", "1/1000", "ms"),
    _unit("time", "second", "1", "s", "sec"),
    _unit("time", "minute", "60", "min"),
    _unit("time", "hour", "3600", "h", "hr"),
    _unit("time", "day", "86400", "d"),
    _unit("time", "week", "604800", "wk"),
    _unit("volume", "millilitre", "1/1000", "ml", "milliliter"),
    _unit("volume", "litre", "1", "l", "liter"),
    _unit("volume", "cubic metre", "1000", "m3", "cubic meter"),
    _unit("volume", "US pint", "0.473176473", "pint", "pt"),
    _unit("volume", "US gallon", "3.785411784", "gallon", "gal"),
    _unit("area", "square metre", "1", "m2", "square meter"),
    _unit("area", "hectare", "10000", "ha"),
    _unit("area", "square kilometre", "1000000", "km2", "square kilometer"),
    _unit("area", "acre", "4046.8564224", "ac"),
    _unit("speed", "metre per second", "1", "m/s", plural="metres per second"),
    _unit("speed", "kilometre per hour", "5/18", "km/h", "kph", plural="kilometres per hour"),
    _unit("speed", "mile per hour", "0.44704", "mph", plural="miles per hour"),
    _unit("speed", "knot", "463/900", "kn"),
    _unit("data", "byte", "1", "b"),
    _unit("data", "kilobyte", "1000", "kb"),
    _unit("data", "megabyte", "1000000", "mb"),
    _unit("data", "kibibyte", "1024", "kib"),
    _unit("data", "mebibyte", "1048576", "mib"),
    _unit("temperature", "kelvin", "1", "k", plural="kelvin"),
    _unit("temperature", "degree Celsius", "1", "c", "°c", "celsius", plural="degrees Celsius", offset="273.15"),
    _unit("temperature", "degree Fahrenheit", "5/9", "f", "°f", "fahrenheit", plural="degrees Fahrenheit", offset="45967/180"),
)
"""Every unit."""

_BY_NAME: Mapping[str, Unit] = {name.lower(): unit for unit in UNITS for name in (unit.name, unit.plural, *unit.symbols)}


def find_unit(name: str) -> Unit:
    """Return a unit by its name, plural or symbol, in any case.

    Args:
        name: as people write it.

    Returns:
        The unit.

    Raises:
        UnitError: if there is none.
    """
    wanted = " ".join(name.lower().replace("_", " ").split())
    unit = _BY_NAME.get(wanted) or _BY_NAME.get(wanted.removesuffix("s"))
    if unit is None:
        shown = name if len(name) <= 40 else f"{name[:40]}..."
        raise UnitError(f"there is no unit {shown!r}{nearest(shown, _BY_NAME)}")
    return unit


def convert(value: Fraction, source: Unit, target: Unit) -> Fraction:
    """Convert a value.

    Args:
        value: in the source unit.
        source: unit to convert from.
        target: unit to convert to.

    Returns:
        The exact value in the target unit.

    Raises:
        UnitError: if the two measure different things.
    """
    if source.kind != target.kind:
        raise UnitError(f"a {source.name} measures {source.kind} and a {target.name} {target.kind}: they cannot be converted")
    return (value * source.factor + source.offset - target.offset) / target.factor


class UnitConverter(BaseTool):
    """The tool `unit_converter(value, from_unit, to_unit)`."""

    name = "unit_converter"
    description = "Convert a value from one unit to another: length, mass, time, volume, area, speed, data or temperature."
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "value": {"type": "number", "description": "The value to convert"},
            "from_unit": {"type": "string", "description": "The unit of the value, for example feet"},
            "to_unit": {"type": "string", "description": "The unit that is wanted, for example metres"},
        },
        "required": ["value", "from_unit", "to_unit"],
        "additionalProperties": False,
    }

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Convert the value.

        Args:
            arguments: `{"value": number, "from_unit": str, "to_unit": str}`.
            context: not used.

        Returns:
            The number, or a line that begins with `Error`.
        """
        value = arguments["value"]
        try:
            if abs(value) > 1e30:
                raise UnitError("the value is too large")
            exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
            return ToolResult(format_number(convert(exact, find_unit(arguments["from_unit"]), find_unit(arguments["to_unit"]))))
        except UnitError as error:
            return ToolResult(f"Error: {error}{'' if str(error).endswith('?') else '.'}")
