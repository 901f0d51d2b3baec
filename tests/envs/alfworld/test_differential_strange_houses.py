"""Both engines say the same in houses that no generator would build: things in two places or in none, receptacles without a place, any first state."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest
from differential import SideBySide, remembered_parses
from differential_plays import nonsense, opening, tour, wander

from agent_gym.envs.alfworld.game import TASK_TYPES, GameError, parse_game
from agent_gym.envs.alfworld.generator import generate_game

Fact = tuple[str, ...]
PROPERTIES = ("cleanable", "heatable", "coolable", "sliceable", "toggleable", "pickupable", "isReceptacleObject")
CONDITIONS = ("isClean", "isHot", "isCool", "isSliced", "isToggled", "isOn")


def strange(data: dict[str, Any], rng: random.Random, changes: Counter[str]) -> dict[str, Any]:
    """The game with a few of its first facts changed."""
    before, rest = data["pddl_problem"].split("(:init")
    init, after = rest.split("(:goal")
    facts: list[Fact] = [tuple(words.split()) for words in re.findall(r"\(([^()]+)\)", init)]
    places = [fact for fact in facts if fact[0] == "receptacleAtLocation"]
    things = [fact[1] for fact in facts if fact[0] == "objectType"]
    agent = next(fact for fact in facts if fact[0] == "atLocation")
    for _ in range(rng.randint(4, 16)):
        thing, (_, receptacle, location), other = rng.choice(things), rng.choice(places), rng.choice(places)
        change = rng.choice(sorted(CHANGES))
        changes[change] += 1
        if change == "a thing in one place more":
            facts.append(("inReceptacle", thing, receptacle))
        elif change == "a thing on the floor":
            facts.append(("objectAtLocation", thing, location))
        elif change == "a thing nowhere":
            facts = [fact for fact in facts if fact[0] not in ("inReceptacle", "objectAtLocation") or fact[1] != thing]
        elif change == "a thing in a thing":
            facts += [("inReceptacleObject", thing, rng.choice(things)), ("isReceptacleObject", rng.choice(things))]
        elif change == "a receptacle elsewhere":
            facts = [(*fact[:2], other[2]) if fact[:2] == ("receptacleAtLocation", receptacle) else fact for fact in facts]
        elif change == "a receptacle nowhere":
            facts = [fact for fact in facts if fact[:2] != ("receptacleAtLocation", receptacle)]
        elif change == "an open receptacle":
            facts += [("opened", receptacle), *([("openable", receptacle)] if rng.random() < 0.7 else [])]
        elif change == "begin at a receptacle":
            facts = [(*agent[:2], location) if fact[0] == "atLocation" else fact for fact in facts]
        elif change == "begin with a thing in hand":
            if not any(fact[0] == "holdsAny" for fact in facts):
                facts = [fact for fact in facts if fact[0] not in ("inReceptacle", "objectAtLocation") or fact[1] != thing]
                facts += [("holds", agent[1], thing), ("holdsAny", agent[1])]
        elif change == "another property":
            facts.append((rng.choice(PROPERTIES), thing))
        elif change == "another condition":
            facts.append((rng.choice(CONDITIONS), thing))
        elif change == "a thing or receptacle of no kind":
            facts = [
                fact for fact in facts if fact[0] not in ("objectType", "receptacleType") or fact[1] != rng.choice((thing, receptacle))
            ]
    told = "\n".join(f"({' '.join(fact)})" for fact in dict.fromkeys(facts))
    return {**data, "pddl_problem": f"{before}(:init\n{told}\n)\n(:goal{after}"}


CHANGES = {
    "a thing in one place more",
    "a thing on the floor",
    "a thing nowhere",
    "a thing in a thing",
    "a receptacle elsewhere",
    "a receptacle nowhere",
    "an open receptacle",
    "begin at a receptacle",
    "begin with a thing in hand",
    "another property",
    "another condition",
    "a thing or receptacle of no kind",
}


@pytest.mark.slow
@pytest.mark.parametrize("grammar", ["move", "put"])
def test_strange_houses_are_played_alike(grammar: str) -> None:
    changes: Counter[str] = Counter()
    played = 0
    with remembered_parses():
        pair = SideBySide()
        number = 0
        while played < 24:
            number += 1
            rng = random.Random(f"{grammar} {number}")
            data = generate_game("train", number, grammar=grammar, level="small", task_types=[TASK_TYPES[number % 6]])
            data = strange(data, rng, changes)
            try:
                house = parse_game(data, where=f"strange house {number}, {grammar}")
            except GameError:  # the task cannot be done any more
                continue
            played += 1
            pair.begin(house)
            wander(pair, rng, 10)
            if len(pair.starting_with("go to ")) >= 2:
                opening(pair, rng)
            nonsense(pair, rng)
            tour(pair, rng)
            wander(pair, rng, 30)
        pair.stock.close()
    assert set(changes) == CHANGES and pair.coverage.steps > 2000
