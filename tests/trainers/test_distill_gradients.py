"""The gradient of a distillation: plain PyTorch's on the same rows, nothing from environment tokens, the same however rows are merged and packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from distill_training import TEACHER_SEED, actions_of, full_by_hand, logps_behind, make_distill, sampled_by_hand
from toy_training import VOCAB, gradient, make_model, random_batch, relative_error, rows_for, window_gradients

from agent_gym.trainers import distill as distill_module
from agent_gym.trainers import divergence as divergence_module
from agent_gym.trainers.advantages import get_advantage
from agent_gym.trainers.distill import AgentDistillTrainer
from agent_gym.trainers.divergence import Head, reverse_kl
from agent_gym.trainers.teacher import ModelTeacher
from agent_gym.trajectory import StopReason

EXACT = 1e-6
pytestmark = pytest.mark.filterwarnings("ignore:steps_per_generation:UserWarning")


def teacher_model() -> Any:
    return make_model(seed=TEACHER_SEED)


# ------------------------------------------------------------------------------------------------ against plain PyTorch


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("context", ["append", "mixed", "rewrite"])
def test_the_full_gradient_is_that_of_the_mean_reverse_divergence(family: str, context: str, tmp_path: Path) -> None:
    batch, model = random_batch(1, context=context), make_model(family)
    wanted, value = full_by_hand(model, teacher_model(), batch)
    ways: list[dict[str, Any]] = [
        {},
        {"merge_prefix": False},
        {"max_tokens_per_microbatch": 24},
        {"teacher_chunk_tokens": 3},
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_tokens_per_microbatch": 40, "merge_prefix": False},
    ]
    for way in ways:
        trainer = make_distill(tmp_path, batch, model, **way)
        assert trainer.distill_loss == "full"
        assert relative_error(window_gradients(trainer)[0], wanted) < EXACT, way
        assert trainer.state.log_history == [] and trainer.teacher.model.training is False  # type: ignore[union-attr]
    trainer = make_distill(tmp_path, batch, model)
    trainer.accelerator.gradient_state._set_sync_gradients(True)
    window_gradients(trainer)
    assert trainer._metrics["train"]["distill/reverse_kl"] == [pytest.approx(value, rel=1e-6)]


@pytest.mark.parametrize("loss", [{"loss_type": "dapo"}, {"loss_type": "cispo"}], ids=["dapo", "cispo"])
@pytest.mark.parametrize("context", ["append", "mixed"])
def test_the_sampled_gradient_is_a_policy_gradient_with_the_gap_as_advantage(loss: dict[str, Any], context: str, tmp_path: Path) -> None:
    batch, model = random_batch(2, context=context), make_model()
    wanted = sampled_by_hand(model, teacher_model(), batch)
    ways: list[dict[str, Any]] = [
        {},
        {"merge_prefix": False},
        {"max_tokens_per_microbatch": 24},
        {"teacher_chunk_tokens": 2, "num_iterations": 2},
    ]
    for way in ways:
        trainer = make_distill(tmp_path, batch, model, distill_loss="sampled", **loss, **way)
        assert relative_error(window_gradients(trainer)[0], wanted) < EXACT, way


@pytest.mark.parametrize("which", ["full", "sampled"])
def test_the_reward_counts_beside_the_teacher_by_its_weight(which: str, tmp_path: Path) -> None:
    batch, model = random_batch(3, context="mixed"), make_model()
    advantages = get_advantage("grpo")(batch)
    weighed = [[0.7 * float(value) for value in row] for row in advantages]
    settings = {"reward_weight": 0.7, "num_generations": 2, "distill_loss": which}
    (got,) = window_gradients(make_distill(tmp_path, batch, model, **settings))
    if which == "sampled":
        wanted = sampled_by_hand(model, teacher_model(), batch, weighed)
    else:
        reward_alone = sampled_by_hand(model, teacher_model(), batch, weighed) - sampled_by_hand(model, teacher_model(), batch)
        wanted = full_by_hand(model, teacher_model(), batch)[0] + reward_alone
    assert relative_error(got, wanted) < EXACT
    (without,) = window_gradients(make_distill(tmp_path, batch, model, **{**settings, "reward_weight": 0.0}))
    assert relative_error(got, without) > 1e-2


def test_sampled_is_full_in_expectation_over_the_sampled_token(tmp_path: Path) -> None:
    """One state, every token once, weighed by the student's own probability."""
    model, teacher = make_model(), teacher_model()
    template = random_batch(4, groups=1, size=1, max_steps=1)[0]
    context = template.steps[0].observation_ids

    def played(token: int) -> list[Any]:
        step = replace(template.steps[0], action_ids=np.array([token]), logprobs=None)
        return [replace(template, steps=(step,), group_id=f"g{number}") for number in range(2)]

    with torch.no_grad():
        shares = logps_behind(model, context.tolist(), [0])[0].exp()
    total = torch.zeros_like(gradient(model))
    for token in range(VOCAB):
        trainer = make_distill(tmp_path, played(token), model, distill_loss="sampled", per_device_train_batch_size=2)
        total += float(shares[token]) * window_gradients(trainer)[0]
    (whole,) = window_gradients(make_distill(tmp_path, played(3), model, teacher=teacher, per_device_train_batch_size=2))
    assert relative_error(total, whole) < EXACT
    assert whole.norm() > 1e-3


