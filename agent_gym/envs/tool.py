"""`ToolEnv`: tasks that are solved by calling tools.

A reply is read for tool calls, they are checked and run at once, and each is answered by one message of role tool. The episode ends by an
answer (`<answer>...</answer>` outside reasoning, in one piece, in that reply alone), by a tool that says so, or by a reply that holds no call and no
beginning of one. A broken call ends nothing: it is answered by a line that says what is wrong with it.

Your own task in a few lines:

    env = ToolEnv(tools=[my_function_tool], tasks=[{"question": "What is 6 times 7?", "answer": "42"}])

For more, subclass `ToolEnv` and override what differs; the hooks, in the order in which they are called:

    _task(options)            -> the task of this episode (any mapping); sets `self.task_id`
    _messages()               -> the first prompt's messages, made from `self.task`
    _after_calls(results)     -> a `Score` for the turn, after its calls have been run (default: nothing)
    _score(answer, content)   -> a `Score` for the end: the answer, or None, and the text outside calls and reasoning

`self.task` and `self.state` (shared with the tools as `context.state`) live as long as the episode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from agent_gym._background import workers
from agent_gym.chat import Message, load_tokenizer
from agent_gym.context import Append
from agent_gym.core import Action, AgentEnv, Observation, Outcome
from agent_gym.data.samples import is_sample
from agent_gym.envs.answers import accepted_of, answers_match
from agent_gym.envs.judge import JudgeFunction
from agent_gym.envs.row_rewards import RowReward, RowRewards, final_answer, own_reward
from agent_gym.envs.tool_prompt import PromptEnd, ToolPrompt, turn_end_ids
from agent_gym.envs.whole_numbers import task_index, whole_number
from agent_gym.tools.base import BaseTool, ToolContext, Toolkit
from agent_gym.tools.execution import CallResult, ToolSet, arun_calls, run_calls
from agent_gym.tools.formats import ToolCallFormat
from agent_gym.tools.parsing import ParsedAction, get_format
from agent_gym.trajectory import StopReason

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Score", "ToolEnv"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_MODEL_ERRORS = frozenset(("invalid_json", "unknown_tool", "invalid_arguments", "limit"))  # the model's mistakes; the rest is the tool's
_MESSAGE_OVERHEAD = 32  # tokens around one tool message: its role, its markers and the mark of a cut
_LEAST = 16  # tokens of its own that every result is shown with
_FLOOR = 256  # tokens of results that every later turn can count on


@dataclass(frozen=True, slots=True)
class Score:
    """What a turn or an answer is worth.

    Attributes:
        reward: the sum of all parts.
        parts: the reward's named summands; None puts all of it on the first of `reward_part_names`.
        is_success: whether the task is solved.
        metrics: further info; the keys must stand in the environment's `extra_info`.
    """

    reward: float = 0.0
    parts: Mapping[str, float] | None = None
    is_success: bool = False
    metrics: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


_NO_SCORE = Score()
Reward = Callable[[str | None, Mapping[str, Any]], "float | bool | Score"]
_Result = TypeVar("_Result")


class ToolEnv(AgentEnv):
    """A task that is solved by calling tools.

    A seed draws another row in each split, also where all splits have the same rows; `options={"index": i}` is the i-th row in any split.

    Where the context only grows (`context="append"`), results are cut shorter than `max_tool_result_tokens` when the turns to come would
    find no room otherwise, and under a token budget when the turn itself would find none beside the task. Under the defaults an episode whose first prompt has up to 4,000 tokens never ends by
    `StopReason.CONTEXT_LIMIT`, however many calls it holds.

    Tool schemas are text of the world: control tokens and markers that stand in them are shown as text.

    Args:
        tools: tools (`BaseTool`, or made by `agent_gym.tools.tool`), names of registered ones, and toolkits (`agent_gym.tools.mcp.MCPTools`),
            which this environment opens and closes.
        tasks: rows, each a mapping with `question` (a text) or `prompt` (a text or chat messages), and `answer` (a text, a number, or a
            list of accepted ones) or `reward_model["ground_truth"]`; `id` and anything else is kept. A mapping from split to rows gives
            each split its own.
        reward: called with the answer (None where the reply had none) and the task; returns a number, a bool or a `Score`. Without it an
            answer that equals an accepted one gives 1, as numbers where both are numbers, else as text without regard to case and blanks.
        judge: judges the answers of rows whose `reward_model.style` is "model": a function, a registered name, or the address of a server (see
            `agent_gym.envs.judge`).
        allow_functions: whether rows whose `reward_model.style` is "function" may name functions to import; registered ones they always may.
        tool_format: how calls are written: a name of `agent_gym.tools.FORMATS` ("hermes", "gpt_oss", "kimi" and so on), "auto", or a
            response template.
        max_parallel_calls: calls of one turn beyond it are not run, and together answered by one error.
        system_prompt: text of the first message; None for the environment's own.
        tokenizer: see `AgentEnv`.
        markers: further literals that text from the world must not forge.
        **kwargs: see `AgentEnv`.

    Raises:
        ValueError: for tools, tasks or formats that cannot be used.
    """

    reward_part_names: ClassVar[tuple[str, ...]] = ("task", "tools")
    extra_info: ClassVar[Mapping[str, Any]] = {
        "n_tool_calls": 0,
        "n_tool_errors": 0,
        "n_malformed": 0,
        "answer": "",
        "total_tool_calls": 0,
        "total_tool_errors": 0,
        "tools": "",
    }
    """Of the last reply: calls that were written, those among them that failed, those that could not be read, and the answer. Of the episode
    so far: the sums of `n_tool_calls` and `n_tool_errors`. And the names of the tools, oracles marked as such (`BaseTool.oracle`)."""
    setting_names: ClassVar[tuple[str, ...]] = (*AgentEnv.setting_names, "tools")
    system_prompt: ClassVar[str] = (
        "Solve the task with the help of the tools. When you know the answer, write it between <answer> and </answer>, and nothing else "
        "between them."
    )

    def __init__(
        self,
        *,
        tools: Sequence[BaseTool | Toolkit | str] = (),
        tasks: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        reward: Reward | None = None,
        judge: str | Mapping[str, Any] | JudgeFunction | None = None,
        allow_functions: bool = False,
        tool_format: str | Mapping[str, Any] | ToolCallFormat = "hermes",
        max_parallel_calls: int = 4,
        system_prompt: str | None = None,
        tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
        markers: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        whole_number("max_parallel_calls", max_parallel_calls, 1)
        if reward is not None and not callable(reward):
            raise ValueError(f"reward must be None or a callable (answer, task) -> number, not {reward!r}")
        opened = load_tokenizer(tokenizer)
        self.tool_set = ToolSet(tools)
        self.tool_format = get_format(tool_format, opened)
        self.max_parallel_calls = int(max_parallel_calls)
        self._schemas = self.tool_set.schemas
        prompt = ToolPrompt(opened, self.tool_format, self._schemas, markers=markers, template_kwargs=kwargs.get("template_kwargs"))
        kwargs["end_of_turn_ids"] = (*kwargs.get("end_of_turn_ids", ()), *turn_end_ids(opened, self.tool_format))
        super().__init__(tokenizer=opened, markers=(*self.tool_format.markers, *markers), tools=prompt.tools, **kwargs)
        self._system_text = prompt.system_text(self.system_prompt if system_prompt is None else system_prompt)
        self._tool_text = prompt.system_text("")
        self._prompt_end = PromptEnd(self.chat)
        self._reward = reward
        self._row_rewards = RowRewards(judge, allow_functions)
        self._row_reward: RowReward | None = None
        self._rows = _rows_of_split(tasks, self.split)
        self._require_answers(self._rows, "tasks")
        self.task: Mapping[str, Any] = _NOTHING
        self.state: dict[str, Any] = {}
        self._given = False
        self._entropy = 0
        self._total_calls = self._total_errors = 0

    # ------------------------------------------------------------------------------------------------ hooks

    def _task(self, options: dict[str, Any]) -> Mapping[str, Any]:
        """Choose the task of this episode and set `self.task_id`.

        Args:
            options: of `reset`: `{"task": row}`, `{"index": i}`, or nothing.

        Returns:
            The task.

        Raises:
            ValueError: if there are no tasks, or the index is outside of them.
        """
        if "task" in options:
            row: Mapping[str, Any] = options["task"]
            if not isinstance(row, Mapping):
                raise ValueError(f"options['task'] must be a row (a mapping), not {row!r}")
            self._require_answers([row], "options['task']")
            self.task_id = str(row.get("id", "given"))
            return row
        if not self._rows:
            raise ValueError(
                f"{type(self).__name__} has no tasks for the split {self.split!r}: pass tasks=[...], or options={{'task': row}}"
            )
        if "index" in options:
            index = task_index(options, len(self._rows))
        else:
            index = self._drawn(len(self._rows))
        row = self._rows[index]
        self.task_id = str(row.get("id", f"{self.split}-{index}"))
        return row

    def _require_answers(self, rows: Sequence[Mapping[str, Any]], where: str) -> None:
        """Refuse rows whose answers are none, where it is we who compare them: before an episode is played, not behind it."""
        if self._reward is None and type(self)._score is ToolEnv._score:
            for index, row in enumerate(rows):
                if own_reward(row):
                    continue
                accepted_of(row, f"{where}[{index}]" if where == "tasks" else where)

    def _drawn(self, n: int) -> int:
        """Draw an index below `n` from the seed and the split, so that one seed names different rows in different splits."""
        entropy = [self.splits.index(self.split), int(self.np_random.integers(2**53))]
        return int(np.random.default_rng(np.random.SeedSequence(entropy)).integers(n))

    def _messages(self) -> list[Message]:
        """Make the first prompt from `self.task`.

        Returns:
            Chat messages; the system message comes first unless the task brings its own.
        """
        prompt = self.task.get("prompt", self.task.get("question"))
        if isinstance(prompt, str):
            return [self._system_message(), {"role": "user", "content": prompt}]
        if not isinstance(prompt, Sequence) or not prompt:
            raise ValueError(
                f"task {self.task_id!r} has no 'question' and no 'prompt' that is a text or a list of chat messages: "
                f"{dict(self.task)!r:.300}"
            )
        messages = [self._given_message(index, one) for index, one in enumerate(prompt)]
        return self._with_system(messages)

    def _given_message(self, index: int, message: Any) -> Message:
        """A message of the task's own prompt; its content may be parts, of which those of type text are shown."""
        from agent_gym.data.samples import message_text

        if (
            not isinstance(message, Mapping)
            or not isinstance(message.get("role"), str)
            or not isinstance(message.get("content"), (str, list, tuple))
        ):
            raise ValueError(f"task {self.task_id!r}: prompt[{index}] must be a message with 'role' and 'content', not {message!r:.200}")
        return {"role": str(message["role"]), "content": message_text(message)}

    def _after_calls(self, results: Sequence[CallResult]) -> Score:
        """Take note of what the calls of a turn brought, and reward the turn if it deserves it.

        Args:
            results: one per call, in order; rewards of the tools themselves are added by the caller.

        Returns:
            The turn's score; its `is_success` and `metrics` go into info.
        """
        return _NO_SCORE

    def _score(self, answer: str | None, content: str) -> Score:
        """Judge the end of the episode.

        Args:
            answer: the text of the answer tag, stripped; None where the reply has none.
            content: the reply's text outside reasoning and calls.

        Returns:
            The score.
        """
        if self._reward is not None:
            value = self._reward(answer, self.task)
            return value if isinstance(value, Score) else Score(float(value), is_success=float(value) >= 1.0)
        if answer is None and is_sample(self.task):
            answer = final_answer(content)
        right = answer is not None and any(answers_match(answer, one) for one in accepted_of(self.task))
        return Score(float(right), is_success=right)

    def _final_score(self, answer: str | None, content: str) -> Score:
        """The score of the end: the environment's own, or what the row says that its reward is."""
        if self._row_reward is None:
            return self._score(answer, content)
        worth = self._row_reward(answer, content)
        metrics = _NOTHING if type(self)._score is ToolEnv._score else self._score(answer, content).metrics
        return Score(worth, is_success=worth >= 1.0, metrics=metrics)

    @property
    def _prefix(self) -> str:
        """What the present prompt ends with, which may have opened reasoning."""
        return self._prompt_end.of(self._prompt[: self._length])

    def encode_action(self, text: str) -> list[int]:
        """Return the ids of a reply written by hand, in the form of the format's family; see `AgentEnv.encode_action`.

        Args:
            text: the reply.

        Returns:
            Token ids for `step`.
        """
        return self.chat.encode_action(*self.tool_format.as_reply(text))

    # ------------------------------------------------------------------------------------------------ the episode

    def _begin(self, options: dict[str, Any]) -> Observation:
        """Start a task; see `AgentEnv._begin`."""
        self.tool_set.begin_episode()
        self.task = self._task(options)
        given = options.get("task")
        self._given = "task" in options
        row = given if isinstance(given, Mapping) and is_sample(given) else self.task
        self._row_reward = None if self._reward is not None else self._row_rewards.of(row, f"task {self.task_id!r}")
        self._entropy = int(self.np_random.integers(2**62))
        self.state = {}
        self._total_calls = self._total_errors = 0
        return Observation(messages=self._messages())

    def _source_name(self, dataset: str) -> str:
        """Where the present task is from, for info: this data set, or "given" where `reset` was handed the task."""
        return "given" if self._given else dataset

    def _respond(self, action: Action) -> Outcome:
        """Answer a reply; see `AgentEnv._respond`."""
        parsed = self.tool_format.parse(action.text, prefix=self._prefix, tools=self._schemas)
        ended = self._without_calls(parsed)
        if ended is not None:
            return ended
        results = run_calls(self.tool_set, parsed.calls, self._context(), max_parallel_calls=self.max_parallel_calls)
        return self._with_results(action, parsed, results)

    async def _arespond(self, action: Action) -> Outcome:
        """Answer a reply in an event loop; see `AgentEnv._arespond`."""
        parsed = self.tool_format.parse(action.text, prefix=self._prefix, tools=self._schemas)
        ended = await self._aside(lambda: self._without_calls(parsed))
        if ended is not None:
            return ended
        results = await arun_calls(self.tool_set, parsed.calls, self._context(), max_parallel_calls=self.max_parallel_calls)
        return await self._aside(lambda: self._with_results(action, parsed, results))

    async def _aside(self, call: Callable[[], _Result]) -> _Result:
        """Make a call, in a worker thread where a judge or a function of a row may be asked: they wait, and the loop must not."""
        return call() if self._row_reward is None else await asyncio.wrap_future(workers.submit(call))

    def close(self) -> None:
        """Close what the tools hold open."""
        self.tool_set.close()
        super().close()

    def _context(self) -> ToolContext:
        return ToolContext(self.task, self.turn, 0, None, self.state, self._entropy)

    def _without_calls(self, parsed: ParsedAction) -> Outcome | None:
        """The outcome of a reply that answers, or has no call; None where there are calls to run."""
        answer = parsed.answer
        if answer is not None:
            return self._end(StopReason.ANSWER, self._final_score(answer, parsed.content), answer, len(parsed.calls))
        if parsed.calls:
            return None
        if parsed.has_marker:
            text = "Error (invalid_json): there is a part of a tool call, and no whole one. Nothing was run."
            info = {"action_valid": False, "n_malformed": 1}
            return Outcome(Observation(messages=({"role": "tool", "content": text},)), info=info)
        return self._end(StopReason.NO_CALL, self._final_score(None, parsed.content), "", 0)

    def _with_results(self, action: Action, parsed: ParsedAction, results: Sequence[CallResult]) -> Outcome:
        """The outcome of a reply whose calls have been run."""
        score = self._after_calls(results)
        errors = [one.error for one in results if one.error is not None]
        paid = [one.reward for one in results if one.reward is not None]
        finished = next((one for one in results if one.terminated), None)
        answer = ""
        if finished is not None:
            score, answer = self._finish(finished, score, parsed.content)
        failed = len(errors) - errors.count("invalid_json")
        self._total_calls += len(results)
        self._total_errors += failed
        info: dict[str, Any] = {
            "action_valid": not errors or _MODEL_ERRORS.isdisjoint(errors),
            "is_success": score.is_success,
            "reward_parts": self._parts(score, paid),
            "n_tool_calls": len(results),
            "n_tool_errors": failed,
            "n_malformed": errors.count("invalid_json"),
            "answer": answer,
            **score.metrics,
        }
        if finished is not None:
            info["stop_reason"] = StopReason.FINISH_CALL
        reward = score.reward + sum(paid)
        limit = self._result_limit(len(action.token_ids), min(len(results), self.max_parallel_calls + 1))
        return Outcome(Observation(messages=self._tool_messages(results, limit)), reward, finished is not None, info)

    def _finish(self, finished: CallResult, turn: Score, content: str) -> tuple[Score, str]:
        """The score of an episode that a tool ends. One that names an answer in its info is judged by it."""
        answer = finished.info.get("answer")
        if answer is None:
            success = finished.info.get("is_success", (finished.reward or 0.0) > 0.0)
            try:
                success = bool(success)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"the tool {finished.name!r} returned info={{'is_success': {success!r:.100}}}; it must be a bool"
                ) from error
            return Score(turn.reward, turn.parts, turn.is_success or success, turn.metrics), ""
        last = self._final_score(str(answer), content)
        parts = {**self._parts(turn, ())}
        for name, value in self._parts(last, ()).items():
            parts[name] = parts.get(name, 0.0) + value
        return Score(turn.reward + last.reward, parts, last.is_success, {**turn.metrics, **last.metrics}), str(answer)

    def _end(self, reason: StopReason, score: Score, answer: str, n_calls: int) -> Outcome:
        """The outcome of a reply that ends the episode. Calls beside an answer are not run."""
        self._total_calls += n_calls
        info = {
            "stop_reason": reason,
            "is_success": score.is_success,
            "reward_parts": self._parts(score, ()),
            "n_tool_calls": n_calls,
            "answer": answer,
            **score.metrics,
        }
        return Outcome(Observation(messages=()), score.reward, True, info)

    def _parts(self, score: Score, paid: Sequence[float]) -> dict[str, float]:
        parts = {self.reward_part_names[0]: score.reward} if score.parts is None else dict(score.parts)
        if paid:
            parts["tools"] = parts.get("tools", 0.0) + float(sum(paid))
        return parts

    def _info(self, feedback: str, given: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        standing = {"total_tool_calls": self._total_calls, "total_tool_errors": self._total_errors, "tools": self.tool_set.told}
        return super()._info(feedback, {**standing, **given}, *args, **kwargs)

    def _calls_text(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str | None:
        """Write calls as one reply, for experts.

        Args:
            calls: name and arguments of each.

        Returns:
            The text; None where the format cannot write them so that they are read back as they are, where there is no such tool, or where
            the reply would be too long.
        """
        try:
            written = self.tool_format.render_calls((name, dict(arguments)) for name, arguments in calls)
        except ValueError:
            return None
        text = self.tool_format.close_reasoning(self._prefix) + written
        read = self.tool_format.parse(text, prefix=self._prefix, tools=self._schemas)
        whole = [(one.name, one.arguments) for one in read.calls if one.error is None] == [(name, dict(given)) for name, given in calls]
        known = all(name in self.tool_set for name, _ in calls)
        return text if whole and known and len(self.encode_action(text)) <= self.max_action_tokens else None

    def _result_limit(self, action_tokens: int, messages: int) -> int:
        """Where each of a turn's results is cut: at `max_tool_result_tokens`, or before it where they, or the turns to come, would find no room."""
        if not isinstance(self.context, Append):
            room = self._answer_room(action_tokens)
            fair = self.max_tool_result_tokens if room is None else room // max(1, messages) - _MESSAGE_OVERHEAD
            return max(_LEAST, min(self.max_tool_result_tokens, fair))
        floor = max(_FLOOR, (self.max_parallel_calls + 1) * (_LEAST + _MESSAGE_OVERHEAD))
        later = max(0, self.max_turns - self.turn - 1)
        reserved = later * (self.max_action_tokens + 2 * _MESSAGE_OVERHEAD + floor)
        free = self.max_observation_tokens - self._length - action_tokens - reserved
        return max(_LEAST, min(self.max_tool_result_tokens, free // max(1, messages) - _MESSAGE_OVERHEAD))

    def _tool_messages(self, results: Sequence[CallResult], limit: int) -> list[Message]:
        """One tool message per call, its text cut to `limit` tokens; the calls beyond `max_parallel_calls` share one."""
        messages: list[Message] = [{"role": "tool", "content": one.text, "max_tokens": limit} for one in results if one.error != "limit"]
        surplus = len(results) - len(messages)
        if surplus:
            many = "calls were" if surplus > 1 else "call was"
            text = f"Error (limit): {surplus} further {many} not run: at most {self.max_parallel_calls} are run in one turn."
            messages.append({"role": "tool", "content": text})
        return messages

    # ------------------------------------------------------------------------------------------------ the first prompt

    def _system_message(self) -> Message:
        """The system message: our own text, in which the format's markers may stand for what they are."""
        return {"role": "system", "content": self._system_text, "trusted": True}

    def _with_system(self, messages: Sequence[Message]) -> list[Message]:
        """The messages of a row behind our system message, or behind their own, which is its author's and is told of the tools as ours is."""
        first = messages[0]
        if first["role"] != "system":
            return [self._system_message(), *messages]
        return [{**first, "content": f"{first['content']}\n\n{self._tool_text}".strip(), "trusted": True}, *messages[1:]]

    @property
    def num_tasks(self) -> int | None:
        """The number of tasks given for this split; None where there are none."""
        return len(self._rows) or None


def _rows_of_split(tasks: Any, split: str) -> Sequence[Mapping[str, Any]]:
    if tasks is None:
        return ()
    if isinstance(tasks, Mapping):
        if split not in tasks:
            raise ValueError(f"tasks has the splits {sorted(tasks)}, and not {split!r}")
        tasks = tasks[split]
    rows = list(tasks)
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping) or not ({"question", "prompt"} & set(row)):
            raise ValueError(f"tasks[{index}] must be a mapping with 'question' or 'prompt', not {row!r:.200}")
    return rows
