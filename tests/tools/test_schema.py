"""The schema of a function, held against transformers' `get_json_schema`."""

# ruff: noqa: UP006, UP007, UP045  # the old spellings of unions are part of what is tested

from __future__ import annotations

import enum
import functools
import subprocess
import sys
import typing
from collections.abc import Callable
from typing import Any, Literal, Optional, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils import get_json_schema

from agent_gym.tools import ToolContext, ToolResult, function_schema, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


def plain(a: int, b: float, c: str, d: bool) -> str:
    """Do something.

    Args:
        a: the first.
        b: the second, which
            has two lines: really.
        c: the third
        d (bool): the fourth.

    Returns:
        Something.
    """
    return ""


def defaults(query: str, k: int = 3, tags: Optional[list[str]] = None) -> Any:
    """Search the pages.

    A second paragraph, which belongs to the description.

    Args:
        query: what to look for.

        k: how many.
        tags: only these.
    """


def unions(
    a: Union[int, str], b: int | None, c: Union[list[int], str, None], d: list[dict[str, float]], e: dict[str, Any], f: tuple[int, str]
) -> None:
    """Unions.

    Args:
        a: one.
        b: two.
        c: three.
        d: four.
        e: five.
        f: six.

    Raises:
        ValueError: never.
    """


def choices(
    size: Literal["s", "m", "l"], number: Literal[1, 2], mixed: Literal[1, "a", None], drink: str, colour: Colour, other: Mixed = Mixed.ONE
) -> str:
    """Order.

    Args:
        size: the size.
        number: how many.
        mixed: either.
        drink: the drink (choices: ["tea", " coffee "])
        colour: the colour.
        other: the other.
    """
    return ""


def nothing() -> str:
    """Tell the time."""
    return ""


def bare(a: list, b: dict, c: tuple, d: Any) -> str:
    """Bare containers.

    Args:
        a: a
        b: b
        c: c
        d: d
    """
    return ""


async def asynchronous(url: str) -> str:
    """Fetch.

    Args:
        url: where; see https://example.org: it is there.
    """
    return url


def one_line(a: int) -> int:
    """Add one. Args: none here. Returns: a."""
    return a


class Holder:
    def method(self, text: str, times: int = 1) -> str:
        """Repeat.

        Args:
            text: what.
            times: how often.
        """
        return text * times

    @classmethod
    def of(cls, text: str) -> str:
        """Make.

        Args:
            text: what.
        """
        return text

    @staticmethod
    def free(text: str) -> str:
        """Free.

        Args:
            text: what.
        """
        return text


FUNCTIONS: list[Callable[..., Any]] = [
    plain,
    defaults,
    unions,
    choices,
    nothing,
    bare,
    asynchronous,
    Holder().method,
    Holder.of,
    Holder().of,
    Holder.free,
]


def theirs(function: Callable[..., Any]) -> dict[str, Any]:
    made = dict(get_json_schema(function)["function"])
    made.pop("return", None)
    return made


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda one: one.__qualname__)
def test_the_schema_equals_that_of_transformers(function: Callable[..., Any]) -> None:
    assert function_schema(function) == theirs(function)


def described(body: str, hints: dict[str, Any]) -> Callable[..., Any]:
    def function(**_: Any) -> str:
        return ""

    import inspect

    function.__name__ = "made"
    function.__doc__ = body
    function.__annotations__ = {**hints, "return": str}
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint) for name, hint in hints.items()]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


