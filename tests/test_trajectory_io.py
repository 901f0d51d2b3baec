"""Files of trajectories: lossless, versioned, whole or not there, and repaired after a kill."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers import require
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from agent_gym import trajectory_io
from agent_gym.trajectory import Step, StopReason, Trajectory
from agent_gym.trajectory_io import TrajectoryWriter, iter_trajectories, load_trajectories, save_trajectories

KINDS = [".jsonl", ".parquet"]

ids = st.lists(st.integers(0, 2**40), max_size=6)
floats32 = st.floats(width=32, allow_nan=True, allow_infinity=True)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(st.characters(codec=None), max_size=8),
    st.binary(max_size=6),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
        st.dictionaries(st.sampled_from(["$array", "$tuple", "$x", "ids"]), inner, max_size=1),
        st.dictionaries(st.integers(0, 9), inner, max_size=2),
    ),
    max_leaves=6,
)
members = st.dictionaries(st.text(max_size=5), values, max_size=3)
text = st.text(max_size=10)


@st.composite
def steps(draw, prefix):
    observation = draw(
        st.one_of(ids, st.just(prefix), ids.map(lambda more: [*prefix, *more]), ids.map(lambda more: [*prefix[: len(prefix) // 2], *more]))
    )
    action = draw(ids)
    return Step(
        observation_ids=observation,
        action_ids=action,
        logprobs=draw(st.one_of(st.none(), st.lists(floats32, min_size=len(action), max_size=len(action)))),
        finish_reason=draw(text),
        policy_version=draw(st.integers(0, 2**62)),
        feedback=draw(text),
        reward=draw(st.floats(allow_nan=False)),
        reward_parts=draw(st.dictionaries(text, st.floats(allow_nan=False), max_size=2)),
        terminated=draw(st.booleans()),
        truncated=draw(st.booleans()),
        stop_reason=draw(st.sampled_from(StopReason)),
        state_key=draw(text),
        info=draw(members),
    )


@st.composite
def trajectories(draw):
    made, prefix = [], []
    for _ in range(draw(st.integers(0, 3))):
        made.append(draw(steps(prefix)))
        prefix = [*made[-1].observation_ids.tolist(), *made[-1].action_ids.tolist()]
    return Trajectory(
        env_id=draw(text),
        env_kwargs=draw(members),
        task_id=draw(text),
        group_id=draw(text),
        seed=draw(st.one_of(st.none(), st.integers(0, 2**100))),
        options=draw(members),
        sampling={"stop_token_ids": (1, 2), "temperature": draw(st.floats(0, 2))},
        tokenizer_fingerprint=draw(text),
        steps=made,
        final_observation=draw(st.one_of(ids, st.just(prefix))),
        metrics=draw(st.dictionaries(text, st.floats(allow_nan=False), max_size=2)),
    )


@pytest.mark.parametrize("kind", KINDS)
@given(batch=st.lists(trajectories(), max_size=3))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_loaded_is_what_was_saved(tmp_path, kind, batch):
    if kind == ".parquet":
        require("pyarrow")
    path = tmp_path / f"some{kind}"
    save_trajectories(path, batch)
    loaded = load_trajectories(path)
    assert loaded == batch
    assert [_types(one.options) for one in loaded] == [_types(one.options) for one in batch]
    assert [_types(s.info) for one in loaded for s in one.steps] == [_types(s.info) for one in batch for s in one.steps]


def _types(value):
    """The types all through a value, so that 1, True and 1.0 are told apart."""
    if isinstance(value, dict):
        return {key: _types(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [_types(item) for item in value]
    return type(value)


@pytest.mark.parametrize("kind", KINDS)
@given(
    array=hnp.arrays(
        st.one_of(hnp.integer_dtypes(), hnp.floating_dtypes(), hnp.boolean_dtypes(), hnp.unicode_string_dtypes(max_len=4)),
        hnp.array_shapes(min_dims=0, min_side=0),
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arrays_and_odd_numbers_in_info_come_back(tmp_path, kind, array):
    if kind == ".parquet":
        require("pyarrow")
    path = tmp_path / f"some{kind}"
    info = {
        "array": array,
        "nan": float("nan"),
        "inf": float("-inf"),
        "set": {1, 2},
        "scalar": np.float32(0.1),
        "flag": np.bool_(True),
        "none": None,
    }
    save_trajectories(path, [Trajectory(steps=[Step([1], [], info=info)])])
    (loaded,) = load_trajectories(path)
    back = loaded.steps[0].info
    assert back["array"].dtype == array.dtype
    np.testing.assert_array_equal(back["array"], array)
    assert np.isnan(back["nan"])
    assert (back["inf"], back["set"], back["none"], "missing" in back) == (float("-inf"), {1, 2}, None, False)
    assert (type(back["scalar"]), back["scalar"], back["flag"]) == (np.float32, np.float32(0.1), True)


def _long(turns: int) -> Trajectory:
    prompt, made = list(range(50)), []
    for turn in range(turns):
        made.append(Step(prompt, [turn] * 10, [-0.5] * 10, state_key=str(turn)))
        prompt = [*prompt, *[turn] * 10, *range(40)]
    return Trajectory(steps=made, final_observation=prompt)


def test_an_appended_context_is_stored_once(tmp_path):
    sizes = [save_trajectories(tmp_path / f"{turns}.jsonl", [_long(turns)]).stat().st_size for turns in (10, 20, 40)]
    assert sizes[2] - sizes[1] < 2.2 * (sizes[1] - sizes[0]), "linear in the turns, not quadratic"


def test_one_kind_can_be_turned_into_the_other(tmp_path):
    require("pyarrow")
    batch = [_long(3), _long(0), Trajectory(env_id="x\ud800")]
    save_trajectories(tmp_path / "a.jsonl", batch)
    save_trajectories(tmp_path / "b.parquet", iter_trajectories(tmp_path / "a.jsonl"))
    assert load_trajectories(tmp_path / "b.parquet") == batch


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_version_is_refused_with_the_way_out(tmp_path, kind, monkeypatch):
    if kind == ".parquet":
        require("pyarrow")
    path = tmp_path / f"new{kind}"
    with monkeypatch.context() as patch:
        patch.setattr(trajectory_io, "SCHEMA_VERSION", 99)
        save_trajectories(path, [_long(1)])
    with pytest.raises(ValueError, match=r"schema version 99.*newer agentr1-gym"):
        load_trajectories(path)
    if kind == ".jsonl":
        with pytest.raises(ValueError, match="99"):
            TrajectoryWriter(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, kind):
    if kind == ".parquet":
        require("pyarrow")
    path = tmp_path / f"t{kind}"
    save_trajectories(path, [_long(1)])
    with pytest.raises(TypeError, match="object"):
        save_trajectories(path, [_long(2), Trajectory(options={"x": object()})])
    assert load_trajectories(path) == [_long(1)]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_foreign_files_and_endings_are_refused(tmp_path):
    foreign = tmp_path / "foreign.jsonl"
    foreign.write_text('{"a": 1}\n')
    with pytest.raises(ValueError, match="no trajectory file"):
        load_trajectories(foreign)
    with pytest.raises(ValueError, match="no trajectory file"):
        TrajectoryWriter(foreign)
    with pytest.raises(ValueError, match=r"\.jsonl or \.parquet"):
        save_trajectories(tmp_path / "x.csv", [])


@pytest.mark.parametrize("end", [1, 2, 30])
def test_a_writer_goes_on_behind_a_line_that_was_cut_off(tmp_path, end):
    path = tmp_path / "deep" / "log.jsonl"
    with TrajectoryWriter(path) as writer:
        for turns in (1, 2, 3):
            writer.write(_long(turns))
    whole = path.read_bytes()
    path.write_bytes(whole[:-end])
    if end == 1:  # only the newline is missing: the line is whole
        assert load_trajectories(path) == [_long(1), _long(2), _long(3)]
    else:
        with pytest.warns(UserWarning, match="cut off"):
            assert load_trajectories(path) == [_long(1), _long(2)]
        with pytest.warns(UserWarning, match="cut off"):
            TrajectoryWriter(path).close()
    with TrajectoryWriter(path) as writer:
        writer.write(_long(4))
    assert load_trajectories(path) == [_long(turns) for turns in ((1, 2, 3, 4) if end == 1 else (1, 2, 4))]


@given(cut=st.integers(0, 3000))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.filterwarnings("ignore:.*cut off")
def test_a_kill_at_any_byte_loses_the_last_line_at_most(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    path.unlink(missing_ok=True)
    with TrajectoryWriter(path) as writer:
        for turns in (1, 2):
            writer.write(_long(turns))
    whole = path.read_bytes()
    path.write_bytes(whole[: min(cut, len(whole))])
    with TrajectoryWriter(path) as writer:
        writer.write(_long(3))
    loaded = load_trajectories(path)
    assert loaded[-1] == _long(3)
    assert loaded[:-1] == [_long(1), _long(2)][: len(loaded) - 1]


def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(tmp_path):
    path = save_trajectories(tmp_path / "a.jsonl", [_long(1), _long(1)])
    lines = path.read_text().splitlines()
    lines[1] = lines[1][:-5]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match="line 2"):
        load_trajectories(path)


def test_files_put_behind_one_another_are_one_file(tmp_path):
    one, other = (save_trajectories(tmp_path / f"{turns}.jsonl", [_long(turns)]) for turns in (1, 2))
    both = tmp_path / "both.jsonl"
    both.write_bytes(one.read_bytes() + other.read_bytes())
    assert load_trajectories(both) == [_long(1), _long(2)]


def test_lines_are_strict_json(tmp_path):
    path = save_trajectories(tmp_path / "a.jsonl", [Trajectory(steps=[Step([1], [2], [float("nan")], info={"x": float("inf")})])])

    def refuse(name):
        raise AssertionError(name)

    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize(
    "foreign",
    [
        b"my precious notes without newline",
        b"line one\nline two",
        b'{"a": 1}',
        b'{"a": 1}\n{"b": 2',
        b'{"format":"agent-gym-trajectories","version":2}\n{"half',
        b'{"format":"agent-gym-other"',
        b"\xff\xfe\x00\n\x00",
        b"[" * 100_000,
        b"\n",
    ],
)
def test_a_writer_never_touches_a_file_that_is_not_its_own(tmp_path, foreign):
    path = tmp_path / "notes.txt"
    path.write_bytes(foreign)
    with pytest.raises(ValueError, match=r"no trajectory file|schema version 2"):
        TrajectoryWriter(path)
    assert path.read_bytes() == foreign


@pytest.mark.parametrize(
    "line",
    [
        b"5",
        b"null",
        b"[1]",
        b"{}",
        b'{"steps": 5, "final_observation": [0, []]}',
        b'{"steps": [], "final_observation": []}',
        b"[" * 100_000,
        b'"\xff"',
        b'{"steps": [{"observation": [0, ["x"]]}], "final_observation": [0, []]}',
    ],
)
def test_any_damaged_line_is_an_error_with_its_number(tmp_path, line):
    path = save_trajectories(tmp_path / "a.jsonl", [_long(1)])
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(ValueError, match=r"a\.jsonl, line 3"):
        load_trajectories(path)


def test_a_damaged_row_of_parquet_is_an_error_with_its_number(tmp_path):
    require("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = save_trajectories(tmp_path / "a.parquet", [_long(1), _long(2)])
    table = pq.read_table(path)
    for column, damaged in (("head", "{}"), ("head", "5"), ("head", "[" * 100_000), ("head", "no")):
        values = [table.column(column)[0].as_py(), damaged]
        place = table.schema.get_field_index(column)
        pq.write_table(table.set_column(place, column, pa.array(values)), tmp_path / "b.parquet")
        with pytest.raises(ValueError, match=r"b\.parquet, row 1"):
            load_trajectories(tmp_path / "b.parquet")
