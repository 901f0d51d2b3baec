"""Generated games: a function of their number, of every kind, winnable, different, in disjoint splits, and played by the original engine."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from differential import need_stock_engine
from helpers import require
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.envs.alfworld import generator
from agent_gym.envs.alfworld.expert import next_command
from agent_gym.envs.alfworld.game import parse_game
from agent_gym.envs.alfworld.generator import (
    SPLITS,
    TASK_TYPES,
    GeneratedGame,
    domain_text,
    game_signature,
    generate,
    generate_game,
    grammar_text,
)
from agent_gym.envs.alfworld.rooms import KINDS, LEVELS, OBJECTS, ROOMS, layouts
from agent_gym.envs.alfworld.simulator import Simulator

split_names = st.sampled_from(SPLITS)
level_names = st.sampled_from(LEVELS)
numbers = st.integers(0, 10**9)
some_types = st.lists(st.sampled_from(TASK_TYPES), min_size=1, unique=True)


# --- what a game is a function of ------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(split=split_names, index=numbers, level=level_names, task_types=some_types)
def test_a_game_is_a_function_of_its_number_and_leaves_the_global_generator_alone(
    split: str, index: int, level: str, task_types: list[str]
) -> None:
    before = random.getstate()
    first = generate(split, index, level=level, task_types=task_types)
    assert generate(split, index, level=level, task_types=task_types) == first
    assert random.getstate() == before
    assert generate(split, index, level=level, task_types=set(task_types)) == first, "the order of the task types does not matter"
    assert first.meta.task_type in task_types


def test_games_have_the_same_bytes_in_every_process_and_order() -> None:
    code = (
        "import hashlib, sys; from agent_gym.envs.alfworld.generator import *;"
        "numbers = [(s, i, l) for s in SPLITS for l in ('full', 'small') for i in range(20)];"
        "games = {n: generate_game(n[0], n[1], level=n[2]) for n in numbers[::int(sys.argv[1])]};"
        "print(hashlib.sha256(repr([games[n] for n in numbers]).encode()).hexdigest())"
    )
    digests = set()
    for seed, order in (("0", "1"), ("1", "-1"), ("random", "1")):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", code, order], env=environment, capture_output=True, text=True, check=True)
        digests.add(run.stdout)
    assert len(digests) == 1


def test_the_wording_changes_nothing_but_the_words() -> None:
    for index in range(20):
        move, put = (generate("train", index, grammar=grammar) for grammar in ("move", "put"))
        assert move.data["pddl_problem"] == put.data["pddl_problem"]
        assert move.meta.task == put.meta.task
        assert move.data["grammar"] != put.data["grammar"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "test"}, "unknown split 'test'; it is one of train, valid_seen, valid_unseen"),
        ({"level": "tiny"}, "unknown level 'tiny'; it is one of full, small"),
        ({"grammar": "new"}, "unknown grammar 'new'; it is one of move, put"),
        ({"task_types": ["cook"]}, "unknown task type 'cook'"),
        ({"task_types": []}, "at least one task type"),
        ({"index": -1}, "an index from 0"),
    ],
)
def test_what_does_not_exist_is_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"split": "train", "index": 0, **change}
    with pytest.raises(ValueError, match=message):
        generate_game(arguments.pop("split"), arguments.pop("index"), **arguments)


# --- what games are like ---------------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(split=split_names, index=numbers, level=level_names, task_types=some_types)
def test_a_game_is_sound(split: str, index: int, level: str, task_types: list[str]) -> None:
    """It is read as a game, is not won at once, holds nothing that cannot be put back, and its task is the one that its description says."""
    made = generate(split, index, level=level, task_types=task_types)
    game = parse_game(made.data, where="generated")
    meta = made.meta
    assert (game.task, game.task_type, game.grammar) == (meta.task, meta.task_type, "move")
    assert (game.goal.object_type, game.goal.receptacle_type, game.goal.toggle_type) == (
        meta.object_target,
        meta.parent_target,
        meta.toggle_target,
    )
    assert not Simulator(game).won
    assert not game.receptacles_at.get(game.first.location), "the agent begins in the middle of the room"
    for thing in game.objects.values():
        if thing.pickupable and thing.receptacles:
            standing = {game.receptacles[receptacle].type for receptacle in thing.receptacles}
            assert all(thing.type in game.can_contain[kind] for kind in standing)
            assert standing <= OBJECTS[thing.type].homes
    lamps = [thing for thing in game.objects.values() if thing.type == meta.toggle_target]
    assert bool(lamps) == (meta.task_type == "look_at_obj_in_light")
    assert all(lamp.toggleable and lamp.receptacles and not lamp.pickupable for lamp in lamps)


def test_every_split_plays_all_tasks_in_all_rooms_with_many_objects_and_targets() -> None:
    for split in SPLITS:
        metas = [generate(split, index).meta for index in range(600)]
        tasks = Counter(meta.task_type for meta in metas)
        assert all(70 < tasks[task] < 130 for task in TASK_TYPES), tasks
        kinds = Counter(meta.scene // 100 for meta in metas)
        assert all(kinds[base] > 30 for base in (10, 12, 13, 14)), kinds
        assert len({meta.object_target for meta in metas}) > 40
        assert len({meta.parent_target for meta in metas}) > 18
        assert {meta.template for meta in metas} == {0, 1}
        most = Counter((meta.task_type, meta.object_target, meta.parent_target) for meta in metas).most_common(1)[0][1]
        assert most <= 20, "one task is asked too often"


def test_full_games_are_as_large_as_the_real_ones() -> None:
    """The real games: 22.2 receptacles of which 4.4 share their place, and from 14 (bathroom) to 50 (kitchen) objects that can be taken."""
    receptacles = sharing = things = doubled = 0
    count = 400
    for index in range(count):
        game = parse_game(generate_game("train", index), where="generated")
        receptacles += len(game.receptacles)
        sharing += sum(len(group) for group in game.receptacles_at.values() if len(group) > 1)
        standing = [thing for thing in game.objects.values() if thing.pickupable and thing.receptacles]
        things += len(standing)
        doubled += any(len(thing.receptacles) > 1 for thing in standing)
    assert 20 < receptacles / count < 25
    assert 3.5 < sharing / count < 5.5
    assert 25 < things / count < 45
    assert 0.2 < doubled / count < 0.8


def test_small_games_are_small() -> None:
    for index in range(200):
        game = parse_game(generate_game("train", index, level="small"), where="generated")
        assert 5 <= len(game.receptacles) <= 8
        assert 3 <= len(game.objects) <= 7
        assert all(len(group) == 1 for group in game.receptacles_at.values())


def test_things_are_numbered_as_the_original_numbers_them() -> None:
    """By type, counting down the sorted ids, sinks and their basins apart; checked against names worked out here."""
    for index in range(10):
        game = parse_game(generate_game("train", index), where="generated")
        ids = sorted([*game.receptacles, *game.objects])
        kinds = [name.split("_bar_")[0] + ("basin" if "basin" in name else "") for name in ids]
        left = Counter(kinds)
        for name, kind in zip(ids, kinds, strict=True):
            assert game.names[name] == f"{kind} {left[kind]}"
            left[kind] -= 1
    assert "sinkbasin 1" in game.names.values()


# --- no two alike ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "task_types"), [("full", TASK_TYPES), ("small", TASK_TYPES), ("small", TASK_TYPES[2:3])])
def test_three_thousand_games_hardly_repeat(level: str, task_types: tuple[str, ...]) -> None:
    """By chance alone, 3,000 draws from at least 100,000 games would hold some 45 pairs of the same; ten are allowed."""
    signatures = Counter(game_signature(generate_game("train", index, level=level, task_types=task_types)) for index in range(3000))
    assert sum(count - 1 for count in signatures.values()) <= 10


@pytest.mark.parametrize("level", LEVELS)
def test_there_are_far_more_than_a_hundred_thousand_games(level: str) -> None:
    """Counted from below, with one object of each type: a goal, and the kinds of spot that each object may stand at.

    A spot is told apart by what the signature sees: the receptacle's type and openness, and what else stands at its place.
    """
    total = 0
    for kind in KINDS:
        for room in layouts(kind, level):
            if room.unseen:
                continue
            groups: dict[int, list[tuple[str, bool]]] = {}
            for receptacle in room.receptacles:
                groups.setdefault(receptacle.place, []).append((receptacle.type, receptacle.openable))

            def spots(name: str, room: Any = room, groups: Any = groups) -> int:
                fitting = (one for one in room.receptacles if one.type in OBJECTS[name].homes)
                return len({(one.type, one.openable, *map(str, sorted(groups[one.place]))) for one in fitting})

            always = [name for name, share in ROOMS[kind].things.items() if share == 100 and spots(name)]
            for target, receptacles in generator._goals(room, "pick_and_place_simple").items():
                others = [spots(name) for name in always if name != target]
                if level == "full":
                    total += len(receptacles) * math.prod(others)
                else:
                    total += len(receptacles) * sum(one * other for i, one in enumerate(others) for other in others[:i])
    assert total > 100_000


@pytest.mark.parametrize("level", LEVELS)
def test_no_game_stands_in_two_splits(level: str) -> None:
    games = {split: [generate(split, index, level=level) for index in range(400)] for split in SPLITS}
    signatures = {split: {game_signature(game.data) for game in made} for split, made in games.items()}
    assert not signatures["train"] & signatures["valid_seen"]
    assert not (signatures["train"] | signatures["valid_seen"]) & signatures["valid_unseen"]
    scenes = {split: {game.meta.scene for game in made} for split, made in games.items()}
    assert not (scenes["train"] | scenes["valid_seen"]) & scenes["valid_unseen"]
    known = {room.scene for kind in KINDS for room in layouts(kind, level) if not room.unseen}  # type: ignore[arg-type]
    assert scenes["train"] | scenes["valid_seen"] <= known
    assert len(scenes["train"] | scenes["valid_seen"]) > 80
    assert len(scenes["train"] & scenes["valid_seen"]) > 60, "valid_seen plays in rooms of train"
    assert len(scenes["valid_unseen"]) > 20


def test_layouts_of_unseen_rooms_are_found_in_no_written_game_of_another_split() -> None:
    """The same from the written games, without asking the generator which room it took."""

    def layout(data: dict[str, Any]) -> tuple[Any, ...]:
        init = data["pddl_problem"].split("(:goal")[0]
        kinds = dict(re.findall(r"\(receptacleType (\S+) (\S+)\)", init))
        openable = set(re.findall(r"\(openable (\S+)\)", init))
        places: dict[str, list[tuple[str, bool]]] = {}
        for receptacle, place in re.findall(r"\(receptacleAtLocation (\S+) (\S+)\)", init):
            places.setdefault(place, []).append((kinds[receptacle], receptacle in openable))
        return tuple(sorted(tuple(sorted(group)) for group in places.values()))

    found = {split: {layout(generate_game(split, index)) for index in range(300)} for split in SPLITS}
    assert not (found["train"] | found["valid_seen"]) & found["valid_unseen"]
    assert len(found["train"]) > 80
    assert len(found["valid_unseen"]) <= 24


@settings(deadline=None, max_examples=60)
@given(index=numbers, level=level_names)
def test_a_signature_does_not_see_numbers_and_positions(index: int, level: str) -> None:
    data = generate_game("train", index, level=level)
    numbers_of: dict[str, int] = {}
    renamed = re.sub(
        r"\w+_bar_\w+",
        lambda name: f"{name[0].split('_bar_')[0]}_bar_{numbers_of.setdefault(name[0], len(numbers_of))}",
        data["pddl_problem"],
    )
    assert game_signature({**data, "pddl_problem": renamed}) == game_signature(data)
    assert renamed != data["pddl_problem"]


def _moved(problem: str) -> str:
    fact = re.search(r"\(inReceptacle (\S+) (\S+)\)", problem)
    assert fact is not None
    kinds = dict(re.findall(r"\(receptacleType (\S+) (\S+)\)", problem))
    other = next(name for name, kind in kinds.items() if kind != kinds[fact[2]])
    return problem.replace(fact[0], f"(inReceptacle {fact[1]} {other})")


@pytest.mark.parametrize(
    "change",
    [
        _moved,
        lambda problem: re.sub(r"\(openable \S+\)", "", problem, count=1),
        lambda problem: re.sub(r"\(inReceptacle \S+ \S+\)", "", problem, count=1),
        lambda problem: problem.replace("(isHot ?o)", "(isClean ?o)"),
        lambda problem: re.sub(r"(\(receptacleType \?r )\w+", r"\1BedType", problem),
    ],
)
def test_a_signature_sees_every_change_of_the_state_and_of_the_goal(change: Callable[[str], str]) -> None:
    data = generate_game("train", 3, task_types=["pick_heat_then_place_in_recep"])
    changed = change(data["pddl_problem"])
    assert changed != data["pddl_problem"]
    assert game_signature({**data, "pddl_problem": changed}) != game_signature(data)


def test_the_split_is_decided_by_the_signature_that_is_read_from_the_file() -> None:
    """So anyone can tell of a file, without the generator's inner workings, to which split of known rooms it belongs."""
    for split in ("train", "valid_seen"):
        for index in range(50):
            signature = game_signature(generate_game(split, index))
            bucket = int.from_bytes(hashlib.blake2b(signature.encode(), digest_size=8).digest()) % 4
            assert (bucket == 0) == (split == "valid_seen")


