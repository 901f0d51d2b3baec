"""Evaluation: what the figures mean, and that the same episodes give the same bytes."""

import dataclasses
import io
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from agent_gym.evaluation import Evaluation, bootstrap_intervals, evaluate, pass_all_k, pass_at_k, summarize, task_rows, wilson_interval
from agent_gym.policies import RandomPolicy, ScriptedPolicy
from agent_gym.report import evaluation_figure
from agent_gym.trajectory import Step, StopReason, Trajectory


def episode(
    success: bool, *, reward: float | None = None, turns: int = 2, seed: int = 0, stop: StopReason = StopReason.ANSWER, **metrics: float
) -> Trajectory:
    steps = [
        Step(list(range(3 + 4 * turn)), [7, 8], [-0.1, -0.2], reward_parts={"task": 0.0}, info={"action_valid": True, "is_success": False})
        for turn in range(turns - 1)
    ]
    last = Step(
        list(range(3 + 4 * (turns - 1))),
        [7, 8, 9],
        [-0.1, -0.2, -0.3],
        reward=float(success) if reward is None else reward,
        reward_parts={"task": float(success)},
        terminated=stop is StopReason.ANSWER,
        truncated=stop is not StopReason.ANSWER,
        stop_reason=stop,
        info={"action_valid": success, "is_success": success},
    )
    return Trajectory(env_id="X-v0", seed=seed, task_id=f"t{seed}", steps=[*steps, last], metrics=metrics)


# ---------------------------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 20, 0.0, 0.1611), (20, 20, 0.8389, 1.0), (1, 2, 0.0945, 0.9055), (100, 200, 0.4314, 0.5686)],
)
def test_wilson_interval_against_published_values(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=2e-4)


