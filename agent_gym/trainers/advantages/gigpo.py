"""GiGPO: beside whole episodes, steps that were taken in the same state are compared with one another."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import numpy as np

from agent_gym.trainers.advantages.registry import Advantages, register_advantage
from agent_gym.trainers.advantages.returns import Scale, group_members, relative_to_group, returns, returns_to_go
from agent_gym.trajectory import Trajectory

__all__ = ["GIGPO_GAMMA", "gigpo", "state_groups"]

GIGPO_GAMMA = 0.95
"""Discount of the step returns when none is given, the paper's."""

_WORDS = re.compile(r"\w+|[^\w\s]")


@register_advantage("gigpo", group_relative=True, silent_when_flat=False)
def gigpo(
    trajectories: Sequence[Trajectory],
    *,
    scale: Scale = "group",
    gamma: float | None = None,
    step_weight: float = 1.0,
    similarity: float = 1.0,
) -> Advantages:
    """Group-in-group policy optimisation: A_t = A_E + step_weight * A_S(t).

    A_E = (G - mean) / std compares the undiscounted return of the episode with those of its group, as `grpo` does. A_S(t) = (G_t - mean) /
    std compares the discounted return from step t on with those of all steps of the group that were taken in the same state: equal (or
    similar) `state_key`. A step whose state nobody else met, or that has no `state_key`, gets A_S = 0.

    A group with equal returns has A_E = 0, but not always A_S = 0: with a discount, the quicker way from the same state is the better one.
    So `drop_zero_variance` does not go with this estimator.

    Source: arXiv 2505.10978, eq. 3 (A_E), 6 (step groups), 7 (A_S), 8 (their sum); `scale="none"` is its F_norm = 1.

    Args:
        trajectories: the batch; each needs a group_id, and at least one of the steps that count a state_key.
        scale: whose standard deviations divide: the group's, the batch's (of all episodes, and of all steps), or none.
        gamma: discount of the step returns; None for `GIGPO_GAMMA`.
        step_weight: the paper's omega.
        similarity: from which similarity on two states are one, in (0, 1] (see `state_groups`); 1 only when they are equal.

    Returns:
        One number per step.

    Raises:
        ValueError: for a missing group_id, a batch without any state_key, or a setting out of range.
    """
    if not 0.0 <= step_weight <= 1e6:
        raise ValueError(f"step_weight={step_weight} must lie between 0 and 1e6")
    _check_similarity(similarity)
    values = returns(trajectories)
    groups = group_members(trajectories, values)
    episodes = relative_to_group(values, groups, scale)
    discount = GIGPO_GAMMA if gamma is None else gamma
    offsets = np.concatenate([[0], np.cumsum([len(item.steps) for item in trajectories], dtype=np.int64)])
    step_values = np.full(int(offsets[-1]), np.nan)
    for number in (number for group in groups for number in group):
        step_values[offsets[number] : offsets[number + 1]] = returns_to_go(trajectories[number], discount)
    keyed = [(number, step.state_key) for group in groups for number in group for step in trajectories[number].steps]
    if keyed and not any(key for _, key in keyed):
        raise ValueError(
            f"gigpo compares steps with equal state_key, and none of the {len(keyed)} steps of this batch has one; give "
            "info['state_key'] in the environment (an AgentEnv does), or use grpo"
        )
    members = [
        [int(offsets[number]) + step for number, step in state]
        for group in groups
        for state in state_groups(trajectories, group, similarity)
    ]
    steps = relative_to_group(step_values, members, scale)
    joint = [episodes[number] + step_weight * steps[offsets[number] : offsets[number + 1]] for number in range(len(trajectories))]
    return [list(item) for item in joint]


def state_groups(trajectories: Sequence[Trajectory], members: Sequence[int], similarity: float = 1.0) -> list[list[tuple[int, int]]]:
    """Group the steps of some trajectories by the state that they were taken in.

    Steps come in the order of `members` and of their steps. A step joins the first group whose first state is similar enough; equal states
    are always together. The similarity of two texts is that of `difflib.SequenceMatcher` on their words and punctuation marks: twice the number that
    match, over the number of both. Steps without a state_key stay out.

    Args:
        trajectories: the batch.
        members: positions of the trajectories, those of one group.
        similarity: the threshold, in (0, 1]; 1 asks for equal texts, which needs no comparison of pairs.

    Returns:
        Groups of (trajectory, step).

    Raises:
        ValueError: when the threshold is out of range.
    """
    _check_similarity(similarity)
    found: list[list[tuple[int, int]]] = []
    first_words: list[list[str]] = []
    known: dict[str, int] = {}
    for number in members:
        for position, step in enumerate(trajectories[number].steps):
            key = step.state_key
            if not key:
                continue
            if key not in known:
                words = _WORDS.findall(key) if similarity < 1.0 else []
                match = _first_similar(words, first_words, similarity) if similarity < 1.0 else None
                known[key] = len(found) if match is None else match
                if match is None:
                    found.append([])
                    first_words.append(words)
            found[known[key]].append((number, position))
    return found


def _check_similarity(similarity: float) -> None:
    if not 0.0 < similarity <= 1.0:
        raise ValueError(f"similarity={similarity} must lie above 0 and be at most 1")


def _first_similar(words: list[str], others: Sequence[list[str]], similarity: float) -> int | None:
    """The first of the others that is similar enough; cheap upper bounds first, since the exact ratio is quadratic."""
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(words)
    for number, other in enumerate(others):
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() >= similarity and matcher.quick_ratio() >= similarity and matcher.ratio() >= similarity:
            return number
    return None
