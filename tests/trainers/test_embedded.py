"""The embedded default run, cut short: it learns, its checkpoint evaluates alike in a new process, and nothing but reading pays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_gym.evaluation import evaluate
from agent_gym.policies import ScriptedPolicy
from agent_gym.runs import RunFolder
from agent_gym.trainers.embedded import EmbeddedConfig
from agent_gym.trainers.warm_start import WARM_START_ENV, WARM_START_ENV_KWARGS

pytestmark = pytest.mark.slow
UPDATES, TASKS = 18, 100


def agent_gym(*words: str, cwd: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "agent_gym.cli", *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("embedded")
    short = ["--set", f"updates={UPDATES}", "--set", f"eval_tasks={TASKS}", "--set", "curve_tasks=0"]
    agent_gym("train", "--output-dir", "run", "--seed", "0", *short, cwd=folder)
    return RunFolder.open(folder / "run")


def test_it_learns_by_reinforcement_what_imitation_did_not_give(run: RunFolder) -> None:
    summary = run.summary
    assert summary is not None
    before, after = summary["warm_start"]["sampled"], summary["final"]["sampled"]
    assert 0.08 <= before <= 0.5
    assert before <= summary["imitation_ceiling"] + 0.1
    success = [record["rollout/success"] for record in run.metrics("train")]
    assert [record["step"] for record in run.metrics("train")] == list(range(1, UPDATES + 1))  # a record per generation batch
    assert run.config["settings"]["num_iterations"] == 2 and run.latest_checkpoint().name == f"checkpoint-{2 * UPDATES}"
    assert sum(success[-5:]) / 5 >= success[0] + 0.2
    assert after >= before + 0.2
    assert after > summary["imitation_ceiling"]


def test_the_checkpoint_evaluates_alike_in_a_new_process_by_the_ordinary_path(run: RunFolder) -> None:
    summary = run.summary
    assert summary is not None
    ordinary = ["eval", WARM_START_ENV, "--env-arg", "level=bridge", "--split", "test", "--tasks", str(TASKS)]
    agent_gym(*ordinary, "--model", "run/checkpoints/final", "--output-dir", "again", cwd=run.path.parent)
    arms = json.loads((run.path.parent / "again" / "evaluation.json").read_text(encoding="utf-8"))["arms"]
    assert arms["greedy"]["estimates"]["success"]["mean"] == summary["final"]["greedy"]
    interval = arms["sampled"]["estimates"]["success"]
    assert interval["low"] <= summary["final"]["sampled"] <= interval["high"]


def person_of(env: Any) -> str:
    return re.findall(r"(\w+)\?", env.unwrapped.task["question"])[0]


def test_a_policy_that_ignores_what_the_tool_says_scores_nothing_on_the_same_tasks() -> None:
    def answers_at_once(env: Any, turn: int) -> str:
        return f"<answer>{person_of(env)}</answer>"

    def searches_and_does_not_read(env: Any, turn: int) -> str:
        if turn < 2:
            return str(env.unwrapped.tool_format.render_call("search", {"query": person_of(env)}))
        return f"<answer>{person_of(env)}</answer>"

    keywords = {**WARM_START_ENV_KWARGS, "split": "test"}
    for script in (answers_at_once, searches_and_does_not_read):
        evaluation, _ = evaluate(WARM_START_ENV, ScriptedPolicy(script), env_kwargs=keywords, tasks=TASKS, arms={"scripted": None})
        assert evaluation.scores() == {"scripted": 0.0}
    expert, _ = evaluate(WARM_START_ENV, ScriptedPolicy.expert(), env_kwargs=keywords, tasks=TASKS, arms={"expert": None})
    assert expert.scores() == {"expert": 1.0}


def test_training_and_held_out_worlds_share_no_entity() -> None:
    from agent_gym.data.bridge_world import bridge_row

    def people(split: str) -> set[str]:
        return {title for seed in range(EmbeddedConfig().eval_tasks) for title, _ in bridge_row(split, seed)["context"]}

    assert people("train").isdisjoint(people("test")) and people("train").isdisjoint(people("validation"))
