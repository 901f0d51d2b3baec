"""Hostile text in the forms of the model families: nothing raises, and everything is read in linear time."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from family_names import BY_SCHEMA, FAMILIES, SEARCH
from helpers import assert_linear
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.tools import ParsedAction, get_format

PARTS = {
    name: [*get_format(name).markers, "search", "functions.search:0", "call:f", "{", "}", '"', "[", "]", "(", ")", "=", ",", ":", '{"a": 1}',
           '"name"', "x", "\n", " ", "\\", "'", "```", "<answer>", "</answer>", "to=functions.f", "json", "**"]
    for name in FAMILIES
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=150, deadline=None)
@given(data=st.data(), prefix=st.sampled_from(["", "<think>\n", "<|start|>assistant", "[THINK]", "<|channel>thought\n"]))
def test_no_family_raises_on_any_text(name: str, data: st.DataObject, prefix: str) -> None:
    text = data.draw(st.one_of(st.text(max_size=100), st.lists(st.sampled_from(PARTS[name]), max_size=25).map("".join)))
    parsed = get_format(name).parse(text, prefix=prefix, tools=[SEARCH])
    assert isinstance(parsed, ParsedAction)
    for one in parsed.calls:
        assert one.error is None or "\n" not in one.error
        assert one.name or one.error is not None
        assert one.error is None or one.arguments == {}
        json.dumps(one.arguments, allow_nan=False)


def repeated(name: str) -> dict[str, Callable[[int], str]]:
    """Texts of a collapsed policy, by the number of repetitions."""
    made = get_format(name)
    good = made.render_call("search", {"query": "x", "k": 3} if name not in BY_SCHEMA else {"query": "x"})
    cases: dict[str, Callable[[int], str]] = {f"{marker} again": (lambda n, marker=marker: marker * n) for marker in made.markers}
    half = good[: len(good) * 2 // 3]
    return {
        **cases,
        "good calls": lambda n: good * (n // 16),
        "half calls": lambda n: half * (n // 8),
        "half calls and an end": lambda n: half * (n // 8) + good,
        "reasoning": lambda n: "".join(made.reasoning[0]) * n,
        "many arguments": lambda n: _many(name, n // 8),
        "deep": lambda n: good[:-3] + "[" * n,
        "quotes": lambda n: half + "\"'" * n,
        "backslashes": lambda n: half + '\\"' * n,
        "open quotes": lambda n: (half + '"') * (n // 8),
        "commas": lambda n: half + ", {" * n,
        "calls by name": lambda n: half + "), f(" * n,
        "list of objects": lambda n: "[TOOL_CALLS] [" + '{"name": "f", },' * (n // 4),
        "list that opens": lambda n: "[TOOL_CALLS] [" + '{"name": [{"name":' * (n // 4),
        "headers": lambda n: "<|channel|>commentary to=functions.f" * (n // 8),
        "spaces": lambda n: (made.markers[0] + " " * 20) * (n // 8) + " " * n,
        "lists": lambda n: "[f(a=1)]" * (n // 4),
        "lists that open": lambda n: "[f(a=[" * (n // 4),
        "names": lambda n: made.markers[0] + "a" * n,
    }


def _many(name: str, n: int) -> str:
    arguments = {f"k{index}": "v" for index in range(n)}
    return get_format(name).render_call("search", arguments)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_read_in_linear_time(name: str) -> None:
    made = get_format(name)
    for make in repeated(name).values():
        assert_linear(made.parse, make, 2048)
