"""The report of a run: complete, self-contained, and deaf to whatever stands in a transcript."""

import base64
import dataclasses
import hashlib
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from html_events import HOSTILE, Events

from agent_gym.flows import run_rows
from agent_gym.policies import ScriptedPolicy
from agent_gym.report import learning_curve, render_report, write_report, write_viewer
from agent_gym.report import markup as markup_module
from agent_gym.report.markup import visible
from agent_gym.report.page import learning_curves
from agent_gym.runs import RunFolder
from agent_gym.trajectory import Step, Trajectory

ROWS = [{"env_id": "AgentR1/HotpotQA-v0", "env_kwargs": {"level": "bridge", "split": "test"}, "seed": seed} for seed in range(2)]


def played(script: list[str] | None, **changes: object) -> list[Trajectory]:
    policy = ScriptedPolicy.expert() if script is None else ScriptedPolicy(script)
    return [dataclasses.replace(one, **changes) for one in run_rows(ROWS, policy).trajectories]


def make_run(path: Path, *, said: str = "Rome", word: str = "plain") -> RunFolder:
    """A run whose every text comes from outside: `said` by the model, `word` in settings, names and tasks."""
    run = RunFolder.create(path, {"env_id": word, "model": word, "trainer": {word: word}, "imitation_ceiling": 0.28})
    for step in range(1, 8):
        run.log(
            "train",
            step,
            {"rollout/success": step / 10, "rollout/turns_mean": 2 + step / 10, f"metrics/{word}": 1.0, "rollout/episodes": 16},
        )
    run.log("eval", 4, {"sampled": 0.4, "greedy": 0.6})
    run.write_summary(warm_start={"sampled": 0.1, "greedy": 0.0}, final={"sampled": 0.7, "greedy": 0.9}, tasks=50, seed=0, note=word)
    run.save_trajectories("warm_start", played([f"<answer>{said}</answer>"], task_id=word, env_id=word, sampling={"temperature": 0.0}))
    run.save_trajectories("final", played(None, task_id=word, env_id=word, sampling={"temperature": 0.0}))
    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_report(make_run(tmp_path_factory.mktemp("run") / "run")).read_text(encoding="utf-8")


def test_the_report_shows_curve_marks_ceiling_and_both_transcripts(page: str) -> None:
    for part in (
        "imitation ceiling 0.28",
        "RL begins",
        "held out, greedy",
        "held out, sampled (T=1)",
        "Before reinforcement learning",
    ):
        assert part in page, part
    assert page.count('<article class="transcript"') == 2
    titles = re.findall(r"<title>held out, greedy, ([^<]*)</title>", page)
    assert titles[:3] == ["0: 0", "4: 0.6", "7: 0.9"]
    assert re.findall(r"<title>held out, sampled \(T=1\), ([^<]*)</title>", page)[:3] == ["0: 0.1", "4: 0.4", "7: 0.7"]


def test_the_page_loads_nothing(page: str) -> None:
    for name, attrs in Events(page).tags:
        for key, value in attrs:
            assert key not in ("src", "href", "action", "srcset") and not key.startswith("on"), (name, key, value)
    without_namespace = page.replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in without_namespace and "https://" not in without_namespace and "url(" not in page and "@import" not in page


def test_only_its_own_script_may_run(page: str) -> None:
    scripts = re.findall(r"<script>(.*?)</script>\n?", page, re.S)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert len(scripts) == 1 and f"script-src &#x27;sha256-{digest}&#x27;" in page and "default-src &#x27;none&#x27;" in page
    assert "connect-src &#x27;none&#x27;" in page  # a file asks nobody
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert word not in scripts[0], word


