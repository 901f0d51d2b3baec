"""Several policies on the same tasks: one table (terminal, Markdown, JSON) and one figure. `Line` is one policy in one way of decoding, `Comparison` all of them.

Every policy plays the same rows with the same seeds, so a difference between two is one of pairs: its interval is a bootstrap over the differences of tasks that both have
finished, and is narrower than the two intervals side by side. A policy that failed keeps its line, with its status and what it had done until then. What is unknown is
shown as such: a cost without prices or without the server's usage is no zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_gym.evaluation import CONFIDENCE, RESAMPLES, Arm, Estimate, bootstrap_intervals, wilson_interval
from agent_gym.policies.metering import Traffic, money

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["STATUSES", "Comparison", "Line", "paired_difference"]

SCHEMA = "agent-gym.comparison/1"
STATUSES = ("done", "failed", "interrupted", "not run")
_UNKNOWN = "unknown"
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Line:
    """One policy in one way of decoding.

    Attributes:
        policy: the user's name of it.
        arm: "sampled", "greedy", or the name of a player without a model.
        model: what it is.
        engine: what computes it.
        token_exact: its episodes are the very ids that were sampled; False for servers of text.
        status: one of `STATUSES`.
        reason: why it is not done; empty where it is.
        result: the figures, over what was finished; None where nothing was.
        traffic: what its requests took; None for players without a model.
        difference: its success minus the first line's of the same arm, over the tasks that both finished; None for that line itself.
    """

    policy: str
    arm: str
    model: str = ""
    engine: str = ""
    token_exact: bool = True
    status: str = "done"
    reason: str = ""
    result: Arm | None = None
    traffic: Traffic | None = None
    difference: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All lines.

    Attributes:
        env_id: of the environment.
        lines: in the order in which the policies were given.
        settings: split, seed, tasks, samples and whatever else they depend on.
    """

    env_id: str
    lines: Sequence[Line]
    settings: Mapping[str, Any]

    @property
    def failed(self) -> list[Line]:
        """The lines that failed."""
        return [line for line in self.lines if line.status == "failed"]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values.

        Returns:
            What JSON can write.
        """
        from agent_gym.runs import to_plain

        head = {"schema": SCHEMA, "env_id": self.env_id, **self.settings, "confidence": CONFIDENCE, "resamples": RESAMPLES}
        return dict(to_plain({**head, "lines": [asdict(line) for line in self.lines]}))

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the table as text.

        Returns:
            The titles of the columns, and the cells of each line.
        """
        titles = [
            "policy",
            "success",
            "to the first",
            "reward",
            "episodes",
            "turns",
            "tokens in",
            "tokens out",
            "cost",
            "s, median",
            "s, p95",
            "status",
        ]
        return titles, [_cells(line) for line in self.lines]

    def notes(self) -> list[str]:
        """Return what the table does not say by itself: reasons of failures, and what its figures mean.

        Returns:
            Sentences; empty where nothing needs one.
        """
        found = [f"{_name(line)}: {line.status}: {line.reason}" for line in self.lines if line.reason]
        if not all(line.token_exact for line in self.lines):
            names = dict.fromkeys(line.policy for line in self.lines if not line.token_exact)
            found.append(f"not token-exact (a server's text): {', '.join(names)}")
        if any(line.traffic is not None and line.traffic.unknown_usage for line in self.lines):
            found.append("the server did not tell the usage of all requests: their tokens and cost are unknown")
        found.append(
            "success: mean and 95 % interval over tasks; to the first: paired difference over the same tasks; tokens, cost: of all requests; s: of one request"
        )
        return found

    def table(self) -> Table:
        """Return the figures as a rich table, one row per line, narrow enough for 120 columns; the Markdown has all digits.

        Returns:
            For a rich console.
        """
        from rich.box import SIMPLE_HEAD
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self._title()), title_justify="left", header_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        titles = ["policy", "success", " to the first", " episodes", "turns", "tokens in/out", " cost", " s p50/p95"]
        for number, title in enumerate(titles):
            table.add_column(escape(title), justify="right" if number else "left", no_wrap=number > 0, overflow="fold")
        for line in self.lines:
            table.add_row(*map(escape, _narrow(line)), style="" if line.status == "done" else "red")
        return table

    def markdown(self) -> str:
        """Return the figures as a Markdown table with its notes.

        Returns:
            Text that ends with a line break.
        """
        titles, rows = self.rows()
        align = ["---" if number in (0, len(titles) - 1) else "---:" for number in range(len(titles))]
        lines = [f"| {' | '.join(map(_in_cell, cells))} |" for cells in (titles, align, *rows)]
        return "\n".join([f"# {self._title()}", "", *lines, "", *(f"- {_in_cell(note)}" for note in self.notes()), ""])

    def save(self, folder: str | Path) -> list[str]:
        """Write the JSON, the table as text and as Markdown, and the figure.

        Args:
            folder: for them.

        Returns:
            The names of the files.
        """
        import io

        from rich.console import Console

        from agent_gym.report import comparison_figure
        from agent_gym.runs import atomic_write

        text = io.StringIO()
        Console(file=text, width=120).print(self.table())
        told = self.to_dict()
        files = {
            "comparison.json": json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
            "comparison.txt": "".join(line.rstrip() + "\n" for line in text.getvalue().splitlines())
            + "".join(f"{note}\n" for note in self.notes()),
            "comparison.md": self.markdown(),
            "comparison.svg": f"{comparison_figure(told)}\n",
        }
        for name, content in files.items():
            atomic_write(Path(folder) / name, content)
        return list(files)

    def _title(self) -> str:
        tasks = self.settings.get("tasks")
        parts = [
            self.env_id,
            str(self.settings.get("split") or ""),
            f"{tasks} tasks" if tasks else "",
            f"seed {self.settings.get('seed', 0)}",
        ]
        return "  ".join(part for part in parts if part)


