"""`agent-gym rollout`: episodes of a model, saved for training, for reading or for looking at."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from agent_gym.cli.common import (
    UsageError,
    baselines_of,
    check_env_kwargs,
    console,
    find_env,
    load_player,
    nearest,
    parse_env_args,
    progress_bar,
    user_mistakes,
)
from agent_gym.trajectory import Trajectory

__all__ = ["run"]

_KINDS = (".jsonl", ".parquet", ".html")


def run(args: argparse.Namespace) -> int:
    """Play and save.

    Args:
        args: see `parser.py`.

    Returns:
        0.
    """
    out = Path(args.out)
    if out.suffix not in _KINDS:
        raise UsageError(f"--out {args.out!r}: the name ends with {', '.join(_KINDS)}{nearest(out.suffix, _KINDS)}")
    env_id = find_env(args.env)
    keywords = parse_env_args(args.env_arg)
    check_env_kwargs(env_id, keywords)
    if args.split:
        keywords["split"] = args.split
    player = load_player(
        args.model,
        tokenizer=args.tokenizer,
        seed=args.seed,
        dtype=args.dtype,
        device=args.device,
        batch_size=args.batch_size,
        baselines=baselines_of(env_id),
    )
    from agent_gym.evaluation import task_rows
    from agent_gym.flows import TooManyFaults, run_rows
    from agent_gym.policies import Sampling

    make = player.env_factory(env_id, keywords)
    with user_mistakes(TypeError):
        probe = make({"env_id": env_id, "env_kwargs": keywords, "seed": None, "options": {}})
        try:
            rows = task_rows(probe, env_id, keywords, args.episodes)
            longest = args.max_tokens or int(getattr(probe.action_space, "max_length", 512))
        finally:
            probe.close()
    if len(rows) < args.episodes and rows:
        rows = [rows[index % len(rows)] for index in range(args.episodes)]
    solved = done = 0
    with progress_bar() as bar, user_mistakes(TooManyFaults):
        task = bar.add_task(f"{env_id}  {player.name}", total=len(rows), note="")

        def finished(_index: int, episodes: Sequence[Trajectory]) -> None:
            nonlocal solved, done
            done += 1
            solved += any(episode.is_success for episode in episodes)
            bar.update(task, advance=1, note=f"solved {solved / done:.0%}")

        result = run_rows(
            rows,
            player.policy,
            sampling=Sampling(temperature=args.temperature, max_tokens=longest),
            env_factory=make,
            seed=args.seed,
            max_concurrency=args.batch_size,
            on_episode=finished,
        )
    episodes = result.trajectories
    with user_mistakes(TypeError):
        if out.suffix == ".html":
            from agent_gym.report import write_viewer

            write_viewer(out, episodes, player.tokenizer, title=f"{env_id}: {len(episodes)} episodes of {player.name}")
        else:
            from agent_gym.trajectory_io import save_trajectories

            save_trajectories(out, episodes)
    turns = sum(len(episode) for episode in episodes)
    tokens = sum(len(step.action_ids) for episode in episodes for step in episode.steps)
    screen = console()
    screen.print(
        f"{len(episodes)} episodes, {sum(one.is_success for one in episodes)} solved, {turns} turns, {tokens:,} action tokens"
        + (f", {len(result.dropped)} dropped for faults" if result.dropped else ""),
        highlight=False,
    )
    screen.print(f"written to {out}", markup=False, highlight=False, style="dim", soft_wrap=True)
    return 0
