"""The in-process policy against plain forwards of the same model."""

from __future__ import annotations

import asyncio
import random
import warnings

import numpy as np
import pytest
from helpers import require

torch = require("torch")
transformers = require("transformers")

from agent_gym.policies import (  # noqa: E402
    Sampling,
    TransformersPolicy,
    decoding,
    derive_seed,
)
from agent_gym.trajectory import Generation  # noqa: E402

VOCAB = 97
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "initializer_range": 0.2,
}


def _qwen3(**more):
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=8, max_position_embeddings=512, **more)
    )


def _model(kind: str):
    torch.manual_seed(3)
    if kind == "qwen3":
        return _qwen3()
    if kind == "qwen3_mixed":
        return _qwen3(use_sliding_window=True, sliding_window=6, layer_types=["full_attention", "sliding_attention"])
    if kind == "llama":
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**COMMON, num_key_value_heads=2, max_position_embeddings=512, attention_dropout=0.5)
        )
    if kind == "llama_eager":
        return transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**COMMON, num_key_value_heads=4, max_position_embeddings=512, attn_implementation="eager")
        )
    if kind == "mistral_window":
        return transformers.MistralForCausalLM(
            transformers.MistralConfig(**COMMON, num_key_value_heads=2, sliding_window=5, max_position_embeddings=512)
        )
    if kind == "gemma3":
        return transformers.Gemma3ForCausalLM(
            transformers.Gemma3TextConfig(
                **COMMON, num_key_value_heads=2, head_dim=8, sliding_window=6, layer_types=["sliding_attention", "full_attention"]
            )
        )
    if kind == "neox":
        return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**COMMON, max_position_embeddings=512, attention_dropout=0.3))
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=512, initializer_range=0.2, attn_pdrop=0.5
            )
        )
    if kind == "bloom":
        return transformers.BloomForCausalLM(
            transformers.BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.2)
        )
    assert kind == "mamba"
    return transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=4, initializer_range=0.2)
    )


CACHED = ["qwen3", "qwen3_mixed", "llama", "llama_eager", "mistral_window", "gemma3", "neox", "gpt2"]
UNCACHED = ["bloom", "mamba"]


