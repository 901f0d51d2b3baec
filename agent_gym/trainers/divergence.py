"""From hidden states to whole distributions, and how far one is from another, a few tokens at a time. Plain torch; it knows nothing of TRL.

A vocabulary has a hundred thousand entries, so the distributions of all action tokens of a batch would be many times larger than the model. Here at most
`chunk` of them stand in memory at once, on the way forward and back: the backward pass makes them again from the hidden states.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import checkpoint

__all__ = ["Head", "Likelihood", "likelihood", "reverse_kl"]

_LOWEST = -1e4  # exp of it is 0, and 0 times a finite number is 0


class Head:
    """The log-probabilities that a causal language model gives behind its hidden states, at a temperature.

    Args:
        causal: a causal language model of transformers, without wrappers.
        temperature: the logits are divided by it.
        rows: entries of the vocabulary that take part, the first ones; None for all. The others get no probability.
    """

    def __init__(self, causal: Any, temperature: float = 1.0, rows: int | None = None) -> None:
        self.causal, self.temperature, self.rows = causal, temperature, rows
        config = causal.config.get_text_config()
        self.factor, self.cap = _factor(config), getattr(config, "final_logit_softcapping", None)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Compute them.

        Args:
            states: shape (n, hidden).

        Returns:
            Shape (n, rows), float32 or wider, at least -1e4.
        """
        layer = self.causal.get_output_embeddings()
        logits = layer(states.to(layer.weight.dtype)).to(torch.promote_types(layer.weight.dtype, torch.float32))
        if self.factor != 1.0:
            logits = logits * self.factor
        if self.cap is not None:
            logits = self.cap * torch.tanh(logits / self.cap)
        with torch.autocast(logits.device.type, enabled=False):
            return torch.log_softmax(logits[:, : self.rows] / self.temperature, dim=-1).clamp(min=_LOWEST)


def _factor(config: Any) -> float:
    """What a model multiplies its logits by, before a cap (Cohere, Falcon-H1, Granite, MiniCPM3, HyperCLOVA X)."""
    for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"):
        value = getattr(config, name, None)
        if value is not None:
            return float(value)
    value = getattr(config, "logits_scaling", None)
    if value is None:
        return 1.0
    return float(value) if config.model_type == "hyperclovax" else 1.0 / float(value)


class Likelihood(NamedTuple):
    """What a model says of given tokens, each of shape (n,), without gradient.

    Attributes:
        logps: their log-probabilities, shape (n,), float32.
        likeliest: shape (n,), bool: no token is likelier.
    """

    logps: torch.Tensor
    likeliest: torch.Tensor


def _say(logps: torch.Tensor, targets: torch.Tensor) -> Likelihood:
    own = logps.gather(1, targets[:, None])[:, 0]
    return Likelihood(own, own >= logps.max(dim=-1).values)


def _join(parts: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Likelihood:
    logps, likeliest = zip(*parts, strict=True)
    return Likelihood(torch.cat(logps), torch.cat(likeliest))


@torch.no_grad()
def likelihood(head: Head, states: torch.Tensor, targets: torch.Tensor, chunk: int) -> Likelihood:
    """Ask a model for the log-probabilities of given tokens.

    Args:
        head: of the model.
        states: before each token, shape (n, hidden), of the head's dtype.
        targets: the tokens, shape (n,), int64.
        chunk: tokens at once.

    Returns:
        What it says.
    """
    return _join(_say(head(own), some) for own, some in zip(torch.split(states, chunk), torch.split(targets, chunk), strict=True))


def reverse_kl(
    head: Head, states: torch.Tensor, teacher_head: Head, teacher_states: torch.Tensor, targets: torch.Tensor, chunk: int
) -> tuple[torch.Tensor, Likelihood]:
    """Compute the reverse KL divergence of a student from a teacher: sum over v of p_student(v) (log p_student(v) - log p_teacher(v)).

    Source: MiniLLM (arXiv 2306.08543, section 2.1), per token as in GKD (arXiv 2306.13649, section 3.1, with the student's distribution first).

    Args:
        head: of the student.
        states: of the student before each token, shape (n, hidden), n >= 1, of the head's dtype.
        teacher_head: of the teacher, over as many entries.
        teacher_states: of the teacher, shape (n, its hidden), of its head's dtype.
        targets: the sampled tokens, shape (n,), int64; only `Likelihood` depends on them.
        chunk: tokens at once.

    Returns:
        The divergence, shape (n,), float32, nats, with the student's gradient and none of the teacher's; and what the teacher says of the tokens.
    """

    def part(own: torch.Tensor, other: torch.Tensor, some: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        student = head(own)
        with torch.no_grad():
            teacher = teacher_head(other)
            said = _say(teacher, some)
        return (student.exp() * (student - teacher)).sum(dim=-1), said.logps, said.likeliest

    pieces = list(zip(*(torch.split(one, chunk) for one in (states, teacher_states, targets)), strict=True))
    if len(pieces) == 1 or not torch.is_grad_enabled():
        found = [part(*piece) for piece in pieces]
    else:
        found = [checkpoint(part, *piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces]
    return torch.cat([divergence for divergence, *_ in found]), _join((logps, likeliest) for _, logps, likeliest in found)
