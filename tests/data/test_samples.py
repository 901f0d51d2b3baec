"""The sample schema: one meaning for the many ways in which files write it, and errors that name file, row and field."""

import builtins
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import require
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.data.samples import (
    Sample,
    accepted_answers,
    drop_none,
    json_object,
    parse_sample,
    read_rows,
    read_samples,
    sample_row,
    write_rows,
)

ROW: dict[str, Any] = {
    "data_source": "made/up",
    "agent_name": "agent_env_loop",
    "prompt": [{"role": "system", "content": "Answer."}, {"role": "user", "content": "Who built the Ovrun bridge?"}],
    "ability": "qa",
    "reward_model": {"style": "rule", "ground_truth": "Mila Sond", "weight": 2},
    "extra_info": {"index": 3},
    "env_kwargs": '{"env_type": "tool", "limit": null}',
    "colour": "green",
}


def test_a_full_row_is_read_field_by_field() -> None:
    sample = parse_sample(ROW, where="x.jsonl line 1")
    assert sample.question == "Who built the Ovrun bridge?"
    assert sample.answers == ("Mila Sond",)
    assert (sample.style, sample.agent_name, sample.ability, sample.data_source) == ("rule", "agent_env_loop", "qa", "made/up")
    assert sample.env_kwargs == {"env_type": "tool", "limit": None}
    assert sample.extra_info == {"index": 3}
    assert sample.reward_model["weight"] == 2
    assert sample.other == {"colour": "green"}
    assert sample.where == "x.jsonl line 1"


def test_prompt_may_be_one_text_and_optional_fields_may_be_absent() -> None:
    sample = parse_sample({"prompt": "Say it.", "reward_model": {"ground_truth": "it"}})
    assert sample.question == sample.prompt == "Say it."
    assert sample.env_kwargs == {} and sample.agent_name == "" and sample.other == {}


def test_the_question_of_a_message_with_parts_is_their_text() -> None:
    prompt = [{"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "image"}, {"type": "text", "text": "is it?"}]}]
    assert parse_sample({"prompt": prompt, "reward_model": {}}).question == "Who is it?"


@pytest.mark.parametrize(
    ("truth", "wanted"),
    [
        ("Mila", ["Mila"]),
        (["Mila", "Sond", "Mila"], ["Mila", "Sond"]),
        ({"target": ["Mila", "Sond"]}, ["Mila", "Sond"]),
        ({"target": "Mila"}, ["Mila"]),
        ({"target": 7}, ["7"]),
        (18, ["18"]),
        (18.0, ["18"]),
        (0.5, ["0.5"]),
        (-3, ["-3"]),
        (np.int64(18), ["18"]),
        (np.array(["Mila", "Sond"], dtype=object), ["Mila", "Sond"]),
        ({"target": np.array(["Mila"])}, ["Mila"]),
        ([None, "Mila"], ["Mila"]),
        (None, []),
        ([], []),
        ("", [""]),
    ],
)
def test_every_form_of_a_ground_truth_becomes_a_list_of_texts(truth: Any, wanted: list[str]) -> None:
    assert accepted_answers(truth) == wanted
    assert parse_sample({"prompt": "q", "reward_model": {"ground_truth": truth}}).answers == tuple(wanted)


@pytest.mark.parametrize("truth", [True, float("nan"), float("inf"), {"answer": "x"}, [{"no": 1}], {"target": {"target": object()}}])
def test_a_ground_truth_of_no_known_form_is_an_error_that_names_the_field(truth: Any) -> None:
    with pytest.raises(ValueError, match=r"f\.jsonl line 9: field 'reward_model\.ground_truth"):
        accepted_answers(truth, where="f.jsonl line 9")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": ["hello"]}, r"prompt\[0\]"),
        ({"prompt": [{"role": "user", "content": "x"}, {"content": "y"}]}, r"prompt\[1\]\.role"),
        ({"prompt": [{"role": "user", "content": 4}]}, r"prompt\[0\]\.content"),
        ({"reward_model": None}, "reward_model"),
        ({"reward_model": 5}, "reward_model"),
        ({"reward_model": {"style": 5}}, "style"),
        ({"agent_name": 5}, "agent_name"),
        ({"env_kwargs": "{broken"}, "env_kwargs"),
        ({"env_kwargs": "[1]"}, "env_kwargs"),
        ({"env_kwargs": 5}, "env_kwargs"),
        ({"extra_info": [1]}, "extra_info"),
    ],
)
def test_a_malformed_row_is_an_error_with_file_row_and_field(tmp_path: Path, change: dict[str, Any], field: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps({**ROW, **change}) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"rows\.jsonl line 2: .*{field}"):
        read_samples(path)


