"""`agent-gym report`: report.html of a run, made again."""

from __future__ import annotations

import argparse

from agent_gym.cli.common import console, user_mistakes

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Write the report.

    Args:
        args: `run`.

    Returns:
        0.
    """
    from agent_gym.report import write_report

    with user_mistakes():
        path = write_report(args.run)
    console().print(f"written to {path}", markup=False, highlight=False, soft_wrap=True)
    return 0
