"""What the generated worlds of 2WikiMultihopQA and MuSiQue say beyond `wiki_text`: kinship, comparisons over a bridge, clauses, other names.

Places in the templates are those of `wiki_text`. Everything here is the project's own text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent_gym.data.wiki_text import RELATIONS, Relation
from agent_gym.data.wiki_world import Thing

__all__ = [
    "BRIDGE_COMPARISONS",
    "CLAUSES",
    "FACTS",
    "FATHER",
    "INFERENCES",
    "MOTHER",
    "BridgeComparison",
    "Inference",
    "other_names",
    "relation_named",
]

FATHER = Relation(
    "father", "person", "person",
    ("{Its} father was {o}.", "{It} was brought up by {its} father, {o}."),
    ("the father of {s}",),
    ("Who was the father of {s}?",),
)  # fmt: skip
MOTHER = Relation(
    "mother", "person", "person",
    ("{Its} mother was {o}.", "{It} learned to read from {its} mother, {o}."),
    ("the mother of {s}",),
    ("Who was the mother of {s}?",),
)  # fmt: skip


def relation_named(name: str) -> Relation:
    """Return a relation of `wiki_text` by its name.

    Args:
        name: of one of `wiki_text.RELATIONS`.

    Returns:
        The relation.
    """
    return next(relation for relation in RELATIONS if relation.name == name)


@dataclass(frozen=True, slots=True)
class Inference:
    """A kinship that no page states: it follows from two that are stated, one after the other."""

    first: Relation
    second: Relation
    asks: tuple[str, ...]


def _inference(first: Relation, second: Relation, kin: str) -> Inference:
    return Inference(first, second, (f"Who was the {kin} of {{s}}?", f"Who was {{s}}'s {kin}?"))


INFERENCES: tuple[Inference, ...] = (
    _inference(FATHER, FATHER, "paternal grandfather"),
    _inference(FATHER, MOTHER, "paternal grandmother"),
    _inference(MOTHER, FATHER, "maternal grandfather"),
    _inference(MOTHER, MOTHER, "maternal grandmother"),
    _inference(relation_named("spouse"), FATHER, "father-in-law"),
    _inference(relation_named("spouse"), MOTHER, "mother-in-law"),
)


@dataclass(frozen=True, slots=True)
class BridgeComparison:
    """A question that sets two things side by side by a number of what they are related to; `{sort}` and `{maker}` are those of both."""

    relation: Relation
    fact: str
    smaller: tuple[str, ...]
    larger: tuple[str, ...]


BRIDGE_COMPARISONS: tuple[BridgeComparison, ...] = (
    BridgeComparison(
        relation_named("work_maker"), "birth",
        ("Which {sort} has the {maker} who was born first, {a} or {b}?", "Which {sort} has the older {maker}, {a} or {b}?"),
        ("Which {sort} has the {maker} who was born later, {a} or {b}?", "Which {sort} has the younger {maker}, {a} or {b}?"),
    ),
    BridgeComparison(
        relation_named("organisation_founder"), "birth",
        ("Which was set up by the person who was born first, {a} or {b}?",),
        ("Which was set up by the person who was born later, {a} or {b}?",),
    ),
    BridgeComparison(
        relation_named("building_designer"), "birth",
        ("Which was designed by the person who was born first, {a} or {b}?",),
        ("Which was designed by the person who was born later, {a} or {b}?",),
    ),
    BridgeComparison(
        relation_named("ship_captain"), "birth",
        ("Which ship had the first captain who was born first, {a} or {b}?",),
        ("Which ship had the first captain who was born later, {a} or {b}?",),
    ),
    BridgeComparison(
        relation_named("building_town"), "inhabitants",
        ("Which stands in the town with fewer inhabitants, {a} or {b}?",),
        ("Which stands in the town with more inhabitants, {a} or {b}?",),
    ),
    BridgeComparison(
        relation_named("organisation_seat"), "inhabitants",
        ("Which has its seat in the town with fewer inhabitants, {a} or {b}?",),
        ("Which has its seat in the town with more inhabitants, {a} or {b}?",),
    ),
    BridgeComparison(
        relation_named("river_source"), "metres",
        ("Which rises on the lower mountain, {a} or {b}?",),
        ("Which rises on the higher mountain, {a} or {b}?",),
    ),
)  # fmt: skip

FACTS: Mapping[str, tuple[str, str]] = {
    "birth": ("date of birth", "born"),
    "year": ("inception", "made"),
    "inhabitants": ("population", "count"),
    "kilometres": ("length", "length"),
    "metres": ("elevation", "height"),
}
"""Number of a thing -> its name in an evidence triple, and the word under which the thing has it as text."""

CLAUSES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "building": (
        ("building_designer", "was designed by {o}"),
        ("building_town", "stands in {o}"),
        ("building_patron", "was paid for by {o}"),
        ("building_keeper", "is run by the {o}"),
    ),
    "organisation": (
        ("organisation_founder", "was founded by {o}"),
        ("organisation_seat", "has its seat in {o}"),
        ("organisation_merger", "took over the {o}"),
        ("organisation_award", "gives the {o}"),
    ),
    "ship": (
        ("ship_captain", "had {o} as its first captain"),
        ("ship_owner", "was built for the {o}"),
        ("ship_wreck", "was wrecked off {o}"),
    ),
    "work": (
        ("work_setting", "depicts {o}"),
        ("work_dedicatee", "is dedicated to {o}"),
        ("work_sponsor", "was commissioned by the {o}"),
    ),
}
"""Kind of a thing -> relations of it by name, each with the clause that describes the thing by its object."""


def other_names(thing: Thing) -> tuple[str, ...]:
    """Return names that somebody may give a thing beside its title; none of them normalises to the title, and none to nothing.

    Args:
        thing: with a name, of a kind.

    Returns:
        The names; empty where the kind has no such way of naming.
    """
    words = thing.name.split()
    match thing.kind:
        case "person":
            return (f"{words[0][0]}. {words[-1]}",)
        case "town":
            return (f"Town of {thing.name}", f"{thing.name} Town")
        case "organisation":
            return (f"{thing.head} company",)
        case "award":
            return (f"{thing.head} award",)
        case "building":
            return (f"{words[-1]} of {thing.head}",)
        case "ship":
            return (f"{thing.sort} {thing.name}",)
        case "work":
            return (f"{thing.name} ({thing.sort})",)
        case "island":
            return (f"Isle of {thing.head}",)
    return (f"{thing.head} {thing.kind}",)
