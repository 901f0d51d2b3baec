"""OpenEnv (github.com/meta-pytorch/OpenEnv, tested with openenv-core 0.3.0) both ways: our environments on its server, its environments as ours.

    with OpenEnvServer(lambda: gym.make("agent_gym:AgentR1/Tool-v0")) as server:    # ours, for every client of OpenEnv
        server.url    # where they connect

    env = OpenEnvEnv(base_url="http://127.0.0.1:8000", action_field="message", observation_field="message")      # theirs, as one of ours

Each connection is a session with an environment of its own. The client speaks OpenEnv's WebSocket protocol by itself: it needs the package
`websockets` and nothing of OpenEnv, whose own client loads much and changes the process's environment variables while it connects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

import gymnasium
import numpy as np

from agent_gym.adapters._world import need, resolve
from agent_gym.core import Action, AgentEnv, EnvFault, Observation, Outcome
from agent_gym.envs.whole_numbers import whole_number
from agent_gym.trajectory import StopReason

__all__ = ["OpenEnvEnv", "OpenEnvServer", "openenv_app"]

MakeEnv = Callable[[], "gymnasium.Env[Any, Any]"]
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN_INFO = ("feedback", "stop_reason", "is_success", "action_valid", "task_id", "turn", "context_rewritten", "reward_parts")


# ------------------------------------------------------------------------------------------------ ours, served


def openenv_app(make_env: MakeEnv, *, max_sessions: int = 64) -> Any:
    """Make OpenEnv's server application for one of our environments.

    An action is `{"text": ...}` or `{"token_ids": [...]}`; ids are taken as they were sampled. An observation has `text` (what the environment says
    anew), `token_ids` (the whole prompt), `prompt` (the same as text), terminated and truncated apart, and the info that any environment has. `done` is
    either of the two. `reset` takes a seed, and our reset's options as further fields.

    Args:
        make_env: makes an environment; called for each session, in a thread of its own.
        max_sessions: connections at once.

    Returns:
        A FastAPI application, for uvicorn or another server.

    Raises:
        ImportError: if OpenEnv is not installed.
    """
    server = need("openenv.core.env_server.http_server", "openenv-core (pip install openenv-core, see docs/adapters.md)")
    fastapi = need("fastapi", "fastapi")
    kinds = _kinds()
    app = fastapi.FastAPI(title="agent-gym")
    served = kinds["environment"]

    def factory() -> Any:
        return served(make_env())

    whole_number("max_sessions", max_sessions, 1)
    routes = server.HTTPEnvServer(
        env=factory, action_cls=kinds["action"], observation_cls=kinds["observation"], max_concurrent_envs=int(max_sessions)
    )
    routes.register_routes(app)
    return app


def _kinds() -> dict[str, Any]:
    """OpenEnv's classes for one of our environments. Made here, since their bases come from a package that may be missing."""
    interfaces = need("openenv.core.env_server.interfaces", "openenv-core")
    types = need("openenv.core.env_server.types", "openenv-core")
    pydantic = need("pydantic", "pydantic")

    action = pydantic.create_model(
        "AgentAction",
        __base__=types.Action,
        text=(str | None, pydantic.Field(default=None, description="the reply as text")),
        token_ids=(list[int] | None, pydantic.Field(default=None, description="the reply as the ids that were sampled")),
    )
    observation = pydantic.create_model(
        "AgentObservation",
        __base__=types.Observation,
        text=(str, ""),
        prompt=(str, ""),
        token_ids=(list[int], pydantic.Field(default_factory=list)),
        terminated=(bool, False),
        truncated=(bool, False),
        info=(dict[str, Any], pydantic.Field(default_factory=dict)),
    )

    class Served(interfaces.Environment):  # type: ignore[misc, name-defined]  # a base without types
        """One of our environments behind OpenEnv's interface."""

        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
            super().__init__()
            self._env = env
            self._state = types.State()

        def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Any:
            shown, info = self._env.reset(seed=seed, options=options or None)
            self._state = types.State(episode_id=episode_id, step_count=0)
            return self._observation(shown, info, None, False, False)

        def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
            if (action.text is None) == (action.token_ids is None):
                raise ValueError("an action has either text or token_ids")
            encode: Any = self._env.get_wrapper_attr("encode_action")
            ids = action.token_ids if action.text is None else encode(action.text)
            shown, reward, terminated, truncated, info = self._env.step(list(ids))
            self._state.step_count += 1
            return self._observation(shown, info, float(reward), bool(terminated), bool(truncated))

        def _observation(self, shown: Any, info: Mapping[str, Any], reward: float | None, terminated: bool, truncated: bool) -> Any:
            decode: Any = self._env.get_wrapper_attr("decode")
            told = {name: info[name] for name in _SHOWN_INFO if name in info}
            return observation(
                text=str(info["feedback"]),
                prompt=decode(shown, info),
                token_ids=[int(one) for one in shown[: info["observation_length"]]],
                terminated=terminated,
                truncated=truncated,
                done=terminated or truncated,
                reward=reward,
                info={**told, "stop_reason": str(info["stop_reason"])},
            )

        @property
        def state(self) -> Any:
            return self._state

        def close(self) -> None:
            self._env.close()

    return {"action": action, "observation": observation, "environment": Served}


