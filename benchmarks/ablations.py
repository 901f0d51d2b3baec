"""What each piece is worth: the embedded run on HotpotQA with one thing changed at a time, from the same warm start of each seed.

    python benchmarks/ablations.py --seeds 0 1 2
    python benchmarks/ablations.py --seeds 0 --arms base separate_rows --updates 5

Every arm is trained for so many updates (16 questions times 8 episodes) in a process of its own, one after the other on one thread, and measured on 200
held-out tasks, sampled and greedy. Prints a JSON line per run and draws the training success, a picture per question. What is finished is kept in --runs, and
is not run again.

| arm | changed |
|---|---|
| `base` | nothing: GRPO, the model's tokens alone are trained, merged rows, `append` |
| `env_tokens` | the environment's tokens are trained like the model's, and count in the denominator |
| `env_tokens_action_denominator` | the same, divided by the number of action tokens |
| `whiten_actions` | the return of the episode at each token, whitened over action tokens |
| `whiten_all` | the same, whitened over all tokens |
| `step_gae`, `token_gae` | PPO with a critic, over steps or over tokens |
| `separate_rows` | one row per step in place of merged ones: the same gradient, dearer |
| `rebuild` | the context is made anew each turn, of question and latest result (with a warm start of its own) |
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from clock import show

from agent_gym.evaluation import evaluate
from agent_gym.policies import TransformersPolicy
from agent_gym.report.charts import Level, Series, draw_chart, moving_mean
from agent_gym.trainers import AgentGRPOConfig, AgentGRPOTrainer, AgentPPOConfig, AgentPPOTrainer
from agent_gym.trainers.environments import EnvironmentMaker
from agent_gym.trainers.presets.base import PPO_DEFAULTS
from agent_gym.trainers.presets.hotpotqa import HotpotQAConfig, HotpotQAPreset
from agent_gym.trainers.rows import Row
from agent_gym.trainers.tiny_model import build_tiny_model
from agent_gym.trainers.warm_start import WARM_START_ENV, WARM_START_ENV_KWARGS, record_demonstrations, warm_start

ROOT = Path(__file__).resolve().parents[1]
TASKS = 200


def over_all_tokens(rows: Sequence[Row]) -> list[Row]:
    """Train every token behind the first prompt, each with the advantage of the action before it, or of the first."""
    changed = []
    for row in rows:
        first = row.segments[0].start
        mask = np.zeros(len(row), dtype=np.bool_)
        mask[first:] = True
        advantages = row.advantages.copy()
        for segment, until in zip(row.segments, [*(one.start for one in row.segments[1:]), len(row)], strict=True):
            advantages[segment.end : until] = advantages[segment.start]
        changed.append(replace(row, mask=mask, advantages=advantages))
    return changed


class _Unmasked(AgentGRPOTrainer):
    """Trains the environment's tokens too; the loss is divided by the number of action tokens."""

    def _rows(self, advantages: Any, flat: Any) -> tuple[list[Row], int]:
        rows, dropped = super()._rows(advantages, flat)
        return over_all_tokens(rows), dropped


class _UnmaskedDenominator(_Unmasked):
    """The same, divided by the number of all tokens that are trained."""

    def _rows(self, advantages: Any, flat: Any) -> tuple[list[Row], int]:
        rows, dropped = super()._rows(advantages, flat)
        share = sum(row.num_trained for row in rows) / max(1, sum(int(row.mask.sum()) for row in rows))
        return [replace(row, advantages=row.advantages * np.float32(share)) for row in rows], dropped


class _Whitened(AgentGRPOTrainer):
    """Gives each trained token the return of its episode, whitened over tokens."""

    whitened_over_all = False

    def _rows(self, advantages: Any, flat: Any) -> tuple[list[Row], int]:
        rows, dropped = super()._rows(advantages, flat)
        returns = np.array([sum(step.reward for step in item.steps) for item in self.trajectories])
        counts = np.zeros(len(returns))
        for row in rows:
            counts[row.trajectory] += len(row) - row.segments[0].start if self.whitened_over_all else row.num_trained
        mean = np.average(returns, weights=counts)
        std = np.sqrt(np.average((returns - mean) ** 2, weights=counts))
        white = (returns - mean) / (std + 1e-4)
        return [replace(row, advantages=np.where(row.mask, white[row.trajectory], 0.0).astype(np.float32)) for row in rows], dropped


