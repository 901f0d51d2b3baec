"""The environment under test: how to make it, how to play it, and how to tell two episodes apart.

A `Subject` knows nothing of any environment but Gymnasium's interface and, where it is there, the token contract of `agent_gym.core`
(spaces that are `TokenBox`, `info["observation_length"]`, an `expert`). What it plays is written down first, as *scripts*: a seed and the
very actions. Every later run, beside another instance or in another process, replays a script, so that any difference is the environment's.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from agent_gym.spaces import TokenBox

__all__ = ["EnvFactory", "Frame", "NotApplicable", "Script", "Subject", "first_difference"]

Env = gymnasium.Env[Any, Any]
Target = str | EnvSpec | Callable[..., Any]

_ENV_ID = re.compile(r".*-v\d+$")
_PLAIN_WRAPPERS = (gymnasium.wrappers.PassiveEnvChecker, gymnasium.wrappers.OrderEnforcing)


class NotApplicable(Exception):  # the outcome of a check, not an error
    """A check has nothing to say about this environment; the message says why."""


@dataclass(frozen=True, slots=True)
class EnvFactory:
    """Makes an environment from whatever names it. Picklable when the target is, so that another process can do the same.

    Attributes:
        target: a Gymnasium id ("AgentR1/Tool-v0", "my_pkg:My/Env-v0"), "my_pkg:MyEnv", "folder/file.py:MyEnv", an `EnvSpec`, a class, or
            a callable.
        kwargs: keywords for it.
    """

    target: Target
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse an environment that has been made already.

        Raises:
            TypeError: if the target is neither a name nor callable.
        """
        if isinstance(self.target, gymnasium.Env) or not (isinstance(self.target, (str, EnvSpec)) or callable(self.target)):
            raise TypeError(
                f"an environment under test is named by its id, 'module:Class', a class or a factory, not {self.target!r}: "
                "several fresh ones are needed. Pass `lambda: your_environment(...)` or the class"
            )

    @property
    def name(self) -> str:
        """What people call it."""
        if isinstance(self.target, str):
            return self.target
        return self.target.id if isinstance(self.target, EnvSpec) else getattr(self.target, "__name__", repr(self.target))

    def __call__(self, **kwargs: Any) -> Env:
        """Make a fresh environment.

        Args:
            **kwargs: on top of `self.kwargs`.

        Returns:
            The environment.

        Raises:
            TypeError: if something else than a `gymnasium.Env` comes out.
            ValueError: if a name leads nowhere.
        """
        merged = {**self.kwargs, **kwargs}
        made = self._make(merged)
        if not isinstance(made, gymnasium.Env):
            raise TypeError(f"{self.name} made {type(made).__name__}, which is no gymnasium.Env; derive from gymnasium.Env or AgentEnv")
        return made

    def _make(self, kwargs: dict[str, Any]) -> Any:
        target = self.target
        if isinstance(target, EnvSpec):
            return gymnasium.make(target, disable_env_checker=True, **kwargs)
        if not isinstance(target, str):
            return target(**kwargs)
        module_name, colon, attribute = target.rpartition(":")
        if _ENV_ID.match(target) or not colon:
            return gymnasium.make(target, disable_env_checker=True, **kwargs)
        module = _load_file(module_name) if module_name.endswith(".py") else importlib.import_module(module_name)
        found: Any = module
        for part in attribute.split("."):
            if not hasattr(found, part):
                raise ValueError(f"{module_name} has no {attribute!r}; give an environment as 'module:Class' or as a registered id")
            found = getattr(found, part)
        return found(**kwargs)


