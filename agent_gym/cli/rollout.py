"""`agent-gym rollout`: episodes of a model, saved for training, for reading or for looking at."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agent_gym.cli.common import (
    UsageError,
    baselines_of,
    check_env_kwargs,
    console,
    load_player,
    nearest,
    parse_env_args,
    progress_bar,
    run_of_model,
    user_mistakes,
    what_to_play,
)
from agent_gym.cli.sample_files import judge_of, load_file, longest_reply, say
from agent_gym.trajectory import Trajectory

if TYPE_CHECKING:
    from agent_gym.flows.samples import RoutedRows

__all__ = ["run"]

DEFAULT_EPISODES = 20

_KINDS = (".jsonl", ".parquet", ".html")


def run(args: argparse.Namespace) -> int:
    """Play and save.

    Args:
        args: see `parser.py`.

    Returns:
        0.

    Raises:
        UsageError: for a file that cannot be written, or options that do not fit the rows of `--data`.
    """
    out = Path(args.out)
    if out.suffix not in _KINDS:
        raise UsageError(f"--out {args.out!r}: the name ends with {', '.join(_KINDS)}{nearest(out.suffix, _KINDS)}")
    if out.exists():
        raise UsageError(f"--out {args.out} is there already, and nothing is written over; choose another name")
    if args.data is not None and args.split:
        raise UsageError("--split: the rows of a file are played as they are; give the file of the split (--data FILE)")
    keywords = parse_env_args(args.env_arg)
    found: RoutedRows | None = None
    longest = args.max_tokens
    if args.data is not None:
        found, notes = load_file(
            args.data, env=args.env, env_kwargs=keywords, judge=judge_of(args), allow_functions=args.allow_functions, scored=False
        )
        say(notes)
        if args.episodes is not None and args.episodes > len(found.routes):
            raise UsageError(f"--episodes {args.episodes}: {args.data} has {len(found.routes)} rows, and each is played once")
        env_id = found.routes[0].env_id
    else:
        env_id, keywords, run = what_to_play(args, run_of_model(args), evaluated=False)
        longest = longest or run.get("max_tokens")
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
        engine=args.engine,
        url=args.url,
        baselines=baselines_of(env_id),
    )
    from agent_gym.evaluation import task_rows
    from agent_gym.flows import TooManyFaults, run_rows
    from agent_gym.policies import EngineError, Sampling

    make = player.env_factory(env_id, keywords)
    if found is not None:
        rows = found.rows[: args.episodes]
        longest = longest or longest_reply(rows, make)
    else:
        with user_mistakes(TypeError):
            probe = make({"env_id": env_id, "env_kwargs": keywords, "seed": None, "options": {}})
            try:
                episodes = args.episodes or DEFAULT_EPISODES
                rows = task_rows(probe, env_id, keywords, episodes)
                longest = longest or int(getattr(probe.action_space, "max_length", 512))
            finally:
                probe.close()
        if len(rows) < episodes and rows:
            rows = [rows[index % len(rows)] for index in range(episodes)]
    solved = done = 0
    with progress_bar() as bar, user_mistakes(TooManyFaults, EngineError):
        task = bar.add_task(f"{env_id}  {player.name}", total=len(rows), note="")

        def finished(_index: int, trajectories: Sequence[Trajectory]) -> None:
            nonlocal solved, done
            done += 1
            solved += any(episode.is_success for episode in trajectories)
            bar.update(task, advance=1, note=f"solved {solved / done:.0%}")

        result = run_rows(
            rows,
            player.policy,
            sampling=Sampling(temperature=args.temperature, max_tokens=longest),
            env_factory=make,
            seed=args.seed,
            max_concurrency=args.batch_size,
            on_episode=finished,
            workers=args.workers,
        )
    played = result.trajectories
    with user_mistakes(TypeError):
        if out.suffix == ".html":
            from agent_gym.report import write_viewer

            write_viewer(out, played, player.tokenizer, title=f"{env_id}: {len(played)} episodes of {player.name}")
        else:
            from agent_gym.trajectory_io import save_trajectories

            save_trajectories(out, played)
    turns = sum(len(episode) for episode in played)
    tokens = sum(len(step.action_ids) for episode in played for step in episode.steps)
    screen = console()
    screen.print(
        f"{len(played)} episodes, {sum(one.is_success for one in played)} solved, {turns} turns, {tokens:,} action tokens"
        + (f", {len(result.dropped)} dropped for faults" if result.dropped else ""),
        highlight=False,
    )
    screen.print(f"written to {out}", markup=False, highlight=False, style="dim", soft_wrap=True)
    return 0
