"""The text of a turn without running the chat template again.

Rendering one short turn through a chat template costs as much as encoding it. Yet for nearly every template the turn is fixed text with
the contents in between: `prefix + content + between + content + suffix`. That is found out here, not assumed:

1. The template is run once over *watched* contents: strings that note every question the template asks of them (`startswith`, `in`,
   `strip`, truth) with the answer, and every use beyond that.
2. If it only asked questions and printed each content once, in order and unchanged, the fixed text is kept, and the questions become
   guards: a later content may use the kept text only if it gives the same answers.
3. The result is held against the template itself on contents that begin and end with blanks, line breaks, quotes and markup, that are short
   and long, and that hold each string constant of the template: what it could compare a content with, by whatever way. One difference,
   and the template is run every time, as if this module were not there.

Own code, since no library does it, and exact token steps at the price of one encoding are what the project is for.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_gym._template import Template

__all__ = ["Skeleton", "known_skeleton", "make_skeleton"]

Question = tuple[str, tuple[Any, ...], Any]
Printer = Callable[[Sequence[dict[str, Any]]], str]

_PREDICATES = ("startswith", "endswith", "isdigit", "isspace", "isalpha", "isalnum", "isnumeric", "isupper", "islower")
_CHANGES = ("strip", "lstrip", "rstrip", "replace", "lower", "upper", "title", "capitalize", "removeprefix", "removesuffix")
_SPLITS = ("split", "rsplit", "splitlines")
_OPAQUE = ("find", "rfind", "index", "rindex", "count", "partition", "rpartition", "join", "format", "encode", "zfill", "center", "swapcase",
           "casefold", "expandtabs", "translate", "ljust", "rjust")  # fmt: skip


class _Watched(str):
    """A content that notes what the template asks of it."""

    questions: list[Question]
    whole: bool
    spoiled: list[str]

    @classmethod
    def of(cls, text: str) -> _Watched:
        content = cls(text)
        content.questions, content.whole, content.spoiled = [], True, []
        return content

    def _derived(self, text: str) -> _Watched:
        content = _Watched(text)
        content.questions, content.whole, content.spoiled = self.questions, False, self.spoiled
        return content

    def _ask(self, name: str, args: tuple[Any, ...], answer: Any) -> Any:
        if not self.whole or not all(isinstance(arg, (str, int, tuple, type(None))) for arg in args):
            self.spoiled.append(name)
        self.questions.append((name, args, answer))
        return answer

    def __str__(self) -> str:
        return self

    def __add__(self, other: Any) -> Any:
        return self._derived(str.__add__(self, other))

    def __radd__(self, other: Any) -> Any:
        return self._derived(str.__add__(other, self))

    def __contains__(self, part: object) -> bool:
        return bool(self._ask("__contains__", (part,), str.__contains__(self, part)))  # type: ignore[operator]  # a str, or it raises as str does

    def __len__(self) -> int:
        self._ask("__bool__", (), str.__len__(self) > 0)
        return str.__len__(self)

    def __eq__(self, other: object) -> bool:
        return bool(self._ask("__eq__", (other,), str.__eq__(self, other)))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __getitem__(self, key: Any) -> str:
        self.spoiled.append("__getitem__")
        return str.__getitem__(self, key)

    def __iter__(self) -> Any:
        self.spoiled.append("__iter__")
        return str.__iter__(self)

    def __mod__(self, other: Any) -> str:
        self.spoiled.append("__mod__")
        return str.__mod__(self, other)


def _predicate(name: str) -> Callable[..., Any]:
    def ask(self: _Watched, *args: Any) -> Any:
        return self._ask(name, args, getattr(str, name)(self, *args))

    return ask


def _change(name: str) -> Callable[..., Any]:
    def ask(self: _Watched, *args: Any) -> Any:
        answer = getattr(str, name)(self, *args)
        self._ask(name, args, _SAME)
        if str.__ne__(answer, self):
            self.spoiled.append(name)
            return answer
        return self

    return ask


def _split(name: str) -> Callable[..., Any]:
    def ask(self: _Watched, *args: Any) -> Any:
        answer = getattr(str, name)(self, *args)
        self._ask(name, args, _ONE)
        if len(answer) != 1 or str.__ne__(answer[0], self):
            self.spoiled.append(name)
            return answer
        return [self]

    return ask


def _opaque(name: str) -> Callable[..., Any]:
    def use(self: _Watched, *args: Any) -> Any:
        self.spoiled.append(name)
        return getattr(str, name)(self, *args)

    return use


_SAME, _ONE = object(), object()  # the answers "unchanged" and "a list of itself alone"

for _names, _make in ((_PREDICATES, _predicate), (_CHANGES, _change), (_SPLITS, _split), (_OPAQUE, _opaque)):
    for _name in _names:
        setattr(_Watched, _name, _make(_name))


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The fixed text of a turn and the conditions under which it holds.

    Attributes:
        pieces: the text before, between and behind the contents; one more than there are contents.
        guards: for each content, the questions that must be answered alike.
    """

    pieces: tuple[str, ...]
    guards: tuple[tuple[Question, ...], ...]

    def fill(self, contents: Sequence[str]) -> str | None:
        """Print the turn.

        Args:
            contents: one string per message.

        Returns:
            The text, or None where a guard does not hold and the template itself must print it.
        """
        parts = [self.pieces[0]]
        for content, guards, behind in zip(contents, self.guards, self.pieces[1:], strict=True):
            for name, args, answer in guards:
                if name == "__bool__":
                    if bool(content) is not answer:
                        return None
                    continue
                got = getattr(content, name)(*args)
                if (got != content) if answer is _SAME else (got != [content]) if answer is _ONE else (got != answer):
                    return None
            parts.append(content)
            parts.append(behind)
        return "".join(parts)


