"""`agent-gym serve-papers`: one corpus of papers for many workers, over HTTP, in the form of Semantic Scholar."""

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
    from agent_gym.data.papers import open_papers
    from agent_gym.envs.papers.server import serve_papers

    screen = console()
    with user_mistakes(), error_console().status("reading the papers ..."):  # shown in a terminal alone
        corpus = open_papers(args.source)
        _ = corpus.index  # made now, and not by the first who asks
        server = serve_papers(corpus, host=args.host, port=args.port)
    screen.print(
        f"serving {len(corpus):,} papers at {server.url} (base_url); stop with Ctrl-C", markup=False, highlight=False, soft_wrap=True
    )
    server.run()
    return 0
