"""The settings of a distillation: what is refused with its reason, and groups of one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from toy_training import make_args

from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.distill_config import AgentDistillConfig
from agent_gym.trainers.presets import get_preset

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"distill_loss": "forward"}, "distill_loss='forward' is unknown; choose one of auto, full, sampled"),
    ({"distill_loss": "full", "teacher": "http://127.0.0.1:8000"}, "a server tells the log-probabilities of given ids alone"),
    ({"temperature": 0.7, "teacher": "http://127.0.0.1:8000"}, "set teacher_temperature=1.0"),
    ({"reward_weight": -1.0}, "reward_weight=-1.0 must be a number that is not negative"),
    ({"reward_weight": float("nan")}, "reward_weight=nan"),
    ({"reward_weight": 1.0}, "gives a lone episode no advantage"),
    ({"teacher_temperature": 0.0}, "teacher_temperature=0.0 must be a positive number"),
    ({"teacher_chunk_tokens": 0}, "teacher_chunk_tokens=0 must be a whole number of at least 1"),
    ({"teacher_concurrency": 1.5}, "teacher_concurrency=1.5 must be a whole number of at least 1"),
    ({"loss_level": "step"}, "a mean over action tokens"),
    ({"drop_zero_variance": True, "num_generations": 2}, "would leave episodes out that the teacher has something to say of"),
    ({"replay_files": ["x.jsonl"]}, "scores what the student samples now"),
    ({"advantage": "step_gae"}, "--algorithm ppo"),
    ({"per_device_train_batch_size": 1}, "an update on one episode"),
    ({"top_p": 0.9}, "top_p=0.9 truncates"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_settings_that_cannot_work_are_refused_with_the_reason(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make_args(tmp_path, AgentDistillConfig, **{"num_generations": 1, **settings})


def test_what_goes_together_is_taken(tmp_path: Path) -> None:
    alone = make_args(tmp_path, AgentDistillConfig, num_generations=1)
    assert (alone.num_generations, alone.num_generations_eval, alone.temperature_of_teacher) == (1, 1, 1.0)
    make_args(tmp_path, AgentDistillConfig, reward_weight=1.0, num_generations=2)
    make_args(tmp_path, AgentDistillConfig, reward_weight=1.0, num_generations=1, advantage="reinforce")
    assert make_args(tmp_path, AgentDistillConfig, temperature=0.7).temperature_of_teacher == 0.7
    assert make_args(tmp_path, AgentDistillConfig, temperature=0.7, teacher_temperature=1).temperature_of_teacher == 1.0


def test_one_default_differs_from_grpo() -> None:
    ours, theirs = ({item.name: item.default for item in fields(kind)} for kind in (AgentDistillConfig, AgentGRPOConfig))
    assert {name for name in theirs if ours[name] != theirs[name]} == {"num_generations"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "distill"}, "which model is learned from"),
        ({"distill": {"teacher": "x"}}, "algorithm='grpo' has no teacher"),
        ({"algorithm": "distill", "distill": {"teacher": "x", "lr": 1}}, "unknown are lr"),
        ({"algorithm": "distill", "distill": {"teacher": "http://h:1", "distill_loss": "full"}}, "given ids alone"),
        ({"algorithm": "distill", "distill": {"teacher": "x", "reward_weight": -1}}, "reward_weight=-1"),
        ({"algorithm": "distill", "distill": {"teacher": "x"}, "replay": {"files": ["y"]}}, "what the student samples now"),
    ],
)
def test_an_embedded_run_checks_the_same_before_it_begins(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_preset("AgentR1/HotpotQA-v0").config(**settings)
