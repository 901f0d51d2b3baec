"""The fast engine: the original's peculiarities, one by one, and what holds in every state. The peculiarities are played by the original as well."""

from __future__ import annotations

import copy
import pickle
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from helpers import require
from hypothesis import given, settings
from hypothesis import strategies as st
from small_house import house

from agent_gym.envs.alfworld.game import TASK_TYPES, Game, parse_game, read_game
from agent_gym.envs.alfworld.generator import generate_game
from agent_gym.envs.alfworld.simulator import NOTHING_HAPPENS, Simulator
from agent_gym.envs.alfworld.stock import StockEngine


class Engine(Protocol):
    def reset(self) -> str: ...
    def step(self, command: str) -> str: ...
    def admissible(self) -> list[str]: ...
    @property
    def won(self) -> bool: ...
    @property
    def score(self) -> int: ...


Begin = Callable[..., Engine]


@pytest.fixture(params=["fast", "original"])
def begin(request: pytest.FixtureRequest) -> Begin:
    """Begins a game of the house, on our engine or on the original one; takes what `house` takes."""
    if request.param == "original":
        require("textworld")
        require("alfworld")
        if sys.version_info >= (3, 13):
            pytest.skip("the original engine does not work on Python 3.13")

    def play(*arguments: Any, **keywords: Any) -> Engine:
        data = house(*arguments, **keywords)
        engine: Simulator | StockEngine
        if request.param == "fast":
            engine = Simulator(parse_game(data, where="house"))
        else:
            engine = StockEngine()
            request.addfinalizer(engine.close)
            engine.load(data)
        engine.reset()
        return engine

    return play


def do(engine: Engine, *commands: str) -> str:
    """Play commands that must be admissible, and give the last answer."""
    answer = ""
    for command in commands:
        assert command in engine.admissible(), (command, engine.admissible())
        answer = engine.step(command)
        assert answer != NOTHING_HAPPENS
    return answer


def fresh(*arguments: Any, **keywords: Any) -> Simulator:
    return Simulator(parse_game(house(*arguments, **keywords), where="house"))


# -------------------------------------------------------------------------------------------------------- the six peculiarities


def test_an_object_can_be_examined_only_while_it_is_held(begin: Begin) -> None:
    engine = begin()
    assert "mug 1" in do(engine, "go to countertop 1")
    assert "examine mug 1" not in engine.admissible()
    assert engine.step("examine mug 1") == NOTHING_HAPPENS
    assert do(engine, "take mug 1 from countertop 1", "examine mug 1") == "This is a normal mug 1. In it, you see nothing."


def test_no_way_leads_to_a_receptacle_that_stands_where_one_is(begin: Begin) -> None:
    engine = begin()
    do(engine, "go to cabinet 1")
    admissible = engine.admissible()
    assert "go to cabinet 1" not in admissible and "go to cabinet 2" not in admissible
    assert "open cabinet 1" in admissible and "open cabinet 2" in admissible and "examine cabinet 2" in admissible
    assert engine.step("go to cabinet 2") == NOTHING_HAPPENS
    assert engine.step("look") == "You are facing the cabinet 2, and cabinet 1. Next to it, you see nothing."
    do(engine, "go to countertop 1")
    assert {"go to cabinet 1", "go to cabinet 2"} <= set(engine.admissible())


def test_looking_before_the_first_way_sees_nothing(begin: Begin) -> None:
    engine = begin()
    assert "you see a cabinet 2, a cabinet 1, a countertop 1" in engine.reset()
    assert engine.step("look") == "You are in the middle of a room. Looking quickly around you, you see nothing."


def test_lamps_in_closed_receptacles_are_used_and_heating_and_cooling_need_no_opening(begin: Begin) -> None:
    engine = begin()
    assert do(engine, "go to drawer 1") == "You arrive at drawer 1. The drawer 1 is closed."
    assert do(engine, "use desklamp 1") == "You turn on the desklamp 1."
    assert do(engine, "use desklamp 1") == "You turn on the desklamp 1."  # never off
    do(engine, "go to countertop 1", "take apple 2 from countertop 1")
    assert do(engine, "go to microwave 1", "heat apple 2 with microwave 1") == "You heat the apple 2 using the microwave 1."
    assert do(engine, "examine apple 2") == "This is a hot apple 2."
    assert do(engine, "go to fridge 1", "cool apple 2 with fridge 1") == "You cool the apple 2 using the fridge 1."
    assert do(engine, "examine apple 2") == "This is a cold apple 2."
    assert "move apple 2 to fridge 1" not in engine.admissible()  # that does need opening


