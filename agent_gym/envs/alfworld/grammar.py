"""Reads a game's grammar: the `.twl2` file with its rules and actions, and the symbols of a text.

The file is a sequence of `grammar :: JSON block;` and `action NAME { template :: "..."; feedback :: "..."; grammar :: JSON block; }`. The JSON maps
the name of each rule to its alternatives, each a text (`rhs`) and perhaps a condition. In a text `#rule#` calls a rule, `{value}` prints a value,
`{value | query}` prints it for everything that fits the query, and `[{value | query}]` prints that as a list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "TASK_MARK",
    "Alternative",
    "Call",
    "Each",
    "GrammarFile",
    "ListOf",
    "Scanner",
    "Symbol",
    "Text",
    "Value",
    "WordingError",
    "read_file",
    "split_task",
]


class WordingError(ValueError):
    """The grammar cannot be read, or says something that is not understood."""


_FILE_TOKEN = re.compile(r'\s+|\#[^\n]*|(?P<block>"""(?s:.*?)""")|(?P<text>"[^"]*")|(?P<word>[\w/-]+|::|[{};])')
_TASK_RULE = re.compile(r'("task"\s*:\s*\[\s*\{\s*"rhs"\s*:\s*)("[^"\\]*(?:\\.[^"\\]*)*")')
TASK_MARK = "the task line"


def split_task(text: str) -> tuple[str, str]:
    """Take the task line out of a grammar.

    Args:
        text: the grammar of a game file.

    Returns:
        The grammar with a fixed line in its place, and the task line as it is printed.

    Raises:
        WordingError: there is not exactly one rule named task with a plain text.
    """
    found = _TASK_RULE.findall(text)
    if len(found) != 1:
        raise WordingError(f"its grammar should have one rule named task with one text, and has {len(found)}")
    try:
        line = json.loads(found[0][1])
    except ValueError:
        raise WordingError("the task line of its grammar is no JSON string") from None
    symbols = Scanner(line).symbols()
    if not all(isinstance(symbol, Text) for symbol in symbols):
        raise WordingError(f"the task line of its grammar should be plain text and is {line!r:.200}")
    plain = "".join(symbol.text for symbol in symbols if isinstance(symbol, Text))
    return _TASK_RULE.sub(lambda match: match[1] + json.dumps(TASK_MARK), text), plain


@dataclass(frozen=True)
class Alternative:
    """One way to print a rule: its text, and the query that has to hold (empty: none)."""

    condition: str
    text: str


@dataclass
class GrammarFile:
    """What a grammar file says: rules, and for each action its command and the text of its answer."""

    rules: dict[str, list[Alternative]]
    actions: dict[str, dict[str, str]]


def read_file(text: str) -> GrammarFile:
    """Read the outer form: `grammar :: \"\"\"JSON\"\"\";` and `action NAME { template :: "…"; feedback :: "…"; grammar :: \"\"\"JSON\"\"\"; }`.

    Args:
        text: of a `.twl2` file or of the grammar of a game.

    Returns:
        The grammar and the actions.

    Raises:
        WordingError: for text of any other form; the message says where.
    """
    words = _file_words(text)
    file = GrammarFile({}, {})
    for word in words:
        if word == "grammar":
            _add_rules(file, _field(words, '"""'), comments=False)
        elif word == "action":
            name = next(words, "")
            if next(words, "") != "{":
                raise WordingError(f"its grammar has no opening brace behind action {name:.60}")
            fields = {}
            for key in words:
                if key == "}":
                    break
                if key == "grammar":
                    _add_rules(file, _field(words, '"""'), comments=True)
                elif key in ("template", "feedback"):
                    fields[key] = _field(words, '"')
                else:
                    raise WordingError(f"action {name:.60} of its grammar has a field {key!r:.60}")
            else:
                raise WordingError(f"action {name:.60} of its grammar is never closed")
            file.actions[name.lower()] = fields
        else:
            raise WordingError(f"its grammar holds {word!r:.60} where grammar or action should stand")
    return file


