"""Running calls: errors, time limits, threads, event loops, order, and faults."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from agent_gym._background import WorkerThreads, background, never_waits
from agent_gym.core import EnvFault
from agent_gym.tools import ERROR_KINDS, BaseTool, CallResult, ToolCall, ToolContext, ToolResult, ToolSet, arun_calls, run_calls, tool


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments, "")


class Named(BaseTool):
    """A tool whose work is given; `description` and schema do not matter here."""

    parameters = {"type": "object", "properties": {}}  # noqa: RUF012

    def __init__(self, name: str, work: Callable[[dict[str, Any], ToolContext], Any], timeout: float | None = None) -> None:
        self.work = work
        self.timeout = timeout
        super().__init__(name=name)

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        return self.work(arguments, context)


class Waiting(Named):
    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:  # type: ignore[override]
        return await self.work(arguments, context)


class AtOnce(Named):
    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> Any:  # type: ignore[override]
        return self.work(arguments, context)


def raising(error: BaseException) -> Callable[..., Any]:
    def work(arguments: dict[str, Any], context: ToolContext) -> Any:
        raise error

    return work


def araising(error: BaseException) -> Callable[..., Any]:
    async def work(arguments: dict[str, Any], context: ToolContext) -> Any:
        await asyncio.sleep(0)
        raise error

    return work


def sleeping(seconds: float, text: str = "slept") -> Callable[..., Any]:
    async def work(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        await asyncio.sleep(seconds)
        return ToolResult(text)

    return work


def both(tools: ToolSet, calls: list[ToolCall], **kwargs: Any) -> list[CallResult]:
    """The results of the synchronous and the asynchronous way, which must be the same."""
    one = run_calls(tools, calls, **kwargs)
    two = asyncio.run(arun_calls(tools, calls, **kwargs))
    assert one == two
    return one


def ok(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    return ToolResult("ok")


# ------------------------------------------------------------------------------------------------ errors are texts


def test_every_kind_of_error_is_one_stable_line() -> None:
    @tool
    def add(a: int) -> str:
        """Add.

        Args:
            a: it.
        """
        return str(a + 1)

    tools = ToolSet([add, Named("broken", raising(KeyError("it\nis gone at 0x7f3a12345678"))), Waiting("late", sleeping(60), timeout=0.05)])
    calls = [
        call("ad"),
        ToolCall("", {}, "", "it is empty"),
        call("add", a="x"),
        call("late"),
        call("broken"),
        call("add", a=1),
        call("add", a=2),
    ]
    results = both(tools, calls, max_parallel_calls=6)
    assert [one.error for one in results] == ["unknown_tool", "invalid_json", "invalid_arguments", "timeout", "exception", None, "limit"]
    assert set(ERROR_KINDS) == {one.error for one in results} - {None}
    assert [one.text for one in results] == [
        "Error (unknown_tool): there is no tool named 'ad'; the tools are: add, broken, late; did you mean 'add'?",
        "Error (invalid_json): the call was not run: it is empty.",
        "Error (invalid_arguments): add was not run: a: 'x' is not of type 'integer'.",
        "Error (timeout): late did not answer within 0.05 seconds.",
        "Error (exception): broken failed: KeyError: 'it\\nis gone at 0x...'",
        "2",
        "Error (limit): the call was not run: at most 6 calls are run in one turn.",
    ]


class Odd(BaseException):
    """No Exception, as some libraries raise to get through everything."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        SystemExit(3),
        Odd("x"),
        GeneratorExit(),
        Unspeakable(),
        StopIteration(1),
        asyncio.CancelledError(),
        RecursionError("deep"),
        MemoryError(),
    ],
)
@pytest.mark.parametrize("kind", ["inline", "thread", "driven", "waiting"])
def test_whatever_a_tool_raises_is_its_own_error(error: BaseException, kind: str) -> None:
    made = {
        "inline": lambda: Named("t", raising(error)),
        "thread": lambda: Named("t", raising(error), timeout=5.0),
        "driven": lambda: AtOnce("t", raising(error), timeout=5.0),
        "waiting": lambda: Waiting("t", araising(error), timeout=5.0),
    }[kind]()
    results = both(ToolSet([made, Named("good", ok)]), [call("t"), call("good")])
    assert [one.error for one in results] == ["exception", None]
    assert results[0].text.startswith("Error (exception): t failed: ")
    assert "Traceback" not in results[0].text


