"""`agent-gym view`: a run, a file of episodes, or two of them side by side, in the browser; or as one HTML file.

`live_view` is the same page beside a training that goes on, for `agent-gym train --live`.
"""

from __future__ import annotations

import argparse
import contextlib
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent_gym.cli.common import UsageError, console, user_mistakes
from agent_gym.runs import RunFolder

__all__ = ["live_view", "run"]


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C, or write it.

    Args:
        args: `paths`, `output`, `limit`, `port`, `no_browser`, `tokenizer`.

    Returns:
        0.

    Raises:
        UsageError: for options that do not go together, and for what cannot be opened.
    """
    if len(args.paths) > 2:
        raise UsageError(f"{len(args.paths)} runs or files were given; one is shown, or two side by side")
    if args.limit is not None and args.output is None:
        raise UsageError("--limit is for a page that is written (--output FILE.html); what is served shows everything")
    from agent_gym.chat import load_tokenizer
    from agent_gym.report.page import write_page
    from agent_gym.report.serve import ViewServer
    from agent_gym.report.store import open_source

    with user_mistakes(OSError):
        tokenizer = load_tokenizer(args.tokenizer) if args.tokenizer is not None else None
        sources = [open_source(path, tokenizer) for path in args.paths]
        if args.output is not None:
            path = write_page(args.output, sources, limit=args.limit)
            console().print(f"written to {path}", markup=False, highlight=False, soft_wrap=True)
            return 0
        server = ViewServer(sources, args.port, live=any(source.run is not None and source.run.summary is None for source in sources))
    console().print(f"{server.url}   stop with Ctrl-C", markup=False, highlight=False, soft_wrap=True)
    if not args.no_browser:
        webbrowser.open(server.url)
    server.run()
    return 0


@contextlib.contextmanager
def live_view(folder: Path, wanted: bool, say: Callable[..., Any], port: int = 0) -> Iterator[None]:
    """Serve the page of a run while the context lasts.

    Args:
        folder: of the run, which may be still to be made.
        wanted: False serves nothing.
        say: told the address.
        port: 0 takes a free one.

    Yields:
        Once it is served.
    """
    if not wanted:
        yield
        return
    from agent_gym.report.serve import ViewServer
    from agent_gym.report.store import Source

    with user_mistakes(OSError):
        server = ViewServer([Source(folder.resolve().name, RunFolder(folder))], port, live=True)
    with server:
        say(f"live view: {server.url}", "dim")
        yield
