"""`TantivySearcher`: full-text search by tantivy, for corpora of millions of pages.

It builds several times faster than `LuceneBM25`, in constant memory, and opens at once; but its ranking is its own (title and body are
separate fields, its stemmer and BM25 parameters are fixed), so results of one engine cannot stand for those of the other. Documents that
score equally come in the order of their ids. It needs the extra `search`.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym.search.analysis import STOP_WORDS
from agent_gym.search.bm25 import Fingerprint
from agent_gym.search.storage import locked, new_folder
from agent_gym.search.types import Document, Hit

if TYPE_CHECKING:
    import tantivy

__all__ = ["TantivySearcher"]

_FORMAT = 1
_HEAP = 64 << 20
"""Memory of the one writer thread, in bytes. One thread, so that the same documents always make the same index."""
_WORD = re.compile(r"[^\W_]+")
_LONGEST = 40
"""Bytes of a word; tantivy leaves longer ones out of the index."""
_MAX_WORDS = 1000
"""Words of a query that are looked for."""


class TantivySearcher:
    """An index of tantivy. Use `build` or `open` to get one; safe to search from several threads.

    Attributes:
        path: The folder of the index, or None for a temporary one that goes with this object.
    """

    def __init__(self, index: tantivy.Index, fingerprint: str, path: Path | None) -> None:
        """Takes an opened index; not meant to be called by users.

        Args:
            index: Of tantivy, opened.
            fingerprint: Of the documents.
            path: See the class.
        """
        self.path = path
        self._index = index
        self._fingerprint = fingerprint
        self._searcher = index.searcher()

    @classmethod
    def build(cls, documents: Iterable[Document], path: str | Path | None = None) -> TantivySearcher:
        """Indexes documents.

        Args:
            documents: With ids of their own; read once.
            path: A folder that is not there yet, in one that is; it appears whole or not at all. None: a temporary folder.

        Returns:
            The index.

        Raises:
            ImportError: If tantivy is not installed.
            ValueError: If two documents share an id.
            FileExistsError: If `path` is there already.
        """
        _import_tantivy()
        if path is None:
            parent = tempfile.mkdtemp(prefix="agent-gym-tantivy-")
            try:
                searcher = cls.build(documents, Path(parent) / "index")
            except BaseException:
                shutil.rmtree(parent, ignore_errors=True)
                raise
            searcher.path = None
            weakref.finalize(searcher, shutil.rmtree, parent, ignore_errors=True)
            return searcher
        path = Path(path)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"cannot write the index to {path}: there is no folder {path.parent}")
        with locked(path):
            if path.exists():
                raise FileExistsError(f"{path} is there already; open it with TantivySearcher.open, remove it, or name another folder")
            with new_folder(path) as folder:
                fingerprint = _write(documents, folder)
                (folder / "agent_gym.json").write_text(json.dumps({"format": _FORMAT, "fingerprint": fingerprint}))
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> TantivySearcher:
        """Opens a folder written by `build`.

        Args:
            path: The folder.

        Returns:
            The index.

        Raises:
            ImportError: If tantivy is not installed.
            FileNotFoundError: If there is no such folder.
            ValueError: If it holds no index of this kind.
        """
        tantivy = _import_tantivy()
        path = Path(path)
        if not path.is_dir():
            raise FileNotFoundError(f"there is no index folder {path}; write one with TantivySearcher.build(documents, path)")
        try:
            meta = json.loads((path / "agent_gym.json").read_text())
            if meta["format"] != _FORMAT:
                raise ValueError(f"its format is {meta['format']!r}, this is {_FORMAT}")
            return cls(tantivy.Index.open(str(path)), str(meta["fingerprint"]), path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no tantivy index of ours ({error}); remove it and build it again") from error

    def __len__(self) -> int:
        """How many documents there are."""
        return int(self._searcher.num_docs)

    @property
    def fingerprint(self) -> str:
        """A hash of documents and engine."""
        return self._fingerprint

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Ranks the documents that have a word of the query in title or body. See `Searcher.search`."""
        if isinstance(queries, str):
            raise TypeError(f"queries must be a list of strings, got the one string {queries!r}; write [query]")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        return [self._search_one(query, k) for query in queries]

    def _search_one(self, query: str, k: int) -> list[Hit]:
        # Words alone, in lower case and quotes: signs and capital AND, OR, NOT, IN are syntax to the parser.
        words = [word.lower() for word in _WORD.findall(query)]
        words = [word for word in words if word not in STOP_WORDS and len(word.encode()) <= _LONGEST][:_MAX_WORDS]
        if not words:
            return []
        try:
            parsed = self._index.parse_query(" ".join(f'"{word}"' for word in words), ["title", "body"])
        except ValueError:  # its Unicode tables know none of these words as words
            return []
        found = self._searcher.search(parsed, limit=k).hits
        hits = [(score, self._searcher.doc(address)) for score, address in found]
        ranked = [Hit(Document(*(page.get_first(name) or "" for name in ("id", "title", "body"))), float(score)) for score, page in hits]
        return sorted(ranked, key=lambda hit: (-hit.score, hit.document.id))


def _write(documents: Iterable[Document], folder: Path) -> str:
    tantivy = _import_tantivy()
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("id", stored=True, tokenizer_name="raw")
    schema.add_text_field("title", stored=True, tokenizer_name="en_stem")
    schema.add_text_field("body", stored=True, tokenizer_name="en_stem")
    index = tantivy.Index(schema.build(), path=str(folder))
    writer = index.writer(heap_size=_HEAP, num_threads=1)
    fingerprint = Fingerprint(0, 0)
    ids: set[str] = set()
    for document in documents:
        if document.id in ids:
            raise ValueError(f"every document needs an id of its own, but {document.id!r} came twice")
        ids.add(document.id)
        fingerprint.add(document)
        name, title, text = (part.encode("utf-8", "replace").decode() for part in (document.id, document.title, document.text))
        writer.add_document(tantivy.Document(id=[name], title=[title], body=[text]))
    writer.commit()
    writer.wait_merging_threads()
    return sha256(f"tantivy {_FORMAT} {fingerprint.hexdigest()}".encode()).hexdigest()


def _import_tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise ImportError('TantivySearcher needs the package tantivy: pip install "agentr1-gym[search]"') from error
    return tantivy
