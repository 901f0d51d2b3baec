"""The hand-made row that the HotpotQA tests share, and ways to play an episode."""

from collections.abc import Callable
from typing import Any

from agent_gym.envs.hotpotqa import HotpotQAEnv

PAGES = [
    ["Ovrun Bridge", ["The Ovrun Bridge was built by Mila Sond.", " It is old."]],
    ["Mila Sond", ["Mila Sond was an engineer.", " She was born in Sennor."]],
    ["Tarn", ["Tarn is a hill near the Ovrun Bridge."]],
    ["Kess", ["Kess is a town."]],
]
ROW: dict[str, Any] = {
    "_id": "made-1",
    "question": "Where was the builder of the Ovrun Bridge born?",
    "answer": "Sennor",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Ovrun Bridge", 0], ["Mila Sond", 1]],
    "context": PAGES,
}


def call(env: HotpotQAEnv, *queries: str) -> str:
    return "\n".join(env.tool_format.render_call("search", {"query": query}) for query in queries)


def play(env: HotpotQAEnv, *texts: str, **reset: Any) -> tuple[float, dict[str, Any], bool]:
    """Play these replies; returns the total reward, the last info and whether the episode is over."""
    env.reset(**reset)
    total, over, info = 0.0, False, {}
    for text in texts:
        _, reward, terminated, truncated, info = env.step(env.encode_action(text))
        total, over = total + reward, terminated or truncated
    return total, info, over


def follow(env: HotpotQAEnv, policy: Callable[[HotpotQAEnv], str] | None = None, **reset: Any) -> tuple[float, dict[str, Any]]:
    """Play the expert, or a policy, to the end."""
    env.reset(**reset)
    expert = env.expert()
    assert expert is not None
    total = 0.0
    while True:
        text = expert() if policy is None else policy(env)
        _, reward, terminated, truncated, info = env.step(env.encode_action(text))
        total += reward
        if terminated or truncated:
            return total, info
