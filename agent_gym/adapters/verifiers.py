"""`export_verifiers`: trajectories as the trace file of verifiers (github.com/PrimeIntellect-ai/verifiers, trace version 1, tested with 0.4.0).

    export_verifiers(folder, trajectories, env)          # writes folder/traces.jsonl

One line is one episode with one trace. A trace is a graph of messages of which each holds the token ids that it adds: the ids on the way from a root to
a leaf are, one behind the other, what one forward pass sees, and `mask` says which of them the model sampled. A prompt that extends all before it
hangs on the reply before it; a rewritten one begins at a root of its own, and so becomes a sample of its own, as in our own rows. Nothing is
tokenised: ids and log-probabilities are those of the trajectory.

Verifiers itself is not needed for writing, and nothing of it is imported.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from agent_gym.trajectory import Step, StopReason, Trajectory

__all__ = ["TRACES_FILE", "export_verifiers", "verifiers_episode"]

TRACES_FILE = "traces.jsonl"
"""The name under which verifiers looks for traces in the folder of a run."""
_STOPS = {StopReason.MAX_TURNS: "max_turns", StopReason.TIME_LIMIT: "max_turns", StopReason.CONTEXT_LIMIT: "max_total_tokens"}
_FINISHED = {"stop": "stop", "length": "length", "context": "length"}


def export_verifiers(folder: str | Path, trajectories: Iterable[Trajectory], env: Any) -> Path:
    """Write trajectories for verifiers. The file appears whole or not at all.

    Args:
        folder: of the run; made where it is missing. A `traces.jsonl` that stands in it is replaced.
        trajectories: any number, also from a generator.
        env: the environment, or anything else with `decode(ids) -> str`, a tokenizer say: the messages' text, which only people read.

    Returns:
        The path of the file.

    Raises:
        ValueError: for a trajectory with ids of another tokenizer.
    """
    target = Path(folder) / TRACES_FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{TRACES_FILE}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            for place, trajectory in enumerate(trajectories):
                episode = verifiers_episode(trajectory, env, place)
                file.write(json.dumps(episode, default=str, allow_nan=False) + "\n")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def verifiers_episode(trajectory: Trajectory, env: Any, place: int = 0) -> dict[str, Any]:
    """Return one trajectory as an episode of verifiers.

    The trace's reward is the sum of the step rewards. Its info holds what verifiers has no place for: the reward of each step, the named parts, the
    policy versions, seed, options and the tokenizer's fingerprint.

    Args:
        trajectory: the episode.
        env: see `export_verifiers`.
        place: among the trajectories, for the id.

    Returns:
        The record, of JSON types where env_kwargs, options and metrics are.

    Raises:
        ValueError: if the ids are those of another tokenizer than the environment's.
    """
    spoken = str(getattr(getattr(env, "unwrapped", env), "tokenizer_fingerprint", ""))
    if spoken and trajectory.tokenizer_fingerprint and spoken != trajectory.tokenizer_fingerprint:
        raise ValueError(
            f"the trajectory of task {trajectory.task_id!r} has ids of tokenizer {trajectory.tokenizer_fingerprint}, and the environment speaks {spoken}"
        )
    decode = getattr(env, "unwrapped", env).decode
    nodes, calls = _graph(trajectory, decode)
    fault = trajectory.stop_reason is StopReason.ENV_FAULT
    errors = [{"type": "EnvFault", "message": trajectory.steps[-1].feedback}] if fault else []
    task = {
        "type": trajectory.env_id or "AgentEnv",
        "key": trajectory.task_id or None,
        "data": {
            "id": trajectory.task_id or None,
            "name": trajectory.env_id or None,
            "prompt": _valid(str(nodes[0]["message"]["content"])) if nodes else None,
            "env_kwargs": dict(trajectory.env_kwargs),
            "seed": trajectory.seed,
            "options": dict(trajectory.options),
        },
    }
    parts: dict[str, float] = {}
    for step in trajectory.steps:
        for name, value in step.reward_parts.items():
            parts[name] = parts.get(name, 0.0) + float(value)
    trace = {
        "version": 1,
        "id": _identity(trajectory, place, "trace"),
        "verifiers": {"version": "written by agent-gym"},
        "task": task,
        "agent": {"config": {}, "name": "agent", "trainable": not fault},
        "nodes": nodes,
        "calls": calls,
        "rewards": {"reward": {"score": trajectory.total_reward, "weight": 1.0} if math.isfinite(trajectory.total_reward) else None},
        "metrics": {"is_success": float(trajectory.is_success), **{f"reward/{name}": _finite(value) for name, value in parts.items()}}
        | {name: _finite(value) for name, value in trajectory.metrics.items()},
        "info": {
            "step_rewards": [_finite(step.reward) for step in trajectory.steps],
            "step_feedback": [_valid(step.feedback) for step in trajectory.steps],
            "policy_versions": [step.policy_version for step in trajectory.steps],
            "stop_reason": str(trajectory.stop_reason),
            "terminated": trajectory.terminated,
            "sampling": dict(trajectory.sampling),
            "tokenizer_fingerprint": trajectory.tokenizer_fingerprint,
        },
        "is_completed": trajectory.stop_reason is not StopReason.RUNNING,
        "ok": not fault,
        "stop_condition": _STOPS.get(trajectory.stop_reason, str(trajectory.stop_reason)),
        "errors": errors,
        "timing": {"start": 0.0},
    }
    episode = {
        "id": _identity(trajectory, place, "episode"),
        "env": {"id": trajectory.env_id},
        "task": task,
        "ok": not fault,
        "errors": errors,
        "traces": [trace],
    }
    if trajectory.group_id:
        episode["group"] = {"id": trajectory.group_id}
    return episode


def _graph(trajectory: Trajectory, decode: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The messages with the ids that each adds, and one call of the model for each reply."""
    nodes: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    before = np.empty(0, dtype=np.int64)
    for index, step in enumerate(trajectory.steps):
        shown = step.observation_ids
        extends = bool(nodes) and len(shown) >= len(before) and bool(np.array_equal(shown[: len(before)], before))
        new = shown[len(before) :] if extends else shown
        content = trajectory.steps[index - 1].feedback if extends else decode(shown.tolist())
        nodes.append(_node(len(nodes) - 1 if extends else None, "user", content, new.tolist(), sampled=False))
        nodes.append(_reply(len(nodes) - 1, step, decode))
        usage = {"prompt_tokens": len(shown), "completion_tokens": len(step.action_ids)}
        calls.append({"node": len(nodes) - 1, "finish_reason": _FINISHED.get(step.finish_reason), "usage": usage})
        before = np.concatenate([shown, step.action_ids])
    return nodes, calls