def _load_file(path: str) -> Any:
    """Import a Python file by its path, once."""
    resolved = Path(path).resolve()
    name = f"_agent_env_{resolved.stem}_{zlib.crc32(str(resolved).encode()):08x}"  # the same in every process, for pickles
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, resolved)
        if spec is None or spec.loader is None or not resolved.is_file():
            raise ValueError(f"there is no Python file {str(resolved)!r}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


@dataclass(frozen=True, slots=True)
class Frame:
    """What came back from a reset (reward 0, nothing ended) or a step.

    Attributes:
        observation: a copy.
        reward: as it came.
        terminated: as it came.
        truncated: as it came.
        info: a deep copy where that is possible.
    """

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: dict[str, Any]

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return bool(self.terminated) or bool(self.truncated)


@dataclass(frozen=True, slots=True)
class Script:
    """An episode written down.

    Attributes:
        name: "random", "expert", "repeat" (the expert's first action again and again) or "noisy" (the same with random ids in it).
        seed: of the reset.
        actions: unpadded int64 arrays for token spaces, whatever the space samples for others.
    """

    name: str
    seed: int
    actions: tuple[Any, ...]


class Subject:
    """An environment under test.

    Args:
        target: see `EnvFactory`.
        kwargs: keywords that it is made with.
        seed: of the first task and of all random actions.
        steps: the length of a script; the checks of limits play longer.

    Attributes:
        factory: makes a fresh one.
        seed: the same.
        steps: the same.
    """

    def __init__(self, target: Target, *, kwargs: Mapping[str, Any] | None = None, seed: int = 0, steps: int = 8) -> None:
        self.factory = EnvFactory(target, dict(kwargs or {}))
        self.seed = seed
        self.steps = steps

    @property
    def name(self) -> str:
        """What people call the environment."""
        return self.factory.name

    # ------------------------------------------------------------------------------------------------ making

    @contextmanager
    def made(self, **kwargs: Any) -> Iterator[Env]:
        """A fresh environment that is closed afterwards.

        Args:
            **kwargs: further keywords.

        Yields:
            The environment.
        """
        env = self.factory(**kwargs)
        try:
            yield env
        finally:
            with suppress(Exception):  # the check of `close` looks at that; here it would hide what was found before
                env.close()

    def accepts(self, keyword: str, value: Any) -> bool:
        """Whether the environment can be made with a keyword.

        Args:
            keyword: its name.
            value: a value for it.

        Returns:
            False where making it raises TypeError.
        """
        try:
            with self.made(**{keyword: value}):
                return True
        except TypeError:
            return False

    def token_spaces(self, env: Env) -> tuple[TokenBox, TokenBox]:
        """Return the spaces of a token environment.

        Args:
            env: the environment.

        Returns:
            Observation space and action space.

        Raises:
            NotApplicable: if one of them is no `TokenBox`.
        """
        observations, actions = env.observation_space, env.action_space
        if not isinstance(observations, TokenBox) or not isinstance(actions, TokenBox):
            raise NotApplicable(
                f"its spaces are {type(observations).__name__} and {type(actions).__name__}, not TokenBox "
                "(agent_gym.wrappers.as_token_env(env, tokenizer) makes a token environment of it)"
            )
        return observations, actions

    # ------------------------------------------------------------------------------------------------ playing

    def play(self, env: Env, script: Script, *, seed: int | None = None, padded: bool = False) -> list[Frame]:
        """Play a script from its reset to its end.

        Args:
            env: the environment.
            script: what to play.
            seed: instead of the script's.
            padded: pad each action to the whole action space.

        Returns:
            The frames, that of the reset first.
        """
        frames = [frame_of_reset(env.reset(seed=script.seed if seed is None else seed))]
        for action in script.actions:
            if frames[-1].ended:
                break
            frames.append(frame_of_step(env.step(pad(env, action) if padded else copy.deepcopy(action))))
        return frames

    @cached_property
    def scripts(self) -> tuple[Script, ...]:
        """What is replayed: two random episodes and, where there is an expert, its episode and two that stay in play for long."""
        scripts = [self._write("random", self.seed), self._write("random", self.seed + 1)]
        with suppress(Exception):  # no expert, or one that raises: the check of the expert says so
            scripts += [self._write(name, self.seed) for name in ("expert", "repeat", "noisy")]
        return tuple(scripts)

    @cached_property
    def other_process(self) -> tuple[str, Any]:
        """What another process with another hash seed made of the scripts: ("frames", episodes) or ("error", reason)."""
        from agent_gym.testing._worker import play_in_other_process

        return play_in_other_process(self)

    def play_all(self, env: Env) -> list[list[Frame]]:
        """Play every script in order in one environment.

        Args:
            env: the environment.

        Returns:
            The episodes.
        """
        return [self.play(env, script) for script in self.scripts]

    @property
    def longest(self) -> Script:
        """The script with the most actions."""
        return max(self.scripts, key=lambda script: len(script.actions))

    def _write(self, name: str, seed: int) -> Script:
        """Play once and write down what was done. An action that raises ends the script and is left out: another check looks at that."""
        rng = np.random.default_rng([self.seed, seed])
        done: list[Any] = []
        with self.made() as env:
            env.reset(seed=seed)
            ask = self.expert_of(env) if name != "random" else None
            first: Any = ask() if ask is not None else None
            for turn in range(self.steps):
                if ask is None:
                    action = self.random_action(env, rng, turn)
                elif name == "expert":
                    action = first if turn == 0 else ask()
                else:
                    action = first if name == "repeat" else self._noisy(env, first, rng)
                try:
                    result = env.step(copy.deepcopy(action))
                except Exception:  # noqa: BLE001  # see the docstring
                    break
                done.append(action)
                if result[2] or result[3]:
                    break
        return Script(name, seed, tuple(done))

    def random_action(self, env: Env, rng: np.random.Generator, turn: int = 0) -> Any:
        """Draw an action: for token spaces up to 24 ids of the whole vocabulary, half of them from its end, where control tokens live.

        Args:
            env: the environment.
            rng: draws it.
            turn: every second action is closed by an end-of-turn id, where one is known.

        Returns:
            An unpadded int64 array, or a sample of another space.
        """
        space = env.action_space
        if not isinstance(space, TokenBox):
            space.seed(int(rng.integers(2**31)))
            return space.sample()
        ends = end_ids(env)
        length = int(rng.integers(1, min(24, max(space.max_length - 2, 1)) + 1))
        everywhere = rng.integers(0, space.vocab_size, size=length)
        at_the_end = rng.integers(max(space.vocab_size - 64, 0), space.vocab_size, size=length)
        ids = np.where(rng.random(length) < 0.5, everywhere, at_the_end).astype(np.int64)
        if ids[-1] == space.pad_id:  # a full-length action would lose it as padding
            ids[-1] = (space.pad_id + 1) % space.vocab_size
        return np.append(ids, ends[0]) if ends and turn % 2 and length < space.max_length - 1 else ids

    def _noisy(self, env: Env, action: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        ends = end_ids(env)
        body, close = (action[:-1], action[-1:]) if len(action) and int(action[-1]) in ends else (action, action[:0])
        noise = rng.integers(0, env.action_space.vocab_size, size=6)  # type: ignore[attr-defined]  # a TokenBox: there is an expert
        noise = noise[~np.isin(noise, np.array(ends, dtype=np.int64))]
        room = max(env.action_space.max_length - 1 - len(action), 0)  # type: ignore[attr-defined]  # the same
        return np.concatenate([body, noise[:room], close]).astype(np.int64)

    def expert_of(self, env: Env) -> Callable[[], NDArray[np.int64]]:
        """Return a function that gives the ids of the expert's next action.

        Args:
            env: a token environment after its reset.

        Returns:
            The function.

        Raises:
            NotApplicable: if there is none.
        """
        self.token_spaces(env)
        make, encode = attribute(env, "expert"), attribute(env, "encode_action")
        ask = make() if callable(make) else None
        if ask is None:
            raise NotApplicable("it has no expert: `expert()` returns None or is missing")
        if not callable(encode):
            raise NotApplicable("it has no encode_action(text), by which the expert's text becomes ids")
        return lambda: np.asarray(encode(ask()), dtype=np.int64)

    def until_the_end(self, env: Env, *, limit: int = 200) -> list[Frame]:
        """Play with the seed of the subject until the episode ends: the expert where there is one, random actions otherwise.

        Args:
            env: the environment.
            limit: of steps.

        Returns:
            The frames.

        Raises:
            NotApplicable: if it does not end within the limit.
        """
        frames = [frame_of_reset(env.reset(seed=self.seed))]
        rng = np.random.default_rng([self.seed, 7])
        ask: Callable[[], Any] | None = None
        with suppress(NotApplicable):
            ask = self.expert_of(env)
        for turn in range(max(limit, 2 * int(attribute(env, "max_turns", 0) or 0))):
            action = ask() if ask is not None and turn < limit // 2 else self.random_action(env, rng, turn)
            frames.append(frame_of_step(env.step(action)))
            if frames[-1].ended:
                return frames
        raise NotApplicable(f"no episode ended within {len(frames) - 1} steps of the {'expert' if ask else 'random actions'}")


# ---------------------------------------------------------------------------------------------------- small helpers


def attribute(env: Env, name: str, default: Any = None) -> Any:
    """Return an attribute of the environment or of what it wraps.

    Args:
        env: the environment.
        name: of the attribute.
        default: where there is none.

    Returns:
        The attribute.
    """
    try:
        return env.get_wrapper_attr(name)
    except AttributeError:
        return default


def bare(env: Env) -> Env:
    """Take off what `gymnasium.make` puts on.

    Args:
        env: the environment.

    Returns:
        It, without Gymnasium's checker and order wrapper on the outside.
    """
    while isinstance(env, _PLAIN_WRAPPERS):
        env = env.env
    return env


def end_ids(env: Env) -> tuple[int, ...]:
    """Return the end-of-turn ids, where the environment names them.

    Args:
        env: the environment.

    Returns:
        The ids, maybe none.
    """
    return tuple(int(one) for one in attribute(env, "end_of_turn_ids", ()) or ())


def length_of(frame: Frame) -> int:
    """Return the honest length of an observation.

    Args:
        frame: of a token environment.

    Returns:
        `info["observation_length"]`.

    Raises:
        NotApplicable: if info has no such whole number; `info_keys` reports that.
    """
    length = frame.info.get("observation_length")
    if isinstance(length, bool) or not isinstance(length, (int, np.integer)):
        raise NotApplicable("info has no whole number under 'observation_length' (see the check info_keys)")
    return int(length)


def pad(env: Env, action: Any) -> Any:
    """Return an action as a vector environment takes it.

    Args:
        env: the environment.
        action: ids, or anything for other spaces.

    Returns:
        Padded ids, or the action itself.
    """
    return env.action_space.pad(action) if isinstance(env.action_space, TokenBox) else action


def frame_of_reset(result: tuple[Any, dict[str, Any]]) -> Frame:
    """Return the frame of a reset.

    Args:
        result: what `reset` returned.

    Returns:
        The frame.
    """
    return Frame(_copied(result[0]), 0.0, False, False, _copied(result[1]))


def frame_of_step(result: Sequence[Any]) -> Frame:
    """Return the frame of a step.

    Args:
        result: what `step` returned.

    Returns:
        The frame.
    """
    observation, reward, terminated, truncated, info = result
    return Frame(_copied(observation), reward, terminated, truncated, _copied(info))


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001  # whatever cannot be copied is compared as it is
        return value


def first_difference(one: Any, other: Any, where: str = "", *, same_types: bool = True) -> str | None:
    """Say where two results differ first.

    Args:
        one: frames, dictionaries, arrays, anything.
        other: the same from another run.
        where: the name of what is compared.
        same_types: whether 1 and True, or a float and a NumPy float, differ.

    Returns:
        A phrase, or None where they are equal (NaN equals NaN).
    """
    if isinstance(one, Frame) and isinstance(other, Frame):
        for name in ("observation", "reward", "terminated", "truncated", "info"):
            found = first_difference(getattr(one, name), getattr(other, name), f"{where}{name}", same_types=same_types)
            if found:
                return found
        return None
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        left, right = np.asarray(one), np.asarray(other)
        if left.shape != right.shape or (same_types and left.dtype != right.dtype):
            return f"{where} is an array of {left.dtype}{list(left.shape)} and one of {right.dtype}{list(right.shape)}"
        unequal = np.flatnonzero(~((left == right) | ((left != left) & (right != right))))  # NaN
        if not len(unequal):
            return None
        place = int(unequal[0])
        return f"{where} differs at {len(unequal)} places, first at {place}: {left.reshape(-1)[place]} and {right.reshape(-1)[place]}"
    if same_types and type(one) is not type(other):
        return f"{where} is {one!r:.120} ({type(one).__name__}) and {other!r:.120} ({type(other).__name__})"
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if set(one) != set(other):
            return f"{where} has the keys {sorted(set(one) ^ set(other), key=str)} on one side only"
        for key in one:
            found = first_difference(one[key], other[key], f"{where}[{key!r}]", same_types=same_types)
            if found:
                return found
        return None
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return f"{where or 'the episode'} has {len(one)} and {len(other)} entries"
        for index, (left_item, right_item) in enumerate(zip(one, other, strict=True)):
            name = f"step {index}, " if isinstance(left_item, Frame) else f"{where}[{index}]"
            found = first_difference(left_item, right_item, name, same_types=same_types)
            if found:
                return found
        return None
    with suppress(Exception):  # an odd `__eq__` counts as a difference
        if bool(one == other) or (bool(one != one) and bool(other != other)):  # NaN
            return None
    return f"{where} is {one!r:.160} and {other!r:.160}"
