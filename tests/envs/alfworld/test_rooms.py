"""The household: our tables say what ALFRED's say, and the layouts are many, different, and split."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from importlib import resources

import pytest
from helpers import require

from agent_gym.envs.alfworld.rooms import (
    CONTAINERS,
    KINDS,
    LEVELS,
    OBJECTS,
    RECEPTACLES,
    ROOMS,
    STATIONS,
    Layout,
    layouts,
    pddl_id,
)

ALL = [(kind, level) for level in LEVELS for kind in KINDS]


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The tables of the installed package; importing it sets a variable and makes a folder, both of which are kept from the machine."""
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path_factory.mktemp("alfworld")))
    require("alfworld")
    return require("alfworld.gen.constants")


def test_what_may_hold_what_is_what_the_package_says(constants) -> None:  # type: ignore[no-untyped-def]
    theirs = {
        (holder, thing) for holder, things in constants.VAL_RECEPTACLE_OBJECTS.items() for thing in things if not thing.endswith("Sliced")
    }
    ours = {(holder, thing.name) for thing in OBJECTS.values() for holder in thing.homes}
    assert ours == theirs
    assert len(ours) > 600


def test_what_can_be_done_to_an_object_is_what_the_package_says(constants) -> None:  # type: ignore[no-untyped-def]
    for use, table in (("clean", "Cleanable"), ("heat", "Heatable"), ("cool", "Coolable"), ("slice", "Sliceable")):
        theirs = {thing for thing in constants.VAL_ACTION_OBJECTS[table] if not thing.endswith("Sliced")}
        assert {thing.name for thing in OBJECTS.values() if use in thing.uses} == theirs, use
    assert set(constants.MOVABLE_RECEPTACLES) == CONTAINERS
    openable = {kind.name for kind in RECEPTACLES.values() if kind.opens}
    assert openable == set(constants.OPENABLE_CLASS_LIST) - CONTAINERS
    assert set(RECEPTACLES) <= set(constants.RECEPTACLES)


def test_rooms_hold_what_the_floor_plans_of_their_kind_hold(constants) -> None:  # type: ignore[no-untyped-def]
    names = {"kitchen": "Kitchen", "living": "LivingRoom", "bedroom": "Bedroom", "bathroom": "Bathroom"}
    folder = resources.files("alfworld.gen") / "layouts"
    for kind, plan in ROOMS.items():
        shares: Counter[str] = Counter()
        scenes = list(constants.SCENE_TYPE[names[kind]])
        for scene in scenes:
            shares.update(json.loads((folder / f"FloorPlan{scene}-objects.json").read_text()))
        for name, share in plan.things.items():
            if name != "Plunger":  # it stands on the floor mostly, and only where it does not, it is one of ours
                assert abs(100 * shares[name] / len(scenes) - share) <= 4, (kind, name)
        for name, (share, _, _) in plan.furniture.items():
            assert abs(100 * shares[name] / len(scenes) - share) <= 10, (kind, name)
        missing = {name for name, count in shares.items() if count == len(scenes) and name in OBJECTS and name not in plan.things}
        assert not missing, (kind, missing)


@pytest.mark.parametrize(("kind", "level"), ALL)
def test_no_two_layouts_are_alike_and_six_are_kept_apart(kind: str, level: str) -> None:
    rooms = layouts(kind, level)  # type: ignore[arg-type]
    assert len({room.signature() for room in rooms}) == len({room.scene for room in rooms}) == 30
    seen = {room.signature() for room in rooms if not room.unseen}
    unseen = {room.signature() for room in rooms if room.unseen}
    assert (len(seen), len(unseen)) == (24, 6)
    assert not seen & unseen


def test_a_signature_sees_types_openness_and_sharing_and_nothing_else() -> None:
    room = layouts("kitchen")[0]

    def changed(**changes: object) -> Layout:
        first = room.receptacles[0]
        other = type(first)(**{**vars(first), **changes})
        return type(room)(**{**vars(room), "receptacles": (other, *room.receptacles[1:])})

    first = room.receptacles[0]
    alone = len(room.places)
    shared = next(receptacle.place for receptacle in room.receptacles if receptacle.place != first.place)
    assert changed(pddl="elsewhere").signature() == room.signature()
    assert changed(openable=not first.openable).signature() != room.signature()
    assert changed(type="Safe").signature() != room.signature()
    assert changed(place=shared).signature() != room.signature()
    standing_alone = [receptacle for receptacle in room.receptacles if receptacle.place == first.place] == [first]
    assert (changed(place=alone).signature() == room.signature()) == standing_alone


@pytest.mark.parametrize(("kind", "level"), ALL)
def test_layouts_are_whole(kind: str, level: str) -> None:
    for room in layouts(kind, level):  # type: ignore[arg-type]
        ids = [thing.pddl for thing in (*room.receptacles, *room.fixtures)]
        assert len({name.lower() for name in ids}) == len(ids)
        assert len(set(room.places)) == len(room.places)
        assert all(0 <= thing.place < len(room.places) for thing in (*room.receptacles, *room.fixtures))
        assert all(receptacle.type in RECEPTACLES for receptacle in room.receptacles)
        assert all(RECEPTACLES[receptacle.type].opens > 0 for receptacle in room.receptacles if receptacle.openable)
        assert all(receptacle.openable for receptacle in room.receptacles if RECEPTACLES[receptacle.type].opens == 1)
        assert all(room.receptacles[fixture.inside].place == fixture.place for fixture in room.fixtures if fixture.inside >= 0)
        assert {receptacle.place for receptacle in room.receptacles} < set(range(len(room.places))), "no place is left to begin at"
        if kind == "kitchen":
            assert set(STATIONS.values()) <= {receptacle.type for receptacle in room.receptacles}
        if level == "small":
            assert 5 <= len(room.receptacles) <= 8
            assert len({receptacle.place for receptacle in room.receptacles}) == len(room.receptacles)


def test_full_rooms_are_as_large_and_as_crowded_as_the_real_ones() -> None:
    """In the 135 real games seen there are 22.2 receptacles, 4.4 of which share their place; kitchens have most of both."""
    sizes = {kind: sum(len(room.receptacles) for room in layouts(kind)) / 30 for kind in KINDS}
    assert 24 < sizes["kitchen"] < 30
    assert all(13 < sizes[kind] < 21 for kind in ("living", "bedroom", "bathroom"))
    for kind, low, high in (("kitchen", 4, 8), ("living", 1, 4), ("bedroom", 1, 5), ("bathroom", 0.5, 4)):
        sharing = 0
        for room in layouts(kind):  # type: ignore[arg-type]
            at = Counter(receptacle.place for receptacle in room.receptacles)
            sharing += sum(count for count in at.values() if count > 1)
        assert low < sharing / 30 < high, kind


def test_ids_are_mangled_as_the_official_files_mangle_them() -> None:
    assert pddl_id("Cabinet", (65, 48, -172)) == "Cabinet_bar__plus_00_dot_65_bar__plus_00_dot_48_bar__minus_01_dot_72"
    assert pddl_id("Sink", (-189, 97, 0), "SinkBasin") == "Sink_bar__minus_01_dot_89_bar__plus_00_dot_97_bar__plus_00_dot_00_bar_SinkBasin"


def test_layouts_are_the_same_in_every_process() -> None:
    code = (
        "import hashlib; from agent_gym.envs.alfworld.rooms import *;"
        "print(hashlib.sha256(repr([vars(room) for level in LEVELS for kind in KINDS for room in layouts(kind, level)]).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
