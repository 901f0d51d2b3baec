"""The shop's search engine: the products whose texts match the words best, by the same BM25 as the original's Lucene index (`LuceneBM25`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from agent_gym.envs.webshop.product import Product, search_text
from agent_gym.search import Document, LuceneBM25

__all__ = ["ProductSearch", "search_documents"]


def search_documents(products: Iterable[Product]) -> Iterator[Document]:
    """What is indexed of each product. Equal scores are ordered by the product's id, as in the original.

    Args:
        products: In the order of their numbers.

    Yields:
        A document for each, without a title.
    """
    for product in products:
        yield Document(product.asin, "", search_text(product))


class ProductSearch:
    """Finds products by words. What it finds does not depend on earlier searches; safe in threads.

    Attributes:
        index: The index; its documents are the products, by number.
    """

    def __init__(self, index: LuceneBM25) -> None:
        """Takes an index whose documents are the products, by number."""
        self.index = index

    @classmethod
    def build(cls, documents: Iterable[Document], folder: Path) -> ProductSearch:
        """Writes an index to a folder; goes through the documents once.

        Args:
            documents: As of `search_documents`.
            folder: See `LuceneBM25.build`.

        Returns:
            The engine over it.
        """
        return cls(LuceneBM25.build(documents, folder))

    @classmethod
    def open(cls, folder: Path) -> ProductSearch:
        """Maps an index that `build` wrote.

        Args:
            folder: That `build` wrote.

        Returns:
            The engine over it.
        """
        return cls(LuceneBM25.open(folder))

    def __call__(self, words: str, k: int) -> tuple[int, ...]:
        """The best products for some words.

        Args:
            words: Any text.
            k: How many, at least 1.

        Returns:
            The numbers of the products, best first, as `LuceneBM25.search` orders them; fewer where fewer share a word with the text.
        """
        return self.index.numbers(words, k)
