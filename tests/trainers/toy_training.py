"""Tiny models, a word tokenizer and random episodes for the trainer's tests."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, TrainerCallback

from agent_gym.trainers.config import AgentGRPOConfig
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trajectory import Step, StopReason, Trajectory

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

VOCAB = 40
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<end>{% endgeneration %}"
    "{% else %}<{{ m.role }}>{{ m.content }}<end>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "<end>", "<user>", "<assistant>", "<system>", "<tool>", "<unk>"]
    words += [f"w{number}" for number in range(VOCAB - len(words))]
    inner = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<assistant>", "<system>", "<tool>"],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(family: str = "qwen3", seed: int = 0, dtype: torch.dtype = torch.float64, vocab: int = VOCAB) -> Any:
    torch.manual_seed(seed)
    common = {
        "vocab_size": vocab,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "bos_token_id": None,
    }
    if family == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(head_dim=8, **common))
    else:
        model = LlamaForCausalLM(LlamaConfig(**common))
    return model.to(dtype)


def random_ids(rng: np.random.Generator, low: int, high: int) -> np.ndarray:
    return rng.integers(2, VOCAB, size=int(rng.integers(low, high + 1)))


def random_trajectory(
    rng: np.random.Generator,
    group: str,
    context: str = "append",
    max_steps: int = 4,
    reward: float | None = None,
    logprobs: bool = True,
    empty: float = 0.0,
    end_reason: StopReason = StopReason.ANSWER,
) -> Trajectory:
    """An episode whose context is appended, rewritten at every step, or either by chance ("mixed")."""
    steps: list[Step] = []
    shown = random_ids(rng, 2, 6)
    count = int(rng.integers(1, max_steps + 1))
    for number in range(count):
        action = random_ids(rng, 1, 5) if rng.random() >= empty else np.zeros(0, dtype=np.int64)
        last = number == count - 1
        steps.append(
            Step(
                observation_ids=shown,
                action_ids=action,
                logprobs=-rng.random(len(action)).astype(np.float32) if logprobs else None,
                finish_reason="length" if rng.random() < 0.2 else "stop",
                reward=float(rng.normal()) if reward is None else (reward if last else 0.0),
                reward_parts={"task": 0.0},
                terminated=last and end_reason is not StopReason.ENV_FAULT,
                truncated=last and end_reason is StopReason.ENV_FAULT,
                stop_reason=end_reason if last else StopReason.RUNNING,
                state_key=f"s{number}",
                info={"is_success": last, "action_valid": True},
            )
        )
        rewrite = context == "rewrite" or (context == "mixed" and rng.random() < 0.5)
        shown = random_ids(rng, 3, 8) if rewrite else np.concatenate([shown, action, random_ids(rng, 1, 4)])
    return Trajectory(env_id="Toy", task_id=f"task-{group}", group_id=group, seed=0, steps=steps, final_observation=shown)


def random_batch(seed: int, groups: int = 4, size: int = 2, **options: Any) -> list[Trajectory]:
    rng = np.random.default_rng(seed)
    return [random_trajectory(rng, f"g{number}", **options) for number in range(groups) for _ in range(size)]


def make_args(folder: Any, config: type[AgentGRPOConfig] = AgentGRPOConfig, **settings: Any) -> Any:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "per_device_train_batch_size": 8,
        "num_generations": 2,
        "learning_rate": 1e-2,
        "max_steps": 1,
        "max_grad_norm": 0.0,
        "log_level": "error",
        "seed": 0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return config(**{**defaults, **settings})


def rows_for(number: int = 64) -> list[dict[str, Any]]:
    return [{"env_id": "Toy", "env_kwargs": {}, "seed": seed} for seed in range(number)]


def make_trainer(
    folder: Any, trajectories: Sequence[Trajectory] | Any, model: Any = None, *, kind: Any = AgentGRPOTrainer, **settings: Any
) -> Any:
    """A trainer whose rollouts are given: a fixed batch, or a rollout function."""
    names = ("callbacks", "peft_config", "eval_dataset", "train_dataset", "replay", "critic", "teacher")
    extra = {name: settings.pop(name) for name in names if name in settings}
    rollout = trajectories if callable(trajectories) else (lambda trainer, examples: list(trajectories))
    return kind(
        model=make_model() if model is None else model,
        args=make_args(folder, **{"is_correction": "none", **settings}),
        env=lambda row: None,
        train_dataset=extra.pop("train_dataset", rows_for()),
        processing_class=make_tokenizer(),
        rollout=rollout,
        **extra,
    )


def gradient(model: Any) -> torch.Tensor:
    """All gradients as one vector; zeros for a parameter without one."""
    parts = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in model.parameters() if p.requires_grad]
    return torch.cat([part.reshape(-1).to(torch.float64) for part in parts])


def window_gradients(trainer: AgentGRPOTrainer) -> list[torch.Tensor]:
    """Gradients of each optimiser window of one generation batch, without updating between them."""
    trainer.current_gradient_accumulation_steps = trainer.args.gradient_accumulation_steps
    trainer.model.train()
    per_rank = trainer.args.per_device_train_batch_size * trainer.args.steps_per_generation
    examples = [rows_for()[number // trainer.num_generations] for number in range(per_rank)]
    steps = trainer._generate_and_score_completions(examples)
    size = trainer.args.gradient_accumulation_steps
    result = []
    for start in range(0, len(steps), size):
        trainer.model.zero_grad()
        for micro_step in steps[start : start + size]:
            trainer.compute_loss(trainer.model, micro_step).backward()
        result.append(gradient(trainer.model))
    trainer.model.zero_grad()
    return result


def relative_error(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp(min=1e-30))


class CaptureGradients(TrainerCallback):
    """Keeps the gradient of every optimiser step."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.gradients.append(gradient(model))
