"""The critic by itself: what it reads, what it says, what it is trained by, what it is made of."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from ppo_training import knowing, limited, mixed_batch, said_by_hand, states_of
from toy_training import VOCAB, make_model, make_tokenizer, random_batch

from agent_gym.chat import tokenizer_fingerprint
from agent_gym.trainers.advantages import bootstraps, exclusion_reason
from agent_gym.trainers.critic import Critic, collate_values, make_critic, value_loss
from agent_gym.trainers.values import build_value_rows, explained_variance
from agent_gym.trajectory import Step, StopReason, Trajectory

ENDS = [StopReason.ANSWER, StopReason.MAX_TURNS, StopReason.CONTEXT_LIMIT, StopReason.ENV_FAULT]


def episodes(seed: int, ends: list[StopReason], context: str) -> list[Trajectory]:
    batch = random_batch(seed, groups=len(ends), size=1, context=context, empty=0.3)
    return [item if end is StopReason.ANSWER else limited(item, end) for item, end in zip(batch, ends, strict=True)]


# ------------------------------------------------------------------------------------------------ what is read


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    ends=st.lists(st.sampled_from(ENDS), min_size=1, max_size=5),
    context=st.sampled_from(["append", "rewrite", "mixed"]),
    level=st.sampled_from(["step", "token"]),
    merge=st.booleans(),
    final=st.booleans(),
)
def test_every_state_is_read_once_behind_the_very_tokens_that_were_seen(
    seed: int, ends: list[StopReason], context: str, level: Any, merge: bool, final: bool
) -> None:
    batch = episodes(seed, ends, context)
    wanted = []
    for number, item in enumerate(batch):
        if exclusion_reason(item) is None:
            wanted += [(number, step, tuple(ids)) for step, ids in states_of(item, level)]
            if final and bootstraps(item):
                wanted.append((number, len(item.steps), tuple(item.final_observation.tolist())))
    rows = build_value_rows(batch, level, merge=merge, final=final)
    read = [
        (row.trajectory, place.step, tuple(row.ids[: position + 1].tolist()))
        for row in rows
        for place in row.places
        for position in range(place.start, place.end)
    ]
    assert read == wanted
    assert all(len(row) == row.places[-1].end and row.num_values == sum(place.end - place.start for place in row.places) for row in rows)
    if merge and context == "append":
        assert len(rows) == len({number for number, _, _ in wanted})


def test_a_growing_context_is_one_row_and_a_rewritten_one_a_row_per_step() -> None:
    grown = random_batch(3, groups=1, size=1, context="append", max_steps=4)
    assert len(grown[0].steps) > 1
    assert len(build_value_rows(grown, "step")) == len(build_value_rows(grown, "token")) == 1
    assert len(build_value_rows(grown, "step", merge=False)) == len(grown[0].steps)
    rewritten = random_batch(3, groups=1, size=1, context="rewrite", max_steps=4)
    assert len(build_value_rows(rewritten, "step")) == len(rewritten[0].steps)


def test_states_without_tokens_are_refused_by_name() -> None:
    blind = Trajectory(task_id="t", steps=[Step([], [2], terminated=True, stop_reason=StopReason.ANSWER)])
    with pytest.raises(ValueError, match="observation of step 0 of trajectory 0 is empty"):
        build_value_rows([blind], "step")
    cut = Trajectory(task_id="seven", steps=[Step([3], [2], truncated=True, stop_reason=StopReason.MAX_TURNS)])
    with pytest.raises(ValueError, match=r"'seven'\) ended by 'max_turns' without termination, and its final observation is empty"):
        build_value_rows([cut], "token")
    assert len(build_value_rows([cut], "token", final=False)) == 1


# ------------------------------------------------------------------------------------------------ what is said


@pytest.mark.parametrize("level", ["step", "token"])
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_merged_padded_rows_say_what_each_state_says_alone(family: str, level: Any) -> None:
    critic = knowing(make_critic(None, make_model(family))).eval()
    batch = mixed_batch(groups=2)
    for merge in (True, False):
        rows = build_value_rows(batch, level, merge=merge)
        with torch.no_grad():
            said = critic(*collate_values(rows, "cpu", 8))
            alone = torch.stack(
                [
                    said_by_hand(critic, row.ids[: position + 1].tolist())
                    for row in rows
                    for place in row.places
                    for position in range(place.start, place.end)
                ]
            )
        assert len(said) > 10 and said.std() > 0.1
        assert torch.allclose(said, alone, rtol=0, atol=1e-12)


def test_two_states_may_stand_on_one_token() -> None:
    """An empty action that the world does not answer leaves the same observation."""
    steps = [Step([5, 6], []), Step([5, 6], [7], terminated=True, stop_reason=StopReason.ANSWER)]
    (row,) = build_value_rows([Trajectory(steps=steps)], "step")
    assert [place.step for place in row.places] == [0, 1] and {place.start for place in row.places} == {1}
    critic = knowing(make_critic(None, make_model()))
    one, two = critic(*collate_values([row], "cpu"))
    assert one == two == said_by_hand(critic, [5, 6])


def test_an_untrained_critic_says_nothing() -> None:
    critic = make_critic(None, make_model())
    assert not critic(*collate_values(build_value_rows(mixed_batch(), "token"), "cpu")).any()


# ------------------------------------------------------------------------------------------------ what it is trained by


def textbook(value: float, old: float, target: float, clip: float) -> tuple[float, float, bool]:
    """PPO's value loss of one state, its derivative, and whether the clip holds it, in plain Python."""
    held = old + min(max(value - old, -clip), clip)
    if abs(value - old) > clip and (held - target) ** 2 > (value - target) ** 2:
        return 0.5 * (held - target) ** 2, 0.0, True
    return 0.5 * (value - target) ** 2, value - target, False