def test_a_student_that_is_its_teacher_has_nothing_to_learn(tmp_path: Path) -> None:
    batch = random_batch(5, context="mixed")
    for which in ("full", "sampled"):
        trainer = make_distill(tmp_path, batch, make_model(), teacher=make_model(), distill_loss=which)
        trainer.accelerator.gradient_state._set_sync_gradients(True)
        assert window_gradients(trainer)[0].norm() < 1e-6
        assert trainer._metrics["train"]["distill/reverse_kl"][0] == pytest.approx(0.0, abs=1e-6)


def test_temperatures_of_student_and_teacher_are_their_own(tmp_path: Path) -> None:
    batch, model = random_batch(6, context="mixed"), make_model()
    settings: list[tuple[dict[str, Any], float, float]] = [
        ({"temperature": 0.7}, 0.7, 0.7),
        ({"temperature": 0.7, "teacher_temperature": 1.0}, 0.7, 1.0),
        ({"teacher_temperature": 2.0}, 1.0, 2.0),
    ]
    for given, own, other in settings:
        wanted, _ = full_by_hand(model, teacher_model(), batch, temperature=own, teacher_temperature=other)
        assert relative_error(window_gradients(make_distill(tmp_path, batch, model, **given))[0], wanted) < EXACT, given
    (sampled,) = window_gradients(make_distill(tmp_path, batch, model, temperature=0.7, distill_loss="sampled"))
    assert relative_error(sampled, sampled_by_hand(model, teacher_model(), batch, temperature=0.7)) < EXACT


def test_a_teacher_with_more_rows_is_renormalised_over_those_of_the_student(tmp_path: Path) -> None:
    batch, model, teacher = random_batch(7, context="mixed"), make_model(), make_model(seed=8, vocab=VOCAB + 9)
    (got,) = window_gradients(make_distill(tmp_path, batch, model, teacher=teacher))
    model.zero_grad()
    total: Any = 0.0
    for context, action in actions_of(batch):
        own = logps_behind(model, context, action)
        with torch.no_grad():
            logits = teacher(input_ids=torch.tensor([[*context, *action]])).logits[0, len(context) - 1 : -1, :VOCAB]
        total = total + (own.exp() * (own - logits.log_softmax(-1))).sum()
    (total / sum(len(action) for _, action in actions_of(batch))).backward()
    assert relative_error(got, gradient(model)) < EXACT


# ------------------------------------------------------------------------------------------------ what must not count


def poison(trainer: AgentDistillTrainer, sub: Any) -> None:
    """Have the teacher say wild things wherever it is not asked about an action token."""
    assert isinstance(trainer.teacher, ModelTeacher)
    mask = (sub["completion_mask"] * sub["tool_mask"]).bool()
    first = sub["prompt_ids"].shape[1]
    asked = torch.zeros(mask.shape[0], first + mask.shape[1], dtype=torch.bool)
    asked[:, first - 1 : -1] = mask

    def wild(module: Any, arguments: Any, output: Any) -> Any:
        states = output.last_hidden_state
        noise = 100.0 * torch.randn(states.shape, generator=torch.Generator().manual_seed(1), dtype=states.dtype)
        output.last_hidden_state = torch.where(asked[:, :, None], states, noise)
        return output

    trainer.teacher._causal.base_model.register_forward_hook(wild)


@pytest.mark.parametrize("which", ["full", "sampled"])
def test_what_the_teacher_says_of_environment_tokens_changes_nothing(which: str, tmp_path: Path) -> None:
    batch, model = random_batch(9, context="append"), make_model()
    clean_trainer = make_distill(tmp_path, batch, model, distill_loss=which)
    (clean,) = window_gradients(clean_trainer)
    ((sub,),) = clean_trainer._generate_and_score_completions([rows_for()[0]] * 8)
    spoilt = make_distill(tmp_path, batch, model, distill_loss=which)
    poison(spoilt, sub)
    assert torch.equal(window_gradients(spoilt)[0], clean)


