"""The example that evaluates an OpenAI-compatible server runs against a stand-in, and prints what it measured."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from chat_server import chat_server

from agent_gym.evaluation import task_rows
from agent_gym.policies.chat_text import messages_of

SCRIPT = Path(__file__).parents[2] / "examples" / "evaluate_openai.py"
TASKS = 4


def half_of_the_answers() -> Any:
    """A server that knows every second task: it plays the expert there, and answers the others wrongly."""
    env: Any = gymnasium.make("AgentR1/HotpotQA-v0", split="test")
    scripts: dict[str, list[str]] = {}
    for number, row in enumerate(task_rows(env, "AgentR1/HotpotQA-v0", {"split": "test"}, TASKS)):
        env.reset(seed=row["seed"], options=row.get("options"))
        inner, texts, going = env.unwrapped, [], True
        question = messages_of(inner, inner.prompt_ids)[0][1]["content"]
        play = inner.expert()
        while going:
            texts.append(play())
            _, _, ended, cut, _ = inner.step(inner.encode_action(texts[-1]))
            going = not (ended or cut)
        scripts[question] = texts if number % 2 == 0 else ["<answer>nobody knows</answer>"]
    env.close()
    return lambda messages: scripts[messages[1]["content"]][sum(one["role"] == "assistant" for one in messages)]


def test_the_example_evaluates_a_server(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    spec = importlib.util.spec_from_file_location("evaluate_openai", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with chat_server(half_of_the_answers(), key="sk-test-0123456789abcdef") as server:
        found = module.main(["--url", server.url, "--tasks", str(TASKS), "--price-in", "1", "--price-out", "2"])
    printed = capsys.readouterr().out
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in printed.splitlines()
        if line.startswith("|")
    }
    assert rows["expert"][0].startswith("1.000 [") and rows["server (greedy)"][0].startswith("0.500 [")
    assert rows["server (greedy)"][1].startswith("-0.500 [") and rows["server (greedy)"][3] == str(TASKS)
    spent = found.lines[1].traffic
    assert spent.requests == len(server.asked) > TASKS and spent.cost == pytest.approx(
        (spent.prompt_tokens + 2 * spent.completion_tokens) / 1e6
    )
    assert "not token-exact (a server's text): server" in printed and "sk-test" not in printed and not server.refused


def test_the_example_stays_within_120_lines() -> None:
    assert len(SCRIPT.read_text().splitlines()) < 120
