"""What a tool is: `BaseTool`, `ToolResult`, `ToolContext`, and the registry of tools by name.

A tool has a name, a description and a JSON Schema of its arguments, all three of which the model reads, and one method that does the
work. Arguments are checked against the schema before the tool sees them (see `agent_gym.tools.execution`), and whatever a tool raises
becomes an error text for the model; only `agent_gym.core.EnvFault` says that the world broke.
"""

from __future__ import annotations

import importlib
import inspect
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from agent_gym._names import nearest
from agent_gym.tools.validation import ArgumentChecker, check_parameters

__all__ = [
    "ASYNC_TIMEOUT",
    "BaseTool",
    "OpenToolkit",
    "ToolContext",
    "ToolResult",
    "Toolkit",
    "get_tool",
    "register_tool",
    "tool_names",
]

ASYNC_TIMEOUT = 10.0
"""Seconds that an asynchronous tool may take unless it says otherwise; a synchronous one has no limit of its own."""

_MAX_TIMEOUT = 1e9  # seconds; threads cannot wait for much more
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers.

    Attributes:
        text: what the model is shown.
        reward: a finite number, added to the reward of the step; None for a tool that gives none.
        terminated: True ends the episode (`StopReason.FINISH_CALL`).
        info: for the environment that called the tool; the model never sees it.
    """

    text: str
    reward: float | None = None
    terminated: bool = False
    info: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


class ToolContext:
    """What a tool may know of the episode it is called in. One object per call.

    Args:
        task: the task of the episode, as the environment holds it.
        turn: the number of the turn, from 0.
        index: the number of the call within its turn, from 0.
        deadline: `time.monotonic()` seconds at which the call is given up; None where nothing limits it.
        state: a dictionary that lives as long as the episode and is shared by its calls.
        entropy: seeds `rng`; the environment draws it at reset.
    """

    __slots__ = ("_entropy", "_rng", "deadline", "index", "state", "task", "turn")

    def __init__(
        self,
        task: Any = None,
        turn: int = 0,
        index: int = 0,
        deadline: float | None = None,
        state: dict[str, Any] | None = None,
        entropy: int = 0,
    ) -> None:
        self.task = task
        self.turn = turn
        self.index = index
        self.deadline = deadline
        self.state: dict[str, Any] = {} if state is None else state
        self._entropy = entropy
        self._rng: np.random.Generator | None = None

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers of this call alone, a function of the episode's seed, the turn and the place of the call.

        Calls of one turn run at the same time; were they to draw from one generator, the result would depend on who comes first.
        """
        if self._rng is None:
            self._rng = np.random.default_rng([self._entropy, self.turn, self.index])
        return self._rng

    def remaining(self) -> float | None:
        """Return the seconds left until the deadline, at least 0; None where nothing limits the call.

        Returns:
            Seconds, or None.
        """
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def for_call(self, index: int, timeout: float | None) -> ToolContext:
        """Return the context of one call of the turn.

        Args:
            index: the number of the call within the turn.
            timeout: seconds until its deadline, or None.

        Returns:
            A context that shares task, turn and state with this one.
        """
        deadline = self.deadline if timeout is None else time.monotonic() + timeout
        return ToolContext(self.task, self.turn, index, deadline, self.state, self._entropy)


class BaseTool(ABC):
    """A tool that the model can call.

    A subclass sets `name`, `description` and `parameters` as class attributes (or passes them to `__init__`) and writes `execute`, as a
    plain or as an `async` method. `tool` makes one from a typed function.

    Args:
        name: replaces the class attribute.
        description: replaces the class attribute.
        parameters: replaces the class attribute.

    Attributes:
        name: letters, digits, `_`, `-` and `.`, at most 64 characters, beginning with a letter or `_`.
        description: for the model.
        parameters: a JSON Schema (draft 2020-12) of type object; `"nullable": true` is understood as transformers' `get_json_schema`
            means it.
        timeout: seconds that a call may take, None for no limit. Default: 10 for `async def execute`, None for `def execute`. A synchronous
            tool with a timeout runs in a worker thread, which is left behind when the time is up.
        oracle: True for a tool that knows the task's answer and tells the model of it. Every info and every evaluation then says so
            (`info["tools"]`), since figures made with it are not comparable with others.

    Raises:
        ValueError: if the name or the schema is not valid.
    """

    name: str = ""
    description: str = ""
    parameters: Mapping[str, Any] = MappingProxyType({"type": "object", "properties": MappingProxyType({})})
    timeout: float | None = None
    oracle: bool = False
    _checker: ArgumentChecker | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not any("timeout" in one.__dict__ for one in cls.__mro__ if one is not BaseTool):
            cls.timeout = ASYNC_TIMEOUT if inspect.iscoroutinefunction(cls.execute) else None

    def __init__(self, *, name: str | None = None, description: str | None = None, parameters: Mapping[str, Any] | None = None) -> None:
        if name is not None:
            self.name = name
        if description is not None:
            self.description = description
        if parameters is not None:
            self.parameters = parameters
        self.check()

    @abstractmethod
    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult | Awaitable[ToolResult]:
        """Do the work.

        Args:
            arguments: as the model gave them, already valid under `parameters`.
            context: of this call.

        Returns:
            The result (a plain string is taken as its text).
        """

    @property
    def schema(self) -> dict[str, Any]:
        """The tool in OpenAI's form, as chat templates take it."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": _plain(self.parameters)},
        }

    def check(self) -> ArgumentChecker:
        """Check name and schema, once, and the time limit, which may be set later, and return the checker of arguments.

        Returns:
            The compiled checker.

        Raises:
            ValueError: if one of them is not valid.
        """
        if self._checker is None:
            if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
                raise ValueError(
                    f"{type(self).__name__}.name is {self.name!r}; a tool name has letters, digits, '_', '-', '.', begins with a letter "
                    "or '_' and has at most 64 characters"
                )
            self._checker = check_parameters(_plain(self.parameters), self.name)
        if self.timeout is not None and not 0 < self.timeout <= _MAX_TIMEOUT:
            raise ValueError(
                f"the timeout of tool {self.name!r} is {self.timeout!r}; give seconds above 0 and at most {_MAX_TIMEOUT:g}, "
                "or None for no limit"
            )
        return self._checker

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: all but the compiled checker, which the copy makes anew."""
        return {key: value for key, value in self.__dict__.items() if key != "_checker"}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"


