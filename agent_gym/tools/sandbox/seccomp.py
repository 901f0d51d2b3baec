"""The system call filter of the sandbox: a classic BPF program, put together here and installed by the launcher.

It is the second wall. Namespaces already take files, processes and network out of reach; the filter closes what they leave open: sockets of families
that no network namespace covers (vsock reaches the host of a virtual machine), namespaces within namespaces, tracing, memory outside the limits
(anonymous files, System V segments), and the kernel's large or young interfaces. Calls younger than the table are answered as if the kernel did not
know them, so that the C library falls back to older ones.

Numbers are those of the kernel's `asm/unistd_64.h` (x86_64) and `asm-generic/unistd.h` (aarch64, riscv64); opcodes those of `linux/bpf_common.h`.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping, Sequence

__all__ = ["MACHINES", "program"]

_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _EQUAL, _GREATER, _SET, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_NEW_NAMESPACES = 0x7E020000  # all CLONE_NEW* flags of clone(2)
_NEWEST = 467  # calls above it are unknown to this table
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_UNIX = 1

MACHINES: Mapping[str, tuple[int, int]] = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1), "riscv64": (0xC00000F3, 1)}
"""For each machine that is known: its AUDIT_ARCH and its column in the table of numbers."""

_DENIED: Mapping[str, tuple[int | None, int | None]] = {
    # the tree of files
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "fanotify_init": (300, 262), "uselib": (134, None),
    # namespaces and other processes
    "unshare": (272, 97), "setns": (308, 268), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    # memory that no limit counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186),
    "semget": (64, 190), "mbind": (237, 235), "migrate_pages": (256, 238), "move_pages": (279, 239), "set_mempolicy": (238, 237),
    # the kernel's large interfaces
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "lookup_dcookie": (212, 18),
    # the machine
    "reboot": (169, 142), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "syslog": (103, 116), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET, _IOCTL = (56, 220), (435, 435), (41, 198), (16, 29)


def program(machine: str) -> bytes:
    """Put the filter together.

    Args:
        machine: as `os.uname().machine` says it.

    Returns:
        The program: `struct sock_filter` of 8 bytes each, in the machine's own (little-endian) order.

    Raises:
        ValueError: for a machine whose numbers are not in the table.
    """
    if machine not in MACHINES:
        raise ValueError(f"the numbers of system calls of {machine!r} are not known here; known are {', '.join(MACHINES)}")
    architecture, column = MACHINES[machine]
    steps: list[tuple[int, int, str, str]] = [
        (_LOAD, _ARCH, "", ""),
        (_EQUAL, architecture, "", "kill"),  # 32-bit calls have other numbers
        (_LOAD, _NUMBER, "", ""),
        (_GREATER, _NEWEST, "unknown", ""),  # those of x32 as well
        (_EQUAL, _CLONE3[column], "unknown", ""),  # its flags lie in memory, where a filter cannot look; the C library falls back to clone
        (_EQUAL, _CLONE[column], "clone", ""),
        (_EQUAL, _SOCKET[column], "socket", ""),
        (_EQUAL, _IOCTL[column], "ioctl", ""),
    ]
    steps += [(_EQUAL, number, "deny", "") for numbers in _DENIED.values() if (number := numbers[column]) is not None]
    steps.append((_RETURN, _ALLOW, "", ""))
    labels: dict[str, int] = {}
    for label, body in _bodies().items():
        labels[label] = len(steps)
        steps += body
    return b"".join(_encoded(index, step, labels) for index, step in enumerate(steps))


def _bodies() -> Mapping[str, Sequence[tuple[int, int, str, str]]]:
    """What stands behind each label; a jump leads forward only."""
    return {
        "clone": [(_LOAD, _ARGUMENTS, "", ""), (_SET, _NEW_NAMESPACES, "deny", "allow")],
        "socket": [(_LOAD, _ARGUMENTS, "", ""), (_EQUAL, _UNIX, "allow", "deny")],
        "ioctl": [(_LOAD, _ARGUMENTS + 8, "", ""), *((_EQUAL, one, "deny", "") for one in _TERMINAL_INJECTION)],
        "allow": [(_RETURN, _ALLOW, "", "")],
        "deny": [(_RETURN, _ERRNO | errno.EPERM, "", "")],
        "unknown": [(_RETURN, _ERRNO | errno.ENOSYS, "", "")],
        "kill": [(_RETURN, _KILL, "", "")],
    }


def _encoded(index: int, step: tuple[int, int, str, str], labels: Mapping[str, int]) -> bytes:
    code, value, true, false = step
    jumps = [labels[label] - index - 1 if label else 0 for label in (true, false)]
    return struct.pack("<HBBI", code, *jumps, value)
