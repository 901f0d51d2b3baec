"""The pure functions that compute what is logged of a generation batch. Knows neither TRL nor torch; `agent_gym.trainers.metrics` says what the names mean."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from agent_gym.trainers.advantages import Advantages, screen
from agent_gym.trainers.rows import Row
from agent_gym.trajectory import CUT_OFF, StopReason, Trajectory

__all__ = ["batch_metrics", "completions_table"]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return float(np.mean(listed)) if listed else float("nan")


def _families(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    parts: dict[str, list[float]] = defaultdict(list)
    for item in trajectories:
        sums: dict[str, float] = defaultdict(float)
        for step in item.steps:
            for name, value in step.reward_parts.items():
                sums[name] += float(value)
        for name, value in sums.items():
            parts[f"reward_parts/{name}"].append(value)
        for name, value in item.metrics.items():
            parts[f"metrics/{name}"].append(float(value))
    return {name: _mean(values) for name, values in parts.items()}


def batch_metrics(
    trajectories: Sequence[Trajectory], rows: Sequence[Row], advantages: Advantages, *, zero_groups: int, version: int | None = None
) -> dict[str, float]:
    """Compute the figures of one generation batch, over all ranks.

    Args:
        trajectories: all of them, those that do not count included.
        rows: their training rows before level weights and before rows without signal are left out.
        advantages: one entry per step.
        zero_groups: number of groups without variance.
        version: the current optimiser step, for the staleness of what was sampled.

    Returns:
        Name -> value; NaN where there is nothing to average.
    """
    kept_positions, reasons = screen(trajectories)
    kept = [trajectories[position] for position in kept_positions]
    totals = np.array([item.total_reward for item in kept])
    steps = [step for item in kept for step in item.steps]
    turns = [len(item.steps) for item in kept]
    groups = len({item.group_id for item in kept})
    tokens = sum(len(row) for row in rows)
    trained = sum(row.num_trained for row in rows)
    per_trajectory = Counter(row.trajectory for row in rows)
    values = np.concatenate([row.advantages[row.mask] for row in rows]).astype(np.float64) if rows else np.zeros(0)
    result = {
        "reward": _mean(totals),
        "reward_std": float(totals.std(ddof=1)) if len(totals) > 1 else 0.0,
        "reward/step_mean": _mean(step.reward for step in steps),
        "frac_reward_zero_std": zero_groups / groups if groups else 1.0,
        "rollout/success": _mean(float(item.is_success) for item in kept),
        "rollout/turns_mean": _mean(turns),
        "rollout/turns_max": float(max(turns, default=0)),
        "rollout/truncated_frac": _mean(float(item.truncated) for item in kept),
        "rollout/cutoff_frac": _mean(float(step.finish_reason in CUT_OFF) for step in steps),
        "rollout/invalid_frac": _mean(float(not step.info.get("action_valid", True)) for step in steps),
        "rollout/empty_actions": float(sum(not len(step.action_ids) for step in steps)),
        "rollout/action_tokens": sum(len(step.action_ids) for step in steps) / max(1, len(kept)),
        "rollout/env_token_frac": 1.0 - trained / tokens if tokens else 0.0,
        "rollout/context_len_max": float(max((len(step.observation_ids) + len(step.action_ids) for step in steps), default=0)),
        "rollout/rows_per_traj": len(rows) / len(per_trajectory) if per_trajectory else 0.0,
        "rollout/merge_breaks": float(len(rows) - len(per_trajectory)),
        "rollout/episodes": float(len(trajectories)),
        "rollout/nonfinite_rewards": float(sum(reason == "nonfinite_reward" for reason in reasons.values())),
        "adv/mean": float(values.mean()) if len(values) else 0.0,
        "adv/std": float(values.std()) if len(values) else 0.0,
        "adv/absmax": float(np.abs(values).max()) if len(values) else 0.0,
    }
    if version is not None:
        result["rollout/staleness_max"] = float(max((version - step.policy_version for step in steps), default=0))
    for reason in StopReason:
        share = sum(item.stop_reason is reason for item in trajectories) / max(1, len(trajectories))
        if share:
            result[f"rollout/stop/{reason.value}"] = share
    result.update(_families(kept))
    return result


def completions_table(trajectories: Sequence[Trajectory], advantages: Advantages, decode: Any) -> dict[str, list[Any]]:
    """Make the completions table: one line per trajectory.

    Args:
        trajectories: the batch.
        advantages: one entry per step.
        decode: `decode(ids) -> str`.

    Returns:
        Column -> values, all of one length: prompt, completion (all turns, the environment's included), return, advantage (mean over
        steps), env, task, turns, stop_reason, success.
    """
    table: dict[str, list[Any]] = {
        name: [] for name in ("prompt", "completion", "return", "advantage", "env", "task", "turns", "stop_reason", "success")
    }
    for item, values in zip(trajectories, advantages, strict=True):
        pieces: list[str] = []
        shown: np.ndarray[Any, Any] = np.zeros(0, dtype=np.int64)
        for number, step in enumerate(item.steps):
            observation = step.observation_ids
            if number:
                grows = len(observation) >= len(shown) and np.array_equal(observation[: len(shown)], shown)
                pieces.append(decode(observation[len(shown) :]) if grows else "\n[context rewritten]\n" + decode(observation))
            pieces.append(decode(step.action_ids))
            shown = np.concatenate([observation, step.action_ids])
        table["prompt"].append(decode(item.steps[0].observation_ids) if item.steps else "")
        table["completion"].append("".join(pieces))
        table["return"].append(item.total_reward)
        table["advantage"].append(_mean(float(np.mean(value)) if np.size(value) else 0.0 for value in values) if len(values) else 0.0)
        table["env"].append(item.env_id)
        table["task"].append(item.task_id)
        table["turns"].append(len(item.steps))
        table["stop_reason"].append(str(item.stop_reason))
        table["success"].append(item.is_success)
    return table
