"""The quick way to the first hits is the order of the index, whatever is searched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agent_gym.envs.webshop import Catalogue, Shop
from agent_gym.envs.webshop.search import ProductSearch, search_documents
from agent_gym.search import LuceneBM25, bm25

words = st.sampled_from(
    ["mug", "mugs", "glass", "glassglass", "stone", "blue", "hose", "number", "7", "the", "xyzzy", "feature", "plain", "size", "wood"]
)


def expected(catalogue: Catalogue, text: str, k: int) -> tuple[int, ...]:
    return tuple(catalogue.numbers([hit.document.id for hit in catalogue.search.index.search([text], k)[0]]))


@settings(max_examples=200, deadline=None)
@given(text=st.lists(words, max_size=7).map(" ".join) | st.text(max_size=12), k=st.integers(1, 90))
@example(text="mug mug stone", k=3)
@example(text="", k=1)
def test_what_is_found_is_what_the_index_finds(odd_shop: Shop, text: str, k: int) -> None:
    assert odd_shop.catalogue.search(text, k) == expected(odd_shop.catalogue, text, k)


@pytest.mark.parametrize("k", [1, 10, 50])
def test_so_it_is_in_the_official_shop(official: Catalogue, k: int) -> None:
    for number in range(0, 1000, 10):
        product = official.product(number)
        for text in (product.title, f"{product.query} {' '.join(product.attributes)}", product.description[:200]):
            assert official.search(text, k) == expected(official, text, k)


def test_a_large_catalogue_is_searched_alike_without_kept_scores(odd_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "_FEW", 0)
    large = ProductSearch(LuceneBM25.build(list(search_documents(odd_shop.catalogue))))
    for text in ("mug", "blue mug hose", "stone stone glass 7"):
        assert large(text, 20) == odd_shop.catalogue.search(text, 20)
    assert not large.index._known_scores and odd_shop.catalogue.search.index._known_scores


def ties_by_number(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(np, "lexsort", lambda keys: np.argsort(keys[-1], kind="stable"))


def test_equal_scores_are_ordered_by_id(odd_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    backwards = sorted(odd_shop.catalogue, key=lambda product: product.asin, reverse=True)
    search = ProductSearch(LuceneBM25.build(list(search_documents(backwards))))
    right = search("mug number", 50)
    assert [backwards[number].asin for number in right] == [
        odd_shop.catalogue.product(number).asin for number in odd_shop.catalogue.search("mug number", 50)
    ]
    ties_by_number(monkeypatch)
    assert search("mug number", 50) != right
