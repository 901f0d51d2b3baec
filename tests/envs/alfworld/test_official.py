"""Generated games as files: the official layout, whole games only, resumable, and played by the original package."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from differential import need_stock_engine
from helpers import require

from agent_gym.envs.alfworld import official
from agent_gym.envs.alfworld.game import parse_game, read_game
from agent_gym.envs.alfworld.generator import SPLITS, TASK_TYPES, generate
from agent_gym.envs.alfworld.official import WriteError, game_files, write_games
from agent_gym.envs.alfworld.simulator import Simulator

FILES = {"game.tw-pddl", "traj_data.json", "initial_state.pddl"}


def alone() -> bool:
    """Run the calling test in a process of its own, unless this is that process: the original's libraries and ours in one process end it at times."""
    if os.environ.get("AGENT_GYM_TEST_ALONE") == "1":
        return False
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0].rpartition("::")[2]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"AGENT_GYM_TEST_ALONE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"{__file__}::{test}"]
    done = subprocess.run(command, env=environment, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
    return True


def games_in(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("json_2.1.1/*/*/*/traj_data.json"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_games_lie_where_the_official_ones_do_and_say_what_they_are(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    summary = write_games(
        tmp_path / "out", counts={"train": 8, "valid_seen": 3, "valid_unseen": 2}, progress=lambda *step: steps.append(step)
    )
    assert summary.written == {"train": 8, "valid_seen": 3, "valid_unseen": 2}
    assert summary.kept == {"train": 0, "valid_seen": 0, "valid_unseen": 0}
    assert steps == [(done, 13) for done in range(1, 14)]
    found = games_in(tmp_path / "out")
    assert len(found) == 13
    for folder in found:
        assert {path.name for path in folder.iterdir()} == FILES
        game = read_game(folder / "game.tw-pddl")
        about = json.loads((folder / "traj_data.json").read_text())
        target = about["pddl_params"]
        task, thing, nothing, place, scene = folder.parent.name.split("-")
        assert (task, thing, nothing) == (about["task_type"], target["object_target"], "None")
        assert place == (target["parent_target"] or target["toggle_target"])
        assert scene == str(about["scene"]["scene_num"])
        assert about["task_id"] == folder.name
        assert about["turk_annotations"]["anns"][0]["task_desc"] == game.task
        assert (game.goal.object_type, game.goal.receptacle_type, game.goal.toggle_type) == (
            target["object_target"],
            target["parent_target"],
            target["toggle_target"],
        )
        data = json.loads((folder / "game.tw-pddl").read_text())
        assert (folder / "initial_state.pddl").read_text() == data["pddl_problem"]
        assert data["solvable"] is True
        assert summary.size == sum(path.stat().st_size for path in (tmp_path / "out" / "json_2.1.1").rglob("*") if path.is_file())


def test_the_files_are_the_generated_games_with_a_play_that_wins(tmp_path: Path) -> None:
    write_games(tmp_path, counts={"valid_unseen": 6}, level="small", grammar="put", first_index=40)
    for index in range(40, 46):
        made = generate("valid_unseen", index, level="small", grammar="put")
        folder = tmp_path / "json_2.1.1" / "valid_unseen" / made.meta.folder / made.meta.trial
        data = json.loads((folder / "game.tw-pddl").read_text())
        walkthrough = data.pop("walkthrough")
        assert data == made.data
        simulator = Simulator(parse_game(data, where="written"))
        for command in walkthrough:
            assert not simulator.won
            assert command in simulator.admissible()
            simulator.step(command)
        assert simulator.won


def test_one_number_asks_for_as_many_games_of_each_split(tmp_path: Path) -> None:
    assert write_games(tmp_path, counts=2, level="small").written == dict.fromkeys(SPLITS, 2)


def test_a_second_call_keeps_what_is_there_and_adds_the_rest(tmp_path: Path) -> None:
    write_games(tmp_path / "twice", counts={"train": 4}, level="small")
    first = contents(tmp_path / "twice")
    summary = write_games(tmp_path / "twice", counts={"train": 7}, level="small")
    assert (summary.written, summary.kept) == ({"train": 3}, {"train": 4})
    assert first.items() <= contents(tmp_path / "twice").items()
    write_games(tmp_path / "once", counts={"train": 7}, level="small")
    assert contents(tmp_path / "once") == contents(tmp_path / "twice")


def test_a_torn_game_is_written_again(tmp_path: Path) -> None:
    write_games(tmp_path, counts={"train": 3}, level="small")
    whole = contents(tmp_path)
    first, second, _ = games_in(tmp_path)
    (first / "game.tw-pddl").write_bytes((first / "game.tw-pddl").read_bytes()[:100])
    (second / "initial_state.pddl").unlink()
    summary = write_games(tmp_path, counts={"train": 3}, level="small")
    assert (summary.written, summary.kept) == ({"train": 2}, {"train": 1})
    assert contents(tmp_path) == whole


@pytest.mark.parametrize("bytes_free", [0, 5_000, 30_000, 47_000])
def test_a_full_disk_leaves_whole_games_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_free: int) -> None:
    left = bytes_free
    honest = Path.write_bytes

    def write(path: Path, data: bytes) -> int:
        nonlocal left
        honest(path, data[:left])
        left -= len(data)
        if left < 0:
            left = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return len(data)

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(WriteError, match=r"No space left on device\. (\d+) of 6 are there, all of them whole.*call again") as caught:
        write_games(tmp_path / "out", counts={"train": 6}, level="small")
    monkeypatch.undo()
    found = games_in(tmp_path / "out")
    assert f"{len(found)} of 6 are there" in str(caught.value)
    assert all({path.name for path in folder.iterdir()} == FILES for folder in found)
    assert not list((tmp_path / "out").glob(".unfinished*"))
    write_games(tmp_path / "out", counts={"train": 6}, level="small")
    write_games(tmp_path / "other", counts={"train": 6}, level="small")
    assert contents(tmp_path / "out") == contents(tmp_path / "other")


def test_a_writer_that_is_stopped_leaves_whole_games(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_games(tmp_path, counts={"train": 6}, level="small", progress=stop)
    assert len(games_in(tmp_path)) == 3
    assert not list(tmp_path.glob(".unfinished*"))


def test_games_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    write_games(tmp_path / "ours", counts={"train": 1}, level="small")
    before = contents(tmp_path / "ours")
    for change in ({"level": "full"}, {"grammar": "put"}, {"task_types": TASK_TYPES[:2]}):
        with pytest.raises(ValueError, match="take another folder"):
            write_games(tmp_path / "ours", counts={"train": 1}, **{"level": "small", **change})  # type: ignore[arg-type]
    assert contents(tmp_path / "ours") == before
    (tmp_path / "theirs" / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(ValueError, match="were not generated here; take another folder"):
        write_games(tmp_path / "theirs", counts={"train": 1})


def test_what_cannot_be_asked_for_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got 'test': 3"):
        write_games(tmp_path / "out", counts={"test": 3})
    with pytest.raises(ValueError, match="got 'train': -1"):
        write_games(tmp_path / "out", counts=-1)
    with pytest.raises(ValueError, match="unknown level 'tiny'"):
        write_games(tmp_path / "out", counts=1, level="tiny")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(WriteError, match=r"could not write the games to .*: Permission denied\. 0 of 3 are there"):
        write_games(tmp_path / "out", counts=1)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(WriteError, match=r"could not write the games to .*out: .*0 of 3"):
        write_games(tmp_path / "out", counts=1)


def test_a_game_that_the_expert_loses_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official, "plan", lambda simulator: ["look"])
    with pytest.raises(RuntimeError, match="the expert does not win the generated game train/trial_full_train_0000000"):
        game_files(generate("train", 0))
    with pytest.raises(RuntimeError):
        write_games(tmp_path, counts={"train": 1})
    assert not games_in(tmp_path)


# --- with the original package ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The original's environments; importing them sets ALFWORLD_DATA, which is put back."""
    need_stock_engine()
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = str(tmp_path_factory.mktemp("alfworld"))
    try:
        yield require("alfworld.agents.environment.alfred_tw_env")
    finally:
        if before is None:
            os.environ.pop("ALFWORLD_DATA", None)
        else:
            os.environ["ALFWORLD_DATA"] = before


def _config(folder: Path) -> dict[str, Any]:
    data = folder / "json_2.1.1"
    return {
        "dataset": {
            "data_path": str(data / "train"),
            "eval_id_data_path": str(data / "valid_seen"),
            "eval_ood_data_path": str(data / "valid_unseen"),
            "num_train_games": -1,
            "num_eval_games": -1,
        },
        "env": {
            "task_types": [1, 2, 3, 4, 5, 6],
            "domain_randomization": False,
            "goal_desc_human_anns_prob": 0.0,
            "expert_type": "handcoded",
        },
        "general": {"training_method": "dagger"},
        "dagger": {"training": {"max_nb_steps_per_episode": 100}},
    }


def _play(environment: Any, file: str, choose: Any, limit: int) -> bool:
    environment.load(file)
    state = environment.reset()
    for number in range(limit):
        state, _, done = environment.step(choose(state, number))
        if done:
            break
    return bool(state["won"])


def test_the_original_finds_the_games_and_its_expert_or_our_walkthrough_wins_them(original: Any, tmp_path: Path) -> None:
    """Its hand-coded expert walks in circles in some games (so it does in official ones); there the file's own walkthrough has to win."""
    if alone():
        return
    textworld, pddl = require("textworld"), require("textworld.envs")
    for task in TASK_TYPES:
        write_games(tmp_path / task, counts={"train": 1, "valid_seen": 1, "valid_unseen": 1}, level="small", task_types=[task])
        for split, folder in (("train", "train"), ("eval_in_distribution", "valid_seen"), ("eval_out_of_distribution", "valid_unseen")):
            found = original.AlfredTWEnv(_config(tmp_path / task), split).game_files
            assert [Path(file).relative_to(tmp_path / task / "json_2.1.1").parts[0] for file in found] == [folder]

    infos = textworld.EnvInfos(won=True, admissible_commands=True, facts=True, extras=["gamefile", "expert_plan"])
    engine = original.AlfredInfos(original.AlfredDemangler(pddl.PddlEnv(infos), shuffle=False))
    environment = original.AlfredExpert(engine, original.AlfredExpertType.HANDCODED)
    state = random.getstate()
    random.seed(0)  # the original's expert draws from the global generator
    by_expert = 0
    try:
        for task in TASK_TYPES:
            (file,) = (tmp_path / task / "json_2.1.1" / "train").rglob("game.tw-pddl")
            if _play(environment, str(file), lambda state, _: state["extra.expert_plan"][0], 25):
                by_expert += 1
            else:
                walkthrough = json.loads(file.read_text())["walkthrough"]
                assert _play(engine, str(file), lambda _, number, plan=walkthrough: plan[number], len(walkthrough)), task
    finally:
        random.setstate(state)
    assert by_expert >= 4


def test_the_originals_own_loop_plays_a_full_game_to_its_end(original: Any, tmp_path: Path) -> None:
    """Through `init_env`, as its users do: observations come in batches, and the expert's plan is in the infos."""
    if alone():
        return
    write_games(tmp_path, counts={"train": 1}, task_types=["pick_and_place_simple"])
    environment = original.AlfredTWEnv(_config(tmp_path), "train").init_env(batch_size=1)
    state = random.getstate()
    try:
        random.seed(0)
        observations, infos = environment.reset()
        assert "Your task is to: " in observations[0]
        assert infos["extra.gamefile"][0].startswith(str(tmp_path))
        (file,) = tmp_path.rglob("game.tw-pddl")
        for command in json.loads(file.read_text())["walkthrough"]:
            _, _, dones, infos = environment.step([command])
        assert list(infos["won"]) == [True]
        assert list(dones) == [True]
    finally:
        random.setstate(state)
        environment.close()
