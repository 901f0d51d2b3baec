"""The critic: a backbone with a value head, and the loss that it is trained by. Plain torch; it knows nothing of TRL.

It is a model of its own beside the policy. So the policy's files, its adapters and whatever is sent to an engine hold the policy and nothing else,
and neither's gradient reaches the other.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from agent_gym.chat import load_tokenizer, tokenizer_fingerprint
from agent_gym.trainers.second_model import has_tokenizer, plain_model
from agent_gym.trainers.values import ValueRow

__all__ = ["Critic", "ValueLoss", "collate_values", "make_critic", "value_loss"]

_PADDING_ID = 0  # never attended to


class Critic(nn.Module):
    """A backbone of transformers and one linear unit on its last hidden state.

    The unit begins with zeros, so an untrained critic says 0 everywhere and the first advantages are those of the rewards alone. It computes in
    float32 at least.

    Args:
        backbone: a model of transformers without a head of its own (`model.base_model`), causal, so that a value knows nothing of what comes later.
    """

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone
        weight = next(parameter for parameter in backbone.parameters() if parameter.is_floating_point())
        dtype = torch.promote_types(weight.dtype, torch.float32)
        self.head = nn.Linear(int(backbone.config.get_text_config().hidden_size), 1, device=weight.device, dtype=dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, ids: torch.Tensor, attention: torch.Tensor, lines: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Value states.

        Args:
            ids: shape (B, T), int64, right-padded.
            attention: shape (B, T), int64, 1 at real tokens.
            lines: shape (n,), int64: the row of each state.
            columns: shape (n,), int64: the position of its last token.

        Returns:
            Shape (n,), float32 (or wider where the backbone is).
        """
        hidden = self.backbone(input_ids=ids, attention_mask=attention, use_cache=False).last_hidden_state[lines, columns]
        with torch.autocast(hidden.device.type, enabled=False):
            values: torch.Tensor = self.head(hidden.to(self.head.weight.dtype))[:, 0]
        return values


def make_critic(given: Any, policy: Any, *, fingerprint: str | None = None) -> Critic:
    """Make the critic of a run.

    A copy of the policy keeps what is frozen in it frozen, except under adapters: there the copy has them merged, and is trained whole.

    Args:
        given: None for a copy of the policy's backbone; a `Critic`; a model of transformers, whose backbone is taken as it is (a PEFT model's
            adapters stay the only part that is trained); or the folder or name of one.
        policy: the causal language model, or the PEFT model around it.
        fingerprint: of the policy's tokenizer; a folder or name that brings another one is refused.

    Returns:
        The critic.

    Raises:
        TypeError: for anything else.
        ValueError: for a model that has fewer embedding rows than the policy, another tokenizer, or weights that are not here to be copied.
    """
    if given is None:
        return Critic(_copied_backbone(policy))
    if isinstance(given, (str, Path)):
        given = _opened(str(given), policy, fingerprint)
    if isinstance(given, Critic):
        critic = given
    elif isinstance(given, nn.Module) and hasattr(plain_model(given), "base_model"):
        critic = Critic(plain_model(given).base_model)
    else:
        raise TypeError(
            f"critic= is a {type(given).__name__}; give a model of transformers, its folder or name, an agent_gym.trainers.critic.Critic, or None for a "
            "copy of the policy"
        )
    rows, needed = (int(model.get_input_embeddings().weight.shape[0]) for model in (critic.backbone, policy))
    if rows < needed:
        raise ValueError(
            f"the critic's embedding has {rows} rows, the policy's {needed}; a critic reads the ids that the policy reads and writes"
        )
    return critic


def _copied_backbone(policy: Any) -> Any:
    if any(parameter.is_meta or not parameter.numel() for parameter in policy.parameters()):
        raise ValueError(
            "the policy's weights are not whole in this process (DeepSpeed ZeRO-3, or FSDP that loads on one rank), so the critic cannot be a copy of "
            "them; give one as critic= or critic_model, or choose another sharding"
        )
    if not hasattr(policy, "get_base_model"):
        return copy.deepcopy(policy.base_model)
    merged = copy.deepcopy(policy).merge_and_unload().base_model
    for parameter in merged.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    return merged


def _opened(name: str, policy: Any, fingerprint: str | None) -> Any:
    from transformers import AutoModel

    if fingerprint is not None and has_tokenizer(name):
        own = tokenizer_fingerprint(load_tokenizer(name))
        if own != fingerprint:
            raise ValueError(
                f"the critic {name} has tokenizer {own}, the policy {fingerprint}; the ids of the policy would mean other tokens to it. Give a model that "
                "shares the policy's tokenizer"
            )
    return AutoModel.from_pretrained(name, dtype=next(policy.parameters()).dtype)


def collate_values(
    rows: Sequence[ValueRow], device: torch.device | str, multiple: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make the tensors of one forward pass of a critic.

    Args:
        rows: at least one.
        device: where the tensors go.
        multiple: pad the length to a multiple of this.

    Returns:
        The arguments of `Critic.forward`, of its shapes, all int64; the states are those of the rows in order.
    """
    length = max(len(row) for row in rows)
    if multiple:
        length = -(-length // multiple) * multiple
    ids = np.full((len(rows), length), _PADDING_ID, dtype=np.int64)
    attention = np.zeros((len(rows), length), dtype=np.int64)
    columns: list[int] = []
    for line, row in enumerate(rows):
        ids[line, : len(row)] = row.ids
        attention[line, : len(row)] = 1
        columns += [position for place in row.places for position in range(place.start, place.end)]
    lines = np.repeat(np.arange(len(rows), dtype=np.int64), [row.num_values for row in rows])
    arrays = (ids, attention, lines, np.asarray(columns, dtype=np.int64))
    one, two, three, four = (torch.from_numpy(array).to(device) for array in arrays)
    return one, two, three, four


class ValueLoss(NamedTuple):
    """Per-state results, each of shape (n,).

    Attributes:
        loss: shape (n,), of the values' dtype; carries the gradient.
        clipped: shape (n,), bool: the clipped branch is the larger one, so the state has no gradient or one that leads back.
    """

    loss: torch.Tensor
    clipped: torch.Tensor


def value_loss(values: torch.Tensor, old: torch.Tensor, targets: torch.Tensor, clip: float | None) -> ValueLoss:
    """Compute PPO's value loss: max((V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2) / 2.

    Source: the implementation of arXiv 1707.06347 (as in arXiv 2005.12729, section 3).

    Args:
        values: V, shape (n,), float32, with gradient.
        old: V_old, those of the critic that the batch was judged by, shape (n,), float32.
        targets: R, shape (n,), float32.
        clip: how far a value may move from V_old before it stops being trained; None for (V - R)^2 / 2.

    Returns:
        The loss of each state.
    """
    plain = (values - targets).square()
    if clip is None:
        return ValueLoss(0.5 * plain, torch.zeros_like(plain, dtype=torch.bool))
    moved = (values - old).detach()
    held = (old + moved.clamp(-clip, clip) - targets).square()
    clipped = (moved.abs() > clip) & (held > plain.detach())  # within reach the two differ by a rounding alone
    return ValueLoss(0.5 * torch.where(clipped, held, plain), clipped)
