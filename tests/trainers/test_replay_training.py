"""Training on replayed episodes: their gradient, the weights of the correction, the mixture, and runs that can be repeated and resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_training import (
    gradient,
    make_model,
    make_tokenizer,
    make_trainer,
    random_batch,
    random_trajectory,
    relative_error,
    window_gradients,
)

from agent_gym.chat import tokenizer_fingerprint
from agent_gym.trainers.advantages import get_advantage
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trainers.metrics import describe
from agent_gym.trainers.replay import ReplayBuffer
from agent_gym.trajectory import Trajectory
from agent_gym.trajectory_io import save_trajectories

EXACT = 1e-6
MINE = tokenizer_fingerprint(make_tokenizer())


def logps(model: Any, context: Sequence[int], action: Sequence[int]) -> torch.Tensor:
    logits = model(input_ids=torch.tensor([[*context, *action]])).logits[0, len(context) - 1 : -1]
    return torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(list(action))[:, None])[:, 0]


def sampled_by(model: Any, trajectories: Sequence[Trajectory], version: int = 0) -> list[Trajectory]:
    """The same episodes with the log-probabilities that this model gives their actions."""
    found = []
    for one in trajectories:
        steps = []
        for step in one.steps:
            with torch.no_grad():
                values = logps(model, step.observation_ids.tolist(), step.action_ids.tolist()).numpy()
            steps.append(replace(step, logprobs=values.astype(np.float32), policy_version=version))
        found.append(replace(one, steps=steps, tokenizer_fingerprint=MINE))
    return found


def replayed(trajectories: Sequence[Trajectory], **options: Any) -> ReplayBuffer:
    return ReplayBuffer({"saved": trajectories}, MINE, **options)


def flat(trainer: Any, examples: Any) -> list[Trajectory]:
    """Fresh episodes without any signal, left out of loss and denominator by drop_zero_variance."""
    return random_batch(99, reward=1.0)


def of_replay(folder: Path, buffer: ReplayBuffer, model: Any, **settings: Any) -> torch.Tensor:
    """The gradient of a batch that has nothing but what is replayed."""
    trainer = make_trainer(folder, flat, model, replay=buffer, drop_zero_variance=True, replay_ratio=100.0, **settings)
    (found,) = window_gradients(trainer)
    assert {one.task_id for one in trainer.replayed} and all(one.group_id.startswith("replay-") for one in trainer.replayed)
    return found


@pytest.mark.parametrize("context", ["append", "mixed"])
@pytest.mark.parametrize("loss_type", ["dapo", "cispo"])
@pytest.mark.parametrize("correction", ["token_truncate", "step_truncate"])
def test_a_replayed_row_has_the_gradient_of_the_fresh_row_at_the_same_weights(
    context: str, loss_type: str, correction: Any, tmp_path: Path
) -> None:
    model = make_model()
    batch = sampled_by(model, random_batch(1, groups=2, size=2, context=context))
    (fresh,) = window_gradients(make_trainer(tmp_path, batch, model, loss_type=loss_type, drop_zero_variance=True))
    again = of_replay(tmp_path, replayed(batch, correction=correction), model, loss_type=loss_type)
    assert float(fresh.norm()) > 1e-3
    assert relative_error(again, fresh) < EXACT


def by_hand(model: Any, buffer: Sequence[Trajectory], mode: str, clip: float, imitate: bool = False) -> torch.Tensor:
    """Minus the mean over action tokens of weight times advantage times log-probability; the weights from the stored log-probabilities."""
    advantages = [[1.0] * len(one.steps) for one in buffer] if imitate else get_advantage("grpo")(buffer)
    count = sum(len(step.action_ids) for one in buffer for step in one.steps)
    total: Any = 0.0
    model.zero_grad()
    for one, values in zip(buffer, advantages, strict=True):
        for step, value in zip(one.steps, values, strict=True):
            now = logps(model, step.observation_ids.tolist(), step.action_ids.tolist())
            weight: Any = 1.0
            if not imitate:
                difference = now.detach() - torch.tensor(np.asarray(step.logprobs, dtype=np.float64))
                ratio = difference.exp() if mode == "token_truncate" else difference.sum().exp()
                weight = ratio.clamp(max=clip)
            total = total - (weight * float(value) * now).sum() / count
    total.backward()
    found = gradient(model)
    model.zero_grad()
    return found


@pytest.mark.parametrize("correction", ["token_truncate", "step_truncate"])
@pytest.mark.parametrize("clip", [0.8, 2.0])
def test_the_weights_of_the_correction_are_those_computed_by_hand(correction: Any, clip: float, tmp_path: Path) -> None:
    model, older = make_model(seed=0), make_model(seed=1)
    batch = sampled_by(older, random_batch(2, groups=2, size=3))
    ratios = [
        float((logps(model, step.observation_ids.tolist(), step.action_ids.tolist()).detach() - torch.tensor(step.logprobs)).exp().max())
        for one in batch
        for step in one.steps
    ]
    assert min(ratios) < clip < max(ratios)  # the cap matters, and does not hold for all
    expected = by_hand(model, batch, correction, clip)
    found = of_replay(tmp_path, replayed(batch, correction=correction), model, is_clip=clip)
    assert relative_error(found, expected) < EXACT
    other = "step_truncate" if correction == "token_truncate" else "token_truncate"
    for mutant in (
        by_hand(model, batch, other, clip),
        by_hand(model, batch, correction, 1e9),
        by_hand(model, batch, correction, 0.5 * clip),
    ):
        assert relative_error(found, mutant) > 1e-3


def test_fresh_rows_are_corrected_by_their_own_setting_and_not_by_that_of_the_replayed(tmp_path: Path) -> None:
    model, older = make_model(seed=0), make_model(seed=1)
    fresh, old = sampled_by(older, random_batch(3, groups=4, size=2)), sampled_by(older, random_batch(4, groups=2, size=3))
    trainer = make_trainer(tmp_path, fresh, model, replay=replayed(old), replay_ratio=0.75, is_correction="none")
    (found,) = window_gradients(trainer)
    assert len(trainer.replayed) == 6
    counts = [sum(len(step.action_ids) for one in batch for step in one.steps) for batch in (fresh, old)]
    (alone,) = window_gradients(make_trainer(tmp_path, fresh, model, is_correction="none"))
    corrected = by_hand(model, old, "token_truncate", 2.0)
    expected = (counts[0] * alone + counts[1] * corrected) / sum(counts)
    assert relative_error(found, expected) < EXACT


def test_imitation_is_the_mean_log_likelihood_of_the_actions(tmp_path: Path) -> None:
    model = make_model()
    batch = [replace(one, tokenizer_fingerprint=MINE) for one in random_batch(5, groups=2, size=2, logprobs=False)]
    found = of_replay(tmp_path, replayed(batch, correction="imitation"), model)
    assert relative_error(found, by_hand(model, batch, "token_truncate", 2.0, imitate=True)) < EXACT


# ---------------------------------------------------------------------------------------------------- runs


def play(trainer: AgentGRPOTrainer, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
    made = []
    for number, example in enumerate(examples):
        rng = np.random.default_rng([trainer.state.global_step, number, example["seed"], trainer.mode == "eval"])
        made.append(replace(random_trajectory(rng, "x", context="mixed"), group_id="", task_id=f"seed-{example['seed']}"))
    return made


def files(folder: Path, versions: Sequence[int] = (0, 1, 2, 3)) -> list[str]:
    older = make_model(seed=1)
    paths = []
    for version in versions:
        batch = sampled_by(older, random_batch(10 + version, groups=2, size=2, context="mixed"), version)
        paths.append(str(save_trajectories(folder / f"batch{version}.jsonl", batch)))
    return paths


def weights(model: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().reshape(-1).double() for parameter in model.parameters()])


def run(folder: Path, paths: Sequence[str] | None, resume: bool = False, **settings: Any) -> AgentGRPOTrainer:
    trainer = make_trainer(folder, play, replay_files=None if paths is None else list(paths), **{"max_steps": 4, **settings})
    trainer.train(resume_from_checkpoint=True if resume else None)
    return trainer


def test_a_run_replays_in_the_stated_proportion_says_how_old_and_moves_the_weights_again_alike(tmp_path: Path) -> None:
    paths = files(tmp_path)
    first, again = (run(tmp_path / name, paths, replay_ratio=0.5, replay_max_age=4) for name in ("one", "two"))
    assert torch.equal(weights(first.model), weights(again.model))
    assert relative_error(weights(first.model), weights(run(tmp_path / "three", None).model)) > 1e-5
    assert not torch.equal(weights(first.model), weights(run(tmp_path / "four", paths, replay_ratio=0.5, replay_max_age=4, seed=1).model))
    entries = [entry for entry in first.state.log_history if "reward" in entry]
    assert [entry["replay/episodes"] for entry in entries] == [4.0] * 4  # of 8 fresh ones
    assert [entry["replay/too_old"] for entry in entries] == [0.0, 0.0, 4.0, 8.0]  # of four versions, the first is 3 + updates old
    assert all(entry["replay/age_max"] <= 4 for entry in entries)
    assert entries[0]["replay/is_max"] > 1.5
    for entry in entries:
        assert all(describe(name) for name in entry)
        assert "is/mean" not in entry or entry["is/mean"] == pytest.approx(1.0, abs=3.0)


def test_what_is_all_too_old_is_not_replayed_and_the_run_goes_on(tmp_path: Path) -> None:
    found = run(tmp_path / "run", files(tmp_path, versions=[2]), replay_max_age=1, max_steps=3)
    entries = [entry for entry in found.state.log_history if "reward" in entry]
    assert [(entry["replay/episodes"], entry["replay/too_old"]) for entry in entries] == [(4, 0), (4, 0), (0, 4)]


def test_a_resumed_run_replays_what_it_would_have_replayed(tmp_path: Path) -> None:
    paths = files(tmp_path)
    settings = {"save_strategy": "steps", "save_steps": 2, "replay_ratio": 0.5}
    whole = run(tmp_path / "whole", paths, **settings)
    run(tmp_path / "cut", paths, max_steps=2, **settings)
    resumed = run(tmp_path / "cut", paths, resume=True, **settings)
    assert resumed.state.global_step == 4
    assert [one.task_id for one in resumed.replayed] == [one.task_id for one in whole.replayed]
    assert torch.equal(weights(resumed.model), weights(whole.model))


def test_several_windows_and_iterations_replay_too_and_evaluation_does_not(tmp_path: Path) -> None:
    settings = {"steps_per_generation": 2, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 4, "num_iterations": 2}
    rows = [{"env_id": "Toy", "seed": 1}] * 8
    trainer = make_trainer(tmp_path / "run", play, replay_files=files(tmp_path), max_steps=4, eval_dataset=rows, **settings)
    trainer.train()
    assert torch.isfinite(weights(trainer.model)).all()
    assert len(trainer.replayed) == 4
    figures = trainer.evaluate()
    assert not any("replay/" in name for name in figures)


def test_files_are_refused_before_the_run_begins(tmp_path: Path) -> None:
    strange = [replace(one, tokenizer_fingerprint="feedfeedfeedfeed") for one in random_batch(1)]
    path = save_trajectories(tmp_path / "strange.jsonl", strange)
    with pytest.raises(ValueError, match=r"strange\.jsonl, trajectory 0 .*feedfeedfeedfeed"):
        make_trainer(tmp_path, play, replay_files=[str(path)])
    with pytest.raises(ValueError, match="are two buffers"):
        make_trainer(tmp_path, play, replay_files=[str(path)], replay=replayed(sampled_by(make_model(), random_batch(1))))
    other = ReplayBuffer({"x": strange}, "feedfeedfeedfeed", correction="imitation")
    with pytest.raises(ValueError, match="the replay buffer speaks tokenizer feedfeedfeedfeed"):
        make_trainer(tmp_path, play, replay=other)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"replay_ratio": 0.0}, "replay_ratio=0.0 must be a positive number"),
        ({"replay_ratio": float("nan")}, "must be a positive number"),
        ({"replay_max_age": -1}, "replay_max_age=-1 must not be negative"),
        ({"replay_correction": "none"}, "replay_correction='none' is unknown; choose one of token_truncate"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        make_trainer(tmp_path, play, **settings)
