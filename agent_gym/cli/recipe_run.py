"""The run of a recipe: evaluate, train, evaluate again, with everything in one run folder."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object

from agent_gym._names import as_ids
from agent_gym.cli.common import UsageError, user_mistakes
from agent_gym.cli.display import TrainDisplay
from agent_gym.cli.dry_run import Rows, build_args, build_rows, make_maker
from agent_gym.cli.recipe import Recipe
from agent_gym.cli.sample_files import is_sample_file
from agent_gym.evaluation import Evaluation, evaluate
from agent_gym.policies import TransformersPolicy
from agent_gym.runs import RunFolder, RunFolderError, atomic_folder, publish_folder, sync_folder
from agent_gym.trainers.environments import read_row
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trainers.kinds import TRAINERS
from agent_gym.trainers.replay import keep_in_run
from agent_gym.trainers.reporting import reporting
from agent_gym.trainers.run_callback import RunCallback
from agent_gym.trajectory import Trajectory

__all__ = ["train_recipe"]

Interrupt = Callable[[Callable[[], None], Callable[[str], None]], AbstractContextManager[None]]
_KEPT_EPISODES = 20  # of each evaluation, for the report


def train_recipe(recipe: Recipe, folder: Path, display: TrainDisplay, *, resume: bool, interrupt: Interrupt) -> RunFolder | None:
    """Train a model of yours.

    Args:
        recipe: resolved.
        folder: of the run.
        display: shows how it goes.
        resume: go on with the run in the folder.
        interrupt: context in which a first Ctrl-C asks for an end.

    Returns:
        The run; None where it was interrupted and can go on.

    Raises:
        UsageError: for settings that cannot work.
    """
    began = time.monotonic()
    notes: list[str] = []
    args = build_args(
        recipe, folder / "checkpoints", elsewhere=False, notes=notes, disable_tqdm=True, log_level="error", **_named(recipe, folder)
    )
    for note in notes:
        display.say(f"note: {note}", "yellow")
    with user_mistakes(TypeError, RuntimeError):
        planned = _rows(recipe, args)
        if planned.note:
            display.say(f"note: {planned.note}", "yellow")
        trainer = _trainer(recipe, args, planned)
    try:
        return _train(recipe, trainer, planned, folder, display, began=began, resume=resume, interrupt=interrupt)
    finally:
        trainer.close()


def _named(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """The name under which the run is reported, where the recipe gives none."""
    return {} if "run_name" in recipe.trainer else {"run_name": folder.resolve().name}


def _train(
    recipe: Recipe,
    trainer: AgentGRPOTrainer,
    planned: Rows,
    folder: Path,
    display: TrainDisplay,
    *,
    began: float,
    resume: bool,
    interrupt: Interrupt,
) -> RunFolder | None:
    """Evaluate, train and evaluate again; None where it was interrupted and can go on."""
    args = trainer.args
    run = _open(recipe, trainer, planned, folder, resume)
    if trainer.replay is not None and trainer.accelerator.is_main_process:
        with user_mistakes():
            keep_in_run(trainer.replay, run)
    callback = RunCallback(
        run,
        lambda step, total, values: display("train", step, total, values),
        updates_per_generation=max(1, args.steps_per_generation * args.num_iterations // args.gradient_accumulation_steps),
        faults=trainer.faults,
        episodes=trainer.scored_trajectories,
    )
    trainer.add_callback(callback)
    alone = trainer.accelerator.num_processes == 1
    rows = _eval_rows(recipe, planned) if alone else []
    checkpoint = run.latest_checkpoint() if resume else None
    if rows and checkpoint is None and not (run.path / "evaluation.before.json").is_file():
        _measure("before", recipe, trainer, rows, run, display)
    if checkpoint is not None:
        step = int(checkpoint.name.removeprefix("checkpoint-"))
        if trainer.accelerator.is_main_process:
            run.mark_resumed(step)
        display.say(f"going on from update {step}", "dim")
    elif trainer.accelerator.is_main_process:
        run.mark_begun_again()
    if checkpoint is not None and _is_last(checkpoint):
        trainer.finish_from(checkpoint)
    else:
        resumed = None if checkpoint is None else int(checkpoint.name.removeprefix("checkpoint-"))
        with interrupt(callback.request_stop, lambda text: display.say(text, "yellow")), reporting(trainer, run.path, resumed):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
    if callback.stopped:
        return None
    _save_final(trainer, run)
    after = _measure("final", recipe, trainer, rows, run, display) if rows else None
    if trainer.accelerator.is_main_process:
        _summarize(recipe, run, after, trainer.state.global_step, time.monotonic() - began)
    return run


def _is_last(checkpoint: Path) -> bool:
    """Whether a checkpoint has every update behind it, and only the end of the run is missing."""
    state = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    return bool(0 < state.get("max_steps", 0) <= state.get("global_step", 0))


def _save_final(trainer: AgentGRPOTrainer, run: RunFolder) -> None:
    """Save the model that was trained, whole or not at all, with its tokenizer."""
    final = run.checkpoints / "final"
    if trainer.accelerator.num_processes > 1:  # all take part in the writing of a model that lies in parts
        staging = run.checkpoints / ".final.part"
        if trainer.accelerator.is_main_process:
            shutil.rmtree(staging, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
        trainer.save_model(str(staging))
        trainer.accelerator.wait_for_everyone()
        if trainer.accelerator.is_main_process:
            trainer.make_env.tokenizer.save_pretrained(str(staging))
            sync_folder(staging)
            publish_folder(staging, final)
            run.flush()
        return
    with atomic_folder(final) as folder:
        trainer.save_model(str(folder))
        trainer.make_env.tokenizer.save_pretrained(str(folder))
    run.flush()


def _trainer(recipe: Recipe, args: Any, planned: Rows) -> AgentGRPOTrainer:
    more: dict[str, Any] = {}
    if recipe.lora is not None:
        from peft import LoraConfig

        more["peft_config"] = LoraConfig(**recipe.lora)
    evaluates = str(getattr(args.eval_strategy, "value", args.eval_strategy)) != "no"
    made: AgentGRPOTrainer = TRAINERS[recipe.algorithm].load_trainer()(
        recipe.model,
        args,
        env=recipe.env_id,
        env_kwargs=recipe.env_kwargs,
        train_dataset=planned.train,
        eval_dataset=(planned.eval or None) if evaluates else None,
        processing_class=recipe.tokenizer,
        flow=recipe.flow,
        **more,
    )
    return made


def _rows(recipe: Recipe, args: Any) -> Rows:
    """The rows of the run, as its dry run counted them."""
    from agent_gym.chat import load_tokenizer

    return build_rows(recipe, make_maker(recipe, load_tokenizer(recipe.tokenizer), args, recipe.env_kwargs))


def _eval_rows(recipe: Recipe, planned: Rows) -> list[dict[str, Any]]:
    """The rows of the evaluations before and after, as `evaluate` takes them."""
    return [{**read_row(row, recipe.env_id), "group_id": f"task-{number}"} for number, row in enumerate(planned.eval)]


def _open(recipe: Recipe, trainer: AgentGRPOTrainer, planned: Rows, folder: Path, resume: bool) -> RunFolder:
    """Begin the run folder, or take it up again: the main process does so, and the others find it."""
    problem = ""
    if trainer.accelerator.is_main_process:
        try:
            RunFolder.create(folder, _config(recipe, planned), resume=resume)
        except (RunFolderError, OSError) as error:  # the others must not wait for it
            problem = str(error)
    if trainer.accelerator.num_processes > 1:
        problem = gather_object([problem])[0]
    if problem:
        raise UsageError(problem)
    return RunFolder.open(folder)


def _config(recipe: Recipe, planned: Rows) -> dict[str, Any]:
    """What config.yaml says."""
    return {
        "kind": "recipe",
        "env_id": recipe.env_id,
        "env_kwargs": recipe.env_kwargs,
        "evaluation": {
            "env_kwargs": recipe.eval_env_kwargs,
            "tasks": recipe.data.get("eval_tasks"),
            "first": planned.first,
            **_file_of(recipe, planned),
            "max_tokens": recipe.trainer.get("max_completion_length"),
        },
        "model": recipe.model,
        "seed": recipe.seed,
        "recipe": {**recipe.source, "trainer": recipe.trainer, "data": recipe.data, "model": recipe.model, "seed": recipe.seed},
    }


def _file_of(recipe: Recipe, planned: Rows) -> dict[str, Any]:
    """The rows of the evaluation where they are those of a file of samples: what `agent-gym eval --model RUN` plays again."""
    file = recipe.data.get("eval_file") or recipe.data.get("train_file")
    if file is None or not is_sample_file(file):
        return {}
    return {
        "data": {
            "file": str(Path(file).resolve()),
            "first": planned.place,
            "env": recipe.source.get("env"),
            "judge": recipe.data.get("judge"),
            "allow_functions": bool(recipe.data.get("allow_functions")),
        }
    }


def _measure(
    name: str, recipe: Recipe, trainer: AgentGRPOTrainer, rows: Sequence[Mapping[str, Any]], run: RunFolder, display: TrainDisplay
) -> Evaluation:
    """Evaluate the model as it stands, sampled and greedy; save figures and some episodes."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    made = trainer.make_env
    embedding = int(model.get_input_embeddings().weight.shape[0])
    ends = as_ids(model.generation_config.eos_token_id)
    done = 0

    def finished(_arm: str, episodes: Sequence[Trajectory]) -> None:
        nonlocal done
        done += 1
        display(f"eval {name}", done, 2 * len(rows), {})

    policy, engine = _player(recipe, trainer, model)
    was_training = model.training
    model.eval()
    try:
        evaluation, played = evaluate(
            recipe.env_id,
            policy,
            env_kwargs=recipe.eval_env_kwargs,
            rows=rows,
            arms={"sampled": float(trainer.args.temperature), "greedy": 0.0},
            max_tokens=trainer.args.max_completion_length,
            seed=recipe.seed,
            flow=recipe.flow or "agent_env_loop",
            env_factory=make_maker(recipe, made.tokenizer, trainer.args, recipe.eval_env_kwargs, embedding, ends),
            model=recipe.model,
            engine=engine,
            on_episode=finished,
            workers=trainer.args.workers,
        )
    finally:
        model.train(was_training)
    run.save_trajectories("warm_start" if name == "before" else name, played["greedy"][:_KEPT_EPISODES])
    run.log_once("eval", trainer.state.global_step, evaluation.scores())
    evaluation.save(run.path / f"evaluation.{name}.json")  # last: where it is, the other two are
    display.say(f"{name:<7} " + "  ".join(f"{arm} {value:.3f}" for arm, value in evaluation.scores().items()) + f"   on {len(rows)} tasks")
    return evaluation


