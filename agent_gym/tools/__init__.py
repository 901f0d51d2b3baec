"""Tools: what a tool is, tools from functions, reading calls out of replies, running them.

    from agent_gym.tools import tool

    @tool
    def add(a: int, b: int) -> int:
        '''Add two whole numbers.

Args:
            a: the first.
            b: the second.
        '''
        return a + b

Nothing here imports torch, and transformers only where a response template is read.
"""

from agent_gym.tools.base import BaseTool, ToolContext, Toolkit, ToolResult, get_tool, register_tool, tool_names
from agent_gym.tools.calls import ParsedAction, ToolCall, extract_answer
from agent_gym.tools.execution import ERROR_KINDS, CallResult, ToolSet, arun_calls, run_calls
from agent_gym.tools.formats import ToolCallFormat
from agent_gym.tools.parsing import FORMATS, get_format
from agent_gym.tools.schema import FunctionTool, function_schema, tool

__all__ = [
    "ERROR_KINDS",
    "FORMATS",
    "BaseTool",
    "CallResult",
    "FunctionTool",
    "ParsedAction",
    "ToolCall",
    "ToolCallFormat",
    "ToolContext",
    "ToolResult",
    "ToolSet",
    "Toolkit",
    "arun_calls",
    "extract_answer",
    "function_schema",
    "get_format",
    "get_tool",
    "register_tool",
    "run_calls",
    "tool",
    "tool_names",
]