@pytest.mark.parametrize("which", ["full", "sampled"])
def test_hidden_states_before_environment_tokens_get_exactly_no_gradient_from_the_head(which: str, tmp_path: Path) -> None:
    trainer = make_distill(tmp_path, random_batch(9, context="append"), distill_loss=which)
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    ((sub,),) = trainer._generate_and_score_completions([rows_for()[0]] * 8)
    kept: dict[str, torch.Tensor] = {}

    def keep(module: Any, arguments: Any, output: Any) -> Any:
        output.last_hidden_state.retain_grad()
        kept["states"] = output.last_hidden_state
        return output

    handle = trainer.model.base_model.register_forward_hook(keep)
    trainer.compute_loss(trainer.model, [sub]).backward()
    handle.remove()
    mask = (sub["completion_mask"] * sub["tool_mask"]).bool()
    read = torch.zeros(kept["states"].shape[:2], dtype=torch.bool)
    read[:, -mask.shape[1] - 1 : -1] = mask
    moved = kept["states"].grad.abs().sum(dim=-1)
    assert torch.count_nonzero(moved[~read]) == 0 and (~mask & sub["completion_mask"].bool()).sum() > 20
    assert torch.count_nonzero(moved[read]) == read.sum()


@pytest.mark.parametrize("which", ["full", "sampled"])
def test_padding_and_batching_change_nothing(which: str, tmp_path: Path) -> None:
    batch, model = random_batch(10, context="mixed", empty=0.3), make_model()
    (one,) = window_gradients(make_distill(tmp_path, batch, model, distill_loss=which))
    for settings in ({"pad_to_multiple_of": 64}, {"max_tokens_per_microbatch": 1}):
        (other,) = window_gradients(make_distill(tmp_path, batch, model, distill_loss=which, **settings))
        assert relative_error(other, one) < EXACT, settings


def test_cut_off_actions_and_faults_are_left_out(tmp_path: Path) -> None:
    batch, model = random_batch(14, context="mixed"), make_model()
    last = batch[0].steps[-1]
    batch[0] = replace(batch[0], steps=(*batch[0].steps[:-1], replace(last, stop_reason=StopReason.ENV_FAULT)))
    (got,) = window_gradients(make_distill(tmp_path, batch, model, mask_truncated_steps=True))
    kept = [replace(item, steps=tuple(step for step in item.steps if step.finish_reason != "length")) for item in batch[1:]]
    assert relative_error(got, full_by_hand(model, teacher_model(), kept)[0]) < EXACT


def test_a_batch_without_any_action_has_gradient_zero_and_no_nan(tmp_path: Path) -> None:
    for which in ("full", "sampled"):
        trainer = make_distill(tmp_path, random_batch(17, empty=1.0), distill_loss=which)
        with pytest.warns(UserWarning, match="no group of this generation batch"):
            (got,) = window_gradients(trainer)
        assert not got.any()
        assert all(np.isfinite(values).all() for name, values in trainer._metrics["train"].items() if name.startswith("distill/"))


