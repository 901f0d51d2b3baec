"""Household games, made from nothing: any number of them, in the format of the official game files.

A game is a function of (split, index, level, task types) and of nothing else: its own random generator is seeded with these words, so that it has
the same bytes in every process. It is drawn as a `_Sketch` (a layout of `rooms`, a task, and where every object begins), and then written down as
the official JSON object: the PDDL domain, the text grammar with the task in it, and the PDDL problem. Domain and grammars are our own
files beside this module; they play exactly as the official ones do.

Every game can be won, by construction: the objects of the task are in the room, some receptacle of the target type may hold them, the station
that the task needs is there, and nothing can be picked up that no receptacle would take back.

Splits never share a game. `valid_unseen` has rooms of its own. `train` and `valid_seen` play in the same rooms; which of the two a game belongs to is
decided by a hash of its signature (initial state and goal, without numbers), and a game of the wrong side is drawn again.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from agent_gym.envs.alfworld.game import TASK_TYPES
from agent_gym.envs.alfworld.rooms import (
    CONTAINERS,
    LAMPS,
    LEVELS,
    OBJECTS,
    RECEPTACLES,
    ROOMS,
    STATIONS,
    Kind,
    Layout,
    Level,
    layouts,
    pddl_id,
)

__all__ = [
    "SPLITS",
    "TASK_TYPES",
    "GameMeta",
    "GeneratedGame",
    "domain_text",
    "game_signature",
    "generate",
    "generate_game",
    "grammar_text",
]

Split = Literal["train", "valid_seen", "valid_unseen"]
Wording = Literal["move", "put"]

SPLITS: tuple[Split, ...] = get_args(Split)
_SEEN_SHARE = 4  # one game in so many, of those in known rooms, belongs to valid_seen
_COUNTS = ((1, 0.45), (2, 0.30), (3, 0.25))  # how many of a type stand in a room, and how often
_LAMP_HOMES = (("Desk", "SideTable", "Dresser", "Shelf"), ("CoffeeTable", "DiningTable"))  # the first group that is there holds the lamp
_NESTED_SHARE = 0.1  # how many games have something in a bowl, a mug or the like
_OVERLAP_SHARE = 0.8  # how often a thing in the first of two overlapping receptacles counts as standing in both

_ROOM_OF_TASK: Mapping[str, Mapping[Kind, float]] = {
    "pick_and_place_simple": {"kitchen": 0.35, "living": 0.25, "bedroom": 0.25, "bathroom": 0.15},
    "look_at_obj_in_light": {"living": 0.35, "bedroom": 0.65},
    "pick_clean_then_place_in_recep": {"kitchen": 0.7, "bathroom": 0.3},
    "pick_heat_then_place_in_recep": {"kitchen": 1.0},
    "pick_cool_then_place_in_recep": {"kitchen": 1.0},
    "pick_two_obj_and_place": {"kitchen": 0.35, "living": 0.25, "bedroom": 0.25, "bathroom": 0.15},
}

_USE_OF_TASK: Mapping[str, str] = {
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
}

_TASK_TEXTS: Mapping[str, tuple[str, str]] = {
    "pick_and_place_simple": ("put a {obj} in {recep}.", "put some {obj} on {recep}."),
    "look_at_obj_in_light": ("look at {obj} under the {toggle}.", "examine the {obj} with the {toggle}."),
    "pick_clean_then_place_in_recep": ("put a clean {obj} in {recep}.", "clean some {obj} and put it in {recep}."),
    "pick_heat_then_place_in_recep": ("put a hot {obj} in {recep}.", "heat some {obj} and put it in {recep}."),
    "pick_cool_then_place_in_recep": ("put a cool {obj} in {recep}.", "cool some {obj} and put it in {recep}."),
    "pick_two_obj_and_place": ("put two {obj} in {recep}.", "find two {obj} and put them in {recep}."),
}


@dataclass(frozen=True)
class GameMeta:
    """What a game is about, in the words of the official `traj_data.json`.

    Attributes:
        split: the split.
        index: the number of the game in its split.
        level: "full" or "small".
        grammar: "move" for the current wording, "put" for that of releases before 0.4.
        task_type: one of `TASK_TYPES`.
        task: the task text, final dot included.
        object_target: the type of the object to deal with.
        parent_target: the type of the receptacle to put it in, or "".
        toggle_target: the type of the lamp to use, or "".
        scene: the number of the room.
        template: which of the two task texts was taken.
    """

    split: Split
    index: int
    level: Level
    grammar: Wording
    task_type: str
    task: str
    object_target: str
    parent_target: str
    toggle_target: str
    scene: int
    template: int

    @property
    def folder(self) -> str:
        """The name of the folder of the task in the official layout."""
        return f"{self.task_type}-{self.object_target}-None-{self.parent_target or self.toggle_target}-{self.scene}"

    @property
    def trial(self) -> str:
        """The name of the folder of the game, inside that of the task."""
        return f"trial_{self.level}_{self.split}_{self.index:07d}"


@dataclass(frozen=True)
class GeneratedGame:
    """A game and what it is about.

    Attributes:
        data: the official JSON object of a game file.
        meta: what the game is about.
    """

    data: dict[str, Any]
    meta: GameMeta


def generate_game(
    split: str, index: int, *, grammar: str = "move", level: str = "full", task_types: Collection[str] = TASK_TYPES
) -> dict[str, Any]:
    """Make a game.

    Args:
        split: "train", "valid_seen" or "valid_unseen".
        index: any number from 0; every number is a game.
        grammar: "move" (current wording: `move X to Y`) or "put" (before 0.4: `put X in/on Y`); the game is the same one.
        level: "full" (rooms like the real ones) or "small" (five to eight receptacles, four to seven objects).
        task_types: the task types to draw from; their order does not matter.

    Returns:
        The official JSON object: "pddl_domain", "grammar", "pddl_problem" (texts) and "solvable" (True).

    Raises:
        ValueError: for a value that is not one of those above.
    """
    return generate(split, index, grammar=grammar, level=level, task_types=task_types).data


def generate(
    split: str, index: int, *, grammar: str = "move", level: str = "full", task_types: Collection[str] = TASK_TYPES
) -> GeneratedGame:
    """Make a game and say what it is about; see `generate_game`.

    Args:
        split: "train", "valid_seen" or "valid_unseen".
        index: any number from 0.
        grammar: "move" or "put".
        level: "full" or "small".
        task_types: the task types to draw from; their order does not matter.

    Returns:
        The game with its description.

    Raises:
        ValueError: for a value that is not one of those above.
    """
    _check("split", split, SPLITS)
    _check("grammar", grammar, get_args(Wording))
    _check("level", level, LEVELS)
    for task_type in task_types:
        _check("task type", task_type, TASK_TYPES)
    if not task_types or index < 0:
        raise ValueError(f"a game needs at least one task type and an index from 0; got task_types={task_types!r}, index={index}")
    sketch = _draw(split, index, level, tuple(each for each in TASK_TYPES if each in task_types))  # type: ignore[arg-type]  # checked above
    task = sketch.text()
    meta = GameMeta(
        split=split,  # type: ignore[arg-type]  # checked above
        index=index,
        level=level,  # type: ignore[arg-type]  # checked above
        grammar=grammar,  # type: ignore[arg-type]  # checked above
        task_type=sketch.task_type,
        task=task,
        object_target=sketch.target,
        parent_target=sketch.goal_receptacle,
        toggle_target=sketch.lamp,
        scene=sketch.layout.scene,
        template=sketch.template,
    )
    data = {
        "pddl_domain": domain_text(grammar),
        "grammar": grammar_text(grammar).replace("UNKNOWN GOAL.", task),
        "pddl_problem": _problem(sketch, meta.trial),
        "solvable": True,
    }
    return GeneratedGame(data, meta)


def _check(what: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}; it is one of {', '.join(allowed)}")


@cache
def domain_text(grammar: str = "move") -> str:
    """Return our PDDL domain.

    Args:
        grammar: "move" for the domain with the action `help`, "put" for that without (games with the old wording have no such command).

    Returns:
        The text of the domain.
    """
    folder = files("agent_gym.envs.alfworld")
    domain = folder.joinpath("domain.pddl").read_text(encoding="utf-8")
    if grammar == "put":
        return domain
    return domain.rstrip().removesuffix(")") + "\n" + folder.joinpath("help.pddl").read_text(encoding="utf-8") + ")\n"


@cache
def grammar_text(grammar: str = "move") -> str:
    """Return our text grammar, with the words `UNKNOWN GOAL` where the task belongs.

    Args:
        grammar: "move" or "put".

    Returns:
        The grammar in TextWorld's twl2 format.
    """
    return files("agent_gym.envs.alfworld").joinpath(f"grammar_{grammar}.twl2").read_text(encoding="utf-8")


# --- what a game consists of -----------------------------------------------------------------------------------------------------------


@dataclass
class _Thing:
    """A movable object: its id and type, and the receptacles (indices of the layout) that it stands in; the first says where it is."""

    pddl: str
    type: str
    inside: tuple[int, ...]


@dataclass
class _Sketch:
    """A game before it is written down."""

    layout: Layout
    task_type: str
    template: int
    target: str
    goal_receptacle: str
    lamp: str = ""
    things: list[_Thing] = field(default_factory=list)
    nested: list[tuple[int, int]] = field(default_factory=list)  # (inner, outer) indices of things
    start: int = 0

    def text(self) -> str:
        """The task in words."""
        words = {"obj": self.target.lower(), "recep": self.goal_receptacle.lower(), "toggle": self.lamp.lower()}
        return _TASK_TEXTS[self.task_type][self.template].format(**words)

    def signature(self) -> str:
        """What makes the game different from others; the same text that `game_signature` finds in the written game."""
        contents: list[list[str]] = [[] for _ in self.layout.receptacles]
        for thing in self.things:
            for index in thing.inside:
                contents[index].append(thing.type)
        for fixture in self.layout.fixtures:
            if fixture.inside >= 0:
                contents[fixture.inside].append(fixture.type)
        groups: dict[str, list[tuple[str, bool, list[str]]]] = {}
        for receptacle, content in zip(self.layout.receptacles, contents, strict=True):
            place = self.layout.places[receptacle.place]
            groups.setdefault(place, []).append((receptacle.type, receptacle.openable, content))
        nested = [(self.things[inner].type, self.things[outer].type) for inner, outer in self.nested]
        return _canonical((self.task_type, self.target, self.goal_receptacle or self.lamp), groups.values(), nested)


def _canonical(goal: tuple[str, ...], groups: Any, nested: Sequence[tuple[str, str]]) -> str:
    places = sorted(sorted((kind, openable, sorted(content)) for kind, openable, content in group) for group in groups)
    return f"{goal} {places} {sorted(nested)}"


# --- drawing a game --------------------------------------------------------------------------------------------------------------------


def _draw(split: Split, index: int, level: Level, task_types: tuple[str, ...]) -> _Sketch:
    attempt = 0
    while True:
        rng = random.Random(f"agent-gym household game {level} {split} {' '.join(task_types)} {index} {attempt}")
        sketch = _sketch(rng, split == "valid_unseen", level, task_types)
        if split == "valid_unseen" or _is_valid_seen(sketch.signature()) == (split == "valid_seen"):
            return sketch
        attempt += 1


def _is_valid_seen(signature: str) -> bool:
    return int.from_bytes(hashlib.blake2b(signature.encode(), digest_size=8).digest()) % _SEEN_SHARE == 0


def _sketch(rng: random.Random, unseen: bool, level: Level, task_types: tuple[str, ...]) -> _Sketch:
    task_type = rng.choice(task_types)
    kinds = _ROOM_OF_TASK[task_type]
    kind = rng.choices(tuple(kinds), tuple(kinds.values()))[0]
    rooms = [layout for layout in layouts(kind, level) if layout.unseen == unseen and _goals(layout, task_type)]
    layout = rng.choice(rooms)
    goals = _goals(layout, task_type)
    target = rng.choice(tuple(goals))
    sketch = _Sketch(layout, task_type, rng.randrange(2), target, rng.choice(goals[target]))
    _place_things(sketch, rng)
    sketch.start = rng.choice(_free_places(layout))
    return sketch


@cache
def _homes(layout: Layout, name: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the receptacles of a layout that may hold a type, and cumulated weights to draw one with."""
    found: list[int] = []
    weights: list[float] = []
    kinds = [receptacle.type for receptacle in layout.receptacles]
    total = 0.0
    for index, kind in enumerate(kinds):
        if kind in OBJECTS[name].homes:
            found.append(index)
            total += RECEPTACLES[kind].draw / kinds.count(kind) ** 0.5
            weights.append(total)
    return tuple(found), tuple(weights)


