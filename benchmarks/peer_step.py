"""Our environment inside the peers' own harness: run by their script, which puts `harness` on the path."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gymnasium
from guess import GuessEnv
from harness import CLK, Game, Policy, report


def loop(tokenizer: str | None) -> Any:
    env = gymnasium.make("Bench/Guess-v0", tokenizer=tokenizer, game=Game)
    unwrapped: Any = env.unwrapped
    policy = Policy()
    actions = {f"I will try [{number}]": unwrapped.encode_action(f"I will try [{number}]") for number in range(1, 1001)}

    def run(number: int) -> tuple[int, float]:
        steps, start = 0, CLK()
        while steps < number:
            env.reset()
            policy.start()
            feedback, done = None, False
            while not done:
                _, _, terminated, truncated, info = env.step(actions[policy.act(feedback)])
                feedback, done = info["feedback"], terminated or truncated
                steps += 1
        return steps, CLK() - start

    return run


gymnasium.register("Bench/Guess-v0", entry_point=GuessEnv)
report("agent-gym custom env, token ids in and out, default tokenizer", loop(None), 5000)
if data := os.environ.get("AGENT_GYM_TEST_DATA"):
    report("agent-gym custom env, token ids in and out, Qwen3 tokenizer", loop(str(Path(data) / "tokenizers" / "qwen3")), 5000)
