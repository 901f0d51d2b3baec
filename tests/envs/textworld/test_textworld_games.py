"""Settings and splits, the making of games, the cache, and the files that must not reach the interpreter."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from helpers import require
from hypothesis import given, settings
from hypothesis import strategies as st
from textworld_play import GAMES, games

from agent_gym.envs.textworld import games as games_module
from agent_gym.envs.textworld import generator as generator_module
from agent_gym.envs.textworld.challenges import CHALLENGES, SPLITS, TEXT_SETTINGS, check_settings
from agent_gym.envs.textworld.games import (
    ATTEMPTS,
    GameError,
    GameFiles,
    GeneratedGames,
    Generator,
    check_game,
    default_cache_dir,
    open_games,
)

require("textworld.core")

ROOT = Path(__file__).parents[3]


# ---------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("game", "given", "message"),
    [
        ("coin_colector", {}, "did you mean 'coin_collector'?"),
        ("chess", {}, "TextWorld has coin_collector"),
        ("coin_collector", {"levl": 3}, "did you mean 'level'?"),
        ("coin_collector", {"level": 0}, "a whole number from 1 to 300, not 0"),
        ("coin_collector", {"level": 301}, "a whole number from 1 to 300, not 301"),
        ("coin_collector", {"level": True}, "not True"),
        ("coin_collector", {"level": 2.0}, "not 2.0"),
        ("coin_collector", {"level": "3"}, "not '3'"),
        ("coin_collector", {"level": 151}, "102 rooms"),
        ("coin_collector", {"level": 234}, "102 rooms"),
        ("treasure_hunter", {"level": 31}, "1 to 30"),
        ("cooking", {"go": 5}, "one of 1, 6, 9, 12, not 5"),
        ("cooking", {"cook": 1}, "one of False, True, not 1"),
        ("cooking", {"take": 2, "recipe": 1}, "take=2"),
        ("cooking", {"recipe_seed": 3, "take": 0}, "recipe_seed"),
        ("cooking", {"recipe_seed": -1}, "from 0"),
        ("cooking", {"split": "train"}, "keyword split decides 'split'"),
        ("simple", {"test": True}, "keyword split decides 'test'"),
        ("simple", {"goal": "long"}, '"detailed", "brief", "none"'),
        ("custom", {"theme": "castle"}, '"house", "basic"'),
        ("custom", {"quest_breadth": 3, "quest_length": 2}, "quest_breadth=3"),
        ("custom", [("level", 3)], "must be a mapping"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_with_what_was_wanted(game: str, given: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        check_settings(game, given)  # type: ignore[arg-type]
    assert message in str(refused.value) and ": {" not in str(refused.value).split("such as")[0]


def test_settings_are_given_in_full_and_every_default_is_allowed() -> None:
    for challenge in CHALLENGES.values():
        full = check_settings(challenge.name)
        assert list(full) == [*challenge.settings, *TEXT_SETTINGS]
        assert all(full[name] == setting.default and full[name] in setting.allowed for name, setting in challenge.settings.items())
    assert check_settings("coin_collector", {"level": 150})["level"] == 150 and check_settings("coin_collector", {"level": 233})


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(SPLITS), st.sampled_from(SPLITS))
@settings(deadline=None, max_examples=60)
def test_no_two_games_of_whatever_splits_share_a_seed(one: int, other: int, first: str, second: str) -> None:
    seeds = GeneratedGames("simple", split=first).seeds(one)
    assert len(set(seeds)) == ATTEMPTS and min(seeds) >= 0 and max(seeds) < 2**32
    if (one, first) != (other, second):
        assert not set(seeds) & set(GeneratedGames("simple", split=second).seeds(other))


def test_a_name_hashes_all_that_the_game_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [
        GeneratedGames("coin_collector", {"level": 3}),
        GeneratedGames("coin_collector", {"level": 4}),
        GeneratedGames("coin_collector", {"level": 3, "only_last_action": True}),
        GeneratedGames("coin_collector", {"level": 3}, split="test"),
        GeneratedGames("treasure_hunter", {"level": 3}),
    ]
    names = [source.name(index) for source in sources for index in (0, 1)]
    assert len({name.rpartition("-")[2] for name in names}) == len(names)
    assert GeneratedGames("coin_collector", {"level": 3}, num_games=7, cache_dir="elsewhere").name(0) == names[0]
    monkeypatch.setattr("agent_gym.envs.textworld.games.textworld_version", lambda: "1.8.0")
    assert GeneratedGames("coin_collector", {"level": 3}).name(0) != names[0]


def test_settings_are_told_by_what_differs_from_the_defaults() -> None:
    assert GeneratedGames("cooking", {"take": 1, "go": 6, "cut": True}).settings == "go=6, cut=True"
    assert GeneratedGames("simple").settings == "default"


def test_the_cache_lies_where_the_user_has_such_things(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "agent-gym" / "textworld" == GeneratedGames("simple").cache_dir
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / ".cache" / "agent-gym" / "textworld"


def test_without_textworld_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_gym.envs.textworld.games.util.find_spec", lambda name: None)
    for make in (lambda: open_games("simple"), lambda: open_games("some.z8")):
        with pytest.raises(ImportError, match=r'pip install "agentr1-gym\[textworld\]"'):
            make()


def test_importing_the_room_does_not_import_textworld() -> None:
    code = "import sys, agent_gym.envs.textworld, agent_gym.envs.textworld.prepare, agent_gym.cli.data; assert not {'textworld', 'jericho'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# ---------------------------------------------------------------------------------------------------- the splits of the challenges


@pytest.mark.slow
def test_the_cooking_splits_differ_in_foods_or_their_preparation(game_cache: Path) -> None:
    """Train games hold train foods alone, and what the held-back splits ask for is asked for nowhere in train."""
    from textworld.challenges.tw_cooking.cooking import FOOD_PREPARATIONS_SPLITS, FOODS_SPLITS

    asked: dict[str, set[tuple[str, ...]]] = {}
    for split in SPLITS:
        source = games("drop", game_cache, split=split, num_games=2)
        notes = [json.loads(source.path(index).with_suffix(".json").read_text()) for index in range(len(source))]
        assert {one["metadata"]["settings"]["split"] for one in notes} == {{"train": "train", "validation": "valid", "test": "test"}[split]}
        asked[split] = {tuple(food) for one in notes for food in one["metadata"]["ingredients"]}
        own = set(FOODS_SPLITS[{"validation": "valid"}.get(split, split)])
        foods = own | set(FOODS_SPLITS["train"])
        assert {food for food, *_ in asked[split]} <= foods
        prepared = FOOD_PREPARATIONS_SPLITS[{"validation": "valid"}.get(split, split)]
        assert all(food in own or (cooking, cutting) in prepared[food] for food, cooking, cutting in asked[split])
        assert len({one["metadata"]["uuid"] for one in notes}) == 2
    assert not asked["train"] & asked["test"] and not asked["train"] & asked["validation"]


def test_the_simple_challenge_keeps_its_test_foods_for_the_test_split() -> None:
    requests = {split: GeneratedGames("simple", split=split)._request(0)["settings"]["test"] for split in SPLITS}
    assert requests == {"train": False, "validation": False, "test": True}


# ---------------------------------------------------------------------------------------------------- making


def made(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


MAKE_ONE = """
import sys
from agent_gym.envs.textworld.games import GeneratedGames
print(GeneratedGames("cooking", {"recipe": 2, "take": 2, "cook": True, "cut": True, "open": True, "go": 6}, num_games=4, cache_dir=sys.argv[1]).path(0))
"""


def test_a_game_is_the_same_in_bytes_under_another_hash_seed_and_on_another_day(game_cache: Path, tmp_path: Path) -> None:
    here = games("cook", game_cache).path(0).parent
    home = tmp_path / "home"
    home.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": "77", "HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", MAKE_ONE, str(tmp_path / "cache")], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    there = Path(done.stdout.strip()).parent  # the path and nothing else: neither TextWorld nor Inform 7 says a word
    assert done.stderr == "" and there.name == here.name
    assert made(here) == made(there) and set(made(here)) == {"game.z8", "game.json"}
    assert not list(home.iterdir()), "Inform 7 wrote into the home folder, or something was left in the temporary one"
    assert date.today().strftime("%y%m%d").encode() not in made(here)["game.z8"][:64]


def test_making_leaves_numpys_global_generator_alone(tmp_path: Path) -> None:
    import numpy as np

    np.random.seed(3)
    wanted = np.random.get_state()[1].tolist()
    GeneratedGames("coin_collector", {"level": 1}, cache_dir=tmp_path).path(0)
    assert np.random.get_state()[1].tolist() == wanted


def test_two_processes_that_ask_for_a_game_at_once_make_it_once(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom agent_gym.envs.textworld import games\nmake = games.Generator.make\n"
        "def counted(*args):\n    print('made')\n    return make(*args)\ngames.Generator.make = counted\n"
        "source = games.GeneratedGames('coin_collector', {'level': 1}, cache_dir=sys.argv[1])\n"
        "print('ready', flush=True)\nsys.stdin.readline()\nprint(source.path(0))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for one in started:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    for one in started:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    answers = [one.communicate(timeout=300)[0].split() for one in started]
    assert all(one.returncode == 0 for one in started)
    assert [word for answer in answers for word in answer].count("made") == 1
    assert answers[0][-1] == answers[1][-1] and Path(answers[0][-1]).is_file()


def whole_games(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != "locks" and not path.name.startswith("."))


def test_a_killed_maker_leaves_nothing_that_looks_like_a_game_and_the_next_one_clears_up(tmp_path: Path) -> None:
    source = GeneratedGames("coin_collector", {"level": 1}, cache_dir=tmp_path)
    code = "import sys\nfrom agent_gym.envs.textworld.games import GeneratedGames\nGeneratedGames('coin_collector', {'level': 1}, cache_dir=sys.argv[1]).path(0)"
    maker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".coin_collector-*/work")):
        assert time.monotonic() < deadline and maker.poll() is None
        time.sleep(0.005)
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    assert not whole_games(tmp_path) and not source.is_made(0)
    check_game(source.path(0))
    assert whole_games(tmp_path) == [source.name(0)]
    deadline = time.monotonic() + 60  # the orphan of the killed one ends by itself and takes what it made with it
    while list(tmp_path.glob(".*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not list(tmp_path.glob(".*"))


def test_a_maker_whose_generator_dies_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GeneratedGames("coin_collector", {"level": 1}, cache_dir=tmp_path)
    with Generator() as generator:
        generator._running().kill()
        with pytest.raises(GameError, match="ended with status -9"):
            source.path(0, generator)
    assert not whole_games(tmp_path) and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("kilobytes", [8, 200], ids=["not even the source", "not the story"])
def test_a_full_disk_is_one_clear_message_and_leaves_nothing(tmp_path: Path, kilobytes: int) -> None:
    """Files may not grow beyond a limit here, which fails in the same places as a disk without room."""
    code = MAKE_ONE.replace(
        "import sys", f"import sys, resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, ({kilobytes} << 10,) * 2)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("OSError: ") and str(tmp_path) in last, done.stderr
    assert "cannot be written" in last and "Free some space" in last
    assert not whole_games(tmp_path) and not list(tmp_path.glob(".*"))


def test_a_seed_without_a_game_makes_room_for_the_next_and_sixteen_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def design(request: object, seed: int, path: Path) -> None:
        tried.append(seed)
        if seed < 5:
            raise KeyError("no quest fits this map")
        path.write_bytes(bytes(range(64)))
        path.with_suffix(".json").write_text("{}")

    monkeypatch.setattr(generator_module, "_compile", design)
    monkeypatch.setattr(generator_module.tempfile, "tempdir", None)
    request = {"challenge": "custom", "settings": {}, "text": {}, "seeds": list(range(16))}
    (tmp_path / "a").mkdir()
    assert generator_module.make_game({**request, "folder": str(tmp_path / "a")}) == 5 and tried == [0, 1, 2, 3, 4, 5]
    assert sorted(made(tmp_path / "a")) == ["game.json", "game.z8"]
    (tmp_path / "b").mkdir()
    with pytest.raises(ValueError, match="5 seeds gave no game; the last one failed with KeyError: 'no quest fits this map'"):
        generator_module.make_game({**request, "seeds": list(range(5)), "folder": str(tmp_path / "b")})


def test_settings_that_give_no_game_are_told_and_are_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games_module, "_CPU_SECONDS", 6.0)
    source = GeneratedGames("custom", {"world_size": 1, "quest_length": 100}, cache_dir=tmp_path)
    with pytest.raises(
        GameError, match=r"no game of custom with the settings world_size=1, quest_length=100.*none after 6 seconds of CPU time"
    ):
        source.path(0)
    assert not whole_games(tmp_path) and not list(tmp_path.glob(".*"))


def test_a_number_outside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IndexError, match="no game 3 of 3"):
        GeneratedGames("simple", num_games=3, cache_dir=tmp_path).path(3)
    for wrong in (0, True, 2.5, None):
        with pytest.raises(ValueError, match="num_games"):
            GeneratedGames("simple", num_games=wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- files


@pytest.fixture
def copy(game_cache: Path, tmp_path: Path) -> Path:
    """A `.z8` of one's own, with its `.json`."""
    source = games("coin", game_cache).path(0)
    for suffix in (".z8", ".json"):
        shutil.copy(source.with_suffix(suffix), tmp_path / f"mine{suffix}")
    return tmp_path / "mine.z8"


