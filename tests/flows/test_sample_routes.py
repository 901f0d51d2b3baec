"""Rows of the sample schema choose flow, environment and reward; whatever is wrong with one is said with file, row and field."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import require
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.data.samples import parse_sample, write_rows
from agent_gym.flows import AgentEnvLoop, register_flow, run_rows
from agent_gym.flows.samples import TABLE, RoutedRows, SampleError, has_samples, route_sample, route_samples
from agent_gym.policies import ScriptedPolicy
from agent_gym.registration import ENVIRONMENTS


def row(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "data_source": "made/up",
        "agent_name": "agent_env_loop",
        "prompt": [{"role": "user", "content": "What is 6 times 7?"}],
        "reward_model": {"style": "rule", "ground_truth": "42"},
        "env_kwargs": {"env_type": "tool", "tools": ["calculator"]},
        "extra_info": {"index": 3},
    }
    made.update(changes)
    return {name: value for name, value in made.items() if value is not None}


def route(where: str = "rows.jsonl line 1", settings: dict[str, Any] | None = None, **changes: Any) -> Any:
    return route_sample(parse_sample(row(**changes), where=where), **(settings or {}))


def returns(rows: list[dict[str, Any]], script: Any) -> list[float]:
    """The reward of each row's episode, which must have come to its end."""
    done = run_rows(rows, ScriptedPolicy(script), max_concurrency=8)
    assert len(done.trajectories) == len(rows) and not done.dropped
    assert all(one.steps[-1].terminated or one.steps[-1].truncated for one in done.trajectories)
    return [one.total_reward for one in done.trajectories]


# ---------------------------------------------------------------------------------------------------- what is chosen


@pytest.mark.parametrize(
    ("changes", "env_id", "keywords"),
    [
        ({}, "AgentR1/Tool-v0", {"tools": ["calculator"]}),
        ({"env_kwargs": json.dumps({"env_type": "tool", "max_steps": 3})}, "AgentR1/Tool-v0", {"max_turns": 3}),
        ({"data_source": "openai/gsm8k"}, "AgentR1/GSM8K-v0", {"tools": ["calculator"]}),
        ({"data_source": "openai/gsm8k", "env_kwargs": None, "agent_name": None}, "AgentR1/GSM8K-v0", {}),
        ({"data_source": "hotpotqa_distractor", "env_kwargs": None, "agent_name": None}, "AgentR1/HotpotQA-v0", {}),
        ({"agent_name": "hotpotqa_agent", "env_kwargs": None}, "AgentR1/HotpotQA-v0", {"context": "rebuild", "force_first_search": True}),
        ({"agent_name": "paper_search_agent", "env_kwargs": None}, "AgentR1/PaperSearch-v0", {}),
        ({"agent_name": "single_step_agent", "env_kwargs": None}, "AgentR1/Tool-v0", {"tools": [], "max_turns": 1}),
        ({"agent_name": "single_step_agent", "env_kwargs": {"max_turns": 2}}, "AgentR1/Tool-v0", {"tools": [], "max_turns": 2}),
        ({"agent_name": "hotpotqa_agent", "env_kwargs": {"env_type": "tool"}}, "AgentR1/Tool-v0", {}),
        ({"env_kwargs": {"env_id": "AgentR1/HotpotQA-v0", "env_type": "tool"}}, "AgentR1/HotpotQA-v0", {}),
        ({"env_kwargs": None, "env_id": "FrozenLake-v1"}, "FrozenLake-v1", {}),
        ({"env_kwargs": {"env_type": "hotpot_qa"}}, "AgentR1/HotpotQA-v0", {}),
        ({"env_kwargs": {"env_type": "WebShop"}, "extra_info": {"goal_index": 4}}, "AgentR1/WebShop-v0", {}),
        ({"env_kwargs": {"env_type": "paper_search", "reward": "both"}}, "AgentR1/PaperSearch-v0", {"reward": "both"}),
    ],
)
def test_the_environment_is_what_the_row_names_first(changes: dict[str, Any], env_id: str, keywords: dict[str, Any]) -> None:
    found = route(**changes)
    assert (found.env_id, dict(found.env_kwargs), found.flow) == (env_id, keywords, "agent_env_loop")


def test_the_callers_environment_serves_rows_that_name_none_and_goes_before_the_data_source() -> None:
    other = {"settings": {"env_id": "AgentR1/Tool-v0"}}
    assert route(env_kwargs=None, **other).env_id == "AgentR1/Tool-v0"
    assert route(env_kwargs=None, data_source="hotpotqa_distractor", **other).env_id == "AgentR1/Tool-v0"
    assert route(env_kwargs={"env_type": "hotpotqa"}, **other).env_id == "AgentR1/HotpotQA-v0"


