"""The embedded run for several seeds: the figures that the curve in the docs shows, and the goals that every seed must meet.

    python benchmarks/learning.py --seeds 0 1 2
    python benchmarks/learning.py --preset alfworld --seeds 0 1 2
    python benchmarks/learning.py --preset webshop --seeds 0 1 2
    python benchmarks/learning.py --algorithm ppo --seeds 0 1 2

With `--algorithm ppo` the goals are that success sampled rises by 0.3, and that where GRPO's run of the same seed lies beside it (the same command without
`--algorithm`, before) PPO ends at most 0.1 below it after the same number of episodes.

Each seed is one process, one after the other. Writes the curve and prints one JSON line per seed; exits 1 if a goal is missed. For ALFWorld and WebShop it
first plays the held-out tasks without a model. ALFWorld: random admissible commands, the expert that the model was started on, and the best constant
command sequence. WebShop: searching the instruction and buying the first result, a random shopper, and the hasty shopper that the model was started on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from clock import show
from constant import best_constant_sequence

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.report.page import learning_curves
from agent_gym.runs import RunFolder
from agent_gym.trainers.presets import get_preset

ROOT = Path(__file__).resolve().parents[1]
Scores = Mapping[str, float]


class Benchmark(NamedTuple):
    """What is asked of a preset.

    Attributes:
        env_id: whose preset.
        figure: file of the curve, in docs/.
        goals: in words.
        met: (before, after, without a model) -> whether a seed meets them.
        without_a_model: plays so many held-out tasks, and returns what was measured by name.
        levels: which of that the figure shows.
    """

    env_id: str
    figure: str
    goals: str
    met: Callable[[Scores, Scores, Scores], bool]
    without_a_model: Callable[[int], Scores] = lambda tasks: {}
    levels: tuple[str, ...] = ()


def alfworld_without_a_model(tasks: int) -> Scores:
    """Measure on the held-out tasks what needs no learning: the share that the best constant sequence solves, and others."""
    from agent_gym.envs.alfworld.expert import plan
    from agent_gym.envs.alfworld.simulator import Simulator
    from agent_gym.trainers.imitation import record_demonstrations
    from agent_gym.trainers.presets.alfworld import searching_expert

    preset = get_preset("AgentR1/ALFWorld-v0")
    keywords = {**preset.env_kwargs, "split": preset.splits.held_out}
    env: Any = gymnasium.make(preset.env_id, **keywords)
    worlds = []
    for seed in env.unwrapped.task_seeds(n=tasks):  # the tasks that the runs are evaluated on
        env.reset(seed=seed)
        worlds.append(Simulator(env.unwrapped.task.game))
    env.close()

    def solves(task: int, commands: tuple[str, ...]) -> bool:
        world = worlds[task]
        world.reset()
        return any(world.step(command) and world.won for command in commands)

    plans = []
    for world in worlds:
        world.reset()
        plans.append(tuple(plan(world)))
    limit: int = preset.env_kwargs["max_turns"]
    constant, share = best_constant_sequence(solves, plans, limit=limit)

    rng = np.random.default_rng(0)
    at_random = 0
    for world in worlds:
        world.reset()
        for _ in range(limit):
            commands = world.admissible()
            world.step(commands[rng.integers(len(commands))])
            if world.won:
                at_random += 1
                break
    demonstrations = record_demonstrations(
        preset.env_id, keywords, tasks, slip=preset.config().warm_start.slip, seed=0, expert=searching_expert
    )
    scores = {
        "best_constant_sequence": share,
        "random_admissible": at_random / tasks,
        "demonstrations": float(np.mean([one.trajectory.is_success for one in demonstrations])),
    }
    show("without a model", **scores, tasks=tasks, sequence=" / ".join(constant))
    return scores


def webshop_without_a_model(tasks: int) -> Scores:
    """Measure on the held-out goals what needs no learning: the scores of the baselines and of the hasty shopper without its slips."""
    from agent_gym.envs.webshop.env import WebShopEnv
    from agent_gym.envs.webshop.experts import hasty_expert
    from agent_gym.evaluation import evaluate
    from agent_gym.policies import ScriptedPolicy

    preset = get_preset("AgentR1/WebShop-v0")
    keywords = {**preset.env_kwargs, "split": preset.splits.held_out}
    scripts = {name: make(0) for name, make in WebShopEnv.baselines.items()}
    scripts["hasty_shopper"] = hasty_expert(preset.config().warm_start.option_probability)
    scores = {}
    for name, script in scripts.items():
        evaluation, _ = evaluate(preset.env_id, ScriptedPolicy(script), env_kwargs=keywords, tasks=tasks, arms={name: None})
        scores[name] = evaluation.scores("score")[name]
        show("without a model", player=name, score=scores[name], success=evaluation.scores()[name], tasks=tasks)
    return scores


BENCHMARKS = {
    "hotpotqa": Benchmark(
        "AgentR1/HotpotQA-v0",
        "learning-curve.svg",
        "after the warm start sampled <= 0.5; after RL greedy >= 0.9 and sampled >= 0.3 above its start",
        lambda before, after, _: before["sampled"] <= 0.5 and after["greedy"] >= 0.9 and after["sampled"] >= before["sampled"] + 0.3,
    ),
    "alfworld": Benchmark(
        "AgentR1/ALFWorld-v0",
        "learning-alfworld.svg",
        "after RL sampled >= 0.3 above its start, where the best constant command sequence solves less than 0.1",
        lambda before, after, blind: after["sampled"] >= before["sampled"] + 0.3 and blind["best_constant_sequence"] < 0.1,
        alfworld_without_a_model,
        ("demonstrations",),
    ),
    "webshop": Benchmark(
        "AgentR1/WebShop-v0",
        "learning-webshop.svg",
        "after RL the sampled score >= 0.2 above its start, and >= 0.1 above both baselines",
        lambda before, after, blind: (
            after["sampled"] >= before["sampled"] + 0.2 and after["sampled"] >= max(blind["first_result"], blind["random_shopper"]) + 0.1
        ),
        webshop_without_a_model,
        ("first_result", "random_shopper"),
    ),
}


def met_beside_grpo(before: Scores, after: Scores, grpo: Scores | None) -> bool:
    """Whether PPO has learned, and as well as GRPO with as many episodes."""
    return after["sampled"] >= before["sampled"] + 0.3 and (grpo is None or after["sampled"] >= grpo["sampled"] - 0.1)


def successes(folder: Path) -> Scores:
    """Success before and after, where another figure is what counts."""
    found = {}
    for when, name in (("before", "before"), ("after", "final")):
        arms = json.loads((folder / f"evaluation.{name}.json").read_text(encoding="utf-8"))["arms"]
        found |= {f"success_{when}_{arm}": figures["estimates"]["success"]["mean"] for arm, figures in arms.items()}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=sorted(BENCHMARKS), default="hotpotqa")
    parser.add_argument("--algorithm", choices=["grpo", "ppo"], default="grpo")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, help="default: runs/learning, and runs/learning-PRESET for other presets than hotpotqa")
    parser.add_argument("--figure", type=Path, help="default: the one in docs/")
    args = parser.parse_args()
    asked = BENCHMARKS[args.preset]
    beside = ROOT / "runs" / ("learning" if args.preset == "hotpotqa" else f"learning-{args.preset}")
    ppo = args.algorithm == "ppo"
    folders = args.runs or (beside.with_name(f"{beside.name}-ppo") if ppo else beside)
    figure = args.figure or ROOT / "docs" / (f"learning-ppo-{args.preset}.svg" if ppo else asked.figure)
    blind = asked.without_a_model(get_preset(asked.env_id).config().eval_tasks)
    runs, missed = [], []
    for seed in args.seeds:
        folder = folders / f"seed{seed}"
        begin = time.monotonic()
        if RunFolder(folder).summary is None:
            what = ["--resume"] if RunFolder(folder).exists else [asked.env_id, "--seed", str(seed), "--algorithm", args.algorithm]
            subprocess.run([sys.executable, "-m", "agent_gym.cli", "train", *what, "--output-dir", str(folder)], check=True)
        run = RunFolder.open(folder)
        summary = run.summary or {}
        before, after = summary["warm_start"], summary["final"]
        grpo = (RunFolder(beside / f"seed{seed}").summary or {}).get("final") if ppo else None
        met = met_beside_grpo(before, after, grpo) if ppo else asked.met(before, after, blind)
        show(
            f"embedded run on {asked.env_id} by {args.algorithm}, seed {seed}",
            before_sampled=before["sampled"],
            before_greedy=before["greedy"],
            after_sampled=after["sampled"],
            after_greedy=after["greedy"],
            tasks=summary["tasks"],
            **({"grpo_after_sampled": grpo["sampled"]} if grpo else {}),
            **(successes(folder) if summary.get("figure", "success") != "success" else {}),
            seconds=summary.get("seconds", time.monotonic() - begin),
            goals_met=met,
        )
        runs.append(run)
        if not met:
            missed.append(seed)
    figure.parent.mkdir(parents=True, exist_ok=True)
    figure.write_text(learning_curves(runs, levels={name.replace("_", " "): blind[name] for name in asked.levels}), encoding="utf-8")
    if missed:
        goals = "sampled >= 0.3 above its start, and at most 0.1 below GRPO" if ppo else asked.goals
        print(f"seeds {missed} missed the goals: {goals}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
