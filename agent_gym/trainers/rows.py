"""From trajectories to training rows, and from rows to micro-batches. Knows neither TRL nor torch.

`build_rows` merges consecutive steps whose observation extends everything before it into one row (prefix merging), so that an appended
context of fifty turns is one forward pass and not fifty; a rewritten context opens a new row. A row carries, token by token, whether the
model sampled it, with which advantage and with which log-probability, and remembers which stretch belongs to which step. With a
token-summed loss, merged rows and separate rows have the same gradient: each action token is scored behind the very ids it was sampled
behind, and counted once.

`plan` deals rows to optimiser windows, micro-steps, sub-batches and ranks: every rank gets the same number of rows in every sub-batch (so
that ranks make the same forward passes), every row is dealt exactly once, and whole trajectories stay in one optimiser window (so that no
step of an episode is trained after another step of the same episode has moved the weights).

`apply_level` folds the choice "every token / trajectory / step counts the same" into the advantages, which keeps the loss a plain sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent_gym.trajectory import Step, Trajectory

__all__ = [
    "DUMMY",
    "LEVELS",
    "Level",
    "Plan",
    "Row",
    "Segment",
    "apply_level",
    "build_rows",
    "pack_trajectory",
    "plan",
    "shift_window",
    "unpack_trajectory",
]

Level: TypeAlias = Literal["token", "trajectory", "step"]
LEVELS: tuple[Level, ...] = ("token", "trajectory", "step")
DUMMY = -1
"""The row index that stands for a dummy row in a `Plan`: a row that only fills up a rank and is never trained."""


class Segment(NamedTuple):
    """The stretch `[start, end)` of a row that is the action of step `step` of its trajectory."""

    step: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of the training batch.

    Attributes:
        trajectory: the position of the trajectory in the batch.
        ids: token ids, shape (n,), int64: observation, action, new turn, action, ...; ends with the last trained action.
        mask: shape (n,), bool: True where the token is trained (sampled by the model in a step that counts).
        advantages: shape (n,), float32; 0 where `mask` is False.
        logprobs: shape (n,), float32: of the policy that sampled; 0 where `mask` is False, NaN where the policy gave none.
        segments: the trained actions in order.
        replayed: it was sampled by other weights, some time before (see `agent_gym.trainers.replay`).
    """

    trajectory: int
    ids: NDArray[np.int64]
    mask: NDArray[np.bool_]
    advantages: NDArray[np.float32]
    logprobs: NDArray[np.float32]
    segments: tuple[Segment, ...]
    replayed: bool = False

    @property
    def num_trained(self) -> int:
        """The number of trained tokens."""
        return sum(segment.end - segment.start for segment in self.segments)

    @property
    def has_signal(self) -> bool:
        """Whether any trained token has a non-zero advantage."""
        return bool(np.any(self.advantages))

    def __len__(self) -> int:
        return len(self.ids)


class _Open:
    """A row that still grows."""

    def __init__(self, observation: NDArray[np.int64]) -> None:
        self.ids = observation
        self.actions: list[tuple[Segment, NDArray[np.float32], NDArray[np.float32]]] = []

    def extends(self, observation: NDArray[np.int64]) -> bool:
        return len(observation) >= len(self.ids) and bool(np.array_equal(observation[: len(self.ids)], self.ids))

    def act(self, index: int, observation: NDArray[np.int64], step: Step, advantage: Any, trained: bool) -> None:
        start, end = len(observation), len(observation) + len(step.action_ids)
        if not start:
            raise ValueError(f"the observation of step {index} is empty; an action is trained behind at least one token that was shown")
        self.ids = np.concatenate([observation, step.action_ids])
        if not trained:
            return
        advantages = np.asarray(advantage, dtype=np.float32)
        if advantages.ndim and advantages.shape != (end - start,):
            raise ValueError(
                f"the advantages of step {index} have shape {advantages.shape}, its action has {end - start} tokens; "
                "give one number for the step or one per action token"
            )
        logprobs = np.full(end - start, np.nan, dtype=np.float32) if step.logprobs is None else step.logprobs
        self.actions.append((Segment(index, start, end), np.broadcast_to(advantages, (end - start,)), logprobs))

    def close(self, trajectory: int) -> Row | None:
        if not self.actions:
            return None
        length = self.actions[-1][0].end
        mask = np.zeros(length, dtype=np.bool_)
        advantages = np.zeros(length, dtype=np.float32)
        logprobs = np.zeros(length, dtype=np.float32)
        for segment, values, sampled in self.actions:
            mask[segment.start : segment.end] = True
            advantages[segment.start : segment.end] = values
            logprobs[segment.start : segment.end] = sampled
        return Row(trajectory, self.ids[:length], mask, advantages, logprobs, tuple(action[0] for action in self.actions))


