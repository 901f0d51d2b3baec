"""The challenges of TextWorld, their settings and their splits.

Settings have TextWorld's names and are checked when an environment is made. What a challenge itself keeps apart by split (the cooking and simple
challenges: their foods) follows from the split's name.
"""

from __future__ import annotations

import contextlib
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from agent_gym._names import nearest

__all__ = ["CHALLENGES", "SPLITS", "TEXT_SETTINGS", "Challenge", "Setting", "check_settings"]

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a challenge.

    Attributes:
        default: its value where none is given; a given one has its type.
        allowed: what it may be.
        about: for people.
    """

    default: int | bool | str
    allowed: Sequence[int] | Sequence[bool] | Sequence[str]
    about: str

    def check(self, where: str, value: Any) -> int | bool | str:
        """Return a given value, checked.

        Args:
            where: what is being set, for the message.
            value: as given.

        Returns:
            The value, whole numbers as `int`.

        Raises:
            ValueError: if it is not allowed.
        """
        found = value
        if type(self.default) is int and not isinstance(value, (bool, np.bool_)):
            with contextlib.suppress(TypeError):
                found = operator.index(value)
        if type(found) is not type(self.default) or found not in self.allowed:
            raise ValueError(f"{where} must be {self.wanted}, not {value!r}")
        return found

    @property
    def wanted(self) -> str:
        """What is allowed, in words."""
        if isinstance(self.allowed, range):
            return f"a whole number from {self.allowed[0]} to {self.allowed[-1]}"
        return f"one of {', '.join(json.dumps(one) if not isinstance(one, bool) else str(one) for one in self.allowed)}"


_SWITCH = (False, True)
TEXT_SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "only_last_action": Setting(False, _SWITCH, "the objective tells the last action alone, not the way"),
        "include_adj": Setting(False, _SWITCH, "things have adjectives"),
        "ambiguous_instructions": Setting(False, _SWITCH, "the objective names some things by their kind"),
        "blend_instructions": Setting(False, _SWITCH, "the objective tells several actions in one sentence"),
        "blend_descriptions": Setting(False, _SWITCH, "rooms are told with several things in one sentence"),
    }
)
"""How a game's texts are written; settings of every challenge (they change nothing where a challenge brings its own objective)."""


@dataclass(frozen=True, slots=True)
class Challenge:
    """A family of games.

    Attributes:
        name: as `game=`.
        about: for people.
        settings: its own settings by name.
        conditions: further conditions; each gives what is wrong with the settings, or "".
        by_split: settings that the split decides: from the split's name to values for the challenge.
    """

    name: str
    about: str
    settings: Mapping[str, Setting]
    conditions: tuple[Callable[[Mapping[str, Any]], str], ...] = ()
    by_split: Callable[[str], Mapping[str, Any]] = field(default=lambda split: {})


