"""`tool`: a `BaseTool` from a typed function.

The JSON Schema of the arguments comes from the type hints and the Google docstring, and equals that of transformers' `get_json_schema`
(a test holds the two equal). Theirs loads torch on its first call, which no environment may do, so this is our own; it also refuses
`*args` and `**kwargs`, which theirs describes as ordinary arguments, and has no `return` key, which no chat template wants.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Union, get_args, get_origin, overload

from agent_gym.tools.base import ASYNC_TIMEOUT, BaseTool, ToolContext, ToolResult

__all__ = ["FunctionTool", "function_schema", "tool"]

_SCALARS: dict[type, str] = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}
_BARE: dict[Any, dict[str, Any]] = {
    **{kind: {"type": name} for kind, name in _SCALARS.items()},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
    Any: {},
}


# ------------------------------------------------------------------------------------------------ type hints


def _hint_schema(hint: Any, place: str) -> dict[str, Any]:
    """The JSON Schema of one type hint."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is None:
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _values_schema([member.value for member in hint], place)
        try:
            return dict(_BARE[hint])
        except (KeyError, TypeError):
            raise TypeError(
                f"{place} has the type hint {hint!r}, which has no JSON Schema here; use int, float, str, bool, Literal, an Enum, and "
                "list, tuple, dict, Union and Optional of those, or write the schema by hand in a BaseTool"
            ) from None
    if origin is Union or origin is types.UnionType:
        return _union_schema(args, place)
    if origin is Literal:
        return _values_schema(list(args), place)
    if origin in (list, tuple, dict) and not args:  # typing.List and its like, bare
        return dict(_BARE[origin])
    if origin is list:
        return {"type": "array", "items": _hint_schema(args[0], place)}
    if origin is tuple:
        if len(args) < 2 or ... in args:
            raise TypeError(f"{place} has the type hint {hint!r}; a tuple needs two or more fixed members, anything else is a list[...]")
        return {"type": "array", "prefixItems": [_hint_schema(one, place) for one in args]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _hint_schema(args[1], place)}
    raise TypeError(f"{place} has the type hint {hint!r}, which has no JSON Schema here; write the schema by hand in a BaseTool")


def _values_schema(values: list[Any], place: str) -> dict[str, Any]:
    """The schema of a choice among given values."""
    kinds: list[str] = []
    for value in values:
        kind = _SCALARS.get(type(value))
        if kind is None:
            raise TypeError(f"{place} allows the value {value!r}, which is no JSON scalar; use strings, numbers, booleans or None")
        if kind not in kinds:
            kinds.append(kind)
    if not kinds:
        raise TypeError(f"{place} is an Enum without members, which no value can match")
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def _union_schema(args: tuple[Any, ...], place: str) -> dict[str, Any]:
    """The schema of a union: one type, a list of plain types, or `anyOf`; None in it becomes `nullable`."""
    options = [_hint_schema(one, place) for one in args if one is not type(None)]
    if len(options) == 1:
        schema = options[0]
    elif all(set(one) == {"type"} and isinstance(one["type"], str) for one in options):
        names = sorted({one["type"] for one in options})
        schema = {"type": names[0] if len(names) == 1 else names}
    else:
        schema = {"anyOf": options}
    return {**schema, "nullable": True} if type(None) in args else schema


# ------------------------------------------------------------------------------------------------ docstrings

_SECTION = re.compile(r"Args:|Returns:|Raises:")
_ARGS = re.compile(r"\n\s*Args:\n")
_ENTRY = re.compile(r"([ \t]*)(\w+)(?:[ \t]*\([^()\n]*\))?:")
_CHOICES = re.compile(r"\(choices:\s*(.*?)\)\s*$", re.IGNORECASE)


def _read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """The description of a function and of each of its arguments."""
    first = _SECTION.search(docstring)
    description = docstring[: first.start()].strip() if first else docstring.strip()
    header = _ARGS.search(docstring)
    if header is None:
        return description, {}
    block = docstring[header.end() :]
    end = re.search(r"Returns:|Raises:", block)
    if end:
        block = block[: end.start()]
    found: dict[str, str] = {}
    name, indent, parts = "", "", [""]
    for line in [*(line for line in block.split("\n") if line.strip()), ""]:
        entry = _ENTRY.match(line)
        deeper = bool(name) and line.startswith(indent) and line[len(indent) : len(indent) + 1] in (" ", "\t")
        if line and (entry is None or deeper):
            parts.append(line.strip())
            continue
        if name:
            found[name] = " ".join(part for part in parts if part)
        if entry is not None:
            indent, name = entry.group(1), entry.group(2)
            parts = [line[entry.end() :].strip()]
    return description, found


# ------------------------------------------------------------------------------------------------ the schema of a function


def _is_context(hint: Any) -> bool:
    """Whether a hint is `ToolContext`, possibly optional."""
    return hint is ToolContext or (get_origin(hint) in (Union, types.UnionType) and ToolContext in get_args(hint))


