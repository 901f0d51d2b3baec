"""Scoring action tokens alone gives what TRL's own scoring of all tokens gives at them, gradient included, and costs less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from toy_training import VOCAB, gradient, make_model, make_trainer, random_batch, relative_error, rows_for
from transformers import Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel, Qwen3MoeConfig, Qwen3MoeForCausalLM


def build(family: str) -> Any:
    torch.manual_seed(0)
    common = {"vocab_size": VOCAB, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None, "initializer_range": 0.3}
    small = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        **common,
    }
    if family == "gemma2":
        return Gemma2ForCausalLM(Gemma2Config(head_dim=8, final_logit_softcapping=5.0, attn_implementation="eager", **small)).double()
    if family == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=128, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0, **common)
        ).double()
    if family == "moe":
        config = Qwen3MoeConfig(
            head_dim=8,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            decoder_sparse_step=1,
            output_router_logits=True,
            router_aux_loss_coef=0.1,
            **small,
        )
        return Qwen3MoeForCausalLM(config)  # its grouped matrix product knows no float64
    return make_model(family)


def prepared(folder: Path, model: Any, **settings: Any) -> tuple[Any, Any]:
    trainer = make_trainer(folder, random_batch(1, context="append"), model, temperature=0.7, **settings)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer, trainer._generate_and_score_completions([rows_for()[0]] * 8)[0][0]


def trl_scores(trainer: Any, sub: Any) -> Any:
    ids = torch.cat([sub["prompt_ids"], sub["completion_ids"]], dim=1)
    attention = torch.cat([sub["prompt_mask"], sub["completion_mask"]], dim=1)
    return trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, attention, sub["completion_ids"].shape[1], compute_entropy=True, compute_aux_loss=trainer.aux_loss_enabled
    )


@pytest.mark.parametrize("family", ["qwen3", "llama", "gemma2", "gpt2", "moe", "lora"])
def test_scores_and_gradients_are_those_of_trl(family: str, tmp_path: Path) -> None:
    lora = {"peft_config": LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)} if family == "lora" else {}
    trainer, sub = prepared(tmp_path, build("qwen3" if family == "lora" else family), **lora)
    mask = (sub["tool_mask"] * sub["completion_mask"]).bool()
    assert 0 < mask.sum() < mask.numel()
    weight = torch.randn(mask.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tolerance = 1e-5 if family == "moe" else 1e-6
    results = []
    for score in (trainer._score, lambda model, batch: trl_scores(trainer, batch)):
        trainer.model.zero_grad()
        logps, entropies, aux = score(trainer.model, sub)
        total = ((logps + 0.3 * entropies) * weight * mask).sum() + (aux if aux is not None else 0.0)
        total.backward()
        results.append((logps.detach()[mask], entropies.detach()[mask], aux, gradient(trainer.model)))
        if score == trainer._score:
            assert not logps[~mask].any()
    (ours, ours_entropy, ours_aux, ours_gradient), (theirs, theirs_entropy, theirs_aux, theirs_gradient) = results
    assert torch.allclose(ours, theirs, atol=tolerance)
    assert torch.allclose(ours_entropy, theirs_entropy, atol=tolerance)
    assert relative_error(ours_gradient, theirs_gradient) < tolerance
    assert (ours_aux is None) == (theirs_aux is None) == (family != "moe")
    if ours_aux is not None:
        assert float(ours_aux.detach()) == pytest.approx(float(theirs_aux.detach()))


def test_the_hook_is_gone_after_the_call_even_when_it_breaks(tmp_path: Path) -> None:
    trainer, sub = prepared(tmp_path, make_model())
    base = trainer.model.base_model
    trainer._score(trainer.model, sub)
    assert not base._forward_hooks
    with pytest.raises((RuntimeError, IndexError)):
        trainer._score(trainer.model, {**sub, "completion_ids": sub["completion_ids"] + 10_000})
    assert not base._forward_hooks
    ids = torch.arange(2, 9)[None]
    assert trainer.model(ids).logits.shape == (1, 7, VOCAB)


def test_a_batch_of_dummies_is_a_zero_that_the_backward_pass_accepts(tmp_path: Path) -> None:
    trainer, sub = prepared(tmp_path, make_model())
    sub = {**sub, "tool_mask": torch.zeros_like(sub["tool_mask"])}
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, [sub])
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(parameter.grad is not None for parameter in trainer.model.parameters())
    assert not gradient(trainer.model).any()


def test_only_action_tokens_reach_the_head(tmp_path: Path) -> None:
    trainer, sub = prepared(tmp_path, make_model())
    projected: list[int] = []
    import trl.trainer.utils as utils

    inner = utils._ChunkedLogProbFunction.apply

    class Spy:
        @staticmethod
        def apply(hidden: torch.Tensor, *rest: Any) -> Any:
            projected.append(hidden.shape[0])
            return inner(hidden, *rest)

    utils._ChunkedLogProbFunction, kept = Spy, utils._ChunkedLogProbFunction
    try:
        trainer._score(trainer.model, sub)
        trl_scores(trainer, sub)
    finally:
        utils._ChunkedLogProbFunction = kept
    assert projected[0] == int(sub["tool_mask"].sum())
    assert projected[1] > 2 * projected[0]
