"""`agent-gym train`: the embedded run, or a recipe on a model of yours; by GRPO, by PPO with a critic, or by distillation from a teacher.

Both write the same run folder (see `agent_gym.runs`). The first Ctrl-C lets the update in hand finish, saves and ends; the second ends at once. Either way
the folder goes on with --resume.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import (
    SCRIPTED,
    Failed,
    Interrupted,
    UsageError,
    console,
    find_env,
    loading,
    parse_env_args,
    reach_hub,
    resolve_model,
    user_mistakes,
)
from agent_gym.cli.display import TrainDisplay
from agent_gym.cli.recipe import Recipe, apply_overrides, check_fields, find_teacher, read_yaml, resolve
from agent_gym.cli.sample_files import judge_of
from agent_gym.cli.viewing import live_view
from agent_gym.runs import RunFolder
from agent_gym.trainers.advantages import check_advantage
from agent_gym.trainers.distill_settings import is_address
from agent_gym.trainers.kinds import TRAINERS
from agent_gym.trainers.presets import DEFAULT_ENV, PRESETS

if TYPE_CHECKING:
    from agent_gym.trainers.presets.base import EmbeddedConfig, Preset

__all__ = ["run"]

_REPLAY_OPTIONS = ("replay", "replay_ratio", "replay_max_age", "replay_correction", "replay_base_version")
_SMOKE_UPDATES = 2
_SMOKE_TASKS = 4


def run(args: argparse.Namespace) -> int:
    """Train.

    Args:
        args: see `parser.py`.

    Returns:
        0.

    Raises:
        UsageError: for options or settings of a file that do not go together.
    """
    earlier = _earlier_run(args)
    if earlier is not None:
        content = earlier.config.get("recipe")
        if content is not None:
            recipe = resolve(content)
            return _dry_run(recipe) if args.dry_run else _recipe_run(args, recipe, earlier.path)
        return _embedded_run(args, earlier)
    if args.data is not None and args.model is None and args.config is None:
        raise UsageError("--data: which model is trained on these rows? --model M")
    if args.model is None and args.config is None:
        return _embedded_run(args, None)
    content = read_yaml(args.config) if args.config is not None else {}
    if args.env is not None:
        content["env"] = args.env
    if args.model is not None:
        content["model"] = args.model
    if args.seed is not None:
        content["seed"] = args.seed
    data = {"train_file": args.data, "judge": judge_of(args), "allow_functions": args.allow_functions or None}
    if any(value is not None for value in data.values()):
        before = content.get("data") or {}
        if not isinstance(before, dict):
            raise UsageError(f"data: wanted keys and values, not {before!r}")
        content["data"] = {**before, **{name: value for name, value in data.items() if value is not None}}
    content = apply_overrides(content, args.overrides)
    if args.algorithm is not None:
        content["algorithm"] = args.algorithm
    if args.advantage is not None:
        kind = TRAINERS.get(str(content.get("algorithm") or "grpo"))
        with user_mistakes():
            check_advantage(args.advantage, critic=kind is None or kind.critic)  # an unknown name is the recipe's to refuse
        content["trainer"] = {**(content.get("trainer") or {}), "advantage": args.advantage}
    if args.workers is not None:
        content["trainer"] = {**(content.get("trainer") or {}), "workers": args.workers}
    if args.teacher is not None:
        _goes_with_a_teacher(content.get("algorithm"))
        content["trainer"] = {**(content.get("trainer") or {}), "teacher": args.teacher}
    replay = _replay_settings(args)
    if replay:
        trainer = {**(content.get("trainer") or {}), **{f"replay_{name}": value for name, value in replay.items()}}
        if not trainer.get("replay_files"):
            raise UsageError(f"--replay-{next(iter(replay)).replace('_', '-')} goes with --replay FILES")
        content["trainer"] = trainer
    keywords = parse_env_args(args.env_arg)
    if keywords:
        content["env_kwargs"] = {**(content.get("env_kwargs") or {}), **keywords}
    recipe = resolve(content)
    if args.smoke:
        recipe = _smoke(recipe)
    return _dry_run(recipe) if args.dry_run else _recipe_run(args, recipe, None)


def _goes_with_a_teacher(algorithm: Any) -> None:
    kind = TRAINERS.get(str(algorithm or "grpo"))
    if kind is not None and not kind.teacher:
        raise UsageError("--teacher goes with --algorithm distill; the others learn from the reward")


def _replay_settings(args: argparse.Namespace) -> dict[str, Any]:
    """What the --replay options say, by the names of the settings behind `replay_`. Files as whole paths, for a run that goes on elsewhere."""
    names = {"replay": "files"}
    found = {names.get(one, one.removeprefix("replay_")): getattr(args, one) for one in _REPLAY_OPTIONS if getattr(args, one) is not None}
    for name in found.get("files", ()):
        if not Path(name).is_file():
            hint = "; ENV goes before --replay" if name.count("/") == 1 and name.rpartition("-v")[2].isdigit() else ""
            raise UsageError(f"--replay: there is no trajectory file {name}{hint}")
    if "files" in found:
        found["files"] = [str(Path(name).resolve()) for name in found["files"]]
    return found


def _dry_run(recipe: Recipe) -> int:
    from agent_gym.cli.dry_run import dry_run

    dry_run(recipe, console())
    return 0


def _earlier_run(args: argparse.Namespace) -> RunFolder | None:
    """The run to go on with, for --resume."""
    if not args.resume:
        return None
    if args.output_dir is None:
        raise UsageError("--resume: which run? give its folder with --output-dir")
    earlier = RunFolder(args.output_dir)
    if not earlier.exists:
        raise UsageError(f"--resume: {args.output_dir} holds no run; leave --resume out to begin one")
    given = (
        "env",
        "model",
        "config",
        "overrides",
        "env_arg",
        "seed",
        "algorithm",
        "advantage",
        "teacher",
        "data",
        "judge",
        "judge_model",
        "allow_functions",
        *_REPLAY_OPTIONS,
    )
    changed = [name for name in given if getattr(args, name) not in (None, [], False)]
    if args.smoke:
        raise UsageError(
            "--smoke begins a run of two updates, and --resume goes on with the settings of an earlier one (a smoke run stays one); leave one of them out"
        )
    if changed:
        names = ", ".join(
            {"env": "ENV", "overrides": "--set", "env_arg": "--env-arg"}.get(name, f"--{name.replace('_', '-')}") for name in changed
        )
        raise UsageError(f"--resume goes on with the settings of the run; leave out {names}, or begin another run in another --output-dir")
    return earlier


def _free_folder(args: argparse.Namespace, *words: str) -> Path:
    if args.output_dir is not None:
        folder = Path(args.output_dir)
        if RunFolder(folder).exists:
            raise UsageError(f"{folder} already holds a run; go on with it (--resume), or choose another --output-dir")
        return folder
    name = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", word).strip("-") for word in words if word)
    folder = Path("runs") / name
    number = 2
    while RunFolder(folder).exists:
        folder = Path("runs") / f"{name}-{number}"
        number += 1
    return folder


@contextlib.contextmanager
def _gentle_interrupt(request_stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """The first Ctrl-C asks for an end at the next good place; the second is an ordinary one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, before)
        say("finishing this update, then saving; Ctrl-C again stops at once")
        request_stop()

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _go_on(folder: Path) -> str:
    return f"go on with: agent-gym train --output-dir {folder} --resume"


