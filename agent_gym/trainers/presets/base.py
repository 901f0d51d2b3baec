"""What a preset of the embedded run has to say: its tasks, its settings and its warm start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from agent_gym.chat import load_tokenizer
from agent_gym.flows.workers import parse_workers
from agent_gym.trainers.advantages import check_advantage
from agent_gym.trainers.critic_settings import check_critic_settings
from agent_gym.trainers.distill_settings import check_distill_settings, is_address
from agent_gym.trainers.kinds import get_trainer
from agent_gym.trainers.reporting import check_trackers, parse_trackers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

__all__ = ["DISTILL_KEYS", "PPO_DEFAULTS", "PPO_KEYS", "REPLAY_KEYS", "EmbeddedConfig", "Preset", "Report", "Splits", "Success"]

Report = Callable[[int, int, Mapping[str, Any]], None]
"""Told how a warm start goes on: (step, total, values)."""
Success = Callable[[Any], float]
"""The preset's figure (see `Preset.figure`) of a model that is sampled on tasks of the curve's split."""
Own = TypeVar("Own", bound="EmbeddedConfig")
PPO_KEYS = (
    "critic_learning_rate",
    "critic_epochs",
    "critic_minibatches",
    "critic_warmup_updates",
    "value_clip",
    "gamma",
    "lam",
    "critic_lam",
)
PPO_DEFAULTS: Mapping[str, Any] = MappingProxyType({"critic_learning_rate": 2e-3, "critic_epochs": 2, "critic_minibatches": 2})
"""Settings of the critic in an embedded run that are not those of `AgentPPOConfig`."""
DISTILL_KEYS = ("teacher", "distill_loss", "reward_weight", "teacher_temperature")
SCHEDULES = ("constant", "linear", "cosine")
REPLAY_KEYS = ("files", "ratio", "max_age", "correction", "base_version")


class Splits(NamedTuple):
    """The environment's splits.

    Attributes:
        train: demonstrations and training.
        curve: whatever is measured on the way: the end of the warm start, the curve between the updates.
        held_out: before and after; nothing is chosen by it.
    """

    train: str
    curve: str
    held_out: str


@dataclass(frozen=True, slots=True)
class EmbeddedConfig:
    """Settings of an embedded run. A preset has a subclass with defaults of its own and a `warm_start` of its own type.

    Attributes:
        updates: generation batches that are trained on. Everything that is counted in updates counts these.
        num_iterations: optimiser steps with each generation batch. Playing costs most of the time here, so a second step costs little; the ratio of
            the clipped loss keeps it near the weights that played.
        tasks_per_update: tasks in a generation batch.
        num_generations: episodes per task.
        learning_rate: of the policy.
        lr_scheduler_type: "constant", or how the learning rate falls to nothing over the run: "linear" or "cosine".
        max_grad_norm: gradients are cut down to this norm. A batch with few successes can have one several times larger than the others.
        max_action_tokens: longest reply, in tokens.
        eval_tasks: held-out tasks, before and after.
        curve_tasks: tasks of the curve's split between the updates; 0 measures none.
        curve_every: updates between two points of the curve.
        save_every: updates between two checkpoints.
        warm_start: of the warm start; a dataclass.
        algorithm: "grpo"; "ppo", which has a critic; or "distill", which has a teacher (see `agent_gym.trainers.kinds`).
        advantage: name of the estimator (see `agent_gym.trainers.advantages`); empty for the algorithm's own: grpo, or step_gae.
        advantage_kwargs: its settings.
        replay: episodes that are trained on again: `files`, and optionally `ratio`, `max_age`, `correction`, `base_version` (the fields `replay_*` of
            `AgentGRPOConfig`); empty replays nothing.
        workers: where the environments of the training live (see `agent_gym.flows.parse_workers`); None for this process. Evaluations play here.
        on_fault: what is done about faults: "drop" goes on without what they spoilt, "stop" ends the run (see `agent_gym.flows.FAULTS`).
        ppo: settings of the critic: any of `PPO_KEYS`, fields of `AgentPPOConfig`; what is left out is as in the preset's `ppo_defaults`.
        distill: the teacher and how it is learned from: any of `DISTILL_KEYS`, fields of `AgentDistillConfig`.
        report_to: "tensorboard", "wandb" or "trackio", or several (`agent_gym.trainers.reporting`); the run folder has everything without them.
    """

    updates: int = 50
    num_iterations: int = 1
    tasks_per_update: int = 16
    num_generations: int = 8
    learning_rate: float = 5e-4
    lr_scheduler_type: str = "constant"
    max_grad_norm: float = 1.0
    max_action_tokens: int = 40
    eval_tasks: int = 200
    curve_tasks: int = 64
    curve_every: int = 10
    save_every: int = 10
    warm_start: Any = None
    algorithm: str = "grpo"
    advantage: str = ""
    advantage_kwargs: Mapping[str, Any] = field(default_factory=dict)
    replay: Mapping[str, Any] = field(default_factory=dict)
    workers: int | str | None = None
    ppo: Mapping[str, Any] = field(default_factory=dict)
    distill: Mapping[str, Any] = field(default_factory=dict)
    on_fault: str = "drop"
    report_to: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        """Take a mapping for the warm start, as a configuration file gives it, and check the sizes.

        Raises:
            ValueError: naming the setting.
        """
        if isinstance(self.warm_start, Mapping):
            make = next(one.default_factory for one in fields(self) if one.name == "warm_start")
            object.__setattr__(self, "warm_start", replace(make(), **self.warm_start))  # type: ignore[operator]  # every preset has one
        kind = get_trainer(self.algorithm)
        object.__setattr__(self, "advantage", self.advantage or kind.advantage)
        check_advantage(self.advantage, self.advantage_kwargs, critic=kind.critic)
        object.__setattr__(self, "workers", parse_workers(self.workers))
        object.__setattr__(self, "report_to", parse_trackers(self.report_to))
        check_trackers(self.report_to)
        unknown = sorted(set(self.ppo) - set(PPO_KEYS))
        if unknown or (self.ppo and not kind.critic):
            what = f"unknown are {', '.join(unknown)}" if unknown else f"algorithm={self.algorithm!r} has no critic"
            raise ValueError(f"ppo has the keys {', '.join(PPO_KEYS)}; {what}")
        if kind.critic:
            replayed = str(self.replay.get("correction", "token_truncate")) if self.replay else None
            check_critic_settings(self.advantage, self.advantage_kwargs, self.ppo, replayed=replayed)
        self._check_teacher(kind.teacher)
        least = {"updates": 1, "num_iterations": 1, "tasks_per_update": 1, "num_generations": 1 if kind.critic or kind.teacher else 2}
        least |= {"max_action_tokens": 1, "eval_tasks": 1}
        least |= {"curve_tasks": 0, "curve_every": 1, "save_every": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {low}")
        if self.lr_scheduler_type not in SCHEDULES:
            raise ValueError(f"lr_scheduler_type={self.lr_scheduler_type!r} is not among {', '.join(SCHEDULES)}")
        unknown = sorted(set(self.replay) - set(REPLAY_KEYS))
        if unknown or (self.replay and not self.replay.get("files")):
            what = f"unknown are {', '.join(unknown)}" if unknown else "'files' is missing"
            raise ValueError(f"replay has the keys {', '.join(REPLAY_KEYS)}; {what}")
        ratio = self.replay.get("ratio", 1.0)
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio < float("inf"):
            raise ValueError(f"replay.ratio={ratio!r} must be a positive number: replayed episodes per fresh one")
        if self.on_fault not in ("drop", "stop"):
            raise ValueError(f"on_fault={self.on_fault!r} is not among drop, stop")
        for name in ("learning_rate", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")

    def _check_teacher(self, wanted: bool) -> None:
        unknown = sorted(set(self.distill) - set(DISTILL_KEYS))
        if unknown or (self.distill and not wanted):
            what = f"unknown are {', '.join(unknown)}" if unknown else f"algorithm={self.algorithm!r} has no teacher; distill has one"
            raise ValueError(f"distill has the keys {', '.join(DISTILL_KEYS)}; {what}")
        if not wanted:
            return
        teacher = self.distill.get("teacher")
        if not isinstance(teacher, str) or not teacher:
            raise ValueError(
                f"distill.teacher={teacher!r}: which model is learned from? --teacher FOLDER (a trained model or run), or the address of its server"
            )
        check_distill_settings(self.distill, server=is_address(teacher), advantage=self.advantage, num_generations=self.num_generations)
        if self.replay:
            raise ValueError("replay with algorithm='distill': a teacher scores what the student samples now; use grpo to replay")

    @property
    def imitation_ceiling(self) -> float | None:
        """The preset's figure of a perfect imitation of the demonstrations, where it can be computed."""
        return None

    def smoke(self: Own) -> Own:
        """The same run with two updates and few tasks, to see that everything works.

        Returns:
            A configuration of the same class.
        """
        return replace(self, updates=2, eval_tasks=20, curve_tasks=0, tasks_per_update=4)


