"""What the presets of worlds that are played by commands share: a warm start by imitation of a clumsy expert (`agent_gym.trainers.imitation`)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from agent_gym.trainers.imitation import Expert, ImitationConfig, ImitationProgress, imitate, record_demonstrations
from agent_gym.trainers.presets.base import EmbeddedConfig, Preset, Report, Success
from agent_gym.trainers.tiny_model import TinyShape, build_tiny_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

__all__ = ["CommandConfig", "CommandPreset"]

Own = TypeVar("Own", bound="CommandConfig")


@dataclass(frozen=True, slots=True)
class CommandConfig(EmbeddedConfig):
    """Settings of a run on a world of commands; see `EmbeddedConfig`.

    Attributes:
        env_kwargs: keywords of the environment, over those of the preset.
    """

    warm_start: ImitationConfig = field(default_factory=ImitationConfig)
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def smoke(self: Own) -> Own:
        """Two updates behind a little imitation, which need not succeed.

        Episodes are short, and what is impossible costs something, so that there is something to learn.

        Returns:
            A configuration of the same class.
        """
        few = replace(self.warm_start, demonstrations=64, copy_steps=20, steps=60, decay_steps=0, success_at_least=0.0)
        short = {"invalid_penalty": 0.05, "max_turns": 6, **self.env_kwargs}
        return replace(self, updates=2, eval_tasks=16, curve_tasks=0, tasks_per_update=4, warm_start=few, env_kwargs=short)


class CommandPreset(Preset):
    """A world of commands, and the clumsy expert that the model is started on."""

    @abstractmethod
    def expert(self, settings: Any) -> Expert:
        """Return who is imitated.

        Args:
            settings: of the warm start.

        Returns:
            See `Expert`.
        """

    def keywords(self, config: Any) -> Mapping[str, Any]:
        """The environment's keywords; see `Preset.keywords`."""
        return {**self.env_kwargs, **config.env_kwargs}

    def warm_start(
        self, config: EmbeddedConfig, tokenizer: PreTrainedTokenizerBase, *, seed: int, report: Report, success: Success
    ) -> Qwen3ForCausalLM:
        """Imitate until some tasks are solved; see `Preset.warm_start`."""
        settings: ImitationConfig = config.warm_start
        total = settings.copy_steps + settings.steps + settings.decay_steps  # more only where they do not suffice

        def told(made: ImitationProgress) -> None:
            measured = {} if made.success is None else {"sampled": made.success}
            report(made.step, max(total, made.step), {"phase": made.phase, "loss": made.loss, "accuracy": made.accuracy, **measured})

        model = build_tiny_model(tokenizer, seed, TinyShape(layers=3))
        demonstrations = record_demonstrations(
            self.env_id,
            {**self.keywords(config), "split": self.splits.train},
            settings.demonstrations,
            slip=settings.slip,
            seed=seed,
            expert=self.expert(settings),
            tokenizer=tokenizer,
        )
        imitate(model, demonstrations, success, seed=seed, config=settings, on_progress=told)
        return model
