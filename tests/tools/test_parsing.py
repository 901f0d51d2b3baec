"""Reading calls: our scanners against transformers' parser, a corpus of malformed calls, answers, and linear time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from helpers import assert_linear
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_parsing.response_parser import parse_response

from agent_gym.tools import FORMATS, ParsedAction, ToolCall, extract_answer, get_format
from agent_gym.tools.calls import opens_reasoning, read_call

SEPARATOR = "\x1e"
HERMES_ORACLE: dict[str, Any] = {
    "defaults": {},
    "start_anchor_pattern": r"\A",
    "fields": {
        "thinking": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text", "repeats": True, "join": SEPARATOR},
        "tool_calls": {"open": "<tool_call>", "close_pattern": r"</tool_call>\s*", "repeats": True, "content": "json"},
        "content": {"content": "text", "repeats": True, "join": SEPARATOR},
    },
}
SEARCH_ORACLE: dict[str, Any] = {
    **HERMES_ORACLE,
    "fields": {
        **HERMES_ORACLE["fields"],
        "tool_calls": {"open": "<search>", "close_pattern": r"</search>\s*", "repeats": True, "content": "text"},
    },
}


def oracle(template: dict[str, Any], text: str, prefix: str = "") -> tuple[str, str, list[Any]]:
    """What transformers' parser makes of a text: content, reasoning, payloads. Pieces are joined as ours are."""
    message = parse_response(text, template, prefix=prefix)

    def joined(key: str) -> str:
        return "\n".join(piece for piece in message.get(key, "").split(SEPARATOR) if piece)

    return joined("content"), joined("thinking"), message.get("tool_calls", [])


def call(name: str = "search", arguments: Any = None) -> str:
    payload = {"name": name, "arguments": {"query": "paris"} if arguments is None else arguments}
    return f"<tool_call>\n{json.dumps(payload, ensure_ascii=False)}\n</tool_call>"


# ------------------------------------------------------------------------------------------------ equality with transformers

plain_text = st.text(
    alphabet=st.one_of(
        st.sampled_from(list("ab <>/\n\t\"'{}[]:,\\;é漢🙂\u00a0")), st.characters(exclude_categories=("Cs",), exclude_characters=SEPARATOR)
    ),
    max_size=30,
).filter(lambda text: not any(tag in text for tag in ("<think>", "<tool_call>", "<search>")))
reasoning_text = plain_text.filter(lambda text: "</think>" not in text)
json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=10)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)
payloads = st.builds(
    lambda name, arguments: {"name": name, "arguments": arguments},
    st.text(min_size=1, max_size=8),
    st.dictionaries(st.text(max_size=6), json_values, max_size=3),
)
piece = st.one_of(
    st.tuples(st.just("content"), plain_text),
    st.tuples(st.just("think"), st.one_of(reasoning_text, st.just("<tool_call>{}</tool_call> and <think>"))),
    st.tuples(st.just("call"), payloads),
)


def well_formed(parts: list[tuple[str, Any]], ascii_only: bool) -> str:
    written = {
        "content": lambda value: value,
        "think": lambda value: f"<think>{value}</think>",
        "call": lambda value: (
            "<tool_call>" + json.dumps(value, ensure_ascii=ascii_only).replace("</tool_call>", "<\\/tool_call>") + "</tool_call>"
        ),
    }
    return "".join(written[kind](value) for kind, value in parts)


