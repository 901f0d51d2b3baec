"""Which file the keywords of an environment name, and that each is read once: the same for every data set."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_gym.data.files import find_split_file, named_file, read_once
from agent_gym.data.gsm8k import open_gsm8k
from agent_gym.data.paper_tasks import open_paper_tasks
from agent_gym.data.qa_source import open_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train.jsonl", "dev.json", "own.txt"):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_dataset_is_the_official_folder_a_folder_or_a_file(folder: Path) -> None:
    def name(dataset: str | Path, split: str = "train", data_dir: str | Path | None = None) -> Path:
        return named_file(dataset, split=split, data_dir=data_dir, published="the files")

    assert name("official", data_dir=folder) == name(folder) == name(str(folder)) == folder / "train.jsonl"
    assert name(folder, "validation") == name("official", "validation", folder) == folder / "dev.json"
    assert name("own.txt", "test", folder) == name(folder / "own.txt") == folder / "own.txt", "a file is the same in every split"
    with pytest.raises(ValueError, match="needs data_dir, the folder with the files; dataset='embedded' needs nothing"):
        name("official")
    with pytest.raises(FileNotFoundError, match=r"nothing at .*none"):
        name("none", data_dir=folder)
    with pytest.raises(FileNotFoundError, match=r"no file of the split 'test'.*test\.json, test\.jsonl.*; a hint"):
        find_split_file(folder, "test", hint="; a hint")


@pytest.mark.parametrize("dataset", ["official", "folder"])
def test_a_split_of_another_name_is_the_same_mistake_in_every_data_set(dataset: str, folder: Path) -> None:
    given = "official" if dataset == "official" else folder
    every: list[Callable[..., Any]] = [open_source, open_gsm8k, open_paper_tasks]
    for opens in every:
        with pytest.raises(ValueError, match="split must be one of train, validation, test, not 'dev'"):
            opens(given, split="dev", data_dir=folder)


def test_a_file_is_read_again_when_it_or_another_that_it_is_read_with_has_changed(folder: Path) -> None:
    read: list[tuple[str, str | None]] = []

    @read_once(maxsize=8)
    def texts(path: Path, other: Path | None) -> list[str]:
        read.append((path.name, None if other is None else other.name))
        return [one.read_text() for one in (path, other) if one is not None]

    first = texts(folder / "own.txt", folder / "dev.json")
    assert texts(folder / ".." / folder.name / "own.txt", folder / "dev.json") is first, "whatever way leads there"
    assert texts(folder / "own.txt", None) == ["own.txt"] and len(read) == 2
    os.utime(folder / "dev.json", ns=(1, 1))
    assert texts(folder / "own.txt", folder / "dev.json") == first and len(read) == 3
    (folder / "own.txt").write_text("longer than before")
    assert texts(folder / "own.txt", folder / "dev.json")[0] == "longer than before" and len(read) == 4
    with pytest.raises(FileNotFoundError):
        texts(folder / "none", None)