# --- played by the original engine -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two engines of the original, and the texts of its domain and grammar."""
    need_stock_engine()
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = str(tmp_path_factory.mktemp("alfworld"))
    try:
        info = require("alfworld.info")
        environments = require("alfworld.agents.environment.alfred_tw_env")
        textworld = require("textworld")
        pddl = require("textworld.envs")
        pair = [
            environments.AlfredDemangler(pddl.PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)
            for _ in range(2)
        ]
        with open(info.ALFRED_PDDL_PATH, encoding="utf-8") as domain, open(info.ALFRED_TWL2_PATH, encoding="utf-8") as grammar:
            yield pair, domain.read(), grammar.read()
        for engine in (
            pair
        ):  # not unloaded: all copies of the library share one registry of plugins, which would go on naming those of an unloaded one
            engine.unwrapped.downward_lib.cleanup()
    finally:
        if before is None:
            os.environ.pop("ALFWORLD_DATA", None)
        else:
            os.environ["ALFWORLD_DATA"] = before


def _with_official_texts(game: GeneratedGame, domain: str, grammar: str) -> dict[str, Any]:
    return {**game.data, "pddl_domain": domain, "grammar": grammar.replace("UNKNOWN GOAL.", game.meta.task)}


def _tour(game: GeneratedGame, steps: int) -> list[str]:
    """A play that uses every verb that it can: the expert's commands, and between them the admissible one whose verb was used least."""
    simulator = Simulator(parse_game(game.data, where="generated"))
    used: Counter[str] = Counter()
    commands: list[str] = []
    for number in range(steps):
        rare = min(simulator.admissible(), key=lambda command: (used[command.split()[0]], command))
        command = next_command(simulator) if number % 2 and not simulator.won else rare
        used[command.split()[0]] += 1
        commands.append(command)
        simulator.step(command)
    return commands