def test_a_registered_flow_is_chosen_and_played_by_its_name() -> None:
    played = []

    @register_flow("a_flow_of_mine")
    class Mine(AgentEnvLoop):
        async def run(self, asked: Any, policy: Any, make_env: Any) -> Any:
            played.append(asked["options"]["task"]["id"])
            return await super().run(asked, policy, make_env)

    assert returns([route(agent_name="a_flow_of_mine").row()], ["<answer>42</answer>"]) == [1.0]
    assert played == ["3"]


def test_keywords_of_tools_go_to_the_task_so_that_rows_share_an_environment() -> None:
    routes = [
        route(env_kwargs={"env_type": "tool", "tools": ["calculator"], "tools_kwargs": {"ground_truth": truth}}) for truth in ("1", "2")
    ]
    assert routes[0].env_kwargs == routes[1].env_kwargs == {"tools": ["calculator"]}
    assert [one.options["task"]["tools_kwargs"] for one in routes] == [{"ground_truth": "1"}, {"ground_truth": "2"}]


def test_environments_with_tasks_of_their_own_get_the_task_that_the_row_names() -> None:
    shop = route(agent_name="webshop_agent", env_kwargs=None, extra_info={"goal_index": 7}, reward_model={"style": "rule"})
    assert (shop.env_id, dict(shop.options), shop.unscored) == ("AgentR1/WebShop-v0", {"index": 7}, "")
    home = route(agent_name="alfworld_agent", env_kwargs=None, extra_info={"game_relative_path": "a/game.tw-pddl"})
    assert (home.env_id, dict(home.options)) == ("AgentR1/ALFWorld-v0", {"gamefile": "a/game.tw-pddl"})
    lake = route(env_kwargs={"env_id": "FrozenLake-v1", "is_slippery": False}, seed=11)
    assert (dict(lake.options), lake.seed, dict(lake.env_kwargs)) == ({}, 11, {"is_slippery": False})
    cellar = route(env_kwargs={"env_type": "textworld"}, reward_model={"style": "rule"}, seed=5)
    assert (cellar.env_id, dict(cellar.options), cellar.seed, cellar.unscored) == ("AgentR1/TextWorld-v0", {}, 5, "")
    own = route(env_kwargs={"env_type": "webshop"}, options='{"index": 2}')
    assert dict(own.options) == {"index": 2}


@pytest.mark.parametrize("kind", ["tool", "hotpotqa", "gsm8k"])
def test_a_system_message_of_the_rows_own_is_told_of_the_tools_where_the_template_does_not(kind: str) -> None:
    from tokenizer_zoo import make

    messages = [{"role": "system", "content": "End with #### <answer>."}, {"role": "user", "content": "What is 6 times 7?"}]
    own = {"tools": ["calculator"]} if kind == "tool" else {}
    pages = {"context": [["Page", ["Six times seven is 42."]]]}
    found = route(env_kwargs={"env_type": kind, **own}, prompt=messages, extra_info=pages)
    import gymnasium

    env = gymnasium.make(found.env_id, **found.env_kwargs, tokenizer=make("chatml"))
    shown = env.unwrapped.decode(*env.reset(options=dict(found.options)))
    tool = "search" if kind == "hotpotqa" else "calculator"
    assert shown.count("<|im_start|>system") == 1 and "End with #### <answer>." in shown
    assert f'"{tool}"' in shown and "<tool_call>" in shown
    assert "<tool_call>" not in env.unwrapped.decode(*env.reset(options=dict(found.options))).split("<|im_start|>user")[1]
    env.close()


def test_a_single_step_is_one_reply_without_tools() -> None:
    rows = [route(agent_name="single_step_agent", env_kwargs=None).row()]
    assert returns(rows, ["<answer>42</answer>"]) == returns(rows, ["It is \\boxed{42}"]) == returns(rows, ["#### 42.0"]) == [1.0]
    assert returns(rows, ["42?", "<answer>42</answer>"]) == [0.0]


def test_every_entry_of_the_table_is_a_registered_environment() -> None:
    import gymnasium

    import agent_gym

    gymnasium.register_envs(agent_gym)
    assert {entry.env_id for entry in TABLE} <= set(gymnasium.registry)
    for names in (
        [name for entry in TABLE for name in entry.env_types],
        [name for entry in TABLE for name in entry.agents],
        [name for entry in TABLE for name in entry.sources],
    ):
        assert len(names) == len(set(names))


