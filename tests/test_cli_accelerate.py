"""`accelerate launch -m agent_gym.cli train`: two processes through the command line do what one does.

`--multi_gpu` starts them by torchrun, and `trainer.use_cpu` keeps them on the CPU. (`accelerate launch --cpu` with several processes wants MPI, and without its
`--mpirun_hostfile` silently starts one.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import require

torch = require("torch")
require("trl")

from safetensors.torch import load_file  # noqa: E402

REPOSITORY = Path(__file__).resolve().parent.parent


def train(folder: Path, model: str, processes: int) -> list[dict[str, Any]]:
    """Train two updates. Returns what was recorded of each."""
    settings = {
        "max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 8 // processes, "max_completion_length": 6, "max_turns": 2,
        "save_strategy": "no", "learning_rate": 0.01, "eval_strategy": "no", "use_cpu": "true", "ddp_find_unused_parameters": "false",
    }  # fmt: skip
    words = [
        "train",
        "small_envs:Odd",
        "--model",
        model,
        "--output-dir",
        str(folder / f"run{processes}"),
        "--set",
        "data.eval_tasks=0",
        "--seed",
        "3",
    ]
    for name, value in settings.items():
        words += ["--set", f"trainer.{name}={value}"]
    launch = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes), "--num_machines", "1", "--mixed_precision", "no",
              "--dynamo_backend", "no", "--main_process_ip", "127.0.0.1", "--main_process_port", "0", "-m"]  # fmt: skip
    command = [sys.executable, "-m", *(launch if processes > 1 else []), "agent_gym.cli", *words]
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = (folder / f"run{processes}" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "train"]


@pytest.mark.slow
def test_two_processes_on_a_cpu_have_the_gradients_and_the_weights_of_one(tmp_path: Path, tiny_model: str) -> None:
    one, two = train(tmp_path, tiny_model, 1), train(tmp_path, tiny_model, 2)
    assert len(one) == len(two) == 2
    for alone, shared in zip(one, two, strict=True):
        assert alone["grad_norm"] > 1e-3
        for name in (
            "grad_norm",
            "reward",
            "reward_std",
            "entropy",
            "adv/absmax",
            "batch/trained_tokens",
            "rollout/turns_mean",
            "rollout/action_tokens",
        ):
            assert shared[name] == pytest.approx(alone[name], rel=1e-4), name
    begun = load_file(Path(tiny_model) / "model.safetensors")
    weights = [load_file(tmp_path / f"run{count}" / "checkpoints" / "final" / "model.safetensors") for count in (1, 2)]
    for name, value in weights[0].items():
        assert torch.allclose(weights[1][name], value, rtol=0, atol=1e-5), name
    assert any(not torch.allclose(begun[name], value, rtol=0, atol=1e-3) for name, value in weights[0].items())
