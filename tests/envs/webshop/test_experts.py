"""The expert, the hasty expert and the baselines: functions of the present state of a visit."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.envs.webshop import Catalogue, Rules, Session, Shop
from agent_gym.envs.webshop.experts import (
    Script,
    first_result,
    first_result_action,
    hasty_expert,
    next_action,
    random_action,
    random_shopper,
    search_words,
)
from agent_gym.envs.webshop.generated import generate
from agent_gym.envs.webshop.generated.product import product_record

KINDS = [("full", "synthetic"), ("full", "human"), ("small", "synthetic")]
LIMIT = 15  # turns that the environment allows


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Shop]:
    folder = tmp_path_factory.mktemp("shops")
    catalogues = {}
    for level in ("full", "small"):
        generate(level=level).write(folder / level)
        catalogues[level] = Catalogue.open(folder / level, cache_dir=folder / "cache")
    return {(level, kind): Shop(catalogues[level], goals=kind) for level, kind in KINDS}


def finish(session: Session) -> tuple[float, list[str]]:
    """Let the expert play to the end. Returns the reward and its actions, all of them valid."""
    actions = []
    for _ in range(LIMIT):
        action = next_action(session)
        assert action is not None
        actions.append(action)
        turn = session.act(action)
        assert turn.valid, (action, session.visit)
        if turn.done:
            return turn.reward, actions
    raise AssertionError(f"not finished after {actions}")


def play(session: Session, goal: int, choose: Callable[[Session, int], str]) -> float:
    """The reward of an episode of at most so many turns as the environment allows."""
    session.start(goal)
    for turn in range(LIMIT):
        result = session.act(choose(session, turn))
        if result.done:
            return result.reward
    return 0.0


def mean(shop: Shop, choose: Callable[[Session, int], str], every: int = 1) -> float:
    session = Session(shop)
    return float(np.mean([play(session, goal, choose) for goal in range(0, len(shop.goals), every)]))


# ------------------------------------------------------------------------------------------------ the expert


@pytest.mark.parametrize("key", KINDS)
def test_the_expert_gets_the_full_reward_for_every_goal(key: tuple[str, str], shops: dict[tuple[str, str], Shop]) -> None:
    session = Session(shops[key])
    for goal in shops[key].goals:
        session.start(goal)
        reward, actions = finish(session)
        assert reward == 1.0 and len(actions) <= 3 + len(goal.options), (goal, actions)
        assert next_action(session) is None


@pytest.mark.parametrize("key", KINDS)
@pytest.mark.parametrize(
    "rules",
    [
        Rules(strict_search=True),
        Rules(page_size=1, top_k=4),
        Rules(show_instruction=False, show_attributes=True, observation_mode="text_rich"),
        Rules.original(),
    ],
    ids=["strict", "one a page", "other views", "original"],
)
def test_it_does_so_under_other_rules(rules: Rules, key: tuple[str, str], shops: dict[tuple[str, str], Shop]) -> None:
    session = Session(shops[key], rules)
    for goal in range(0, len(shops[key].goals), 23):
        session.start(goal)
        assert finish(session)[0] == 1.0


def wander(session: Session, choices: Iterator[float]) -> None:
    """Take as many random actions as there are choices, buying excepted: searches of all kinds, any control, options of any product."""
    for choice in choices:
        names = [name for name in session.clickables if name not in ("buy now", "search")]
        words = session.goal.instruction.split()
        searches = [f"search[{words[int(choice * 977) % len(words)]}]", "search[qwxz]", f"search[{session.goal.product.title[:40]} ]"]
        actions = [f"click[{name}]" for name in names] + searches
        pairs = [f"click[{name}: {value}]" for name, values in session.goal.product.options for value in values]
        actions += pairs if session.visit.page == "item_page" else []
        session.act(actions[int(choice * len(actions))])


@settings(max_examples=200, deadline=None)
@given(
    key=st.sampled_from(KINDS),
    goal=st.integers(0, 10**6),
    choices=st.lists(st.floats(0, 1, exclude_max=True), max_size=12),
    strict=st.booleans(),
    page_size=st.sampled_from([2, 10]),
)
def test_it_is_right_in_every_state_that_a_visit_can_reach(
    key: tuple[str, str], goal: int, choices: list[float], strict: bool, page_size: int, shops: dict[tuple[str, str], Shop]
) -> None:
    session = Session(shops[key], Rules(strict_search=strict, page_size=page_size))
    session.start(goal % len(shops[key].goals))
    wander(session, iter(choices))
    reward, actions = finish(session)
    assert reward == 1.0 and len(actions) <= 11, actions


def test_a_plan_made_at_the_start_is_not_right_in_every_state(shops: dict[tuple[str, str], Shop]) -> None:
    """The control of the test above: the walks do lead astray."""
    shop = shops["full", "synthetic"]
    session = Session(shop, Rules(strict_search=True))
    draw = np.random.default_rng(0)
    lost = 0
    for goal in range(40):
        session.start(goal)
        plan = finish(session)[1]
        session.start(goal)
        wander(session, iter(draw.random(6).tolist()))
        lost += [session.act(action) for action in plan][-1].reward < 1.0
    assert lost > 10


def test_it_asks_nothing_but_the_state(shops: dict[tuple[str, str], Shop]) -> None:
    shop = shops["full", "synthetic"]
    one, other = Session(shop), Session(shop)
    one.start(5)
    while not one.visit.done:
        other.set_state(one.get_state())
        action = next_action(one)
        assert action is not None and next_action(other) == action == next_action(one)
        one.act(action)


def test_it_searches_with_the_words_of_the_instruction_where_they_do(shops: dict[tuple[str, str], Shop]) -> None:
    shop = shops["full", "synthetic"]
    session = Session(shop)
    own = 0
    for goal in range(300):
        session.start(goal)
        words = search_words(session)
        assert words is not None
        own += words in session.goal.instruction
    assert own > 200
    session = Session(shops["small", "synthetic"])
    for goal in range(0, 900, 50):
        session.start(goal)
        assert search_words(session) == session.goal.product.title in session.goal.instruction


def test_it_turns_pages_when_that_is_the_shorter_way(shops: dict[tuple[str, str], Shop]) -> None:
    shop = shops["full", "synthetic"]
    session = Session(shop, Rules(strict_search=True, page_size=1))
    for goal in range(100):
        session.start(goal)
        kind = session.goal.product.query
        found = shop.find(tuple(kind.split(" ")), session.rules)
        place = found.index(session.goal.product.number) if session.goal.product.number in found else 99
        if place in (1, 2):
            break
    session.act(f"search[{kind}]")
    asin = session.goal.product.asin
    assert finish(session)[1][: place + 1] == ["click[next >]"] * place + [f"click[{asin}]"]
    session.start(goal)
    session.act(f"search[{kind}]")
    for _ in range(place + 1):
        session.act("click[next >]")
    assert next_action(session) == "click[< prev]"
    other = shop.catalogue[found[place + 1]].asin  # a product that it does not want
    session.act(f"click[{other}]")
    assert finish(session)[1][:3] == ["click[< prev]", "click[< prev]", f"click[{asin}]"]


def shop_of(
    folder: Path, *products: dict[str, Any], notes: dict[str, Any], human: dict[str, Any] | None = None, goals: str = "auto"
) -> Shop:
    return Shop(Catalogue.from_records(products, notes, human, folder=folder, cache_dir=folder / "cache"), goals=goals)


def options(**named: list[str]) -> dict[str, Any]:
    return {name: [{"value": value} for value in values] for name, values in named.items()}


COMMON: dict[str, Any] = {"query": "lamps", "category": "garden", "path": "Home › Lamps", "pricing": "$12"}
NOTE = {"attributes": ["bright"], "instruction": "Find me bright lamps", "instruction_attributes": ["bright"]}


def human(*wanted: str) -> dict[str, Any]:
    return {
        "A1": [{"asin": "A1", "instruction": "a bright lamp", "instruction_attributes": ["bright"], "instruction_options": list(wanted)}]
    }


def test_two_wishes_are_never_met_by_one_option_so_that_neither_undoes_the_other(tmp_path: Path) -> None:
    """A goal for "maple" and "walnut" where walnut is a colour too: taken as two colours it would be chosen to and fro for ever."""
    lamp = product_record("A1", "Bright Lamp", options=options(Color=["Walnut", "Maple"], Style=["Walnut"]), **COMMON)
    session = Session(shop_of(tmp_path, lamp, notes={"A1": NOTE}, human=human("maple", "walnut"), goals="human"))
    session.start(0)
    assert finish(session) == (1.0, ["search[a bright lamp]", "click[A1]", "click[maple]", "click[walnut]", "click[buy now]"])


def test_a_value_of_two_options_is_chosen_by_name_where_a_click_would_choose_the_other(tmp_path: Path) -> None:
    lamp = product_record("A1", "Bright Lamp", options=options(Color=["Black", "White"], Style=["Black", "Striped"]), **COMMON)
    shop = shop_of(tmp_path, lamp, notes={"A1": NOTE})
    session = Session(shop)
    clicks = {}
    for goal in range(len(shop.goals)):
        session.start(goal)
        reward, actions = finish(session)
        assert reward == 1.0
        clicks[tuple(value for _, value in session.goal.options)] = actions[2:-1]
    assert clicks["black", "striped"] == ["click[color: black]", "click[striped]"]
    assert clicks["white", "black"] == ["click[white]", "click[black]"]


def test_a_value_that_is_named_like_a_button_is_chosen_by_name(tmp_path: Path) -> None:
    lamp = product_record("A1", "Bright Lamp", options=options(Style=["Features", "Plain"]), **COMMON)
    session = Session(shop_of(tmp_path, lamp, notes={"A1": NOTE}))
    for goal in range(2):
        session.start(goal)
        assert finish(session)[0] == 1.0


def test_what_nobody_can_click_it_leaves_out(tmp_path: Path) -> None:
    """A value of blanks alone has no name in the shop."""
    lamp = product_record("A1", "Bright Lamp", options=options(Style=[" ", "Plain"], Size=["Large"]), **COMMON)
    session = Session(shop_of(tmp_path, lamp, notes={"A1": NOTE}))
    found = {}
    for goal in range(2):
        session.start(goal)
        reward, actions = finish(session)
        found[session.goal.options[1][1]] = reward, actions[2:-1]
    assert found == {"": (0.75, ["click[large]"]), "plain": (1.0, ["click[large]", "click[plain]"])}


@pytest.mark.parametrize(("wanted", "click"), [("Black/White", "black | white"), ("extra large", "large"), ("blue", "sky blue")])
def test_a_wish_in_other_words_is_met_by_what_the_reward_takes_for_it(wanted: str, click: str, tmp_path: Path) -> None:
    lamp = product_record("A1", "Bright Lamp", options=options(Size=["Small", "Large"], Color=["Black/White", "Sky Blue"]), **COMMON)
    session = Session(shop_of(tmp_path, lamp, notes={"A1": NOTE}, human=human(wanted), goals="human"))
    session.start(0)
    reward, actions = finish(session)
    assert reward == 1.0 and actions[2:-1] == [f"click[{click}]"]


def test_a_wish_that_cannot_be_met_does_not_keep_it_from_buying(tmp_path: Path) -> None:
    lamp = product_record("A1", "Bright Lamp", options=options(Size=["Small", "Large"]), **COMMON)
    session = Session(shop_of(tmp_path, lamp, notes={"A1": NOTE}, human=human("polka dots", "large"), goals="human"))
    session.start(0)
    reward, actions = finish(session)
    assert reward == 0.75 and actions[2:-1] == ["click[large]"]


def test_brackets_in_a_title_do_not_break_its_search(tmp_path: Path) -> None:
    lamp = product_record("A1", "Zed [2 Pack] Moon] Lantern [", **COMMON)
    others = [product_record(f"B{number}", "Bright Lamps Bright", **COMMON) for number in range(12)]
    session = Session(shop_of(tmp_path, *others, lamp, notes={"A1": NOTE}))
    session.start(0)
    assert finish(session) == (1.0, ["search[Zed 2 Pack Moon Lantern]", "click[A1]", "click[buy now]"])


def test_where_nothing_finds_the_product_it_knows_no_action(tmp_path: Path) -> None:
    session = Session(shop_of(tmp_path, product_record("A1", "", **COMMON), notes={"A1": NOTE}))
    session.start(0)
    assert search_words(session) is None and next_action(session) is None


@pytest.mark.parametrize("kind", ["synthetic", "human"])
def test_on_the_official_products_nobody_who_buys_the_goals_product_gets_more(kind: str, data_dir: Path, tmp_path: Path) -> None:
    shop = Shop(Catalogue.open(data_dir / "webshop", cache_dir=tmp_path), goals=kind)
    session = Session(shop)
    rewards = []
    for goal in range(0, len(shop.goals), 1 if kind == "human" else 7):
        session.start(goal)
        wanted = session.goal
        reward, _ = finish(session)
        rewards.append(reward)
        if kind == "synthetic":
            assert reward >= shop.judge(wanted, wanted.product, dict(wanted.options), shop.price(wanted.product)).reward
    assert np.mean(rewards) > 0.98


# ------------------------------------------------------------------------------------------------ baselines


def test_the_first_result_is_bought_whatever_it_is(shops: dict[tuple[str, str], Shop]) -> None:
    shop = shops["full", "synthetic"]
    session = Session(shop)
    session.start(3)
    found = shop.find(tuple(session.goal.instruction.split()), session.rules)
    actions = []
    while not session.visit.done:
        actions.append(first_result_action(session))
        session.act(actions[-1])
    assert actions == [f"search[{session.goal.instruction}]", f"click[{shop.catalogue[found[0]].asin}]", "click[buy now]"]


@settings(max_examples=60, deadline=None)
@given(goal=st.integers(0, 3000), choices=st.lists(st.floats(0, 1, exclude_max=True), max_size=8), strict=st.booleans())
def test_baselines_have_a_valid_action_in_every_state(
    goal: int, choices: list[float], strict: bool, shops: dict[tuple[str, str], Shop]
) -> None:
    session = Session(shops["full", "synthetic"], Rules(strict_search=strict))
    session.start(goal)
    wander(session, iter(choices))
    state = session.get_state()
    assert session.act(first_result_action(session)).valid
    session.set_state(state)
    assert session.act(random_action(session, np.random.default_rng(goal))).valid


@pytest.mark.parametrize(("key", "expected"), [(KINDS[0], (0.58, 0.68)), (KINDS[1], (0.60, 0.75)), (KINDS[2], (0.15, 0.28))])
def test_the_expert_is_well_above_the_first_result_and_that_above_chance(
    key: tuple[str, str], expected: tuple[float, float], shops: dict[tuple[str, str], Shop]
) -> None:
    first = mean(shops[key], lambda session, _: first_result_action(session), every=1 + len(shops[key].goals) // 1000)
    chance = mean(shops[key], lambda session, turn: random_action(session, np.random.default_rng([session.goal.index, turn])), every=3)
    assert expected[0] < first < expected[1]
    assert chance < first - 0.1 and first < 1.0 - 0.3


# ------------------------------------------------------------------------------------------------ scripts


def through(script: Script, shop: Shop, goal: int) -> tuple[float, list[str]]:
    """Play a script as a policy does, in an environment that writes commands between tags."""
    session = Session(shop)
    session.start(goal)
    env = SimpleNamespace(session=session, write_command=lambda command: f"<action>{command}</action>")
    replies: list[str] = []
    while len(replies) < LIMIT:
        replies.append(script(env, len(replies)))
        match = re.fullmatch("<action>(.*)</action>", replies[-1])
        assert match is not None
        turn = session.act(match.group(1))
        if turn.done:
            return turn.reward, replies
    return 0.0, replies


def test_scripts_write_commands_as_the_environment_wants_them_and_are_the_same_each_time(shops: dict[tuple[str, str], Shop]) -> None:
    shop = shops["small", "synthetic"]
    script: Script
    for script in (first_result, random_shopper(1), hasty_expert(0.5, seed=2)):
        assert [through(script, shop, goal) for goal in range(12)] == [through(script, shop, goal) for goal in range(12)]
    assert [through(random_shopper(1), shop, goal) for goal in range(12)] != [through(random_shopper(2), shop, goal) for goal in range(12)]
    assert through(first_result, shop, 0)[1][-1] == "<action>click[buy now]</action>"


@pytest.mark.parametrize("probability", [0.0, 0.4, 1.0])
def test_the_hasty_expert_is_as_good_as_its_probability_says(probability: float, shops: dict[tuple[str, str], Shop]) -> None:
    shop = shops["small", "synthetic"]
    rewards = [through(hasty_expert(probability, seed=7), shop, goal)[0] for goal in range(400)]
    assert abs(np.mean(rewards) - (1 + 2 * probability + 1) / 4) < (0.03 if 0 < probability < 1 else 1e-9)


def test_a_script_refuses_what_it_cannot_do(shops: dict[tuple[str, str], Shop], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        hasty_expert(1.2)
    session = Session(shop_of(tmp_path, product_record("A1", "", **COMMON), notes={"A1": NOTE}))
    session.start(0)
    with pytest.raises(ValueError, match="knows no next action on the page 'index'"):
        hasty_expert(0.5)(SimpleNamespace(session=session, write_command=str), 0)
