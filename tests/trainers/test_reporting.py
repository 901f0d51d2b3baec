"""What `report_to` is told: TensorBoard's event files, W&B's offline files and trackio's folder are read back and compared with the run's own records."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import require

require("torch")
require("trl")
require("tensorboard")

from metric_runs import Run  # noqa: E402
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from torch.utils.tensorboard import SummaryWriter  # noqa: E402

from agent_gym.cli import main  # noqa: E402
from agent_gym.cli import train as train_module  # noqa: E402
from agent_gym.runs import RunFolder  # noqa: E402
from agent_gym.trainers import reporting as reporting_module  # noqa: E402
from agent_gym.trainers.metrics import find_metric  # noqa: E402
from agent_gym.trainers.presets import get_preset  # noqa: E402
from agent_gym.trainers.reporting import TENSORBOARD_FOLDER, check_trackers, parse_trackers, reporting  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ONLY_AT_THE_END = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"}


def board(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Name -> (step, value) of all that a folder's event files hold."""
    events = EventAccumulator(str(folder)).Reload()
    return {name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}


def as_reported(name: str) -> str:
    return f"eval/{name.removeprefix('eval_')}" if name.startswith("eval_") else f"train/{name}"


def wanted(records: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """The same of the trainer's own records."""
    found: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        for name, value in record.items():
            if name != "step":
                found.setdefault(as_reported(name), []).append((record["step"], value))
    return found


def same(told: Mapping[str, list[tuple[int, float]]], records: Sequence[Mapping[str, Any]]) -> None:
    right = wanted(records)
    assert set(told) == set(right)
    for name, points in right.items():
        assert [step for step, _ in told[name]] == [step for step, _ in points], name
        assert [value for _, value in told[name]] == pytest.approx([value for _, value in points], rel=1e-5, abs=1e-7), name


# ---------------------------------------------------------------------------------------------------- TensorBoard


@pytest.mark.parametrize("trainer", ["grpo", "ppo", "distill"])
def test_tensorboard_holds_every_metric_and_value(trainer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    made = Run(trainer, (), {"report_to": ["tensorboard"]}).make(tmp_path)
    with reporting(made, tmp_path / "run"):
        made.train()
    told = board(tmp_path / "run" / TENSORBOARD_FOLDER)
    same(told, made.state.log_history)
    assert {"train/reward", "train/rollout/success", "train/faults/env_fault", "eval/reward", "train/loss"} <= set(told)
    for name in told:
        place, _, plain = name.partition("/")
        assert place in ("train", "eval") and find_metric(plain), name
    assert not (tmp_path / "out" / "runs").exists()


def test_tensorboard_is_told_elsewhere_where_its_variable_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "mine"))
    made = Run("grpo", (), {"report_to": ["tensorboard"], "eval_strategy": "no"}).make(tmp_path)
    with reporting(made, tmp_path / "run"):
        made.train()
    assert "train/reward" in board(tmp_path / "mine") and not (tmp_path / "run").exists()


@contextlib.contextmanager
def stop_at_once(request_stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    request_stop()
    yield


def test_a_run_of_the_command_line_reports_into_its_folder_and_goes_on_with_its_steps(
    tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR", raising=False)
    settings = {
        "max_steps": 3, "num_generations": 2, "per_device_train_batch_size": 4, "max_completion_length": 6, "max_no_signal_batches": 0, "save_steps": 1,
        "report_to": "tensorboard",
    }  # fmt: skip
    words = [word for name, value in settings.items() for word in ("--set", f"trainer.{name}={value}")]
    words += ["--set", "data.eval_tasks=0", "--set", "data.train_tasks=8"]
    with monkeypatch.context() as patch:
        patch.setattr(train_module, "_gentle_interrupt", stop_at_once)
        assert (
            main(["train", "AgentR1/HotpotQA-v0", "--model", tiny_model, "--env-arg", "level=bridge", "--output-dir", "run", *words]) == 130
        )
    run = RunFolder.open("run")
    folder = run.path / TENSORBOARD_FOLDER
    assert [step for step, _ in board(folder)["train/reward"]] == [1]
    lost = SummaryWriter(log_dir=str(folder))  # an update whose checkpoint was lost
    lost.add_scalar("train/reward", 123.0, 2)
    lost.close()
    assert [step for step, _ in board(folder)["train/reward"]] == [1, 2]
    assert main(["train", "--output-dir", "run", "--resume"]) == 0
    told, records = board(folder), run.metrics("train")
    assert [one["step"] for one in records] == [1, 2, 3]
    names = {name for one in records for name in one} - {"kind", "step"}
    assert {"reward", "rollout/success", "loss", "rollout/seconds"} <= names
    assert all(find_metric(name) for name in names)
    for name in names:
        points = [(one["step"], pytest.approx(one[name], rel=1e-5, abs=1e-7)) for one in records if name in one]
        found = told[f"train/{name}"]
        if "end" in find_metric(name).places:  # the record at the end of a run repeats it
            found = list(dict.fromkeys(found))
        assert found == points, name


# ---------------------------------------------------------------------------------------------------- W&B and trackio


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_a_tracker_is_told_every_metric_and_value_and_asks_nobody_outside(tracker: str, tmp_path: Path) -> None:
    """Both lie in a folder of their own (`.ci/trackers.txt`): TRL imports them wherever it finds them, which takes seconds in every process."""
    foreign = os.environ.get("AGENT_GYM_FOREIGN", "")
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), os.environ.get("PYTHONPATH", "")]
    if foreign and (Path(foreign) / "trackers" / tracker).is_dir():
        paths.append(str(Path(foreign) / "trackers"))
    else:
        require(tracker)
    (tmp_path / "run").mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(here / "tracker_run.py"), tracker, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["attempts"] == []
    records = [{name: value for name, value in one.items() if name not in ONLY_AT_THE_END} for one in found["records"]]
    told: dict[str, list[tuple[int, float]]] = {}
    for line in found["told"]:
        for name, value in line.items():
            if name != "train/global_step" and not name.startswith("_"):
                told.setdefault(name, []).append((line["train/global_step"], value))
    same(told, records)


# ---------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ()),
        ("none", ()),
        ("tensorboard", ("tensorboard",)),
        ("tensorboard, wandb", ("tensorboard", "wandb")),
        (["trackio", "trackio"], ("trackio",)),
    ],
)
def test_what_is_reported_to_can_be_given_in_several_ways(given: Any, names: tuple[str, ...]) -> None:
    assert parse_trackers(given) == names


def test_a_tracker_that_is_unknown_or_missing_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = get_preset("AgentR1/HotpotQA-v0").config
    with pytest.raises(ValueError, match="'tensorbord' is unknown; choose from tensorboard, wandb, trackio"):
        config(report_to="tensorbord")
    assert config(report_to="tensorboard").report_to == ("tensorboard",)
    monkeypatch.setattr(reporting_module, "find_spec", lambda name: None)
    for make in (lambda: config(report_to="wandb"), lambda: Run("grpo", (), {"report_to": "wandb"}).make(tmp_path)):
        with pytest.raises(ValueError, match=r"report_to='wandb' needs the package wandb: pip install \"agentr1-gym\[logging\]\""):
            make()
    check_trackers(["mlflow"])  # which is transformers' to refuse
