"""Papers and relevance behind HTTP: the server, the client, an environment over both, and servers that are dead, slow or talk rubbish."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from helpers import follow
from paper_faults import OddServer, odd_server, send
from papers_play import PAPERS, ROW, calls, ids, shown, step

from agent_gym.core import EnvFault
from agent_gym.data.paper_tasks import PaperTask
from agent_gym.data.paper_world import write_paper_world
from agent_gym.data.papers import DateBound, Paper, PaperCorpus
from agent_gym.envs.papers import HttpLibrary, HttpRelevance, LocalLibrary, PaperSearchEnv, PaperServer, serve_papers
from agent_gym.trajectory import StopReason

BARE = {name: value for name, value in ROW.items() if name != "papers"}
OPEN = DateBound()
DAY = DateBound(date(2022, 11, 1))


@pytest.fixture(scope="module")
def server() -> Iterator[PaperServer]:
    with serve_papers(PaperCorpus.read(PAPERS)) as running:
        yield running


def get(server: PaperServer, target: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"{server.url}{target}", timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


# ------------------------------------------------------------------------------------------------ the server


def test_it_answers_as_semantic_scholar_does(server: PaperServer) -> None:
    status, found = get(server, "/graph/v1/paper/search?query=owls&limit=2&fields=title,year,externalIds,authors.name")
    assert status == 200 and (found["offset"], found["next"], len(found["data"])) == (0, 2, 2)
    assert set(found["data"][0]) == {"paperId", "title", "year", "externalIds", "authors"}
    _, rest = get(server, "/paper/search?query=owls&limit=2&offset=2")
    assert len(rest["data"]) == 1 and "next" not in rest and set(rest["data"][0]) == {"paperId", "title"}
    _, one = get(server, "/paper/arXiv:2101.00001v2?fields=abstract,publicationDate,referenceCount")
    assert one == {
        "paperId": "2101.00001",
        "title": "Owls at Night",
        "abstract": "We watch owls hunt at night.",
        "publicationDate": None,
        "referenceCount": 2,
    }
    _, citing = get(server, "/paper/1905.00002/citations?fields=title")
    assert citing == {"offset": 0, "data": [{"citingPaper": {"paperId": "2101.00001", "title": "Owls at Night"}}]}
    assert get(server, "/paper/2101.00001/references")[1]["data"][1] == {"citedPaper": {"paperId": "1905.00002", "title": "Bats"}}
    assert get(server, "/health") == (200, {"status": "ok", "papers": 5, "name": "papers"})


def test_old_ids_are_found_with_a_slash_as_it_is_or_quoted(server: PaperServer) -> None:
    for spelt in ("cs/0112017", quote("cs/0112017", safe=""), "ARXIV:cs/0112017v1", quote("ARXIV:cs/0112017", safe="")):
        assert get(server, f"/paper/{spelt}")[1]["title"] == "Zorm"
        assert len(get(server, f"/paper/{spelt}/citations")[1]["data"]) == 3


@pytest.mark.parametrize(
    ("bound", "titles"),
    [
        ("publicationDateOrYear=:2022-10-31", {"Owls at Night", "Owls by Day"}),
        ("publicationDateOrYear=2022-01-01:", {"Late Owls at Night"}),
        ("publicationDateOrYear=2021-02-01:2021-12-31", {"Owls by Day"}),
        ("publicationDateOrYear=20210201:20211231", {"Owls by Day"}),
        ("publicationDateOrYear=20210115", {"Owls at Night"}),
        ("publicationDateOrYear=:", {"Owls at Night", "Owls by Day", "Late Owls at Night"}),
        ("year=-9999", {"Owls at Night", "Owls by Day", "Late Owls at Night"}),
        ("year=0001", set()),
        ("year=2021", {"Owls at Night", "Owls by Day"}),
        ("year=-2021", {"Owls at Night", "Owls by Day"}),
        ("year=2022-", {"Late Owls at Night"}),
        ("year=2000-2022", {"Owls at Night", "Owls by Day", "Late Owls at Night"}),
    ],
)
def test_dates_bound_a_search(server: PaperServer, bound: str, titles: set[str]) -> None:
    assert {one["title"] for one in get(server, f"/paper/search?query=owls&{bound}")[1]["data"]} == titles


@pytest.mark.parametrize(
    ("target", "status", "text"),
    [
        ("/paper/search", 400, "query"), ("/paper/search?query=%20", 400, "query"), ("/paper/search?query=a&limit=0", 400, "limit"),
        ("/paper/search?query=a&limit=x", 400, "limit"), ("/paper/search?query=a&limit=1001", 400, "limit"), ("/paper/search?query=a&offset=-1", 400, "offset"),
        ("/paper/search?query=a&year=soon", 400, "range of dates"), ("/paper/search?query=a&publicationDateOrYear=a:b:c", 400, "range of dates"),
        ("/paper/none", 404, "none not found"), ("/paper/none/citations", 404, "not found"), ("/other", 404, "there are"), ("/paper/search?" + "a=1&" * 40, 400, "parameters"),
        ("/paper/%FF%00", 404, "not found"), ("/paper/citations", 404, "not found"),
        ("/paper/search?query=owls&fields=title,zzz", 400, "fields: [zzz]"), ("/paper/2101.00001?fields=titel", 400, "fields: [titel]"),
        ("/paper/2101.00001/references?fields=zzz.name", 400, "fields: [zzz]"),
        pytest.param("/paper/search?query=" + "owls+" * 20_000, 414, "Too Long", id="too long"),
    ],
)  # fmt: skip
def test_what_it_cannot_answer_is_told(server: PaperServer, target: str, status: int, text: str) -> None:
    given, content = get(server, target)
    assert given == status and text in content["error"]


def test_fields_that_semantic_scholar_has_and_a_corpus_has_not_are_left_out(server: PaperServer) -> None:
    status, one = get(server, "/paper/2101.00001?fields=title,citationCount,tldr,openAccessPdf,authors.name,")
    assert status == 200 and set(one) == {"paperId", "title", "authors"}


@pytest.mark.parametrize(
    ("request_line", "status", "text"),
    [
        ("POST /paper/search HTTP/1.1", 501, "Unsupported method"), ("GET /health HTTP/7.x", 400, "Bad request version"),
        ("GET /health HTTP/3.0", 505, "Invalid HTTP version"), ("GET /health HTTP/1.1\r\nX: " + "x" * 70_000, 431, "too long"),
        ("HEAD /health HTTP/1.1", 501, ""),
    ],
    ids=["method", "version", "later version", "long header", "head"],
)  # fmt: skip
def test_what_is_no_request_is_answered_in_json_too(server: PaperServer, request_line: str, status: int, text: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
        raw.sendall(f"{request_line}\r\n\r\n".encode())
        content = b""
        while part := raw.recv(65536):
            content += part
    head, _, body = content.decode().partition("\r\n\r\n")
    if head.startswith("HTTP"):  # to a version that it does not know it speaks as to the oldest, without a head
        assert head.startswith(f"HTTP/1.1 {status} ") and "Content-Type: application/json" in head and "Connection: close" in head
    else:
        body = head
    assert body == "" if not text else text.casefold() in json.loads(body)["error"].casefold()


def test_a_request_with_a_body_does_not_confuse_the_next_one(server: PaperServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
        raw.sendall(b"GET /paper/none HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\nGET /health HTTP/1.1\r\n\r\nxxxxxxx")
        content = b""
        while part := raw.recv(65536):
            content += part
    assert content.count(b"HTTP/1.1") == 1 and b"Connection: close" in content


def test_the_port_is_given_back_and_a_taken_one_is_told() -> None:
    with serve_papers(PaperCorpus.read(PAPERS)) as running, pytest.raises(OSError, match="take another port"):
        serve_papers(PaperCorpus.read(PAPERS), port=running.port)
    with pytest.raises(EnvFault, match="paper server"):
        HttpLibrary(running.url, timeout=5).search("owls", 3, OPEN)


# ------------------------------------------------------------------------------------------------ the client


def comparable(papers: list[Paper]) -> list[tuple[Any, ...]]:
    return [(one.id, one.title, one.abstract, one.year, one.published, one.authors) for one in papers]


@pytest.mark.parametrize(
    "bound",
    [OPEN, DAY, DateBound(date(2022, 11, 1), strict=False), DateBound(date(2001, 6, 1)), DateBound(date.min)],
    ids=["open", "strict", "lenient", "early", "never"],
)
def test_a_corpus_is_the_same_in_memory_and_behind_the_server(server: PaperServer, bound: DateBound) -> None:
    here, there = LocalLibrary(PaperCorpus.read(PAPERS)), HttpLibrary(server.url)
    for query in ("owls", "late owls at night", "bats", "zorm", "nothing", "  ", "\ud800"):
        for k in (1, 2, 10):
            assert comparable(there.search(query, k, bound)) == comparable(here.search(query, k, bound))
    for paper in PaperCorpus.read(PAPERS).papers:
        for limits in ((30, 99), (1, 1), (0, 5), (5, 0)):
            assert comparable(there.neighbours(paper, *limits, bound)) == comparable(here.neighbours(paper, *limits, bound))


def test_the_environment_is_the_same_over_both(server: PaperServer) -> None:
    prompts = []
    for kwargs in ({"corpus": PAPERS}, {"base_url": server.url + "/graph/v1/"}):
        env = PaperSearchEnv(dataset=[BARE], relevance=lambda question, papers: [float(len(one.title)) for one in papers], **kwargs)
        env.reset(seed=0)
        prompts.append([])
        for turn in ((("search", "owls"), ("search", "bats")), (("expand", "2101.00001"), ("expand", "2103.00002"))):
            step(env, *turn)
            prompts[-1].append(shown(env))
        env.close()
    assert prompts[0] == prompts[1]


def test_steps_that_are_awaited_give_the_same(server: PaperServer) -> None:
    async def play(env: PaperSearchEnv) -> list[Any]:
        env.reset(seed=0)
        text = [calls(env, ("search", "owls"), ("search", "bats")), calls(env, ("expand", "2101.00001"), ("search", "owls"))]
        return [(await env.astep(env.encode_action(one)))[1] for one in text]

    env, other = (PaperSearchEnv(dataset=[BARE], base_url=server.url, reward="both", relevance="bm25") for _ in range(2))
    other.reset(seed=0)
    plain = [step(other, ("search", "owls"), ("search", "bats"))[0], step(other, ("expand", "2101.00001"), ("search", "owls"))[0]]
    assert asyncio.run(play(env)) == plain and shown(env) == shown(other)


def test_the_expert_searches_titles_behind_a_server(server: PaperServer) -> None:
    rewards, info = follow(PaperSearchEnv(dataset=[BARE], base_url=server.url), seed=0)
    assert info["is_success"] and sum(rewards) == pytest.approx(1.0) and info["library"] == server.url


def test_a_client_survives_pickling_and_keeps_connections_and_answers() -> None:
    def answer(handler: BaseHTTPRequestHandler, seen: OddServer) -> None:
        send(handler, {"data": [{"paperId": "a", "title": "T"}]})

    with odd_server(answer) as odd:
        library = pickle.loads(pickle.dumps(HttpLibrary(odd.url, headers={"x-api-key": "k"})))
        assert library.search("x", 1, OPEN) == library.search("x", 1, OPEN) and len(odd.asked) == 1
        assert pickle.loads(pickle.dumps(HttpRelevance(odd.url)))._target == "/classify"


def test_pages_are_read_until_there_are_enough_that_may_be_shown() -> None:
    """A server that knows no dates: papers from after the day on the first pages are left out, and the next ones read."""

    def answer(handler: BaseHTTPRequestHandler, seen: OddServer) -> None:
        start = int(parse_qs(urlsplit(handler.path).query)["offset"][0])
        late = start < 4
        send(
            handler,
            {"data": [{"paperId": f"n{start + n}", "title": "T", "year": 2024 if late else 2001} for n in range(2)], "next": start + 2},
        )

    with odd_server(answer) as odd:
        found = HttpLibrary(odd.url).search("owls", 2, DAY)
        assert [one.id for one in found] == ["n4", "n5"] and len(odd.asked) == 3
        assert "publicationDateOrYear=%3A2022-10-31" in odd.asked[0][0]
        assert len(HttpLibrary(odd.url).search("owls", 1000, OPEN)) == 8, "there is an end to paging"
        assert HttpLibrary(odd.url).search("owls", 3, DateBound(date(1990, 1, 1))) == []


def test_records_of_semantic_scholar_are_read_as_they_are() -> None:
    records = [
        {"paperId": "h1", "externalIds": {"ArXiv": "2101.00001", "DOI": "x"}, "title": "A", "abstract": None, "year": None, "publicationDate": None, "authors": []},
        {"paperId": "h2", "externalIds": None, "title": None, "authors": [{"authorId": None, "name": "Ada"}], "publicationDate": "2020-01-02"},
        {"paperId": None, "title": "known by its title alone"},
        {"paperId": None, "externalIds": {"ArXiv": "cs/0112017"}, "title": "B"},
    ]  # fmt: skip

    def answer(handler: BaseHTTPRequestHandler, seen: OddServer) -> None:
        if "/search" in handler.path:
            send(handler, {"total": 4, "data": records})
        elif "/citations" in handler.path:
            send(handler, {"data": None})
        else:
            send(handler, {"data": [{"citedPaper": None}, *({"citedPaper": one} for one in records)]})

    with odd_server(answer) as odd:
        library = HttpLibrary(odd.url)
        found = library.search("x", 10, OPEN)
        assert [(one.id, one.key, one.title) for one in found] == [
            ("2101.00001", "h1", "A"),
            ("h2", "h2", ""),
            ("cs/0112017", "ARXIV:cs/0112017", "B"),
        ]
        assert [one.id for one in library.neighbours(found[0], 5, 5, OPEN)] == ["h2", "cs/0112017"]
        library.neighbours(found[2], 5, 5, OPEN)
        assert odd.asked[1][0].startswith("/paper/h1/citations") and odd.asked[3][0].startswith("/paper/ARXIV%3Acs%2F0112017/citations")


# ------------------------------------------------------------------------------------------------ servers that fail


def hang(handler: BaseHTTPRequestHandler, seen: OddServer) -> None:
    seen.closing.wait(20)


def drip(handler: BaseHTTPRequestHandler, seen: OddServer) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not seen.closing.wait(0.05):
        handler.wfile.write(b"{")


def broken(content: Any, status: int = 200) -> Callable[[BaseHTTPRequestHandler, OddServer], None]:
    return lambda handler, seen: send(handler, content, status)


RUBBISH = {
    "no JSON": broken(b"<html>sorry</html>"),
    "a list": broken([1]),
    "no data": broken({"papers": []}),
    "data of another kind": broken({"data": {"a": 1}}),
    "papers that are none": broken({"data": ["x"]}),
    "a paper with a number for a title": broken({"data": [{"paperId": "a", "title": 7}]}),
    "an id that is none": broken({"data": [{"paperId": ["a"], "title": "T"}]}),
    "a year that is none": broken({"data": [{"paperId": "a", "title": "T", "year": "soon"}]}),
    "a date that is none": broken({"data": [{"paperId": "a", "title": "T", "publicationDate": "soon"}]}),
    "a next that is none": broken({"data": [], "next": "2"}),
    "nested without end": broken(b'{"data": ' + b"[" * 200_000),
    "not UTF-8": broken(b'{"data": [{"paperId": "\xff", "title": "T"}]}'),
    "status 500": broken({"error": "x"}, 500),
    "status 401": broken({"error": "x"}, 401),
    "status 404": broken({"error": "x"}, 404),
    "a redirect": broken({"error": "x"}, 302),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_rubbish_is_a_fault_of_the_world(name: str) -> None:
    with odd_server(RUBBISH[name]) as odd:
        env = PaperSearchEnv(dataset=[BARE], corpus=HttpLibrary(odd.url, timeout=20), reward="both")
        env.reset(seed=0)
        reward, info, over = step(env, ("search", "owls"), ("search", "bats"))
        assert (reward, over, info["stop_reason"], info["env_fault"]) == (0.0, True, StopReason.ENV_FAULT, True)
        assert "paper server" in info["feedback"] and info["pool_size"] == 0 and sum(info["reward_parts"].values()) == 0.0
        with pytest.raises(EnvFault):
            env.library.search("owls", 3, OPEN)


@pytest.mark.parametrize("answer", [hang, drip])
def test_a_slow_server_is_a_fault_at_the_deadline(answer: Callable[[BaseHTTPRequestHandler, OddServer], None]) -> None:
    with odd_server(answer) as odd:
        env = PaperSearchEnv(dataset=[BARE], corpus=HttpLibrary(odd.url, timeout=0.5))
        env.reset(seed=0)
        _, info, over = step(env, ("search", "owls"), ("expand", "2101.00001"))
        assert over and info["stop_reason"] == StopReason.ENV_FAULT and "deadline" in info["feedback"]


def test_a_dead_server_is_a_fault_and_a_later_episode_goes_on_when_it_is_back() -> None:
    running = serve_papers(PaperCorpus.read(PAPERS))
    port = running.port
    running.close()
    env = PaperSearchEnv(dataset=[BARE], base_url=f"http://127.0.0.1:{port}")
    env.reset(seed=0)
    assert step(env, ("search", "owls"))[1]["stop_reason"] == StopReason.ENV_FAULT
    with serve_papers(PaperCorpus.read(PAPERS), port=port):
        env.reset(seed=0)
        assert step(env, ("search", "owls"))[1]["n_found"] == 2
    env.close()


def test_a_server_that_is_busy_for_a_moment_is_asked_again() -> None:
    def answer(handler: BaseHTTPRequestHandler, seen: OddServer) -> None:
        send(handler, {"data": []}, 429 if len(seen.asked) < 3 else 200)

    with odd_server(answer) as odd:
        assert HttpLibrary(odd.url).search("owls", 3, OPEN) == [] and len(odd.asked) == 3


def test_a_query_that_the_server_cannot_read_is_an_error_text_and_no_fault() -> None:
    with odd_server(broken({"error": "bad query"}, 400)) as odd:
        env = PaperSearchEnv(dataset=[BARE], base_url=odd.url)
        env.reset(seed=0)
        _, info, over = step(env, ("search", "owls"))
        assert not over and "refused this query" in shown(env) and info["action_valid"] and info["n_searches"] == 0


def test_a_paper_without_citations_at_the_server_has_none() -> None:
    def answer(handler: BaseHTTPRequestHandler, seen: OddServer) -> None:
        found = "/search" in handler.path
        send(
            handler, {"data": [{"paperId": "a", "title": "owls", "year": 2001}]} if found else {"error": "not found"}, 200 if found else 404
        )

    with odd_server(answer) as odd:
        env = PaperSearchEnv(dataset=[BARE], base_url=odd.url)
        env.reset(seed=0)
        step(env, ("search", "owls"))
        _, info, over = step(env, ("expand", "a"))
        assert not over and info["n_expansions"] == 1 and ids(env) == ["a"]


# ------------------------------------------------------------------------------------------------ relevance behind an address


def classify(handler: BaseHTTPRequestHandler, seen: OddServer) -> None:
    texts = json.loads(seen.asked[-1][1])["input"]
    data = [{"index": place, "label": "True", "probs": [0.25, 0.75] if "Owls" in text else [0.9, 0.1]} for place, text in enumerate(texts)]
    send(handler, {"object": "list", "data": data[::-1]})


def test_a_model_behind_an_address_judges_the_papers_in_batches() -> None:
    with odd_server(classify) as odd:
        env = PaperSearchEnv(dataset=[ROW], relevance="http", relevance_url=odd.url, reward="process")
        env.reset(seed=0)
        assert step(env, ("search", "owls night"))[0] == pytest.approx(0.75 + 0.75 + 0.1) and len(odd.asked) == 1
        path, body = odd.asked[0]
        texts = json.loads(body)["input"]
        assert (
            path == "/classify" and len(texts) == 3 and all(ROW["question"] in text for text in texts) and "(0.75) NEW Owls" in shown(env)
        )
        step(env, ("search", "owls by day"))
        assert len(odd.asked) == 1, "what was judged is not asked again"
        task = PaperTask("t", "{question}?")
        many = [Paper(f"p{number}", f"Owls {{title}} {number}") for number in range(130)]
        judge = HttpRelevance(odd.url, model="m", prompt="{title}|{question}", positive=0)
        assert judge.score(task, many, LocalLibrary(PaperCorpus([]))) == [0.25] * 130 and len(odd.asked) == 1 + 3
        assert json.loads(odd.asked[-1][1])["model"] == "m" and json.loads(odd.asked[-1][1])["input"][-1] == "Owls {title} 129|{question}?"


JUDGEMENTS = {
    "no JSON": broken(b"sorry"), "too few": broken({"data": []}), "no list": broken({"data": 3}), "no probabilities": broken({"data": [{"index": 0}] * 3}),
    "an index twice": broken({"data": [{"index": 0, "probs": [1]}] * 3}), "more than 1": broken({"data": [{"index": n, "probs": [2.0]} for n in range(3)]}),
    "not a number": broken(b'{"data": [{"probs": [NaN]}, {"probs": [NaN]}, {"probs": [NaN]}]}'), "status 503": broken({}, 503), "slow": hang,
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGEMENTS)
def test_a_judge_that_fails_is_a_fault_of_the_world(name: str) -> None:
    with odd_server(JUDGEMENTS[name]) as odd:
        env = PaperSearchEnv(dataset=[ROW], relevance=HttpRelevance(odd.url, timeout=1.5), reward="process")
        env.reset(seed=0)
        reward, info, over = step(env, ("search", "owls night"))
        assert (reward, over, info["stop_reason"]) == (0.0, True, StopReason.ENV_FAULT) and "relevance server" in info["feedback"]


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [({"prompt": "{paper}"}, "places"), ({"prompt": "{"}, "places"), ({"positive": "True"}, "positive"), ({"timeout": 0}, "timeout")],
)
def test_a_judge_that_cannot_be_asked_is_told(kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        HttpRelevance("http://127.0.0.1:1", **kwargs)


# ------------------------------------------------------------------------------------------------ the command


def test_serve_papers_answers_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    papers, questions = write_paper_world(tmp_path, "test", 4)
    server = subprocess.Popen(
        [sys.executable, "-m", "agent_gym.cli", "serve-papers", papers.name, "--port", "0"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    watchdog = threading.Timer(120, server.kill)
    watchdog.start()
    try:
        assert server.stdout is not None
        url = next(word for line in server.stdout for word in line.split() if word.startswith("http"))
        env = PaperSearchEnv(split="test", dataset=questions, base_url=url)
        local = PaperSearchEnv(split="test", dataset=questions, corpus=papers)
        for index in range(env.num_tasks or 0):
            for one in (env, local):
                one.reset(options={"index": index})
                step(one, ("search", one.query.question))
                step(one, *[("expand", paper_id) for paper_id in ids(one)[:3]])
            assert ids(env) == ids(local) and env._figures == local._figures
        env.close()
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 0
    finally:
        watchdog.cancel()
        server.kill()
        server.wait()
