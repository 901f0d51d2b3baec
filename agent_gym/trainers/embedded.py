"""The embedded run: a tiny model, made here, learns an environment by multi-turn reinforcement learning, on a two-core CPU without any download.

It is the ordinary path in small: a registered environment, the default tokenizer and its chat template, the trainers and `evaluate`. Only the
model is particular to it, and how it is started: by imitation of an imperfect expert. What differs between environments stands in a preset
(`agent_gym.trainers.presets`): the tasks, the warm start, the settings.

Three splits keep the figures clean: training uses the first, the end of the warm start and the curve between the updates the second, and the figures
before and after are those of tasks of the third.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from agent_gym._names import as_ids
from agent_gym.chat import tokenizer_fingerprint
from agent_gym.evaluation import MODEL_ARMS, Evaluation, Played, evaluate
from agent_gym.policies import TransformersPolicy
from agent_gym.runs import RunFolder, RunFolderError, atomic_folder
from agent_gym.trainers.advantages import get_advantage
from agent_gym.trainers.environments import EnvironmentMaker
from agent_gym.trainers.kinds import get_trainer
from agent_gym.trainers.presets import DEFAULT_ENV, get_preset
from agent_gym.trainers.presets.base import EmbeddedConfig, Preset
from agent_gym.trainers.replay import ReplayBuffer, keep_in_run
from agent_gym.trainers.reporting import reporting
from agent_gym.trainers.run_callback import RunCallback
from agent_gym.trainers.teacher import check_teacher

__all__ = ["EmbeddedConfig", "open_replay", "run_embedded"]

Progress = Callable[[str, int, int, Mapping[str, Any]], None]
Interrupt = Callable[[Callable[[], None]], AbstractContextManager[None]]
EVALUATION_BATCH = 256  # episodes at once, the default of `agent-gym eval` too: the same batches give the same bits
_KEPT_EPISODES = 40  # of each evaluation, for the report


def run_embedded(
    config: EmbeddedConfig | None = None,
    *,
    env_id: str = DEFAULT_ENV,
    output_dir: str | Path,
    seed: int = 0,
    smoke: bool = False,
    progress: Progress | None = None,
    resume: bool = False,
    interrupt: Interrupt | None = None,
) -> RunFolder | None:
    """Make the model, warm-start it, train it, and measure it before and after.

    Args:
        config: settings, of the preset's type; None for its defaults.
        env_id: whose preset (see `agent_gym.trainers.presets`).
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
        ValueError: if the environment has no preset, the settings are another one's, what is to be replayed cannot be, or the teacher reads other ids.
        EngineError: if the server of a teacher cannot be used.
    """
    if resume and RunFolder(output_dir).exists:
        stored = RunFolder(output_dir).config
        preset = get_preset(stored["env_id"])
        config, seed = preset.config(**stored["settings"]), int(stored["seed"])
    else:
        preset = get_preset(env_id)
        config = config or preset.config()
        if not isinstance(config, preset.config):
            raise ValueError(f"the settings of a run on {env_id} are a {preset.config.__name__}, not a {type(config).__name__}")
        config = config.smoke() if smoke else config
    run = RunFolder.create(output_dir, _description(preset, config, seed), resume=resume)
    return _Run(preset, config, run, seed, progress or (lambda *_: None)).finish(resume, interrupt)


def _description(preset: Preset, config: EmbeddedConfig, seed: int) -> dict[str, Any]:
    return {
        "kind": "embedded",
        "env_id": preset.env_id,
        "env_kwargs": {**preset.keywords(config), "split": preset.splits.train},
        "evaluation": {
            "env_kwargs": {**preset.keywords(config), "split": preset.splits.held_out},
            "split": preset.splits.held_out,
            "tasks": config.eval_tasks,
            "max_tokens": config.max_action_tokens,
        },
        "figure": preset.figure,
        "imitation_ceiling": config.imitation_ceiling,
        "seed": seed,
        "settings": asdict(config),
    }


class _Run:
    """One run: its preset, its folder, its seed, and where it reports to."""

    def __init__(self, preset: Preset, config: EmbeddedConfig, run: RunFolder, seed: int, progress: Progress) -> None:
        self.preset, self.config, self.run, self.seed, self.progress = preset, config, run, seed, progress
        self.tokenizer: Any = preset.tokenizer()
        self.began = time.monotonic()
        self.replay: ReplayBuffer | None = None

    def finish(self, resume: bool, interrupt: Interrupt | None) -> RunFolder | None:
        """Do what is not done yet, and keep the time that it took, for a run that goes on."""
        try:
            done = self.go_on(resume, interrupt)
        except BaseException:
            with contextlib.suppress(RunFolderError):  # the reason of the end counts
                self.log_time()
            raise
        self.log_time()
        return done

    def log_time(self) -> None:
        self.run.log("time", 0, {"seconds": time.monotonic() - self.began})

    def go_on(self, resume: bool, interrupt: Interrupt | None) -> RunFolder | None:
        """Do what is not done yet."""
        if self.run.summary is not None:
            return self.run
        if self.config.replay:  # before anything that takes its time
            self.replay = open_replay(self.config, self.tokenizer)
            keep_in_run(self.replay, self.run)
        if self.config.distill:
            check_teacher(self.config.distill["teacher"], self.tokenizer)
        before = self.measured("before")
        if before is None:
            if self.run.metrics("warm_start"):
                self.run.mark_resumed(0, warm_start=True)
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
            env_id=self.preset.env_id,
            figure=self.preset.figure,
        )
        return self.run

    # ------------------------------------------------------------------------------------------------ warm start

    def imitate(self) -> None:
        """Make the model and warm-start it; the result is checkpoints/warm_start."""
        last: tuple[int, dict[str, Any]] = (1, {})

        def report(step: int, total: int, values: Mapping[str, Any]) -> None:
            nonlocal last
            last = (total, {name: value for name, value in values.items() if name != "phase"})
            self.progress("warm start", step, *last)
            self.run.log("warm_start", step, values)

        def success(model: Any) -> float:
            evaluation, _ = self.play(model, self.preset.splits.curve, self.config.curve_tasks or 1, {"sampled": 1.0})
            return evaluation.scores(self.preset.figure)["sampled"]

        with _threads():
            model = self.preset.warm_start(self.config, self.tokenizer, seed=self.seed, report=report, success=success)
        self.progress("warm start", last[0], *last)
        self.save(model, "warm_start")

    def save(self, model: Any, name: str) -> None:
        with atomic_folder(self.run.checkpoints / name) as folder:
            model.save_pretrained(str(folder))
            self.tokenizer.save_pretrained(str(folder))

    # ------------------------------------------------------------------------------------------------ reinforcement learning

    def train(self, resume: bool, interrupt: Interrupt | None) -> bool:
        """Train. Returns whether it came to its end."""
        config, kind = self.config, get_trainer(self.config.algorithm)
        checkpoint = self.run.latest_checkpoint() if resume else None
        if checkpoint is not None and self.updates_of(checkpoint) >= config.updates:
            # Only the end was missing, and the trainer would make one update more.
            self.save(AutoModelForCausalLM.from_pretrained(str(checkpoint), dtype=torch.float32), "final")
            return True
        model = AutoModelForCausalLM.from_pretrained(str(self.run.checkpoints / "warm_start"), dtype=torch.float32)
        self.preset.prepare(model)
        episodes = config.tasks_per_update * config.num_generations
        halves = 2 if episodes % (2 * config.num_generations) == 0 else 1  # two micro-steps: shorter rows are padded less
        args = kind.load_config()(
            output_dir=str(self.run.checkpoints),
            per_device_train_batch_size=episodes // halves,
            gradient_accumulation_steps=halves,
            num_generations=config.num_generations,
            max_completion_length=config.max_action_tokens,
            max_steps=config.updates * config.num_iterations,
            num_iterations=config.num_iterations,
            learning_rate=config.learning_rate,
            lr_scheduler_type=config.lr_scheduler_type,
            max_grad_norm=config.max_grad_norm,
            weight_decay=0.0,
            advantage=config.advantage,
            advantage_kwargs=dict(config.advantage_kwargs) or None,
            drop_zero_variance=get_advantage(config.advantage).silent_when_flat and not kind.teacher,
            max_concurrency=episodes,
            workers=config.workers,
            on_fault=config.on_fault,
            save_strategy="steps",
            save_steps=config.save_every * config.num_iterations,
            logging_steps=config.num_iterations,
            save_total_limit=2,
            seed=self.seed,
            use_cpu=True,
            bf16=False,
            dataloader_pin_memory=False,
            report_to=list(config.report_to) or "none",
            run_name=self.run.path.resolve().name,
            disable_tqdm=True,
            log_level="error",
            **({"replay_ratio": config.replay["ratio"]} if "ratio" in config.replay else {}),
            **(self.critic_settings() if kind.critic else {}),
            **config.distill,
        )
        trainer = kind.load_trainer()(
            model,
            args,
            env=self.preset.env_id,
            env_kwargs={**self.preset.keywords(config), "split": self.preset.splits.train},
            processing_class=self.tokenizer,
            replay=self.replay,
        )
        callback = RunCallback(
            self.run,
            lambda step, total, values: self.progress("train", step, total, values),
            updates_per_generation=config.num_iterations,
            count_generations=True,
            faults=trainer.faults,
            episodes=trainer.scored_trajectories,
        )
        trainer.add_callback(callback)
        if config.curve_tasks:
            trainer.add_callback(_Curve(self, callback))
        if checkpoint is not None:
            self.run.mark_resumed(self.updates_of(checkpoint))
        else:
            self.run.mark_begun_again()
        resumed = None if checkpoint is None else int(checkpoint.name.removeprefix("checkpoint-"))
        stops = nullcontext() if interrupt is None else interrupt(callback.request_stop)
        with _threads(), stops, reporting(trainer, self.run.path, resumed):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
        self.run.save_trajectories("last_batch", trainer.scored_trajectories(_KEPT_EPISODES))
        if callback.stopped:
            return False
        self.save(trainer.accelerator.unwrap_model(trainer.model), "final")
        return True

    def critic_settings(self) -> dict[str, Any]:
        """The fields of AgentPPOConfig that the settings hold; a warm-up is counted in updates here, and in optimiser steps there."""
        settings = {**self.preset.ppo_defaults, **self.config.ppo}
        return {**settings, "critic_warmup_updates": self.config.num_iterations * settings.get("critic_warmup_updates", 0)}

    def updates_of(self, checkpoint: Path) -> int:
        """How many updates a checkpoint has behind it; its name counts optimiser steps."""
        return int(checkpoint.name.removeprefix("checkpoint-")) // self.config.num_iterations

    # ------------------------------------------------------------------------------------------------ measuring

    def play(self, model: Any, split: str, tasks: int, arms: Mapping[str, float | None] = MODEL_ARMS) -> tuple[Evaluation, Played]:
        """Evaluate a model as `agent-gym eval` does."""
        make = EnvironmentMaker(
            self.preset.env_id,
            tokenizer=self.tokenizer,
            vocab_size=int(model.get_input_embeddings().weight.shape[0]),
            end_of_turn_ids=as_ids(model.generation_config.eos_token_id),
        )
        return evaluate(
            self.preset.env_id,
            TransformersPolicy(model, tokenizer=self.tokenizer, max_batch_size=EVALUATION_BATCH, seed=self.seed),
            env_kwargs={**self.preset.keywords(self.config), "split": split},
            tasks=tasks,
            arms=arms,
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
            evaluation, played = self.play(model, self.preset.splits.held_out, self.config.eval_tasks)
        self.run.save_trajectories(occasion, [*played["greedy"][:_KEPT_EPISODES], *played["sampled"][:_KEPT_EPISODES]])
        scores = evaluation.scores(self.preset.figure)
        self.run.log_once("eval", 0 if name == "before" else self.config.updates, scores)
        evaluation.save(self.run.path / f"evaluation.{name}.json")  # last: where it is, the other two are
        self.progress(f"eval {name}", 1, 1, scores)
        return scores

    def measured(self, name: str) -> dict[str, float] | None:
        """The scores of an evaluation that was made before, for a run that goes on."""
        path = self.run.path / f"evaluation.{name}.json"
        if not path.is_file() or not (self.run.checkpoints / "warm_start" / "config.json").is_file():
            return None
        arms = json.loads(path.read_text(encoding="utf-8"))["arms"]
        return {arm: float(figures["estimates"][self.preset.figure]["mean"]) for arm, figures in arms.items()}


def open_replay(config: EmbeddedConfig, tokenizer: Any) -> ReplayBuffer:
    """Open what an embedded run replays.

    Args:
        config: its settings, with `replay`.
        tokenizer: of its model.

    Returns:
        The buffer.

    Raises:
        ValueError: if the files cannot be replayed; `ReplayError` names them.
    """
    settings = {name: value for name, value in config.replay.items() if name not in ("files", "ratio")}
    return ReplayBuffer.from_files(
        config.replay["files"], fingerprint=tokenizer_fingerprint(tokenizer), vocab_size=len(tokenizer), **settings
    )


class _Curve(TrainerCallback):  # type: ignore[misc,unused-ignore]  # partly untyped base
    """Measures the policy on tasks of the curve's split now and then."""

    def __init__(self, run: _Run, records: RunCallback) -> None:
        self.run, self.records = run, records

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        update, rest = divmod(state.global_step, self.run.config.num_iterations)
        if rest or update % self.run.config.curve_every or state.global_step >= state.max_steps:
            return
        training = model.training
        model.eval()
        try:
            evaluation, _ = self.run.play(model, self.run.preset.splits.curve, self.run.config.curve_tasks)
        finally:
            model.train(training)
        scores = {f"validation/{arm}": value for arm, value in evaluation.scores(self.run.preset.figure).items()}
        self.records.write("eval", update, scores)


@contextlib.contextmanager
def _threads() -> Any:
    """One torch thread: a model of this size gains nothing from more, and loses much where the cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
