"""What every policy shares: `Sampling`, the `Policy` protocol, what training refuses, and the random numbers of sampling.

A policy takes token ids and gives token ids with their log-probabilities. Sampling never touches a global generator: the uniform number of
the n-th token of a request is a function of that request's seed and of n alone (a counter-based generator), so that what a request
samples does not depend on the company it is batched with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from agent_gym.trajectory import Generation

__all__ = ["Policy", "Sampling", "check_training_sampling", "derive_seed", "uniforms"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one reply is sampled.

    Attributes:
        temperature: the logits are divided by it; 0 is greedy, and then the log-probabilities are those at temperature 1.
        top_p: keep the smallest set of tokens with at least this probability; 1 keeps all.
        top_k: keep this many tokens; 0 keeps all.
        min_p: keep tokens with at least this share of the likeliest token's probability; 0 keeps all.
        max_tokens: the longest reply, in tokens.
        seed: of this one request; None lets the policy draw one.
        stop_token_ids: the reply ends behind the first of these, which stays in it. Use the environment's end-of-turn ids.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 512
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ValueError: naming the setting, what was given and what is allowed.
        """
        object.__setattr__(self, "stop_token_ids", tuple(int(i) for i in self.stop_token_ids))
        wrong = [
            text
            for bad, text in (
                (not 0.0 <= self.temperature < float("inf"), f"temperature={self.temperature} (0 or more)"),
                (not 0.0 < self.top_p <= 1.0, f"top_p={self.top_p} (above 0, at most 1)"),
                (self.top_k < 0, f"top_k={self.top_k} (0 or more)"),
                (not 0.0 <= self.min_p <= 1.0, f"min_p={self.min_p} (0 to 1)"),
                (self.max_tokens < 1, f"max_tokens={self.max_tokens} (1 or more)"),
            )
            if bad
        ]
        if wrong:
            raise ValueError("these sampling settings are out of range: " + ", ".join(wrong))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, for a `Trajectory`."""
        return asdict(self)


@runtime_checkable
class Policy(Protocol):
    """Token ids in, token ids out.

    A policy may also define `bind(env, session)`, called once after each reset: scripted policies look at the environment through it.
    """

    version: int
    """The optimiser step of the weights; written into each `Generation`."""

    async def generate(
        self, prompt_ids: Sequence[int] | NDArray[np.int64], sampling: Sampling, *, session: Hashable | None = None
    ) -> Generation:
        """Sample one reply.

        Args:
            prompt_ids: the whole prompt.
            sampling: the settings of this request.
            session: names the episode, so that what was computed for an earlier turn can be used again.

        Returns:
            The sampled ids with the log-probabilities of the distribution that was sampled.
        """
        ...

    def forget(self, session: Hashable) -> None:
        """Drop what was kept for a session."""
        ...


def check_training_sampling(sampling: Sampling, *, stop_strings: Sequence[str] = ()) -> None:
    """Refuse settings under which the recorded log-probabilities and the trained distribution differ.

    Args:
        sampling: the settings that the rollouts would use.
        stop_strings: textual stops of an engine.

    Raises:
        ValueError: naming each refused setting with the reason.
    """
    refused = []
    if sampling.top_p < 1.0:
        refused.append(
            f"top_p={sampling.top_p}: tokens outside the nucleus have probability 0 when sampled, but not in the loss; use top_p=1"
        )
    if sampling.top_k > 0:
        refused.append(f"top_k={sampling.top_k}: cut tokens have probability 0 when sampled, but not in the loss; use top_k=0")
    if sampling.min_p > 0.0:
        refused.append(f"min_p={sampling.min_p}: cut tokens have probability 0 when sampled, but not in the loss; use min_p=0")
    if sampling.temperature == 0.0:
        refused.append("temperature=0: greedy replies have no log-probabilities to train on; use temperature=1")
    if stop_strings:
        refused.append(f"stop strings {list(stop_strings)}: they cut text, not ids, so text and ids disagree; use stop_token_ids")
    if refused:
        raise ValueError("these sampling settings cannot be trained on:\n- " + "\n- ".join(refused))


def derive_seed(seed: int, *path: int | str) -> int:
    """Derive a seed for one request from a run's seed and the request's place in the run.

    Args:
        seed: the run's seed.
        path: the place, such as row, episode, turn and retry.

    Returns:
        A number below 2**63; the same for the same arguments in every process.
    """
    text = "\x1f".join([str(int(seed)), *(f"{type(part).__name__[0]}{part}" for part in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def uniforms(seeds: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return one uniform number per (seed, counter) pair: SplitMix64 (Steele, Lea and Flood, 2014) at the counter's place in the seed's stream.

    Args:
        seeds: shape (n,), uint64.
        counters: shape (n,), uint64.

    Returns:
        Numbers in [0, 1), shape (n,), float64, 53 random bits each.
    """
    state = _mix(seeds + _GOLDEN) + (counters + np.uint64(1)) * _GOLDEN
    return (_mix(state) >> np.uint64(11)).astype(np.float64) * 2.0**-53
