"""What the interpreter inside the sandbox runs first: it carries out `/main.py` as its main module and shows the value of a last expression.

`agent_gym.tools.sandbox.process` passes this file's text with `-c`. It imports nothing that a bare interpreter has not loaded or frozen in, except
`random` where the code names it. The interpreter is one without `site`, so `exit`, `quit` and `help` are put here.
"""

import _ast
import _sitebuiltins
import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _hook(kind, value, trace):  # type: ignore[no-untyped-def]  # the frames of this file are none of the reader's business
    while trace is not None and trace.tb_frame.f_code.co_filename == "<string>":
        trace = trace.tb_next
    sys.__excepthook__(kind, value.with_traceback(trace), trace)


def _run(seed: int) -> None:
    sys.argv = ["/main.py"]
    sys.path.append("/packages")
    sys.excepthook = _hook
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "the end of the program"))
    builtins.help = _sitebuiltins._Helper()
    with open("/main.py", "rb") as file:
        source = file.read()
    if b"random" in source:
        import random

        random.seed(seed)
    tree: Any = compile(source, "/main.py", "exec", 0x400, dont_inherit=True)  # a tree and no code
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], _ast.Expr) else None
    module = type(sys)("__main__")
    module.__dict__.update(__file__="/main.py", __builtins__=builtins)
    sys.modules["__main__"] = module
    exec(compile(tree, "/main.py", "exec", dont_inherit=True), module.__dict__)
    if last is not None:
        exec(compile(_ast.Interactive([last]), "/main.py", "single", dont_inherit=True), module.__dict__)


if __name__ == "__main__":
    _run(int(sys.argv[1]))
