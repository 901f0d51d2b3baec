"""The page served on this machine: `ViewServer` answers for one or two sources, reads episodes in pieces, and shows a run while it grows.

It listens on 127.0.0.1 alone, answers GET (and HEAD) alone and only for paths that it knows: no path of a request becomes a path on the disk, and files are looked up
among the names of those it lists itself. The `Host` of a request has to be this machine's, or a page elsewhere could have its own name point here and read
what is served (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import json
import urllib.parse
from collections.abc import Sequence
from typing import Any, NamedTuple

from agent_gym.report.page import PIECE, content_policy, files_of, overview_of, render_page, settings_of, title_of
from agent_gym.report.store import Source
from agent_gym.runs import RunFolderError
from agent_gym.search.serving import JsonHandler, JsonServer, Refused

__all__ = ["ViewServer"]

EVERY = 2000
"""Milliseconds between two questions of a page whether there is more."""


class _Content(NamedTuple):
    sources: Sequence[Source]
    live: bool


class _Handler(JsonHandler):
    """Answers the page's requests."""

    def do_GET(self) -> None:
        """Answer one request."""
        try:
            self._host()
            self._answer([urllib.parse.unquote(part) for part in self.path.partition("?")[0].split("/")[1:]])
        except Refused as refusal:
            self.fail(refusal)

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self.close_connection = True
        self.reply(405, {"error": "only GET is answered here"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _refuse

    def _host(self) -> None:
        given = (self.headers.get("Host") or "").lower()
        port = self.server.server_port
        if given not in (f"127.0.0.1:{port}", f"localhost:{port}"):
            raise Refused(403, f"this page is served to http://127.0.0.1:{port} and not to {given[:100]!r}")

    def _answer(self, parts: list[str]) -> None:
        content: _Content = self.server.content
        try:
            match parts:
                case [""]:
                    self._page(content)
                case ["overview"]:
                    self._text(str(overview_of(content.sources) or ""), "text/html")
                case ["data", "state"]:
                    self.reply(200, {"files": files_of(content.sources), "overview": state_of(content.sources)})
                case ["data", "rows", run, name, first]:
                    file = self._source(run).file(name)
                    self.reply(200, file.rows(_count(first), PIECE))
                case ["data", "episode", run, name, number]:
                    self.reply(200, self._source(run).record(name, _count(number)))
                case _:
                    raise Refused(404, "there is nothing of this name here")
        except (KeyError, IndexError, FileNotFoundError) as error:
            raise Refused(404, str(error.args[0] if error.args else error)) from error
        except (ValueError, RunFolderError, OSError) as error:
            if isinstance(error, ConnectionError):
                raise
            raise Refused(500, str(error)) from error

    def _source(self, run: str) -> Source:
        content: _Content = self.server.content
        return content.sources[_count(run)]

    def _page(self, content: _Content) -> None:
        title, lead = title_of(content.sources)
        settings = settings_of(content.sources, served=True, live=content.live, every=EVERY, overview=state_of(content.sources))
        self._text(render_page(title, lead, settings, overview_of(content.sources)), "text/html")

    def _text(self, text: str, kind: str) -> None:
        body = text.encode("utf-8")
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def end_headers(self) -> None:
        """Say with every answer what may be done with it."""
        for name, value in (
            ("Content-Security-Policy", content_policy(served=True) + "; frame-ancestors 'none'"),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        super().end_headers()


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refused(404, "a whole number is wanted here")
    return int(text)


def state_of(sources: Sequence[Source]) -> str:
    """Return what changes when an overview does: a token of the state of the files behind it.

    Args:
        sources: one or two.
    """
    seen: list[Any] = []
    for source in sources:
        if source.run is not None:
            for path in (
                source.run.path / "config.yaml",
                source.run.metrics_path,
                source.run.path / "summary.json",
                *(file.path for file in source.files()),
            ):
                try:
                    status = path.stat()
                except OSError:
                    continue
                growing = path.stem == "train"  # its episodes are no part of the overview
                seen.append([path.name, 0 if growing else status.st_size, 0 if growing else status.st_mtime_ns])
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]


class ViewServer(JsonServer):
    """Serves the page on 127.0.0.1.

    Args:
        sources: one, or two to be compared; closed with the server.
        port: 0 takes a free one.
        live: the page asks again and again whether there is more.

    Raises:
        OSError: if the port is taken.
    """

    def __init__(self, sources: Sequence[Source], port: int = 0, *, live: bool = False) -> None:
        super().__init__(_Handler, _Content(tuple(sources), live), "127.0.0.1", port)
        self._sources = tuple(sources)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"{self.base}/"

    def _release(self) -> None:
        for source in self._sources:
            source.close()
