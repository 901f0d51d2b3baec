"""The shops that the tests of this room visit: the official one, and one whose products are as odd and hostile as records can be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shop_records import HUMAN, NOTES, PRODUCTS

from agent_gym.envs.webshop import Catalogue, Shop


@pytest.fixture(scope="session")
def official(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    """The official 1,000 products."""
    return Catalogue.open(data_dir / "webshop", cache_dir=tmp_path_factory.mktemp("official"))


@pytest.fixture(scope="session")
def odd_shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop of odd products."""
    folder = tmp_path_factory.mktemp("odd")
    return Shop(Catalogue.from_records(PRODUCTS, NOTES, HUMAN, folder=folder, cache_dir=folder / "cache"))


@pytest.fixture
def write_shop(tmp_path: Path) -> Callable[..., Path]:
    """Writes the files of a shop; strings as they are, anything else as JSON."""

    def write(products: Any = PRODUCTS, notes: Any = NOTES, human: Any = HUMAN) -> Path:
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        for name, content in (("items_shuffle", products), ("items_ins_v2", notes), ("items_human_ins", human)):
            if content is not None:
                text = content if isinstance(content, str) else json.dumps(content)
                (folder / f"{name}.json").write_text(text, encoding="utf-8")
        return folder

    return write
