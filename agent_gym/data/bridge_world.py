"""The easy level of the embedded HotpotQA world: short bridge questions over two or three one-token entities.

Every task is a world of its own. Eight people stand in a ring, each works for the next one, and there is a page of one sentence for each.
"Who is the boss of the boss of Doro?" needs two pages, one after the other, since each names only the next person. Because the ring is a
permutation, whoever stops early, repeats the question or names anyone in it is always wrong, and a constant answer is right no more
often than one name in the pool.

The splits share no person: the names of "train", "validation" and "test" come from three disjoint pools, so a policy that is measured on
"test" must copy names that it has never seen. Each name is one token of the default tokenizer, the same one in every context.

A row is a pure function of the split and the seed, in the official HotpotQA layout (Yang et al. 2018, arXiv 1809.09600).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["PEOPLE", "SPLITS", "boss_of", "bridge_row", "hop_titles", "page", "question", "questions_and_pages"]

SPLITS = ("train", "validation", "test")
RING_SIZE = 8
HOPS = (2, 3)
_PAGE = re.compile(r"\w+ works for (\w+)\.")
_DOMAIN = 0x62726467  # sets these draws apart from every other use of the same seed

_PEOPLE_NAMES = (
    "Nendo Davo Zera Sonor Doro Kando Kaven Bremel Pano Therlira Nolmok Medor Dilvano Nona Fodil Dimok Dirla Cilmen Rilora "
    "Pemano Cenan Kondano Delmek Brivira Brirdok Reva Helor Bodar Mavira Briman Zalmek Rondo Vorel Firo Bemok Thanel Thovar "
    "Pirlo Folmano Vinan Firano Hazelo Pelelo Marelo Pevor Brilel Kolel Zova Birlar Jilmok Palo Kozil Jolano Pamek Jodira "
    "Nandora Radin Gavora Govan Brela Ferdel Jarel Memar Brovo Polvira Zevelo Thavin Gomo Nomo Kero Fola Tilvelo Brolvor Zizora "
    "Gomek Tinor Sazen Fevan Lelmor Forlin Kerdelo Rirdel Pinok Bilmora Bomelo Thilva Fema Lirin Lerdar Relvano Naro Honar Bara "
    "Thenar Folil Broran Cemin Ladel Milvel Molvin Lilar Calelo Volven Jemel Govo Ganar Sera Rilen Codin Lolar Pimor Cizok "
    "Hamek Dorelo Jelva Dinan Randa Mila Trendil Venan Colvan Zala Bavok Berlar Bonelo Bralva Kelora Vonano Maza Themar Melano "
    "Coro Jonelo Molmora Fena Vanora Jena Givan Thimok Korlek Belano Tonan Sindil Filil Nomel Birok Donda Poro Laren Gerira "
    "Sandel Dardora Cedano Sinen Lindor Mondo Henel Zolora Nordan Hinil Kirel Bondira Zendar Narlar Trivelo Zenar Silan Corlano "
    "Bandelo Tolo Kevelo Fono Belo Merelo Sama Mendar Kalen Timor Vela Sira Jorda Koril Bilva Jozen Jelmor Limano Thelano Savek "
    "Celan Sarin Romo Demel Horen Rimora Hala Lavira Fendok Mono Vevora Jivano "
)


def _pools(text: str, sizes: Sequence[int]) -> dict[str, tuple[str, ...]]:
    """Cut a list of names into one pool per split."""
    listed = text.split()
    bounds = np.cumsum([0, *sizes])
    return {split: tuple(listed[bounds[i] : bounds[i + 1]]) for i, split in enumerate(SPLITS)}


PEOPLE = _pools(_PEOPLE_NAMES, (128, 24, 48))


def _generator(split: str, seed: int) -> np.random.Generator:
    if split not in SPLITS:
        raise ValueError(f"the bridge world has the splits {', '.join(SPLITS)}, not {split!r}")
    if seed < 0:
        raise ValueError(f"a seed is a non-negative integer, not {seed}")
    return np.random.default_rng(np.random.SeedSequence([_DOMAIN, SPLITS.index(split), int(seed)]))


def page(person: str, boss: str) -> list[str]:
    """Return the one sentence of a person's page.

    Args:
        person: a name, the page's title.
        boss: another name.

    Returns:
        A list of one sentence.
    """
    return [f"{person} works for {boss}."]


def question(person: str, hops: int) -> str:
    """Return the question whose answer stands on the last of `hops` pages, `person`'s own page being the first.

    Args:
        person: whom the question names.
        hops: pages that lead to the answer, at least 1.

    Returns:
        The question.
    """
    return f"Who is {'the boss of ' * hops}{person}?"


def bridge_row(split: str, seed: int) -> dict[str, Any]:
    """Return one task in the official HotpotQA row layout.

    Args:
        split: "train", "validation" or "test".
        seed: a non-negative integer; the row is a pure function of it and the split.

    Returns:
        A dictionary with the keys `_id`, `question`, `answer`, `type` ("bridge"), `level` ("easy" for two hops, "medium" for three),
        `supporting_facts` (`[title, sentence index]` in hop order) and `context` (`[title, sentences]` for each page).

    Raises:
        ValueError: if the split is unknown or the seed negative.
    """
    rng = _generator(split, seed)
    people = [str(name) for name in rng.choice(PEOPLE[split], RING_SIZE, replace=False)]
    hops = int(rng.choice(HOPS))
    start = int(rng.integers(RING_SIZE))
    chain = [(start + step) % RING_SIZE for step in range(hops + 1)]
    order = rng.permutation(RING_SIZE)
    return {
        "_id": f"bridge-{split}-{seed}",
        "question": question(people[start], hops),
        "answer": people[chain[-1]],
        "type": "bridge",
        "level": "easy" if hops == 2 else "medium",
        "supporting_facts": [[people[i], 0] for i in chain[:-1]],
        "context": [[people[i], page(people[i], people[(i + 1) % RING_SIZE])] for i in order],
    }


def hop_titles(row: dict[str, Any]) -> list[str]:
    """Return the titles of the pages to read, in the order in which the question leads through them.

    Args:
        row: of this world, with its `supporting_facts`.

    Returns:
        Titles, each once.
    """
    return list(dict.fromkeys(title for title, _ in row["supporting_facts"]))


def boss_of(text: str) -> str:
    """Return the person that a page names: what somebody who stops reading there would answer.

    Args:
        text: the page.

    Returns:
        The name.

    Raises:
        ValueError: if the text is no page of this world.
    """
    found = _PAGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"not a page of the bridge world: {text[:80]!r}")
    return found.group(1)


def questions_and_pages() -> list[str]:
    """Return the texts around the names, for building and checking a tokenizer: each page and question form with a name.

    Returns:
        The texts.
    """
    person, boss = PEOPLE["train"][:2]
    return [question(person, hops) for hops in HOPS] + [" ".join(page(person, boss))]
