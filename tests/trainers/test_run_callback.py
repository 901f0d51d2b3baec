"""`RunCallback`: what is written under which number, and when a run that is asked to stop may stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import TrainerControl, TrainerState

from agent_gym.runs import RunFolder
from agent_gym.trainers.run_callback import RunCallback

STEPS = 12


def train(callback: RunCallback, *, logging_steps: int, stop_at: int | None = None) -> int:
    """Call it as a trainer does. Returns the optimiser step after which the trainer stopped."""
    state = TrainerState(max_steps=STEPS, is_world_process_zero=True)
    for step in range(1, STEPS + 1):
        state.global_step = step
        control = TrainerControl()
        if step == stop_at:
            callback.request_stop()
        callback.on_step_end(None, state, control)
        if step % logging_steps == 0:
            callback.on_log(None, state, control, {"rollout/success": step / 100})
        if control.should_training_stop:
            assert control.should_save
            return step
    callback.on_log(None, state, TrainerControl(), {"train_runtime": 1.0, "train_loss": 0.0})
    return STEPS


@pytest.mark.parametrize(
    ("settings", "logging_steps", "numbers"),
    [
        ({}, 1, range(1, 13)),
        ({"updates_per_generation": 3}, 1, range(1, 13)),
        ({"updates_per_generation": 3, "count_generations": True}, 3, range(1, 5)),
    ],
)
def test_records_are_numbered_by_optimiser_steps_or_by_generation_batches(
    settings: dict[str, Any], logging_steps: int, numbers: range, tmp_path: Path
) -> None:
    run = RunFolder.create(tmp_path / "run", {"kind": "test"})
    told: list[tuple[int, int]] = []
    callback = RunCallback(run, lambda step, total, values: told.append((step, total)), **settings)
    assert train(callback, logging_steps=logging_steps) == STEPS and not callback.stopped
    assert [one["step"] for one in run.metrics("train")] == list(numbers)  # and no record of the trainer's closing line
    assert [one["rollout/success"] for one in run.metrics("train")] == [step * logging_steps / 100 for step in numbers]
    assert told == [(step, numbers[-1]) for step in numbers]


@pytest.mark.parametrize("stop_at", [1, 3, 4, 11, 12])
@pytest.mark.parametrize("counted", [False, True])
def test_a_run_stops_at_the_end_of_a_generation_batch(stop_at: int, counted: bool, tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"kind": "test"})
    callback = RunCallback(run, updates_per_generation=3, count_generations=counted)
    stopped = train(callback, logging_steps=3, stop_at=stop_at)
    assert stopped == -(-stop_at // 3) * 3
    assert callback.stopped == (stopped < STEPS)  # at the last step there is nothing left to stop


def test_evaluations_are_records_of_their_own_and_other_processes_write_nothing(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"kind": "test"})
    callback = RunCallback(run, lambda *_: pytest.fail("an evaluation is no progress"), updates_per_generation=2, count_generations=True)
    state = TrainerState(max_steps=STEPS, global_step=4, is_world_process_zero=True)
    callback.on_log(None, state, TrainerControl(), {"eval_rollout/success": 0.5})
    state.is_world_process_zero = False
    callback.on_log(None, state, TrainerControl(), {"rollout/success": 0.5})
    assert [(one["kind"], one["step"]) for one in run.metrics()] == [("eval", 2)]
