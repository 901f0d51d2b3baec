"""Pictures that stand alone: the figures of an evaluation and of a comparison as SVG files with their own style, light and dark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_gym.policies.metering import money
from agent_gym.report.charts import draw_intervals, draw_table_of_intervals
from agent_gym.report.markup import Markup

__all__ = ["comparison_figure", "evaluation_figure"]

_STYLE = """
svg { background: #fff; color-scheme: light dark; }
text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: #5c6570; }
.head { fill: #1d2126; font-weight: 600; font-size: 13px; } .label { fill: #1d2126; } .value { fill: #1d2126; font-weight: 600; } .grid { stroke: #e9e7e1; }
.mark { stroke: #fff; stroke-width: 1.6; } .whisker { stroke-width: 5; opacity: .35; stroke-linecap: round; }
.mark.c-sampled { fill: #2563c9; } .whisker.c-sampled { stroke: #2563c9; } .mark.c-greedy { fill: #c2571a; } .whisker.c-greedy { stroke: #c2571a; }
.mark.c-aux { fill: #0f8a72; } .whisker.c-aux { stroke: #0f8a72; }
@media (prefers-color-scheme: dark) {
  svg { background: #1b1f23; } text { fill: #9aa3ad; } .head, .label, .value { fill: #e6e8ea; } .grid { stroke: #2f353b; } .mark { stroke: #1b1f23; }
}
"""


def evaluation_figure(result: Mapping[str, Any], *, width: int = 720) -> Markup:
    """Draw what lies between 0 and 1 of an evaluation: success, pass figures and metrics, with intervals, each arm in its colour.

    Quantities that equal one above them in every arm, or are zero in all, are left out, and so are counts; success and that of kinds of task never are.

    Args:
        result: `Evaluation.to_dict()`, or the same read from its JSON.
        width: of the picture.

    Returns:
        An `<svg>` element that is a file of its own.
    """
    arms: Mapping[str, Mapping[str, Any]] = result["arms"]
    kinds = {name: {"sampled": "c-sampled", "greedy": "c-greedy"}.get(name, "c-aux") for name in arms}
    rows: list[tuple[str, str, float, float, float]] = []
    seen: set[tuple[Any, ...]] = set()
    for quantity in dict.fromkeys(name for arm in arms.values() for name in arm["estimates"]):
        found = {name: [arm["estimates"].get(quantity, {}).get(key) for key in ("mean", "low", "high")] for name, arm in arms.items()}
        shown = {name: ends for name, ends in found.items() if all(isinstance(one, (int, float)) and 0.0 <= one <= 1.0 for one in ends)}
        means = tuple(ends[0] for ends in shown.values())
        if quantity.partition("/")[0] != "success" and (not any(means) or means in seen or quantity.startswith("n_")):
            continue  # says nothing, says it again (exact match beside success), or is a count
        seen.add(means)
        rows += [(f"{quantity}, {name}", kinds[name], ends[0], ends[1], ends[2]) for name, ends in shown.items()]
        if quantity == "success":
            passes = [(int(k), name, value) for name, arm in arms.items() for k, value in arm["pass_at"].items() if int(k) > 1]
            rows += [(f"pass@{k}, {name}", kinds[name], value, value, value) for k, name, value in sorted(passes)]
    return draw_intervals(rows, width=width, title=f"{result['env_id']}: evaluation with 95 % intervals", standalone_style=_STYLE)


def comparison_figure(result: Mapping[str, Any], *, width: int = 860) -> Markup:
    """Draw the success of each policy of a comparison with its interval, and beside it what its requests took: cost, and seconds at the median.

    Args:
        result: `Comparison.to_dict()`, or the same read from its JSON.
        width: of the picture.

    Returns:
        An `<svg>` element that is a file of its own. A policy without a result has its status in place of a mark.
    """
    lines: Sequence[Mapping[str, Any]] = result["lines"]
    paid = any(_of(line, "traffic", "cost") is not None for line in lines)
    timed = any(_of(line, "traffic", "latency_median") is not None for line in lines)
    rows = []
    for line in lines:
        name = line["policy"] if line["arm"] == line["policy"] else f"{line['policy']}, {line['arm']}"
        kind = {"sampled": "c-sampled", "greedy": "c-greedy"}.get(line["arm"], "c-aux")
        ends = [_of(line, "result", "estimates", "success", key) for key in ("mean", "low", "high")]
        cost, seconds = _of(line, "traffic", "cost"), _of(line, "traffic", "latency_median")
        beside = ["-" if cost is None else money(cost)] * paid + ["-" if seconds is None else f"{seconds:.2f}"] * timed
        done = line["status"] == "done"
        rows.append((name if done else f"{name} ({line['status']})", kind, None if None in ends else ends, [*beside]))
    tasks = f", {result['tasks']} tasks" if result.get("tasks") else ""
    return draw_table_of_intervals(
        rows,
        ["cost"] * paid + ["s/request"] * timed,
        width=width,
        heading=f"{result['env_id']}: success with 95 % intervals{tasks}",
        standalone_style=_STYLE,
    )


def _of(value: Any, *path: str) -> Any:
    """A member below members, None where one of them is missing."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
