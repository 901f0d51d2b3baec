"""`TransformersPolicy`: a model of transformers in this process, many episodes at once.

`generate` only puts a request into a queue. One driver per event loop takes what has gathered there, hands it to the batch engine
(`decoding.py`) in a worker thread and resolves the answers, so environments go on while the model computes, and a slow environment
holds nobody.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import warnings
import weakref
from collections import deque
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agent_gym.policies.base import Sampling, derive_seed
from agent_gym.policies.decoding import Decoder, Request
from agent_gym.trajectory import Generation

__all__ = ["TransformersPolicy"]


class TransformersPolicy:
    """Samples from a causal language model in this process.

    Log-probabilities are those of the sampled distribution (temperature and filters applied; at temperature 0 those at temperature 1) and
    agree with a plain forward of the model. The model may be in training mode and its weights may change between calls: a written or
    replaced weight, a new `version` and `reset_cache()` each drop what was kept of earlier turns.

    Args:
        model: a causal language model of transformers, on its device.
        tokenizer: gives the pad id; only needed where `pad_id` is not given.
        pad_id: an id that may stand in holes of a batch; it is never attended to.
        max_batch_size: the most requests in flight; more wait.
        max_prefill_tokens: the most positions of one prefill pass.
        max_context: the longest prompt with reply, in tokens; None takes the model's `max_position_embeddings`.
        max_cache_bytes: memory for the caches of waiting episodes.
        num_threads: torch threads of the worker; None takes the calling thread's number.
        seed: of requests without a seed of their own; None draws one from the system.

    Raises:
        ValueError: if a size is not positive.
    """

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Any = None,
        pad_id: int | None = None,
        max_batch_size: int = 256,
        max_prefill_tokens: int = 16384,
        max_context: int | None = None,
        max_cache_bytes: int = 4 * 2**30,
        num_threads: int | None = None,
        seed: int | None = None,
    ) -> None:
        if max_batch_size < 1 or max_prefill_tokens < 1:
            raise ValueError(f"max_batch_size and max_prefill_tokens must be positive, not {max_batch_size} and {max_prefill_tokens}")
        self.model = model
        self._vocab = int(model.get_input_embeddings().weight.shape[0])
        pad = pad_id if pad_id is not None else getattr(tokenizer, "pad_token_id", None)
        self._drivers: dict[asyncio.AbstractEventLoop, _Driver] = {}
        self._decoder_settings = {
            "pad_id": pad if pad is not None and 0 <= pad < self._vocab else 0,
            "max_prefill_tokens": max_prefill_tokens,
            "max_cache_bytes": max_cache_bytes,
        }
        self.max_batch_size = max_batch_size
        self.num_threads = num_threads
        self._version = 0
        config = model.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        self.max_context = max_context if max_context is not None else (int(limit) if limit else 2**31)
        self._warned = False
        self._seed = secrets.randbits(63) if seed is None else seed
        self._numbers = itertools.count()
        self._executor: ThreadPoolExecutor | None = None

    @property
    def version(self) -> int:
        """The optimiser step of the weights. Setting another drops the caches of earlier turns."""
        return self._version

    @version.setter
    def version(self, value: int) -> None:
        if value != self._version:
            self.reset_cache()
        self._version = value

    @property
    def counts(self) -> dict[str, int]:
        """Tokens prefilled, reused from earlier turns and decoded, forward passes and rounds, since the start."""
        total: dict[str, int] = {}
        for driver in list(self._drivers.values()):
            for key, value in driver.decoder.counts.items():
                total[key] = total.get(key, 0) + value
        return total

    async def generate(
        self, prompt_ids: Sequence[int] | NDArray[np.int64], sampling: Sampling, *, session: Hashable | None = None
    ) -> Generation:
        """Sample one reply, together with all others that are awaited now.

        Args:
            prompt_ids: the whole prompt, int64 of shape (n,).
            sampling: the settings of this request.
            session: names the episode; its cache is kept for the next turn until `forget(session)`.

        Returns:
            The reply. Where prompt and `max_tokens` exceed the model's positions, the reply is cut at them; a prompt that leaves no room
            gets an empty reply; both have the finish_reason "context". The first of the empty ones is warned of.

        Raises:
            ValueError: if the prompt is empty or has ids outside the model's embedding.
        """
        prompt = np.asarray(prompt_ids, dtype=np.int64).reshape(-1)
        if not len(prompt):
            raise ValueError("the prompt is empty; a model needs at least one id to continue")
        if int(prompt.min()) < 0 or int(prompt.max()) >= self._vocab:
            raise ValueError(
                f"the prompt has ids from {prompt.min()} to {prompt.max()}, but the model's embedding has the ids 0 to {self._vocab - 1}"
            )
        room = min(sampling.max_tokens, self.max_context - len(prompt))
        if room < 1:
            self._warn_of_length(len(prompt))
            return Generation(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32), "context", self._version)
        seed = sampling.seed if sampling.seed is not None else derive_seed(self._seed, next(self._numbers))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Generation] = loop.create_future()
        driver = self._drivers.get(loop) or self._new_driver(loop)
        driver.submit(Request(prompt, sampling, seed, session, room, future.cancelled), future)
        return await future

    def _warn_of_length(self, length: int) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"a prompt of {length} tokens leaves no room in the model's {self.max_context} positions: it gets no reply, and its episode ends by "
                f"context_limit. Make the environment with max_observation_tokens below {self.max_context}, so that it sees to its prompts itself",
                stacklevel=3,
            )

    def forget(self, session: Hashable) -> None:
        """Drop the cache of a session; unknown sessions are ignored.

        Args:
            session: as of `generate`.
        """
        for driver in list(self._drivers.values()):
            driver.decoder.forget(session)

    def reset_cache(self) -> None:
        """Drop the caches of all sessions, for weights that changed in a way that torch does not count."""
        for driver in list(self._drivers.values()):
            driver.decoder.reset_cache()

    def close(self) -> None:
        """Drop all caches and end the worker thread; a later `generate` starts a new one."""
        self._drivers.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None

    def _new_driver(self, loop: asyncio.AbstractEventLoop) -> _Driver:
        """Make the driver of an event loop; what a closed loop's engine has allocated and found out is used again."""
        decoder = None
        for old in [old for old in self._drivers if old.is_closed()]:
            decoder = self._drivers.pop(old).decoder
        if decoder is None:
            decoder = Decoder(self.model, **self._decoder_settings)
        else:
            self.worker().submit(decoder.abort)
        driver = self._drivers[loop] = _Driver(self, decoder)
        return driver

    def worker(self) -> ThreadPoolExecutor:
        """Return the one thread in which the model runs.

        Returns:
            An executor of one thread; begun by the first call, and the same from then on.
        """
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="agent-gym-policy")
        return self._executor


