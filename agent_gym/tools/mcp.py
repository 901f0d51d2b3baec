"""Tools of a Model Context Protocol server: `MCPTools(server)`, for the `tools` of any environment that calls tools.

    ToolEnv(tools=["calculator", MCPTools("python -m my_server")])        # over standard input and output
    ToolEnv(tools=[MCPTools("http://127.0.0.1:8000/mcp")])                # over HTTP

`MCPTools` says which server and how; it opens nothing, and pickles. Each environment that is made with it opens one session of its own, asks for the
list of tools once, and closes the session with itself: by `close()`, when it is collected, or when the process ends. All sessions of a process live in
one event loop in a background thread, so that an environment without a loop, Jupyter and `AgentEnvLoop` reach them in the same way. The protocol
is the package `mcp`'s (extra `mcp`).

A server that dies, or speaks no protocol, is a fault of the world (`EnvFault`); the next reset opens a new session. A call that was handed over
is never sent again. What a tool itself reports as an error is a text for the model, and a slow one is given up after `timeout`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import re
import shlex
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from agent_gym._background import sessions
from agent_gym.core import EnvFault
from agent_gym.tools.base import ASYNC_TIMEOUT, BaseTool, OpenToolkit, ToolContext, Toolkit, ToolResult
from agent_gym.tools.validation import ArgumentChecker, check_parameters

__all__ = ["MCPTools"]

MAX_TEXT = 65_536
"""Characters of a result; what is longer is cut with a mark, before the environment cuts it by tokens."""
_MAX_TOOLS = 1000
_CLOSE_LIMIT = 10.0  # seconds; the package itself gives a server 2 to end, 2 after SIGTERM and 2 after SIGKILL
_MAX_STDERR = 2000
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class MCPTools(Toolkit):
    """The tools of a Model Context Protocol server.

    Args:
        server: a command (a string, split as a shell does, or its words) that speaks the protocol on standard input and output; or the URL
            (`http://`, `https://`) of a server of streamable HTTP.
        tools: names of the server's tools to take, in this order; None takes all.
        prefix: put before every name, where two servers have tools of one name.
        env: environment variables of the command, beside HOME, LOGNAME, PATH, SHELL, TERM and USER. It inherits no others.
        cwd: folder of the command.
        headers: of every HTTP request.
        timeout: seconds that a call may take.
        start_timeout: seconds that the server may take to start and list its tools.
        fresh: open a new session for every episode: for servers that keep state.

    Raises:
        ImportError: without the package `mcp`.
        ValueError: for a server that is neither a command nor a URL, or times that are none.
    """

    server: str | Sequence[str]
    tools: Sequence[str] | None = None
    prefix: str = ""
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    headers: Mapping[str, str] | None = None
    timeout: float = ASYNC_TIMEOUT
    start_timeout: float = 30.0
    fresh: bool = False

    def __post_init__(self) -> None:
        try:
            import mcp
        except ImportError as error:
            raise ImportError('MCPTools needs the package mcp: pip install "agentr1-gym[mcp]"') from error
        del mcp
        if not self.is_http:
            words = self.command
            if not words or any(not isinstance(one, str) or "\0" in one for one in words) or not words[0] or "://" in words[0]:
                raise ValueError(
                    f"server must be a command (a string or its words) or a URL that begins with http:// or https://, not {self.server!r}"
                )
        for name in ("timeout", "start_timeout"):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= 1e6:
                raise ValueError(f"{name} is {seconds!r}; give seconds above 0")
        if isinstance(self.tools, str):
            raise ValueError(f"tools is {self.tools!r}; give a list of names, [{self.tools!r}]")

    @property
    def is_http(self) -> bool:
        """Whether the server is reached over HTTP."""
        return isinstance(self.server, str) and self.server.lower().startswith(("http://", "https://"))

    @property
    def command(self) -> list[str]:
        """The words of the command."""
        try:
            return shlex.split(self.server) if isinstance(self.server, str) else list(self.server)
        except (TypeError, ValueError) as error:
            raise ValueError(f"server must be a command or a URL, and {self.server!r} is neither: {error}") from error

    @property
    def label(self) -> str:
        """What messages call the server: the URL without what may be secret in it, or the command with no more than its first argument."""
        if self.is_http:
            return str(self.server).split("?")[0].split("#")[0].rpartition("@")[2]
        program, *arguments = self.command
        script = [os.path.basename(one) for one in arguments[:1] if not one.startswith("-")]
        return " ".join([os.path.basename(program), *script])

    def open(self) -> OpenToolkit:
        """Open a session and make its tools.

        Returns:
            The tools, which live until the session is closed.

        Raises:
            agent_gym.core.EnvFault: if the server does not start, or speaks no protocol.
            ValueError: for names that the server does not have.
        """
        session = _Session(self)
        session.begin()
        return session


# ------------------------------------------------------------------------------------------------ the session of one environment


class _Session(OpenToolkit):
    """The session of one environment. Copies, pickled ones and those of a forked process, open their own at their first reset."""

    def __init__(self, given: MCPTools, listed: Sequence[Mapping[str, Any]] | None = None) -> None:
        self._given = given
        self._listed = listed
        self._connection: _Connection | None = None
        self._finalizer: weakref.finalize[Any, _Session] | None = None
        self._used = False
        self.tools = [] if listed is None else self._made(listed)

    def __reduce__(self) -> Any:
        return _Session, (self._given, self._listed)

    def begin(self) -> None:
        """See that the session is open, at the beginning of an episode."""
        held = self._connection
        if held is not None and held.usable and not (self._given.fresh and self._used):
            return
        self.close()
        connection = _Connection(self._given)
        listed = connection.open()
        self._connection = connection
        self._finalizer = weakref.finalize(self, connection.end)
        self._finalizer.atexit = False  # `_end_all` ends all at once
        self._used = False
        if self._listed is None:  # the tools are those of the first session for as long as the environment lives
            try:
                self.tools = self._made(listed)
            except ValueError:
                self.close()
                raise
            self._listed = listed

    def close(self) -> None:
        """Close the session; the next `begin` opens another."""
        connection, self._connection = self._connection, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if connection is not None:
            connection.end(wait=True)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        connection = self._connection
        if connection is None or not connection.usable:
            raise EnvFault(f"the session with the MCP server {self._given.label} is closed; reset() opens another")
        self._used = True
        return await connection.call(name, arguments)

    def _made(self, listed: Sequence[Mapping[str, Any]]) -> list[BaseTool]:
        given = self._given
        by_name: dict[str, Mapping[str, Any]] = {}
        for one in listed:
            by_name.setdefault(str(one["name"]), one)
        unknown = [name for name in given.tools or () if name not in by_name]
        if unknown:
            raise ValueError(
                f"the MCP server {given.label} has no tool {', '.join(map(repr, unknown))}; it has {', '.join(map(repr, by_name)) or 'none'}"
            )
        taken: set[str] = set()
        made: list[BaseTool] = []
        for name in by_name if given.tools is None else dict.fromkeys(given.tools):
            shown = _allowed_name(given.prefix + name, taken)
            taken.add(shown)
            made.append(_MCPTool(self, name, shown, by_name[name], given.timeout))
        return made


def _allowed_name(name: str, taken: set[str]) -> str:
    """A tool name as formats of calls can write it; servers may use any characters."""
    name = _NOT_IN_A_NAME.sub("_", name)
    name = (name if re.match("[A-Za-z_]", name) else f"_{name}")[:64]
    number = 1
    found = name
    while found in taken:
        number += 1
        found = f"{name[: 63 - len(str(number))]}_{number}"
    return found


class _MCPTool(BaseTool):
    """One tool of a server."""

    def __init__(self, session: _Session, remote: str, name: str, listed: Mapping[str, Any], timeout: float) -> None:
        self._session = session
        self._remote = remote
        self.timeout = timeout
        schema = listed["inputSchema"]
        description = str(listed.get("description") or listed.get("title") or "")
        parameters = {**schema, "type": "object"} if isinstance(schema, Mapping) and schema.get("type", "object") == "object" else None
        if parameters is None or not _is_usable(parameters, name):
            # The server checks its arguments itself. The model is told of them in words, and anything goes here.
            description = f"{description}\nArguments: {json.dumps(schema, ensure_ascii=False)}".strip()
            parameters = {"type": "object", "properties": {}}
        super().__init__(name=name, description=description, parameters=parameters)

    async def execute(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the tool of the server.

        Args:
            arguments: of the call.
            context: not used.

        Returns:
            The result as text; images and other data are named and not shown. `info` has `is_error` and `structured`.

        Raises:
            agent_gym.core.EnvFault: if the server is gone, or answers what is none.
        """
        result = await self._session.call(self._remote, arguments)
        text = _text_of(result)
        if result.is_error and not text.lower().startswith("error"):
            text = f"Error: {text}" if text else f"Error: {self.name} failed and did not say why."
        return ToolResult(text, info={"is_error": bool(result.is_error), "structured": result.structured_content})


