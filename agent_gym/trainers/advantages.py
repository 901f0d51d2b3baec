"""Advantage estimators: pure functions from trajectories to one number per step, in a registry. Knows neither TRL nor torch.

An estimator takes every trajectory of a generation batch (over all ranks) and keyword settings, and returns, per trajectory, one entry
per step: a number, or for estimators of level "token" an array with one number per action token. The registry keeps what a trainer must
know of each: its settings, whether it compares the members of a group with one another, and its level.

Notation: r_t is the reward of step t, G = sum_t gamma^t r_t the return of an episode (gamma is 1 unless given), G_t the same sum from step t
on. Standard deviations have one delta degree of freedom, and `EPSILON` stands beside them, as in TRL.

Rules that hold for all of them: an episode that ended by ENV_FAULT, that has no steps, or whose reward or return is not finite takes no part
in any statistic and gets zeros; zero-variance groups get exact zeros; a group with fewer than two members that count gets zeros; nothing
returns NaN or infinity. `screen` names what is left out and why, so that a trainer can count it and take it out of the loss.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent_gym.trajectory import StopReason, Trajectory

__all__ = [
    "ADVANTAGES",
    "EPSILON",
    "MAX_RETURN",
    "Advantages",
    "Estimator",
    "FloatArray",
    "exclusion_reason",
    "get_advantage",
    "grpo",
    "register_advantage",
    "reinforce",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "returns",
    "returns_to_go",
    "rloo",
    "screen",
    "zero_variance_groups",
]

FloatArray: TypeAlias = NDArray[np.float64]
Advantages: TypeAlias = list[Sequence[float | FloatArray]]
"""Per trajectory, per step: a number, or an array of shape (number of action tokens,)."""

EPSILON = 1e-4
"""Added to every standard deviation that is divided by, as in TRL's GRPOTrainer."""
MAX_RETURN = 1e30
"""Returns beyond this magnitude count as not finite: their advantages would not fit into float32."""

_registry: dict[str, Estimator] = {}
ADVANTAGES: Mapping[str, Estimator] = MappingProxyType(_registry)
"""The registered estimators by name (read-only)."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """A registered estimator.

    Attributes:
        name: its name in the registry and in `AgentGRPOConfig.advantage`.
        function: `function(trajectories, **settings) -> Advantages`.
        group_relative: it compares the members of a group; such an estimator has nothing to learn from a zero-variance group.
        level: "step" (one number per step) or "token" (one number per action token).
        settings: the names of its keyword settings.
    """

    name: str
    function: Callable[..., Advantages]
    group_relative: bool
    level: Literal["step", "token"]
    settings: frozenset[str]

    def __call__(self, trajectories: Sequence[Trajectory], **settings: Any) -> Advantages:
        """Estimate; settings that this estimator does not know are left out, so one configuration serves all.

        Args:
            trajectories: the whole generation batch.
            **settings: `gamma`, `scale`, ...

        Returns:
            One entry per step of each trajectory.

        Raises:
            ValueError: when the function broke its contract (wrong number of entries, a value that is not finite).
        """
        result = self.function(trajectories, **{key: value for key, value in settings.items() if key in self.settings})
        if len(result) != len(trajectories):
            raise ValueError(f"estimator {self.name!r} returned {len(result)} entries for {len(trajectories)} trajectories")
        for number, (trajectory, values) in enumerate(zip(trajectories, result, strict=True)):
            if len(values) != len(trajectory.steps):
                raise ValueError(
                    f"estimator {self.name!r} returned {len(values)} values for trajectory {number}, which has {len(trajectory.steps)} steps"
                )
            if not all(np.all(np.isfinite(value)) for value in values):
                raise ValueError(f"estimator {self.name!r} returned a value that is not finite for trajectory {number}")
        return result


def register_advantage(
    name: str, *, group_relative: bool = False, level: Literal["step", "token"] = "step"
) -> Callable[[Callable[..., Advantages]], Callable[..., Advantages]]:
    """Register an estimator under a name that `AgentGRPOConfig.advantage` can hold.

    The function's signature is `(trajectories: Sequence[Trajectory], *, ...settings) -> Advantages`. Settings that the trainer passes when
    the function has them: `gamma`, `scale`; later trainers pass more (`values`, `lam_step`, ...), always by keyword.

    Args:
        name: the name.
        group_relative: whether it compares the members of a group with one another.
        level: "step" or "token".

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        ValueError: when the name is taken.
    """

    def add(function: Callable[..., Advantages]) -> Callable[..., Advantages]:
        if name in _registry:
            raise ValueError(f"an advantage estimator named {name!r} is registered already; choose another name")
        parameters = inspect.signature(function).parameters.values()
        settings = frozenset(item.name for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY)
        _registry[name] = Estimator(name, function, group_relative, level, settings)
        return function

    return add


def get_advantage(name: str) -> Estimator:
    """Look an estimator up.

    Args:
        name: a registered name.

    Returns:
        The estimator.

    Raises:
        KeyError: with the names that exist.
    """
    try:
        return _registry[name]
    except KeyError:
        raise KeyError(f"there is no advantage estimator {name!r}; choose one of {', '.join(sorted(_registry))}") from None


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


def _groups(trajectories: Sequence[Trajectory], values: FloatArray) -> list[list[int]]:
    """Return the positions of each group's members that count (`values` not NaN)."""
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


