"""`agent-gym eval --policy NAME=WHAT ...`: several policies on the same tasks, one table and one figure. One that fails costs its own line."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import (
    Interrupted,
    Player,
    UsageError,
    baselines_of,
    check_env_kwargs,
    console,
    progress_bar,
    user_mistakes,
    what_to_play,
)
from agent_gym.cli.evaluate import DEFAULT_TASKS, folder_of, which_tasks
from agent_gym.cli.policy_specs import PolicySpec, read_specs
from agent_gym.runs import to_plain
from agent_gym.trajectory import Trajectory

if TYPE_CHECKING:
    from agent_gym.comparison import Line

__all__ = ["compare"]

_FILE = "comparison.json"


def compare(args: argparse.Namespace) -> int:
    """Play the same tasks with every policy, print the table and write it with its figure.

    Args:
        args: of `agent-gym eval`.

    Returns:
        0, or 1 where a policy failed.

    Raises:
        UsageError: for a mistake in the command, before anything is played.
        Interrupted: after Ctrl-C; what was done until then is written.
    """
    if args.data is not None or args.judge is not None:
        raise UsageError(
            "--data and --policy do not go together: several policies are compared on an environment's own tasks; leave one of the two out"
        )
    env_id, keywords, defaults = what_to_play(args, None, evaluated=True)
    check_env_kwargs(env_id, keywords)
    baselines = baselines_of(env_id)
    specs = read_specs(args, tuple(baselines))
    if args.baselines:
        names = {one.name for one in specs}
        specs += [PolicySpec(name, "local", name) for name in baselines if name not in names]
        if not baselines:
            raise UsageError(f"--baselines: {env_id} names no players without a model; leave it out")
    split, first, chosen_by = which_tasks(args, env_id, keywords, defaults)
    tasks = args.tasks or DEFAULT_TASKS
    wanted = ("sampled", "greedy") if args.arms == "both" else (args.arms or "sampled",)
    told = {"env_id": env_id, "env_kwargs": {**keywords, **({"split": split} if split else {})}, "tasks": tasks, "first": first}
    asked = {
        **told,
        "samples": args.samples,
        "arms": wanted,
        "max_tokens": args.max_tokens,
        "seed": args.seed,
        "temperature": args.temperature,
    }
    asked["policies"] = [one.asked() for one in specs]
    asked = to_plain(asked)
    folder = folder_of(args.output_dir, env_id, "comparison", split, args.seed, asked, file=_FILE)
    run = _Run(args, env_id, keywords, split, wanted, specs, baselines)
    with user_mistakes(TypeError):
        run.choose(tasks, first)
    stopped = run.play()
    comparison = run.comparison(
        {
            "split": split or "",
            "split_by": chosen_by,
            **told,
            "tasks": len(run.rows),
            "samples": args.samples,
            "seed": args.seed,
            "asked": asked,
        }
    )
    screen = console()
    screen.print(comparison.table())
    for note in comparison.notes():
        screen.print(note, markup=False, highlight=False, style="dim", soft_wrap=True)
    with user_mistakes():
        files = comparison.save(folder)
        if args.save_episodes:
            files += run.save_episodes(folder)
    screen.print(f"written to {folder}/: {', '.join(files)}", markup=False, highlight=False, style="dim", soft_wrap=True)
    if stopped:
        raise Interrupted(f"stopped; what was done until then is in {folder}/")
    return 1 if comparison.failed else 0


class _Run:
    """What is played and what came of it."""

    def __init__(
        self,
        args: argparse.Namespace,
        env_id: str,
        keywords: Mapping[str, Any],
        split: str | None,
        arms: Sequence[str],
        specs: Sequence[PolicySpec],
        baselines: Mapping[str, Any],
    ) -> None:
        self.args, self.env_id, self.keywords, self.split = args, env_id, keywords, split
        self.arms, self.specs, self.baselines = arms, specs, baselines
        self.rows: list[dict[str, Any]] = []
        self.lines: list[Line] = []
        self.played: dict[tuple[str, str], list[Trajectory]] = {}
        self._kinds: tuple[str, ...] = ()
        self._metrics: tuple[str, ...] = ()

    def choose(self, tasks: int, first: int) -> None:
        """Choose the tasks, once for all policies."""
        import gymnasium

        from agent_gym.evaluation import task_rows

        keywords = {**self.keywords, **({"split": self.split} if self.split else {})}
        probe = gymnasium.make(self.env_id, **keywords)
        try:
            self.rows = task_rows(probe, self.env_id, keywords, tasks, first)
            self._kinds = getattr(probe.unwrapped, "breakdown_names", ())
            self._metrics = getattr(probe.unwrapped, "metric_names", None) or ()
        finally:
            probe.close()
        if not self.rows:
            raise UsageError(f"{self.env_id} has no tasks with {keywords}; nothing can be compared")

    def play(self) -> bool:
        """Play with one policy after another. Returns whether Ctrl-C ended it."""
        from agent_gym.comparison import Line

        stopped = False
        with progress_bar() as bar:
            for spec in self.specs:
                arms = [spec.name] if spec.scripted(self.baselines) else list(self.arms)
                if stopped:
                    self.lines += [
                        Line(spec.name, arm, spec.model or spec.what, status="not run", reason="stopped before it") for arm in arms
                    ]
                    continue
                stopped = self._play_one(spec, arms, bar)
        return stopped

    def _play_one(self, spec: PolicySpec, arms: Sequence[str], bar: Any) -> bool:
        """All arms of one policy; returns whether Ctrl-C ended them."""
        from agent_gym.comparison import Line

        begun = len(self.lines)
        player: Player | None = None
        status, reason = "failed", ""
        try:
            player = spec.load(self.args, self.baselines)
            for arm in arms:
                self._play_arm(spec, player, arm, bar)
                done = self.lines[-1]
                if done.status != "done":
                    status, reason = done.status, done.reason
                    break
        except UsageError as error:
            reason = str(error)
        except KeyboardInterrupt:
            status, reason = "interrupted", "Ctrl-C"
        finally:
            close = getattr(None if player is None else player.policy, "close", None)
            if close is not None:
                with contextlib.suppress(OSError, RuntimeError):
                    close()
        model, engine = (spec.model or spec.what, "") if player is None else (player.name, player.engine)
        exact = spec.kind != "openai"
        missing = list(arms)[len(self.lines) - begun :]
        self.lines += [Line(spec.name, arm, model, engine, exact, status, reason) for arm in missing]
        return status == "interrupted"

    def _play_arm(self, spec: PolicySpec, player: Player, arm: str, bar: Any) -> None:
        """One policy in one way of decoding; its line says how that went."""
        from agent_gym.comparison import Line
        from agent_gym.evaluation import Arm, evaluate, summarize
        from agent_gym.flows import TooManyFaults
        from agent_gym.policies import EngineError, MeteredPolicy, Traffic

        scripted = player.engine in ("scripted", "random")
        temperature = None if scripted else player.arms.get(arm, 0.0)
        samples = self.args.samples if player.samples and temperature != 0 else 1
        metered: Any = player.policy if hasattr(player.policy, "records") else MeteredPolicy(player.policy)
        before = len(metered.records)
        label = spec.name if arm == spec.name else f"{spec.name} ({arm})"
        counter = bar.add_task(label, total=len(self.rows) * samples, note="")
        by_task: dict[str, list[Trajectory]] = defaultdict(list)
        solved = [0, 0]

        def finished(_: str, episodes: Sequence[Trajectory]) -> None:
            for one in episodes:
                by_task[one.group_id].append(one)
            solved[0], solved[1] = solved[0] + any(one.is_success for one in episodes), solved[1] + 1
            bar.update(counter, advance=1, note=f"success {solved[0] / solved[1]:.3f}")

        status, reason, result = "done", "", None
        try:
            with user_mistakes(TooManyFaults, TypeError, EngineError, RuntimeError):
                evaluation, _ = evaluate(
                    self.env_id,
                    metered,
                    env_kwargs=self.keywords,
                    split=self.split,
                    rows=self.rows,
                    samples=samples,
                    arms={arm: temperature},
                    max_tokens=self.args.max_tokens,
                    seed=self.args.seed,
                    env_factory=player.env_factory(self.env_id, self.keywords),
                    max_concurrency=self.args.batch_size,
                    workers=self.args.workers,
                    on_episode=finished,
                )
                result = evaluation.arms[arm]
        except UsageError as error:
            status, reason = "failed", str(error)
        except KeyboardInterrupt:
            status, reason = "interrupted", "Ctrl-C"
        if result is None and by_task:
            groups = [by_task[str(row["group_id"])] for row in self.rows]
            result = summarize(
                arm, groups, temperature=temperature, samples=samples, seed=self.args.seed, breakdown=self._kinds, metrics=self._metrics
            )
        if status != "done":
            played = 0 if not isinstance(result, Arm) else result.episodes
            reason = f"after {played} of {len(self.rows) * samples} episodes: {reason}"
        self.played[spec.name, arm] = [one for row in self.rows for one in by_task[str(row["group_id"])]]
        traffic = None if scripted else Traffic.of(metered.records[before:], spec.prices)
        exact = bool(getattr(player.policy, "token_exact", True))
        self.lines.append(Line(spec.name, arm, player.name, player.engine, exact, status, reason, result, traffic))

    def comparison(self, settings: Mapping[str, Any]) -> Any:
        """Put the lines together, each with its difference to the first of its arm."""
        from agent_gym.comparison import Comparison, paired_difference

        lines: list[Line] = []
        for line in self.lines:
            first = next(
                (
                    one
                    for one in self.lines
                    if one.result is not None and (one.arm == line.arm or one.arm == one.policy or line.arm == line.policy)
                ),
                None,
            )
            difference = None
            if first is not None and first is not line and first.result is not None and line.result is not None:
                difference = paired_difference(first.result, line.result, self.args.seed)
            lines.append(dataclasses.replace(line, difference=difference))
        return Comparison(self.env_id, lines, settings)

    def save_episodes(self, folder: Any) -> list[str]:
        """Write the episodes of every line; returns the names of the files."""
        from agent_gym.trajectory_io import save_trajectories

        names = []
        for (policy, arm), episodes in self.played.items():
            if episodes:
                name = f"episodes.{policy.replace(' ', '_')}{'' if arm == policy else '.' + arm}.jsonl"
                save_trajectories(folder / name, episodes)
                names.append(name)
        return names
