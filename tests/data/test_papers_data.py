"""Papers as they are published: ids in one spelling, dates as far as they are known, citations in both directions, and how lists are scored."""

from __future__ import annotations

import json
import math
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_gym.data.paper_metrics import list_score, list_scores
from agent_gym.data.paper_tasks import load_paper_tasks, open_paper_tasks, parse_paper_task
from agent_gym.data.papers import DateBound, Paper, PaperCorpus, normalize_paper_id, open_papers, parse_date, parse_paper, published_between

# ------------------------------------------------------------------------------------------------ ids


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("2301.00001", "2301.00001"),
        ("2301.00001v2", "2301.00001"),
        (" arXiv:2301.00001v12 ", "2301.00001"),
        ("ARXIV: 0704.0001", "0704.0001"),
        ("https://arxiv.org/abs/2301.00001v2", "2301.00001"),
        ("http://www.arxiv.org/pdf/2301.00001v2.pdf", "2301.00001"),
        ("cs/0112017", "cs/0112017"),
        ("cs/0112017v1", "cs/0112017"),
        ("arXiv:solv-int/9901001v3", "solv-int/9901001"),
        ("https://arxiv.org/abs/math/0510508v1", "math/0510508"),
        ("math.GT/0309136", "math/0309136"),
        ("hep-th/9402147", "hep-th/9402147"),
        ("649def34f8be52c8b66281af98ae884c09aef38b", "649def34f8be52c8b66281af98ae884c09aef38b"),
        ("nov-v2", "nov-v2"),
        (" two\n words ", "two words"),
        ("w3v2", "w3v2"),
        ("2399.00001v1", "2399.00001v1"),
        ("arXiv:", "arXiv:"),
        ("", ""),
    ],
)
def test_a_paper_has_one_spelling(text: str, plain: str) -> None:
    assert normalize_paper_id(text) == plain


def test_cutting_at_the_first_v_would_lose_old_ids() -> None:
    """What published evaluation code does; the difference is why there is a function."""
    text = "solv-int/9901001"
    assert text.partition("v")[0] == "sol" and normalize_paper_id(text) == text


PARTS = ["arXiv:", "https://arxiv.org/abs/", "2301.00001", "0705.1234", "cs/0112017", "math.GT/0309136", "v", "v2", "/", " ", ".pdf", "x"]


@given(st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PARTS), max_size=5).map("".join)))
def test_the_one_spelling_is_its_own(text: str) -> None:
    plain = normalize_paper_id(text)
    assert normalize_paper_id(plain) == plain and normalize_paper_id(f"  {plain} ") == plain


@given(st.integers(7, 26), st.integers(1, 12), st.integers(0, 99999), st.integers(1, 30))
def test_versions_of_one_paper_are_one_paper(year: int, month: int, number: int, version: int) -> None:
    plain = f"{year:02}{month:02}.{number:05}"
    assert {normalize_paper_id(one) for one in (plain, f"{plain}v{version}", f"arXiv:{plain}v{version}", f"arxiv.org/abs/{plain}")} == {
        plain
    }


# ------------------------------------------------------------------------------------------------ dates


def paper(paper_id: str = "x", **facts: Any) -> Paper:
    return Paper(paper_id, "T", **facts)


@pytest.mark.parametrize(
    ("one", "first", "last"),
    [
        (paper(published="2023-02-24"), (2023, 2, 24), (2023, 2, 24)),
        (paper(published="20230224"), (2023, 2, 24), (2023, 2, 24)),
        (paper(published="2023-02-24T10:00:00Z"), (2023, 2, 24), (2023, 2, 24)),
        (paper(published="2024-02"), (2024, 2, 1), (2024, 2, 29)),
        (paper(year=2023), (2023, 1, 1), (2023, 12, 31)),
        (paper("2302.00001"), (2023, 2, 1), (2023, 2, 28)),
        (paper("cs/0112017"), (2001, 12, 1), (2001, 12, 31)),
        (paper("hep-th/9402147"), (1994, 2, 1), (1994, 2, 28)),
        (paper("2302.00001", year=2024), (2023, 2, 1), (2023, 2, 28)),  # printed a year after it could be read
        (paper("2302.00001", published="2024-05-01"), (2023, 2, 1), (2023, 2, 28)),
        (paper("2302.00001", published="2023-02-10"), (2023, 2, 10), (2023, 2, 10)),
        (paper("2302.00001", published="2019-01-01"), (2019, 1, 1), (2019, 1, 1)),
    ],
)
def test_a_date_is_as_narrow_as_what_is_known(one: Paper, first: tuple[int, ...], last: tuple[int, ...]) -> None:
    assert published_between(one) == (date(*first), date(*last))


