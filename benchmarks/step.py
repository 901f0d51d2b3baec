"""A step of a custom text environment through `gymnasium.make`, ids in and ids out, beside the bare loop and, if they are there, the peers.

python benchmarks/step.py
AGENT_GYM_PEERS=path/to/run.sh python benchmarks/step.py     # the peers' script, each beside the same bare loop in the same run
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
from clock import Clock, best, show
from guess import Bisection, Game, GuessEnv

GUESS_LENGTH = 12


def bare(steps: int) -> float:
    """CPU seconds per step of the bare loop."""
    game, player, done_steps = Game(), Bisection(), 0
    start = Clock()
    while done_steps < steps:
        game.reset()
        player.start()
        feedback, done = None, False
        while not done:
            feedback, _, done = game.step(f"I will try [{player.guess(feedback)}]")
            done_steps += 1
    return (Clock() - start) / done_steps


def ours(env: Any, actions: dict[int, list[int]], steps: int) -> float:
    """CPU seconds per step of the same loop over the environment; the model's side, making ids, is done beforehand."""
    player, done_steps = Bisection(), 0
    start = Clock()
    while done_steps < steps:
        env.reset()
        player.start()
        feedback, done = None, False
        while not done:
            _, _, terminated, truncated, info = env.step(actions[player.guess(feedback)])
            feedback, done = info["feedback"], terminated or truncated
            done_steps += 1
    return (Clock() - start) / done_steps


def main() -> None:
    gymnasium.register("Bench/Guess-v0", entry_point=GuessEnv)
    tokenizers = {"default": None}
    if data := os.environ.get("AGENT_GYM_TEST_DATA"):
        tokenizers["qwen3"] = str(Path(data) / "tokenizers" / "qwen3")
    for name, tokenizer in tokenizers.items():
        env = gymnasium.make("Bench/Guess-v0", tokenizer=tokenizer)
        unwrapped: Any = env.unwrapped
        actions = {number: unwrapped.encode_action(f"I will try [{number}]") for number in range(1, 1001)}
        loop, step = float("inf"), float("inf")
        ours(env, actions, 500)
        for _ in range(5):
            loop, step = min(loop, bare(5000)), min(step, ours(env, actions, 3000))
        text = unwrapped.chat._print_turn([{"role": "user", "content": "At turn 5, you guessed 500; the target is lower."}])[0]
        floor = best(
            {
                "decode": lambda u=unwrapped, a=actions[500][:-1]: u.chat.decode(a),
                "encode": lambda u=unwrapped, t=text: u.chat._encoder.encode(t),
                "padded copy": lambda u=unwrapped: u._prompt.copy(),
            }
        )
        show(
            f"agent-gym step, ids in and out ({name} tokenizer)",
            us_per_step=step * 1e6,
            bare_us=loop * 1e6,
            ratio=step / loop,
            ratio_to_one_encode_decode_copy=step * 1e6 / sum(floor.values()),
        )
    if script := os.environ.get("AGENT_GYM_PEERS"):
        here = Path(__file__).resolve().parent
        names = ["gymnasium", "gem", "skyrl", "aviary", "textarena", f"ours={here / 'peer_step.py'}"]
        subprocess.run(["bash", script, *names], check=True, env={**os.environ, "AGENT_GYM_PYTHON": sys.executable})


if __name__ == "__main__":
    main()