def function_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Describe a typed function as chat templates want tools described.

    Args:
        function: a function or a bound method, `async` or not, with a type hint and a line in the docstring's `Args:` for every argument.
            An argument with the hint `ToolContext` is left out: the environment gives it.

    Returns:
        `{"name", "description", "parameters"}`, the last a JSON Schema of type object. A docstring line ending in
        `(choices: ["a", "b"])` gives an enum; `Optional` gives `nullable`.

    Raises:
        TypeError: if an argument has no hint, one without a JSON Schema, or is `*args` or `**kwargs`, or this is no function.
        ValueError: if the docstring or one argument's description is missing, or its choices are no JSON list.
    """
    name = getattr(function, "__name__", "")
    if not callable(function) or isinstance(function, functools.partial) or not name or not inspect.getdoc(function):
        if isinstance(function, functools.partial) or not callable(function) or not name:
            raise TypeError(f"{function!r} is no function; pass a function or a bound method, or write a BaseTool")
        raise ValueError(f"{name}() has no docstring; the model reads it, so write one with a line for every argument")
    description, described = _read_docstring((inspect.getdoc(function) or "").strip())
    hints = typing.get_type_hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in ("self", "cls") and parameters[0].annotation is inspect.Parameter.empty:
        parameters = parameters[1:]
    for parameter in parameters:
        place = f"argument {parameter.name!r} of {name}()"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{place} is *args or **kwargs, which a model cannot fill; name the arguments")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"{place} is positional only; tools are called by name")
        if parameter.name not in hints:
            raise TypeError(f"{place} has no type hint; the schema is made of them")
        if _is_context(hints[parameter.name]):
            continue
        schema = _hint_schema(hints[parameter.name], place)
        if parameter.name not in described:
            raise ValueError(f"{place} has no line in the docstring's Args section; the model reads it")
        text = described[parameter.name]
        choices = _CHOICES.search(text)
        if choices:
            schema["enum"] = _read_choices(choices.group(1), place)
            text = text[: choices.start()].strip()
        schema["description"] = text
        properties[parameter.name] = schema
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    signature: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        signature["required"] = required
    return {"name": name, "description": description, "parameters": signature}


def _read_choices(text: str, place: str) -> list[Any]:
    try:
        choices = json.loads(text)
    except ValueError:
        choices = None
    if not isinstance(choices, list):
        raise ValueError(f'{place} has (choices: {text}) in its docstring, which is no JSON list; write (choices: ["a", "b"])')
    return [one.strip() if isinstance(one, str) else one for one in choices]


# ------------------------------------------------------------------------------------------------ the tool


def _as_result(value: Any) -> ToolResult:
    """What a function returned, as a result: text stays, anything else is shown as JSON."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(value)
    return ToolResult(json.dumps(value, ensure_ascii=False, default=str))


class FunctionTool(BaseTool):
    """A typed function as a tool; made by `tool`. Calling it calls the function.

    Args:
        function: see `function_schema`.
        name: replaces the function's name.
        description: replaces that of the docstring.
        timeout: seconds; `...` stands for the default (10 for an `async` function, else none).

    Raises:
        TypeError: as `function_schema`.
        ValueError: as `function_schema`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | types.EllipsisType | None = ...,
    ) -> None:
        made = function_schema(function)
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self.timeout = (ASYNC_TIMEOUT if self.is_async else None) if isinstance(timeout, types.EllipsisType) else timeout
        hints = typing.get_type_hints(function)
        given = [key for key in inspect.signature(function).parameters if key in hints and _is_context(hints[key])]
        self._context_name = given[0] if given else None
        super().__init__(
            name=made["name"] if name is None else name,
            description=made["description"] if description is None else description,
            parameters=made["parameters"],
        )
        self.__doc__ = inspect.getdoc(function)

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult | Awaitable[ToolResult]:
        """Call the function with the arguments.

        Args:
            arguments: by name.
            context: passed on where the function asks for it.

        Returns:
            The result, or an awaitable of it where the function is `async`.
        """
        if self._context_name is not None:
            arguments = {**arguments, self._context_name: context}
        value = self.function(**arguments)
        if inspect.isawaitable(value):
            return _later(value)
        return _as_result(value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.function(*args, **kwargs)


async def _later(value: Awaitable[Any]) -> ToolResult:
    return _as_result(await value)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | types.EllipsisType | None = ...,
) -> Any: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | types.EllipsisType | None = ...,
) -> Any:
    """Make a tool from a typed function; a decorator, with or without arguments.

    Args:
        function: a function or a bound method, `async` or not, with type hints and a Google docstring; see `function_schema`. An argument
            with the hint `ToolContext` is filled in by the environment and hidden from the model. What it returns is the result's text; a
            `ToolResult` is taken as it is, anything that is no string is shown as JSON.
        name: replaces the function's name.
        description: replaces the docstring's.
        timeout: seconds that a call may take, None for no limit; default 10 for an `async` function, none for another.

    Returns:
        A `FunctionTool`, or a decorator that makes one.

    Raises:
        TypeError: if an argument has no usable type hint.
        ValueError: if a description is missing.

    Examples:
        >>> @tool
        ... def add(a: int, b: int) -> str:
        ...     '''Add two whole numbers.
        ...
        ...     Args:
        ...         a: the first.
        ...         b: the second.
        ...     '''
        ...     return str(a + b)
        >>> add.parameters["required"]
        ['a', 'b']
    """
    if function is None:
        return lambda made: FunctionTool(made, name=name, description=description, timeout=timeout)
    return FunctionTool(function, name=name, description=description, timeout=timeout)
