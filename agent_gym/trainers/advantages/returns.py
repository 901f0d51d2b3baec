"""What all estimators stand on: which trajectories count, their returns, their groups, and standard deviations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from agent_gym.trainers.advantages.registry import Advantages, FloatArray
from agent_gym.trajectory import StopReason, Trajectory

__all__ = [
    "EPSILON",
    "MAX_RETURN",
    "Scale",
    "exclusion_reason",
    "group_members",
    "is_flat",
    "per_step",
    "relative_to_group",
    "returns",
    "returns_to_go",
    "screen",
    "whiten",
    "zero_variance_groups",
]

Scale: TypeAlias = Literal["group", "batch", "none"]
EPSILON = 1e-4
"""Added to every standard deviation that is divided by, as in TRL's GRPOTrainer."""
MAX_RETURN = 1e30
"""Returns beyond this magnitude count as not finite: their advantages would not fit into float32."""


def exclusion_reason(trajectory: Trajectory) -> str | None:
    """Say why a trajectory takes no part in the statistics and in the loss; None when it does.

    Args:
        trajectory: the episode.

    Returns:
        "env_fault", "no_steps", "nonfinite_reward" or None.
    """
    if trajectory.stop_reason is StopReason.ENV_FAULT:
        return "env_fault"
    if not trajectory.steps:
        return "no_steps"
    if not all(math.isfinite(step.reward) for step in trajectory.steps):
        return "nonfinite_reward"
    magnitude = sum(abs(step.reward) for step in trajectory.steps)
    return None if magnitude <= MAX_RETURN else "nonfinite_reward"


def screen(trajectories: Sequence[Trajectory]) -> tuple[list[int], dict[int, str]]:
    """Split a batch into the trajectories that count and those that do not.

    Args:
        trajectories: the batch.

    Returns:
        The positions that count, and position -> reason of the others (see `exclusion_reason`).
    """
    reasons = {number: reason for number, item in enumerate(trajectories) if (reason := exclusion_reason(item)) is not None}
    return [number for number in range(len(trajectories)) if number not in reasons], reasons


def returns(trajectories: Sequence[Trajectory], gamma: float | None = None) -> FloatArray:
    """Return G = sum_t gamma^t r_t of each trajectory (gamma None: 1), NaN for one that does not count.

    Args:
        trajectories: the batch.
        gamma: discount per step in [0, 1], None for none.

    Returns:
        Shape (number of trajectories,), float64.
    """
    result = np.full(len(trajectories), np.nan)
    for number, trajectory in enumerate(trajectories):
        if exclusion_reason(trajectory) is None:
            result[number] = returns_to_go(trajectory, gamma)[0]
    return result


def returns_to_go(trajectory: Trajectory, gamma: float | None = None) -> FloatArray:
    """Return G_t = sum_{k>=t} gamma^(k-t) r_k for each step t.

    Args:
        trajectory: an episode with finite rewards.
        gamma: discount per step in [0, 1], None for none.

    Returns:
        Shape (number of steps,), float64.

    Raises:
        ValueError: when gamma is outside [0, 1].
    """
    discount = 1.0 if gamma is None else float(gamma)
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"gamma={gamma} lies outside [0, 1]")
    result = np.zeros(len(trajectory.steps))
    running = 0.0
    for position in range(len(trajectory.steps) - 1, -1, -1):
        running = trajectory.steps[position].reward + discount * running
        result[position] = running
    return result


def group_members(trajectories: Sequence[Trajectory], values: FloatArray) -> list[list[int]]:
    """Return the positions of each group's members that count.

    Args:
        trajectories: the batch.
        values: shape (number of trajectories,), float64; NaN for those that do not count.

    Returns:
        The groups in order of appearance, without empty ones.

    Raises:
        ValueError: for a trajectory without a group_id.
    """
    members: dict[str, list[int]] = {}
    for number, trajectory in enumerate(trajectories):
        if not trajectory.group_id:
            raise ValueError(
                f"trajectory {number} (task {trajectory.task_id!r}) has no group_id; "
                "a group-relative estimator compares episodes with the same group_id, so give each episode one"
            )
        if not math.isnan(values[number]):
            members.setdefault(trajectory.group_id, []).append(number)
    return list(members.values())


def is_flat(values: FloatArray) -> bool:
    """Whether there is no variance, up to what float64 makes of equal sums in another order.

    Args:
        values: shape (n,), float64.

    Returns:
        True for fewer than two values.
    """
    return len(values) < 2 or bool(np.ptp(values) <= 1e-12 * np.max(np.abs(values)))


def zero_variance_groups(trajectories: Sequence[Trajectory], gamma: float | None = None) -> list[list[int]]:
    """Return the groups in which all returns are equal or fewer than two members count: nothing can be learned from comparing them.

    Args:
        trajectories: the batch; each needs a group_id.
        gamma: as for `returns`.

    Returns:
        The positions of each such group's members that count (groups without any are left out).
    """
    values = returns(trajectories, gamma)
    return [group for group in group_members(trajectories, values) if is_flat(values[group])]


def relative_to_group(values: FloatArray, groups: Sequence[Sequence[int]], scale: Scale) -> FloatArray:
    """Centre numbers within groups and, if asked, divide by a standard deviation.

    Args:
        values: shape (n,), float64; NaN for what does not count.
        groups: positions in `values`, each in one group at most.
        scale: divide by the standard deviation of the "group", of all that count ("batch"), or not at all ("none").

    Returns:
        Shape (n,), float64; exact zeros in groups without variance and outside of the groups.

    Raises:
        ValueError: for an unknown scale.
    """
    if scale not in ("group", "batch", "none"):
        raise ValueError(f"scale={scale!r} is unknown; choose group, batch or none")
    counted = values[~np.isnan(values)]
    result = np.zeros(len(values))
    for group in groups:
        mine = values[list(group)]
        if is_flat(mine):
            continue
        centred = mine - mine.mean()
        if scale == "group":
            centred = centred / (mine.std(ddof=1) + EPSILON)
        elif scale == "batch":
            centred = centred / (counted.std(ddof=1) + EPSILON)
        result[list(group)] = centred
    return result


def per_step(trajectories: Sequence[Trajectory], values: FloatArray) -> Advantages:
    """Give every step of a trajectory the trajectory's number.

    Args:
        trajectories: the batch.
        values: shape (number of trajectories,), float64.

    Returns:
        One number per step.
    """
    filled: list[Sequence[float | FloatArray]] = []
    for trajectory, value in zip(trajectories, values, strict=True):
        filled.append([float(value)] * len(trajectory.steps))
    return filled


def whiten(values: Sequence[FloatArray | None]) -> list[FloatArray | None]:
    """Whiten over the whole batch: (x - mean) / (std + EPSILON); zeros where there is no variance.

    Args:
        values: float64 arrays of shape (n,), each of its own length; None for what does not count.

    Returns:
        The same shapes, float64.
    """
    present = [item for item in values if item is not None]
    flat = np.concatenate(present) if present else np.zeros(0)
    if is_flat(flat):
        return [None if item is None else np.zeros(len(item)) for item in values]
    mean, deviation = flat.mean(), flat.std(ddof=1)
    return [None if item is None else (item - mean) / (deviation + EPSILON) for item in values]
