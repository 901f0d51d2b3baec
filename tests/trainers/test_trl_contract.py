"""What the trainer replaces, calls and reads of TRL and transformers, by name and signature. A failure here says what an upgrade changed."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from toy_training import make_trainer, random_batch
from transformers import Trainer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import FusedCausalLMOutput, RepeatSampler, add_fused_lm_head, use_adapter

from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trainers.playing import PlayingTrainer
from agent_gym.trainers.resilience import ResilientTrainer

REPLACED = {
    "_generate_and_score_completions": ["self", "inputs"],
    "_prepare_inputs": ["self", "generation_batch"],
    "compute_loss": ["self", "model", "inputs", "return_outputs", "num_items_in_batch"],
    "create_model_card": ["self", "model_name", "dataset_name", "tags"],
    "get_train_dataloader": ["self"],
    "train": ["self", "resume_from_checkpoint", "trial", "ignore_keys_for_eval"],
    "_get_train_sampler": ["self", "dataset"],
    "_get_output_dir": ["self", "trial"],
    "_save_checkpoint": ["self", "model", "trial"],
    "_save_optimizer_and_scheduler": ["self", "output_dir"],
    "_load_optimizer_and_scheduler": ["self", "checkpoint"],
}
RELIED_ON = {
    "_compute_loss": ["self", "model", "inputs"],
    "training_step": ["self", "model", "inputs", "num_items_in_batch"],
    "prediction_step": ["self", "model", "inputs", "prediction_loss_only", "ignore_keys"],
    "_load_from_checkpoint": ["self", "resume_from_checkpoint", "model"],
    "_get_eval_sampler": ["self", "eval_dataset"],
    "log": ["self", "logs", "start_time"],
}
ATTRIBUTES = [
    "_metrics",
    "_logs",
    "_step",
    "_buffered_inputs",
    "_tokenizer",
    "beta",
    "ref_model",
    "num_iterations",
    "num_generations",
    "num_generations_eval",
    "temperature",
    "max_completion_length",
    "loss_type",
    "epsilon_low",
    "epsilon_high",
    "entropy_coef",
    "aux_loss_enabled",
    "router_aux_loss_coef",
    "pad_to_multiple_of",
    "log_completions",
    "chat_template_kwargs",
    "is_deepspeed_enabled",
    "state",
    "accelerator",
]


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(inspect.unwrap(function)).parameters)


@pytest.mark.parametrize("name", [*REPLACED, *RELIED_ON])
def test_methods_have_the_signatures_we_know(name: str) -> None:
    assert parameters(getattr(GRPOTrainer, name)) == {**REPLACED, **RELIED_ON}[name]


def test_the_fused_head_takes_labels_and_gives_what_we_read() -> None:
    """`scoring.score_tokens` calls `model(..., labels=, fused_lm_head=True)`; the backbone is found as `base_model`."""
    assert {"log_probs", "entropy", "aux_loss"} <= set(FusedCausalLMOutput.__dataclass_fields__)
    source = inspect.getsource(add_fused_lm_head)
    assert '"base_model"' in source
    assert "last_hidden_state[:, :-1]" in source
    assert "labels[:, 1:]" in source


@pytest.mark.parametrize("name", list(REPLACED))
def test_replacements_keep_the_signature(name: str) -> None:
    assert parameters(getattr(AgentGRPOTrainer, name)) == REPLACED[name]


def test_nothing_else_of_trl_is_replaced() -> None:
    ours = {**vars(ResilientTrainer), **vars(PlayingTrainer), **vars(AgentGRPOTrainer)}
    own = {name for name, value in ours.items() if inspect.isfunction(value) and hasattr(GRPOTrainer, name)}
    assert own == {*REPLACED, "__init__"}


def test_attributes_that_we_read_are_there(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, random_batch(0))
    assert [name for name in ATTRIBUTES if not hasattr(trainer, name)] == []
    assert set(trainer._metrics) == {"train", "eval"}
    assert {"prompt", "completion", "rewards", "advantages", "extra"} <= set(trainer._logs)
    assert trainer._step == 0
    assert trainer._buffered_inputs is None


def test_the_loss_is_scaled_by_us_and_not_by_trainer() -> None:
    assert GRPOTrainer.loss_is_scaled_for_ga is True


def test_the_constructor_takes_what_we_pass() -> None:
    names = parameters(GRPOTrainer.__init__)
    assert {"model", "reward_funcs", "args", "train_dataset", "eval_dataset", "processing_class", "peft_config", "callbacks"} <= set(names)


def test_the_sampler_repeats_each_row_for_its_group_and_each_batch_for_its_micro_steps() -> None:
    sampler = RepeatSampler(["a", "b", "c"], mini_repeat_count=2, batch_size=1, repeat_count=2, shuffle=False)
    assert list(sampler) == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]


def test_the_sampler_draws_one_order_per_epoch_from_its_own_generator() -> None:
    """What a resumed run draws beforehand to go on with the order of its epoch."""
    one, other = (RepeatSampler(range(9), mini_repeat_count=1, seed=3) for _ in range(2))
    orders = [list(one) for _ in range(3)]
    for _ in range(2):
        torch.randperm(other.num_samples, generator=other.generator)
    assert list(other) == orders[2] != orders[0]


def test_adapters_are_switched_by_a_context_manager() -> None:
    assert parameters(use_adapter) == ["model", "adapter_name"]


def test_what_waits_for_the_next_record_is_reset_before_training_begins_and_a_record_comes_before_its_checkpoint() -> None:
    loop = inspect.getsource(Trainer._inner_training_loop)
    places = [loop.index(piece) for piece in ("self._tr_loss = ", "self._globalstep_last_logged = ", "callback_handler.on_train_begin(")]
    assert places == sorted(places)
    after = inspect.getsource(Trainer._maybe_log_save_evaluate)
    assert after.index("self.log(") < after.index("self._save_checkpoint(")
    saving = inspect.getsource(Trainer._save_checkpoint)
    assert (
        saving.index("self._save_optimizer_and_scheduler(") < saving.index("self.state.save_to_json(") < saving.index("rotate_checkpoints(")
    )


def test_the_callback_before_the_optimiser_step_is_called_between_clipping_and_step() -> None:
    source = inspect.getsource(Trainer._run_epoch if hasattr(Trainer, "_run_epoch") else Trainer._inner_training_loop)
    places = [source.index(piece) for piece in ("_clip_grad_norm(", "on_pre_optimizer_step(", "self.optimizer.step()")]
    assert places == sorted(places)
    assert hasattr(TrainerCallback, "on_pre_optimizer_step")


def test_every_setting_of_trl_is_one_of_ours() -> None:
    ours, theirs = AgentGRPOConfig.__dataclass_fields__, GRPOConfig.__dataclass_fields__
    assert set(theirs) < set(ours)
    changed = {name for name in theirs if ours[name].default != theirs[name].default}
    assert changed == {
        "lr_scheduler_type",
        "adam_beta2",
        "logging_steps",
        "gradient_checkpointing",
        "vllm_importance_sampling_mode",
    }


def test_the_version_is_one_that_was_tested() -> None:
    assert trl.__version__.startswith("1.16.")
