"""The sample schema of Agent-R1 (arXiv 2511.14460), and readers for the files that hold such rows.

A row is a `prompt` (chat messages, or one text), a `reward_model` with a `style` and a `ground_truth`, and optionally `agent_name` (which flow
runs it), `env_kwargs` (how its environment is made), `extra_info`, `data_source` and `ability`. Other projects write the same thing in slightly
different ways, and columnar files bend it once more, so reading is where the differences end:

- `env_kwargs` is a dict, or a JSON string of one. It is a string in files because Arrow gives all rows of a column one common struct type and
  fills what a row lacks with null; for the same reason members of a dict that are None are dropped on reading. (A null inside a JSON string
  was written by somebody and stays.)
- the ground truth is a text, a number, a list of accepted texts, or `{"target": ...}` of either: `accepted_answers` makes a list of texts.
- keys that the schema does not name are kept in `Sample.other`.

What is wrong with a row is said with the file, the row and the field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

from agent_gym.data.faults import field_fault, missing_field, require_object

__all__ = [
    "Sample",
    "accepted_answers",
    "drop_none",
    "is_sample",
    "json_object",
    "message_text",
    "parse_sample",
    "plain_json",
    "read_rows",
    "read_samples",
    "sample_row",
    "write_rows",
]

_HALVES = re.compile("[\ud800-\udfff]")
_UNDECODED = re.compile("[\udc80-\udcff]")
"""How bytes are carried along that are no UTF-8."""
_NAMED = ("data_source", "agent_name", "prompt", "ability", "reward_model", "env_kwargs", "extra_info")
_AS_JSON = ("env_kwargs", "options")
"""Columns of rows that we write which hold a JSON string instead of a struct."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One row of the Agent-R1 sample schema, read.

    Attributes:
        prompt: chat messages as dicts with "role" and "content", or one text.
        answers: the accepted answers as texts, the first of them first; empty where the row has no ground truth.
        ground_truth: as the row has it, None where it has none.
        style: of the reward model, such as "rule"; empty when unnamed.
        agent_name: the flow that runs the row; empty when unnamed.
        env_kwargs: keywords of the environment.
        extra_info: whatever the row's author put there.
        data_source: the name of the data set; empty when unnamed.
        ability: such as "math"; empty when unnamed.
        reward_model: the whole dict, with keys beyond style and ground_truth.
        other: keys of the row that the schema does not name.
        where: the file and row that it comes from, for error texts.
    """

    prompt: str | tuple[Mapping[str, Any], ...]
    answers: tuple[str, ...] = ()
    ground_truth: Any = None
    style: str = ""
    agent_name: str = ""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    data_source: str = ""
    ability: str = ""
    reward_model: Mapping[str, Any] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)
    where: str = field(default="", compare=False)

    @property
    def question(self) -> str:
        """The text of the last user message, or the prompt itself when it is a text."""
        if isinstance(self.prompt, str):
            return self.prompt
        texts = [message_text(message) for message in self.prompt if message.get("role") == "user"]
        return texts[-1] if texts else ""


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a chat message.

    Args:
        message: its content is a text, or a list of parts of which those of type text count.

    Returns:
        The text.
    """
    content = message.get("content", "")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def drop_none(value: Any) -> Any:
    """Return the value without the dict members that are None, at any depth; array-like members become lists.

    Args:
        value: anything that a row may hold.

    Returns:
        The cleaned value. Items of a list stay, None or not.
    """
    if isinstance(value, Mapping):
        return {key: drop_none(member) for key, member in value.items() if member is not None}
    if isinstance(value, (list, tuple)):
        return [drop_none(item) for item in value]
    if hasattr(value, "tolist"):  # a numpy array or scalar, as pandas hands them out
        return drop_none(value.tolist())
    return value


