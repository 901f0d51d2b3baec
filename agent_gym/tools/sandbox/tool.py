"""`PythonTool`: the tool `python(code)`, registered as "python".

Each call is a fresh interpreter: nothing that one call defines or writes is there in the next. So a call's result depends on its code alone, calls of
one turn run side by side, and a process that was killed takes no state along.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_gym.tools.base import BaseTool, ToolContext, ToolResult
from agent_gym.tools.sandbox.process import MAX_CODE, START_LIMIT, Finished, Limits, Sandbox

__all__ = ["PythonTool"]


class PythonTool(BaseTool):
    """The tool `python(code)`: runs a program in a sandbox and answers with what it prints, and with the value of its last expression.

    The code sees the standard library and an empty folder; no network, no other files, no other process. Linux 5.14 or later, as any user.

    Args:
        time: seconds that a program may take.
        memory: bytes of address space of each process, and of memory of all its processes together.
        output: bytes that are kept of what it prints; a program that prints more is stopped.
        disk: bytes of all files that it writes.
        files: how many files it may make.
        processes: how many processes and threads it may have at once.
        packages: installed distributions that it may import (`("numpy", "sympy")`), with what they require. Nothing else that is installed can be
            imported: a program that could import this package could look the answers up.
        read_only: files and folders that it may read, at their own paths. Where you are root the code is nobody, and reads what everyone may.
        name: replaces "python".
        description: replaces the tool's own.

    Attributes:
        limits: as given.

    Raises:
        SandboxUnavailable: if the kernel lacks something that the sandbox needs. The message names it.
        ValueError: for limits, packages or paths that cannot be used.
    """

    name = "python"
    description = (
        "Run a Python program and return what it prints, and the value of its last expression. Each call starts a new interpreter: "
        "nothing is kept from earlier calls."
    )
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The whole program, for example print(sum(range(10)))"}},
        "required": ["code"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        *,
        time: float = 10.0,
        memory: int = 1 << 30,
        output: int = 16_384,
        disk: int = 64 << 20,
        files: int = 1000,
        processes: int = 32,
        packages: Sequence[str] = (),
        read_only: Sequence[str | Path] = (),
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__(name=name, description=description)
        self.limits = Limits(time=time, memory=memory, output=output, disk=disk, files=files, processes=processes)
        self._sandbox = Sandbox(self.limits, packages, read_only)
        self.timeout = (
            time + START_LIMIT + 15.0
        )  # a sandbox that hangs outside the program is no more than this; the program has its own limit

    def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the program.

        Args:
            arguments: `{"code": str}`.
            context: its random numbers seed the module `random` of the program.

        Returns:
            What it printed, and a line that begins with `Error` where a limit ended it. `info` has `exit_code` and `limit`.

        Raises:
            agent_gym.core.EnvFault: if the sandbox itself breaks.
        """
        code = arguments["code"]
        if len(code) > MAX_CODE // 4:
            return ToolResult(f"Error: the program has {len(code)} characters, and at most {MAX_CODE // 4} are allowed.")
        found = self._sandbox.run(code, seed=int(context.rng.integers(2**32)), deadline=context.deadline)
        return ToolResult(self._text(found), info={"exit_code": found.exit_code, "limit": found.limit})

    def _text(self, found: Finished) -> str:
        shown = found.output.decode("utf-8", "replace").rstrip("\n")
        limits = self.limits
        if found.limit:
            line = {
                "time": f"Error (time): the program was stopped after {limits.time:g} seconds.",
                "output": f"Error (output): the program was stopped after {limits.output} bytes of output.",
                "memory": f"Error (memory): the program was stopped because it used more than {limits.memory >> 20} MiB.",
            }[found.limit]
        elif found.exit_code < 0:
            line = f"Error: the program was ended by {_signal_name(-found.exit_code)}."
        elif found.exit_code > (1 if shown else 0):  # 1 with a text is an exception, and the text its traceback
            line = f"Error: the program ended with exit code {found.exit_code}."
        else:
            return shown or "(no output)"
        return f"{shown}\n{line}".lstrip("\n")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
