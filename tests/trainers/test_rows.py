"""Rows: every action token once, behind the ids it was sampled behind; plans: every row once, ranks in step."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.trainers.rows import DUMMY, Plan, Row, apply_level, build_rows, pack_trajectory, plan, unpack_trajectory
from agent_gym.trajectory import Step, Trajectory

IDS = st.integers(0, 5)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Episodes over a tiny vocabulary, so that prefixes also agree by accident."""
    steps = []
    shown = draw(st.lists(IDS, min_size=1, max_size=4))
    for _ in range(draw(st.integers(0, 5))):
        action = draw(st.lists(IDS, max_size=4))
        steps.append(Step(observation_ids=shown, action_ids=action, logprobs=[-0.5] * len(action), reward=1.0))
        kind = draw(st.sampled_from(["append", "rewrite", "drop_action"]))
        new = draw(st.lists(IDS, min_size=1, max_size=3))
        shown = new if kind == "rewrite" else shown + (action if kind == "append" else []) + new
    return Trajectory(steps=steps, final_observation=shown)


def step_values(trajectory: Trajectory) -> list[np.ndarray]:
    """A different advantage for every action token of the episode."""
    counter = iter(range(1, 10_000))
    return [np.array([next(counter) for _ in step.action_ids], dtype=np.float64) for step in trajectory.steps]


def scored_contexts(rows: list[Row]) -> list[tuple[tuple[int, ...], int, float]]:
    """(ids before, id, advantage) of every trained token: all that a causal model's loss can depend on."""
    found = []
    for row in rows:
        for position in np.flatnonzero(row.mask):
            found.append((tuple(row.ids[:position].tolist()), int(row.ids[position]), float(row.advantages[position])))
    return found


def expected_contexts(trajectory: Trajectory, trained: list[bool] | None = None) -> list[tuple[tuple[int, ...], int, float]]:
    found = []
    for number, (step, values) in enumerate(zip(trajectory.steps, step_values(trajectory), strict=True)):
        if trained is not None and not trained[number]:
            continue
        before = step.observation_ids.tolist()
        for token, value in zip(step.action_ids.tolist(), values, strict=True):
            found.append((tuple(before), token, float(value)))
            before.append(token)
    return found


@settings(max_examples=150, deadline=None)
@given(trajectories(), st.booleans(), st.data())
def test_every_action_token_is_trained_once_behind_what_was_shown(trajectory: Trajectory, merge: bool, data: st.DataObject) -> None:
    trained = data.draw(st.none() | st.lists(st.booleans(), min_size=len(trajectory), max_size=len(trajectory)))
    rows = build_rows(trajectory, step_values(trajectory), 3, merge, trained)
    assert scored_contexts(rows) == expected_contexts(trajectory, trained)
    for row in rows:
        assert len(row.ids) == len(row.mask) == len(row.advantages) == len(row.logprobs)
        assert row.trajectory == 3
        assert row.mask[-1]
        assert row.num_trained == int(row.mask.sum())
        assert not row.advantages[~row.mask].any()
        assert not row.logprobs[~row.mask].any()
        for segment in row.segments:
            assert row.ids[segment.start : segment.end].tolist() == trajectory.steps[segment.step].action_ids.tolist()
    if not merge:
        assert all(len(row.segments) == 1 for row in rows)


def retokenised(trajectory: Trajectory) -> Trajectory:
    """Mutant: the history is decoded and encoded again, which swaps ids 4 and 5 in what was sampled."""
    swap = {4: 5, 5: 4}
    steps = [replace(step, observation_ids=[swap.get(int(i), int(i)) for i in step.observation_ids]) for step in trajectory.steps]
    return replace(trajectory, steps=steps)


def test_the_context_check_notices_a_history_that_was_encoded_again() -> None:
    trajectory = Trajectory(steps=[Step(observation_ids=[1], action_ids=[4, 2]), Step(observation_ids=[1, 4, 2, 3], action_ids=[0])])
    assert len(build_rows(trajectory, [1.0, 1.0])) == 1
    broken = retokenised(trajectory)
    rows = build_rows(broken, step_values(broken))
    assert len(rows) == 2
    assert scored_contexts(rows) != expected_contexts(trajectory)