@given(st.integers(1, 500), st.data())
@settings(max_examples=60, deadline=None)
def test_wilson_interval_holds_its_proportion_and_has_width(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    low, high = wilson_interval(successes, trials)
    assert 0.0 <= low <= successes / trials <= high <= 1.0 and high > low


def test_impossible_counts_are_refused() -> None:
    for successes, trials in ((3, 2), (-1, 4), (0, 0)):
        with pytest.raises(ValueError, match="successes"):
            wilson_interval(successes, trials)


def test_the_bootstrap_agrees_with_the_normal_interval_of_a_large_sample() -> None:
    values = np.random.default_rng(5).normal(2.0, 3.0, size=(400, 1))
    low, high = bootstrap_intervals(values, seed=0, resamples=4000)
    half = 1.96 * values.std(ddof=1) / math.sqrt(400)
    assert low[0] == pytest.approx(values.mean() - half, abs=0.08)
    assert high[0] == pytest.approx(values.mean() + half, abs=0.08)


def test_the_bootstrap_is_a_function_of_its_seed_and_touches_nothing_global() -> None:
    values = np.random.default_rng(1).random((50, 2))
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    one, other, third = (bootstrap_intervals(values, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, other) and not np.array_equal(one, third)
    assert np.array_equal(before, np.random.get_state()[1])


def test_samples_of_one_task_are_not_counted_as_tasks() -> None:
    """Copying each episode ten times must not narrow the interval; resampling episodes instead of tasks would."""
    rng = np.random.default_rng(3)
    single = [[episode(bool(rng.random() < 0.5), reward=float(rng.random()))] for _ in range(30)]
    tenfold = [group * 10 for group in single]
    one, ten = (summarize("sampled", groups, temperature=1.0).estimates["reward"] for groups in (single, tenfold))
    assert (one.mean, one.low, one.high) == pytest.approx((ten.mean, ten.low, ten.high))


@given(st.integers(1, 8), st.data())
@settings(max_examples=50, deadline=None)
def test_pass_figures_equal_their_enumeration(samples: int, data: st.DataObject) -> None:
    from itertools import combinations

    successes, k = data.draw(st.integers(0, samples)), data.draw(st.integers(1, samples))
    drawn = list(combinations([True] * successes + [False] * (samples - successes), k))
    assert pass_at_k(samples, successes, k) == pytest.approx(sum(any(one) for one in drawn) / len(drawn))
    assert pass_all_k(samples, successes, k) == pytest.approx(sum(all(one) for one in drawn) / len(drawn))


def test_pass_figures_need_enough_samples() -> None:
    with pytest.raises(ValueError, match="k=3"):
        pass_at_k(2, 1, 3)


# ---------------------------------------------------------------------------------------------------- episodes to figures


def test_a_fault_is_no_failure() -> None:
    groups = [[episode(True), episode(False, stop=StopReason.ENV_FAULT)], [episode(False, stop=StopReason.ENV_FAULT)], [episode(True)]]
    arm = summarize("sampled", groups, temperature=1.0, dropped=2)
    assert arm.success.mean == 1.0
    assert (arm.faults, arm.episodes, arm.tasks, arm.tasks_without_result) == (4, 2, 3, 1)
    assert "env_fault" not in arm.stop_reasons


def test_one_sample_gets_wilson_and_several_the_bootstrap() -> None:
    one = summarize("greedy", [[episode(True)], [episode(False)]], temperature=0.0)
    several = summarize("sampled", [[episode(True), episode(False)], [episode(False), episode(False)]], temperature=1.0)
    assert one.success.method == "wilson" and one.estimates["reward"].method == "bootstrap"
    assert several.success.method == "bootstrap" and several.success.mean == 0.25


def test_an_interval_without_variance_still_has_width() -> None:
    arm = summarize("sampled", [[episode(True)] * 4] * 10, temperature=1.0)
    assert arm.success.method == "wilson" and arm.success.low < 1.0 == arm.success.high


def test_tasks_weigh_the_same_however_many_samples_are_left() -> None:
    groups = [[episode(True)] * 9, [episode(False)]]
    assert summarize("sampled", groups, temperature=1.0).success.mean == 0.5


def test_the_counts_of_an_arm() -> None:
    arm = summarize(
        "sampled", [[episode(True, turns=3, f1=1.0), episode(False, turns=1, f1=0.5, stop=StopReason.MAX_TURNS)]], temperature=1.0
    )
    assert arm.turns == 2.0 and arm.action_tokens == (7 + 3) / 2 and arm.context_tokens == (14 + 6) / 2
    assert arm.invalid_actions == pytest.approx(1 / 4)
    assert arm.stop_reasons == {"answer": 1, "max_turns": 1}
    assert arm.estimates["f1"].mean == 0.75
    assert arm.pass_at == {1: 0.5, 2: 1.0} and arm.pass_all == {1: 0.5, 2: 0.0}
    assert arm.per_task[0]["success"] == [1, 0]


def test_a_metric_that_some_episodes_lack_rests_on_the_others() -> None:
    arm = summarize("greedy", [[episode(True, f1=1.0)], [episode(True)], [episode(True, f1=float("nan"))]], temperature=0.0)
    assert arm.estimates["f1"].mean == 1.0 and arm.estimates["f1"].tasks == 1 and arm.success.tasks == 3


def test_nothing_that_counts_is_nan_and_no_crash() -> None:
    arm = summarize("greedy", [[episode(False, stop=StopReason.ENV_FAULT)], []], temperature=0.0)
    assert math.isnan(arm.success.mean) and arm.success.tasks == 0 and arm.episodes == 0


# ---------------------------------------------------------------------------------------------------- playing


KWARGS = {"level": "bridge", "top_k": 1}


@pytest.fixture(scope="module")
def expert():
    return evaluate(
        "AgentR1/HotpotQA-v0",
        ScriptedPolicy.expert(),
        env_kwargs=KWARGS,
        split="test",
        tasks=6,
        arms={"expert": None},
        model="expert",
        engine="scripted",
    )


def test_the_expert_solves_every_task(expert) -> None:
    evaluation, played = expert
    assert evaluation.scores() == {"expert": 1.0}
    assert len(played["expert"]) == 6
    assert {one.seed for one in played["expert"]} == {line["seed"] for line in evaluation.arms["expert"].per_task}


def test_a_policy_that_ignores_tool_results_scores_nothing() -> None:
    evaluation, _ = evaluate(
        "AgentR1/HotpotQA-v0", ScriptedPolicy(["<answer>Rome</answer>"]), env_kwargs=KWARGS, split="test", tasks=8, arms={"constant": None}
    )
    assert evaluation.scores() == {"constant": 0.0}


def test_the_scores_of_an_evaluation_are_success_or_another_figure_by_its_name() -> None:
    shopped, _ = evaluate("AgentR1/WebShop-v0", ScriptedPolicy.expert(), env_kwargs={"level": "small"}, tasks=2, arms={"expert": None})
    assert shopped.scores("r_price") == {"expert": 1.0} and shopped.scores() == shopped.scores("score") == {"expert": 1.0}
    with pytest.raises(KeyError, match="speed"):
        shopped.scores("speed")


def test_the_json_holds_what_a_repetition_needs_and_is_the_same_every_time(expert, tmp_path: Path) -> None:
    evaluation, _ = expert
    again, _ = evaluate(
        "AgentR1/HotpotQA-v0",
        ScriptedPolicy.expert(),
        env_kwargs=KWARGS,
        split="test",
        tasks=6,
        arms={"expert": None},
        model="expert",
        engine="scripted",
    )
    one, other = evaluation.save(tmp_path / "a.json").read_bytes(), again.save(tmp_path / "b.json").read_bytes()
    assert one == other
    content = json.loads(one)
    assert content["split"] == "test" and content["level"] == "bridge" and content["data_source"] == "embedded"
    assert content["engine"] == "scripted" and content["model"] == "expert" and content["seed"] == 0
    assert len(content["tokenizer_fingerprint"]) == 16 and "numpy" in content["versions"]
    assert content["arms"]["expert"]["temperature"] is None
    assert [line["success"] for line in content["arms"]["expert"]["per_task"]] == [[1]] * 6


def test_sampled_and_greedy_never_share_a_column() -> None:
    evaluation, played = evaluate("AgentR1/HotpotQA-v0", RandomPolicy(seed=1), env_kwargs=KWARGS, split="test", tasks=3, samples=2)
    table = evaluation.table()
    assert [column.header for column in table.columns] == ["", "sampled (T=1, 2 samples)", "greedy (T=0)"]
    assert len(played["sampled"]) == 6 and len(played["greedy"]) == 3
    assert set(evaluation.to_dict()["arms"]) == {"sampled", "greedy"}


def test_the_tasks_of_a_finite_data_set_are_its_rows() -> None:
    from agent_gym.envs.tool import ToolEnv

    env = ToolEnv(tasks=[{"question": f"{n}?", "answer": str(n)} for n in range(3)])
    rows = task_rows(env, "X-v0", {"split": "train"}, 10)
    assert [row["options"] for row in rows] == [{"index": 0}, {"index": 1}, {"index": 2}]
    assert len({row["group_id"] for row in rows}) == 3
    with pytest.raises(ValueError, match="at least 1 task"):
        task_rows(env, "X-v0", {}, 0)


def test_evaluating_a_policy_without_a_model_loads_no_torch() -> None:
    program = (
        "import sys; from agent_gym.evaluation import evaluate; from agent_gym.policies import ScriptedPolicy; "
        "evaluate('AgentR1/Tool-v0', ScriptedPolicy.expert(), tasks=2, arms={'expert': None}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", "import agent_gym; " + program], check=True)


# ---------------------------------------------------------------------------------------------------- kinds of task


def of_kind(success: bool, kind: str, **info: object) -> Trajectory:
    made = episode(success, reward=0.5)  # which is no success
    steps = [dataclasses.replace(step, info={**step.info, "kind": kind, **info}) for step in made.steps]
    return dataclasses.replace(made, steps=steps)


def test_success_of_each_kind_of_task_rests_on_its_own_tasks() -> None:
    groups = [[of_kind(True, "heat")], [of_kind(False, "heat")], [of_kind(True, "cool")], [episode(False)]]
    arm = summarize("greedy", groups, temperature=0.0, breakdown=["kind"])
    assert list(arm.estimates)[:3] == ["success", "success/cool", "success/heat"]
    assert (arm.success.mean, arm.success.tasks) == (0.5, 4)
    assert (arm.estimates["success/heat"].mean, arm.estimates["success/heat"].tasks) == (0.5, 2)
    assert (arm.estimates["success/cool"].mean, arm.estimates["success/cool"].tasks) == (1.0, 1)
    assert arm.estimates["success/heat"].method == "wilson" and arm.estimates["success/cool"].low < 1.0
    assert not any(name.startswith("success/") for name in summarize("greedy", groups, temperature=0.0).estimates)


def test_a_metric_that_is_called_like_a_kind_of_task_is_no_share_of_successes() -> None:
    groups = [[dataclasses.replace(of_kind(True, "heat"), metrics={"success/speed": speed})] for speed in (3.5, 9.0)]
    arm = summarize("greedy", groups, temperature=0.0, breakdown=["kind"])
    assert (arm.estimates["success/speed"].mean, arm.estimates["success/speed"].method) == (6.25, "bootstrap")
    assert arm.estimates["success/heat"].method == "wilson"


def test_a_kind_whose_every_episode_was_lost_is_not_there_and_spoils_nothing() -> None:
    *before, last = of_kind(False, "cool").steps
    last = dataclasses.replace(last, terminated=False, truncated=True, stop_reason=StopReason.ENV_FAULT)
    lost = dataclasses.replace(of_kind(False, "cool"), steps=[*before, last])
    arm = summarize("greedy", [[of_kind(True, "heat")], [lost], []], temperature=0.0, breakdown=["kind"])
    assert "success/cool" not in arm.estimates and arm.estimates["success/heat"].tasks == arm.success.tasks == 1
    assert arm.tasks_without_result == 2


def test_kinds_of_task_stand_in_the_table_with_their_counts_and_in_the_figure() -> None:
    groups = [[of_kind(False, "heat")], [of_kind(False, "heat")], [of_kind(True, "cool")]]
    arm = summarize("greedy", groups, temperature=0.0, breakdown=["kind"])
    evaluation = Evaluation(
        "X-v0", {"greedy": arm}, {"split": "test", "told": {"dataset": "files", "grammar": "move, put", "split": "valid"}}
    )
    text = printed(evaluation)
    assert "heat (n=2)" in text and "cool (n=1)" in text
    assert "dataset of the tasks" in text and "move, put" in text and "split of the tasks" in text and "valid" in text
    figure = str(evaluation_figure(evaluation.to_dict()))
    assert "success/heat, greedy" in figure, "a kind that is never solved is drawn too"


def test_what_says_where_tasks_are_from_is_told_by_the_episodes(expert) -> None:
    evaluation, _ = expert
    assert evaluation.settings["told"] == {"dataset": "embedded", "level": "bridge"}
    assert "dataset of the tasks" in printed(evaluation)
    kinds = [name for name in evaluation.arms["expert"].estimates if name.startswith("success/")]
    assert kinds, "HotpotQA's types of question are kinds of task"
    assert sum(evaluation.arms["expert"].estimates[name].tasks for name in kinds) == 6


def test_household_tasks_are_told_apart_by_kind_and_by_where_they_are_from() -> None:
    evaluation, _ = evaluate(
        "AgentR1/ALFWorld-v0", ScriptedPolicy.expert(), env_kwargs={"level": "small"}, split="valid_seen", tasks=12, arms={"expert": None}
    )
    told = {"dataset": "embedded", "engine": "fast", "grammar": "move", "split": "valid_seen", "level": "small"}
    assert evaluation.settings["told"] == evaluation.to_dict()["told"] == told
    estimates = evaluation.arms["expert"].estimates
    kinds = {name: one for name, one in estimates.items() if name.startswith("success/")}
    assert len(kinds) >= 4 and sum(one.tasks for one in kinds.values()) == 12 and all(one.mean == 1.0 for one in kinds.values())
    assert "engine of the tasks" in printed(evaluation)


def test_tasks_of_two_wordings_are_told_as_such() -> None:
    rows = [
        {"env_id": "AgentR1/ALFWorld-v0", "env_kwargs": {"level": "small", "grammar": grammar}, "seed": 0} for grammar in ("put", "move")
    ]
    evaluation, _ = evaluate(
        "AgentR1/ALFWorld-v0", ScriptedPolicy.expert(), env_kwargs={"level": "small"}, rows=rows, arms={"expert": None}
    )
    assert evaluation.settings["told"]["grammar"] == "move, put" and evaluation.arms["expert"].success.mean == 1.0


def printed(evaluation: Evaluation) -> str:
    text = io.StringIO()
    Console(file=text, width=160).print(evaluation.table())
    return text.getvalue()
