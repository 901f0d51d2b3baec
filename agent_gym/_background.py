"""Where tools and context policies wait: one event loop in a background thread per process, and worker threads for synchronous tools with a time limit.

A synchronous `step` may be called anywhere, also inside a running event loop (Jupyter), where `asyncio.run` refuses. So what really waits
is handed to a loop of our own. Threads are daemons: a tool that never returns is left behind and never keeps the process from ending.
After a fork the child makes its own.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

__all__ = ["BackgroundLoop", "WorkerThreads", "background", "never_waits", "sessions", "workers"]

_MAX_IDLE_WORKERS = 32
_WAITING = frozenset(("GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "SEND", "YIELD_VALUE"))


def never_waits(function: Callable[..., Any]) -> bool:
    """Whether calling a coroutine function gives a coroutine that cannot wait, and so may be driven by hand to its end.

    Args:
        function: an `async def` function or method.

    Returns:
        True if its code holds no `await`, `async for` or `async with`. False where the code cannot be read.
    """
    import dis

    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return False
    return not any(one.opname in _WAITING for one in dis.get_instructions(code))


class BackgroundLoop:
    """An event loop in a daemon thread, started when first needed."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget loop and thread without touching them."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine in the loop.

        Args:
            coroutine: anything that an event loop runs.

        Returns:
            A future of its result.
        """
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                loop = asyncio.new_event_loop()
                self._loop = loop
                self._thread = threading.Thread(target=_serve, args=(loop,), name="agent-gym-tools", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def owns_current_thread(self) -> bool:
        """Whether the caller runs inside this loop, where waiting for it would wait forever."""
        return threading.current_thread() is self._thread

    def abandon(self) -> None:
        """Give the loop up, after a tool has blocked it; the next `submit` starts another."""
        with self._lock:
            loop, self._loop, self._thread = self._loop, None, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


class WorkerThreads:
    """Daemon threads that run functions; idle ones are used again, so that many calls need few threads."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all threads without touching them."""
        self._idle: queue.LifoQueue[queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]] = queue.LifoQueue(_MAX_IDLE_WORKERS)

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Run a function in a thread.

        Args:
            function: takes no arguments.

        Returns:
            A future of its result.
        """
        future: Future[Any] = Future()
        try:
            inbox = self._idle.get_nowait()
        except queue.Empty:
            inbox = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="agent-gym-worker", daemon=True).start()
        inbox.put((future, function))
        return future

    def _work(self, inbox: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]) -> None:
        while True:
            future, function = inbox.get()
            if not future.set_running_or_notify_cancel():  # given up before it began; past this nobody can cancel it
                try:
                    self._idle.put_nowait(inbox)
                except queue.Full:
                    return
                continue
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  # the thread only carries it to whoever waits for it
                settle: Callable[[Any], None] = future.set_exception
                result = error
            else:
                settle = future.set_result
            try:  # be idle before the caller wakes up, so that its next call finds this thread
                self._idle.put_nowait(inbox)
            except queue.Full:
                settle(result)
                return
            settle(result)
            del future, function, result, settle


background = BackgroundLoop()
sessions = BackgroundLoop()
"""Where connections live that outlast a call. It is another loop than the calls', which is given up when a tool blocks it."""
workers = WorkerThreads()


def _forget_after_fork() -> None:
    """The child of a fork has none of its parent's threads."""
    background.reset()
    sessions.reset()
    workers.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
