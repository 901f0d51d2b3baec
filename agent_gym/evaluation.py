"""Evaluation: N tasks by k samples, with intervals, and everything one needs to repeat it.

`evaluate` plays the episodes through `agent_gym.flows.run_rows`; `summarize` turns episodes into figures and knows nothing of how they were
played. What stands behind the figures:

* The *task* is the unit. Samples of one task are not independent, so intervals of means are percentile bootstraps over tasks. Success with one
  sample per task is a binomial count and gets Wilson's score interval, as does a bootstrap without any variance, whose interval
  would have no width.
* *Sampled* and *greedy* success are two quantities. They stand in arms of their own, never in one column and never averaged.
* A *fault* (the world broke) is no failure: such episodes are counted apart and left out of every mean.
* pass@k is the unbiased estimate of Chen et al. (arXiv 2107.03374): at least one of k samples succeeds; pass^k (tau-bench, arXiv 2406.12045):
  all k do.
* Where an environment names kinds of task (`AgentEnv.breakdown_names`), success is given for each kind, as "success/KIND", over the tasks of that
  kind. What says where the tasks are from (`AgentEnv.setting_names`) stands in the table and, under "told", in the JSON, as the episodes told it.
* The same episodes give the same bytes: one generator of our own, seeded, and no clock in the output.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agent_gym.trajectory import CUT_OFF, StopReason, Trajectory

if TYPE_CHECKING:
    import gymnasium
    from rich.table import Table

    from agent_gym.flows import AgentFlowBase
    from agent_gym.policies import Policy

__all__ = [
    "EVAL_SEEDS",
    "MODEL_ARMS",
    "Arm",
    "Estimate",
    "Evaluation",
    "Played",
    "bootstrap_intervals",
    "evaluate",
    "finite_tasks",
    "pass_all_k",
    "pass_at_k",
    "summarize",
    "task_rows",
    "wilson_interval",
]

MODEL_ARMS: Mapping[str, float | None] = MappingProxyType({"sampled": 1.0, "greedy": 0.0})
"""The arms of a model: name and temperature."""

EVAL_SEEDS = 1_000_000
"""The first seed of an evaluation where an environment has no splits: training takes seeds from 0 on."""

SCHEMA = "agent-gym.evaluation/1"
CONFIDENCE = 0.95
RESAMPLES = 2000
_Z = 1.959963984540054  # the 97.5 % point of the normal distribution, for CONFIDENCE
_KIND = "success/"
_CELLS = 2_000_000  # numbers held at once by the bootstrap


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval.

    Attributes:
        mean: over tasks, each task being the mean of its samples.
        low: lower end of the interval.
        high: upper end.
        method: "bootstrap" (percentile, over tasks) or "wilson".
        tasks: how many tasks it rests on.
    """

    mean: float
    low: float
    high: float
    method: str
    tasks: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of decoding, over all tasks.

    Attributes:
        name: "sampled", "greedy", or the name of a policy without a model.
        temperature: of the sampling; 0 is greedy, None where it has no meaning.
        samples: episodes asked for per task.
        tasks: tasks asked for.
        episodes: episodes that count.
        faults: episodes that were dropped because the world broke, after retries.
        tasks_without_result: tasks all of whose episodes were dropped.
        estimates: "success", "success/KIND" for kinds of task, "reward", "reward/NAME" for the parts where there are several, and the
            environment's metrics.
        pass_at: k -> share of tasks that at least one of k samples solves.
        pass_all: k -> share of tasks that all of k samples solve.
        turns: mean number of steps of an episode.
        action_tokens: mean number of sampled tokens of an episode.
        context_tokens: mean length of the longest prompt with its action, tokens.
        invalid_actions: share of actions that the environment called invalid.
        cut_off_actions: share of actions that ended for their length.
        stop_reasons: why episodes ended, as counts.
        per_task: seed or index, task id, successes and rewards of each task, in order.
    """

    name: str
    temperature: float | None
    samples: int
    tasks: int
    episodes: int
    faults: int
    tasks_without_result: int
    estimates: Mapping[str, Estimate]
    pass_at: Mapping[int, float]
    pass_all: Mapping[int, float]
    turns: float
    action_tokens: float
    context_tokens: float
    invalid_actions: float
    cut_off_actions: float
    stop_reasons: Mapping[str, int]
    per_task: Sequence[Mapping[str, Any]] = field(repr=False, default=())

    @property
    def success(self) -> Estimate:
        """Success, 0 to 1."""
        return self.estimates["success"]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        env_id: of the environment.
        arms: by name.
        settings: env_kwargs, split, seed, data source, level, engine (that computes the model), model, tokenizer fingerprint, versions; `told`, what
            the environment says of where its tasks are from; `split_by` where nobody chose the split.
    """

    env_id: str
    arms: Mapping[str, Arm]
    settings: Mapping[str, Any]

    def scores(self, figure: str = "success") -> dict[str, float]:
        """Return one figure of each arm, as summary.json wants it.

        Args:
            figure: the name of an estimate.

        Returns:
            Its mean, by arm.
        """
        return {name: arm.estimates[figure].mean for name, arm in self.arms.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values.

        Returns:
            What JSON can write.
        """
        from agent_gym.runs import to_plain

        plain = to_plain(
            {
                "schema": SCHEMA,
                "env_id": self.env_id,
                **self.settings,
                "confidence": CONFIDENCE,
                "resamples": RESAMPLES,
                "arms": {name: asdict(arm) for name, arm in self.arms.items()},
            }
        )
        return dict(plain)

    def save(self, path: str | Path) -> Path:
        """Write the JSON.

        Args:
            path: of the file.

        Returns:
            The path.
        """
        from agent_gym.runs import atomic_write

        return atomic_write(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")

    def table(self) -> Table:
        """Return the figures as a rich table, one column per arm.

        Returns:
            For a rich console.
        """
        from rich.box import SIMPLE_HEAD
        from rich.markup import escape
        from rich.table import Table
        from rich.text import Text

        title = f"{self.env_id}  {self.settings.get('split', '')}  {self.settings.get('model', '')}"
        table = Table(title=Text(title.strip()), title_justify="left", header_style="bold", box=SIMPLE_HEAD)
        table.add_column("")
        for arm in self.arms.values():
            table.add_column(escape(_column_title(arm)), justify="right")
        arms = list(self.arms.values())
        for name in dict.fromkeys(name for arm in arms for name in arm.estimates):
            cells = [_cell(arm.estimates.get(name)) for arm in arms]
            tasks = max(arm.estimates[name].tasks for arm in arms if name in arm.estimates)
            label = f"  {name.removeprefix(_KIND)} (n={tasks})" if name.startswith(_KIND) else name
            table.add_row(escape(label), *cells, style="bold" if name == "success" else "", end_section=name == list(arms[0].estimates)[-1])
        for label, field_name in (("pass@", "pass_at"), ("pass^", "pass_all")):
            figures = [getattr(arm, field_name) for arm in arms]
            for k in sorted({k for one in figures for k in one if k > 1}):
                table.add_row(f"{label}{k}", *(f"{one[k]:.3f}" if k in one else "" for one in figures))
        table.add_section()
        shown = [str(part) for part in (self.settings.get("split"), self.settings.get("split_by")) if part]
        if shown:
            table.add_row("split", *(escape(", ".join(shown)) for _ in arms))
        for name, value in self.settings.get("told", {}).items():
            if name != "split" or value != self.settings.get("split"):
                table.add_row(escape(f"{name} of the tasks"), *(escape(str(value)) for _ in arms))
        for label, show in _ROWS:
            table.add_row(label, *(show(arm) for arm in arms))
        for reason in sorted({reason for arm in arms for reason in arm.stop_reasons}):
            table.add_row(f"ended by {escape(reason)}", *(str(arm.stop_reasons.get(reason, 0)) for arm in arms), style="dim")
        return table


_ROWS: tuple[tuple[str, Callable[[Arm], str]], ...] = (
    ("tasks", lambda arm: str(arm.tasks)),
    ("episodes that count", lambda arm: str(arm.episodes)),
    ("faults (left out)", lambda arm: str(arm.faults)),
    ("turns", lambda arm: f"{arm.turns:.2f}"),
    ("action tokens", lambda arm: f"{arm.action_tokens:.1f}"),
    ("longest context, tokens", lambda arm: f"{arm.context_tokens:.0f}"),
    ("invalid actions", lambda arm: f"{arm.invalid_actions:.3f}"),
    ("actions cut off", lambda arm: f"{arm.cut_off_actions:.3f}"),
)


def _column_title(arm: Arm) -> str:
    notes = [f"T={arm.temperature:g}"] if arm.temperature is not None else []
    notes += [f"{arm.samples} samples"] if arm.samples > 1 else []
    return f"{arm.name} ({', '.join(notes)})" if notes else arm.name


def _cell(estimate: Estimate | None) -> str:
    if estimate is None or math.isnan(estimate.mean):
        return "-"
    return f"{estimate.mean:.3f}  {estimate.low:.3f} to {estimate.high:.3f}"


# ---------------------------------------------------------------------------------------------------- statistics


def wilson_interval(successes: float, trials: int) -> tuple[float, float]:
    """Return Wilson's 95 % score interval of a proportion (Wilson 1927), never outside [0, 1] and never without width.

    Args:
        successes: 0 to `trials`.
        trials: at least 1.

    Returns:
        Lower and upper end.

    Raises:
        ValueError: if the counts are impossible.
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"a proportion needs 0 <= successes <= trials and trials >= 1, not {successes} of {trials}")
    share, z2 = successes / trials, _Z * _Z
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    low = 0.0 if successes == 0 else max(0.0, middle - half)
    return low, 1.0 if successes == trials else min(1.0, middle + half)


