"""From rows to the tensors of one forward pass, in the keys and shapes that TRL's GRPO loss reads.

The prompt part is as long as the shortest first prompt of the sub-batch, so nothing is padded on the left: every row is its ids and then
padding. Everything behind it is the completion part, in which `tool_mask` marks the tokens that the model sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from agent_gym.trainers.rows import DUMMY, Row

__all__ = ["SubBatch", "collate"]

SubBatch: TypeAlias = dict[str, Any]
"""`prompt_ids`, `prompt_mask` (B, P); `completion_ids`, `completion_mask`, `tool_mask`, `advantages`, `segments`, `sampling_per_token_logps`
(B, C); `replayed` (B,), bool; `num_items_in_batch` (); `has_signal` bool; and, where the trainer computes them, `old_per_token_logps`, `ref_per_token_logps` (B, C)."""

_PADDING_ID = 0  # never attended to and never scored; a real pad id can lie outside the embedding


def collate(rows: Sequence[Row], indices: Sequence[int], device: torch.device | str, multiple: int | None = None) -> SubBatch:
    """Make the tensors of one sub-batch of one rank.

    Args:
        rows: the rows that `indices` point into.
        indices: row numbers; `DUMMY` makes a row without any trained token.
        device: where the tensors go.
        multiple: pad the whole length to a multiple of this.

    Returns:
        The tensors, without `num_items_in_batch`. `segments` numbers the actions of a row from 1, 0 elsewhere; unknown log-probabilities
        of the sampler are NaN.
    """
    chosen = [None if index == DUMMY else rows[index] for index in indices]
    present = [row for row in chosen if row is not None]
    prompt = min((row.segments[0].start for row in present), default=1)
    length = max((len(row) for row in present), default=prompt + 1)
    if multiple:
        length = -(-length // multiple) * multiple
    shape = (len(chosen), length)
    ids = np.full(shape, _PADDING_ID, dtype=np.int64)
    attention = np.zeros(shape, dtype=np.int64)
    mask = np.zeros(shape, dtype=np.int64)
    advantages = np.zeros(shape, dtype=np.float32)
    sampled = np.zeros(shape, dtype=np.float32)
    segments = np.zeros(shape, dtype=np.int64)
    for line, row in enumerate(chosen):
        if row is None:
            attention[line, : prompt + 1] = 1
            continue
        size = len(row)
        ids[line, :size] = row.ids
        attention[line, :size] = 1
        mask[line, :size] = row.mask
        advantages[line, :size] = row.advantages
        sampled[line, :size] = row.logprobs
        for number, segment in enumerate(row.segments, start=1):
            segments[line, segment.start : segment.end] = number
    tensors = {name: torch.from_numpy(array).to(device) for name, array in (("ids", ids), ("attention", attention))}
    batch: SubBatch = {
        "prompt_ids": tensors["ids"][:, :prompt],
        "prompt_mask": tensors["attention"][:, :prompt],
        "completion_ids": tensors["ids"][:, prompt:],
        "completion_mask": tensors["attention"][:, prompt:],
    }
    rest = (("tool_mask", mask), ("advantages", advantages), ("segments", segments), ("sampling_per_token_logps", sampled))
    for name, array in rest:
        batch[name] = torch.from_numpy(array[:, prompt:]).to(device)
    batch["replayed"] = torch.tensor([row is not None and row.replayed for row in chosen], dtype=torch.bool, device=device)
    batch["has_signal"] = any(row.has_signal for row in present)
    return batch
