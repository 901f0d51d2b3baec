"""`AgentR1/GSM8K-v0`: word problems, worked out with a calculator.

The default problems are generated (`agent_gym.data.gsm8k_world`); GSM8K's own files (Cobbe et al., arXiv 2110.14168) and rows of the sample schema
are read as they are. The reply that ends an episode gives its answer in `<answer>` tags, or as solutions of GSM8K do, behind the last `####`. Answers
are compared as decimal numbers, never as texts: `1,800`, `$1800`, `1800.` and `1800.00` are the same answer, and of several numbers the first
one counts. Reward 1 or 0.

Agent-R1 (arXiv 2511.14460) gives the model another tool, `calc_gsm8k_reward`, which knows the solution and says whether an answer is right.
`oracle_tool=True` adds it; `info["tools"]`, and with it every evaluation, then says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_gym.core import Outcome
from agent_gym.data.gsm8k import gsm8k_task, open_gsm8k
from agent_gym.data.gsm8k_world import gsm8k_row
from agent_gym.envs.answers import accepted_of
from agent_gym.envs.tool import Score
from agent_gym.envs.tool_tasks import ToolTaskEnv
from agent_gym.envs.whole_numbers import switch
from agent_gym.tools.base import BaseTool
from agent_gym.tools.gsm8k import GSM8KOracle
from agent_gym.tools.numbers import find_number, marked_answer
from agent_gym.tools.parsing import ParsedAction
from agent_gym.trajectory import StopReason

__all__ = ["GSM8KEnv"]


class GSM8KEnv(ToolTaskEnv):
    """Word problems with a calculator.

    Args:
        split: "train", "validation" or "test"; no generated problem stands in two. GSM8K itself has no validation set.
        dataset: "embedded" (generated), "official" (needs `data_dir`, the folder with train.jsonl and test.jsonl), the path of a file or of a
            folder with one file per split, or rows.
        data_dir: where "official" files lie and relative paths begin.
        tools: None for the calculator; your own tools instead.
        oracle_tool: adds `calc_gsm8k_reward`, which tells the model whether an answer is right.
        **kwargs: see `ToolEnv` and `AgentEnv`.

    Raises:
        ValueError: for keywords that cannot be used, or a malformed row.
        FileNotFoundError: for a dataset that is not there.
    """

    system_prompt: ClassVar[str] = (
        "Solve the problem step by step, and do the sums with the calculator. When you know the answer, write the number alone between <answer> and "
        "</answer>."
    )
    extra_info: ClassVar[Mapping[str, Any]] = {**ToolTaskEnv.extra_info, "dataset": "", "question_type": ""}
    """Beside those of `ToolEnv`: where the task is from; "3 steps" for a solution of three sums."""
    setting_names: ClassVar[tuple[str, ...]] = ("dataset", "tools")
    breakdown_names: ClassVar[tuple[str, ...]] = ("question_type",)

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str | Path | Iterable[Mapping[str, Any]] = "embedded",
        data_dir: str | Path | None = None,
        tools: Sequence[BaseTool | str] | None = None,
        oracle_tool: bool = False,
        **kwargs: Any,
    ) -> None:
        if "tasks" in kwargs:
            raise ValueError("GSM8KEnv takes rows as dataset=[...], which it reads like those of a file; tasks= belongs to ToolEnv")
        self.dataset = "embedded"
        tasks: Sequence[Mapping[str, Any]] | None = None
        if split not in self.splits:  # before a file of that name is looked for
            raise ValueError(f"split must be one of {', '.join(self.splits)}, not {split!r}")
        if not isinstance(dataset, str) or dataset != "embedded":
            self.dataset, tasks = open_gsm8k(dataset, split=split, data_dir=data_dir)
        chosen: list[BaseTool | str] = ["calculator"] if tools is None else list(tools)
        if switch("oracle_tool", oracle_tool):
            chosen.append(GSM8KOracle(ground_truth=lambda: accepted_of(self.task)))
        super().__init__(split=split, tools=chosen, tasks=tasks, **kwargs)

    # ------------------------------------------------------------------------------------------------ the task

    def _task(self, options: dict[str, Any]) -> Mapping[str, Any]:
        """Generate the task, or choose it; a row that is given is read like one of a file. See `ToolEnv._task`."""
        if "task" in options:
            options = {**options, "task": gsm8k_task(options["task"], where="options['task']")}
        return super()._task(options)

    def _generate(self, number: int) -> Mapping[str, Any]:
        return gsm8k_task(gsm8k_row(self.split, number))

    def _info(self, feedback: str, given: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        steps = len(self.task.get("plan") or ())
        standing = {
            "dataset": self._source_name(self.dataset),
            "question_type": f"{steps} step{'' if steps == 1 else 's'}" if steps else "",
        }
        return super()._info(feedback, {**standing, **given}, *args, **kwargs)

    # ------------------------------------------------------------------------------------------------ the episode

    def _without_calls(self, parsed: ParsedAction) -> Outcome | None:
        """A reply without a call whose last line is `#### n` answers too; see `ToolEnv._without_calls`."""
        if parsed.answer is None and not parsed.calls and not parsed.has_marker:
            marked = marked_answer(parsed.content)
            if marked is not None:
                return self._end(StopReason.ANSWER, self._final_score(marked, parsed.content), marked, 0)
        return super()._without_calls(parsed)

    def _score(self, answer: str | None, content: str) -> Score:
        """Compare the answer as a decimal number; see `ToolEnv._score`."""
        if self._reward is not None:
            return super()._score(answer, content)
        given = None if answer is None else find_number(marked_answer(answer) or answer)
        right = given is not None and any(given == find_number(one) for one in accepted_of(self.task))
        return Score(float(right), is_success=right)
