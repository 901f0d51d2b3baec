"""`EnginePolicy`: what every policy on an engine outside this process' model keeps, whatever the engine: the contract of ids in and ids out.

An engine (vLLM or SGLang behind HTTP, vLLM in this process) only carries one request (`Engine`). Everything that the trainers rely on is done here,
once: prompts are clamped before the engine, every request has a seed of its own, the ids of the prompt come back and are compared, the sampled ids are
those of the answer and never of its text, log-probabilities are those of the distribution that was sampled or none at all, a full context is a finish
reason and no error, a dead or hung engine is asked again, and each reply says which weights made it, old keys and values dropped after every update.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import secrets
import shutil
import tempfile
import threading
import uuid
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from agent_gym.policies.base import Sampling, derive_seed
from agent_gym.trajectory import Generation

__all__ = ["ContextFull", "Engine", "EngineDown", "EngineError", "EngineInfo", "EnginePolicy", "Reply"]

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_POLL = 0.01
"""Seconds between two looks at whether it is one's turn; event loops of several threads may share a policy, so no primitive of one loop serves."""
_LONGEST_DELAY = 30.0
_HIGHEST_LOGPROB = 1e-3
"""Above 0 by more than rounding, and it is no log-probability."""


class EngineError(RuntimeError):
    """The engine cannot be used: it is gone, it hangs, or what it answers breaks the contract."""


class EngineDown(EngineError):
    """The engine did not answer; worth another try.

    Args:
        message: what happened.
        lost: whether it may have been started again since, without the weights that it was given.
        after: seconds that it asks to wait before the next try; None where it says nothing.
    """

    def __init__(self, message: str, *, lost: bool = True, after: float | None = None) -> None:
        super().__init__(message)
        self.lost, self.after = lost, after


class ContextFull(Exception):
    """The engine says that prompt and reply do not fit into its context.

    Args:
        limit: tokens of the context, where the engine says so.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(f"the context of {limit} tokens is full")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine says of itself.

    Attributes:
        name: "vllm 0.30.0".
        model: the name under which it knows its model.
        max_model_len: tokens of prompt and reply together.
        logprobs: of which distribution its log-probabilities are: "processed" (the sampled one), "tempered" (temperature applied, but no
            top_p, top_k, min_p) or "raw" (temperature 1).
    """

    name: str
    model: str
    max_model_len: int
    logprobs: str = "processed"


@dataclass(frozen=True, slots=True)
class Reply:
    """An engine's answer, not believed yet.

    Attributes:
        token_ids: the sampled ids.
        logprobs: one per id, None where unknown; None where there are none at all.
        finish_reason: "stop", "length" or "abort".
        prompt_ids: those that the engine worked on; None where it cannot say.
    """

    token_ids: Sequence[Any] | None
    logprobs: Sequence[Any] | None
    finish_reason: Any
    prompt_ids: Sequence[Any] | None


class Engine(Protocol):
    """One engine. Raises `EngineDown` where another try may help, `ContextFull`, and `EngineError` for all else."""

    async def connect(self) -> EngineInfo:
        """See that it is there, and what it is.

        Returns:
            What the policy must know of it.
        """
        ...

    async def complete(self, prompt: list[int], sampling: Sampling, max_tokens: int, seed: int, request_id: str) -> Reply:
        """Sample one reply; a cancelled call ends the request in the engine too.

        Args:
            prompt: token ids.
            sampling: temperature and stop ids.
            max_tokens: the longest reply, in tokens.
            seed: of this request alone.
            request_id: unique among all requests; `abort` takes it.

        Returns:
            What was sampled, not yet checked.
        """
        ...

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End requests; their calls of `complete` return what was sampled, with "abort".

        Args:
            request_ids: as given to `complete`; those that are not in flight are ignored.
        """
        ...

    async def load(self, folder: str, version: int) -> None:
        """Load weights, and drop every key and value that the old ones made.

        Args:
            folder: where the engine sees a saved model.
            version: the optimiser step of the weights.
        """
        ...

    async def reset_prefix_cache(self) -> None:
        """Drop every kept key and value."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


