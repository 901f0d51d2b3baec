"""`AgentR1/WebShop-v0`: recorded episodes of the original, what is shown, paid and counted, and what a user can get wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from helpers import follow

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.envs.webshop import catalogue as catalogue_module
from agent_gym.envs.webshop.env import WebShopEnv
from agent_gym.envs.webshop.experts import first_result, random_shopper
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

EPISODES = 40
ORIGINAL = {"show_score": True, "debug_queries": True, "search_after_purchase": True, "empty_pages": True}
PARTS = ("r_type", "r_att", "r_option", "r_price", "w_att", "w_option", "w_price", "query_match", "category_match", "title_score")


@pytest.fixture(scope="module")
def env() -> WebShopEnv:
    return WebShopEnv()


def act(env: WebShopEnv, command: str) -> tuple[float, bool, bool, dict[str, Any]]:
    _, reward, terminated, truncated, info = env.step(env.encode_action(env.write_command(command)))
    return reward, terminated, truncated, info


# ------------------------------------------------------------------------------------------------ the original


@pytest.fixture(scope="module")
def episodes(data_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data_dir / "webshop" / "episodes.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def original(data_dir: Path, episodes: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., WebShopEnv]:
    """Makes the environment with the original's ways and the recorded nouns of every title."""
    folder, cache = data_dir / "webshop", tmp_path_factory.mktemp("cache")
    titles = {one["asin"]: one["name"] for one in json.loads((folder / "items_shuffle_1000.json").read_text(encoding="utf-8"))}
    nouns: dict[str, list[str]] = {}
    judged = [(episode, step["reward_parts"]) for episode in episodes for step in episode["steps"] if "reward_parts" in step]
    for _, parts in judged:
        nouns.setdefault(" ".join(titles[parts["bought_asin"]].split()), parts["bought_title_nouns"])
    for episode, parts in judged:
        nouns[episode["goal"]["name"]] = parts["goal_title_nouns"]
    keywords = {"data_dir": folder, "cache_dir": cache, "goals": "synthetic", "noun_backend": nouns.__getitem__, "action_format": "line"}
    return lambda **changes: WebShopEnv(**{**keywords, **ORIGINAL, "max_turns": 100, "max_observation_tokens": 400_000, **changes})


def differences(make: Callable[..., WebShopEnv], episode: dict[str, Any], **changes: Any) -> list[str]:
    """Where a replay through the environment differs from the record."""
    env = make(observation_mode=episode["mode"], **changes)
    _, info = env.reset(
        options={"index": episode["goal_index"], "price_upper": episode["goal"]["price_upper"], "prices": episode["prices"]}
    )
    found: list[str] = []

    def compare(what: str, ours: object, recorded: object) -> None:
        if ours != recorded:
            found.append(f"{what}: {ours!r:.300} instead of {recorded!r:.300}")

    def compare_page(where: str, recorded: dict[str, Any]) -> None:
        compare(f"{where} observation", info["feedback"], recorded["observation"])
        compare(f"{where} clickables", list(info["clickables"]), recorded["clickables"])
        compare(f"{where} search bar", info["has_search_bar"], recorded["has_search_bar"])

    compare_page("reset", episode["reset"])
    bought = False
    for number, step in enumerate(episode["steps"]):
        where = f"step {number} {step['action']}"
        if bought:  # the original goes on behind its end, an episode here does not
            break
        _, reward, terminated, truncated, info = env.step(env.encode_action(step["action"] or "?"))
        compare_page(where, step)
        compare(f"{where} reward", reward, step["reward"])
        compare(f"{where} done", (terminated, truncated), (step["done"], False))
        bought = bool(step["done"])
        if "reward_parts" in step:
            for name in PARTS:
                compare(f"{where} {name}", info[name], float(step["reward_parts"].get(name, 1.0 if name == "r_option" else 0.0)))
            compare(f"{where} score", (info["score"], info["is_success"]), (step["reward"], step["reward"] == 1.0))
    return found


