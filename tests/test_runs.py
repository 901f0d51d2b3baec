"""The run folder: nothing half-written, nothing lost, whatever breaks."""

import errno
import json
import os
import subprocess
import sys
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.runs import RunFolder, RunFolderError, atomic_write, collect_versions, to_plain
from agent_gym.trajectory import Step, Trajectory


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", {"env_id": "X-v0", "seed": 3})


def test_a_new_run_has_its_config_and_versions(run: RunFolder) -> None:
    again = RunFolder.open(run.path)
    assert again.config == {"env_id": "X-v0", "seed": 3}
    assert again.versions["packages"]["numpy"] == np.__version__
    assert again.metrics() == [] and again.summary is None


def test_a_folder_that_holds_a_run_is_not_taken_by_another(run: RunFolder) -> None:
    with pytest.raises(RunFolderError, match="--resume"):
        RunFolder.create(run.path, {"seed": 4})
    assert RunFolder.open(run.path).config["seed"] == 3


def test_resuming_keeps_the_first_config_and_notes_the_other(run: RunFolder) -> None:
    RunFolder.create(run.path, {"env_id": "X-v0", "seed": 4}, resume=True)
    assert run.config["seed"] == 3
    assert "seed: 4" in (run.path / "config.resumed.yaml").read_text()


def test_opening_something_else_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"config\.yaml"):
        RunFolder.open(tmp_path)


def test_records_come_back_in_order_and_by_kind(run: RunFolder) -> None:
    run.log("train", 1, {"reward": np.float32(0.5), "n": np.int64(3)})
    run.log("eval", 1, {"sampled": 0.25})
    run.log("train", 2, {"reward": float("nan")})
    assert run.metrics("train") == [{"kind": "train", "step": 1, "reward": 0.5, "n": 3}, {"kind": "train", "step": 2, "reward": None}]
    assert [one["kind"] for one in run.metrics()] == ["train", "eval", "train"]


@pytest.mark.parametrize(
    "torn", ['{"kind": "train", "step": 3, "rew', '{"kind": "train"', "\x00\x00\x00", '{"kind": "train", "step": 3}garbage']
)
def test_a_torn_last_line_is_left_out_and_never_glued_to_the_next_record(run: RunFolder, torn: str) -> None:
    run.log("train", 1, {"x": 1})
    with open(run.metrics_path, "a") as stream:
        stream.write(torn)
    assert [one["step"] for one in run.metrics()] == [1]
    later = RunFolder.open(run.path)
    later.log("train", 3, {"x": 3})
    assert [one["step"] for one in later.metrics()] == [1, 3]
    assert torn in (run.path / "metrics.torn.txt").read_text()


def test_a_whole_last_record_without_its_line_break_is_kept(run: RunFolder) -> None:
    run.log("train", 1, {"x": 1})
    with open(run.metrics_path, "a") as stream:
        stream.write('{"kind": "train", "step": 2, "x": 2}')
    later = RunFolder.open(run.path)
    later.log("train", 3, {"x": 3})
    assert [one["step"] for one in later.metrics()] == [1, 2, 3]


def test_a_damaged_line_in_the_middle_is_named(run: RunFolder) -> None:
    run.log("train", 1, {})
    with open(run.metrics_path, "a") as stream:
        stream.write("not json\n")
    run.log("train", 2, {})
    with pytest.warns(UserWarning, match="line 2"):
        assert [one["step"] for one in run.metrics()] == [1, 2]


def test_what_a_resumed_run_does_again_counts_once(run: RunFolder) -> None:
    run.log("warm_start", 100, {"loss": 1.0})
    for step in (1, 2, 3):
        run.log("train", step, {"run": 1})
    run.mark_resumed(1)
    for step in (2, 3):
        run.log("train", step, {"run": 2})
    assert [(one["step"], one["run"]) for one in run.metrics("train")] == [(1, 1), (2, 2), (3, 2)]
    assert len(run.metrics("warm_start")) == 1


def test_a_full_disk_loses_nothing(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.log("train", 1, {"x": 1})
    whole = run.metrics_path.read_bytes()
    real = os.write

    def full(handle: int, data: bytes) -> int:
        if len(data) > 5:
            return real(handle, bytes(data[:5]))  # a part is written before the disk is full
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunFolderError, match="No space left") as caught:
        run.log("train", 2, {"x": 2})
    assert "earlier record is whole" in str(caught.value)
    assert run.metrics_path.read_bytes() == whole
    monkeypatch.setattr(os, "write", real)
    run.log("train", 3, {"x": 3})
    assert [one["step"] for one in run.metrics()] == [1, 2, 3]


