"""The WebShop environment over time: moments that can be returned to, and a thousand episodes that leave nothing behind."""

from __future__ import annotations

import gc
import pickle
import resource
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent_gym.core import EnvState
from agent_gym.envs.webshop.env import WebShopEnv
from agent_gym.envs.webshop.experts import first_result, random_shopper

Frame = tuple[Any, float, bool, bool, dict[str, Any]]
FORMS: list[dict[str, Any]] = [
    {},
    {"context": "rebuild", "show_admissible": True, "show_score": True},
    {"context": "window:2", "observation_mode": "text_rich", "expert_actions": True},
    {"action_format": "tool", "invalid_penalty": 0.5, "level": "small"},
]


def names(kwargs: dict[str, Any]) -> str:
    return "-".join(map(str, kwargs.values())) or "defaults"


def script(env: WebShopEnv, rng: np.random.Generator) -> list[list[int]]:
    """The expert, with random moves and nonsense between."""
    expert, draw = env.expert(), random_shopper(7)
    assert expert is not None
    actions: list[list[int]] = []
    while True:
        chance = rng.random()
        text = expert() if chance < 0.5 else draw(env, env.turn) if chance < 0.8 else env.write_command("click[nothing of the kind]")
        if "buy now" in text and env.turn < 8:
            text = env.write_command("click[description]")
        actions.append(env.encode_action(text))
        *_, terminated, truncated, _ = env.step(actions[-1])
        if terminated or truncated:
            return actions


def same(one: Frame, other: Frame) -> bool:
    return bool(one[0].tobytes() == other[0].tobytes() and one[1:] == other[1:])


@pytest.mark.parametrize("kwargs", FORMS, ids=names)
def test_from_every_step_the_same_actions_give_the_same_bytes(kwargs: dict[str, Any]) -> None:
    env, other = WebShopEnv(**kwargs), WebShopEnv(**kwargs)
    _, info = env.reset(seed=11)
    options = {"index": info["goal_index"], "price_upper": 30, "prices": {env.session.goal.product.asin: 29.5}}
    env.reset(seed=11, options=options)
    actions = script(env, np.random.default_rng(1))
    assert len(actions) > 6
    env.reset(seed=11, options=options)
    moments: list[EnvState] = [env.get_state()]
    prompts, frames = [env.prompt_ids], []
    for action in actions:
        frames.append(env.step(action))
        moments.append(env.get_state())
        prompts.append(env.prompt_ids)
    next_task = env.reset()[1]["task_id"]
    kept = pickle.dumps(moments)
    for player, moment_list in ((env, moments), (other, pickle.loads(kept))):
        for at in reversed(range(len(actions))):
            shown = player.set_state(moment_list[at])
            assert (player.observation_space.unpad(shown, len(prompts[at])) == prompts[at]).all()
            for action, frame in zip(actions[at:], frames[at:], strict=True):
                assert same(player.step(action), frame)
            assert player.reset()[1]["task_id"] == next_task, "the generator that draws goals is a part of the moment"
    assert pickle.dumps(moments) == kept, "playing on leaves a moment alone"


@pytest.mark.parametrize("other", [{"level": "small"}, {"price_seed": 1}, {"goal_seed": None}, {"show_score": True}], ids=names)
def test_a_moment_of_another_shop_is_refused_and_changes_nothing(other: dict[str, Any]) -> None:
    env, elsewhere = WebShopEnv(), WebShopEnv(**other)
    for player in (env, elsewhere):
        player.reset(options={"index": 5})
    moment, kept = env.get_state(), elsewhere.get_state()
    with pytest.raises(ValueError, match="make both environments with the same keywords"):
        elsewhere.set_state(moment)
    assert elsewhere.get_state() == kept


class ForgetsThePrices(WebShopEnv):
    """Returns to the page, and the prices are the shop's again."""

    def _set_world(self, world: Any) -> None:
        super()._set_world(None if world is None else (*world[:3], {}, *world[4:]))


class ForgetsTheOptions(WebShopEnv):
    """Returns to the page, and nothing is chosen on it."""

    def _set_world(self, world: Any) -> None:
        super()._set_world(None if world is None else (*world[:4], world[4]._replace(options=()), *world[5:]))


def returns(kind: type[WebShopEnv]) -> bool:
    """Whether buying from a moment gives the same as it did."""
    env = kind()
    env.reset(seed=0)
    goal = env.session.goal
    assert goal.options and goal.price_upper < 1_000
    env.reset(options={"index": goal.index, "prices": {goal.product.asin: 5_000.0}})
    expert = env.expert()
    assert expert is not None
    while "buy now" not in expert():
        env.step(env.encode_action(expert()))
    moment, buy = env.get_state(), env.encode_action(expert())
    frame = env.step(buy)
    env.set_state(moment)
    return same(env.step(buy), frame)


@pytest.mark.parametrize("mutant", [ForgetsThePrices, ForgetsTheOptions])
def test_a_way_back_that_forgets_something_is_found(mutant: type[WebShopEnv]) -> None:
    assert returns(WebShopEnv) and not returns(mutant)


def test_a_thousand_episodes_leave_threads_files_processes_and_memory_flat() -> None:
    env = WebShopEnv(level="small", context="window:2", action_format="line")
    scripts = (first_result, random_shopper(3))

    def play(first: int, episodes: int) -> None:
        for index in range(first, first + episodes):
            env.reset(seed=index % 200)
            over = False
            while not over:
                *_, terminated, truncated, _ = env.step(env.encode_action(scripts[index % 2](env, env.turn)))
                over = terminated or truncated

    def files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def children() -> str:
        return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()

    play(0, 400)
    gc.collect()
    before = (threading.active_count(), files(), children())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    play(400, 1_000)
    gc.collect()
    assert (threading.active_count(), files(), children()) == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 8 * 1024, "8 MiB over a thousand episodes"
