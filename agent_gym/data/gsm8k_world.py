"""The embedded word problems: generated stories whose sums have three to five steps, in the layout of GSM8K (Cobbe et al., arXiv 2110.14168).

A row is a pure function of the split and the number: `question`, and `answer`, a solution whose sums are marked for a calculator
(`<<12*4=48>>48`) and whose last line is `#### ` and the answer, a whole number. The splits share no person, and every question names one, so no
question can stand in two splits. Some stories hold a number that has nothing to do with the question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from agent_gym.tools.calculator import evaluate, format_number

__all__ = ["PEOPLE", "SPLITS", "gsm8k_row"]

T = TypeVar("T")

SPLITS = ("train", "validation", "test")
PEOPLE: Mapping[str, tuple[str, ...]] = {
    "train": (
        "Ada", "Ben", "Carla", "Daniel", "Esra", "Femi", "Gita", "Hugo", "Irma", "Jonas", "Kira", "Luis", "Mara", "Nils", "Olga", "Pedro", "Rosa",
        "Sven", "Tara", "Umar", "Vera", "Yusuf", "Zoe", "Anton",
    ),
    "validation": ("Bella", "Cem", "Dina", "Edgar", "Frida", "Goran", "Hanna", "Ivo", "Jana", "Kofi"),
    "test": ("Lena", "Milan", "Noor", "Oskar", "Petra", "Quentin", "Ruth", "Samir", "Tilda", "Viktor", "Wanda", "Zeno"),
}  # fmt: skip
"""The people of each split; no name stands in two."""

_DOMAIN = 0x67736D38  # sets these draws apart from every other use of the same seed
_FRUIT = ("apples", "pears", "plums", "oranges", "lemons", "peaches", "melons")
_THINGS = ("tiles", "pencils", "candles", "buttons", "stamps", "marbles", "seeds", "postcards", "beads", "magnets")
_GOODS = ("lamp", "jacket", "suitcase", "tent", "desk", "mirror", "radio", "kettle", "clock", "rug")
_GOALS = ("bicycle", "guitar", "telescope", "camera", "canoe", "sewing machine")
_ASIDES = (
    "{who} is {n} years old.",
    "It is {n} kilometres from there to the next town.",
    "{who} has done this for {n} years.",
    "{who} lives in a street with {n} houses.",
)
_PERCENT = (10, 20, 25, 40, 50, 60, 75)


class _Unsuitable(Exception):
    """The drawn numbers make no story: a step is negative, or no short decimal."""


class _Story:
    """The draws of one problem, and its solution so far."""

    def __init__(self, split: str, number: int, attempt: int) -> None:
        entropy = [_DOMAIN, SPLITS.index(split), number, attempt]
        self.rng = np.random.default_rng(np.random.SeedSequence(entropy))
        names = PEOPLE[split]
        self.people = [names[int(place)] for place in self.rng.permutation(len(names))[:3]]
        self.who = self.people[0]
        self.lines: list[str] = []
        self.value = Fraction(0)

    def number(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def step(self, before: str, expression: str, after: str) -> str:
        """Add a line of the solution, and return its result as it is written in later ones."""
        value = evaluate(expression)
        written = format_number(value)
        if value <= 0 or (value * 100).denominator != 1 or value >= 10**7:
            raise _Unsuitable
        self.value = value
        self.lines.append(f"{before} {expression} = <<{expression.replace(' ', '')}={written}>>{written} {after}.")
        return written


def _stall(story: _Story) -> str:
    fruit, who = story.pick(_FRUIT), story.who
    picked, kept, given, price, days = (
        story.number(24, 90),
        story.number(2, 9),
        story.number(3, 12),
        story.number(2, 6),
        story.number(3, 14),
    )
    left = story.step(f"{who} sells", f"{picked} - {kept} - {given}", f"{fruit} a day")
    daily = story.step("That brings", f"{left} * {price}", "dollars a day")
    story.step(f"In {days} days it is", f"{daily} * {days}", "dollars")
    return (
        f"{who} picks {picked} {fruit} every morning, keeps {kept} of them for breakfast and gives {given} to a neighbour. The rest is sold at a "
        f"stall for ${price} each. How many dollars does {who} take in {days} days?"
    )


def _boxes(story: _Story) -> str:
    thing, each, first, times, broken = (
        story.pick(_THINGS),
        story.number(12, 48),
        story.number(5, 30),
        story.number(2, 4),
        story.number(5, 60),
    )
    second = story.step("On Tuesday", f"{first} * {times}", "boxes are packed")
    boxes = story.step("Both days together", f"{first} + {second}", "boxes are packed")
    packed = story.step("They hold", f"{boxes} * {each}", thing)
    story.step("What is left are", f"{packed} - {broken}", thing)
    return (
        f"{story.who} packs {thing} into boxes of {each}. On Monday {first} boxes are filled, and on Tuesday {times} times as many. Then {broken} of "
        f"the {thing} turn out to be broken and are thrown away. How many good {thing} are in the boxes?"
    )


def _overtime(story: _Story) -> str:
    wage, usual, more = 2 * story.number(5, 16), story.number(20, 40), story.number(2, 12)
    over = story.step("The overtime is", f"{usual + more} - {usual}", "hours")
    rate = story.step("An hour of it is paid with", f"{wage} * 1.5", "dollars")
    extra = story.step("The overtime brings", f"{over} * {rate}", "dollars")
    base = story.step("The usual hours bring", f"{usual} * {wage}", "dollars")
    story.step("Together that is", f"{base} + {extra}", "dollars")
    return (
        f"{story.who} earns ${wage} an hour, and one and a half times as much for every hour beyond {usual} in a week. This week {story.who} has "
        f"worked {usual + more} hours. How many dollars has {story.who} earned?"
    )


def _saving(story: _Story) -> str:
    goal, weekly, spent, weeks, saved = (
        story.pick(_GOALS),
        story.number(18, 60),
        story.number(3, 15),
        story.number(4, 20),
        story.number(20, 150),
    )
    price = saved + weeks * (weekly - spent)
    missing = story.step("There are still", f"{price} - {saved}", "dollars missing")
    put_by = story.step("In a week", f"{weekly} - {spent}", "dollars are put by")
    story.step("So it takes", f"{missing} / {put_by}", "weeks")
    return (
        f"{story.who} wants a {goal} that costs ${price} and has saved ${saved} already. Every week {story.who} earns ${weekly} by walking dogs and "
        f"spends ${spent} of it. After how many weeks is there enough money for the {goal}?"
    )


def _reading(story: _Story) -> str:
    first, times, days, rate = story.number(12, 40), story.number(2, 3), story.number(3, 9), story.number(15, 45)
    pages = first + first * times + days * rate
    second = story.step("On the second day", f"{first} * {times}", "pages are read")
    read = story.step("On both days together", f"{first} + {second}", "pages are read")
    rest = story.step("There are", f"{pages} - {read}", "pages left")
    story.step("That makes", f"{rest} / {days}", "pages a day")
    return (
        f"{story.who} reads a book of {pages} pages: {first} pages on the first day and {times} times as many on the second. The rest is to be read in "
        f"{days} days, the same number of pages on each. How many pages a day is that?"
    )


def _ages(story: _Story) -> str:
    one, two, three = story.people
    age, older, times, later = story.number(4, 15), story.number(2, 11), story.number(2, 3), story.number(2, 20)
    second = story.step(f"{two} is", f"{age} + {older}", "years old")
    third = story.step(f"{three} is", f"{second} * {times}", "years old")
    now = story.step("Together they are", f"{age} + {second} + {third}", "years old")
    grown = story.step(f"In {later} years all three will have aged by", f"3 * {later}", "years")
    story.step("So together they will be", f"{now} + {grown}", "years old")
    return (
        f"{one} is {age} years old. {two} is {older} years older than {one}, and {three} is {times} times as old as {two}. How old will the three be "
        f"together in {later} years?"
    )


def _two_legs(story: _Story) -> str:
    quick, hours, slow, minutes = story.number(40, 95), story.number(2, 6), story.number(12, 38), story.pick((30, 90, 150))
    first = story.step("On the motorway it is", f"{quick} * {hours}", "kilometres")
    time = story.step("On the country road it takes", f"{minutes} / 60", "hours")
    second = story.step("That is", f"{slow} * {time}", "kilometres")
    total = story.step("One way is", f"{first} + {second}", "kilometres")
    story.step("There and back it is", f"{total} * 2", "kilometres")
    return (
        f"{story.who} drives {hours} hours on a motorway at {quick} kilometres an hour, then {minutes} minutes on a country road at {slow} kilometres an "
        "hour, and takes the same way home. How many kilometres is that there and back?"
    )


def _recipe(story: _Story) -> str:
    people, portion, guests = story.number(2, 6), story.number(20, 60), story.number(8, 30)
    bag = story.pick((100, 200, 250, 500))
    grams = people * portion
    each = story.step("One person needs", f"{grams} / {people}", "grams")
    need = story.step(f"{guests} people need", f"{each} * {guests}", "grams")
    bags = -(-int(story.value) // bag)
    bought = story.step(f"With {bags} bags there are", f"{bags} * {bag}", "grams")
    story.step("What is left over are", f"{bought} - {need}", "grams")
    return (
        f"A recipe for {people} people takes {grams} grams of rice. {story.who} cooks it for {guests} people and buys rice in bags of {bag} grams, as few "
        "of them as will do. How many grams of rice are left over?"
    )


def _trip(story: _Story) -> str:
    classes, pupils, adults, seats, price = (
        story.number(3, 9),
        story.number(18, 29),
        story.number(4, 12),
        story.pick((30, 40, 50)),
        story.number(90, 400),
    )
    children = story.step("There are", f"{classes} * {pupils}", "pupils")
    story.step("With the adults that is", f"{children} + {adults}", "people")
    buses = -(-int(story.value) // seats)
    cost = story.step(f"They need {buses} buses, which cost", f"{buses} * {price}", "dollars")
    story.step("For each class that is", f"{cost} / {classes}", "dollars")
    return (
        f"{story.who} plans a trip for {classes} classes of {pupils} pupils each and {adults} adults. A bus has {seats} seats and costs ${price}, and "
        "no more buses are hired than needed. The classes share the cost equally. How many dollars does each class pay?"
    )


def _tank(story: _Story) -> str:
    fill, leak, start, minutes = story.number(12, 40), story.number(2, 9), story.number(20, 120), story.number(6, 40)
    size = start + minutes * (fill - leak)
    net = story.step("In a minute the water grows by", f"{fill} - {leak}", "litres")
    free = story.step("There is room for", f"{size} - {start}", "litres")
    story.step("So it takes", f"{free} / {net}", "minutes")
    return (
        f"A tank of {size} litres holds {start} litres of water. {story.who} opens a tap that brings {fill} litres a minute, while {leak} litres a minute "
        "run out through a crack. After how many minutes is the tank full?"
    )


def _fence(story: _Story) -> str:
    width, ratio, gate, price = story.number(8, 30), story.number(2, 4), story.number(2, 4), story.number(6, 25)
    length = story.step("The garden is", f"{width} * {ratio}", "metres long")
    around = story.step("Around it that is", f"2 * ({width} + {length})", "metres")
    fence = story.step("Without the gate it is", f"{around} - {gate}", "metres of fence")
    story.step("It costs", f"{fence} * {price}", "dollars")
    return (
        f"{story.who} fences a garden that is {width} metres wide and {ratio} times as long. A gap of {gate} metres is left for a gate. A metre of fence "
        f"costs ${price}. How many dollars does the fence cost?"
    )


def _theatre(story: _Story) -> str:
    adults, children, full = story.number(40, 180), story.number(20, 120), 2 * story.number(4, 12)
    hall, actors = story.number(100, 400), story.number(3, 8)
    half = story.step("A child pays", f"{full} / 2", "dollars")
    paid = story.step("The adults pay", f"{adults} * {full}", "dollars")
    less = story.step("The children pay", f"{children} * {half}", "dollars")
    rest = story.step("Without the cost of the hall there are", f"{paid} + {less} - {hall}", "dollars")
    story.step("Each of them gets", f"{rest} / {actors}", "dollars")
    return (
        f"{story.who}'s theatre group sells {adults} tickets for adults at ${full} and {children} tickets for children at half that price. The hall costs "
        f"${hall}. The {actors} members share what remains equally. How many dollars does each of them get?"
    )


def _discount(story: _Story) -> str:
    thing, price, percent, coupon, count = (
        story.pick(_GOODS),
        20 * story.number(2, 24),
        story.pick(_PERCENT[:5]),
        story.number(2, 9),
        story.number(2, 6),
    )
    off = story.step("The discount is", f"{price} * {percent} / 100", "dollars")
    reduced = story.step("One costs", f"{price} - {off}", "dollars")
    total = story.step(f"{count} of them cost", f"{reduced} * {count}", "dollars")
    story.step("With the coupon it is", f"{total} - {coupon}", "dollars")
    return (
        f"A {thing} costs ${price}, and there are {percent}% off today. {story.who} buys {count} of that kind and has a coupon of ${coupon} for the whole "
        "purchase. How many dollars does the purchase cost?"
    )


def _collection(story: _Story) -> str:
    one, two, three = story.people
    thing, half, more = story.pick(_THINGS), story.number(9, 80), story.number(3, 40)
    second = story.step(f"{two} has", f"{2 * half} / 2", thing)
    both = story.step(f"{one} and {two} have", f"{2 * half} + {second}", thing)
    third = story.step(f"{three} has", f"{both} + {more}", thing)
    story.step("All three have", f"{both} + {third}", thing)
    return (
        f"{one} has {2 * half} {thing} and {two} has half as many. {three} has {more} more {thing} than {one} and {two} together. How many {thing} do the "
        "three have altogether?"
    )


def _plans(story: _Story) -> str:
    months, fee, joining, visits, single = (
        story.number(6, 18),
        story.number(15, 40),
        story.number(10, 80),
        story.number(4, 12),
        story.number(8, 15),
    )
    monthly = story.step("With the contract the months cost", f"{months} * {fee}", "dollars")
    contract = story.step("With the joining fee that is", f"{monthly} + {joining}", "dollars")
    count = story.step("There are", f"{months} * {visits}", "visits")
    loose = story.step("Paid one by one they cost", f"{count} * {single}", "dollars")
    story.step("So the contract saves", f"{loose} - {contract}", "dollars")
    return (
        f"A swimming pool takes ${fee} a month and once ${joining} for joining, or ${single} for a single visit. {story.who} will go {visits} times a month "
        f"for {months} months. How many dollars does {story.who} save by the monthly contract?"
    )


def _bakery(story: _Story) -> str:
    quarter, shops = story.number(10, 60), story.number(2, 9)
    loaves, percent = 4 * quarter, story.pick(_PERCENT)
    morning = story.step("In the morning", f"{loaves} / 4", "loaves are sold")
    rest = story.step("Then there are", f"{loaves} - {morning}", "loaves")
    noon = story.step("At noon", f"{rest} * {percent} / 100", "loaves are sold")
    left = story.step("Then there are", f"{rest} - {noon}", "loaves")
    story.step("Each shop gets", f"{left} / {shops}", "loaves")
    return (
        f"{story.who}'s bakery makes {loaves} loaves. A quarter of them is sold in the morning, and {percent}% of the rest at noon. What is left goes to "
        f"{shops} shops, the same number to each. How many loaves does each shop get?"
    )


def _fuel(story: _Story) -> str:
    way, friends, price, reach = (
        story.number(60, 400),
        story.number(2, 5),
        story.pick(("1.5", "1.6", "1.75", "1.8", "2")),
        story.pick((10, 12, 15, 16, 20)),
    )
    far = story.step("There and back it is", f"2 * {way}", "kilometres")
    litres = story.step("The car burns", f"{far} / {reach}", "litres")
    cost = story.step("They cost", f"{litres} * {price}", "dollars")
    story.step("Each of them pays", f"{cost} / {friends + 1}", "dollars")
    return (
        f"{story.who} and {friends} friends drive to the coast, {way} kilometres away, and back. The car goes {reach} kilometres on a litre of fuel, which "
        f"costs ${price}. They share the cost of the fuel equally. How many dollars does each of them pay?"
    )


def _growth(story: _Story) -> str:
    members, first, second = 100 * story.number(2, 30), story.pick(_PERCENT), story.pick(_PERCENT)
    more = story.step("In the first year", f"{members} * {first} / 100", "members join")
    after = story.step("Then there are", f"{members} + {more}", "members")
    gone = story.step("In the second year", f"{after} * {second} / 100", "members leave")
    story.step("At last there are", f"{after} - {gone}", "members")
    return (
        f"The club that {story.who} leads has {members} members. In the first year their number grows by {first}%, in the second it falls by {second}%. "
        "How many members are there then?"
    )


_MAKERS: tuple[Callable[[_Story], str], ...] = (
    _stall, _boxes, _overtime, _saving, _reading, _ages, _two_legs, _recipe, _trip, _tank, _fence, _theatre, _discount, _collection, _plans, _bakery,
    _fuel, _growth,
)  # fmt: skip
_ASIDE_SHARE = 0.2


def gsm8k_row(split: str, number: int) -> dict[str, Any]:
    """Return one problem in the official layout, with an id.

    Args:
        split: "train", "validation" or "test".
        number: a non-negative integer; the row is a pure function of it and the split.

    Returns:
        A dictionary with `id`, `question` and `answer`, the solution.

    Raises:
        ValueError: if the split is unknown or the number negative.
    """
    if split not in SPLITS:
        raise ValueError(f"the generated problems have the splits {', '.join(SPLITS)}, not {split!r}")
    if number < 0:
        raise ValueError(f"a number of a problem is a non-negative integer, not {number}")
    attempt = 0
    while True:
        story = _Story(split, number, attempt)
        maker = story.pick(_MAKERS)
        try:
            question = maker(story)
        except _Unsuitable:
            attempt += 1
            continue
        if story.value.denominator == 1:
            break
        attempt += 1
    if story.rng.random() < _ASIDE_SHARE:
        aside = story.pick(_ASIDES).format(who=story.who, n=story.number(3, 60))
        body, _, asked = question.rpartition(". ")
        question = f"{body}. {aside} {asked}"
    answer = "\n".join([*story.lines, f"#### {int(story.value):,}"])
    return {"id": f"gsm8k-{split}-{number}", "question": question, "answer": answer}