def at_a_kink(value: float, old: float, target: float, clip: float) -> bool:
    """Whether a rounding decides which branch holds: on the edge of the clip, or the two errors equal beyond it."""
    held = old + min(max(value - old, -clip), clip)
    beyond = abs(value - old) > clip - 1e-9
    return beyond and abs(abs(held - target) - abs(value - target)) < 1e-9


@settings(max_examples=200, deadline=None)
@example([(0.15, 2.0, 1.0)], 2.0)  # within reach, where old + (value - old) is not value to the last bit
@example([(1.0, 0.0, 0.75)], 0.5)  # beyond it, both errors equal
@given(st.lists(st.tuples(*[st.floats(-5, 5) for _ in range(3)]), min_size=1, max_size=8), st.floats(0.01, 3.0))
def test_the_clipped_value_loss_and_its_gradient_are_those_of_the_textbook(states: list[tuple[float, float, float]], clip: float) -> None:
    values, old, targets = (torch.tensor(column, dtype=torch.float64) for column in zip(*states, strict=True))
    values.requires_grad_()
    terms = value_loss(values, old, targets, clip)
    terms.loss.sum().backward()
    for number, state in enumerate(states):
        loss, slope, clipped = textbook(*state, clip)
        assert float(terms.loss[number].detach()) == pytest.approx(loss, abs=1e-12)
        if not at_a_kink(*state, clip):
            assert float(values.grad[number]) == pytest.approx(slope, abs=1e-12)
            assert bool(terms.clipped[number]) is clipped


def test_a_table_of_the_value_loss() -> None:
    """old, value, target, clip 0.2 -> loss, clipped: inside; moved too far the right way; too far the wrong way; beyond the target."""
    table = [
        (0.0, 0.1, 1.0, 0.5 * 0.9**2, False),
        (0.0, 0.5, 1.0, 0.5 * 0.8**2, True),  # 0.2 counts, which is farther from the target: no gradient
        (0.0, -0.5, 1.0, 0.5 * 1.5**2, False),  # led back with the whole gradient
        (0.0, 1.5, 1.0, 0.5 * 0.8**2, True),
    ]
    old, value, target, loss, clipped = (torch.tensor(column) for column in zip(*table, strict=True))
    terms = value_loss(value, old, target, 0.2)
    assert torch.allclose(terms.loss, loss) and terms.clipped.tolist() == clipped.tolist()
    free = value_loss(value, old, target, None)
    assert torch.allclose(free.loss, 0.5 * (value - target) ** 2) and not free.clipped.any()


def test_explained_variance_is_one_for_the_truth_zero_for_a_constant_and_unknown_without_variance() -> None:
    targets = [0.0, 1.0, 2.0, 5.0]
    assert explained_variance(targets, targets) == 1.0
    assert explained_variance([7.0] * 4, targets) == 0.0
    assert explained_variance([2 * target for target in targets], targets) == pytest.approx(0.0)
    assert explained_variance([-target for target in targets], targets) == pytest.approx(-3.0)
    assert math.isnan(explained_variance([1.0, 2.0], [3.0, 3.0])) and math.isnan(explained_variance([], []))


# ------------------------------------------------------------------------------------------------ what it is made of