@pytest.mark.parametrize("kind", ["inline", "thread", "driven", "waiting"])
def test_a_fault_of_the_world_goes_through(kind: str) -> None:
    fault = EnvFault("the server is down")
    made = {
        "inline": lambda: Named("t", raising(fault)),
        "thread": lambda: Named("t", raising(fault), timeout=5.0),
        "driven": lambda: AtOnce("t", raising(fault), timeout=5.0),
        "waiting": lambda: Waiting("t", araising(fault), timeout=5.0),
    }[kind]()
    tools = ToolSet([Waiting("other", sleeping(30)), made])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(EnvFault, match="server is down"):
            run_calls(tools, [call("other"), call("t")])
        with pytest.raises(EnvFault, match="server is down"):
            asyncio.run(arun_calls(tools, [call("other"), call("t")]))
        gc.collect()


def test_a_person_can_interrupt_a_tool() -> None:
    with pytest.raises(KeyboardInterrupt):
        run_calls(ToolSet([Named("t", raising(KeyboardInterrupt()))]), [call("t")])


@pytest.mark.parametrize("value", [None, 3, ToolResult(3), object])  # type: ignore[arg-type]
def test_a_tool_that_returns_no_text_is_told_so(value: Any) -> None:
    results = both(ToolSet([Named("t", lambda arguments, context: value)]), [call("t")])
    assert results[0].error == "exception"
    assert "instead of a text" in results[0].text


def test_a_plain_string_is_a_result() -> None:
    assert both(ToolSet([Named("t", lambda arguments, context: "hello")]), [call("t")])[0].text == "hello"


def test_reward_end_and_info_of_a_tool_come_through() -> None:
    given = ToolResult("bye", 0.5, True, {"answer": "4"})
    for made in (Named("t", lambda a, c: given), Named("t", lambda a, c: given, timeout=5.0), AtOnce("t", lambda a, c: given, timeout=5.0)):
        result = both(ToolSet([made]), [call("t")])[0]
        assert (result.text, result.reward, result.terminated, result.info) == ("bye", 0.5, True, {"answer": "4"})


# ------------------------------------------------------------------------------------------------ time


def test_a_synchronous_tool_that_never_returns_ends_at_its_deadline() -> None:
    release = threading.Event()
    tools = ToolSet([Named("hang", lambda a, c: release.wait(60), timeout=0.1), Named("good", ok)])
    try:
        start = time.monotonic()
        results = both(tools, [call("hang"), call("good")])
        assert time.monotonic() - start < 5.0
        assert [one.error for one in results] == ["timeout", None]
    finally:
        release.set()


def test_a_coroutine_that_refuses_to_be_cancelled_ends_at_its_deadline() -> None:
    async def stubborn(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.5)
        return ToolResult("late")

    tools = ToolSet([Waiting("hang", stubborn, timeout=0.1)])
    start = time.monotonic()
    assert run_calls(tools, [call("hang")])[0].error == "timeout"
    assert time.monotonic() - start < 2.0


