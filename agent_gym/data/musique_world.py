"""The embedded world of `AgentR1/MuSiQue-v0`: the generated encyclopaedia, asked as MuSiQue (Trivedi et al., arXiv 2108.00573) asks.

A row is a pure function of the split and the seed, in the official layout: twenty paragraphs, a question of two to four hops with its
decomposition, an answer with aliases. The shapes of the questions, and their shares:

- 2hop (0.40), 3hop1 (0.20) and 4hop1 (0.10): a chain; each page names only the next one.
- 3hop2 (0.20): two answers describe one thing, which no page of theirs names ("the ship that was built for #1 and was wrecked off #2"), and the third hop
  asks for something of it. Two decoys fit one half of the description each.
- 4hop2 (0.10): the same with one more hop behind it.

As in MuSiQue, hops have hard distractors (pages that state the same relation of something else), and each row has an unanswerable twin, in which
the page of one hop is replaced. No answer is a name of its question, and none occurs twice, so whoever does not read scores nothing.
Names of one split cannot occur in another (see `wiki_names`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_gym.data.multihop_text import CLAUSES, other_names, relation_named
from agent_gym.data.wiki_text import RELATIONS, Relation, relations_of
from agent_gym.data.wiki_world import PlannedPage, Thing, World, ask_chain, draw_chain

__all__ = ["PARAGRAPHS", "SHAPES", "musique_row"]

PARAGRAPHS = 20
SHAPES: dict[str, float] = {"2hop": 0.40, "3hop1": 0.20, "3hop2": 0.20, "4hop1": 0.10, "4hop2": 0.10}
"""Shape of a question -> its share."""

_DOMAIN = 0x6D757369  # sets these draws apart from every other use of the same seed

Step = tuple[str, str, PlannedPage, str]
"""The question of a hop, its answer, the page that it stands on, and the relation that states it there."""


def _asked(relation: Relation, subject: str, thing: Thing) -> str:
    text = relation.asks[0].format(s=subject, maker=thing.words.get("maker", ""), made_by=thing.words.get("made_by", ""))
    return text[:1].upper() + text[1:]


def _chain(world: World, hops: int) -> tuple[str, Thing, list[Step]]:
    chain = draw_chain(world, hops)
    things = [world.thing(chain[0].subject), *(world.thing(relation.object) for relation in chain)]
    steps: list[Step] = []
    for index, relation in enumerate(chain):
        page = world.page(things[index], [(relation, things[index + 1])])
        subject = things[0].reference if index == 0 else f"#{index}"
        steps.append((_asked(relation, subject, things[index]), things[index + 1].name, page, relation.name))
        world.look_alike(relation)
    other = world.thing(chain[0].object)
    world.page(world.thing(chain[0].subject), [(chain[0], other)])
    world.page(other, [(chain[1], world.thing(chain[1].object))])
    world.crowd(things[0], namesake=True)
    world.crowd(things[0], namesake=False)
    return ask_chain(world, chain, things[0]), things[-1], steps


def _joined(world: World, further: bool) -> tuple[str, Thing, list[Step]]:
    """Two hops that describe a thing together, a third that asks for something of it, and perhaps a fourth behind that."""
    kind = world.pick(tuple(CLAUSES))
    (left, left_says), (right, right_says) = (CLAUSES[kind][int(place)] for place in world.rng.permutation(len(CLAUSES[kind]))[:2])
    described = [relation_named(left), relation_named(right)]
    asked = world.pick([relation for relation in relations_of(kind) if relation.name not in (left, right)])
    chain = [asked]
    if further:
        chain.append(world.pick([relation for relation in relations_of(asked.object) if relation.name != asked.name]))
    target = world.thing(kind)
    ends = [world.thing(relation.object) for relation in chain]
    clues = [world.thing(relation.object) for relation in described]
    steps: list[Step] = []
    shown = []
    for relation, clue in zip(described, clues, strict=True):
        reach = world.pick(
            [one for one in RELATIONS if one.object == relation.object and one.name != relation.name and one.subject != kind]
        )
        source = world.thing(reach.subject)
        page = world.page(source, [(reach, clue)])
        steps.append((_asked(reach, source.reference, source), clue.name, page, reach.name))
        shown.append(world.pick(reach.phrases).format(s=source.reference, maker=source.words.get("maker", "")))
        world.look_alike(reach)
        world.crowd(source, namesake=False)
    page = world.page(target, [*zip(described, clues, strict=True), (asked, ends[0])])
    for index, relation in enumerate(described):  # decoys: half of the description fits them
        decoy = world.thing(kind)
        other = world.thing(described[1 - index].object)
        world.page(decoy, [(relation, clues[index]), (described[1 - index], other), (asked, world.thing(asked.object))])
    what = f"the {kind} that {left_says} and {right_says}"
    steps.append(
        (_asked(asked, what.format(o="{o}").replace("{o}", "#1", 1).replace("{o}", "#2", 1), target), ends[0].name, page, asked.name)
    )
    if further:
        page = world.page(ends[0], [(chain[1], ends[1])])
        steps.append((_asked(chain[1], "#3", ends[0]), ends[1].name, page, chain[1].name))
        world.look_alike(chain[1])
    phrase = f"the {kind} that {_clause(left_says, shown[0])} and {_clause(right_says, shown[1])}"
    return ask_chain(world, chain, target, phrase), ends[-1], steps


def _clause(says: str, phrase: str) -> str:
    """A clause with a described object in place of a named one; the description brings its own article."""
    return says.replace("the {o}", "{o}").format(o=phrase)


def musique_row(split: str, seed: int, *, answerable: bool = True) -> dict[str, Any]:
    """Return one task in the official layout of MuSiQue.

    Args:
        split: "train", "validation" or "test".
        seed: a non-negative integer; the row is a pure function of it, the split and `answerable`.
        answerable: False for the unanswerable twin, in which the page of one hop is replaced by another page.

    Returns:
        A dictionary with `id`, `paragraphs` (each with `idx`, `title`, `paragraph_text` and `is_supporting`), `question`,
        `question_decomposition`, `answer`, `answer_aliases` and `answerable`. Both twins have the same id, as in MuSiQue-Full.

    Raises:
        ValueError: if the split is unknown or the seed negative.
    """
    world = World(split, seed, _DOMAIN)
    draw, shape = float(world.rng.random()), "2hop"
    for name, share in SHAPES.items():
        shape = name
        draw -= share
        if draw < 0:
            break
    hops = int(shape[0])
    question, answer, steps = _joined(world, hops == 4) if shape in ("3hop2", "4hop2") else _chain(world, hops)
    gone = world.number(0, len(steps))
    world.fill_up(PARAGRAPHS)
    if not answerable:
        world.pages.remove(steps[gone][2])
        world.fill_up(PARAGRAPHS)
    kept = [step for index, step in enumerate(steps) if answerable or index != gone]
    base = world.row(split, seed, question, answer.name, "", "", [(page, relation) for _, _, page, relation in kept])
    places = {title: index for index, (title, _) in enumerate(base["context"])}
    supporting = {places[page.thing.name] for _, _, page, _ in kept}
    return {
        "id": f"{shape}__{split}_{seed}",
        "paragraphs": [
            {"idx": index, "title": title, "paragraph_text": "".join(lines), "is_supporting": index in supporting}
            for index, (title, lines) in enumerate(base["context"])
        ],
        "question": question,
        "question_decomposition": _decomposition(steps, places),
        "answer": answer.name,
        "answer_aliases": list(other_names(answer)),
        "answerable": answerable,
    }


def _decomposition(steps: Sequence[Step], places: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {"id": number, "question": question, "answer": answer, "paragraph_support_idx": places.get(page.thing.name)}
        for number, (question, answer, page, _) in enumerate(steps)
    ]
