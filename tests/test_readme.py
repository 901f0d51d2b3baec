"""Every code block of the README and the docs runs, or, where it would take a model or minutes, is held against the code."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path

import gymnasium
import pytest
import yaml
from helpers import require
from pages import MOST_GATED, ROOT, blocks, commands, gated

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.data.samples import write_rows


@pytest.mark.parametrize("page", sorted({page for page, _ in blocks("python")}))
def test_the_python_blocks_of_a_page_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(text for name, text in blocks("python") if name == page), encoding="utf-8")
    subprocess.run([sys.executable, str(script)], check=True, cwd=tmp_path, timeout=300)


def test_the_environment_of_the_readme_passes_the_conformance_checks(tmp_path: Path) -> None:
    code = next(text for name, text in blocks("python") if name == "README.md" and "class Higher" in text)
    (tmp_path / "my_module.py").write_text(code, encoding="utf-8")
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--agent-env", "my_module:Higher"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]


def shell_lines() -> list[tuple[str, str]]:
    lines = [(page, line.split(" #")[0].strip()) for page, text in blocks("bash") for line in text.replace("\\\n", " ").splitlines()]
    return [(page, line) for page, line in lines if line and not line.startswith("#")]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line"), shell_lines())
def test_a_shell_line_is_one_that_works(page: str, line: str, tmp_path: Path) -> None:
    """Commands of ours run as they stand where they take seconds; others are checked as far as that goes."""
    words = [word for word in shlex.split(line) if not re.fullmatch(r"[A-Z_]+=\S+", word)]
    if words[0] == "make":
        subprocess.run(["make", "-n", *words[1:]], check=True, cwd=ROOT, capture_output=True)
    elif words[:2] == ["pip", "install"]:
        extras = set(re.findall(r"\[([\w,]+)\]", line.replace(" ", "")))
        known = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE))
        assert {one for group in extras for one in group.split(",")} <= known
    elif words[0] == "pytest":
        assert "--agent-env" in words
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file(), words[1]
    elif words[0] == "agent-gym":
        run_agent_gym(words[1:], tmp_path)
    else:
        assert words[0] in {"git", "cd", "pre-commit"}, f"{page} shows a command that no test knows: {line}"


@cache
def help_of(*words: str) -> str:
    command = [sys.executable, "-m", "agent_gym.cli", *words, "--help"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def run_agent_gym(words: list[str], folder: Path) -> None:
    command = [sys.executable, "-m", "agent_gym.cli", *words]
    long = words[0] in {"serve-search", "serve-papers", "view"} or (words[0] == "train" and "--dry-run" not in words)
    own_log = words[:2] == ["data", "import-chat"]
    elsewhere = any(name in " ".join(words) for name in ("recipes/", "dataset=questions.jsonl", "Qwen/", "MODEL"))
    if long or own_log or elsewhere:  # minutes, a server, or what is not on this machine: the options must exist
        asked = words[: 2 if own_log else 1]
        known = help_of(*asked)
        for option in [word for word in words if word.startswith("--")]:
            assert option in known, option
        return
    if "rows.parquet" in words:
        require("pyarrow")
        write_rows([json.loads(text) for name, text in blocks("json") if name == "docs/samples.md"], folder / "rows.parquet")
    done = subprocess.run(command, cwd=folder, input=":quit\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_blocks_of_data_are_what_they_say() -> None:
    for _, text in blocks("json"):
        json.loads(text)
    for _, text in blocks("yaml"):
        assert isinstance(yaml.safe_load(text), dict)


# Blocks that need a GPU, a network or a key: few, named in the header of the tests' output, and each word of them that can be wrong is looked at.


def test_few_blocks_need_what_a_machine_may_lack() -> None:
    names = [f"{block.name} ({block.need})" for block in gated()]
    print(f"{len(names)} blocks need a GPU, a network or a key: {', '.join(names)}")
    assert 0 < len(names) <= MOST_GATED, names


@pytest.mark.parametrize("block", gated(), ids=lambda block: block.name)
def test_what_a_block_that_cannot_run_here_names_exists(block) -> None:
    found = commands(block.text)
    assert found
    for words in found:
        check_command(words)


@pytest.mark.parametrize(
    "line",
    [
        "agent-gym evaluate AgentR1/Tool-v0",
        "agent-gym eval AgentR1/Tool-v0 --modle M",
        "agent-gym train AgentR1/Tool-v0 --model M --set trainer.learning_speed=1",
        "agent-gym eval AgentR1/HotpotQA-v0 --env-arg topk=2",
        "agent-gym eval AgentR1/NoSuch-v0 --model M",
        "vllm serve M --max-length 4",
        'pip install "agentr1-gym[nothing]"',
        "python examples/real_model.py --row rows.jsonl",
        "accelerate launch --config recipes/x.yaml --no_such_option -m agent_gym.cli train",
        "curl http://127.0.0.1",
    ],
)
def test_a_misspelt_word_of_such_a_block_is_seen(line: str) -> None:
    with pytest.raises((AssertionError, SystemExit, gymnasium.error.Error)):
        for words in commands(line):
            check_command(words)


def check_command(words: list[str]) -> None:
    program, rest = Path(words[0]).name, words[1:]
    if program == "agent-gym":
        check_ours(rest)
    elif program == "accelerate":
        require("accelerate")
        from accelerate.commands.launch import launch_command_parser

        assert rest[0] == "launch"
        read = launch_command_parser().parse_args(rest[1:])
        assert read.training_script == "agent_gym.cli"
        check_ours(read.training_script_args)
    elif program == "vllm":  # by its own parser in tests/vllm_engine
        known = {"host", "port", "logprobs-mode", "max-model-len", "data-parallel-size", "dtype", "gpu-memory-utilization"}
        assert rest[0] == "serve" and {word[2:] for word in rest if word.startswith("--")} <= known, rest
    elif program == "pip":
        extras = {one for group in re.findall(r"agentr1-gym\[([\w,-]+)\]", " ".join(rest)) for one in group.split(",")}
        known = set(re.findall(r"^([\w-]+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE))
        assert rest[0] == "install" and extras <= known, rest
    elif program == "python" and rest[0] != "-m":
        text = (ROOT / rest[0]).read_text(encoding="utf-8")
        assert all(f'"{word}"' in text for word in rest if word.startswith("--")), rest
    else:
        assert words[:2] in (["python", "-m"], ["tensorboard", "--logdir"]), f"a command that no test knows: {words}"


def check_ours(words: list[str]) -> None:
    """Options by the program's own parser, settings by the trainers' fields, keywords by the environment's constructor."""
    from agent_gym.cli.parser import build_parser

    read = build_parser().parse_args(words)
    name = getattr(read, "env", None)
    keywords = [pair.partition("=")[0] for pair in getattr(read, "env_arg", None) or ()]
    if name:
        maker = gymnasium.spec(name).entry_point
        module, _, attribute = str(maker).partition(":")
        known = {
            one
            for base in getattr(__import__(module, fromlist=[attribute]), attribute).__mro__
            for one in inspect.signature(base.__init__).parameters
        }
        assert set(keywords) <= known, set(keywords) - known
    settings = [pair.partition("=")[0] for pair in getattr(read, "overrides", None) or ()]
    if any(one.startswith("trainer.") for one in settings):
        require("trl")
        from agent_gym.trainers import AgentDistillConfig, AgentPPOConfig

        known = {one.name for config in (AgentPPOConfig, AgentDistillConfig) for one in fields(config)}
        assert {one.split(".")[1] for one in settings if one.startswith("trainer.")} <= known, settings
