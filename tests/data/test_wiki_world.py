"""The generated encyclopaedia: what makes its questions worth answering, each property measured on many rows."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.data import wiki_text
from agent_gym.data.qa_loaders import QATask, parse_qa
from agent_gym.data.qa_metrics import answer_reward, normalize_answer
from agent_gym.data.wiki_names import MARKS, SPLITS, WordMaker
from agent_gym.data.wiki_world import COMPARISON_SHARE, THREE_HOP_SHARE, YES_NO_SHARE, guess_rates, wiki_row
from agent_gym.search import Document, LuceneBM25

N = 1000
COUNTS = {"train": N, "validation": 400, "test": 400}


@cache
def rows(split: str) -> list[dict[str, Any]]:
    return [wiki_row(split, seed) for seed in range(COUNTS[split])]


@cache
def tasks(split: str) -> list[QATask]:
    return [parse_qa(row) for row in rows(split)]


def bridges(split: str = "train") -> list[QATask]:
    return [task for task in tasks(split) if task.type == "bridge"]


def invented(text: str) -> set[str]:
    """Capitalised words that no template holds: the invented ones."""
    return set(re.findall(r"\b[A-Z][a-z]{4,}\b", text)) - TEMPLATE_WORDS


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for member in value.values() for text in _texts(member)]
    if isinstance(value, (tuple, list)):
        return [text for member in value for text in _texts(member)]
    return [text for name in ("says", "phrases", "asks", "smaller", "larger") for text in getattr(value, name, ())]


ALL_TEXT = " ".join(text for name in wiki_text.__all__ if name.isupper() for text in _texts(getattr(wiki_text, name)))
MONTHS = "January February March April June July August September October November December"
TEMPLATE_WORDS = {form for word in re.findall(r"[A-Za-z]+", f"{ALL_TEXT} {MONTHS}") for form in (word, word.capitalize())}


def test_a_row_has_the_official_layout() -> None:
    for row in rows("train")[:200]:
        assert set(row) == {"_id", "question", "answer", "type", "level", "supporting_facts", "context"}
        titles = [title for title, _ in row["context"]]
        assert len(titles) == len(set(titles)) == 10
        sentences = dict(row["context"])
        for title, lines in sentences.items():
            assert 2 <= len(lines) <= 5, (title, lines)
            assert not lines[0].startswith(" ") and all(line.startswith(" ") for line in lines[1:])
            assert all(re.fullmatch(r" ?[A-Z\"].*[.]", line) and "{" not in line for line in lines), lines
            assert title in lines[0]
        assert row["question"][0].isupper() and row["question"].endswith("?") and "{" not in row["question"]
        assert all(0 <= number < len(sentences[title]) for title, number in row["supporting_facts"])
        json.dumps(row)


def test_questions_come_in_the_stated_shares() -> None:
    kinds = Counter(
        task.level if task.type == "bridge" else "yes/no" if task.golds[0] in ("yes", "no") else "choice" for task in tasks("train")
    )
    wanted = {
        "yes/no": YES_NO_SHARE,
        "choice": COMPARISON_SHARE,
        "hard": THREE_HOP_SHARE,
        "medium": 1 - YES_NO_SHARE - COMPARISON_SHARE - THREE_HOP_SHARE,
    }
    for kind, share in wanted.items():
        assert kinds[kind] / N == pytest.approx(share, abs=4 * (share * (1 - share) / N) ** 0.5), kind
    assert (kinds["yes/no"] + kinds["choice"]) / N <= 0.30
    assert kinds["yes/no"] / N <= 0.08


@pytest.mark.parametrize("split", SPLITS)
def test_each_page_of_a_bridge_names_only_the_next_one_and_the_last_alone_the_answer(split: str) -> None:
    for task, row in zip(tasks(split), rows(split), strict=True):
        if task.type != "bridge":
            continue
        assert len(task.hops) == (2 if task.level == "medium" else 3)
        pages = dict(row["context"])
        assert task.hops[0] in task.question
        for (title, number), named in zip(task.supporting_facts, (*task.hops[1:], task.golds[0]), strict=True):
            assert named in pages[title][number], "the supporting sentence states the link"
        for later in (*task.hops[1:], task.golds[0]):
            assert later not in task.question
        assert all(task.golds[0] not in " ".join(pages[title]) for title in task.hops[:-1])
        others = [
            title for title, lines in pages.items() if title not in (task.hops[-1], task.golds[0]) and task.golds[0] in " ".join(lines)
        ]
        assert not others
        assert task.hops == tuple(title for title, _ in task.supporting_facts)


@pytest.mark.parametrize("split", SPLITS)
def test_constants_echoes_and_names_of_the_question_score_nothing_on_bridges(split: str) -> None:
    found = bridges(split)
    for task in found:
        assert answer_reward(task.question, task.answers) == 0.0
        assert not invented(task.golds[0]) & invented(task.question), task.question
        assert invented(task.golds[0])
        words = re.findall(r"[\w'-]+", task.question)
        spans = {" ".join(words[begin:end]) for begin in range(len(words)) for end in range(begin + 1, len(words) + 1)}
        assert normalize_answer(task.golds[0]) not in {normalize_answer(span) for span in spans}
    counts = Counter(normalize_answer(task.golds[0]) for task in found)
    assert max(counts.values()) == 1, counts.most_common(2)


@pytest.mark.parametrize("split", SPLITS)
def test_no_constant_answer_reaches_five_percent(split: str) -> None:
    (_, first), (_, second), (_, third) = Counter(normalize_answer(task.golds[0]) for task in tasks(split)).most_common(3)
    assert first / COUNTS[split] < 0.05
    assert first / COUNTS[split] <= YES_NO_SHARE / 2 + 0.02 and second / COUNTS[split] <= YES_NO_SHARE / 2 + 0.02
    assert third <= 2


def numbers_of(lines: list[str]) -> dict[str, int]:
    """What a reader takes from an intro: an oracle that knows no generator."""
    months = {month: index for index, month in enumerate(MONTHS.replace("April June", "April May June").split(), start=1)}
    date = re.search(r"(\d+) ([A-Z]\w+) (\d{4})", lines[0])
    found = {}
    if date and date[2] in months:
        found["birth"] = int(date[3]) * 10_000 + months[date[2]] * 100 + int(date[1])
    for name, pattern in {
        "year": r"(?:in|since|in) (\d{4})\b(?! inhab)",
        "inhabitants": r"([\d,]+) inhabitants",
        "kilometres": r"(\d+) kilometres",
        "metres": r"([\d,]+) metres",
    }.items():
        if match := re.search(pattern, lines[0]):
            found[name] = int(match[1].replace(",", ""))
    return found


WINS = {
    "born first": ("birth", min), "is older": ("birth", min), "born later": ("birth", max), "completed first": ("year", min),
    "completed later": ("year", max), "founded first": ("year", min), "founded later": ("year", max), "fewer": ("inhabitants", min),
    "more": ("inhabitants", max), "shorter": ("kilometres", min), "longer": ("kilometres", max), "lower": ("metres", min),
    "higher": ("metres", max), "launched first": ("year", min), "launched later": ("year", max),
}  # fmt: skip


def test_comparisons_follow_from_their_pages_and_the_two_names_are_equally_likely() -> None:
    first_named = wanted = 0
    for task, row in zip(tasks("train"), rows("train"), strict=True):
        if task.type == "bridge":
            continue
        pages = dict(row["context"])
        one, other = sorted(task.hops, key=task.question.index)
        if task.golds[0] in ("yes", "no"):
            assert answer_reward(task.golds[0], _yes_no_by_reading(task.question, pages[one][0], pages[other][0])) == 1.0, task.question
            continue
        fact, choose = next(rule for phrase, rule in WINS.items() if phrase in task.question)
        values = {title: numbers_of(pages[title])[fact] for title in (one, other)}
        assert values[one] != values[other]
        assert task.golds[0] == choose(values, key=lambda title: values[title]), task.question
        first_named += task.golds[0] == one
        wanted += 1
    assert first_named / wanted == pytest.approx(0.5, abs=4 * 0.5 / wanted**0.5)


def _yes_no_by_reading(question: str, one: str, other: str) -> str:
    if "region" in question:
        regions = [re.search(r"the (\w+) region", text) for text in (one, other)]
        return "yes" if regions[0] and regions[1] and regions[0][1] == regions[1][1] else "no"
    plural = question.rstrip("?").split()[-1]
    singular = plural[:-3] + "y" if plural.endswith("ies") else plural[:-1]
    return "yes" if all(re.search(rf"\b{singular}\b", text) for text in (one, other)) else "no"


def test_the_stated_guess_rates_are_what_guessers_reach() -> None:
    rng = np.random.default_rng(0)
    compared = [task for task in tasks("train") if task.type == "comparison"]

    def guess(task: QATask) -> str:
        options = ("yes", "no") if task.golds[0] in ("yes", "no") else task.hops
        return options[int(rng.integers(2))]

    won = sum(answer_reward(guess(task), task.answers) for task in compared)
    rates = guess_rates()
    assert won / len(compared) == pytest.approx(rates["comparison"], abs=4 * 0.5 / len(compared) ** 0.5)
    assert won / N == pytest.approx(rates["overall"], abs=0.035)
    best = Counter(task.golds[0] for task in tasks("train")).most_common(1)[0][1] / N
    assert best == pytest.approx(rates["constant"], abs=0.02)
    assert rates["overall"] == pytest.approx(0.10) and rates["bridge"] == 0.0


def _found(task: QATask, query: str, k: int) -> set[str]:
    index = LuceneBM25.build([Document(str(number), page.title, page.text) for number, page in enumerate(task.paragraphs)])
    return {hit.document.title for hit in index.search([query], k)[0]}


def test_one_search_for_the_question_seldom_brings_the_page_of_the_answer() -> None:
    found = bridges()[:300]
    assert sum(set(task.hops) <= _found(task, task.question, 3) for task in found) / len(found) < 0.25
    assert sum(task.hops[-1] in _found(task, task.question, 3) for task in found) / len(found) < 0.35


def test_a_search_for_a_supporting_title_finds_its_page() -> None:
    for task in tasks("train")[:200]:
        assert all(title in _found(task, title, 3) for title in task.hops)


def names(split: str) -> set[str]:
    return {title for row in rows(split) for title, _ in row["context"]} | {
        row["answer"] for row in rows(split) if row["answer"] not in ("yes", "no")
    }


def test_no_entity_of_one_split_occurs_in_another() -> None:
    texts = {
        split: "\n".join(row["question"] + row["answer"] + " ".join("".join(lines) for _, lines in row["context"]) for row in rows(split))
        for split in SPLITS
    }
    for split in SPLITS:
        words = {word for name in names(split) for word in invented(name)}
        assert len(words) > 5 * COUNTS[split]
        for other in set(SPLITS) - {split}:
            assert not names(split) & names(other)
            assert not words & set(re.findall(r"\w+", texts[other]))
            assert not {word.lower() for word in words} & set(re.findall(r"\w+", texts[other].lower()))


@given(st.sampled_from(SPLITS), st.integers(0, 2**32), st.lists(st.sampled_from(["given", "surname", "place"]), min_size=1, max_size=25))
def test_every_word_bears_a_mark_of_its_split_and_none_of_another(split: str, seed: int, styles: list[str]) -> None:
    """The proof behind the last test: a word of one split cannot stand in a word of another."""
    maker = WordMaker(split, np.random.default_rng(seed))
    words = [maker.word(style) for style in styles]
    foreign = set("".join(MARKS[other] for other in SPLITS if other != split))
    for word in words:
        assert word.istitle() and word.isalpha() and word.isascii() and 5 <= len(word) <= 11
        assert set(word.lower()) & set(MARKS[split])
        assert not set(word.lower()) & foreign
        assert word not in TEMPLATE_WORDS and word.lower() not in TEMPLATE_WORDS
    for index, word in enumerate(words):
        assert all(word.lower() not in other.lower() for other in words[:index] + words[index + 1 :])


def test_the_marks_of_the_splits_do_not_overlap() -> None:
    assert len("".join(MARKS.values())) == len(set("".join(MARKS.values())))


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_a_row_is_the_same_in_every_process(hash_seed: str) -> None:
    code = (
        "import hashlib, json; from agent_gym.data.wiki_world import wiki_row; "
        "print(hashlib.sha256(json.dumps([wiki_row(s, n) for s in ('train', 'validation', 'test') for n in (0, 7, 2**63 - 1)]).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "LC_ALL": "C"}
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout.strip()
    import hashlib

    here = json.dumps([wiki_row(split, seed) for split in SPLITS for seed in (0, 7, 2**63 - 1)])
    assert printed == hashlib.sha256(here.encode()).hexdigest()


def test_seeds_and_splits_name_different_worlds() -> None:
    assert wiki_row("train", 5) == wiki_row("train", 5)
    questions = {wiki_row(split, seed)["question"] for split in SPLITS for seed in range(50)}
    assert len(questions) == 150


def test_unknown_splits_and_negative_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="train, validation, test"):
        wiki_row("dev", 0)
    with pytest.raises(ValueError, match="non-negative"):
        wiki_row("train", -1)


def test_questions_are_varied() -> None:
    shapes = {re.sub(r"\b[A-Z][a-z]{4,}\b", "X", task.question) for task in tasks("train")}
    assert len(shapes) > 400
