"""Whole runs of the trainer with a critic: what is saved and resumed, warm-up, groups of one, evaluation, adapters, and that the critic learns."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from peft import LoraConfig
from ppo_training import LEVELS, critic_weights, knowing, limited, make_ppo, mixed_batch
from safetensors.torch import load_file
from test_grpo_runs import play, weights
from toy_training import make_args, make_model, make_tokenizer, make_trainer, random_batch, relative_error, rows_for
from transformers import AutoModelForCausalLM
from trl import GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration

from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trainers.metrics import describe
from agent_gym.trainers.ppo import CRITIC_FILE, AgentPPOTrainer
from agent_gym.trainers.ppo_config import AgentPPOConfig
from agent_gym.trajectory import Trajectory

pytestmark = pytest.mark.filterwarnings("ignore:steps_per_generation:UserWarning")


def play_with_limits(trainer: Any, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
    """`play`, where a limit ends every third episode."""
    episodes = [replace(item, group_id="") for item in play(trainer, examples)]
    return [limited(item) if number % 3 == 0 else item for number, item in enumerate(episodes)]


@pytest.mark.parametrize("name", LEVELS)
def test_a_run_moves_both_models_and_logs_only_names_that_are_described(name: str, tmp_path: Path) -> None:
    trainer = make_ppo(
        tmp_path,
        play_with_limits,
        advantage=name,
        max_steps=3,
        num_iterations=1,
        gradient_accumulation_steps=2,
        per_device_train_batch_size=4,
    )
    before, critic = weights(trainer.model), critic_weights(trainer.critic)
    trainer.train()
    assert relative_error(weights(trainer.model), before) > 1e-4 and not torch.equal(critic_weights(trainer.critic), critic)
    entries = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(entries) == 3
    for entry in entries:
        for key, value in entry.items():
            assert describe(key), f"{key} is not in METRICS"
            assert value is not None and math.isfinite(value), key
        assert entry["critic/bootstrapped"] == 3.0
    expected = {"explained_variance", "value_loss", "clip_frac", "grad_norm", "value_mean", "target_mean", "updates", "seconds"}
    assert {f"critic/{key}" for key in expected} <= set(entries[0])
    assert entries[0]["critic/value_mean"] == 0.0 != entries[1]["critic/value_mean"]


@pytest.mark.parametrize("name", LEVELS)
def test_the_critic_learns_what_episodes_are_worth(name: str, tmp_path: Path) -> None:
    batch = mixed_batch(2, groups=3)
    settings = {"critic_learning_rate": 2e-2, "critic_epochs": 30, "value_clip": None, "critic_lam": 1.0, "learning_rate": 0.0}
    trainer = make_ppo(tmp_path, batch, advantage=name, max_steps=4, per_device_train_batch_size=6, **settings)
    trainer.train()
    shares = [entry["critic/explained_variance"] for entry in trainer.state.log_history if "critic/explained_variance" in entry]
    assert shares[0] == 0.0 and shares[-1] > 0.9
    losses = [entry["critic/value_loss"] for entry in trainer.state.log_history if "critic/value_loss" in entry]
    assert losses[-1] < 0.2 * losses[0]


# ------------------------------------------------------------------------------------------------ where the critic is, and is not


def vllm_names(model: Any) -> set[str]:
    """What TRL would send to an engine."""
    sender = SimpleNamespace(model=model, _dist=SimpleNamespace(is_fsdp=False, gather_params=lambda parameters: nullcontext()))
    sender._fix_param_name_to_vllm = lambda name, extra_prefixes=None: name
    return {name for name, _ in VLLMGeneration._iter_named_params(sender)}


def test_policy_files_weight_sync_and_optimiser_know_nothing_of_the_critic(tmp_path: Path) -> None:
    trainer = make_ppo(tmp_path, play, max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    policy = {name for name, _ in make_model().named_parameters()}
    assert {name for name, _ in trainer.model.named_parameters()} == vllm_names(trainer.model) == policy
    assert {one.data_ptr() for one in trainer.model.parameters()}.isdisjoint({one.data_ptr() for one in trainer.critic.parameters()})
    saved = set(load_file(tmp_path / "checkpoint-1" / "model.safetensors"))
    assert saved <= policy and not any("head.bias" in name or "backbone" in name for name in saved)
    opened, told = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-1", output_loading_info=True)
    assert not told["unexpected_keys"] and not told["missing_keys"]
    assert type(opened) is type(make_model())
    in_optimizer = {id(one) for group in trainer.optimizer.param_groups for one in group["params"]}
    assert in_optimizer == {id(one) for one in trainer.model.parameters()}
    assert all(one.grad is None for one in trainer.critic.parameters())


def test_a_critic_inside_of_the_model_would_be_seen_by_all_of_them() -> None:
    model = make_model()
    model.value_head = torch.nn.Linear(16, 1)
    assert "value_head.weight" in vllm_names(model) and "value_head.weight" in model.state_dict()


def test_lora_saves_the_adapter_alone_and_trains_the_critic_whole(tmp_path: Path) -> None:
    make_model(dtype=torch.float32).save_pretrained(tmp_path / "base")
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    common = {"peft_config": lora, "save_strategy": "steps", "activation_checkpointing": True, "critic_learning_rate": 1e-2}
    trainer = make_ppo(tmp_path, play, str(tmp_path / "base"), max_steps=2, save_steps=2, **common)
    before = critic_weights(trainer.critic)
    trainer.train()
    adapter = load_file(tmp_path / "checkpoint-2" / "adapter_model.safetensors")
    assert adapter and all("lora" in name for name in adapter)
    assert not any("lora" in name for name in trainer.critic.state_dict())
    moved = (critic_weights(trainer.critic) != before).double().mean()
    assert moved > 0.8
    names = vllm_names(trainer.model)
    assert names and not any("backbone" in name for name in names)


# ------------------------------------------------------------------------------------------------ resuming


class Interrupt(RuntimeError):
    pass


RUNS: dict[str, dict[str, Any]] = {
    "two iterations over tokens": {"num_iterations": 2, "advantage": "token_gae"},
    "two windows": {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2},
    "minibatches and epochs": {
        "critic_minibatches": 2,
        "critic_epochs": 2,
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 4,
    },
    "in the middle of the warm-up": {"critic_warmup_updates": 3},
}


def resumed(folder: Path, **settings: Any) -> tuple[AgentPPOTrainer, AgentPPOTrainer]:
    """A run of four updates in one piece, and one that died behind the second and went on from its checkpoint."""
    common = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "critic_learning_rate": 1e-2, **settings}
    whole = make_ppo(folder / "whole", play_with_limits, make_model(), **common)
    whole.train()
    first = make_ppo(folder / "parts", play_with_limits, make_model(), **common)

    def interrupted(trainer: Any, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        if trainer.state.global_step == 2:
            raise Interrupt
        return play_with_limits(trainer, examples)

    first.rollout = interrupted
    with pytest.raises(Interrupt):
        first.train()
    second = make_ppo(folder / "parts", play_with_limits, make_model(seed=7), critic=make_model(seed=8), **common)
    second.train(resume_from_checkpoint=True)
    assert second.state.global_step == 4
    return whole, second


def is_the_same_run(whole: AgentPPOTrainer, parts: AgentPPOTrainer) -> bool:
    """Bit for bit: the policy, the critic, its optimiser, and the figures of the last update."""
    last, other = (trainer.state.log_history[-2] for trainer in (whole, parts))
    assert last["step"] == other["step"] == 4
    one, two = (trainer.critic_optimizer.state_dict()["state"] for trainer in (whole, parts))
    return (
        torch.equal(weights(whole.model), weights(parts.model))
        and torch.equal(critic_weights(whole.critic), critic_weights(parts.critic))
        and all(torch.equal(one[key][name], two[key][name]) for key in one for name in one[key])
        and all(
            last[name] == other[name] for name in last if name.startswith(("critic/", "adv/", "loss", "reward")) and "seconds" not in name
        )
    )


@pytest.mark.parametrize("case", RUNS)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(case: str, tmp_path: Path) -> None:
    whole, parts = resumed(tmp_path, **RUNS[case])
    assert is_the_same_run(whole, parts)


def forgets(what: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Loading leaves a part of the critic as it was made."""

    def mutant(patch: pytest.MonkeyPatch) -> None:
        load = torch.load

        def wrong(path: Any, *args: Any, **keywords: Any) -> Any:
            stored = load(path, *args, **keywords)
            if Path(str(path)).name == CRITIC_FILE:
                fresh = make_ppo("unused", play, make_model(), critic=make_model(seed=8), critic_learning_rate=1e-2)
                stored[what] = fresh.critic.state_dict() if what == "critic" else fresh.critic_optimizer.state_dict()
            return stored

        patch.setattr(torch, "load", wrong)

    return mutant


