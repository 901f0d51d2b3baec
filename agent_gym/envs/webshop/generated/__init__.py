"""The catalogue that comes with the package: made here, in the schema of the official files, a pure function of a seed.

The official products are other people's texts, so none of them is shipped. What is made instead has the same shape: five categories, sixty-odd kinds of
products (`words`), attributes, options and prices in the official proportions (`product`), and every oddity of the official records that an engine has to
survive (`oddities`). Product number i depends on the seed and on i alone: a catalogue of 200 products is the beginning of one of 1,000.

`level="small"` is another catalogue (`small`), for models of a few hundred thousand parameters; `large` writes one of a million products for benchmarks.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_gym.envs.webshop.generated.oddities import oddity_of
from agent_gym.envs.webshop.generated.product import Draw, Record, add_texts, code_of, finish_product, start_product
from agent_gym.envs.webshop.generated.small import small_catalogue

__all__ = ["DEFAULT_SIZES", "LEVELS", "GeneratedCatalogue", "generate"]

LEVELS = ("full", "small")
DEFAULT_SIZES = {"full": 1000, "small": 96}


@dataclass(frozen=True, slots=True)
class GeneratedCatalogue:
    """What the three official files hold.

    Attributes:
        products: of items_shuffle*.json, one object for each product.
        notes: of items_ins_v2*.json, by asin: `attributes` and, for the goals, `instruction` and `instruction_attributes`.
        human: of items_human_ins.json, by asin: instructions as people might write them. There are no worker ids.
    """

    products: list[dict[str, Any]]
    notes: dict[str, dict[str, Any]]
    human: dict[str, list[dict[str, Any]]]

    def write(self, folder: str | Path) -> tuple[Path, Path, Path]:
        """Write the files under their official names.

        Args:
            folder: where to; made if need be.

        Returns:
            The paths of the products, the notes and the human instructions.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        size = len(self.products)
        files: dict[str, Any] = {
            f"items_shuffle_{size}.json": self.products,
            f"items_ins_v2_{size}.json": self.notes,
            "items_human_ins.json": self.human,
        }
        for name, content in files.items():
            (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8", newline="\n")
        products, notes, human = (folder / name for name in files)
        return products, notes, human


def generate(size: int | None = None, *, seed: int = 0, level: str = "full") -> GeneratedCatalogue:
    """Make a catalogue.

    Args:
        size: how many products; None for 1,000, or 96 at the small level (which has at most 100).
        seed: which catalogue.
        level: "full", or "small" for tiny models.

    Returns:
        Products, notes and human instructions.

    Raises:
        ValueError: for an unknown level, a negative seed or a size out of range.
    """
    if level not in LEVELS:
        raise ValueError(f"the generated catalogue has the levels {', '.join(LEVELS)}, not {level!r}")
    size = DEFAULT_SIZES[level] if size is None else size
    if size < 1 or seed < 0:
        raise ValueError(f"a generated catalogue needs at least one product and a seed that is not negative, not size={size}, seed={seed}")
    if level == "small":
        return GeneratedCatalogue(*small_catalogue(size, seed))
    records = [_record(index, seed) for index in range(size)]
    return GeneratedCatalogue(
        [record.product for record in records],
        {record.product["asin"]: record.note for record in records},
        {record.product["asin"]: record.asked for record in records if record.asked},
    )


def _record(index: int, seed: int) -> Record:
    draw = Draw(f"webshop/{seed}/{index}")
    oddity = oddity_of(index)
    making = start_product(draw, index, always_known=oddity is not None)
    add_texts(making)
    if oddity is not None:
        making.needs_goals = True
        oddity(making)
    return finish_product(making, code_of(index, seed))
