"""The index ranks as Lucene does: against a slow oracle, with mutants that must be caught, in both of its forms, and in linear time."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence

import lucene_oracle as oracle
import numpy as np
import pytest
from helpers import assert_linear
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.search import Document, LuceneBM25, Searcher, analysis, bm25

WORDS = "the of cats cat dogs running runs ran is it Paris O'Neil's 3.5 x_y 漢字 ★ relational possibly"
texts = st.lists(st.sampled_from(WORDS.split()), max_size=40).map(" ".join)
small_corpora = st.lists(texts, max_size=8).map(lambda pages: [Document(str(number), "", text) for number, text in enumerate(pages)])


def plain(hits: Sequence[object]) -> list[tuple[str, float]]:
    return [(hit.document.id, hit.score) for hit in hits]  # type: ignore[attr-defined]


def expected(documents: Sequence[Document], query: str, k: int, **settings_: float) -> list[tuple[str, float]]:
    return oracle.rank([(page.id, oracle.terms(page.contents)) for page in documents], oracle.terms(query), k, **settings_)


def force(index: LuceneBM25, form: str) -> LuceneBM25:
    index._small = form == "small"
    return index


def generated(pages: int, seed: int = 0, longest: int = 80) -> list[Document]:
    draw = random.Random(seed)
    vocabulary = ["the", "of", "and", *(f"w{number}" for number in range(60))]
    ids = [f"id{number:06d}" for number in range(pages)]
    draw.shuffle(ids)
    weights = [1 / (1 + place) for place in range(len(vocabulary))]
    return [Document(name, f"Page {name[-1]}", " ".join(draw.choices(vocabulary, weights, k=draw.randint(0, longest)))) for name in ids]


@pytest.mark.parametrize("form", ["small", "large"])
@given(
    documents=small_corpora, query=texts, k=st.integers(1, 9), k1=st.sampled_from([0.9, 0.0, 1.2, 50.0]), b=st.sampled_from([0.4, 0.0, 1.0])
)
@settings(max_examples=150, deadline=None)
def test_ids_order_and_scores_are_those_of_the_oracle(
    form: str, documents: list[Document], query: str, k: int, k1: float, b: float
) -> None:
    index = force(LuceneBM25.build(documents, k1=k1, b=b), form)
    assert plain(index.search([query], k)[0]) == expected(documents, query, k, k1=k1, b=b)


@given(
    documents=small_corpora, query=texts, k=st.integers(1, 9), k1=st.sampled_from([0.9, 0.0, 1.2, 50.0]), b=st.sampled_from([0.4, 0.0, 1.0])
)
@settings(max_examples=150, deadline=None)
def test_numbers_alone_come_in_the_same_order(documents: list[Document], query: str, k: int, k1: float, b: float) -> None:
    index = LuceneBM25.build(documents, k1=k1, b=b)
    names = [name for name, _ in expected(documents, query, k, k1=k1, b=b)]
    for _ in range(2):  # the second time from what was kept
        assert [documents[number].id for number in index.numbers(query, k)] == names


@pytest.mark.parametrize("kept", [bm25._KEPT, 1, 0])
def test_what_is_kept_of_earlier_searches_changes_nothing(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there is room for one term, and in an index of too many documents to keep scores."""
    monkeypatch.setattr(bm25, "_KEPT", max(kept, 1))
    monkeypatch.setattr(bm25, "_FEW", 1_000_000 if kept else 0)
    documents = generated(300, seed=5)
    index = LuceneBM25.build(documents)
    for query in [f"w{n} w{n // 2} w3 w3 zzz" for n in range(40)] * 2:
        for k in (1, 7, 400):
            assert [documents[n].id for n in index.numbers(query, k)] == [name for name, _ in expected(documents, query, k)]
    assert len(index._known_rows) <= bm25._KEPT and len(index._known_scores) <= bm25._KEPT
    assert bool(index._known_scores) == bool(kept)


def test_a_score_too_small_for_32_bits_is_one_all_the_same() -> None:
    """`numbers` may not take a sum of 0 for a document without any term."""
    documents = [Document("long", "", "rare " + "filler " * 3_000), *(Document(f"d{number}", "", "filler") for number in range(5))]
    index = LuceneBM25.build(documents, k1=1e30, b=1.0)
    for query, k in (("rare", 1), ("rare", 3), ("filler", 2), ("filler", 9)):
        hits = index.search([query], k)[0]
        assert hits and [documents[number].id for number in index.numbers(query, k)] == [hit.document.id for hit in hits]
    assert index.search(["rare"], 1)[0][0].score == 0.0


def agrees() -> bool:
    """Whether an index built now ranks pages of all lengths, with many ties, as the oracle does."""
    documents = generated(60, longest=400) + [Document(f"tie{number}", "", "w1 w2 unique") for number in (3, 1, 2)]
    queries = ["w1 w2", "w1 w1 w1 w2 w3 w3", "unique the of", "the w9 of w30", "relational w5", "w1 w4 w8 w16 w32"]
    documents.append(Document("rel", "", "relate relational relating possibly"))
    index = LuceneBM25.build(documents)
    return all(plain(found) == expected(documents, query, 20) for query, found in zip(queries, index.search(queries, 20), strict=True))


def exact_lengths(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        bm25, "_inverse_norms", lambda total, filled, k1, b: np.float32(1) / (0.6 * 0.9 + 0.36 * np.arange(256) / (total / filled))
    )
    patch.setattr(bm25, "LENGTH_TABLE", np.arange(256))


def stop_words_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(analysis, "STOP_WORDS", frozenset())
    patch.setattr(analysis, "_terms", analysis._Terms())


