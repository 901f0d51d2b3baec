"""The embedded run on `AgentR1/HotpotQA-v0` at `level="bridge"`: a tiny model learns to search and to answer.

It is started by imitation of an impatient expert (`agent_gym.trainers.warm_start`), which writes perfect calls and stops reading too early. What the
expert's habits allow is the imitation ceiling; what goes beyond it was learned from the reward alone. The figures are those of worlds of the split
"test", with which the training worlds share no entity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from agent_gym.trainers.presets.base import EmbeddedConfig, Preset, Report, Splits, Success
from agent_gym.trainers.tiny_model import build_tiny_model, freeze_embedding
from agent_gym.trainers.warm_start import (
    WARM_START_ENV,
    WARM_START_ENV_KWARGS,
    WarmStartConfig,
    WarmStartProgress,
    record_demonstrations,
    warm_start,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

__all__ = ["HotpotQAConfig", "HotpotQAPreset"]


@dataclass(frozen=True, slots=True)
class HotpotQAConfig(EmbeddedConfig):
    """Settings of the run on HotpotQA; see `EmbeddedConfig`."""

    num_iterations: int = 2
    learning_rate: float = 3e-4
    max_grad_norm: float = 0.2
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)

    @property
    def imitation_ceiling(self) -> float:
        """Success of a perfect imitation of the impatient expert, over two- and three-hop questions in equal parts."""
        return (self.warm_start.continue_probability + self.warm_start.continue_probability**2) / 2


class HotpotQAPreset(Preset):
    """Bridge questions over worlds of one-token names."""

    env_id: ClassVar[str] = WARM_START_ENV
    label: ClassVar[str] = "hotpotqa"
    goal: ClassVar[str] = "to search and to answer"
    env_kwargs: ClassVar[Mapping[str, Any]] = WARM_START_ENV_KWARGS
    splits: ClassVar[Splits] = Splits("train", "validation", "test")
    config: ClassVar[type[EmbeddedConfig]] = HotpotQAConfig

    def warm_start(
        self, config: EmbeddedConfig, tokenizer: PreTrainedTokenizerBase, *, seed: int, report: Report, success: Success
    ) -> Qwen3ForCausalLM:
        """Imitate until names are copied; see `Preset.warm_start`."""
        settings: WarmStartConfig = config.warm_start
        total = settings.copy_steps + settings.max_steps + settings.decay_steps

        def told(made: WarmStartProgress) -> None:
            step = made.step if made.phase == "copy" else settings.copy_steps + made.step
            report(step, total, {"phase": made.phase, "loss": made.loss, "copied": made.copied})

        model = build_tiny_model(tokenizer, seed)
        demonstrations = record_demonstrations(
            settings.demonstrations, seed=seed, continue_probability=settings.continue_probability, tokenizer=tokenizer
        )
        probes = record_demonstrations(settings.probes, split="validation", seed=seed, continue_probability=1.0, tokenizer=tokenizer)
        warm_start(model, tokenizer, demonstrations, probes, seed=seed, config=settings, on_progress=told)
        return model

    def prepare(self, model: Any) -> None:
        """Freeze the embedding, so that names that no training world holds stay as good as the others; see `Preset.prepare`."""
        freeze_embedding(model)