def test_an_appended_context_is_one_row_and_a_rewritten_one_opens_a_new_row() -> None:
    one = Step(observation_ids=[1, 2], action_ids=[3], logprobs=[-1.0])
    two = Step(observation_ids=[1, 2, 3, 4], action_ids=[5, 6])
    three = Step(observation_ids=[9, 9], action_ids=[7])
    rows = build_rows(Trajectory(steps=[one, two, three]), [1.0, [2.0, 3.0], -1.0])
    assert [row.ids.tolist() for row in rows] == [[1, 2, 3, 4, 5, 6], [9, 9, 7]]
    assert rows[0].mask.tolist() == [False, False, True, False, True, True]
    assert rows[0].advantages.tolist() == [0, 0, 1, 0, 2, 3]
    assert rows[0].logprobs[2] == -1.0
    assert np.isnan(rows[0].logprobs[4:]).all()
    assert rows[0].segments == ((0, 2, 3), (1, 4, 6))
    assert len(build_rows(Trajectory(steps=[one, two, three]), [1.0, 1.0, 1.0], merge=False)) == 3


def test_empty_actions_build_no_loss_and_do_not_break_a_row() -> None:
    steps = [
        Step(observation_ids=[1], action_ids=[2]),
        Step(observation_ids=[1, 2, 3], action_ids=[]),
        Step(observation_ids=[1, 2, 3, 4], action_ids=[5]),
    ]
    (row,) = build_rows(Trajectory(steps=steps), [1.0, 1.0, 1.0])
    assert row.mask.tolist() == [False, True, False, False, True]
    assert build_rows(Trajectory(steps=[Step(observation_ids=[1], action_ids=[])]), [1.0]) == []
    assert build_rows(Trajectory(), []) == []


def test_an_empty_action_with_a_rewritten_prompt_does_not_split_the_row() -> None:
    steps = [
        Step(observation_ids=[1], action_ids=[2]),
        Step(observation_ids=[8], action_ids=[]),
        Step(observation_ids=[1, 2, 3], action_ids=[5]),
    ]
    assert len(build_rows(Trajectory(steps=steps), [1.0, 1.0, 1.0])) == 1


def test_advantages_stay_with_their_trajectory_when_one_has_no_rows() -> None:
    batch = [
        Trajectory(steps=[Step(observation_ids=[1], action_ids=[2])]),
        Trajectory(steps=[Step(observation_ids=[1], action_ids=[])]),
        Trajectory(steps=[Step(observation_ids=[1], action_ids=[3])]),
    ]
    rows = [row for index, item in enumerate(batch) for row in build_rows(item, [float(index)], index)]
    assert [(row.trajectory, float(row.advantages[-1])) for row in rows] == [(0, 0.0), (2, 2.0)]


@pytest.mark.parametrize(
    ("advantages", "message"),
    [([1.0], "one entry per step"), ([1.0, [1.0, 2.0]], "one per action token"), ([1.0, float("nan")], "not finite")],
)
def test_advantages_that_do_not_fit_are_refused(advantages: list[object], message: str) -> None:
    steps = [Step(observation_ids=[1], action_ids=[2]), Step(observation_ids=[1, 2], action_ids=[3])]
    with pytest.raises(ValueError, match=message):
        build_rows(Trajectory(steps=steps), advantages)  # type: ignore[arg-type]


def test_an_action_without_a_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="observation of step 0 is empty"):
        build_rows(Trajectory(steps=[Step(observation_ids=[], action_ids=[2])]), [1.0])


def weighted_mean_by_hand(items: list[Trajectory], level: str) -> float:
    """Mean advantage over tokens, over trajectories of token means, or over steps of token means."""
    per_step = [[np.asarray(v) for v in step_values(item) if len(v)] for item in items]
    per_step = [steps for steps in per_step if steps]
    if level == "token":
        return float(np.mean([value for steps in per_step for values in steps for value in values]))
    if level == "trajectory":
        return float(np.mean([np.mean(np.concatenate(steps)) for steps in per_step]))
    return float(np.mean([np.mean(values) for steps in per_step for values in steps]))


@settings(max_examples=80, deadline=None)
@given(st.lists(trajectories(), min_size=1, max_size=4), st.booleans(), st.sampled_from(["token", "trajectory", "step"]))
def test_level_weights_give_the_mean_that_they_name(items: list[Trajectory], merge: bool, level: str) -> None:
    rows = [row for index, item in enumerate(items) for row in build_rows(item, step_values(item), index, merge)]
    total = sum(row.num_trained for row in rows)
    if not total:
        return
    weighted = apply_level(rows, level)  # type: ignore[arg-type]
    assert sum(float(row.advantages.sum()) for row in weighted) / total == pytest.approx(weighted_mean_by_hand(items, level), rel=1e-5)


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="token, trajectory, step"):
        apply_level([], "episode")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------- plans


