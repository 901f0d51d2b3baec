"""On-policy distillation against GRPO on the embedded task: environment steps until the greedy policy solves 0.8 of the validation tasks.

    python benchmarks/distill.py --seeds 0 1 2
    python benchmarks/distill.py --seeds 0 --teacher runs/learning/seed0

For each seed GRPO trains the tiny model of `agent-gym train` from its warm start; its last weights are the teacher, unless one is given. Then a fresh student,
the same warm start again, is distilled from the teacher. GRPO has the settings of its preset; distillation needs no groups and plays one episode of each of 32
tasks per update, with four optimiser steps at a higher learning rate. Both are evaluated after every update (128 episodes of GRPO, 32 of distillation), greedily, on the same 200 tasks
of the split of the curve, whose worlds share no entity with those that are trained on. Counted are all steps of all episodes that were trained on; those of the evaluations are
not. Writes a figure, prints one JSON line per run and one per seed, and exits 1 if distillation needs as many steps or more, or does not pass.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from clock import show

from agent_gym.report.charts import Level, Series, draw_chart
from agent_gym.runs import RunFolder

ROOT = Path(__file__).resolve().parents[1]
ENV = "AgentR1/HotpotQA-v0"
LEVEL = 0.8
GRPO = {"curve_tasks": 200, "curve_every": 1}
DISTILL = {
    "curve_tasks": 200,
    "curve_every": 1,
    "save_every": 8,
    "tasks_per_update": 32,
    "num_generations": 1,
    "num_iterations": 4,
    "learning_rate": 1e-3,
}


class Course(NamedTuple):
    """How a run went.

    Attributes:
        steps: environment steps behind each evaluation.
        greedy: share of the tasks that the greedy policy solved there.
    """

    steps: list[float]
    greedy: list[float]

    def passes(self) -> float | None:
        """Environment steps behind the first evaluation that reached the level; None where none did."""
        return next((steps for steps, greedy in zip(self.steps, self.greedy, strict=True) if greedy >= LEVEL), None)


def course_of(run: RunFolder) -> Course:
    """Read a run's evaluations, with the environment steps that were played before each."""
    played, total = {0: 0.0}, 0.0
    for one in run.metrics("train"):
        total += one["rollout/turns_mean"] * one["rollout/episodes"]
        played[one["step"]] = total
    points = [(one["step"], one["validation/greedy"]) for one in run.metrics("eval") if "validation/greedy" in one]
    return Course([played[step] for step, _ in points], [greedy for _, greedy in points])


def trained(folder: Path, seed: int, settings: Mapping[str, object], *words: str) -> RunFolder:
    """Train, or go on with a run that was stopped, or take one that is there."""
    if RunFolder(folder).summary is None:
        new = [ENV, "--seed", str(seed), *words]
        for name, value in settings.items():
            new += ["--set", f"{name}={value}"]
        what = ["--resume"] if RunFolder(folder).exists else new
        subprocess.run([sys.executable, "-m", "agent_gym.cli", "train", *what, "--output-dir", str(folder)], check=True)
    return RunFolder.open(folder)


def draw(curves: Mapping[tuple[str, int], Course]) -> str:
    """The figure: greedy success over environment steps, GRPO and distillation apart by colour."""
    kinds = {"grpo": ("GRPO", "c-aux"), "distill": ("distillation", "c-greedy")}
    items: list[Series | Level] = [Level(f"{LEVEL:g}", LEVEL, "c-ceiling")]
    for (name, seed), course in curves.items():
        words, kind = kinds[name]
        items.append(Series(f"{words}, seed {seed}", list(zip(*course, strict=True)), kind, "dots"))
    style = (resources.files("agent_gym.report") / "report.css").read_text(encoding="utf-8")
    title = "Greedy success on validation tasks over the environment steps that were trained on"
    return str(
        draw_chart(items, width=880, height=400, title=title, x_label="environment steps", y_range=(0.0, 1.0), standalone_style=style)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--teacher", help="a trained model or run for all seeds; default: each seed's own GRPO run")
    parser.add_argument("--grpo-updates", type=int, default=30)
    parser.add_argument("--distill-updates", type=int, default=32)
    parser.add_argument("--distill-loss", choices=["full", "sampled"], default="full")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "distill")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "distill.svg")
    args = parser.parse_args()
    curves: dict[tuple[str, int], Course] = {}
    missed = []
    for seed in args.seeds:
        reference = trained(args.runs / f"grpo-seed{seed}", seed, {**GRPO, "updates": args.grpo_updates})
        distilled = trained(
            args.runs / f"{args.distill_loss}-seed{seed}",
            seed,
            {**DISTILL, "updates": args.distill_updates, "distill.distill_loss": args.distill_loss},
            *("--algorithm", "distill", "--teacher", args.teacher or str(reference.path)),
        )
        needed = {}
        for name, run in (("grpo", reference), ("distill", distilled)):
            course = curves[name, seed] = course_of(run)
            needed[name] = course.passes()
            final = (run.summary or {}).get("final", {})
            show(
                name,
                seed=seed,
                steps_to_level=needed[name],
                course=[[round(steps), greedy] for steps, greedy in zip(*course, strict=True)],
                final_greedy=final.get("greedy"),
                final_sampled=final.get("sampled"),
            )
        grpo, distill = needed["grpo"], needed["distill"]
        met = distill is not None and (grpo is None or distill < grpo)
        show(f"steps until greedy >= {LEVEL}", seed=seed, grpo=grpo, distill=distill, goal_met=met)
        if not met:
            missed.append(seed)
    args.figure.write_text(draw(curves), encoding="utf-8")
    if missed:
        print(f"seeds {missed}: distillation did not pass {LEVEL} in fewer environment steps than GRPO", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
