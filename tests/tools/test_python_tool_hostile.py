"""Programs that mean harm, in the Python sandbox; each beside a control that runs the same lines without it and shows that they would have worked.

Controls are bounded (50 processes, hundreds of megabytes), so that they do no harm either.
"""

import contextlib
import errno
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_gym.tools.sandbox import Finished, Limits, Sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Python sandbox needs Linux")
MIB = 1 << 20


def run(code: str, **limits: float) -> Finished:
    return Sandbox(Limits(**{"time": 60.0, **limits})).run(code)  # type: ignore[arg-type]


def shown(code: str, **limits: float) -> str:
    return run(code, **limits).output.decode()


def bare(code: str, cwd: Path, timeout: float = 60.0, pass_fds: tuple[int, ...] = ()) -> str:
    """The control: the same lines in an ordinary process."""
    python = os.path.realpath(sys.executable)
    done = subprocess.run([python, "-S", "-c", code], capture_output=True, text=True, cwd=cwd, timeout=timeout, pass_fds=pass_fds)
    return done.stdout + done.stderr


def named(name: str) -> list[int]:
    """The processes that call themselves so, living or not yet reaped."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().strip() == name:
                found.append(int(path.parts[2]))
    return found


def state_of(pid: int) -> str:
    """The letter of the state that a process is in, such as S or T."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def mark() -> Iterator[str]:
    """A name for the processes of this test, and the end of those that are left."""
    name = f"m{secrets.token_hex(5)}"
    yield name
    for process in named(name):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def calling_itself(name: str) -> str:
    return f"import ctypes, os, signal, sys, time\nctypes.CDLL(None).prctl(15, b'{name}')\n"


@pytest.fixture
def victim() -> Iterator[int]:
    """A process that is none of the sandbox's business."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process.pid
        process.kill()


# ------------------------------------------------------------------------------------------------ processes


def test_a_fork_bomb_meets_the_limit_of_processes_and_leaves_none(mark: str, tmp_path: Path) -> None:
    count = """
import os, time
made = 0
try:
    while made < 50:
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        made += 1
except BlockingIOError:
    pass
print(made)
"""
    assert bare(count, tmp_path).strip() == "50"
    assert shown(count, processes=16).strip() == "15"
    bomb = calling_itself(mark) + "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    most = 0

    def watch() -> None:
        nonlocal most
        while not over.wait(0.1):
            most = max(most, len(named(mark)))

    over = threading.Event()
    watching = threading.Thread(target=watch)
    watching.start()
    found = run(bomb, processes=16, time=2.0)
    over.set()
    watching.join()
    assert found.limit == "time"
    assert 2 <= most <= 16
    assert named(mark) == []


def test_threads_count_as_processes(tmp_path: Path) -> None:
    code = """
import threading, time
made = 0
try:
    for _ in range(100):
        threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
        made += 1
except RuntimeError:
    pass
print(made)
"""
    assert bare(code, tmp_path).strip() == "100"
    assert shown(code, processes=16).strip() == "15"


def test_daemons_with_sessions_of_their_own_end_with_the_program(mark: str, tmp_path: Path) -> None:
    daemon = (
        calling_itself(mark)
        + """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        for descriptor in range(3):
            os.close(descriptor)
        time.sleep(300)
    os._exit(0)
