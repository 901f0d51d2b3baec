"""`VLLMColocate`: vLLM's `AsyncLLM` in this process, behind the same contract as a server.

The engine lives on an event loop of its own in a background thread, since it belongs to the loop of its first request, and each `run_rows` has another
one. vLLM computes in a process below; weights reach it through a folder, and its prefix cache is dropped after each.

Written for vLLM 0.28 to 0.30 (what goes with TRL 1.16 and torch 2.13). `make test` runs it against a stand-in for the `vllm` module, which is no proof of
anything about vLLM; `make test-vllm` runs it on the real engine on a CPU. It was not run on a GPU (docs/vllm.md).
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from agent_gym._background import BackgroundLoop
from agent_gym.policies.base import Sampling
from agent_gym.policies.engine import ContextFull, EngineDown, EngineError, EngineInfo, Reply
from agent_gym.policies.engine_http import filters
from agent_gym.policies.vllm_policy import check_temperature

__all__ = ["VLLMColocate"]

_Result = TypeVar("_Result")
_KNOWN = ((0, 28), (0, 31))
_REFUSALS = {"ValueError", "VLLMClientError"}
"""Kinds of errors by which vLLM refuses a request: its validation error was a `ValueError` once, and is none in 0.30."""
_SETTLE = 5.0
_DEATHS = {"EngineDeadError", "EngineGenerateError"}


class VLLMColocate:
    """An engine in this process. It is started by the first request.

    Args:
        model: a folder or a Hugging Face name.
        max_context: tokens of prompt and reply; None takes what the model says.
        engine_kwargs: of vLLM's `AsyncEngineArgs`, over what is set here.

    Raises:
        ImportError: if vllm is not installed.
    """

    def __init__(self, model: str, *, max_context: int | None = None, engine_kwargs: Mapping[str, Any] = MappingProxyType({})) -> None:
        try:
            import vllm
        except ImportError as error:
            raise ImportError(
                'VLLMPolicy(mode="colocate") needs vLLM in this process: pip install "agentr1-gym[vllm]" (Linux with a GPU). mode="server" talks to a server '
                f"elsewhere and needs nothing ({error})"
            ) from error
        self.version = str(getattr(vllm, "__version__", "0"))
        numbers = tuple(int(part) if part.isdigit() else 0 for part in self.version.split(".")[:2])
        if not _KNOWN[0] <= numbers < _KNOWN[1]:
            warnings.warn(f"vllm {self.version}: this was written for 0.28 to 0.30", stacklevel=2)
        self.model = model
        self._settings: dict[str, Any] = {
            "model": model,
            "logprobs_mode": "processed_logprobs",
            "enable_prefix_caching": True,
            "generation_config": "vllm",  # no settings of the model's own
            **({} if max_context is None else {"max_model_len": max_context}),
            **engine_kwargs,
        }
        if self._settings["logprobs_mode"] != "processed_logprobs":
            raise ValueError(
                f"logprobs_mode={self._settings['logprobs_mode']!r}: log-probabilities must be those of the sampled distribution"
            )
        self._loop = BackgroundLoop()
        self._engine: Any = None

    async def _on_loop(self, coroutine: Coroutine[Any, Any, _Result]) -> _Result:
        """Run on the engine's own loop; a cancelled caller cancels it there too."""
        result: _Result = await asyncio.wrap_future(self._loop.submit(coroutine))
        return result

    async def connect(self) -> EngineInfo:
        """Start the engine.

        Returns:
            What is served.
        """
        return await self._on_loop(self._start())

    async def _start(self) -> EngineInfo:
        if self._engine is None:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            self._engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**self._settings))
        return EngineInfo(f"vllm {self.version}", self.model, int(self._engine.vllm_config.model_config.max_model_len))

    async def complete(self, prompt: list[int], sampling: Sampling, max_tokens: int, seed: int, request_id: str) -> Reply:
        """See `Engine`."""
        check_temperature(sampling)
        return await self._on_loop(self._complete(prompt, sampling, max_tokens, seed, request_id))

    async def _complete(self, prompt: list[int], sampling: Sampling, max_tokens: int, seed: int, request_id: str) -> Reply:
        from vllm.inputs import TokensPrompt
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        params = SamplingParams(
            n=1,
            max_tokens=max_tokens,
            seed=seed,
            logprobs=0,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **filters(sampling, 0),
        )
        last = None
        try:
            async for output in self._engine.generate(TokensPrompt(prompt_token_ids=prompt), params, request_id):
                last = output
        except Exception as error:
            kinds = {kind.__name__ for kind in type(error).__mro__}
            if kinds & _REFUSALS:
                if "longer than" in str(error) or "context length" in str(error):
                    raise ContextFull from error
                raise ValueError(f"vLLM refused the request: {error}") from error
            if not kinds & _DEATHS:
                raise
            raise EngineError(f"vLLM's engine in this process has ended: {error}. It cannot be started again; see its own log") from error
        if last is None or len(last.outputs) != 1:
            raise EngineError(f"vLLM gave {0 if last is None else len(last.outputs)} outputs for one request")
        (only,) = last.outputs
        ids = list(only.token_ids)
        told = None
        if only.logprobs is not None:
            told = [None if one is None or token not in one else one[token].logprob for token, one in zip(ids, only.logprobs, strict=False)]
        return Reply(ids, told, only.finish_reason, list(last.prompt_token_ids))

    async def abort(self, request_ids: Sequence[str]) -> None:
        """See `Engine`."""
        await self._on_loop(self._engine.abort(list(request_ids)))

    async def load(self, folder: str, version: int) -> None:
        """Pause behind the requests in flight, reload the weights from a folder, drop the prefix cache, and go on.

        Args:
            folder: of a saved model.
            version: the optimiser step of the weights.
        """
        await self.connect()
        await self._on_loop(self._load(folder))

    async def _load(self, folder: str) -> None:
        engine = self._engine
        await engine.pause_generation(mode="wait")
        try:
            await engine.collective_rpc("reload_weights", kwargs={"weights_path": folder})
            await self._reset()
        finally:
            await engine.resume_generation()

    async def reset_prefix_cache(self) -> None:
        """See `Engine`."""
        await self.connect()
        await self._on_loop(self._reset())

    async def _reset(self) -> None:
        if await self._engine.reset_prefix_cache() is False:
            raise EngineDown("vLLM could not drop its prefix cache, since requests hold it", lost=False)

    def close(self) -> None:
        """End the engine."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()
            self._loop.submit(_settle()).result()
            self._loop.abandon()


async def _settle() -> None:
    """Let the engine's own tasks on this loop end: it cancels them without waiting for them."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_SETTLE)