def accepted_answers(ground_truth: Any, *, where: str = "row", name: str = "reward_model.ground_truth") -> list[str]:
    """Return the accepted answers of a ground truth as texts.

    Args:
        ground_truth: a text, a number, a list of these, `{"target": ...}` of any of these, or None.
        where: file and row, for the error text.
        name: the field's name, for the error text.

    Returns:
        The answers in order, without repetitions; empty for None. A whole number has no decimal point ("18", also for 18.0, since columnar
        files turn integers beside a null into floats).

    Raises:
        ValueError: for anything else.
    """
    if isinstance(ground_truth, Mapping):
        if "target" not in ground_truth:
            raise field_fault(where, name, "a text, a number, a list, or a dict with the key 'target'", dict(ground_truth))
        return accepted_answers(ground_truth["target"], where=where, name=f"{name}.target")
    if isinstance(ground_truth, (list, tuple)):
        nested = (accepted_answers(item, where=where, name=f"{name}[{index}]") for index, item in enumerate(ground_truth))
        return list(dict.fromkeys(chain.from_iterable(nested)))
    if ground_truth is None:
        return []
    if isinstance(ground_truth, str):
        return _written_target(ground_truth, where, name)
    if isinstance(ground_truth, Decimal) and ground_truth.is_finite():
        return [f"{ground_truth.normalize():f}"]
    if hasattr(ground_truth, "tolist"):
        return accepted_answers(ground_truth.tolist(), where=where, name=name)
    if isinstance(ground_truth, int) and not isinstance(ground_truth, bool):
        return [_digits(ground_truth, where, name)]  # before anything with floats: an int may be too large for one
    if not isinstance(ground_truth, float) or not math.isfinite(ground_truth):
        raise field_fault(where, name, "a text, a finite number, a list, or a dict with the key 'target'", ground_truth)
    return [str(int(ground_truth)) if float(ground_truth).is_integer() else repr(ground_truth)]


def _written_target(text: str, where: str, name: str) -> list[str]:
    """The answers of a text: itself, or those of the object with the key "target" that it holds as JSON."""
    if text.lstrip()[:1] == "{":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return [text]
        if isinstance(value, dict) and "target" in value:
            return accepted_answers(value, where=where, name=name)
    return [text]


