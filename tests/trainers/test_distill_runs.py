"""Whole runs with a teacher: what is logged, saved and resumed, evaluation, adapters, and that the student comes nearer to its teacher."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from distill_training import TEACHER_SEED, AgentDistillTrainer, make_distill
from peft import LoraConfig
from safetensors.torch import load_file
from test_grpo_runs import play, weights
from toy_training import make_args, make_model, make_tokenizer, random_batch, relative_error, rows_for

from agent_gym.trainers.distill import ModelTeacher
from agent_gym.trainers.metrics import describe
from agent_gym.trajectory import Trajectory

pytestmark = pytest.mark.filterwarnings("ignore:steps_per_generation:UserWarning")
FIGURES = {f"distill/{name}" for name in ("reverse_kl", "teacher_logprob", "agreement", "tokens_scored", "seconds", "unknown")}


def play_alone(trainer: Any, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
    return [replace(item, group_id="") for item in play(trainer, examples)]


@pytest.mark.parametrize("which", ["full", "sampled"])
def test_a_run_moves_the_student_alone_and_logs_only_names_that_are_described(which: str, tmp_path: Path) -> None:
    teacher = make_model(seed=TEACHER_SEED)
    before = weights(teacher)
    trainer = make_distill(
        tmp_path,
        play_alone,
        teacher=teacher,
        distill_loss=which,
        max_steps=2,
        num_iterations=2,
        gradient_accumulation_steps=2,
        per_device_train_batch_size=2,
        eval_strategy="steps",
        eval_steps=1,
        eval_dataset=rows_for(3),
        save_strategy="steps",
        save_steps=2,
    )
    student = weights(trainer.model)
    trainer.train()
    assert torch.equal(weights(teacher), before) and relative_error(weights(trainer.model), student) > 1e-4
    entries = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(entries) >= 1
    for entry in (*entries, *(one for one in trainer.state.log_history if "eval_reward" in one)):
        for key, value in entry.items():
            assert describe(key), f"{key} is not in METRICS"
            assert value is not None and math.isfinite(value), key
    assert set(entries[0]) >= FIGURES
    seen = [entry for entry in trainer.state.log_history if "eval_distill/reverse_kl" in entry]
    assert seen and 0.0 <= seen[0]["eval_distill/agreement"] <= 1.0 and seen[0]["eval_distill/tokens_scored"] > 0
    saved = set(load_file(tmp_path / "checkpoint-2" / "model.safetensors"))
    assert saved <= {name for name, _ in make_model().named_parameters()}
    in_optimizer = {id(one) for group in trainer.optimizer.param_groups for one in group["params"]}
    assert in_optimizer == {id(one) for one in trainer.model.parameters()}


def test_the_student_comes_nearer_to_its_teacher(tmp_path: Path) -> None:
    batch = random_batch(2, groups=3, context="append", logprobs=False)
    settings = {"per_device_train_batch_size": 6, "learning_rate": 2e-3, "max_grad_norm": 1.0}
    trainer = make_distill(tmp_path, batch, max_steps=8, **settings)
    trainer.train()
    seen = [entry["distill/reverse_kl"] for entry in trainer.state.log_history if "distill/reverse_kl" in entry]
    assert seen[-1] < 0.8 * seen[0]


def test_lora_trains_the_adapter_towards_the_teacher(tmp_path: Path) -> None:
    make_model(dtype=torch.float32).save_pretrained(tmp_path / "base")
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    common = {"peft_config": lora, "save_strategy": "steps", "save_steps": 2, "activation_checkpointing": True, "teacher_chunk_tokens": 4}
    trainer = make_distill(tmp_path, play_alone, str(tmp_path / "base"), teacher=make_model(seed=TEACHER_SEED), max_steps=2, **common)
    before = {name: one.detach().clone() for name, one in trainer.model.named_parameters()}
    trainer.train()
    moved = {name for name, one in trainer.model.named_parameters() if not torch.equal(one, before[name])}
    assert moved and all("lora" in name for name in moved)
    adapter = load_file(tmp_path / "checkpoint-2" / "adapter_model.safetensors")
    assert adapter and all("lora" in name for name in adapter)


# ------------------------------------------------------------------------------------------------ resuming


class Interrupt(RuntimeError):
    pass


def resumed(folder: Path, **settings: Any) -> tuple[AgentDistillTrainer, AgentDistillTrainer]:
    """A run of four updates in one piece, and one that died behind the second and went on from its checkpoint."""
    common = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4, **settings}
    whole = make_distill(folder / "whole", play_alone, make_model(), **common)
    whole.train()
    first = make_distill(folder / "parts", play_alone, make_model(), **common)

    def interrupted(trainer: Any, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        if trainer.state.global_step == 2:
            raise Interrupt
        return play_alone(trainer, examples)

    first.rollout = interrupted
    with pytest.raises(Interrupt):
        first.train()
    second = make_distill(folder / "parts", play_alone, make_model(seed=7), **common)
    second.train(resume_from_checkpoint=True)
    assert second.state.global_step == 4
    return whole, second


@pytest.mark.parametrize("settings", [{}, {"distill_loss": "sampled", "num_iterations": 2}], ids=["full", "sampled"])
def test_a_resumed_run_is_the_run_that_was_not_interrupted(settings: dict[str, Any], tmp_path: Path) -> None:
    whole, parts = resumed(tmp_path, **settings)
    assert torch.equal(weights(whole.model), weights(parts.model))
    last, other = (trainer.state.log_history[-2] for trainer in (whole, parts))
    assert last["step"] == other["step"] == 4
    assert all(last[name] == other[name] for name in last if name.startswith(("distill/", "reward", "loss")) and "seconds" not in name)


# ------------------------------------------------------------------------------------------------ memory and work


def counted(patch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    states = ModelTeacher.states

    def count(self: Any, ids: Any, attention: Any, scored: Any) -> Any:
        seen.append(ids.numel())
        return states(self, ids, attention, scored)

    patch.setattr(ModelTeacher, "states", count)
    return seen


@pytest.mark.parametrize("which", ["full", "sampled"])
def test_the_teacher_reads_each_row_once_however_often_it_is_trained_on(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = counted(monkeypatch)
    trainer = make_distill(tmp_path, random_batch(3, logprobs=False), distill_loss=which, num_iterations=3, max_steps=3)
    trainer.train()
    assert len(seen) == 1
    figures = [entry for entry in trainer.state.log_history if "distill/tokens_scored" in entry]
    assert sum(entry["distill/tokens_scored"] for entry in figures) > 0 and figures[-1]["distill/tokens_scored"] == 0


def test_the_teacher_keeps_to_the_token_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = counted(monkeypatch)
    make_distill(tmp_path, random_batch(4, groups=4), max_tokens_per_microbatch=40, max_steps=1).train()
    assert len(seen) > 2 and max(seen) <= 40


def test_settings_of_another_trainer_and_replay_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="args must be an AgentDistillConfig"):
        AgentDistillTrainer(make_model(), make_args(tmp_path), processing_class=make_tokenizer(), teacher=make_model())
    with pytest.raises(ValueError, match="scores what the student samples now"):
        make_distill(tmp_path, random_batch(1), replay=SimpleNamespace())