def _slicing(grammar: str) -> tuple[GeneratedGame, list[str]]:
    """A game with a knife and something to slice, and the play that takes the knife there."""
    for index in range(10_000):
        made = generate("train", index, level="small", grammar=grammar, task_types=TASK_TYPES[3:4])
        game = parse_game(made.data, where="generated")
        knife = next((thing for thing in game.objects.values() if thing.type in ("Knife", "ButterKnife")), None)
        food = next((thing for thing in game.objects.values() if thing.sliceable), None)
        if knife is None or food is None or knife.receptacles == food.receptacles:
            continue
        simulator = Simulator(game)
        commands: list[str] = []
        for command in (
            *(f"{verb} {game.receptacles[knife.receptacles[0]].name}" for verb in ("go to", "open")),
            f"take {knife.name} from {game.receptacles[knife.receptacles[0]].name}",
            *(f"{verb} {game.receptacles[food.receptacles[0]].name}" for verb in ("go to", "examine")),
            f"slice {food.name} with {knife.name}",
            f"examine {knife.name}",
        ):
            if command in simulator.admissible():
                commands.append(command)
                simulator.step(command)
        assert simulator.sliced == {food.id}
        return made, commands
    raise AssertionError("no game with a knife and something to slice")


def _play_side_by_side(engines: Any, ours: dict[str, Any], theirs: dict[str, Any], commands: list[str]) -> Counter[str]:
    """Play the same commands in both engines; all texts, admissible commands and results have to be the same."""
    states = []
    for engine, data in zip(engines, (ours, theirs), strict=True):
        engine.load(data)
        states.append(engine.reset())
    for command in [*commands, ""]:
        one, other = states
        assert one.feedback == other.feedback
        assert one["admissible_commands"] == other["admissible_commands"]
        assert one["won"] == other["won"]
        states = [engine.step(command)[0] for engine in engines]
    return Counter(command.split()[0] for command in commands)


