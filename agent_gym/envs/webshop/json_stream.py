"""Large JSON files read entry by entry, each entry with its place in the file.

The official product file holds 1.18 million records in one array of five gigabytes. Reading it at once takes fifteen gigabytes of memory,
so `read_array` and `read_object` decode one entry after the other out of a window that moves over the file. Each entry comes with its
place in bytes, by which `read_at` finds it again later without the rest of the file. What is broken is reported with file, entry and byte.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from json.decoder import JSONDecodeError
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["CatalogueError", "Entry", "read_array", "read_at", "read_object"]

_decode = json.JSONDecoder().raw_decode
_BLANK = " \t\n\r"
_OF_NUMBERS = "+-.0123456789Ee"


class CatalogueError(ValueError):
    """A data file of the shop is broken. The message names the file, the entry and the field or byte."""


class Entry(NamedTuple):
    """One entry of a file.

    Attributes:
        key: The entry's place in an array, or its key in an object.
        value: What it holds.
        start: Where it begins in the file, in bytes.
        end: Where it ends.
    """

    key: int | str
    value: Any
    start: int
    end: int


def read_array(path: Path, window: int = 1 << 20) -> Iterator[Entry]:
    """Goes through the entries of a JSON array.

    Args:
        path: The file, UTF-8.
        window: Bytes that are read at a time.

    Yields:
        The entries in order.

    Raises:
        CatalogueError: If the file is not one whole array.
    """
    with _Window(path, window) as text:
        text.expect("[", "a JSON array")
        number = 0
        if text.peek() == "]":
            text.take()
        else:
            more = True
            while more:
                text.entry = f"entry {number}"
                yield Entry(number, *text.value())
                number += 1
                more = text.separator("]")
        text.end()


def read_object(path: Path, window: int = 1 << 20) -> Iterator[Entry]:
    """Goes through the entries of a JSON object. A key that comes twice comes twice.

    Args:
        path: The file, UTF-8.
        window: Bytes that are read at a time.

    Yields:
        The entries in order, with their keys.

    Raises:
        CatalogueError: If the file is not one whole object.
    """
    with _Window(path, window) as text:
        text.expect("{", "a JSON object")
        number = 0
        if text.peek() == "}":
            text.take()
        else:
            more = True
            while more:
                text.entry = f"entry {number}"
                if text.peek() != '"':
                    raise text.error("a key in double quotes was expected")
                key = str(text.value()[0])
                text.entry = f"entry {key!r}"
                text.expect(":", "a colon behind the key")
                yield Entry(key, *text.value())
                number += 1
                more = text.separator("}")
        text.end()


def read_at(data: Any, start: int, end: int, where: str) -> Any:
    """Decodes one entry again.

    Args:
        data: The file's bytes, usually mapped into memory.
        start: As `Entry.start`.
        end: As `Entry.end`.
        where: What stands there, for the message.

    Returns:
        The value.

    Raises:
        CatalogueError: If no entry stands there any more.
    """
    try:
        return json.loads(data[start:end].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CatalogueError(
            f"{where}: bytes {start} to {end} hold no whole record any more ({error}); was the file changed while in use?"
        ) from error


class _Window:
    """A stretch of a text file that moves forward, and the place where reading stands."""

    _longest = 1 << 28

    def __init__(self, path: Path, size: int) -> None:
        self.entry = ""
        self._path, self._size = path, size
        self._file = path.open("rb")
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._byte, self._read = "", 0, 0, 0
        self._ended = False
        if self.peek() == "\ufeff":
            self.take()

    def __enter__(self) -> _Window:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def error(self, what: str) -> CatalogueError:
        entry = f", {self.entry}" if self.entry else ""
        return CatalogueError(f"{self._path}{entry}, byte {self._byte}: {what}")

    def _more(self) -> bool:
        """Reads on, twice as far when the window holds an unfinished value; False at the end of the file."""
        if self._ended:
            return False
        self._text, self._at = self._text[self._at :], 0
        if len(self._text) > self._longest:
            raise self.error(f"a value of more than {self._longest} characters; is a quote or bracket missing?")
        data = self._file.read(max(self._size, len(self._text)))
        self._read += len(data)
        self._ended = not data
        try:
            self._text += self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise self.error(f"no UTF-8 text follows within the next {self._read - self._byte} bytes ({error.reason})") from error
        return not self._ended

    def _advance(self, end: int) -> None:
        passed = self._text[self._at : end]
        self._byte += len(passed) if passed.isascii() else len(passed.encode("utf-8", "surrogatepass"))
        self._at = end

    def peek(self) -> str:
        """The next character that is not blank; empty at the end of the file."""
        while True:
            at = self._at
            while at < len(self._text) and self._text[at] in _BLANK:
                at += 1
            self._advance(at)
            if at < len(self._text):
                return self._text[at]
            if not self._more():
                return ""

    def take(self) -> None:
        self._advance(self._at + 1)

    def expect(self, character: str, what: str) -> None:
        found = self.peek()
        if found != character:
            raise self.error(f"{what} was expected, found {found!r}" if found else f"{what} was expected, but the file ends here")
        self.take()

    def separator(self, closing: str) -> bool:
        """Passes the comma or the closing bracket; whether another entry follows."""
        found = self.peek()
        if not found:
            raise self.error(f"the file ends here, without its closing {closing!r}; was it copied whole?")
        if found not in (",", closing):
            raise self.error(f"',' or {closing!r} was expected, found {found!r}")
        self.take()
        return found == ","

    def value(self) -> tuple[Any, int, int]:
        """The next value with its place in bytes."""
        self.peek()
        start = self._byte
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except JSONDecodeError as error:
                if not self._ended and self._cut_off(error):
                    self._more()
                    continue
                ended = " (the file ends within it; was it copied whole?)" if self._cut_off(error) else ""
                self._advance(min(error.pos, len(self._text)))
                raise self.error(f"no valid JSON: {error.msg}{ended}") from error
            except RecursionError as error:
                raise self.error("the value is nested too deeply") from error
            except ValueError as error:  # a number of thousands of digits
                raise self.error(f"no value can be read: {error}") from error
            if self._ended or self._text[end - 1] in '"]}' or self._text[end : end + 64].lstrip(_OF_NUMBERS):
                self._advance(end)
                return value, start, self._byte
            self._more()  # a number may go on

    def _cut_off(self, error: JSONDecodeError) -> bool:
        """Whether more text may mend it: the mistake lies at the end of the window, or a string has not ended."""
        return error.pos >= len(self._text) - 16 or error.msg.startswith("Unterminated string")

    def end(self) -> None:
        self.entry = ""
        if self.peek():
            raise self.error(f"the file should end here, found {self._text[self._at]!r}")
