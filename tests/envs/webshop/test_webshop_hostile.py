"""Hostile files, caches, keywords and replies: each is refused by name or survived, and nothing is played wrongly or left behind."""

from __future__ import annotations

import errno
import gc
import json
import math
import multiprocessing
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shop_records import HUMAN, NOTES, PRODUCTS, product, values

from agent_gym.envs.webshop import Catalogue, CatalogueError, Shop
from agent_gym.envs.webshop import catalogue as catalogue_module
from agent_gym.envs.webshop.engine import parse_action
from agent_gym.envs.webshop.env import WebShopEnv
from agent_gym.envs.webshop.nouns import nouns_by

WriteShop = Callable[..., Path]


def combined(options: int, each: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A shop of one product with many combinations of options."""
    names = {f"o{number}": values(*(f"v{number} {value}" for value in range(each))) for number in range(options)}
    note = {"attributes": ["big"], "instruction": "Find me a mug", "instruction_attributes": ["big"]}
    return [product("M000000001", "Mug of many kinds", customization_options=names)], {"M000000001": note}


# ------------------------------------------------------------------------------------------------ keywords and options


@pytest.mark.parametrize("nouns", ["mug", b"mug", 3, None, math.nan, [["mug"]], [1], ["mug", None]], ids=repr)
def test_what_are_no_nouns_is_refused_and_not_judged_by(nouns: Any) -> None:
    with pytest.raises(ValueError, match="noun_backend must return the nouns of a title, texts one by one"):
        nouns_by(lambda title: nouns)("a mug")
    assert nouns_by(str.split)("a mug") == ("a", "mug")


class _NoHash:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, title: str) -> list[str]:
        return title.split()


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"goals": []}, "goals must be one of"),
        ({"goals": ["human"]}, "goals must be one of"),
        ({"goals": np.array(["human"])}, "goals must be one of"),
        ({"noun_backend": _NoHash()}, "noun_backend must be a text or a function"),
        ({"data_dir": "~nosuchuser/x"}, "no such home folder"),
        ({"cache_dir": "~nosuchuser/x"}, "no such home folder"),
    ],
    ids=["no goals", "a list", "an array", "no hash", "data_dir", "cache_dir"],
)
def test_a_keyword_that_cannot_be_is_refused_by_name(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WebShopEnv(**keywords)


def test_files_and_a_generated_level_at_once_are_refused(write_shop: WriteShop) -> None:
    with pytest.raises(ValueError, match="level='small' is a generated catalogue"):
        WebShopEnv(data_dir=write_shop(), level="small")


@pytest.mark.parametrize(
    "options", [{"price_upper": 10**400}, {"prices": {"B": 10**400}}, {"price_upper": math.nan}], ids=["bound", "price", "nan"]
)
def test_prices_beyond_all_numbers_are_refused(options: dict[str, Any]) -> None:
    env = WebShopEnv(level="small")
    if "prices" in options:
        options = {"prices": {next(iter(env.shop.catalogue)).asin: 10**400}}
    with pytest.raises(ValueError, match="must be a number of dollars"):
        env.reset(options={"index": env.task_indices[0], **options})


# ------------------------------------------------------------------------------------------------ replies

_AS_THE_ORIGINAL = re.compile(r"(.+)\[(.+)\]")


@given(st.text(alphabet="[]ab\n ", max_size=24))
def test_actions_are_read_as_the_original_reads_them(action: str) -> None:
    match = _AS_THE_ORIGINAL.match(action)
    assert parse_action(action) == ((match[1], match[2].lower()) if match else (action, ""))


def test_a_reply_of_brackets_is_read_in_one_go() -> None:
    class Counted(str):
        """A text that counts the searches in it."""

        searches = 0

        def rfind(self, *arguments: Any) -> int:
            Counted.searches += 1
            return super().rfind(*arguments)

        def partition(self, sep: str) -> Any:
            return self, "", ""

    assert parse_action(Counted("[" * 100_000)) == ("[" * 100_000, "")
    assert Counted.searches == 2


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("change", ["cut short", "overwritten"])
def test_files_that_change_while_in_use_are_an_error_and_not_the_end(write_shop: WriteShop, tmp_path: Path, change: str) -> None:
    folder = write_shop()
    catalogue = Catalogue.open(folder, cache_dir=tmp_path / "cache")
    path = folder / "items_shuffle.json"
    if change == "cut short":
        os.truncate(path, 100)
    else:
        before = path.stat()
        path.write_bytes(path.read_bytes().replace(b"Stoneware", b"Porcelain"))
        assert path.stat().st_size == before.st_size
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(CatalogueError, match="changed while in use"):
        catalogue[0]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("pricing", "$" + "9" * 400, "field 'pricing'"),
        ("customization_options", combined(8, 10)[0][0]["customization_options"], "more than 10,000,000 goals"),
        ("customization_options", combined(40, 10)[0][0]["customization_options"], "more than 10,000,000 goals"),
    ],
    ids=["price", "options", "more options"],
)
def test_a_product_beyond_all_bounds_is_named(write_shop: WriteShop, tmp_path: Path, field: str, value: Any, message: str) -> None:
    note = {"M000000001": {"attributes": ["big"], "instruction": "Find me a mug", "instruction_attributes": ["big"]}}
    with pytest.raises(CatalogueError, match=message) as raised:
        Catalogue.open(write_shop([product("M000000001", "Mug", **{field: value})], note), cache_dir=tmp_path / "cache")
    assert "entry 0" in str(raised.value)


def test_a_number_of_thousands_of_digits_is_named(write_shop: WriteShop, tmp_path: Path) -> None:
    record = json.dumps(product("M000000001", "Mug", page=7)).replace(": 7", ": " + "7" * 5_000)
    with pytest.raises(CatalogueError, match=r"items_shuffle\.json"):
        Catalogue.open(write_shop(f"[{record}]", {}), cache_dir=tmp_path / "cache")


# ------------------------------------------------------------------------------------------------ the cache


def tables(folder: Path) -> list[Path]:
    return list(folder.rglob("order-*.npy"))


def test_a_large_order_of_goals_is_kept_for_all_and_made_again_where_it_is_damaged(write_shop: WriteShop, tmp_path: Path) -> None:
    folder = write_shop(*combined(5, 10))
    whole = [goal.instruction for goal in Shop(Catalogue.open(folder, cache_dir=tmp_path / "cache"), goals="synthetic").goals[:5]]
    (kept,) = tables(tmp_path / "cache")
    assert kept.stat().st_mode & 0o444 == 0o444
    kept.write_bytes(kept.read_bytes()[: kept.stat().st_size // 2])
    again = Shop(Catalogue.open(folder, cache_dir=tmp_path / "cache"), goals="synthetic")
    assert [goal.instruction for goal in again.goals[:5]] == whole
    assert np.load(kept, mmap_mode="r").shape == (100_000,)
    Shop(Catalogue.open(folder, cache_dir=tmp_path / "cache"), goals="synthetic", goal_seed=10**300)  # too long for the name of a file


def test_a_full_disk_is_told_or_gone_round_and_leaves_nothing(
    write_shop: WriteShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache, scratch = write_shop(), tmp_path / "cache", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    build, full = catalogue_module._build, [str(cache)]

    def on_a_full_disk(files: Any, num_products: Any, where: Path) -> None:
        build(files, num_products, where)
        if any(str(where).startswith(each) for each in full):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(catalogue_module, "_build", on_a_full_disk)
    catalogue = Catalogue.open(folder, cache_dir=cache)
    assert catalogue.folder.is_relative_to(scratch) and catalogue[0].asin == "B000000001"
    del catalogue
    gc.collect()
    assert list(scratch.iterdir()) == []
    full.append(str(scratch))
    with pytest.raises(OSError, match="no space left for the tables") as raised:
        Catalogue.open(write_shop(products=PRODUCTS[:3]), cache_dir=cache)
    assert raised.value.errno == errno.ENOSPC and raised.value.filename == str(scratch)
    assert list(scratch.iterdir()) == []


def test_what_a_killed_build_left_is_removed_by_the_next(write_shop: WriteShop, tmp_path: Path) -> None:
    folder, cache = write_shop(), tmp_path / "cache"
    tables_of = Catalogue.open(folder, cache_dir=cache).folder
    gc.collect()  # the catalogue is not open any more
    left = tables_of.parent / f".{tables_of.name}.killed"
    left.mkdir()
    (left / "places.npy").write_bytes(b"half")
    (tables_of / "complete.json").unlink()
    assert Catalogue.open(folder, cache_dir=cache).folder == tables_of
    assert not left.exists()


def test_temporary_tables_go_with_their_process_and_not_with_one_forked_from_it(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    owner: set[str] = set()
    catalogue_module.remove_with(owner, mine)

    def work() -> None:
        theirs.mkdir()
        lasting: set[str] = set()
        catalogue_module.remove_with(lasting, theirs)
        work.kept = lasting  # type: ignore[attr-defined]

    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    worker.join()
    assert worker.exitcode == 0 and mine.is_dir() and not theirs.exists()
    del owner
    gc.collect()
    assert not mine.exists()


def test_a_pickled_catalogue_whose_tables_are_gone_says_so(write_shop: WriteShop, tmp_path: Path) -> None:
    catalogue = Catalogue.open(write_shop(), cache_dir=tmp_path / "cache")
    kept = pickle.dumps(catalogue)
    shutil.rmtree(catalogue.folder)
    del catalogue
    gc.collect()
    with pytest.raises(FileNotFoundError, match=r"places.npy is gone: .* open it anew"):
        pickle.loads(kept)


def test_the_originals_name_of_a_split_is_told_ours() -> None:
    with pytest.raises(ValueError, match="split='validation'"):
        WebShopEnv(level="small", split="eval")


def test_a_relative_cache_is_found_from_another_folder(write_shop: WriteShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shop()
    monkeypatch.chdir(tmp_path)
    catalogue = Catalogue.open(folder, cache_dir="cache", human=bool(HUMAN and NOTES))
    assert catalogue.folder.is_absolute() and catalogue.folder.is_relative_to(tmp_path / "cache")


# ------------------------------------------------------------------------------------------------ what the model sees


@pytest.mark.parametrize("real", [False, True], ids=["default", "qwen3"])
def test_no_page_on_the_experts_way_is_cut(real: bool, qwen3_path: str, data_dir: Path, tmp_path: Path) -> None:
    """The golden episodes compare pages; this compares pages with prompts."""
    tokenizer = qwen3_path if real else None
    for env in (WebShopEnv(tokenizer=tokenizer), WebShopEnv(tokenizer=tokenizer, data_dir=data_dir / "webshop", cache_dir=tmp_path)):
        for seed in range(12):
            observation, info = env.reset(seed=seed)
            ask, over = env.expert(), False
            assert ask is not None
            while not over:
                assert info["feedback"] in env.decode(observation, info)
                observation, _, terminated, truncated, info = env.step(env.encode_action(ask()))
                over = terminated or truncated