@contextlib.contextmanager
def _telling_how_to_go_on(folder: Path) -> Iterator[None]:
    """A run that stops or fails in a foreseen way says where it stands."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; {_go_on(folder)}") from None
    except tuple(_expected_failures()) as error:
        raise Failed(f"{error}\nThe run folder {folder} is whole; {_go_on(folder)}") from error


def _expected_failures() -> list[type[Exception]]:
    """The ends of a run that are nobody's bug: nothing to learn from, a world that breaks, a server that is gone, a full disk, a warm start that does not take."""
    from agent_gym.flows import TooManyFaults
    from agent_gym.policies import EngineError
    from agent_gym.runs import RunFolderError
    from agent_gym.trainers.grpo import NoLearningSignalError
    from agent_gym.trainers.imitation import WarmStartFailed

    return [TooManyFaults, EngineError, RunFolderError, NoLearningSignalError, WarmStartFailed]


# ---------------------------------------------------------------------------------------------------- the embedded run


def _embedded_run(args: argparse.Namespace, earlier: RunFolder | None) -> int:
    asked = earlier.config.get("env_id") if earlier is not None else args.env
    env_id = find_env(str(asked)) if asked is not None else DEFAULT_ENV
    if env_id not in PRESETS:
        raise UsageError(f"the embedded run trains on {' or '.join(PRESETS)}; for {env_id} give a model: --model M")
    if args.env_arg:
        raise UsageError(
            "--env-arg: the embedded run has settings of its own (--set KEY=VALUE); for other keywords of the environment give a model: --model M"
        )
    with user_mistakes(), loading("torch and TRL"):
        from agent_gym.trainers.embedded import run_embedded
        from agent_gym.trainers.presets import get_preset

        preset = get_preset(env_id)
    overrides = apply_overrides({}, args.overrides)
    for name in ("algorithm", "advantage", "workers"):
        if getattr(args, name) is not None:
            overrides[name] = getattr(args, name)
    replay = _replay_settings(args)
    if replay:
        overrides["replay"] = {**(overrides.get("replay") or {}), **replay}
    _find_embedded_teacher(args, overrides)
    with user_mistakes(TypeError):
        config = preset.config(**check_fields("--set", overrides, preset.config))
    seed = int(earlier.config.get("seed", 0)) if earlier is not None else args.seed or 0
    if args.dry_run:
        return _embedded_dry_run(preset, config, seed)
    folder = (
        earlier.path if earlier is not None else _free_folder(args, preset.label, "embedded", "smoke" if args.smoke else "", f"seed{seed}")
    )
    with TrainDisplay(preset.figure) as display:
        display.say(f"run folder: {folder}", "dim")
        with live_view(folder, args.live, display.say), _telling_how_to_go_on(folder), user_mistakes():
            done = run_embedded(
                config,
                env_id=env_id,
                output_dir=folder,
                seed=seed,
                smoke=args.smoke,
                progress=display,
                resume=earlier is not None,
                interrupt=lambda request_stop: _gentle_interrupt(request_stop, lambda text: display.say(text, "yellow")),
            )
    if done is None:
        raise Interrupted(f"stopped and saved; {_go_on(folder)}")
    _finish(done)
    return 0


