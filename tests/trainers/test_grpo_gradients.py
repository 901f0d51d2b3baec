"""The gradient: merged rows are separate rows, windows are token means, environment tokens are nothing, one-step episodes are stock GRPO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from toy_training import (
    CaptureGradients,
    gradient,
    make_args,
    make_model,
    make_tokenizer,
    make_trainer,
    random_batch,
    relative_error,
    rows_for,
    window_gradients,
)
from trl import GRPOConfig, GRPOTrainer

from agent_gym.trainers.advantages import Advantages, get_advantage
from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trajectory import Step, StopReason, Trajectory

EXACT = 1e-6


def per_action(
    values: Advantages, trajectories: list[Trajectory], trained: Any = lambda step: True
) -> list[tuple[list[int], list[int], float]]:
    """(context, action, advantage) of each trained action."""
    found = []
    for item, row in zip(trajectories, values, strict=True):
        for step, value in zip(item.steps, row, strict=True):
            if len(step.action_ids) and trained(step):
                found.append((step.observation_ids.tolist(), step.action_ids.tolist(), float(value)))
    return found


def hand_written_gradient(
    model: Any, actions: list[tuple[list[int], list[int], float]], weights: list[float] | None = None
) -> torch.Tensor:
    """The policy gradient as in a textbook: minus the mean over action tokens of advantage times log-probability, one action at a time."""
    model.zero_grad()
    count = sum(len(action) for _, action, _ in actions)
    total: Any = 0.0
    for number, (context, action, advantage) in enumerate(actions):
        logits = model(input_ids=torch.tensor([context + action])).logits[0, len(context) - 1 : -1]
        logps = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(action)[:, None])[:, 0]
        total = total - (1.0 / count if weights is None else weights[number]) * advantage * logps.sum()
    total.backward()
    result = gradient(model)
    model.zero_grad()
    return result


def off_policy(trainer: Any) -> list[torch.Tensor]:
    """Gradients of a generation batch whose old log-probabilities come from a model that has moved on since."""
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer.model.train()
    steps = trainer._generate_and_score_completions([rows_for()[0]] * trainer.args.per_device_train_batch_size)
    kept = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    with torch.no_grad():
        generator = torch.Generator().manual_seed(5)
        for parameter in trainer.model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    trainer.model.zero_grad()
    for micro_step in steps:
        assert all("old_per_token_logps" in sub for sub in micro_step)
        trainer.compute_loss(trainer.model, micro_step).backward()
    result = gradient(trainer.model)
    trainer.model.zero_grad()
    trainer.model.load_state_dict(kept)
    return [result]


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("context", ["append", "mixed"])
def test_merged_rows_have_the_gradient_of_separate_rows(family: str, context: str, tmp_path: Path) -> None:
    batch, model = random_batch(1, context=context), make_model(family)
    separate = window_gradients(make_trainer(tmp_path, batch, model, merge_prefix=False))[0]
    by_hand = hand_written_gradient(model, per_action(get_advantage("grpo")(batch), batch))
    assert relative_error(separate, by_hand) < EXACT
    ways: list[dict[str, Any]] = [
        {},
        {"max_tokens_per_microbatch": 24},
        {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_tokens_per_microbatch": 40},
    ]
    for way in ways:
        assert relative_error(window_gradients(make_trainer(tmp_path, batch, model, **way))[0], separate) < EXACT, way


@pytest.mark.parametrize("loss", [{"loss_type": "dapo"}, {"loss_type": "cispo", "epsilon_high": 1.05}], ids=["dapo", "cispo"])
@pytest.mark.parametrize("level", ["token", "step"])
def test_the_same_holds_off_policy_with_clipping(loss: dict[str, Any], level: str, tmp_path: Path) -> None:
    batch, model = random_batch(2, context="mixed"), make_model()
    settings = {**loss, "importance_sampling_level": level, "num_iterations": 2}
    merged = make_trainer(tmp_path, batch, model, **settings)
    one = off_policy(merged)[0]
    other = off_policy(make_trainer(tmp_path, batch, model, merge_prefix=False, max_tokens_per_microbatch=40, **settings))[0]
    assert relative_error(one, other) < EXACT
    figures = merged._metrics["train"]
    assert figures["cispo_clip_ratio" if loss["loss_type"] == "cispo" else "clip_ratio/region_mean"][-1] > 0.02
    if level == "step":
        per_token = off_policy(make_trainer(tmp_path, batch, model, **{**settings, "importance_sampling_level": "token"}))[0]
        assert relative_error(per_token, one) > 1e-3


@pytest.mark.parametrize("name", ["rloo", "reinforce", "reinforce_pp", "reinforce_pp_baseline", "gigpo", "rebn"])
def test_every_estimator_reaches_the_gradient_through_merged_rows(name: str, tmp_path: Path) -> None:
    batch, model = random_batch(3, context="mixed"), make_model()
    merged = window_gradients(make_trainer(tmp_path, batch, model, advantage=name, gamma=0.9))[0]
    by_hand = hand_written_gradient(model, per_action(get_advantage(name)(batch, gamma=0.9), batch))
    assert relative_error(merged, by_hand) < EXACT


@pytest.mark.parametrize("name", ["step_gae", "token_gae"])
def test_a_trainer_with_a_critic_passes_its_values_to_the_estimator(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, model = random_batch(4, context="mixed", logprobs=False, empty=0.2), make_model()
    rng = np.random.default_rng(0)
    values = [[rng.normal(size=len(step.action_ids)) if name == "token_gae" else rng.normal() for step in item.steps] for item in batch]
    critic = {"values": values, "bootstrap": [0.0] * len(batch)}
    usual = AgentGRPOTrainer._estimator_settings
    monkeypatch.setattr(AgentGRPOConfig, "has_critic", True)
    monkeypatch.setattr(AgentGRPOTrainer, "_estimator_settings", lambda self: {**usual(self), **critic})
    settings = {"advantage": name, "gamma": 0.9, "advantage_kwargs": {"lam_step": 0.8}}
    (got,) = window_gradients(make_trainer(tmp_path, batch, model, **settings))
    advantages = get_advantage(name)(batch, gamma=0.9, lam_step=0.8, **critic)
    tensors = [[torch.as_tensor(np.asarray(value)) for value in item] for item in advantages]
    assert relative_error(got, corrected_by_hand(model, batch, tensors, "token_truncate", 1.0)) < EXACT


@pytest.mark.parametrize("level", ["trajectory", "step"])
def test_level_weights_are_the_means_they_name(level: str, tmp_path: Path) -> None:
    batch, model = random_batch(4, context="mixed"), make_model()
    actions = per_action(get_advantage("grpo")(batch), batch)
    if level == "step":
        weights = [1.0 / (len(actions) * len(action)) for _, action, _ in actions]
    else:
        tokens = [sum(len(step.action_ids) for step in item.steps) for item in batch for _ in item.steps]
        weights = [1.0 / (len(batch) * count) for count in tokens]
    by_hand = hand_written_gradient(model, actions, weights)
    for merge in (True, False):
        got = window_gradients(make_trainer(tmp_path, batch, model, loss_level=level, merge_prefix=merge))[0]
        assert relative_error(got, by_hand) < EXACT
    assert relative_error(hand_written_gradient(model, actions), by_hand) > 1e-3


@pytest.mark.parametrize("level", ["token", "step"])
@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_each_optimiser_window_is_a_mean_over_its_own_whole_episodes(accumulation: int, level: str, tmp_path: Path) -> None:
    batch, model = random_batch(5, groups=8, context="mixed"), make_model()
    shape = {"per_device_train_batch_size": 4, "steps_per_generation": 4, "gradient_accumulation_steps": accumulation}
    trainer = make_trainer(tmp_path, batch, model, loss_level=level, **shape)
    gradients = window_gradients(trainer)
    assert len(gradients) == 4 // accumulation
    values = get_advantage("grpo")(batch)
    steps = trainer._generate_and_score_completions([rows_for()[0]] * 16)
    seen = []
    for number, window in enumerate(gradients):
        mine = episodes_in(steps[number * accumulation : (number + 1) * accumulation], batch)
        seen += mine
        picked = [batch[index] for index in mine]
        actions = per_action([values[index] for index in mine], picked)
        weights = None if level == "token" else [1.0 / (len(actions) * len(action)) for _, action, _ in actions]
        assert relative_error(window, hand_written_gradient(model, actions, weights)) < EXACT
    assert sorted(seen) == list(range(len(batch)))


def episodes_in(micro_steps: Any, batch: list[Trajectory]) -> list[int]:
    """Which episodes a window holds, found by looking each one's first action up in the rows."""
    texts = [
        " ".join(map(str, ids[mask.bool()].tolist()))
        for micro_step in micro_steps
        for sub in micro_step
        for ids, mask in zip(
            torch.cat([sub["prompt_ids"], sub["completion_ids"]], 1),
            torch.cat([sub["prompt_mask"], sub["completion_mask"]], 1),
            strict=True,
        )
    ]
    found = []
    for index, item in enumerate(batch):
        needle = " ".join(map(str, [*item.steps[0].observation_ids.tolist(), *item.steps[0].action_ids.tolist()]))
        if any(text.startswith(needle) for text in texts):
            found.append(index)
    return found


