"""Faults by name: the one table of what can go wrong in a run, and the monitor that counts, logs and bounds it.

A fault is something that neither the model's skill nor chance explains: a world that broke, a row that cannot be played, a reward that is no number,
a model that has stopped speaking, a disk that is full. Each has a name (`Fault`), and `FAULTS` says what it is, and what is done with it under
`on_fault="drop"` and under `"stop"`. `FaultMonitor` is told of every one: it counts it by name, writes one line into the log of this module, tells its
listener (a run folder keeps a record of it), and stops the run where it should. docs/faults.md shows the table to people.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from agent_gym.core import EnvFault, EnvTimeout

__all__ = ["FAULTS", "DroppedRow", "Fault", "FaultMonitor", "Handling", "TooManyFaults"]

_log = logging.getLogger(__name__)


class Fault(StrEnum):
    """The names of what can go wrong. Each is counted as `faults/NAME` in the records of a run."""

    ENV_FAULT = "env_fault"
    ENV_TIMEOUT = "env_timeout"
    ROW_ERROR = "row_error"
    PROMPT_TOO_LONG = "prompt_too_long"
    NONFINITE_REWARD = "nonfinite_reward"
    ONLY_END_OF_TURN = "only_end_of_turn"
    DISK_FULL = "disk_full"

    @classmethod
    def of(cls, fault: EnvFault | None) -> Fault:
        """Return the name of what an environment raised.

        Args:
            fault: None where it is not known.

        Returns:
            `ENV_FAULT` where it has no name of its own.
        """
        return cls.ENV_TIMEOUT if isinstance(fault, EnvTimeout) else cls.ENV_FAULT


class Handling(NamedTuple):
    """What is done with a fault.

    Attributes:
        what: what it is.
        counts: what one count is.
        drop: what happens under `on_fault="drop"`.
        stop: when `on_fault="stop"` stops the run.
        advice: what to do about it.
    """

    what: str
    counts: str
    drop: str
    stop: str
    advice: str


_EPISODE = "the episode is left out of loss and statistics; above 20 % of the last 200 episodes the run stops"
FAULTS: Mapping[Fault, Handling] = MappingProxyType(
    {
        Fault.ENV_FAULT: Handling(
            "the world broke in every attempt at an episode (a server is down, a browser died)",
            "an episode",
            _EPISODE,
            "at the first",
            "repair the environment",
        ),
        Fault.ENV_TIMEOUT: Handling(
            "the same, and the world did not answer within its time (a search server that hangs)",
            "an episode",
            _EPISODE,
            "at the first",
            "see that the server answers, or give it more time",
        ),
        Fault.ROW_ERROR: Handling(
            "a row of the data set cannot be read, or its environment cannot be made or reset; not tried again",
            "an episode",
            _EPISODE + ", and at once where no row of a generation batch can be played",
            "at the first",
            "mend or remove the row",
        ),
        Fault.PROMPT_TOO_LONG: Handling(
            "the first prompt of a row does not fit into the environment's observations or the model's context; not tried again",
            "an episode",
            _EPISODE + ", and at once where no row of a generation batch can be played",
            "at the first",
            "shorten the prompt, or raise max_observation_tokens up to the model's context",
        ),
        Fault.NONFINITE_REWARD: Handling(
            "a reward is NaN or infinite, or the rewards of an episode add up beyond 1e30",
            "an episode",
            "the episode is left out of loss and statistics",
            "at the first",
            "mend the environment's reward",
        ),
        Fault.ONLY_END_OF_TURN: Handling(
            "every action of an episode is the end of the turn and nothing else",
            "an episode",
            "the episode is trained on like any other: it is the model's own doing, and its reward is what teaches the model better; a batch in "
            "which nothing can be learned is skipped, and max_no_signal_batches of them in a row end the run",
            "at the first generation batch in which every episode is like this",
            "warm-start the model, or go back to an earlier checkpoint with a lower learning rate",
        ),
        Fault.DISK_FULL: Handling(
            "the disk has no room for a checkpoint or a record",
            "a checkpoint that was not written, or the first of the records that wait",
            "no half checkpoint is left behind and the earlier ones stay; records wait and are written as soon as there is room; training goes on, and "
            "only what the run cannot end without (the final weights, the evaluations, the summary) ends it",
            "at the first",
            "free space",
        ),
    }
)
"""Every fault and what is done with it."""


class TooManyFaults(RuntimeError):
    """The world breaks so often that going on would train or measure on what is left of it; with `on_fault="stop"`, once is too often."""


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A row that could not be played, in any of its attempts.

    Attributes:
        row_index: its place among the rows.
        task_id: the environment's name of the task, empty where the reset failed.
        reason: the last fault in words.
        attempts: how often it was begun.
        fault: its name.
    """

    row_index: int
    task_id: str
    reason: str
    attempts: int
    fault: Fault = Fault.ENV_FAULT


