"""`ReasoningGymEnv`: the tasks of reasoning-gym (github.com/open-thought/reasoning-gym, tested with 0.1.25) as environments of ours.

    env = ReasoningGymEnv(dataset="basic_arithmetic")

Its tasks are questions with one answer, checked by code. They come in the form of `ToolEnv`, so that tools may be added: an episode ends by
`<answer>...</answer>`, and what stands between the tags is scored by reasoning-gym's own `score_answer`. Some of its scorers read the answer as
a formula with sympy, which evaluates it: answers of models belong into a process that may be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from gymnasium.error import ResetNeeded

from agent_gym.adapters._world import PrivateGenerators, need
from agent_gym.core import EnvFault
from agent_gym.envs.tool import Score, ToolEnv
from agent_gym.envs.whole_numbers import task_index, whole_number

__all__ = ["ReasoningGymEnv"]

_BETWEEN_SPLITS = 1_000_000_000  # task i of a split is made from the seed `split * this + i`, so that no task stands in two splits
_LONGEST_ANSWER = 10_000  # characters; scorers take more than linear time


class ReasoningGymEnv(ToolEnv):
    """A data set of reasoning-gym.

    A seed draws another task in each split; `options={"index": i}` is the i-th task of the split. The reward is the score, 0 to 1; a score of at least
    `success_score` is success. An answer that the scorer cannot read scores 0.

    Args:
        dataset: a name that reasoning-gym knows, such as "basic_arithmetic" or "chain_sum".
        config: keywords of its configuration, without seed and size.
        size: tasks of each split.
        success_score: from which score on the task counts as solved.
        max_turns: see `AgentEnv`; without tools one is all that is needed.
        **kwargs: see `ToolEnv`, `tools` among them.

    Raises:
        ImportError: if reasoning-gym is not installed.
        ValueError: for a data set, configuration or size that cannot be used.
    """

    option_names: ClassVar[tuple[str, ...]] = ("index",)
    reward_part_names: ClassVar[tuple[str, ...]] = ("task", "tools")
    setting_names: ClassVar[tuple[str, ...]] = ("dataset",)
    extra_info: ClassVar[Mapping[str, Any]] = {**ToolEnv.extra_info, "dataset": ""}
    system_prompt: ClassVar[str] = (
        "Solve the task. When you know the answer, write it between <answer> and </answer>, and nothing else between them."
    )

    def __init__(
        self,
        *,
        dataset: str = "basic_arithmetic",
        config: Mapping[str, Any] | None = None,
        size: int = 10_000,
        success_score: float = 1.0,
        **kwargs: Any,
    ) -> None:
        for name in ("tasks", "reward"):
            if name in kwargs:
                raise ValueError(f"{name} is no keyword of ReasoningGymEnv: tasks and scores are those of the data set")
        super().__init__(**kwargs)
        self.dataset = dataset
        self.success_score = float(success_score)
        self._size = whole_number("size", size, 1)
        self._generators = PrivateGenerators()
        if self._size > _BETWEEN_SPLITS or {"seed", "size"} & set(config or {}):
            raise ValueError(
                f"size must be at most {_BETWEEN_SPLITS}, and seed and size are no part of config: got size={size}, config={config}"
            )
        reasoning_gym = need("reasoning_gym", "reasoning-gym")
        seed = self.splits.index(self.split) * _BETWEEN_SPLITS
        try:
            with self._generators.using():
                self._tasks = reasoning_gym.create_dataset(dataset, seed=seed, size=self._size, **(config or {}))
        except (AssertionError, TypeError, ValueError) as error:
            raise ValueError(f"reasoning-gym cannot make the data set {dataset!r} with config={dict(config or {})}: {error}") from error

    @property
    def num_tasks(self) -> int | None:
        """The number of tasks of this split."""
        return self._size

    def _task(self, options: dict[str, Any]) -> Mapping[str, Any]:
        """Make the task; see `ToolEnv._task`."""
        index = task_index(options, self._size) if "index" in options else self._drawn(self._size)
        self.task_id = f"{self.dataset}:{self.split}-{index}"
        self._generators.seed(index)
        try:
            with self._generators.using():
                entry = self._tasks[index]
        except (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise EnvFault(f"reasoning-gym could not make task {self.task_id}: {error!r}") from error
        return {"question": str(entry["question"]), "answer": entry["answer"], "entry": entry}

    def _score(self, answer: str | None, content: str) -> Score:
        """Score by reasoning-gym; see `ToolEnv._score`."""
        if answer is None or len(answer) > _LONGEST_ANSWER:
            return Score()
        try:
            with self._generators.using():
                score = float(self._tasks.score_answer(answer, self.task["entry"]))
        except Exception:  # noqa: BLE001  # sympy, json and whatever else reads the model's text: an answer that cannot be read is a wrong one
            score = 0.0
        return Score(score, is_success=score >= self.success_score)

    def _info(self, feedback: str, given: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        return super()._info(feedback, {"dataset": self.dataset, **given}, *args, **kwargs)

    def expert(self) -> Callable[[], str] | None:
        """Return the function that gives the data set's own answer.

        Returns:
            The function; None where the task of the running episode has none.
        """
        return None if self.task and self.task["answer"] is None else self._own_answer

    def _own_answer(self) -> str:
        if not self.task:
            raise ResetNeeded("no task has begun; call reset() before you ask the expert")
        return f"<answer>{self.task['answer']}</answer>"
