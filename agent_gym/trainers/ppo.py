"""`AgentPPOTrainer`: PPO with a critic of its own, over steps or over action tokens.

It is `AgentGRPOTrainer` with other advantages. For each generation batch the critic says what every state was worth, generalised advantage
estimation turns that into advantages, and the policy is trained on them as ever: the same rows, the same clipped loss. Before that, the critic is trained
on the batch, with an optimiser of its own, towards what the estimate says it should have said.

The critic stands outside of `self.model`. Each rank holds it whole and reads its share of the rows; its gradients are summed over the ranks here,
since it is not part of what accelerate wraps. Its loss and the policy's never share a graph.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent_gym.trainers.advantages import Advantages, GaeTerms, bootstraps, exclusion_reason, step_gae_terms, token_gae_terms
from agent_gym.trainers.critic import Critic, collate_values, make_critic, value_loss
from agent_gym.trainers.critic_settings import check_critic_settings
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trainers.ppo_config import AgentPPOConfig
from agent_gym.trainers.rows import DUMMY, Plan, Row, plan
from agent_gym.trainers.tensors import SubBatch
from agent_gym.trainers.values import ValueRow, build_value_rows, explained_variance

try:
    from accelerate.utils import broadcast
except ImportError as error:  # pragma: no cover - exercised where the extra is absent
    raise ImportError(f'training needs TRL and torch: pip install "agentr1-gym[train]" ({error})') from error

__all__ = ["CRITIC_FILE", "AgentPPOConfig", "AgentPPOTrainer"]

CRITIC_FILE = "critic.pt"
"""The critic and its optimiser in a checkpoint, beside the policy's files."""