def test_a_real_limit_of_the_file_system_is_survived(tmp_path: Path) -> None:
    program = f"""
import resource, signal
from agent_gym.runs import RunFolder, RunFolderError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
run = RunFolder.create({str(tmp_path / "run")!r}, {{}})
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
failed = 0
for step in range(200):
    try:
        run.log("train", step, {{"text": "x" * 40}})
    except RunFolderError:
        failed += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
run.flush()
assert failed > 100, failed
assert [one["step"] for one in run.metrics()] == list(range(200))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    atomic_write(path, "old")
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, bytes(data[:1])) if len(data) > 2 else _refuse())
    with pytest.raises(RunFolderError, match="unchanged"):
        atomic_write(path, "new content")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]


def _refuse() -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_summary_has_the_keys_that_others_read(run: RunFolder) -> None:
    run.write_summary(
        warm_start={"sampled": 0.1, "greedy": 0.0}, final={"sampled": np.float64(0.9), "greedy": 1.0}, tasks=200, seed=0, updates=45
    )
    assert json.loads((run.path / "summary.json").read_text()) == {
        "warm_start": {"sampled": 0.1, "greedy": 0.0},
        "final": {"sampled": 0.9, "greedy": 1.0},
        "tasks": 200,
        "seed": 0,
        "updates": 45,
    }
    with pytest.raises(ValueError, match="greedy"):
        run.write_summary(warm_start=None, final={"sampled": 1.0}, tasks=1, seed=0)


def test_the_newest_whole_checkpoint_is_found(run: RunFolder) -> None:
    assert run.latest_checkpoint() is None and run.best_model() is None
    for name, state in (
        ("checkpoint-5", True),
        ("checkpoint-20", True),
        ("checkpoint-100", False),
        ("checkpoint-x", True),
        ("other-30", True),
    ):
        folder = run.checkpoints / name
        folder.mkdir(parents=True)
        if state:
            (folder / "trainer_state.json").write_text("{}")
    latest = run.latest_checkpoint()
    assert latest is not None and latest.name == "checkpoint-20"
    (run.checkpoints / "final").mkdir()
    (run.checkpoints / "final" / "config.json").write_text("{}")
    best = run.best_model()
    assert best is not None and best.name == "final"


def test_a_checkpoint_finds_its_run(run: RunFolder, tmp_path: Path) -> None:
    folder = run.checkpoints / "final"
    folder.mkdir(parents=True)
    found = RunFolder.containing(folder)
    assert found is not None and found.path.resolve() == run.path.resolve()
    assert RunFolder.containing(tmp_path) is None


def test_episodes_come_back_as_they_were(run: RunFolder) -> None:
    episode = Trajectory(env_id="X-v0", seed=1, steps=[Step([1, 2], [3], [-0.5], info={"is_success": True})], final_observation=[1, 2, 3])
    run.save_trajectories("final", [episode])
    assert run.load_trajectories("final") == [episode]
    assert run.load_trajectories("before") == []
    for name in ("../x", "", "a/b", ".x"):
        with pytest.raises(ValueError, match="name"):
            run.trajectories_path(name)


class _Colour(Enum):
    RED = "red"


def test_plain_values() -> None:
    assert to_plain({1: (Path("a"), _Colour.RED, {3, 1}, np.arange(2), np.bool_(True), float("inf"))}) == {
        "1": ["a", "red", [1, 3], [0, 1], True, None]
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_plain_is_strict_json(value: object) -> None:
    text = json.dumps(to_plain(value), allow_nan=False)
    assert json.loads(text) == to_plain(value)


def test_versions_name_no_folder_of_this_machine() -> None:
    text = json.dumps({key: value for key, value in collect_versions().items() if key != "command"})
    assert str(Path.home()) not in text and sys.prefix not in text


def test_reading_a_run_loads_no_torch() -> None:
    subprocess.run(
        [sys.executable, "-c", "import sys, agent_gym.runs; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"],
        check=True,
    )