class Preset(ABC):
    """One environment of the embedded run.

    Attributes:
        env_id: of the environment.
        label: the first word of the run folder's default name.
        goal: what the model learns, for people.
        figure: what counts, an estimate of `agent_gym.evaluation`: "success", or one of the environment's metrics.
        env_kwargs: its keywords besides the split; JSON, since run folders keep them.
        splits: see `Splits`.
        config: the type of the settings; its defaults are the preset's.
        ppo_defaults: of the settings of the critic.
    """

    env_id: ClassVar[str]
    label: ClassVar[str]
    goal: ClassVar[str]
    figure: ClassVar[str] = "success"
    env_kwargs: ClassVar[Mapping[str, Any]]
    splits: ClassVar[Splits]
    config: ClassVar[type[EmbeddedConfig]]
    ppo_defaults: ClassVar[Mapping[str, Any]] = PPO_DEFAULTS

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Return the tokenizer of the run; it is kept with each checkpoint.

        Returns:
            The default one, unless a preset has another.
        """
        return load_tokenizer()

    def keywords(self, config: Any) -> Mapping[str, Any]:
        """Return the keywords of the environment in a run.

        Args:
            config: of type `config`.

        Returns:
            Those of the preset, and what the settings say of them; without the split.
        """
        return self.env_kwargs

    @abstractmethod
    def warm_start(
        self, config: EmbeddedConfig, tokenizer: PreTrainedTokenizerBase, *, seed: int, report: Report, success: Success
    ) -> Qwen3ForCausalLM:
        """Make the model and bring it to where reinforcement learning can begin.

        Args:
            config: of type `config`.
            tokenizer: that of `tokenizer`.
            seed: of weights and demonstrations.
            report: to be told now and then how it goes on.
            success: measures the model by the preset's figure.

        Returns:
            The model.

        Raises:
            WarmStartFailed: where reinforcement learning would have nothing to begin with.
        """

    def prepare(self, model: Any) -> None:
        """Make ready for training what a checkpoint does not remember, such as frozen weights.

        Args:
            model: loaded from the warm start's checkpoint.
        """
        return None
