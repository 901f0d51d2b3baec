"""Loaders of the published layouts: detection by keys, hop order, aliases, dropped rows, and errors that name file, row and field."""

import json
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers import require

from agent_gym.data.files import find_split_file
from agent_gym.data.qa_loaders import Paragraph, UnusableRow, load_qa, parse_qa
from agent_gym.data.qa_metrics import exact_match, normalize_answer

HOTPOT: dict[str, Any] = {
    "_id": "h1",
    "question": "Where was the builder of the Ovrun Bridge born?",
    "answer": "Sennor",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["Mila Sond", 1], ["Ovrun Bridge", 0], ["Mila Sond", 0]],
    "context": [
        ["Mila Sond", ["Mila Sond was an engineer.", " She was born in Sennor."]],
        ["Ovrun Bridge", ["The Ovrun Bridge was built by Mila Sond.", " It is old."]],
        ["Tarn", ["Tarn is a hill."]],
    ],
}
TWO_WIKI: dict[str, Any] = {
    "_id": "w1",
    "question": "Which of the two has the older maker, Red Lamp or Grey Owl?",
    "answer": "Grey Owl",
    "type": "bridge_comparison",
    "context": [
        ["Vera Lunn", ["Vera Lunn was born in 1911."]],
        ["Grey Owl", ["Grey Owl is a film made by Odo Marr."]],
        ["Red Lamp", ["Red Lamp is a film made by Vera Lunn."]],
        ["Odo Marr", ["Odo Marr was born in 1899."]],
    ],
    "supporting_facts": [["Vera Lunn", 0], ["Odo Marr", 0], ["Red Lamp", 0], ["Grey Owl", 0]],
    "evidences": [
        ["Red Lamp", "director", "Vera Lunn"],
        ["Grey Owl", "director", "Odo Marr"],
        ["Vera Lunn", "date of birth", "1911"],
        ["Odo Marr", "date of birth", "1899"],
    ],
    "answer_id": "Q1",
    "entity_ids": "Q1_Q2",
}
MUSIQUE: dict[str, Any] = {
    "id": "3hop__1",
    "question": "Which sea touches the country of the town where Ola Brim lives?",
    "answer": "Sea of Marn",
    "answer_aliases": ["Marn Sea", "the Sea of Marn", "!!", "SM"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Dorland", "paragraph_text": "Dorland lies on the Sea of Marn.", "is_supporting": True},
        {"idx": 1, "title": "Filler", "paragraph_text": "Nothing.", "is_supporting": False},
        {"idx": 2, "title": "Kess", "paragraph_text": "Kess is a town of Dorland.", "is_supporting": True},
        {"idx": 3, "title": "Ola Brim", "paragraph_text": "Ola Brim lives in Kess.", "is_supporting": True},
    ],
    "question_decomposition": [
        {"id": 1, "question": "Ola Brim >> residence", "answer": "Kess", "paragraph_support_idx": 3},
        {"id": 2, "question": "#1 >> country", "answer": "Dorland", "paragraph_support_idx": 2},
        {"id": 3, "question": "#2 >> sea", "answer": "Sea of Marn", "paragraph_support_idx": 0},
    ],
}
SAMPLE: dict[str, Any] = {
    "data_source": "made",
    "prompt": [{"role": "user", "content": "Who built it?"}],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Mila Sond", "M. Sond"]}},
    "extra_info": {"index": 4, "question_id": "validation_4", "type": "bridge", "level": "hard", "split": None},
}


def test_hotpotqa_rows_keep_sentences_and_facts_and_order_their_hops() -> None:
    task = parse_qa(HOTPOT)
    assert (task.id, task.golds, task.aliases, task.type, task.level) == ("h1", ("Sennor",), (), "bridge", "hard")
    assert task.paragraphs[0] == Paragraph("Mila Sond", ("Mila Sond was an engineer.", " She was born in Sennor."))
    assert task.paragraphs[0].text == "Mila Sond was an engineer. She was born in Sennor."
    assert task.supporting_facts == (("Mila Sond", 1), ("Ovrun Bridge", 0), ("Mila Sond", 0))
    assert task.hops == ("Ovrun Bridge", "Mila Sond")
    assert task.data_source == "hotpotqa"