def _file_words(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        match = _FILE_TOKEN.match(text, position)
        if match is None:
            raise WordingError(f"its grammar cannot be read at {text[position : position + 40]!r}")
        position = match.end()
        if match.lastgroup is not None:
            yield match.group()


def _field(words: Iterator[str], quote: str) -> str:
    marks = next(words, ""), next(words, ""), next(words, "")
    value = marks[1]
    if marks[0] != "::" or marks[2] != ";" or not value.startswith(quote) or len(value) < 2 * len(quote):
        raise WordingError(f"its grammar has a field without a value in {quote}, at {' '.join(marks)!r:.80}")
    return value[len(quote) : -len(quote)]


def _add_rules(file: GrammarFile, block: str, *, comments: bool) -> None:
    if comments:
        block = "\n".join(line for line in block.split("\n") if not line.lstrip().startswith("#"))
    try:
        rules = json.loads(block)
    except (ValueError, RecursionError):
        raise WordingError("a block of its grammar is no JSON") from None
    if not isinstance(rules, dict):
        raise WordingError("a block of its grammar is no JSON object")
    for name, alternatives in rules.items():
        if not isinstance(alternatives, list):
            raise WordingError(f"rule {name:.60} of its grammar is no list of alternatives")
        file.rules[name] = []
        for alternative in alternatives:
            text = alternative.get("rhs") if isinstance(alternative, dict) else None
            condition = alternative.get("condition", "") if isinstance(alternative, dict) else None
            if not isinstance(text, str) or not isinstance(condition, str):
                raise WordingError(f"rule {name:.60} of its grammar has an alternative without a text as rhs")
            file.rules[name].append(Alternative(condition, text))


# ------------------------------------------------------------------------------------------------------------- the form of a text


@dataclass(frozen=True)
class Text:
    """Plain text."""

    text: str


@dataclass(frozen=True)
class Call:
    """A rule that is printed in this place."""

    rule: str


@dataclass(frozen=True)
class Value:
    """An expression whose value is printed."""

    expression: str


@dataclass(frozen=True)
class Each:
    """A call or value that is printed for everything that fits a query, one behind the other; without a query once."""

    body: Call | Value
    query: str | None


@dataclass(frozen=True)
class ListOf:
    """The same as a list: with the rules list_separator and list_last_separator between, or list_empty alone."""

    each: Each


Symbol: TypeAlias = Text | Call | Value | Each | ListOf

_INDENT = re.compile(r"(?://.*|\s*)\n?")
_TABS = re.compile(r"\t+")
_LITERAL = re.compile(r'[^;|"<>\[\]#{}]*')
_RULE_NAME = re.compile(r"[\w()/!<>\-\s,.]+")
_EXPRESSION = re.compile(r"[^|\[\]{}\n<>]+")
_BAR = re.compile(r"\s*\|\s*")
_QUERY = re.compile(r"[^;|{}\n\[\]#]+")


class Scanner:
    """Reads the symbols of a text as the original's parser does: it stops, without a word, where no symbol can begin.

    Between symbols tabs are passed over, and so are white space and `//` comments at the beginning of a line. (Hence an answer that begins with
    a newline is printed without it.)

    Args:
        text: to read, from its beginning.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def symbols(self) -> list[Symbol]:
        """The symbols from here to the end, or to where none can begin.

        Returns:
            The symbols in order; empty where none can begin.
        """
        found: list[Symbol] = []
        while True:
            start = self.position
            found.append(self._list() or self._each() or self._call() or self._plain())
            if self.position == start:
                return found

    def _skip(self) -> None:
        while True:
            start = self.position
            if start == 0 or self.text[start - 1] == "\n":
                self._take(_INDENT)
            self._take(_TABS)
            if self.position == start:
                return

    def _take(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match.group()

    def _mark(self, mark: str) -> bool:
        self._skip()
        if not self.text.startswith(mark, self.position):
            return False
        self.position += len(mark)
        return True

    def _plain(self) -> Text:
        self._skip()
        start = self.position
        if self._mark('"'):
            quoted = self._take(_LITERAL) or ""
            if self._mark('"'):
                return Text(quoted)
            self.position = start
        return Text(self._take(_LITERAL) or "")

    def _call(self) -> Call | None:
        start = self.position
        if self._mark("#"):
            self._skip()
            name = self._take(_RULE_NAME)
            if name and self._mark("#"):
                return Call(name)
        self.position = start
        return None

    def _value(self) -> Value | None:
        self._skip()
        expression = self._take(_EXPRESSION)
        return None if expression is None else Value(expression)

    def _each(self) -> Each | None:
        start = self.position
        if self._mark("{"):
            body = self._call() or self._value()
            if body is not None:
                before_bar = self.position
                query = None
                if self._take(_BAR) is not None:
                    self._skip()
                    query = self._take(_QUERY)
                    if query is None:
                        self.position = before_bar
                if self._mark("}"):
                    return Each(body, query)
        self.position = start
        return None

    def _list(self) -> ListOf | None:
        start = self.position
        if self._mark("["):
            self._skip()
            each = self._each()
            if each is not None and self._mark("]"):
                return ListOf(each)
        self.position = start
        return None
