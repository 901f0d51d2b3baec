"""Real questions and papers as they are published: they load, are played over a corpus and a server, and are scored; nothing of them is kept here."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from papers_play import ids, shown, step

from agent_gym.cli import main
from agent_gym.data.paper_tasks import PaperTask, load_paper_tasks
from agent_gym.data.papers import DateBound, PaperCorpus, normalize_paper_id, open_papers
from agent_gym.envs.papers import PaperSearchEnv
from agent_gym.trajectory import StopReason

FILES = {"auto_scholar_query.jsonl": 300, "real_scholar_query.jsonl": 18}
FIGURES = [f"{name}{ending}" for ending in ("", "_at_25", "_at_50", "_at_100") for name in ("precision", "recall", "f1")]


@pytest.fixture(scope="module")
def folder(data_dir: Path) -> Path:
    return data_dir / "papers"


@pytest.fixture(scope="module")
def gold_papers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of the gold papers by their titles, which each question's first one cites."""
    rows: dict[str, dict[str, Any]] = {}
    for name in FILES:
        for task in load_paper_tasks(folder / name):
            for paper_id, title in task.gold_titles.items():
                rows.setdefault(paper_id, {"paper_id": f"{paper_id}v1", "title": title, "references": []})
            rows[task.gold[0]]["references"] += task.gold[1:]
    path = tmp_path_factory.mktemp("papers") / "papers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.values()), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", FILES)
