"""Generalised advantage estimation over steps and over action tokens, from the values of a critic.

The critic is the trainer's: it passes `values`, one number per step (`step_gae`) or per action token (`token_gae`), and `bootstrap`, one per
trajectory, as keywords. The functions know nothing of models. The `..._terms` functions also return what the critic should have said.

What follows the last step of an episode is worth 0 when the task ended (terminated), and the critic's value of the final observation when a
limit ended the episode or it still goes on, except where the limit is the context: a prompt that does not fit is not an observation.
`bootstraps` tells which trajectories need such a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent_gym.trainers.advantages.registry import Advantages, FloatArray, register_advantage
from agent_gym.trainers.advantages.returns import MAX_RETURN, exclusion_reason, whiten
from agent_gym.trajectory import StopReason, Trajectory

__all__ = ["GaeTerms", "bootstraps", "step_gae", "step_gae_terms", "token_gae", "token_gae_terms"]


@dataclass(frozen=True, slots=True)
class GaeTerms:
    """What generalised advantage estimation says of a batch.

    Attributes:
        advantages: not whitened; one entry per step, a number or an array of shape (number of action tokens,).
        targets: advantage plus value, which the critic is trained towards; in the same form. Zeros for trajectories that do not count.
    """

    advantages: Advantages
    targets: Advantages


def bootstraps(trajectory: Trajectory) -> bool:
    """Tell whether the value of the final observation stands for what would have followed the last step.

    Args:
        trajectory: the episode.

    Returns:
        False for one that terminated, ended by the context limit or a fault of the world, or has no steps; True otherwise.
    """
    if not trajectory.steps or trajectory.terminated:
        return False
    return trajectory.stop_reason not in (StopReason.CONTEXT_LIMIT, StopReason.ENV_FAULT)


@register_advantage("step_gae", needs_values=True)
def step_gae(
    trajectories: Sequence[Trajectory],
    *,
    values: Sequence[Any],
    bootstrap: Sequence[float],
    gamma: float | None = None,
    lam_step: float = 0.95,
    whitened: bool = True,
) -> Advantages:
    """Generalised advantage estimation over steps: A_t = sum_{k>=t} (gamma lam_step)^(k-t) delta_k, delta_t = r_t + gamma V_{t+1} - V_t.

    The step is the action; all of its tokens share its advantage. Whitened over all steps of the batch, not over tokens, so that long
    actions count once.

    Sources: arXiv 1506.02438, eq. 16; on steps StepPO (arXiv 2604.18401).

    Args:
        trajectories: the batch.
        values: per trajectory V(s_t), shape (number of steps,): the critic at the last prompt token of step t. Not read where the trajectory
            does not count.
        bootstrap: V(final observation) per trajectory; read only where `bootstraps` says so.
        gamma: discount per step, None for 1.
        lam_step: the trace's decay per step, in [0, 1].
        whitened: (A - mean) / (std + EPSILON) over all steps that count.

    Returns:
        One number per step.

    Raises:
        ValueError: for values that do not fit the steps or are not finite, or a setting out of range.
    """
    terms = step_gae_terms(trajectories, values=values, bootstrap=bootstrap, gamma=gamma, lam_step=lam_step)
    if not whitened:
        return terms.advantages
    raw = [
        np.asarray(item, dtype=np.float64) if exclusion_reason(trajectory) is None else None
        for trajectory, item in zip(trajectories, terms.advantages, strict=True)
    ]
    return [
        [0.0] * len(trajectory.steps) if item is None else list(item) for trajectory, item in zip(trajectories, whiten(raw), strict=True)
    ]


@register_advantage("token_gae", level="token", needs_values=True)
def token_gae(
    trajectories: Sequence[Trajectory],
    *,
    values: Sequence[Any],
    bootstrap: Sequence[float],
    gamma: float | None = None,
    lam_step: float = 0.95,
    gamma_token: float = 1.0,
    lam_token: float = 1.0,
    whitened: bool = True,
) -> Advantages:
    """Generalised advantage estimation over action tokens: A_i = delta_i + g_i l_i A_{i+1}, delta_i = r_i + g_i V_{i+1} - V_i.

    The chain is that of the action tokens of an episode; tokens of the environment are no decisions and are skipped. Between tokens of one
    action g = gamma_token and l = lam_token, from an action to the next one g = gamma and l = lam_step. The reward of a step stands on the last token of its
    action. An empty action has no token: its reward, discounted, goes to the last action token before it, and is one more factor gamma between that token and the
    next (where no token is before it, nothing that was sampled led to it).

    With gamma = gamma_token and lam_step = lam_token it is the estimator of PPO on one long text, over action tokens alone. Whitened over all
    action tokens of the batch.

    Sources: arXiv 1506.02438, eq. 16; discounts of their own inside of turns and between them are VAGEN's (arXiv 2510.16907).

    Args:
        trajectories: the batch.
        values: per trajectory and step V before each action token, shape (number of action tokens,): the critic at the token before it. Not
            read where the trajectory does not count.
        bootstrap: V(final observation) per trajectory; read only where `bootstraps` says so.
        gamma: discount from an action to the next, None for 1.
        lam_step: the trace's decay from an action to the next, in [0, 1].
        gamma_token: discount between tokens of an action.
        lam_token: the trace's decay between tokens of an action.
        whitened: (A - mean) / (std + EPSILON) over all action tokens that count.

    Returns:
        Per step an array of shape (number of action tokens,).

    Raises:
        ValueError: for values that do not fit the tokens or are not finite, or a setting out of range.
    """
    terms = token_gae_terms(
        trajectories,
        values=values,
        bootstrap=bootstrap,
        gamma=gamma,
        lam_step=lam_step,
        gamma_token=gamma_token,
        lam_token=lam_token,
    )
    if not whitened:
        return terms.advantages
    raw = [
        np.concatenate([np.asarray(step, dtype=np.float64) for step in item]) if exclusion_reason(trajectory) is None else None
        for trajectory, item in zip(trajectories, terms.advantages, strict=True)
    ]
    result: Advantages = []
    for trajectory, plain, item in zip(trajectories, terms.advantages, whiten(raw), strict=True):
        result.append(plain if item is None else _by_step(trajectory, item))
    return result


def step_gae_terms(
    trajectories: Sequence[Trajectory],
    *,
    values: Sequence[Any],
    bootstrap: Sequence[float],
    gamma: float | None = None,
    lam_step: float = 0.95,
) -> GaeTerms:
    """Return advantages before whitening and targets of the critic, per step.

    Args:
        trajectories: the batch.
        values: as for `step_gae`.
        bootstrap: as for `step_gae`.
        gamma: as for `step_gae`.
        lam_step: as for `step_gae`.

    Returns:
        One number per step each.

    Raises:
        ValueError: as for `step_gae`.
    """
    discount = _fraction("gamma", 1.0 if gamma is None else gamma)
    _fraction("lam_step", lam_step)
    _check_lengths(trajectories, values, bootstrap)
    advantages: Advantages = []
    targets: Advantages = []
    for number, trajectory in enumerate(trajectories):
        if exclusion_reason(trajectory) is not None:
            advantages.append([0.0] * len(trajectory.steps))
            targets.append([0.0] * len(trajectory.steps))
            continue
        mine = _array(values[number], (len(trajectory.steps),), f"values of trajectory {number}", "steps")
        rewards = np.array([step.reward for step in trajectory.steps], dtype=np.float64)
        count = len(rewards)
        found = _chain(
            rewards, mine, np.full(count, discount), np.full(count, float(lam_step)), _final_value(trajectory, bootstrap[number], number)
        )
        advantages.append(list(found))
        targets.append(list(found + mine))
    return GaeTerms(advantages, targets)


def token_gae_terms(
    trajectories: Sequence[Trajectory],
    *,
    values: Sequence[Any],
    bootstrap: Sequence[float],
    gamma: float | None = None,
    lam_step: float = 0.95,
    gamma_token: float = 1.0,
    lam_token: float = 1.0,
) -> GaeTerms:
    """Return advantages before whitening and targets of the critic, per action token.

    Args:
        trajectories: the batch.
        values: as for `token_gae`.
        bootstrap: as for `token_gae`.
        gamma: as for `token_gae`.
        lam_step: as for `token_gae`.
        gamma_token: as for `token_gae`.
        lam_token: as for `token_gae`.

    Returns:
        Per step an array of shape (number of action tokens,) each.

    Raises:
        ValueError: as for `token_gae`.
    """
    discount = _fraction("gamma", 1.0 if gamma is None else gamma)
    for name, value in (("lam_step", lam_step), ("gamma_token", gamma_token), ("lam_token", lam_token)):
        _fraction(name, value)
    _check_lengths(trajectories, values, bootstrap)
    advantages: Advantages = []
    targets: Advantages = []
    for number, trajectory in enumerate(trajectories):
        if exclusion_reason(trajectory) is not None:
            nothing = [np.zeros(len(step.action_ids)) for step in trajectory.steps]
            advantages.append(nothing)
            targets.append([item.copy() for item in nothing])
            continue
        if len(values[number]) != len(trajectory.steps):
            raise ValueError(
                f"values of trajectory {number} are {len(values[number])} arrays, it has {len(trajectory.steps)} steps; give one array per step"
            )
        by_step = [
            _array(item, (len(step.action_ids),), f"values of trajectory {number}, step {position}", "action tokens")
            for position, (step, item) in enumerate(zip(trajectory.steps, values[number], strict=True))
        ]
        mine = np.concatenate(by_step)
        rewards, gammas, lams = np.zeros(len(mine)), np.full(len(mine), float(gamma_token)), np.full(len(mine), float(lam_token))
        last = -1  # position of the last action token so far
        for step in trajectory.steps:
            if len(step.action_ids):
                last += len(step.action_ids)
                rewards[last], gammas[last], lams[last] = step.reward, discount, lam_step
            elif last >= 0:
                rewards[last] += gammas[last] * step.reward
                gammas[last] *= discount
        found = _chain(rewards, mine, gammas, lams, _final_value(trajectory, bootstrap[number], number))
        advantages.append(_by_step(trajectory, found))
        targets.append(_by_step(trajectory, found + mine))
    return GaeTerms(advantages, targets)


def _chain(rewards: FloatArray, values: FloatArray, gammas: FloatArray, lams: FloatArray, final: float) -> FloatArray:
    """A_i = delta_i + g_i l_i A_{i+1} with delta_i = r_i + g_i V_{i+1} - V_i, from the end; all of shape (n,)."""
    following = np.append(values[1:], final) if len(values) else values
    deltas = rewards + gammas * following - values
    decays = gammas * lams
    result = np.zeros(len(values))
    running = 0.0
    for position in range(len(values) - 1, -1, -1):
        running = deltas[position] + decays[position] * running
        result[position] = running
    return result


def _by_step(trajectory: Trajectory, flat: FloatArray) -> list[FloatArray]:
    """Cut an array over the action tokens of an episode into its steps."""
    ends = np.cumsum([len(step.action_ids) for step in trajectory.steps])
    return list(np.split(flat, ends[:-1]))


def _final_value(trajectory: Trajectory, value: Any, number: int) -> float:
    if not bootstraps(trajectory):
        return 0.0
    found = math.nan if value is None else float(value)
    if not (math.isfinite(found) and abs(found) <= MAX_RETURN):
        raise ValueError(
            f"bootstrap of trajectory {number} is {found}, but it ended by {trajectory.stop_reason.value!r} without termination, so the value of its "
            "final observation is needed"
        )
    return found


def _fraction(name: str, value: float) -> float:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value} lies outside [0, 1]")
    return float(value)


def _check_lengths(trajectories: Sequence[Trajectory], values: Sequence[Any], bootstrap: Sequence[float]) -> None:
    for name, given in (("values", values), ("bootstrap", bootstrap)):
        if len(given) != len(trajectories):
            raise ValueError(f"{name} has {len(given)} entries for {len(trajectories)} trajectories; give one per trajectory")


def _array(given: Any, shape: tuple[int, ...], what: str, unit: str) -> FloatArray:
    array = np.asarray(given, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{what} have shape {array.shape}, there are {shape[0]} {unit}; give one value for each")
    if not np.all(np.abs(array) <= MAX_RETURN):  # NaN fails as well
        raise ValueError(f"{what} are not all finite: {array.tolist()}; the critic has diverged")
    return array
