"""The warm start on HotpotQA, so that reinforcement learning on its easy level has something to work with.

A model that never calls the tool is never rewarded, so reinforcement learning needs a start that does the task at times. Imitation gives it:
demonstrations of an *impatient* expert, which makes perfect calls but often answers with the person on the page before it, although the
question leads further. Its success is the ceiling of imitation; going beyond it is left to the reward.

The hard part for a model of two layers is neither the format nor the decision but copying a name from the page into the next call, and it must
copy names that it has never seen (the splits share no entity). What makes that reliable, in this order:

1. **A copy exercise**: random sequences of names of the training split, three times over.
2. **Imitation with the names' rows of the embedding held fixed**, at their random start, and with the names of each demonstration exchanged for
   others, so that no name means anything. Copying clicks within some eighty steps.
3. **Imitation with the names' rows drawn anew at every step**, so that copying is learned as such and not name by name. Drawn anew from the start
   it would not click at all. Their spread grows meanwhile, which makes the copies sharp enough to be sampled.
4. Behind it the whole embedding is frozen: a name of the test split is then as good as any other, also after reinforcement learning.

**It ends when names are copied**, not after a number of steps: measured on worlds of the validation split, whose names stand in no demonstration.
The loss is a poor guide (it looks fine long before), and where copying has not come, no reward ever will: then this raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from agent_gym.data.bridge_world import PEOPLE, boss_of
from agent_gym.trainers.imitation import IGNORED, Batch, WarmStartFailed, pack, predictions, shuffled
from agent_gym.trainers.rows import build_rows
from agent_gym.trainers.tiny_model import INITIALIZER_RANGE, freeze_embedding
from agent_gym.trajectory import Trajectory
from agent_gym.wrappers.recorder import StepRecorder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Qwen3ForCausalLM

__all__ = [
    "WARM_START_ENV",
    "WARM_START_ENV_KWARGS",
    "WarmStartConfig",
    "WarmStartProgress",
    "WarmStartResult",
    "copy_accuracy",
    "impatient_expert",
    "name_ids",
    "record_demonstrations",
    "warm_start",
]

WARM_START_ENV = "AgentR1/HotpotQA-v0"
WARM_START_ENV_KWARGS: dict[str, Any] = {"level": "bridge"}

NAME_SPREAD = 0.22  # standard deviation of the rows of names at the end; they start at INITIALIZER_RANGE as all others do
CONTINUE_PROBABILITY = 0.4


@dataclass(frozen=True, slots=True)
class WarmStartConfig:
    """The settings of a warm start. The defaults are those of the embedded run.

    Attributes:
        continue_probability: of the impatient expert, at each hop short of the last.
        demonstrations: episodes to imitate.
        probes: episodes of the patient expert on the validation split, on which copying is measured.
        copy_steps: optimiser steps of the copy exercise.
        copy_names: names in a sequence of the exercise.
        copy_repeats: how often each sequence stands there.
        batch_size: sequences per optimiser step, in both phases.
        learning_rate: of AdamW, after `warmup_steps` steps of linear growth.
        warmup_steps: at the start of either phase.
        betas: of AdamW.
        weight_decay: of AdamW, except on the embedding.
        max_grad_norm: gradient clipping.
        check_every: steps between two measurements.
        known_at_least: the accuracy on names of the demonstrations, over three steps, from which the names' rows are drawn anew.
        growth_steps: in which the spread of the rows then grows to its end.
        copied_at_least: the accuracy on names of the probes that ends the warm start.
        min_steps: no measurement before it counts.
        decay_steps: further steps behind it, with linearly falling learning rate.
        max_steps: of imitation, decay not counted; then it has failed.
    """

    continue_probability: float = CONTINUE_PROBABILITY
    demonstrations: int = 500
    probes: int = 64
    copy_steps: int = 150
    copy_names: int = 12
    copy_repeats: int = 3
    batch_size: int = 32
    learning_rate: float = 5e-3
    warmup_steps: int = 20
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    check_every: int = 10
    known_at_least: float = 0.9
    growth_steps: int = 90
    copied_at_least: float = 0.97
    min_steps: int = 40
    decay_steps: int = 90
    max_steps: int = 260


@dataclass(frozen=True, slots=True)
class WarmStartProgress:
    """What a progress callback is told.

    Attributes:
        phase: "copy" or "imitation".
        step: optimiser steps of this phase so far.
        loss: of the last step, in natural logarithm per token.
        copied: accuracy on names: of the exercise, or of the last measurement on the probes.
    """

    phase: str
    step: int
    loss: float
    copied: float


@dataclass(frozen=True, slots=True)
class WarmStartResult:
    """How a warm start went.

    Attributes:
        steps: optimiser steps of imitation, decay included.
        copied_after: the step at which names were copied well enough.
        copied: accuracy on names of the probes at the end.
        loss: of the last step.
        history: every report of the progress callback.
    """

    steps: int
    copied_after: int
    copied: float
    loss: float
    history: tuple[WarmStartProgress, ...] = field(repr=False, default=())


# ---------------------------------------------------------------------------------------------------- the model


def name_ids(tokenizer: PreTrainedTokenizerBase, *splits: str) -> NDArray[np.int64]:
    """Return the ids of the names of the bridge world.

    Args:
        tokenizer: must hold each name as one token.
        splits: whose names; all when none is given.

    Returns:
        The ids, int64, shape (names,).

    Raises:
        ValueError: if a name is not one token.
    """
    ids: list[int] = []
    for name in (name for split in splits or PEOPLE for name in PEOPLE[split]):
        pieces = tokenizer.encode(name, add_special_tokens=False)
        if len(pieces) != 1:
            raise ValueError(
                f"the warm start needs every name of the bridge world as one token, and this tokenizer cuts {name!r} into {len(pieces)}; "
                "use the default tokenizer, or start from a pretrained model without a warm start"
            )
        ids += pieces
    return np.array(ids, dtype=np.int64)


class _Names:
    """The rows of the names in the embedding: random, and kept from learning."""

    def __init__(self, model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerBase, generator: torch.Generator) -> None:
        self.weight: torch.Tensor = model.model.embed_tokens.weight
        self.ids = torch.from_numpy(name_ids(tokenizer))
        self.known = torch.from_numpy(name_ids(tokenizer, "train"))
        self.generator = generator
        self.mask = torch.zeros(self.weight.shape[0], dtype=torch.bool)
        self.mask[self.ids] = True

    def draw(self, spread: float) -> None:
        """Give every name a new random row of this standard deviation."""
        with torch.no_grad():
            self.weight[self.ids] = spread * torch.randn(len(self.ids), self.weight.shape[1], generator=self.generator)

    def exchange(self, batch: Batch) -> Batch:
        """Exchange the names of the training split for one another, in each sequence by a permutation of its own."""
        ids, targets = batch.ids.clone(), batch.targets.clone()
        for row in range(len(ids)):
            other = torch.arange(len(self.mask))
            other[self.known] = self.known[torch.randperm(len(self.known), generator=self.generator)]
            ids[row] = other[ids[row]]
            wanted = targets[row] != IGNORED
            targets[row, wanted] = other[targets[row, wanted]]
        return Batch(ids, targets)

    def keep(self) -> None:
        """Take the names' rows out of the present gradient."""
        if self.weight.grad is not None:
            self.weight.grad[self.ids] = 0.0