def test_the_page_and_the_error_name_every_kind_of_environment_once() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "samples.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="known kind of environment") as told:
        route_samples([row(env_kwargs={"env_type": "nothing like it"})])
    known = str(told.value).partition("; known: ")[2].split(", ")
    assert len(known) == len(set(known)) == len(ENVIRONMENTS)
    assert {route_samples([row(env_kwargs={"env_type": one}, **OWN)]).routes[0].env_id for one in known} == {one.id for one in ENVIRONMENTS}
    assert [one for one in (*known, *(name for entry in TABLE for name in entry.agents)) if f"`{one}`" not in page] == []


OWN = {"data_source": "made/up", "extra_info": {"goal_index": 1, "game_relative_path": "x/game.tw-pddl"}}
"""What the shop and the household ask of a row."""


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent_name": "agent_env_lop"}, "field 'agent_name' is 'agent_env_lop'.*did you mean 'agent_env_loop'"),
        ({"env_kwargs": {"env_type": "tol"}}, "field 'env_kwargs.env_type' is 'tol'.*did you mean 'tool'"),
        ({"env_kwargs": {"env_type": ["tool"]}}, "field 'env_kwargs.env_type' must be a text"),
        ({"env_kwargs": {"env_id": "AgentR1/Tol-v0"}}, "field 'env_kwargs.env_id' is 'AgentR1/Tol-v0'.*did you mean"),
        ({"env_kwargs": {"env_id": 5}}, "field 'env_kwargs.env_id' must be the id"),
        ({"env_kwargs": None}, "field 'env_kwargs' names no environment"),
        (
            {"env_kwargs": {"env_type": "tool", "tool": []}},
            "field 'env_kwargs.tool' is no keyword of AgentR1/Tool-v0.*did you mean 'tools'",
        ),
        ({"env_kwargs": {"env_type": "tool", "tools": "calculator"}}, "field 'env_kwargs.tools' must be a list of names"),
        ({"env_kwargs": {"env_type": "tool", "tools": [{"name": "x"}]}}, "field 'env_kwargs.tools' must be a list of names"),
        ({"env_kwargs": {"env_type": "tool", "tools_kwargs": [1]}}, "field 'env_kwargs.tools_kwargs' must be an object"),
        ({"env_kwargs": {"env_type": "tool", "tokenizer": "x"}}, "field 'env_kwargs.tokenizer' may not stand in a row"),
        ({"env_kwargs": {"env_type": "tool", "judge": "http://evil:1/v1"}}, "field 'env_kwargs.judge' may not stand in a row"),
        ({"env_kwargs": {"env_type": "tool", "allow_functions": True}}, "field 'env_kwargs.allow_functions' may not stand in a row"),
        (
            {"reward_model": {"style": "modle", "ground_truth": "1"}},
            "field 'reward_model.style' is 'modle', and it is one of rule, model, function; did you mean 'model'",
        ),
        ({"reward_model": {"style": 3}}, r"field 'reward_model\.style' must be a text, not 3"),
        ({"prompt": [{"role": "usr", "content": "x"}]}, r"field 'prompt\[0\]\.role' is 'usr'.*did you mean 'user'"),
        ({"prompt": [{"role": "system", "content": "x"}]}, "field 'prompt' has no user message with a text in it"),
        ({"prompt": "  "}, "field 'prompt' has no user message with a text in it"),
        ({"reward_model": {"style": "model", "ground_truth": "1"}}, "field 'reward_model.style' is 'model', and there is no judge"),
        ({"reward_model": {"style": "model", "judge": "http://evil:1/v1"}}, "field 'reward_model.judge' must be the name"),
        ({"reward_model": {"style": "model", "judge": "nobody"}}, "field 'reward_model.judge': there is no judge 'nobody'"),
        ({"reward_model": {"style": "function"}}, "field 'reward_model.function' is missing"),
        ({"reward_model": {"style": "function", "function": "nothing"}}, "field 'reward_model.function' names 'nothing'"),
        (
            {"reward_model": {"style": "function", "function": "os:getcwd"}},
            "field 'reward_model.function' names 'os:getcwd'.*--allow-functions",
        ),
        ({"agent_name": "webshop_agent", "env_kwargs": None}, "field 'extra_info.goal_index' is missing"),
        (
            {"agent_name": "webshop_agent", "env_kwargs": None, "extra_info": {"goal_index": 1}, "reward_model": {"style": "model"}},
            "field 'reward_model.style' is 'model', and AgentR1/WebShop-v0 gives rewards of its own",
        ),
        (
            {"env_kwargs": {"env_type": "paper_search"}, "reward_model": {"style": "model"}},
            "field 'reward_model.style' is 'model', and AgentR1/PaperSearch-v0 gives",
        ),
        ({"seed": -1}, "field 'seed'"),
        ({"options": "{"}, "field 'options'"),
        ({"extra_info": {"picture": b"png"}}, "field 'extra_info.picture' must be text"),
    ],
)
def test_what_a_row_may_not_say_is_an_error_with_file_row_and_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"(?s)^row 1: {message}"):
        route_samples([row(), row(**changes)])
    if not any(isinstance(value, dict) and b"png" in value.values() for value in changes.values()):
        path = write_rows([row(), row(**changes)], tmp_path / "rows.jsonl")
        with pytest.raises(ValueError, match=rf"(?s)^rows\.jsonl line 2: {message}"):
            route_samples(path)