def patched(path: Path, place: int, value: int) -> None:
    story = bytearray(path.read_bytes())
    story[place] = value
    path.write_bytes(story)


def test_a_good_file_is_taken(copy: Path) -> None:
    check_game(copy)
    assert GameFiles(copy).name(0) == "mine" and len(GameFiles(copy.parent)) == 1


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: patched(path, 0, 9), "begins with the byte 9"),
        (lambda path: path.write_bytes(b""), "0 bytes, and the header alone has 64"),
        (lambda path: path.write_bytes(path.read_bytes()[:200_000]), "header tells of"),
        (lambda path: patched(path, 200_000, path.read_bytes()[200_000] ^ 1), "checksum"),
        (lambda path: path.with_suffix(".json").unlink(), "no mine.json beside it"),
        (lambda path: path.with_suffix(".json").write_text('{"version": 1, "wor'), "no JSON"),
        (lambda path: path.with_suffix(".json").write_bytes(b"\xff\xfe"), "no JSON"),
        (lambda path: path.with_suffix(".json").write_text("[1, 2]"), "lacks version, world"),
        (lambda path: path.with_suffix(".json").write_text("{}"), "lacks version, world"),
    ],
)  # fmt: skip
def test_a_damaged_game_is_refused_before_it_reaches_the_interpreter(copy: Path, harm: object, message: str) -> None:
    harm(copy)  # type: ignore[operator]
    with pytest.raises((GameError, FileNotFoundError), match=message) as refused:
        check_game(copy)
    assert str(copy.parent) in str(refused.value)


