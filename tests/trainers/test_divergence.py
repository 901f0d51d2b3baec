"""Heads of models that scale or cap their logits, and a divergence in pieces."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from toy_training import make_model
from transformers import CohereConfig, CohereForCausalLM, Gemma2Config, Gemma2ForCausalLM, GraniteConfig, GraniteForCausalLM

from agent_gym.trainers.divergence import Head, likelihood, reverse_kl

SHAPE: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1, "initializer_range": 0.5,
}  # fmt: skip


def zoo(family: str) -> Any:
    torch.manual_seed(0)
    if family == "gemma2":
        model: Any = Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=2.0))
    elif family == "cohere":
        model = CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.25))
    elif family == "granite":
        model = GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=3.0))
    else:
        model = make_model(family)
    return model.double().eval()


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma2", "cohere", "granite"])
def test_a_head_gives_the_log_probabilities_of_the_model_itself(family: str) -> None:
    model = zoo(family)
    ids = torch.arange(2, 14)[None]
    with torch.no_grad():
        wanted = torch.log_softmax(model(input_ids=ids).logits[0] / 0.7, dim=-1)
        states = model.base_model(input_ids=ids).last_hidden_state[0]
        got = Head(model, 0.7)(states)
        cut = Head(model, 0.7, rows=30)(states)
    assert got.dtype == torch.float64 and torch.allclose(got, wanted, atol=1e-12)
    assert torch.allclose(cut, torch.log_softmax(wanted[:, :30], dim=-1), atol=1e-12)


def test_weights_of_sixteen_bits_give_distributions_of_thirty_two() -> None:
    model = make_model(dtype=torch.bfloat16)
    said = Head(model)(torch.randn(3, 16, dtype=torch.bfloat16))
    assert said.dtype == torch.float32 and torch.allclose(said.exp().sum(-1), torch.ones(3), atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_pieces_have_the_value_and_the_gradient_of_the_whole(chunk: int) -> None:
    student, teacher = make_model(), make_model(seed=1)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(7, 16, dtype=torch.float64, generator=generator, requires_grad=True)
    other = torch.randn(7, 16, dtype=torch.float64, generator=generator)
    targets = torch.arange(7)
    own, theirs = Head(student)(states), Head(teacher)(other).detach()
    wanted = torch.nn.functional.kl_div(theirs, own, log_target=True, reduction="none").sum(-1)
    (gradient,) = torch.autograd.grad(wanted.square().sum(), states)
    divergence, said = reverse_kl(Head(student), states, Head(teacher), other, targets, chunk)
    (got,) = torch.autograd.grad(divergence.square().sum(), states)
    assert torch.allclose(divergence, wanted, atol=1e-12) and torch.allclose(got, gradient, atol=1e-12)
    asked = likelihood(Head(teacher), other, targets, chunk)
    assert torch.allclose(said.logps, asked.logps, atol=1e-12) and torch.equal(said.likeliest, asked.likeliest)
    assert torch.allclose(said.logps, theirs[torch.arange(7), targets], atol=1e-12)
    assert torch.equal(said.likeliest, theirs.argmax(-1) == targets)


def test_no_more_than_a_chunk_of_distributions_is_kept_for_the_backward_pass() -> None:
    """What autograd keeps grows with the hidden states, and not with the vocabulary."""
    model = make_model(vocab=4000)
    kept: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel() if tensor.shape != model.get_output_embeddings().weight.shape else 0)
        return tensor

    def most(chunk: int) -> int:
        kept.clear()
        states = torch.randn(64, 16, dtype=torch.float64, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            reverse_kl(Head(model), states, Head(model), states.detach(), torch.zeros(64, dtype=torch.long), chunk)
        return sum(kept)

    assert most(8) < 64 * 4000 < most(64)
