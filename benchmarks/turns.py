"""Cost per turn from turn 1 to turn 50 under `append`: the work of a step must not grow with what came before.

python benchmarks/turns.py
"""

from __future__ import annotations

from clock import Clock, show
from guess import GuessEnv

TURNS = 50


def main() -> None:
    env = GuessEnv(max_turns=TURNS + 1, max_observation_tokens=8192)
    actions = [env.encode_action(f"I will try [{number % 1000 + 1001}]") for number in range(TURNS)]
    least = [float("inf")] * TURNS
    for repeat in range(60):
        env.reset(seed=repeat)
        env.game.step = lambda text, r=repeat: (f"In round {r} you said {text!r}; the target is elsewhere.", 0.0, False)
        for turn, action in enumerate(actions):
            start = Clock()
            env.step(action)
            least[turn] = min(least[turn], Clock() - start)
    first, last = sum(least[:5]) / 5, sum(least[-5:]) / 5
    show("cost per turn, append", turn_1_to_5_us=first * 1e6, turn_46_to_50_us=last * 1e6, ratio=last / first)


if __name__ == "__main__":
    main()