def test_members_that_arrow_fills_with_none_disappear_and_nulls_in_a_json_string_stay() -> None:
    assert drop_none({"a": None, "b": [{"c": None, "d": 1}, None]}) == {"b": [{"d": 1}, None]}
    assert json_object({"a": None, "b": {"c": None}}) == {"b": {}}
    assert json_object('{"a": null}') == {"a": None}
    assert json_object(None) == json_object("") == {}


RAGGED = [
    {"prompt": "q1", "reward_model": {"style": "rule", "ground_truth": "x"}, "env_kwargs": {"top_k": 3}, "options": {"index": 1}},
    {"prompt": "q2", "reward_model": {"style": "rule", "ground_truth": "y"}, "env_kwargs": {"split": "test", "nested": {"deep": None}}},
    {"prompt": "q3", "reward_model": {"style": "rule", "ground_truth": "z"}},
]


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_ragged_keywords_survive_a_file(tmp_path: Path, ending: str) -> None:
    if ending == "parquet":
        require("pyarrow")
    path = write_rows(RAGGED, tmp_path / f"rows.{ending}")
    raw = [row for _, row in read_rows(path)]
    assert all(isinstance(row["env_kwargs"], str) for row in raw[:2]) and isinstance(raw[0]["options"], str)
    samples = read_samples(path)
    assert [sample.env_kwargs for sample in samples] == [{"top_k": 3}, {"split": "test", "nested": {"deep": None}}, {}]
    assert json_object(samples[0].other["options"], name="options") == {"index": 1}
    assert "options" not in samples[1].other


def test_a_struct_column_of_ragged_keywords_is_read_as_it_was_meant(tmp_path: Path) -> None:
    """What happens to rows whose writer did not use a JSON string: Arrow unifies the structs and fills the holes with null."""
    arrow = require("pyarrow")
    import pyarrow.parquet

    rows = [{"prompt": "q", "reward_model": {"ground_truth": "x"}, "env_kwargs": kwargs} for kwargs in ({"a": 1}, {"b": {"c": 2}})]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), path)
    assert [row["env_kwargs"] for _, row in read_rows(path)] == [{"a": 1, "b": None}, {"a": None, "b": {"c": 2}}]
    assert [sample.env_kwargs for sample in read_samples(path)] == [{"a": 1}, {"b": {"c": 2}}]


def test_all_containers_hold_the_same_rows(tmp_path: Path) -> None:
    lines = tmp_path / "rows.jsonl"
    lines.write_text("\n".join(json.dumps(row) for row in RAGGED) + "\n\n", encoding="utf-8")
    marked = tmp_path / "marked.jsonl"
    marked.write_text("﻿" + lines.read_text(encoding="utf-8"), encoding="utf-8")
    array = tmp_path / "array.json"
    array.write_text("\n  " + json.dumps(RAGGED, indent=1), encoding="utf-8")
    wrapped = tmp_path / "wrapped.json"
    wrapped.write_text(json.dumps({"version": 1, "data": RAGGED}, indent=1), encoding="utf-8")
    flat = tmp_path / "flat.json"
    flat.write_text(json.dumps({"version": 1, "data": RAGGED}), encoding="utf-8")
    for source in (lines, str(lines), marked, array, wrapped, flat, RAGGED, iter(RAGGED)):
        assert [row for _, row in read_rows(source)] == RAGGED, source
    assert [where for where, _ in read_rows(lines)] == [f"rows.jsonl line {number}" for number in (1, 2, 3)]
    assert [where for where, _ in read_rows(array)] == [f"array.json row {number}" for number in (0, 1, 2)]