@pytest.mark.parametrize(
    "settings", [{"num_iterations": 2}, {"num_iterations": 3, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}]
)
def test_old_log_probabilities_are_there_exactly_where_samples_outlive_an_update(settings: dict[str, Any], tmp_path: Path) -> None:
    batch = random_batch(6)
    trainer = make_trainer(tmp_path, batch, **settings)
    steps = trainer._generate_and_score_completions([rows_for()[0]] * 8)
    assert all("old_per_token_logps" in sub for step in steps for sub in step)
    on_policy = make_trainer(tmp_path, batch, per_device_train_batch_size=4, gradient_accumulation_steps=2)
    steps = on_policy._generate_and_score_completions([rows_for()[0]] * 8)
    assert not any("old_per_token_logps" in sub for step in steps for sub in step)


def test_the_first_window_has_ratio_one_and_later_ones_do_not(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, random_batch(7, logprobs=False), num_iterations=3, max_steps=3, loss_type="cispo", epsilon_high=1.0001)
    trainer.train()
    shares = [entry["cispo_clip_ratio"] for entry in trainer.state.log_history if "cispo_clip_ratio" in entry]
    assert shares[0] == 0.0
    assert max(shares[1:]) > 0.0


def test_an_aligned_run_gives_the_gradient_of_one_with_stored_old_log_probabilities(tmp_path: Path) -> None:
    batch, model = random_batch(8, context="mixed"), make_model()
    plain = window_gradients(make_trainer(tmp_path, batch, model))[0]
    stored = window_gradients(make_trainer(tmp_path, batch, model, num_iterations=2))[0]
    assert relative_error(stored, plain) < EXACT


