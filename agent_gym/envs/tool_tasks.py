"""`AgentR1/Tool-v0`, and its generated tasks: arithmetic, unit conversions, and both one after the other.

A task is a function of (split, number) and of nothing else. Which split a question belongs to is decided by a hash of its text, so that the
splits are disjoint by construction, however many tasks are drawn. Every answer is a finite decimal, so that there is one right number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ResetNeeded

from agent_gym.data.samples import read_rows
from agent_gym.envs.answers import accepted_of
from agent_gym.envs.tool import Score, ToolEnv
from agent_gym.envs.whole_numbers import whole_number
from agent_gym.tools.base import BaseTool, Toolkit
from agent_gym.tools.calculator import evaluate, format_number
from agent_gym.tools.execution import CallResult
from agent_gym.tools.units import UNITS, convert, find_unit

__all__ = ["SPLITS", "ToolTaskEnv", "make_task", "split_of"]

SPLITS: Mapping[str, range] = {"train": range(8), "validation": range(8, 9), "test": range(9, 10)}
"""Which tenths of all questions a split has."""

_MAX_DIGITS = 10  # significant digits of an intermediate result or an answer
_PEOPLE = ("Ada", "Ben", "Chen", "Dara", "Emil", "Fatima", "Goran", "Hana", "Imre", "Jun", "Kofi", "Lena", "Mira", "Noor", "Oskar", "Priya")
_BOXES = ("boxes", "crates", "bags", "trays", "packets", "cases")
_THINGS = ("tiles", "pencils", "apples", "candles", "buttons", "screws", "stamps", "marbles", "bulbs", "seeds")
_LONG = ("rope", "plank", "ribbon", "pipe", "cable", "strip of cloth")
_MOVING = ("train", "bus", "ferry", "cyclist", "van", "coach")
_KINDS = tuple(sorted({unit.kind for unit in UNITS} - {"temperature", "data"}))

Plan = list[dict[str, Any]]


def split_of(question: str) -> str:
    """Return the split that a question belongs to.

    Args:
        question: its text.

    Returns:
        A key of `SPLITS`.
    """
    tenth = int.from_bytes(hashlib.blake2b(question.encode(), digest_size=8).digest()) % 10
    return next(split for split, tenths in SPLITS.items() if tenth in tenths)


def make_task(split: str, number: int) -> dict[str, Any]:
    """Make a task.

    Args:
        split: a key of `SPLITS`.
        number: any number from 0.

    Returns:
        A row with `id`, `question`, `answer` (a decimal number as text) and `plan`: the calls that lead to it, each with `name`,
        `arguments` and the `result` that the tool gives.

    Raises:
        ValueError: for an unknown split.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
    rng = np.random.default_rng([number, list(SPLITS).index(split)])
    while True:
        question, plan = _MAKERS[int(rng.integers(len(_MAKERS)))](rng)
        answer = plan[-1]["result"]
        short = all(len(step["result"].replace(".", "").replace("-", "").strip("0")) <= _MAX_DIGITS for step in plan)
        if short and split_of(question) == split:
            return {"id": f"{split}-{number}", "question": question, "answer": answer, "plan": plan}


# ------------------------------------------------------------------------------------------------ steps of a plan


def _calculate(expression: str) -> dict[str, Any]:
    return {"name": "calculator", "arguments": {"expression": expression}, "result": format_number(evaluate(expression))}


def _convert(value: str, source: str, target: str) -> dict[str, Any]:
    number: int | float = float(value) if "." in value else int(value)
    result = format_number(convert(Fraction(value), find_unit(source), find_unit(target)))
    return {"name": "unit_converter", "arguments": {"value": number, "from_unit": source, "to_unit": target}, "result": result}


def _is_exact(value: str, source: str, target: str, shown: str) -> bool:
    return convert(Fraction(value), find_unit(source), find_unit(target)) == Fraction(shown)


# ------------------------------------------------------------------------------------------------ questions