def test_questions_load_as_they_are(folder: Path, name: str) -> None:
    raw = [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
    tasks = load_paper_tasks(folder / name)
    assert len(tasks) == len(raw) == FILES[name]
    for task, row in zip(tasks, raw, strict=True):
        assert task.id == row["qid"] and task.question == row["question"].strip()
        assert len(task.gold) == len(row["answer_arxiv_id"]) == len(task.titles) and not any(re.search(r"v\d+$", one) for one in task.gold)
        assert task.before is not None and task.before.strftime("%Y%m%d") == row["source_meta"]["published_time"]
    assert len({task.id for task in tasks}) == len(tasks)


def test_papers_of_unarxive_load_as_they_are_old_ids_and_all(folder: Path) -> None:
    corpus = open_papers(folder / "unarxive_sample" / "papers.jsonl")
    raw = [json.loads(line) for line in (folder / "unarxive_sample" / "papers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(corpus) == 49
    cited = {one for paper in corpus.papers for one in paper.references}
    assert {"hep-th/9402147", "cond-mat/0406709", "math/0510508"} <= cited
    for paper, row in zip(corpus.papers, raw, strict=True):
        assert paper.references == tuple(
            dict.fromkeys(normalize_paper_id(one["arxiv_id"]) for one in row["references"] if one.get("arxiv_id"))
        )
        assert corpus.ranked(paper.title, DateBound(), 0, 3)[0].id == paper.id, "its own title finds it"


def test_papers_that_are_cited_and_not_there_are_not_followed(folder: Path) -> None:
    """Real papers and their references, each reference a paper of its own: expanding finds exactly those."""
    papers = PaperCorpus.read(folder / "unarxive_sample" / "papers.jsonl").papers
    source = max(papers, key=lambda paper: len(paper.references))
    rows: list[dict[str, Any]] = [{"paper_id": one, "title": f"Work {one}"} for one in source.references[1:]]
    rows.append({"paper_id": source.id, "title": source.title, "abstract": source.abstract, "references": list(source.references)})
    row = {"question": source.title, "answer": ["x"] * len(source.references), "answer_arxiv_id": list(source.references), "papers": rows}
    env = PaperSearchEnv(dataset=[row])
    env.reset(seed=0)
    assert step(env, ("search", source.title))[1]["n_found"] == 0
    reward, _, _ = step(env, ("expand", f"arXiv:{source.id}v1"))
    assert ids(env) == [source.id, *source.references[1:]] and reward == pytest.approx((len(rows) - 1) / len(source.references))


def reachable(task: PaperTask, corpus: PaperCorpus) -> float:
    """The part of the gold papers that certainly appeared before the question's day."""
    return sum(DateBound(task.before).allows(paper) for one in task.gold if (paper := corpus.get(one))) / len(task.gold)


@pytest.mark.parametrize("name", FILES)
def test_questions_are_scored_by_agent_gym_eval(folder: Path, gold_papers: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    number = 12
    command = ["eval", "AgentR1/PaperSearch-v0", "--model", "expert", "--tasks", str(number), "--split", "test", "--output-dir", "out"]
    assert main([*command, "--env-arg", f"dataset={folder / name}", "--env-arg", f"corpus={gold_papers}"]) == 0
    table = capsys.readouterr().out
    figures = json.loads(Path("out/evaluation.json").read_text(encoding="utf-8"))["arms"]["expert"]["estimates"]
    lines = [line.split()[0] for line in table.splitlines() if line.strip()]
    assert set(FIGURES) <= set(figures) and all(lines.count(one) == 1 for one in FIGURES)
    corpus, tasks = open_papers(gold_papers), load_paper_tasks(folder / name)[:number]
    assert figures["recall"]["mean"] == pytest.approx(sum(reachable(task, corpus) for task in tasks) / number)
    assert figures["reward"]["mean"] == pytest.approx(figures["recall"]["mean"])
    assert (
        0 < figures["precision"]["mean"] < 1
        and figures["recall_at_25"]["mean"] <= figures["recall_at_50"]["mean"] <= figures["recall"]["mean"]
    )


def test_rows_of_the_sample_schema_without_an_answer_load_and_are_refused_where_answers_are_paid(folder: Path, gold_papers: Path) -> None:
    path = folder / "pasa_rows.parquet"
    tasks, named = load_paper_tasks(path), load_paper_tasks(folder / "real_scholar_query.jsonl")
    assert [task.question for task in tasks] == [task.question for task in named] and not any(task.gold for task in tasks)
    assert {(task.data_source, task.extra["agent_name"]) for task in tasks} == {("bytedance/pasa", "paper_search_agent")}
    for kwargs in ({}, {"reward": "both"}, {"reward": "process"}):
        with pytest.raises(
            ValueError,
            match=r"pasa_rows.parquet: question '0' names no gold papers \(reward_model.ground_truth is empty\).*relevance='bm25'",
        ):
            PaperSearchEnv(dataset=path, corpus=gold_papers, **kwargs)


def test_rows_without_an_answer_are_played_and_paid_by_relevance(folder: Path, gold_papers: Path) -> None:
    env = PaperSearchEnv(dataset=folder / "pasa_rows.parquet", corpus=gold_papers, reward="process", relevance="bm25")
    for index in range(env.num_tasks or 0):
        env.reset(options={"index": index})
        assert env.query.question in shown(env) and env.query.prompt
        reward, info, _ = step(env, ("search", env.query.question))
        assert reward == pytest.approx(sum(sorted((one.relevance for one in env.pool.found.values()), reverse=True)[:3])) and reward > 0
        assert math.isnan(info["recall"]) and info["n_gold"] == 0
        info = step(env, "finish")[1]
        assert info["stop_reason"] == StopReason.FINISH_CALL and not info["is_success"]


def test_an_evaluation_without_answers_has_no_figures_of_them(folder: Path, gold_papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    command = [
        "eval",
        "AgentR1/PaperSearch-v0",
        "--model",
        "expand_best",
        "--tasks",
        "3",
        "--split",
        "test",
        "--output-dir",
        "out",
        "--save-episodes",
    ]
    settings = [f"dataset={folder / 'pasa_rows.parquet'}", f"corpus={gold_papers}", "reward=process", "relevance=bm25"]
    assert main([*command, *(word for one in settings for word in ("--env-arg", one))]) == 0
    figures = json.loads(Path("out/evaluation.json").read_text(encoding="utf-8"))["arms"]["expand_best"]["estimates"]
    assert figures["reward"]["mean"] > 0 and figures["recall"]["mean"] is None
    assert capsys.readouterr().out and Path("out/episodes.expand_best.jsonl").stat().st_size > 0
