"""`ProcessWorkers`: environments in worker processes of this machine.

Each worker is a fresh interpreter (never a fork: threads of torch and of the tokenizers would be copied in the middle of what they do) that is reached
over a socket. It does not run the caller's main module, so scripts need no `if __name__ == "__main__"`.

No worker outlives the run: `close` asks it to close its environments and to go, and ends it when it does not. Where the parent is killed, the worker
sees the socket close, closes its environments and goes. It leads a process group of its own, so what it has started goes with it, and Ctrl-C in the
terminal reaches the parent alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NoReturn

import gymnasium

from agent_gym.flows.remote import Worker, WorkerDied, Workers

__all__ = ["ProcessWorkers", "serve"]

_HEADER = struct.Struct("!QQ")  # number of the request, bytes of the message
_END, _FACTORY = 0, 1
_START = "import sys; sys.path[:] = {path!r}; from agent_gym.flows.processes import serve; serve({fd}, {parent})"
_LAST_SECONDS = 2.0
_WATCH_SECONDS = 1.0
_REAP_SECONDS = 10.0


class ProcessWorkers(Workers):
    """Worker processes of this machine.

    Args:
        limit: the most at once; fewer are started where fewer environments are played.
        factory: see `Workers`.

    Raises:
        ValueError: if `limit` is not positive.
        TypeError: if the factory cannot be sent.
    """

    def __init__(self, limit: int, factory: Callable[[dict[str, Any]], gymnasium.Env[Any, Any]] | None = None) -> None:
        super().__init__(factory)
        if limit < 1:
            raise ValueError(f"there must be at least 1 worker process, not {limit}")
        self.limit = limit

    def _start(self) -> Worker:
        return _ProcessWorker(self._factory)


class _ProcessWorker(Worker):
    """One process, and three threads: they write requests, which may be long, read replies, and wait for its end."""

    def __init__(self, factory: bytes) -> None:
        super().__init__()
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._outbox: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._pending: dict[int, Future[bytes]] = {}
        self._numbers = itertools.count(2)
        self._dead = threading.Event()
        self._reaped = threading.Event()
        path = [entry or os.getcwd() for entry in sys.path]
        code = _START.format(path=path, fd=theirs.fileno(), parent=os.getpid())
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), start_new_session=True
            )
        self.pid = self._process.pid
        self._outbox.put((_FACTORY, factory))
        work = {"write": self._write, "read": self._read, "wait": self._wait}
        self._threads = [threading.Thread(target=target, name=f"agent-gym-{name}-{self.pid}", daemon=True) for name, target in work.items()]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        return not self._dead.is_set()

    def submit(self, request: bytes) -> Future[bytes]:
        future: Future[bytes] = Future()
        future.set_running_or_notify_cancel()  # whoever waits may give up; the reply comes all the same
        number = next(self._numbers)
        self._pending[number] = future
        self._outbox.put((number, request))
        if self._dead.is_set():
            self._fail_pending()
        return future

    def begin_close(self) -> None:
        self._outbox.put((_END, b""))

    def close(self, seconds: float) -> None:
        if not self._reaped.wait(seconds):
            _kill_group(self.pid)
            self._reaped.wait(_REAP_SECONDS)
        self._outbox.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():  # finalisers run anywhere
                thread.join(_REAP_SECONDS)
        self._socket.close()

    def _write(self) -> None:
        while (item := self._outbox.get()) is not None:
            number, message = item
            with contextlib.suppress(OSError):  # the reader knows of the death, and fails what is pending
                self._socket.sendall(_HEADER.pack(number, len(message)) + message)

    def _read(self) -> None:
        for number, message in _messages(self._socket):
            future = self._pending.pop(number, None)
            if future is not None:
                future.set_result(message)
        self._dead.set()
        self._fail_pending()

    def _fail_pending(self) -> None:
        self._reaped.wait(_REAP_SECONDS)
        while self._pending:
            with contextlib.suppress(KeyError):
                _, future = self._pending.popitem()
                future.set_exception(WorkerDied(f"the worker process {self.pid} {_ending(self._process.returncode)}"))

    def _wait(self) -> None:
        """Wait for the end, and end what the worker has started while its number is still taken."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        _kill_group(self.pid)
        self._process.wait()
        self._reaped.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a process that left the group may hold the other end


def _ending(code: int | None) -> str:
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _messages(connection: socket.socket) -> Iterator[tuple[int, bytes]]:
    """The messages of a connection until its end."""
    while (header := _exactly(connection, _HEADER.size)) is not None:
        number, size = _HEADER.unpack(header)
        message = _exactly(connection, size)
        if message is None:
            return
        yield number, message


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray(size)
    view, have = memoryview(parts), 0
    while have < size:
        try:
            got = connection.recv_into(view[have:])
        except OSError:
            return None
        if not got:
            return None
        have += got
    return bytes(parts)


# ------------------------------------------------------------------------------------------------ inside the worker


def serve(fd: int, parent: int) -> NoReturn:
    """Host environments until the parent says so, or is gone. Does not return.

    Args:
        fd: of the socket.
        parent: the parent's process number.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(fd, False)
    orphaned = False
    with socket.socket(fileno=fd) as connection:
        orphaned = asyncio.new_event_loop().run_until_complete(_host(connection, parent))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    _leave(orphaned)


def _leave(orphaned: bool) -> NoReturn:
    """End at once, threads that hang included; an orphan takes what it has started along, which is the parent's business otherwise."""
    if orphaned and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _leave_later(orphaned: bool) -> None:
    time.sleep(_LAST_SECONDS)
    _leave(orphaned)


async def _host(connection: socket.socket, parent: int) -> bool:
    """Serve requests. Returns whether the parent is gone."""
    from agent_gym.flows.hosting import EnvHost

    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bool] = loop.create_future()
    sending = threading.Lock()
    tasks: set[asyncio.Task[None]] = set()
    host: EnvHost | None = None

    def end(orphaned: bool) -> None:
        if not ended.done():
            ended.set_result(orphaned)

    def ending(orphaned: bool) -> None:
        # An environment may hang in this loop, so the end does not wait for it. An orderly end is the parent's to hurry.
        if orphaned:
            threading.Thread(target=_leave_later, args=(orphaned,), daemon=True).start()
        loop.call_soon_threadsafe(end, orphaned)

    def begin(number: int, message: bytes) -> None:
        nonlocal host
        if number == _FACTORY:
            host = EnvHost(message)
            return
        assert host is not None
        task = loop.create_task(answer(host, number, message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def answer(host: EnvHost, number: int, message: bytes) -> None:
        reply = await host.handle(message)
        with sending, contextlib.suppress(OSError):
            connection.sendall(_HEADER.pack(number, len(reply)) + reply)

    def read() -> None:
        for number, message in _messages(connection):
            if number == _END:
                ending(False)
                return
            loop.call_soon_threadsafe(begin, number, message)
        ending(True)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        ending(True)

    threading.Thread(target=read, name="agent-gym-requests", daemon=True).start()
    threading.Thread(target=watch, name="agent-gym-parent", daemon=True).start()
    orphaned = await ended
    if host is not None:
        await host.close()
    return orphaned
