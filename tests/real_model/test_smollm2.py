"""A real pretrained model (SmolLM2-135M-Instruct) through the command line: evaluated, trained, and its adapter evaluated again.

Nothing here says that the model is good, which it is not: what is asserted is that ids, log-probabilities, gradients and files are right.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from agent_gym.chat import load_tokenizer
from agent_gym.runs import RunFolder
from agent_gym.trajectory import StopReason, Trajectory
from agent_gym.trajectory_io import load_trajectories

pytestmark = pytest.mark.real_model

HOTPOT = "AgentR1/HotpotQA-v0"
TEMPERATURE = 0.7  # at 1.0 a model of this size writes noise
SHORT = {"top_k": 2, "max_turns": 3, "max_tool_result_tokens": 100, "system_prompt": "Search, then answer."}


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The script that fetches the model."""
    path = Path(__file__).parents[2] / "examples" / "real_model.py"
    spec = importlib.util.spec_from_file_location("real_model_example", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def smollm2(example: ModuleType) -> Path:
    """The folder of the converted model."""
    folder = example.model_folder()
    assert isinstance(folder, Path)
    return folder


@pytest.fixture(scope="module")
def evaluated(example: ModuleType, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an evaluation of 20 episodes on generated questions."""
    folder = tmp_path_factory.mktemp("evaluation")
    example.write_rows(folder / "rows.jsonl", 20)
    env = {**SHORT, "dataset": str(folder / "rows.jsonl")}
    agent_gym(
        "eval", HOTPOT, "--model", str(smollm2), *env_args(env), "--tasks", "20", "--arms", "sampled", "--temperature", str(TEMPERATURE),
        "--max-tokens", "40", "--output-dir", str(folder / "out"), "--save-episodes",
    )  # fmt: skip
    return folder / "out"


def agent_gym(*arguments: str) -> str:
    """Run the command on one thread, print what it cost, and return its output."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "agent_gym.cli", *arguments],
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        shown = output.read()
    cost = f"{time.perf_counter() - start:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of CPU, {used.ru_maxrss / 2**20:.1f} GiB at most"
    print(f"\nagent-gym {arguments[0]}: {cost}\n{shown}")
    assert process.returncode == 0, shown
    return shown


def env_args(keywords: dict[str, object]) -> list[str]:
    shown = ((name, value if isinstance(value, str) else json.dumps(value)) for name, value in keywords.items())
    return [part for name, value in shown for part in ("--env-arg", f"{name}={value}")]


def episodes_of(folder: Path, arm: str = "sampled") -> list[Trajectory]:
    return load_trajectories(folder / f"episodes.{arm}.jsonl")


def extends_exactly(episode: Trajectory) -> bool:
    """Whether each observation begins with the one before and the very ids of the action."""
    for transition in episode.transitions():
        kept = np.concatenate([transition.step.observation_ids, transition.step.action_ids])
        if not np.array_equal(transition.next_observation_ids[: len(kept)], kept):
            return False
    return True


def test_twenty_episodes_are_measured_without_a_fault(evaluated: Path) -> None:
    found = json.loads((evaluated / "evaluation.json").read_text(encoding="utf-8"))
    arm = found["arms"]["sampled"]
    assert (arm["episodes"], arm["tasks"], arm["faults"], arm["tasks_without_result"]) == (20, 20, 0, 0)
    assert found["engine"] == "transformers" and found["tokenizer_fingerprint"]
    assert arm["turns"] > 1 and arm["estimates"]["n_searches"]["mean"] > 0, "the model never used the tool; the checks below would be empty"
    assert 0 < arm["action_tokens"] <= 3 * 40 and arm["stop_reasons"]["answer"] > 0


def test_the_prompt_shows_the_tool_that_the_template_leaves_out(evaluated: Path, smollm2: Path) -> None:
    tokenizer = load_tokenizer(str(smollm2))
    assert "tools" not in tokenizer.chat_template
    prompt = tokenizer.decode(episodes_of(evaluated)[0].steps[0].observation_ids)
    assert prompt.startswith("<|im_start|>system\n") and prompt.endswith("<|im_start|>assistant\n")
    assert '"name": "search"' in prompt.split("<|im_end|>")[0] and "<tool_call>" in prompt.split("<|im_end|>")[0]
    assert prompt.count("<|im_start|>tool\n") == 3


def test_each_action_stands_verbatim_in_the_next_observation(evaluated: Path, smollm2: Path) -> None:
    tokenizer = load_tokenizer(str(smollm2))
    episodes = episodes_of(evaluated)
    assert all(map(extends_exactly, episodes))
    fingerprints = {episode.tokenizer_fingerprint for episode in episodes}
    assert len(fingerprints) == 1 and "" not in fingerprints
    several = [episode for episode in episodes if len(episode) > 1]
    assert several
    first, second, *rest = several[0].steps
    changed = second.observation_ids.copy()
    changed[len(first.observation_ids)] += 1  # one other id in place of the first that was sampled
    assert not extends_exactly(replace(several[0], steps=(first, replace(second, observation_ids=changed), *rest)))
    for episode in several:
        first, second = episode.steps[:2]
        world = second.observation_ids[len(first.observation_ids) + len(first.action_ids) :]
        closing = "" if first.action_ids[-1] == tokenizer.eos_token_id else "<|im_end|>"
        assert tokenizer.decode(world).startswith(f"{closing}\n<|im_start|>tool\n")


def test_the_recorded_log_probabilities_are_those_of_a_plain_forward(evaluated: Path, smollm2: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    checked = 0
    for episode in sorted(episodes_of(evaluated), key=len)[-4:]:
        last = episode.steps[-1]
        ids = torch.from_numpy(np.concatenate([last.observation_ids, last.action_ids]))
        with torch.no_grad():
            scores = (model(ids[None]).logits[0, :-1] / TEMPERATURE).log_softmax(-1).gather(1, ids[1:, None])[:, 0].numpy()
        for step in episode.steps:  # the context only grows, so one pass holds every action
            begin = len(step.observation_ids)
            expected = scores[begin - 1 : begin - 1 + len(step.action_ids)]
            assert step.logprobs is not None
            np.testing.assert_allclose(step.logprobs, expected, atol=1e-3, rtol=0)
            checked += len(step.action_ids)
    assert checked > 50


def train(smollm2: Path, folder: Path, env: dict[str, object]) -> RunFolder:
    """Two updates of LoRA GRPO, eight episodes each."""
    settings = {
        "lora.r": 8, "lora.target_modules": "all-linear", "trainer.max_steps": 2, "trainer.num_generations": 4,
        "trainer.per_device_train_batch_size": 8, "trainer.max_tokens_per_microbatch": 1024, "trainer.max_completion_length": 40,
        "trainer.temperature": TEMPERATURE, "trainer.learning_rate": 1e-4, "trainer.save_strategy": "no", "data.eval_tasks": 0,
    }  # fmt: skip
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    agent_gym("train", HOTPOT, "--model", str(smollm2), *env_args(env), *sets, "--output-dir", str(folder / "run"))
    return RunFolder.open(folder / "run")


def check_training(run: RunFolder, smollm2: Path) -> None:
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    lines = run.metrics("train")
    assert [line["step"] for line in lines] == [1, 2]
    for line in lines:
        numbers = {name: value for name, value in line.items() if isinstance(value, (int, float))}
        assert all(math.isfinite(value) for value in numbers.values()), numbers
        assert {"loss", "grad_norm", "rollout/turns_mean"} <= set(numbers) and line["rollout/faults"] == 0
        assert line["logp_diff/max"] < 1e-3, "what was recorded while sampling is not what the trained model says of it"
    with_signal = [line for line in lines if not line["batch/no_signal"]]
    assert with_signal and all(line["grad_norm"] > 0 for line in with_signal)

    final = run.checkpoints / "final"
    weights = load_file(final / "adapter_model.safetensors")
    moved = [name for name, value in weights.items() if "lora_B" in name and bool(value.abs().max() > 0)]  # B is all zero at the start
    assert len(moved) == sum("lora_B" in name for name in weights) == 7 * 30  # seven linear layers in each of 30 blocks
    assert all(bool(torch.isfinite(value).all()) for value in weights.values())
    base = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    ids = torch.tensor([load_tokenizer(str(smollm2)).encode("Who wrote the book Red Barn?")])
    with torch.no_grad():
        plain = base(ids).logits
        adapted = PeftModel.from_pretrained(base, final).eval()(ids).logits
    assert 0 < float((plain - adapted).abs().max()) < 5.0


@pytest.mark.slow
def test_two_updates_of_lora_train_the_model_and_its_adapter_is_evaluated_by_the_ordinary_path(
    example: ModuleType, smollm2: Path, tmp_path: Path
) -> None:
    example.write_rows(tmp_path / "rows.jsonl", 20)
    # Such a model answers no two-hop question, and without variance in the reward there is nothing to learn from: a reward for the form of the
    # replies is what differs between its episodes.
    run = train(smollm2, tmp_path, {**SHORT, "dataset": str(tmp_path / "rows.jsonl"), "format_weight": 0.2})
    check_training(run, smollm2)
    agent_gym(
        "eval", "--model", str(run.path), "--tasks", "2", "--arms", "greedy", "--max-tokens", "40", "--output-dir", str(tmp_path / "after"),
        "--save-episodes",
    )  # fmt: skip
    episodes = episodes_of(tmp_path / "after", "greedy")
    assert len(episodes) == 2 and all(map(extends_exactly, episodes))


@pytest.mark.slow
def test_the_same_commands_evaluate_and_train_on_real_questions(example: ModuleType, smollm2: Path, data_dir: Path, tmp_path: Path) -> None:
    questions = data_dir / "hotpotqa" / "distractor.jsonl"
    env = {"dataset": str(questions), "force_first_search": True, "answer_fallback": "reply", "reward": "f1", "max_tool_result_tokens": 300}
    agent_gym(
        "eval", HOTPOT, "--model", str(smollm2), *env_args(env), "--tasks", "5", "--arms", "greedy", "--max-tokens", "32",
        "--output-dir", str(tmp_path / "out"), "--save-episodes",
    )  # fmt: skip
    arm = json.loads((tmp_path / "out" / "evaluation.json").read_text(encoding="utf-8"))["arms"]["greedy"]
    assert (arm["episodes"], arm["faults"]) == (5, 0) and 0 <= arm["estimates"]["f1"]["mean"] <= 1
    assert arm["estimates"]["supporting_recall"]["mean"] > 0, "the question itself finds no supporting page"
    episodes = episodes_of(tmp_path / "out", "greedy")
    assert all(map(extends_exactly, episodes)) and all(episode.stop_reason is not StopReason.ENV_FAULT for episode in episodes)
    with open(questions, encoding="utf-8") as lines:
        known = {row["_id"] for row in map(json.loads, lines)}
    assert {episode.task_id for episode in episodes} <= known

    example.write_rows(tmp_path / "rows.jsonl", 20, questions)
    run = train(smollm2, tmp_path, {**SHORT, "dataset": str(tmp_path / "rows.jsonl"), "format_weight": 0.2})
    check_training(run, smollm2)
