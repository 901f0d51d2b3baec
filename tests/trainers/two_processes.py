"""Starts a script on two ranks that talk over gloo, and waits for both."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch


def run_on_two_ranks(script: str, folder: Path) -> list[dict[str, Any]]:
    """Run a script beside this file as `script FOLDER` on two ranks, and load what each saved as FOLDER/rankN.pt."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    here = Path(__file__).parent
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    common["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parent), str(here.parent.parent), os.environ.get("PYTHONPATH", "")])
    workers = [
        subprocess.Popen(
            [sys.executable, str(here / script), str(folder)],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [worker.communicate(timeout=600)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(output[-3000:] for output in outputs)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]