def paired_difference(first: Arm, other: Arm, seed: int = 0) -> Estimate | None:
    """Return how much more one arm succeeds than another, task by task.

    Args:
        first: that is taken away.
        other: on the same tasks, in the same order.
        seed: of the bootstrap.

    Returns:
        The mean of the differences with its bootstrap interval over tasks; where all differences are the same, with the width that Wilson's interval leaves for tasks that
        are otherwise. None without a task that both have finished.

    Raises:
        ValueError: if the arms have other tasks.
    """
    pairs = list(zip(first.per_task, other.per_task, strict=True))
    if any(one["task_id"] != two["task_id"] for one, two in pairs if one["success"] and two["success"]):
        raise ValueError("the two arms were not played on the same tasks; a difference task by task needs the same rows")
    values = [float(np.mean(two["success"]) - np.mean(one["success"])) for one, two in pairs if one["success"] and two["success"]]
    if not values:
        return None
    if values[0] in (-1.0, 0.0, 1.0) and all(one == values[0] for one in values):  # the bootstrap of a constant has no width
        rare = wilson_interval(0, len(values))[1]  # as many tasks as could still be otherwise
        ends = (values[0] - (2 * rare if values[0] else rare), values[0] + (2 * rare if values[0] else rare))
        return Estimate(values[0], max(-1.0, ends[0]), min(1.0, ends[1]), "wilson", len(values))
    low, high = bootstrap_intervals(np.array(values, dtype=np.float64)[:, None], seed)
    return Estimate(float(np.mean(values)), float(low[0]), float(high[0]), "bootstrap", len(values))


def _name(line: Line) -> str:
    return line.policy if line.arm == line.policy else f"{line.policy} ({line.arm})"


def _cells(line: Line) -> list[str]:
    arm, traffic = line.result, line.traffic
    shown = arm is not None and arm.episodes > 0
    success, reward = (arm.estimates["success"], arm.estimates["reward"]) if arm is not None and shown else (None, None)
    return [
        _name(line),
        _estimate(success),
        _NONE if line.difference is None else f"{line.difference.mean:+.3f} [{line.difference.low:+.3f}, {line.difference.high:+.3f}]",
        _NONE if reward is None or math.isnan(reward.mean) else f"{reward.mean:.3f}",
        _NONE if arm is None else f"{arm.episodes}" if not arm.faults else f"{arm.episodes} (+{arm.faults} faults)",
        f"{arm.turns:.2f}" if arm is not None and shown else _NONE,
        *_spent(traffic),
        line.status,
    ]


def _narrow(line: Line) -> list[str]:
    """The cells of the terminal's table: fewer digits, two figures to a cell, and a status where it is not "done"."""
    name, success, _, _, episodes, turns, *_, cost, median, high, status = _cells(line)
    arm, difference, traffic = line.result, line.difference, line.traffic
    name = name if status == "done" else f"{name}: {status}"
    if arm is not None and success != _NONE:
        success = f"{arm.success.mean:.3f} [{arm.success.low:.2f}, {arm.success.high:.2f}]"
    between = _NONE if difference is None else f"{difference.mean:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]"
    if traffic is None or not traffic.requests:
        return [name, success, between, episodes, turns, _NONE, _NONE, _NONE]
    tokens = "/".join(_UNKNOWN if one is None else _rounded(one) for one in (traffic.prompt_tokens, traffic.completion_tokens))
    return [name, success, between, episodes, turns, _UNKNOWN if traffic.unknown_usage else tokens, cost, f"{median}/{high}"]


def _rounded(count: int) -> str:
    """A count in at most five characters."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.3g}{unit}" if count < 1000 * size else f"{count // size}{unit}"
    return str(count)


def _spent(traffic: Traffic | None) -> list[str]:
    if traffic is None or not traffic.requests:
        return [_NONE] * 5
    counts = [_UNKNOWN if one is None else f"{one:,}" for one in (traffic.prompt_tokens, traffic.completion_tokens)]
    cost = money(traffic.cost) if traffic.cost is not None else _UNKNOWN if traffic.unknown_usage else _NONE
    return [*counts, cost, *(_NONE if one is None else f"{one:.2f}" for one in (traffic.latency_median, traffic.latency_p95))]


def _estimate(estimate: Estimate | None) -> str:
    return _NONE if estimate is None or math.isnan(estimate.mean) else str(estimate)


def _in_cell(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())
