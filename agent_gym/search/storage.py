"""The BM25 index as a folder: written once and whole, mapped into memory by every process that searches it.

A folder holds `meta.json` (versions, settings, sizes of the files), the postings as `.npy` arrays, the vocabulary as one sorted run of UTF-8
with offsets, which is searched by bisection so that nothing is loaded at the start, and the documents as JSON lines with offsets, of which
only those found are ever read. It is made under another name in the same parent folder and renamed when complete. A lock file beside it
(`NAME.lock`, which stays) lets one process build while others wait.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np
from numpy.typing import NDArray

from agent_gym.search.analysis import ANALYZER_VERSION
from agent_gym.search.bm25 import Fingerprint, LuceneBM25, Postings, check_settings
from agent_gym.search.types import Document

__all__ = ["FORMAT_VERSION", "build_folder", "cached_folder", "locked", "new_folder", "open_folder"]

FORMAT_VERSION = 1
_ARRAYS = ("offsets", "posting_documents", "posting_counts", "length_codes", "tie_ranks", "term_offsets", "term_rows", "document_offsets")
_FILES = ("documents.jsonl", "terms.bin", *(f"{name}.npy" for name in _ARRAYS))


def build_folder(documents: Iterable[Document], path: Path, *, k1: float, b: float) -> LuceneBM25:
    """See `LuceneBM25.build`."""
    check_settings(k1, b)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write the index to {path}: there is no folder {path.parent}")
    with locked(path):
        if path.exists():
            found = _fingerprint_in(path)
            if found is None or found != Fingerprint.of(documents, k1, b):
                raise FileExistsError(
                    f"{path} is there already and is not the index of these documents and settings; remove it or name another"
                )
        else:
            _write(documents, path, k1, b)
    return open_folder(path)


def cached_folder(documents: Iterable[Document], cache_dir: Path, *, k1: float, b: float) -> LuceneBM25:
    """See `LuceneBM25.cached`."""
    check_settings(k1, b)
    if iter(documents) is documents:
        raise TypeError("documents must be a list or another collection that can be gone through twice, got a one-time iterator")
    fingerprint = Fingerprint.of(documents, k1, b)
    path = cache_dir / f"bm25-{fingerprint[:32]}"
    if _fingerprint_in(path) != fingerprint:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with locked(path):
            if _fingerprint_in(path) != fingerprint:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)  # what a crash or another version left
                else:
                    path.unlink(missing_ok=True)
                _write(documents, path, k1, b)
    return open_folder(path)


def open_folder(path: Path) -> LuceneBM25:
    """See `LuceneBM25.open`."""
    meta = _read_meta(path)
    arrays = {name: _load(path / f"{name}.npy") for name in _ARRAYS}
    return LuceneBM25(
        MappedDocuments(path, arrays["document_offsets"]),
        _Vocabulary(path, arrays["term_offsets"], arrays["term_rows"]).row,
        arrays["offsets"],
        arrays["posting_documents"],
        arrays["posting_counts"],
        arrays["length_codes"],
        arrays["tie_ranks"],
        meta["total_length"],
        k1=meta["k1"],
        b=meta["b"],
        path=path,
        fingerprint=meta["fingerprint"],
    )


class MappedDocuments(Sequence[Document]):
    """The documents of a folder, each read and decoded when it is asked for."""

    def __init__(self, path: Path, offsets: NDArray[np.int64]) -> None:
        self._path, self._offsets = path, offsets
        self._lines = _map(path / "documents.jsonl")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        return Document(*json.loads(self._lines[int(self._offsets[number]) : int(self._offsets[number + 1])]))

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedDocuments, (self._path, np.asarray(self._offsets))


class _Vocabulary:
    """Finds the row of a term by bisection in the sorted terms."""

    def __init__(self, path: Path, offsets: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        self._path, self._offsets, self._rows = path, offsets, rows
        self._terms = _map(path / "terms.bin")

    def row(self, term: str) -> int | None:
        wanted = term.encode("utf-8", "surrogatepass")
        low, high = 0, len(self._rows)
        while low < high:
            middle = (low + high) // 2
            found = self._terms[int(self._offsets[middle]) : int(self._offsets[middle + 1])]
            if found == wanted:
                return int(self._rows[middle])
            if found < wanted:
                low = middle + 1
            else:
                high = middle
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Vocabulary, (self._path, np.asarray(self._offsets), np.asarray(self._rows))


def _write(documents: Iterable[Document], path: Path, k1: float, b: float) -> None:
    """Writes all files. The caller holds the lock."""
    with new_folder(path) as folder:
        fingerprint, postings, ends = Fingerprint(k1, b), Postings(), [0]
        with (folder / "documents.jsonl").open("wb") as lines:
            for document in documents:
                line = json.dumps([document.id, document.title, document.text]).encode("ascii") + b"\n"
                lines.write(line)
                ends.append(ends[-1] + len(line))
                fingerprint.add(document)
                postings.add(document)
        rows, *arrays, total_length = postings.finish()
        terms = sorted((term.encode("utf-8", "surrogatepass"), row) for term, row in rows.items())
        (folder / "terms.bin").write_bytes(b"".join(term for term, _ in terms))
        term_offsets = np.cumsum([0, *(len(term) for term, _ in terms)], dtype=np.int64)
        term_rows = np.array([row for _, row in terms], dtype=np.int32)
        for name, array in zip(_ARRAYS, [*arrays, term_offsets, term_rows, np.array(ends, dtype=np.int64)], strict=True):
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        meta = {
            "format": FORMAT_VERSION,
            "analyzer": ANALYZER_VERSION,
            "fingerprint": fingerprint.hexdigest(),
            "k1": float(k1),
            "b": float(b),
            "documents": len(postings.ids),
            "total_length": total_length,
            "sizes": {name: (folder / name).stat().st_size for name in _FILES},
        }
        (folder / "meta.json").write_text(json.dumps(meta, indent=1))


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, beside `path`; it becomes `path` at the end, or vanishes when something is raised. The caller holds the lock.

    Args:
        path: In a folder that is there; must not be there itself.

    Yields:
        The folder to fill.
    """
    folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield folder
        folder.chmod(0o755)
        folder.rename(path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _read_meta(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise FileNotFoundError(f"there is no index folder {path}; write one with LuceneBM25.build(documents, path)")
    try:
        meta = json.loads((path / "meta.json").read_text())
        if not isinstance(meta, dict):
            raise TypeError(f"meta.json holds {type(meta).__name__}, not an object")
        version = (meta["format"], meta["analyzer"])
        sizes = {name: (path / name).stat().st_size for name in _FILES}
        if version == (FORMAT_VERSION, ANALYZER_VERSION) and sizes == meta["sizes"]:
            for key, kind in (("fingerprint", str), ("k1", float), ("b", float), ("total_length", int)):
                if not isinstance(meta[key], kind):
                    raise TypeError(f"meta.json holds {meta[key]!r:.40} as {key}")
            return meta
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no complete index ({error!r}); remove it and build it again") from error
    if version != (FORMAT_VERSION, ANALYZER_VERSION):
        raise ValueError(
            f"the index {path} is of version {version}, this is {(FORMAT_VERSION, ANALYZER_VERSION)}; remove it and build it again"
        )
    raise ValueError(f"the index {path} is damaged: its files have other sizes than when it was written; remove it and build it again")


def _fingerprint_in(path: Path) -> str | None:
    try:
        return str(_read_meta(path)["fingerprint"])
    except (FileNotFoundError, ValueError):
        return None


def _load(path: Path) -> NDArray[Any]:
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)  # the same memory without numpy's slow class for it


def _map(path: Path) -> mmap.mmap | bytes:
    """The content of a file, read only as far as it is looked at."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a folder; waits for whoever has it, in this process or another.

    Args:
        path: In a folder that is there; need not be there itself.

    Yields:
        Nothing, for `with`.
    """
    with path.with_name(path.name + ".lock").open("a+b") as file:
        _lock(file)
        yield  # closing the file gives the lock back, also when the process dies


if sys.platform == "win32":
    import msvcrt

    def _lock(file: BinaryIO) -> None:
        file.seek(0)
        while True:
            with contextlib.suppress(OSError):  # gives up after ten seconds; then again
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                return

else:
    import fcntl

    def _lock(file: BinaryIO) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
