"""What shoppers want: the goals of a catalogue, in the official order, made when they are looked at.

Synthetic goals: for every product with an instruction, one per combination of its option values. Human goals: one per instruction that a
person wrote. Their order is that of the original (products in file order, then `random.Random(233).shuffle`), so an index names the same
goal in both, and the official splits hold: test 0 to 499, eval 500 to 1,499, train from 1,500.

Two things differ on purpose. The original draws the price of a product with a price range, and the price bound of a goal, from the global
generator before it is seeded, so that no two processes agree; here both follow from `price_seed` and the product's id (or are given). And
a goal is a row of two numbers until it is needed, since the official catalogue has millions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agent_gym.envs.webshop.catalogue import Catalogue
from agent_gym.envs.webshop.product import Product

__all__ = ["GOAL_KINDS", "NO_BOUND", "Goal", "GoalKind", "Goals", "check_kind", "price_of"]

GoalKind = Literal["synthetic", "human"]
GOAL_KINDS = ("auto", "human", "synthetic")

NO_BOUND = 1_000_000.0
"""The price bound of a goal without one."""
_STEP, _LAST, _CANDIDATES = 10, 990, 4
_OFFICIAL_SPLITS = 2_000
"""From so many goals on the official splits are used."""
_MANY = 100_000
_ENOUGH_HUMAN = 1_500
"""So many human goals are needed before `kind="auto"` takes them."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What one shopper wants.

    Attributes:
        index: Its place in the shuffled goals.
        product: The product that the goal was made from.
        request: The instruction without the price.
        attributes: What the product should have, at least one.
        options: Pairs of name and value in a synthetic goal, values in a human one.
        price_upper: The most it may cost, in dollars; `NO_BOUND` for any price.
        kind: "synthetic" or "human".
    """

    index: int
    product: Product
    request: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...] | tuple[str, ...]
    price_upper: float
    kind: GoalKind

    @property
    def instruction(self) -> str:
        """The whole instruction, as the shopper reads it."""
        bound = "" if self.price_upper >= NO_BOUND else f", and price lower than {self.price_upper:.2f} dollars"
        return self.request + bound

    def with_bound(self, price_upper: float) -> Goal:
        """The same goal with another price bound.

        Args:
            price_upper: In dollars.

        Returns:
            A new goal.
        """
        return replace(self, price_upper=float(price_upper))


def check_kind(kind: object) -> None:
    """Refuse what is no kind of goals.

    Args:
        kind: What was given.

    Raises:
        ValueError: If it is none of `GOAL_KINDS`.
    """
    if not isinstance(kind, str) or kind not in GOAL_KINDS:
        raise ValueError(f"goals must be one of {', '.join(map(repr, GOAL_KINDS))}, got {kind!r:.200}")


class Goals(Sequence[Goal]):
    """The goals of a catalogue, by index. Read-only, shared by all environments, safe in threads.

    Attributes:
        kind: "synthetic" or "human".
        official_splits: Whether the splits are the official ranges of indices, or 80/10/10 of a smaller number.
    """

    def __init__(self, catalogue: Catalogue, kind: str = "auto", *, seed: int | None = 233, price_seed: int = 0) -> None:
        """Orders the goals.

        Args:
            catalogue: The products.
            kind: "synthetic", "human", or "auto": human where there are at least 1,500 of them.
            seed: Of the shuffle; None leaves them in the order of the products.
            price_seed: Of drawn prices and price bounds.

        Raises:
            ValueError: If `kind` is unknown, or the catalogue has no such goal.
        """
        check_kind(kind)
        self._catalogue, self._price_seed = catalogue, price_seed
        human = kind == "human" or (kind == "auto" and catalogue.human_instructions >= _ENOUGH_HUMAN)
        self.kind: GoalKind = "human" if human else "synthetic"
        if human:
            count = catalogue.human_instructions
            self._ends: NDArray[np.int64] = np.arange(1, count + 1, dtype=np.int64)
            self._weights: NDArray[np.float64] | None = None
        else:
            self._ends = np.cumsum(catalogue.goal_counts)
            count = int(self._ends[-1])
            self._weights = catalogue.goal_weights
        if not count:
            hint = (
                "human goals need items_human_ins.json"
                if human
                else "synthetic goals need products with an instruction in items_ins_v2*.json"
            )
            raise ValueError(f"the catalogue {catalogue.name} has no {self.kind} goals; {hint}")
        self._seed = seed
        self._order: NDArray[Any] = self._table("order", count, lambda: _shuffled(count, seed))
        self._cumulative: NDArray[np.float64] | None = None
        self.official_splits = count >= _OFFICIAL_SPLITS

    def __len__(self) -> int:
        """How many goals there are."""
        return len(self._order)

    def __getitem__(self, index: Any) -> Any:
        """The goal of that index, or a list of them for a slice."""
        if isinstance(index, slice):
            return [self._goal(each) for each in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"goal {index} of {len(self)}")
        return self._goal(int(place))

    def split(self, name: str) -> range:
        """The indices of a split.

        Args:
            name: "train", "validation" (or "eval"), "test", or "all".

        Returns:
            A range of indices.

        Raises:
            ValueError: If there is no such split, or no goal in it.
        """
        count = len(self)
        tenth = (count + 5) // 10 or int(count >= 3)
        first, second = (500, 1_500) if self.official_splits else (tenth, 2 * tenth)
        ranges = {"test": range(first), "validation": range(first, second), "train": range(second, count), "all": range(count)}
        found = ranges.get("validation" if name == "eval" else name)
        if found is None:
            raise ValueError(f"split must be one of {', '.join(map(repr, ranges))}, got {name!r}")
        if not found or found[-1] >= count:
            raise ValueError(f"the split {name!r} is empty: the catalogue {self._catalogue.name} has only {count} {self.kind} goals")
        return found

    def draw(self, split: str, chance: float) -> int:
        """Draws an index of a split, by weight as in the original.

        Args:
            split: As in `split`.
            chance: A random number, at least 0 and below 1.

        Returns:
            The index; uniformly drawn where the goals are people's.
        """
        indices = self.split(split)
        if self._weights is None:
            return indices[int(chance * len(indices))]
        if self._cumulative is None:
            weights = self._weights
            self._cumulative = self._table("cumulative", len(self), lambda: np.cumsum(weights[self._rows(self._order)]))
        before = float(self._cumulative[indices.start - 1]) if indices.start else 0.0
        wanted = before + chance * (float(self._cumulative[indices.stop - 1]) - before)
        place = int(np.searchsorted(self._cumulative, wanted, side="right"))
        return min(max(place, indices.start), indices.stop - 1)

    def weight(self, index: int) -> float:
        """How often a goal is drawn, relative to the others.

        Args:
            index: Of the goal.

        Returns:
            Relative to the weights of the other goals; 1 for all goals of people.
        """
        return 1.0 if self._weights is None else float(self._weights[self._rows(self._order[index])])

    def _rows(self, places: Any) -> Any:
        """The products (or human instructions) of unshuffled places."""
        return np.searchsorted(self._ends, places, side="right")

    def _table(self, name: str, count: int, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """A table of all goals; one of many goals is kept beside the catalogue's own tables."""
        return make() if count < _MANY else self._catalogue.table(f"{name}-{self.kind}-{self._seed}", make)

    def _goal(self, index: int) -> Goal:
        place = int(self._order[index])
        row = int(self._rows(place))
        return (
            self._human(index, row)
            if self.kind == "human"
            else self._synthetic(index, row, place - (int(self._ends[row - 1]) if row else 0))
        )

    def _synthetic(self, index: int, number: int, combination: int) -> Goal:
        product = self._catalogue.product(number)
        chosen: list[tuple[str, str]] = []
        for name, values in sorted(product.options, reverse=True):
            combination, which = divmod(combination, len(values))
            chosen.append((name, values[which]))
        chosen.reverse()
        wanted = ", and ".join(f"{name}: {value}" for name, value in chosen)
        request = f"{product.instruction} with {wanted}" if wanted else str(product.instruction)
        bound = _price_bound(price_of(product, self._price_seed), self._price_seed, product.asin)
        return Goal(index, product, request, product.instruction_attributes, tuple(chosen), bound, "synthetic")

    def _human(self, index: int, row: int) -> Goal:
        given = self._catalogue.human_instruction(row)
        product = self._catalogue.product(given.number)
        bound = _price_bound(price_of(product, self._price_seed), self._price_seed, f"{product.asin} {given.place}")
        return Goal(index, product, given.text.strip("."), given.attributes, given.options, bound, "human")


