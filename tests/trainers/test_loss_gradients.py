"""The gradient of each policy loss against the same loss in plain PyTorch, one token at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_training import gradient, make_model, make_trainer, random_batch, relative_error, window_gradients

from agent_gym.trainers.advantages import get_advantage
from agent_gym.trainers.losses import ratio_weights, token_losses

SEGMENTS = torch.tensor([[0, 1, 1, 0, 2, 0], [1, 1, 1, 1, 0, 0]])
IDS = torch.tensor([[3, 1, 4, 1, 5, 2], [2, 0, 5, 3, 1, 4]])


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits (2, 6, 7) with gradient, and for each token an old log-probability, the sampler's, and an advantage."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 6, 7, generator=generator, dtype=torch.float64)
    now = torch.log_softmax(logits, dim=-1).gather(2, IDS[..., None])[..., 0]
    old = now + 0.5 * torch.randn(2, 6, generator=generator, dtype=torch.float64)
    sampled = old + 0.5 * torch.randn(2, 6, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), old, sampled, torch.randn(2, 6, generator=generator, dtype=torch.float64)


def actions() -> list[list[tuple[int, int]]]:
    """The tokens of each action."""
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in range(2):
        for place in range(6):
            if SEGMENTS[row, place]:
                found.setdefault((row, int(SEGMENTS[row, place])), []).append((row, place))
    return list(found.values())


SETTINGS: list[dict[str, Any]] = [
    {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.2},
    {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28},  # the higher upper bound of DAPO
    {"loss_type": "dapo", "epsilon_low": 0.1, "epsilon_high": 0.3, "delta": 1.4},
    {"loss_type": "cispo", "epsilon_low": 0.2, "epsilon_high": 1.2},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["ppo", "clip-higher", "two-sided", "cispo"])
@pytest.mark.parametrize("level", ["token", "step"])
@pytest.mark.parametrize("correction", ["none", "token_truncate", "step_truncate"])
def test_the_gradient_is_that_of_the_loss_in_plain_pytorch(settings: dict[str, Any], level: str, correction: str) -> None:
    logits, old, sampled, advantages = inputs(0)
    logps = torch.log_softmax(logits, dim=-1).gather(2, IDS[..., None])[..., 0]
    mask = SEGMENTS > 0
    weights, _, _ = ratio_weights(old, sampled, mask, SEGMENTS, correction, 1.3)
    terms = token_losses(logps, old, advantages * weights, mask, segments=SEGMENTS if level == "step" else None, **settings)
    (got,) = torch.autograd.grad(terms.loss.sum(), logits)

    total = torch.zeros((), dtype=torch.float64)
    clipped = capped = 0
    for tokens in actions():
        rows, places = zip(*tokens, strict=True)
        own = torch.stack([torch.log_softmax(logits[row, place], dim=0)[IDS[row, place]] for row, place in tokens])
        before, mu = old[rows, places], sampled[rows, places]
        gap = before - mu
        weight = {
            "none": torch.ones(len(tokens), dtype=torch.float64),
            "token_truncate": torch.exp(gap).clamp(max=1.3),
            "step_truncate": torch.exp(gap.sum()).clamp(max=1.3).expand(len(tokens)),
        }[correction]
        capped += int((weight == 1.3).sum())
        ratio = torch.exp(own - before)
        if level == "step":  # the geometric mean of the action, whose gradient goes through the token's own log-probability
            ratio = torch.exp((own - before).mean().detach()) * torch.exp(own - own.detach())
        for number, advantage in enumerate(advantages[rows, places] * weight):
            r, high = ratio[number], settings["epsilon_high"]
            if settings["loss_type"] == "cispo":
                clipped += bool(r > high)
                total = total - torch.clamp(r.detach(), max=high) * advantage * own[number]
                continue
            bounded = torch.clamp(r, 1 - settings["epsilon_low"], 1 + high)
            clipped += bool(bounded != r)
            outer = torch.clamp(r, max=settings["delta"]) if "delta" in settings else r
            total = total - torch.min(outer * advantage, bounded * advantage)
    (expected,) = torch.autograd.grad(total, logits)
    assert clipped
    assert capped or correction == "none"
    assert torch.allclose(got, expected, rtol=1e-10, atol=1e-12)
    assert not got[~mask].any()


def test_the_higher_upper_bound_lets_likelier_tokens_learn_and_only_them() -> None:
    ratios = torch.tensor([[1.25, 1.25, 0.75, 0.75, 1.35, 1.35]], dtype=torch.float64)
    logps = torch.log(ratios).requires_grad_()
    advantages = torch.tensor([[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]], dtype=torch.float64)
    moved = {}
    for high in (0.2, 0.3):
        mask = torch.ones(1, 6, dtype=torch.bool)
        terms = token_losses(logps, torch.zeros_like(ratios), advantages, mask, loss_type="dapo", epsilon_low=0.2, epsilon_high=high)
        (grad,) = torch.autograd.grad(terms.loss.sum(), logps)
        moved[high] = (grad != 0).tolist()[0]
    assert moved[0.2] == [False, True, True, False, False, True]
    assert moved[0.3] == [True, True, True, False, False, True]


WHOLE: list[dict[str, Any]] = [
    {"beta": 0.3},
    {"beta": 0.3, "use_bias_correction_kl": False},
    {"entropy_coef": 0.2},
    {"beta": 0.3, "entropy_coef": 0.2, "mask_truncated_steps": True, "advantage": "gigpo", "advantage_kwargs": {"step_weight": 0.5}},
]


@pytest.mark.parametrize("settings", WHOLE, ids=["kl", "kl-plain", "entropy", "all"])
def test_kl_and_entropy_have_the_gradient_of_plain_pytorch(settings: dict[str, Any], tmp_path: Path) -> None:
    reference = make_model()
    reference.save_pretrained(tmp_path / "model")
    batch = random_batch(21, context="mixed")
    trainer = make_trainer(tmp_path, batch, str(tmp_path / "model"), model_init_kwargs={"dtype": "auto"}, **settings)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in trainer.model.parameters():  # away from the reference, so that there is a divergence
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    (got,) = window_gradients(trainer)

    model = trainer.model
    values = get_advantage(settings.get("advantage", "grpo"))(batch, **settings.get("advantage_kwargs", {}))
    total, count = torch.zeros((), dtype=torch.float64), 0
    for item, row in zip(batch, values, strict=True):
        for step, advantage in zip(item.steps, row, strict=True):
            if settings.get("mask_truncated_steps") and step.finish_reason == "length":
                continue
            ids = torch.tensor(np.concatenate([step.observation_ids, step.action_ids]))[None]
            start, action = len(step.observation_ids), torch.tensor(np.array(step.action_ids))[:, None]
            every = torch.log_softmax(model(input_ids=ids).logits[0, start - 1 : -1], dim=-1)
            logps = every.gather(1, action)[:, 0]
            with torch.no_grad():
                given = torch.log_softmax(reference(input_ids=ids).logits[0, start - 1 : -1], dim=-1).gather(1, action)[:, 0]
            loss = -float(advantage) * torch.exp(logps - logps.detach())
            divergence = torch.exp(given - logps) - (given - logps) - 1.0
            if settings.get("use_bias_correction_kl", True):
                divergence = divergence * torch.exp(logps - logps.detach())
            loss = loss + settings.get("beta", 0.0) * divergence
            loss = loss + settings.get("entropy_coef", 0.0) * (every.exp() * every).sum(dim=-1)
            total, count = total + loss.sum(), count + len(action)
    model.zero_grad()
    (total / count).backward()
    assert relative_error(got, gradient(model)) < 1e-6
