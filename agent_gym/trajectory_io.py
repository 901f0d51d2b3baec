"""Trajectories in files: JSONL, which can be appended to, and Parquet, which is small and quick to query. Both are lossless.

A transition's next observation is stored once, as the observation of the step behind it. An observation that begins as the last
observation and action did (every appended context does) is stored as the length of what it shares with them and the ids behind that.

Values that JSON has no form for (tuples, bytes, arrays, not-a-number, dictionaries with other keys than strings) are written as an object
with the single key "$" + kind. Every file states its schema version; a newer one is refused.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_gym.trajectory import Step, StopReason, Trajectory

__all__ = ["SCHEMA_VERSION", "TrajectoryWriter", "dump_line", "iter_trajectories", "load_trajectories", "parse_line", "save_trajectories"]

SCHEMA_VERSION = 1
"""Of what this module writes. It reads this version and all before it."""
_FORMAT = "agent-gym-trajectories"
_PARQUET_KEY = b"agent_gym.trajectories"


# ------------------------------------------------------------------------------------------------------------ any value as JSON
def _encode(value: Any) -> Any:
    """Return a value that JSON holds, from which `_decode` makes the same again."""
    if value is None or isinstance(value, (bool, int, str)):
        return _enum_free(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, (np.generic, np.ndarray)):
        kind = "$array" if isinstance(value, np.ndarray) else "$scalar"
        array = np.asarray(value)
        if array.dtype.kind not in "biufcUSMm":
            raise TypeError(f"a trajectory cannot store a numpy array of dtype {array.dtype}; put numbers or text into info")
        return {kind: [array.dtype.str, list(array.shape), base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")]}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and not (len(value) == 1 and next(iter(value)).startswith("$")):
            return {str(key): _encode(item) for key, item in value.items()}
        return {"$dict": [[_encode(key), _encode(item)] for key, item in value.items()]}
    if isinstance(value, tuple):
        return {"$tuple": [_encode(item) for item in value]}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {"$set": sorted((_encode(item) for item in value), key=json.dumps)}
    raise TypeError(
        f"a trajectory cannot store {type(value).__name__} {value!r:.100}; put numbers, text, lists, tuples, dictionaries or numpy arrays into info"
    )


def _enum_free(value: Any) -> Any:
    """Members of str and int enums as the plain value they equal."""
    if value is None or type(value) in (bool, int, str):
        return value
    return str.__str__(value) if isinstance(value, str) else int(value)


def _array(content: list[Any]) -> NDArray[Any]:
    dtype, shape, data = content
    return np.frombuffer(base64.b64decode(data), dtype=np.dtype(dtype)).reshape(shape).copy()


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$array": _array,
    "$scalar": lambda content: _array(content)[()],
    "$bytes": base64.b64decode,
    "$dict": lambda content: {_decode(key): _decode(item) for key, item in content},
    "$tuple": lambda content: tuple(_decode(item) for item in content),
    "$set": lambda content: {_decode(item) for item in content},
}


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1:
            (key, content), *_ = value.items()
            if key in _DECODERS:
                return _DECODERS[key](content)
        return {key: _decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return value


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


# ------------------------------------------------------------------------------------------------------------ trajectories as records
_HEAD = ("env_id", "env_kwargs", "task_id", "group_id", "seed", "options", "sampling", "tokenizer_fingerprint", "metrics")
_STEP = ("finish_reason", "policy_version", "feedback", "reward", "reward_parts", "terminated", "truncated", "state_key", "info")


def _shared(before: NDArray[np.int64], now: NDArray[np.int64]) -> int:
    """The length of the common prefix."""
    size = min(len(before), len(now))
    unequal = np.flatnonzero(before[:size] != now[:size])
    return int(unequal[0]) if len(unequal) else size


def _observations(trajectory: Trajectory) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each observation, the final one last, as (ids shared with what stands before it, ids behind them)."""
    before = np.empty(0, dtype=np.int64)
    for step in trajectory.steps:
        shared = _shared(before, step.observation_ids)
        yield shared, step.observation_ids[shared:]
        before = np.concatenate([step.observation_ids, step.action_ids])
    shared = _shared(before, trajectory.final_observation)
    yield shared, trajectory.final_observation[shared:]