def test_a_coroutine_that_blocks_the_loop_ends_at_its_deadline_and_the_next_call_has_a_new_loop() -> None:
    release = threading.Event()

    async def blocking(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        await asyncio.sleep(0)
        release.wait(30)
        return ToolResult("late")

    tools = ToolSet([Waiting("block", blocking, timeout=0.1), Waiting("good", sleeping(0.0))])
    try:
        start = time.monotonic()
        assert run_calls(tools, [call("block")])[0].error == "timeout"
        assert run_calls(tools, [call("good")])[0].text == "slept"
        assert time.monotonic() - start < 10.0
    finally:
        release.set()


def test_calls_of_a_turn_run_at_the_same_time_and_are_answered_in_order() -> None:
    barrier = threading.Barrier(3)

    def meet(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        barrier.wait(10)
        return ToolResult(f"met {context.index}")

    tools = ToolSet([Named("meet", meet, timeout=20.0), Waiting("wait", sleeping(0.05)), Named("now", ok)])
    calls = [call("wait"), call("meet"), call("now"), call("meet"), call("meet")]
    for results in (run_calls(tools, calls, max_parallel_calls=5), asyncio.run(arun_calls(tools, calls, max_parallel_calls=5))):
        assert [one.text for one in results] == ["slept", "met 1", "ok", "met 3", "met 4"]
        barrier.reset()


def test_two_waiting_tools_need_each_other_and_both_answer() -> None:
    async def first(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        context.state["event"] = event = asyncio.Event()
        await asyncio.wait_for(event.wait(), 10)
        return ToolResult("heard")

    async def second(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        while "event" not in context.state:
            await asyncio.sleep(0)
        context.state["event"].set()
        return ToolResult("said")

    tools = ToolSet([Waiting("first", first, timeout=20.0), Waiting("second", second, timeout=20.0)])
    assert [one.text for one in run_calls(tools, [call("first"), call("second")], ToolContext())] == ["heard", "said"]


def test_time_of_the_waiting_begins_when_the_waiting_does() -> None:
    tools = ToolSet([Waiting("wait", sleeping(0.01), timeout=0.2), Named("busy", lambda a, c: time.sleep(0.4) or ToolResult("busy"))])  # type: ignore[func-returns-value]
    assert [one.error for one in run_calls(tools, [call("wait"), call("busy")])] == [None, None]


# ------------------------------------------------------------------------------------------------ loops, threads, processes


def test_synchronous_steps_work_inside_a_running_event_loop() -> None:
    tools = ToolSet([Waiting("wait", sleeping(0.01)), AtOnce("now", ok, timeout=5.0), Named("thread", ok, timeout=5.0)])

    async def notebook_cell() -> list[CallResult]:
        return run_calls(tools, [call("wait"), call("now"), call("thread")])

    assert [one.text for one in asyncio.run(notebook_cell())] == ["slept", "ok", "ok"]


def test_a_tool_that_runs_calls_itself_inside_the_background_loop_does_not_wait_for_itself() -> None:
    inner = ToolSet([Waiting("inner", sleeping(0.01, "inside"))])

    async def outer(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult(run_calls(inner, [call("inner")])[0].text)

    assert run_calls(ToolSet([Waiting("outer", outer, timeout=10.0)]), [call("outer")])[0].text == "inside"


def test_an_asynchronous_function_runs_in_the_callers_loop_when_awaited() -> None:
    async def which(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult(str(id(asyncio.get_running_loop())))

    tools = ToolSet([Waiting("which", which, timeout=10.0)])

    async def main() -> None:
        here = str(id(asyncio.get_running_loop()))
        assert (await arun_calls(tools, [call("which")]))[0].text == here
        assert run_calls(tools, [call("which")])[0].text != here

    asyncio.run(main())


def test_a_cancelled_turn_cancels_its_tools() -> None:
    seen: list[str] = []

    async def work(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return ToolResult("no")

    async def main() -> None:
        task = asyncio.ensure_future(arun_calls(ToolSet([Waiting("t", work, timeout=30.0)]), [call("t")]))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert seen == ["cancelled"]


def test_a_coroutine_without_waiting_is_driven_by_hand_on_the_callers_thread() -> None:
    here: list[int] = []

    def note(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        here.append(threading.get_ident())
        return ToolResult("ok")

    @tool
    async def quick(a: int) -> str:
        """Quick.

        Args:
            a: it.
        """
        here.append(threading.get_ident())
        return str(a)

    assert [one.text for one in run_calls(ToolSet([AtOnce("note", note, timeout=5.0), quick]), [call("note"), call("quick", a=1)])] == [
        "ok",
        "1",
    ]
    assert here == [threading.get_ident()] * 2


def test_only_code_without_waiting_counts_as_such() -> None:
    async def quick() -> int:
        return sum(one for one in range(3))

    async def awaits() -> None:
        await quick()

    async def loops() -> None:
        async for _ in awaits():  # type: ignore[attr-defined]
            pass

    async def enters() -> None:
        async with asyncio.Lock():
            pass

    async def comprehends() -> list[int]:
        return [one async for one in loops()]  # type: ignore[attr-defined]

    assert never_waits(quick)
    assert [never_waits(one) for one in (awaits, loops, enters, comprehends, print)] == [False] * 5
    assert never_waits(AtOnce("t", ok).execute)
    assert not never_waits(Waiting("t", sleeping(0)).execute)


def test_five_hundred_calls_leave_the_number_of_threads_flat() -> None:
    tools = ToolSet([Named("thread", ok, timeout=5.0), Waiting("wait", sleeping(0.0))])
    calls = [call("thread"), call("wait"), call("thread"), call("thread")]
    run_calls(tools, calls)
    time.sleep(0.05)
    before = threading.active_count()
    for _ in range(500):
        assert all(one.error is None for one in run_calls(tools, calls))
    assert threading.active_count() <= before + 3
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(50):
        run_calls(tools, calls)
    assert not descriptors or len(os.listdir("/proc/self/fd")) <= descriptors


def test_worker_threads_are_used_again() -> None:
    pool = WorkerThreads()
    names = set()
    for _ in range(20):
        names.add(pool.submit(threading.get_ident).result(5))
    assert len(names) == 1


def _child(queue: Any) -> None:
    tools = ToolSet([Waiting("wait", sleeping(0.0)), Named("thread", ok, timeout=5.0)])
    queue.put([one.text for one in run_calls(tools, [call("wait"), call("thread")])])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_has_its_own_loop_and_threads(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    tools = ToolSet([Waiting("wait", sleeping(0.0)), Named("thread", ok, timeout=5.0)])
    run_calls(tools, [call("wait"), call("thread")])  # the parent's own are running
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_child, args=(queue,))
    process.start()
    try:
        assert queue.get(timeout=60) == ["slept", "ok"]
    finally:
        process.join(10)
        if process.is_alive():
            process.kill()


def test_a_hanging_tool_does_not_keep_the_process_from_ending() -> None:
    import subprocess
    import sys

    code = (
        "import time\nfrom agent_gym.tools import *\n"
        "@tool(timeout=0.1)\ndef hang() -> str:\n    '''Hang.'''\n    time.sleep(600)\n"
        "print(run_calls(ToolSet([hang]), [ToolCall('hang', {}, '')])[0].error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "timeout"


# ------------------------------------------------------------------------------------------------ tool sets


def test_two_tools_of_one_name_and_things_that_are_no_tools_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools are named 'a'"):
        ToolSet([Named("a", ok), Named("a", ok)])
    with pytest.raises(TypeError, match="typed function"):
        ToolSet([ok])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="there is no tool named"):
        ToolSet(["no_such_tool"])


def test_a_tool_set_is_a_mapping_with_schemas() -> None:
    tools = ToolSet(["calculator", Named("a", ok)])
    assert list(tools) == ["calculator", "a"]
    assert len(tools) == 2
    assert [one["function"]["name"] for one in tools.schemas] == ["calculator", "a"]


def test_state_is_shared_by_the_calls_of_an_episode() -> None:
    def count(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        context.state["n"] = context.state.get("n", 0) + 1
        return ToolResult(str(context.state["n"]))

    context = ToolContext(state={})
    assert [one.text for one in run_calls(ToolSet([Named("count", count)]), [call("count")] * 3, context)] == ["1", "2", "3"]
    assert context.state == {"n": 3}


def test_the_background_loop_is_one_per_process() -> None:
    tools = ToolSet([Waiting("wait", sleeping(0.0))])
    for _ in range(5):
        run_calls(tools, [call("wait")])
    assert sum(one.name == "agent-gym-tools" and one is background._thread for one in threading.enumerate()) == 1


def test_calls_that_were_given_up_before_they_began_leave_no_dead_worker() -> None:
    pool = WorkerThreads()
    pool.submit(lambda: None).result(timeout=5)
    inbox = pool._idle.get(timeout=5)  # of the only thread, as `submit` takes it
    given_up: Future[Any] = Future()
    given_up.cancel()
    ran: list[str] = []
    inbox.put((given_up, lambda: ran.append("given up")))
    deadline = time.monotonic() + 5
    while pool._idle.empty() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert pool.submit(lambda: "fine").result(timeout=5) == "fine"
    assert not ran, "a call that was given up is not run"


def test_a_world_that_breaks_takes_no_worker_from_later_calls() -> None:
    broken = [True]

    def work(arguments: dict[str, Any], context: ToolContext) -> str:
        if broken[0]:
            raise EnvFault("down")
        return "fine"

    tools = ToolSet([Named("z", work, timeout=2.0)])
    for _ in range(30):
        broken[0] = True
        with pytest.raises(EnvFault):
            run_calls(tools, [call("z")] * 4)
        broken[0] = False
        assert [one.text for one in run_calls(tools, [call("z")] * 4)] == ["fine"] * 4


@pytest.mark.parametrize("reward", ["1", b"1", float("nan"), float("inf"), -float("inf"), (1.0,), 10**400, object()])
@pytest.mark.parametrize("kind", [Named, Waiting, AtOnce])
@pytest.mark.parametrize("timeout", [None, 5.0])
def test_a_reward_that_is_no_finite_number_is_refused_with_the_name_of_the_tool(reward: Any, kind: Any, timeout: float | None) -> None:
    async def later(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        await asyncio.sleep(0)
        return ToolResult("x", reward=reward)

    def now(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult("x", reward=reward)

    tools = ToolSet([kind("payer", later if kind is Waiting else now, timeout)])
    with pytest.raises(ValueError, match=r"'payer' returned ToolResult\(reward=.* finite number"):
        run_calls(tools, [call("payer")])
    with pytest.raises(ValueError, match=r"'payer' returned ToolResult\(reward=.* finite number"):
        asyncio.run(arun_calls(tools, [call("payer")]))


@pytest.mark.parametrize(("reward", "paid"), [(None, None), (True, 1.0), (2, 2.0), (np.float32(0.5), 0.5), (np.array(0.25), 0.25)])
def test_every_finite_number_is_a_reward(reward: Any, paid: float | None) -> None:
    (result,) = run_calls(ToolSet([Named("payer", lambda a, c: ToolResult("x", reward=reward))]), [call("payer")])
    assert result.reward == paid
    assert type(result.reward) is type(paid)


@pytest.mark.parametrize("wrong", [{"info": None}, {"info": [("answer", "4")]}, {"terminated": np.array([1, 0])}, {"terminated": "no"}])
def test_an_info_or_an_end_that_is_none_is_refused_with_the_name_of_the_tool(wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"'odd' returned ToolResult.{next(iter(wrong))}="):
        run_calls(ToolSet([Named("odd", lambda a, c: ToolResult("x", **wrong))]), [call("odd")])