def ties_by_insertion(patch: pytest.MonkeyPatch) -> None:
    original = bm25.Postings.finish

    def finish(self: bm25.Postings) -> tuple[object, ...]:
        *parts, ranks, total = original(self)
        return *parts, np.arange(len(ranks), dtype=np.int32), total

    patch.setattr(bm25.Postings, "finish", finish)


def query_counts_ignored(patch: pytest.MonkeyPatch) -> None:
    original = LuceneBM25._terms
    patch.setattr(LuceneBM25, "_terms", lambda self, query: [(row, 1) for row, _ in original(self, query)])


def sums_in_single_precision(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bm25, "_term_scores", lambda weights, counts, norms: (weights * counts / (counts + 1 / norms)).astype(np.float64))


def words_not_stemmed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(analysis, "stem", lambda word: word)
    patch.setattr(analysis, "_terms", analysis._Terms())


MUTANTS = [exact_lengths, stop_words_kept, ties_by_insertion, query_counts_ignored, sums_in_single_precision, words_not_stemmed]


def test_the_index_agrees_with_the_oracle_on_long_and_equal_pages() -> None:
    assert agrees()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_index_is_caught(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert not agrees()


def test_both_forms_give_the_same_on_a_larger_corpus() -> None:
    documents = generated(1500, longest=120)
    index = LuceneBM25.build(documents)
    queries = [" ".join(random.Random(seed).choices([f"w{number}" for number in range(60)], k=6)) for seed in range(20)]
    for k in (1, 7, 1000):
        assert force(index, "large").search(queries, k) == LuceneBM25.build(documents).search(queries, k)


def test_lengths_are_squeezed_into_one_byte() -> None:
    table = bm25.LENGTH_TABLE.tolist()
    assert len(table) == 256 == len(set(table))
    assert table == sorted(table)
    assert table[:42] == [*range(40), 40, 42]
    for length in [*range(3000), 10**5, 10**6 + 1]:
        assert table[int(np.searchsorted(bm25.LENGTH_TABLE, length, side="right")) - 1] == oracle.squeeze(length)


def test_edges() -> None:
    index = LuceneBM25.build([])
    assert len(index) == 0
    assert index.search(["anything", ""], 3) == [[], []]
    index = LuceneBM25.build([Document("a", "The", "of it"), Document("b", "", ""), Document("c", "Title", "")])
    assert plain(index.search(["title"], 3)[0]) == expected(index.documents, "title", 3)
    assert index.search(["the of it", "absent", "!!"], 5) == [[], [], []]
    assert index.search([], 5) == []
    assert isinstance(index, Searcher)


def test_titles_are_searched_too() -> None:
    index = LuceneBM25.build([Document("1", "Ada Lovelace", "A mathematician."), Document("2", "Zebra", "An animal.")])
    assert index.search(["lovelace"], 1)[0][0].document.title == "Ada Lovelace"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: LuceneBM25.build([Document("x", "", "a"), Document("x", "", "b")]), ValueError, "'x' stands for 2"),
        (lambda: LuceneBM25.build([], k1=-1), ValueError, "k1"),
        (lambda: LuceneBM25.build([], k1=float("nan")), ValueError, "k1"),
        (lambda: LuceneBM25.build([], b=1.5), ValueError, "b must"),
        (lambda: LuceneBM25.build([]).search(["a"], 0), ValueError, "at least 1"),
        (lambda: LuceneBM25.build([]).search("abc", 1), TypeError, "list of strings"),
    ],
)
def test_mistakes_are_named(call: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_the_fingerprint_tells_documents_and_settings_apart() -> None:
    pages = [Document("1", "t", "a"), Document("2", "", "b")]
    same = LuceneBM25.build(pages).fingerprint
    assert same == LuceneBM25.build(list(pages)).fingerprint
    others = [
        LuceneBM25.build(pages, k1=1.0),
        LuceneBM25.build(pages, b=0.5),
        LuceneBM25.build(pages[:1]),
        LuceneBM25.build([Document("1", "", "ta"), Document("2", "", "b")]),
        LuceneBM25.build([Document("1", "ta", ""), Document("2", "", "b")]),
    ]
    assert len({same, *(index.fingerprint for index in others)}) == 6


def test_an_index_in_memory_can_be_pickled() -> None:
    index = LuceneBM25.build(generated(30))
    assert pickle.loads(pickle.dumps(index)).search(["w1 w2"], 5) == index.search(["w1 w2"], 5)


def test_chunks_of_postings_give_the_same_index(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = generated(200)
    whole = LuceneBM25.build(documents)
    monkeypatch.setattr(bm25.Postings, "_chunk", 100)
    parts = LuceneBM25.build(documents)
    assert np.array_equal(whole._posting_documents, parts._posting_documents)
    assert np.array_equal(whole._posting_counts, parts._posting_counts)


@pytest.mark.parametrize("form", ["small", "large"])
def test_searching_takes_time_linear_in_the_corpus(form: str) -> None:
    queries = ["w1 w2 w3 w4"] * 10

    def make(size: int) -> LuceneBM25:
        index = force(LuceneBM25.build(generated(size, longest=24)), form)
        assert form == "large" or hasattr(index, "_scores"), "the corpus is too large for the small form"
        return index

    assert_linear(lambda index: index.search(queries, 10), make, 250 if form == "small" else 2500)


def test_building_takes_time_linear_in_the_corpus() -> None:
    assert_linear(LuceneBM25.build, generated, 250)


def test_searching_does_not_grow_with_the_length_of_the_query_squared() -> None:
    index = LuceneBM25.build(generated(50))
    assert_linear(lambda query: index.search([query], 3), lambda n: " ".join(f"w{number % 60} q{number}" for number in range(n)), 500)
