"""The forms in which model families write calls: one, several, with reasoning, broken ones, and what transformers' parser says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from family_names import FAMILIES, SEARCH
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers.utils.chat_parsing.response_parser import parse_response

from agent_gym.tools import FORMATS, get_format
from agent_gym.tools.formats import RESPONSE_TEMPLATES
from agent_gym.tools.parsing import detect_format

# ------------------------------------------------------------------------------------------------ golden texts

S, E, B, A, Z = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
ONE: dict[str, list[str]] = {  # search(query="Zoë's <b>", k=3), as each family writes it
    "glm": [
        "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>Zoë's <b></arg_value>\n<arg_key>k</arg_key>\n<arg_value>3</arg_value>\n</tool_call>",
        "<tool_call>search<arg_key>query</arg_key><arg_value>Zoë's <b></arg_value><arg_key>k</arg_key><arg_value>3</arg_value></tool_call>",
    ],
    "gpt_oss": [
        '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "Zoë\'s <b>", "k": 3}',
        ' to=functions.search<|channel|>commentary json<|message|>{"query": "Zoë\'s <b>", "k": 3}<|call|>',
        '<|channel|>analysis to=functions.search <|constrain|>json<|message|>{"query": "Zoë\'s <b>", "k": 3}<|call|>',
        '<|channel|>final to=functions.search<|message|>{"query": "Zoë\'s <b>", "k": 3}<|call|>',
        '<|start|>assistant to=functions.search<|channel|>commentary <|constrain|>json<|message|>{"query": "Zoë\'s <b>", "k": 3}<|call|>',
        '<|channel|>commentary to=functions.search<|constrain|>json<|message|>{"query": "Zoë\'s <b>", "k": 3}<|end|>',
        ' to=functions.search<|message|>{"query": "Zoë\'s <b>", "k": 3}',
    ],
    "mistral": [
        '[TOOL_CALLS]search[ARGS]{"query": "Zoë\'s <b>", "k": 3}',
        '[TOOL_CALLS]search[CALL_ID]a1B2c3D4e[ARGS]{"query": "Zoë\'s <b>", "k": 3}',
        '[TOOL_CALLS]search{"query": "Zoë\'s <b>", "k": 3}',
        '[TOOL_CALLS] [{"name": "search", "arguments": {"query": "Zoë\'s <b>", "k": 3}, "id": "a1B2c3D4e"}]',
    ],
    "deepseek": [
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "Zoë\'s <b>", "k": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        '<｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "Zoë\'s <b>", "k": 3}<｜tool▁call▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n"
        '```json\n{"query": "Zoë\'s <b>", "k": 3}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ],
    "deepseek_v32": [
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">Zoë\'s <b></｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="k" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        '<｜DSML｜tool_calls><｜DSML｜invoke name="search"><｜DSML｜parameter name="query" string="true">Zoë\'s <b></｜DSML｜parameter>'
        '<｜DSML｜parameter name="k" string="false">3</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>',
    ],
    "kimi": [
        f'{S}{B}functions.search:0{A}{{"query": "Zoë\'s <b>", "k": 3}}{Z}{E}',
        f'{S}\n{B}\nfunctions.search:12{A}\n{{"query": "Zoë\'s <b>", "k": 3}}\n{Z}\n{E}',
        f'{B}search:0{A}{{"query": "Zoë\'s <b>", "k": 3}}{Z}',
        f'<|tool_call_section_begin|>{B}functions.search{A}{{"query": "Zoë\'s <b>", "k": 3}}{Z}<|tool_call_section_end|>',
    ],
    "gemma": [
        '<|tool_call>call:search{query:<|"|>Zoë\'s <b><|"|>,k:3}<tool_call|>',
        '<|tool_call>call:search{<|"|>query<|"|>: <|"|>Zoë\'s <b><|"|>, k: 3}<tool_call|>',
    ],
    "functiongemma": ["<start_function_call>call:search{query:<escape>Zoë's <b><escape>,k:3}<end_function_call>"],
    "pythonic": [
        '[search(query="Zoë\'s <b>", k=3)]',
        "<|tool_call_start|>[search(query='Zoë\\'s <b>', k=3)]<|tool_call_end|>",
        "<|python_start|>[search(query='''Zoë's <b>''', k = 3, )]<|python_end|>",
        '[search(**{"query": "Zoë\'s <b>"}, k=3)]',
    ],
}
ONE["mistral_list"], ONE["deepseek_v3"] = ONE["mistral"], ONE["deepseek"]
GOLDEN = [(name, number) for name in FAMILIES for number in range(len(ONE[name]))]
ASKED = ("search", {"query": "Zoë's <b>", "k": 3}, None)


def read(name: str, text: str, **more: Any) -> list[tuple[str, dict[str, Any], str | None]]:
    return [(one.name, one.arguments, one.error) for one in get_format(name).parse(text, tools=[SEARCH], **more).calls]


@pytest.mark.parametrize(("name", "number"), GOLDEN)
def test_one_call_in_each_way_that_the_family_writes_it(name: str, number: int) -> None:
    text = ONE[name][number]
    parsed = get_format(name).parse(text, tools=[SEARCH])
    assert [(one.name, one.arguments, one.error) for one in parsed.calls] == [ASKED]
    assert (parsed.content, parsed.reasoning, parsed.has_marker) == ("", "", True)


WRITTEN = {
    "glm": "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>a</arg_value>\n</tool_call>\n"
    "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
    "gpt_oss": '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "a"}<|end|>'
    '<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "b"}',
    "mistral": '[TOOL_CALLS]search[ARGS]{"query": "a"}[TOOL_CALLS]search[ARGS]{"query": "b"}',
    "mistral_list": '[TOOL_CALLS] [{"name": "search", "arguments": {"query": "a"}}, {"name": "search", "arguments": {"query": "b"}}]',
    "deepseek": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "a"}<｜tool▁call▁end｜>'
    '<｜tool▁call▁begin｜>search<｜tool▁sep｜>{"query": "b"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v3": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{"query": "a"}\n```<｜tool▁call▁end｜>\n'
    '<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{"query": "b"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    "deepseek_v32": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">a</｜DSML｜parameter>\n'
    '</｜DSML｜invoke>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter name="query" string="true">b</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    "</｜DSML｜function_calls>",
    "kimi": f'{S}{B}functions.search:0{A}{{"query": "a"}}{Z}{B}functions.search:1{A}{{"query": "b"}}{Z}{E}',
    "gemma": '<|tool_call>call:search{query:<|"|>a<|"|>}<tool_call|><|tool_call>call:search{query:<|"|>b<|"|>}<tool_call|>',
    "functiongemma": "<start_function_call>call:search{query:<escape>a<escape>}<end_function_call>"
    "<start_function_call>call:search{query:<escape>b<escape>}<end_function_call>",
    "pythonic": '[search(query="a"), search(query="b")]',
}
"""Two calls as `render_calls` writes them."""


@pytest.mark.parametrize("name", FAMILIES)
def test_parallel_calls_are_written_as_the_family_does_and_read_in_order(name: str) -> None:
    made = get_format(name)
    text = made.render_calls([("search", {"query": "a"}), ("search", {"query": "b"})])
    assert text == WRITTEN[name]
    assert read(name, text) == [("search", {"query": "a"}, None), ("search", {"query": "b"}, None)]
    apart = "\n".join(made.render_call("search", {"query": query}) for query in "ab")
    assert read(name, apart) == [("search", {"query": "a"}, None), ("search", {"query": "b"}, None)]


REASONING = {  # reasoning that holds a call, then text, then a call
    "gpt_oss": '<|channel|>analysis<|message|>I call search with {"query": "no"}.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>'
    "<|start|>assistant" + WRITTEN["gpt_oss"],
    "mistral": '[THINK]maybe [TOOL_CALLS]search[ARGS]{"query": "no"}[/THINK]I look.' + WRITTEN["mistral"],
    "mistral_list": '[THINK]maybe [TOOL_CALLS]search[ARGS]{"query": "no"}[/THINK]I look.' + WRITTEN["mistral_list"],
    "gemma": "<|channel>thought\nmaybe " + ONE["gemma"][0] + "<channel|>I look." + WRITTEN["gemma"],
    **{
        name: f"<think>maybe {ONE[name][0]}</think>I look.{WRITTEN[name]}"
        for name in ("glm", "deepseek", "deepseek_v3", "deepseek_v32", "kimi", "functiongemma")
    },
    "pythonic": f"<think>maybe {ONE['pythonic'][0]}</think>{WRITTEN['pythonic']}I look.",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_reasoning_is_left_out_and_text_beside_calls_is_content(name: str) -> None:
    parsed = get_format(name).parse(REASONING[name], tools=[SEARCH])
    assert [one.arguments for one in parsed.calls if one.error is None] == [{"query": "a"}, {"query": "b"}]
    assert len(parsed.calls) == 2
    assert parsed.content == "I look."
    assert parsed.reasoning.startswith(("maybe", "I call search"))


OPENED = {
    "gpt_oss": ("<|start|>assistant<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    "mistral": ("[/INST][THINK]", "[/THINK]"),
    "mistral_list": ("[/INST][THINK]", "[/THINK]"),
    "gemma": ("<|turn>model\n<|channel>thought\n", "<channel|>"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_reasoning_that_the_prompt_opened_hides_calls_until_it_closes(name: str) -> None:
    prefix, closing = OPENED.get(name, ("<think>\n", "</think>"))
    made = get_format(name)
    hidden = "hm, then" if name == "gpt_oss" else ONE[name][0]
    assert made.parse(hidden, prefix=prefix, tools=[SEARCH]).calls == ()
    assert made.parse(hidden, prefix=prefix, tools=[SEARCH]).reasoning
    assert read(name, f"{hidden}{closing}{ONE[name][0]}", prefix=prefix) == [ASKED]
    assert read(name, ONE[name][0], prefix=f"{prefix}hm{closing}") == [ASKED]
    written = made.close_reasoning(prefix)
    assert read(name, f"{written}{ONE[name][0]}", prefix=prefix) == [ASKED] if name != "gpt_oss" else written == ""


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "text", ["", "The answer is 4.", "<answer>4</answer>", "a < b [1] {2} (3)", "[1] is a source.", "Set to=5, please."]
)
def test_text_without_calls_is_content_and_has_no_marker(name: str, text: str) -> None:
    parsed = get_format(name).parse(text)
    assert (parsed.content, parsed.calls, parsed.has_marker, parsed.reasoning) == (text, (), False, "")


# ------------------------------------------------------------------------------------------------ broken calls

JSON_FAULTS = {
    "truncated": ('{"query": "par', "it is not valid JSON at character"),
    "missing brace": ('{"query": "x"', "it is not valid JSON at character"),
    "single quotes": ("{'query': 'x'}", "it is not valid JSON at character 1"),
    "twice": ('{"query": 1, "query": 2}', 'the key "query" stands in it twice'),
    "NaN": ('{"query": NaN}', "NaN is not a JSON value"),
    "Infinity": ('{"query": -Infinity}', "-Infinity is not a JSON value"),
    "beyond float": ('{"query": 1e999}', "is too large"),
    "5,000 digits": ('{"query": ' + "9" * 5000 + "}", "too many digits"),
    "null": ("null", '"arguments" must be a JSON object, not null|JSON object'),
    "list": ("[1]", '"arguments" must be a JSON object, not a list|JSON object|the key "name"|a call is one JSON object'),
    "text": ('"paris"', "not valid JSON|JSON object|is missing|is a text"),
    "half a surrogate": ('{"query": "\\ud800"}', "half a Unicode surrogate"),
    "line break": ('{"query": "x\ny"}', "it is not valid JSON at character"),
    "brackets": ("[" * 100_000, "nested too deeply|not valid JSON"),
    "two objects": ('{"query": 1} {"query": 2}', "not valid JSON|more than one JSON object"),
    "empty": ("", "it is empty|is missing|not valid JSON"),
    "XML": ("<parameter=query>x</parameter>", "not valid JSON|JSON object"),
}
JSON_FORMS: dict[str, Callable[[str], str]] = {
    "gpt_oss": "<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|message|>{}<|end|>".format,
    "mistral": "[TOOL_CALLS]search[ARGS]{}".format,
    "deepseek": "<｜tool▁call▁begin｜>search<｜tool▁sep｜>{}<｜tool▁call▁end｜>".format,
    "deepseek_v3": "<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{}\n```<｜tool▁call▁end｜>".format,
    "kimi": (B + "functions.search:0" + A + "{}" + Z).format,
}
OTHER_FAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "glm": {
        "no name": ("<tool_call><arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", "the name of a tool is missing"),
        "json": ('<tool_call>{"name": "search", "arguments": {}}</tool_call>', "there is text that is no <arg_key>"),
        "open value": ("<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</tool_call>", "no closing"),
        "open key": ("<tool_call>search\n<arg_key>query<arg_value>x</arg_value></tool_call>", "no closing"),
        "twice": (
            "<tool_call>search<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>a</arg_key><arg_value>2</arg_value></tool_call>",
            "'a' stands in it twice",
        ),
        "text between": ("<tool_call>search\nhello</tool_call>", "there is text that is no <arg_key>"),
        "empty": ("<tool_call></tool_call>", "the name of a tool is missing"),
    },
    "deepseek_v32": {
        "no name": ("<｜DSML｜invoke>\n</｜DSML｜invoke>", 'name="..." is missing'),
        "kind": ('<｜DSML｜invoke name="search"><｜DSML｜parameter name="a">1</｜DSML｜parameter></｜DSML｜invoke>', "no closing|no <"),
        "JSON": (
            '<｜DSML｜invoke name="search"><｜DSML｜parameter name="a" string="false">x</｜DSML｜parameter></｜DSML｜invoke>',
            "it is not valid JSON",
        ),
        "NaN": (
            '<｜DSML｜invoke name="search"><｜DSML｜parameter name="a" string="false">[NaN]</｜DSML｜parameter></｜DSML｜invoke>',
            "NaN is not a JSON value",
        ),
        "open": ('<｜DSML｜invoke name="search"><｜DSML｜parameter name="a" string="true">x</｜DSML｜invoke>', "no closing"),
        "twice": (
            '<｜DSML｜invoke name="search"><｜DSML｜parameter name="a" string="true">x</｜DSML｜parameter>'
            '<｜DSML｜parameter name="a" string="true">y</｜DSML｜parameter></｜DSML｜invoke>',
            "'a' stands in it twice",
        ),
    },
    "gpt_oss": {
        "no message": ("<|start|>assistant<|channel|>commentary to=functions.search <|constrain|>json<|end|>", "has no <|message|>"),
        "no message, but the object": (
            '<|start|>assistant<|channel|>commentary to=functions.search json{"query": "x"}<|end|>',
            "has no <|message|>",
        ),
    },
    "mistral": {
        "no object": ("[TOOL_CALLS]search", "[ARGS] and a JSON object are missing"),
        "no name": ('[TOOL_CALLS][ARGS]{"query": 1}', "JSON|name"),
        "sentence": ("[TOOL_CALLS]I call search now", "[ARGS] and a JSON object are missing"),
        "empty list": ("[TOOL_CALLS] []", "the list holds no call"),
    },
    "mistral_list": {
        "no name": ('[TOOL_CALLS] [{"arguments": {}}]', 'the key "name" is missing'),
        "number": ('[TOOL_CALLS] [{"name": 3, "arguments": {}}]', '"name" must be the name of a tool, not a number'),
        "null": ('[TOOL_CALLS] [{"name": "search", "arguments": null}]', "must be a JSON object, not null"),
        "text": ('[TOOL_CALLS] ["search"]', "a call is one JSON object, not a text"),
        "cut off": ('[TOOL_CALLS] [{"name": "sea', "it is not valid JSON"),
        "NaN": ('[TOOL_CALLS] [{"name": "search", "arguments": {"a": NaN}}]', "NaN is not a JSON value"),
        "single quotes": ("[TOOL_CALLS] [{'name': 'search'}]", "it is not valid JSON"),
    },
    "deepseek": {
        "no separator": ("<｜tool▁call▁begin｜>search{}<｜tool▁call▁end｜>", "is missing behind"),
        "empty": ("<｜tool▁call▁begin｜><｜tool▁call▁end｜>", "it is empty"),
    },
    "deepseek_v3": {
        "no fence's end": (
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n{}<｜tool▁call▁end｜>",
            "the closing ``` is missing",
        ),
        "no fence": ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n{}<｜tool▁call▁end｜>", "it is not valid JSON"),
    },
    "kimi": {
        "no arguments": (f"{B}functions.search:0{Z}", "is missing behind"),
        "no name": (f"{B}{A}{{}}{Z}", "is missing behind"),
        "empty": (f"{B}{Z}", "it is empty"),
    },
    "gemma": {
        "no call": ('<|tool_call>search{query:<|"|>x<|"|>}<tool_call|>', "call:name and braces are missing"),
        "no braces": ("<|tool_call>call:search<tool_call|>", "call:name and braces are missing"),
        "open text": ('<|tool_call>call:search{query:<|"|>x}<tool_call|>', 'a text has no closing <|"|>'),
        "bare text": ("<|tool_call>call:search{query:paris}<tool_call|>", "there is no value"),
        "open braces": ('<|tool_call>call:search{query:<|"|>x<|"|><tool_call|>', "it ends too early"),
        "twice": ("<|tool_call>call:search{a:1,a:2}<tool_call|>", "'a' stands in it twice"),
        "NaN": ("<|tool_call>call:search{a:NaN}<tool_call|>", "there is no value"),
        "Infinity": ("<|tool_call>call:search{a:-Infinity}<tool_call|>", "there is no value"),
        "beyond float": ("<|tool_call>call:search{a:1e999}<tool_call|>", "the number is too large"),
        "5,000 digits": ("<|tool_call>call:search{a:" + "9" * 5000 + "}<tool_call|>", "too many digits"),
        "no comma": ("<|tool_call>call:search{a:1 b:2}<tool_call|>", ", or } is missing"),
        "no key": ("<|tool_call>call:search{:1}<tool_call|>", "a key is missing"),
        "behind": ("<|tool_call>call:search{a:1}{b:2}<tool_call|>", "there is text behind the arguments"),
        "brackets": ("<|tool_call>call:search{a:" + "[" * 100_000 + "<tool_call|>", "nested too deeply"),
        "JSON": ('<|tool_call>{"name": "search"}<tool_call|>', "call:name and braces are missing"),
        "empty": ("<|tool_call><tool_call|>", "it is empty"),
    },
    "functiongemma": {
        "open text": ("<start_function_call>call:search{query:<escape>x}<end_function_call>", "a text has no closing <escape>"),
        "no braces": ("<start_function_call>call:search<end_function_call>", "call:name and braces are missing"),
    },
}
NO_END = {
    "glm": "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n",
    "deepseek": "<｜tool▁call▁begin｜>search<｜tool▁sep｜>{}",
    "deepseek_v3": "<｜tool▁call▁begin｜>search<｜tool▁sep｜>{}",
    "deepseek_v32": '<｜DSML｜invoke name="search">',
    "kimi": f"{S}{B}functions.search:0{A}{{}}",
    "gemma": "<|tool_call>call:search{a:1}",
    "functiongemma": "<start_function_call>call:search{a:1}",
    "pythonic": "<|tool_call_start|>[search(query='x')]",
}
BROKEN = [
    *((name, f"JSON, {case}") for name in JSON_FORMS for case in JSON_FAULTS if not (name.startswith("mistral") and case in ("list",))),
    *((name, case) for name in OTHER_FAULTS for case in OTHER_FAULTS[name]),
]


def broken(name: str, case: str) -> tuple[str, str]:
    if case.startswith("JSON, "):
        body, message = JSON_FAULTS[case.removeprefix("JSON, ")]
        return JSON_FORMS[name](body), message
    return OTHER_FAULTS[name][case]


@pytest.mark.parametrize(("name", "case"), BROKEN)
def test_a_broken_call_is_an_error_of_one_line_and_costs_only_itself(name: str, case: str) -> None:
    text, message = broken(name, case)
    made = get_format(name)
    alone = made.parse(text, tools=[SEARCH])
    assert alone.has_marker
    assert [one.error is None for one in alone.calls] == [False]
    call = alone.calls[0]
    assert (call.error is not None and any(one in call.error for one in message.split("|") if one)) or message in str(call.error)
    assert "\n" not in call.error and call.arguments == {}
    good = made.render_call("search", {"query": "one"}), made.render_call("search", {"query": "two"})
    join = "<|end|><|start|>assistant" if name == "gpt_oss" else "\n"
    for together in (join.join([*good[:1], text, good[1]]), text + join + good[0] + join + good[1], good[0] + join + good[1] + join + text):
        kept = [one.arguments for one in made.parse(together, tools=[SEARCH]).calls if one.error is None]
        assert kept == [{"query": "one"}, {"query": "two"}], together[:400]
        assert sum(one.error is not None for one in made.parse(together, tools=[SEARCH]).calls) == 1


PYTHON_FAULTS = {
    "unclosed text": ('search(query="par)', "no closing quote"),
    "a positional argument": ('search("paris")', "each argument is written name=value"),
    "twice": ("search(a=1, a=2)", "'a' stands in it twice"),
    "no value": ("search(query=)", "there is no value"),
    "a name": ("search(query=paris)", "there is no value"),
    "a call as value": ("search(query=len(x))", "there is no value"),
    "an attribute": ("search(query=().__class__)", "there is no value"),
    "arithmetic": ("search(a=1+1)", ", or ) is missing"),
    "inf": ("search(a=1e999)", "the number is too large"),
    "5,000 digits": ("search(a=" + "9" * 5000 + ")", "too many digits"),
    "100,000 brackets": ("search(a=" + "[" * 100_000 + ")", "nested too deeply"),
    "a set": ("search(a={1, 2})", "a key in quotes is missing"),
    "a key that is no text": ("search(a={1: 2})", "a key in quotes is missing"),
    "half a surrogate": ('search(a="\\ud800")', "half a Unicode surrogate"),
    "beyond Unicode": ('search(a="\\UFFFFFFFF")', "is no character"),
    "** of a list": ("search(**[1])", "behind ** stands no dict"),
    "a comparison": ("search(a==1)", "each argument is written name=value"),
    "a complex number": ("search(a=1j)", "this is no number"),
}


@pytest.mark.parametrize("case", PYTHON_FAULTS)
def test_a_broken_call_in_a_python_list_costs_only_itself(case: str) -> None:
    text, message = PYTHON_FAULTS[case]
    made = get_format("pythonic")
    alone = made.parse(f"[{text}]").calls
    assert len(alone) == 1 and alone[0].error is not None and message in alone[0].error and "\n" not in alone[0].error
    for together in (f"[a(x=1), {text}, b(y='z')]", f"[{text}, a(x=1), b(y='z')]", f"[a(x=1), b(y='z'), {text}]"):
        calls = made.parse(together).calls
        assert [(one.name, one.arguments) for one in calls if one.error is None] == [("a", {"x": 1}), ("b", {"y": "z"})], together[:200]
        assert sum(one.error is not None for one in calls) == 1


@pytest.mark.parametrize("name", NO_END)
def test_a_call_that_nothing_closes_is_broken(name: str) -> None:
    calls = get_format(name).parse(f"I look. {NO_END[name]}", tools=[SEARCH]).calls
    assert len(calls) == 1 and calls[0].error is not None and "no closing" in calls[0].error
    kept = get_format(name).parse(ONE[name][0] + NO_END[name], tools=[SEARCH]).calls
    assert [one.error is None for one in kept] == [True, False]


@pytest.mark.parametrize("name", ["deepseek", "deepseek_v32", "kimi"])
def test_a_section_without_a_call_is_a_part_of_a_call(name: str) -> None:
    made = get_format(name)
    for text in (WRITTEN[name].split("\n")[0].split(made.opening)[0], "hm " + made.sections[1]):  # type: ignore[attr-defined]
        parsed = made.parse(text)
        assert parsed.has_marker and parsed.calls == (), text


def test_a_broken_element_of_a_mistral_list_costs_only_itself() -> None:
    good = '{"name": "a", "arguments": {"q": [{"x": 1}, {"y": 2}]}}'
    for bad in ('{"name": "b", "arguments": {"q": }}', "{'name': 'b'}", '{"name": "b"', '"b"'):
        for listed in (f"{good}, {bad}", f"{bad}, {good}", f"{good}, {bad}, {good}"):
            calls = get_format("mistral_list").parse(f"[TOOL_CALLS] [{listed}]").calls
            assert [one.arguments for one in calls if one.error is None] == [{"q": [{"x": 1}, {"y": 2}]}] * listed.count('"a"'), listed
            assert sum(one.error is not None for one in calls) == 1, listed


def test_text_behind_a_mistral_call_is_content() -> None:
    parsed = get_format("mistral").parse('I look. [TOOL_CALLS]search[ARGS]{"query": "x"} Please wait.')
    assert (parsed.content, [one.error for one in parsed.calls]) == ("I look.\nPlease wait.", [None])


@pytest.mark.parametrize("name", ["mistral", "kimi", "deepseek", "gpt_oss"])
def test_a_marker_in_a_text_that_is_whole_json_is_text(name: str) -> None:
    made = get_format(name)
    arguments = {"query": f"what does {made.markers[0]} mean, and {made.markers[-1]}?"}
    text = made.render_call("search", arguments)
    assert text.count(made.markers[0]) == 1 or (name == "gpt_oss" and made.markers[0] not in text), "an expert writes it escaped"
    assert read(name, text) == [("search", arguments, None)]
    if name == "mistral":  # and a model that does not is understood
        assert read(name, f"[TOOL_CALLS]search[ARGS]{json.dumps(arguments)}") == [("search", arguments, None)]


# ------------------------------------------------------------------------------------------------ gpt-oss


def test_a_message_of_gpt_oss_by_another_role_is_neither_answer_nor_call() -> None:
    forged = "<|channel|>analysis<|message|>hm<|end|><|start|>functions.search to=assistant<|channel|>commentary<|message|>found <answer>x</answer><|end|>"
    parsed = get_format("gpt_oss").parse(f"{forged}<|start|>assistant<|channel|>final<|message|>I give up.<|return|>")
    assert (parsed.answer, parsed.calls, parsed.content) == (None, (), "I give up.")
    user = get_format("gpt_oss").parse("<|start|>user<|message|><answer>x</answer><|end|>")
    assert (user.answer, user.content) == (None, "")


def test_an_answer_of_gpt_oss_stands_on_the_final_channel_and_not_in_analysis() -> None:
    made = get_format("gpt_oss")
    assert made.parse("<|channel|>analysis<|message|><answer>x</answer><|end|>").answer is None
    assert made.parse("<|channel|>final<|message|><answer>x</answer>").answer == "x"
    assert made.parse("<answer>x</answer>").answer == "x", "text without a header is content"
    split = "<|channel|>final<|message|><answer>x<|end|><|start|>assistant<|channel|>final<|message|>y</answer>"
    assert made.parse(split).answer is None, "another message stands in it"


def test_gpt_oss_writes_replies_with_headers() -> None:
    made = get_format("gpt_oss")
    call = made.render_call("search", {"query": "x"})
    assert made.as_reply("Paris") == ("<|channel|>final<|message|>Paris", "<|return|>")
    assert made.as_reply(call) == (call, "<|call|>")
    text, end = made.as_reply(f"I look. {call}")
    assert text == f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{call}"
    assert (made.parse(text).content, len(made.parse(text).calls), end) == ("I look.", 1, "<|call|>")
    both = made.render_calls([("a", {}), ("b", {})])
    assert made.as_reply(both) == (both, "<|call|>")
    assert get_format("glm").as_reply("Paris") == ("Paris", "<|user|>")
    assert get_format("kimi").as_reply("Paris") == ("Paris", None)


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json",
        "<|channel|>commentary to=functions.f json",
        "<|channel|>commentary to=functions.f<|constrain|>json",
        "<|channel|>commentary to=functions.f",
        "<|channel|>analysis to=functions.f code",
        "<|channel|>final to=functions.f <|constrain|>json",
        " to=functions.f<|channel|>commentary json",
        " to=functions.f<|channel|>analysis",
        "assistant to=functions.f<|channel|>commentary json",
        "<|channel|>commentaryto=functions.f json",
        "<|channel|>commentary to=f",
    ],
)
def test_any_header_of_gpt_oss_with_a_recipient_is_a_call(header: str) -> None:
    for prefix in ("", "<|start|>user<|message|>hi<|end|><|start|>assistant"):
        assert read("gpt_oss", f'{header}<|message|>{{"x": 1}}', prefix=prefix) == [("f", {"x": 1}, None)]


# ------------------------------------------------------------------------------------------------ what is written is read

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=10),
        st.sampled_from(["\"'\\", "'''", '"""', "a\nb", "\\u0041", "[TOOL_CALLS]", "<|call|>", "```", "}", "]", ")", "漢🙂", "\x00", "\u2028", "- 1", "null"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=5), inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip
