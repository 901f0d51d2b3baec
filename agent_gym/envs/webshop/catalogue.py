"""The shop's goods: the official data files as they are, read by offset, beside tables that are built once and mapped into memory.

`Catalogue.open` takes a folder with `items_shuffle*.json` (products), `items_ins_v2*.json` (attributes and synthetic instructions) and,
for human goals, `items_human_ins.json`. The first time they are streamed once, and what is needed to find things again is written to a
cache folder named by a hash of their content: the place of every record in its file, the ids in order, the search index, and the number of
goals of each product. Afterwards a process maps these tables and reads a product when it is looked at, so 1.18 million products cost
neither time nor memory at the start. A bounded number of products is kept decoded.

The ids of the workers who wrote the human instructions are dropped where a record is read; they are neither kept nor copied.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_gym.envs.webshop.files import ShopFiles, cached_key, find_files
from agent_gym.envs.webshop.json_stream import CatalogueError, read_array, read_at, read_object
from agent_gym.envs.webshop.product import Product, clean_line, is_listed, parse_product
from agent_gym.envs.webshop.search import ProductSearch, search_documents
from agent_gym.search.storage import locked, new_folder

__all__ = ["Catalogue", "HumanInstruction", "remove_with"]

_KEPT = 50_000
"""So many products a catalogue keeps decoded when it has no more; of a larger one it keeps the `_KEPT_OF_MANY` that were seen last."""
_KEPT_OF_MANY = 4_096
_MOST_GOALS = 10_000_000
"""A product of more combinations of options is taken for a mistake."""
_NOWHERE = -1
_COMPLETE = "complete.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class HumanInstruction(NamedTuple):
    """A request that a person wrote for a product.

    Attributes:
        number: The product's place in the catalogue.
        place: The instruction's place among those of its product.
        text: The request.
        attributes: What it asks for.
        options: The option values it asks for.
    """

    number: int
    place: int
    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


class _Records:
    """The bytes of a file, by slices, as long as it is the file that was opened.

    Read, not mapped: a mapped file that somebody cuts short ends the process without a word.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._was = self._now()

    def _now(self) -> tuple[int, int]:
        stat = os.fstat(self._file.fileno())
        return stat.st_size, stat.st_mtime_ns

    def __getitem__(self, part: slice) -> bytes:
        found = os.pread(self._file.fileno(), part.stop - part.start, part.start)
        if self._now() != self._was:
            raise ValueError("it has another size or another time of change than when it was opened")
        return found


