"""Small runs by the real command line in processes of their own, for the tests that kill them.

The processes are forked from a server that has imported torch and TRL once (`multiprocessing`'s "forkserver"), so that each costs its run alone. A process tells
where it is by SIGUSR1 (faulthandler writes its stack), which is how the one that kills it finds its point.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import torch

from agent_gym.core import Action, AgentEnv, Observation, Outcome
from agent_gym.runs import RunFolder
from agent_gym.trainers.presets.base import EmbeddedConfig, Preset, Splits
from agent_gym.trainers.tiny_model import TinyShape, build_tiny_model

ENV = "FaultRuns/Even-v0"
SHAPE = TinyShape(hidden_size=32, layers=1, head_size=16, feed_forward_size=64)
_CLOCKS = ("seconds", "step_time", "runtime", "per_second")


class EvenIds(AgentEnv):
    """Two turns; each pays the share of even ids in the reply, so that any model has something to learn."""

    def _begin(self, options: dict[str, Any]) -> Observation:
        self.task_id = f"{self.split}/{int(self.np_random.integers(1000))}"
        return Observation(text=f"Task {self.task_id}.")

    def _respond(self, action: Action) -> Outcome:
        share = float(np.mean([token % 2 == 0 for token in action.token_ids])) if action.token_ids else 0.0
        return Outcome(Observation(text="Go on."), reward=share, terminated=self.turn == 1, info={"is_success": share > 0.5})


class EvenPreset(Preset):
    """An embedded run without imitation: the random model as it is made."""

    env_id: ClassVar[str] = ENV
    label: ClassVar[str] = "even"
    goal: ClassVar[str] = "to say even ids"
    env_kwargs: ClassVar[dict[str, Any]] = {"max_turns": 2}
    splits: ClassVar[Splits] = Splits("train", "validation", "test")
    config: ClassVar[type[EmbeddedConfig]] = EmbeddedConfig

    def warm_start(self, config: Any, tokenizer: Any, *, seed: int, report: Any, success: Any) -> Any:
        model = build_tiny_model(tokenizer, seed, SHAPE)
        for step in (1, 2):
            report(step, 2, {"loss": float(step)})
        return model


def register() -> None:
    """Register the environment."""
    if ENV not in gymnasium.registry:
        gymnasium.register(ENV, entry_point="fault_runs:EvenIds")


def _prepare() -> None:
    """Register the environment and its preset, in a process of its own."""
    from agent_gym.cli import train
    from agent_gym.trainers import presets

    register()
    known = {**presets.PRESETS, ENV: "fault_runs:EvenPreset"}
    presets.PRESETS = train.PRESETS = known


def _slow_disk() -> None:
    """Let every `fsync` take a while, so that the writing of a checkpoint is a time and not a moment."""
    sync = os.fsync

    def slow(handle: int) -> None:
        time.sleep(0.03)
        sync(handle)

    os.fsync = slow


def _work(folder: str, words: Sequence[str], output: str) -> None:
    """The process of one command: its output and its stacks go into files."""
    from agent_gym.cli import main

    os.chdir(folder)
    with open(output, "a", buffering=1) as stream, open(f"{output}.{os.getpid()}", "a", buffering=1) as stacks:
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
        stacks.write("ready\n")  # before this the signal would end the process
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            torch.set_num_threads(1)
            _prepare()
            _slow_disk()
            status = main(list(words))
    sys.exit(status)


@dataclass
class Command:
    """`agent-gym WORDS` in a process.

    Args:
        folder: where it runs.
        words: the command.
    """

    folder: Path
    words: Sequence[str]
    process: Any = field(init=False)

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["fault_runs", "agent_gym.cli", "agent_gym.trainers.embedded", "agent_gym.cli.recipe_run", "agent_gym.trainers.ppo"]
        )
        self.output = self.folder / "output.txt"
        self.metrics = self.folder / "run" / "metrics.jsonl"
        self.resumes = self.metrics.exists()
        self.before = self.metrics.read_bytes().rfind(b"\n") + 1 if self.resumes else 0
        self.process = context.Process(target=_work, args=(str(self.folder), list(self.words), str(self.output)))
        self.process.start()

    def finish(self) -> int:
        """Wait for its end. Returns its exit status."""
        try:
            self.process.join(300)
            assert self.process.exitcode is not None, "it does not end"
        finally:
            self.process.kill()
        return int(self.process.exitcode)

    def done_updates(self) -> int:
        """The update whose record this process wrote last, or which it takes up at; -1 before it trains."""
        if not (self.metrics.parent / "evaluation.before.json").exists():
            return -1
        found = -1 if self.resumes else 0
        for line in self.metrics.read_bytes()[self.before :].decode("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                found = int(record["step"]) if record["kind"] in ("train", "resumed") else found
        return found

    @property
    def said(self) -> str:
        """All that the commands in this folder have printed."""
        return self.output.read_text() if self.output.exists() else ""

    def stack(self) -> str:
        """Ask the process where it is, by signal; the stacks of its threads, or "" where it does not say."""
        path = Path(f"{self.output}.{self.process.pid}")
        before = path.stat().st_size if path.exists() else 0
        if not before:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR1)
        size = before
        for _ in range(400):
            time.sleep(0.001)
            now = path.stat().st_size
            if before < now == size:  # all of it is there
                return path.read_text()[before:]
            size = now
        return ""

    def kill_at(self, there: Callable[[Command], bool]) -> None:
        """Kill it by SIGKILL at a point, which it must come to."""
        try:
            while self.process.is_alive():
                if there(self):
                    os.kill(self.process.pid, signal.SIGKILL)
                    break
                time.sleep(0.002)
            self.process.join(60)
        finally:
            self.process.kill()
        assert self.process.exitcode == -signal.SIGKILL, f"it ended ({self.process.exitcode}) before it was killed:\n{self.said[-2000:]}"


def during(phase: str, run: RunFolder, update: int) -> Callable[[Command], bool]:
    """Return whether a command has come to a point: a "rollout", an "optimiser" step or the writing of a "checkpoint", of an update or the first one behind
    it that is caught at it; or the "evaluation" behind the last."""

    def there(command: Command) -> bool:
        if phase == "checkpoint":
            try:
                parts = [name for name in os.listdir(run.checkpoints) if name.startswith(".checkpoint-") and name.endswith(".part")]
                numbers = [int(name.removesuffix(".part").rpartition("-")[2]) for name in parts]
                return any(
                    number >= update and any((run.checkpoints / part).glob("*/model.safetensors"))
                    for part, number in zip(parts, numbers, strict=True)
                )
            except OSError:  # it got its name meanwhile
                return False
        if command.done_updates() < (update if phase == "evaluation" else update - 1):
            return False
        stack = command.stack()
        if phase == "evaluation":
            return " in measure\n" in stack or " in _measure\n" in stack
        if phase == "rollout":
            return " in _generate_and_score_completions\n" in stack and " in run_rows\n" in stack
        critic, loss, step = " in _train_critic\n", " in compute_loss\n", " in optimizer_step\n"
        named = (critic, loss, " in backward\n", " in clip_grad_norm_\n", step)
        played = " in run_rows\n" in stack or (" in _generate_and_score_completions\n" in stack and critic not in stack)
        return " in _run_epoch\n" in stack and not played and (any(name in stack for name in named) or "torch/optim/" in stack)

    return there


def without_clocks(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records without what they say of time."""
    kept = [record for record in records if record["kind"] != "time"]
    return [{name: value for name, value in record.items() if not any(word in name for word in _CLOCKS)} for record in kept]


