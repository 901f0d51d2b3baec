"""The official metrics, trap by trap, against an oracle that shares no code with them, and over real answers where they are at hand."""

import json
import re
import string
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle_normalize import oracle_em, oracle_f1, oracle_normalize

from agent_gym.data.qa_metrics import (
    AnswerScores,
    SupportScores,
    answer_reward,
    evaluate_predictions,
    exact_match,
    joint_scores,
    normalize_answer,
    score_answer,
    sub_exact_match,
    support_scores,
    title_recall,
    token_f1,
)

TEXTS = st.one_of(
    st.text(max_size=30),
    st.text(alphabet="aAnNtThHeE .,-'_é–1", max_size=30),
    st.lists(
        st.sampled_from(["the", "The", "a", "an", "A.", "theatre", "yes", "no", "noanswer", "café", "3,677", "-", "U.S.", "and"]),
        max_size=6,
    ).map(" ".join),
)

# Variants that other projects use. Each must disagree with the official rule on at least one golden case: so the cases can fail.
VARIANTS: dict[str, Callable[[str], str]] = {
    "articles before punctuation": lambda text: " ".join(
        re.sub(r"\b(a|an|the)\b", " ", text.lower()).translate(str.maketrans("", "", string.punctuation)).split()
    ),
    "punctuation becomes a blank": lambda text: " ".join(
        re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(str.maketrans(dict.fromkeys(string.punctuation, " ")))).split()
    ),
    "accents stripped": lambda text: normalize_answer(
        "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))
    ),
    "typographic dashes deleted": lambda text: normalize_answer(text.replace("–", "").replace("’", "")),
    "articles kept": lambda text: " ".join(text.lower().translate(str.maketrans("", "", string.punctuation)).split()),
    "case kept": lambda text: " ".join(re.sub(r"\b(a|an|the)\b", " ", text.translate(str.maketrans("", "", string.punctuation))).split()),
}

GOLDEN = [
    ("A.S. Lorno", "as lorno"),
    ("Vima A&M", "vima am"),
    ("Orsel S.A.", "orsel sa"),
    ("4,218 seated", "4218 seated"),
    ("Ürmel’s", "ürmel’s"),
    ("crème brûlée", "crème brûlée"),
    ("12–5", "12–5"),
    ("12-5", "125"),
    ("The  Tower of\tan  Owl", "tower of owl"),
    ("THE OTHER THEATRE", "other theatre"),
    ("snake_case", "snakecase"),
    ("The The", ""),
    ("!!!", ""),
    ("", ""),
    ("rock-a-bye", "rockabye"),
    ("vitamin A", "vitamin"),
]


@pytest.mark.parametrize(("text", "wanted"), GOLDEN)
def test_normalisation_gives_the_official_form(text: str, wanted: str) -> None:
    assert normalize_answer(text) == wanted
    assert oracle_normalize(text) == wanted


@pytest.mark.parametrize("name", VARIANTS)
def test_every_common_variant_of_the_normalisation_is_caught_by_a_golden_case(name: str) -> None:
    assert any(VARIANTS[name](text) != wanted for text, wanted in GOLDEN)


@given(TEXTS)
def test_normalisation_equals_the_oracle(text: str) -> None:
    assert normalize_answer(text) == oracle_normalize(text)


@given(TEXTS)
def test_normalisation_leaves_no_case_no_punctuation_and_single_blanks(text: str) -> None:
    once = normalize_answer(text)
    assert once == " ".join(once.split())
    assert not set(once) & set(string.punctuation)
    assert not {"a", "an", "the"} & set(once.split(" "))


@given(TEXTS, TEXTS)
def test_scores_equal_the_oracle_and_lie_between_0_and_1(prediction: str, gold: str) -> None:
    scores = score_answer(prediction, gold)
    assert scores.em == oracle_em(prediction, gold)
    assert scores.f1 == pytest.approx(oracle_f1(prediction, gold))
    assert 0 <= min(scores.f1, scores.precision, scores.recall) <= max(scores.f1, scores.precision, scores.recall) <= 1


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_several_answers_count_as_the_best_of_them(prediction: str, answers: list[str]) -> None:
    assert exact_match(prediction, answers) == max(oracle_em(prediction, answer) for answer in answers)
    assert token_f1(prediction, answers).f1 == pytest.approx(max(oracle_f1(prediction, answer) for answer in answers))


