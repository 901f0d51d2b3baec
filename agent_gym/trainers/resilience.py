"""`ResilientTrainer`: checkpoints that are whole or not there at all, from which a run goes on exactly, and rows of a data set that may raise.

transformers writes a checkpoint file by file into its final folder. A run that is killed meanwhile, or whose disk is full, leaves a folder there that looks
like the newest checkpoint and is none. Here the folder is filled under another name beside it, and gets its own when everything is in it.
A full disk is a fault with a name (`Fault.DISK_FULL`): half of a checkpoint is removed, the earlier ones stay, and the run goes on or stops as `on_fault` says.

Besides what transformers keeps, a checkpoint holds `agent_state.json`: what the trainer remembers of earlier batches (the faults of the last episodes,
batches without signal in a row) and the figures that wait for the next record.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from accelerate.utils import gather_object
from transformers.trainer_utils import rotate_checkpoints
from trl.trainer.grpo_trainer import GRPOTrainer

from agent_gym.flows import Fault, FaultMonitor, TooManyFaults
from agent_gym.runs import atomic_write, is_disk_full, publish_folder, sync_folder
from agent_gym.trainers.faults import GuardedRows, watch
from agent_gym.trajectory import Trajectory

if TYPE_CHECKING:
    from agent_gym.trainers.environments import EnvironmentMaker

__all__ = ["STATE_FILE", "ResilientTrainer"]

STATE_FILE = "agent_state.json"
"""What the trainer remembers, in a checkpoint."""
_TRAINER_STATE = "trainer_state.json"


class ResilientTrainer(GRPOTrainer):  # type: ignore[misc,unused-ignore]  # TRL's classes are partly untyped
    """TRL's trainer with whole checkpoints and guarded rows. Its subclass plays the episodes, and says what else it remembers.

    Args:
        *args: as for `trl.GRPOTrainer`.
        **kwargs: as for `trl.GRPOTrainer`.
    """

    make_env: EnvironmentMaker
    args: Any
    accelerator: Any
    state: Any
    model: Any
    train_dataset: Any
    _metrics: Any
    _tr_loss: Any
    _globalstep_last_logged: int
    _staging: str | None = None  # while a checkpoint is written: the folder that its folder stands in

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.faults = FaultMonitor(self.args.on_fault)
        self.mode: Literal["train", "eval"] = "train"
        self.trajectories: list[Trajectory] = []
        self._recorded_faults: Counter[Fault] = Counter()
        self._remembered: Mapping[str, Any] | None = None
        self._resumes = False
        self._waiting_loss = 0.0
        self._train_sampler: Any = None

    def _record(self, figures: Mapping[str, float]) -> None:
        """Have figures averaged into the next record. A subclass says how."""
        raise NotImplementedError

    def _gather(self, items: Sequence[Any]) -> list[Any]:
        """All ranks' items in rank order."""
        return list(items) if self.accelerator.num_processes == 1 else list(gather_object(list(items)))

    def _memory(self) -> dict[str, Any]:
        """What a checkpoint keeps of this trainer, as JSON."""
        return {"faults": self.faults.state()}

    def _remember(self, memory: Mapping[str, Any]) -> None:
        """Go on from what `_memory` returned."""
        self.faults.restore(memory["faults"])
        self._recorded_faults = Counter(self.faults.counts)

    # ------------------------------------------------------------------------------------------------ rows and episodes

    def _watch_faults(self, asked: int) -> None:
        """Count what went wrong in this generation batch by name. All ranks see the same, and stop together."""
        watch(self.trajectories, self.faults, self.make_env.end_of_turn_ids, log=self.accelerator.is_main_process)
        new = {fault: self.faults.counts[fault] - self._recorded_faults[fault] for fault in Fault}
        self._recorded_faults = Counter(self.faults.counts)
        self._record({f"faults/{fault}": float(number) for fault, number in new.items()})
        if self.mode == "train" and new[Fault.ROW_ERROR] + new[Fault.PROMPT_TOO_LONG] >= asked:
            raise TooManyFaults(f"no row of this generation batch ({asked} episodes) can be played. The last, {self.faults.latest}")

    def get_train_dataloader(self) -> Any:
        """Return TRL's loader of the training rows; a row that raises comes out of it as one that says so (see `GuardedRows`).

        Returns:
            The loader, prepared by accelerate.
        """
        rows = self.train_dataset
        if isinstance(rows, torch.utils.data.IterableDataset) or not hasattr(rows, "__getitem__"):
            # a stream cannot go on behind an error
            return super().get_train_dataloader()  # type: ignore[no-untyped-call,unused-ignore]  # partly untyped base
        self.train_dataset = GuardedRows(rows)
        try:
            return super().get_train_dataloader()  # type: ignore[no-untyped-call,unused-ignore]  # partly untyped base
        finally:
            self.train_dataset = rows

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        self._train_sampler = super()._get_train_sampler(dataset)
        return self._train_sampler

    # ------------------------------------------------------------------------------------------------ writing

    def _get_output_dir(self, trial: Any) -> str:
        return self._staging or str(super()._get_output_dir(trial))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write a checkpoint, whole or not at all.

        Args:
            model: the wrapped model.
            trial: of a hyperparameter search.

        Raises:
            agent_gym.flows.TooManyFaults: when the disk is full and `on_fault` is "stop".
        """
        losses = self._gather([float(self._tr_loss)])  # before anything is written, which may fail on one rank
        self._waiting_loss = sum(losses) / len(losses)
        if self.args.push_to_hub:  # which uploads the folder in the background, under the name that it is written with
            super()._save_checkpoint(model, trial)  # type: ignore[no-untyped-call,unused-ignore]  # partly untyped base
            return
        folder = Path(self._get_output_dir(trial))
        name = f"checkpoint-{self.state.global_step}"
        staging = folder / f".{name}.part"
        if self.args.local_process_index == 0:
            shutil.rmtree(staging, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        failure = ""
        self._staging = str(staging)
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[no-untyped-call,unused-ignore]  # partly untyped base
            self._name_best(staging, folder)
            if self.args.should_save:
                sync_folder(staging / name)
        except Exception as error:
            if not is_disk_full(error, folder):
                raise
            failure = f"checkpoint {folder / name} could not be written: {error}"
        finally:
            self._staging = None
        failures = self._gather([failure])  # which waits for every rank to have written its part
        if any(failures):
            if self.args.local_process_index == 0:
                shutil.rmtree(staging, ignore_errors=True)
            what = next(text for text in failures if text)
            self.faults.met(Fault.DISK_FULL, f"{what}; the earlier checkpoints are whole", log=self.accelerator.is_main_process)
            return
        for turn in (self.args.should_save, self.args.local_process_index == 0):  # the second where a node has a disk of its own
            if turn and (staging / name).is_dir():
                publish_folder(staging / name, folder / name)
                shutil.rmtree(staging, ignore_errors=True)
            self.accelerator.wait_for_everyone()
        if self.args.should_save:
            rotate_checkpoints(str(folder), self.args.save_total_limit, self.state.best_model_checkpoint, use_mtime=True)

    def _name_best(self, staging: Path, folder: Path) -> None:
        """Call the best checkpoint by the name that it will have."""
        best = self.state.best_model_checkpoint
        if best is None or Path(best).parent != staging:
            return
        self.state.best_model_checkpoint = str(folder / Path(best).name)
        if self.args.should_save:
            self.state.save_to_json(str(Path(best) / _TRAINER_STATE))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if not self.args.should_save:
            return
        waiting = {
            "metrics": {name: list(values) for name, values in self._metrics["train"].items()},
            "loss": self._waiting_loss,
            "steps": int(self.state.global_step - self._globalstep_last_logged),
        }
        atomic_write(Path(output_dir) / STATE_FILE, json.dumps({**self._memory(), "waiting": waiting}) + "\n")

    # ------------------------------------------------------------------------------------------------ reading

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[no-untyped-call,unused-ignore]  # partly untyped base
        self._resumes = checkpoint is not None
        path = None if checkpoint is None else Path(checkpoint) / STATE_FILE
        if path is None or not path.is_file():  # a checkpoint of an earlier version
            return
        self._remembered = json.loads(path.read_text(encoding="utf-8"))
        self._remember(self._remembered)

    def take_up(self) -> None:
        """Go on where the checkpoint was made: the order of the rows and the figures that wait for the next record. Called when training begins."""
        resumes, memory, self._resumes, self._remembered = self._resumes, self._remembered, False, None
        generator = getattr(self._train_sampler, "generator", None)
        if resumes and generator is not None:  # TRL's sampler draws an order per epoch, and begins with the first one in each process
            for _ in range(int(self.state.epoch + 1e-6)):
                torch.randperm(self._train_sampler.num_samples, generator=generator)
        if memory is None:
            return
        waiting = memory["waiting"]
        for name, values in waiting["metrics"].items():
            self._metrics["train"][name].extend(values)
        self._tr_loss = self._tr_loss + torch.tensor(waiting["loss"], device=self._tr_loss.device)
        self._globalstep_last_logged -= waiting["steps"]

    def finish_from(self, checkpoint: str | os.PathLike[str]) -> None:
        """Take over the end of a run whose every update is in a checkpoint, instead of training: one more update would be made.

        Args:
            checkpoint: the last one.
        """
        self._load_from_checkpoint(str(checkpoint))
        self.state = type(self.state).load_from_json(str(Path(checkpoint) / _TRAINER_STATE))
