"""`agent-gym eval`: the table, the JSON and the figure of an evaluation."""

from __future__ import annotations

import argparse
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_gym.cli.common import (
    SCRIPTED,
    Player,
    UsageError,
    check_env_kwargs,
    console,
    find_env,
    load_player,
    parse_env_args,
    progress_bar,
    resolve_model,
    user_mistakes,
)
from agent_gym.runs import RunFolder, atomic_write
from agent_gym.trajectory import Trajectory

__all__ = ["run"]

DEFAULT_TASKS = 200


def run(args: argparse.Namespace) -> int:
    """Evaluate.

    Args:
        args: see `parser.py`.

    Returns:
        0.
    """
    run_folder = resolve_model(args.model)[1] if args.model not in SCRIPTED else None
    env_id, keywords, defaults = _what_to_play(args, run_folder)
    check_env_kwargs(env_id, keywords)
    player = load_player(
        args.model,
        tokenizer=args.tokenizer,
        temperature=args.temperature,
        seed=args.seed,
        dtype=args.dtype,
        device=args.device,
        batch_size=args.batch_size,
    )
    from agent_gym.evaluation import evaluate
    from agent_gym.flows import TooManyFaults

    tasks = args.tasks or int(defaults.get("tasks", DEFAULT_TASKS))
    arms = {name: value for name, value in player.arms.items() if args.arms == "both" or name == args.arms or value is None}
    with progress_bar() as bar, user_mistakes(TooManyFaults, TypeError):
        counters = {
            name: bar.add_task(f"{name:<8}", total=tasks * (args.samples if temperature else 1), note="")
            for name, temperature in arms.items()
        }
        done: Counter[str] = Counter()
        solved: Counter[str] = Counter()

        def finished(arm: str, episodes: Sequence[Trajectory]) -> None:
            done[arm] += 1
            solved[arm] += any(episode.is_success for episode in episodes)
            bar.update(counters[arm], advance=1, note=f"success {solved[arm] / done[arm]:.3f}")

        evaluation, played = evaluate(
            env_id,
            player.policy,
            env_kwargs=keywords,
            split=args.split or defaults.get("split"),
            tasks=tasks,
            samples=args.samples,
            arms=arms,
            max_tokens=args.max_tokens or defaults.get("max_tokens"),
            seed=args.seed,
            env_factory=player.env_factory(env_id, keywords),
            max_concurrency=args.batch_size,
            model=player.name,
            engine=player.engine,
            on_episode=finished,
        )
    folder = Path(args.output_dir) if args.output_dir else _folder(env_id, player, evaluation.settings)
    screen = console()
    table = evaluation.table()
    screen.print(table)
    with user_mistakes():
        _save(folder, evaluation, played if args.save_episodes else {})
    screen.print(
        f"written to {folder}/: evaluation.json, evaluation.txt, evaluation.svg", markup=False, highlight=False, style="dim", soft_wrap=True
    )
    return 0


def _what_to_play(args: argparse.Namespace, run_folder: RunFolder | None) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    """Environment, keywords and further defaults: what the command says, else what the model's run was evaluated on."""
    given = parse_env_args(args.env_arg)
    known: Mapping[str, Any] = {}
    if run_folder is not None:
        with user_mistakes():
            config = run_folder.config
        known = config.get("evaluation") or {}
        trained_on = config.get("env_id")
        if trained_on and (args.env is None or args.env == trained_on):
            keywords = {**(config.get("env_kwargs") or {}), **(known.get("env_kwargs") or {}), **given}
            return find_env(str(trained_on)), keywords, known
    if args.env is None:
        raise UsageError("which environment? `agent-gym eval ENV --model M`; only a model inside a run's folder needs no ENV")
    return find_env(args.env), given, {}


def _folder(env_id: str, player: Player, settings: Mapping[str, Any]) -> Path:
    words = [env_id.split("/")[-1], Path(player.name).name or player.name, str(settings.get("split", "")), f"seed{settings['seed']}"]
    return Path("evals") / "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", word).strip("-") for word in words if word)


def _save(folder: Path, evaluation: Any, played: Mapping[str, Sequence[Trajectory]]) -> None:
    from rich.console import Console

    from agent_gym.report import evaluation_figure

    evaluation.save(folder / "evaluation.json")
    text = io.StringIO()
    Console(file=text, width=120).print(evaluation.table())
    atomic_write(folder / "evaluation.txt", "".join(line.rstrip() + "\n" for line in text.getvalue().splitlines()))
    atomic_write(folder / "evaluation.svg", str(evaluation_figure(evaluation.to_dict())) + "\n")
    if played:
        from agent_gym.trajectory_io import save_trajectories

        for arm, episodes in played.items():
            save_trajectories(folder / f"episodes.{arm}.jsonl", episodes)
