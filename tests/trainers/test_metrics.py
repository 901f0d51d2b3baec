"""The registry of metrics against what two updates of each trainer log, in both directions, and the page that is made of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import require

require("torch")
require("trl")

from engine_servers import FakeVLLM, serving  # noqa: E402
from metric_runs import Run  # noqa: E402
from test_engine_training import CONTEXT  # noqa: E402
from test_engine_training import make_model as make_engine_model  # noqa: E402
from test_engine_training import train as train_with_engine  # noqa: E402

from agent_gym.flows import Fault  # noqa: E402
from agent_gym.trainers.kinds import TRAINERS  # noqa: E402
from agent_gym.trainers.metrics import (  # noqa: E402
    CONDITIONS,
    METRICS,
    PLACES,
    Metric,
    check_logged,
    check_values,
    describe,
    find_metric,
    render_page,
)
from agent_gym.trajectory import StopReason  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
GIVEN = {"logprobs", "parts", "figures"}  # what the episodes of these tests bring with them
RUNS = {
    "grpo": Run("grpo", {*GIVEN, "dapo"}, {}),
    "ppo": Run("ppo", {*GIVEN, "dapo"}, {}),
    "distill": Run("distill", {*GIVEN, "dapo"}, {}),
    "grpo with all settings": Run(
        "grpo",
        {*GIVEN, "cispo", "beta", "replay", "replay_corrected", "fault"},
        {"loss_type": "cispo", "beta": 0.1, "replays": True, "mishaps": True, "is_correction": "token_truncate"},
    ),
    "ppo with all settings": Run(
        "ppo",
        {*GIVEN, "cispo", "beta", "fault", "replay"},
        {"loss_type": "cispo", "beta": 0.1, "mishaps": True, "advantage": "token_gae", "replays": True, "replay_correction": "imitation"},
    ),
    "distill with all settings": Run(
        "distill",
        {*GIVEN, "cispo", "beta", "fault"},
        {"loss_type": "cispo", "beta": 0.1, "mishaps": True, "distill_loss": "sampled"},
    ),
}


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[dict[str, Any]]]:
    return {name: run.logged(tmp_path_factory.mktemp("run")) for name, run in RUNS.items()}


@pytest.mark.parametrize("name", RUNS)
def test_two_updates_log_what_is_listed_and_nothing_else(name: str, logged: Mapping[str, list[dict[str, Any]]]) -> None:
    records, run = logged[name], RUNS[name]
    assert check_logged(records, run.trainer, run.conditions) == []
    assert check_values(records) == []


def test_an_engine_logs_what_is_listed_for_it(tmp_path: Path) -> None:
    with serving(FakeVLLM(make_engine_model(99), max_model_len=CONTEXT)) as server:
        trainer = train_with_engine(tmp_path, server.url, max_steps=2)
        trainer.train()
        trainer.close()
    records = trainer.state.log_history
    parts = {"parts"} if any(name.startswith("reward_parts/") for name in records[0]) else set()
    assert check_logged(records, "grpo", {"plays", "engine", "logprobs", "dapo", *parts}, without_evaluation()) == []
    assert check_values(records) == []


def without_evaluation() -> dict[str, Metric]:
    kept = {name: replace(one, places=tuple(place for place in one.places if place != "eval")) for name, one in METRICS.items()}
    return {name: one for name, one in kept.items() if one.places}


def test_every_metric_and_condition_is_held_by_one_of_these_runs() -> None:
    held = set().union(*(run.conditions for run in RUNS.values())) | {"always", "plays", "engine"}
    assert held == set(CONDITIONS)
    assert {one.when for one in METRICS.values()} == set(CONDITIONS)
    for one in METRICS.values():
        assert any(one.when in {"always", "plays", "engine", *run.conditions} and run.trainer in one.trainers for run in RUNS.values())


# ---------------------------------------------------------------------------------------------------- controls


@pytest.mark.parametrize("trainer", TRAINERS)
def test_control_a_metric_that_is_logged_and_not_listed_fails(trainer: str, logged: Mapping[str, list[dict[str, Any]]]) -> None:
    records, run = logged[trainer], RUNS[trainer]
    for added in ({"rollout/mood": 1.0}, {"eval_rollout/mood": 1.0}, {"reward_parts/": 1.0}):
        like = next(one for one in records if ("eval_reward" in one) == any(name.startswith("eval_") for name in added))
        (problem,) = check_logged([{**like, **added}, *records], trainer, run.conditions)
        assert f"{trainer} logs {next(iter(added))} " in problem and "not listed" in problem
    fewer = {name: one for name, one in METRICS.items() if name != "entropy"}
    assert len(check_logged(records, trainer, run.conditions, fewer)) == 2  # in training, and in evaluation
    assert check_logged(records, trainer, run.conditions - {"figures"})[0].startswith(f"{trainer} logs metrics/f1 ")


@pytest.mark.parametrize("trainer", TRAINERS)
def test_control_a_metric_that_is_listed_and_not_logged_fails(trainer: str, logged: Mapping[str, list[dict[str, Any]]]) -> None:
    records, run = logged[trainer], RUNS[trainer]
    more = {**METRICS, "rollout/mood": replace(METRICS["entropy"], name="rollout/mood", places=("train",))}
    assert check_logged(records, trainer, run.conditions, more) == [
        f"{trainer} never logs rollout/mood (training), which is listed for it: take it out, or log it"
    ]
    without = [{name: value for name, value in record.items() if name != "entropy"} for record in records]
    assert check_logged(without, trainer, run.conditions) == [
        f"{trainer} never logs entropy (training), which is listed for it: take it out, or log it"
    ]
    assert any("never logs kl" in one for one in check_logged(records, trainer, {*run.conditions, "beta"}))


def test_control_another_trainers_metric_fails(logged: Mapping[str, list[dict[str, Any]]]) -> None:
    problems = check_logged(logged["ppo"], "grpo", RUNS["ppo"].conditions)
    assert problems and all(re.match(r"grpo logs (eval_)?critic/", one) for one in problems)
    problems = check_logged(logged["grpo"], "distill", RUNS["grpo"].conditions)
    assert problems and all(one.startswith("distill never logs distill/") for one in problems)


@pytest.mark.parametrize(
    ("name", "value"),
    [("entropy", -0.1), ("eval_rollout/success", 1.1), ("rollout/faults/AgentR1/Tool-v0", -1.0), ("loss", float("nan")), ("kl", None), ("reward", True)],
)  # fmt: skip
def test_control_a_value_that_cannot_be_is_found(name: str, value: Any) -> None:
    (problem,) = check_values([{name: value}])
    assert problem.startswith(f"{name} is {value!r}")


# ---------------------------------------------------------------------------------------------------- the table


def test_each_entry_is_whole() -> None:
    for name, one in METRICS.items():
        assert name == one.name and one.says and one.act and one.unit, name
        assert one.when in CONDITIONS and set(one.trainers) <= set(TRAINERS) and set(one.places) <= set(PLACES), name
        assert one.trainers and one.places, name
        for part in re.findall(r"as for ([\w/]+)", one.act):
            assert part in METRICS, f"{name} refers to {part}"
        (low, high), (least, most) = one.possible, one.expected
        assert least is None or low is None or least >= low, name
        assert most is None or high is None or most <= high, name
        if one.unit == "share":
            assert high == 1, name


def test_families_are_found_by_their_members() -> None:
    for name in [
        *(f"faults/{one}" for one in Fault),
        *(f"eval_rollout/stop/{one}" for one in StopReason),
        "rollout/faults/AgentR1/Tool-v0",
    ]:
        found = find_metric(name)
        assert found is not None and "{" in found.name and describe(name)
    assert find_metric("rollout/faults") is METRICS["rollout/faults"]
    assert find_metric("rollout/stop/") is None and describe("rollout/mood") is None


def test_the_page_is_made_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == render_page(), "run: python -m agent_gym.trainers.metrics > docs/metrics.md"
    for name, one in METRICS.items():
        line = next(text for text in page.splitlines() if text.startswith(f"| `{name}` |"))
        assert one.says.replace("|", "\\|") in line and len(re.split(r"(?<!\\)\|", line)) == 11
