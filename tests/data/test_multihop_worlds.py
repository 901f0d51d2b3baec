"""The generated worlds of 2WikiMultihopQA and MuSiQue: the official layouts, and what makes their questions worth answering."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_multihop import musique, two_wiki

from agent_gym.data.musique_world import PARAGRAPHS, SHAPES, musique_row
from agent_gym.data.qa_loaders import UnusableRow, parse_qa
from agent_gym.data.qa_metrics import normalize_answer
from agent_gym.data.two_wiki_world import (
    BRIDGE_COMPARISON_SHARE,
    COMPARISON_SHARE,
    INFERENCE_SHARE,
    guess_rates,
    two_wiki_aliases,
    two_wiki_row,
)
from agent_gym.data.wiki_names import MARKS, SPLITS
from agent_gym.data.wiki_text import KINDS, NAME_PATTERNS

N = 150
SORTS = set(re.findall(r"[A-Z][a-z]+", str(NAME_PATTERNS) + str(KINDS).title()))


@cache
def two_wikis(split: str) -> list[dict[str, Any]]:
    return [two_wiki_row(split, seed) for seed in range(N)]


@cache
def musiques(split: str) -> list[dict[str, Any]]:
    return [musique_row(split, seed) for seed in range(N)]


def of_type(kind: str) -> list[dict[str, Any]]:
    return [row for split in SPLITS for row in two_wikis(split) if row["type"] == kind]


def names_of(text: str) -> set[str]:
    """Capitalised words that no pattern of names and no sort of thing holds: the invented ones."""
    return set(re.findall(r"\b[A-Z][a-z]{4,}\b", text)) - SORTS


# ------------------------------------------------------------------------------------------------ 2WikiMultihopQA


@pytest.mark.parametrize("split", SPLITS)
def test_a_two_wiki_row_has_the_official_layout_and_scores_1_by_the_script(split: str) -> None:
    for row in two_wikis(split)[:50]:
        assert set(row) == {
            "_id", "type", "question", "context", "entity_ids", "supporting_facts", "evidences", "answer", "evidences_id", "answer_id",
        }  # fmt: skip
        pages = dict(row["context"])
        assert len(pages) == len(row["context"]) == 10
        assert all(number < len(pages[title]) for title, number in row["supporting_facts"])
        assert len(row["supporting_facts"]) == (4 if row["type"] == "bridge_comparison" else 2)
        assert len(row["evidences_id"]) in (0, len(row["evidences"])) and row["question"].endswith("?") and "{" not in row["question"]
        json.dumps(row)
        gold = {
            "answer": {row["_id"]: row["answer"]},
            "sp": {row["_id"]: row["supporting_facts"]},
            "evidence": {row["_id"]: row["evidences"]},
        }
        assert set(two_wiki([row], gold, []).values()) == {1.0}
        assert parse_qa(row).hops == tuple(dict.fromkeys(title for title, _ in row["supporting_facts"])), (
            "the loader finds the order of the hops"
        )


def test_the_kinds_come_in_the_stated_shares_and_the_floor_of_guessing_is_stated() -> None:
    counts = Counter(row["type"] for split in SPLITS for row in two_wikis(split))
    wanted = {"comparison": COMPARISON_SHARE, "bridge_comparison": BRIDGE_COMPARISON_SHARE, "inference": INFERENCE_SHARE}
    wanted["compositional"] = 1 - sum(wanted.values())
    for kind, share in wanted.items():
        assert counts[kind] / (3 * N) == pytest.approx(share, abs=4 * (share * (1 - share) / (3 * N)) ** 0.5)
    assert guess_rates()["overall"] == pytest.approx((COMPARISON_SHARE + BRIDGE_COMPARISON_SHARE) / 2)
    for split in SPLITS:
        assert Counter(row["answer"] for row in two_wikis(split)).most_common(1)[0][1] / N < 0.08


@pytest.mark.parametrize("kind", ["compositional", "inference"])
def test_a_chain_is_stated_link_by_link_and_nothing_in_the_question_is_its_answer(kind: str) -> None:
    for row in of_type(kind):
        pages = dict(row["context"])
        for (title, number), (subject, _, value) in zip(row["supporting_facts"], row["evidences"], strict=True):
            assert title == subject and value in pages[title][number]
        first = row["supporting_facts"][0][0]
        assert row["answer"] not in " ".join(pages[first]) and not names_of(row["answer"]) & names_of(row["question"])
        holders = [title for title, lines in pages.items() if row["answer"] in " ".join(lines) and title != row["answer"]]
        assert holders == [row["supporting_facts"][1][0]]


def test_an_inference_is_stated_nowhere_and_the_wrong_line_leads_elsewhere() -> None:
    kin = re.compile(r"grandfather|grandmother|in-law")
    for row in of_type("inference"):
        text = " ".join("".join(lines) for _, lines in row["context"])
        assert kin.search(row["question"]) and not kin.search(text)
        relations = [relation for _, relation, _ in row["evidences"]]
        wanted = {
            "paternal grandfather": ["father", "father"], "paternal grandmother": ["father", "mother"], "maternal grandfather": ["mother", "father"],
            "maternal grandmother": ["mother", "mother"], "father-in-law": ["spouse", "father"], "mother-in-law": ["spouse", "mother"],
        }  # fmt: skip
        (asked,) = [kinship for kinship in wanted if kinship in row["question"]]
        assert relations == wanted[asked]
        parents = re.findall(r"(?:[Ff]ather|mother)[ ,]+(?:was )?([A-Z]\w+ [A-Z]\w+)", text)
        assert len(set(parents)) >= 4 and parents.count(row["answer"]) == 1


def reading(fact: str, value: str) -> float:
    return datetime.strptime(value, "%d %B %Y").toordinal() if fact == "date of birth" else float(value.replace(",", ""))


@pytest.mark.parametrize("kind", ["comparison", "bridge_comparison"])
def test_comparisons_follow_from_their_evidence(kind: str) -> None:
    wins = Counter()
    for row in of_type(kind):
        if row["answer"] in ("yes", "no"):
            (_, one, left), (_, two, right) = row["evidences"]
            assert one == two and (left == right) is (row["answer"] == "yes") and row["answer_id"] is None
            continue
        *links, (_, fact, left), (_, again, right) = row["evidences"]
        assert fact == again
        things = [subject for subject, _, _ in (links or row["evidences"])]
        smaller = re.search(r"first, |older|fewer|shorter|lower", row["question"].replace("first captain", "")) is not None
        first_wins = (reading(fact, left) < reading(fact, right)) is smaller
        assert row["answer"] == things[0 if first_wins else 1], row
        assert row["question"].index(things[0]) < row["question"].index(things[1])
        wins[first_wins] += 1
        pages = dict(row["context"])
        for subject, _, value in row["evidences"]:
            assert value in " ".join(pages[subject])
        if links:
            assert not any(value in row["question"] for _, _, value in links), "the bridge is not named"
    assert 0.3 < wins[True] / wins.total() < 0.7


@pytest.mark.parametrize("split", SPLITS)
def test_other_names_are_other_names(split: str) -> None:
    for seed, row in enumerate(two_wikis(split)):
        table = two_wiki_aliases(split, seed)
        if row["answer_id"] is None:
            continue
        names = [normalize_answer(name) for name in table[row["answer_id"]]]
        assert names and all(names) and normalize_answer(row["answer"]) not in names
        others = {normalize_answer(title) for title, _ in row["context"]} - {normalize_answer(row["answer"])}
        assert not others & set(names), "no alias is the name of something else"


# ------------------------------------------------------------------------------------------------ MuSiQue


@pytest.mark.parametrize("split", SPLITS)
def test_a_musique_row_has_the_official_layout_and_scores_1_by_the_script(split: str) -> None:
    for row in musiques(split)[:50]:
        assert set(row) == {"id", "paragraphs", "question", "question_decomposition", "answer", "answer_aliases", "answerable"}
        assert [page["idx"] for page in row["paragraphs"]] == list(range(PARAGRAPHS))
        assert len({page["title"] for page in row["paragraphs"]}) == PARAGRAPHS
        support = {page["idx"] for page in row["paragraphs"] if page["is_supporting"]}
        assert [step["paragraph_support_idx"] for step in row["question_decomposition"]] == list(
            dict.fromkeys(step["paragraph_support_idx"] for step in row["question_decomposition"])
        )
        assert support == {step["paragraph_support_idx"] for step in row["question_decomposition"]}
        json.dumps(row)
        prediction = {
            "id": row["id"],
            "predicted_answer": row["answer_aliases"][0],
            "predicted_support_idxs": sorted(support),
            "predicted_answerable": True,
        }
        assert set(musique([row], [prediction]).values()) == {1.0}
        task = parse_qa(row)
        assert task.hops == tuple(row["paragraphs"][step["paragraph_support_idx"]]["title"] for step in row["question_decomposition"])


def test_the_shapes_come_in_the_stated_shares_of_two_to_four_hops() -> None:
    counts = Counter(row["id"].split("__")[0] for split in SPLITS for row in musiques(split))
    assert set(counts) == set(SHAPES) and sum(SHAPES.values()) == pytest.approx(1)
    for shape, share in SHAPES.items():
        assert counts[shape] / (3 * N) == pytest.approx(share, abs=4 * (share * (1 - share) / (3 * N)) ** 0.5), shape
    for row in musiques("train"):
        assert len(row["question_decomposition"]) == int(row["id"][0])


@pytest.mark.parametrize("split", SPLITS)
def test_each_hop_is_answered_by_its_paragraph_alone(split: str) -> None:
    for row in musiques(split):
        answers = [step["answer"] for step in row["question_decomposition"]]
        for number, step in enumerate(row["question_decomposition"], start=1):
            page = row["paragraphs"][step["paragraph_support_idx"]]
            assert step["answer"] in page["paragraph_text"]
            used = [int(one) for one in re.findall(r"#(\d)", step["question"])]
            assert all(one < number for one in used), "a hop rests on earlier ones"
            assert all(answers[one - 1] in page["title"] + page["paragraph_text"] for one in used)
            assert answers[number - 1] not in row["question"]
        assert answers[-1] == row["answer"] and not names_of(row["answer"]) & names_of(row["question"])
        everything_used = {int(one) for step in row["question_decomposition"] for one in re.findall(r"#(\d)", step["question"])}
        assert everything_used == set(range(1, len(answers))), "no hop is idle"
        holders = [
            page["title"] for page in row["paragraphs"] if row["answer"] in page["paragraph_text"] and page["title"] != row["answer"]
        ]
        assert holders == [row["paragraphs"][row["question_decomposition"][-1]["paragraph_support_idx"]]["title"]]


def test_a_description_by_two_hops_fits_one_page_and_each_half_of_it_fits_another_too() -> None:
    checked = 0
    for row in musiques("train"):
        if row["id"].split("__")[0] not in ("3hop2", "4hop2"):
            continue
        first, second, third = row["question_decomposition"][:3]
        target = row["paragraphs"][third["paragraph_support_idx"]]["title"]
        sources = {row["paragraphs"][step["paragraph_support_idx"]]["title"] for step in (first, second)}
        texts = {page["title"]: page["paragraph_text"] for page in row["paragraphs"] if page["title"] not in sources}
        both = [title for title, text in texts.items() if first["answer"] in text and second["answer"] in text]
        assert both == [target]
        for step in (first, second):
            assert len([title for title, text in texts.items() if step["answer"] in text]) >= 2, "a decoy has this half"
        checked += 1
    assert checked > 25


@pytest.mark.parametrize("split", SPLITS)
def test_the_unanswerable_twin_lacks_the_page_of_one_hop_and_asks_the_same(split: str) -> None:
    gone = Counter()
    for seed, row in enumerate(musiques(split)[:60]):
        twin = musique_row(split, seed, answerable=False)
        assert (twin["id"], twin["question"], twin["answer"], twin["answerable"]) == (row["id"], row["question"], row["answer"], False)
        assert len(twin["paragraphs"]) == PARAGRAPHS
        titles = {page["title"] for page in twin["paragraphs"]}
        lost = [
            number
            for number, step in enumerate(row["question_decomposition"])
            if row["paragraphs"][step["paragraph_support_idx"]]["title"] not in titles
        ]
        assert len(lost) == 1 and twin["question_decomposition"][lost[0]]["paragraph_support_idx"] is None
        gone[lost[0]] += 1
        assert sum(page["is_supporting"] for page in twin["paragraphs"]) == len(row["question_decomposition"]) - 1
        link = row["question_decomposition"][lost[0]]["answer"]
        stated = [page for page in twin["paragraphs"] if page["is_supporting"] and page["title"] == link]
        assert not stated or lost[0] + 1 < len(row["question_decomposition"])
        with pytest.raises(UnusableRow, match="no answer among its paragraphs"):
            parse_qa(twin)
        task = parse_qa(twin, unanswerable=True)
        assert not task.answerable and task.answers == ()
    assert len(gone) >= 3


# ------------------------------------------------------------------------------------------------ both


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SPLITS), st.integers(0, 2**53 - 1))
def test_a_row_is_a_function_of_split_and_seed_and_speaks_its_splits_words(split: str, seed: int) -> None:
    rows: list[Any] = []
    for make in (two_wiki_row, musique_row):
        row = make(split, seed)
        assert row == make(split, seed)
        rows.append(row)
    others = "".join(MARKS[other] for other in SPLITS if other != split)
    for row in rows:
        task = parse_qa(row)
        if task.golds[0] not in ("yes", "no"):
            assert set(MARKS[split]) & set(task.golds[0].lower())
        names = [word for page in task.paragraphs if re.fullmatch(r"[A-Z]\w+ [A-Z]\w+", page.title) for word in page.title.split()[:1]]
        assert names == [] or any(not set(others) & set(word.lower()) for word in names)


@pytest.mark.parametrize("make", [two_wiki_row, musique_row], ids=["two_wiki", "musique"])
def test_an_unknown_split_and_a_negative_seed_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="train, validation, test, not 'dev'"):
        make("dev", 0)
    with pytest.raises(ValueError, match="non-negative"):
        make("train", -1)


def test_no_question_stands_in_two_splits() -> None:
    for rows in (two_wikis, musiques):
        questions = [row["question"] for split in SPLITS for row in rows(split)]
        assert len(set(questions)) == len(questions)