def shape(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """Tags and names of attributes."""
    return [(name, tuple(key for key, _ in attrs)) for name, attrs in Events(page).tags]


def blocks(page: str) -> dict[str, object]:
    """The data of the page by the names of its blocks."""
    return {name: json.loads(text) for name, text in re.findall(r'<script type="application/json" id="([^"]*)">(.*?)</script>', page, re.S)}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_changes_nothing_but_text(page: str, tmp_path: Path, text: str) -> None:
    safe = text.encode("utf-8", "replace").decode()
    hostile = write_report(make_run(tmp_path / "run", said=safe, word=safe.replace("\x00", "\x01"))).read_text(encoding="utf-8")
    events = Events(hostile)
    assert shape(hostile) == shape(page) and not [one for one in events.odd if one != "doctype html"]
    assert (
        set(blocks(hostile))
        == set(blocks(page))
        == {"view", *(f"{kind}-{file}-{n}" for file in (0, 1) for kind, n in (("i", 0), ("e", 0), ("e", 1)))}
    )
    record = blocks(hostile)["e-0-0"]
    assert isinstance(record, dict) and record["task"] == visible(safe.replace("\x00", "\x01"))


def test_without_escaping_the_check_fails(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup_module.html, "escape", lambda text, quote=True: text)
    broken = write_report(make_run(tmp_path / "run", said=HOSTILE[0], word=HOSTILE[0])).read_text(encoding="utf-8")
    assert shape(broken) != shape(page)


def test_a_run_that_has_only_begun_has_a_report(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env_id": "X-v0"})
    assert "Nothing was logged yet" in render_report(run)
    run.log("train", 1, {"rollout/success": 0.5})
    assert "training batch, sampled" in render_report(run)
    assert "<style>" not in learning_curve(run)
    alone = ET.fromstring(learning_curve(run, standalone=True))
    assert alone.tag.endswith("svg") and "prefers-color-scheme: dark" in "".join(alone.itertext())


def test_what_counts_in_a_run_is_what_its_pages_draw(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"env_id": "Shop-v0", "figure": "score"})
    for step in (1, 2, 3):
        run.log("train", step, {"rollout/success": 0.125, "metrics/score": step / 4})
    run.log("eval", 2, {"eval_metrics/score": 0.55, "eval_rollout/success": 0.15})
    run.write_summary(warm_start={"sampled": 0.35, "greedy": 0.4}, final={"sampled": 0.8, "greedy": 0.9}, tasks=9, seed=0, figure="score")
    page = render_report(run)
    for part in ("Score, sampled (T=1)", "Score, greedy", "Score per update", ", 2: 0.55</title>", ", 3: 0.75</title>"):
        assert part in page, part
    assert "Success, sampled" not in page and ": 0.125</title>" not in page.split("How it went")[0]
    curves = str(learning_curves([run, run], levels={"first result": 0.25}))
    assert "Score over updates" in curves and "first result 0.25" in curves


def test_ids_of_an_unknown_tokenizer_are_shown_as_numbers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    run.save_trajectories("final", played(None, tokenizer_fingerprint="0123456789abcdef"))
    run.save_trajectories("warm_start", [])
    page = render_report(run)
    assert '"\\u2039' in page and '"decoded":false' in page and "An episode" in page


def test_the_viewer_says_how_many_there_are(tmp_path: Path) -> None:
    episodes = played(None) * 2
    page = write_viewer(tmp_path / "v.html", episodes, title="<b>x</b>", limit=3).read_text(encoding="utf-8")
    assert {name for name in blocks(page) if name.startswith("e-")} == {"e-0-0", "e-0-1", "e-0-2"}
    assert "4 episodes, 4 solved; the first 3 are shown" in page and "<b>" not in page


def test_many_episodes_come_in_pieces(tmp_path: Path) -> None:
    page = write_viewer(tmp_path / "v.html", [Trajectory(task_id=f"t{n}", steps=[Step([1], [2])]) for n in range(401)]).read_text(
        encoding="utf-8"
    )
    found = blocks(page)
    pieces = [found[f"i-0-{first}"] for first in (0, 200, 400)]
    assert [len(piece["rows"]) for piece in pieces] == [200, 200, 1] and [piece["end"] for piece in pieces] == [False, False, True]  # type: ignore[index]
    assert page.index("<script>") < page.index('id="i-0-0"')  # the first paint does not wait for them


def test_reports_need_no_torch_and_no_matplotlib() -> None:
    subprocess.run(
        [sys.executable, "-c", "import sys, agent_gym.report; assert not {'torch', 'matplotlib', 'trl'} & set(sys.modules)"], check=True
    )
