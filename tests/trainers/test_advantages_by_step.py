"""GiGPO, ReBN and both kinds of GAE: tables computed by hand, a slow oracle, its mutants, and hostile numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import advantage_oracle as oracle
import numpy as np
import pytest
from advantage_oracle import Episode, Turn
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.trainers import advantages as ours
from agent_gym.trajectory import Step, StopReason, Trajectory


def to_trajectory(episode: Episode) -> Trajectory:
    steps = []
    for number, turn in enumerate(episode.turns):
        end = StopReason(episode.end) if number == len(episode.turns) - 1 else StopReason.RUNNING
        steps.append(
            Step(
                [1],
                [2] * len(turn.token_values),
                reward=turn.reward,
                state_key=turn.key,
                terminated=end is StopReason.ANSWER,
                truncated=end in (StopReason.MAX_TURNS, StopReason.CONTEXT_LIMIT, StopReason.ENV_FAULT),
                stop_reason=end,
            )
        )
    return Trajectory(env_id="Toy", task_id=episode.group, group_id=episode.group, steps=steps)


def trajectories(batch: list[Episode]) -> list[Trajectory]:
    return [to_trajectory(episode) for episode in batch]


def critic(batch: list[Episode], level: str) -> dict[str, Any]:
    values: list[Any] = [[turn.value if level == "step" else turn.token_values for turn in episode.turns] for episode in batch]
    return {"values": values, "bootstrap": [episode.final if ours.bootstraps(to_trajectory(episode)) else math.nan for episode in batch]}


def numbers(nested: Any) -> list[float]:
    """All numbers of nested lists and arrays, in order."""
    if isinstance(nested, (list, tuple, np.ndarray)):
        return [number for item in nested for number in numbers(item)]
    return [float(nested)]


def shape(nested: Any) -> Any:
    return [shape(item) for item in nested] if isinstance(nested, (list, tuple, np.ndarray)) else 0


def agree(mine: Any, theirs: Any) -> bool:
    return shape(mine) == shape(theirs) and np.allclose(numbers(mine), numbers(theirs), rtol=1e-7, atol=1e-8)


def filled(found: list[Any], batch: list[Episode], level: str) -> list[Any]:
    """None, an episode that does not count, as zeros."""
    return [
        [0.0 if level == "step" else [0.0] * len(turn.token_values) for turn in e.turns] if item is None else item
        for item, e in zip(found, batch, strict=True)
    ]


def whitened(found: list[Any], batch: list[Episode], level: str, ddof: int = 1) -> list[Any]:
    flat = iter(oracle.whitened([number for item in found if item is not None for number in numbers(item)], ddof))
    result: list[Any] = []
    for item in found:
        if item is None or level == "step":
            result.append(None if item is None else [next(flat) for _ in item])
        else:
            result.append([[next(flat) for _ in row] for row in item])
    return filled(result, batch, level)


# ------------------------------------------------------------------------------------------------ by hand

TABLE: dict[tuple[str, str], list[list[float]]] = {
    ("grpo", "group"): [[0.7070068] * 2, [-0.7070068], [0.7070568], [-0.7070568]],
    ("grpo", "batch"): [[0.3973281] * 2, [-0.3973281], [0.7946562], [-0.7946562]],
    ("grpo", "none"): [[0.5] * 2, [-0.5], [1.0], [-1.0]],
    ("rloo", "group"): [[1.0] * 2, [-1.0], [2.0], [-2.0]],
    ("reinforce", "group"): [[1.0, 1.0], [0.0], [3.0], [1.0]],
    ("reinforce_pp", "group"): [[-0.1825575] * 2, [-1.0953451], [1.6430177], [-0.1825575]],
    ("rebn", "group"): [[-0.1825575] * 2, [-1.0953451], [1.6430177], [-0.1825575]],
    ("reinforce_pp_baseline", "group"): [[0.4868052] * 2, [-0.7302079], [1.0953119], [-1.3387145]],
}


@pytest.mark.parametrize(("name", "scale"), sorted(TABLE))
def test_estimators_without_a_critic_by_hand(name: str, scale: str) -> None:
    """Returns 1 and 0 in one group, 3 and 1 in the other; the first episode has two steps."""
    batch = [Episode("a", [Turn(0.0), Turn(1.0)]), Episode("a", [Turn(0.0)]), Episode("b", [Turn(3.0)]), Episode("b", [Turn(1.0)])]
    assert numbers(ours.get_advantage(name)(trajectories(batch), scale=scale)) == pytest.approx(numbers(TABLE[name, scale]), abs=1e-6)


def test_gigpo_by_hand() -> None:
    """From s one went on to u and won, the other went round to s and lost; step returns at gamma 1/2: 1/2, 1 and 0, 0."""
    batch = [Episode("a", [Turn(0.0, "s"), Turn(1.0, "u")]), Episode("a", [Turn(0.0, "s"), Turn(0.0, "s")])]
    found = ours.gigpo(trajectories(batch), scale="none", gamma=0.5)
    assert numbers(found) == pytest.approx([1 / 2 + 1 / 3, 1 / 2, -1 / 2 - 1 / 6, -1 / 2 - 1 / 6])
    found = ours.gigpo(trajectories(batch), scale="group", gamma=0.5, step_weight=2.0)
    episode, step = math.sqrt(0.5) + 1e-4, math.sqrt(1 / 12) + 1e-4  # standard deviations of 1, 0 and of 1/2, 0, 0
    assert numbers(found) == pytest.approx(
        [0.5 / episode + 2 / 3 / step, 0.5 / episode, -0.5 / episode - 1 / 3 / step, -0.5 / episode - 1 / 3 / step]
    )


def test_gigpo_prefers_the_quicker_way_where_all_succeed() -> None:
    batch = [Episode("a", [Turn(0.0, "s"), Turn(0.0, "s"), Turn(1.0, "u")]), Episode("a", [Turn(0.0, "s"), Turn(1.0, "u")])]
    slow, quick = ours.gigpo(trajectories(batch))
    assert float(quick[0]) > 0 > float(slow[0]) and slow[2] == quick[1] == 0.0
    assert not any(numbers(ours.grpo(trajectories(batch))))


@pytest.mark.parametrize(
    ("end", "expected"), [("answer", [1.25, 1.0]), ("max_turns", [1.75, 3.0]), ("running", [1.75, 3.0]), ("context_limit", [1.25, 1.0])]
)
def test_step_gae_by_hand(end: str, expected: list[float]) -> None:
    """r = 1, 2; V = 1/2, 1, and 4 of what follows; gamma = lam = 1/2."""
    batch = [Episode("a", [Turn(1.0, value=0.5), Turn(2.0, value=1.0)], end, final=4.0)]
    terms = ours.step_gae_terms(trajectories(batch), **critic(batch, "step"), gamma=0.5, lam_step=0.5)
    assert numbers(terms.advantages) == pytest.approx(expected)
    assert numbers(terms.targets) == pytest.approx([expected[0] + 0.5, expected[1] + 1.0])
    assert numbers(ours.step_gae(trajectories(batch), **critic(batch, "step"), gamma=0.5, lam_step=0.5, whitened=False)) == expected


@pytest.mark.parametrize(
    ("end", "expected"), [("answer", [0.5, 1.5, 1.0]), ("max_turns", [0.75, 2.0, 3.0]), ("context_limit", [0.5, 1.5, 1.0])]
)
def test_token_gae_by_hand(end: str, expected: list[float]) -> None:
    """Two tokens with V = 1/2, 1/4 and r = 1, then one with V = 1 and r = 2; between actions gamma = lam = 1/2, inside gamma = 1, lam = 1/2."""
    batch = [Episode("a", [Turn(1.0, token_values=[0.5, 0.25]), Turn(2.0, token_values=[1.0])], end, final=4.0)]
    terms = ours.token_gae_terms(trajectories(batch), **critic(batch, "token"), gamma=0.5, lam_step=0.5, lam_token=0.5)
    assert numbers(terms.advantages) == pytest.approx(expected)
    assert numbers(terms.targets) == pytest.approx([expected[0] + 0.5, expected[1] + 0.25, expected[2] + 1.0])


def test_the_reward_of_an_empty_action_goes_to_the_token_before_it() -> None:
    batch = [Episode("a", [Turn(1.0, token_values=[0.5]), Turn(2.0), Turn(4.0, token_values=[1.0])])]
    terms = ours.token_gae_terms(trajectories(batch), **critic(batch, "token"), gamma=0.5, lam_step=0.5)
    assert [len(item) for item in terms.advantages[0]] == [1, 0, 1]  # type: ignore[arg-type]
    assert numbers(terms.advantages) == pytest.approx([2.125, 3.0])
    batch = [Episode("a", [Turn(9.0), Turn(4.0, token_values=[1.0]), Turn(8.0)], "max_turns", final=16.0)]
    terms = ours.token_gae_terms(trajectories(batch), **critic(batch, "token"), gamma=0.5)
    assert numbers(terms.advantages) == pytest.approx([4 + 4 + 4 - 1])


def test_gae_without_a_critic_and_without_decay_is_the_return_ahead() -> None:
    batch = [Episode("a", [Turn(1.0, token_values=[0.0] * 3), Turn(-2.0, token_values=[0.0]), Turn(4.0, token_values=[0.0] * 2)])]
    given = trajectories(batch)
    assert numbers(ours.step_gae(given, **critic(batch, "step"), lam_step=1.0, whitened=False)) == [3, 2, 4]
    assert numbers(ours.token_gae(given, **critic(batch, "token"), lam_step=1.0, whitened=False)) == [3, 3, 3, 2, 4, 4]


def test_states_are_one_from_the_threshold_on() -> None:
    keys = ["you see a red key", "you see a blue key", "an empty hall", "you see a red key"]
    batch = trajectories([Episode("a", [Turn(0.0, key) for key in keys]), Episode("a", [Turn(0.0, ""), Turn(0.0, "an empty hall")])])
    exact = ours.state_groups(batch, [0, 1])
    assert exact == [[(0, 0), (0, 3)], [(0, 1)], [(0, 2), (1, 1)]]
    assert ours.state_groups(batch, [0, 1], 0.8) == [[(0, 0), (0, 1), (0, 3)], [(0, 2), (1, 1)]]  # 4 of 5 words match
    assert ours.state_groups(batch, [0, 1], 0.81) == exact


# ------------------------------------------------------------------------------------------------ against the oracle

REWARDS = st.sampled_from([0.0, 1.0, 0.1, -0.5, 1e-12, 1e-300, 1e8]) | st.floats(-100, 100)
VALUES = st.floats(-10, 10)
TURNS = st.builds(
    Turn,
    reward=REWARDS,
    key=st.sampled_from(["", "s", "u", "you see a key", "you see a red key", "you see a door"]),
    value=VALUES,
    token_values=st.lists(VALUES, max_size=3),
    answer_values=st.lists(VALUES, max_size=2),
)
EPISODES = st.builds(
    Episode,
    group=st.sampled_from("aab"),
    turns=st.lists(TURNS, max_size=4),
    end=st.sampled_from(["answer", "max_turns", "context_limit", "running", "env_fault"]),
    final=VALUES,
).map(lambda episode: episode if episode.turns or episode.end != "env_fault" else Episode(episode.group, []))
BATCHES = st.lists(EPISODES, max_size=6)
FRACTIONS = st.sampled_from([1.0, 0.95, 0.5, 0.0])
FEW = settings(max_examples=60, deadline=None)


@FEW
@given(batch=BATCHES, gamma=FRACTIONS)
def test_rebn_equals_the_oracle(batch: list[Episode], gamma: float) -> None:
    assert agree(ours.get_advantage("rebn")(trajectories(batch), gamma=gamma), oracle.rebn(batch, gamma))


@FEW
@given(
    batch=BATCHES,
    gamma=FRACTIONS,
    scale=st.sampled_from(["group", "batch", "none"]),
    weight=st.sampled_from([1.0, 0.5, 0.0]),
    threshold=st.sampled_from([1.0, 0.8, 0.5]),
)
def test_gigpo_equals_the_oracle(batch: list[Episode], gamma: float, scale: str, weight: float, threshold: float) -> None:
    counted = [episode for episode in batch if oracle.usable(episode)]
    estimate = ours.get_advantage("gigpo")
    given_settings = {"gamma": gamma, "scale": scale, "step_weight": weight, "similarity": threshold}
    if counted and not any(turn.key for episode in counted for turn in episode.turns):
        with pytest.raises(ValueError, match="state_key"):
            estimate(trajectories(batch), **given_settings)
        return
    assert agree(estimate(trajectories(batch), **given_settings), oracle.gigpo(batch, gamma, scale, weight, threshold))


@FEW
@given(batch=BATCHES, gamma=FRACTIONS, lam=FRACTIONS)
def test_step_gae_equals_the_oracle(batch: list[Episode], gamma: float, lam: float) -> None:
    given_settings = {**critic(batch, "step"), "gamma": gamma, "lam_step": lam}
    raw = oracle.step_gae(batch, gamma, lam)
    terms = ours.step_gae_terms(trajectories(batch), **given_settings)
    assert agree(terms.advantages, filled(raw, batch, "step"))
    targets = [None if row is None else [a + t.value for a, t in zip(row, e.turns, strict=True)] for row, e in zip(raw, batch, strict=True)]
    assert agree(terms.targets, filled(targets, batch, "step"))
    if not nearly_flat(raw):
        assert agree(ours.get_advantage("step_gae")(trajectories(batch), **given_settings), whitened(raw, batch, "step"))


@FEW
@given(batch=BATCHES, gamma=FRACTIONS, lam=FRACTIONS, gamma_token=FRACTIONS, lam_token=FRACTIONS)
def test_token_gae_equals_the_oracle(batch: list[Episode], gamma: float, lam: float, gamma_token: float, lam_token: float) -> None:
    given_settings = {**critic(batch, "token"), "gamma": gamma, "lam_step": lam, "gamma_token": gamma_token, "lam_token": lam_token}
    raw = oracle.token_gae(batch, gamma, lam, gamma_token, lam_token)
    assert agree(ours.token_gae_terms(trajectories(batch), **given_settings).advantages, filled(raw, batch, "token"))
    if not nearly_flat(raw):
        assert agree(ours.get_advantage("token_gae")(trajectories(batch), **given_settings), whitened(raw, batch, "token"))


def nearly_flat(raw: list[Any]) -> bool:
    """Whether rounding decides if there is any variance."""
    found = [number for item in raw if item is not None for number in numbers(item)]
    return len(found) > 1 and 0 < max(found) - min(found) <= 1e-9 * max(map(abs, found))


# ------------------------------------------------------------------------------------------------ mistakes that it notices

FIXED = [
    Episode(
        "a",
        [
            Turn(0.5, "s", 0.3, [0.2, -0.1, 0.4], [0.7, 0.1]),
            Turn(-0.2, "u", 0.1, [], [0.3]),
            Turn(1.0, "s", -0.4, [0.6, 0.5], [0.2]),
        ],
        "answer",
        2.0,
    ),
    Episode("a", [Turn(0.1, "s", 0.2, [0.3], [0.4]), Turn(0.3, "", 0.9, [0.1, 0.2], [0.5])], "max_turns", 1.5),
    Episode("a", [Turn(0.4, "u", 0.8, [0.6, 0.2], [-0.3]), Turn(0.2, "", 0.5, [0.9], [0.1])], "context_limit", -1.0),
    Episode("b", [Turn(0.9, "s", 0.2, [0.8, 0.1], []), Turn(0.2, "v", 0.1, [0.7], [])], "running", 0.6),
    Episode("b", [Turn(0.7, "s", 0.0, [0.4], [0.2])], "answer", 3.0),
]


def mutants(estimate: Callable[..., Any], *names: str) -> list[Any]:
    return [pytest.param(estimate, name, id=name.replace(" ", "-")) for name in names]


def rebn_pair(mutant: str) -> tuple[Any, Any]:
    return ours.rebn(trajectories(FIXED), gamma=0.9), oracle.rebn(FIXED, 0.9, mutant)


def gigpo_pair(mutant: str) -> tuple[Any, Any]:
    return ours.gigpo(trajectories(FIXED), gamma=0.9), oracle.gigpo(FIXED, 0.9, "group", 1.0, 1.0, mutant)


def step_gae_pair(mutant: str) -> tuple[Any, Any]:
    mine = ours.step_gae(trajectories(FIXED), **critic(FIXED, "step"), gamma=0.9, lam_step=0.8)
    return mine, whitened(oracle.step_gae(FIXED, 0.9, 0.8, mutant), FIXED, "step", 0 if mutant == "ddof 0" else 1)


def token_gae_pair(mutant: str) -> tuple[Any, Any]:
    mine = ours.token_gae(trajectories(FIXED), **critic(FIXED, "token"), gamma=0.9, lam_step=0.8, gamma_token=0.95, lam_token=0.7)
    return mine, whitened(oracle.token_gae(FIXED, 0.9, 0.8, 0.95, 0.7, mutant), FIXED, "token", 0 if mutant == "ddof 0" else 1)


BOOTSTRAPS = ("bootstrap on terminated", "none on truncated", "bootstrap on the context limit")


@pytest.mark.parametrize(
    ("pair", "mutant"),
    [
        *mutants(rebn_pair, "ddof 0", "over episodes"),
        *mutants(
            gigpo_pair,
            "ddof 0",
            "state_key shifted by one",
            "states across groups",
            "no state is a state",
            "not discounted",
            "episodes only",
        ),
        *mutants(step_gae_pair, "ddof 0", *BOOTSTRAPS),
        *mutants(token_gae_pair, "ddof 0", *BOOTSTRAPS, "GAE over environment tokens", "reward on the first token"),
    ],
)
def test_the_comparison_notices_the_mistake(pair: Callable[[str], tuple[Any, Any]], mutant: str) -> None:
    assert agree(*pair(""))
    assert not agree(*pair(mutant))


# ------------------------------------------------------------------------------------------------ hostile numbers


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 2e30])
@pytest.mark.parametrize("name", ["gigpo", "rebn", "step_gae", "token_gae"])
def test_a_reward_that_is_not_finite_leaves_its_episode_out_of_all_statistics(name: str, reward: float) -> None:
    bad = Episode("a", [Turn(0.5, "s", 0.1, [0.1]), Turn(reward, "u", 0.2, [0.3, 0.4])])
    level = ours.get_advantage(name).level
    with_it, without = [*FIXED[:2], bad, *FIXED[2:]], FIXED
    found = ours.get_advantage(name)(trajectories(with_it), **critic(with_it, level))
    assert not any(numbers(found[2]))
    assert agree([*found[:2], *found[3:]], ours.get_advantage(name)(trajectories(without), **critic(without, level)))
    assert ours.screen(trajectories(with_it))[1] == {2: "nonfinite_reward"}


@pytest.mark.parametrize("size", [1e-300, 1e-9, 1.0, 1e29])
@pytest.mark.parametrize("name", sorted(ours.ADVANTAGES))
def test_huge_and_tiny_rewards_give_numbers_that_fit_into_float32(name: str, size: float) -> None:
    batch = [Episode(e.group, [Turn(t.reward * size, t.key, t.value, t.token_values) for t in e.turns], e.end, e.final) for e in FIXED]
    for scale in ("group", "batch", "none"):
        found = ours.get_advantage(name)(trajectories(batch), **critic(batch, ours.get_advantage(name).level), scale=scale, gamma=0.9)
        assert np.isfinite(np.array(numbers(found), dtype=np.float32)).all()


def test_equal_rewards_and_one_member_groups_of_gigpo() -> None:
    equal = [Episode("a", [Turn(0.0, "s"), Turn(1.0, "u")]), Episode("a", [Turn(0.0, "s"), Turn(1.0, "u")])]
    assert not any(numbers(ours.gigpo(trajectories(equal))))
    alone = [Episode("a", [Turn(0.0, "s"), Turn(1.0, "s")])]  # the only episode of its group, twice in one state
    first, second = numbers(ours.gigpo(trajectories(alone)))
    assert first == -second < 0


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"similarity": 0.0}, "similarity"),
        ({"similarity": 1.1}, "similarity"),
        ({"similarity": math.nan}, "similarity"),
        ({"step_weight": -1.0}, "step_weight"),
        ({"step_weight": math.inf}, "step_weight"),
        ({"gamma": 1.5}, "gamma"),
        ({"scale": "token"}, "scale"),
    ],
)
def test_settings_of_gigpo_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ours.gigpo(trajectories(FIXED), **settings)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("step_gae", {"values": None}, "'step_gae' needs the values of a critic.*gigpo, grpo, rebn"),
        ("step_gae", {"values": [[0.0]]}, "1 entries for 5"),
        ("step_gae", {"bootstrap": [0.0]}, "bootstrap has 1"),
        ("step_gae", {"values": [[0.0]] * 5}, r"trajectory 0 have shape \(1,\), there are 3 steps"),
        ("step_gae", {"values": [[math.nan] * 3, [0.0] * 2, [0.0] * 2, [0.0] * 2, [0.0]]}, "trajectory 0 are not all finite"),
        ("step_gae", {"bootstrap": [math.nan] * 5}, "bootstrap of trajectory 1 is nan.*max_turns"),
        ("step_gae", {"lam_step": 1.1}, "lam_step"),
        ("step_gae", {"gamma": -0.1}, "gamma"),
        ("token_gae", {"values": [[[0.0]]] * 5}, "trajectory 0 are 1 arrays, it has 3 steps"),
        ("token_gae", {"lam_token": 2.0}, "lam_token"),
        ("token_gae", {"gamma_token": math.nan}, "gamma_token"),
    ],
)
def test_values_and_settings_of_gae_that_do_not_fit_are_refused(name: str, changes: dict[str, Any], message: str) -> None:
    estimate = ours.get_advantage(name)
    with pytest.raises(ValueError, match=message):
        estimate(trajectories(FIXED), **{**critic(FIXED, estimate.level), **changes})


def test_token_values_have_to_fit_their_action() -> None:
    given = critic(FIXED, "token")
    given["values"][0] = [[0.0], [], [0.0, 0.0]]
    with pytest.raises(ValueError, match=r"trajectory 0, step 0 have shape \(1,\), there are 3 action tokens"):
        ours.token_gae(trajectories(FIXED), **given)


def test_the_registry_knows_who_needs_a_critic_and_whom_a_flat_group_silences() -> None:
    assert {name for name, item in ours.ADVANTAGES.items() if item.needs_values} == {"step_gae", "token_gae"}
    assert {name for name, item in ours.ADVANTAGES.items() if item.silent_when_flat} == {"grpo", "rloo", "reinforce_pp_baseline"}
    assert ours.get_advantage("gigpo").group_relative
    with pytest.raises(ValueError, match="no keyword `values`"):
        ours.register_advantage("test-no-values", needs_values=True)(lambda trajectories: [])
    assert "test-no-values" not in ours.ADVANTAGES


@pytest.mark.parametrize(
    ("name", "settings", "critic", "message"),
    [
        ("grop", None, False, "choose one of gigpo, grpo"),
        ("token_gae", None, False, "'token_gae' needs the values of a critic"),
        ("gigpo", {"similarty": 0.9}, False, "similarty; the settings of 'gigpo' there are similarity, step_weight"),
        ("gigpo", {"similarity": 2.0}, False, "at most 1"),
        ("gigpo", {"step_weight": "much"}, False, "'much'"),
        ("grpo", {"gamma": 0.9, "scale": "none"}, False, "gamma is the field gamma; scale is the field scale_rewards"),
        ("grpo", [1], False, "mapping"),
        ("step_gae", {"lam_step": 1.5}, True, "lam_step"),
        ("step_gae", {"values": []}, True, "the settings of 'step_gae' there are lam_step, whitened"),
    ],
)
def test_a_choice_that_cannot_work_is_refused_beforehand(name: str, settings: Any, critic: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ours.check_advantage(name, settings, critic=critic)


def test_a_choice_that_works_is_taken() -> None:
    assert ours.check_advantage("gigpo", {"similarity": 0.9, "step_weight": 0.5}).name == "gigpo"
    assert ours.check_advantage("token_gae", {"lam_token": 0.9}, critic=True).level == "token"


def test_the_table_of_the_docs_is_the_registry() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "estimators.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")]
    table = {row[0].strip("`"): row for row in rows if len(row) == 5}
    assert set(table) == {name for name in ours.ADVANTAGES if not name.startswith("test-")}
    for name, (_, paper, _, level, needs) in table.items():
        estimator = ours.ADVANTAGES[name]
        assert level == estimator.level and ("groups" in needs) == estimator.group_relative
        assert ("critic" in needs) == estimator.needs_values
        assert set(re.findall(r"\d{4}\.\d{5}", paper)) <= set(re.findall(r"\d{4}\.\d{5}", estimator.function.__doc__ or "")), name
