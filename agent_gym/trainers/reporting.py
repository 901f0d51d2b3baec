"""Where a run reports to beside its run folder: TensorBoard, W&B or trackio, through transformers' `report_to`. Nothing heavy is imported before it is needed.

transformers hands every record of a trainer to what `report_to` names. Here stands what a run folder adds: the names are checked before anything is trained, the
event files of TensorBoard and the files of W&B lie in the run folder, and a run that goes on purges from TensorBoard what it does again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

__all__ = ["TENSORBOARD_FOLDER", "TRACKERS", "check_trackers", "parse_trackers", "reporting"]

TRACKERS = MappingProxyType({"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",), "trackio": ("trackio",)})
"""What is tested: name in `report_to` -> the packages of which one is needed."""
TENSORBOARD_FOLDER = "tensorboard"
"""Of the event files, in a run folder."""


def parse_trackers(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Read what a run reports to.

    Args:
        given: a name, names with commas between them, or a sequence of names; "none", nothing or None for none.

    Returns:
        The names, each once.

    Raises:
        ValueError: for a name that is not in `TRACKERS`.
    """
    names = given.split(",") if isinstance(given, str) else list(given or ())
    found = tuple(dict.fromkeys(name.strip() for name in names if name.strip() not in ("", "none")))
    for name in found:
        if name not in TRACKERS:
            raise ValueError(f"report_to={given!r}: {name!r} is unknown; choose from {', '.join(TRACKERS)}, or none")
    return found


def check_trackers(names: Sequence[str]) -> None:
    """See that what a run reports to is installed.

    Args:
        names: of `report_to`; others than those of `TRACKERS` are left to transformers.

    Raises:
        ValueError: with what to install.
    """
    for name in names:
        packages = TRACKERS.get(name, ())
        if packages and not any(find_spec(package) for package in packages):
            raise ValueError(
                f'report_to={name!r} needs the package {packages[0]}: pip install "agentr1-gym[logging]", or leave report_to out'
            )


@contextmanager
def reporting(trainer: Any, folder: Path, resumed_from: int | None = None) -> Iterator[None]:
    """Have a trainer report into a run folder while it trains.

    TENSORBOARD_LOGGING_DIR and WANDB_DIR, where they are set, go before the run folder.

    Args:
        trainer: a trainer of transformers.
        folder: of the run.
        resumed_from: optimiser steps of the checkpoint that it goes on from: what TensorBoard was told of later ones is purged. None for a new run.

    Yields:
        Nothing; train inside.
    """
    callbacks = {type(one).__name__: one for one in trainer.callback_handler.callbacks}
    board, before = callbacks.get("TensorBoardCallback"), os.environ.get("WANDB_DIR")
    if board is not None and trainer.is_world_process_zero():
        board.logging_dir = board.logging_dir or str(folder / TENSORBOARD_FOLDER)
        if resumed_from is not None:
            board.tb_writer = board._SummaryWriter(log_dir=board.logging_dir, purge_step=resumed_from + 1)
    if "WandbCallback" in callbacks and not before:
        os.environ["WANDB_DIR"] = str(folder)  # read when the run of W&B begins
    try:
        yield
    finally:
        if board is not None and board.tb_writer is not None:  # the training was stopped by an error
            board.tb_writer.close()
            board.tb_writer = None
        if "WandbCallback" in callbacks and not before:
            del os.environ["WANDB_DIR"]
