"""The household of ALFRED: its objects, its receptacles, and rooms that are furnished with them.

Three tables hold the facts. `OBJECTS` says of every object type what can be done to it and which receptacles may hold it (ALFRED's own rules,
written down object by object). `RECEPTACLES` names the receptacle types with what they are good for. `ROOMS` says what stands in kitchens,
living rooms, bedrooms and bathrooms, and how often (the shares are those of AI2-THOR's 120 floor plans, rounded).

`layouts` furnishes rooms from these tables. A layout is what stays the same between games: the receptacles, which of them can be opened, where the
agent stands when it is at one (some share that place, as in the real games), and what else is fixed to the room. Every layout is another one:
no two of a room kind have the same receptacles with the same openness grouped into the same places. The last six of each kind belong
to the split `valid_unseen` and to no other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

__all__ = [
    "CONTAINERS",
    "KINDS",
    "LEVELS",
    "OBJECTS",
    "RECEPTACLES",
    "ROOMS",
    "Fixture",
    "Layout",
    "ObjectType",
    "Receptacle",
    "ReceptacleType",
    "RoomPlan",
    "layouts",
    "pddl_id",
]

Kind = Literal["kitchen", "living", "bedroom", "bathroom"]
Level = Literal["full", "small"]

KINDS: tuple[Kind, ...] = ("kitchen", "living", "bedroom", "bathroom")
LEVELS: tuple[Level, ...] = ("full", "small")

LAYOUTS_PER_KIND = 30
UNSEEN_PER_KIND = 6
SCENE_BASE: Mapping[Kind, int] = {"kitchen": 1000, "living": 1200, "bedroom": 1300, "bathroom": 1400}
"""Scene numbers follow ALFRED's ranges (1, 201, 301, 401 and on), moved by a thousand: these rooms are none of AI2-THOR's floor plans."""


@dataclass(frozen=True)
class ObjectType:
    """A type of object that an agent can carry.

    Attributes:
        name: ALFRED's name of the type, such as "ButterKnife".
        uses: which of "clean", "heat", "cool", "slice" can be done to it.
        homes: names of the receptacle and container types that may hold it.
    """

    name: str
    uses: frozenset[str]
    homes: frozenset[str]


@dataclass(frozen=True)
class ReceptacleType:
    """A type of receptacle.

    Attributes:
        name: ALFRED's name of the type, such as "SinkBasin".
        opens: the share of its instances that have a door or drawer which the agent can open; the others stand open.
        draw: how much more often than others it is chosen as the place of an object.
        station: the use it serves ("clean", "heat", "cool"), or "".
    """

    name: str
    opens: float = 0.0
    draw: float = 1.0
    station: str = ""


def _object_types() -> Iterator[ObjectType]:
    groups = {
        "tables": ("CounterTop", "DiningTable", "CoffeeTable", "SideTable"),
        "seats": ("Sofa", "ArmChair", "Ottoman"),
        "desks": ("Desk", "Dresser"),
    }
    for name, uses, homes in _OBJECT_ROWS:
        places = (place for word in homes.split() for place in groups.get(word, (word,)))
        yield ObjectType(name, frozenset(uses.split()), frozenset(places))


_OBJECT_ROWS = (
    ("AlarmClock", "", "tables desks Box Plate Shelf"),
    ("Apple", "clean heat cool slice", "tables Bowl Fridge GarbageCan Microwave Pan Plate Pot SinkBasin"),
    ("BaseballBat", "", "tables Bed"),
    ("BasketBall", "", "tables seats desks Bed"),
    ("Book", "", "tables seats desks Bed Box Cabinet Drawer Plate Shelf"),
    ("Bowl", "clean cool", "tables desks Cabinet Fridge Microwave Shelf SinkBasin"),
    ("Box", "", "tables seats desks Cabinet Shelf"),
    ("Bread", "heat cool slice", "tables Fridge GarbageCan Microwave"),
    ("ButterKnife", "clean", "tables Bowl Cup Drawer Mug Pan Plate Pot SinkBasin"),
    ("CD", "", "tables desks Bowl Box Cabinet Drawer GarbageCan Plate Safe Shelf"),
    ("Candle", "", "tables desks Bowl Box Cabinet Cart Drawer Plate Shelf Toilet"),
    ("CellPhone", "", "tables seats desks Bed Bowl Box Drawer Plate Safe Shelf"),
    (
        "Cloth",
        "clean",
        "tables seats desks BathtubBasin Bowl Box Cabinet Cart Drawer GarbageCan LaundryHamper Plate Shelf SinkBasin Toilet",
    ),
    ("CreditCard", "", "tables seats desks Bowl Box Drawer Plate Safe Shelf"),
    ("Cup", "clean heat cool", "tables desks Cabinet Fridge Microwave Shelf SinkBasin"),
    ("DishSponge", "clean", "tables BathtubBasin Bowl Box Cabinet Cart Drawer GarbageCan Pan Plate Pot Shelf SinkBasin Toilet"),
    ("Egg", "clean heat cool slice", "tables Bowl Fridge GarbageCan Microwave Pan Plate Pot SinkBasin"),
    ("Fork", "clean", "tables Bowl Cup Drawer Mug Pan Plate Pot SinkBasin"),
    ("Glassbottle", "", "tables desks Box Cabinet Fridge Microwave Plate Shelf SinkBasin"),
    ("HandTowel", "", "tables BathtubBasin Cabinet Cart Drawer GarbageCan HandTowelHolder Shelf SinkBasin Toilet"),
    ("Kettle", "clean", "tables Cabinet Shelf SinkBasin StoveBurner"),
    ("KeyChain", "", "tables seats desks Bowl Box Drawer Mug Plate Safe Shelf"),
    ("Knife", "clean", "tables Bowl Drawer Mug Pan Plate Pot SinkBasin"),
    ("Ladle", "clean", "tables Bowl Cabinet Drawer Pan Plate Pot SinkBasin"),
    ("Laptop", "", "tables seats desks Bed"),
    ("Lettuce", "clean cool slice", "tables Bowl Fridge GarbageCan Pan Plate Pot SinkBasin"),
    ("Mug", "clean heat cool", "tables desks Bowl Box Cabinet Cart CoffeeMachine Fridge Microwave Plate Shelf SinkBasin"),
    ("Newspaper", "", "tables seats desks Bed Cabinet Drawer GarbageCan Shelf Toilet"),
    ("Pan", "clean cool", "tables Cabinet Fridge SinkBasin StoveBurner"),
    ("PaperTowel", "", "tables Bowl Box Cart GarbageCan Plate Shelf Toilet"),
    ("Pen", "", "tables desks Bowl Box Drawer GarbageCan Mug Plate Shelf"),
    ("Pencil", "", "tables desks Bowl Box Drawer GarbageCan Mug Plate Shelf"),
    ("PepperShaker", "", "tables Cabinet Drawer Shelf"),
    ("Pillow", "", "seats Bed"),
    ("Plate", "clean heat cool", "tables desks Cabinet Fridge Microwave Shelf SinkBasin"),
    ("Plunger", "", "Cabinet Cart"),
    ("Pot", "clean cool", "tables Cabinet Fridge Shelf SinkBasin StoveBurner"),
    ("Potato", "clean heat cool slice", "tables Bowl Fridge GarbageCan Microwave Pan Plate Pot SinkBasin"),
    ("RemoteControl", "", "tables seats desks Bowl Box Drawer Shelf"),
    ("SaltShaker", "", "tables Cabinet Drawer Shelf"),
    ("SoapBar", "clean", "tables BathtubBasin Cabinet Cart Drawer GarbageCan Shelf SinkBasin Toilet"),
    ("SoapBottle", "", "tables Cabinet Cart Desk Drawer GarbageCan Shelf Toilet"),
    ("Spatula", "clean", "tables Bowl Drawer Pan Plate Pot SinkBasin"),
    ("Spoon", "clean", "tables Bowl Cup Drawer Mug Pan Plate Pot SinkBasin"),
    ("SprayBottle", "", "tables desks Cabinet Cart Drawer GarbageCan Shelf Toilet"),
    ("Statue", "", "tables desks Box Cart Safe Shelf"),
    ("TennisRacket", "", "tables desks Bed"),
    ("TissueBox", "", "tables desks Box Cabinet Cart Drawer GarbageCan Plate Shelf TVStand Toilet"),
    ("ToiletPaper", "", "tables desks Cabinet Cart Drawer GarbageCan Shelf Toilet ToiletPaperHanger"),
    ("ToiletPaperRoll", "", "tables desks Cabinet Cart Drawer GarbageCan Shelf Toilet ToiletPaperHanger"),
    ("Tomato", "clean heat cool slice", "tables Bowl Fridge GarbageCan Microwave Pan Plate Pot SinkBasin"),
    ("Towel", "", "TowelHolder"),
    ("Vase", "", "tables desks Box Cabinet Cart Safe Shelf"),
    ("Watch", "", "tables desks Bowl Box Drawer Mug Plate Safe Shelf"),
    ("WateringCan", "", "tables desks Cabinet Drawer Shelf"),
    ("WineBottle", "cool", "tables desks Cabinet Fridge GarbageCan Shelf"),
)

OBJECTS: Mapping[str, ObjectType] = {kind.name: kind for kind in _object_types()}
"""The types of object that can be carried and put down, by name. Slices are left out: no game of the six task types has any."""

CONTAINERS = frozenset({"Bowl", "Box", "Cup", "Mug", "Pan", "Plate", "Pot"})
"""Objects that hold other objects."""

LAMPS = frozenset({"DeskLamp", "FloorLamp"})
"""What can be switched on. Desk lamps stand in receptacles, where `use` reaches them; floor lamps do not, and stay out of reach."""

RECEPTACLES: Mapping[str, ReceptacleType] = {
    kind.name: kind
    for kind in (
        ReceptacleType("ArmChair"),
        ReceptacleType("BathtubBasin"),
        ReceptacleType("Bed", draw=2.0),
        ReceptacleType("Cabinet", opens=0.75),
        ReceptacleType("Cart"),
        ReceptacleType("CoffeeMachine"),
        ReceptacleType("CoffeeTable", draw=2.0),
        ReceptacleType("CounterTop", draw=4.0),
        ReceptacleType("Desk", draw=3.0),
        ReceptacleType("DiningTable", draw=3.0),
        ReceptacleType("Drawer", opens=0.85),
        ReceptacleType("Dresser", draw=2.0),
        ReceptacleType("Fridge", opens=1.0, draw=2.0, station="cool"),
        ReceptacleType("GarbageCan", draw=0.7),
        ReceptacleType("HandTowelHolder", draw=4.0),
        ReceptacleType("LaundryHamper"),
        ReceptacleType("Microwave", opens=1.0, draw=0.7, station="heat"),
        ReceptacleType("Ottoman"),
        ReceptacleType("Safe", opens=1.0),
        ReceptacleType("Shelf"),
        ReceptacleType("SideTable", draw=2.0),
        ReceptacleType("SinkBasin", station="clean"),
        ReceptacleType("Sofa", draw=1.5),
        ReceptacleType("StoveBurner", draw=6.0),
        ReceptacleType("TVStand"),
        ReceptacleType("Toaster"),
        ReceptacleType("Toilet"),
        ReceptacleType("ToiletPaperHanger", draw=2.0),
        ReceptacleType("TowelHolder"),
    )
}

STATIONS: Mapping[str, str] = {kind.station: kind.name for kind in RECEPTACLES.values() if kind.station}
"""The receptacle type at which something is cleaned, heated or cooled, by use."""


@dataclass(frozen=True)
class RoomPlan:
    """What stands in rooms of one kind.

    Attributes:
        furniture: receptacle type -> (share of the rooms that have it in percent, least number, greatest number).
        small: the same for rooms of level "small".
        things: object type -> share of the rooms that have it, in percent.
        lamp: share of the rooms that have a desk lamp, in percent.
        fixtures: things that cannot be carried (type, share in percent, greatest number, where): where is a receptacle type at whose place
            they stand, "on" and receptacle types that hold them, or "" for a place of their own.
    """

    furniture: Mapping[str, tuple[int, int, int]]
    small: Mapping[str, tuple[int, int, int]]
    things: Mapping[str, int]
    lamp: int
    fixtures: Sequence[tuple[str, int, int, str]]


ROOMS: Mapping[Kind, RoomPlan] = {
    "kitchen": RoomPlan(
        furniture={
            "CounterTop": (100, 1, 3),
            "Cabinet": (100, 4, 13),
            "Drawer": (90, 3, 8),
            "StoveBurner": (100, 4, 4),
            "CoffeeMachine": (100, 1, 1),
            "Toaster": (100, 1, 1),
            "SinkBasin": (100, 1, 1),
            "Fridge": (100, 1, 1),
            "Microwave": (100, 1, 1),
            "GarbageCan": (100, 1, 1),
            "DiningTable": (50, 1, 2),
            "Shelf": (20, 2, 4),
            "SideTable": (10, 1, 1),
            "Safe": (3, 1, 1),
        },
        small={
            "CounterTop": (100, 1, 1),
            "SinkBasin": (100, 1, 1),
            "Fridge": (100, 1, 1),
            "Microwave": (100, 1, 1),
            "Cabinet": (60, 1, 2),
            "Drawer": (30, 1, 1),
            "DiningTable": (40, 1, 1),
            "GarbageCan": (30, 1, 1),
            "Shelf": (20, 1, 1),
        },
        things={
            **dict.fromkeys(("Apple", "Bowl", "Bread", "ButterKnife", "Cup", "DishSponge", "Egg", "Fork", "Knife", "Lettuce", "Mug"), 100),
            **dict.fromkeys(
                ("Pan", "PepperShaker", "Plate", "Pot", "Potato", "SaltShaker", "SoapBottle", "Spatula", "Spoon", "Tomato"), 100
            ),
            **{"Kettle": 50, "WineBottle": 33, "Ladle": 33, "Glassbottle": 23, "Statue": 13, "Vase": 13, "CellPhone": 13, "CreditCard": 10},
            **{"Book": 7, "Pen": 7, "Pencil": 7, "SprayBottle": 7},
        },
        lamp=0,
        fixtures=(
            ("Sink", 100, 1, "SinkBasin"),
            ("Faucet", 100, 1, ""),
            ("StoveKnob", 100, 4, ""),
            ("LightSwitch", 100, 1, ""),
            ("Window", 87, 2, ""),
            ("Chair", 80, 3, ""),
            ("HousePlant", 33, 1, "on CounterTop DiningTable"),
            ("Blinds", 17, 2, ""),
        ),
    ),
    "living": RoomPlan(
        furniture={
            "Sofa": (100, 1, 2),
            "GarbageCan": (100, 1, 1),
            "ArmChair": (90, 1, 3),
            "CoffeeTable": (83, 1, 2),
            "SideTable": (80, 1, 4),
            "Drawer": (80, 3, 9),
            "DiningTable": (47, 1, 2),
            "TVStand": (40, 1, 2),
            "Shelf": (45, 4, 12),
            "Dresser": (33, 1, 2),
            "Ottoman": (13, 1, 1),
            "Cabinet": (15, 2, 8),
            "Safe": (7, 1, 1),
            "Desk": (3, 1, 1),
        },
        small={
            "Sofa": (100, 1, 1),
            "CoffeeTable": (100, 1, 1),
            "ArmChair": (50, 1, 1),
            "SideTable": (60, 1, 1),
            "Drawer": (50, 1, 2),
            "Dresser": (40, 1, 1),
            "Shelf": (40, 1, 2),
            "Safe": (20, 1, 1),
        },
        things={
            **dict.fromkeys(("Box", "CreditCard", "KeyChain", "Laptop", "Pillow", "RemoteControl", "Statue"), 100),
            **{"Newspaper": 60, "Vase": 60, "Watch": 53, "WateringCan": 43, "Plate": 33, "TissueBox": 30, "Book": 23, "CellPhone": 23},
            **{"Pen": 17, "Bowl": 13, "Pencil": 13, "Candle": 10},
        },
        lamp=23,
        fixtures=(
            ("Television", 100, 1, "on TVStand Dresser CoffeeTable"),
            ("FloorLamp", 100, 1, ""),
            ("HousePlant", 100, 1, "on SideTable DiningTable CoffeeTable"),
            ("Painting", 100, 1, ""),
            ("LightSwitch", 100, 1, ""),
            ("Window", 93, 2, ""),
            ("Chair", 67, 3, ""),
            ("Curtains", 27, 1, ""),
        ),
    ),
    "bedroom": RoomPlan(
        furniture={
            "Bed": (100, 1, 2),
            "GarbageCan": (100, 1, 1),
            "Drawer": (95, 3, 12),
            "Shelf": (67, 3, 9),
            "Desk": (70, 1, 2),
            "SideTable": (63, 1, 2),
            "Dresser": (50, 1, 1),
            "LaundryHamper": (27, 1, 1),
            "ArmChair": (20, 1, 2),
            "Safe": (17, 1, 1),
            "Cabinet": (17, 2, 4),
            "DiningTable": (17, 1, 1),
        },
        small={
            "Bed": (100, 1, 1),
            "Desk": (100, 1, 1),
            "Drawer": (60, 1, 2),
            "SideTable": (50, 1, 1),
            "Shelf": (40, 1, 2),
            "Dresser": (40, 1, 1),
            "GarbageCan": (30, 1, 1),
            "Safe": (20, 1, 1),
        },
        things={
            **dict.fromkeys(("AlarmClock", "Book", "CD", "CellPhone", "CreditCard", "KeyChain", "Laptop", "Pen", "Pencil", "Pillow"), 100),
            **{"Mug": 53, "Bowl": 43, "BaseballBat": 43, "Box": 40, "BasketBall": 37, "TennisRacket": 33, "Cloth": 17, "Statue": 13},
            **{"TissueBox": 13, "Vase": 10, "RemoteControl": 10, "Watch": 7},
        },
        lamp=67,
        fixtures=(
            ("LightSwitch", 100, 1, ""),
            ("Window", 100, 2, ""),
            ("Mirror", 100, 1, ""),
            ("Blinds", 90, 2, ""),
            ("Chair", 73, 2, ""),
            ("Painting", 43, 1, ""),
            ("LaundryHamperLid", 100, 1, "LaundryHamper"),
            ("HousePlant", 23, 1, "on Dresser Desk SideTable"),
        ),
    ),
    "bathroom": RoomPlan(
        furniture={
            "Toilet": (100, 1, 1),
            "SinkBasin": (100, 1, 2),
            "HandTowelHolder": (100, 1, 2),
            "TowelHolder": (100, 1, 2),
            "ToiletPaperHanger": (100, 1, 1),
            "GarbageCan": (100, 1, 1),
            "CounterTop": (83, 1, 2),
            "BathtubBasin": (67, 1, 1),
            "Cabinet": (55, 2, 6),
            "Drawer": (50, 3, 7),
            "Shelf": (27, 1, 4),
            "Cart": (7, 1, 1),
            "Dresser": (7, 1, 1),
            "SideTable": (7, 1, 1),
        },
        small={
            "SinkBasin": (100, 1, 1),
            "Toilet": (100, 1, 1),
            "CounterTop": (80, 1, 1),
            "Cabinet": (60, 1, 2),
            "Drawer": (40, 1, 2),
            "GarbageCan": (40, 1, 1),
            "BathtubBasin": (40, 1, 1),
            "Shelf": (30, 1, 1),
        },
        things={
            **dict.fromkeys(("Candle", "Cloth", "HandTowel", "SoapBar", "SoapBottle", "SprayBottle", "ToiletPaper", "Towel"), 100),
            **{"Plunger": 30, "TissueBox": 30, "DishSponge": 20},
        },
        lamp=0,
        fixtures=(
            ("Sink", 100, 2, "SinkBasin"),
            ("Faucet", 93, 2, ""),
            ("Mirror", 100, 1, ""),
            ("LightSwitch", 100, 1, ""),
            ("Bathtub", 100, 1, "BathtubBasin"),
            ("ScrubBrush", 100, 1, "ToiletPaperHanger"),
            ("Window", 60, 1, ""),
            ("ShowerDoor", 55, 1, ""),
            ("ShowerGlass", 43, 1, "TowelHolder"),
        ),
    ),
}

_TOUCHING: Mapping[str, float] = {"StoveBurner": 0.4, "Cabinet": 0.1, "Drawer": 0.12, "Shelf": 0.15, "ArmChair": 0.1, "TowelHolder": 0.2}
"""How often a receptacle is reached from where the one before it, of the same type, is reached."""

_ON_TOP: Mapping[str, tuple[str, float]] = {
    "CoffeeMachine": ("CounterTop", 0.4),
    "Toaster": ("CounterTop", 0.2),
    "SinkBasin": ("CounterTop", 0.25),
    "TVStand": ("Dresser", 0.2),
}
"""How often a receptacle is reached from where one of another type is reached."""

_OVERLAPS = (("StoveBurner", "StoveBurner"), ("CoffeeMachine", "CounterTop"), ("Shelf", "Desk"))
"""Pairs of types in which a thing may count as standing in both: on two burners, in the machine on a counter, on a shelf above a desk."""


@dataclass(frozen=True)
class Receptacle:
    """A receptacle of a layout.

    Attributes:
        pddl: its id in PDDL.
        type: its type, a key of `RECEPTACLES`.
        openable: whether it can be opened; all such begin closed.
        place: the index of the place from which it is reached.
    """

    pddl: str
    type: str
    openable: bool
    place: int


@dataclass(frozen=True)
class Fixture:
    """A thing of a layout that cannot be moved.

    Attributes:
        pddl: its id in PDDL.
        type: its type.
        place: the index of the place at which it is.
        inside: index of the receptacle that it stands in, or -1.
    """

    pddl: str
    type: str
    place: int
    inside: int = -1


@dataclass(frozen=True, eq=False)
class Layout:
    """A furnished room without its movable objects. Every layout exists once in a process, so two are the same only if they are one.

    Attributes:
        kind: the kind of room.
        level: "full" or "small".
        scene: its number, unique among all layouts of a level.
        unseen: whether it belongs to the split `valid_unseen`.
        receptacles: what can hold things.
        fixtures: what cannot be moved.
        places: PDDL ids of the places at which the agent can stand.
        overlaps: pairs of receptacle indices; what stands in the first may also count as standing in the second.
    """

    kind: Kind
    level: Level
    scene: int
    unseen: bool
    receptacles: tuple[Receptacle, ...]
    fixtures: tuple[Fixture, ...]
    places: tuple[str, ...]
    overlaps: tuple[tuple[int, int], ...]

    def signature(self) -> tuple[tuple[tuple[str, bool], ...], ...]:
        """Return what makes this layout different from others, with numbers and coordinates removed.

        Returns:
            For each place with receptacles, the sorted types and openness of those, in sorted order.
        """
        at: dict[int, list[tuple[str, bool]]] = {}
        for receptacle in self.receptacles:
            at.setdefault(receptacle.place, []).append((receptacle.type, receptacle.openable))
        return tuple(sorted(tuple(sorted(group)) for group in at.values()))


def pddl_id(name: str, position: tuple[int, int, int], suffix: str = "") -> str:
    """Write the id of a thing as the official game files do, so that their demangler gives it its number.

    Args:
        name: the first part, such as "Cabinet".
        position: x, y and z in hundredths of a metre.
        suffix: a last part, such as "SinkBasin".

    Returns:
        The id, such as "Cabinet_bar__plus_00_dot_65_bar__plus_00_dot_48_bar__minus_01_dot_72".
    """
    parts = [name]
    for value in position:
        whole, hundredths = divmod(abs(value), 100)
        parts.append(f"_{'minus' if value < 0 else 'plus'}_{whole:02d}_dot_{hundredths:02d}")
    if suffix:
        parts.append(suffix)
    return "_bar_".join(parts)


def _place_id(x: int, z: int, turn: int, tilt: int) -> str:
    return "_bar_".join(["loc", *(f"_minus_{-value}" if value < 0 else str(value) for value in (x, z, turn, tilt))])


class _Furnisher:
    """Builds one layout; every draw comes from its own generator."""

    def __init__(self, kind: Kind, level: Level, scene: int, rng: random.Random) -> None:
        self.kind = kind
        self.level = level
        self.scene = scene
        self.rng = rng
        self.places: list[str] = []
        self.ids: set[str] = set()
        self.receptacles: list[Receptacle] = []
        self.fixtures: list[Fixture] = []

    def build(self, unseen: bool) -> Layout:
        plan = ROOMS[self.kind]
        full = self.level == "full"
        for name, (share, low, high) in (plan.furniture if full else plan.small).items():
            if self.rng.randrange(100) < share:
                for count in range(self.rng.randint(low, high)):
                    self._add_receptacle(name, first=count == 0)
        if full:
            for name, share, most, where in plan.fixtures:
                if self.rng.randrange(100) < share:
                    self._add_fixtures(name, most, where)
        for _ in range(6 if full else 2):
            self._new_place()
        overlaps = tuple(self._overlaps()) if full else ()
        return Layout(
            self.kind, self.level, self.scene, unseen, tuple(self.receptacles), tuple(self.fixtures), tuple(self.places), overlaps
        )

    def _add_receptacle(self, name: str, *, first: bool) -> None:
        rng = self.rng
        kind = RECEPTACLES[name]
        place = None
        if self.level == "full":
            if not first and rng.random() < _TOUCHING.get(name, 0.0):
                place = self.receptacles[-1].place
            base, share = _ON_TOP.get(name, ("", 0.0))
            under = [other.place for other in self.receptacles if other.type == base]
            if under and rng.random() < share:
                place = rng.choice(under)
        if place is None:
            place = self._new_place()
        stem, suffix = (name.removesuffix("Basin"), name) if name.endswith("Basin") else (name, "")
        self.receptacles.append(Receptacle(self._new_id(stem, suffix), name, rng.random() < kind.opens, place))

    def _add_fixtures(self, name: str, most: int, where: str) -> None:
        if not where:
            for _ in range(self.rng.randint(1, most)):
                self.fixtures.append(Fixture(self._new_id(name), name, self._new_place()))
        elif where.startswith("on "):
            spots = [index for index, receptacle in enumerate(self.receptacles) if receptacle.type in where.split()[1:]]
            if spots:
                inside = self.rng.choice(spots)
                self.fixtures.append(Fixture(self._new_id(name), name, self.receptacles[inside].place, inside))
        else:
            beside = [receptacle.place for receptacle in self.receptacles if receptacle.type == where]
            self.fixtures.extend(Fixture(self._new_id(name), name, place) for place in beside[:most])

    def _overlaps(self) -> Iterator[tuple[int, int]]:
        for upper, first in enumerate(self.receptacles):
            for lower, second in enumerate(self.receptacles):
                if upper == lower or (first.type, second.type) not in _OVERLAPS:
                    continue
                if first.place == second.place or (first.type == "Shelf" and self.rng.random() < 0.08):
                    yield upper, lower

    def _new_place(self) -> int:
        rng = self.rng
        while True:
            place = _place_id(rng.randint(-12, 12), rng.randint(-12, 12), rng.randrange(4), rng.choice((-30, 0, 15, 30, 45, 60)))
            if place not in self.ids:
                self.ids.add(place)
                self.places.append(place)
                return len(self.places) - 1

    def _new_id(self, name: str, suffix: str = "") -> str:
        rng = self.rng
        while True:
            name_id = pddl_id(name, (rng.randint(-350, 350), rng.randint(0, 200), rng.randint(-350, 350)), suffix)
            if name_id not in self.ids:
                self.ids.add(name_id)
                return name_id


@cache
def layouts(kind: Kind, level: Level = "full") -> tuple[Layout, ...]:
    """Return all layouts of one kind of room; they are the same in every process.

    Args:
        kind: the kind of room, one of `KINDS`.
        level: "full" for rooms like the real ones (about 22 receptacles in the mean of all games), "small" for rooms of four to ten.

    Returns:
        `LAYOUTS_PER_KIND` layouts with different signatures; the last `UNSEEN_PER_KIND` are those of `valid_unseen`.
    """
    seen: set[object] = set()
    found: list[Layout] = []
    attempt = 0
    while len(found) < LAYOUTS_PER_KIND:
        number = len(found) + 1
        rng = random.Random(f"agent-gym household {level} {kind} {number} {attempt}")
        layout = _Furnisher(kind, level, SCENE_BASE[kind] + number, rng).build(number > LAYOUTS_PER_KIND - UNSEEN_PER_KIND)
        if layout.signature() in seen or (level == "small" and not 5 <= len(layout.receptacles) <= 8):
            attempt += 1
            continue
        seen.add(layout.signature())
        found.append(layout)
        attempt = 0
    return tuple(found)
