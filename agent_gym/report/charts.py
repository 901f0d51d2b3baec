"""Charts as inline SVG, written by ourselves: a report needs no plotting library and no network, and follows the reader's dark mode.

A chart is drawn from `Series`, `Marks` and `Level` in data coordinates. Colours are classes of the style sheet (`c-sampled`, `c-greedy`, ...), never
values, so one drawing serves light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent_gym.report.markup import Markup, escape, join, tag

__all__ = ["Level", "Marks", "Series", "draw_chart", "draw_intervals", "draw_table_of_intervals", "moving_mean", "nice_ticks"]

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """A line.

    Attributes:
        label: for the legend and the tooltip.
        points: in order of x.
        kind: class of its colour.
        style: "line", "thin", or "dots" (small points, joined faintly).
    """

    label: str
    points: Sequence[Point]
    kind: str
    style: str = "line"


@dataclass(frozen=True, slots=True)
class Marks:
    """Single measurements, perhaps with intervals.

    Attributes:
        label: for the legend and the tooltip.
        points: x and y.
        kind: class of its colour.
        shape: "circle" or "diamond".
        intervals: lower and upper end of each point, or empty.
    """

    label: str
    points: Sequence[Point]
    kind: str
    shape: str = "circle"
    intervals: Sequence[tuple[float, float] | None] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """A straight line across: a bound or a moment.

    Attributes:
        label: written beside it.
        value: y of a horizontal line, x of a vertical one.
        kind: class of its colour.
        vertical: which of the two.
    """

    label: str
    value: float
    kind: str
    vertical: bool = False


def moving_mean(points: Sequence[Point], window: int = 5) -> list[Point]:
    """Return the mean of each point and those before it.

    Args:
        points: in order of x.
        window: how many at most.

    Returns:
        As many points.
    """
    out = []
    for index, (x, _) in enumerate(points):
        part = [y for _, y in points[max(0, index + 1 - window) : index + 1]]
        out.append((x, sum(part) / len(part)))
    return out


def nice_ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers that cover a range.

    Args:
        low: smallest value.
        high: largest value.
        most: about how many.

    Returns:
        Increasing multiples of 1, 2 or 5 times a power of ten; at least two.
    """
    size = max(abs(low), abs(high))
    if high - low <= 1e-9 * size or size < 1e-100:  # a constant, as far as anyone can see
        low, high = low - 0.5 * (size if size > 1e-100 else 1.0), high + 0.5 * (size if size > 1e-100 else 1.0)
    raw = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((factor * power for factor in (1.0, 2.0, 5.0) if factor * power >= raw * 0.999), 10.0 * power)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def _number(value: float) -> str:
    """A tick or tooltip value in few characters."""
    if value == 0 or 0.001 <= abs(value) < 1e5:
        return f"{value:.4g}"
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e")


class _Frame:
    """Data to picture coordinates."""

    def __init__(
        self, width: float, height: float, margins: tuple[float, float, float, float], xs: Sequence[float], ys: Sequence[float]
    ) -> None:
        self.width, self.height = width, height
        self.top, self.right, self.bottom, self.left = margins
        self.x0, self.x1, self.y0, self.y1 = xs[0], xs[-1], ys[0], ys[-1]

    def x(self, value: float) -> float:
        return self.left + (value - self.x0) / (self.x1 - self.x0) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        return self.height - self.bottom - (value - self.y0) / (self.y1 - self.y0) * (self.height - self.top - self.bottom)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=class_)