def test_only_what_certainly_appeared_before_passes_a_strict_bound() -> None:
    bound, kind = DateBound(date(2023, 2, 24)), DateBound(date(2023, 2, 24), strict=False)
    before, same_month, after, unknown = paper("2301.00001"), paper("2302.00001"), paper("2303.00001"), paper()
    assert [bound.allows(one) for one in (before, same_month, after, unknown)] == [True, False, False, False]
    assert [kind.allows(one) for one in (before, same_month, after, unknown)] == [True, True, False, True]
    assert not bound.allows(paper(published="2023-02-24")), "the paper that the question was taken from appeared on that very day"
    assert bound.allows(paper(published="2023-02-23"))
    assert not bound.allows(paper(year=2023)) and kind.allows(paper(year=2023)) and bound.allows(paper(year=2022))
    assert DateBound().allows(unknown)


@given(st.dates(date(1992, 1, 1), date(2029, 12, 31)), st.dates(date(1992, 1, 1), date(2029, 12, 31)))
def test_a_strict_bound_lets_nothing_through_that_a_lenient_one_does_not(day: date, published: date) -> None:
    for one in (paper(published=published.isoformat()), paper(year=published.year), paper(published=published.isoformat()[:7])):
        strict, lenient = DateBound(day).allows(one), DateBound(day, strict=False).allows(one)
        assert lenient or not strict
        assert not strict or published < day
        assert lenient or published >= date(day.year, day.month, 1)


@pytest.mark.parametrize("text", ["", "yesterday", "2023-13-01", "2023-02-30", "23-02-24", "0000-01-01", "99999", "2023-2-4"])
def test_what_is_no_date_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="2023-02-24"):
        parse_date(text)


# ------------------------------------------------------------------------------------------------ the corpus


def corpus() -> PaperCorpus:
    return PaperCorpus.read(
        [
            {"paper_id": "2101.00001v2", "title": "A\n title", "references": ["arXiv:cs/0112017v1", "cs/0112017", {"arxiv_id": "2103.00002"}, {"text": "no id"}, "2101.00001"]},
            {"paperId": "cs/0112017", "title": "B", "abstract": None, "year": "2001", "authors": [{"name": "Ada"}, "Bo"]},
            {"id": "2103.00002", "title": "C", "references": [{"paper_id": "cs/0112017"}, None, "unknown"]},
        ]
    )  # fmt: skip


def test_citations_are_the_inverse_of_references() -> None:
    made = corpus()
    a, b, c = made.papers
    assert (a.id, a.title, b.year, b.authors, b.abstract) == ("2101.00001", "A title", 2001, ("Ada", "Bo"), "")
    assert a.references == ("cs/0112017", "2103.00002", "2101.00001"), "each once, in its order"
    assert made.references(a) == [b, c], "not itself"
    assert made.citations(b) == [a, c] and made.citations(c) == [a] and made.citations(a) == []
    assert made.references(c) == [b], "what is not in the corpus cannot be followed"
    assert made.get("arXiv:2101.00001v9") is a and made.get("2101.99999") is None


