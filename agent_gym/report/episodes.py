"""Episodes as the page's script reads them: a short summary of each for the list, and a record with every token for the one that is shown.

The numbers are those of the trajectory file; texts are decoded here, and characters that would change how the page reads are named (`visible`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from agent_gym.report.markup import visible
from agent_gym.report.transcript import Segment, contexts_of, pieces_of
from agent_gym.runs import to_plain
from agent_gym.trajectory import CUT_OFF, Step, Trajectory

__all__ = ["episode_record", "episode_summary"]

_LONGEST_FEEDBACK = 4000


def episode_summary(trajectory: Trajectory) -> dict[str, Any]:
    """Return what the list shows of an episode.

    Args:
        trajectory: the episode.

    Returns:
        Plain values: `task`, `env`, `seed`, `group`, `reward`, `success`, `turns`, `tokens` (longest prompt with its action), `sampled` (action tokens),
        `stop`, `version` (of the weights of the first action), `greedy`, `fault`.
    """
    steps = trajectory.steps
    return {
        "task": visible(trajectory.task_id) or visible(trajectory.env_id),
        "env": visible(trajectory.env_id),
        "seed": trajectory.seed,
        "group": visible(trajectory.group_id),
        "reward": _number(trajectory.total_reward),
        "success": trajectory.is_success,
        "turns": len(steps),
        "tokens": max((len(step.observation_ids) + len(step.action_ids) for step in steps), default=len(trajectory.final_observation)),
        "sampled": sum(len(step.action_ids) for step in steps),
        "stop": str(trajectory.stop_reason),
        "version": steps[0].policy_version if steps else 0,
        "greedy": trajectory.sampling.get("temperature") == 0,
        "fault": any(bool(step.info.get("env_fault", False)) for step in steps),
    }


def episode_record(trajectory: Trajectory, tokenizer: Any) -> dict[str, Any]:
    """Return an episode with every token.

    Args:
        trajectory: the episode.
        tokenizer: whose ids these are; None shows ids.

    Returns:
        The summary and `metrics`, `contexts` (each a list of segments in order) and `steps`. A segment has `who` ("e" or "a"), `step` (0 from the first;
        None for the last answer), `ids`, `pieces` (number of ids and text of each smallest run of whole characters) and, for an action, `logprobs`,
        `advantages` and `mask`, each one entry per id, or None where the file holds none.
    """
    numbers = {id(step): number for number, step in enumerate(trajectory.steps)}
    contexts = [
        [_segment(segment, tokenizer, None if segment.step is None else numbers[id(segment.step)]) for segment in context.segments]
        for context in contexts_of(trajectory)
    ]
    return {
        **episode_summary(trajectory),
        "metrics": {visible(str(name)): _number(value) for name, value in trajectory.metrics.items()},
        "decoded": tokenizer is not None,
        "contexts": contexts,
        "steps": [_step(step) for step in trajectory.steps],
    }


def _segment(segment: Segment, tokenizer: Any, step: int | None) -> dict[str, Any]:
    pieces = [[end - start, visible(text)] for start, end, text in pieces_of(segment.ids, tokenizer)]
    record: dict[str, Any] = {"who": "a" if segment.action else "e", "step": step, "ids": list(segment.ids), "pieces": pieces}
    if segment.action:
        record["logprobs"] = _numbers(segment.logprobs)
        record["advantages"] = _numbers(segment.advantages)
        record["mask"] = None if segment.mask is None else [int(one) for one in segment.mask]
    return record


def _step(step: Step) -> dict[str, Any]:
    feedback = step.feedback if len(step.feedback) <= _LONGEST_FEEDBACK else f"{step.feedback[:_LONGEST_FEEDBACK]} ..."
    return {
        "reward": _number(step.reward),
        "parts": {visible(str(name)): _number(value) for name, value in step.reward_parts.items()},
        "feedback": visible(feedback),
        "prompt": len(step.observation_ids),
        "sampled": len(step.action_ids),
        "cut": step.finish_reason in CUT_OFF,
        "valid": bool(step.info.get("action_valid", True)),
        "fault": bool(step.info.get("env_fault", False)),
        "stop": str(step.stop_reason),
        "version": step.policy_version,
    }


def _number(value: Any) -> float | None:
    number = to_plain(value)
    return round(float(number), 6) if isinstance(number, (int, float)) and math.isfinite(number) else None


def _numbers(values: Sequence[float] | None) -> list[float | None] | None:
    return None if values is None else [None if not np.isfinite(value) else round(float(value), 4) for value in values]