def faults_of(made: Plan, lengths: list[int], world: int, windows: int, micro: int, max_tokens: int | None, groups: list[int]) -> set[str]:
    """Everything that is wrong with a plan, by name."""
    faults = set()
    seen = [row for sub in made.sub_batches() for rank in sub for row in rank if row != DUMMY]
    if sorted(seen) != list(range(len(lengths))):
        faults.add("a row is missing or dealt twice")
    if len(made.windows) != windows or any(len(window) != micro for window in made.windows):
        faults.add("wrong number of micro-steps")
    for sub in made.sub_batches():
        if len(sub) != world or len({len(rank) for rank in sub}) != 1 or not len(sub[0]):
            faults.add("ranks out of step")
        for rank in sub:
            longest = max((lengths[row] for row in rank if row != DUMMY), default=0)
            if max_tokens is not None and len(rank) > 1 and longest * len(rank) > max_tokens:
                faults.add("over budget")
    where = {row: number for number in range(len(made.windows)) for row in made.rows_of_window(number)}
    for one, group in enumerate(groups):
        for other in range(one):
            if groups[other] == group and where.get(other) != where.get(one):
                faults.add("an episode in two windows")
    if any(not len(micro_step) for window in made.windows for micro_step in window):
        faults.add("a micro-step without a forward pass")
    return faults


@settings(max_examples=250, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 6)), max_size=25),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 4),
    st.none() | st.integers(1, 150),
)
def test_plans_deal_every_row_once_and_keep_ranks_in_step(
    rows: list[tuple[int, int]], world: int, windows: int, micro: int, max_tokens: int | None
) -> None:
    lengths, groups = [length for length, _ in rows], [group for _, group in rows]
    made = plan(lengths, world=world, windows=windows, micro=micro, max_tokens=max_tokens, groups=groups)
    assert faults_of(made, lengths, world, windows, micro, max_tokens, groups) == set()
    assert made == plan(lengths, world=world, windows=windows, micro=micro, max_tokens=max_tokens, groups=groups)
    if max_tokens is None:
        assert all(len(micro_step) == 1 for window in made.windows for micro_step in window)


def test_the_plan_check_notices_broken_plans() -> None:
    lengths, groups = [9, 8, 7, 6, 5, 4], [0, 0, 1, 1, 2, 2]
    good = plan(lengths, world=2, windows=2, micro=1, groups=groups)
    assert faults_of(good, lengths, 2, 2, 1, None, groups) == set()

    def broken(windows: tuple[object, ...]) -> set[str]:
        return faults_of(Plan(windows, tuple(lengths)), lengths, 2, 2, 1, 12, groups)  # type: ignore[arg-type]

    floor_division = ((((((0,), (1,)),),)), (((((2,), (3,)),),)))  # TRL's split: 6 rows in 2 chunks of 2 ranks lose the remainder
    assert "a row is missing or dealt twice" in broken(floor_division)
    assert "ranks out of step" in broken((((((0, 1, 2), (3,)),),), ((((4,), (5,)),),)))
    assert "an episode in two windows" in broken((((((0, 2), (3, 4)),),), ((((1,), (5,)),),)))
    assert "over budget" in broken((((((0, 1), (2, 3)),),), ((((4,), (5,)),),)))
    assert "a micro-step without a forward pass" in broken((((((0, 1), (2, 3)),),), ((),)))


def test_a_budget_saves_padding_and_balances_ranks() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(60, 900, size=256).tolist()
    stats = plan(lengths, world=8, micro=4, max_tokens=4096).stats()
    assert stats["pad_frac"] < 0.2
    assert stats["rank_imbalance"] < 1.2
    one_pad = 1 - sum(lengths) / (max(lengths) * len(lengths))
    assert stats["pad_frac"] < one_pad / 2


@pytest.mark.parametrize("bad", [{"world": 0}, {"windows": 0}, {"micro": 0}, {"max_tokens": 0}, {"groups": [1]}])
def test_impossible_plans_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        plan([1, 2], **bad)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(trajectories())
def test_a_packed_trajectory_comes_back_equal(trajectory: Trajectory) -> None:
    assert unpack_trajectory(pack_trajectory(trajectory)) == trajectory


def test_a_packed_trajectory_grows_with_its_tokens_and_not_with_their_square() -> None:
    def size(turns: int) -> int:
        shown, steps = [1], []
        for _ in range(turns):
            steps.append(Step(observation_ids=shown, action_ids=[2, 3]))
            shown = [*shown, 2, 3, 4, 5]
        packed = pack_trajectory(Trajectory(steps=steps, final_observation=shown))
        return sum(len(ids) for _, ids in packed["observations"])

    assert size(200) < 3 * size(100)


def test_rows_and_advantages_load_neither_torch_nor_trl() -> None:
    code = "import sys, agent_gym.trainers, agent_gym.trainers.rows, agent_gym.trainers.advantages, agent_gym.trainers.metrics;"
    code += "assert not {'torch', 'trl', 'transformers'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