@given(st.lists(st.lists(st.integers(0, 11), max_size=6), min_size=1, max_size=10))
def test_who_cites_is_cited_in_any_graph(graph: list[list[int]]) -> None:
    made = PaperCorpus(
        Paper(f"n{place}", "T", references=tuple(dict.fromkeys(f"n{one}" for one in row))) for place, row in enumerate(graph)
    )
    for one in made.papers:
        for other in made.papers:
            assert (other in made.references(one)) == (one in made.citations(other))
            assert other.id != one.id or other not in made.references(one)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"title": "T"}, "'paper_id' is missing"),
        ({"paper_id": "x"}, "'title' is missing"),
        ({"paper_id": "", "title": "T"}, "'paper_id' must be an id"),
        ({"paper_id": "x", "title": 3}, "'title' must be a text"),
        ({"paper_id": "x", "title": "T", "abstract": ["a"]}, "'abstract' must be a text"),
        ({"paper_id": "x", "title": "T", "year": "soon"}, "'year' must be a year"),
        ({"paper_id": "x", "title": "T", "year": 20.5}, "'year' must be a year"),
        ({"paper_id": "x", "title": "T", "published": "soon"}, "'published': a date must look like"),
        ({"paper_id": "x", "title": "T", "authors": [3]}, r"'authors\[0\]' must be a name"),
        ({"paper_id": "x", "title": "T", "references": "y"}, "'references' must be a list"),
        ({"paper_id": "x", "title": "T", "references": [1.5]}, r"'references\[0\]' must be an id"),
        ({"paper_id": 2301.00001, "title": "T"}, "'paper_id' must be an id"),
        (["x"], "must be an object"),
    ],
)
def test_a_malformed_paper_is_named_by_file_line_and_field(row: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "papers.jsonl"
    path.write_text(json.dumps({"paper_id": "ok", "title": "T"}) + "\n\n" + json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=f"papers.jsonl line 3.*{text}"):
        PaperCorpus.read(path)


def test_one_paper_twice_and_none_at_all_are_told(tmp_path: Path) -> None:
    path = tmp_path / "papers.jsonl"
    path.write_text('{"paper_id": "2101.00001v1", "title": "T"}\n{"paper_id": "2101.00001v2", "title": "T"}\n')
    with pytest.raises(ValueError, match=r"papers.jsonl line 2: the paper '2101.00001' stands in papers.jsonl line 1 already"):
        open_papers(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="no paper in it"):
        open_papers(path)
    with pytest.raises(FileNotFoundError, match="paper_id"):
        open_papers(tmp_path / "none.jsonl")


def test_a_file_is_read_once_and_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "papers.jsonl"
    path.write_text('{"paper_id": "a", "title": "T"}\n')
    first = open_papers(path)
    assert open_papers(str(path)) is first
    path.write_text('{"paper_id": "a", "title": "T"}\n{"paper_id": "b", "title": "T"}\n')
    assert len(open_papers(path)) == 2


def test_what_a_bound_keeps_back_takes_no_place_among_the_results() -> None:
    late = [{"paper_id": f"2401.{number:05}", "title": "owl owl owl"} for number in range(200)]
    made = PaperCorpus.read([*late, {"paper_id": "2001.00001", "title": "an owl"}, {"paper_id": "2001.00002", "title": "one owl here"}])
    found = made.ranked("owl", DateBound(date(2023, 1, 1)), 0, 5)
    assert [one.id for one in found] == ["2001.00001", "2001.00002"]
    assert len(made.ranked("owl", DateBound(), 0, 5)) == 5 and made.ranked("owl", DateBound(), 5, 5)[0] not in made.ranked(
        "owl", DateBound(), 0, 5
    )


# ------------------------------------------------------------------------------------------------ questions


def test_a_question_is_read_with_its_gold_papers_in_one_spelling() -> None:
    task = parse_paper_task({"question": " Q? ", "answer": ["A", "B", "A again"], "answer_arxiv_id": ["2101.00001v2", "cs/0112017", "2101.00001"], "source_meta": {"published_time": "20230224"}, "qid": 7})  # fmt: skip
    assert (task.id, task.question, task.gold, task.before) == ("7", "Q?", ("2101.00001", "cs/0112017"), date(2023, 2, 24))
    assert task.gold_titles == {"2101.00001": "A", "cs/0112017": "B"}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"question": "Q?"}, "'answer_arxiv_id' is missing"),
        ({"question": " ", "answer_arxiv_id": ["x"]}, "'question' must be a text"),
        ({"question": "Q?", "answer_arxiv_id": []}, "'answer_arxiv_id' must be a list of at least one id"),
        ({"question": "Q?", "answer_arxiv_id": [" "]}, r"'answer_arxiv_id\[0\]' must be an id"),
        ({"question": "Q?", "answer_arxiv_id": [3]}, "'answer_arxiv_id' must be a list of texts"),
        ({"question": "Q?", "answer_arxiv_id": ["x"], "source_meta": "then"}, "'source_meta' must be an object"),
        ({"question": "Q?", "answer_arxiv_id": ["x"], "source_meta": {"published_time": "then"}}, "'source_meta.published_time': a date"),
        ({"question": "Q?", "answer_arxiv_id": ["x"], "papers": [{"title": "T"}]}, "papers: row 0: the field 'paper_id' is missing"),
        ({"prompt": [], "reward_model": {"ground_truth": None}}, "'prompt' must be a text or a non-empty list"),
    ],
)
def test_a_malformed_question_is_named_by_file_line_and_field(row: dict[str, Any], text: str, tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=f"test.jsonl line 1.*{text}"):
        load_paper_tasks(path)


