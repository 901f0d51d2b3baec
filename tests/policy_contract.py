"""The contract of policies with weights, as checks that take any of them: the one in this process, local stand-ins of servers, and real engines.

An `Arm` is a policy with what a check must know of it. Every check is a coroutine, raises AssertionError, and leaves the arm usable. Which of them a broken
policy fails is tested too (`test_policy_contract.py`), so that none of them is one that cannot fail.
"""

from __future__ import annotations

import asyncio
import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from agent_gym.policies import Sampling, derive_seed
from agent_gym.trajectory import Generation

LONG = 40  # tokens of a prompt that a prefix cache of blocks of 32 keeps


class Arm(ABC):
    """A policy under test.

    Attributes:
        policy: the policy.
        vocabulary: ids that its model knows.
        max_context: tokens of prompt and reply.
        tolerance: of log-probabilities.
        updates: whether `update` works.
        ends_requests: whether `unfinished` can tell.
    """

    policy: Any
    vocabulary: int
    max_context: int
    tolerance: float = 2e-4
    updates: bool = True
    ends_requests: bool = True

    @abstractmethod
    def logprobs(self, prompt: list[int], ids: list[int], temperature: float = 1.0) -> list[float]:
        """By one forward of the weights that the policy should have now."""

    @abstractmethod
    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """The likeliest ids, by plain forwards."""

    @abstractmethod
    async def update(self, version: int) -> None:
        """Give the policy clearly other weights."""

    def unfinished(self) -> int:
        """Requests that the engine still works on."""
        return 0

    def overflows(self) -> int:
        """Requests that asked the engine for more than its context holds."""
        return 0

    def prompt(self, number: int, length: int = LONG) -> list[int]:
        """A prompt of its own."""
        found: list[int] = np.random.default_rng(number).integers(3, self.vocabulary, length).tolist()
        return found

    def worst(self, prompt: list[int], generation: Generation, temperature: float = 1.0) -> float:
        """The largest error of the log-probabilities of a reply."""
        assert generation.logprobs is not None and len(generation.logprobs) == len(generation.token_ids)
        plain = self.logprobs(prompt, generation.token_ids.tolist(), temperature)
        return float(np.abs(generation.logprobs - np.array(plain)).max(initial=0.0))


async def ids_and_logprobs_are_those_that_were_sampled(arm: Arm) -> None:
    """Over several turns, each of which goes on from the very ids of the one before; episodes at once; at two temperatures."""
    temperatures = {0: 1.0, 1: 0.6}

    async def episode(number: int) -> None:
        prompt = arm.prompt(number, 5 + 7 * number)
        for turn in range(3):
            sampling = Sampling(temperature=temperatures[number % 2], max_tokens=6 + number, seed=derive_seed(number, turn))
            generation = await arm.policy.generate(prompt, sampling, session=number)
            assert len(generation.token_ids) == 6 + number and generation.finish_reason == "length"
            assert arm.worst(prompt, generation, sampling.temperature) < arm.tolerance
            prompt = prompt + generation.token_ids.tolist() + arm.prompt(100 + 10 * number + turn, 9)
        arm.policy.forget(number)

    await asyncio.gather(*(episode(number) for number in range(6)))


async def a_reply_ends_at_its_own_stop_ids_and_nowhere_else(arm: Arm) -> None:
    """The stop id stays in the reply; the model's own end of sequence is none unless it is asked for."""
    stops = tuple(range(3, arm.vocabulary, 9))
    jobs = [
        (arm.prompt(number, 12), Sampling(max_tokens=10, seed=number, stop_token_ids=stops if number % 3 else ())) for number in range(18)
    ]
    replies = await asyncio.gather(*(arm.policy.generate(prompt, sampling) for prompt, sampling in jobs))
    for (prompt, sampling), reply in zip(jobs, replies, strict=True):
        ids = reply.token_ids.tolist()
        hits = [place for place, one in enumerate(ids) if one in sampling.stop_token_ids]
        if reply.finish_reason == "stop":
            assert hits == [len(ids) - 1]
        else:
            assert reply.finish_reason == "length" and not hits and len(ids) == 10
        assert arm.worst(prompt, reply) < arm.tolerance
    assert {reply.finish_reason for reply in replies} == {"stop", "length"}


async def a_full_context_is_a_finish_reason(arm: Arm) -> None:
    """What is asked for is clamped before the engine, which is never asked for too much."""
    inside = await arm.policy.generate(arm.prompt(1, arm.max_context - 4), Sampling(max_tokens=50, seed=1))
    assert (len(inside.token_ids), inside.finish_reason) == (4, "context")
    exact = await arm.policy.generate(arm.prompt(1, arm.max_context - 4), Sampling(max_tokens=4, seed=1))
    assert (len(exact.token_ids), exact.finish_reason) == (4, "length")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for length in (arm.max_context, arm.max_context + 90):
            full = await arm.policy.generate(arm.prompt(1, length), Sampling(max_tokens=50, seed=1))
            assert (len(full.token_ids), full.finish_reason, len(full.logprobs)) == (0, "context", 0)
    assert not arm.overflows(), "the engine was asked for more than fits"