class OpenToolkit(ABC):
    """Tools that hold something open: what `Toolkit.open` returns.

    Attributes:
        tools: the same for as long as it lives.
    """

    tools: Sequence[BaseTool]

    @abstractmethod
    def begin(self) -> None:
        """Get ready for an episode. `agent_gym.core.EnvFault` says that the world is broken."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held open. It may be called more than once."""


class Toolkit(ABC):
    """Several tools that come together and hold something open, such as a session with a server. Each environment opens its own."""

    @abstractmethod
    def open(self) -> OpenToolkit:
        """Open it.

        Returns:
            The tools.
        """


def _plain(value: Any) -> Any:
    """Mappings as dicts and sequences as lists, so that a schema can be printed as JSON and never be changed from outside."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


ToolFactory = Callable[..., BaseTool]
_Registered = TypeVar("_Registered", bound=ToolFactory)

_REGISTRY: dict[str, str | ToolFactory] = {
    "calc_gsm8k_reward": "agent_gym.tools.gsm8k:GSM8KOracle",
    "calculator": "agent_gym.tools.calculator:Calculator",
    "python": "agent_gym.tools.sandbox.tool:PythonTool",
    "unit_converter": "agent_gym.tools.units:UnitConverter",
}


def register_tool(name: str, factory: str | None = None) -> Callable[[_Registered], _Registered]:
    """Register a tool under a name, for `get_tool` and for `ToolEnv(tools=[...])`.

    Either as a decorator of a `BaseTool` class or of a function that returns one, or with a string, which is imported when first asked for.

    Args:
        name: the name in the registry.
        factory: `"module:attribute"` of a class or function; nothing is imported now.

    Returns:
        A decorator that returns what it decorates.

    Raises:
        ValueError: if the name is taken by something else, or `factory` is no `"module:attribute"`.
    """

    def add(made: Any) -> Any:
        if _REGISTRY.get(name, made) is not made and _REGISTRY.get(name) != made:
            raise ValueError(f"a tool named {name!r} is registered already; choose another name")
        _REGISTRY[name] = made
        return made

    if factory is not None:
        if factory.count(":") != 1:
            raise ValueError(f"register_tool({name!r}) got {factory!r}; write 'package.module:Class'")
        add(factory)
    return add


def get_tool(name: str, **kwargs: Any) -> BaseTool:
    """Make a registered tool.

    Args:
        name: a registered name.
        **kwargs: for its class or function.

    Returns:
        A new tool.

    Raises:
        ValueError: if there is no such name, or what is registered makes no `BaseTool`.
    """
    factory = _REGISTRY.get(name)
    if factory is None:
        raise ValueError(f"there is no tool named {name!r}; registered are {', '.join(sorted(_REGISTRY))}{nearest(name, _REGISTRY)}")
    if isinstance(factory, str):
        module, attribute = factory.split(":")
        factory = getattr(importlib.import_module(module), attribute)
    made = factory if isinstance(factory, BaseTool) else factory(**kwargs)
    if not isinstance(made, BaseTool):
        raise ValueError(f"what is registered as {name!r} makes a {type(made).__name__}, not a BaseTool")
    return made


def tool_names() -> list[str]:
    """Return the registered names in order.

    Returns:
        The names.
    """
    return sorted(_REGISTRY)
