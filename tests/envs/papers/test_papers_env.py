"""`AgentR1/PaperSearch-v0`: what is found, shown, paid and counted, who plays it how well, and what a user can get wrong."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from helpers import follow
from hypothesis import given, settings
from hypothesis import strategies as st
from papers_play import PAPERS, ROW, begun, calls, ids, made, shown, step

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.data.papers import Paper
from agent_gym.envs.papers import LocalLibrary, PaperSearchEnv
from agent_gym.testing import check_agent_env
from agent_gym.tools import FORMATS
from agent_gym.trajectory import StopReason

NAME = "AgentR1/PaperSearch-v0"


@pytest.fixture(scope="module")
def env() -> PaperSearchEnv:
    return PaperSearchEnv()


# ------------------------------------------------------------------------------------------------ the task


def test_it_is_made_by_its_id_and_its_defaults_are_the_generated_literature() -> None:
    wrapped = gymnasium.make(NAME)
    env = wrapped.unwrapped
    assert isinstance(env, PaperSearchEnv)
    assert (env.max_turns, env.max_observation_tokens, env.max_tool_result_tokens, type(env.context).__name__) == (10, 8192, 512, "Rebuild")
    _, info = wrapped.reset(seed=0)
    assert (info["dataset"], info["relevance"], info["date_filter"], info["recall"], info["n_gold"] >= 3) == (
        "embedded",
        "gold",
        "strict",
        0.0,
        True,
    )
    assert env.num_tasks is None and sorted(env.tool_set) == ["expand", "finish", "search"]


def test_making_and_playing_it_loads_no_torch() -> None:
    program = (
        "import sys, gymnasium, agent_gym; env = gymnasium.make('AgentR1/PaperSearch-v0'); env.reset(seed=0);"
        "env.step(env.unwrapped.encode_action(env.unwrapped.expert()())); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_task_is_a_function_of_split_and_seed(env: PaperSearchEnv) -> None:
    env.reset(seed=5)
    first = env.query.id
    env.reset()
    assert env.query.id != first
    env.reset(seed=5)
    assert env.query.id == first
    other = PaperSearchEnv(split="test")
    other.reset(seed=5)
    assert other.query.id != first and other.query.id.startswith("papers-test-")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"index": -1}, "counted from 0"),
        ({"index": "1"}, "whole number"),
        ({"task": {"question": "Q?"}}, "answer_arxiv_id"),
        ({"seed": 1}, "does not know"),
    ],
)
def test_options_that_cannot_be_used_are_named(env: PaperSearchEnv, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        env.reset(options=options)


def test_a_row_can_bring_its_papers_or_be_asked_of_the_environments(env: PaperSearchEnv) -> None:
    env.reset(options={"task": ROW})
    step(env, ("search", "owls"))
    assert env.pool and env.library.name == "papers"
    bare = {name: value for name, value in ROW.items() if name != "papers"}
    with pytest.raises(ValueError, match="no papers to search in"):
        env.reset(options={"task": bare})
    shared = PaperSearchEnv(corpus=PAPERS, dataset=[bare])
    shared.reset(seed=0)
    assert step(shared, ("search", "owls"))[1]["n_found"] == 2


# ------------------------------------------------------------------------------------------------ searching and expanding


def test_searches_and_expansions_fill_the_pool() -> None:
    env = begun()
    reward, info, over = step(env, ("search", "owls"))
    assert set(ids(env)) == {"2101.00001", "2103.00002"} and reward == pytest.approx(2 / 3) and not over
    assert (info["recall"], info["precision"], info["n_searches"], info["pool_size"]) == (pytest.approx(2 / 3), 1.0, 1, 2)
    reward, info, over = step(env, ("expand", "[arXiv:2101.00001v3]"))
    assert ids(env)[2:] == ["1905.00002", "cs/0112017"], "citing papers first, ids in any spelling, no late paper"
    assert reward == pytest.approx(1 / 3) and (info["recall"], info["precision"], info["n_expansions"]) == (1.0, 0.75, 1)
    assert not info["is_success"], "success is an episode that ended with everything found"
    reward, info, over = step(env, "finish")
    assert (reward, over, info["is_success"], info["stop_reason"]) == (0.0, True, True, StopReason.FINISH_CALL)


def test_calls_of_one_reply_see_the_pool_as_it_was_and_are_taken_in_their_order() -> None:
    env = begun(reward="process")
    reward, info, _ = step(env, ("search", "Owls"), ("expand", "2101.00001"), ("search", " owls "), "finish")
    assert (info["n_repeated"], info["n_searches"], info["n_expansions"]) == (2, 1, 0), (
        "the paper was not found yet, and the query was made before"
    )
    assert reward == pytest.approx(2 - 2 * 0.5) and info["stop_reason"] == StopReason.FINISH_CALL and not info["is_success"]


@pytest.mark.parametrize("text", ["I have them all.", "<answer>done</answer>"])
def test_a_reply_without_a_call_ends_the_search(text: str) -> None:
    env = begun()
    step(env, ("search", "owls"))
    step(env, ("expand", "2101.00001"))
    _, reward, terminated, _, info = env.step(env.encode_action(text))
    assert (reward, terminated, info["is_success"]) == (0.0, True, True)
    env.reset()
    _, _, terminated, _, info = env.step(env.encode_action(text))
    assert terminated and not info["is_success"] and info["recall"] == 0.0


def test_what_is_no_call_is_answered_and_shown(env: PaperSearchEnv) -> None:
    env.reset(options={"task": ROW})
    for text in (
        "<tool_call>{",
        calls(env, ("search", "x")).replace("query", "words"),
        '<tool_call>{"name": "open", "arguments": {}}</tool_call>',
    ):
        _, reward, terminated, truncated, info = env.step(env.encode_action(text))
        assert reward == 0.0 and not terminated and not truncated and not info["action_valid"]
    assert "Errors:" in shown(env) and "unknown_tool" in shown(env) and info["pool_size"] == 0
    _, info, _ = step(env, *[("search", f"owls {number}") for number in range(7)])
    assert info["n_searches"] == 5 and not info["action_valid"] and "at most 5 calls" in shown(env)


def test_a_query_without_words_finds_nothing_and_is_a_query() -> None:
    env = begun(reward="both")
    assert step(env, ("search", " "))[0] == 0.0
    reward, info, _ = step(env, ("search", "\n"))
    assert reward == -0.5 and info["n_repeated"] == 1


def test_the_turn_limit_truncates_and_is_no_success() -> None:
    env = begun(max_turns=2)
    step(env, ("search", "owls"))
    _, info, over = step(env, ("expand", "2101.00001"))
    assert over and info["stop_reason"] == StopReason.MAX_TURNS and info["recall"] == 1.0 and not info["is_success"]


# ------------------------------------------------------------------------------------------------ the reward

MOVES = [("search", "owls"), ("search", "bats"), ("search", "zorm"), ("search", "nothing"), ("expand", "2101.00001"), ("expand", "2103.00002"), ("expand", "cs/0112017"), ("expand", "?")]  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(MOVES), min_size=1, max_size=4), min_size=1, max_size=5),
    st.sampled_from(["strict", "lenient", "off"]),
)
def test_rewards_of_the_outcome_telescope_to_recall(turns: list[list[tuple[str, str]]], date_filter: str) -> None:
    env = begun(date_filter=date_filter, context="append", max_observation_tokens=32768)
    total = 0.0
    for turn in turns:
        reward, info, _ = step(env, *turn)
        total += reward
        assert info["reward_parts"] == {"outcome": reward, "process": 0.0, "repetition": 0.0, "cost": 0.0}
        assert total == pytest.approx(info["recall"]) and total == pytest.approx(info["n_found"] / 3)


class PaysForSeenPapers(PaperSearchEnv):
    """The mutant: a gold paper is paid each time it is shown."""

    def _noted(self, result: Any, limit: int) -> Any:
        noted = super()._noted(result, limit)
        seen = [one.id for one in result.info["lookup"].papers] if "lookup" in result.info else []
        self._turn_parts["outcome"] = sum(one in self.query.gold for one in seen) / 3
        return noted


def test_a_reward_that_pays_twice_is_caught() -> None:
    env = PaysForSeenPapers(dataset=[ROW])
    env.reset(seed=0)
    total = step(env, ("search", "owls"))[0] + step(env, ("search", "owls at night"))[0]
    assert total > env._figures["recall"]


@pytest.mark.parametrize("seed", range(3))
def test_rewards_of_generated_questions_telescope_too(env: PaperSearchEnv, seed: int) -> None:
    for script in (None, PaperSearchEnv.baselines["random_reader"](seed)):
        rewards, info = follow(env, script, options={"index": 100 + seed})
        assert math.fsum(rewards) == pytest.approx(info["recall"])


def values(question: str, papers: Any) -> list[float]:
    return [{"2101.00001": 0.9, "2103.00002": 0.5, "cs/0112017": 0.3, "1905.00002": 0.2}.get(one.id, 0.05) for one in papers]


def test_the_process_reward_is_that_of_the_best_new_papers_less_repetitions_and_costs() -> None:
    env = begun(reward="process", relevance=values, date_filter="off", search_cost=0.01, expand_cost=0.1)
    reward, info, _ = step(env, ("search", "owls night bats"))  # four papers, the late one among them
    assert len(ids(env)) == 4 and reward == pytest.approx(0.9 + 0.5 + 0.2 - 0.01)
    assert info["reward_parts"] == pytest.approx({"outcome": 0.0, "process": 1.6, "repetition": 0.0, "cost": -0.01})
    assert step(env, ("expand", "2101.00001"))[0] == pytest.approx(0.3 - 0.1), "of the papers that are new alone"
    assert step(env, ("expand", "2101.00001v9"))[0] == pytest.approx(-0.5), "a repetition costs its penalty, and no look-up"
    assert step(env, ("search", "NIGHT"), ("search", "night"), ("expand", "never.seen"))[0] == pytest.approx(-0.01 - 0.5 - 0.5)


def test_the_process_reward_has_a_threshold_and_a_number_of_papers() -> None:
    env = begun(reward="process", relevance=values, relevance_threshold=0.4, reward_top_k=5)
    assert step(env, ("search", "owls night bats"))[0] == 2.0
    env = begun(reward="process", relevance=values, reward_top_k=1, duplicate_penalty=0.25)
    assert step(env, ("search", "owls"), ("search", "owls"))[0] == pytest.approx(0.9 - 0.25)


def test_both_rewards_are_the_sum_of_their_parts() -> None:
    env = begun(reward="both", relevance=values)
    reward, info, _ = step(env, ("search", "owls"), ("search", "owls"))
    assert info["reward_parts"] == pytest.approx({"outcome": 2 / 3, "process": 1.4, "repetition": -0.5, "cost": 0.0})
    assert reward == pytest.approx(sum(info["reward_parts"].values()))


def test_irrelevant_papers_are_left_out_where_that_is_asked_for() -> None:
    env = begun(relevance=values, min_relevance=0.25)
    step(env, ("search", "owls night bats"))
    assert set(ids(env)) == {"2101.00001", "2103.00002"}
    under_gold = begun(min_relevance=0.25)
    step(under_gold, ("search", "owls night bats"))
    assert "1905.00002" in under_gold.pool, "a threshold by the gold list would show who is on it"


# ------------------------------------------------------------------------------------------------ relevance


def test_the_gold_list_decides_nothing_that_is_shown() -> None:
    """The same literature with another gold list prints the same prompts, and pays other rewards."""
    other = {**ROW, "answer": ["Bats"], "answer_arxiv_id": ["1905.00002"]}
    prompts, rewards = [], []
    for row in (ROW, other):
        env = PaperSearchEnv(dataset=[row], reward="both")
        env.reset(seed=0)
        reward = step(env, ("search", "owls night bats"))[0]
        reward += step(env, ("expand", "2101.00001"))[0]
        prompts.append(shown(env))
        rewards.append(reward)
    assert prompts[0] == prompts[1] and rewards[0] != rewards[1]


class ShowsGold(PaperSearchEnv):
    """The mutant: papers are shown with what they are paid."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._shown_by = self._relevance


