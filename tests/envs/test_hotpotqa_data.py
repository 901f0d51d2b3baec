"""`AgentR1/HotpotQA-v0` on files and corpora: where its tasks come from, and where it searches."""

import json
from pathlib import Path
from typing import Any

import pytest
from gymnasium.error import ResetNeeded
from helpers import require
from hotpotqa_play import PAGES, ROW, call, follow, play

from agent_gym.core import EnvFault
from agent_gym.envs.hotpotqa import HotpotQAEnv, format_passages
from agent_gym.search import Document, Hit, LuceneBM25
from agent_gym.tools import ToolContext
from agent_gym.trajectory import StopReason

# ------------------------------------------------------------------------------------------------ where to search


class Broken:
    fingerprint = "broken"

    def search(self, queries: Any, k: int) -> list[list[Hit]]:
        raise EnvFault("the index is gone")


def test_a_broken_engine_is_a_fault_and_not_the_models_mistake() -> None:
    made = HotpotQAEnv(corpus=Broken())
    total, info, over = play(made, call(made, "Kess"), options={"task": ROW})
    assert over and total == 0.0 and info["stop_reason"] is StopReason.ENV_FAULT and info["env_fault"]
    with pytest.raises(EnvFault):
        HotpotQAEnv(corpus=Broken(), force_first_search=True).reset(options={"task": ROW})


def corpus_file(folder: Path) -> Path:
    path = folder / "corpus.jsonl"
    path.write_text(
        "".join(json.dumps({"id": str(n), "title": title, "text": "".join(lines)}) + "\n" for n, (title, lines) in enumerate(PAGES)),
        encoding="utf-8",
    )
    return path


def test_one_corpus_serves_rows_without_paragraphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bare = {"question": ROW["question"], "answer": "Sennor"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(bare) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"1 of the 1 rows of rows\.jsonl have no paragraphs.*corpus="):
        HotpotQAEnv(dataset=rows)
    index = LuceneBM25.build([Document(str(n), title, "".join(lines)) for n, (title, lines) in enumerate(PAGES)], tmp_path / "index")
    for corpus in (corpus_file(tmp_path), str(tmp_path / "index"), index):
        made = HotpotQAEnv(dataset=rows, corpus=corpus)
        total, info, _ = play(made, call(made, "Mila Sond"), "<answer>Sennor</answer>", options={"index": 0})
        assert total == 1.0 and info["n_searches"] == 1
        made.reset(options={"index": 0})
        *_, info = made.step(made.encode_action(call(made, "Mila Sond")))
        assert "born in Sennor" in info["feedback"]
        assert follow(made, options={"index": 0})[0] == 1.0
    with pytest.raises(FileNotFoundError, match="nothing at"):
        HotpotQAEnv(corpus=tmp_path / "absent.jsonl")


def test_a_search_server_can_stand_behind_it(tmp_path: Path) -> None:
    from agent_gym.search import SearchServer

    index = LuceneBM25.build([Document(str(n), title, "".join(lines)) for n, (title, lines) in enumerate(PAGES)])
    local = HotpotQAEnv(corpus=index)
    with SearchServer(index) as server:
        remote = HotpotQAEnv(corpus=server.url)
        for made in (local, remote):
            made.reset(options={"task": ROW})
            made.step(made.encode_action(call(made, "Mila Sond", "Ovrun Bridge")))
        assert remote.prompt_ids.tolist() == local.prompt_ids.tolist()
    *_, info = remote.step(remote.encode_action(call(remote, "a query that was not asked before")))
    assert info["env_fault"]


def test_another_engine_can_be_plugged_in() -> None:
    class First:
        fingerprint = "first"

        def __init__(self, documents: Any) -> None:
            self.documents = list(documents)

        def search(self, queries: Any, k: int) -> list[list[Hit]]:
            return [[Hit(document, 1.0) for document in self.documents[:k]] for _ in queries]

    made = HotpotQAEnv(search=First, top_k=2)
    made.reset(options={"task": ROW})
    *_, info = made.step(made.encode_action(call(made, "anything")))
    assert info["feedback"].startswith("[1] Ovrun Bridge\nThe Ovrun Bridge was built by Mila Sond. It is old.\n\n[2] Mila Sond\n")


# ------------------------------------------------------------------------------------------------ files


