"""A small house for the tests of the engine, written as the JSON object of a game file, with every peculiarity of the domain in reach."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from agent_gym.envs.alfworld.generator import domain_text, grammar_text

GOALS = {
    "pick_and_place_simple": "(exists (?r - receptacle ?o - object) (and (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r DrawerType)))",
    "look_at_obj_in_light": """(and
        (exists (?ot - object ?r - receptacle ?a - agent ?l - location)
          (and (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
        (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))""",
    "pick_clean_then_place_in_recep": """(exists (?r - receptacle) (exists (?o - object)
        (and (cleanable ?o) (isClean ?o) (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r DrawerType))))""",
    "pick_heat_then_place_in_recep": """(exists (?r - receptacle) (exists (?o - object)
        (and (heatable ?o) (isHot ?o) (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r DrawerType))))""",
    "pick_cool_then_place_in_recep": """(exists (?r - receptacle) (exists (?o - object)
        (and (coolable ?o) (isCool ?o) (inReceptacle ?o ?r) (objectType ?o MugType) (receptacleType ?r DrawerType))))""",
    "pick_two_obj_and_place": """(exists (?r - receptacle) (exists (?o1 - object)
        (and (objectType ?o1 MugType) (receptacleType ?r DrawerType) (inReceptacle ?o1 ?r)
          (exists (?o2 - object)
            (and (not (= ?o1 ?o2)) (objectType ?o2 MugType) (receptacleType ?r DrawerType) (inReceptacle ?o2 ?r))))))""",
}

RECEPTACLES = {
    # id: (kind, location or None, openable); cabinets 1 and 2 stand together
    "Cabinet|A": ("Cabinet", "loc|1", True),
    "Cabinet|B": ("Cabinet", "loc|1", True),
    "CounterTop|A": ("CounterTop", "loc|2", False),
    "Drawer|A": ("Drawer", "loc|3", True),
    "Fridge|A": ("Fridge", "loc|4", True),
    "Microwave|A": ("Microwave", "loc|5", True),
    "Shelf|A": ("Shelf", None, False),
    "Sink|A|SinkBasin": ("SinkBasin", "loc|6", False),
}
OBJECTS = {
    # id: (kind, the receptacles it is in, properties)
    "Apple|A": ("Apple", ["CounterTop|A"], ["pickupable", "cleanable", "heatable", "coolable", "sliceable"]),
    "Apple|B": ("Apple", ["Fridge|A"], ["pickupable", "cleanable", "heatable", "coolable", "sliceable"]),
    "Bowl|A": ("Bowl", ["CounterTop|A", "Shelf|A"], ["pickupable", "isReceptacleObject"]),
    "Chair|A": ("Chair", [], []),
    "DeskLamp|A": ("DeskLamp", ["Drawer|A"], ["toggleable"]),
    "Knife|A": ("Knife", ["CounterTop|A"], ["pickupable", "cleanable"]),
    "Mug|A": ("Mug", ["Cabinet|A"], ["pickupable", "cleanable", "heatable", "coolable", "isReceptacleObject"]),
    "Mug|B": ("Mug", ["CounterTop|A"], ["pickupable", "cleanable", "heatable", "coolable", "isReceptacleObject"]),
    "Pen|A": ("Pen", ["Shelf|A"], ["pickupable"]),
}
_FITS = {
    "Cabinet": ["Bowl", "Mug", "Knife"],
    "CounterTop": ["Apple", "Bowl", "Knife", "Mug", "Pen"],
    "Drawer": ["Knife", "Mug", "Pen"],
    "Fridge": ["Apple", "Bowl", "Mug"],
    "Microwave": ["Apple", "Mug"],
    "SinkBasin": ["Apple", "Bowl", "Knife", "Mug"],
}


def escaped(name: str) -> str:
    """An id as it is written in the PDDL."""
    return name.replace("|", "_bar_")


def house(
    goal: str = "pick_and_place_simple",
    *,
    grammar: str = "move",
    task: str = "put a mug in drawer.",
    add: Iterable[str] = (),
    drop: str | None = None,
    objects: str = "",
) -> dict[str, Any]:
    """The house as a game.

    Args:
        goal: a task type, or the PDDL of a condition.
        grammar: "move" or "put".
        task: the text behind "Your task is to: ".
        add: more first facts, in the PDDL.
        drop: a pattern; the first facts that it matches are left out.
        objects: more declared objects, in the PDDL.
    """
    facts = ["(atLocation agent1 loc|0)", "(objectAtLocation Chair|A loc|2)", "(inReceptacleObject Pen|A Bowl|A)"]
    for name, (kind, place, openable) in RECEPTACLES.items():
        facts.append(f"(receptacleType {name} {kind}Type)")
        if place:
            facts.append(f"(receptacleAtLocation {name} {place})")
        if openable:
            facts.append(f"(openable {name})")
    for name, (kind, holders, properties) in OBJECTS.items():
        facts.append(f"(objectType {name} {kind}Type)")
        facts.extend(f"(inReceptacle {name} {holder})" for holder in holders)
        facts.extend(f"({word} {name})" for word in properties)
        place = RECEPTACLES[holders[0]][1] if holders else None
        if place:
            facts.append(f"(objectAtLocation {name} {place})")
    facts.extend(f"(canContain {kind}Type {other}Type)" for kind, others in _FITS.items() for other in others)
    facts = [fact for fact in facts if drop is None or not re.search(drop, fact)] + list(add)
    kinds = " ".join(sorted({f"{kind}Type" for kind, _, _ in OBJECTS.values()})) + " - otype\n"
    kinds += " ".join(sorted({f"{kind}Type" for kind, _, _ in RECEPTACLES.values()})) + " - rtype\n"
    places = " ".join(f"loc|{number}" for number in range(7))
    declared = f"agent1 - agent {places} - location {' '.join(OBJECTS)} - object {' '.join(RECEPTACLES)} - receptacle\n{kinds}{objects}"
    problem = "(define (problem house) (:domain alfred)\n(:objects {})\n(:init {})\n(:goal {}))".format(
        declared, "\n".join(facts), GOALS.get(goal, goal)
    )
    return {
        "pddl_domain": domain_text(grammar),
        "grammar": grammar_text(grammar).replace("UNKNOWN GOAL.", json.dumps(task)[1:-1]),
        "pddl_problem": escaped(problem),
        "solvable": True,
    }
