"""Corpora are read as they are written elsewhere, errors name file and line, and a source is opened by what it names."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.search import Corpus, Document, HttpSearcher, LuceneBM25, open_searcher
from agent_gym.search.corpus import default_cache_dir
from agent_gym.search.types import join_contents, split_contents

PAGES = [
    ({"id": "a", "title": "Ada", "text": "wrote"}, Document("a", "Ada", "wrote")),
    ({"id": 7, "contents": '"Zed"\nA letter.\nThe last.'}, Document("7", "Zed", "A letter.\nThe last.")),
    ({"id": "c", "contents": "no title\nhere", "url": "x"}, Document("c", "", "no title\nhere")),
    ({"id": "d", "text": "only text"}, Document("d", "", "only text")),
    ({"title": "without id", "text": "x"}, Document("4", "without id", "x")),
]


def write(path: Path, lines: list[object]) -> Path:
    text = "".join((line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_both_forms_of_pages_are_read_again_and_again(tmp_path: Path, name: str) -> None:
    corpus = Corpus(write(tmp_path / name, [*(page for page, _ in PAGES), ""]))
    assert list(corpus) == list(corpus) == [document for _, document in PAGES]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "no JSON"),
        ("[1]", "got list"),
        ({"id": "x"}, r"keys \['id'\]"),
        ({"id": None, "text": "x"}, '"id" should be'),
        ({"id": 1.5, "text": "x"}, '"id" should be'),
        ({"id": "x", "text": 3}, "got str and int"),
        ({"id": "x", "title": None, "text": ""}, "got NoneType and str"),
        ({"id": "x", "contents": ["y"]}, "contents"),
        ({"id": "a", "text": "again"}, "'a' stands in line 1"),
        ("[" * 100_000, "recursion|no JSON|nest"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, line: object, words: str) -> None:
    corpus = Corpus(write(tmp_path / "corpus.jsonl", [{"id": "a", "text": "x"}, "", line]))
    with pytest.raises(ValueError, match=rf"corpus\.jsonl:3: .*({words})"):
        list(corpus)


def test_a_missing_file_is_named_with_what_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jsonl; wanted: JSON Lines"):
        Corpus(tmp_path / "nowhere.jsonl")


@given(st.text(st.characters(codec="utf-8")), st.text())
def test_the_one_string_form_can_be_read_back(title: str, text: str) -> None:
    assert split_contents(join_contents(title, text)) == (" ".join(title.splitlines()), text)


def test_a_source_is_opened_by_what_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus = write(tmp_path / "corpus.jsonl", [page for page, _ in PAGES])
    index = open_searcher(corpus)
    assert isinstance(index, LuceneBM25)
    assert index.path is not None
    assert index.path.parent == default_cache_dir() == tmp_path / "cache" / "agent-gym" / "search"
    assert index.search(["letter"], 1)[0][0].document == PAGES[1][1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "corpus.jsonl"]  # nothing is written beside the corpus
    again = open_searcher(str(index.path))
    assert isinstance(again, LuceneBM25)
    assert again.fingerprint == index.fingerprint
    assert open_searcher(corpus, cache_dir=tmp_path / "mine").search(["letter"], 1) == index.search(["letter"], 1)
    assert isinstance(open_searcher("http://127.0.0.1:9/retrieve"), HttpSearcher)
    with pytest.raises(FileNotFoundError):
        open_searcher(tmp_path / "nothing")


@pytest.mark.parametrize("damage", ["cut", "flipped", "not gzip"])
def test_a_damaged_compressed_corpus_is_an_error_with_its_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "pages.jsonl.gz"
    rng = random.Random(0)
    whole = gzip.compress("".join(json.dumps({"id": str(n), "text": str(rng.random())}) + "\n" for n in range(5000)).encode())
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 64]) + whole[middle + 64 :]
    path.write_bytes({"cut": whole[:middle], "flipped": flipped, "not gzip": b"plain text"}[damage])
    with pytest.raises(ValueError, match=r"pages\.jsonl\.gz:\d+: "):
        list(Corpus(path))
