"""The teachers of a distillation: a frozen model in this process, or one behind a vLLM server.

Both read the very ids that the student was shown and wrote. A model in this process gives its hidden states, and so whole distributions; a server tells
the log-probabilities of given ids. Neither is ever trained: a model's parameters are frozen, and what it says carries no gradient.
"""

from __future__ import annotations

import asyncio
import uuid
import warnings
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import nn

from agent_gym._background import BackgroundLoop
from agent_gym.chat import load_tokenizer
from agent_gym.policies.engine import ContextFull, EngineDown, EngineError, ask_again
from agent_gym.policies.engine_http import NotServed
from agent_gym.policies.vllm_policy import PromptScores, VLLMServer
from agent_gym.trainers.distill_settings import is_address
from agent_gym.trainers.divergence import Head
from agent_gym.trainers.scoring import hidden_states
from agent_gym.trainers.second_model import check_vocabulary, has_tokenizer, plain_model

__all__ = ["ModelTeacher", "RowTeacher", "ServerTeacher", "check_teacher", "make_teacher"]

_Result = TypeVar("_Result")
_PROBES = ("The capital of France is Paris.", " 3.14 + 42 = \n\n\tx_1;", "naïve café, Ελλάδα, 東京, 🙂", "don't   stop")


class ModelTeacher:
    """A frozen causal language model in this process.

    Args:
        model: a causal language model of transformers, or a PEFT model. It is frozen and put into evaluation mode, and moved to the device.
        rows: of the student's embedding; the teacher's distribution is over as many entries.
        temperature: the teacher's distribution is softmax(logits / temperature).
        device: where it computes; None leaves it where it is.

    Attributes:
        model: the model.
        head: its log-probabilities.

    Raises:
        TypeError: for anything else than a causal language model.
        ValueError: for a model with fewer embedding rows than the student.
    """

    def __init__(self, model: nn.Module, *, rows: int, temperature: float = 1.0, device: torch.device | str | None = None) -> None:
        causal: Any = plain_model(model)
        head = causal.get_output_embeddings() if hasattr(causal, "get_output_embeddings") else None
        if head is None or not hasattr(causal, "base_model"):
            raise TypeError(
                f"teacher= is a {type(model).__name__} without a language-model head; give a causal language model of transformers"
            )
        own = min(int(causal.get_input_embeddings().weight.shape[0]), int(head.weight.shape[0]))
        if own < rows:
            raise ValueError(
                f"the teacher's embedding has {own} rows, the student's {rows}; a teacher reads every id that the student may write"
            )
        model.requires_grad_(False)
        model.eval()
        self.model = model if device is None else model.to(device)
        self._causal = causal
        self.head = Head(causal, temperature, rows)

    @torch.no_grad()
    def states(self, ids: torch.Tensor, attention: torch.Tensor, scored: torch.Tensor) -> torch.Tensor:
        """Read rows.

        Args:
            ids: shape (B, T), int64, right-padded.
            attention: shape (B, T), int64, 1 at real tokens.
            scored: shape (B, C), bool, for the last C < T tokens.

        Returns:
            The hidden states before the scored tokens, shape (n, hidden), n >= 1, of the model's dtype; see
            `agent_gym.trainers.scoring.hidden_states`.
        """
        return hidden_states(self._causal, ids, attention, scored)


