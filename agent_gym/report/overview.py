"""The overview of one run, or of two beside each other: figures, learning curve, rewards by part, lengths, faults, and what is needed to repeat them.

It is plain markup without any script, so that it is there at the first paint; texts from outside are escaped where they enter (`markup`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_gym.report.charts import Level, Marks, Series, draw_chart, legend, moving_mean
from agent_gym.report.curves import ARMS, batch_curve, both_widths, ceiling_of, curve_items, figure_of, points_of
from agent_gym.report.markup import Markup, join, tag
from agent_gym.runs import RunFolder

__all__ = ["LETTERS", "render_overview"]

LETTERS = "AB"
"""What the runs of a page are called, in order."""
_COLOURS = ("c-sampled", "c-greedy")
_SHOWN_FAULTS = 20

_HOW_IT_WENT: tuple[tuple[str, str], ...] = (
    ("reward", "Mean return"),
    ("frac_reward_zero_std", "Groups without variance"),
    ("critic/explained_variance", "What the critic explains"),
    ("critic/value_loss", "Value loss of the critic"),
    ("entropy", "Entropy"),
    ("logp_diff/mean", "Sampler against trainer"),
    ("rollout/invalid_frac", "Invalid actions"),
    ("grad_norm", "Gradient norm"),
    ("step_time", "Seconds per update"),
)
_LENGTHS: tuple[tuple[str, str], ...] = (
    ("rollout/turns_mean", "Turns per episode"),
    ("rollout/action_tokens", "Sampled tokens per episode"),
    ("rollout/context_len_max", "Longest context"),
    ("rollout/truncated_frac", "Episodes cut by a limit"),
    ("rollout/cutoff_frac", "Actions cut off"),
)
_OWN_MEANINGS = {"grad_norm": "norm of the gradient before clipping", "loss": "the loss of TRL; near 0 on policy, whatever is learned"}
Records = Sequence[Mapping[str, Any]]


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
    ceiling, figure = ceiling_of(run), figure_of(run)
    items = curve_items(records, summary, ceiling, figure)
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
            both_widths(items, f"{figure} per update", "update", (0.0, 1.0)),
            class_="card",
        ),
    )


def _meaning(name: str) -> str:
    from agent_gym.trainers.metrics import describe

    return _OWN_MEANINGS.get(name) or describe(name) or ""


def _families(runs: Sequence[Records], *prefixes: str) -> list[tuple[str, str]]:
    """Names of families of metrics with titles, in order."""
    names = sorted({name for records in runs for one in records if one["kind"] == "train" for name in one if name.startswith(prefixes)})
    return [(name, name.partition("/")[2].replace("_", " ")) for name in names]


def _chart(runs: Sequence[Records], name: str, title: str, *, dull: bool, kind: str = "train") -> Markup | None:
    """One metric of all runs; None where there is nothing of it, or nothing but one value and `dull` says that such a chart tells nothing."""
    curves = [points_of([one for one in records if one["kind"] == kind], name) for records in runs]
    values = [y for curve in curves for _, y in curve]
    if not values or (dull and len(set(values)) == 1):
        return None
    items: list[Series | Marks | Level] = []
    latest = []
    for letter, colour, curve in zip(LETTERS, _COLOURS, curves, strict=False):
        shown, prefix = ("c-aux", "") if len(runs) == 1 else (colour, f"{letter}: ")
        if curve:
            items += [Series(f"{prefix}{title}", curve, shown, "dots"), Series(f"{prefix}{title} (mean of 5)", moving_mean(curve), shown)]
            latest.append(tag("span", f"{prefix}{curve[-1][1]:.4g}", class_=shown))
    return tag(
        "figure",
        tag("h3", title, tag("span", join(latest), class_="latest")),
        tag("figcaption", _meaning(name)),
        draw_chart(items, width=330, height=170, title=title),
        class_="card",
        data_metric=name,
    )


def _charts(title: str, lead: str, figures: Sequence[Markup | None], empty: str = "", *more: Markup | None) -> Markup | None:
    found = [one for one in figures if one is not None]
    if not found and not empty:
        return None
    body = tag("div", *found, class_="smalls") if found else tag("p", empty, class_="empty")
    return tag(
        "section", tag("h2", title), tag("p", lead, class_="sub") if found else None, body, *more, id=title.lower().replace(" ", "-")
    )


def _faults(runs: Sequence[Records]) -> Markup | None:
    names = [("rollout/faults", "Episodes lost"), ("rollout/fault_retries", "Episodes begun again"), *_families(runs, "faults/")]
    figures = [_chart(runs, name, title, dull=True) for name, title in names]
    rows = []
    for letter, records in zip(LETTERS, runs, strict=False):
        met = [one for one in records if one["kind"] == "fault"]
        for one in met[-_SHOWN_FAULTS:]:
            which = [tag("td", letter)] if len(runs) > 1 else []
            rows.append(
                tag(
                    "tr", *which, tag("td", str(one["step"]), class_="number"), tag("td", one.get("fault")), tag("td", str(one.get("what")))
                )
            )
    head = tag("tr", *[tag("th", word) for word in (("run", "update", "fault", "what") if len(runs) > 1 else ("update", "fault", "what"))])
    table = tag("div", tag("table", head, *rows), class_="scroll card") if rows else None
    empty = "" if rows else "No fault was met: no world broke, and no engine failed."
    if not [one for one in figures if one is not None] and rows:
        return tag("section", tag("h2", "Faults"), table, id="faults")
    return _charts("Faults", "What broke on the side of the world, per update.", figures, empty, table)


def _two_curves(runs: Sequence[RunFolder], everything: Sequence[Records]) -> Markup:
    """The curves of two runs in one chart: colours tell the runs, shapes how it was measured."""
    figure = figure_of(runs[0])
    items: list[Series | Marks | Level] = []
    for letter, colour, run, records in zip(LETTERS, _COLOURS, runs, everything, strict=False):
        batches = batch_curve(records, figure_of(run))
        if batches:
            items.append(Series(f"{letter}: training batch, sampled (each update)", batches, colour, "dots"))
            items.append(Series(f"{letter}: training batch, sampled (mean of 5)", moving_mean(batches), colour))
        for item in curve_items(records, run.summary or {}, None, figure_of(run)):
            if isinstance(item, Marks):
                items.append(
                    Marks(f"{letter}: {item.label}", item.points, colour + (" hollow" if "hollow" in item.kind else ""), item.shape)
                )
    if not items:
        return tag("section", tag("h2", "Learning curve"), tag("p", "Nothing was logged yet.", class_="empty"))
    chart = both_widths(items, f"{figure} per update", "update", (0.0, 1.0))
    return tag(
        "section",
        tag("h2", "Learning curve"),
        tag("p", f"{figure.capitalize()} per update. Colours tell the runs; circles are sampled (T=1), diamonds greedy.", class_="sub"),
        tag("div", legend([item for item in items if not isinstance(item, Level)]), chart, class_="card"),
    )


def _two_tables(runs: Sequence[RunFolder], everything: Sequence[Records]) -> Markup:
    """The figures of two runs beside each other."""
    rows: list[tuple[Any, list[str]]] = []
    for name, words in (("warm_start", "before"), ("final", "after")):
        for arm, arm_words, *_ in ARMS:
            rows.append((f"{words} training, {arm_words}", [_share(((run.summary or {}).get(name) or {}).get(arm)) for run in runs]))
    train = [[one for one in records if one["kind"] == "train"] for records in everything]
    rows.append(("updates", [str(max((one["step"] for one in records), default=0)) for records in train]))
    rows.append(("episodes", [f"{sum(one.get('rollout/episodes') or 0 for one in records):,.0f}" for records in train]))
    seconds = [(run.summary or {}).get("seconds") for run in runs]
    rows.append(("wall time", [f"{one / 60:.1f} min" if isinstance(one, (int, float)) else "-" for one in seconds]))
    table = tag("table", _two_heads("what counts: " + figure_of(runs[0])), *_two_rows(rows), class_="figures")
    differing = _differences(runs)
    apart = tag("table", _two_heads("setting"), *_two_rows(differing), class_="figures") if differing else None
    more = (
        tag("details", tag("summary", f"{len(differing)} settings differ"), tag("div", apart, class_="scroll"), open=len(differing) <= 8)
        if differing
        else None
    )
    return tag("section", tag("div", table, class_="scroll card"), more, class_="two")


def _two_heads(words: str) -> Markup:
    letters = [tag("th", tag("span", letter, class_=f"run {colour}")) for letter, colour in zip(LETTERS, _COLOURS, strict=True)]
    return tag("tr", tag("th", words), *letters)


def _two_rows(rows: Sequence[tuple[Any, list[str]]]) -> list[Markup]:
    return [tag("tr", tag("td", name), *[tag("td", value, class_="value") for value in values]) for name, values in rows]


def _differences(runs: Sequence[RunFolder]) -> list[tuple[Any, list[str]]]:
    """Settings that two runs have apart."""
    settings = [dict(_flat(run.config)) for run in runs]
    values = {name: [one.get(name, "") for one in settings] for name in {**settings[0], **settings[1]}}
    nothing = ("", "{}", "[]")  # a setting that one of two versions does not know yet is no difference
    apart = {name: pair for name, pair in values.items() if pair[0] != pair[1] and not all(one in nothing for one in pair)}
    return [(tag("code", name), [one or "-" for one in pair]) for name, pair in apart.items()]


def _metric_table(records: Records, of: str) -> Markup | None:
    train = [one for one in records if one["kind"] == "train"]
    if not train:
        return None
    names = sorted(
        {name for one in train for name, value in one.items() if isinstance(value, (int, float)) and name not in ("step", "kind")}
    )
    rows = []
    for name in names:
        values = [value for _, value in points_of(train, name)]
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
    return tag("details", tag("summary", f"All {len(names)} metrics{of}"), tag("div", tag("table", head, *rows), class_="scroll"))


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names."""
    if isinstance(value, Mapping) and value:
        return [line for key, item in value.items() for line in _flat(item, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, "" if value is None else str(value))]


