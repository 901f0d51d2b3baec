"""Environments for the tests of workers, without a tokenizer, so that a worker that hosts them starts quickly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from agent_gym.core import EnvFault
from agent_gym.spaces import TokenBox

SPACE = (64, 300, 0)


class Counter(gym.Env[Any, Any]):
    """The prompt grows by each action and its sum; the reward is drawn from the seed. `options` say what goes wrong, and when.

    kill: the moment ("make", "reset", "step") at which the process is killed, while the file `once` is missing.
    """

    metric_names = ("sum",)
    tokenizer_fingerprint = "counting"
    end_of_turn_ids = (299,)

    def __init__(self, turns: int = 3, kill: str = "", once: str = "", seconds: float = 0.0, note: Any = None) -> None:
        self.observation_space = TokenBox(*SPACE)
        self.action_space = TokenBox(16, 300, 0)
        self.turns, self.kill, self.once, self.seconds, self.note = turns, kill, once, seconds, note
        self._die("make")

    def _die(self, moment: str) -> None:
        if self.kill == moment and not Path(self.once).exists():
            Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._die("reset")
        self.options = options or {}
        self.turn, self.sum = 0, 0
        self.ids = [int(one) for one in self.np_random.integers(1, 200, 4)]
        if self.options.get("reset"):
            raise EnvFault("no count today")
        return self._seen(0)

    def step(self, action: Any) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        self.turn += 1
        if self.turn == 2:
            self._die("step")
            self._misbehave()
        kept = self.action_space.unpad(np.asarray(action))
        self.sum += int(kept.sum())
        self.ids = [*self.ids, *kept.tolist(), 1 + self.sum % 200]
        if self.options.get("rewrite") and self.turn == 2:
            self.ids = self.ids[:2] + self.ids[-2:]
        observation, info = self._seen(self.turn)
        return observation, float(self.np_random.random()), False, self.turn >= self.turns, info

    def _misbehave(self) -> None:
        what = self.options.get("do")
        if what == "raise":
            raise TwoArguments("lost count", 7)
        if what == "unsendable":
            self.note = threading.Lock()
        if what == "exit":
            sys.exit("gone")
        if what == "hang":
            time.sleep(600)
        if what == "child":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(self.options["file"]).write_text(str(child.pid))
            time.sleep(600)

    def _seen(self, turn: int) -> Any:
        info = {
            "task_id": f"count-{self.ids[0]}",
            "state_key": str(turn),
            "sum": float(self.sum),
            "note": self.note,
            "turn": np.int64(turn),
        }
        return self.observation_space.pad(self.ids), {**info, "observation_length": len(self.ids)}

    def close(self) -> None:
        if self.once and not self.kill:
            with Path(self.once).open("a") as file:
                file.write("closed\n")


class TwoArguments(RuntimeError):
    """An exception that pickle cannot build again: its constructor wants more than its arguments."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what} at {number}")
        self.number = number


def count(row: dict[str, Any]) -> Counter:
    return Counter(**row["env_kwargs"])
