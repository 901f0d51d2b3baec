"""The loss of one forward pass: TRL's formulas at token level, ratios per step, weights for the sampler's mismatch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_training import make_trainer, random_batch, relative_error, window_gradients
from trl import GRPOTrainer

from agent_gym.trainers.losses import ratio_weights, segment_reduce, token_losses

SEGMENTS = torch.tensor([[0, 1, 1, 0, 2, 0], [1, 1, 1, 1, 0, 0]])


def random_inputs(seed: int, spread: float = 0.5) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    logps = -torch.rand(2, 6, generator=generator, dtype=torch.float64)
    old = logps + spread * torch.randn(2, 6, generator=generator, dtype=torch.float64)
    advantages = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    return logps.requires_grad_(), old, advantages, SEGMENTS > 0


def test_segments_are_reduced_action_by_action() -> None:
    values = torch.arange(12, dtype=torch.float64).view(2, 6)
    assert segment_reduce(values, SEGMENTS, mean=False).tolist() == [[0, 3, 3, 0, 4, 0], [30, 30, 30, 30, 0, 0]]
    assert segment_reduce(values, SEGMENTS, mean=True).tolist() == [[0, 1.5, 1.5, 0, 4, 0], [7.5, 7.5, 7.5, 7.5, 0, 0]]


@pytest.mark.parametrize("loss_type", ["dapo", "cispo"])
@pytest.mark.parametrize("level", ["token", "step"])
def test_the_loss_equals_the_formula_written_out(loss_type: str, level: str) -> None:
    logps, old, advantages, mask = random_inputs(0)
    epsilon_high = 0.3 if loss_type == "dapo" else 1.2
    segments = SEGMENTS if level == "step" else None
    terms = token_losses(logps, old, advantages, mask, loss_type=loss_type, epsilon_low=0.2, epsilon_high=epsilon_high, segments=segments)
    clipped = 0
    for row in range(2):
        for place in range(6):
            if not mask[row, place]:
                assert terms.loss[row, place] == 0
                continue
            same = [k for k in range(6) if SEGMENTS[row, k] == SEGMENTS[row, place]] if level == "step" else [place]
            ratio = math.exp(sum(float(logps[row, k].detach() - old[row, k]) for k in same) / len(same))
            advantage = float(advantages[row, place])
            if loss_type == "cispo":
                expected = -min(ratio, 1.2) * advantage * float(logps[row, place].detach())
                clipped += ratio > 1.2
            else:
                expected = -min(ratio * advantage, min(max(ratio, 0.8), 1.3) * advantage)
                clipped += not 0.8 <= ratio <= 1.3
            assert float(terms.loss[row, place].detach()) == pytest.approx(expected, rel=1e-12)
    assert clipped


def test_a_step_ratio_spreads_its_gradient_evenly_over_the_action() -> None:
    logps, old, _, mask = random_inputs(1, spread=0.05)
    terms = token_losses(logps, old, torch.ones_like(old), mask, loss_type="dapo", epsilon_low=0.2, epsilon_high=0.2, segments=SEGMENTS)
    terms.loss.sum().backward()
    assert logps.grad is not None
    assert torch.allclose(logps.grad[mask], -terms.ratio[mask])
    assert not logps.grad[~mask].any()
    assert logps.grad[0, 1] == logps.grad[0, 2] != logps.grad[0, 4]


def test_environment_tokens_get_no_gradient_even_when_their_numbers_are_hopeless() -> None:
    logps, old, advantages, mask = random_inputs(2)
    old = torch.where(mask, old, torch.full_like(old, -1e9))
    advantages = torch.where(mask, advantages, torch.full_like(advantages, float("nan")))
    terms = token_losses(logps, old, advantages, mask, loss_type="dapo", epsilon_low=0.2, epsilon_high=0.2)
    terms.loss.sum().backward()
    assert logps.grad is not None
    assert torch.isfinite(terms.loss).all()
    assert torch.isfinite(logps.grad).all()
    assert not logps.grad[~mask].any()


def test_a_gigantic_ratio_gives_no_nan() -> None:
    logps = torch.zeros(1, 1, requires_grad=True)
    for advantage in (-1.0, 0.0, 1.0):
        for kind in ("dapo", "cispo"):
            mask = torch.ones(1, 1, dtype=torch.bool)
            terms = token_losses(
                logps, torch.full((1, 1), -500.0), torch.tensor([[advantage]]), mask, loss_type=kind, epsilon_low=0.2, epsilon_high=5.0
            )
            (grad,) = torch.autograd.grad(terms.loss.sum(), logps)
            assert torch.isfinite(terms.loss).all()
            assert torch.isfinite(grad).all()


def test_an_unknown_loss_is_refused() -> None:
    logps, old, advantages, mask = random_inputs(3)
    with pytest.raises(ValueError, match="dapo or cispo"):
        token_losses(logps, old, advantages, mask, loss_type="grpo", epsilon_low=0.2, epsilon_high=0.2)


def test_correction_weights_are_truncated_ratios_and_unknown_ones_count_as_one() -> None:
    old = torch.log(torch.tensor([[0.5, 0.4, 0.9, 0.5, 0.5, 0.5]]))
    sampled = torch.log(torch.tensor([[0.5, 0.1, 0.3, 0.5, float("nan"), 0.5]]))
    segments = torch.tensor([[0, 1, 1, 0, 2, 0]])
    mask = segments > 0
    weights, ratios, differences = ratio_weights(old, sampled, mask, segments, "token_truncate", 2.0)
    assert weights.tolist()[0] == pytest.approx([1, 2, 2, 1, 1, 1])
    assert ratios[0, 1].item() == pytest.approx(4)
    assert ratios[0, 2].item() == pytest.approx(3)
    assert torch.isnan(ratios[0, [0, 3, 4, 5]]).all()
    assert differences[0, 2].item() == pytest.approx(math.log(3), rel=1e-5)
    weights, ratios, _ = ratio_weights(old, sampled, mask, segments, "step_truncate", 20.0)
    assert weights.tolist()[0] == pytest.approx([1, 12, 12, 1, 1, 1])
    weights, _, _ = ratio_weights(old, sampled, mask, segments, "none", 2.0)
    assert torch.equal(weights, torch.ones_like(weights))


def test_an_infinite_log_probability_of_the_sampler_counts_as_unknown() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    sampled = torch.tensor([[-math.inf, math.nan]])
    weights, _, _ = ratio_weights(torch.tensor([[-1.0, -1.0]]), sampled, mask, mask.long(), "token_truncate", 2.0)
    assert weights.tolist() == [[1.0, 1.0]]


SETTINGS: list[dict[str, Any]] = [
    {"loss_type": "dapo"},
    {"loss_type": "dapo", "epsilon": 0.1, "epsilon_high": 0.3, "delta": 1.5},
    {"loss_type": "cispo", "epsilon_high": 1.1},
    {"loss_type": "dapo", "beta": 0.1},
    {"loss_type": "cispo", "epsilon_high": 1.1, "beta": 0.1, "use_bias_correction_kl": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda item: "-".join(f"{key}={value}" for key, value in item.items()))
def test_token_level_is_trls_own_loss(settings: dict[str, Any], tmp_path: Path) -> None:
    """Off-policy: the old log-probabilities are moved, so that clipping happens."""
    from toy_training import make_model

    model = make_model()
    model.save_pretrained(tmp_path / "model")
    trainer = make_trainer(
        tmp_path, random_batch(3, context="mixed"), str(tmp_path / "model"), model_init_kwargs={"dtype": "auto"}, **settings
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    steps = trainer._generate_and_score_completions([{"seed": 0}] * 8)
    (sub,) = steps[0]
    generator = torch.Generator().manual_seed(1)
    logps, _, _ = trainer._score(trainer.model, sub)
    sub["old_per_token_logps"] = logps.detach() + 0.3 * torch.randn(logps.shape, generator=generator, dtype=logps.dtype)
    if trainer.beta:
        sub["ref_per_token_logps"] = logps.detach() + 0.2 * torch.randn(logps.shape, generator=generator, dtype=logps.dtype)
    losses, gradients = [], []
    for compute in (lambda: trainer.compute_loss(trainer.model, [sub]), lambda: GRPOTrainer._compute_loss(trainer, trainer.model, sub)):
        trainer.model.zero_grad()
        loss = compute()
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append(torch.cat([p.grad.reshape(-1) for p in trainer.model.parameters()]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert relative_error(gradients[0], gradients[1]) < 1e-6
    figures = trainer._metrics["train"]
    names = (
        ["entropy"] + (["kl"] if trainer.beta else []) + (["cispo_clip_ratio"] if trainer.loss_type == "cispo" else ["clip_ratio/low_mean"])
    )
    for name in names:
        assert figures[name][-2] == pytest.approx(figures[name][-1], rel=1e-5), name
    clip = "cispo_clip_ratio" if trainer.loss_type == "cispo" else "clip_ratio/region_mean"
    assert figures[clip][-1] > 0


def test_the_entropy_bonus_does_not_depend_on_how_rows_are_packed(tmp_path: Path) -> None:
    batch = random_batch(4, context="mixed")
    ways: list[dict[str, Any]] = [{}, {"merge_prefix": False}, {"max_tokens_per_microbatch": 20}]
    gradients = [window_gradients(make_trainer(tmp_path, batch, entropy_coef=0.1, **way))[0] for way in ways]
    assert relative_error(gradients[0], window_gradients(make_trainer(tmp_path, batch))[0]) > 1e-3
    for other in gradients[1:]:
        assert relative_error(other, gradients[0]) < 1e-6
