"""The registry of advantage estimators, and what a trainer must know of each before it calls it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from agent_gym.trajectory import Trajectory

__all__ = ["ADVANTAGES", "Advantages", "Estimator", "FloatArray", "check_advantage", "get_advantage", "register_advantage"]

FloatArray: TypeAlias = NDArray[np.float64]
Advantages: TypeAlias = list[Sequence[float | FloatArray]]
"""Per trajectory, per step: a number, or an array of shape (number of action tokens,)."""

_FIELDS = {"gamma": "gamma", "scale": "scale_rewards"}  # settings that are fields of the trainer's configuration
_GIVEN_BY_TRAINER = frozenset({*_FIELDS, "values", "bootstrap"})

_registry: dict[str, Estimator] = {}
ADVANTAGES: Mapping[str, Estimator] = MappingProxyType(_registry)
"""The registered estimators by name (read-only)."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """A registered estimator.

    Attributes:
        name: its name in the registry and in `AgentGRPOConfig.advantage`.
        function: `function(trajectories, **settings) -> Advantages`.
        group_relative: it compares the members of a group; such an estimator has nothing to learn from a zero-variance group.
        level: "step" (one number per step) or "token" (one number per action token).
        settings: the names of its keyword settings.
        needs_values: it takes the values of a critic (`values`, `bootstrap`), so only a trainer with a critic can use it.
        silent_when_flat: all advantages of a group with equal returns are zero, so such a group can be left out of the loss.
    """

    name: str
    function: Callable[..., Advantages]
    group_relative: bool
    level: Literal["step", "token"]
    settings: frozenset[str]
    needs_values: bool = False
    silent_when_flat: bool = False

    def __call__(self, trajectories: Sequence[Trajectory], **settings: Any) -> Advantages:
        """Estimate; settings that this estimator does not know are left out, so one configuration serves all.

        Args:
            trajectories: the whole generation batch.
            **settings: `gamma`, `scale`, ...

        Returns:
            One entry per step of each trajectory.

        Raises:
            ValueError: when it needs the values of a critic and none came, or when the function broke its contract (wrong number of entries,
                a value that is not finite).
        """
        if self.needs_values and settings.get("values") is None:
            raise ValueError(self.refusal())
        result = self.function(trajectories, **{key: value for key, value in settings.items() if key in self.settings})
        if len(result) != len(trajectories):
            raise ValueError(f"estimator {self.name!r} returned {len(result)} entries for {len(trajectories)} trajectories")
        for number, (trajectory, values) in enumerate(zip(trajectories, result, strict=True)):
            if len(values) != len(trajectory.steps):
                raise ValueError(
                    f"estimator {self.name!r} returned {len(values)} values for trajectory {number}, which has {len(trajectory.steps)} steps"
                )
            if not all(np.all(np.isfinite(value)) for value in values):
                raise ValueError(f"estimator {self.name!r} returned a value that is not finite for trajectory {number}")
        return result

    def refusal(self) -> str:
        """Say why a trainer without a critic cannot use this estimator, and which it can.

        Returns:
            A sentence for an error.
        """
        others = ", ".join(sorted(name for name, item in _registry.items() if not item.needs_values))
        return (
            f"advantage={self.name!r} needs the values of a critic (values=, bootstrap=) and there is none here; "
            f"train with one (AgentPPOTrainer, --algorithm ppo), or choose an estimator that needs none: {others}"
        )


def register_advantage(
    name: str,
    *,
    group_relative: bool = False,
    level: Literal["step", "token"] = "step",
    needs_values: bool = False,
    silent_when_flat: bool | None = None,
) -> Callable[[Callable[..., Advantages]], Callable[..., Advantages]]:
    """Register an estimator under a name that `AgentGRPOConfig.advantage` can hold.

    The function's signature is `(trajectories: Sequence[Trajectory], *, ...settings) -> Advantages`. What the trainer passes, when the
    function has a keyword of the name: `gamma`, `scale`, what stands in `AgentGRPOConfig.advantage_kwargs`, and, of a trainer with a critic,
    `values` and `bootstrap` (see `step_gae` and `token_gae`). It is called with no trajectories to check settings.

    Args:
        name: the name.
        group_relative: whether it compares the members of a group with one another.
        level: "step" or "token".
        needs_values: it cannot do without the values of a critic; the function has the keyword `values`.
        silent_when_flat: whether all advantages of a group with equal returns are zero; None takes `group_relative`.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        ValueError: when the name is taken, or needs_values and keywords disagree.
    """
    silent = group_relative if silent_when_flat is None else silent_when_flat

    def add(function: Callable[..., Advantages]) -> Callable[..., Advantages]:
        if name in _registry:
            raise ValueError(f"an advantage estimator named {name!r} is registered already; choose another name")
        parameters = inspect.signature(function).parameters.values()
        settings = frozenset(item.name for item in parameters if item.kind is inspect.Parameter.KEYWORD_ONLY)
        if needs_values and "values" not in settings:
            raise ValueError(f"the estimator {name!r} needs values, but its function has no keyword `values` to take them")
        _registry[name] = Estimator(name, function, group_relative, level, settings, needs_values, silent)
        return function

    return add


def get_advantage(name: str) -> Estimator:
    """Look an estimator up.

    Args:
        name: a registered name.

    Returns:
        The estimator.

    Raises:
        KeyError: with the names that exist.
    """
    try:
        return _registry[name]
    except KeyError:
        raise KeyError(f"there is no advantage estimator {name!r}; choose one of {', '.join(sorted(_registry))}") from None


def check_advantage(name: str, settings: Any = None, *, critic: bool = False) -> Estimator:
    """Look an estimator up and check that a run can use it as it is configured.

    Args:
        name: a registered name.
        settings: what `advantage_kwargs` holds: settings by the estimator's own names; None for none.
        critic: whether the trainer has a critic.

    Returns:
        The estimator.

    Raises:
        ValueError: for an unknown name, an estimator that needs the values of a critic where there is none, or an unknown setting.
    """
    try:
        estimator = get_advantage(name)
    except KeyError as error:
        raise ValueError(f"advantage={name!r}: {error.args[0]}") from None
    if estimator.needs_values and not critic:
        raise ValueError(estimator.refusal())
    if settings is None:
        return estimator
    if not isinstance(settings, Mapping):
        raise ValueError(f"advantage_kwargs={settings!r} must be a mapping from names to values")
    own = sorted(estimator.settings - _GIVEN_BY_TRAINER)
    unknown = sorted(str(key) for key in settings if key not in own)
    if unknown:
        fields = [f"; {key} is the field {_FIELDS[key]}" for key in unknown if key in _FIELDS]
        raise ValueError(
            f"advantage_kwargs has {', '.join(unknown)}; the settings of {name!r} there are {', '.join(own) or 'none'}{''.join(fields)}"
        )
    if settings:
        critics: dict[str, Any] = {"values": [], "bootstrap": []} if estimator.needs_values else {}
        try:
            estimator([], **settings, **critics)
        except (TypeError, ValueError) as error:
            raise ValueError(f"advantage_kwargs={dict(settings)!r} of {name!r}: {error}") from error
    return estimator
