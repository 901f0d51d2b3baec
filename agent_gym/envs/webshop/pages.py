"""The pages of the shop: what stands on each, and how it reads as text, as rich text and as HTML.

A page is a list of parts in the order of the screen: a string with its kind (plain text, a button, a product's link, an option, a chosen
one). Every form of the page is made from this one list, so they cannot disagree:

- `text`: the strings joined by ` [SEP] `;
- `text_rich`: one string a line, controls marked by `[button] ... [button_]`;
- `html`: one element per string, without anything between them, so that a reader of the document gets the same list back.

The strings are those of the original's pages (princeton-nlp/WebShop), character by character, its misspelling included.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from agent_gym.envs.webshop.product import Product

__all__ = [
    "BACK",
    "BUY",
    "CHOSEN",
    "NEXT",
    "OPTION",
    "PREVIOUS",
    "PRODUCT",
    "PUSH",
    "SEARCH",
    "SUB_PAGES",
    "TEXT",
    "VISITED",
    "Part",
    "as_html",
    "as_rich_text",
    "as_text",
    "clickable_names",
    "done_page",
    "item_page",
    "results_page",
    "search_page",
    "sub_page",
]

Part = tuple[str, str]
"""Kind and string."""

TEXT, PUSH, PRODUCT, VISITED, OPTION, CHOSEN = "text", "button", "product", "visited", "option", "chosen"
"""The kinds of parts; all but the first can be clicked."""

SEARCH, BACK, PREVIOUS, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
"""The buttons of the shop."""
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
"""The pages behind a product's page, by their buttons."""

_BACK_AND_PREVIOUS: tuple[Part, ...] = ((PUSH, BACK), (PUSH, PREVIOUS))
_STYLE = (
    "body{font-family:sans-serif;margin:2em}p,.option,.product{margin:.3em 0;white-space:pre-wrap}"
    "[aria-pressed=true],.visited{font-weight:bold}"
)


def search_page(instruction: str | None) -> list[Part]:
    """The page with the search bar.

    Args:
        instruction: As in `results_page`.

    Returns:
        The strings of the page in order, each with its kind.
    """
    parts: list[Part] = [(TEXT, "WebShop")]
    if instruction is not None:
        parts += (TEXT, "Instruction: "), (TEXT, instruction)
    parts.append((PUSH, SEARCH))
    return parts


def results_page(
    instruction: str | None, products: Iterable[Product], visited: frozenset[int], *, page: int, total: int, has_next: bool
) -> list[Part]:
    """One page of what a search has found.

    Args:
        instruction: What is wanted, or None to leave it out.
        products: Those of this page.
        visited: The numbers of the products that were looked at.
        page: From 1.
        total: How many products were found.
        has_next: Whether the button to the next page is there.

    Returns:
        The strings of the page in order, each with its kind.
    """
    parts = _head(instruction)
    parts += (PUSH, BACK), (TEXT, f"Page {page} (Total results: {total})")
    if page > 1:
        parts.append((PUSH, PREVIOUS))
    if has_next:
        parts.append((PUSH, NEXT))
    for product in products:
        parts.append((VISITED if product.number in visited else PRODUCT, product.asin))
        _add(parts, product.title)
        parts.append((TEXT, product.price_tag))
    return parts


def item_page(instruction: str | None, product: Product, chosen: str, *, show_attributes: bool) -> list[Part]:
    """A product's page.

    Args:
        instruction: As in `results_page`.
        product: The product.
        chosen: The page's address: a value that stands in it in double quotes counts as chosen, as in the original.
        show_attributes: Whether the button to the attributes is there.

    Returns:
        The strings of the page in order, each with its kind.
    """
    kept = product.parts
    if kept is None:
        options: list[Part] = []
        for name, values in product.options:
            _add(options, name)
            for value in values:
                if value:
                    options.append((OPTION, value))
        rest: list[Part] = []
        _add(rest, product.title)
        rest += (TEXT, f"Price: {product.price_tag}"), (TEXT, "Rating: N.A.")
        kept = product.parts = (options, rest)
    options, rest = kept
    parts = _head(instruction)
    parts += _BACK_AND_PREVIOUS
    if '"' in chosen:
        parts += [(CHOSEN, text) if kind == OPTION and f'"{text}"' in chosen else (kind, text) for kind, text in options]
    else:
        parts += options
    parts += rest
    parts += [(PUSH, name) for name in (SUB_PAGES if show_attributes else SUB_PAGES[:3])]
    parts.append((PUSH, BUY))
    return parts


