"""The tiny model and its warm start: what is imitated, what is learned, what is left alone, and that it fails loudly."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from agent_gym.chat import load_tokenizer
from agent_gym.data.bridge_world import PEOPLE
from agent_gym.trainers.imitation import WarmStartFailed
from agent_gym.trainers.tiny_model import INITIALIZER_RANGE, build_tiny_model, freeze_embedding
from agent_gym.trainers.warm_start import (
    NAME_SPREAD,
    WarmStartConfig,
    copy_accuracy,
    name_ids,
    record_demonstrations,
    warm_start,
)

QUICK = WarmStartConfig(
    copy_steps=4,
    batch_size=4,
    warmup_steps=2,
    check_every=2,
    min_steps=2,
    known_at_least=0.0,
    growth_steps=2,
    copied_at_least=0.0,
    decay_steps=4,
    max_steps=10,
)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("default")


@pytest.fixture(scope="module")
def demonstrations(tokenizer):
    return record_demonstrations(24, seed=3, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def probes(tokenizer):
    return record_demonstrations(8, split="validation", seed=3, continue_probability=1.0, tokenizer=tokenizer)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_the_model_is_a_function_of_its_seed_and_leaves_the_global_generator_alone(tokenizer):
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one, same, other = (weights(build_tiny_model(tokenizer, seed)) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_the_model_is_tiny_tied_and_has_a_row_for_every_token(tokenizer):
    model = build_tiny_model(tokenizer, 0)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.model.embed_tokens.weight.shape[0] == len(tokenizer)
    assert model.num_parameters() < 400_000
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id != tokenizer.pad_token_id == model.config.pad_token_id


def test_a_patient_expert_is_always_right_and_one_without_patience_never(tokenizer, probes):
    assert all(episode.is_success for episode in probes)
    hasty = record_demonstrations(20, seed=0, continue_probability=0.0, tokenizer=tokenizer)
    assert all(len(episode) == 2 and episode.total_reward == 0.0 for episode in hasty)
    assert all(step.info["action_valid"] for episode in hasty for step in episode.steps)


def test_an_impatient_expert_succeeds_as_often_as_its_patience_says(tokenizer):
    share = np.mean([episode.is_success for episode in record_demonstrations(400, seed=1, continue_probability=0.4, tokenizer=tokenizer)])
    assert abs(share - (0.4 + 0.16) / 2) < 0.08


def test_demonstrations_are_a_function_of_their_seed(tokenizer, demonstrations):
    again = record_demonstrations(24, seed=3, tokenizer=tokenizer)
    assert [one.task_id for one in again] == [one.task_id for one in demonstrations]
    assert all(np.array_equal(a.final_observation, b.final_observation) for a, b in zip(again, demonstrations, strict=True))
    assert [one.task_id for one in record_demonstrations(24, seed=4, tokenizer=tokenizer)] != [one.task_id for one in demonstrations]


def test_no_name_of_the_probes_or_of_the_test_split_stands_in_a_demonstration(tokenizer, demonstrations):
    shown = {int(one) for episode in demonstrations for one in episode.final_observation}
    foreign = [name for split in ("validation", "test") for name in PEOPLE[split]]
    assert shown.isdisjoint(tokenizer.convert_tokens_to_ids(foreign))


def test_a_tokenizer_that_cuts_names_is_refused():
    bytewise = Tokenizer(models.BPE(vocab={chr(code): code - 32 for code in range(32, 127)}, merges=[]))
    with pytest.raises(ValueError, match="as one token"):
        name_ids(PreTrainedTokenizerFast(tokenizer_object=bytewise))


def test_rows_of_names_are_held_then_drawn_and_never_learned_and_all_others_are(tokenizer, demonstrations, probes):
    names = torch.from_numpy(name_ids(tokenizer))
    before = weights(build_tiny_model(tokenizer, 0))["model.embed_tokens.weight"]
    model = build_tiny_model(tokenizer, 0)
    held = replace(QUICK, known_at_least=2.0, max_steps=6)
    with pytest.raises(WarmStartFailed):  # never known well enough: the rows stay where they were
        warm_start(model, tokenizer, demonstrations, probes, seed=0, config=held)
    assert torch.equal(model.model.embed_tokens.weight.detach()[names], before[names])
    model = build_tiny_model(tokenizer, 0)
    warm_start(model, tokenizer, demonstrations, probes, seed=0, config=QUICK)
    after = model.model.embed_tokens.weight.detach()
    assert after[names].std().item() == pytest.approx(NAME_SPREAD, rel=0.05)
    assert before[names].std().item() == pytest.approx(INITIALIZER_RANGE, rel=0.05)
    others = torch.ones(len(tokenizer), dtype=torch.bool)
    others[names] = False
    used = torch.tensor(sorted({int(one) for episode in demonstrations for one in episode.final_observation if others[int(one)]}))
    assert (after[used] != before[used]).any(1).all()


def test_splits_get_rows_of_the_same_distribution(tokenizer, demonstrations, probes):
    model = build_tiny_model(tokenizer, 0)
    warm_start(model, tokenizer, demonstrations, probes, seed=0, config=QUICK)
    rows = model.model.embed_tokens.weight.detach()
    train, test = (rows[torch.from_numpy(name_ids(tokenizer, split))] for split in ("train", "test"))
    assert train.std().item() == pytest.approx(test.std().item(), rel=0.1)
    assert abs(train.mean().item() - test.mean().item()) < 0.02


def test_a_warm_start_is_a_function_of_its_seed(tokenizer, demonstrations, probes):
    results = []
    for seed in (0, 0, 1):
        model = build_tiny_model(tokenizer, 0)
        warm_start(model, tokenizer, demonstrations, probes, seed=seed, config=QUICK)
        results.append(weights(model))
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])
    assert not torch.equal(results[0]["model.layers.0.mlp.up_proj.weight"], results[2]["model.layers.0.mlp.up_proj.weight"])


def test_it_stops_on_copying_then_decays_and_freezes_the_embedding(tokenizer, demonstrations, probes):
    model = build_tiny_model(tokenizer, 0)
    told = []
    result = warm_start(model, tokenizer, demonstrations, probes, seed=0, config=QUICK, on_progress=told.append)
    assert (result.copied_after, result.steps) == (4, 8)
    assert tuple(told) == result.history
    assert [(one.phase, one.step) for one in told] == [
        ("copy", 2),
        ("copy", 4),
        ("imitation", 2),
        ("imitation", 4),
        ("imitation", 6),
        ("imitation", 8),
    ]
    assert not model.model.embed_tokens.weight.requires_grad
    assert all(parameter.requires_grad for name, parameter in model.named_parameters() if "embed_tokens" not in name)


def test_it_fails_loudly_where_names_are_not_copied(tokenizer, demonstrations, probes):
    config = WarmStartConfig(copy_steps=2, batch_size=4, max_steps=6, min_steps=2, check_every=2)
    with pytest.raises(WarmStartFailed, match="warm start failed: after 6 steps"):
        warm_start(build_tiny_model(tokenizer, 0), tokenizer, demonstrations, probes, seed=0, config=config)
    with pytest.raises(ValueError, match="demonstrations and probes"):
        warm_start(build_tiny_model(tokenizer, 0), tokenizer, demonstrations, [], seed=0)


def test_copy_accuracy_counts_names_in_actions_and_nothing_else(tokenizer, probes):
    names = torch.zeros(len(tokenizer), dtype=torch.bool)
    names[torch.from_numpy(name_ids(tokenizer))] = True

    class Oracle(torch.nn.Module):
        """Says the next token of the probes; `wrong` of the ids are answered by the pad id."""

        def __init__(self, wrong):
            super().__init__()
            self.wrong = wrong
            self.model = self.body
            self.lm_head = lambda hidden: torch.nn.functional.one_hot(hidden[:, 0].long(), len(tokenizer)).float()

        def body(self, input_ids):
            following = torch.roll(input_ids, -1, dims=1)
            answered = torch.where(self.wrong[following], torch.zeros_like(following), following)
            return type("Out", (), {"last_hidden_state": answered[..., None].float()})()

    answered = torch.zeros_like(names)  # the names that are answers of the probes
    answered[torch.tensor([int(episode.steps[-1].action_ids[1]) for episode in probes])] = True
    right = sum(
        int(name) in answered.nonzero() for episode in probes for step in episode.steps for name in step.action_ids if names[int(name)]
    )
    written = sum(len(episode) for episode in probes)
    assert copy_accuracy(Oracle(~names), probes, names) == 1.0
    assert copy_accuracy(Oracle(names), probes, names) == 0.0
    assert copy_accuracy(Oracle(answered), probes, names) == pytest.approx(1 - right / written)


def test_the_saved_model_is_an_ordinary_one(tokenizer, tmp_path):
    model = build_tiny_model(tokenizer, 0).eval()
    freeze_embedding(model)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.tensor([[1, 20, 300, 1000]])
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, loaded(ids).logits)