def _key_table(title: str, values: Mapping[str, Any], opened: bool = False) -> Markup:
    rows = [tag("tr", tag("td", tag("code", name), class_="name"), tag("td", value)) for name, value in _flat(values) if name]
    return tag("details", tag("summary", title), tag("div", tag("table", *rows), class_="scroll"), open=opened)


def render_overview(runs: Sequence[RunFolder], changed: Markup | None = None) -> Markup:
    """Return the overview.

    Args:
        runs: one run, or two; they may still be growing.
        changed: shown behind the curve of a single run: the place of the two episodes that show what training changed.

    Returns:
        The markup.
    """
    everything: list[Records] = [run.metrics() for run in runs]
    one = runs[0]
    parts: list[Markup | None] = []
    if len(runs) == 1:
        parts += [_tiles(one.summary or {}, everything[0], figure_of(one)), _curve_section(one, everything[0], one.summary or {}), changed]
    else:
        parts += [_two_tables(runs, everything), _two_curves(runs, everything)]
    rewards = [("reward", "Mean return"), *_families(everything, "reward_parts/")]
    beside = _families(everything, "metrics/")
    parts.append(
        _charts(
            "Rewards by part",
            "Per update, on the training batches: the return, what it is made of, and what is measured beside it.",
            [*(_chart(everything, *names, dull=False) for names in rewards), *(_chart(everything, *names, dull=True) for names in beside)],
            "No reward was logged yet.",
        )
    )
    parts.append(
        _charts(
            "Lengths",
            "Per update, on the training batches.",
            [_chart(everything, *names, dull=False) for names in _LENGTHS],
            "No length was logged yet.",
        )
    )
    parts.append(_faults(everything))
    went = [_chart(everything, *names, dull=True) for names in _HOW_IT_WENT if names[0] != "reward"]
    parts.append(
        _charts(
            "How it went",
            "Per update, on the training batches.",
            [*went, _chart(everything, "loss", "Warm start: loss", dull=True, kind="warm_start")],
        )
    )
    record: list[Markup | None] = []
    for letter, run, records in zip(LETTERS, runs, everything, strict=False):
        name = f" of {letter}" if len(runs) > 1 else ""
        summary = run.summary or {}
        record += [
            _metric_table(records, name),
            _key_table(f"Settings{name}", run.config),
            _key_table(f"Results{name}", summary) if summary else None,
            _key_table(f"Versions{name}", run.versions),
        ]
    parts.append(tag("section", tag("h2", "Record"), tag("p", "What is needed to repeat the run.", class_="sub"), *record))
    return join(parts)
