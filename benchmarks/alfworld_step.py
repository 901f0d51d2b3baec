"""ALFWorld: our engine against the stock one (textworld through alfworld), in the same games with the same commands.

    AGENT_GYM_TEST_DATA=path/to/data python benchmarks/alfworld_step.py

Both are asked for the admissible commands before every step, as an environment does, and all that they say is compared in this run. The commands are
those of the expert with three random ones before each. A reset is that of a loaded game, its admissible commands included (ours: the first one, so that
nothing is worked out before); a new game is read from its file's text, loaded and reset. Our engine is a new one for every repeat, and the mean over the
repeats counts.

Goals: at least 1,000 times the steps and 5,000 times the resets. Without AGENT_GYM_TEST_DATA the games are generated ones.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from clock import Clock, show

from agent_gym.envs.alfworld.expert import next_command
from agent_gym.envs.alfworld.game import TASK_TYPES, Game, parse_game
from agent_gym.envs.alfworld.generator import generate_game
from agent_gym.envs.alfworld.simulator import Simulator
from agent_gym.envs.alfworld.stock import StockEngine

STEPS, REPEATS = 30, 20


def texts() -> dict[str, list[str]]:
    """Game files by kind: all real ones that are at hand, or one generated game of each task type and wording."""
    if not (folder := os.environ.get("AGENT_GYM_TEST_DATA")):
        kinds = {f"generated, {grammar!r}": grammar for grammar in ("put", "move")}
        return {kind: [json.dumps(generate_game("train", 0, grammar=g, task_types=[t])) for t in TASK_TYPES] for kind, g in kinds.items()}
    return {
        kind: [path.read_text(encoding="utf-8") for path in sorted((Path(folder) / "alfworld" / name).rglob("game.tw-pddl"))]
        for kind, name in (("real, 'put'", "old_grammar"), ("real, 'move'", "current"))
    }


def commands_of(game: Game, seed: int) -> list[str]:
    """What both will play."""
    simulator, rng, commands = Simulator(game), random.Random(seed), []
    while len(commands) < STEPS:
        expert = len(commands) % 4 == 3 and not simulator.won
        commands.append(next_command(simulator) if expert else rng.choice(simulator.admissible()))
        simulator.step(commands[-1])
    return commands


def play(engine: Any, commands: list[str]) -> tuple[float, list[Any]]:
    """Play the commands; returns the CPU time and all that was said."""
    said: list[Any] = []
    start = Clock()
    for command in commands:
        said.append(engine.admissible())
        said.append(engine.step(command))
        said.append((engine.won, engine.score))
    return Clock() - start, said


def opened(engine: Any) -> tuple[float, Any]:
    """Reset a loaded game; returns the CPU time and what is said."""
    start = Clock()
    said = engine.reset(), engine.admissible()
    return Clock() - start, said


def measure(kind: str, files: list[str]) -> None:
    stock = StockEngine()
    spent = dict.fromkeys(("step", "reset", "new game"), 0.0), dict.fromkeys(("step", "reset", "new game"), 0.0)
    for number, text in enumerate(files):
        commands = commands_of(parse_game(json.loads(text), where=kind), number)
        start = Clock()
        stock.load(json.loads(text))
        stock.reset()
        spent[1]["new game"] += Clock() - start
        cpu, intro = opened(stock)
        spent[1]["reset"] += cpu
        cpu, said = play(stock, commands)
        spent[1]["step"] += cpu
        for _ in range(REPEATS):
            start = Clock()
            simulator = Simulator(parse_game(json.loads(text), where=kind))
            loaded = Clock() - start
            cpu, ours = opened(simulator)
            spent[0]["reset"] += cpu / REPEATS
            spent[0]["new game"] += (loaded + cpu) / REPEATS
            if ours != intro:
                raise AssertionError(f"{kind}, game {number}: the introductions differ:\n{ours}\n{intro}")
            cpu, ours = play(simulator, commands)
            spent[0]["step"] += cpu / REPEATS
            if ours != said:
                raise AssertionError(f"{kind}, game {number}: the engines differ in what they say to {commands}")
    stock.close()
    for what, count in (("step", len(files) * STEPS), ("reset", len(files)), ("new game", len(files))):
        fast, slow = spent[0][what] / count, spent[1][what] / count
        show(
            f"ALFWorld {what}, {kind} games", games=len(files), texts_equal=True, fast_us=fast * 1e6, stock_us=slow * 1e6, ratio=slow / fast
        )


def main() -> None:
    for kind, files in texts().items():
        measure(kind, files)


if __name__ == "__main__":
    main()