def not_zeroed(patch: pytest.MonkeyPatch) -> None:
    """Gradients of one generation batch stay for the next, and are lost in a checkpoint."""
    patch.setattr(torch.optim.AdamW, "zero_grad", lambda self, set_to_none=True: None)


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "critic not restored": forgets("critic"),
    "optimiser not restored": forgets("optimizer"),
    "gradient not zeroed": not_zeroed,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_of_runs_notices_the_mistake(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    MUTANTS[mutant](monkeypatch)
    assert not is_the_same_run(*resumed(tmp_path))


def test_the_critic_of_a_checkpoint_is_whole_before_the_checkpoint_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run folder takes a checkpoint for whole once it holds the trainer's state."""
    trainer = make_ppo(tmp_path, play, max_steps=1, save_strategy="steps", save_steps=1)
    at_the_end: list[bool] = []
    save = type(trainer.state).save_to_json
    monkeypatch.setattr(
        type(trainer.state),
        "save_to_json",
        lambda self, path: at_the_end.append((Path(path).parent / CRITIC_FILE).is_file()) or save(self, path),
    )
    trainer.train()
    assert at_the_end == [True]
    stored = torch.load(tmp_path / "checkpoint-1" / CRITIC_FILE, weights_only=True)
    assert all(torch.equal(value, trainer.critic.state_dict()[name]) for name, value in stored["critic"].items())


def test_a_checkpoint_without_a_critic_is_refused_by_name(tmp_path: Path) -> None:
    common = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    make_trainer(tmp_path, play, **{**common, "max_steps": 1}).train()
    with pytest.raises(ValueError, match=rf"checkpoint-1 holds no {CRITIC_FILE}"):
        make_ppo(tmp_path, play, num_generations=2, **common).train(resume_from_checkpoint=True)


# ------------------------------------------------------------------------------------------------ warm-up and groups


@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_in_the_warm_up_the_critic_is_trained_and_the_policy_rests(beta: float, tmp_path: Path) -> None:
    make_model().save_pretrained(tmp_path / "model")
    moved: list[tuple[torch.Tensor, torch.Tensor]] = []

    def rollout(trainer: Any, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        moved.append((weights(trainer.model).clone(), critic_weights(trainer.critic).clone()))
        return play(trainer, examples)

    settings = {"critic_warmup_updates": 3, "max_no_signal_batches": 1, "weight_decay": 0.1, "beta": beta}
    trainer = make_ppo(tmp_path, rollout, str(tmp_path / "model"), max_steps=5, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.train()
    policies, critics = zip(*moved, strict=True)
    assert all(torch.equal(policies[0], one) for one in policies[1:4]) and not torch.equal(policies[3], policies[4])
    assert all(not torch.equal(one, other) for one, other in itertools.pairwise(critics))
    entries = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["adv/absmax"] == 0.0 for entry in entries] == [True, True, True, False, False]
    assert all("critic/explained_variance" in entry for entry in entries)


def test_groups_of_one_and_odd_batches_are_fine(tmp_path: Path) -> None:
    seen: list[list[dict[str, Any]]] = []

    def rollout(trainer: Any, examples: Sequence[dict[str, Any]]) -> list[Trajectory]:
        seen.append(list(examples))
        return play(trainer, examples)

    trainer = make_ppo(tmp_path, rollout, num_generations=1, per_device_train_batch_size=5, max_steps=2)
    assert trainer.num_generations == trainer.args.num_generations == trainer.num_generations_eval == 1
    trainer.train()
    for batch in seen:
        assert len(batch) == len({one["group_id"] for one in batch}) == len({one["seed"] for one in batch}) == 5
    assert relative_error(weights(trainer.model), weights(make_model())) > 1e-4
    grouped = make_ppo(tmp_path, rollout, num_generations=4, max_steps=1)
    grouped.train()
    assert len({one["group_id"] for one in seen[-1]}) == 2


# ------------------------------------------------------------------------------------------------ evaluation, tables, long rows


@pytest.mark.parametrize("name", LEVELS)
def test_evaluation_judges_and_trains_nothing(name: str, tmp_path: Path) -> None:
    """Several sub-batches, a last batch that is not full: no gradient in evaluation."""
    trainer = make_ppo(
        tmp_path,
        play_with_limits,
        advantage=name,
        max_steps=2,
        eval_strategy="steps",
        eval_steps=1,
        eval_dataset=rows_for(5),
        per_device_eval_batch_size=4,
        max_tokens_per_microbatch=30,
    )
    trained: list[str] = []
    train = trainer._train_critic
    trainer._train_critic = lambda targets: trained.append(trainer.mode) or train(targets)
    trainer.train()
    assert trained == ["train"] * 2
    entries = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert len(entries) == 2
    for entry in entries:
        assert {"eval_reward", "eval_critic/explained_variance", "eval_critic/value_mean"} <= set(entry)
        assert entry["eval_batch/sub_steps"] > 1 and "eval_critic/value_loss" not in entry
        assert all(describe(key) for key in entry) and all(math.isfinite(value) for value in entry.values())
    assert entries[1]["eval_critic/value_mean"] != 0.0


def test_the_completions_table_has_one_line_per_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_ppo(tmp_path, play, advantage="token_gae", max_steps=2, log_completions=True, num_completions_to_print=1)
    trainer.train()
    capsys.readouterr()
    table = pd.read_parquet(sorted((tmp_path / "completions").glob("*.parquet"))[-1])
    assert len(table) == 8 < sum(len(item.steps) for item in trainer.trajectories)
    assert table["advantage"].abs().max() > 0


@pytest.mark.parametrize("budget", [16, 40, None])
def test_the_critic_reads_no_more_tokens_at_once_than_the_budget(budget: int | None, tmp_path: Path) -> None:
    trainer = make_ppo(
        tmp_path, mixed_batch(3, groups=8), max_tokens_per_microbatch=budget, gradient_accumulation_steps=4, per_device_train_batch_size=4
    )
    sizes: list[tuple[int, int]] = []
    trainer.critic.register_forward_pre_hook(lambda module, inputs: sizes.append(tuple(inputs[0].shape)))
    trainer.model.train()
    trainer._generate_and_score_completions([rows_for()[0]] * 16)
    if budget is None:  # as many passes as the policy has micro-steps, to judge and to be trained
        judged = [rows * length for rows, length in sizes[:4]]
        assert len(sizes) == 8 and max(judged) < 0.4 * sum(judged)
    else:
        assert all(rows == 1 or rows * length <= budget for rows, length in sizes)


def test_a_batch_in_which_nothing_counts_changes_no_model(tmp_path: Path) -> None:
    trainer = make_ppo(tmp_path, [replace(item, steps=()) for item in random_batch(1)], max_steps=1)
    before = critic_weights(trainer.critic)
    with pytest.warns(UserWarning, match="no episode left"):
        trainer.train()
    assert torch.equal(critic_weights(trainer.critic), before) and torch.equal(weights(trainer.model), weights(make_model()))


# ------------------------------------------------------------------------------------------------ what is refused


def test_critics_and_settings_of_another_kind_are_refused(tmp_path: Path) -> None:
    common: dict[str, Any] = {"train_dataset": rows_for(), "processing_class": make_tokenizer(), "rollout": play, "env": lambda row: None}
    with pytest.raises(TypeError, match="args must be an AgentPPOConfig"):
        AgentPPOTrainer(make_model(), make_args(tmp_path, AgentGRPOConfig), **common)
    args = make_args(tmp_path, AgentPPOConfig, critic_model="folder")
    with pytest.raises(ValueError, match=r"critic= and args.critic_model are two critics"):
        AgentPPOTrainer(make_model(), args, critic=make_model(), **common)
    with pytest.raises(TypeError, match="takes no reward_funcs"):
        AgentPPOTrainer(make_model(), make_args(tmp_path, AgentPPOConfig), reward_funcs=[len], **common)


def test_the_models_are_given_in_the_places_of_the_other_trainer(tmp_path: Path) -> None:
    trainer = AgentPPOTrainer(
        make_model(), make_args(tmp_path, AgentPPOConfig), lambda row: None, rows_for(), None, make_tokenizer(), rollout=play
    )
    assert isinstance(trainer, AgentGRPOTrainer) and len(trainer.train_dataset) == 64
    make_model(seed=1).save_pretrained(tmp_path / "other")
    named = make_ppo(tmp_path, play, critic_model=str(tmp_path / "other"))
    assert torch.equal(named.critic.backbone.get_input_embeddings().weight, make_model(seed=1).get_input_embeddings().weight)
    knowing(named.critic)


REPLACED = {
    "_generate_and_score_completions": ["self", "inputs"],
    "_save_optimizer_and_scheduler": ["self", "output_dir"],
    "_load_optimizer_and_scheduler": ["self", "checkpoint"],
}
"""What it replaces of TRL and transformers, with the signatures that we know."""


def test_nothing_else_of_trl_is_replaced_by_the_trainer_with_a_critic() -> None:
    own = {name for name, value in vars(AgentPPOTrainer).items() if inspect.isfunction(value) and hasattr(GRPOTrainer, name)}
    assert own == {*REPLACED, "__init__"}
    for name, wanted in REPLACED.items():
        for kind in (GRPOTrainer, AgentPPOTrainer):
            assert list(inspect.signature(getattr(kind, name)).parameters) == wanted
    assert hasattr(GRPOTrainer, "get_decay_parameter_names")
