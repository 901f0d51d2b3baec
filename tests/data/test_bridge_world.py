"""The easy generated world: rows are pure functions of split and seed, splits share nothing, and every shortcut is wrong."""

import itertools
import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.data.bridge_world import PEOPLE, SPLITS, boss_of, bridge_row, hop_titles, page
from agent_gym.data.qa_metrics import normalize_answer

splits = st.sampled_from(SPLITS)
seeds = st.integers(0, 2**53)


def words_of(row):
    texts = [row["question"], row["answer"], *(title for title, _ in row["context"]), *(s for _, page in row["context"] for s in page)]
    return {word.strip(".?") for text in texts for word in text.split() if word[0].isupper()} - {"Who"}


@given(splits, seeds)
@settings(max_examples=100, deadline=None)
def test_the_hops_lead_from_the_question_to_the_answer_and_no_further_page_does(split, seed):
    row = bridge_row(split, seed)
    pages = {title: " ".join(sentences) for title, sentences in row["context"]}
    hops = hop_titles(row)
    assert len(hops) in (2, 3) and len(pages) == 8
    assert hops[0] in row["question"] and not any(title in row["question"] for title in hops[1:])
    assert all(len(sentences) == 1 for _, sentences in row["context"])
    for title, following in itertools.pairwise([*hops, row["answer"]]):
        assert pages[title] == f"{title} works for {following}."
    assert [title for title, text in pages.items() if boss_of(text) == row["answer"]] == [hops[-1]]
    for title, index in row["supporting_facts"]:
        assert title in dict(row["context"])[title][index]


@given(splits, seeds)
@settings(max_examples=100, deadline=None)
def test_stopping_early_echoing_or_naming_anyone_is_always_wrong(split, seed):
    row = bridge_row(split, seed)
    pages = {title: " ".join(sentences) for title, sentences in row["context"]}
    guesses = [
        row["question"],
        *row["question"].strip("?").split(),
        *hop_titles(row),
        *(boss_of(pages[title]) for title in hop_titles(row)[:-1]),
    ]
    assert normalize_answer(row["answer"]) not in {normalize_answer(guess) for guess in guesses}


def test_a_constant_answer_is_right_for_few_questions_only():
    for split in SPLITS:
        counts = Counter(bridge_row(split, seed)["answer"] for seed in range(4000))
        assert max(counts.values()) / 4000 < 0.05


def test_splits_share_no_entity():
    pools = [set(PEOPLE[split]) for split in SPLITS]
    assert sum(map(len, pools)) == len(set().union(*pools))
    assert all(normalize_answer(name) == name.lower() for pool in pools for name in pool)
    seen = {split: set().union(*(words_of(bridge_row(split, seed)) for seed in range(200))) for split in SPLITS}
    assert all(seen[split] <= pools[index] for index, split in enumerate(SPLITS))


def test_names_stay_apart_after_stemming():
    from agent_gym.search.porter import stem

    names = [name for pool in PEOPLE.values() for name in pool]
    assert len({stem(name.lower()) for name in names}) == len(names)


def test_the_query_of_a_name_finds_its_own_page_first():
    from agent_gym.search import Document, LuceneBM25

    for seed in range(100):
        row = bridge_row("train", seed)
        index = LuceneBM25.build([Document(str(number), title, " ".join(page)) for number, (title, page) in enumerate(row["context"])])
        for title, _ in row["context"]:
            assert index.search([title], 1)[0][0].document.title == title


def test_rows_are_the_same_in_another_process_with_another_hash_seed():
    script = "import json; from agent_gym.data.bridge_world import bridge_row; print(json.dumps([bridge_row(s, 7) for s in ('train', 'validation', 'test')]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "99"})
    assert json.loads(done.stdout) == [bridge_row(split, 7) for split in SPLITS]


def test_split_and_seed_both_matter():
    rows = [json.dumps(bridge_row(split, seed)) for split in SPLITS for seed in range(50)]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(("split", "seed"), [("dev", 0), ("train", -1)])
def test_unknown_splits_and_negative_seeds_are_refused(split, seed):
    with pytest.raises(ValueError):
        bridge_row(split, seed)


def test_both_lengths_occur_about_equally_often():
    counts = Counter(len(hop_titles(bridge_row("train", seed))) for seed in range(1000))
    assert 400 < counts[2] < 600 and set(counts) == {2, 3}


def test_a_page_is_read_as_it_was_written():
    assert boss_of(" ".join(page("Nendo", "Davo"))) == "Davo"
    with pytest.raises(ValueError, match="not a page"):
        boss_of("Nendo lives in Davo.")
