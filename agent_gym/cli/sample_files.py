"""Files of the sample schema on the command line: `--data FILE`, with `--judge` and `--allow-functions`, for training, evaluation and rollouts."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import UsageError, check_env_kwargs, error_console, find_env, user_mistakes

if TYPE_CHECKING:
    import argparse

    from agent_gym.flows.samples import RoutedRows

__all__ = ["Asked", "env_ids", "first_environment", "is_sample_file", "judge_of", "load_file", "longest_reply", "say"]


@dataclass(frozen=True)
class Asked:
    """A file of rows to play.

    Attributes:
        file: its path.
        env: id of the environment of rows that name none.
        judge: of rows with the style "model".
        allow_functions: whether rows may name code.
        first: the first of its rows that is played.
    """

    file: str
    env: str | None = None
    judge: Any = None
    allow_functions: bool = False
    first: int = 0


def judge_of(args: argparse.Namespace) -> str | dict[str, str] | None:
    """Return the judge that the command names, as a recipe or an environment keeps it.

    Args:
        args: with `judge` and `judge_model`.

    Returns:
        A registered name or an address, or a mapping with url and model; None where none is named.

    Raises:
        UsageError: for a model without an address.
    """
    if args.judge_model and not args.judge:
        raise UsageError("--judge-model names a model of a judge: give its address too (--judge http://127.0.0.1:8000/v1)")
    return {"url": str(args.judge), "model": str(args.judge_model)} if args.judge_model else args.judge


def load_file(
    path: str | Path,
    *,
    env: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    judge: Any = None,
    allow_functions: bool = False,
    scored: bool = True,
    option: str = "--data",
) -> tuple[RoutedRows, list[str]]:
    """Read a file of samples and decide how each row is played.

    Args:
        path: of the file.
        env: id of the environment that the command names, for rows that name none; None where it names none.
        env_kwargs: keywords that every environment is going to get.
        judge: of rows with the style "model".
        allow_functions: whether rows may name code.
        scored: leave out rows that cannot be rewarded.
        option: that named the file, for error texts.

    Returns:
        The rows, and what there is to say about them.

    Raises:
        UsageError: for a file or row that cannot be played; the text names file, row and field.
    """
    from agent_gym.flows.samples import route_samples

    env_id = None if env is None else find_env(env)
    if allow_functions and "" not in sys.path:
        sys.path.insert(0, "")  # modules of the current folder are found
    with warnings.catch_warnings(record=True) as caught, user_mistakes(TypeError):
        warnings.simplefilter("always", UserWarning)
        found = route_samples(path, env_id=env_id, judge=judge, allow_functions=allow_functions, scored=scored, env_kwargs=env_kwargs or {})
    for one in env_ids(found):
        check_env_kwargs(one, env_kwargs or {})
    if env_id is not None:
        other = next((route for route in found.routes if route.env_id != env_id), None)
        if other is not None:
            raise UsageError(
                f"{option} {path}: {other.where} is of {other.env_id}, not of {env_id}; leave the environment out, and each row says its own"
            )
    return found, [str(one.message) for one in caught if issubclass(one.category, UserWarning)]


def env_ids(found: RoutedRows) -> list[str]:
    """Return the ids of the environments of the rows, in the order in which they first come.

    Args:
        found: rows with their environments.

    Returns:
        Each id once.
    """
    return list(dict.fromkeys(route.env_id for route in found.routes))


def longest_reply(rows: Sequence[Mapping[str, Any]], make: Callable[[Mapping[str, Any]], Any]) -> int:
    """Return how many tokens the longest reply may have that an environment of some rows takes; each takes no more than its own.

    Args:
        rows: of a file.
        make: (row) -> environment.

    Returns:
        The number.

    Raises:
        UsageError: for a row whose environment cannot be made.
    """
    from agent_gym.flows.base import keyword_field

    unlike = {(row["env_id"], repr(row["env_kwargs"].get("max_action_tokens"))): row for row in reversed(rows)}
    longest = 0
    for row in unlike.values():
        try:
            env = make({**row, "options": {}})
        except (ValueError, TypeError, LookupError, ImportError, OSError) as error:
            raise UsageError(f"{row['where']}: {keyword_field(row['env_kwargs'], error)}{error}") from error
        longest = max(longest, int(getattr(env.action_space, "max_length", 512)))
        env.close()
    return longest


def is_sample_file(path: str | Path) -> bool:
    """Return whether the first row of a file is of the sample schema; False where it cannot be read, which whoever reads it will say.

    Args:
        path: of the file.

    Returns:
        True for a file of samples.
    """
    from agent_gym.data.samples import is_sample, read_rows

    try:
        return is_sample(next(iter(read_rows(path)))[1])
    except (StopIteration, ValueError, ImportError, OSError):
        return False


def first_environment(path: str | Path) -> str:
    """Return the id of the environment of a file's first row.

    Args:
        path: of a file of samples.

    Returns:
        The id.

    Raises:
        UsageError: if the row names none.
    """
    from agent_gym.data.samples import parse_sample, read_rows
    from agent_gym.flows.samples import environment_of

    with user_mistakes():
        where, row = next(iter(read_rows(path)))
        return environment_of(parse_sample(row, where=where))


def say(notes: list[str]) -> None:
    """Print notes on the standard error.

    Args:
        notes: one line each.
    """
    for note in notes:
        error_console().print(f"note: {note}", markup=False, highlight=False, soft_wrap=True, style="yellow")
