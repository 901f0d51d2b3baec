"""The stock engine behind our interface: many in one process, threads, errors, and nothing left behind."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from differential import need_stock_engine, remembered_parses

from agent_gym.core import EnvFault
from agent_gym.envs.alfworld import stock
from agent_gym.envs.alfworld.game import GameError, parse_game
from agent_gym.envs.alfworld.generator import generate_game
from agent_gym.envs.alfworld.stock import StockEngine

GAME = generate_game("train", 0, level="small", task_types=["look_at_obj_in_light"])


def play(engine: StockEngine, rng: random.Random, steps: int) -> list[Any]:
    said = []
    for _ in range(steps):
        command = rng.choice(engine.admissible())
        said.append((command, engine.step(command), engine.admissible(), engine.won, engine.score))
    return said


def whole_play(game: Any, seed: int, steps: int = 8) -> list[Any]:
    engine = StockEngine()
    engine.load(game)
    said = [engine.reset(), *play(engine, random.Random(seed), steps)]
    engine.close()
    return said


def test_a_game_is_played() -> None:
    need_stock_engine()
    engine = StockEngine()
    engine.load(GAME)
    intro = engine.reset()
    assert intro.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.") and "\n\nYour task is to: " in intro
    assert engine.admissible() == sorted(engine.admissible()) and "look" in engine.admissible()
    assert (engine.won, engine.score) == (False, 0)
    assert engine.step("Look") == "Nothing happens."
    arrival = next(command for command in engine.admissible() if command.startswith("go to "))
    assert engine.step(f"  {arrival}\n").startswith("You arrive at ")
    assert arrival not in engine.admissible()
    assert engine.reset() == intro and arrival in engine.admissible()
    engine.close()


def test_a_path_an_object_and_a_game_are_the_same_game(tmp_path: Path) -> None:
    need_stock_engine()
    path = tmp_path / "game.tw-pddl"
    path.write_text(json.dumps(GAME), encoding="utf-8")
    plays = [whole_play(given, 1, 3) for given in (GAME, path, str(path), parse_game(GAME, where="here"))]
    assert plays == [plays[0]] * 4


def test_engines_of_one_process_take_turns() -> None:
    need_stock_engine()
    games = [GAME, generate_game("train", 1, level="small", grammar="put"), GAME]
    alone = [whole_play(game, seed) for seed, game in enumerate(games)]
    engines = [StockEngine() for _ in games]
    for engine, game in zip(engines, games, strict=True):
        engine.load(game)
    said = [[engine.reset()] for engine in engines]
    rngs = [random.Random(seed) for seed in range(len(games))]
    for _ in range(8):
        for engine, rng, words in zip(engines, rngs, said, strict=True):
            words += play(engine, rng, 1)
    assert said == alone
    for engine in engines:
        engine.close()


def test_an_engine_that_forgot_its_operators_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check above can fail: with the library left as it is, turns are mixed up."""
    monkeypatch.setattr(StockEngine, "_take_library", lambda self: None)
    with pytest.raises((AssertionError, EnvFault)):
        test_engines_of_one_process_take_turns()


