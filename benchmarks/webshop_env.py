"""WebShop: steps of the whole environment per CPU-second, token ids in and token ids out, in its forms.

    python benchmarks/webshop_env.py

Visits as in `webshop_step.py`, a search and then random clicks but no purchase, written down as ids beforehand by another environment, so that nothing
is known of their pages; the best of some repeats counts, each with visits of its own. Beside the figure stand the tokens of a page: most of a step is the tokenizer's work on them. Goal: 2,000
steps per CPU-second.
"""

from __future__ import annotations

import random
from typing import Any

from clock import Clock, show

from agent_gym.envs.webshop.env import WebShopEnv

VISITS, STEPS, REPEATS = 30, 14, 4
FORMS: dict[str, dict[str, Any]] = {
    "append (the default)": {},
    "append, small catalogue": {"level": "small"},
    "window:4": {"context": "window:4"},
    "rebuild": {"context": "rebuild"},
}


def written(env: WebShopEnv, seed: int) -> list[list[int]]:
    """The actions of a visit."""
    rng, actions = random.Random(seed), []
    _, info = env.reset(seed=seed)
    words = env._front.session.goal.instruction.split()
    for _ in range(STEPS):
        clicks = [command for command in info["admissible_commands"] if command.startswith("click[") and command != "click[buy now]"]
        command = f"search[{' '.join(words[:12])}]" if not clicks else rng.choice(clicks)
        actions.append(env.encode_action(env.write_command(command)))
        _, _, terminated, truncated, info = env.step(actions[-1])
        if terminated or truncated:
            break
    return actions


def main() -> None:
    for name, kwargs in FORMS.items():
        env = WebShopEnv(**kwargs)
        best, tokens, steps = float("inf"), 0, 0
        for repeat in range(REPEATS):  # other visits each time: texts that come again are encoded once
            plays = {seed: written(WebShopEnv(**kwargs), seed) for seed in range(repeat * VISITS, (repeat + 1) * VISITS)}
            spent, added, taken = 0.0, 0, sum(map(len, plays.values()))
            for seed, actions in plays.items():
                before = int(env.reset(seed=seed)[1]["observation_length"])
                start = Clock()
                for action in actions:
                    info = env.step(action)[-1]
                spent += Clock() - start
                added += int(info["observation_length"]) - before
            if spent / taken < best:
                best, tokens, steps = spent / taken, added, taken
        show(f"WebShop environment, {name}", steps=steps, steps_per_cpu_second=round(1 / best), tokens_per_step=round(tokens / steps))


if __name__ == "__main__":
    main()
