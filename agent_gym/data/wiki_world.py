"""The embedded HotpotQA world: a generated encyclopaedia of invented people, places, organisations and works, one small world per seed.

A row is a pure function of the split and the seed, in the official HotpotQA layout (Yang et al., arXiv 1809.09600): a question, its answer, ten
pages of two to five sentences, and the sentences that support the answer. The train split has no end. Names of one split cannot occur in
another (see `wiki_names`), so nothing about validation or test can be learned by heart.

Three kinds of questions are drawn, in these shares:

- bridge (0.80; one third of three hops, the rest of two): each page names only the next one, and the answer stands on the last alone. The answer
  is always a name of its own, drawn fresh, and shares no invented word with the question: a constant, an echo of the question, or any name in it
  scores nothing.
- comparison of two things by a number on either page (0.16). One of two names is right, so guessing wins half of these.
- comparison by yes or no (0.04), each half of the time, so a constant "yes" wins 0.02 of all questions.

`guess_rates` states what a policy can reach without reading. Beside the pages that matter, a row holds look-alikes: things of the same kinds with the
same relations to other things, and pages that name the question's subject without saying anything of it. They crowd the results of a search for
the question itself; the page that holds the answer of a bridge question usually takes a second search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, TypeVar

import numpy as np

from agent_gym.data.wiki_names import SPLITS, WordMaker
from agent_gym.data.wiki_text import (
    ASIDES,
    COMPARISONS,
    FILLERS,
    INTROS,
    KINDS,
    MAKING,
    NAME_PATTERNS,
    RELATIONS,
    SHARED_TRAITS,
    Comparison,
    Relation,
    relations_of,
)

__all__ = [
    "COMPARISON_SHARE",
    "PAGES",
    "SPLITS",
    "THREE_HOP_SHARE",
    "YES_NO_SHARE",
    "PlannedPage",
    "Thing",
    "World",
    "ask_chain",
    "draw_chain",
    "draw_choice",
    "draw_yes_no",
    "guess_rates",
    "plan_compared",
    "spoken_date",
    "wiki_row",
]

T = TypeVar("T")

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DOMAIN = 0x77696B69  # sets these draws apart from every other use of the same seed
_EARLIEST = {"organisation": 1865, "ship": 1835, "award": 1800, "film": 1905}
"""First year of a thing's kind; of single sorts only where no question compares years, or the sort would give the answer away."""
PAGES = 10
COMPARISON_SHARE = 0.16
"""Questions that set two things side by side."""
YES_NO_SHARE = 0.04
"""Questions whose answer is yes or no."""
THREE_HOP_SHARE = 0.27
"""Bridge questions of three hops; like the shares above, of all questions."""


def guess_rates() -> dict[str, float]:
    """Return what policies score that read nothing, as parts of 1, from the shares of the question kinds.

    Returns:
        "bridge": a constant, an echo or a name of the question on bridge questions (0). "comparison": one of the two names, or yes or no,
        drawn at random, on comparison questions (0.5). "overall": that same guesser on all questions, which is the floor that a score on
        this world must be held against. "constant": the best constant answer on all questions.
    """
    return {"bridge": 0.0, "comparison": 0.5, "overall": (COMPARISON_SHARE + YES_NO_SHARE) / 2, "constant": YES_NO_SHARE / 2}


@dataclass(slots=True)
class Thing:
    """Somebody or something that a page can be about."""

    kind: str
    sort: str
    name: str
    head: str
    numbers: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """How a sentence refers to it."""
        if self.kind == "work":
            return f'the {self.sort} "{self.name}"'
        if self.kind == "ship":
            return f"the {self.sort} {self.name}"
        return f"the {self.name}" if self.kind in ("building", "organisation", "award", "river") else self.name


@dataclass(slots=True)
class PlannedPage:
    """What a page will say: links that it must state, and things that it names in passing."""

    thing: Thing
    links: list[tuple[Relation, Thing]] = field(default_factory=list)
    asides: list[Thing] = field(default_factory=list)


def upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def plural(noun: str) -> str:
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else noun + "s"


def spoken_date(ordinal: int) -> str:
    """Write the day of a proleptic Gregorian ordinal as pages do: "4 May 1833".

    Args:
        ordinal: as of `datetime.date.toordinal`, at least 1.

    Returns:
        The date in words.
    """
    day = date.fromordinal(ordinal)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