@pytest.mark.parametrize(
    "command",
    [
        "",
        " ",
        "Look",
        "look.",
        "look around",
        "go to  drawer 1",
        "go to drawer",
        "goto drawer 1",
        "go to drawer 1\nlook",
        "take mug 1",
        "§",
        "None",
    ],
)
def test_anything_but_an_admissible_command_does_nothing(begin: Begin, command: str) -> None:
    engine = begin()
    before = engine.admissible()
    assert engine.step(command) == NOTHING_HAPPENS
    assert engine.admissible() == before and engine.score == 0 and not engine.won


def test_only_blanks_around_a_command_are_forgiven(begin: Begin) -> None:
    assert begin().step(" \t\n go to drawer 1 \r\n ") == "You arrive at drawer 1. The drawer 1 is closed."


def test_the_score_is_the_total_and_stays_while_the_goal_holds(begin: Begin) -> None:
    engine = begin()
    do(engine, "go to countertop 1", "take mug 1 from countertop 1", "go to drawer 1", "open drawer 1")
    assert (engine.score, engine.won) == (0, False)
    do(engine, "move mug 1 to drawer 1")
    assert (engine.score, engine.won) == (1, True)
    do(engine, "look")
    assert (engine.score, engine.won) == (1, True)
    assert engine.step("nonsense") == NOTHING_HAPPENS
    assert (engine.score, engine.won) == (1, True)
    do(engine, "take mug 1 from drawer 1")
    assert (engine.score, engine.won) == (0, False)


# A simulator that lacks one of the peculiarities must fail the test of it.


class ExaminesWhatLiesAbout(Simulator):
    def _add_moves_of_state(self, moves: dict[str, Any]) -> None:
        super()._add_moves_of_state(moves)
        for receptacle in self.game.receptacles_at.get(self.location, ()):
            for thing in self.inside[receptacle]:
                self._add(moves, "examineobject", a=self.game.agent, o=thing)


class GoesToNeighbours(Simulator):
    def _moves_of_place(self, place: str) -> dict[str, Any]:
        moves = super()._moves_of_place(place)
        for receptacle in self.game.receptacles_at.get(place, ()):
            self._add(moves, "gotolocation", a=self.game.agent, lstart=place, lend=place, r=receptacle)
        return moves


class SeesTheRoomAtFirst(Simulator):
    def step(self, command: str) -> str:
        first = self.location == self.game.first.location and command == "look"
        return self.game.wording.intro(self, {}).split("\n\n")[1] if first else super().step(command)


class NeedsOpenMicrowaves(Simulator):
    def _add_moves_of_state(self, moves: dict[str, Any]) -> None:
        super()._add_moves_of_state(moves)
        for command in [command for command in moves if command.startswith("heat")]:
            if not self.is_open("microwave_bar_a"):
                del moves[command]


class ForgivesCapitals(Simulator):
    def step(self, command: str) -> str:
        return super().step(command.lower())


class PaysOnce(Simulator):
    paid = False

    @property
    def score(self) -> int:
        now, self.paid = self.won and not self.paid, self.paid or self.won
        return int(now)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (ExaminesWhatLiesAbout, test_an_object_can_be_examined_only_while_it_is_held),
        (GoesToNeighbours, test_no_way_leads_to_a_receptacle_that_stands_where_one_is),
        (SeesTheRoomAtFirst, test_looking_before_the_first_way_sees_nothing),
        (NeedsOpenMicrowaves, test_lamps_in_closed_receptacles_are_used_and_heating_and_cooling_need_no_opening),
        (ForgivesCapitals, lambda begin: test_anything_but_an_admissible_command_does_nothing(begin, "Look")),
        (PaysOnce, test_the_score_is_the_total_and_stays_while_the_goal_holds),
    ],
)
def test_the_checks_notice_a_simulator_without_the_peculiarity(mutant: type[Simulator], check: Callable[[Begin], None]) -> None:
    with pytest.raises(AssertionError):
        check(lambda *arguments, **keywords: mutant(parse_game(house(*arguments, **keywords), where="house")))
    check(lambda *arguments, **keywords: fresh(*arguments, **keywords))


