"""`VLLMPolicy`: replies by vLLM, in this process or behind HTTP, token ids both ways.

`mode="server"` talks to `vllm serve` and never imports vllm. It posts ids to `/v1/completions` and takes ids from the answer, which works with every
version since 0.10.2 and needs no special switch. Loading weights, dropping the prefix cache and aborting need `VLLM_SERVER_DEV_MODE=1`, whose addresses
have no authorisation: bind such a server to 127.0.0.1. docs/vllm.md has the serve line, and says what was run.

What is known of the server and is met here: defaults of the model's `generation_config.json` are sampled with unless each setting is told; a stop string
cuts text and not ids, so there are none; the end-of-sequence id of the model would stop a reply beside the ids that were asked for, so `ignore_eos` is
set and the ids say it all; `n` above 1 is never asked for; too many `max_tokens` are answered by 400; without `--logprobs-mode processed_logprobs` the
log-probabilities are those of temperature 1, which is found out at the first request by sampling the likeliest of one token.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agent_gym.policies.base import Sampling
from agent_gym.policies.engine import Engine, EngineDown, EngineError, EngineInfo, EnginePolicy, Reply
from agent_gym.policies.engine_http import HttpEngine, NotServed, field_of, filters

__all__ = ["PromptScores", "VLLMPolicy", "VLLMServer"]

_LOWEST_TEMPERATURE = 0.01
"""vLLM silently takes this for anything lower but 0."""
_CERTAIN = -1e-3
_HIGHEST_LOGPROB = 1e-3
_IMPOSSIBLE = -9999.0
"""What the server writes for minus infinity, which JSON has no word for."""
_DEV_MODE = (
    "start the server with VLLM_SERVER_DEV_MODE=1 in its environment (and bound to 127.0.0.1: these addresses have no authorisation)"
)


class PromptScores(NamedTuple):
    """What a server says of the ids of a prompt, each of shape (n - 1,): of those behind the first.

    Attributes:
        logprobs: shape (n - 1,), float32, at temperature 1; NaN where the server knows none, or says that the id is impossible (-9999).
        likeliest: shape (n - 1,), bool: no id is likelier.
    """

    logprobs: NDArray[np.float32]
    likeliest: NDArray[np.bool_]


class VLLMServer(HttpEngine):
    """`vllm serve` behind HTTP.

    Args:
        url: "http://127.0.0.1:8000", with or without `/v1`.
        model: the name that it is served under; None takes the first.
        timeout: seconds for one reply.
        load_timeout: seconds for loading weights.
        api_key: where the server has one.

    Raises:
        ValueError: for an address or a number that cannot be used.
    """

    def __init__(
        self, url: str, *, model: str | None = None, timeout: float = 600.0, load_timeout: float = 1800.0, api_key: str | None = None
    ) -> None:
        super().__init__(
            url, what="vLLM server", timeout=timeout, load_timeout=load_timeout, api_key=api_key, example="http://127.0.0.1:8000"
        )
        self.model = model

    async def connect(self) -> EngineInfo:
        """See what is served, and of which distribution its log-probabilities are.

        Returns:
            Name, length of the context, and what its log-probabilities are.

        Raises:
            EngineError: for a server of another model, or one that does not tell what is needed.
        """
        served = await self.ask("GET", "/v1/models", None, lambda value: field_of(value, "data", list))
        known = {field_of(one, "id", str): one for one in served}
        if not known or (self.model is not None and self.model not in known):
            raise EngineError(f"the {self.what} serves {', '.join(known) or 'nothing'}, not {self.model}; give one of its names (model=)")
        chosen = next(iter(known)) if self.model is None else self.model
        lengths = [known[chosen].get("max_model_len"), *(one.get("max_model_len") for one in served)]  # an adapter's entry has none
        length = next((one for one in lengths if isinstance(one, int) and one > 1), None)
        if length is None:
            raise EngineError(f"the {self.what} does not tell max_model_len at /v1/models; is it vLLM, and nothing in between?")
        try:
            version = await self.ask("GET", "/version", None, lambda value: field_of(value, "version", str))
        except NotServed:
            version = "(of unknown version)"
        self.model = chosen
        likeliest = Sampling(temperature=1.0, top_k=1, max_tokens=1)
        probe = await self.complete([0], likeliest, 1, 0, f"agent-gym-probe-{uuid.uuid4().hex}")
        told = probe.logprobs[0] if probe.logprobs else None
        raw = isinstance(told, (int, float)) and told < _CERTAIN  # among one token, the likeliest has probability 1
        return EngineInfo(f"vllm {version}", chosen, length, "raw" if raw else "processed")

    async def complete(self, prompt: list[int], sampling: Sampling, max_tokens: int, seed: int, request_id: str) -> Reply:
        """See `Engine`."""
        check_temperature(sampling)
        body = {
            "model": self.model,
            "prompt": prompt,
            "n": 1,
            "max_tokens": max_tokens,
            "seed": seed,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "ignore_eos": True,
            "min_tokens": 0,
            "add_special_tokens": False,
            "skip_special_tokens": False,
            "stream": False,
            "request_id": request_id,
            **filters(sampling, 0),
        }
        return await self.reply("/v1/completions", body, _read_completion, request_id, [f"cmpl-{request_id}-0"])

    async def prompt_scores(self, prompt: list[int], request_id: str) -> PromptScores:
        """Ask how likely each id of a prompt is behind those before it, by `prompt_logprobs`.

        They are log-softmax of the logits whatever the temperature of the request is. The server samples one id too, which is dropped, so the prompt may be
        one id shorter than its context at most.

        Args:
            prompt: at least two ids.
            request_id: unique.

        Returns:
            The scores.

        Raises:
            EngineDown: if no answer came.
            EngineError: if the answer is of other ids, or is none of log-probabilities.
            ContextFull: if the prompt does not fit.
            ValueError: if the server refuses an id.
        """
        body = {
            "model": self.model,
            "prompt": prompt,
            "n": 1,
            "max_tokens": 1,
            "seed": 0,
            "prompt_logprobs": 0,
            "return_token_ids": True,
            "add_special_tokens": False,
            "stream": False,
            "request_id": request_id,
            **filters(Sampling(temperature=0.0), 0),
        }
        return await self.ask("POST", "/v1/completions", body, lambda value: _read_scores(value, prompt))

    async def tokenize(self, text: str) -> list[int]:
        """Have the server encode a text, without the special tokens that a tokenizer adds.

        Args:
            text: any.

        Returns:
            The ids.

        Raises:
            NotServed: if it has no such address.
            EngineError: if it cannot be used otherwise.
        """
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        return await self.ask("POST", "/tokenize", body, lambda value: list(field_of(value, "tokens", list)))

    async def abort(self, request_ids: Sequence[str]) -> None:
        """End requests; what was sampled comes back only from a server in development mode.

        Args:
            request_ids: as given to `complete`.
        """
        names = self.names_of(request_ids)
        if not names:  # an empty list would end the requests of everybody
            return
        try:
            await self.ask("POST", "/abort_requests", {"request_ids": names}, lambda value: None, raw=True)
        except NotServed:
            self.hang_up(request_ids)

    async def load(self, folder: str, version: int) -> None:
        """Pause behind the requests in flight, reload the weights from a folder, drop the prefix cache, and go on.

        Args:
            folder: where the server sees a saved model.
            version: the optimiser step of the weights.
        """
        await self._control("/pause?mode=wait", None)
        try:
            await self._control("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
            await self.reset_prefix_cache()
        finally:
            await self._control("/resume", None)

    async def reset_prefix_cache(self) -> None:
        """Drop the prefix cache: keys and values that old weights made are otherwise read under new ones.

        Raises:
            EngineDown: where requests of somebody hold it; another try may help.
        """
        answer = await self._control("/reset_prefix_cache", None)
        if isinstance(answer, Mapping) and answer.get("success") is False:
            raise EngineDown(f"the {self.what} could not drop its prefix cache, since requests of somebody hold it", lost=False)

    async def _control(self, target: str, body: Mapping[str, Any] | None) -> Any:
        try:
            return await self.ask("POST", target, {} if body is None else body, lambda value: value, slow=True, raw=True)
        except NotServed as error:
            raise EngineError(f"{error}; {_DEV_MODE}") from error


def check_temperature(sampling: Sampling) -> None:
    if 0.0 < sampling.temperature < _LOWEST_TEMPERATURE:
        raise ValueError(
            f"temperature={sampling.temperature}: vLLM samples at {_LOWEST_TEMPERATURE} at the lowest; take 0 for the likeliest ids"
        )


def _read_completion(value: Any) -> Reply:
    choices = field_of(value, "choices", list)
    if len(choices) != 1:
        raise ValueError(f"{len(choices)} choices for one request")
    choice = choices[0]
    told = choice.get("logprobs")
    return Reply(
        token_ids=_list(choice.get("token_ids"), "token_ids"),
        logprobs=None if told is None else _list(told.get("token_logprobs"), "token_logprobs"),
        finish_reason=choice.get("finish_reason"),
        prompt_ids=field_of(choice, "prompt_token_ids", list) if choice.get("token_ids") is not None else None,
    )


def _read_scores(value: Any, prompt: Sequence[int]) -> PromptScores:
    (choice,) = field_of(value, "choices", list)
    echo = choice.get("prompt_token_ids")
    if echo is not None and echo != list(prompt):
        raise ValueError(f"it worked on {len(echo)} ids that are not the {len(prompt)} that it was sent; something between tokenises again")
    entries = _list(choice.get("prompt_logprobs"), "prompt_logprobs")
    if entries is None or len(entries) != len(prompt):
        raise ValueError(f"prompt_logprobs has {0 if entries is None else len(entries)} entries for {len(prompt)} ids")
    logprobs = np.full(len(prompt) - 1, np.nan, dtype=np.float32)
    likeliest = np.zeros(len(prompt) - 1, dtype=np.bool_)
    for place, (entry, token) in enumerate(zip(entries[1:], prompt[1:], strict=True)):
        told = field_of(entry, str(token), Mapping)
        number = told["logprob"]
        if (
            isinstance(number, bool)
            or not isinstance(number, (int, float, type(None)))
            or (number is not None and number > _HIGHEST_LOGPROB)
        ):
            raise ValueError(
                f"the log-probability of id {token} at position {place + 1} is {number!r}; the server needs a --logprobs-mode of logprobs"
            )
        if number is not None and number > _IMPOSSIBLE:
            logprobs[place] = number
        likeliest[place] = told.get("rank") == 1
    return PromptScores(logprobs, likeliest)


def _list(value: Any, name: str) -> list[Any] | None:
    if value is None or isinstance(value, list):
        return value
    raise ValueError(f"{name!r} should be a list, not {value!r:.100}")


class VLLMPolicy(EnginePolicy):
    """Samples by vLLM.

    Both modes keep the contract on the real engine on a CPU (`make test-vllm`, vLLM 0.30); neither was run on a GPU. See docs/vllm.md for what has been run.

    Args:
        url: of the server; "server" only.
        mode: "server" (HTTP, no vllm in this process) or "colocate" (an engine in this process, extra `vllm`).
        model: the name under which a server knows its model, None for its first; with "colocate" the folder or Hugging Face name of the weights.
        timeout: seconds for one reply of a server.
        load_timeout: seconds for loading weights into a server.
        api_key: of a server that has one.
        engine_kwargs: of vLLM's `AsyncEngineArgs`; "colocate" only.
        max_context: see `EnginePolicy`.
        vocab_size: see `EnginePolicy`.
        retries: see `EnginePolicy`.
        retry_delay: see `EnginePolicy`.
        version: see `EnginePolicy`.
        weights_dir: see `EnginePolicy`.
        seed: see `EnginePolicy`.

    Raises:
        ValueError: for settings that do not belong to the mode, or out of range.
        ImportError: if the mode is "colocate" and vllm is not installed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        mode: Literal["server", "colocate"] = "server",
        model: str | None = None,
        timeout: float = 600.0,
        load_timeout: float = 1800.0,
        api_key: str | None = None,
        engine_kwargs: Mapping[str, Any] = MappingProxyType({}),
        max_context: int | None = None,
        vocab_size: int | None = None,
        retries: int = 5,
        retry_delay: float = 1.0,
        version: int = 0,
        weights_dir: str | Path | None = None,
        seed: int | None = None,
    ) -> None:
        engine: Engine
        if mode == "server":
            if url is None or engine_kwargs:
                raise ValueError(
                    'mode="server" wants url="http://127.0.0.1:8000" and no engine_kwargs; the server has its own command line'
                )
            engine = VLLMServer(url, model=model, timeout=timeout, load_timeout=load_timeout, api_key=api_key)
        elif mode == "colocate":
            if url is not None or model is None:
                raise ValueError('mode="colocate" wants model= (a folder or a Hugging Face name) and no url')
            from agent_gym.policies.vllm_colocate import VLLMColocate

            engine = VLLMColocate(model, max_context=max_context, engine_kwargs=engine_kwargs)
        else:
            raise ValueError(f"mode must be 'server' or 'colocate', not {mode!r}")
        self.mode: Literal["server", "colocate"] = mode
        super().__init__(
            engine,
            max_context=max_context,
            vocab_size=vocab_size,
            retries=retries,
            retry_delay=retry_delay,
            version=version,
            weights_dir=weights_dir,
            seed=seed,
        )

    @property
    def shared(self) -> bool:
        """Whether the engine is a server."""
        return self.mode == "server"
