"""Checks of arguments against a tool's JSON Schema.

`jsonschema` decides and explains. Since it takes tens of microseconds per call, most schemas are also compiled into a few nested closures
that answer yes or no; only a no goes to `jsonschema`, which then words the error. The compiled check understands a closed list of keywords
and declines every schema that holds another one; a hypothesis test holds the two equal.

`"nullable": true`, which transformers' `get_json_schema` writes for `Optional` and JSON Schema does not know, is rewritten first so that
null is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

__all__ = ["ArgumentChecker", "check_parameters", "compile_fast", "with_nullable"]

_MAX_MESSAGE = 200
Check = Callable[[Any], bool]


def with_nullable(schema: Any) -> Any:
    """Return the schema with `"nullable": true` written in the terms of JSON Schema.

    Args:
        schema: any JSON Schema.

    Returns:
        A schema that allows null wherever the given one says nullable, without that keyword.
    """
    if isinstance(schema, list):
        return [with_nullable(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    inner = {
        key: (_named(item) if key in _NAMED else _opaque(item) if key in _OPAQUE else with_nullable(item)) for key, item in schema.items()
    }
    if schema.get("nullable") is not True:
        inner.pop("nullable", None) if isinstance(schema.get("nullable"), bool) else None
        return inner
    inner.pop("nullable")
    notes = {key: inner.pop(key) for key in ("description", "title", "default") if key in inner}
    kinds = inner.get("type")
    if set(inner) == {"type"} and isinstance(kinds, (str, list)):
        names = [kinds] if isinstance(kinds, str) else list(kinds)
        return {**notes, "type": names if "null" in names else [*names, "null"]}
    return {**notes, "anyOf": [inner, {"type": "null"}]} if inner else notes


_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # hold schemas under names that are no keywords
_OPAQUE = ("enum", "const", "default", "examples")  # hold values, not schemas


def _named(value: Any) -> Any:
    return {key: with_nullable(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _opaque(value: Any) -> Any:
    return value


# ------------------------------------------------------------------------------------------------ the compiled check


class _Declined(Exception):
    """The schema holds something that the compiled check does not know."""


def _is_integer(value: Any) -> bool:
    kind = type(value)
    return kind is int or (kind is float and value.is_integer())


def _is_number(value: Any) -> bool:
    kind = type(value)
    return kind is int or kind is float


_TYPES: dict[str, Check] = {
    "string": lambda value: type(value) is str,
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: value is True or value is False,
    "null": lambda value: value is None,
    "array": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
}
_NOTES = frozenset(("title", "description", "default", "examples"))
_KNOWN = _NOTES | {"type", "properties", "required", "additionalProperties", "items", "enum", "minimum", "maximum", "anyOf"}


def compile_fast(schema: Any) -> Check | None:
    """Compile a schema into a yes-or-no check of values that came out of a JSON decoder.

    Args:
        schema: a JSON Schema, without `nullable`.

    Returns:
        A function that is true exactly where `jsonschema` finds no error; None where the schema holds a keyword (or a value of one) that
        is not in the list of this module.
    """
    try:
        return _compile(schema)
    except _Declined:
        return None


def _compile(schema: Any) -> Check:
    if not isinstance(schema, Mapping) or not _KNOWN.issuperset(schema):
        raise _Declined
    if any(not isinstance(schema.get(key, ""), str) for key in ("title", "description")):
        raise _Declined
    checks: list[Check] = []
    kinds: list[str] | None = None
    if "type" in schema:
        raw = schema["type"]
        kinds = [raw] if isinstance(raw, str) else list(raw) if isinstance(raw, list) and raw else []
        if not kinds or len(set(map(str, kinds))) != len(kinds) or any(one not in _TYPES for one in kinds):
            raise _Declined
        checks.append(_any_of([_TYPES[one] for one in kinds]))
    if "enum" in schema:
        checks.append(_enum(schema["enum"]))
    for key in ("minimum", "maximum"):
        if key in schema:
            checks.append(_bound(key, schema[key]))
    if "items" in schema:
        checks.append(_items(_compile(schema["items"])))
    if "anyOf" in schema:
        options = schema["anyOf"]
        if not isinstance(options, list) or not options:
            raise _Declined
        checks.append(_any_of([_compile(one) for one in options]))
    if any(key in schema for key in ("properties", "required", "additionalProperties")):
        checks.append(_object(schema, plain=kinds == ["object"]))
        if kinds == ["object"]:
            checks.pop(0)  # the object check has looked at the type
    return _all_of(checks)


def _all_of(checks: list[Check]) -> Check:
    if not checks:
        return lambda value: True
    if len(checks) == 1:
        return checks[0]
    if len(checks) == 2:
        first, second = checks
        return lambda value: first(value) and second(value)
    return lambda value: all(check(value) for check in checks)


def _any_of(checks: list[Check]) -> Check:
    if len(checks) == 1:
        return checks[0]
    return lambda value: any(check(value) for check in checks)


def _enum(values: Any) -> Check:
    # Only strings: equality of numbers, booleans and containers has rules of its own, which stay with jsonschema.
    if not isinstance(values, list) or not values or any(type(one) is not str for one in values):
        raise _Declined
    allowed = frozenset(values)
    return lambda value: type(value) is str and value in allowed


def _bound(key: str, limit: Any) -> Check:
    if not _is_number(limit):
        raise _Declined
    if key == "minimum":
        return lambda value: not _is_number(value) or value >= limit
    return lambda value: not _is_number(value) or value <= limit


def _items(check: Check) -> Check:
    return lambda value: type(value) is not list or all(check(one) for one in value)


def _object(schema: Mapping[str, Any], plain: bool) -> Check:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, list) or any(type(one) is not str for one in required):
        raise _Declined
    if len(set(required)) != len(required):
        raise _Declined
    checks = {str(name): _compile(one) for name, one in properties.items()}
    extra = schema.get("additionalProperties", True)
    rest: Check | None = None if extra is True else (lambda value: False) if extra is False else _compile(extra)
    needed = frozenset(required)

    def check(value: Any) -> bool:
        if type(value) is not dict:
            return not plain
        if not needed <= value.keys():
            return False
        for name, item in value.items():
            one = checks.get(name, rest)
            if one is not None and not one(item):
                return False
        return True

    return check


# ------------------------------------------------------------------------------------------------ the checker


class ArgumentChecker:
    """Checks arguments of one tool.

    Args:
        parameters: a JSON Schema of type object.
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._schema = with_nullable(parameters)
        self.fast = compile_fast(self._schema)

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        return Draft202012Validator(self._schema, registry=Registry())  # an empty registry: a reference never goes to the network

    def check_schema(self) -> None:
        """Check the schema itself.

        Raises:
            ValueError: if it is no valid JSON Schema (draft 2020-12).
        """
        if self.fast is not None:
            return
        from jsonschema import Draft202012Validator, SchemaError

        try:
            Draft202012Validator.check_schema(self._schema)
        except SchemaError as error:
            raise ValueError(f"{error.json_path}: {error.message}") from error

    def error(self, arguments: Any) -> str | None:
        """Say what is wrong with arguments.

        Args:
            arguments: values that came out of a JSON decoder.

        Returns:
            One line, at most about 200 characters; None where the arguments are valid.
        """
        if self.fast is not None and self.fast(arguments):
            return None
        return self.explain(arguments)

    def explain(self, arguments: Any) -> str | None:
        """Say what `jsonschema` finds wrong with arguments; the slow way of `error`.

        Args:
            arguments: values that came out of a JSON decoder.

        Returns:
            One line; None where the arguments are valid.
        """
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        try:
            found = best_match(self._validator.iter_errors(arguments))
        except Unresolvable as error:
            return f"the tool's own schema refers to {error.ref!r}, which is not in it"
        except RecursionError:
            return "the arguments are nested too deeply"
        except (ArithmeticError, ValueError, re.error) as error:  # a number that no float holds, a pattern that is none
            return f"the arguments cannot be checked: {' '.join(str(error).split()) or type(error).__name__}"
        if found is None:
            return None
        place = ".".join(str(part) for part in found.absolute_path)
        message = " ".join(found.message.split())
        if len(message) > _MAX_MESSAGE:
            message = f"{message[: _MAX_MESSAGE // 2]} ... {message[-_MAX_MESSAGE // 2 :]}"
        return f"{place}: {message}" if place else message


def check_parameters(parameters: Any, name: str) -> ArgumentChecker:
    """Check the schema of a tool's arguments and return the checker of arguments.

    Args:
        parameters: a JSON Schema of type object.
        name: of the tool, for the error.

    Returns:
        The checker.

    Raises:
        ValueError: if the schema is not valid or not of type object.
    """
    if not isinstance(parameters, Mapping) or parameters.get("type") != "object":
        raise ValueError(
            f'the parameters of tool {name!r} must be a JSON Schema with "type": "object", not {parameters!r}; '
            'a tool without arguments has {"type": "object", "properties": {}}'
        )
    checker = ArgumentChecker(parameters)
    try:
        checker.check_schema()
    except ValueError as error:
        raise ValueError(f"the parameters of tool {name!r} are no valid JSON Schema: {error}") from error
    return checker
