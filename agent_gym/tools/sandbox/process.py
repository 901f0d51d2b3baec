"""Running a piece of Python in the sandbox: what it may use, and what came of it.

What holds it: namespaces of users, processes, network, mounts and IPC; a tree of files of read-only mounts and a small memory file system; no
privileges and no way to new ones; a system call filter (`seccomp`); resource limits of each process; and the watch that this module keeps over output,
time and the memory of all processes together. `launcher` builds it, `seccomp` filters. Nothing of it is a blacklist of Python names.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import json
import os
import select
import signal
import struct
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_gym.core import EnvFault
from agent_gym.tools.sandbox.seccomp import program

__all__ = ["Finished", "Limits", "Sandbox", "SandboxUnavailable"]

START_LIMIT = 60.0
"""Seconds that the sandbox itself may take to start; far more than the tenth of a second that it needs."""
MAX_CODE = 1 << 20
"""Bytes of a program."""
_TICK = 0.05  # seconds between two looks at the memory of all processes
_PAGE = os.sysconf("SC_PAGESIZE") if hasattr(os, "sysconf") else 4096
_HERE = Path(__file__).parent


class SandboxUnavailable(RuntimeError):
    """The sandbox cannot hold code on this machine, and so does not start. The message names what is missing."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    Attributes:
        time: seconds from the start of the code.
        memory: bytes of address space of each process, and of memory of all processes together.
        output: bytes of standard output and error together.
        disk: bytes of all files that it writes; they lie in memory and are gone with the run.
        files: how many files and folders it may make.
        processes: how many processes and threads may live at once, its own included.

    Raises:
        ValueError: for a limit that is none, or too small to start an interpreter in.
    """

    time: float = 10.0
    memory: int = 1 << 30
    output: int = 16_384
    disk: int = 64 << 20
    files: int = 1000
    processes: int = 32

    def __post_init__(self) -> None:
        least = {"time": 0.05, "memory": 64 << 20, "output": 1, "disk": 4096, "files": 1, "processes": 1}
        for name, low in least.items():
            value = getattr(self, name)
            kinds = (int, float) if name == "time" else (int,)
            if not isinstance(value, kinds) or isinstance(value, bool) or not low <= value < 1 << 60:
                what = "seconds" if name == "time" else "a whole number"
                raise ValueError(f"the limit {name} is {value!r}; give {what} of at least {low}")


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of a run.

    Attributes:
        output: standard output and error as they came, at most `Limits.output` bytes.
        exit_code: of the interpreter; negative is the signal that ended it.
        limit: "time", "output" or "memory" where the run was stopped for it, else "".
    """

    output: bytes
    exit_code: int
    limit: str = ""


@dataclass(frozen=True, slots=True)
class _Runtime:
    """The interpreter, and where its files lie in the sandbox."""

    executable: str
    links: Sequence[tuple[str, str]] = ()
    shown: Sequence[tuple[str, str]] = ()
    masked: Sequence[str] = ()
    argv: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@functools.lru_cache(maxsize=1)
