"""The official files as they are: found or missed at once, broken records named, built once, read by offset, shared."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shop_records import HUMAN, NOTES, PRODUCTS, product

from agent_gym.envs.webshop import Catalogue, CatalogueError, Shop
from agent_gym.envs.webshop import catalogue as catalogue_module
from agent_gym.envs.webshop.json_stream import read_array, read_at, read_object
from agent_gym.envs.webshop.product import search_text

WriteShop = Callable[..., Path]


def test_the_official_products_are_read(official: Catalogue, data_dir: Path) -> None:
    records = json.loads((data_dir / "webshop" / "items_shuffle_1000.json").read_text(encoding="utf-8"))
    assert len(official) == len(records) == 1000
    for number in range(0, 1000, 7):
        found, record = official[number], records[number]
        assert (found.number, found.asin, found.title) == (number, record["asin"], record["name"])
        assert found.description == record["full_description"]
        assert len(found.options) == len([name for name, each in (record["customization_options"] or {}).items() if each is not None])
    assert official.numbers([records[17]["asin"], records[3]["asin"]]) == [17, 3]
    assert official.human_instructions == 13


def test_records_become_products(odd_shop: Shop) -> None:
    catalogue = odd_shop.catalogue
    by_id = {each.asin: each for each in catalogue}
    assert "nan" not in by_id
    assert all(len(asin) <= 10 for asin in by_id)
    assert len(by_id) == len(catalogue) == len(PRODUCTS) - 3
    mug = by_id["B000000001"]
    assert mug.title == "Blue Stoneware Mug"
    assert mug.query == "mugs"
    assert mug.options == (("color", ("blue", "red", "blue")), ("size", ("small", "x-large")))
    assert (mug.prices, mug.price_tag, mug.attributes) == ((20.0,), "$20.0", ("dishwasher safe", "hand made"))
    assert by_id["B000000003"].options[1] == ("handle", ("wood", "steel | brass"))
    assert (by_id["B000000004"].prices, by_id["B000000004"].price_tag) == ((5.0, 15.5), "$5.0 to $15.5")
    assert [name for name, _ in by_id["B000000004"].options] == ["size"]
    assert (by_id["B000000002"].prices, by_id["B000000002"].price_tag) == ((100.0,), "$100.0")
    assert by_id["B000000005"].title == "Mug with a broken title"
    assert by_id["B000000005"].bullets == ("one string",)
    assert by_id["B000000005"].options == by_id["B000000007"].options == ()
    assert by_id["B000000007"].attributes == ("DUMMY_ATTR",)
    assert (
        search_text(mug)
        == "blue stoneware mug a plain text about blue stoneware mug. first feature  color: blue, red, blue, and size: small, x-large"
    )


def test_products_can_be_sliced_and_missing_ones_are_errors(odd_shop: Shop) -> None:
    catalogue = odd_shop.catalogue
    assert [each.number for each in catalogue[1:6:2]] == [1, 3, 5]
    assert catalogue[-1].number == len(catalogue) - 1
    with pytest.raises(IndexError, match="of"):
        catalogue[len(catalogue)]
    for asin in ("B00000000", "B0000000011", "ZZZZZZZZZZ", "", "\ud800"):
        with pytest.raises(KeyError, match="has no product"):
            catalogue.numbers([asin])


@pytest.mark.parametrize("missing", ["items_shuffle", "items_ins_v2", "items_human_ins"])
def test_a_missing_file_is_told_before_anything_is_read(
    write_shop: WriteShop, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = write_shop()
    (folder / f"{missing}.json").unlink()
    monkeypatch.setattr(catalogue_module, "cached_key", lambda *arguments: pytest.fail("the files were read"))
    with pytest.raises(FileNotFoundError, match=missing) as raised:
        Catalogue.open(folder, human=True, cache_dir=tmp_path)
    assert str(folder) in str(raised.value)
    assert "setup.sh" in str(raised.value)
    assert "AGENT_GYM_WEBSHOP_DATA" in str(raised.value)
    with pytest.raises(FileNotFoundError, match="no folder"):
        Catalogue.open(folder / "nowhere", cache_dir=tmp_path)


def test_human_instructions_may_be_missing_unless_asked_for(write_shop: WriteShop, tmp_path: Path) -> None:
    catalogue = Catalogue.open(write_shop(human=None), cache_dir=tmp_path / "cache")
    assert catalogue.human_instructions == 0
    with pytest.raises(ValueError, match="items_human_ins"):
        Shop(catalogue, goals="human")


def test_the_file_of_the_wanted_size_is_taken(write_shop: WriteShop, tmp_path: Path) -> None:
    folder = write_shop()
    (folder / "items_shuffle_2.json").write_text(json.dumps(PRODUCTS[2:4]))
    (folder / "items_ins_v2_2.json").write_text(json.dumps(NOTES))
    assert [each.asin for each in Catalogue.open(folder, num_products=2, cache_dir=tmp_path)] == ["B000000003", "B000000004"]
    assert len(Catalogue.open(folder, cache_dir=tmp_path)) == len(PRODUCTS) - 3
    (folder / "items_shuffle.json").rename(folder / "items_shuffle_x.json")
    with pytest.raises(FileNotFoundError, match=r"several files.*items_shuffle_2\.json, items_shuffle_x\.json"):
        Catalogue.open(folder, cache_dir=tmp_path)


def test_only_so_many_records_count_skipped_ones_included(write_shop: WriteShop, tmp_path: Path) -> None:
    folder = write_shop()
    assert len(Catalogue.open(folder, num_products=10, cache_dir=tmp_path)) == 7
    assert Catalogue.open(folder, num_products=2, cache_dir=tmp_path).human_instructions == 1
    with pytest.raises(ValueError, match="at least 1"):
        Catalogue.open(folder, num_products=0)


def broken(**fields: Any) -> list[dict[str, Any]]:
    record = {**product("B000000009", "Broken"), **fields}
    return [PRODUCTS[0], {name: value for name, value in record.items() if value is not ...}]


BROKEN: dict[str, tuple[Any, Any, Any, str]] = {
    "name": (broken(name=...), NOTES, HUMAN, r"items_shuffle\.json, entry 1, field 'name': .*missing"),
    "name kind": (broken(name=7), NOTES, HUMAN, r"items_shuffle\.json, entry 1, field 'name': .*got 7"),
    "asin": (broken(asin=None), NOTES, HUMAN, r"entry 1, field 'asin'"),
    "empty asin": (broken(asin=""), NOTES, HUMAN, r"entry 1, field 'asin': is empty"),
    "description": (broken(full_description=None), NOTES, HUMAN, r"entry 1, field 'full_description'"),
    "features": (broken(small_description=[1]), NOTES, HUMAN, r"entry 1, field 'small_description'"),
    "no features": (broken(small_description=...), NOTES, HUMAN, r"entry 1, field 'small_description'"),
    "price": (broken(pricing="cheap"), NOTES, HUMAN, r"entry 1, field 'pricing': .*'cheap'"),
    "price number": (broken(pricing="$1.2.3"), NOTES, HUMAN, r"entry 1, field 'pricing'"),
    "price kind": (broken(pricing=12.5), NOTES, HUMAN, r"entry 1, field 'pricing'"),
    "category": (broken(category=...), NOTES, HUMAN, r"entry 1, field 'category'"),
    "query": (broken(query=3), NOTES, HUMAN, r"entry 1, field 'query'"),
    "path": (broken(product_category=[]), NOTES, HUMAN, r"entry 1, field 'product_category'"),
    "options": (broken(customization_options=["x"]), NOTES, HUMAN, r"entry 1, field 'customization_options'"),
    "option values": (
        broken(customization_options={"Size": [{"name": "x"}]}),
        NOTES,
        HUMAN,
        r"entry 1, field 'customization_options', option 'Size'",
    ),
    "record": ([PRODUCTS[0], "text"], NOTES, HUMAN, r"items_shuffle\.json, entry 1: an object was expected"),
    "no products": ([], NOTES, HUMAN, r"items_shuffle\.json: holds no product"),
    "object": ({"a": 1}, NOTES, HUMAN, r"items_shuffle\.json, byte 0: a JSON array was expected, found '\{'"),
    "cut off": (json.dumps(PRODUCTS)[:-40], NOTES, HUMAN, r"items_shuffle\.json, entry LAST, byte \d+: no valid JSON.*copied whole"),
    "no end": (json.dumps(PRODUCTS)[:-1], NOTES, HUMAN, r"items_shuffle\.json, entry LAST, byte \d+: .*closing"),
    "no JSON": (
        json.dumps(PRODUCTS).replace('"B000000003",', "B,"),
        NOTES,
        HUMAN,
        r"items_shuffle\.json, entry 2, byte \d+: no valid JSON",
    ),
    "more text": (json.dumps(PRODUCTS) + "x", NOTES, HUMAN, r"items_shuffle\.json, byte \d+: the file should end here"),
    "empty": ("", NOTES, HUMAN, r"items_shuffle\.json, byte 0: .*the file ends here"),
    "note": (PRODUCTS, {**NOTES, "B000000001": 3}, HUMAN, r"items_ins_v2\.json, entry 'B000000001': an object was expected"),
    "note attributes": (
        PRODUCTS,
        {"B000000001": {"attributes": "x"}},
        HUMAN,
        r"items_ins_v2\.json, entry 'B000000001', field 'attributes'",
    ),
    "note instruction": (PRODUCTS, {"B000000001": {"attributes": [], "instruction": 3}}, HUMAN, r"entry 'B000000001', field 'instruction'"),
    "note wanted": (
        PRODUCTS,
        {"B000000001": {"instruction": "x", "instruction_attributes": []}},
        HUMAN,
        r"field 'instruction_attributes': is empty",
    ),
    "notes": (PRODUCTS, [], HUMAN, r"items_ins_v2\.json, byte 0: a JSON object was expected"),
    "notes key": (PRODUCTS, "{3: 4}", HUMAN, r"items_ins_v2\.json, entry 0, byte 1: a key in double quotes"),
    "human list": (PRODUCTS, NOTES, {"B000000001": {}}, r"items_human_ins\.json, entry 'B000000001': a list"),
    "human text": (PRODUCTS, NOTES, {"B000000001": [{"instruction_attributes": []}]}, r"entry 'B000000001'\[0\], field 'instruction'"),
    "human options": (
        PRODUCTS,
        NOTES,
        {"B000000001": [{"instruction": "x", "instruction_attributes": ["a"], "instruction_options": {}}]},
        r"entry 'B000000001'\[0\], field 'instruction_options'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_record_names_file_entry_and_field_and_leaves_no_tables(write_shop: WriteShop, tmp_path: Path, case: str) -> None:
    products, notes, human, message = BROKEN[case]
    with pytest.raises(CatalogueError, match=message.replace("LAST", str(len(PRODUCTS) - 1))):
        Catalogue.open(write_shop(products, notes, human), cache_dir=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_a_file_that_is_no_utf8_is_named(write_shop: WriteShop, tmp_path: Path) -> None:
    folder = write_shop()
    (folder / "items_shuffle.json").write_bytes(json.dumps(PRODUCTS).encode("utf-16"))
    with pytest.raises(CatalogueError, match=r"items_shuffle\.json, byte 0: no UTF-8"):
        Catalogue.open(folder, cache_dir=tmp_path / "cache")


def test_no_id_of_a_worker_is_kept_or_copied(write_shop: WriteShop, tmp_path: Path) -> None:
    catalogue = Catalogue.open(write_shop(), cache_dir=tmp_path / "cache")
    kept = [repr(catalogue.human_instruction(row)) for row in range(catalogue.human_instructions)]
    assert len(kept) == 2
    assert not any("WORKER" in text or "ASSIGNMENT" in text for text in kept)
    written = b"".join(path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert b"B000000001" in written
    assert b"WORKER" not in written
    assert b"ASSIGNMENT" not in written


def counted_builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    built: list[Path] = []
    original = catalogue_module._build

    def build(files: Any, num_products: int | None, folder: Path) -> None:
        built.append(folder)
        original(files, num_products, folder)

    monkeypatch.setattr(catalogue_module, "_build", build)
    return built


def test_tables_are_built_once_for_the_same_content(write_shop: WriteShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = counted_builds(monkeypatch)
    cache = tmp_path / "cache"
    folder = write_shop()
    first = Catalogue.open(folder, cache_dir=cache)
    assert Catalogue.open(folder, cache_dir=cache) is first
    fingerprint = first.fingerprint
    del first
    gc.collect()
    os.utime(folder / "items_shuffle.json", ns=(1, 1))  # another time, the same content
    assert Catalogue.open(folder, cache_dir=cache).fingerprint == fingerprint
    assert len(built) == 1
    changed = write_shop([*PRODUCTS, product("D000000001", "One more")])
    assert Catalogue.open(changed, cache_dir=cache).fingerprint != fingerprint
    assert Catalogue.open(changed, num_products=5, cache_dir=cache).fingerprint != fingerprint
    assert len(built) == 3


def test_files_are_not_hashed_again_while_they_are_untouched(
    write_shop: WriteShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_shop()
    first = Catalogue.open(folder, cache_dir=tmp_path / "cache").fingerprint
    gc.collect()
    monkeypatch.setattr("agent_gym.envs.webshop.files.file_digest", lambda *arguments: pytest.fail("hashed again"))
    assert Catalogue.open(folder, cache_dir=tmp_path / "cache").fingerprint == first


@pytest.mark.parametrize("how", ["removed", "cut", "unmarked"])
def test_damaged_tables_are_built_anew(write_shop: WriteShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    built = counted_builds(monkeypatch)
    folder, cache = write_shop(), tmp_path / "cache"
    Catalogue.open(folder, cache_dir=cache)
    gc.collect()
    table = built[0] / "bm25" / "terms.bin"
    if how == "removed":
        table.unlink()
    elif how == "cut":
        table.write_bytes(table.read_bytes()[:-1])
    else:
        (built[0] / "complete.json").unlink()
    assert Catalogue.open(folder, cache_dir=cache).search("mug", 5)
    assert len(built) == 2


def test_a_cache_that_cannot_be_written_is_no_obstacle(write_shop: WriteShop, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    catalogue = Catalogue.open(write_shop(), cache_dir=tmp_path / "file" / "cache")
    folder = catalogue.folder
    assert catalogue.search("hose", 5) == (len(catalogue) - 1,)
    assert folder.is_dir()
    del catalogue
    gc.collect()
    assert not folder.exists()


def test_a_changed_file_under_open_tables_is_an_error(write_shop: WriteShop, tmp_path: Path) -> None:
    folder = write_shop()
    catalogue = Catalogue.open(folder, cache_dir=tmp_path / "cache")
    with (folder / "items_shuffle.json").open("r+b") as file:
        file.write(b"[" * 4000)
    with pytest.raises(CatalogueError, match="changed while in use"):
        catalogue[0]


def test_copies_share_the_catalogue(odd_shop: Shop) -> None:
    catalogue = odd_shop.catalogue
    assert copy.deepcopy(catalogue) is catalogue
    assert copy.deepcopy(odd_shop) is odd_shop
    shared = Shop.open(catalogue, price_seed=3)
    assert Shop.open(catalogue, price_seed=3) is shared
    assert Shop.open(catalogue, price_seed=4) is not shared
    assert pickle.loads(pickle.dumps(shared)) is shared
    assert [each.asin for each in pickle.loads(pickle.dumps(catalogue))] == [each.asin for each in catalogue]


def test_a_large_catalogue_keeps_a_bounded_number_of_products(
    write_shop: WriteShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue_module, "_KEPT", 10)
    monkeypatch.setattr(catalogue_module, "_KEPT_OF_MANY", 4)
    catalogue = Catalogue.open(write_shop(), cache_dir=tmp_path / "cache")
    titles = [each.title for each in catalogue]
    assert [catalogue[number].title for number in range(len(catalogue))] == titles
    assert catalogue.product.cache_info().currsize == 4  # type: ignore[attr-defined]


def test_threads_see_the_same_products(write_shop: WriteShop, tmp_path: Path) -> None:
    catalogue = Catalogue.open(write_shop(), cache_dir=tmp_path / "cache")
    seen: list[list[Any]] = []

    def look() -> None:
        seen.append([(each.asin, catalogue.search(each.title, 3)) for each in catalogue])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert all(each == seen[0] for each in seen)


@pytest.fixture(scope="module")
def stream_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stream") / "stream.json"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(content=st.lists(json_values, max_size=6), indent=st.none() | st.integers(0, 2), plain=st.booleans(), window=st.integers(1, 40))
def test_a_streamed_array_is_the_array(stream_file: Path, content: list[Any], indent: int | None, plain: bool, window: int) -> None:
    stream_file.write_text(json.dumps(content, indent=indent, ensure_ascii=plain), encoding="utf-8", errors="surrogatepass", newline="\n")
    entries = list(read_array(stream_file, window))
    assert [entry.value for entry in entries] == content
    data = stream_file.read_bytes()
    assert [read_at(data, entry.start, entry.end, "here") for entry in entries] == content


@settings(max_examples=100, deadline=None)
@given(content=st.dictionaries(st.text(max_size=6), json_values, max_size=6), window=st.integers(1, 40))
def test_a_streamed_object_is_the_object(stream_file: Path, content: dict[str, Any], window: int) -> None:
    stream_file.write_text(json.dumps(content), encoding="utf-8")
    entries = list(read_object(stream_file, window))
    assert {entry.key: entry.value for entry in entries} == content
    data = stream_file.read_bytes()
    assert [read_at(data, entry.start, entry.end, "here") for entry in entries] == [entry.value for entry in entries]


@settings(max_examples=150, deadline=None)
@given(
    content=st.lists(st.dictionaries(st.text(max_size=4), json_values, max_size=3), min_size=1, max_size=4),
    cut=st.integers(0, 200),
    window=st.integers(1, 40),
)
def test_a_cut_array_is_an_error(stream_file: Path, content: list[Any], cut: int, window: int) -> None:
    text = json.dumps(content)
    stream_file.write_text(text[: cut % len(text)])
    with pytest.raises(CatalogueError, match=r"stream\.json"):
        list(read_array(stream_file, window))


def test_a_broken_record_is_found_without_reading_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    path.write_text('[{"a": 1}, {"a" 2}, ' + '{"text": "x"}, ' * 200_000 + "{}]")
    entries = read_array(path, 1 << 10)
    assert next(entries).value == {"a": 1}
    with pytest.raises(CatalogueError, match="entry 1, byte 16"):
        next(entries)