class AgentPPOTrainer(AgentGRPOTrainer):
    """Trains a language model on episodes of a Gymnasium environment by PPO, with a separate critic.

    Groups are not needed: with `num_generations=1`, the default, every episode of a generation batch is of another task.

    Args:
        model: as for `AgentGRPOTrainer`.
        args: the settings.
        *positional: as for `AgentGRPOTrainer`, in its order: env, train_dataset, ...
        critic: the critic (see `make_critic`); None takes `args.critic_model`, or a copy of the policy's backbone.
        **keywords: as for `AgentGRPOTrainer`.

    Attributes:
        critic: the critic, a `agent_gym.trainers.critic.Critic`.
        critic_optimizer: its AdamW.
        values: of the latest generation batch, per trajectory: V of each step, shape (number of steps,), or for estimators over tokens one array per step
            of shape (number of action tokens,). What the advantages were made of, so those of the critic before it was trained on the batch.
        bootstrap: of the latest generation batch, per trajectory: V of the final observation, 0 where none is asked for.

    Raises:
        TypeError: for settings or a critic of another type.
        ValueError: as `AgentGRPOTrainer`, and for a critic that cannot read what the policy reads.
    """

    _name = "Agent-PPO"

    def __init__(self, model: Any, args: AgentPPOConfig | None = None, *positional: Any, critic: Any = None, **keywords: Any) -> None:
        args = AgentPPOConfig() if args is None else args
        if not isinstance(args, AgentPPOConfig):
            raise TypeError(f"args must be an AgentPPOConfig, which has the settings of the critic, not {type(args).__name__}")
        if critic is not None and args.critic_model is not None:
            raise ValueError("critic= and args.critic_model are two critics; give one of them")
        super().__init__(model, args, *positional, **keywords)
        if self.replay is not None:
            check_critic_settings(args.advantage, None, {}, replayed=self.replay.correction)
        policy = self.accelerator.unwrap_model(self.model)
        given = args.critic_model if critic is None else critic
        self.critic: Critic = make_critic(given, policy, fingerprint=self.make_env.fingerprint).to(self.accelerator.device)
        if args.gradient_checkpointing:
            self.critic.backbone.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs or {"use_reentrant": False}
            )
        if self.accelerator.num_processes > 1:  # as DDP does for the policy
            with torch.no_grad():
                for parameter in self.critic.parameters():
                    parameter.copy_(broadcast(parameter.detach()))
        self.critic_optimizer = torch.optim.AdamW(
            self._critic_groups(),
            lr=args.critic_learning_rate,
            betas=(args.adam_beta1, args.adam_beta2),
            eps=args.adam_epsilon,
        )
        self.values: list[Any] = []
        self.bootstrap: list[float] = []
        self._policy_waits = False

    def _critic_groups(self) -> list[dict[str, Any]]:
        """The critic's trained parameters; norms and biases do not decay."""
        trained = {name: parameter for name, parameter in self.critic.named_parameters() if parameter.requires_grad}
        decays = set(self.get_decay_parameter_names(self.critic)) & set(trained)
        return [
            {"params": [trained[name] for name in trained if name in decays], "weight_decay": self.args.weight_decay},
            {"params": [trained[name] for name in trained if name not in decays], "weight_decay": 0.0},
        ]

    # ------------------------------------------------------------------------------------------------ from episodes to micro-steps

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> list[list[SubBatch]]:  # type: ignore[override]  # as AgentGRPOTrainer's
        """Play a generation batch, judge it, and train the critic on it.

        Args:
            inputs: as for `AgentGRPOTrainer`.

        Returns:
            The policy's micro-steps.
        """
        self._policy_waits = bool(self.model.training) and int(self.state.global_step) < self.args.critic_warmup_updates
        steps = super()._generate_and_score_completions(inputs)
        targets = self._targets()
        self._record(self._judgement(targets))
        if self.mode == "train":
            self._train_critic(targets)
        return steps

    def _estimator_settings(self) -> dict[str, Any]:
        self.values, self.bootstrap = self._judge()
        return {**super()._estimator_settings(), **self.args.lam_step, "values": self.values, "bootstrap": self.bootstrap}

    def _rows(self, advantages: Advantages, flat: Sequence[Sequence[int]]) -> tuple[list[Row], int]:
        rows, dropped = super()._rows(advantages, flat)
        if self._policy_waits:
            rows = [replace(row, advantages=np.zeros_like(row.advantages)) for row in rows]
        return rows, dropped

    def _replay_rows(self) -> list[Row]:
        return [] if self._policy_waits else super()._replay_rows()

    def _trains_everything(self) -> bool:
        return not self._policy_waits and super()._trains_everything()

    def _watch_signal(self, signal: bool) -> None:
        if not self._policy_waits:  # else it is meant to have none
            super()._watch_signal(signal)

    # ------------------------------------------------------------------------------------------------ judging

    def _deal(self, rows: Sequence[ValueRow], minibatches: int) -> Plan:
        """Deal what the critic reads as the policy's rows are dealt: so many forward passes, or a token budget; whole episodes in each minibatch."""
        passes = self.args.steps_per_generation if self.mode == "train" else 1
        return plan(
            [len(row) for row in rows],
            world=self.accelerator.num_processes,
            windows=minibatches,
            micro=max(1, -(-passes // minibatches)),
            max_tokens=self.args.max_tokens_per_microbatch,
            groups=[row.trajectory for row in rows],
        )

    def _mine(self, rows: Sequence[ValueRow], window: Any) -> Iterator[list[ValueRow]]:
        """The sub-batches of this rank, without those that hold nothing."""
        for micro_step in window:
            for ranks in micro_step:
                mine = [rows[index] for index in ranks[self.accelerator.process_index] if index != DUMMY]
                if mine:
                    yield mine

    def _read(self, rows: Sequence[ValueRow]) -> torch.Tensor:
        """V at the places of some rows, one after another, shape (n,)."""
        with self.accelerator.autocast():
            values: torch.Tensor = self.critic(*collate_values(rows, self.accelerator.device, self.pad_to_multiple_of))
        return values

    def _judge(self) -> tuple[list[Any], list[float]]:
        """V of every state of the batch, the same on all ranks."""
        rows = build_value_rows(self.trajectories, self.estimator.level, merge=self.args.merge_prefix)
        found: list[tuple[int, int, np.ndarray[Any, Any]]] = []
        self.critic.eval()
        with torch.no_grad():
            for mine in self._mine(rows, self._deal(rows, 1).windows[0]):
                numbers = self._read(mine).double().cpu().numpy()
                position = 0
                for row in mine:
                    for place in row.places:
                        count = place.end - place.start
                        found.append((row.trajectory, place.step, numbers[position : position + count]))
                        position += count
        seen = {(number, step): numbers for number, step, numbers in self._gather(found)}
        values: list[Any] = []
        for number, item in enumerate(self.trajectories):
            if exclusion_reason(item) is not None:
                values.append([])  # not read
            elif self.estimator.level == "token":
                values.append([seen.get((number, position), np.zeros(0)) for position in range(len(item.steps))])
            else:
                values.append(np.array([float(seen[number, position][0]) for position in range(len(item.steps))]))
        ends = [seen.get((number, len(item.steps))) for number, item in enumerate(self.trajectories)]
        return values, [0.0 if end is None else float(end[0]) for end in ends]

    def _targets(self) -> Advantages:
        """What the critic should have said, per trajectory and step."""
        settings: Mapping[str, Any] = {**(self.args.advantage_kwargs or {}), **self.args.lam_step}
        names = ("lam_step", "gamma_token", "lam_token") if self.estimator.level == "token" else ("lam_step",)
        chosen: dict[str, float] = {name: settings[name] for name in names if name in settings}
        if self.args.critic_lam is not None:
            chosen.update({name: self.args.critic_lam for name in names if name.startswith("lam")})
        terms = token_gae_terms if self.estimator.level == "token" else step_gae_terms
        found: GaeTerms = terms(self.trajectories, values=self.values, bootstrap=self.bootstrap, gamma=self.args.gamma, **chosen)
        return found.targets

    def _judgement(self, targets: Advantages) -> dict[str, float]:
        """The figures of how well the critic knew the batch before it was trained on it."""
        counts = [number for number, item in enumerate(self.trajectories) if exclusion_reason(item) is None]
        said, wanted = (
            np.concatenate([np.zeros(0), *(np.atleast_1d(step) for number in counts for step in numbers[number])])
            for numbers in (self.values, targets)
        )
        if not len(wanted):
            return {}
        return {
            "critic/explained_variance": explained_variance(said, wanted),
            "critic/value_mean": float(said.mean()),
            "critic/target_mean": float(wanted.mean()),
            "critic/bootstrapped": float(sum(bootstraps(self.trajectories[number]) for number in counts)),
        }

    # ------------------------------------------------------------------------------------------------ training the critic

    def _train_critic(self, targets: Advantages) -> None:
        """Train the critic on the latest generation batch: passes over it, in minibatches of whole episodes."""
        start = time.perf_counter()
        rows = build_value_rows(self.trajectories, self.estimator.level, merge=self.args.merge_prefix, final=False)
        dealt = self._deal(rows, self.args.critic_minibatches)
        sums = torch.zeros(3, dtype=torch.float64, device=self.accelerator.device)  # loss, clipped states, states
        norms: list[float] = []
        self.critic.train()
        for _ in range(self.args.critic_epochs or self.num_iterations):
            for number, window in enumerate(dealt.windows):
                count = sum(rows[index].num_values for index in dealt.rows_of_window(number))
                if not count:
                    continue
                for mine in self._mine(rows, window):
                    sums += self._value_backward(mine, targets, count)
                norms.append(self._critic_step())
        if not norms:
            return
        loss, clipped, states = self.accelerator.reduce(sums, reduction="sum").tolist()
        self._record(
            {
                "critic/value_loss": loss / states,
                "critic/clip_frac": clipped / states,
                "critic/grad_norm": sum(norms) / len(norms),
                "critic/updates": float(len(norms)),
                "critic/seconds": time.perf_counter() - start,
            }
        )

    def _value_backward(self, rows: Sequence[ValueRow], targets: Advantages, count: int) -> torch.Tensor:
        """Add the gradient of some rows, of a minibatch of `count` states over all ranks. Returns the sums of the figures, shape (3,)."""
        values = self._read(rows)
        old, wanted = (
            torch.as_tensor(
                np.concatenate([np.atleast_1d(numbers[row.trajectory][place.step]) for row in rows for place in row.places]),
                dtype=values.dtype,
                device=values.device,
            )
            for numbers in (self.values, targets)
        )
        terms = value_loss(values, old, wanted, self.args.value_clip)
        torch.autograd.backward(terms.loss.sum() / count)
        return torch.stack([terms.loss.detach().sum().double(), terms.clipped.sum().double(), terms.loss.new_tensor(len(wanted)).double()])

    def _critic_step(self) -> float:
        """Sum the gradients over the ranks, clip, and move. Returns the norm before clipping."""
        trained = [parameter for group in self.critic_optimizer.param_groups for parameter in group["params"]]
        if self.accelerator.num_processes > 1:
            for parameter in trained:
                own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = self.accelerator.reduce(own, reduction="sum")
        limit = self.args.max_grad_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(trained, limit)
        self.critic_optimizer.step()
        self.critic_optimizer.zero_grad(set_to_none=True)
        return float(norm)

    # ------------------------------------------------------------------------------------------------ checkpoints

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            torch.save(
                {"critic": self.critic.state_dict(), "optimizer": self.critic_optimizer.state_dict()}, Path(output_dir) / CRITIC_FILE
            )

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[no-untyped-call,unused-ignore]  # partly untyped base
        if checkpoint is None:
            return
        path = Path(checkpoint) / CRITIC_FILE
        if not path.is_file():
            raise ValueError(
                f"the checkpoint {checkpoint} holds no {CRITIC_FILE}: it is that of a run without a critic, or of one with save_only_model. Begin a run "
                "from its model instead (model=, without resume_from_checkpoint)"
            )
        stored = torch.load(path, map_location=self.accelerator.device, weights_only=True)
        self.critic.load_state_dict(stored["critic"])
        self.critic_optimizer.load_state_dict(stored["optimizer"])