words = st.text(alphabet="abcXY ,.()\"'-é", min_size=1, max_size=20).map(str.strip).filter(bool)
hint_types = st.recursive(
    st.sampled_from([int, str, float, bool, Any, list, dict]),
    lambda inner: st.one_of(
        inner.map(lambda one: list[one]),
        inner.map(lambda one: dict[str, one]),
        st.tuples(inner, inner).map(lambda two: Union[two]),
        inner.map(lambda one: Optional[one]),
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(
    words,
    st.lists(
        st.tuples(st.sampled_from(["alpha", "beta", "gamma"]), words, st.one_of(st.none(), words), st.booleans(), hint_types),
        max_size=3,
        unique_by=lambda one: one[0],
    ),
    st.booleans(),
)
def test_generated_docstrings_and_hints_give_the_same_schema(summary: str, arguments: list[Any], returns: bool) -> None:
    lines = [summary, ""]
    if arguments:
        lines.append("Args:")
    for name, text, more, blank, _ in arguments:
        lines.append(f"    {name}: {text}")
        if more is not None:
            lines.append(f"        {more}")
        if blank:
            lines.append("")
    if returns:
        lines += ["", "Returns:", "    Something."]
    function = described("\n".join(lines), {name: hint for name, _, _, _, hint in arguments})
    assert function_schema(function) == theirs(function)


def test_no_torch_is_loaded() -> None:
    code = (
        "import sys\nfrom agent_gym.tools import tool\n@tool\ndef f(a: int) -> str:\n    '''Do.\n\n    Args:\n        a: it.\n    '''\n    return ''\n"
        "assert f.parameters['properties']['a']['type'] == 'integer'\nassert not {'torch', 'transformers', 'jsonschema'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_cannot_be_described_is_refused() -> None:
    def star(*args: int) -> str:
        """Star.

        Args:
            args: numbers.
        """
        return ""

    def double_star(**kwargs: int) -> str:
        """Star.

        Args:
            kwargs: numbers.
        """
        return ""

    def unhinted(a) -> str:  # type: ignore[no-untyped-def]
        """No hint.

        Args:
            a: it.
        """
        return ""

    def undescribed(a: int) -> str:
        """No line."""
        return ""

    def undocumented(a: int) -> str:
        return ""

    def odd(a: Holder) -> str:
        """Odd.

        Args:
            a: it.
        """
        return ""

    def bad_choices(a: str) -> str:
        """Bad.

        Args:
            a: it (choices: [tea])
        """
        return ""

    for function, kind, words_of_it in (
        (star, TypeError, "name the arguments"),
        (double_star, TypeError, "name the arguments"),
        (unhinted, TypeError, "has no type hint"),
        (undescribed, ValueError, "no line in the docstring"),
        (undocumented, ValueError, "no docstring"),
        (odd, TypeError, "no JSON Schema"),
        (bad_choices, ValueError, "no JSON list"),
        (functools.partial(plain, a=1), TypeError, "no function"),
        (3, TypeError, "no function"),
    ):
        with pytest.raises(kind, match=words_of_it):
            function_schema(function)  # type: ignore[arg-type]


def test_the_context_is_hidden_from_the_model_and_given_by_the_environment() -> None:
    @tool
    def roll(sides: int, context: ToolContext) -> int:
        """Roll a die.

        Args:
            sides: of the die.
        """
        return int(context.rng.integers(1, sides + 1))

    assert list(roll.parameters["properties"]) == ["sides"]
    results = {roll.execute({"sides": 6}, ToolContext(turn=1, entropy=5)).text for _ in range(3)}  # type: ignore[union-attr]
    assert len(results) == 1
    assert results <= set("123456")


def test_a_tool_is_still_a_function_and_takes_its_own_name() -> None:
    @tool(name="add_up", description="Sum.", timeout=2.0)
    def add(a: int, b: int) -> int:
        """Add.

        Args:
            a: one.
            b: two.
        """
        return a + b

    assert add(1, 2) == 3
    assert (add.name, add.description, add.timeout) == ("add_up", "Sum.", 2.0)
    assert add.execute({"a": 1, "b": 2}, ToolContext()) == ToolResult("3")
    assert add.schema["function"]["name"] == "add_up"


def test_whatever_a_function_returns_becomes_text() -> None:
    @tool
    def give(kind: str) -> Any:
        """Give.

        Args:
            kind: of thing.
        """
        return {"list": [1, "é"], "none": None, "text": "x", "result": ToolResult("y", 1.0), "odd": {"a": {1}}}[kind]

    def text_of(kind: str) -> str:
        return give.execute({"kind": kind}, ToolContext()).text  # type: ignore[union-attr]

    assert [text_of(kind) for kind in ("list", "none", "text", "result")] == ['[1, "é"]', "null", "x", "y"]
    assert text_of("odd") == '{"a": "{1}"}'


@pytest.mark.parametrize("hint", [typing.List, typing.Dict, typing.Tuple, Optional[typing.List]])
def test_bare_containers_of_typing_are_what_the_builtin_ones_are(hint: Any) -> None:
    def function(a):  # type: ignore[no-untyped-def]
        """Do something.

        Args:
            a: the first.
        """

    function.__annotations__["a"] = hint
    assert function_schema(function)["parameters"] == get_json_schema(function)["function"]["parameters"]
