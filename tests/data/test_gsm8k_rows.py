"""Rows of GSM8K: the official layout, the sample schema, what is refused and how it is told, and the generated problems in the same layout."""

from __future__ import annotations

import json
import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import require
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.data.gsm8k import gsm8k_task, load_gsm8k, open_gsm8k
from agent_gym.data.gsm8k_world import PEOPLE, SPLITS, gsm8k_row
from agent_gym.tools.calculator import evaluate
from agent_gym.tools.numbers import find_number

OFFICIAL = {
    "question": "A pen costs $1.50. How many dollars do 1,200 pens cost?",
    "answer": "One costs 1.50.\nAll cost 1200 * 1.50 = $<<1200*1.50=1800>>1,800.\n#### 1,800",
}
SAMPLE = {
    "data_source": "own",
    "agent_name": "agent_env_loop",
    "prompt": [{"role": "system", "content": "End with ####."}, {"role": "user", "content": "How many?"}],
    "reward_model": {"style": "rule", "ground_truth": "18"},
    "extra_info": {"split": "test", "index": 4, "answer": "<<9*2=18>>18\n#### 18", "question": "How many?"},
    "env_kwargs": "{}",
}


def test_an_official_row_is_read_as_it_is() -> None:
    task = gsm8k_task({**OFFICIAL, "id": "p1"})
    assert (task["id"], task["question"], task["answer"]) == ("p1", OFFICIAL["question"], ["1,800"])
    assert task["solution"] == OFFICIAL["answer"]
    assert task["plan"] == [{"name": "calculator", "arguments": {"expression": "1200*1.50"}, "result": "1800"}]


@pytest.mark.parametrize(
    ("answer", "accepted"), [("18", ["18"]), (18, ["18"]), (18.0, ["18"]), ("$1,800", ["$1,800"]), (["18", 19], ["18", "19"])]
)
def test_an_answer_may_be_the_number_alone(answer: Any, accepted: list[str]) -> None:
    task = gsm8k_task({"question": "How many?", "answer": answer})
    assert task["answer"] == accepted and task["plan"] == [] and task["solution"] == ""


def test_a_sample_row_brings_its_prompt_and_its_solution() -> None:
    task = gsm8k_task(SAMPLE)
    assert (task["id"], task["answer"], task["prompt"]) == ("test-4", ["18"], SAMPLE["prompt"])
    assert [step["result"] for step in task["plan"]] == ["18"]
    bare = gsm8k_task({"prompt": "How many?", "reward_model": {"ground_truth": {"target": [3]}}}, where="f line 2")
    assert (bare["id"], bare["prompt"], bare["answer"], bare["plan"]) == ("f line 2", "How many?", ["3"], [])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": "#### 1"}, "'question' is missing"),
        ({"question": "How?"}, "'answer' is missing"),
        ({"question": "", "answer": "#### 1"}, "field 'question'"),
        ({"question": 5, "answer": "#### 1"}, "field 'question'"),
        ({"question": "How?", "answer": "She sells 9 eggs."}, "field 'answer' must be a number"),
        ({"question": "How?", "answer": "#### nine"}, "field 'answer' must be a number"),
        ({"question": "How?", "answer": "3/4"}, "field 'answer'"),
        ({"question": "How?", "answer": []}, "field 'answer' is empty"),
        ({"question": "How?", "answer": {"a": 1}}, "field 'answer'"),
        ({**SAMPLE, "reward_model": {"style": "rule"}}, "'reward_model.ground_truth' is empty"),
        ({**SAMPLE, "reward_model": {"ground_truth": "many"}}, "'reward_model.ground_truth' must be a number"),
        ({**SAMPLE, "extra_info": {}, "prompt": [{"role": "system", "content": "x"}]}, "field 'prompt'"),
        ([], "must be an object"),
    ],
)
def test_a_malformed_row_is_told_with_file_row_and_field(row: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"rows\.jsonl line 3: .*" + re.escape(message)):
        gsm8k_task(row, where="rows.jsonl line 3")


def test_marks_that_our_calculator_does_not_read_are_left_out_of_the_plan() -> None:
    solution = "<<5%*20=1>> <<x=3>> <<=4>> <<2*3=6>> <<2+2 <<9-1=8>>\n#### 6"
    assert [step["result"] for step in gsm8k_task({"question": "How?", "answer": solution})["plan"]] == ["6", "8"]


