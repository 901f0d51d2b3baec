"""The tantivy engine: any query is only words, results are ordered, the folder is whole, and a missing package is named."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from helpers import require
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.search import Document, HttpSearcher, Searcher, TantivySearcher, serve

PAGES = [
    Document("0", "Ada Lovelace", "A mathematician who wrote programs for engines."),
    Document("1", "Charles Babbage", "He designed engines."),
    Document("2", "Rome", "A city. AND it is old."),
    Document("b", "Twin", "equal words"),
    Document("a", "Twin", "equal words"),
]


@pytest.fixture(scope="module")
def searcher() -> TantivySearcher:
    require("tantivy")
    return TantivySearcher.build(PAGES)


def test_words_in_title_and_text_are_found_and_stemmed(searcher: TantivySearcher) -> None:
    found = searcher.search(["Who was Lovelace?", "engine", "the of", ""], 5)
    assert found[0][0].document == PAGES[0]
    assert {hit.document.id for hit in found[1]} == {"0", "1"}
    assert found[2:] == [[], []]
    assert all(one.score >= two.score for one, two in zip(found[1], found[1][1:], strict=False))
    assert len(searcher) == 5
    assert isinstance(searcher, Searcher)


def test_equal_scores_come_in_the_order_of_ids(searcher: TantivySearcher) -> None:
    assert [hit.document.id for hit in searcher.search(["equal twin"], 5)[0]] == ["a", "b"]


@pytest.mark.parametrize(
    "query", ["who: what?", "title:rome", '"unclosed', "[1 TO 3}", "AND OR NOT IN", "a^2 ~3 +x -y *", "!!!", "\\", "x" * 10_000, "\ud800"]
)
def test_query_syntax_is_only_words(searcher: TantivySearcher, query: str) -> None:
    searcher.search([query], 3)
    assert [hit.document.id for hit in searcher.search([query + " rome"], 1)[0]] == ["2"]


@given(st.text(max_size=40))
@settings(max_examples=150, deadline=None)
def test_any_query_is_answered(searcher: TantivySearcher, query: str) -> None:
    assert len(searcher.search([query], 2)[0]) <= 2


def test_a_folder_can_be_opened_again_and_is_not_overwritten(tmp_path: Path, searcher: TantivySearcher) -> None:
    built = TantivySearcher.build(iter(PAGES), tmp_path / "index")
    again = TantivySearcher.open(tmp_path / "index")
    queries = ["engines", "equal", "rome city"]
    assert again.search(queries, 4) == built.search(queries, 4) == searcher.search(queries, 4)
    assert again.fingerprint == searcher.fingerprint != TantivySearcher.build(PAGES[:2]).fingerprint
    with pytest.raises(FileExistsError, match=r"TantivySearcher\.open"):
        TantivySearcher.build(PAGES, tmp_path / "index")
    with pytest.raises(FileNotFoundError):
        TantivySearcher.open(tmp_path / "other")
    (tmp_path / "bad").mkdir()
    with pytest.raises(ValueError, match="no tantivy index"):
        TantivySearcher.open(tmp_path / "bad")
    with pytest.raises(ValueError, match="came twice"):
        TantivySearcher.build([PAGES[0], PAGES[0]], tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_a_temporary_index_goes_with_its_searcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("tantivy")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    searcher = TantivySearcher.build(PAGES)
    assert searcher.path is None
    assert os.listdir(tmp_path)
    del searcher
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_it_can_be_served(searcher: TantivySearcher) -> None:
    with serve(searcher) as server:
        assert HttpSearcher(server.url).search(["engines", "twin"], 3) == searcher.search(["engines", "twin"], 3)


def test_mistakes_are_named(searcher: TantivySearcher) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        searcher.search(["a"], 0)
    with pytest.raises(TypeError, match="list of strings"):
        searcher.search("abc", 1)


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tantivy", None)
    with pytest.raises(ImportError, match=r'pip install "agentr1-gym\[search\]"'):
        TantivySearcher.build(PAGES)


def test_a_missing_package_is_a_skip_or_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_GYM_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no_such_package"):
        require("no_such_package")
    monkeypatch.setenv("AGENT_GYM_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="no_such_package"):
        require("no_such_package")
