"""What wins a game: the six kinds of goal, recognised in the PDDL whatever its variables are called, and whether a goal can be reached at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from agent_gym.envs.alfworld.pddl import Expression, typed_list

if TYPE_CHECKING:
    from agent_gym.envs.alfworld.game import Game, Object

__all__ = ["TASK_TYPES", "Goal", "can_be_reached", "goal_holds", "read_goal"]

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six kinds of task, in the order of the original's numbers 1 to 6."""


@dataclass(frozen=True)
class Goal:
    """What wins.

    Attributes:
        task_type: one of `TASK_TYPES`.
        object_type: the kind of object that is to be moved or looked at, such as "Mug".
        receptacle_type: the kind of receptacle that it belongs in; empty for `look_at_obj_in_light`.
        toggle_type: the kind of lamp, for `look_at_obj_in_light` alone.
    """

    task_type: str
    object_type: str
    receptacle_type: str = ""
    toggle_type: str = ""

    @property
    def needed(self) -> int:
        """How many objects have to be in one receptacle."""
        return 2 if self.task_type == "pick_two_obj_and_place" else 1

    def may_be_met_by(self, thing: Object) -> bool:
        """Whether an object is of the kind, and lets be done to it what the goal asks for.

        Args:
            thing: an object of the game.

        Returns:
            True where it may meet the goal.
        """
        able = {
            "pick_clean_then_place_in_recep": thing.cleanable,
            "pick_heat_then_place_in_recep": thing.heatable,
            "pick_cool_then_place_in_recep": thing.coolable,
        }
        return thing.type == self.object_type and able.get(self.task_type, True)


# ------------------------------------------------------------------------------------------------------------- reading the PDDL

# In a goal's atoms r, a, l, t stand for the receptacle, the agent, the location and the lamp, o and p for the objects; O, R, T for their kinds.
_ROLES: Mapping[str, str] = MappingProxyType({"receptacle": "r", "agent": "a", "location": "l"})
_PLACE = frozenset({("inreceptacle", "o", "r"), ("objecttype", "o", "O"), ("receptacletype", "r", "R")})
_LAMP = frozenset({("objecttype", "t", "T"), ("toggleable", "t"), ("istoggled", "t"), ("inreceptacle", "t", "r")})
_BY_THE_LAMP = frozenset({("receptacleatlocation", "r", "l"), ("atlocation", "a", "l"), ("objecttype", "o", "O"), ("holds", "a", "o")})
_SHAPES: Mapping[frozenset[tuple[str, ...]], str] = MappingProxyType(
    {
        _PLACE: "pick_and_place_simple",
        _PLACE | {("cleanable", "o"), ("isclean", "o")}: "pick_clean_then_place_in_recep",
        _PLACE | {("heatable", "o"), ("ishot", "o")}: "pick_heat_then_place_in_recep",
        _PLACE | {("coolable", "o"), ("iscool", "o")}: "pick_cool_then_place_in_recep",
        _PLACE | {("inreceptacle", "p", "r"), ("objecttype", "p", "O"), ("differ", "o", "p")}: "pick_two_obj_and_place",
        _LAMP | _BY_THE_LAMP: "look_at_obj_in_light",
    }
)


def read_goal(condition: Expression, kind_name: Callable[[str], str]) -> Goal | None:
    """Find out which of the six kinds of goal a condition is, whatever its variables are called and in whatever order it stands.

    Args:
        condition: the goal in the PDDL.
        kind_name: gives the written name of a kind, such as "Mug" for mugtype.

    Returns:
        The goal, or None where it is none of the six.
    """
    variables: dict[str, str] = {}
    atoms: list[tuple[str, ...]] = []
    if not _flatten(condition, {}, variables, atoms):
        return None
    lamps = {atom[1] for atom in atoms if atom[0] == "istoggled" and len(atom) == 2}
    roles: dict[str, str] = {}
    for variable, kind in variables.items():
        if kind == "object":
            roles[variable] = "t" if variable in lamps else "p" if "o" in roles.values() else "o"
        else:
            roles[variable] = _ROLES.get(kind, "")
    # Only the agent may go by two variables, since there is one agent.
    alone = [role for role in roles.values() if role != "a"]
    if "" in alone or len(set(alone)) != len(alone):
        return None
    kinds: dict[str, str] = {}
    shape = set()
    for name, *words in atoms:
        played = [roles.get(word, f"={word}") for word in words]
        if name in ("objecttype", "receptacletype") and len(words) == 2:
            slot = "R" if name == "receptacletype" else "T" if played[0] == "t" else "O"
            if words[1] in roles or kinds.setdefault(slot, words[1]) != words[1]:
                return None
            played[1] = slot
        shape.add((name, *(sorted(played) if name == "differ" else played)))
    task_type = _SHAPES.get(frozenset(shape))
    if task_type is None:
        return None
    named = {slot: kind_name(word) for slot, word in kinds.items()}
    return Goal(task_type, named["O"], named.get("R", ""), named.get("T", ""))