def _is_flat(values: FloatArray) -> bool:
    """No variance, up to what float64 makes of equal sums in another order."""
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
    return [group for group in _groups(trajectories, values) if _is_flat(values[group])]


def _per_step(trajectories: Sequence[Trajectory], per_trajectory: FloatArray) -> Advantages:
    filled: list[Sequence[float | FloatArray]] = []
    for trajectory, value in zip(trajectories, per_trajectory, strict=True):
        filled.append([float(value)] * len(trajectory.steps))
    return filled


@register_advantage("grpo", group_relative=True)
def grpo(
    trajectories: Sequence[Trajectory], *, scale: Literal["group", "batch", "none"] = "group", gamma: float | None = None
) -> Advantages:
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
    if scale not in ("group", "batch", "none"):
        raise ValueError(f"scale={scale!r} is unknown; choose group, batch or none")
    values = returns(trajectories, gamma)
    counted = values[~np.isnan(values)]
    result = np.zeros(len(values))
    for group in _groups(trajectories, values):
        mine = values[group]
        if _is_flat(mine):
            continue
        centred = mine - mine.mean()
        if scale == "group":
            centred = centred / (mine.std(ddof=1) + EPSILON)
        elif scale == "batch":
            centred = centred / (counted.std(ddof=1) + EPSILON)
        result[group] = centred
    return _per_step(trajectories, result)


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
    for group in _groups(trajectories, values):
        mine = values[group]
        if not _is_flat(mine):
            result[group] = mine - (mine.sum() - mine) / (len(mine) - 1)
    return _per_step(trajectories, result)


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


def _whiten(values: Sequence[FloatArray | None]) -> list[FloatArray | None]:
    """Whiten over all steps of the batch: (x - mean) / (std + EPSILON); zeros when there is no variance."""
    present = [item for item in values if item is not None]
    flat = np.concatenate(present) if present else np.zeros(0)
    if _is_flat(flat):
        return [None if item is None else np.zeros(len(item)) for item in values]
    mean, deviation = flat.mean(), flat.std(ddof=1)
    return [None if item is None else (item - mean) / (deviation + EPSILON) for item in values]


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
    raw = [returns_to_go(item, gamma) if exclusion_reason(item) is None else None for item in trajectories]
    return [[0.0] * len(item.steps) if values is None else list(values) for item, values in zip(trajectories, _whiten(raw), strict=True)]


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
    for group in _groups(trajectories, values):
        if len(group) < 2:
            continue
        mine = values[group]
        if _is_flat(mine):
            flat.update(group)
        shifted = np.zeros(len(mine)) if _is_flat(mine) else mine - mine.mean()
        for number, value in zip(group, shifted, strict=True):
            centred[number] = np.full(len(trajectories[number].steps), value)
    result: Advantages = []
    for number, item in enumerate(_whiten(centred)):
        zero = item is None or number in flat
        result.append([0.0] * len(trajectories[number].steps) if zero or item is None else list(item))
    return result