def test_threads_wait_for_each_other() -> None:
    need_stock_engine()
    alone = [whole_play(GAME, seed, 4) for seed in range(3)]
    said: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda seed=seed: said.update({seed: whole_play(GAME, seed, 4)})) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [said[seed] for seed in range(3)] == alone


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_plays_on() -> None:
    need_stock_engine()
    engine = StockEngine()
    engine.load(GAME)
    engine.reset()
    engine.step(engine.admissible()[0])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(play(engine, random.Random(5), 3)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        told = json.loads(pipe.read())
    os.waitpid(child, 0)
    assert told == json.loads(json.dumps(play(engine, random.Random(5), 3)))
    engine.close()


def test_the_remembered_parses_of_the_differential_test_change_no_word() -> None:
    need_stock_engine()
    plain = whole_play(GAME, 4, 25)
    with remembered_parses():
        assert [whole_play(GAME, 4, 25) for _ in range(2)] == [plain, plain]
    assert whole_play(GAME, 4, 3) == plain[:4]


def test_closed_and_unopened_engines_say_what_to_do() -> None:
    need_stock_engine()
    engine = StockEngine()
    with pytest.raises(RuntimeError, match=r"call load\(game\), then reset\(\)"):
        engine.reset()
    engine.load(GAME)
    for use in (engine.admissible, lambda: engine.step("look"), lambda: engine.won, lambda: engine.score):
        with pytest.raises(RuntimeError, match=r"call reset\(\)"):
            use()
    engine.reset()
    engine.close()
    engine.close()
    with pytest.raises(RuntimeError, match="no game is loaded"):
        engine.step("look")
    engine.load(GAME)
    assert "Your task is to" in engine.reset()
    engine.close()


PROBLEM = GAME["pddl_problem"]
BEFORE_GOAL = PROBLEM[: PROBLEM.index("(:goal")]
BROKEN = {
    "an object twice (the planner ends the process)": {
        "pddl_problem": PROBLEM.replace("(:objects", "(:objects\nagent1 - agent\nagent1 - agent", 1)
    },
    "an unknown predicate (the planner ends the process)": {"pddl_problem": BEFORE_GOAL + "(:goal (and (nonsense agent1))))"},
    "half a problem": {"pddl_problem": PROBLEM[: len(PROBLEM) // 2]},
    "no problem": {"pddl_problem": ""},
    "no domain": {"pddl_domain": ""},
    "a domain that is no text": {"pddl_domain": None},
    "a goal that can never hold": {"pddl_problem": BEFORE_GOAL + "(:goal (and (holds agent1 agent1))))"},
    "no words": {"grammar": ""},
    "an action without words": {"grammar": GAME["grammar"].replace("action GotoLocation", "action Fly")},
    "an expression that raises": {"grammar": GAME["grammar"].replace("r.indefinite", "r.no_such_thing")},
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_game_is_one_clear_error_and_the_engine_plays_on(what: str, tmp_path: Path) -> None:
    need_stock_engine()
    path = tmp_path / "game.tw-pddl"
    path.write_text(json.dumps({**GAME, **BROKEN[what]}), encoding="utf-8")
    other, engine, output, arguments = StockEngine(), StockEngine(), sys.stdout, list(sys.argv)
    other.load(GAME)
    other.reset()
    with pytest.raises(GameError, match=r"the stock engine cannot (load|reset) it: ") as caught:
        engine.load(path)
        engine.reset()
    assert caught.value.where == str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert sys.stdout is output and sys.argv == arguments
    engine.load(GAME)
    assert play(other, random.Random(2), 2) == (engine.reset(), play(engine, random.Random(2), 2))[1]


def test_the_game_is_named_as_the_caller_says_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    need_stock_engine()
    engine = StockEngine()
    with pytest.raises(GameError, match=r"^game 7 of train: the stock engine cannot load it: KeyError: 'grammar'$"):
        engine.load({key: text for key, text in GAME.items() if key != "grammar"}, where="game 7 of train")
    engine.load(GAME, where="game 8")
    intro = engine.reset()
    engine.step(engine.admissible()[0])
    with monkeypatch.context() as patch:
        patch.setattr(engine._env.unwrapped, "load", lambda data: pytest.fail("the same game was read again"))
        engine.load(dict(GAME), where="game 9")
    with pytest.raises(RuntimeError, match=r"^game 9: the game has not begun"):
        engine.admissible()
    assert engine.reset() == intro
    engine.close()


def test_missing_and_unreadable_files_are_errors_of_the_game(tmp_path: Path) -> None:
    need_stock_engine()
    engine = StockEngine()
    (tmp_path / "half.tw-pddl").write_text(json.dumps(GAME)[:1000], encoding="utf-8")
    for name in ("half.tw-pddl", "missing.tw-pddl"):
        engine.load(GAME)
        with pytest.raises(GameError, match=name):
            engine.load(tmp_path / name)
        with pytest.raises(RuntimeError, match="no game is loaded"):  # and not the game before
            engine.reset()


@pytest.mark.parametrize("error", [SystemExit("the planner ended"), IndexError("list index out of range")])
def test_an_engine_that_breaks_in_a_step_is_a_fault_of_the_world(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    need_stock_engine()
    engine = StockEngine()
    engine.load(GAME)
    intro = engine.reset()

    def break_down(command: str) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(engine._env.unwrapped, "step", break_down)
        with pytest.raises(EnvFault, match=r"the given game: the stock engine broke in the step 'look'.*reset it"):
            engine.step("look")
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        engine.step("look")
    assert engine.reset() == intro and engine.step("inventory") == "You are not carrying anything."


def test_words_that_break_in_a_step_are_a_fault_of_the_world() -> None:
    need_stock_engine()
    engine = StockEngine()
    engine.load({**GAME, "grammar": GAME["grammar"].replace("You arrive at {r.name}", "You arrive at {r.no_such_thing}")})
    engine.reset()
    with pytest.raises(EnvFault, match=r"broke in the step 'go to .*no_such_thing"):
        engine.step(next(command for command in engine.admissible() if command.startswith("go to ")))


def test_python_3_13_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 13, 1, "final", 0))
    with pytest.raises(
        RuntimeError, match=r'engine="textworld" does not work on Python 3\.13.*PEP 667.*Python 3\.11 or 3\.12.*engine="fast"'
    ):
        StockEngine()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(stock._Process, "stock", None)
    monkeypatch.setattr(importlib, "import_module", no_module)
    with pytest.raises(ImportError, match=r"No module named 'textworld'.*pip install .agentr1-gym\[alfworld\].*Fast Downward.*GPL-3"):
        StockEngine()


SCRIPT = """
import json, os, random, sys, tempfile
from pathlib import Path
before = random.getstate()
from agent_gym.envs.alfworld.stock import StockEngine
game = json.loads(Path(sys.argv[1]).read_text())
arguments, environment, output = list(sys.argv), dict(os.environ), sys.stdout
engines = [StockEngine() for _ in range(3)]
for _ in range(2):
    for engine in engines:
        engine.load(game); engine.reset(); engine.step("look")
    for engine in engines:
        engine.close()
engines[0].load(game); engines[0].reset()  # and is left open
assert sys.argv == arguments and dict(os.environ) == environment and sys.stdout is output and random.getstate() == before
import alfworld, alfworld.info
assert alfworld.ALFWORLD_DATA == alfworld.info.ALFWORLD_DATA == os.environ.get("ALFWORLD_DATA", os.path.expanduser("~/.cache/alfworld"))
maps = Path("/proc/self/maps")
if maps.exists():
    copies = {line.split()[-2] if line.endswith("(deleted)") else line.split()[-1] for line in maps.read_text().splitlines() if "libdownward" in line}
    assert len(copies) == 1, copies
print("done")
"""


@pytest.mark.parametrize("given", ["", "does/not/exist"])
def test_nothing_is_left_behind_and_the_process_ends_well(given: str, tmp_path: Path) -> None:
    """alfworld would make a folder at home and set a variable, the planner would replace sys.argv, and unloading its library would crash at the end."""
    need_stock_engine()
    home, temporary, here = (tmp_path / name for name in ("home", "tmp", "here"))
    for folder in (home, temporary, here):
        folder.mkdir()
    (tmp_path / "game.json").write_text(json.dumps(GAME), encoding="utf-8")
    root = Path(stock.__file__).parents[3]
    environment = {**os.environ, "HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("ALFWORLD_DATA", None)
    if given:
        environment["ALFWORLD_DATA"] = str(tmp_path / given)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "game.json")], cwd=here, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert not any(home.rglob("*")) and not any(temporary.iterdir()) and not any(here.iterdir()) and not (tmp_path / "does").exists()