class World:
    """The draws of one row: the things that there are, and the pages about them.

    Args:
        split: "train", "validation" or "test".
        seed: a non-negative integer.
        domain: sets the draws of one kind of world apart from those of another.

    Raises:
        ValueError: if the split is unknown or the seed negative.
    """

    def __init__(self, split: str, seed: int, domain: int = _DOMAIN) -> None:
        if split not in SPLITS:
            raise ValueError(f"the generated world has the splits {', '.join(SPLITS)}, not {split!r}")
        if seed < 0:
            raise ValueError(f"a seed is a non-negative integer, not {seed}")
        self.rng = np.random.default_rng(np.random.SeedSequence([domain, SPLITS.index(split), int(seed)]))
        self.maker = WordMaker(split, self.rng)
        self.pages: list[PlannedPage] = []

    # draws

    def number(self, low: int, high: int) -> int:
        """Draw a whole number from `low` to below `high`.

        Args:
            low: the smallest number.
            high: above `low`; never drawn.

        Returns:
            The number.
        """
        return int(self.rng.integers(low, high))

    def chance(self, probability: float) -> bool:
        """Draw whether something happens.

        Args:
            probability: in [0, 1].

        Returns:
            True with that probability.
        """
        return bool(self.rng.random() < probability)

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of the options.

        Args:
            options: at least one.

        Returns:
            The option, each with the same probability.
        """
        return options[self.number(0, len(options))]

    # things

    def thing(self, kind: str, *, sort: str | None = None, head: str | None = None) -> Thing:
        """Invent a thing; `head` gives it the invented word of another one's name.

        Args:
            kind: a key of `KINDS`.
            sort: of those of the kind; None draws one.
            head: the word to share; None invents one.

        Returns:
            The thing, its facts drawn.
        """
        kind_sort = sort or self.pick(KINDS[kind])
        if kind == "person":
            word = head or self.maker.word("surname")
            name = f"{self.maker.word('given')} {word}"
        else:
            word = head or self.maker.word("place")
            patterns = NAME_PATTERNS.get(kind_sort) or NAME_PATTERNS[kind]
            name = self.pick(patterns).format(w=word, Sort=kind_sort.title())
        made = Thing(kind, kind_sort, name, word)
        (self._person_facts if kind == "person" else self._other_facts)(made)
        return made

    def _person_facts(self, thing: Thing) -> None:
        born = date(self.number(1780, 1921), 1, 1) + timedelta(days=self.number(0, 365))
        died = born + timedelta(days=self.number(40 * 365, 88 * 365))
        pronoun, possessive, objective = self.pick((("she", "her", "her"), ("he", "his", "him")))
        thing.numbers["birth"] = born.toordinal()
        thing.words.update(
            born=spoken_date(born.toordinal()), died=spoken_date(died.toordinal()), decade=str((born.year + 35) // 10 * 10),
            it=pronoun, its=possessive, them=objective,
        )  # fmt: skip

    def _other_facts(self, thing: Thing) -> None:
        numbers = {
            "year": self.number(_EARLIEST.get(thing.sort, _EARLIEST.get(thing.kind, 1650)), 1985),
            "inhabitants": self.number(1_800, 98_000),
            "kilometres": self.number(21, 640),
            "metres": self.number(900, 5_200),
            "depth": self.number(11, 310),
            "tons": self.number(300, 9_000),
        }
        thing.numbers = numbers
        thing.words.update(
            made=str(numbers["year"]), count=f"{numbers['inhabitants']:,}", length=str(numbers["kilometres"]), height=f"{numbers['metres']:,}",
            depth=str(numbers["depth"]), tons=f"{numbers['tons']:,}", it="it", its="its", them="it",
        )  # fmt: skip
        if thing.kind == "town":
            thing.words["region"] = self.maker.word("place")
        if thing.kind == "work":
            thing.words["made_by"], thing.words["maker"] = MAKING[thing.sort]

    # pages

    def page(self, thing: Thing, links: Sequence[tuple[Relation, Thing]] = (), asides: Sequence[Thing] = ()) -> PlannedPage:
        """Plan a page; what it says beyond the given is drawn when it is written.

        Args:
            thing: the page's subject.
            links: what it must say: relations and the things they lead to.
            asides: things that it names in passing.

        Returns:
            The plan, which stands in `pages` now.
        """
        planned = PlannedPage(thing, list(links), list(asides))
        self.pages.append(planned)
        return planned

    def write(self, page: PlannedPage) -> tuple[list[str], dict[str, int]]:
        """Return the sentences of a page and the place of each required relation among them.

        Args:
            page: a plan.

        Returns:
            The sentences, and the index among them of each required relation by its name.
        """
        thing = page.thing
        stated = {relation.name for relation, _ in page.links}
        body: list[tuple[str, str]] = [(relation.name, self._state(relation, thing, target)) for relation, target in page.links]
        body += [("", self._fill(self.pick(ASIDES), thing, s=other.reference)) for other in page.asides]
        spare = [relation for relation in relations_of(thing.kind) if relation.name not in stated]
        fillers = list(FILLERS[thing.kind])
        for _ in range(min(4 - len(body), self.number(1, 4))):
            if spare and self.chance(0.6):
                relation = spare.pop(self.number(0, len(spare)))
                body.append(("", self._state(relation, thing, self.thing(relation.object))))
            elif fillers:
                body.append(("", self._fill(fillers.pop(self.number(0, len(fillers))), thing)))
        order = self.rng.permutation(len(body))
        body = [("", self._fill(self.pick(INTROS[thing.kind]), thing)), *(body[int(place)] for place in order)]
        sentences = [text if index == 0 else f" {text}" for index, (_, text) in enumerate(body)]
        return sentences, {name: index for index, (name, _) in enumerate(body) if name}

    def _state(self, relation: Relation, thing: Thing, target: Thing) -> str:
        return self._fill(self.pick(relation.says), thing, o=target.name)

    def _fill(self, template: str, thing: Thing, **given: str) -> str:
        words = {
            **thing.words,
            "name": thing.name,
            "a_sort": with_article(thing.sort),
            "year": str(self._year(thing)),
            "n": str(self.number(3, 40)),
        }
        words |= {"It": upper(thing.words["it"]), "Its": upper(thing.words["its"]), **given}
        return upper(template.format(**words))

    def _year(self, thing: Thing) -> int:
        """A year in the life of a person, or after the beginnings of a thing."""
        if thing.kind == "person":
            born = date.fromordinal(thing.numbers["birth"]).year
            return self.number(born + 20, born + 39)
        return self.number(thing.numbers["year"], 1996)

    def row(
        self, split: str, seed: int, question: str, answer: str, kind: str, level: str, support: Sequence[tuple[PlannedPage, str]]
    ) -> dict[str, Any]:
        """Write all pages, in a drawn order, and the row around them; `support` pairs a page with the relation that matters on it ("" = intro).

        Args:
            split: of the row.
            seed: of the row; with the split it gives the id.
            question: the question.
            answer: the gold answer.
            kind: the question's type.
            level: of the world.
            support: at least one pair.

        Returns:
            A row in HotpotQA's schema.
        """
        written = [(page, *self.write(page)) for page in self.pages]
        place = {id(page): where for page, _, where in written}
        return {
            "_id": f"wiki-{split}-{seed}",
            "question": question,
            "answer": answer,
            "type": kind,
            "level": level,
            "supporting_facts": [[page.thing.name, place[id(page)].get(name, 0)] for page, name in support],
            "context": [[written[int(index)][0].thing.name, written[int(index)][1]] for index in self.rng.permutation(len(written))],
        }

    def look_alike(self, relation: Relation) -> None:
        """Plan a page of the relation's subject kind that states the relation of something else.

        Args:
            relation: that the question asks about.
        """
        self.page(self.thing(relation.subject), [(relation, self.thing(relation.object))])

    def crowd(self, subject: Thing, *, namesake: bool) -> None:
        """Plan a page that names the subject in passing, about another thing with the same head word when it is a namesake.

        Args:
            subject: whom the page names.
            namesake: whether the other thing shares the subject's head word (towns never do).
        """
        kind = self.pick([kind for kind in KINDS if kind != subject.kind])
        head = subject.head if namesake and kind != "town" else None
        self.page(self.thing(kind, head=head), asides=[subject])

    def fill_up(self, pages: int = PAGES) -> None:
        """Plan pages about anything, until there are enough.

        Args:
            pages: how many there shall be.
        """
        while len(self.pages) < pages:
            self.page(self.thing(self.pick(tuple(KINDS))))


def draw_chain(world: World, hops: int) -> list[Relation]:
    """Draw relations that lead from one to the next, none twice in a row.

    Args:
        world: whose generator draws.
        hops: how many relations, at least 1.

    Returns:
        The relations, the object kind of each being the subject kind of the next.
    """
    while True:
        chain = [world.pick(RELATIONS)]
        while len(chain) < hops:
            further = [relation for relation in relations_of(chain[-1].object) if relation.name != chain[-1].name]
            if not further:
                break
            chain.append(world.pick(further))
        if len(chain) == hops:
            return chain


def ask_chain(world: World, chain: Sequence[Relation], start: Thing, phrase: str | None = None) -> str:
    """Ask for the end of a chain of relations, the thing at its beginning being named, or described by a phrase.

    Args:
        world: whose generator draws the words.
        chain: as of `draw_chain`.
        start: the thing at its beginning.
        phrase: describes the thing in place of its name; None names it.

    Returns:
        The question.
    """
    phrase = start.reference if phrase is None else phrase
    words = start.words
    for relation in chain[:-1]:
        phrase = world.pick(relation.phrases).format(s=phrase, maker=words.get("maker", ""))
    return upper(world.pick(chain[-1].asks).format(s=phrase, maker=words.get("maker", ""), made_by=words.get("made_by", "")))


def _bridge(world: World, split: str, seed: int, hops: int) -> dict[str, Any]:
    chain = draw_chain(world, hops)
    things = [world.thing(chain[0].subject), *(world.thing(relation.object) for relation in chain)]
    gold = [world.page(thing, [(relation, things[index + 1])]) for index, (thing, relation) in enumerate(zip(things, chain, strict=False))]
    world.crowd(things[0], namesake=True)
    world.crowd(things[0], namesake=False)
    world.crowd(things[0], namesake=False)
    world.look_alike(chain[-1])
    other = world.thing(chain[0].object)
    world.page(world.thing(chain[0].subject), [(chain[0], other)])
    world.page(other, [(chain[1], world.thing(chain[1].object))])
    if world.chance(0.5):
        world.page(things[-1])
    world.fill_up()
    question = ask_chain(world, chain, things[0])
    support = [(page, relation.name) for page, relation in zip(gold, chain, strict=True)]
    return world.row(split, seed, question, things[-1].name, "bridge", "medium" if hops == 2 else "hard", support)


def plan_compared(world: World, first: Thing, second: Thing) -> list[tuple[PlannedPage, str]]:
    """Plan the pages around a comparison and return its support.

    Args:
        world: gets the pages.
        first: what is compared.
        second: with what.

    Returns:
        Pairs of a page and the relation that matters on it.
    """
    pages = [world.page(first), world.page(second)]
    for thing in (first, second):
        world.crowd(thing, namesake=True)
    for _ in range(2):
        world.page(world.thing(first.kind))
    world.fill_up()
    return [(page, "") for page in pages]


def draw_choice(world: World) -> tuple[Comparison, Thing, Thing, str, Thing]:
    """Draw a comparison by a number: the kind of it, the two things, the question, and the one that is the answer.

    Args:
        world: whose generator draws; its pages stay as they are.

    Returns:
        In that order; the answer is one of the two things.
    """
    comparison = world.pick(COMPARISONS)
    first, second = world.thing(comparison.kind), world.thing(comparison.kind)
    while abs(first.numbers[comparison.fact] - second.numbers[comparison.fact]) < 2:
        second = world.thing(comparison.kind)
    smaller = world.chance(0.5)
    question = world.pick(comparison.smaller if smaller else comparison.larger).format(a=first.reference, b=second.reference)
    first_wins = (first.numbers[comparison.fact] < second.numbers[comparison.fact]) == smaller
    return comparison, first, second, question, first if first_wins else second


def _choice(world: World, split: str, seed: int) -> dict[str, Any]:
    _, first, second, question, winner = draw_choice(world)
    return world.row(split, seed, question, winner.name, "comparison", "easy", plan_compared(world, first, second))


def draw_yes_no(world: World) -> tuple[Thing, Thing, str, bool]:
    """Draw a comparison by a shared trait: the two things, the question, and whether the answer is yes.

    Args:
        world: whose generator draws.

    Returns:
        In that order.
    """
    kind = world.pick(tuple(SHARED_TRAITS))
    yes = world.chance(0.5)
    first = world.thing(kind)
    if kind == "town":
        second = world.thing(kind)
        if yes:
            second.words["region"] = first.words["region"]
    else:
        second = world.thing(kind, sort=first.sort if yes else world.pick([sort for sort in KINDS[kind] if sort != first.sort]))
    if world.chance(0.5):
        first, second = second, first
    question = world.pick(SHARED_TRAITS[kind]).format(a=bare_reference(first), b=bare_reference(second), sorts=plural(first.sort))
    return first, second, question, yes


def _yes_no(world: World, split: str, seed: int) -> dict[str, Any]:
    first, second, question, yes = draw_yes_no(world)
    return world.row(split, seed, question, "yes" if yes else "no", "comparison", "easy", plan_compared(world, first, second))


def bare_reference(thing: Thing) -> str:
    """A reference that does not give the sort away."""
    return f'"{thing.name}"' if thing.kind == "work" else thing.reference


def wiki_row(split: str, seed: int) -> dict[str, Any]:
    """Return one task in the official HotpotQA row layout.

    Args:
        split: "train", "validation" or "test".
        seed: a non-negative integer; the row is a pure function of it and the split.

    Returns:
        A dictionary with the keys `_id`, `question`, `answer`, `type` ("bridge" or "comparison"), `level` ("easy" comparison, "medium" two hops,
        "hard" three hops), `supporting_facts` (`[title, sentence number]` in hop order) and `context` (ten `[title, sentences]`).

    Raises:
        ValueError: if the split is unknown or the seed negative.
    """
    world = World(split, seed)
    draw = float(world.rng.random())
    if draw < YES_NO_SHARE:
        return _yes_no(world, split, seed)
    if draw < YES_NO_SHARE + COMPARISON_SHARE:
        return _choice(world, split, seed)
    return _bridge(world, split, seed, 3 if draw < YES_NO_SHARE + COMPARISON_SHARE + THREE_HOP_SHARE else 2)