@settings(max_examples=400, deadline=None)
@given(st.lists(piece, max_size=6), st.booleans())
def test_hermes_equals_transformers_on_well_formed_text(parts: list[tuple[str, Any]], ascii_only: bool) -> None:
    text = well_formed(parts, ascii_only)
    if any("\ud800" <= one <= "\udfff" for one in json.dumps([value for kind, value in parts if kind == "call"], ensure_ascii=False)):
        return
    content, reasoning, found = oracle(HERMES_ORACLE, text)
    parsed = get_format("hermes").parse(text)
    assert [one.error for one in parsed.calls] == [None] * len(found)
    assert [{"name": one.name, "arguments": one.arguments} for one in parsed.calls] == found
    assert (parsed.content, parsed.reasoning) == (content, reasoning)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            plain_text,
            reasoning_text.map("<think>{}</think>".format),
            plain_text.filter(lambda t: "</search>" not in t and t.strip()).map("<search>{}</search>".format),
        ),
        max_size=6,
    )
)
def test_search_tags_equal_transformers_on_well_formed_text(parts: list[str]) -> None:
    text = "".join(parts)
    content, reasoning, found = oracle(SEARCH_ORACLE, text)
    parsed = get_format("search_tags").parse(text)
    assert [(one.name, one.arguments) for one in parsed.calls] == [("search", {"query": query}) for query in found]
    assert (parsed.content, parsed.reasoning) == (content, reasoning)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "<think>",
                "</think>",
                "<tool_call>",
                "</tool_call>",
                '{"name":"f","arguments":{}}',
                "{",
                '"',
                "x",
                "\n",
                " ",
                "<answer>",
                "<tool",
                "<|im_end|>",
            ]
        ),
        max_size=12,
    ).map("".join)
)
def test_hermes_segments_hostile_text_as_transformers_does_wherever_that_one_does_not_raise(text: str) -> None:
    parsed = get_format("hermes").parse(text)
    try:
        content, reasoning, found = oracle(HERMES_ORACLE, text)
    except ValueError:
        return
    assert (parsed.content, parsed.reasoning) == (content, reasoning)
    # Deliberate differences: transformers takes a call that nothing closes, and any JSON value, for a call.
    closed = text.rfind("<tool_call>") < text.rfind("</tool_call>") or not found
    good = [one for one in parsed.calls if one.error is None]
    if closed:
        assert len(parsed.calls) == len(found)
        assert [one.arguments for one in good] == [one.get("arguments", {}) for one in found if isinstance(one, dict) and one.get("name")]


# ------------------------------------------------------------------------------------------------ the malformed corpus

