"""Runs that are killed by another process, and runs whose disk is full: by the real command line, to the same end as a run that nothing happened to."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from fault_runs import ENV, Command, assert_same_run, during, register

from agent_gym.cli import main
from agent_gym.flows import Fault
from agent_gym.runs import RunFolder

UPDATES, EVERY = 8, 2
SCHEDULE_SEED = 20261130
EMBEDDED = {
    "updates": UPDATES, "save_every": EVERY, "num_iterations": 1, "tasks_per_update": 4, "num_generations": 4, "max_action_tokens": 6,
    "eval_tasks": 8, "curve_tasks": 4, "curve_every": 3,
}  # fmt: skip
RECIPE = {
    "trainer.max_steps": 3, "trainer.save_steps": 1, "trainer.num_generations": 2, "trainer.per_device_train_batch_size": 8,
    "trainer.max_completion_length": 6, "trainer.learning_rate": 1e-3, "data.eval_tasks": 4, "data.train_tasks": 16,
}  # fmt: skip
RESUME = ["train", "--output-dir", "run", "--resume"]


def words_for(settings: dict[str, object], *more: str) -> list[str]:
    """The command of a run."""
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return ["train", ENV, "--output-dir", "run", "--seed", "3", *more, *sets]


def schedule() -> list[tuple[str, int]]:
    """Three points, drawn: in which order the phases come, and in which update of each of the first stretches between two checkpoints."""
    rng = np.random.default_rng(SCHEDULE_SEED)
    points = []
    for block, phase in enumerate(rng.permutation(["rollout", "optimiser", "checkpoint"]).tolist()):
        last = EVERY * (block + 1)
        points.append((phase, last if phase == "checkpoint" else int(rng.integers(last - EVERY + 1, last + 1))))
    return points


def tear(run: RunFolder) -> None:
    """As if the machine had died in the middle of a record."""
    with open(run.metrics_path, "ab") as stream:
        stream.write(b'{"kind": "train", "step": 99, "rew')


def uninterrupted(folder: Path, words: list[str]) -> RunFolder:
    folder.mkdir()
    command = Command(folder, words)
    assert command.finish() == 0, command.said[-3000:]
    return RunFolder.open(folder / "run")


@pytest.mark.slow
def test_a_run_that_is_killed_at_three_points_ends_like_one_that_is_not(tmp_path: Path) -> None:
    words = words_for(EMBEDDED)
    whole = uninterrupted(tmp_path / "whole", words)
    folder = tmp_path / "killed"
    folder.mkdir()
    run, given, left = RunFolder(folder / "run"), words, []
    points = schedule()
    assert sorted(phase for phase, _ in points) == ["checkpoint", "optimiser", "rollout"]
    for phase, update in points:
        Command(folder, given).kill_at(during(phase, run, update))
        given = RESUME
        assert run.summary is None
        left += [path.name for path in run.checkpoints.glob(".*.part")]
        tear(run)
    assert any(name.startswith(".checkpoint-") for name in left)  # half of a checkpoint, which nobody took for one
    command = Command(folder, RESUME)
    assert command.finish() == 0, command.said[-3000:]
    assert not list(run.checkpoints.glob(".*"))
    assert [one["step"] for one in run.metrics("train")] == list(range(1, UPDATES + 1))
    assert any(one["grad_norm"] > 0 for one in run.metrics("train"))
    assert_same_run(whole, run)


@pytest.mark.slow
def test_a_run_with_a_critic_that_is_killed_ends_like_one_that_is_not(tmp_path: Path, tiny_model: str) -> None:
    words = words_for(RECIPE, "--algorithm", "ppo", "--model", tiny_model)
    whole = uninterrupted(tmp_path / "whole", words)
    folder = tmp_path / "killed"
    folder.mkdir()
    run = RunFolder(folder / "run")
    Command(folder, words).kill_at(during("optimiser", run, 2))
    Command(folder, RESUME).kill_at(during("evaluation", run, 3))  # every update is made; one more would be one too many
    command = Command(folder, RESUME)
    assert command.finish() == 0, command.said[-3000:]
    assert all("critic/value_loss" in one for one in run.metrics("train"))
    assert_same_run(whole, run)


# ---------------------------------------------------------------------------------------------------- full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    register()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        if os.environ.get("AGENT_GYM_REQUIRE_ALL"):
            pytest.fail(f"AGENT_GYM_REQUIRE_ALL is set, and no tmpfs can be mounted: {done.stderr}")
        pytest.skip(f"only root mounts a tmpfs: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        del gymnasium.registry[ENV]
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill a disk but for some bytes."""
    filler = disk / "filler"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with open(filler, "wb") as stream:
        stream.write(bytes(max(0, free - leave)))
    return filler