def sub_page(instruction: str | None, product: Product, name: str) -> list[Part]:
    """A page behind a product's page, by the name of its button. There are no reviews in the data.

    Args:
        instruction: As in `results_page`.
        product: The product.
        name: Of the button: "Description", "Features", "Reviews" or "Attributes".

    Returns:
        The strings of the page in order, each with its kind.
    """
    parts = _head(instruction)
    parts += _BACK_AND_PREVIOUS
    if name == "Description":
        _add(parts, product.description)
    elif name == "Features":
        for bullet in product.bullets:
            _add(parts, f" {bullet}")
    elif name == "Attributes":
        for attribute in product.attributes:
            _add(parts, f" {attribute}")
        for text in (product.category, product.query, product.product_category):
            _add(parts, text)
    return parts


def done_page(asin: str, chosen: Mapping[str, str], score: float | None) -> list[Part]:
    """The last page. The original prints the score on it; None leaves it out.

    Args:
        asin: Of the product that was bought.
        chosen: The option values that were chosen, by name.
        score: From 0 to 1.

    Returns:
        The strings of the page in order, each with its kind.
    """
    options = json.dumps(dict(chosen), sort_keys=True)
    for character in "<>&'":
        options = options.replace(character, f"\\u{ord(character):04x}")
    strings = ["Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)", "Purchased"]
    strings += ["asin", asin, "options", options, "attrs", "None", "category", "None", "query", "None", "product category", "None"]
    strings += [
        "Target",
        "asin",
        "options",
        "attrs",
        "price upper",
        "instuction text",
        "category",
        "product category",
        "query",
        "Goal ",
        "None",
    ]
    if score is not None:
        strings += ["Reward", "Your score (min 0.0, max 1.0)", str(score), "Reward Details ", "None"]
    return [(TEXT, text) for text in strings]


def as_text(parts: Sequence[Part]) -> str:
    """The strings of a page, stripped and joined by ` [SEP] `.

    Args:
        parts: The page.

    Returns:
        One line.
    """
    return " [SEP] ".join([text.strip() for _, text in parts])


def as_rich_text(parts: Sequence[Part]) -> str:
    """The strings of a page as lines, controls marked; above them what was chosen, the last on the page first.

    Args:
        parts: The page.

    Returns:
        Several lines.
    """
    lines = []
    clicked = []
    for kind, text in parts:
        if kind == TEXT:
            lines.append(text)
        elif kind == PUSH:
            lines.append(f"[button] {text} [button_]")
        elif kind == OPTION:
            lines.append(f"  [button] {text} [button_]")
        elif kind == CHOSEN:
            lines.append(f"  [clicked button] {text} [clicked button_]")
            clicked.append(f"You have clicked {text}.")
        elif kind == PRODUCT:
            lines.append(f"\n[button] {text} [button_]")
        else:
            lines.append(f"\n[clicked button] {text} [clicked button_]")
    return "\n".join([*reversed(clicked), *lines, ""])


def as_html(parts: Sequence[Part], *, has_search_bar: bool, target: str = "") -> str:
    """A page as an HTML document: no script, no link, no image, nothing from elsewhere; one form, sent by GET.

    Every string is the text of one element of the body, in order, its class the kind of the part; the body has no other text. A control
    sends `press=N`, its place among the controls of the page (see `Session.press`); the search bar sends `search=WORDS`.

    Args:
        parts: The page.
        has_search_bar: Whether it has the input for a search.
        target: Where the form goes; empty for the address of the page itself.

    Returns:
        The document.
    """
    elements = []
    press = 0
    for kind, text in parts:
        shown = escape(text).replace("\r", "&#13;")
        if kind == TEXT:
            elements.append(f'<p class="text">{shown}</p>')
            continue
        if kind == PUSH and text == SEARCH and has_search_bar:
            elements.append('<input id="search_input" name="search" type="text" autocomplete="off">')
            elements.append(f'<button class="button">{shown}</button>')
        else:
            pressed = f' aria-pressed="{"true" if kind == CHOSEN else "false"}"' if kind in (OPTION, CHOSEN) else ""
            elements.append(f'<button class="{kind}" name="press" value="{press}"{pressed}>{shown}</button>')
        press += 1
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>WebShop</title><style>{_STYLE}</style></head>'
        f'<body><form method="get" action="{escape(target)}">{"".join(elements)}</form></body></html>'
    )


def clickable_names(parts: Sequence[Part]) -> list[str]:
    """What can be clicked, as it is named in an action: buttons and products in the order of the page, then the options; each once.

    Args:
        parts: The page.

    Returns:
        Names; those of buttons and products in lower case.
    """
    names = {text.lower(): None for kind, text in parts if kind in (PUSH, PRODUCT, VISITED)}
    names.update({text: None for kind, text in parts if kind in (OPTION, CHOSEN)})
    return list(names)


def _head(instruction: str | None) -> list[Part]:
    return [] if instruction is None else [(TEXT, "Instruction:"), (TEXT, instruction)]


def _add(parts: list[Part], text: str) -> None:
    """Adds a string as a browser would show it: an empty one is none, blanks with a line break are none, other blanks are one blank."""
    if text and not text.isspace():
        parts.append((TEXT, text))
    elif text and "\n" not in text:
        parts.append((TEXT, " "))