def _pick(rng: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[int(rng.integers(len(options)))]


def _whole(rng: np.random.Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def _quantity(rng: np.random.Generator) -> str:
    """A value with at most one decimal place, as it is written."""
    tenths = _whole(rng, 11, 9999)
    return str(tenths // 10) if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}"


def _sum(rng: np.random.Generator) -> tuple[str, Plan]:
    first, second, third = _whole(rng, 12, 999), _whole(rng, 12, 99), _whole(rng, 100, 9999)
    forms = (
        f"{first} * {second} + {third}",
        f"({first} + {third}) * {second}",
        f"{third} - {first} * {second}",
        f"{first} * ({second} + {third})",
    )
    expression = _pick(rng, forms)
    return f"What is {expression}?", [_calculate(expression)]


def _boxes(rng: np.random.Generator) -> tuple[str, Plan]:
    person, box, thing = _pick(rng, _PEOPLE), _pick(rng, _BOXES), _pick(rng, _THINGS)
    boxes, each, away = _whole(rng, 12, 98), _whole(rng, 13, 97), _whole(rng, 11, 150)
    question = f"{person} buys {boxes} {box} of {each} {thing} and gives {away} {thing} away. How many {thing} are left?"
    return question, [_calculate(f"{boxes} * {each} - {away}")]


def _conversion(rng: np.random.Generator) -> tuple[str, Plan]:
    while True:
        kind = _pick(rng, _KINDS)
        units = [unit for unit in UNITS if unit.kind == kind]
        source, target = (units[int(one)] for one in rng.choice(len(units), size=2, replace=False))
        value = _quantity(rng)
        step = _convert(value, source.plural, target.plural)
        if _is_exact(value, source.plural, target.plural, step["result"]):
            return f"How many {target.plural} are {value} {source.plural}?", [step]


def _pieces(rng: np.random.Generator) -> tuple[str, Plan]:
    source, thing, value = _pick(rng, ("feet", "yards", "inches")), _pick(rng, _LONG), _quantity(rng)
    pieces = (2, 4, 5, 8, 10, 16, 20, 25)[_whole(rng, 0, 7)]
    question = f"A {thing} of {value} {source} is cut into {pieces} equal pieces. How many centimetres long is one piece?"
    whole = _convert(value, source, "centimetres")
    return question, [whole, _calculate(f"{whole['result']} / {pieces}")]


def _trip(rng: np.random.Generator) -> tuple[str, Plan]:
    moving, speed, hours = _pick(rng, _MOVING), _whole(rng, 8, 90), _whole(rng, 2, 19)
    question = f"A {moving} goes {speed} miles per hour for {hours} hours. How many kilometres does it go?"
    miles = _calculate(f"{speed} * {hours}")
    return question, [miles, _convert(miles["result"], "miles", "kilometres")]


def _parcels(rng: np.random.Generator) -> tuple[str, Plan]:
    heavy, light, parcels = _whole(rng, 2, 60), _whole(rng, 50, 950), _whole(rng, 2, 12)
    question = f"A crate weighs {heavy} pounds, and in it are {parcels} parcels of {light} grams each. How many kilograms is that together?"
    crate = _convert(str(heavy), "pounds", "grams")
    together = _calculate(f"{crate['result']} + {parcels} * {light}")
    number = together["result"]
    return question, [crate, together, _convert(number, "grams", "kilograms")]


_MAKERS: tuple[Callable[[np.random.Generator], tuple[str, Plan]], ...] = (_sum, _boxes, _conversion, _pieces, _trip, _parcels)


class ToolTaskEnv(ToolEnv):
    """`AgentR1/Tool-v0`: sums and conversions with a calculator and a unit converter, or your own tasks and tools.

    Without arguments the tasks are generated without end, as a function of split and seed; no task stands in two splits. The answer is
    compared as a decimal number: reward 1 or 0.

    Args:
        dataset: "embedded" (generated), or the path of a JSON, JSONL or Parquet file with rows of `question` and `answer`, or of the
            Agent-R1 sample schema.
        data_dir: where a relative path of `dataset` begins.
        tools: as in `ToolEnv`; None for calculator and unit converter.
        tasks: as in `ToolEnv`, instead of a dataset.
        **kwargs: as in `ToolEnv`.

    Raises:
        ValueError: for a dataset that cannot be used.
    """

    system_prompt: ClassVar[str] = (
        "Answer the question with the help of the tools. When you know the answer, write the number alone between <answer> and </answer>."
    )

    def __init__(
        self,
        *,
        dataset: str | Path = "embedded",
        data_dir: str | Path | None = None,
        tools: Sequence[BaseTool | Toolkit | str] | None = None,
        tasks: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        **kwargs: Any,
    ) -> None:
        if tasks is None and str(dataset) != "embedded":
            tasks = _read_tasks(dataset, data_dir)
        self._generated = tasks is None
        super().__init__(tools=("calculator", "unit_converter") if tools is None else tools, tasks=tasks, **kwargs)
        self._done = 0

    def _task(self, options: dict[str, Any]) -> Mapping[str, Any]:
        """Generate the task, or choose it from the given ones; see `ToolEnv._task`."""
        self._done = 0
        if not self._generated or "task" in options:
            return super()._task(options)
        number = whole_number("options['index']", options["index"]) if "index" in options else int(self.np_random.integers(2**53))
        if number < 0:
            raise ValueError(f"options['index'] is {number}; tasks are counted from 0")
        task = self._generate(number)
        self.task_id = str(task["id"])
        return task

    def _generate(self, number: int) -> Mapping[str, Any]:
        """Make the generated task of a number, with `id`, `question`, `answer` and `plan`."""
        return make_task(self.split, number)

    def _after_calls(self, results: Sequence[CallResult]) -> Score:
        """Follow the plan of the task as far as the calls have; see `ToolEnv._after_calls`."""
        plan = self.task.get("plan") or ()
        for one in results:
            if (
                self._done < len(plan)
                and one.error is None
                and one.name == plan[self._done]["name"]
                and one.text == plan[self._done]["result"]
            ):
                self._done += 1
        return Score()

    def expert(self) -> Callable[[], str] | None:
        """Return the expert of a generated task (or of a row with a `plan` of calls): the next calls of the plan, then the answer.

        It makes one call per reply, and several where there are more of them than replies left.

        Returns:
            The function; None for rows without a plan.
        """
        return self._next_right_action if self._generated or self.task.get("plan") is not None else None

    def _next_right_action(self) -> str:
        if not self.task:
            raise ResetNeeded("no task has begun; call reset() before you ask the expert")
        left = (self.task.get("plan") or ())[self._done :]
        turns = self.max_turns - self.turn - 1
        if turns > 0:
            for count in range(min(self.max_parallel_calls, -(-len(left) // turns)), 0, -1):
                text = self._calls_text([(step["name"], step["arguments"]) for step in left[:count]])
                if text is not None:
                    return text
        return f"{self.tool_format.close_reasoning(self._prefix)}<answer>{accepted_of(self.task)[0]}</answer>"


def _read_tasks(dataset: str | Path, data_dir: str | Path | None) -> list[Mapping[str, Any]]:
    path = Path(data_dir or "") / Path(dataset)
    if not path.is_file():
        raise ValueError(
            f"dataset must be 'embedded' or the path of a file with rows of question and answer, and {str(path)!r} is no file; "
            "this environment has no official data set"
        )
    return [row for _where, row in read_rows(path)]
