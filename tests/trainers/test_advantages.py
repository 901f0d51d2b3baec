"""Advantage estimators against an oracle in plain Python that imports nothing of agent_gym."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.trainers import advantages as ours
from agent_gym.trajectory import Step, StopReason, Trajectory

Episode = tuple[str, list[float], bool]
"""Group, rewards by step, whether the world broke."""


# ------------------------------------------------------------------------------------------------ the oracle: plain Python


def usable(episode: Episode) -> bool:
    return not episode[2] and len(episode[1]) > 0 and all(math.isfinite(r) for r in episode[1]) and sum(map(abs, episode[1])) <= 1e30


def total(episode: Episode, gamma: float, start: int = 0) -> float:
    return math.fsum(gamma**k * r for k, r in enumerate(episode[1][start:]))


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: list[float], ddof: int = 1) -> float:
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - ddof))


def flat(values: list[float]) -> bool:
    return len(values) < 2 or max(values) - min(values) <= 1e-12 * max(abs(v) for v in values)


def comrades(batch: list[Episode], number: int, gamma: float) -> list[float]:
    return [total(e, gamma) for e in batch if e[0] == batch[number][0] and usable(e)]


def oracle_grpo(batch: list[Episode], gamma: float, scale: str, ddof: int = 1, epsilon: float = 1e-4) -> list[list[float]]:
    everyone = [total(e, gamma) for e in batch if usable(e)]
    result = []
    for number, episode in enumerate(batch):
        mine = comrades(batch, number, gamma)
        value = 0.0
        if usable(episode) and not flat(mine):
            value = total(episode, gamma) - mean(mine)
            if scale == "group":
                value /= deviation(mine, ddof) + epsilon
            elif scale == "batch":
                value /= deviation(everyone, ddof) + epsilon
        result.append([value] * len(episode[1]))
    return result


def oracle_rloo(batch: list[Episode], gamma: float) -> list[list[float]]:
    result = []
    for number, episode in enumerate(batch):
        others = [total(e, gamma) for k, e in enumerate(batch) if k != number and e[0] == episode[0] and usable(e)]
        mine = comrades(batch, number, gamma)
        value = total(episode, gamma) - mean(others) if usable(episode) and not flat(mine) else 0.0
        result.append([value] * len(episode[1]))
    return result


def oracle_reinforce(batch: list[Episode], gamma: float) -> list[list[float]]:
    return [[total(e, gamma, k) if usable(e) else 0.0 for k in range(len(e[1]))] for e in batch]


def whitened(values: list[list[float] | None]) -> list[list[float] | None]:
    everything = [v for item in values if item is not None for v in item]
    if flat(everything):
        return [None if item is None else [0.0] * len(item) for item in values]
    centre, spread = mean(everything), deviation(everything)
    return [None if item is None else [(v - centre) / (spread + 1e-4) for v in item] for item in values]


def oracle_reinforce_pp(batch: list[Episode], gamma: float) -> list[list[float]]:
    raw = [[total(e, gamma, k) for k in range(len(e[1]))] if usable(e) else None for e in batch]
    return [item if item is not None else [0.0] * len(e[1]) for e, item in zip(batch, whitened(raw), strict=True)]


def oracle_reinforce_pp_baseline(batch: list[Episode], gamma: float) -> list[list[float]]:
    raw: list[list[float] | None] = []
    for number, episode in enumerate(batch):
        mine = comrades(batch, number, gamma)
        if not usable(episode) or len(mine) < 2:
            raw.append(None)
        else:
            raw.append([0.0 if flat(mine) else total(episode, gamma) - mean(mine)] * len(episode[1]))
    result = []
    for number, (episode, item) in enumerate(zip(batch, whitened(raw), strict=True)):
        zero = item is None or flat(comrades(batch, number, gamma))
        result.append([0.0] * len(episode[1]) if zero or item is None else item)
    return result


ORACLES: dict[str, Callable[[list[Episode], float, str], list[list[float]]]] = {
    "grpo": lambda batch, gamma, scale: oracle_grpo(batch, gamma, scale),
    "rloo": lambda batch, gamma, scale: oracle_rloo(batch, gamma),
    "reinforce": lambda batch, gamma, scale: oracle_reinforce(batch, gamma),
    "reinforce_pp": lambda batch, gamma, scale: oracle_reinforce_pp(batch, gamma),
    "reinforce_pp_baseline": lambda batch, gamma, scale: oracle_reinforce_pp_baseline(batch, gamma),
}

# ------------------------------------------------------------------------------------------------ ours against it


def to_trajectory(episode: Episode) -> Trajectory:
    group, rewards, broke = episode
    last = len(rewards) - 1
    end = StopReason.ENV_FAULT if broke else StopReason.ANSWER
    steps = [
        Step([1], [2], reward=reward, stop_reason=end if number == last else StopReason.RUNNING, state_key=f"s{number}")
        for number, reward in enumerate(rewards)
    ]
    return Trajectory(env_id="Toy", task_id=group, group_id=group, steps=steps)


def agree(mine: Any, theirs: list[list[float]]) -> bool:
    return len(mine) == len(theirs) and all(
        len(a) == len(b) and np.allclose(np.asarray(a, dtype=float), b, rtol=1e-9, atol=1e-9) for a, b in zip(mine, theirs, strict=True)
    )


REWARDS = st.sampled_from([0.0, 1.0, 0.1, -0.5, 2.0]) | st.floats(-100, 100)
EPISODES = st.tuples(st.sampled_from("abc"), st.lists(REWARDS, min_size=0, max_size=4), st.sampled_from([False, False, False, True]))


def usable_or_not(batch: list[Episode]) -> list[Episode]:
    # an episode without steps cannot carry the stop reason of a fault
    return [(group, rewards, broke and bool(rewards)) for group, rewards, broke in batch]


@pytest.mark.parametrize("name", sorted(ORACLES))
@settings(max_examples=120, deadline=None)
@given(
    batch=st.lists(EPISODES, max_size=10).map(usable_or_not),
    gamma=st.sampled_from([None, 1.0, 0.9, 0.0]),
    scale=st.sampled_from(["group", "batch", "none"]),
)
def test_an_estimator_equals_the_oracle(name: str, batch: list[Episode], gamma: float | None, scale: str) -> None:
    mine = ours.get_advantage(name)([to_trajectory(item) for item in batch], gamma=gamma, scale=scale)
    assert agree(mine, ORACLES[name](batch, 1.0 if gamma is None else gamma, scale))


MUTANTS: dict[str, Callable[[list[Episode]], list[list[float]]]] = {
    "ddof 0": lambda batch: oracle_grpo(batch, 1.0, "group", ddof=0),
    "no epsilon": lambda batch: oracle_grpo(batch, 1.0, "group", epsilon=0.0),
    "epsilon 1e-8": lambda batch: oracle_grpo(batch, 1.0, "group", epsilon=1e-8),
    "one group": lambda batch: oracle_grpo([("a", e[1], e[2]) for e in batch], 1.0, "group"),
    "last reward only": lambda batch: oracle_grpo([(e[0], [0.0] * (len(e[1]) - 1) + e[1][-1:], e[2]) for e in batch], 1.0, "group"),
    "mean over steps": lambda batch: oracle_grpo([(e[0], [r / len(e[1]) for r in e[1]], e[2]) for e in batch], 1.0, "group"),
    "faults count as zero": lambda batch: oracle_grpo([(e[0], [0.0] * len(e[1]) if e[2] else e[1], False) for e in batch], 1.0, "group"),
    "batch scale": lambda batch: oracle_grpo(batch, 1.0, "batch"),
    "not scaled": lambda batch: oracle_grpo(batch, 1.0, "none"),
    "discounted": lambda batch: oracle_grpo(batch, 0.9, "group"),
    "rloo": lambda batch: oracle_rloo(batch, 1.0),
}


@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_the_comparison_notices_a_wrong_grpo(mutant: str) -> None:
    batch: list[Episode] = [
        ("a", [0.0, 1.0], False),
        ("a", [0.5], False),
        ("a", [1.0], True),
        ("b", [0.0, 0.2, 0.1], False),
        ("b", [0.0], False),
        ("b", [0.4], False),
    ]
    mine = ours.get_advantage("grpo")([to_trajectory(item) for item in batch])
    assert agree(mine, oracle_grpo(batch, 1.0, "group"))
    assert not agree(mine, MUTANTS[mutant](batch))


def critic(name: str, trajectories: list[Trajectory]) -> dict[str, Any]:
    if not ours.get_advantage(name).needs_values:
        return {}
    step: Any = 0.5 if ours.get_advantage(name).level == "step" else [0.5]
    return {"values": [[step] * len(item.steps) for item in trajectories], "bootstrap": [0.5] * len(trajectories)}


@pytest.mark.parametrize("name", sorted(ours.ADVANTAGES))
@pytest.mark.parametrize(
    "batch",
    [
        [],
        [("a", [], False)],
        [("a", [1.0], True), ("a", [2.0], True)],
        [("a", [math.nan], False), ("a", [1.0], False)],
        [("a", [math.inf], False), ("a", [-math.inf, 1.0], False), ("a", [1.0], False)],
        [("a", [1e308, 1e308], False), ("a", [1e200], False), ("a", [0.0], False)],
        [("a", [1e29], False), ("a", [-1e29], False), ("a", [0.0], False)],
        [("a", [5.0], False)],
        [("a", [0.1] * 3, False), ("a", [0.3], False)],
    ],
)
def test_nothing_gives_nan_and_excluded_episodes_get_zeros(name: str, batch: list[Episode]) -> None:
    trajectories = [to_trajectory(item) for item in batch]
    for scale in ("group", "batch", "none"):
        values = ours.get_advantage(name)(trajectories, scale=scale, **critic(name, trajectories))
        assert [len(item) for item in values] == [len(item.steps) for item in trajectories]
        assert all(np.isfinite(np.float32(value)).all() for item in values for value in item)
        for trajectory, item in zip(trajectories, values, strict=True):
            if ours.exclusion_reason(trajectory) is not None:
                assert not any(item)


GROUP_RELATIVE = sorted(name for name, item in ours.ADVANTAGES.items() if item.group_relative)


@pytest.mark.parametrize("name", sorted(name for name, item in ours.ADVANTAGES.items() if item.silent_when_flat))
def test_zero_variance_and_one_member_groups_get_exact_zeros(name: str) -> None:
    batch: list[Episode] = [
        ("flat", [0.1, 0.2], False),
        ("flat", [0.3], False),
        ("lone", [7.0], False),
        ("lone", [1.0], True),
        ("a", [1.0, 0.0], False),
        ("a", [0.0], False),
    ]
    values = ours.get_advantage(name)([to_trajectory(item) for item in batch])
    assert [list(item) for item in values[:4]] == [[0.0, 0.0], [0.0], [0.0], [0.0]]
    assert values[4][0] > 0 > values[5][0]


@pytest.mark.parametrize("name", GROUP_RELATIVE)
def test_a_group_relative_estimator_wants_group_ids(name: str) -> None:
    with pytest.raises(ValueError, match="no group_id"):
        ours.get_advantage(name)([to_trajectory(("", [1.0], False))])


def test_screening_names_the_reason() -> None:
    batch = [to_trajectory(item) for item in (("a", [1.0], False), ("a", [1.0], True), ("a", [math.nan], False), ("a", [], False))]
    assert ours.screen(batch) == ([0], {1: "env_fault", 2: "nonfinite_reward", 3: "no_steps"})


def test_zero_variance_groups_are_listed() -> None:
    batch = [to_trajectory(item) for item in (("a", [1.0], False), ("b", [0.1, 0.2], False), ("a", [0.0], False), ("b", [0.3], False))]
    assert ours.zero_variance_groups(batch) == [[1, 3]]


def test_the_registry_names_what_exists_and_refuses_a_second_of_the_name() -> None:
    with pytest.raises(KeyError, match="grpo, rebn, reinforce"):
        ours.get_advantage("grop")
    with pytest.raises(ValueError, match="registered already"):
        ours.register_advantage("grpo")(lambda trajectories: [])


def test_a_registered_estimator_may_give_one_number_per_token_and_is_checked() -> None:
    name = "test-token-level"

    @ours.register_advantage(name, level="token")
    def estimate(trajectories: Any, *, bad: str = "") -> ours.Advantages:
        value = math.nan if bad == "nan" else 1.0
        return [[np.full(len(step.action_ids), value) for step in item.steps][: -1 if bad == "short" else None] for item in trajectories]

    batch = [to_trajectory(("a", [1.0, 2.0], False))]
    try:
        assert ours.get_advantage(name)(batch, gamma=0.5, scale="group")[0][0].tolist() == [1.0]
        for bad in ("nan", "short"):
            with pytest.raises(ValueError, match=r"not finite|values for trajectory"):
                ours.get_advantage(name)(batch, bad=bad)
    finally:
        ours.registry._registry.pop(name)


def test_settings_out_of_range_are_refused() -> None:
    batch = [to_trajectory(("a", [1.0], False))]
    with pytest.raises(ValueError, match="gamma"):
        ours.reinforce(batch, gamma=1.5)
    with pytest.raises(ValueError, match="scale"):
        ours.grpo(batch, scale="tokens")  # type: ignore[arg-type]


def test_every_estimator_names_its_source() -> None:
    for estimator in ours.ADVANTAGES.values():
        assert re.search(r"arXiv \d{4}\.\d{5}|19\d\d", estimator.function.__doc__ or ""), estimator.name
