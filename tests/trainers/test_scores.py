"""What trainers write into the episodes they keep: masks and advantages as the loss was given them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.runs import RunFolder
from agent_gym.trainers.rows import build_rows
from agent_gym.trainers.scores import UpdateEpisodes, with_scores
from agent_gym.trajectory import Step, Trajectory
from agent_gym.trajectory_io import load_trajectories


def episode(*lengths: int, version: int = 0) -> Trajectory:
    steps, shown = [], [1]
    for place, length in enumerate(lengths):
        action = [10 + place] * length
        steps.append(Step(shown, action, [-1.0] * length, policy_version=version))
        shown = [*shown, *action, 2]
    return Trajectory(steps=steps, final_observation=shown)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.floats(-2, 2)), min_size=1, max_size=5), st.booleans())
def test_each_token_gets_the_mask_and_the_advantage_of_its_row(steps: list[tuple[int, bool, float]], merge: bool) -> None:
    one = episode(*(length for length, *_ in steps))
    advantages = [value for *_, value in steps]
    rows = build_rows(one, advantages, 0, merge, [trained for _, trained, _ in steps])
    (scored,) = with_scores([one], rows, [advantages])
    for (length, trained, value), step in zip(steps, scored.steps, strict=True):
        assert step.info["loss_mask"] == [int(trained)] * length
        assert np.allclose(step.info["advantage"], [value] * length, atol=1e-5)
    total = sum(sum(step.info["loss_mask"]) for step in scored.steps)
    assert total == sum(row.num_trained for row in rows)


def test_tokens_have_advantages_of_their_own_and_an_episode_without_rows_is_masked() -> None:
    one, other = episode(2, 1), episode(2)
    rows = build_rows(one, [np.array([0.5, -0.5]), 1.0], 0)
    scored = with_scores([one, other], rows, [[np.array([0.5, -0.5]), 1.0], [0.25]])
    assert [step.info["advantage"] for step in scored[0].steps] == [[0.5, -0.5], [1.0]]
    assert scored[1].steps[0].info == {"loss_mask": [0, 0], "advantage": [0.25, 0.25]}
    assert "advantage" not in with_scores([one], rows, None)[0].steps[0].info


def test_a_resumed_run_keeps_no_episode_twice(tmp_path: Path) -> None:
    kept = UpdateEpisodes(RunFolder.create(tmp_path / "run", {}))
    kept.resume(3)  # nothing is there yet
    for version in range(4):
        kept.add([episode(1, version=version)])
    kept.resume(2)
    assert [one.steps[0].policy_version for one in load_trajectories(kept.path)] == [0, 1]
    kept.resume(0)
    assert not kept.path.exists()


def test_a_long_run_keeps_fewer_and_fewer(tmp_path: Path) -> None:
    kept = UpdateEpisodes(RunFolder.create(tmp_path / "run", {}))
    assert all(kept.wants(update) for update in range(1, 201))
    assert sum(kept.wants(update) for update in range(1, 10_001)) < 1000
    assert any(kept.wants(update) for update in range(9_900, 10_001))
