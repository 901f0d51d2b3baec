"""ALFWorld: steps of the whole environment per CPU-second, token ids in and token ids out, in its forms.

    python benchmarks/alfworld_env.py

Random admissible commands, written down as ids beforehand, are played in generated games; each form plays the same games, and the best of the
interleaved repeats counts. Goal: at least 2,000 steps per CPU-second in a growing context with short observations (no list of commands in them). Where each
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
    envs = {name: ALFWorldEnv(**kwargs) for name, kwargs in FORMS.items()}
    plays = [written(next(iter(envs.values())), index) for index in range(GAMES)]
    steps = sum(map(len, plays))
    spent = {name: [float("inf"), float("inf")] for name in FORMS}
    for _ in range(REPEATS):
        for name, env in envs.items():
            resets, playing = 0.0, 0.0
            for index, actions in enumerate(plays):
                start = Clock()
                env.reset(options={"index": index})
                resets += Clock() - start
                start = Clock()
                for action in actions:
                    env.step(action)
                playing += Clock() - start
            spent[name] = [min(spent[name][0], playing), min(spent[name][1], resets)]
    for name, (playing, resets) in spent.items():
        show(f"ALFWorld environment, {name}", steps=steps, steps_per_cpu_second=round(steps / playing), reset_ms=resets / GAMES * 1e3)


if __name__ == "__main__":
    main()
