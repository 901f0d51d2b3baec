"""One product of the generated catalogue: its record, its note and what people ask for, in the schema of the three official files.

`start_product` draws what a product is, `add_texts` what is said of it, `finish_product` writes it down and draws its goals. Before that `oddities` may
change anything, and `large` puts in other texts. A goal never asks for what its product has not got, whatever happened before: goals are drawn from the finished product.

Only `random.Random.random` is drawn from, the one method whose sequence Python promises to keep, so the bytes are the same in every process and
version.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from agent_gym.envs.webshop.generated import words
from agent_gym.envs.webshop.generated.words import Kind

__all__ = ["Draw", "Making", "Record", "Roles", "add_texts", "code_of", "finish_product", "product_record", "start_product"]

T = TypeVar("T")
Roles = tuple[list[str], list[str], list[str]]
"""Attributes by their place in a sentence: before the noun, behind "with", behind "for"."""

_STRIDE = 29  # neighbours in the catalogue are of different kinds; prime to the number of kinds


class Record(NamedTuple):
    """A product as the three official files have it.

    Attributes:
        product: its entry in items_shuffle*.json.
        note: its entry in items_ins_v2*.json: `attributes` and, where it has goals, `instruction` and `instruction_attributes`.
        asked: its entries in items_human_ins.json, without worker ids; often none.
    """

    product: dict[str, Any]
    note: dict[str, Any]
    asked: list[dict[str, Any]]


class Draw:
    """A source of randomness whose sequence never changes.

    Args:
        key: what it is for; equal keys give equal draws.
    """

    def __init__(self, key: str) -> None:
        self.random = random.Random(key).random  # text seeds go through SHA-512, not through hash()

    def below(self, stop: int) -> int:
        """Return a whole number from 0 to `stop - 1`.

        Args:
            stop: At least 1.

        Returns:
            The number.
        """
        return int(self.random() * stop)

    def between(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included.

        Args:
            low: The smallest number.
            high: The largest.

        Returns:
            The number.
        """
        return low + self.below(high - low + 1)

    def chance(self, share: float) -> bool:
        """Return True in this share of the draws.

        Args:
            share: In [0, 1].

        Returns:
            Whether it happens.
        """
        return self.random() < share

    def pick(self, items: Sequence[T]) -> T:
        """Return one of the items.

        Args:
            items: At least one.

        Returns:
            The item.
        """
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Return `count` different items (all when there are fewer), in their own order.

        Args:
            items: To choose from.
            count: How many, at least 0.

        Returns:
            A new list.
        """
        left = min(count, len(items))
        chosen = []
        for position, item in enumerate(items):
            if self.random() * (len(items) - position) < left:
                chosen.append(item)
                left -= 1
        return chosen

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in another order.

        Args:
            items: Stay as they are.

        Returns:
            A new list.
        """
        mixed = list(items)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.below(last + 1)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed


@dataclass(slots=True)
class Making:
    """A product that is being made.

    Attributes:
        draw: its randomness.
        kind: what it is.
        title, pricing, description, bullets, options, path: as in the record; values of options are plain texts.
        attributes: what it is known for.
        fields: what the templates of titles and sentences speak of.
        has_goals: whether anybody may ask for it.
        needs_goals: whether somebody must.
    """

    draw: Draw
    kind: Kind
    title: str
    pricing: str
    options: dict[str, list[str] | None] | None
    path: str
    attributes: Roles
    fields: dict[str, Any]
    description: str = ""
    bullets: list[str] | str = ""
    has_goals: bool = True
    needs_goals: bool = False


def product_record(
    asin: str,
    name: str,
    *,
    query: str,
    category: str,
    path: str,
    pricing: str,
    description: str = "",
    bullets: Sequence[str] | str = ("",),
    options: Mapping[str, Sequence[Mapping[str, Any]] | None] | None = None,
    rating: float | str = "",
    page: int = 1,
    images: int = 1,
) -> dict[str, Any]:
    """Return a product in the schema of items_shuffle*.json.

    Args:
        asin: its number, at most ten characters.
        name: its title.
        query: the search that found it.
        category: one of the five categories.
        path: its shelf, parts joined by " › ".
        pricing: "$a", "$a to $b" or "".
        description: the long text.
        bullets: the short texts, or all of them in one text.
        options: values by option name; None for none.
        rating: stars, or "".
        page: of the results that showed it.
        images: how many.

    Returns:
        The object.
    """
    return {
        "name": name,
        "full_description": description,
        "images": [f"https://images.example/{asin}/{number}.jpg" for number in range(1, images + 1)],
        "product_category": path,
        "average_rating": rating,
        "small_description": bullets if isinstance(bullets, str) else list(bullets),
        "customization_options": "" if options is None else dict(options),
        "asin": asin,
        "category": category,
        "query": query,
        "page": page,
        "pricing": pricing,
    }


