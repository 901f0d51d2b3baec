"""What a rollout is made of: `Generation`, `Step`, `Trajectory` and `StopReason`.

The unit is the step of the step-level Markov decision process (Agent-R1, arXiv 2511.14460; StepPO, arXiv 2604.18401): the prompt that the
environment chose to show, the very ids that the model sampled, and what came of them. These classes hold data and nothing else; they are
frozen, their arrays are read-only, and every later room (recorder, loops, trainers, report) speaks in them.

All token ids are one-dimensional int64 arrays without padding; log-probabilities are float32 arrays in natural logarithm, of the
distribution that was really sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CUT_OFF", "Generation", "Step", "StopReason", "Trajectory", "Transition"]

IdArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

CUT_OFF = frozenset({"length", "context", "abort"})
"""The finish reasons of replies that did not come to their end; see `Generation`."""


class StopReason(StrEnum):
    """Why an episode stands where it stands. A plain string for everyone who does not care about the enum."""

    RUNNING = "running"
    """The episode goes on."""
    ANSWER = "answer"
    """The model gave its answer (terminated)."""
    FINISH_CALL = "finish_call"
    """The model called the tool that ends the episode (terminated)."""
    NO_CALL = "no_call"
    """The model's reply held neither an answer nor a call nor the marker of one (terminated)."""
    SUCCESS = "success"
    """The task's goal was reached (terminated)."""
    FAILURE = "failure"
    """The task can no longer be won (terminated)."""
    MAX_TURNS = "max_turns"
    """The environment's own step limit (truncated)."""
    TIME_LIMIT = "time_limit"
    """A wrapper's step limit, seen by `StepRecorder` (truncated)."""
    CONTEXT_LIMIT = "context_limit"
    """The next prompt would not fit into the observation space (truncated, never bootstrapped from)."""
    DEADLINE = "deadline"
    """A wall-clock limit of the rollout (truncated)."""
    ENV_FAULT = "env_fault"
    """The world broke, not the model (truncated, reward 0, never bootstrapped from, begun again or dropped)."""


def _ids(values: Any) -> IdArray:
    array = np.array(values, dtype=np.int64).reshape(-1)
    array.flags.writeable = False
    return array


def _floats(values: Any) -> FloatArray:
    array = np.array(values, dtype=np.float32).reshape(-1)
    array.flags.writeable = False
    return array


