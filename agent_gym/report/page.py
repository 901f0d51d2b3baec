"""The pages: the report of a run, and a viewer of episodes. Each is one file that needs no network, no fonts and no library.

A content security policy lets only this page's own script run (by its hash), so that not even a fault in our escaping could run what a transcript holds.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from agent_gym.report.charts import Level, Marks, Series, draw_chart, legend, moving_mean
from agent_gym.report.markup import Markup, join, json_script, tag
from agent_gym.report.transcript import pick_pair, transcript
from agent_gym.runs import RunFolder, atomic_write
from agent_gym.trajectory import Trajectory

__all__ = ["learning_curve", "learning_curves", "render_page", "render_report", "write_report", "write_viewer"]

SMALL_CHARTS: tuple[tuple[str, str], ...] = (
    ("rollout/turns_mean", "Turns per episode"),
    ("rollout/action_tokens", "Sampled tokens per episode"),
    ("reward", "Mean return"),
    ("frac_reward_zero_std", "Groups without variance"),
    ("critic/explained_variance", "What the critic explains"),
    ("critic/value_loss", "Value loss of the critic"),
    ("entropy", "Entropy"),
    ("logp_diff/mean", "Sampler against trainer"),
    ("rollout/invalid_frac", "Invalid actions"),
    ("rollout/truncated_frac", "Episodes cut by a limit"),
    ("grad_norm", "Gradient norm"),
    ("step_time", "Seconds per update"),
)
_OWN_MEANINGS = {"grad_norm": "norm of the gradient before clipping", "loss": "the loss of TRL; near 0 on policy, whatever is learned"}


@lru_cache(maxsize=8)
def _asset(name: str) -> str:
    return resources.files("agent_gym.report").joinpath(name).read_text(encoding="utf-8")


def render_page(title: str, *content: Any, data: Mapping[str, Any] | None = None) -> str:
    """Return a whole page.

    Args:
        title: of the window.
        content: of the body; plain strings are escaped.
        data: of the tooltips, by transcript.

    Returns:
        The HTML.
    """
    script = _asset("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        Markup(f"<style>{_asset('report.css')}</style>"),
    )
    body = tag("body", tag("main", *content), json_script("tokens", dict(data or {})), Markup(f"<script>{script}</script>"))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


# ---------------------------------------------------------------------------------------------------- the learning curve


def _points(records: Sequence[Mapping[str, Any]], *names: str) -> list[tuple[float, float]]:
    """Step and value of the first of these names that a record has, in order of steps; of two records of a step the later counts."""
    found: dict[float, float] = {}
    for record in records:
        for name in names:
            value = record.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                found[float(record["step"])] = float(value)
                break
    return sorted(found.items())


_ARMS = (("sampled", "sampled (T=1)", "c-sampled", "circle"), ("greedy", "greedy", "c-greedy", "diamond"))


def _figure(run: RunFolder) -> str:
    """The name of what counts in a run: "success", or one of its environment's metrics."""
    return str((run.summary or {}).get("figure") or run.config.get("figure") or "success")


def _of_batches(records: Sequence[Mapping[str, Any]], figure: str) -> list[tuple[float, float]]:
    """What counts, of the training batches."""
    names = ("rollout/success", "success") if figure == "success" else (f"metrics/{figure}",)
    return _points([one for one in records if one["kind"] == "train"], *names)


def _curve_items(
    records: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], ceiling: float | None, figure: str
) -> list[Series | Marks | Level]:
    train = _of_batches(records, figure)
    evals = [one for one in records if one["kind"] == "eval"]
    tests = {arm: dict(_points(evals, arm)) for arm, *_ in _ARMS}
    between = {arm: dict(_points(evals, f"validation/{arm}")) for arm, *_ in _ARMS}
    between["sampled"] |= dict(_points(evals, "eval_rollout/success" if figure == "success" else f"eval_metrics/{figure}"))
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
    for arm, words, kind, shape in _ARMS:
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
    figure = _figure(run)
    items = _curve_items(run.metrics(), run.summary or {}, _ceiling(run), figure)
    style = _asset("report.css") if standalone else ""
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
    figure = _figure(runs[0]) if runs else "success"
    curves = [moving_mean(_of_batches(run.metrics("train"), figure)) for run in runs]
    items: list[Series | Marks | Level] = []
    ceiling = next((value for value in map(_ceiling, runs) if value is not None), None)
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
    for arm, words, kind, shape in _ARMS:
        found = [((run.summary or {}).get("warm_start") or {}, (run.summary or {}).get("final") or {}) for run in runs]
        points = [(0.0, before[arm]) for before, _ in found if arm in before] + [(last, after[arm]) for _, after in found if arm in after]
        items.append(Marks(f"held-out tasks, {words}", points, kind, shape))
    what = figure.capitalize()
    title = f"{what} over updates: lines are training batches, circles held-out tasks sampled at T=1, diamonds held-out tasks greedy"
    return draw_chart(
        items, width=width, height=height, title=title, x_label="update", y_range=(0.0, 1.0), standalone_style=_asset("report.css")
    )


