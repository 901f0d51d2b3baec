"""`AgentR1/HotpotQA-v0`: multi-hop questions, answered with a search tool. The other multi-hop sets derive from it (`agent_gym.envs.multihop`).

The default tasks are a generated encyclopaedia (`agent_gym.data.wiki_world`; `level="bridge"` is an easier one); HotpotQA, 2WikiMultihopQA, MuSiQue
and rows of the sample schema are read from their files. Each question is searched in its own paragraphs, or in one corpus for all.

Reward (Search-R1, arXiv 2503.09516; StepPO, arXiv 2604.18401, with the traps of their scorers closed): official exact match, 1 or 0, of the last
`<answer>` tag in the text of the last action, outside reasoning. Nothing but the action's own text is looked at, so neither a lucky page nor a
poisoned one is ever paid. An answer that normalises to nothing is worth nothing.

Under `context="rebuild"` each prompt is rendered anew from the state (question, past queries, retrieved passages, feedback), as StepPO does. The
passages found first are dropped first when the budget is full; what is kept is kept whole, and the task and the tools are never cut.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from gymnasium.error import ResetNeeded

from agent_gym.chat import Message
from agent_gym.context import ContextPolicy
from agent_gym.core import Outcome, TaskError
from agent_gym.data.files import read_once
from agent_gym.data.qa_loaders import QATask, accept_aliases, parse_qa
from agent_gym.data.qa_metrics import AnswerScores, exact_match, normalize_answer, score_answer, sub_exact_match, title_recall
from agent_gym.data.qa_source import HOTPOTQA, EmbeddedSource, QASet, QASource, open_source
from agent_gym.data.samples import message_text
from agent_gym.envs.rebuilt import require_room, shortened, with_text
from agent_gym.envs.tool import Score, ToolEnv
from agent_gym.envs.whole_numbers import whole_number
from agent_gym.search import Corpus, Document, Hit, HttpSearcher, LuceneBM25, Searcher, open_searcher
from agent_gym.tools.base import BaseTool, ToolContext, ToolResult
from agent_gym.tools.execution import CallResult
from agent_gym.tools.parsing import ParsedAction

__all__ = ["HotpotQAEnv", "SearchTool", "format_passages"]

SearchEngine = Callable[[Sequence[Document]], Searcher]
AnswerReward = Callable[[str, QATask], float]

_NO_PAGE = "No page was found."
_REWARDS = ("em", "f1")
_FULL_PROMPT = (
    "Answer the question with the help of the search tool. Most questions need several searches, one after the other: what one page says tells you "
    "what to look for next. You have {turns} replies in all, the last of which must be your answer, and one reply can hold up to {calls} searches. When "
    "you know the answer, write it between <answer> and </answer>: the name, place, date or number alone, or yes or no."
)
_BRIDGE_PROMPT = "Search, then answer."
_FEEDBACK_LINES = 3


def format_passages(hits: Sequence[Hit], *, titles: bool = True) -> str:
    """Print search results as the model reads them. Answer tags of a page are escaped, so that a reply that copies the page gives no answer by it.

    Args:
        hits: best first.
        titles: whether each page begins with its number and title; without them a page is one line of its text.

    Returns:
        The pages, or a line that says that there is none.
    """
    if not hits:
        return _NO_PAGE
    if not titles:
        shown = "\n".join(" ".join(hit.document.text.split()) for hit in hits)
    else:
        shown = "\n\n".join(f"[{number}] {hit.document.title}\n{hit.document.text}" for number, hit in enumerate(hits, start=1))
    return shown.replace("<answer>", "&lt;answer>").replace("</answer>", "&lt;/answer>")


class SearchTool(BaseTool):
    """The tool `search(query)` over whatever engine the running task has.

    Args:
        engine: gives the present engine.
        top_k: pages per search.
        printed: makes the model's text of the hits.
        remote: the engine waits for a network, so calls run in worker threads.
    """

    name = "search"
    description = "Search the pages."
    parameters = MappingProxyType({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]})

    def __init__(
        self, engine: Callable[[], Searcher], top_k: int, printed: Callable[[Sequence[Hit]], str] = format_passages, *, remote: bool = False
    ) -> None:
        super().__init__()
        self._engine, self._top_k, self._printed = engine, top_k, printed
        if remote:
            self.timeout = 120.0  # far above the engine's own deadline, which ends in EnvFault and not in an error text

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Search.

        Args:
            arguments: `query`.
            context: unused.

        Returns:
            The pages as text; query and hits in its info.

        Raises:
            EnvFault: if the engine is out of reach.
        """
        query = str(arguments["query"])
        hits = self._engine().search([query], self._top_k)[0]
        return ToolResult(self._printed(hits), info={"query": query, "hits": tuple(hits)})


