"""One rank of the two-process test: runs every case and saves what the optimiser would have seen."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from toy_training import CaptureGradients, make_args, make_model, make_trainer, random_batch, rows_for

CASES: dict[str, dict[str, Any]] = {
    "one window": {},
    "budget": {"max_tokens_per_microbatch": 24},
    "two windows": {"steps_per_generation": 4, "gradient_accumulation_steps": 2, "episodes": 2, "max_steps": 2, "loss_level": "step"},
    "accumulation": {"gradient_accumulation_steps": 4, "episodes": 2, "merge_prefix": False},
    "off-policy": {"num_iterations": 2, "max_steps": 2, "is_correction": "token_truncate", "loss_type": "cispo"},
    "dropped": {"drop_zero_variance": True, "advantage": "rloo"},
    "one episode": {"few": True, "max_tokens_per_microbatch": 16},
}


def run_case(name: str, folder: Path, world: int, rank: int) -> tuple[list[torch.Tensor], dict[str, float]]:
    settings = dict(CASES[name])
    batch = random_batch(1, context="mixed")
    batch[:2] = random_batch(2, groups=1, reward=1.0) if name == "dropped" else batch[:2]
    batch = batch[:2] if settings.pop("few", False) else batch
    share = slice(0, 3) if rank == 0 else slice(3, None)  # unequal, and a group on both ranks
    mine = batch if world == 1 else batch[share]
    capture = CaptureGradients()
    trainer = make_trainer(
        folder / name,
        mine,
        make_model(),
        callbacks=[capture],
        per_device_train_batch_size=settings.pop("episodes", 8) // world,
        learning_rate=0.0 if name != "off-policy" else 1e-2,
        ddp_find_unused_parameters=False,
        **settings,
    )
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    kept = {
        key: value for key, value in entry.items() if key.startswith(("reward", "adv/", "entropy", "clip", "cispo", "is/", "frac", "logp"))
    }
    return capture.gradients, {**kept, "rows": entry["rollout/rows_per_traj"], "tokens": entry["batch/trained_tokens"]}


def run_environment(folder: Path) -> dict[str, Any]:
    """The ordinary path, with one group spread over both ranks."""
    import agent_gym  # noqa: F401
    from agent_gym.trainers.grpo import AgentGRPOTrainer

    args = make_args(folder / "env", per_device_train_batch_size=2, num_generations=4, max_completion_length=6, max_turns=2)
    trainer = AgentGRPOTrainer(default_model(), args, env="AgentR1/Tool-v0", processing_class="default")
    trainer.train()
    return {
        "tasks": [item.task_id for item in trainer.trajectories],
        "groups": [item.group_id for item in trainer.trajectories],
        "actions": [item.steps[0].action_ids.tolist() for item in trainer.trajectories],
    }


def default_model(seed: int = 0) -> Any:
    """An untrained model that speaks the default tokenizer."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from agent_gym.chat import load_tokenizer

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(load_tokenizer("default")),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=4096,
    )
    return Qwen3ForCausalLM(config)


def run_faults(folder: Path, rank: int) -> dict[str, Any]:
    """A world that is broken on the second rank alone: the first waits for nobody, and both stop together."""
    from agent_gym.core import EnvFault
    from agent_gym.envs.tool_tasks import ToolTaskEnv
    from agent_gym.flows import TooManyFaults
    from agent_gym.trainers.grpo import AgentGRPOTrainer

    class Broken(ToolTaskEnv):
        async def _arespond(self, action: Any) -> Any:
            if rank == 1:
                raise EnvFault("down")
            return await super()._arespond(action)

    found: dict[str, Any] = {}
    for on_fault in ("drop", "stop"):
        args = make_args(
            folder / on_fault, per_device_train_batch_size=2, num_generations=4, max_completion_length=6, max_turns=2, max_steps=1,
            on_fault=on_fault, max_fault_retries=0,
        )  # fmt: skip
        trainer = AgentGRPOTrainer(
            default_model(), args, env=lambda row: Broken(max_turns=2, max_action_tokens=6), processing_class="default",
            train_dataset=[{"seed": seed} for seed in range(4)],
        )  # fmt: skip
        try:
            trainer.train()
            found[on_fault] = (len(trainer.trajectories), trainer.faults.rate)
        except TooManyFaults as error:
            found[on_fault] = str(error)
    return found


def run_engine(folder: Path, rank: int) -> dict[str, Any]:
    """Both ranks sample from one server (a stand-in), which the first one gives the weights of every step."""
    from accelerate.utils import gather_object
    from engine_servers import FakeVLLM, serving
    from small_envs import Odd

    from agent_gym.trainers.grpo import AgentGRPOTrainer

    with serving(FakeVLLM(default_model(seed=9), max_model_len=2048)) if rank == 0 else nullcontext() as server:
        (url, *_) = gather_object([server.url if server is not None else ""])
        args = make_args(
            folder / "engine", per_device_train_batch_size=2, num_generations=4, max_completion_length=6, max_turns=2, max_steps=2, use_vllm=True,
            vllm_mode="server", vllm_server_base_url=url, learning_rate=1e-2,
        )  # fmt: skip
        trainer = AgentGRPOTrainer(
            default_model(), args, env=lambda row: Odd(max_turns=2, max_action_tokens=6), processing_class="default",
            train_dataset=[{"seed": seed} for seed in range(4)],
        )  # fmt: skip
        versions: list[set[int]] = []
        gather = trainer._gather_trajectories

        def gathered(local: Any, figures: Any) -> Any:
            found = gather(local, figures)
            versions.append({step.policy_version for item in found for step in item.steps})
            return found

        trainer._gather_trajectories = gathered
        trainer.train()
        history = trainer.state.log_history
        gather_object([rank])  # the server stays until both are done
        trainer.policy.close()
        return {
            "versions": versions,
            "difference": [entry["logp_diff/max"] for entry in history if "logp_diff/max" in entry],
            "loads": None if server is None else [path for path, _ in server.controls].count("/collective_rpc"),
            "resets": None if server is None else [path for path, _ in server.controls].count("/reset_prefix_cache"),
        }


def main() -> None:
    warnings.simplefilter("ignore")
    folder, world, rank = Path(sys.argv[1]), int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    results = {name: run_case(name, folder, world, rank) for name in CASES}
    torch.save(
        {"cases": results, "environment": run_environment(folder), "faults": run_faults(folder, rank), "engine": run_engine(folder, rank)},
        folder / f"rank{rank}.pt",
    )
    assert rows_for(1)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