def assert_same_run(one: RunFolder, other: RunFolder) -> None:
    """Every record, the final evaluation and the final weights are the same, to 1e-6."""
    from safetensors.torch import load_file

    left, right = without_clocks(one.metrics()), without_clocks(other.metrics())
    assert [(record["kind"], record["step"]) for record in left] == [(record["kind"], record["step"]) for record in right]
    for mine, yours in zip(left, right, strict=True):
        assert set(mine) == set(yours)
        for name, value in mine.items():
            if isinstance(value, float):
                assert abs(value - yours[name]) <= 1e-6 * max(1.0, abs(value)), (mine["kind"], mine["step"], name, value, yours[name])
            else:
                assert value == yours[name], (mine["kind"], mine["step"], name)
    for name in ("before", "final"):
        arms, others = (json.loads((run.path / f"evaluation.{name}.json").read_text())["arms"] for run in (one, other))
        assert {key: arm["estimates"] for key, arm in arms.items()} == {key: arm["estimates"] for key, arm in others.items()}
    assert one.summary is not None and other.summary is not None and one.summary["final"] == other.summary["final"]
    weights, theirs = (load_file(run.checkpoints / "final" / "model.safetensors") for run in (one, other))
    assert set(weights) == set(theirs) and all(torch.allclose(weights[name], theirs[name], rtol=0, atol=1e-6) for name in weights)
