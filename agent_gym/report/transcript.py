"""An episode as people read it: which tokens the model sampled, which the environment wrote, and which of them the loss sees.

Steps whose observation extends all before it belong to one context, as they do in training; a rewritten context begins a new one. Action tokens carry
loss, except those that the recorded mask (`loss_mask` in a step's info) takes out of it; environment tokens have weight exactly zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_gym.trajectory import Step, Trajectory

__all__ = ["Context", "Segment", "contexts_of", "pick_pair", "pieces_of"]

_MOST_IDS_PER_CHARACTER = 6


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens of one author.

    Attributes:
        action: the model sampled them; else the environment wrote them.
        ids: token ids.
        logprobs: of the ids, or None.
        advantages: of the ids, or None.
        mask: whether the loss sees each id, or None where that was not recorded.
        step: the step whose action it is, or which it leads to; None for the last answer of the environment.
    """

    action: bool
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    advantages: tuple[float, ...] | None = None
    mask: tuple[bool, ...] | None = None
    step: Step | None = None


@dataclass(slots=True)
class Context:
    """A prompt that only grew.

    Attributes:
        segments: in order, environment and model in turn.
    """

    segments: list[Segment] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of tokens."""
        return sum(len(segment.ids) for segment in self.segments)

    @property
    def trained(self) -> int:
        """Number of action tokens, without those that the recorded mask takes out."""
        return sum(len(segment.ids) if segment.mask is None else sum(segment.mask) for segment in self.segments if segment.action)


def contexts_of(trajectory: Trajectory) -> list[Context]:
    """Cut an episode into contexts and segments.

    Args:
        trajectory: the episode.

    Returns:
        One context per rewriting, at least one where there is a step; every action id once and in order.
    """
    contexts: list[Context] = []
    shown: np.ndarray[Any, Any] = np.zeros(0, dtype=np.int64)
    for step in trajectory.steps:
        _add_observation(contexts, shown, step.observation_ids, step)
        contexts[-1].segments.append(
            Segment(
                True,
                tuple(step.action_ids.tolist()),
                None if step.logprobs is None else tuple(float(value) for value in step.logprobs),
                _per_token(step, "advantage"),
                _mask(step),
                step,
            )
        )
        shown = np.concatenate([step.observation_ids, step.action_ids])
    if len(trajectory.final_observation) and trajectory.steps:
        last = trajectory.final_observation
        if not np.array_equal(last, trajectory.steps[-1].observation_ids):  # an episode cut by its length shows the same prompt again
            _add_observation(contexts, shown, last, None)
    return contexts


def _add_observation(contexts: list[Context], shown: np.ndarray[Any, Any], ids: np.ndarray[Any, Any], step: Step | None) -> None:
    grows = bool(contexts) and len(ids) >= len(shown) and np.array_equal(ids[: len(shown)], shown)
    if not grows:
        contexts.append(Context())
    new = ids[len(shown) :] if grows else ids
    if len(new):
        contexts[-1].segments.append(Segment(False, tuple(new.tolist()), step=step))


def _per_token(step: Step, name: str) -> tuple[float, ...] | None:
    """A number per action token of a step's info; one number stands for all. None where there is none, or not as many as tokens."""
    given = step.info.get(name)
    if given is None:
        return None
    try:
        values = np.asarray(given, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):  # somebody else's, of another meaning
        return None
    if len(values) == 1:
        return tuple([float(values[0])] * len(step.action_ids))
    return tuple(values.tolist()) if len(values) == len(step.action_ids) else None


def _mask(step: Step) -> tuple[bool, ...] | None:
    values = _per_token(step, "loss_mask")
    return None if values is None else tuple(value != 0 for value in values)


def pieces_of(ids: Sequence[int], tokenizer: Any) -> Iterator[tuple[int, int, str]]:
    """Cut ids into the smallest runs that are whole characters.

    Args:
        ids: token ids.
        tokenizer: a Hugging Face tokenizer, or None: then each id is shown as its number.

    Yields:
        Start, end and text. Joined, the texts are the decoding; a token that is part of a character stands with its neighbours.
    """
    start = 0
    while start < len(ids):
        end = start + 1
        text = _decode(tokenizer, ids[start:end])
        while text.endswith("\ufffd") and end < len(ids) and end - start < _MOST_IDS_PER_CHARACTER:
            longer = _decode(tokenizer, ids[start : end + 1])
            end += 1
            text = longer
            if not longer.endswith("\ufffd"):
                break
        if text.endswith("\ufffd"):  # no neighbour completes it: a byte of its own
            end = start + 1
            text = _decode(tokenizer, ids[start:end])
        yield start, end, text
        start = end


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    if tokenizer is None:
        return "".join(f"\u2039{one}\u203a" for one in ids)
    size = len(tokenizer)
    known = [int(one) for one in ids if 0 <= one < size]
    if not known:
        return "".join(f"\u2039{one}\u203a" for one in ids)
    text = str(tokenizer.decode(known, skip_special_tokens=False, clean_up_tokenization_spaces=False))
    first = tokenizer.convert_ids_to_tokens(known[0])
    if isinstance(first, str) and first.startswith("\u2581") and not text.startswith(" "):  # SentencePiece: decode drops the first blank
        text = " " + text
    return text


def pick_pair(before: Sequence[Trajectory], after: Sequence[Trajectory]) -> tuple[Trajectory, Trajectory] | None:
    """Choose the task whose two episodes tell most: failed before and solved after, if there is one.

    Args:
        before: episodes of the model before training.
        after: episodes of the model after it.

    Returns:
        Two episodes of one task, or None where no task is in both. Among equals the first task, so that the choice is no pick of the best.
    """
    first: dict[tuple[Any, ...], Trajectory] = {}
    for episode in before:
        first.setdefault(_task_key(episode), episode)
    pairs = [(first[_task_key(episode)], episode) for episode in after if _task_key(episode) in first]
    if not pairs:
        return None
    return max(pairs, key=lambda pair: (pair[1].is_success - pair[0].is_success, pair[1].is_success))


def _task_key(episode: Trajectory) -> tuple[Any, ...]:
    options: Mapping[str, Any] = episode.options
    return episode.env_id, episode.task_id, episode.seed, str(sorted(options.items(), key=str))