def _rebuild(
    head: Mapping[str, Any], shared: list[int], rest: list[Any], actions: list[Any], logprobs: list[Any], steps: list[Mapping[str, Any]]
) -> Trajectory:
    before = np.empty(0, dtype=np.int64)
    built = []
    for index, step in enumerate(steps):
        observation = np.concatenate([before[: shared[index]], np.asarray(rest[index], dtype=np.int64)])
        action = np.asarray(actions[index], dtype=np.int64)
        fields = {key: _decode(step[key]) for key in _STEP}
        built.append(
            Step(
                observation_ids=observation,
                action_ids=action,
                logprobs=logprobs[index],
                stop_reason=StopReason(step["stop_reason"]),
                **fields,
            )
        )
        before = np.concatenate([observation, action])
    final = np.concatenate([before[: shared[-1]], np.asarray(rest[-1], dtype=np.int64)])
    exact = bool(head.get("token_exact", True))
    return Trajectory(steps=built, final_observation=final, token_exact=exact, **{key: _decode(head[key]) for key in _HEAD})


def _head_record(trajectory: Trajectory) -> dict[str, Any]:
    mark = {} if trajectory.token_exact else {"token_exact": False}  # said where it is not the rule
    return {**{key: _encode(getattr(trajectory, key)) for key in _HEAD}, **mark}


def _step_record(step: Step) -> dict[str, Any]:
    return {**{key: _encode(getattr(step, key)) for key in _STEP}, "stop_reason": str(step.stop_reason)}


def _float_list(values: NDArray[np.float32] | None) -> list[Any] | None:
    return None if values is None else [value if math.isfinite(value) else repr(value) for value in values.astype(float).tolist()]


def _to_json(trajectory: Trajectory) -> str:
    observations = list(_observations(trajectory))
    steps = [
        {
            "observation": [shared, rest.tolist()],
            "action_ids": step.action_ids.tolist(),
            "logprobs": _float_list(step.logprobs),
            **_step_record(step),
        }
        for (shared, rest), step in zip(observations[:-1], trajectory.steps, strict=True)
    ]
    shared, rest = observations[-1]
    return _dumps({**_head_record(trajectory), "steps": steps, "final_observation": [shared, rest.tolist()]})


def _from_json(record: Mapping[str, Any]) -> Trajectory:
    steps = record["steps"]
    observations = [*(step["observation"] for step in steps), record["final_observation"]]
    logprobs = [
        None if step["logprobs"] is None else np.array([float(value) for value in step["logprobs"]], dtype=np.float32) for step in steps
    ]
    return _rebuild(
        record, [o[0] for o in observations], [o[1] for o in observations], [step["action_ids"] for step in steps], logprobs, steps
    )


def _check_version(version: Any, path: Path) -> None:
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"{path} states the schema version {version!r}, which is none; it was not written by agent-gym, or is damaged")
    if version > SCHEMA_VERSION:
        raise ValueError(
            f"{path} has schema version {version}, and this agent-gym reads versions up to {SCHEMA_VERSION}; install a newer agentr1-gym to read it"
        )


# ------------------------------------------------------------------------------------------------------------ JSONL
_MAX_HEADER = 4096  # bytes; a longer first line is nobody's header


def _header() -> str:
    return _dumps({"format": _FORMAT, "version": SCHEMA_VERSION})


