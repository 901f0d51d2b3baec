"""`StepRecorder`: the outermost wrapper, which writes down an episode as a `Trajectory` while it is played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from agent_gym.spaces import TokenBox
from agent_gym.trajectory import Generation, Step, StopReason, Trajectory
from agent_gym.wrappers.stepping import astep

__all__ = ["StepRecorder"]

_IN_FIELDS = frozenset({"feedback", "reward_parts", "state_key", "stop_reason", "observation_length"})
"""Keys of info that stand in a `Step`'s own fields (or in its neighbour's), and are not repeated in `Step.info`."""


class StepRecorder(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Records each step of an environment over `TokenBox` spaces. Read it with `env.get_wrapper_attr("trajectory")`.

    `step` takes ids or a `Generation`, whose log-probabilities are kept for exactly the ids that the environment took. A step that a
    wrapper truncates while the environment says RUNNING gets TIME_LIMIT and ends the episode.

    Args:
        env: observations and actions are token ids (see `as_token_env`).

    Attributes:
        group_id: written into the trajectory; set it before or during an episode.
        sampling: the policy's settings, written into the trajectory.

    Raises:
        TypeError: if a space of the environment is not a `TokenBox`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        for name in ("observation_space", "action_space"):
            space = getattr(env, name)
            if not isinstance(space, TokenBox):
                raise TypeError(
                    f"StepRecorder needs TokenBox spaces, and the {name} is {space}; use agent_gym.wrappers.as_token_env(env, tokenizer)"
                )
        self.group_id = ""
        self.sampling: Mapping[str, Any] = {}
        self._takes_unpadded = hasattr(env.unwrapped, "encode_action")
        self._env_id = env.spec.id if env.spec is not None else str(getattr(env.unwrapped, "env_id", "") or type(env.unwrapped).__name__)
        self._env_kwargs = {key: _storable(value) for key, value in (env.spec.kwargs if env.spec is not None else {}).items()}
        if (recorded_as := getattr(env, "recorded_as", None)) is not None:  # it stands for an environment of another process
            self._env_id, self._env_kwargs = recorded_as
        self._steps: list[Step] = []
        self._seed: int | None = None
        self._options: dict[str, Any] = {}
        self._task_id = ""
        self._ids: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._state_key = ""
        self._metrics: dict[str, float] = {}
        self._token_exact = True
        self._info: Mapping[str, Any] = {}
        self._running = False

    @property
    def trajectory(self) -> Trajectory:
        """The episode so far; its final observation is the present one."""
        return Trajectory(
            env_id=self._env_id,
            env_kwargs=self._env_kwargs,
            task_id=self._task_id,
            group_id=self.group_id,
            seed=self._seed,
            options=self._options,
            sampling=dict(self.sampling),
            tokenizer_fingerprint=str(getattr(self.unwrapped, "tokenizer_fingerprint", "")),
            steps=self._steps,
            final_observation=self._ids,
            metrics=self._metrics,
            token_exact=self._token_exact,
        )

    @property
    def prompt_ids(self) -> NDArray[np.int64]:
        """The present observation without padding, int64, shape (n,)."""
        return self._ids

    @property
    def running(self) -> bool:
        """An episode goes on."""
        return self._running

    @property
    def info(self) -> Mapping[str, Any]:
        """The environment's present info, with scalars of array libraries as Python numbers."""
        return self._info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and its record.

        Args:
            seed: of the environment.
            options: of the environment.

        Returns:
            What the environment returns.
        """
        self._running = False
        return self._begun(seed, options, self.env.reset(seed=seed, options=options))

    async def areset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and its record, awaiting the environment; only where that defines `areset`.

        Args:
            seed: of the environment.
            options: of the environment.

        Returns:
            What the environment returns.
        """
        self._running = False
        env: Any = self.env
        return self._begun(seed, options, await env.areset(seed=seed, options=options))

    def _begun(self, seed: int | None, options: dict[str, Any] | None, result: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
        observation, info = result
        self._steps, self._metrics, self._token_exact = [], {}, True
        self._seed, self._options = seed, dict(options or {})
        self._info = _plain(info)
        self._ids = self._unpad(observation, info)
        self._task_id = str(info.get("task_id", ""))
        self._state_key = str(info.get("state_key", ""))
        self._running = True
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act and record the step.

        Args:
            action: token ids as the environment takes them, or a `Generation`.

        Returns:
            What the environment returns, with `stop_reason` TIME_LIMIT where a wrapper ended the episode.

        Raises:
            gymnasium.error.ResetNeeded: after the end of the episode.
        """
        self._check_running()
        return self._record(action, self.env.step(self._handed(action)))

    async def astep(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act and record the step, awaiting the environment; only where `can_await(env)` holds.

        Args:
            action: as in `step`.

        Returns:
            As `step`.

        Raises:
            gymnasium.error.ResetNeeded: after the end of the episode.
        """
        self._check_running()
        return self._record(action, await astep(self.env, self._handed(action)))

    def cut(self, reason: StopReason) -> Trajectory:
        """End the running episode from outside, as a truncation of its last step.

        Args:
            reason: such as DEADLINE.

        Returns:
            The trajectory; without steps where none was finished.
        """
        if self._running and self._steps:
            self._steps[-1] = replace(self._steps[-1], truncated=True, stop_reason=reason)
        self._running = False
        return self.trajectory

    def unanswered(self, generation: Generation) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """End the running episode where the policy had no room for any reply to the present prompt.

        The environment is not asked: the model did not say nothing, it was not able to speak. The step is recorded with the empty action, and is
        truncated by CONTEXT_LIMIT with reward 0.

        Args:
            generation: the empty reply.

        Returns:
            As `step`; the observation is the present one.

        Raises:
            gymnasium.error.ResetNeeded: after the end of the episode.
        """
        self._check_running()
        changed: dict[str, Any] = {
            "feedback": "",
            "reward_parts": dict.fromkeys(self._info.get("reward_parts", {}), 0.0),
            "action_valid": True,
            "is_success": False,
            "context_rewritten": False,
            "dropped_ids": 0,
            "expert_action": "",
        }
        info = {**self._info, **{name: value for name, value in changed.items() if name in self._info}}
        info.update(observation_length=len(self._ids), stop_reason=StopReason.CONTEXT_LIMIT)
        space: TokenBox = self.env.observation_space  # type: ignore[assignment]  # checked in __init__
        return self._record(generation, (space.pad(self._ids), 0.0, False, True, info))

    def _check_running(self) -> None:
        if not self._running:
            raise ResetNeeded("the episode is over (or was never begun); call reset() first")

    def _handed(self, action: Any) -> Any:
        """Give the environment an action in the form that it takes."""
        if not isinstance(action, Generation):
            return action
        space: TokenBox = self.env.action_space  # type: ignore[assignment]  # checked in __init__
        if not self._takes_unpadded:
            return space.pad(action.token_ids)
        return action.token_ids.tolist()  # a list is taken whole; an array as long as the space would lose trailing pad ids

    def _record(self, action: Any, result: tuple[Any, Any, bool, bool, dict[str, Any]]) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = result
        self._info = plain = _plain(info)
        generation = action if isinstance(action, Generation) else Generation(self._sampled(action))
        self._token_exact = self._token_exact and generation.token_exact
        kept = len(generation.token_ids) - int(plain.get("dropped_ids", 0))
        reason = StopReason(plain.get("stop_reason", StopReason.RUNNING))
        if reason is StopReason.RUNNING and terminated:
            reason = StopReason.SUCCESS if plain.get("is_success") else StopReason.FAILURE
        elif reason is StopReason.RUNNING and truncated:
            reason = StopReason.TIME_LIMIT
        self._steps.append(
            Step(
                observation_ids=self._ids,
                action_ids=generation.token_ids[:kept],
                logprobs=None if generation.logprobs is None else generation.logprobs[:kept],
                finish_reason=generation.finish_reason,
                policy_version=generation.policy_version,
                feedback=str(plain.get("feedback", "")),
                reward=float(reward),
                reward_parts={str(key): float(value) for key, value in plain.get("reward_parts", {}).items()},
                terminated=bool(terminated),
                truncated=bool(truncated),
                stop_reason=reason,
                state_key=self._state_key,
                info={key: value for key, value in plain.items() if key not in _IN_FIELDS},
            )
        )
        self._ids = self._unpad(observation, info)
        self._state_key = str(plain.get("state_key", ""))
        named = getattr(self.unwrapped, "metric_names", None)
        extra = getattr(self.unwrapped, "extra_info", {}) if named is None else named
        self._metrics = {key: float(plain[key]) for key in extra if isinstance(plain.get(key), (bool, int, float))}
        self._running = not (terminated or truncated)
        if reason != plain.get("stop_reason", StopReason.RUNNING):
            info = {**info, "stop_reason": reason}
        return observation, reward, terminated, truncated, info

    def _sampled(self, action: Any) -> Any:
        """The ids of an action: a list is whole, an array as long as the space is padded."""
        if isinstance(action, (list, tuple)):
            return action
        space: TokenBox = self.env.action_space  # type: ignore[assignment]  # checked in __init__
        return space.unpad(_to_numpy(action))

    def _unpad(self, observation: Any, info: Mapping[str, Any]) -> NDArray[np.int64]:
        length = info.get("observation_length")
        space: TokenBox = self.env.observation_space  # type: ignore[assignment]  # checked in __init__
        return space.unpad(_to_numpy(observation), None if length is None else int(length)).copy()


def _to_numpy(value: Any) -> NDArray[Any]:
    """Arrays of other libraries (behind `NumpyToTorch` and its like) as numpy arrays, without importing those libraries."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def _plain(value: Any) -> Any:
    """Scalars of array libraries as Python numbers, all through nested dictionaries."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if not isinstance(value, (str, bytes, int, float, list, tuple)) and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    if hasattr(value, "detach"):
        return _to_numpy(value)
    return value


def _storable(value: Any) -> Any:
    """Keywords as they can be stored: JSON values as they are, objects by their name."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(getattr(value, "name_or_path", "") or repr(value)[:200])
    return value
