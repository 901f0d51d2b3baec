"""What every search engine speaks in: `Document`, `Hit`, the `Searcher` protocol and the one-string form of a document.

Tools and environments hold a `Searcher` and never ask what stands behind it: an index in memory, one on disk, or a server. The one-string
form (`contents`: the title in double quotes on the first line, the text below it) is that of the retrieval servers which search agents are
trained against, so a corpus or server made for them works here as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["Document", "Hit", "Searcher", "join_contents", "split_contents"]


@dataclass(frozen=True, slots=True)
class Document:
    """One page or passage of a corpus.

    Attributes:
        id: Unique in its corpus. Equal scores are ordered by it, ascending by code points.
        title: May be empty.
        text: The body, without the title.
    """

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """The text that is indexed: title and body, or the body alone where there is no title."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Hit:
    """A document found, with its score: higher is better, comparable within one query only."""

    document: Document
    score: float


@runtime_checkable
class Searcher(Protocol):
    """A search engine over a fixed corpus. Implementations are safe to call from several threads."""

    @property
    def fingerprint(self) -> str:
        """Names corpus and engine: where it is equal, equal queries have equal results."""
        ...

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Looks for documents.

        Args:
            queries: Any text; there is no query syntax, and a query without an indexable word finds nothing.
            k: How many hits each query may have, at least 1.

        Returns:
            One list per query, in order, best hit first, each of at most `k` hits.

        Raises:
            EnvFault: If the engine is out of reach.
            ValueError: If `k` is below 1.
        """
        ...


def join_contents(title: str, text: str) -> str:
    """Writes a document as one string: the title in double quotes, a newline, the text.

    Args:
        title: The title; its line breaks become blanks, since the first line is the title.
        text: The body.

    Returns:
        Two lines or more.
    """
    return f'"{" ".join(title.splitlines())}"\n{text}'


def split_contents(contents: str) -> tuple[str, str]:
    """Reads the one-string form of a document; the inverse of `join_contents`.

    Args:
        contents: With a quoted title on its first line, or plain text.

    Returns:
        `(title, text)`; the title is empty where the first line is not in double quotes.
    """
    first, separator, rest = contents.partition("\n")
    if separator and len(first) >= 2 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents
