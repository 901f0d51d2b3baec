"""The folder of a training run: `RunFolder` writes it, and reads it back.

    config.yaml        what was asked for, and what it resolved to
    versions.json      Python, packages, machine, command
    metrics.jsonl      one line per record: {"kind", "step", ...}; only ever appended to
    summary.json       {"warm_start": {"sampled", "greedy"}, "final": {"sampled", "greedy"}, "tasks", "seed", ...}
    checkpoints/       folders that `from_pretrained` opens, and those that a run resumes from
    trajectories/      episodes, one file per occasion
    report.html        made by `agent_gym.report`

A run may die at any moment: by Ctrl-C, a full disk, a lost machine. So a file is replaced as a whole or not at all, a record is written as a
whole or not at all, a torn last line (the machine died in the middle of it) is put aside and never glued to the next record, and records
that a full disk refused are kept and written with the next one. A resumed run notes where it took up, and readers leave out what it did again.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from agent_gym.trajectory import Trajectory

__all__ = [
    "RunFolder",
    "RunFolderError",
    "atomic_folder",
    "atomic_write",
    "collect_versions",
    "is_disk_full",
    "publish_folder",
    "sync_folder",
    "to_plain",
]

_PACKAGES = (
    "agentr1-gym", "gymnasium", "numpy", "transformers", "tokenizers", "torch", "trl", "accelerate", "peft", "datasets", "vllm", "sglang",
)  # fmt: skip
_RESUMED = "resumed"


class RunFolderError(RuntimeError):
    """A run folder could not be written or read. The message says what is still whole and what to do."""


def to_plain(value: Any) -> Any:
    """Return the value as what JSON and YAML hold: dicts with string keys, lists, strings, numbers, booleans, None.

    Args:
        value: may hold numpy numbers and arrays, paths, tuples, sets, enums.

    Returns:
        The plain value. NaN and infinities become None, since JSON has no word for them; anything unknown becomes its `str`.
    """
    if isinstance(value, Enum):
        return to_plain(value.value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return to_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((to_plain(item) for item in value), key=str)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [to_plain(item) for item in value]
    return str(value)


def collect_versions() -> dict[str, Any]:
    """Return what a result depends on besides its settings. Nothing is imported for it.

    Returns:
        Python, system, processor count, the command line, and the versions of the installed packages that matter.
    """
    packages: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "packages": packages,
    }


def atomic_write(path: str | Path, content: str | bytes) -> Path:
    """Replace a file as a whole, or leave it as it was.

    Args:
        path: of the file; its folder is made.
        content: text is written as UTF-8.

    Returns:
        The path.

    Raises:
        RunFolderError: if the disk is full or the folder cannot be written.
    """
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        try:
            _write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        kept = "its former content is unchanged" if path.exists() else "nothing was left behind"
        raise RunFolderError(
            f"could not write {path}: {error.strerror or error}; {kept}. Free space or mend the folder, and run again."
        ) from error
    return path


@contextlib.contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Fill a folder as a whole, or leave it as it was: the context is another folder beside it, which takes its place at the end.

    Args:
        path: of the folder.

    Yields:
        The folder to fill.

    Raises:
        RunFolderError: if the disk is full.
    """
    path = Path(path)
    staging = path.parent / f".{path.name}.part"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir(parents=True)
        yield staging
        sync_folder(staging)
        publish_folder(staging, path)
    except BaseException as error:
        full = isinstance(error, Exception) and is_disk_full(error, path.parent)
        shutil.rmtree(staging, ignore_errors=True)
        if full:
            raise RunFolderError(
                f"could not write {path}: {error}; nothing was left behind. Free space, and resume with --resume."
            ) from error
        raise


def sync_folder(folder: Path) -> None:
    """Wait until every file in a folder is on the disk.

    Args:
        folder: with whatever is in it.
    """
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def publish_folder(staging: Path, path: Path) -> None:
    """Give a folder that is filled its name. Have it on the disk first (`sync_folder`), so that the name never stands for less.

    Args:
        staging: the folder, on the same disk.
        path: its name. A folder of that name is replaced.
    """
    old = path.parent / f".{path.name}.old.part"
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        os.replace(path, old)
    os.replace(staging, path)
    shutil.rmtree(old, ignore_errors=True)


_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_WORDS = ("No space left on device", "os error 28)", "os error 122)", "Disk quota exceeded")
_WRITER_WORDS = ("PytorchStreamWriter failed", "file write failed", "unexpected pos")  # torch.save says no more than this
_NO_ROOM = 1 << 20


def is_disk_full(error: BaseException, folder: str | Path | None = None) -> bool:
    """Whether an error came of a disk without room (or a quota that is used up).

    Args:
        error: of Python, or of a library that has errors of its own (safetensors, torch).
        folder: where was written. torch's writer does not say why it failed; there, a disk that is full now is taken for the reason.

    Returns:
        True if it did.
    """
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, OSError) and one.errno in _FULL:
            return True
        text = str(one)
        if any(words in text for words in _FULL_WORDS):
            return True
        if folder is not None and any(words in text for words in _WRITER_WORDS):
            with contextlib.suppress(OSError):
                if shutil.disk_usage(folder).free < _NO_ROOM:
                    return True
        one = one.__cause__ or one.__context__
    return False


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _dump(value: Any) -> str:
    return json.dumps(to_plain(value), ensure_ascii=False, allow_nan=False)


class RunFolder:
    """One run on the disk. Make it with `create` or `open`.

    Args:
        path: of the folder.

    Attributes:
        path: of the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._pending: list[str] = []
        self._tail_checked = False

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    # ------------------------------------------------------------------------------------------------ making and opening

    @classmethod
    def create(
        cls, path: str | Path, config: Mapping[str, Any], *, resume: bool = False, versions: Mapping[str, Any] | None = None
    ) -> RunFolder:
        """Begin a run, or take one up again.

        Args:
            path: a new or empty folder, or with `resume` that of an earlier run.
            config: written to config.yaml. A resumed run keeps its own, and the new one goes to config.resumed.yaml where it differs.
            resume: go on with the run that is there; where there is none, begin.
            versions: written to versions.json; None collects them.

        Returns:
            The folder.

        Raises:
            RunFolderError: if the folder holds a run and `resume` is False, or cannot be written.
        """
        run = cls(path)
        plain = to_plain(config)
        if run.exists:
            if not resume:
                raise RunFolderError(
                    f"{run.path} already holds a run; go on with it by resuming (--resume), or choose another folder (--output-dir)"
                )
            if run.config != plain:
                run._write_yaml("config.resumed.yaml", plain)
        else:
            run._write_yaml("config.yaml", plain)
        atomic_write(
            run.path / "versions.json", json.dumps(to_plain(versions if versions is not None else collect_versions()), indent=2) + "\n"
        )
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open a run for reading, or for writing more of it.

        Args:
            path: of the folder.

        Returns:
            The folder.

        Raises:
            RunFolderError: if there is no run.
        """
        run = cls(path)
        if not run.exists:
            raise RunFolderError(f"{run.path} is no run folder (it has no config.yaml); a folder that `agent-gym train` wrote is wanted")
        return run

    @classmethod
    def containing(cls, path: str | Path) -> RunFolder | None:
        """Find the run that a checkpoint belongs to.

        Args:
            path: a run folder or something inside one.

        Returns:
            The run, or None.
        """
        start = Path(path)
        for folder in (start, *start.resolve().parents[:3]):
            if (folder / "config.yaml").is_file() and (folder / "versions.json").is_file():
                return cls(folder)
        return None

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / "config.yaml").is_file()

    # ------------------------------------------------------------------------------------------------ what was asked for

    def _write_yaml(self, name: str, plain: Any) -> None:
        atomic_write(self.path / name, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.yaml."""
        try:
            loaded = yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise RunFolderError(f"could not read {self.path / 'config.yaml'}: {error}") from error
        return dict(loaded or {})

    @property
    def versions(self) -> dict[str, Any]:
        """The content of versions.json; empty where there is none."""
        return self._read_json("versions.json") or {}

    def _read_json(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        if not path.is_file():
            return None
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise RunFolderError(f"could not read {path}: {error}") from error

    # ------------------------------------------------------------------------------------------------ metrics

    @property
    def metrics_path(self) -> Path:
        """Of metrics.jsonl."""
        return self.path / "metrics.jsonl"

    def log(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Append one record.

        Args:
            kind: what it tells of: "warm_start", "train", "eval", or another word.
            step: the optimiser step of that kind.
            values: names and numbers; NaN is written as null.

        Raises:
            RunFolderError: if the disk refuses. The file then ends with the last whole record, and this one is kept and written by the next
                `log` or `flush`.
        """
        self._pending.append(_dump({"kind": kind, "step": int(step), **values}))
        self.flush()

    def log_once(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Append a record unless there is one of its kind and step with the same names: what an earlier process had done before it died.

        Args:
            kind: as for `log`.
            step: as for `log`.
            values: as for `log`.
        """
        if not any(one["step"] == step and set(values) <= set(one) for one in self.metrics(kind)):
            self.log(kind, step, values)

    def mark_begun_again(self) -> None:
        """Note that training begins again at its start, where there are records of an earlier process that left no checkpoint."""
        if any(one["kind"] not in ("warm_start", "time") and one["step"] > 0 for one in self.metrics()):
            self.mark_resumed(0)

    def mark_resumed(self, step: int, *, warm_start: bool = False) -> None:
        """Note that the run takes up at a checkpoint; what was logged of later steps will be done again, and readers leave it out.

        Args:
            step: the optimiser step of the checkpoint.
            warm_start: the warm start is done again as well.
        """
        self.log(_RESUMED, step, {"warm_start": True} if warm_start else {})

    def flush(self) -> None:
        """Write the records that are still waiting.

        Raises:
            RunFolderError: if the disk refuses.
        """
        if not self._pending:
            return
        data = "".join(line + "\n" for line in self._pending).encode("utf-8")
        try:
            if not self._tail_checked:
                self._put_torn_tail_aside()
                self._tail_checked = True
            handle = os.open(self.metrics_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                before = os.fstat(handle).st_size
                try:
                    _write_all(handle, data)
                    os.fsync(handle)
                except OSError:
                    os.ftruncate(handle, before)
                    raise
            finally:
                os.close(handle)
        except OSError as error:
            raise RunFolderError(
                f"could not append to {self.metrics_path}: {error.strerror or error}; every earlier record is whole, and {len(self._pending)} "
                "waiting record(s) will be written as soon as there is room. Free space and go on, or resume later with --resume."
            ) from error
        self._pending.clear()

    def _put_torn_tail_aside(self) -> None:
        """Move what stands behind the last line break to metrics.torn.txt, unless it is a whole record that only lacks its line break."""
        if not self.metrics_path.is_file():
            return
        data = self.metrics_path.read_bytes()
        keep = data.rfind(b"\n") + 1
        tail = data[keep:]
        if not tail:
            return
        if _parse_record(tail.decode("utf-8", "replace")) is not None:
            with open(self.metrics_path, "ab") as stream:
                stream.write(b"\n")
            return
        with open(self.path / "metrics.torn.txt", "ab") as stream:
            stream.write(tail + b"\n")
        os.truncate(self.metrics_path, keep)

    def metrics(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Read the records.

        Args:
            kind: only those of one kind; None gives all.

        Returns:
            The records in order. A torn last line is left out; so is what a resumed run did again. A damaged line in the middle is left out
            with a warning that names it.

        Raises:
            RunFolderError: if the file cannot be read.
        """
        if not self.metrics_path.is_file():
            return []
        try:
            text = self.metrics_path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise RunFolderError(f"could not read {self.metrics_path}: {error}") from error
        lines = text.split("\n")
        records: list[dict[str, Any]] = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            record = _parse_record(line)
            if record is None:
                if number < len(lines):
                    warnings.warn(f"{self.metrics_path}: line {number} is damaged and was left out", stacklevel=2)
            elif record["kind"] == _RESUMED:
                step = record["step"]
                again = bool(record.get("warm_start"))
                records = [one for one in records if (not again if one["kind"] == "warm_start" else one["step"] <= step)]
            else:
                records.append(record)
        return records if kind is None else [one for one in records if one["kind"] == kind]

    # ------------------------------------------------------------------------------------------------ results

    def write_summary(
        self, *, warm_start: Mapping[str, float] | None, final: Mapping[str, float], tasks: int, seed: int, **more: Any
    ) -> dict[str, Any]:
        """Write summary.json.

        Args:
            warm_start: success before reinforcement learning, `{"sampled", "greedy"}`, each from 0 to 1; None where the run had no such phase.
            final: success at the end, the same keys.
            tasks: how many held-out tasks.
            seed: of the run.
            more: further keys.

        Returns:
            What was written.

        Raises:
            ValueError: if "sampled" or "greedy" is missing.
            RunFolderError: if the disk refuses.
        """
        for name, scores in (("warm_start", warm_start), ("final", final)):
            if scores is not None and not {"sampled", "greedy"} <= set(scores):
                raise ValueError(f"{name} needs the keys 'sampled' and 'greedy', not {sorted(scores)}")
        summary = to_plain({"warm_start": warm_start, "final": final, "tasks": int(tasks), "seed": int(seed), **more})
        atomic_write(self.path / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
        return dict(summary)

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of summary.json, None while there is none."""
        return self._read_json("summary.json")

    @property
    def report_path(self) -> Path:
        """Of report.html."""
        return self.path / "report.html"

    # ------------------------------------------------------------------------------------------------ checkpoints and trajectories

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.path / "checkpoints"

    def latest_checkpoint(self) -> Path | None:
        """Return the newest checkpoint that a run can resume from: `checkpoint-N` with the largest N that holds a trainer's state.

        Returns:
            Its folder, or None.
        """
        numbered = []
        if self.checkpoints.is_dir():
            for folder in self.checkpoints.iterdir():
                number = folder.name.removeprefix("checkpoint-")
                if number.isdigit() and folder.name != number and _is_whole(folder / "trainer_state.json"):
                    numbered.append((int(number), folder))
        return max(numbered)[1] if numbered else None

    def best_model(self) -> Path | None:
        """Return the folder of the weights to evaluate: `checkpoints/final`, else the newest checkpoint, else the warm start's.

        Returns:
            The folder, or None.
        """
        for folder in (self.checkpoints / "final", self.latest_checkpoint(), self.checkpoints / "warm_start"):
            if folder is not None and ((folder / "config.json").is_file() or (folder / "adapter_config.json").is_file()):
                return folder
        return None

    def trajectories_path(self, name: str) -> Path:
        """Return where the episodes of an occasion lie.

        Args:
            name: of the occasion, such as "warm_start" or "final"; letters, digits, `_`, `-` and `.`.

        Returns:
            trajectories/NAME.jsonl.

        Raises:
            ValueError: for a name that is no plain file name.
        """
        if not name or not all(char.isalnum() or char in "_-." for char in name) or name.startswith("."):
            raise ValueError(f"the name of a trajectory file has letters, digits, '_', '-' and '.', unlike {name!r}")
        return self.path / "trajectories" / f"{name}.jsonl"

    def save_trajectories(self, name: str, trajectories: Sequence[Trajectory]) -> Path:
        """Write episodes.

        Args:
            name: of the occasion.
            trajectories: the episodes.

        Returns:
            The file.

        Raises:
            RunFolderError: if the disk refuses.
        """
        from agent_gym.trajectory_io import save_trajectories

        path = self.trajectories_path(name)
        temporary = path.with_name(f".{path.name}.part.jsonl")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_trajectories(temporary, trajectories)
            os.replace(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise RunFolderError(f"could not write {path}: {error.strerror or error}. Free space, and run again.") from error
        return path

    def load_trajectories(self, name: str) -> list[Trajectory]:
        """Read episodes.

        Args:
            name: of the occasion.

        Returns:
            The episodes; none where there is no such file.
        """
        from agent_gym.trajectory_io import load_trajectories

        path = self.trajectories_path(name)
        return list(load_trajectories(path)) if path.is_file() else []


def _is_whole(path: Path) -> bool:
    """Whether the last file that a trainer writes into a checkpoint is all there."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _parse_record(line: str) -> dict[str, Any] | None:
    """A line of metrics.jsonl as a record, None where it is none."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if isinstance(record, dict) and isinstance(record.get("kind"), str) and isinstance(record.get("step"), int):
        return record
    return None
