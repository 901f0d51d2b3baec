"""Word problems from the files that their authors publish: GSM8K (Cobbe et al., arXiv 2110.14168), and rows of the sample schema.

An official row is `question` and `answer`: a solution in steps, each sum marked as `<<16-3-4=9>>9` for a calculator, whose last line is `#### 9`.
What comes out is one mapping for `ToolEnv`: the question or the row's own prompt, the accepted answers as they are written, the solution, and
as `plan` the calls of a calculator that the marks stand for. All answers are numbers; a row whose answer is none is an error that names file,
row and field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_gym.data.faults import field_fault, missing_field, require_object
from agent_gym.data.files import named_file, read_once
from agent_gym.data.samples import accepted_answers, drop_none, is_sample, parse_sample, read_rows
from agent_gym.tools.calculator import CalculatorError, evaluate, format_number
from agent_gym.tools.numbers import find_number, marked_answer, read_number

__all__ = ["FILE_NAMES", "gsm8k_task", "load_gsm8k", "open_gsm8k"]

FILE_NAMES: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "gsm8k_train", "train-00000-of-00001"),
    "validation": ("validation", "valid", "dev"),
    "test": ("test", "gsm8k_test", "test-00000-of-00001"),
}
"""Names of the files of a split, without their endings. GSM8K itself has no validation set."""

_WANTED = "a row needs 'question' and 'answer' (GSM8K), or 'prompt' and 'reward_model' (the sample schema)"
_MARK = re.compile(r"<<([^<>=]{1,200})=[^<>]{0,100}>>")


def _gold(text: str, where: str, name: str) -> str:
    """The number of a solution, or of an answer alone, as it is written."""
    marked = marked_answer(text)
    written = text.strip() if marked is None else marked
    if (read_number(written) if marked is None else find_number(written)) is None:
        raise ValueError(
            f"{where}: field {name!r} must be a number, or a solution whose last line is '#### ' and a number, not {text[-120:]!r}"
        )
    return written


def _plan(solution: str) -> list[dict[str, Any]]:
    """The calls of a calculator that the marks of a solution stand for. A mark that our calculator does not read is left out."""
    plan = []
    for mark in _MARK.finditer(solution):
        expression = mark[1].strip()
        try:
            result = format_number(evaluate(expression))
        except CalculatorError:
            continue
        plan.append({"name": "calculator", "arguments": {"expression": expression}, "result": result})
    return plan


def gsm8k_task(row: Mapping[str, Any], *, where: str = "row") -> dict[str, Any]:
    """Read one row.

    Args:
        row: with `question` and `answer` as in the official files (or with the number alone as the answer), or of the sample schema.
        where: file and row, for error texts.

    Returns:
        `id`, `question`, `answer` (the accepted ones, as they are written), `solution` (empty where there is none), `plan` (calls, each with
        `name`, `arguments` and the `result` that the tool gives), and `prompt` where the row brings its own.

    Raises:
        ValueError: if the row is malformed, has no answer, or one that is no number; the text names file, row and field.
    """
    require_object(row, where)
    if is_sample(row):
        return _from_sample(row, where)
    cleaned: dict[str, Any] = drop_none(row)
    for name in ("question", "answer"):
        if name not in cleaned:
            raise missing_field(where, name, row, _WANTED)
    if not isinstance(cleaned["question"], str) or not cleaned["question"].strip():
        raise field_fault(where, "question", "a text that is not empty", cleaned["question"])
    given = accepted_answers(cleaned["answer"], where=where, name="answer")
    if not given:
        raise ValueError(f"{where}: field 'answer' is empty, so no answer can be scored")
    solution = given[0] if marked_answer(given[0]) is not None else ""
    return {
        "id": str(cleaned.get("id", where)),
        "question": cleaned["question"].strip(),
        "answer": [_gold(one, where, "answer") for one in given],
        "solution": solution,
        "plan": _plan(solution),
    }


def _from_sample(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    sample = parse_sample(row, where=where)
    if not sample.answers:
        raise ValueError(f"{where}: field 'reward_model.ground_truth' is empty, so no answer can be scored")
    worked = sample.extra_info.get("answer", "")
    solution = worked if isinstance(worked, str) and marked_answer(worked) is not None else ""
    question = sample.extra_info.get("question", sample.question)
    if not isinstance(question, str) or not question.strip():
        raise field_fault(where, "prompt", "a text or messages with a user message", row["prompt"])
    number = sample.extra_info.get("index", "")
    judged = {} if sample.style.startswith("rule") else {"reward_model": dict(sample.reward_model), "extra_info": dict(sample.extra_info)}
    return {
        **judged,
        "id": str(row.get("id") or (f"{sample.extra_info.get('split', 'row')}-{number}" if number != "" else where)),
        "question": question.strip(),
        "answer": [_gold(one, where, "reward_model.ground_truth") for one in sample.answers],
        "solution": solution,
        "plan": _plan(solution),
        "prompt": sample.prompt if isinstance(sample.prompt, str) else [dict(message) for message in sample.prompt],
    }


def load_gsm8k(source: str | Path | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Read a whole file or collection of rows.

    Args:
        source: as for `agent_gym.data.samples.read_rows`.

    Returns:
        The tasks in order.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: for Parquet without pyarrow.
        ValueError: for the first malformed row, with file, row and field, or if there is no row.
    """
    tasks = [gsm8k_task(row, where=where) for where, row in read_rows(source)]
    if not tasks:
        raise ValueError(f"{Path(source).name if isinstance(source, (str, Path)) else 'the rows'}: there is no row in it")
    return tasks


@read_once(maxsize=8)
def _load(path: Path) -> tuple[dict[str, Any], ...]:
    return tuple(load_gsm8k(path))


def open_gsm8k(
    dataset: str | Path | Iterable[Mapping[str, Any]], *, split: str, data_dir: str | Path | None = None
) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Read the rows that the keywords of an environment name. A file is read once per process.

    Args:
        dataset: "official" (the published files in `data_dir`), the path of a file, or of a folder with one file per split, or rows.
        split: "train", "validation" or "test". A single file and rows are the same in every split.
        data_dir: where "official" files lie and relative paths begin.

    Returns:
        The name of the source, and its tasks.

    Raises:
        FileNotFoundError: if there is no such file, or none of the split.
        ValueError: for "official" without `data_dir`, or a malformed file.
    """
    if not isinstance(dataset, (str, Path)):
        return "rows", tuple(load_gsm8k(dataset))
    hint = _HINT if split == "validation" else ""
    path = named_file(dataset, split=split, data_dir=data_dir, published=_PUBLISHED, stems=FILE_NAMES, hint=hint)
    return path.name, _load(path)


_PUBLISHED = "train.jsonl and test.jsonl (github.com/openai/grade-school-math)"
_HINT = "; GSM8K itself has no validation set: name the file that you hold out (dataset='.../train.jsonl'), or take split='test'"
