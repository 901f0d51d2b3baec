"""The command `agent-gym`.

    list          the environments
    play          play one in the terminal
    rollout       play episodes with a model and save them
    eval          measure a model
    train         the embedded run, or a model of yours by a recipe
    report        make a run's report again
    view          look at a run, or at two, token by token
    data          make TextWorld and ALFWorld games beforehand, import chat logs
    serve-search  serve a search index over HTTP
    serve-papers  serve papers over HTTP, as Semantic Scholar does

`parser.py` holds the options with an example per command; each command is a module of its own and is imported when it is called, so that `--help` and
`list` load neither torch nor transformers. A mistake of the user's is one message and exit status 2, never a traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from agent_gym.cli.common import Failed, Interrupted, UsageError, error_console

__all__ = ["main"]

_COMMANDS = {
    "list": "agent_gym.cli.listing",
    "play": "agent_gym.cli.play",
    "rollout": "agent_gym.cli.rollout",
    "eval": "agent_gym.cli.evaluate",
    "train": "agent_gym.cli.train",
    "report": "agent_gym.cli.reporting",
    "view": "agent_gym.cli.viewing",
    "data": "agent_gym.cli.data",
    "serve-search": "agent_gym.cli.serving",
    "serve-papers": "agent_gym.cli.serving",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        argv: the arguments; None takes those of the process.

    Returns:
        The exit status: 0, 1 for a failure, 2 for a mistake in the command, 130 after Ctrl-C.
    """
    from agent_gym.cli.parser import build_parser

    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when huggingface_hub is imported
    try:
        args = build_parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    if args.command is None:
        build_parser().print_help()
        return 0
    try:
        with warnings.catch_warnings():
            if not os.environ.get("AGENT_GYM_DEBUG"):
                warnings.filterwarnings("ignore", category=FutureWarning)
                warnings.filterwarnings("ignore", category=DeprecationWarning)
            result: int = import_module(_COMMANDS[args.command]).run(args)
        sys.stdout.flush()  # here, where an error of it is still heard
        return result
    except UsageError as error:
        if os.environ.get("AGENT_GYM_DEBUG"):
            raise
        error_console().print(f"agent-gym {args.command}: {error}", markup=False, highlight=False, soft_wrap=True, style="red")
        return 2
    except Failed as error:
        error_console().print(f"agent-gym {args.command}: {error}", markup=False, highlight=False, soft_wrap=True, style="red")
        return 1
    except Interrupted as stop:
        error_console().print(str(stop), markup=False, highlight=False, soft_wrap=True)
        return 130
    except KeyboardInterrupt:
        error_console().print("stopped", markup=False)
        return 130
    except BrokenPipeError:  # `agent-gym list | head`
        _drop_output()
        return 0
    except OSError as error:  # such as a full disk behind the standard output
        if os.environ.get("AGENT_GYM_DEBUG"):
            raise
        _drop_output()
        error_console().print(f"agent-gym {args.command}: {error}", markup=False, highlight=False, soft_wrap=True, style="red")
        return 1


def _drop_output() -> None:
    """Send what is still to be written nowhere, so that the interpreter does not fail of it at its end."""
    with contextlib.suppress(OSError, ValueError):  # where the standard output is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