class HotpotQAEnv(ToolEnv):
    """Multi-hop question answering with a search tool.

    Args:
        split: "train", "validation" or "test"; in the generated worlds they share no entity.
        dataset: "embedded", "official" (needs `data_dir`), the path of a file or of a folder with one file per split, or rows. A single file
            and rows are the same rows in every split: a seed draws another one in each, and an index names the same.
        data_dir: where "official" files lie and relative paths begin.
        level: of the generated world: "full", or "bridge" (short pages, one-token names, a short prompt).
        corpus: None: each task is searched in its own paragraphs. Else one corpus for all: a JSONL file of pages, the folder of an index,
            the address of a `/retrieve` server, or a `Searcher`.
        search: the engine: "lucene" (reproduces Lucene's BM25), "tantivy" (extra `search`), or a callable from documents to a `Searcher`.
        top_k: pages per search; None for 3, and for 1 at `level="bridge"`, whose pages are one sentence each.
        max_parallel_calls: searches that one reply may hold.
        force_first_search: the question is searched before the first reply.
        answer_fallback: None: a reply without an answer tag is worth nothing. "reply": its whole text is the answer.
        reward: "em", "f1", or a callable (prediction, task) -> number. `is_success` is exact match in any case.
        format_weight: paid on top for an answer tag at the end of an episode in which every reply could be read and every call was valid.
        search_cost: taken off for every search that was run.
        context: "append", "window:K", "token_budget:N", "rebuild" or a policy; see `agent_gym.context`.
        rebuild_tokens: the budget of a rebuilt prompt, never exceeded; None for `max_observation_tokens`. A task that does not fit into it
            with the text of the tools is refused by `reset`.
        max_turns: the step limit.
        system_prompt: text of the first message; None for ours.
        **kwargs: see `ToolEnv` and `AgentEnv`.

    Raises:
        ValueError: for keywords that cannot be used, or rows without paragraphs where there is no `corpus`.
        FileNotFoundError: for a dataset or corpus that is not there.
    """

    reward_part_names: ClassVar[tuple[str, ...]] = ("answer", "format", "search_cost")
    setting_names: ClassVar[tuple[str, ...]] = ("dataset", "level")
    breakdown_names: ClassVar[tuple[str, ...]] = ("question_type",)
    extra_info: ClassVar[Mapping[str, Any]] = {
        **ToolEnv.extra_info,
        "dataset": "",
        "level": "",
        "question_type": "",
        "em": 0.0,
        "f1": 0.0,
        "sub_em": 0.0,
        "supporting_recall": 0.0,
        "n_searches": 0,
    }
    """Beside those of `ToolEnv`: where the task is from; exact match, F1 and sub-EM of the answer (0 until there is one); the part of the
    supporting titles that was retrieved so far; the searches that were run so far."""
    data_set: ClassVar[QASet] = HOTPOTQA
    """Whose generated world and published files these are."""
    prompt_note: str = ""
    """A sentence that ends our own system message."""

    def __init__(
        self,
        *,
        split: str = "train",
        dataset: str | Path | Iterable[Mapping[str, Any]] = "embedded",
        data_dir: str | Path | None = None,
        level: str = "full",
        corpus: str | Path | Searcher | None = None,
        search: str | SearchEngine = "lucene",
        top_k: int | None = None,
        max_parallel_calls: int = 4,
        force_first_search: bool = False,
        answer_fallback: str | None = None,
        reward: str | AnswerReward = "em",
        format_weight: float = 0.0,
        search_cost: float = 0.0,
        context: str | ContextPolicy = "append",
        rebuild_tokens: int | None = None,
        max_turns: int = 5,
        system_prompt: str | None = None,
        **kwargs: Any,
    ) -> None:
        if top_k is not None:
            whole_number("top_k", top_k, 1)
        if rebuild_tokens is not None:
            whole_number("rebuild_tokens", rebuild_tokens, 1)
        if answer_fallback not in (None, "reply"):
            raise ValueError(f"answer_fallback must be None or 'reply', not {answer_fallback!r}")
        if isinstance(reward, str):
            known = reward in _REWARDS
        else:
            known = callable(reward)
        if not known:
            raise ValueError(f"reward must be one of {', '.join(_REWARDS)} or a callable (prediction, task) -> number, not {reward!r}")
        if search_cost < 0 or format_weight < 0:
            raise ValueError(f"format_weight and search_cost must not be negative, not {format_weight} and {search_cost}")
        self.source = self._open_source(dataset, split=split, data_dir=data_dir, level=level)
        self._build = _engine(search)
        self._corpus = _open_corpus(corpus, search)
        if self._corpus is None:
            self._require_paragraphs()
        self._level = level if isinstance(self.source, EmbeddedSource) else ""
        short = self._level == "bridge"
        self._searcher: Searcher | None = None
        self.top_k = int(top_k) if top_k is not None else 1 if short else 3
        self._print: Callable[[Sequence[Hit]], str] = _print_lines if short else format_passages
        tool = SearchTool(self._engine, self.top_k, self._print, remote=isinstance(self._corpus, HttpSearcher))
        if system_prompt is None:
            system_prompt = _BRIDGE_PROMPT if short else _FULL_PROMPT.format(turns=max_turns, calls=max_parallel_calls) + self.prompt_note
        self._rebuilds = context == "rebuild"
        super().__init__(
            split=split,
            tools=[tool],
            max_parallel_calls=max_parallel_calls,
            system_prompt=system_prompt,
            context=context,
            max_turns=max_turns,
            **kwargs,
        )
        self.force_first_search = bool(force_first_search)
        self.answer_fallback = answer_fallback
        self.format_weight = float(format_weight)
        self.search_cost = float(search_cost)
        self.rebuild_tokens = (
            self.max_observation_tokens if rebuild_tokens is None else min(int(rebuild_tokens), self.max_observation_tokens)
        )
        self._answer_reward = reward
        self.qa: QATask | None = None
        self._forget()

    # ------------------------------------------------------------------------------------------------ the task

    def _open_source(
        self, dataset: str | Path | Iterable[Mapping[str, Any]], *, split: str, data_dir: str | Path | None, level: str
    ) -> QASource:
        """Open the tasks that the keywords name."""
        return open_source(dataset, split=split, data_dir=data_dir, level=level, data_set=self.data_set)

    def _read(self, row: Mapping[str, Any]) -> QATask:
        """Read a row that is given as the task."""
        return accept_aliases(parse_qa(row, where="options['task']"), self.source.aliases)

    def _require_paragraphs(self) -> None:
        tasks = getattr(self.source, "tasks", ())
        bare = sum(not task.paragraphs for task in tasks)
        if bare:
            raise ValueError(
                f"{bare} of the {len(tasks)} rows of {self.source.name} have no paragraphs to search in; pass corpus= (a JSONL file of "
                '{"id", "title", "text"}, the folder of an index, the address of a /retrieve server, or a Searcher)'
            )

    def _forget(self) -> None:
        self._queries: list[str] = []
        self._passages: dict[str, Hit] = {}  # by document id, in the order in which they were last found
        self._titles: dict[str, None] = {}  # seen so far
        self._feedback: list[str] = []
        self._readable = True

    def _task(self, options: dict[str, Any]) -> Mapping[str, Any]:
        """Choose the task and make its index; see `ToolEnv._task`."""
        if "task" in options:
            task = self._read(options["task"])
        elif "index" in options:
            task = self.source.by_index(whole_number("options['index']", options["index"]))
        else:
            task = self.source.draw(int(self.np_random.integers(2**53)))
        if self._corpus is not None:
            self._searcher = self._corpus
        elif task.paragraphs:
            pages = (Document(f"{number:04d}", page.title, page.text) for number, page in enumerate(task.paragraphs))
            self._searcher = self._build(list(pages))
        else:
            raise TaskError(
                "extra_info.context",
                f"task {task.id!r} has no paragraphs to search in (extra_info.context of a sample); make the environment with corpus=",
            )
        self._forget()
        self.qa = task
        self.task_id = task.id
        row = {"id": task.id, "question": task.question, "answer": list(task.answers), "type": task.type, "level": task.level}
        return {**row, **{name: task.extra[name] for name in ("reward_model", "extra_info", "data_source") if name in task.extra}}

    def _engine(self) -> Searcher:
        if self._searcher is None:
            raise ResetNeeded("no task has begun; call reset() before you call the search tool")
        return self._searcher

    @property
    def _present(self) -> QATask:
        if self.qa is None:
            raise ResetNeeded("no task has begun; call reset() before you ask the expert")
        return self.qa

    @staticmethod
    def answer_scores(prediction: str, answers: Sequence[str]) -> AnswerScores:
        """Score an answer by the rules of the data set's own script.

        Args:
            prediction: the answer.
            answers: the accepted ones.

        Returns:
            Exact match, and F1 with its precision and recall.
        """
        return score_answer(prediction, answers)

    @property
    def num_tasks(self) -> int | None:
        """The number of rows of a file; None for the generated worlds, which have no end."""
        return self.source.num_tasks

    # ------------------------------------------------------------------------------------------------ the prompt

    def _messages(self) -> list[Message]:
        """Make the first prompt; see `ToolEnv._messages`."""
        if self.force_first_search:
            query = self._present.question
            self._note(query, self._engine().search([query], self.top_k)[0])
        if self._rebuilds:
            require_room(self, self.rebuild_tokens, self._question_messages())
            return self._rebuild()
        messages = self._question_messages()
        if self.force_first_search:
            found = self.chat.truncate_text(self._print(list(self._passages.values())), self.max_tool_result_tokens)
            return with_text(messages, f"Search results for the question:\n\n{found}")
        return messages

    def _question_messages(self) -> list[Message]:
        """The task alone: our system message, unless the row brings its own, and the question or the row's messages.

        The prompt of a row is its author's own text, as our system message is ours: it may show how calls and answers are written.
        """
        own: list[Message] = [{"role": str(one["role"]), "content": message_text(one), "trusted": True} for one in self._present.prompt]
        if not own:
            return [self._system_message(), {"role": "user", "content": self._present.question}]
        return self._with_system(own)

    def _rebuild(self) -> list[Message]:
        """Make the whole prompt from the state, within the budget; see `AgentEnv._rebuild`."""
        droppable = len(self._passages) + len(self._feedback) + len(self._queries) + 1  # with all dropped the task alone is left
        return shortened(self, self.rebuild_tokens, droppable, self._state_messages)

    def _state_messages(self, dropped: int) -> list[Message]:
        """The prompt without the first `dropped` items: passages go first, then feedback, then queries, each oldest first; last the turns."""
        passages, feedback, queries = list(self._passages.values()), self._feedback, self._queries
        passages, dropped = passages[dropped:], max(0, dropped - len(passages))
        feedback, dropped = feedback[dropped:], max(0, dropped - len(feedback))
        queries, dropped = queries[dropped:], max(0, dropped - len(queries))
        parts = []
        if queries:
            parts.append("Searches so far:\n" + "\n".join("- " + " ".join(query.split()) for query in queries))
        if passages:
            parts.append("Passages found so far:\n\n" + self._print(passages))
        if feedback:
            parts.append("Feedback:\n" + "\n".join(f"- {line}" for line in feedback))
        if self.turn and not dropped:
            left = self.max_turns - self.turn
            parts.append(f"You have {left} {'reply' if left == 1 else 'replies'} left.")
        messages = self._question_messages()
        return with_text(messages, "\n\n".join(parts)) if parts else messages

    def _state_text(self) -> str:
        """The state that a rebuilt prompt shows, as one text."""
        return "\n".join(
            [self._present.question, *self._queries, *(hit.document.title for hit in self._passages.values()), *self._feedback]
        )

    # ------------------------------------------------------------------------------------------------ the episode

    def _without_calls(self, parsed: ParsedAction) -> Outcome | None:
        outcome = super()._without_calls(parsed)
        if outcome is not None and not outcome.terminated:  # the beginning of a call, and no call
            self._readable = False
            self._feed_back(str(outcome.observation.as_messages()[0]["content"]))
            if self._rebuilds:
                return replace(outcome, info={**outcome.info, "state_key": self._state_text()})
        return outcome

    def _after_calls(self, results: Sequence[CallResult]) -> Score:
        """Take note of queries, pages and errors; see `ToolEnv._after_calls`."""
        searches = 0
        for one in results:
            if one.error is not None:
                self._readable = False
                self._feed_back(one.text)
                continue
            searches += 1
            self._note(str(one.info["query"]), one.info["hits"])
        cost = -self.search_cost * searches if self.search_cost else 0.0
        return Score(cost, {"search_cost": cost}, metrics={"state_key": self._state_text()} if self._rebuilds else {})

    def _note(self, query: str, hits: Sequence[Hit]) -> None:
        self._queries.append(query)
        for hit in hits:
            self._passages.pop(hit.document.id, None)
            self._passages[hit.document.id] = hit
            self._titles[hit.document.title] = None
        if not hits:
            self._feed_back(f"The search for {query[:100]!r} found no page.")

    def _feed_back(self, line: str) -> None:
        self._feedback = [*self._feedback, line][-_FEEDBACK_LINES:]

    def _score(self, answer: str | None, content: str) -> Score:
        """Judge the answer; see `ToolEnv._score`."""
        task = self._present
        tagged = answer is not None
        prediction = answer if tagged else content if self.answer_fallback == "reply" else ""
        assert prediction is not None
        scores = self.answer_scores(prediction, task.answers)
        said = bool(normalize_answer(prediction))  # an answer that normalises to nothing is worth nothing
        exact = scores.em if said else 0.0
        rewards = {"em": exact, "f1": scores.f1}
        worth = rewards[self._answer_reward] if isinstance(self._answer_reward, str) else float(self._answer_reward(prediction, task))
        return self._graded(worth if said else 0.0, exact == 1.0, tagged, exact, scores.f1, sub_exact_match(prediction, task.golds))

    def _graded(self, worth: float, success: bool, tagged: bool, em: float, f1: float, sub_em: float) -> Score:
        """The score of an answer that is worth so much, with the format's part."""
        form = self.format_weight if tagged and self._readable else 0.0
        return Score(worth + form, {"answer": worth, "format": form}, success, {"em": em, "f1": f1, "sub_em": sub_em})

    def _info(self, feedback: str, given: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        task = self._present
        standing = {
            "dataset": self._source_name(self.source.name),
            "level": task.level if self._given else self._level or task.level,
            "question_type": task.type,
            "supporting_recall": title_recall(self._titles, task.hops),
            "n_searches": len(self._queries),
        }
        return super()._info(feedback, {**standing, **given}, *args, **kwargs)

    # ------------------------------------------------------------------------------------------------ the expert

    def expert(self) -> Callable[[], str] | None:
        """Return the expert: it searches the supporting titles that were not retrieved yet, in hop order, then answers.

        Where there are more titles than turns, it searches several in one reply. A task without supporting titles is searched by its question.

        Returns:
            The function.
        """
        return self._next_right_action

    def _next_right_action(self) -> str:
        task = self._present
        tried = {_plain(query) for query in self._queries}
        wanted = [title for title in task.hops or (task.question,) if title not in self._titles and _plain(title) not in tried]
        turns = self.max_turns - self.turn - 1
        if wanted and turns > 0:
            for count in range(min(self.max_parallel_calls, -(-len(wanted) // turns)), 0, -1):
                text = self._calls_text([("search", {"query": _plain(title)}) for title in wanted[:count]])
                if text is not None:
                    return text
        return self._answer_text()

    def _answer_text(self) -> str:
        """The first gold in its tag. Brackets and bars, which could read as tags, are left out: the official normalisation deletes them anyway."""
        gold = self._present.golds[0]
        written = _plain(gold)
        answer = f"<answer>{written if exact_match(written, gold) else normalize_answer(gold)}</answer>"
        return self.tool_format.close_reasoning(self._prefix) + answer


def _print_lines(hits: Sequence[Hit]) -> str:
    return format_passages(hits, titles=False)


def _plain(text: str) -> str:
    """The text without what markup is made of, on one line, in the composed spelling that many tokenizers turn it into."""
    return " ".join(unicodedata.normalize("NFC", text).translate(dict.fromkeys(map(ord, "<>[]{}|"), "")).split())


def _engine(search: str | SearchEngine) -> SearchEngine:
    if callable(search):
        return search
    if search == "lucene":
        return LuceneBM25.build
    if search == "tantivy":
        from agent_gym.search import TantivySearcher

        return TantivySearcher.build
    raise ValueError(f"search must be 'lucene', 'tantivy' or a callable from documents to a Searcher, not {search!r}")


def _open_corpus(corpus: str | Path | Searcher | None, search: str | SearchEngine) -> Searcher | None:
    """The one engine for all tasks; files are indexed once per process and shared by its environments."""
    if corpus is None:
        return None
    if not isinstance(corpus, (str, Path)):
        if not callable(getattr(corpus, "search", None)):
            raise ValueError(f"corpus must be a JSONL file, the folder of an index, an address or a Searcher, not {corpus!r}")
        return corpus
    if str(corpus).startswith(("http://", "https://")):
        return open_searcher(str(corpus))
    path = Path(corpus)
    if not path.exists():
        raise FileNotFoundError(
            f"corpus must be a JSONL file, the folder of an index, an address or a Searcher, and there is nothing at {str(path)!r}"
        )
    return _open(path, search)


@read_once(maxsize=4)
def _open(path: Path, search: str | SearchEngine) -> Searcher:
    if search == "lucene":
        return open_searcher(path)
    if search == "tantivy" and path.is_dir():
        from agent_gym.search import TantivySearcher

        return TantivySearcher.open(path)
    return _engine(search)(list(Corpus(path)))
