"""`agent-gym data`: games made beforehand, by processes, and what people get wrong."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import require

from agent_gym.cli import main
from agent_gym.envs.textworld.games import GeneratedGames, check_game
from agent_gym.envs.textworld.prepare import prepare_games

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def coins(cache: Path, split: str, number: int) -> GeneratedGames:
    return GeneratedGames("coin_collector", {"level": 1}, split=split, num_games=number, cache_dir=cache)


def whole(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != "locks")


# ---------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "KIND"),
        (["textwrld"], "did you mean 'textworld'?"),
        (["textworld"], "CHALLENGE"),
        (["textworld", "cookin"], "did you mean 'cooking'?"),
        (["textworld", "cooking", "--set", "recipe"], "NAME=VALUE"),
        (["textworld", "cooking", "--set", "recipe=9"], "1 to 5, not 9"),
        (["textworld", "cooking", "--set", "recipe=1", "--set", "recipe=2"], "given twice"),
        (["textworld", "cooking", "--set", "recpe=1"], "did you mean 'recipe'?"),
        (["textworld", "cooking", "--split", "tran"], "did you mean 'train'?"),
        (["textworld", "cooking", "--count", "0"], "at least 1"),
        (["textworld", "cooking", "--wrkers", "2"], "did you mean '--workers'?"),
        (["alfworld", "--count", "2"], "--out"),
        (["alfworld", "--out", "x", "--level", "smal"], "did you mean 'small'?"),
        (["alfworld", "--out", "x", "--split", "valid"], "there is no split 'valid'"),
        (["alfworld", "--out", "x", "--grammar", "old"], "move, put"),
    ],
)
def test_mistakes_are_one_message_with_status_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if arguments[:1] == ["textworld"] and len(arguments) > 2:
        require("textworld.core")
    assert main(["data", *arguments]) == 2
    found = capsys.readouterr()
    assert message in found.err and "Traceback" not in found.err and not found.out


@pytest.mark.parametrize("kind", ["textworld", "alfworld"])
def test_each_kind_has_help(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", kind, "--help"]) == 0
    assert "--count" in capsys.readouterr().out


def test_nothing_to_write_to_is_a_failure_that_names_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require("textworld.core")
    (tmp_path / "file").write_text("")
    assert main(["data", "textworld", "coin_collector", "--count", "1", "--cache-dir", str(tmp_path / "file" / "cache")]) == 1
    assert "cannot be written to" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- TextWorld


@pytest.mark.slow
def test_games_are_made_once_and_the_environment_finds_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    require("textworld.core")
    cache = tmp_path / "cache"
    command = [
        "data",
        "textworld",
        "coin_collector",
        "--set",
        "level=1",
        "--count",
        "2",
        "--split",
        "train",
        "--split",
        "test",
        "--cache-dir",
        str(cache),
    ]
    assert main([*command, "--workers", "2"]) == 0
    assert "4 games made, 0 were there already" in capsys.readouterr().out
    assert whole(cache) == sorted(coins(cache, split, 2).name(index) for split in ("train", "test") for index in range(2))
    for split in ("train", "test"):
        for index in range(2):
            check_game(coins(cache, split, 2).path(index))
    monkeypatch.setattr("agent_gym.envs.textworld.games.Generator.make", lambda *args: pytest.fail("made again"))
    assert main(command) == 0
    found = capsys.readouterr()
    assert "0 games made, 4 were there already" in found.out and "level=1; splits: train, test" in found.out
    from agent_gym.envs.textworld import TextWorldEnv

    env = TextWorldEnv(settings={"level": 1}, num_games=2, cache_dir=cache, split="test")
    env.reset(options={"index": 1})
    env.close()


def test_progress_is_told_game_by_game_and_failures_stop_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("textworld.core")
    told: list[tuple[int, int]] = []
    made: list[int] = []

    def path(self: GeneratedGames, index: int, generator: object) -> Path:
        made.append(index)
        if index == 3:
            raise OSError(28, "full")
        return tmp_path

    monkeypatch.setattr(GeneratedGames, "path", path)
    with pytest.raises(OSError, match="full"):
        prepare_games([coins(tmp_path, "train", 10)], workers=1, progress=lambda done, wanted: told.append((done, wanted)))
    assert made == [0, 1, 2, 3] and told == [(0, 10), (1, 10), (2, 10), (3, 10)]
    with pytest.raises(ValueError, match="workers"):
        prepare_games([coins(tmp_path, "train", 1)], workers=0)


def test_ctrl_c_leaves_whole_games_and_says_how_to_go_on(tmp_path: Path) -> None:
    require("textworld.core")
    cache = tmp_path / "cache"
    command = [
        sys.executable,
        "-m",
        "agent_gym.cli",
        "data",
        "textworld",
        "coin_collector",
        "--set",
        "level=1",
        "--count",
        "50",
        "--cache-dir",
        str(cache),
    ]
    running = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler)
    )
    deadline = time.monotonic() + 200
    while not list(cache.glob("coin_collector-*")):
        assert time.monotonic() < deadline and running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 130 and "of 150 games are in" in error and "Traceback" not in error
    assert not list(cache.glob(".*"))
    for folder in cache.glob("coin_collector-*"):
        check_game(folder / "game.z8")
    generators = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert not any(f"{cache}" in line for line in generators.splitlines())


# ---------------------------------------------------------------------------------------------------- ALFWorld


def test_alfworld_games_are_written_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["data", "alfworld", "--out", str(tmp_path / "games"), "--count", "2", "--split", "valid_unseen", "--level", "small"]
    assert main(command) == 0
    found = capsys.readouterr().out
    assert "2 games written, 0 were there already" in found and "ALFWORLD_DATA=" in found
    assert len(list((tmp_path / "games").glob("json_2.1.1/valid_unseen/*/*/game.tw-pddl"))) == 2
    assert main(command) == 0
    assert "0 games written, 2 were there already" in capsys.readouterr().out
    assert main([*command, "--grammar", "put"]) == 2
    assert os.listdir(tmp_path / "games")
