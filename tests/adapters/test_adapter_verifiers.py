"""Trajectories exported for verifiers are read back by the real package, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from adapters.played import SIZES, Breaks, episodes, long_episode, tool_env, without_logprobs

from agent_gym.adapters.verifiers import TRACES_FILE, export_verifiers, verifiers_episode
from agent_gym.trainers.rows import build_rows
from agent_gym.trajectory import StopReason, Trajectory

READER = Path(__file__).with_name("verifiers_reader.py")


def read_back(folder):
    """What verifiers reads; the test is skipped where it is not installed, and fails where nothing may be missing."""
    packages = os.environ.get("AGENT_GYM_FOREIGN", "")
    command = [sys.executable, str(READER), str(folder), *([packages] if packages else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if "ModuleNotFoundError: No module named 'verifiers'" in done.stderr and os.environ.get("AGENT_GYM_REQUIRE_ALL") != "1":
        pytest.skip("verifiers is not installed")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_verifiers_reads_back_what_was_exported(tmp_path):
    append, window, breaks = tool_env(), tool_env(context="window:1"), Breaks(**SIZES)
    played = [
        *episodes(append),
        without_logprobs(episodes(append, [7])[0]),
        episodes(window, [0])[0],
        long_episode(window),
        *episodes(breaks, [0]),
    ]
    played.append(long_episode(tool_env(max_turns=2)))
    path = export_verifiers(tmp_path, iter(played), append)
    assert path == tmp_path / TRACES_FILE
    found = read_back(tmp_path)
    assert len(found) == len(played)
    for episode, trajectory in zip(found, played, strict=True):
        assert_same(episode, trajectory)
    assert [len(episode["branches"]) for episode in found[:3]] == [1, 1, 1]
    assert len(found[5]["branches"]) > 1  # a rewritten context is a sample of its own
    fault = found[6]
    assert found[7]["truncated"]
    assert (fault["ok"], fault["trainable"], fault["errors"], fault["stop"]) == (False, False, ["EnvFault"], "env_fault")


def assert_same(episode, trajectory):
    assert (episode["env"], episode["group"] or "") == (trajectory.env_id, trajectory.group_id)
    assert episode["reward"] == pytest.approx(trajectory.total_reward, abs=0)
    assert episode["info"]["step_rewards"] == [step.reward for step in trajectory.steps]
    assert episode["info"]["tokenizer_fingerprint"] == trajectory.tokenizer_fingerprint
    assert episode["info"]["policy_versions"] == [step.policy_version for step in trajectory.steps]
    assert episode["metrics"]["is_success"] == float(trajectory.is_success)
    assert episode["task"]["key"] == (trajectory.task_id or None) and episode["task"]["seed"] == trajectory.seed
    assert episode["turns"] == len(trajectory) and episode["completed"]
    assert episode["truncated"] == (trajectory.stop_reason is StopReason.MAX_TURNS)
    assert episode["usage"][1] == sum(len(step.action_ids) for step in trajectory.steps)
    # The samples are those of our own rows: the same ids, the same of them sampled, the same log-probabilities.
    rows = build_rows(trajectory, [0.0] * len(trajectory))
    branches = episode["branches"]
    assert [branch["token_ids"] for branch in branches] == [row.ids.tolist() for row in rows]
    for branch, row in zip(branches, rows, strict=True):
        assert branch["mask"] == row.mask.tolist()
        wanted = np.where(np.isnan(row.logprobs), 0, row.logprobs)
        assert np.array_equal(np.array(branch["logprobs"], dtype=np.float32), wanted)


def test_a_mutant_that_forgets_a_token_is_seen():
    env = tool_env()
    played = episodes(env, [0])[0]
    record = verifiers_episode(played, env)
    nodes = record["traces"][0]["nodes"]
    whole = [*played.steps[-1].observation_ids.tolist(), *played.steps[-1].action_ids.tolist()]
    assert [one for node in nodes for one in node["token_ids"]] == whole
    nodes[1]["token_ids"].pop()
    assert [one for node in nodes for one in node["token_ids"]] != whole


def test_the_same_trajectories_are_the_same_bytes_and_an_error_leaves_the_old_file(tmp_path):
    env = tool_env()
    played = episodes(env, [0, 0])
    first = export_verifiers(tmp_path, played, env).read_bytes()
    assert export_verifiers(tmp_path, played, env).read_bytes() == first
    identities = [json.loads(line)["id"] for line in first.splitlines()]
    assert len(set(identities)) == 2
    with pytest.raises(ValueError, match="speaks"):
        export_verifiers(tmp_path, [*played, replace(played[0], tokenizer_fingerprint="other")], env)
    assert (tmp_path / TRACES_FILE).read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [TRACES_FILE]


def test_numbers_that_json_has_not_and_empty_episodes_are_written(tmp_path):
    env = tool_env()
    good = episodes(env, [0])[0]
    nan = replace(
        good, steps=[replace(step, logprobs=np.full(len(step.action_ids), np.nan)) for step in good.steps], metrics={"x": float("nan")}
    )
    export_verifiers(tmp_path, [nan, replace(good, steps=[replace(good.steps[0], reward=float("inf"))]), Trajectory(task_id="none")], env)
    first, second, third = (json.loads(line)["traces"][0] for line in (tmp_path / TRACES_FILE).read_text().splitlines())
    assert first["metrics"]["x"] is None and not any(node["logprobs"] for node in first["nodes"])
    assert second["rewards"] == {"reward": None} and third["nodes"] == []
