"""`qwen3_coder`, `llama3_json`, response templates and `auto`."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_parsing.response_parser import parse_response

from agent_gym.chat import load_tokenizer
from agent_gym.tools import get_format
from agent_gym.tools.formats import HermesFormat, Qwen3CoderFormat, TemplateFormat

SCHEMA = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "d",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "k": {"type": "integer"}, "tags": {"type": "array"}, "exact": {"type": "boolean"}},
        },
    },
}

# ------------------------------------------------------------------------------------------------ qwen3_coder

values = st.one_of(
    st.integers(-99, 99), st.booleans(), st.lists(st.integers(0, 9), max_size=3), st.text(alphabet='ab \n<>"7é', max_size=12)
)
QWEN_TYPES = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"i": {"type": "integer"}, "b": {"type": "boolean"}, "l": {"type": "array"}, "s": {"type": "string"}},
        },
    },
}


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "i": st.integers(),
            "b": st.booleans(),
            "l": st.lists(st.integers(0, 9), max_size=3),
            "s": st.text(alphabet='ab \n<>"7é{', max_size=12),
        },
    )
)
def test_what_qwen3_coder_writes_it_reads_with_the_types_of_the_schema(arguments: dict[str, Any]) -> None:
    qwen = get_format("qwen3_coder")
    parsed = qwen.parse("Look. " + qwen.render_call("f", arguments) + " Done.", tools=[QWEN_TYPES])
    assert [(one.name, one.arguments, one.error) for one in parsed.calls] == [("f", arguments, None)]
    assert parsed.content == "Look.\nDone."


def test_qwen3_coder_leaves_texts_as_texts_where_the_schema_says_so() -> None:
    text = (
        "<tool_call>\n<function=search>\n<parameter=query>\n75001\n</parameter>\n<parameter=k>\n3\n</parameter>\n</function>\n</tool_call>"
    )
    assert get_format("qwen3_coder").parse(text, tools=[SCHEMA]).calls[0].arguments == {"query": "75001", "k": 3}
    assert get_format("qwen3_coder").parse(text).calls[0].arguments == {"query": "75001", "k": "3"}


BROKEN_CODER = {
    "no function": ("<tool_call>search</tool_call>", "<function=name> is missing"),
    "json instead": ('<tool_call>{"name": "search", "arguments": {}}</tool_call>', "<function=name> is missing"),
    "open parameter": ("<tool_call><function=search><parameter=query>x</function></tool_call>", "no closing </parameter>"),
    "open parameter before another": (
        "<tool_call><function=search><parameter=a>x<parameter=b>y</parameter></function></tool_call>",
        "no closing </parameter>",
    ),
    "open function": ("<tool_call><function=search><parameter=query>x</parameter></tool_call>", "</function> is missing"),
    "twice": (
        "<tool_call><function=search><parameter=a>1</parameter><parameter=a>2</parameter></function></tool_call>",
        "'a' stands in it twice",
    ),
    "text between": ("<tool_call><function=search>hello</function></tool_call>", "text that is no <parameter"),
    "no end": ("<tool_call><function=search><parameter=query>x</parameter></function>", "no closing </tool_call>"),
}


@pytest.mark.parametrize("case", BROKEN_CODER)
def test_a_broken_call_of_qwen3_coder_costs_only_itself(case: str) -> None:
    text, message = BROKEN_CODER[case]
    qwen = get_format("qwen3_coder")
    good = qwen.render_call("search", {"query": "x"})
    parsed = qwen.parse(good + text + (good if case != "no end" else ""))
    assert [one.error is None for one in parsed.calls] == [True, False, True][: len(parsed.calls)]
    broken = parsed.calls[1]
    assert broken.error is not None
    assert message in broken.error


def test_what_transformers_passes_over_in_silence_is_an_error_here() -> None:
    oracle = {
        "start_anchor_pattern": r"\A",
        "fields": {
            "tool_calls": {
                "open_pattern": r"<tool_call>\s*<function=(?P<name>[^\n>]+)>",
                "close_pattern": r"</tool_call>\s*",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {
                    "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>",
                    "value_parser": {"name": "text"},
                },
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
            },
            "content": {"content": "text"},
        },
    }
    text = BROKEN_CODER["open parameter"][0]
    assert parse_response(text, oracle, prefix="")["tool_calls"][0]["function"] == {"name": "search", "arguments": {}}
    assert get_format("qwen3_coder").parse(text).calls[0].error is not None
    good = get_format("qwen3_coder").render_call("search", {"query": "who was it", "k": 3})
    read = parse_response(good, oracle, prefix="", tools=[SCHEMA])["tool_calls"][0]["function"]
    ours = get_format("qwen3_coder").parse(good, tools=[SCHEMA]).calls[0]
    assert (ours.name, ours.arguments) == (read["name"], read["arguments"])


def test_qwen3_coder_keeps_the_indentation_of_a_value() -> None:
    qwen = get_format("qwen3_coder")
    code = "    def f():\n        return 1\n"
    assert qwen.parse(qwen.render_call("run", {"code": code})).calls[0].arguments == {"code": code}
    with pytest.raises(ValueError, match="holds a tag of the format"):
        qwen.render_call("run", {"code": "</parameter>"})


# ------------------------------------------------------------------------------------------------ llama3_json

LLAMA_ORACLE = {
    "start_anchor_pattern": r"\A",
    "fields": {
        "tool_calls": {
            "open_pattern": r'\{"name":\s*"(?P<name>[^"]+)",\s*"parameters":\s*',
            "close_pattern": r"\}\Z",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"content": "text"},
    },
}


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(alphabet="abc", min_size=1), st.one_of(st.integers(), st.text(alphabet='ab{};" ', max_size=8)), max_size=3))
def test_llama3_json_equals_a_response_template_on_one_call(arguments: dict[str, Any]) -> None:
    llama = get_format("llama3_json")
    text = llama.render_call("search", arguments)
    calls = llama.parse(text).calls
    assert [(one.name, one.arguments, one.error) for one in calls] == [("search", arguments, None)]
    if "}" not in json.dumps(arguments)[1:-1]:
        assert parse_response(text, LLAMA_ORACLE, prefix="")["tool_calls"][0]["function"] == {"name": "search", "arguments": arguments}


def test_llama3_json_reads_what_the_template_cannot() -> None:
    llama = get_format("llama3_json")
    one, two = llama.render_call("a", {"q": "x; {"}), llama.render_call("b", {})
    for text in (f"{one}; {two}", f"<|python_tag|>{one}; {two}", f"{one}\n{two}"):
        parsed = llama.parse(text)
        assert [(each.name, each.error) for each in parsed.calls] == [("a", None), ("b", None)]
        assert parsed.has_marker
    assert [each.name for each in llama.parse(f"{two}; {two}").calls] == ["b", "b"]
    assert [each.error is None for each in llama.parse(f'{two}; {{"name": "c", "parameters": {{}}').calls] == [True, False]
    assert [each.error is None for each in llama.parse(f'{{"name": "c"; {two}').calls] == [False, True]
    assert llama.parse(f"{one} I wait.").content == "I wait."
    assert llama.parse("<|python_tag|>").calls[0].error == "it is empty"
    assert llama.parse('{"name": "a", "arguments": {"q": 1}}').calls[0].arguments == {"q": 1}


def test_llama3_json_takes_json_that_names_no_tool_for_a_broken_call_and_not_for_an_answer() -> None:
    parsed = get_format("llama3_json").parse('{"answer": 4}')
    assert parsed.has_marker
    assert [one.error for one in parsed.calls] == ['the key "name" is missing']
    assert not get_format("llama3_json").parse("The set {1, 2}").has_marker


# ------------------------------------------------------------------------------------------------ response templates

HERMES_LIKE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}
CALL_LIST = {
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "open": "<|calls|>",
            "close": "<|/calls|>",
            "content": "python-call-list",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{arguments}"}},
            "transform_each": True,
            "repeats": True,
        },
        "content": {"content": "text"},
    },
}


def test_a_response_template_reads_each_call_alone() -> None:
    made = get_format(HERMES_LIKE)
    good = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'
    parsed = made.parse(
        f"<think>hm {good}</think>Look. {good}<tool_call>{{'bad'}}</tool_call>\n{good} Done.<|im_end|>", prefix="<|im_start|>assistant\n"
    )
    assert [one.error is None for one in parsed.calls] == [True, False, True]
    assert parsed.calls[0].arguments == {"query": "x"}
    assert (parsed.content, parsed.reasoning) == ("Look.\nDone.", f"hm {good}")
    assert made.parse(f"hm {good}", prefix="<|im_start|>assistant\n<think>\n").calls == ()
    assert {"<tool_call>", "</tool_call>", "<think>", "</think>"} <= set(made.markers)
    assert made.parse("ok </tool_call>").has_marker
    assert not made.parse("ok").has_marker


def test_a_response_template_is_as_strict_as_the_named_formats() -> None:
    made = get_format(HERMES_LIKE)
    for payload in (
        '{"name": "a", "arguments": {"q": NaN}}',
        '{"name": "a", "name": "b", "arguments": {}}',
        '{"name": "a", "arguments": null}',
        '[{"name": "a"}]',
        "{}",
    ):
        assert made.parse(f"<tool_call>{payload}</tool_call>").calls[0].error is not None, payload


def test_a_response_template_may_hold_several_calls_in_one_region() -> None:
    parsed = get_format(CALL_LIST).parse('Now. <|calls|>[a(x=1), b(y="z")]<|/calls|>')
    assert [(one.name, one.arguments) for one in parsed.calls] == [("a", {"x": 1}), ("b", {"y": "z"})]
    assert get_format(CALL_LIST).parse("<|calls|>[a(x=1), b(<|/calls|>").calls[0].error == "it could not be read"


@pytest.mark.parametrize("text", ["<tool_call>" * 8192, "<tool_call></tool_call>" * 2048, "<think></think>" * 4096, "x<|im_end|>" * 4096])
def test_a_response_template_reads_hostile_text(text: str) -> None:
    get_format(HERMES_LIKE).parse(text)


def test_a_response_template_without_calls_is_refused() -> None:
    with pytest.raises(ValueError, match="no 'tool_calls'"):
        get_format({"start_anchor": "a", "fields": {"content": {"content": "text"}}})
    with pytest.raises(ValueError, match="hermes"):
        get_format(HERMES_LIKE).render_call("a", {})


# ------------------------------------------------------------------------------------------------ choosing a format


def test_auto_reads_the_chat_template(qwen3_path: str) -> None:
    assert isinstance(get_format("auto", load_tokenizer(qwen3_path)), HermesFormat)


def test_auto_reads_the_chat_template_of_other_families() -> None:
    def tokenizer(template: str, **more: Any) -> Any:
        return SimpleNamespace(chat_template=template, **more)

    assert isinstance(get_format("auto", load_tokenizer(None)), HermesFormat)
    assert isinstance(get_format("auto", tokenizer("<tool_call>\n<function=example>")), Qwen3CoderFormat)
    assert (
        get_format("auto", tokenizer('Respond in the format {"name": ..., "parameters": ...} "parameters": ipython')).name == "llama3_json"
    )
    assert get_format("auto", tokenizer("{{ messages }}")).name == "hermes"
    assert isinstance(get_format("auto", tokenizer("{{ messages }}", response_template=HERMES_LIKE)), TemplateFormat)
    with pytest.raises(ValueError, match="response template"):
        get_format("auto", tokenizer("<|open|>call<|sep|><|close|>"))


def test_an_unknown_format_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'hermes'"):
        get_format("hermse")
    with pytest.raises(ValueError, match="pass the tokenizer"):
        get_format("auto")


def test_every_format_tells_how_to_call() -> None:
    for name in ("hermes", "qwen3_coder", "llama3_json", "search_tags"):
        made = get_format(name)
        assert made.instructions([SCHEMA])
        assert name == "search_tags" or '"search"' in made.instructions([SCHEMA])
        assert get_format(made) is made