def test_the_copy_on_the_hub_reads_as_the_official_file() -> None:
    hub = {
        **{key: HOTPOT[key] for key in ("question", "answer", "type", "level")},
        "id": "h1",
        "supporting_facts": {
            "title": [title for title, _ in HOTPOT["supporting_facts"]],
            "sent_id": [number for _, number in HOTPOT["supporting_facts"]],
        },
        "context": {"title": [title for title, _ in HOTPOT["context"]], "sentences": [lines for _, lines in HOTPOT["context"]]},
    }
    assert parse_qa(hub) == parse_qa(HOTPOT)


def test_2wikimultihopqa_hops_follow_the_evidence() -> None:
    task = parse_qa(TWO_WIKI)
    assert task.hops == ("Red Lamp", "Grey Owl", "Vera Lunn", "Odo Marr")
    assert task.data_source == "2wikimultihopqa"
    assert task.extra == {"answer_id": "Q1", "entity_ids": "Q1_Q2"}


def test_musique_hops_follow_the_decomposition_and_aliases_stay_apart_from_the_gold() -> None:
    task = parse_qa(MUSIQUE)
    assert task.hops == ("Ola Brim", "Kess", "Dorland")
    assert task.golds == ("Sea of Marn",)
    assert task.aliases == ("Marn Sea", "the Sea of Marn", "SM")
    assert task.answers == ("Sea of Marn", "Marn Sea", "the Sea of Marn", "SM")
    assert task.type == "3hop"
    bare = {key: value for key, value in MUSIQUE.items() if key != "question_decomposition"}
    assert set(parse_qa(bare).hops) == {"Ola Brim", "Kess", "Dorland"}


def test_sample_rows_keep_their_prompt_and_all_targets_are_gold() -> None:
    task = parse_qa(SAMPLE)
    assert (task.id, task.question, task.golds) == ("validation_4", "Who built it?", ("Mila Sond", "M. Sond"))
    assert task.prompt == ({"role": "user", "content": "Who built it?"},)
    assert (task.type, task.level, task.paragraphs, task.hops) == ("bridge", "hard", (), ())
    assert parse_qa({**SAMPLE, "prompt": "Who built it?"}).prompt == task.prompt
    inside = {
        **SAMPLE,
        "extra_info": {"context": HOTPOT["context"], "supporting_facts": HOTPOT["supporting_facts"], "question": HOTPOT["question"]},
    }
    assert parse_qa(inside).hops == ("Ovrun Bridge", "Mila Sond")


def test_a_gold_in_decomposed_unicode_also_counts_in_its_composed_spelling() -> None:
    decomposed = unicodedata.normalize("NFD", "Café Ürmel")
    task = parse_qa({"question": "Where?", "answer": decomposed})
    assert task.golds == (decomposed,)
    assert exact_match("Café Ürmel", task.answers) == 1.0
    assert exact_match("Cafe Urmel", task.answers) == 0.0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"question": "Which band?", "answer": "The The"}, "normalises to nothing"),
        ({"question": "Which sign?", "answer": "!!!"}, "normalises to nothing"),
        ({**MUSIQUE, "answer": "a"}, "normalises to nothing"),
        ({**MUSIQUE, "answerable": False}, "unanswerable"),
        ({**SAMPLE, "reward_model": {"ground_truth": {"target": ["the", "."]}}}, "normalises to nothing"),
        ({**SAMPLE, "reward_model": {"ground_truth": None}}, "no ground truth"),
    ],
)
def test_rows_that_are_no_task_are_dropped_and_counted(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnusableRow) as caught:
        parse_qa(row)
    assert reason in caught.value.reason
    with pytest.warns(UserWarning, match=rf"2 of 3 rows were dropped: 2 because .*{reason}"):
        assert [task.id for task in load_qa([row, HOTPOT, row])] == ["h1"]
    with pytest.warns(UserWarning, match="dropped"), pytest.raises(ValueError, match="no usable row"):
        load_qa([row])