_TRIALS = (
    "A plain answer.",
    "  leading",
    "trailing \n",
    "\n\nblank lines\n\n",
    "quotes \"and\" 'marks'",
    "{{ x }} {% y %}",
    "<b>&amp;</b> [1]",
    "0",
    "12.5",
    "True",
    "AAA",
    "zzz",
    "é 漢字 🙂",
    "http://example.org/a",
    "word " * 40,
    "word " * 400,
    "a" * 300,
    "line\n" * 30,
    "b" * 3000,
    "word and more " * 9000,
)
_KNOWN: OrderedDict[Any, Skeleton | None] = OrderedDict()  # by template and roles: environments of one process ask for the same ones
_MOST_KNOWN = 256


def known_skeleton(roles: tuple[str, ...], template: Template, hostile: re.Pattern[str]) -> Skeleton | None:
    """Return the skeleton of a turn, found once per process.

    Args:
        roles: of the messages, in order.
        template: prints them.
        hostile: what never comes into a skeleton's contents.

    Returns:
        The skeleton, or None where the template does more with a content than print it.
    """
    key = (template.key, roles, hostile.pattern)
    if key not in _KNOWN:
        constants = [one for one in template.constants() if not hostile.search(one)]
        trials = [*_TRIALS, *(form.format(one) for one in constants for form in ("{}", "{} behind", "before {}", "before {} behind"))]
        _KNOWN[key] = make_skeleton(roles, template.print_turn, template.print_watched_turn, trials)
        while len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return _KNOWN[key]


def make_skeleton(roles: tuple[str, ...], print_turn: Printer, watch_turn: Printer, trials: Sequence[str] = _TRIALS) -> Skeleton | None:
    """Find the fixed text of a turn of these roles.

    Args:
        roles: of the messages, in order.
        print_turn: prints a turn through the tokenizer's public method; the truth.
        watch_turn: prints a turn of watched contents.
        trials: contents on which the result is held against the template.

    Returns:
        The skeleton, or None where the template does more with a content than print it.
    """
    contents = [_Watched.of(f"Wq{index}contentzX") for index in range(len(roles))]
    try:
        printed = str.__str__(watch_turn([{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]))
    except Exception:  # noqa: BLE001  # a template that cannot be watched is run as it is
        return None
    if any(content.spoiled for content in contents):
        return None
    pieces: list[str] = []
    rest = printed
    for content in contents:
        plain = str.__str__(content)
        if rest.count(plain) != 1:
            return None
        before, rest = rest.split(plain)
        pieces.append(before)
    skeleton = Skeleton((*pieces, rest), tuple(tuple(dict.fromkeys(content.questions)) for content in contents))

    def agrees(trial: Sequence[str]) -> bool:
        filled = skeleton.fill(trial)
        return filled is None or filled == print_turn(
            [{"role": role, "content": content} for role, content in zip(roles, trial, strict=True)]
        )

    for number, text in enumerate(trials):
        alone = ["plain", *[f"plain {index}" for index in range(1, len(roles))]]
        alone[number % len(roles)] = text
        if not agrees([text] * len(roles)) or not agrees(alone):
            return None
    return skeleton
