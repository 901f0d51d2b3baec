"""Small things that several rooms' tests use."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agent_gym.core import AgentEnv


def require(name: str) -> ModuleType:
    """The optional module; without it the test is skipped with the reason, or fails where AGENT_GYM_REQUIRE_ALL=1 says that nothing may be missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if os.environ.get("AGENT_GYM_REQUIRE_ALL") == "1":
            pytest.fail(f"AGENT_GYM_REQUIRE_ALL=1, but {name} cannot be imported: {error}")
        pytest.skip(f"{name} is not installed ({error})", allow_module_level=True)


def follow(env: AgentEnv, script: Callable[[Any, int], str] | None = None, **reset: Any) -> tuple[list[float], dict[str, Any]]:
    """Play the expert, or a script, to the end; the rewards and the last info."""
    env.reset(**reset)
    expert = env.expert()
    assert expert is not None
    rewards = []
    while True:
        text = expert() if script is None else script(env, env.turn)
        _, reward, terminated, truncated, info = env.step(env.encode_action(text))
        rewards.append(reward)
        if terminated or truncated:
            return rewards, info


def cpu_time(work: Callable[[], Any]) -> float:
    """CPU seconds of the quicker of two runs."""
    best = float("inf")
    for _ in range(2):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def assert_linear(work: Callable[[Any], Any], make: Callable[[int], Any], n: int) -> None:
    """Fail unless eight times the input takes less than 24 times the CPU time, plus 2 milliseconds, in one of three tries.

    Quadratic work takes 64 times. Linear work takes more than 8 on a busy machine, as soon as the larger input no longer fits into the caches.
    """
    for _attempt in range(3):
        small, large = make(n), make(8 * n)
        one, eight = cpu_time(lambda given=small: work(given)), cpu_time(lambda given=large: work(given))  # type: ignore[misc]
        if eight < 24 * one + 0.002:
            return
    raise AssertionError(f"{eight:.4f} s at {8 * n}, {one:.4f} s at {n}")