def code_of(index: int, seed: int) -> str:
    """Return the asin of a product: ten letters and digits, different for different indices below 36**8 and the same seed.

    Args:
        index: The product's number, from 0.
        seed: Of the catalogue.

    Returns:
        The asin.
    """
    number = (index * 1_928_374_655 + seed * 7_777_777 + 1_234_567_890) % 36**8  # the factor is prime to 36, so this is one to one
    digits = ""
    for _ in range(8):
        number, digit = divmod(number, 36)
        digits += "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit]
    return "B0" + digits


def start_product(draw: Draw, index: int, *, always_known: bool = False) -> Making:
    """Draw a product, all but its long texts.

    Args:
        draw: its randomness.
        index: its number, which decides its kind.
        always_known: give it at least one attribute, so that it can be asked for.

    Returns:
        The product; `finish_product` makes its record.
    """
    kind = words.KINDS[index * _STRIDE % len(words.KINDS)]
    attributes = _attributes(draw, kind, always_known)
    fields = _fields(draw, kind, attributes)
    return Making(
        draw,
        kind,
        title=_title(draw, kind, fields),
        pricing=_pricing(draw, kind),
        options=_options(draw, kind),
        path=kind.path,
        attributes=attributes,
        fields=fields,
    )


def add_texts(making: Making) -> None:
    """Write the description and the bullet points. One of these names all attributes; it is seldom the first, the only one that is searched.

    Args:
        making: the product.
    """
    draw = making.draw
    making.description = "" if draw.chance(0.3) else _text(making, 2 + int(18 * draw.random() ** 1.2))
    points = [draw.pick(words.BULLET_HEADS) + _text(making, draw.pick((1, 1, 2, 2, 3))) for _ in range(draw.pick((1, 4, 4, 5, 5, 5, 6, 7)))]
    known = [attribute for role in making.attributes for attribute in role]
    if known:
        points.insert(draw.below(len(points) + 1), f"In short: {', '.join(draw.shuffled(known))}.")
    making.bullets = points


def finish_product(making: Making, asin: str, *, with_instruction: float = 0.5, with_human: float = 0.26) -> Record:
    """Write a product down and draw its goals.

    Args:
        making: the product.
        asin: its product number.
        with_instruction: the share of products with attributes that get synthetic goals.
        with_human: the share that get human instructions.

    Returns:
        The record.
    """
    draw, kind = making.draw, making.kind
    product = product_record(
        asin,
        making.title,
        query=kind.query,
        category=kind.category,
        path=making.path,
        pricing=making.pricing,
        description=making.description,
        bullets=making.bullets,
        options=_option_values(making.options, asin),
        rating="" if draw.chance(0.36) else round(3.2 + draw.below(19) / 10, 1),
        page=draw.between(1, 400),
        images=draw.between(1, 8),
    )
    known = draw.shuffled([attribute for role in making.attributes for attribute in role])
    note: dict[str, Any] = {"attributes": known}
    asked = []
    if known and making.has_goals:
        if draw.chance(with_instruction) or making.needs_goals:
            note |= _instruction(draw, kind, making.attributes)
        if draw.chance(with_human):
            asked = [_human(draw, asin, making, known) for _ in range(draw.pick((1, 1, 1, 2, 3)))]
    return Record(product, note, asked)


# ---------------------------------------------------------------------------------------------------- what it is
def _attributes(draw: Draw, kind: Kind, always_known: bool) -> Roles:
    """Attributes by role: before the noun, with, for. Some products have none, unless they must be known for something."""
    if draw.chance(0.15) and not always_known:
        return [], [], []
    roles = (kind.before, kind.having, kind.fitting)
    counts = ((1, 1, 2, 3), (0, 1, 1, 2), (0, 0, 1, 1))
    before, having, fitting = (draw.some(role, draw.pick(number)) for role, number in zip(roles, counts, strict=True))
    return before, having, fitting


def _fields(draw: Draw, kind: Kind, attributes: Roles) -> dict[str, Any]:
    """What the templates of titles and sentences speak of; the product's own attributes where it has some."""
    before, having, fitting = attributes
    noun = draw.pick(kind.nouns)
    material = draw.pick(kind.materials)
    first = draw.pick(before or kind.before)
    fields: dict[str, Any] = {
        "brand": draw.pick(words.BRAND_STARTS) + draw.pick(words.BRAND_ENDS),
        "noun": noun.lower(),
        "Noun": noun,
        "material": material.lower(),
        "Material": material,
        "use": draw.pick(kind.uses).lower(),
        "before": first,
        "before2": draw.pick([other for other in before or kind.before if other != first] or kind.before),
        "having": draw.pick(having or kind.having),
        "fitting": draw.pick(fitting or kind.fitting),
        "color": draw.pick(words.COLORS),
        "number": draw.between(2, 14),
        "code": f"{draw.pick('ABCDEFGHKLMNPRSTVXZ')}{draw.pick('BCDKLRSTX')}{draw.between(10, 99)}",
        "year": draw.between(2003, 2024),
        "low": draw.between(2, 24),
        "high": draw.between(25, 980),
    }
    for name in ("before", "before2", "having", "fitting", "use"):
        fields[name.capitalize()] = fields[name].title()
    return fields