def plain_json(value: Any, *, where: str = "row", name: str = "") -> Any:
    """Return a value as JSON can write it.

    Args:
        value: anything that a row may hold. Dates and times become texts in ISO form, decimal numbers texts, arrays lists.
        where: file and row, for the error text.
        name: the field's name, for the error text.

    Returns:
        A value of dicts with texts as keys, lists, texts, numbers, booleans and None.

    Raises:
        ValueError: for bytes and anything else that is no text or number; the text names the field.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_json(member, where=where, name=f"{name}.{key}" if name else str(key)) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_json(item, where=where, name=f"{name}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if hasattr(value, "tolist"):
        return plain_json(value.tolist(), where=where, name=name)
    raise field_fault(where, name, "text, a number, a list or an object (rows are texts; pictures and other bytes are not played)", value)


def _digits(number: int, where: str, name: str) -> str:
    try:
        return str(number)
    except ValueError as error:  # Python writes no more than some thousands of digits
        raise ValueError(f"{where}: field {name!r} is a number with too many digits: {error}") from error


def json_object(value: Any, *, where: str = "row", name: str = "env_kwargs") -> dict[str, Any]:
    """Return a dict that a row holds as a dict or as a JSON string.

    Args:
        value: a dict, a JSON string of an object, an empty string, or None.
        where: file and row, for the error text.
        name: the field's name, for the error text.

    Returns:
        The dict; empty for None and for an empty string.

    Raises:
        ValueError: if it is neither, or the string is no JSON object.
    """
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: field {name!r} is a string, but no JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise field_fault(where, name, "a JSON object", value)
        return parsed
    if not isinstance(value, Mapping):
        raise field_fault(where, name, "a dict or a JSON string of one", value)
    try:
        cleaned: dict[str, Any] = drop_none(value)
    except RecursionError as error:
        raise ValueError(f"{where}: field {name!r} is nested too deeply") from error
    return cleaned


def is_sample(row: Mapping[str, Any]) -> bool:
    """Whether a row is of the sample schema, by its keys.

    Args:
        row: any row of a file.

    Returns:
        True where it has `prompt` and `reward_model`.
    """
    return "prompt" in row and "reward_model" in row


def _messages(value: Any, where: str) -> str | tuple[Mapping[str, Any], ...]:
    if isinstance(value, str):
        value = _written_messages(value)
        if isinstance(value, str):
            return value
    if not isinstance(value, (list, tuple)) or not value:
        raise field_fault(where, "prompt", "a text or a non-empty list of messages", value)
    for index, message in enumerate(value):
        if not isinstance(message, Mapping):
            raise field_fault(where, f"prompt[{index}]", "a message with 'role' and 'content'", message)
        if not isinstance(message.get("role"), str):
            raise field_fault(where, f"prompt[{index}].role", "a text", message.get("role"))
        if not isinstance(message.get("content", ""), (str, list)):
            raise field_fault(where, f"prompt[{index}].content", "a text or a list of parts", message.get("content"))
    return tuple(value)


def _written_messages(text: str) -> Any:
    """The messages that a text holds as JSON; the text itself where it is no such thing."""
    if text.lstrip()[:1] != "[":
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    whole = isinstance(value, list) and value and all(isinstance(one, dict) and {"role", "content"} <= set(one) for one in value)
    return drop_none(value) if whole else text


def _text(row: Mapping[str, Any], name: str, where: str, shown: str = "") -> str:
    value = row.get(name, "")
    if not isinstance(value, str):
        raise field_fault(where, shown or name, "a text", value)
    return value


def parse_sample(row: Mapping[str, Any], *, where: str = "row") -> Sample:
    """Read one row of the sample schema.

    Args:
        row: as a reader gives it.
        where: file and row, for error texts.

    Returns:
        The sample.

    Raises:
        ValueError: if a required field (`prompt`, `reward_model`) is missing or a field has the wrong type; the text names where and which.
    """
    require_object(row, where)
    cleaned: dict[str, Any] = {}
    for name, value in row.items():
        try:
            cleaned.update(drop_none({name: value} if name != "env_kwargs" else {}))
        except RecursionError as error:
            raise ValueError(f"{where}: field {name!r} is nested too deeply") from error
    for name in ("prompt", "reward_model"):
        if name not in cleaned:
            raise missing_field(where, name, row, "a sample needs 'prompt' and 'reward_model'")
    prompt = _messages(cleaned["prompt"], where)
    reward_model, env_kwargs, extra_info = (
        json_object(given.get(name), where=where, name=name)
        for name, given in (("reward_model", cleaned), ("env_kwargs", row), ("extra_info", cleaned))
    )
    _require_whole({**cleaned, "prompt": prompt, "reward_model": reward_model, "env_kwargs": env_kwargs, "extra_info": extra_info}, where)
    ground_truth = reward_model.get("ground_truth")
    return Sample(
        prompt=prompt,
        answers=tuple(accepted_answers(ground_truth, where=where)),
        ground_truth=ground_truth,
        style=_text(reward_model, "style", where, "reward_model.style"),
        agent_name=_text(cleaned, "agent_name", where),
        env_kwargs=env_kwargs,
        extra_info=extra_info,
        data_source=_text(cleaned, "data_source", where),
        ability=_text(cleaned, "ability", where),
        reward_model=reward_model,
        other={key: value for key, value in cleaned.items() if key not in _NAMED},
        where=where,
    )


def _require_whole(row: Mapping[str, Any], where: str) -> None:
    """Refuse a row with half of a surrogate pair: no file and no tokenizer takes such text."""
    for name, value in row.items():
        try:
            broken = _field_with(_HALVES, {name: value})
        except RecursionError as error:
            raise ValueError(f"{where}: field {name!r} is nested too deeply") from error
        if broken:
            raise field_fault(where, broken[0], "text without halves of surrogate pairs", broken[1])


def sample_row(sample: Sample) -> dict[str, Any]:
    """Return the row of a sample, `env_kwargs` as a JSON string: what `parse_sample` reads back.

    Args:
        sample: to be written.

    Returns:
        A dict ready for `write_rows`. Unnamed texts and empty dicts are left out.
    """
    prompt = sample.prompt if isinstance(sample.prompt, str) else [dict(message) for message in sample.prompt]
    row: dict[str, Any] = {**sample.other, "prompt": prompt, "reward_model": dict(sample.reward_model)}
    for name in ("data_source", "agent_name", "ability"):
        if getattr(sample, name):
            row[name] = getattr(sample, name)
    if sample.extra_info:
        row["extra_info"] = dict(sample.extra_info)
    if sample.env_kwargs:
        row["env_kwargs"] = json.dumps(dict(sample.env_kwargs), ensure_ascii=False)
    return row


def _pyarrow(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f'{path} is a Parquet file, which needs pyarrow: pip install "agentr1-gym[train]"') from error
    return pyarrow


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    arrow = _pyarrow(path)
    number = 0
    try:
        with arrow.parquet.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=1024):
                for row in _batch_rows(batch, path, number):
                    yield f"{path.name} row {number}", row
                    number += 1
    except (arrow.ArrowException, OSError) as error:
        raise ValueError(f"{path.name} row {number}: no Parquet file, or a damaged one: {error}") from error


def _batch_rows(batch: Any, path: Path, first: int) -> list[Any]:
    try:
        rows: list[Any] = batch.to_pylist()
        return rows
    except UnicodeDecodeError:  # a column that calls itself text and is not: find the row and the field
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            for index in range(len(column)):
                try:
                    column[index].as_py()
                except UnicodeDecodeError as error:
                    raise ValueError(f"{path.name} row {first + index}: field {name!r} is no text in UTF-8 ({error})") from error
        raise


def _text_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Rows of a JSON array, of an object with the one key "data", or of JSON lines: told apart by content, not by the file's name.

    Bytes that are no UTF-8 are carried along until the row that holds them is known.
    """
    with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
        first = file.read(1)
        while first and first.isspace():
            first = file.read(1)
        file.seek(0)
        if first == "[":
            yield from _array_rows(path, _parse(file.read(), str(path.name)))
            return
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            if number == 1 and _goes_on(line):  # an object over several lines: one document, no JSON lines
                file.seek(0)
                document = _parse(file.read(), str(path.name))
                yield from _array_rows(path, document.get("data", [document]))
                return
            row = _parse(line, f"{path.name} line {number}")
            if number == 1 and isinstance(row, dict) and isinstance(row.get("data"), list):
                yield from _array_rows(path, row["data"])
                continue
            yield f"{path.name} line {number}", row


