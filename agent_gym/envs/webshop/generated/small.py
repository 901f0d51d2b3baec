"""The small level of the generated catalogue: a shop that a model of two layers can learn to use.

Ninety-six products with titles of two words: a name that no other product has, and what it is ("Nendo lamp"). A product number is a name too.
Names, things, prints and sizes are single tokens of the default tokenizer, so what has to be copied is one token, and an instruction has some thirty-five:
"Find me Nendo lamp, with print: star, and size: 7, and price lower than 40.00 dollars".

Buying well takes four habits, each worth reward of its own. A goal asks for one attribute (the name), two options and a price, so buying the right
product without options scores 0.5 and a product of another kind 0.

* *Search for the thing, not with the whole instruction.* A few papers speak of lower prices and name price bounds, so they come first for about half of the
  instructions.
* *Read the titles.* Every fifth thing has a case: a box whose description names it twice, which therefore comes before it.
* *Choose both options.*
* *Buy.*

Every goal is another combination of product, print and size, so a split by index never holds a combination that was trained on.
"""

from __future__ import annotations

from typing import Any

from agent_gym.data.bridge_world import PEOPLE
from agent_gym.envs.webshop.generated.product import Draw, product_record

__all__ = ["NAMES", "PRINTS", "SIZES", "THINGS", "small_catalogue"]

NAMES = tuple(name for pool in PEOPLE.values() for name in pool)
"""Two hundred names, each one token: titles take one half of them, product numbers the other."""
THINGS = {
    "dress": ("fashion", "Clothing › Women › Dresses"),
    "bag": ("fashion", "Clothing › Bags"),
    "lamp": ("garden", "Home › Lighting › Lamps"),
    "table": ("garden", "Home › Furniture › Tables"),
    "drawer": ("garden", "Home › Storage › Drawers"),
    "fridge": ("garden", "Home › Kitchen › Fridges"),
    "knife": ("garden", "Home › Kitchen › Knives"),
    "film": ("electronics", "Electronics › Camera › Film"),
    "album": ("electronics", "Electronics › Music › Albums"),
    "tool": ("electronics", "Electronics › Tools"),
    "key": ("electronics", "Electronics › Locks › Keys"),
    "tea": ("grocery", "Food › Drinks › Tea"),
    "apple": ("grocery", "Food › Fruit › Apples"),
    "bird": ("garden", "Home › Decoration › Birds"),
}
"""What the goals ask for -> category and shelf."""
PRINTS = ("star", "river", "island", "boy", "girl", "object")
SIZES = tuple("123456789")
LARGEST = len(NAMES) // 2

_CASE = ("garden", "Office › Cases")
_PAPER = ("beauty", "Shop › Paper")
_PAPERS = 5
_BOUNDS = (("30.00", "60.00"), ("60.00", "90.00"), ("30.00", "50.00"))  # about half of the goals have one of these bounds
_SHARE_OF_CASES = 6  # one in so many products


def small_catalogue(size: int, seed: int) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Make the small catalogue.

    Args:
        size: how many products, at most one hundred.
        seed: which catalogue.

    Returns:
        Products, notes and (no) human instructions, as `GeneratedCatalogue` takes them.

    Raises:
        ValueError: if there are not enough names for so many products.
    """
    if size > LARGEST:
        raise ValueError(f"the small catalogue has at most {LARGEST} products, not {size}; use level='full' for more")
    draw = Draw(f"webshop small/{seed}")
    names = draw.shuffled(NAMES)
    codes = names[LARGEST:]
    papers = min(_PAPERS, size // 8)
    cases = size // _SHARE_OF_CASES
    things = draw.shuffled(list(THINGS))
    goals = size - papers - cases
    products = [_thing(draw, names[number], codes[number], things[number % len(things)]) for number in range(goals)]
    cased = draw.some(range(goals), cases)
    products += [_case(draw, names[goals + at], codes[goals + at], products[number]["name"]) for at, number in enumerate(cased)]
    products += [_paper(draw, names[size - 1 - at], codes[size - 1 - at], _BOUNDS[at % len(_BOUNDS)]) for at in range(papers)]
    notes: dict[str, dict[str, Any]] = {product["asin"]: {"attributes": [product["name"].split()[0].lower()]} for product in products}
    for product in products[:goals]:
        note = notes[product["asin"]]
        note |= {"instruction": f"Find me {product['name']},", "instruction_attributes": list(note["attributes"])}
    return draw.shuffled(products), notes, {}


def _thing(draw: Draw, name: str, code: str, thing: str) -> dict[str, Any]:
    category, path = THINGS[thing]
    sizes = draw.below(len(SIZES) - 2)
    options = {"Print": draw.shuffled(draw.some(PRINTS, 4)), "Size": SIZES[sizes : sizes + 3]}
    return product_record(
        code,
        f"{name} {thing}",
        query=thing,
        category=category,
        path=path,
        pricing=f"${draw.between(11, 49)}",
        options={option: [{"value": value} for value in values] for option, values in options.items()},
    )


def _case(draw: Draw, name: str, code: str, title: str) -> dict[str, Any]:
    """A box for another product, which its description names more often than that product's own text does."""
    return product_record(
        code,
        f"{name} box",
        query="box",
        category=_CASE[0],
        path=_CASE[1],
        pricing=f"${draw.between(5, 15)}",
        description=f"Box for {title}. {title} not in it.",
    )


def _paper(draw: Draw, name: str, code: str, bounds: tuple[str, str]) -> dict[str, Any]:
    """A paper with the words that instructions share, among them two price bounds, by which it beats what those instructions ask for."""
    return product_record(
        code,
        f"{name} paper",
        query="paper",
        category=_PAPER[0],
        path=_PAPER[1],
        pricing=f"${draw.between(2, 9)}",
        description=f"A lower price: {bounds[0]} or {bounds[1]}.",
    )
