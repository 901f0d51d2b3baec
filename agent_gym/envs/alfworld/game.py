"""One game of ALFWorld, read from the official file's JSON object: the house, the task, the first state, and how it speaks.

A game file (`game.tw-pddl`) holds a PDDL domain and problem, a grammar, and whether a planner solved it. `parse_game` checks all of it and turns it
into a frozen `Game`, which any number of simulators may share. What the simulator would not play exactly as the original engine does is refused by a
`GameError` that names the file and the reason.
"""

from __future__ import annotations

import json
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from agent_gym.envs.alfworld.domain import TYPES, Domain, DomainError, read_domain
from agent_gym.envs.alfworld.goals import TASK_TYPES, Goal, can_be_reached, read_goal
from agent_gym.envs.alfworld.pddl import Expression, PDDLError, parse_pddl, typed_list
from agent_gym.envs.alfworld.wording import Wording, WordingError, compile_wording, split_task

__all__ = ["MAX_BYTES", "TASK_TYPES", "Game", "GameError", "Goal", "Object", "Receptacle", "SimulatorState", "parse_game", "read_game"]

_TEXTS = ("pddl_domain", "grammar", "pddl_problem")
_TASK_PREFIX = "Your task is to: "
MAX_BYTES = 4_000_000
"""No game has more; larger files are not read."""
_MAX_FACTS = 5_000


