"""ALFWorld: steps of the whole environment per CPU-second, token ids in and token ids out, in its forms.

    python benchmarks/alfworld_env.py

Random admissible commands, written down as ids beforehand by another environment, are played in generated games; the best of some repeats counts, each
with games of its own. Goal: at least 2,000 steps per CPU-second in a growing context with short observations (no list of commands in them). Where each
prompt is made anew, nearly all of the time is the tokenizer's: it encodes the whole prompt at each step.
"""

from __future__ import annotations

import random
from typing import Any

from clock import Clock, show

from agent_gym.envs.alfworld import ALFWorldEnv

GAMES, REPEATS = 30, 4
FORMS: dict[str, dict[str, Any]] = {
    "append, no list": {"context": "append", "show_admissible": False},
    "window:4, no list": {"context": "window:4", "show_admissible": False},
    "rebuild, no list": {"show_admissible": False},
    "rebuild with the list (the default)": {},
}


def written(env: ALFWorldEnv, index: int) -> list[list[int]]:
    """The actions of an episode."""
    rng, actions = random.Random(index), []
    _, info = env.reset(options={"index": index})
    while True:
        actions.append(env.encode_action(env.write_command(rng.choice(info["admissible_commands"]))))
        _, _, terminated, truncated, info = env.step(actions[-1])
        if terminated or truncated:
            return actions


def main() -> None:
    for name, kwargs in FORMS.items():
        env = ALFWorldEnv(**kwargs)
        best, reset, steps = float("inf"), float("inf"), 0
        for repeat in range(REPEATS):  # other games each time: texts that come again are encoded once
            plays = {index: written(ALFWorldEnv(), index) for index in range(repeat * GAMES, (repeat + 1) * GAMES)}
            resets, playing, taken = 0.0, 0.0, sum(map(len, plays.values()))
            for index, actions in plays.items():
                start = Clock()
                env.reset(options={"index": index})
                resets += Clock() - start
                start = Clock()
                for action in actions:
                    env.step(action)
                playing += Clock() - start
            best, reset, steps = min(best, playing / taken), min(reset, resets), taken
        show(f"ALFWorld environment, {name}", steps=steps, steps_per_cpu_second=round(1 / best), reset_ms=reset / GAMES * 1e3)


if __name__ == "__main__":
    main()
