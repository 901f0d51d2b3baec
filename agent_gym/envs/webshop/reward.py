"""WebShop's reward: how well what was bought fits what was wanted (Yao et al. 2022, arXiv 2207.01206).

    reward = r_type * (attributes found + options found + price kept) / (attributes + options + 1)

It is paid once, when something is bought, and lies between 0 and 1. The parts follow the original's code, its oddities included: an option
of a synthetic goal is compared as the pair of its name and value, so that choosing "small" meets the goal ("size", "x-small"); and a title
without a common noun makes the reward 0 even where the category is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent_gym.envs.webshop.goals import Goal
from agent_gym.envs.webshop.matching import COLORS, main_color, token_set_ratio
from agent_gym.envs.webshop.nouns import NounFinder
from agent_gym.envs.webshop.product import Product

__all__ = ["RewardParts", "purchase_reward"]

_ALIKE = 85
_COLOR_WORDS = frozenset(COLORS)


@dataclass(frozen=True, slots=True)
class RewardParts:
    """The reward of a purchase, and what it is made of.

    Attributes:
        reward: The whole, 0 to 1.
        r_type: How far the product is of the wanted kind: 1, 0.5, 0.1 or 0.
        r_att: The share of the wanted attributes that it has.
        r_option: The share of the wanted options that were chosen; 1 where none was wanted.
        r_price: Whether it costs no more than wanted.
        w_att: The weight of the attributes in the sum; the three weights add up to 1.
        w_option: The weight of the options.
        w_price: The weight of the price.
        query_match: Whether both products were collected by the same search.
        category_match: Whether their paths share at least two categories.
        title_score: The share of the wanted title's nouns that the bought title has.
    """

    reward: float
    r_type: float
    r_att: float
    r_option: float
    r_price: bool
    w_att: float
    w_option: float
    w_price: float
    query_match: bool
    category_match: bool
    title_score: float

    @property
    def success(self) -> bool:
        """Whether everything fits: the reward is 1."""
        return self.reward == 1.0

    def as_floats(self) -> dict[str, float]:
        """All parts as numbers, under the names of the original, for logs.

        Returns:
            Name to number; True is 1.
        """
        return {name: float(getattr(self, name)) for name in self.__slots__}


def purchase_reward(goal: Goal, product: Product, chosen: Mapping[str, str], price: float, nouns: NounFinder) -> RewardParts:
    """Judges a purchase.

    Args:
        goal: What was wanted.
        product: What was bought.
        chosen: The option values that were chosen, by name.
        price: What it costs, in dollars.
        nouns: Finds the nouns of a title (see `nouns`).

    Returns:
        The reward and its parts.
    """
    r_type, query_match, category_match, title_score = _kind(goal.product, product, nouns)
    attributes = sum(_has(product, attribute) for attribute in goal.attributes)
    options = _chosen_options(goal, chosen.values())
    wanted = len(goal.options)
    within = price <= goal.price_upper
    total = len(goal.attributes) + wanted + 1
    return RewardParts(
        reward=(attributes + options + within) / total * r_type,
        r_type=r_type,
        r_att=attributes / len(goal.attributes),
        r_option=options / wanted if wanted else 1.0,
        r_price=within,
        w_att=len(goal.attributes) / total,
        w_option=wanted / total,
        w_price=1 / total,
        query_match=query_match,
        category_match=category_match,
        title_score=title_score,
    )


def _kind(wanted: Product, bought: Product, nouns: NounFinder) -> tuple[float, bool, bool, float]:
    """`r_type` and what it rests on."""
    query_match = bought.query == wanted.query
    category_match = len(_categories(bought) & _categories(wanted)) >= 2
    wanted_nouns = nouns(wanted.title)
    common = len(set(nouns(bought.title)).intersection(wanted_nouns))
    title_score = common / len(wanted_nouns) if wanted_nouns else 0.2
    if title_score == 0:
        r_type = 0.0
    elif title_score < 0.1:
        r_type = 0.1
    elif query_match or category_match or title_score > 0.2:
        r_type = 1.0
    else:
        r_type = 0.5
    return r_type, query_match, category_match, title_score


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


def _has(product: Product, attribute: str) -> bool:
    """Whether a product has an attribute: it is much like a listed one, or stands in the product's text."""
    return any(token_set_ratio(listed, attribute) > _ALIKE for listed in product.attributes) or any(
        attribute in text for text in product.searched
    )


def _chosen_options(goal: Goal, chosen: Iterable[str]) -> int:
    """How many of the wanted options some chosen value is much like."""
    ours = [main_color(value) for value in chosen]
    theirs = [main_color(option) if isinstance(option, str) else _pair_text(*option) for option in goal.options]
    return sum(any(token_set_ratio(value, option) > _ALIKE for value in ours) for option in theirs)


def _pair_text(name: str, value: str) -> str:
    """A pair as the original compares it: the colour where one of the two is exactly that, else both as Python prints a tuple."""
    colors = _COLOR_WORDS.intersection((name, value))
    return min(colors) if colors else str((name, value))
