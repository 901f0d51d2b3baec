"""Charts: what is drawn is what was given."""

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.report.charts import Level, Marks, Series, draw_chart, draw_intervals, legend, moving_mean, nice_ticks
from agent_gym.report.figures import evaluation_figure

finite = st.floats(-1e6, 1e6)


@given(finite, finite, st.integers(2, 12))
@settings(max_examples=150, deadline=None)
def test_ticks_cover_the_range_in_equal_round_steps(one: float, other: float, most: int) -> None:
    low, high = min(one, other), max(one, other)
    ticks = nice_ticks(low, high, most)
    assert 2 <= len(ticks) <= 2 * most + 2
    slack = 1e-6 * (high - low)
    assert ticks[0] <= low + slack and ticks[-1] >= high - slack
    steps = [b - a for a, b in pairwise(ticks)]
    assert all(step == pytest.approx(steps[0], rel=1e-3) and step > 0 for step in steps)


@given(st.lists(st.tuples(st.integers(0, 500), st.one_of(finite, st.just(math.nan), st.just(math.inf))), max_size=30))
@settings(max_examples=80, deadline=None)
def test_any_series_gives_well_formed_svg_without_nan(points: list[tuple[int, float]]) -> None:
    points = sorted(points)
    svg = draw_chart([Series("a", points, "c-aux", "dots"), Marks("b", points, "c-greedy")], width=400, height=200, title="t", x_label="x")
    ET.fromstring(svg)
    assert "nan" not in svg and "inf" not in svg


def test_a_higher_value_stands_higher() -> None:
    svg = draw_chart([Marks("m", [(0, 0.0), (1, 0.5), (2, 1.0)], "c-sampled")], width=400, height=200, title="t", y_range=(0.0, 1.0))
    heights = [float(one) for one in re.findall(r'cy="([\d.]+)"', svg)]
    assert heights[0] > heights[1] > heights[2]
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.2)
    assert re.findall(r"<title>(m, [^<]*)</title>", svg) == ["m, 0: 0", "m, 1: 0.5", "m, 2: 1"]


def test_there_is_no_tick_between_two_updates() -> None:
    svg = draw_chart(
        [Marks("m", [(0, 0.0), (2, 0.5)], "c-sampled")], width=1000, height=200, title="t", y_range=(0.0, 1.0), x_label="update"
    )
    assert re.findall(r'text-anchor="middle" class="tick">([^<]*)<', svg) == ["0", "1", "2"]


def test_nothing_to_draw_is_said() -> None:
    assert "No data" in draw_chart([Level("l", 0.5, "c-ceiling")], width=100, height=100, title="t")


def test_the_moving_mean() -> None:
    assert moving_mean([(1, 1.0), (2, 3.0), (3, 5.0)], window=2) == [(1, 1.0), (2, 2.0), (3, 4.0)]


def test_labels_are_text() -> None:
    svg = draw_chart([Marks("<b>&", [(0, 1.0)], "c-aux"), Level("</svg>", 0.5, "c-ceiling")], width=300, height=100, title="<script>")
    assert "<b>" not in svg and "<script>" not in svg and svg.count("</svg>") == 1
    assert "&lt;b&gt;" in legend([Marks("<b>", [(0, 1.0)], "c-aux")])


def test_intervals_stand_where_they_belong() -> None:
    svg = draw_intervals([("a", "c-sampled", 0.5, 0.25, 0.75), ("b", "c-greedy", 1.0, 0.9, 1.0)], width=500, title="t")
    ET.fromstring(svg)
    first, second = (float(one) for one in re.findall(r'cx="([\d.]+)"', svg))
    assert first < second


def test_the_figure_of_an_evaluation_shows_what_lies_between_0_and_1() -> None:
    estimate, zero = {"mean": 0.5, "low": 0.4, "high": 0.6}, {"mean": 0.0, "low": 0.0, "high": 0.0}
    nothing = {"mean": None, "low": None, "high": None}
    estimates = {
        "success": estimate,
        "em": estimate,
        "f1": {**estimate, "mean": 0.55},
        "turns": {"mean": 3.0, "low": 2.0, "high": 4.0},
        "x": nothing,
        "y": zero,
        "n_calls": {**estimate, "mean": 0.45},
    }
    svg = evaluation_figure({"env_id": "X-v0", "arms": {"sampled": {"estimates": estimates, "pass_at": {1: 0.5, "4": 0.9}}}})
    ET.fromstring(svg)
    labels = re.findall(r'class="label">([^<]*)<', svg)
    assert labels == ["success, sampled", "pass@4, sampled", "f1, sampled"]