class OpenEnvServer:
    """OpenEnv's server for one of our environments, in a thread of this process, until `close` or the end of the `with` block.

    Args:
        make_env: see `openenv_app`; or an application that is made already.
        host: to listen at.
        port: 0 takes a free one.
        max_sessions: see `openenv_app`.

    Attributes:
        url: where it listens.

    Raises:
        ImportError: if OpenEnv or uvicorn is not installed.
        OSError: if the port is taken.
        RuntimeError: if the server does not start within a minute.
    """

    def __init__(self, make_env: Any, *, host: str = "127.0.0.1", port: int = 0, max_sessions: int = 64) -> None:
        uvicorn = need("uvicorn", "uvicorn")
        app = make_env if hasattr(make_env, "router") else openenv_app(make_env, max_sessions=max_sessions)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._socket.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=2))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, name="openenv-server", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 60
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.close()
                raise RuntimeError(f"the server did not start at {self.url}")
            time.sleep(0.01)

    def close(self) -> None:
        """Stop the server and end its sessions; a second time does nothing."""
        self._server.should_exit = True
        self._thread.join(timeout=10)
        self._socket.close()

    def __enter__(self) -> OpenEnvServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


# ------------------------------------------------------------------------------------------------ theirs, as ours


class OpenEnvEnv(AgentEnv):
    """An environment on an OpenEnv server as one of ours.

    The seed of a task goes to the server with `reset`; whether the same seed is the same task is the server's affair. What the server refuses as an
    invalid action is the model's mistake and answered by its words. All else that goes wrong with the server (it is gone, silent, full, or its
    environment raises) is a fault of the world, `StopReason.ENV_FAULT`; the next `reset` connects anew.

    Args:
        base_url: "http://host:port" or "ws://host:port", with a path where the server has one.
        action_field: the field of an action that takes the reply; or a function (text) -> action, or "package.module:function".
        observation_field: the field of an observation that is shown; or a function (observation) -> text, or "package.module:function".
        instructions: text before the first observation.
        reset_kwargs: further fields of every reset.
        success_reward: from which reward on an episode that is done counts as solved; an observation's own info.is_success goes first.
        timeout: seconds that the server may take for an answer.
        max_turns: see `AgentEnv`.
        **kwargs: see `AgentEnv`.

    Raises:
        ImportError: if websockets is not installed.
        ValueError: for keywords that cannot be used.
    """

    option_names: ClassVar[tuple[str, ...]] = ("index",)

    def __init__(
        self,
        *,
        base_url: str,
        action_field: str | Callable[[str], Mapping[str, Any]] = "text",
        observation_field: str | Callable[[Mapping[str, Any]], str] = "text",
        instructions: str = "",
        reset_kwargs: Mapping[str, Any] | None = None,
        success_reward: float = 1.0,
        timeout: float = 60.0,
        max_turns: int = 50,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, **kwargs)
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
            raise ValueError(f"base_url must be like http://127.0.0.1:8000, not {base_url!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        self.base_url = base_url.rstrip("/")
        self._url = f"{'wss' if parts.scheme in ('https', 'wss') else 'ws'}://{parts.netloc}{parts.path.rstrip('/')}/ws"
        self._direct = parts.hostname in _LOCAL
        self._make_action = _way("action_field", action_field)
        self._read = _way("observation_field", observation_field)
        self._instructions = instructions
        self._reset_kwargs = dict(reset_kwargs or {})
        self.success_reward = float(success_reward)
        self._timeout = float(timeout)
        self._client = need("websockets.sync.client", "websockets")
        self._broken: tuple[type[Exception], ...] = (OSError, need("websockets.exceptions", "websockets").WebSocketException)
        self._no_answer: tuple[type[Exception], ...] = (*self._broken, ValueError)
        self._connection: Any = None
        self._cut = False

    # ------------------------------------------------------------------------------------------------ the connection

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message and return the answer, connecting where there is no connection."""
        kind = message["type"]
        try:
            if self._connection is None:
                proxy: Literal[True] | None = None if self._direct else True
                self._connection = self._client.connect(
                    self._url, open_timeout=self._timeout, close_timeout=2, max_size=100 * 2**20, proxy=proxy
                )
            self._connection.send(json.dumps(message))
            answer = json.loads(self._connection.recv(timeout=self._timeout))
        except self._no_answer as error:
            self._disconnect()
            raise EnvFault(f"the OpenEnv server at {self.base_url} did not answer {kind!r}: {error!r}") from error
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), dict):
            self._disconnect()
            raise EnvFault(f"the OpenEnv server at {self.base_url} answered {kind!r} by {answer!r:.200}")
        return answer

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*self._broken):  # it may be gone already; a server that is told so ends the session in its own time
                connection.send(json.dumps({"type": "close"}))
                for _ in range(8):  # until it has closed, which is raised
                    connection.recv(timeout=2)
            connection.close()

    def close(self) -> None:
        """End the session; a second time does nothing."""
        self._disconnect()
        super().close()

    # ------------------------------------------------------------------------------------------------ the episode

    def _begin(self, options: dict[str, Any]) -> Observation:
        """Reset the server's environment; see `AgentEnv._begin`."""
        number = whole_number("options['index']", options["index"], 0) if "index" in options else int(self.np_random.integers(2**53))
        seed = int(np.random.SeedSequence([self.splits.index(self.split), number]).generate_state(1)[0]) % 2**31
        self.task_id = f"{self.base_url}:{self.split}-{number}"
        self._cut = False
        answer = self._ask({"type": "reset", "data": {**self._reset_kwargs, "seed": seed}})
        if answer.get("type") == "error":
            self._disconnect()
            raise EnvFault(f"the OpenEnv server at {self.base_url} refused to reset: {answer['data'].get('message')}")
        if answer["data"].get("done"):
            raise EnvFault(f"the OpenEnv server at {self.base_url} began with an episode that is over")
        text = self._read(answer["data"].get("observation") or {})
        return Observation(text="\n\n".join(part for part in (self._instructions, text) if part))

    def _respond(self, action: Action) -> Outcome:
        """Send the reply; see `AgentEnv._respond`."""
        answer = self._ask({"type": "step", "data": dict(self._make_action(action.text))})
        data = answer["data"]
        if answer.get("type") == "error":
            if data.get("code") == "VALIDATION_ERROR":
                return Outcome(Observation(text=f"The action is not valid: {data.get('message')}"), info={"action_valid": False})
            self._disconnect()
            raise EnvFault(f"the OpenEnv server at {self.base_url} failed at a step: {data.get('message')}")
        shown = data.get("observation") or {}
        about: Mapping[str, Any] = shown if isinstance(shown, Mapping) else {}
        told: Mapping[str, Any] = about["info"] if isinstance(about.get("info"), Mapping) else {}
        if told.get("stop_reason") == StopReason.ENV_FAULT:
            raise EnvFault(f"the environment at {self.base_url} reports a fault: {told.get('feedback')}")
        reward = float(data.get("reward") or 0.0)
        done = bool(data.get("done"))
        self._cut = done and bool(about.get("truncated")) and not about.get("terminated")
        solved = bool(told.get("is_success", done and reward >= self.success_reward))
        info = {"is_success": solved, "action_valid": bool(told.get("action_valid", True))}
        return Outcome(Observation(text=self._read(shown)), reward, done and not self._cut, info)

    async def _arespond(self, action: Action) -> Outcome:
        """Send the reply without holding up the event loop; see `AgentEnv._arespond`."""
        return await asyncio.to_thread(self._respond, action)

    def step(self, action: Any) -> Any:
        """Act; see `AgentEnv.step`. Where the server's own limit ends the episode, it is truncated by TIME_LIMIT."""
        return self._with_their_end(super().step(action))

    async def astep(self, action: Any) -> Any:
        """Act in an event loop, with the same end as `step`; see `AgentEnv.astep`."""
        return self._with_their_end(await super().astep(action))

    def _with_their_end(self, result: Any) -> Any:
        observation, reward, terminated, truncated, info = result
        if self._cut and not terminated and not truncated:
            self._running = False
            truncated, info = True, {**info, "stop_reason": StopReason.TIME_LIMIT}
        return observation, reward, terminated, truncated, info


def _way(name: str, given: Any) -> Callable[[Any], Any]:
    """A function that makes an action of a text, or a text of an observation."""
    if not isinstance(given, str) or ":" in given:
        return resolve(name, given)
    if name == "action_field":
        return lambda text: {given: text}

    def read(observation: Mapping[str, Any]) -> str:
        if given not in observation:
            raise EnvFault(
                f"the server's observation has no field {given!r}, but {sorted(observation)}; name another by observation_field=..."
            )
        value = observation[given]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return read