def _flatten(condition: Expression, names: Mapping[str, str], variables: dict[str, str], atoms: list[tuple[str, ...]]) -> bool:
    """Collect the atoms and the typed variables of a condition that is made of and, exists and inequality; False for any other."""
    if isinstance(condition, str) or not condition or not isinstance(condition[0], str):
        return False
    head: str = condition[0]
    parts = condition[1:]
    if head == "and":
        return all(_flatten(part, names, variables, atoms) for part in parts)
    if head == "exists" and len(parts) == 2 and isinstance(parts[0], tuple):
        inner = dict(names)
        for name, kind in typed_list(parts[0]):
            inner[name] = f"{name}#{len(variables)}"
            variables[inner[name]] = kind
        return _flatten(parts[1], inner, variables, atoms)
    if head == "not" and len(parts) == 1 and isinstance(parts[0], tuple) and parts[0][:1] == ("=",) and len(parts[0]) == 3:
        head, parts = "differ", parts[0][1:]
    words = [names.get(part, part) for part in parts if isinstance(part, str)]
    atoms.append((head, *words))
    return len(words) == len(parts)


# -------------------------------------------------------------------------------------------------------------- holding the goal


def goal_holds(
    game: Game,
    *,
    location: str,
    holding: str | None,
    inside: Mapping[str, tuple[str, ...]],
    done: Collection[str],
) -> bool:
    """Tell whether a goal is met.

    Args:
        game: the game.
        location: where the agent is.
        holding: what it holds.
        inside: the objects of each receptacle.
        done: the objects to which what the goal asks for was done: toggled for `look_at_obj_in_light`, otherwise cleaned, heated or cooled; not
            looked at where nothing has to be done.

    Returns:
        True where it is.
    """
    goal = game.goal
    if goal.task_type == "look_at_obj_in_light":
        return (
            holding is not None
            and game.objects[holding].type == goal.object_type
            and any(
                thing in done and game.objects[thing].type == goal.toggle_type and game.objects[thing].toggleable
                for receptacle in game.receptacles_at.get(location, ())
                for thing in inside[receptacle]
            )
        )
    fitting = (
        game.candidates if goal.task_type in ("pick_and_place_simple", "pick_two_obj_and_place") else game.candidates.intersection(done)
    )
    return any(len(fitting.intersection(inside[receptacle])) >= goal.needed for receptacle in game.targets)


def can_be_reached(game: Game) -> bool:
    """Tell whether a goal can be reached when nothing that was true ever becomes false.

    That is the planner's first test of a problem, too; for most games that fail it the original engine cannot even begin.

    Args:
        game: the game.

    Returns:
        False where it certainly cannot.
    """
    goal, first = game.goal, game.first
    standing = [receptacle for receptacle in game.receptacles.values() if receptacle.location is not None]
    inside = dict(zip(game.receptacles, first.inside, strict=True))
    in_reach = {thing for receptacle in standing for thing in inside[receptacle.id]}
    can_hold = {thing for thing in in_reach if game.objects[thing].pickupable} | ({first.holding} if first.holding else set())
    for receptacle in standing:
        kinds = game.can_contain.get(receptacle.type, ())
        inside[receptacle.id] += tuple(thing for thing in can_hold if game.objects[thing].type in kinds)
    in_reach.update(thing for receptacle in standing for thing in inside[receptacle.id])
    if goal.task_type == "look_at_obj_in_light":
        lamps = (game.objects[thing] for thing in in_reach)
        held = any(game.objects[thing].type == goal.object_type for thing in can_hold)
        return held and any(lamp.type == goal.toggle_type and lamp.toggleable for lamp in lamps)
    done: set[str] = set(game.candidates)
    for task_type, action, already in (
        ("pick_clean_then_place_in_recep", "cleanobject", first.cleaned),
        ("pick_heat_then_place_in_recep", "heatobject", first.heated),
        ("pick_cool_then_place_in_recep", "coolobject", first.cooled),
    ):
        if goal.task_type == task_type:
            tool = any(receptacle.type in game.tools[action] for receptacle in standing)
            done = set(already) | (can_hold if tool else set())
    return goal_holds(game, location=first.location, holding=first.holding, inside=inside, done=done)
