"""The play of one game: clean text, commands that must not reach the interpreter, threads, forks, and nothing left behind."""

import gc
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from helpers import require
from hypothesis import given, settings
from hypothesis import strategies as st
from textworld_play import GAMES, games, interpreters, open_files, opened

from agent_gym.core import EnvFault
from agent_gym.envs.textworld import engine as engine_module
from agent_gym.envs.textworld.engine import TextWorldEngine, refusal
from agent_gym.envs.textworld.games import GameError

require("textworld.core")

ODD = ["xyzzy", "go up", "take all", "wait", "help", "goal", "score", "l", "open", "take", "examine", "eat", "put", "g", "say hello", "yes"]


def walk(engine: TextWorldEngine, seed: int, steps: int) -> list[tuple[object, ...]]:
    """A random walk through admissible and odd commands, as all that comes of it."""
    rng = random.Random(seed)
    texts: list[tuple[object, ...]] = [(engine.reset(), engine.situation.admissible)]
    for _ in range(steps):
        now = engine.situation
        if now.done:
            break
        command = rng.choice([*now.admissible, *ODD])
        text = engine.step(command)
        now = engine.situation
        texts.append((command, text, now.admissible, now.score, now.moves, now.won, now.lost, now.carried_out, now.key))
    return texts


# ---------------------------------------------------------------------------------------------------- text and situation


@pytest.mark.parametrize("name", GAMES)
def test_the_text_is_the_games_own_without_banner_status_line_and_menu(game_cache: Path, name: str) -> None:
    engine = opened(name, game_cache)
    first = engine.reset()
    assert "$$$" not in first and first.startswith(engine.objective) and len(engine.objective) > 30
    assert first[len(engine.objective) :].strip().startswith("-= ")
    for seed in range(3):
        for entry in walk(engine, seed, 25)[1:]:
            text = str(entry[1])
            assert text == text.strip() and "\n\n\n" not in text and not text.endswith(">")
            assert "RESTART" not in text and "[" not in text and "</" not in text and "    -= " not in text
    engine.close()


def test_the_end_is_told_and_the_walkthrough_wins(game_cache: Path) -> None:
    for name in GAMES:
        engine = opened(name, game_cache)
        engine.reset()
        text = ""
        for command in engine.walkthrough:
            assert not engine.situation.done
            text = engine.step(command)
        assert engine.situation.won and not engine.situation.lost and engine.situation.score == engine.max_score > 0
        assert "*** The End ***" in text.splitlines()
        engine.close()


@pytest.mark.parametrize("name", ["cook", "simple", "custom"])
def test_each_admissible_command_is_carried_out_and_nonsense_is_not(game_cache: Path, name: str) -> None:
    engine = opened(name, game_cache)
    engine.reset()
    for command in engine.situation.admissible:
        engine.reset()
        engine.step(command)
        assert engine.situation.carried_out, command
        engine.reset()
        engine.step(f"  {command.upper()}. ")
        assert engine.situation.carried_out, "upper case, blanks and a full stop are the game's to read, and it reads them"
    engine.reset()
    for command in ("xyzzy", "take moon", "go up", "save", "", "\\x"):
        engine.step(command)
        assert not engine.situation.carried_out, command
    engine.step("l")
    assert engine.situation.carried_out, "another word for an admissible command"
    engine.close()


def test_the_key_names_the_state_and_not_the_way_there(game_cache: Path) -> None:
    engine = opened("coin", game_cache)
    engine.reset()
    start, ways = engine.situation, [one for one in engine.situation.admissible if one.startswith("go ")]
    back = {"go north": "go south", "go south": "go north", "go east": "go west", "go west": "go east"}
    engine.step(ways[0])
    assert engine.situation.key != start.key
    engine.step(back[ways[0]])
    assert engine.situation.key == start.key and engine.situation.moves == start.moves + 2
    engine.step("look")
    assert engine.situation.key == start.key
    engine.close()


# ---------------------------------------------------------------------------------------------------- commands that are answered here

REFUSED = [
    "save", "SAVE", "save.", " restore ", "restart", "quit", "q", "script", "script on", "transcript", "version", "oops save", "o save",
    "tw-trace-actions", "tw-extra-infos description", "tw-print max_score",
    "look. save", "go north.go south", "look, save", "me, save", "look then save", "look; save", "take coin\\x00", "\x00look", "look\x00", "\\x", "\\help", "\\",
    "[taking coin - succeeded]", "say *** The End ***", 'say "*** The End ***"', "*** You lost! ***", "<score>1</score>", "é", "☃", "\x1b[A", "x" * 151, "", "  ", ".",
]  # fmt: skip