# ---------------------------------------------------------------------------------------------------- demonstrations


def impatient_expert(env: gymnasium.Env[Any, Any], rng: np.random.Generator, continue_probability: float) -> Callable[[], str]:
    """Return an expert of the bridge level that searches in hop order, and stops early now and then.

    Args:
        env: the environment, at the start of an episode.
        rng: decides whether to go on.
        continue_probability: of searching on behind each page short of the last; 1 gives the expert itself.

    Returns:
        A function that gives the text of the next action.

    Raises:
        ValueError: if the environment is not of the bridge level.
    """
    base: Any = env.unwrapped
    expert = base.expert()
    if expert is None or getattr(base, "qa", None) is None:
        raise ValueError(
            f"{type(base).__name__} has no expert with a question of the bridge world; make {WARM_START_ENV} with level='bridge'"
        )
    pages = {page.title: page.text for page in base.qa.paragraphs}
    hops: tuple[str, ...] = base.qa.hops

    def act() -> str:
        read = base.turn  # one page per turn
        if 0 < read < len(hops) and rng.random() >= continue_probability:
            return f"<answer>{boss_of(pages[hops[read - 1]])}</answer>"
        return str(expert())

    return act


def record_demonstrations(
    episodes: int,
    *,
    split: str = "train",
    seed: int = 0,
    continue_probability: float = CONTINUE_PROBABILITY,
    tokenizer: Any = None,
    make_env: Callable[..., gymnasium.Env[Any, Any]] | None = None,
) -> list[Trajectory]:
    """Record episodes of the impatient expert in the real environment.

    Args:
        episodes: how many.
        split: of the worlds.
        seed: of tasks and of impatience.
        continue_probability: see `impatient_expert`.
        tokenizer: of the environment; None for the default one.
        make_env: called with `split` and `tokenizer`; None makes `WARM_START_ENV` with `WARM_START_ENV_KWARGS`.

    Returns:
        The trajectories, with the environment's own ids.
    """
    import agent_gym  # noqa: F401  # registers the ids

    if make_env is None:
        base = gymnasium.make(WARM_START_ENV, split=split, tokenizer=tokenizer, disable_env_checker=True, **WARM_START_ENV_KWARGS)
    else:
        base = make_env(split=split, tokenizer=tokenizer)
    env = StepRecorder(base)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    task_seeds = np.random.default_rng(np.random.SeedSequence([seed, 2])).integers(2**31, size=episodes)
    trajectories = []
    try:
        for task_seed in task_seeds:
            env.reset(seed=int(task_seed))
            act = impatient_expert(env, rng, continue_probability)
            while env.running:
                env.step(env.unwrapped.encode_action(act()))  # type: ignore[attr-defined]  # an AgentEnv
            trajectories.append(env.trajectory)
    finally:
        env.close()
    return trajectories


