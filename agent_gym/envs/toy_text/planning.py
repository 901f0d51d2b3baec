"""Exact solutions of the toy-text tasks: what the experts play, and what their play is worth.

Tabular tasks are solved backwards over the replies that are left (finite-horizon value iteration on Gymnasium's own transition table `env.P`), so that the
expert is optimal on slippery ice and in the rain too, and knows when it has to hurry. Blackjack is solved by recursion over hands: cards are drawn
with replacement, so that the player's sum, the usable ace and the dealer's card are all there is to know (Sutton and Barto, 2018, example 5.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Blackjack", "Plan", "plan", "solve_blackjack"]

_CARDS = tuple((card, (4 if card == 10 else 1) / 13) for card in range(1, 11))  # ace to ten; ten, jack, queen and king count ten
_TIE = 1e-9


@dataclass(frozen=True)
class Plan:
    """The best play of a tabular task, for every number of replies left.

    Attributes:
        values: shape (horizon + 1, states), float64: the expected sum of rewards of the best play.
        actions: shape (horizon + 1, states), int64: its action; of several that are equally good, the one that ends the task sooner. Row 0
            means
            nothing.
    """

    values: NDArray[np.float64]
    actions: NDArray[np.int64]

    def action(self, state: int, left: int) -> int:
        """Return the best action.

        Args:
            state: the present state.
            left: replies that are left, at least 1.

        Returns:
            Its number.
        """
        return int(self.actions[min(left, len(self.actions) - 1), state])


def plan(table: Mapping[int, Mapping[int, Sequence[tuple[float, Any, Any, Any]]]], horizon: int) -> Plan:
    """Solve a tabular task.

    Args:
        table: Gymnasium's `env.P`: state -> action -> (probability, next state, reward, terminated).
        horizon: the most replies that may be left.

    Returns:
        The plan.
    """
    states, actions = len(table), len(table[0])
    branches = max(len(outcomes) for row in table.values() for outcomes in row.values())
    chance, after = np.zeros((states, actions, branches)), np.zeros((states, actions, branches), dtype=np.int64)
    paid, goes_on = np.zeros((states, actions, branches)), np.zeros((states, actions, branches))
    for state, row in table.items():
        for action, outcomes in row.items():
            for branch, (probability, target, reward, ended) in enumerate(outcomes):
                chance[state, action, branch], after[state, action, branch] = probability, int(target)
                paid[state, action, branch], goes_on[state, action, branch] = float(reward), not ended
    at_once = (chance * paid).sum(axis=2)
    onward = chance * goes_on
    values, chosen = np.zeros((horizon + 1, states)), np.zeros((horizon + 1, states), dtype=np.int64)
    steps = np.zeros(states)
    everyone = np.arange(states)
    for left in range(1, horizon + 1):
        worth = at_once + (onward * values[left - 1][after]).sum(axis=2)
        values[left] = worth.max(axis=1)
        lasting = 1.0 + (onward * steps[after]).sum(axis=2)
        lasting[worth < values[left][:, None] - _TIE] = np.inf
        chosen[left] = lasting.argmin(axis=1)
        steps = lasting[everyone, chosen[left]]
    return Plan(values, chosen)


@dataclass(frozen=True)
class Blackjack:
    """The best play of Blackjack.

    Attributes:
        hit: whether to take a card: (sum, dealer's card, usable ace) -> bool.
        values: the expected reward of the best play in the same states, with more than two cards or no natural.
        value: of a whole game, before any card is drawn.
    """

    hit: Mapping[tuple[int, int, int], bool]
    values: Mapping[tuple[int, int, int], float]
    value: float


@lru_cache(maxsize=8)
def solve_blackjack(*, sab: bool = True, natural: bool = False) -> Blackjack:
    """Solve Gymnasium's Blackjack.

    Args:
        sab: its keyword of that name: a natural wins unless the dealer has one.
        natural: its keyword of that name: a win by a natural pays 1.5.

    Returns:
        The solution.
    """
    ends = {up: _dealer(up, up == 1) for up in range(1, 11)}
    hit: dict[tuple[int, int, int], bool] = {}
    values: dict[tuple[int, int, int], float] = {}
    for up in range(1, 11):

        def stick(total: int, up: int = up) -> float:
            return sum(chance * ((total > end) - (total < end)) for end, chance in ends[up].items())

        for total in range(21, 3, -1):  # without a usable ace a card raises the sum, so that higher sums are known
            bust = sum(chance for card, chance in _CARDS if total + card > 21)
            taken = -bust + sum(
                chance * values[_with_card(total, 0, card, up)]
                for card, chance in _CARDS
                if total + card <= 21 and (card > 1 or total > 10)
            )
            if total <= 10:  # an ace becomes usable: solved below, for larger sums first
                taken += _CARDS[0][1] * _usable(total + 11, up, values, hit, stick)
            hit[total, up, 0], values[total, up, 0] = taken > stick(total) + _TIE, max(taken, stick(total))
        for total in range(21, 11, -1):
            _usable(total, up, values, hit, stick)
    start = 0.0
    for first, one in _CARDS:
        for second, two in _CARDS:
            for up, three in _CARDS:
                ace = 1 in (first, second)
                total = first + second + 10 * ace
                worth = values[total, up, int(ace)]
                if sorted((first, second)) == [1, 10] and (sab or natural):
                    same = {1: _CARDS[9][1], 10: _CARDS[0][1]}.get(up, 0.0)  # the dealer's hidden card makes a natural too
                    win = sum(chance for end, chance in ends[up].items() if end < 21)
                    worth = 1.0 - same if sab else 1.5 * win
                start += one * two * three * worth
    return Blackjack(hit, values, start)


def _usable(total: int, up: int, values: dict[Any, float], hit: dict[Any, bool], stick: Any) -> float:
    """The value of a sum with a usable ace; it never goes over 21 by one card."""
    known = values.get((total, up, 1))
    if known is None:
        taken = 0.0
        for card, chance in _CARDS:
            state = _with_card(total, 1, card, up)
            taken += chance * (_usable(state[0], up, values, hit, stick) if state[2] else values[state])
        hit[total, up, 1], values[total, up, 1] = taken > stick(total) + _TIE, max(taken, stick(total))
        known = values[total, up, 1]
    return known


def _with_card(total: int, usable: int, card: int, up: int) -> tuple[int, int, int]:
    """The state after a card that does not go over 21."""
    hard = total - 10 * usable + card
    ace = int((usable or card == 1) and hard + 10 <= 21)
    return hard + 10 * ace, up, ace


@lru_cache(maxsize=128)
def _dealer(hard: int, ace: bool) -> Mapping[int, float]:
    """What the dealer ends with, 0 for more than 21: sum -> probability."""
    total = hard + 10 if ace and hard + 10 <= 21 else hard
    if total >= 17:
        return {total if total <= 21 else 0: 1.0}
    ends: dict[int, float] = {}
    for card, chance in _CARDS:
        for end, probability in _dealer(hard + card, ace or card == 1).items():
            ends[end] = ends.get(end, 0.0) + chance * probability
    return ends
