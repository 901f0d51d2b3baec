"""`RunCallback`: what a trainer logs goes into its run folder, and Ctrl-C ends a run in a state from which it goes on.

Records of a trainer are "train" or, where their names begin with `eval_`, "eval". A request to stop waits for the end of the update, and for the end
of the generation batch where one serves several updates, since a batch of episodes is no part of a checkpoint. Faults (see `agent_gym.flows.Fault`) are
records of the kind "fault": {"fault", "number", "what"}. Some episodes of every generation batch go into trajectories/train.jsonl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accelerate.utils import gather_object
from torch import distributed
from transformers import TrainerCallback

from agent_gym.flows import Fault
from agent_gym.runs import RunFolderError, is_disk_full
from agent_gym.trainers.scores import KEPT_PER_UPDATE, UpdateEpisodes

if TYPE_CHECKING:
    from agent_gym.flows import FaultMonitor
    from agent_gym.runs import RunFolder
    from agent_gym.trajectory import Trajectory

__all__ = ["RunCallback"]

_NOT_RECORDS = ("train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos", "train_loss")


class RunCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]  # partly untyped base
    """Writes metrics.jsonl, reports progress, and stops between generation batches when asked.

    Args:
        run: the folder; only the main process writes.
        progress: called as (step, total steps, values) after each training record.
        updates_per_generation: optimiser steps that one generation batch serves.
        count_generations: number records by generation batches instead of optimiser steps; the trainer has to log once per batch.
        faults: the trainer's monitor. It is listened to, and told when the disk refuses a record, which then waits for room; without it that is an error.
        episodes: the trainer's `scored_trajectories`: gives the first so many episodes of the latest generation batch; None keeps none.
    """

    def __init__(
        self,
        run: RunFolder,
        progress: Callable[[int, int, Mapping[str, Any]], None] | None = None,
        *,
        updates_per_generation: int = 1,
        count_generations: bool = False,
        faults: FaultMonitor | None = None,
        episodes: Callable[[int], Sequence[Trajectory]] | None = None,
    ) -> None:
        self.run = run
        self.progress = progress
        self.updates_per_generation = max(1, updates_per_generation)
        self._optimiser_steps_per_count = self.updates_per_generation if count_generations else 1
        self.stop_requested = False
        self.stopped = False
        self.faults = faults
        self._episodes, self._kept = episodes, UpdateEpisodes(run)
        self._step, self._main, self._waiting = 0, True, False
        if faults is not None:
            faults.listener = self._on_fault

    def request_stop(self) -> None:
        """Ask the run to save a checkpoint and end as soon as it can go on from there."""
        self.stop_requested = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note where training begins, and whether this is the process that writes; see `transformers.TrainerCallback.on_train_begin`."""
        self._step, self._main = state.global_step // self._optimiser_steps_per_count, state.is_world_process_zero
        if self._main and self._episodes is not None:
            self._kept.resume(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the update that begins; see `transformers.TrainerCallback.on_step_begin`."""
        self._step = state.global_step // self._optimiser_steps_per_count + 1

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """Write a record; see `transformers.TrainerCallback.on_log`."""
        if not logs or not state.is_world_process_zero or any(name in logs for name in _NOT_RECORDS):
            return
        evaluation = any(name.startswith("eval_") for name in logs)
        step = state.global_step // self._optimiser_steps_per_count
        self.write("eval" if evaluation else "train", step, logs)
        if self.progress is not None and not evaluation:
            self.progress(step, state.max_steps // self._optimiser_steps_per_count, logs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save and end, if that was asked for and a generation batch ends here; see `transformers.TrainerCallback.on_step_end`."""
        self._step = state.global_step // self._optimiser_steps_per_count
        batch, rest = divmod(state.global_step, self.updates_per_generation)
        if self._episodes is not None and state.is_world_process_zero and not rest and self._kept.wants(batch):
            self._kept.add(self._episodes(KEPT_PER_UPDATE))
        if distributed.is_available() and distributed.is_initialized():  # the signal reaches the ranks at different moments
            self.stop_requested = any(gather_object([self.stop_requested]))
        if self.stop_requested and state.global_step % self.updates_per_generation == 0 and state.global_step < state.max_steps:
            control.should_save = True
            control.should_training_stop = True
            self.stopped = True

    def _on_fault(self, fault: Fault, number: int, what: str) -> None:
        if self._main:
            self.write("fault", self._step, {"fault": str(fault), "number": number, "what": what})

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write a record; one that the disk has no room for waits in the run folder, which is one fault until there is room again.

        Args:
            kind: as for `RunFolder.log`.
            step: the same.
            values: the same.

        Raises:
            agent_gym.flows.TooManyFaults: under `on_fault="stop"`, when there is no room.
            RunFolderError: for whatever else the disk refuses.
        """
        try:
            self.run.log(kind, step, values)
        except RunFolderError as error:
            if self.faults is None or not is_disk_full(error):
                raise
            first, self._waiting = not self._waiting, True
            if first:
                self.faults.met(Fault.DISK_FULL, str(error))
        else:
            self._waiting = False
