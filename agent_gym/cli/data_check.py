"""`agent-gym data check`: is every row of a file whole, and what would be played? Every row is parsed, routed, and its episode begun."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import (
    Failed,
    UsageError,
    check_env_kwargs,
    console,
    find_env,
    parse_env_args,
    progress_bar,
    reach_hub,
    user_mistakes,
)
from agent_gym.cli.sample_files import judge_of

if TYPE_CHECKING:
    from agent_gym.flows.samples import Route

__all__ = ["check"]

_SHOWN = 10
"""Reasons that are printed."""


@dataclass
class _Kind:
    """Rows that are played the same way."""

    first: Route
    rows: int = 0
    unscored: Counter[str] = field(default_factory=Counter)
    lengths: list[int] = field(default_factory=list)
    """Tokens of the first prompts of the rows that could be begun."""
    tools: str = ""
    """As the environment tells them in `info`, oracles marked."""


def check(args: argparse.Namespace) -> int:
    """Check a file of samples.

    Args:
        args: see `parser.py`.

    Returns:
        0.

    Raises:
        UsageError: for a file that cannot be read at all.
        Failed: if some rows cannot be played; they have been printed.
    """
    keywords = parse_env_args(args.env_arg)
    routes, faults, total = _route(args, keywords)
    for env_id in dict.fromkeys(route.env_id for route in routes):
        check_env_kwargs(env_id, keywords)
    kinds = _kinds(routes)
    faults += _begin(args, routes, kinds, keywords)
    _print(args.file, total, kinds)
    _print_twins(routes)
    if faults:
        _print_faults(faults)
        raise Failed(f"{len(faults)} of {total} rows cannot be played")
    trainable = sum(not route.unscored for route in routes)
    whole = f"{total} rows are whole" if total > 1 else "1 row is whole"
    _say(f"{whole}; {trainable} of them can be trained on", "green" if trainable else "yellow")
    return 0


def _route(args: argparse.Namespace, keywords: dict[str, Any]) -> tuple[list[Route], list[tuple[str, str]], int]:
    """The routes of the rows, the faults of those without one, and how many rows there are."""
    from agent_gym.flows.samples import Route, iter_routes

    env_id = None if args.env is None else find_env(args.env)
    judge = judge_of(args)
    routes: list[Route] = []
    faults: list[tuple[str, str]] = []
    with user_mistakes():
        for where, found in iter_routes(args.file, env_id=env_id, judge=judge, allow_functions=args.allow_functions, env_kwargs=keywords):
            if isinstance(found, Route):
                routes.append(found)
            else:
                faults.append((where, str(found).removeprefix(f"{where}: ")))
    if not routes and not faults:
        raise UsageError(f"{args.file} has no rows")
    return routes, faults, len(routes) + len(faults)


def _key(route: Route) -> str:
    sample = route.sample
    return json.dumps(
        [sample.data_source, sample.agent_name, route.flow, route.env_id, dict(route.env_kwargs), route.reward, sorted(route.options)],
        sort_keys=True,
        default=repr,
    )


def _kinds(routes: list[Route]) -> dict[str, _Kind]:
    kinds: dict[str, _Kind] = {}
    for route in routes:
        kind = kinds.setdefault(_key(route), _Kind(route))
        kind.rows += 1
        if route.unscored:
            kind.unscored[route.unscored] += 1
    return kinds


def _begin(args: argparse.Namespace, routes: list[Route], kinds: dict[str, _Kind], keywords: dict[str, Any]) -> list[tuple[str, str]]:
    """Begin the episode of every row, in one environment per kind; the faults of those that cannot."""
    from agent_gym.chat import load_tokenizer
    from agent_gym.core import EnvFault
    from agent_gym.flows.base import keyword_field, reset_field
    from agent_gym.trainers.environments import EnvironmentMaker

    reach_hub(args.tokenizer or "default", "tokenizer")
    with user_mistakes():
        tokenizer = load_tokenizer(args.tokenizer)
    faults: list[tuple[str, str]] = []
    by_kind: dict[str, list[Route]] = defaultdict(list)
    for route in routes:
        by_kind[_key(route)].append(route)
    with progress_bar() as bar:
        task = bar.add_task("rows", total=len(routes), note="")
        for key, members in by_kind.items():
            make = EnvironmentMaker(members[0].env_id, tokenizer=tokenizer, vocab_size=len(tokenizer), env_kwargs=keywords)
            try:
                env = make(members[0].row())
            except (ValueError, TypeError, KeyError, ImportError, OSError, RuntimeError) as error:
                faults += [
                    (one.where, f"{keyword_field(one.env_kwargs, error)}{one.env_id} cannot be made of it: {error}") for one in members
                ]
                continue
            try:
                for route in members:
                    bar.update(task, advance=1)
                    try:
                        _, info = env.reset(seed=route.seed, options=dict(route.options) or None)
                    except (ValueError, TypeError, KeyError, EnvFault, OSError) as error:
                        faults.append((route.where, reset_field(route.row(), error) + str(error)))
                    else:
                        kinds[key].lengths.append(int(info.get("observation_length", 0)))
                        kinds[key].tools = str(info.get("tools", ""))
            finally:
                env.close()
    return faults


def _print(path: str, total: int, kinds: dict[str, _Kind]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    screen = console()
    for number, kind in enumerate(kinds.values(), start=1):
        route, sample = kind.first, kind.first.sample
        table = Table(
            box=SIMPLE_HEAD,
            show_header=False,
            title_justify="left",
            title=Text(f"{Path(path).name}: kind {number}, {kind.rows} of {total} rows"),
        )
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        settings = {name: value for name, value in route.env_kwargs.items() if name != "tools"}
        lines = {
            "data_source": sample.data_source or "not named",
            "agent_name": sample.agent_name or "not named",
            "flow": route.flow,
            "environment": route.env_id,
            "keywords": json.dumps(settings, ensure_ascii=False, default=repr) if settings else "none",
            "tools": _tools(kind),
            "task": _task(route),
            "reward": route.reward,
            "first prompts": f"{min(kind.lengths):,} to {max(kind.lengths):,} tokens" if kind.lengths else "none could be shown",
            "training": _training(kind),
        }
        for name, value in lines.items():
            if value:
                table.add_row(name, Text(value))
        screen.print(table)


def _task(route: Route) -> str:
    if "task" in route.options:
        return "the row"
    which = json.dumps(dict(route.options)) if route.options else f"drawn by seed ({route.seed} first)"
    return f"{which}; the environment's own: prompt and ground truth of the row are not used"


def _tools(kind: _Kind) -> str:
    asked = kind.first.env_kwargs.get("tools")
    told = kind.tools or ("" if asked is None else ", ".join(map(str, asked)) or "none")
    return f"{told}: an oracle tells the model whether its answer is right" if "(oracle)" in told else told


def _training(kind: _Kind) -> str:
    if not kind.lengths:
        return "no: none of these rows can be played"
    if not kind.unscored:
        return "yes"
    refused = sum(kind.unscored.values())
    reasons = "; ".join(kind.unscored)
    return f"refused: {reasons}" if refused == kind.rows else f"{kind.rows - refused} rows; {refused} are refused: {reasons}"


def _print_faults(faults: list[tuple[str, str]]) -> None:
    """Print each reason once, with the first row that it holds for. The id of a task makes no other reason."""
    alike: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for where, reason in faults:
        alike[re.sub(r"task '[^']*'", "task", reason)].append((where, reason))
    for group in list(alike.values())[:_SHOWN]:
        where, reason = group[0]
        more = f" (and {len(group) - 1} rows more, the last {group[-1][0]})" if len(group) > 1 else ""
        _say(f"cannot be played: {where}: {reason}{more}", "red")
    if len(alike) > _SHOWN:
        _say(f"and {len(alike) - _SHOWN} further reasons", "red")


def _print_twins(routes: list[Route]) -> None:
    """Say which rows share an id, and which are the same altogether."""
    ids: dict[Any, list[str]] = defaultdict(list)
    contents: dict[Any, list[str]] = defaultdict(list)
    for route in routes:
        task = route.options.get("task")
        if isinstance(task, dict):
            if str(task["id"]) != route.where:
                ids[route.env_id, route.sample.data_source, str(task["id"])].append(route.where)
            contents[json.dumps([route.env_id, dict(route.env_kwargs), task], sort_keys=True, default=repr)].append(route.where)
    for what, groups in (("are the same row", contents), ("have the same id in extra_info", ids)):
        twins = [wheres for wheres in groups.values() if len(wheres) > 1]
        if twins:
            more = f", and so are {len(twins) - 1} further groups" if len(twins) > 1 else ""
            _say(f"note: {' and '.join(twins[0][:3])} {what}{more}; each is played as a task of its own", "yellow")


def _say(text: str, style: str = "") -> None:
    console().print(text, markup=False, highlight=False, soft_wrap=True, style=style or None)
