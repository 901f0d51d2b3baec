"""The records of a rollout."""

import numpy as np
import pytest

from agent_gym.trajectory import Generation, Step, StopReason, Trajectory


def trajectory() -> Trajectory:
    steps = [
        Step([1, 2], [3], logprobs=[-0.5], reward=0.25),
        Step([1, 2, 3, 4], [5], reward=1.0, terminated=True, stop_reason=StopReason.ANSWER, info={"is_success": True}),
    ]
    return Trajectory(env_id="x", steps=steps, final_observation=[1, 2, 3, 4, 5, 6])


def test_transitions_carry_the_next_observation_which_is_stored_once() -> None:
    one, two = trajectory().transitions()
    assert np.array_equal(one.next_observation_ids, [1, 2, 3, 4])
    assert two.next_observation_ids.tolist() == [1, 2, 3, 4, 5, 6]


def test_arrays_are_read_only_and_typed() -> None:
    step = trajectory().steps[0]
    assert step.observation_ids.dtype == np.int64 and step.logprobs is not None and step.logprobs.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        step.action_ids[0] = 9


def test_one_log_probability_per_id() -> None:
    for make in (lambda: Generation([1, 2], logprobs=[0.0]), lambda: Step([1], [1, 2], logprobs=[0.0])):
        with pytest.raises(ValueError, match="one per id"):
            make()


def test_equality_is_by_value_also_of_nan() -> None:
    assert trajectory() == trajectory()
    assert Step([1], [2], logprobs=[np.nan]) == Step([1], [2], logprobs=[np.nan])
    assert Step([1], [2], logprobs=[0.0]) != Step([1], [2]) and Generation([1]) != Generation([2])


def test_summaries_come_from_the_steps() -> None:
    whole, empty = trajectory(), Trajectory()
    assert whole.total_reward == 1.25 and whole.terminated and not whole.truncated and whole.is_success and len(whole) == 2
    assert whole.stop_reason is StopReason.ANSWER
    assert empty.stop_reason is StopReason.RUNNING and empty.total_reward == 0.0 and not empty.terminated