@cache
def _goals(layout: Layout, task_type: str) -> dict[str, tuple[str, ...]]:
    """Return what a task of this type can be about in a layout: object type -> receptacle types ("" for a task without one)."""
    here = sorted({receptacle.type for receptacle in layout.receptacles})
    use = _USE_OF_TASK.get(task_type, "")
    found: dict[str, tuple[str, ...]] = {}
    if use and STATIONS[use] not in here:
        return found
    if task_type == "look_at_obj_in_light" and not _lamp_spots(layout):
        return found
    for name in ROOMS[layout.kind].things:
        if use and use not in OBJECTS[name].uses:
            continue
        homes = [kind for kind in here if kind in OBJECTS[name].homes]
        if task_type == "look_at_obj_in_light":
            targets = [""] if homes else []
        else:
            targets = [kind for kind in homes if kind != STATIONS.get(use) and (len(homes) > 1 or use)]
        if targets:
            found[name] = tuple(targets)
    return found


@cache
def _lamp_spots(layout: Layout) -> tuple[int, ...]:
    for kinds in _LAMP_HOMES:
        spots = tuple(index for index, receptacle in enumerate(layout.receptacles) if receptacle.type in kinds)
        if spots:
            return spots
    return ()


@cache
def _free_places(layout: Layout) -> tuple[int, ...]:
    taken = {receptacle.place for receptacle in layout.receptacles}
    return tuple(place for place in range(len(layout.places)) if place not in taken)


