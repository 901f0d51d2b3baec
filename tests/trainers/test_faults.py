"""Faults of several ranks are counted as one run's."""

from __future__ import annotations

import pytest

from agent_gym.flows import DroppedRow, FaultMonitor, TooManyFaults
from agent_gym.trainers.faults import RankFaults, agree

LOST = DroppedRow(0, "t", "down", 1)


def test_every_rank_comes_to_the_same_end() -> None:
    ranks = [("", [None] * 10), ("", [LOST, None, LOST])]
    monitors = [FaultMonitor(), FaultMonitor()]
    for monitor in monitors:
        agree(monitor, ranks)
        assert monitor.rate == 2 / 200
    for monitor in monitors:
        with pytest.raises(TooManyFaults, match="on rank 1: enough"):
            agree(monitor, [("", []), ("enough", [LOST])])
        with pytest.raises(TooManyFaults, match="41 of the last 200"), pytest.warns(UserWarning, match="above 5"):
            agree(monitor, [("", [None] * 10), ("", [LOST] * 60)])


def test_the_last_200_are_those_of_all_ranks() -> None:
    """Seven sound ranks and a broken one: one episode in eight is lost, whichever rank comes last."""
    monitor = FaultMonitor()
    with pytest.warns(UserWarning, match="above 5"):
        agree(monitor, [*[("", [None] * 100)] * 7, ("", [LOST] * 100)])
    assert monitor.rate == pytest.approx(1 / 8)


def test_one_rank_stops_early_where_it_alone_has_seen_enough() -> None:
    own = RankFaults("drop")
    with pytest.raises(TooManyFaults):
        for _ in range(100):
            own.dropped(LOST)
    assert len(own.outcomes) == 41
    with pytest.raises(TooManyFaults):
        RankFaults("stop").dropped(LOST)
