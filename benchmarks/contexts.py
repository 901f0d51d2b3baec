"""Tokens and training rows of each context policy, on the same episodes: the expert's, whose actions do not depend on what is shown.

    python benchmarks/contexts.py

No figure here is a time. "rows_tokens" is what an update computes with prefix merging, "steps_tokens" what it would compute with one row per step.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from clock import show

import agent_gym
from agent_gym.context import Exchange, summarise
from agent_gym.trainers.rows import build_rows
from agent_gym.wrappers import StepRecorder

EPISODES = 32
WORLDS: dict[str, dict[str, Any]] = {
    "AgentR1/ALFWorld-v0": {"max_observation_tokens": 32768},
    "AgentR1/HotpotQA-v0": {"level": "full"},
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


def main() -> None:
    gym.register_envs(agent_gym)
    for env_id, keywords in WORLDS.items():
        actions: list[int] = []
        for name, context in policies(1600 if "ALFWorld" in env_id else 1400).items():
            env = StepRecorder(gym.make(env_id, disable_env_checker=True, context=context, **keywords))
            prompts, sizes, rows, rewritten, steps = [], 0, [], 0, []
            for seed in range(EPISODES):
                env.reset(seed=seed)
                while env.running:
                    env.step(env.unwrapped.encode_action(env.unwrapped.expert()()))
                played = env.trajectory
                assert played.is_success, (env_id, name, seed)
                prompts += [len(step.observation_ids) for step in played.steps]
                sizes += sum(len(step.observation_ids) + len(step.action_ids) for step in played.steps)
                rewritten += sum(bool(step.info["context_rewritten"]) for step in played.steps[:-1])
                rows += build_rows(played, [1.0] * len(played.steps), 0)
                steps.append(len(played.steps))
            actions = actions or steps
            assert steps == actions, "the same episodes under every policy"
            show(
                f"{env_id} {name}",
                turns=float(np.mean(steps)),
                mean_prompt=float(np.mean(prompts)),
                longest_prompt=max(prompts),
                rewritten=rewritten / EPISODES,
                rows=len(rows) / EPISODES,
                rows_tokens=sum(map(len, rows)) / EPISODES,
                steps_tokens=sizes / EPISODES,
            )


if __name__ == "__main__":
    main()
