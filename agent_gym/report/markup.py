"""HTML that is safe by construction: text is escaped wherever it enters, and only what `tag` itself made counts as markup.

A transcript holds whatever a web page or a model wrote. `tag` and `join` escape every plain string; the sole way past them is a `Markup`, which only
this module and the chart code make from constants. Characters that would change how the rest of the page reads (control characters, bidirectional
overrides) are shown by name.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Markup", "attributes", "escape", "join", "json_script", "tag", "visible"]

_VOID = frozenset({"meta", "link", "br", "hr", "img", "input", "col"})
_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]")


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def _name(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else f"\u27e8U+{code:04X}\u27e9"


def visible(text: str) -> str:
    """Return a text with the characters named that would change how what stands around it is shown: in a page or in a terminal.

    Args:
        text: any text.

    Returns:
        The text; line breaks and tabs stay.
    """
    return _INVISIBLE.sub(_name, text.replace("\r\n", "\n").replace("\r", "\u240d"))


def escape(value: Any) -> Markup:
    """Return a value as HTML text.

    Args:
        value: a `Markup` stays as it is; anything else is turned into a string and escaped.

    Returns:
        The markup; it holds no character that begins a tag, an attribute or an entity.
    """
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(visible(str(value)), quote=True))


def join(parts: Iterable[Any]) -> Markup:
    """Return the parts one after the other, each escaped unless it is markup; None is left out.

    Args:
        parts: strings, markup, or None.

    Returns:
        The markup.
    """
    return Markup("".join(escape(part) for part in parts if part is not None))


def attributes(values: Mapping[str, Any]) -> Markup:
    """Return attributes as they stand inside a tag.

    Args:
        values: `class_` and the like lose the underscore at their end, others become hyphens; None and False are left out, True is an
            attribute without a value.

    Returns:
        The attributes, each with a blank before it.
    """
    parts = []
    for key, value in values.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        parts.append(f" {name}" if value is True else f' {name}="{escape(value)}"')
    return Markup("".join(parts))


def tag(name: str, /, *children: Any, **attrs: Any) -> Markup:
    """Return an element.

    Args:
        name: of the element; a constant, never text from outside.
        children: escaped unless they are markup; None is left out.
        attrs: see `attributes`.

    Returns:
        The markup.
    """
    opening = f"<{name}{attributes(attrs)}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(children)}</{name}>")


def json_script(element_id: str, value: Any) -> Markup:
    """Return a block of data for the page's script.

    Args:
        element_id: a constant.
        value: plain values.

    Returns:
        A `<script type="application/json">` whose content holds none of `<`, `>`, `&`, so nothing inside can end it or begin a comment.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{escape(element_id)}">{text}</script>')
