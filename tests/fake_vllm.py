"""A stand-in for the `vllm` module: the names and signatures of vLLM 0.30 that `VLLMColocate` uses, a tiny model behind. A fake, and no proof about vLLM."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from agent_gym.policies import Sampling, TransformersPolicy

BLOCK = 32


class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass
class SamplingParams:
    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    logprobs: int | None = None
    detokenize: bool = True
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE


@dataclass
class AsyncEngineArgs:
    model: str
    logprobs_mode: str = "raw_logprobs"
    enable_prefix_caching: bool | None = None
    generation_config: str = "auto"
    max_model_len: int | None = None
    dtype: str = "auto"
    enforce_eager: bool = False


def TokensPrompt(prompt_token_ids: list[int]) -> dict[str, Any]:
    return {"prompt_token_ids": prompt_token_ids}


class VLLMClientError(Exception):
    """As in 0.30: no `ValueError`."""


class VLLMValidationError(VLLMClientError):
    pass


@dataclass
class AsyncLLM:
    args: AsyncEngineArgs
    policy: TransformersPolicy
    calls: list[str] = field(default_factory=list)
    running: dict[str, asyncio.Event] = field(default_factory=dict)
    seen: list[list[int]] = field(default_factory=list)
    old: TransformersPolicy | None = None
    loop: Any = None
    overflows: int = 0

    @classmethod
    def from_engine_args(cls, args: AsyncEngineArgs) -> AsyncLLM:
        assert args.logprobs_mode == "processed_logprobs" and args.enable_prefix_caching and args.generation_config == "vllm"
        engine = cls(args, TransformersPolicy(AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval(), pad_id=0))
        _MADE.append(engine)
        return engine

    @property
    def vllm_config(self) -> Any:
        own = self.policy.max_context
        return SimpleNamespace(model_config=SimpleNamespace(max_model_len=min(self.args.max_model_len or own, own)))

    async def generate(self, prompt: dict[str, Any], params: SamplingParams, request_id: str) -> AsyncIterator[Any]:
        assert self.loop in (None, asyncio.get_running_loop()), "an AsyncLLM belongs to one event loop"
        self.loop = asyncio.get_running_loop()
        ids, limit = prompt["prompt_token_ids"], self.vllm_config.model_config.max_model_len
        assert params.max_tokens is not None and params.seed is not None and params.ignore_eos and not params.detokenize and params.n == 1
        assert params.logprobs == 0 and params.output_kind is RequestOutputKind.FINAL_ONLY and request_id not in self.running
        if len(ids) + params.max_tokens > limit:
            self.overflows += 1
            raise VLLMValidationError(f"The decoder prompt (length {len(ids)}) is longer than the maximum model length of {limit}.")
        if max(ids) >= self.policy.model.config.vocab_size:
            raise VLLMValidationError(f"Token id {max(ids)} is out of vocabulary")
        stale = self.old is not None and any(ids[:BLOCK] == one[:BLOCK] for one in self.seen if len(one) >= BLOCK)
        policy = self.old if stale and self.old is not None else self.policy
        self.seen.append(ids)
        self.running[request_id] = aborted = asyncio.Event()
        try:
            sampling = Sampling(
                temperature=params.temperature, top_p=params.top_p, top_k=params.top_k, min_p=params.min_p, max_tokens=params.max_tokens,
                seed=params.seed, stop_token_ids=tuple(params.stop_token_ids or ()),
            )  # fmt: skip
            work, stop = asyncio.ensure_future(policy.generate(ids, sampling)), asyncio.ensure_future(aborted.wait())
            try:
                await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
                if not work.done():
                    work.cancel()
            if aborted.is_set():
                found, told, reason = [], [], "abort"
            else:
                generation = await work
                found, reason = generation.token_ids.tolist(), generation.finish_reason
                told = [{one: SimpleNamespace(logprob=float(p))} for one, p in zip(found, generation.logprobs, strict=True)]
            output = SimpleNamespace(index=0, text="", token_ids=found, logprobs=told, finish_reason=reason, stop_reason=None)
            yield SimpleNamespace(request_id=request_id, prompt_token_ids=list(ids), outputs=[output], finished=True)
        finally:
            del self.running[request_id]

    async def abort(self, request_id: str | list[str]) -> None:
        for one in [request_id] if isinstance(request_id, str) else request_id:
            self.running[one].set()

    async def pause_generation(self, *, mode: str = "abort") -> None:
        self.calls.append(f"pause {mode}")
        while self.running:
            await asyncio.sleep(0.005)

    async def resume_generation(self) -> None:
        self.calls.append("resume")

    async def collective_rpc(self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None) -> list[Any]:
        assert method == "reload_weights"
        self.calls.append(method)
        self.old = self.policy
        self.policy = TransformersPolicy(AutoModelForCausalLM.from_pretrained(kwargs["weights_path"], dtype=torch.float32).eval(), pad_id=0)
        return [None]

    async def reset_prefix_cache(self) -> bool:
        self.calls.append("reset_prefix_cache")
        if self.running:
            return False
        self.seen.clear()
        return True

    def shutdown(self) -> None:
        self.calls.append("shutdown")
        self.policy.close()
        if self.old is not None:
            self.old.close()


_MADE: list[AsyncLLM] = []


def install(monkeypatch: pytest.MonkeyPatch, version: str = "0.30.0") -> list[AsyncLLM]:
    """Put it where `import vllm` finds it.

    Returns:
        The engines that are made, as they are.
    """
    _MADE.clear()
    parts: dict[str, dict[str, Any]] = {
        "vllm": {"__version__": version},
        "vllm.engine": {},
        "vllm.engine.arg_utils": {"AsyncEngineArgs": AsyncEngineArgs},
        "vllm.v1": {},
        "vllm.v1.engine": {},
        "vllm.v1.engine.async_llm": {"AsyncLLM": AsyncLLM},
        "vllm.inputs": {"TokensPrompt": TokensPrompt},
        "vllm.sampling_params": {"SamplingParams": SamplingParams, "RequestOutputKind": RequestOutputKind},
    }
    for name, members in parts.items():
        module = ModuleType(name)
        module.__dict__.update(members)
        module.__path__ = []  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    return _MADE