def _title(draw: Draw, kind: Kind, fields: dict[str, Any]) -> str:
    """Brand, noun, and phrases up to the length drawn; some 18 words in the mean, as the official titles."""
    start = "{brand} " if draw.chance(0.3) else "{brand} {Before} "
    owner = "Women's " if kind.query.startswith("women") else "Men's " if kind.query.startswith("men") else ""
    title = (start + owner + "{Noun}").format(**fields)
    length = 40 + 165 * draw.random()
    for extra in draw.shuffled(words.TITLE_EXTRAS):
        phrase = extra.format(**fields)
        if phrase.rsplit(" ", 1)[-1] in title:
            continue
        if len(title) + len(phrase) > length:
            break
        title += (" " if phrase.startswith(("with", "for")) else draw.pick((", ", ", ", " - ", " | "))) + phrase
    return title


def _pricing(draw: Draw, kind: Kind) -> str:
    shape = draw.random()
    if shape < 0.09:
        return ""
    low, high = kind.prices
    price = low * (high / low) ** draw.random()
    price = int(price) + draw.pick((0.99, 0.99, 0.95, 0.49, 0.0))
    return f"${price:.2f}" if shape > 0.18 else f"${price:.2f} to ${price * (1.2 + draw.random()):.2f}"


def _text(making: Making, sentences: int) -> str:
    return " ".join(making.draw.pick(words.SENTENCES).format(**making.fields) for _ in range(sentences))


def _options(draw: Draw, kind: Kind) -> dict[str, list[str] | None] | None:
    shape = draw.random()
    if shape < 0.48:
        return None
    if shape < 0.56:  # the names of options are there, their values are not
        return {words.OPTION_POOLS[key][0]: draw.pick((None, [])) for key in kind.options}
    chosen: dict[str, list[str] | None] = {}
    for key in draw.some(kind.options, draw.pick((1, 1, 2, 2, 3))):
        name, values = words.OPTION_POOLS[key]
        chosen[name] = draw.some(values, draw.pick((2, 2, 3, 4, 5, 6, 9, 20)))
    return chosen


def _option_values(options: dict[str, list[str] | None] | None, asin: str) -> dict[str, list[dict[str, Any]] | None] | None:
    if options is None:
        return None
    return {
        name: None
        if values is None
        else [
            {"is_selected": number == 0, "value": value, "image": f"https://images.example/{asin}/{name[0].lower()}{number}.jpg"}
            if name == "Color"
            else {"is_selected": number == 0, "is_available": True, "value": value}
            for number, value in enumerate(values)
        ]
        for name, values in options.items()
    }


# ---------------------------------------------------------------------------------------------------- who asks for it
def _instruction(draw: Draw, kind: Kind, attributes: Roles) -> dict[str, Any]:
    """The start of a synthetic goal's text, to which the goal maker adds options and a price."""
    before, having, fitting = (draw.some(role, draw.pick((1, 1, 2, 3))) for role in attributes)
    return {
        "instruction": _asking(kind.query, before, having, fitting),
        "instruction_attributes": before + having + fitting,
    }


def _asking(query: str, before: Sequence[str], having: Sequence[str], fitting: Sequence[str]) -> str:
    text = "Find me " + ", ".join(before) + (" " if before else "") + query
    text += f" with {', '.join(having)}" if having else ""
    return text + (f" for {', '.join(fitting)}" if fitting else "")


def _human(draw: Draw, asin: str, making: Making, attributes: list[str]) -> dict[str, Any]:
    """An instruction as a person might write it: it may leave out attributes and options, and then the goal leaves them out too."""
    wanted = draw.some(attributes, draw.pick((1, 1, 2)))
    clauses = ""
    for attribute in wanted:
        role = next(role for role, members in enumerate(making.attributes) if attribute in members)
        clauses += draw.pick(words.HUMAN_ATTRIBUTES[role]).format(attribute)
    choice = {name: draw.pick(values) for name, values in (making.options or {}).items() if values}
    mentioned = draw.some(list(choice), draw.pick((0, 1, 2, 3)))
    values = [choice[name].strip().lower() for name in mentioned]
    options = ""
    if values:
        spoken = [f"{name.lower()} {value}" if draw.chance(0.4) else value for name, value in zip(mentioned, values, strict=True)]
        options = draw.pick(words.HUMAN_OPTIONS).format(values=" and ".join(spoken))
    text = draw.pick(words.HUMAN_OPENINGS).format(asked=making.kind.asked, attributes=clauses, options=options)
    return {
        "asin": asin,
        "instruction": text if text.endswith("?") else text + draw.pick(words.HUMAN_ENDS),
        "attributes": attributes,
        "options": [f"{name.lower()}: {value.strip().lower()}" for name, value in choice.items()] or [""],
        "instruction_attributes": wanted,
        "instruction_options": values,
    }