def test_what_the_check_keeps_away_ends_the_whole_process_or_goes_unnoticed(copy: Path) -> None:
    """The two traps themselves, so that the check can go when TextWorld closes them."""
    code = "import sys, textworld\nenv = textworld.start(sys.argv[1], textworld.EnvInfos(admissible_commands=True))\nprint(env.reset().admissible_commands)"
    bad = copy.with_name("bad.z8")
    shutil.copy(copy, bad)
    shutil.copy(copy.with_suffix(".json"), bad.with_suffix(".json"))
    patched(bad, 0, 9)
    wrapped = f"try:\n    {code.replace(chr(10), chr(10) + '    ')}\nexcept BaseException:\n    sys.exit(0)"
    done = subprocess.run([sys.executable, "-c", f"import sys\n{wrapped}", str(bad)], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    copy.with_suffix(".json").unlink()
    done = subprocess.run([sys.executable, "-c", code, str(copy)], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("None")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("old.ulx", "Glulx"),
        ("story.z5", "ends in .z8"),
        ("none.z8", "there is no game"),
        ("coin_colector", "did you mean 'coin_collector'?"),
        ("nowhere", "a file, a folder or a list"),
        (3, "must be the name of a challenge"),
        ([1], "must be the name of a challenge"),
        ([], "no .z8 game"),
    ],
)
def test_games_that_are_none_are_refused_when_they_are_named(tmp_path: Path, name: object, message: str) -> None:
    given = [str(tmp_path / name)] if isinstance(name, str) and "." in name else name
    if isinstance(given, list) and given and str(given[0]).endswith((".ulx", ".z5")):
        Path(str(given[0])).write_bytes(b"Glul")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        open_games(given)  # type: ignore[arg-type]


def test_files_have_no_settings_and_keep_their_order(copy: Path, tmp_path: Path) -> None:
    other = tmp_path / "sub" / "mine.z8"
    other.parent.mkdir()
    for suffix in (".z8", ".json"):
        shutil.copy(copy.with_suffix(suffix), other.with_suffix(suffix))
    files = GameFiles([str(other), copy])
    assert [files.path(0), files.path(1)] == [other, copy] and [files.name(0), files.name(1)] == ["mine-0", "mine-1"]
    with pytest.raises(ValueError, match="settings belong to a challenge"):
        open_games(copy, {"level": 3})
    assert GAMES  # the challenges' own names stay what they are
    with pytest.raises(FileNotFoundError, match=r"no \.z8 game in"):
        GameFiles(tmp_path / "locks") if (tmp_path / "locks").mkdir() is None else None