async def ask_again(
    attempt: Callable[[], Awaitable[_Result]],
    retries: int,
    delay: float,
    failed: Callable[[EngineDown, bool], None] = lambda down, again: None,
    scatter: Callable[[], float] = lambda: 1.0,
) -> _Result:
    """Call until an engine answers, or all tries are spent.

    Args:
        attempt: one try.
        retries: tries beyond the first.
        delay: seconds before the first of these, doubled for each further one, at most 30.
        failed: told of each failure, and whether there is another try.
        scatter: a factor for each delay, so that many clients do not come back at one moment. A wait that the engine asked for is never shortened by it.

    Returns:
        What the try returned.

    Raises:
        EngineError: after the last one.
    """
    for tries in itertools.count(1):
        try:
            return await attempt()
        except EngineDown as down:
            failed(down, tries <= retries)
            if tries > retries:
                raise EngineError(f"{down} (tried {tries} times)") from down
            wait = max(delay * scatter(), down.after or 0.0)
            _log.warning("%s; trying again in %.1f s (%d of %d)", down, wait, tries, retries)
        await asyncio.sleep(wait)
        delay = min(2 * delay, _LONGEST_DELAY)
    raise AssertionError("unreachable")


def retries_within(seconds: float, delay: float = 1.0) -> int:
    """How many retries `ask_again` needs to wait so long.

    Args:
        seconds: at least.
        delay: before the first.

    Returns:
        The number.
    """
    number = 0
    while seconds > 0 and delay > 0:
        seconds, delay, number = seconds - delay, min(2 * delay, _LONGEST_DELAY), number + 1
    return number


