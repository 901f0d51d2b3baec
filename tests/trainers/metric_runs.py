"""Two updates of each trainer, plain and with every setting that logs something of its own, and what they logged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from distill_training import make_distill
from ppo_training import limited, make_ppo
from test_grpo_runs import play
from test_replay_training import files
from toy_training import make_model, make_trainer, rows_for

from agent_gym.trajectory import StopReason, Trajectory

MAKERS: Mapping[str, Callable[..., Any]] = {"grpo": make_trainer, "ppo": make_ppo, "distill": make_distill}
COMMON: Mapping[str, Any] = {"max_steps": 2, "per_device_train_batch_size": 4, "eval_strategy": "steps", "eval_steps": 2}


def play_with_limits(trainer: Any, examples: Sequence[Mapping[str, Any]]) -> list[Trajectory]:
    """Random episodes with a figure of their own, of which a limit ends every third."""
    episodes = play(trainer, list(examples))
    if trainer.args.num_generations == 1:
        episodes = [replace(item, group_id="") for item in episodes]
    episodes = [replace(item, metrics={"f1": 0.5}) for item in episodes]
    episodes = [limited(item) if number % 3 == 0 else item for number, item in enumerate(episodes)]
    if trainer.mishaps:
        episodes[-1] = limited(episodes[-1], StopReason.ENV_FAULT)
    return episodes


@dataclass(frozen=True)
class Run:
    """A run of two updates.

    Attributes:
        trainer: of the registry.
        conditions: of the registry, which its settings fulfil.
        settings: beyond the common ones.
    """

    trainer: str
    conditions: Collection[str]
    settings: Mapping[str, Any]

    def make(self, folder: Path, **more: Any) -> Any:
        """Make the trainer."""
        settings = {**COMMON, "eval_dataset": rows_for(4), **self.settings, **more}
        mishaps = settings.pop("mishaps", False)
        if settings.pop("replays", False):
            settings["replay_files"] = files(folder)
        if settings.get("beta"):  # the reference model is read from a folder
            make_model(dtype=torch.float32).save_pretrained(folder / "base")
            settings["model"] = str(folder / "base")
        model = settings.pop("model", None)
        trainer = MAKERS[self.trainer](folder / "out", play_with_limits, model, **settings)
        trainer.mishaps = mishaps
        return trainer

    def logged(self, folder: Path, **more: Any) -> list[dict[str, Any]]:
        """Train and return the records."""
        trainer = self.make(folder, **more)
        trainer.train()
        return list(trainer.state.log_history)
