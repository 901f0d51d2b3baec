"""`agent-gym list`: the environments of this package."""

from __future__ import annotations

import argparse
import json
import sys

from agent_gym.cli.common import console
from agent_gym.registration import ENVIRONMENTS

__all__ = ["run"]


def run(args: argparse.Namespace) -> int:
    """Print the table.

    Args:
        args: `json`.

    Returns:
        0.
    """
    if args.json:
        listed = [
            {"id": entry.id, "entry_point": entry.entry_point, "summary": entry.summary, "kwargs": entry.kwargs} for entry in ENVIRONMENTS
        ]
        sys.stdout.write(json.dumps(listed, indent=2) + "\n")
        return 0
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, header_style="bold")
    table.add_column("environment", no_wrap=True, style="bold")
    table.add_column("what it is")
    for entry in ENVIRONMENTS:
        table.add_row(entry.id, entry.summary)
    screen = console()
    screen.print(table)
    screen.print(
        'env = gymnasium.make("agent_gym:ID")   agent-gym play ID   agent-gym eval ID --model expert',
        style="dim",
        markup=False,
        highlight=False,
    )
    return 0
