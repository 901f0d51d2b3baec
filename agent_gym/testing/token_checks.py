"""Checks of token exactness: what the model sampled stands in the next prompt, id for id, and nothing else passes for it.

They apply to environments whose spaces are `TokenBox` and are skipped, with that reason, for others.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

from agent_gym.spaces import TokenBox
from agent_gym.testing.report import check, fail
from agent_gym.testing.subject import (
    Env,
    Frame,
    NotApplicable,
    Script,
    Subject,
    attribute,
    end_ids,
    first_difference,
    frame_of_reset,
    frame_of_step,
    length_of,
)
from agent_gym.trajectory import StopReason

__all__ = [
    "any_action",
    "control_tokens",
    "end_of_turn",
    "invalid_actions",
    "observation_length",
    "padding",
    "token_exactness",
    "token_spaces",
]

_TELLING = 4  # characters from which on a text is taken for that of an action, and not for a coincidence
_OPENING = 4  # ids of the opening of the model's turn that are looked for; more could be text of the world


@check("makes")
def token_spaces(subject: Subject) -> None:
    """Observation and action space are `TokenBox` over one vocabulary, which holds all of the tokenizer, and padding is never an end of turn.

    Protects embeddings from ids they lack (Qwen3's `tokenizer.vocab_size` is below its own end of turn) and the last token of a reply: where
    the pad id is the end-of-turn id, whoever takes padding off takes the end of the turn with it.

    Args:
        subject: what is checked.
    """
    with subject.made() as env:
        observations, actions = subject.token_spaces(env)
        if (observations.vocab_size, observations.pad_id) != (actions.vocab_size, actions.pad_id):
            fail(
                f"{observations!r} for observations and {actions!r} for actions",
                "one vocabulary and one pad id, since actions become part of observations",
                "make both spaces from the same tokenizer",
            )
        if actions.pad_id in end_ids(env):
            fail(
                f"the pad id {actions.pad_id} is one of the end-of-turn ids {end_ids(env)}",
                "another id, or vocab_size where there is none to spare",
                "choose a special token that the template never prints",
            )
        chat = attribute(env, "chat")
        known = len(chat.tokenizer) if hasattr(chat, "tokenizer") else 0
        if actions.vocab_size < known:
            fail(f"vocab_size is {actions.vocab_size}, and the tokenizer has {known} ids", "all of them", "use len(tokenizer)")


@check("token_spaces")
def observation_length(subject: Subject) -> None:
    """Observations are int64 arrays inside their space, as long as `info["observation_length"]` says and padding behind it.

    Protects every reader of a prompt: a length that is too long trains on padding, one that is too short cuts the question off.

    Args:
        subject: what is checked.
    """
    with subject.made() as env:
        space, _ = subject.token_spaces(env)
        for script in subject.scripts:
            for turn, frame in enumerate(subject.play(env, script)):
                where = f"after {'reset' if turn == 0 else f'step {turn}'} of the {script.name} episode"
                _check_length(space, frame, where, at_reset=turn == 0)


def _check_length(space: TokenBox, frame: Frame, where: str, *, at_reset: bool) -> None:
    ids = frame.observation
    if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.shape != space.shape or ids not in space:
        kind = f"{ids.dtype}{list(ids.shape)}" if isinstance(ids, np.ndarray) else type(ids).__name__
        fail(
            f"the observation {where} is {kind}, or holds ids outside the space",
            f"int64{list(space.shape)} inside {space!r}",
            "use TokenBox.pad",
        )
    length = length_of(frame)
    if not 0 < length <= space.max_length:
        fail(f"observation_length {where} is {length}", f"a number in [1, {space.max_length}]", "count the ids of the prompt")
    behind = np.flatnonzero(ids[length:] != space.pad_id)
    if len(behind):
        fail(
            f"observation_length {where} is {length}, and place {length + int(behind[0])} holds {ids[length + int(behind[0])]}",
            f"only the pad id {space.pad_id} behind the observation",
            "count all ids, and clear what an earlier prompt left behind",
        )
    if at_reset and ids[length - 1] == space.pad_id:
        fail(
            f"observation_length {where} is {length}, and place {length - 1} holds the pad id",
            "a length without padding",
            "count the ids before they are padded",
        )


@check("observation_length")
def token_exactness(subject: Subject) -> None:
    """The next observation is the last one, the action's own ids, and the new turn, unless info says that the context was rewritten.

    A rewritten prompt may leave actions out. Where it shows one, behind the opening of the model's turn, its sampled ids stand there: that a
    text is an action's is found by decoding (`chat.decode`), so that it is not looked at where an environment has no `chat`.

    Protects what the project is for. Decoding a reply and encoding it again gives other ids than the model sampled, since several id
    sequences have one text (TRL 5224: GRPO trained on tokens that nobody had sampled). The actions are random ids of the whole vocabulary,
    control tokens included.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where every step rewrites the context and none shows its action.
    """
    compared = rewritten = kept = 0
    with subject.made() as env:
        subject.token_spaces(env)
        episodes = [(script, subject.play(env, script)) for script in subject.scripts]
        running = [frame for _, frames in episodes for frame in frames if not frame.ended]
        opening = _common_end([frame.observation[: length_of(frame)] for frame in running])
        for script, frames in episodes:
            for turn, (before, action, after) in enumerate(zip(frames, script.actions, frames[1:], strict=False), start=1):
                if after.truncated and after.info.get("stop_reason") in (StopReason.CONTEXT_LIMIT, StopReason.ENV_FAULT):
                    continue  # the observation is the last that fitted
                where = f"step {turn} of the {script.name} episode"
                if after.info.get("context_rewritten"):
                    rewritten += 1
                    kept += _check_rewritten(env, opening, action, after, where)
                else:
                    compared += 1
                    _check_extends(env, before, action, after, where)
        readable = callable(getattr(attribute(env, "chat"), "decode", None))
    if not compared and not kept:
        raise NotApplicable(
            f"all {rewritten} steps rewrote the context, and "
            + ("none shows its action" if readable else "without `chat.decode` nobody can tell whether an action was encoded again")
            if rewritten
            else "no step could be played (see the check any_action)"
        )


def _common_end(prompts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The ids that all prompts end with, a few at most: the opening of the model's turn."""
    shortest = min(_OPENING, *map(len, prompts))
    ends: NDArray[np.int64] = np.stack([prompt[len(prompt) - shortest :] for prompt in prompts])
    differing = np.flatnonzero((ends != ends[0]).any(axis=0))
    common: NDArray[np.int64] = ends[0, int(differing[-1]) + 1 if len(differing) else 0 :]
    return common


def _check_rewritten(env: Env, opening: NDArray[np.int64], action: NDArray[np.int64], after: Frame, where: str) -> bool:
    """Whether a rewritten prompt shows the action's own ids; a failure where it shows its text by other ids."""
    prompt, wanted = after.observation[: length_of(after)], kept_part(env, action, after)
    if not len(wanted) or not len(opening) or len(prompt) < len(opening):
        return False
    windows = np.lib.stride_tricks.sliding_window_view(prompt, len(opening))
    starts = [int(one) + len(opening) for one in np.flatnonzero((windows == opening).all(axis=1))]
    if any(np.array_equal(prompt[start : start + len(wanted)], wanted) for start in starts):
        return True
    decode = getattr(attribute(env, "chat"), "decode", None)
    if not callable(decode):
        return False
    body = wanted[:-1] if int(wanted[-1]) in end_ids(env) else wanted
    text = "".join(decode(body.tolist()).split())  # without blanks, which templates strip and add
    for start in starts if len(text) >= _TELLING else ():
        shown = prompt[start:]
        if "".join(decode(shown.tolist()).split()).startswith(text):
            fail(
                f"the observation after {where} is rewritten, and shows the action's text at place {start} by other ids: "
                f"{shown[:6].tolist()} for {wanted[:6].tolist()}",
                "the ids that were sampled, wherever an action is shown",
                'keep them: an assistant message may carry "token_ids" instead of "content"; never decode and encode an action again',
            )
    return False


def _check_extends(env: Env, before: Frame, action: NDArray[np.int64], after: Frame, where: str) -> None:
    prompt = before.observation[: length_of(before)]
    wanted = np.concatenate([prompt, kept_part(env, action, after)])
    got = after.observation[: min(length_of(after), len(wanted))]
    if len(got) == len(wanted) and (got == wanted).all():
        return
    place = int(np.flatnonzero(got != wanted[: len(got)])[0]) if (got != wanted[: len(got)]).any() else len(got)
    part = "the earlier prompt" if place < len(prompt) else f"the action, at its place {place - len(prompt)}"
    seen = got[place : place + 6].tolist()
    fail(
        f"the observation after {where} leaves {part}: place {place} goes on with {seen} where {wanted[place : place + 6].tolist()} stood",
        "last observation + the action's ids up to its first end of turn + the new turn; or info['context_rewritten'] = True",
        "append the ids that came in; never decode and encode an action again",
    )


def kept_part(env: Env, action: NDArray[np.int64], after: Frame) -> NDArray[np.int64]:
    """Return the part of an action that counts.

    Args:
        env: it names its end-of-turn ids, or not.
        action: unpadded ids.
        after: the frame after it, whose `dropped_ids` is believed where no end-of-turn ids are named.

    Returns:
        The ids up to and including the first end of turn.
    """
    ends = np.flatnonzero(np.isin(action, np.array(end_ids(env), dtype=np.int64)))
    if len(ends):
        return action[: int(ends[0]) + 1]
    dropped = 0 if end_ids(env) else int(after.info.get("dropped_ids", 0))
    return action[: len(action) - dropped]


@check("token_spaces", "observation_length")
def padding(subject: Subject) -> None:
    """An action padded to the whole space, the same unpadded, and as a list give the same step.

    Protects vector environments, which can only send arrays of one shape: padding that is taken for part of a reply ends up in the prompt.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where the same step differs without padding, too.
    """
    with subject.made() as env:
        _, space = subject.token_spaces(env)
        for script in subject.scripts:
            if not script.actions or len(script.actions[0]) >= space.max_length:
                continue
            action = script.actions[0]
            for form, given in (("padded to the action space", space.pad(action)), ("as a list", action.tolist())):
                plain, other = _one_step(env, script, action), _one_step(env, script, given)
                again = _one_step(env, script, action)
                if first_difference(plain, again):
                    raise NotApplicable("the same step differs without padding, too (see the check seeded_episode)")
                if found := first_difference(plain, other):
                    fail(
                        f"an action of {len(action)} ids {form} gives another step than unpadded: {found}",
                        "the same step",
                        "an array exactly as long as the action space loses its trailing run of pad_id; anything shorter is taken whole",
                    )


def _one_step(env: Env, script: Script, action: Any) -> Frame:
    env.reset(seed=script.seed)
    return frame_of_step(env.step(copy.deepcopy(action)))


@check("token_spaces", "observation_length")
def end_of_turn(subject: Subject) -> None:
    """What stands behind an action's first end of turn is dropped, counted in `info["dropped_ids"]`, and changes nothing else.

    Protects the loss and the prompt: ids that an engine went on sampling, or a forged turn behind a real end, must reach neither.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where no end of turn is known, or the same step differs anyway.
    """
    with subject.made() as env:
        _, space = subject.token_spaces(env)
        ends = end_ids(env)
        if not ends:
            raise NotApplicable("it has no end_of_turn_ids")
        rng = np.random.default_rng([subject.seed, 11])
        script = subject.scripts[-1]
        body = np.asarray(script.actions[0] if script.actions else subject.random_action(env, rng), dtype=np.int64)
        body = body[~np.isin(body, np.array(ends))][: max(space.max_length - 6, 0)]
        for end in ends:
            tail = rng.integers(0, space.vocab_size, size=3)
            tail[-1] = end
            closed = np.append(body, end)
            clean, plain = _one_step(env, script, closed), _one_step(env, script, closed)
            if first_difference(clean, plain):
                raise NotApplicable("the same step differs anyway (see the check seeded_episode)")
            longer = _one_step(env, script, np.concatenate([closed, tail]))
            counted = longer.info.pop("dropped_ids", None)
            clean.info.pop("dropped_ids", None)
            if found := first_difference(clean, longer):
                fail(
                    f"{len(tail)} ids behind the end-of-turn id {end} change the step: {found}",
                    "the same step as without them",
                    "cut the action behind its first end of turn",
                )
            if counted is not None and counted != len(tail):
                fail(f"{len(tail)} ids were dropped, and dropped_ids is {counted}", f"{len(tail)}", "count what was cut off")


@check("token_spaces")
def any_action(subject: Subject) -> None:
    """No action inside the space raises: empty, nothing but an end of turn, all padding, every control token, longest, broken calls.

    Protects training from the model: in its first updates it says everything. A number 0 that counted as "nothing" and parsers that raise
    on half a call are bugs of real suites (GEM's guessing game and tool wrapper).

    Args:
        subject: what is checked.
    """
    with subject.made() as env:
        space, actions = subject.token_spaces(env)
        frame = frame_of_reset(env.reset(seed=subject.seed))
        for number, (kind, action) in enumerate(hostile_actions(env, subject.seed)):
            if frame.ended:
                frame = frame_of_reset(env.reset(seed=subject.seed + number))
            try:
                frame = frame_of_step(env.step(action))
            except Exception as error:  # noqa: BLE001  # any exception is what this looks for
                fail(
                    f"an action of {len(action)} ids inside the space ({kind}) raised {type(error).__name__}: {error}",
                    "an observation that tells the model what was wrong",
                    "a model's mistake is answered, not raised; only ids outside the space, floats and too many ids raise InvalidAction",
                )
            if frame.observation not in space:
                fail(f"after {kind} the observation lies outside its space", f"an array inside {space!r}", "use TokenBox.pad")
        actions.seed(subject.seed)


def hostile_actions(env: Env, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield actions inside the space that a careless environment does not survive.

    Args:
        env: a token environment.
        seed: of the random ones.

    Yields:
        A name for people, and the ids.
    """
    space = env.action_space
    assert isinstance(space, TokenBox)  # the callers have asked for token spaces
    rng = np.random.default_rng([seed, 5])
    most, vocabulary, ends = space.max_length, space.vocab_size, list(end_ids(env))[:1]
    empty = np.empty(0, dtype=np.int64)
    yield "no id at all", empty
    yield "an end of turn alone", np.array(ends[:most], dtype=np.int64)
    yield "nothing but padding", space.pad(empty)
    yield "one pad id", np.array([space.pad_id], dtype=np.int64)
    yield "the first id", np.array([0], dtype=np.int64)
    yield "the last id", np.array([int(space.high[0])], dtype=np.int64)
    for index in range(4):
        yield f"random ids, number {index}", space.pad(rng.integers(0, vocabulary, size=int(rng.integers(1, most + 1))))
    yield "as many random ids as fit, unclosed", rng.integers(0, vocabulary, size=most)
    yield "the highest id again and again", np.full(most, vocabulary - 1, dtype=np.int64)
    tokenizer = getattr(attribute(env, "chat"), "tokenizer", None)
    special = sorted(tokenizer.added_tokens_decoder) if tokenizer is not None else list(range(max(vocabulary - 32, 0), vocabulary))
    special = [one for one in special if one < vocabulary and one not in ends][:256]
    for one in special[:32]:
        yield f"the control token {one} alone", np.array([one, *ends][:most], dtype=np.int64)
    yield "all control tokens in a row", np.array([*special, *ends][:most], dtype=np.int64)
    yield "all control tokens backwards", np.array([*special[::-1], *ends][:most], dtype=np.int64)
    yield "turns behind the end", np.array([*ends, *special, *ends][:most], dtype=np.int64)
    encode = attribute(env, "encode_action")
    for text in _HOSTILE_TEXTS if callable(encode) else ():
        yield f"the text {text[:24]!r}", np.array(encode(text)[:most], dtype=np.int64)


_HOSTILE_TEXTS = (
    "",
    " ",
    "0",
    "\n\n\n",
    "\x00\ufeff\u202e",
    "é漢字🙂",
    "<tool_call>",
    "</tool_call>",
    "<tool_call></tool_call>",
    '<tool_call>\n{"name": "x", "arguments": \n</tool_call>',
    '<tool_call>\n{"name": "x", "arguments": {}}\n',
    '<tool_call>\n{"name": null, "arguments": []}\n</tool_call>',
    '<tool_call>\n[{"name": "x"}, 1, NaN]\n</tool_call>',
    "<tool_call>" * 40,
    "<think>never closed",
    "</think></think>",
    "<answer></answer>",
    "<answer>",
    "<search></search>",
    '{"name": "x", "parameters": {}}',
)


@check("token_spaces")
def invalid_actions(subject: Subject) -> None:
    """Ids outside the space, floats and actions that are too long raise `gymnasium.error.InvalidAction`, and the episode is as it was.

    Protects the programmer: an id clipped into the space, or a float cut down to a whole number, trains on something that nobody sampled.

    Args:
        subject: what is checked.
    """
    with subject.made() as env:
        _, space = subject.token_spaces(env)
        high = int(space.high[0])
        wrong: dict[str, Any] = {
            "a negative id": np.array([-1], dtype=np.int64),
            "an id above the space": np.array([0, high + 1], dtype=np.int64),
            "a padded array of floats": np.zeros(space.max_length, dtype=np.float32),
            "a list of floats": [0.5, 1.0][: space.max_length],
            "one id more than fits": np.zeros(space.max_length + 1, dtype=np.int64),
            "a two-dimensional array": np.zeros((1, 1), dtype=np.int64),
        }
        script = subject.scripts[-1]
        frame = frame_of_reset(env.reset(seed=script.seed))
        turn = frame.info.get("turn")
        for kind, action in wrong.items():
            mend = "check dtype, bounds and length before anything else changes"
            try:
                env.step(action)
            except InvalidAction:
                continue
            except Exception as error:  # noqa: BLE001  # any other exception is what this looks for
                fail(f"{kind} raised {type(error).__name__}: {error}", "gymnasium.error.InvalidAction", mend)
            fail(f"{kind} was taken as an action", "gymnasium.error.InvalidAction", mend)
        if script.actions:
            after = frame_of_step(env.step(copy.deepcopy(script.actions[0])))
            if isinstance(turn, int) and after.info.get("turn") != turn + 1:
                fail(
                    f"the first step behind {len(wrong)} refused actions is turn {after.info.get('turn')}",
                    f"turn {turn + 1}",
                    "refuse an action before the turn is counted",
                )


@check("token_spaces", "observation_length")
def control_tokens(subject: Subject) -> None:
    """Where the environment repeats the model's text, a control token written out in it stays text.

    Protects the turn structure: an error message or a web page that quotes `<|im_end|>` must not end a turn, and a quoted `<tool_call>` is
    no call. `split_special_tokens=True` alone keeps added tokens that are not marked as special.

    Args:
        subject: what is checked.

    Raises:
        NotApplicable: where nothing repeats the model's text, or the control tokens are not known.
    """
    with subject.made() as env:
        subject.token_spaces(env)
        chat, encode = attribute(env, "chat"), attribute(env, "encode_action")
        if not callable(encode) or not hasattr(chat, "count_control") or not hasattr(chat, "tokenizer"):
            raise NotApplicable("it has no chat and encode_action, so its control tokens are not known")
        ends = end_ids(env)
        literals = [str(token) for one, token in sorted(chat.tokenizer.added_tokens_decoder.items()) if token.special]
        literals.sort(key=lambda literal: chat.tokenizer.convert_tokens_to_ids(literal) not in ends)
        repeated = 0
        for template in _echo_templates(subject, env):
            for literal in literals[:4]:
                repeated += _check_echo(subject, env, template, literal)
    if not repeated:
        raise NotApplicable("no answer repeated the model's text")


_WORD, _HARMLESS = "\0", "qzx"


def _echo_templates(subject: Subject, env: Env) -> list[str]:
    """Texts of actions with a place for a literal: a plain one, and the expert's first with a word left out."""
    templates = [f"probe {_WORD} probe"]
    env.reset(seed=subject.seed)
    expert = attribute(env, "expert")
    ask = expert() if callable(expert) else None
    if ask is not None:
        text = str(ask())
        words = list(dict.fromkeys(match.span() for match in re.finditer(r"[A-Za-z]{3,}", text)))[:10]
        templates += [text[:start] + _WORD + text[end:] for start, end in words]
    return templates


def _check_echo(subject: Subject, env: Env, template: str, literal: str) -> bool:
    """Answer a harmless word and a control literal in its place. Returns whether both were repeated in the same sentence."""
    chat, encode = attribute(env, "chat"), attribute(env, "encode_action")
    space = env.action_space
    assert isinstance(space, TokenBox)  # the caller has asked for token spaces
    counts: list[int] = []
    frames: list[Frame] = []
    for word in (_HARMLESS, literal):
        ids = np.array(encode(template.replace(_WORD, word)), dtype=np.int64)
        if len(ids) >= space.max_length:
            return False
        before = frame_of_reset(env.reset(seed=subject.seed))
        after = frame_of_step(env.step(ids))
        if after.info.get("context_rewritten") or length_of(after) < length_of(before) + len(ids):
            return False
        tail = after.observation[length_of(before) + len(ids) : length_of(after)].tolist()
        counts.append(chat.count_control(tail))
        frames.append(after)
    texts = [str(frame.info.get("feedback", "")) for frame in frames]
    same_end = frames[0].terminated == frames[1].terminated and frames[0].truncated == frames[1].truncated
    if literal not in texts[1] or texts[1].replace(literal, _HARMLESS) != texts[0] or not same_end:
        return False
    if counts[0] != counts[1]:
        fail(
            f"an answer that repeats {literal!r} holds {counts[1]} control tokens, and one that repeats {_HARMLESS!r} holds {counts[0]}",
            "as many, whatever the text says",
            "give text to AgentEnv as `text` or `messages`, or encode it with env.unwrapped.chat.encode_text",
        )
    return True
