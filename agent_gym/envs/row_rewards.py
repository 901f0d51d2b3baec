r"""What a row of the sample schema says of its own reward: `reward_model.style`.

- `"rule"` (or nothing): the environment's own rule, which compares with `reward_model.ground_truth`.
- `"model"`: a judge (`agent_gym.envs.judge`): the environment's `judge=`, or one of the registered ones that the row names in
  `reward_model.judge`. `reward_model.criteria` is handed to it. A row never brings an address: what a model wrote is sent where the user says.
- `"function"`: a function named in `reward_model.function`: a registered one (`@register_reward("name")`), or "module:function", which is imported
  only where the user has said `allow_functions=True`, since importing a module runs its code. It is called as verl and Agent-R1 call theirs:
  `function(data_source=..., solution_str=..., ground_truth=..., extra_info=...)`, with the text of the last reply outside reasoning and calls, and
  returns a number, or a mapping with "score".

The answer of a reply without an answer tag is what stands behind its last `####`, or in its last `\boxed{}`: rows bring prompts of their own, and
ask for those.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_gym._names import nearest
from agent_gym.core import EnvFault
from agent_gym.data.samples import Sample, json_object, parse_sample
from agent_gym.envs.judge import JudgeFunction, as_judge

__all__ = [
    "STYLES",
    "RowReward",
    "RowRewards",
    "final_answer",
    "own_reward",
    "register_reward",
    "reward_names",
    "style_of",
]

STYLES = ("rule", "model", "function")

RewardFunction = Callable[..., Any]
_Function = TypeVar("_Function", bound=RewardFunction)
_FUNCTIONS: dict[str, RewardFunction] = {}


def register_reward(name: str) -> Callable[[_Function], _Function]:
    """Register a reward function under a name, by which rows name it (`reward_model.function`).

    Args:
        name: any text without a colon.

    Returns:
        A decorator that returns what it decorates.

    Raises:
        ValueError: if the name is taken by another function, or has a colon.
        TypeError: if what is decorated cannot be called.
    """
    if ":" in name or not name:
        raise ValueError(f"{name!r} is no name for a reward function; give a word without a colon")

    def add(function: _Function) -> _Function:
        if not callable(function):
            raise TypeError(f"a reward is a function, not {function!r}")
        if _FUNCTIONS.get(name, function) is not function:
            raise ValueError(f"a reward function named {name!r} is registered already; choose another name")
        _FUNCTIONS[name] = function
        return function

    return add


def reward_names() -> list[str]:
    """Return the registered names, sorted.

    Returns:
        The names; empty where none is registered.
    """
    return sorted(_FUNCTIONS)


def find_function(name: str, *, allow_functions: bool, where: str = "row") -> RewardFunction:
    """Return the reward function that a row names.

    Args:
        name: a registered name, or "module:function".
        allow_functions: whether a module that a row names may be imported.
        where: file and row, for error texts.

    Returns:
        The function.

    Raises:
        ValueError: if there is no such function, or it may not be imported; the text names where and the field.
    """
    field = f"{where}: field 'reward_model.function'"
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        known = f"; registered are {', '.join(reward_names())}" if _FUNCTIONS else ""
        raise ValueError(f"{field} names {name!r}, and no reward function is registered under it{nearest(name, _FUNCTIONS) or known}")
    if not allow_functions:
        raise ValueError(
            f"{field} names {name!r}, which would import the module {module!r}: code is imported for a row only where you say so "
            "(--allow-functions, allow_functions=True); or register the function (agent_gym.envs.row_rewards.register_reward)"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{field} names {name!r}, which cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"{field} names {name!r}, which is no function but {found!r:.100}")
    function: RewardFunction = found
    return function


def style_of(sample: Sample) -> str:
    """Return the style of a row's reward.

    Args:
        sample: the row. Styles that begin with "rule" are rules, such as verl's "rule-lighteval/MATH_v2"; no style at all is one too.

    Returns:
        One of `STYLES`.

    Raises:
        ValueError: for an unknown style; the text names where and the field.
    """
    if not sample.style or sample.style.startswith("rule"):
        return "rule"
    if sample.style not in STYLES:
        raise ValueError(
            f"{sample.where or 'row'}: field 'reward_model.style' is {sample.style!r}, and it is one of {', '.join(STYLES)}{nearest(sample.style, STYLES)}"
        )
    return sample.style


def own_reward(row: Mapping[str, Any]) -> bool:
    """Whether a row says that its reward is another than the environment's rule.

    Args:
        row: any task; `reward_model` may be a JSON string.

    Returns:
        True for a style other than a rule, known or not.
    """
    model = row.get("reward_model")
    if isinstance(model, str) and model.strip():
        model = json_object(model, name="reward_model")
    return isinstance(model, Mapping) and not str(model.get("style") or "rule").startswith("rule")


def final_answer(content: str) -> str | None:
    r"""Return the answer of a reply that has no answer tag: what stands behind its last `####`, else in its last `\boxed{}`.

    Args:
        content: the reply's text outside reasoning and calls.

    Returns:
        The answer, stripped; None where there is neither.
    """
    at = content.rfind("####")
    if at >= 0:
        return content[at:].lstrip("#").strip().split("\n", 1)[0].strip() or None
    start = content.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed")
    for place in range(begin, len(content)):
        depth += (content[place] == "{") - (content[place] == "}")
        if depth == 0:
            return content[begin + 1 : place].strip() or None
    return None


@dataclass(frozen=True, slots=True)
class RowReward:
    """The reward of one row that is not the environment's own rule.

    Attributes:
        sample: the row.
        judge: says what an answer is worth, or None.
        function: says what the last reply is worth, or None.
    """

    sample: Sample
    judge: JudgeFunction | None = None
    function: RewardFunction | None = None

    def __call__(self, answer: str | None, content: str) -> float:
        """Judge the end of an episode.

        Args:
            answer: in the answer tag; None where there was none.
            content: the last reply outside reasoning and calls.

        Returns:
            A finite number.

        Raises:
            EnvFault: if the judge or the function gives none. A function's own exception is one: the reply is not to blame, and is not punished.
        """
        sample = self.sample
        if self.judge is not None:
            text = answer if answer is not None else final_answer(content) or content
            value: Any = self.judge(sample.question, text.strip(), sample.answers, str(sample.reward_model.get("criteria", "")))
            return _finite(value, "the judge", sample)
        assert self.function is not None
        name = f"the reward function {sample.reward_model.get('function')!r}"
        try:
            value = self.function(
                data_source=sample.data_source,
                solution_str=content,
                ground_truth=sample.ground_truth,
                extra_info={**sample.extra_info},
            )
        except EnvFault:
            raise
        except Exception as error:  # whatever a user's function raises
            raise EnvFault(f"{name} failed on {sample.where or 'a row'}: {type(error).__name__}: {error}") from error
        return _finite(value.get("score") if isinstance(value, Mapping) else value, name, sample)


def _finite(value: Any, who: str, sample: Sample) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, (str, bytes)):
        raise EnvFault(f"{who} returned {value!r:.100} for {sample.where or 'a row'}, and a reward is a finite number")
    return number


class RowRewards:
    """Makes the rewards of rows, with what the user allowed.

    Args:
        judge: of rows with the style "model"; see `as_judge`.
        allow_functions: whether rows may name functions that are not registered.

    Raises:
        ValueError: for a judge that cannot be used.
    """

    def __init__(self, judge: str | Mapping[str, Any] | JudgeFunction | None = None, allow_functions: bool = False) -> None:
        self._judge = None if judge is None else as_judge(judge)
        self._allow_functions = bool(allow_functions)

    def of(self, row: Mapping[str, Any], where: str = "row") -> RowReward | None:
        """Return the reward of a row.

        Args:
            row: any task.
            where: names it in errors.

        Returns:
            The reward; None where it is the environment's own rule, as for every row without `reward_model`.

        Raises:
            ValueError: if the row names what is not there, or is malformed.
        """
        if not own_reward(row):
            return None
        sample = parse_sample({"prompt": row.get("question", "-"), **row}, where=where)
        style = style_of(sample)
        if style == "rule":
            return None
        if style == "model":
            return RowReward(sample, judge=self._judge_of(sample))
        name = sample.reward_model.get("function")
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"{where}: field 'reward_model.function' is missing: a row with the style 'function' names a registered function, or 'module:function'"
            )
        return RowReward(sample, function=find_function(name, allow_functions=self._allow_functions, where=where))

    def _judge_of(self, sample: Sample) -> JudgeFunction:
        named = sample.reward_model.get("judge")
        field = f"{sample.where}: field 'reward_model.judge'"
        if named is not None:
            if not isinstance(named, str) or "://" in named:
                raise ValueError(
                    f"{field} must be the name of a registered judge, not {named!r:.100}; an address is given by you (--judge, judge=)"
                )
            try:
                return as_judge(named)
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from error
        if self._judge is None:
            raise ValueError(
                f"{sample.where}: field 'reward_model.style' is 'model', and there is no judge: give the address of an OpenAI-compatible server "
                "(--judge http://127.0.0.1:8000/v1, judge=), or a function (judge=, agent_gym.envs.judge.register_judge)"
            )
        return self._judge