# ------------------------------------------------------------------------------------------------------------- what else it does


def test_the_answer_of_help_begins_without_the_newline_of_its_text(begin: Begin) -> None:
    assert begin().step("help").startswith("Available commands:\n  look:")


def test_the_old_wording_has_no_help_and_puts_things_in_or_on(begin: Begin) -> None:
    engine = begin(grammar="put")
    assert "help" not in engine.admissible() and engine.step("help") == NOTHING_HAPPENS
    assert do(engine, "go to countertop 1") == "You arrive at loc 5. On countertop 1, you see apple 2, bowl 1, knife 1, and mug 1."
    assert (
        do(engine, "take mug 1 from countertop 1", "go to sinkbasin 1", "put mug 1 in/on sinkbasin 1") == "You put mug 1 in/on sinkbasin 1."
    )


def test_an_object_put_into_a_neighbour_of_where_it_was_taken_from_is_seen_beside_it(begin: Begin) -> None:
    engine = begin()
    do(engine, "go to cabinet 1", "open cabinet 1", "open cabinet 2", "take mug 2 from cabinet 2", "move mug 2 to cabinet 1")
    assert engine.step("look") == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a mug 2."
    do(engine, "take mug 2 from cabinet 1", "move mug 2 to cabinet 2")
    assert engine.step("look") == "You are facing the cabinet 2, and cabinet 1. Next to it, you see a mug 2."
    do(engine, "take mug 2 from cabinet 2", "go to countertop 1", "move mug 2 to countertop 1")
    assert engine.step("look") == "You are facing the countertop 1. Next to it, you see nothing."


def test_an_object_in_two_receptacles_is_taken_from_one_and_stays_in_the_other(begin: Begin) -> None:
    engine = begin(add=["(receptacleAtLocation Shelf|A loc|0)"], drop="receptacleAtLocation Shelf")
    do(engine, "go to countertop 1", "take bowl 1 from countertop 1")
    assert do(engine, "go to shelf 1") == "You arrive at shelf 1. On the shelf 1, you see a bowl 1, and a pen 1."
    assert do(engine, "examine bowl 1") == "This is a normal bowl 1. In it, you see a pen 1."
    assert not any(command.startswith("take") for command in engine.admissible())


def test_nobody_can_go_where_a_receptacle_has_no_location(begin: Begin) -> None:
    engine = begin()
    assert not any("shelf" in command for command in engine.admissible())
    assert "shelf" not in engine.reset()


def test_slicing_needs_a_held_knife_and_an_object_of_the_place_even_in_a_closed_receptacle(begin: Begin) -> None:
    engine = begin()
    do(engine, "go to countertop 1")
    assert not any(command.startswith("slice") for command in engine.admissible())
    do(engine, "take knife 1 from countertop 1")
    assert do(engine, "slice apple 2 with knife 1") == "You sliced the apple 2 with the knife 1."
    do(engine, "go to fridge 1", "slice apple 1 with knife 1")  # it is closed
    do(engine, "go to countertop 1", "move knife 1 to countertop 1", "take apple 2 from countertop 1")
    assert do(engine, "examine apple 2") == "This is a sliced apple 2."


def test_cleaning_needs_a_sink_and_shows(begin: Begin) -> None:
    engine = begin()
    do(engine, "go to countertop 1", "take knife 1 from countertop 1")
    assert do(engine, "examine knife 1") == "There's nothing special about knife 1."
    assert "clean knife 1 with sinkbasin 1" not in engine.admissible()
    do(engine, "go to sinkbasin 1", "clean knife 1 with sinkbasin 1")
    assert do(engine, "examine knife 1") == "This is a clean knife 1."


