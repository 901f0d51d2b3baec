"""Files of samples as people really have them: cut off, of mixed types, in other encodings, with Arrow's and numpy's additions."""

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import require

from agent_gym.data.samples import accepted_answers, parse_sample, plain_json, read_rows, read_samples, write_rows

ROW: dict[str, Any] = {"prompt": "q", "reward_model": {"style": "rule", "ground_truth": "a"}, "extra_info": {"index": 1}}


def test_a_parquet_file_that_was_cut_off_is_an_error_with_its_name(tmp_path: Path) -> None:
    require("pyarrow")
    whole = write_rows([{**ROW, "prompt": f"question {n} " * 50} for n in range(4000)], tmp_path / "whole.parquet").read_bytes()
    for size in (4, 100, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "cut.parquet"
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"^cut\.parquet row 0: no Parquet file, or a damaged one"):
            list(read_rows(path))


def test_a_parquet_file_with_a_broken_page_is_an_error_with_the_row_it_came_to(tmp_path: Path) -> None:
    require("pyarrow")
    path = write_rows([{**ROW, "prompt": f"question {n}"} for n in range(3000)], tmp_path / "rows.parquet")
    content = bytearray(path.read_bytes())
    content[40:4000] = bytes(3960)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"^rows\.parquet row \d+: "):
        list(read_rows(path))


def test_a_text_column_that_is_no_text_is_an_error_with_row_and_field(tmp_path: Path) -> None:
    arrow = require("pyarrow")
    import pyarrow.parquet

    prompts = [b"fine"] * 1500
    prompts[1200] = "café".encode("latin-1")
    column = arrow.array(prompts, arrow.binary())
    wrong = arrow.Array.from_buffers(arrow.string(), len(column), column.buffers())
    table = arrow.table({"reward_model": [{"ground_truth": "a"}] * 1500, "prompt": wrong})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"^rows\.parquet row 1200: field 'prompt' is no text in UTF-8"):
        list(read_rows(tmp_path / "rows.parquet"))


def test_a_parquet_file_is_known_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    require("pyarrow")
    path = write_rows([ROW], tmp_path / "rows.parquet")
    for name in ("rows.pq", "train-00000-of-00001", "rows.parquet.tmp"):
        path = path.rename(tmp_path / name)
        assert [one.question for one in read_samples(path)] == ["q"]


def test_text_in_another_encoding_is_an_error_with_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = json.dumps(ROW, ensure_ascii=False)
    bad = json.dumps({**ROW, "extra_info": {"names": ["a", "café"]}}, ensure_ascii=False)
    path.write_bytes(f"{good}\n{good}\n".encode() + bad.encode("latin-1") + b"\n")
    rows = read_rows(path)
    assert [next(rows)[0], next(rows)[0]] == ["rows.jsonl line 1", "rows.jsonl line 2"]
    with pytest.raises(ValueError, match=r"^rows\.jsonl line 3: field 'extra_info\.names\[1\]' is no text in UTF-8 \(byte 0xe9\)"):
        next(rows)
    path.write_bytes(f"[{good}, {bad}]".encode("latin-1"))
    with pytest.raises(ValueError, match=r"^rows\.jsonl: field '\[1\]\.extra_info\.names\[1\]' is no text"):
        list(read_rows(path))


def test_a_cut_off_line_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + json.dumps(ROW)[:-9])
    with pytest.raises(ValueError, match=r"^rows\.jsonl line 2: no valid JSON"):
        list(read_rows(path))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt": {"role": "user"}}, "prompt"),
        ({"prompt": [["user", "q"]]}, r"prompt\[0\]"),
        ({"reward_model": ["rule"]}, "reward_model"),
        ({"reward_model": "rule"}, "reward_model"),
        ({"reward_model": {"ground_truth": {"gold": 1}}}, r"reward_model\.ground_truth"),
        ({"data_source": ["a"]}, "data_source"),
        ({"agent_name": {"name": "a"}}, "agent_name"),
        ({"env_kwargs": '"{\\"env_type\\": \\"tool\\"}"'}, "env_kwargs"),
        ({"extra_info": "no JSON"}, "extra_info"),
    ],
)
def test_rows_of_mixed_types_are_errors_with_file_row_and_field(change: dict[str, Any], field: str, tmp_path: Path) -> None:
    path = write_rows([ROW, ROW], tmp_path / "rows.jsonl")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**ROW, **change}) + "\n")
    with pytest.raises(ValueError, match=rf"^rows\.jsonl line 3: field '{field}"):
        read_samples(path)


