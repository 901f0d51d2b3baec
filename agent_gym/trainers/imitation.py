"""Imitation: cross entropy on demonstrations, through the same rows as reinforcement learning, until the model does the task at times.

Two parts. The lower one (`Batch`, `pack`, `predictions`, `shuffled`) is what any imitation here is made of. The upper one is a warm start for
environments that are played by commands (`agent_gym.envs.commands.CommandEnv`):

1. `record_demonstrations` has a *clumsy* expert play: now and then it carries out another command instead of the right one.
2. **A copy exercise**: random sequences of the entries that the demonstrations are written in, three times over, after which names are copied far
   sooner from what the model was told into what it says.
3. **Imitation of what the expert meant.** Its slips are not learned here, but they lead to where an expert would never be, before the wrong cupboard
   or told that nothing happens, and how to go on from there is. Without them the model's first mistake is its last sensible step.
4. The same **with a falling learning rate**, which steadies the model: success over a dozen commands rises from a twentieth to a third.

Then the model plays tasks of another split. **Where it does not succeed now and then, the third and fourth are gone through again**; the figure at the
full learning rate would say little about the one behind it. A model that never succeeds is never rewarded, so that where imitation does not bring it
that far, this raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from agent_gym.trainers.rows import build_rows
from agent_gym.trajectory import Trajectory
from agent_gym.wrappers.recorder import StepRecorder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

__all__ = [
    "IGNORED",
    "Batch",
    "Demonstration",
    "Expert",
    "ImitationConfig",
    "ImitationProgress",
    "ImitationResult",
    "Turn",
    "WarmStartFailed",
    "imitate",
    "own_expert",
    "pack",
    "predictions",
    "record_demonstrations",
    "shuffled",
]


class Turn(NamedTuple):
    """What an expert says now, and what it might say instead.

    Attributes:
        reply: the right one.
        slip: another one, as a beginner might give it; its command need not be admissible.
    """

    reply: str
    slip: str


Expert = Callable[[Any, np.random.Generator], Callable[[Mapping[str, Any]], Turn]]
"""Called with the environment at the start of an episode and a generator; returns a function from info to the next turn."""
IGNORED = -100
_POOLED = 8  # batches that are sorted by length together
_Marked = tuple[NDArray[np.int64], NDArray[np.bool_]]


class WarmStartFailed(RuntimeError):
    """Imitation did not bring the model to where reinforcement learning can begin."""


# ---------------------------------------------------------------------------------------------------- batches


@dataclass(frozen=True, slots=True)
class Batch:
    """Right-padded sequences.

    Attributes:
        ids: int64, shape (rows, length).
        targets: the ids that are to be learned, `IGNORED` elsewhere; int64, shape (rows, length).
    """

    ids: torch.Tensor
    targets: torch.Tensor


def pack(sequences: Sequence[_Marked]) -> Batch:
    """Make a batch.

    Args:
        sequences: ids, and which of them are to be learned.

    Returns:
        The batch, as long as the longest of them.
    """
    length = max(len(ids) for ids, _ in sequences)
    all_ids = np.zeros((len(sequences), length), dtype=np.int64)
    targets = np.full((len(sequences), length), IGNORED, dtype=np.int64)
    for index, (ids, mask) in enumerate(sequences):
        all_ids[index, : len(ids)] = ids
        targets[index, : len(ids)][mask] = ids[mask]
    return Batch(torch.from_numpy(all_ids), torch.from_numpy(targets))


def predictions(model: Qwen3ForCausalLM, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute what the model says where something is to be learned. Right padding needs no mask in a causal model.

    Args:
        model: the model.
        batch: n ids in it are to be learned.

    Returns:
        Logits, shape (n, vocabulary), of the model's dtype, and targets, shape (n,), int64.
    """
    hidden = model.model(input_ids=batch.ids).last_hidden_state[:, :-1]
    targets = batch.targets[:, 1:]
    wanted = targets != IGNORED
    return model.lm_head(hidden[wanted]), targets[wanted]


def shuffled(number: int, rng: np.random.Generator, size: int) -> Iterator[NDArray[np.int64]]:
    """Deal indices, each once per round.

    Args:
        number: there are the indices from 0 to number - 1.
        rng: of the order.
        size: how many at a time.

    Yields:
        Indices, shape (size,), int64.
    """
    waiting = np.empty(0, dtype=np.int64)
    while True:
        while len(waiting) < size:
            waiting = np.concatenate([waiting, rng.permutation(number)])
        yield waiting[:size]
        waiting = waiting[size:]


# ---------------------------------------------------------------------------------------------------- demonstrations


class Demonstration(NamedTuple):
    """An episode of the clumsy expert.

    Attributes:
        trajectory: the episode, with the environment's own ids.
        meant: for each step, whether the expert meant it; the others are slips.
    """

    trajectory: Trajectory
    meant: tuple[bool, ...]


