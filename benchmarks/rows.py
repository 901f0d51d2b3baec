"""Tokens and CPU seconds of an update: merged rows against one row per step, on ten-turn episodes under `append`; and the padding of mixed lengths.

    python benchmarks/rows.py

The two have the same gradient (a test holds that to 1e-6), so the cheaper one is free. Goals: at least 4 times fewer tokens and 2.5 times less CPU time. Mixed
lengths are episodes of one to ten turns with 2 to 40 words each, padded within sub-batches that `max_tokens_per_microbatch` bounds, which sorts rows by length;
without it all rows of a micro-step are padded to the longest. Goal: less than 15 % padding.
"""

from __future__ import annotations

import tempfile
import warnings

import numpy as np
import torch
from clock import Clock, show
from guess import GuessEnv

from agent_gym.chat import load_tokenizer
from agent_gym.trainers import AgentGRPOConfig, AgentGRPOTrainer, build_rows
from agent_gym.trainers.tiny_model import build_tiny_model
from agent_gym.trajectory import Trajectory
from agent_gym.wrappers import StepRecorder

TURNS, EPISODES, BUDGET = 10, 32, 2048


def episodes(mixed: bool = False) -> list[Trajectory]:
    """Ten turns each, or one to ten; two members per group, one of them paid."""
    env = StepRecorder(GuessEnv(max_turns=TURNS))
    generator = np.random.default_rng(0)
    played = []
    for number in range(EPISODES):
        env.group_id = f"group-{number // 2}"
        env.reset(seed=number)
        env.unwrapped.game.step = lambda text, n=number: (f"You said {text!r}; the target is elsewhere.", float(n % 2) / TURNS, False)
        turns = generator.integers(1, TURNS + 1) if mixed else TURNS
        while env.running and len(env.trajectory) < turns:
            words = "and again " * int(generator.integers(1, 21)) if mixed else ""
            env.step(env.unwrapped.encode_action(f"I will try {words}[{generator.integers(1, 1000)}] now"))
        played.append(env.trajectory)
    return played


def update(merge: bool, played: list[Trajectory], budget: int | None = None) -> tuple[float, float, float, float]:
    """Trained tokens, padded tokens, CPU seconds and share of padding of one update on the same episodes."""
    tokenizer = load_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        args = AgentGRPOConfig(
            output_dir=folder,
            num_generations=2,
            per_device_train_batch_size=EPISODES,
            gradient_accumulation_steps=1,
            max_steps=3,
            merge_prefix=merge,
            max_tokens_per_microbatch=budget,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            log_level="error",
        )
        trainer = AgentGRPOTrainer(
            build_tiny_model(tokenizer, 0),
            args,
            env=lambda row: GuessEnv(**row["env_kwargs"]),
            train_dataset=[{"seed": seed} for seed in range(EPISODES)],
            processing_class=tokenizer,
            rollout=lambda trainer, examples: played,
        )
        begin = Clock()
        trainer.train()
        seconds = (Clock() - begin) / 3
        log = trainer.state.log_history[0]
    real = sum(len(row) for number, item in enumerate(played) for row in build_rows(item, [1.0] * len(item), number, merge))
    return float(log["batch/trained_tokens"]), real / (1.0 - float(log["batch/pad_frac"])), seconds, float(log["batch/pad_frac"])


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    played = episodes()
    merged, separate = update(True, played), update(False, played)
    show(
        f"rows of {EPISODES} episodes of {TURNS} turns",
        trained_tokens=merged[0],
        same_tokens_trained=merged[0] == separate[0],
        merged_padded_tokens=merged[1],
        separate_padded_tokens=separate[1],
        tokens_ratio=separate[1] / merged[1],
        merged_cpu_s=merged[2],
        separate_cpu_s=separate[2],
        cpu_ratio=separate[2] / merged[2],
        reached=separate[1] / merged[1] >= 4.0 and separate[2] / merged[2] >= 2.5,
    )
    mixed = episodes(mixed=True)
    whole, sorted_rows = update(True, mixed), update(True, mixed, BUDGET)
    show(
        f"padding of {EPISODES} episodes of 1 to {TURNS} turns",
        one_pass=whole[3],
        bounded=sorted_rows[3],
        max_tokens_per_microbatch=BUDGET,
        one_pass_cpu_s=whole[2],
        bounded_cpu_s=sorted_rows[2],
        reached=sorted_rows[3] < 0.15,
    )


if __name__ == "__main__":
    main()