def _ceiling(run: RunFolder) -> float | None:
    for source in (run.summary or {}, run.config):
        value = source.get("imitation_ceiling")
        if isinstance(value, (int, float)):
            return float(value)
    return None


def _both_widths(items: Sequence[Series | Marks | Level], title: str, x_label: str, y_range: tuple[float, float] | None) -> Markup:
    """The same chart drawn for a desk and for a telephone, so that its text has the right size on both."""
    return join(
        tag("div", draw_chart(items, width=width, height=height, title=title, x_label=x_label, y_range=y_range), class_=class_)
        for width, height, class_ in ((1040, 400, "only-wide"), (350, 300, "only-narrow"))
    )


# ---------------------------------------------------------------------------------------------------- the report of a run


def _share(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, (int, float)) else "-"


def _tile(name: str, figure: Any, more: str, class_: str = "") -> Markup:
    return tag(
        "div",
        tag("span", name, class_="name"),
        tag("span", figure, class_="figure"),
        tag("span", more, class_="more"),
        class_=f"tile {class_}",
    )


def _tiles(summary: Mapping[str, Any], records: Sequence[Mapping[str, Any]], figure_name: str) -> Markup:
    before, after = summary.get("warm_start") or {}, summary.get("final") or {}
    tasks = summary.get("tasks")
    held_out = f"on {tasks} held-out tasks" if tasks else "held-out tasks"
    tiles = []
    for arm, words in (("sampled", f"{figure_name.capitalize()}, sampled (T=1)"), ("greedy", f"{figure_name.capitalize()}, greedy")):
        figure: Any = _share(after.get(arm))
        if arm in before:
            figure = join([tag("span", f"{_share(before[arm])} \u2192 ", class_="from"), _share(after.get(arm))])
        tiles.append(_tile(words, figure, held_out, f"c-{arm}"))
    train = [one for one in records if one["kind"] == "train"]
    episodes = sum(one.get("rollout/episodes") or 0 for one in train)
    tiles.append(
        _tile("Updates", str(max((one["step"] for one in train), default=0)), f"{episodes:,.0f} episodes" if episodes else "so far")
    )
    seconds = summary.get("seconds")
    if isinstance(seconds, (int, float)):
        tiles.append(_tile("Wall time", f"{seconds / 60:.1f} min", "warm start, training and evaluation"))
    else:
        tiles.append(_tile("Seed", str(summary.get("seed", "-")), "of the run"))
    return tag("div", *tiles, class_="tiles")