class EnginePolicy:
    """Samples from an engine. See `agent_gym.policies.Policy`.

    Replies of one call of `update_weights` and the next have the same `policy_version`: an update waits for the requests in flight and holds back new
    ones. A reply cut off where the engine's context was full has the finish_reason "context"; a prompt that leaves no room gets an empty one.

    Args:
        engine: carries the requests.
        max_context: the longest prompt with reply, in tokens; None asks the engine. It is never made longer than what the engine says.
        vocab_size: prompts with other ids are refused before the engine; None leaves that to the engine.
        retries: how often a request is sent again to an engine that is gone or hangs.
        retry_delay: seconds before the first of these, doubled for each further one, at most 30.
        version: of the weights that the engine has now.
        weights_dir: the folder below which `update_weights` writes a model that is handed to it; the engine must see it. None takes the
            system's temporary folder.
        seed: of requests without a seed of their own; None draws one from the system.

    Raises:
        ValueError: for a number out of range.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_context: int | None = None,
        vocab_size: int | None = None,
        retries: int = 5,
        retry_delay: float = 1.0,
        version: int = 0,
        weights_dir: str | Path | None = None,
        seed: int | None = None,
    ) -> None:
        if (max_context is not None and max_context < 2) or retries < 0 or not 0 <= retry_delay < math.inf:
            raise ValueError(
                f"max_context must be at least 2, retries and retry_delay not negative, not {max_context}, {retries} and {retry_delay}"
            )
        self.engine = engine
        self.vocab_size = vocab_size
        self.retries, self.retry_delay = retries, retry_delay
        self.counts = {"requests": 0, "retries": 0, "updates": 0, "unknown_logprobs": 0, "no_room": 0}
        self.info: EngineInfo | None = None
        self._max_context = max_context
        self._version = version
        self._weights_dir = weights_dir
        self._seed = secrets.randbits(63) if seed is None else seed
        self._numbers = itertools.count()
        self._name = uuid.uuid4().hex
        self._alone = threading.Lock()  # who connects, updates or restores
        self._counting = threading.Lock()
        self._running: set[str] = set()
        self._aborted: set[str] = set()
        self._updating = self._lost = self._reset_due = False
        self._broken = ""
        self._weights: Path | None = None
        self._written: Path | None = None
        self._warned: set[str] = set()

    # ------------------------------------------------------------------ what a caller sees
    @property
    def version(self) -> int:
        """The optimiser step of the weights.

        Setting it says that somebody else has given the engine other weights: what it kept of the old ones is dropped before the next request.
        """
        return self._version

    @version.setter
    def version(self, value: int) -> None:
        self._reset_due = self._reset_due or value != self._version
        self._version = value

    @property
    def shared(self) -> bool:
        """Whether other processes ask the same engine, so that one of them gives it weights for all."""
        return True

    @property
    def weights(self) -> Path | None:
        """The folder of the weights that the engine was given; None before `update_weights`, or where somebody else gave them."""
        return self._weights

    def adopt(self, folder: str | Path, version: int) -> None:
        """Take over what another process has done to the same engine: it was given these weights, and has dropped its prefix cache.

        Args:
            folder: of the weights; an engine that is lost and comes back gets them from there.
            version: of the weights.
        """
        self._weights, self._version = Path(folder), version
        self._broken, self._lost, self._reset_due = "", False, False

    async def connect(self) -> EngineInfo:
        """Ask the engine what it is, once; `generate` does so by itself.

        Returns:
            What it says; `max_model_len` is what this policy will use.

        Raises:
            EngineError: if it cannot be reached after all tries.
        """
        await self._insist(self._ready)
        assert self.info is not None
        return self.info

    async def generate(
        self, prompt_ids: Sequence[int] | NDArray[np.int64], sampling: Sampling, *, session: Hashable | None = None
    ) -> Generation:
        """Sample one reply.

        Args:
            prompt_ids: the whole prompt, int64 of shape (n,).
            sampling: the settings of this request. It ends at exactly its `stop_token_ids`.
            session: unused; engines find earlier turns by their ids.

        Returns:
            The reply; its log-probabilities are None where the engine's are not those of the sampled distribution, and a NaN stands where the engine
            did not know one. After `abort` what there was, with finish_reason "abort".

        Raises:
            ValueError: if the prompt is empty or has ids that the model does not know, or the engine refuses the settings.
            EngineError: if the engine cannot be reached after all tries, or its answer breaks the contract.
        """
        prompt = np.asarray(prompt_ids, dtype=np.int64).reshape(-1)
        if not len(prompt):
            raise ValueError("the prompt is empty; a model needs at least one id to continue")
        if int(prompt.min()) < 0 or (self.vocab_size is not None and int(prompt.max()) >= self.vocab_size):
            known = "ids from 0 on" if self.vocab_size is None else f"the ids 0 to {self.vocab_size - 1}"
            raise ValueError(f"the prompt has ids from {prompt.min()} to {prompt.max()}, but the model's embedding has {known}")
        ids = prompt.tolist()
        seed = derive_seed(self._seed, next(self._numbers)) if sampling.seed is None else sampling.seed % 2**63
        self.counts["requests"] += 1
        return await self._insist(lambda: self._try(ids, sampling, seed))

    def forget(self, session: Hashable) -> None:
        """Nothing is kept for a session.

        Args:
            session: ignored.
        """

    async def abort(self) -> None:
        """End all requests in flight: each returns what was sampled so far, with finish_reason "abort"."""
        with self._counting:
            running = sorted(self._running)
            self._aborted.update(running)
        if running:
            await self.engine.abort(running)

    async def update_weights(self, source: str | Path | Any, *, version: int | None = None) -> int:
        """Give the engine other weights, and have it drop what it kept of the old ones.

        Waits for the requests in flight; new ones wait until it is done. An engine that is lost and comes back gets them again before its next request.

        Args:
            source: a folder of weights that the engine can read, or a model with `save_pretrained`, which is written into `weights_dir` first.
            version: of the weights; None counts one up.

        Returns:
            The version.

        Raises:
            EngineError: if the engine did not take them. It may have taken a part; no request is answered until an update succeeds.
        """
        version = self._version + 1 if version is None else version
        folder, written = await asyncio.to_thread(self._folder_of, source)
        async with self._turn():
            self._updating = True
            try:
                while self._running:
                    await asyncio.sleep(_POLL)
                try:
                    await self._insist(lambda: self.engine.load(str(folder), version))
                except BaseException as error:
                    self._broken = f"the update of its weights to version {version} failed: {error}"
                    if written is not None:
                        shutil.rmtree(written, ignore_errors=True)
                    raise
                self._broken, self._lost, self._reset_due = "", False, False
                self._version, self._weights = version, folder
                self._written, old = written, self._written
                self.counts["updates"] += 1
                if old is not None:
                    shutil.rmtree(old, ignore_errors=True)
            finally:
                self._updating = False
        return version

    async def reset_prefix_cache(self) -> None:
        """Have the engine drop the keys and values of earlier prompts.

        Raises:
            EngineError: if it did not.
        """
        await self._insist(self.engine.reset_prefix_cache)
        self._reset_due = False

    def close(self) -> None:
        """Let go of the engine, and remove what was written for it."""
        self.engine.close()
        written, self._written = self._written, None
        if written is not None:
            shutil.rmtree(written, ignore_errors=True)
            self._weights = None

    # ------------------------------------------------------------------ tries
    async def _insist(self, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        """Call until the engine answers, or all tries are spent."""

        def failed(down: EngineDown, again: bool) -> None:
            self._lost = self._lost or down.lost
            self.counts["retries"] += again

        return await ask_again(attempt, self.retries, self.retry_delay, failed)

    async def _try(self, ids: list[int], sampling: Sampling, seed: int) -> Generation:
        """One try of a request."""
        while True:
            await self._ready()
            assert self.info is not None and self._max_context is not None
            self._check(sampling, self.info)
            room = min(sampling.max_tokens, self._max_context - len(ids))
            version = self._version
            if room < 1:
                return self._no_room(len(ids), version)
            with self._counted() as request_id:
                if request_id is None:  # an update began meanwhile
                    continue
                try:
                    reply = await self.engine.complete(ids, sampling, room, seed, request_id)
                except ContextFull as full:
                    if full.limit is None or full.limit >= self._max_context:
                        return self._no_room(len(ids), version)
                    self._max_context = full.limit  # it said another length when it was asked
                    continue
                aborted = request_id in self._aborted
            if reply.finish_reason == "abort" and not aborted:
                raise EngineDown("the engine broke the request off for somebody else's sake", lost=False)
            return self._believe(reply, ids, sampling, room, version)

    async def _ready(self) -> None:
        """Wait for an update to end; connect; and bring a lost engine its weights."""
        while self.info is None or self._updating or (self._lost and self._weights is not None) or self._reset_due:
            if self._updating:
                await asyncio.sleep(_POLL)
                continue
            async with self._turn():
                if self.info is None:
                    info = await self.engine.connect()
                    self._max_context = min(self._max_context or info.max_model_len, info.max_model_len)
                    self.info = info
                if self._lost and self._weights is not None:
                    await self.engine.load(str(self._weights), self._version)
                    _log.warning("the engine was lost; it has the weights of version %d again", self._version)
                    self._lost = self._reset_due = False
                if self._reset_due:
                    await self.engine.reset_prefix_cache()
                    self._reset_due = False
        if self._broken:
            raise EngineError(f"the engine's weights are unknown, since {self._broken}. Call update_weights again")

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        while not self._alone.acquire(blocking=False):
            await asyncio.sleep(_POLL)
        try:
            yield
        finally:
            self._alone.release()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[str | None]:
        """Name a request while it is in flight; None while there is an update."""
        with self._counting:
            request_id = None if self._updating else f"{self._name}-{next(self._numbers)}"
            if request_id is not None:
                self._running.add(request_id)
        try:
            yield request_id
        finally:
            with self._counting:
                self._running.discard(request_id or "")
                self._aborted.discard(request_id or "")

    def _folder_of(self, source: Any) -> tuple[Path, Path | None]:
        """The folder of the weights, and what is to be removed when they are not needed any more."""
        if isinstance(source, (str, Path)):
            return Path(source), None
        if not hasattr(source, "save_pretrained"):
            raise TypeError(f"weights come as a folder, or as a model with save_pretrained, not as {type(source).__name__}")
        folder = Path(tempfile.mkdtemp(prefix="agent-gym-weights-", dir=self._weights_dir))
        folder.chmod(0o755)  # the engine may run as somebody else
        try:
            source.save_pretrained(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder, folder

    # ------------------------------------------------------------------ what is believed
    def _check(self, sampling: Sampling, info: EngineInfo) -> None:
        cut = sampling.top_p < 1.0 or sampling.top_k > 0 or sampling.min_p > 0.0
        if info.logprobs == "raw" and (cut or sampling.temperature not in (0.0, 1.0)):
            raise EngineError(
                f"{info.name} tells log-probabilities at temperature 1, whatever is sampled, and temperature={sampling.temperature}, "
                f"top_p={sampling.top_p}, top_k={sampling.top_k}, min_p={sampling.min_p} were asked for; start it with --logprobs-mode processed_logprobs"
            )

    def _no_room(self, length: int, version: int) -> Generation:
        self.counts["no_room"] += 1
        self._warn(
            "room",
            f"a prompt of {length} tokens leaves no room in the engine's context of {self._max_context}: it gets no reply, and its episode ends by "
            f"context_limit. Make the environment with max_observation_tokens below {self._max_context}, so that it sees to its prompts itself",
        )
        return Generation(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32), "context", version)

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, stacklevel=3)

    def _believe(self, reply: Reply, prompt: list[int], sampling: Sampling, room: int, version: int) -> Generation:
        """Check an answer and make a `Generation` of it."""
        assert self.info is not None
        who = self.info.name
        if reply.prompt_ids is not None and list(reply.prompt_ids) != prompt:
            where = next((n for n, pair in enumerate(zip(reply.prompt_ids, prompt, strict=False)) if pair[0] != pair[1]), None)
            where = min(len(prompt), len(reply.prompt_ids)) if where is None else where
            raise EngineError(
                f"{who} did not work on the ids that it was sent: {len(reply.prompt_ids)} came back for {len(prompt)}, different from position {where} "
                "on. Something between tokenises again; send ids to the engine itself"
            )
        ids = reply.token_ids
        if ids is None:
            raise EngineError(
                f"{who} gave no token ids, only text, which would have to be tokenised again. It must know return_token_ids (vLLM 0.10.2 and later), and "
                "nothing in between may drop them"
            )
        top = math.inf if self.vocab_size is None else self.vocab_size
        if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < top for one in ids):
            raise EngineError(f"{who} gave ids that are none of the model's: {list(ids)!r:.100}")
        if len(ids) > room:
            raise EngineError(f"{who} gave {len(ids)} ids where at most {room} were asked for")
        reason = reply.finish_reason
        stops = [place for place, one in enumerate(ids) if one in sampling.stop_token_ids]
        if reason == "stop" and (not stops or stops[0] != len(ids) - 1):
            raise EngineError(
                f"{who} stopped elsewhere than at the first of the stop ids {list(sampling.stop_token_ids)}: it gave {list(ids)[-8:]} at last. Where the "
                "model has other ends of its own, name them in stop_token_ids (the environment's end_of_turn_ids)"
            )
        if stops and stops[0] < len(ids) - 1:
            raise EngineError(f"{who} went on behind the stop id {ids[stops[0]]}")
        if reason == "length":  # a stop id in the last place that there was is a stop
            reason = "stop" if stops else "length" if len(ids) == sampling.max_tokens else "context"
        elif reason not in ("stop", "abort"):
            raise EngineError(f"{who} ended a reply by {reason!r}, which this version does not know")
        return Generation(np.array(ids, dtype=np.int64), self._logprobs(reply, sampling, who), reason, version)

    def _logprobs(self, reply: Reply, sampling: Sampling, who: str) -> NDArray[np.float32] | None:
        """The log-probabilities of an answer; None where they are not those of the sampled distribution."""
        assert self.info is not None and reply.token_ids is not None
        given, count = reply.logprobs, len(reply.token_ids)
        if given is None or len(given) != count:
            what = "no log-probabilities" if given is None else f"{len(given)} log-probabilities"
            raise EngineError(f"{who} gave {what} for {count} ids; there must be one for each")
        if not all(one is None or (isinstance(one, (int, float)) and not isinstance(one, bool)) for one in given):
            raise EngineError(f"{who} gave log-probabilities that are no numbers: {list(given)!r:.100}")
        values = np.array([math.nan if one is None else one for one in given], dtype=np.float32)
        unknown = ~np.isfinite(values)
        if unknown.all() and count > 1:
            raise EngineError(f"{who} knew none of the log-probabilities of {count} ids; the weights have probably diverged")
        if np.any(values[~unknown] > _HIGHEST_LOGPROB):
            raise EngineError(f"{who} gave a log-probability of {values[~unknown].max():g}, above 0")
        if unknown.any():
            self.counts["unknown_logprobs"] += int(unknown.sum())
            self._warn(
                "unknown", f"{who} did not know the log-probability of an id that it sampled; such count as unknown (importance ratio 1)"
            )
            values[unknown] = np.nan
        if self.info.logprobs == "tempered" and (sampling.top_p < 1.0 or sampling.top_k > 0 or sampling.min_p > 0.0):
            self._warn(
                "cut", f"{who} tells log-probabilities without top_p, top_k and min_p, so replies that were sampled with these have none"
            )
            return None
        return values