@given(TEXTS, TEXTS)
def test_the_reward_is_exact_match_except_for_an_empty_prediction(prediction: str, gold: str) -> None:
    assert answer_reward(prediction, gold) == (oracle_em(prediction, gold) if oracle_normalize(prediction) else 0.0)


@pytest.mark.parametrize("gold", ["The The", "!!!", "", "a"])
@pytest.mark.parametrize("prediction", ["", "the", "...", "The The", "!!!"])
def test_a_prediction_that_normalises_to_nothing_is_never_paid_though_official_em_says_1(prediction: str, gold: str) -> None:
    assert exact_match(prediction, gold) == 1.0
    assert token_f1(prediction, gold).f1 == 0.0
    assert answer_reward(prediction, gold) == 0.0
    assert sub_exact_match(prediction, gold) == 0.0
    assert sub_exact_match("anything at all", gold) == 0.0


@pytest.mark.parametrize(
    ("prediction", "gold", "em", "f1", "sub"),
    [
        ("yes", "yes", 1.0, 1.0, 1.0),
        ("Yes.", "yes", 1.0, 1.0, 1.0),
        ("yes, both", "yes", 0.0, 0.0, 1.0),
        ("I do not know", "no", 0.0, 0.0, 1.0),
        ("yes no", "yes", 0.0, 0.0, 1.0),
        ("noanswer", "no", 0.0, 0.0, 1.0),
        ("no", "No Way Out", 0.0, 0.0, 0.0),
        ("yes", "no", 0.0, 0.0, 0.0),
        ("no way", "No Way Out", 0.0, 0.8, 0.0),
        ("No Way Out tonight", "No Way Out", 0.0, 6 / 7, 1.0),
        ("cafe", "café", 0.0, 0.0, 0.0),
        ("12-5", "12–5", 0.0, 0.0, 0.0),
        ("125", "12-5", 1.0, 1.0, 1.0),
        ("owl owl", "owl", 0.0, 2 / 3, 1.0),
    ],
)
def test_golden_scores(prediction: str, gold: str, em: float, f1: float, sub: float) -> None:
    assert exact_match(prediction, gold) == em
    assert answer_reward(prediction, gold) == em
    assert token_f1(prediction, gold).f1 == pytest.approx(f1)
    assert sub_exact_match(prediction, gold) == sub


def test_short_aliases_would_make_sub_em_worthless() -> None:
    """Why sub-EM takes golds only: "US" stands in almost any text."""
    assert sub_exact_match("the famous virus of Russia", ["Marshal Orlo Binn"]) == 0.0
    assert sub_exact_match("the famous virus of Russia", ["Marshal Orlo Binn", "US"]) == 1.0


def test_supporting_facts_are_scored_as_sets() -> None:
    gold = [("Vadel", 0), ("Mirno", 2)]
    assert support_scores([("Mirno", 2), ("Vadel", 0), ("Vadel", 0)], gold) == SupportScores(1.0, 1.0, 1.0, 1.0)
    half = support_scores([("Vadel", 0), ("Vadel", 1), ("Osta", 0), ("Osta", 1)], gold)
    assert (half.em, half.precision, half.recall, half.f1) == (0.0, 0.25, 0.5, pytest.approx(1 / 3))
    assert support_scores([], gold) == SupportScores(0.0, 0.0, 0.0, 0.0)
    assert support_scores([["Vadel", 0]], [["Vadel", 0]]).em == 1.0
    assert support_scores([], []).em == 1.0


def test_joint_metrics_multiply_precision_and_recall_before_f1() -> None:
    joint = joint_scores(AnswerScores(1.0, 0.8, 0.8, 0.8), SupportScores(0.0, 0.5, 1.0, 1 / 3))
    assert (joint.em, joint.precision, joint.recall) == (0.0, 0.8, pytest.approx(0.8 / 3))
    assert joint.f1 == pytest.approx(2 * 0.8 * (0.8 / 3) / (0.8 + 0.8 / 3))
    assert joint_scores(AnswerScores(), SupportScores()) == AnswerScores()


