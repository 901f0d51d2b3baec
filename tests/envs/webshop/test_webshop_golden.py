"""Recorded episodes of the original text environment, played again: the same page, controls, reward and end at every step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_gym.envs.webshop import Catalogue, Rules, Session, Shop, engine, pages, reward

EPISODES = 40
PARTS = ("r_type", "r_att", "r_option", "r_price", "w_att", "w_option", "w_price", "query_match", "category_match", "title_score")


@pytest.fixture(scope="module")
def episodes(data_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data_dir / "webshop" / "episodes.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def shop(official: Catalogue, episodes: list[dict[str, Any]]) -> Shop:
    """The official shop with the recorded nouns. A title bought in one episode and wanted in another takes the list, not the set."""
    nouns: dict[str, list[str]] = {}
    for episode in episodes:
        for step in episode["steps"]:
            if "reward_parts" in step:
                (number,) = official.numbers([step["reward_parts"]["bought_asin"]])
                nouns.setdefault(official[number].title, step["reward_parts"]["bought_title_nouns"])
    for episode in episodes:
        for step in episode["steps"]:
            if "reward_parts" in step:
                nouns[episode["goal"]["name"]] = step["reward_parts"]["goal_title_nouns"]
    return Shop(official, noun_backend=nouns.__getitem__)


def begin(shop: Shop, episode: dict[str, Any], **changes: Any) -> tuple[Session, str]:
    session = Session(shop, Rules.original(observation_mode=episode["mode"], **changes))
    return session, session.start(episode["goal_index"], price_upper=episode["goal"]["price_upper"], prices=episode["prices"])


def differences(shop: Shop, episode: dict[str, Any], **changes: Any) -> list[str]:
    """Where a replay differs from the record."""
    session, observation = begin(shop, episode, **changes)
    found = []

    def compare(what: str, ours: object, recorded: object) -> None:
        if ours != recorded:
            found.append(f"{what}: {ours!r:.300} instead of {recorded!r:.300}")

    def compare_page(where: str, observation: str, recorded: dict[str, Any]) -> None:
        compare(f"{where} observation", observation, recorded["observation"])
        compare(f"{where} clickables", session.clickables, recorded["clickables"])
        compare(f"{where} search bar", session.has_search_bar, recorded["has_search_bar"])

    compare_page("reset", observation, episode["reset"])
    for number, step in enumerate(episode["steps"]):
        where = f"step {number} {step['action']}"
        turn = session.act(step["action"])
        compare_page(where, turn.observation, step)
        compare(f"{where} reward", turn.reward, step["reward"])
        compare(f"{where} done", turn.done, step["done"])
        compare(f"{where} judged", turn.parts is not None, "reward_parts" in step)
        if turn.parts is not None and "reward_parts" in step:
            recorded = step["reward_parts"]
            for name in PARTS:
                compare(f"{where} {name}", getattr(turn.parts, name), recorded.get(name, 1.0 if name == "r_option" else 0.0))
    return found


@pytest.mark.parametrize("number", range(EPISODES))
def test_an_episode_of_the_original_is_repeated(shop: Shop, episodes: list[dict[str, Any]], number: int) -> None:
    assert len(episodes) == EPISODES
    assert differences(shop, episodes[number]) == []


def test_the_recorded_goals_are_those_of_the_same_index(shop: Shop, episodes: list[dict[str, Any]]) -> None:
    for episode in episodes:
        goal, recorded = begin(shop, episode)[0].goal, episode["goal"]
        assert goal.instruction == recorded["instruction_text"]
        assert (goal.product.asin, list(goal.attributes), dict(goal.options)) == (
            recorded["asin"],
            recorded["attributes"],
            recorded["goal_options"],
        )
        assert (goal.product.query, goal.product.product_category) == (recorded["query"], recorded["product_category"])


def test_prices_that_are_not_drawn_are_those_of_the_record(shop: Shop, episodes: list[dict[str, Any]]) -> None:
    for episode in episodes:
        for asin, price in episode["prices"].items():
            (number,) = shop.catalogue.numbers([asin])
            ours = shop.price(shop.catalogue.product(number))
            if asin in episode["price_ranges"]:
                low, high = sorted(shop.catalogue.product(number).prices)  # some tags begin with the higher one
                assert low <= ours <= high
                assert low <= price <= high
            else:
                assert ours == price


@pytest.mark.parametrize(
    "changes",
    [{"show_score": False}, {"empty_pages": False}, {"show_attributes": True}, {"strict_search": True}, {"show_instruction": False}],
)
def test_other_rules_are_not_the_original(shop: Shop, episodes: list[dict[str, Any]], changes: dict[str, Any]) -> None:
    assert any(differences(shop, episode, **changes) for episode in episodes)


def kind_by_category_alone(patch: pytest.MonkeyPatch) -> None:
    original = reward._kind
    patch.setattr(reward, "_kind", lambda *arguments: (1.0 if original(*arguments)[2] else 0.0, *original(*arguments)[1:]))


def options_by_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reward, "_pair_text", lambda name, value: name)


def visits_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pages, "VISITED", pages.PRODUCT)


def options_kept_by_previous(patch: pytest.MonkeyPatch) -> None:
    original = engine.Visit._replace
    patch.setattr(
        engine.Visit, "_replace", lambda visit, **changes: original(visit, **{k: v for k, v in changes.items() if k != "options" or v})
    )


def hundredfold_price(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Session, "price", lambda session, product: 100.0 * session.shop.price(product))


@pytest.mark.parametrize(
    "mutant",
    [kind_by_category_alone, options_by_name, visits_forgotten, options_kept_by_previous, hundredfold_price],
    ids=lambda mutant: mutant.__name__,
)
def test_a_broken_engine_is_noticed(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, shop: Shop, episodes: list[dict[str, Any]]
) -> None:
    mutant(monkeypatch)
    assert any(differences(shop, episode) for episode in episodes)


def test_the_word_rule_mostly_agrees_with_the_recorded_kind(official: Catalogue, episodes: list[dict[str, Any]]) -> None:
    shop = Shop(official)
    agreed = []
    for episode in episodes:
        session, _ = begin(shop, episode)
        for step in episode["steps"]:
            turn = session.act(step["action"])
            if turn.parts is not None:
                agreed.append(turn.parts.r_type == step["reward_parts"]["r_type"])
    assert len(agreed) >= 30
    assert sum(agreed) >= 0.85 * len(agreed)


def test_recorded_rankings_are_those_of_the_shop(official: Catalogue, data_dir: Path) -> None:
    recorded = [json.loads(line) for line in (data_dir / "webshop" / "lucene_top50.jsonl").read_text(encoding="utf-8").splitlines()]
    same = sum([official.product(number).asin for number in official.search(query["query"], 10)] == query["ids"][:10] for query in recorded)
    assert same >= 0.95 * len(recorded)