def build_rows(
    trajectory: Trajectory,
    advantages: Sequence[float | NDArray[Any]],
    index: int = 0,
    merge: bool = True,
    trained: Sequence[bool] | None = None,
) -> list[Row]:
    """Make the training rows of one trajectory.

    A step without action tokens builds no loss and breaks nothing: its observation is part of the next one when the context grows, and
    is not needed when it is rewritten. The same holds for a step that is left out by `trained`, except that its action stays in the row
    as context when the next observation contains it.

    Args:
        trajectory: the episode.
        advantages: one entry per step: a number, or an array of shape (number of action tokens,), taken as float32.
        index: the position of the trajectory in the batch, written into each row.
        merge: merge steps whose observation extends all before; False gives one row per step with the same gradient.
        trained: one flag per step; False takes the step's tokens out of the loss and of every count.

    Returns:
        The rows in order; empty when no step has a trained token.

    Raises:
        ValueError: when the advantages do not fit the steps, or one is not finite; for a trajectory that is not token-exact.
    """
    steps = trajectory.steps
    if not trajectory.token_exact:
        raise ValueError(
            f"trajectory {index} (task {trajectory.task_id!r}) is not token-exact: its ids were made of a server's text (OpenAIPolicy) and are not those "
            "that were sampled. Train on replies of the model itself, VLLMPolicy or SGLangPolicy; to learn from such text, write it as a chat log and "
            "import it (agent-gym data import-chat)"
        )
    if len(advantages) != len(steps):
        raise ValueError(f"{len(advantages)} advantages came for a trajectory of {len(steps)} steps; give one entry per step")
    rows: list[Row] = []
    current: _Open | None = None
    for number, step in enumerate(steps):
        if not len(step.action_ids):
            continue
        if not np.all(np.isfinite(advantages[number])):
            raise ValueError(f"the advantage of step {number} of trajectory {index} (task {trajectory.task_id!r}) is not finite")
        if current is None or not merge or not current.extends(step.observation_ids):
            if current is not None and (row := current.close(index)) is not None:
                rows.append(row)
            current = _Open(step.observation_ids)
        current.act(number, step.observation_ids, step, advantages[number], trained is None or trained[number])
    if current is not None and (row := current.close(index)) is not None:
        rows.append(row)
    return rows