def test_missing_fields_and_empty_files_are_errors_with_the_place(tmp_path: Path) -> None:
    for name in ("prompt", "reward_model"):
        path = write_rows([row(), {key: value for key, value in row().items() if key != name}], tmp_path / "rows.jsonl")
        with pytest.raises(SampleError, match=rf"^rows\.jsonl line 2: the field '{name}' is missing"):
            route_samples(path)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(SampleError, match=r"empty\.jsonl has no rows"):
        route_samples(tmp_path / "empty.jsonl")


PLACES: list[tuple[str, dict[str, Any], str]] = [
    ("paper_search", {"base_url": "http://127.0.0.1:9"}, "base_url"),
    ("paper_search", {"relevance": "http", "relevance_url": "http://127.0.0.1:9"}, "relevance_url"),
    ("paper_search", {"corpus": "papers.jsonl"}, "corpus"),
    ("hotpotqa", {"corpus": "http://127.0.0.1:9/retrieve"}, "corpus"),
    ("hotpotqa", {"corpus": "pages"}, "corpus"),
    ("hotpotqa", {"dataset": "rows"}, "dataset"),
    ("hotpotqa", {"dataset": "official", "data_dir": "x"}, "data_dir"),
    ("2wikimultihopqa", {"aliases": "aliases"}, "aliases"),
    ("tool", {"dataset": "rows.jsonl"}, "dataset"),
    ("gsm8k", {"dataset": "/etc/passwd"}, "dataset"),
    ("webshop", {"noun_backend": "spacy:evil_module"}, "noun_backend"),
    ("webshop", {"cache_dir": "x"}, "cache_dir"),
    ("webshop", {"browser": True}, "browser"),
    ("textworld", {"game": "games"}, "game"),
    ("textworld", {"settings": {"recipe": "../../x"}}, "settings"),
    ("tool", {"template_kwargs": {"chat_template": "~/x"}}, "template_kwargs"),
    ("agent_gym/any", {"opponent": "evil_module:play"}, "opponent"),
    ("agent_gym/any", {"expert": "evil_module:play"}, "expert"),
    ("agent_gym/any", {"action_field": "evil_module:play"}, "action_field"),
    ("agent_gym/any", {"game_kwargs": {"list": ["evil_module: play"]}}, "game_kwargs"),
    ("agent_gym/any", {"xml_file": "ant"}, "xml_file"),
    ("agent_gym/any", {"world": "ant.xml"}, "world"),
    ("agent_gym/any", {"nested": {"base_url": "localhost"}}, "nested"),
]


def anything(**keywords: Any) -> Any:
    raise AssertionError(f"was made with {keywords}")


@pytest.fixture
def any_keywords() -> Iterator[None]:
    """An environment that takes every keyword, as the adapters' do."""
    import gymnasium

    gymnasium.register("AnyKeywords-v0", anything)
    yield
    del gymnasium.registry["AnyKeywords-v0"]


@pytest.mark.parametrize(("kind", "keywords", "blamed"), PLACES)
@pytest.mark.usefixtures("any_keywords")
def test_a_row_names_no_address_no_file_and_no_code_unless_the_caller_allows(kind: str, keywords: dict[str, Any], blamed: str) -> None:
    named = {"env_id": "AnyKeywords-v0"} if kind == "agent_gym/any" else {"env_type": kind}
    changes = {"env_kwargs": {**named, **keywords}, "extra_info": {"goal_index": 1, "context": []}}
    with pytest.raises(
        SampleError, match=rf"^rows\.jsonl line 1: field 'env_kwargs\.{blamed}' is .*no address, no file and no code.*--allow-functions"
    ):
        route(**changes)
    assert dict(route(**changes, settings={"allow_functions": True}).env_kwargs).items() >= keywords.items()