def test_refused_commands_leave_the_game_and_the_disk_alone(game_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = opened("coin", game_cache)
    engine.reset()
    wanted = [engine.step(command) for command in ("look", "inventory", *engine.walkthrough)]
    engine.reset()
    before = engine.situation
    answers = [engine.step("look")]
    for command in REFUSED:
        assert engine.step(command), command
        now = engine.situation
        assert (now.score, now.facts, now.moves, now.won, now.lost) == (before.score, before.facts, before.moves + 1, False, False), command
        assert not now.carried_out, command
    answers += [engine.step(command) for command in ("inventory", *engine.walkthrough)]
    assert answers == wanted and engine.situation.won
    assert not list(tmp_path.iterdir())
    engine.close()


def test_a_command_over_several_lines_is_one_command(game_cache: Path) -> None:
    """Sent as it is, the interpreter would keep the second line for the next turn, and every answer after it would be late."""
    engine = opened("coin", game_cache)
    engine.reset()
    lines = engine.step("look\ngo north")
    engine.reset()
    assert lines == engine.step("look go north")
    assert engine.step("inventory") == "You are carrying nothing."
    engine.close()


@given(st.text(max_size=40))
@settings(max_examples=300, deadline=None)
def test_only_words_reach_the_interpreter(text: str) -> None:
    command = " ".join(text.split()).rstrip(" .")
    if not refusal(command):
        assert all(one.isascii() and (one.isalnum() or one in " '-") for one in command) and command
        assert command.split()[0].lower() not in ("save", "restore", "restart", "quit", "q", "script", "transcript")


@given(
    st.lists(
        st.one_of(st.sampled_from([*ODD, *REFUSED, "take", "coin", "from", "north", "all", "with", "me", "about"]), st.text(max_size=8)),
        max_size=4,
    ).map(" ".join)
)
@settings(max_examples=150, deadline=None)
def test_any_text_is_answered_and_loses_nothing(game_cache: Path, text: str) -> None:
    engine = _kept(game_cache)
    engine.step(text)
    assert not engine.situation.done and engine.situation.score == 0
    assert interpreters() >= 1


_engines: dict[Path, TextWorldEngine] = {}


def _kept(cache: Path) -> TextWorldEngine:
    """One engine for all examples, at the beginning of its game."""
    if cache not in _engines:
        _engines[cache] = opened("cook", cache)
    _engines[cache].reset()
    return _engines[cache]


@pytest.mark.parametrize(("command", "seconds"), [("look\\x00", 60), ("\\\\x80", 5)], ids=["a NUL byte", "a backslash"])
def test_what_is_kept_away_would_end_or_hang_the_process(game_cache: Path, command: str, seconds: int) -> None:
    code = (
        "import sys, textworld\nenv = textworld.start(sys.argv[1], textworld.EnvInfos())\nenv.reset()\n"
        "env.step(sys.argv[2].encode().decode('unicode_escape'))"
    )
    path = games("coin", game_cache).path(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return
    assert done.returncode < 0


# ---------------------------------------------------------------------------------------------------- side by side


def test_interleaved_engines_do_not_influence_each_other(game_cache: Path) -> None:
    engines = {name: opened(name, game_cache) for name in ("coin", "cook", "simple")}
    alone = {name: walk(engine, 5, 20) for name, engine in engines.items()}
    for engine in engines.values():
        engine.reset()
    place = dict.fromkeys(engines, 1)
    while any(place[name] < len(alone[name]) for name in engines):
        for name, engine in engines.items():
            if place[name] < len(alone[name]):
                entry = alone[name][place[name]]
                assert engine.step(str(entry[0])) == entry[1]
                assert (engine.situation.admissible, engine.situation.key) == (entry[2], entry[8])
                place[name] += 1
    for engine in engines.values():
        engine.close()


def test_threads_play_as_one_does(game_cache: Path) -> None:
    names = ("coin", "cook", "hunt", "custom")
    wanted = {name: walk(opened(name, game_cache), 2, 25) for name in names}
    found: dict[str, object] = {}

    def play(name: str) -> None:
        found[name] = walk(opened(name, game_cache), 2, 25)

    threads = [threading.Thread(target=play, args=(name,)) for name in names]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert found == wanted


def test_without_the_lock_threads_break(game_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap itself, in a process of its own: TextWorld's parsers are shared by all its environments."""
    code = (
        "import sys, threading\nsys.path[:0] = sys.argv[2:]\nfrom pathlib import Path\nfrom contextlib import nullcontext\n"
        "from agent_gym.envs.textworld import engine\nfrom test_textworld_engine import walk, opened\nengine._lock = nullcontext()\nfailed = []\n"
        "def play(name):\n    try:\n        for seed in range(4):\n            walk(opened(name, Path(sys.argv[1])), seed, 25)\n"
        "    except BaseException as error:\n        failed.append(error)\n"
        "sys.setswitchinterval(1e-6)\nthreads = [threading.Thread(target=play, args=(name,)) for name in ('coin', 'cook', 'hunt', 'custom')]\n"
        "[thread.start() for thread in threads]\n[thread.join() for thread in threads]\nsys.exit(3 if failed else 0)"
    )
    tests = Path(__file__).parents[2]
    folders = [str(Path(__file__).parent), str(tests), str(tests.parent)]
    results = {
        subprocess.run(
            [sys.executable, "-c", code, str(game_cache), *folders], cwd=tests.parent, capture_output=True, check=False
        ).returncode
        for _ in range(2)
    }
    assert results != {0}


def test_a_process_forked_while_the_lock_is_held_can_play(game_cache: Path) -> None:
    engine = opened("coin", game_cache)
    wanted = walk(engine, 1, 5)
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with engine_module._lock:
            held.set()
            let_go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:  # no assertion may leave this branch
        import signal

        signal.alarm(60)
        os._exit(0 if walk(engine, 1, 5) == wanted else 1)
    let_go.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    assert walk(engine, 1, 5) == wanted
    engine.close()


# ---------------------------------------------------------------------------------------------------- the plan


@pytest.mark.parametrize("name", ["cook", "simple", "custom"])
def test_a_plan_that_is_asked_for_late_is_the_one_that_was_kept_all_along(game_cache: Path, name: str) -> None:
    kept, late = opened(name, game_cache), opened(name, game_cache)
    rng = random.Random(4)
    assert kept.reset(plan=True) == late.reset()
    for _ in range(6):
        command = rng.choice(kept.situation.admissible)
        assert kept.step(command) == late.step(command)
        assert late.situation.plan is None
    late.step("save")
    before = late.situation
    assert late.plan() == kept.plan() == kept.situation.plan
    assert (late.situation.key, late.situation.moves, late.situation.carried_out) == (before.key, before.moves, False)
    for command in kept.plan():
        assert kept.step(command) == late.step(command), "the text is the same, whether a plan is kept or not"
    assert kept.situation.won and late.situation.won
    kept.close()
    late.close()


# ---------------------------------------------------------------------------------------------------- faults and what is left


def test_a_game_that_textworld_cannot_load_is_named(game_cache: Path, tmp_path: Path) -> None:
    import json
    import shutil

    source = games("coin", game_cache).path(0)
    shutil.copy(source, tmp_path / "a.z8")
    notes = json.loads(source.with_suffix(".json").read_text())
    for key in ("KB", "world", "infos"):
        (tmp_path / "a.json").write_text(json.dumps({**notes, key: [{"nonsense": 1}]}))
        with pytest.raises(GameError, match=r"TextWorld cannot load .*a\.z8"):
            TextWorldEngine().open(tmp_path / "a.z8")


def test_an_engine_that_breaks_is_a_fault_and_the_next_game_plays(game_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = opened("coin", game_cache)
    wanted = engine.reset()
    monkeypatch.setattr(engine._env, "step", lambda command: sys.exit(1))
    with pytest.raises(EnvFault, match=r"TextWorld broke in .*game\.z8: SystemExit: 1"):
        engine.step("look")
    engine.open(games("coin", game_cache).path(0))
    assert engine.reset() == wanted
    engine.close()


def test_closing_lets_go_of_the_interpreter_of_files_and_of_temporary_ones(
    game_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    paths = [games("coin", game_cache).path(index) for index in range(3)]
    gc.collect()
    before = (interpreters(), open_files())
    engine = TextWorldEngine()
    for _ in range(4):
        for path in paths:
            engine.open(path)
            engine.reset()
            engine.step("look")
            assert interpreters() == before[0] + 1
    engine.close()
    engine.close()
    gc.collect()
    assert (interpreters(), open_files()) == before and not list(tmp_path.iterdir())
