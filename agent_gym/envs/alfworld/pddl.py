"""Reads the brackets of PDDL: a text becomes nested tuples of lower-case words.

PDDL (McDermott et al., 1998) is written as S-expressions with comments from a semicolon to the end of the line, and knows no upper case. The reader
keeps its own stack, so no depth of brackets can exhaust Python's, and what is too deep to be a game is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

__all__ = ["Expression", "PDDLError", "parse_pddl", "typed_list"]

Expression: TypeAlias = "str | tuple[Expression, ...]"

_MAX_DEPTH = 100
_COMMENT = re.compile(r";[^\n]*")
_TOKEN = re.compile(r"[()]|\??[^\s()?]+|\?")


class PDDLError(ValueError):
    """The text is not one PDDL expression."""


def parse_pddl(text: str) -> tuple[Expression, ...]:
    """Read the one expression that a text holds.

    Args:
        text: a domain or a problem, with comments.

    Returns:
        Its brackets as tuples, its words in lower case.

    Raises:
        PDDLError: brackets that do not match, more than one expression, nesting beyond 100, letters outside ASCII.
    """
    code = _COMMENT.sub("", text)
    if not code.isascii():
        raise PDDLError("it holds a letter outside ASCII and outside a comment")
    open_brackets: list[list[Expression]] = [[]]
    for token in _TOKEN.findall(code.lower()):
        if token == "(":
            open_brackets.append([])
            if len(open_brackets) > _MAX_DEPTH:
                raise PDDLError(f"its brackets are nested more than {_MAX_DEPTH} deep")
        elif token == ")":
            closed = tuple(open_brackets.pop())
            if not open_brackets:
                raise PDDLError("it closes a bracket that it never opened")
            open_brackets[-1].append(closed)
        else:
            open_brackets[-1].append(token)
    if len(open_brackets) > 1:
        raise PDDLError(f"{len(open_brackets) - 1} of its brackets are never closed")
    expressions = open_brackets[0]
    if len(expressions) != 1 or isinstance(expressions[0], str):
        raise PDDLError(f"it should be one expression in brackets and is {len(expressions)} expressions or words")
    return expressions[0]


def typed_list(words: tuple[Expression, ...]) -> Iterator[tuple[str, str]]:
    """Read `a b - kind c - other`, the form of PDDL's lists of objects and parameters.

    Args:
        words: the words of the list.

    Yields:
        Each name with its type, in the order of the text; names behind the last type have the type "object".

    Raises:
        PDDLError: a bracket in the list, or a dash without a type.
    """
    waiting: list[str] = []
    rest = iter(words)
    for word in rest:
        if not isinstance(word, str):
            raise PDDLError("a list of names holds a bracket")
        if word != "-":
            waiting.append(word)
            continue
        kind = next(rest, None)
        if not isinstance(kind, str):
            raise PDDLError("a list of names has a dash without a type behind it")
        yield from ((name, kind) for name in waiting)
        waiting = []
    yield from ((name, "object") for name in waiting)
