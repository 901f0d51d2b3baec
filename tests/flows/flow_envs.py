"""Environments and policies that the tests of the flows use."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import gymnasium as gym
import numpy as np
from small_envs import Parrot

from agent_gym.core import Action, EnvFault, Outcome
from agent_gym.policies import Sampling
from agent_gym.trajectory import Generation


class Sleeper(Parrot):
    """Blocks in each step, or waits in it when it is awaited."""

    def __init__(self, seconds: float = 0.05, awaits: bool = False, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.seconds, self.awaits = seconds, awaits
        self.closed = False

    def _respond(self, action: Action) -> Outcome:
        time.sleep(self.seconds)
        return super()._respond(action)

    async def _arespond(self, action: Action) -> Outcome:
        if not self.awaits:
            return self._respond(action)
        await asyncio.sleep(self.seconds)
        return Parrot._respond(self, action)

    def close(self) -> None:
        self.closed = True
        super().close()


class Flaky(Parrot):
    """Breaks in the steps that `plan` names: {episode of this task: turn}; -1 breaks the reset."""

    def __init__(self, plan: dict[int, dict[int, int]], **keywords: Any) -> None:
        super().__init__(**keywords)
        self.plan = plan

    def _begin(self, options: dict[str, Any]) -> Any:
        observation = super()._begin(options)
        index = int(self.word[4:])
        self.breaks = self.plan.get(index, {}).get(COUNTS.get(index, 0), 99)
        COUNTS[index] = COUNTS.get(index, 0) + 1
        if self.breaks == -1:
            raise EnvFault("no bird today")
        return observation

    def _respond(self, action: Action) -> Outcome:
        if self.turn == self.breaks:
            raise EnvFault(f"broken in turn {self.turn}")
        return super()._respond(action)


COUNTS: dict[int, int] = {}
"""How often `Flaky` began each task; tests clear it."""


class Doubling(gym.Wrapper):
    """Someone else's wrapper, which knows only `step`."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, 2 * float(reward), terminated, truncated, info


class Chooser:
    """A policy that draws ids from the request's seed, and remembers all requests."""

    def __init__(self, delay: float = 0.0) -> None:
        self.version = 4
        self.delay = delay
        self.requests: list[tuple[tuple[int, ...], Sampling, Any]] = []
        self.sessions: set[Any] = set()

    async def generate(self, prompt_ids: Any, sampling: Sampling, *, session: Any = None) -> Generation:
        self.requests.append((tuple(int(i) for i in prompt_ids), sampling, session))
        self.sessions.add(session)
        if self.delay:
            await asyncio.sleep(self.delay)
        draw = np.random.default_rng(sampling.seed)
        ids = draw.integers(4, 200, int(draw.integers(1, 6)))
        return Generation(ids, -draw.random(len(ids)), "length", self.version)

    def forget(self, session: Any) -> None:
        self.sessions.discard(session)
