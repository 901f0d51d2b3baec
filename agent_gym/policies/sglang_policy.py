"""`SGLangPolicy`: replies by an SGLang server over HTTP, token ids both ways, in the same contract as `VLLMPolicy`.

It speaks SGLang's native API as its documentation describes it (`/generate` with `input_ids`, `/get_model_info`, `/get_server_info`,
`/update_weights_from_disk`, `/flush_cache`, `/pause_generation`, `/continue_generation`, `/abort_request`). It was never run against a real SGLang server:
the tests' server is made from those documents.

What differs from vLLM: the sampled ids stand in `meta_info.output_token_logprobs` beside their log-probabilities; `ignore_eos` would switch off the stop
ids too, so the model's own end ids must be among them (the environments' `end_of_turn_ids` have them); log-probabilities have the temperature
applied and no filter; a seed counts only on a server with `--enable-deterministic-inference`; older servers do not give the prompt's ids back, and then only
its length is compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_gym.policies.base import Sampling
from agent_gym.policies.engine import EngineDown, EngineError, EngineInfo, EnginePolicy, Reply
from agent_gym.policies.engine_http import HttpEngine, NotServed, field_of, filters

__all__ = ["SGLangPolicy", "SGLangServer"]


class SGLangServer(HttpEngine):
    """An SGLang server behind HTTP.

    Args:
        url: "http://127.0.0.1:30000".
        timeout: seconds for one reply.
        load_timeout: seconds for loading weights.
        api_key: where the server has one.

    Raises:
        ValueError: for an address or a number that cannot be used.
    """

    def __init__(self, url: str, *, timeout: float = 600.0, load_timeout: float = 1800.0, api_key: str | None = None) -> None:
        super().__init__(
            url, what="SGLang server", timeout=timeout, load_timeout=load_timeout, api_key=api_key, example="http://127.0.0.1:30000"
        )

    async def connect(self) -> EngineInfo:
        """See what is served.

        Returns:
            Name, length of the context, and what its log-probabilities are.

        Raises:
            EngineError: for a server that does not tell what is needed.
        """
        model = await self.ask("GET", "/get_model_info", None, lambda value: field_of(value, "model_path", str))
        server = await self.ask("GET", "/get_server_info", None, lambda value: value if isinstance(value, Mapping) else {})
        length = next((server[name] for name in ("context_length", "max_req_input_len") if isinstance(server.get(name), int)), None)
        if length is None:
            raise EngineError(f"the {self.what} does not tell the length of its context; start it with --context-length N")
        return EngineInfo(f"sglang {server.get('version', '(of unknown version)')}", model, length, "tempered")

    async def complete(self, prompt: list[int], sampling: Sampling, max_tokens: int, seed: int, request_id: str) -> Reply:
        """See `Engine`."""
        body = {
            "input_ids": prompt,
            "sampling_params": {
                **filters(sampling, -1),
                "max_new_tokens": max_tokens,
                "min_new_tokens": 0,
                "n": 1,
                "sampling_seed": seed % 2**31,  # it is kept in 32 bits
                "ignore_eos": not sampling.stop_token_ids,
                "no_stop_trim": True,
                "skip_special_tokens": False,
            },
            "return_logprob": True,
            "logprob_start_len": -1,
            "top_logprobs_num": 0,
            "return_prompt_token_ids": True,
            "stream": False,
            "rid": request_id,
        }
        return await self.reply("/generate", body, lambda value: _read_generation(value, len(prompt)), request_id, [request_id])

    async def abort(self, request_ids: Sequence[str]) -> None:
        """See `Engine`."""
        for name in self.names_of(request_ids):
            await self.ask("POST", "/abort_request", {"rid": name}, lambda value: None, raw=True)

    async def load(self, folder: str, version: int) -> None:
        """Pause, reload the weights from a folder, drop the cache, and go on.

        Args:
            folder: where the server sees a saved model.
            version: the optimiser step of the weights.

        Raises:
            EngineError: where the server could not load them.
        """
        await self._control("/pause_generation", {"mode": "retract"})  # the requests of others begin again from their ids
        try:
            body = {"model_path": folder, "weight_version": str(version), "flush_cache": True, "abort_all_requests": False}
            answer = await self.ask("POST", "/update_weights_from_disk", body, lambda value: value, slow=True)
            if not isinstance(answer, Mapping) or answer.get("success") is not True:
                told = answer.get("message") if isinstance(answer, Mapping) else answer
                raise EngineError(f"the {self.what} did not load {folder}: {told}")
            await self.reset_prefix_cache()
        finally:
            await self._control("/continue_generation", {})

    async def reset_prefix_cache(self) -> None:
        """Drop the radix cache.

        Raises:
            EngineDown: where the server could not; another try may help.
        """

        def failed(_: Any) -> None:
            """It answers in words."""

        try:
            await self.ask("POST", "/flush_cache", {}, failed, slow=True, raw=True)
        except ValueError as error:  # 400: requests are running
            raise EngineDown(f"the {self.what} could not drop its cache: {error}", lost=False) from error

    async def _control(self, target: str, body: Mapping[str, Any]) -> None:
        try:
            await self.ask("POST", target, body, lambda value: None, slow=True, raw=True)
        except NotServed as error:
            raise EngineError(f"{error}; it is too old to be paused for an update") from error


def _read_generation(value: Any, sent: int) -> Reply:
    meta = field_of(value, "meta_info", dict)
    pairs = meta.get("output_token_logprobs")
    prompt = value.get("prompt_token_ids")
    if prompt is None and field_of(meta, "prompt_tokens", int) != sent:
        raise ValueError(f"{meta['prompt_tokens']} prompt tokens for {sent} that were sent")
    reason = meta.get("finish_reason")
    return Reply(
        token_ids=None if pairs is None else [one[1] for one in pairs],
        logprobs=None if pairs is None else [one[0] for one in pairs],
        finish_reason=reason.get("type") if isinstance(reason, Mapping) else reason,
        prompt_ids=prompt,
    )


class SGLangPolicy(EnginePolicy):
    """Samples by SGLang. Written from its documentation, and never run against a real server (see the module).

    Args:
        url: of the server.
        timeout: seconds for one reply.
        load_timeout: seconds for loading weights.
        api_key: where the server has one.
        max_context: see `EnginePolicy`.
        vocab_size: see `EnginePolicy`.
        retries: see `EnginePolicy`.
        retry_delay: see `EnginePolicy`.
        version: see `EnginePolicy`.
        weights_dir: see `EnginePolicy`.
        seed: see `EnginePolicy`.

    Raises:
        ValueError: for an address or a number that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 600.0,
        load_timeout: float = 1800.0,
        api_key: str | None = None,
        max_context: int | None = None,
        vocab_size: int | None = None,
        retries: int = 5,
        retry_delay: float = 1.0,
        version: int = 0,
        weights_dir: str | Path | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            SGLangServer(url, timeout=timeout, load_timeout=load_timeout, api_key=api_key),
            max_context=max_context,
            vocab_size=vocab_size,
            retries=retries,
            retry_delay=retry_delay,
            version=version,
            weights_dir=weights_dir,
            seed=seed,
        )
