"""Multi-turn generation by `TransformersPolicy`, beside `model.generate` of transformers, on the embedded model.

    python benchmarks/generation.py

Thirty-two episodes at once, ten turns each. In a turn the model writes sixteen tokens, the likeliest ones, and the environment adds 20 to 200 tokens. Both
sides get the same prompts and write the same tokens (the share that is equal is printed). `model.generate` has all episodes of a turn in one
left-padded batch with its own cache inside of the call, which is the quickest way to use it; it gives no log-probabilities, the policy does. Goal: 1.5 times the
tokens per CPU-second.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable

import numpy as np
import torch
from clock import Clock, show

from agent_gym.chat import load_tokenizer
from agent_gym.policies import Sampling, TransformersPolicy
from agent_gym.trainers.tiny_model import build_tiny_model

EPISODES, TURNS, TOKENS, GOAL = 32, 10, 16, 1.5
Turn = Callable[[list[list[int]]], list[list[int]]]


def play(turn: Turn, vocabulary: int) -> tuple[list[list[int]], float]:
    """All episodes, all turns: the final contexts and the CPU seconds of the model's part."""
    generator = np.random.default_rng(0)
    contexts = [generator.integers(100, vocabulary, 80).tolist() for _ in range(EPISODES)]
    seconds = 0.0
    for _ in range(TURNS):
        begin = Clock()
        replies = turn(contexts)
        seconds += Clock() - begin
        for context, reply in zip(contexts, replies, strict=True):
            context += reply + generator.integers(100, vocabulary, generator.integers(20, 201)).tolist()
    return contexts, seconds


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tokenizer = load_tokenizer()
    model = build_tiny_model(tokenizer, 0).eval()
    vocabulary = len(tokenizer)

    def baseline(contexts: list[list[int]]) -> list[list[int]]:
        width = max(map(len, contexts))
        ids = torch.full((EPISODES, width), tokenizer.pad_token_id)
        mask = torch.zeros_like(ids)
        for line, context in enumerate(contexts):
            ids[line, width - len(context) :] = torch.tensor(context)
            mask[line, width - len(context) :] = 1
        with torch.no_grad():
            found = model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=TOKENS, min_new_tokens=TOKENS, eos_token_id=None,
                pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        return [line[width:].tolist() for line in found]

    best: dict[str, float] = {}
    texts: dict[str, list[list[int]]] = {}
    for _ in range(3):
        policy = TransformersPolicy(model, tokenizer=tokenizer, seed=0, num_threads=1)

        def ours(contexts: list[list[int]], policy: TransformersPolicy = policy) -> list[list[int]]:
            async def all_at_once() -> list[list[int]]:
                sampling = Sampling(temperature=0.0, max_tokens=TOKENS)
                made = await asyncio.gather(*(policy.generate(one, sampling, session=number) for number, one in enumerate(contexts)))
                return [one.token_ids.tolist() for one in made]

            return asyncio.run(all_at_once())

        for name, turn in (("policy", ours), ("generate", baseline)):
            texts[name], seconds = play(turn, vocabulary)
            best[name] = min(best.get(name, seconds), seconds)
        policy.close()
    same = np.mean([one == other for one, other in zip(texts["policy"], texts["generate"], strict=True)])
    tokens = EPISODES * TURNS * TOKENS
    ratio = best["generate"] / best["policy"]
    show(
        "multi-turn generation",
        equal_episodes=float(same),
        policy_tokens_per_cpu_s=tokens / best["policy"],
        generate_tokens_per_cpu_s=tokens / best["generate"],
        ratio=ratio,
        goal=GOAL,
        reached=ratio >= GOAL,
    )


if __name__ == "__main__":
    main()