MALFORMED: dict[str, tuple[str, str]] = {
    "truncated JSON": ('<tool_call>{"name": "search", "arguments": {"query": "par</tool_call>', "it is not valid JSON at character"),
    "missing last brace": ('<tool_call>{"name": "search", "arguments": {"query": "x"}</tool_call>', "it is not valid JSON at character"),
    "single quotes": ("<tool_call>{'name': 'search', 'arguments': {'query': 'x'}}</tool_call>", "it is not valid JSON at character 1"),
    "missing close at the end": ('<tool_call>{"name": "search", "arguments": {"query": "x"}}', "no closing </tool_call>"),
    "cut off in the middle": ('I look. <tool_call>{"name": "sea', "no closing </tool_call>"),
    "duplicate name": ('<tool_call>{"name": "a", "name": "b", "arguments": {}}</tool_call>', 'the key "name" stands in it twice'),
    "duplicate argument": ('<tool_call>{"name": "a", "arguments": {"q": 1, "q": 2}}</tool_call>', 'the key "q" stands in it twice'),
    "NaN": ('<tool_call>{"name": "a", "arguments": {"q": NaN}}</tool_call>', "NaN is not a JSON value"),
    "Infinity": ('<tool_call>{"name": "a", "arguments": {"q": -Infinity}}</tool_call>', "-Infinity is not a JSON value"),
    "a number beyond float": ('<tool_call>{"name": "a", "arguments": {"q": 1e999}}</tool_call>', "is too large"),
    "a number of 5,000 digits": ('<tool_call>{"name": "a", "arguments": {"q": ' + "9" * 5000 + "}}</tool_call>", "too many digits"),
    "arguments null": ('<tool_call>{"name": "a", "arguments": null}</tool_call>', '"arguments" must be a JSON object, not null'),
    "arguments a list": ('<tool_call>{"name": "a", "arguments": [1]}</tool_call>', '"arguments" must be a JSON object, not a list'),
    "arguments a text that is no JSON": (
        '<tool_call>{"name": "a", "arguments": "paris"}</tool_call>',
        '"arguments" is a text, and as JSON it is not valid',
    ),
    "arguments a text of a list": (
        '<tool_call>{"name": "a", "arguments": "[1]"}</tool_call>',
        '"arguments" must be a JSON object, not a list',
    ),
    "arguments twice packed": ('<tool_call>{"name": "a", "arguments": ' + json.dumps(json.dumps("{}")) + "}</tool_call>", "not a text"),
    "parameters instead of arguments": ('<tool_call>{"name": "a", "parameters": {"q": 1}}</tool_call>', 'the key "arguments" is missing'),
    "list payload": ('<tool_call>[{"name": "a", "arguments": {}}]</tool_call>', "a call is one JSON object, not a list"),
    "text payload": ('<tool_call>"search"</tool_call>', "a call is one JSON object, not a text"),
    "empty": ("<tool_call></tool_call>", "it is empty"),
    "no name": ('<tool_call>{"arguments": {}}</tool_call>', 'the key "name" is missing'),
    "a number as name": ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', '"name" must be the name of a tool, not a number'),
    "two objects in one call": (
        '<tool_call>{"name": "a", "arguments": {}} {"name": "b", "arguments": {}}</tool_call>',
        "it is not valid JSON at character",
    ),
    "a literal line break in a string": (
        '<tool_call>{"name": "a", "arguments": {"q": "x\ny"}}</tool_call>',
        "it is not valid JSON at character",
    ),
    "half a surrogate": ('<tool_call>{"name": "a", "arguments": {"q": "\\ud800"}}</tool_call>', "half a Unicode surrogate"),
    "100,000 brackets": ("<tool_call>" + "[" * 100_000 + "</tool_call>", "nested too deeply|not valid JSON"),
    "XML inside": (
        "<tool_call><function=search><parameter=query>x</parameter></function></tool_call>",
        "it is not valid JSON at character 0",
    ),
    "the closing tag inside a string": (
        '<tool_call>{"name": "a", "arguments": {"q": "</tool_call>"}}',
        "it is not valid JSON at character",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_call_becomes_an_error_and_keeps_its_text(case: str) -> None:
    text, message = MALFORMED[case]
    parsed = get_format("hermes").parse(text)
    assert len(parsed.calls) == 1
    assert parsed.calls[0].error is not None
    assert re.search(re.escape(message).replace(r"\|", "|"), parsed.calls[0].error)
    assert "\n" not in parsed.calls[0].error
    assert parsed.calls[0].raw in text
    assert parsed.calls[0].arguments == {}
    assert parsed.has_marker


def loses_good_calls(text: str) -> ParsedAction:
    """A mutant: one broken call and everything is lost, as in transformers' parser used alone."""
    try:
        found = parse_response(text, HERMES_ORACLE, prefix="").get("tool_calls", [])
    except ValueError:
        return ParsedAction(text, "", (), True)
    return ParsedAction("", "", tuple(read_call(one, "") for one in found), bool(found))


def check_a_broken_call_costs_only_itself(parse: Callable[[str], ParsedAction], broken: str) -> None:
    good = (call(arguments={"query": "one"}), call(arguments={"query": "two"}))
    for text in (broken + good[0] + good[1], good[0] + broken + good[1], f"{good[0]}\n{good[1]}"):
        kept = [one.arguments for one in parse(text).calls if one.error is None]
        assert kept == [{"query": "one"}, {"query": "two"}], text


@pytest.mark.parametrize("case", [one for one in MALFORMED if "closing tag inside" not in one])
def test_a_broken_call_costs_only_itself_wherever_it_stands(case: str) -> None:
    check_a_broken_call_costs_only_itself(get_format("hermes").parse, MALFORMED[case][0])


def test_the_check_of_broken_calls_finds_a_parser_that_loses_good_ones() -> None:
    with pytest.raises(AssertionError):
        check_a_broken_call_costs_only_itself(loses_good_calls, MALFORMED["single quotes"][0])


def test_trailing_and_leading_text_is_content() -> None:
    parsed = get_format("hermes").parse(f"I look it up. {call()} Please wait.")
    assert [one.arguments for one in parsed.calls] == [{"query": "paris"}]
    assert parsed.content == "I look it up.\nPlease wait."


def test_arguments_as_a_json_text_are_read_once() -> None:
    parsed = get_format("hermes").parse(call(arguments=json.dumps({"query": "x"})))
    assert parsed.calls == (ToolCall("search", {"query": "x"}, parsed.calls[0].raw),)


def test_a_call_with_nothing_but_a_name_has_no_arguments() -> None:
    assert get_format("hermes").parse('<tool_call>{"name": "now"}</tool_call>').calls[0].arguments == {}


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        (f"<think>maybe {call()} helps</think>Done.", ""),
        (f"<think>maybe {call()} helps", ""),
        (f"maybe {call()} helps</think>Done.", "<|im_start|>assistant\n<think>\n"),
        (f"maybe {call()} helps", "<think>\n"),
    ],
)
@pytest.mark.parametrize("name", ["hermes", "qwen3_coder"])
def test_calls_inside_reasoning_are_ignored(text: str, prefix: str, name: str) -> None:
    parsed = get_format(name).parse(text, prefix=prefix)
    assert parsed.calls == ()
    assert not parsed.has_marker
    assert "maybe" in parsed.reasoning
    assert parsed.content in ("", "Done.")


