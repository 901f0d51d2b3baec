"""What stands around the playing of a batch: groups, tokenizers, figures of faults."""

from dataclasses import replace

import pytest

from agent_gym.flows import DroppedRow, FaultMonitor, RolloutResult, TooManyFaults
from agent_gym.trainers.episodes import count_faults, flow_figures, group_numbers, with_groups
from agent_gym.trajectory import Step, StopReason, Trajectory


def episode(stop: StopReason = StopReason.SUCCESS, **kwargs: object) -> Trajectory:
    step = Step(observation_ids=[1], action_ids=[2], logprobs=None, stop_reason=stop, feedback="the world broke")
    return Trajectory(env_id="A/B-v0", steps=(step,), **kwargs)  # type: ignore[arg-type]


def test_a_group_is_a_run_of_equal_rows_and_no_longer_than_asked() -> None:
    assert group_numbers(["a", "a", "a", "a", "b", "a"], 2) == [0, 0, 1, 1, 2, 3]
    assert group_numbers(["a"] * 4, 8) == [0] * 4
    assert group_numbers(["a", "a"], 1) == [0, 1]
    assert group_numbers([], 4) == []


def test_episodes_get_the_group_of_the_example_at_their_place() -> None:
    examples = [{"group_id": "g0"}, {"group_id": "g1"}]
    own = episode(group_id="own")
    assert [one.group_id for one in with_groups([episode(), own], examples, "f")] == ["g0", "own"]
    assert [one.group_id for one in with_groups([episode()], examples, "f")] == [episode().group_id]  # which example it was is not known


def test_an_episode_of_another_tokenizer_is_refused_also_where_groups_are_not_given() -> None:
    with pytest.raises(ValueError, match=r"episode 1 .* was played with tokenizer other, the model speaks f"):
        with_groups([episode(), episode(tokenizer_fingerprint="other")], [{"group_id": "g"}], "f")


def test_faults_are_counted_by_environment_and_shown_to_the_monitor() -> None:
    played = [episode(), episode(StopReason.ENV_FAULT), episode(StopReason.ENV_FAULT)]
    assert count_faults(played, FaultMonitor("drop")) == {"rollout/faults": 2.0, "rollout/faults/A/B-v0": 2.0}
    with pytest.raises(TooManyFaults, match="the world broke"):
        count_faults(played, FaultMonitor("stop"))


def test_the_figures_of_a_flow_name_the_environments_of_dropped_rows() -> None:
    result = RolloutResult(trajectories=(), row_indices=(), dropped=(DroppedRow(1, "t", "broke", 3),))
    result = replace(result, retries=2, seconds={"policy": 1.5, "env": 0.5})
    assert flow_figures(result, [{"env_id": "A/A-v0"}, {"env_id": "B/B-v0"}]) == {
        "rollout/faults": 1.0,
        "rollout/fault_retries": 2.0,
        "rollout/seconds_gen": 1.5,
        "rollout/seconds_env": 0.5,
        "rollout/faults/B/B-v0": 1.0,
    }
