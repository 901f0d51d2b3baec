"""Finding the shop's official files in a folder, and naming their content.

`find_files` looks before anything is read, so that a missing file is told at once. `cached_key` names what the files hold: a hash of their
content, which is remembered under the files' paths, sizes and times, since hashing five gigabytes at every start would take longer than
the start may.
"""

from __future__ import annotations

import contextlib
import json
import os
from hashlib import file_digest, sha256
from pathlib import Path
from typing import NamedTuple

from agent_gym.search.analysis import ANALYZER_VERSION

__all__ = ["FORMAT_VERSION", "ShopFiles", "cached_key", "find_files"]

FORMAT_VERSION = 1
"""Changes whenever the tables in the cache do."""

_ITEMS, _NOTES, _HUMAN = "items_shuffle", "items_ins_v2", "items_human_ins.json"
_WANTED = (
    "Wanted are the files of the WebShop project (github.com/princeton-nlp/WebShop, its setup.sh names the downloads): "
    "items_shuffle*.json, items_ins_v2*.json and, for human goals, items_human_ins.json. Name their folder by data_dir, or by "
    "AGENT_GYM_WEBSHOP_DATA with dataset='official'; dataset='embedded' is the built-in generated catalogue"
)


class ShopFiles(NamedTuple):
    """The files of a shop, as absolute paths.

    Attributes:
        items: The products.
        notes: Their attributes and synthetic instructions.
        human: The instructions of people, or None.
    """

    items: Path
    notes: Path
    human: Path | None


def find_files(data_dir: str | Path, *, num_products: int | None = None, human: bool = False) -> ShopFiles:
    """Finds the files in a folder.

    Args:
        data_dir: The folder.
        num_products: Where there are several product files, the one named by this number is taken, else the one without a number.
        human: Insist on the instructions of people.

    Returns:
        The product file, the attribute file, and the human instructions where they are there.

    Raises:
        FileNotFoundError: Naming what is missing and what to do.
    """
    folder = Path(data_dir).expanduser().absolute()
    if not folder.is_dir():
        raise FileNotFoundError(f"WebShop data not found: there is no folder {folder}. {_WANTED}")
    items = _choose(folder, _ITEMS, num_products)
    notes = folder / items.name.replace(_ITEMS, _NOTES, 1)
    if not notes.is_file():
        notes = _choose(folder, _NOTES, num_products)
    people = folder / _HUMAN
    if human and not people.is_file():
        raise FileNotFoundError(f"WebShop data not found: {people} is missing, but human goals were asked for. {_WANTED}")
    return ShopFiles(items, notes, people if people.is_file() else None)


def _choose(folder: Path, stem: str, num_products: int | None) -> Path:
    found = sorted(path for path in folder.glob(f"{stem}*.json") if path.is_file())
    if len(found) == 1:
        return found[0]
    if not found:
        raise FileNotFoundError(f"WebShop data not found: there is no {stem}*.json in {folder}. {_WANTED}")
    for name in (f"{stem}_{num_products}.json", f"{stem}.json"):
        if folder / name in found:
            return folder / name
    names = ", ".join(path.name for path in found)
    raise FileNotFoundError(f"WebShop data: {folder} holds several files {stem}*.json ({names}); keep one, or choose by num_products")


def cached_key(files: ShopFiles, num_products: int | None, cache_dir: Path) -> str:
    """A hash of the files' content and of `num_products`; 32 hexadecimal digits.

    Args:
        files: The files.
        num_products: As in `Catalogue.open`.
        cache_dir: Where the hash is remembered.

    Returns:
        A text that fits into a file name.
    """
    paths = [path for path in files if path is not None]
    stats = [os.stat(path) for path in paths]
    state = [[str(path), stat.st_size, stat.st_mtime_ns, stat.st_ino] for path, stat in zip(paths, stats, strict=True)]
    note = cache_dir / f"seen-{sha256(json.dumps([state, num_products, FORMAT_VERSION, ANALYZER_VERSION]).encode()).hexdigest()[:32]}"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        key = note.read_text(encoding="ascii")
        if len(key) == 32 and set(key) <= set("0123456789abcdef"):
            return key
    digest = sha256(json.dumps([num_products, FORMAT_VERSION, ANALYZER_VERSION, files.human is not None]).encode())
    for path in paths:
        with path.open("rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    key = digest.hexdigest()[:32]
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        cache_dir.mkdir(parents=True, exist_ok=True)
        note.write_text(key, encoding="ascii")
    return key