def test_official_files_are_found_by_split(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs data_dir"):
        HotpotQAEnv(dataset="official")
    with pytest.raises(FileNotFoundError, match=r"hotpot_train_v1\.1\.json"):
        HotpotQAEnv(dataset="official", data_dir=tmp_path)
    rows = [{**ROW, "_id": f"t{number}"} for number in range(30)]
    (tmp_path / "hotpot_train_v1.1.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "hotpot_dev_distractor_v1.json").write_text(json.dumps(rows), encoding="utf-8")
    train = HotpotQAEnv(dataset="official", data_dir=tmp_path)
    validation = HotpotQAEnv(dataset=tmp_path, split="validation")
    assert train.num_tasks == validation.num_tasks == 30
    assert train.source is not validation.source
    _, info = train.reset(seed=0)
    assert (info["dataset"], info["level"]) == ("hotpot_train_v1.1.json", "hard")
    drawn = [[made.reset(seed=seed)[1]["task_id"] for seed in range(12)] for made in (train, train, validation)]
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(ValueError, match="30 tasks, counted from 0"):
        train.reset(options={"index": 30})
    assert HotpotQAEnv(dataset="hotpot_train_v1.1.json", data_dir=tmp_path).num_tasks == 30
    assert HotpotQAEnv(dataset=rows).num_tasks == 30


def test_the_embedded_world_is_the_default_whatever_lies_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "embedded").mkdir()
    (tmp_path / "hotpot_train_v1.1.json").write_text(json.dumps([ROW]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert HotpotQAEnv(data_dir=tmp_path).reset(seed=0)[1]["dataset"] == "embedded"


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"level": "hard"}, ValueError, "full, bridge"),
        ({"split": "dev"}, ValueError, "train, validation, test"),
        ({"dataset": "no/such/file.jsonl"}, FileNotFoundError, "nothing at"),
        ({"search": "google"}, ValueError, "'lucene', 'tantivy'"),
        ({"reward": "bleu"}, ValueError, "em, f1"),
        ({"answer_fallback": "yes"}, ValueError, "None or 'reply'"),
        ({"top_k": 0}, ValueError, "top_k must be a whole number of at least 1"),
        ({"top_k": "3"}, ValueError, "top_k must be a whole number of at least 1, not '3'"),
        ({"search_cost": -1.0}, ValueError, "negative"),
    ],
)
def test_keywords_that_cannot_be_used_are_refused(keywords: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        HotpotQAEnv(**keywords)


def test_nothing_can_be_asked_before_the_reset() -> None:
    made = HotpotQAEnv()
    ask = made.expert()
    assert ask is not None
    with pytest.raises(ResetNeeded, match="reset"):
        ask()
    with pytest.raises(ResetNeeded, match="reset"):
        made.tool_set["search"].execute({"query": "Kess"}, ToolContext({}, 0, 0, None, {}, 0))


def test_one_file_under_two_splits_is_drawn_from_differently(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{**ROW, "_id": f"r{number}"} for number in range(40)]), encoding="utf-8")
    made = [HotpotQAEnv(dataset=path, split=split) for split in ("train", "test")]
    drawn = [[one.reset(seed=seed)[1]["task_id"] for seed in range(12)] for one in made]
    assert sum(map(str.__eq__, *drawn)) < 4
    assert {one.reset(options={"index": 3})[1]["task_id"] for one in made} == {"r3"}


def test_published_sample_rows_are_played_with_a_corpus(data_dir: Path) -> None:
    require("pyarrow")
    index = LuceneBM25.build([Document("0", "Kess", "A town.")])
    made = HotpotQAEnv(dataset=data_dir / "hotpotqa" / "rows_agent_r1.parquet", corpus=index)
    assert made.num_tasks
    assert all(follow(made, options={"index": index})[0] == 1.0 for index in range(0, made.num_tasks, 5))


def test_passages_are_printed_with_their_titles_or_as_lines() -> None:
    hits = [Hit(Document("1", "Kess", "Kess is a town.\nIt is old."), 2.0), Hit(Document("2", "Tarn", "A hill."), 1.0)]
    assert format_passages(hits) == "[1] Kess\nKess is a town.\nIt is old.\n\n[2] Tarn\nA hill."
    assert format_passages(hits, titles=False) == "Kess is a town. It is old.\nA hill."
    assert format_passages([]) == format_passages([], titles=False) == "No page was found."