class TrajectoryWriter:
    """Appends trajectories to a JSONL file, each flushed as a whole line.

    A file whose last line was cut off (by a kill in the middle of a write) is repaired on opening: the fragment is removed.

    Args:
        path: the file; made with its header when missing. Folders are made too.

    Raises:
        ValueError: if the file is no trajectory file, or has a newer schema version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._repair()
        self._file = self.path.open("a", encoding="utf-8", newline="\n")
        if self._file.tell() == 0:
            self._line(_header())

    def _repair(self) -> None:
        if not self.path.exists() or not self.path.stat().st_size:
            return
        with self.path.open("rb+") as file:
            first = file.readline(_MAX_HEADER)
            cut_header = len(first) < len(_header()) and _header().encode().startswith(first)
            if not cut_header:
                _read_header(first, self.path)  # before anything is written: the file may be somebody else's
            end = file.seek(0, os.SEEK_END)
            cut = _last_newline(file, end)
            if cut != end:
                file.seek(cut)
                fragment = file.read()
                if _is_json(fragment):
                    file.write(b"\n")
                else:
                    warnings.warn(
                        f"{self.path}: the last line was cut off in the middle and is removed ({len(fragment)} bytes)", stacklevel=3
                    )
                    file.truncate(cut)

    def _line(self, text: str) -> None:
        self._file.write(text + "\n")
        self._file.flush()

    def write(self, trajectory: Trajectory) -> None:
        """Append one trajectory.

        Args:
            trajectory: any trajectory.

        Raises:
            TypeError: if its info holds something that cannot be stored; nothing is written then.
        """
        self._line(_to_json(trajectory))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _last_newline(file: Any, end: int) -> int:
    """Return the place behind the last newline."""
    step = 1 << 16
    while end > 0:
        begin = max(0, end - step)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return int(begin + found + 1)
        end = begin
    return 0


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _read_header(line: bytes | str, path: Path) -> None:
    """Check a header line.

    Raises:
        ValueError: if it is of another format or a newer version.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise ValueError(f'{path} is no trajectory file: its first line should be {{"format": "{_FORMAT}", "version": N}}')
    _check_version(record.get("version"), path)


def _iter_jsonl(path: Path, strict: bool) -> Iterator[Trajectory]:
    with path.open("rb") as file:
        first = file.readline()
        if not first.strip():
            if strict:
                raise ValueError(f"{path} is empty: not even the first line of a trajectory file stands in it")
            return
        _read_header(first, path)
        for number, line in enumerate(file, start=2):
            try:
                record = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                if line.endswith(b"\n"):
                    raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
                if strict:
                    raise ValueError(f"{path}, line {number}: the file was cut off here, in the middle of a trajectory") from error
                warnings.warn(f"{path}, line {number}: the last line was cut off in the middle and is left out", stacklevel=3)
                return
            trajectory = _of_record(record, path, f"{path}, line {number}")
            if trajectory is not None:
                yield trajectory


def _of_record(record: Any, path: Path, where: str) -> Trajectory | None:
    """What a line of JSONL holds; None for a header, which stands in the middle where files were put behind one another."""
    if isinstance(record, dict) and record.get("format") == _FORMAT:
        _check_version(record.get("version"), path)
        return None
    with _named_damage(where):
        return _from_json(record)


def dump_line(trajectory: Trajectory) -> bytes:
    """Return the line of a trajectory in a JSONL file.

    Args:
        trajectory: any trajectory.

    Returns:
        The line with its end; `parse_line` reads it.

    Raises:
        TypeError: if its info holds something that cannot be stored.
    """
    return (_to_json(trajectory) + "\n").encode("utf-8")


def parse_line(line: bytes, path: str | Path, where: str) -> Trajectory | None:
    """Read one line of a JSONL file by itself, for a reader that knows where lines begin.

    Args:
        line: the whole line.
        path: of the file, for messages.
        where: names the line in messages.

    Returns:
        The trajectory; None for a header.

    Raises:
        ValueError: if the line is damaged, or of a newer schema version.
    """
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error})") from error
    return _of_record(record, Path(path), where)


