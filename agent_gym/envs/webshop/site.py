"""The shop as a web site for the browser front end: `Site`, a server on this machine's loopback address, and `Stall`, one visitor's place in it.

The site shows what `engine.Session` says and nothing else: it has no files, no scripts, no cookies and no links to elsewhere. It listens on 127.0.0.1
at a port that is free, answers GET alone, and only to the names of that address (a page elsewhere that makes its own name point here is refused). A visit
stands at an address nobody can guess. A request moves a visit only while the front end has asked for a move, so going back, loading again or a
second request changes nothing.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agent_gym.envs.webshop.engine import Session, Turn

__all__ = ["HEADERS", "Site", "Stall"]

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Sent with every answer. The first lets a page load nothing, run nothing and send its form to this site alone."""

_IDLE = 10.0  # seconds until a connection on which nothing is asked is closed
_HIGHEST_PRESS = 6  # digits of the number of a control


class Stall:
    """A visitor's place in the site.

    Attributes:
        session: The visit that is shown.
        token: Its part of the address.
        turn: What came of the move that was asked for last; None while there was none.
        error: What went wrong in the engine, for the front end to raise.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.token = session, secrets.token_urlsafe(18)
        self.turn: Turn | None = None
        self.error: Exception | None = None
        self._expects = False
        self._lock = threading.Lock()

    def expect_move(self) -> None:
        """Lets the next request that presses or searches move the visit; one, and no other."""
        with self._lock:
            self.turn, self._expects = None, True

    def answer(self, asked: Mapping[str, Sequence[str]]) -> str:
        """The page, after the move that a request asks for if one is expected.

        Args:
            asked: The query of the address: `press=N`, `search=WORDS` or nothing.

        Returns:
            An HTML document.
        """
        press, words = asked.get("press", [""])[0], asked.get("search", [""])[0]
        with self._lock:
            if self._expects and asked:
                self._expects = False
                if press:
                    number = int(press) if press.isdecimal() and len(press) <= _HIGHEST_PRESS else -1
                    self.turn = self.session.press(number)
                else:
                    self.turn = self.session.act(f"search[{words}]")
            return self.session.html()


class Site:
    """The server; it runs in a thread of this process from its construction to `close`.

    Attributes:
        port: Where it listens on 127.0.0.1.
    """

    def __init__(self) -> None:
        self._server = _Server()
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="webshop-site", daemon=True)
        self._thread.start()

    def open(self, session: Session) -> Stall:
        """Gives a visit a place; the same session may have several.

        Args:
            session: The visit.

        Returns:
            The place, to be given to `url` and `remove`.
        """
        stall = Stall(session)
        self._server.stalls[stall.token] = stall
        return stall

    def url(self, stall: Stall) -> str:
        """The address of a visit.

        Args:
            stall: A place on this site.

        Returns:
            An address on 127.0.0.1.
        """
        return f"http://127.0.0.1:{self.port}/{stall.token}/"

    def remove(self, stall: Stall) -> None:
        """Takes a visit off the site; its address leads nowhere from now on.

        Args:
            stall: A place on this site, or one that was removed.
        """
        self._server.stalls.pop(stall.token, None)

    def close(self) -> None:
        """Ends the server and its thread; may be called twice."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def forget(self) -> None:
        """Closes this process's copy of the socket after a fork, without touching the parent's server."""
        self._server.socket.close()


class _Server(ThreadingHTTPServer):
    """The socket and the visits."""

    daemon_threads = True
    allow_reuse_address = False

    def __init__(self) -> None:
        self.stalls: dict[str, Stall] = {}
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is the browser's business; nothing is printed."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; the connection is closed after it (HTTP/1.0), so no thread is kept waiting."""

    server: _Server
    server_version = "agent-gym"
    sys_version = ""
    timeout = _IDLE

    def do_GET(self) -> None:
        """Shows a page."""
        port = self.server.server_address[1]
        address = urlsplit(self.path)
        if self.headers.get("Host") != f"127.0.0.1:{port}":
            return self._send(HTTPStatus.MISDIRECTED_REQUEST, "This server answers at its own address alone.")
        stall = self.server.stalls.get(address.path.strip("/"))
        if stall is None or address.path != f"/{stall.token}/":
            return self._send(HTTPStatus.NOT_FOUND, "There is no such page.")
        try:
            asked = parse_qs(address.query, keep_blank_values=True, max_num_fields=8, errors="surrogatepass")
        except ValueError:
            return self._send(HTTPStatus.BAD_REQUEST, "The query cannot be read.")
        try:
            page = stall.answer(asked)
        except Exception as error:  # noqa: BLE001 (whatever the engine raises is raised again where the action was asked for)
            stall.error = error
            return self._send(HTTPStatus.INTERNAL_SERVER_ERROR, "The shop failed.")
        return self._send(HTTPStatus.OK, page)

    def _send(self, status: HTTPStatus, text: str) -> None:
        kind = "text/html" if status is HTTPStatus.OK else "text/plain"
        content = text.encode("utf-8", "replace")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is not a GET, or cannot be read as a request, gets a plain line."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self.request_version = getattr(self, "request_version", "HTTP/1.0")
        self._send(status, status.phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""
