"""What a user installs: the wheel holds every file that the package reads, its entry points, and nothing of the tests."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from helpers import require

import agent_gym

ROOT = Path(agent_gym.__file__).parents[1]
_IGNORED = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info", "build", "dist")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network from a copy of what it is made of."""
    require("setuptools")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("agent_gym", "tests", "benchmarks", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=_IGNORED)
    for name in ("pyproject.toml", "README.md", "LICENSE", "agent_gym_pytest.py"):
        shutil.copy(ROOT / name, source / name)
    words = ["wheel", ".", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--wheel-dir", str(folder)]
    done = subprocess.run([sys.executable, "-m", "pip", *words], cwd=source, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    files = {path for path in (ROOT / "agent_gym").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path.relative_to(ROOT).as_posix() for path in files} - contents(wheel) == set()


def test_the_wheel_holds_what_is_read_at_run_time(wheel: Path) -> None:
    wanted = {
        "agent_gym/py.typed",
        "agent_gym/tokenizers/default/tokenizer.json",
        "agent_gym/tokenizers/default/tokenizer_config.json",
        "agent_gym/tokenizers/corpus.txt",
        "agent_gym/report/report.css",
        "agent_gym/report/view.css",
        "agent_gym/report/view_app.js",
        "agent_gym_pytest.py",
    }
    assert wanted <= contents(wheel)


def test_the_wheel_names_its_entry_points(wheel: Path) -> None:
    entries = configparser.ConfigParser()
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/entry_points.txt"))
        entries.read_string(archive.read(name).decode())
    assert dict(entries["console_scripts"]) == {"agent-gym": "agent_gym.cli:main"}
    assert dict(entries["pytest11"]) == {"agent_gym": "agent_gym_pytest"}


def test_the_wheel_is_small_and_holds_nothing_else(wheel: Path) -> None:
    assert wheel.stat().st_size < 3_000_000
    tops = {name.split("/")[0] for name in contents(wheel)}
    assert {one for one in tops if not one.endswith(".dist-info")} == {"agent_gym", "agent_gym_pytest.py"}


def test_the_tokenizer_is_made_from_what_the_wheel_holds(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import agent_gym, pathlib, sys; assert pathlib.Path(agent_gym.__file__).is_relative_to(sys.argv[1]), agent_gym.__file__; "
        "import gymnasium; gymnasium.make('AgentR1/Tool-v0').reset(seed=0); "
        "from agent_gym.tokenizers import build_default; print(len(build_default.build()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 0