class FaultMonitor:
    """Counts faults by name, and watches the share of episodes that are dropped, over calls of `run_rows` when it is passed to each.

    Args:
        on_fault: "drop" goes on without the row, warns above `warn_above` and stops above `stop_above`; "stop" stops at the first drop. `FAULTS` says what
            each means to faults of other kinds.
        window: shares are of this many last episodes (also while fewer have been played, so that a first fault is no alarm).
        warn_above: share at which it warns.
        stop_above: share at which it raises.

    Attributes:
        counts: how often each fault was met.
        dropped_by_task: dropped episodes by task.
        latest: the latest fault in words.
        listener: told of every fault: (fault, number, what in words).

    Raises:
        ValueError: for another `on_fault`.
    """

    def __init__(self, on_fault: str = "drop", *, window: int = 200, warn_above: float = 0.05, stop_above: float = 0.20) -> None:
        if on_fault not in ("drop", "stop"):
            raise ValueError(f"on_fault must be 'drop' or 'stop', not {on_fault!r}")
        self.on_fault = on_fault
        self.window = window
        self.warn_above, self.stop_above = warn_above, stop_above
        self.counts: Counter[Fault] = Counter()
        self.dropped_by_task: Counter[str] = Counter()
        self.latest = ""
        self.listener: Callable[[Fault, int, str], None] | None = None
        self._last: deque[bool] = deque(maxlen=window)
        self._warned = False

    @property
    def rate(self) -> float:
        """The share of dropped episodes among the last `window`."""
        return sum(self._last) / self.window

    def played(self) -> None:
        """Count an episode that was kept."""
        self._last.append(False)
        if self.rate <= self.warn_above:
            self._warned = False

    def note(self, fault: Fault, what: str, *, number: int = 1, log: bool = True) -> None:
        """Count a fault, write it into the log and tell the listener. Stops nothing.

        Args:
            fault: its name.
            what: it in words.
            number: how many of them.
            log: write it into the log.
        """
        self.counts[fault] += number
        self.latest = f"fault {fault}: {what}"
        if log:
            _log.warning("fault %s: %s", fault, what)
        if self.listener is not None:
            self.listener(fault, number, what)

    def met(self, fault: Fault, what: str, *, number: int = 1, log: bool = True) -> None:
        """Note a fault that is no dropped row, and stop the run under "stop".

        Args:
            fault: its name.
            what: it in words.
            number: how many of them.
            log: write it into the log.

        Raises:
            TooManyFaults: under "stop".
        """
        self.note(fault, what, number=number, log=log)
        if self.on_fault == "stop":
            raise TooManyFaults(self._stopped(fault, what))

    def dropped(self, row: DroppedRow, *, log: bool = True) -> None:
        """Count a dropped episode.

        Args:
            row: what is known of it.
            log: write it into the log.

        Raises:
            TooManyFaults: when the run should stop.
        """
        self._last.append(True)
        self.dropped_by_task[row.task_id] += 1
        times = f"{row.attempts} attempt{'s' if row.attempts != 1 else ''}"
        what = f"task {row.task_id!r} (row {row.row_index}) was dropped after {times}: {row.reason}"
        self.note(row.fault, f"{what}; drop rate {self.rate:.1%}", log=log)
        if self.on_fault == "stop":
            raise TooManyFaults(self._stopped(row.fault, what))
        often = ", ".join(f"{task or 'reset'} ({count})" for task, count in self.dropped_by_task.most_common(3))
        if self.rate > self.stop_above:
            raise TooManyFaults(
                f"{sum(self._last)} of the last {self.window} episodes were dropped, above {self.stop_above:.0%}; most often: {often}. "
                f"Last, fault {row.fault}: {what}"
            )
        if self.rate > self.warn_above and not self._warned:
            self._warned = True
            warnings.warn(
                f"{sum(self._last)} of the last {self.window} episodes were dropped, above {self.warn_above:.0%}; most often: {often}",
                stacklevel=2,
            )

    @staticmethod
    def _stopped(fault: Fault, what: str) -> str:
        return f"fault {fault}: {what}. on_fault='stop' stops at the first; {FAULTS[fault].advice}, or use on_fault='drop'"

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it, as JSON.

        Returns:
            For `load_state`.
        """
        return {
            "last": [int(lost) for lost in self._last],
            "warned": self._warned,
            "counts": {str(fault): number for fault, number in self.counts.items()},
            "dropped_by_task": dict(self.dropped_by_task),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Args:
            state: what `state` returned.
        """
        self._last = deque((bool(lost) for lost in state["last"]), maxlen=self.window)
        self._warned = bool(state["warned"])
        self.counts = Counter({Fault(name): int(number) for name, number in state["counts"].items()})
        self.dropped_by_task = Counter(state["dropped_by_task"])