async def impossible_prompts_are_refused(arm: Arm) -> None:
    """The programmer's mistakes, and the policy lives on."""
    for prompt in ([], [arm.vocabulary + 5], [-1]):
        try:
            await arm.policy.generate(prompt, Sampling(max_tokens=3, seed=0))
        except ValueError:
            continue
        raise AssertionError(f"{prompt} was taken")
    assert len((await arm.policy.generate([4, 5], Sampling(max_tokens=3, seed=0))).token_ids) == 3


async def a_request_has_a_seed_of_its_own(arm: Arm) -> None:
    """Equal seeds give equal samples, whatever else runs; without seeds no two requests are alike."""
    prompt = arm.prompt(7)
    one, *_, other = await asyncio.gather(
        arm.policy.generate(prompt, Sampling(max_tokens=12, seed=5)),
        *(arm.policy.generate(arm.prompt(number), Sampling(max_tokens=9, seed=number)) for number in range(4)),
        arm.policy.generate(prompt, Sampling(max_tokens=12, seed=5)),
    )
    assert one.token_ids.tolist() == other.token_ids.tolist()
    free = await asyncio.gather(*(arm.policy.generate(prompt, Sampling(max_tokens=12)) for _ in range(8)))
    seeded = await asyncio.gather(*(arm.policy.generate(prompt, Sampling(max_tokens=12, seed=number)) for number in range(8)))
    assert len({tuple(reply.token_ids.tolist()) for reply in [*free, *seeded]}) == 16


async def greedy_takes_the_likeliest(arm: Arm) -> None:
    """And tells log-probabilities at temperature 1."""
    prompt = arm.prompt(8)
    reply = await arm.policy.generate(prompt, Sampling(temperature=0.0, max_tokens=8, seed=0))
    assert reply.token_ids.tolist() == arm.greedy(prompt, 8)
    assert arm.worst(prompt, reply) < arm.tolerance


async def a_cancelled_request_leaves_the_others_alone(arm: Arm) -> None:
    """And ends in the engine."""
    await arm.policy.generate([6, 7], Sampling(max_tokens=1, seed=0))  # behind it a policy knows its engine
    doomed = asyncio.create_task(arm.policy.generate([4, 5], Sampling(max_tokens=arm.max_context - 2, seed=0)))
    for _ in range(10 if not arm.ends_requests else 1000):  # a request that never reached the engine could not be ended there
        await asyncio.sleep(0.005)
        if arm.unfinished():
            break
    kept = asyncio.create_task(arm.policy.generate([6, 7], Sampling(max_tokens=30, seed=1)))
    await asyncio.sleep(0)
    doomed.cancel()
    reply = await kept
    alone = await arm.policy.generate([6, 7], Sampling(max_tokens=30, seed=1))
    assert reply.token_ids.tolist() == alone.token_ids.tolist()
    assert doomed.cancelled() or doomed.done()
    if arm.ends_requests:
        for _ in range(300):
            if not arm.unfinished():
                break
            await asyncio.sleep(0.02)
        assert not arm.unfinished()


async def every_reply_says_which_weights_made_it(arm: Arm) -> None:
    """Behind an update no key or value of the old weights is read, and a request in flight has one version."""
    prompt = arm.prompt(9, 3 * LONG)
    first = arm.policy.version
    before = await arm.policy.generate(prompt, Sampling(max_tokens=8, seed=1))
    assert before.policy_version == first and arm.worst(prompt, before) < arm.tolerance
    flying = asyncio.create_task(arm.policy.generate(arm.prompt(10), Sampling(max_tokens=20, seed=2)))
    await asyncio.sleep(0)
    old = arm.logprobs(prompt, before.token_ids.tolist())
    await arm.update(first + 5)
    assert (await flying).policy_version in (first, first + 5)
    assert np.abs(np.array(old) - np.array(arm.logprobs(prompt, before.token_ids.tolist()))).max() > 0.5, (
        "the new weights must be clearly others"
    )
    after = await arm.policy.generate(prompt, Sampling(max_tokens=8, seed=1))
    assert after.policy_version == first + 5 == arm.policy.version
    assert arm.worst(prompt, after) < arm.tolerance, "old keys and values were read, or the weights did not arrive"


CHECKS = {
    check.__name__: check
    for check in (
        ids_and_logprobs_are_those_that_were_sampled,
        a_reply_ends_at_its_own_stop_ids_and_nowhere_else,
        a_full_context_is_a_finish_reason,
        impossible_prompts_are_refused,
        a_request_has_a_seed_of_its_own,
        greedy_takes_the_likeliest,
        a_cancelled_request_leaves_the_others_alone,
        every_reply_says_which_weights_made_it,
    )
}
