"""Reading a game: what is found in it, and that whatever cannot be played is refused by one clear error."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_house import GOALS, escaped, house

from agent_gym.envs.alfworld.domain import DomainError, read_domain
from agent_gym.envs.alfworld.game import TASK_TYPES, Game, GameError, Goal, parse_game, read_game
from agent_gym.envs.alfworld.generator import domain_text, generate_game
from agent_gym.envs.alfworld.pddl import PDDLError, parse_pddl, typed_list


def refusal(data: Any) -> str:
    """Why a game is refused."""
    with pytest.raises(GameError) as caught:
        parse_game(data, where="somewhere")
    assert str(caught.value).startswith("somewhere: ") and "\n" not in str(caught.value)
    return caught.value.reason


def altered(**changes: str) -> dict[str, Any]:
    """The house with a text replaced, `old=>new`, in one of its parts; the old text must be there."""
    data = house()
    for part, change in changes.items():
        old, new = change.split("=>")
        assert old in data[part], old
        data[part] = data[part].replace(old, new)
    return data


# ------------------------------------------------------------------------------------------------------------------ what is read


def test_a_game_says_what_is_where_and_what_it_can_do() -> None:
    game = parse_game(house(), where="h")
    assert (game.task, game.task_type, game.grammar) == ("put a mug in drawer.", "pick_and_place_simple", "move")
    assert game.goal == Goal("pick_and_place_simple", "Mug", "Drawer")
    cabinet, shelf = game.receptacles["cabinet_bar_a"], game.receptacles["shelf_bar_a"]
    assert (cabinet.name, cabinet.type, cabinet.location, cabinet.openable) == ("cabinet 2", "Cabinet", "loc_bar_1", True)
    assert (shelf.location, shelf.openable) == (None, False)
    bowl, lamp, chair = (game.objects[escaped(name).lower()] for name in ("Bowl|A", "DeskLamp|A", "Chair|A"))
    assert bowl.receptacles == ("countertop_bar_a", "shelf_bar_a") and bowl.is_receptacle and bowl.pickupable and not bowl.cleanable
    assert lamp.toggleable and not lamp.pickupable and lamp.type == "DeskLamp"
    assert chair.receptacles == () and not chair.pickupable
    assert game.can_contain["Drawer"] == {"Knife", "Mug", "Pen"}
    assert list(game.receptacles) == sorted(game.receptacles) and list(game.objects) == sorted(game.objects)


def test_numbers_count_down_in_the_order_of_the_ids_and_a_basin_is_named_as_one() -> None:
    names = parse_game(house(), where="h").names
    assert (names["apple_bar_a"], names["apple_bar_b"]) == ("apple 2", "apple 1")
    assert names["sink_bar_a_bar_sinkbasin"] == "sinkbasin 1"
    assert names["agent1"] == "agent1 "  # no bar, no number


def test_things_that_no_fact_mentions_are_not_numbered() -> None:
    game = parse_game(house(objects="Apple|0 - object Egg - object"), where="h")
    assert game.names["apple_bar_a"] == "apple 2" and "egg" not in game.names and "apple_bar_0" not in game.objects


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_each_of_the_six_goals_is_recognised(task_type: str) -> None:
    goal = parse_game(house(task_type), where="h").goal
    if task_type == "look_at_obj_in_light":
        assert goal == Goal(task_type, "Mug", toggle_type="DeskLamp")
    else:
        assert goal == Goal(task_type, "Mug", "Drawer")


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_a_goal_is_recognised_whatever_its_variables_are_called_and_in_whatever_order_it_stands(task_type: str) -> None:
    renamed = re.sub(r"\?(\w+)", r"?x\1y", GOALS[task_type])
    renamed = re.sub(r"\(and \((\w+ [^()]*)\) \((\w+ [^()]*)\)", r"(and (\2) (\1)", f"(and {renamed})")
    assert renamed != GOALS[task_type]
    assert parse_game(house(renamed), where="h").task_type == task_type


OTHER_GOALS = {
    "three objects": GOALS["pick_two_obj_and_place"].replace(
        "(inReceptacle ?o2 ?r))", "(inReceptacle ?o2 ?r) (exists (?o3 - object) (and (objectType ?o3 MugType) (inReceptacle ?o3 ?r))))"
    ),
    "two kinds": GOALS["pick_two_obj_and_place"].replace("(objectType ?o2 MugType)", "(objectType ?o2 PenType)"),
    "the same object twice": GOALS["pick_two_obj_and_place"].replace("(not (= ?o1 ?o2))", "(= ?o1 ?o2)"),
    "sliced": GOALS["pick_and_place_simple"].replace("(inReceptacle", "(isSliced ?o) (inReceptacle"),
    "movable": "(exists (?o - object ?m - object) (and (objectType ?o PenType) (objectType ?m BowlType) (inReceptacleObject ?o ?m)))",
    "two receptacles": "(exists (?r - receptacle ?s - receptacle ?o - object)"
    " (and (inReceptacle ?o ?s) (objectType ?o MugType) (receptacleType ?r DrawerType)))",
    "either": f"(or {GOALS['pick_and_place_simple']} {GOALS['pick_clean_then_place_in_recep']})",
    "all": "(forall (?o - object) (isClean ?o))",
    "one object by name": "(exists (?r - receptacle) (and (inReceptacle Mug|A ?r) (receptacleType ?r DrawerType)))",
    "nothing": "(and)",
}


@pytest.mark.parametrize("goal", OTHER_GOALS.values(), ids=OTHER_GOALS.keys())
def test_any_other_goal_is_refused(goal: str) -> None:
    assert refusal(house(goal)).startswith("its goal is none of the six kinds: pick_and_place_simple")


def test_all_real_games_are_read(data_dir: Path) -> None:
    files = sorted((data_dir / "alfworld").rglob("game.tw-pddl"))
    games = [read_game(file) for file in files]
    assert len(games) == 48
    assert Counter(game.grammar for game in games) == {"move": 24, "put": 24}
    for file, game in zip(files, games, strict=True):
        task_type, thing, _, parent, _ = file.parts[-3].split("-")
        assert game.goal == Goal(task_type, thing, *(("", parent) if task_type == "look_at_obj_in_light" else (parent,)))
        assert game.task in json.loads(file.read_text())["grammar"]


def test_a_game_does_not_change_so_it_is_shared_by_copies_and_can_be_pickled() -> None:
    data = house()
    game = parse_game({**data, "walkthrough": ["look"]}, where="h")
    assert game.data == data
    assert copy.deepcopy({"game": game})["game"] is game
    again = pickle.loads(pickle.dumps(game))
    assert (again.where, again.names, again.first, again.data) == (game.where, game.names, game.first, game.data)
    assert again.wording is game.wording
    with pytest.raises(AttributeError):
        game.task = "another"  # type: ignore[misc]
    with pytest.raises(TypeError):
        game.names["apple_bar_a"] = "pear 1"  # type: ignore[index]


# --------------------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("key", ["pddl_domain", "grammar", "pddl_problem"])
def test_a_missing_key_or_one_of_another_type_is_named(key: str) -> None:
    data = house()
    data[key] = ["text"]
    assert refusal(data) == f"its {key!r} should be a text and is a list"
    del data[key]
    assert refusal(data) == f"it has no {key!r}"


@pytest.mark.parametrize("value", [False, None, "yes", 1])
def test_a_game_that_no_planner_solved_is_refused(value: object) -> None:
    assert refusal({**house(), "solvable": value}).startswith(f"it is marked solvable={value!r}, so it is not solvable")


def test_a_game_that_says_nothing_about_being_solvable_is_refused() -> None:
    data = house()
    del data["solvable"]
    assert refusal(data).startswith("it says nothing about whether it is solvable")


@pytest.mark.parametrize("data", [None, [], "game", 3])
def test_what_is_no_object_is_refused(data: object) -> None:
    assert "a game is a JSON object" in refusal(data)


PROBLEMS = {
    "duplicate object": (house(objects="Mug|A - object"), "declares the object mug_bar_a twice"),
    "unknown type": (house(objects="Cat - animal"), "has the type animal"),
    "undeclared": (house(add=["(pickupable Cat|A)"]), "speaks of what is not declared"),
    "wrong types": (house(add=["(inReceptacle Cabinet|A Cabinet|B)"]), "should be about object and receptacle"),
    "unknown predicate": (house(add=["(haunted Cabinet|A)"]), "predicate that is not understood"),
    "too few words": (house(add=["(inReceptacle Mug|A)"]), "should be about object and receptacle"),
    "a bracket in a fact": (house(add=["(inReceptacle (Mug|A) Cabinet|A)"]), "speaks of what is not declared"),
    "a fraction": (house(add=["(= (total-cost) 1.5)"]), "is not understood"),
    "two locations": (house(add=["(receptacleAtLocation Cabinet|A loc|2)"]), "has two locations"),
    "two kinds": (house(add=["(objectType Mug|A PenType)"]), "has two kinds"),
    "two agents": (house(objects="agent2 - agent", add=["(atLocation agent2 loc|1)"]), "of one agent where it is, and says 2"),
    "nowhere": (house(drop="atLocation agent1"), "of one agent where it is, and says 0"),
    "hands": (house(add=["(holds agent1 Pen|A)"]), "the agent's hands does not fit together"),
    "no such goal": (house(drop="canContain Drawer"), "its goal cannot be reached"),
    "out of reach": (house(drop="receptacleAtLocation Drawer"), "its goal cannot be reached"),
    "not to be taken": (house(drop="pickupable Mug"), "its goal cannot be reached"),
    "nothing to heat with": (house("pick_heat_then_place_in_recep", drop="receptacleType Microwave"), "its goal cannot be reached"),
    "no lamp": (house("look_at_obj_in_light", drop="toggleable"), "its goal cannot be reached"),
    "one of two": (house("pick_two_obj_and_place", drop="pickupable Mug.A"), "its goal cannot be reached"),
    "another domain": (altered(pddl_problem="(:domain alfred)=>(:domain blocks)"), "of another domain than alfred"),
    "no goal": (altered(pddl_problem="(:goal=>(:constraints"), "has no :goal"),
    "two sections": (altered(pddl_problem="(:goal=>(:init) (:goal"), "two sections :init"),
    "unbalanced": (altered(pddl_problem="(define=>(define ("), "never closed"),
    "task line": (altered(grammar="Your task is to: =>Please "), "its task line should begin with"),
    "another verb": (altered(grammar='"move {o} to {r}"=>"drop {o} in {r}"'), "puts things down by 'drop <object> in <receptacle>'"),
}


@pytest.mark.parametrize(("data", "reason"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_problem_that_cannot_be_played_is_refused_with_the_reason(data: dict[str, Any], reason: str) -> None:
    assert reason in refusal(data)


def test_what_changes_nothing_is_let_through() -> None:
    data = house(
        add=["(= (total-cost) 0)", "(= (distance loc|1 loc|2) 3)", "(not (opened Cabinet|A))", "(checked Mug|A)", "(isOn DeskLamp|A)"]
    )
    assert parse_game(data, where="h").first == parse_game(house(), where="h").first


DOMAINS = {
    "another action": (
        "(:action look",
        "(:action sing :parameters () :precondition () :effect (checked agent1)) (:action look",
        "an action sing",
    ),
    "another condition": ("(not (holdsAny ?a))", "(holdsAny ?a)", "the action pickupobject"),
    "another effect": ("(isClean ?o)", "(isHot ?o)", "the action cleanobject"),
    "another parameter": (
        ":parameters (?a - agent ?l - location)",
        ":parameters (?a - agent ?l - location ?o - object)",
        "the action look of its PDDL domain is not the one",
    ),
    "another type": ("(:types", "(:types animal", "has the types agent, animal"),
    "another section": ("(:predicates", "(:derived (x) (y)) (:predicates", "a section :derived"),
    "no actions": ("(:action look", "(:functions) (:predicates", "lacks the action look"),
}


@pytest.mark.parametrize(("old", "new", "reason"), DOMAINS.values(), ids=DOMAINS.keys())
def test_a_domain_that_is_not_played_exactly_is_refused_by_name_and_points_to_the_other_engine(old: str, new: str, reason: str) -> None:
    data = house()
    changed = re.sub(re.escape(old), lambda _: new, data["pddl_domain"], count=1)
    if old not in data["pddl_domain"]:
        pytest.fail(f"the domain does not hold {old!r}")
    said = refusal({**data, "pddl_domain": changed})
    assert reason in said and 'engine="textworld"' in said


def test_a_domain_is_the_same_in_another_order_with_costs_and_with_groups_of_one() -> None:
    text = domain_text("move")
    changed = re.sub(r":effect (\(checked \?\w\))", r":effect (and (increase (total-cost) 1) (and \1 \1))", text)
    assert changed.count("increase") >= 5
    assert read_domain(changed).actions == read_domain(text).actions


def test_a_condition_over_a_type_that_does_not_exist_never_holds() -> None:
    """The official domain has a stray comma behind a type, so that objects that lie about cannot be examined."""
    text = domain_text("move")
    start = text.index("(:action examineObject")
    action = text[start : text.index("(:action", start + 1)]
    comma = """(:action examineObject :parameters (?a - agent ?o - object)
      :precondition (or (exists (?l - location, ?r - receptacle) (and (atLocation ?a ?l) (inReceptacle ?o ?r))) (holds ?a ?o))
      :effect (and (checked ?o))) """
    assert read_domain(text.replace(action, comma)).actions == read_domain(text).actions
    with pytest.raises(DomainError, match="examineobject"):
        read_domain(text.replace(action, comma.replace("location,", "location")))


def test_what_cleans_heats_cools_and_cuts_is_read_from_the_domain() -> None:
    text = domain_text("move")
    changed = re.sub(r"\(receptacleType \?r SinkBasinType\)", "(or (receptacleType ?r SinkType) (receptacleType ?r SinkBasinType))", text)
    assert changed != text
    assert read_domain(text).tools["cleanobject"] == {"sinkbasintype"}
    assert read_domain(changed).tools["cleanobject"] == {"sinktype", "sinkbasintype"}
    assert read_domain(text).tools["sliceobject"] == {"knifetype", "butterknifetype"}


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    cases: dict[str, bytes] = {
        "empty": b"",
        "cut": json.dumps(house()).encode()[:500],
        "bytes": b"\xff\xfe\x00",
        "deep": b"[" * 200_000,
        "number": b"1" * 10_000,
    }
    for name, content in cases.items():
        file = tmp_path / f"{name}.tw-pddl"
        file.write_bytes(content)
        with pytest.raises(GameError, match=re.escape(str(file))):
            read_game(file)
    for path in (tmp_path, tmp_path / "missing", tmp_path / "nul\0"):
        with pytest.raises(GameError):
            read_game(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "game.tw-pddl"
    with file.open("wb") as large:
        large.truncate(5_000_000)
    with pytest.raises(GameError, match="5,000,000 bytes"):
        read_game(file)


@pytest.mark.parametrize(
    "word", ["pick_and_place_with_movable_recep-Pen-Bowl-Desk-308", "pick_and_place_simple-AppleSliced-None-Fridge-10"]
)
def test_movable_and_sliced_games_are_refused_by_their_folder(tmp_path: Path, word: str) -> None:
    file = tmp_path / word / "trial" / "game.tw-pddl"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(house()))
    with pytest.raises(GameError, match="not among the six task types"):
        read_game(file)


HOSTILE = {
    "deep problem": {"pddl_problem": "(" * 100_000},
    "deep domain": {"pddl_domain": "(define (domain d) " + "(and " * 100_000},
    "deep grammar": {"grammar": 'grammar :: """' + "[" * 100_000 + '""";'},
    "many facts": {"pddl_problem": house()["pddl_problem"].replace("(:init", "(:init " + "(opened cabinet_bar_a) " * 6_000)},
    "not ascii": {"pddl_problem": house()["pddl_problem"].replace("Mug", "Mµg")},
    "closed too often": {"pddl_problem": ")" * 1000},
    "no action": {"grammar": 'grammar :: """{"task": [{"rhs": "Your task is to: x"}]}""";'},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_texts_are_refused(change: dict[str, str]) -> None:
    refusal({**house(), **change})


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_damaged_game_is_played_or_refused_but_never_crashes(data: st.DataObject) -> None:
    game = house()
    part = data.draw(st.sampled_from(["pddl_domain", "grammar", "pddl_problem"]))
    text = game[part]
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 40))
    put_in = data.draw(st.text(alphabet=' ()[]{}#"\\;|?-abor:&,\n', max_size=8))
    game[part] = text[:start] + put_in + text[start + length :]
    with suppress(GameError):
        assert isinstance(parse_game(game, where="damaged"), Game)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_is_refused(data: Any) -> None:
    with pytest.raises(GameError):
        parse_game(data, where="any")


def test_generated_games_are_read() -> None:
    for index in range(12):
        for grammar in ("move", "put"):
            assert parse_game(generate_game("train", index, grammar=grammar), where="g").grammar == grammar


# ------------------------------------------------------------------------------------------------------------------------- pddl


def test_brackets_become_tuples_and_comments_are_dropped() -> None:
    assert parse_pddl("(define (Domain X) ; (not this)\n (f ?A?b))") == ("define", ("domain", "x"), ("f", "?a", "?b"))


@pytest.mark.parametrize("text", ["", "word", "(a) (b)", "(a", "(a))", "((a)"])
def test_what_is_not_one_expression_is_refused(text: str) -> None:
    with pytest.raises(PDDLError):
        parse_pddl(text)


_NESTED = st.recursive(st.sampled_from(["a", "?b", "-", ":c", "d_e"]), lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=20)


@given(st.lists(_NESTED, max_size=5).map(tuple))
def test_reading_undoes_printing(expression: Any) -> None:
    def printed(part: Any) -> str:
        return part if isinstance(part, str) else f"({' '.join(map(printed, part))})"

    assert parse_pddl(printed(expression)) == expression


def test_names_take_the_next_type_and_the_last_ones_are_objects() -> None:
    assert list(typed_list(("a", "b", "-", "cat", "c"))) == [("a", "cat"), ("b", "cat"), ("c", "object")]
    for broken in (("a", "-"), (("a",),)):
        with pytest.raises(PDDLError):
            list(typed_list(broken))
