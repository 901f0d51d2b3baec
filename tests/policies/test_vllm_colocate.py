"""`VLLMPolicy(mode="colocate")` against a stand-in for the `vllm` module (`fake_vllm`): what we call, in which order, on which event loop. Not vLLM."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import require

require("torch")
require("transformers")

import fake_vllm  # noqa: E402
from policy_contract import CHECKS  # noqa: E402
from test_policy_contract import CONTEXT, LocalArm, make_model  # noqa: E402

from agent_gym.policies import EngineError, Sampling, VLLMPolicy  # noqa: E402


class ColocateArm(LocalArm):
    def __init__(self, folder: Path, made: list[fake_vllm.AsyncLLM]) -> None:
        self.model, self.folder, self.server, self.made = make_model(1), folder, object(), made  # type: ignore[assignment]
        self.model.save_pretrained(folder / "first")
        self.policy = VLLMPolicy(mode="colocate", model=str(folder / "first"), seed=3)

    def unfinished(self) -> int:
        return len(self.made[0].running)

    def overflows(self) -> int:
        return self.made[0].overflows

    def close(self) -> None:
        self.policy.close()


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = ColocateArm(tmp_path, fake_vllm.install(monkeypatch))
    yield made
    made.close()


def test_it_keeps_the_contract_over_several_event_loops(arm: ColocateArm) -> None:
    for check in CHECKS.values():
        asyncio.run(check(arm))  # each on a loop of its own, and the engine on one alone
    (engine,) = arm.made
    assert engine.calls == ["pause wait", "reload_weights", "reset_prefix_cache", "resume"]
    assert arm.policy.info.name == "vllm 0.30.0" and arm.policy.info.max_model_len == CONTEXT
    arm.policy.close()
    assert engine.calls[-1] == "shutdown"


def test_a_refusal_of_an_older_engine_is_one_too(arm: ColocateArm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_vllm, "VLLMValidationError", type("VLLMValidationError", (ValueError,), {}))
    asyncio.run(CHECKS["impossible_prompts_are_refused"](arm))


def test_without_the_reset_it_fails_the_contract(arm: ColocateArm, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: fake_vllm.AsyncLLM) -> bool:
        return True

    monkeypatch.setattr(fake_vllm.AsyncLLM, "reset_prefix_cache", nothing)
    with pytest.raises(AssertionError, match="old keys and values"):
        asyncio.run(CHECKS["every_reply_says_which_weights_made_it"](arm))


def test_abort_gives_what_there_was(arm: ColocateArm) -> None:
    async def run() -> Any:
        await arm.policy.connect()
        flying = asyncio.create_task(arm.policy.generate([3, 4], Sampling(max_tokens=250, seed=0)))
        while not arm.made[0].running:
            await asyncio.sleep(0.005)
        await arm.policy.abort()
        return await flying

    assert asyncio.run(run()).finish_reason == "abort"


def test_a_dead_engine_is_an_error_that_says_so(arm: ColocateArm, monkeypatch: pytest.MonkeyPatch) -> None:
    class EngineDeadError(Exception):
        pass

    async def generate(self: Any, *_: Any) -> Any:
        raise EngineDeadError("EngineCore encountered an issue")
        yield

    monkeypatch.setattr(fake_vllm.AsyncLLM, "generate", generate)
    with pytest.raises(EngineError, match="has ended: EngineCore"):
        asyncio.run(arm.policy.generate([3], Sampling(max_tokens=2)))


def test_what_does_not_go_together_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as gone:
        gone.setitem(sys.modules, "vllm", None)
        with pytest.raises(ImportError, match=r'pip install "agentr1-gym\[vllm\]"'):
            VLLMPolicy(mode="colocate", model="x")
    fake_vllm.install(monkeypatch, "0.33.1")
    with pytest.warns(UserWarning, match=r"vllm 0.33.1: this was written for 0.28 to 0.30"):
        VLLMPolicy(mode="colocate", model="x")
    fake_vllm.install(monkeypatch)
    with pytest.raises(ValueError, match="sampled distribution"):
        VLLMPolicy(mode="colocate", model="x", engine_kwargs={"logprobs_mode": "raw_logprobs"})
    for wrong in ({"url": "http://127.0.0.1:1", "model": "x"}, {}):
        with pytest.raises(ValueError, match="wants model="):
            VLLMPolicy(**wrong, mode="colocate")
    with pytest.raises(ValueError, match="wants url="):
        VLLMPolicy()
