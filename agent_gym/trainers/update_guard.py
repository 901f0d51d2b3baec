"""`UpdateGuard`: an optimiser step without a learning signal is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

if TYPE_CHECKING:
    from agent_gym.trainers.grpo import AgentGRPOTrainer

__all__ = ["UpdateGuard"]


class UpdateGuard(TrainerCallback):  # type: ignore[misc,unused-ignore]  # partly untyped base
    """Skips the optimiser step of a window without signal: gradients of None, so neither momentum nor weight decay moves a weight.

    Args:
        trainer: whose model is guarded.
    """

    def __init__(self, trainer: AgentGRPOTrainer) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the gradients away where the window had no signal; see `transformers.TrainerCallback.on_pre_optimizer_step`."""
        if not self.trainer._window_has_signal:
            for parameter in self.trainer.model.parameters():
                parameter.grad = None
        self.trainer._window_has_signal = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Have the trainer remember what its checkpoint kept; see `transformers.TrainerCallback.on_train_begin`."""
        self.trainer.take_up()
