"""Checks of seeds and isolation: an episode is a function of seed and actions, whatever else happens in the program.

Each compares episodes of the same script. `seeded_episode` asks for the least, two fresh environments one after the other; the others put
something in between: a second instance, an episode before, a vector environment, another process, another hash seed, an event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from agent_gym.testing.report import check, fail
from agent_gym.testing.subject import (
    Env,
    Frame,
    NotApplicable,
    Script,
    Subject,
    bare,
    first_difference,
    frame_of_reset,
    frame_of_step,
    pad,
)

__all__ = [
    "astep",
    "global_generators",
    "interleaved",
    "other_hash_seed",
    "other_process",
    "reset_leak",
    "seeded_episode",
    "vector_env",
]

_OWN_GENERATOR = "draw everything from self.np_random, which reset(seed=...) seeds"


# ---------------------------------------------------------------------------------------------------- generators


def _global_states() -> dict[str, Any]:
    """The states of the global generators that this process has."""
    states: dict[str, Any] = {"random": random.getstate(), "numpy.random": _plain(np.random.get_state())}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


def _plain(state: Any) -> tuple[Any, ...]:
    return tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in state)


@contextmanager
def _global_generators_restored() -> Iterator[Callable[[int], None]]:
    """Put the global generators back at the end; yields what seeds them."""
    torch = sys.modules.get("torch")
    kept = random.getstate(), np.random.get_state()
    kept_torch = torch.get_rng_state() if torch is not None and hasattr(torch, "get_rng_state") else None

    def seed_all(seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        if torch is not None and kept_torch is not None:
            torch.manual_seed(seed)

    try:
        yield seed_all
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        if torch is not None and kept_torch is not None:
            torch.set_rng_state(kept_torch)


@check("makes")
def global_generators(subject: Subject) -> None:
    """Making, resetting and playing neither touches nor reads the global generators of `random`, NumPy and (where loaded) torch.

    Protects everybody's seeds. GEM seeds `random` in reset: the targets of one seed are 2, 2, 8, 7 alone and 2, 8, 2, 7 beside a second
    environment, and the trainer's own draws repeat with every episode.

    Args:
        subject: what is checked.
    """
    _ = subject.scripts  # written before, so that nothing is imported for the first time below
    with _global_generators_restored() as seed_all:

        def run(seed: int) -> list[list[Frame]]:
            seed_all(seed)
            before = _global_states()
            with subject.made() as env:
                episodes = subject.play_all(env)
                env.reset()
            after = _global_states()
            touched = [name for name in before if before[name] != after.get(name)]
            if touched:
                fail(f"an episode moved or seeded the global generator of {', '.join(touched)}", "all of them as they were", _OWN_GENERATOR)
            return episodes

        one, other, again = run(1), run(2), run(1)
    found = first_difference(one, other)
    if found and not first_difference(one, again):
        fail(f"with other global seeds the same episode differs: {found}", "no influence of the global generators", _OWN_GENERATOR)


@check("global_generators")
def seeded_episode(subject: Subject) -> None:
    """The same seed and actions give the same observations, rewards and infos in two fresh environments, and the same next task.

    Protects every comparison of two runs, and groups of episodes of one task: a group whose members differ in the task measures nothing.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where the spec says nondeterministic.
    """
    runs: list[list[list[Frame]]] = []
    for _ in range(2):
        with subject.made() as env:
            spec = env.spec
            if spec is not None and spec.nondeterministic:
                raise NotApplicable("its spec says nondeterministic=True")
            episodes = subject.play_all(env)
            episodes.append([frame_of_reset(env.reset())])  # goes on drawing from the running generator
            runs.append(episodes)
    _equal(runs[0], runs[1], subject, "a second fresh environment", _OWN_GENERATOR)


def _equal(wanted: list[list[Frame]], got: list[list[Frame]], subject: Subject, other: str, mend: str) -> None:
    for index, (one, two) in enumerate(zip(wanted, got, strict=True)):
        if found := first_difference(one, two):
            name = f"the {subject.scripts[index].name} episode" if index < len(subject.scripts) else "reset() without a seed"
            fail(f"{name} differs in {other}: {found}", "the same seed and actions give the same bytes", mend)


def _solo(subject: Subject, script: Script) -> list[Frame]:
    with subject.made() as env:
        return subject.play(env, script)


@check("seeded_episode")
def interleaved(subject: Subject) -> None:
    """An episode is the same while a second environment lives, is reset and is stepped in between, and whichever was made first.

    Protects parallel rollouts in one process from state kept on a class or a module (two environments share one secret, one history, one
    browser).

    Args:
        subject: what is checked.
    """
    first, second = subject.longest, subject.scripts[1]
    for mine, theirs in ((first, second), (second, first)):
        wanted = _solo(subject, mine)
        for made_first in (True, False):
            with subject.made() as one, subject.made() as two:
                env, other = (one, two) if made_first else (two, one)
                got = _play_beside(env, other, mine, theirs)
            if found := first_difference(wanted, got):
                fail(
                    f"with a second environment alive, the {mine.name} episode differs: {found}",
                    "the same episode as alone",
                    "keep all state on the instance: no class attributes, module globals, files of a fixed name",
                )


def _play_beside(env: Env, other: Env, mine: Script, theirs: Script) -> list[Frame]:
    other.reset(seed=theirs.seed)
    frames = [frame_of_reset(env.reset(seed=mine.seed))]
    for turn, action in enumerate(mine.actions):
        if turn % 3 == 0:
            other.reset(seed=theirs.seed + 1 + turn)
        frames.append(frame_of_step(env.step(action)))
        if theirs.actions and frame_of_step(other.step(theirs.actions[turn % len(theirs.actions)])).ended:
            other.reset()
    return frames


@check("seeded_episode")
def reset_leak(subject: Subject) -> None:
    """The episode after played ones, finished and unfinished, equals that of a fresh environment.

    Protects each episode from the one before. TextArena's observation wrapper never clears its history at reset: by episode 60 an
    observation of 1,118 characters had grown to 67,416 (OpenEnv 166).

    Args:
        subject: what is checked.
    """
    script = subject.longest
    wanted = _solo(subject, script)
    with subject.made() as env:
        for seed in (subject.seed + 11, subject.seed + 12):
            for played in subject.scripts:
                subject.play(env, played, seed=seed)
        with suppress(NotApplicable):  # an environment without an end: unfinished episodes are what there is
            subject.until_the_end(env)
        got = subject.play(env, script)
    if found := first_difference(wanted, got):
        fail(
            f"after other episodes the {script.name} episode differs: {found}",
            "the episode of a fresh environment",
            "set every attribute of the episode in reset (`_begin`), the last answer, caches and counters too",
        )


# ---------------------------------------------------------------------------------------------------- vector environments


@check("info_keys", "interleaved", "reset_leak")
def vector_env(subject: Subject) -> None:
    """Two instances in one `SyncVectorEnv`, at different turns and in both orders, give what single environments give, infos included.

    Protects batched training: what cannot be stacked, or is stacked wrongly, is lost without a word. One instance is reset while the other
    is in the middle of its episode, and each goes on into its next episode.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where no step can be played.
    """
    first, second = subject.longest, subject.scripts[1]
    if not first.actions or not second.actions:
        raise NotApplicable("no step could be played (see the check any_action)")
    length = max(len(first.actions), len(second.actions)) + 3
    for pair in ((first, second), (second, first)):
        reset_at = 2
        wanted = [_single(subject, script, length, reset_at if index == 1 else None) for index, script in enumerate(pair)]
        _compare_vector(subject, pair, length, reset_at, wanted)


def _action_at(env: Env, script: Script, turn: int) -> Any:
    return pad(env, script.actions[turn % len(script.actions)])


def _single(subject: Subject, script: Script, length: int, reset_at: int | None) -> list[Frame]:
    """What a vector environment with Gymnasium's default autoreset (a step behind the end is a reset) does, done by hand."""
    with subject.made() as env:
        frames = [frame_of_reset(env.reset(seed=script.seed))]
        for turn in range(length):
            if turn == reset_at:
                frames.append(frame_of_reset(env.reset(seed=script.seed + 1)))
            if frames[-1].ended:
                frames.append(frame_of_reset(env.reset()))
            else:
                frames.append(frame_of_step(env.step(_action_at(env, script, turn))))
    return frames