def test_an_environment_that_shows_the_gold_list_is_caught() -> None:
    prompts = []
    for gold in (["2101.00001"], ["1905.00002"]):
        env = ShowsGold(dataset=[{**ROW, "answer": ["T"], "answer_arxiv_id": gold}])
        env.reset(seed=0)
        step(env, ("search", "owls night bats"))
        prompts.append(shown(env))
    assert prompts[0] != prompts[1]


def test_bm25_is_between_zero_and_one_and_does_not_depend_on_what_else_was_found() -> None:
    alone, together = begun(relevance="bm25", reward="process"), begun(relevance="bm25", reward="process")
    step(alone, ("search", "owls"))
    step(together, ("search", "bats night vell"))
    step(together, ("search", "owls"))
    for one in alone.pool.found.values():
        assert 0 < one.relevance < 1 and one.relevance == one.score == together.pool.found[one.paper.id].relevance
    assert together.pool.found["cs/0112017"].relevance == 0.0


@pytest.mark.parametrize("given_back", [[1.0], "text", [math.nan, 1.0], None, [1.0, "x"]])
def test_a_relevance_that_gives_nonsense_is_the_programmers_mistake(given_back: Any) -> None:
    env = begun(relevance=lambda question, papers: given_back, reward="process")
    with pytest.raises(ValueError, match="relevance <lambda> must return"):
        step(env, ("search", "owls"))