def test_a_gold_list_keeps_the_targets_that_normalise_to_something() -> None:
    task = parse_qa({**SAMPLE, "reward_model": {"ground_truth": ["the", "Mila"]}})
    assert task.golds == ("Mila",)


@pytest.mark.parametrize(
    ("base", "change", "field"),
    [
        (HOTPOT, {"question": None}, "question"),
        (HOTPOT, {"question": 5}, "question"),
        (HOTPOT, {"question": "  "}, "question"),
        (HOTPOT, {"answer": None}, "answer"),
        (HOTPOT, {"answer": {"text": "x"}}, "answer"),
        (HOTPOT, {"type": 4}, "type"),
        (HOTPOT, {"context": "pages"}, "context"),
        (HOTPOT, {"context": [["title"]]}, r"context\[0\]"),
        (HOTPOT, {"context": [["title", 7]]}, r"context\[0\]\[1\]"),
        (HOTPOT, {"context": [["title", ["x"]], ["t", [7]]]}, r"context\[1\]\[1\]"),
        (HOTPOT, {"context": {"title": ["a"], "sentences": []}}, "context"),
        (HOTPOT, {"supporting_facts": [["title"]]}, r"supporting_facts\[0\]"),
        (HOTPOT, {"supporting_facts": [["title", "0"]]}, r"supporting_facts\[0\]\[1\]"),
        (MUSIQUE, {"paragraphs": "x"}, "paragraphs"),
        (MUSIQUE, {"paragraphs": [{"title": "t"}]}, r"paragraphs\[0\].*paragraph_text"),
        (MUSIQUE, {"paragraphs": [7]}, r"paragraphs\[0\].*title"),
        (MUSIQUE, {"question_decomposition": [7]}, "question_decomposition"),
        (SAMPLE, {"prompt": [{"role": "system", "content": "x"}]}, "prompt"),
        (SAMPLE, {"reward_model": {"ground_truth": True}}, "ground_truth"),
    ],
)
def test_a_malformed_row_is_an_error_with_file_row_and_field(
    tmp_path: Path, base: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(base) + "\n" + json.dumps({**base, **change}) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"rows\.jsonl line 2: .*{field}") as caught:
        load_qa(path)
    assert not isinstance(caught.value, UnusableRow)


def test_a_row_of_no_known_layout_is_told_what_is_known() -> None:
    with pytest.raises(ValueError, match=r"HotpotQA or 2WikiMultihopQA.*MuSiQue.*sample schema.*'colour'"):
        parse_qa({"colour": "green"})


def test_layouts_may_be_mixed_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "mixed.json"
    path.write_text(json.dumps([HOTPOT, TWO_WIKI, MUSIQUE, SAMPLE]), encoding="utf-8")
    assert [task.data_source for task in load_qa(path)] == ["hotpotqa", "2wikimultihopqa", "musique", "made"]


def test_sentences_without_their_own_blanks_are_joined_with_one() -> None:
    assert Paragraph("t", ("One.", "Two.", " Three.", "")).text == "One. Two. Three."


def test_the_file_of_a_split_is_found_by_its_official_or_its_plain_name(tmp_path: Path) -> None:
    (tmp_path / "hotpot_train_v1.1.json").touch()
    (tmp_path / "dev.jsonl").touch()
    assert find_split_file(tmp_path, "train").name == "hotpot_train_v1.1.json"
    assert find_split_file(tmp_path, "validation").name == "dev.jsonl"
    with pytest.raises(FileNotFoundError, match=r"'test'.*test\.jsonl"):
        find_split_file(tmp_path, "test")
    with pytest.raises(ValueError, match="one of train, validation, test"):
        find_split_file(tmp_path, "training")


