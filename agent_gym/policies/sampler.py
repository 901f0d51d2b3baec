"""Sampling by inverse distribution function on logits, with the log-probabilities of the distribution that was sampled."""

from __future__ import annotations

import torch

__all__ = ["filter_logits", "sample_tokens"]


def filter_logits(scaled: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Set the logits of cut tokens to minus infinity; the likeliest token always stays.

    Args:
        scaled: logits already divided by the temperature, shape (batch, vocabulary), float32.
        top_k: shape (batch,), int64, 0 keeps all.
        top_p: shape (batch,), float32, 1 keeps all.
        min_p: shape (batch,), float32, 0 keeps all.

    Returns:
        The filtered logits, same shape and dtype.
    """
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)
    rank = torch.arange(scaled.shape[-1], device=scaled.device)
    limit = torch.where(top_k > 0, top_k, scaled.shape[-1])
    before = probabilities.cumsum(dim=-1, dtype=torch.float64) - probabilities
    keep = (
        (rank < limit[:, None])
        & ((before < top_p[:, None]) | (top_p >= 1.0)[:, None])
        & (probabilities >= min_p[:, None] * probabilities[:, :1])
    )
    keep[:, 0] = True
    cut = torch.zeros_like(keep).scatter_(1, order, keep)
    return scaled.masked_fill(~cut, float("-inf"))


def sample_tokens(scaled: torch.Tensor, uniform: torch.Tensor, greedy: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw one token per row.

    Args:
        scaled: logits divided by the temperature, shape (batch, vocabulary), float32.
        uniform: one number in [0, 1) per row, shape (batch,), float64.
        greedy: rows that take the likeliest token instead, shape (batch,), bool; None when there are none.

    Returns:
        The tokens, shape (batch,), int64, and their log-probabilities under softmax(scaled), shape (batch,), float32.
    """
    norm = scaled.logsumexp(dim=-1, keepdim=True)
    cumulative = (scaled - norm).exp_().cumsum(dim=-1, dtype=torch.float64)
    target = uniform[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, target, right=True).clamp_(max=scaled.shape[-1] - 1)
    if greedy is not None:
        tokens = torch.where(greedy[:, None], scaled.argmax(dim=-1, keepdim=True), tokens)
    return tokens[:, 0], (scaled.gather(1, tokens) - norm)[:, 0]