def test_files_are_found_by_split_and_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs data_dir.*train\.jsonl"):
        open_gsm8k("official", split="train")
    (tmp_path / "train.jsonl").write_text(json.dumps(OFFICIAL) + "\n", encoding="utf-8")
    (tmp_path / "test.jsonl").write_text(f"{json.dumps(OFFICIAL)}\n\n{json.dumps({**OFFICIAL, 'answer': '#### 3'})}\n", encoding="utf-8")
    assert [len(open_gsm8k("official", split=split, data_dir=tmp_path)[1]) for split in ("train", "test")] == [1, 2]
    assert open_gsm8k(tmp_path, split="test")[0] == "test.jsonl"
    with pytest.raises(FileNotFoundError, match=r"validation.*GSM8K itself has no validation set"):
        open_gsm8k("official", split="validation", data_dir=tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing at"):
        open_gsm8k("no.jsonl", split="train", data_dir=tmp_path)
    first, second = open_gsm8k("test.jsonl", split="train", data_dir=tmp_path), open_gsm8k(tmp_path / "test.jsonl", split="test")
    assert first[1] is second[1], "a file is read once per process"
    (tmp_path / "bad.jsonl").write_text(json.dumps(OFFICIAL) + '\n{"question": "How?", "answer": "many"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.jsonl line 2: field 'answer'"):
        load_gsm8k(tmp_path / "bad.jsonl")
    (tmp_path / "none.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no row"):
        load_gsm8k(tmp_path / "none.jsonl")


def test_the_real_rows_are_read_and_their_marks_worked_out(data_dir: Path) -> None:
    tasks = load_gsm8k(data_dir / "gsm8k" / "test.jsonl")
    raw = [json.loads(line) for line in (data_dir / "gsm8k" / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(tasks) == len(raw)
    for task, row in zip(tasks, raw, strict=True):
        behind = row["answer"].rpartition("####")[2].strip().replace(",", "")
        assert find_number(task["answer"][0]) == Decimal(behind)
        marks = re.findall(r"<<(.*?)=(.*?)>>", row["answer"])
        assert len(task["plan"]) == len(marks)
        assert all(
            evaluate(step["arguments"]["expression"]) == Fraction(mark[1].replace(",", ""))
            for step, mark in zip(task["plan"], marks, strict=True)
        )


@pytest.mark.parametrize("name", ["rows_agent_r1.jsonl", "rows_agent_r1.parquet"])
def test_the_real_sample_rows_are_read(name: str, data_dir: Path) -> None:
    if name.endswith("parquet"):
        require("pyarrow")
    tasks = load_gsm8k(data_dir / "gsm8k" / name)
    assert len(tasks) == 20 and len({task["id"] for task in tasks}) == 20
    assert all(task["plan"] and task["prompt"] and find_number(task["answer"][0]) is not None for task in tasks)


# ------------------------------------------------------------------------------------------------ generated problems

N = 800


@cache
def rows(split: str) -> list[dict[str, Any]]:
    return [gsm8k_row(split, number) for number in range(N)]


@pytest.mark.parametrize("split", SPLITS)
def test_a_generated_row_has_the_official_layout_and_its_sums_are_right(split: str) -> None:
    for row in rows(split):
        assert set(row) == {"id", "question", "answer"}
        *lines, last = row["answer"].splitlines()
        assert 3 <= len(lines) <= 5 and re.fullmatch(r"#### [1-9]\d{0,2}(,\d{3})*", last), row
        for line in lines:
            ((shown, marked, value, again),) = re.findall(r"([\d. *+/()-]+) = <<([\d.*+/()-]+)=([\d.]+)>>([\d.]+) ", line)
            assert shown.replace(" ", "") == marked and value == again and evaluate(marked) == Fraction(value), line
        assert Fraction(value) == Fraction(last[5:].replace(",", ""))
        task = gsm8k_task(row)
        assert [step["result"] for step in task["plan"]][-1] == last[5:].replace(",", "")
        assert row["question"].endswith("?") and "{" not in row["question"] and row["question"][0].isupper()


def test_a_solution_uses_only_numbers_of_its_question_and_results_of_its_own() -> None:
    """So that a problem can be solved by who reads it: of the numbers in a sum, at most small ones are not in the question or above."""
    for row in rows("train"):
        known = {number.replace(",", "") for number in re.findall(r"\d[\d,.]*\d|\d", row["question"])}
        for expression, value in re.findall(r"<<(.*?)=(.*?)>>", row["answer"]):
            for number in re.findall(r"\d+(?:\.\d+)?", expression):
                assert number in known or Fraction(number) <= 100, (row, number)
            known.add(value)


def test_the_splits_share_no_person_and_no_question() -> None:
    assert not any(set(PEOPLE[one]) & set(PEOPLE[other]) for one in SPLITS for other in SPLITS if one != other)
    for split in SPLITS:
        for row in rows(split):
            words = set(re.findall(r"[A-Z][a-z]+", row["question"]))
            assert words & set(PEOPLE[split]), row["question"]
            assert not any(words & set(PEOPLE[other]) for other in SPLITS if other != split)
    questions = [row["question"] for split in SPLITS for row in rows(split)]
    assert len(set(questions)) == len(questions)


@pytest.mark.parametrize("split", SPLITS)
def test_no_constant_answer_and_no_number_of_the_question_wins_much(split: str) -> None:
    answers = Counter(row["answer"].rpartition("#### ")[2] for row in rows(split))
    assert answers.most_common(1)[0][1] / N < 0.03
    echoed = [row for row in rows(split) if row["answer"].rpartition("#### ")[2].replace(",", "") in re.findall(r"\d+", row["question"])]
    assert len(echoed) / N < 0.08


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SPLITS), st.integers(0, 2**53 - 1))
def test_a_row_is_a_function_of_split_and_number(split: str, number: int) -> None:
    row = gsm8k_row(split, number)
    assert row == gsm8k_row(split, number) and row["id"] == f"gsm8k-{split}-{number}"
    assert gsm8k_task(row)["plan"]


def test_an_unknown_split_and_a_negative_number_are_refused() -> None:
    with pytest.raises(ValueError, match="train, validation, test, not 'dev'"):
        gsm8k_row("dev", 0)
    with pytest.raises(ValueError, match="non-negative"):
        gsm8k_row("train", -1)