def sizes(model: str) -> tuple[int, int]:
    """Bytes of the weights of a model, and of what lies beside them in its folder."""
    files = {file.suffix == ".safetensors": 0 for file in Path(model).iterdir()}
    for file in Path(model).iterdir():
        files[file.suffix == ".safetensors"] += file.stat().st_size
    return files[True], files[False]


@pytest.mark.parametrize("on_fault", ["drop", "stop"])
def test_a_full_disk_is_a_named_fault_and_the_run_goes_on_when_there_is_room(
    on_fault: str, small_disk: Path, tiny_model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(small_disk)
    monkeypatch.setenv("COLUMNS", "200")
    weights, rest = sizes(tiny_model)
    checkpoint = 3 * weights + rest  # two moments for each weight
    filler = fill(small_disk, checkpoint + weights // 2 + (128 << 10))  # the first checkpoint fits; no second one, nor the final weights
    words = words_for({**RECIPE, "trainer.on_fault": on_fault, "data.eval_tasks": 0}, "--model", tiny_model)
    assert main(words) == 1
    out, err = (" ".join(text.split()) for text in capsys.readouterr())
    run = RunFolder.open("run")
    assert "fault disk_full: checkpoint" in out + err and "No space left" in out + err
    assert "--resume" in err and "Traceback" not in out + err
    faults = [one for one in run.metrics("fault") if one["fault"] == Fault.DISK_FULL]
    updates = [one["step"] for one in run.metrics("train")]
    if on_fault == "stop":
        assert updates == [1, 2] and len(faults) == 1 and "on_fault='stop' stops at the first; free space" in err
    else:  # it went on to the end, and only the final weights could not be done without
        assert updates == [1, 2, 3] and len(faults) == 2 and "could not write" in err and "final" in err
        assert [one["faults/disk_full"] for one in run.metrics("train")] == [0.0, 0.0, 1.0]
    assert [path.name for path in sorted(run.checkpoints.iterdir())] == ["checkpoint-1"]
    assert run.latest_checkpoint() == run.checkpoints / "checkpoint-1"

    filler.unlink()
    assert main(RESUME) == 0, capsys.readouterr().err
    assert [one["step"] for one in run.metrics("train")] == [1, 2, 3] and run.summary is not None
    assert (run.checkpoints / "final" / "model.safetensors").is_file()


def test_records_that_the_disk_refuses_are_one_fault_and_are_written_when_there_is_room(small_disk: Path) -> None:
    from agent_gym.flows import FaultMonitor
    from agent_gym.trainers.run_callback import RunCallback

    run = RunFolder.create(small_disk / "run", {"kind": "test"})
    monitor = FaultMonitor()
    records = RunCallback(run, faults=monitor)
    records.write("train", 1, {"reward": 0.5})
    filler = fill(small_disk, 0)
    size = run.metrics_path.stat().st_size
    with open(filler, "ab", buffering=0) as stream, pytest.raises(OSError):  # not a byte is left
        while True:
            stream.write(b"x")
    for step in range(2, 200):
        records.write("train", step, {"reward": 0.5, "text": "x" * 100})
    assert monitor.counts == {Fault.DISK_FULL: 1} and run.metrics_path.stat().st_size < size + 8192
    filler.unlink()
    records.write("train", 200, {"reward": 0.5})
    assert [one["step"] for one in run.metrics("train")] == list(range(1, 201))
    (fault,) = run.metrics("fault")
    assert fault["fault"] == "disk_full" and "No space left" in fault["what"]
    assert all(json.loads(line) for line in run.metrics_path.read_text().splitlines())