def _runtime() -> _Runtime:
    """Find the interpreter, its library and the system's shared libraries. The sandbox shows these and no program besides."""
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    links: list[tuple[str, str]] = []
    shown = [(executable, "/python/bin/python3")]
    masked = []
    for name in ("lib", "lib64"):
        folder = os.path.join(sys.base_prefix, name)
        if os.path.isdir(folder) and not os.path.islink(folder):
            shown.append((os.path.realpath(folder), f"/python/{name}"))
        for place in (f"/{name}", f"/usr/{name}"):
            if os.path.islink(place):
                links.append((place, os.readlink(place)))
            elif os.path.isdir(place):
                shown.append((place, place))
        masked += [f"{place}/python*/{kind}-packages" for place in (f"/python/{name}", f"/usr/{name}") for kind in ("site", "dist")]
    for place in ("/etc/ld.so.cache", "/usr/share/zoneinfo", *(f"/dev/{one}" for one in ("null", "zero", "full", "random", "urandom"))):
        if os.path.exists(place):
            shown.append((os.path.realpath(place), place))
    stdlib = sysconfig.get_path("stdlib")
    if not any(os.path.realpath(stdlib).startswith(source + os.sep) for source, _target in shown):
        raise SandboxUnavailable(
            f"the Python sandbox does not know this interpreter: its library {stdlib} is not below {sys.base_prefix}/lib"
        )
    env = {
        "PATH": "/python/bin",
        "HOME": "/box",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LD_LIBRARY_PATH": "/python/lib",
        "PYTHONHASHSEED": "0",  # sets print the same in every run
        "MALLOC_ARENA_MAX": "2",  # else each thread reserves 64 MB of address space
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    argv = ["/python/bin/python3", "-s", "-S", "-P", "-B", "-u", "-c", (_HERE / "runner.py").read_text("utf-8")]
    return _Runtime(executable, links, shown, masked, argv, env)


class Sandbox:
    """A place where Python runs without harm to anything outside. It holds nothing between two runs; each gets a fresh interpreter.

    Args:
        limits: of each run.
        packages: distributions that the code may import, with all that they require; nothing else that is installed can be.
        read_only: files and folders that the code may read, at their own paths. Where you are root the code is nobody, and reads what everyone may.

    Raises:
        SandboxUnavailable: if the kernel lacks something that the sandbox needs. The message names it.
        ValueError: for a package that is not installed, or a path that does not exist or would show too much.
    """

    def __init__(self, limits: Limits | None = None, packages: Sequence[str] = (), read_only: Sequence[str | Path] = ()) -> None:
        self.limits = limits or Limits()
        self.packages = tuple(packages)
        self.read_only = tuple(os.path.realpath(one) for one in read_only)
        for path in self.read_only:
            if not os.path.exists(path):
                raise ValueError(f"read_only names {path}, which does not exist")
            if path in ("/", "/proc", "/sys", "/dev", "/etc") or path.startswith(("/proc/", "/sys/", "/dev/")):
                raise ValueError(f"read_only names {path}, which would show the code more than data; name the folder of the data itself")
        self._last = [(path, path) for path in self.read_only] + _packages(self.packages)
        _check(tuple(self._last))

    def run(self, code: str, *, seed: int = 0, deadline: float | None = None) -> Finished:
        """Run a program.

        Args:
            code: Python.
            seed: of the module `random`.
            deadline: `time.monotonic()` seconds at which to stop even if the time limit has not passed.

        Returns:
            What came of it.

        Raises:
            agent_gym.core.EnvFault: if the sandbox itself does not start or breaks.
        """
        return _run(code, self.limits, self._last, seed, deadline)


# ------------------------------------------------------------------------------------------------ is all of it there?

_SELF_CHECK = """
import ctypes, os, signal, socket
wrong = []
def refused(what, call, *errors):
    try:
        call()
    except OSError as error:
        if not errors or error.errno in errors:
            return
        wrong.append(f"{what}: {error}")
    else:
        wrong.append(what)
libc = ctypes.CDLL(None, use_errno=True)
def called(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
refused("seccomp filters do not hold (a network socket opens)", lambda: socket.socket(socket.AF_INET), 1)
refused("seccomp filters do not hold (a namespace opens)", lambda: called("unshare", 0x10000000), 1)
refused("read-only mounts do not hold (/ can be written)", lambda: open("/new", "w"), 30)
refused("mount namespaces do not hold (/proc is there)", lambda: os.listdir("/proc"), 2)
if os.getppid() != 1:
    wrong.append("process namespaces do not hold")
children = []
try:
    while len(children) < 12:
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
    wrong.append("a limit of processes for each user namespace, Linux 5.14 (this kernel is " + os.uname().release + ")")
except BlockingIOError:
    if len(children) != 7:
        wrong.append("a limit of processes for each user namespace, Linux 5.14 (it counts others' processes too)")
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(*(wrong or ["held"]), sep="; ")
"""


@functools.lru_cache(maxsize=32)
def _check(shown: tuple[tuple[str, str], ...]) -> None:
    """Start the sandbox once and try its walls from inside."""
    if sys.platform != "linux":
        raise SandboxUnavailable(f"the Python sandbox needs Linux, and this is {sys.platform}; run it in a Linux machine, virtual or not")
    try:
        program(os.uname().machine)
    except ValueError as error:
        raise SandboxUnavailable(f"the Python sandbox cannot start: {error}") from error
    if not glob.glob("/proc/self/task/*/children"):
        raise SandboxUnavailable("the Python sandbox cannot start. Missing: lists of child processes in /proc (CONFIG_PROC_CHILDREN)")
    try:
        found = _run(_SELF_CHECK, Limits(time=30.0, processes=8), shown, 0, None)
    except EnvFault as error:
        raise SandboxUnavailable(f"the Python sandbox cannot start: {error}") from error
    text = found.output.decode(errors="replace").strip()
    if text != "held":
        raise SandboxUnavailable(f"the Python sandbox does not hold on this machine. Missing: {text or f'exit code {found.exit_code}'}")


def _packages(names: Sequence[str]) -> list[tuple[str, str]]:
    """Where the files of distributions and of all that they require lie, and where the sandbox shows them."""
    from importlib.metadata import Distribution, PackageNotFoundError, distribution

    from packaging.requirements import Requirement

    shown: dict[str, str] = {}
    seen: set[str] = set()

    def add(name: str, asked: bool) -> None:
        if name.lower() in seen:
            return
        seen.add(name.lower())
        try:
            found: Distribution = distribution(name)
        except PackageNotFoundError as error:
            if asked:
                raise ValueError(f"packages names {name!r}, which is not installed; pip install {name}") from error
            return  # a requirement for other machines
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__") and not file.is_absolute()}:
            source = os.path.realpath(str(found.locate_file(top)))
            if os.path.exists(source):
                shown[f"/packages/{top}"] = source
        for line in found.requires or ():
            wanted = Requirement(line)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                add(wanted.name, asked=False)

    for one in names:
        add(one, asked=True)
    return [(source, target) for target, source in sorted(shown.items())]


# ------------------------------------------------------------------------------------------------ one run


def _run(code: str, limits: Limits, shown: Sequence[tuple[str, str]], seed: int, deadline: float | None) -> Finished:
    runtime = _runtime()
    seconds = int(limits.time) + 2
    order = {
        "parent": os.getpid(),
        "code": code,
        "links": runtime.links,
        "shown": runtime.shown,
        "masked": runtime.masked,
        "shown_last": shown,
        "argv": [*runtime.argv, str(seed)],
        "env": runtime.env,
        "disk": limits.disk,
        "files": limits.files,
        "filter": program(os.uname().machine).hex(),
        "limits": {
            "AS": limits.memory,
            "CORE": 0,
            "CPU": seconds,
            "FSIZE": limits.disk,
            "MEMLOCK": 65536,
            "MSGQUEUE": 0,
            "NOFILE": 128,
            "NPROC": limits.processes,
            "RTPRIO": 0,
            "SIGPENDING": 256,
            "STACK": 8 << 20,
        },
    }
    text = json.dumps(order).encode()
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}  # the launcher is ours; the code does not see it
    try:
        process = subprocess.Popen(
            [runtime.executable, "-I", "-S", str(_HERE / "launcher.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=kept,
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        raise EnvFault(f"the Python sandbox could not be started: {error}") from error
    watch = _Watch(process, limits, deadline)
    try:
        with process:
            try:
                watch.give(struct.pack("<Q", len(text)) + text)
                return watch.until_the_end()
            finally:
                watch.stop()
    except OSError as error:
        raise EnvFault(f"the Python sandbox broke: {error}") from error


class _Watch:
    """Reads what comes out of a run and stops it at its limits."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits, deadline: float | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._limits = limits
        self._given = deadline
        self._control, self._out, self._err = process.stdin, process.stdout.fileno(), process.stderr.fileno()
        self._output = bytearray()
        self._lines = bytearray()
        self._said: dict[str, Any] = {}
        self._end = time.monotonic() + START_LIMIT

    def give(self, data: bytes) -> None:
        """Write the order; a launcher that has died has said why."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._control.write(view) or 0 :]
        except BrokenPipeError:
            pass

    def stop(self) -> None:
        """Have everything inside killed, and wait until it is."""
        if not self._control.closed:
            with contextlib.suppress(OSError):
                self._control.write(b"x")  # closing alone says nothing where a process forked meanwhile holds this end too
            self._control.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:  # the launcher itself hangs; the death signal of what it started does the rest
            self._process.kill()
            self._process.wait()

    def until_the_end(self) -> Finished:
        """Follow the run until it ends by itself or by a limit."""
        poll = select.poll()
        open_ends = {self._out, self._err}
        for one in open_ends:
            os.set_blocking(one, False)
            poll.register(one, select.POLLIN | select.POLLHUP)
        next_look = 0.0
        limit = ""
        while open_ends and not limit:
            now = time.monotonic()
            if now >= self._end:
                limit = "time"
                break
            ready = poll.poll(max(1.0, 1000.0 * min(self._end - now, _TICK)))
            if not ready and self._process.poll() is not None:
                break  # all is over, and a process forked meanwhile holds our pipes open
            for descriptor, _event in ready:
                if not self._read(descriptor):
                    poll.unregister(descriptor)
                    open_ends.discard(descriptor)
            if len(self._output) > self._limits.output:
                limit = "output"
            elif "started" in self._said and "exit" not in self._said and now >= next_look:
                if self._memory() > self._limits.memory:
                    limit = "memory"
                next_look = now + _TICK
        if not limit or "exit" in self._said:
            self.stop()
        return self._finished(limit)

    def _read(self, descriptor: int) -> bool:
        """Take what has come. False at the end."""
        try:
            part = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        if descriptor == self._out:
            if len(self._output) <= self._limits.output:
                self._output += part
            return bool(part)
        self._lines += part
        *whole, rest = bytes(self._lines).split(b"\n")
        self._lines = bytearray(rest)
        for line in whole:
            self._note(line)
        return bool(part)

    def _note(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            said = {"fault": line.decode(errors="replace")}
        for key, value in said.items():
            self._said.setdefault(key, value)
        if "started" in said:
            self._end = min(time.monotonic() + self._limits.time, self._given or float("inf"))

    def _finished(self, limit: str) -> Finished:
        said = self._said
        output = bytes(self._output[: self._limits.output])
        if "missing" in said:
            raise EnvFault(f"this machine does not let it. Missing: {said['missing']}")
        if "fault" in said:
            raise EnvFault(f"the Python sandbox did not start: {said['fault']}")
        if "exit" in said and limit != "output":
            code = os.waitstatus_to_exitcode(int(said["exit"]))
            return Finished(output, code, "time" if code == -signal.SIGXCPU else "")
        if limit and "started" in said:
            return Finished(output, -int(signal.SIGKILL), limit)
        if limit:
            raise EnvFault(f"the Python sandbox did not start within {START_LIMIT:g} seconds")
        raise EnvFault("the Python sandbox was ended from outside")

    def _memory(self) -> int:
        """The memory of all processes inside, in bytes: what each holds, and only where that is too much, the exact sum."""
        inside = _descendants(int(self._said["init"]))
        total = sum(_resident(one) for one in inside)
        return total if total <= self._limits.memory else sum(_share(one) for one in inside)


def _descendants(process: int) -> list[int]:
    """The processes below one."""
    found: list[int] = []
    waiting = [process]
    while waiting:
        for path in glob.glob(f"/proc/{waiting.pop()}/task/*/children"):
            try:
                children = [int(one) for one in Path(path).read_bytes().split()]
            except OSError:  # it has just ended
                continue
            found += children
            waiting += children
    return found


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def _share(process: int) -> int:
    """The memory of a process, pages that it shares with others counted in part."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it has just ended, or does not let itself be looked at
        pass
    return _resident(process)
