"""What a found paper is worth: by the gold list, by the words it shares with the question, by a function, or by a model behind an address.

Each is a `Relevance`: a question and papers in, a number for each out. PaperScout and StepPO (arXiv 2604.18401) pay with a selector model served by vLLM, which
`HttpRelevance` asks; `BM25Relevance` needs nothing.

The gold list never decides what is shown: an order, a threshold or a score by it would print the answer into the prompt. Where papers are paid by gold they are
ranked and shown by `BM25Relevance`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Protocol

from agent_gym.data.paper_tasks import PaperTask
from agent_gym.data.papers import Paper
from agent_gym.envs.papers.library import PaperLibrary
from agent_gym.search.analysis import analyze
from agent_gym.search.transport import JsonClient, Remembered, parse_json

__all__ = [
    "PROMPT",
    "BM25Relevance",
    "CallableRelevance",
    "GoldRelevance",
    "HttpRelevance",
    "Relevance",
    "RelevanceFunction",
    "open_relevance",
]

RelevanceFunction = Callable[[str, Sequence[Paper]], Sequence[float]]
"""(question, papers) -> one number for each."""

PROMPT = "Does this paper belong into the answer to the question?\n\nQuestion: {question}\n\nTitle: {title}\nAbstract: {abstract}\n\nAnswer True or False."
"""What `HttpRelevance` asks unless told otherwise."""

_K1 = 0.9
_BATCH = 64


class Relevance(Protocol):
    """Judges papers. Implementations are safe to call from several threads."""

    @property
    def name(self) -> str:
        """For info and reports."""
        ...

    @property
    def remote(self) -> bool:
        """Whether calls wait for a network."""
        ...

    def score(self, task: PaperTask, papers: Sequence[Paper], library: PaperLibrary) -> list[float]:
        """Judge papers.

        Args:
            task: the question.
            papers: to be judged.
            library: that they were found in.

        Returns:
            A finite number for each.

        Raises:
            EnvFault: if whoever judges is out of reach.
        """
        ...


class GoldRelevance:
    """1 for a gold paper, 0 for any other. For pay alone: what it says must not be shown."""

    name = "gold"
    remote = False

    def score(self, task: PaperTask, papers: Sequence[Paper], library: PaperLibrary) -> list[float]:
        """See `Relevance.score`."""
        gold = frozenset(task.gold)
        return [float(paper.id in gold) for paper in papers]


@lru_cache(maxsize=1 << 14)
def _counts(text: str) -> Mapping[str, int]:
    return MappingProxyType(Counter(analyze(text)))


class BM25Relevance:
    """BM25 of the question in title and abstract, divided by the highest value that it could have: from 0 up to, not including, 1.

    With k1 = 0.9 and without regard to length (b = 0). What the terms weigh is known of a corpus; behind a server all weigh the same. Thus a paper has the same
    relevance to a question whatever else was found.
    """

    name = "bm25"
    remote = False

    def score(self, task: PaperTask, papers: Sequence[Paper], library: PaperLibrary) -> list[float]:
        """See `Relevance.score`."""
        terms = list(dict.fromkeys(analyze(task.question)))
        weights = library.idf(terms) if terms else []
        whole = math.fsum(weights)
        if whole <= 0:
            return [0.0] * len(papers)
        judged = []
        for paper in papers:
            counts = _counts(f"{paper.title}\n{paper.abstract}")
            parts = [weight * count / (count + _K1) for term, weight in zip(terms, weights, strict=True) if (count := counts.get(term, 0))]
            judged.append(math.fsum(parts) / whole)
        return judged


class CallableRelevance:
    """What a function says.

    Args:
        function: (question, papers) -> one number for each paper. It may raise `EnvFault`; anything else that it raises is the programmer's business.
    """

    remote = False

    def __init__(self, function: RelevanceFunction) -> None:
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def score(self, task: PaperTask, papers: Sequence[Paper], library: PaperLibrary) -> list[float]:
        """See `Relevance.score`.

        Raises:
            ValueError: if the function does not give one finite number for each paper.
        """
        given = self._function(task.question, list(papers)) if papers else []
        try:
            judged = [float(one) for one in given]
        except (TypeError, ValueError) as error:
            raise ValueError(f"relevance {self.name} must return one number for each paper, not {given!r:.200}") from error
        if len(judged) != len(papers) or not all(map(math.isfinite, judged)):
            raise ValueError(f"relevance {self.name} must return {len(papers)} finite numbers, one for each paper, not {judged!r:.200}")
        return judged


class HttpRelevance:
    """What a classification model says that vLLM or SGLang serves.

        POST /classify {"model": "...", "input": ["...", "..."]} -> {"data": [{"index": 0, "label": "True", "probs": [0.1, 0.9]}, ...]}

    Args:
        url: of the endpoint, such as http://127.0.0.1:8000/classify; without a path `/classify` is added.
        model: its name at the server; None leaves it out.
        prompt: with the places {question}, {title} and {abstract}.
        positive: which of the probabilities is the relevance; -1 is the last.
        timeout: seconds for the papers of one call, over all requests and tries.
        headers: sent with every request.
        cache_size: so many judgements are remembered.

    Raises:
        ValueError: for an address, a number or a prompt that cannot be used.
    """

    name = "http"
    remote = True

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        prompt: str = PROMPT,
        positive: int = -1,
        timeout: float = 60.0,
        headers: Mapping[str, str] = MappingProxyType({}),
        cache_size: int = 1 << 16,
    ) -> None:
        try:
            prompt.format(question="", title="", abstract="")
        except (KeyError, IndexError, ValueError) as error:
            raise ValueError(
                f"prompt may have the places {{question}}, {{title}} and {{abstract}}, not {error} ({prompt!r:.200})"
            ) from error
        if isinstance(positive, bool) or not isinstance(positive, int):
            raise ValueError(f"positive must be the place of a probability, not {positive!r}")
        self._client = JsonClient(url, what="relevance server", timeout=timeout, headers=headers, example="http://127.0.0.1:8000/classify")
        path = self._client.path if self._client.path not in ("", "/") else "/classify"
        self._target = path + self._client.query
        self._model, self._prompt, self._positive = model, prompt, positive
        self._known: Remembered[str, float] = Remembered(cache_size)
        self._again = partial(
            HttpRelevance,
            url,
            model=model,
            prompt=prompt,
            positive=positive,
            timeout=timeout,
            headers=dict(headers),
            cache_size=cache_size,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, ()

    def score(self, task: PaperTask, papers: Sequence[Paper], library: PaperLibrary) -> list[float]:
        """See `Relevance.score`."""
        deadline = self._client.deadline()
        prompts = [self._prompt.format(question=task.question, title=paper.title, abstract=paper.abstract) for paper in papers]
        judged = {one: known for one in prompts if (known := self._known.get(one)) is not None}
        missing = [one for one in dict.fromkeys(prompts) if one not in judged]
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            body = json.dumps({**({} if self._model is None else {"model": self._model}), "input": batch}).encode("ascii")
            read = partial(_read_judgements, count=len(batch), positive=self._positive)
            found = self._client.ask("POST", self._target, body, read, deadline=deadline, contract="/classify contract")
            for one, value in zip(batch, found, strict=True):
                judged[one] = value
                self._known.put(one, value)
        return [judged[one] for one in prompts]

    def close(self) -> None:
        """Close the connections that are kept open. It can be used again afterwards."""
        self._client.close()


def _read_judgements(content: bytes, *, count: int, positive: int) -> list[float]:
    answer = parse_json(content)
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(one, dict) for one in data):
        raise ValueError('it should be an object whose "data" is a list of objects')
    if len(data) != count:
        raise ValueError(f"{len(data)} judgements for {count} papers")
    judged: dict[int, float] = {}
    for place, one in enumerate(data):
        index, probs = one.get("index", place), one.get("probs")
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count or index in judged:
            raise ValueError(f"an index should be a number from 0 to {count - 1}, each once, not {index!r:.100}")
        if not isinstance(probs, list) or not -len(probs) <= positive < len(probs):
            raise ValueError(f'"probs" should be a list that has a place {positive}, not {probs!r:.100}')
        value = probs[positive]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise ValueError(f"a probability should be a number from 0 to 1, not {value!r:.100}")
        judged[index] = float(value)
    return [judged[index] for index in range(count)]


def open_relevance(relevance: str | RelevanceFunction | Relevance, url: str | None = None) -> Relevance:
    """Return what judges papers.

    Args:
        relevance: "gold", "bm25", "http" (at `url`), a function (question, papers) -> numbers, or a `Relevance`.
        url: of the server for "http".

    Returns:
        What it names.

    Raises:
        ValueError: for anything else, or "http" without an address.
    """
    if isinstance(relevance, str):
        if (relevance == "http") != (url is not None):
            raise ValueError(f"relevance='http' and relevance_url go together, not relevance={relevance!r} with relevance_url={url!r}")
        if relevance == "gold":
            return GoldRelevance()
        if relevance == "bm25":
            return BM25Relevance()
        if relevance == "http" and url is not None:
            return HttpRelevance(url)
        raise ValueError(
            f"relevance must be 'gold', 'bm25', 'http', a function (question, papers) -> numbers or a Relevance, not {relevance!r}"
        )
    if url is not None:
        raise ValueError("relevance_url is for relevance='http' alone")
    if callable(getattr(relevance, "score", None)):
        return relevance  # type: ignore[return-value]  # it has what a Relevance needs
    if callable(relevance):
        return CallableRelevance(relevance)
    raise ValueError(
        f"relevance must be 'gold', 'bm25', 'http', a function (question, papers) -> numbers or a Relevance, not {relevance!r}"
    )
