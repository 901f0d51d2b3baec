"""The server: requests are checked and bounded, concurrent ones are searched together, one that is at fault fails alone, closing is clean."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from agent_gym.core import EnvFault
from agent_gym.search import Document, Hit, HttpSearcher, LuceneBM25, SearchServer, serve

INDEX = LuceneBM25.build(
    [Document("1", "Ada", "wrote programs"), Document("2", "", "programs of all kinds"), Document("3", "Zed", "a letter")]
)


def ask(server: SearchServer, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def retrieve(server: SearchServer, request: object) -> tuple[int, Any]:
    return ask(server, "POST", "/retrieve", json.dumps(request).encode())


def test_the_contract() -> None:
    with serve(INDEX) as server:
        status, reply = retrieve(server, {"queries": ["programs", "absent"], "topk": 3, "return_scores": True})
        assert status == 200
        ranked, nothing = reply["result"]
        assert nothing == []
        assert [(hit["document"]["id"], hit["document"]["contents"]) for hit in ranked] == [
            ("1", '"Ada"\nwrote programs'),
            ("2", '""\nprograms of all kinds'),
        ]
        assert [hit["score"] for hit in ranked] == [hit.score for hit in INDEX.search(["programs"], 3)[0]]
        _, reply = retrieve(server, {"queries": ["programs"]})
        assert [document["id"] for document in reply["result"][0]] == ["1", "2"]
        assert retrieve(server, {"queries": ["programs"], "topk": None, "return_scores": None})[1] == reply
        assert retrieve(server, {"queries": []}) == (200, {"result": []})
        assert ask(server, "GET", "/health") == (200, {"status": "ok", "fingerprint": INDEX.fingerprint})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "an object"),
        (b"{}", "list of strings"),
        (b'{"queries": "abc"}', "list of strings"),
        (b'{"queries": ["a", 1]}', "list of strings"),
        (b'{"queries": ["a", "b", "c", "d"]}', "4 entries, at most 3"),
        (b'{"queries": ["a"], "topk": 0}', "from 1 to 10, not 0"),
        (b'{"queries": ["a"], "topk": 11}', "from 1 to 10, not 11"),
        (b'{"queries": ["a"], "topk": true}', "not True"),
        (b'{"queries": ["a"], "topk": "3"}', "not '3'"),
        (b'{"queries": ["a"], "topk": 2.0}', "not 2.0"),
        (b'{"queries": ["a"], "return_scores": "yes"}', "true or false"),
    ],
)
def test_a_bad_request_is_answered_400_with_the_reason(body: bytes, words: str) -> None:
    with serve(INDEX, max_queries=3, max_k=10) as server:
        status, reply = ask(server, "POST", "/retrieve", body)
        assert status == 400
        assert words in reply["error"]
        assert retrieve(server, {"queries": ["ada"], "topk": 1})[0] == 200


def test_other_paths_and_bodies_are_refused() -> None:
    with serve(INDEX, max_body_bytes=100) as server:
        assert ask(server, "GET", "/")[0] == 404
        assert ask(server, "POST", "/other", b"{}")[0] == 404
        assert ask(server, "POST", "/retrieve", b"x" * 101)[0] == 413
        assert ask(server, "POST", "/retrieve", None, {"Transfer-Encoding": "chunked"})[0] == 411
        assert ask(server, "POST", "/retrieve", None, {"Content-Length": "-5"})[0] == 411
        assert ask(server, "POST", "/retrieve", None, {"Content-Length": "9" * 5000})[0] == 413


def test_a_connection_is_kept_over_good_and_bad_requests() -> None:
    with serve(INDEX) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        statuses = []
        for body in (b'{"queries": ["ada"]}', b"{", b'{"queries": ["zed"]}'):
            connection.request("POST", "/retrieve", body)
            reply = connection.getresponse()
            reply.read()
            statuses.append((reply.status, reply.will_close))
        connection.close()
        assert statuses == [(200, False), (400, False), (200, False)]


class GatedSearcher:
    """Holds its first call until it is let go; notes all calls."""

    fingerprint = "gated"

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.calls: list[tuple[list[str], int]] = []

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        self.calls.append((list(queries), k))
        self.entered.set()
        self.gate.wait(20)
        if "boom" in queries:
            raise RuntimeError("boom")
        if "fault" in queries:
            raise EnvFault("no engine")
        return [[Hit(Document(query, "", query), 1.0)] for query in queries]


def gather(server: SearchServer, requests: Sequence[dict[str, Any]], searcher: GatedSearcher) -> list[tuple[int, Any]]:
    """Sends the first request, the others while it is held, lets it go, and gives all replies."""
    replies: dict[int, tuple[int, Any]] = {}

    def work(number: int) -> None:
        replies[number] = retrieve(server, requests[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(requests))]
    threads[0].start()
    assert searcher.entered.wait(20)
    for thread in threads[1:]:
        thread.start()
    deadline = time.monotonic() + 20
    while server._batcher._waiting.qsize() < len(requests) - 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    searcher.gate.set()
    for thread in threads:
        thread.join(20)
    return [replies[number] for number in range(len(requests))]


def test_requests_that_wait_are_searched_together() -> None:
    searcher = GatedSearcher()
    with serve(searcher) as server:
        replies = gather(server, [{"queries": [f"q{number}", f"r{number}"], "topk": 2 + number % 2} for number in range(21)], searcher)
    for number, (status, reply) in enumerate(replies):
        assert status == 200
        assert [documents[0]["id"] for documents in reply["result"]] == [f"q{number}", f"r{number}"]
    assert len(searcher.calls) == 3  # the first alone, then one for each number of hits
    assert sorted(len(queries) for queries, _ in searcher.calls) == [2, 20, 20]


def test_only_the_request_at_fault_fails() -> None:
    searcher = GatedSearcher()
    with serve(searcher) as server:
        replies = gather(server, [{"queries": [query]} for query in ("first", "boom", "fine", "fault", "also")], searcher)
        assert [status for status, _ in replies] == [200, 500, 200, 503, 200]
        assert "RuntimeError" in replies[1][1]["error"]
        assert "no engine" in replies[3][1]["error"]
        with pytest.raises(EnvFault, match=r"503.*no engine"):
            HttpSearcher(server.url).search(["fault"], 1)


class Miscounting:
    fingerprint = "miscounting"

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        return [[]]


def test_an_engine_that_gives_too_few_results_is_an_error_and_not_a_wrong_answer() -> None:
    with serve(Miscounting()) as server:
        assert retrieve(server, {"queries": ["a", "b"]})[0] == 500


def test_closing_frees_the_port_ends_kept_connections_and_may_be_repeated() -> None:
    threads = threading.active_count()
    with serve(INDEX) as server:
        searcher = HttpSearcher(server.url, timeout=5)
        assert searcher.search(["ada"], 1)[0]
    server.close()
    with pytest.raises(EnvFault):
        searcher.search(["zed"], 1)
    with socket.create_server(("127.0.0.1", server.port)):
        pass
    deadline = time.monotonic() + 10
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= threads
    with serve(INDEX):
        pass
    SearchServer(INDEX).close()


def test_a_taken_port_is_named() -> None:
    with serve(INDEX) as server, pytest.raises(OSError, match=f"127.0.0.1:{server.port}.*another port"):
        serve(INDEX, port=server.port)


def test_it_listens_on_this_machine_alone() -> None:
    with serve(INDEX) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/retrieve"
        assert server._server.socket.getsockname()[0] == "127.0.0.1"


def test_the_blocking_form_ends_cleanly_on_interrupt() -> None:
    script = textwrap.dedent(
        """
        from agent_gym.search import Document, LuceneBM25, serve
        server = serve(LuceneBM25.build([Document("1", "", "a page")]))
        print(server.url, flush=True)
        server.run()
        print("closed", flush=True)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert HttpSearcher(url).search(["page"], 1)[0][0].document.id == "1"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0].strip() == "closed"
        assert process.returncode == 0
    finally:
        process.kill()
