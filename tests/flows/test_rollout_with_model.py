"""The loop with a model: what is recorded is what the model sampled, whatever the context, the chain or the company."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics
from helpers import require
from small_envs import Parrot, ToolParrot

torch = require("torch")
transformers = require("transformers")

from agent_gym.context import rebuild  # noqa: E402
from agent_gym.flows import run_rows  # noqa: E402
from agent_gym.policies import Sampling, TransformersPolicy  # noqa: E402

SMALL = {"max_observation_tokens": 1024, "max_action_tokens": 16, "max_turns": 4}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=Parrot(**SMALL).chat.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        initializer_range=0.1,
        max_position_embeddings=2048,
    )
    return transformers.Qwen3ForCausalLM(config)


def rows(count):
    return [{"env_id": "", "seed": seed // 4, "group_id": seed // 4} for seed in range(count)]


def play(model, factory, count=16, **settings):
    return run_rows(
        rows(count), TransformersPolicy(model, pad_id=0), env_factory=factory, sampling=Sampling(max_tokens=10), seed=3, **settings
    )


def check(model, trajectories):
    for trajectory in trajectories:
        for step in trajectory.steps:
            ids = torch.tensor(np.concatenate([step.observation_ids, step.action_ids]))[None]
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, len(step.observation_ids) - 1 : -1]
            want = logits.log_softmax(-1)[torch.arange(len(step.action_ids)), ids[0, len(step.observation_ids) :]]
            np.testing.assert_allclose(step.logprobs, want.numpy(), atol=1e-4)


def _summary(history):
    return [{"role": "user", "content": f"{len(history.exchanges)} turns"}]


@pytest.mark.parametrize("context", ["append", "window:1", rebuild(_summary)], ids=["append", "window", "rebuild"])
@pytest.mark.parametrize("wrap", [lambda env: env, RecordEpisodeStatistics], ids=["awaited", "threads"])
def test_the_recorded_logprobs_are_those_of_a_plain_forward(model, context, wrap):
    result = play(model, lambda row: wrap(ToolParrot(context=context, **SMALL)))
    assert len(result.trajectories) == 16
    assert sum(len(trajectory) for trajectory in result.trajectories) > 40
    check(model, result.trajectories)


def test_a_run_repeats_bit_for_bit_and_company_changes_no_id(model):
    def factory(row):
        return Parrot(**SMALL)

    one, again, narrow = play(model, factory), play(model, factory), play(model, factory, max_concurrency=3)
    assert one.trajectories == again.trajectories
    for wide, alone in zip(one.trajectories, narrow.trajectories, strict=True):
        assert [step.action_ids.tolist() for step in wide.steps] == [step.action_ids.tolist() for step in alone.steps]
    groups = {}
    for trajectory in one.trajectories:
        groups.setdefault(trajectory.group_id, set()).add(tuple(trajectory.steps[0].action_ids.tolist()))
    assert all(len(firsts) > 1 for firsts in groups.values()), "members of a group are sampled apart"


def test_adapters_and_mixed_precision_are_served_with_the_cache(model):
    peft = require("peft")
    import copy

    adapted = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trajectories = play(adapted, lambda row: Parrot(**SMALL), count=4).trajectories
    check(adapted.eval(), trajectories)
    mixed = copy.deepcopy(model)
    forward = mixed.forward

    def autocast(*args, **keywords):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return forward(*args, **keywords)

    mixed.forward = autocast
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(play(mixed, lambda row: Parrot(**SMALL), count=4).trajectories) == 4
