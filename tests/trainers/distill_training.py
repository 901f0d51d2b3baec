"""Trainers with a teacher, and what they should do written out in plain PyTorch, for the tests of distillation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from toy_training import gradient, make_model, make_trainer

from agent_gym.trainers.distill import AgentDistillTrainer
from agent_gym.trainers.distill_config import AgentDistillConfig
from agent_gym.trajectory import Trajectory

TEACHER_SEED = 5


def make_distill(folder: Any, trajectories: Sequence[Trajectory] | Any, model: Any = None, **settings: Any) -> AgentDistillTrainer:
    """A distilling trainer whose rollouts are given; its teacher is another random model."""
    if "teacher" not in settings:
        settings["teacher"] = make_model(seed=TEACHER_SEED)
    trainer: AgentDistillTrainer = make_trainer(
        folder, trajectories, model, kind=AgentDistillTrainer, config=AgentDistillConfig, **settings
    )
    return trainer


def logps_behind(model: Any, context: Sequence[int], action: Sequence[int], temperature: float = 1.0) -> torch.Tensor:
    """The whole distributions before each token of an action, by the plainest forward pass."""
    logits = model(input_ids=torch.tensor([[*context, *action]])).logits[0, len(context) - 1 : -1]
    return torch.log_softmax(logits / temperature, dim=-1)


def actions_of(batch: Sequence[Trajectory]) -> list[tuple[list[int], list[int]]]:
    """(context, action) of each action that has tokens."""
    return [(step.observation_ids.tolist(), step.action_ids.tolist()) for item in batch for step in item.steps if len(step.action_ids)]


def full_by_hand(
    model: Any,
    teacher: Any,
    batch: Sequence[Trajectory],
    *,
    temperature: float = 1.0,
    teacher_temperature: float = 1.0,
    forward: bool = False,
) -> tuple[torch.Tensor, float]:
    """The gradient and value of the mean reverse KL over action tokens, one action at a time."""
    model.zero_grad()
    total: Any = 0.0
    count = 0
    for context, action in actions_of(batch):
        own = logps_behind(model, context, action, temperature)
        with torch.no_grad():
            other = logps_behind(teacher, context, action, teacher_temperature)
        total = total + ((other.exp() * (other - own)) if forward else (own.exp() * (own - other))).sum()
        count += len(action)
    (total / count).backward()
    result = gradient(model)
    model.zero_grad()
    return result, float(total.detach()) / count


def sampled_by_hand(
    model: Any, teacher: Any, batch: Sequence[Trajectory], rewards: Sequence[Sequence[float]] | None = None, temperature: float = 1.0
) -> torch.Tensor:
    """The policy gradient whose advantage is log p_teacher - log p_student of the sampled token, and what the reward adds."""
    model.zero_grad()
    total: Any = 0.0
    count = 0
    for number, item in enumerate(batch):
        for place, step in enumerate(item.steps):
            context, action = step.observation_ids.tolist(), step.action_ids.tolist()
            if not action:
                continue
            index = torch.tensor(action)[:, None]
            own = logps_behind(model, context, action, temperature).gather(1, index)[:, 0]
            with torch.no_grad():
                other = logps_behind(teacher, context, action, temperature).gather(1, index)[:, 0]
            advantage = other - own.detach() + (0.0 if rewards is None else rewards[number][place])
            total = total - (advantage * own).sum()
            count += len(action)
    (total / count).backward()
    result = gradient(model)
    model.zero_grad()
    return result
