"""The six things that surprise in ALFWorld, each forced, in both engines and both wordings."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from differential import NOTHING, SideBySide, remembered_parses, sharing
from differential_plays import after_the_win, expert_play, tour

from agent_gym.envs.alfworld.expert import next_command
from agent_gym.envs.alfworld.game import Game, parse_game
from agent_gym.envs.alfworld.generator import generate_game

WORDINGS = ("move", "put")


@pytest.fixture(autouse=True)
def parses() -> Iterator[None]:
    with remembered_parses():
        yield


@cache
def find(grammar: str, task_type: str, fits: Callable[[Game], bool]) -> Game:
    for index in range(500):
        found = parse_game(
            generate_game("train", index, grammar=grammar, level="small", task_types=[task_type]),
            where=f"generated game {index}, {grammar}",
        )
        if fits(found):
            return found
    raise AssertionError("no generated game fits")


def begun(found: Game) -> SideBySide:
    pair = SideBySide()
    pair.begin(found)
    return pair


def stands_open(game: Game) -> bool:
    return any(not game.receptacles[place].openable for thing in game.objects.values() if thing.pickupable for place in thing.receptacles)


def has_a_closed_place(game: Game) -> bool:
    return any(place.openable and place.location and place.id not in game.first.opened for place in game.receptacles.values())


@pytest.mark.parametrize("grammar", WORDINGS)
def test_1_only_a_held_object_can_be_examined(grammar: str) -> None:
    found = find(grammar, "pick_and_place_simple", stands_open)
    pair = begun(found)
    thing = next(thing for thing in found.objects.values() if thing.pickupable and not found.receptacles[thing.receptacles[0]].openable)
    place = found.receptacles[thing.receptacles[0]]
    assert thing.name in pair.play(f"go to {place.name}")
    assert pair.play(f"examine {thing.name}") == NOTHING
    pair.play(f"take {thing.name} from {place.name}")
    assert thing.name in pair.play(f"examine {thing.name}")
    assert pair.coverage.quirks[1] == 1


@pytest.mark.parametrize("grammar", WORDINGS)
def test_2_one_cannot_go_to_a_receptacle_that_shares_the_location(grammar: str) -> None:
    found = sharing(find(grammar, "pick_and_place_simple", lambda game: True))
    pair = begun(found)
    first, second = next(names for names in found.receptacles_at.values() if len(names) > 1)[:2]
    first, second = found.receptacles[first].name, found.receptacles[second].name
    for here, there in ((first, second), (second, first)):
        assert pair.play(f"go to {here}").startswith("You arrive at ")
        assert pair.play(f"go to {there}") == pair.play(f"go to {here}") == NOTHING
        assert pair.play(f"examine {there}") != NOTHING
        elsewhere = next(iter(pair.starting_with("go to ")))
        pair.play(elsewhere)
    assert pair.coverage.quirks[2] == 2


@pytest.mark.parametrize("grammar", WORDINGS)
def test_3_look_before_the_first_go_to_sees_nothing(grammar: str) -> None:
    pair = SideBySide()
    found = sharing(find(grammar, "pick_and_place_simple", lambda game: True))
    intro = pair.begin(found)
    assert all(place.name in intro for place in found.receptacles.values())
    for _ in range(2):
        assert pair.play("look") == "You are in the middle of a room. Looking quickly around you, you see nothing."
        pair.play("inventory")
    pair.play(pair.starting_with("go to ")[0])
    assert pair.play("look").startswith("You are facing ")


@pytest.mark.parametrize("grammar", WORDINGS)
def test_4_a_lamp_in_a_closed_place_can_be_used_and_only_turns_on(grammar: str) -> None:
    found = find(grammar, "look_at_obj_in_light", has_a_closed_place)
    lamp = next(thing for thing in found.objects.values() if thing.toggleable)
    place = next(p for p in found.receptacles.values() if p.openable and p.location and p.id not in found.first.opened)
    problem = found.data["pddl_problem"]
    for relation, there in (("inReceptacle", place.id), ("objectAtLocation", place.location)):
        problem = re.sub(rf"(?i)(\({relation} {lamp.id}) \w+\)", rf"\1 {there})", problem)
    pair = begun(parse_game({**found.data, "pddl_problem": problem}, where="a game with a lamp in a closed place"))
    pair.play(f"go to {place.name}")
    assert f"open {place.name}" in pair.admissible
    said = [pair.play(f"use {lamp.name}") for _ in range(3)]
    assert said == [said[0]] * 3 and said[0].startswith("You turn on ")
    assert lamp.name in pair.play(f"open {place.name}")
    assert pair.play(f"use {lamp.name}") == said[0]


@pytest.mark.parametrize("grammar", WORDINGS)
@pytest.mark.parametrize(("verb", "task_type"), [("heat", "pick_heat_then_place_in_recep"), ("cool", "pick_cool_then_place_in_recep")])
def test_4_appliances_work_closed_and_from_outside(verb: str, task_type: str, grammar: str) -> None:
    pair = begun(find(grammar, task_type, lambda game: True))
    for _ in range(60):
        command = next_command(pair.fast)
        pair.play(command)
        if command.startswith(verb):
            break
    station = command.partition(" with ")[2]
    assert command.startswith(verb) and (f"open {station}" in pair.admissible) and pair.coverage.quirks[4] == 1
    assert pair.play(command) == pair.play(command) != NOTHING


@pytest.mark.parametrize("grammar", WORDINGS)
def test_4_a_place_has_room_for_everything_and_hands_for_one_thing(grammar: str) -> None:
    pair = begun(find(grammar, "pick_and_place_simple", stands_open))
    rng = random.Random(0)
    known = tour(pair, rng)
    put, between = ("move", "to") if grammar == "move" else ("put", "in/on")
    moved: dict[str, list[str]] = {}
    for thing, place in known.items():
        pair.try_to(f"go to {place}")
        pair.try_to(f"open {place}")
        if not pair.try_to(f"take {thing} from {place}"):
            continue
        assert not pair.starting_with("take ")
        for target in pair.receptacles:
            pair.try_to(f"go to {target}")
            pair.try_to(f"open {target}")
            if pair.try_to(f"{put} {thing} {between} {target}"):
                moved.setdefault(target, []).append(thing)
                break
    assert max(map(len, moved.values())) >= 3, moved


@pytest.mark.parametrize("grammar", WORDINGS)
def test_5_what_is_not_admissible_to_the_letter_changes_nothing(grammar: str) -> None:
    pair = begun(find(grammar, "pick_and_place_simple", lambda game: True))
    pair.play(pair.starting_with("go to ")[0])
    go = pair.starting_with("go to ")[0]
    for wrong in (
        "",
        " ",
        "Look",
        "look.",
        "look around",
        go.upper(),
        go.replace(" ", "  ", 1),
        go + ".",
        go.replace("go to", "goto"),
        go[:-1],
        "\u200b" + go,
    ):
        assert pair.play(wrong) == NOTHING
    other = "put apple 1 in/on fridge 1" if grammar == "move" else "move apple 1 to fridge 1"
    assert pair.play(other) == NOTHING
    assert pair.play("help") == NOTHING if grammar == "put" else pair.play("help") != NOTHING
    assert pair.play(f"\n\t {go} \r\n").startswith("You arrive at ")


@pytest.mark.parametrize("grammar", WORDINGS)
def test_6_the_score_is_one_while_the_goal_holds(grammar: str) -> None:
    pair = begun(find(grammar, "pick_and_place_simple", lambda game: True))
    expert_play(pair, next_command)
    assert pair.won and pair.fast.score == 1
    for command in ("look", "Look", "inventory"):
        pair.play(command)
        assert pair.stock.won and pair.stock.score == 1
    kind = pair.game.goal.object_type.lower()
    take = next(c for c in pair.starting_with("take ") if c.startswith(f"take {kind} "))
    pair.play(take)
    assert not pair.stock.won and pair.stock.score == 0
    after_the_win(pair, random.Random(0))
