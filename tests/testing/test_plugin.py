"""`pytest --agent-env`: run as its users run it, by the installed plugin, from a folder without tests."""

import ast
import json
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import broken_envs
import pytest

from agent_gym.testing import CHECKS


@pytest.fixture
def folder(tmp_path):
    """A folder with nothing but somebody's environments."""
    shutil.copy(broken_envs.__file__, tmp_path / "my_envs.py")
    return tmp_path


def run(folder, *arguments, code=None):
    """pytest in a process of its own, without the current folder on its path (-P), as the console script has it."""
    command = [sys.executable, "-P", *(["-c", code] if code else ["-m", "pytest", "-p", "no:cacheprovider"]), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def entry():
    (found,) = [one for one in entry_points(group="pytest11") if one.value.startswith("agent_gym")]
    return found


def test_a_good_environment_passes_and_a_check_that_does_not_apply_says_why(folder):
    done = run(folder, "--agent-env", "my_envs:LetterEnv")
    assert done.returncode == 0, done.stdout
    assert f"{len(CHECKS) - 1} passed, 1 skipped" in done.stdout
    assert "control_tokens: it has no chat" in done.stdout


@pytest.mark.parametrize(
    ("name", "check"),
    [("SeedsTheGlobalGenerator", "global_generators"), ("RemembersItsTries", "reset_leak"), ("EndsBothWays", "ends_apart")],
)
def test_a_broken_environment_exits_with_1_and_says_what_to_mend(folder, name, check):
    done = run(folder, "--agent-env", f"my_envs.py:{name}")
    assert done.returncode == 1, done.stdout
    assert f"FAILED my_envs.py:{name}::{check}" in done.stdout
    assert "1 failed" in done.stdout
    assert "mend:" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_built_in_id_is_checked_in_an_empty_folder(tmp_path):
    done = run(tmp_path, "--agent-env", "AgentR1/Tool-v0", "-v", "-k", "rewards or token_exactness")
    assert done.returncode == 0, done.stdout
    assert "AgentR1/Tool-v0::token_exactness PASSED" in done.stdout


def test_several_environments_keywords_names_and_workers_go_together(folder):
    arguments = ["--agent-env", "my_envs:LetterEnv", "--agent-env", "my_envs:EchoEnv", "--agent-env-kwargs", json.dumps({"max_turns": 3})]
    done = run(folder, *arguments, "-k", "max_turns or close_twice", "-n", "1")
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_tests_run_beside_the_checks_only_where_a_path_is_given(folder):
    (folder / "test_own.py").write_text("def test_own():\n    assert False\n")
    alone = run(folder, "--agent-env", "my_envs:LetterEnv", "-k", "makes or own")
    assert alone.returncode == 0, alone.stdout
    assert "1 passed" in alone.stdout
    both = run(folder, "test_own.py", "--agent-env", "my_envs:LetterEnv", "-k", "makes or own")
    assert both.returncode == 1, both.stdout
    assert "1 failed, 1 passed" in both.stdout


def test_an_environment_that_is_not_there_is_one_failure(folder):
    done = run(folder, "--agent-env", "no_such_module:Env")
    assert done.returncode == 1, done.stdout
    assert f"1 failed, {len(CHECKS) - 1} skipped" in done.stdout
    assert "No module named 'no_such_module'" in done.stdout


@pytest.mark.parametrize("keywords", ["{", "[1]"])
def test_keywords_that_are_no_object_are_a_usage_error(folder, keywords):
    done = run(folder, "--agent-env", "my_envs:LetterEnv", "--agent-env-kwargs", keywords)
    assert done.returncode == 4
    assert "--agent-env-kwargs" in done.stderr


def test_the_plugin_file_imports_nothing_but_pytest_before_it_is_asked():
    tree = ast.parse(Path(entry().load().__file__).read_text())
    loaded = {
        name.split(".")[0]
        for node in tree.body  # not what stands under `if TYPE_CHECKING` or in functions
        for name in (
            [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []
        )
    }
    assert loaded <= {"pytest", *sys.stdlib_module_names}


def test_without_the_option_pytest_stays_as_it_was(folder):
    module = entry().module
    (folder / "test_own.py").write_text(
        "import sys\ndef test_own():\n"
        f"    assert {module!r} in sys.modules\n"
        "    for name in ('transformers', 'torch', 'agent_gym.core', 'agent_gym.testing.checks', 'agent_gym.testing.subject'):\n"
        "        assert name not in sys.modules\n"
        f"    assert {module.startswith('agent_gym.')} or not {{'agent_gym', 'gymnasium', 'numpy'}} & set(sys.modules)\n"
    )
    done = run(folder)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
