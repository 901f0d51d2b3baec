"""The tool with which Agent-R1 (arXiv 2511.14460) plays GSM8K: an *oracle*, which tells the model whether its answer is right.

It is here so that rows which name it (`calc_gsm8k_reward`) can be run, and never a default: a model that is told the reward before it answers
needs no arithmetic, and figures that were made with it are not comparable with any others. `AgentR1/GSM8K-v0` says in `info["tools"]` when an
episode has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from agent_gym.tools.base import BaseTool, ToolContext, ToolResult
from agent_gym.tools.numbers import find_number, marked_answer

__all__ = ["GSM8KOracle"]


class GSM8KOracle(BaseTool):
    """The tool `calc_gsm8k_reward(answer)`: it knows the answer of the task, and says whether the given one equals it.

    Args:
        ground_truth: the right answer as a number or text, or a function that gives the accepted ones of the present task. Without it the
            tool looks into the task that it is called with: `answer`, or `reward_model["ground_truth"]`.

    Raises:
        ValueError: for a ground truth that is no number.
    """

    name = "calc_gsm8k_reward"
    description = "Check your answer: tells whether it is right. (An oracle: it knows the right answer.)"
    parameters = MappingProxyType(
        {
            "type": "object",
            "properties": {"answer": {"type": ["string", "number"], "description": "The answer, a number."}},
            "required": ["answer"],
        }
    )

    def __init__(self, *, ground_truth: str | float | Callable[[], Sequence[str]] | None = None) -> None:
        super().__init__()
        self._given = ground_truth if callable(ground_truth) or ground_truth is None else _gold(ground_truth, "ground_truth")

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Compare the answer with the right one, as decimal numbers.

        Args:
            arguments: `{"answer": str | number}`; a text may be a whole solution that ends in `#### n`.
            context: its task is looked into where the tool was made without a ground truth.

        Returns:
            The number that was read and the reward it would get, as the original prints them. The tool itself pays nothing.
        """
        text = str(arguments["answer"])
        value = find_number(marked_answer(text) or text)
        right = value is not None and value in self._accepted(context)
        shown = "none" if value is None else f"{value:f}" if abs(value.adjusted()) < 50 else str(value)
        return ToolResult(f"Current parsed answer={shown} reward={float(right)}", info={"oracle": True})

    def _accepted(self, context: ToolContext) -> list[Decimal]:
        if isinstance(self._given, Decimal):
            return [self._given]
        if self._given is not None:
            return [_gold(one, "ground_truth") for one in self._given()]
        task = context.task if isinstance(context.task, Mapping) else {}
        model = task.get("reward_model")
        gold = task.get("answer", model.get("ground_truth") if isinstance(model, Mapping) else None)
        if isinstance(gold, Mapping):
            gold = gold.get("target")
        return [_gold(one, "the task's answer") for one in (gold if isinstance(gold, (list, tuple)) else [gold])]


def _gold(value: Any, name: str) -> Decimal:
    text = str(value)
    number = find_number(marked_answer(text) or text) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None
    if number is None:
        raise ValueError(f"calc_gsm8k_reward needs a number as {name}, such as 18 or '1,800', not {value!r:.100}")
    return number
