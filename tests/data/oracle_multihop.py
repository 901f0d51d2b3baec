"""The scripts of 2WikiMultihopQA (v1.1) and MuSiQue (v1.0), written anew from what they do, without the package: an oracle for its metrics.

Normalisation and the F1 of HotpotQA come from the other oracle. Fractions are kept exact where the scripts use floats.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oracle_normalize import PUNCTUATION, oracle_normalize


def words_shared(left: list[str], right: list[str]) -> int:
    rest, shared = list(right), 0
    for word in left:
        if word in rest:
            rest.remove(word)
            shared += 1
    return shared


def harmonic(one: Fraction, other: Fraction) -> Fraction:
    return 2 * one * other / (one + other) if one + other else Fraction(0)


def answer_four(prediction: str, gold: str) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """EM, F1, precision, recall as HotpotQA and 2WikiMultihopQA have them for one gold."""
    given, wanted = oracle_normalize(prediction), oracle_normalize(gold)
    exact = Fraction(given == wanted)
    if given != wanted and (given in ("yes", "no", "noanswer") or wanted in ("yes", "no", "noanswer")):
        return exact, Fraction(0), Fraction(0), Fraction(0)
    left, right = given.split(), wanted.split()
    shared = words_shared(left, right)
    if not shared:
        return exact, Fraction(0), Fraction(0), Fraction(0)
    precision, recall = Fraction(shared, len(left)), Fraction(shared, len(right))
    return exact, harmonic(precision, recall), precision, recall


def set_four(right: int, wrong: int, missed: int) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    precision = Fraction(right, right + wrong) if right + wrong else Fraction(0)
    recall = Fraction(right, right + missed) if right + missed else Fraction(0)
    return Fraction(wrong + missed == 0), harmonic(precision, recall), precision, recall


def evidence_spelling(text: str) -> str:
    return " ".join("".join(character for character in text.lower() if character not in PUNCTUATION).split())


def two_wiki(rows: list[dict[str, Any]], prediction: dict[str, dict[str, Any]], alias_lines: list[dict[str, Any]]) -> dict[str, float]:
    names: dict[str, list[str]] = {line["Q_id"]: line["aliases"] + line["demonyms"] for line in alias_lines}
    totals = {part + name: Fraction(0) for part in ("", "sp_", "evi_", "joint_") for name in ("em", "f1", "prec", "recall")}

    def add(part: str, four: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
        for name, value in zip(("em", "f1", "prec", "recall"), four, strict=True):
            totals[part + name] += value
        return four

    for row in rows:
        key, fours = row["_id"], []
        if key in prediction["answer"]:
            golds = [row["answer"], *names.get(row["answer_id"], [])]
            each = [answer_four(prediction["answer"][key], gold) for gold in golds]
            fours.append(add("", tuple(max(column) for column in zip(*each, strict=True))))
        if key in prediction["sp"]:
            given = [(title.lower(), number) for title, number in {tuple(fact) for fact in prediction["sp"][key]}]
            wanted = [(title.lower(), number) for title, number in {tuple(fact) for fact in row["supporting_facts"]}]
            right = len([fact for fact in given if fact in wanted])
            fours.append(add("sp_", set_four(right, len(given) - right, len([fact for fact in wanted if fact not in given]))))
        if key in prediction["evidence"]:
            accepted = []
            for place, (subject, relation, value) in enumerate(row["evidences"]):
                subjects, values = {subject}, {value}
                if row["evidences_id"]:
                    subjects |= set(names.get(row["evidences_id"][place][0], []))
                    values |= set(names.get(row["evidences_id"][place][2], []))
                accepted.append({tuple(map(evidence_spelling, (one, relation, two))) for one in subjects for two in values})
            said = {tuple(map(evidence_spelling, triple)) for triple in prediction["evidence"][key]}
            matched = len([triple for triple in said if any(triple in options for options in accepted)])
            precision = Fraction(matched, len(said)) if said else Fraction(0)
            recall = Fraction(matched, len(accepted)) if accepted else Fraction(0)
            fours.append(add("evi_", (Fraction(matched == len(said) == len(accepted)), harmonic(precision, recall), precision, recall)))
        if len(fours) == 3:
            precision = fours[0][2] * fours[1][2] * fours[2][2]
            recall = fours[0][3] * fours[1][3] * fours[2][3]
            add("joint_", (fours[0][0] * fours[1][0] * fours[2][0], harmonic(precision, recall), precision, recall))
    return {name: float(total / len(rows)) for name, total in totals.items()}


def musique_answer(prediction: str, golds: list[str]) -> tuple[Fraction, Fraction]:
    """EM and F1, each the best over the golds; two texts without words agree."""
    exact, f1 = Fraction(0), Fraction(0)
    for gold in golds:
        left, right = oracle_normalize(prediction).split(), oracle_normalize(gold).split()
        exact = max(exact, Fraction(left == right))
        shared = words_shared(left, right)
        one = Fraction(left == right) if not left or not right else Fraction(2 * shared, len(left) + len(right))
        f1 = max(f1, one)
    return exact, f1


def musique(rows: list[dict[str, Any]], predictions: list[dict[str, Any]]) -> dict[str, float]:
    answers, supports, verdicts = {}, {}, {}
    for row, said in zip(rows, predictions, strict=True):
        verdicts.setdefault(row["id"], []).append(said["predicted_answerable"] == row["answerable"])
        if row["answerable"]:
            answers[row["id"]] = musique_answer(said["predicted_answer"], [row["answer"], *row["answer_aliases"]])
            given = set(said["predicted_support_idxs"])
            wanted = {page["idx"] for page in row["paragraphs"] if page["is_supporting"]}
            supports[row["id"]] = Fraction(2 * len(given & wanted), len(given) + len(wanted)) if given or wanted else Fraction(1)
    found = {
        "answer_em": sum(one for one, _ in answers.values()) / Fraction(len(answers) or 1),
        "answer_f1": sum(f1 for _, f1 in answers.values()) / Fraction(len(answers) or 1),
        "support_f1": sum(supports.values()) / Fraction(len(supports) or 1),
    }
    if any(not row["answerable"] for row in rows):
        number = Fraction(len(verdicts))
        found["group_answer_sufficiency_f1"] = sum(answers[key][1] for key, right in verdicts.items() if all(right)) / number
        found["group_support_sufficiency_f1"] = sum(supports[key] for key, right in verdicts.items() if all(right)) / number
    return {name: float(value) for name, value in found.items()}
