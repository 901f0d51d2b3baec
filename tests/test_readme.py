"""Every code block of the README and the docs runs, or, where it would take a model or minutes, is held against the code."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import require

from agent_gym.data.samples import write_rows

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(language: str) -> list[tuple[str, str]]:
    return [(page.name, code) for page in PAGES for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_the_python_blocks_of_a_page_run_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = [text for name, text in blocks("python") if name == page]
    if not code:
        return
    script = tmp_path / "page.py"
    script.write_text("\n\n".join(code), encoding="utf-8")
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
    lines = [(page, line.split(" #")[0].strip()) for page, text in blocks("bash") for line in text.splitlines()]
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


def run_agent_gym(words: list[str], folder: Path) -> None:
    command = [sys.executable, "-m", "agent_gym.cli", *words]
    long = words[0] in {"serve-search", "serve-papers", "view"} or (words[0] == "train" and "--dry-run" not in words)
    own_log = words[:2] == ["data", "import-chat"]
    elsewhere = any(name in " ".join(words) for name in ("recipes/", "dataset=questions.jsonl", "Qwen/"))
    if long or own_log or elsewhere:  # minutes, a server, or what is not on this machine: the options must exist
        asked = words[: 2 if own_log else 1]
        known = subprocess.run([sys.executable, "-m", "agent_gym.cli", *asked, "--help"], check=True, capture_output=True, text=True).stdout
        for option in [word for word in words if word.startswith("--")]:
            assert option in known, option
        return
    if "rows.parquet" in words:
        require("pyarrow")
        write_rows([json.loads(text) for name, text in blocks("json") if name == "samples.md"], folder / "rows.parquet")
    done = subprocess.run(command, cwd=folder, input=":quit\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