def _find_embedded_teacher(args: argparse.Namespace, overrides: dict[str, Any]) -> None:
    """Put the teacher where the settings have it."""
    algorithm = overrides.get("algorithm")
    if args.teacher is not None:
        _goes_with_a_teacher(algorithm)
        overrides["distill"] = {**(overrides.get("distill") or {}), "teacher": args.teacher}
    kind = TRAINERS.get(str(algorithm))
    given = overrides.get("distill") or {}
    if kind is not None and kind.teacher and isinstance(given, dict):
        overrides["distill"] = {**given, "teacher": find_teacher(given.get("teacher"), "distill.teacher")}


def _embedded_dry_run(preset: Preset, config: EmbeddedConfig, seed: int) -> int:
    """Show the settings, and make and reset the environment of the run."""
    import gymnasium

    import agent_gym  # noqa: F401  # registers the ids
    from agent_gym.cli.dry_run import check_beforehand

    screen = console()
    screen.print(f"{preset.env_id}: a tiny model learns {preset.goal}", highlight=False, soft_wrap=True)
    for name, value in dataclasses.asdict(config).items():
        screen.print(f"  {name} = {value!r}", markup=False, highlight=False, soft_wrap=True)
    with user_mistakes(TypeError):
        env = gymnasium.make(preset.env_id, **preset.keywords(config), split=preset.splits.train)
        try:
            _, info = env.reset(seed=seed)
        finally:
            env.close()
    if config.replay:
        from agent_gym.trainers.config import AgentGRPOConfig
        from agent_gym.trainers.embedded import open_replay

        with user_mistakes(TypeError):
            ratio = float(config.replay.get("ratio", AgentGRPOConfig.replay_ratio))
            screen.print(open_replay(config, preset.tokenizer()).describe(ratio), markup=False, highlight=False, soft_wrap=True)
    if config.distill:
        teacher = str(config.distill["teacher"])
        with user_mistakes():
            screen.print(check_beforehand(teacher, preset.tokenizer()), markup=False, highlight=False, soft_wrap=True)
    episodes = config.tasks_per_update * config.num_generations
    screen.print(f"{episodes} episodes per update; the first prompt has {info['observation_length']} tokens", highlight=False)
    screen.print("dry run passed", style="green")
    return 0