def _curve_section(run: RunFolder, records: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Markup:
    ceiling, figure = _ceiling(run), _figure(run)
    items = _curve_items(records, summary, ceiling, figure)
    if not any(not isinstance(item, Level) for item in items):
        return tag("section", tag("h2", "Learning curve"), tag("p", "Nothing was logged yet.", class_="empty"))
    words = f"{figure.capitalize()} per update. Sampled and greedy are two quantities: greedy takes the likeliest token and can jump on a single preference."
    if ceiling is not None:
        words += " The imitation ceiling is what the demonstrator of the warm start reaches itself; above it, the agent has learned by reinforcement."
    return tag(
        "section",
        tag("h2", "Learning curve"),
        tag("p", words, class_="sub"),
        tag(
            "div",
            legend([item for item in items if not isinstance(item, Level)]),
            _both_widths(items, f"{figure} per update", "update", (0.0, 1.0)),
            class_="card",
        ),
    )


def _meaning(name: str) -> str:
    from agent_gym.trainers.metrics import describe

    return _OWN_MEANINGS.get(name) or describe(name) or ""


def _small_charts(records: Sequence[Mapping[str, Any]]) -> Markup | None:
    train = [one for one in records if one["kind"] == "train"]
    figures = []
    for name, title in SMALL_CHARTS:
        points = _points(train, name)
        if len(points) < 2 or all(y == points[0][1] for _, y in points):
            continue
        items = [Series(title, points, "c-aux", "dots"), Series(f"{title} (mean of 5)", moving_mean(points), "c-aux")]
        chart = draw_chart(items, width=330, height=170, title=title)
        figures.append(tag("figure", tag("h3", title), tag("figcaption", _meaning(name)), chart, class_="card"))
    warm = _points([one for one in records if one["kind"] == "warm_start"], "loss")
    if len(warm) > 1:
        chart = draw_chart([Series("loss", warm, "c-aux", "line")], width=330, height=170, title="loss of the warm start")
        figures.append(
            tag("figure", tag("h3", "Warm start: loss"), tag("figcaption", "imitation of the demonstrator, per step"), chart, class_="card")
        )
    if not figures:
        return None
    return tag(
        "section",
        tag("h2", "How it went"),
        tag("p", "Per update, on the training batches.", class_="sub"),
        tag("div", *figures, class_="smalls"),
    )


_KEY = tag(
    "ul",
    tag("li", tag("span", "action token", class_="a s0"), " sampled by the model, trained; the deeper, the less likely it was"),
    tag("li", tag("span", "environment token", class_="e"), " written by the environment, weight exactly 0"),
    tag("li", "Hover or tap a token for its id, log-probability and advantage."),
    class_="key",
)  # fmt: skip


def _transcripts(run: RunFolder, tokenizer: Any) -> tuple[Markup | None, dict[str, Any]]:
    before = run.load_trajectories("warm_start") or run.load_trajectories("before")
    after = run.load_trajectories("final")
    pair = pick_pair(before, after)
    if pair is None:
        if not after:
            return None, {}
        element, data = transcript(after[0], _matching(tokenizer, after[0]), "final", heading=tag("h3", "After training"))
        return tag("section", tag("h2", "An episode"), _KEY, tag("div", element, class_="single")), data
    parts, data = [], {}
    for episode, key, words in ((pair[0], "before", "Before reinforcement learning"), (pair[1], "after", "After")):
        element, more = transcript(episode, _matching(tokenizer, episode), key, heading=tag("h3", words))
        parts.append(element)
        data.update(more)
    task = pair[1].task_id or (f"seed {pair[1].seed}" if pair[1].seed is not None else "the same")
    how = "greedy" if pair[1].sampling.get("temperature") == 0 else "sampled"
    words = f"One held-out task ({task}), {how} before and after. The first on which the outcome changed is shown, if there is one."
    return tag("section", tag("h2", "What changed"), tag("p", words, class_="sub"), _KEY, tag("div", *parts, class_="pair")), data


def _matching(tokenizer: Any, episode: Trajectory) -> Any:
    """The tokenizer, if the episode's ids are its own; else None, and ids are shown as numbers."""
    from agent_gym.chat import tokenizer_fingerprint

    wanted = episode.tokenizer_fingerprint
    return tokenizer if tokenizer is not None and (not wanted or tokenizer_fingerprint(tokenizer) == wanted) else None


def _metric_table(records: Sequence[Mapping[str, Any]]) -> Markup | None:
    train = [one for one in records if one["kind"] == "train"]
    if not train:
        return None
    names = sorted(
        {name for one in train for name, value in one.items() if isinstance(value, (int, float)) and name not in ("step", "kind")}
    )
    rows = []
    for name in names:
        values = [value for _, value in _points(train, name)]
        rows.append(
            tag(
                "tr",
                tag("td", tag("code", name), class_="name"),
                *[tag("td", f"{value:.4g}", class_="number") for value in (values[0], values[-1], min(values), max(values))],
                tag("td", _meaning(name), class_="about"),
            )
        )
    head = tag(
        "tr",
        tag("th", "metric"),
        *[tag("th", word, class_="number") for word in ("first", "last", "least", "most")],
        tag("th", "meaning", class_="about"),
    )
    return tag("details", tag("summary", f"All {len(names)} metrics"), tag("div", tag("table", head, *rows), class_="scroll"))


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names."""
    if isinstance(value, Mapping) and value:
        return [line for key, item in value.items() for line in _flat(item, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, "" if value is None else str(value))]


def _key_table(title: str, values: Mapping[str, Any], opened: bool = False) -> Markup:
    rows = [tag("tr", tag("td", tag("code", name), class_="name"), tag("td", value)) for name, value in _flat(values) if name]
    return tag("details", tag("summary", title), tag("div", tag("table", *rows), class_="scroll"), open=opened)


def render_report(run: RunFolder, tokenizer: Any = None) -> str:
    """Return the report of a run as HTML.

    Args:
        run: the folder, which may still be growing.
        tokenizer: of its model; None finds it, and where there is none, ids are shown.

    Returns:
        A self-contained page.
    """
    config, summary, records = run.config, run.summary or {}, run.metrics()
    tokenizer = tokenizer if tokenizer is not None else _find_tokenizer(run)
    env_id = str(config.get("env_id") or config.get("env") or "agent-gym run")
    model = config.get("model") or ("a tiny model, made for this run" if config.get("kind") == "embedded" else "")
    lead = [str(model) if isinstance(model, str) else "", f"seed {summary['seed']}" if "seed" in summary else "", run.path.resolve().name]
    shown, data = _transcripts(run, tokenizer)
    content = [
        tag("header", tag("h1", f"{env_id}: training report"), tag("p", " \u00b7 ".join(part for part in lead if part), class_="lead")),
        _tiles(summary, records, _figure(run)),
        _curve_section(run, records, summary),
        shown,
        _small_charts(records),
        tag(
            "section",
            tag("h2", "Record"),
            tag("p", "What is needed to repeat the run.", class_="sub"),
            _metric_table(records),
            _key_table("Settings", config),
            _key_table("Results", summary) if summary else None,
            _key_table("Versions", run.versions),
        ),
        tag("footer", "Written by agent-gym. This page is one file: it loads nothing and sends nothing."),
    ]
    return render_page(f"{env_id}: training report", *content, data=data)


def _find_tokenizer(run: RunFolder) -> Any:
    """The tokenizer saved with the run's weights, or None."""
    from agent_gym.chat import load_tokenizer

    for folder in (run.best_model(), run.checkpoints / "warm_start", run.checkpoints / "final"):
        if folder is not None and ((folder / "tokenizer.json").is_file() or (folder / "tokenizer_config.json").is_file()):
            try:
                return load_tokenizer(str(folder))
            except ValueError:
                continue
    return load_tokenizer(None)


def write_report(run_dir: str | Path | RunFolder, tokenizer: Any = None) -> Path:
    """Write report.html into a run folder.

    Args:
        run_dir: the folder, or the opened run.
        tokenizer: of its model; None finds it.

    Returns:
        The file.

    Raises:
        agent_gym.runs.RunFolderError: if there is no run, or the disk refuses.
    """
    run = run_dir if isinstance(run_dir, RunFolder) else RunFolder.open(run_dir)
    return atomic_write(run.report_path, render_report(run, tokenizer))


def write_viewer(
    path: str | Path, trajectories: Sequence[Trajectory], tokenizer: Any = None, *, title: str = "Episodes", limit: int = 50
) -> Path:
    """Write a page that shows episodes token by token.

    Args:
        path: of the file.
        trajectories: the episodes.
        tokenizer: whose ids these are; None shows ids, or the project's own tokenizer where the fingerprint says so.
        title: of the page.
        limit: at most so many are shown; the page says how many there are.

    Returns:
        The file.
    """
    from agent_gym.chat import load_tokenizer

    shown, data = [], {}
    own = load_tokenizer(tokenizer)
    for number, episode in enumerate(trajectories[:limit]):
        words = f"{number + 1}. {episode.task_id or episode.env_id}" + (f", seed {episode.seed}" if episode.seed is not None else "")
        element, more = transcript(episode, _matching(own, episode), f"t{number}", heading=tag("h3", words))
        shown.append(element)
        data.update(more)
    solved = sum(episode.is_success for episode in trajectories)
    lead = f"{len(trajectories)} episodes, {solved} solved" + (f"; the first {limit} are shown" if len(trajectories) > limit else "")
    content = [tag("header", tag("h1", title), tag("p", lead, class_="lead")), _KEY, tag("div", *shown, class_="single")]
    return atomic_write(path, render_page(title, *content, data=data))
