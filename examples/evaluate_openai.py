"""Evaluate an OpenAI-compatible server: any address that answers `/v1/chat/completions`, by text.

    python examples/evaluate_openai.py --url http://127.0.0.1:8000 --model my-model
    OPENAI_API_KEY=... python examples/evaluate_openai.py --url https://api.openai.com/v1 --model gpt-4o-mini --price-in 0.15 --price-out 0.6

Prints what the server did beside the environment's own expert on the same tasks. The episodes are marked `token_exact=False`: their ids are made of the server's text,
so no trainer takes them. `agent-gym eval ENV --policy NAME=openai:URL,model=M` does the same for several models, with a table and a figure.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym

import agent_gym
from agent_gym.comparison import Comparison, Line, paired_difference
from agent_gym.evaluation import evaluate
from agent_gym.policies import OpenAIPolicy, Prices, ScriptedPolicy, Traffic

gym.register_envs(agent_gym)


def compare(url: str, model: str | None, env_id: str, tasks: int, prices: Prices | None, **settings: Any) -> Comparison:
    """Play the same tasks with the expert and with the server.

    Args:
        url: of the server.
        model: its name there; None takes its first.
        env_id: of the environment.
        tasks: how many.
        prices: of a million tokens; None where they are not known.
        **settings: further ones of `OpenAIPolicy`, such as `requests_per_minute`.

    Returns:
        Both, side by side.
    """
    policy = OpenAIPolicy(url, model=model, seed=0, **settings)
    expert, _ = evaluate(env_id, ScriptedPolicy.expert(), split="test", tasks=tasks, arms={"expert": None})
    served, played = evaluate(env_id, policy, split="test", tasks=tasks, arms={"greedy": 0.0})
    policy.close()
    assert not any(episode.token_exact for episode in played["greedy"])
    first, second = expert.arms["expert"], served.arms["greedy"]
    lines = [
        Line("expert", "expert", result=first),
        Line(
            "server",
            "greedy",
            model=str(policy.model),
            engine=policy.server.url,
            token_exact=False,
            result=second,
            traffic=Traffic.of(policy.records, prices),
            difference=paired_difference(first, second),
        ),
    ]
    return Comparison(env_id, lines, {"split": "test", "tasks": tasks, "seed": 0})


def main(argv: list[str] | None = None) -> Comparison:
    """Read the options, compare, and print.

    Args:
        argv: the arguments; None takes those of the process.

    Returns:
        What was printed.
    """
    parser = argparse.ArgumentParser(description="Evaluate an OpenAI-compatible server on tasks that the expert plays too.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--model")
    parser.add_argument("--env", default="AgentR1/HotpotQA-v0")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--requests-per-minute", type=int)
    parser.add_argument("--price-in", type=float)
    parser.add_argument("--price-out", type=float)
    args = parser.parse_args(argv)
    prices = None if args.price_in is None or args.price_out is None else Prices(args.price_in, args.price_out)
    found = compare(args.url, args.model, args.env, args.tasks, prices, requests_per_minute=args.requests_per_minute)
    print(found.markdown())
    return found


if __name__ == "__main__":
    main()