def _place_things(sketch: _Sketch, rng: random.Random) -> None:
    """Put the movable objects into the room, such that the goal is neither reached at once nor out of reach."""
    layout = sketch.layout
    plan = ROOMS[layout.kind]
    if sketch.task_type == "look_at_obj_in_light":
        sketch.lamp = "DeskLamp"
    if sketch.lamp or (layout.level == "full" and _lamp_spots(layout) and rng.randrange(100) < plan.lamp):
        sketch.things.append(_Thing("DeskLamp", "DeskLamp", _inside(layout, "DeskLamp", rng.choice(_lamp_spots(layout)), rng)))
    for name in _types_here(sketch, rng):
        copies = 1
        if layout.level == "full":
            draw = rng.random()
            while draw >= _COUNTS[copies - 1][1] and copies < len(_COUNTS):
                draw -= _COUNTS[copies - 1][1]
                copies += 1
        if name == sketch.target and sketch.task_type == "pick_two_obj_and_place":
            copies = max(copies, 2)
        sketch.things.extend(_Thing(name, name, inside) for inside in _spots(sketch, name, copies, rng))
    if layout.level == "full" and rng.random() < _NESTED_SHARE:
        pairs = list(_possible_nests(sketch.things))
        if pairs:
            sketch.nested.append(rng.choice(pairs))
    _name_things(sketch, rng)