def test_a_prefix_that_closes_its_reasoning_does_not_hide_calls() -> None:
    parsed = get_format("hermes").parse(call(), prefix="<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert len(parsed.calls) == 1
    assert not opens_reasoning("")


def test_a_tag_inside_a_json_string_is_text_and_one_outside_begins_a_call() -> None:
    hermes = get_format("hermes")
    inside = hermes.parse(call(arguments={"query": "what does <tool_call> mean"}))
    assert [one.arguments for one in inside.calls] == [{"query": "what does <tool_call> mean"}]
    begun_twice = hermes.parse('<tool_call>{"name": "search", "argu' + call())
    assert [one.error is None for one in begun_twice.calls] == [False, True]


@pytest.mark.parametrize("text", ["</tool_call>", "hm <tool_call", "ok </tool_call"])
def test_a_part_of_a_marker_is_seen(text: str) -> None:
    parsed = get_format("hermes").parse(text)
    assert parsed.has_marker
    assert parsed.calls == ()


@pytest.mark.parametrize("text", ["", "The answer is 4.", '{"name": "search", "arguments": {}}', "<answer>4</answer>", "a < b"])
def test_text_without_a_marker_has_none(text: str) -> None:
    assert get_format("hermes").parse(text) == ParsedAction(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.sampled_from(sorted(FORMATS)), st.sampled_from(["", "<think>\n"]))
def test_no_format_raises_on_any_text(text: str, name: str, prefix: str) -> None:
    assert isinstance(get_format(name).parse(text, prefix=prefix), ParsedAction)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=6), json_values, max_size=3))
def test_what_hermes_writes_it_reads(arguments: dict[str, Any]) -> None:
    hermes = get_format("hermes")
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    for given_arguments in (arguments, {"q": f"</tool_call> {json.dumps(arguments)}"}):
        parsed = hermes.parse(hermes.render_call("f", given_arguments))
        assert [(one.name, one.arguments, one.error) for one in parsed.calls] == [("f", given_arguments, None)]
        assert parsed.content == ""


# ------------------------------------------------------------------------------------------------ search tags


def test_search_tags_read_queries_and_tell_of_missing_ends() -> None:
    parsed = get_format("search_tags").parse("<think>I need it</think>\n<search> who </search> then <search>where</search><search>cut")
    assert [(one.name, one.arguments.get("query"), one.error) for one in parsed.calls] == [
        ("search", "who", None),
        ("search", "where", None),
        ("", None, "the call has no closing </search>"),
    ]
    assert (parsed.content, parsed.reasoning) == ("then", "I need it")
    again = get_format("search_tags").parse("<search>one<search>two</search>")
    assert [(one.arguments.get("query"), one.error is None) for one in again.calls] == [(None, False), ("two", True)]


def test_search_tags_write_only_what_they_can_read() -> None:
    tags = get_format("search_tags")
    assert tags.parse(tags.render_call("search", {"query": "who was it"})).calls[0].arguments == {"query": "who was it"}
    for name, arguments in (("open", {"query": "x"}), ("search", {"q": "x"}), ("search", {"query": "a</search>"})):
        with pytest.raises(ValueError, match="search_tags"):
            tags.render_call(name, arguments)


