"""Where papers are searched and followed: a `PaperLibrary`, over a corpus in memory here and over a server in `http`.

What appeared too late for a question is kept back by the library itself, before anything is counted or cut, so that no caller can forget it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent_gym.data.papers import DateBound, Paper, PaperCorpus

__all__ = ["LocalLibrary", "PaperLibrary"]


class PaperLibrary(Protocol):
    """Finds papers and follows citations. Implementations are safe to call from several threads."""

    @property
    def name(self) -> str:
        """What is searched, for info and reports."""
        ...

    @property
    def remote(self) -> bool:
        """Whether calls wait for a network."""
        ...

    def search(self, query: str, k: int, bound: DateBound) -> list[Paper]:
        """Look for papers.

        Args:
            query: any text.
            k: at most so many, at least 1.
            bound: papers outside of it are as if they were not there.

        Returns:
            The papers, best first.

        Raises:
            EnvFault: if the library is out of reach.
        """
        ...

    def neighbours(self, paper: Paper, citations: int, references: int, bound: DateBound) -> list[Paper]:
        """Follow the citations of a paper in both directions.

        Args:
            paper: as the library gave it.
            citations: at most so many of the papers that cite it.
            references: at most so many of the papers that it cites.
            bound: as for `search`.

        Returns:
            First the citing papers, then the cited ones, each once and without the paper itself.

        Raises:
            EnvFault: if the library is out of reach.
        """
        ...

    def idf(self, terms: Sequence[str]) -> list[float]:
        """Return how much terms tell apart here: 0 for one that no paper has, 1 for all where nothing is known.

        Args:
            terms: as `agent_gym.search.analysis.analyze` gives them.

        Returns:
            One number for each.
        """
        ...


class LocalLibrary:
    """The papers of a corpus.

    Args:
        corpus: papers with an index.

    Attributes:
        name, remote: see `PaperLibrary`.
    """

    remote = False

    def __init__(self, corpus: PaperCorpus) -> None:
        self.corpus = corpus
        self.name = corpus.name

    def search(self, query: str, k: int, bound: DateBound) -> list[Paper]:
        """See `PaperLibrary.search`."""
        return self.corpus.ranked(query, bound, 0, k)

    def neighbours(self, paper: Paper, citations: int, references: int, bound: DateBound) -> list[Paper]:
        """See `PaperLibrary.neighbours`."""
        return joined(self.corpus.citations(paper), self.corpus.references(paper), paper, citations, references, bound)

    def idf(self, terms: Sequence[str]) -> list[float]:
        """See `PaperLibrary.idf`."""
        return self.corpus.index.idf(terms)


def joined(citing: Sequence[Paper], cited: Sequence[Paper], paper: Paper, citations: int, references: int, bound: DateBound) -> list[Paper]:
    """Return neighbours as a library gives them.

    Args:
        citing: papers that cite this one.
        cited: papers that it cites.
        paper: this one.
        citations: at most so many of the first.
        references: at most so many of the second.
        bound: what is let through, before anything is counted.

    Returns:
        Each once, the citing ones first.
    """
    kept: dict[str, Paper] = {}
    for listed, limit in ((citing, citations), (cited, references)):
        for one in [one for one in listed if one.id != paper.id and bound.allows(one)][:limit]:
            kept.setdefault(one.id, one)
    return list(kept.values())
