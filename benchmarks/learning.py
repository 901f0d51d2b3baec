"""The embedded run for several seeds: the figures that the README's curve shows, and the goals that every seed must meet.

    python benchmarks/learning.py --seeds 0 1 2

Each seed is one process, one after the other. Writes docs/learning-curve.svg and prints one JSON line per seed; exits 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from clock import show

from agent_gym.report.page import learning_curves
from agent_gym.runs import RunFolder

ROOT = Path(__file__).resolve().parents[1]
GOALS = "after the warm start sampled <= 0.5; after RL greedy >= 0.9 and sampled >= 0.3 above its start"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "learning")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "learning-curve.svg")
    args = parser.parse_args()
    runs, missed = [], []
    for seed in args.seeds:
        folder = args.runs / f"seed{seed}"
        begin = time.monotonic()
        if RunFolder(folder).summary is None:
            resume = ["--resume"] if RunFolder(folder).exists else ["--seed", str(seed)]
            subprocess.run([sys.executable, "-m", "agent_gym.cli", "train", "--output-dir", str(folder), *resume], check=True)
        run = RunFolder.open(folder)
        summary = run.summary or {}
        before, after = summary["warm_start"], summary["final"]
        met = before["sampled"] <= 0.5 and after["greedy"] >= 0.9 and after["sampled"] >= before["sampled"] + 0.3
        show(
            f"embedded run, seed {seed}",
            before_sampled=before["sampled"],
            before_greedy=before["greedy"],
            after_sampled=after["sampled"],
            after_greedy=after["greedy"],
            tasks=summary["tasks"],
            seconds=summary.get("seconds", time.monotonic() - begin),
            goals_met=met,
        )
        runs.append(run)
        if not met:
            missed.append(seed)
    args.figure.parent.mkdir(parents=True, exist_ok=True)
    args.figure.write_text(learning_curves(runs), encoding="utf-8")
    if missed:
        print(f"seeds {missed} missed the goals: {GOALS}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
