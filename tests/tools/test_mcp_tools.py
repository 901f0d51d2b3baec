"""Tools of Model Context Protocol servers, with real servers of the package over standard input and output and over HTTP, and with servers that misbehave."""

import contextlib
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from helpers import require

import agent_gym
from agent_gym.core import EnvFault
from agent_gym.envs.tool import ToolEnv
from agent_gym.envs.tool_tasks import ToolTaskEnv
from agent_gym.flows import run_rows
from agent_gym.policies import ScriptedPolicy
from agent_gym.tools import CallResult, ToolCall, ToolSet, run_calls
from agent_gym.tools.mcp import MCPTools, _Session
from agent_gym.trajectory import StopReason

require("mcp")
gymnasium.register_envs(agent_gym)
HERE = Path(__file__).parent
TASKS = [{"question": "What?", "answer": "3"}]


def raw(mode: str = "good", **given: Any) -> MCPTools:
    return MCPTools([sys.executable, "-I", "-S", str(HERE / "mcp_raw_server.py"), mode], **given)


def ask(tools: ToolSet, name: str, **arguments: Any) -> CallResult:
    return run_calls(tools, [ToolCall(name, arguments, "")])[0]


def call_text(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(process: int, within: float = 30.0) -> bool:
    end = time.monotonic() + within
    while alive(process) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(process)


def children() -> set[str]:
    return set(" ".join(one.read_text() for one in Path("/proc/self/task").glob("*/children")).split())


@contextlib.contextmanager
def opened(*tools: Any) -> Iterator[ToolSet]:
    made = ToolSet(tools)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def over_http() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, str(HERE / "mcp_server.py"), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            for _ in range(600):
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                assert server.poll() is None
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/mcp", server
        finally:
            server.kill()


# ------------------------------------------------------------------------------------------------ what a real server's tools answer


@pytest.fixture(scope="module", params=["stdio", "http"])
def real(request: pytest.FixtureRequest) -> Iterator[ToolSet]:
    """The tools of a real server of the package."""
    with contextlib.ExitStack() as stack:
        server: Any = [sys.executable, str(HERE / "mcp_server.py")]
        if request.param == "http":
            server, _process = stack.enter_context(over_http())
        yield stack.enter_context(opened(MCPTools(server, timeout=20.0, start_timeout=120.0)))


def test_a_real_server_is_called_and_its_arguments_are_checked(real: ToolSet) -> None:
    assert ask(real, "add", a=1, b=2).text == "3"
    assert real["add"].description == "Add two whole numbers."
    wrong = ask(real, "add", a="x", b=2)
    assert wrong.error == "invalid_arguments"
    assert "'x' is not of type 'integer'" in wrong.text
    assert ask(real, "odd_name_with_blanks", value={"a": [1]}).text == "{'a': [1]}"


def test_every_kind_of_content_becomes_text(real: ToolSet) -> None:
    assert ask(real, "everything").text.splitlines() == [
        "first",
        "[image: image/png, 5 bytes, not shown]",
        "[resource: page, file:///page]",
        "embedded",
        "[resource: file:///blob, application/pdf, 6 bytes, not shown]",
    ]
    found = ask(real, "structured")
    assert json.loads(found.text) == found.info["structured"] == {"city": "Zürich", "degrees": 21}
    assert ask(real, "nothing").text == ""
    huge = ask(real, "huge").text
    assert huge.startswith("x" * 65_536 + "\n[cut: the result has 1000000 characters]")
    assert len(huge) < 66_000


def test_errors_of_tools_are_texts_for_the_model(real: ToolSet) -> None:
    refused = ask(real, "refuse")
    assert (refused.text, refused.error, refused.info["is_error"]) == ("Error: no such city", None, True)
    failed = ask(real, "boom")
    assert failed.text.startswith("Error")
    assert failed.info["is_error"]
    assert ask(real, "add", a=2, b=2).text == "4", "the session goes on"


def test_rubbish_on_standard_output_and_much_on_standard_error_do_no_harm(real: ToolSet, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(real, "rubbish").text == "and then an answer"
    assert ask(real, "talks").text == "said"
    assert ask(real, "add", a=1, b=1).text == "2"
    assert capfd.readouterr() == ("", "")


def test_calls_of_one_turn_run_at_the_same_time(real: ToolSet) -> None:
    results = run_calls(real, [ToolCall("meets", {"others": 4}, "")] * 4)
    assert [one.text for one in results] == ["met"] * 4, (
        "each answers when all four are there; one after the other, the first would time out"
    )


def test_five_hundred_calls_leave_files_processes_and_threads_as_they_were(real: ToolSet) -> None:
    server = int(ask(real, "pid").text)

    def held() -> tuple[int, int, int, int]:
        ours, theirs = (len(os.listdir(f"/proc/{one}/fd")) for one in (os.getpid(), server))
        return ours, theirs, len(children()), threading.active_count()

    for _ in range(10):
        ask(real, "count")
    before = held()
    first = int(ask(real, "count").text)
    for _ in range(125):
        run_calls(real, [ToolCall("count", {}, "")] * 4)
    assert int(ask(real, "count").text) == first + 501, "every call was carried out once"
    after = held()
    assert all(new <= old + 2 for old, new in zip(before, after, strict=True)), f"{before} -> {after}"


def test_a_slow_tool_is_given_up_and_the_session_goes_on() -> None:
    with opened(raw(timeout=0.5)) as tools:
        late = ask(tools, "silent")
        assert (late.error, late.text) == ("timeout", "Error (timeout): silent did not answer within 0.5 seconds.")
        assert ask(tools, "echo", text="there").text == "there"


# ------------------------------------------------------------------------------------------------ in environments


def test_an_environment_shows_calls_and_closes_it_and_its_tools_stay_the_same() -> None:
    spec = MCPTools([sys.executable, str(HERE / "mcp_server.py")], tools=["add", "hostile", "pid"], timeout=20.0, start_timeout=120.0)
    env = gymnasium.make("AgentR1/Tool-v0", tools=[spec, "calculator"], tasks=TASKS)
    base = env.unwrapped
    assert isinstance(base, ToolEnv)
    observation, info = env.reset(seed=0)
    assert list(base.tool_set) == ["add", "hostile", "pid", "calculator"]
    assert '"add"' in base.decode(observation, info)
    act = base.encode_action(call_text("add", a=1, b=2) + call_text("calculator", expression="2+2") + call_text("pid"))
    info = env.step(act)[4]
    total, four, first = info["feedback"].split("\n")
    assert (total, four) == ("3", "4")
    # What a server writes forges neither a turn nor a call.
    observation, _reward, terminated, _truncated, info = env.step(base.encode_action(call_text("hostile")))
    assert not terminated
    ends = [one for one in observation[: info["observation_length"]].tolist() if one in base.end_of_turn_ids]
    env.reset(seed=0)
    env.step(act)
    observation, *_rest, info = env.step(base.encode_action(call_text("add", a=1, b=2)))
    assert ends == [one for one in observation[: info["observation_length"]].tolist() if one in base.end_of_turn_ids]
    server = int(first)
    env.close()
    assert gone(server, within=0.5)
    env.close()


def test_a_server_that_dies_is_a_fault_of_the_world_and_the_next_reset_has_another() -> None:
    env = ToolEnv(tools=[raw()], tasks=TASKS)
    env.reset(seed=0)
    schemas = env.tool_set.schemas
    first = int(env.step(env.encode_action(call_text("pid")))[4]["feedback"])
    _observation, reward, terminated, truncated, info = env.step(env.encode_action(call_text("die")))
    assert (reward, terminated, truncated, info["stop_reason"], info["env_fault"]) == (0.0, False, True, StopReason.ENV_FAULT, True)
    assert "it wrote: the server dies of the test" in info["feedback"]
    assert gone(first)
    env.reset(seed=1)
    second = int(env.step(env.encode_action(call_text("pid")))[4]["feedback"])
    assert second != first
    env.reset(seed=2)
    assert env.step(env.encode_action(call_text("pid")))[4]["feedback"] == str(second), "a session lasts as long as it can"
    assert env.tool_set.schemas == schemas
    os.kill(second, signal.SIGKILL)  # between two calls
    assert env.step(env.encode_action(call_text("pid")))[4]["stop_reason"] is StopReason.ENV_FAULT
    env.reset(seed=3)
    env.close()


def test_a_fault_comes_out_of_reset_while_the_server_stays_away() -> None:
    with over_http() as (url, server):
        env = ToolEnv(tools=[MCPTools(url, start_timeout=60.0)], tasks=TASKS)
        env.reset(seed=0)
        assert env.step(env.encode_action(call_text("add", a=1, b=2)))[4]["feedback"] == "3"
        server.kill()
        server.wait()
        info = env.step(env.encode_action(call_text("add", a=1, b=2)))[4]
        assert info["stop_reason"] is StopReason.ENV_FAULT
        with pytest.raises(EnvFault, match="could not be opened"):
            env.reset(seed=0)
        env.close()


def test_each_environment_of_a_vector_has_a_server_of_its_own() -> None:
    for mode in ("sync", "async"):
        many = gymnasium.make_vec("AgentR1/Tool-v0", num_envs=2, vectorization_mode=mode, tools=[raw()], tasks=TASKS)
        try:
            many.reset(seed=0)
            example = ToolEnv(tasks=TASKS)
            action = many.single_action_space.pad(example.encode_action(call_text("pid")))  # type: ignore[attr-defined]
            servers = {int(one) for one in many.step([action, action])[4]["feedback"]}
            assert len(servers) == 2
            assert all(map(alive, servers))
        finally:
            many.close()
        assert all(map(gone, servers))


def test_spawned_workers_open_their_own() -> None:
    make = "agent_gym:AgentR1/Tool-v0"
    many = gymnasium.make_vec(
        make, num_envs=1, vectorization_mode="async", vector_kwargs={"context": "spawn"}, tools=[raw(tools=["pid"])], tasks=TASKS
    )
    try:
        many.reset(seed=0)
        action = many.single_action_space.pad(ToolEnv(tasks=TASKS).encode_action(call_text("pid")))  # type: ignore[attr-defined]
        server = int(many.step([action])[4]["feedback"][0])
        assert alive(server)
    finally:
        many.close()
    assert gone(server)


def test_many_episodes_at_once_in_an_event_loop_have_sessions_of_their_own() -> None:
    before = children()

    def make(row: Any) -> ToolTaskEnv:
        return ToolTaskEnv(tools=[raw(tools=["count", "echo", "pid"])], tasks=TASKS)

    rows = [{"env_id": "", "env_kwargs": {}, "seed": seed} for seed in range(6)]
    policy = ScriptedPolicy([call_text("count"), call_text("count") + call_text("pid"), "<answer>3</answer>"])
    result = run_rows(rows, policy, env_factory=make, max_concurrency=3)
    texts = [trajectory.steps[1].feedback.split("\n") for trajectory in result.trajectories]
    assert all(trajectory.stop_reason is StopReason.ANSWER for trajectory in result.trajectories)
    assert len({server for _count, server in texts}) <= 3, "an environment keeps its session from episode to episode"
    for _count, server in texts:
        assert gone(int(server))
    assert children() <= before


def test_a_fresh_session_for_every_episode_forgets_the_last_one() -> None:
    for fresh, expected in ((False, ["1", "2"]), (True, ["1", "1"])):
        env = ToolEnv(tools=[raw(fresh=fresh)], tasks=TASKS)
        seen = []
        for _ in range(2):
            env.reset(seed=0)
            seen.append(env.step(env.encode_action(call_text("count")))[4]["feedback"])
        env.close()
        assert seen == expected


# ------------------------------------------------------------------------------------------------ the life of a session


def test_nothing_is_open_before_an_environment_and_copies_open_their_own() -> None:
    before = children()
    spec = pickle.loads(pickle.dumps(raw()))
    assert spec == raw()
    assert children() == before
    with opened(spec) as tools:
        first = ask(tools, "pid").text
        copy = pickle.loads(pickle.dumps(tools))
        with pytest.raises(EnvFault, match="closed; reset"):
            ask(copy, "pid")
        copy.begin_episode()
        second = ask(copy, "pid").text
        assert second != first
        assert copy.schemas == tools.schemas
        copy.close()
        assert ask(tools, "pid").text == first


def test_the_child_of_a_fork_leaves_its_parents_session_alone_and_opens_its_own() -> None:
    with opened(raw()) as tools:
        first = ask(tools, "pid").text
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            said = "nothing"
            try:
                try:
                    said = ask(tools, "pid").text
                except EnvFault:
                    tools.begin_episode()
                    said = f"own {ask(tools, 'pid').text != first}"
                    tools.close()
            except BaseException as error:  # noqa: BLE001  # the parent tells it
                said = repr(error)
            finally:
                os.write(write, said.encode())
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            assert file.read() == "own True"
        os.waitpid(child, 0)
        assert ask(tools, "pid").text == first


def test_a_session_ends_with_close_with_the_collector_and_with_an_environment_that_fails_to_be_made() -> None:
    before = children()
    tools = ToolSet([raw()])
    server = int(ask(tools, "pid").text)
    del tools
    gc.collect()
    assert gone(server)
    env = ToolEnv(tools=[raw()], tasks=TASKS)
    env.reset(seed=0)
    server = int(env.step(env.encode_action(call_text("pid")))[4]["feedback"])
    del env
    gc.collect()
    assert gone(server)
    with pytest.raises(ValueError, match="two tools are named 'echo'"):
        ToolSet([raw(), raw()])
    with pytest.raises(ValueError, match="no tool 'no'"):
        ToolSet([raw(tools=["no"])])
    deadline = time.monotonic() + 20.0
    while not children() <= before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children() <= before
    with opened(raw(), raw(prefix="other_")) as both:
        assert ask(both, "other_echo", text="x").text == "x"
        assert both["other_echo"].name == "other_echo"


def test_a_session_ends_with_the_process_however_that_ends(tmp_path: Path) -> None:
    script = tmp_path / "play.py"
    script.write_text(f"""
import os, signal, sys
from agent_gym.tools import ToolCall, ToolSet, run_calls
from agent_gym.tools.mcp import MCPTools
for end in ("exit", "exception", "kill"):
    sys.stdout.flush()
    if os.fork() == 0:
        tools = ToolSet([MCPTools({raw().command!r})])
        print(end, run_calls(tools, [ToolCall("pid", {{}}, "")])[0].text, flush=True)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.exit() if end == "exit" else 1 / 0
    print(os.waitstatus_to_exitcode(os.wait()[1]))
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    lines = [one.split() for one in done.stdout.splitlines()]
    assert [one[0] for one in lines] == ["exit", "0", "exception", "1", "kill", "-9"], done.stderr
    assert done.stderr.count("Traceback") == 1
    assert all(gone(int(one[1])) for one in lines[::2])


def test_a_server_that_will_not_end_is_killed() -> None:
    tools = ToolSet([raw("stubborn")])
    server = int(ask(tools, "pid").text)
    tools.close()
    assert gone(server, within=1.0)


# ------------------------------------------------------------------------------------------------ servers that misbehave


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (["/nonexistent/server"], "FileNotFoundError"),
        (raw("leaves").command, "no licence for this server"),
        (raw("mute").command, "did not list its tools within 1 seconds"),
        (raw("noise").command, "did not list its tools within 1 seconds"),
        ("http://127.0.0.1:9/mcp", "could not be opened"),
    ],
)
def test_a_server_that_does_not_start_is_a_fault_that_says_why_and_leaves_nothing(server: Any, message: str) -> None:
    files, before = len(os.listdir("/proc/self/fd")), children()
    with pytest.raises(EnvFault, match=message):
        ToolSet([MCPTools(server, start_timeout=1.0 if "within" in message else 30.0)])
    assert children() <= before
    assert len(os.listdir("/proc/self/fd")) <= files + 4  # the loop's own


def test_a_web_server_that_is_none_of_this_protocol_is_a_fault() -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "4")
            self.end_headers()
            self.wfile.write(b"nope")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        with pytest.raises(EnvFault, match="could not be opened"):
            MCPTools(f"http://someone:secret@127.0.0.1:{web.server_port}/mcp?token=secret").open()
        web.shutdown()


def test_the_name_of_a_server_in_messages_holds_no_secret() -> None:
    assert MCPTools("https://me:secret@host/mcp?key=secret").label == "host/mcp"
    assert MCPTools("/usr/bin/server --token secret").label == "server"
    assert MCPTools("python server.py secret").label == "python server.py"


def test_one_that_talks_beside_the_protocol_is_understood_and_an_endless_list_is_cut() -> None:
    with opened(raw("chatty")) as tools:
        assert ask(tools, "echo", text="a").text == "a"
    with opened(raw("endless")) as tools:
        assert len(tools) == 1000


def test_errors_of_the_protocol_are_texts_and_answers_that_are_none_are_faults() -> None:
    with opened(raw()) as tools:
        for code in (-32602, -32603, -32600, 0, 42):
            said = ask(tools, "code", code=code)
            assert (said.error, said.text.endswith("the server said no")) == ("exception", True)
        with pytest.raises(EnvFault, match="what is no result"):
            ask(tools, "malformed")
        with pytest.raises(EnvFault, match="closed"):
            ask(tools, "echo", text="a")
        tools.begin_episode()
        assert ask(tools, "echo", text="a").text == "a"
        with pytest.raises(EnvFault):
            run_calls(tools, [ToolCall("silent", {}, ""), ToolCall("die", {}, ""), ToolCall("silent", {}, "")])


# ------------------------------------------------------------------------------------------------ schemas and names


def listed(*tools: dict[str, Any]) -> dict[str, Any]:
    session = _Session(MCPTools("none"), [{"inputSchema": {"type": "object"}, **one} for one in tools])
    return {one.name: one for one in session.tools}


def test_names_become_such_as_every_format_can_write_and_stay_apart() -> None:
    long = "n" * 100
    names = listed(
        {"name": "a b"},
        {"name": "a/b"},
        {"name": "a b"},
        {"name": "1st"},
        {"name": ""},
        {"name": long},
        {"name": long + "x"},
        {"name": "ü"},
    )
    assert list(names) == ["a_b", "a_b_2", "_1st", "_", "n" * 64, "n" * 62 + "_2", "__2"]
    for one in names.values():
        one.check()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}},  # draft 4
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema"}}},
        {"type": "object", "properties": {"a": {"type": "no such type"}}},
        {"type": "object", "required": True},
        {"type": "array"},
        {"type": ["object", "null"]},
        {"properties": []},
    ],
)
def test_a_schema_that_cannot_be_used_is_told_in_words_and_the_server_checks(schema: dict[str, Any]) -> None:
    (one,) = listed({"name": "odd", "description": "Odd.", "inputSchema": schema}).values()
    assert one.description == f"Odd.\nArguments: {json.dumps(schema)}"
    assert one.check().error({"a": 1}) is None
    json.dumps(one.schema)


def test_other_schemas_are_used_as_they_are() -> None:
    shared = {
        "$defs": {"p": {"type": "integer"}},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/p"}},
        "$schema": "http://json-schema.org/draft-07/schema#",
    }
    (one,) = listed({"name": "ok", "inputSchema": shared}).values()
    assert dict(one.parameters) == shared
    assert one.check().error({"a": 1}) is None
    assert one.check().error({"a": "x"}) is not None
    (bare,) = listed({"name": "bare", "inputSchema": {}}).values()
    assert dict(bare.parameters) == {"type": "object"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"server": ""}, "command"),
        ({"server": []}, "command"),
        ({"server": [1]}, "command"),
        ({"server": 7}, "neither"),
        ({"server": "a 'b"}, "neither"),
        ({"server": "ftp://127.0.0.1/tools"}, "begins with http"),
        ({"server": "a\0b"}, "command"),
        ({"server": "a", "timeout": 0}, "timeout is 0"),
        ({"server": "a", "start_timeout": float("nan")}, "start_timeout is nan"),
        ({"server": "a", "tools": "echo"}, "give a list"),
    ],
)
def test_what_is_no_server_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MCPTools(**given)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ImportError, match=r"agentr1-gym\[mcp\]"):
        MCPTools("server")