def test_a_thing_goes_only_where_its_kind_may_be_and_only_into_what_is_open(begin: Begin) -> None:
    engine = begin()
    do(engine, "go to countertop 1", "take knife 1 from countertop 1")
    assert not any(command.startswith("take") for command in engine.admissible())  # one thing at a time
    do(engine, "go to drawer 1")
    assert "move knife 1 to drawer 1" not in engine.admissible()
    assert do(engine, "open drawer 1") == "You open the drawer 1. The drawer 1 is open. In it, you see a desklamp 1."
    assert "move knife 1 to drawer 1" in engine.admissible() and "take desklamp 1 from drawer 1" not in engine.admissible()
    assert do(engine, "close drawer 1") == "You close the drawer 1."
    do(engine, "go to fridge 1", "open fridge 1")
    assert "move knife 1 to fridge 1" not in engine.admissible()


PLAYS = {
    "pick_and_place_simple": ["go to drawer 1", "open drawer 1", "move mug 1 to drawer 1"],
    "look_at_obj_in_light": ["go to drawer 1", "use desklamp 1"],
    "pick_clean_then_place_in_recep": [
        *("go to sinkbasin 1", "clean mug 1 with sinkbasin 1", "go to drawer 1", "open drawer 1", "move mug 1 to drawer 1"),
    ],
    "pick_heat_then_place_in_recep": [
        *("go to microwave 1", "heat mug 1 with microwave 1", "go to drawer 1", "open drawer 1", "move mug 1 to drawer 1"),
    ],
    "pick_cool_then_place_in_recep": [
        *("go to fridge 1", "cool mug 1 with fridge 1", "go to drawer 1", "open drawer 1", "move mug 1 to drawer 1"),
    ],
    "pick_two_obj_and_place": [
        *("go to drawer 1", "open drawer 1", "move mug 1 to drawer 1", "go to cabinet 2", "open cabinet 2", "take mug 2 from cabinet 2"),
        *("go to drawer 1", "move mug 2 to drawer 1"),
    ],
}


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_each_task_is_won_on_its_last_step_and_not_before(begin: Begin, task_type: str) -> None:
    engine = begin(task_type)
    do(engine, "go to countertop 1", "take mug 1 from countertop 1")
    for command in PLAYS[task_type]:
        assert not engine.won
        do(engine, command)
    assert engine.won and engine.score == 1


def test_a_goal_may_hold_from_the_beginning(begin: Begin) -> None:
    engine = begin(add=["(inReceptacle Mug|A Drawer|A)"])
    assert engine.won
    assert engine.step("look").endswith("you see nothing.") and engine.score == 1


@pytest.mark.parametrize("wanted", ["heat", "cool"])
def test_heat_is_lost_by_cooling_and_cold_by_heating_and_the_goal_with_it(begin: Begin, wanted: str) -> None:
    engine = begin(f"pick_{wanted}_then_place_in_recep")
    heating = ("go to microwave 1", "heat mug 1 with microwave 1")
    cooling = ("go to fridge 1", "cool mug 1 with fridge 1")
    treatments = (*heating, *cooling) if wanted == "heat" else (*cooling, *heating)
    do(engine, "go to countertop 1", "take mug 1 from countertop 1", *treatments)
    do(engine, "go to drawer 1", "open drawer 1", "move mug 1 to drawer 1")
    assert not engine.won


def test_a_game_may_begin_anywhere_with_anything_done(begin: Begin) -> None:
    add = ["(atLocation agent1 loc|2)", "(opened Fridge|A)", "(isHot Apple|B)", "(isClean Apple|B)", "(isToggled DeskLamp|A)"]
    engine = begin(add=add, drop="atLocation agent1 loc")
    assert "You are facing the countertop 1. Next to it, you see nothing." in engine.reset()
    assert "go to countertop 1" not in engine.admissible()
    assert do(engine, "go to fridge 1") == "You arrive at fridge 1. The fridge 1 is open. In it, you see a apple 1."
    assert do(engine, "take apple 1 from fridge 1", "examine apple 1") == "This is a hot and clean apple 1."