def bootstrap_intervals(
    values: NDArray[np.float64], seed: int, resamples: int = RESAMPLES
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return percentile bootstrap 95 % intervals of column means, resampling rows.

    Args:
        values: shape (tasks, quantities), float64, finite.
        seed: of the generator; nothing global is touched.
        resamples: how many.

    Returns:
        Lower and upper ends, shape (quantities,) each, float64.
    """
    rng = np.random.default_rng([0xB0075, int(seed) & 0xFFFFFFFF])
    tasks = len(values)
    means = np.empty((resamples, values.shape[1]))
    chunk = max(1, _CELLS // tasks)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        counts = rng.multinomial(tasks, np.full(tasks, 1.0 / tasks), size=size)
        means[start : start + size] = counts @ values / tasks
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail], axis=0)
    return low, high


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Return the unbiased estimate that at least one of k samples succeeds (Chen et al. 2021, equation 1).

    Args:
        samples: drawn, at least k.
        successes: among them.
        k: at least 1.

    Returns:
        1 - C(samples - successes, k) / C(samples, k).

    Raises:
        ValueError: if k is not between 1 and `samples`.
    """
    _check_k(samples, successes, k)
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def pass_all_k(samples: int, successes: int, k: int) -> float:
    """Return the unbiased estimate that all of k samples succeed.

    Args:
        samples: drawn, at least k.
        successes: among them.
        k: at least 1.

    Returns:
        C(successes, k) / C(samples, k).

    Raises:
        ValueError: if k is not between 1 and `samples`.
    """
    _check_k(samples, successes, k)
    return math.comb(successes, k) / math.comb(samples, k)


def _check_k(samples: int, successes: int, k: int) -> None:
    if not (1 <= k <= samples and 0 <= successes <= samples):
        raise ValueError(f"pass figures need 1 <= k <= samples and 0 <= successes <= samples, not k={k}, {successes} of {samples}")


# ---------------------------------------------------------------------------------------------------- episodes to figures


def summarize(
    name: str,
    groups: Sequence[Sequence[Trajectory]],
    *,
    temperature: float | None,
    samples: int | None = None,
    seed: int = 0,
    dropped: int = 0,
    breakdown: Sequence[str] = (),
    metrics: Sequence[str] = (),
) -> Arm:
    """Turn episodes into figures.

    Args:
        name: of the arm.
        groups: the episodes of each task, in the order of the tasks; a group may be empty.
        temperature: of the sampling; None where it has no meaning.
        samples: episodes asked for per task; None takes the largest group.
        seed: of the bootstrap.
        dropped: faults that are not among the episodes.
        breakdown: info keys whose values are kinds of task; success is given for each kind.
        metrics: those that stand directly beside success; the others come behind the reward.

    Returns:
        The figures. Episodes that ended by ENV_FAULT, or have no step, count as faults and nothing else.
    """
    usable = [[episode for episode in group if episode.steps and episode.stop_reason is not StopReason.ENV_FAULT] for group in groups]
    faults = dropped + sum(len(group) for group in groups) - sum(len(group) for group in usable)
    kept = [group for group in usable if group]
    asked = samples if samples is not None else max((len(group) for group in groups), default=0)
    episodes = [episode for group in kept for episode in group]
    steps = [step for episode in episodes for step in episode.steps]
    return Arm(
        name=name,
        temperature=temperature,
        samples=asked,
        tasks=len(groups),
        episodes=len(episodes),
        faults=faults,
        tasks_without_result=len(groups) - len(kept),
        estimates=_estimates(kept, seed, breakdown, metrics),
        pass_at=_pass_figures(kept, asked, pass_at_k),
        pass_all=_pass_figures(kept, asked, pass_all_k),
        turns=_mean([len(episode) for episode in episodes]),
        action_tokens=_mean([sum(len(step.action_ids) for step in episode.steps) for episode in episodes]),
        context_tokens=_mean([max(len(step.observation_ids) + len(step.action_ids) for step in episode.steps) for episode in episodes]),
        invalid_actions=_mean([float(not step.info.get("action_valid", True)) for step in steps]),
        cut_off_actions=_mean([float(step.finish_reason in CUT_OFF) for step in steps]),
        stop_reasons=dict(sorted(Counter(episode.stop_reason.value for episode in episodes).items())),
        per_task=[_task_line(group) for group in usable],
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _task_line(group: Sequence[Trajectory]) -> dict[str, Any]:
    first = group[0] if group else None
    return {
        "task_id": first.task_id if first else "",
        "seed": first.seed if first else None,
        "options": dict(first.options) if first else {},
        "success": [int(episode.is_success) for episode in group],
        "reward": [episode.total_reward for episode in group],
    }


def _kinds(episode: Trajectory, breakdown: Sequence[str]) -> list[str]:
    """The names under which an episode's success counts for its kinds of task."""
    told = [episode.steps[-1].info.get(name) for name in breakdown]
    return [f"{_KIND}{kind}" for kind in told if kind]


def _quantities(episode: Trajectory, breakdown: Sequence[str]) -> dict[str, float]:
    success = float(episode.is_success)
    found = {"success": success, **dict.fromkeys(_kinds(episode, breakdown), success), "reward": episode.total_reward}
    parts: dict[str, float] = defaultdict(float)
    for step in episode.steps:
        for name, value in step.reward_parts.items():
            parts[name] += float(value)
    if len(parts) > 1:
        found.update({f"reward/{name}": value for name, value in parts.items()})
    found.update({name: float(value) for name, value in episode.metrics.items() if name not in found})
    return found


def _estimates(kept: Sequence[Sequence[Trajectory]], seed: int, breakdown: Sequence[str], metrics: Sequence[str]) -> dict[str, Estimate]:
    """One estimate per quantity, over the tasks whose episodes all have it as a finite number."""
    per_task = [[_quantities(episode, breakdown) for episode in group] for group in kept]
    named = list(dict.fromkeys(name for group in per_task for one in group for name in one)) or ["success", "reward"]
    kinds = sorted({name for group in kept for episode in group for name in _kinds(episode, breakdown)})
    beside = [name for name in metrics if name in named and name not in ("success", "reward", *kinds)]
    names = ["success", *kinds, *beside, *(name for name in named if name not in ("success", *kinds, *beside))]
    columns: dict[tuple[int, ...], list[tuple[str, list[float]]]] = defaultdict(list)
    for name in names:
        present, values = [], []
        for index, group in enumerate(per_task):
            mean = _mean([one.get(name, float("nan")) for one in group])
            if math.isfinite(mean):
                present.append(index)
                values.append(mean)
        columns[tuple(present)].append((name, values))
    found: dict[str, Estimate] = {}
    single = all(len(group) == 1 for group in per_task)
    for rows, members in columns.items():
        tasks = len(rows)
        if not tasks:
            found.update({name: Estimate(float("nan"), float("nan"), float("nan"), "bootstrap", 0) for name, _ in members})
            continue
        matrix = np.array([values for _, values in members], dtype=np.float64).T
        low, high = bootstrap_intervals(matrix, seed)
        for column, (name, values) in enumerate(members):
            mean = float(matrix[:, column].mean())
            flat = values[0] in (0.0, 1.0) and all(value == values[0] for value in values)
            if (name == "success" or name in kinds) and (single or flat):
                ends = wilson_interval(round(mean * tasks), tasks)
                found[name] = Estimate(mean, *ends, "wilson", tasks)
            else:
                found[name] = Estimate(mean, float(low[column]), float(high[column]), "bootstrap", tasks)
    return {name: found[name] for name in names}


def _pass_figures(kept: Sequence[Sequence[Trajectory]], samples: int, estimate: Callable[[int, int, int], float]) -> dict[int, float]:
    """The figure at k = 1, 2, 4, ... and at `samples`, over the tasks with at least k episodes that count."""
    figures: dict[int, float] = {}
    for k in sorted({1 << power for power in range(samples.bit_length()) if 1 << power <= samples} | ({samples} if samples else set())):
        values = [estimate(len(group), sum(one.is_success for one in group), k) for group in kept if len(group) >= k]
        if values:
            figures[k] = _mean(values)
    return figures


# ---------------------------------------------------------------------------------------------------- playing


Played = Mapping[str, tuple[Trajectory, ...]]
"""The episodes of each arm, in the order of the tasks."""


def finite_tasks(env: Any) -> Sequence[int] | None:
    """Return the numbers of the tasks of an environment's split, as `reset(options={"index": i})` takes them.

    Args:
        env: unwrapped. Where the split is no range from 0 on it says so by `task_indices`.

    Returns:
        The numbers, in order; None where tasks are generated without end, or the environment says nothing of them.
    """
    number = getattr(env, "num_tasks", None)
    indices: Sequence[int] | None = getattr(env, "task_indices", None)
    return indices if indices is not None or number is None else range(int(number))


def task_rows(env: gymnasium.Env[Any, Any], env_id: str, env_kwargs: Mapping[str, Any], tasks: int, first: int = 0) -> list[dict[str, Any]]:
    """Return one row per task: the first of a finite data set, or the first seeds of a generated one.

    Args:
        env: made with `env_kwargs`.
        env_id: its id.
        env_kwargs: its keywords, the split among them.
        tasks: how many; a finite data set may hold fewer.
        first: the number of the first task.

    Returns:
        Rows as `agent_gym.flows.run_rows` takes them, each with a group id of its own.

    Raises:
        ValueError: if `tasks` is not positive.
    """
    if tasks < 1:
        raise ValueError(f"an evaluation needs at least 1 task, not {tasks}")
    unwrapped: Any = env.unwrapped
    known = finite_tasks(unwrapped)
    head = {"env_id": env_id, "env_kwargs": dict(env_kwargs)}
    if known is not None:
        return [{**head, "seed": i, "options": {"index": i}, "group_id": f"task-{i}"} for i in known[first : first + tasks]]
    seeds = unwrapped.task_seeds(n=first + tasks)[first:] if hasattr(unwrapped, "task_seeds") else list(range(first, first + tasks))
    return [{**head, "seed": int(seed), "group_id": f"task-{i}"} for i, seed in enumerate(seeds[:tasks])]


def evaluate(
    env_id: str,
    policy: Policy,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    split: str | None = None,
    tasks: int = 200,
    first: int = 0,
    rows: Sequence[Mapping[str, Any]] | None = None,
    samples: int = 1,
    arms: Mapping[str, float | None] = MODEL_ARMS,
    max_tokens: int | None = None,
    seed: int = 0,
    flow: str | AgentFlowBase = "agent_env_loop",
    env_factory: Callable[[dict[str, Any]], gymnasium.Env[Any, Any]] | None = None,
    max_concurrency: int = 128,
    model: str = "",
    engine: str = "",
    on_episode: Callable[[str, Sequence[Trajectory]], None] | None = None,
    workers: int | str | None = None,
) -> tuple[Evaluation, Played]:
    """Play tasks with a policy and measure.

    Args:
        env_id: a registered id.
        policy: any policy.
        env_kwargs: keywords of the environment, without the tokenizer (that is `env_factory`'s business), so that they can be written down.
        split: of the tasks; None takes the one in `env_kwargs`, or the environment's own default.
        tasks: how many.
        first: the number of the first of them.
        rows: these tasks and no others, in place of `tasks`.
        samples: episodes per task; a greedy arm has one.
        arms: name -> temperature; 0 is greedy, None for a policy that has none.
        max_tokens: of a reply; None takes the environment's.
        seed: of sampling and of the bootstrap.
        flow: how episodes are played.
        env_factory: (row) -> environment with the model's tokenizer; None makes it with `gymnasium.make`.
        max_concurrency: episodes at once.
        model: what is evaluated, for the record.
        engine: what computes it, for the record.
        on_episode: called with the arm's name and the trajectories of a row as it is finished.
        workers: where the environments live; see `agent_gym.flows.arun_rows`.

    Returns:
        The evaluation, and the episodes of each arm.

    Raises:
        ValueError: for an unusable setting.
        agent_gym.flows.TooManyFaults: if the world breaks too often to measure anything.
    """
    import gymnasium

    from agent_gym.flows import EnvPool, open_workers, run_rows
    from agent_gym.policies import Sampling, derive_seed

    if samples < 1:
        raise ValueError(f"an evaluation needs at least 1 sample per task, not {samples}")
    keywords = dict(env_kwargs or {})
    if split is not None:
        keywords["split"] = split
    make = env_factory or (lambda row: gymnasium.make(row["env_id"], **row["env_kwargs"]))
    probe = make({"env_id": env_id, "env_kwargs": keywords, "seed": None, "options": {}, "group_id": ""})
    try:
        rows = [dict(row) for row in rows] if rows is not None else task_rows(probe, env_id, keywords, tasks, first)
        settings = _settings(probe, keywords, model=model, engine=engine)
        longest = int(getattr(probe.action_space, "max_length", 512))
        breakdown: tuple[str, ...] = getattr(probe.unwrapped, "breakdown_names", ())
        telling: tuple[str, ...] = getattr(probe.unwrapped, "setting_names", ("dataset", "level"))
        metrics: tuple[str, ...] = getattr(probe.unwrapped, "metric_names", None) or ()
    finally:
        probe.close()
    if not rows:
        raise ValueError(f"{env_id} has no tasks with {keywords}; nothing can be evaluated")
    results: dict[str, Arm] = {}
    played: dict[str, tuple[Trajectory, ...]] = {}
    opened = open_workers(workers, env_factory)
    pool = None if opened is None else EnvPool(env_factory, max_idle=max_concurrency, workers=opened)  # the same for every arm
    with contextlib.nullcontext() if pool is None else contextlib.closing(pool):
        for name, temperature in arms.items():
            repeats = 1 if temperature == 0 else samples
            done = run_rows(
                [row for row in rows for _ in range(repeats)],
                policy,
                sampling=Sampling(temperature=1.0 if temperature is None else temperature, max_tokens=max_tokens or longest),
                flow=flow,
                **({"env_factory": make} if pool is None else {"pool": pool}),
                seed=derive_seed(seed, "evaluation", name),
                max_concurrency=max_concurrency,
                on_episode=None if on_episode is None else _bound(on_episode, name),
            )
            groups: list[list[Trajectory]] = [[] for _ in rows]
            for index, episode in zip(done.row_indices, done.trajectories, strict=True):
                groups[index // repeats].append(episode)
            lost = len(done.dropped) + len(done.unfinished)
            results[name] = summarize(
                name, groups, temperature=temperature, samples=repeats, seed=seed, dropped=lost, breakdown=breakdown, metrics=metrics
            )
            played[name] = done.trajectories
    told = _told_by(played, telling)
    settings.update(
        told=told,
        data_source=told.get("dataset") or settings["data_source"],
        level=told.get("level") or settings["level"],
        tasks=len(rows),
        samples=max(arm.samples for arm in results.values()),
        seed=seed,
        max_tokens=max_tokens or longest,
        flow=flow if isinstance(flow, str) else type(flow).__name__,
    )
    return Evaluation(env_id, results, settings), played


def _bound(call: Callable[[str, Sequence[Trajectory]], None], name: str) -> Callable[[int, Sequence[Trajectory]], None]:
    return lambda _index, episodes: call(name, episodes)


def _settings(env: gymnasium.Env[Any, Any], keywords: Mapping[str, Any], *, model: str, engine: str) -> dict[str, Any]:
    """What the figures depend on, as far as the environment knows it."""
    from agent_gym.runs import collect_versions
    from agent_gym.wrappers import TokenizeText

    unwrapped: Any = env.unwrapped
    has_splits = isinstance(getattr(unwrapped, "split", None), str) and not isinstance(unwrapped, TokenizeText)
    versions = collect_versions()
    source = keywords.get("dataset", "embedded")
    return {
        "model": model,
        "engine": engine,
        "split": unwrapped.split if has_splits else str(keywords.get("split", "")),
        "env_kwargs": dict(keywords),
        "data_source": source if isinstance(source, str) else str(source),
        "level": str(keywords.get("level", "")),
        "tokenizer_fingerprint": str(getattr(unwrapped, "tokenizer_fingerprint", "")),
        "versions": {"python": versions["python"], **versions["packages"]},
    }


def _told_by(played: Played, names: Sequence[str]) -> dict[str, str]:
    """What the episodes say of where their tasks are from: the values of these info keys, several of them with commas between."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for episodes in played.values():
        for info in (episode.steps[-1].info for episode in episodes if episode.steps):
            for name in names:
                if isinstance(info.get(name), str) and info[name]:
                    found[name].add(info[name])
    return {name: ", ".join(sorted(values)) for name, values in found.items() if values}
