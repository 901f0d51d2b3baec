"""`agent-gym data import-chat`: chat logs into trajectories, or trajectories held against their log."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from agent_gym.cli.common import Failed, UsageError, console, error_console, parse_pairs, reach_hub, user_mistakes

if TYPE_CHECKING:
    from agent_gym.data.chat_log import ChatLogError
    from agent_gym.flows.chat_import import ChatImporter

__all__ = ["run"]

_KINDS = (".jsonl", ".parquet", ".html")
_LISTED = 50  # conversations that were left out; the rest is counted


def run(args: argparse.Namespace) -> int:
    """Import a log, or check what was imported.

    Args:
        args: see `parser.py`.

    Returns:
        0.

    Raises:
        UsageError: where there is no such log, or the name of the file to write cannot be used.
    """
    log = Path(args.file)
    if not log.is_file():
        raise UsageError(f"{log} is a folder; name the chat log in it" if log.is_dir() else f"there is no chat log {log}")
    out = Path(args.out) if args.out is not None else log.with_name(f"{log.stem}.trajectories.jsonl")
    if out.suffix.lower() not in _KINDS:
        raise UsageError(f"--out {str(out)!r}: the name ends with {', '.join(_KINDS)}")
    if out.exists() and out.samefile(log):
        raise UsageError(f"--out {out} is the log itself; choose another name")
    tokenizer = args.tokenizer or "default"
    reach_hub(tokenizer, "tokenizer")
    from agent_gym.flows.chat_import import ChatImporter

    with user_mistakes():
        importer = ChatImporter(
            tokenizer,
            tool_format=args.tool_format,
            template_kwargs=parse_pairs(args.template_arg, option="--template-arg", example="enable_thinking=false"),
        )
        return _check(args, log, out, importer) if args.check else _import(args, log, out, importer)


def _import(args: argparse.Namespace, log: Path, out: Path, importer: ChatImporter) -> int:
    from agent_gym.flows.chat_import import import_chat

    result = import_chat(log, importer, skip_bad=args.skip_bad)
    _list_bad(result.bad)
    if not result.trajectories:
        raise Failed(f"none of the {len(result.bad)} conversations of {log} can be used; nothing was written")
    if out.suffix.lower() == ".html":
        from agent_gym.report import write_viewer

        write_viewer(out, result.trajectories, importer.tokenizer, title=f"{log.name}: {len(result.trajectories)} conversations")
    else:
        from agent_gym.trajectory_io import save_trajectories

        save_trajectories(out, result.trajectories)
    steps = [step for one in result.trajectories for step in one.steps]
    tokens = sum(len(step.action_ids) for step in steps)
    left_out = f", {len(result.bad)} left out" if result.bad else ""
    _say(
        f"{len(result.trajectories)} conversations, {len(steps)} steps, {tokens:,} action tokens{left_out}; tokenizer {importer.fingerprint}"
    )
    _say(f"written to {out}")
    return 0


def _check(args: argparse.Namespace, log: Path, out: Path, importer: ChatImporter) -> int:
    from agent_gym.flows.chat_import import check_import
    from agent_gym.trajectory_io import iter_trajectories

    if out.suffix.lower() == ".html":
        raise UsageError("--check reads trajectories (.jsonl or .parquet); a page holds none")
    if not out.is_file():
        raise UsageError(f"--check: there is no file {out}; import first, or name it with --out")
    count = check_import(log, iter_trajectories(out, strict=True), importer, skip_bad=args.skip_bad)
    _say(f"{out}: {count} trajectories are the conversations of {log}, id for id")
    return 0


def _list_bad(bad: list[ChatLogError]) -> None:
    screen = error_console()
    for one in bad[:_LISTED]:
        screen.print(f"left out: {one}", markup=False, highlight=False, soft_wrap=True, style="yellow")
    if len(bad) > _LISTED:
        screen.print(f"left out: {len(bad) - _LISTED} more", markup=False, highlight=False, soft_wrap=True, style="yellow")


def _say(text: str) -> None:
    console().print(text, markup=False, highlight=False, soft_wrap=True)