def test_equal_rewards_are_no_want_of_signal(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    (got,) = window_gradients(make_distill(tmp_path, random_batch(18, reward=1.0)))
    assert got.norm() > 1e-3 and not [one for one in recwarn if "no group" in str(one.message)]


def test_impossible_tokens_leave_everything_finite() -> None:
    """A model that forbids tokens has logits of minus infinity."""
    student, teacher = make_model(), make_model(seed=1)
    states = torch.randn(5, 16, dtype=torch.float64, requires_grad=True)

    class Forbidding(Head):
        def __call__(self, states: torch.Tensor) -> torch.Tensor:
            logits = self.causal.get_output_embeddings()(states).index_fill(1, torch.tensor([3]), -torch.inf)
            return torch.log_softmax(logits, -1).clamp(min=divergence_module._LOWEST)

    for own, other in (
        (Forbidding(student), Head(teacher)),
        (Head(student), Forbidding(teacher)),
        (Forbidding(student), Forbidding(teacher)),
    ):
        divergence, _ = reverse_kl(own, states, other, torch.randn(5, 16, dtype=torch.float64), torch.tensor([0, 1, 2, 4, 5]), 2)
        divergence.sum().backward()
        assert states.grad is not None and torch.isfinite(states.grad).all() and torch.isfinite(divergence).all()


# ------------------------------------------------------------------------------------------------ broken versions


def _forward(head: Any, states: Any, teacher_head: Any, teacher_states: Any, targets: Any, chunk: int) -> Any:
    student, teacher = head(states), teacher_head(teacher_states).detach()
    return (teacher.exp() * (teacher - student)).sum(-1), divergence_module._say(teacher, targets)


def forward_divergence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(distill_module, "reverse_kl", _forward)


def over_environment_tokens(patch: pytest.MonkeyPatch) -> None:
    collate = distill_module.AgentDistillTrainer._sub_batch_loss

    def wrong(self: Any, model: Any, sub: Any, passes: int, figures: Any) -> Any:
        return collate(self, model, {**sub, "tool_mask": torch.ones_like(sub["tool_mask"])}, passes, figures)

    patch.setattr(distill_module.AgentDistillTrainer, "_sub_batch_loss", wrong)


def shifted_by_one(patch: pytest.MonkeyPatch) -> None:
    states = ModelTeacher.states

    def wrong(self: Any, ids: Any, attention: Any, scored: Any) -> Any:
        moved = torch.cat([ids[:, 1:], ids[:, -1:]], dim=1)
        return states(self, moved, attention, scored)

    patch.setattr(ModelTeacher, "states", wrong)


def read_at_the_token_itself(patch: pytest.MonkeyPatch) -> None:
    def wrong(causal: Any, ids: Any, attention: Any, scored: Any) -> Any:
        return causal.base_model(input_ids=ids, attention_mask=attention).last_hidden_state[:, -scored.shape[1] :][scored]

    from agent_gym.trainers import teacher

    patch.setattr(teacher, "hidden_states", wrong)


def teacher_temperature_ignored(patch: pytest.MonkeyPatch) -> None:
    make = distill_module.make_teacher
    patch.setattr(distill_module, "make_teacher", lambda *args, **keywords: make(*args, **{**keywords, "temperature": 1.0}))


def student_temperature_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(distill_module, "Head", lambda causal, temperature: Head(causal, 1.0))


def teacher_counts_twice(patch: pytest.MonkeyPatch) -> None:
    add = distill_module.AgentDistillTrainer._add_own_loss
    patch.setattr(distill_module.AgentDistillTrainer, "_add_own_loss", lambda self, loss, sub, mask: 2.0 * add(self, loss, sub, mask))


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "forward instead of reverse": forward_divergence,
    "over environment tokens": over_environment_tokens,
    "shifted by one": shifted_by_one,
    "read at the token itself": read_at_the_token_itself,
    "the teacher's temperature ignored": teacher_temperature_ignored,
    "the student's temperature ignored": student_temperature_ignored,
    "counted twice": teacher_counts_twice,
}


@pytest.mark.parametrize("name", [None, *MUTANTS])
def test_broken_versions_have_another_gradient(name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, model = random_batch(20, context="append"), make_model()
    temperatures = {"temperature": 0.8, "teacher_temperature": 1.4}
    wanted, _ = full_by_hand(model, teacher_model(), batch, temperature=0.8, teacher_temperature=1.4)
    if name is not None:
        MUTANTS[name](monkeypatch)
    (got,) = window_gradients(make_distill(tmp_path, batch, model, **temperatures))
    if name is None:
        assert relative_error(got, wanted) < EXACT
    else:
        assert relative_error(got, wanted) > 1e-2
    forward, _ = full_by_hand(model, teacher_model(), batch, temperature=0.8, teacher_temperature=1.4, forward=True)
    assert (relative_error(got, forward) < EXACT) == (name == "forward instead of reverse")


def is_cut(trainer: AgentDistillTrainer) -> bool:
    """Whether nothing that is trained reaches the teacher."""
    assert isinstance(trainer.teacher, ModelTeacher)
    window_gradients(trainer)
    return all(one.grad is None and not one.requires_grad for one in trainer.teacher.model.parameters())


def test_the_teacher_gets_no_gradient_also_where_it_was_handed_over_trainable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = random_batch(21, context="mixed")
    given = teacher_model().train()
    assert all(one.requires_grad for one in given.parameters())
    assert is_cut(make_distill(tmp_path, batch, teacher=given)) and not given.training

    def uncut(self: Any, ids: Any, attention: Any, scored: Any) -> Any:  # a mutant that forgets to cut
        self.model.requires_grad_(True)
        states = self._causal.base_model(input_ids=ids, attention_mask=attention).last_hidden_state
        return states[:, -scored.shape[1] - 1 : -1][scored]

    monkeypatch.setattr(ModelTeacher, "states", uncut)
    assert not is_cut(make_distill(tmp_path, batch, teacher=teacher_model()))
