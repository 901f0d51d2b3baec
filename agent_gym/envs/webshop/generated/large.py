"""A catalogue of a million products, for benchmarks of everything that must not grow with it.

It is written to disk product by product, in the official form, and never held in memory. Lengths follow the official files: titles of 18 words in the
mean, no description for three products in ten and 113 words for the others, four or five features of 25 words, options for two products in five, a price
range for one in eleven. The words are drawn by Zipf's law from 150,000; the most frequent are those of `words`, the others are invented, so
search has long and short posting lists as over real text. Attributes, instructions and human instructions come in the official proportions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from agent_gym.envs.webshop.generated import words
from agent_gym.envs.webshop.generated.product import Draw, Record, code_of, finish_product, start_product

__all__ = ["LARGE_SIZE", "VOCABULARY_SIZE", "generate_large", "large_products", "vocabulary"]

LARGE_SIZE = 1_180_000
VOCABULARY_SIZE = 150_000
_BLOCK = 1000  # products whose words are drawn at once
_STARTS = (
    "b",
    "br",
    "c",
    "ch",
    "d",
    "dr",
    "f",
    "fl",
    "g",
    "gr",
    "h",
    "j",
    "k",
    "l",
    "m",
    "n",
    "p",
    "pr",
    "r",
    "s",
    "sh",
    "st",
    "t",
    "tr",
    "v",
    "w",
    "z",
)
_VOWELS = ("a", "e", "i", "o", "u", "ea", "io")
_ENDS = ("", "l", "m", "n", "r", "s", "t", "ng")
_TITLE_START = 7  # words of a title that say what it is; drawn words follow
_FLATTENING = 12.0  # of Zipf's law: the most frequent word is one in about a hundred and twenty

Progress = Callable[[int, int], None]


def generate_large(
    folder: str | Path, n: int = LARGE_SIZE, *, seed: int = 0, progress: Progress | None = None, progress_every: int = 10_000
) -> tuple[Path, Path, Path]:
    """Write a large catalogue: items_shuffle.json, items_ins_v2.json and items_human_ins.json, some 2.3 KB a product.

    Args:
        folder: where to; made if need be.
        n: how many products.
        seed: which catalogue; a shorter one of the same seed is its beginning.
        progress: called as (products written, n).
        progress_every: products between two calls.

    Returns:
        The paths of the three files.

    Raises:
        ValueError: if `n` is not positive.
    """
    if n < 1:
        raise ValueError(f"a large catalogue needs at least one product, not n={n}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    items, notes, human = (folder / name for name in ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"))
    with _open(items) as items_file, _open(notes) as notes_file, _open(human) as human_file:
        items_file.write("[\n")
        notes_file.write("{\n")
        human_file.write("{\n")
        asked_before = False
        for number, (product, note, asked) in enumerate(large_products(n, seed=seed), start=1):
            comma = ",\n" if number > 1 else ""
            items_file.write(comma + json.dumps(product, ensure_ascii=False))
            notes_file.write(f"{comma}{json.dumps(product['asin'])}: {json.dumps(note, ensure_ascii=False)}")
            if asked:
                human_file.write(f"{',' if asked_before else ''}\n{json.dumps(product['asin'])}: {json.dumps(asked, ensure_ascii=False)}")
                asked_before = True
            if progress is not None and (number % progress_every == 0 or number == n):
                progress(number, n)
        items_file.write("\n]\n")
        notes_file.write("\n}\n")
        human_file.write("\n}\n")
    return items, notes, human


def large_products(n: int = LARGE_SIZE, *, seed: int = 0) -> Iterator[Record]:
    """Make the products of a large catalogue one after the other.

    Args:
        n: how many.
        seed: which catalogue.

    Yields:
        A product, its note, and what people ask for it (usually nothing).
    """
    listed = np.array(vocabulary(), dtype=object)
    shares = 1.0 / (np.arange(len(listed)) + _FLATTENING)
    bounds = np.cumsum(shares)
    bounds /= bounds[-1]
    draw = Draw(f"webshop large/{seed}")
    for start in range(0, n, _BLOCK):
        rng = np.random.default_rng(np.random.SeedSequence([seed, start]))
        titles = np.clip(rng.normal(11.0, 7.0, _BLOCK), 0, 34).astype(int)
        descriptions = np.where(rng.random(_BLOCK) < 0.3, 0, np.clip(rng.lognormal(4.41, 0.8, _BLOCK), 3, 2300)).astype(int)
        features = rng.choice((1, 4, 4, 5, 5, 5, 5, 5, 6, 7), _BLOCK)
        bullets = np.clip(rng.lognormal(2.98, 0.75, int(features.sum())), 1, 450).astype(int)
        total = int(titles.sum() + descriptions.sum() + bullets.sum())
        text = iter(listed[np.searchsorted(bounds, rng.random(total), side="right")].tolist())
        lengths = iter(bullets.tolist())
        for offset in range(min(_BLOCK, n - start)):
            name = " ".join(islice(text, int(titles[offset])))
            description = " ".join(islice(text, int(descriptions[offset])))
            points = [" ".join(islice(text, next(lengths))) for _ in range(features[offset])]
            yield _record(draw, start + offset, seed, name, description, points)


def vocabulary() -> list[str]:
    """Return the 150,000 different words of large catalogues, the most frequent first.

    Returns:
        Words in small letters; the same in every process.
    """
    written = " ".join(
        [*words.SENTENCES, *(part for kind in words.KINDS for role in (kind.before, kind.having, kind.fitting, kind.uses) for part in role)]
    )
    known = dict.fromkeys(re.findall(r"[a-z]{2,}", re.sub(r"\{\w+\}", "", written.lower())))
    syllables = [start + vowel + end for start in _STARTS for vowel in _VOWELS for end in _ENDS]
    for number in range(VOCABULARY_SIZE * 2):  # the stride spreads neighbours over the alphabet
        if len(known) == VOCABULARY_SIZE:
            break
        mixed = number * 1_000_003 % len(syllables) ** 2
        known[syllables[mixed % len(syllables)] + syllables[mixed // len(syllables)]] = None
    return list(known)


def _record(draw: Draw, index: int, seed: int, name: str, description: str, points: list[str]) -> Record:
    """Put a product together: its kind gives it brand, noun, attributes, options and price, the drawn words everything else."""
    making = start_product(draw, index)
    making.title = " ".join([*making.title.split()[:_TITLE_START], name]).rstrip()
    making.description = description
    making.bullets = points
    return finish_product(making, code_of(index, seed), with_instruction=0.48, with_human=0.011)


def _open(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="\n")
