"""The program that builds the sandbox around a piece of Python. It is run by path, by a bare interpreter, and imports the standard library alone.

Three processes of it follow one another. The *launcher* stays outside: it enters new namespaces of users, processes, network, IPC and host name, and then
waits for the end of what is inside, or for the end of its standard input, at which it kills the *init*. The init is process 1 of the new process
namespace: it builds a tree of files out of read-only mounts and a small memory file system, starts the *code* and reaps orphans. When it ends, the
kernel kills whatever else is left in the namespace: there is no way out by a new session, a second fork or an ignored signal. The code process gives
every privilege up, takes its limits on, and becomes a fresh interpreter.

Standard input brings a length (8 bytes) and a JSON object; standard output is the code's; on standard error go lines of JSON: `missing` (what the
kernel refuses), `fault` (anything else that failed), `init` (its process id), `started`, `exit` (the code's wait status).
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import os
import resource
import select
import signal
import struct
from typing import Any, NoReturn

_NEW = {"user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000, "uts": 0x04000000, "mnt": 0x00020000}
_BIND, _RECURSIVE, _PRIVATE, _DETACH = 0x1000, 0x4000, 0x40000, 2
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC = 1, 2, 4, 8  # the same for mount(2) and for mount_setattr(2)
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41}
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUND, _SET_SECUREBITS, _SET_NO_NEW_PRIVILEGES, _AMBIENT = 1, 4, 22, 24, 28, 38, 47
_NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


class Missing(Exception):
    """The kernel refuses what the sandbox cannot do without."""


def _report(**line: Any) -> None:
    os.write(2, json.dumps(line).encode() + b"\n")


def _done(result: int, feature: str, call: str) -> int:
    """The result of a C call, or what is missing."""
    if result < 0:
        number = ctypes.get_errno()
        raise Missing(f"{feature} ({call}: {os.strerror(number)})")
    return result


def _prctl(feature: str, *arguments: int) -> None:
    words = [ctypes.c_ulong(one) for one in (*arguments, 0, 0, 0, 0)[:5]]
    _done(_libc.prctl(ctypes.c_int(arguments[0]), *words[1:]), feature, f"prctl {arguments[0]}")


# ------------------------------------------------------------------------------------------------ the launcher


def launch(config: dict[str, Any]) -> None:
    """Enter the namespaces, start the init and wait for its end."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # where the whole machine runs out of memory, this goes before the trainer
    uid = _enter_user_namespace()
    for kind, feature in (("pid", "process"), ("net", "network"), ("ipc", "IPC"), ("uts", "host name")):
        _done(_libc.unshare(_NEW[kind]), f"{feature} namespaces", "unshare")
    _prctl("parent death signals", _SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != config["parent"]:
        return
    lifeline, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        _guarded(_init, config, uid, lifeline)
    os.close(lifeline)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    _report(init=child)
    ended = os.pidfd_open(child)
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.register(0, select.POLLIN | select.POLLHUP)
    if ended not in [descriptor for descriptor, _event in waiting.poll()]:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)  # returns when every process of the namespace is gone


def _enter_user_namespace() -> int:
    """Enter a user namespace in which the ids are what they are outside. Returns the user that the code shall be."""
    root = os.geteuid() == 0
    with open("/proc/self/uid_map") as users, open("/proc/self/gid_map") as groups:
        maps = {"uid_map": _identity(users.read()), "gid_map": _identity(groups.read())} if root else {}
    if not root:
        maps = {"setgroups": "deny", "uid_map": f"{os.geteuid()} {os.geteuid()} 1", "gid_map": f"{os.getegid()} {os.getegid()} 1"}
    me = os.getpid()
    ready, go = os.pipe()
    helper = os.fork() if root else 0  # root's whole map can only be written from outside
    if root and helper == 0:
        os.close(go)
        _guarded(_write_maps, me, maps, ready)
    os.close(ready)
    _done(_libc.unshare(_NEW["user"]), "user namespaces", "unshare")
    os.close(go)
    if root:
        if os.waitpid(helper, 0)[1] != 0:
            raise Missing("user namespaces (their map of users cannot be written)")
        users_inside = [line.split() for line in maps["uid_map"].splitlines()]
        known = any(int(first) <= _NOBODY < int(first) + int(count) for first, _outside, count in users_inside)
        return _NOBODY if known else max(int(first) + int(count) - 1 for first, _outside, count in users_inside)
    try:
        _write_maps(me, maps, None)
    except OSError as error:
        raise Missing(f"user namespaces (their map of users cannot be written: {error.strerror})") from error
    return os.geteuid()