def test_every_episode_of_the_original_is_repeated_through_the_environment(
    original: Callable[..., WebShopEnv], episodes: list[dict[str, Any]]
) -> None:
    assert len(episodes) == EPISODES
    assert [difference for episode in episodes for difference in differences(original, episode)] == []


@pytest.mark.parametrize("changes", [{"show_score": False}, {"empty_pages": False}, {"noun_backend": "words"}, {"observation_mode": "url"}])
def test_other_ways_are_not_the_originals(
    changes: dict[str, Any], original: Callable[..., WebShopEnv], episodes: list[dict[str, Any]]
) -> None:
    def make(**keywords: Any) -> WebShopEnv:
        return original(**{**keywords, **changes})

    assert any(differences(make, episode) for episode in episodes)


def test_the_official_goals_and_their_splits(original: Callable[..., WebShopEnv]) -> None:
    sizes = {"train": range(1500, 6910), "validation": range(500, 1500), "test": range(500)}
    for split, indices in sizes.items():
        env = original(split=split)
        assert env.task_indices == indices and env.num_tasks == len(indices)
        _, info = env.reset(seed=0)
        assert info["goal_index"] in indices and info["official_splits"] and info["goal_kind"] == "synthetic"
        assert (info["dataset"], info["level"], info["noun_backend"]) == ("official", "", "function")
    human = original(split="test", goals="human")
    _, info = human.reset(seed=0)
    assert (info["goal_kind"], info["official_splits"], len(human.shop.goals)) == ("human", False, 13)


# ------------------------------------------------------------------------------------------------ tasks


def test_it_is_made_by_its_id_with_the_defaults_of_the_benchmark() -> None:
    made = gymnasium.make("AgentR1/WebShop-v0")
    observation, info = made.reset(seed=0)
    assert made.observation_space.contains(observation)
    told = {
        name: info[name] for name in ("dataset", "level", "goal_kind", "official_splits", "noun_backend", "observation_mode", "front_end")
    }
    assert list(told.values()) == ["embedded", "full", "synthetic", True, "words", "text", "text"]
    own: Any = made.unwrapped
    assert (own.max_turns, own.max_observation_tokens, own.max_action_tokens) == (15, 16_384, 512)
    assert info["page"] == "index" and info["has_search_bar"] and not info["bought"] and info["score"] == 0.0
    made.close()


def test_splits_of_the_embedded_catalogue_do_not_meet() -> None:
    for level in ("full", "small"):
        ranges = [WebShopEnv(split=split, level=level).task_indices for split in ("test", "validation", "train")]
        joined = [index for one in ranges for index in one]
        assert joined == list(range(len(joined))) and all(ranges)
        shop = WebShopEnv(level=level).shop
        assert len(joined) == len(shop.goals) and shop.goals.official_splits == (len(joined) >= 2_000)


def test_an_index_is_the_goals_in_any_split_and_a_seed_draws_from_the_split() -> None:
    asked = []
    for split in ("train", "validation", "test"):
        env = WebShopEnv(split=split)
        _, info = env.reset(options={"index": 3})
        asked.append((info["task_id"], info["feedback"]))
        for seed in range(20):
            assert env.reset(seed=seed)[1]["goal_index"] in env.task_indices
    assert len(set(asked)) == 1 and asked[0][0] == "goal-3"


