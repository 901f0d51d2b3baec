"""What the trainer logs: the table of names with their meaning, and the pure functions that compute them. Knows neither TRL nor torch.

The names are stable: dashboards and reports may rely on them. In evaluation, every name gets the prefix `eval_`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from agent_gym.trainers.advantages import Advantages, screen
from agent_gym.trainers.rows import Row
from agent_gym.trajectory import CUT_OFF, StopReason, Trajectory

__all__ = ["METRICS", "batch_metrics", "completions_table", "describe"]

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "reward": "mean return (undiscounted sum of step rewards) of the episodes that count",
        "reward_std": "standard deviation of those returns (ddof 1)",
        "reward/step_mean": "mean reward of a step",
        "frac_reward_zero_std": "share of groups whose returns are all equal (or that have fewer than two members), 0 to 1",
        "reward_parts/*": "mean over episodes of the sum of one named part of the reward",
        "metrics/*": "mean over episodes of a figure that is no reward (F1, recall, ...)",
        "rollout/success": "share of episodes whose environment reported success, 0 to 1",
        "rollout/turns_mean": "mean number of steps of an episode",
        "rollout/turns_max": "largest number of steps of an episode",
        "rollout/truncated_frac": "share of episodes that a limit ended, 0 to 1",
        "rollout/cutoff_frac": "share of actions that were cut off at max_completion_length, 0 to 1",
        "rollout/invalid_frac": "share of actions that the environment called invalid, 0 to 1",
        "rollout/empty_actions": "number of actions without any token",
        "rollout/action_tokens": "mean number of sampled tokens of an episode",
        "rollout/env_token_frac": "share of the rows' tokens that the environment wrote, 0 to 1",
        "rollout/context_len_max": "longest prompt with its action, tokens",
        "rollout/rows_per_traj": "rows of an episode that has any, mean (1 when every step was merged)",
        "rollout/merge_breaks": "number of times that a step could not be merged into the row before it",
        "rollout/stop/*": "share of episodes that ended for this reason, 0 to 1",
        "rollout/episodes": "number of episodes of the generation batch, over all ranks",
        "rollout/faults": "number of episodes left out because their world broke (after retries)",
        "rollout/faults/*": "number of them by environment id",
        "rollout/fault_retries": "number of episodes that met a fault and were begun again",
        "rollout/fault_frac": "faults among the last 200 episodes of all ranks, over 200, 0 to 1",
        "faults/*": "number of faults of this name since the last generation batch (see `agent_gym.flows.Fault`), over all ranks",
        "rollout/nonfinite_rewards": "number of episodes left out because of a NaN, infinite or gigantic reward",
        "rollout/seconds": "wall time of the rollouts of the slowest rank, seconds",
        "rollout/seconds_gen": "of it, summed over episodes, waiting for the policy, seconds",
        "rollout/seconds_env": "of it, summed over episodes, inside the environments, seconds",
        "rollout/seconds_sync": "before it, writing the model's weights and loading them into the engine, of the slowest rank, seconds",
        "rollout/staleness_max": "largest difference between the current optimiser step and the one that sampled a trained action",
        "replay/episodes": "number of replayed episodes of the generation batch",
        "replay/groups": "number of groups that they belong to",
        "replay/too_old": "number of episodes of the replay files that are older than replay_max_age now, and left out",
        "replay/available": "number of episodes of the replay files that may be drawn now",
        "replay/reward": "mean return of the replayed episodes",
        "replay/age_mean": "their mean age, policy versions",
        "replay/age_max": "age of the oldest of them, policy versions",
        "replay/is_mean": "mean ratio of the trained model's probability to that of the sampler's, raw, over replayed tokens",
        "replay/is_max": "largest such ratio, raw",
        "replay/is_clipped_frac": "share of those ratios above is_clip, 0 to 1",
        "replay/logp_diff_mean": "mean |log-probability of the trained model - of the sampler| over replayed tokens, nats",
        "batch/pad_frac": "share of padding among the tokens of all forward passes, 0 to 1",
        "batch/sub_steps": "number of forward passes per rank and generation batch",
        "batch/rank_imbalance": "padded tokens of the busiest rank over the mean (1 is perfect)",
        "batch/dummy_rows": "number of dummy rows that fill up ranks",
        "batch/trained_tokens": "number of action tokens in the loss's denominator, over all ranks",
        "batch/dropped_groups": "number of zero-variance groups left out by drop_zero_variance",
        "batch/no_signal": "1 when no token of the generation batch has an advantage, else 0",
        "adv/mean": "mean advantage of a trained token before level weights",
        "adv/std": "its standard deviation",
        "adv/absmax": "its largest magnitude",
        "critic/explained_variance": "1 - Var(target - value) / Var(target) over the states of the batch, by the critic before it was trained on it; at most 1",
        "critic/value_loss": "mean value loss of a state over the critic's optimiser steps",
        "critic/clip_frac": "share of states whose value moved beyond value_clip in those steps, 0 to 1",
        "critic/value_mean": "mean value of a state",
        "critic/target_mean": "mean of what the critic should have said",
        "critic/bootstrapped": "number of episodes whose final observation was valued, since a limit ended them",
        "critic/grad_norm": "norm of the critic's gradient before clipping, mean over its optimiser steps",
        "critic/updates": "number of the critic's optimiser steps on the generation batch",
        "critic/seconds": "wall time of the critic's training, seconds",
        "distill/reverse_kl": "mean reverse KL divergence of the student from the teacher at an action token (sampled: its estimate), nats",
        "distill/teacher_logprob": "mean log-probability of the teacher of a sampled token, nats",
        "distill/agreement": "share of sampled tokens that the teacher finds the likeliest, 0 to 1",
        "distill/tokens_scored": "tokens that the teacher read, prompts included",
        "distill/unknown": "number of action tokens whose log-probability a teacher behind a server did not know; they are not trained by it",
        "distill/seconds": "wall time of the teacher's reading, of the slowest rank, seconds",
        "is/mean": "mean ratio of the trained model's old probability to the sampler's, raw, over trained tokens with log-probabilities",
        "is/max": "largest such ratio, raw",
        "is/clipped_frac": "share of those ratios above is_clip, 0 to 1",
        "logp_diff/mean": "mean |log-probability of the trained model - of the sampler|, nats; near 0 when ids and engine are exact",
        "logp_diff/max": "largest such difference, nats",
        "entropy": "mean entropy of the model at trained tokens with an advantage, nats",
        "kl": "mean estimated KL divergence from the reference model, nats (beta > 0 only)",
        "clip_ratio/low_mean": "share of trained tokens clipped below (dapo), 0 to 1",
        "clip_ratio/high_mean": "share of trained tokens clipped above (dapo), 0 to 1",
        "clip_ratio/region_mean": "share of trained tokens clipped at either side (dapo), 0 to 1",
        "cispo_clip_ratio": "share of trained tokens whose ratio is capped (cispo), 0 to 1",
        "step_time": "wall time of an optimiser step, rollouts included, seconds",
        "loss": "mean loss of the optimiser steps since the last record",
        "grad_norm": "norm of the gradient before clipping",
        "learning_rate": "of the optimiser step",
        "epoch": "passes over the data set so far",
        "step": "optimiser steps so far",
        "num_tokens": "tokens that were trained on so far",
        "num_input_tokens_seen": "tokens of all forward passes so far",
        "runtime": "wall time of an evaluation, seconds",
        "samples_per_second": "episodes of an evaluation per second",
        "steps_per_second": "batches of an evaluation per second",
    }
)
"""Name -> meaning and unit. A name that ends in `*` stands for a family."""


def describe(name: str) -> str | None:
    """Look up what a logged name means.

    Args:
        name: as logged, `eval_` allowed.

    Returns:
        The entry of `METRICS`, or None.
    """
    plain = name.removeprefix("eval_")
    if plain in METRICS:
        return METRICS[plain]
    families = [family for family in METRICS if family.endswith("*") and plain.startswith(family[:-1])]
    return METRICS[max(families, key=len)] if families else None


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
