"""`agent-gym eval --data FILE`: the rows of a file, each with the flow, environment and reward that it names. One table per environment."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import UsageError, load_player, parse_env_args
from agent_gym.cli.evaluate import Measured, arms_of, folder_of, measure
from agent_gym.cli.sample_files import Asked, env_ids, load_file, longest_reply, say
from agent_gym.runs import to_plain

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
        engine=args.engine,
        url=args.url,
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
            **({"engine": args.engine, "url": args.url} if args.url else {}),
        }
    )
    ids = [one for one in env_ids(found) if any(row["env_id"] == one for row in rows)]
    for env_id in ids:
        own = [{**row, "group_id": f"task-{number}"} for number, row in enumerate(rows) if row["env_id"] == env_id]
        name = env_id.split("/")[-1]
        output_dir = args.output_dir if args.output_dir is None or len(ids) == 1 else f"{args.output_dir}/{name}"
        told = {**asked, "env_id": env_id}
        place = folder_of(output_dir, f"{Path(file.file).stem}-{name}", player.name, None, args.seed, told)
        settings = {
            "split": "",
            "data_source": Path(file.file).name,
            "left_out": len(found.refused),
            "asked": told,
            **_keywords_of(own, keywords),
        }
        longest = max_tokens or longest_reply(own, player.env_factory(env_id, keywords))
        how = Measured(place, settings, len(own), longest)
        measure(args, player, env_id, keywords, arms, how, rows=own, env_kwargs={**keywords, **own[0]["env_kwargs"]})
    return 0


def _keywords_of(rows: Sequence[Mapping[str, Any]], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """What the environments were made with: the keywords that all rows have in common; and, where they differ, those of each kind of row."""
    kinds: dict[str, dict[str, Any]] = {}
    for row in rows:
        full = to_plain({**keywords, **row["env_kwargs"]})
        kinds.setdefault(json.dumps(full, sort_keys=True), {"env_kwargs": full, "rows": 0})["rows"] += 1
    every = [kind["env_kwargs"] for kind in kinds.values()]
    common = {name: value for name, value in every[0].items() if all(name in one and one[name] == value for one in every)}
    return {"env_kwargs": common, **({"row_kinds": list(kinds.values())} if len(kinds) > 1 else {})}
