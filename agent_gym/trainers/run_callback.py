"""`RunCallback`: what a trainer logs goes into its run folder, and Ctrl-C ends a run in a state from which it goes on.

Records of a trainer are "train" or, where their names begin with `eval_`, "eval". A request to stop waits for the end of the update, and for the end
of the generation batch where one serves several updates, since a batch of episodes is no part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

if TYPE_CHECKING:
    from agent_gym.runs import RunFolder

__all__ = ["RunCallback"]

_NOT_RECORDS = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss")


class RunCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]  # partly untyped base
    """Writes metrics.jsonl, reports progress, and stops between generation batches when asked.

    Args:
        run: the folder; only the main process writes.
        progress: called as (step, total steps, values) after each training record.
        updates_per_generation: optimiser steps that one generation batch serves.
        count_generations: number records by generation batches instead of optimiser steps; the trainer has to log once per batch.
    """

    def __init__(
        self,
        run: RunFolder,
        progress: Callable[[int, int, Mapping[str, Any]], None] | None = None,
        *,
        updates_per_generation: int = 1,
        count_generations: bool = False,
    ) -> None:
        self.run = run
        self.progress = progress
        self.updates_per_generation = max(1, updates_per_generation)
        self._optimiser_steps_per_count = self.updates_per_generation if count_generations else 1
        self.stop_requested = False
        self.stopped = False

    def request_stop(self) -> None:
        """Ask the run to save a checkpoint and end as soon as it can go on from there."""
        self.stop_requested = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Write a record."""
        if not logs or not state.is_world_process_zero or any(name in logs for name in _NOT_RECORDS):
            return
        evaluation = any(name.startswith("eval_") for name in logs)
        step = state.global_step // self._optimiser_steps_per_count
        self.run.log("eval" if evaluation else "train", step, logs)
        if self.progress is not None and not evaluation:
            self.progress(step, state.max_steps // self._optimiser_steps_per_count, logs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save and end, if that was asked for and a generation batch ends here."""
        if self.stop_requested and state.global_step % self.updates_per_generation == 0 and state.global_step < state.max_steps:
            control.should_save = True
            control.should_training_stop = True
            self.stopped = True
