"""Tools as classes, their context, and the registry."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from agent_gym.tools import BaseTool, ToolCall, ToolContext, ToolResult, ToolSet, get_tool, register_tool, run_calls, tool_names
from agent_gym.tools.base import _REGISTRY
from agent_gym.tools.calculator import Calculator


class Echo(BaseTool):
    name = "echo"
    description = "Say it again."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}  # noqa: RUF012

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(arguments["text"])


class Slow(BaseTool):
    name = "slow"

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("done")


class Impatient(Slow):
    timeout = 0.5


def test_an_asynchronous_tool_has_ten_seconds_and_a_synchronous_one_no_limit() -> None:
    assert Echo().timeout is None
    assert Slow().timeout == 10.0
    assert Impatient().timeout == 0.5


def test_a_tool_is_printed_as_chat_templates_want_it_and_cannot_be_changed_through_that() -> None:
    made = Echo()
    made.schema["function"]["parameters"]["properties"].clear()
    assert made.schema["function"]["parameters"]["properties"] == {"text": {"type": "string"}}
    assert Slow().schema["function"]["parameters"] == {"type": "object", "properties": {}}


def test_a_bad_name_schema_or_time_limit_is_refused_when_the_tool_is_made() -> None:
    for name in ("", "1x", "a b", "x" * 65, "é"):
        with pytest.raises(ValueError, match="a tool name"):
            Echo(name=name)
    with pytest.raises(ValueError, match='"type": "object"'):
        Echo(parameters={"type": "string"})

    class Never(Echo):
        timeout = 0.0

    with pytest.raises(ValueError, match="seconds above 0"):
        Never()


def test_a_subclass_that_forgets_super_init_is_checked_all_the_same() -> None:
    class Forgetful(Echo):
        def __init__(self) -> None:
            self.parameters = {"type": "nonsense"}

    from agent_gym.tools import ToolSet

    with pytest.raises(ValueError, match="echo"):
        ToolSet([Forgetful()])


def test_results_are_frozen_and_share_no_info() -> None:
    result = ToolResult("x")
    with pytest.raises(AttributeError):
        result.text = "y"  # type: ignore[misc]
    with pytest.raises(TypeError):
        result.info["a"] = 1  # type: ignore[index]


def test_random_numbers_are_those_of_the_call_and_not_of_who_comes_first() -> None:
    def draw(turn: int, index: int, entropy: int = 7) -> float:
        return float(ToolContext(turn=turn, entropy=entropy).for_call(index, None).rng.random())

    values = {draw(0, 0), draw(0, 1), draw(1, 0), draw(0, 0, entropy=8)}
    assert len(values) == 4
    assert draw(0, 1) in values


def test_the_context_knows_the_time_that_is_left() -> None:
    assert ToolContext().remaining() is None
    left = ToolContext().for_call(0, 60.0).remaining()
    assert left is not None
    assert 59.0 < left <= 60.0
    assert ToolContext(deadline=0.0).remaining() == 0.0


def test_registered_tools_are_found_by_name_and_imported_when_asked_for() -> None:
    assert {"calculator", "unit_converter"} <= set(tool_names())
    assert isinstance(get_tool("calculator"), Calculator)
    register_tool("lazy_tool_of_a_test", "no_such_module_of_a_test:Tool")
    try:
        assert "no_such_module_of_a_test" not in sys.modules
        with pytest.raises(ModuleNotFoundError):
            get_tool("lazy_tool_of_a_test")
    finally:
        del _REGISTRY["lazy_tool_of_a_test"]


def test_the_registry_takes_classes_and_refuses_a_second_meaning() -> None:
    try:
        register_tool("echo_of_a_test")(Echo)
        register_tool("echo_of_a_test")(Echo)
        assert get_tool("echo_of_a_test", description="Other.").description == "Other."
        with pytest.raises(ValueError, match="registered already"):
            register_tool("echo_of_a_test")(Slow)
        with pytest.raises(ValueError, match="did you mean 'calculator'"):
            get_tool("calculater")
        with pytest.raises(ValueError, match=r"package\.module:Class"):
            register_tool("x", "no_colon")
        register_tool("wrong_of_a_test")(dict)  # type: ignore[type-var]
        with pytest.raises(ValueError, match="not a BaseTool"):
            get_tool("wrong_of_a_test")
    finally:
        for name in ("echo_of_a_test", "wrong_of_a_test"):
            _REGISTRY.pop(name, None)


@pytest.mark.parametrize("timeout", [1e10, float("inf"), float("nan"), -1.0])
def test_a_time_limit_that_no_thread_can_wait_for_is_refused(timeout: float) -> None:
    class Patient(Echo):
        pass

    Patient.timeout = timeout
    with pytest.raises(ValueError, match=r"timeout of tool 'echo'.* None for no limit"):
        Patient()
    late = Echo()
    late.timeout = timeout
    with pytest.raises(ValueError, match=r"timeout of tool 'echo'.* None for no limit"):
        ToolSet([late])


def test_the_longest_time_limit_works() -> None:
    class Patient(Echo):
        timeout = 1e9

    class PatientLater(Slow):
        timeout = 1e9

        async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
            await asyncio.sleep(0)
            return ToolResult("done")

    calls = [ToolCall("echo", {"text": "a"}, ""), ToolCall("slow", {}, "")]
    assert [one.text for one in run_calls(ToolSet([Patient(), PatientLater()]), calls)] == ["a", "done"]
