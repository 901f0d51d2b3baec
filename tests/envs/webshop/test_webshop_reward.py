"""The reward: tables of cases worked out by the original's rules, and the token set ratio against an independent one."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.envs.webshop.env import WebShopEnv
from agent_gym.envs.webshop.goals import NO_BOUND, Goal
from agent_gym.envs.webshop.matching import COLORS, main_color, token_set_ratio
from agent_gym.envs.webshop.nouns import nouns_by, title_words
from agent_gym.envs.webshop.product import Product
from agent_gym.envs.webshop.reward import purchase_reward
from tests.helpers import require


def make_product(title: str = "Stone Mug", **changes: Any) -> Product:
    fields: dict[str, Any] = {
        "number": 0,
        "asin": "A",
        "title": title,
        "description": "Holds Hot Tea.",
        "bullets": ("Fits a Cup Holder",),
        "prices": (20.0,),
        "price_tag": "$20.0",
        "category": "garden",
        "query": "mugs",
        "product_category": "Home › Kitchen › Mugs",
        "options": (),
        "attributes": ("hand made", "dishwasher safe"),
        "instruction": None,
        "instruction_attributes": (),
    }
    return Product(**{**fields, **changes})


def make_goal(**changes: Any) -> Goal:
    return replace(Goal(0, make_product(), "Find me a mug", ("hand made",), (), 30.0, "synthetic"), **changes)


def judge(goal: Goal, product: Product | None = None, chosen: dict[str, str] | None = None, price: float = 20.0) -> Any:
    return purchase_reward(goal, product or goal.product, chosen or {}, price, title_words)


def test_the_wanted_product_is_worth_everything() -> None:
    parts = judge(make_goal(options=(("color", "blue"), ("size", "large"))), chosen={"size": "large", "color": "blue"})
    assert parts.reward == 1.0
    assert parts.success
    assert (parts.w_att, parts.w_option, parts.w_price) == (1 / 4, 2 / 4, 1 / 4)
    assert parts.as_floats()["r_price"] == 1.0


@pytest.mark.parametrize(("price", "bound", "kept"), [(30.0, 30.0, True), (30.01, 30.0, False), (5000.0, NO_BOUND, True)])
def test_the_price_counts_as_one_part(price: float, bound: float, kept: bool) -> None:
    parts = judge(make_goal(price_upper=bound), price=price)
    assert parts.r_price is kept
    assert parts.reward == (1.0 if kept else 0.5)


@pytest.mark.parametrize(
    ("attribute", "found"),
    [
        ("hand made", True),
        ("hand-made", True),
        ("Made By Hand", True),
        ("made hand", True),
        ("stone", True),  # in the title
        ("cup holder", True),  # in a feature
        ("hot tea", True),  # in the description
        ("Hot Tea", False),  # the text is in lower case, the attribute is not
        ("wood", False),
        ("dishwasher", True),  # all its words are in a listed one
        ("dishwashers safe", True),
        ("dish safe", False),
    ],
)
def test_an_attribute_is_listed_or_stands_in_the_text(attribute: str, found: bool) -> None:
    assert judge(make_goal(attributes=(attribute,))).r_att == float(found)


@pytest.mark.parametrize(
    ("wanted", "chosen", "met"),
    [
        (("size", "x-large"), "large", True),  # one set of words holds the other
        (("size", "x-small"), "small", True),
        (("size", "x-small"), "size", True),  # the pair is compared as a whole
        (("size", "x-small"), "x-large", False),
        (("color", "red"), "red", True),
        (("color", "red"), "dark red", False),  # its first colour is "dark"
        (("color", "dark green"), "light green", True),  # "green" is one of the words of the pair
        (("color", "navy"), "navy blue", False),  # "blue" comes first in the list
        (("red", "stone"), "red", True),  # a name that is a colour stands for the pair
        ("large", "x-large", True),  # a human goal: values alone
        ("dark green", "light green", False),
        ("blue-red", "red", False),
        ("redwood", "red", True),
        ("120ml", "120 ml", True),
        ("120ml", "240 ml", False),
    ],
)
def test_options_are_compared_as_in_the_original(wanted: Any, chosen: str, met: bool) -> None:
    assert judge(make_goal(options=(wanted,)), chosen={"any": chosen}).r_option == float(met)


def test_one_choice_may_meet_several_options_and_more_choices_cost_nothing() -> None:
    goal = make_goal(options=(("size", "large"), ("fit", "large")))
    assert judge(goal, chosen={"size": "large", "color": "blue", "lid": "none"}).reward == 1.0
    parts = judge(goal, chosen={"color": "blue"})
    assert (parts.r_option, parts.reward) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("bought", "r_type", "title_score"),
    [
        ({"title": "Mug of Clay", "query": "other", "product_category": "X"}, 1.0, 0.5),
        ({"title": "Glass Mug", "query": "mugs", "product_category": "X"}, 1.0, 0.5),
        ({"title": "Glass Hose", "query": "mugs"}, 0.0, 0.0),  # no common noun outweighs the same search
        ({"title": "Glass Hose", "product_category": "Mugs › Kitchen"}, 0.0, 0.0),
    ],
)
def test_the_kind_of_product_scales_the_reward(bought: dict[str, Any], r_type: float, title_score: float) -> None:
    parts = judge(make_goal(), make_product(**bought))
    assert (parts.r_type, parts.title_score) == (r_type, title_score)
    assert parts.reward == r_type * 1.0


@pytest.mark.parametrize(
    ("common", "of", "query", "path", "r_type"),
    [
        (1, 4, "other", "X", 1.0),
        (1, 5, "other", "X", 0.5),  # 0.2 is not above 0.2
        (1, 5, "mugs", "X", 1.0),
        (1, 5, "other", "Mugs › Kitchen › Steel", 1.0),  # two common categories, in any order
        (1, 5, "other", "Mugs › Steel", 0.5),  # one is not enough
        (1, 10, "mugs", "X", 1.0),
        (1, 11, "mugs", "X", 0.1),
        (0, 5, "mugs", "Home › Kitchen", 0.0),
        (0, 0, "mugs", "X", 1.0),  # a wanted title without nouns counts as 0.2
        (0, 0, "other", "X", 0.5),
    ],
)
def test_the_kind_follows_nouns_search_and_categories(common: int, of: int, query: str, path: str, r_type: float) -> None:
    nouns = {"wanted": [f"noun{n}" for n in range(of)], "bought": [f"noun{n}" for n in range(common)] + ["other", "other"]}
    goal = make_goal(product=make_product("wanted"))
    parts = purchase_reward(goal, make_product("bought", query=query, product_category=path), {}, 1.0, nouns_by(nouns.__getitem__))
    assert parts.r_type == r_type


def test_repeated_nouns_of_the_wanted_title_count_in_its_length_alone() -> None:
    goal = make_goal(product=make_product("day mug day mug"))
    assert judge(goal, make_product("day mug")).title_score == 0.5


@settings(max_examples=150, deadline=None)
@given(
    attributes=st.lists(st.sampled_from(["hand made", "stone", "wood", "steel"]), min_size=1, max_size=3),
    options=st.lists(st.tuples(st.sampled_from(["size", "color"]), st.sampled_from(["red", "large", "small"])), max_size=3),
    chosen=st.dictionaries(st.sampled_from(["size", "color", "lid"]), st.sampled_from(["red", "dark red", "large", "x-small"])),
    title=st.sampled_from(["Stone Mug", "Mug", "Hose", ""]),
    price=st.floats(0, 100),
)
def test_the_reward_is_made_of_its_parts(
    attributes: list[str], options: list[tuple[str, str]], chosen: dict[str, str], title: str, price: float
) -> None:
    goal = make_goal(attributes=tuple(attributes), options=tuple(options))
    parts = judge(goal, make_product(title), chosen, price)
    assert 0 <= parts.reward <= 1
    total = parts.w_att * parts.r_att + parts.w_option * parts.r_option + parts.w_price * parts.r_price
    assert parts.reward == pytest.approx(parts.r_type * total)
    assert parts.w_att + parts.w_option + parts.w_price == pytest.approx(1)
    assert judge(goal, make_product(title), {**chosen, "more": "large"}, price).reward >= parts.reward


# ------------------------------------------------------------------------------------------------ words


def test_colors_are_found_inside_words_in_the_order_of_the_list() -> None:
    assert list(COLORS) == sorted(COLORS)
    assert [main_color(option) for option in ("", "black forest", "violet lavender", "steelivy fuchsia", "123alabaster", "webshop")] == [
        "",
        "black",
        "lavender",
        "fuchsia",
        "alabaster",
        "webshop",
    ]


def subsequence(first: str, second: str) -> int:
    """The longest common subsequence by the textbook table."""
    row = [0] * (len(second) + 1)
    for letter in first:
        above = row[:]
        for place, other in enumerate(second, 1):
            row[place] = above[place - 1] + 1 if letter == other else max(above[place], row[place - 1])
    return row[-1]


def slow_ratio(first: str, second: str) -> int:
    """The token set ratio from its definition."""
    ours, theirs = (set(re.sub("[^a-z0-9]", " ", text.lower()).split()) for text in (first, second))
    common = " ".join(sorted(ours & theirs))
    texts = [common, *(" ".join([common] * bool(common) + sorted(rest)).strip() for rest in (ours - theirs, theirs - ours))]
    if not ours or not theirs:
        return 0
    if common and (ours <= theirs or theirs <= ours):
        return 100

    def ratio(one: str, other: str) -> float:
        return 200 * subsequence(one, other) / (len(one) + len(other)) if one or other else 0.0

    rest = [" ".join(sorted(words)) for words in (ours - theirs, theirs - ours)]
    length = len(texts[1]) + len(texts[2])
    joined = 100 * (1 - (len(rest[0]) + len(rest[1]) - 2 * subsequence(*rest)) / length)
    return round(max(joined, *(ratio(texts[0], text) for text in texts[1:])) if common else joined)


phrases = st.lists(
    st.sampled_from(["red", "blue", "size", "x", "large", "10", "5", "ft", "made", "mad", "easy-care", "easy care", "..."]), max_size=6
).map(" ".join)


@settings(max_examples=300, deadline=None)
@given(first=phrases | st.text("ab c1-", max_size=10), second=phrases | st.text("ab c1-", max_size=10))
def test_the_ratio_is_the_one_of_its_definition(first: str, second: str) -> None:
    assert token_set_ratio(first, second) == slow_ratio(first, second)


@settings(max_examples=500, deadline=None)
@given(first=phrases | st.text(max_size=12), second=phrases | st.text(max_size=12))
def test_the_ratio_is_that_of_the_packages_that_the_original_uses(first: str, second: str) -> None:
    fuzz, utils = require("rapidfuzz.fuzz"), require("rapidfuzz.utils")
    latin = dict.fromkeys(range(128, 256))
    texts = [utils.default_process(text.translate(latin)) for text in (first, second)]
    for text, processed in zip((first, second), texts, strict=True):
        if set("".join(re.split(r"[\W_]", text.translate(latin))).lower()) ^ set(processed.replace(" ", "")):
            return  # a letter of another version of Unicode
    assert token_set_ratio(first, second) == round(fuzz.token_set_ratio(*texts))


# ------------------------------------------------------------------------------------------------ nouns


def test_words_that_may_be_nouns() -> None:
    assert title_words("The New 2-Pack of Men's T-Shirts for Summer (100% cotton), 2XL") == (
        "pack",
        "men",
        "s",
        "t",
        "shirts",
        "summer",
        "cotton",
        "2xl",
    )
    assert nouns_by("words") is title_words
    assert nouns_by(str.split)("a b a") == ("a", "b", "a")
    with pytest.raises(ValueError, match="noun_backend must be"):
        nouns_by("nltk")
    with pytest.raises(ValueError, match="noun_backend must be"):
        nouns_by("spacy:")


def test_spacy_nouns_are_its_nouns_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real pipeline of spaCy, with rules instead of trained weights."""
    spacy = require("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("attribute_ruler")
    for word, kind in {"stone": "PROPN", "red": "ADJ", "mug": "NOUN", "holds": "VERB"}.items():
        ruler.add([[{"LOWER": word}]], {"POS": kind})
    folder = str(tmp_path / "tiny")
    pipeline.to_disk(folder)
    find = nouns_by(f"spacy:{folder}")
    assert find("Stone mug holds red mug") == ("stone", "mug", "mug")
    assert nouns_by(f"spacy:{folder}") is find
    env = WebShopEnv(level="small", noun_backend=f"spacy:{folder}")
    assert env.reset(seed=0)[1]["noun_backend"] == f"spacy:{folder}"
    with pytest.raises(ValueError, match="python -m spacy download no_such_model"):
        nouns_by("spacy:no_such_model")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ImportError, match=r'pip install "agentr1-gym\[webshop\]"'):
        nouns_by("spacy:other")
