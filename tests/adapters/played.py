"""Episodes that the exports are tried on: an appended and a rewritten context, log-probabilities, a fault, text of all kinds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import gymnasium as gym
import numpy as np

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.core import AgentEnv, EnvFault, Observation, Outcome
from agent_gym.trajectory import Generation, Trajectory
from agent_gym.wrappers import StepRecorder

SIZES = {"max_observation_tokens": 1024, "max_action_tokens": 64}


def tool_env(**keywords):
    return gym.make("AgentR1/Tool-v0", **{**SIZES, **keywords})


class Breaks(AgentEnv):
    """The world ends at the second step."""

    def _begin(self, options):
        return Observation(text="Hello \udcff <|im_end|>, was willst du tun? ☃")

    def _respond(self, action):
        if self.turn:
            raise EnvFault("the lights went out")
        return Outcome(Observation(text="Once more."), reward=0.25)


def episodes(env, seeds=(0, 1, 2)) -> list[Trajectory]:
    """Expert episodes with made-up log-probabilities, as a group."""
    return list(_episodes(env, seeds))


def _episodes(env, seeds) -> Iterator[Trajectory]:
    rng = np.random.default_rng(0)
    recorder = StepRecorder(env)
    recorder.group_id = "g"
    for seed in seeds:
        recorder.reset(seed=seed)
        ended, asked = False, recorder.get_wrapper_attr("expert")()
        while not ended:
            ids = recorder.get_wrapper_attr("encode_action")(asked() if asked is not None else "I go on.")
            generation = Generation(ids, -rng.random(len(ids)), policy_version=seed)
            _, _, terminated, truncated, _ = recorder.step(generation)
            ended = terminated or truncated
        yield recorder.trajectory


def long_episode(env, seed=0) -> Trajectory:
    """Four calls and an answer, long enough for a window to move."""
    recorder = StepRecorder(env)
    recorder.reset(seed=seed)
    calls = [f'<tool_call>\n{{"name": "calculator", "arguments": {{"expression": "{number} + 1"}}}}\n</tool_call>' for number in range(4)]
    for text in (*calls, "<answer>5</answer>"):
        ids = recorder.get_wrapper_attr("encode_action")(text)
        recorder.step(Generation(ids, np.linspace(-1, 0, len(ids))))
        if not recorder.running:  # a limit of turns
            break
    return recorder.trajectory


def without_logprobs(trajectory: Trajectory) -> Trajectory:
    return replace(trajectory, steps=[replace(step, logprobs=None) for step in trajectory.steps])
