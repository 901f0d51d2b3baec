"""Two updates that report to W&B (offline) or trackio (a local folder), in a process of its own that may not reach outside, and what they were told.

    python tracker_run.py wandb|trackio FOLDER

prints {"records": log_history, "told": [[name -> value], ...], "attempts": addresses outside of this machine that were asked for}.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import struct
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ATTEMPTS: list[str] = []
LOCAL = ("127.", "::1", "localhost")


def stay_inside() -> None:
    """Refuse, and note, every connection and look-up that leaves this machine."""

    def guarded(original: Any, place: int) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            address = arguments[place]
            host = address[0] if isinstance(address, tuple) else address
            leaves = (isinstance(address, tuple) or place == 0) and host is not None and not str(host).startswith(LOCAL)
            if leaves:
                ATTEMPTS.append(str(host))
                raise OSError(f"no connection to {host} from a test")
            return original(*arguments, **keywords)

        return call

    socket.socket.connect = guarded(socket.socket.connect, 1)  # type: ignore[method-assign]
    socket.socket.connect_ex = guarded(socket.socket.connect_ex, 1)  # type: ignore[method-assign]
    socket.getaddrinfo = guarded(socket.getaddrinfo, 0)


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format behind a header of seven bytes."""
    assert data[:4] == b":W&B"
    place, whole = 7, b""
    while place + 7 <= len(data):
        room = 32768 - place % 32768
        if room < 7:  # no header fits: the rest of a block is padding
            place += room
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + 7])
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield whole
            whole = b""


def read_wandb(folder: Path) -> list[dict[str, Any]]:
    """The history of the one offline run below a folder."""
    from wandb.proto import wandb_internal_pb2

    (path,) = (folder / "wandb").glob("offline-run-*/*.wandb")
    told = []
    for data in wandb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            told.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item})
    return told


def read_trackio(folder: Path) -> list[dict[str, Any]]:
    """The metrics of the one project below a folder."""
    (path,) = folder.glob("*.db")
    with sqlite3.connect(path) as database:
        return [json.loads(line) for (line,) in database.execute("SELECT metrics FROM metrics ORDER BY id")]


def main(tracker: str, folder: Path) -> None:
    stay_inside()
    os.environ.pop("WANDB_DIR", None)
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    os.environ |= {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "true", "HF_HUB_OFFLINE": "1"}
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        os.environ[name] = str(folder / "elsewhere")
    warnings.simplefilter("ignore")
    from metric_runs import Run

    from agent_gym.trainers.reporting import reporting

    trainer = Run("grpo", (), {"report_to": [tracker], "run_name": "two-updates"}).make(folder)
    with reporting(trainer, folder / "run"):
        trainer.train()
    if tracker == "wandb":
        import wandb

        wandb.finish()
        told = read_wandb(folder / "run")
    else:
        told = read_trackio(folder / "trackio")
    print(json.dumps({"records": trainer.state.log_history, "told": told, "attempts": ATTEMPTS}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
