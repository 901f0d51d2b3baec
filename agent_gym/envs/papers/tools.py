"""The tools of paper search: `search`, `expand` and `finish`.

The calls of one reply run at the same time, so a tool changes nothing: it looks at the pool as it stood before the reply and hands what it found, judged, to
the environment (`Lookup` in the info of its result), which takes the calls in their order and writes the texts that the model reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from agent_gym.data.papers import Paper, normalize_paper_id
from agent_gym.tools.base import BaseTool, ToolContext, ToolResult

__all__ = ["ExpandTool", "FinishTool", "Lookup", "SearchPapersTool", "plain_id"]

_REMOTE_TIMEOUT = 180.0  # far above the deadlines of library and relevance, which end in EnvFault and not in an error text


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a call found.

    Attributes:
        source: "search" or "expand".
        origin: the query, or the id of the paper.
        papers: as the library gave them; empty where nothing was looked up.
        scores: what they are shown and ranked with.
        relevances: what they are paid with.
        known: whether there was something to look up: False for the expansion of a paper that is not in the pool.
        failure: what the relevance raised, for the environment to raise again: a tool's exception is a text for the model, and this is the programmer's.
    """

    source: str
    origin: str
    papers: tuple[Paper, ...] = ()
    scores: tuple[float, ...] = ()
    relevances: tuple[float, ...] = ()
    known: bool = True
    failure: Exception | None = None


def plain_id(text: str) -> str:
    """Return the id that a model means, which may have copied it with its brackets.

    Args:
        text: the argument of a call.

    Returns:
        The id in the one spelling.
    """
    return normalize_paper_id(re.sub(r"^\[(.*)\]$", r"\1", text.strip()))


class _PaperTool(BaseTool):
    """A tool that looks something up.

    Args:
        look: from the argument to what was found.
        remote: library or relevance wait for a network, so calls run in worker threads.
    """

    argument = ""

    def __init__(self, look: Callable[[str], Lookup], *, remote: bool = False) -> None:
        super().__init__()
        self._look = look
        if remote:
            self.timeout = _REMOTE_TIMEOUT

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Look it up.

        Args:
            arguments: the query, or the id.
            context: unused.

        Returns:
            A result without a text, with the `Lookup` in its info.

        Raises:
            EnvFault: if library or relevance are out of reach.
        """
        return ToolResult("", info={"lookup": self._look(str(arguments[self.argument]))})


class SearchPapersTool(_PaperTool):
    """The tool `search(query)`."""

    name = "search"
    description = "Search papers by words of their title and abstract."
    argument = "query"
    parameters = MappingProxyType({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]})


class ExpandTool(_PaperTool):
    """The tool `expand(paper_id)`."""

    name = "expand"
    description = "Find the papers that a found paper cites and those that cite it."
    argument = "paper_id"
    parameters = MappingProxyType({"type": "object", "properties": {"paper_id": {"type": "string"}}, "required": ["paper_id"]})


class FinishTool(BaseTool):
    """The tool `finish()`."""

    name = "finish"
    description = "End the search; everything found so far is the answer."
    parameters = MappingProxyType({"type": "object", "properties": MappingProxyType({})})

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """End the episode.

        Args:
            arguments: none.
            context: unused.

        Returns:
            The end.
        """
        return ToolResult("The search is over.", terminated=True)
