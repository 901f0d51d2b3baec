"""Where ALFWorld's games come from: generated ones, official folders, single files; what is left out, what is said, and what is never read."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_gym.envs.alfworld import library
from agent_gym.envs.alfworld.game import TASK_TYPES, Game, GameError
from agent_gym.envs.alfworld.generator import generate_game
from agent_gym.envs.alfworld.library import OFFICIAL_COUNTS, EmbeddedGames, FileGames, chosen_types, given_task, open_games, scan

SPLITS = ("train", "valid_seen", "valid_unseen")


@pytest.fixture(autouse=True)
def no_data_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def put(root: Path, name: str, content: Any = None, *, split: str = "valid_unseen", trial: str = "trial_T1") -> Path:
    """A game file of the official layout; by default only the flag stands in it."""
    path = root / "json_2.1.1" / split / name / trial / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(content if isinstance(content, str) else json.dumps({"grammar": "", "solvable": True} if content is None else content))
    return path


def names(count: int, kind: str = "pick_and_place_simple") -> list[str]:
    return [f"{kind}-Mug-None-Desk-{number:03d}" for number in range(count)]


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """Three playable games, found in no good order."""
    for index, kind in ((2, "look_at_obj_in_light"), (0, "pick_heat_then_place_in_recep"), (1, "pick_and_place_simple")):
        data = generate_game("valid_unseen", index, task_types=[kind], level="small")
        put(tmp_path / "data", f"{kind}-Thing-None-Place-{index}", data, trial=f"trial_T{index}")
    return tmp_path / "data"


def opened(*args: Any, **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return open_games(*args, **kwargs)


# ------------------------------------------------------------------------------------------------ generated games


def test_the_default_is_generated_whatever_lies_on_the_disk(official: Path, monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(official))
    source = open_games(split="valid_unseen")
    assert source == EmbeddedGames("valid_unseen") and source.num_tasks is None
    task = source.by_index(3)
    assert (task.dataset, task.split, task.level, task.gamefile, task.id) == ("embedded", "valid_unseen", "full", "", "full/valid_unseen/3")


def test_a_number_names_one_game_and_another_in_each_split_and_level() -> None:
    tasks = {(split, level): EmbeddedGames(split, level=level).draw(5) for split in SPLITS for level in ("full", "small")}
    assert len({task.data["pddl_problem"] for task in tasks.values()}) == len({task.id for task in tasks.values()}) == 6
    library._generated.cache_clear()
    assert EmbeddedGames("train").draw(5).data == tasks["train", "full"].data


def test_both_wordings_tell_the_same_game() -> None:
    move, put_ = (EmbeddedGames("train", grammar=grammar).by_index(4).game for grammar in ("move", "put"))
    assert isinstance(move, Game) and isinstance(put_, Game)
    assert (move.grammar, put_.grammar) == ("move", "put") and move.task == put_.task and move.objects == put_.objects


def test_only_the_chosen_kinds_of_task_are_made() -> None:
    source = open_games(task_types=[2, "pick_two_obj_and_place"])
    kinds = Counter(source.by_index(index).game.task_type for index in range(40))
    assert set(kinds) == {"look_at_obj_in_light", "pick_two_obj_and_place"} and min(kinds.values()) > 5


def test_kinds_of_task_by_name_or_number() -> None:
    assert chosen_types(None) == TASK_TYPES and chosen_types(range(1, 7)) == TASK_TYPES
    assert chosen_types([6, "look_at_obj_in_light", 2]) == ("look_at_obj_in_light", "pick_two_obj_and_place")
    assert chosen_types("look_at_obj_in_light") == chosen_types(2) == ("look_at_obj_in_light",)
    for wrong in ([7], [0], ["look"], [], [True]):
        with pytest.raises(ValueError, match="task_types must be some of pick_and_place_simple"):
            chosen_types(wrong)


@pytest.mark.parametrize(
    ("keywords", "text"),
    [({"split": "test"}, "valid_seen"), ({"grammar": "old"}, "move, put"), ({"level": "tiny"}, "full, small"), ({"dataset": "oficial"}, "nothing at")],
)  # fmt: skip
def test_keywords_that_cannot_be_used_are_refused(keywords: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=text):
        open_games(**keywords)


def test_generated_games_are_counted_from_zero() -> None:
    with pytest.raises(ValueError, match="counted from 0"):
        EmbeddedGames("train").by_index(-1)


# ------------------------------------------------------------------------------------------------ official data


def test_official_games_are_a_sorted_list_that_an_index_covers_once(official: Path) -> None:
    source = opened("official", split="valid_unseen", data_dir=official)
    tasks = [source.by_index(index) for index in range(source.num_tasks)]
    assert [task.id for task in tasks] == sorted(task.id for task in tasks) and len(
        {task.gamefile for task in tasks}
    ) == source.num_tasks == 3
    assert tasks[0].id == "valid_unseen/look_at_obj_in_light-Thing-None-Place-2/trial_T2"
    assert all((task.dataset, task.split, task.level) == ("official", "valid_unseen", "") for task in tasks)
    for index in (-1, 3):
        with pytest.raises(ValueError, match="has 3 games, counted from 0"):
            source.by_index(index)


def test_the_order_does_not_depend_on_the_file_system(official: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Membership and order once depended on the machine and on workers' seeds, and tasks were repeated in validation."""
    walk = os.walk

    def shuffled(folder: Any, **kwargs: Any) -> Any:
        for place, folders, files in walk(folder, **kwargs):
            random.Random(len(place)).shuffle(folders)
            yield place, folders, files[::-1]

    first = opened("official", split="valid_unseen", data_dir=official)
    shutil.copytree(official, tmp_path / "elsewhere")
    monkeypatch.setattr(os, "walk", shuffled)
    second = opened("official", split="valid_unseen", data_dir=tmp_path / "elsewhere")
    assert [first.by_index(index).id for index in range(3)] == [second.by_index(index).id for index in range(3)]
    assert [first.draw(number).id for number in range(20)] == [second.draw(number).id for number in range(20)]