def _types_here(sketch: _Sketch, rng: random.Random) -> list[str]:
    layout = sketch.layout
    things = ROOMS[layout.kind].things
    if layout.level == "full":
        return [name for name, share in things.items() if name == sketch.target or (rng.randrange(100) < share and _homes(layout, name)[0])]
    others = [name for name in things if name != sketch.target and _homes(layout, name)[0]]
    return [sketch.target, *rng.sample(others, min(len(others), rng.randint(2, 4)))]


def _spots(sketch: _Sketch, name: str, copies: int, rng: random.Random) -> Iterator[tuple[int, ...]]:
    """Draw where the copies of a type stand."""
    layout = sketch.layout
    homes, weights = _homes(layout, name)
    at_goal = 1  # how many may stand in receptacles of the target type
    if name != sketch.target or sketch.task_type in _USE_OF_TASK or not sketch.goal_receptacle:
        at_goal = copies
    elif sketch.task_type == "pick_and_place_simple":
        at_goal = 0
    for _ in range(copies):
        while True:
            inside = _inside(layout, name, rng.choices(homes, cum_weights=weights)[0], rng)
            goal = any(layout.receptacles[index].type == sketch.goal_receptacle for index in inside)
            if not goal or at_goal:
                break
        at_goal -= goal
        yield inside


