"""Around the playing of a generation batch: which rows are one group, whether the episodes speak the model's tokenizer, and the figures of faults.

What plays them is `agent_gym.flows`; who asks for them is the trainer, on each rank for its own share of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_gym.flows import DroppedRow, FaultMonitor, RolloutResult
from agent_gym.trajectory import StopReason, Trajectory

__all__ = ["count_faults", "flow_figures", "group_numbers", "with_groups"]


def group_numbers(keys: Sequence[str], size: int) -> list[int]:
    """Number the groups of a batch: runs of equal rows, at most `size` long.

    Args:
        keys: one per row, over all ranks in order; equal for equal rows.
        size: episodes of a group, at least 1.

    Returns:
        The group of each row, counted from 0.
    """
    numbers: list[int] = []
    run = 0
    for position, key in enumerate(keys):
        goes_on = position > 0 and key == keys[position - 1] and run < size
        run = run + 1 if goes_on else 1
        numbers.append(numbers[-1] + (0 if goes_on else 1) if numbers else 0)
    return numbers


def with_groups(played: Sequence[Trajectory], examples: Sequence[Mapping[str, Any]], fingerprint: str) -> list[Trajectory]:
    """Check that the episodes speak the model's tokenizer, and give those without a group that of the example at their position.

    Args:
        played: of this rank.
        examples: that were to be played, each with its `group_id`.
        fingerprint: of the model's tokenizer.

    Returns:
        The episodes. They stay without a group where there are not as many as examples.

    Raises:
        ValueError: for an episode of another tokenizer.
    """
    for number, item in enumerate(played):
        if item.tokenizer_fingerprint and item.tokenizer_fingerprint != fingerprint:
            raise ValueError(
                f"episode {number} (task {item.task_id!r}) was played with tokenizer {item.tokenizer_fingerprint}, the model speaks "
                f"{fingerprint}; its ids mean other tokens to the model"
            )
    if len(played) != len(examples):
        return list(played)
    return [item if item.group_id else replace(item, group_id=row["group_id"]) for item, row in zip(played, examples, strict=True)]


def flow_figures(result: RolloutResult, examples: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the figures of a rollout by `run_rows`.

    Args:
        result: what it returned.
        examples: that were played.

    Returns:
        Faults, in all and by environment, retries, and the seconds of policy and environments.
    """
    figures = {
        "rollout/faults": float(len(result.dropped)),
        "rollout/fault_retries": float(result.retries),
        "rollout/seconds_gen": result.seconds["policy"],
        "rollout/seconds_env": result.seconds["env"],
    }
    for row in result.dropped:
        name = f"rollout/faults/{examples[row.row_index]['env_id']}"
        figures[name] = figures.get(name, 0.0) + 1.0
    return figures


def count_faults(played: Sequence[Trajectory], monitor: FaultMonitor) -> dict[str, float]:
    """Show the episodes of a rollout function to the fault monitor, as `run_rows` does its own.

    Args:
        played: of this rank.
        monitor: of faults.

    Returns:
        Faults, in all and by environment.

    Raises:
        agent_gym.flows.TooManyFaults: if the monitor says so.
    """
    figures = {"rollout/faults": 0.0}
    for position, item in enumerate(played):
        if item.stop_reason is not StopReason.ENV_FAULT:
            monitor.played()
            continue
        for name in ("rollout/faults", f"rollout/faults/{item.env_id}"):
            figures[name] = figures.get(name, 0.0) + 1.0
        monitor.dropped(DroppedRow(position, item.task_id, item.steps[-1].feedback or "environment fault", 1))
    return figures