def test_a_seed_draws_another_order_in_each_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileGames, "by_index", lambda self, index: index)
    games = tuple(f"{number}/game.tw-pddl" for number in range(50))
    drawn = [[FileGames("x", Path(), games, split).draw(number) for number in range(30)] for split in (*SPLITS, "")]
    assert all(len(set(picked)) > 15 for picked in drawn) and len({tuple(picked) for picked in drawn}) == 4  # type: ignore[arg-type]


def test_opening_a_split_parses_nothing_and_scans_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None) -> None:
    for name in names(134):
        put(tmp_path, name)
    monkeypatch.setattr(library, "read_game", lambda path: pytest.fail("a game was parsed"))
    walks = []
    walk = os.walk
    monkeypatch.setattr(os, "walk", lambda folder, **kwargs: walks.append(folder) or walk(folder, **kwargs))
    for _ in range(3):
        assert open_games("official", split="valid_unseen", data_dir=tmp_path).num_tasks == 134
    assert len(walks) == 1


def test_auto_takes_official_data_where_the_split_is_there(official: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_games("auto", split="valid_unseen"), EmbeddedGames)
    monkeypatch.setenv("ALFWORLD_DATA", str(official))
    source = opened("auto", split="valid_unseen")
    assert isinstance(source, FileGames) and source.by_index(0).dataset == "official"
    assert isinstance(opened("auto", split="valid_seen"), EmbeddedGames)
    assert isinstance(opened("auto", split="valid_unseen", data_dir=official.parent), EmbeddedGames), "data_dir goes before the variable"


def test_the_place_of_alfworld_download_is_looked_at_without_the_variable(official: Path, tmp_path: Path) -> None:
    shutil.copytree(official, tmp_path / "home" / ".cache" / "alfworld")
    assert opened("official", split="valid_unseen").num_tasks == 3


# ------------------------------------------------------------------------------------------------ what is said


def test_missing_data_name_the_variable_the_place_the_command_and_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for set_up, place in (
        (lambda: None, str(tmp_path / "home" / ".cache" / "alfworld")),
        (lambda: monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "a")), str(tmp_path / "a")),
    ):
        set_up()
        with pytest.raises(FileNotFoundError) as caught:
            open_games("official", split="valid_seen")
        for part in ("ALFWORLD_DATA", f"{place}/json_2.1.1/valid_seen", "alfworld-download", 'dataset="embedded"', "'valid_seen'"):
            assert part in str(caught.value)
    with pytest.raises(FileNotFoundError, match="data_dir='nowhere'"):
        open_games("official", data_dir="nowhere")


