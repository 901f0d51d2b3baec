"""`agent-gym data`: files of samples checked, chat logs imported (`import_chat.py`); TextWorld games into the cache, ALFWorld games into a folder in the official layout."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agent_gym.cli.common import Failed, Interrupted, UsageError, console, nearest, parse_pairs, progress_bar, user_mistakes

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Check or make tasks.

    Args:
        args: see `parser.py`.

    Returns:
        0.
    """
    if args.kind == "check":
        from agent_gym.cli.data_check import check

        return check(args)
    if args.kind == "import-chat":
        from agent_gym.cli import import_chat

        return import_chat.run(args)
    return _textworld(args) if args.kind == "textworld" else _alfworld(args)


def _textworld(args: argparse.Namespace) -> int:
    from agent_gym.envs.textworld.challenges import CHALLENGES, SPLITS
    from agent_gym.envs.textworld.games import GameError, GeneratedGames
    from agent_gym.envs.textworld.prepare import prepare_games

    if args.game not in CHALLENGES:
        raise UsageError(
            f"there is no challenge {args.game!r}{nearest(args.game, CHALLENGES) or '; TextWorld has ' + ', '.join(CHALLENGES)}"
        )
    settings = _settings(args.settings)
    with user_mistakes():
        sources = [
            GeneratedGames(args.game, settings, split=split, num_games=args.count, cache_dir=args.cache_dir)
            for split in _chosen(args.split, SPLITS)
        ]
    folder = sources[0].cache_dir
    try:
        with _bar("games") as progress:
            done = prepare_games(sources, workers=args.workers, progress=progress)
    except KeyboardInterrupt:
        there = sum(source.is_made(index) for source in sources for index in range(len(source)))
        wanted = sum(map(len, sources))
        raise Interrupted(f"stopped; {there} of {wanted} games are in {folder}, all of them whole. The same command goes on.") from None
    except (GameError, OSError) as error:
        raise Failed(str(error)) from error
    _say(f"{done.made} games made, {done.kept} were there already: {folder}")
    _say(f"settings: {sources[0].settings}; splits: {', '.join(source.split for source in sources)}")
    return 0


def _alfworld(args: argparse.Namespace) -> int:
    from agent_gym.envs.alfworld.generator import SPLITS
    from agent_gym.envs.alfworld.official import WriteError, write_games
    from agent_gym.envs.alfworld.rooms import LEVELS

    if args.level not in LEVELS:
        raise UsageError(f"there is no level {args.level!r}{nearest(args.level, LEVELS) or '; there are ' + ', '.join(LEVELS)}")
    counts = dict.fromkeys(_chosen(args.split, SPLITS), args.count)
    try:
        with user_mistakes(), _bar("games") as progress:
            try:
                done = write_games(args.out, counts=counts, grammar=args.grammar, level=args.level, progress=progress)
            except WriteError as error:
                raise Failed(str(error)) from error
    except KeyboardInterrupt:
        raise Interrupted(f"stopped; the games in {args.out} are whole, and the same command goes on.") from None
    written, kept = sum(done.written.values()), sum(done.kept.values())
    _say(f"{written} games written, {kept} were there already ({done.size / 2**20:.1f} MiB): {done.folder}")
    folder = shlex.quote(str(done.folder))
    _say(f"play them: --env-arg dataset={folder}, or ALFWORLD_DATA={folder} for ALFWorld itself")
    return 0


def _chosen(given: list[str], known: tuple[str, ...]) -> list[str]:
    """The splits that were asked for; all where none was."""
    for split in given:
        if split not in known:
            raise UsageError(f"there is no split {split!r}{nearest(split, known) or '; there are ' + ', '.join(known)}")
    return list(dict.fromkeys(given)) or list(known)


def _settings(pairs: list[str]) -> dict[str, Any]:
    """What `--set NAME=VALUE` gives; True and False may be written as in Python."""
    written = parse_pairs(pairs, option="--set", example="level=10")
    return {name: value == "True" if value in ("True", "False") else value for name, value in written.items()}


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on the standard error, as the function that moves it."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=None, note="")
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _say(text: str) -> None:
    console().print(text, markup=False, highlight=False, soft_wrap=True)
