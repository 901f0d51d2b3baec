"""The server of the page: only this machine, only GET, only what it lists itself; files in pieces, also while they grow."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_gym.cli import main
from agent_gym.report.serve import ViewServer, state_of
from agent_gym.report.store import EpisodeFile, Source, open_source
from agent_gym.runs import RunFolder
from agent_gym.trajectory import Step, StopReason, Trajectory
from agent_gym.trajectory_io import TrajectoryWriter, save_trajectories


def episode(number: int, length: int = 3) -> Trajectory:
    steps = [
        Step(
            [1, 2],
            [10 + number % 100] * length,
            [-0.5] * length,
            reward=1.0,
            info={"is_success": True},
            terminated=True,
            stop_reason=StopReason.SUCCESS,
        )
    ]
    return Trajectory(env_id="X-v0", task_id=f"task {number}", seed=number, steps=steps)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path / "run", {"env_id": "X-v0"})
    made.log("train", 1, {"reward": 0.5})
    made.save_trajectories("final", [episode(number) for number in range(450)])
    (tmp_path / "secret.jsonl").write_text("secret", encoding="utf-8")
    return made


@pytest.fixture
def server(run: RunFolder) -> Iterator[ViewServer]:
    with ViewServer([open_source(run.path)]) as started:
        yield started


def ask(server: ViewServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def test_it_gives_the_page_pieces_and_episodes(server: ViewServer) -> None:
    status, body, headers = ask(server, "/")
    assert status == 200 and b"<!doctype html>" in body and headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"task 17" not in body  # the page carries no episodes
    files = json.loads(ask(server, "/data/state")[1])["files"]
    assert [(one["run"], one["name"], one["label"]) for one in files] == [(0, "final.jsonl", "after training")]
    pieces = [json.loads(ask(server, f"/data/rows/0/final.jsonl/{first}")[1]) for first in (0, 200, 400, 450)]
    assert [len(piece["rows"]) for piece in pieces] == [200, 200, 50, 0] and [piece["end"] for piece in pieces] == [
        False,
        False,
        True,
        True,
    ]
    assert [row["task"] for piece in pieces for row in piece["rows"]] == [f"task {number}" for number in range(450)]
    record = json.loads(ask(server, "/data/episode/0/final.jsonl/17")[1])
    assert (
        record["task"] == "task 17"
        and record["contexts"][0][1]["ids"] == [27, 27, 27]
        and record["contexts"][0][1]["logprobs"] == [-0.5] * 3
    )


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""])
def test_a_request_to_another_host_is_refused(server: ViewServer, host: str) -> None:
    status, body, _ = ask(server, "/data/state", Host=host)
    assert status == 403 and b"files" not in body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST"])
def test_this_machine_s_names_are_answered(server: ViewServer, host: str) -> None:
    assert ask(server, "/data/state", Host=f"{host}:{server.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_get_is_answered(server: ViewServer, method: str) -> None:
    assert ask(server, "/", method, **{"Content-Length": "0"})[0] == 405
    assert ask(server, "/", "HEAD")[:2] == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/secret.jsonl", "/../secret.jsonl", "/data/rows/0/..%2f..%2fsecret.jsonl/0", "/data/rows/0/..%2fconfig.yaml/0", "/data/episode/0/%2e%2e/0",
        "/data/rows/0/nothing.jsonl/0", "/data/rows/1/final.jsonl/0", "/data/rows/-1/final.jsonl/0", "/data/rows/0/final.jsonl/-1", "/data/rows/0/final.jsonl/x",
        "/data/episode/0/final.jsonl/450", "/data/episode/0/final.jsonl/99999999999", "/data/episode/0/final.jsonl/%D9%A3", "/data", "/config.yaml", "/run/config.yaml",
    ],
)  # fmt: skip
def test_other_paths_are_not_there(server: ViewServer, path: str) -> None:
    status, body, _ = ask(server, path)
    assert status == 404 and b"secret" not in body.replace(b"secret.jsonl", b"") and b"env_id" not in body


def test_every_answer_forbids_what_it_can(server: ViewServer) -> None:
    for path in ("/", "/data/state", "/nowhere"):
        headers = ask(server, path)[2]
        policy = headers["Content-Security-Policy"]
        assert (
            "default-src 'none'" in policy
            and "connect-src 'self'" in policy
            and "frame-ancestors 'none'" in policy
            and "unsafe-eval" not in policy
        )
        assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_a_file_that_grows_is_read_on_and_a_replaced_one_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    with TrajectoryWriter(path) as writer:
        writer.write(episode(0))
        file = EpisodeFile(path)
        assert [row["task"] for row in file.rows(0, 10)["rows"]] == ["task 0"]
        writer.write(episode(1))
        assert [row["task"] for row in file.rows(1, 10)["rows"]] == ["task 1"]
    with path.open("ab") as torn:
        torn.write(b'{"half": ')
    assert len(file.rows(0, 10)["rows"]) == 2  # a line that is still being written is no episode
    save_trajectories(path, [episode(7)])
    piece = file.rows(0, 10)
    assert [row["task"] for row in piece["rows"]] == ["task 7"] and piece["generation"] == 1 and file.episode(0).task_id == "task 7"
    with pytest.raises(IndexError, match="1 episodes"):
        file.episode(1)


def test_the_first_piece_costs_no_more_where_there_are_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    from agent_gym.report import store

    real = store.parse_line
    monkeypatch.setattr(store, "parse_line", lambda line, *rest: read.append(len(line)) or real(line, *rest))
    costs = []
    for count in (300, 3000):
        read.clear()
        EpisodeFile(save_trajectories(tmp_path / f"{count}.jsonl", map(episode, range(count)))).rows(0, 100)
        costs.append(len(read))
    assert costs[0] == costs[1] <= 103


def test_parquet_is_read_in_pieces_too(tmp_path: Path) -> None:
    file = EpisodeFile(save_trajectories(tmp_path / "e.parquet", map(episode, range(7))))
    assert len(file.rows(0, 3)["rows"]) == 3 and file.episode(6) == episode(6) and file.rows(3, 10)["end"]
    file.close()


def test_what_is_no_trajectory_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    for path, message in (
        ("other.jsonl", "no trajectory file"),
        ("none.jsonl", "there is no file"),
        ("x.txt", "neither a run's folder"),
        (".", "no run folder"),
    ):
        assert main(["view", str(tmp_path / path), "--no-browser"]) == 2
        said = capsys.readouterr().err
        assert message in said and "Traceback" not in said
    assert main(["view", "a", "b", "c"]) == 2 and "3 runs or files" in capsys.readouterr().err
    assert main(["view", str(tmp_path), "--limit", "3"]) == 2 and "--output" in capsys.readouterr().err


def test_a_damaged_episode_is_an_answer_and_no_crash(run: RunFolder, server: ViewServer) -> None:
    path = run.trajectories_path("final")
    lines = path.read_bytes().splitlines(keepends=True)
    bad = path.with_name(".new")
    bad.write_bytes(b"".join([*lines[:3], b'{"task_id": 3}\n', *lines[3:]]))
    os.replace(bad, path)
    for _ in range(2):  # and stays one
        status, body, _ = ask(server, "/data/rows/0/final.jsonl/0")
        assert status == 500 and b"damaged" in body
    assert ask(server, "/data/state")[0] == 200


def test_the_page_can_be_written_by_the_command(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "p.html"
    assert main(["view", str(run.path), "--output", str(page), "--limit", "5"]) == 0
    assert str(page) in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert text.count('id="e-0-') == 5 and "task 4" in text and "task 5" not in text


def test_a_run_that_is_still_to_be_made_has_a_page(tmp_path: Path) -> None:
    source = Source("later", RunFolder(tmp_path / "later"))
    with ViewServer([source], live=True) as server:
        assert b"The run begins." in ask(server, "/")[1]
        before = state_of([source])
        RunFolder.create(tmp_path / "later", {"env_id": "X-v0"}).log("train", 1, {"reward": 0.25})
        assert state_of([source]) != before and b"0.25" in ask(server, "/overview")[1]
