"""The policy loss of one forward pass: DAPO's and CISPO's, with importance ratios per token or per step. Pure torch functions.

Both are sums over trained tokens, divided later by the number of trained tokens of the optimiser window, so a token counts the same in
whatever row, sub-batch or rank it stands. Formulas: DAPO (arXiv 2503.14476, eq. 8 and 12), CISPO (arXiv 2506.13585, eq. 4 and 5); at token
level they are TRL's, to the sign (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["LossFigures", "LossTerms", "ratio_weights", "segment_reduce", "token_losses"]

_MAX_LOG_RATIO = 60.0  # a ratio of 1e26 is as good as infinite, and infinity times an advantage of 0 would be NaN


def segment_reduce(values: torch.Tensor, segments: torch.Tensor, mean: bool) -> torch.Tensor:
    """Sum or average over each action, and give every token of the action the result.

    Args:
        values: shape (B, T), float32.
        segments: shape (B, T), int64: the number of the action inside its row, from 1; 0 outside of actions.
        mean: average instead of sum.

    Returns:
        Shape (B, T), of the values' dtype; 0 outside of actions.
    """
    rows, width = segments.shape[0], int(segments.max().item()) + 1 if segments.numel() else 1
    inside = segments > 0
    zeros = values.new_zeros(rows, width)
    total = zeros.scatter_add(1, segments, torch.where(inside, values, torch.zeros_like(values)))
    if mean:
        count = zeros.scatter_add(1, segments, inside.to(values.dtype))
        total = total / count.clamp(min=1.0)
    return torch.where(inside, total.gather(1, segments), torch.zeros_like(values))


def ratio_weights(
    old: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor, segments: torch.Tensor, mode: str, clip: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weigh tokens for the mismatch between the engine that sampled and the model that is trained (truncated importance sampling).

    Args:
        old: log-probabilities of the trained model before the update, shape (B, T), float32, without gradient.
        sampled: log-probabilities of the sampler, shape (B, T), float32; a NaN or infinite one means unknown and counts as ratio 1.
        mask: shape (B, T), bool, trained tokens.
        segments: as for `segment_reduce`, shape (B, T), int64.
        mode: "none", "token_truncate" or "step_truncate" (the product of an action's ratios, truncated).
        clip: the cap.

    Returns:
        The weights, the raw ratios and the differences of log-probability (NaN where unknown), each of shape (B, T), float32.
    """
    known = mask & torch.isfinite(sampled)
    difference = torch.where(known, old - sampled, torch.zeros_like(old))
    log_ratio = segment_reduce(difference, segments, mean=False) if mode == "step_truncate" else difference
    ratio = torch.exp(log_ratio.clamp(max=_MAX_LOG_RATIO))
    weights = torch.ones_like(ratio) if mode == "none" else ratio.clamp(max=clip)
    nan = torch.full_like(ratio, float("nan"))
    return weights, torch.where(known, ratio, nan), torch.where(known, difference, nan)


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Per-token results, each of shape (B, T), float32.

    Attributes:
        loss: the policy loss, shape (B, T), float32, 0 at tokens that are not trained; carries the gradient.
        ratio: the importance ratio, shape (B, T), float32, without gradient.
        low: shape (B, T), bool: where the ratio was clipped below.
        high: shape (B, T), bool: where it was clipped above.
    """

    loss: torch.Tensor
    ratio: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor


def token_losses(
    logps: torch.Tensor,
    old: torch.Tensor | None,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    loss_type: str,
    epsilon_low: float,
    epsilon_high: float,
    delta: float | None = None,
    segments: torch.Tensor | None = None,
) -> LossTerms:
    """Compute the policy loss of each token.

    With `segments` the ratio is that of the whole action: the geometric mean of its tokens' ratios, in the form that lets each token keep
    its own advantage (GSPO-token, arXiv 2507.18071, eq. 13, with the step as the sequence).

    Args:
        logps: log-probabilities under the model that is trained, shape (B, T), float32, with gradient.
        old: under the model before the update, shape (B, T), float32; None means "the same model", ratio 1.
        advantages: shape (B, T), float32.
        mask: shape (B, T), bool, trained tokens.
        loss_type: "dapo" or "cispo".
        epsilon_low: the ratio is clipped at 1 - epsilon_low (dapo).
        epsilon_high: at 1 + epsilon_high (dapo), or capped at epsilon_high itself (cispo).
        delta: second cap for negative advantages (dapo), None for none.
        segments: as for `segment_reduce`, shape (B, T), int64, for ratios per step; None for ratios per token.

    Returns:
        The terms.

    Raises:
        ValueError: for another loss type.
    """
    zero = torch.zeros_like(logps)
    log_ratio = torch.where(mask, logps - (logps.detach() if old is None else old), zero)
    if segments is not None:
        log_ratio = log_ratio - log_ratio.detach() + segment_reduce(log_ratio.detach(), segments, mean=True)
    ratio = torch.exp(log_ratio.clamp(max=_MAX_LOG_RATIO))
    advantages = torch.where(mask, advantages, torch.zeros_like(advantages))
    if loss_type == "cispo":
        loss = -ratio.clamp(max=epsilon_high).detach() * advantages * torch.where(mask, logps, zero)
        high = (ratio > epsilon_high) & (advantages > 0)
        low = torch.zeros_like(high)
    elif loss_type == "dapo":
        clipped = ratio.clamp(1.0 - epsilon_low, 1.0 + epsilon_high)
        outer = ratio if delta is None else ratio.clamp(max=delta)
        loss = -torch.minimum(outer * advantages, clipped * advantages)
        low = (ratio < 1.0 - epsilon_low) & (advantages < 0)
        high = (ratio > 1.0 + epsilon_high) & (advantages > 0)
    else:
        raise ValueError(f"loss_type={loss_type!r} is unknown; use dapo or cispo")
    return LossTerms(loss, ratio.detach(), low.detach(), high.detach())


class LossFigures:
    """Sums over the sub-batches of an optimiser window; reduced over the ranks once, when the window is done.

    Args:
        device: where the sums are kept.
    """

    _SUMS = ("count", "entropy", "low", "high", "kl", "known", "ratio", "clipped", "difference")

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(len(self._SUMS), dtype=torch.float64, device=device)
        self._maxima = torch.zeros(2, dtype=torch.float64, device=device)

    def add(
        self,
        mask: torch.Tensor,
        entropies: torch.Tensor | None,
        low: torch.Tensor,
        high: torch.Tensor,
        divergence: torch.Tensor | None,
        ratios: torch.Tensor,
        differences: torch.Tensor,
        clip: float,
    ) -> None:
        """Add one sub-batch.

        Args:
            mask: shape (B, T), bool, trained tokens.
            entropies: of the distributions, shape (B, T), float32, in nats; None where the head computes none.
            low: as of `LossTerms`, shape (B, T), bool.
            high: as of `LossTerms`, shape (B, T), bool.
            divergence: from the reference model, shape (B, T), float32, in nats; None without one.
            ratios: as of `ratio_weights`, shape (B, T), float32; NaN where unknown.
            differences: as of `ratio_weights`, shape (B, T), float32; NaN where unknown.
            clip: the cap of `ratio_weights`.
        """
        with torch.no_grad():
            known = torch.isfinite(ratios)
            ratio = torch.where(known, ratios, torch.zeros_like(ratios))
            difference = torch.where(known, differences.abs(), torch.zeros_like(differences))
            entropy = ratio.new_zeros(()) if entropies is None else torch.where(mask, entropies, torch.zeros_like(entropies))
            kl = (
                mask.new_zeros((), dtype=torch.float64)
                if divergence is None
                else torch.where(mask, divergence, torch.zeros_like(divergence)).sum()
            )
            sums = [mask.sum(), entropy.sum(), (low & mask).sum(), (high & mask).sum(), kl]
            sums += [known.sum(), ratio.sum(), (ratio > clip).sum(), difference.sum()]
            self._sums += torch.stack([value.to(torch.float64) for value in sums])
            if mask.numel():
                self._maxima = torch.maximum(self._maxima, torch.stack([ratio.max(), difference.max()]).to(torch.float64))

    def results(self, accelerator: Any, loss_type: str, kl: bool) -> dict[str, float]:
        """Reduce over the ranks and average.

        Args:
            accelerator: of the trainer.
            loss_type: decides which clip figures there are.
            kl: whether there is a reference model.

        Returns:
            Metric name -> value.
        """
        values = dict(zip(self._SUMS, accelerator.reduce(self._sums, reduction="sum").tolist(), strict=True))
        maxima = accelerator.gather(self._maxima).view(-1, 2).max(dim=0).values.tolist()
        results: dict[str, float] = {}
        count, known = values["count"], values["known"]
        if count:
            results["entropy"] = values["entropy"] / count
            if kl:
                results["kl"] = values["kl"] / count
            if loss_type == "cispo":
                results["cispo_clip_ratio"] = values["high"] / count
            else:
                results["clip_ratio/low_mean"] = values["low"] / count
                results["clip_ratio/high_mean"] = values["high"] / count
                results["clip_ratio/region_mean"] = (values["low"] + values["high"]) / count
        if known:
            results["is/mean"] = values["ratio"] / known
            results["is/max"] = maxima[0]
            results["is/clipped_frac"] = values["clipped"] / known
            results["logp_diff/mean"] = values["difference"] / known
            results["logp_diff/max"] = maxima[1]
        return results
