"""The fast engine: plays a game of ALFWorld with the same words as the original, some thousand times faster.

The state is the few facts that change: where the agent is, what it holds, what is open, what is in what, and what happened to objects. For each state
the admissible commands are made once, and only when they are needed; what depends on the place alone is kept for each place. An answer is printed by
the functions that the game's grammar was compiled to.

Six things that the original does, and that this engine does as well:

1. `examine X` for an object is possible only while it is held.
2. `go to X` is not possible where X stands at the agent's own location, also when it arrived there by another receptacle.
3. `look` before the first `go to` sees nothing, although the opening lists the receptacles.
4. `use X` works on a lamp in a closed receptacle and always says that it was turned on; heating and cooling need neither opening nor putting in.
5. Anything but an admissible command, exact to the letter (blanks around it aside), is answered "Nothing happens."
6. The score is 1 while the goal holds, and 0 otherwise: it is the total, not the reward of a step.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from agent_gym.envs.alfworld.facts import World
from agent_gym.envs.alfworld.game import Game, SimulatorState
from agent_gym.envs.alfworld.goals import goal_holds

__all__ = ["NOTHING_HAPPENS", "Simulator"]

NOTHING_HAPPENS = "Nothing happens."


class _Move(NamedTuple):
    """An action with the things it is done to, by the names of its parameters."""

    action: str
    things: dict[str, str]


class Simulator(World):
    """A running game. Simulators share nothing that changes, so each may run in a thread of its own.

    Args:
        game: the game to play; it begins at once, as after `reset`.

    Attributes:
        game: the game that is played.
        location: where the agent is (PDDL name).
        holding: the id of the object in its hands, or None.
        opened: the ids of the open receptacles.
        inside: for each receptacle the ids of its objects, in order.
        lying: for each location the ids of the objects that are recorded there, in order.
        missed: see `SimulatorState.missed`.
        cleaned, heated, cooled, sliced, toggled: the ids of the objects that this holds of.
    """

    # What was worked out about the present state; None where it was not yet.
    _known: dict[str, _Move] | None
    _sorted: list[str] | None
    _won: bool | None
    _state: SimulatorState | None

    def __init__(self, game: Game) -> None:
        self.load(game)

    def load(self, game: Game) -> None:
        """Take another game, which begins at once.

        Args:
            game: the game to play from now on.
        """
        self.game = game
        self._intro: str | None = None
        self._by_place: dict[str, dict[str, _Move]] = {}
        self.set_state(game.first)

    def close(self) -> None:
        """Nothing is held open; for engines that hold something."""

    def reset(self) -> str:
        """Begin the game again.

        Returns:
            The opening as the original prints it: banner, the receptacles in sight, the task.
        """
        self.set_state(self.game.first)
        if self._intro is None:
            self._intro = self.game.wording.intro(self, {})
        return self._intro

    def step(self, command: str) -> str:
        """Do what a command says.

        Args:
            command: an admissible command; blanks around it are removed, nothing else is forgiven.

        Returns:
            The answer; "Nothing happens." where the command was not admissible.
        """
        move = self._moves().get(command.strip())
        if move is None:
            return NOTHING_HAPPENS
        effect = _EFFECTS.get(move.action)
        if effect is not None:
            effect(self, move.things)
            self._forget()
        return self.game.wording.actions[move.action].feedback(self, move.things)

    def admissible(self) -> list[str]:
        """The commands that would do something now, sorted, `help` among them where the game has it.

        Returns:
            Commands; a list of the caller's own.
        """
        if self._sorted is None:
            self._sorted = sorted(self._moves())
        return self._sorted.copy()

    @property
    def names(self) -> Mapping[str, str]:
        """The printed name of every id."""
        return self.game.names

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        if self._won is None:
            done = {
                "pick_clean_then_place_in_recep": self.cleaned,
                "pick_heat_then_place_in_recep": self.heated,
                "pick_cool_then_place_in_recep": self.cooled,
            }.get(self.game.task_type, self.toggled)
            self._won = goal_holds(self.game, location=self.location, holding=self.holding, inside=self.inside, done=done)
        return self._won

    @property
    def score(self) -> int:
        """1 while the goal holds, and 0 otherwise."""
        return int(self.won)

    def contents(self, receptacle: str) -> tuple[str, ...]:
        """The ids of the objects in a receptacle, in order.

        Args:
            receptacle: its id.

        Returns:
            Ids; empty for an empty receptacle.
        """
        return self.inside[receptacle]

    def is_open(self, receptacle: str) -> bool:
        """Whether one can reach into a receptacle: it is open, or cannot be closed.

        Args:
            receptacle: its id.

        Returns:
            True where one can.
        """
        return receptacle in self.opened or receptacle not in self.game.having["openable"]

    def get_state(self) -> SimulatorState:
        """The present situation, to compare, to keep and to go back to.

        Returns:
            Compares equal to that of another moment where nothing differs.
        """
        if self._state is None:
            self._state = SimulatorState(
                location=self.location,
                holding=self.holding,
                opened=frozenset(self.opened),
                inside=tuple(self.inside.values()),
                lying=tuple(self.lying.values()),
                missed=frozenset(self.missed),
                cleaned=frozenset(self.cleaned),
                heated=frozenset(self.heated),
                cooled=frozenset(self.cooled),
                sliced=frozenset(self.sliced),
                toggled=frozenset(self.toggled),
            )
        return self._state

    def set_state(self, state: SimulatorState) -> None:
        """Go to a situation of this game.

        Args:
            state: from `get_state` of a simulator of the same game.

        Raises:
            ValueError: the state is one of another game.
        """
        game = self.game
        if state.location not in game.locations or len(state.inside) != len(game.receptacles) or len(state.lying) != len(game.locations):
            raise ValueError(f"the state is not one of the game {game.where}; take it from get_state() while the same game is played")
        self.location = state.location
        self.holding = state.holding
        self.opened = set(state.opened)
        self.inside = dict(zip(game.receptacles, state.inside, strict=True))
        self.lying = dict(zip(game.locations, state.lying, strict=True))
        self.missed = set(state.missed)
        self.cleaned = set(state.cleaned)
        self.heated = set(state.heated)
        self.cooled = set(state.cooled)
        self.sliced = set(state.sliced)
        self.toggled = set(state.toggled)
        self._forget()

    def _forget(self) -> None:
        """Drop what was worked out about the state before."""
        self._known = self._sorted = self._won = self._state = None

    def _moves(self) -> dict[str, _Move]:
        """Every admissible command with what it does."""
        if self._known is None:
            place = self.location
            if place not in self._by_place:
                self._by_place[place] = self._moves_of_place(place)
            self._known = self._by_place[place].copy()
            self._add_moves_of_state(self._known)
        return self._known

    def _add(self, moves: dict[str, _Move], action: str, **things: str) -> None:
        """Add a command, if the game has the action; of several moves with one command (they do the same) the first counts."""
        wording = self.game.wording.actions.get(action)
        if wording is not None:
            moves.setdefault(wording.command(self, things), _Move(action, things))

    def _moves_of_place(self, place: str) -> dict[str, _Move]:
        """The commands that are always admissible at a place."""
        moves: dict[str, _Move] = {}
        agent = self.game.agent
        self._add(moves, "look", a=agent, l=place)
        self._add(moves, "inventory", a=agent)
        self._add(moves, "help", a=agent)
        for receptacle in self.game.receptacles.values():
            if receptacle.location == place:
                self._add(moves, "examinereceptacle", a=agent, r=receptacle.id)
            elif receptacle.location is not None:
                self._add(moves, "gotolocation", a=agent, lstart=place, lend=receptacle.location, r=receptacle.id)
        return moves

    def _add_moves_of_state(self, moves: dict[str, _Move]) -> None:
        """The commands that depend on what is open, held and in reach."""
        game, place, held = self.game, self.location, self.holding
        objects, at_place = game.objects, {"a": game.agent, "l": place}
        tools = game.tools
        for name in game.receptacles_at.get(place, ()):
            receptacle = game.receptacles[name]
            here = {**at_place, "r": name}
            if receptacle.openable:
                self._add(moves, "closeobject" if name in self.opened else "openobject", **here)
            reachable = not receptacle.openable or name in self.opened
            for thing in self.inside[name]:
                if objects[thing].toggleable:
                    self._add(moves, "toggleobject", **here, o=thing)
                if reachable and held is None and objects[thing].pickupable:
                    self._add(moves, "pickupobject", **here, o=thing)
            if held is None:
                continue
            one = objects[held]
            if reachable and one.type in game.can_contain.get(receptacle.type, ()):
                self._add(moves, "putobject", **here, o=held)
            if one.cleanable and receptacle.type in tools["cleanobject"]:
                self._add(moves, "cleanobject", **here, o=held)
            if one.heatable and receptacle.type in tools["heatobject"]:
                self._add(moves, "heatobject", **here, o=held)
            if one.coolable and receptacle.type in tools["coolobject"]:
                self._add(moves, "coolobject", **here, o=held)
        if held is not None:
            self._add(moves, "examineobject", a=game.agent, o=held)
            if objects[held].type in tools["sliceobject"]:
                for thing in self.lying.get(place, ()):
                    if objects[thing].sliceable:
                        self._add(moves, "sliceobject", **at_place, co=thing, ko=held)


# ------------------------------------------------------------------------------------------------------------------ what moves do


def _without(things: tuple[str, ...], thing: str) -> tuple[str, ...]:
    return tuple([other for other in things if other != thing])


def _with(things: tuple[str, ...], thing: str) -> tuple[str, ...]:
    if thing in things:
        return things
    more = list(things)
    insort(more, thing)
    return tuple(more)


def _go(world: Simulator, things: Mapping[str, str]) -> None:
    world.location = things["lend"]


def _open(world: Simulator, things: Mapping[str, str]) -> None:
    world.opened.add(things["r"])


def _close(world: Simulator, things: Mapping[str, str]) -> None:
    world.opened.discard(things["r"])


def _take(world: Simulator, things: Mapping[str, str]) -> None:
    thing, receptacle, place = things["o"], things["r"], things["l"]
    world.holding = thing
    world.inside[receptacle] = _without(world.inside[receptacle], thing)
    world.lying[place] = _without(world.lying[place], thing)
    if world.game.fits_beside(thing, receptacle):
        world.missed.add((thing, receptacle))


def _put(world: Simulator, things: Mapping[str, str]) -> None:
    thing, receptacle, place = things["o"], things["r"], things["l"]
    world.holding = None
    world.inside[receptacle] = _with(world.inside[receptacle], thing)
    world.lying[place] = _with(world.lying[place], thing)
    world.missed.discard((thing, receptacle))


def _clean(world: Simulator, things: Mapping[str, str]) -> None:
    world.cleaned.add(things["o"])


def _heat(world: Simulator, things: Mapping[str, str]) -> None:
    world.heated.add(things["o"])
    world.cooled.discard(things["o"])


def _cool(world: Simulator, things: Mapping[str, str]) -> None:
    world.cooled.add(things["o"])
    world.heated.discard(things["o"])


def _toggle(world: Simulator, things: Mapping[str, str]) -> None:
    world.toggled.add(things["o"])


def _slice(world: Simulator, things: Mapping[str, str]) -> None:
    world.sliced.add(things["co"])


_EFFECTS: Mapping[str, Callable[[Simulator, Mapping[str, str]], None]] = MappingProxyType(
    {
        "gotolocation": _go,
        "openobject": _open,
        "closeobject": _close,
        "pickupobject": _take,
        "putobject": _put,
        "cleanobject": _clean,
        "heatobject": _heat,
        "coolobject": _cool,
        "toggleobject": _toggle,
        "sliceobject": _slice,
    }
)