class GameError(ValueError):
    """A game that cannot be played.

    Attributes:
        where: the file, or what else the game came from.
        reason: why not.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


@dataclass(frozen=True)
class Receptacle:
    """A place for objects.

    Attributes:
        id: its name in the PDDL, in lower case.
        name: its printed name, such as "cabinet 1".
        type: its kind, such as "Cabinet"; empty where the file gives none.
        location: the PDDL name of the location where it stands, or None: then nobody can go there.
        openable: whether it can be opened and closed.
    """

    id: str
    name: str
    type: str
    location: str | None
    openable: bool


@dataclass(frozen=True)
class Object:
    """A thing in the house.

    Attributes:
        id: its name in the PDDL, in lower case.
        name: its printed name, such as "mug 2".
        type: its kind, such as "Mug"; empty where the file gives none.
        receptacles: the receptacles it is in at first; mostly one, sometimes none or two.
        pickupable, cleanable, heatable, coolable, sliceable, toggleable: what can be done with it.
        is_receptacle: whether other objects can be in it (this shows only when it is examined).
    """

    id: str
    name: str
    type: str
    receptacles: tuple[str, ...]
    pickupable: bool
    cleanable: bool
    heatable: bool
    coolable: bool
    sliceable: bool
    toggleable: bool
    is_receptacle: bool


class SimulatorState(NamedTuple):
    """The situation in a game, without its history: equal exactly when everything that can follow is the same.

    Attributes:
        location: where the agent is (PDDL name).
        holding: the object in its hands, or None.
        opened: the open receptacles.
        inside: the objects of each receptacle, in the order of `Game.receptacles`.
        lying: the objects recorded at each location, in the order of `Game.locations`.
        missed: (object, receptacle) for objects that were taken out of one of several receptacles that stand together, and not put back. `look`
            prints them as lying beside it when they are put into a neighbour, as the original does.
        cleaned, heated, cooled, sliced, toggled: the objects that this holds of.
    """

    location: str
    holding: str | None
    opened: frozenset[str]
    inside: tuple[tuple[str, ...], ...]
    lying: tuple[tuple[str, ...], ...]
    missed: frozenset[tuple[str, str]]
    cleaned: frozenset[str]
    heated: frozenset[str]
    cooled: frozenset[str]
    sliced: frozenset[str]
    toggled: frozenset[str]


@dataclass(frozen=True, eq=False)
class Game:
    """A game, ready to be played.

    Attributes:
        where: the file, or what else it came from.
        data: the JSON object that it was made from, without the keys that are not looked at.
        task: the task as printed behind "Your task is to: ".
        grammar: the wording of putting something down, "move" (`move X to Y`, alfworld 0.4) or "put" (`put X in/on Y`, before).
        goal: what wins.
        receptacles: by id, in the order of the ids.
        objects: by id, in the order of the ids.
        can_contain: for each kind of receptacle the kinds of objects that may be put there.
        agent: the agent's PDDL name.
        locations: all locations that the game mentions, in order.
        names: the printed name of every id that the game mentions.
        receptacles_at: for each location the receptacles that stand there, in order.
        inner_objects: for each object that is a receptacle the objects in it, in order.
        having: for each fixed property (`openable`, `pickupable` ...) the ids that have it.
        domain: which actions there are.
        wording: how it speaks.
        task_line: the whole printed line of the task.
        first: the state at the beginning.
        tools: for `cleanobject`, `heatobject`, `coolobject` the kinds of receptacle that serve, for `sliceobject` the kinds of object.
        candidates: the objects that the goal may be fulfilled with, whatever has to be done to them first.
        targets: the receptacles that the goal may be fulfilled in.
        beside: for each receptacle the kinds of objects that may be put into another one at the same location.
    """

    where: str
    data: Mapping[str, Any] = field(repr=False)
    task: str
    grammar: Literal["move", "put"]
    goal: Goal
    receptacles: Mapping[str, Receptacle]
    objects: Mapping[str, Object]
    can_contain: Mapping[str, frozenset[str]]
    agent: str
    locations: tuple[str, ...] = field(repr=False)
    names: Mapping[str, str] = field(repr=False)
    receptacles_at: Mapping[str, tuple[str, ...]] = field(repr=False)
    inner_objects: Mapping[str, tuple[str, ...]] = field(repr=False)
    having: Mapping[str, frozenset[str]] = field(repr=False)
    domain: Domain = field(repr=False)
    wording: Wording = field(repr=False)
    task_line: str = field(repr=False)
    first: SimulatorState = field(repr=False)
    tools: Mapping[str, frozenset[str]] = field(repr=False)
    candidates: frozenset[str] = field(repr=False)
    targets: tuple[str, ...] = field(repr=False)
    beside: Mapping[str, frozenset[str]] = field(repr=False)

    @property
    def task_type(self) -> str:
        """One of `TASK_TYPES`."""
        return self.goal.task_type

    def __reduce__(self) -> tuple[Any, ...]:
        """Games are pickled as their texts and read again."""
        return _parse_again, (dict(self.data), self.where)

    def __deepcopy__(self, memo: dict[int, Any]) -> Game:
        """Nothing in a game changes, so a copy of what holds it may hold the same one."""
        return self

    def fits_beside(self, thing: str, receptacle: str) -> bool:
        """Whether an object may be put into another receptacle that stands where this one does.

        Args:
            thing: the object's id.
            receptacle: the receptacle's id.

        Returns:
            True where it may.
        """
        return self.objects[thing].type in self.beside[receptacle]


def read_game(path: str | Path) -> Game:
    """Read a game file.

    Args:
        path: a `game.tw-pddl`.

    Returns:
        The game.

    Raises:
        GameError: the file is missing or cannot be read, or holds no game that can be played (see `parse_game`).
    """
    path = Path(path)
    where = str(path)
    unsupported = [word for word in ("movable", "Sliced") if any(word in part for part in path.parts[-3:])]
    if unsupported:
        raise GameError(where, f"games of the kind {unsupported[0]!r} are not among the six task types; the original leaves them out too")
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise GameError(where, "it is no file that could be read to its end")
        size = facts.st_size
        data = json.loads(path.read_text(encoding="utf-8")) if size <= MAX_BYTES else {}
    except OSError as error:
        raise GameError(where, f"the file cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise GameError(where, f"the file is no JSON: {error}") from None
    if size > MAX_BYTES:
        raise GameError(where, f"the file has {size:,} bytes, and no game has more than {MAX_BYTES:,}")
    return parse_game(data, where=where)


def parse_game(data: Mapping[str, Any], *, where: str) -> Game:
    """Make a game from the JSON object of a game file.

    Args:
        data: `pddl_domain`, `grammar`, `pddl_problem` (texts) and `solvable`; other keys are not looked at.
        where: the file, or what else it came from, for messages.

    Returns:
        The game.

    Raises:
        GameError: a key is missing or of another type, the game is not marked as solvable, its goal is not one of the six, or something in it is
            not understood or not played by the fast engine.
    """
    if not isinstance(data, Mapping):
        raise GameError(where, f"a game is a JSON object, and this is a {type(data).__name__}")
    for key in _TEXTS:
        if key not in data:
            raise GameError(where, f"it has no {key!r}")
        if not isinstance(data[key], str):
            raise GameError(where, f"its {key!r} should be a text and is a {type(data[key]).__name__}")
    if data.get("solvable") is not True:
        said = (
            "says nothing about whether it is" if "solvable" not in data else f"is marked solvable={data['solvable']!r:.20}, so it is not"
        )
        raise GameError(where, f"it {said} solvable; the original leaves such games out too")
    try:
        domain = read_domain(data["pddl_domain"])
        grammar, task_line = split_task(data["grammar"])
        wording = compile_wording(grammar, domain.actions)
        kept = MappingProxyType({**{key: data[key] for key in _TEXTS}, "solvable": True})
        game = _Problem(where, data["pddl_problem"], domain).game(kept, wording, task_line)
    except (DomainError, WordingError) as error:
        raise GameError(where, f'{error}; engine="textworld" may play it') from None
    except PDDLError as error:
        raise GameError(where, f"its PDDL problem cannot be read: {error}") from None
    if not can_be_reached(game):
        raise GameError(where, "its goal cannot be reached, whatever is done: what it asks for is not in the house or out of reach")
    return game


def _parse_again(data: Mapping[str, Any], where: str) -> Game:
    return parse_game(data, where=where)


# ---------------------------------------------------------------------------------------------------------------- the problem

_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "openable": "receptacle",
        "opened": "receptacle",
        "pickupable": "object",
        "cleanable": "object",
        "heatable": "object",
        "coolable": "object",
        "sliceable": "object",
        "toggleable": "object",
        "isreceptacleobject": "object",
        "isclean": "object",
        "ishot": "object",
        "iscool": "object",
        "issliced": "object",
        "istoggled": "object",
    }
)
_FACTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{name: (kind,) for name, kind in _PROPERTIES.items()},
        "atlocation": ("agent", "location"),
        "receptacleatlocation": ("receptacle", "location"),
        "objectatlocation": ("object", "location"),
        "inreceptacle": ("object", "receptacle"),
        "inreceptacleobject": ("object", "object"),
        "receptacletype": ("receptacle", "rtype"),
        "objecttype": ("object", "otype"),
        "cancontain": ("rtype", "otype"),
        "holds": ("agent", "object"),
        "holdsany": ("agent",),
    }
)
# Facts that change nothing and are never shown; the official files hold none of them.
_IGNORED = frozenset(
    {"ison", "checked", "examined", "full", "moveable", "wasinreceptacle", "isreceptacleobjectfull", "holdsanyreceptacleobject"}
)
_ESCAPES = (("_bar_", "|"), ("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ","))
_KIND_WORD = re.compile(r"\b(\w+)Type\b")


class _Problem:
    """The PDDL problem of a game: its objects, first facts and goal."""

    def __init__(self, where: str, text: str, domain: Domain) -> None:
        self.where = where
        self.domain = domain
        self.written_kinds: dict[str, str] = {word.lower() + "type": word for word in _KIND_WORD.findall(text)}
        sections = self._sections(parse_pddl(text))
        self.types = self._declared(sections[":objects"])
        self.facts, self.mentioned = self._read_facts(sections[":init"])
        if len(sections[":goal"]) != 1:
            raise self._error(f"its goal should be one condition and is {len(sections[':goal'])}")
        goal = read_goal(sections[":goal"][0], self._kind)
        if goal is None:
            raise self._error("its goal is none of the six kinds: " + ", ".join(TASK_TYPES))
        self.goal = goal

    def _error(self, reason: str) -> GameError:
        return GameError(self.where, reason)

    def _sections(self, parsed: tuple[Expression, ...]) -> dict[str, tuple[Expression, ...]]:
        sections: dict[str, tuple[Expression, ...]] = {}
        for section in parsed[1:]:
            if not isinstance(section, tuple) or not section or not isinstance(section[0], str):
                raise PDDLError("it holds a word or an empty bracket where a section should be")
            if section[0] in sections:
                raise PDDLError(f"it has two sections {section[0]:.40}")
            sections[section[0]] = section[1:]
        missing = [name for name in ("problem", ":domain", ":objects", ":init", ":goal") if name not in sections]
        if parsed[:1] != ("define",) or missing:
            raise PDDLError(f"it has no {', '.join(missing) or 'define'}")
        if sections[":domain"] != (self.domain.name,):
            raise PDDLError(f"it is a problem of another domain than {self.domain.name:.60}")
        return sections

    def _declared(self, words: tuple[Expression, ...]) -> dict[str, str]:
        types: dict[str, str] = {}
        for name, kind in typed_list(words):
            if name in types:
                raise self._error(f"it declares the object {name:.80} twice")
            if kind not in TYPES:
                raise self._error(f"its object {name:.80} has the type {kind:.40}, which is none of {', '.join(TYPES)}")
            types[name] = kind
        return types

    def _read_facts(self, facts: tuple[Expression, ...]) -> tuple[dict[str, list[tuple[str, ...]]], set[str]]:
        if len(facts) > _MAX_FACTS:
            raise self._error(f"it has {len(facts):,} first facts, and no game has more than {_MAX_FACTS:,}")
        found: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        mentioned: set[str] = set()
        for fact in facts:
            if not isinstance(fact, tuple) or not fact or not isinstance(fact[0], str):
                raise self._error("its first facts hold a word or an empty bracket")
            name: str = fact[0]
            arguments = fact[1:]
            if name in ("=", "not"):
                self._check_unused(fact)
                continue
            words = tuple(word for word in arguments if isinstance(word, str))
            undeclared = [word for word in words if word not in self.types]
            if len(words) != len(arguments) or undeclared:
                raise self._error(f"its fact {_shown(fact)} speaks of what is not declared")
            if name not in _FACTS and name not in _IGNORED:
                raise self._error(f'its fact {_shown(fact)} has a predicate that is not understood; engine="textworld" may play it')
            if name in _FACTS and tuple(self.types[word] for word in words) != _FACTS[name]:
                raise self._error(f"its fact {_shown(fact)} should be about {' and '.join(_FACTS[name])}")
            found[name].add(words)
            mentioned.update(words)
        return {name: sorted(rows) for name, rows in found.items()}, mentioned

    def _check_unused(self, fact: tuple[Expression, ...]) -> None:
        """Let through what says nothing: that something is not so, and whole numbers (costs and distances)."""
        if fact[0] == "not" and len(fact) == 2:
            return
        if fact[0] == "=" and len(fact) == 3 and isinstance(fact[2], str) and fact[2].isdigit():
            return
        raise self._error(f'its fact {_shown(fact)} is not understood; engine="textworld" may play it')

    def _rows(self, name: str) -> list[tuple[str, ...]]:
        return self.facts.get(name, [])

    def _having(self, name: str) -> frozenset[str]:
        return frozenset(row[0] for row in self._rows(name))

    def _kind(self, word: str) -> str:
        """The written name of a kind, without its ending: "Mug" for mugtype."""
        return self.written_kinds.get(word, word)

    def _only(self, name: str, what: str) -> dict[str, str]:
        """A relation in which each first has one second."""
        pairs: dict[str, str] = {}
        for first, second in self._rows(name):
            if first in pairs:
                raise self._error(f'{first:.80} has two {what}s, {pairs[first]:.80} and {second:.80}; engine="textworld" may play it')
            pairs[first] = second
        return pairs

    def game(self, data: Mapping[str, Any], wording: Wording, task_line: str) -> Game:
        """Put the game together."""
        if not task_line.startswith(_TASK_PREFIX):
            raise self._error(f"its task line should begin with {_TASK_PREFIX!r} and is {task_line!r:.120}")
        shape = wording.actions["putobject"].shape if "putobject" in wording.actions else ""
        if shape.split(" ")[0] not in ("move", "put"):
            raise self._error(f'its grammar puts things down by {shape!r:.80}, and not by move or put; engine="textworld" may play it')
        agents = self._rows("atlocation")
        if len(agents) != 1:
            raise self._error(f"it should say of one agent where it is, and says {len(agents)} such things")
        agent, location = agents[0]
        having = MappingProxyType({name: self._having(name) for name in _PROPERTIES})
        kinds = {thing: self._kind(kind) for name in ("receptacletype", "objecttype") for thing, kind in self._only(name, "kind").items()}
        locations = self._only("receptacleatlocation", "location")
        names = _printed_names(self.mentioned)
        inside = _grouped(self._rows("inreceptacle"))
        located = _grouped(self._rows("receptacleatlocation"))
        receptacles = {
            thing: Receptacle(thing, names[thing], kinds.get(thing, ""), locations.get(thing), thing in having["openable"])
            for thing in self._mentioned("receptacle")
        }
        held_in: dict[str, list[str]] = defaultdict(list)
        for thing, receptacle in self._rows("inreceptacle"):
            held_in[thing].append(receptacle)
        flags = ("pickupable", "cleanable", "heatable", "coolable", "sliceable", "toggleable", "isreceptacleobject")
        objects = {
            thing: Object(thing, names[thing], kinds.get(thing, ""), tuple(held_in[thing]), *(thing in having[flag] for flag in flags))
            for thing in self._mentioned("object")
        }
        can_contain: dict[str, set[str]] = defaultdict(set)
        for receptacle_kind, object_kind in self._rows("cancontain"):
            can_contain[self._kind(receptacle_kind)].add(self._kind(object_kind))
        places = self._mentioned("location")
        lying = _grouped(self._rows("objectatlocation"))
        first = SimulatorState(
            location=location,
            holding=self._held(agent),
            opened=having["opened"],
            inside=tuple(inside.get(receptacle, ()) for receptacle in receptacles),
            lying=tuple(lying.get(place, ()) for place in places),
            missed=frozenset(),
            cleaned=having["isclean"],
            heated=having["ishot"],
            cooled=having["iscool"],
            sliced=having["issliced"],
            toggled=having["istoggled"],
        )
        return Game(
            where=self.where,
            data=data,
            task=task_line.removeprefix(_TASK_PREFIX),
            grammar="move" if shape.startswith("move ") else "put",
            goal=self.goal,
            receptacles=MappingProxyType(receptacles),
            objects=MappingProxyType(objects),
            can_contain=MappingProxyType({kind: frozenset(members) for kind, members in can_contain.items()}),
            agent=agent,
            locations=places,
            names=MappingProxyType(names),
            receptacles_at=MappingProxyType(located),
            inner_objects=MappingProxyType(_grouped(self._rows("inreceptacleobject"))),
            having=having,
            domain=self.domain,
            wording=wording,
            task_line=task_line,
            first=first,
            tools=MappingProxyType({name: frozenset(map(self._kind, members)) for name, members in self.domain.tools.items()}),
            candidates=frozenset(thing.id for thing in objects.values() if self.goal.may_be_met_by(thing)),
            targets=tuple(each.id for each in receptacles.values() if each.type and each.type == self.goal.receptacle_type),
            beside=MappingProxyType(_beside(receptacles, located, can_contain)),
        )

    def _mentioned(self, kind: str) -> tuple[str, ...]:
        return tuple(sorted(word for word in self.mentioned if self.types[word] == kind))

    def _held(self, agent: str) -> str | None:
        held = self._rows("holds")
        if len(held) > 1 or [row[0] for row in held] != [row[0] for row in self._rows("holdsany")] or any(row[0] != agent for row in held):
            raise self._error("what it says of the agent's hands does not fit together (holds, holdsAny)")
        return held[0][1] if held else None


def _shown(fact: tuple[Expression, ...]) -> str:
    return f"({' '.join(map(str, fact))})"[:160]


def _grouped(pairs: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The firsts of each second, in order."""
    groups: dict[str, list[str]] = defaultdict(list)
    for first, second in pairs:
        groups[second].append(first)
    return {second: tuple(firsts) for second, firsts in groups.items()}


