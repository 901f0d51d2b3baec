"""One product of the shop: how an official record becomes what the shop shows, searches and rewards.

The rules are those of WebShop (Yao et al. 2022, arXiv 2207.01206): option names in lower case, a slash in a value shown as ` | `, a
missing price is 100 dollars, of a price range the tag shows both ends. Text of a record is untrusted: characters that no page can hold are
replaced, line breaks in a title or an option become blanks, and the marks that separate the strings of a page (`[SEP]`, `[button]` and its
kin) lose their brackets, so that a product cannot forge a page. In the official 1,000 products these repairs change nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from agent_gym.envs.webshop.json_stream import CatalogueError

__all__ = ["DEFAULT_PRICE", "NO_ATTRIBUTES", "Product", "clean_line", "is_listed", "parse_product", "search_text"]

DEFAULT_PRICE = 100.0
"""Dollars, where a record names no price."""
NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""The attributes of a product that the attribute file does not name."""

_NOT_A_PRICE = re.compile(r"[^\d.]")
_UNSHOWN = re.compile("[\x00\ud800-\udfff]")
_LINE_BREAK = re.compile(r"[\r\n\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_FORGED = re.compile(r"\[(SEP|button_?|clicked button_?)\]")


class Product:
    """A product as the shop knows it. Not to be changed.

    Attributes:
        number: Its place in the catalogue.
        asin: Its id.
        title: The name.
        description: May be empty.
        bullets: The features, one string each.
        prices: One price, or the two ends of a range; dollars.
        price_tag: The price as shown.
        category: The department, such as "beauty".
        query: The search that the record was collected by, in lower case.
        product_category: The path of categories, separated by " › ".
        options: Names with their values, in the order of the record.
        attributes: What the product is known for; the reward compares them with the goal's.
        instruction: The beginning of its synthetic goals, or None.
        instruction_attributes: The attributes that the instruction asks for.
    """

    __slots__ = (
        "_searched",
        "asin",
        "attributes",
        "bullets",
        "category",
        "controls",
        "description",
        "instruction",
        "instruction_attributes",
        "number",
        "options",
        "parts",
        "price_tag",
        "prices",
        "product_category",
        "query",
        "title",
    )

    def __init__(
        self,
        number: int,
        asin: str,
        title: str,
        description: str,
        bullets: tuple[str, ...],
        prices: tuple[float, ...],
        price_tag: str,
        category: str,
        query: str,
        product_category: str,
        options: tuple[tuple[str, tuple[str, ...]], ...],
        attributes: tuple[str, ...],
        instruction: str | None,
        instruction_attributes: tuple[str, ...],
    ) -> None:
        self.number, self.asin, self.title, self.description, self.bullets = number, asin, title, description, bullets
        self.prices, self.price_tag = prices, price_tag
        self.category, self.query, self.product_category = category, query, product_category
        self.options, self.attributes = options, attributes
        self.instruction, self.instruction_attributes = instruction, instruction_attributes
        self.parts: Any = None  # the strings of its page, kept by `pages`
        self.controls: Any = None  # the controls of its page, kept by `engine`
        self._searched: tuple[str, str, str] | None = None

    @property
    def searched(self) -> tuple[str, str, str]:
        """Title, features and description in lower case: where the reward looks for an attribute that is not listed."""
        if self._searched is None:
            self._searched = (self.title.lower(), " ".join(self.bullets).lower(), self.description.lower())
        return self._searched

    def __repr__(self) -> str:
        return f"Product({self.number}, {self.asin!r}, {self.title!r:.60})"


def is_listed(record: Any, where: str) -> bool:
    """Whether the shop lists a record: its id is neither "nan" nor longer than ten characters.

    Args:
        record: An entry of the product file.
        where: File and index of the record, for messages.

    Returns:
        True where it does.

    Raises:
        CatalogueError: If it is no object, or has no id.
    """
    if not isinstance(record, Mapping):
        raise CatalogueError(f"{where}: an object was expected, got {type(record).__name__}")
    asin = _text(record, "asin", where)
    if not asin:
        raise CatalogueError(f"{where}, field 'asin': is empty")
    return asin != "nan" and len(asin) <= 10


def parse_product(record: Mapping[str, Any], note: Any, number: int, where: str, note_where: str) -> Product:
    """Reads an official record.

    Args:
        record: An entry of `items_shuffle*.json`.
        note: The entry of the same id in `items_ins_v2*.json`, None where it has none.
        number: The product's place in the catalogue.
        where: File and index of the record, for messages.
        note_where: File and key of the note.

    Returns:
        The product, its texts cleaned.

    Raises:
        CatalogueError: Naming file, index and field, if something is missing or of the wrong kind.
    """
    features = record.get("small_description")
    if isinstance(features, str):
        features = [features]
    bullets = _texts(features, "small_description", where)
    prices, price_tag = _prices(record.get("pricing"), where)
    attributes, instruction, instruction_attributes = _read_note(note, note_where)
    return Product(
        number,
        clean_line(_text(record, "asin", where)),
        clean_line(_text(record, "name", where)),
        clean_text(_text(record, "full_description", where)),
        tuple(map(clean_text, bullets)),
        prices,
        price_tag,
        clean_line(_text(record, "category", where)),
        clean_line(_text(record, "query", where)).lower().strip(),
        clean_line(_text(record, "product_category", where)),
        _options(record.get("customization_options"), where),
        attributes,
        instruction,
        instruction_attributes,
    )


def search_text(product: Product) -> str:
    """What the shop's search engine indexes of a product: title, description, first feature and all options, in lower case.

    Args:
        product: The product.

    Returns:
        One line of text.
    """
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
    return " ".join((product.title, product.description, product.bullets[0] if product.bullets else "", options)).lower()


def clean_text(text: str) -> str:
    """Takes out what no page can show and disarms the marks that separate the strings of a page.

    Args:
        text: Of a product.

    Returns:
        Text that can be shown on a page.
    """
    if "[" in text:
        text = _FORGED.sub(r"(\1)", text)
    return text if text.isascii() and "\x00" not in text else _UNSHOWN.sub("\ufffd", text)


def clean_line(text: str) -> str:
    """The same for text that stands in one line: its line breaks become blanks.

    Args:
        text: As in `clean_text`.

    Returns:
        One line.
    """
    return clean_text(text if text.isprintable() else _LINE_BREAK.sub(" ", text))


def _text(record: Mapping[str, Any], field: str, where: str) -> str:
    value = record.get(field)
    if not isinstance(value, str):
        raise CatalogueError(f"{where}, field {field!r}: a string was expected, {_found(record, field)}")
    return value


def _found(record: Mapping[str, Any], field: str) -> str:
    return f"got {record[field]!r:.60}" if field in record else "but it is missing"


def _texts(values: Any, field: str, where: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise CatalogueError(f"{where}, field {field!r}: a list of strings was expected, got {values!r:.60}")
    return values


def _prices(pricing: Any, where: str) -> tuple[tuple[float, ...], str]:
    if not pricing and (pricing is None or isinstance(pricing, str)):
        return (DEFAULT_PRICE,), f"${DEFAULT_PRICE}"
    try:
        prices = tuple(float(Decimal(_NOT_A_PRICE.sub("", part))) for part in pricing.split("$")[1:])[:2]
        if not prices or not all(map(math.isfinite, prices)):
            raise ValueError
    except (AttributeError, ValueError, InvalidOperation):
        raise CatalogueError(f"{where}, field 'pricing': '$A', '$A to $B' or an empty string was expected, got {pricing!r:.60}") from None
    return prices, " to ".join(f"${price}" for price in prices)


def _options(given: Any, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not given and (given is None or isinstance(given, str | Mapping)):
        return ()
    if not isinstance(given, Mapping):
        raise CatalogueError(f"{where}, field 'customization_options': an object or an empty string was expected, got {given!r:.60}")
    options: dict[str, tuple[str, ...]] = {}
    for name, values in given.items():
        if values is None:
            continue
        if not isinstance(values, list) or not all(isinstance(value, Mapping) and isinstance(value.get("value"), str) for value in values):
            raise CatalogueError(
                f"{where}, field 'customization_options', option {name!r:.40}: "
                f"a list of objects with a string 'value' was expected, got {values!r:.60}"
            )
        options[clean_line(name).lower()] = tuple(clean_line(value["value"].strip().replace("/", " | ").lower()) for value in values)
    return tuple(options.items())


def _read_note(note: Any, where: str) -> tuple[tuple[str, ...], str | None, tuple[str, ...]]:
    """Attributes, instruction and the instruction's attributes out of an entry of the attribute file."""
    if note is None:
        return NO_ATTRIBUTES, None, ()
    if not isinstance(note, Mapping):
        raise CatalogueError(f"{where}: an object was expected, got {note!r:.60}")
    attributes = tuple(map(clean_line, _texts(note["attributes"], "attributes", where))) if "attributes" in note else NO_ATTRIBUTES
    instruction = note.get("instruction")
    if instruction is None:
        return attributes, None, ()
    if not isinstance(instruction, str):
        raise CatalogueError(f"{where}, field 'instruction': a string was expected, got {instruction!r:.60}")
    wanted = _texts(note.get("instruction_attributes"), "instruction_attributes", where)
    if not wanted:
        raise CatalogueError(f"{where}, field 'instruction_attributes': is empty, but an instruction needs at least one attribute")
    return attributes, clean_line(instruction), tuple(map(clean_line, wanted))
