"""Estimators from the returns alone: GRPO, RLOO, REINFORCE, REINFORCE++ with and without a baseline, ReBN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_gym.trainers.advantages.registry import Advantages, FloatArray, register_advantage
from agent_gym.trainers.advantages.returns import (
    Scale,
    exclusion_reason,
    group_members,
    is_flat,
    per_step,
    relative_to_group,
    returns,
    returns_to_go,
    whiten,
)
from agent_gym.trajectory import Trajectory

__all__ = ["grpo", "rebn", "reinforce", "reinforce_pp", "reinforce_pp_baseline", "rloo"]


@register_advantage("grpo", group_relative=True)
def grpo(trajectories: Sequence[Trajectory], *, scale: Scale = "group", gamma: float | None = None) -> Advantages:
    """Group-relative policy optimisation: A = (G - mean_group G) / (std + EPSILON), the same for every step of the episode.

    Sources: DeepSeekMath (arXiv 2402.03300, section 4.1.2, outcome supervision); `scale="none"` is Dr. GRPO (arXiv 2503.20783, eq. 3);
    `scale="batch"` divides by the standard deviation of the whole batch (arXiv 2508.08221). On one-step episodes equal to TRL's.

    Args:
        trajectories: the batch; each needs a group_id.
        scale: whose standard deviation divides: the group's, the batch's, or none.
        gamma: discount of the return.

    Returns:
        One number per step.

    Raises:
        ValueError: for an unknown scale or a missing group_id.
    """
    values = returns(trajectories, gamma)
    return per_step(trajectories, relative_to_group(values, group_members(trajectories, values), scale))


@register_advantage("rloo", group_relative=True)
def rloo(trajectories: Sequence[Trajectory], *, gamma: float | None = None) -> Advantages:
    """REINFORCE leave-one-out: A_i = G_i - mean of the returns of the other members of the group.

    Source: arXiv 2402.14740, eq. 8 (Kool et al. 2019).

    Args:
        trajectories: the batch; each needs a group_id.
        gamma: discount of the return.

    Returns:
        One number per step.

    Raises:
        ValueError: when a group_id is missing.
    """
    values = returns(trajectories, gamma)
    result = np.zeros(len(values))
    for group in group_members(trajectories, values):
        mine = values[group]
        if not is_flat(mine):
            result[group] = mine - (mine.sum() - mine) / (len(mine) - 1)
    return per_step(trajectories, result)


@register_advantage("reinforce")
def reinforce(trajectories: Sequence[Trajectory], *, gamma: float | None = None) -> Advantages:
    """REINFORCE with reward-to-go and no baseline: A_t = G_t.

    Source: Williams 1992 (Machine Learning 8, eq. 11); reward-to-go by the policy gradient theorem (Sutton et al. 1999). Groups play no part.

    Args:
        trajectories: the batch.
        gamma: discount per step.

    Returns:
        One number per step.
    """
    result: Advantages = []
    for trajectory in trajectories:
        counts = exclusion_reason(trajectory) is None
        result.append(list(returns_to_go(trajectory, gamma)) if counts else [0.0] * len(trajectory.steps))
    return result


@register_advantage("reinforce_pp")
def reinforce_pp(trajectories: Sequence[Trajectory], *, gamma: float | None = None) -> Advantages:
    """REINFORCE++: A_t = (G_t - mean) / (std + EPSILON), mean and deviation over all steps of the batch.

    Source: arXiv 2501.03262 (global batch normalisation of the advantage). Its KL penalty is the trainer's `beta`; here G_t is the
    reward-to-go of the steps. Groups play no part.

    Args:
        trajectories: the batch.
        gamma: discount per step.

    Returns:
        One number per step.
    """
    return _normalised_returns(trajectories, gamma)


@register_advantage("rebn")
def rebn(trajectories: Sequence[Trajectory], *, gamma: float | None = None) -> Advantages:
    """Return batch normalisation: A_t = (G_t - mean) / (std + EPSILON), mean and deviation of the returns-to-go of all steps of the batch.

    Source: GEM (arXiv 2510.01051, section on REINFORCE with ReBN). It knows no KL penalty, and its unit is the turn. REINFORCE++ normalises in
    the same way; where its KL penalty is a term of the loss and its unit is the step, as here, the two names are one estimator. Groups play
    no part, so one episode per task is enough; the paper discounts (`gamma`), which makes early successes worth more.

    Args:
        trajectories: the batch.
        gamma: discount per step.

    Returns:
        One number per step.
    """
    return _normalised_returns(trajectories, gamma)


def _normalised_returns(trajectories: Sequence[Trajectory], gamma: float | None) -> Advantages:
    raw = [returns_to_go(item, gamma) if exclusion_reason(item) is None else None for item in trajectories]
    return [[0.0] * len(item.steps) if values is None else list(values) for item, values in zip(trajectories, whiten(raw), strict=True)]


@register_advantage("reinforce_pp_baseline", group_relative=True)
def reinforce_pp_baseline(trajectories: Sequence[Trajectory], *, gamma: float | None = None) -> Advantages:
    """REINFORCE++ with the group mean as baseline: A' = G - mean_group G, then A = (A' - mean) / (std + EPSILON) over all steps of the batch.

    Source: arXiv 2501.03262 (REINFORCE++-baseline). Groups with fewer than two members that count stay out of the batch statistics and
    get zeros; zero-variance groups are part of the statistics (their A' is 0) and get zeros too.

    Args:
        trajectories: the batch; each needs a group_id.
        gamma: discount of the return.

    Returns:
        One number per step.

    Raises:
        ValueError: when a group_id is missing.
    """
    values = returns(trajectories, gamma)
    centred: list[FloatArray | None] = [None] * len(trajectories)
    flat: set[int] = set()
    for group in group_members(trajectories, values):
        if len(group) < 2:
            continue
        mine = values[group]
        if is_flat(mine):
            flat.update(group)
        shifted = np.zeros(len(mine)) if is_flat(mine) else mine - mine.mean()
        for number, value in zip(group, shifted, strict=True):
            centred[number] = np.full(len(trajectories[number].steps), value)
    result: Advantages = []
    for number, item in enumerate(whiten(centred)):
        zero = item is None or number in flat
        result.append([0.0] * len(trajectories[number].steps) if zero or item is None else list(item))
    return result