def _finish(run_folder: RunFolder) -> None:
    """Write the report, and print what came out."""
    from agent_gym.report import write_report

    with user_mistakes():
        report = write_report(run_folder)
    screen = console()
    summary = run_folder.summary or {}
    for name, words in (("warm_start", "before RL"), ("final", "after RL")):
        scores = summary.get(name) or {}
        if any(value is not None for value in scores.values()):
            shown = "  ".join(f"{arm} {value:.3f}" for arm, value in scores.items() if isinstance(value, (int, float)))
            figure = summary.get("figure", "success")
            what = "" if figure == "success" else f"{figure} "
            screen.print(f"{words:<10} {what}{shown}   on {summary.get('tasks')} held-out tasks", highlight=False)
    screen.print(f"report: {report}", markup=False, highlight=False, soft_wrap=True)


# ---------------------------------------------------------------------------------------------------- a model of yours


def _smoke(recipe: Recipe) -> Recipe:
    """Two small updates of the same run."""
    group = int(recipe.trainer.get("num_generations", 8))
    trainer = {
        **recipe.trainer,
        "max_steps": _SMOKE_UPDATES,
        "num_generations": min(group, 2),
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "no",
    }
    for name in ("steps_per_generation", "generation_batch_size", "num_train_epochs"):
        trainer.pop(name, None)
    data = {**recipe.data, "eval_tasks": min(_SMOKE_TASKS, int(recipe.data.get("eval_tasks", _SMOKE_TASKS)))}
    return dataclasses.replace(recipe, trainer=trainer, data=data)


def _recipe_run(args: argparse.Namespace, recipe: Recipe, earlier: Path | None) -> int:
    with user_mistakes(), loading("torch and TRL"):
        from agent_gym.cli.recipe_run import train_recipe
    if recipe.model in SCRIPTED:
        raise UsageError(f"the model {recipe.model!r} cannot be trained; give a model's folder or a Hugging Face name")
    path, _ = resolve_model(recipe.model)
    reach_hub(path, "model")
    reach_hub(recipe.tokenizer, "tokenizer")
    first, several = int(os.environ.get("RANK", 0)) == 0, int(os.environ.get("WORLD_SIZE", 1)) > 1  # as torchrun and accelerate launch say
    if several and earlier is None and args.output_dir is None and recipe.output_dir is None:
        raise UsageError("several processes train into one folder, which each of them has to know: give --output-dir")
    teacher = recipe.trainer.get("teacher")
    if teacher is not None and not is_address(teacher):
        reach_hub(teacher, "model")
    folder = earlier or (
        Path(recipe.output_dir)
        if recipe.output_dir and args.output_dir is None
        else _free_folder(args, recipe.env_id.split("/")[-1], Path(recipe.model).name, f"seed{recipe.seed}")
    )
    with TrainDisplay(silent=not first) as display:
        display.say(f"run folder: {folder}", "dim")
        with live_view(folder, args.live and first, display.say), _telling_how_to_go_on(folder):
            run_folder = train_recipe(
                dataclasses.replace(recipe, model=path), folder, display, resume=earlier is not None, interrupt=_gentle_interrupt
            )
    if run_folder is None:
        raise Interrupted(f"stopped and saved; {_go_on(folder)}")
    if first:
        _finish(run_folder)
    return 0