def _plain_logprobs(model, prompt, generation: Generation, temperature: float = 1.0) -> np.ndarray:
    """The log-probabilities of a reply by one forward of the whole sequence, without cache, dropout off."""
    training = model.training
    model.eval()
    ids = torch.tensor([[*map(int, prompt), *generation.token_ids.tolist()]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1].float() / temperature
    model.train(training)
    return logits.log_softmax(-1)[torch.arange(len(generation.token_ids)), torch.tensor(generation.token_ids)].numpy()


async def _episode(policy, number: int, seen: list, *, turns: int = 4, rewrite: bool = False, settings: dict | None = None):
    draw = np.random.default_rng(number)
    prompt = draw.integers(0, VOCAB, int(draw.integers(1, 30))).tolist()
    for turn in range(turns):
        sampling = Sampling(
            **{"max_tokens": int(draw.integers(1, 12)), "seed": derive_seed(number, turn), "stop_token_ids": (5, 6, 7, 8)}
            | (settings or {})
        )
        generation = await policy.generate(prompt, sampling, session=number)
        seen.append((prompt, generation, sampling))
        if number % 3 == 0:
            await asyncio.sleep(0.001 * (number % 5))
        answer = draw.integers(0, VOCAB, int(draw.integers(1, 20))).tolist()
        if rewrite and turn % 2:
            prompt = prompt[: len(prompt) // 2] + answer
        else:
            prompt = prompt + generation.token_ids.tolist() + answer
    policy.forget(number)


def _play(policy, episodes: int = 12, **settings) -> list:
    seen: list = []

    async def run() -> dict[str, int]:
        await asyncio.gather(*(_episode(policy, number, seen, **settings) for number in range(episodes)))
        return policy.counts

    _play.counts = asyncio.run(run())
    return seen


@pytest.mark.parametrize("kind", CACHED)
def test_logprobs_of_many_turns_agree_with_a_plain_forward(kind):
    model = _model(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seen = _play(TransformersPolicy(model, pad_id=0), rewrite=True)
    for prompt, generation, _ in seen:
        np.testing.assert_allclose(generation.logprobs, _plain_logprobs(model, prompt, generation), atol=1e-4)
    assert _play.counts["reused"] > 0.3 * _play.counts["prefilled"], "the cache of earlier turns must be used"
    assert len({len(prompt) for prompt, _, _ in seen}) > 10


@pytest.mark.parametrize("kind", UNCACHED)
def test_a_model_without_a_plain_cache_falls_back_and_stays_exact(kind):
    model = _model(kind)
    with pytest.warns(UserWarning, match="cannot use the key-value cache"):
        seen = _play(TransformersPolicy(model, pad_id=0), episodes=5, turns=2)
    for prompt, generation, _ in seen:
        np.testing.assert_allclose(generation.logprobs, _plain_logprobs(model, prompt, generation), atol=1e-4)


@pytest.mark.parametrize("mutant", ["positions", "mask", "stale"])
def test_a_broken_cache_would_be_seen(mutant, monkeypatch):
    """Mutants of the engine fail the comparison above (or are caught by the engine's own)."""
    model = _model("qwen3")
    if mutant == "positions":
        original = decoding.Decoder._forward
        monkeypatch.setattr(
            decoding.Decoder,
            "_forward",
            lambda self, ids, places, first, last: original(self, ids, np.where(places > 11, places - 1, places), first, last),
        )
    elif mutant == "mask":
        monkeypatch.setattr(decoding.Decoder, "_dress", lambda self, visible: torch.ones_like(visible))
    else:
        monkeypatch.setattr(
            decoding.Decoder,
            "_reusable",
            lambda self, request: (
                min(len(self.saved[request.session].ids), len(request.prompt) - 1) if request.session in self.saved else 0
            ),
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        seen = _play(TransformersPolicy(model, pad_id=0), rewrite=True)
    worst = max(float(np.abs(generation.logprobs - _plain_logprobs(model, prompt, generation)).max()) for prompt, generation, _ in seen)
    assert worst > 1e-3 or any("cannot use" in str(entry.message) for entry in caught)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_training_mode_changes_nothing_and_stays_on(kind):
    model = _model(kind)
    model.eval()
    calm = _play(TransformersPolicy(model, pad_id=0), episodes=4)
    model.train()
    model.lm_head.eval()
    flags = [module.training for module in model.modules()]
    trained = _play(TransformersPolicy(model, pad_id=0), episodes=4)
    assert [module.training for module in model.modules()] == flags
    key = lambda entry: (tuple(entry[0]), entry[2].seed)  # noqa: E731
    for (_, one, _), (_, other, _) in zip(sorted(calm, key=key), sorted(trained, key=key), strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()


def test_a_sample_depends_on_its_own_seed_only():
    model = _model("qwen3")
    prompt = list(range(10))
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    async def alone():
        return await TransformersPolicy(model, pad_id=0).generate(prompt, Sampling(max_tokens=20, seed=77))

    async def in_company():
        policy = TransformersPolicy(model, pad_id=0)
        others = [policy.generate(list(range(n, 40)), Sampling(max_tokens=n, seed=n)) for n in range(1, 12)]
        return (await asyncio.gather(*others, policy.generate(prompt, Sampling(max_tokens=20, seed=77))))[-1]

    one, other = asyncio.run(alone()), asyncio.run(in_company())
    assert one.token_ids.tolist() == other.token_ids.tolist()
    np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    assert before == after


def test_samples_follow_the_distribution():
    model = _model("qwen3")
    prompt = [3, 1, 4]

    async def draw(temperature):
        policy = TransformersPolicy(model, pad_id=0)
        results = await asyncio.gather(
            *(policy.generate(prompt, Sampling(max_tokens=1, seed=i, temperature=temperature)) for i in range(4000))
        )
        return np.bincount([int(result.token_ids[0]) for result in results], minlength=VOCAB) / 4000, results

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([prompt])).logits[0, -1]
    for temperature in (1.0, 0.5):
        found, results = asyncio.run(draw(temperature))
        want = (logits / temperature).softmax(-1).numpy()
        assert np.abs(found - want).sum() < 0.25  # the expected total deviation of 4,000 draws over 97 tokens is below 0.13
        np.testing.assert_allclose(results[0].logprobs[0], np.log(want[results[0].token_ids[0]]), atol=1e-4)


def test_greedy_takes_the_likeliest_and_reports_temperature_one():
    model = _model("llama").eval()
    prompt = list(range(20))

    async def run():
        policy = TransformersPolicy(model, pad_id=0)
        return await asyncio.gather(*(policy.generate(prompt, Sampling(max_tokens=8, temperature=t, seed=1)) for t in (0.0, 1.0)))

    greedy, sampled = asyncio.run(run())
    want = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, 20), max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    assert greedy.token_ids.tolist() == want[0, 20:].tolist()
    for generation in (greedy, sampled):
        np.testing.assert_allclose(generation.logprobs, _plain_logprobs(model, prompt, generation), atol=1e-4)


@pytest.mark.parametrize("cut", [{"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.3}])
def test_filters_renormalise_what_is_kept(cut):
    model = _model("qwen3")
    prompt = [9, 8, 7]

    async def run():
        policy = TransformersPolicy(model, pad_id=0)
        return await asyncio.gather(*(policy.generate(prompt, Sampling(max_tokens=1, seed=i, **cut)) for i in range(300)))

    with torch.no_grad():
        p = model(input_ids=torch.tensor([prompt])).logits[0, -1].softmax(-1).numpy()
    order = np.argsort(-p)
    if "top_k" in cut:
        kept = order[:3]
    elif "top_p" in cut:
        kept = order[: int(np.searchsorted(np.cumsum(p[order]), 0.6) + 1)]
    else:
        kept = np.flatnonzero(p >= 0.3 * p.max())
    results = asyncio.run(run())
    assert {int(r.token_ids[0]) for r in results} <= set(kept.tolist())
    for result in results[:20]:
        np.testing.assert_allclose(result.logprobs[0], np.log(p[result.token_ids[0]] / p[kept].sum()), atol=1e-4)


def test_a_reply_ends_at_its_own_stop_ids_and_nowhere_else():
    seen = _play(TransformersPolicy(_model("qwen3"), pad_id=0), episodes=20)
    for _, generation, sampling in seen:
        ids = generation.token_ids.tolist()
        hits = [place for place, token in enumerate(ids) if token in sampling.stop_token_ids]
        if generation.finish_reason == "stop":
            assert hits == [len(ids) - 1]
        else:
            assert generation.finish_reason == "length"
            assert not hits
            assert len(ids) == sampling.max_tokens
    assert {generation.finish_reason for _, generation, _ in seen} == {"stop", "length"}


def test_changed_weights_are_noticed_without_being_told():
    model = _model("qwen3")
    policy = TransformersPolicy(model, pad_id=0)

    async def run():
        first = await policy.generate(list(range(30)), Sampling(max_tokens=5, seed=1), session="a")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.3)
        prompt = [*range(30), *first.token_ids.tolist(), 1, 2, 3]
        policy.version = 7
        return prompt, await policy.generate(prompt, Sampling(max_tokens=5, seed=2), session="a")

    prompt, second = asyncio.run(run())
    np.testing.assert_allclose(second.logprobs, _plain_logprobs(model, prompt, second), atol=1e-4)
    assert second.policy_version == 7

    async def silent():
        first = await policy.generate(list(range(30)), Sampling(max_tokens=5, seed=1), session="b")
        torch.optim.SGD(model.parameters(), lr=0.0)
        with torch.no_grad():
            next(iter(model.parameters())).add_(0.05)
        prompt = [*range(30), *first.token_ids.tolist(), 1, 2, 3]
        return prompt, await policy.generate(prompt, Sampling(max_tokens=5, seed=2), session="b")

    prompt, second = asyncio.run(silent())
    np.testing.assert_allclose(second.logprobs, _plain_logprobs(model, prompt, second), atol=1e-4)


def test_prompts_are_checked_and_clamped_before_the_model():
    model = _model("gpt2")  # learned positions: one too many is an index error inside
    policy = TransformersPolicy(model, pad_id=0)

    async def run():
        inside = await policy.generate([1] * 508, Sampling(max_tokens=50, seed=1))
        with pytest.warns(UserWarning, match="a prompt of 512 tokens leaves no room in the model's 512 positions"):
            full = await policy.generate([1] * 512, Sampling(max_tokens=50, seed=1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            await policy.generate([1] * 600, Sampling(max_tokens=50, seed=1))
        for bad, words in (([], "empty"), ([VOCAB], "embedding"), ([-1], "embedding")):
            with pytest.raises(ValueError, match=words):
                await policy.generate(bad, Sampling(max_tokens=5))
        return inside, full

    inside, full = asyncio.run(run())
    assert (len(inside.token_ids), inside.finish_reason) == (4, "context")
    assert (len(full.token_ids), full.finish_reason) == (0, "context")


def test_long_prompts_are_prefilled_in_pieces():
    model = _model("qwen3")
    prompt = np.random.default_rng(0).integers(0, VOCAB, 300).tolist()

    async def run():
        policy = TransformersPolicy(model, pad_id=0, max_prefill_tokens=64)
        return await asyncio.gather(*(policy.generate(prompt[: 300 - 37 * i], Sampling(max_tokens=4, seed=i)) for i in range(4)))

    for number, generation in enumerate(asyncio.run(run())):
        np.testing.assert_allclose(generation.logprobs, _plain_logprobs(model, prompt[: 300 - 37 * number], generation), atol=1e-4)


def test_small_memory_and_small_batches_give_the_same():
    model = _model("qwen3")
    key = lambda entry: (tuple(entry[0]), entry[2].seed)  # noqa: E731
    wide = sorted(_play(TransformersPolicy(model, pad_id=0)), key=key)
    narrow = sorted(_play(TransformersPolicy(model, pad_id=0, max_batch_size=3, max_cache_bytes=20_000)), key=key)
    for (prompt, one, _), (again, other, _) in zip(wide, narrow, strict=True):
        assert prompt == again
        assert one.token_ids.tolist() == other.token_ids.tolist()


def test_equal_prompts_are_computed_once():
    policy = TransformersPolicy(_model("qwen3"), pad_id=0)

    async def run():
        results = await asyncio.gather(*(policy.generate(list(range(40)), Sampling(max_tokens=6, seed=i)) for i in range(8)))
        return results, policy.counts["prefilled"]

    results, prefilled = asyncio.run(run())
    assert prefilled == 40
    assert len({tuple(result.token_ids.tolist()) for result in results}) > 4
    for result in results:
        np.testing.assert_allclose(result.logprobs, _plain_logprobs(policy.model, range(40), result), atol=1e-4)


def test_not_a_number_is_an_error_and_the_policy_lives_on():
    model = _model("qwen3")
    policy = TransformersPolicy(model, pad_id=0)
    weight = model.model.norm.weight

    async def run():
        with torch.no_grad():
            weight.fill_(float("nan"))
        with pytest.raises(FloatingPointError, match="not finite"):
            await policy.generate([1, 2, 3], Sampling(max_tokens=4, seed=0))
        with torch.no_grad():
            weight.fill_(1.0)
        return await policy.generate([1, 2, 3], Sampling(max_tokens=4, seed=0))

    assert len(asyncio.run(run()).token_ids) == 4


def test_a_cancelled_request_leaves_the_others_alone():
    policy = TransformersPolicy(_model("qwen3"), pad_id=0)

    async def run():
        doomed = asyncio.create_task(policy.generate([1, 2], Sampling(max_tokens=400, seed=0)))
        kept = asyncio.create_task(policy.generate([3, 4], Sampling(max_tokens=60, seed=1)))
        await asyncio.sleep(0.02)
        doomed.cancel()
        return await kept

    alone = asyncio.run(policy.generate([3, 4], Sampling(max_tokens=60, seed=1)))
    assert asyncio.run(run()).token_ids.tolist() == alone.token_ids.tolist()
