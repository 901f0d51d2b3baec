"""One rank of the two-process test of PPO: runs every case and saves what both optimisers saw."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from ppo_training import critic_weights, knowing, make_ppo, mixed_batch
from toy_training import CaptureGradients, make_model

CASES: dict[str, dict[str, Any]] = {
    "steps": {},
    "tokens under a budget": {"advantage": "token_gae", "max_tokens_per_microbatch": 24},
    "minibatches": {"critic_minibatches": 2, "gradient_accumulation_steps": 2, "episodes": 4, "merge_prefix": False},
    "one episode": {"few": True},
}


def run_case(name: str, folder: Path, world: int, rank: int) -> dict[str, Any]:
    settings = dict(CASES[name])
    batch = mixed_batch(1)
    batch = batch[:2] if settings.pop("few", False) else batch
    mine = batch if world == 1 else batch[slice(0, 3) if rank == 0 else slice(3, None)]  # unequal
    capture = CaptureGradients()
    trainer = make_ppo(
        folder / name,
        mine,
        make_model(),
        critic=knowing(make_critic_of(rank)),
        callbacks=[capture],
        per_device_train_batch_size=settings.pop("episodes", 8) // world,
        learning_rate=0.0,
        critic_learning_rate=1e-2,
        critic_epochs=3,
        value_clip=0.05,
        max_grad_norm=0.5,
        ddp_find_unused_parameters=False,
        **settings,
    )
    before = critic_weights(trainer.critic)
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    kept = {key: value for key, value in entry.items() if key.startswith(("critic/", "adv/", "reward")) and "seconds" not in key}
    return {"gradients": capture.gradients, "moved": critic_weights(trainer.critic) - before, "before": before, "figures": kept}


def make_critic_of(rank: int) -> Any:
    """The first rank's critic; the other's are replaced by it."""
    from agent_gym.trainers.critic import make_critic

    return make_critic(make_model(seed=1 + rank), make_model())


def main() -> None:
    warnings.simplefilter("ignore")
    folder, world, rank = Path(sys.argv[1]), int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    torch.save({name: run_case(name, folder, world, rank) for name in CASES}, folder / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
