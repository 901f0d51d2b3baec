"""The other process of the checks `other_process` and `other_hash_seed`: makes the environment anew and plays the scripts.

A plain subprocess and not `multiprocessing`, whose spawned children run the caller's main module again: a check must be callable from an
unguarded script.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # comes with Gymnasium, whose AsyncVectorEnv sends factories by it

from agent_gym.testing.subject import Frame, Subject

__all__ = ["WorkerResult", "play_in_other_process"]

_START = (
    "import pickle, sys\n"
    "with open(sys.argv[1], 'rb') as file:\n"
    "    sys.path[:] = pickle.load(file)\n"
    "    from agent_gym.testing._worker import work\n"
    "    work(file, sys.argv[2])\n"
)
_TIMEOUT = 600.0

WorkerResult = tuple[str, Any]
"""("frames", episodes) or ("error", what went wrong)."""


def play_in_other_process(subject: Subject) -> WorkerResult:
    """Play the subject's scripts in a fresh process with another hash seed.

    Args:
        subject: the environment under test.

    Returns:
        The episodes, or what went wrong.
    """
    try:
        payload = cloudpickle.dumps((subject.factory.target, dict(subject.factory.kwargs), subject.seed, subject.scripts))
    except Exception as error:  # noqa: BLE001  # anything may stand in a factory
        return "error", f"the factory cannot be pickled: {type(error).__name__}: {error}"
    hash_seed = "4711" if os.environ.get("PYTHONHASHSEED") != "4711" else "4712"
    with tempfile.TemporaryDirectory() as folder:
        task, answer = Path(folder, "task"), Path(folder, "answer")
        task.write_bytes(pickle.dumps([path or os.getcwd() for path in sys.path]) + payload)
        command = [sys.executable, "-c", _START, str(task), str(answer)]
        try:
            done = subprocess.run(
                command, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, timeout=_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            return "error", f"nothing came back within {_TIMEOUT:.0f} s"
        if not answer.exists():
            last = (done.stderr.strip().splitlines() or ["nothing on standard error"])[-1]
            return "error", f"the process ended with code {done.returncode}: {last}"
        result: WorkerResult = pickle.loads(answer.read_bytes())
        return result


def work(file: Any, answer: str) -> None:
    """Make the environment, play, and write down what came.

    Args:
        file: the open task file, behind the search path.
        answer: path of the file to write.
    """
    stage = "the factory could not be unpickled"
    try:
        target, kwargs, seed, scripts = pickle.load(file)
        subject = Subject(target, kwargs=kwargs, seed=seed)
        stage = "the environment could not be made"
        episodes: list[list[Frame]] = []
        with subject.made() as env:
            stage = "the environment could not be played"
            for script in scripts:
                episodes.append(subject.play(env, script))
        stage = "observations and infos could not be pickled"
        result = pickle.dumps(("frames", episodes))
    except Exception as error:  # noqa: BLE001  # reported to the parent
        result = pickle.dumps(("error", f"{stage}: {type(error).__name__}: {error}"))
    Path(answer).write_bytes(result)
