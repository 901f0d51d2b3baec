"""`Rules`, how a visit goes, and `Shop`, what all visits share: products, goals, search, prices and the judgement of a purchase."""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from agent_gym.envs.webshop.catalogue import Catalogue
from agent_gym.envs.webshop.goals import Goal, Goals, price_of
from agent_gym.envs.webshop.nouns import nouns_by
from agent_gym.envs.webshop.product import Product
from agent_gym.envs.webshop.reward import RewardParts, purchase_reward

__all__ = ["OBSERVATION_MODES", "Rules", "Shop"]

OBSERVATION_MODES = ("text", "text_rich", "html", "url")
_SEARCHES_KEPT = 4_096


@dataclass(frozen=True, slots=True)
class Rules:
    """How a visit goes.

    Attributes:
        observation_mode: "text", "text_rich", "html" or "url".
        show_instruction: Whether every page repeats the instruction, as in the original.
        show_attributes: Whether a product has a page of its attributes.
        show_score: Whether the last page prints the score.
        strict_search: Whether a search needs the page with the search bar, as on the original's web site.
        debug_queries: Whether `<r>`, `<a> attribute`, `<c> category` and `<q> query` are special searches.
        search_after_purchase: Whether a visitor may go on after buying.
        empty_pages: Whether the results go on behind the last product.
        top_k: How many products a search finds.
        page_size: How many of them are on one page.
    """

    observation_mode: str = "text"
    show_instruction: bool = True
    show_attributes: bool = False
    show_score: bool = False
    strict_search: bool = False
    debug_queries: bool = False
    search_after_purchase: bool = False
    empty_pages: bool = False
    top_k: int = 50
    page_size: int = 10

    def __post_init__(self) -> None:
        if self.observation_mode not in OBSERVATION_MODES:
            raise ValueError(f"observation_mode must be one of {', '.join(map(repr, OBSERVATION_MODES))}, got {self.observation_mode!r}")
        if self.top_k < 1 or self.page_size < 1:
            raise ValueError(f"top_k and page_size must be at least 1, got {self.top_k} and {self.page_size}")

    @classmethod
    def original(cls, **changes: Any) -> Rules:
        """The rules of the original text environment, with changes.

        Args:
            **changes: Fields of this class, which win.

        Returns:
            Rules with score, special searches, moves after the purchase and empty pages.
        """
        return cls(**{"show_score": True, "debug_queries": True, "search_after_purchase": True, "empty_pages": True, **changes})


class Shop:
    """Products, goals, search, prices and judgement: what all visits share. Read-only, safe in threads.

    Attributes:
        catalogue: The products.
        goals: What visitors want.
        noun_backend: How the nouns of titles are found: "words", "spacy:MODEL" or "function".
        price_seed: Of the prices that are drawn from a range.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        goals: str = "auto",
        goal_seed: int | None = 233,
        price_seed: int = 0,
        noun_backend: str | Callable[[str], Any] = "words",
    ) -> None:
        """Opens a shop.

        Args:
            catalogue: The products.
            goals: "synthetic", "human" or "auto" (see `Goals`).
            goal_seed: Of the order of the goals; 233 is the original's.
            price_seed: Of prices and price bounds.
            noun_backend: See `nouns_by`.

        Raises:
            ValueError: If `goals` or `noun_backend` is unknown, or there are no such goals.
            ImportError: If spaCy is asked for and missing.
        """
        self.catalogue, self.price_seed = catalogue, price_seed
        self._settings = (goals, goal_seed, price_seed, noun_backend)
        self.noun_backend = noun_backend if isinstance(noun_backend, str) else "function"
        self._nouns = nouns_by(noun_backend)
        self.goals = Goals(catalogue, goals, seed=goal_seed, price_seed=price_seed)
        self.search = lru_cache(_SEARCHES_KEPT)(catalogue.search)

    @classmethod
    def open(
        cls,
        catalogue: Catalogue,
        *,
        goals: str = "auto",
        goal_seed: int | None = 233,
        price_seed: int = 0,
        noun_backend: str | Callable[[str], Any] = "words",
    ) -> Shop:
        """Opens a shop, or gives the one of the same settings that is in use: environments share it. Arguments as for the class.

        Args:
            catalogue: As for the class.
            goals: As for the class.
            goal_seed: As for the class.
            price_seed: As for the class.
            noun_backend: As for the class.

        Returns:
            The shop; not to be changed.
        """
        return _open_shop(catalogue, goals, goal_seed, price_seed, noun_backend)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_shop, (self.catalogue, *self._settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> Shop:
        return self

    def price(self, product: Product) -> float:
        """What a product costs, in dollars.

        Args:
            product: Of this shop.

        Returns:
            Dollars; see `price_of`.
        """
        return price_of(product, self.price_seed)

    def judge(self, goal: Goal, product: Product, chosen: Mapping[str, str], price: float) -> RewardParts:
        """The reward of buying a product.

        Args:
            goal: What was wanted.
            product: What was bought.
            chosen: The option values that were chosen, by name.
            price: What it costs, in dollars.

        Returns:
            The reward and its parts; see `purchase_reward`.
        """
        return purchase_reward(goal, product, chosen, price, self._nouns)

    def find(self, keywords: tuple[str, ...], rules: Rules) -> tuple[int, ...]:
        """The products that a search finds, by number, best first.

        Args:
            keywords: Words in lower case, at least one.
            rules: Of the visit.

        Returns:
            Numbers, at most `rules.top_k` of them.
        """
        if rules.debug_queries and keywords[0] in _DEBUG_QUERIES:
            return self._debug_find(keywords, rules.top_k)
        return self.search(" ".join(keywords), rules.top_k)

    def _debug_find(self, keywords: tuple[str, ...], k: int) -> tuple[int, ...]:
        """The original's hidden searches; they go through the whole catalogue, so they are slow in a large one."""
        wanted = " ".join(keywords[1:]).strip()
        if keywords[0] == "<r>":
            return tuple(random.Random(self.price_seed).sample(range(len(self.catalogue)), min(k, len(self.catalogue))))
        matches = _DEBUG_QUERIES[keywords[0]]
        return tuple(product.number for product in self.catalogue if matches(product, wanted))


_open_shops: weakref.WeakValueDictionary[tuple[Any, ...], Shop] = weakref.WeakValueDictionary()
"""Shops in use, so that environments share them."""


def _open_shop(catalogue: Catalogue, goals: str, goal_seed: int | None, price_seed: int, noun_backend: str | Callable[[str], Any]) -> Shop:
    key = (catalogue, goals, goal_seed, price_seed, noun_backend)
    shop = _open_shops.get(key)
    if shop is None:
        shop = _open_shops[key] = Shop(catalogue, goals=goals, goal_seed=goal_seed, price_seed=price_seed, noun_backend=noun_backend)
    return shop


_DEBUG_QUERIES: Mapping[str, Callable[[Product, str], bool]] = {
    "<r>": lambda product, wanted: True,
    "<a>": lambda product, wanted: wanted in product.attributes,
    "<c>": lambda product, wanted: product.category == wanted,
    "<q>": lambda product, wanted: product.query == wanted,
}
