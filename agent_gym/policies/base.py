"""What every policy shares: `Sampling`, the `Policy` protocol, what training refuses, and the random numbers of sampling.

A policy takes token ids and gives token ids with their log-probabilities. Sampling never touches a global generator: the uniform number of
the n-th token of a request is a function of that request's seed and of n alone (a counter-based generator), so that what a request
samples does not depend on the company it is batched with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from agent_gym._sampling import Sampling
from agent_gym.trajectory import Generation

__all__ = ["Policy", "Sampling", "check_training_policy", "check_training_sampling", "derive_seed", "uniforms"]


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
            prompt_ids: the whole prompt, int64 of shape (n,).
            sampling: the settings of this request.
            session: names the episode, so that what was computed for an earlier turn can be used again.

        Returns:
            The sampled ids with the log-probabilities of the distribution that was sampled.
        """
        ...

    def forget(self, session: Hashable) -> None:
        """Drop what was kept for a session.

        Args:
            session: as of `generate`; an unknown one is ignored.
        """
        ...


def check_training_policy(policy: Any) -> None:
    """Refuse a policy whose ids are not those that were sampled.

    Args:
        policy: that would play the episodes of a trainer. One that is not token-exact says so by `token_exact = False`.

    Raises:
        ValueError: if it is not token-exact.
    """
    if not getattr(policy, "token_exact", True):
        raise ValueError(
            f"{type(policy).__name__} is not token-exact: its ids are made of a server's text and are not those that were sampled, and they have no "
            "log-probabilities. It is for evaluation; train with the model itself, VLLMPolicy or SGLangPolicy"
        )


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