@pytest.mark.parametrize("name", ["distractor.jsonl", "2wiki.jsonl", "musique.jsonl", "dev_qa.jsonl", "rows_agent_r1.parquet"])
def test_every_published_row_loads(data_dir: Path, name: str) -> None:
    if name.endswith("parquet"):
        require("pyarrow")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tasks = load_qa(data_dir / "hotpotqa" / name)
    dropped = [str(warning.message) for warning in caught if warning.category is UserWarning]  # no ResourceWarning of some earlier test
    assert all("normalises to nothing" in message for message in dropped)
    assert tasks and all(normalize_answer(task.golds[0]) and task.question for task in tasks)
    if name in ("distractor.jsonl", "2wiki.jsonl", "musique.jsonl"):
        assert not dropped
        for task in tasks:
            titles = {paragraph.title for paragraph in task.paragraphs}
            assert 1 <= len(task.hops) <= 4 and set(task.hops) <= titles
            assert set(task.hops) == {title for title, _ in task.supporting_facts}


def test_the_order_of_published_hops_leads_from_the_question_to_the_answer(data_dir: Path) -> None:
    """Where the data sets state the order themselves: the facts of 2Wiki's compositional rows. The loader must find it without that order."""
    rows = [json.loads(line) for line in (data_dir / "hotpotqa" / "2wiki.jsonl").read_text(encoding="utf-8").splitlines()]
    chains = [row for row in rows if row["type"] == "compositional"]
    turned = [{**row, "supporting_facts": row["supporting_facts"][::-1]} for row in chains]
    right = [parse_qa(row).hops == tuple(dict.fromkeys(title for title, _ in row["supporting_facts"])) for row in chains]
    right_turned = [
        parse_qa(back).hops == tuple(dict.fromkeys(title for title, _ in row["supporting_facts"]))
        for row, back in zip(chains, turned, strict=True)
    ]
    assert sum(right) / len(chains) > 0.95
    assert sum(right_turned) / len(chains) > 0.85


@pytest.mark.parametrize(
    ("layout", "change", "place"),
    [
        ("hotpot", {"supporting_facts": {"title": [None], "sent_id": [0]}}, r"supporting_facts\.title\[0\]"),
        ("hotpot", {"supporting_facts": {"title": ["T", 5], "sent_id": [0, 0]}}, r"supporting_facts\.title\[1\]"),
        ("hotpot", {"supporting_facts": {"title": [["a"]], "sent_id": [0]}}, r"supporting_facts\.title\[0\]"),
        ("hotpot", {"context": {"title": [None], "sentences": [["s"]]}}, r"context\.title\[0\]"),
        ("musique", {"paragraphs": [{"title": "T", "paragraph_text": "t", "idx": [0]}]}, r"paragraphs\[0\]: field 'idx'"),
        (
            "musique",
            {"question_decomposition": [{"paragraph_support_idx": [0]}]},
            r"question_decomposition\[0\]: field 'paragraph_support_idx'",
        ),
        (
            "musique",
            {"question_decomposition": [{"paragraph_support_idx": {"a": 1}}]},
            r"question_decomposition\[0\]: field 'paragraph_support_idx'",
        ),
    ],
)
def test_members_of_a_wrong_type_are_errors_with_row_and_field(layout: str, change: dict[str, Any], place: str) -> None:
    row = {
        "question": "q?",
        "answer": "x",
        **({"paragraphs": [{"title": "T", "paragraph_text": "t"}]} if layout == "musique" else {}),
        **change,
    }
    with pytest.raises(ValueError, match=f"^file line 3.*{place}"):
        parse_qa(row, where="file line 3")
    if layout == "hotpot":
        sample = {"prompt": "q?", "reward_model": {"ground_truth": "x"}, "extra_info": change}
        with pytest.raises(ValueError, match=f"^file line 3: extra_info.*{place}"):
            parse_qa(sample, where="file line 3")


def test_steps_without_a_paragraph_are_no_hops() -> None:
    pages = [{"title": "A", "paragraph_text": "a", "idx": "p1"}, {"title": "B", "paragraph_text": "b"}]
    row = {
        "question": "q?",
        "answer": "x",
        "paragraphs": pages,
        "question_decomposition": [{"paragraph_support_idx": 1}, {}, {"paragraph_support_idx": "p1"}],
    }
    assert parse_qa(row).hops == ("B", "A")
