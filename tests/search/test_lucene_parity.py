"""The index reproduces recorded rankings of Lucene over a real product catalogue."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_bm25 import exact_lengths, stop_words_kept, ties_by_insertion, words_not_stemmed

from agent_gym.envs.webshop.product import parse_product
from agent_gym.envs.webshop.search import search_documents
from agent_gym.search import Document, LuceneBM25


@pytest.fixture(scope="module")
def shop(data_dir: Path) -> tuple[list[Document], list[dict[str, Any]]]:
    folder = data_dir / "webshop"
    products = json.loads((folder / "items_shuffle_1000.json").read_text(encoding="utf-8"))
    lines = (folder / "lucene_top50.jsonl").read_text(encoding="utf-8").splitlines()
    parsed = [parse_product(product, None, number, "products", "notes") for number, product in enumerate(products)]
    return list(search_documents(parsed)), [json.loads(line) for line in lines]


def agreement(documents: list[Document], recorded: list[dict[str, Any]], *, mapped: Path | None = None) -> tuple[float, float, float]:
    """Shares of the queries with the same first hit, the same ten in the same order, and all scores within the recorded digits."""
    found = LuceneBM25.build(documents, mapped).search([query["query"] for query in recorded], 50)
    first = ten = scores = 0
    for hits, query in zip(found, recorded, strict=True):
        ids = [hit.document.id for hit in hits]
        first += ids[:1] == query["ids"][:1]
        ten += ids[:10] == query["ids"][:10]
        scores += all(abs(hit.score - score) < 1e-4 for hit, score in zip(hits, query["scores"], strict=False))
    return first / len(recorded), ten / len(recorded), scores / len(recorded)


def test_recorded_rankings_are_reproduced(shop: tuple[list[Document], list[dict[str, Any]]]) -> None:
    documents, recorded = shop
    assert len(recorded) >= 250
    first, ten, scores = agreement(documents, recorded)
    assert first >= 0.99
    assert ten >= 0.95
    assert scores >= 0.95


def test_the_mapped_index_reproduces_them_too(shop: tuple[list[Document], list[dict[str, Any]]], tmp_path: Path) -> None:
    first, ten, _ = agreement(*shop, mapped=tmp_path / "index")
    assert first >= 0.99
    assert ten >= 0.95


@pytest.mark.parametrize("mutant", [exact_lengths, stop_words_kept, words_not_stemmed], ids=lambda mutant: mutant.__name__)
def test_a_broken_index_does_not(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, shop: tuple[list[Document], list[dict[str, Any]]]
) -> None:
    mutant(monkeypatch)
    assert agreement(*shop)[1] < 0.95


def test_ties_by_insertion_change_the_order(monkeypatch: pytest.MonkeyPatch, shop: tuple[list[Document], list[dict[str, Any]]]) -> None:
    right = agreement(*shop)[1]
    ties_by_insertion(monkeypatch)
    assert agreement(*shop)[1] < right
