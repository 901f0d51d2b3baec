"""The expert: what to do next in a household game, from any situation in it.

The expert sees the whole state, so it does not search the room. It lists every sensible way to reach the goal as a few errands (take this from
there, use that station, put it down here), walks through each in thought, and takes the one with the fewest commands. There are at most some
thousand ways, so no planner is needed and an answer takes about a millisecond.

An errand is done at one receptacle. It costs the way there, unless the agent already stands at that place (several receptacles may share it, and
`go to` does nothing between them), opening it where the errand reaches inside, and the act itself. Whoever holds the wrong thing first puts it
down somewhere, which is one more errand.

It plans anew at every step and keeps no memory, so it can be asked in the middle of another player's episode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from agent_gym.envs.alfworld.facts import World

__all__ = ["next_command", "plan"]

_TOOLS = {
    "pick_clean_then_place_in_recep": ("clean", "cleanobject"),
    "pick_heat_then_place_in_recep": ("heat", "heatobject"),
    "pick_cool_then_place_in_recep": ("cool", "coolobject"),
}
"""For each task with a station: the verb of its command, and the action of the domain that names the station."""


class Errand(NamedTuple):
    """Something to do at a receptacle.

    Attributes:
        verb: "take", "put", "clean", "heat", "cool", "use", or "visit" for being there and no more.
        thing: the id of the object.
        receptacle: the id of the receptacle.
    """

    verb: str
    thing: str
    receptacle: str

    @property
    def reaches_inside(self) -> bool:
        """Whether a closed receptacle has to be opened for it."""
        return self.verb in ("take", "put")


Way = tuple[Errand, ...]


def next_command(world: World) -> str:
    """Say what to do now.

    Args:
        world: a running simulator, in any situation.

    Returns:
        The first command of a shortest plan; "look" where the game is won, or where nothing wins it any more (the agent holds something that no
        receptacle takes back; no generated game lets that happen, and in the official ones a roll of paper towels does).
    """
    return next(iter(plan(world)), "look")


def plan(world: World) -> list[str]:
    """Plan the rest of the game.

    Args:
        world: a running simulator, in any situation; it is left as it is.

    Returns:
        Admissible commands, in order, the last of which wins the game; none where the game is won or cannot be won any more.
    """
    planner = _Planner(world)
    best: list[str] | None = None
    for way in planner.ways():
        commands = planner.commands(way, None if best is None else len(best))
        if commands is not None:
            best = commands
    return best or []


@dataclass(frozen=True)
class _Planner:
    """All ways from one situation to the goal."""

    world: World

    def ways(self) -> Iterator[Way]:
        """List the ways to the goal, each from the present situation; the empty way means that the game is won."""
        goal = self.world.game.goal
        if goal.task_type == "look_at_obj_in_light":
            ways = self._ways_to_look()
        elif goal.task_type == "pick_two_obj_and_place":
            ways = self._ways_to_place_two()
        else:
            ways = self._ways_to_place_one()
        return ways

    def commands(self, way: Way, fewer_than: int | None = None) -> list[str] | None:
        """Walk through a way in thought.

        Args:
            way: the errands.
            fewer_than: give up as soon as the way takes this many commands.

        Returns:
            The commands that it takes, or None where they are too many.
        """
        world = self.world
        game = world.game
        names = world.names
        place = world.location
        opened: set[str] = set()
        commands: list[str] = []
        for errand in way:
            receptacle = game.receptacles[errand.receptacle]
            if receptacle.location != place:
                place = receptacle.location or place
                commands.append(f"go to {receptacle.name}")
            if errand.reaches_inside and receptacle.openable and receptacle.id not in world.opened and receptacle.id not in opened:
                opened.add(receptacle.id)
                commands.append(f"open {receptacle.name}")
            if errand.verb != "visit":
                commands.append(self._act(errand.verb, names[errand.thing], receptacle.name))
            if fewer_than is not None and len(commands) >= fewer_than:
                return None
        return commands

    def _act(self, verb: str, thing: str, receptacle: str) -> str:
        if verb == "take":
            return f"take {thing} from {receptacle}"
        if verb == "put":
            return f"move {thing} to {receptacle}" if self.world.game.grammar == "move" else f"put {thing} in/on {receptacle}"
        if verb == "use":
            return f"use {thing}"
        return f"{verb} {thing} with {receptacle}"

    # --- the tasks ---------------------------------------------------------------------------------------------------------------------

    def _ways_to_place_one(self) -> Iterator[Way]:
        world = self.world
        goal = world.game.goal
        verb, action = _TOOLS.get(goal.task_type, ("", ""))
        done = {"clean": world.cleaned, "heat": world.heated, "cool": world.cooled}.get(verb)
        homes = self._receptacles_of(goal.receptacle_type)
        for thing in self._things_of(goal.object_type):
            ready = done is None or thing in done
            inside = [home for home in homes if thing in world.inside[home]]
            if ready and inside:
                yield ()
                continue
            treatments: list[Way] = [()] if ready else [(Errand(verb, thing, station),) for station in self._stations(action)]
            for getting in self._ways_to_hold(thing):
                for treatment in treatments:
                    # A thing that stands in two receptacles is still in the other when it is taken from one of them.
                    left = [home for home in inside if all(errand != Errand("take", thing, home) for errand in getting)]
                    if left:
                        yield getting + treatment
                    else:
                        yield from (getting + treatment + (Errand("put", thing, home),) for home in homes if self._may_hold(home, thing))

    def _ways_to_look(self) -> Iterator[Way]:
        goal = self.world.game.goal
        lamps = self._things_of(goal.toggle_type)
        for thing in self._things_of(goal.object_type):
            for getting in self._ways_to_hold(thing):
                for lamp in lamps:
                    verb = "visit" if lamp in self.world.toggled else "use"
                    yield from ((*getting, Errand(verb, lamp, spot)) for spot in self._holders_of(lamp))

    def _ways_to_place_two(self) -> Iterator[Way]:
        world = self.world
        goal = world.game.goal
        things = self._things_of(goal.object_type)
        for home in self._receptacles_of(goal.receptacle_type):
            inside = [thing for thing in things if thing in world.inside[home]]
            others = [thing for thing in things if thing not in inside and self._may_hold(home, thing)]
            if len(inside) > 1:
                yield ()
            elif inside:
                for thing in others:
                    yield from ((*getting, Errand("put", thing, home)) for getting in self._ways_to_hold(thing))
            else:
                for first in others:
                    for getting in self._ways_to_hold(first):
                        for second in others:
                            if second != first and second != world.holding:
                                for holder in self._holders_of(second):
                                    again = (Errand("take", second, holder), Errand("put", second, home))
                                    yield (*getting, Errand("put", first, home), *again)

    # --- parts of ways -----------------------------------------------------------------------------------------------------------------

    def _ways_to_hold(self, thing: str) -> Iterator[Way]:
        """List the ways to have a thing in hand."""
        held = self.world.holding
        if held == thing:
            yield ()
            return
        takes = [(Errand("take", thing, holder),) for holder in self._holders_of(thing)] if self._can_be_taken(thing) else []
        if held is None:
            yield from takes
        elif takes:
            for receptacle in self.world.game.receptacles:
                if self._may_hold(receptacle, held):
                    yield from ((Errand("put", held, receptacle), *take) for take in takes)

    def _things_of(self, kind: str) -> list[str]:
        return [thing.id for thing in self.world.game.objects.values() if thing.type == kind]

    def _can_be_taken(self, thing: str) -> bool:
        return self.world.game.objects[thing].pickupable

    def _receptacles_of(self, kind: str) -> list[str]:
        return [one.id for one in self.world.game.receptacles.values() if one.type == kind and one.location is not None]

    def _holders_of(self, thing: str) -> list[str]:
        reachable: Iterable[str] = (one.id for one in self.world.game.receptacles.values() if one.location is not None)
        return [receptacle for receptacle in reachable if thing in self.world.inside.get(receptacle, ())]

    def _stations(self, action: str) -> list[str]:
        kinds = self.world.game.tools[action]
        return [one.id for one in self.world.game.receptacles.values() if one.type in kinds and one.location is not None]

    def _may_hold(self, receptacle: str, thing: str) -> bool:
        one = self.world.game.receptacles[receptacle]
        return one.location is not None and self.world.game.objects[thing].type in self.world.game.can_contain.get(one.type, ())
