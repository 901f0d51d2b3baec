"""Trainers with a critic, episodes that end in every way, and a critic's loss written out, for the tests of PPO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from toy_training import make_trainer, random_batch, random_ids

from agent_gym.trainers.ppo import AgentPPOTrainer
from agent_gym.trainers.ppo_config import AgentPPOConfig
from agent_gym.trajectory import StopReason, Trajectory

LEVELS = {"step_gae": "step", "token_gae": "token"}


def make_ppo(folder: Any, trajectories: Sequence[Trajectory] | Any, model: Any = None, **settings: Any) -> AgentPPOTrainer:
    """A PPO trainer whose rollouts are given."""
    trainer: AgentPPOTrainer = make_trainer(folder, trajectories, model, kind=AgentPPOTrainer, config=AgentPPOConfig, **settings)
    return trainer


def limited(item: Trajectory, reason: StopReason = StopReason.MAX_TURNS) -> Trajectory:
    """The same episode, ended by a limit."""
    last = replace(item.steps[-1], terminated=False, truncated=True, stop_reason=reason)
    return replace(item, steps=(*item.steps[:-1], last))


def mixed_batch(seed: int = 1, groups: int = 4, **options: Any) -> list[Trajectory]:
    """Episodes with growing and rewritten contexts, empty actions, and ends of every kind."""
    batch = random_batch(seed, groups=groups, **{"context": "mixed", "empty": 0.2, "logprobs": False, **options})
    batch[1] = limited(batch[1])
    batch[2] = limited(batch[2], StopReason.CONTEXT_LIMIT)
    batch[3] = limited(batch[3], StopReason.TIME_LIMIT)
    return batch


def knowing(critic: Any, seed: int = 3, scale: float = 0.3) -> Any:
    """Give a critic something to say: random weights in its head."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        critic.head.weight.copy_(scale * torch.randn(critic.head.weight.shape, generator=generator, dtype=critic.head.weight.dtype))
        critic.head.bias.fill_(0.1)
    return critic


def said_by_hand(critic: Any, ids: Sequence[int]) -> Any:
    """V at the last of some tokens, by the plainest forward pass; a tensor with a gradient."""
    hidden = critic.backbone(input_ids=torch.tensor([list(ids)])).last_hidden_state[0, -1]
    return (hidden.to(critic.head.weight.dtype) @ critic.head.weight[0]) + critic.head.bias[0]


def states_of(item: Trajectory, level: str) -> list[tuple[int, list[int]]]:
    """(step, the tokens before the decision) of every state."""
    found = []
    for number, step in enumerate(item.steps):
        shown, acted = step.observation_ids.tolist(), step.action_ids.tolist()
        if level == "step":
            found.append((number, shown))
        else:
            found += [(number, shown + acted[:position]) for position in range(len(acted))]
    return found


def flat(numbers: Any) -> np.ndarray:
    """Per-step numbers or arrays, one after another."""
    return np.concatenate([np.zeros(0), *(np.atleast_1d(step) for item in numbers for step in item)])


def critic_weights(critic: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1).double() for parameter in critic.parameters()])


__all__ = [
    "LEVELS",
    "critic_weights",
    "flat",
    "knowing",
    "limited",
    "make_ppo",
    "mixed_batch",
    "random_ids",
    "said_by_hand",
    "states_of",
]
