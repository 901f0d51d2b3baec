"""Ways of playing ALFWorld for the differential tests: each drives a `SideBySide` somewhere and leaves it there.

They know what an agent may know: the names in the room, what is admissible now, and what they were told.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from differential import SideBySide

FOODS = ("apple ", "bread ", "egg ", "lettuce ", "potato ", "tomato ")
KNIVES = ("knife ", "butterknife ")
NOISE = (
    "",
    " ",
    "\n",
    "xyzzy",
    "go to",
    "take",
    "examine",
    "open ",
    "use lamp",
    "go to nowhere 1",
    "take 1 from 2",
    "\u00e9\u4e2d\U0001f600",
    "look " * 2000,
)
STATIONS = {"clean": ("sinkbasin ", "bathtubbasin "), "heat": ("microwave ",), "cool": ("fridge ",)}


def opening(pair: SideBySide, rng: random.Random) -> None:
    """What a first visitor tries, and what he is told differs from what he expects."""
    some = rng.choice(pair.receptacles)
    for command in ("look", "inventory", "help", f"examine {some}", "look"):
        pair.play(command)
    put = "move apple 1 to " if pair.game.grammar == "move" else "put apple 1 in/on "
    for command in (
        f"open {some}",
        f"close {some}",
        f"take apple 1 from {some}",
        put + some,
        "use desklamp 1",
        "slice apple 1 with knife 1",
    ):
        pair.play(command)
    for arrival in rng.sample(pair.starting_with("go to "), 2):
        pair.play(arrival)
        for command in ("look", f"examine {arrival.removeprefix('go to ')}", arrival, "inventory"):
            pair.play(command)
        shared = [name for name in pair.receptacles if f"go to {name}" not in pair.admissible]
        for name in shared:
            pair.play(f"go to {name}")
            pair.play(f"examine {name}")
            if pair.try_to(f"open {name}"):
                pair.play(f"open {name}")
                pair.play("look")
        for take in pair.starting_with("take ")[:2]:
            thing, place = take.removeprefix("take ").split(" from ")
            pair.play(f"examine {thing}")
            if pair.try_to(take):
                for command in (f"examine {thing}", "inventory", take, "look", f"examine {place}"):
                    pair.play(command)
                put_down(pair, rng)
        for name in shared:
            if pair.try_to(f"close {name}"):
                pair.play(f"close {name}")


def visit_shared(pair: SideBySide) -> None:
    """Go to a place and then to each other receptacle of the room: some share the location, and one cannot go there."""
    for name in pair.receptacles:
        if pair.try_to(f"go to {name}"):
            for other in pair.receptacles:
                if other != name and f"go to {other}" not in pair.admissible:
                    pair.play(f"go to {other}")
                    pair.play("look")


def tour(pair: SideBySide, rng: random.Random) -> dict[str, str]:
    """Visit and open everything. Returns where each thing was that can be taken."""
    known = {}
    for name in rng.sample(pair.receptacles, len(pair.receptacles)):
        if not pair.try_to(f"go to {name}"):
            pair.play(f"examine {name}")
        pair.try_to(f"open {name}")
        for take in pair.starting_with("take "):
            thing, place = take.removeprefix("take ").split(" from ")
            known[thing] = place
        for use in pair.starting_with("use "):
            pair.play(use)
            mistakes(pair, rng, use, 2)
            pair.play(use)
        if rng.random() < 0.5:
            pair.try_to(f"close {name}")
    return known


def fetch(pair: SideBySide, known: dict[str, str], thing: str) -> bool:
    """Take a thing from where it was seen; return whether it is held."""
    place = known.pop(thing)
    pair.try_to(f"go to {place}")
    pair.try_to(f"open {place}")
    return pair.try_to(f"take {thing} from {place}")


def put_down(pair: SideBySide, rng: random.Random) -> str:
    """Put down what is held, here or anywhere. Returns where, "" when no place takes it."""
    for name in ["", *rng.sample(pair.receptacles, len(pair.receptacles))]:
        if name:
            pair.try_to(f"go to {name}")
            pair.try_to(f"open {name}")
        if puts := pair.starting_with("move ", "put "):
            put = rng.choice(puts)
            mistakes(pair, rng, put, rng.randrange(2))
            pair.play(put)
            return put.rpartition(" to " if put.startswith("move ") else " in/on ")[2]
    return ""


def treat(pair: SideBySide, thing: str, verbs: list[str]) -> None:
    """Clean, heat and cool what is held, and look at it each time; where it cannot be done, try it all the same."""
    for verb in verbs:
        for station in [name for name in pair.receptacles if name.startswith(STATIONS[verb])][:1]:
            pair.play(f"{verb} {thing} with {station}")
            pair.try_to(f"go to {station}")
            pair.play(f"{verb} {thing} with {station}")
            pair.play(f"examine {thing}")


def handle(pair: SideBySide, rng: random.Random, known: dict[str, str], number: int) -> None:
    """Take things and treat them in any order: foods first, which can be heated, cooled and sliced."""
    things = rng.sample(sorted(known), len(known))
    things.sort(key=lambda thing: not thing.startswith((*FOODS, "mug ", "plate ", "cup ")))
    for thing in things[:number]:
        if fetch(pair, known, thing):
            pair.play(f"examine {thing}")
            treat(pair, thing, rng.choices(list(STATIONS), k=rng.randint(1, 4)))
            put_down(pair, rng)


def slice_foods(pair: SideBySide, rng: random.Random, known: dict[str, str], number: int) -> None:
    """Take a knife, cut foods, and treat them."""
    knives = [thing for thing in sorted(known) if thing.startswith(KNIVES)]
    foods = [thing for thing in sorted(known) if thing.startswith(FOODS)][:number]
    if not knives or not foods or not fetch(pair, known, knives[0]):
        return
    for food in foods:
        pair.play(f"slice {food} with {knives[0]}")
        pair.try_to(f"go to {known[food]}")
        pair.play(f"slice {food} with {knives[0]}")
        pair.try_to(f"open {known[food]}")
        pair.play(f"slice {food} with {knives[0]}")
        for _ in range(2):
            pair.try_to(f"slice {food} with {knives[0]}")
        pair.play(f"slice {food} with {food}")
    put_down(pair, rng)
    for food in foods:
        if fetch(pair, known, food):
            pair.play(f"examine {food}")
            treat(pair, food, rng.sample(list(STATIONS), 3))
            put_down(pair, rng)


def wander(pair: SideBySide, rng: random.Random, steps: int) -> None:
    """Random admissible commands, each verb as likely as any other."""
    for _ in range(steps):
        verb = rng.choice(sorted({pair.verb(command) for command in pair.admissible}))
        pair.play(rng.choice([command for command in pair.admissible if pair.verb(command) == verb]))


def expert_play(pair: SideBySide, expert: Callable[[object], str], limit: int = 60) -> None:
    """Play as the expert says until the game is won."""
    for _ in range(limit):
        if pair.won:
            return
        command = expert(pair.fast)
        assert command in pair.admissible, f"{pair.game.where}: the expert says {command!r} after {pair.commands}"
        pair.play(command)
    raise AssertionError(f"{pair.game.where}: the expert has not won after {pair.commands}")


def perturbed_play(pair: SideBySide, rng: random.Random, expert: Callable[[object], str], limit: int = 60) -> None:
    """Three random admissible commands before each command of the expert, until the game is won."""
    for _ in range(limit):
        for _ in range(3):
            if pair.won:
                break
            wander(pair, rng, 1)
        if pair.won:
            break
        pair.play(expert(pair.fast))
    else:
        raise AssertionError(f"{pair.game.where}: the expert has not won after {pair.commands}")
    pair.coverage.perturbed += 1


def after_the_win(pair: SideBySide, rng: random.Random) -> None:
    """Play on in a won game, and undo the win where that can be done."""
    for command in ("look", "inventory", "Look", "examine the prize"):
        pair.play(command)
    for take in pair.starting_with("take "):
        pair.play(take)
        pair.play("look")
        put_down(pair, rng)
        break
    wander(pair, rng, 3)


def wrong_words(command: str, rng: random.Random, receptacles: list[str]) -> list[str]:
    """Texts that are nearly this command."""
    words = command.split()
    number = [i for i, word in enumerate(words) if word.isdigit()]
    changed = [
        command.upper(),
        command.title(),
        command + ".",
        command + " now",
        "  ".join(words),
        f"{command}\n{command}",
        command[:-1],
        "\u200b" + command,
    ]
    if len(words) > 1:
        changed += [command.replace(" ", "\t", 1), command.replace(" ", "\u00a0"), " ".join(words[1:]), " ".join([*words[1:], words[0]])]
    for i in number:
        changed += [" ".join([*words[:i], new, *words[i + 1 :]]) for new in ("0", "99", "-1", "1.0", "one", "")]
    for a, b in (
        ("from", "in"),
        (" with ", " in "),
        (" to ", " in/on "),
        (" in/on ", " to "),
        ("move", "put"),
        ("put", "move"),
        ("go to", "go"),
        ("to", "in"),
    ):
        if a in command:
            changed.append(command.replace(a, b, 1))
    for i in number[-1:]:
        changed.append(" ".join([*words[: i - 1], rng.choice(receptacles)]))
    if len(number) == 2:
        first, second = number
        start = 2 if words[1] == "to" else 1
        changed.append(
            " ".join([*words[:start], *words[second - 1 : second + 1], *words[first + 1 : second - 1], *words[start : first + 1]])
        )
    return changed


def mistakes(pair: SideBySide, rng: random.Random, command: str, number: int) -> None:
    """Nearly what could be done now, counted under the verb that was meant."""
    wrong = [text for text in wrong_words(command, rng, pair.receptacles) if text.strip() not in pair.admissible]
    for text in rng.sample(wrong, min(number, len(wrong))):
        pair.play(text, meant=pair.verb(command))


def nonsense(pair: SideBySide, rng: random.Random) -> None:
    """Texts that no engine takes: a mistake in each verb that is possible now, and noise. Blanks around a command do not matter."""
    by_verb: dict[str, list[str]] = {}
    for command in pair.admissible:
        by_verb.setdefault(pair.verb(command), []).append(command)
    for _, commands in sorted(by_verb.items()):
        mistakes(pair, rng, rng.choice(commands), 1)
    for text in rng.sample(NOISE, 2):
        pair.play(text, meant="noise")
    pair.play(f" \t{rng.choice(pair.admissible)}\n")


def visit(pair: SideBySide, rng: random.Random, things: int = 4, foods: int = 2) -> None:
    """All that a curious visitor does, from the opening on."""
    opening(pair, rng)
    nonsense(pair, rng)
    known = tour(pair, rng)
    handle(pair, rng, known, things)
    nonsense(pair, rng)
    slice_foods(pair, rng, known, foods)
    visit_shared(pair)
    nonsense(pair, rng)
    wander(pair, rng, 15)