class _WhitenedOverAll(_Whitened):
    whitened_over_all = True


class Arm(NamedTuple):
    """What is changed.

    Attributes:
        trainer: in place of `AgentGRPOTrainer`.
        settings: of it, beside those of the preset.
        context: of the environment.
    """

    trainer: type[AgentGRPOTrainer] = AgentGRPOTrainer
    settings: Mapping[str, Any] = {}
    context: str = "append"


ARMS: dict[str, Arm] = {
    "base": Arm(),
    "env_tokens": Arm(_UnmaskedDenominator),
    "env_tokens_action_denominator": Arm(_Unmasked),
    "whiten_actions": Arm(_Whitened, {"advantage": "reinforce", "drop_zero_variance": False}),
    "whiten_all": Arm(_WhitenedOverAll, {"advantage": "reinforce", "drop_zero_variance": False}),
    "step_gae": Arm(AgentPPOTrainer, {"advantage": "step_gae", "drop_zero_variance": False, **PPO_DEFAULTS}),
    "token_gae": Arm(AgentPPOTrainer, {"advantage": "token_gae", "drop_zero_variance": False, **PPO_DEFAULTS}),
    "separate_rows": Arm(settings={"merge_prefix": False}),
    "rebuild": Arm(context="rebuild"),
}
PICTURES = {
    "Are the environment's tokens masked?": ("base", "env_tokens", "env_tokens_action_denominator"),
    "Whitened over which tokens?": ("base", "whiten_actions", "whiten_all"),
    "Advantages of what?": ("base", "step_gae", "token_gae"),
    "One row or many, append or rebuild?": ("base", "separate_rows", "rebuild"),
}
COLOURS = ("c-sampled", "c-greedy", "c-ceiling")