os.wait()
print("left one behind")
"""
    )
    assert bare(daemon, tmp_path).strip() == "left one behind"
    (left,) = named(mark)
    os.kill(left, signal.SIGTERM)
    assert named(mark) == [left], "it ignores what can be ignored"
    os.kill(left, signal.SIGKILL)
    while named(mark):
        time.sleep(0.01)
    assert shown(daemon).strip() == "left one behind"
    assert named(mark) == []


@pytest.mark.parametrize("state", ["ignores", "stopped"])
def test_one_that_ignores_signals_or_stands_still_ends_at_the_time_limit(state: str, mark: str, tmp_path: Path) -> None:
    ways = {
        "ignores": "for n in (1, 2, 15):\n    signal.signal(n, signal.SIG_IGN)\nprint('up', flush=True)\nwhile True: time.sleep(1)",
        "stopped": "print('up', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)",
    }
    code = calling_itself(mark) + ways[state]
    with subprocess.Popen([os.path.realpath(sys.executable), "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while state == "stopped" and state_of(process.pid) != "T":  # it says that it is up, and stops behind that
            time.sleep(0.01)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.kill()
    # Process 1 of a namespace ignores what it has no handler for, so stopping itself is left to the child of one.
    code = code if state == "ignores" else calling_itself(mark) + "if os.fork() == 0:\n    time.sleep(300)\n" + ways[state]
    found = run(code, time=8.0)  # as long as an interpreter may take to come up on a busy machine
    assert (found.output, found.limit) == (b"up\n", "time")
    assert named(mark) == []


def test_signals_reach_nothing_outside_and_not_the_init(victim: int, tmp_path: Path) -> None:
    code = f"""
import os, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):  # to all others as well: here, and never in a control
    for process in (1, {victim}, -1):
        try:
            os.kill(process, number)
        except (ProcessLookupError, PermissionError):
            pass
"""
    found = run(code + "print('still here')")
    assert (found.output, found.exit_code) == (b"still here\n", 0)
    assert Path(f"/proc/{victim}/stat").read_text().split()[2] == "S"
    bare(f"import os; os.kill({victim}, 9)", tmp_path)
    end = time.monotonic() + 10.0
    while (state := Path(f"/proc/{victim}/stat").read_text().split()[2]) != "Z" and time.monotonic() < end:
        time.sleep(0.01)  # it dies when it is its turn
    assert state == "Z"


def test_orphans_are_reaped_and_zombies_end_with_the_program(mark: str, tmp_path: Path) -> None:
    zombies = "for _ in range(10):\n    if os.fork() == 0:\n        os._exit(0)\nprint('up', flush=True)\ntime.sleep({wait})"
    control = calling_itself(f"{mark}c") + zombies.format(wait=300)  # another name: the machine's own init may be slow to reap them
    with subprocess.Popen([os.path.realpath(sys.executable), "-S", "-c", control], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(named(f"{mark}c")) == 11
        process.kill()
    found = run(calling_itself(mark) + zombies.format(wait=0.2))
    assert (found.output, found.exit_code) == (b"up\n", 0)
    assert named(mark) == []
    orphans = """
import os
for _ in range(60):
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.waitpid(child, 0)
print("made sixty")
"""
    assert shown(orphans, processes=8).strip() == "made sixty", "each orphan's place is free again"
    before = set(os.listdir("/proc"))
    run("pass")
    mine = [one for one in set(os.listdir("/proc")) - before if one.isdigit() and f"\nPPid:\t{os.getpid()}\n" in _status(one)]
    assert mine == []


def _status(process: str) -> str:
    try:
        return Path(f"/proc/{process}/status").read_text()
    except OSError:
        return ""


def test_nothing_outside_is_traced_or_read(victim: int, tmp_path: Path) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(name, *arguments):
    done = getattr(libc, name)(*arguments)
    print(name, "worked" if done >= 0 else os.strerror(ctypes.get_errno()))
for process in {processes}:
    tried("ptrace", 16, process, None, None)
buffer = ctypes.create_string_buffer(8)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
local = Vector(ctypes.addressof(buffer), 8)
remote = Vector(1, 8)
tried("process_vm_readv", {processes}[0], ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
"""
    control = bare(code.replace("{processes}", repr([victim])), tmp_path)
    if os.geteuid() == 0:
        assert "ptrace worked" in control
        assert "process_vm_readv Bad address" in control, "the right is given, and only the address is wrong"
    assert shown(code.replace("{processes}", f"[{victim}, 1, os.getppid()]")).splitlines() == ["ptrace Operation not permitted"] * 3 + [
        "process_vm_readv Operation not permitted"
    ]


# ------------------------------------------------------------------------------------------------ output, time, memory, files


