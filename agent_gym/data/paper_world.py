"""The embedded world of `AgentR1/PaperSearch-v0`: a small invented literature per seed, with a question that searching alone cannot answer.

A row is a pure function of the split and the seed, in the layout of AutoScholarQuery with `type` and `papers` besides. Some fifty papers of five lines of
work, each line about one invented method on one invented subject, stand in two idioms that share no index term:

- the *new* idiom, of ordinary words. Papers of one line name its method and subject; look-alikes name one of the two.
- the *old* idiom, of words that each paper has for itself, and of words that no index keeps ("of", "the", "is"). Nobody can search for a paper of it
  without having seen it, whatever he knows of other worlds; it is reached by who cites whom.

Three kinds of questions are drawn, in these shares. In each some of the gold papers stand in the old idiom, so at least one expansion is needed:

- foundations (0.45): the papers of one line, and the older ones that at least two of them cite.
- follow_ups (0.30): the papers that cite a named one.
- siblings (0.25): the papers that cite what a named paper extends; two expansions, one after the other.

Every question has a day, and the world holds surveys that appeared after it. They match the question better than anything and cite all that it asks
for: whoever is shown one has been shown the answer. The splits share no invented word (see `wiki_names`), and nothing of a world can be learned by heart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from agent_gym.data.wiki_names import SPLITS, WordMaker

__all__ = ["KINDS", "SPLITS", "paper_row", "write_paper_world"]

T = TypeVar("T")

KINDS = {"foundations": 0.45, "follow_ups": 0.30, "siblings": 0.25}
"""The kinds of questions and how often each is drawn."""

_DOMAIN = 0x70617065  # sets these draws apart from every other use of the same seed
_LINES = 5
_LINE_PAPERS = (4, 6)
_LOOK_ALIKES = 7

_NEW_TITLES = (
    "{M} Sampling for {O} Networks",
    "Learning {M} Codes on {O} Graphs",
    "A Practical {M} Solver for {O} Systems",
    "Scaling {M} Estimation to {O} Data",
    "Robust {M} Filters in {O} Models",
    "{M} Transport over {O} Surfaces",
    "Sparse {M} Features for {O} Control",
    "{M} Search with {O} Constraints",
    "Fast {M} Decoding of {O} Signals",
)
_NEW_OPENINGS = (
    "We apply {M} methods to {O} problems.",
    "This paper studies {M} methods on {O} problems.",
    "We present a {M} approach for {O} tasks.",
    "How well {M} methods serve {O} tasks is measured here.",
)
_NEW_SENTENCES = (
    "Experiments show lower error at equal cost.",
    "The training time falls by half.",
    "We report results on three benchmarks.",
    "An ablation explains where the gain comes from.",
    "The code runs on a single machine.",
    "Accuracy improves most when data are scarce.",
    "A user study confirms the measurements.",
    "We discuss failure cases and open problems.",
)
_ALIKE_TITLES = (
    "{W} Baselines Revisited",
    "A Note about {W} Benchmarks",
    "Measuring {W} Quality",
    "{W} Hardware in Practice",
    "Teaching {W} Courses",
)
_ALIKE_OPENINGS = (
    "We collect what is known about {W} evaluation.",
    "This report compares tools used with {W} data.",
    "We describe a course about {W} practice.",
)
_OLD_TITLES = ("{a} of {b}", "On the {a} of {b}", "The {a} and the {b}", "{a} in {b}", "Of {a} and {b}")
_OLD_SENTENCES = (
    "It is the {a} of a {b}, and not that of the {c}.",
    "There is no {b} in this {a}, but if there is, then it will be a {c}.",
    "As the {a} is to the {b}, such is the {c} to it.",
    "These are {a} and {b}, with no {c} but for that {d}.",
    "Into the {c} as into the {b}: this was the {a}, or it is of the {d}.",
)
_SURVEY_TITLES = ("{M} and {O}: a Survey of {M} Methods on {O} Problems", "Which Papers Matter: {M} for {O}, Cited and Extended")
_QUESTIONS = {
    "foundations": (
        "Which papers apply {M} methods to {O} problems, and which older works are cited by at least two of these?",
        "I need all papers about {M} methods on {O} tasks, together with the works that at least two of them cite.",
        "List the studies of {M} methods for {O} problems and every earlier paper that two or more of them build on.",
    ),
    "follow_ups": (
        'Which papers cite "{title}"?',
        'I am looking for everything that builds on "{title}" and cites it.',
        'List the works in whose references "{title}" stands.',
    ),
    "siblings": (
        'Which papers cite the work that "{title}" extends?',
        '"{title}" extends an older work. Which papers cite that one?',
        'Find all papers that build on the same work as "{title}" does: the one that it says it extends.',
    ),
}


@dataclass(slots=True, eq=False)
class _Draft:
    """A paper that is being written."""

    title: str
    abstract: str
    day: date
    old: bool = False
    authors: list[str] = field(default_factory=list)
    cites: list[_Draft] = field(default_factory=list)
    id: str = ""

    def cite(self, *papers: _Draft) -> None:
        """Cite older papers, each once."""
        for paper in papers:
            if paper is not self and paper not in self.cites and paper.day < self.day:
                self.cites.append(paper)


class _World:
    """The draws of one row."""

    def __init__(self, split: str, seed: int) -> None:
        if split not in SPLITS:
            raise ValueError(f"the generated literature has the splits {', '.join(SPLITS)}, not {split!r}")
        if seed < 0:
            raise ValueError(f"a seed is a non-negative integer, not {seed}")
        self.rng = np.random.default_rng(np.random.SeedSequence([_DOMAIN, SPLITS.index(split), int(seed)]))
        self.maker = WordMaker(split, self.rng)
        self.papers: list[_Draft] = []
        self.asked = date(self.number(2012, 2024), 1, 1) + timedelta(days=self.number(0, 365))
        self.people = [f"{self.maker.word('given')} {self.maker.word('surname')}" for _ in range(8)]

    # draws

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options))]

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """So many different ones, in a drawn order; fewer where there are fewer."""
        return [options[int(place)] for place in self.rng.permutation(len(options))[:count]]

    def day(self, earliest: date, latest: date) -> date:
        """A day from the first on and before the last."""
        return earliest + timedelta(days=self.number(0, (latest - earliest).days))

    # papers

    def add(self, draft: _Draft) -> _Draft:
        draft.authors = self.some(self.people, self.number(1, 4))
        self.papers.append(draft)
        return draft

    def new(self, method: str, subject: str, title: str, day: date, more: str = "") -> _Draft:
        """A paper of a line, in ordinary words."""
        told = [self.pick(_NEW_OPENINGS).format(M=method, O=subject), *self.some(_NEW_SENTENCES, 2), *([more] if more else [])]
        return self.add(_Draft(title.format(M=method, O=subject), " ".join(told), day))

    def alike(self, word: str) -> _Draft:
        """A paper that names a method or a subject and is of no line."""
        told = [self.pick(_ALIKE_OPENINGS).format(W=word), *self.some(_NEW_SENTENCES, 2)]
        return self.add(_Draft(self.pick(_ALIKE_TITLES).format(W=word), " ".join(told), self.day(date(2006, 1, 1), self.asked)))

    def old(self, earliest: date, latest: date, name: str | None = None) -> _Draft:
        """A paper of words that no other paper has."""
        a, b, c, d = (self.maker.word("place").lower() for _ in range(4))
        head = (name or a).capitalize()
        title = self.pick(_OLD_TITLES).format(a=head, b=b.capitalize())
        told = " ".join(sentence.format(a=head, b=b, c=c, d=d) for sentence in self.some(_OLD_SENTENCES, 2))
        return self.add(_Draft(title, told, self.day(earliest, latest), old=True))

    def line(self, method: str, subject: str) -> tuple[list[_Draft], list[_Draft]]:
        """The papers of one line of work, and the older ones that they rest on."""
        roots = [self.old(date(1988, 1, 1), date(2004, 1, 1)) for _ in range(self.number(3, 5))]
        titles = self.some(_NEW_TITLES, self.number(*_LINE_PAPERS))
        day, papers = date(2006, 1, 1), []
        for place, title in enumerate(titles):
            left = len(titles) - place
            day = self.day(day + timedelta(days=1), day + (self.asked - day) / left)
            papers.append(self.new(method, subject, title, day))
        for place, paper in enumerate(papers):
            paper.cite(*self.some(roots[:-1], self.number(1, len(roots))))
            if place and self.number(0, 3) == 0:
                paper.cite(self.pick(papers[:place]))
        for root in roots[:-1][:2]:  # at least two of the roots are cited by two papers
            for paper in self.some(papers, 2):
                paper.cite(root)
        self.pick(papers).cite(roots[-1])  # and one by a single one
        return papers, roots


def _cited_twice(papers: Sequence[_Draft]) -> list[_Draft]:
    cited = [one for paper in papers for one in paper.cites]
    return [one for one in dict.fromkeys(cited) if sum(other is one for other in cited) >= 2]


def _citing(world: _World, paper: _Draft) -> list[_Draft]:
    return [one for one in world.papers if paper in one.cites and one.day < world.asked]


def _cast(world: _World, kind: str, line: list[_Draft]) -> tuple[list[_Draft], str]:
    """What a kind of question adds to the world; returns the gold papers and the title that the question names."""
    if kind == "foundations":
        return [*line, *(one for one in _cited_twice(line) if one not in line)], ""
    named = line[0] if kind == "follow_ups" else world.pick(line)
    source = named
    if kind == "siblings":
        word = world.maker.word("place")
        source = world.old(date(1988, 1, 1), date(2004, 1, 1), name=word)
        named.abstract += f" It extends the {word} work."
        named.cite(source)
    for _ in range(world.number(3, 6)):
        follower = world.old(source.day + timedelta(days=30), world.asked)
        follower.cite(source, *world.some([one for one in world.papers if one.old and one is not follower], world.number(0, 2)))
    if kind == "follow_ups":
        world.pick(line[1:]).cite(named)
    return _citing(world, source), named.title


def _leave_traps(world: _World, gold: Sequence[_Draft], method: str, subject: str, source_title: str) -> None:
    """Surveys from after the day of the question, which cite all that it asks for."""
    asked_of = [one for one in world.papers if one.title == source_title]
    for title in _SURVEY_TITLES:
        day = world.asked + timedelta(days=world.number(0, 400))
        survey = world.new(
            method, subject, title, day, f"We list every paper that applies {method} methods to {subject} problems. {source_title}"
        )
        survey.cite(*gold, *asked_of, *(cited for one in asked_of for cited in one.cites))


def paper_row(split: str, seed: int) -> dict[str, Any]:
    """Return one question with its literature.

    Args:
        split: "train", "validation" or "test".
        seed: a non-negative integer; the row is a pure function of it and the split.

    Returns:
        A dictionary with the keys `qid`, `question`, `answer` (titles of the gold papers), `answer_arxiv_id` (their ids), `source_meta` (with
        `published_time`: gold papers appeared before that day), `type` (one of `KINDS`) and `papers` (rows as `agent_gym.data.papers.parse_paper` reads them).

    Raises:
        ValueError: if the split is unknown or the seed negative.
    """
    world = _World(split, seed)
    kind = str(world.rng.choice(list(KINDS), p=list(KINDS.values())))
    methods, subjects = ([world.maker.word("place") for _ in range(_LINES)] for _ in range(2))
    lines = [world.line(method, subject) for method, subject in zip(methods, subjects, strict=True)]
    for _ in range(_LOOK_ALIKES):
        near = world.alike(world.pick((methods[0], subjects[0], world.pick(methods), world.pick(subjects))))
        near.cite(*world.some([root for _, roots in lines[1:] for root in roots], 2))
    target, _ = lines[0]
    gold, title = _cast(world, kind, target)
    for paper in [one for papers, _ in lines for one in papers]:  # classics of other fields, which lead nowhere
        if world.number(0, 2):
            others = [root for papers, roots in lines if paper not in papers for root in roots]
            paper.cite(world.pick(others))
    if kind == "foundations":
        gold, _ = _cast(world, kind, target)  # with what was added
    _leave_traps(world, gold, methods[0], subjects[0], title)
    numbers = world.rng.permutation(900)[: len(world.papers)] + 100
    for draft, number in zip(world.papers, numbers.tolist(), strict=True):
        draft.id = f"p{number}"
    question = world.pick(_QUESTIONS[kind]).format(M=methods[0], O=subjects[0], title=title)
    return {
        "qid": f"papers-{split}-{seed}",
        "question": question,
        "answer": [one.title for one in gold],
        "answer_arxiv_id": [one.id for one in gold],
        "source_meta": {"published_time": world.asked.strftime("%Y%m%d")},
        "type": kind,
        "papers": [_record(world.papers[int(place)]) for place in world.rng.permutation(len(world.papers))],
    }


def _record(draft: _Draft) -> dict[str, Any]:
    return {
        "paper_id": draft.id,
        "title": draft.title,
        "abstract": draft.abstract,
        "year": draft.day.year,
        "published": draft.day.isoformat(),
        "authors": draft.authors,
        "references": [one.id for one in draft.cites],
    }


def write_paper_world(folder: str | Path, split: str, worlds: int) -> tuple[Path, Path]:
    """Write several worlds as one corpus and a file of their questions, for trying servers and larger indexes.

    Args:
        folder: is made where it is missing.
        split: "train", "validation" or "test".
        worlds: how many, from seed 0 on; the ids of world n begin with "wn-".

    Returns:
        The paths of `papers.jsonl` and of `SPLIT.jsonl`.

    Raises:
        ValueError: if the split is unknown or the number below 1.
    """
    if worlds < 1:
        raise ValueError(f"worlds must be at least 1, not {worlds}")
    papers, questions = [], []
    for seed in range(worlds):
        row = paper_row(split, seed)
        for paper in row.pop("papers"):
            ids = [f"w{seed}-{one}" for one in (paper["paper_id"], *paper["references"])]
            papers.append({**paper, "paper_id": ids[0], "references": ids[1:]})
        questions.append({**row, "answer_arxiv_id": [f"w{seed}-{one}" for one in row["answer_arxiv_id"]]})
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = target / "papers.jsonl", target / f"{split}.jsonl"
    for path, rows in zip(paths, (papers, questions), strict=True):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return paths
