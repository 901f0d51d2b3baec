"""A calculator: arithmetic on exact numbers, safe to hand to a model.

The expression is parsed by Python's own parser and evaluated over a closed list of syntax nodes: numbers (`1800`, `1_800`, `0.5`, `1e5`),
`+ - * / // % **`, signs and parentheses. There are no names, calls, attributes, strings or comparisons: a text with any other character never reaches the parser. Size is
bounded before the work is done, so that no expression costs noticeable time or memory.

Numbers are exact fractions, not floats: 0.1 + 0.2 is 0.3. A result that is no finite decimal is shown rounded to 12 significant digits.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, Underflow, localcontext
from fractions import Fraction
from typing import Any

from agent_gym.tools.base import BaseTool, ToolContext, ToolResult

__all__ = ["Calculator", "CalculatorError", "evaluate", "format_number"]

MAX_LENGTH = 500
"""Characters of an expression."""
MAX_BITS = 4096
"""Bits of a numerator or denominator on the way."""
SIGNIFICANT_DIGITS = 12
"""Of a result that is no finite decimal."""
ROOT_DIGITS = 50
"""Significant digits that are carried of a power that is no rational number; more than are shown, so that it is shown rounded."""
_ALPHABET = frozenset("0123456789.+-*/%()_eE \t\r\n")
_MAX_DEPTH = 60
_MAX_SHOWN = 40  # digits of an exact result
_ALLOWED = "only numbers, + - * / // % ** and parentheses are allowed"


class CalculatorError(ValueError):
    """The expression cannot be evaluated; the message is one line for the model."""


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _checked(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise CalculatorError("the numbers become too large")
    return value


def _nonzero(value: Fraction) -> Fraction:
    if value == 0:
        raise CalculatorError("division by zero")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _root(base, exponent)
    power = exponent.numerator
    if abs(power) > MAX_BITS or _bits(base) * abs(power) > 2 * MAX_BITS:
        if base in (0, 1, -1) and power >= 0:
            return Fraction(1) if power == 0 or base == 1 else Fraction(0) if base == 0 else Fraction(-1 if power % 2 else 1)
        raise CalculatorError("the numbers become too large")
    return _nonzero(base) ** power if power < 0 else base**power


def _root(base: Fraction, exponent: Fraction) -> Fraction:
    """A power that is no whole number: exact for the square root of a square, else rounded to `ROOT_DIGITS` significant digits."""
    if base < 0:
        raise CalculatorError("a negative number has no real power of this kind")
    if exponent == Fraction(1, 2):
        over, under = math.isqrt(base.numerator), math.isqrt(base.denominator)
        if over * over == base.numerator and under * under == base.denominator:
            return Fraction(over, under)
    if base == 0:
        if exponent < 0:
            raise CalculatorError("division by zero")
        return Fraction(0)
    traps = [InvalidOperation, DivisionByZero, Overflow, Underflow]
    with localcontext(Context(prec=2 * ROOT_DIGITS, rounding=ROUND_HALF_EVEN, Emin=-99999, Emax=99999, traps=traps)) as context:
        try:
            power = (Decimal(base.numerator) / Decimal(base.denominator)) ** (Decimal(exponent.numerator) / Decimal(exponent.denominator))
            context.prec = ROOT_DIGITS
            return Fraction(+power)
        except ArithmeticError:
            raise CalculatorError("the numbers become too large") from None


def evaluate(expression: str) -> Fraction:
    """Evaluate an arithmetic expression.

    Args:
        expression: numbers as Python writes them (`1_800`, `1e5`), `+ - * / // % **`, parentheses; `^`, `×`, `÷` and `−` are read as `**`, `*`, `/` and `-`.

    Returns:
        The exact value (rounded only where a power is no rational number).

    Raises:
        CalculatorError: with one line that says why not.
    """
    if len(expression) > MAX_LENGTH:
        raise CalculatorError(f"the expression has {len(expression)} characters, and at most {MAX_LENGTH} are allowed")
    text = expression.strip().replace("^", "**").replace("×", "*").replace("÷", "/").replace("−", "-")
    if not text:
        raise CalculatorError("the expression is empty")
    if not _ALPHABET.issuperset(text):
        raise CalculatorError(_ALLOWED)
    if text.count("(") > _MAX_DEPTH:
        raise CalculatorError("there are too many parentheses")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise CalculatorError("this is no arithmetic expression") from None
    try:
        return _value(tree.body, text)
    except RecursionError:
        raise CalculatorError("the expression is nested too deeply") from None


def _value(node: ast.expr, text: str) -> Fraction:
    if isinstance(node, ast.Constant):
        if type(node.value) not in (int, float):
            raise CalculatorError(f"{ast.get_source_segment(text, node)} is no number")
        return _number(ast.get_source_segment(text, node) or "", node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = _value(node.operand, text)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, text), _value(node.right, text)
        match node.op:
            case ast.Add():
                return _checked(left + right)
            case ast.Sub():
                return _checked(left - right)
            case ast.Mult():
                return _checked(left * right)
            case ast.Div():
                return _checked(left / _nonzero(right))
            case ast.FloorDiv():
                return _checked(Fraction(left // _nonzero(right)))
            case ast.Mod():
                return _checked(left % _nonzero(right))
            case ast.Pow():
                return _checked(_power(left, right))
    raise CalculatorError(_ALLOWED)


def _number(written: str, value: Any) -> Fraction:
    """The number as it was written: 0.1 is a tenth, whatever the float next to it is."""
    if type(value) is int:
        return _checked(Fraction(value))
    digits = written.replace("_", "")
    if "e" in digits.lower() and abs(int(digits.lower().rsplit("e", 1)[1])) > 1000:
        raise CalculatorError("the numbers become too large")
    return _checked(Fraction(digits))


def format_number(value: Fraction) -> str:
    """Write a number for a model: exactly where it is a finite decimal of moderate length, else rounded to 12 significant digits.

    Args:
        value: the number.

    Returns:
        Digits with at most one point, without an exponent unless the number has more than 40 digits.
    """
    with localcontext(Context(prec=_MAX_SHOWN, rounding=ROUND_HALF_EVEN, Emin=-99999, Emax=99999)) as context:
        exact = Decimal(value.numerator) / Decimal(value.denominator)
        if Fraction(exact) != value:
            context.prec = SIGNIFICANT_DIGITS
            exact = +exact
        if exact == exact.to_integral_value() and exact.adjusted() < _MAX_SHOWN:
            return str(exact.quantize(Decimal(1)))
        exact = exact.normalize()
        return f"{exact:f}" if -_MAX_SHOWN < exact.adjusted() < _MAX_SHOWN else str(exact)


class Calculator(BaseTool):
    """The tool `calculator(expression)`."""

    name = "calculator"
    description = "Work out an arithmetic expression, exactly."
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "expression": {"type": "string", "description": "Numbers, + - * / // % ** and parentheses, for example (3 + 4) * 2.5"},
        },
        "required": ["expression"],
        "additionalProperties": False,
    }

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Evaluate the expression.

        Args:
            arguments: `{"expression": str}`.
            context: not used.

        Returns:
            The number, or a line that begins with `Error`.
        """
        try:
            return ToolResult(format_number(evaluate(arguments["expression"])))
        except CalculatorError as error:
            return ToolResult(f"Error: {error}.")
