"""WebShop with a million products: what the one-time build costs, and what a process pays afterwards.

    python benchmarks/webshop_scale.py --folder /data/webshop-scale      # generates 1,180,000 products there first: some minutes, 6 GB
    python benchmarks/webshop_scale.py --folder /tmp/scale --products 100000

Goals, after the build: a new process has its first observation in under 5 s and 1 GB, a second environment adds under 5 MB, a search takes
under 20 CPU-ms at the median. The files, as large as the official ones, and the tables stay in the folder, so a second run measures
without building.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from clock import Clock, show

QUERIES = 300


def memory() -> dict[str, float]:
    """Megabytes that this process holds: all, and those that are not pages of files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[key].split()[0]) / 1024 for name, key in (("rss_mb", "VmRSS"), ("not_of_files_mb", "RssAnon"))}


def build(folder: Path) -> dict[str, float]:
    """Builds the tables; seconds and the most memory held."""
    from agent_gym.envs.webshop import Catalogue

    wall = time.time()
    catalogue = Catalogue.open(folder / "data", cache_dir=folder / "cache")
    tables = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file())
    return {
        "products": len(catalogue),
        "build_cpu_s": Clock(),
        "build_wall_s": time.time() - wall,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "tables_mb": tables / 2**20,
    }


def visit(folder: Path, started: float) -> dict[str, float]:
    """The first observation of a new process, token ids of the whole environment; a second environment; searches and steps of the engine."""
    import gymnasium

    import agent_gym  # noqa: F401  # registers the ids

    def open_environment() -> Any:
        env = gymnasium.make("AgentR1/WebShop-v0", data_dir=folder / "data", cache_dir=folder / "cache", split="test")
        env.reset(seed=0)
        return env.unwrapped

    env = open_environment()
    found: dict[str, float] = {"first_observation_s": time.time() - started, "first_observation_cpu_s": Clock(), **memory()}
    before = memory()["rss_mb"]
    second = open_environment()
    found["second_environment_adds_mb"] = memory()["rss_mb"] - before
    assert second.shop is env.shop
    first = env.session
    draw = random.Random(0)
    goals = [first.shop.goals[index] for index in draw.sample(range(len(first.shop.goals)), QUERIES)]
    queries = [
        " ".join(draw.sample(f"{goal.product.query} {' '.join(goal.attributes)} {goal.product.title}".split(), draw.randint(2, 8)))
        for goal in goals
    ]
    times = []
    clicks = [0.0, 0]
    for query in queries:
        begin = Clock()
        first.act(f"search[{query}]")
        times.append(Clock() - begin)
        for _ in range(10):
            names = first.clickables
            action = f"click[{draw.choice([name for name in names if name not in ('buy now', 'back to search')])}]"
            begin = Clock()
            first.act(action)
            clicks[0] += Clock() - begin
            clicks[1] += 1
    times.sort()
    found |= {"search_median_cpu_ms": times[len(times) // 2] * 1e3, "search_p95_cpu_ms": times[int(len(times) * 0.95)] * 1e3}
    found |= {"click_us": clicks[0] / clicks[1] * 1e6, **{f"after_{QUERIES}_visits_{name}": value for name, value in memory().items()}}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--products", type=int, default=1_180_000)
    parser.add_argument("--part", choices=("build", "visit"), help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        found = build(given.folder) if given.part == "build" else visit(given.folder, given.started)
        sys.stdout.write(json.dumps(found) + "\n")
        return
    data = given.folder / "data"
    if not data.is_dir():
        from agent_gym.envs.webshop.generated.large import generate_large

        begin = Clock()
        generate_large(data, given.products)
        show(
            "webshop scale, generated",
            products=given.products,
            cpu_s=Clock() - begin,
            files_mb=sum(path.stat().st_size for path in data.iterdir()) / 2**20,
        )
    for part, name in (("build", "one-time build"), ("visit", "a new process")):
        command = [sys.executable, __file__, "--folder", str(given.folder), "--part", part, "--started", repr(time.time())]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        show(f"webshop scale, {name}", **json.loads(done.stdout))


if __name__ == "__main__":
    main()
