"""`EnvHost`: the worker's side. It makes environments, runs the calls that arrive for them, many at once, and answers.

A request and its reply are bytes (`agent_gym.flows.messages`). The calls of one environment run one after the other, in the order of their arrival;
those of different environments overlap as they do in `run_rows` (`agent_gym.flows.pacing`). Nothing here loads torch unless an environment does.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agent_gym.flows.environment import EnvPool
from agent_gym.flows.messages import pack, pack_error, unpack
from agent_gym.flows.pacing import EnvCalls
from agent_gym.spaces import TokenBox
from agent_gym.wrappers import StepRecorder, can_await

__all__ = ["EnvHost"]

_MOST_THREADS = 1024
_ADVICE = "An environment in a worker keeps such objects to itself: let it return plain values (numbers, texts, arrays)"
_REGISTERED = (
    "entry_point",
    "reward_threshold",
    "nondeterministic",
    "max_episode_steps",
    "order_enforce",
    "disable_env_checker",
    "additional_wrappers",
    "kwargs",
)


@dataclass(slots=True)
class _Hosted:
    """One environment, and the prompt that the other side knows."""

    calls: EnvCalls
    kind: str
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    env: StepRecorder | None = None
    awaitable: bool = False
    shown: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def made(self) -> StepRecorder:
        if self.env is None:
            raise RuntimeError("the environment was never made, or is closed")
        return self.env


class EnvHost:
    """Hosts environments for another process. Made and used inside one event loop.

    Args:
        factory: of the rows' environments, packed; it is opened with the first request, so that a failure reaches whoever asked.
    """

    def __init__(self, factory: bytes) -> None:
        self._packed = factory
        self._pool: EnvPool | None = None
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="agent-gym-env")
        self._hosted: dict[int, _Hosted] = {}

    async def handle(self, request: bytes) -> bytes:
        """Serve a request.

        Args:
            request: `operation` (make, reset, step, run, close), `number` of the environment and what the operation takes, packed.

        Returns:
            `done` and what came of it, or its `error`, packed.
        """
        try:
            asked = unpack(request)
            operation, number = asked["operation"], asked["number"]
            if operation == "make":  # from here on a request to close it finds it
                self._hosted[number] = self._place(asked["row"])
            hosted = self._hosted.get(number)
            if hosted is None:
                raise RuntimeError(f"this worker hosts no environment {number}")
            async with hosted.lock:
                reply = await getattr(self, f"_serve_{operation}")(hosted, asked)
            if operation == "close":
                del self._hosted[number]
            return pack({"done": True, **reply}, _ADVICE)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  # everything belongs to whoever asked, SystemExit of an environment too
            return pack({"done": False, "error": pack_error(error)})

    async def close(self) -> None:
        """Close all environments; one whose call never ends is left to the end of the process."""
        for hosted in list(self._hosted.values()):
            if not hosted.lock.locked() and hosted.env is not None:
                env, hosted.env = hosted.env, None
                try:
                    env.close()
                except Exception:  # noqa: BLE001  # the process ends; the next environment shall be closed too
                    continue
        self._hosted.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _place(self, row: dict[str, Any]) -> _Hosted:
        pool = self._environments()
        kind = f"{row['env_id']} {row['env_kwargs']!r}"
        return _Hosted(EnvCalls(lambda name: pool.pace(kind, name), self._threads), kind)

    def _environments(self) -> EnvPool:
        if self._pool is None:
            self._pool = EnvPool(unpack(self._packed)["env_factory"])
        return self._pool

    async def _serve_make(self, hosted: _Hosted, asked: dict[str, Any]) -> dict[str, Any]:
        spec, pool = asked["spec"], self._environments()
        if spec is not None and spec.id not in gymnasium.registry:
            gymnasium.register(spec.id, **{name: getattr(spec, name) for name in _REGISTERED})
        hosted.env = env = await hosted.calls.call("make", lambda: pool.make(asked["row"]))
        hosted.awaitable = can_await(env)
        return {"described": _description(env)}

    async def _serve_reset(self, hosted: _Hosted, asked: dict[str, Any]) -> dict[str, Any]:
        env = hosted.made
        await hosted.calls.call("reset", lambda: env.reset(seed=asked["seed"], options=asked["options"]), in_thread=not hosted.awaitable)
        return {**self._news(hosted), "info": env.info}

    async def _serve_step(self, hosted: _Hosted, asked: dict[str, Any]) -> dict[str, Any]:
        env = hosted.made
        _, reward, terminated, truncated, _ = await hosted.calls.step(env, asked["action"], awaitable=hosted.awaitable)
        outcome = {"reward": float(reward), "terminated": bool(terminated), "truncated": bool(truncated)}
        fault = getattr(env.unwrapped, "fault", None)
        return {**self._news(hosted), **outcome, "info": env.info, "fault": None if fault is None else pack_error(fault)}

    async def _serve_run(self, hosted: _Hosted, asked: dict[str, Any]) -> dict[str, Any]:
        return {"result": asked["function"](hosted.made.unwrapped, *asked["arguments"])}

    async def _serve_close(self, hosted: _Hosted, _asked: dict[str, Any]) -> dict[str, Any]:
        env, hosted.env = hosted.env, None
        if env is not None:
            env.close()
        return {}

    def _news(self, hosted: _Hosted) -> dict[str, Any]:
        """The prompt as the other side can put it together: how many ids of the last one it begins with, and the ids behind them."""
        old, new = hosted.shown, hosted.made.prompt_ids
        shared = min(len(old), len(new))
        differing = np.flatnonzero(old[:shared] != new[:shared])
        kept = int(differing[0]) if len(differing) else shared
        hosted.shown = new
        return {"kept": kept, "ids": new[kept:].tobytes()}


def _description(env: StepRecorder) -> dict[str, Any]:
    """What the other side must know of an environment without asking."""
    unwrapped, record = env.unwrapped, env.trajectory
    named = getattr(unwrapped, "metric_names", None)
    spaces: list[Any] = [env.observation_space, env.action_space]
    assert all(isinstance(space, TokenBox) for space in spaces)  # the recorder's own condition
    stops = getattr(unwrapped, "end_of_turn_ids", None)
    return {
        "recorded_as": (record.env_id, dict(record.env_kwargs)),
        "name": type(unwrapped).__name__,
        "spaces": [(space.max_length, space.vocab_size, space.pad_id) for space in spaces],
        "end_of_turn_ids": None if stops is None else tuple(stops),
        "tokenizer_fingerprint": str(getattr(unwrapped, "tokenizer_fingerprint", "")),
        "metric_names": tuple(getattr(unwrapped, "extra_info", {}) if named is None else named),
        "takes_unpadded": hasattr(unwrapped, "encode_action"),
    }