def _goes_on(line: str) -> bool:
    """Whether a line begins a JSON object that ends on a later one."""
    text = line.strip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return text.startswith("{") and error.pos >= len(text)
    except (ValueError, RecursionError):
        pass
    return False


def _array_rows(path: Path, rows: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(rows, list):
        raise ValueError(f"{path.name}: the key 'data' must hold a list of rows, not {type(rows).__name__}")
    for number, row in enumerate(rows):
        yield f"{path.name} row {number}", row


def _parse(text: str, where: str) -> Any:
    broken = _undecoded(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if broken:
            raise ValueError(f"{where}: no text in UTF-8 (byte {broken}); unpack the file if it is packed, or save it as UTF-8") from error
        raise ValueError(f"{where}: no valid JSON: {error}") from error
    if broken:
        named = _field_with(_UNDECODED, value)
        field = f"field {named[0]!r} is " if named and named[0] else ""
        raise ValueError(f"{where}: {field}no text in UTF-8 (byte {broken}); save the file as UTF-8")
    return value


def _undecoded(text: str) -> str:
    """The first byte of a text that was no UTF-8, in hexadecimal digits; "" where all of it was."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return f"0x{ord(text[error.start]) - 0xDC00:02x}"
    return ""


def _field_with(letters: re.Pattern[str], value: Any, name: str = "") -> tuple[str, str] | None:
    """The name and the text of the first text in a value, keys included, that holds one of the letters."""
    if isinstance(value, str):
        return (name, value) if letters.search(value) else None
    found: Iterable[tuple[str, str] | None] = ()
    if isinstance(value, Mapping):
        named = [(f"{name}.{key}" if name else str(key), str(key), member) for key, member in value.items()]
        found = ((full, key) if letters.search(key) else _field_with(letters, member, full) for full, key, member in named)
    elif isinstance(value, (list, tuple)):
        found = (_field_with(letters, item, f"{name}[{index}]") for index, item in enumerate(value))
    return next((one for one in found if one), None)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix in (".parquet", ".pq") or file.read(4) == b"PAR1"


def read_rows(source: str | Path | Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a file or of a collection, each with the place it comes from.

    Args:
        source: a path to Parquet, JSON or JSON lines (told apart by content), a `datasets.Dataset`, or any iterable of dicts.

    Yields:
        (where, row): where is like "train.jsonl line 12" (counted from 1) or "train.parquet row 3" (counted from 0).

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: for Parquet without pyarrow; the text names the extra.
        ValueError: if the file is no JSON, or a row is no object.
        TypeError: if the source is none of these.
    """
    if isinstance(source, (str, Path)):
        path = Path(source)
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is no file that can be read" if path.exists() else ""
            named = f"{str(source)!r} {what}" if what else f"there is no file {str(source)!r}"
            raise FileNotFoundError(f"{named}; give a .parquet, .jsonl or .json file")
        pairs = _parquet_rows(path) if _is_parquet(path) else _text_rows(path)
    elif isinstance(source, Mapping) or not isinstance(source, Iterable):
        raise TypeError(f"rows come from a path, a datasets.Dataset or a list of dicts, not from {type(source).__name__}")
    else:
        pairs = ((f"row {number}", row) for number, row in enumerate(source))
    for where, row in pairs:
        require_object(row, where)
        yield where, row


def read_samples(source: str | Path | Iterable[Mapping[str, Any]]) -> list[Sample]:
    """Read all rows of a source as samples.

    Args:
        source: as for `read_rows`.

    Returns:
        The samples in order.

    Raises:
        FileNotFoundError: if there is no such file.
        ImportError: for Parquet without pyarrow.
        ValueError: for the first malformed row, with file, row and field.
    """
    return [parse_sample(row, where=where) for where, row in read_rows(source)]


def write_rows(rows: Iterable[Mapping[str, Any]], path: str | Path) -> Path:
    """Write rows as Parquet or JSON lines; `env_kwargs` and `options` that are dicts become JSON strings.

    Args:
        rows: dicts.
        path: ends in `.parquet` for Parquet; anything else is JSON lines.

    Returns:
        The path.

    Raises:
        ImportError: for Parquet without pyarrow.
    """
    target = Path(path)
    ready = [
        {
            key: json.dumps(value, ensure_ascii=False) if key in _AS_JSON and isinstance(value, Mapping) else value
            for key, value in row.items()
        }
        for row in rows
    ]
    if target.suffix == ".parquet":
        arrow = _pyarrow(target)
        columns = list(dict.fromkeys(chain.from_iterable(ready)))
        arrow.parquet.write_table(arrow.Table.from_pylist([{name: row.get(name) for name in columns} for row in ready]), target)
    else:
        target.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ready), encoding="utf-8")
    return target