def _player(recipe: Recipe, trainer: AgentGRPOTrainer, model: Any) -> tuple[Any, str]:
    """What plays an evaluation, and its name: the engine of the run with the model's weights, or the model itself."""
    if trainer.engine is None:
        return TransformersPolicy(model, tokenizer=trainer.make_env.tokenizer, seed=recipe.seed), "transformers"
    trainer.engine.update(trainer.model_wrapped, int(trainer.state.global_step))
    assert trainer.engine.policy.info is not None  # it was connected for the update
    return trainer.policy, trainer.engine.policy.info.name


def _summarize(recipe: Recipe, run: RunFolder, after: Evaluation | None, updates: int, seconds: float) -> None:
    before = None
    path = run.path / "evaluation.before.json"
    if path.is_file():
        arms = json.loads(path.read_text(encoding="utf-8"))["arms"]
        before = {name: arm["estimates"]["success"]["mean"] for name, arm in arms.items()}
    nothing: dict[str, Any] = {"sampled": None, "greedy": None}
    tasks = next(iter(after.arms.values())).tasks if after is not None else 0
    run.write_summary(
        warm_start=before if before is not None else nothing,
        final=after.scores() if after is not None else nothing,
        tasks=tasks,
        seed=recipe.seed,
        updates=updates,
        seconds=round(seconds, 1),
        model=recipe.model,
        env_id=recipe.env_id,
    )
