"""The embedded world of `AgentR1/TwoWikiMultihopQA-v0`: the generated encyclopaedia, asked as 2WikiMultihopQA (Ho et al., arXiv 2011.01060) asks.

A row is a pure function of the split and the seed, in the official layout, evidence triples and ids included. Its four kinds of questions:

- compositional (0.55): a chain of two relations; each page names only the next one.
- inference (0.15): a kinship that no page states ("paternal grandfather"), to be put together from two that are stated. The pages state both
  parents of everybody in question, so that the wrong line leads to a wrong name.
- comparison (0.15): of two things by a number, or (0.04 of all) by yes or no.
- bridge_comparison (0.15): two things by a number of what they are related to, which takes four pages.

Names of one split cannot occur in another (see `wiki_names`). Each row brings its own table of other names (`two_wiki_aliases`), which exact match and
F1 accept as `id_aliases.json` does for the official file. `guess_rates` states what a policy can reach without reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from typing import Any

from agent_gym.data.multihop_text import BRIDGE_COMPARISONS, FACTS, FATHER, INFERENCES, MOTHER, other_names
from agent_gym.data.wiki_text import Relation
from agent_gym.data.wiki_world import PlannedPage, Thing, World, ask_chain, draw_chain, draw_choice, draw_yes_no, plan_compared, spoken_date

__all__ = ["guess_rates", "two_wiki_aliases", "two_wiki_row"]

YES_NO_SHARE = 0.04
COMPARISON_SHARE = 0.15
"""Comparisons of both kinds."""
BRIDGE_COMPARISON_SHARE = 0.15
INFERENCE_SHARE = 0.15

_DOMAIN = 0x32776B69  # sets these draws apart from every other use of the same seed
_APART = {"birth": 400, "inhabitants": 50, "metres": 5}  # days, people, metres: the least difference that is asked for

Support = list[tuple[PlannedPage, str]]
Evidence = tuple[Thing, str, "Thing | str"]


def guess_rates() -> dict[str, float]:
    """Return what policies score that read nothing, as parts of 1, from the shares of the question kinds.

    Returns:
        "compositional" and "inference": a constant, an echo or a name of the question (0). "comparison" and "bridge_comparison": one of the two
        names, or yes or no, drawn at random (0.5). "overall": that same guesser on all questions. "constant": the best constant answer.
    """
    return {
        "compositional": 0.0,
        "inference": 0.0,
        "comparison": 0.5,
        "bridge_comparison": 0.5,
        "overall": (COMPARISON_SHARE + BRIDGE_COMPARISON_SHARE) / 2,
        "constant": YES_NO_SHARE / 2,
    }


# ------------------------------------------------------------------------------------------------ the four kinds


def _compositional(world: World) -> tuple[str, Thing | str, Support, list[Evidence]]:
    chain = draw_chain(world, 2)
    things = [world.thing(chain[0].subject), *(world.thing(relation.object) for relation in chain)]
    gold = [world.page(things[index], [(relation, things[index + 1])]) for index, relation in enumerate(chain)]
    world.crowd(things[0], namesake=True)
    world.crowd(things[0], namesake=False)
    world.look_alike(chain[0])
    world.look_alike(chain[1])
    if world.chance(0.5):
        world.page(things[-1])
    world.fill_up()
    return ask_chain(world, chain, things[0]), things[-1], _support(gold, chain), _links(things, chain)


def _support(pages: Sequence[PlannedPage], chain: Sequence[Relation]) -> Support:
    return [(page, relation.name) for page, relation in zip(pages, chain, strict=True)]


def _links(things: Sequence[Thing], chain: Sequence[Relation]) -> list[Evidence]:
    return [(things[index], relation.name.replace("_", " "), things[index + 1]) for index, relation in enumerate(chain)]


def _relative(world: World, of: Thing, *, male: bool, older: bool) -> Thing:
    """Invent a relative of one sex, older by a generation or of about the same age."""
    made = world.thing("person")
    birth = of.numbers["birth"] - world.number(20 * 365, 44 * 365) if older else of.numbers["birth"] + world.number(-5 * 365, 5 * 365)
    death = birth + world.number(46 * 365, 88 * 365)
    made.numbers["birth"] = birth
    pronouns = ("he", "his", "him") if male else ("she", "her", "her")
    made.words.update(zip(("it", "its", "them"), pronouns, strict=True))
    made.words.update(born=spoken_date(birth), died=spoken_date(death), decade=str((date.fromordinal(birth).year + 35) // 10 * 10))
    return made


def _parents(world: World, of: Thing) -> list[tuple[Relation, Thing]]:
    pair = [(FATHER, _relative(world, of, male=True, older=True)), (MOTHER, _relative(world, of, male=False, older=True))]
    return pair if world.chance(0.5) else pair[::-1]


def _inferred(world: World) -> tuple[str, Thing | str, Support, list[Evidence]]:
    inference = world.pick(INFERENCES)
    start = world.thing("person")
    parents = _parents(world, start)
    if inference.first.name == "spouse":
        middle = _relative(world, start, male=world.chance(0.5), older=False)
        links = [(inference.first, middle), *parents]
    else:
        middle = next(thing for relation, thing in parents if relation is inference.first)
        links = parents
    gold = [world.page(start, links)]
    further = _parents(world, middle)
    gold.append(world.page(middle, further))
    answer = next(thing for relation, thing in further if relation is inference.second)
    for _, other in parents:
        if other is not middle:
            world.page(other, _parents(world, other))
    world.crowd(start, namesake=True)
    world.look_alike(inference.first)
    world.look_alike(inference.second)
    if world.chance(0.5):
        world.page(answer)
    world.fill_up()
    question = world.pick(inference.asks).format(s=start.name)
    chain = (inference.first, inference.second)
    return question, answer, _support(gold, chain), _links([start, middle, answer], chain)


def _comparison(world: World) -> tuple[str, Thing | str, Support, list[Evidence]]:
    if world.chance(YES_NO_SHARE / COMPARISON_SHARE):
        first, second, question, yes = draw_yes_no(world)
        name = "located in" if first.kind == "town" else "instance of"
        evidence: list[Evidence] = [(thing, name, thing.words.get("region", thing.sort)) for thing in (first, second)]
        return question, "yes" if yes else "no", plan_compared(world, first, second), evidence
    comparison, first, second, question, winner = draw_choice(world)
    return question, winner, plan_compared(world, first, second), _facts(comparison.fact, first, second)


def _facts(fact: str, *things: Thing) -> list[Evidence]:
    name, word = FACTS[fact]
    return [(thing, name, thing.words[word]) for thing in things]


def _bridge_comparison(world: World) -> tuple[str, Thing | str, Support, list[Evidence]]:
    comparison = world.pick(BRIDGE_COMPARISONS)
    relation, fact = comparison.relation, comparison.fact
    first = world.thing(relation.subject)
    second = world.thing(relation.subject, sort=first.sort)
    ends = [world.thing(relation.object), world.thing(relation.object)]
    while abs(ends[0].numbers[fact] - ends[1].numbers[fact]) < _APART[fact]:
        ends[1] = world.thing(relation.object)
    pages = [world.page(thing, [(relation, end)]) for thing, end in zip((first, second), ends, strict=True)]
    pages += [world.page(end) for end in ends]
    world.crowd(first, namesake=True)
    world.crowd(second, namesake=False)
    world.look_alike(relation)
    world.page(world.thing(relation.object))
    world.fill_up()
    smaller = world.chance(0.5)
    asked = world.pick(comparison.smaller if smaller else comparison.larger)
    question = asked.format(sort=first.sort, maker=first.words.get("maker", ""), a=first.reference, b=second.reference)
    first_wins = (ends[0].numbers[fact] < ends[1].numbers[fact]) == smaller
    support = [(pages[0], relation.name), (pages[1], relation.name), (pages[2], ""), (pages[3], "")]
    name = relation.name.replace("_", " ")
    evidence: list[Evidence] = [(first, name, ends[0]), (second, name, ends[1]), *_facts(fact, *ends)]
    return question, first if first_wins else second, support, evidence


# ------------------------------------------------------------------------------------------------ the row


@lru_cache(maxsize=64)
def _made(split: str, seed: int) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    world = World(split, seed, _DOMAIN)
    draw = float(world.rng.random())
    kind, maker = "compositional", _compositional
    if draw < COMPARISON_SHARE:
        kind, maker = "comparison", _comparison
    elif draw < COMPARISON_SHARE + BRIDGE_COMPARISON_SHARE:
        kind, maker = "bridge_comparison", _bridge_comparison
    elif draw < COMPARISON_SHARE + BRIDGE_COMPARISON_SHARE + INFERENCE_SHARE:
        kind, maker = "inference", _inferred
    question, answer, support, evidence = maker(world)
    base = world.row(split, seed, question, answer if isinstance(answer, str) else answer.name, kind, "", support)
    named = [thing for subject, _, value in evidence for thing in (subject, value) if isinstance(thing, Thing)]
    things = list({id(thing): thing for thing in named}.values())
    ids = {id(thing): f"W{number}" for number, thing in enumerate(things)}
    linked = kind in ("compositional", "inference")
    row = {
        "_id": f"2wiki-{split}-{seed}",
        "type": kind,
        "question": question,
        "context": base["context"],
        "entity_ids": "_".join(ids[id(page.thing)] for page, _ in support),
        "supporting_facts": base["supporting_facts"],
        "evidences": [[subject.name, name, value if isinstance(value, str) else value.name] for subject, name, value in evidence],
        "answer": base["answer"],
        "evidences_id": [[ids[id(subject)], name, ids[id(value)]] for subject, name, value in evidence] if linked else [],
        "answer_id": None if isinstance(answer, str) else ids[id(answer)],
    }
    return row, {ids[id(thing)]: other_names(thing) for thing in things}


def two_wiki_row(split: str, seed: int) -> dict[str, Any]:
    """Return one task in the official layout of 2WikiMultihopQA.

    Args:
        split: "train", "validation" or "test".
        seed: a non-negative integer; the row is a pure function of it and the split.

    Returns:
        A dictionary with `_id`, `type`, `question`, `context` (ten pages), `entity_ids`, `supporting_facts` (in hop order), `evidences`, `answer`,
        `evidences_id` and `answer_id` (None where the answer is yes or no). Ids are the row's own.

    Raises:
        ValueError: if the split is unknown or the seed negative.
    """
    return dict(_made(split, seed)[0])


def two_wiki_aliases(split: str, seed: int) -> dict[str, tuple[str, ...]]:
    """Return the other names of a row's things by id: what `id_aliases.json` is for the official files.

    Args:
        split: of the row.
        seed: of the row.

    Returns:
        Id -> names.

    Raises:
        ValueError: if the split is unknown or the seed negative.
    """
    return dict(_made(split, seed)[1])