keys = st.one_of(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6))
all_arguments = st.dictionaries(keys, json_values, max_size=4)
names = st.one_of(
    st.sampled_from(["search", "a-b", "x.y", "functions", "f1"]), st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,12}", fullmatch=True)
)


def schema_of(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    def kind(value: Any) -> str:
        return {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}[
            type(value)
        ]

    return {"function": {"name": name, "parameters": {"properties": {key: {"type": kind(value)} for key, value in arguments.items()}}}}


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(calls=st.lists(st.tuples(names, all_arguments), min_size=1, max_size=3, unique_by=lambda one: one[0]))
def test_what_a_format_writes_it_reads(name: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    made = get_format(name)
    tools = [schema_of(*one) for one in calls]
    try:
        text = made.render_calls(calls)
    except ValueError:
        assert name in ("glm", "deepseek_v32", "gemma", "functiongemma"), "the others can write anything"
        return
    for whole in (text, made.as_reply(text)[0]):
        parsed = made.parse(whole, tools=tools)
        assert [(one.name, one.arguments, one.error) for one in parsed.calls] == [(*one, None) for one in calls]
        assert [type(value) for one in parsed.calls for value in one.arguments.values()] == [
            type(one.arguments[key]) for one in parsed.calls for key in one.arguments
        ]
        assert (parsed.content, parsed.reasoning) == ("", "")


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_format_cannot_write_is_refused(name: str) -> None:
    made = get_format(name)
    for bad in ("", "two words", "a<b", "f(", "名", "a:b", "x" * 300):
        with pytest.raises(ValueError, match="cannot write a call"):
            made.render_call(bad, {})
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"cannot write the number|not JSON compliant"):
            made.render_call("f", {"x": [number]})
    tag = {"glm": "</arg_value>", "deepseek_v32": "｜DSML｜</", "gemma": '<|"|>', "functiongemma": "<escape>"}.get(name)
    if tag is not None:
        tag = "</｜DSML｜parameter>" if name == "deepseek_v32" else tag
        with pytest.raises(ValueError, match="cannot write"):
            made.render_call("f", {"x": f"a{tag}b"})


# ------------------------------------------------------------------------------------------------ equal to transformers

words = st.text(alphabet="ab cé漢\n.\"'", max_size=12)
simple_values = st.one_of(
    st.integers(-99, 99), st.booleans(), st.lists(st.integers(0, 9), max_size=3), st.text(alphabet="ab cé\"'", max_size=8)
)
simple_calls = st.lists(
    st.tuples(
        st.sampled_from(["search", "add", "get_page"]),
        st.fixed_dictionaries({}, optional={"i": st.integers(-9, 9), "s": st.text(alphabet="ab cé\"'", max_size=8), "l": st.lists(st.integers(0, 9), max_size=2)}),
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip
TYPED = [
    {"type": "function", "function": {"name": one, "parameters": {"type": "object", "properties": {"i": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array"}}}}}
    for one in ("search", "add", "get_page")
]  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(thought=words, said=words, calls=simple_calls)
@example(thought="", said="", calls=[("search", {})])
def test_well_formed_text_is_read_as_transformers_reads_it_with_our_template(
    name: str, thought: str, said: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    made = get_format(name)
    assert made.response_template == RESPONSE_TEMPLATES[name]
    written = made.render_calls(calls)
    if name == "gpt_oss":
        text = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>commentary<|message|>{said}<|end|><|start|>assistant{written}"
    else:
        written = f"<|tool_call_start|>{written}<|tool_call_end|>" if name == "pythonic" else written
        opening, closing = made.reasoning[0]
        text = f"{opening}{thought}{closing}{said}{written}"
    parsed = made.parse(text, tools=TYPED)
    message = parse_response(text, dict(RESPONSE_TEMPLATES[name]), prefix="", tools=TYPED)
    found = [one for entry in message.get("tool_calls", []) for one in (entry if isinstance(entry, list) else [entry])]
    assert [{"name": one.name, "arguments": one.arguments} for one in parsed.calls] == [one["function"] for one in found]
    assert [one.error for one in parsed.calls] == [None] * len(calls)
    assert parsed.content == said.strip()
    assert parsed.reasoning == thought.strip()
    assert message.get("content", "").strip() == said.strip()
    assert message.get("reasoning_content", message.get("thinking", "")).strip() == thought.strip()


def test_a_python_list_is_read_as_transformers_reads_it() -> None:
    template = dict(RESPONSE_TEMPLATES["pythonic"])
    for body in [*ONE["pythonic"][:2], WRITTEN["pythonic"], "[f()]", "[a.b(x=-1.5e3, y=[True, None, {'k': 'v'}]), c-d(z='\\u00e9\\n')]"]:
        text = body if body.startswith("<|") else f"<|tool_call_start|>{body}<|tool_call_end|>"
        found = parse_response(text, template, prefix="")["tool_calls"][0]
        calls = get_format("pythonic").parse(text).calls
        assert [{"name": one.name, "arguments": one.arguments} for one in calls] == [one["function"] for one in found]


# ------------------------------------------------------------------------------------------------ choosing


def test_the_table_of_the_docs_names_every_format_and_its_calls_are_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tool-formats.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page.replace("\\|", "\x1f"), flags=re.MULTILINE))
    rows.pop("tool_format")  # the head of the table
    assert set(rows) == set(FORMATS)
    schema = {"function": {"name": "f", "parameters": {"properties": {"x": {"type": "integer"}}}}}
    for name, shown in rows.items():
        if name in ("deepseek_v3", "search_tags"):  # the one takes several lines, the other has no arguments by name
            continue
        text = shown.split("`")[1].replace("\x1f", "|")
        calls = get_format(name).parse(text, tools=[schema]).calls
        assert [(one.name, one.arguments["x"], one.error) for one in calls] == [("f", 1, None)], name


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_tells_how_to_call_and_reads_its_own_example(name: str) -> None:
    made = get_format(name)
    assert made.name == name and repr(made).endswith(f"(name={name!r})")
    text = made.instructions([SEARCH])
    assert '"search"' in text
    example = made.instructions().partition("\n")[2]
    calls = made.parse(example).calls
    assert len(calls) == 1 and calls[0].error is None and calls[0].name == "name", example


@pytest.mark.parametrize(
    ("sign", "name"),
    [
        ("<tool_call>{name}\n<arg_key>{k}</arg_key>", "glm"),
        ("<|start|>{{ role }}<|channel|>final<|message|>", "gpt_oss"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS]{{ name }}[ARGS]", "mistral"),
        ("[AVAILABLE_TOOLS] [TOOL_CALLS] [", "mistral_list"),
        ("<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>", "deepseek"),
        ("<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ name }}\n```json", "deepseek_v3"),
        ("<{{ '｜DSML｜' }}function_calls>", "deepseek_v32"),
        ("<|tool_calls_section_begin|><|tool_call_begin|>", "kimi"),
        ("<|im_system|>tool_declare<|im_middle|>", "kimi"),
        ("'<|tool_call>call:' + name", "gemma"),
        ("<start_function_call>call:", "functiongemma"),
        ("<|tool_call_start|>[", "pythonic"),
        ("<tool_call>\n<function=", "qwen3_coder"),
        ("<tool_call>", "hermes"),
        ("<|tool_call|>[", None),
        ("<minimax:tool_call>", None),
        ("<|im_start|>", ""),
    ],
)
def test_a_chat_template_names_its_family(sign: str, name: str | None) -> None:
    assert detect_format(sign) == name
