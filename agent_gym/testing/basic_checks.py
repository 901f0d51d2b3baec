"""Checks of what every Gymnasium environment owes: its interface, its infos, its rewards, its ends, its rendering and closing."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from agent_gym.spaces import TokenBox
from agent_gym.testing.report import check, fail
from agent_gym.testing.subject import (
    Env,
    Frame,
    NotApplicable,
    Subject,
    attribute,
    bare,
    frame_of_reset,
    frame_of_step,
)
from agent_gym.trajectory import StopReason

__all__ = ["close_twice", "ends_apart", "gymnasium_api", "info_keys", "makes", "max_turns", "render_ansi", "reset_needed", "rewards"]

CONTRACT_INFO: Mapping[str, type] = {
    "observation_length": int,
    "turn": int,
    "context_rewritten": bool,
    "task_id": str,
    "state_key": str,
    "feedback": str,
    "action_valid": bool,
    "dropped_ids": int,
    "reward_parts": dict,
    "is_success": bool,
    "stop_reason": str,  # one of StopReason, which is a str
    "env_fault": bool,
    "expert_action": str,
}
"""The info keys of a token environment and their types (`agent_gym.core.AgentEnv`)."""

_LIMITS = frozenset({StopReason.MAX_TURNS, StopReason.TIME_LIMIT, StopReason.CONTEXT_LIMIT, StopReason.DEADLINE, StopReason.ENV_FAULT})


def _is_token_env(env: Env) -> bool:
    return isinstance(env.observation_space, TokenBox) and isinstance(env.action_space, TokenBox)


def _episodes(subject: Subject) -> list[tuple[str, list[Frame]]]:
    """Every script and one episode that is played to its end, where one is."""
    with subject.made() as env:
        played = [(script.name, subject.play(env, script)) for script in subject.scripts]
        with contextlib.suppress(NotApplicable):
            played.append(("played to its end", subject.until_the_end(env)))
    return played


@check()
def makes(subject: Subject) -> None:
    """The environment can be made, reset with a seed, reset without one, and made a second time.

    Protects all that follows: where this fails nothing else is asked.

    Args:
        subject: what is checked.
    """
    for _ in range(2):
        try:
            with subject.made() as env:
                results: list[Any] = [env.reset(seed=seed) for seed in (subject.seed, None)]
        except Exception as error:  # noqa: BLE001  # whatever keeps it from being made
            fail(
                f"making {subject.name!r} with {dict(subject.factory.kwargs)} and resetting it: {type(error).__name__}: {error}",
                "an environment after reset",
                "name it by a registered id, 'module:Id-v0', 'module:Class', 'file.py:Class' or a factory, and give all it needs as kwargs",
            )
        for result in results:
            if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
                fail(f"reset returned {result!r:.200}", "(observation, info), info a dict", "return both from reset")


@check("makes")
def gymnasium_api(subject: Subject) -> None:
    """Gymnasium's own `check_env` passes on the environment as it was made.

    Protects every reader who takes the word "Gymnasium" seriously. Several suites that name themselves after it return dictionaries, one
    `done` flag or four values, and run in nobody else's loop.

    Args:
        subject: what is checked.
    """
    with subject.made() as env, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an id space is no [-1, 1] box, and check_env says so each time
        try:
            check_env(bare(env), skip_render_check=True, skip_close_check=True)
        except Exception as error:  # noqa: BLE001  # it raises whatever it meets
            fail(
                f"gymnasium.utils.env_checker.check_env: {type(error).__name__}: {error}",
                "no complaint",
                "see https://gymnasium.farama.org/api/env/; derive from AgentEnv, which keeps to it",
            )


@check("makes")
def info_keys(subject: Subject) -> None:
    """Info has the same keys and Python types after reset and every step, nothing in it is None, and token environments have the contract's.

    Protects vector environments, which stack infos into arrays: Gymnasium turns (True, None) into [True, False] without a word, (1, 1.5)
    into [1, 1], and (None, {}) into an AttributeError.

    Args:
        subject: what is checked.
    """
    with subject.made() as env:
        token_env = _is_token_env(env)
    wanted: dict[str, type] = {}
    for name, frames in _episodes(subject):
        for turn, frame in enumerate(frames):
            where = f"after {'reset' if turn == 0 else f'step {turn}'} of the episode {name!r}"
            if nothing := _path_of_none(frame.info):
                fail(f"info{nothing} is None {where}", "no None anywhere in info", 'give "", 0, False or {} where there is nothing to say')
            types = {key: type(value) for key, value in frame.info.items()}
            if not wanted:
                wanted = types
            if set(types) != set(wanted):
                fail(
                    f"info has the keys {sorted(set(types) ^ set(wanted))} only sometimes ({where})",
                    "the same keys after reset and every step",
                    "name your own keys in `extra_info` of an AgentEnv, with their defaults",
                )
            for key, kind in types.items():
                if kind is not wanted[key]:
                    fail(
                        f"info[{key!r}] is {kind.__name__} {where} and was {wanted[key].__name__}",
                        "one type per key",
                        "convert it before it goes into info",
                    )
            if token_env:
                _check_contract(frame.info, where)


def _check_contract(info: Mapping[str, Any], where: str) -> None:
    for key, kind in CONTRACT_INFO.items():
        if key not in info:
            fail(
                f"info has no {key!r} {where}",
                f"the keys {', '.join(CONTRACT_INFO)}",
                "derive from AgentEnv, or wrap with agent_gym.wrappers.as_token_env",
            )
        if not isinstance(info[key], kind) or (kind is int and isinstance(info[key], bool)):
            fail(f"info[{key!r}] is {info[key]!r:.80} {where}", f"{kind.__name__}", "convert it before it goes into info")
    if info["stop_reason"] not in set(StopReason):
        fail(
            f"stop_reason is {info['stop_reason']!r:.80} {where}", f"one of {', '.join(StopReason)}", "use agent_gym.trajectory.StopReason"
        )


def _path_of_none(value: Any, path: str = "") -> str:
    if value is None:
        return path or "[]"
    if isinstance(value, Mapping):
        for key, item in value.items():
            if found := _path_of_none(item, f"{path}[{key!r}]"):
                return found
    return ""


@check("makes")
def rewards(subject: Subject) -> None:
    """The reward of every step is a finite number, and the finite parts of it, under keys that never change, sum up to it.

    Protects the advantage of a whole group: one NaN spreads over all its members, and Agent-R1's tool environment returned None as a reward
    that its signature called a float.

    Args:
        subject: what is checked.
    """
    names: frozenset[str] | None = None
    for name, frames in _episodes(subject):
        for turn, frame in enumerate(frames):
            where = f"at {'reset' if turn == 0 else f'step {turn}'} of the episode {name!r}"
            if isinstance(frame.reward, (bool, np.bool_)) or not isinstance(frame.reward, (int, float, np.integer, np.floating)):
                fail(f"the reward {where} is {frame.reward!r:.80}", "a float", "return float(reward)")
            if not math.isfinite(frame.reward):
                fail(f"the reward {where} is {frame.reward}", "a finite float", "return 0.0 where nothing was earned")
            parts = frame.info.get("reward_parts")
            if not isinstance(parts, Mapping):
                continue  # not a token environment, or `info_keys` says so
            names = frozenset(parts) if names is None else names
            if frozenset(parts) != names:
                fail(
                    f"reward_parts has the keys {sorted(parts)} {where}, and had {sorted(names)}",
                    "one key set",
                    "name every part in `reward_part_names`",
                )
            bad = {key: value for key, value in parts.items() if not isinstance(value, (float, np.floating)) or not math.isfinite(value)}
            if bad:
                fail(f"reward_parts holds {bad} {where}", "finite floats", "give 0.0 where a part earned nothing")
            total = math.fsum(parts.values())
            if not math.isclose(total, float(frame.reward), rel_tol=1e-6, abs_tol=1e-9):
                fail(
                    f"the reward {where} is {frame.reward}, and its parts {dict(parts)} sum up to {total}",
                    "reward == sum of its parts",
                    "put every summand of the reward into reward_parts",
                )


@check("makes")
def ends_apart(subject: Subject) -> None:
    """`terminated` and `truncated` are booleans, never both true, and agree with `stop_reason`.

    Protects bootstrapping: a terminated state is worth nothing more, a truncated one is. Most suites for language models know one `done`.

    Args:
        subject: what is checked.
    """
    for name, frames in _episodes(subject):
        for turn, frame in enumerate(frames[1:], start=1):
            where = f"step {turn} of the episode {name!r}"
            flags = (frame.terminated, frame.truncated)
            if not all(isinstance(flag, (bool, np.bool_)) for flag in flags):
                fail(f"terminated and truncated are {flags!r} at {where}", "two booleans", "return bool(...)")
            if all(flags):
                fail(
                    f"terminated and truncated are both true at {where}",
                    "one of them",
                    "the task's end goes before the limit: truncated only where it did not terminate",
                )
            reason = frame.info.get("stop_reason")
            if not isinstance(reason, str) or reason not in set(StopReason):
                continue
            if not frame.ended and reason != StopReason.RUNNING:
                fail(f"stop_reason is {str(reason)!r} at {where}, and the episode goes on", "'running'", "set it with the end")
            if frame.terminated and (reason in _LIMITS or reason == StopReason.RUNNING):
                fail(
                    f"stop_reason is {str(reason)!r} at {where}, which terminated",
                    "why the task ended",
                    "see agent_gym.trajectory.StopReason",
                )


@check("makes")
def reset_needed(subject: Subject) -> None:
    """A step before the first reset and after the end raises `gymnasium.error.ResetNeeded`.

    Protects the loss from steps of an episode that is over: a loop with an off-by-one would train on them in silence.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where a wrapper ended the episode.
    """
    with subject.made() as env:
        if not _is_token_env(env):
            subject.token_spaces(env)
        action = subject.random_action(env, np.random.default_rng(subject.seed))
        _wants_reset(env, action, "before the first reset")
        last = subject.until_the_end(env)[-1]
        if last.truncated and last.info.get("stop_reason") == StopReason.RUNNING:
            raise NotApplicable("a wrapper ended the episode (TimeLimit), and the environment itself goes on")
        for _ in range(2):
            _wants_reset(env, action, "after the end of the episode")


def _wants_reset(env: Env, action: Any, when: str) -> None:
    try:
        env.step(action)
    except ResetNeeded:
        return
    except Exception as error:  # noqa: BLE001  # any other exception is what this looks for
        fail(f"step {when} raised {type(error).__name__}: {error}", "gymnasium.error.ResetNeeded", "remember the end, and raise it in step")
    fail(f"step {when} returned", "gymnasium.error.ResetNeeded", "remember the end, and raise it in step")


@check("makes")
def max_turns(subject: Subject) -> None:
    """An episode that nothing else ends is truncated at exactly `max_turns` steps, and says so.

    Protects the budget of a rollout, and bootstrapping: a limit is no end of the task. Limits that were counted twice or from another
    start are a recurring bug of rollout code (verifiers 1543).

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where there is no such limit, or no episode reaches it.
    """
    limits: list[tuple[int, dict[str, Any]]] = []
    with subject.made() as env:
        own = attribute(env, "max_turns")
        if isinstance(own, int) and own > 0:
            limits.append((own, {}))
    if subject.accepts("max_turns", 2):
        limits.append((2, {"max_turns": 2}))
    if not limits:
        raise NotApplicable("it has neither an attribute nor a keyword max_turns")
    met = [_meets_limit(subject, limit, kwargs) for limit, kwargs in limits]
    if not any(met):
        raise NotApplicable("every action that was tried ended the episode before its limit")


def _meets_limit(subject: Subject, limit: int, kwargs: dict[str, Any]) -> bool:
    """Play wasteful policies against the limit. Returns whether one met it."""
    for script in reversed(subject.scripts):  # those that stay in play come last
        with subject.made(**kwargs) as env:
            rng = np.random.default_rng([subject.seed, 3])
            frame = frame_of_reset(env.reset(seed=script.seed))
            turn = 0
            while not frame.ended and turn < limit:
                repeats = script.name == "repeat" and script.actions
                frame = frame_of_step(env.step(script.actions[0] if repeats else subject.random_action(env, rng, turn)))
                turn += 1
            if not frame.ended:
                fail(
                    f"after {turn} steps ({script.name} actions) the episode goes on, and max_turns is {limit}",
                    f"truncated at step {limit}",
                    "count the steps since reset and truncate at max_turns",
                )
            reason = frame.info.get("stop_reason", StopReason.MAX_TURNS)
            if frame.truncated and turn == limit and reason not in (StopReason.CONTEXT_LIMIT, StopReason.ENV_FAULT, StopReason.RUNNING):
                if reason != StopReason.MAX_TURNS:
                    fail(
                        f"it was truncated at max_turns={limit} with stop_reason {str(reason)!r}",
                        "'max_turns'",
                        "name the limit that ended it",
                    )
                return True
            if frame.truncated and turn < limit and reason == StopReason.MAX_TURNS:
                fail(f"it was truncated for max_turns={limit} at step {turn}", f"at step {limit}", "count the steps since reset")
    return False


@check("makes")
def render_ansi(subject: Subject) -> None:
    """With `render_mode="ansi"` given at construction, `render()` returns text after reset and every step.

    Protects whoever looks at what an agent sees. Environments that print, or that take arguments in `render`, cannot be recorded.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where the mode is not among the environment's.
    """
    with subject.made() as env:
        if "ansi" not in env.metadata.get("render_modes", ()):
            raise NotApplicable("it does not name 'ansi' among its render modes")
        given = env.render_mode == "ansi"
    if not given and not subject.accepts("render_mode", "ansi"):
        raise NotApplicable("its factory does not take render_mode")
    script = subject.longest
    with subject.made(**({} if given else {"render_mode": "ansi"})) as env:
        frame = frame_of_reset(env.reset(seed=script.seed))
        for turn, action in enumerate((None, *script.actions)):
            if turn:
                frame = frame_of_step(env.step(action))
            text: Any = env.render()
            if not isinstance(text, str) or not text:
                where = f"step {turn}" if turn else "reset"
                fail(f"render() after {where} returned {text!r:.100}", "a text that is not empty", "return the prompt as text")
            if frame.ended:
                return


@check("makes")
def close_twice(subject: Subject) -> None:
    """`close()` can be called twice, and before any reset.

    Protects the end of every program: vector environments, wrappers and `with` blocks all close, and the second must not hide an error.

    Args:
        subject: what is checked.
    """
    for played in (False, True):
        env = subject.factory()
        if played:
            env.reset(seed=subject.seed)
        for time in ("first", "second"):
            try:
                env.close()
            except Exception as error:  # noqa: BLE001  # any exception is what this looks for
                fail(
                    f"the {time} close() {'after' if played else 'without'} a reset raised {type(error).__name__}: {error}",
                    "two quiet calls",
                    "forget what was released: `if self._x is not None: self._x.close(); self._x = None`",
                )