def test_a_relevance_that_raises_is_no_tools_error_text() -> None:
    def breaks(question: str, papers: Any) -> list[float]:
        raise KeyError("programmer")

    with pytest.raises(KeyError, match="programmer"):
        step(begun(relevance=breaks), ("search", "owls"))


def test_a_relevance_object_is_taken_as_it_is() -> None:
    class Lengths:
        name, remote = "lengths", False

        def score(self, task: Any, papers: Any, library: Any) -> list[float]:
            return [float(len(one.title)) for one in papers]

    env = begun(relevance=Lengths(), reward="process")
    assert step(env, ("search", "owls"))[0] == len("Owls at Night") + len("Owls by Day")
    assert step(env, "finish")[1]["relevance"] == "lengths"


# ------------------------------------------------------------------------------------------------ the prompt


def test_a_rebuilt_prompt_shows_question_day_calls_and_pool() -> None:
    env = begun()
    assert ROW["question"] in shown(env) and "before 2022-11-01" in shown(env) and "Papers found" not in shown(env)
    step(env, ("search", "owls"))
    _, info, _ = step(env, ("expand", "2101.00001"), ("search", "owls"))
    text = shown(env)
    for part in (
        '- search "owls": 2 papers, 2 new', "- expand 2101.00001: 2 papers, 2 new", '- search "owls": done before, nothing new',
        "Papers found so far (4, of which 4 are shown", "EXP Owls at Night (2021)\nWe watch owls hunt at night.", "NEW Zorm (2001)\nZorm is vell.", "You have 8 replies left.",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("Owls at Night") == 1 and info["context_rewritten"] and "tool_response" not in text.split("</tools>")[1]


def test_the_state_is_the_same_whatever_led_to_it() -> None:
    one, other = begun(), begun()
    step(one, ("search", "owls"))
    first = step(one, ("search", "bats"))[1]["state_key"]
    assert first == step(other, ("search", "BATS"), ("search", "owls"))[1]["state_key"]
    assert first != step(other, ("expand", "1905.00002"))[1]["state_key"]


def test_half_of_the_shown_papers_are_expanded_ones_and_room_is_filled() -> None:
    papers = [{"paper_id": f"p{number}", "title": f"Owl {number}", "references": [f"p{(number + 1) % 30}"]} for number in range(30)]
    env = PaperSearchEnv(dataset=[{**ROW, "papers": papers, "answer_arxiv_id": ["p1"]}], date_filter="off", pool_size=6, top_k=30)
    env.reset(seed=0)
    step(env, ("search", "owl"))
    assert (shown(env).count("] (0."), shown(env).count(" EXP ")) == (6, 0)
    step(env, *[("expand", f"p{number}") for number in range(5)])
    assert (shown(env).count("] (0."), shown(env).count(" EXP "), len(env.pool.shown(6))) == (6, 3, 6)
    step(env, *[("expand", f"p{number}") for number in range(5, 10)])
    assert [one.expanded for one in env.pool.shown(26)] == [True] * 10 + [False] * 16, "more of one where there are fewer of the other"


@settings(max_examples=8, deadline=None)
@given(st.integers(420, 3000), st.integers(0, 3))
def test_a_rebuilt_prompt_never_exceeds_its_budget_and_never_cuts_the_task(budget: int, turns: int) -> None:
    papers = [{"paper_id": f"p{number}", "title": f"Owl {number} " + "tit " * number, "abstract": "word " * 900} for number in range(40)]
    env = PaperSearchEnv(dataset=[{**ROW, "papers": papers, "answer_arxiv_id": ["p1"]}], date_filter="off", rebuild_tokens=budget, top_k=40)
    env.reset(seed=0)
    for turn in range(turns + 1):
        _, info, _ = step(env, ("search", "owl " + "and " * 50 * turn), ("expand", "p3"), ("search", "?" * 300))
        assert info["observation_length"] <= budget
        assert ROW["question"] in shown(env) and '"name": "finish"' in shown(env)


def test_a_task_beyond_the_budget_is_refused_with_its_length_and_the_limit() -> None:
    with pytest.raises(ValueError, match=r"have \d+ tokens, and rebuild_tokens is 100"):
        begun(rebuild_tokens=100)


def test_an_appended_prompt_shows_each_result_where_it_came() -> None:
    env = begun(context="append", max_observation_tokens=32768)
    _, info, _ = step(env, ("search", "owls"), ("expand", "2101.00001"))
    text = shown(env)
    assert 'search "owls": 2 papers, 2 new' in text and "[2101.00001]" in text and "We watch owls hunt" in text
    assert "expand 2101.00001: no such paper was found yet" in text and not info["context_rewritten"]
    step(env, ("expand", "2101.00001"))
    assert shown(env).startswith(text) and "found before" not in shown(env)
    step(env, ("search", "owls bats"))
    assert "[2101.00001] found before" in shown(env)


@pytest.mark.parametrize("room", [400, 1500])
def test_every_paper_of_a_result_is_named_before_any_abstract_is(room: int) -> None:
    papers = [{"paper_id": f"p{number}", "title": f"Owl {number}", "abstract": "long words here " * 100} for number in range(10)]
    env = PaperSearchEnv(dataset=[{**ROW, "papers": papers, "answer_arxiv_id": ["p1"]}], date_filter="off", context="append", max_tool_result_tokens=room, max_observation_tokens=32768)  # fmt: skip
    env.reset(seed=0)
    _, info, _ = step(env, ("search", "owl"))
    assert all(f"[p{number}]" in info["feedback"] for number in range(10)) and ("long words" in info["feedback"]) == (room == 1500)


@pytest.mark.parametrize("context", ["rebuild", "append", "window:2"])
@pytest.mark.parametrize("tokenizer", ["default", "qwen3"])
def test_the_expert_finds_everything_in_every_context(context: str, tokenizer: str, request: pytest.FixtureRequest) -> None:
    opened = request.getfixturevalue("qwen3_path") if tokenizer == "qwen3" else None
    env = PaperSearchEnv(tokenizer=opened, context=context)
    for index in range(3):
        rewards, info = follow(env, options={"index": index})
        assert info["is_success"] and math.fsum(rewards) == pytest.approx(1.0) and info["n_expansions"] >= 1


# ------------------------------------------------------------------------------------------------ who plays it how well


def waste(env: PaperSearchEnv, turn: int) -> str:
    """As long as an action may be, with as many calls as a reply may hold."""
    wanted = [("search", f"{one.paper.title} {turn}") for one in env.pool.ranked()[:3]] or [("search", env.query.question)] * 3
    text = calls(env, *wanted, *[("expand", one.paper.id) for one in env.pool.ranked() if not one.expanded][:2])
    return "again " * max(0, (env.max_action_tokens - len(env.encode_action(text)) - 4) // 4) + text


@pytest.mark.parametrize("tokenizer", ["default", "qwen3"])
@pytest.mark.parametrize(("script", "number"), [(None, 200), (waste, 6), (lambda env, turn: "<tool_call> </tool_call>"[turn:], 3)])
def test_nobody_meets_the_context_limit_under_the_defaults(
    tokenizer: str, script: Callable[[Any, int], str] | None, number: int, request: pytest.FixtureRequest
) -> None:
    if number == 200 and tokenizer == "qwen3":
        number = 40
    opened = request.getfixturevalue("qwen3_path") if tokenizer == "qwen3" else None
    made = [PaperSearchEnv(tokenizer=opened, split=split) for split in ("train", "validation", "test")]
    played = [follow(made[index % 3], script, options={"index": index}) for index in range(number)]
    assert {info["stop_reason"] for _, info in played} == {StopReason.FINISH_CALL if script is None else StopReason.MAX_TURNS}
    if script is None:
        assert all(info["is_success"] and info["recall"] == 1.0 and info["n_expansions"] >= 1 for _, info in played)


def test_searching_alone_never_succeeds_and_expanding_blindly_is_no_expert(env: PaperSearchEnv) -> None:
    figures = {}
    for name, make in PaperSearchEnv.baselines.items():
        played = [follow(env, make(0), options={"index": index})[1] for index in range(12)]
        figures[name] = (sum(info["recall"] for info in played) / 12, sum(info["is_success"] for info in played))
        if name == "search_only":
            assert all(info["n_expansions"] == 0 and not info["is_success"] and info["n_found"] <= info["n_gold"] - 2 for info in played)
    assert 0.1 < figures["search_only"][0] < figures["random_reader"][0] < figures["expand_best"][0] - 0.1 < 0.9, "recall, in this order"


def test_the_expert_goes_on_from_where_the_model_is(env: PaperSearchEnv) -> None:
    env.reset(options={"index": 7})
    step(env, ("search", "nothing of the kind"))
    step(env, ("expand", "?"))
    expert = env.expert()
    assert expert is not None
    info: dict[str, Any] = {}
    while not info.get("is_success"):
        *_, info = env.step(env.encode_action(expert()))
    assert info["turn"] <= 7


def test_an_expert_with_few_turns_makes_its_calls_in_parallel() -> None:
    for turns in (3, 4):
        info = follow(PaperSearchEnv(max_turns=turns), options={"index": 3})[1]
        assert info["stop_reason"] == StopReason.FINISH_CALL


def test_what_cannot_be_found_the_expert_leaves() -> None:
    row = {**ROW, "answer": ["Owls at Night", "Gone"], "answer_arxiv_id": ["2101.00001", "2105.77777"]}
    _, info = follow(PaperSearchEnv(dataset=[row]), seed=0)
    assert info["stop_reason"] == StopReason.FINISH_CALL and info["recall"] == 0.5 and not info["is_success"]


@pytest.mark.parametrize("tool_format", sorted(set(FORMATS) - {"search_tags"}))
def test_the_expert_writes_its_calls_in_any_format(tool_format: str) -> None:
    assert follow(PaperSearchEnv(tool_format=tool_format), options={"index": 2})[1]["is_success"]


def test_a_format_that_can_only_search_is_left_at_that() -> None:
    info = follow(PaperSearchEnv(tool_format="search_tags"), options={"index": 2})[1]
    assert info["n_searches"] == 1 and not info["is_success"]


# ------------------------------------------------------------------------------------------------ keywords


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"reward": "recall"}, "reward must be one of"),
        ({"relevance": "words"}, "relevance must be"),
        ({"relevance": 3}, "relevance must be"),
        ({"relevance": "http"}, "go together"),
        ({"relevance_url": "http://127.0.0.1:1/classify"}, "go together"),
        ({"relevance": "http", "relevance_url": "ftp://x"}, "url must look like"),
        ({"date_filter": "soft"}, "date_filter must be one of"),
        ({"published_before": "soon"}, "2023-02-24"),
        ({"published_before": 2023}, "published_before must be a day"),
        ({"top_k": 0}, "top_k"),
        ({"pool_size": 0}, "pool_size"),
        ({"citations_limit": -1}, "citations_limit"),
        ({"search_cost": -1.0}, "must not be negative"),
        ({"duplicate_penalty": math.nan}, "finite number"),
        ({"relevance_threshold": "0.4"}, "finite number"),
        ({"corpus": PAPERS, "base_url": "http://127.0.0.1:1"}, "pass one of them"),
        ({"corpus": "http://127.0.0.1:1"}, "base_url="),
        ({"corpus": 7}, "corpus must be"),
        ({"base_url": "127.0.0.1"}, "url must look like"),
        ({"base_url": "http://127.0.0.1:1/?q=1"}, "no query"),
        ({"base_url": "http://127.0.0.1:notaport"}, "url must look like"),
        ({"dataset": [{name: value for name, value in ROW.items() if name != "papers"}]}, "1 of the 1 questions of rows have no papers"),
        ({"split": "dev"}, "split must be one of"),
    ],
)
def test_keywords_that_cannot_be_used_are_named(keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PaperSearchEnv(**keywords)


def test_a_missing_corpus_and_an_early_question_are_told() -> None:
    with pytest.raises(FileNotFoundError, match="paper_id"):
        PaperSearchEnv(corpus="nowhere/papers.jsonl")
    with pytest.raises(ResetNeeded):
        _ = PaperSearchEnv().query
    with pytest.raises(ResetNeeded):
        _ = PaperSearchEnv().library


def test_a_library_of_ones_own_is_searched() -> None:
    class Loud(LocalLibrary):
        def search(self, query: str, k: int, bound: Any) -> list[Paper]:
            return super().search(query.lower().replace("eulen", "owls"), k, bound)

    from agent_gym.data.papers import PaperCorpus

    env = PaperSearchEnv(dataset=[{name: value for name, value in ROW.items() if name != "papers"}], corpus=Loud(PaperCorpus.read(PAPERS)))
    env.reset(seed=0)
    assert step(env, ("search", "EULEN"))[1]["n_found"] == 2


def test_limits_of_an_expansion_count_what_may_be_shown() -> None:
    env = made(citations_limit=1, references_limit=1)
    env.reset(seed=0)
    step(env, ("search", "zorm"))
    step(env, ("expand", "cs/0112017"))
    assert ids(env) == ["cs/0112017", "2101.00001"]


@pytest.mark.parametrize("context", ["append", "window:2"])
def test_it_conforms_where_the_context_grows_or_slides(context: str) -> None:
    wanted = ("token_exactness", "control_tokens", "observation_length", "astep", "reset_leak", "info_keys")
    check_agent_env(NAME, kwargs={"context": context}, checks=wanted, steps=4).raise_if_failed()


def test_it_conforms_under_a_real_tokenizer(qwen3_path: str) -> None:
    """What depends on the tokenizer; the whole list is run on every id under the default one."""
    wanted = (
        "expert_succeeds",
        "token_spaces",
        "observation_length",
        "token_exactness",
        "padding",
        "end_of_turn",
        "any_action",
        "control_tokens",
    )
    check_agent_env(NAME, kwargs={"tokenizer": qwen3_path, "context": "append"}, checks=wanted, steps=4).raise_if_failed()
