"""Argument checks: the compiled check against jsonschema, nullable, and errors of schemas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agent_gym.tools.validation import ArgumentChecker, check_parameters, compile_fast, with_nullable

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(-5, 5, allow_nan=False),
    st.sampled_from([1.0, -0.0, 2.5, 10**20]),
    st.sampled_from(["", "a", "b", "1"]),
)
instances = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)), max_leaves=6
)
type_names = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
leaves = st.fixed_dictionaries(
    {},
    optional={
        "type": st.one_of(type_names, st.lists(type_names, min_size=1, max_size=3, unique=True)),
        "enum": st.lists(st.sampled_from(["a", "b", "1"]), min_size=1, max_size=3, unique=True),
        "minimum": st.integers(-3, 3),
        "maximum": st.one_of(st.integers(-3, 3), st.floats(-3, 3, allow_nan=False)),
        "description": st.just("d"),
        "nullable": st.booleans(),
    },
)
schemas = st.recursive(
    leaves,
    lambda inner: st.tuples(
        leaves,
        st.fixed_dictionaries(
            {},
            optional={
                "items": inner,
                "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
                "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
                "additionalProperties": st.one_of(st.booleans(), inner),
                "anyOf": st.lists(inner, min_size=1, max_size=2),
            },
        ),
    ).map(lambda two: {**two[0], **two[1]}),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(schemas, instances)
def test_the_compiled_check_equals_jsonschema(schema: dict[str, Any], instance: Any) -> None:
    written = with_nullable(schema)
    Draft202012Validator.check_schema(written)
    fast = compile_fast(written)
    assert fast is not None
    assert fast(instance) == Draft202012Validator(written).is_valid(instance)


@settings(max_examples=150, deadline=None)
@given(schemas, instances)
def test_nullable_allows_null_and_nothing_else(schema: dict[str, Any], instance: Any) -> None:
    bare = with_nullable({key: item for key, item in schema.items() if key != "nullable"})
    nullable = with_nullable({**schema, "nullable": True})
    expected = instance is None or Draft202012Validator(bare).is_valid(instance)
    assert Draft202012Validator(nullable).is_valid(instance) == expected


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "a"},
        {"enum": [1, 2]},
        {"const": 1},
        {"type": "string", "format": "date"},
        {"$ref": "#"},
        {"prefixItems": []},
        True,
        {"properties": {"a": False}},
    ],
)
def test_a_keyword_that_is_not_known_is_left_to_jsonschema(schema: Any) -> None:
    assert compile_fast(schema) is None


def test_names_of_properties_are_no_keywords() -> None:
    schema = {"type": "object", "properties": {"nullable": {"type": "boolean"}, "pattern": {"type": "string"}}, "required": ["nullable"]}
    assert with_nullable(schema) == schema
    assert compile_fast(schema) is not None


def test_errors_name_the_place_and_are_one_line() -> None:
    checker = check_parameters(
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]}, "t"
    )
    assert checker.error({"a": [1, 2]}) is None
    assert checker.error({"a": [1, "x\ny"]}) == "a.1: 'x\\ny' is not of type 'integer'"
    assert checker.error({}) == "'a' is a required property"
    long = checker.error({"a": "x" * 5000})
    assert long is not None
    assert len(long) < 260


def test_a_slow_schema_gives_the_same_kind_of_errors() -> None:
    checker = check_parameters({"type": "object", "properties": {"a": {"type": "string", "pattern": "^b"}}}, "t")
    assert checker.fast is None
    assert checker.error({"a": "bc"}) is None
    assert "does not match" in str(checker.error({"a": "c"}))


def test_references_never_leave_the_schema() -> None:
    checker = check_parameters({"type": "object", "properties": {"a": {"$ref": "https://example.invalid/schema"}}}, "t")
    assert "refers to" in str(checker.error({"a": 1}))
    inner = check_parameters({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}, "t")
    assert inner.error({"a": 1}) is None
    assert inner.error({"a": "x"}) is not None


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "array"},
        None,
        "object",
        {"type": "object", "properties": 3},
        {"type": "object", "properties": {"a": {"type": "strng"}}},
        {"type": "object", "required": "a"},
    ],
)
def test_a_schema_that_is_none_is_refused_with_the_name_of_the_tool(parameters: Any) -> None:
    with pytest.raises(ValueError, match="'my_tool'"):
        check_parameters(parameters, "my_tool")


def test_deep_arguments_are_an_error_and_no_crash() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    checker = ArgumentChecker({"type": "object", "properties": {"a": {"$ref": "#"}}})
    assert checker.error(deep) == "the arguments are nested too deeply"


@pytest.mark.parametrize("rule", [{"multipleOf": 0.5}, {"type": "number", "multipleOf": 0.1}])
def test_a_number_that_no_float_holds_is_an_error_and_no_crash(rule: dict[str, Any]) -> None:
    checker = check_parameters({"type": "object", "properties": {"x": rule}}, "t")
    assert str(checker.error({"x": 10**400})).startswith("the arguments cannot be checked: ")
    assert checker.error({"x": 2}) is None


def test_a_pattern_that_python_cannot_read_is_an_error_and_no_crash() -> None:
    checker = ArgumentChecker({"type": "object", "properties": {"x": {"type": "string", "pattern": "(?<name"}}})
    assert str(checker.error({"x": "a"})).startswith("the arguments cannot be checked: ")