def _sequences(trajectories: Sequence[Trajectory]) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """Merged rows of the trajectories: ids, and which of them the expert wrote."""
    rows = [row for trajectory in trajectories for row in build_rows(trajectory, [1.0] * len(trajectory))]
    return [(row.ids, row.mask) for row in rows]


# ---------------------------------------------------------------------------------------------------- training


def copy_accuracy(model: Qwen3ForCausalLM, probes: Sequence[Trajectory], names: torch.Tensor) -> float:
    """Return how often the most likely token is the right one, on the names inside the actions of the probes.

    Args:
        model: the model.
        probes: expert episodes.
        names: bool, shape (vocabulary,): which ids are names.

    Returns:
        A number in [0, 1].
    """
    with torch.inference_mode():
        logits, targets = predictions(model, pack(_sequences(probes)))
        chosen = names[targets]
        right = logits.argmax(-1) == targets
    return float(right[chosen].float().mean())


class _Optimizer:
    """AdamW with a learning rate that rises linearly, and gradients that leave the names alone."""

    def __init__(self, model: Qwen3ForCausalLM, names: _Names, config: WarmStartConfig) -> None:
        others = [parameter for parameter in model.parameters() if parameter is not names.weight]
        self.parameters: list[torch.Tensor] = [*others, names.weight]
        self.names, self.config = names, config
        groups: list[dict[str, Any]] = [
            {"params": others, "weight_decay": config.weight_decay},
            {"params": [names.weight], "weight_decay": 0.0},
        ]
        self.adamw = torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas)
        self.steps = 0

    def step(self, loss: torch.Tensor, share: float = 1.0) -> float:
        self.steps += 1
        for group in self.adamw.param_groups:
            group["lr"] = self.config.learning_rate * min(1.0, self.steps / self.config.warmup_steps) * share
        self.adamw.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
        self.names.keep()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.config.max_grad_norm)
        self.adamw.step()
        return float(loss.detach())


def _copy_exercises(names: _Names, config: WarmStartConfig) -> Iterator[Batch]:
    while True:
        drawn = [
            names.known[torch.randperm(len(names.known), generator=names.generator)[: config.copy_names]] for _ in range(config.batch_size)
        ]
        ids = torch.stack(drawn).repeat(1, config.copy_repeats)
        targets = ids.clone()
        targets[:, : config.copy_names] = IGNORED
        yield Batch(ids, targets)


