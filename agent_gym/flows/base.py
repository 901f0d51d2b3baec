"""The layer below the loop: `AgentFlowBase`, its registry, and the policy as a flow sees it.

A flow turns one row into trajectories in any way it likes: it may branch, use several models or write its own prompts. Whoever runs flows
(`run_rows`, the trainers) looks them up by name and needs to know nothing else about them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from agent_gym._names import nearest
from agent_gym.data.samples import drop_none
from agent_gym.policies.base import Policy, Sampling, derive_seed
from agent_gym.trajectory import Generation, Trajectory

if TYPE_CHECKING:
    from agent_gym.flows.environment import RolloutEnv

__all__ = [
    "AgentFlowBase",
    "DeadlineReached",
    "MakeEnv",
    "RowPolicy",
    "flow_names",
    "get_flow",
    "keyword_field",
    "normalize_row",
    "register_flow",
    "reset_field",
    "row_members",
    "row_seed",
]

Row = Mapping[str, Any]
MakeEnv = Callable[[Row], "RolloutEnv"]


class DeadlineReached(Exception):
    """The rollout's deadline passed while a reply or a step was awaited."""


class RowPolicy:
    """A policy as one flow run sees it: with the run's sampling, and a seed of its own for every request.

    Args:
        policy: the policy behind it.
        sampling: the settings of the run.
        seed: of this row and retry; the n-th request gets a seed derived from it and n.
        deadline: the event loop's time at which waiting ends, or None.
    """

    def __init__(self, policy: Policy, sampling: Sampling, seed: int, deadline: float | None = None) -> None:
        self.policy = policy
        self.sampling = sampling
        self.seconds = 0.0
        self._seed = seed
        self._deadline = deadline
        self._numbers = itertools.count()
        self._sessions: set[Hashable] = set()

    @property
    def version(self) -> int:
        """The policy's version."""
        return self.policy.version

    async def generate(
        self, prompt_ids: Sequence[int] | NDArray[np.int64], sampling: Sampling | None = None, *, session: Hashable | None = None
    ) -> Generation:
        """Sample a reply.

        Args:
            prompt_ids: the whole prompt, int64 of shape (n,).
            sampling: other settings than the run's; without a seed it gets the next one of this row.
            session: names an episode, for reuse of what was computed for its earlier turns.

        Returns:
            The reply.

        Raises:
            DeadlineReached: when the deadline passes first.
        """
        sampling = self.sampling if sampling is None else sampling
        number = next(self._numbers)
        if sampling.seed is None:
            sampling = replace(sampling, seed=derive_seed(self._seed, number))
        if session is not None:
            self._sessions.add(session)
        begin = time.perf_counter()
        try:
            if self._deadline is None:
                return await self.policy.generate(prompt_ids, sampling, session=session)
            if asyncio.get_running_loop().time() >= self._deadline:
                raise DeadlineReached("the deadline passed")
            try:
                async with asyncio.timeout_at(self._deadline):
                    return await self.policy.generate(prompt_ids, sampling, session=session)
            except TimeoutError as error:
                raise DeadlineReached("the deadline passed while a reply was sampled") from error
        finally:
            self.seconds += time.perf_counter() - begin

    def bind(self, env: Any, session: Hashable | None = None) -> None:
        """Show an environment that was just reset to a policy that looks at it (scripted ones); does nothing for others.

        Args:
            env: just reset.
            session: the episode that begins in it.
        """
        bind = getattr(self.policy, "bind", None)
        if bind is not None:
            if session is not None:
                self._sessions.add(session)
            bind(env, session)

    def forget(self, session: Hashable) -> None:
        """Drop what the policy kept for a session.

        Args:
            session: as of `generate`; an unknown one is ignored.
        """
        self._sessions.discard(session)
        self.policy.forget(session)

    def forget_all(self) -> None:
        """Drop all sessions of this run."""
        for session in list(self._sessions):
            self.forget(session)


class AgentFlowBase(ABC):
    """Turns one row into trajectories. Write `run`, and register the class with `@register_flow("name")`."""

    @abstractmethod
    async def run(self, row: Row, policy: RowPolicy, make_env: MakeEnv) -> list[Trajectory]:
        """Play one row.

        Args:
            row: `{"env_id", "env_kwargs", "seed"}` and optionally `options`, `group_id` and whatever else the flow reads.
            policy: `await policy.generate(ids, session=...)`; each call has a seed of its own.
            make_env: gives an environment for a row (from the pool); it goes back by itself when `run` is over.

        Returns:
            The trajectories to train on; several where the flow branches. An `EnvFault` that is raised, or a trajectory that ends in
            ENV_FAULT, makes the caller begin the row again with new sampling seeds.
        """


_FLOWS: dict[str, type[AgentFlowBase]] = {}
_Flow = TypeVar("_Flow", bound=type[AgentFlowBase])


