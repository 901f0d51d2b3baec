"""`agent-gym eval`: the table, the JSON and the figure of an evaluation."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import (
    Player,
    UsageError,
    baselines_of,
    check_env_kwargs,
    console,
    keyword_names,
    load_player,
    progress_bar,
    run_of_model,
    splits_of,
    user_mistakes,
    what_to_play,
)
from agent_gym.cli.sample_files import Asked, judge_of
from agent_gym.runs import RunFolder, atomic_write, to_plain
from agent_gym.trajectory import Trajectory

if TYPE_CHECKING:
    from agent_gym.evaluation import Evaluation

__all__ = ["Measured", "arms_of", "folder_of", "measure", "run", "save", "which_tasks"]

DEFAULT_TASKS = 200
HELD_OUT = ("test", "valid_seen", "validation")
"""Splits that are not trained on, in the order in which one is taken where none is named."""


def run(args: argparse.Namespace) -> int:
    """Evaluate.

    Args:
        args: see `parser.py`.

    Returns:
        0, or 1 where one of several policies failed.

    Raises:
        UsageError: where nothing is named to be measured, or options do not go together.
    """
    if args.policies or args.policies_file or args.engine == "openai":
        from agent_gym.cli.compare import compare

        return compare(args)
    if args.model is None:
        raise UsageError("what is measured? --model M for one, or --policy NAME=WHAT for each of several")
    _without_servers(args)
    args.arms = args.arms or "both"
    run_folder = run_of_model(args)
    file = file_of(args, run_folder)
    if file is not None:
        from agent_gym.cli.evaluate_file import evaluate_file

        return evaluate_file(args, file, run_folder)
    env_id, keywords, defaults = what_to_play(args, run_folder, evaluated=True)
    check_env_kwargs(env_id, keywords)
    split, first, chosen_by = which_tasks(args, env_id, keywords, defaults)
    baselines = baselines_of(env_id)
    if args.baselines and not baselines:
        raise UsageError(f"--baselines: {env_id} names no players without a model; leave it out")
    player = load_player(
        args.model,
        tokenizer=args.tokenizer,
        temperature=args.temperature,
        seed=args.seed,
        dtype=args.dtype,
        device=args.device,
        batch_size=args.batch_size,
        engine=args.engine,
        url=args.url,
        baselines=baselines,
    )
    tasks = args.tasks or int(defaults.get("tasks") or DEFAULT_TASKS)
    max_tokens = args.max_tokens or defaults.get("max_tokens")
    arms = arms_of(args, player)
    beside = {name: make for name, make in baselines.items() if name not in arms} if args.baselines else {}
    asked = to_plain(
        {
            "env_id": env_id,
            "env_kwargs": {**keywords, **({"split": split} if split else {})},
            "model": player.name,
            "tokenizer": args.tokenizer,
            "dtype": args.dtype,
            "tasks": tasks,
            "first": first,
            "samples": args.samples,
            "arms": arms,
            "max_tokens": max_tokens,
            "seed": args.seed,
            **({"baselines": list(beside)} if beside else {}),
            **({"engine": args.engine, "url": args.url} if args.url else {}),
        }
    )
    folder = folder_of(args.output_dir, env_id, player.name, split, args.seed, asked)
    measure(
        args,
        player,
        env_id,
        keywords,
        arms,
        Measured(folder, {"split_by": chosen_by, "asked": asked}, tasks, max_tokens, beside),
        split=split,
        tasks=tasks,
        first=first,
    )
    return 0


def _without_servers(args: argparse.Namespace) -> None:
    """Options of openai servers say nothing without one."""
    names = ("api_key_env", "price_in", "price_out", "price_cached", "prices", "requests_per_minute", "tokens_per_minute", "concurrency")
    given = [name for name in names if getattr(args, name) is not None]
    if given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} is for servers of text: give --policy NAME=openai:URL, or --engine openai --url URL"
        )


@dataclass(frozen=True)
class Measured:
    """What is done with an evaluation.

    Attributes:
        folder: that it is written to.
        settings: that are written beside those that `evaluate` tells.
        tasks: how many are played.
        max_tokens: of a reply; None for the environment's.
        beside: players without a model, on the same tasks: name -> (seed) -> script.
    """

    folder: Path
    settings: Mapping[str, Any]
    tasks: int
    max_tokens: int | None = None
    beside: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)


def measure(
    args: argparse.Namespace,
    player: Player,
    env_id: str,
    keywords: Mapping[str, Any],
    arms: Mapping[str, float | None],
    how: Measured,
    **which: Any,
) -> None:
    """Play under a progress bar, print the table, and write everything.

    Args:
        args: of the command.
        player: that is evaluated.
        env_id: of the environment.
        keywords: for every environment.
        arms: see `arms_of`.
        how: and what becomes of it.
        **which: tasks, as `agent_gym.evaluation.evaluate` takes them: `split`, `tasks` and `first`, or `rows`.

    Raises:
        UsageError: for tasks that cannot be played, or a folder that cannot be written to.
    """
    from agent_gym.evaluation import evaluate
    from agent_gym.flows import TooManyFaults
    from agent_gym.policies import EngineError, ScriptedPolicy

    with progress_bar() as bar, user_mistakes(TooManyFaults, TypeError, EngineError):
        counters = {
            name: bar.add_task(f"{name:<8}", total=how.tasks * (1 if temperature == 0 else args.samples), note="")
            for name, temperature in {**arms, **dict.fromkeys(how.beside, 0.0)}.items()
        }
        done: Counter[str] = Counter()
        solved: Counter[str] = Counter()

        def finished(arm: str, episodes: Sequence[Trajectory]) -> None:
            done[arm] += 1
            solved[arm] += any(episode.is_success for episode in episodes)
            bar.update(counters[arm], advance=1, note=f"success {solved[arm] / done[arm]:.3f}")

        play: Callable[..., tuple[Evaluation, Mapping[str, Sequence[Trajectory]]]] = functools.partial(
            evaluate,
            env_id,
            max_tokens=how.max_tokens,
            seed=args.seed,
            env_factory=player.env_factory(env_id, keywords),
            max_concurrency=args.batch_size,
            workers=args.workers,
            on_episode=finished,
            **{"env_kwargs": keywords, **which},
        )
        evaluation, episodes_of = play(player.policy, samples=args.samples, arms=arms, model=player.name, engine=player.engine)
        results, played = dict(evaluation.arms), dict(episodes_of)
        for name, make in how.beside.items():  # the same tasks
            other, episodes_of = play(ScriptedPolicy(make(args.seed)), arms={name: None}, model=name, engine="scripted")
            results.update(other.arms)
            played.update(episodes_of)
    evaluation = dataclasses.replace(evaluation, arms=results, settings={**evaluation.settings, **how.settings})
    screen = console()
    screen.print(evaluation.table())
    with user_mistakes():
        save(how.folder, evaluation, played if args.save_episodes else {})
    written = f"written to {how.folder}/: evaluation.json, evaluation.txt, evaluation.svg"
    screen.print(written, markup=False, highlight=False, style="dim", soft_wrap=True)


def file_of(args: argparse.Namespace, run_folder: RunFolder | None) -> Asked | None:
    """Return the file of rows to play: the command's, else the held-out rows of the file that the model was trained on.

    Args:
        args: of the command.
        run_folder: that the model lies in.

    Returns:
        The file, and what belongs to it; None where an environment's own tasks are played.
    """
    if args.data is not None:
        return Asked(args.data, args.env, judge_of(args), args.allow_functions)
    if run_folder is None or args.env is not None or args.split:
        return None
    with user_mistakes():
        known = (run_folder.config.get("evaluation") or {}).get("data")
    if not isinstance(known, Mapping):
        return None
    return Asked(
        str(known["file"]),
        known.get("env"),
        judge_of(args) or known.get("judge"),
        args.allow_functions or bool(known.get("allow_functions")),
        int(known.get("first") or 0),
    )


def which_tasks(
    args: argparse.Namespace, env_id: str, keywords: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[str | None, int, str]:
    """Choose the tasks: those that are not trained on, unless somebody says otherwise.

    Args:
        args: of the command.
        env_id: of the environment.
        keywords: of the environment.
        defaults: by which the model's run was evaluated.

    Returns:
        The split, the first task, and how that came about where nobody said so.

    Raises:
        UsageError: for a split of an environment that has none.
    """
    from agent_gym.evaluation import EVAL_SEEDS

    names = keyword_names(env_id)
    takes_split = names is None or "split" in names
    if args.split and not takes_split:
        raise UsageError(
            f"--split {args.split}: {env_id} has no splits; leave it out, and seeds from {EVAL_SEEDS:,} on are played (training takes those from 0 on)"
        )
    first = 0 if args.env_arg else int(defaults.get("first") or 0)
    split = args.split or keywords.get("split") or defaults.get("split")
    if split:
        return str(split), first, ""
    held_out = next((one for one in HELD_OUT if one in splits_of(env_id)), None)
    if held_out is not None:
        return held_out, first, "the held-out default"
    return None, first or (0 if takes_split else EVAL_SEEDS), "" if takes_split else f"no splits: seeds from {EVAL_SEEDS:,} on"


def arms_of(args: argparse.Namespace, player: Player) -> dict[str, float | None]:
    """Return the arms that were asked for. What would be counted as something that it is not is refused.

    Args:
        args: of the command.
        player: that is evaluated.

    Returns:
        Name -> temperature.

    Raises:
        UsageError: for arms that cannot be.
    """
    arms = {name: value for name, value in player.arms.items() if args.arms == "both" or name == args.arms or value is None}
    if not arms:
        raise UsageError(
            "--arms sampled with --temperature 0: at temperature 0 nothing is sampled; give a temperature above 0, or --arms greedy"
        )
    if args.samples > 1 and (not player.samples or all(value == 0 for value in arms.values())):
        what = f"--model {player.name}" if not player.samples else "greedy decoding"
        raise UsageError(f"--samples {args.samples}: {what} does the same every time; leave --samples out")
    return arms


def folder_of(
    output_dir: str | None, what: str, name: str, split: str | None, seed: int, asked: Mapping[str, Any], *, file: str = "evaluation.json"
) -> Path:
    """Return where the evaluation goes: never over another one.

    Args:
        output_dir: that the command names.
        what: is evaluated, an environment or a file.
        name: of what is evaluated.
        split: of the tasks.
        seed: of the evaluation.
        asked: everything that makes it this one.
        file: in which that is written down.

    Returns:
        The folder.

    Raises:
        UsageError: if another evaluation lies in it.
    """
    if output_dir is not None:
        if not _free(Path(output_dir), asked, file):
            raise UsageError(
                f"--output-dir {output_dir} holds another evaluation ({_what_differs(Path(output_dir), asked, file)}); choose another folder"
            )
        return Path(output_dir)
    words = [what.split("/")[-1], Path(name).name or name, split or "", f"seed{seed}"]
    base = "-".join(re.sub(r"[^A-Za-z0-9._]+", "-", word).strip("-") for word in words if word)
    folder, number = Path("evals") / base, 2
    while not _free(folder, asked, file):
        folder, number = Path("evals") / f"{base}-{number}", number + 1
    return folder


def _asked(folder: Path, file: str) -> Mapping[str, Any]:
    try:
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        return dict(content.get("asked") or {})
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _free(folder: Path, asked: Mapping[str, Any], file: str) -> bool:
    """No evaluation lies there, or this very one."""
    return not (folder / file).exists() or _asked(folder, file) == asked


def _what_differs(folder: Path, asked: Mapping[str, Any], file: str) -> str:
    there = _asked(folder, file)
    names = [name for name, value in asked.items() if there.get(name) != value]
    return f"with other {', '.join(names)}" if there else "of another version"


def save(folder: Path, evaluation: Any, played: Mapping[str, Sequence[Trajectory]]) -> None:
    """Write table, JSON and figure of an evaluation, and its episodes.

    Args:
        folder: for them.
        evaluation: the figures.
        played: the episodes of each arm; none are written where there are none.
    """
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
