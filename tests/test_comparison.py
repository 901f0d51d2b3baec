"""Comparisons without playing: paired differences, and what the table, the Markdown and the figure say."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agent_gym.comparison import Comparison, Line, paired_difference
from agent_gym.evaluation import Arm, summarize
from agent_gym.policies import RequestRecord, Traffic
from agent_gym.report import comparison_figure
from agent_gym.trajectory import Step, StopReason, Trajectory


def episode(task: int, success: bool) -> Trajectory:
    step = Step(
        observation_ids=[1],
        action_ids=[2],
        reward=float(success),
        terminated=True,
        stop_reason=StopReason.ANSWER,
        info={"is_success": success},
    )
    return Trajectory(task_id=f"t{task}", steps=[step])


def arm(outcomes: list[bool | None], name: str = "sampled") -> Arm:
    return summarize(name, [[] if one is None else [episode(n, one)] for n, one in enumerate(outcomes)], temperature=1.0, samples=1)


@given(st.lists(st.tuples(st.sampled_from([None, True, False]), st.sampled_from([None, True, False])), min_size=1, max_size=30))
def test_a_difference_rests_on_the_tasks_that_both_finished(pairs: list[tuple[bool | None, bool | None]]) -> None:
    both = [(one, two) for one, two in pairs if one is not None and two is not None]
    found = paired_difference(arm([one for one, _ in pairs]), arm([two for _, two in pairs]))
    if not both:
        assert found is None
        return
    assert found is not None and found.tasks == len(both)
    assert found.mean == pytest.approx(sum(int(two) - int(one) for one, two in both) / len(both))
    assert -1.0 <= found.low <= found.mean <= found.high <= 1.0 and found.low < found.high


def test_pairs_are_narrower_than_two_intervals_side_by_side() -> None:
    """A mutant that shuffles the tasks has a much wider interval: what is paired is task by task."""
    easy = [n % 2 == 0 for n in range(100)]
    better = [one or n % 10 == 1 for n, one in enumerate(easy)]
    first, second = arm(easy), arm(better)
    paired = paired_difference(first, second)
    shuffled = paired_difference(first, arm(better[1:] + better[:1]))
    assert paired is not None and shuffled is not None and paired.mean == pytest.approx(0.1) == shuffled.mean
    assert paired.low > 0 > shuffled.low and paired.high - paired.low < 0.6 * (shuffled.high - shuffled.low)


def test_other_tasks_are_no_pairs() -> None:
    other = summarize("sampled", [[episode(7, True)]], temperature=1.0)
    with pytest.raises(ValueError, match="same tasks"):
        paired_difference(arm([True]), other)


LINES = [
    Line("a|b", "sampled", "m", "e", result=arm([True, False]), traffic=Traffic.of([RequestRecord(0.5, 2_500_000, 1_234)])),
    Line(
        "[red]c",
        "greedy",
        token_exact=False,
        status="failed",
        reason="status 503\nof x",
        result=arm([True, None]),
        traffic=Traffic.of([RequestRecord(1.0)]),
    ),
    Line("d", "sampled", status="not run", reason="stopped"),
]
COMPARISON = Comparison("Env-v0", LINES, {"split": "test", "tasks": 2, "seed": 0})


def shown(comparison: Comparison) -> str:
    text = io.StringIO()
    Console(file=text, width=120).print(comparison.table())
    return text.getvalue()


def test_the_table_fits_its_place_and_says_what_is_missing() -> None:
    text = shown(COMPARISON)
    assert all(len(line) <= 120 for line in text.splitlines()) and "[red]c (greedy): failed" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert (
        "0.500 [0.09, 0.91]" in rows["a|b"] and "2.5M/1.23k" in rows["a|b"] and "unknown" in rows["[red]c"] and "0.50/0.50" in rows["a|b"]
    )
    assert {line.rstrip()[-1] for line in text.splitlines() if line.strip()} and len(
        {len(line.rstrip()) for line in rows.values()} - {0}
    ) >= 1
    assert COMPARISON.failed == [LINES[1]] and any("status 503" in note for note in COMPARISON.notes())


def test_markdown_is_one_table_whatever_stands_in_it() -> None:
    lines = COMPARISON.markdown().splitlines()
    rows = [line.replace("\\|", "") for line in lines if line.startswith("|")]
    assert len(rows) == 5 and {row.count("|") for row in rows} == {13}
    assert "- [red]c (greedy): failed: status 503 of x" in lines


def test_the_json_has_no_nan_and_the_figure_has_one_row_per_line() -> None:
    told = json.loads(json.dumps(COMPARISON.to_dict(), allow_nan=False))
    assert [line["status"] for line in told["lines"]] == ["done", "failed", "not run"] and told["schema"] == "agent-gym.comparison/1"
    figure = str(comparison_figure(told))
    assert figure.count('class="mark') == 2 and "d, sampled (not run)" in figure and "cost" not in figure.replace("</style>", "")


@pytest.mark.parametrize("lines", [[], LINES[2:]], ids=["none", "nothing_done"])
def test_nothing_done_is_shown_as_nothing(lines: list[Any]) -> None:
    empty = Comparison("Env-v0", lines, {})
    assert "Env-v0" in shown(empty) and str(comparison_figure(empty.to_dict())).startswith("<svg")
