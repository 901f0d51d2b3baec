"""Trajectories exported to Minari are read back by Minari, id for id."""

from __future__ import annotations

import numpy as np
import pytest
from adapters.played import SIZES, Breaks, episodes, long_episode, tool_env, without_logprobs
from helpers import require

from agent_gym.trajectory import Trajectory
from agent_gym.wrappers import as_token_env

minari = require("minari")

from agent_gym.adapters.minari import episode_ids, export_minari  # noqa: E402  # where the package is missing the tests above say so


@pytest.fixture(autouse=True)
def minaris_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def assert_same(episode, trajectory):
    observations, actions = episode_ids(episode)
    assert [ids.tolist() for ids in observations] == [
        *(step.observation_ids.tolist() for step in trajectory.steps),
        trajectory.final_observation.tolist(),
    ]
    assert [ids.tolist() for ids in actions] == [step.action_ids.tolist() for step in trajectory.steps]
    assert episode.rewards.tolist() == [step.reward for step in trajectory.steps]
    assert episode.terminations.tolist() == [step.terminated for step in trajectory.steps]
    assert episode.truncations.tolist() == [step.truncated for step in trajectory.steps]
    assert episode.infos["stop_reason"].tolist() == ["running", *(str(step.stop_reason) for step in trajectory.steps)]
    for place, step in enumerate(trajectory.steps, start=1):
        kept = episode.infos["logprobs"][place][: len(step.action_ids)]
        assert np.isnan(episode.infos["logprobs"][place][len(step.action_ids) :]).all()
        assert np.isnan(kept).all() if step.logprobs is None else np.array_equal(kept, step.logprobs)


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
@pytest.mark.parametrize("context", ["append", "window:1"])
def test_minari_reads_back_what_was_exported(context, data_format):
    env = tool_env(context=context)
    played = [*episodes(env, [0, 1]), without_logprobs(episodes(env, [7])[0]), long_episode(env, 3)]
    export_minari(iter(played), "agentr1/tool-v0", env, data_format=data_format, author="tests", description="expert episodes")
    dataset = minari.load_dataset("agentr1/tool-v0")
    assert dataset.total_episodes == 4 and dataset.total_steps == sum(len(trajectory) for trajectory in played)
    assert dataset.observation_space.shape == env.observation_space.shape and dataset.action_space.dtype == np.int64
    for episode, trajectory in zip(dataset, played, strict=True):
        assert_same(episode, trajectory)
        assert all(ids in dataset.observation_space for ids in episode.observations)
        assert all(ids in dataset.action_space for ids in episode.actions)
    heads = list(dataset.storage.get_episode_metadata(range(4)))
    assert [head["seed"] for head in heads] == [0, 1, 7, 3]
    assert [head["task_id"] for head in heads] == [trajectory.task_id for trajectory in played]
    assert {head["tokenizer_fingerprint"] for head in heads} == {env.unwrapped.tokenizer_fingerprint}


def test_a_fault_is_a_truncation_and_strange_text_does_no_harm():
    env = Breaks(**SIZES)
    played = episodes(env, [0])
    episode = export_minari(played, "breaks-v0", env)[0]
    assert_same(episode, played[0])
    assert episode.truncations.tolist() == [False, True] and not episode.terminations.any()
    assert episode.infos["stop_reason"][-1] == "env_fault"


def test_a_sampled_pad_id_at_the_end_of_an_action_survives():
    env = Breaks(**SIZES)
    from agent_gym.wrappers import StepRecorder

    recorder = StepRecorder(env)
    recorder.reset(seed=0)
    ids = [*env.encode_action("a")[:-1], env.action_space.pad_id, env.action_space.pad_id]
    recorder.step(ids)
    episode = export_minari([recorder.trajectory], "pads-v0", env)[0]
    assert episode_ids(episode)[1][0].tolist() == ids


def test_what_cannot_be_exported_is_told_and_leaves_nothing():
    env = tool_env()
    good = episodes(env, [0])[0]
    with pytest.raises(ValueError, match="no trajectories"):
        export_minari([], "a-v0", env)
    with pytest.raises(ValueError, match=r"trajectory 1 .*no steps"):
        export_minari([good, Trajectory(task_id="x")], "a-v0", env)
    with pytest.raises(ValueError, match="does not fit the environment's spaces"):
        export_minari([good], "a-v0", tool_env(max_observation_tokens=16))
    from dataclasses import replace

    with pytest.raises(ValueError, match="speaks"):
        export_minari([replace(good, tokenizer_fingerprint="other")], "a-v0", env)
    with pytest.raises(TypeError, match="TokenBox"):
        import gymnasium

        export_minari([good], "a-v0", gymnasium.make("CartPole-v1"))
    assert not minari.list_local_datasets()
    export_minari([good], "a-v0", env)
    with pytest.raises(ValueError, match="a-v0"):
        export_minari([good], "a-v0", env)
    assert list(minari.list_local_datasets()) == ["a-v0"]
    assert as_token_env(env) is env
    with pytest.raises(ValueError, match="export_minari did not write it"):
        episode_ids(type("Episode", (), {"infos": {}})())