def _identity(text: str) -> str:
    return "".join(f"{first} {first} {count}\n" for first, _outside, count in map(str.split, text.splitlines()))


def _write_maps(process: int, maps: dict[str, str], ready: int | None) -> None:
    if ready is not None:
        os.read(ready, 1)  # until the other end is closed: the namespace is there
    for name, text in maps.items():
        with open(f"/proc/{process}/{name}", "w") as file:
            file.write(text)


# ------------------------------------------------------------------------------------------------ the init


def _init(config: dict[str, Any], uid: int, lifeline: int) -> None:
    _prctl("parent death signals", _SET_DEATH_SIGNAL, signal.SIGKILL)
    waiting = select.poll()
    waiting.register(lifeline, 0)
    if waiting.poll(0):  # the launcher died before the signal was set
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a process 1 does not handle cannot reach it from inside
    os.setsid()
    _build_tree(config, uid)
    _prctl("dumpable processes", _SET_DUMPABLE, 0)
    child = os.fork()
    if child == 0:
        os.close(lifeline)
        _guarded(_become_code, config, uid)
    os.dup2(os.open("/dev/null", os.O_RDWR), 1)
    while True:
        process, status = os.waitpid(-1, 0)
        if process == child:
            _report(exit=status)
            return


def _build_tree(config: dict[str, Any], uid: int) -> None:
    _done(_libc.unshare(_NEW["mnt"]), "mount namespaces", "unshare")
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    base = next(one for one in ("/tmp", "/var/tmp", "/dev", "/mnt", "/") if os.path.isdir(one))
    _mount("tmpfs", base, "tmpfs", _NO_SUID | _NO_DEVICES, "size=1m,mode=755")
    for name in ("new", "old", "writable"):
        os.mkdir(f"{base}/{name}")
    _pivot(base, f"{base}/old")
    os.chdir("/")
    _mount("tmpfs", "/new", "tmpfs", _NO_SUID, "size=16m,nr_inodes=10000,mode=755")
    for name, target in config["links"]:
        os.makedirs(os.path.dirname(f"/new{name}"), exist_ok=True)
        os.symlink(target, f"/new{name}")
    for source, target in config["shown"]:
        _show(f"/old{source}", f"/new{target}", device=target.startswith("/dev/"))
    for pattern in config["masked"]:
        for folder in glob.glob(f"/new{pattern}"):
            if not os.path.islink(folder):
                _mount("tmpfs", folder, "tmpfs", _READ_ONLY | _NO_SUID | _NO_DEVICES, "size=4k,nr_inodes=2,mode=555")
    _mount(
        "tmpfs", "/writable", "tmpfs", _NO_SUID | _NO_DEVICES | _NO_EXEC, f"size={config['disk']},nr_inodes={config['files'] + 4},mode=755"
    )
    for name, target in (("box", "/new/box"), ("tmp", "/new/tmp"), ("shm", "/new/dev/shm")):
        os.mkdir(f"/writable/{name}", 0o700)
        os.chown(f"/writable/{name}", uid, -1)
        os.makedirs(target)
        _mount(f"/writable/{name}", target, None, _BIND)
        _set_flags(target, _NO_SUID | _NO_DEVICES | _NO_EXEC)
    for source, target in config["shown_last"]:
        _show(f"/old{source}", f"/new{target}")
    os.makedirs("/new/etc", exist_ok=True)
    with open("/new/etc/passwd", "w") as file:
        file.write(f"box:x:{uid}:{uid}::/box:/nonexistent\n")
    with open("/new/main.py", "wb") as code:
        code.write(config["code"].encode("utf-8", "surrogatepass"))
    os.chdir("/new")
    _pivot(".", ".")
    _done(_libc.umount2(b".", _DETACH), "mount namespaces", "umount")
    os.chdir("/")
    _set_flags("/", _READ_ONLY | _NO_SUID | _NO_DEVICES, recursive=False)


