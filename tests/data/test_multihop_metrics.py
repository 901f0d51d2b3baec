"""The metrics of 2WikiMultihopQA and MuSiQue against an oracle that shares no code with them, over made-up and over real rows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_multihop import musique, musique_answer, two_wiki

from agent_gym.data import multihop_metrics
from agent_gym.data.multihop_metrics import evaluate_musique, evaluate_two_wiki, musique_scores, read_aliases, two_wiki_scores
from agent_gym.data.qa_metrics import score_answer, support_scores, token_f1

ALIASES = [
    {"Q_id": "Q1", "aliases": ["Kess Town", "The K."], "demonyms": ["Kesser"]},
    {"Q_id": "Q2", "aliases": [], "demonyms": []},
    {"Q_id": "Q3", "aliases": ["M. Sond"], "demonyms": []},
]
TABLE = {line["Q_id"]: (*line["aliases"], *line["demonyms"]) for line in ALIASES}
ROW = {
    "_id": "r0",
    "answer": "Kess",
    "answer_id": "Q1",
    "supporting_facts": [["Ovrun Bridge", 0], ["Mila Sond", 1]],
    "evidences": [["Ovrun Bridge", "architect", "Mila Sond"], ["Mila Sond", "place of birth", "Kess"]],
    "evidences_id": [["Q2", "architect", "Q3"], ["Q3", "place of birth", "Q1"]],
}
GOOD = {"answer": {"r0": "Kess"}, "sp": {"r0": ROW["supporting_facts"]}, "evidence": {"r0": ROW["evidences"]}}

WORDS = st.sampled_from(
    [
        "Kess",
        "kess",
        "the Kess",
        "Kess Town",
        "Kesser",
        "The K.",
        "Town",
        "yes",
        "no",
        "yes, both",
        "",
        "a",
        "Mila Sond",
        "M. Sond",
        "Kess Kess",
        "x y",
    ]
)
FACTS = st.lists(
    st.tuples(st.sampled_from(["Ovrun Bridge", "ovrun bridge", "Mila Sond", "MILA SOND", "Tarn"]), st.integers(0, 1)), max_size=5
)
TRIPLES = st.lists(
    st.tuples(
        st.sampled_from(["Ovrun Bridge", "ovrun-bridge", "The Ovrun Bridge", "Mila Sond", "M. Sond", "m sond"]),
        st.sampled_from(["architect", "Architect", "place of birth"]),
        st.sampled_from(["Mila Sond", "M. Sond", "Kess", "Kesser", "the K"]),
    ),
    max_size=4,
)


def mine(rows: list[dict[str, Any]], prediction: dict[str, dict[str, Any]]) -> dict[str, float]:
    return evaluate_two_wiki(rows, prediction["answer"], prediction["sp"], prediction["evidence"], aliases=TABLE)


@settings(max_examples=300, deadline=None)
@given(
    WORDS,
    FACTS,
    TRIPLES,
    WORDS,
    st.sampled_from(["Q1", "Q2", "Q9", None]),
    st.booleans(),
    st.sets(st.sampled_from(["answer", "sp", "evidence"])),
)
def test_two_wiki_equals_the_oracle(
    answer: str, facts: list[Any], triples: list[Any], gold: str, identity: str | None, linked: bool, missing: set[str]
) -> None:
    row = {**ROW, "answer": gold, "answer_id": identity, "evidences_id": ROW["evidences_id"] if linked else []}
    rows = [row, {**ROW, "_id": "r1"}]
    prediction = {"answer": {"r0": answer}, "sp": {"r0": facts}, "evidence": {"r0": triples}}
    for name in missing:
        prediction[name] = {}
    assert mine(rows, prediction) == pytest.approx(two_wiki(rows, prediction, ALIASES))


def test_a_perfect_prediction_scores_1_everywhere_and_aliases_and_demonyms_count() -> None:
    assert set(mine([ROW], GOOD).values()) == {1.0}
    for name in ("Kess Town", "kesser", "K", "the kess town."):
        assert mine([ROW], {**GOOD, "answer": {"r0": name}})["joint_em"] == 1.0
        assert evaluate_two_wiki([ROW], {"r0": name}, {}, {})["em"] == 0.0, "without the table only the gold is accepted"
    spelled = {"r0": [["ovrun bridge", "Architect", "M. Sond"], ["m sond", "place of birth", "Kesser"]]}
    assert mine([ROW], {**GOOD, "evidence": spelled})["evi_em"] == 1.0
    unlinked = {**ROW, "evidences_id": []}
    assert mine([unlinked], {**GOOD, "evidence": spelled})["evi_em"] == 0.0


# Each breaks one line of the script's rules, and each must be caught by a golden case.
GOLDEN: list[tuple[dict[str, Any], dict[str, dict[str, Any]]]] = [
    (ROW, {**GOOD, "answer": {"r0": "Kesser"}}),
    (ROW, {**GOOD, "answer": {"r0": "Kess Town Hall"}}),
    ({**ROW, "answer": "Kess Old Bridge Gate"}, {**GOOD, "answer": {"r0": "Kess Old K"}}),
    (ROW, {**GOOD, "sp": {"r0": [["ovrun bridge", 0], ["MILA SOND", 1]]}}),
    (ROW, {**GOOD, "sp": {"r0": [["Ovrun Bridge", 0], ["ovrun bridge", 0]]}}),
    (ROW, {**GOOD, "evidence": {"r0": [["The Ovrun Bridge", "architect", "Mila Sond"]]}}),
    (ROW, {**GOOD, "evidence": {"r0": [["Ovrun Bridge", "architect", "Mila Sond"], ["Ovrun Bridge", "architect", "M. Sond"]]}}),
]


def _best_by_f1(prediction: str, answers: Any) -> Any:
    return score_answer(prediction, answers)


MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "no aliases": ("two_wiki_scores", lambda prediction, answers: score_answer(prediction, answers[0])),
    "precision and recall of the best F1": ("two_wiki_scores", _best_by_f1),
    "titles by their case": ("_two_wiki_support", support_scores),
    "articles of evidence dropped": ("_plain_triple", lambda triple: tuple(multihop_metrics.normalize_answer(part) for part in triple)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_of_two_wiki_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [two_wiki([row], prediction, ALIASES) for row, prediction in GOLDEN]
    assert [mine([row], prediction) for row, prediction in GOLDEN] == [pytest.approx(one) for one in wanted]
    monkeypatch.setattr(multihop_metrics, *MUTANTS[name])
    assert any(mine([row], prediction) != pytest.approx(one) for (row, prediction), one in zip(GOLDEN, wanted, strict=True))


def test_missing_predictions_are_told_and_bad_rows_refused() -> None:
    told: list[str] = []
    assert evaluate_two_wiki([ROW], {}, {"r0": []}, None, warn=told.append)["em"] == 0.0
    assert told == ["row 'r0' has no predicted answer and no evidence"]
    with pytest.raises(ValueError, match="at least one gold row"):
        evaluate_two_wiki([], {})
    with pytest.raises(ValueError, match="2 evidences and 1 evidences_id"):
        mine([{**ROW, "evidences_id": [["Q2", "architect", "Q3"]]}], GOOD)


def test_real_two_wiki_rows_score_1_with_their_own_golds_and_equal_the_oracle(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "hotpotqa" / "2wiki.jsonl").read_text(encoding="utf-8").splitlines()]
    gold = {
        "answer": {row["_id"]: row["answer"] for row in rows},
        "sp": {row["_id"]: row["supporting_facts"] for row in rows},
        "evidence": {row["_id"]: row["evidences"] for row in rows},
    }
    scores = mine(rows, gold)
    assert scores["em"] == scores["f1"] == scores["sp_em"] == 1.0
    assert scores == pytest.approx(two_wiki(rows, gold, ALIASES))
    turned = {
        "answer": {row["_id"]: rows[index - 1]["answer"] for index, row in enumerate(rows)},
        "sp": {row["_id"]: row["supporting_facts"][:1] for row in rows},
        "evidence": {row["_id"]: rows[index - 1]["evidences"] for index, row in enumerate(rows)},
    }
    other = [
        {"Q_id": row["answer_id"], "aliases": [rows[index - 1]["answer"]], "demonyms": []}
        for index, row in enumerate(rows)
        if index % 3 == 0 and row["answer_id"]
    ]
    table = {line["Q_id"]: tuple(line["aliases"]) for line in other}
    scores = evaluate_two_wiki(rows, turned["answer"], turned["sp"], turned["evidence"], aliases=table)
    assert scores == pytest.approx(two_wiki(rows, turned, other)) and 0.1 < scores["em"] < 0.9


# ------------------------------------------------------------------------------------------------ the file of aliases


def test_aliases_are_read_as_they_are_published_and_once(tmp_path: Path) -> None:
    path = tmp_path / "id_aliases.json"
    path.write_text("\n".join(map(json.dumps, ALIASES)) + "\n", encoding="utf-8")
    assert read_aliases(path) == TABLE and read_aliases(path) is read_aliases(str(path))
    path.write_text(json.dumps(ALIASES[0]), encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert list(read_aliases(path)) == ["Q1"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no valid JSON"),
        ("[]", "line 2: a line must be an object with 'Q_id'"),
        ('{"aliases": []}', "line 2: a line must be an object with 'Q_id'"),
        ('{"Q_id": 5}', "line 2: a line must be an object with 'Q_id'"),
        ('{"Q_id": "Q1", "aliases": "Kess"}', "line 2: field 'aliases' must be a list of texts"),
        ('{"Q_id": "Q1", "demonyms": [1]}', "line 2: field 'demonyms' must be a list of texts"),
        ("[" * 100_000, "line 2: no valid JSON"),
    ],
)
def test_a_malformed_file_of_aliases_is_told_with_line_and_field(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(ALIASES[0]) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"a\.json {message}"):
        read_aliases(tmp_path / "a.json")
    (tmp_path / "b.json").write_bytes(b"\x1f\x8b\xff\xfe")
    with pytest.raises(ValueError, match=r"b\.json: no text in UTF-8"):
        read_aliases(tmp_path / "b.json")
    with pytest.raises(FileNotFoundError, match=r"id_aliases\.json"):
        read_aliases(tmp_path / "absent.json")


# ------------------------------------------------------------------------------------------------ MuSiQue

PAGES = [{"idx": index, "is_supporting": index in (1, 4)} for index in range(6)]
QUESTION = {"id": "2hop__1_2", "answer": "Kess", "answer_aliases": ["Kess Town", "KT"], "answerable": True, "paragraphs": PAGES}
TWIN = {**QUESTION, "answerable": False, "paragraphs": [{**page, "is_supporting": page["idx"] == 1} for page in PAGES]}


def said(answer: str = "Kess", support: Any = (1, 4), answerable: bool = True, key: str = "2hop__1_2") -> dict[str, Any]:
    return {"id": key, "predicted_answer": answer, "predicted_support_idxs": list(support), "predicted_answerable": answerable}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(WORDS, st.sets(st.integers(0, 5)), st.booleans(), st.booleans()), min_size=1, max_size=4), st.booleans(), WORDS)
def test_musique_equals_the_oracle(drawn: list[Any], full: bool, gold: str) -> None:
    rows, predictions = [], []
    for number, (answer, support, first, second) in enumerate(drawn):
        key = f"2hop__{number}"
        rows.append({**QUESTION, "id": key, "answer": gold})
        predictions.append(said(answer, support, first, key))
        if full:
            rows.append({**TWIN, "id": key, "answer": gold})
            predictions.append(said(answer, support, second, key))
    assert evaluate_musique(rows, predictions) == pytest.approx(musique(rows, predictions))


@given(WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_a_musique_answer_equals_the_oracle(prediction: str, golds: list[str]) -> None:
    scores = musique_scores(prediction, golds)
    assert (scores.em, scores.f1) == pytest.approx(tuple(map(float, musique_answer(prediction, golds))))


def test_musique_differs_from_hotpotqa_where_its_script_does() -> None:
    assert musique_scores("yes, both", "yes").f1 == pytest.approx(2 / 3) and token_f1("yes, both", "yes").f1 == 0.0
    assert musique_scores("the", "a").f1 == 1.0 and token_f1("the", "a").f1 == 0.0
    assert two_wiki_scores("yes, both", "yes").f1 == 0.0
    assert musique_scores("KT", ["Kess", "Kess Town", "KT"]).em == 1.0


def test_a_pair_of_musique_full_counts_only_with_both_verdicts_right() -> None:
    rows = [QUESTION, TWIN]
    right = evaluate_musique(rows, [said(), said(answerable=False)])
    assert right == {
        "answer_f1": 1.0,
        "answer_em": 1.0,
        "support_f1": 1.0,
        "group_answer_sufficiency_f1": 1.0,
        "group_support_sufficiency_f1": 1.0,
    }
    always = evaluate_musique(rows, [said(), said()])
    assert (always["answer_f1"], always["group_answer_sufficiency_f1"]) == (1.0, 0.0)
    never = evaluate_musique(rows, [said(answerable=False), said(answerable=False)])
    assert (never["answer_em"], never["group_support_sufficiency_f1"]) == (1.0, 0.0)
    assert set(evaluate_musique([QUESTION], [said("x")])) == {"answer_f1", "answer_em", "support_f1"}


def test_predictions_that_do_not_belong_to_the_rows_are_refused() -> None:
    for rows, predictions, message in (
        ([QUESTION], [], "1 gold rows and 0 predictions"),
        ([], [], "0 gold rows"),
        ([QUESTION], [said(key="other")], "has the id 'other'"),
        ([QUESTION], [{"id": "2hop__1_2"}], "lacks predicted_answer, predicted_support_idxs, predicted_answerable"),
        ([TWIN], [said()], "needs an answerable and an unanswerable instance"),
        ([TWIN, TWIN], [said(), said()], "needs an answerable and an unanswerable instance"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_musique(rows, predictions)


def test_real_musique_rows_score_1_with_their_own_golds_and_aliases(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "hotpotqa" / "musique.jsonl").read_text(encoding="utf-8").splitlines()]

    def predicted(pick: Callable[[dict[str, Any]], str]) -> list[dict[str, Any]]:
        return [said(pick(row), [page["idx"] for page in row["paragraphs"] if page["is_supporting"]], key=row["id"]) for row in rows]

    for pick in (lambda row: row["answer"], lambda row: (row["answer_aliases"] or [row["answer"]])[-1]):
        assert evaluate_musique(rows, predicted(pick)) == {"answer_f1": 1.0, "answer_em": 1.0, "support_f1": 1.0}
    turned = predicted(lambda row: row["question_decomposition"][0]["answer"])
    assert evaluate_musique(rows, turned) == pytest.approx(musique(rows, turned))
    assert evaluate_musique(rows, turned)["answer_em"] < 0.2
