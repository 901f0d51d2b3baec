"""`PlayingTrainer`: the part of a trainer that plays the episodes of a generation batch, on one rank and on many.

It makes the environments, gives the rows their groups and seeds, has the policy (or a rollout function) play them, and gathers what came of it over all
ranks. What is learned from the episodes is the business of its subclass.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from agent_gym._names import as_ids
from agent_gym.flows import EnvPool, FaultMonitor, TooManyFaults, run_rows
from agent_gym.policies.base import Sampling, derive_seed
from agent_gym.trainers.environments import EnvironmentMaker, default_rows
from agent_gym.trainers.episodes import count_faults, flow_figures, group_numbers, with_groups
from agent_gym.trainers.faults import RankFaults, agree, drop_unreadable, read_rows
from agent_gym.trainers.resilience import ResilientTrainer
from agent_gym.trainers.rows import pack_trajectory, unpack_trajectory
from agent_gym.trajectory import Trajectory

__all__ = ["PlayingTrainer"]


class PlayingTrainer(ResilientTrainer):
    """Plays generation batches. Its subclass sets the attributes, and trains.

    Attributes:
        policy: samples the replies; None where `rollout` plays.
        flow: how episodes are played; None is one environment loop per episode.
        rollout: `callable(trainer, examples) -> list[Trajectory]` in place of policy and flow; None for none.
    """

    policy: Any
    flow: Any
    rollout: Any
    _pool: EnvPool
    _generation: tuple[str, int, int]

    def train(self, resume_from_checkpoint: Any = None, trial: Any = None, ignore_keys_for_eval: Any = None) -> Any:
        """Train (see `transformers.Trainer.train`), and close environments and workers however that ends."""
        try:
            return super().train(resume_from_checkpoint, trial, ignore_keys_for_eval)
        finally:
            self._pool.close()

    def close(self) -> None:
        """Let go of what the settings asked for and this trainer made: an engine. It cannot play any more."""
        if self.args.use_vllm:
            self.policy.close()

    # ------------------------------------------------------------------------------------------------ environments and episodes

    def _environment_maker(self, env: Any, env_kwargs: Mapping[str, Any] | None) -> EnvironmentMaker:
        tokenizer = self._tokenizer
        model = self.accelerator.unwrap_model(self.model)
        rows = int(model.get_input_embeddings().weight.shape[0]) or int(model.config.get_text_config().vocab_size)
        if len(tokenizer) > rows:
            raise ValueError(
                f"the tokenizer has {len(tokenizer)} entries, the model's embedding {rows} rows; call model.resize_token_embeddings(len(tokenizer)) first"
            )
        stops = as_ids(model.generation_config.eos_token_id)
        settings: dict[str, Any] = {"max_turns": self.args.max_turns, "max_action_tokens": self.args.max_completion_length}
        if self.chat_template_kwargs:
            settings["template_kwargs"] = self.chat_template_kwargs
        return EnvironmentMaker(env, tokenizer=tokenizer, vocab_size=rows, end_of_turn_ids=stops, env_kwargs=env_kwargs, settings=settings)

    def _own_rows(self) -> list[dict[str, Any]]:
        probe = self.make_env()
        try:
            return default_rows(probe, self.make_env.env_id, self.make_env.env_kwargs)
        finally:
            probe.close()

    def _examples(self, inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Read this rank's rows and give them group ids that hold over all ranks: runs of equal rows, at most `num_generations` long."""
        size = int((self.num_generations if self.mode == "train" else self.num_generations_eval) or 1)
        local = read_rows(inputs, self.make_env.env_id)
        keys = [json.dumps(row, sort_keys=True, default=str) for row in local]
        everywhere = self._gather(keys)
        first = self.accelerator.process_index * len(keys) if len(everywhere) > len(keys) else 0
        batch = "-".join(str(part) for part in self._generation)
        numbers = group_numbers(everywhere, size)
        examples = []
        for row, number in zip(local, numbers[first:], strict=False):
            if row["seed"] is None:
                row = {**row, "seed": derive_seed(self.args.seed, "task", batch, number) % 2**31}
            kwargs = {**self.make_env.env_kwargs, **row["env_kwargs"]}
            examples.append({**row, "env_kwargs": kwargs, "group_id": f"{batch}-{number}"})
        return examples

    @contextmanager
    def _sampling_mode(self) -> Iterator[None]:
        """No gradients, no dropout, no gradient checkpointing; TRL reads its metrics mode from `model.training`, so that is put back."""
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.train(training)

    def _play_with_others(self, examples: list[dict[str, Any]]) -> tuple[list[Trajectory], dict[str, float]]:
        """Play this rank's episodes; where one rank meets too many faults, all of them stop with its reason."""
        if self.accelerator.num_processes == 1:
            return self._play(examples, self.faults)
        own, failure = RankFaults(self.args.on_fault, self.accelerator.num_processes), ""
        played: list[Trajectory] = []
        figures: dict[str, float] = {}
        try:
            played, figures = self._play(examples, own)
        except TooManyFaults as error:
            failure = str(error)
        agree(self.faults, self._gather([(failure, own.outcomes)]))
        return played, figures

    def _play(self, examples: list[dict[str, Any]], monitor: FaultMonitor) -> tuple[list[Trajectory], dict[str, float]]:
        """Play this rank's episodes and check that they speak the model's tokenizer. Returns them and the figures of this rank."""
        start = time.perf_counter()
        playable, places = drop_unreadable(examples, monitor)
        with self._sampling_mode():
            if self.rollout is not None:
                played = list(self.rollout(self, playable)) if playable else []
                figures = count_faults(played, monitor)
            else:
                first = self.accelerator.process_index * len(examples)
                played, figures = self._run_flow(playable, [first + place for place in places], monitor)
        figures["rollout/faults"] += len(examples) - len(playable)
        figures["rollout/seconds"] = time.perf_counter() - start
        return with_groups(played, playable, self.make_env.fingerprint), figures

    def _run_flow(
        self, examples: list[dict[str, Any]], numbers: Sequence[int], monitor: FaultMonitor
    ) -> tuple[list[Trajectory], dict[str, float]]:
        """Play the episodes with the policy, many at once. Their numbers among those of all ranks give them the seeds that they have on one."""
        own = self.accelerator.unwrap_model(self.model)
        if getattr(self.policy, "model", None) is own:  # another engine knows its weights' step itself
            self.policy.version = int(self.state.global_step)
        result = run_rows(
            examples,
            self.policy,
            sampling=Sampling(temperature=self.temperature, max_tokens=self.max_completion_length or 512),
            flow="agent_env_loop" if self.flow is None else self.flow,
            max_concurrency=self.args.max_concurrency,
            pool=self._pool,
            seed=derive_seed(self.args.seed, "rollout", 0, *self._generation),
            row_numbers=numbers,
            max_fault_retries=self.args.max_fault_retries,
            monitor=monitor,
            drop_bad_rows=True,
        )
        return list(result.trajectories), flow_figures(result, examples)

    def _gather_trajectories(self, local: Sequence[Trajectory], figures: Mapping[str, float]) -> list[Trajectory]:
        """All ranks' episodes in rank order; records the figures of the ranks: counts summed up, seconds of the slowest."""
        if self.accelerator.num_processes == 1:
            everywhere, gathered = list(local), [figures]
        else:
            gathered = self._gather([figures])
            everywhere = [unpack_trajectory(packed) for packed in self._gather([pack_trajectory(item) for item in local])]
        for name in sorted({name for rank in gathered for name in rank}):
            values = [rank.get(name, 0.0) for rank in gathered]
            self._record({name: max(values) if name.startswith("rollout/seconds") else sum(values)})
        return everywhere