def test_environment_tokens_get_exactly_zero_and_poison_on_them_changes_nothing(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, random_batch(9, context="append"))
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    ((sub,),) = trainer._generate_and_score_completions([rows_for()[0]] * 8)
    scored: dict[str, torch.Tensor] = {}
    score = trainer._score

    def keep(model: Any, batch: Any) -> Any:
        logps, entropies, aux = score(model, batch)
        scored["logps"] = logps
        logps.retain_grad()
        return logps, entropies, aux

    trainer._score = keep
    trainer.compute_loss(trainer.model, [sub]).backward()
    mask = (sub["tool_mask"] * sub["completion_mask"]).bool()
    assert (~mask & sub["completion_mask"].bool()).sum() > 20
    assert torch.count_nonzero(scored["logps"].grad[~mask]) == 0
    expected = -sub["advantages"][mask].double() / mask.sum()
    assert torch.allclose(scored["logps"].grad[mask].double(), expected, rtol=1e-6)
    clean = gradient(trainer.model)
    trainer.model.zero_grad()
    sub["advantages"] = torch.where(mask, sub["advantages"], torch.full_like(sub["advantages"], 1e6))
    trainer.compute_loss(trainer.model, [sub]).backward()
    assert torch.equal(gradient(trainer.model), clean)


