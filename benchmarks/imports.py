"""Import time beside Gymnasium's: CPU seconds of a fresh process, minimum of interleaved runs. Goal: at most 1.5 times.

python benchmarks/imports.py
"""

from __future__ import annotations

import resource
import subprocess
import sys

from clock import show


def seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    codes = {"python": "pass", "gymnasium": "import gymnasium", "agent_gym": "import agent_gym"}
    least = dict.fromkeys(codes, float("inf"))
    for _ in range(7):
        for name, code in codes.items():
            least[name] = min(least[name], seconds(code))
    loaded = subprocess.run(
        [sys.executable, "-c", "import agent_gym, sys; print(*[m for m in ('torch', 'transformers', 'jinja2') if m in sys.modules])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    ratio = least["agent_gym"] / least["gymnasium"]
    show(
        "import time",
        gymnasium_s=least["gymnasium"],
        agent_gym_s=least["agent_gym"],
        python_s=least["python"],
        ratio=ratio,
        heavy_modules=loaded,
    )


if __name__ == "__main__":
    main()
