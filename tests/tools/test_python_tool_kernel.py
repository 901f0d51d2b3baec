"""The Python sandbox refuses to start where the kernel lacks what it needs, and says what; and it needs no root.

What is missing is really missing: the kernel is told to refuse it to one process, by its own limits on namespaces or by a system call filter.
"""

import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import agent_gym.tools.sandbox.process as process
from agent_gym.tools import get_tool
from agent_gym.tools.sandbox import Sandbox, SandboxUnavailable
from agent_gym.tools.sandbox.seccomp import MACHINES, program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Python sandbox needs Linux")

REFUSED = """
import ctypes, os, sys
from agent_gym.tools.sandbox import Sandbox, SandboxUnavailable
libc = ctypes.CDLL(None, use_errno=True)
for prepare in {prepares!r}:
    sys.stdout.flush()
    if os.fork() == 0:
        try:
            exec(prepare)
            Sandbox()
            print("it started")
        except SandboxUnavailable as error:
            print(error)
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
NO_NAMESPACE = """
uid, gid = os.geteuid(), os.getegid()
assert libc.unshare(0x10000000) == 0
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
    open(f"/proc/self/{name}", "w").write(text)
open("/proc/sys/user/max_KIND_namespaces", "w").write("0")
"""


KINDS = {
    "user": "user namespaces",
    "pid": "process namespaces",
    "net": "network namespaces",
    "ipc": "IPC namespaces",
    "uts": "host name namespaces",
    "mnt": "mount namespaces",
}


def refusing(number: int, error: int, argument: int | None = None) -> str:
    """Lines that make the kernel answer a system call, or one with this first argument, with an error."""
    steps = [(0x20, 0, 0, 0), (0x15, 0, 3 if argument is not None else 1, number)]
    if argument is not None:
        steps += [(0x20, 0, 0, 16), (0x15, 0, 1, argument)]
    steps += [(0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7FFF0000)]
    filter_ = b"".join(struct.pack("<HBBI", *one) for one in steps)
    return (
        f"import struct\nfilter_ = ctypes.create_string_buffer({filter_!r}, {len(filter_)})\n"
        f"holder = struct.pack('HxxxxxxP', {len(steps)}, ctypes.addressof(filter_))\nheld = ctypes.create_string_buffer(holder, len(holder))\n"
        "zero = ctypes.c_ulong(0)\nassert libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0\n"
        "assert libc.prctl(22, ctypes.c_ulong(2), ctypes.c_ulong(ctypes.addressof(held)), zero, zero) == 0\n"
    )


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    """What the sandbox says where each thing is missing."""
    x86 = platform.machine() == "x86_64"
    prepares = {kind: NO_NAMESPACE.replace("KIND", kind) for kind in (*KINDS, "time")}
    prepares["seccomp"] = refusing(157 if x86 else 167, 22, argument=22)
    prepares["mount_setattr"] = refusing(442, 38)
    code = REFUSED.format(prepares=list(prepares.values()))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return dict(zip(prepares, done.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_it_refuses_to_start_without_a_kind_of_namespaces_and_names_it(kind: str, said: dict[str, str]) -> None:
    assert said[kind].startswith("the Python sandbox cannot start")
    assert f"Missing: {KINDS[kind]} (unshare: No space left on device)" in said[kind]


def test_it_refuses_to_start_without_filters_and_without_whole_read_only_trees(said: dict[str, str]) -> None:
    assert "Missing: seccomp filters (prctl 22: Invalid argument)" in said["seccomp"]
    assert "Missing: read-only mounts of whole trees, Linux 5.12 (mount_setattr: Function not implemented)" in said["mount_setattr"]


def test_it_refuses_to_start_where_the_processes_of_a_namespace_are_not_limited(said: dict[str, str]) -> None:
    """Global root is exempt from the limit; a namespace that has no other user shows what the self-check is for."""
    if os.geteuid() != 0:
        pytest.skip("only root can play the kernel that does not limit")
    assert "Missing: a limit of processes for each user namespace, Linux 5.14" in said["time"]


def test_it_refuses_to_start_where_a_wall_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    process._check.cache_clear()
    monkeypatch.setattr(process, "program", lambda machine: struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000))
    with pytest.raises(SandboxUnavailable, match="seccomp filters do not hold"):
        Sandbox()
    monkeypatch.undo()
    assert Sandbox().run("1").output == b"1\n"


def test_it_names_other_systems_machines_and_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    process._check.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(process.glob, "glob", lambda pattern: [])
        with pytest.raises(SandboxUnavailable, match="CONFIG_PROC_CHILDREN"):
            Sandbox()
    with monkeypatch.context() as patch:
        patch.setattr(process.sys, "platform", "darwin")
        with pytest.raises(SandboxUnavailable, match="needs Linux, and this is darwin"):
            get_tool("python")
    with monkeypatch.context() as patch:
        real = os.uname()
        patch.setattr(process.os, "uname", lambda: os.uname_result((*real[:4], "sparc64")))
        with pytest.raises(SandboxUnavailable, match="'sparc64' are not known"):
            Sandbox()
    Sandbox()


@pytest.mark.parametrize("machine", MACHINES)
def test_every_jump_of_every_filter_leads_to_a_step_of_it(machine: str) -> None:
    steps = list(struct.iter_unpack("<HBBI", program(machine)))
    assert len(steps) < 4096
    for index, (code, true, false, _value) in enumerate(steps):
        if code & 0x07 == 0x05:
            assert index + 1 + max(true, false) < len(steps)
    assert steps[-1][0] == 0x06


def test_it_works_for_an_ordinary_user(tmp_path: Path) -> None:
    """All other tests run it as whoever runs them; this one as a user without any right, where those are root's."""
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user, and so did the others")
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        pytest.fail("install util-linux, which has unshare and setpriv")
    program_ = """
import os
from agent_gym.tools.sandbox import Limits, Sandbox
assert os.getuid() == 4321 and "CapEff:\\t0000000000000000" in open("/proc/self/status").read()
sandbox = Sandbox(Limits(processes=8, memory=256 << 20))
print(sandbox.run("import os\\nprint(os.getuid(), os.getppid(), os.listdir('.'))").output.decode(), end="")
bomb = sandbox.run("import os, time\\nmade = 0\\ntry:\\n    while True:\\n        if os.fork() == 0: time.sleep(60)\\n        made += 1\\nexcept OSError: print(made)")
print(bomb.output.decode(), end="")
many = "import os, time\\nfor _ in range(5):\\n    if os.fork() == 0:\\n        x = bytearray(b'x') * (80 << 20)\\n        time.sleep(60)\\ntime.sleep(60)"
print(sandbox.run(many).limit)
print(sandbox.run("open('/usr/lib/x', 'w')").output.decode().splitlines()[-1])
"""
    (tmp_path / "play.py").write_text(program_)
    # The interpreter may lie where only root can go: it is shown to that user at another place, in a mount namespace of this test.
    root = Path(__file__).parents[2]
    import gymnasium

    packages = Path(gymnasium.__file__).parents[1]
    executable = os.path.realpath(sys.executable)
    script = f"""
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/python /mnt/packages /mnt/code
mount --bind {sys.base_prefix} /mnt/python
mount --bind {packages} /mnt/packages
mount --bind {root} /mnt/code
cp {tmp_path}/play.py /mnt/play.py
cd /mnt
exec setpriv --reuid 4321 --regid 4321 --clear-groups env -i PYTHONPATH=/mnt/code:/mnt/packages /mnt/python/bin/{os.path.basename(executable)} /mnt/play.py
"""
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=180)
    assert done.stdout.splitlines() == ["4321 1 []", "7", "memory", "OSError: [Errno 30] Read-only file system: '/usr/lib/x'"], done.stderr
