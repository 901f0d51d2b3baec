"""`PaperPool`: what an episode has found so far, in the order in which it was found, and what was done for it.

The pool is the state of an episode (PaperScout; AgentR1/StepPO): a prompt is made from it anew at each step. It knows the papers, which of them were
expanded, and the searches; a search or an expansion that was made before is a repetition, however it is spelt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent_gym.data.papers import Paper

__all__ = ["Found", "PaperPool", "plain_query"]


def plain_query(query: str) -> str:
    """Return what makes two queries one: their words in small letters.

    Args:
        query: as the model wrote it.

    Returns:
        Equal for queries that differ in case and white space alone.
    """
    return " ".join(query.casefold().split())


@dataclass(slots=True, eq=False)
class Found:
    """A paper of the pool.

    Attributes:
        paper: as the library gave it.
        number: its place in the order in which papers were found.
        score: what it is shown and ranked with, 0 to 1.
        relevance: what it is paid with.
        source: "search" or "expand".
        origin: the query, or the id of the paper, that found it first.
        expanded: whether its citations were followed.
    """

    paper: Paper
    number: int
    score: float
    relevance: float
    source: str
    origin: str
    expanded: bool = False


@dataclass(slots=True)
class PaperPool:
    """The papers that were found, by id, and the queries.

    Attributes:
        found: in the order in which they were found.
        queries: plain queries that were searched.
        n_repeated: searches and expansions that were not worth anything: made before, or of a paper that is not in the pool.
    """

    found: dict[str, Found] = field(default_factory=dict)
    queries: set[str] = field(default_factory=set)
    n_repeated: int = 0

    def __len__(self) -> int:
        """How many papers it has."""
        return len(self.found)

    def __contains__(self, paper_id: object) -> bool:
        """Whether it has a paper, by its id in the one spelling."""
        return paper_id in self.found

    def add(
        self, papers: Sequence[Paper], scores: Sequence[float], relevances: Sequence[float], source: str, origin: str, least: float = 0.0
    ) -> list[Found]:
        """Take papers in.

        Args:
            papers: that a call found.
            scores: of each.
            relevances: of each.
            source: "search" or "expand".
            origin: query or paper id.
            least: papers with a lower score are not kept.

        Returns:
            Those that are new.
        """
        new = []
        for paper, score, relevance in zip(papers, scores, relevances, strict=True):
            if paper.id in self.found or score < least:
                continue
            entry = Found(paper, len(self.found), score, relevance, source, origin)
            self.found[paper.id] = entry
            new.append(entry)
        return new

    def ranked(self) -> list[Found]:
        """Return all papers, the best score first, of equal ones the one that was found first.

        Returns:
            A new list; empty before anything was found.
        """
        return sorted(self.found.values(), key=_by_score)

    def shown(self, size: int) -> list[Found]:
        """Return the papers that a prompt shows.

        Args:
            size: at most so many: half of them expanded ones, half others, and more of one where there are fewer of the other.

        Returns:
            The best expanded ones, then the best others; of equal ones the one that was found last, which was not seen yet.
        """
        ranked = sorted(self.found.values(), key=_newest_by_score)
        done, open_ = [one for one in ranked if one.expanded], [one for one in ranked if not one.expanded]
        half = size // 2
        n_done = min(len(done), max(half, size - len(open_)))
        return [*done[:n_done], *open_[: size - n_done]]


def _by_score(one: Found) -> tuple[float, int]:
    return -one.score, one.number


def _newest_by_score(one: Found) -> tuple[float, int]:
    return -one.score, -one.number


def ids_of(found: Iterable[Found]) -> list[str]:
    """Return the ids of papers of a pool, in order."""
    return [one.paper.id for one in found]