def apply_level(rows: Sequence[Row], level: Level) -> list[Row]:
    """Fold the weight of each token into its advantage, for the rows of one optimiser window.

    The loss is the sum over the window's N trained tokens divided by N, so a weight w multiplies what a token counts:

    - "token": w = 1, every token counts the same (DAPO, arXiv 2503.14476, eq. 12);
    - "trajectory": w = N / (number of trajectories * tokens of this trajectory), the mean over trajectories of their token means;
    - "step": w = N / (number of steps * tokens of this step), the mean over steps of their token means (StepPO, arXiv 2604.18401).

    All weights are positive, so they commute with the clipped minimum of PPO. They do not depend on how steps are merged into rows.

    Args:
        rows: all rows of one optimiser window, over all ranks.
        level: "token", "trajectory" or "step".

    Returns:
        Rows of the same order with weighted advantages.

    Raises:
        ValueError: for an unknown level.
    """
    if level not in LEVELS:
        raise ValueError(f"loss level {level!r} is unknown; choose one of {', '.join(LEVELS)}")
    if level == "token":
        return list(rows)
    total = sum(row.num_trained for row in rows)
    per_trajectory: dict[int, int] = {}
    steps = 0
    for row in rows:
        per_trajectory[row.trajectory] = per_trajectory.get(row.trajectory, 0) + row.num_trained
        steps += len(row.segments)
    weighted = []
    for row in rows:
        advantages = row.advantages.astype(np.float64)
        if level == "trajectory":
            advantages *= total / (len(per_trajectory) * per_trajectory[row.trajectory])
        else:
            for _, start, end in row.segments:
                advantages[start:end] *= total / (steps * (end - start))
        weighted.append(replace(row, advantages=advantages.astype(np.float32)))
    return weighted


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rank runs which rows when.

    Attributes:
        windows: indexed `[window][micro-step][sub-batch][rank]`, each a tuple of row indices, `DUMMY` for a dummy row. The tuples of one
            sub-batch are equally long on all ranks; each micro-step has at least one sub-batch, the same number on all ranks by
            construction.
        lengths: the length of each row in tokens.
    """

    windows: tuple[tuple[tuple[tuple[tuple[int, ...], ...], ...], ...], ...]
    lengths: tuple[int, ...]

    def sub_batches(self) -> Iterator[tuple[tuple[int, ...], ...]]:
        """Yield each sub-batch, a tuple of row indices per rank, in order of execution.

        Yields:
            Row indices by rank, `DUMMY` among them where a rank is filled up.
        """
        for window in self.windows:
            for micro_step in window:
                yield from micro_step

    def rows_of_window(self, window: int) -> list[int]:
        """Return the rows dealt to one optimiser window, over all ranks, ascending, without dummies.

        Args:
            window: its number, from 0.

        Returns:
            Positions in the list of rows.
        """
        return sorted(row for micro_step in self.windows[window] for sub in micro_step for rank in sub for row in rank if row != DUMMY)

    def stats(self) -> dict[str, float]:
        """Figures of the plan: `pad_frac`, `sub_steps`, `rank_imbalance` (largest rank / mean, in padded tokens) and `dummy_rows`.

        Returns:
            Name to number.
        """
        padded: dict[int, int] = {}
        real = sub_steps = dummies = 0
        for sub in self.sub_batches():
            sub_steps += 1
            for rank, rows in enumerate(sub):
                sizes = [self.lengths[row] for row in rows if row != DUMMY]
                real += sum(sizes)
                dummies += len(rows) - len(sizes)
                padded[rank] = padded.get(rank, 0) + max(sizes, default=0) * len(rows)
        total = sum(padded.values())
        return {
            "pad_frac": 1.0 - real / total if total else 0.0,
            "sub_steps": float(sub_steps),
            "rank_imbalance": max(padded.values()) * len(padded) / total if total else 1.0,
            "dummy_rows": float(dummies),
        }


def _cut(order: Sequence[int], lengths: Sequence[int], world: int, budget: int) -> list[tuple[int, ...]]:
    """Cut rows, longest first, into sub-batches of `world * k` rows with `k * longest <= budget` (k at least 1)."""
    subs: list[tuple[int, ...]] = []
    position = 0
    while position < len(order):
        count = world * max(1, budget // max(1, lengths[order[position]]))
        subs.append(tuple(order[position : position + count]))
        position += count
    return subs


def _smallest_budget(order: Sequence[int], lengths: Sequence[int], world: int, parts: int) -> int:
    """Return the smallest token budget per rank and sub-batch under which at most `parts` sub-batches are needed."""
    low, high = 1, max(1, len(order)) * max((lengths[row] for row in order), default=1)
    while low < high:
        middle = (low + high) // 2
        if len(_cut(order, lengths, world, middle)) <= parts:
            high = middle
        else:
            low = middle + 1
    return low


def _deal(sub: Sequence[int], world: int) -> tuple[tuple[int, ...], ...]:
    """Deal the rows of a sub-batch to the ranks in turn; fill up with dummies so that all get the same number."""
    count = max(1, -(-len(sub) // world))
    ranks = [list(sub[rank::world]) for rank in range(world)]
    return tuple(tuple(rows + [DUMMY] * (count - len(rows))) for rows in ranks)


def _spread(loads: Sequence[tuple[int, int]], bins: int) -> list[list[int]]:
    """Longest-processing-time scheduling: each (item, load), heaviest first, goes to the bin that carries least."""
    carried, members = [0] * bins, [[] for _ in range(bins)]  # type: tuple[list[int], list[list[int]]]
    for item, load in sorted(loads, key=lambda pair: (-pair[1], pair[0])):
        lightest = min(range(bins), key=lambda number: (carried[number], len(members[number]), number))
        carried[lightest] += load
        members[lightest].append(item)
    return members


def plan(
    lengths: Sequence[int],
    *,
    world: int = 1,
    windows: int = 1,
    micro: int = 1,
    max_tokens: int | None = None,
    groups: Sequence[int] | None = None,
) -> Plan:
    """Deal rows to optimiser windows, micro-steps, sub-batches and ranks. A pure function, the same on every rank.

    Whole trajectories are spread over the windows by their number of tokens. Inside a window, rows are sorted by length and cut into
    sub-batches of `world * k` rows, which are dealt to the ranks in turn; so all ranks have equal row counts and nearly equal lengths. With
    a budget, `k * longest <= max_tokens`, and sub-batches are spread over the micro-steps; without one, each micro-step is one sub-batch
    and the cut is the one that needs the least memory.

    Args:
        lengths: tokens of each row.
        world: number of ranks.
        windows: number of optimiser steps that share these rows.
        micro: micro-steps (gradient accumulation steps) per window.
        max_tokens: at most so many padded tokens per rank and sub-batch; a single longer row is run alone. None: no limit.
        groups: the trajectory of each row; rows of one trajectory stay in one window. None: each row is its own.

    Returns:
        The plan. Every row appears in it exactly once.

    Raises:
        ValueError: when a count is below 1 or `groups` has another length than `lengths`.
    """
    if min(world, windows, micro) < 1 or (max_tokens is not None and max_tokens < 1):
        raise ValueError(f"world={world}, windows={windows}, micro={micro}, max_tokens={max_tokens}: each must be at least 1")
    owners = list(range(len(lengths))) if groups is None else list(groups)
    if len(owners) != len(lengths):
        raise ValueError(f"{len(lengths)} rows came with {len(owners)} group entries; give one per row")
    by_owner: dict[int, list[int]] = {}
    for row, owner in enumerate(owners):
        by_owner.setdefault(owner, []).append(row)
    members = _spread([(owner, sum(lengths[row] for row in rows)) for owner, rows in by_owner.items()], windows)
    dealt = []
    for window in members:
        order = sorted((row for owner in window for row in by_owner[owner]), key=lambda row: (-lengths[row], row))
        if max_tokens is None:
            subs = _cut(order, lengths, world, _smallest_budget(order, lengths, world, micro))
            steps = [[number] for number in range(len(subs))] + [[] for _ in range(micro - len(subs))]
        else:
            subs = _cut(order, lengths, world, max_tokens)
            steps = _spread([(number, lengths[sub[0]] * -(-len(sub) // world)) for number, sub in enumerate(subs)], micro)
        idle = (_deal((), world),)
        dealt.append(tuple(tuple(_deal(subs[number], world) for number in step) or idle for step in steps))
    return Plan(tuple(dealt), tuple(int(length) for length in lengths))


def shift_window(window: Any, offset: int) -> Any:
    """Move the row numbers of one window of a plan.

    Args:
        window: as in `Plan.windows`.
        offset: added to each row number that is no `DUMMY`.

    Returns:
        The window.
    """
    return tuple(
        tuple(tuple(tuple(index if index == DUMMY else index + offset for index in rank) for rank in sub) for sub in micro_step)
        for micro_step in window
    )


def pack_trajectory(trajectory: Trajectory) -> dict[str, Any]:
    """Make a small picture of a trajectory for sending it to other ranks: an observation that extends the one before is its new ids only.

    The steps of an appended context repeat everything before them, so the ids of a long episode grow with the square of its turns; packed
    they grow linearly.

    Args:
        trajectory: the episode.

    Returns:
        A dictionary that `unpack_trajectory` turns back into an equal trajectory.
    """
    before: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    observations: list[tuple[bool, NDArray[Any]]] = []
    for step in trajectory.steps:
        extends = len(step.observation_ids) >= len(before) and bool(np.array_equal(step.observation_ids[: len(before)], before))
        observations.append((extends, step.observation_ids[len(before) :] if extends else step.observation_ids))
        before = np.concatenate([step.observation_ids, step.action_ids])
    final = trajectory.final_observation
    extends = len(final) >= len(before) and bool(np.array_equal(final[: len(before)], before))
    observations.append((extends, final[len(before) :] if extends else final))
    nothing = np.zeros(0, dtype=np.int64)
    light = replace(trajectory, steps=tuple(replace(step, observation_ids=nothing) for step in trajectory.steps), final_observation=nothing)
    return {"trajectory": light, "observations": observations}


def unpack_trajectory(packed: dict[str, Any]) -> Trajectory:
    """Undo `pack_trajectory`.

    Args:
        packed: what it returned.

    Returns:
        The trajectory, equal to the one that was packed.
    """
    light: Trajectory = packed["trajectory"]
    before: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    whole: list[NDArray[np.int64]] = []
    actions = [step.action_ids for step in light.steps] + [np.zeros(0, dtype=np.int64)]
    for (extends, ids), action in zip(packed["observations"], actions, strict=True):
        whole.append(np.concatenate([before, ids]) if extends else ids)
        before = np.concatenate([whole[-1], action])
    steps = tuple(replace(step, observation_ids=ids) for step, ids in zip(light.steps, whole[:-1], strict=True))
    return replace(light, steps=steps, final_observation=whole[-1])