@runtime_checkable
class RowTeacher(Protocol):
    """A teacher that tells the log-probabilities of given ids, at temperature 1."""

    def connect(self, tokenizer: Any) -> None:
        """See that it is there and reads the ids of the student's tokenizer; raises ValueError or EngineError if not.

        Args:
            tokenizer: of the student.

        Raises:
            ValueError: for other ids.
            EngineError: if it is not there.
        """
        ...

    def score(self, rows: Sequence[Sequence[int]]) -> list[PromptScores]:
        """Score rows of two ids at least, in order.

        Args:
            rows: token ids.

        Returns:
            What it says of each row.
        """
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class ServerTeacher:
    """A teacher behind `vllm serve`, asked over HTTP with the student's ids; vllm need not be installed here.

    It is asked for the `prompt_logprobs` of each row at `/v1/completions`. What comes back is checked to be of the very ids that were sent. Run against a
    stand-in of the protocol alone (see docs/distill.md).

    Args:
        url: "http://127.0.0.1:8000", with or without `/v1`.
        model: the name that it is served under; None takes the first.
        tokenizer: folder or name of the teacher's tokenizer, to compare every id of the vocabulary; None has the server encode a few texts
            and compares those.
        concurrency: requests at once.
        retries: how often a request is sent again to a server that is gone or hangs.
        retry_delay: seconds before the first of these, doubled for each further one, at most 30.
        timeout: seconds for one answer.
        api_key: where the server has one.

    Raises:
        ValueError: for an address or a number that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        tokenizer: str | None = None,
        concurrency: int = 32,
        retries: int = 5,
        retry_delay: float = 1.0,
        timeout: float = 600.0,
        api_key: str | None = None,
    ) -> None:
        if concurrency < 1 or retries < 0 or retry_delay < 0:
            raise ValueError(
                f"concurrency must be at least 1, retries and retry_delay not negative, not {concurrency}, {retries} and {retry_delay}"
            )
        self.server = VLLMServer(url, model=model, timeout=timeout, api_key=api_key)
        self.tokenizer, self.concurrency, self.retries, self.retry_delay = tokenizer, concurrency, retries, retry_delay
        self._loop = BackgroundLoop()
        self._longest = 0

    def connect(self, tokenizer: Any) -> None:
        """See that the server is there, and that its ids are those of a tokenizer.

        Args:
            tokenizer: the student's.

        Raises:
            EngineError: if it cannot be used.
            ValueError: if its ids mean other tokens.
        """
        who = f"the teacher ({self.server.what})"
        if self.tokenizer is not None:
            check_vocabulary(tokenizer, load_tokenizer(self.tokenizer), who)
        self._loop.submit(self._connect(tokenizer, who)).result()

    async def _connect(self, tokenizer: Any, who: str) -> None:
        self._longest = (await self._insist(self.server.connect)).max_model_len - 1
        if self.tokenizer is not None:
            return
        special = "".join(str(token) for _, token in sorted(tokenizer.added_tokens_decoder.items())[:64])
        for text in (*_PROBES, special):
            ours = tokenizer.encode(text, add_special_tokens=False)
            try:
                theirs = await self._insist(partial(self.server.tokenize, text))
            except NotServed:
                warnings.warn(
                    f"{who} has no /tokenize, so it is not known whether its ids are those of the student; ServerTeacher(url, tokenizer=FOLDER) compares "
                    "them",
                    stacklevel=2,
                )
                return
            if theirs != ours:
                raise ValueError(
                    f"{who} reads other ids than the student: {text!r:.60} is {ours[:12]} here and {theirs[:12]} there. Serve a model that shares the "
                    "student's vocabulary"
                )

    def score(self, rows: Sequence[Sequence[int]]) -> list[PromptScores]:
        """Score rows.

        Args:
            rows: of two ids at least.

        Returns:
            The scores, in order.

        Raises:
            EngineError: if the server cannot be reached after all tries, its answer breaks the contract, or a row is longer than its context.
            ValueError: for an id that it does not know.
        """
        if not rows:
            return []
        return list(self._loop.submit(self._score(rows)).result())

    async def _score(self, rows: Sequence[Sequence[int]]) -> list[PromptScores]:
        place = asyncio.Semaphore(self.concurrency)

        async def one(ids: list[int]) -> PromptScores:
            if len(ids) > self._longest:
                raise self._too_long(len(ids))
            async with place:
                try:
                    return await self._insist(lambda: self.server.prompt_scores(ids, f"agent-gym-teacher-{uuid.uuid4().hex}"))
                except ContextFull:
                    raise self._too_long(len(ids)) from None

        tasks = [asyncio.ensure_future(one([int(token) for token in row])) for row in rows]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    def _too_long(self, length: int) -> EngineError:
        return EngineError(
            f"a row of {length} tokens does not fit into the context of the teacher's server ({self._longest} and one more); serve it with a larger "
            "--max-model-len, or make the environments with a smaller max_observation_tokens"
        )

    async def _insist(self, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        """Call until the server answers, or all tries are spent."""
        try:
            return await ask_again(attempt, self.retries, self.retry_delay)
        except EngineError as error:
            if isinstance(error.__cause__, EngineDown):
                raise EngineError(f"the teacher does not answer: {error}") from error.__cause__
            raise

    def close(self) -> None:
        """Close the connections."""
        self.server.close()
        self._loop.abandon()


def make_teacher(
    given: Any,
    *,
    student: nn.Module,
    tokenizer: Any,
    temperature: float,
    dtype: str,
    device: torch.device | str,
    concurrency: int,
) -> ModelTeacher | RowTeacher:
    """Make the teacher of a run.

    Args:
        given: a causal language model; the folder or name of one; the address of a vLLM server; or a `RowTeacher` such as `ServerTeacher`.
        student: the model that is trained.
        tokenizer: the student's.
        temperature: of the teacher's distribution.
        dtype: weights of a model that is loaded.
        device: where a model computes.
        concurrency: requests at once to a server that is given by its address.

    Returns:
        The teacher, connected.

    Raises:
        TypeError: for anything else.
        ValueError: for one that reads other ids, or that is the student itself.
        EngineError: for a server that cannot be used.
    """
    rows = int(plain_model(student).get_input_embeddings().weight.shape[0])
    if is_address(given):
        given = ServerTeacher(str(given), concurrency=concurrency)
    if isinstance(given, (str, Path)):
        given = _opened(str(given), tokenizer, dtype)
    if isinstance(given, nn.Module):
        shared = {id(parameter) for parameter in given.parameters()} & {id(parameter) for parameter in student.parameters()}
        if shared:
            raise ValueError(
                "the teacher shares its weights with the student, and would be frozen and trained at once; give a model of its own"
            )
        return ModelTeacher(given, rows=rows, temperature=temperature, device=device)
    if not isinstance(given, RowTeacher):
        raise TypeError(
            f"teacher= is a {type(given).__name__}; give a causal language model, its folder or name, the address of a vLLM server, or an object with "
            "connect, score and close (agent_gym.trainers.teacher.RowTeacher)"
        )
    given.connect(tokenizer)
    return given


def check_teacher(name: str, tokenizer: Any) -> None:
    """See that a teacher reads the student's ids, before anything is loaded.

    Args:
        name: folder or name of a model, or the address of a server, which has to be there.
        tokenizer: the student's.

    Raises:
        ValueError: for one that reads other ids, or a folder without a model.
        EngineError: for a server that cannot be used.
    """
    if is_address(name):
        server = ServerTeacher(name)
        try:
            server.connect(tokenizer)
        finally:
            server.close()
        return
    folder = Path(name)
    if folder.is_dir() and not any((folder / file).is_file() for file in ("config.json", "adapter_config.json")):
        raise ValueError(f"the teacher {name} is a folder without a config.json; give that of a model")
    if has_tokenizer(name):
        check_vocabulary(tokenizer, load_tokenizer(name), f"the teacher {name}")


def _opened(name: str, tokenizer: Any, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM

    check_teacher(name, tokenizer)
    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