def test_a_copy_shares_nothing_with_the_policy_and_keeps_what_is_frozen() -> None:
    policy = make_model()
    policy.get_input_embeddings().weight.requires_grad_(False)
    critic = make_critic(None, policy)
    assert {one.data_ptr() for one in critic.parameters()}.isdisjoint({one.data_ptr() for one in policy.parameters()})
    twins = dict(policy.base_model.named_parameters())
    for name, parameter in critic.backbone.named_parameters():
        assert torch.equal(parameter, twins[name]) and parameter.requires_grad == twins[name].requires_grad
    assert not critic.backbone.get_input_embeddings().weight.requires_grad
    assert critic.head.weight.dtype == torch.float64 and not critic.head.weight.any()


def test_the_head_computes_in_float32_on_a_backbone_of_sixteen_bits() -> None:
    critic = knowing(make_critic(None, make_model(dtype=torch.bfloat16)))
    assert critic.head.weight.dtype == torch.float32
    said = critic(*collate_values(build_value_rows(mixed_batch(), "step"), "cpu"))
    assert said.dtype == torch.float32


def test_the_copy_of_a_model_with_adapters_has_them_merged_and_is_trained_whole() -> None:
    policy = get_peft_model(make_model(), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", init_lora_weights=False))
    critic = make_critic(None, policy)
    assert not any("lora" in name for name, _ in critic.named_parameters())
    assert all(parameter.requires_grad for parameter in critic.parameters())
    ids = torch.arange(2, 12)[None]
    inside = policy.get_base_model().base_model(input_ids=ids).last_hidden_state
    assert torch.allclose(critic.backbone(input_ids=ids).last_hidden_state, inside, atol=1e-9)
    assert any("lora" in name for name, _ in policy.named_parameters())  # the policy's are where they were


def test_a_given_model_a_given_critic_and_a_folder_are_taken(tmp_path: Path) -> None:
    policy, other = make_model(), make_model(seed=1)
    assert make_critic(other, policy).backbone is other.base_model
    assert make_critic(other.base_model, policy).backbone is other.base_model
    own = Critic(other.base_model)
    assert make_critic(own, policy) is own
    adapted = get_peft_model(copy.deepcopy(other), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    trained = {name for name, parameter in make_critic(adapted, policy).named_parameters() if parameter.requires_grad}
    assert {name for name in trained if "lora" not in name} == {"head.weight", "head.bias"} and len(trained) > 2

    tokenizer = make_tokenizer()
    other.save_pretrained(tmp_path / "bare")  # brings no tokenizer
    opened = make_critic(str(tmp_path / "bare"), policy, fingerprint=tokenizer_fingerprint(tokenizer))
    assert torch.equal(opened.backbone.get_input_embeddings().weight, other.get_input_embeddings().weight)
    for name, words in (("same", []), ("another", ["w99"])):
        other.save_pretrained(tmp_path / name)
        tokenizer.add_tokens(words)
        tokenizer.save_pretrained(tmp_path / name)
    make_critic(tmp_path / "same", policy, fingerprint=tokenizer_fingerprint(make_tokenizer()))
    with pytest.raises(ValueError, match="shares the policy's tokenizer"):
        make_critic(tmp_path / "another", policy, fingerprint=tokenizer_fingerprint(make_tokenizer()))


def test_a_critic_that_cannot_read_what_the_policy_reads_is_refused() -> None:
    with pytest.raises(ValueError, match=f"embedding has {VOCAB - 1} rows, the policy's {VOCAB}"):
        make_critic(make_model(vocab=VOCAB - 1), make_model())
    with pytest.raises(TypeError, match="critic= is a int"):
        make_critic(3, make_model())
    with torch.device("meta"):
        empty = make_model()
    with pytest.raises(ValueError, match="not whole in this process"):
        make_critic(None, empty)


def test_values_are_numbers_that_a_gradient_reaches_at_their_places_alone() -> None:
    """The hidden states of tokens that the world wrote behind a state have a gradient of exactly zero."""
    critic = knowing(make_critic(None, make_model()))
    rows = build_value_rows(mixed_batch(), "token", final=False)
    ids, attention, lines, columns = collate_values(rows, "cpu")
    kept: list[torch.Tensor] = []

    def keep(module: Any, arguments: Any, output: Any) -> None:
        output.last_hidden_state.retain_grad()
        kept.append(output.last_hidden_state)

    handle = critic.backbone.register_forward_hook(keep)
    critic(ids, attention, lines, columns).sum().backward()
    handle.remove()
    touched = torch.zeros(ids.shape, dtype=torch.bool)
    touched[lines, columns] = True
    slopes = kept[0].grad
    assert torch.count_nonzero(slopes[~touched]) == 0 and (slopes[touched].abs().sum(-1) > 0).all()
    assert (~touched & attention.bool()).sum() > 20
    assert np.isfinite(slopes.numpy()).all()