def begin(seed: int, context: str, folder: Path) -> None:
    """Make the model that the arms of a seed begin from, as the preset does."""
    settings, tokenizer = HotpotQAConfig().warm_start, HotpotQAPreset().tokenizer()

    def make(**keywords: Any) -> Any:
        return gymnasium.make(WARM_START_ENV, disable_env_checker=True, **{**WARM_START_ENV_KWARGS, "context": context, **keywords})

    shown: dict[str, Any] = {"seed": seed, "tokenizer": tokenizer, "make_env": make}
    demonstrations = record_demonstrations(settings.demonstrations, continue_probability=settings.continue_probability, **shown)
    probes = record_demonstrations(settings.probes, split="validation", continue_probability=1.0, **shown)
    model = build_tiny_model(tokenizer, seed)
    warm_start(model, tokenizer, demonstrations, probes, seed=seed, config=settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def run(seed: int, name: str, updates: int, start: Path, out: Path) -> None:
    """Train one arm, and write what came of it."""
    from transformers import AutoModelForCausalLM

    arm, config = ARMS[name], HotpotQAConfig()
    preset = HotpotQAPreset()
    keywords = {**preset.keywords(config), "context": arm.context}
    tokenizer = preset.tokenizer()
    model = AutoModelForCausalLM.from_pretrained(str(start), dtype=torch.float32)
    preset.prepare(model)
    episodes = config.tasks_per_update * config.num_generations
    kind = AgentPPOConfig if issubclass(arm.trainer, AgentPPOTrainer) else AgentGRPOConfig
    settings: dict[str, Any] = {
        "output_dir": str(out.with_suffix("")),
        "per_device_train_batch_size": episodes // 2,
        "gradient_accumulation_steps": 2,
        "num_generations": config.num_generations,
        "max_completion_length": config.max_action_tokens,
        "max_steps": updates * config.num_iterations,
        "num_iterations": config.num_iterations,
        "learning_rate": config.learning_rate,
        "max_grad_norm": config.max_grad_norm,
        "advantage": "grpo",
        "drop_zero_variance": True,
        "max_concurrency": episodes,
        "logging_steps": config.num_iterations,
        "seed": seed,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "log_level": "error",
    }
    trainer = arm.trainer(
        model,
        kind(**{**settings, **arm.settings}),
        env=preset.env_id,
        env_kwargs={**keywords, "split": preset.splits.train},
        processing_class=tokenizer,
    )
    began = time.process_time()
    trainer.train()
    cpu = time.process_time() - began
    records = [entry for entry in trainer.state.log_history if "rollout/success" in entry]
    ends = tuple(trainer.make_env.end_of_turn_ids)
    rows = int(model.get_input_embeddings().weight.shape[0])
    found, _ = evaluate(
        preset.env_id,
        TransformersPolicy(model, tokenizer=tokenizer, max_batch_size=256, seed=seed),
        env_kwargs={**keywords, "split": preset.splits.held_out},
        tasks=TASKS,
        arms={"sampled": 1.0, "greedy": 0.0},
        max_tokens=config.max_action_tokens,
        max_concurrency=256,
        env_factory=EnvironmentMaker(preset.env_id, tokenizer=tokenizer, vocab_size=rows, end_of_turn_ids=ends),
    )
    out.write_text(
        json.dumps(
            {
                "seed": seed,
                "arm": name,
                "updates": updates,
                "success": [entry["rollout/success"] for entry in records],
                "rows_per_episode": float(np.mean([entry["rollout/rows_per_traj"] for entry in records])),
                "cpu_seconds": cpu,
                **found.scores(),
            }
        ),
        encoding="utf-8",
    )


def draw(results: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """A picture per question: thin lines are seeds, thick ones their means."""
    style = (files("agent_gym.report") / "report.css").read_text(encoding="utf-8")
    for number, (question, names) in enumerate(PICTURES.items(), start=1):
        items: list[Any] = []
        for name, colour in zip(names, COLOURS, strict=True):
            curves = [moving_mean([(x + 1.0, y) for x, y in enumerate(one["success"])]) for one in results if one["arm"] == name]
            items += [Series(f"{name}, one seed", curve, colour, "thin") for curve in curves]
            if curves:
                shortest = min(len(curve) for curve in curves)
                means = [(curves[0][x][0], float(np.mean([curve[x][1] for curve in curves]))) for x in range(shortest)]
                items.append(Series(name, means, colour))
                items.append(Level(name, means[-1][1], colour))
        title = f"{question} Training success over updates, mean of 5; thin lines are seeds"
        chart = draw_chart(items, width=880, height=400, title=title, x_label="update", y_range=(0.0, 1.0), standalone_style=style)
        (folder / f"ablation-{number}.svg").write_text(chart, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=list(ARMS))
    parser.add_argument("--updates", type=int, default=25)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "ablations")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs")
    parser.add_argument("--one", nargs=2, metavar=("SEED", "ARM"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(1)
    if args.one:
        seed, name = int(args.one[0]), args.one[1]
        start = args.runs / f"seed{seed}" / f"warm_start-{ARMS[name].context}"
        if not (start / "config.json").is_file():
            begin(seed, ARMS[name].context, start)
        run(seed, name, args.updates, start, args.runs / f"seed{seed}" / f"{name}.json")
        return 0
    results = []
    for seed in args.seeds:
        for name in args.arms:
            out = args.runs / f"seed{seed}" / f"{name}.json"
            if not out.is_file() or json.loads(out.read_text(encoding="utf-8"))["updates"] != args.updates:
                out.parent.mkdir(parents=True, exist_ok=True)
                command = [sys.executable, __file__, "--one", str(seed), name, "--updates", str(args.updates), "--runs", str(args.runs)]
                subprocess.run(command, check=True)
            results.append(json.loads(out.read_text(encoding="utf-8")))
            last = {key: value for key, value in results[-1].items() if key not in ("success", "arm")}
            show(f"ablation {name}", **last, last_five=float(np.mean(results[-1]["success"][-5:])))
    draw(results, args.figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
