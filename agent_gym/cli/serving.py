"""`agent-gym serve-search` and `agent-gym serve-papers`: one index, or one corpus of papers, for many workers, over HTTP."""

from __future__ import annotations

import argparse
from typing import Protocol

from agent_gym.cli.common import console, error_console, user_mistakes

__all__ = ["run"]


class _Server(Protocol):
    """What both kinds of servers have."""

    def run(self) -> None: ...


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C.

    Args:
        args: see `parser.py`.

    Returns:
        0.
    """
    with user_mistakes(), error_console().status("reading what is served ..."):  # shown in a terminal alone
        server, told = _papers(args) if args.command == "serve-papers" else _searcher(args)
    console().print(f"serving {told}; stop with Ctrl-C", markup=False, highlight=False, soft_wrap=True)
    server.run()
    return 0


def _searcher(args: argparse.Namespace) -> tuple[_Server, str]:
    from agent_gym.search import open_searcher, serve

    server = serve(open_searcher(args.source, cache_dir=args.cache_dir), host=args.host, port=args.port)
    return server, f"at {server.url} (POST)"


def _papers(args: argparse.Namespace) -> tuple[_Server, str]:
    from agent_gym.data.papers import open_papers
    from agent_gym.envs.papers.server import serve_papers

    corpus = open_papers(args.source)
    _ = corpus.index  # made now, and not by the first who asks
    server = serve_papers(corpus, host=args.host, port=args.port)
    return server, f"{len(corpus):,} papers at {server.url} (base_url)"
