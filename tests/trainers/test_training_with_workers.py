"""`AgentGRPOConfig(workers=...)`: the trainer's environments in worker processes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from helpers import require
from small_envs import Parrot

require("trl")
from toy_training import VOCAB, make_args, make_model, make_tokenizer  # noqa: E402

from agent_gym.core import Action, Outcome  # noqa: E402
from agent_gym.trainers.grpo import AgentGRPOTrainer  # noqa: E402


def readers() -> list[threading.Thread]:
    """One for each living worker."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("agent-gym-read-")]


def trainer_of(folder: Path, kind: type[Parrot], **settings: Any) -> AgentGRPOTrainer:
    tokenizer = make_tokenizer()
    defaults = {"max_completion_length": 6, "per_device_train_batch_size": 4, "num_generations": 4, "max_steps": 2, "max_turns": 2}
    args = make_args(folder, **{**defaults, **settings})
    make = lambda row: kind(tokenizer=tokenizer, vocab_size=VOCAB, max_action_tokens=6, max_turns=2)  # noqa: E731
    return AgentGRPOTrainer(make_model(), args, env=make, processing_class=tokenizer)


class Graded(Parrot):
    """Pays by the length of the reply, so that there is something to learn."""

    def _respond(self, action: Action) -> Outcome:
        outcome = super()._respond(action)
        return Outcome(outcome.observation, reward=len(action.token_ids) / 6)


def test_a_training_with_workers_is_the_one_without_and_leaves_none(tmp_path: Path) -> None:
    logs, episodes = [], []
    for name, workers in (("here", None), ("there", "1")):
        trainer = trainer_of(tmp_path / name, Graded, workers=workers)
        trainer.train()
        entries = [entry for entry in trainer.state.log_history if "reward" in entry]
        logs.append([(entry["reward"], entry["loss"], entry["grad_norm"]) for entry in entries])
        episodes.append(trainer.trajectories)
        assert not readers()
    assert logs[0] == logs[1] and len(logs[0]) == 2
    assert episodes[0] == episodes[1] and any(grad for _, _, grad in logs[0])
    assert trainer.args.workers == 1 and trainer._pool.made == 4


class Raises(Parrot):
    """Has a bug."""

    def _respond(self, action: Action) -> Outcome:
        raise KeyError("lost")


def test_an_error_in_training_ends_the_workers(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, Raises, workers=1)
    with pytest.raises(KeyError, match="lost"):
        trainer.train()
    assert not readers()


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'ray', or the address of a Ray cluster.*not 'rya'"):
        make_args(tmp_path, workers="rya")
    with pytest.raises(ValueError, match="workers=-1 must not be negative"):
        make_args(tmp_path, workers=-1)
    with pytest.raises(ValueError, match="workers=2 with rollout=: that function plays the episodes itself"):
        AgentGRPOTrainer(make_model(), make_args(tmp_path, workers=2), processing_class=make_tokenizer(), rollout=lambda trainer, rows: [])
