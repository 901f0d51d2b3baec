"""Whole numbers and switches among keywords and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["switch", "task_index", "whole_number"]


def whole_number(name: str, value: Any, least: int | None = None) -> int:
    """Return a keyword or option that must be a whole number.

    Args:
        name: for the error.
        value: what was given.
        least: the smallest that is allowed, if there is one.

    Returns:
        The number.

    Raises:
        ValueError: for anything else, texts and fractions included.
    """
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or (least is not None and value < least):
        raise ValueError(f"{name} must be a whole number{'' if least is None else f' of at least {least}'}, not {value!r}")
    return int(value)


def switch(name: str, value: Any) -> bool:
    """Return a keyword that is on or off.

    Args:
        name: for the error.
        value: what was given.

    Returns:
        The value.

    Raises:
        ValueError: for anything but True and False: a text such as "False" would be taken for the opposite.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False (on a command line true or false), not {value!r:.200}")
    return bool(value)


def task_index(options: Mapping[str, Any], number: int, what: str = "tasks") -> int:
    """Return the task that `reset(options={"index": i})` names.

    Args:
        options: of `reset`; they have an index.
        number: of tasks.
        what: the tasks are called.

    Returns:
        The index, from 0 on and below `number`.

    Raises:
        ValueError: for anything else.
    """
    index = whole_number("options['index']", options["index"])
    if not 0 <= index < number:
        raise ValueError(f"options['index'] is {index}, and there are {number} {what}, counted from 0")
    return index