def test_the_same_seed_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    code = (
        "import hashlib; from agent_gym.envs.webshop.env import WebShopEnv; from agent_gym.envs.webshop.experts import random_shopper\n"
        "e = WebShopEnv(noun_backend='words', cache_dir={cache!r}); s = random_shopper(1); h = hashlib.sha256()\n"
        "for seed in range(4):\n"
        "    o, i = e.reset(seed=seed); done = False\n"
        "    while not done:\n"
        "        h.update(o.tobytes() + repr(sorted(i.items())).encode())\n"
        "        o, r, a, b, i = e.step(e.encode_action(s(e, e.turn))); done = a or b\n"
        "print(h.hexdigest())"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)}
    found = {
        subprocess.run(
            [sys.executable, "-c", code.format(cache=str(tmp_path / cache))],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for cache, seed in (("a", "1"), ("a", "2"), ("b", "3"))
    }
    assert len(found) == 1 and len(found.pop().strip()) == 64


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"index": -1}, "counted from 0"),
        ({"index": 10**9}, "goals"),
        ({"index": "5"}, "whole number"),
        ({"index": True}, "whole number"),
        ({"index": 0, "price_upper": "ten"}, "price_upper"),
        ({"index": 0, "price_upper": float("nan")}, "price_upper"),
        ({"index": 0, "price_upper": -1}, "not negative"),
        ({"index": 0, "price_upper": True}, "price_upper"),
        ({"index": 0, "prices": [1.0]}, "by product id"),
        ({"index": 0, "prices": {3: 1.0}}, "by product id"),
        ({"index": 0, "prices": {"NOSUCHONE1": 1.0}}, "NOSUCHONE1"),
        ({"index": 0, "prices": {"B0": "free"}}, "B0"),
        ({"task": {}}, "did you mean|does not know"),
    ],
)
def test_options_that_cannot_be_used_are_named(options: dict[str, Any], text: str, env: WebShopEnv) -> None:
    with pytest.raises(ValueError, match=text):
        env.reset(options=options)
    env.reset(options={"index": 0})


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"observation_mode": "image"}, "text_rich"),
        ({"level": "tiny"}, "small"),
        ({"goals": "both"}, "synthetic"),
        ({"split": "eval"}, "validation"),
        ({"noun_backend": 5}, "noun_backend"),
        ({"noun_backend": "nltk"}, "spacy:MODEL"),
        ({"num_products": 0}, "at least 1"),
        ({"num_products": "5"}, "whole number"),
        ({"goal_seed": "x"}, "goal_seed"),
        ({"price_seed": None}, "price_seed"),
        ({"strict_search": "yes"}, "True or False"),
        ({"browser": 1}, "True or False"),
        ({"browser_options": {"headless": True}}, "browser=True"),
        ({"dataset": 5}, "dataset"),
        ({"dataset": "embedded", "data_dir": "x"}, "leave one of the two out"),
        ({"render_mode": "rgb_array"}, "browser=True"),
        ({"render_mode": "human"}, "ansi"),
    ],
)
def test_keywords_that_cannot_be_used_are_named(keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        WebShopEnv(**keywords)


def test_missing_data_is_told_before_anything_heavy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    def heavy(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("heavy work began")

    for name in ("read_array", "read_object", "cached_key"):
        monkeypatch.setattr(catalogue_module, name, heavy)
    monkeypatch.setattr("agent_gym.envs.commands.load_tokenizer", heavy)
    monkeypatch.delenv("AGENT_GYM_WEBSHOP_DATA", raising=False)
    for keywords in (
        {"dataset": "official"},
        {"data_dir": tmp_path / "nowhere"},
        {"data_dir": tmp_path},
        {"dataset": str(tmp_path)},
        {"dataset": "x", "data_dir": tmp_path},
    ):
        with pytest.raises(FileNotFoundError, match=r"embedded|built-in"):
            WebShopEnv(**keywords)
    (tmp_path / "items_shuffle.json").write_text("[]")
    (tmp_path / "items_ins_v2.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"items_human_ins\.json"):
        WebShopEnv(data_dir=tmp_path, goals="human")
    with pytest.raises(AssertionError, match="heavy work began"):
        WebShopEnv(data_dir=data_dir / "webshop")


def test_a_malformed_record_is_named_by_file_index_and_field(write_shop: Callable[..., Path], tmp_path: Path) -> None:
    from shop_records import PRODUCTS

    folder = write_shop(products=[*PRODUCTS[:2], {**PRODUCTS[2], "name": 7}, *PRODUCTS[3:]])
    with pytest.raises(ValueError, match=r"items_shuffle\.json, entry 2.*'name'"):
        WebShopEnv(data_dir=folder, cache_dir=tmp_path / "cache")


def test_a_folder_is_a_data_set_and_the_variable_names_the_official_one(
    write_shop: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_shop()
    first = WebShopEnv(dataset=folder, goals="synthetic", cache_dir=tmp_path / "cache")
    relative = WebShopEnv(dataset=folder.name, data_dir=folder.parent, goals="synthetic", cache_dir=tmp_path / "cache")
    monkeypatch.setenv("AGENT_GYM_WEBSHOP_DATA", str(folder))
    by_variable = WebShopEnv(dataset="official", goals="synthetic", cache_dir=tmp_path / "cache")
    assert first.shop is relative.shop is by_variable.shop
    assert WebShopEnv().source.dataset == "embedded", "whatever lies on the disk"
    assert first.reset(seed=0)[1]["dataset"] == "official"


# ------------------------------------------------------------------------------------------------ the episode


@pytest.mark.parametrize(
    ("action_format", "search", "click"),
    [
        ("tag", "I look. <action>search[lamp]</action>", "<action>click[Next >]</action>"),
        ("line", "I look.\nsearch[lamp]", "click[Next >]\n"),
        (
            "tool",
            '<tool_call>\n{"name": "search", "arguments": {"query": "lamp"}}\n</tool_call>',
            '<tool_call>\n{"name": "click", "arguments": {"element": "Next >"}}\n</tool_call>',
        ),
    ],
)
def test_actions_are_tags_calls_or_lines(action_format: str, search: str, click: str) -> None:
    env = WebShopEnv(action_format=action_format)
    env.reset(seed=0)
    *_, info = env.step(env.encode_action(search))
    assert info["command"] == "search[lamp]" and info["page"] == "search_results" and info["action_valid"]
    *_, info = env.step(env.encode_action(click))
    assert info["command"] == "click[Next >]" and "Page 2" in info["feedback"] and info["action_valid"]


def test_what_cannot_be_done_keeps_the_page_and_costs_a_step() -> None:
    env = WebShopEnv(max_turns=8, invalid_penalty=0.25)
    _, info = env.reset(seed=0)
    page, key = info["feedback"], info["state_key"]
    for turn, text in enumerate(
        (
            "nothing",
            "<action>buy</action>",
            "<action>click[no such thing]</action>",
            "<action>click[search]</action>",
            "<action>search[]</action>",
        ),
        start=1,
    ):
        _, reward, terminated, truncated, info = env.step(env.encode_action(text))
        assert (reward, terminated, truncated, info["action_valid"], info["turn"]) == (-0.25, False, False, False, turn)
        assert info["page"] == "index" and info["reward_parts"] == {"task": 0.0, "invalid": -0.25}
        assert info["feedback"] == page if turn > 1 else "no command" in info["feedback"]
        assert info["state_key"] == key
    assert act(env, "search[lamp]")[3]["action_valid"]


def test_fifteen_turns_truncate_and_are_worth_nothing(env: WebShopEnv) -> None:
    rewards, info = follow(env, lambda env, turn: env.write_command("search[lamp]"), seed=0)
    assert rewards == [0.0] * 15 and info["stop_reason"] is StopReason.MAX_TURNS
    assert not info["is_success"] and not info["bought"] and info["score"] == 0.0
    with pytest.raises(ResetNeeded):
        env.step([1])


def test_buying_pays_the_score_once_and_success_is_a_score_of_one(env: WebShopEnv) -> None:
    scores = {}
    for index in env.task_indices[:40]:
        rewards, info = follow(env, first_result, options={"index": index})
        assert sum(rewards) == rewards[-1] == info["score"] and info["bought"]
        assert info["is_success"] == (info["score"] == 1.0)
        assert info["stop_reason"] is (StopReason.SUCCESS if info["is_success"] else StopReason.FAILURE)
        scores[index] = info["score"]
    assert any(0 < score < 1 for score in scores.values()) and len(set(scores.values())) > 3


def test_given_prices_and_bounds_count() -> None:
    env = WebShopEnv()
    _, info = follow(env, options={"index": 10})
    assert info["score"] == 1.0
    asin = env.session.goal.product.asin
    rewards, info = follow(env, options={"index": 10, "price_upper": 20, "prices": {asin: 20.5}})
    assert info["r_price"] == 0.0 and 0 < rewards[-1] < 1 and "lower than 20.00 dollars" in env.session.goal.instruction
    _, info = follow(env, options={"index": 10, "price_upper": 1_000_000, "prices": {asin: 5_000}})
    assert info["r_price"] == 1.0 and "lower than" not in env.session.goal.instruction
    keys = {env.reset(options={"index": 10, **more})[1]["state_key"] for more in ({}, {"price_upper": 20}, {"prices": {asin: 1.0}})}
    assert len(keys) == 3, "other prices are other futures"


def test_the_key_is_the_page_whatever_led_there(env: WebShopEnv) -> None:
    keys = []
    for way in (["search[lamp]"], ["nonsense", "search[lamp]", "click[next >]", "click[< prev]"], ["search[shoe]", "search[lamp]"]):
        env.reset(options={"index": 2000})
        for command in way:
            *_, info = act(env, command)
        keys.append(info["state_key"])
    assert len(set(keys)) == 1
    assert act(env, "click[next >]")[3]["state_key"] not in keys


def test_no_search_beyond_the_bar_where_the_search_is_strict() -> None:
    for strict in (False, True):
        env = WebShopEnv(strict_search=strict)
        env.reset(seed=0)
        act(env, "search[lamp]")
        assert act(env, "search[shoe]")[3]["action_valid"] is not strict


@pytest.mark.parametrize("mode", ["text", "text_rich", "html", "url"])
def test_the_observation_mode_is_what_is_shown(mode: str) -> None:
    env = WebShopEnv(observation_mode=mode)
    env.reset(seed=0)
    *_, info = act(env, "search[lamp]")
    assert (info["observation_mode"], info["feedback"]) == (mode, env.session.observation(mode))
    marks = {"text": "[SEP]", "text_rich": "[button] ", "html": "<html", "url": "http://"}
    assert marks[mode] in info["feedback"]


def test_contexts_grow_slide_or_are_made_anew() -> None:
    shown = {}
    for context in ("append", "window:1", "rebuild"):
        env = WebShopEnv(context=context)
        env.reset(options={"index": 1600})
        for command in ("search[lamp]", "search[shoe]", "search[rug]"):
            *_, info = act(env, command)
        shown[context] = env.chat.decode(env.prompt_ids.tolist())
        assert info["feedback"][:400] in shown[context] and env.session.goal.instruction in shown[context]
    assert (shown["append"].count("Page 1 (Total"), shown["window:1"].count("Page 1 (Total")) == (3, 1)
    assert "Past commands:\n1. search[lamp]\n2. search[shoe]\n3. search[rug]" in shown["rebuild"]
    assert shown["rebuild"].count("Page 1 (Total") == 1


def test_admissible_commands_are_admissible(env: WebShopEnv) -> None:
    listing = WebShopEnv(show_admissible=True, split="test")
    for seed in range(4):
        _, info = listing.reset(seed=seed)
        expert = listing.expert()
        assert expert is not None
        terminated = False
        while not terminated:
            moment = listing.get_state()
            for command in info["admissible_commands"]:
                assert act(listing, command)[3]["action_valid"], command
                listing.set_state(moment)
            assert f"- {info['admissible_commands'][-1]}" in listing.chat.decode(listing.prompt_ids.tolist())
            *_, terminated, _, info = listing.step(listing.encode_action(expert()))
    assert env.show_admissible is False


@pytest.mark.parametrize("tokenizer", ["default", "qwen3"])
def test_nobody_meets_the_context_limit_under_the_defaults(tokenizer: str, request: pytest.FixtureRequest) -> None:
    opened = request.getfixturevalue("qwen3_path") if tokenizer == "qwen3" else None
    made = [WebShopEnv(tokenizer=opened, split=split) for split in WebShopEnv.splits]
    ids = made[0].chat.encode_text("again " * made[0].max_action_tokens)
    room = made[0].max_action_tokens - len(made[0].encode_action(made[0].write_command("search[]"))) - 4
    much = made[0].encode_action(made[0].write_command(f"search[{made[0].chat.decode(ids[:room]).strip()}]"))
    assert 490 < len(much) <= 512
    lengths = []
    for index in range(200):
        env = made[index % 3]
        place = env.task_indices[(index * 37) % len(env.task_indices)]
        assert follow(env, options={"index": place})[1]["stop_reason"] is StopReason.SUCCESS
    for index in range(12):  # the longest replies and the longest pages there are
        env = made[index % 3]
        env.reset(options={"index": env.task_indices[index]})
        expert = env.expert()
        assert expert is not None
        opening = [env.encode_action(expert()), None, None] if index % 2 else []
        while True:
            action = opening[env.turn] if env.turn < len(opening) else much
            if action is None:
                text = env.write_command(f"click[{env.session.clickables[3 if env.turn == 1 else -2]}]")
                action = env.encode_action(text)
            *_, truncated, info = env.step(action)
            if truncated:
                break
        assert info["stop_reason"] is StopReason.MAX_TURNS
        lengths.append(info["observation_length"])
    assert 8_000 < max(lengths) <= 16_384


# ------------------------------------------------------------------------------------------------ forms


def test_an_instance_without_the_browser_draws_no_pictures() -> None:
    env = WebShopEnv(render_mode="ansi")
    assert env.metadata["render_modes"] == ["ansi"] and "rgb_array" in WebShopEnv.metadata["render_modes"]
    with pytest.raises(ResetNeeded):
        _ = env.session
    env.reset(seed=0)
    assert "Instruction:" in env.render()
    check_env(gymnasium.make("AgentR1/WebShop-v0").unwrapped)


def test_the_browser_form_passes_the_checks_of_gymnasium_too() -> None:
    from browser_help import require_browser

    require_browser()
    env = gymnasium.make("AgentR1/WebShop-v0", level="small", browser=True, render_mode="rgb_array")
    try:
        check_env(env.unwrapped, skip_close_check=True)
        _, info = env.reset(seed=0)
        assert info["front_end"].startswith("browser") and env.render().dtype == "uint8"
    finally:
        env.close()


def test_what_stands_beside_the_figures_is_imported_by_no_text_episode(tmp_path: Path) -> None:
    code = (
        "import sys; from agent_gym.envs.webshop.env import WebShopEnv; e = WebShopEnv(level='small'); e.reset(seed=0); x = e.expert()\n"
        "while not e.step(e.encode_action(x()))[2]: pass\n"
        "print([n for n in ('torch', 'spacy', 'selenium', 'agent_gym.envs.webshop.site', 'bs4', 'rapidfuzz') if n in sys.modules])"
    )
    environment = {"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_environments_share_the_shop_and_do_not_meet_in_threads(env: WebShopEnv) -> None:
    assert WebShopEnv().shop is env.shop and WebShopEnv(split="test").shop is env.shop
    assert WebShopEnv(price_seed=1).shop is not env.shop and WebShopEnv(price_seed=1).shop.catalogue is env.shop.catalogue

    def play(index: int) -> tuple[Any, ...]:
        rewards, info = follow(WebShopEnv(), None if index % 2 else random_shopper(index), options={"index": 1500 + index})
        return rewards, info["state_key"], info["score"]

    alone = [play(index) for index in range(12)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(play, range(12))) == alone


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"context": "rebuild", "show_admissible": True},
        {"context": "window:2", "observation_mode": "text_rich"},
        {"action_format": "tool", "level": "small"},
        {"action_format": "line", "level": "small", "invalid_penalty": 0.1, "strict_search": True},
    ],
    ids=lambda kwargs: "-".join(map(str, kwargs.values())) or "defaults",
)
def test_it_conforms(kwargs: dict[str, Any]) -> None:
    report = check_agent_env("AgentR1/WebShop-v0", kwargs=kwargs)
    report.raise_if_failed()
    skipped = {result.name for result in report.results if result.outcome == "skipped"}
    assert skipped <= {"token_exactness", "control_tokens", "wrong_answer"}, (
        "every visit ends by the same click, so no other answer can be put in its place"
    )
