"""Which shop an environment opens: the generated one of the package, or official files.

The generated catalogue is written to the cache once, in the official form, and opened as official files are: there is one way in. Everything that is
opened is shared by the environments of a process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from agent_gym.envs.webshop.catalogue import Catalogue, default_cache_dir, remove_with
from agent_gym.envs.webshop.files import find_files
from agent_gym.envs.webshop.generated import LEVELS, generate
from agent_gym.envs.whole_numbers import whole_number

__all__ = ["DATA_VARIABLE", "Source", "find_source"]

DATA_VARIABLE = "AGENT_GYM_WEBSHOP_DATA"
"""The environment variable that names the folder of the official files."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the products are from.

    Attributes:
        dataset: "embedded" or "official", for info.
        level: of the generated catalogue; empty for files.
        folder: of the official files, or None.
        num_products: so many from the beginning; None for all.
        cache_dir: where tables and the generated files are kept; None for the user's cache folder.
        human: whether instructions of people are insisted on.
    """

    dataset: str
    level: str
    folder: Path | None
    num_products: int | None
    cache_dir: Path | None
    human: bool

    def open(self) -> Catalogue:
        """Open the products; the first time their tables are built.

        Returns:
            The catalogue, shared by all who open the same.

        Raises:
            ValueError: for a malformed record.
        """
        if self.folder is None:
            return _generated(self.level, self.num_products, self.cache_dir)
        return Catalogue.open(self.folder, num_products=self.num_products, cache_dir=self.cache_dir, human=self.human)


def find_source(
    dataset: str | Path | None = None,
    *,
    data_dir: str | Path | None = None,
    level: str = "full",
    num_products: int | None = None,
    cache_dir: str | Path | None = None,
    human: bool = False,
) -> Source:
    """Find the products, without reading or building anything.

    Args:
        dataset: "embedded"; "official" (needs `data_dir` or the variable `DATA_VARIABLE`); or the folder of official files. None is "official" where
            `data_dir` is given, else "embedded", whatever the variable says.
        data_dir: the folder of "official" files, and where a relative path begins.
        level: of the generated catalogue: "full" or "small".
        num_products: so many from the beginning; None for all.
        cache_dir: where tables and the generated files are kept; None for the user's cache folder.
        human: insist on instructions of people.

    Returns:
        What `Source.open` opens.

    Raises:
        FileNotFoundError: for files that are not there.
        ValueError: for keywords that cannot be used.
    """
    for name, value in (("dataset", dataset), ("data_dir", data_dir), ("cache_dir", cache_dir)):
        if value is not None and (not isinstance(value, (str, Path)) or not str(value)):
            raise ValueError(f"{name} must be a text or a path, not {value!r:.200}")
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
    if num_products is not None:
        num_products = whole_number("num_products", num_products, 1)
    cache = None if cache_dir is None else _home("cache_dir", cache_dir).absolute()
    named = str(dataset) if dataset is not None else "official" if data_dir is not None else "embedded"
    if named == "embedded":
        if data_dir is not None:
            raise ValueError(f"dataset='embedded' reads no files, and data_dir is {str(data_dir)!r}; leave one of the two out")
        return Source("embedded", level, None, num_products, cache, human)
    if named == "official":
        folder = data_dir or os.environ.get(DATA_VARIABLE)
        if not folder:
            raise FileNotFoundError(
                f"dataset='official' needs the folder of the official files: pass data_dir=, or set {DATA_VARIABLE}; "
                "dataset='embedded' is the generated catalogue of the package"
            )
    else:
        folder = _home("data_dir", data_dir or ".") / _home("dataset", named)
    folder = _home("data_dir", folder)
    if level != "full":
        raise ValueError(
            f"level={level!r} is a generated catalogue, and the files in {str(folder)!r} are to be read; leave one of the two out"
        )
    find_files(folder, num_products=num_products, human=human)
    return Source("official", "", folder.absolute(), num_products, cache, human)


def _home(name: str, given: str | Path) -> Path:
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{name} is {str(given)!r:.200}, and there is no such home folder: {error}") from None


@lru_cache(maxsize=8)
def _generated(level: str, num_products: int | None, cache_dir: Path | None) -> Catalogue:
    """The generated catalogue, from files in the cache that are named by their content."""
    made = generate(num_products, level=level)
    with tempfile.TemporaryDirectory(prefix="agent-gym-webshop-") as scratch:
        paths = made.write(scratch)
        name = sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
        kept = (default_cache_dir() if cache_dir is None else cache_dir) / f"generated-{level}-{name}"
        with suppress(OSError):  # another process was faster, or the cache cannot be written
            if not _holds(kept, paths):
                kept.parent.mkdir(parents=True, exist_ok=True)
                beside = Path(tempfile.mkdtemp(dir=kept.parent, prefix=f".{kept.name}-"))
                try:
                    for path in paths:
                        shutil.copy(path, beside)
                    if kept.exists():  # what somebody damaged
                        kept.rename(beside / "damaged")
                    beside.chmod(0o755)
                    beside.rename(kept)
                    shutil.rmtree(kept / "damaged", ignore_errors=True)
                finally:
                    shutil.rmtree(beside, ignore_errors=True)
        if _holds(kept, paths):
            return Catalogue.open(kept, cache_dir=cache_dir)
        lasting = Path(tempfile.mkdtemp(prefix="agent-gym-webshop-"))
        try:
            for path in paths:
                shutil.copy(path, lasting)
            catalogue = Catalogue.open(lasting, cache_dir=cache_dir)
        except BaseException:
            shutil.rmtree(lasting, ignore_errors=True)
            raise
        remove_with(catalogue, lasting)
        return catalogue


def _holds(folder: Path, paths: tuple[Path, ...]) -> bool:
    """Whether a folder holds these files, whole."""
    try:
        return all((folder / path.name).read_bytes() == path.read_bytes() for path in paths)
    except OSError:
        return False