def warm_start(
    model: Qwen3ForCausalLM,
    tokenizer: PreTrainedTokenizerBase,
    demonstrations: Sequence[Trajectory],
    probes: Sequence[Trajectory],
    *,
    seed: int,
    config: WarmStartConfig | None = None,
    on_progress: Callable[[WarmStartProgress], None] | None = None,
) -> WarmStartResult:
    """Train the model by imitation until it copies names, and freeze its embedding.

    Args:
        model: an untrained model (`build_tiny_model`); trained in place.
        tokenizer: the environment's.
        demonstrations: what is imitated (`record_demonstrations`).
        probes: expert episodes of a split whose names are in no demonstration; they are only measured on.
        seed: of the order of demonstrations, the exercise and the names' rows.
        config: None for the defaults.
        on_progress: told every `check_every` steps.

    Returns:
        How it went.

    Raises:
        WarmStartFailed: if names are not copied within `max_steps` steps, or not any more at the end.
        ValueError: if there are no demonstrations or probes, or the tokenizer cuts a name.
    """
    config = config or WarmStartConfig()
    if not demonstrations or not probes:
        raise ValueError(f"a warm start needs demonstrations and probes, not {len(demonstrations)} and {len(probes)}")
    names = _Names(model, tokenizer, torch.Generator().manual_seed(seed))
    history: list[WarmStartProgress] = []

    def report(phase: str, step: int, loss: float, copied: float) -> None:
        history.append(WarmStartProgress(phase, step, loss, copied))
        if on_progress is not None:
            on_progress(history[-1])

    model.train()
    optimizer = _Optimizer(model, names, config)
    for step, batch in zip(range(1, config.copy_steps + 1), _copy_exercises(names, config), strict=False):
        logits, targets = predictions(model, batch)
        loss = optimizer.step(functional.cross_entropy(logits, targets))
        if step % config.check_every == 0:
            report("copy", step, loss, float((logits.argmax(-1) == targets).float().mean()))

    sequences = _sequences(demonstrations)
    order = shuffled(len(sequences), np.random.default_rng(np.random.SeedSequence([seed, 3])), config.batch_size)
    optimizer = _Optimizer(model, names, config)
    known: deque[float] = deque(maxlen=3)
    drawn_after, copied_after, step, copied, loss = 0, 0, 0, 0.0, float("nan")
    while not copied_after or step < copied_after + config.decay_steps:
        if not copied_after and step >= config.max_steps:
            raise WarmStartFailed(
                f"warm start failed: after {step} steps of imitation {copied:.0%} of the names are copied, and {config.copied_at_least:.0%} are needed; "
                "without copying there is no reward to learn from. Pages, prompt and tokenizer together decide it: try another seed, or more max_steps"
            )
        if not drawn_after and len(known) == known.maxlen and sum(known) / len(known) >= config.known_at_least:
            drawn_after = step
        if drawn_after:
            grown = min(1.0, (step - drawn_after) / config.growth_steps)
            names.draw(INITIALIZER_RANGE + grown * (NAME_SPREAD - INITIALIZER_RANGE))
        batch = names.exchange(pack([sequences[index] for index in next(order)]))
        logits, targets = predictions(model, batch)
        chosen = names.mask[targets]
        known.append(float((logits.argmax(-1) == targets)[chosen].float().mean()))
        share = 1.0 - (step - copied_after) / config.decay_steps if copied_after else 1.0
        loss = optimizer.step(functional.cross_entropy(logits, targets), share)
        step += 1
        if step % config.check_every == 0:
            copied = copy_accuracy(model, probes, names.mask)
            report("imitation", step, loss, copied)
            if drawn_after and not copied_after and step >= config.min_steps and copied >= config.copied_at_least:
                copied_after = step
    freeze_embedding(model)
    model.eval()  # type: ignore[no-untyped-call]  # transformers does not type it
    copied = copy_accuracy(model, probes, names.mask)
    if copied < config.copied_at_least:
        raise WarmStartFailed(
            f"warm start failed: only {copied:.0%} of the names are copied at its end, after {copied_after} steps it was enough; try another seed"
        )
    return WarmStartResult(step, copied_after, copied, loss, tuple(history))
