"""The facts of a household that a game's wording may ask for, each predicate as a relation over the running simulator.

A relation gives its rows for a pattern: the ids that are known, None where any will do. Rows come in the order of their ids, which is the order in
which the original engine finds facts, and so the order of every list that it prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from agent_gym.envs.alfworld.game import Game

__all__ = ["RELATIONS", "Pattern", "Relation", "Row", "World"]

Row: TypeAlias = tuple[str, ...]
Pattern: TypeAlias = "tuple[str | None, ...]"


class World(Protocol):
    """What the wording sees of a simulator.

    Attributes:
        game: the game that is played.
        location: where the agent is.
        holding: the object in its hands, or None.
        opened: the open receptacles.
        inside: for each receptacle its objects, in order.
        lying: for each location the objects that are recorded as being there, in order.
        missed: (object, receptacle) for each object that was taken out and not put back.
        cleaned, heated, cooled, sliced, toggled: the objects that this happened to.
    """

    game: Game
    location: str
    holding: str | None
    opened: set[str]
    inside: dict[str, tuple[str, ...]]
    lying: dict[str, tuple[str, ...]]
    missed: set[tuple[str, str]]
    cleaned: set[str]
    heated: set[str]
    cooled: set[str]
    sliced: set[str]
    toggled: set[str]

    @property
    def names(self) -> Mapping[str, str]:
        """The printed name of every id."""
        ...


@dataclass(frozen=True)
class Relation:
    """One predicate.

    Attributes:
        types: the types of its arguments.
        rows: (world, pattern) to the rows that fit the pattern, in order.
        static: whether no action changes it.
    """

    types: tuple[str, ...]
    rows: Callable[[World, Pattern], Iterable[Row]]
    static: bool


def _set_of(kind: str, members: Callable[[World], Iterable[str]], *, static: bool = False) -> Relation:
    """A property of things, from the set of those that have it."""

    def rows(world: World, pattern: Pattern) -> Iterable[Row]:
        known = pattern[0]
        having = members(world)
        if known is None:
            return [(member,) for member in sorted(having)]
        return ((known,),) if known in having else ()

    return Relation((kind,), rows, static)


def _pairs(
    first: str,
    second: str,
    of_second: Callable[[World, str], Sequence[str]],
    seconds: Callable[[World], Iterable[str]],
    *,
    static: bool = False,
) -> Relation:
    """A relation of two things, from the ordered firsts of each second."""

    def rows(world: World, pattern: Pattern) -> Iterable[Row]:
        one, other = pattern
        if other is not None:
            found = of_second(world, other)
            if one is None:
                return [(member, other) for member in found]
            return ((one, other),) if one in found else ()
        if one is not None:
            return [(one, each) for each in sorted(seconds(world)) if one in of_second(world, each)]
        return sorted((member, each) for each in seconds(world) for member in of_second(world, each))

    return Relation((first, second), rows, static)


RELATIONS: Mapping[str, Relation] = MappingProxyType(
    {
        "atlocation": _pairs(
            "agent",
            "location",
            lambda world, place: (world.game.agent,) if place == world.location else (),
            lambda world: (world.location,),
        ),
        "holds": _pairs(
            "agent",
            "object",
            lambda world, thing: (world.game.agent,) if thing == world.holding else (),
            lambda world: () if world.holding is None else (world.holding,),
        ),
        "holdsany": _set_of("agent", lambda world: () if world.holding is None else (world.game.agent,)),
        "receptacleatlocation": _pairs(
            "receptacle",
            "location",
            lambda world, place: world.game.receptacles_at.get(place, ()),
            lambda world: world.game.receptacles_at,
            static=True,
        ),
        "objectatlocation": _pairs("object", "location", lambda world, place: world.lying.get(place, ()), lambda world: world.lying),
        "inreceptacle": _pairs("object", "receptacle", lambda world, holder: world.inside.get(holder, ()), lambda world: world.inside),
        "not_inreceptacle": _pairs(
            "object",
            "receptacle",
            lambda world, holder: sorted(thing for thing, missing_in in world.missed if missing_in == holder),
            lambda world: {missing_in for _, missing_in in world.missed},
        ),
        "inreceptacleobject": _pairs(
            "object",
            "object",
            lambda world, holder: world.game.inner_objects.get(holder, ()),
            lambda world: world.game.inner_objects,
            static=True,
        ),
        "openable": _set_of("receptacle", lambda world: world.game.having["openable"], static=True),
        "opened": _set_of("receptacle", lambda world: world.opened),
        "pickupable": _set_of("object", lambda world: world.game.having["pickupable"], static=True),
        "cleanable": _set_of("object", lambda world: world.game.having["cleanable"], static=True),
        "heatable": _set_of("object", lambda world: world.game.having["heatable"], static=True),
        "coolable": _set_of("object", lambda world: world.game.having["coolable"], static=True),
        "sliceable": _set_of("object", lambda world: world.game.having["sliceable"], static=True),
        "toggleable": _set_of("object", lambda world: world.game.having["toggleable"], static=True),
        "isreceptacleobject": _set_of("object", lambda world: world.game.having["isreceptacleobject"], static=True),
        "isclean": _set_of("object", lambda world: world.cleaned),
        "ishot": _set_of("object", lambda world: world.heated),
        "iscool": _set_of("object", lambda world: world.cooled),
        "issliced": _set_of("object", lambda world: world.sliced),
        "istoggled": _set_of("object", lambda world: world.toggled),
        # The original engine records that something is not so only where an action undid it, and no action untoggles.
        "not_istoggled": _set_of("object", lambda world: (), static=True),
    }
)
"""Every predicate that a wording may ask for. What no wording of the original asks for (`ison`, `checked` ...) is refused."""
