"""How good a list of papers is: precision, recall and F1 of its first k, and of all of it.

The cut-offs 25, 50, 100 and "all" are those of published evaluations of paper search (PaSa, arXiv 2501.10120; PaperScout). Both sides are compared in
the one spelling of `normalize_paper_id`; a paper that is listed twice counts once, at its first place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_gym.data.papers import normalize_paper_id

__all__ = ["CUTOFFS", "ListScore", "list_score", "list_scores"]

CUTOFFS = (25, 50, 100)


@dataclass(frozen=True, slots=True)
class ListScore:
    """Of a list of papers against the gold ones.

    Attributes:
        precision: the part of the list that is gold; 0 for an empty list.
        recall: the part of the gold papers that is listed.
        f1: their harmonic mean; 0 where both are 0.
    """

    precision: float
    recall: float
    f1: float


def _unique(ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(normalize_paper_id(one) for one in ids))


def list_score(ranked: Sequence[str], gold: Iterable[str], k: int | None = None) -> ListScore:
    """Score the first k papers of a list.

    Args:
        ranked: ids, best first.
        gold: ids; at least one.
        k: at least 1; None for the whole list. Where the list is shorter than k, precision is of the papers that there are.

    Returns:
        The score.

    Raises:
        ValueError: if there is no gold paper, or k is below 1.
    """
    wanted = set(_unique(gold))
    if not wanted:
        raise ValueError("there is no gold paper, so no list can be scored")
    if k is not None and k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    listed = _unique(ranked)[:k]
    hits = sum(one in wanted for one in listed)
    precision = hits / len(listed) if listed else 0.0
    recall = hits / len(wanted)
    return ListScore(precision, recall, 2 * hits / (len(listed) + len(wanted)))


def list_scores(ranked: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """Score a list at every cut-off.

    Args:
        ranked: ids, best first.
        gold: ids.

    Returns:
        "recall", "precision" and "f1" of all, and the same with "_at_25", "_at_50" and "_at_100". NaN for all where there is no gold paper, since nothing
        is known of such a list.
    """
    found: dict[str, float] = {}
    for k in (None, *CUTOFFS):
        ending = "" if k is None else f"_at_{k}"
        score = list_score(ranked, gold, k) if gold else ListScore(*[float("nan")] * 3)
        found.update({f"recall{ending}": score.recall, f"precision{ending}": score.precision, f"f1{ending}": score.f1})
    return found