def _reply(parent: int, step: Step, decode: Any) -> dict[str, Any]:
    node = _node(parent, "assistant", decode(step.action_ids.tolist()), step.action_ids.tolist(), sampled=True)
    if step.logprobs is not None and bool(np.isfinite(step.logprobs).all()):
        node["logprobs"] = step.logprobs.astype(float).tolist()
    return node


def _node(parent: int | None, role: str, content: str, ids: list[int], *, sampled: bool) -> dict[str, Any]:
    return {
        "parent": parent,
        "message": {"role": role, "content": _valid(content)},
        "sampled": sampled,
        "timestamp": 0.0,
        "token_ids": ids,
        "mask": [sampled] * len(ids),
        "logprobs": [],
    }


def _identity(trajectory: Trajectory, place: int, kind: str) -> str:
    """The same id for the same trajectory at the same place, whenever it is written."""
    digest = hashlib.blake2b(
        f"{kind}/{place}/{trajectory.env_id}/{trajectory.task_id}/{trajectory.group_id}".encode("utf-8", "replace"), digest_size=16
    )
    for step in trajectory.steps:
        digest.update(step.observation_ids.tobytes() + b"/" + step.action_ids.tobytes())
    return digest.hexdigest()


def _finite(value: Any) -> float | None:
    """A number that JSON has; None for the others."""
    return float(value) if math.isfinite(float(value)) else None


def _valid(text: str) -> str:
    """Text that UTF-8 holds."""
    return text.encode("utf-8", "replace").decode("utf-8")
