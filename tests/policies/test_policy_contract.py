"""One contract for the policy in this process and for the engines behind HTTP, which are stand-ins here (see `engine_servers`): plainly, fakes.

The real engine meets the same checks by `make test-vllm`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import require

torch = require("torch")
transformers = require("transformers")

from engine_servers import FakeServer, FakeSGLang, FakeVLLM, plain_logprobs, serving  # noqa: E402
from policy_contract import CHECKS, Arm  # noqa: E402

from agent_gym.policies import Policy, SGLangPolicy, TransformersPolicy, VLLMPolicy  # noqa: E402
from agent_gym.policies.engine import EngineError, EnginePolicy  # noqa: E402
from agent_gym.policies.vllm_policy import VLLMServer  # noqa: E402

VOCABULARY, CONTEXT = 97, 256
EOS = (11, 12, 13)


def make_model(seed: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, initializer_range=0.2, max_position_embeddings=CONTEXT, tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).eval()


class LocalArm(Arm):
    """The policy in this process, or on a stand-in."""

    vocabulary, max_context = VOCABULARY, CONTEXT

    def __init__(self, kind: str, folder: Path) -> None:
        self.model = make_model(1)
        self.folder = folder
        self.server: FakeServer | None = None
        if kind == "transformers":
            self.policy: Any = TransformersPolicy(self.model, pad_id=0, seed=3)
        elif kind == "vllm":
            self.server = FakeVLLM(self.model, max_model_len=CONTEXT, eos=EOS)
            self.policy = VLLMPolicy(self.server.url, seed=3, retry_delay=0.01)
        else:
            self.server = FakeSGLang(self.model, max_model_len=CONTEXT)
            self.policy = SGLangPolicy(self.server.url, seed=3, retry_delay=0.01)

    def logprobs(self, prompt: list[int], ids: list[int], temperature: float = 1.0) -> list[float]:
        return plain_logprobs(self.model, prompt, ids, temperature)

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        ids = list(prompt)
        for _ in range(count):
            with torch.no_grad():
                ids.append(int(self.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        return ids[len(prompt) :]

    async def update(self, version: int) -> None:
        new = make_model(version + 50)
        if self.server is None:
            with torch.no_grad():
                for one, other in zip(self.model.parameters(), new.parameters(), strict=True):
                    one.copy_(other)
            self.policy.version = version
            return
        self.model = new
        folder = self.folder / f"v{version}"
        new.save_pretrained(folder)
        await self.policy.update_weights(folder, version=version)

    def unfinished(self) -> int:
        return 0 if self.server is None else self.server.running

    def overflows(self) -> int:
        return 0 if self.server is None else self.server.overflows

    def close(self) -> None:
        self.policy.close()
        if self.server is not None:
            self.server.close()


@pytest.fixture(scope="module", params=["transformers", "vllm", "sglang"])
def arm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalArm]:
    made = LocalArm(request.param, tmp_path_factory.mktemp("weights"))
    yield made
    made.close()


@pytest.mark.parametrize("check", CHECKS)
def test_the_policy_keeps_its_contract(arm: LocalArm, check: str) -> None:
    asyncio.run(CHECKS[check](arm))
    assert isinstance(arm.policy, Policy)


# ------------------------------------------------------------------------------------------------ mutants


def _no_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: VLLMServer) -> None:
        pass

    monkeypatch.setattr(VLLMServer, "reset_prefix_cache", nothing)


def _no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: VLLMServer, folder: str, version: int) -> None:
        await self.reset_prefix_cache()

    monkeypatch.setattr(VLLMServer, "load", nothing)


def _request(change: Any) -> Any:
    """Change what is posted."""

    def mutate(monkeypatch: pytest.MonkeyPatch) -> None:
        original = VLLMServer.reply

        async def reply(self: VLLMServer, target: str, body: dict[str, Any], *rest: Any) -> Any:
            return await original(self, target, change(copy.deepcopy(body)), *rest)

        monkeypatch.setattr(VLLMServer, "reply", reply)

    return mutate


def _no_clamp(monkeypatch: pytest.MonkeyPatch) -> None:
    original = EnginePolicy.connect

    async def far(self: EnginePolicy) -> Any:
        info = await original(self)
        self._max_context = 10**6
        return info

    generate = EnginePolicy.generate

    async def late(self: EnginePolicy, *args: Any, **more: Any) -> Any:
        await far(self)
        return await generate(self, *args, **more)

    monkeypatch.setattr(EnginePolicy, "generate", late)


def _deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_gym.search.transport.Cancellation.cancel", lambda self: None)


MUTANTS = {
    "prefix cache kept": (_no_reset, "every_reply_says_which_weights_made_it"),
    "weights not sent": (_no_load, "every_reply_says_which_weights_made_it"),
    "one seed for all": (_request(lambda body: {**body, "seed": 1}), "a_request_has_a_seed_of_its_own"),
    "no ignore_eos": (_request(lambda body: {**body, "ignore_eos": False}), "a_reply_ends_at_its_own_stop_ids_and_nowhere_else"),
    "no stop ids": (_request(lambda body: {**body, "stop_token_ids": []}), "a_reply_ends_at_its_own_stop_ids_and_nowhere_else"),
    "not clamped": (_no_clamp, "a_full_context_is_a_finish_reason"),
    "temperature lost": (_request(lambda body: {**body, "temperature": 1.0}), "ids_and_logprobs_are_those_that_were_sampled"),
    "prompt cut": (_request(lambda body: {**body, "prompt": body["prompt"][-20:]}), "ids_and_logprobs_are_those_that_were_sampled"),
    "cancelled in words alone": (_deaf, "a_cancelled_request_leaves_the_others_alone"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_policy_fails_the_contract(mutant: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mutate, check = MUTANTS[mutant]
    broken = LocalArm("vllm", tmp_path)
    with serving(broken.server):  # type: ignore[arg-type]
        if mutant == "cancelled in words alone":
            broken.server.slow, broken.server.slow_prompt = 60.0, [4, 5]  # type: ignore[union-attr]  # the doomed request lasts longer than the check waits
        mutate(monkeypatch)
        with pytest.raises((AssertionError, EngineError)):
            asyncio.run(CHECKS[check](broken))