@pytest.mark.parametrize(
    "keywords",
    [
        {"env_type": "hotpotqa", "dataset": "official", "search": "lucene", "context": "token_budget:4096"},
        {"env_type": "paper_search", "published_before": "2024-01-01", "relevance": "bm25"},
        {"env_type": "tool", "system_prompt": "See https://example.org/a.b: think."},
        {"env_type": "textworld", "game": "cooking", "settings": {"recipe": 2}},
        {"env_id": "AnyKeywords-v0", "dataset": "basic_arithmetic", "config": {"operators": ["+", "-", "*", "/"]}, "game": "Mastermind-v0"},
    ],
)
@pytest.mark.usefixtures("any_keywords")
def test_words_and_texts_of_rows_are_no_addresses(keywords: dict[str, Any]) -> None:
    found = route(env_kwargs=keywords)
    assert dict(found.env_kwargs) == {name: value for name, value in keywords.items() if not name.startswith("env_")}


def test_the_words_that_rows_may_say_are_those_of_the_environments() -> None:
    from agent_gym.envs.textworld.challenges import CHALLENGES
    from agent_gym.flows import sample_table

    assert set(sample_table._WORDS["game"]) == set(CHALLENGES)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret", "a/../../b", "C:/x", "~/x", "\\\\host\\x", "http://127.0.0.1:9/x"])
def test_games_of_rows_lie_below_the_folder_of_the_data(path: str) -> None:
    by_field = {"agent_name": "alfworld_agent", "env_kwargs": None, "extra_info": {"game_relative_path": path}}
    by_options = {"env_kwargs": {"env_type": "alfworld"}, "options": {"gamefile": path}}
    for changes, field in ((by_field, "extra_info.game_relative_path"), (by_options, "options.gamefile")):
        with pytest.raises(SampleError, match=rf"^rows\.jsonl line 1: field '{field}' is .*--allow-functions"):
            route(**changes)
        assert route(**changes, settings={"allow_functions": True}).options == {"gamefile": path}


def test_what_the_model_writes_goes_to_no_address_of_a_row(tmp_path: Path) -> None:
    """An own server counts: nobody asks it, whatever way the rows go."""
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    from agent_gym.trainers.environments import read_row, routed

    asked: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(500)

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Listener) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        rows = [
            row(env_kwargs={"env_type": "paper_search", "base_url": url}, reward_model={"style": "rule", "ground_truth": ["2101.00001"]})
        ]
        for way in (
            lambda: route_samples(rows),
            lambda: routed(rows, "AgentR1/Tool-v0"),
            lambda: read_row(rows[0], "AgentR1/Tool-v0"),
        ):
            with pytest.raises(SampleError, match="base_url"):
                way()
        assert not asked
        trusted = route_samples(rows, allow_functions=True).rows
        run_rows(trusted, ScriptedPolicy(lambda env, _turn: str(env.tool_format.render_call("search", {"query": "secret"}))))
        assert asked and "secret" in asked[0], "the control: a trusted row does send it there"
        server.shutdown()


def test_nothing_that_a_row_names_is_imported_unless_the_caller_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "row_code.py").write_text(
        "from pathlib import Path\n"
        f"Path({str(tmp_path / 'was_imported')!r}).write_text('')\n"
        "from agent_gym.envs.tool import ToolEnv\n"
        "class Mine(ToolEnv):\n    pass\n"
        "def length(data_source, solution_str, ground_truth, extra_info):\n    return len(solution_str) / 10\n"
    )
    by_function = {"reward_model": {"style": "function", "function": "row_code:length"}}
    for changes in (by_function, {"env_kwargs": {"env_id": "row_code:Mine"}}):
        with pytest.raises(SampleError, match=r"row_code.*--allow-functions"):
            route(**changes)
        assert "row_code" not in sys.modules and not (tmp_path / "was_imported").exists()
    allowed = {"settings": {"allow_functions": True}}
    found = route(**by_function, **allowed)
    assert (tmp_path / "was_imported").exists() and found.env_kwargs["allow_functions"] is True
    assert found.reward == "function: row_code:length"
    assert returns([found.row()], ["12345"]) == [0.5]
    assert route(env_kwargs={"env_id": "row_code:Mine"}, **allowed).env_id == "Local/Mine-v0"


