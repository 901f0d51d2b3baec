"""The settings of PPO: defaults, groups of one, and refusals that name the setting."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from agent_gym.trainers import AgentGRPOConfig, AgentPPOConfig
from agent_gym.trainers.kinds import TRAINERS, get_trainer
from agent_gym.trainers.presets import PRESETS, get_preset
from agent_gym.trainers.presets.base import PPO_DEFAULTS, PPO_KEYS, EmbeddedConfig


def make(folder: Path, **settings: Any) -> AgentPPOConfig:
    return AgentPPOConfig(output_dir=str(folder), use_cpu=True, **{"save_strategy": "no", **settings})


def test_defaults_fit_a_critic_and_groups_are_not_needed(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        args = make(tmp_path)
    assert args.has_critic and not AgentGRPOConfig.has_critic
    assert (args.num_generations, args.num_generations_eval, args.advantage, args.generation_batch_size) == (1, 1, "step_gae", 8)
    assert make(tmp_path, num_generations=4).num_generations == 4
    with pytest.raises(ValueError, match="divisible by num_generations"):
        make(tmp_path, num_generations=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"per_device_train_batch_size": 3},
        {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 3},
        {"per_device_train_batch_size": 5, "generation_batch_size": 15, "gradient_accumulation_steps": 3},
        {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 3},
    ],
    ids=["odd", "accumulated", "generation batch", "evaluation"],
)
def test_groups_of_one_go_with_any_batch(settings: dict[str, Any], tmp_path: Path) -> None:
    args = make(tmp_path, **settings)
    assert args.num_generations == 1 and args.num_generations_eval == 1


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"per_device_train_batch_size": 1}, "per_device_train_batch_size=1 and gradient_accumulation_steps=1: an update on one episode"),
    ({"advantage": "grpo"}, r"advantage='grpo' asks no critic.*use AgentGRPOTrainer .*, or step_gae or token_gae"),
    ({"advantage": "gea"}, "choose one of gigpo, grpo"),
    ({"critic_learning_rate": 0.0}, "critic_learning_rate=0.0 must be a positive number"),
    ({"critic_learning_rate": float("nan")}, "critic_learning_rate=nan"),
    ({"critic_epochs": 0}, "critic_epochs=0 must be a whole number of at least 1"),
    ({"critic_minibatches": 0}, "critic_minibatches=0 must be a whole number of at least 1"),
    ({"critic_warmup_updates": -1}, "critic_warmup_updates=-1 must be a whole number of at least 0"),
    ({"value_clip": 0.0}, "value_clip=0.0 must be a positive number, or None"),
    ({"lam": 1.5}, r"lam=1.5 lies outside \[0, 1\]"),
    ({"critic_lam": -0.1}, r"critic_lam=-0.1 lies outside \[0, 1\]"),
    ({"gamma": 1.1}, "gamma=1.1 lies outside"),
    ({"lam": 0.9, "advantage_kwargs": {"lam_step": 0.9}}, "lam=0.9 and advantage_kwargs.lam_step=0.9 are one setting"),
    ({"advantage_kwargs": {"lam_token": 0.9}}, "the settings of 'step_gae' there are lam_step, whitened"),
    ({"drop_zero_variance": True}, "does not compare the members of a group"),
    ({"fp16": True}, "fp16=True: .*use bf16"),
    ({"replay_files": ["a.jsonl"]}, "replay_correction='token_truncate': .*use replay_correction='imitation'"),
    ({"loss_type": "grpo"}, "how its context was cut into rows"),
]


@pytest.mark.parametrize(
    ("settings", "message"), REFUSED, ids=lambda item: repr(next(iter(item.items()))) if isinstance(item, dict) else ""
)
def test_a_setting_that_cannot_work_with_a_critic_is_refused_by_name(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path, **settings)


def test_replay_that_imitates_needs_no_values(tmp_path: Path) -> None:
    assert make(tmp_path, replay_files=["a.jsonl"], replay_correction="imitation").replay_files == ["a.jsonl"]


def test_trainers_are_found_by_name() -> None:
    for kind in TRAINERS.values():
        config, trainer = kind.load_config(), kind.load_trainer()
        assert config.has_critic is kind.critic and trainer.__module__.startswith("agent_gym.trainers")
        assert config.__dataclass_fields__["advantage"].default == kind.advantage
    with pytest.raises(ValueError, match="there is no trainer 'pop'; choose one of grpo, ppo"):
        get_trainer("pop")


def test_settings_of_the_critic_in_an_embedded_run() -> None:
    assert set(PPO_KEYS) <= set(AgentPPOConfig.__dataclass_fields__)
    for preset in map(get_preset, PRESETS):
        assert set(PPO_DEFAULTS) <= set(preset.ppo_defaults) <= set(PPO_KEYS)
        EmbeddedConfig(algorithm="ppo", num_generations=1, ppo=dict(preset.ppo_defaults))
    assert get_preset("AgentR1/ALFWorld-v0").ppo_defaults["gamma"] < 1
    config = EmbeddedConfig(algorithm="ppo", num_generations=1, ppo={"critic_epochs": 4})
    assert config.advantage == "step_gae" and EmbeddedConfig().advantage == "grpo"
    assert EmbeddedConfig(algorithm="ppo", advantage="token_gae").advantage == "token_gae"
    for settings, message in (
        ({"algorithm": "pop"}, "choose one of grpo, ppo"),
        ({"ppo": {"critic_epochs": 4}}, "algorithm='grpo' has no critic"),
        ({"algorithm": "ppo", "ppo": {"epochs": 4}}, "unknown are epochs"),
        ({"algorithm": "ppo", "ppo": {"critic_epochs": "four"}}, "critic_epochs='four' must be a whole number"),
        ({"algorithm": "ppo", "ppo": {"value_clip": "wide"}}, "value_clip='wide' must be a positive number"),
        ({"algorithm": "ppo", "advantage": "rloo"}, "advantage='rloo' asks no critic"),
        ({"algorithm": "ppo", "replay": {"files": ["a"]}}, "replay_correction='token_truncate'"),
        ({"advantage": "step_gae"}, "needs the values of a critic"),
        ({"num_generations": 1}, "num_generations=1 must be at least 2"),
    ):
        with pytest.raises(ValueError, match=message):
            EmbeddedConfig(**settings)  # type: ignore[arg-type]