@pytest.mark.parametrize("brace", ["{\n", "{", " { \n\n"])
def test_an_object_over_several_lines_is_one_row_wherever_its_first_line_ends(brace: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(brace + '"prompt": "What is 6 times 7?",\n "reward_model": {"ground_truth":\n   "42"}}\n', encoding="utf-8")
    assert list(read_rows(path)) == [("rows.json row 0", {"prompt": "What is 6 times 7?", "reward_model": {"ground_truth": "42"}})]
    path.write_text('{"prompt": "What is 6 ti\n{"prompt": "x"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"rows\.json line 1: no valid JSON"):
        list(read_rows(path))


def test_a_hugging_face_dataset_is_read_like_a_file() -> None:
    datasets = require("datasets")
    rows = [{"prompt": "q", "reward_model": {"ground_truth": "x"}, "env_kwargs": kwargs} for kwargs in ({"a": 1}, {"b": 2})]
    assert [sample.env_kwargs for sample in read_samples(datasets.Dataset.from_list(rows))] == [{"a": 1}, {"b": 2}]


def test_sources_that_hold_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no file"):
        list(read_rows(tmp_path / "absent.jsonl"))
    with pytest.raises(TypeError, match=r"a path, a datasets\.Dataset or a list of dicts"):
        list(read_rows(7))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dict"):
        list(read_rows({"prompt": "q"}))  # type: ignore[arg-type]
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"a": 1}\n{"a": \n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"broken\.jsonl line 2: no valid JSON"):
        list(read_rows(broken))
    numbers = tmp_path / "numbers.jsonl"
    numbers.write_text("7\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"numbers\.jsonl line 1: a row must be an object"):
        list(read_rows(numbers))


def test_a_folder_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is a folder"):
        list(read_rows(tmp_path))


HALVES: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "half \ud800"}, "prompt"),
    ({"prompt": [{"role": "user", "content": "half \udfff"}]}, "prompt[0].content"),
    ({"prompt": [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}]}, "prompt[0].content[0].text"),
    ({"prompt": '[{"role": "user", "content": "\\ud83d"}]'}, "prompt[0].content"),
    ({"reward_model": {"ground_truth": ["a", "\ud800"]}}, "reward_model.ground_truth[1]"),
    ({"reward_model": '{"ground_truth": "\\udc00"}'}, "reward_model.ground_truth"),
    ({"env_kwargs": {"tools": ["\ud800"]}}, "env_kwargs.tools[0]"),
    ({"env_kwargs": '{"a": {"b": "\\ud800"}}'}, "env_kwargs.a.b"),
    ({"extra_info": {"context": [["title", ["\ud800"]]]}}, "extra_info.context[0][1][0]"),
    ({"extra_info": {"\ud800": 1}}, "extra_info.\ud800"),
    ({"data_source": "\ud800"}, "data_source"),
    ({"anything": {"deep": [{"er": "\udead"}]}}, "anything.deep[0].er"),
]


