"""Imitation for environments that are played by commands: what is recorded, what is learned from it, when it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.chat import load_tokenizer
from agent_gym.envs.commands import CommandEnv, Opening, Reply
from agent_gym.trainers.imitation import (
    IGNORED,
    Demonstration,
    Expert,
    ImitationConfig,
    ImitationProgress,
    Turn,
    WarmStartFailed,
    imitate,
    own_expert,
    pack,
    predictions,
    record_demonstrations,
    shuffled,
)
from agent_gym.trainers.tiny_model import TinyShape, build_tiny_model

SMALL = TinyShape(hidden_size=16, layers=1, heads=1, head_size=16, feed_forward_size=16)
QUICK = ImitationConfig(
    copy_steps=2,
    copy_entries=4,
    batch_size=4,
    warmup_steps=1,
    report_every=1,
    steps=2,
    decay_steps=1,
    success_at_least=0.2,
    more_steps=1,
    max_steps=6,
)
DOORS = ("red", "green", "blue")


class Doors(CommandEnv):
    """Open the door that the task names; whatever else is opened leads nowhere, and cannot be opened again."""

    splits: ClassVar[tuple[str, ...]] = ("train", "test")

    def __init__(self, *, show: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.show = show

    def _start(self, options: dict[str, Any]) -> Opening:
        self.tried: list[str] = []
        self.door = DOORS[self.np_random.integers(len(DOORS))]
        self.task_id = self.door
        return Opening(f"open the {self.door} door", "You stand before three doors.")

    def _play(self, command: str) -> Reply:
        won, valid = command == f"open {self.door}", command in self._admissible()
        self.tried.append(command)
        return Reply("It opens." if won else "Nothing.", float(won), won, won, valid)

    def _admissible(self) -> list[str]:
        return [command for command in (f"open {door}" for door in DOORS) if self.show and command not in self.tried]

    def _next_command(self) -> str:
        return f"open {self.door}"


@pytest.fixture(scope="module")
def env_id() -> str:
    if "Test/Doors-v0" not in gymnasium.registry:
        gymnasium.register("Test/Doors-v0", entry_point=Doors)
    return "Test/Doors-v0"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer("default")


def record(
    env_id: str, tokenizer: Any, slip: float, seed: int = 0, episodes: int = 30, show: bool = True, expert: Expert = own_expert
) -> list[Demonstration]:
    keywords = {"action_format": "line", "context": "append", "max_turns": 5, "split": "train", "show": show}
    return record_demonstrations(env_id, keywords, episodes, slip=slip, seed=seed, expert=expert, tokenizer=tokenizer)


def said(demonstration: Demonstration) -> list[str]:
    return [step.info["command"] for step in demonstration.trajectory.steps]


def test_the_clumsy_expert_means_the_right_command_and_slips_to_known_ones(env_id: str, tokenizer: Any) -> None:
    recorded = record(env_id, tokenizer, slip=0.6)
    flags = [flag for one in recorded for flag in one.meant]
    assert 0.2 < np.mean(flags) < 0.7
    for one in recorded:
        assert len(one.meant) == len(one.trajectory)
        for command, meant in zip(said(one), one.meant, strict=True):
            assert command == f"open {one.trajectory.task_id}" if meant else command in {f"open {door}" for door in DOORS}


def test_without_slips_the_expert_plays(env_id: str, tokenizer: Any) -> None:
    assert all(one.meant == (True,) and one.trajectory.is_success for one in record(env_id, tokenizer, slip=0.0))
    assert not any(any(one.meant) for one in record(env_id, tokenizer, slip=1.0))
    assert all(said(one) == [f"open {one.trajectory.task_id}"] for one in record(env_id, tokenizer, slip=1.0, show=False))


def test_a_slip_may_be_a_command_that_is_not_admissible_any_more(env_id: str, tokenizer: Any) -> None:
    valid = [step.info["action_valid"] for one in record(env_id, tokenizer, slip=1.0) for step in one.trajectory.steps]
    assert 0.2 < np.mean(valid) < 0.9


def test_words_of_an_expert_stand_before_its_command_and_before_its_slip(env_id: str, tokenizer: Any) -> None:
    def thinker(env: Any, rng: np.random.Generator) -> Any:
        return lambda info: Turn(f"turn {env.turn}\nopen {env.door}", f"turn {env.turn}\nopen nothing")

    recorded = record(env_id, tokenizer, slip=0.5, expert=thinker)
    for one in recorded:
        for turn, (step, meant) in enumerate(zip(one.trajectory.steps, one.meant, strict=True)):
            command = f"open {one.trajectory.task_id}" if meant else "open nothing"
            assert step.info["command"] == command
            assert tokenizer.decode(step.action_ids.tolist()) == f"turn {turn}\n{command}<|im_end|>"
    assert {flag for one in recorded for flag in one.meant} == {True, False}


def test_demonstrations_are_a_function_of_their_seed(env_id: str, tokenizer: Any) -> None:
    one, same, other = ([said(each) for each in record(env_id, tokenizer, 0.5, seed)] for seed in (0, 0, 1))
    assert one == same != other


def test_an_environment_without_commands_or_expert_is_refused() -> None:
    with pytest.raises(ValueError, match=r"AgentR1/HotpotQA-v0 is none"):
        record_demonstrations("AgentR1/HotpotQA-v0", {"split": "train"}, 1, slip=0.0, seed=0)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=7), min_size=1, max_size=5))
def test_a_batch_holds_each_marked_id_as_target_and_nothing_else(masks: list[list[bool]]) -> None:
    rows = [(np.arange(1, len(mask) + 1), np.array(mask)) for mask in masks]
    batch = pack(rows)
    assert batch.ids.shape == batch.targets.shape == (len(rows), max(map(len, masks)))
    for (ids, mask), got, targets in zip(rows, batch.ids, batch.targets, strict=True):
        assert got[: len(ids)].tolist() == ids.tolist()
        assert targets.tolist() == [int(i) if m else IGNORED for i, m in zip(ids, mask, strict=True)] + [IGNORED] * (len(got) - len(ids))


def test_predictions_stand_before_their_targets_whatever_is_padded(tokenizer: Any) -> None:
    model = build_tiny_model(tokenizer, 0, SMALL)
    rows = [(np.array([20, 21, 22, 23]), np.array([False, False, True, True])), (np.array([30, 31]), np.array([False, True]))]
    with torch.inference_mode():
        logits, targets = predictions(model, pack(rows))
        alone = [model(input_ids=torch.from_numpy(ids)[None]).logits[0] for ids, _ in rows]
    assert targets.tolist() == [22, 23, 31]
    torch.testing.assert_close(logits, torch.stack([alone[0][1], alone[0][2], alone[1][0]]))


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 5))
def test_dealing_shows_each_index_once_per_round(number: int, size: int, seed: int) -> None:
    dealt = shuffled(number, np.random.default_rng(seed), size)
    flat = np.concatenate([next(dealt) for _ in range(number)])  # number * size indices: whole rounds
    assert np.bincount(flat, minlength=number).tolist() == [size] * number


def test_slips_are_not_learned(env_id: str, tokenizer: Any) -> None:
    recorded = [one for one in record(env_id, tokenizer, slip=0.5) if not one.meant[0] and one.meant[-1]]
    with pytest.raises(ValueError, match="none has any"):
        imitate(
            build_tiny_model(tokenizer, 0, SMALL),
            [one._replace(meant=(False,) * len(one.meant)) for one in recorded],
            lambda _: 1.0,
            seed=0,
        )
    weights = []
    for demonstrations in (recorded, [one._replace(meant=(True,) * len(one.meant)) for one in recorded]):
        model = build_tiny_model(tokenizer, 0, SMALL)
        imitate(model, demonstrations, lambda _: 1.0, seed=0, config=QUICK)
        weights.append(model.model.embed_tokens.weight.detach().clone())
    assert not torch.equal(*weights)


def test_imitation_goes_through_rounds_until_it_succeeds_and_is_a_function_of_its_seed(env_id: str, tokenizer: Any) -> None:
    recorded = record(env_id, tokenizer, slip=0.2)
    weights = []
    for seed in (0, 0, 1):
        scores, told = iter([0.0, 0.5]), []
        model = build_tiny_model(tokenizer, 0, SMALL)
        config = replace(QUICK, success_at_least=0.5)
        result = imitate(model, recorded, lambda _, scores=scores: next(scores), seed=seed, config=config, on_progress=told.append)
        assert (result.steps, result.success) == (5, 0.5)  # measured behind each decay: after 3 steps and after 5
        assert not model.training
        weights.append(model.model.embed_tokens.weight.detach().clone())
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert [made.step for made in told] == list(range(1, 2 + 5 + 1))
    assert [made.phase for made in told] == ["copy", "copy", "imitation", "imitation", "decay", "imitation", "decay"]
    assert isinstance(told[-1], ImitationProgress) and told[0].success is None and told[-1].success == 0.0


def test_imitation_that_does_not_succeed_fails_loudly(env_id: str, tokenizer: Any) -> None:
    played = []

    def never(model: Any) -> float:
        played.append(model.training)
        return 0.1

    with pytest.raises(WarmStartFailed, match=r"after 7 steps of imitation 10% of the tasks are solved, and 20% are needed"):
        imitate(build_tiny_model(tokenizer, 0, SMALL), record(env_id, tokenizer, 0.2), never, seed=0, config=QUICK)
    assert played == [False] * 3  # after 3, 5 and 7 steps, and in evaluation mode


@pytest.mark.parametrize("name", ["demonstrations", "batch_size", "steps", "more_steps"])
def test_settings_that_would_go_on_for_ever_or_nowhere_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}=0 must be at least 1"):
        replace(QUICK, **{name: 0})


def test_imitation_learns_what_is_meant(env_id: str, tokenizer: Any) -> None:
    """The whole of it on a world of three doors: from nothing to the right command."""
    recorded = record(env_id, tokenizer, slip=0.3, episodes=60)
    model = build_tiny_model(tokenizer, 0)
    accuracies = []
    config = replace(QUICK, copy_steps=60, batch_size=16, warmup_steps=10, steps=80, decay_steps=0)
    imitate(model, recorded, lambda _: 1.0, seed=0, config=config, on_progress=lambda made: accuracies.append(made.accuracy))
    assert accuracies[-1] > 0.95
