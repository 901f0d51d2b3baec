"""The metrics of 2WikiMultihopQA and MuSiQue, as their own scripts compute them, aliases included.

All three multi-hop sets normalise an answer alike (`qa_metrics.normalize_answer`) and compare it with every accepted one; what differs is what is
accepted, and a few lines that matter when figures are compared:

- 2WikiMultihopQA (Ho et al., arXiv 2011.01060; `2wikimultihop_evaluate_v1.1.py`): the gold, and the aliases and demonyms of its Wikidata id
  (`answer_id`) in `id_aliases.json`. Exact match, F1, precision and recall are each the best over these, on their own. Supporting facts are compared
  with titles in lower case. A third task, the evidence triples, takes aliases of subject and object; "joint" is the product of all three.
- MuSiQue (Trivedi et al., arXiv 2108.00573; `evaluate_v1.0.py`): the gold and the row's `answer_aliases`. F1 knows no special case for yes and no.
  Answer and support are scored on the answerable rows alone; where a file has unanswerable twins, a pair counts only if both of its
  answerable/unanswerable verdicts are right. Its script has no joint figure beyond these.

Figures are parts of 1, not rounded (2Wiki's script prints per cent of two digits, MuSiQue's rounds to three).
"""

from __future__ import annotations

import itertools
import json
import string
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_gym.data.files import read_once
from agent_gym.data.qa_metrics import AnswerScores, SupportScores, exact_match, normalize_answer, token_f1

__all__ = ["AliasTable", "evaluate_musique", "evaluate_two_wiki", "musique_scores", "read_aliases", "two_wiki_scores"]

AliasTable = Mapping[str, tuple[str, ...]]
"""Wikidata id -> aliases and demonyms."""
Triple = Sequence[str]

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)


# ------------------------------------------------------------------------------------------------ 2WikiMultihopQA


@read_once(maxsize=4)
def _read(path: Path) -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    with path.open(encoding="utf-8-sig") as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    identity, names = _alias_line(line, f"{path.name} line {number}")
                    table[identity] = names
        except UnicodeDecodeError as error:
            raise ValueError(f"{path.name}: no text in UTF-8 ({error}); unpack the file if it is packed") from error
    return table


