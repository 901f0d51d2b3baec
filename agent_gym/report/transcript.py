"""An episode as people read it: which tokens the model sampled, which the environment wrote, and which of them the loss sees.

Steps whose observation extends all before it belong to one context, as they do in training; a rewritten context begins a new one. Action
tokens are those that carry loss; environment tokens have weight exactly zero. What a token says is escaped like all text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agent_gym.report.markup import Markup, escape, join, tag
from agent_gym.trajectory import CUT_OFF, Step, Trajectory

__all__ = ["Context", "Segment", "contexts_of", "mask_strip", "pieces_of", "transcript"]

MAX_PIECES = 6000
"""Above so many tokens the environment's text of an episode is shown in whole blocks; the model's tokens stay apart always."""
_MOST_IDS_PER_CHARACTER = 6


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens of one author.

    Attributes:
        action: the model sampled them; else the environment wrote them.
        ids: token ids.
        logprobs: of the ids, or None.
        advantages: of the ids, or None.
        step: the step whose action it is, or which it leads to; None for the last answer of the environment.
    """

    action: bool
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    advantages: tuple[float, ...] | None = None
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
        """Number of action tokens."""
        return sum(len(segment.ids) for segment in self.segments if segment.action)


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
                _advantages(step),
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


def _advantages(step: Step) -> tuple[float, ...] | None:
    given = step.info.get("advantage")
    if given is None:
        return None
    values = np.asarray(given, dtype=np.float64).reshape(-1)
    if len(values) == 1:
        return tuple([float(values[0])] * len(step.action_ids))
    return tuple(values.tolist()) if len(values) == len(step.action_ids) else None


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


# ---------------------------------------------------------------------------------------------------- markup


def transcript(trajectory: Trajectory, tokenizer: Any, key: str, *, heading: Any = None) -> tuple[Markup, dict[str, Any]]:
    """Return an episode as markup, with the data of its tooltips.

    Args:
        trajectory: the episode.
        tokenizer: whose ids these are; None shows numbers.
        key: a name for it, unique on the page.
        heading: shown above.

    Returns:
        The element, and the data for the page's script under this key: ids, log-probabilities and advantages by token, from 0.
    """
    contexts = contexts_of(trajectory)
    fine = sum(context.length for context in contexts) <= MAX_PIECES
    ids: list[int] = []
    logprobs: list[float | None] = []
    advantages: list[float | None] = []
    blocks: list[Markup] = []
    turn = 0
    for number, context in enumerate(contexts):
        if number:
            blocks.append(tag("p", "The environment rewrote the context here.", class_="rewritten"))
        for segment in context.segments:
            start = len(ids)
            ids += segment.ids
            logprobs += [round(value, 4) for value in segment.logprobs] if segment.logprobs is not None else [None] * len(segment.ids)
            advantages += [round(value, 4) for value in segment.advantages] if segment.advantages is not None else [None] * len(segment.ids)
            if segment.action:
                turn += 1
                blocks.append(_action_block(segment, tokenizer, start, turn))
            else:
                blocks.append(_environment_block(segment, tokenizer, start, fine, first=start == 0))
    strips = [mask_strip(context) for context in contexts]
    element = tag(
        "article",
        tag("header", heading, _outcome(trajectory)),
        *strips,
        tag("div", *blocks, class_="turns"),
        class_="transcript",
        data_key=key,
    )
    data: dict[str, Any] = {"ids": ids}
    if any(value is not None for value in logprobs):
        data["logprobs"] = logprobs
    if any(value is not None for value in advantages):
        data["advantages"] = advantages
    return element, {key: data}


def _outcome(trajectory: Trajectory) -> Markup:
    state = "good" if trajectory.is_success else "bad"
    words = f"{'solved' if trajectory.is_success else 'not solved'}, reward {trajectory.total_reward:g}"
    turns = f"{len(trajectory)} turn{'s' if len(trajectory) != 1 else ''}, ended by {trajectory.stop_reason.value.replace('_', ' ')}"
    return tag("p", tag("span", words, class_=f"badge {state}"), " ", turns, class_="outcome")


def _span(text: str, index: int, count: int, class_: str) -> Markup:
    several = f' data-n="{count}"' if count > 1 else ""
    shown = escape(text).replace("\n", '<i class="nl"></i>\n')
    return Markup(f'<span class="{class_}" data-i="{index}"{several}>{shown}</span>')


def _action_block(segment: Segment, tokenizer: Any, start: int, turn: int) -> Markup:
    spans = []
    for begin, end, text in pieces_of(segment.ids, tokenizer):
        surprise = 0 if segment.logprobs is None else _surprise(min(segment.logprobs[begin:end]))
        spans.append(_span(text, start + begin, end - begin, f"a s{surprise}"))
    step = segment.step
    notes = []
    if step is not None:
        if step.finish_reason in CUT_OFF:
            notes.append("cut off")
        if not step.info.get("action_valid", True):
            notes.append("invalid")
        notes += [f"{name} {value:+g}" for name, value in step.reward_parts.items() if value]
    label = tag("span", f"model, turn {turn}", class_="who")
    empty = None if spans else tag("span", "(no token)", class_="none")
    return tag("div", label, *[tag("span", note, class_="chip") for note in notes], tag("pre", *spans, empty), class_="turn action")


def _environment_block(segment: Segment, tokenizer: Any, start: int, fine: bool, *, first: bool) -> Markup:
    if fine:
        content = join(_span(text, start + begin, end - begin, "e") for begin, end, text in pieces_of(segment.ids, tokenizer))
    else:
        content = escape(_decode(tokenizer, segment.ids))
    words = f"{'task' if first else 'environment'}, {len(segment.ids)} token{'s' if len(segment.ids) != 1 else ''}"
    # A long first prompt is shown from its end, where the task stands.
    text = tag("div", tag("pre", content), class_="from-end" if first else None)
    blank = not _decode(tokenizer, segment.ids).strip()
    return tag("div", tag("span", words, class_="who"), text, class_="turn environment blank" if blank else "turn environment")


def _surprise(logprob: float) -> int:
    """0 (expected) to 4 (most surprising): how unlikely the sampled token was."""
    for level, bound in enumerate((-0.05, -0.4, -1.2, -3.0)):
        if logprob >= bound:
            return level
    return 4


def mask_strip(context: Context) -> Markup:
    """Return the loss mask of a context as a strip: one place per token, filled where the token is trained.

    Args:
        context: of an episode.

    Returns:
        A figure with its caption.
    """
    rects = []
    at = 0
    for segment in context.segments:
        if segment.ids:
            class_ = "m1" if segment.action else "m0"
            title = tag("title", f"tokens {at} to {at + len(segment.ids) - 1}: {'trained' if segment.action else 'weight 0'}")
            rects.append(tag("rect", title, x=at, y=0, width=len(segment.ids), height=10, class_=class_))
            at += len(segment.ids)
    strip = tag(
        "svg", *rects, viewBox=f"0 0 {max(1, at)} 10", preserveAspectRatio="none", role="img", class_="strip", aria_label="loss mask"
    )
    caption = (
        f"Loss mask: {context.trained} of {context.length} tokens are trained; the other {context.length - context.trained} have weight 0."
    )
    return tag("figure", strip, tag("figcaption", caption), class_="mask")


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
