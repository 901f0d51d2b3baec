"""All benchmarks that take minutes at most, one after the other, one JSON line per figure.

python benchmarks/run.py
AGENT_GYM_PEERS=path/to/run.sh python benchmarks/run.py      # with the peers beside ours
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = (
    "imports",
    "step",
    "tool_step",
    "turns",
    "rows",
    "generation",
    "overlap",
    "contexts",
    "alfworld_step",
    "alfworld_env",
    "webshop_step",
    "webshop_env",
)


def main() -> int:
    failed = []
    for name in NAMES:
        done = subprocess.run([sys.executable, str(HERE / f"{name}.py")], env={"OMP_NUM_THREADS": "1", **os.environ}, check=False)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
