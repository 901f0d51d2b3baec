"""Learning curves: what counts in a run over its updates, as charts in a page and as pictures of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

from agent_gym.report.charts import Level, Marks, Series, draw_chart, moving_mean
from agent_gym.report.markup import Markup, join, tag
from agent_gym.runs import RunFolder

__all__ = [
    "ARMS",
    "asset",
    "batch_curve",
    "both_widths",
    "ceiling_of",
    "curve_items",
    "figure_of",
    "learning_curve",
    "learning_curves",
    "points_of",
]


@lru_cache(maxsize=16)
def asset(name: str) -> str:
    """Return a file of this room.

    Args:
        name: such as "report.css".

    Returns:
        Its text.
    """
    return resources.files("agent_gym.report").joinpath(name).read_text(encoding="utf-8")


def points_of(records: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[float, float]]:
    """Step and value of the first of these names that a record has, in order of steps; of two records of a step the later counts.

    Args:
        records: of a run.
        names: of figures, the one that is wanted most first.

    Returns:
        (step, value) for each record that has one.
    """
    found: dict[float, float] = {}
    for record in records:
        for name in names:
            value = record.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found[float(record["step"])] = float(value)
                break
    return sorted(found.items())


ARMS = (("sampled", "sampled (T=1)", "c-sampled", "circle"), ("greedy", "greedy", "c-greedy", "diamond"))


def figure_of(run: RunFolder) -> str:
    """The name of what counts in a run: "success", or one of its environment's metrics.

    Args:
        run: the folder.

    Returns:
        The name.
    """
    return str((run.summary or {}).get("figure") or run.config.get("figure") or "success")


def batch_curve(records: Sequence[Mapping[str, Any]], figure: str) -> list[tuple[float, float]]:
    """What counts, of the training batches.

    Args:
        records: of a run.
        figure: what counts.

    Returns:
        (step, value) for each batch.
    """
    names = ("rollout/success", "success") if figure == "success" else (f"metrics/{figure}",)
    return points_of([one for one in records if one["kind"] == "train"], *names)


def curve_items(
    records: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], ceiling: float | None, figure: str
) -> list[Series | Marks | Level]:
    """Return the lines and marks of a run's learning curve.

    Args:
        records: of the run.
        summary: of the run, empty while there is none.
        ceiling: of imitation, or None.
        figure: what counts.

    Returns:
        What `draw_chart` draws.
    """
    train = batch_curve(records, figure)
    evals = [one for one in records if one["kind"] == "eval"]
    tests = {arm: dict(points_of(evals, arm)) for arm, *_ in ARMS}
    between = {arm: dict(points_of(evals, f"validation/{arm}")) for arm, *_ in ARMS}
    between["sampled"] |= dict(points_of(evals, "eval_rollout/success" if figure == "success" else f"eval_metrics/{figure}"))
    last = max([x for x, _ in train] + [x for points in (*tests.values(), *between.values()) for x in points] + [0.0])
    for when, at in (("warm_start", 0.0), ("final", last)):
        for arm, value in (summary.get(when) or {}).items():
            if arm in tests and isinstance(value, (int, float)):
                tests[arm].setdefault(at, float(value))
    items: list[Series | Marks | Level] = []
    if ceiling is not None:
        items.append(Level(f"imitation ceiling {ceiling:.2f}", ceiling, "c-ceiling"))
    if summary.get("warm_start") or any(one["kind"] == "warm_start" for one in records):
        items.append(Level("RL begins", 0.0, "c-before", vertical=True))
    if train:
        items.append(Series("training batch, sampled (each update)", train, "c-sampled", "dots"))
        items.append(Series("training batch, sampled (mean of 5)", moving_mean(train), "c-sampled"))
    for arm, words, kind, shape in ARMS:
        if between[arm]:
            items.append(Marks(f"validation, {words}", sorted(between[arm].items()), f"{kind} hollow", shape))
        if tests[arm]:
            items.append(Marks(f"held out, {words}", sorted(tests[arm].items()), kind, shape))
    return items


def learning_curve(run: RunFolder, *, width: int = 880, height: int = 380, standalone: bool = False) -> Markup:
    """Draw what counts in a run, most often success, over its updates.

    Args:
        run: the folder.
        width: of the picture.
        height: of the picture.
        standalone: put the style inside, for an SVG file of its own.

    Returns:
        An `<svg>` element, or a note where nothing was logged yet.
    """
    figure = figure_of(run)
    items = curve_items(run.metrics(), run.summary or {}, ceiling_of(run), figure)
    style = asset("report.css") if standalone else ""
    return draw_chart(
        items, width=width, height=height, title=f"{figure} per update", x_label="update", y_range=(0.0, 1.0), standalone_style=style
    )


def learning_curves(runs: Sequence[RunFolder], *, levels: Mapping[str, float] | None = None, width: int = 880, height: int = 400) -> Markup:
    """Draw the training success of several seeds, thin, and their mean; the held-out figures before and after stand at the ends.

    Args:
        runs: the folders, one per seed; what counts in the first is drawn.
        levels: further levels to compare with, by name.
        width: of the picture.
        height: of the picture.

    Returns:
        An `<svg>` element that is a file of its own.
    """
    figure = figure_of(runs[0]) if runs else "success"
    curves = [moving_mean(batch_curve(run.metrics("train"), figure)) for run in runs]
    items: list[Series | Marks | Level] = []
    ceiling = next((value for value in map(ceiling_of, runs) if value is not None), None)
    if ceiling is not None:
        items.append(Level(f"imitation ceiling {ceiling:.2f}", ceiling, "c-ceiling"))
    items += [Level(f"{name} {value:.2f}", value, "c-ceiling") for name, value in (levels or {}).items()]
    items.append(Level("after the warm start", 0.0, "c-before", vertical=True))
    for run, curve in zip(runs, curves, strict=True):
        items.append(
            Series(f"seed {(run.summary or {}).get('seed', '?')}: training batches, sampled (mean of 5)", curve, "c-sampled", "thin")
        )
    at = sorted(set.intersection(*({x for x, _ in curve} for curve in curves))) if curves else []
    means = [(x, sum(dict(curve)[x] for curve in curves) / len(curves)) for x in at]
    items.append(Series("mean of the seeds", means, "c-sampled"))
    last = max((x for x, _ in means), default=0.0)
    for arm, words, kind, shape in ARMS:
        found = [((run.summary or {}).get("warm_start") or {}, (run.summary or {}).get("final") or {}) for run in runs]
        points = [(0.0, before[arm]) for before, _ in found if arm in before] + [(last, after[arm]) for _, after in found if arm in after]
        items.append(Marks(f"held-out tasks, {words}", points, kind, shape))
    what = figure.capitalize()
    title = f"{what} over updates: lines are training batches, circles held-out tasks sampled at T=1, diamonds held-out tasks greedy"
    return draw_chart(
        items, width=width, height=height, title=title, x_label="update", y_range=(0.0, 1.0), standalone_style=asset("report.css")
    )


def ceiling_of(run: RunFolder) -> float | None:
    """Return what the demonstrator of a warm start reaches, from 0 to 1; None where the run says nothing of it.

    Args:
        run: the folder.

    Returns:
        The share, or None.
    """
    for source in (run.summary or {}, run.config):
        value = source.get("imitation_ceiling")
        if isinstance(value, (int, float)):
            return float(value)
    return None


def both_widths(items: Sequence[Series | Marks | Level], title: str, x_label: str, y_range: tuple[float, float] | None) -> Markup:
    """The same chart drawn for a desk and for a telephone, so that its text has the right size on both.

    Args:
        items: lines, marks and levels.
        title: of the chart.
        x_label: of its horizontal axis.
        y_range: of its vertical axis; None takes that of the values.

    Returns:
        Two elements, of which the page's style shows one.
    """
    return join(
        tag("div", draw_chart(items, width=width, height=height, title=title, x_label=x_label, y_range=y_range), class_=class_)
        for width, height, class_ in ((1040, 400, "only-wide"), (350, 300, "only-narrow"))
    )
