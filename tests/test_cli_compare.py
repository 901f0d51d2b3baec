"""`agent-gym eval --policy`: several policies on the same tasks, in one table and one figure, whatever becomes of one of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatStandIn, Fault, chat_server

from agent_gym.cli import main
from agent_gym.trajectory_io import load_trajectories

HOTPOT = "AgentR1/HotpotQA-v0"
FEW = ["eval", HOTPOT, "--tasks", "3"]
KEY = "sk-test-0123456789abcdef"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def wrong(_: list[dict[str, str]]) -> str:
    return "<answer>nobody</answer>"


def told(folder: str | Path) -> dict[str, Any]:
    return dict(json.loads((Path(folder) / "comparison.json").read_text(encoding="utf-8")))


def lines(folder: str | Path) -> dict[str, dict[str, Any]]:
    return {f"{one['policy']}/{one['arm']}": one for one in told(folder)["lines"]}


def of(server: ChatStandIn, name: str = "served", more: str = "") -> list[str]:
    return ["--policy", f"{name}=openai:{server.url},model={server.model},retries=1{more}"]


def test_several_policies_stand_in_one_table_and_one_figure(capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server(wrong) as server:
        command = [*FEW, "--policy", "expert=expert", *of(server, more=",price_in=2,price_out=10,price_cached=1"), *of(server, "free")]
        assert main([*command, "--policy", "dice=random", "--output-dir", "out", "--save-episodes"]) == 0
    shown = capsys.readouterr().out
    found = lines("out")
    assert list(found) == ["expert/expert", "served/sampled", "free/sampled", "dice/dice"]
    assert {one["status"] for one in found.values()} == {"done"} and not server.refused
    tasks = [[task["task_id"] for task in one["result"]["per_task"]] for one in found.values()]
    assert all(one == tasks[0] for one in tasks) and len(set(tasks[0])) == 3
    assert found["expert/expert"]["result"]["estimates"]["success"]["mean"] == 1.0 and found["expert/expert"]["traffic"] is None
    served = found["served/sampled"]
    assert served["difference"]["mean"] == served["difference"]["low"] == -1.0 < served["difference"]["high"] < 1.0
    asked = [sum(len(m["content"].split()) for m in one["messages"]) for one in server.asked[:3]]
    cached = sum(one // 2 for one in asked)
    traffic = served["traffic"]
    assert traffic["requests"] == 3 and traffic["prompt_tokens"] == sum(asked) and traffic["completion_tokens"] == 3
    assert traffic["cost"] == pytest.approx(((sum(asked) - cached) * 2 + cached * 1 + 3 * 10) / 1e6)
    assert 0 < traffic["latency_median"] <= traffic["latency_p95"]
    assert found["free/sampled"]["traffic"]["cost"] is None
    assert [served["token_exact"], found["expert/expert"]["token_exact"]] == [False, True]
    for text in ("success", "cost", "s p50/p95", "tokens in/out", "served (sampled)", "not token-exact"):
        assert text in shown
    markdown = Path("out/comparison.md").read_text()
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(rows) == 6 and len({line.count("|") for line in rows}) == 1 and "served (sampled)" in markdown
    figure = ElementTree.parse("out/comparison.svg").getroot()
    marks = [one for one in figure.iter() if one.get("class", "").startswith("mark")]
    texts = [one.text for one in figure.iter() if one.tag.endswith("text")]
    assert len(marks) == 4 and "served, sampled" in texts and "cost" in texts and "s/request" in texts
    episodes = load_trajectories("out/episodes.served.sampled.jsonl")
    assert len(episodes) == 3 and not any(one.token_exact for one in episodes)
    assert "written to out/" in shown and all(name in shown for name in ("comparison.json", "comparison.md", "comparison.svg"))


def test_a_server_that_is_down_costs_its_own_line_and_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server(wrong) as gone:
        down = of(gone, "down")
    with chat_server(wrong) as server:
        assert main([*FEW, *down, *of(server), "--policy", "expert=expert", "--output-dir", "out"]) == 1
    found = lines("out")
    assert [one["status"] for one in found.values()] == ["failed", "done", "done"]
    assert gone.url.removesuffix("/v1") in found["down/sampled"]["reason"] and found["down/sampled"]["result"] is None
    assert found["served/sampled"]["result"]["episodes"] == 3 and found["served/sampled"]["difference"] is None
    assert found["expert/expert"]["difference"]["mean"] == 1.0
    assert "failed" in capsys.readouterr().out and "down, sampled (failed)" in Path("out/comparison.svg").read_text()


def test_what_a_server_had_done_before_it_failed_is_kept() -> None:
    with chat_server(wrong) as server:
        answered = iter(range(1000))

        def then_broken(messages: list[dict[str, str]]) -> str:
            if next(answered) == 1:
                server.faults.extend([Fault(500)] * 99)
            return wrong(messages)

        server.reply = then_broken
        assert main([*FEW, *of(server), "--batch-size", "1", "--output-dir", "out", "--arms", "both"]) == 1
    found = lines("out")
    sampled = found["served/sampled"]
    assert sampled["status"] == "failed" and sampled["result"]["episodes"] == 2 and sampled["traffic"]["requests"] == 2
    assert "after 2 of 3 episodes" in sampled["reason"] and "status 500" in sampled["reason"] and server.url in sampled["reason"]
    assert found["served/greedy"]["status"] == "failed"


def test_without_usage_the_cost_is_unknown_and_not_zero(capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server(wrong, usage=False) as server:
        assert main([*FEW, *of(server), "--price-in", "1", "--price-out", "2", "--output-dir", "out"]) == 0
    traffic = lines("out")["served/sampled"]["traffic"]
    assert traffic["cost"] is None and traffic["prompt_tokens"] is None and traffic["unknown_usage"] == 3
    assert "unknown" in capsys.readouterr().out


def test_one_server_is_an_engine_too_and_prices_may_stand_in_a_file() -> None:
    Path("prices.yaml").write_text("stand-in: {in: 1000000, out: 0}\n")
    with chat_server(wrong) as server:
        command = [*FEW, "--engine", "openai", "--url", server.url, "--model", "stand-in", "--prices", "prices.yaml", "--arms", "both"]
        assert main([*command, "--output-dir", "out"]) == 0
    found = lines("out")
    assert list(found) == ["stand-in/sampled", "stand-in/greedy"]
    assert {one["temperature"] for one in server.asked[:3]} == {1.0} and {one["temperature"] for one in server.asked[3:]} == {0.0}
    assert found["stand-in/sampled"]["traffic"]["cost"] == found["stand-in/sampled"]["traffic"]["prompt_tokens"]


def test_a_file_names_policies_with_whatever_a_command_line_cannot_hold() -> None:
    with chat_server(wrong) as server:
        policy = {
            "what": f"openai:{server.url}",
            "model": "stand-in",
            "request": {"max_tokens": None, "max_completion_tokens": 77},
            "temperature": 0.25,
        }
        Path("policies.json").write_text(json.dumps({"expert": "expert", "small": policy}))
        assert main([*FEW, "--policies", "policies.json", "--output-dir", "out"]) == 0
    assert list(lines("out")) == ["expert/expert", "small/sampled"]
    assert all(one["max_completion_tokens"] == 77 and "max_tokens" not in one and one["temperature"] == 0.25 for one in server.asked)


def test_the_key_comes_from_the_environment_and_is_written_nowhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with chat_server(wrong, key=KEY) as server:
        assert main([*FEW, *of(server), "--api-key-env", "MY_KEY", "--output-dir", "good", "--save-episodes"]) == 0
        monkeypatch.setenv("MY_KEY", f"{KEY}-old")
        assert main([*FEW, *of(server), "--api-key-env", "MY_KEY", "--output-dir", "bad"]) == 1
    assert "401" in lines("bad")["served/sampled"]["reason"] and "$MY_KEY" in lines("bad")["served/sampled"]["reason"]
    shown = capsys.readouterr()
    texts = [shown.out, shown.err, *(path.read_text() for folder in ("good", "bad") for path in Path(folder).iterdir())]
    assert all(KEY not in one for one in texts) and any("MY_KEY" in one for one in texts)


def test_another_comparison_is_never_written_over() -> None:
    assert main([*FEW, "--policy", "expert=expert", "--output-dir", "out"]) == 0
    assert main([*FEW, "--policy", "expert=expert", "--output-dir", "out"]) == 0
    assert main([*FEW, "--policy", "expert=expert", "--seed", "1", "--output-dir", "out"]) == 2


def test_local_models_stand_beside_servers(tiny_model: str) -> None:
    with chat_server(wrong) as server:
        command = [*FEW, "--policy", f"tiny={tiny_model},temperature=0.5", *of(server), "--max-tokens", "8", "--output-dir", "out"]
        assert main(command) == 0
    tiny = lines("out")["tiny/sampled"]
    assert tiny["token_exact"] and tiny["engine"] == "transformers" and tiny["result"]["temperature"] == 0.5
    assert tiny["traffic"]["requests"] > 0 and tiny["traffic"]["cost"] is None and tiny["traffic"]["latency_p95"] > 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--policy", "expert"], "NAME=WHAT"),
        (["--policy", "a=expert", "--policy", "a=random"], "two policies are called 'a'"),
        (["--policy", "a=expret"], "did you mean 'expert'?"),
        (["--policy", "a=./nowhere"], "--policy a './nowhere': there is no such folder"),
        (["--policy", "a=expert,price_in=1"], "takes no 'price_in'"),
        (["--policy", "a=openai:http://127.0.0.1:1/v1,concurency=3"], "did you mean 'concurrency'?"),
        (["--policy", "a=openai:127.0.0.1"], "must look like"),
        (["--policy", "a=openai:http://127.0.0.1:1/v1,concurrency=lots"], "should be of type int"),
        (["--policy", "a=openai:http://127.0.0.1:1/v1,price_in=1"], "per million tokens"),
        (["--policy", "a=openai:http://127.0.0.1:1/v1,api_key_env=NOT_THERE"], "NOT_THERE"),
        (["--policy", "a=vllm:http://127.0.0.1:1"], "wants model="),
        (["--policy", "a=expert", "--model", "random"], "do not go together"),
        (["--policy", "a=expert", "--prices", "none.json"], "no such file"),
        (["--policies", "none.yaml"], "no such file"),
        (["--policy", "a=expert", "--data", "rows.jsonl"], "do not go together"),
        (["--engine", "openai"], "--url"),
        (["--model", "expert", "--price-in", "1"], "--price-in is for servers of text"),
        (["--policy", "a|b=expert"], "a policy's name"),
        (["--policy", "a=expert", "--baselines"], "names no players"),
    ],
)
def test_mistakes_are_named_before_anything_is_played(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main([*FEW, *words]) == 2
    assert text in " ".join(capsys.readouterr().err.split()) and not Path("evals").exists()


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    with chat_server(wrong) as server:
        seen = iter(range(1000))

        def then_slow(messages: list[dict[str, str]]) -> str:
            if next(seen) == 1:
                server.slow = 30.0
            return wrong(messages)

        server.reply = then_slow
        command = [*FEW, "--policy", "expert=expert", *of(server), *of(server, "late"), "--batch-size", "1", "--output-dir", "out"]
        process = subprocess.Popen(
            [sys.executable, "-m", "agent_gym.cli", *command], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
        )
        try:
            while len(server.asked) < 3 and process.poll() is None:
                server.closing.wait(0.02)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=240)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130 and "Traceback" not in err, err
    found = lines(tmp_path / "out")
    assert [one["status"] for one in found.values()] == ["done", "interrupted", "not run"]
    assert found["served/sampled"]["result"]["episodes"] == 2 and found["served/sampled"]["difference"]["tasks"] == 2
    assert re.search("stopped; what was done", err) and "interrupted" in out