def price_of(product: Product, seed: int) -> float:
    """What a product costs, in dollars; within a price range a number that follows from seed and id, uniformly distributed over seeds.

    Args:
        product: With one price, or the two ends of a range.
        seed: Of the shop's prices.

    Returns:
        The same number in every process.
    """
    if len(product.prices) == 1:
        return product.prices[0]
    low, high = product.prices
    return low + (high - low) * _chance(f"price {seed} {product.asin}")


def _price_bound(price: float, seed: int, name: str) -> float:
    """The higher one of two of the four multiples of ten above the price; none where not two are below a thousand."""
    lowest = int(price // _STEP + 1) * _STEP
    bounds = range(max(lowest, _STEP), _LAST + 1, _STEP)[:_CANDIDATES]
    if len(bounds) < 2:
        return NO_BOUND
    pairs = [second for place, second in enumerate(bounds) for _ in range(place)]  # as often as there is a lower one to be drawn with it
    return float(pairs[int(_chance(f"bound {seed} {name}") * len(pairs))])


def _chance(name: str) -> float:
    """A number of at least 0 and below 1 that follows from a name; 53 bits."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") / 2.0**64 if name else 0.0


def _shuffled(count: int, seed: int | None) -> NDArray[Any]:
    places = list(range(count))
    if seed is not None:
        random.Random(seed).shuffle(places)
    return np.array(places, dtype=np.int32 if count < 1 << 31 else np.int64)
