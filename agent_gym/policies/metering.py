"""What a policy's requests took: tokens, seconds, money. `RequestRecord` is one request, `Traffic` many of them, `MeteredPolicy` keeps the records of any policy.

Nothing is guessed: where a server does not tell its usage, the tokens are unknown and so is the cost, which is then None and never zero.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_gym.policies.base import Policy, Sampling
from agent_gym.trajectory import Generation

__all__ = ["MeteredPolicy", "Prices", "RequestRecord", "Traffic", "money", "read_prices"]


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request that was answered.

    Attributes:
        seconds: wall clock from sending it to its answer, the tries before it and our own waiting left out.
        prompt_tokens: as the server counts them; None where it does not say.
        completion_tokens: likewise, reasoning included.
        cached_tokens: of the prompt, those that the server had kept; 0 where it says nothing of them.
        tries: how often it was sent.
    """

    seconds: float
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int = 0
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in any currency.

    Attributes:
        prompt: of prompts.
        completion: of replies, reasoning included.
        cached: of prompt tokens that the server had kept; None takes `prompt`.

    Raises:
        ValueError: for a price that is none.
    """

    prompt: float
    completion: float
    cached: float | None = None

    def __post_init__(self) -> None:
        for name in ("prompt", "completion", "cached"):
            value = getattr(self, name)
            if value is None and name == "cached":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < float("inf"):
                raise ValueError(f"the price of a million {name} tokens must be a number of at least 0, not {value!r}")

    def of(self, record: RequestRecord) -> float | None:
        """Return what a request cost.

        Args:
            record: the request.

        Returns:
            The cost; None where its tokens are unknown.
        """
        if record.prompt_tokens is None or record.completion_tokens is None:
            return None
        kept = min(record.cached_tokens, record.prompt_tokens)
        cached = self.prompt if self.cached is None else self.cached
        return ((record.prompt_tokens - kept) * self.prompt + kept * cached + record.completion_tokens * self.completion) / 1e6


@dataclass(frozen=True, slots=True)
class Traffic:
    """What many requests took.

    Attributes:
        requests: that were answered.
        retries: tries beyond the first of each.
        prompt_tokens: of all; None where one of them is unknown.
        completion_tokens: likewise.
        cached_tokens: of all prompts.
        unknown_usage: requests whose tokens the server did not tell.
        cost: of all; None where there are no prices, or a request's tokens are unknown.
        latency_median: seconds of a request; None without any.
        latency_p95: the 95th percentile of them.
    """

    requests: int
    retries: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int
    unknown_usage: int
    cost: float | None
    latency_median: float | None
    latency_p95: float | None

    @classmethod
    def of(cls, records: Sequence[RequestRecord], prices: Prices | None = None) -> Traffic:
        """Sum up requests.

        Args:
            records: the requests.
            prices: of their tokens.

        Returns:
            The sums; percentiles are interpolated linearly between requests.
        """
        unknown = sum(one.prompt_tokens is None or one.completion_tokens is None for one in records)
        prompts, completions = [one.prompt_tokens for one in records], [one.completion_tokens for one in records]
        costs = [None if prices is None else prices.of(one) for one in records]
        median, high = np.percentile([one.seconds for one in records], [50, 95]).tolist() if records else (None, None)
        return cls(
            requests=len(records),
            retries=sum(one.tries - 1 for one in records),
            prompt_tokens=_sum(prompts),
            completion_tokens=_sum(completions),
            cached_tokens=sum(one.cached_tokens for one in records),
            unknown_usage=unknown,
            cost=None if prices is None or any(one is None for one in costs) else float(sum(one for one in costs if one is not None)),
            latency_median=median,
            latency_p95=high,
        )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [one for one in values if one is not None]
    return sum(known) if len(known) == len(values) else None


class MeteredPolicy:
    """Another policy, with a record of every request. Its tokens are those of the environment's tokenizer, which the policy speaks.

    A policy that keeps records of its own (`OpenAIPolicy`, whose server counts) needs none.

    Args:
        policy: any policy.

    Attributes:
        records: of the requests, as they were answered.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.records: list[RequestRecord] = []

    @property
    def version(self) -> int:
        """The policy's."""
        return self.policy.version

    @property
    def token_exact(self) -> bool:
        """Whether the policy is token-exact."""
        return bool(getattr(self.policy, "token_exact", True))

    def bind(self, env: Any, session: Hashable | None = None) -> None:
        """Show the environment to a policy that looks at it.

        Args:
            env: just reset.
            session: the episode that begins in it.
        """
        bind = getattr(self.policy, "bind", None)
        if bind is not None:
            bind(env, session)

    async def generate(
        self, prompt_ids: Sequence[int] | NDArray[np.int64], sampling: Sampling, *, session: Hashable | None = None
    ) -> Generation:
        """Sample a reply, and note what it took; see `Policy.generate`."""
        began = time.perf_counter()
        reply = await self.policy.generate(prompt_ids, sampling, session=session)
        self.records.append(RequestRecord(time.perf_counter() - began, len(prompt_ids), len(reply.token_ids)))
        return reply

    def forget(self, session: Hashable) -> None:
        """Drop what was kept for a session.

        Args:
            session: as of `generate`.
        """
        self.policy.forget(session)


def read_prices(value: Mapping[str, Any]) -> Prices:
    """Read prices from a file's or a command's members.

    Args:
        value: "in", "out" and perhaps "cached": per million tokens.

    Returns:
        The prices.

    Raises:
        ValueError: for other members, or one that is missing or no price.
    """
    if not isinstance(value, Mapping) or set(value) - {"in", "out", "cached"} or not {"in", "out"} <= set(value):
        raise ValueError(
            f'prices are {{"in": 0.15, "out": 0.6}} per million tokens, with "cached" where kept prompt tokens cost less, not {value!r}'
        )
    return Prices(value["in"], value["out"], value.get("cached"))


def money(cost: float) -> str:
    """Return a cost in as many digits as it needs: two decimals, or three significant digits below 1.

    Args:
        cost: not negative.

    Returns:
        The text, without a currency.
    """
    return f"{cost:,.2f}" if cost >= 1.0 or cost == 0.0 else f"{cost:.3g}" if cost >= 1e-4 else f"{cost:.2e}"