def test_a_prediction_file_is_divided_by_the_golds_and_missing_predictions_count_nothing() -> None:
    golds = [
        {"_id": "x", "answer": "Vadel", "supporting_facts": [["P", 0]]},
        {"_id": "y", "answer": "no", "supporting_facts": [["Q", 0], ["Q", 1]]},
        {"_id": "z", "answer": "Osta", "supporting_facts": [["R", 0]]},
    ]
    told: list[str] = []
    report = evaluate_predictions(golds, {"x": "vadel", "y": "no", "w": "Osta"}, {"x": [["P", 0]], "z": [["R", 0]]}, warn=told.append)
    assert report["em"] == pytest.approx(2 / 3)
    assert report["sp_em"] == pytest.approx(2 / 3)
    assert report["joint_em"] == pytest.approx(1 / 3)
    assert report["joint_f1"] == pytest.approx(1 / 3)
    assert len(told) == 2
    with pytest.raises(ValueError, match="at least one gold row"):
        evaluate_predictions([], {})


def test_title_recall_counts_each_supporting_title_once() -> None:
    assert title_recall(["Q", "P", "P"], ["P", "R"]) == 0.5
    assert title_recall([], ["P"]) == 0.0
    assert title_recall(["P"], []) == 0.0


@pytest.fixture(scope="module")
def real_pairs(data_dir: Path) -> list[tuple[str, str]]:
    lines = (data_dir / "hotpotqa" / "dev_qa.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["question"], row["answer"]) for row in map(json.loads, lines)]


def test_real_answers_normalise_as_the_oracle_says(real_pairs: list[tuple[str, str]]) -> None:
    for question, answer in real_pairs:
        assert normalize_answer(answer) == oracle_normalize(answer)
        assert normalize_answer(question) == oracle_normalize(question)
        assert exact_match(answer, answer) == 1.0


def test_real_answers_show_the_published_rates_of_each_trap(real_pairs: list[tuple[str, str]]) -> None:
    """Rates, not counts: they were measured on all 7,405 development rows, of which a part lies here."""
    count = len(real_pairs)
    golds = [answer for _, answer in real_pairs]

    def changed(variant: Callable[[str], str]) -> float:
        return sum(variant(gold) != normalize_answer(gold) for gold in golds) / count

    assert sum(not normalize_answer(gold) for gold in golds) / count <= 0.002
    assert changed(VARIANTS["articles before punctuation"]) == pytest.approx(10 / 7405, abs=0.002)
    assert changed(VARIANTS["punctuation becomes a blank"]) == pytest.approx(521 / 7405, abs=0.015)
    assert changed(VARIANTS["accents stripped"]) == pytest.approx(122 / 7405, abs=0.008)
    assert sum(gold.lower() in ("yes", "no") for gold in golds) / count == pytest.approx(458 / 7405, abs=0.015)
    assert sum(exact_match("no", gold) for gold in golds) / count == pytest.approx(0.0315, abs=0.01)
    assert sum(sub_exact_match("yes no", gold) for gold in golds) / count == pytest.approx(0.062, abs=0.015)
    assert sum(exact_match("yes no", gold) for gold in golds) == 0
    named = [pair for pair in real_pairs if pair[1].lower() not in ("yes", "no")]
    assert sum(sub_exact_match(question, gold) for question, gold in named) / len(named) == pytest.approx(0.106, abs=0.02)
    assert 0.04 < sum(token_f1(question, gold).f1 for question, gold in real_pairs) / count < 0.1
    assert sum(answer_reward(question, gold) for question, gold in real_pairs) == 0


def test_listing_every_paragraph_wins_sub_em_and_nothing_else(data_dir: Path) -> None:
    rows = [json.loads(line) for line in (data_dir / "hotpotqa" / "distractor.jsonl").read_text(encoding="utf-8").splitlines()]
    stuffed = [" ".join("".join(sentences) for _, sentences in row["context"]) + " yes no" for row in rows]
    titles = [" ".join(title for title, _ in row["context"]) + " yes no" for row in rows]
    golds = [row["answer"] for row in rows]
    assert sum(map(sub_exact_match, stuffed, golds)) / len(rows) > 0.97
    assert 0.25 < sum(map(sub_exact_match, titles, golds)) / len(rows) < 0.6
    for answers in (stuffed, titles):
        assert sum(map(answer_reward, answers, golds)) == 0
    assert sum(token_f1(answer, gold).f1 for answer, gold in zip(stuffed, golds, strict=True)) / len(rows) < 0.02
