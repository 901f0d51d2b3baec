"""The replay buffer: whole groups, the same draw for the same seed, nothing too old, and files that cannot be trained on refused by name."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_training import random_trajectory

from agent_gym.chat import load_tokenizer, tokenizer_fingerprint
from agent_gym.flows.chat_import import ChatImporter, import_chat
from agent_gym.runs import RunFolder
from agent_gym.trainers.advantages import get_advantage
from agent_gym.trainers.replay import CORRECTIONS, ReplayBuffer, ReplayError, keep_in_run, replay_rows
from agent_gym.trajectory import StopReason, Trajectory
from agent_gym.trajectory_io import save_trajectories

MINE = "0123456789abcdef"


def episode(seed: int, group: str, version: int = 0, **options: Any) -> Trajectory:
    made = random_trajectory(np.random.default_rng(seed), group, **options)
    steps = [replace(step, policy_version=version) for step in made.steps]
    return replace(made, steps=steps, tokenizer_fingerprint=MINE, sampling={"temperature": 1.0, "top_p": 1.0})


def episodes(sizes: list[int], versions: list[int] | None = None) -> list[Trajectory]:
    return [
        episode(100 * number + member, f"g{number}", 0 if versions is None else versions[number])
        for number, size in enumerate(sizes)
        for member in range(size)
    ]


def buffer(trajectories: list[Trajectory], **options: Any) -> ReplayBuffer:
    return ReplayBuffer({"a.jsonl": trajectories}, MINE, **options)


# ---------------------------------------------------------------------------------------------------- drawing


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(2, 5), min_size=1, max_size=6), wanted=st.floats(0.1, 30), seed=st.integers(0, 2**31))
def test_groups_are_drawn_whole_once_and_as_many_as_asked_for(sizes: list[int], wanted: float, seed: int) -> None:
    found = buffer(episodes(sizes))
    drawn = found.draw(wanted, updates=0, seed=seed)
    counts = Counter(one.group_id for one in drawn.trajectories)
    whole = {f"replay-0-g{number}": size for number, size in enumerate(sizes)}
    assert counts.items() <= whole.items() and counts
    total = sum(counts.values())
    off = abs(total - wanted)
    assert total == sum(sizes) or off <= max(sizes) / 2 or (len(counts) == 1 and total > wanted)
    again = found.draw(wanted, updates=0, seed=seed)
    assert again == drawn  # the very same episodes


def test_another_seed_draws_other_episodes() -> None:
    found = buffer(episodes([2] * 20))
    first, second = (tuple(one.group_id for one in found.draw(4, updates=0, seed=seed).trajectories) for seed in (1, 2))
    assert first != second and len(first) == len(second) == 4


def test_what_is_too_old_is_left_out_and_counted() -> None:
    found = buffer(episodes([2, 3, 4], versions=[1, 4, 6]), max_age=5)
    assert found.version == 6  # the weights that the run begins with are as new as the newest episode
    ages = {}
    for updates, fitting, too_old in ((0, {"g0", "g1", "g2"}, 0), (1, {"g1", "g2"}, 2), (4, {"g2"}, 5), (5, {"g2"}, 5), (6, set(), 9)):
        drawn = found.draw(100, updates=updates, seed=0)
        assert {one.group_id.rpartition("-")[2] for one in drawn.trajectories} == fitting
        assert (drawn.too_old, drawn.available) == (too_old, 9 - too_old)
        assert drawn.figures()["replay/too_old"] == too_old
        ages[updates] = sorted(set(drawn.ages))
    assert ages == {0: [0, 2, 5], 1: [1, 3], 4: [4], 5: [5], 6: []}


def test_a_group_is_as_old_as_its_oldest_action() -> None:
    young, old = episode(1, "g", 9), episode(2, "g", 3)
    assert buffer([young, old], max_age=5).draw(2, updates=0, seed=0).too_old == 2
    assert set(buffer([young, old], max_age=6).draw(2, updates=0, seed=0).ages) == {6}


def test_the_base_version_can_be_stated_and_not_be_below_what_sampled() -> None:
    assert buffer(episodes([2], [3]), base_version=10).draw(1, updates=2, seed=0).ages == (9, 9)
    with pytest.raises(ReplayError, match="sampled by version 3: it cannot be newer"):
        buffer(episodes([2], [3]), base_version=2)


def test_groups_of_two_files_stay_apart_and_episodes_without_a_group_are_one_by_their_task() -> None:
    one, other = episodes([2]), episodes([2])
    found = ReplayBuffer({"a.jsonl": one, "b.jsonl": other}, MINE)
    assert {item.group_id for item in found.draw(9, updates=0, seed=0).trajectories} == {"replay-0-g0", "replay-1-g0"}
    loose = [replace(item, group_id="") for item in episodes([2, 3])]
    sizes = Counter(item.group_id for item in buffer(loose).draw(9, updates=0, seed=0).trajectories)
    assert sorted(sizes.values()) == [2, 3]


def test_lost_episodes_and_lonely_ones_are_left_out_and_counted() -> None:
    fault = episode(7, "g0", end_reason=StopReason.ENV_FAULT)
    found = buffer([*episodes([2]), fault, episode(8, "alone"), replace(episode(9, "g0"), steps=())])
    assert len(found) == 2
    assert found.left_out == {"env_fault": 1, "alone_in_its_group": 1, "no_steps": 1}
    assert "1 left out (alone in its group)" in found.describe(0.5)
    assert len(buffer([episode(8, "alone")], group_relative=False)) == 1
    with pytest.raises(ReplayError, match=r"nothing to replay: no episode is left .1 alone in its group.*reinforce"):
        buffer([episode(8, "alone")])


# ---------------------------------------------------------------------------------------------------- refusing


def saved(path: Path, trajectories: list[Trajectory]) -> Path:
    return save_trajectories(path, trajectories)


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_file_of_another_tokenizer_is_refused_by_name(tmp_path: Path, ending: str) -> None:
    strange = [*episodes([2]), replace(episode(5, "g9"), tokenizer_fingerprint="feedfeedfeedfeed", task_id="far")]
    good, bad = saved(tmp_path / f"good{ending}", episodes([2])), saved(tmp_path / f"bad{ending}", strange)
    assert len(ReplayBuffer.from_files([good], fingerprint=MINE)) == 2
    with pytest.raises(ReplayError) as caught:
        ReplayBuffer.from_files([good, bad], fingerprint=MINE)
    text = str(caught.value)
    assert f"{bad}, trajectory 2 (task 'far')" in text and "feedfeedfeedfeed" in text and MINE in text
    with pytest.raises(ReplayError, match="does not say which tokenizer"):
        buffer([replace(item, tokenizer_fingerprint="") for item in episodes([2])])


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_truncated_file_is_refused_wherever_it_was_cut(tmp_path: Path, ending: str) -> None:
    path = saved(tmp_path / f"cut{ending}", episodes([2, 2]))
    whole = path.read_bytes()
    cuts = [0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 2]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(ReplayError, match="cut"):
            ReplayBuffer.from_files([path], fingerprint=MINE)


def test_files_that_are_none_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    (tmp_path / "other.parquet").write_bytes(b"PAR1")
    path = saved(tmp_path / "twice.jsonl", episodes([2]))
    for files, says in (
        ([tmp_path / "missing.jsonl"], "there is no trajectory file .*missing.jsonl"),
        ([tmp_path / "other.jsonl"], "other.jsonl is no trajectory file"),
        ([tmp_path / "other.parquet"], "other.parquet"),
        ([tmp_path / "other.txt"], "other.txt"),
        ([tmp_path], "cannot be read|should end in"),
        ([path, path.parent / "." / path.name], "given twice"),
        ([saved(tmp_path / "empty.jsonl", [])], "the files hold none"),
    ):
        with pytest.raises(ReplayError, match=says):
            ReplayBuffer.from_files(files, fingerprint=MINE)


def test_damaged_numbers_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jsonl", episodes([2]))
    header, first, second = path.read_text(encoding="utf-8").splitlines()
    for key, value, says in (
        ("logprobs", 0.5, "not finite or above 0"),
        ("logprobs", "nan", "not finite or above 0"),
        ("action_ids", 40, "outside the model's vocabulary of 40"),
        ("action_ids", -1, "outside the model's vocabulary of 40"),
    ):
        record = json.loads(second)
        record["steps"][0][key][0] = value
        path.write_text("\n".join([header, first, json.dumps(record)]) + "\n", encoding="utf-8")
        with pytest.raises(ReplayError, match=rf"a\.jsonl, trajectory 1 .*: step 0 holds? ?.*{says}|trajectory 1 .*step 0 has a .*{says}"):
            ReplayBuffer.from_files([path], fingerprint=MINE, vocab_size=40)
    del record["steps"][0]["logprobs"]
    path.write_text("\n".join([header, first, json.dumps(record)]) + "\n", encoding="utf-8")
    with pytest.raises(ReplayError, match=r"a\.jsonl, line 3: this record is damaged"):
        ReplayBuffer.from_files([path], fingerprint=MINE)


def test_what_cannot_be_corrected_is_refused_unless_it_is_imitated() -> None:
    unknown = [episode(seed, "g", logprobs=False) for seed in range(2)]
    with pytest.raises(ReplayError, match=r"a\.jsonl, trajectory 0 .* has no log-probabilities.*imitate it"):
        buffer(unknown)
    assert len(buffer(unknown, correction="imitation")) == 2
    for sampling, says in (({"temperature": 0.0}, "greedy"), ({"top_p": 0.9}, "nucleus"), ({"temperature": "hot"}, "a.jsonl")):
        with pytest.raises(ReplayError, match=says):
            buffer([replace(one, sampling=sampling) for one in episodes([2])])
    assert len(buffer([replace(one, sampling={"temperature": 0.0}) for one in episodes([2])], correction="imitation")) == 2


def test_settings_that_contradict_are_refused() -> None:
    for options, says in (
        ({"correction": "none"}, "choose one of " + ", ".join(CORRECTIONS)),
        ({"correction": "imitation", "max_age": 3}, "has no age"),
        ({"max_age": -1}, "must not be negative"),
    ):
        with pytest.raises(ValueError, match=says):
            buffer(episodes([2]), **options)


# ---------------------------------------------------------------------------------------------------- rows


def test_replayed_rows_are_those_of_the_episodes_with_their_advantages_and_the_flag() -> None:
    found = buffer(episodes([3, 2]))
    drawn = found.draw(9, updates=0, seed=0)
    rows = replay_rows(found, drawn, get_advantage("grpo"), first=10)
    expected = get_advantage("grpo")(drawn.trajectories)
    assert {row.trajectory for row in rows} == set(range(10, 15))
    assert all(row.replayed for row in rows)
    for row in rows:
        item, values = drawn.trajectories[row.trajectory - 10], expected[row.trajectory - 10]
        for segment in row.segments:
            step = item.steps[segment.step]
            assert np.array_equal(row.ids[segment.start : segment.end], step.action_ids)
            assert np.array_equal(row.logprobs[segment.start : segment.end], step.logprobs)
            assert np.allclose(row.advantages[segment.start : segment.end], values[segment.step])


def test_imported_logs_are_imitated_with_weight_1_but_for_what_they_say_not_to_learn(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    user = {"role": "user", "content": "?"}
    messages = [user, {"role": "assistant", "content": "No.", "weight": 0}, user, {"role": "assistant", "content": "Yes."}]
    log.write_text(json.dumps({"messages": messages, "reward": -3}) + "\n", encoding="utf-8")
    path = saved(tmp_path / "in.jsonl", import_chat(log, ChatImporter()).trajectories)
    tokenizer = load_tokenizer()
    options = {"fingerprint": tokenizer_fingerprint(tokenizer), "vocab_size": len(tokenizer)}
    with pytest.raises(ReplayError, match="no log-probabilities"):
        ReplayBuffer.from_files([path], **options)
    found = ReplayBuffer.from_files([path], correction="imitation", **options)
    (row,) = replay_rows(found, found.draw(1, updates=50, seed=0), get_advantage("grpo"), first=0)
    assert tokenizer.decode(row.ids[row.mask]) == "Yes.<|im_end|>"
    assert set(row.advantages[row.mask]) == {1.0} and np.isnan(row.logprobs[row.mask]).all() and not row.logprobs[~row.mask].any()
    header, line = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(line)
    record["steps"][1]["action_ids"][0] += 1
    path.write_text(f"{header}\n{json.dumps(record)}\n", encoding="utf-8")
    with pytest.raises(ReplayError, match=r"in\.jsonl, trajectory 0 .*altered since it was imported"):
        ReplayBuffer.from_files([path], correction="imitation", **options)


def test_a_run_goes_on_only_with_the_episodes_it_began_with(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"kind": "test"}, versions={})
    keep_in_run(buffer(episodes([2])), run)
    keep_in_run(buffer(episodes([2])), run)
    assert len(run.metrics("replay")) == 1
    with pytest.raises(ReplayError, match="other episodes than those that the run"):
        keep_in_run(buffer(episodes([3])), run)
