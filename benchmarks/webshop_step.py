"""Steps of the WebShop engine, per CPU-second: clicks, searches, purchases; how they grow with the catalogue and over resets.

    python benchmarks/webshop_step.py
    AGENT_GYM_WEBSHOP_DATA=path/to/the/official/files python benchmarks/webshop_step.py      # these too

A visit searches the words of its goal, which no visit before it did, and then clicks at random for up to 14 steps, as a policy at the
start of its training does; coming back to the search page it searches the same words again. All products have been looked at once before.
Goals: 20,000 steps other than purchases per CPU-second, and within 1.5 times the same from 1,000 to 20,000 products and from the first to
the last tenth of 1,000 resets. The baseline is the original's text environment, whose steps took 32 CPU-milliseconds on the same kind of machine.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

from clock import Clock, show

from agent_gym.envs.webshop import Catalogue, Rules, Session, Shop
from agent_gym.envs.webshop.generated.large import generate_large

VISITS, WARM_UP, STEPS = 1_000, 500, 15
ORIGINAL_SECONDS = 0.032
GOAL = "steps_other_than_buy_per_cpu_s"
KINDS = ("click", "first search", "search again", "buy")


def play(session: Session, index: int, draw: random.Random, spent: dict[str, list[float]]) -> None:
    """One visit; the CPU seconds of each step go to its kind."""
    session.start(index)
    goal = session.goal
    words = f"search[{goal.product.query} {' '.join(goal.attributes)} {draw.choice(goal.product.title.split())}]"
    searches = 0
    for _ in range(STEPS):
        if session.has_search_bar:
            kind, action = ("search again" if searches else "first search"), words
            searches += 1
        else:
            action = f"click[{draw.choice(session.clickables)}]"
            kind = "buy" if action == "click[buy now]" else "click"
        begin = Clock()
        turn = session.act(action)
        spent[kind].append(Clock() - begin)
        if turn.done:
            return


def measure(name: str, catalogue: Catalogue, mode: str = "text") -> None:
    """Plays `VISITS` visits in a new shop, three times, and shows what the steps of the quickest cost."""
    show(
        f"webshop engine, {name}, {mode}",
        products=len(catalogue),
        **max((play_all(catalogue, mode) for _ in range(3)), key=lambda found: found[GOAL]),
    )


def play_all(catalogue: Catalogue, mode: str) -> dict[str, float]:
    shop = Shop(catalogue)
    session = Session(shop, Rules(observation_mode=mode))
    draw = random.Random(0)
    for _ in catalogue:  # each product is decoded when it is first looked at, which is measured apart
        pass
    indices = draw.sample(range(len(shop.goals)), min(VISITS + WARM_UP, len(shop.goals)))
    for index in indices[VISITS:]:
        play(session, index, draw, {kind: [] for kind in KINDS})
    begin = Clock()
    for number in range(1_000):
        catalogue._read(number)
    decode = Clock() - begin
    total: dict[str, list[float]] = {kind: [] for kind in KINDS}
    tenths = []
    for number, index in enumerate(indices[:VISITS]):
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        play(session, index, draw, spent)
        for kind in KINDS:
            total[kind] += spent[kind]
        if number % (VISITS // 10) == 0:
            tenths.append([0.0, 0.0])
        tenths[-1][0] += sum(spent["click"])
        tenths[-1][1] += len(spent["click"])
    steps = sum(len(total[kind]) for kind in KINDS[:3])
    seconds = sum(sum(total[kind]) for kind in KINDS[:3])
    return {
        GOAL: steps / seconds,
        "times_as_fast_as_the_original": steps / seconds * ORIGINAL_SECONDS,
        **{f"{kind.replace(' ', '_')}_us": sum(times) / max(len(times), 1) * 1e6 for kind, times in total.items()},
        "share_of_searches": (len(total["first search"]) + len(total["search again"])) / steps,
        "first_look_at_a_product_us": decode * 1e3,
        "last_tenth_over_first": (tenths[-1][0] / tenths[-1][1]) / (tenths[0][0] / tenths[0][1]),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for size in (1_000, 20_000):
            data = Path(folder) / str(size)
            data.mkdir()
            generate_large(data, size)
            catalogue = Catalogue.open(data, cache_dir=Path(folder) / "cache")
            measure("generated", catalogue)
        data_dir = os.environ.get("AGENT_GYM_WEBSHOP_DATA")
        if data_dir:
            catalogue = Catalogue.open(data_dir, cache_dir=Path(folder) / "cache")
            for mode in ("text", "text_rich", "html", "url"):
                measure("official", catalogue, mode)


if __name__ == "__main__":
    main()
