"""Log-probabilities of action tokens alone.

Most tokens of an agent's row are prompts and tool results, whose log-probabilities nobody needs; projecting them onto a large vocabulary is
a large part of an update. TRL's fused head scores every token of the completion part (and without Triton every token). Here the hidden
states of the scored positions are picked between the backbone and the head, by a forward hook that lives for one call, so that the head,
its kernel, its scaling and its temperature stay TRL's and only see what is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

__all__ = ["hidden_states", "score_tokens"]


def score_tokens(
    model: Any,
    causal: Any,
    ids: torch.Tensor,
    attention: torch.Tensor,
    scored: torch.Tensor,
    *,
    router_logits: bool = False,
    autocast: Any = None,
    reader: Callable[[torch.Tensor], None] | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Score the last tokens of right-padded rows, only where asked.

    Args:
        model: what is called: the causal model, or what wraps it (DDP, PEFT, ...).
        causal: the causal language model inside, which TRL gave a fused head.
        ids: shape (B, T), int64.
        attention: shape (B, T), int64, 1 at real tokens.
        scored: shape (B, C), bool, for the last C < T tokens; without any True the result is a zero that is connected to the model.
        router_logits: ask a mixture-of-experts model for its load-balancing loss.
        autocast: context manager of the forward pass.
        reader: called inside of the forward pass with the hidden states that the head reads, shape (n, hidden), n >= 1: those of the scored tokens
            row by row, or one of no meaning where none is scored.

    Returns:
        Log-probabilities, shape (B, C), float32, entropies of the same shape or None where the head computes none, and the load-balancing loss or
        None. Both are 0 where `scored` is False.
    """
    scored, blank = _one_at_least(scored)
    width = scored.shape[1]
    targets = ids[:, -width:][scored]

    def pick(module: Any, arguments: Any, output: Any) -> Any:
        hidden = output.last_hidden_state[:, -width - 1 : -1][scored]  # the position before a token predicts it
        if reader is not None:
            reader(hidden)
        output.last_hidden_state = torch.cat([hidden, hidden[-1:]])[None]  # TRL drops the last position, which predicts nothing
        return output

    handle = causal.base_model.register_forward_hook(pick)
    try:
        with nullcontext() if autocast is None else autocast:
            extra = {"output_router_logits": True} if router_logits else {}
            labels = torch.cat([targets[:1], targets])[None]  # and the first label, which nothing predicts
            outputs = model(input_ids=ids, attention_mask=attention, labels=labels, fused_lm_head=True, **extra)
    finally:
        handle.remove()

    def spread(values: torch.Tensor | None) -> torch.Tensor | None:
        if values is None:
            return None
        result = values.new_zeros(scored.shape).masked_scatter(scored, values[0])
        return result * 0.0 if blank else result

    logps = spread(outputs.log_probs)
    assert logps is not None  # the fused head always gives them
    return logps, spread(outputs.entropy), outputs.aux_loss if router_logits else None


def hidden_states(causal: Any, ids: torch.Tensor, attention: torch.Tensor, scored: torch.Tensor) -> torch.Tensor:
    """Run a backbone alone, without its head, over right-padded rows.

    Args:
        causal: a causal language model of transformers, without wrappers.
        ids: as for `score_tokens`, shape (B, T), int64.
        attention: as for `score_tokens`, shape (B, T), int64.
        scored: as for `score_tokens`, shape (B, C), bool.

    Returns:
        What a reader of `score_tokens` gets, shape (n, hidden), of the model's dtype.
    """
    chosen, _ = _one_at_least(scored)
    states: torch.Tensor = causal.base_model(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state
    return states[:, -scored.shape[1] - 1 : -1][chosen]


def _one_at_least(scored: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """The positions to be read: the first one where none is asked for, so that every rank runs its forward pass; and whether that is so."""
    if bool(scored.any()):
        return scored, False
    chosen = scored.clone()
    chosen[0, 0] = True
    return chosen, True
