"""The files of tasks that an environment's keywords name: where they lie, which one is a split's, and reading each once per process.

`dataset` and `data_dir` mean the same everywhere, so they are read here alone: "official" is the folder of the published files, anything else the path
of a file, or of a folder with one file per split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

__all__ = ["SPLIT_FILES", "find_split_file", "named_file", "read_once"]

SPLIT_FILES: Mapping[str, tuple[str, ...]] = {
    "train": ("hotpot_train_v1.1", "musique_ans_v1.0_train", "train"),
    "validation": ("hotpot_dev_distractor_v1", "musique_ans_v1.0_dev", "validation", "valid", "dev", "hotpot_dev_fullwiki_v1"),
    "test": ("test", "hotpot_test_distractor_v1", "hotpot_test_fullwiki_v1"),
}
"""Split -> names of its file without their endings, the one that is looked for first at the head."""

_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")


def find_split_file(folder: str | Path, split: str, stems: Mapping[str, Sequence[str]] = SPLIT_FILES, *, hint: str = "") -> Path:
    """Find the file of a split in a folder, by the names that a data set gives its files.

    Args:
        folder: with the files.
        split: a key of `stems`.
        stems: split -> names without endings, the one that is looked for first at the head; .json, .jsonl and .parquet are tried.
        hint: ends the text of the error of a missing file.

    Returns:
        The path.

    Raises:
        FileNotFoundError: if the folder is missing or holds no such file; the text says which names were tried.
        ValueError: if the split has another name.
    """
    if split not in stems:
        raise ValueError(f"split must be one of {', '.join(stems)}, not {split!r}")
    base = Path(folder)
    names = [f"{stem}{ending}" for stem in stems[split] for ending in (".json", ".jsonl", ".parquet")]
    for name in names:
        if (base / name).is_file():
            return base / name
    raise FileNotFoundError(f"no file of the split {split!r} in {str(base)!r}; one of these is wanted: {', '.join(names)}{hint}")


def named_file(
    dataset: str | Path,
    *,
    split: str,
    data_dir: str | Path | None,
    published: str,
    stems: Mapping[str, Sequence[str]] = SPLIT_FILES,
    hint: str = "",
) -> Path:
    """Find the file that the keywords of an environment name.

    Args:
        dataset: "official" (the published files, in `data_dir`), or the path of a file or of a folder with one file per split.
        split: "train", "validation" or "test". A single file is the same in every split.
        data_dir: where "official" files lie and relative paths begin.
        published: what "official" files are and where to get them, for the error.
        stems: as for `find_split_file`.
        hint: as for `find_split_file`.

    Returns:
        The path.

    Raises:
        FileNotFoundError: if there is no such file, or none of the split.
        ValueError: for "official" without `data_dir`, or a split of another name.
    """
    if str(dataset) == "official":
        if data_dir is None:
            raise ValueError(f"dataset='official' needs data_dir, the folder with {published}; dataset='embedded' needs nothing")
        path = Path(data_dir)
    else:
        path = Path(data_dir or "") / Path(dataset)
        if not path.exists():
            raise FileNotFoundError(
                f"dataset must be 'embedded', 'official' or the path of a file or folder, and there is nothing at {str(path)!r}"
            )
        if not path.is_dir():
            return path
    return find_split_file(path, split, stems, hint=hint)


def read_once(maxsize: int) -> Callable[[Callable[_Given, _Read]], Callable[_Given, _Read]]:
    """Make a reader of files that reads each once per process until it changes, so that environments share what is read.

    A file has changed when its time of change or its size has.

    Args:
        maxsize: how many results are kept.

    Returns:
        A decorator of functions whose arguments are hashable; every `Path` among the positional ones is a file or folder that is there.
    """

    def decorate(read: Callable[_Given, _Read]) -> Callable[_Given, _Read]:
        reader: Callable[..., _Read] = read

        @lru_cache(maxsize=maxsize)
        def kept(facts: tuple[tuple[int, int], ...], *arguments: Any, **settings: Any) -> _Read:
            return reader(*arguments, **settings)

        @wraps(read)
        def once(*arguments: _Given.args, **settings: _Given.kwargs) -> _Read:
            given = [one.resolve() if isinstance(one, Path) else one for one in arguments]
            stats = [one.stat() for one in given if isinstance(one, Path)]
            named: dict[str, Any] = dict(settings)
            return kept(tuple((one.st_mtime_ns, one.st_size) for one in stats), *given, **named)

        return once

    return decorate
