"""Goals: the official number, order and splits, texts and bounds by the original's rule, the same in every process, drawn by weight."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shop_records import HUMAN, NOTES, product, values

from agent_gym.envs.webshop import NO_BOUND, Catalogue, Goal, Goals, Shop
from agent_gym.envs.webshop import goals as goals_module
from agent_gym.envs.webshop.goals import price_of


@pytest.fixture(scope="module")
def official_goals(official: Catalogue) -> Goals:
    return Goals(official)


def wanted_in_order(data_dir: Path) -> list[tuple[str, str, dict[str, str], float]]:
    """Id, instruction without price, options and weight of every synthetic goal, straight from the files, in the official order."""
    folder = data_dir / "webshop"
    products = json.loads((folder / "items_shuffle_1000.json").read_text(encoding="utf-8"))
    notes = json.loads((folder / "items_ins_v2_1000.json").read_text(encoding="utf-8"))
    found = []
    for record in products:
        note = notes[record["asin"]]
        if note.get("instruction") is None:
            continue
        options = {
            name.lower(): [value["value"].strip().replace("/", " | ").lower() for value in each]
            for name, each in (record["customization_options"] or {}).items()
            if each is not None
        }
        names = sorted(options)
        for combination in itertools.product(*(options[name] for name in names)):
            chosen = dict(zip(names, combination, strict=True))
            text = ", and ".join(f"{name}: {value}" for name, value in chosen.items())
            found.append((record["asin"], note["instruction"] + (f" with {text}" if text else ""), chosen, note["instruction_attributes"]))
    mentions = Counter(attribute for *_, attributes in found for attribute in attributes)
    weighed = [(*each, sum(1 / mentions[name] for name in attributes) / len(attributes)) for *each, attributes in found]
    random.Random(233).shuffle(weighed)
    return weighed  # type: ignore[return-value]


def test_the_official_products_give_the_official_goals(official_goals: Goals, data_dir: Path) -> None:
    assert len(official_goals) == 6910
    assert official_goals.kind == "synthetic"
    recorded = wanted_in_order(data_dir)
    ours = [(goal.product.asin, goal.request, dict(goal.options)) for goal in official_goals]
    assert ours == [tuple(each[:3]) for each in recorded]
    assert [official_goals.weight(index) for index in range(6910)] == pytest.approx([each[3] for each in recorded], rel=1e-12)


def test_the_official_splits_hold(official_goals: Goals) -> None:
    assert official_goals.official_splits
    assert official_goals.split("test") == range(500)
    assert official_goals.split("eval") == official_goals.split("validation") == range(500, 1500)
    assert official_goals.split("train") == range(1500, 6910)
    assert official_goals.split("all") == range(6910)
    with pytest.raises(ValueError, match="split must be one of"):
        official_goals.split("dev")


@pytest.mark.parametrize("count", [3, 4, 10, 13, 99, 1999])
def test_fewer_goals_are_split_in_tenths(official_goals: Goals, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    few = Goals.__new__(Goals)
    few.__dict__.update(official_goals.__dict__, _order=np.arange(count), official_splits=False)
    parts = [few.split(name) for name in ("test", "validation", "train")]
    assert [index for part in parts for index in part] == list(range(count))
    assert abs(len(parts[0]) - count / 10) <= 1
    assert len(parts[0]) == len(parts[1])


def test_an_empty_split_says_so(official_goals: Goals) -> None:
    one = Goals.__new__(Goals)
    for count in (1, 2):
        one.__dict__.update(official_goals.__dict__, _order=np.arange(count), official_splits=False)
        assert one.split("train") == range(count)
        with pytest.raises(ValueError, match=rf"'test' is empty.*only {count}"):
            one.split("test")


def test_auto_takes_human_goals_where_there_are_enough(official: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Goals(official, "auto").kind == "synthetic"
    assert len(Goals(official, "human")) == 13
    monkeypatch.setattr(goals_module, "_ENOUGH_HUMAN", 13)
    assert Goals(official, "auto").kind == "human"
    with pytest.raises(ValueError, match="goals must be one of 'auto'"):
        Goals(official, "real")


def test_human_goals_are_those_with_attributes_in_the_order_of_the_products(odd_shop: Shop) -> None:
    goals = Goals(odd_shop.catalogue, "human", seed=None)
    assert [(goal.product.asin, goal.kind, goal.options) for goal in goals] == [
        ("B000000001", "human", ()),
        ("B000000003", "human", ("wood",)),
    ]
    assert goals[1].request == "i want a hand made mug with a wood handle"
    assert goals[1].with_bound(30).instruction == "i want a hand made mug with a wood handle, and price lower than 30.00 dollars"
    assert len(HUMAN["B000000003"]) == 2


def test_synthetic_goals_combine_all_option_values(odd_shop: Shop) -> None:
    goals = Goals(odd_shop.catalogue, "synthetic", seed=None)
    first = [goal for goal in goals if goal.product.asin == "B000000001"]
    assert [goal.options for goal in first] == [
        (("color", color), ("size", size)) for color in ("blue", "red", "blue") for size in ("small", "x-large")
    ]
    assert first[0].request == "Find me hand made mugs with color: blue, and size: small"
    assert first[0].attributes == ("hand made",)
    assert [goal.request for goal in goals if goal.product.asin == "B000000005"] == ["Find me broken mugs"]
    assert not [goal for goal in goals if goal.product.asin == "C000000001"]
    assert [goal.index for goal in goals] == list(range(len(goals)))
    assert goals[-1] == goals[len(goals) - 1] == goals[len(goals) - 1 :][0]
    with pytest.raises(IndexError, match="goal"):
        goals[len(goals)]


def test_an_option_without_values_leaves_no_goal(tmp_path: Path) -> None:
    records = [product("A1", "a", customization_options={"Size": []}), product("A2", "b", customization_options={"Size": values("x")})]
    notes = {asin: {"attributes": [], "instruction": "Find me", "instruction_attributes": ["soft"]} for asin in ("A1", "A2")}
    goals = Goals(Catalogue.from_records(records, notes, folder=tmp_path, cache_dir=tmp_path / "cache"))
    assert [goal.product.asin for goal in goals] == ["A2"]
    assert goals.weight(0) == 1.0


def test_a_catalogue_without_goals_says_what_is_missing(tmp_path: Path) -> None:
    catalogue = Catalogue.from_records([product("A1", "a")], {}, folder=tmp_path, cache_dir=tmp_path / "cache")
    with pytest.raises(ValueError, match="no synthetic goals"):
        Goals(catalogue)


def test_bounds_are_two_of_the_four_tens_above_the_price(official_goals: Goals) -> None:
    for goal in official_goals[:1500]:
        price = price_of(goal.product, 0)
        above = [ten for ten in range(10, 1000, 10) if ten > price][:4]
        if len(above) < 2:
            assert goal.price_upper == NO_BOUND
            assert goal.instruction == goal.request
        else:
            assert goal.price_upper in above[1:]
            assert goal.instruction == f"{goal.request}, and price lower than {goal.price_upper:.2f} dollars"


def test_bounds_and_prices_are_spread_as_in_the_original() -> None:
    bounds = Counter(goals_module._price_bound(25.0, 0, f"product {n}") for n in range(6000))
    assert set(bounds) == {40.0, 50.0, 60.0}  # the higher of two of 30, 40, 50, 60
    assert [bounds[bound] / 6000 for bound in (40.0, 50.0, 60.0)] == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.03)
    assert {goals_module._price_bound(price, 0, "x") for price in (970.0, 975.5)} <= {NO_BOUND, 990.0}
    assert goals_module._price_bound(980.0, 0, "x") == goals_module._price_bound(5000.0, 0, "x") == NO_BOUND
    assert {goals_module._price_bound(960.0, 0, str(n)) for n in range(50)} == {980.0, 990.0}
    chances = [goals_module._chance(f"x {n}") for n in range(4000)]
    assert 0 <= min(chances) < 0.01
    assert 0.99 < max(chances) < 1
    assert np.mean(chances) == pytest.approx(0.5, abs=0.02)


SCRIPT = """
import random, sys
from agent_gym.envs.webshop import Catalogue, Shop
random.seed(int(sys.argv[3])); before = random.getstate()
shop = Shop(Catalogue.open(sys.argv[1], cache_dir=sys.argv[2]), price_seed=5)
print([goal.instruction for goal in shop.goals], [shop.price(product) for product in shop.catalogue])
assert random.getstate() == before
"""


def test_every_process_has_the_same_goals_and_prices_and_global_randomness_is_left_alone(tmp_path: Path, odd_shop: Shop) -> None:
    folder = odd_shop.catalogue.files.items.parent
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(folder), str(tmp_path / f"cache{seed}"), str(seed)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path), "PATH": "", "PYTHONIOENCODING": "utf-8"},
        ).stdout
        for seed in (1, 2)
    }
    assert len(outputs) == 1
    ours = Shop(odd_shop.catalogue, price_seed=5)
    assert outputs == {f"{[goal.instruction for goal in ours.goals]} {[ours.price(each) for each in ours.catalogue]}\n"}
    other = Shop(odd_shop.catalogue, price_seed=6)
    assert [goal.request for goal in other.goals] == [goal.request for goal in ours.goals]
    assert [goal.instruction for goal in other.goals] != [goal.instruction for goal in ours.goals]


def test_prices_do_not_depend_on_what_else_is_sold(tmp_path: Path) -> None:
    ranged = [product(f"A{n}", "a", pricing="$5 to $15") for n in range(3)]
    notes = {f"A{n}": NOTES["B000000001"] for n in range(3)}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    both = [
        Catalogue.from_records(records, notes, folder=tmp_path / name, cache_dir=tmp_path / "cache")
        for name, records in (("a", ranged), ("b", ranged[::-1]))
    ]
    prices = [{each.asin: price_of(each, 0) for each in catalogue} for catalogue in both]
    bounds = [{goal.product.asin: goal.price_upper for goal in Goals(catalogue)} for catalogue in both]
    assert prices[0] == prices[1]
    assert bounds[0] == bounds[1]
    assert len(set(prices[0].values())) == 3
    assert all(5 <= price <= 15 for price in prices[0].values())


@settings(max_examples=200, deadline=None)
@given(split=st.sampled_from(["train", "eval", "test", "all"]), chance=st.floats(0, 1, exclude_max=True))
def test_a_drawn_goal_is_one_of_the_split(official_goals: Goals, split: str, chance: float) -> None:
    assert official_goals.draw(split, chance) in official_goals.split(split)


def test_goals_are_drawn_by_weight(official_goals: Goals) -> None:
    drawn = Counter(official_goals.draw("test", chance) for chance in np.random.default_rng(0).random(200_000))
    weights = np.array([official_goals.weight(index) for index in range(500)])
    shares = np.array([drawn[index] for index in range(500)]) / 200_000
    assert np.abs(shares - weights / weights.sum()).max() < 0.004
    assert np.corrcoef(shares, weights)[0, 1] > 0.98
    human = Goals(official_goals._catalogue, "human")
    assert {human.draw("all", n / 13 + 0.01) for n in range(13)} == set(range(13))


def test_tables_of_many_goals_are_kept_beside_the_catalogue(odd_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [goal.request for goal in Goals(odd_shop.catalogue)]
    monkeypatch.setattr(goals_module, "_MANY", 0)
    first = Goals(odd_shop.catalogue)
    drawn = [first.draw("all", n / 50) for n in range(50)]
    assert (odd_shop.catalogue.folder / "order-synthetic-233.npy").is_file()
    monkeypatch.setattr(goals_module, "_shuffled", lambda *arguments: pytest.fail("shuffled again"))
    again = Goals(odd_shop.catalogue)
    assert [goal.request for goal in again] == expected
    assert [again.draw("all", n / 50) for n in range(50)] == drawn


def test_a_goal_with_another_bound_is_the_same_goal(official_goals: Goals) -> None:
    goal: Goal = official_goals[0]
    other: Any = goal.with_bound(70)
    assert other.instruction.endswith(", and price lower than 70.00 dollars")
    assert (other.index, other.request, other.options) == (goal.index, goal.request, goal.options)
    assert goal.with_bound(NO_BOUND).instruction == goal.request