class Catalogue(Sequence[Product]):
    """The products of a shop, by number, in the order of the file. Read-only, shared by all environments of a process, safe in threads.

    Attributes:
        files: Where they come from.
        fingerprint: A hash of the files' content and of `num_products`.
        name: The product file's name without its ending.
        search: The search engine over them.
        product: The product of a number, `product(number)`; those seen last are kept decoded.
        human_instructions: How many usable instructions of people there are.
        goal_counts: How many synthetic goals each product has, int64 of shape (products,).
        goal_weights: The weight of each synthetic goal of a product, float64 of shape (products,).
    """

    def __init__(self, files: ShopFiles, folder: Path, fingerprint: str, *, temporary: bool = False) -> None:
        """Maps a folder of tables. Use `open` or `from_records`.

        Args:
            files: The official files.
            folder: With the tables that `open` made of them.
            fingerprint: Of the files' content.
            temporary: Whether the folder above goes with this object.
        """
        self.files, self.fingerprint, self.name, self.folder = files, fingerprint, files.items.stem, folder
        if temporary:
            remove_with(self, folder.parent)
        self._places: NDArray[np.int64] = _load(folder, "places")
        self._notes: NDArray[np.int64] = _load(folder, "notes")
        self._ids: NDArray[Any] = _load(folder, "ids")
        self._numbers: NDArray[np.int32] = _load(folder, "numbers")
        self._human: NDArray[np.int64] = _load(folder, "human")
        self.goal_counts: NDArray[np.int64] = _load(folder, "goal_counts")
        self.goal_weights: NDArray[np.float64] = _load(folder, "goal_weights")
        self._items_data, self._notes_data = _Records(files.items), _Records(files.notes)
        self._human_data = _Records(files.human) if files.human is not None else b""
        self.human_instructions = len(self._human)
        self.search = ProductSearch.open(folder / "bm25")
        self.product: Callable[[int], Product] = lru_cache(_KEPT if len(self) <= _KEPT else _KEPT_OF_MANY)(self._read)

    @classmethod
    def open(
        cls,
        data_dir: str | Path,
        *,
        num_products: int | None = None,
        cache_dir: str | Path | None = None,
        human: bool = False,
    ) -> Catalogue:
        """Opens the official files in a folder; builds their tables where the cache has none.

        Args:
            data_dir: The folder.
            num_products: Only so many records from the beginning of the product file, as in the original.
            cache_dir: Where tables are kept; None: `agent-gym/webshop` in the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`).
                Where it cannot be written, the tables live in a temporary folder as long as the catalogue.
            human: Insist on `items_human_ins.json`.

        Returns:
            The catalogue; the same object while one of the same content is in use.

        Raises:
            FileNotFoundError: At once, naming what is missing and what to do.
            CatalogueError: If a record is malformed; names file, index and field.
            ValueError: If `num_products` is below 1.
        """
        if num_products is not None and num_products < 1:
            raise ValueError(f"num_products must be at least 1, got {num_products}")
        files = find_files(data_dir, num_products=num_products, human=human)
        cache = (default_cache_dir() if cache_dir is None else Path(cache_dir)).absolute()
        key = cached_key(files, num_products, cache)
        known = _open_catalogues.get((files, key))
        if known is not None:
            return known
        folder, temporary = _built(files, num_products, cache / key)
        catalogue = cls(files, folder, key, temporary=temporary)
        _open_catalogues[files, key] = catalogue
        return catalogue

    @classmethod
    def from_records(
        cls,
        products: Iterable[Mapping[str, Any]],
        notes: Mapping[str, Any],
        human: Mapping[str, Any] | None = None,
        *,
        folder: str | Path,
        cache_dir: str | Path | None = None,
    ) -> Catalogue:
        """Writes records to a folder in the official form and opens it.

        Args:
            products: Entries of the product file.
            notes: The attribute file: entries by id.
            human: The file of human instructions: lists of entries by id.
            folder: Must exist, and hold no such files yet.
            cache_dir: As in `open`.

        Returns:
            The catalogue.
        """
        target = Path(folder)
        contents: dict[str, Any] = {"items_shuffle.json": list(products), "items_ins_v2.json": notes}
        if human is not None:
            contents["items_human_ins.json"] = human
        for name, content in contents.items():
            with (target / name).open("x", encoding="utf-8") as file:
                json.dump(content, file)
        return cls.open(target, cache_dir=cache_dir)

    def __len__(self) -> int:
        """How many products there are."""
        return len(self._places)

    def __getitem__(self, number: Any) -> Any:
        """The product of that number, or a list of them for a slice."""
        if isinstance(number, slice):
            return [self.product(each) for each in range(*number.indices(len(self)))]
        place = number + len(self) if number < 0 else number
        if not 0 <= place < len(self):
            raise IndexError(f"product {number} of {len(self)}")
        return self.product(int(place))

    def numbers(self, asins: Sequence[str]) -> list[int]:
        """The numbers of products by their ids.

        Args:
            asins: Ids, in any order.

        Returns:
            Numbers, in the order of the ids.

        Raises:
            KeyError: Naming an id that the catalogue lacks.
        """
        wanted = [asin.encode("utf-8", "surrogatepass") for asin in asins]
        places = np.searchsorted(self._ids, np.array(wanted, dtype=bytes))
        numbers = []
        for asin, name, place in zip(asins, wanted, places.tolist(), strict=True):
            if place == len(self._ids) or self._ids[place] != name:
                raise KeyError(f"the catalogue {self.name} has no product {asin!r}")
            numbers.append(int(self._numbers[place]))
        return numbers

    def human_instruction(self, row: int) -> HumanInstruction:
        """One of the usable instructions of people, in the order of the products.

        Args:
            row: From 0 to `human_instructions - 1`.

        Returns:
            The instruction and what it asks for.
        """
        number, start, end, place = self._human[row].tolist()
        where = f"{self.files.human}, bytes {start} to {end}"
        entry = read_at(self._human_data, start, end, where)[place]
        return HumanInstruction(
            number,
            place,
            clean_line(entry["instruction"]),
            tuple(clean_line(attribute) for attribute in entry["instruction_attributes"]),
            tuple(clean_line(option) for option in entry["instruction_options"]),
        )

    def table(self, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        """A table that follows from the catalogue: mapped from its folder, made and written there the first time.

        Args:
            name: Names what is in it, with all that it depends on beside the catalogue.
            make: Makes it.

        Returns:
            The table, read-only, of the shape and dtype that `make` gave it.
        """
        path = self.folder / f"{name}.npy"
        try:
            found = _load(self.folder, name)
        except (OSError, ValueError, EOFError):  # not there, damaged, or not ours to read
            made = make()
            _keep(path, made)
            with contextlib.suppress(OSError, ValueError, EOFError):
                return _load(self.folder, name)
            return made
        return found

    def _read(self, number: int) -> Product:
        index, start, end = self._places[number].tolist()
        where = f"{self.files.items}, entry {index}"
        record = read_at(self._items_data, start, end, where)
        start, end = self._notes[number].tolist()
        note = None if start == _NOWHERE else read_at(self._notes_data, start, end, f"{self.files.notes}, bytes {start} to {end}")
        return parse_product(record, note, number, where, f"{self.files.notes}, entry {record['asin']!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.files, self.folder, self.fingerprint)

    def __deepcopy__(self, memo: dict[int, Any]) -> Catalogue:
        return self


_open_catalogues: weakref.WeakValueDictionary[tuple[ShopFiles, str], Catalogue] = weakref.WeakValueDictionary()
"""Catalogues in use, so that environments share them."""


def default_cache_dir() -> Path:
    """`agent-gym/webshop` in the user's cache folder (`XDG_CACHE_HOME`, else `~/.cache`)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agent-gym" / "webshop"


def _reopen(files: ShopFiles, folder: Path, fingerprint: str) -> Catalogue:
    known = _open_catalogues.get((files, fingerprint))
    if known is None:
        try:
            known = _open_catalogues[files, fingerprint] = Catalogue(files, folder, fingerprint)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error.filename} is gone: a catalogue that was pickled needs the files and the tables of the one it was made from; open it anew"
            ) from error
    return known


def _built(files: ShopFiles, num_products: int | None, folder: Path) -> tuple[Path, bool]:
    """The folder of tables, built where it is missing; whether it is a temporary one."""
    if _is_complete(folder):
        return folder, False
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    except OSError:
        return _built_for_now(files, num_products, folder.name), True
    try:
        with locked(folder):
            if not _is_complete(folder):
                for left in (folder, *folder.parent.glob(f".{folder.name}.*")):  # what a crash left, or somebody damaged; the lock is ours
                    shutil.rmtree(left, ignore_errors=True)
                _build(files, num_products, folder)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        return _built_for_now(files, num_products, folder.name), True
    return folder, False


def _built_for_now(files: ShopFiles, num_products: int | None, name: str) -> Path:
    """Tables in a temporary folder."""
    parent = Path(tempfile.mkdtemp(prefix="agent-gym-webshop-"))
    try:
        _build(files, num_products, parent / name)
    except BaseException as error:
        shutil.rmtree(parent, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in _FULL:
            raise OSError(error.errno, "no space left for the tables of the products, in the cache and here", str(parent.parent)) from error
        raise
    return parent / name


def _is_complete(folder: Path) -> bool:
    """Whether a folder of tables is there, with all its files at the sizes they were written with."""
    try:
        sizes = json.loads((folder / _COMPLETE).read_text(encoding="ascii"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _build(files: ShopFiles, num_products: int | None, folder: Path) -> None:
    """Streams the files once and writes the tables."""
    with new_folder(folder) as new:
        notes = {str(entry.key): (entry.start, entry.end) for entry in read_object(files.notes)}
        notes_data = _Records(files.notes)
        tables = _Tables()

        def products() -> Iterable[Product]:
            for entry in read_array(files.items):
                index = int(entry.key)
                if num_products is not None and index >= num_products:
                    break
                where = f"{files.items}, entry {index}"
                if not is_listed(entry.value, where) or clean_line(entry.value["asin"]) in tables.by_id:
                    continue
                asin = entry.value["asin"]
                start, end = notes.get(asin, (_NOWHERE, _NOWHERE))
                note_where = f"{files.notes}, entry {asin!r}"
                note = None if start == _NOWHERE else read_at(notes_data, start, end, note_where)
                product = parse_product(entry.value, note, len(tables.by_id), where, note_where)
                if product.instruction is not None and math.prod(len(values) for _, values in product.options) > _MOST_GOALS:
                    raise CatalogueError(
                        f"{where}, field 'customization_options': its combinations make more than {_MOST_GOALS:,} goals, one each"
                    )
                tables.add(product, (index, entry.start, entry.end), (start, end))
                yield product

        ProductSearch.build(search_documents(products()), new / "bm25")
        if not tables.by_id:
            raise CatalogueError(f"{files.items}: holds no product that the shop lists")
        tables.write(new, _human_rows(files.human, tables.by_id))
        sizes = {path.relative_to(new).as_posix(): path.stat().st_size for path in new.rglob("*") if path.is_file()}
        (new / _COMPLETE).write_text(json.dumps(sizes), encoding="ascii")


class _Tables:
    """Collects what must be remembered of each product."""

    def __init__(self) -> None:
        self.by_id: dict[str, int] = {}
        self._places, self._notes, self._goal_counts = array("q"), array("q"), array("q")
        self._attributes: dict[str, int] = {}
        self._wanted, self._wanted_counts = array("q"), array("q")

    def add(self, product: Product, place: tuple[int, int, int], note: tuple[int, int]) -> None:
        """Takes the next product.

        Args:
            product: The product.
            place: Index, start and end of its record.
            note: Start and end of its note.
        """
        self.by_id[product.asin] = product.number
        self._places.extend(place)
        self._notes.extend(note)
        self._goal_counts.append(0 if product.instruction is None else math.prod(len(values) for _, values in product.options))
        self._wanted.extend(self._attributes.setdefault(name, len(self._attributes)) for name in product.instruction_attributes)
        self._wanted_counts.append(len(product.instruction_attributes))

    def write(self, folder: Path, human: NDArray[np.int64]) -> None:
        ids = np.array([asin.encode("utf-8") for asin in self.by_id])
        order = np.argsort(ids, kind="stable")
        goal_counts = np.array(self._goal_counts, dtype=np.int64)
        arrays = {
            "places": np.array(self._places, dtype=np.int64).reshape(-1, 3),
            "notes": np.array(self._notes, dtype=np.int64).reshape(-1, 2),
            "ids": ids[order],
            "numbers": order.astype(np.int32),
            "human": human,
            "goal_counts": goal_counts,
            "goal_weights": self._weights(goal_counts),
        }
        for name, values in arrays.items():
            np.save(folder / f"{name}.npy", values, allow_pickle=False)

    def _weights(self, goal_counts: NDArray[np.int64]) -> NDArray[np.float64]:
        """The weight of a goal: the mean over its attributes of 1 / how many goals ask for the attribute."""
        wanted, counts = np.array(self._wanted, dtype=np.int64), np.array(self._wanted_counts, dtype=np.int64)
        mentions = np.bincount(wanted, np.repeat(goal_counts, counts), minlength=len(self._attributes))
        rare = 1.0 / np.maximum(mentions, 1)
        sums = np.bincount(np.repeat(np.arange(len(counts)), counts), rare[wanted], minlength=len(counts))
        return np.where((counts > 0) & (goal_counts > 0), sums / np.maximum(counts, 1), 0.0)


def _human_rows(path: Path | None, by_id: Mapping[str, int]) -> NDArray[np.int64]:
    """Product, place in the file and place in its list of every instruction with attributes, in the order of the products."""
    rows: dict[int, list[tuple[int, int, int, int]]] = {}
    for entry in read_object(path) if path is not None else ():
        number = by_id.get(clean_line(str(entry.key)))
        where = f"{path}, entry {entry.key!r}"
        if not isinstance(entry.value, list):
            raise CatalogueError(f"{where}: a list of instructions was expected, got {type(entry.value).__name__}")
        usable = [place for place, given in enumerate(entry.value) if _is_usable(given, f"{where}[{place}]")]
        if number is not None:
            rows[number] = [(number, entry.start, entry.end, place) for place in usable]
    found = [row for number in sorted(rows) for row in rows[number]]
    return np.array(found, dtype=np.int64).reshape(len(found), 4)


def _is_usable(given: Any, where: str) -> bool:
    """Whether an instruction asks for an attribute; the original skips the others."""
    if not isinstance(given, Mapping):
        raise CatalogueError(f"{where}: an object was expected, got {type(given).__name__}")
    if not isinstance(given.get("instruction"), str):
        raise CatalogueError(f"{where}, field 'instruction': a string was expected, got {given.get('instruction')!r:.60}")
    for field in ("instruction_attributes", "instruction_options"):
        values = given.get(field)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise CatalogueError(f"{where}, field {field!r}: a list of strings was expected, got {values!r:.60}")
    return bool(given["instruction_attributes"])


def remove_with(owner: object, folder: Path) -> None:
    """Remove a temporary folder when an object goes, or its process ends.

    It is multiprocessing's finalizer, not weakref's: it also runs at the end of a worker process, and never in a process that was forked later and
    knows the folder too.

    Args:
        owner: The object.
        folder: The folder.
    """
    Finalize(owner, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=0)


def _keep(path: Path, values: NDArray[Any]) -> None:
    """Writes a table, readable for all like the others; a folder that cannot be written only costs time."""
    with contextlib.suppress(OSError):
        descriptor, beside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with open(descriptor, "wb") as file:
                np.save(file, values, allow_pickle=False)
            os.chmod(beside, 0o644)
            os.replace(beside, path)
        except OSError:
            os.unlink(beside)
            raise


def _load(folder: Path, name: str) -> NDArray[Any]:
    mapped: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return mapped.view(np.ndarray)  # the same memory without numpy's slow class for it
