"""Where environments live: `workers=` of rollouts, trainers and the command line, read and opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from agent_gym.flows.remote import Workers

__all__ = ["open_workers", "parse_workers"]


def parse_workers(given: int | str | None) -> int | str | None:
    """Read where environments live.

    Args:
        given: None or 0: in this process. A number, also as text: so many worker processes of this machine. "ray": on Ray, the running cluster or a new
            one of this machine. An address ("host:6379", "ray://host:10001", "auto"): on that Ray cluster.

    Returns:
        None, a positive number, or the text.

    Raises:
        ValueError: if it is none of these.
    """
    if given is None or (isinstance(given, str) and given.lower() == "none"):
        return None
    if isinstance(given, int) and not isinstance(given, bool):
        number = given
    elif isinstance(given, str) and given.strip().lstrip("+-").isdigit():
        number = int(given)
    elif isinstance(given, str) and (given in ("ray", "auto") or (":" in given and given.rpartition(":")[2].isdigit())):
        return given
    else:
        raise ValueError(
            f"workers must be a number of worker processes, 'ray', or the address of a Ray cluster (host:6379, ray://host:10001), not {given!r}"
        )
    if number < 0:
        raise ValueError(f"workers={number} must not be negative; 0 plays in this process")
    return number or None


def open_workers(
    given: int | str | Workers | None, factory: Callable[[dict[str, Any]], gymnasium.Env[Any, Any]] | None = None
) -> Workers | None:
    """Return workers, none of which is started yet; for `EnvPool(factory, workers=...)`.

    Args:
        given: as in `parse_workers`, or workers, which are returned as they are.
        factory: (normalised row) -> environment; None makes `row["env_id"]` with `row["env_kwargs"]` through `gymnasium.make`.

    Returns:
        The workers; None where the environments live in this process.

    Raises:
        ValueError: if `given` cannot be read.
        TypeError: if the factory cannot be sent to another process, with the part that is to blame.
        ImportError: where Ray is asked for and missing.
    """
    if isinstance(given, Workers):
        return given
    where = parse_workers(given)
    if where is None:
        return None
    if isinstance(where, int):
        from agent_gym.flows.processes import ProcessWorkers

        return ProcessWorkers(where, factory)
    from agent_gym.flows.ray_workers import RayWorkers

    return RayWorkers(None if where == "ray" else where, factory)