@pytest.mark.parametrize("truth", [None, [], "", {"target": []}])
def test_a_row_without_a_gold_answer_is_refused_where_rewards_count(truth: Any) -> None:
    bare = row(reward_model={"style": "rule", "ground_truth": truth})
    with pytest.warns(UserWarning, match=r"1 of 2 rows are left out.*row 1: field 'reward_model\.ground_truth' is (null|empty)"):
        found = route_samples([row(), bare])
    assert len(found.rows) == 1 and found.refused[0].where == "row 1" and "no gold answer" in found.refused[0].reason
    with pytest.raises(SampleError, match=r"all 1 rows are refused.*row 0: field 'reward_model\.ground_truth'"):
        route_samples([bare])
    assert len(route_samples([bare], scored=False).rows) == 1


@pytest.mark.parametrize(
    ("kind", "own", "given", "words"),
    [
        ("hotpotqa", {}, {}, "exact match with an accepted answer, 1 or 0"),
        ("hotpotqa", {"reward": "f1"}, {}, "F1 with the nearest accepted answer, 0 to 1"),
        ("hotpotqa", {}, {"reward": "f1"}, "F1 with the nearest accepted answer, 0 to 1"),
        ("hotpotqa", {"reward": "em"}, {"reward": "f1"}, "exact match with an accepted answer, 1 or 0"),
        ("musique", {"search_cost": 0.1}, {}, "exact match with an accepted answer, 1 or 0, less 0.1 for each search"),
        ("2wikimultihopqa", {"format_weight": 0.2}, {}, "exact match with an accepted answer, 1 or 0, and 0.2 for the format"),
        ("paper_search", {}, {}, "the part of the gold papers that was found"),
        ("paper_search", {}, {"reward": "process", "relevance": "bm25"}, "the relevance of new papers by bm25"),
        ("paper_search", {"reward": "process"}, {}, "the relevance of new papers by the gold list"),
        (
            "paper_search",
            {"reward": "both", "expand_cost": 0.5},
            {},
            "the part of the gold papers that was found, and the relevance of new papers by the gold list, less 0.5 for each expansion",
        ),
    ],
)
def test_the_reward_is_told_as_the_keywords_have_it(kind: str, own: dict[str, Any], given: dict[str, Any], words: str) -> None:
    assert route(env_kwargs={"env_type": kind, **own}, settings={"env_kwargs": given}).reward == f"rule: {words}"


