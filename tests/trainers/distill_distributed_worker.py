"""One rank of the two-process test of distillation: runs every case and saves what the optimiser saw."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from distill_training import make_distill
from toy_training import CaptureGradients, make_model, random_batch

CASES: dict[str, dict[str, Any]] = {
    "full": {"teacher_chunk_tokens": 5},
    "full under a budget": {"max_tokens_per_microbatch": 24},
    "sampled with the reward": {"distill_loss": "sampled", "reward_weight": 0.5, "num_generations": 2},
    "one episode": {"few": True},
}


def run_case(name: str, folder: Path, world: int, rank: int) -> dict[str, Any]:
    settings = dict(CASES[name])
    batch = random_batch(1, context="mixed", empty=0.2, logprobs=False)
    batch = batch[:1] if settings.pop("few", False) else batch
    mine = batch if world == 1 else batch[slice(0, 3) if rank == 0 else slice(3, None)]  # unequal
    capture = CaptureGradients()
    trainer = make_distill(
        folder / name,
        mine,
        make_model(),
        callbacks=[capture],
        per_device_train_batch_size=8 // world,
        learning_rate=0.0,
        ddp_find_unused_parameters=False,
        **settings,
    )
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    return {
        "gradients": capture.gradients,
        "figures": {key: entry[key] for key in entry if key.startswith("distill/") and "sec" not in key},
    }


def main() -> None:
    warnings.simplefilter("ignore")
    folder, world, rank = Path(sys.argv[1]), int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    torch.save({name: run_case(name, folder, world, rank) for name in CASES}, folder / f"rank{rank}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
