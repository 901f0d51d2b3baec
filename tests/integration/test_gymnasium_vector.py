"""Environments of ours in Gymnasium's own vector environments and wrappers."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit
from helpers import require

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.trajectory import StopReason

ENV = "AgentR1/Tool-v0"
SMALL = {"max_observation_tokens": 2048, "max_action_tokens": 64, "max_turns": 3}


def _make():
    return gym.make(ENV, **SMALL)


def _actions(env, count: int, turn: int) -> np.ndarray:
    draw = np.random.default_rng(turn)
    space = env.unwrapped.action_space
    return np.stack([space.pad(draw.integers(0, space.vocab_size, 5 + number)) for number in range(count)])


def _single(seeds, turns):
    """What the single environments give, one after another."""
    env, found = _make(), []
    for number, seed in enumerate(seeds):
        episode = [env.reset(seed=seed)]
        for turn in range(turns):
            observation, reward, terminated, truncated, info = env.step(_actions(env, len(seeds), turn)[number])
            episode.append((observation, reward, terminated, truncated, info))
            if terminated or truncated:
                break
        found.append(episode)
    return found


@pytest.mark.parametrize("kind", ["sync", "make_vec"])
def test_a_vector_of_environments_gives_what_the_single_ones_give(kind):
    seeds = [3, 1, 4]
    venv = SyncVectorEnv([_make] * 3) if kind == "sync" else gym.make_vec(ENV, num_envs=3, vectorization_mode="sync", **SMALL)
    want = _single(seeds, 1)
    observations, infos = venv.reset(seed=seeds)
    single = _make()
    for number in range(3):
        np.testing.assert_array_equal(observations[number], want[number][0][0])
        for key, value in want[number][0][1].items():
            if not isinstance(value, dict):
                assert infos[key][number] == value, key
    observations, rewards, terminated, truncated, infos = venv.step(_actions(single, 3, 0))
    for number in range(3):
        observation, reward, end, cut, info = want[number][1]
        np.testing.assert_array_equal(observations[number], observation)
        assert (rewards[number], terminated[number], truncated[number]) == (reward, end, cut)
        assert infos["stop_reason"][number] == info["stop_reason"]
        assert infos["observation_length"][number] == info["observation_length"]
        assert {key: values[number] for key, values in infos["reward_parts"].items() if not key.startswith("_")} == info["reward_parts"]
    venv.close()


def test_workers_started_by_spawn_need_only_the_id_with_the_package():
    """From a program that never imports agent_gym."""
    code = f"""
        import sys
        import gymnasium as gym
        import numpy as np
        from gymnasium.vector import AsyncVectorEnv

        assert "agent_gym" not in sys.modules

        def make():
            return gym.make("agent_gym:{ENV}", **{SMALL!r})

        if __name__ == "__main__":
            venv = AsyncVectorEnv([make] * 2, context="spawn")
            observations, infos = venv.reset(seed=[5, 6])
            actions = np.zeros((2, 64), dtype=np.int64)
            venv.step(actions)
            venv.close()
            print(observations.sum(), infos["task_id"].tolist())
    """
    env = _make()
    want = [env.reset(seed=seed) for seed in (5, 6)]
    text = f"{sum(int(observation.sum()) for observation, _ in want)} {[info['task_id'] for _, info in want]}"
    assert _run_script(code) == text


def _run_script(code: str) -> str:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "program.py"
        script.write_text(textwrap.dedent(code))
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_make_vec_starts_workers_of_its_own():
    venv = gym.make_vec(ENV, num_envs=2, vectorization_mode="async", vector_kwargs={"context": "spawn"}, **SMALL)
    assert isinstance(venv, AsyncVectorEnv)
    try:
        observations, _ = venv.reset(seed=[7, 8])
    finally:
        venv.close()
    env = _make()
    for number, seed in enumerate((7, 8)):
        np.testing.assert_array_equal(observations[number], env.reset(seed=seed)[0])


def test_statistics_count_the_rewards():
    env = RecordEpisodeStatistics(_make())
    env.reset(seed=0)
    while True:
        _, _reward, terminated, truncated, info = env.step(env.unwrapped.encode_action(env.unwrapped.expert()()))
        if terminated or truncated:
            break
    assert info["episode"]["r"] == 1.0
    assert info["episode"]["l"] == info["turn"]


def test_gymnasiums_own_time_limit_truncates():
    env = TimeLimit(_make(), 1)
    env.reset(seed=0)
    action = env.unwrapped.encode_action(env.unwrapped.expert()())
    _, _, terminated, truncated, info = env.step(action)
    assert (terminated, truncated, info["stop_reason"]) == (False, True, StopReason.RUNNING)


def test_numpy_to_torch_gives_tensors_and_leaves_text_alone():
    torch = require("torch")
    wrappers = require("gymnasium.wrappers.numpy_to_torch")
    env, plain = wrappers.NumpyToTorch(_make()), _make()
    observation, info = env.reset(seed=2)
    want, want_info = plain.reset(seed=2)
    assert isinstance(observation, torch.Tensor)
    np.testing.assert_array_equal(observation.numpy(), want)
    assert info["task_id"] == want_info["task_id"]
    assert info["stop_reason"] is StopReason.RUNNING
    action = plain.unwrapped.encode_action(plain.unwrapped.expert()())
    observation, reward, terminated, truncated, info = env.step(torch.tensor(action))
    want, *rest, want_info = plain.step(action)
    np.testing.assert_array_equal(observation.numpy(), want)
    assert [reward, terminated, truncated] == rest
    assert info["feedback"] == want_info["feedback"]