def test_the_poison_check_notices_a_mask_that_leaks(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, random_batch(9, context="append"))
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    ((sub,),) = trainer._generate_and_score_completions([rows_for()[0]] * 8)
    trainer.compute_loss(trainer.model, [sub]).backward()
    clean = gradient(trainer.model)
    trainer.model.zero_grad()
    mask = sub["tool_mask"].bool()
    sub["advantages"] = torch.where(mask, sub["advantages"], torch.full_like(sub["advantages"], 1e6))
    sub["tool_mask"] = torch.ones_like(sub["tool_mask"])
    trainer.compute_loss(trainer.model, [sub]).backward()
    assert relative_error(gradient(trainer.model), clean) > 1.0


def test_every_action_token_is_dealt_exactly_once(tmp_path: Path) -> None:
    """Ten rows over four micro-steps: TRL's own split would keep eight."""
    batch = random_batch(10, groups=5, context="append", max_steps=3)
    assert len(batch) == 10
    trainer = make_trainer(tmp_path, batch, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    steps = trainer._generate_and_score_completions([rows_for()[0]] * 8)
    tokens = sum(int((sub["tool_mask"] * sub["completion_mask"]).sum()) for step in steps for sub in step)
    assert tokens == sum(len(step.action_ids) for item in batch for step in item.steps)
    total = sum(float(sub["advantages"].sum()) for step in steps for sub in step)
    values = get_advantage("grpo")(batch)
    expected = sum(
        float(v) * len(s.action_ids) for item, row in zip(batch, values, strict=True) for s, v in zip(item.steps, row, strict=True)
    )
    assert total == pytest.approx(expected, abs=1e-4)


def one_step_batch() -> list[Trajectory]:
    batch = random_batch(11, groups=4, max_steps=1, logprobs=False)
    return [
        replace(item, steps=(replace(item.steps[0], reward=float(reward)),))
        for item, reward in zip(batch, [1, 0, 0.5, 0.2, 1, 1, -1, 3], strict=True)
    ]


@pytest.mark.parametrize("loss", [{"loss_type": "dapo"}, {"loss_type": "cispo", "epsilon_high": 5.0}], ids=["dapo", "cispo"])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_on_one_step_episodes_the_gradient_is_stock_grpo(loss: dict[str, Any], accumulation: int, tmp_path: Path) -> None:
    batch = one_step_batch()
    shape = {"per_device_train_batch_size": 8 // accumulation, "gradient_accumulation_steps": accumulation, **loss}
    ours = CaptureGradients()
    make_trainer(tmp_path, batch, make_model(), callbacks=[ours], **shape).train()

    def rollouts(prompts: Any, trainer: Any) -> dict[str, Any]:
        steps = [item.steps[0] for item in batch]
        return {
            "prompt_ids": [step.observation_ids.tolist() for step in steps],
            "completion_ids": [step.action_ids.tolist() for step in steps],
            "logprobs": None,
        }

    settings = make_args(tmp_path, **shape).to_dict()
    common = (
        "output_dir",
        "use_cpu",
        "report_to",
        "num_generations",
        "learning_rate",
        "max_steps",
        "max_grad_norm",
        "seed",
        "log_level",
        *shape,
    )
    args = GRPOConfig(
        **{name: settings[name] for name in common}, bf16=False, activation_checkpointing=False, save_strategy="no", disable_tqdm=True
    )
    stock = CaptureGradients()
    GRPOTrainer(
        make_model(),
        reward_funcs=lambda completions, **_: [item.total_reward for item in batch],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": ["w1"] * 64}),
        processing_class=make_tokenizer(),
        rollout_func=rollouts,
        callbacks=[stock],
    ).train()
    assert len(ours.gradients) == len(stock.gradients) == 1
    assert stock.gradients[0].norm() > 0.1
    assert relative_error(ours.gradients[0], stock.gradients[0]) < EXACT


@pytest.mark.parametrize("settings", [{}, {"drop_zero_variance": True}])
def test_zero_variance_groups_count_in_the_denominator_unless_they_are_dropped(settings: dict[str, Any], tmp_path: Path) -> None:
    batch, model = random_batch(12), make_model()
    batch[:2] = random_batch(13, groups=1, reward=1.0)
    flat = batch[:2]
    got = window_gradients(make_trainer(tmp_path, batch, model, **settings))[0]
    rest = per_action(get_advantage("grpo")(batch)[2:], batch[2:])
    idle = sum(len(step.action_ids) for item in flat for step in item.steps)
    count = sum(len(action) for _, action, _ in rest) + (0 if settings else idle)
    assert relative_error(got, hand_written_gradient(model, rest, [1.0 / count] * len(rest))) < EXACT
    assert got.norm() > 0


def test_cut_off_actions_leave_numerator_and_denominator(tmp_path: Path) -> None:
    batch, model = random_batch(14, context="mixed"), make_model()
    ended = [step.finish_reason != "length" for item in batch for step in item.steps]
    assert 0 < sum(ended) < len(ended)
    actions = per_action(get_advantage("grpo")(batch), batch, lambda step: step.finish_reason != "length")
    for merge in (True, False):
        got = window_gradients(make_trainer(tmp_path, batch, model, mask_truncated_steps=True, merge_prefix=merge))[0]
        assert relative_error(got, hand_written_gradient(model, actions)) < EXACT


def test_empty_actions_change_nothing(tmp_path: Path) -> None:
    batch, model = random_batch(15, context="mixed", empty=0.4, max_steps=5), make_model()
    assert any(not len(step.action_ids) for item in batch for step in item.steps)
    got = window_gradients(make_trainer(tmp_path, batch, model))[0]
    assert relative_error(got, hand_written_gradient(model, per_action(get_advantage("grpo")(batch), batch))) < EXACT


def test_faults_and_nan_rewards_are_out_of_the_group_and_of_the_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    batch, model = random_batch(16, groups=3, size=3), make_model()
    last = batch[0].steps[-1]
    batch[0] = replace(batch[0], steps=(*batch[0].steps[:-1], replace(last, stop_reason=StopReason.ENV_FAULT)))
    batch[4] = replace(batch[4], steps=(*batch[4].steps[:-1], replace(batch[4].steps[-1], reward=float("nan"))))
    left = [item for number, item in enumerate(batch) if number not in (0, 4)]
    trainer = make_trainer(tmp_path, batch, model, per_device_train_batch_size=9, num_generations=3)
    got = window_gradients(trainer)[0]
    assert f"fault nonfinite_reward: task '{batch[4].task_id}' of Toy gave a reward that is not finite" in caplog.text
    assert relative_error(got, hand_written_gradient(model, per_action(get_advantage("grpo")(left), left))) < EXACT
    figures = trainer._metrics["train"]
    assert figures["rollout/faults"] == [1.0]
    assert figures["rollout/faults/Toy"] == [1.0]
    assert figures["rollout/nonfinite_rewards"] == [1.0]


def lone(trajectories: list[Trajectory]) -> list[Trajectory]:
    return [replace(item, group_id=f"alone-{number}") for number, item in enumerate(trajectories)]


NOTHING: dict[str, Any] = {
    "zero variance": lambda: random_batch(17, reward=1.0),
    "one member": lambda: lone(random_batch(17)),
    "all masked": lambda: [
        replace(item, steps=[replace(step, finish_reason="length") for step in item.steps]) for item in random_batch(17)
    ],
    "all empty": lambda: random_batch(17, empty=1.0),
    "all faults": lambda: random_batch(17, end_reason=StopReason.ENV_FAULT),
}


@pytest.mark.parametrize("case", sorted(NOTHING))
@pytest.mark.parametrize("drop", [True, False])
def test_a_batch_without_signal_has_gradient_zero_and_no_nan(case: str, drop: bool, tmp_path: Path) -> None:
    trainer = make_trainer(
        tmp_path,
        NOTHING[case](),
        drop_zero_variance=drop,
        mask_truncated_steps=True,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
    )
    with pytest.warns(UserWarning, match="the update is skipped"):
        (got,) = window_gradients(trainer)
    assert not got.any()
    for name, values in trainer._metrics["train"].items():
        if not name.startswith(("reward", "rollout/")) or "frac" in name:
            assert np.isfinite(values).all(), name


def test_padding_equal_to_the_end_of_turn_changes_nothing(tmp_path: Path) -> None:
    batch, model = random_batch(18, context="mixed"), make_model()
    plain = window_gradients(make_trainer(tmp_path, batch, model))[0]
    trainer = make_trainer(tmp_path, batch, model)
    trainer._tokenizer.pad_token = trainer._tokenizer.eos_token
    assert torch.equal(window_gradients(trainer)[0], plain)


def test_the_correction_for_the_sampler_is_folded_into_the_advantage_and_survives_merging(tmp_path: Path) -> None:
    batch, model = random_batch(19, context="mixed"), make_model()
    batch[0] = replace(batch[0], steps=[replace(step, logprobs=np.full(len(step.action_ids), np.nan)) for step in batch[0].steps])
    batch[1] = replace(batch[1], steps=[replace(step, logprobs=None) for step in batch[1].steps])
    values = get_advantage("grpo")(batch)
    for mode in ("token_truncate", "step_truncate"):
        merged = window_gradients(make_trainer(tmp_path, batch, model, is_correction=mode, is_clip=1.5))[0]
        separate = window_gradients(make_trainer(tmp_path, batch, model, is_correction=mode, is_clip=1.5, merge_prefix=False))[0]
        stored = window_gradients(make_trainer(tmp_path, batch, model, is_correction=mode, is_clip=1.5, num_iterations=2))[0]
        assert relative_error(merged, separate) < EXACT
        assert relative_error(stored, separate) < EXACT
        assert relative_error(merged, corrected_by_hand(model, batch, values, mode, 1.5)) < EXACT


def corrected_by_hand(model: Any, batch: list[Trajectory], values: Any, mode: str, clip: float) -> torch.Tensor:
    model.zero_grad()
    count, total = 0, torch.zeros((), dtype=torch.float64)
    for item, row in zip(batch, values, strict=True):
        for step, value in zip(item.steps, row, strict=True):
            context, action = step.observation_ids.tolist(), step.action_ids.tolist()
            logits = model(input_ids=torch.tensor([context + action])).logits[0, len(context) - 1 : -1]
            logps = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(action)[:, None])[:, 0]
            sampled = torch.full((len(action),), float("nan")) if step.logprobs is None else torch.tensor(np.array(step.logprobs))
            gap = torch.nan_to_num(logps.detach() - sampled.double(), nan=0.0)
            weight = torch.exp(gap.sum() if mode == "step_truncate" else gap).clamp(max=clip)
            total = total - (value * weight * logps).sum()
            count += len(action)
    (total / count).backward()
    result = gradient(model)
    model.zero_grad()
    return result


def test_the_first_row_starts_with_the_reset_observation(tmp_path: Path) -> None:
    step = Step([7, 8, 9], [10, 11], reward=1.0, terminated=True, stop_reason=StopReason.ANSWER)
    batch = [Trajectory(group_id="g", steps=[replace(step, reward=float(number))]) for number in range(2)]
    trainer = make_trainer(tmp_path, batch, per_device_train_batch_size=2)
    ((sub,),) = trainer._generate_and_score_completions([rows_for()[0]] * 2)
    assert sub["prompt_ids"].tolist() == [[7, 8, 9]] * 2
    assert sub["completion_ids"].tolist() == [[10, 11]] * 2


def test_mixed_precision_keeps_the_gradient_and_float32_log_probabilities(tmp_path: Path) -> None:
    batch = random_batch(20, context="mixed")
    exact = window_gradients(make_trainer(tmp_path, batch, make_model(dtype=torch.float32)))[0]
    trainer = make_trainer(tmp_path, batch, make_model(dtype=torch.float32), bf16=True)
    ((sub,),) = trainer._generate_and_score_completions([rows_for()[0]] * 8)
    assert trainer._score(trainer.model, sub)[0].dtype == torch.float32
    assert 1e-6 < relative_error(window_gradients(trainer)[0], exact) < 0.05
