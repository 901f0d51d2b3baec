"""Reads a page's HTML as a browser front end does: the strings of the body with their elements' classes, and the controls.

Imports nothing of agent_gym.
"""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any


class PageReader(HTMLParser):
    """Collects what a page shows.

    Attributes:
        strings: (class of the element, its text, its attributes) of every string of the body.
        elements: The names of all elements.
        has_search_bar: Whether there is an input for a search.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.strings: list[tuple[str, str, dict[str, Any]]] = []
        self.elements: list[str] = []
        self.has_search_bar = False
        self._open: list[tuple[str, dict[str, Any]]] = []
        self._text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._flush()
        self.elements.append(tag)
        given = dict(attrs)
        if tag == "input":
            self.has_search_bar = self.has_search_bar or (given.get("name") == "search" and "disabled" not in given)
        elif tag != "meta":
            self._open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        self._flush()
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def _flush(self) -> None:
        if self._text and not any(tag == "head" for tag, _ in self._open):
            attributes = self._open[-1][1]
            self.strings.append((attributes.get("class", ""), self._text, attributes))
        self._text = ""

    @property
    def controls(self) -> list[str]:
        """The strings of the controls, in order."""
        return [text for kind, text, _ in self.strings if kind != "text"]

    @property
    def clickables(self) -> list[str]:
        """The names of what can be clicked: buttons and products, then options, each once."""
        first = [text.lower() for kind, text, _ in self.strings if kind in ("button", "product", "visited")]
        return list(dict.fromkeys(first + [text for kind, text, _ in self.strings if kind in ("option", "chosen")]))

    @property
    def text(self) -> str:
        """The observation of the mode "text"."""
        return " [SEP] ".join(text.strip() for _, text, _ in self.strings)

    @property
    def rich_text(self) -> str:
        """The observation of the mode "text_rich"."""
        forms = {
            "text": "{}",
            "button": "[button] {} [button_]",
            "option": "  [button] {} [button_]",
            "chosen": "  [clicked button] {} [clicked button_]",
            "product": "\n[button] {} [button_]",
            "visited": "\n[clicked button] {} [clicked button_]",
        }
        page = ""
        for kind, text, _ in self.strings:
            page = (f"You have clicked {text}.\n" if kind == "chosen" else "") + page + forms[kind].format(text) + "\n"
        return page
