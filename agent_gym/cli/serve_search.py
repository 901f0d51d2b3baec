"""`agent-gym serve-search`: one index for many workers, over HTTP."""

from __future__ import annotations

import argparse

from agent_gym.cli.common import console, error_console, user_mistakes

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C.

    Args:
        args: see `parser.py`.

    Returns:
        0.
    """
    from agent_gym.search import open_searcher, serve

    screen = console()
    with user_mistakes(), error_console().status("opening the index ..."):  # shown in a terminal alone
        searcher = open_searcher(args.source, cache_dir=args.cache_dir)
        server = serve(searcher, host=args.host, port=args.port)
    screen.print(f"serving at {server.url} (POST); stop with Ctrl-C", markup=False, highlight=False, soft_wrap=True)
    server.run()
    return 0