def _inside(layout: Layout, name: str, spot: int, rng: random.Random) -> tuple[int, ...]:
    for upper, lower in layout.overlaps:
        fits = name not in OBJECTS or layout.receptacles[lower].type in OBJECTS[name].homes
        if upper == spot and fits and rng.random() < _OVERLAP_SHARE:
            return (upper, lower)
    return (spot,)


def _possible_nests(things: Sequence[_Thing]) -> Iterator[tuple[int, int]]:
    for outer, container in enumerate(things):
        if container.type in CONTAINERS:
            for inner, thing in enumerate(things):
                if thing.inside == container.inside and thing.type in OBJECTS and container.type in OBJECTS[thing.type].homes:
                    yield inner, outer


def _name_things(sketch: _Sketch, rng: random.Random) -> None:
    """Give every thing its id; the numbers that players see follow from the positions in it."""
    taken = {receptacle.pddl for receptacle in sketch.layout.receptacles} | {fixture.pddl for fixture in sketch.layout.fixtures}
    for thing in sketch.things:
        while thing.pddl == thing.type or thing.pddl in taken:
            bits = rng.getrandbits(30)
            thing.pddl = pddl_id(thing.type, (bits % 700 - 350, bits // 700 % 200, bits // 140_000 % 700 - 350))
        taken.add(thing.pddl)


# --- writing a game down ---------------------------------------------------------------------------------------------------------------

_NAMED_TYPES = ("KnifeType", "ButterKnifeType")
_NAMED_PLACES = ("SinkBasinType", "MicrowaveType", "FridgeType")  # the domain names these, so every problem has to declare them


@cache
def _layout_lines(layout: Layout) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the declarations and the facts that all games of a layout have in common."""
    kinds = sorted({receptacle.type for receptacle in layout.receptacles})
    names = [
        "agent1 - agent",
        *(f"{place} - location" for place in layout.places),
        *(f"{receptacle.pddl} - receptacle" for receptacle in layout.receptacles),
        *(f"{fixture.pddl} - object" for fixture in layout.fixtures),
        *(f"{kind} - rtype" for kind in dict.fromkeys((*(f"{kind}Type" for kind in kinds), *_NAMED_PLACES))),
    ]
    facts: list[str] = []
    for receptacle in layout.receptacles:
        facts.append(f"(receptacleType {receptacle.pddl} {receptacle.type}Type)")
        facts.append(f"(receptacleAtLocation {receptacle.pddl} {layout.places[receptacle.place]})")
        if receptacle.openable:
            facts.append(f"(openable {receptacle.pddl})")
    for fixture in layout.fixtures:
        facts.append(f"(objectType {fixture.pddl} {fixture.type}Type)")
        facts.append(f"(objectAtLocation {fixture.pddl} {layout.places[fixture.place]})")
        if fixture.inside >= 0:
            facts.append(f"(inReceptacle {fixture.pddl} {layout.receptacles[fixture.inside].pddl})")
        if fixture.type in LAMPS:
            facts.append(f"(toggleable {fixture.pddl})")
    return tuple(names), tuple(facts)


@cache
def _type_facts(name: str) -> tuple[str, ...]:
    """Return the facts about every object of a type, with `{}` where its id belongs."""
    facts = [f"(objectType {{}} {name}Type)"]
    if name in LAMPS:
        facts.append("(toggleable {})")
    if name in OBJECTS:
        facts.append("(pickupable {})")
        facts.extend(f"({_FLAGS[use]} {{}})" for use in sorted(OBJECTS[name].uses))
    if name in CONTAINERS:
        facts.append("(isReceptacleObject {})")
    return tuple(facts)


_FLAGS = {"clean": "cleanable", "heat": "heatable", "cool": "coolable", "slice": "sliceable"}


def _problem(sketch: _Sketch, name: str) -> str:
    layout = sketch.layout
    names, facts = map(list, _layout_lines(layout))
    facts.append(f"(atLocation agent1 {layout.places[sketch.start]})")
    types = dict.fromkeys(thing.type for thing in sketch.things)
    kinds = dict.fromkeys(receptacle.type for receptacle in layout.receptacles)
    allowed = ((kind, each) for kind in kinds for each in types if each in OBJECTS and kind in OBJECTS[each].homes)
    facts.extend(f"(canContain {kind}Type {each}Type)" for kind, each in allowed)
    types.update(dict.fromkeys(fixture.type for fixture in layout.fixtures))
    names.extend(f"{each} - otype" for each in dict.fromkeys((*(f"{each}Type" for each in types), *_NAMED_TYPES)))
    for thing in sketch.things:
        names.append(f"{thing.pddl} - object")
        facts.extend(fact.format(thing.pddl) for fact in _type_facts(thing.type))
        facts.append(f"(objectAtLocation {thing.pddl} {layout.places[layout.receptacles[thing.inside[0]].place]})")
        facts.extend(f"(inReceptacle {thing.pddl} {layout.receptacles[index].pddl})" for index in thing.inside)
    facts.extend(f"(inReceptacleObject {sketch.things[inner].pddl} {sketch.things[outer].pddl})" for inner, outer in sketch.nested)
    goal = _GOALS.get(sketch.task_type, _GOAL_WITH_USE)
    flag, done = _GOAL_FLAGS.get(sketch.task_type, ("", ""))
    words = {"obj": sketch.target, "recep": sketch.goal_receptacle, "toggle": sketch.lamp, "flag": flag, "done": done}
    return _PROBLEM.format(name=name, names="\n    ".join(names), facts="\n    ".join(facts), goal=goal.format(**words))


_PROBLEM = """(define (problem {name})
  (:domain alfred)
  (:objects
    {names})
  (:init
    {facts})
  (:goal{goal}))
"""

_GOAL_FLAGS = {
    "pick_clean_then_place_in_recep": ("cleanable", "isClean"),
    "pick_heat_then_place_in_recep": ("heatable", "isHot"),
    "pick_cool_then_place_in_recep": ("coolable", "isCool"),
}

_GOAL_WITH_USE = """
    (and
      (exists (?r - receptacle)
        (exists (?o - object)
          (and
            ({flag} ?o)
            (objectType ?o {obj}Type)
            (receptacleType ?r {recep}Type)
            ({done} ?o)
            (inReceptacle ?o ?r)))))"""

_GOALS = {
    "pick_and_place_simple": """
    (and
      (exists (?r - receptacle)
        (exists (?o - object)
          (and
            (inReceptacle ?o ?r)
            (objectType ?o {obj}Type)
            (receptacleType ?r {recep}Type)))))""",
    "pick_two_obj_and_place": """
    (and
      (exists (?r - receptacle)
        (exists (?o1 - object)
          (and
            (objectType ?o1 {obj}Type)
            (receptacleType ?r {recep}Type)
            (inReceptacle ?o1 ?r)
            (exists (?o2 - object)
              (and
                (not (= ?o1 ?o2))
                (objectType ?o2 {obj}Type)
                (receptacleType ?r {recep}Type)
                (inReceptacle ?o2 ?r)))))))""",
    "look_at_obj_in_light": """
    (and
      (exists (?ot - object ?r - receptacle ?a - agent ?l - location)
        (and
          (objectType ?ot {toggle}Type)
          (toggleable ?ot)
          (isToggled ?ot)
          (receptacleAtLocation ?r ?l)
          (atLocation ?a ?l)
          (inReceptacle ?ot ?r)))
      (exists (?o - object ?a - agent)
        (and
          (objectType ?o {obj}Type)
          (holds ?a ?o))))""",
}


# --- telling games apart ---------------------------------------------------------------------------------------------------------------


def game_signature(data: Mapping[str, Any]) -> str:
    """Return what makes a game different from others: its initial state and goal, without object numbers and positions.

    Two games with different signatures are different games. The signature names, for each place, the types and openness of its receptacles and
    the types of what stands in them; what is nested in what; and task type, object type and target.

    Args:
        data: the JSON object of a game that was made here.

    Returns:
        The signature.
    """
    problem = data["pddl_problem"]
    facts: dict[str, list[tuple[str, ...]]] = {}
    init, goal = problem.split("(:goal", 1)
    for predicate, arguments in re.findall(r"\((\w+) ([^()]+)\)", init):
        facts.setdefault(predicate, []).append(tuple(arguments.split()))
    types = {thing: kind.removesuffix("Type") for thing, kind in facts["objectType"]}
    openable = {receptacle for (receptacle,) in facts.get("openable", [])}
    contents: dict[str, list[str]] = {receptacle: [] for receptacle, _ in facts["receptacleType"]}
    for thing, receptacle in facts.get("inReceptacle", []):
        contents[receptacle].append(types[thing])
    kinds = {receptacle: kind.removesuffix("Type") for receptacle, kind in facts["receptacleType"]}
    groups: dict[str, list[tuple[str, bool, list[str]]]] = {}
    for receptacle, place in facts["receptacleAtLocation"]:
        groups.setdefault(place, []).append((kinds[receptacle], receptacle in openable, contents[receptacle]))
    nested = [(types[inner], types[outer]) for inner, outer in facts.get("inReceptacleObject", [])]
    return _canonical(_goal_words(goal), groups.values(), nested)


def _goal_words(goal: str) -> tuple[str, str, str]:
    target = re.search(r"\(objectType \?o1? (\w+)Type\)", goal)
    parent = re.search(r"\(receptacleType \?r (\w+)Type\)", goal) or re.search(r"\(objectType \?ot (\w+)Type\)", goal)
    if target is None or parent is None:
        raise ValueError(f"this goal is none of the six task types: {goal.strip()[:200]}")
    for task_type, (_, done) in _GOAL_FLAGS.items():
        if f"({done} ?o)" in goal:
            return task_type, target[1], parent[1]
    if "?ot" in goal:
        return "look_at_obj_in_light", target[1], parent[1]
    return ("pick_two_obj_and_place" if "?o2" in goal else "pick_and_place_simple"), target[1], parent[1]
