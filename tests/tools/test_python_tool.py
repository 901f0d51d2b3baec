"""`PythonTool` as a tool: what it answers, its limits as a user meets them, and its place in environments."""

import pickle
import sys
import time
from pathlib import Path

import gymnasium
import pytest

import agent_gym
from agent_gym.core import EnvFault
from agent_gym.envs.tool import ToolEnv
from agent_gym.tools import ToolContext, ToolResult, get_tool, tool_names
from agent_gym.tools.sandbox import Limits, PythonTool, Sandbox, SandboxUnavailable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Python sandbox needs Linux")
gymnasium.register_envs(agent_gym)


@pytest.fixture(scope="module")
def python() -> PythonTool:
    return PythonTool()


def ask(tool: PythonTool, code: str, **context: object) -> ToolResult:
    result = tool.execute({"code": code}, ToolContext(**context))  # type: ignore[arg-type]
    assert isinstance(result, ToolResult)
    return result


def test_it_answers_with_what_is_printed_and_the_value_of_the_last_expression(python: PythonTool) -> None:
    assert ask(python, "print('a')\nx = 6\nx * 7").text == "a\n42"
    assert ask(python, "x = 6").text == "(no output)"
    assert ask(python, "None").text == "(no output)"
    assert ask(python, "").text == "(no output)"
    assert ask(python, "'é'").text == "'é'"
    result = ask(python, "print('a'); print('b', file=__import__('sys').stderr); print('c')")
    assert result.text == "a\nb\nc"
    assert result.info == {"exit_code": 0, "limit": ""}


def test_an_error_is_shown_as_python_shows_it_and_without_a_path_of_this_machine(python: PythonTool) -> None:
    result = ask(python, "import json\ndef f(x):\n    return json.loads(x)\nf('{')")
    assert result.text.startswith('Traceback (most recent call last):\n  File "/main.py", line 4, in <module>\n')
    assert "JSONDecodeError" in result.text
    assert "<string>" not in result.text
    assert sys.base_prefix not in result.text
    assert result.info["exit_code"] == 1
    assert 'File "/main.py", line 1' in ask(python, "def f(:").text
    assert "null bytes" in ask(python, "x = '\0'").text
    assert "SyntaxError" in ask(python, "x = '\ud800'").text  # a lone surrogate, which JSON can carry
    assert "exit code 3" in ask(python, "raise SystemExit(3)").text
    assert "SIGSEGV" in ask(python, "import ctypes; ctypes.string_at(0)").text


def test_a_program_may_end_itself(python: PythonTool) -> None:
    assert ask(python, "print('a')\nexit()\nprint('b')").text == "a"
    assert ask(python, "quit()").text == "(no output)"
    result = ask(python, "exit(3)\nprint('b')")
    assert (result.text, result.info["exit_code"]) == ("Error: the program ended with exit code 3.", 3)
    assert ask(python, "print('a')\nquit(3)").text == "a\nError: the program ended with exit code 3."
    assert ask(python, "exit('there is no root')").text == "there is no root"
    assert ask(python, "exit").text == "Use exit() or the end of the program to exit"
    assert "Return the absolute value" in ask(python, "help(abs)").text


def test_nothing_is_kept_from_one_call_to_the_next(python: PythonTool) -> None:
    ask(python, "x = 1\nopen('f', 'w').write('1')\nopen('/tmp/f', 'w').write('1')\nopen('/dev/shm/f', 'w').write('1')")
    assert (
        ask(python, "import os; os.listdir('.'), os.listdir('/tmp'), os.listdir('/dev/shm'), 'x' in globals()").text
        == "([], [], [], False)"
    )


def test_the_same_call_of_the_same_episode_gives_the_same_bytes(python: PythonTool) -> None:
    code = "import random\nprint({'a', 'b', 'c', 'd'}, random.random(), hash('a'))"
    first = ask(python, code, entropy=5)
    assert ask(python, code, entropy=5).text == first.text
    assert ask(python, code, entropy=6).text != first.text


def test_the_standard_library_is_there_and_works(python: PythonTool) -> None:
    code = """
import asyncio, collections, concurrent.futures, ctypes, datetime, decimal, fractions, hashlib, itertools, json, multiprocessing, re, sqlite3
import ssl, statistics, subprocess, tempfile, threading, zlib, zoneinfo

def double(x):
    return 2 * x

print(sqlite3.connect(':memory:').execute('select 1 + 1').fetchone(), hashlib.sha256(b'').hexdigest()[:4])
with tempfile.TemporaryFile() as file:
    file.write(b'x')
async def main():
    await asyncio.sleep(0)
    return 3
print(asyncio.run(main()), list(concurrent.futures.ThreadPoolExecutor(2).map(double, range(3))))
with multiprocessing.Pool(2) as pool:
    print(pool.map(double, range(3)))
print(datetime.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo('Europe/Paris')).utcoffset() if zoneinfo.available_timezones() else '1:00:00')
print(__name__, __file__, multiprocessing.current_process().name)
"""
    assert ask(python, code).text.splitlines() == ["(2,) e3b0", "3 [0, 2, 4]", "[0, 2, 4]", "1:00:00", "__main__ /main.py MainProcess"]


