"""`agent-gym eval --data FILE`: the rows of a file, each with the flow, environment and reward that it names. One table per environment."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import UsageError, console, load_player, parse_env_args, progress_bar, user_mistakes
from agent_gym.cli.evaluate import arms_of, folder_of, save
from agent_gym.cli.sample_files import Asked, env_ids, load_file, say
from agent_gym.runs import to_plain
from agent_gym.trajectory import Trajectory

if TYPE_CHECKING:
    from agent_gym.runs import RunFolder

__all__ = ["evaluate_file"]


def evaluate_file(args: argparse.Namespace, file: Asked, run_folder: RunFolder | None = None) -> int:
    """Evaluate on the rows of a file.

    Args:
        args: of `agent-gym eval`.
        file: the rows.
        run_folder: that the model lies in: replies are as long as in that run.

    Returns:
        0.

    Raises:
        UsageError: for a row or an option that cannot be used.
    """
    if args.split:
        raise UsageError("--split: the rows of a file are played as they are; give the file of the split (--data FILE)")
    if args.baselines:
        raise UsageError("--baselines: players without a model play an environment's own tasks; leave --data or --baselines out")
    keywords = parse_env_args(args.env_arg)
    found, notes = load_file(file.file, env=file.env, env_kwargs=keywords, judge=file.judge, allow_functions=file.allow_functions)
    say(notes)
    rows = found.rows[file.first :][: args.tasks]
    if not rows:
        raise UsageError(f"{file.file}: there is no row from number {file.first} on")
    player = load_player(
        args.model,
        tokenizer=args.tokenizer,
        temperature=args.temperature,
        seed=args.seed,
        dtype=args.dtype,
        device=args.device,
        batch_size=args.batch_size,
    )
    max_tokens = args.max_tokens
    if max_tokens is None and run_folder is not None:
        max_tokens = (run_folder.config.get("evaluation") or {}).get("max_tokens")
    arms = arms_of(args, player)
    asked = to_plain(
        {
            "data_file": str(file.file),
            "first": file.first,
            "env_kwargs": keywords,
            "judge": file.judge,
            "model": player.name,
            "tokenizer": args.tokenizer,
            "dtype": args.dtype,
            "tasks": len(rows),
            "samples": args.samples,
            "arms": arms,
            "max_tokens": max_tokens,
            "seed": args.seed,
        }
    )
    ids = [one for one in env_ids(found) if any(row["env_id"] == one for row in rows)]
    screen = console()
    for env_id in ids:
        own = [{**row, "group_id": f"task-{number}"} for number, row in enumerate(rows) if row["env_id"] == env_id]
        name = env_id.split("/")[-1]
        output_dir = args.output_dir if args.output_dir is None or len(ids) == 1 else f"{args.output_dir}/{name}"
        place = folder_of(output_dir, f"{Path(file.file).stem}-{name}", player, None, args.seed, {**asked, "env_id": env_id})
        evaluation, played = _play(args, player, env_id, own, keywords, arms, max_tokens)
        settings = {
            **evaluation.settings,
            "split": "",
            "data_source": Path(file.file).name,
            "left_out": len(found.refused),
            "asked": {**asked, "env_id": env_id},
        }
        evaluation = dataclasses.replace(evaluation, settings=settings)
        screen.print(evaluation.table())
        with user_mistakes():
            save(place, evaluation, played if args.save_episodes else {})
        screen.print(
            f"written to {place}/: evaluation.json, evaluation.txt, evaluation.svg",
            markup=False,
            highlight=False,
            style="dim",
            soft_wrap=True,
        )
    return 0


def _play(
    args: argparse.Namespace,
    player: Any,
    env_id: str,
    rows: Sequence[dict[str, Any]],
    keywords: dict[str, Any],
    arms: dict[str, float | None],
    max_tokens: int | None,
) -> tuple[Any, dict[str, tuple[Trajectory, ...]]]:
    from agent_gym.evaluation import evaluate
    from agent_gym.flows import TooManyFaults

    with progress_bar() as bar, user_mistakes(TooManyFaults, TypeError):
        counters = {
            name: bar.add_task(f"{name:<8}", total=len(rows) * (1 if temperature == 0 else args.samples), note="")
            for name, temperature in arms.items()
        }
        done: Counter[str] = Counter()
        solved: Counter[str] = Counter()

        def finished(arm: str, episodes: Sequence[Trajectory]) -> None:
            done[arm] += 1
            solved[arm] += any(episode.is_success for episode in episodes)
            bar.update(counters[arm], advance=1, note=f"success {solved[arm] / done[arm]:.3f}")

        make: Callable[..., Any] = player.env_factory(env_id, keywords)
        evaluation, played = evaluate(
            env_id,
            player.policy,
            env_kwargs={**keywords, **rows[0]["env_kwargs"]},
            rows=rows,
            samples=args.samples,
            arms=arms,
            max_tokens=max_tokens,
            seed=args.seed,
            env_factory=make,
            max_concurrency=args.batch_size,
            model=player.name,
            engine=player.engine,
            on_episode=finished,
        )
    return evaluation, dict(played)