def _is_usable(parameters: Mapping[str, Any], name: str) -> bool:
    """Whether arguments can be checked against a schema: it is a valid one, and refers to nothing outside itself."""
    try:
        checker: ArgumentChecker = check_parameters(parameters, name)
        if "$ref" in json.dumps(parameters):
            complaint = checker.error({}) or ""
            return "refers to" not in complaint and not _outward(parameters)
    except (ValueError, RecursionError):
        return False
    return True


def _outward(schema: Any) -> bool:
    """Whether a reference leads out of the schema."""
    if isinstance(schema, Mapping):
        return any((key == "$ref" and not str(value).startswith("#")) or _outward(value) for key, value in schema.items())
    return isinstance(schema, (list, tuple)) and any(map(_outward, schema))


def _text_of(result: Any) -> str:
    """A result as text. Structured content is shown where there is nothing else, since servers repeat it as text."""
    parts = [_shown(one) for one in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[cut: the result has {len(text)} characters]"
    return text


def _shown(part: Any) -> str:
    match part.type:
        case "text":
            return str(part.text)
        case "image" | "audio":
            return f"[{part.type}: {part.mime_type}, {_size(part.data)} bytes, not shown]"
        case "resource_link":
            return f"[resource: {part.name}, {part.uri}]"
        case "resource":
            held = part.resource
            if hasattr(held, "text"):
                return str(held.text)
            return f"[resource: {held.uri}, {held.mime_type or 'data'}, {_size(held.blob)} bytes, not shown]"
    return f"[{part.type}, not shown]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


# ------------------------------------------------------------------------------------------------ the connection


class _Connection:
    """A session of the package `mcp`, held open by one task of the sessions' event loop. Knows nothing of the environment."""

    def __init__(self, given: MCPTools) -> None:
        self._given = given
        self._process = os.getpid()
        self._stop = asyncio.Event()
        self._listed: Future[list[Mapping[str, Any]]] = Future()
        self._ended: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Any = None
        self._broken = False
        self._stderr = _Tail()

    @property
    def usable(self) -> bool:
        """Whether calls can be made: it is open, nothing has broken, and it is this process's."""
        return not self._broken and self._process == os.getpid() and self._ended is not None and not self._ended.done()

    def open(self) -> list[Mapping[str, Any]]:
        """Open it and wait for the list of tools."""
        logging.getLogger("mcp").addHandler(
            logging.NullHandler()
        )  # a server that writes rubbish shall not write it on the trainer's terminal
        _LIVE.add(self)
        self._ended = sessions.submit(self._hold())
        try:
            return self._listed.result(self._given.start_timeout + _CLOSE_LIMIT)
        except FutureTimeout:
            self.end()
            raise EnvFault(f"the MCP server {self._given.label} neither starts nor ends") from None
        except BaseException:
            self.end(wait=True)
            raise

    def end(self, wait: bool = False) -> None:
        """End it. Only the process that opened it can; a forked one leaves it alone.

        Args:
            wait: until the server is gone.
        """
        self._broken = True
        ended = self._ended
        if self._process != os.getpid() or ended is None or ended.done():
            return
        if self._loop is None:
            self._stop.set()
        else:  # not through `sessions.submit`: the collector may call this while this very thread holds its lock
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        if wait and not sessions.owns_current_thread():
            try:
                ended.result(_CLOSE_LIMIT)
            except (FutureTimeout, CancelledError):
                logging.getLogger(__name__).warning("the MCP server %s did not end within %g seconds", self._given.label, _CLOSE_LIMIT)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Call a tool, from any event loop. A caller that is cancelled takes the call along."""
        return await asyncio.wrap_future(sessions.submit(self._call(name, arguments)))

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        import anyio
        from mcp.shared.exceptions import MCPError
        from pydantic import ValidationError

        label = self._given.label
        # A task that is cancelled from outside, as asyncio does it, could be ended in the middle of a message; so the call runs in one of its own.
        scope = anyio.CancelScope()

        async def scoped() -> Any:
            with scope:
                return await self._client.call_tool(name, arguments)
            raise TimeoutError

        task = asyncio.ensure_future(scoped())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                scope.cancel()
                raise EnvFault(f"the session with the MCP server {label} was closed during a call")
            return task.result()
        except asyncio.CancelledError:
            scope.cancel()
            task.add_done_callback(_look_at)
            raise
        except MCPError as error:
            if not _is_answer(error, self._given.is_http):
                raise self._fault(f"broke the connection: {error}") from error
            raise RuntimeError(str(error)) from error
        except ValidationError as error:
            raise self._fault(f"answered the call of {name} with what is no result: {_first_line(error)}") from error
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise self._fault(f"broke the connection: {type(error).__name__}") from error
        finally:
            stopped.cancel()

    def _fault(self, what: str) -> EnvFault:
        """The connection is of no use any more."""
        self._broken = True
        self._stop.set()
        said = self._stderr.text()
        return EnvFault(f"the MCP server {self._given.label} {what}{f'; it wrote: {said}' if said else ''}")

    async def _hold(self) -> None:
        """Open the session, hold it open until it shall end, and close it, all in one task, as the package needs it."""
        import anyio

        given = self._given
        self._loop = asyncio.get_running_loop()
        late = False
        with anyio.CancelScope() as scope:

            def too_late() -> None:
                nonlocal late
                late = True
                scope.cancel()

            timer = self._loop.call_later(given.start_timeout, too_late)
            stopping = asyncio.ensure_future(self._stop_early(scope))
            try:
                async with AsyncExitStack() as stack:
                    self._client = await stack.enter_async_context(self._make_client(stack))
                    listed = await self._list()
                    timer.cancel()
                    stopping.cancel()
                    self._listed.set_result(listed)
                    await self._stop.wait()
            except Exception as error:  # noqa: BLE001  # whatever the package, the server or the system raise
                if not self._listed.done():
                    self._listed.set_exception(self._start_fault(error))
            finally:
                timer.cancel()
                stopping.cancel()
                self._broken = True
                self._stop.set()
                self._stderr.close()
        if not self._listed.done():
            reason = f"did not list its tools within {given.start_timeout:g} seconds" if late else "was closed while it started"
            self._listed.set_exception(self._fault(reason))

    async def _stop_early(self, scope: Any) -> None:
        """End the start as well, when it shall end before it began."""
        await self._stop.wait()
        scope.cancel()

    def _start_fault(self, error: BaseException) -> EnvFault:
        while isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        return self._fault(f"could not be opened: {type(error).__name__}: {_first_line(error)}")

    def _make_client(self, stack: AsyncExitStack) -> Any:
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client

        given = self._given
        if given.is_http:
            import httpx2

            http = httpx2.AsyncClient(headers=dict(given.headers or {}), timeout=httpx2.Timeout(30.0, read=max(300.0, given.timeout)))
            stack.push_async_callback(http.aclose)
            transport: Any = streamable_http_client(str(given.server), http_client=http)
        else:
            words = given.command
            parameters = StdioServerParameters(
                command=words[0], args=words[1:], env=dict(given.env or {}), cwd=given.cwd, encoding_error_handler="replace"
            )
            transport = stdio_client(parameters, errlog=self._stderr.open())
        return Client(transport, cache=None)

    async def _list(self) -> list[Mapping[str, Any]]:
        """The tools that the server has, as plain data. A list without end is cut."""
        found: list[Mapping[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            found += [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in page.tools]
            cursor = page.next_cursor
            if not cursor or not page.tools or len(found) >= _MAX_TOOLS:
                return found[:_MAX_TOOLS]


def _is_answer(error: Any, http: bool) -> bool:
    """Whether an error of the protocol is the server's answer to a call, and not the package's word for a connection that broke."""
    from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, PARSE_ERROR, REQUEST_TIMEOUT

    if error.code in (CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT):
        return False
    return not (http and (error.code == INVALID_REQUEST or str(error) == "Server returned an error response"))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300]


def _look_at(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


class _Tail:
    """The last of what a server writes on standard error, for messages; never more than a little of it is kept."""

    def __init__(self) -> None:
        self._read = -1
        self._write: Any = None
        self._kept = b""

    def open(self) -> Any:
        """Make the pipe, in the sessions' loop, and return the file that the server writes to."""
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self._write = os.fdopen(write, "w")
        asyncio.get_running_loop().add_reader(self._read, self._take)
        return self._write

    def _take(self) -> None:
        try:
            part = os.read(self._read, 65536)
        except BlockingIOError:
            return
        self._kept = (self._kept + part)[-_MAX_STDERR:]
        if not part:
            asyncio.get_running_loop().remove_reader(self._read)

    def text(self) -> str:
        """The last line."""
        if self._read >= 0:
            self._take()
        lines = self._kept.decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else ""

    def close(self) -> None:
        """Close both ends, in the sessions' loop."""
        if self._read < 0:
            return
        self._take()
        asyncio.get_running_loop().remove_reader(self._read)
        os.close(self._read)
        self._write.close()
        self._read = -1


_LIVE: weakref.WeakSet[_Connection] = weakref.WeakSet()
"""The connections of this process, so that its end ends them."""


def _end_all() -> None:
    held = list(_LIVE)
    for one in held:
        one.end()
    for one in held:
        one.end(wait=True)


atexit.register(_end_all)
