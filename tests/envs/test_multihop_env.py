"""`AgentR1/TwoWikiMultihopQA-v0` and `AgentR1/MuSiQue-v0`: HotpotQA's environment under the rules of two other data sets."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from hotpotqa_play import PAGES, ROW, call, follow, play

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.chat import load_tokenizer
from agent_gym.data.two_wiki_world import two_wiki_aliases
from agent_gym.envs.hotpotqa import HotpotQAEnv
from agent_gym.envs.multihop import UNANSWERABLE, MuSiQueEnv, TwoWikiMultihopQAEnv
from agent_gym.evaluation import evaluate
from agent_gym.policies import ScriptedPolicy
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

CLASSES = {"TwoWikiMultihopQA": TwoWikiMultihopQAEnv, "MuSiQue": MuSiQueEnv}
TWO_WIKI = {**ROW, "type": "compositional", "evidences": [], "evidences_id": [], "answer_id": "Q5"}
MUSIQUE = {
    "id": "2hop__1_2",
    "question": ROW["question"],
    "answer": "Sennor",
    "answer_aliases": ["Sennor Town", "ST", "yes"],
    "answerable": True,
    "paragraphs": [
        {"idx": index, "title": title, "paragraph_text": "".join(lines), "is_supporting": index < 2}
        for index, (title, lines) in enumerate(PAGES)
    ],
    "question_decomposition": [{"id": 1, "question": "Who?", "answer": "Mila Sond", "paragraph_support_idx": 0}],
}
TWIN = {**MUSIQUE, "answerable": False, "paragraphs": MUSIQUE["paragraphs"][1:]}


def aliases_file(folder: Path) -> Path:
    path = folder / "id_aliases.json"
    lines = [
        {"Q_id": "Q5", "aliases": ["Sennor Town", "!!!"], "demonyms": ["Sennorian"]},
        {"Q_id": "Q6", "aliases": ["Kess"], "demonyms": []},
    ]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------ both


@pytest.mark.parametrize("tokenizer", ["default", "qwen3"])
@pytest.mark.parametrize("name", CLASSES)
def test_it_conforms(name: str, tokenizer: str, request: pytest.FixtureRequest) -> None:
    kwargs = {"tokenizer": request.getfixturevalue("qwen3_path")} if tokenizer == "qwen3" else {}
    report = check_agent_env(f"AgentR1/{name}-v0", kwargs=kwargs)
    report.raise_if_failed()
    assert all(result.outcome == "passed" for result in report.results)


def test_scoring_unanswerable_rows_conforms() -> None:
    check_agent_env("AgentR1/MuSiQue-v0", kwargs={"unanswerable": "score"}).raise_if_failed()


@pytest.mark.parametrize("name", CLASSES)
def test_its_defaults_are_those_of_hotpotqa_with_a_world_of_its_own(name: str) -> None:
    made: Any = gymnasium.make(f"AgentR1/{name}-v0").unwrapped
    assert type(made) is CLASSES[name] and isinstance(made, HotpotQAEnv)
    assert (made.max_turns, made.max_observation_tokens, made.top_k, made.max_parallel_calls, made.num_tasks) == (5, 8192, 3, 4, None)
    _, info = made.reset(seed=0)
    assert (info["dataset"], info["level"]) == ("embedded", "full")
    hotpot = HotpotQAEnv()
    hotpot.reset(seed=0)
    assert made.qa.question != hotpot.qa.question and set(info) >= set(hotpot.extra_info)
    kinds = {made.reset(options={"index": index})[1]["question_type"] for index in range(40)}
    wanted = {"TwoWikiMultihopQA": {"compositional", "inference", "comparison", "bridge_comparison"}, "MuSiQue": {"2hop", "3hop", "4hop"}}
    assert kinds == wanted[name]
    with pytest.raises(ValueError, match="level must be one of full, not 'bridge'"):
        CLASSES[name](level="bridge")


@pytest.mark.parametrize("context", ["append", "rebuild"])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
@pytest.mark.parametrize("name", CLASSES)
def test_the_expert_answers_generated_tasks(name: str, split: str, context: str) -> None:
    made = CLASSES[name](split=split, context=context)
    for index in range(20):
        reward, info = follow(made, options={"index": index})
        assert reward == 1.0 and info["is_success"] and info["stop_reason"] is StopReason.ANSWER, info
        assert info["em"] == info["f1"] == info["supporting_recall"] == 1.0


@pytest.mark.parametrize("name", CLASSES)
def test_the_expert_answers_the_real_rows(name: str, data_dir: Path, recwarn: pytest.WarningsRecorder) -> None:
    file = {"TwoWikiMultihopQA": "2wiki", "MuSiQue": "musique"}[name]
    made = CLASSES[name](dataset=data_dir / "hotpotqa" / f"{file}.jsonl")
    assert made.num_tasks
    assert all(follow(made, options={"index": index})[0] == 1.0 for index in range(0, made.num_tasks, 3))
    told = [str(warning.message) for warning in recwarn.list if "id_aliases.json" in str(warning.message)]
    assert bool(told) is (name == "TwoWikiMultihopQA")


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["default", "qwen3"])
@pytest.mark.parametrize("name", CLASSES)
def test_neither_the_expert_nor_a_policy_that_wastes_every_turn_meets_the_context_limit(
    name: str, tokenizer: str, request: pytest.FixtureRequest
) -> None:
    opened = load_tokenizer(request.getfixturevalue("qwen3_path") if tokenizer == "qwen3" else None)
    made = CLASSES[name](tokenizer=opened)
    waste = [made.encode_action("<tool_call>" * 600)[:512], made.encode_action(call(made, *["town river who where"] * 9))[:512]]
    for index in range(200):
        assert follow(made, options={"index": index})[1]["stop_reason"] is StopReason.ANSWER
        made.reset(options={"index": index})
        for turn in range(5):
            *_, info = made.step(waste[(index + turn) % 2])
        assert info["stop_reason"] is StopReason.MAX_TURNS


@pytest.mark.parametrize(("name", "row"), [("TwoWikiMultihopQA", TWO_WIKI), ("MuSiQue", MUSIQUE)])
def test_an_empty_answer_is_worth_nothing_and_a_page_pays_nothing(name: str, row: dict[str, Any]) -> None:
    made = CLASSES[name](reward="f1")
    for text in ("<answer></answer>", "<answer>the</answer>", "<answer>!!!</answer>", "Sennor", "<think><answer>Sennor</answer></think>"):
        assert play(made, text, options={"task": row})[0] == 0.0
    assert play(made, call(made, "Sennor"), "I give up.", options={"task": row})[0] == 0.0
    assert play(made, "<answer>Sennor</answer>", options={"task": row})[0] == 1.0


@pytest.mark.parametrize("name", CLASSES)
def test_an_evaluation_has_both_answer_metrics_and_success_for_each_kind(name: str) -> None:
    policy = ScriptedPolicy(lambda env, turn: "<answer>Kess</answer>" if env.task_id.endswith(("0", "2", "4")) else env.expert()())
    rows = [
        {"env_id": f"AgentR1/{name}-v0", "env_kwargs": {}, "seed": index, "options": {"index": index}, "group_id": str(index)}
        for index in range(12)
    ]
    done, _ = evaluate(f"AgentR1/{name}-v0", policy, rows=rows, arms={"script": 0.0})
    figures = done.arms["script"].estimates
    assert figures["em"].mean == figures["success"].mean == pytest.approx(8 / 12)
    assert {"f1", "sub_em", "supporting_recall"} <= set(figures) and any(key.startswith("success/") for key in figures)


# ------------------------------------------------------------------------------------------------ 2WikiMultihopQA


def test_generated_rows_accept_their_own_aliases() -> None:
    made = TwoWikiMultihopQAEnv()
    checked = 0
    for index in range(30):
        made.reset(options={"index": index})
        assert made.qa is not None
        names = two_wiki_aliases("train", index).get(str(made.qa.extra.get("answer_id")), ())
        for alias in names:
            reward, info, _ = play(made, f"<answer>{alias}</answer>", options={"index": index})
            assert reward == 1.0 and info["is_success"] and info["em"] == info["f1"] == 1.0
            checked += 1
    assert checked >= 20


def test_the_file_of_aliases_beside_the_dataset_is_taken(tmp_path: Path) -> None:
    write(tmp_path / "dev.json", [TWO_WIKI, {**TWO_WIKI, "_id": "other", "answer_id": None}])
    aliases_file(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = [
            TwoWikiMultihopQAEnv(dataset="official", data_dir=tmp_path, split="validation"),
            TwoWikiMultihopQAEnv(dataset=tmp_path, split="validation"),
            TwoWikiMultihopQAEnv(dataset=tmp_path / "dev.json"),
        ]
    for env in made:
        for text in ("Sennor", "Sennor Town", "Sennorian", "the sennorian."):
            assert play(env, f"<answer>{text}</answer>", options={"index": 0})[0] == 1.0
        assert play(env, "<answer>Kess</answer>", options={"index": 0})[0] == 0.0, "the name of something else"
        assert play(env, "<answer>!!!</answer>", options={"index": 0})[0] == 0.0, "an alias that normalises to nothing"
        assert play(env, "<answer>Sennorian</answer>", options={"index": 1})[0] == 0.0, "a row without an id has no aliases"
        assert play(env, "<answer>Sennor Town</answer>", options={"task": TWO_WIKI})[0] == 1.0
    sub = play(made[0], "<answer>a Sennorian of old</answer>", options={"task": {**TWO_WIKI, "answer": "Big Kess"}})[1]
    assert sub["sub_em"] == 0.0 and sub["f1"] == 0.5, "aliases count for exact match and F1 alone"
    assert made[0].source.tasks is made[1].source.tasks, "a file is read once per process"  # type: ignore[attr-defined]


def test_aliases_can_be_named_and_left_out_and_their_absence_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "train.json", [TWO_WIKI])
    with pytest.warns(UserWarning, match=r"train\.json: there is no id_aliases\.json beside it.*aliases=None"):
        made = TwoWikiMultihopQAEnv(dataset=path)
    assert play(made, "<answer>Sennor Town</answer>", options={"index": 0})[0] == 0.0
    (tmp_path / "elsewhere").mkdir()
    elsewhere = aliases_file(tmp_path / "elsewhere")
    named = TwoWikiMultihopQAEnv(dataset=path, aliases=elsewhere)
    assert play(named, "<answer>Sennor Town</answer>", options={"index": 0})[0] == 1.0
    given = TwoWikiMultihopQAEnv(dataset=[TWO_WIKI], aliases=str(elsewhere))
    assert play(given, "<answer>Sennorian</answer>", options={"index": 0})[0] == 1.0
    assert play(TwoWikiMultihopQAEnv(aliases=elsewhere), "<answer>Sennorian</answer>", options={"task": TWO_WIKI})[0] == 1.0
    aliases_file(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert play(TwoWikiMultihopQAEnv(dataset=path, aliases=None), "<answer>Sennorian</answer>", options={"index": 0})[0] == 0.0
    with pytest.raises(FileNotFoundError, match=r"id_aliases\.json of 2WikiMultihopQA"):
        TwoWikiMultihopQAEnv(dataset=path, aliases=tmp_path / "absent.json")
    with pytest.raises(ValueError, match=r"needs data_dir.*id_aliases\.json"):
        TwoWikiMultihopQAEnv(dataset="official")
    with pytest.raises(FileNotFoundError, match=r"'test'.*test\.json"):
        TwoWikiMultihopQAEnv(dataset="official", data_dir=tmp_path, split="test")


def test_its_f1_is_that_of_hotpotqa() -> None:
    row = {**TWO_WIKI, "answer": "yes", "answer_id": None}
    assert play(TwoWikiMultihopQAEnv(reward="f1"), "<answer>yes, both</answer>", options={"task": row})[0] == 0.0


# ------------------------------------------------------------------------------------------------ MuSiQue


def test_answer_aliases_count_and_f1_is_that_of_its_script() -> None:
    made = MuSiQueEnv(reward="f1")
    for text in ("Sennor", "sennor town", "ST", "Yes."):
        total, info, _ = play(made, f"<answer>{text}</answer>", options={"task": MUSIQUE})
        assert total == 1.0 and info["em"] == 1.0
    assert play(made, "<answer>yes, both</answer>", options={"task": MUSIQUE})[0] == pytest.approx(2 / 3)
    assert play(HotpotQAEnv(reward="f1"), "<answer>yes, both</answer>", options={"task": MUSIQUE})[0] == 0.0
    info = play(made, "<answer>a ST of old</answer>", options={"task": MUSIQUE})[1]
    assert info["sub_em"] == 0.0, "aliases are too short for a substring match"


def test_unanswerable_rows_are_dropped_unless_their_verdict_is_scored(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", [MUSIQUE, TWIN])
    with pytest.warns(UserWarning, match="1 of 2 rows were dropped: 1 because the question is unanswerable"):
        assert MuSiQueEnv(dataset=path).num_tasks == 1
    with pytest.raises(ValueError, match="no answer among its paragraphs"):
        MuSiQueEnv().reset(options={"task": TWIN})
    made = MuSiQueEnv(dataset=path, unanswerable="score")
    assert made.num_tasks == 2
    observation, info = made.reset(options={"index": 1})
    assert UNANSWERABLE in made.decode(observation, info) and info["answerable"] == UNANSWERABLE
    for index, wins in ((0, "Sennor Town"), (1, "Unanswerable.")):
        for text in ("Sennor Town", "Unanswerable.", "It is unanswerable", ""):
            total, info, over = play(made, f"<answer>{text}</answer>", options={"index": index})
            assert over and total == float(text == wins) and info["is_success"] is (text == wins)
            assert info["em"] == total
    assert play(made, UNANSWERABLE, options={"index": 1})[0] == 0.0, "a reply without a tag"
    assert play(MuSiQueEnv(unanswerable="score", answer_fallback="reply"), UNANSWERABLE, options={"task": TWIN})[0] == 1.0
    assert play(MuSiQueEnv(unanswerable="score", format_weight=0.1), "<answer>unanswerable</answer>", options={"task": TWIN})[
        0
    ] == pytest.approx(1.1)
    with pytest.raises(ValueError, match="'drop' or 'score', not 'keep'"):
        MuSiQueEnv(unanswerable="keep")
    plain = MuSiQueEnv()
    observation, info = plain.reset(seed=0)
    assert UNANSWERABLE not in plain.decode(observation, info) and info["answerable"] == ""


def test_in_the_generated_world_every_second_task_is_then_an_unanswerable_twin() -> None:
    made = MuSiQueEnv(unanswerable="score", split="test")
    for index in range(0, 20, 2):
        first, second = (follow(made, options={"index": one}) for one in (index, index + 1))
        assert first[0] == second[0] == 1.0
        assert (first[1]["answerable"], second[1]["answerable"]) == ("answerable", UNANSWERABLE)
        assert first[1]["task_id"] == second[1]["task_id"]
    constant = [play(made, f"<answer>{UNANSWERABLE}</answer>", options={"index": index})[0] for index in range(20)]
    assert sum(constant) == 10.0, "half, which is the floor of that game"


def test_official_files_are_found_by_their_own_names(tmp_path: Path) -> None:
    write(tmp_path / "hotpot_dev_distractor_v1.json", [ROW])
    write(tmp_path / "musique_ans_v1.0_dev.jsonl", [MUSIQUE])
    write(tmp_path / "musique_full_v1.0_dev.jsonl", [MUSIQUE, TWIN])
    kwargs: dict[str, Any] = {"dataset": "official", "data_dir": tmp_path, "split": "validation"}
    assert MuSiQueEnv(**kwargs).reset(seed=0)[1]["dataset"] == "musique_ans_v1.0_dev.jsonl"
    full = MuSiQueEnv(**kwargs, unanswerable="score")
    assert full.reset(seed=0)[1]["dataset"] == "musique_full_v1.0_dev.jsonl" and full.num_tasks == 2
    assert HotpotQAEnv(**kwargs).reset(seed=0)[1]["dataset"] == "hotpot_dev_distractor_v1.json"
    with pytest.raises(FileNotFoundError, match=r"musique_ans_v1\.0_train\.json"):
        MuSiQueEnv(dataset="official", data_dir=tmp_path)
    with pytest.raises(ValueError, match=r"needs data_dir.*musique_ans_v1\.0_train"):
        MuSiQueEnv(dataset="official")
    write(tmp_path / "musique_ans_v1.0_test.jsonl", [{key: value for key, value in MUSIQUE.items() if key != "answer"}])
    with pytest.raises(ValueError, match="'answer' is missing; test files without answers cannot be scored"):
        MuSiQueEnv(dataset="official", data_dir=tmp_path, split="test")
