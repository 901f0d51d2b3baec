"""Answer and supporting-fact metrics of multi-hop question answering, and the reward rule that rests on them.

The normalisation is the one of the official HotpotQA evaluation (Yang et al., arXiv 1809.09600; `hotpot_evaluate_v1.py`), to the letter:
lower-case, *delete* ASCII punctuation, blank out the words "a", "an" and "the", squeeze white space. The order and the small print matter:
"A.S. Roma" keeps its "as", "3,677" becomes "3677", accents and typographic dashes stay. Scores made with a variant of it cannot be compared
with published ones, which is why there is one function and every metric of the package goes through it.

Two things are deliberately stricter than the official script. `answer_reward` pays nothing for a prediction that normalises to nothing, even
where the gold does so too (a policy that collapses to an empty answer must never be paid). And `sub_exact_match`, which any answer that lists
enough text will satisfy, is a metric only: it never takes aliases, some of which are as short as "US", and no reward uses it.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = [
    "PRF",
    "AnswerScores",
    "SupportScores",
    "answer_reward",
    "evaluate_predictions",
    "exact_match",
    "joint_scores",
    "normalize_answer",
    "score_answer",
    "sub_exact_match",
    "support_scores",
    "title_recall",
    "token_f1",
]

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})
"""Answers that are right or wrong as a whole: a word shared with one of them earns no partial F1."""


@dataclass(frozen=True, slots=True)
class PRF:
    """Precision, recall and their harmonic mean, each in [0, 1]."""

    f1: float = 0.0
    precision: float = 0.0
    recall: float = 0.0


@dataclass(frozen=True, slots=True)
class AnswerScores:
    """The official answer metrics of one prediction: exact match (0 or 1) and token precision, recall and F1."""

    em: float = 0.0
    f1: float = 0.0
    precision: float = 0.0
    recall: float = 0.0


@dataclass(frozen=True, slots=True)
class SupportScores:
    """The same four numbers over a set of supporting facts."""

    em: float = 0.0
    f1: float = 0.0
    precision: float = 0.0
    recall: float = 0.0


def normalize_answer(text: str) -> str:
    """Return the text as the official HotpotQA evaluation compares it.

    Args:
        text: any answer.

    Returns:
        The text in lower case, without ASCII punctuation (deleted, not replaced), without the words a, an, the, with single blanks. It may
        be empty.
    """
    bare = text.lower().translate(_DELETE_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def _accepted(answers: str | Iterable[str]) -> list[str]:
    return [answers] if isinstance(answers, str) else list(answers)


def exact_match(prediction: str, answers: str | Iterable[str]) -> float:
    """Official exact match: 1.0 if the normalised prediction equals one of the normalised answers, else 0.0.

    Args:
        prediction: the answer to judge.
        answers: the gold answer, or several of which any one counts (gold and aliases).

    Returns:
        1.0 or 0.0. Two texts that both normalise to nothing match, as in the official script; see `answer_reward`.
    """
    given = normalize_answer(prediction)
    return float(any(given == normalize_answer(answer) for answer in _accepted(answers)))


def _prf(shared: float, given: float, wanted: float) -> PRF:
    if not shared:
        return PRF()
    precision, recall = shared / given, shared / wanted
    return PRF(2 * precision * recall / (precision + recall), precision, recall)


def _token_f1(prediction: str, gold: str) -> PRF:
    given, wanted = normalize_answer(prediction), normalize_answer(gold)
    if given != wanted and (given in _CLOSED_ANSWERS or wanted in _CLOSED_ANSWERS):
        return PRF()
    given_words, wanted_words = given.split(), wanted.split()
    shared = sum((Counter(given_words) & Counter(wanted_words)).values())
    return _prf(shared, len(given_words), len(wanted_words))


def token_f1(prediction: str, answers: str | Iterable[str]) -> PRF:
    """Official token F1, with its precision and recall: the best over the accepted answers.

    Args:
        prediction: the answer to judge.
        answers: the gold answer, or several of which the best counts.

    Returns:
        Bag-of-words overlap of the normalised texts. All zeros when either of the two is "yes", "no" or "noanswer" and they differ, and
        when either is empty.
    """
    return max((_token_f1(prediction, answer) for answer in _accepted(answers)), key=lambda score: score.f1, default=PRF())


def sub_exact_match(prediction: str, golds: str | Iterable[str]) -> float:
    """Whether a gold answer occurs anywhere in the prediction: a lenient metric, never a reward.

    A prediction that lists every paragraph scores 1, so a policy trained on this number learns to list. Give it gold answers only: aliases are
    short and noisy.

    Args:
        prediction: the answer to judge.
        golds: the gold answer or answers, without aliases. One that normalises to nothing is never found.

    Returns:
        1.0 or 0.0.
    """
    given = normalize_answer(prediction)
    wanted = (normalize_answer(gold) for gold in _accepted(golds))
    return float(any(gold and gold in given for gold in wanted))


def answer_reward(prediction: str, answers: str | Iterable[str]) -> float:
    """The reward of an answer: official exact match, but nothing for a prediction that normalises to nothing.

    Args:
        prediction: the answer to judge.
        answers: the gold answer, or several of which any one counts.

    Returns:
        1.0 or 0.0.
    """
    return exact_match(prediction, answers) if normalize_answer(prediction) else 0.0


def score_answer(prediction: str, answers: str | Iterable[str]) -> AnswerScores:
    """Return exact match and token precision, recall and F1 of one prediction.

    Args:
        prediction: the answer to judge.
        answers: the gold answer, or several of which the best counts.

    Returns:
        The four official numbers.
    """
    accepted = _accepted(answers)
    overlap = token_f1(prediction, accepted)
    return AnswerScores(exact_match(prediction, accepted), overlap.f1, overlap.precision, overlap.recall)


def support_scores(predicted: Iterable[Sequence[Hashable]], gold: Iterable[Sequence[Hashable]]) -> SupportScores:
    """Official supporting-fact metrics: both sides as sets of (title, sentence number).

    Args:
        predicted: pairs that the prediction names; repetitions count once.
        gold: the pairs of the row.

    Returns:
        Exact match of the two sets, F1, precision and recall. An empty prediction has precision 0, and matches an empty gold set exactly.
    """
    given, wanted = {tuple(pair) for pair in predicted}, {tuple(pair) for pair in gold}
    overlap = _prf(len(given & wanted), len(given), len(wanted))
    return SupportScores(float(given == wanted), overlap.f1, overlap.precision, overlap.recall)


def title_recall(seen: Iterable[str], gold: Iterable[str]) -> float:
    """The part of the supporting titles that was retrieved.

    Args:
        seen: titles of the retrieved pages.
        gold: the supporting titles of the row.

    Returns:
        A number in [0, 1]; 0.0 where the row names no supporting title.
    """
    wanted = set(gold)
    return len(wanted & set(seen)) / len(wanted) if wanted else 0.0


def joint_scores(answer: AnswerScores, support: SupportScores) -> AnswerScores:
    """Official joint metrics of one row: precisions and recalls multiplied, F1 made from the products, exact match of both.

    Args:
        answer: of the row.
        support: of the row.

    Returns:
        The four joint numbers.
    """
    precision, recall = answer.precision * support.precision, answer.recall * support.recall
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return AnswerScores(answer.em * support.em, f1, precision, recall)


@dataclass(slots=True)
class _Totals:
    """Sums of the official report, by its own key names."""

    sums: dict[str, float] = field(default_factory=dict)

    def add(self, prefix: str, scores: AnswerScores | SupportScores) -> None:
        for key, value in (("em", scores.em), ("f1", scores.f1), ("prec", scores.precision), ("recall", scores.recall)):
            self.sums[prefix + key] = self.sums.get(prefix + key, 0.0) + value


def evaluate_predictions(
    golds: Iterable[Mapping[str, object]],
    answers: Mapping[str, str],
    supporting_facts: Mapping[str, Iterable[Sequence[Hashable]]] | None = None,
    *,
    warn: Callable[[str], None] | None = None,
) -> dict[str, float]:
    """Score a whole prediction file as the official script does.

    Args:
        golds: official rows with `_id` (or `id`), `answer` and `supporting_facts`.
        answers: row id -> predicted answer. A row without one counts 0.
        supporting_facts: row id -> predicted (title, sentence number) pairs. A row without them counts 0 there and in the joint metrics.
        warn: called with a message per missing prediction.

    Returns:
        em, f1, prec, recall, sp_em, sp_f1, sp_prec, sp_recall, joint_em, joint_f1, joint_prec, joint_recall, each divided by the number of
        gold rows.

    Raises:
        ValueError: if there are no gold rows.
    """
    facts = supporting_facts or {}
    totals, count = _Totals(), 0
    for prefix in ("", "sp_", "joint_"):
        totals.add(prefix, AnswerScores())
    for row in golds:
        count += 1
        key = str(row.get("_id", row.get("id")))
        answer = score_answer(answers[key], str(row["answer"])) if key in answers else None
        support = support_scores(facts[key], row["supporting_facts"]) if key in facts else None  # type: ignore[arg-type]  # official rows
        if answer is not None:
            totals.add("", answer)
        if support is not None:
            totals.add("sp_", support)
        if answer is not None and support is not None:
            totals.add("joint_", joint_scores(answer, support))
        if warn is not None and (answer is None or support is None):
            warn(f"row {key!r} has no predicted {'answer' if answer is None else 'supporting facts'}")
    if not count:
        raise ValueError("evaluate_predictions needs at least one gold row")
    return {name: total / count for name, total in totals.sums.items()}