_VERBS = {"look", "inventory", "examine", "go", "open", "close", "take", "clean", "heat", "cool", "use", "slice"}


def _plays(grammar: str) -> list[tuple[GeneratedGame, list[str]]]:
    small = [generate("train", 5, level="small", grammar=grammar, task_types=[task]) for task in TASK_TYPES[1:5]]
    full = generate("train", 1, grammar=grammar, task_types=TASK_TYPES[:1])
    return [*((game, _tour(game, 24)) for game in small), (full, _tour(full, 10)), _slicing(grammar)]


def test_our_domain_and_grammar_play_as_the_packaged_ones(engines: Any) -> None:
    pair, domain, grammar = engines
    verbs: Counter[str] = Counter()
    for game, commands in _plays("move"):
        verbs += _play_side_by_side(pair, game.data, _with_official_texts(game, domain, grammar), commands)
    assert set(verbs) == _VERBS | {"move", "help"}, verbs


def test_our_old_wording_plays_as_that_of_the_old_files(engines: Any, data_dir: Any) -> None:
    pair, _, _ = engines
    file = next(iter(sorted((data_dir / "alfworld" / "old_grammar").glob("**/pick_cool*/**/game.tw-pddl"))))
    official = json.loads(file.read_text())
    verbs: Counter[str] = Counter()
    for game, commands in _plays("put"):
        grammar = re.sub(r"(Your task is to: )[^\"]*", rf"\g<1>{game.meta.task}", official["grammar"])
        theirs = {**game.data, "pddl_domain": official["pddl_domain"], "grammar": grammar}
        verbs += _play_side_by_side(pair, game.data, theirs, commands)
    assert set(verbs) == _VERBS | {"put"}, verbs


def test_a_wrong_word_in_our_grammar_or_domain_would_be_seen(engines: Any) -> None:
    pair, domain, grammar = engines
    game = generate("train", 5, level="small", task_types=["pick_heat_then_place_in_recep"])
    theirs = _with_official_texts(game, domain, grammar)
    for key, right, wrong in (
        ("grammar", "Next to it", "Beside it"),
        ("pddl_domain", "(not (holdsAny ?a))\n      (or", "(or"),
        ("pddl_domain", "(receptacleAtLocation ?r ?l) (opened ?r))", "(receptacleAtLocation ?r ?l))"),
    ):
        assert right in game.data[key]
        with pytest.raises(AssertionError):
            _play_side_by_side(pair, {**game.data, key: game.data[key].replace(right, wrong)}, theirs, _tour(game, 16))


def test_the_texts_hold_the_mark_for_the_task_once_and_help_only_where_it_belongs() -> None:
    for grammar in ("move", "put"):
        assert grammar_text(grammar).count("UNKNOWN GOAL") == 1
        assert ("action help" in domain_text(grammar) or ":action help" in domain_text(grammar)) == (grammar == "move")
        assert ("action help" in grammar_text(grammar)) == (grammar == "move")
