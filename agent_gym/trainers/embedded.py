"""The embedded default run: a tiny model learns, by multi-turn reinforcement learning, to search and to answer, on a two-core CPU without any download.

It is the ordinary path in small: the registered `AgentR1/HotpotQA-v0` at `level="bridge"`, the default tokenizer and its chat template, `AgentGRPOTrainer`
and `evaluate`. Only the model is particular to it: two layers, made here, and started by imitation of an impatient expert (`warm_start.py`), which
writes perfect calls and stops reading too early. What the expert's habits allow is the imitation ceiling; what goes beyond it was learned from
the reward alone.

Training uses worlds of the split "train"; the figures are those of 200 worlds of the split "test", with which the training worlds share no
entity; the curve in between is measured on "validation".
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from agent_gym._names import as_ids
from agent_gym.chat import load_tokenizer
from agent_gym.evaluation import Evaluation, Played, evaluate
from agent_gym.policies import TransformersPolicy
from agent_gym.runs import RunFolder
from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.environments import EnvironmentMaker
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trainers.run_callback import RunCallback
from agent_gym.trainers.warm_start import (
    WARM_START_ENV,
    WARM_START_ENV_KWARGS,
    WarmStartConfig,
    WarmStartProgress,
    build_tiny_model,
    freeze_embedding,
    record_demonstrations,
    warm_start,
)

__all__ = ["EmbeddedConfig", "run_embedded"]

Progress = Callable[[str, int, int, Mapping[str, Any]], None]
Interrupt = Callable[[Callable[[], None]], AbstractContextManager[None]]
EVALUATION_BATCH = 256  # episodes at once, the default of `agent-gym eval` too: the same batches give the same bits
_KEPT_EPISODES = 40  # of each evaluation, for the report


@dataclass(frozen=True, slots=True)
class EmbeddedConfig:
    """Settings of the embedded run.

    Attributes:
        updates: optimiser steps of GRPO, one per generation batch.
        tasks_per_update: questions in a generation batch.
        num_generations: episodes per question.
        learning_rate: of GRPO, constant.
        max_action_tokens: longest reply, in tokens.
        eval_tasks: held-out tasks of the split "test", before and after.
        curve_tasks: tasks of the split "validation" for the curve in between; 0 measures none.
        curve_every: updates between two points of the curve.
        save_every: updates between two checkpoints.
        warm_start: of the imitation.
    """

    updates: int = 50
    tasks_per_update: int = 16
    num_generations: int = 8
    learning_rate: float = 5e-4
    max_action_tokens: int = 40
    eval_tasks: int = 200
    curve_tasks: int = 64
    curve_every: int = 10
    save_every: int = 10
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)

    def __post_init__(self) -> None:
        """Take a mapping for the warm start, as a configuration file gives it, and check the sizes.

        Raises:
            ValueError: naming the setting.
        """
        if isinstance(self.warm_start, Mapping):
            object.__setattr__(self, "warm_start", WarmStartConfig(**self.warm_start))
        least = {"updates": 1, "tasks_per_update": 1, "num_generations": 2, "max_action_tokens": 1, "eval_tasks": 1}
        least |= {"curve_tasks": 0, "curve_every": 1, "save_every": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {low}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate={self.learning_rate} must be positive")

    @property
    def imitation_ceiling(self) -> float:
        """Success of a perfect imitation of the impatient expert, over two- and three-hop questions in equal parts."""
        return (self.warm_start.continue_probability + self.warm_start.continue_probability**2) / 2

    def smoke(self) -> EmbeddedConfig:
        """The same run with two updates and few tasks, to see that everything works."""
        return replace(self, updates=2, eval_tasks=40, curve_tasks=0, tasks_per_update=4)


def run_embedded(
    config: EmbeddedConfig | None = None,
    *,
    output_dir: str | Path,
    seed: int = 0,
    smoke: bool = False,
    progress: Progress | None = None,
    resume: bool = False,
    interrupt: Interrupt | None = None,
) -> RunFolder | None:
    """Make the model, warm-start it, train it, and measure it before and after.

    Args:
        config: settings; None for the defaults.
        output_dir: the run folder (see `agent_gym.runs`).
        seed: of the weights, the tasks and the sampling.
        smoke: two updates instead of all, to see that everything works.
        progress: called as (phase, step, total, values).
        resume: go on with the run in the folder, with its own settings.
        interrupt: called with a function that asks for an end; its context encloses the training. With it Ctrl-C can end the run between
            two updates, with a checkpoint.

    Returns:
        The run folder, with summary.json and the final checkpoint; None when it was interrupted and can go on.

    Raises:
        WarmStartFailed: if imitation does not take.
        RunFolderError: if the folder cannot be used.
    """
    config = config or EmbeddedConfig()
    if resume and RunFolder(output_dir).exists:
        stored = RunFolder(output_dir).config
        config, seed = EmbeddedConfig(**stored["settings"]), int(stored["seed"])
    elif smoke:
        config = config.smoke()
    run = RunFolder.create(output_dir, _description(config, seed), resume=resume)
    return _Run(config, run, seed, progress or (lambda *_: None)).finish(resume, interrupt)


def _description(config: EmbeddedConfig, seed: int) -> dict[str, Any]:
    return {
        "kind": "embedded",
        "env_id": WARM_START_ENV,
        "env_kwargs": {**WARM_START_ENV_KWARGS, "split": "train"},
        "evaluation": {
            "env_kwargs": {**WARM_START_ENV_KWARGS, "split": "test"},
            "split": "test",
            "tasks": config.eval_tasks,
            "max_tokens": config.max_action_tokens,
        },
        "imitation_ceiling": config.imitation_ceiling,
        "seed": seed,
        "settings": asdict(config),
    }


class _Run:
    """One run: its folder, its seed, and where it reports to."""

    def __init__(self, config: EmbeddedConfig, run: RunFolder, seed: int, progress: Progress) -> None:
        self.config, self.run, self.seed, self.progress = config, run, seed, progress
        self.tokenizer: Any = load_tokenizer()
        self.began = time.monotonic()

    def finish(self, resume: bool, interrupt: Interrupt | None) -> RunFolder | None:
        """Do what is not done yet, and keep the time that it took, for a run that goes on."""
        try:
            return self.go_on(resume, interrupt)
        finally:
            self.run.log("time", 0, {"seconds": time.monotonic() - self.began})

    def go_on(self, resume: bool, interrupt: Interrupt | None) -> RunFolder | None:
        """Do what is not done yet."""
        if self.run.summary is not None:
            return self.run
        before = self.measured("before")
        if before is None:
            self.imitate()
            before = self.measure("before", self.run.checkpoints / "warm_start", "warm_start")
        final = self.run.checkpoints / "final"
        if not (final / "config.json").is_file() and not self.train(resume, interrupt):
            return None
        after = self.measure("final", final, "final")
        self.run.write_summary(
            warm_start=before,
            final=after,
            tasks=self.config.eval_tasks,
            seed=self.seed,
            updates=self.config.updates,
            imitation_ceiling=self.config.imitation_ceiling,
            seconds=round(time.monotonic() - self.began + sum(record["seconds"] for record in self.run.metrics("time")), 1),
            env_id=WARM_START_ENV,
        )
        return self.run

    # ------------------------------------------------------------------------------------------------ warm start

    def imitate(self) -> None:
        """Make the model and warm-start it; the result is checkpoints/warm_start."""
        settings = self.config.warm_start
        total = settings.copy_steps + settings.max_steps + settings.decay_steps

        def report(made: WarmStartProgress) -> None:
            step = made.step if made.phase == "copy" else settings.copy_steps + made.step
            values = {"loss": made.loss, "copied": made.copied}
            self.progress("warm start", step, total, values)
            self.run.log("warm_start", step, {"phase": made.phase, **values})

        with _threads():
            model = build_tiny_model(self.tokenizer, self.seed)
            demonstrations = record_demonstrations(
                settings.demonstrations, seed=self.seed, continue_probability=settings.continue_probability, tokenizer=self.tokenizer
            )
            probes = record_demonstrations(
                settings.probes, split="validation", seed=self.seed, continue_probability=1.0, tokenizer=self.tokenizer
            )
            result = warm_start(model, self.tokenizer, demonstrations, probes, seed=self.seed, config=settings, on_progress=report)
        self.progress("warm start", total, total, {"loss": result.loss, "copied": result.copied})
        self.save(model, "warm_start")

    def save(self, model: Any, name: str) -> None:
        folder = self.run.checkpoints / name
        model.save_pretrained(str(folder))
        self.tokenizer.save_pretrained(str(folder))

    # ------------------------------------------------------------------------------------------------ reinforcement learning

    def train(self, resume: bool, interrupt: Interrupt | None) -> bool:
        """Train by GRPO. Returns whether it came to its end."""
        config = self.config
        model = AutoModelForCausalLM.from_pretrained(str(self.run.checkpoints / "warm_start"), dtype=torch.float32)
        freeze_embedding(model)
        episodes = config.tasks_per_update * config.num_generations
        halves = 2 if episodes % (2 * config.num_generations) == 0 else 1  # two micro-steps: shorter rows are padded less
        args = AgentGRPOConfig(
            output_dir=str(self.run.checkpoints),
            per_device_train_batch_size=episodes // halves,
            gradient_accumulation_steps=halves,
            num_generations=config.num_generations,
            max_completion_length=config.max_action_tokens,
            max_steps=config.updates,
            learning_rate=config.learning_rate,
            weight_decay=0.0,
            drop_zero_variance=True,
            max_concurrency=episodes,
            save_strategy="steps",
            save_steps=config.save_every,
            save_total_limit=2,
            seed=self.seed,
            use_cpu=True,
            bf16=False,
            dataloader_pin_memory=False,
            report_to="none",
            disable_tqdm=True,
            log_level="error",
        )
        trainer = AgentGRPOTrainer(
            model,
            args,
            env=WARM_START_ENV,
            env_kwargs={**WARM_START_ENV_KWARGS, "split": "train"},
            processing_class=self.tokenizer,
        )
        callback = RunCallback(self.run, lambda step, total, values: self.progress("train", step, total, values))
        trainer.add_callback(callback)
        if config.curve_tasks:
            trainer.add_callback(_Curve(self))
        checkpoint = self.run.latest_checkpoint() if resume else None
        if checkpoint is not None:
            self.run.mark_resumed(int(checkpoint.name.removeprefix("checkpoint-")))
        with _threads(), nullcontext() if interrupt is None else interrupt(callback.request_stop):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
        self.run.save_trajectories("last_batch", trainer.trajectories[:_KEPT_EPISODES])
        if callback.stopped:
            return False
        self.save(trainer.accelerator.unwrap_model(trainer.model), "final")
        return True

    # ------------------------------------------------------------------------------------------------ measuring

    def play(self, model: Any, split: str, tasks: int) -> tuple[Evaluation, Played]:
        """Evaluate a model as `agent-gym eval` does."""
        make = EnvironmentMaker(
            WARM_START_ENV,
            tokenizer=self.tokenizer,
            vocab_size=int(model.get_input_embeddings().weight.shape[0]),
            end_of_turn_ids=as_ids(model.generation_config.eos_token_id),
        )
        return evaluate(
            WARM_START_ENV,
            TransformersPolicy(model, tokenizer=self.tokenizer, max_batch_size=EVALUATION_BATCH, seed=self.seed),
            env_kwargs={**WARM_START_ENV_KWARGS, "split": split},
            tasks=tasks,
            max_tokens=self.config.max_action_tokens,
            max_concurrency=EVALUATION_BATCH,
            env_factory=make,
            model=str(self.run.path.name),
            engine="transformers",
        )

    def measure(self, name: str, folder: Path, occasion: str) -> dict[str, float]:
        """Evaluate a checkpoint on the held-out tasks, sampled and greedy; save figures and some episodes."""
        model: Any = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
        model.eval()
        with _threads():
            evaluation, played = self.play(model, "test", self.config.eval_tasks)
        evaluation.save(self.run.path / f"evaluation.{name}.json")
        self.run.save_trajectories(occasion, [*played["greedy"][:_KEPT_EPISODES], *played["sampled"][:_KEPT_EPISODES]])
        scores = evaluation.scores()
        self.run.log("eval", 0 if name == "before" else self.config.updates, scores)
        self.progress(f"eval {name}", 1, 1, scores)
        return scores

    def measured(self, name: str) -> dict[str, float] | None:
        """The scores of an evaluation that was made before, for a run that goes on."""
        path = self.run.path / f"evaluation.{name}.json"
        if not path.is_file() or not (self.run.checkpoints / "warm_start" / "config.json").is_file():
            return None
        arms = json.loads(path.read_text(encoding="utf-8"))["arms"]
        return {arm: float(figures["estimates"]["success"]["mean"]) for arm, figures in arms.items()}


class _Curve(TrainerCallback):  # type: ignore[misc,unused-ignore]  # partly untyped base
    """Measures the policy on validation tasks now and then."""

    def __init__(self, run: _Run) -> None:
        self.run = run

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step % self.run.config.curve_every or state.global_step >= state.max_steps:
            return
        training = model.training
        model.eval()
        try:
            evaluation, _ = self.run.play(model, "validation", self.run.config.curve_tasks)
        finally:
            model.train(training)
        scores = {f"validation/{arm}": value for arm, value in evaluation.scores().items()}
        self.run.run.log("eval", state.global_step, scores)


@contextlib.contextmanager
def _threads() -> Any:
    """One torch thread: a model of this size gains nothing from more, and loses much where the cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
