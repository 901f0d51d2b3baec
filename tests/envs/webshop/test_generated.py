"""The catalogue that comes with the package, its small level, and the large one for benchmarks."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.chat import load_tokenizer
from agent_gym.envs.webshop import Catalogue, Goals, Shop
from agent_gym.envs.webshop.generated import DEFAULT_SIZES, GeneratedCatalogue, generate
from agent_gym.envs.webshop.generated import __file__ as generated_file
from agent_gym.envs.webshop.generated import large as large_module
from agent_gym.envs.webshop.generated.large import VOCABULARY_SIZE, generate_large, large_products, vocabulary
from agent_gym.envs.webshop.generated.oddities import PERIOD, oddity_of
from agent_gym.envs.webshop.generated.product import Draw, code_of
from agent_gym.envs.webshop.generated.small import LARGEST, NAMES, PRINTS, SIZES, THINGS
from agent_gym.envs.webshop.generated.words import KINDS, OPTION_POOLS
from agent_gym.envs.webshop.matching import COLORS, main_color, token_set_ratio

CATEGORIES = {"beauty", "electronics", "garden", "fashion", "grocery"}
PRODUCT_KEYS = [
    *("name", "full_description", "images", "product_category", "average_rating", "small_description"),
    *("customization_options", "asin", "category", "query", "page", "pricing"),
]
HUMAN_KEYS = {"asin", "instruction", "attributes", "options", "instruction_attributes", "instruction_options"}


@pytest.fixture(scope="module")
def full() -> GeneratedCatalogue:
    return generate()


@pytest.fixture(scope="module")
def small() -> GeneratedCatalogue:
    return generate(level="small")


def opened(made: GeneratedCatalogue, folder: Path) -> Catalogue:
    made.write(folder / "data")
    return Catalogue.open(folder / "data", cache_dir=folder / "cache")


def digest(made: GeneratedCatalogue) -> str:
    text = json.dumps([made.products, made.notes, made.human], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def values_of(product: dict[str, Any]) -> dict[str, list[str]]:
    return {name: [value["value"] for value in values or []] for name, values in (product["customization_options"] or {}).items()}


# ------------------------------------------------------------------------------------------------ the schema


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 130), seed=st.integers(0, 10**9), level=st.sampled_from(["full", "small"]))
def test_every_record_has_the_official_schema(size: int, seed: int, level: str) -> None:
    made = generate(min(size, LARGEST) if level == "small" else size, seed=seed, level=level)
    asins = [product["asin"] for product in made.products]
    assert len(set(asins)) == len(asins) and set(made.notes) == set(asins) and set(made.human) <= set(asins)
    for product in made.products:
        assert list(product) == PRODUCT_KEYS
        assert 0 < len(product["asin"]) <= 10 and product["asin"] != "nan"
        assert product["category"] in CATEGORIES and product["query"] == product["query"].lower().strip() and product["page"] >= 1
        assert re.fullmatch(r"(\$[\d,]+(\.\d\d)?( to \$[\d,]+\.\d\d)?)?", product["pricing"])
        assert product["images"] and all(image.startswith("https://images.example/") for image in product["images"])
        assert isinstance(product["average_rating"], float) or product["average_rating"] == ""
        bullets = product["small_description"]
        assert isinstance(bullets, str) or (bullets and all(isinstance(bullet, str) for bullet in bullets))
        assert product["customization_options"] == "" or all(
            isinstance(value, str) for values in values_of(product).values() for value in values
        )
        note = made.notes[product["asin"]]
        assert set(note) in ({"attributes"}, {"attributes", "instruction", "instruction_attributes"})
        assert set(note.get("instruction_attributes", ())) <= set(note["attributes"]) and (
            "instruction" not in note or note["instruction_attributes"]
        )
    for asin, asked in made.human.items():
        product = next(product for product in made.products if product["asin"] == asin)
        listed = {value.strip().lower() for values in values_of(product).values() for value in values}
        assert asked
        for one in asked:
            assert set(one) == HUMAN_KEYS and one["asin"] == asin
            assert one["instruction_attributes"] and set(one["instruction_attributes"]) <= set(made.notes[asin]["attributes"])
            assert set(one["instruction_options"]) <= listed
            assert all(said in one["instruction"] for said in (*one["instruction_attributes"], *one["instruction_options"]))


def test_human_instructions_name_no_worker(full: GeneratedCatalogue) -> None:
    assert not re.search(r"worker|assignment", json.dumps(full.human))


def test_the_files_are_the_official_ones_and_open_as_such(tmp_path: Path) -> None:
    made = generate(70)
    names = [path.name for path in made.write(tmp_path / "data")]
    assert names == ["items_shuffle_70.json", "items_ins_v2_70.json", "items_human_ins.json"]
    catalogue = Catalogue.open(tmp_path / "data", cache_dir=tmp_path / "cache")
    assert len(catalogue) == 70 and catalogue.human_instructions == sum(map(len, made.human.values()))
    assert [product.asin for product in catalogue] == [product["asin"] for product in made.products]


@pytest.mark.parametrize("level", ["full", "small"])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_tiny_catalogue_still_opens(level: str, size: int, tmp_path: Path) -> None:
    assert len(opened(generate(size, level=level, seed=3), tmp_path)) == size


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"level": "huge"}, "full, small"),
        ({"size": 0}, "at least one product"),
        ({"seed": -1}, "not negative"),
        ({"level": "small", "size": LARGEST + 1}, "level='full'"),
    ],
)
def test_a_catalogue_that_cannot_be_made_says_what_can(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generate(**keywords)


# ------------------------------------------------------------------------------------------------ always the same


def test_the_bytes_are_pinned(full: GeneratedCatalogue, small: GeneratedCatalogue) -> None:
    """Goals are named by index, so any change here changes what every published number of these catalogues means: pin it anew on purpose only."""
    assert digest(full) == "4ef396becbbcc36e"
    assert digest(small) == "19505382e95ab16f"
    assert digest(generate(seed=1)) != digest(full)


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_the_bytes_are_the_same_in_another_process(hash_seed: str, full: GeneratedCatalogue) -> None:
    code = (
        "import json, hashlib; from agent_gym.envs.webshop.generated import generate; m = generate();"
        "print(hashlib.sha256(json.dumps([m.products, m.notes, m.human], ensure_ascii=False).encode('utf-8')).hexdigest()[:16])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(generated_file).parents[4])}
    assert subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.strip() == digest(full)


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 80), more=st.integers(0, 80), seed=st.integers(0, 10**6))
def test_a_shorter_catalogue_is_the_beginning_of_a_longer_one(size: int, more: int, seed: int) -> None:
    short, long = generate(size, seed=seed), generate(size + more, seed=seed)
    assert long.products[:size] == short.products
    assert {asin: long.notes[asin] for asin in short.notes} == short.notes
    assert {asin: asked for asin, asked in long.human.items() if asin in short.notes} == short.human


@given(seed=st.integers(0, 50), start=st.integers(0, 36**8 - 3000))
def test_no_two_products_have_one_number(seed: int, start: int) -> None:
    codes = [code_of(index, seed) for index in range(start, start + 300)]
    assert len(set(codes)) == 300 and all(re.fullmatch(r"B0[0-9A-Z]{8}", code) for code in codes)


@given(key=st.text(max_size=5), items=st.lists(st.integers(), max_size=12), count=st.integers(0, 14))
def test_a_draw_takes_some_items_in_their_order_and_mixes_all(key: str, items: list[int], count: int) -> None:
    numbered = list(enumerate(items))
    chosen = Draw(key).some(numbered, count)
    assert len(chosen) == min(count, len(items)) and chosen == sorted(set(chosen))
    assert sorted(Draw(key).shuffled(numbered)) == numbered


# ------------------------------------------------------------------------------------------------ what is in it


def test_the_default_has_the_shape_of_the_official_thousand(full: GeneratedCatalogue) -> None:
    products = full.products
    assert len(products) == DEFAULT_SIZES["full"] == 1000
    per_category = Counter(product["category"] for product in products)
    assert set(per_category) == CATEGORIES and min(per_category.values()) > 100
    shares = {
        "no description": sum(not product["full_description"] for product in products),
        "no price": sum(not product["pricing"] for product in products),
        "price range": sum(" to " in product["pricing"] for product in products),
        "options": sum(any(values_of(product).values()) for product in products),
        "options without values": sum(bool(values_of(product)) and not any(values_of(product).values()) for product in products),
        "no attributes": sum(not note["attributes"] for note in full.notes.values()),
        "instruction": sum("instruction" in note for note in full.notes.values()),
        "human": sum(map(len, full.human.values())),
    }
    bounds = {
        "no description": (200, 400),
        "no price": (60, 130),
        "price range": (60, 130),
        "options": (350, 550),
        "options without values": (30, 130),
        "no attributes": (80, 220),
        "instruction": (350, 550),
        "human": (250, 450),
    }
    assert all(low <= shares[name] <= high for name, (low, high) in bounds.items()), shares
    titles = [len(product["name"]) for product in products]
    assert 90 < sum(titles) / 1000 < 140 and max(titles) > 200


def test_it_is_as_long_as_the_official_thousand(full: GeneratedCatalogue, data_dir: Path, tmp_path: Path) -> None:
    official = Catalogue.open(data_dir / "webshop", cache_dir=tmp_path / "official")
    ours = opened(full, tmp_path)

    def means(catalogue: Catalogue) -> dict[str, float]:
        texts = {
            "title": [product.title for product in catalogue],
            "description": [product.description for product in catalogue],
            "features": [" ".join(product.bullets) for product in catalogue],
        }
        return {name: sum(len(text.split()) for text in found) / len(catalogue) for name, found in texts.items()}

    for name, words in means(official).items():
        assert words / 1.35 < means(ours)[name] < words * 1.35, name


def test_it_has_enough_goals_for_the_official_splits(full: GeneratedCatalogue, tmp_path: Path) -> None:
    catalogue = opened(full, tmp_path)
    synthetic, human = Goals(catalogue, "synthetic"), Goals(catalogue, "human")
    assert len(synthetic) >= 2500 and synthetic.official_splits and len(human) >= 250
    assert Goals(catalogue).kind == "synthetic"
    phrasings = {re.sub(r"\d", "", " ".join(goal.request.split()[:3])) for goal in human}
    assert len(phrasings) >= 30 and len({goal.request for goal in human}) > 0.95 * len(human)


ODD: dict[str, Callable[[dict[str, Any]], bool]] = {
    "an option of forty values": lambda product: any(len(values) == 40 for values in values_of(product).values()),
    "a value twice in one option": lambda product: any(len(set(values)) < len(values) for values in values_of(product).values()),
    "a value of two options": lambda product: sum("Black" in values or "Walnut" in values for values in values_of(product).values()) > 1,
    "double quotes in a value": lambda product: any('"' in value for values in values_of(product).values() for value in values),
    "single quotes in a value": lambda product: any("'" in value for values in values_of(product).values() for value in values),
    "a slash in a value": lambda product: any("/" in value for values in values_of(product).values() for value in values),
    "blanks around a value": lambda product: any(value != value.strip() for values in values_of(product).values() for value in values),
    "a value in Chinese": lambda product: any("红色" in values for values in values_of(product).values()),
    "a value without a word": lambda product: any("½" in values for values in values_of(product).values()),
    "no description": lambda product: not product["full_description"],
    "no price": lambda product: not product["pricing"],
    "a price range": lambda product: " to " in product["pricing"],
    "a thousands comma": lambda product: "," in product["pricing"],
    "a price above every bound": lambda product: product["pricing"] == "$1,249.00",
    "a less-than sign": lambda product: "<0.5W" in str(product["small_description"]),
    "mark-up": lambda product: '<span class="a-list-item">' in product["full_description"] and "<b>" in str(product["small_description"]),
    "a title that is not ASCII": lambda product: not product["name"].isascii(),
    "Chinese": lambda product: bool(re.search(r"[\u4e00-\u9fff]", product["name"] + product["full_description"])),
    "an emoji": lambda product: "💕" in product["full_description"],
    "a long title": lambda product: len(product["name"]) >= 220,
    "no title": lambda product: not product["name"],
    "features in one text": lambda product: isinstance(product["small_description"], str),
    "nothing in the features": lambda product: product["small_description"] == [""],
    "lines in a feature": lambda product: any("\n" in bullet for bullet in product["small_description"]),
    "option names without values": lambda product: bool(values_of(product)) and not any(values_of(product).values()),
    "a shelf of one part": lambda product: "›" not in product["product_category"],
    "a deep shelf": lambda product: product["product_category"].count("›") >= 6,
    "marks of a page in the text": lambda product: "[SEP]" in product["name"],
    "marks of a prompt in the text": lambda product: "<|im_end|>" in str(product["small_description"]),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_odd_in_official_records_occurs_among_the_first_two_hundred(odd: str, full: GeneratedCatalogue) -> None:
    assert any(ODD[odd](product) for product in full.products[:PERIOD])


def test_odd_products_are_asked_for_where_they_can_be_had(full: GeneratedCatalogue) -> None:
    odd = [product for index, product in enumerate(full.products) if oddity_of(index) is not None]
    without = [product for product in odd if "instruction" not in full.notes[product["asin"]]]
    assert len(odd) == 5 * 24 and len(without) == 5 * 3
    assert all(ODD["no title"](one) or ODD["a value without a word"](one) or ODD["a value of two options"](one) for one in without)


# ------------------------------------------------------------------------------------------------ every goal can be had


def keeps_its_meaning(name: str, value: str) -> bool:
    """Whether choosing a value meets the synthetic goal for it: the reward compares its main colour with the pair of name and value."""
    shown = value.strip().replace("/", " | ").lower()
    wanted = shown if shown in COLORS else str((name.lower(), shown))
    return token_set_ratio(main_color(shown), wanted) > 85


def test_every_value_that_may_be_asked_for_keeps_its_meaning_under_the_reward() -> None:
    lost = [(name, value) for name, values in OPTION_POOLS.values() for value in values if not keeps_its_meaning(name, value)]
    assert not lost
    assert not keeps_its_meaning("Scent", "Sandalwood") and not keeps_its_meaning("Size", "½")  # "sand"; and no word at all


@pytest.mark.parametrize(("level", "kind"), [("full", "synthetic"), ("full", "human"), ("small", "synthetic")])
def test_buying_the_goals_product_with_its_options_is_worth_one(level: str, kind: str, tmp_path: Path) -> None:
    shop = Shop(opened(generate(level=level), tmp_path), goals=kind)
    for goal in shop.goals:
        chosen: dict[str, str] = {}
        for option in goal.options:
            value = option[1] if isinstance(option, tuple) else option.replace("/", " | ")
            chosen[[name for name, values in goal.product.options if value in values][-1]] = (
                value  # a click sets the last option that has the value
            )
        assert shop.judge(goal, goal.product, chosen, shop.price(goal.product)).reward == 1.0, goal


def test_attributes_stand_in_the_text_of_their_product(full: GeneratedCatalogue) -> None:
    missing = 0
    for product in full.products:
        text = " ".join([product["name"], product["full_description"], str(product["small_description"])]).lower()
        missing += any(attribute not in text for attribute in full.notes[product["asin"]]["attributes"])
    assert missing <= 15  # those of which nothing is said, or whose text was taken away


# ------------------------------------------------------------------------------------------------ the small level


def test_words_of_the_small_level_are_single_tokens() -> None:
    tokenizer = load_tokenizer()

    def tokens(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    assert all(tokens(word) == 1 for word in (*NAMES, *THINGS, *PRINTS, *SIZES))
    assert tokens("sandals") > 1


def test_the_small_level_is_small(small: GeneratedCatalogue, tmp_path: Path) -> None:
    tokenizer = load_tokenizer()
    assert len(small.products) == DEFAULT_SIZES["small"] == 96 and not small.human
    titles = [product["name"] for product in small.products]
    assert all(re.fullmatch(r"[A-Z][a-z]+ [a-z]+", title) for title in titles) and len({title.split()[0] for title in titles}) == len(
        titles
    )
    assert not {product["asin"] for product in small.products} & {title.split()[0] for title in titles}
    catalogue = opened(small, tmp_path)
    goals = Goals(catalogue)
    assert 600 <= len(goals) <= 1500
    assert all(len(tokenizer.encode(goal.instruction, add_special_tokens=False)) <= 40 for goal in goals)
    assert all(len(goal.options) == 2 and len(goal.attributes) == 1 for goal in goals)
    results = [len(catalogue.search(goal.product.title, 50)) for goal in goals]
    assert max(results) <= 10


def test_splits_of_the_small_level_share_no_combination(small: GeneratedCatalogue, tmp_path: Path) -> None:
    goals = Goals(opened(small, tmp_path))
    wanted = {
        split: {(goals[index].product.asin, goals[index].options) for index in goals.split(split)}
        for split in ("train", "validation", "test")
    }
    assert sum(map(len, wanted.values())) == len(set().union(*wanted.values())) == len(goals)
    assert {asin for asin, _ in wanted["test"]} <= {asin for asin, _ in wanted["train"]}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_neither_the_whole_instruction_nor_the_first_result_is_enough_on_the_small_level(seed: int, tmp_path: Path) -> None:
    catalogue = opened(generate(level="small", seed=seed), tmp_path)
    shop = Shop(catalogue)

    def first_is_the_goal(query: Callable[[Any], str]) -> float:
        return sum(catalogue.search(query(goal), 50)[0] == goal.product.number for goal in shop.goals) / len(shop.goals)

    assert 0.3 < first_is_the_goal(lambda goal: goal.instruction) < 0.6
    assert 0.7 < first_is_the_goal(lambda goal: goal.product.title) < 0.9
    without_options = [shop.judge(goal, goal.product, {}, shop.price(goal.product)).reward for goal in shop.goals]
    assert set(without_options) == {0.5}


# ------------------------------------------------------------------------------------------------ the large one, and the wheel


def test_a_large_catalogue_is_written_line_by_line_in_the_official_form(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    items, notes, human = generate_large(tmp_path, 1200, seed=4, progress=lambda done, of: calls.append((done, of)), progress_every=500)
    products = json.loads(items.read_text(encoding="utf-8"))
    assert len(products) == len({product["asin"] for product in products}) == 1200 and all(
        list(product) == PRODUCT_KEYS for product in products
    )
    assert len(items.read_text(encoding="utf-8").splitlines()) == 1202  # a line a product
    assert list(json.loads(notes.read_text(encoding="utf-8"))) == [product["asin"] for product in products]
    asked = json.loads(human.read_text(encoding="utf-8"))
    assert 0 < len(asked) < 60 and set(asked) <= {product["asin"] for product in products}
    assert calls == [(500, 1200), (1000, 1200), (1200, 1200)]
    catalogue = Catalogue.open(tmp_path, cache_dir=tmp_path / "cache")
    assert len(catalogue) == 1200 and len(Goals(catalogue)) > 2000
    with pytest.raises(ValueError, match="at least one product"):
        generate_large(tmp_path, 0)


def test_a_shorter_large_catalogue_is_the_beginning_of_a_longer_one() -> None:
    assert list(large_products(30, seed=1)) == list(islice(large_products(2500, seed=1), 30))


def test_a_large_catalogue_has_the_official_lengths() -> None:
    products = [record.product for record in large_products(2000)]
    titles = [len(product["name"].split()) for product in products]
    descriptions = [len(product["full_description"].split()) for product in products]
    features = [len(bullet.split()) for product in products for bullet in product["small_description"]]
    assert 15 < sum(titles) / 2000 < 21 and max(titles) <= 60
    assert 68 < sum(descriptions) / 2000 < 90 and 0.25 < descriptions.count(0) / 2000 < 0.35 and max(descriptions) > 400
    assert 22 < sum(features) / len(features) < 29
    assert 0.36 < sum("instruction" in record.note for record in large_products(2000)) / 2000 < 0.47


def test_its_words_are_a_hundred_and_fifty_thousand_and_follow_zipf() -> None:
    words = vocabulary()
    assert len(words) == len(set(words)) == VOCABULARY_SIZE >= 100_000 and all(re.fullmatch("[a-z]+", word) for word in words)
    counts = Counter(word for record in large_products(4000) for word in record.product["full_description"].split())
    ranked = [count for _, count in counts.most_common()]
    assert len(counts) > 50_000 and ranked[0] < 0.02 * sum(ranked) and ranked[0] > 20 * ranked[1000]


def test_its_memory_does_not_grow_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(large_module, "_BLOCK", 100)
    monkeypatch.setattr(large_module, "vocabulary", vocabulary()[:5000].copy)  # ready before the memory is traced, which is slow

    def peak(make: Callable[[], Any]) -> int:
        tracemalloc.start()
        kept = make()
        _, high = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del kept
        return high

    def written(n: int) -> int:
        return peak(lambda: generate_large(tmp_path / str(n), n))

    written(100)  # what is loaded once
    assert written(700) < 1.1 * written(200)
    assert peak(lambda: list(large_products(700))) > 1.5 * peak(lambda: list(large_products(200)))  # what is held does show


def test_all_of_it_takes_little_room_in_the_wheel() -> None:
    files = list(Path(generated_file).parent.glob("*"))
    assert sum(len(zlib.compress(path.read_bytes())) for path in files if path.is_file()) < 100_000


def test_kinds_are_many_and_of_all_categories() -> None:
    assert len(KINDS) >= 60 and {kind.category for kind in KINDS} == CATEGORIES and len({kind.query for kind in KINDS}) == len(KINDS)