def test_a_lamp_in_two_receptacles_of_one_place_is_one_command(begin: Begin) -> None:
    engine = begin("look_at_obj_in_light", add=["(inReceptacle DeskLamp|A Cabinet|A)", "(inReceptacle DeskLamp|A Cabinet|B)"])
    do(engine, "go to countertop 1", "take mug 1 from countertop 1", "go to cabinet 1")
    assert engine.admissible().count("use desklamp 1") == 1
    assert do(engine, "use desklamp 1") == "You turn on the desklamp 1."
    assert engine.won


def test_a_game_may_begin_with_something_in_hand(begin: Begin) -> None:
    engine = begin(add=["(holds agent1 Pen|A)", "(holdsAny agent1)"], drop="inReceptacle Pen")
    assert do(engine, "inventory") == "You are carrying: a pen 1."
    do(engine, "go to countertop 1")
    assert not any(command.startswith("take") for command in engine.admissible())
    do(engine, "move pen 1 to countertop 1", "take apple 2 from countertop 1")


def test_things_without_a_kind_can_be_taken_but_not_put_down(begin: Begin) -> None:
    engine = begin(drop="objectType Knife|receptacleType Sink")
    do(engine, "go to countertop 1", "take knife 1 from countertop 1")
    assert not any(command.startswith(("move", "slice")) for command in engine.admissible())
    do(engine, "go to sinkbasin 1")
    assert not any(command.startswith(("move", "clean")) for command in engine.admissible())


# ------------------------------------------------------------------------------------------------------------ in every state


def walk(simulator: Simulator, seed: int, steps: int = 40) -> list[str]:
    """Play random admissible commands, and give them."""
    rng, played = random.Random(seed), []
    for _ in range(steps):
        played.append(rng.choice(simulator.admissible()))
        simulator.step(played[-1])
    return played


GAMES = [parse_game(house(task_type, grammar=grammar), where="house") for task_type in TASK_TYPES[:3] for grammar in ("move", "put")]
GAMES += [parse_game(generate_game("valid_seen", index), where="generated") for index in range(6)]
games, seeds = st.sampled_from(GAMES), st.integers(0, 10_000)


@given(games, seeds)
@settings(max_examples=40, deadline=None)
def test_commands_are_sorted_without_repetition_and_each_does_something(game: Game, seed: int) -> None:
    simulator = Simulator(game)
    walk(simulator, seed)
    state, commands = simulator.get_state(), simulator.admissible()
    assert commands == sorted(set(commands))
    for command in commands:
        simulator.set_state(state)
        assert simulator.step(command) != NOTHING_HAPPENS


@given(games, seeds)
@settings(max_examples=40, deadline=None)
def test_a_state_is_gone_back_to_exactly(game: Game, seed: int) -> None:
    simulator, other = Simulator(game), Simulator(game)
    walk(simulator, seed)
    state = simulator.get_state()
    assert hash(state) == hash(pickle.loads(pickle.dumps(state))) and state == pickle.loads(pickle.dumps(state))
    follow = walk(simulator, seed + 1)
    other.set_state(state)
    simulator.set_state(state)
    for command in follow:
        assert simulator.step(command) == other.step(command)
        assert (simulator.admissible(), simulator.won, simulator.get_state()) == (other.admissible(), other.won, other.get_state())


@given(games, seeds)
@settings(max_examples=30, deadline=None)
def test_equal_states_behave_alike_and_looking_changes_none(game: Game, seed: int) -> None:
    """What differs anywhere in the future differs in the state; what only looks leaves the state as it is."""
    simulator = Simulator(game)
    rng, seen = random.Random(seed), {}
    for _ in range(150):
        state = simulator.get_state()
        shown = simulator.admissible(), simulator.won
        assert seen.setdefault(state, shown) == shown
        command = rng.choice(simulator.admissible())
        simulator.step(command)
        looks = command in ("look", "inventory", "help") or command.startswith("examine")
        assert not looks or simulator.get_state() == state