@contextlib.contextmanager
def _named_damage(where: str) -> Iterator[None]:
    """Turn whatever a damaged record raises into a ValueError that says where it stands."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: this record is damaged, or no trajectory ({error!r})") from error


# ------------------------------------------------------------------------------------------------------------ Parquet
def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError('Parquet files need pyarrow: pip install "agentr1-gym[train]"; JSONL needs nothing') from error
    return pyarrow


def _valid(text: str) -> str:
    """Text that UTF-8 can hold, for the columns that only serve queries."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _save_parquet(path: Path, trajectories: Iterable[Trajectory]) -> None:
    pa = _pyarrow()
    ids, nested = pa.list_(pa.int64()), pa.list_(pa.list_(pa.int64()))
    schema = pa.schema(
        [
            ("env_id", pa.string()),
            ("task_id", pa.string()),
            ("group_id", pa.string()),
            ("stop_reason", pa.string()),
            ("is_success", pa.bool_()),
            ("total_reward", pa.float64()),
            ("observation_shared", ids),
            ("observation_rest", nested),
            ("action_ids", nested),
            ("logprobs", pa.list_(pa.list_(pa.float32()))),
            ("rewards", pa.list_(pa.float64())),
            ("head", pa.string()),
            ("steps", pa.list_(pa.string())),
        ],
        metadata={_PARQUET_KEY: str(SCHEMA_VERSION).encode()},
    )

    def row(trajectory: Trajectory) -> dict[str, Any]:
        observations = list(_observations(trajectory))
        return {
            "env_id": _valid(trajectory.env_id),
            "task_id": _valid(trajectory.task_id),
            "group_id": _valid(trajectory.group_id),
            "stop_reason": str(trajectory.stop_reason),
            "is_success": trajectory.is_success,
            "total_reward": trajectory.total_reward,
            "observation_shared": [shared for shared, _ in observations],
            "observation_rest": [rest for _, rest in observations],
            "action_ids": [step.action_ids for step in trajectory.steps],
            "logprobs": [step.logprobs for step in trajectory.steps],
            "rewards": [float(step.reward) for step in trajectory.steps],
            "head": _dumps(_head_record(trajectory)),
            "steps": [_dumps(_step_record(step)) for step in trajectory.steps],
        }

    with pa.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        rows: list[dict[str, Any]] = []
        for trajectory in trajectories:
            rows.append(row(trajectory))
            if len(rows) == 256:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                rows = []
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _iter_parquet(path: Path) -> Iterator[Trajectory]:
    pa = _pyarrow()
    with pa.parquet.ParquetFile(path) as file:
        stated = (file.schema_arrow.metadata or {}).get(_PARQUET_KEY)
        if stated is None:
            raise ValueError(f"{path} is no trajectory file: its metadata has no {_PARQUET_KEY.decode()}")
        _check_version(int(stated) if stated.isdigit() else stated, path)
        number = 0
        for batch in file.iter_batches(batch_size=64):
            for row in batch.to_pylist():
                with _named_damage(f"{path}, row {number}"):
                    head, steps = json.loads(row["head"]), [json.loads(step) for step in row["steps"]]
                    logprobs = [None if values is None else np.array(values, dtype=np.float32) for values in row["logprobs"]]
                    trajectory = _rebuild(head, row["observation_shared"], row["observation_rest"], row["action_ids"], logprobs, steps)
                yield trajectory
                number += 1


# ------------------------------------------------------------------------------------------------------------ both
@contextlib.contextmanager
def _naming(target: Path) -> Iterator[None]:
    """An error of the disk names the file that was asked for and not the temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot write {target}: {error.strerror or error}") from error


def save_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> Path:
    """Write trajectories to a file, which appears whole or not at all.

    Args:
        path: ending in ".jsonl" or ".parquet"; a file that stands there is replaced. Folders are made.
        trajectories: any number, also from a generator.

    Returns:
        The path.

    Raises:
        ValueError: for another ending.
        TypeError: if an info holds something that cannot be stored.
        ImportError: for Parquet without pyarrow.
        OSError: if nothing can be written there.
    """
    target = Path(path)
    kind = _kind(target)
    with _naming(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        os.close(handle)
    temporary = Path(name)
    try:
        if kind == ".parquet":
            _save_parquet(temporary, trajectories)
        else:
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.write(_header() + "\n")
                for trajectory in trajectories:
                    file.write(_to_json(trajectory) + "\n")
        with _naming(target):
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def iter_trajectories(path: str | Path, *, strict: bool = False) -> Iterator[Trajectory]:
    """Read trajectories one after another.

    Args:
        path: ending in ".jsonl" or ".parquet".
        strict: an empty file and a cut-off last line are errors.

    Yields:
        The trajectories in order.

    Raises:
        ValueError: for another ending, a foreign file, a newer schema version or a damaged line. A cut-off last line of JSONL is left out
            with a warning.
        FileNotFoundError: if there is no such file.
        ImportError: for Parquet without pyarrow.
    """
    source = Path(path)
    yield from _iter_parquet(source) if _kind(source) == ".parquet" else _iter_jsonl(source, strict)


def load_trajectories(path: str | Path) -> list[Trajectory]:
    """Read all trajectories of a file; see `iter_trajectories`.

    Args:
        path: ending in ".jsonl" or ".parquet".

    Returns:
        The trajectories in order.
    """
    return list(iter_trajectories(path))


def _kind(path: Path) -> str:
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".parquet"):
        raise ValueError(f"{path} should end in .jsonl or .parquet, not {kind or 'nothing'!r}")
    return kind