# ------------------------------------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>Paris</answer>", "Paris"),
        ("so <answer> Paris </answer>.", "Paris"),
        ("<answer>a</answer> no, <answer>b</answer>", "b"),
        ("<answer>a</answer> and <answer>b", "a"),
        ("<answer>a</answer></answer>", "a"),
        ("<answer><answer>a</answer>", "a"),
        ("<answer></answer>", ""),
        ("<answer>a", None),
        ("a</answer>", None),
        ("Paris", None),
        ("<think><answer>a</answer></think> Paris", None),
        ("<think><answer>a</answer>", None),
        ("<answer>a</answer><think>or <answer>b</answer>", "a"),
        ("", None),
    ],
)
def test_the_answer_is_the_last_closed_tag_outside_reasoning(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


def test_an_answer_in_reasoning_that_the_prompt_opened_is_none() -> None:
    assert extract_answer("<answer>a</answer></think>", prefix="<think>\n") is None
    assert extract_answer("hm</think><answer>a</answer>", prefix="<think>\n") == "a"


# ------------------------------------------------------------------------------------------------ linear time

HOSTILE: dict[str, Callable[[int], str]] = {
    "open tags": lambda n: "<tool_call>" * n,
    "open tags with one end": lambda n: "<tool_call>" * n + "</tool_call>",
    "an end before open tags": lambda n: "</tool_call>" + "<tool_call>" * n,
    "open tags in quotes": lambda n: '<tool_call>"' * n + "</tool_call>",
    "open tags with braces": lambda n: '<tool_call>{"name":"' * n + "</tool_call>",
    "empty calls": lambda n: "<tool_call></tool_call>" * n,
    "think tags": lambda n: "<think>" * n,
    "empty reasoning": lambda n: "<think></think>" * n,
    "reasoning and calls": lambda n: "<think></think><tool_call>{}</tool_call>" * n,
    "search tags": lambda n: "<search>" * n + "</search>",
    "answer tags": lambda n: "<answer>" * n + "</answer>" * 2,
    "parameters": lambda n: "<tool_call><function=f>" + "<parameter=a>" * n + "</function></tool_call>",
    "whole parameters": lambda n: (
        "<tool_call><function=f>" + "".join(f"<parameter=a{i}>1</parameter>" for i in range(n)) + "</function></tool_call>"
    ),
    "functions": lambda n: "<tool_call><function=f></function></tool_call>" * (n // 8),
    "llama objects": lambda n: '{"name": "f", ;' * n,
    "llama good objects": lambda n: '{"name": "f", "parameters": {}};' * n,
    "line breaks": lambda n: "<tool_call><function=" + "\n" * n + "<tool_call>",
}


@pytest.mark.parametrize("name", ["hermes", "llama3_json", "qwen3_coder", "search_tags"])  # the others: test_families.py
@pytest.mark.parametrize("case", HOSTILE)
def test_reading_takes_linear_time(name: str, case: str) -> None:
    parser = get_format(name)

    def parse(text: str) -> None:
        extract_answer(parser.parse(text).content)

    assert_linear(parse, HOSTILE[case], 4096)


def test_the_check_of_linear_time_finds_the_usual_regular_expression() -> None:
    pattern = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
    with pytest.raises(AssertionError):
        assert_linear(pattern.findall, HOSTILE["open tags"], 512)


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "llama3_json", "search_tags"])
def test_an_answer_that_reasoning_stands_in_is_none(name: str) -> None:
    parse = FORMATS[name]().parse
    assert parse("<answer>Pa<think>hm</think>ris</answer>").answer is None
    assert parse("<answer>a</answer> <answer>Pa<think>hm</think>ris</answer>").answer == "a"
    assert parse("<think>hm</think><answer>Paris</answer><think>so</think>").answer == "Paris"
    assert parse("Paris").answer is None


def test_an_answer_that_a_call_stands_in_is_none() -> None:
    for name in ("hermes", "qwen3_coder", "search_tags"):
        reader = FORMATS[name]()
        call = reader.render_call("search", {"query": "q"})
        assert reader.parse(f"<answer>x{call}</answer>").answer is None
        parsed = reader.parse(f"<answer>x</answer>{call}<answer>y</answer>")
        assert (parsed.answer, len(parsed.calls)) == ("y", 1)
    llama = FORMATS["llama3_json"]()
    call = llama.render_call("search", {"query": "<answer>no</answer>"})
    assert llama.parse(f"<answer>x</answer>{llama.markers[0]}{call}").answer == "x"
    assert llama.parse(f"<answer>x<think>hm</think></answer>{llama.markers[0]}{call}").answer is None
    assert llama.parse(f"<think>hm</think>{call}").answer is None


def test_an_answer_of_a_format_without_pieces_is_that_of_its_content() -> None:
    assert ParsedAction("<answer>x</answer>").answer == "x"
