"""Rollouts that do not wait: 64 episodes whose tools sleep, beside the ideal schedule and beside lock-step turns.

python benchmarks/overlap.py

The generator has one place: replies are sampled one after the other, each in the time of one generation step. The tools sleep for log-normal times with
a mean of 50 generation steps. The ideal schedule takes as long as the larger of the generator's busy time and the longest episode (its replies and its
tools, with nobody in the way), both from the durations that were recorded. In lock-step turns every turn waits for the slowest tool of the batch; it is
computed from the same durations, and played too.

Wall-clock time, since waiting is what is measured; the sleeps are long against the work in between, so that a loaded machine changes little. Exits with 1
when `run_rows` takes more than 1.2 times the ideal schedule.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import sys
import threading
import time
from collections.abc import Hashable
from typing import Any

import numpy as np
from clock import show

from agent_gym.core import Action, AgentEnv, Observation, Outcome
from agent_gym.flows import EnvPool, run_rows
from agent_gym.policies import Sampling, ScriptedPolicy
from agent_gym.trajectory import Generation

EPISODES, TURNS, TIMES, SIGMA, GOAL = 64, 8, 50, 1.0, 1.2


class Sleepy(AgentEnv):
    """Each answer takes a log-normal time, drawn from the seed."""

    def __init__(self, mean: float, blocks: bool = False, **keywords: Any) -> None:
        super().__init__(max_turns=TURNS, max_observation_tokens=2048, max_action_tokens=16, **keywords)
        self.mean, self.blocks = mean, blocks
        self.slept: list[float] = []

    def _begin(self, options: dict[str, Any]) -> Observation:
        self.slept = []
        mean = options.get("index", 1) * self.mean  # tasks number 0 are for warming up
        self.naps = mean * self.np_random.lognormal(-(SIGMA**2) / 2, SIGMA, TURNS)
        return Observation(text="Wait for it.")

    def _respond(self, action: Action) -> Outcome:
        begin = time.perf_counter()
        time.sleep(self.naps[self.turn])
        return self._woken(begin)

    async def _arespond(self, action: Action) -> Outcome:
        if self.blocks:
            return self._respond(action)
        begin = time.perf_counter()
        await asyncio.sleep(self.naps[self.turn])
        return self._woken(begin)

    def _woken(self, begin: float) -> Outcome:
        self.slept.append(time.perf_counter() - begin)
        return Outcome(Observation(text="And again."), info={"feedback": repr(self.slept[-1])})


class OneByOne(ScriptedPolicy):
    """A generator with one place and a thread of its own, as an engine has: a reply takes `seconds`, and the next begins behind it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(["ok"])
        self.busy: list[float] = []
        self._seconds = seconds
        self._asked: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            loop, reply = self._asked.get()
            begin = time.perf_counter()
            time.sleep(self._seconds)
            self.busy.append(time.perf_counter() - begin)
            loop.call_soon_threadsafe(reply.set_result, None)

    async def generate(self, prompt_ids: Any, sampling: Sampling, *, session: Hashable | None = None) -> Generation:
        reply = asyncio.get_running_loop().create_future()
        self._asked.put((asyncio.get_running_loop(), reply))
        await reply
        return await super().generate(prompt_ids, sampling, session=session)


def lock_step(make: Any, seeds: list[int], policy: OneByOne) -> float:
    """Turns in lock-step: all replies, then all tools, and the slowest holds the batch."""

    envs = [make({}) for _ in seeds]

    async def play() -> None:
        for env, seed in zip(envs, seeds, strict=True):
            env.reset(seed=seed)
            policy.bind(env, env)
        for _ in range(TURNS):
            replies = [await policy.generate([], Sampling(), session=env) for env in envs]
            await asyncio.gather(*(env.astep(list(reply.token_ids)) for env, reply in zip(envs, replies, strict=True)))

    begin = time.perf_counter()
    asyncio.run(play())
    return time.perf_counter() - begin


def measure(name: str, generation: float, blocks: bool) -> bool:
    """Play, print, and say whether the goal is met."""
    mean = TIMES * generation

    def make(row: Any) -> Sleepy:
        return Sleepy(mean, blocks)

    rows = [{"env_id": "", "env_kwargs": {}, "seed": seed} for seed in range(EPISODES)]
    pool = EnvPool(make, max_idle=EPISODES)
    warm = [{**row, "options": {"index": 0}} for row in rows]
    run_rows(warm, OneByOne(0.001), pool=pool, max_concurrency=EPISODES)  # environments are made, caches filled
    policy = OneByOne(generation)
    done = run_rows(rows, policy, pool=pool, max_concurrency=EPISODES)
    pool.close()
    naps = np.array([[float(step.feedback) for step in episode.steps] for episode in done.trajectories])
    reply = float(np.mean(policy.busy))
    busy, longest = sum(policy.busy), float((naps.sum(axis=1) + TURNS * reply).max())
    ideal, wall = max(busy, longest), done.seconds["wall"]
    in_lock_step = busy + float(naps.max(axis=0).sum())
    values: dict[str, object] = {"wall_s": wall, "ideal_s": ideal, "generator_s": busy, "longest_episode_s": longest, "ratio": wall / ideal}
    if not blocks:
        played = lock_step(make, list(range(EPISODES)), OneByOne(generation))
        values |= {"lock_step_played_s": played, "lock_step_played_ratio": played / ideal}
    show(name, **values, lock_step_s=in_lock_step, lock_step_ratio=in_lock_step / ideal, goal=GOAL, met=wall <= GOAL * ideal)
    return wall <= GOAL * ideal


def main() -> int:
    parser = argparse.ArgumentParser(description="Rollouts that do not wait.")
    parser.add_argument("--generation", type=float, default=0.02, metavar="S", help="seconds of a generation step (default 0.02)")
    generation = parser.parse_args().generation
    met = [measure("overlap/awaited tools", generation, False), measure("overlap/blocking tools", generation, True)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