def test_questions_are_opened_by_name_file_folder_or_rows(tmp_path: Path) -> None:
    for split, number in (("train", 3), ("dev", 2), ("test", 1)):
        rows = [{"question": f"{split} {place}?", "answer_arxiv_id": ["x"]} for place in range(number)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    counts = [open_paper_tasks(tmp_path, split=split).num_tasks for split in ("train", "validation", "test")]
    assert counts == [3, 2, 1]
    assert open_paper_tasks("official", data_dir=tmp_path, split="validation").by_index(1).question == "dev 1?"
    assert open_paper_tasks("test.jsonl", data_dir=tmp_path).name == "test.jsonl"
    assert open_paper_tasks("embedded").num_tasks is None
    with pytest.raises(ValueError, match="needs data_dir"):
        open_paper_tasks("official")
    with pytest.raises(FileNotFoundError, match="nothing at"):
        open_paper_tasks(tmp_path / "none")
    with pytest.raises(ValueError, match="3 tasks"):
        open_paper_tasks(tmp_path).by_index(3)
    with pytest.raises(ValueError, match="counted from 0"):
        open_paper_tasks("embedded").by_index(-1)


# ------------------------------------------------------------------------------------------------ figures


def test_lists_are_scored_by_hand_counted_examples() -> None:
    gold = ["2101.00001v1", "b", "c", "d"]
    score = list_score(["x", "arXiv:2101.00001v2", "2101.00001", "b", "y"], gold)
    assert (score.precision, score.recall) == (2 / 4, 2 / 4) and score.f1 == pytest.approx(0.5), "one paper counts once"
    first = list_score(["x", "2101.00001", "b"], gold, 2)
    assert (first.precision, first.recall) == (1 / 2, 1 / 4) and first.f1 == pytest.approx(1 / 3)
    assert list_score([], gold) == list_score(["x"], gold)
    with pytest.raises(ValueError, match="no gold"):
        list_score(["x"], [])
    with pytest.raises(ValueError, match="at least 1"):
        list_score(["x"], gold, 0)


@given(
    st.lists(st.sampled_from([f"p{n}" for n in range(130)]), max_size=130),
    st.sets(st.sampled_from([f"p{n}" for n in range(130)]), min_size=1, max_size=40),
)
def test_figures_agree_with_their_definitions(ranked: list[str], gold: set[str]) -> None:
    figures = list_scores(ranked, sorted(gold))
    unique = list(dict.fromkeys(ranked))
    for ending, cut in (("", unique), ("_at_25", unique[:25]), ("_at_50", unique[:50]), ("_at_100", unique[:100])):
        hits = len(set(cut) & gold)
        assert figures[f"recall{ending}"] == pytest.approx(hits / len(gold))
        assert figures[f"precision{ending}"] == pytest.approx(hits / len(cut) if cut else 0.0)
        p, r = figures[f"precision{ending}"], figures[f"recall{ending}"]
        assert figures[f"f1{ending}"] == pytest.approx(2 * p * r / (p + r) if p + r else 0.0)
    assert figures["recall_at_25"] <= figures["recall_at_50"] <= figures["recall_at_100"] <= figures["recall"]
    assert all(math.isnan(one) for one in list_scores(ranked, []).values())


def test_every_field_may_be_missing_but_id_and_title() -> None:
    assert parse_paper({"paper_id": 7, "title": ""}) == Paper("7", "")
