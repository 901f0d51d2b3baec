"""`LuceneBM25`: a BM25 index in numpy that gives Lucene's scores and Lucene's order.

Rewards rest on the order of search results, so being nearly right is not enough. What makes it exact: Lucene's analyzer (see `analysis`);
document lengths squeezed into one byte (`SmallFloat.intToByte4`); `idf = log(1 + (N - n + 0.5) / (n + 0.5))` with N counting documents that
have a term at all; the score of one term, `w - w / (1 + tf / norm)` with `w` = idf times how often the query has the term, in 32-bit steps
as Java takes them; the sum over terms in 64 bits, cut to 32 at the end; equal scores in the order of the documents' ids.

The postings are in compressed sparse row form (terms are rows). A small index is walked with plain Python lists, since numpy's cost per
call would exceed the work: an index over ten paragraphs, made anew in every episode, takes well under a millisecond. A large one is summed
with numpy. Both do the same operations on the same numbers. `LuceneBM25.build(documents, path)` also writes the index to a folder, `open(path)`
maps that folder into memory, so many processes share it (see `storage`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_gym.search.analysis import ANALYZER_VERSION, analyze
from agent_gym.search.types import Document, Hit

__all__ = ["LENGTH_TABLE", "LuceneBM25"]

_SMALL = 50_000
"""Up to so many postings an index is walked with Python lists."""
_FEW = 50_000
"""Up to so many documents `numbers` keeps the scores of the terms it was asked for; there are some hundred numbers per document."""
_KEPT = 1 << 16
"""So many terms `numbers` remembers."""
_UNKNOWN = -1


def _length_table() -> NDArray[np.int64]:
    """The 256 lengths that Lucene can tell apart: 0 to 39 exactly, then with four significant bits above 24."""
    short = list(range(24))
    for code in range(256 - 24):
        bits, shift = code & 7, (code >> 3) - 1
        short.append(24 + (bits if shift < 0 else (bits | 8) << shift))
    return np.array(short, dtype=np.int64)


LENGTH_TABLE: NDArray[np.int64] = _length_table()
"""Document length in terms, by Lucene's byte (`SmallFloat.byte4ToInt`), int64 of shape (256,); ascending."""


