"""A strict reader of values that are no JSON: Python literals, and the braces of Gemma, whose texts stand between two tokens.

No eval, and no `ast` either: the parser of Python itself can run out of its stack on hostile text, warns about escapes, and takes time that
is not linear. Here each character is looked at once, values are nested at most 100 deep, and numbers have at most 400 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import regex

from agent_gym.tools.calls import InvalidJSON

__all__ = ["LiteralReader", "PythonReader"]

_T = TypeVar("_T")

_SPACE = regex.compile(r"[ \t\r\n]*+")
_NUMBER = regex.compile(r"[+-]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+", regex.ASCII)
_WORD = regex.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_CONSTANTS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_MOST_DIGITS = 400
_DEEPEST = 100


class LiteralReader:
    """Reads values from a text, from a place on.

    Args:
        text: the whole text.
        at: where reading begins.

    Attributes:
        at: the place of the next character.
    """

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at

    def fail(self, what: str) -> NoReturn:
        """Raise InvalidJSON with the place.

        Args:
            what: is wrong.

        Raises:
            InvalidJSON: always.
        """
        raise InvalidJSON(f"it cannot be read at character {self.at}: {what}")

    def sees(self, literal: str) -> bool:
        """Whether a literal stands next, behind white space, which is passed over.

        Args:
            literal: what is looked for.

        Returns:
            True if it does.
        """
        self.at = _SPACE.match(self.text, self.at).end()
        return self.text.startswith(literal, self.at)

    def takes(self, literal: str) -> bool:
        """Take a literal if it stands next.

        Args:
            literal: what is looked for.

        Returns:
            Whether it was taken.
        """
        if not self.sees(literal):
            return False
        self.at += len(literal)
        return True

    def expect(self, literal: str) -> None:
        """Take a literal, or fail.

        Args:
            literal: what must stand next.
        """
        if not self.takes(literal):
            self.fail("it ends too early" if self.at >= len(self.text) else f"{literal} is missing")

    def items(self, closing: str, item: Callable[[], _T], *, trailing: bool = False) -> list[_T]:
        """Read what stands between commas up to a closing, which is taken.

        Args:
            closing: ends the list.
            item: reads one.
            trailing: whether a comma may stand behind the last one.

        Returns:
            The items.
        """
        found: list[_T] = []
        if self.takes(closing):
            return found
        while True:
            found.append(item())
            if self.takes(closing):
                return found
            if not self.takes(","):
                self.fail("it ends too early" if self.at >= len(self.text) else f", or {closing} is missing")
            if trailing and self.takes(closing):
                return found

    def string(self) -> str | None:
        """Read a text, if one stands next.

        Returns:
            The text; None where none stands here.
        """
        raise NotImplementedError

    def key(self) -> str:
        """Read the key of an object.

        Returns:
            The key.
        """
        text = self.string()
        if text is None:
            self.fail("a key in quotes is missing")
        return text

    def pair(self, depth: int) -> tuple[str, Any]:
        """Read a key and its value.

        Args:
            depth: of the object around it.

        Returns:
            Both.
        """
        key = self.key()
        self.expect(":")
        return key, self.value(depth)

    def value(self, depth: int = 0) -> Any:
        """Read a value.

        Args:
            depth: how many lists and objects stand around it.

        Returns:
            Texts, numbers, booleans, None, lists and dicts.

        Raises:
            InvalidJSON: with a line that says what is wrong.
        """
        text = self.string()
        if text is not None:
            return text
        for opening, closing in (("{", "}"), ("[", "]")):
            if self.takes(opening):
                if depth >= _DEEPEST:
                    self.fail("it is nested too deeply")
                if opening == "{":
                    return self.unique(self.items(closing, lambda: self.pair(depth + 1), trailing=self.lenient()))
                return self.items(closing, lambda: self.value(depth + 1), trailing=self.lenient())
        number = _NUMBER.match(self.text, self.at)
        if number is not None:
            return self._number(number)
        word = _WORD.match(self.text, self.at)
        if word is not None and word.group() in _CONSTANTS:
            self.at = word.end()
            return _CONSTANTS[word.group()]
        self.fail("it ends too early" if self.at >= len(self.text) else "there is no value")

    def lenient(self) -> bool:
        """Return whether a comma may stand behind the last item.

        Returns:
            False; True in formats that allow it.
        """
        return False

    def unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Make a dict of pairs whose keys all differ.

        Args:
            pairs: keys and values.

        Returns:
            The dict.

        Raises:
            InvalidJSON: where two keys are the same.
        """
        made = dict(pairs)
        if len(made) != len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen:
                    raise InvalidJSON(f"the key {key[:40]!r} stands in it twice")
                seen.add(key)
        return made

    def _number(self, found: Any) -> int | float:
        text = found.group()
        if len(text) > _MOST_DIGITS:
            self.fail("the number has too many digits")
        self.at = found.end()
        after = self.text[self.at : self.at + 1]
        if after.isalnum() or after == "_":
            self.fail("this is no number")
        if not any(one in text for one in ".eE"):
            return int(text)
        value = float(text)
        if not math.isfinite(value):
            self.fail("the number is too large")
        return value


_PYTHON_STRING = regex.compile(
    r"'''(?P<a>(?:[^'\\]|\\.|'(?!''))*+)'''|\"\"\"(?P<b>(?:[^\"\\]|\\.|\"(?!\"\"))*+)\"\"\"|'(?P<c>(?:[^'\\]|\\.)*+)'|\"(?P<d>(?:[^\"\\]|\\.)*+)\"",
    regex.DOTALL,
)
_ESCAPE = regex.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<o>[0-7]{1,3})|(?P<c>.))", regex.DOTALL
)
_ESCAPED = {"\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\n": "", "/": "/"}


def _unescaped(found: Any) -> str:
    code = found["x"] or found["u"] or found["U"]
    if code is not None:
        number = int(code, 16)
        if number > 0x10FFFF:
            raise InvalidJSON(f"{found.group()} is no character")
        return chr(number)
    if found["o"] is not None:
        return chr(int(found["o"], 8))
    return str(_ESCAPED.get(found["c"], found.group()))  # Python keeps what it does not know


class PythonReader(LiteralReader):
    """Python's literals: texts in single, double or triple quotes, numbers, True, False and None (or JSON's words), lists, dicts."""

    def string(self) -> str | None:
        """Read a text; see `LiteralReader.string`."""
        if not self.sees("'") and not self.sees('"'):
            return None
        found = _PYTHON_STRING.match(self.text, self.at)
        if found is None:
            self.fail("the text has no closing quote")
        body = str(next(one for one in found.group("a", "b", "c", "d") if one is not None))
        if "\\" in body:
            text = _ESCAPE.sub(_unescaped, body)
            if "\\u" in body or "\\U" in body:
                try:
                    text = text.encode("utf-16", "surrogatepass").decode("utf-16")  # two halves, as JSON writes them
                except UnicodeDecodeError:
                    self.fail("it holds half a Unicode surrogate pair")
            body = text
        self.at = found.end()
        return body

    def lenient(self) -> bool:
        """Return True: Python allows a comma behind the last item.

        Returns:
            True.
        """
        return True
