"""What adapters share: packages that may be missing, names that stand for functions, and code that draws from the global random generators.

Several projects seed and draw from Python's and numpy's global generators, so that two of their environments in one process disturb one another,
and everybody else. `PrivateGenerators` keeps a state of its own for each environment, puts it into the global generators while the foreign code
runs, and puts back what stood there.
"""

from __future__ import annotations

import importlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["PrivateGenerators", "need", "resolve"]

# One lock for all: while foreign code runs with one environment's state in the global generators, no other environment may put in its own.
_GLOBAL_GENERATORS = threading.RLock()


def need(module: str, package: str) -> Any:
    """Import what an adapter is made for.

    Args:
        module: to be imported.
        package: that holds it, for the error.

    Returns:
        The module.

    Raises:
        ImportError: if it, or something that it needs, is not installed; names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f'{module} cannot be imported ({error}); {package} comes with: pip install "agentr1-gym[adapters]"') from error


def resolve(name: str, value: Any) -> Callable[..., Any]:
    """Return a function that was given itself, or by the name under which it can be imported.

    Args:
        name: of the keyword, for the error.
        value: a callable, or "package.module:function".

    Returns:
        The callable.

    Raises:
        ValueError: for anything else.
    """
    found = value
    if isinstance(value, str) and value.count(":") == 1:
        module, attribute = value.split(":")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{name} is {value!r}, which cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"{name} must be a callable or 'package.module:function', not {value!r}")
    return found  # type: ignore[no-any-return]  # checked one line above


class PrivateGenerators:
    """A state of Python's and numpy's global generators that belongs to one environment.

    Foreign code that runs in a thread of its own and draws without `using` is not kept apart; the environments of one process take turns.
    """

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Begin anew.

        Args:
            seed: any whole number.
        """
        self._python = random.Random(seed).getstate()
        self._numpy = np.random.RandomState(seed % 2**32).get_state()

    def get_state(self) -> Any:
        """Return the state, a value for `set_state`."""
        return self._python, self._numpy

    def set_state(self, state: Any) -> None:
        """Return to a state.

        Args:
            state: of `get_state`.
        """
        self._python, self._numpy = state

    @contextmanager
    def using(self) -> Iterator[None]:
        """Run foreign code with this state; what stood in the global generators before stands there afterwards."""
        with _GLOBAL_GENERATORS:
            python, numpy = random.getstate(), np.random.get_state()
            random.setstate(self._python)
            np.random.set_state(self._numpy)
            try:
                yield
            finally:
                self._python, self._numpy = random.getstate(), np.random.get_state()
                random.setstate(python)
                np.random.set_state(numpy)
