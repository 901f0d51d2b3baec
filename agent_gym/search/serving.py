"""What the servers of this project share: `JsonServer`, which has a port from its construction on, and `JsonHandler`, which answers in JSON.

Each connection has a thread. Requests are checked by the handlers, and a refusal (`Refused`) is a status with `{"error": "..."}`. A server listens on this
machine alone unless told otherwise; it has no authorisation, so put one in front of it before it faces a network. The servers of search indexes
(`server`) and of papers are made of this.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import socketserver
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, TypeVar

__all__ = ["JsonHandler", "JsonServer", "Refused"]

_log = logging.getLogger(__name__)
_Self = TypeVar("_Self", bound="JsonServer")


class Refused(Exception):
    """A request that is answered by an error.

    Args:
        status: From 400.
        reason: For whoever asked; the text of the exception.

    Attributes:
        status: Of the HTTP answer.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ListeningServer(ThreadingHTTPServer):
    """The socket of a `JsonServer`, with a thread for each connection.

    Args:
        address: Host and port; port 0 takes a free one.
        handler: Answers the requests.
        content: What is served, for the handler.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], content: Any) -> None:
        self.content = content
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Notes the connection and answers it in a thread; see `socketserver.ThreadingMixIn.process_request`."""
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forgets the connection and closes it; see `socketserver.TCPServer.shutdown_request`."""
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Ends connections that clients keep open, so that their threads end."""
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def server_bind(self) -> None:
        """Takes the port. The base class looks up the host's name here, which can take seconds without a network."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Notes a connection that broke; see `socketserver.BaseServer.handle_error`."""
        _log.debug("the connection from %s broke", client_address, exc_info=True)


class JsonServer:
    """A running or runnable server. The port is taken at construction, so its address is known before it answers.

    Used with `with` it serves in a thread of its own until the block ends; `run` serves in the caller's.
    """

    def __init__(self, handler: type[JsonHandler], content: Any, host: str, port: int) -> None:
        """Takes the port.

        Args:
            handler: Answers the requests.
            content: What is served, for the handler (`self.server.content`).
            host: The address to listen on.
            port: 0 takes a free one.

        Raises:
            OSError: If the port is taken.
        """
        try:
            self._server = ListeningServer((host, port), handler, content)
        except OSError as error:
            raise OSError(
                error.errno, f"cannot serve on {host}:{port}: {error.strerror}; take another port, or 0 for a free one"
            ) from error
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def base(self) -> str:
        """Scheme, host and port."""
        host = str(self._server.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def __enter__(self: _Self) -> _Self:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="agent-gym-server", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def run(self) -> None:
        """Serves in this thread until it is interrupted (Ctrl-C), then closes."""
        try:
            self._server.serve_forever()
        except KeyboardInterrupt:
            _log.info("interrupted, closing")
        finally:
            self.close()

    def close(self) -> None:
        """Stops serving and gives the port back. May be called twice."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._release()
        self._server.server_close()
        self._server.close_connections()

    def _release(self) -> None:
        """What else is to be ended, before the connections are."""


class JsonHandler(BaseHTTPRequestHandler):
    """Answers in JSON."""

    protocol_version = "HTTP/1.1"
    server_version = "agent-gym"
    sys_version = ""
    timeout: ClassVar[float] = 60.0
    """Seconds that a connection may stay silent."""
    wbufsize = -1
    disable_nagle_algorithm = True
    server: ListeningServer

    def fail(self, refusal: Refused) -> None:
        """Answers by an error.

        Args:
            refusal: With status and reason.
        """
        if self.command != "GET" and refusal.status in (404, 411, 413):  # the body was not read: the next request cannot be found behind it
            self.close_connection = True
        self.reply(refusal.status, {"error": str(refusal)})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers what is no request of HTTP, or too long for one, which the base class does in HTML; then the connection ends.

        Args:
            code: Status of HTTP.
            message: The text; None for the usual one of the status.
            explain: Not used.
        """
        self.close_connection = True
        self.reply(code, {"error": message or HTTPStatus(code).phrase})

    def reply(self, status: int, content: dict[str, Any]) -> None:
        """Answers.

        Args:
            status: Of HTTP.
            content: What JSON can write.
        """
        body = json.dumps(content).encode("ascii")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Notes a request; see `http.server.BaseHTTPRequestHandler.log_message`."""
        _log.debug("%s %s", self.address_string(), format % args)