@pytest.mark.parametrize(("change", "field"), HALVES, ids=[str(number) for number in range(len(HALVES))])
def test_half_a_surrogate_pair_is_refused_wherever_in_a_row_it_stands(change: dict[str, Any], field: str) -> None:
    row = {"prompt": "whole \U0001f600", "reward_model": {"ground_truth": "a"}, **change}
    with pytest.raises(ValueError, match=re.escape(f"line 3: field {field!r} must be text without halves of surrogate pairs")) as told:
        parse_sample(row, where="rows.jsonl line 3")
    assert str(told.value).isascii(), "it can be printed"
    whole = json.loads(json.dumps(row).replace("\\\\ud", "x").replace("\\ud83d\\ude00", "y").replace("\\ud", "z"))
    assert parse_sample(whole).prompt, "without the half the row is read"


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    genuine = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return genuine(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "agentr1-gym\[train\]"'):
        list(read_rows(tmp_path / "rows.parquet"))


LEAVES = st.one_of(st.text(max_size=5), st.integers(-9, 9), st.booleans())
DICTS = st.dictionaries(st.sampled_from("abcd"), st.one_of(LEAVES, st.dictionaries(st.sampled_from("xy"), LEAVES, max_size=2)), max_size=3)


@given(DICTS, DICTS, st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=3, unique=True), st.text(max_size=10))
def test_a_sample_that_is_written_is_read_back_equal(
    env_kwargs: dict[str, Any], extra: dict[str, Any], golds: list[str], text: str
) -> None:
    reward_model = {"style": "rule", "ground_truth": {"target": golds}}
    prompt = ({"role": "user", "content": text},)
    sample = Sample(prompt, tuple(golds), {"target": golds}, "rule", "flow", env_kwargs, extra, "src", "qa", reward_model, {"more": [1]})
    row = json.loads(json.dumps(sample_row(sample)))
    assert parse_sample(row) == sample
    assert not env_kwargs or isinstance(row["env_kwargs"], str)


def test_published_rows_are_read(data_dir: Path) -> None:
    require("pyarrow")
    for name, count in (("hotpotqa/rows_agent_r1.parquet", 1), ("gsm8k/rows_agent_r1.jsonl", 1), ("gsm8k/rows_agent_r1.parquet", 1)):
        samples = read_samples(data_dir / name)
        assert len(samples) >= count
        assert all(len(sample.answers) == 1 and sample.question for sample in samples)
    kwargs = [sample.env_kwargs for sample in read_samples(data_dir / "gsm8k" / "rows_agent_r1.parquet")]
    assert kwargs == [sample.env_kwargs for sample in read_samples(data_dir / "gsm8k" / "rows_agent_r1.jsonl")]
    assert all(isinstance(one["tools_kwargs"], dict) for one in kwargs)
    assert all(sample.answers == () for sample in read_samples(data_dir / "papers" / "pasa_rows.parquet"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n"data": 5\n}', "'data' must hold a list of rows, not int"),
        (b'{\n"data": null\n}', "'data' must hold a list of rows, not NoneType"),
        (b"[" * 100_000, "no valid JSON"),
        (b'{"a": ' * 100_000, "line 1: no valid JSON"),
        ('{"question": "café"}'.encode("latin-1"), "no text in UTF-8"),
        ('{"question": "q"}'.encode("utf-16"), "no text in UTF-8"),
        (gzip.compress(b'{"question": "q"}', mtime=0), "no text in UTF-8"),
    ],
)
def test_a_damaged_file_is_an_error_with_its_name(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^rows\.json.*{message}"):
        list(read_rows(path))


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more", b'{"question": "q"}'])
def test_a_damaged_parquet_file_is_an_error_with_its_name(content: bytes, tmp_path: Path) -> None:
    require("pyarrow")
    path = tmp_path / "rows.parquet"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"rows\.parquet"):
        list(read_rows(path))


def test_a_json_string_that_is_nested_too_deeply_is_an_error_with_its_place() -> None:
    with pytest.raises(ValueError, match="row: field 'env_kwargs' is a string, but no JSON"):
        json_object("[" * 100_000)


def test_whole_numbers_of_any_size_are_answers() -> None:
    assert accepted_answers([10**400, 7, 7.0, -(10**400)]) == [f"1{'0' * 400}", "7", f"-1{'0' * 400}"]
    with pytest.raises(ValueError, match=r"row: field 'reward_model.ground_truth' is a number with too many digits"):
        accepted_answers(10**10_000)
