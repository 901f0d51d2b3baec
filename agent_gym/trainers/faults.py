"""Faults over several ranks: every rank counts the same episodes, and so all stop together or none does.

A rank that stopped alone would leave the others waiting for it for ever. So a rank only notes what happened to its own episodes of a generation
batch (`RankFaults`); the notes of all ranks then go, in one order, to a monitor that every rank holds a copy of (`agree`).
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_gym.flows import DroppedRow, FaultMonitor, TooManyFaults

__all__ = ["RankFaults", "agree"]


class RankFaults(FaultMonitor):
    """What happened to the episodes of one rank in one generation batch. It raises where this rank alone has seen enough.

    Args:
        on_fault: see `FaultMonitor`.

    Attributes:
        outcomes: one entry per episode: what was dropped, or None.
    """

    def __init__(self, on_fault: str) -> None:
        super().__init__(on_fault, warn_above=1.0)  # the monitor of all ranks warns
        self.outcomes: list[DroppedRow | None] = []

    def played(self) -> None:
        """Count an episode that was kept."""
        self.outcomes.append(None)
        super().played()

    def dropped(self, row: DroppedRow, *, log: bool = True) -> None:
        """Count a dropped episode; see `FaultMonitor.dropped`."""
        self.outcomes.append(row)
        super().dropped(row, log=log)


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
            raise TooManyFaults(f"on rank {number}: {failure}")
    for position in range(max((len(outcomes) for _, outcomes in ranks), default=0)):
        for _, outcomes in ranks:
            if position < len(outcomes):
                row = outcomes[position]
                if row is None:
                    monitor.played()
                else:
                    monitor.dropped(row, log=False)  # its own rank has said so