def register_flow(name: str) -> Callable[[_Flow], _Flow]:
    """Register a flow class under a name, by which rows (`agent_name`) and configurations look it up.

    Args:
        name: any text; registering another class under a taken name is an error.

    Returns:
        The decorator.

    Raises:
        ValueError: if the name is taken by another class.
        TypeError: if the class is no `AgentFlowBase`.
    """

    def decorate(flow: _Flow) -> _Flow:
        if not (isinstance(flow, type) and issubclass(flow, AgentFlowBase)):
            raise TypeError(f"register_flow takes subclasses of AgentFlowBase, not {flow!r}")
        taken = _FLOWS.get(name)
        if taken is not None and (taken.__module__, taken.__qualname__) != (flow.__module__, flow.__qualname__):
            raise ValueError(f"the flow name {name!r} is taken by {taken.__module__}.{taken.__qualname__}; choose another")
        _FLOWS[name] = flow
        return flow

    return decorate


def flow_names() -> list[str]:
    """Return the registered names, sorted.

    Returns:
        The names.
    """
    return sorted(_FLOWS)


def get_flow(flow: str | AgentFlowBase | type[AgentFlowBase], **keywords: Any) -> AgentFlowBase:
    """Return a flow.

    Args:
        flow: a registered name, a class, or a flow, which is returned as it is.
        keywords: for the class.

    Returns:
        The flow.

    Raises:
        KeyError: for an unknown name, with the nearest known one.
    """
    if isinstance(flow, AgentFlowBase):
        return flow
    if isinstance(flow, str):
        if flow not in _FLOWS:
            raise KeyError(
                f"no flow is registered as {flow!r}{nearest(flow, _FLOWS) or '.'} Known: {', '.join(flow_names())}. Import the module that registers "
                "yours first"
            )
        flow = _FLOWS[flow]
    return flow(**keywords)


def reset_field(row: Mapping[str, Any], error: Exception) -> str:
    """Return which field of a row of the sample schema an error of its reset is about.

    Args:
        row: as `Route.row` makes it.
        error: of the reset.

    Returns:
        The beginning of a message, "field 'prompt': "; "" where nobody knows.
    """
    name = getattr(error, "field", "") or row.get("task_field")
    return f"field {name!r}: " if name else ""


def keyword_field(env_kwargs: Mapping[str, Any], error: Exception) -> str:
    """Return which keyword of a row an error of its environment's constructor is about.

    Args:
        env_kwargs: of the row.
        error: of the constructor.

    Returns:
        The beginning of a message, "field 'env_kwargs.max_turns': ", with the keyword that the error begins with, else the first whose value it quotes,
        else the first that it names; without a keyword where there is none.
    """
    text = str(error)
    named = [(found.start(), name) for name in env_kwargs if (found := re.search(rf"\b{re.escape(name)}\b", text))]
    values = {name: value if isinstance(value, (list, tuple)) else [value] for name, value in env_kwargs.items()}
    quoted = [name for name, given in values.items() if any(isinstance(one, str) and repr(one) in text for one in given)]
    blamed = [name for start, name in sorted(named) if start == 0] + quoted + [name for _, name in sorted(named)]
    return f"field 'env_kwargs.{blamed[0]}': " if blamed else "field 'env_kwargs': "


def row_members(name: str, value: Any) -> dict[str, Any]:
    """Read a member of a data set row that is a dictionary. Every room that reads rows reads them by this.

    Args:
        name: of the member, for the message.
        value: a dictionary, or one as JSON text; None and "" are an empty one.

    Returns:
        The dictionary. Its members that are None are dropped, at any depth: Arrow gives every row the members of all others and fills the gaps
        with None.

    Raises:
        ValueError: if it is none of these.
    """
    given = value
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name} of a data set row is a text that is not JSON: {given!r:.200} ({error})") from error
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} of a data set row must be a dictionary, or one as JSON text, not {given!r:.200}")
    members: dict[str, Any] = drop_none(value)
    return members


def row_seed(value: Any) -> int | None:
    """Read the seed of a data set row.

    Args:
        value: a whole number, or None.

    Returns:
        The number; None where there is none.

    Raises:
        ValueError: if it is anything else, or negative.
    """
    if value is None:
        return None
    try:
        number = int(value)
        whole = number == value and number >= 0 and not isinstance(value, bool)
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise ValueError(f"seed of a data set row must be a whole number of at least 0, not {value!r:.200}")
    return number


def normalize_row(row: Row, *, needs_env: bool = True) -> dict[str, Any]:
    """Return a row with `env_kwargs` and `options` as dictionaries.

    Args:
        row: as written by us or read from a data set; see `row_members`.
        needs_env: refuse a row that names no environment; False where a function of the caller's makes it.

    Returns:
        A new dictionary with `env_id`, `env_kwargs`, `seed`, `options`, `group_id` and the row's other members.

    Raises:
        ValueError: if the row names no environment, or a member cannot be read.
    """
    clean = dict(row)
    for key in ("env_kwargs", "options"):
        clean[key] = row_members(key, clean.get(key))
    clean["env_id"] = str(clean.get("env_id") or "")
    if needs_env and not clean["env_id"]:
        raise ValueError(f"a row names its environment (env_id), or env_factory= makes it; this one has {sorted(map(str, row))}")
    clean["seed"] = row_seed(clean.get("seed"))
    clean["group_id"] = str(clean["group_id"]) if clean.get("group_id") is not None else ""
    return clean
