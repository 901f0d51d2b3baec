"""The configuration: defaults that fit an agent, and refusals that give the reason."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from agent_gym import trainers
from agent_gym.trainers.config import CISPO_EPSILON_HIGH, AgentGRPOConfig


def make(folder: Path, **settings: Any) -> AgentGRPOConfig:
    return AgentGRPOConfig(output_dir=str(folder), use_cpu=True, **{"per_device_train_batch_size": 8, **settings})


def test_the_cpu_gets_neither_bfloat16_nor_gradient_checkpointing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        args = make(tmp_path)
    assert args.bf16 is False
    assert args.gradient_checkpointing is False
    assert args.activation_checkpointing is False
    assert args.lr_scheduler_type == "constant"
    assert args.warmup_steps == 0
    assert args.loss_type == "dapo"
    assert args.beta == 0.0


def test_what_is_asked_for_wins_over_the_device(tmp_path: Path) -> None:
    assert make(tmp_path, bf16=True).bf16 is True
    assert make(tmp_path, activation_checkpointing=True).gradient_checkpointing is True


def test_cispo_gets_a_cap_that_is_one(tmp_path: Path) -> None:
    assert make(tmp_path, loss_type="cispo").epsilon_high == CISPO_EPSILON_HIGH
    assert make(tmp_path, loss_type="dapo").epsilon_high is None
    with pytest.raises(ValueError, match="cap of the importance ratio itself"):
        make(tmp_path, loss_type="cispo", epsilon_high=0.28)


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"loss_type": kind}, "how its context was cut into rows") for kind in ("grpo", "dr_grpo", "bnpo", "luspo", "sapo", "vespo")),
    ({"importance_sampling_level": "sequence"}, "'step' for one ratio per action"),
    ({"vllm_importance_sampling_mode": "sequence_mask"}, "depends on merging"),
    ({"vllm_importance_sampling_mode": "sequence_truncate"}, "depends on merging"),
    ({"mask_truncated_completions": True}, "mask_truncated_steps"),
    ({"reward_weights": [1.0]}, "step reward"),
    ({"multi_objective_aggregation": "normalize_then_sum"}, "nothing to aggregate"),
    ({"off_policy_mask_threshold": 0.1}, "masks whole rows"),
    ({"top_entropy_quantile": 0.2}, "how rows are packed"),
    ({"use_adaptive_entropy": True}, "how rows are packed"),
    ({"top_p": 0.9}, "biased importance ratio"),
    ({"top_k": 20}, "biased importance ratio"),
    ({"min_p": 0.1}, "biased importance ratio"),
    ({"temperature": 0.0}, "must be above 0"),
    ({"repetition_penalty": 1.1}, "unpenalised"),
    ({"generation_kwargs": {"num_beams": 2}}, "TRL's generation is not used"),
    ({"cache_implementation": "static"}, "TRL's generation is not used"),
    ({"use_transformers_continuous_batching": True}, "TRL's generation is not used"),
    ({"max_tool_calling_iterations": 3}, "max_turns"),
    ({"remove_unused_columns": True}, "would remove"),
    ({"advantage": "grop"}, "grpo, rebn, reinforce"),
    ({"loss_level": "episode"}, "token, trajectory, step"),
    ({"is_correction": "sequence"}, "token_truncate"),
    ({"on_fault": "ignore"}, "drop, stop"),
    ({"scale_rewards": "token"}, "group, batch, none"),
    ({"gamma": 1.1}, "outside"),
    ({"drop_zero_variance": True, "advantage": "reinforce"}, "does not compare"),
    ({"drop_zero_variance": True, "advantage": "gigpo"}, "compares more than the returns"),
    ({"include_num_input_tokens_seen": "all"}, "batch/trained_tokens"),
    ({"advantage": "step_gae"}, "needs the values of a critic"),
    ({"advantage": "token_gae"}, "needs the values of a critic"),
    ({"advantage": "gigpo", "advantage_kwargs": {"similarty": 0.9}}, "there are similarity, step_weight"),
    ({"advantage_kwargs": {"scale": "none"}}, "the field scale_rewards"),
    ({"is_clip": 0.0}, "positive"),
    ({"max_tokens_per_microbatch": 0}, "at least 1"),
    ({"max_turns": 0}, "at least 1"),
    ({"max_fault_retries": -1}, "negative"),
    ({"max_no_signal_batches": -1}, "negative"),
    ({"steps_per_generation": 3, "gradient_accumulation_steps": 2}, "one must divide the other"),
    ({"steps_per_generation": 4, "gradient_accumulation_steps": 2, "save_steps": 5}, "use a multiple of 2, for example 6"),
    ({"num_iterations": 3, "save_steps": 4, "gradient_accumulation_steps": 1}, "use a multiple of 3, for example 6"),
]


@pytest.mark.parametrize(
    ("settings", "message"), REFUSED, ids=lambda item: next(iter(item.items())).__repr__() if isinstance(item, dict) else ""
)
def test_a_setting_that_breaks_exactness_is_refused_with_the_reason(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(ValueError, match=message):
            make(tmp_path, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps_per_generation": 4}, "all but the first off-policy"),
        ({"steps_per_generation": 1, "gradient_accumulation_steps": 2}, "averages 2"),
    ],
)
def test_several_updates_per_batch_or_the_reverse_are_warned_of(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=message):
        make(tmp_path, **{"gradient_accumulation_steps": 1, "save_strategy": "no", **settings})


def test_vllm_keys_are_known(tmp_path: Path) -> None:
    assert make(tmp_path, use_vllm=True, vllm_mode="server").vllm_importance_sampling_mode == "token_truncate"


@pytest.mark.parametrize("name", ["config", "grpo"])
def test_what_is_missing_or_broken_is_told_beside_how_to_install_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(trainers.__path__[0]) / f"{name}.py"
    for module in ("trl.trainer.grpo_config", "trl.trainer.grpo_trainer"):
        monkeypatch.setitem(sys.modules, module, None)
    for ours in ("playing", "resilience"):  # through which grpo.py takes TRL's trainer
        monkeypatch.delitem(sys.modules, f"agent_gym.trainers.{ours}", raising=False)
    spec = importlib.util.spec_from_file_location(f"fresh_{name}", source)
    assert spec is not None and spec.loader is not None
    with pytest.raises(ImportError, match=r"agentr1-gym\[train\].*import of trl\.trainer\.grpo_\w+ halted"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
