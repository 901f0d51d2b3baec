"""The expert wins every game that can be won, from wherever it is asked, by shortest plans."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.envs.alfworld import expert
from agent_gym.envs.alfworld.expert import next_command, plan
from agent_gym.envs.alfworld.game import Game, Object, parse_game, read_game
from agent_gym.envs.alfworld.generator import SPLITS, TASK_TYPES, generate_game
from agent_gym.envs.alfworld.rooms import LEVELS
from agent_gym.envs.alfworld.simulator import Simulator

PICK, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES


def made(task_type: str, index: int = 0, level: str = "full", split: str = "train", grammar: str = "move") -> Game:
    data = generate_game(split, index, level=level, grammar=grammar, task_types=[task_type])
    return parse_game(data, where=f"{split} {level} {task_type} {index}")


def play_out(simulator: Simulator) -> list[str]:
    """Let the expert play to the end; each command has to be admissible, and each new plan one shorter than the last."""
    played: list[str] = []
    left = plan(simulator)
    while not simulator.won:
        assert left, f"no plan, though not won: {simulator.game.where}, after {played}"
        command = next_command(simulator)
        assert command == left[0]
        assert command in simulator.admissible(), (simulator.game.where, played, command)
        simulator.step(command)
        played.append(command)
        after = plan(simulator)
        assert len(after) == len(left) - 1, (simulator.game.where, played, left, after)
        left = after
    assert left == []
    assert next_command(simulator) == "look"
    return played


def walk(simulator: Simulator, choices: list[int]) -> None:
    for choice in choices:
        commands = simulator.admissible()
        simulator.step(commands[choice % len(commands)])


def named(simulator: Simulator, kind: str) -> list[Object]:
    return [thing for thing in simulator.game.objects.values() if thing.type == kind]


# --- it wins ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_it_wins_a_hundred_games_of_every_type_in_few_steps(task_type: str, level: str) -> None:
    lengths = []
    for index in range(100):
        game = made(task_type, index, level, SPLITS[index % 3], ("move", "put")[index % 2])
        lengths.append(len(play_out(Simulator(game))))
    assert max(lengths) <= 12
    assert sum(lengths) / 100 < {PICK: 5, LOOK: 5, CLEAN: 7, HEAT: 7.5, COOL: 7.5, TWO: 8}[task_type]
    assert len(set(lengths)) > 1


def test_it_wins_every_real_game_at_hand(data_dir: Path) -> None:
    files = sorted((data_dir / "alfworld").glob("*/json_2.1.1/*/*/*/game.tw-pddl"))
    tasks: Counter[str] = Counter()
    for file in files:
        game = read_game(file)
        assert len(play_out(Simulator(game))) <= 10
        tasks[game.task_type] += 1
    assert set(tasks) == set(TASK_TYPES)


@settings(deadline=None, max_examples=150)
@given(
    task_type=st.sampled_from(TASK_TYPES),
    index=st.integers(0, 10_000),
    level=st.sampled_from(LEVELS),
    choices=st.lists(st.integers(0, 10_000), max_size=40),
)
def test_it_wins_from_every_situation_that_random_play_reaches(task_type: str, index: int, level: str, choices: list[int]) -> None:
    simulator = Simulator(made(task_type, index, level))
    walk(simulator, choices)
    play_out(simulator)


def test_it_wins_real_games_after_random_play(data_dir: Path) -> None:
    """Where a roll of paper towels was picked up nothing wins any more, and the expert says so by having no plan."""
    lost = 0
    for number, file in enumerate(sorted((data_dir / "alfworld").glob("*/json_2.1.1/*/*/*/game.tw-pddl"))):
        simulator = Simulator(read_game(file))
        rng = random.Random(number)
        walk(simulator, [rng.randrange(10_000) for _ in range(60)])
        held = simulator.holding
        if held is not None and simulator.game.objects[held].type == "PaperTowelRoll" and not simulator.won:
            lost += 1
            assert plan(simulator) == []
        else:
            play_out(simulator)
    assert lost <= 5


def test_games_played_half_by_chance_are_often_in_awkward_situations() -> None:
    """The two tests above are worth something only if random play ends in situations that ask for more than the plan from the start."""
    awkward: Counter[str] = Counter()
    for number in range(200):
        simulator = Simulator(made(TASK_TYPES[number % 6], number))
        rng = random.Random(number)
        walk(simulator, [rng.randrange(10_000) for _ in range(40)])
        held = simulator.holding
        goal = simulator.game.goal
        awkward["holding the wrong thing"] += held is not None and simulator.game.objects[held].type != goal.object_type
        awkward["something is open"] += bool(simulator.opened)
        awkward["at a shared place"] += len(simulator.game.receptacles_at.get(simulator.location, ())) > 1
        awkward["something was done to objects"] += bool(simulator.cleaned or simulator.heated or simulator.cooled or simulator.toggled)
    assert all(awkward[situation] > 10 for situation in awkward), awkward


# --- its plans are shortest ------------------------------------------------------------------------------------------------------------


def shortest(simulator: Simulator, limit: int) -> int | None:
    """The least number of commands that wins, by trying all; None where it is more than the limit."""
    start = simulator.get_state()
    idle = ("look", "inventory", "examine", "help", "close", "slice")
    seen, front = {start}, [start]
    for depth in range(limit + 1):
        after = []
        for state in front:
            simulator.set_state(state)
            if simulator.won:
                simulator.set_state(start)
                return depth
            for command in simulator.admissible():
                if not command.startswith(idle):
                    simulator.set_state(state)
                    simulator.step(command)
                    new = simulator.get_state()
                    if new not in seen:
                        seen.add(new)
                        after.append(new)
        front = after
    simulator.set_state(start)
    return None


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_no_shorter_plan_exists(task_type: str) -> None:
    compared = 0
    for index in range(12):
        simulator = Simulator(made(task_type, index, "small"))
        rng = random.Random(index)
        walk(simulator, [rng.randrange(10_000) for _ in range(6 * (index % 3))])
        expected = len(plan(simulator))
        if expected <= 6:
            assert shortest(simulator, expected) == expected, (simulator.game.where, plan(simulator))
            compared += 1
    assert compared >= 3


def test_no_shorter_plan_exists_in_full_rooms_near_the_end() -> None:
    for index in range(12):
        simulator = Simulator(made(TASK_TYPES[index % 6], index))
        while len(plan(simulator)) > 3:
            simulator.step(next_command(simulator))
        assert shortest(simulator, 3) == len(plan(simulator))


# --- situations that have to be got out of ---------------------------------------------------------------------------------------------


def test_whoever_holds_the_wrong_thing_puts_it_down_first() -> None:
    for index in range(20):
        simulator = Simulator(made(HEAT, index))
        goal = simulator.game.goal
        wrong = next(thing for thing in simulator.game.objects.values() if thing.pickupable and thing.type != goal.object_type)
        holder = simulator.game.receptacles[wrong.receptacles[0]].name
        for command in (f"go to {holder}", f"open {holder}", f"take {wrong.name} from {holder}"):
            if command in simulator.admissible():
                simulator.step(command)
        assert simulator.holding == wrong.id
        played = play_out(simulator)
        puts = [command for command in played if command.startswith(f"move {wrong.name} to")]
        takes = [command for command in played if command.startswith("take")]
        assert len(puts) == 1
        assert played.index(puts[0]) < played.index(takes[0])


def test_an_object_that_was_heated_and_cooled_again_is_heated_again() -> None:
    simulator = Simulator(made(HEAT, 3))
    while not simulator.heated:
        simulator.step(next_command(simulator))
    (hot,) = simulator.heated
    commands = plan(simulator)
    assert not any(command.startswith("heat") for command in commands)
    fridge = next(one.name for one in simulator.game.receptacles.values() if one.type == "Fridge")
    simulator.step(f"go to {fridge}")
    if simulator.game.objects[hot].coolable:
        simulator.step(f"cool {simulator.game.objects[hot].name} with {fridge}")
        assert not simulator.heated
        assert any(command.startswith("heat") for command in play_out(simulator))
    else:
        play_out(simulator)


def test_two_objects_in_two_right_receptacles_are_brought_together() -> None:
    for index in range(200):
        simulator = Simulator(made(TWO, index))
        goal = simulator.game.goal
        homes = [one for one in simulator.game.receptacles.values() if one.type == goal.receptacle_type]
        if len(homes) < 2 or any(
            set(simulator.inside[home.id]) & {thing.id for thing in named(simulator, goal.object_type)} for home in homes
        ):
            continue
        for thing, home in zip(named(simulator, goal.object_type), homes, strict=False):
            holder = simulator.game.receptacles[thing.receptacles[0]].name
            for command in (
                *(f"{verb} {holder}" for verb in ("go to", "open")),
                f"take {thing.name} from {holder}",
                *(f"{verb} {home.name}" for verb in ("go to", "open")),
                f"move {thing.name} to {home.name}",
            ):
                simulator.step(command)
        full = [home for home in homes if {thing.id for thing in named(simulator, goal.object_type)} & set(simulator.inside[home.id])]
        assert len(full) == 2
        assert not simulator.won
        played = play_out(simulator)
        assert len(played) <= 4, "one of them has to be carried to the other"
        return
    pytest.fail("no game with two receptacles of the target type")


def test_nothing_is_walked_to_that_stands_where_the_agent_is() -> None:
    shared = 0
    for index in range(300):
        simulator = Simulator(made(PICK, index))
        while not simulator.won:
            command = next_command(simulator)
            if command.startswith(("take", "move", "open")):
                place = simulator.game.receptacles_at[simulator.location]
                arrived = [one for one in place if command.endswith(simulator.names[one])]
                shared += len(place) > 1 and place.index(arrived[0]) > 0
            simulator.step(command)
    assert shared > 20


def test_a_lamp_that_is_lit_already_only_has_to_be_visited() -> None:
    for index in range(20):
        simulator = Simulator(made(LOOK, index))
        lamp = named(simulator, "DeskLamp")[0]
        holder = simulator.game.receptacles[lamp.receptacles[0]].name
        simulator.step(f"go to {holder}")
        simulator.step(f"use {lamp.name}")
        assert simulator.toggled == {lamp.id}
        assert not any(command.startswith("use") for command in play_out(simulator))


def test_a_lamp_in_a_closed_receptacle_is_used_without_opening_it() -> None:
    data = generate_game("train", 0, task_types=[LOOK])
    problem = data["pddl_problem"]
    game = parse_game(data, where="as generated")
    lamp = next(thing for thing in game.objects.values() if thing.type == "DeskLamp")
    written = next(word for word in problem.split() if word.lower().strip("()") == lamp.receptacles[0])
    closed = parse_game({**data, "pddl_problem": problem.replace("(:init", f"(:init (openable {written.strip('()')})")}, where="closed")
    played = play_out(Simulator(closed))
    name = closed.receptacles[lamp.receptacles[0]].name
    assert f"open {name}" not in played or played.index(f"open {name}") < len(played) - 2
    assert played[-1] == f"use {lamp.name}"


def test_nothing_that_wins_any_more_is_said_by_having_no_plan() -> None:
    """A thing that no receptacle may take back, once in hand, ends every hope; generated games have none, so one is made."""
    data = generate_game("train", 0, task_types=[HEAT])
    game = parse_game(data, where="as generated")
    wrong = next(kind for kind in ("Knife", "Fork", "Spoon", "Pot") if kind != game.goal.object_type)
    problem = "\n".join(
        line for line in data["pddl_problem"].splitlines() if not line.strip().endswith(f" {wrong}Type)") or "objectType" in line
    )
    simulator = Simulator(parse_game({**data, "pddl_problem": problem}, where="without a place for it"))
    thing = named(simulator, wrong)[0]
    holder = simulator.game.receptacles[thing.receptacles[0]].name
    for command in (f"go to {holder}", f"open {holder}", f"take {thing.name} from {holder}"):
        assert plan(simulator)
        simulator.step(command)
    assert simulator.holding == thing.id
    assert plan(simulator) == []
    assert next_command(simulator) == "look"


def test_asking_changes_nothing() -> None:
    for index in range(30):
        simulator = Simulator(made(TASK_TYPES[index % 6], index))
        rng = random.Random(index)
        walk(simulator, [rng.randrange(10_000) for _ in range(20)])
        before, commands = simulator.get_state(), simulator.admissible()
        assert plan(simulator) == plan(simulator)
        assert (simulator.get_state(), simulator.admissible()) == (before, commands)


# --- experts that are wrong are found out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("always", [False, True])
def test_an_expert_that_opens_too_little_or_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch, always: bool) -> None:
    monkeypatch.setattr(expert.Errand, "reaches_inside", property(lambda errand: always))
    with pytest.raises(AssertionError):
        for index in range(30):
            simulator = Simulator(made((HEAT, COOL)[index % 2], index, "small"))
            while simulator.holding is None:
                assert next_command(simulator) in simulator.admissible()
                simulator.step(next_command(simulator))
            assert shortest(simulator, len(plan(simulator))) == len(plan(simulator))
            play_out(simulator)


def test_an_expert_that_never_puts_the_wrong_thing_down_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest: Callable[..., bool] = expert._Planner._may_hold

    def only_targets(planner: expert._Planner, receptacle: str, thing: str) -> bool:
        game = planner.world.game
        return game.objects[thing].type == game.goal.object_type and honest(planner, receptacle, thing)

    monkeypatch.setattr(expert._Planner, "_may_hold", only_targets)
    with pytest.raises(AssertionError, match="no plan, though not won"):
        for index in range(60):
            simulator = Simulator(made(HEAT, index))
            rng = random.Random(index)
            walk(simulator, [rng.randrange(10_000) for _ in range(40)])
            play_out(simulator)
