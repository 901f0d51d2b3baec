"""The four toy-text tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.blackjack import BlackjackEnv, sum_hand
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import MAPS, FrozenLakeEnv, generate_random_map, is_valid
from gymnasium.envs.toy_text.taxi import TaxiEnv

from agent_gym.envs.toy_text.env import _TRIES, ToyTextEnv, digest, shares
from agent_gym.envs.toy_text.planning import Plan, plan, solve_blackjack
from agent_gym.envs.toy_text.words import STOPS
from agent_gym.envs.whole_numbers import switch, whole_number

__all__ = ["BlackjackTextEnv", "CliffWalkingTextEnv", "FrozenLakeTextEnv", "TaxiTextEnv"]


class _TabularEnv(ToyTextEnv):
    """A game with a transition table `P`, whose expert plays the exact solution for the replies that are left."""

    _plan: Plan | None = None

    def _begin_game(self, row: Mapping[str, Any]) -> None:
        if self.inner is None or self.game_task.get("map") != row.get("map"):
            self._plan = None
        super()._begin_game(row)

    def solution(self) -> Plan:
        """Return the exact solution of the running episode's game, with this environment's `max_turns`.

        Returns:
            The plan: values and best actions by replies left and state.
        """
        if self._plan is None:
            self._plan = plan(self.inner.P, self.max_turns)  # type: ignore[union-attr]  # a game runs, and these have a table
        return self._plan

    def _best(self) -> int:
        return self.solution().action(int(self._seen), self.max_turns - self.turn)


class FrozenLakeTextEnv(_TabularEnv):
    """Crossing a frozen lake. Reward is 1 at the goal, which is success; a hole ends the episode with 0.

    Generated maps are dealt to the splits by their layout, so that no map is in two of them. A given map is the same in all; then the seeds differ.

    Args:
        map: "generated", a map of Gymnasium's ("4x4", "8x8"), or rows of your own.
        size: of generated maps, 3 to 16.
        frozen: of generated maps: the probability that a cell is ice and no hole, 0.6 to 1.
        is_slippery: whether moves slip to the sides; then the best play may lose.
        success_rate: with which a move on slippery ice goes where it should; None for Gymnasium's 1/3.
        split: "train", "validation" or "test".
        max_turns: None for 100 on slippery ice, as Gymnasium has, and 8 times the size elsewhere.
        invalid_penalty: see `ToyTextEnv`.
        **kwargs: see `CommandEnv`.

    Raises:
        ValueError: for keywords that cannot be used.
    """

    game: ClassVar[str] = "FrozenLake"
    task_keys: ClassVar[tuple[str, ...]] = ("seed", "map")

    def __init__(
        self,
        *,
        map: str | Sequence[str] = "generated",  # what it is called
        size: int = 4,
        frozen: float = 0.8,
        is_slippery: bool = False,
        success_rate: float | None = None,
        max_turns: int | None = None,
        invalid_penalty: float = 0.0,
        **kwargs: Any,
    ) -> None:
        is_slippery = switch("is_slippery", is_slippery)
        if not 3 <= whole_number("size", size) <= 16:
            raise ValueError(f"size must be a whole number from 3 to 16, not {size!r}")
        if isinstance(frozen, bool) or not isinstance(frozen, (int, float)) or not 0.6 <= frozen <= 1.0:
            raise ValueError(f"frozen must be a probability from 0.6 to 1, not {frozen!r}; below it few maps have a way to the goal")
        if success_rate is not None and (
            isinstance(success_rate, bool) or not isinstance(success_rate, (int, float)) or not 0 < success_rate <= 1
        ):
            raise ValueError(f"success_rate must be None or a probability above 0, not {success_rate!r}")
        if success_rate is not None and not is_slippery:
            raise ValueError(f"success_rate={success_rate} is of moves on slippery ice; pass is_slippery=True with it")
        self._map = None if map == "generated" else _rows_of(map)
        longest = int(size) if self._map is None else max(len(self._map), len(self._map[0]))
        if max_turns is None:
            max_turns = 100 if is_slippery else 8 * longest
        settings = {
            "map": "generated" if self._map is None else map if isinstance(map, str) else "-".join(self._map),
            "is_slippery": is_slippery,
            **({"size": int(size), "frozen": float(frozen)} if self._map is None else {}),
            **({} if success_rate is None else {"success_rate": float(success_rate)}),
        }
        super().__init__(max_turns=max_turns, invalid_penalty=invalid_penalty, settings=settings, **kwargs)
        self.size, self.frozen, self.is_slippery = int(size), float(frozen), is_slippery
        self.chance = self.is_slippery
        self._keywords: dict[str, Any] = {
            "is_slippery": self.is_slippery,
            **({} if success_rate is None else {"success_rate": float(success_rate)}),
        }
        if success_rate is not None and self._map is None:
            FrozenLakeEnv(**self._keywords)  # older releases of Gymnasium do not know it

    def _draw(self, rng: np.random.Generator) -> dict[str, Any]:
        if self._map is not None:
            return {"seed": self.seed_of_split(rng), "map": list(self._map)}
        for _ in range(_TRIES):
            rows = generate_random_map(self.size, self.frozen, seed=int(rng.integers(2**31)))
            if _split_of(rows) == self.split:
                return {"seed": self.seed_of_split(rng), "map": rows}
        raise ValueError(
            f"none of {_TRIES} maps with size={self.size} and frozen={self.frozen} fell to the split {self.split!r}; take a larger size or a smaller frozen"
        )

    def _checked(self, row: Mapping[str, Any]) -> dict[str, Any]:
        given = row.get("map", self._map)
        if given is None:
            raise ValueError("options['task'] needs a map: '4x4', '8x8' or rows of S, F, H and G")
        return {"seed": row["seed"], "map": list(_rows_of(given))}

    def _open(self, row: Mapping[str, Any]) -> tuple[gymnasium.Env[Any, Any], Any]:
        inner = self.inner
        if inner is None or self.game_task.get("map") != row["map"] or not isinstance(inner, FrozenLakeEnv):
            inner = FrozenLakeEnv(desc=list(row["map"]), **self._keywords)
        return inner, inner.reset(seed=row["seed"])[0]

    def _event(self, before: Any, action: int, after: Any, reward: float, terminated: bool) -> str:
        if terminated:
            return "You reached the goal." if reward > 0 else "You fell into a hole."
        return "You did not move." if before == after else ""


class TaxiTextEnv(_TabularEnv):
    """Driving a passenger to a destination. Rewards are Gymnasium's: -1 an action, -10 a wrong pickup or dropoff, 20 for the end, which is success.

    The 300 starts (taxi, passenger, destination) are dealt to the splits.

    Args:
        is_rainy: whether moves go astray.
        fickle_passenger: whether the passenger may change the destination on the way.
        split: "train", "validation" or "test".
        max_turns: replies that an episode has.
        invalid_penalty: taken off for a reply that names no action; as much as an action costs, so that silence is no better.
        **kwargs: see `CommandEnv`.

    Raises:
        ValueError: for keywords that cannot be used.
    """

    game: ClassVar[str] = "Taxi"
    moving: ClassVar[tuple[str, ...]] = ("s", "lastaction", "fickle_step", "taxi_orientation")

    def __init__(
        self, *, is_rainy: bool = False, fickle_passenger: bool = False, max_turns: int = 50, invalid_penalty: float = 1.0, **kwargs: Any
    ) -> None:
        settings = {"is_rainy": switch("is_rainy", is_rainy), "fickle_passenger": switch("fickle_passenger", fickle_passenger)}
        super().__init__(max_turns=max_turns, invalid_penalty=invalid_penalty, settings=settings, **kwargs)
        self.chance = is_rainy or fickle_passenger
        self._game = TaxiEnv(is_rainy=is_rainy, fickle_passenger=fickle_passenger)
        starts = [str(state) for state in np.flatnonzero(self._game.initial_state_distrib)]
        self._starts = frozenset(map(int, shares(starts)[self.split]))

    def _draw(self, rng: np.random.Generator) -> dict[str, Any]:
        while True:
            seed = self.seed_of_split(rng)
            if int(self._game.reset(seed=seed)[0]) in self._starts:
                return {"seed": seed}

    def _open(self, row: Mapping[str, Any]) -> tuple[gymnasium.Env[Any, Any], Any]:
        return self._game, self._game.reset(seed=row["seed"])[0]

    def _won(self, reward: float, terminated: bool) -> bool:
        return terminated

    def _event(self, before: Any, action: int, after: Any, reward: float, terminated: bool) -> str:
        if terminated:
            return "The passenger is where the passenger wanted to go."
        if reward == -10:
            return "There is nobody to pick up here." if action == 4 else "Nobody can be dropped off here."
        if action == 4:
            return "The passenger got in."
        if action == 5:
            return f"The passenger got out at {STOPS[self._game.decode(int(after))[2]]}, and is not where the passenger wants to go."
        old, new = self._game.decode(int(before)), self._game.decode(int(after))
        return "The taxi did not move." if old[:2] == new[:2] else "The passenger changed the destination." if old[3] != new[3] else ""


class CliffWalkingTextEnv(_TabularEnv):
    """Walking along a cliff. Rewards are Gymnasium's: -1 a step, -100 for a fall, which leads back to the start S; the goal ends the episode, which is success.

    Args:
        start: "random": any cell that is neither cliff nor goal, dealt to the splits; or "fixed": Gymnasium's, in all of them.
        is_slippery: whether steps slip to the sides.
        split: "train", "validation" or "test".
        max_turns: replies that an episode has.
        invalid_penalty: taken off for a reply that names no action; as much as a step costs, so that silence is no better.
        **kwargs: see `CommandEnv`.

    Raises:
        ValueError: for keywords that cannot be used.
    """

    game: ClassVar[str] = "CliffWalking"
    task_keys: ClassVar[tuple[str, ...]] = ("seed", "start")

    def __init__(
        self, *, start: str = "random", is_slippery: bool = False, max_turns: int = 50, invalid_penalty: float = 1.0, **kwargs: Any
    ) -> None:
        if start not in ("random", "fixed"):
            raise ValueError(f"start must be 'random' or 'fixed', not {start!r}")
        settings = {"start": start, "is_slippery": switch("is_slippery", is_slippery)}
        super().__init__(max_turns=max_turns, invalid_penalty=invalid_penalty, settings=settings, **kwargs)
        self.chance = is_slippery
        self._game = CliffWalkingEnv(is_slippery=is_slippery)
        self._fixed = int(np.flatnonzero(self._game.initial_state_distrib)[0])
        self._safe = list(range(self._fixed + 1))  # all but the cliff, which is the rest of the last row, and the goal at its end
        self._starts = [self._fixed] if start == "fixed" else sorted(map(int, shares(map(str, self._safe))[self.split]))

    def _draw(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"seed": self.seed_of_split(rng), "start": self._starts[int(rng.integers(len(self._starts)))]}

    def _checked(self, row: Mapping[str, Any]) -> dict[str, Any]:
        start = whole_number("options['task']['start']", row.get("start", self._fixed))
        if start not in self._safe:
            raise ValueError(
                f"options['task']['start'] must be a cell from 0 to {self._safe[-1]} (12 times the row and the column), not {start}"
            )
        return {"seed": row["seed"], "start": start}

    def _open(self, row: Mapping[str, Any]) -> tuple[gymnasium.Env[Any, Any], Any]:
        self._game.reset(seed=row["seed"])
        self._game.s = row["start"]
        return self._game, row["start"]

    def _won(self, reward: float, terminated: bool) -> bool:
        return terminated

    def _event(self, before: Any, action: int, after: Any, reward: float, terminated: bool) -> str:
        if terminated:
            return "You reached the goal."
        if reward == -100:
            return "You stepped onto the cliff, fell, and are at the start again."
        return "You did not move." if before == after else ""


def _total(hand: list[int]) -> int:
    return int(sum_hand(hand))  # type: ignore[no-untyped-call]  # Gymnasium's, without types


class BlackjackTextEnv(ToyTextEnv):
    """Blackjack against a dealer with fixed rules. Reward is 1, 0 or -1; success is a win. The best play wins about 43 of 100 games.

    The seeds of the games, and so the cards, are other ones in each split.

    Args:
        sab: Sutton and Barto's rules, as Gymnasium's id has them: a natural wins unless the dealer has one.
        natural: without `sab`: a win by a natural pays 1.5.
        split: "train", "validation" or "test".
        max_turns: replies that an episode has; no game needs so many.
        invalid_penalty: taken off for a reply that names no action; so much that not playing is worse than losing.
        **kwargs: see `CommandEnv`.

    Raises:
        ValueError: for keywords that cannot be used.
    """

    game: ClassVar[str] = "Blackjack"
    moving: ClassVar[tuple[str, ...]] = ("player", "dealer", "dealer_top_card_suit", "dealer_top_card_value_str")
    chance = True

    def __init__(
        self, *, sab: bool = True, natural: bool = False, max_turns: int = 20, invalid_penalty: float = 0.1, **kwargs: Any
    ) -> None:
        settings = {"sab": switch("sab", sab), "natural": switch("natural", natural)}
        super().__init__(max_turns=max_turns, invalid_penalty=invalid_penalty, settings=settings, **kwargs)
        self.sab, self.natural = sab, natural
        self._game = BlackjackEnv(sab=self.sab, natural=self.natural)

    def _open(self, row: Mapping[str, Any]) -> tuple[gymnasium.Env[Any, Any], Any]:
        return self._game, self._game.reset(seed=row["seed"])[0]

    def _event(self, before: Any, action: int, after: Any, reward: float, terminated: bool) -> str:
        drawn = self._game.player[-1]
        card = "an ace" if drawn == 1 else "a card that counts 10" if drawn == 10 else f"a {drawn}"
        if not terminated:
            return f"You got {card}."
        if action == 1:
            return f"You got {card} and went over 21: you lose."
        dealer = _total(self._game.dealer)
        result = "you win" if reward > 0 else "you lose" if reward < 0 else "a draw"
        return f"You stick at {_total(self._game.player)}, the dealer ends with {dealer}: {result}."

    def _described(self) -> str:
        text = super()._described()
        natural = len(self._game.player) == 2 and _total(self._game.player) == 21
        return f"{text} They are your first two: a natural." if natural else text

    def _best(self) -> int:
        return int(solve_blackjack(sab=self.sab, natural=self.natural).hit[tuple(int(one) for one in self._seen)])  # type: ignore[index]  # three numbers


def _split_of(rows: Sequence[str]) -> str:
    """The split that a map belongs to."""
    place = digest("/".join(rows)) % 10
    return "validation" if place == 8 else "test" if place == 9 else "train"


def _rows_of(given: Any) -> tuple[str, ...]:
    """The rows of a map that was given by name or as rows."""
    if isinstance(given, str):
        if given not in MAPS:
            raise ValueError(f"map must be 'generated', {', '.join(map(repr, MAPS))} or rows of S, F, H and G, not {given!r}")
        return tuple(MAPS[given])
    rows = tuple(str(row) for row in given) if isinstance(given, Sequence) else ()
    text = "".join(rows)
    usable = len(rows) > 1 and len({len(row) for row in rows}) == 1 and len(rows) == len(rows[0]) <= 16 and set(text) <= set("SFHG")
    if (
        not usable
        or text.count("S") != 1
        or not rows[0].startswith("S")
        or "G" not in text
        or not is_valid([list(row) for row in rows], len(rows))
    ):
        raise ValueError(
            f"a map is a square of 2 to 16 rows of S, F, H and G that begins with its one S and has a way from there to a G, not {given!r:.300}"
        )
    return rows