def test_a_download_without_its_games_is_told_from_none(tmp_path: Path) -> None:
    """A correct download of the trajectories alone ended in `Unable to find game`."""
    for name in names(3):
        path = put(tmp_path, name)
        path.rename(path.with_name("traj_data.json"))
    with pytest.raises(FileNotFoundError, match=r"3 folders of tasks and no game\.tw-pddl.*alfworld-download"):
        open_games("official", split="valid_unseen", data_dir=tmp_path)
    assert isinstance(open_games("auto", split="valid_unseen", data_dir=tmp_path), EmbeddedGames)


def test_another_split_of_the_same_data_is_missing_and_not_replaced(official: Path) -> None:
    with pytest.raises(FileNotFoundError, match="'train' is not there"):
        open_games(official, split="train")


@pytest.mark.parametrize(("split", "count"), OFFICIAL_COUNTS.items())
def test_the_known_count_is_silent_and_another_one_is_a_warning(
    split: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """132 in place of 134 games were played once, and only a line of output said so."""
    if split == "train":
        count = 40  # the same path; thousands of files would only take time
    for name in names(count):
        put(tmp_path, name, split=split)
    monkeypatch.setattr(library, "OFFICIAL_COUNTS", {split: count})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_games("official", split=split, data_dir=tmp_path).num_tasks == count
    monkeypatch.setattr(library, "OFFICIAL_COUNTS", {split: count + 2})
    with pytest.warns(UserWarning, match=f"{split} has {count} games, and {split} of the official release has {count + 2}"):
        open_games("official", split=split, data_dir=tmp_path)


def test_what_is_left_out_is_named_with_its_reason_and_counts(tmp_path: Path) -> None:
    good = put(tmp_path, "pick_and_place_simple-A-None-B-1")
    for number in range(5):
        put(tmp_path, f"pick_and_place_simple-Unsolved-None-B-{number}", {"solvable": False})
    put(tmp_path, "pick_and_place_with_movable_recep-A-Plate-B-1")
    put(tmp_path, "pick_and_place_simple-AppleSliced-None-B-1")
    put(tmp_path, "pick_and_place_simple-NoFlag-None-B-1", {"grammar": ""})
    put(tmp_path, "pick_and_place_simple-Cut-None-B-1", '{"grammar": "abc')
    put(tmp_path, "pick_and_place_simple-Empty-None-B-1", "")
    put(tmp_path, "pick_and_place_simple-List-None-B-1", "[{}]")
    with pytest.warns(UserWarning, match="were left out") as caught:
        source = open_games("official", split="valid_unseen", data_dir=tmp_path)
    assert isinstance(source, FileGames) and [source.folder / game for game in source.games] == [good]
    assert len(caught) == 1
    said = str(caught[0].message)
    for part in (
        "has 1 games, and valid_unseen of the official release has 134",
        "11 games",
        "5 unsolvable (",
        "Unsolved-None-B-0/trial_T1/game.tw-pddl",
        "and 2 more",
        "1 with a movable receptacle (",
        "1 with sliced objects (",
        "1 without the key 'solvable' (",
        "3 unreadable (",
    ):
        assert part in said, part


def test_a_damaged_file_is_told_even_where_the_count_is_the_known_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "OFFICIAL_COUNTS", {"valid_unseen": 2})
    for name in names(2):
        put(tmp_path, name)
    put(tmp_path, "pick_and_place_with_movable_recep-A-Plate-B-1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what a whole release leaves out is no news
        open_games("official", split="valid_unseen", data_dir=tmp_path)
    scan.cache_clear()
    put(tmp_path, "pick_and_place_simple-Cut-None-B-1", '{"grammar": "abc')
    with pytest.warns(
        UserWarning, match=r"2 games of .* were left out: 1 unreadable \(pick_and_place_simple-Cut-None-B-1.*1 with a movable"
    ):
        open_games("official", split="valid_unseen", data_dir=tmp_path)


def test_nothing_left_to_play_is_an_error_that_says_why(tmp_path: Path) -> None:
    put(tmp_path, names(1)[0], {"solvable": False})
    with pytest.raises(ValueError, match=r"nothing in .* can be played; left out were 1 unsolvable \("):
        open_games("official", split="valid_unseen", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("content", "playable"),
    [
        ('{"solvable": true, "walkthrough": ["look"]}', True),
        ('{"solvable":true}\n', True),
        (json.dumps({"solvable": True, "walkthrough": ["go to cabinet 1"] * 1000}), True),
        (json.dumps({"solvable": False, "walkthrough": ["go to cabinet 1"] * 1000}), False),
        (json.dumps({"solvable": False, "note": 'it is not "solvable": true'}), False),
        (json.dumps({"note": '"solvable": true'}), False),
        (json.dumps({"solvable": "true"}), False),
        (json.dumps({"solvable": None}), False),
    ],
)  # fmt: skip
def test_the_flag_is_read_from_the_end_of_a_file_as_json_would(content: str, playable: bool, tmp_path: Path) -> None:
    put(tmp_path, names(1)[0], content)
    assert bool(scan(tmp_path).games) is playable


def test_a_file_that_breaks_when_it_is_played_is_named(official: Path) -> None:
    broken = put(
        official, "pick_and_place_simple-Broken-None-Desk-9", {"pddl_domain": "", "grammar": "", "pddl_problem": "(", "solvable": True}
    )
    source = opened("official", split="valid_unseen", data_dir=official)
    index = [str(source.folder / game) for game in source.games].index(str(broken))
    with pytest.raises(GameError, match=r"pick_and_place_simple-Broken-None-Desk-9/trial_T1/game\.tw-pddl"):
        source.by_index(index)


# ------------------------------------------------------------------------------------------------ paths


def test_a_path_may_be_the_data_the_split_or_one_game(official: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = official / "json_2.1.1" / "valid_unseen"
    game = next(iter(sorted(folder.glob("*/*/game.tw-pddl"))))
    monkeypatch.chdir(official.parent)
    for path, count, dataset in (
        (official, 3, "data"),
        (official / "json_2.1.1", 3, "json_2.1.1"),
        (folder, 3, "valid_unseen"),
        ("data", 3, "data"),
        (game, 1, "trial_T2"),
    ):
        source = opened(path, split="valid_unseen")
        task = source.by_index(0)
        assert (source.num_tasks, task.dataset, task.split) == (count, dataset, "valid_unseen")
        assert task.id == "valid_unseen/look_at_obj_in_light-Thing-None-Place-2/trial_T2"
    assert opened("json_2.1.1", data_dir=official, split="valid_unseen").num_tasks == 3


def test_a_folder_of_games_in_no_layout_is_played_and_told_apart(official: Path, tmp_path: Path, quiet: None) -> None:
    files = sorted(official.rglob("game.tw-pddl"))
    for number, path in enumerate(files):
        (tmp_path / "mine").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "mine" / f"{number}.tw-pddl")
    source = open_games(tmp_path / "mine")
    assert [source.by_index(index).id for index in range(3)] == ["0.tw-pddl", "1.tw-pddl", "2.tw-pddl"]
    assert source.by_index(0).split == "" and source.by_index(0).dataset == "mine"
    kinds = open_games(tmp_path / "mine", task_types=["look_at_obj_in_light"])
    assert kinds.num_tasks == 1, "where no folder names the kind of task, the game does"


def test_the_split_that_is_told_is_that_of_the_folder(official: Path) -> None:
    source = opened(official / "json_2.1.1" / "valid_unseen", split="train")
    assert source.by_index(0).split == "valid_unseen"


def test_kinds_of_task_are_chosen_by_the_name_of_the_folder(official: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "read_game", lambda path: pytest.fail("a game was parsed"))
    source = opened("official", split="valid_unseen", data_dir=official, task_types=["look_at_obj_in_light", "pick_and_place_simple"])
    assert source.num_tasks == 2
    with pytest.raises(ValueError, match=r"none of the 3 games in .* pick_two_obj_and_place"):
        opened("official", split="valid_unseen", data_dir=official, task_types=["pick_two_obj_and_place"])


def test_files_that_we_generated_are_never_called_official(tmp_path: Path, quiet: None) -> None:
    from agent_gym.envs.alfworld.official import write_games

    write_games(tmp_path / "out", counts={"valid_unseen": 3}, level="small")
    for dataset in ("official", "auto"):
        source = open_games(dataset, split="valid_unseen", data_dir=tmp_path / "out")
        assert source.num_tasks == 3 and source.by_index(0).dataset == "generated"


# ------------------------------------------------------------------------------------------------ one game


def test_a_game_may_be_named_by_its_file_or_handed_over(official: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = opened("official", split="valid_unseen", data_dir=official)
    own = source.by_index(1)
    relative = Path(own.gamefile).relative_to(official)
    for name in (own.gamefile, str(relative), str(relative.parent), Path(own.gamefile).relative_to(official / "json_2.1.1")):
        task = given_task(name, source)
        assert (task.id, task.dataset, task.split, task.gamefile) == (own.id, "official", "valid_unseen", own.gamefile)
    monkeypatch.setenv("ALFWORLD_DATA", str(official))
    foreign = given_task(str(relative), EmbeddedGames("train"))
    assert (foreign.dataset, foreign.split) == ("given", "valid_unseen") and foreign.id == f"given/{own.id}"
    handed = given_task(json.loads(Path(own.gamefile).read_text()))
    assert (handed.dataset, handed.split, handed.gamefile) == ("given", "", "")
    assert handed.id == given_task(json.loads(Path(own.gamefile).read_text())).id != given_task(generate_game("train", 0)).id
    with pytest.raises(FileNotFoundError, match="there is no game at 'nowhere'"):
        given_task("nowhere", source)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"solvable": False}, "solvable"),
        ({"pddl_problem": "("}, "cannot be read"),
        ({"pddl_problem": None}, "pddl_problem"),
        ({"grammar": "grammar :: nothing"}, "grammar"),
    ],
)  # fmt: skip
def test_a_game_that_cannot_be_played_is_one_clear_error(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    data = {**generate_game("train", 0), **change}
    with pytest.raises(GameError, match=reason):
        given_task(data)
    path = put(tmp_path, names(1)[0], data)
    with pytest.raises(GameError, match=reason) as caught:
        given_task(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["pick_and_place_with_movable_recep-A-Plate-B-1", "pick_and_place_simple-AppleSliced-None-B-1"])
def test_movable_and_sliced_games_are_refused_by_name(name: str, tmp_path: Path) -> None:
    path = put(tmp_path, name, generate_game("train", 0))
    with pytest.raises(GameError, match=r"movable|Sliced"):
        given_task(path)


def test_a_game_that_only_the_stock_engine_may_play_is_kept_for_it(tmp_path: Path) -> None:
    data = generate_game("train", 0)
    odd = {**data, "grammar": data["grammar"].replace("task :: ", "tusk :: ").replace('"task"', '"tusk"')}
    with pytest.raises(GameError, match='engine="textworld"'):
        given_task(odd)
    task = given_task(odd, foreign=True)
    assert not isinstance(task.game, Game) and task.data == odd and task.game.grammar == "move"
    path = put(tmp_path, names(1)[0], odd)
    assert given_task(path, foreign=True).game.task_type == "pick_and_place_simple"


# ------------------------------------------------------------------------------------------------ real files


@pytest.mark.parametrize(("release", "grammar"), [("current", "move"), ("old_grammar", "put")])
def test_real_games_of_both_releases_are_read(release: str, grammar: str, data_dir: Path) -> None:
    scan.cache_clear()
    with pytest.warns(UserWarning, match="valid_unseen has 24 games, and valid_unseen of the official release has 134"):
        source = open_games("official", split="valid_unseen", data_dir=data_dir / "alfworld" / release)
    tasks = [source.by_index(index) for index in range(24)]
    assert {task.game.grammar for task in tasks} == {grammar}
    assert Counter(task.game.task_type for task in tasks) == dict.fromkeys(TASK_TYPES, 4)
    assert all(task.id.split("/")[1].startswith(task.game.task_type) for task in tasks)
