"""With its defaults no environment ends at the context limit: 200 tasks each, its expert and a policy that wastes every turn, under two tokenizers.

The older environments have such a test in their own files, with longer replies of their own kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from agent_gym.chat import load_tokenizer
from agent_gym.core import AgentEnv
from agent_gym.registration import ENVIRONMENTS
from agent_gym.trajectory import StopReason

TASKS = 200
OLDER = {"HotpotQA", "Tool", "ALFWorld", "TextWorld", "WebShop"}
WASTED = {"PaperSearch": 24}
"""Tasks of the policy that wastes, where 200 would take many minutes: the prompt of its every turn is made anew, and cut until it fits."""
NAMES = [entry.id.removeprefix("AgentR1/").removesuffix("-v0") for entry in ENVIRONMENTS]
USELESS: dict[str, Callable[[Any], str]] = {  # a well-formed reply that brings the task no further and fills the prompt as much as one can
    "TwoWikiMultihopQA": lambda env: call(env, "search", query="town river who where"),
    "MuSiQue": lambda env: call(env, "search", query="town river who where"),
    "GSM8K": lambda env: call(env, "calculator", expression="9" * 60),
    "PaperSearch": lambda env: call(env, "search", query="we show a method for the"),
    "FrozenLake": lambda env: env.write_command("left"),
    "Taxi": lambda env: env.write_command("west"),
    "Blackjack": lambda env: "I would rather not play.",  # whatever names an action ends soon
    "CliffWalking": lambda env: env.write_command("up"),
}


def call(env: Any, tool: str, **arguments: str) -> str:
    """The call as often as one reply may hold it."""
    return env.tool_format.render_call(tool, arguments) * env.max_parallel_calls


def reasons(envs: list[AgentEnv], next_action: Callable[[AgentEnv], Callable[[int], Any]], tasks: int = TASKS) -> Counter[StopReason]:
    """How so many episodes end, of all splits in turn; the function is given an environment that was reset, and returns turn -> action."""
    ends: Counter[StopReason] = Counter()
    for seed in range(tasks):
        env = envs[seed % len(envs)]
        env.reset(seed=seed)
        act, over = next_action(env), False
        while not over:
            *_, terminated, truncated, info = env.step(act(env.turn))
            over = terminated or truncated
        ends[info["stop_reason"]] += 1
    return ends


def expert_of(env: AgentEnv) -> Callable[[int], Any]:
    expert = env.expert()
    assert expert is not None
    return lambda turn: env.encode_action(expert())


@pytest.mark.parametrize("tokenizer", ["default", "qwen3"])
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in OLDER])
def test_neither_the_expert_nor_a_policy_that_wastes_every_turn_meets_the_context_limit(
    name: str, tokenizer: str, request: pytest.FixtureRequest
) -> None:
    opened = load_tokenizer(request.getfixturevalue("qwen3_path") if tokenizer == "qwen3" else None)
    envs: list[Any] = [
        gymnasium.make(f"AgentR1/{name}-v0", tokenizer=opened, split=split, disable_env_checker=True).unwrapped
        for split in ("train", "validation", "test")
    ]
    ends = reasons(envs, expert_of)
    assert ends.total() == TASKS and StopReason.CONTEXT_LIMIT not in ends and StopReason.MAX_TURNS not in ends
    envs[0].reset(seed=0)
    longest = np.asarray(envs[0].encode_action("<tool_call>again " * envs[0].max_action_tokens)[: envs[0].max_action_tokens])
    useless = np.asarray(envs[0].encode_action(USELESS[name](envs[0])))
    assert len(useless) <= envs[0].max_action_tokens
    tasks = WASTED.get(name, TASKS)
    assert reasons(envs, lambda env: lambda turn: (useless, longest)[turn % 2], tasks) == {StopReason.MAX_TURNS: tasks}