def _compare_vector(subject: Subject, pair: tuple[Script, Script], length: int, reset_at: int, wanted: list[list[Frame]]) -> None:
    vector: Any = SyncVectorEnv([subject.factory, subject.factory])
    try:
        places = [0, 0]

        def compare(result: tuple[Any, ...], indices: tuple[int, ...], when: str) -> None:
            for index in indices:
                expected = wanted[index][places[index]]
                places[index] += 1
                got = _unstacked(vector, result, index)
                if found := first_difference(expected, got, same_types=False):
                    fail(
                        f"{when}, place {index} of SyncVectorEnv differs from the single environment: {found}",
                        "the same observation, reward, ends and info",
                        "give info values one type and one shape, and no key that is another's with '_' in front (Gymnasium's masks)",
                    )

        observations, infos = vector.reset(seed=[script.seed for script in pair])
        compare((observations, np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), infos), (0, 1), "after reset")
        for turn in range(length):
            if turn == reset_at:
                mask = np.array([False, True])
                seeds = [None, pair[1].seed + 1]
                observations, infos = vector.reset(seed=seeds, options={"reset_mask": mask})
                compare(
                    (observations, np.zeros(2), np.zeros(2, bool), np.zeros(2, bool), infos), (1,), f"after a reset before step {turn + 1}"
                )
            single = vector.envs[0]
            batch: Any = create_empty_array(vector.single_action_space, n=2, fn=np.zeros)
            actions = concatenate(vector.single_action_space, [_action_at(single, script, turn) for script in pair], batch)
            compare(vector.step(actions), (0, 1), f"at step {turn + 1}")
    finally:
        vector.close()


