"""Where a critic reads, and how well it reads: rows for its forward passes, and the share of the variance that it explains. Without torch.

A critic values what the model saw before it acted: V(s_t) stands at the last token of step t's observation, and, where every action token is a
decision of its own, at the token before each of them. Behind an episode that a limit ended, it values the final observation. As in
`agent_gym.trainers.rows`, what extends everything before it is read in one pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_gym.trainers.advantages import bootstraps, exclusion_reason
from agent_gym.trajectory import Trajectory

__all__ = ["Place", "ValueRow", "build_value_rows", "explained_variance"]


class Place(NamedTuple):
    """The positions `[start, end)` of a row at which the values of a step are read; `step` is the number of steps for the final observation."""

    step: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One sequence that a critic reads.

    Attributes:
        trajectory: the position of the trajectory in the batch.
        ids: token ids, shape (n,), int64; ends with the last position that is read.
        places: where values are read, in order.
    """

    trajectory: int
    ids: NDArray[np.int64]
    places: tuple[Place, ...]

    @property
    def num_values(self) -> int:
        """The number of values that are read."""
        return sum(place.end - place.start for place in self.places)

    def __len__(self) -> int:
        return len(self.ids)


def build_value_rows(
    trajectories: Sequence[Trajectory], level: Literal["step", "token"], *, merge: bool = True, final: bool = True
) -> list[ValueRow]:
    """Make the rows of a batch. Episodes that do not count (see `exclusion_reason`) have none.

    Args:
        trajectories: the batch.
        level: "step" reads one value per step, "token" one before each action token.
        merge: read what extends everything before it in one pass; False reads each observation by itself, with the same values.
        final: also read the final observations of those that `bootstraps` names.

    Returns:
        The rows in order.

    Raises:
        ValueError: for an empty observation, or an episode that needs a value behind its end and has no final observation.
    """
    rows: list[ValueRow] = []
    for number, item in enumerate(trajectories):
        if exclusion_reason(item) is not None:
            continue
        ids: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        places: list[Place] = []
        for place, seen in _reads(item, number, level, final):
            if places and not (merge and len(seen) >= len(ids) and np.array_equal(seen[: len(ids)], ids)):
                rows.append(ValueRow(number, ids[: places[-1].end], tuple(places)))
                places = []
            ids = seen
            places.append(place)
        if places:
            rows.append(ValueRow(number, ids[: places[-1].end], tuple(places)))
    return rows


def _reads(item: Trajectory, number: int, level: str, final: bool) -> list[tuple[Place, NDArray[np.int64]]]:
    """What is read of an episode: the places, and the ids that each needs."""
    found = []
    for position, step in enumerate(item.steps):
        shown, actions = len(step.observation_ids), len(step.action_ids)
        if level == "token" and not actions:
            continue
        if not shown:
            raise ValueError(
                f"the observation of step {position} of trajectory {number} is empty; a state has at least one token that was shown"
            )
        if level == "token":
            seen = np.concatenate([step.observation_ids, step.action_ids])
            found.append((Place(position, shown - 1, shown - 1 + actions), seen))
        else:
            found.append((Place(position, shown - 1, shown), step.observation_ids))
    if final and bootstraps(item):
        shown = len(item.final_observation)
        if not shown:
            raise ValueError(
                f"trajectory {number} (task {item.task_id!r}) ended by {item.stop_reason.value!r} without termination, and its final observation is "
                "empty, so there is nothing to take its value from; a rollout function gives it as final_observation"
            )
        found.append((Place(len(item.steps), shown - 1, shown), item.final_observation))
    return found


def explained_variance(values: Any, targets: Any) -> float:
    """Return 1 - Var(targets - values) / Var(targets): 1 for a perfect critic, 0 for a constant one, negative for a harmful one.

    Args:
        values: of the critic, shape (n,).
        targets: what it should have said, shape (n,).

    Returns:
        The share; NaN where the targets have no variance.
    """
    said, wanted = np.asarray(values, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if len(wanted) < 2 or np.ptp(wanted) <= 1e-12 * np.max(np.abs(wanted)):
        return float("nan")
    return float(1.0 - np.var(wanted - said) / np.var(wanted))
