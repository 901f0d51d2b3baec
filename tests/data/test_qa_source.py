"""Sources of tasks: a number names the same task everywhere, files are read once, and every mistake is told with a way out."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.data.qa_source import EmbeddedSource, RowSource, open_source

ROWS = [{"_id": f"r{number}", "question": f"What is {number}?", "answer": f"word{number}"} for number in range(20)]


@given(st.integers(0, 2**53 - 1), st.sampled_from(["full", "bridge"]))
def test_a_number_names_one_generated_task_per_split(number: int, level: str) -> None:
    tasks = {split: EmbeddedSource(split, level).draw(number) for split in ("train", "validation", "test")}
    assert len({task.question for task in tasks.values()}) == 3
    assert all(task.id.endswith(f"-{split}-{number}") for split, task in tasks.items())
    assert tasks["test"] == EmbeddedSource("test", level).by_index(number)


@given(st.integers(0, 2**53 - 1))
def test_a_number_names_one_row_of_a_file(number: int) -> None:
    train, again = (open_source(ROWS, split="train") for _ in range(2))
    assert train.draw(number) == again.draw(number)


def test_numbers_reach_every_row_and_differ_between_splits() -> None:
    train, test = open_source(ROWS, split="train"), open_source(ROWS, split="test")
    assert {train.draw(number).id for number in range(400)} == {row["_id"] for row in ROWS}
    assert [train.draw(number).id for number in range(30)] != [test.draw(number).id for number in range(30)]


def test_a_file_is_read_once_per_process_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    first, second = open_source(path), open_source("rows.jsonl", data_dir=tmp_path)
    assert isinstance(first, RowSource) and isinstance(second, RowSource)
    assert first.tasks is second.tasks and first.num_tasks == 20
    path.write_text(json.dumps(ROWS[0]), encoding="utf-8")
    os.utime(path, ns=(1, 1))
    assert open_source(path).num_tasks == 1


def test_a_folder_holds_one_file_per_split(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps(ROWS[0]), encoding="utf-8")
    (tmp_path / "dev.jsonl").write_text(json.dumps(ROWS[1]), encoding="utf-8")
    assert open_source(tmp_path, split="train").by_index(0).id == "r0"
    assert open_source("official", data_dir=tmp_path, split="validation").by_index(0).id == "r1"
    with pytest.raises(FileNotFoundError, match="'test'"):
        open_source(tmp_path, split="test")


def test_mistakes_are_told_with_what_was_wanted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="full, bridge, not 'easy'"):
        open_source(level="easy")
    with pytest.raises(ValueError, match="train, validation, test, not 'dev'"):
        open_source(split="dev")
    with pytest.raises(ValueError, match=r"needs data_dir.*hotpot_train_v1\.1\.json"):
        open_source("official")
    with pytest.raises(FileNotFoundError, match="'embedded', 'official' or the path"):
        open_source(tmp_path / "absent.jsonl")
    with pytest.raises(ValueError, match="counted from 0"):
        EmbeddedSource("train").by_index(-1)
    with pytest.raises(ValueError, match="rows has 20 tasks, counted from 0"):
        open_source(ROWS).by_index(20)