def _unstacked(vector: Any, result: tuple[Any, ...], index: int) -> Frame:
    observations, rewards, terminations, truncations, infos = result
    observation = next(item for place, item in enumerate(iterate(vector.observation_space, observations)) if place == index)
    return Frame(observation, rewards[index], terminations[index], truncations[index], _unstack_info(infos, index))


def _unstack_info(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Take one environment's info out of the stacked ones: the keys whose mask `_key` says that it gave them."""
    info: dict[str, Any] = {}
    for key, value in infos.items():
        mask = infos.get(f"_{key}")
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or not mask[index]:
            continue
        info[key] = _unstack_info(value, index) if isinstance(value, Mapping) else value[index]
    return info


# ---------------------------------------------------------------------------------------------------- processes


@check("makes")
def other_process(subject: Subject) -> None:
    """Another process makes the environment from the same id, path, class or factory, plays it, and sends back what came.

    Protects `AsyncVectorEnv` with spawn, and workers on other machines. An id that only this program has registered, a factory that holds an
    open socket, and an info with a generator in it work until the first worker starts.

    Args:
        subject: what is checked.
    """
    kind, found = subject.other_process
    if kind == "error":
        fail(
            str(found),
            "the environment, made and played in a fresh process",
            "name it as 'module:Id-v0' or 'module:Class', or give a factory that can be pickled; keep infos to plain values",
        )


@check("other_process", "seeded_episode")
def other_hash_seed(subject: Subject) -> None:
    """In another process with another PYTHONHASHSEED the same seed and actions give the same bytes.

    Protects reproducible runs from `hash("text")` and from the order of sets of strings, which differ from process to process.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where another process cannot play it.
    """
    kind, episodes = subject.other_process
    if kind == "error":
        raise NotApplicable("another process cannot play it")
    with subject.made() as env:
        wanted = subject.play_all(env)
    mend = "sort sets before you draw from them or print them, and use hashlib or zlib.crc32 instead of hash()"
    _equal(wanted, episodes, subject, "another process with another hash seed", mend)


# ---------------------------------------------------------------------------------------------------- event loops


@check("seeded_episode")
def astep(subject: Subject) -> None:
    """Where there is an `astep`, awaiting it gives the trajectories of `step`.

    Protects rollouts that step many environments in one event loop: the second way of stepping must not become a second environment.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where there is no `astep`.
    """
    script = subject.longest
    with subject.made() as made:
        env: Any = bare(made)
        if not inspect.iscoroutinefunction(getattr(env, "astep", None)):
            raise NotApplicable("it has no coroutine `astep`")

        async def play() -> list[Frame]:
            frames = [frame_of_reset(env.reset(seed=script.seed))]
            for action in script.actions:
                frames.append(frame_of_step(await env.astep(action)))
            return frames

        with ThreadPoolExecutor(max_workers=1) as thread:  # a loop may be running here already (Jupyter)
            got = thread.submit(lambda: asyncio.run(play())).result()
    if found := first_difference(_solo(subject, script), got):
        fail(f"the {script.name} episode differs with astep: {found}", "the trajectory of step", "let both end in the same code")
