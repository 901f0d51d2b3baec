"""Faults of a trainer: rows that raise, episodes with something wrong in them, and several ranks that have to count the same and to stop together.

A rank that stopped alone would leave the others waiting for it for ever. So a rank only notes what happened to its own episodes of a generation
batch (`RankFaults`); the notes of all ranks then go, in one order, to a monitor that every rank holds a copy of (`agree`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from agent_gym.flows import DroppedRow, Fault, FaultMonitor, TooManyFaults
from agent_gym.trainers.advantages import screen
from agent_gym.trainers.environments import read_row
from agent_gym.trajectory import CUT_OFF, Trajectory

__all__ = ["ROW_ERROR", "GuardedRows", "RankFaults", "agree", "drop_unreadable", "read_rows", "watch"]

ROW_ERROR = "row_error"
"""Key of a row that could not be read: the error in words."""


class GuardedRows:
    """A map-style data set whose rows may raise: one that does is `{ROW_ERROR: the error in words}`.

    Args:
        rows: the data set.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        try:
            return self.rows[index]
        except Exception as error:  # noqa: BLE001  # whatever the data set's own code raises
            return {ROW_ERROR: f"row {index} of the data set: {type(error).__name__}: {error}"}

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return several rows, as a loader asks for them."""
        return [self[index] for index in indices]


def read_rows(inputs: Sequence[Mapping[str, Any]], env_id: str) -> list[dict[str, Any]]:
    """Read the rows of a batch.

    Args:
        inputs: as the data set holds them.
        env_id: for rows that name none.

    Returns:
        As `read_row` does, in order; a row that cannot be read has its error under `ROW_ERROR`, and nothing to play.
    """
    rows = []
    for given in inputs:
        reason = str(given.get(ROW_ERROR) or "")
        try:
            row = read_row(given, env_id) if not reason else {}
        except Exception as error:  # noqa: BLE001  # a row may hold anything
            reason = f"{type(error).__name__}: {error}"
        if reason:
            row = {"env_id": env_id, "env_kwargs": {}, "seed": 0, "options": {}, ROW_ERROR: reason}
        rows.append(row)
    return rows


def drop_unreadable(examples: Sequence[dict[str, Any]], monitor: FaultMonitor) -> tuple[list[dict[str, Any]], list[int]]:
    """Count the rows of a batch that could not be read.

    Args:
        examples: of this rank.
        monitor: of faults.

    Returns:
        The rows that can be played, and their places among all.

    Raises:
        TooManyFaults: if the monitor says so.
    """
    for position, row in enumerate(examples):
        if ROW_ERROR in row:
            monitor.dropped(DroppedRow(position, "", row[ROW_ERROR], 1, Fault.ROW_ERROR))
    places = [place for place, row in enumerate(examples) if ROW_ERROR not in row]
    return [examples[place] for place in places], places


def watch(trajectories: Sequence[Trajectory], monitor: FaultMonitor, end_of_turn_ids: Collection[int], *, log: bool) -> None:
    """Look for what is wrong with a batch of episodes that were played: rewards that are no numbers, a model that only ends its turn.

    Args:
        trajectories: of all ranks.
        monitor: of faults, over all ranks.
        end_of_turn_ids: the ids that end a turn.
        log: write into the log; one rank does.

    Raises:
        TooManyFaults: under `on_fault="stop"`.
    """
    kept, reasons = screen(trajectories)
    for position, reason in reasons.items():
        if reason == "nonfinite_reward":
            item = trajectories[position]
            rewards = [step.reward for step in item.steps]
            monitor.met(
                Fault.NONFINITE_REWARD,
                f"task {item.task_id!r} of {item.env_id} gave a reward that is not finite {rewards}: the episode is left out",
                log=log,
            )
    silent = [position for position in kept if _only_ends_turns(trajectories[position], end_of_turn_ids)]
    if silent:
        tell = monitor.met if len(silent) == len(kept) else monitor.note
        what = f"the model only ended its turn in {len(silent)} of {len(kept)} episodes, first in task {trajectories[silent[0]].task_id!r}"
        tell(Fault.ONLY_END_OF_TURN, what, number=len(silent), log=log)


def _only_ends_turns(trajectory: Trajectory, end_of_turn_ids: Collection[int]) -> bool:
    ended = [step for step in trajectory.steps if len(step.action_ids) or step.finish_reason not in CUT_OFF]  # else it could not speak
    return bool(ended) and all(int(token) in end_of_turn_ids for step in ended for token in step.action_ids)


class RankFaults(FaultMonitor):
    """What happened to the episodes of one rank in one generation batch. It raises where this rank alone has seen enough for all of them.

    Args:
        on_fault: see `FaultMonitor`.
        ranks: how many there are. Their monitor looks at the last episodes of all, so one rank's drops count so much less.

    Attributes:
        outcomes: one entry per episode: what was dropped, or None.
    """

    def __init__(self, on_fault: str, ranks: int = 1) -> None:
        super().__init__(on_fault, warn_above=1.0, stop_above=min(1.0, 0.20 * ranks))  # the monitor of all ranks warns
        self.outcomes: list[DroppedRow | None] = []

    def played(self) -> None:
        """Count an episode that was kept."""
        self.outcomes.append(None)
        super().played()

    def dropped(self, row: DroppedRow, *, log: bool = True) -> None:
        """Count a dropped episode; see `FaultMonitor.dropped`."""
        self.outcomes.append(row)
        super().dropped(row, log=False)  # all ranks' monitor says so, and only the first rank is seen


def agree(monitor: FaultMonitor, ranks: Sequence[tuple[str, Sequence[DroppedRow | None]]]) -> None:
    """Show a monitor what happened on all ranks. With the same arguments it does the same on each.

    Args:
        monitor: of all ranks.
        ranks: for each rank, why it stopped (empty if it did not), and the outcomes of its episodes.

    Raises:
        TooManyFaults: when the run should stop.
    """
    for number, (failure, _) in enumerate(ranks):
        if failure:
            for lost in (one for _, outcomes in ranks for one in outcomes if one is not None):
                monitor.note(lost.fault, lost.reason)
            raise TooManyFaults(f"on rank {number}: {failure}")
    for position in range(max((len(outcomes) for _, outcomes in ranks), default=0)):
        for _, outcomes in ranks:
            if position < len(outcomes):
                row = outcomes[position]
                if row is None:
                    monitor.played()
                else:
                    monitor.dropped(row)