class LuceneBM25:
    """A BM25 index that ranks as Lucene does. Use `build`, `open` or `cached` to get one; it never changes afterwards.

    Attributes:
        k1: Saturation of repeated terms.
        b: Weight of the document's length, 0 to 1.
        path: The folder that the index is mapped from, or None for one in memory.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        rows: Mapping[str, int] | Callable[[str], int | None],
        offsets: NDArray[np.int64],
        posting_documents: NDArray[Any],
        posting_counts: NDArray[Any],
        length_codes: NDArray[np.uint8],
        tie_ranks: NDArray[np.int32],
        total_length: int,
        *,
        k1: float,
        b: float,
        path: Path | None = None,
        fingerprint: str | None = None,
    ) -> None:
        """Takes the parts of a finished index; not meant to be called by users.

        Args:
            documents: The documents, by number.
            rows: The row of a term.
            offsets: Start of each row in the postings, int64 of shape (rows + 1,).
            posting_documents: Document numbers, ascending within a row, int32 of shape (postings,).
            posting_counts: How often the document has the term, uint16 or int32 of shape (postings,).
            length_codes: Lucene's byte of each document's length, uint8 of shape (documents,).
            tie_ranks: Place of each document in the order of the ids, int32 of shape (documents,).
            total_length: Terms of all documents together.
            k1: See the class.
            b: See the class.
            path: See the class.
            fingerprint: Known already, or None to compute it when asked for.
        """
        self.k1, self.b, self.path = k1, b, path
        self._documents = documents
        self._row: Callable[[str], int | None] = rows if callable(rows) else rows.get
        self._offsets, self._posting_documents, self._posting_counts = offsets, posting_documents, posting_counts
        self._tie_ranks = tie_ranks
        self._fingerprint = fingerprint
        self._length_codes = length_codes
        self._with_terms = len(documents) - int(np.count_nonzero(length_codes == 0))
        self._inverse_norms = _inverse_norms(total_length, self._with_terms, k1, b)
        self._known_rows: dict[str, int | None] = {}
        self._known_scores: dict[tuple[int, int], NDArray[np.float32]] = {}
        self._small = len(posting_documents) <= _SMALL
        if self._small:
            sizes = offsets[1:] - offsets[:-1]
            weights = np.repeat(_idf(sizes, self._with_terms), sizes)
            scores = _term_scores(weights, posting_counts, self._inverse_norms[length_codes[posting_documents]])
            self._starts: list[int] = offsets.tolist()
            self._numbers: list[int] = posting_documents.tolist()
            self._scores: list[float] = scores.tolist()
            self._ranks: list[int] = tie_ranks.tolist()

    @classmethod
    def build(cls, documents: Iterable[Document], path: str | Path | None = None, *, k1: float = 0.9, b: float = 0.4) -> LuceneBM25:
        """Indexes documents (their title and text).

        Args:
            documents: With ids of their own; read once. In memory they are kept, with `path` they are written out one by one.
            path: A folder to write the index to and open it from; its parent must exist. It appears whole or not at all. One that is there already
                and holds the same documents and settings is opened, any other is an error.
            k1: Saturation of repeated terms, at least 0.
            b: Weight of the document's length, 0 to 1.

        Returns:
            The index.

        Raises:
            ValueError: If two documents share an id, or k1 or b is out of range.
            FileExistsError: If `path` holds something else.
        """
        check_settings(k1, b)
        if path is not None:
            from agent_gym.search.storage import build_folder

            return build_folder(documents, Path(path), k1=k1, b=b)
        kept = list(documents)
        postings = Postings()
        for document in kept:
            postings.add(document)
        return cls(kept, *postings.finish(), k1=k1, b=b)

    @classmethod
    def open(cls, path: str | Path) -> LuceneBM25:
        """Maps a folder written by `build` into memory; costs milliseconds whatever its size.

        Args:
            path: The folder.

        Returns:
            The index.

        Raises:
            FileNotFoundError: If there is no such folder.
            ValueError: If it holds no index, a damaged one, or one of another version.
        """
        from agent_gym.search.storage import open_folder

        return open_folder(Path(path))

    @classmethod
    def cached(cls, documents: Iterable[Document], cache_dir: str | Path, *, k1: float = 0.9, b: float = 0.4) -> LuceneBM25:
        """Opens the index over these documents in a cache folder, building it there first where it is missing.

        The folder's name holds a hash of documents, settings and analyzer version, so that a changed corpus gets a new index. Processes
        that come at the same time wait for the one that builds.

        Args:
            documents: Gone through twice where the index must be built, so no one-time iterator.
            cache_dir: Is made where it is missing.
            k1: As in `build`.
            b: As in `build`.

        Returns:
            The index.
        """
        from agent_gym.search.storage import cached_folder

        return cached_folder(documents, Path(cache_dir), k1=k1, b=b)

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self._documents)

    @property
    def documents(self) -> Sequence[Document]:
        """The documents by number, in the order in which they came; read from the disk one by one where the index is mapped."""
        return self._documents

    @property
    def fingerprint(self) -> str:
        """A hash of documents, settings and analyzer version."""
        if self._fingerprint is None:
            self._fingerprint = Fingerprint.of(self._documents, self.k1, self.b)
        return self._fingerprint

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Ranks the documents that share a term with the query. See `Searcher.search`."""
        if isinstance(queries, str):
            raise TypeError(f"queries must be a list of strings, got the one string {queries!r}; write [query]")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        rank = self._rank_small if self._small else self._rank_large
        documents = self._documents
        return [[Hit(documents[number], score) for number, score in rank(query, k)] for query in queries]

    def numbers(self, query: str, k: int) -> tuple[int, ...]:
        """Ranks as `search` does, and gives the numbers of the documents alone: the quick way for those who search the same index all day.

        Where the terms are, and in an index of up to 50,000 documents also what they score, is remembered; all scores are added up at once, and only
        documents that can be among the first are sorted.

        Args:
            query: Any text.
            k: How many documents, at least 1.

        Returns:
            The numbers of the documents, best first; fewer where fewer share a term with the query.

        Raises:
            ValueError: If k is below 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        terms = [(row, count) for term, count in Counter(analyze(query)).items() if (row := self._known_row(term)) is not None]
        if not terms:
            return ()
        rows = [self._posting_documents[self._offsets[row] : self._offsets[row + 1]] for row, _ in terms]
        scores = [self._kept_row_scores(row, count) for row, count in terms]
        numbers = np.concatenate(rows, dtype=np.intp)
        # Added up in 64 bits, term by term in the order of the query, and cut to 32 bits at the end.
        sums = np.bincount(numbers, np.concatenate(scores, dtype=np.float64)).astype(np.float32)
        # The k-th best of the documents with one term is no better than the k-th best of all.
        enough = [row for row in rows if len(row) >= k]
        least = np.float32(0)
        if enough:
            some = sums[min(enough, key=len)]
            least = np.partition(some, len(some) - k)[len(some) - k]
        if least > 0:
            found = np.flatnonzero(sums >= least)
        else:  # by the postings, since a score can be too small for 32 bits
            seen = np.zeros(len(sums), dtype=np.bool_)
            seen[numbers] = True
            found = np.flatnonzero(seen)
        best = sums[found]
        if len(found) > 4 * k:
            keep = best >= np.partition(best, len(best) - k)[len(best) - k]
            found, best = found[keep], best[keep]
        ranked: list[int] = found[np.lexsort((self._tie_ranks[found], -best))[:k]].tolist()
        return tuple(ranked)

    def idf(self, terms: Sequence[str]) -> list[float]:
        """How much the terms tell apart, as scores weigh them.

        Args:
            terms: As `analyze` gives them.

        Returns:
            One number for each, above 0; 0 for a term that no document has.
        """
        rows = [self._known_row(term) for term in terms]
        sizes = [0 if row is None else int(self._offsets[row + 1] - self._offsets[row]) for row in rows]
        found: list[float] = _idf(np.array(sizes, dtype=np.int64), self._with_terms).tolist()
        return [weight if size else 0.0 for weight, size in zip(found, sizes, strict=True)]

    def _known_row(self, term: str) -> int | None:
        """The row of a term; looking one up in a mapped vocabulary costs more than ranking."""
        known = self._known_rows
        row = known.get(term, _UNKNOWN)
        if row == _UNKNOWN:
            if len(known) >= _KEPT:
                known.clear()
            row = known[term] = self._row(term)
        return row

    def _kept_row_scores(self, row: int, count: int) -> NDArray[np.float32]:
        """`_row_scores`, kept in an index of few documents."""
        if len(self._documents) > _FEW:
            return self._row_scores(row, count)
        known = self._known_scores
        scores = known.get((row, count))
        if scores is None:
            if len(known) >= _KEPT:
                known.clear()
            scores = known[row, count] = self._row_scores(row, count)
        return scores

    def _terms(self, query: str) -> list[tuple[int, int]]:
        """Row and count of each term of the query that the index has, in the order of their first mention."""
        row = self._row
        terms = Counter(analyze(query))
        return [(number, count) for term, count in terms.items() if (number := row(term)) is not None]

    def _rank_small(self, query: str, k: int) -> list[tuple[int, float]]:
        sums: dict[int, float] = {}
        get, starts, numbers, scores = sums.get, self._starts, self._numbers, self._scores
        for row, count in self._terms(query):
            start, end = starts[row], starts[row + 1]
            if count == 1:
                for place in range(start, end):
                    number = numbers[place]
                    sums[number] = get(number, 0.0) + scores[place]
            else:
                for number, score in zip(numbers[start:end], self._row_scores(row, count).tolist(), strict=True):
                    sums[number] = get(number, 0.0) + score
        if not sums:
            return []
        ranks = self._ranks
        found = list(sums)
        finals = np.array(list(sums.values())).astype(np.float32).tolist()
        order = sorted(zip([-final for final in finals], [ranks[number] for number in found], found, strict=True))
        return [(number, -negative) for negative, _, number in order[:k]]

    def _rank_large(self, query: str, k: int) -> list[tuple[int, float]]:
        terms = self._terms(query)
        if not terms:
            return []
        sums = np.zeros(len(self._documents), dtype=np.float64)
        seen = np.zeros(len(self._documents), dtype=np.bool_)
        for row, count in terms:
            numbers = self._posting_documents[self._offsets[row] : self._offsets[row + 1]]
            sums[numbers] += self._row_scores(row, count)
            seen[numbers] = True
        found = np.flatnonzero(seen)
        finals = sums[found].astype(np.float32)
        if len(found) > k:
            worst = np.partition(finals, len(found) - k)[len(found) - k]
            keep = finals >= worst
            found, finals = found[keep], finals[keep]
        order = np.lexsort((self._tie_ranks[found], -finals))[:k]
        return list(zip(found[order].tolist(), finals[order].tolist(), strict=True))

    def _row_scores(self, row: int, count: int) -> NDArray[np.float32]:
        """What one term of the query, mentioned `count` times, adds to each document of its row."""
        start, end = int(self._offsets[row]), int(self._offsets[row + 1])
        weight = np.float32(count) * _idf(np.array([end - start]), self._with_terms)[0]
        inverse_norms = self._inverse_norms[self._length_codes[self._posting_documents[start:end]]]
        return _term_scores(weight, self._posting_counts[start:end], inverse_norms)


class Postings:
    """Collects the postings of documents, one document after the other, in the order of the documents."""

    _chunk = 1 << 22

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._rows = _Rows()
        self._lengths: list[int] = []
        self._sizes: list[int] = []
        self._terms: list[int] = []
        self._counts: list[int] = []
        self._done: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []

    def add(self, document: Document) -> None:
        """Takes the terms of the next document."""
        terms = analyze(document.contents)
        counts = Counter(terms)
        self.ids.append(document.id)
        self._lengths.append(len(terms))
        self._sizes.append(len(counts))
        self._terms.extend(map(self._rows.__getitem__, counts))
        self._counts.extend(counts.values())
        if len(self._terms) >= self._chunk:
            self._flush()

    def _flush(self) -> None:
        self._done.append((np.array(self._terms, dtype=np.int32), np.array(self._counts, dtype=np.int32)))
        self._terms, self._counts = [], []

    def finish(self) -> tuple[dict[str, int], NDArray[np.int64], NDArray[Any], NDArray[Any], NDArray[np.uint8], NDArray[np.int32], int]:
        """Sorts the postings by term.

        Returns:
            rows, offsets, posting documents, posting counts, length codes, tie ranks and total length, as `LuceneBM25` takes them.

        Raises:
            ValueError: If two documents share an id.
        """
        self._flush()
        ids = self.ids
        if len(set(ids)) < len(ids):
            twice = next(name for name, times in Counter(ids).items() if times > 1)
            raise ValueError(f"every document needs an id of its own, but {twice!r} stands for {Counter(ids)[twice]} of them")
        size = sum(len(terms) for terms, _ in self._done)
        offsets = np.zeros(len(self._rows) + 1, dtype=np.int64)
        for terms, _ in self._done:
            offsets[1:] += np.bincount(terms, minlength=len(self._rows))
        np.cumsum(offsets, out=offsets)
        numbers = np.repeat(np.arange(len(ids), dtype=np.int32), self._sizes)
        largest = max((int(counts.max()) for _, counts in self._done if len(counts)), default=0)
        posting_documents = np.empty(size, dtype=np.int32)
        posting_counts = np.empty(size, dtype=np.uint16 if largest < 1 << 16 else np.int32)
        # Chunk by chunk: rows are filled from the left, and a stable sort keeps the documents of a row ascending.
        filled = offsets[:-1].copy()
        begin = 0
        for terms, counts in self._done:
            order = np.argsort(terms, kind="stable")
            row_of = terms[order]
            sizes = np.bincount(row_of, minlength=len(self._rows))
            firsts = np.cumsum(sizes) - sizes
            places = np.arange(len(order)) + (filled - firsts)[row_of]
            posting_documents[places] = numbers[begin : begin + len(order)][order]
            posting_counts[places] = counts[order]
            filled += sizes
            begin += len(order)
        lengths = np.array(self._lengths, dtype=np.int64)
        codes = (np.searchsorted(LENGTH_TABLE, lengths, side="right") - 1).astype(np.uint8)
        ranks = np.empty(len(ids), dtype=np.int32)
        ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids), dtype=np.int32)
        return dict(self._rows), offsets, posting_documents, posting_counts, codes, ranks, int(lengths.sum())


class _Rows(dict[str, int]):
    """Gives every new term the next row."""

    def __missing__(self, term: str) -> int:
        row = self[term] = len(self)
        return row


def check_settings(k1: float, b: float) -> None:
    """Raises ValueError where k1 is negative or no number, or b lies outside 0 to 1."""
    if not (math.isfinite(k1) and k1 >= 0):
        raise ValueError(f"k1 must be a number of at least 0, got {k1!r}")
    if not 0 <= b <= 1:
        raise ValueError(f"b must lie between 0 and 1, got {b!r}")


class Fingerprint:
    """A hash of documents in their order, settings and analyzer version, fed with one document after the other."""

    def __init__(self, k1: float, b: float) -> None:
        self._digest = sha256(f"{ANALYZER_VERSION} {float(k1)!r} {float(b)!r}".encode())

    def add(self, document: Document) -> None:
        """Takes the next document."""
        parts = [part.encode("utf-8", "surrogatepass") for part in (document.id, document.title, document.text)]
        self._digest.update(b"".join(b"%d:%b" % (len(part), part) for part in parts))

    def hexdigest(self) -> str:
        """The hash so far, 64 hexadecimal digits."""
        return self._digest.hexdigest()

    @classmethod
    def of(cls, documents: Iterable[Document], k1: float, b: float) -> str:
        """The hash of all these documents."""
        fingerprint = cls(k1, b)
        for document in documents:
            fingerprint.add(document)
        return fingerprint.hexdigest()


def _inverse_norms(total_length: int, with_terms: int, k1: float, b: float) -> NDArray[np.float32]:
    """1 / norm of each length code, float32 of shape (256,), each step as `BM25Similarity` takes it."""
    average = np.float32(total_length / with_terms) if with_terms else np.float32(1)
    k1_, b_, one = np.float32(k1), np.float32(b), np.float32(1)
    with np.errstate(divide="ignore"):  # k1 = 0: an infinite inverse, so that counts do not matter
        table = one / (k1_ * ((one - b_) + b_ * LENGTH_TABLE.astype(np.float32) / average))
    return np.asarray(table, dtype=np.float32)


def _idf(sizes: NDArray[np.int64], with_terms: int) -> NDArray[np.float32]:
    """The inverse document frequency of terms that so many documents have, float32."""
    return np.asarray(np.log(1 + (with_terms - sizes + 0.5) / (sizes + 0.5)), dtype=np.float32)


def _term_scores(weights: NDArray[np.float32] | np.float32, counts: NDArray[Any], norms: NDArray[np.float32]) -> NDArray[np.float32]:
    """The score of one term in documents, float32: `w - w / (1 + tf / norm)`."""
    return np.asarray(weights - weights / (np.float32(1) + counts.astype(np.float32) * norms), dtype=np.float32)