def _printed_names(ids: set[str]) -> dict[str, str]:
    """Name and number everything that the first facts mention, as the original does.

    The name is what stands before the first bar of the id, with "basin" behind it where that word is in the id (a sink's basin). Numbers count down in
    the order of the ids, so that the last has 1. An id without a bar keeps its text, with a blank behind it in place of a number.
    """
    base: dict[str, str] = {}
    counts: dict[str, int] = defaultdict(int)
    for word in sorted(ids):
        text = word
        for escape, mark in _ESCAPES:
            text = text.replace(escape, mark)
        name, bar, _ = text.partition("|")
        base[word] = name + "basin" if bar and "basin" in word else name
        counts[base[word]] += 1 if bar else 0
    names = {}
    for word in sorted(ids):
        name = base[word]
        if "_bar_" in word or "|" in word:
            names[word] = f"{name} {counts[name]}"
            counts[name] -= 1
        else:
            names[word] = f"{name} "
    return names


def _beside(
    receptacles: Mapping[str, Receptacle], located: Mapping[str, tuple[str, ...]], can_contain: Mapping[str, set[str]]
) -> dict[str, frozenset[str]]:
    """For each receptacle the kinds of objects that fit into another one at its location."""
    return {
        receptacle.id: frozenset(
            kind
            for other in located.get(receptacle.location or "", ())
            if other != receptacle.id
            for kind in can_contain.get(receptacles[other].type, ())
        )
        for receptacle in receptacles.values()
    }