def test_endless_output_is_cut_and_the_program_ended(tmp_path: Path) -> None:
    code = "while True:\n    print('x' * 1000)"
    with subprocess.Popen([os.path.realpath(sys.executable), "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert len(process.stdout.read(5 * MIB)) == 5 * MIB
        process.kill()
    found = run(code, output=5000)
    assert (len(found.output), found.limit) == (5000, "output")
    for other in (
        "import os\nwhile True: os.write(2, b'x' * 60000)",
        "import os\nwhile True:\n    if os.fork() == 0:\n        os.write(1, b'x' * 3000)\n        os._exit(0)\n    os.wait()",
    ):
        found = run(other, output=5000)
        assert (len(found.output), found.limit) == (5000, "output")


def test_ten_gigabytes_are_not_there(tmp_path: Path) -> None:
    code = """
held = []
try:
    while len(held) < {most}:
        held.append(bytearray(b"x") * (10 << 20))
except MemoryError:
    pass
print(len(held) * 10)
"""
    assert bare(code.format(most=50), tmp_path).strip() == "500"
    assert 100 <= int(shown(code.format(most=1000), memory=256 * MIB)) <= 250
    text = "x = 'a' * ({megabytes} << 20)\nprint('there')"
    for ran in (bare(text.format(megabytes=100), tmp_path), shown(text.format(megabytes=100))):
        assert ran.strip() == "there"
    assert "MemoryError" in shown(text.format(megabytes=10 << 10))
    # Pages that nobody touches cost nothing, so the control may have the whole of them.
    pages = "import mmap\nmmap.mmap(-1, 10 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)\nprint('there')"  # MAP_NORESERVE
    assert bare(pages, tmp_path).strip() == "there"
    assert "Cannot allocate memory" in shown(pages)


@pytest.mark.parametrize("kind", ["private", "shared"])
def test_many_processes_have_no_more_memory_together_than_one(kind: str, tmp_path: Path) -> None:
    take = {
        "private": "held = bytearray(b'x') * (60 << 20)",
        "shared": "import mmap\n        held = mmap.mmap(-1, 60 << 20)\n        held.write(b'x' * (60 << 20))",
    }
    code = f"""
import os, time
for _ in range(6):
    if os.fork() == 0:
        {take[kind]}
        time.sleep(WAIT)
        os._exit(0)
for _ in range(6):
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert bare(code.replace("WAIT", "0.5"), tmp_path).split() == ["0"] * 6
    found = run(code.replace("WAIT", "30"), memory=200 * MIB)
    assert (found.limit, found.output) == ("memory", b"")
    assert run(code.replace("WAIT", "0.5"), memory=800 * MIB).output.split() == [b"0"] * 6


def test_pages_that_processes_share_are_counted_once() -> None:
    code = "import os, time\nheld = bytearray(b'x') * (120 << 20)\nfor _ in range(5):\n    if os.fork() == 0:\n        time.sleep(0.5)\n        os._exit(0)\nfor _ in range(5): os.wait()\nprint('done')"
    assert run(code, memory=256 * MIB).output == b"done\n"


def test_gigabytes_of_files_are_not_there_and_nothing_is_left_of_those_that_are(tmp_path: Path) -> None:
    code = """
import os
for folder in FOLDERS:
    written = 0
    try:
        with open(folder + "/big", "wb", buffering=0) as file:
            while written < MOST:
                written += file.write(b"x" * 65536)
    except OSError as error:
        print(error.strerror, end=" ")
    print(written >> 20)
    made = 0
    try:
        while made < 200:
            open(f"{folder}/{made}", "w").close()
            made += 1
    except OSError:
        pass
    print(made)
"""
    assert bare(code.replace("FOLDERS", "['.']").replace("MOST", str(100 * MIB)), tmp_path).split() == ["100", "200"]
    lines = shown(code.replace("FOLDERS", "['.', '/tmp', '/dev/shm']").replace("MOST", "4 << 30"), disk=8 * MIB, files=50).splitlines()
    assert lines[0] in ("No space left on device 8", "No space left on device 7", "File too large 8")
    assert lines[1] == "49"
    assert [one.rsplit(" ", 1)[-1] for one in lines[2:]] == ["0", "0", "0", "0"], "the limits hold for all folders together"
    for folder in ("/", "/etc", "/python", "/dev", "/usr/lib"):
        assert "Read-only file system" in shown(f"open({folder!r} + '/x', 'w')")
    for folder in ("/box", "/tmp"):
        assert shown(f"open({folder!r} + '/x', 'w')\nprint('written')").endswith("written\n"), "the same line, where it may"


def test_memory_that_no_limit_counts_cannot_be_had(tmp_path: Path) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
try:
    os.close(os.memfd_create("x"))
    print("memfd")
except PermissionError:
    pass
number = libc.shmget(0, 4096, 0o1600)
if number >= 0:
    print("segment")
    libc.shmctl(number, 0, None)
"""
    assert bare(code, tmp_path).split() == ["memfd", "segment"]
    assert shown(code) == ""


# ------------------------------------------------------------------------------------------------ secrets and ways out


def test_the_environment_files_and_descriptors_of_the_parent_are_not_there(tmp_path: Path) -> None:
    secret = secrets.token_hex(16)
    hidden = tmp_path / "secret.txt"
    hidden.write_text(secret)
    hidden.chmod(0o644)
    descriptor = os.open(hidden, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    code = f"""
import glob, os
places = {{"environ": lambda: repr(dict(os.environ)), "file": lambda: open({str(hidden)!r}).read()}}
for process in (os.getppid(), {os.getpid()}, 1, "self"):
    places[f"environ of {{process}}"] = lambda process=process: open(f"/proc/{{process}}/environ").read()
    places[f"root of {{process}}"] = lambda process=process: open(f"/proc/{{process}}/root{hidden}").read()
def descriptors():
    found = b""
    for number in range(3, 256):
        try:
            os.lseek(number, 0, 0)
            found += os.read(number, 1000)
        except OSError:
            pass
    return repr(found)
places["descriptors"] = descriptors
def link():
    os.symlink({str(hidden)!r}, "link")
    return open("link").read()
places["link"] = link
def folder_link():
    os.symlink("/", "top")
    return open("top" + {str(hidden)!r}).read()
places["folder link"] = folder_link
places["above"] = lambda: open("../" * 20 + {str(hidden)[1:]!r}).read()
for name, look in places.items():
    try:
        text = look()
    except OSError as error:
        text = error.strerror
    print(name, "FOUND" if {secret!r} in text else "")
print(sorted(glob.glob("/proc/*") + [one for one in os.listdir("/") if one in ("ho" + "me", "ro" + "ot", "var", "srv", "sys", "run")]))
"""
    os.environ["AGENT_GYM_TEST_SECRET"] = secret
    try:
        # The environment is read where a process keeps it: what was set later is not in /proc, so a process with it stands between.
        control = bare(code, tmp_path, pass_fds=(descriptor,))
        found = shown(code)
    finally:
        del os.environ["AGENT_GYM_TEST_SECRET"]
        os.close(descriptor)
    for name in ("environ", "file", "root of self", "environ of self", "descriptors", "link", "folder link", "above"):
        assert f"{name} FOUND" in control
    assert "FOUND" not in found
    assert found.splitlines()[-1] == "[]"
    assert secret not in found


def test_the_launchers_environment_is_out_of_reach_where_an_ordinary_child_reads_its_parents(tmp_path: Path) -> None:
    secret = secrets.token_hex(16)
    look = "import os\ntry:\n    print(open(f'/proc/{os.getppid()}/environ').read())\nexcept OSError as error:\n    print(error.strerror)"
    control = f"import subprocess, sys\nprint(subprocess.run([sys.executable, '-S', '-c', {look!r}], capture_output=True, text=True, env={{}}).stdout)"
    sandboxed = f"from agent_gym.tools.sandbox import Sandbox\nprint(Sandbox().run({look!r}).output.decode())"
    for code, expected in ((control, True), (sandboxed, False)):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "SECRET": secret}, capture_output=True, text=True, timeout=120
        )
        assert (secret in done.stdout) is expected, done.stderr
    assert "No such file or directory" in done.stdout


def test_there_is_no_network_and_no_way_to_a_socket_of_this_machine(tmp_path: Path) -> None:
    name = f"\0{secrets.token_hex(8)}"
    path = str(tmp_path / "s")
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as file:
        server.bind(("127.0.0.1", 0))
        abstract.bind(name)
        file.bind(path)
        os.chmod(path, 0o777)
        for one in (server, abstract, file):
            one.listen(5)
        code = f"""
import socket
for family, address in ((socket.AF_INET, {server.getsockname()!r}), (socket.AF_UNIX, {name!r}), (socket.AF_UNIX, {path!r})):
    try:
        with socket.socket(family) as one:
            one.settimeout(5)
            one.connect(address)
            print("connected")
    except OSError as error:
        print(error.strerror)
for family in (socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, 40, 38):
    try:
        socket.socket(family, socket.SOCK_DGRAM if family != socket.AF_PACKET else socket.SOCK_RAW).close()
        print("opened")
    except OSError as error:
        print(error.strerror)
one, two = socket.socketpair()
one.send(b"within")
print(two.recv(10).decode())
"""
        control = bare(code, tmp_path).splitlines()
        assert control[:3] == ["connected"] * 3
        assert "opened" in control
        assert shown(code).splitlines() == [
            "Operation not permitted",
            "Connection refused",
            "No such file or directory",
            *["Operation not permitted"] * 5,
            "within",
        ]


def test_without_the_filter_the_namespaces_still_hold_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import agent_gym.tools.sandbox.process as process

    sandbox = Sandbox(Limits(time=30.0))
    monkeypatch.setattr(process, "program", lambda machine: b"\x06\x00\x00\x00\x00\x00\xff\x7f")  # allows everything
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        code = f"import socket\none = socket.socket()\none.settimeout(5)\none.connect({server.getsockname()!r})"
        assert b"Network is unreachable" in sandbox.run(code).output


def test_privileges_cannot_be_had_again(tmp_path: Path) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(what, call):
    try:
        call()
        print(what, "worked")
    except OSError as error:
        print(what, error.strerror)
    except ValueError as error:
        print(what, "Operation not permitted" if "not allowed" in str(error) else error)
def called(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
tried("namespace", lambda: called("unshare", 0x10000000))
tried("clone", lambda: called("syscall", 56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0) or os.getpid())
tried("mount", lambda: called("mount", b"tmpfs", b"/box", b"tmpfs", 0, None))
tried("root", lambda: os.setresuid(0, 0, 0) if os.getuid() else called("mount", b"tmpfs", b"/box", b"tmpfs", 0, None))
tried("chroot", lambda: os.chroot("/"))
tried("device", lambda: os.mknod("/tmp/sda", 0o60600, os.makedev(8, 0)))
tried("limits", lambda: __import__("resource").setrlimit(6, (1000, 1000)))
tried("nice", lambda: os.nice(-5))
tried("keys", lambda: called("syscall", 250 if os.uname().machine == "x86_64" else 219, 0, -3, 1))
tried("unknown", lambda: called("syscall", 5000))
"""
    lines = dict(line.split(" ", 1) for line in shown(code).splitlines())
    assert set(lines.values()) <= {"Operation not permitted", "Permission denied", "Function not implemented"}, lines
    assert len(lines) == 10
    status = shown("import ctypes\nlibc = ctypes.CDLL(None)\nprint(libc.prctl(39, 0, 0, 0, 0), libc.prctl(21, 0, 0, 0, 0))").split()
    assert status == ["1", "2"], "no new privileges, and a filter"
    if os.geteuid() == 0:
        control = bare("import os\nos.chroot('/')\nos.nice(-1)\nos.setresuid(0, 0, 0)\nprint('worked')", tmp_path)
        assert control.strip() == "worked"


def test_it_ends_when_the_trainer_is_killed(mark: str) -> None:
    code = (
        calling_itself(mark)
        + "print('up', flush=True)\nif os.fork(): os.setsid() if os.getpgid(0) != os.getpid() else None\ntime.sleep(300)"
    )
    script = f"from agent_gym.tools.sandbox import Limits, Sandbox\nSandbox(Limits(time=300.0)).run({code!r})"
    bare_name = f"{mark}c"
    child = [os.path.realpath(sys.executable), "-S", "-c", code.replace(mark, bare_name)]
    control = f"import subprocess\nsubprocess.run({child!r}, stdout=subprocess.DEVNULL)"
    for name, text in ((bare_name, control), (mark, script)):
        with subprocess.Popen([sys.executable, "-c", text]) as trainer:
            end = time.monotonic() + 120.0
            while len(named(name)) < 2:
                assert time.monotonic() < end
                time.sleep(0.05)
            trainer.kill()
    left = named(bare_name)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert len(left) == 2, "ordinary children outlive it"
    end = time.monotonic() + 10.0
    while named(mark) and time.monotonic() < end:
        time.sleep(0.02)
    assert named(mark) == []


def test_many_runs_leave_descriptors_and_processes_as_they_were() -> None:
    sandbox = Sandbox(Limits(time=60.0))
    sandbox.run("1")

    def held() -> tuple[int, int]:
        tasks = Path("/proc/self/task").glob("*/children")
        return len(os.listdir("/proc/self/fd")), len(" ".join(one.read_text() for one in tasks).split())

    before = held()
    for code in ("1", "1 / 0", "while True: print('x' * 1000)", "import os\nos.fork()\nos.kill(os.getpid(), 9)") * 3:
        sandbox.run(code)
    assert held() == before


def test_the_filter_is_the_one_that_stops_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of numbers can be wrong: each call that has a name in the C library is tried inside by its name.

    Without privileges many of them are refused anyway, and with the same error. So the filter is made to answer with one that the kernel has for none of them.
    """
    import agent_gym.tools.sandbox.process as process

    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
names = "mount umount2 pivot_root chroot unshare setns ptrace process_vm_readv process_vm_writev swapon swapoff reboot acct quotactl syscall_none " \\
    "init_module delete_module memfd_create shmget shmat shmctl msgget semget fanotify_init clock_settime settimeofday adjtimex sethostname " \\
    "setdomainname vhangup name_to_handle_at open_by_handle_at iopl ioperm"
buffer = ctypes.create_string_buffer(256)  # where the C library looks into the argument itself
given = {"clock_settime": (0, buffer), "settimeofday": (buffer, None), "adjtimex": (buffer,), "ptrace": (0x4206, 0, None, None)}
for name in names.split():
    function = getattr(libc, name, None)
    if function is None:
        continue
    ctypes.set_errno(0)
    done = function(*given.get(name, [ctypes.c_long(0)] * 6))
    print(name, ctypes.get_errno() if done == -1 else 0)
print("end 1")
"""

    def answers(machine_filter: bytes) -> dict[str, int]:
        with monkeypatch.context() as patch:
            patch.setattr(process, "program", lambda machine: machine_filter)
            lines = sandbox.run(code).output.decode().splitlines()
        assert lines.pop() == "end 1", lines
        return {name: int(number) for name, number in map(str.split, lines)}

    sandbox = Sandbox(Limits(time=60.0))
    real = process.program(os.uname().machine)
    denies, telling = (struct.pack("<HBBI", 6, 0, 0, 0x00050000 | number) for number in (errno.EPERM, errno.EPROTO))
    assert real.count(denies) == 1
    found = answers(real)
    assert len(found) > 25 and set(found.values()) == {errno.EPERM}
    assert answers(real.replace(denies, telling)) == dict.fromkeys(found, errno.EPROTO)
    open_to_all = answers(b"\x06\x00\x00\x00\x00\x00\xff\x7f")
    assert open_to_all.keys() == found.keys() and errno.EPROTO not in open_to_all.values()
    for name in (
        "unshare",
        "ptrace",
        "memfd_create",
        "shmget",
        "msgget",
        "name_to_handle_at",
    ):  # open without privileges: the filter alone stops them
        assert open_to_all[name] != errno.EPERM, name