def test_of_what_is_installed_only_the_packages_asked_for_can_be_imported(python: PythonTool) -> None:
    look = "import sys\nfor name in ('numpy', 'agent_gym', 'gymnasium', 'pip'):\n    try:\n        __import__(name)\n        print(name)\n    except ImportError:\n        pass"
    assert ask(python, look).text == "(no output)"
    some = PythonTool(packages=("numpy",))
    assert ask(some, look).text == "numpy"
    assert ask(some, "import numpy as np\nfloat((np.ones((50, 50)) @ np.ones((50, 50))).sum())").text == "125000.0"
    hidden = "import glob\nprint(glob.glob('/python/lib*/python*/*-packages/*') + glob.glob('/usr/lib*/python*/*-packages/*'))"
    assert ask(some, hidden).text == "[]"
    with pytest.raises(ValueError, match="not installed"):
        PythonTool(packages=("no-such-distribution",))


def test_files_that_it_may_read_are_there_and_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("17")
    tmp_path.chmod(0o755)  # where the trainer is root, the code is nobody
    tool = PythonTool(read_only=(tmp_path,))
    path = str(tmp_path / "data.txt")
    assert ask(tool, f"int(open({path!r}).read()) + 1").text == "18"
    assert "Read-only file system" in ask(tool, f"open({path!r}, 'w')").text
    with pytest.raises(ValueError, match="does not exist"):
        PythonTool(read_only=(tmp_path / "no",))
    for path in ("/", "/proc", "/etc", "/dev/shm"):
        with pytest.raises(ValueError, match="more than data"):
            PythonTool(read_only=(path,))


@pytest.mark.parametrize(
    "wrong",
    [{"time": 0}, {"time": float("nan")}, {"memory": 1}, {"memory": 1e9}, {"output": 0}, {"processes": True}, {"disk": -1}, {"files": "3"}],
)
def test_limits_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"limit {next(iter(wrong))} "):
        PythonTool(**wrong)  # type: ignore[arg-type]


def test_what_reads_its_input_finds_none_and_a_long_program_is_read_whole(python: PythonTool) -> None:
    assert "EOFError" in ask(python, "input()").text
    long = "x = 0\n" + "x += 1\n" * 20_000 + "x"
    assert ask(python, long).text == "20000"
    assert ask(python, "#" * 300_000).text.startswith("Error: the program has 300000 characters")


def test_it_is_registered_pickles_and_answers_in_an_environment_and_in_a_vector_of_them() -> None:
    assert "python" in tool_names()
    assert ask(pickle.loads(pickle.dumps(get_tool("python", time=5.0))), "2 ** 10").text == "1024"
    task = {"question": "What is 2 ** 10?", "answer": "1024"}
    env = gymnasium.make("AgentR1/Tool-v0", tools=["python", "calculator"], tasks=[task])
    env.reset(seed=0)
    base = env.unwrapped
    assert isinstance(base, ToolEnv)
    call = base.encode_action('<tool_call>\n{"name": "python", "arguments": {"code": "2 ** 10"}}\n</tool_call>' * 3)
    _observation, _reward, terminated, _truncated, info = env.step(call)
    assert (info["feedback"], terminated, info["n_tool_errors"]) == ("1024\n1024\n1024", False, 0)
    env.close()
    many = gymnasium.make_vec("AgentR1/Tool-v0", num_envs=2, vectorization_mode="async", tools=["python"], tasks=[task])
    try:
        many.reset(seed=0)
        action = many.single_action_space.pad(call)  # type: ignore[attr-defined]
        assert list(many.step([action, action])[4]["feedback"]) == ["1024\n1024\n1024"] * 2
    finally:
        many.close()


def test_the_deadline_of_the_call_ends_it_before_its_own_limit(python: PythonTool) -> None:
    started = time.monotonic()
    found = Sandbox(Limits(time=60.0)).run("while True: pass", deadline=started + 1.0)
    assert found.limit == "time"
    assert time.monotonic() - started < 30.0


def test_the_deadline_holds_for_a_sandbox_that_does_not_start_too(
    python: PythonTool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import agent_gym.tools.sandbox.process as process

    sandbox = Sandbox(Limits(time=60.0))
    (tmp_path / "launcher.py").write_text("import sys\nsys.stdin.buffer.read()")  # starts nothing, and ends when it is told to
    monkeypatch.setattr(process, "_HERE", tmp_path)
    found = sandbox.run("print(1)", deadline=time.monotonic() + 0.3)
    assert (found.output, found.exit_code, found.limit) == (b"", -9, "time")
    monkeypatch.setattr(process, "START_LIMIT", 0.3)
    with pytest.raises(EnvFault, match="did not start within"):
        sandbox.run("print(1)", deadline=time.monotonic() + 600.0)


def test_a_sandbox_that_cannot_be_started_is_a_fault_of_the_world_and_not_of_the_model(
    python: PythonTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import agent_gym.tools.sandbox.process as process

    broken = process._Runtime("/nonexistent/python")
    monkeypatch.setattr(process, "_runtime", lambda: broken)
    with pytest.raises(EnvFault, match="could not be started"):
        ask(python, "1")
    process._check.cache_clear()
    with pytest.raises(SandboxUnavailable, match="cannot start"):
        PythonTool()
    monkeypatch.undo()
    assert ask(PythonTool(), "1").text == "1"


def test_a_process_forked_during_a_run_does_not_hold_its_end_up(python: PythonTool) -> None:
    """A vector environment forks its workers while tools run; the copies of our pipes in them must not keep a run going."""
    import os
    import threading

    found = []
    running = threading.Thread(target=lambda: found.append(Sandbox(Limits(time=3.0)).run("import time\nwhile True: time.sleep(1)")))
    running.start()
    children = []
    for _ in range(8):
        time.sleep(0.15)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)
    started = time.monotonic()
    running.join(50.0)
    assert [one.limit for one in found] == ["time"]
    assert time.monotonic() - started < 25.0
    for child in children:
        os.kill(child, 9)
        os.waitpid(child, 0)