def _text(x: float, y: float, text: str, anchor: str = "start", class_: str = "tick") -> Markup:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def _shape(x: float, y: float, shape: str, size: float, class_: str, title: str) -> Markup:
    tooltip = tag("title", title)
    if shape == "diamond":
        path = f"M{x:.1f} {y - size * 1.3:.1f}L{x + size * 1.3:.1f} {y:.1f}L{x:.1f} {y + size * 1.3:.1f}L{x - size * 1.3:.1f} {y:.1f}Z"
        return tag("path", tooltip, d=path, class_=class_)
    return tag("circle", tooltip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{size:.1f}", class_=class_)


def _finite(points: Sequence[Point]) -> list[Point]:
    return [(x, y) for x, y in points if y is not None and math.isfinite(x) and math.isfinite(y)]


def draw_chart(
    items: Sequence[Series | Marks | Level],
    *,
    width: int,
    height: int,
    title: str,
    x_label: str = "",
    y_range: tuple[float, float] | None = None,
    standalone_style: str = "",
) -> Markup:
    """Draw lines, marks and levels over common axes.

    Args:
        items: drawn in order, later ones above.
        width: of the picture, in its own units; text has 12 of them, so draw at about the size at which it will be shown.
        height: of the picture.
        title: for screen readers.
        x_label: below the axis.
        y_range: fixed ends; None takes those of the data.
        standalone_style: a style sheet to put inside, for a file of its own.

    Returns:
        An `<svg>` element; a short note where there is nothing finite to draw.
    """
    points = [point for item in items if not isinstance(item, Level) for point in _finite(item.points)]
    if not points:
        return tag("p", "No data yet.", class_="empty")
    levels = [item for item in items if isinstance(item, Level)]
    xs = [x for x, _ in points] + [item.value for item in levels if item.vertical]
    ys = [y for _, y in points] + [item.value for item in levels if not item.vertical]
    x_ticks = nice_ticks(min(xs), max(xs), max(3, width // 70))
    x_low, x_high = min(xs), max(xs)
    if x_high == x_low:
        x_low, x_high = x_low - 1.0, x_high + 1.0
    y_ticks = nice_ticks(*(y_range or (min(ys), max(ys))), max(3, height // 48))
    pad = 0.015 * (x_high - x_low)
    label_width = max(len(_number(tick)) for tick in y_ticks) * 6.6 + 12
    frame = _Frame(width, height, (12, 12, 40 if x_label else 24, label_width), (x_low - pad, x_high + pad), y_ticks)
    parts: list[Markup] = [tag("title", title)]
    if standalone_style:
        parts.insert(0, Markup(f"<style>{standalone_style}</style>"))
    for tick in y_ticks:
        parts.append(_line(frame.left, frame.y(tick), width - frame.right, frame.y(tick), "grid" if tick != y_ticks[0] else "axis"))
        parts.append(_text(frame.left - 7, frame.y(tick) + 4, _number(tick), "end"))
    whole = all(float(x).is_integer() for x in xs)  # updates: there is no 1.4th
    for tick in x_ticks:
        if frame.x0 <= tick <= frame.x1 and not (whole and not float(tick).is_integer()):
            parts.append(_text(frame.x(tick), height - frame.bottom + 17, _number(tick), "middle"))
            parts.append(_line(frame.x(tick), height - frame.bottom, frame.x(tick), height - frame.bottom + 4, "axis"))
    if x_label:
        parts.append(_text((frame.left + width - frame.right) / 2, height - 5, x_label, "middle", "label"))
    for item in items:
        parts.extend(_draw_level(item, frame) if isinstance(item, Level) else _draw_points(item, frame))
    return tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", class_="chart", xmlns="http://www.w3.org/2000/svg")


def _draw_level(item: Level, frame: _Frame) -> list[Markup]:
    if item.vertical:
        x = frame.x(item.value)
        return [
            _line(x, frame.top, x, frame.height - frame.bottom, f"level {item.kind}"),
            _text(x + 6, frame.top + 11, item.label, "start", f"note {item.kind}"),
        ]
    y = frame.y(item.value)
    return [
        _line(frame.left, y, frame.width - frame.right, y, f"level {item.kind}"),
        _text(frame.width - frame.right - 3, y - 6, item.label, "end", f"note {item.kind}"),
    ]


def _draw_points(item: Series | Marks, frame: _Frame) -> list[Markup]:
    points = _finite(item.points)
    if not points:
        return []
    parts: list[Markup] = []
    places = [(frame.x(x), frame.y(y)) for x, y in points]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    names = [f"{item.label}, {_number(x)}: {_number(y)}" for x, y in points]
    if isinstance(item, Series):
        if len(points) > 1:
            parts.append(tag("path", d=path, class_=f"line {'faint' if item.style == 'dots' else item.style} {item.kind}"))
        if item.style != "thin" and (item.style == "dots" or len(points) == 1):
            parts += [_shape(x, y, "circle", 2.2, f"dot {item.kind}", name) for (x, y), name in zip(places, names, strict=True)]
        return parts
    if item.intervals:
        for (x, _), ends in zip(item.points, item.intervals, strict=True):
            if ends is not None:
                parts.append(_line(frame.x(x), frame.y(ends[0]), frame.x(x), frame.y(ends[1]), f"whisker {item.kind}"))
    parts += [_shape(x, y, item.shape, 4.4, f"mark {item.kind}", name) for (x, y), name in zip(places, names, strict=True)]
    return parts


def draw_intervals(
    rows: Sequence[tuple[str, str, float, float, float]], *, width: int, title: str, standalone_style: str = "", row_height: int = 30
) -> Markup:
    """Draw estimates between 0 and 1 with their intervals, one below the other.

    Args:
        rows: label, class of the colour, mean, lower and upper end.
        width: of the picture.
        title: for screen readers.
        standalone_style: a style sheet to put inside, for a file of its own.
        row_height: of each row.

    Returns:
        An `<svg>` element.
    """
    label_width = min(width * 0.45, max((len(row[0]) for row in rows), default=4) * 6.8 + 14)
    height = 30 + row_height * len(rows)
    frame = _Frame(width, height, (8, 58, 24, label_width), (0.0, 1.0), (0.0, 1.0))
    parts: list[Markup] = [tag("title", title)]
    if standalone_style:
        parts.insert(0, Markup(f"<style>{standalone_style}</style>"))
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_line(frame.x(tick), 8, frame.x(tick), height - 22, "grid"))
        parts.append(_text(frame.x(tick), height - 6, f"{tick:g}", "middle"))
    for index, (label, kind, mean, low, high) in enumerate(rows):
        y = 8 + row_height * (index + 0.5)
        parts.append(_text(label_width - 10, y + 4, label, "end", "label"))
        parts.append(_line(frame.x(max(0.0, low)), y, frame.x(min(1.0, high)), y, f"whisker wide {kind}"))
        parts.append(_shape(frame.x(mean), y, "circle", 5, f"mark {kind}", f"{label}: {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}"))
        parts.append(_text(width - 8, y + 4, f"{mean:.3f}", "end", "value"))
    return tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", class_="chart", xmlns="http://www.w3.org/2000/svg")


def draw_table_of_intervals(
    rows: Sequence[tuple[str, str, Sequence[float] | None, Sequence[str]]],
    columns: Sequence[str],
    *,
    width: int,
    heading: str,
    standalone_style: str = "",
    row_height: int = 30,
) -> Markup:
    """Draw estimates between 0 and 1 with their intervals, one below the other, and columns of text to the right of them.

    Args:
        rows: label, class of the colour, (mean, lower, upper end) or None where there is no estimate, and one text per column.
        columns: their titles.
        width: of the picture.
        heading: above it, and for screen readers.
        standalone_style: a style sheet to put inside, for a file of its own.
        row_height: of each row.

    Returns:
        An `<svg>` element.
    """
    label_width = min(width * 0.4, max((len(row[0]) for row in rows), default=4) * 6.8 + 22)
    top, column = 54, 76
    right = 62 + column * len(columns)
    height = top + row_height * len(rows) + 28
    frame = _Frame(width, height, (top, right, 28, label_width), (0.0, 1.0), (0.0, 1.0))
    places = [width - right + 62 + column * (number + 1) - 10 for number in range(len(columns))]
    parts: list[Markup] = [tag("title", heading), _text(12, 22, heading, "start", "head")]
    if standalone_style:
        parts.insert(0, Markup(f"<style>{standalone_style}</style>"))
    parts.append(_text(width - right + 54, top - 10, "success", "end"))
    parts += [_text(x, top - 10, title, "end") for x, title in zip(places, columns, strict=True)]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(_line(frame.x(tick), top, frame.x(tick), height - 24, "grid"))
        parts.append(_text(frame.x(tick), height - 8, f"{tick:g}", "middle"))
    for index, (label, kind, ends, beside) in enumerate(rows):
        y = top + row_height * (index + 0.5)
        most = int((label_width - 22) / 6.2)
        parts.append(_text(label_width - 12, y + 4, label if len(label) <= most else f"{label[: most - 1]}\u2026", "end", "label"))
        parts += [_text(x, y + 4, text, "end", "label") for x, text in zip(places, beside, strict=True)]
        if ends is None:
            parts.append(_text(width - right + 54, y + 4, "-", "end", "label"))
            continue
        mean, low, high = ends
        parts.append(_line(frame.x(max(0.0, low)), y, frame.x(min(1.0, high)), y, f"whisker wide {kind}"))
        parts.append(_shape(frame.x(mean), y, "circle", 5, f"mark {kind}", f"{label}: {mean:.3f}, 95 % interval {low:.3f} to {high:.3f}"))
        parts.append(_text(width - right + 54, y + 4, f"{mean:.3f}", "end", "value"))
    return tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", class_="chart", xmlns="http://www.w3.org/2000/svg")


def legend(items: Sequence[Series | Marks]) -> Markup:
    """Return the legend of a chart as HTML, so that it wraps on a narrow screen.

    Args:
        items: as given to `draw_chart`.

    Returns:
        A list element.
    """
    entries = []
    for item in items:
        shape = item.shape if isinstance(item, Marks) else item.style
        entries.append(tag("li", tag("span", class_=f"swatch {escape(shape)} {escape(item.kind)}"), item.label))
    return tag("ul", join(entries), class_="legend")
