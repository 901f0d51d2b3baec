"""The client keeps its deadline, retries what may pass, believes nothing unchecked, and ends in hits or in EnvFault."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_server import RawServer, answering, raw_server, read_request, response
from test_bm25 import generated

from agent_gym.core import EnvFault
from agent_gym.search import Document, Hit, HttpSearcher, LuceneBM25, Searcher, serve, transport

GOOD = {"result": [[{"document": {"id": "7", "contents": '"Ada"\nA page.'}, "score": 1.5}]]}
HIT = Hit(Document("7", "Ada", "A page."), 1.5)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def hang(connection: socket.socket, server: RawServer) -> None:
    read_request(connection)
    server.closing.wait(20)


def drip_head(connection: socket.socket, server: RawServer) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not server.closing.wait(0.05):
        connection.sendall(b"X-A: b\r\n")


def drip_body(connection: socket.socket, server: RawServer) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not server.closing.wait(0.05):
        connection.sendall(b" ")


def never_read(connection: socket.socket, server: RawServer) -> None:
    server.closing.wait(20)


def endless(connection: socket.socket, server: RawServer) -> None:
    read_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not server.closing.is_set():
        connection.sendall(b"[" * 65536)


@pytest.mark.parametrize("handle", [hang, drip_head, drip_body, never_read], ids=lambda handle: handle.__name__)
def test_a_server_that_never_finishes_is_a_fault_at_the_deadline(handle: Callable[[socket.socket, RawServer], None]) -> None:
    with raw_server(handle) as server:
        start = time.monotonic()
        with pytest.raises(EnvFault, match="deadline"):
            HttpSearcher(server.url, timeout=0.5).search(["a"], 1)
        assert 0.4 < time.monotonic() - start < 5
        assert server.connections == 1


def test_a_client_that_limits_each_wait_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport._Connection, "remaining", lambda self: 0.5)
    with raw_server(drip_body) as server:

        def work() -> None:
            with pytest.raises(EnvFault):
                HttpSearcher(server.url, timeout=0.5).search(["a"], 1)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(1.5)
        late = thread.is_alive()
    thread.join(20)
    assert late


def test_one_deadline_covers_all_tries_and_batches() -> None:
    def slow(connection: socket.socket, server: RawServer) -> None:
        server.requests.append(read_request(connection))
        if not server.closing.wait(0.3):
            connection.sendall(response(GOOD, extra="Connection: close\r\n"))

    with raw_server(slow) as server:
        start = time.monotonic()
        with pytest.raises(EnvFault):
            HttpSearcher(server.url, timeout=1.0, batch_size=1).search([f"q{number}" for number in range(50)], 1)
        assert time.monotonic() - start < 5
        assert 1 <= len(server.requests) <= 5


@pytest.mark.parametrize("status", ["429 Too Many", "502 Bad", "503 Busy", "504 Late"])
def test_a_busy_server_is_asked_three_times_at_most(status: str) -> None:
    with raw_server(answering(response(b"busy", status))) as server:
        with pytest.raises(EnvFault, match=rf"3 of 3 tries.*{status[:3]}.*busy"):
            HttpSearcher(server.url).search(["a"], 1)
        assert len(server.requests) == 3
    with raw_server(answering(response(b"busy", status), response(b"busy", status), response(GOOD))) as server:
        assert HttpSearcher(server.url).search(["a"], 1) == [[HIT]]
    with raw_server(answering(response(b"busy", status))) as server:
        with pytest.raises(EnvFault, match="1 of 1 tries"):
            HttpSearcher(server.url, max_retries=0).search(["a"], 1)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["400 Bad", "404 Missing", "500 Broken", "302 Moved", "204 Empty"])
def test_other_answers_are_faults_at_once(status: str) -> None:
    with raw_server(answering(response(b"why it failed", status, extra="Location: http://127.0.0.1:1/\r\n"))) as server:
        with pytest.raises(EnvFault, match=status[:3]):
            HttpSearcher(server.url).search(["a"], 1)
        assert len(server.requests) == 1


def test_a_refused_connection_is_tried_again_and_then_a_fault() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(EnvFault, match=r"3 of 3 tries.*[Rr]efused"):
        HttpSearcher(url).search(["a"], 1)
    with pytest.raises(EnvFault, match="host"):
        HttpSearcher("http://nowhere.invalid", max_retries=0).search(["a"], 1)


def test_a_connection_that_breaks_before_the_answer_is_tried_again() -> None:
    def leave_twice(connection: socket.socket, server: RawServer) -> None:
        server.requests.append(read_request(connection))
        if len(server.requests) > 2:
            connection.sendall(response(GOOD))

    with raw_server(leave_twice) as server:
        assert HttpSearcher(server.url).search(["a"], 1) == [[HIT]]
        assert len(server.requests) == 3


BROKEN = {
    "garbage": b"\x00\xff not http at all\r\n\r\n",
    "no json": response(b"<html>"),
    "not utf-8": response(b'{"result": "\xff"}'),
    "half a body": response(json.dumps(GOOD).encode()[:30], length=500),
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{",
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{",
    "empty": response(b""),
    "deep": response(b"[" * 100_000),
    "list": response([]),
    "no result": response({"results": []}),
    "result of a wrong type": response({"result": {"0": []}}),
    "flat": response({"result": [{"document": {"id": "1", "contents": "x"}, "score": 1}]}),
    "too few lists": response({"result": []}),
    "too many lists": response({"result": [[], []]}),
    "hit of a wrong type": response({"result": [["x"]]}),
    "no document": response({"result": [[{"score": 1}]]}),
    "no id": response({"result": [[{"document": {"contents": "x"}, "score": 1}]]}),
    "no text": response({"result": [[{"document": {"id": "1"}, "score": 1}]]}),
    "text of a wrong type": response({"result": [[{"document": {"id": "1", "contents": ["x"]}, "score": 1}]]}),
    "no score": response({"result": [[{"document": {"id": "1", "contents": "x"}}]]}),
    "score of a wrong type": response({"result": [[{"document": {"id": "1", "contents": "x"}, "score": True}]]}),
    "score that no float holds": response(b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": 1' + b"0" * 400 + b"}]]}"),
    "score that is no number": response(b'{"result": [[{"document": {"id": "1", "contents": "x"}, "score": NaN}]]}'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_unusable_answer_is_a_fault_and_is_not_remembered(name: str) -> None:
    with raw_server(answering(BROKEN[name], response(GOOD))) as server:
        searcher = HttpSearcher(server.url, timeout=5)
        with pytest.raises(EnvFault, match="search server"):
            searcher.search(["a"], 1)
        assert len(server.requests) == 1
        assert searcher.search(["a"], 1) == [[HIT]]


def test_more_hits_than_asked_for_are_cut() -> None:
    many = {"result": [[{"document": {"id": number, "contents": f"text {number}"}, "score": -number} for number in range(50)]]}
    with raw_server(answering(response(many))) as server:
        assert HttpSearcher(server.url).search(["a"], 2) == [
            [Hit(Document("0", "", "text 0"), 0.0), Hit(Document("1", "", "text 1"), -1.0)]
        ]


@pytest.mark.parametrize("handle", [endless, answering(response(b"x" * 5000))], ids=["endless", "announced"])
def test_an_answer_that_is_too_long_is_a_fault(handle: Callable[[socket.socket, RawServer], None]) -> None:
    with raw_server(handle) as server, pytest.raises(EnvFault, match="longer than 4000 bytes"):
        HttpSearcher(server.url, max_response_bytes=4000).search(["a"], 1)


def test_the_request_is_that_of_the_contract() -> None:
    with raw_server(answering(response({"result": [[], []]}))) as server:
        HttpSearcher(server.url).search(["who?", "naïve 漢"], 5)
        assert json.loads(server.requests[0]) == {"queries": ["who?", "naïve 漢"], "topk": 5, "return_scores": True}


def test_a_stale_connection_is_replaced_without_counting_as_a_try() -> None:
    with raw_server(answering(response(GOOD))) as server:  # closes after each answer without saying so
        searcher = HttpSearcher(server.url, max_retries=0)
        for number in range(5):
            assert searcher.search([f"q{number}"], 1) == [[HIT]]
        assert len(server.requests) == 5


def test_connections_are_kept_and_none_is_lost() -> None:
    def keep(connection: socket.socket, server: RawServer) -> None:
        while body := read_request(connection):
            server.requests.append(body)
            connection.sendall(response(GOOD))

    with raw_server(keep) as server:
        searcher = HttpSearcher(server.url, cache_size=0)
        searcher.search(["q"], 1)
        open_files = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
        for number in range(100):
            searcher.search([f"q{number}"], 1)
        assert server.connections == 1
        if open_files:
            assert len(os.listdir("/proc/self/fd")) <= open_files
        searcher.close()
        assert searcher.search(["q"], 1) == [[HIT]]
        searcher.close()


def test_answers_are_remembered_up_to_the_bound() -> None:
    index = CountingSearcher()
    with serve(index) as server:
        searcher = HttpSearcher(server.url, cache_size=2)
        assert searcher.search(["a", "b", "a"], 1) == index.expected(["a", "b", "a"])
        assert index.queries == ["a", "b"]
        searcher.search(["a", "b"], 1)
        assert index.queries == ["a", "b"]
        searcher.search(["a"], 2)  # another k
        assert index.queries == ["a", "b", "a"]
        searcher.search(["b"], 1)
        assert index.queries == ["a", "b", "a"]  # b was used later than a with k=1
        searcher.search(["a"], 1)
        assert index.queries == ["a", "b", "a", "a"]
        fresh = HttpSearcher(server.url, cache_size=0)
        fresh.search(["a"], 1)
        fresh.search(["a"], 1)
        assert index.queries[4:] == ["a", "a"]


def test_a_result_that_the_caller_changes_does_not_change_the_memory() -> None:
    with raw_server(answering(response(GOOD))) as server:
        searcher = HttpSearcher(server.url)
        searcher.search(["a"], 1)[0].clear()
        assert searcher.search(["a"], 1) == [[HIT]]


class CountingSearcher:
    fingerprint = "counting"

    def __init__(self) -> None:
        self.queries: list[str] = []

    def search(self, queries: list[str], k: int) -> list[list[Hit]]:
        self.queries.extend(queries)
        return self.expected(queries)

    def expected(self, queries: list[str]) -> list[list[Hit]]:
        return [[Hit(Document(query, f"Title {query}", "text"), 0.5)] for query in queries]


def test_client_and_server_give_what_the_index_gives() -> None:
    documents = [*generated(200), Document("quote\n", '"', '"x"\ny'), Document("", "t\u2028t", "w1 \ud800 漢")]
    index = LuceneBM25.build(documents)
    queries = ["w1 w2", "", "漢", "w3 w3 of the", "quote x y", "t"]
    with serve(index) as server:
        searcher = HttpSearcher(server.url, batch_size=4)
        for k in (1, 3, 500):
            assert searcher.search(queries, k) == index.search(queries, k)


def test_many_threads_share_one_client() -> None:
    index = LuceneBM25.build(generated(300))
    with serve(index) as server:
        searcher = HttpSearcher(server.url, cache_size=50)
        wrong = []

        def work(seed: int) -> None:
            draw = random.Random(seed)
            for _ in range(15):
                queries = [f"w{draw.randrange(20)} w{draw.randrange(20)}" for _ in range(3)]
                if searcher.search(queries, 4) != index.search(queries, 4):
                    wrong.append(queries)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert wrong == []


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    with raw_server(answering(response(GOOD))) as server:
        assert HttpSearcher(server.url).search(["a"], 1) == [[HIT]]


def test_the_global_generator_is_left_alone() -> None:
    random.seed(5)
    state = random.getstate()
    with raw_server(answering(response(b"", "503 Busy"), response(GOOD))) as server:
        HttpSearcher(server.url).search(["a"], 1)
    assert random.getstate() == state


def test_a_client_can_be_sent_to_another_process() -> None:
    with raw_server(answering(response(GOOD))) as server:
        searcher = HttpSearcher(server.url, timeout=3, index_id="wiki")
        again = pickle.loads(pickle.dumps(searcher))
        assert again.search(["a"], 1) == searcher.search(["a"], 1)
        assert again.fingerprint == searcher.fingerprint == f"{server.url}#wiki"
        assert isinstance(again, Searcher)


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("http://localhost:8000", "http://localhost:8000/retrieve"),
        ("http://h:1/", "http://h:1/retrieve"),
        ("http://h/api/search?x=1", "http://h:80/api/search?x=1"),
        ("https://user:secret@h/retrieve", "https://h:443/retrieve"),
        ("http://[::1]:9/retrieve", "http://[::1]:9/retrieve"),
    ],
)
def test_addresses(url: str, full: str) -> None:
    assert HttpSearcher(url).url == full


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "localhost:8000"}, "url must look like"),
        ({"url": "ftp://h"}, "url must look like"),
        ({"url": "http://"}, "url must look like"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": math.inf}, "timeout"),
        ({"max_retries": 3}, "0, 1 or 2"),
        ({"cache_size": -1}, "cache_size"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_mistakes_in_the_settings_are_named(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        HttpSearcher(**{"url": "http://h", **arguments})  # type: ignore[arg-type]


def test_mistakes_in_a_search_are_named() -> None:
    searcher = HttpSearcher("http://h")
    with pytest.raises(ValueError, match="at least 1"):
        searcher.search(["a"], 0)
    with pytest.raises(TypeError, match="list of strings"):
        searcher.search("abc", 1)
    assert searcher.search([], 1) == []


@pytest.mark.parametrize(
    "head", ["HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {n}", "HTTP/1.0 200 OK\r\nContent-Length: {n}", "HTTP/1.0 200 OK"]
)
@pytest.mark.parametrize("words", [1, 20_000])
def test_the_last_answer_of_a_connection_may_come_in_pieces(head: str, words: int) -> None:
    """`http.client` closes the socket of such an answer before its body is read."""
    content = json.dumps({"result": [[{"document": {"id": "7", "contents": '"Ada"\n' + "word " * words}, "score": 1.5}]]}).encode()
    opened: list[socket.socket] = []

    def handle(connection: socket.socket, server: RawServer) -> None:
        server.requests.append(read_request(connection))
        connection.sendall(head.format(n=len(content)).encode() + b"\r\n\r\n")
        for start in range(0, len(content), 30_000):
            time.sleep(0.05)
            connection.sendall(content[start : start + 30_000])
        opened.append(connection)

    with raw_server(handle) as server:
        searcher = HttpSearcher(server.url)
        (hit,) = searcher.search(["a"], 1)[0]
        assert hit.document.title == "Ada" and len(hit.document.text) >= 5 * words - 1
        assert not searcher._client._idle, "such a connection is not used again"
        searcher.search(["b"], 1)
        assert len(server.requests) == server.connections == 2


def test_such_a_connection_is_closed_when_its_answer_was_read_or_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []
    real = transport._DeadlineSocket.__init__

    def note(self: transport._DeadlineSocket, plain: socket.socket, connection: transport._Connection) -> None:
        made.append(plain)
        real(self, plain, connection)

    monkeypatch.setattr(transport._DeadlineSocket, "__init__", note)
    with raw_server(answering(response(GOOD, extra="Connection: close\r\n"))) as server:
        HttpSearcher(server.url).search(["a"], 1)

    def half(connection: socket.socket, server: RawServer) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 100\r\n\r\n[")
        server.closing.wait(20)

    with raw_server(half) as server, pytest.raises(EnvFault, match="deadline"):
        HttpSearcher(server.url, timeout=0.4).search(["a"], 1)
    assert [plain.fileno() for plain in made] == [-1, -1]
