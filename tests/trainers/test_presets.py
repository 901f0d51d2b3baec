"""The presets of the embedded run: what they say is usable, and the runs on ALFWorld and WebShop are whole, repeatable and measured on other tasks."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.cli import main
from agent_gym.envs.webshop.generated.small import NAMES, PRINTS, SIZES, THINGS
from agent_gym.runs import RunFolder
from agent_gym.trainers.embedded import run_embedded
from agent_gym.trainers.imitation import Demonstration, WarmStartFailed, record_demonstrations
from agent_gym.trainers.presets import DEFAULT_ENV, PRESETS, get_preset
from agent_gym.trainers.presets.alfworld import ALFWorldConfig, ALFWorldPreset
from agent_gym.trainers.presets.base import EmbeddedConfig
from agent_gym.trainers.presets.hotpotqa import HotpotQAConfig
from agent_gym.trainers.presets.webshop import WebShopConfig, WebShopPreset, hasty_shopper
from agent_gym.trainers.warm_start import WarmStartConfig

ALFWORLD = "AgentR1/ALFWorld-v0"
WEBSHOP = "AgentR1/WebShop-v0"


@pytest.mark.parametrize("env_id", PRESETS)
def test_a_preset_names_an_environment_that_it_can_make_in_each_of_its_splits(env_id: str) -> None:
    preset = get_preset(env_id)
    assert preset.env_id == env_id and len(set(preset.splits)) == 3
    assert json.loads(json.dumps(dict(preset.env_kwargs))) == dict(preset.env_kwargs)
    seen = set()
    for split in preset.splits:
        env = gymnasium.make(env_id, split=split, **preset.env_kwargs)
        _, info = env.reset(seed=0)
        seen.add(info["task_id"])
        assert info["observation_length"] < 512
        env.close()
    assert len(seen) == 3


@pytest.mark.parametrize("env_id", PRESETS)
def test_settings_survive_the_run_folder(env_id: str) -> None:
    preset = get_preset(env_id)
    config = preset.config(updates=7)
    assert preset.config(**json.loads(json.dumps(asdict(config)))) == replace(
        config, warm_start=replace(config.warm_start, betas=list(config.warm_start.betas))
    )
    assert type(config.smoke()) is preset.config and config.smoke().updates == 2


def test_settings_given_in_part_keep_the_defaults_of_their_preset() -> None:
    assert ALFWorldConfig(warm_start={"slip": 0.5}).warm_start == replace(ALFWorldConfig().warm_start, slip=0.5)
    assert isinstance(HotpotQAConfig(warm_start={"max_steps": 3}).warm_start, WarmStartConfig)
    with pytest.raises(TypeError, match="max_step"):
        ALFWorldConfig(warm_start={"max_step": 3})
    with pytest.raises(ValueError, match=r"updates=0 must be at least 1"):
        ALFWorldConfig(updates=0)


def test_the_preset_is_chosen_by_the_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(get_preset(ALFWORLD), ALFWorldPreset) and get_preset().env_id == DEFAULT_ENV == "AgentR1/HotpotQA-v0"
    with pytest.raises(ValueError, match=r"no preset for AgentR1/Tool-v0, only for AgentR1/HotpotQA-v0, AgentR1/ALFWorld-v0"):
        get_preset("AgentR1/Tool-v0")
    with pytest.raises(ValueError, match="ALFWorldConfig, not a HotpotQAConfig"):
        run_embedded(HotpotQAConfig(), env_id=ALFWORLD, output_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert main(["train", ALFWORLD, "--dry-run", "--set", "warm_start.slip=0.25"]) == 0
    shown = capsys.readouterr().out
    assert ALFWORLD in shown and "'slip': 0.25" in shown and "dry run passed" in shown
    assert main(["train", "AgentR1/Tool-v0"]) == 2
    assert "give a model: --model M" in capsys.readouterr().err


def test_a_warm_start_that_fails_ends_the_run_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"demonstrations": 8, "copy_steps": 1, "batch_size": 4, "steps": 1, "decay_steps": 0, "max_steps": 1}
    words = [word for name, value in settings.items() for word in ("--set", f"warm_start.{name}={value}")]
    assert main(["train", ALFWORLD, "--output-dir", str(tmp_path / "run"), "--set", "curve_tasks=2", *words]) == 1
    said = capsys.readouterr()
    assert "warm start failed: after 1 steps of imitation 0% of the tasks are solved" in said.err and "Traceback" not in said.err
    config = replace(ALFWorldConfig(curve_tasks=2), warm_start=replace(ALFWorldConfig().warm_start, **settings))
    with pytest.raises(WarmStartFailed):
        run_embedded(config, env_id=ALFWORLD, output_dir=tmp_path / "other")


def test_training_rooms_and_held_out_rooms_are_other_rooms() -> None:
    preset = get_preset(ALFWORLD)

    def rooms(split: str) -> set[frozenset[tuple[str, str]]]:
        env: Any = gymnasium.make(ALFWORLD, split=split, **preset.env_kwargs)
        found = set()
        for seed in range(150):
            env.reset(seed=seed)
            found.add(frozenset((place.type, place.location) for place in env.unwrapped.task.game.receptacles.values()))
        env.close()
        return found

    train, held_out = rooms(preset.splits.train), rooms(preset.splits.held_out)
    assert len(held_out) > 5 and train.isdisjoint(held_out)


def assert_it_was_trained(run: RunFolder) -> None:
    """Both updates had something to learn from, and the weights moved."""
    assert all(one["grad_norm"] > 0 for one in run.metrics("train")) and len(run.metrics("train")) == 2
    before, after = ((run.checkpoints / name / "model.safetensors").read_bytes() for name in ("warm_start", "final"))
    assert before != after


def test_keywords_of_the_environment_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    preset = get_preset(ALFWORLD)
    assert preset.keywords(preset.config()) == preset.env_kwargs
    assert preset.keywords(preset.config(env_kwargs={"max_turns": 14})) == {**preset.env_kwargs, "max_turns": 14}
    assert preset.config().smoke().env_kwargs == {"invalid_penalty": 0.05, "max_turns": 6}
    assert main(["train", ALFWORLD, "--dry-run", "--set", "env_kwargs.max_turns=14"]) == 0
    assert "'max_turns': 14" in capsys.readouterr().out


@pytest.mark.slow
def test_the_smoke_run_on_alfworld_is_whole_and_its_evaluation_repeats_in_a_new_process(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main(["train", ALFWORLD, "--smoke", "--output-dir", str(folder)]) == 0
    run = RunFolder.open(folder)
    assert run.summary is not None and run.summary["env_id"] == ALFWORLD and run.summary["updates"] == 2
    assert run.config["evaluation"]["split"] == "valid_unseen" and run.config["env_kwargs"]["split"] == "train"
    assert_it_was_trained(run)
    page = run.report_path.read_text(encoding="utf-8")
    for part in (ALFWORLD, "held out, greedy", "Before reinforcement learning"):
        assert part in page, part
    command = ["eval", "--model", str(folder), "--output-dir", str(tmp_path / "ev")]
    program = f"import sys; from agent_gym.cli import main; sys.exit(main({command!r}))"
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    content = json.loads((tmp_path / "ev" / "evaluation.json").read_text(encoding="utf-8"))
    assert content["split"] == "valid_unseen" and content["level"] == "small" and content["tasks"] == run.summary["tasks"]
    assert content["arms"]["greedy"]["estimates"]["success"]["mean"] == run.summary["final"]["greedy"]


def test_settings_of_the_base_are_checked_whatever_the_preset() -> None:
    for name, value in {"updates": 0, "num_generations": 1, "curve_tasks": -1, "learning_rate": 0.0}.items():
        with pytest.raises(ValueError, match=name):
            EmbeddedConfig(**{name: value})


# ---------------------------------------------------------------------------------------------------- WebShop


def shop_demonstrations(number: int, *, option_probability: float, slip: float = 0.0) -> list[Demonstration]:
    preset = WebShopPreset()

    def expert(env: Any, rng: np.random.Generator) -> Any:
        return hasty_shopper(env, rng, option_probability=option_probability)

    keywords = {**preset.env_kwargs, "split": preset.splits.train}
    return record_demonstrations(WEBSHOP, keywords, number, slip=slip, seed=0, expert=expert, tokenizer=preset.tokenizer())


def test_every_figure_of_a_preset_is_one_of_its_environments() -> None:
    for env_id in PRESETS:
        preset = get_preset(env_id)
        env: Any = gymnasium.make(env_id, split=preset.splits.train, **preset.env_kwargs).unwrapped
        assert preset.figure == "success" or preset.figure in env.metric_names
    assert get_preset(WEBSHOP).figure == "score" and get_preset().figure == "success"


def test_held_out_goals_of_the_shop_are_no_training_goals_and_the_evaluation_plays_each_once() -> None:
    preset = get_preset(WEBSHOP)
    asked: dict[str, set[str]] = {}
    for split in preset.splits:
        env: Any = gymnasium.make(WEBSHOP, split=split, **preset.env_kwargs).unwrapped
        asked[split] = {env.shop.goals[index].request for index in env.task_indices}
        if split == preset.splits.held_out:
            assert len(asked[split]) == env.num_tasks == WebShopConfig().eval_tasks
    train, curve, held_out = (asked[split] for split in preset.splits)
    assert train.isdisjoint(curve | held_out) and curve.isdisjoint(held_out)


def test_what_a_shopper_has_to_copy_is_the_same_single_entry_on_the_page_and_in_the_command() -> None:
    tokenizer: Any = WebShopPreset().tokenizer()
    for word in (*NAMES, *THINGS, *PRINTS, *SIZES):
        (entry,) = tokenizer.encode(word)
        for text in (f"print [SEP] {word} [SEP] star", f"click[{word}]", f"Find me Nendo lamp, with print: {word}, and size: 7"):
            assert entry in tokenizer.encode(text), (word, text)
    assert [tokenizer.decode([one]) for one in tokenizer.encode("click[buy now]")] == ["click[", "buy now", "]"]


@pytest.mark.parametrize("probability", [0.0, 0.4, 1.0])
def test_the_imitation_ceiling_is_the_score_of_the_hasty_shopper(probability: float) -> None:
    shopped = [one.trajectory for one in shop_demonstrations(150, option_probability=probability)]
    config = WebShopConfig(warm_start={"option_probability": probability})
    assert config.imitation_ceiling == pytest.approx(0.5 + probability / 2)
    assert np.mean([one.total_reward for one in shopped]) == pytest.approx(config.imitation_ceiling, abs=0.05)
    assert all(one.steps[-1].info["bought"] for one in shopped)


def test_the_hasty_shopper_goes_on_well_after_its_slips() -> None:
    shown = shop_demonstrations(60, option_probability=1.0, slip=0.2)
    assert any(not all(meant) for _, meant in shown)
    unspoilt = [trajectory for trajectory, meant in shown if trajectory.steps[-1].info["bought"] and meant[-1]]
    assert len(unspoilt) > 40 and any(len(one) > 5 for one in unspoilt)
    assert np.mean([one.total_reward for one in unspoilt]) == 1.0


@pytest.mark.slow
def test_the_smoke_run_on_webshop_is_whole_and_counts_the_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    assert main(["train", WEBSHOP, "--smoke", "--output-dir", str(folder)]) == 0
    assert "after RL   score sampled" in capsys.readouterr().out
    run = RunFolder.open(folder)
    assert run.summary is not None and run.summary["figure"] == run.config["figure"] == "score" and run.summary["env_id"] == WEBSHOP
    saved = json.loads((folder / "evaluation.final.json").read_text(encoding="utf-8"))
    assert run.summary["final"] == {name: arm["estimates"]["score"]["mean"] for name, arm in saved["arms"].items()}
    assert saved["split"] == "test" and saved["level"] == "small"
    assert_it_was_trained(run)
    page = run.report_path.read_text(encoding="utf-8")
    for part in (WEBSHOP, "Score, sampled (T=1)", "Score per update", "imitation ceiling"):
        assert part in page, part

    weights = (run.checkpoints / "final" / "model.safetensors").read_bytes()  # as if the machine had died behind the last update
    shutil.rmtree(run.checkpoints / "final")
    (folder / "evaluation.final.json").unlink()
    before = run.summary
    (folder / "summary.json").unlink()
    assert main(["train", "--resume", "--output-dir", str(folder)]) == 0
    assert (run.checkpoints / "final" / "model.safetensors").read_bytes() == weights
    assert run.summary is not None and run.summary["final"] == before["final"]
    assert [one["step"] for one in run.metrics("train")] == [1, 2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_iterations": 0}, "num_iterations=0 must be at least 1"),
        ({"max_grad_norm": 0.0}, "max_grad_norm=0.0 must be positive"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0 must be positive"),
        ({"lr_scheduler_type": "lineal"}, "'lineal' is not among constant, linear, cosine"),
        ({"replay": {"ratio": 1.0}}, "'files' is missing"),
    ],
)
@pytest.mark.parametrize("env_id", PRESETS)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_trained(env_id: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        get_preset(env_id).config(**settings)