class _Driver:
    """The queue and the rounds of one event loop."""

    def __init__(self, policy: TransformersPolicy, decoder: Decoder) -> None:
        self._policy = weakref.ref(policy)
        self.decoder = decoder
        self.waiting: deque[Request] = deque()
        self.futures: dict[int, tuple[Request, asyncio.Future[Generation]]] = {}
        self.task: asyncio.Task[None] | None = None

    def submit(self, request: Request, future: asyncio.Future[Generation]) -> None:
        """Queue a request and see that a driver runs."""
        self.waiting.append(request)
        self.futures[id(request)] = (request, future)
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._run())

    async def _settle(self) -> None:
        """Let every task that can run do so, until no new request comes."""
        quiet, seen = 0, -1
        while quiet < 3:
            quiet = quiet + 1 if len(self.waiting) == seen else 0
            seen = len(self.waiting)
            await asyncio.sleep(0)

    async def _run(self) -> None:
        policy = self._policy()
        if policy is None:
            return
        loop = asyncio.get_running_loop()
        decoder = self.decoder
        decoder.stop = False
        try:
            while self.waiting or decoder.live:
                await self._settle()
                new: list[Request] = []
                while self.waiting and decoder.live + len(new) < policy.max_batch_size:
                    request = self.waiting.popleft()
                    if request.cancelled():
                        self.futures.pop(id(request), None)
                    else:
                        new.append(request)
                threads = policy.num_threads or torch.get_num_threads()
                for request in await loop.run_in_executor(policy.worker(), self._round, new, threads, policy.max_batch_size):
                    _, future = self.futures.pop(id(request))
                    if not future.done():
                        assert request.tokens is not None
                        future.set_result(Generation(request.tokens, request.logprobs, request.finish_reason, policy.version))
                for key in [key for key, (_, future) in self.futures.items() if future.cancelled()]:
                    del self.futures[key]
        except BaseException as error:
            decoder.stop = True
            policy.worker().submit(decoder.abort)
            waiting, self.futures = list(self.futures.values()), {}
            self.waiting.clear()
            for _, future in waiting:
                if not future.done():
                    if isinstance(error, Exception):
                        future.set_exception(error)
                    else:
                        future.cancel()
            if not isinstance(error, Exception):
                raise

    def _round(self, new: list[Request], threads: int, most: int) -> list[Request]:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        return self.decoder.round(new, lambda: len(self.waiting) if self.decoder.live < most else 0)