def test_papers_without_gold_are_trained_on_only_by_a_reward_that_needs_none() -> None:
    bare = row(agent_name="paper_search_agent", env_kwargs=None, reward_model={"style": "rule", "ground_truth": None})
    with pytest.raises(SampleError, match=r"--env-arg reward=process --env-arg relevance=bm25 rewards without one"):
        route_samples([bare])
    assert len(route_samples([bare], env_kwargs={"reward": "process", "relevance": "bm25"}).rows) == 1
    with pytest.raises(SampleError, match="refused"):
        route_samples([bare], env_kwargs={"reward": "process"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env_kwargs": {"env_type": "tool", "max_turns": -1}}, "field 'env_kwargs.max_turns': max_turns must be a positive whole number"),
        ({"env_kwargs": {"env_type": "tool", "tools": ["calculater"]}}, "field 'env_kwargs.tools': there is no tool named 'calculater'"),
        ({"env_kwargs": {"env_id": "FrozenLake-v1", "map_name": "nowhere"}}, "field 'env_kwargs.map_name': KeyError: 'nowhere'"),
        ({"env_kwargs": {"env_id": "CartPole-v1"}}, "field 'env_kwargs': TypeError: CartPoleEnv"),
        (
            {"agent_name": "alfworld_agent", "env_kwargs": None, "extra_info": {"game_relative_path": "no/game"}},
            "field 'extra_info.game_relative_path': FileNotFoundError: there is no game",
        ),
        ({"prompt": "word " * 20_000}, "field 'prompt': the first prompt of task '3' has"),
        ({"options": {"tsk": 1}}, "field 'options.tsk': reset does not know the option 'tsk'.*did you mean 'task'"),
    ],
)
def test_what_shows_only_when_an_environment_is_made_is_said_with_file_row_and_field_too(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write_rows([row(), row(**changes)], tmp_path / "rows.jsonl")
    with pytest.raises(ValueError, match=rf"(?s)^rows\.jsonl line 2: {message}"):
        returns(route_samples(path).rows, ["<answer>42</answer>"])


def test_pages_that_a_question_lacks_are_a_fault_of_its_field() -> None:
    bare = route(env_kwargs={"env_type": "hotpotqa"})
    with pytest.raises(ValueError, match=r"^rows\.jsonl line 1: field 'extra_info\.context': task '3' has no paragraphs"):
        returns([bare.row()], ["<answer>42</answer>"])


def test_rows_with_keywords_each_of_their_own_do_not_pile_up_environments() -> None:
    from agent_gym.flows import EnvPool

    made, closed = [], []

    def make(asked: dict[str, Any]) -> Any:
        import gymnasium

        env = gymnasium.make(asked["env_id"], **asked["env_kwargs"])
        made.append(env)
        shut = env.close
        env.close = lambda: (closed.append(env), shut())  # type: ignore[method-assign]
        return env

    rows = [route(env_kwargs={"env_type": "tool", "max_turns": n}).row() for n in range(1, 13)]
    pool = EnvPool(make, max_idle=2)
    run_rows(rows, ScriptedPolicy(["<answer>42</answer>"]), pool=pool, max_concurrency=2)
    assert len(made) == 12 and len(made) - len(closed) <= 4
    run_rows(rows[-1:] * 3, ScriptedPolicy(["<answer>42</answer>"]), pool=pool, max_concurrency=1)
    assert len(made) == 12, "the kind used last is still there"
    pool.close()
    assert len(closed) == 12


# ---------------------------------------------------------------------------------------------------- one meaning in every container


@pytest.fixture(params=["jsonl", "json", "parquet", "dataset", "numpy", "unnamed parquet"])
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    def hold(rows: list[dict[str, Any]]) -> Any:
        kind = request.param
        if kind == "jsonl":
            return write_rows(rows, tmp_path / "rows.jsonl")
        if kind == "json":
            (tmp_path / "rows.json").write_text(json.dumps(rows))
            return tmp_path / "rows.json"
        if kind == "numpy":
            pandas = require("pandas")
            write_rows(rows, tmp_path / "rows.parquet")
            return pandas.read_parquet(tmp_path / "rows.parquet").to_dict("records")
        if kind == "dataset":
            return require("datasets").Dataset.from_list(rows)
        require("pyarrow")
        path = write_rows(rows, tmp_path / "rows.parquet")
        return path.rename(tmp_path / "rows") if kind == "unnamed parquet" else path

    return hold


def test_rows_mean_the_same_in_every_container(container: Any) -> None:
    """Structs against JSON strings, members that Arrow fills with None, arrays of numpy."""
    rows = [
        row(
            env_kwargs={"env_type": "tool", "tools": ["calculator"], "max_turns": 4}, reward_model={"style": "rule", "ground_truth": ["42"]}
        ),
        row(env_kwargs={"env_type": "tool", "max_action_tokens": 64}, reward_model={"style": "rule", "ground_truth": ["7", "seven"]}),
        row(
            env_kwargs={"env_type": "hotpotqa", "top_k": 2},
            reward_model={"style": "rule", "ground_truth": ["x"]},
            extra_info={"index": 9, "question_id": "q9"},
        ),
    ]
    found: RoutedRows = route_samples(container(rows))
    plain = route_samples(rows)
    for one, other in zip(found.routes, plain.routes, strict=True):
        assert (one.env_id, dict(one.env_kwargs), one.flow, one.seed) == (other.env_id, dict(other.env_kwargs), other.flow, other.seed)
        assert json.dumps(dict(one.options), sort_keys=True) == json.dumps(dict(other.options), sort_keys=True)
    assert has_samples(rows) and not has_samples([{"env_id": "x"}]) and not has_samples(None)


LETTERS = 'aB9 é漢#{}[]"\\\n'
VALUES = st.one_of(st.text(LETTERS, max_size=6), st.integers(-99, 99), st.booleans(), st.none(), st.floats(-9, 9))


@given(
    st.dictionaries(st.text(LETTERS, min_size=1, max_size=5), VALUES, max_size=3),
    st.lists(st.text(LETTERS, min_size=1, max_size=8), min_size=1, max_size=3),
    st.text(LETTERS, min_size=1, max_size=20),
)
def test_a_route_is_plain_json_and_keeps_what_the_row_holds(extra: dict[str, Any], golds: list[str], text: str) -> None:
    found = route(extra_info=extra, reward_model={"style": "rule", "ground_truth": golds}, prompt=f"?{text}")
    task = json.loads(json.dumps(found.row()))["options"]["task"]
    assert task["prompt"] == f"?{text}"
    assert task["reward_model"]["ground_truth"] == golds
    assert task["extra_info"] == {name: value for name, value in extra.items() if value is not None}
    assert bool(found.unscored) == (not any(gold.strip() for gold in golds))


# ---------------------------------------------------------------------------------------------------- published rows, played to their ends


@pytest.fixture(scope="module")
def pages(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One corpus of the paragraphs of real rows."""
    pages: dict[str, str] = {}
    for line in (data_dir / "hotpotqa" / "distractor.jsonl").read_text(encoding="utf-8").splitlines()[:20]:
        for title, sentences in json.loads(line)["context"]:
            pages[title] = "".join(sentences)
    path = tmp_path_factory.mktemp("corpus") / "pages.jsonl"
    path.write_text("".join(json.dumps({"id": str(n), "title": t, "text": x}) + "\n" for n, (t, x) in enumerate(pages.items())))
    return str(path)


def keywords_of(name: str, pages: str, data_dir: Path) -> dict[str, Any]:
    if name.startswith("hotpotqa"):
        return {"corpus": pages}
    return {"corpus": str(data_dir / "papers" / "unarxive_sample" / "papers.jsonl")} if name.startswith("papers") else {}


PUBLISHED = ["gsm8k/rows_agent_r1.jsonl", "gsm8k/rows_agent_r1.parquet", "hotpotqa/rows_agent_r1.parquet", "papers/pasa_rows.parquet"]


def test_every_published_file_is_among_those_that_are_played(data_dir: Path) -> None:
    there = [*data_dir.glob("*/rows_agent_r1*"), *data_dir.glob("*/pasa_rows*")]
    assert sorted(path.relative_to(data_dir).as_posix() for path in there) == PUBLISHED


@pytest.mark.parametrize("name", PUBLISHED[:3])
def test_in_published_rows_the_gold_answer_is_worth_the_most_and_a_wrong_one_less(name: str, data_dir: Path, pages: str) -> None:
    require("pyarrow")
    found = route_samples(data_dir / name)
    assert len(found.rows) in (20, 100) and not found.refused
    rows = [{**one, "env_kwargs": {**keywords_of(name, pages, data_dir), **one["env_kwargs"]}} for one in found.rows]
    golds = {one.options["task"]["prompt"][-1]["content"]: one.sample.answers[0] for one in found.routes}

    def gold(env: Any, _turn: int) -> str:
        return f"<answer>{golds[env.task['question']]}</answer>"

    def as_the_prompt_asks(env: Any, turn: int) -> str:
        answer = golds[env.task["question"]]
        if name.startswith("gsm8k") and turn == 0:
            return str(env.tool_format.render_call("calc_gsm8k_reward", {"answer": answer}))
        return f"It is\n#### {answer}" if name.startswith("gsm8k") else gold(env, turn)

    def wrong(env: Any, turn: int) -> str:
        return "<answer>certainly 0.123 of nothing</answer>" if turn else str(env.tool_format.render_call(next(iter(env.tool_set)), {}))

    right = returns(rows, gold)
    assert right == [1.0] * len(rows)
    assert returns(rows, as_the_prompt_asks) == right
    assert all(worse < better for worse, better in zip(returns(rows, wrong), right, strict=True))


def test_published_rows_without_gold_are_played_twice_alike_and_refused_for_training(data_dir: Path, pages: str) -> None:
    require("pyarrow")
    name = PUBLISHED[3]
    with pytest.raises(SampleError, match=r"all 18 rows are refused.*pasa_rows\.parquet row 0: field 'reward_model\.ground_truth' is null"):
        route_samples(data_dir / name)
    found = route_samples(data_dir / name, scored=False)
    rows = [{**one, "env_kwargs": {**keywords_of(name, pages, data_dir), **one["env_kwargs"]}} for one in found.rows]

    def search_and_finish(env: Any, turn: int) -> str:
        return str(
            env.tool_format.render_call("search", {"query": env.query.question}) if turn == 0 else env.tool_format.render_call("finish", {})
        )

    assert returns(rows, search_and_finish) == returns(rows, search_and_finish)
    assert len(rows) == 18


def test_the_example_of_the_docs_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "samples.md").read_text(encoding="utf-8")
    exec(page.split("```python\n")[1].split("```")[0], {})  # our own page
    for line in capsys.readouterr().out.splitlines():
        assert f"`{line}`" in page
    row = json.loads(page.split("```json\n")[1].split("```")[0])
    assert returns(route_samples([row]).rows, ["#### 42"]) == [1.0]
