"""`AgentR1/PaperSearch-v0`: finding the papers that answer a question, by searching and by following citations.

The default tasks are a generated literature (`agent_gym.data.paper_world`) in which no question can be answered by searching alone; AutoScholarQuery,
RealScholarQuery and rows of the sample schema are read from their files and need a corpus (`papers.jsonl`) or a server (`base_url`).

The pool of found papers is the state, and under `context="rebuild"`, the default, each prompt is made of it anew, as PaperScout and StepPO (arXiv 2604.18401) do.
The reward is of the outcome (the part of the gold papers that a step found; an episode's sum is its recall), of the process (PaperScout: the relevance of the
best new papers of each call, less for repetitions), or both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

from gymnasium.error import ResetNeeded

from agent_gym.chat import Message
from agent_gym.context import Append, ContextPolicy
from agent_gym.core import Action, EnvFault, Outcome
from agent_gym.data.paper_metrics import CUTOFFS, list_scores
from agent_gym.data.paper_tasks import PaperTask, PaperWorldSource, open_paper_tasks, parse_paper_task
from agent_gym.data.papers import DateBound, PaperCorpus, open_papers, parse_date
from agent_gym.data.samples import message_text
from agent_gym.envs.papers.experts import Script, expand_best, next_reply, random_reader, search_only
from agent_gym.envs.papers.http import HttpLibrary
from agent_gym.envs.papers.library import LocalLibrary, PaperLibrary
from agent_gym.envs.papers.pool import Found, PaperPool, ids_of, plain_query
from agent_gym.envs.papers.relevance import BM25Relevance, GoldRelevance, Relevance, RelevanceFunction, open_relevance
from agent_gym.envs.papers.tools import ExpandTool, FinishTool, Lookup, SearchPapersTool, plain_id
from agent_gym.envs.papers.wording import action_line, listing, paper_text, plain
from agent_gym.envs.rebuilt import require_room, shortened, with_text
from agent_gym.envs.tool import Score, ToolEnv
from agent_gym.envs.whole_numbers import whole_number
from agent_gym.tools.execution import CallResult
from agent_gym.tools.parsing import ParsedAction

__all__ = ["PaperSearchEnv"]

_PROMPT = (
    "Find the papers that answer the question. search(query) looks for papers by the words of their title and abstract. expand(paper_id) adds the papers that a "
    "found paper cites and those that cite it; many papers can only be found so. One reply can hold up to {calls} calls, and you have {turns} replies. "
    "Every paper that was found counts as part of your answer. Call finish() when you have them all."
)
_REWARDS = ("outcome", "process", "both")
_DATE_FILTERS = ("strict", "lenient", "off")
_FEEDBACK_LINES = 3
_LONGEST_LINE = 400  # characters
_FIGURES = tuple(f"{name}{ending}" for ending in ("", *(f"_at_{k}" for k in CUTOFFS)) for name in ("recall", "precision", "f1"))


class PaperSearchEnv(ToolEnv):
    """Academic paper search.

    Args:
        split: "train", "validation" or "test"; in the generated worlds they share no invented word.
        dataset: "embedded", "official" (needs `data_dir`), the path of a file or of a folder with one file per split, or rows. A single file and rows are the
            same questions in every split.
        data_dir: where "official" files lie and relative paths begin.
        corpus: the papers of all questions: a `papers.jsonl`, a `PaperCorpus`, rows, or a `PaperLibrary`. None where each question has its own, or a `base_url`.
        base_url: of a server that speaks as Semantic Scholar does, in place of a corpus.
        relevance: what a paper is worth to the process reward, and what it is shown and ranked with: "gold" (paid; shown is "bm25", since the gold list must not
            be), "bm25", "http" (a classification model at `relevance_url`), a function (question, papers) -> numbers, or a `Relevance`.
        relevance_url: see `relevance`.
        reward: "outcome", "process" or "both".
        reward_top_k: so many of the new papers of a call are paid by the process reward, the best ones.
        relevance_threshold: None, or a number: the process reward pays 1 for papers of at least this relevance and 0 for others.
        duplicate_penalty: taken off by the process reward for a search or an expansion that was made before, and for the expansion of a paper that was not found.
        search_cost, expand_cost: taken off by the process reward for each search and expansion that was run.
        top_k: papers of a search.
        citations_limit, references_limit: papers of an expansion, in either direction.
        min_relevance: papers that are shown with a lower number are not kept; under "gold" none is left out.
        published_before: a day; papers must have appeared before it, and before the question's own day. None for the question's own.
        date_filter: "strict": papers are found that certainly appeared before that day. "lenient": all but those that certainly did not. "off": all.
        pool_size: papers that a rebuilt prompt shows.
        abstract_words: where a shown abstract is cut.
        max_parallel_calls: calls that one reply may hold.
        context: "rebuild", "append", "window:K" or a policy. Where the context grows, allow it more room: max_observation_tokens=32768.
        rebuild_tokens: the budget of a rebuilt prompt, never exceeded; None for `max_observation_tokens`.
        max_turns: the step limit.
        max_tool_result_tokens: where the text of a call's answer is cut, with a visible mark.
        system_prompt: text of the first message; None for ours.
        **kwargs: see `ToolEnv` and `AgentEnv`.

    Attributes:
        source: the questions.
        query: the running question.
        pool: what was found.
        library: what is searched.
        bound: which papers may be found.

    Raises:
        ValueError: for keywords that cannot be used, questions without papers to search in, or without gold papers where these are paid.
        FileNotFoundError: for a dataset or corpus that is not there.
    """

    reward_part_names: ClassVar[tuple[str, ...]] = ("outcome", "process", "repetition", "cost")
    breakdown_names: ClassVar[tuple[str, ...]] = ("question_type",)
    setting_names: ClassVar[tuple[str, ...]] = ("dataset", "level", "library", "relevance", "date_filter")
    metric_names: ClassVar[tuple[str, ...] | None] = (*_FIGURES, "n_found", "pool_size", "n_searches", "n_expansions", "n_repeated")
    baselines: ClassVar[Mapping[str, Callable[[int], Script]]] = {
        "search_only": lambda seed: search_only,
        "expand_best": lambda seed: expand_best,
        "random_reader": random_reader,
    }
    extra_info: ClassVar[Mapping[str, Any]] = {
        **ToolEnv.extra_info,
        "dataset": "",
        "level": "",
        "library": "",
        "relevance": "",
        "date_filter": "",
        "published_before": "",
        "question_type": "",
        **dict.fromkeys(_FIGURES, 0.0),
        "n_gold": 0,
        "n_found": 0,
        "pool_size": 0,
        "n_searches": 0,
        "n_expansions": 0,
        "n_repeated": 0,
    }
    """Beside those of `ToolEnv`: where the task is from and what is searched; precision, recall and F1 of the pool so far, of all of it and of its first 25, 50 and 100
    in the order of the scores that are shown (NaN where nobody names the gold papers); gold papers there are and were found; papers in the pool; searches and
    expansions that were run, and those that were repetitions."""

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str | Path | Iterable[Mapping[str, Any]] = "embedded",
        data_dir: str | Path | None = None,
        corpus: str | Path | PaperCorpus | PaperLibrary | Sequence[Mapping[str, Any]] | None = None,
        base_url: str | None = None,
        relevance: str | RelevanceFunction | Relevance = "gold",
        relevance_url: str | None = None,
        reward: str = "outcome",
        reward_top_k: int = 3,
        relevance_threshold: float | None = None,
        duplicate_penalty: float = 0.5,
        search_cost: float = 0.0,
        expand_cost: float = 0.0,
        top_k: int = 10,
        citations_limit: int = 30,
        references_limit: int = 99,
        min_relevance: float = 0.0,
        published_before: str | date | None = None,
        date_filter: str = "strict",
        pool_size: int = 20,
        abstract_words: int = 400,
        max_parallel_calls: int = 5,
        context: str | ContextPolicy = "rebuild",
        rebuild_tokens: int | None = None,
        max_turns: int = 10,
        max_tool_result_tokens: int = 512,
        system_prompt: str | None = None,
        **kwargs: Any,
    ) -> None:
        for name, value, least in (
            ("reward_top_k", reward_top_k, 1),
            ("top_k", top_k, 1),
            ("citations_limit", citations_limit, 0),
            ("references_limit", references_limit, 0),
            ("pool_size", pool_size, 1),
            ("abstract_words", abstract_words, 0),
            ("rebuild_tokens", 1 if rebuild_tokens is None else rebuild_tokens, 1),
            ("max_parallel_calls", max_parallel_calls, 1),
        ):
            whole_number(name, value, least)
        for name, number in (("duplicate_penalty", duplicate_penalty), ("search_cost", search_cost), ("expand_cost", expand_cost)):
            if _number(name, number) < 0:
                raise ValueError(f"{name} is taken off and must not be negative, not {number!r}")
        _number("min_relevance", min_relevance)
        if relevance_threshold is not None:
            _number("relevance_threshold", relevance_threshold)
        if reward not in _REWARDS:
            raise ValueError(f"reward must be one of {', '.join(_REWARDS)}, not {reward!r}")
        if date_filter not in _DATE_FILTERS:
            raise ValueError(f"date_filter must be one of {', '.join(_DATE_FILTERS)}, not {date_filter!r}")
        self.reward, self.date_filter = reward, date_filter
        self._relevance = open_relevance(relevance, relevance_url)
        self._shown_by: Relevance = BM25Relevance() if isinstance(self._relevance, GoldRelevance) else self._relevance
        self._least = -math.inf if isinstance(self._relevance, GoldRelevance) or min_relevance == 0 else float(min_relevance)
        self._shared = _open_library(corpus, base_url)
        self._limit_day = None if published_before is None else _day(published_before)
        self.source = open_paper_tasks(dataset, split=split, data_dir=data_dir)
        self._require_tasks_that_can_be_played()
        remote = self._relevance.remote or (self._shared is not None and self._shared.remote)
        self._rebuilds = context == "rebuild"
        super().__init__(
            split=split,
            tools=[SearchPapersTool(self._search, remote=remote), ExpandTool(self._expand, remote=remote), FinishTool()],
            max_parallel_calls=max_parallel_calls,
            system_prompt=_PROMPT.format(turns=max_turns, calls=max_parallel_calls) if system_prompt is None else system_prompt,
            context=context,
            max_turns=max_turns,
            max_tool_result_tokens=max_tool_result_tokens,
            **kwargs,
        )
        self.reward_top_k, self.relevance_threshold = int(reward_top_k), relevance_threshold
        self.duplicate_penalty, self.search_cost, self.expand_cost = float(duplicate_penalty), float(search_cost), float(expand_cost)
        self.top_k, self.citations_limit, self.references_limit = int(top_k), int(citations_limit), int(references_limit)
        self.pool_size, self.abstract_words = int(pool_size), int(abstract_words)
        self.rebuild_tokens = min(self.max_observation_tokens, int(rebuild_tokens or self.max_observation_tokens))
        self._question: PaperTask | None = None
        self._library: PaperLibrary | None = self._shared
        self.bound = DateBound()
        self._forget()

    # ------------------------------------------------------------------------------------------------ the task

    def _require_tasks_that_can_be_played(self) -> None:
        tasks: Sequence[PaperTask] = () if isinstance(self.source, PaperWorldSource) else self.source.tasks
        for task in tasks:
            self._require_answer(task, f"{self.source.name}: ")
        if self._shared is None and (bare := sum(task.papers is None for task in tasks)):
            raise ValueError(
                f"{bare} of the {len(tasks)} questions of {self.source.name} have no papers to search in; pass corpus= (JSON lines of "
                '{"paper_id", "title", "abstract", "year", "authors", "references"}) or base_url= (a server that speaks as Semantic Scholar does)'
            )

    def _require_answer(self, task: PaperTask, where: str = "") -> None:
        if not task.gold and (self.reward != "process" or isinstance(self._relevance, GoldRelevance)):
            raise ValueError(
                f"{where}question {task.id!r} names no gold papers (reward_model.ground_truth is empty), so nothing can be paid by them; "
                "pass reward='process' with relevance='bm25', 'http' or a function"
            )

    def _forget(self) -> None:
        self.pool = PaperPool()
        self._actions: list[str] = []
        self._feedback: list[str] = []
        self._n_searches = self._n_expansions = self._n_gold_found = 0
        self._figures: Mapping[str, float] = {}
        self._turn_parts = dict.fromkeys(self.reward_part_names, 0.0)

    def _task(self, options: dict[str, Any]) -> Mapping[str, Any]:
        """Choose the question and its library; see `ToolEnv._task`."""
        if "task" in options:
            task = parse_paper_task(options["task"], where="options['task']")
        elif self._shared is not None and isinstance(self.source, PaperWorldSource):
            raise ValueError(
                "the embedded questions bring their own papers, so corpus= or base_url= would not be searched; pass dataset= with questions about those "
                "papers, or reset(options={'task': question})"
            )
        elif "index" in options:
            task = self.source.by_index(whole_number("options['index']", options["index"]))
        else:
            task = self.source.draw(int(self.np_random.integers(2**53)))
        self._require_answer(task)
        if task.papers is not None:
            self._library = LocalLibrary(task.papers)
        elif self._shared is not None:
            self._library = self._shared
        else:
            raise ValueError(f"question {task.id!r} has no papers to search in; make the environment with corpus= or base_url=")
        days = [day for day in (task.before, self._limit_day) if day is not None and self.date_filter != "off"]
        self.bound = DateBound(min(days) if days else None, strict=self.date_filter == "strict")
        self._question = task
        self.task_id = task.id
        self._forget()
        self._measure()
        return {"id": task.id, "question": task.question, "gold": list(task.gold), "type": task.type}

    @property
    def query(self) -> PaperTask:
        """The running question.

        Raises:
            ResetNeeded: before the first reset.
        """
        if self._question is None:
            raise ResetNeeded("no task has begun; call reset() first")
        return self._question

    @property
    def library(self) -> PaperLibrary:
        """What is searched.

        Raises:
            ResetNeeded: before the first reset, where each question has its own.
        """
        if self._library is None:
            raise ResetNeeded("no task has begun; call reset() first")
        return self._library

    @property
    def num_tasks(self) -> int | None:
        """The number of rows of a file; None for the generated worlds, which have no end."""
        return self.source.num_tasks

    # ------------------------------------------------------------------------------------------------ the calls of a reply

    def _search(self, query: str) -> Lookup:
        """What the tool `search` does: nothing to the pool."""
        words = query.encode("utf-8", "replace").decode("utf-8")
        if plain_query(words) in self.pool.queries:
            return Lookup("search", words)
        return self._judged("search", words, self.library.search(words, self.top_k, self.bound))

    def _expand(self, paper_id: str) -> Lookup:
        """What the tool `expand` does: nothing to the pool."""
        found = self.pool.found.get(plain_id(paper_id))
        if found is None:
            return Lookup("expand", plain_id(paper_id.encode("utf-8", "replace").decode("utf-8")), known=False)
        if found.expanded:
            return Lookup("expand", found.paper.id)
        near = self.library.neighbours(found.paper, self.citations_limit, self.references_limit, self.bound)
        return self._judged("expand", found.paper.id, near)

    def _judged(self, source: str, origin: str, papers: Sequence[Any]) -> Lookup:
        """Judge the papers that are new, which is all that costs something; known ones keep what they were given."""
        new = [paper for paper in papers if paper.id not in self.pool]
        try:
            relevances = self._relevance.score(self.query, new, self.library)
            scores = relevances if self._shown_by is self._relevance else self._shown_by.score(self.query, new, self.library)
        except EnvFault:
            raise
        except Exception as error:  # noqa: BLE001  # raised again in `_noted`, where it is no tool's error text
            return Lookup(source, origin, failure=error)
        judged = dict(zip((paper.id for paper in new), zip(scores, relevances, strict=True), strict=True))
        pairs = [judged.get(paper.id, (0.0, 0.0)) for paper in papers]
        return Lookup(source, origin, tuple(papers), tuple(one for one, _ in pairs), tuple(one for _, one in pairs))

    def _with_results(self, action: Action, parsed: ParsedAction, results: Sequence[CallResult]) -> Outcome:
        """Take what the calls found into the pool, in their order, and write what the model reads of each."""
        self._turn_parts = dict.fromkeys(self.reward_part_names, 0.0)
        limit = self._result_limit(len(action.token_ids), min(len(results), self.max_parallel_calls + 1))
        return super()._with_results(action, parsed, [self._noted(one, limit) for one in results])

    def _noted(self, result: CallResult, limit: int) -> CallResult:
        if result.error is not None:
            self._feed_back(result.text)
            return result
        lookup = result.info.get("lookup")
        if not isinstance(lookup, Lookup):
            return result
        if lookup.failure is not None:
            raise lookup.failure
        if self._is_repeated(lookup):
            self.pool.n_repeated += 1
            self._turn_parts["repetition"] -= self.duplicate_penalty
            line = action_line(lookup, None, known=lookup.known)
            self._actions.append(line)
            return replace(result, text=f"{line}.")
        new = self.pool.add(lookup.papers, lookup.scores, lookup.relevances, lookup.source, lookup.origin, self._least)
        if lookup.source == "search":
            self.pool.queries.add(plain_query(lookup.origin))
            self._n_searches += 1
            self._turn_parts["cost"] -= self.search_cost
        else:
            self.pool.found[lookup.origin].expanded = True
            self._n_expansions += 1
            self._turn_parts["cost"] -= self.expand_cost
        best = sorted((one.relevance for one in new), reverse=True)[: self.reward_top_k]
        if self.relevance_threshold is not None:
            best = [float(one >= self.relevance_threshold) for one in best]
        self._turn_parts["process"] += math.fsum(best)
        gold = set(self.query.gold)
        found = sum(one.paper.id in gold for one in new)
        self._n_gold_found += found
        self._turn_parts["outcome"] += found / len(gold) if gold else 0.0
        line = action_line(lookup, len(new))
        self._actions.append(line)
        kept = [self.pool.found[paper.id] for paper in lookup.papers if paper.id in self.pool]
        text = listing(line, kept, new, 0 if self._rebuilds else self.abstract_words, lambda one: len(self.chat.encode_text(one)) <= limit)
        return replace(result, text=text)

    def _is_repeated(self, lookup: Lookup) -> bool:
        if lookup.source == "search":
            return plain_query(lookup.origin) in self.pool.queries
        return not lookup.known or self.pool.found[lookup.origin].expanded

    def _after_calls(self, results: Sequence[CallResult]) -> Score:
        """Pay the turn; see `ToolEnv._after_calls`."""
        parts = dict(self._turn_parts)
        for name in {"outcome": ("process", "repetition", "cost"), "process": ("outcome",), "both": ()}[self.reward]:
            parts[name] = 0.0
        parts = {name: value + 0.0 for name, value in parts.items()}  # no negative zero
        self._measure()
        over = any(one.terminated for one in results)
        metrics = {"state_key": self._state_text()} if self._rebuilds else {}
        return Score(math.fsum(parts.values()), parts, over and self._is_complete(), metrics)

    def _score(self, answer: str | None, content: str) -> Score:
        """The end by a reply without a call: what was found counts, and nothing more is paid; see `ToolEnv._score`."""
        return Score(0.0, {}, self._is_complete())

    def _is_complete(self) -> bool:
        return 0 < len(self.query.gold) == self._n_gold_found

    def _without_calls(self, parsed: ParsedAction) -> Outcome | None:
        outcome = super()._without_calls(parsed)
        if outcome is not None and not outcome.terminated:  # the beginning of a call, and no call
            self._feed_back(str(outcome.observation.as_messages()[0]["content"]))
            if self._rebuilds:
                return replace(outcome, info={**outcome.info, "state_key": self._state_text()})
        return outcome

    def _feed_back(self, line: str) -> None:
        shown = plain(line, _LONGEST_LINE)
        self._feedback = [*(one for one in self._feedback if one != shown), shown][-_FEEDBACK_LINES:]

    def _measure(self) -> None:
        self._figures = list_scores(ids_of(self.pool.ranked()), self.query.gold)

    def _info(self, feedback: str, given: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        task = self.query
        standing = {
            "dataset": self._source_name(self.source.name),
            "library": self.library.name,
            "relevance": self._relevance.name,
            "date_filter": self.date_filter,
            "published_before": "" if self.bound.before is None else self.bound.before.isoformat(),
            "question_type": task.type,
            **self._figures,
            "n_gold": len(task.gold),
            "n_found": self._n_gold_found,
            "pool_size": len(self.pool),
            "n_searches": self._n_searches,
            "n_expansions": self._n_expansions,
            "n_repeated": self.pool.n_repeated,
        }
        return super()._info(feedback, {**standing, **given}, *args, **kwargs)

    def _result_limit(self, action_tokens: int, messages: int) -> int:
        """Where a result is cut. Ten turns of the longest replies leave a growing context hardly a result, so half of the room that is left may be used."""
        least = super()._result_limit(action_tokens, messages)
        if not isinstance(self.context, Append):
            return least
        free = self.max_observation_tokens - self._length - action_tokens
        return max(least, min(self.max_tool_result_tokens, free // (2 * max(1, messages)) - 64))

    # ------------------------------------------------------------------------------------------------ the prompt

    def _messages(self) -> list[Message]:
        """Make the first prompt; see `ToolEnv._messages`."""
        if self._rebuilds:
            require_room(self, self.rebuild_tokens, self._question_messages())
            return self._rebuild()
        return self._question_messages()

    def _question_messages(self) -> list[Message]:
        """The task alone: our system message, unless the row brings its own, and the question with its day, or the row's messages."""
        own: list[Message] = [{"role": str(one["role"]), "content": message_text(one), "trusted": True} for one in self.query.prompt]
        day = "" if self.bound.before is None else f"Only papers that appeared before {self.bound.before.isoformat()} count."
        if not own:
            return [self._system_message(), {"role": "user", "content": "\n".join(filter(None, (self.query.question, day)))}]
        messages = self._with_system(own)
        return with_text(messages, day) if day else messages

    def _rebuild(self) -> list[Message]:
        """Make the whole prompt from the state, within the budget; see `AgentEnv._rebuild`."""
        shown = self.pool.shown(self.pool_size)
        droppable = 2 * len(shown) + len(self._actions) + len(self._feedback) + 1
        return shortened(self, self.rebuild_tokens, droppable, lambda count: self._state_messages(shown, count))

    def _state_messages(self, shown: Sequence[Found], dropped: int) -> list[Message]:
        """The prompt without `dropped` items: first abstracts go, then papers, each from the last one shown, then past calls and errors, oldest first, then the turns."""
        n_abstracts = max(0, len(shown) - dropped)
        dropped = max(0, dropped - len(shown))
        n_papers = max(0, len(shown) - dropped)
        dropped = max(0, dropped - len(shown))
        actions, dropped = self._actions[dropped:], max(0, dropped - len(self._actions))
        feedback, dropped = self._feedback[dropped:], max(0, dropped - len(self._feedback))
        parts = []
        if actions:
            parts.append("Calls so far:\n" + "\n".join(f"- {line}" for line in actions))
        if n_papers:
            texts = [paper_text(one, self.abstract_words if place < n_abstracts else 0) for place, one in enumerate(shown[:n_papers])]
            head = f"Papers found so far ({len(self.pool)}, of which {n_papers} are shown; EXP: expanded, NEW: not expanded yet):"
            parts.append("\n".join([head, *texts]))
        if feedback:
            parts.append("Errors:\n" + "\n".join(f"- {line}" for line in feedback))
        if self.turn and not dropped:
            left = self.max_turns - self.turn
            parts.append(f"You have {left} {'reply' if left == 1 else 'replies'} left.")
        messages = self._question_messages()
        return with_text(messages, "\n\n".join(parts)) if parts else messages

    def _state_text(self) -> str:
        """The state as one text, in which the order of what led to it does not matter."""
        papers = sorted(f"{one.paper.id}{' expanded' if one.expanded else ''}" for one in self.pool.found.values())
        return "\n".join([self.query.question, *sorted(self.pool.queries), *papers, *self._feedback])

    # ------------------------------------------------------------------------------------------------ the expert

    def expert(self) -> Callable[[], str] | None:
        """Return the expert: it searches the question, expands what leads to the gold papers that are missing, and finishes.

        Returns:
            The function. What can be found in no other way it searches by title; what cannot be found at all it leaves.
        """
        return lambda: next_reply(self)

    def write_calls(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """Write a reply.

        Args:
            calls: name and arguments of each.

        Returns:
            The text, without the last calls where the format cannot hold so many or the action would be too long.
        """
        kept = list(calls)
        while kept:
            try:
                written = self.tool_format.render_calls((name, dict(arguments)) for name, arguments in kept)
            except ValueError:
                kept.pop()
                continue
            text = self.tool_format.close_reasoning(self._prefix) + written
            read = self.tool_format.parse(text, prefix=self._prefix, tools=self._schemas)
            whole = [(call.name, call.arguments) for call in read.calls if call.error is None] == [
                (name, dict(args)) for name, args in kept
            ]
            if whole and len(self.encode_action(text)) <= self.max_action_tokens:
                return text
            kept.pop()
        return ""

    def close(self) -> None:
        """Close connections of ours that are kept open; may be called twice."""
        for one in (self._shared, self._relevance):
            if (close := getattr(one, "close", None)) is not None:
                close()
        super().close()


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, not {value!r:.100}")
    return float(value)


def _day(value: str | date) -> date:
    if isinstance(value, date):
        return date(value.year, value.month, value.day)
    if not isinstance(value, str):
        raise ValueError(f"published_before must be a day such as '2023-02-24', not {value!r:.100}")
    return parse_date(value)


def _open_library(corpus: Any, base_url: str | None) -> PaperLibrary | None:
    if corpus is not None and base_url is not None:
        raise ValueError("corpus and base_url both say where papers are searched; pass one of them")
    if base_url is not None:
        return HttpLibrary(base_url)
    if corpus is None:
        return None
    if callable(getattr(corpus, "neighbours", None)) and callable(getattr(corpus, "search", None)):
        library: PaperLibrary = corpus
        return library
    if isinstance(corpus, str) and corpus.startswith(("http://", "https://")):
        raise ValueError(f"corpus is a file of papers; pass base_url={corpus!r} for a server")
    if not isinstance(corpus, (str, Path, PaperCorpus, list, tuple)):
        raise ValueError(f"corpus must be a file of papers, a PaperCorpus, rows or a PaperLibrary, not {corpus!r:.200}")
    return LocalLibrary(open_papers(corpus))
