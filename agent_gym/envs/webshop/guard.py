"""The process between the front end and the browser's driver: when the front end is gone, however it went, nothing of the browser is left.

Run as a program, `guard.py FOLDER COMMAND...`: it starts the command in a process group of its own, prints `group N`, and waits. When its standard input is
closed, or the command ends, it kills the group, takes the exit of every process that came of it (on Linux also of those that lost their parent, so that
none stays as a zombie where the first process of a container does not care), and removes the folder. The other end of its standard input
is a pipe that only the front end's process holds, so the end of that process closes it, by SIGKILL too.

Imports nothing of agent_gym and as little as it can: it is started with every browser.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux's prctl: orphans among the descendants become children of this process
_PATIENCE = 5.0  # seconds for killed processes to be gone


def main(folder: str, command: list[str]) -> None:
    """Starts the command, waits, and clears up.

    Args:
        folder: removed at the end.
        command: a program's path and its arguments.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _adopt_orphans()
    child = os.fork()
    if child == 0:
        try:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.setpgid(0, 0)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.execv(command[0], command)
        finally:
            os._exit(127)
    os.write(1, b"group %d\n" % child)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        readable, _, _ = select.select([0], [], [], 0.25)
        if readable and not os.read(0, 1):
            break
    _clear_up(child, folder)


def _adopt_orphans() -> None:
    """Makes this process the parent of its descendants' orphans, where the system can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


def _clear_up(group: int, folder: str) -> None:
    limit = time.monotonic() + _PATIENCE
    while time.monotonic() < limit:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.02)
        except ChildProcessError:
            break
    while os.path.lexists(folder) and time.monotonic() < limit + _PATIENCE:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
