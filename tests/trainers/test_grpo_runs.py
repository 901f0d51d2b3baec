"""Whole training runs of the trainer: skipping, stopping, resuming, evaluating, logging, saving."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from peft import LoraConfig, PeftModel
from toy_training import (
    VOCAB,
    make_args,
    make_model,
    make_tokenizer,
    make_trainer,
    random_batch,
    random_trajectory,
    relative_error,
    rows_for,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from agent_gym.chat import tokenizer_fingerprint
from agent_gym.flows import TooManyFaults
from agent_gym.trainers.grpo import AgentGRPOTrainer, NoLearningSignalError
from agent_gym.trainers.metrics import describe
from agent_gym.trajectory import StopReason, Trajectory

pytestmark = pytest.mark.filterwarnings("ignore:steps_per_generation:UserWarning")


def play(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
    """Random episodes that are a function of the optimiser step and the examples: a run can be repeated and resumed."""
    step = trainer.state.global_step
    episodes = []
    for number, example in enumerate(examples):
        rng = np.random.default_rng([step, number, example["seed"], trainer.mode == "eval"])
        episodes.append(replace(random_trajectory(rng, "x", context="mixed"), group_id="", task_id=f"seed-{example['seed']}"))
    return episodes


def weights(model: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1).double() for parameter in model.parameters()])


def test_a_run_logs_only_names_that_are_described_and_no_nan(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, play, max_steps=3, is_correction="token_truncate", num_iterations=1)
    before = weights(trainer.model)
    trainer.train()
    assert relative_error(weights(trainer.model), before) > 1e-4
    entries = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(entries) == 3
    for entry in entries:
        for name, value in entry.items():
            assert describe(name), f"{name} is not in METRICS"
            assert value is not None, name
            assert math.isfinite(value), name
    expected = {"reward", "reward_std", "frac_reward_zero_std", "rollout/turns_mean", "rollout/rows_per_traj", "batch/pad_frac", "adv/std"}
    expected |= {"is/mean", "is/max", "logp_diff/mean", "entropy", "clip_ratio/region_mean", "step_time", "rollout/seconds"}
    assert expected <= set(entries[0])


def test_groups_are_runs_of_one_row_in_one_batch(tmp_path: Path) -> None:
    seen: list[list[dict[str, Any]]] = []

    def rollout(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        seen.append([dict(example) for example in examples])
        return play(trainer, examples)

    trainer = make_trainer(tmp_path, rollout, max_steps=2, train_dataset=[{"env_id": "Toy"}] * 8, shuffle_dataset=False)
    trainer.train()
    assert len(seen) == 2
    for batch in seen:
        groups = [example["group_id"] for example in batch]
        assert [groups.count(name) for name in dict.fromkeys(groups)] == [2, 2, 2, 2]  # equal rows, yet four groups
        assert all(groups[number] == groups[number + 1] for number in range(0, 8, 2))
        assert all(batch[number]["seed"] == batch[number + 1]["seed"] for number in range(0, 8, 2))
        assert len({example["seed"] for example in batch}) == 4
    assert not {example["group_id"] for example in seen[0]} & {example["group_id"] for example in seen[1]}
    assert [item.group_id for item in trainer.trajectories] == [example["group_id"] for example in seen[1]]


def flat(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
    return random_batch(trainer.state.global_step, reward=1.0)


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused", "sgd"])
def test_a_batch_without_signal_is_a_loud_warning_and_moves_nothing(optim: str, tmp_path: Path) -> None:
    """Neither momentum nor weight decay may move a weight in a skipped update."""
    moved: list[torch.Tensor] = []

    def rollout(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        moved.append(weights(trainer.model).clone())
        return play(trainer, examples) if trainer.state.global_step in (0, 3) else flat(trainer, examples)

    trainer = make_trainer(tmp_path, rollout, max_steps=5, optim=optim, weight_decay=0.1, max_no_signal_batches=3)
    with pytest.warns(UserWarning, match="the update is skipped") as caught:
        trainer.train()
    assert len([item for item in caught if "the update is skipped" in str(item.message)]) == 3
    assert not torch.equal(moved[0], moved[1])
    assert torch.equal(moved[1], moved[2])
    assert torch.equal(moved[2], moved[3])
    assert not torch.equal(moved[3], moved[4])
    assert torch.equal(moved[4], weights(trainer.model))
    assert [entry["batch/no_signal"] for entry in trainer.state.log_history if "reward" in entry] == [0, 1, 1, 0, 1]


def test_without_the_guard_momentum_would_have_moved_the_weights(tmp_path: Path) -> None:
    moved: list[torch.Tensor] = []

    def rollout(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        moved.append(weights(trainer.model).clone())
        return flat(trainer, examples) if trainer.state.global_step else play(trainer, examples)

    trainer = make_trainer(tmp_path, rollout, max_steps=2)
    guard = next(item for item in trainer.callback_handler.callbacks if type(item).__name__ == "UpdateGuard")
    trainer.remove_callback(guard)
    with pytest.warns(UserWarning, match="skipped"):
        trainer.train()
    assert not torch.equal(moved[1], weights(trainer.model))


def test_three_batches_without_signal_in_a_row_stop_the_run_with_the_reason(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, flat, max_steps=10)
    with pytest.warns(UserWarning, match="training stops at 3"), pytest.raises(NoLearningSignalError, match="all returns between 1 and 1"):
        trainer.train()
    assert trainer.state.global_step == 2
    forever = make_trainer(tmp_path, flat, max_steps=5, max_no_signal_batches=0)
    with pytest.warns(UserWarning, match="no number"):
        forever.train()
    assert forever.state.global_step == 5


def test_with_a_kl_term_a_batch_without_signal_is_still_trained(tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path / "model")
    moved: list[torch.Tensor] = []

    def rollout(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        moved.append(weights(trainer.model).clone())
        return flat(trainer, examples) if trainer.state.global_step else play(trainer, examples)

    trainer = make_trainer(tmp_path, rollout, str(tmp_path / "model"), max_steps=2, beta=0.5)
    with pytest.warns(UserWarning, match="no group of this generation batch"):
        trainer.train()
    assert not torch.equal(moved[1], weights(trainer.model))
    entries = [entry for entry in trainer.state.log_history if "kl" in entry]
    assert entries[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert entries[1]["kl"] > 1e-6


def broken(share: float) -> Any:
    def rollout(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        episodes = play(trainer, examples)
        for number in range(round(share * len(episodes))):
            last = replace(episodes[number].steps[-1], stop_reason=StopReason.ENV_FAULT, terminated=False, truncated=True)
            episodes[number] = replace(episodes[number], steps=(*episodes[number].steps[:-1], last))
        return episodes

    return rollout


def test_faults_are_left_out_warned_of_and_stop_the_run_when_they_are_many(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, broken(0.25), max_steps=30)
    with pytest.warns(UserWarning, match=r"above 5\s?%"), pytest.raises(TooManyFaults, match=r"above 20\s?%"):
        trainer.train()
    entries = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert entries[0]["rollout/faults"] == 2
    assert entries[-1]["rollout/fault_frac"] == pytest.approx(0.2, abs=0.02)
    stopped = make_trainer(tmp_path, broken(0.25), max_steps=3, on_fault="stop")
    with pytest.raises(TooManyFaults, match="on_fault='stop'"):
        stopped.train()
    assert stopped.state.global_step == 0


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_iterations": 2, "save_steps": 2},
        {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, "save_steps": 2},
    ],
    ids=["plain", "two iterations", "two windows"],
)
def test_a_resumed_run_ends_with_the_weights_of_one_that_was_not_interrupted(settings: dict[str, Any], tmp_path: Path) -> None:
    common = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, **settings}
    whole = make_trainer(tmp_path / "whole", play, make_model(), **common)
    whole.train()
    first = make_trainer(tmp_path / "parts", play, make_model(), **{**common, "max_steps": 4})

    class Interrupt(RuntimeError):
        pass

    def interrupted(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        if trainer.state.global_step == 2:
            raise Interrupt
        return play(trainer, examples)

    first.rollout = interrupted
    with pytest.raises(Interrupt):
        first.train()
    second = make_trainer(tmp_path / "parts", play, make_model(), **common)
    second.train(resume_from_checkpoint=True)
    assert second.state.global_step == 4
    assert relative_error(weights(second.model), weights(whole.model)) < 1e-6
    assert relative_error(weights(make_model()), weights(whole.model)) > 1e-3


def test_evaluation_with_several_sub_batches_and_a_ragged_last_batch(tmp_path: Path) -> None:
    trainer = make_trainer(
        tmp_path,
        play,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        eval_dataset=rows_for(5),
        per_device_eval_batch_size=4,
        num_generations_eval=2,
        max_tokens_per_microbatch=30,
    )
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(entries) == 2
    for entry in entries:
        assert math.isfinite(entry["eval_loss"])
        assert {"eval_reward", "eval_rollout/turns_mean", "eval_entropy", "eval_batch/sub_steps"} <= set(entry)
        assert entry["eval_batch/sub_steps"] > 1
        assert all(describe(name) for name in entry), [name for name in entry if not describe(name)]
        assert all(value is not None and math.isfinite(value) for value in entry.values())


def test_the_completions_table_has_one_line_per_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer(tmp_path, play, max_steps=2, log_completions=True, num_completions_to_print=1)
    trainer.train()
    capsys.readouterr()
    table = pd.read_parquet(sorted((tmp_path / "completions").glob("*.parquet"))[-1])
    assert len(table) == 8
    assert set(table.columns) == {"step", "prompt", "completion", "return", "advantage", "env", "task", "turns", "stop_reason", "success"}
    rows = sum(len(item.steps) for item in trainer.trajectories)
    assert rows > 8
    decode = trainer._tokenizer.decode
    for line, item in zip(table.to_dict("records"), trainer.trajectories, strict=True):
        assert line["turns"] == len(item.steps)
        assert line["return"] == pytest.approx(item.total_reward)
        assert line["prompt"] == decode(item.steps[0].observation_ids.tolist())
        assert all(decode(step.action_ids.tolist()) in line["completion"] for step in item.steps)


def test_a_checkpoint_opens_with_from_pretrained_and_brings_its_tokenizer(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, play, max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    folder = tmp_path / "checkpoint-1"
    assert not list(tmp_path.rglob("README.md"))  # a model card of another method
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer_fingerprint(tokenizer) == trainer.make_env.fingerprint
    ids = torch.arange(2, 12)[None]
    assert torch.allclose(model(ids).logits, trainer.model(ids).logits, atol=1e-6)
    assert relative_error(weights(make_model()), weights(model)) > 1e-4


def test_lora_trains_the_adapter_alone_and_its_checkpoint_opens(tmp_path: Path) -> None:
    base = make_model(dtype=torch.float32)
    base.save_pretrained(tmp_path / "base")
    trainer = make_trainer(
        tmp_path,
        play,
        str(tmp_path / "base"),
        peft_config=LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        max_steps=3,
        save_strategy="steps",
        save_steps=3,
        beta=0.1,
        activation_checkpointing=True,
    )
    trainer.train()
    frozen = {name: value for name, value in trainer.model.named_parameters() if not value.requires_grad}
    original = dict(base.named_parameters())
    for name, value in frozen.items():
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        assert torch.equal(value, original[plain]), name
    entries = [entry for entry in trainer.state.log_history if "kl" in entry]
    assert entries[0]["kl"] == pytest.approx(0.0, abs=0.05)
    opened = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "checkpoint-3").eval()
    trainer.model.eval()
    ids = torch.arange(2, 12)[None]
    assert torch.allclose(opened(ids).logits, trainer.model(ids).logits, atol=1e-5)
    assert not torch.allclose(opened(ids).logits, base(ids).logits, atol=1e-5)


def test_dropout_is_off_while_episodes_are_played_and_metrics_stay_those_of_training(tmp_path: Path) -> None:
    modes: list[tuple[bool, bool, str]] = []

    def rollout(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        modes.append((trainer.model.training, torch.is_grad_enabled(), trainer.mode))
        return play(trainer, examples)

    trainer = make_trainer(tmp_path, rollout, max_steps=1)
    trainer.train()
    assert modes == [(False, False, "train")]
    assert trainer.model.training


def test_episodes_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    def rollout(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        return [replace(item, tokenizer_fingerprint="0123456789abcdef") for item in play(trainer, examples)]

    with pytest.raises(ValueError, match="0123456789abcdef"):
        make_trainer(tmp_path, rollout).train()


@pytest.mark.parametrize("name", ["reward_funcs", "tools", "rollout_func", "environment_factory"])
def test_arguments_of_stock_grpo_without_meaning_here_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=f"takes no {name}"):
        AgentGRPOTrainer(make_model(), make_args(tmp_path), processing_class=make_tokenizer(), **{name: [len]})


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    common: dict[str, Any] = {"train_dataset": rows_for(), "processing_class": tokenizer}
    with pytest.raises(ValueError, match="a model with a folder or name, which the engine opens too"):
        AgentGRPOTrainer(make_model(), make_args(tmp_path, use_vllm=True), **common)
    with pytest.raises(ValueError, match="replaces policy and flow"):
        AgentGRPOTrainer(make_model(), make_args(tmp_path), rollout=play, policy=object(), **common)
    with pytest.raises(ValueError, match="resize_token_embeddings"):
        AgentGRPOTrainer(make_model(vocab=VOCAB - 1), make_args(tmp_path), rollout=play, **common)
    with pytest.raises(ValueError, match="processing_class"):
        AgentGRPOTrainer(make_model(), make_args(tmp_path), rollout=play, train_dataset=rows_for())
    with pytest.raises(ValueError, match="no rows"):
        AgentGRPOTrainer(make_model(), make_args(tmp_path), rollout=play, train_dataset=[], processing_class=tokenizer)
    from trl import GRPOConfig

    with pytest.raises(TypeError, match="AgentGRPOConfig"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        AgentGRPOTrainer(make_model(), GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False), rollout=play, **common)


def test_a_rollout_function_that_breaks_leaves_the_model_in_training_mode(tmp_path: Path) -> None:
    def rollout(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        raise KeyError("search server")

    trainer = make_trainer(tmp_path, rollout)
    trainer.model.train()
    with pytest.raises(KeyError):
        trainer._generate_and_score_completions([rows_for()[0]] * 8)
    assert trainer.model.training


def test_the_correction_is_on_by_itself_only_for_foreign_samplers(tmp_path: Path) -> None:
    assert make_trainer(tmp_path, play, is_correction="auto")._is_mode == "token_truncate"
    own = AgentGRPOTrainer(
        make_model(), make_args(tmp_path), env=lambda row: None, train_dataset=rows_for(), processing_class=make_tokenizer()
    )
    assert own._is_mode == "none"