def test_the_way_to_a_state_does_not_matter() -> None:
    one, other = fresh(), fresh()
    do(one, "go to countertop 1", "look", "take mug 1 from countertop 1", "examine mug 1", "go to fridge 1")
    do(other, "go to drawer 1", "go to countertop 1", "take knife 1 from countertop 1", "move knife 1 to countertop 1")
    assert one.get_state() != other.get_state()
    do(other, "take mug 1 from countertop 1", "go to fridge 1", "open fridge 1", "close fridge 1")
    assert one.get_state() == other.get_state()


def test_what_was_taken_from_neighbours_is_part_of_the_state_only_where_it_can_show() -> None:
    simulator = fresh()
    do(simulator, "go to countertop 1", "take mug 1 from countertop 1")
    assert not simulator.get_state().missed  # the countertop stands alone
    do(simulator, "move mug 1 to countertop 1", "go to cabinet 1", "open cabinet 2", "take mug 2 from cabinet 2")
    assert simulator.get_state().missed == {("mug_bar_a", "cabinet_bar_a")}
    do(simulator, "move mug 2 to cabinet 2")
    assert not simulator.get_state().missed


def test_a_state_of_another_game_is_refused() -> None:
    state = Simulator(GAMES[-1]).get_state()
    with pytest.raises(ValueError, match="not one of the game house"):
        fresh().set_state(state)


def test_reset_begins_again_and_load_takes_another_game() -> None:
    simulator = fresh()
    first, intro = simulator.get_state(), simulator.reset()
    walk(simulator, 0)
    assert simulator.reset() == intro and simulator.get_state() == first and simulator.score == 0
    walk(simulator, 1)
    other = parse_game(house(task="put some mug on drawer.", add=["(receptacleAtLocation Shelf|A loc|3)"]), where="other")
    simulator.load(other)
    assert simulator.reset() == Simulator(other).reset() != intro
    assert "go to shelf 1" in simulator.admissible()


def test_lists_and_states_that_were_given_out_are_not_changed_by_anyone() -> None:
    simulator = fresh()
    commands, state = simulator.admissible(), simulator.get_state()
    commands.clear()
    assert simulator.admissible()
    do(simulator, "go to drawer 1", "open drawer 1", "use desklamp 1")
    assert state == fresh().get_state()
    branch = copy.deepcopy(simulator)
    do(branch, "close drawer 1")
    assert simulator.is_open("drawer_bar_a") and not branch.is_open("drawer_bar_a")
    assert branch.game is simulator.game


def test_what_the_expert_asks_for() -> None:
    simulator = fresh()
    do(simulator, "go to countertop 1", "take mug 1 from countertop 1", "go to drawer 1", "use desklamp 1")
    assert (simulator.location, simulator.holding) == ("loc_bar_3", "mug_bar_b")
    assert simulator.contents("countertop_bar_a") == ("apple_bar_a", "bowl_bar_a", "knife_bar_a")
    assert not simulator.is_open("drawer_bar_a") and simulator.is_open("countertop_bar_a")
    assert simulator.toggled == {"desklamp_bar_a"}


def test_simulators_of_one_game_in_many_threads_do_not_disturb_each_other() -> None:
    game = GAMES[-1]
    plays = [walk(Simulator(game), seed, 60) for seed in range(8)]

    def record(play: list[str]) -> list[str]:
        simulator = Simulator(game)
        return [simulator.reset(), *(simulator.step(command) for command in play), *simulator.admissible()]

    alone = [record(play) for play in plays]
    together: dict[int, list[list[str]]] = {}
    threads = [
        threading.Thread(target=lambda number=number, play=play: together.update({number: [record(play) for _ in range(20)]}))
        for number, play in enumerate(plays)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == {number: [expected] * 20 for number, expected in enumerate(alone)}


def test_real_games_are_walked_without_a_command_that_does_nothing(data_dir: Path) -> None:
    for number, file in enumerate(sorted((data_dir / "alfworld").rglob("game.tw-pddl"))):
        simulator = Simulator(read_game(file))
        for command in walk(simulator, number, 60):
            assert command
        assert simulator.reset().endswith(f"Your task is to: {simulator.game.task}")