def _coin_rooms(settings: Mapping[str, Any]) -> str:
    level = settings["level"]
    rooms = ((level - 1) // 100 + 1) * ((level - 1) % 100 + 1)
    return f"level={level} means {rooms} rooms, and TextWorld 1.7 compiles up to 100: give 1-150 or 201-233" if rooms > 100 else ""


def _enough_ingredients(settings: Mapping[str, Any]) -> str:
    take, recipe = settings["take"], settings["recipe"]
    return f"take={take} ingredients cannot be found for a recipe={recipe} of fewer" if take > recipe else ""


def _something_to_take(settings: Mapping[str, Any]) -> str:
    return "recipe_seed draws another recipe, which needs take of at least 1" if settings["recipe_seed"] and not settings["take"] else ""


def _quest_fits(settings: Mapping[str, Any]) -> str:
    breadth, length = settings["quest_breadth"], settings["quest_length"]
    return f"quest_breadth={breadth} needs a quest_length of at least as much, not {length}" if breadth > length else ""


CHALLENGES: Mapping[str, Challenge] = MappingProxyType(
    {
        one.name: one
        for one in (
            Challenge(
                "coin_collector",
                "a chain of rooms with a coin at its end",
                {"level": Setting(5, range(1, 301), "length of the way, 1-100; 101-200 and 201-300 add rooms that lead nowhere")},
                (_coin_rooms,),
            ),
            Challenge(
                "treasure_hunter",
                "a maze with two things in it, one to be taken and one to be left",
                {"level": Setting(5, range(1, 31), "1-10 five rooms, 11-20 ten with doors and containers, 21-30 twenty with locks")},
            ),
            Challenge(
                "cooking",
                "find the kitchen, read the recipe, gather and prepare the ingredients, cook and eat",
                {
                    "recipe": Setting(1, range(1, 6), "ingredients of the recipe"),
                    "take": Setting(1, range(6), "ingredients to be found"),
                    "go": Setting(1, (1, 6, 9, 12), "rooms"),
                    "open": Setting(False, _SWITCH, "doors and containers are closed"),
                    "cook": Setting(False, _SWITCH, "ingredients are to be cooked"),
                    "cut": Setting(False, _SWITCH, "ingredients are to be cut"),
                    "drop": Setting(False, _SWITCH, "the player can carry few things"),
                    "recipe_seed": Setting(0, range(2**31), "draws another recipe for the same world; 0 keeps the first"),
                },
                (_enough_ingredients, _something_to_take),
                lambda split: {"split": {"train": "train", "validation": "valid", "test": "test"}[split]},
            ),
            Challenge(
                "simple",
                "a house in which a meal is to be put on the stove",
                {
                    "rewards": Setting("dense", ("dense", "balanced", "sparse"), "how often the score grows"),
                    "goal": Setting("detailed", ("detailed", "brief", "none"), "how much the objective tells"),
                },
                (),
                lambda split: {"test": split == "test"},
            ),
            Challenge(
                "custom",
                "a world and a quest drawn from TextWorld's own logic",
                {
                    "world_size": Setting(5, range(1, 101), "rooms"),
                    "nb_objects": Setting(10, range(1, 201), "things, at least"),
                    "quest_length": Setting(5, range(1, 101), "actions of the quest"),
                    "quest_breadth": Setting(1, range(1, 6), "parts of the quest that depend on nothing but the last one"),
                    "nb_parallel_quests": Setting(1, range(1, 6), "quests"),
                    "theme": Setting("house", ("house", "basic"), "the words"),
                },
                (_quest_fits,),
            ),
        )
    }
)
"""The challenges by name. Settings have TextWorld's names; where it has no default, ours is an easy game."""


def check_settings(game: str, settings: Mapping[str, Any] | None = None) -> dict[str, int | bool | str]:
    """Return the settings of a challenge in full.

    Args:
        game: the challenge's name.
        settings: those that differ from the defaults.

    Returns:
        All of them, in the challenge's order, then those of the texts.

    Raises:
        ValueError: for an unknown challenge or setting, or one that is out of range or does not go with another.
    """
    if game not in CHALLENGES:
        raise ValueError(f"there is no challenge {game!r}{nearest(game, CHALLENGES) or '; TextWorld has ' + ', '.join(CHALLENGES)}")
    challenge = CHALLENGES[game]
    given = {} if settings is None else settings
    if not isinstance(given, Mapping):
        raise ValueError(f"settings of {game} must be a mapping such as {{{_example(challenge)}}}, not {settings!r}")
    known = {**challenge.settings, **TEXT_SETTINGS}
    for name in given:
        if name in challenge.by_split("train"):
            raise ValueError(f"the environment's keyword split decides {name!r} of {game}; leave it out of settings")
        if name not in known:
            raise ValueError(f"{game} has no setting {name!r}{nearest(str(name), known) or '; it has ' + ', '.join(known)}")
    full = {name: known[name].check(f"settings[{name!r}] of {game}", given.get(name, known[name].default)) for name in known}
    for condition in challenge.conditions:
        if wrong := condition(full):
            raise ValueError(f"settings of {game}: {wrong}")
    return full


def _example(challenge: Challenge) -> str:
    name, setting = next(iter(challenge.settings.items()))
    return f"{name!r}: {setting.default!r}"