def test_json_strings_mean_what_structs_mean() -> None:
    structs = {
        "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["a", "b"]}},
        "env_kwargs": {"env_type": "tool"},
        "extra_info": {"index": 1},
    }
    strings = {name: json.dumps(value) for name, value in structs.items()}
    assert parse_sample(structs) == parse_sample(strings)
    half = {**structs, "reward_model": {"style": "rule", "ground_truth": '{"target": ["a", "b"]}'}}
    assert parse_sample(half).answers == ("a", "b")
    for text in ("[citation needed] Who?", "[1, 2]", '[{"role": "user"}]', "[", "[" * 50_000):
        assert parse_sample({**structs, "prompt": text}).question == text
    for truth in ('{"a": 1}', "{x}", "{", "{" * 50_000):
        assert accepted_answers(truth) == [truth]


def test_numbers_of_parquet_are_answers_as_people_write_them() -> None:
    for given, wanted in (("18", "18"), ("18.50", "18.5"), ("1E+3", "1000"), ("-0.10", "-0.1")):
        assert accepted_answers(decimal.Decimal(given)) == [wanted]
    with pytest.raises(ValueError, match="ground_truth"):
        accepted_answers(decimal.Decimal("NaN"))


def test_arrays_of_numpy_inside_parquet_are_lists(tmp_path: Path) -> None:
    pandas = require("pandas")
    numpy = require("numpy")
    rows = [
        {
            "prompt": numpy.array([{"role": "user", "content": "q"}], dtype=object),
            "reward_model": {"ground_truth": numpy.array(["a", "b"], dtype=object)},
            "extra_info": {"scores": numpy.array([1.5, 2.5])},
        }
    ]
    frame = pandas.DataFrame(rows)
    require("pyarrow")
    frame.to_parquet(tmp_path / "rows.parquet")
    for source in (
        rows,
        frame.to_dict("records"),
        pandas.read_parquet(tmp_path / "rows.parquet").to_dict("records"),
        tmp_path / "rows.parquet",
    ):
        sample = read_samples(source)[0]
        assert (sample.question, sample.answers, plain_json(sample.extra_info)) == ("q", ("a", "b"), {"scores": [1.5, 2.5]})


def test_what_json_cannot_write_is_written_as_text_or_named() -> None:
    day = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
    value = {"day": day, "date": day.date(), "time": day.time(), "price": decimal.Decimal("1.50"), 3: (1, None)}
    plain = {"day": "2026-01-02T03:04:00+00:00", "date": "2026-01-02", "time": "03:04:00", "price": "1.50", "3": [1, None]}
    assert plain_json(value) == plain and json.loads(json.dumps(plain)) == plain
    with pytest.raises(ValueError, match=r"^here: field 'a\.b\[1\]' must be text, a number.*pictures"):
        plain_json({"a": {"b": ["x", b"\x89PNG"]}}, where="here")


@pytest.mark.parametrize("field", ["prompt", "reward_model", "extra_info", "env_kwargs", "other"])
@pytest.mark.parametrize("depth", [200, 500, 800, 950])
def test_a_field_that_is_nested_deeply_is_read_or_refused_by_name(field: str, depth: int) -> None:
    from agent_gym.flows.samples import route_samples

    nested: Any = "x"
    for _ in range(depth):
        nested = {"a": [nested]}
    row = {**ROW, "env_kwargs": {"env_type": "tool"}}
    row[field] = (
        [{"role": "user", "content": "q", "more": nested}] if field == "prompt" else {**row.get(field, {}), "system_prompt": nested}
    )
    fault = ""
    try:
        task = route_samples([row]).rows[0]
    except ValueError as error:
        fault = str(error)
    if fault:
        assert fault.startswith("row 0: ") and ("nested too deeply" in fault or field in fault)
    else:
        assert depth <= 500 and json.loads(json.dumps(task)) == task