def _alias_line(line: str, where: str) -> tuple[str, tuple[str, ...]]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: no valid JSON: {error}") from error
    if not isinstance(row, dict) or not isinstance(row.get("Q_id"), str):
        raise ValueError(f"{where}: a line must be an object with 'Q_id', 'aliases' and 'demonyms', not {line.strip()[:120]!r}")
    names: list[str] = []
    for name in ("aliases", "demonyms"):
        value = row.get(name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ValueError(f"{where}: field {name!r} must be a list of texts, not {value!r:.120}")
        names += value
    return row["Q_id"], tuple(dict.fromkeys(names))


def read_aliases(path: str | Path) -> AliasTable:
    """Read `id_aliases.json` of 2WikiMultihopQA; once per process until it changes.

    Args:
        path: JSON lines with `Q_id`, `aliases` and `demonyms`.

    Returns:
        Both lists together, by id.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for a malformed line, with file, line and field.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}; aliases are read from id_aliases.json of 2WikiMultihopQA")
    return _read(file)


def two_wiki_scores(prediction: str, answers: str | Iterable[str]) -> AnswerScores:
    """The answer metrics of 2WikiMultihopQA: the best exact match, F1, precision and recall over the accepted answers, each on its own.

    Args:
        prediction: the answer to judge.
        answers: the gold answer and its aliases.

    Returns:
        The four numbers.
    """
    accepted = [answers] if isinstance(answers, str) else list(answers)
    found = [token_f1(prediction, answer) for answer in accepted]
    return AnswerScores(
        exact_match(prediction, accepted),
        max((one.f1 for one in found), default=0.0),
        max((one.precision for one in found), default=0.0),
        max((one.recall for one in found), default=0.0),
    )


def _lowered(facts: Iterable[Sequence[Hashable]]) -> list[tuple[Hashable, ...]]:
    """Facts with the title in lower case. As in the script these are made different before, not after."""
    return [(str(fact[0]).lower(), *fact[1:]) for fact in {tuple(pair) for pair in facts}]


def _two_wiki_support(predicted: Iterable[Sequence[Hashable]], gold: Iterable[Sequence[Hashable]]) -> SupportScores:
    given, wanted = _lowered(predicted), _lowered(gold)
    right, missed = sum(fact in wanted for fact in given), sum(fact not in given for fact in wanted)
    return _support(right, len(given) - right, missed)


def _support(right: int, wrong: int, missed: int) -> SupportScores:
    precision = right / (right + wrong) if right + wrong else 0.0
    recall = right / (right + missed) if right + missed else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return SupportScores(float(wrong + missed == 0), f1, precision, recall)


def _plain_triple(triple: Triple) -> tuple[str, ...]:
    """A triple as it is compared: articles stay."""
    return tuple(" ".join(part.lower().translate(_DELETE_PUNCTUATION).split()) for part in triple)


def _evidence(predicted: Iterable[Triple], row: Mapping[str, Any], aliases: AliasTable) -> SupportScores:
    """The evidence metrics: a predicted triple matches a gold one in any spelling of its subject and object."""
    identities = row.get("evidences_id") or []
    if identities and len(identities) != len(row["evidences"]):
        raise ValueError(f"row {row.get('_id')!r} has {len(row['evidences'])} evidences and {len(identities)} evidences_id; each needs one")
    golds = []
    for index, (subject, relation, value) in enumerate(row["evidences"]):
        subjects, values = [subject], [value]
        if identities:
            subjects += aliases.get(str(identities[index][0]), ())
            values += aliases.get(str(identities[index][2]), ())
        golds.append({_plain_triple((one, relation, other)) for one, other in itertools.product(subjects, values)})
    given = {_plain_triple(triple) for triple in predicted}
    matched = sum(any(triple in gold for gold in golds) for triple in given)
    precision, recall = (matched / len(given) if given else 0.0), (matched / len(golds) if golds else 0.0)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return SupportScores(float(matched == len(given) == len(golds)), f1, precision, recall)


def evaluate_two_wiki(
    golds: Iterable[Mapping[str, Any]],
    answers: Mapping[str, str],
    supporting_facts: Mapping[str, Iterable[Sequence[Hashable]]] | None = None,
    evidences: Mapping[str, Iterable[Triple]] | None = None,
    *,
    aliases: AliasTable | None = None,
    warn: Callable[[str], None] | None = None,
) -> dict[str, float]:
    """Score a whole prediction file as 2WikiMultihopQA's script v1.1 does; its three maps are the arguments.

    Args:
        golds: official rows.
        answers: row id -> predicted answer. A row without one counts 0.
        supporting_facts: row id -> predicted (title, sentence number) pairs; likewise.
        evidences: row id -> predicted (subject, relation, object) triples; likewise.
        aliases: of `read_aliases`; None accepts the golds alone.
        warn: called with a message per missing prediction.

    Returns:
        em, f1, prec, recall, and the same with sp_, evi_ and joint_ before, each divided by the number of gold rows.

    Raises:
        ValueError: if there are no gold rows, or one whose evidences and ids do not belong together.
    """
    facts, triples, table = supporting_facts or {}, evidences or {}, aliases or {}
    sums = {f"{part}{name}": 0.0 for part in ("", "sp_", "evi_", "joint_") for name in ("em", "f1", "prec", "recall")}
    count = 0
    for row in golds:
        count += 1
        key = str(row.get("_id", row.get("id")))
        parts: list[AnswerScores | SupportScores] = []
        if key in answers:
            accepted = [str(row["answer"]), *table.get(str(row.get("answer_id")), ())]
            parts.append(_add(sums, "", two_wiki_scores(answers[key], accepted)))
        if key in facts:
            parts.append(_add(sums, "sp_", _two_wiki_support(facts[key], row["supporting_facts"])))
        if key in triples:
            parts.append(_add(sums, "evi_", _evidence(triples[key], row, table)))
        if len(parts) == 3:
            precision, recall, exact = 1.0, 1.0, 1.0
            for part in parts:
                precision, recall, exact = precision * part.precision, recall * part.recall, exact * part.em
            f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
            _add(sums, "joint_", AnswerScores(exact, f1, precision, recall))
        elif warn is not None:
            lacking = [
                name for name, given in (("answer", answers), ("supporting facts", facts), ("evidence", triples)) if key not in given
            ]
            warn(f"row {key!r} has no predicted {' and no '.join(lacking)}")
    if not count:
        raise ValueError("evaluate_two_wiki needs at least one gold row")
    return {name: total / count for name, total in sums.items()}


def _add(sums: dict[str, float], prefix: str, scores: AnswerScores | SupportScores) -> AnswerScores | SupportScores:
    for name, value in (("em", scores.em), ("f1", scores.f1), ("prec", scores.precision), ("recall", scores.recall)):
        sums[prefix + name] += value
    return scores


# ------------------------------------------------------------------------------------------------ MuSiQue


def _musique_f1(prediction: str, gold: str) -> AnswerScores:
    given, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    exact = float(given == wanted)
    if not given or not wanted:
        return AnswerScores(exact, exact, exact, exact)
    shared = sum((Counter(given) & Counter(wanted)).values())
    if not shared:
        return AnswerScores(exact)
    precision, recall = shared / len(given), shared / len(wanted)
    return AnswerScores(exact, 2 * precision * recall / (precision + recall), precision, recall)


def musique_scores(prediction: str, answers: str | Iterable[str]) -> AnswerScores:
    """The answer metrics of MuSiQue: the best exact match and the best F1 over the accepted answers.

    Args:
        prediction: the answer to judge.
        answers: the gold answer and its aliases.

    Returns:
        Exact match and F1; precision and recall are those of the answer with the best F1 (the script has none). Unlike HotpotQA's, this F1 pays
        for a word shared with "yes" or "no", and is 1 for two texts that normalise to nothing.
    """
    found = [_musique_f1(prediction, answer) for answer in ([answers] if isinstance(answers, str) else answers)]
    best = max(found, key=lambda one: one.f1, default=AnswerScores())
    return AnswerScores(max((one.em for one in found), default=0.0), best.f1, best.precision, best.recall)


def _musique_support(predicted: Iterable[Any], gold: Iterable[Any]) -> SupportScores:
    given, wanted = {int(one) for one in predicted}, {int(one) for one in gold}
    if not given and not wanted:
        return SupportScores(1.0, 1.0, 1.0, 1.0)
    return _support(len(given & wanted), len(given - wanted), len(wanted - given))


def evaluate_musique(golds: Iterable[Mapping[str, Any]], predictions: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Score a whole prediction file as MuSiQue's script v1.0 does.

    Args:
        golds: official rows, `answerable` among them.
        predictions: in the same order, each with `id`, `predicted_answer`, `predicted_support_idxs` and `predicted_answerable`.

    Returns:
        answer_f1, answer_em and support_f1 over the answerable rows; where a gold row is unanswerable also group_answer_sufficiency_f1 and
        group_support_sufficiency_f1 over the pairs of rows with one id: the answer's (the support's) F1 where both verdicts of the pair are
        right, else 0.

    Raises:
        ValueError: if ids or numbers of rows differ, a prediction lacks a field, or an unanswerable row has no twin.
    """
    rows, given = list(golds), list(predictions)
    if len(rows) != len(given) or not rows:
        raise ValueError(f"there are {len(rows)} gold rows and {len(given)} predictions; each gold row needs one, in the same order")
    answers, support = [], []
    verdicts: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    found: dict[str, tuple[AnswerScores, SupportScores]] = {}
    for number, (row, one) in enumerate(zip(rows, given, strict=True)):
        lacking = [name for name in ("id", "predicted_answer", "predicted_support_idxs", "predicted_answerable") if name not in one]
        if lacking or str(one["id"]) != str(row["id"]):
            what = f"lacks {', '.join(lacking)}" if lacking else f"has the id {one['id']!r}, and the gold row {row['id']!r}"
            raise ValueError(f"prediction {number} {what}; predictions stand in the order of the gold rows")
        key, answerable = str(row["id"]), bool(row.get("answerable", True))
        verdicts[key].append((bool(one["predicted_answerable"]), answerable))
        if answerable:
            wanted = [str(row["answer"]), *map(str, row.get("answer_aliases", ()))]
            gold = [page["idx"] for page in row["paragraphs"] if page["is_supporting"]]
            found[key] = musique_scores(str(one["predicted_answer"]), wanted), _musique_support(one["predicted_support_idxs"], gold)
            answers.append(found[key][0])
            support.append(found[key][1])
    metrics = {
        "answer_f1": _mean([one.f1 for one in answers]),
        "answer_em": _mean([one.em for one in answers]),
        "support_f1": _mean([one.f1 for one in support]),
    }
    if any(not answerable for pair in verdicts.values() for _, answerable in pair):
        for key, pair in verdicts.items():
            if len(pair) != 2 or key not in found:
                raise ValueError(f"the row {key!r} needs an answerable and an unanswerable instance, as in the files of MuSiQue-Full")
        right = {key: float(all(said == is_so for said, is_so in pair)) for key, pair in verdicts.items()}
        metrics["group_answer_sufficiency_f1"] = _mean([right[key] * found[key][0].f1 for key in verdicts])
        metrics["group_support_sufficiency_f1"] = _mean([right[key] * found[key][1].f1 for key in verdicts])
    return metrics


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