def own_expert(env: Any, rng: np.random.Generator) -> Callable[[Mapping[str, Any]], Turn]:
    """Return the environment's own expert, who may know more than a model can know. See `Expert`.

    Args:
        env: a `CommandEnv` with an expert.
        rng: of the slips: any command that was admissible at some time in the episode.

    Returns:
        A function from info to the next turn.
    """
    expert = env.expert()
    known: dict[str, None] = {}

    def act(info: Mapping[str, Any]) -> Turn:
        known.update(dict.fromkeys(info["admissible_commands"]))
        reply = expert()
        return Turn(reply, env.write_command(list(known)[rng.integers(len(known))]) if known else reply)

    return act


def record_demonstrations(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    episodes: int,
    *,
    slip: float,
    seed: int,
    expert: Expert = own_expert,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> list[Demonstration]:
    """Record episodes of the clumsy expert.

    Args:
        env_id: a registered `CommandEnv` with an expert.
        env_kwargs: its keywords, the split among them.
        episodes: how many.
        slip: probability that a step is the expert's slip.
        seed: of tasks, slips and the expert.
        expert: who plays.
        tokenizer: of the environment; None for its own default.

    Returns:
        The episodes.

    Raises:
        ValueError: if the environment is not played by commands or has no expert.
    """
    import agent_gym  # noqa: F401  # registers the ids
    from agent_gym.envs.commands import CommandEnv

    env = StepRecorder(gymnasium.make(env_id, tokenizer=tokenizer, disable_env_checker=True, **env_kwargs))
    base: Any = env.unwrapped
    if not isinstance(base, CommandEnv) or base.expert() is None:
        env.close()
        raise ValueError(f"demonstrations need an environment that is played by commands and has an expert, and {env_id} is none")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    task_seeds = np.random.default_rng(np.random.SeedSequence([seed, 2])).integers(2**31, size=episodes)
    recorded = []
    try:
        for task_seed in task_seeds:
            _, info = env.reset(seed=int(task_seed))
            act = expert(base, rng)
            meant: list[bool] = []
            while env.running:
                turn = act(info)
                meant.append(rng.random() >= slip)
                _, _, _, _, info = env.step(base.encode_action(turn.reply if meant[-1] else turn.slip))
            recorded.append(Demonstration(env.trajectory, tuple(meant)))
    finally:
        env.close()
    return recorded


# ---------------------------------------------------------------------------------------------------- the warm start


@dataclass(frozen=True, slots=True)
class ImitationConfig:
    """The settings of a warm start by imitation.

    Attributes:
        demonstrations: episodes to imitate.
        slip: see `record_demonstrations`.
        copy_steps: optimiser steps of the copy exercise.
        copy_entries: entries in a sequence of the exercise.
        copy_repeats: how often each sequence stands there.
        batch_size: sequences per optimiser step.
        learning_rate: of AdamW, after `warmup_steps` steps of linear growth.
        warmup_steps: at the start of the exercise and of imitation.
        betas: of AdamW.
        weight_decay: of AdamW.
        max_grad_norm: gradient clipping.
        report_every: steps between two reports.
        steps: optimiser steps at the full learning rate.
        decay_steps: steps behind them, with linearly falling learning rate; then success is measured.
        success_at_least: the sampled success that ends imitation.
        more_steps: where that was not reached, steps at the full learning rate before the next decay.
        max_steps: no further round begins after as many steps; then it has failed.
    """

    demonstrations: int = 2500
    slip: float = 0.3
    copy_steps: int = 100
    copy_entries: int = 16
    copy_repeats: int = 3
    batch_size: int = 16
    learning_rate: float = 5e-3
    warmup_steps: int = 20
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    report_every: int = 10
    steps: int = 200
    decay_steps: int = 50
    success_at_least: float = 0.17
    more_steps: int = 25
    max_steps: int = 800

    def __post_init__(self) -> None:
        """Check the sizes.

        Raises:
            ValueError: naming the setting.
        """
        least = {
            "demonstrations": 1,
            "copy_steps": 0,
            "batch_size": 1,
            "report_every": 1,
            "warmup_steps": 1,
            "steps": 1,
            "decay_steps": 0,
            "more_steps": 1,
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {low}")


class ImitationProgress(NamedTuple):
    """What a progress callback is told.

    Attributes:
        phase: "copy", "imitation" or "decay".
        step: optimiser steps of all phases so far.
        loss: of the last step, in natural logarithm per token.
        accuracy: how often the most likely token of the last batch was the right one.
        success: of the last measurement; None before the first.
    """

    phase: str
    step: int
    loss: float
    accuracy: float
    success: float | None


@dataclass(frozen=True, slots=True)
class ImitationResult:
    """How a warm start went.

    Attributes:
        steps: optimiser steps of imitation.
        success: sampled success at the end.
    """

    steps: int
    success: float


class _Learner:
    """AdamW with a learning rate that rises linearly."""

    def __init__(self, model: Qwen3ForCausalLM, config: ImitationConfig) -> None:
        self.model, self.config, self.steps = model, config, 0
        self.adamw = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay)

    def step(self, batch: Batch, share: float = 1.0) -> tuple[float, float]:
        """Learn a batch. Returns loss and accuracy."""
        self.steps += 1
        for group in self.adamw.param_groups:
            group["lr"] = self.config.learning_rate * min(1.0, self.steps / self.config.warmup_steps) * share
        logits, targets = predictions(self.model, batch)
        loss = functional.cross_entropy(logits, targets)
        self.adamw.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        self.adamw.step()
        return float(loss.detach()), float((logits.argmax(-1) == targets).float().mean())


def _copy_exercises(entries: NDArray[np.int64], rng: np.random.Generator, config: ImitationConfig) -> Iterator[Batch]:
    number = min(config.copy_entries, len(entries))
    while True:
        drawn = np.stack([rng.permutation(entries)[:number] for _ in range(config.batch_size)])
        ids = np.tile(drawn, (1, config.copy_repeats))
        targets = ids.copy()
        targets[:, :number] = IGNORED
        yield Batch(torch.from_numpy(ids), torch.from_numpy(targets))


def _rows(demonstrations: Sequence[Demonstration]) -> list[_Marked]:
    """Merged rows: ids, and which of them are to be learned; slips are not."""
    return [
        (row.ids, row.mask)
        for trajectory, meant in demonstrations
        for row in build_rows(trajectory, [1.0] * len(trajectory), trained=meant)
    ]


def _batches(rows: Sequence[_Marked], rng: np.random.Generator, size: int) -> Iterator[Batch]:
    """Deal rows, each once per round, such of similar length together: less padding."""
    for many in shuffled(len(rows), rng, _POOLED * size):
        lengths = [len(rows[index][0]) for index in many]
        for chosen in rng.permutation(many[np.argsort(lengths, kind="stable")].reshape(_POOLED, size)):
            yield pack([rows[index] for index in chosen])


def imitate(
    model: Qwen3ForCausalLM,
    demonstrations: Sequence[Demonstration],
    success: Callable[[Qwen3ForCausalLM], float],
    *,
    seed: int,
    config: ImitationConfig | None = None,
    on_progress: Callable[[ImitationProgress], None] | None = None,
) -> ImitationResult:
    """Train the model by imitation until it succeeds often enough.

    Args:
        model: an untrained model; trained in place.
        demonstrations: what is imitated.
        success: plays tasks with the model, sampled at temperature 1, and returns the share that was solved.
        seed: of the order of demonstrations and of the exercise.
        config: None for the defaults.
        on_progress: told every `report_every` steps.

    Returns:
        How it went.

    Raises:
        WarmStartFailed: if success is too rare after `max_steps` steps.
        ValueError: if there are no demonstrations.
    """
    config = config or ImitationConfig()
    rows = _rows(demonstrations)
    if not rows:
        raise ValueError(f"imitation needs demonstrations with steps that are meant; of {len(demonstrations)} none has any")
    rng = np.random.default_rng(np.random.SeedSequence([seed, 3]))
    measured: float | None = None
    done = 0

    def measure() -> float:
        model.eval()  # type: ignore[no-untyped-call]  # transformers does not type it
        value = success(model)
        model.train()
        return value

    def learn(phase: str, batch: Batch, share: float = 1.0) -> None:
        nonlocal done
        loss, accuracy = learner.step(batch, share)
        done += 1
        if on_progress is not None and done % config.report_every == 0:
            on_progress(ImitationProgress(phase, done, loss, accuracy, measured))

    model.train()
    learner = _Learner(model, config)
    entries = np.setdiff1d(np.concatenate([ids for ids, _ in rows]), [model.config.eos_token_id, model.config.pad_token_id])
    for _, batch in zip(range(config.copy_steps), _copy_exercises(entries, rng, config), strict=False):
        learn("copy", batch)

    learner = _Learner(model, config)
    batches = _batches(rows, rng, config.batch_size)
    step, full = 0, config.steps
    while True:
        for _ in range(full):
            learn("imitation", next(batches))
        for left in range(config.decay_steps, 0, -1):
            learn("decay", next(batches), left / config.decay_steps)
        step += full + config.decay_steps
        measured = measure()
        if measured >= config.success_at_least:
            break
        if step >= config.max_steps:
            raise WarmStartFailed(
                f"warm start failed: after {step} steps of imitation {measured:.0%} of the tasks are solved, and {config.success_at_least:.0%} are "
                "needed for reinforcement learning to have something to begin with; try another seed, more max_steps or more demonstrations"
            )
        full = config.more_steps
    model.eval()  # type: ignore[no-untyped-call]  # transformers does not type it
    return ImitationResult(step, measured)
