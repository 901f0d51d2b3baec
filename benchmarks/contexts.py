"""Tokens and training rows of each context policy, on the same episodes: the same actions, whatever is shown.

In the household twenty random commands come first, and then the expert's; the taxi is driven by the expert.

    python benchmarks/contexts.py

No figure here is a time. "rows_tokens" is what an update computes with prefix merging, "steps_tokens" what it would compute with one row per step.
"""

from __future__ import annotations

import zlib
from typing import Any

import gymnasium as gym
import numpy as np
from clock import show

import agent_gym
from agent_gym.context import Exchange, summarise
from agent_gym.trainers.rows import Row, build_rows
from agent_gym.wrappers import StepRecorder

EPISODES = 16
WORLDS: dict[str, tuple[dict[str, Any], int, int]] = {  # keywords, random commands at the beginning, budget
    "AgentR1/ALFWorld-v0": ({"max_observation_tokens": 32768}, 20, 2400),
    "AgentR1/Taxi-v0": ({"max_observation_tokens": 32768}, 0, 1000),
}


def commands_so_far(turns: list[Exchange]) -> str:
    """A summary that needs no model: what was done, in a line each, the answers cut."""
    return "\n".join(f"{turn.action_text.strip()[-60:]} -> {' '.join(turn.answer.split())[:60]}" for turn in turns)


def policies(budget: int) -> dict[str, Any]:
    return {
        "append": "append",
        "window:4": "window:4",
        f"token_budget:{budget}": f"token_budget:{budget}",
        f"token_budget:{budget}:{budget * 5 // 8}": f"token_budget:{budget}:{budget * 5 // 8}",
        f"summarise over {budget}": summarise(commands_so_far, over=budget, keep=1, max_tokens=256),
        "rebuild": "rebuild",
    }


def command(env: Any, random_ones: int) -> str:
    """The next command of the episode."""
    if env.turn < random_ones:
        rng = np.random.default_rng([zlib.crc32(env.task_id.encode()), env.turn])
        commands = env._admissible()
        return str(env.write_command(commands[int(rng.integers(len(commands)))]))
    return str(env.expert()())


def main() -> None:
    gym.register_envs(agent_gym)
    for env_id, (keywords, random_ones, budget) in WORLDS.items():
        lengths: list[int] = []
        for name, context in policies(budget).items():
            env = StepRecorder(gym.make(env_id, disable_env_checker=True, context=context, **keywords))
            prompts: list[int] = []
            rows: list[Row] = []
            turns: list[int] = []
            rewritten = sizes = 0
            for seed in range(EPISODES):
                env.reset(seed=seed)
                while env.running:
                    env.step(env.unwrapped.encode_action(command(env.unwrapped, random_ones)))
                played = env.trajectory
                prompts += [len(step.observation_ids) for step in played.steps]
                sizes += sum(len(step.observation_ids) + len(step.action_ids) for step in played.steps)
                rewritten += sum(bool(step.info["context_rewritten"]) for step in played.steps[:-1])
                rows += build_rows(played, [1.0] * len(played.steps), 0)
                turns.append(len(played.steps))
            lengths = lengths or turns
            assert turns == lengths, "the same episodes under every policy"
            show(
                f"{env_id} {name}",
                turns=float(np.mean(turns)),
                mean_prompt=float(np.mean(prompts)),
                longest_prompt=max(prompts),
                rewritten=rewritten / EPISODES,
                rows=len(rows) / EPISODES,
                rows_tokens=sum(map(len, rows)) / EPISODES,
                steps_tokens=sizes / EPISODES,
            )


if __name__ == "__main__":
    main()
