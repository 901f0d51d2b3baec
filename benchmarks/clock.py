"""Measuring on a machine that others use too: CPU time of this process, the best of several repeats, interleaved so that noise hits all alike."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

Clock = time.process_time


def best(functions: Mapping[str, Callable[[], object]], number: int = 300, repeats: int = 7) -> dict[str, float]:
    """Microseconds of CPU per call of each function, the minimum over interleaved repeats."""
    for function in functions.values():
        function()
    result = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = Clock()
            for _ in range(number):
                function()
            result[name] = min(result[name], (Clock() - start) / number * 1e6)
    return result


def show(name: str, **values: object) -> None:
    """Print one JSON line: the form of all our figures, and of the peers'."""
    print(
        json.dumps({"name": name, **{key: round(value, 3) if isinstance(value, float) else value for key, value in values.items()}}),
        flush=True,
    )