def _equal(one: object, other: object) -> bool:
    """Field-wise equality of two records of the same class, arrays by value (NaN equals NaN)."""
    for item in fields(one):  # type: ignore[arg-type]  # both are dataclasses of this module
        left, right = getattr(one, item.name), getattr(other, item.name)
        if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
            if left is None or right is None or left.dtype != right.dtype:
                return False
            if not np.array_equal(left, right, equal_nan=left.dtype.kind == "f"):
                return False
        elif left != right:
            return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """One reply of a policy.

    Attributes:
        token_ids: the sampled ids, shape (n,), int64, the end-of-turn id included when it was sampled.
        logprobs: their log-probabilities under the sampled distribution, shape (n,), float32; None when unknown.
        finish_reason: "stop" (an end-of-turn id was sampled), "length" (cut off at `max_tokens`), "context" (cut off where the model's context was
            full; without ids where it left no room for any) or "abort" (broken off from outside).
        policy_version: the optimiser step of the weights that sampled it.
        token_exact: the ids are the very ones that were sampled, behind the very prompt that was shown; False where they were made of a reply's text
            (`agent_gym.policies.OpenAIPolicy`), which no trainer takes.
    """

    token_ids: IdArray
    logprobs: FloatArray | None = None
    finish_reason: str = "stop"
    policy_version: int = 0
    token_exact: bool = True

    def __post_init__(self) -> None:
        """Make the arrays read-only and check that there is one log-probability per id.

        Raises:
            ValueError: if the two lengths differ.
        """
        object.__setattr__(self, "token_ids", _ids(self.token_ids))
        if self.logprobs is not None:
            object.__setattr__(self, "logprobs", _floats(self.logprobs))
            if len(self.logprobs) != len(self.token_ids):
                raise ValueError(
                    f"a Generation of {len(self.token_ids)} token ids came with {len(self.logprobs)} log-probabilities; give one per id, or None"
                )

    def __eq__(self, other: object) -> bool:
        return _equal(self, other) if isinstance(other, Generation) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # holds arrays


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One transition of the step-level process, without its next observation (see `Trajectory.transitions`).

    Attributes:
        observation_ids: the prompt that was acted on, shape (n,), int64.
        action_ids: the sampled ids up to and including the first end-of-turn id, shape (m,), int64; may be empty.
        logprobs: of the action ids, shape (m,), float32, or None.
        finish_reason: of the generation.
        policy_version: of the generation.
        feedback: what the environment answered, as text for people.
        reward: of this step.
        reward_parts: the named summands of the reward; the same keys in every step of an environment.
        terminated: the task ended.
        truncated: a limit ended the episode.
        stop_reason: why, RUNNING while it goes on.
        state_key: the state of the observation acted on, without its history (GiGPO's anchor state, arXiv 2505.10978).
        info: the environment's info of this step, without what stands in the other fields.
    """

    observation_ids: IdArray
    action_ids: IdArray
    logprobs: FloatArray | None = None
    finish_reason: str = "stop"
    policy_version: int = 0
    feedback: str = ""
    reward: float = 0.0
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    stop_reason: StopReason = StopReason.RUNNING
    state_key: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the arrays read-only and check that there is one log-probability per action id.

        Raises:
            ValueError: if the two lengths differ.
        """
        object.__setattr__(self, "observation_ids", _ids(self.observation_ids))
        object.__setattr__(self, "action_ids", _ids(self.action_ids))
        object.__setattr__(self, "stop_reason", StopReason(self.stop_reason))
        if self.logprobs is not None:
            object.__setattr__(self, "logprobs", _floats(self.logprobs))
            if len(self.logprobs) != len(self.action_ids):
                raise ValueError(
                    f"a Step with {len(self.action_ids)} action ids came with {len(self.logprobs)} log-probabilities; give one per id, or None"
                )

    def __eq__(self, other: object) -> bool:
        return _equal(self, other) if isinstance(other, Step) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # holds arrays


@dataclass(frozen=True, slots=True)
class Transition:
    """A step with the observation that followed it: (s, a, r, s') of the step-level process.

    Attributes:
        next_observation_ids: token ids, int64, shape (n,): those of the next step, or the final observation.
    """

    step: Step
    next_observation_ids: IdArray


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One episode.

    Attributes:
        env_id: the registered id, or the class name of an unregistered environment.
        env_kwargs: the keywords it was made with.
        task_id: the environment's name of the task.
        group_id: episodes with the same group id are compared with one another by group-relative estimators.
        seed: the seed of the reset, None when none was given.
        options: the options of the reset.
        sampling: the sampling settings of the policy.
        tokenizer_fingerprint: of the tokenizer whose ids these are (see `agent_gym.chat.tokenizer_fingerprint`).
        steps: the transitions in order.
        final_observation: the observation after the last step, shape (n,), int64; empty when there is none.
        metrics: numbers that are no reward (F1, recall, ...), of the last step's info.
        token_exact: every action is the very ids that were sampled; see `Generation`.
    """

    env_id: str = ""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    task_id: str = ""
    group_id: str = ""
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_fingerprint: str = ""
    steps: Sequence[Step] = ()
    final_observation: IdArray = field(default_factory=lambda: _ids(()))
    metrics: Mapping[str, float] = field(default_factory=dict)
    token_exact: bool = True

    def __post_init__(self) -> None:
        """Freeze the steps and the final observation."""
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "final_observation", _ids(self.final_observation))

    def __eq__(self, other: object) -> bool:
        return _equal(self, other) if isinstance(other, Trajectory) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    def __len__(self) -> int:
        return len(self.steps)

    def transitions(self) -> Iterator[Transition]:
        """Yield each step with its next observation, which is stored once: as the observation of the step behind it.

        Yields:
            `Transition` objects in order.
        """
        for index, step in enumerate(self.steps):
            behind = self.steps[index + 1].observation_ids if index + 1 < len(self.steps) else self.final_observation
            yield Transition(step, behind)

    @property
    def total_reward(self) -> float:
        """The undiscounted sum of the step rewards."""
        return float(sum(step.reward for step in self.steps))

    @property
    def terminated(self) -> bool:
        """The task ended."""
        return bool(self.steps) and self.steps[-1].terminated

    @property
    def truncated(self) -> bool:
        """A limit ended the episode."""
        return bool(self.steps) and self.steps[-1].truncated

    @property
    def stop_reason(self) -> StopReason:
        """Why the episode ended; RUNNING when it has not."""
        return self.steps[-1].stop_reason if self.steps else StopReason.RUNNING

    @property
    def is_success(self) -> bool:
        """What the environment's last info said of success."""
        return bool(self.steps) and bool(self.steps[-1].info.get("is_success", False))
