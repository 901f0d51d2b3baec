"""Reads corpora and opens whatever a path or an address names.

A corpus is a JSON Lines file (`.jsonl`, or `.jsonl.gz`), one page a line: `{"id", "title", "text"}`, or `{"id", "contents"}` with the title in double
quotes on the first line of the contents. Without ids the lines are numbered from 0. Other keys are left alone.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from agent_gym.search.bm25 import LuceneBM25
from agent_gym.search.http import HttpSearcher
from agent_gym.search.types import Document, Searcher, split_contents

__all__ = ["Corpus", "default_cache_dir", "open_searcher"]


class Corpus:
    """The pages of a JSON Lines file, read anew each time they are gone through, so that a large one needs no memory.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str | Path) -> None:
        """Names a file.

        Raises:
            FileNotFoundError: If it is not there.
        """
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(
                f'there is no corpus file {self.path}; wanted: JSON Lines with {{"id", "title", "text"}} or {{"id", "contents"}}'
            )

    def __iter__(self) -> Iterator[Document]:
        """Reads the pages in order.

        Raises:
            ValueError: Naming file and line, if a line is no page or an id comes twice.
        """
        lines: dict[str, int] = {}
        number = 0
        for line_number, line in _lines(self.path):
            if not line.strip():
                continue
            try:
                document = _read_line(line, number)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{self.path}:{line_number}: {error}") from error
            if document.id in lines:
                raise ValueError(f"{self.path}:{line_number}: the id {document.id!r} stands in line {lines[document.id]} already")
            lines[document.id] = line_number
            number += 1
            yield document


def open_searcher(source: str | Path, *, cache_dir: str | Path | None = None, timeout: float = 10.0) -> Searcher:
    """Opens the search engine that a path or an address names.

    Args:
        source: An address `http://...` of a `/retrieve` server, the folder of a `LuceneBM25` index, or a corpus file, which is indexed
            once and found again in the cache.
        cache_dir: Where indexes of corpus files are kept; None: `default_cache_dir()`.
        timeout: Seconds for each call of a server.

    Returns:
        The search engine.

    Raises:
        FileNotFoundError: If there is neither a file nor a folder of that name.
        ValueError: If the corpus or the index cannot be read.
    """
    if str(source).startswith(("http://", "https://")):
        return HttpSearcher(str(source), timeout=timeout)
    path = Path(source)
    if path.is_dir():
        return LuceneBM25.open(path)
    return LuceneBM25.cached(Corpus(path), default_cache_dir() if cache_dir is None else cache_dir)


def default_cache_dir() -> Path:
    """`agent-gym/search` in the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`).

    Returns:
        The folder, which need not exist.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agent-gym" / "search"


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, from 1."""
    number = 0
    try:
        with _open(path) as file:
            for number, line in enumerate(file, 1):
                yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}:{number + 1}: the compressed file is damaged or was cut off: {error}") from error


def _open(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _read_line(line: bytes, number: int) -> Document:
    try:
        page: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(page, dict):
        raise ValueError(f'wanted an object {{"id", "title", "text"}} or {{"id", "contents"}}, got {type(page).__name__}')
    name = page.get("id", number)
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise ValueError(f'"id" should be a string or a whole number, got {name!r:.100}')
    if "text" in page:
        title, text = page.get("title", ""), page["text"]
    elif isinstance(page.get("contents"), str):
        title, text = split_contents(page["contents"])
    else:
        raise ValueError(f'wanted "text" (with "title") or "contents" as a string, got the keys {sorted(page)}')
    if not isinstance(title, str) or not isinstance(text, str):
        raise ValueError(f'"title" and "text" should be strings, got {type(title).__name__} and {type(text).__name__}')
    return Document(str(name), title, text)