def _show(source: str, target: str, device: bool = False) -> None:
    """Mount a file or folder of the host, with all that is mounted below it, to be read."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass
    _mount(source, target, None, _BIND | _RECURSIVE)
    _set_flags(target, _READ_ONLY | _NO_SUID | (0 if device else _NO_DEVICES))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    done = _libc.mount(words[0], words[1], words[2], flags, None if data is None else data.encode())
    _done(done, f"mounts in a namespace, of {kind or source or 'everything'} on {target}", "mount")


def _pivot(new: str, old: str) -> None:
    done = _libc.syscall(
        ctypes.c_long(_PIVOT_ROOT[os.uname().machine]), ctypes.c_char_p(os.fsencode(new)), ctypes.c_char_p(os.fsencode(old))
    )
    _done(done, "mounts in a namespace", "pivot_root")


def _set_flags(target: str, flags: int, recursive: bool = True) -> None:
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)
    at = _AT_RECURSIVE if recursive else 0
    done = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_long(_AT_FDCWD),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_ulong(at),
        attributes,
        ctypes.c_size_t(32),
    )
    _done(done, "read-only mounts of whole trees, Linux 5.12", "mount_setattr")


# ------------------------------------------------------------------------------------------------ the code


def _become_code(config: dict[str, Any], uid: int) -> None:
    status = os.dup(2)  # not inheritable
    os.dup2(1, 2)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    try:
        os.setsid()
        outside = 0 if _give_up_privileges(uid) else 2  # launcher and init are the same user, and so are counted
        os.umask(0o077)
        os.chdir("/box")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        for name, value in config["limits"].items():
            value += outside if name == "NPROC" else 0
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
        _prctl("PR_SET_NO_NEW_PRIVS", _SET_NO_NEW_PRIVILEGES, 1)
        _filter_calls(bytes.fromhex(config["filter"]))
        os.write(status, b'{"started": true}\n')
        os.execve(config["argv"][0], config["argv"], config["env"])
    finally:
        os.dup2(status, 2)  # for the report of what failed


def _give_up_privileges(uid: int) -> bool:
    """Give up all of them, for good. Returns whether the code is another user now."""
    for capability in range(64):
        if _libc.prctl(_DROP_BOUND, ctypes.c_ulong(capability), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) < 0:
            break  # the kernel has no more of them
    _prctl("securebits", _SET_SECUREBITS, 0x03)  # user 0 is nobody special, for good
    _prctl("ambient capabilities", _AMBIENT, 4)
    other = os.geteuid() != uid
    if other:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _done(_libc.capset(header, none), "capabilities", "capset")
    return other


def _filter_calls(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    descriptor = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    holder = ctypes.create_string_buffer(descriptor, len(descriptor))
    _prctl("seccomp filters", _SET_SECCOMP, 2, ctypes.addressof(holder))


# ------------------------------------------------------------------------------------------------ all of them


def _guarded(work: Any, *arguments: Any) -> NoReturn:
    """Run the work of a forked process, report what went wrong, and end it."""
    code = 1
    try:
        work(*arguments)
        code = 0
    except Missing as error:
        _report(missing=str(error))
    except BaseException as error:  # noqa: BLE001  # a forked process has nobody to raise it to
        _report(fault=f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def main() -> NoReturn:
    """Read the order and carry it out."""
    (length,) = struct.unpack("<Q", _exactly(8))
    _guarded(launch, json.loads(_exactly(length)))


def _exactly(length: int) -> bytes:
    """So many bytes of standard input; not one more, since what follows is a word to stop."""
    text = b""
    while len(text) < length:
        part = os.read(0, length - len(text))
        if not part:  # the trainer is gone
            os._exit(1)
        text += part
    return text


if __name__ == "__main__":
    main()
