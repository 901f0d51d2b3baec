"""Transcripts: every action token once, in the model's colour; everything else in the environment's."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.chat import load_tokenizer
from agent_gym.report.transcript import contexts_of, mask_strip, pick_pair, pieces_of, transcript
from agent_gym.trajectory import Step, StopReason, Trajectory


@st.composite
def episodes(draw: st.DrawFn) -> Trajectory:
    """Episodes of some turns, contexts growing or rewritten at random."""
    ids = st.lists(st.integers(0, 300), min_size=1, max_size=6)
    shown = draw(ids)
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        action = draw(st.lists(st.integers(0, 300), max_size=5))
        steps.append(Step(shown, action, [-0.5] * len(action)))
        shown = draw(ids) if draw(st.booleans()) else [*shown, *action, *draw(st.lists(st.integers(0, 300), max_size=5))]
    return Trajectory(steps=steps, final_observation=shown)


@given(episodes())
@settings(max_examples=120, deadline=None)
def test_every_action_token_stands_once_and_in_order(episode: Trajectory) -> None:
    contexts = contexts_of(episode)
    actions = [one for context in contexts for segment in context.segments if segment.action for one in segment.ids]
    assert actions == [one for step in episode.steps for one in step.action_ids.tolist()]
    for context in contexts:
        ids = [one for segment in context.segments for one in segment.ids]
        for step in (segment.step for segment in context.segments if segment.action):
            assert step is not None
            whole = [*step.observation_ids.tolist(), *step.action_ids.tolist()]
            assert ids[: len(whole)] == whole
    assert sum(context.trained for context in contexts) == len(actions)


def test_a_rewritten_context_opens_a_new_one() -> None:
    grown = Trajectory(steps=[Step([1, 2], [3]), Step([1, 2, 3, 4], [5])], final_observation=[1, 2, 3, 4, 5, 6])
    rewritten = Trajectory(steps=[Step([1, 2], [3]), Step([1, 9], [5])])
    assert len(contexts_of(grown)) == 1 and len(contexts_of(rewritten)) == 2
    assert [segment.ids for segment in contexts_of(grown)[0].segments] == [(1, 2), (3,), (4,), (5,), (6,)]


@given(st.text(max_size=40))
@settings(max_examples=100, deadline=None)
def test_pieces_join_to_the_decoding(text: str) -> None:
    tokenizer = load_tokenizer(None)
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = list(pieces_of(ids, tokenizer))
    assert [start for start, _, _ in pieces] == [0, *[end for _, end, _ in pieces]][: len(pieces)]
    assert (pieces[-1][1] if pieces else 0) == len(ids)
    if "\ufffd" not in text:
        assert "".join(piece for _, _, piece in pieces) == text


def test_broken_bytes_and_unknown_ids_are_shown_and_never_crash() -> None:
    tokenizer = load_tokenizer(None)
    ids = [int(one) for one in np.random.default_rng(0).integers(0, len(tokenizer) + 5, 400)]
    pieces = list(pieces_of(ids, tokenizer))
    assert sum(end - start for start, end, _ in pieces) == 400
    assert "".join(text for _, _, text in pieces_of([len(tokenizer) + 1], tokenizer)) == f"\u2039{len(tokenizer) + 1}\u203a"
    assert "".join(text for _, _, text in pieces_of([5, 6], None)) == "\u20395\u203a\u20396\u203a"


def test_colours_follow_the_mask() -> None:
    tokenizer = load_tokenizer(None)
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    prompt, action, turn = encode("What now?"), encode("search this"), encode("a page <b>")
    episode = Trajectory(
        steps=[Step(prompt, action, [-9.0] * len(action), info={"advantage": 0.5}, reward_parts={"task": 1.0})],
        final_observation=[*prompt, *action, *turn],
    )
    element, data = transcript(episode, tokenizer, "k")
    spans = re.findall(r'<span class="([ae])(?: s\d)?" data-i="(\d+)"', element)
    expected = ["e"] * len(prompt) + ["a"] * len(action) + ["e"] * len(turn)
    assert [kind for kind, _ in spans] == [expected[int(index)] for _, index in spans]
    assert data["k"]["ids"] == [*prompt, *action, *turn]
    assert data["k"]["logprobs"][len(prompt)] == -9.0 and data["k"]["logprobs"][0] is None
    assert data["k"]["advantages"][len(prompt)] == 0.5 and data["k"]["advantages"][-1] is None
    assert "a s4" in element and "&lt;" in element and "<b>" not in element and "task +1" in element


def test_an_empty_action_is_shown() -> None:
    element, _ = transcript(Trajectory(steps=[Step([1], [], [])]), None, "k")
    assert "(no token)" in element


def test_a_very_long_episode_keeps_the_model_s_tokens_apart() -> None:
    tokenizer = load_tokenizer(None)
    episode = Trajectory(steps=[Step(np.full(9000, 300), [300, 301])])
    element, _ = transcript(episode, tokenizer, "k")
    assert element.count("data-i") == 2


def test_the_strip_has_a_place_for_each_token() -> None:
    context = contexts_of(Trajectory(steps=[Step([1, 2, 3], [4, 5])], final_observation=[1, 2, 3, 4, 5, 6]))[0]
    strip = mask_strip(context)
    rects = re.findall(r'x="(\d+)" y="0" width="(\d+)" height="10" class="(m[01])"', strip)
    assert rects == [("0", "3", "m0"), ("3", "2", "m1"), ("5", "1", "m0")]
    assert "2 of 6 tokens are trained" in strip


def finished(seed: int, success: bool) -> Trajectory:
    return Trajectory(
        env_id="X-v0",
        seed=seed,
        task_id=f"t{seed}",
        steps=[Step([1], [2], terminated=True, stop_reason=StopReason.ANSWER, info={"is_success": success})],
    )


@pytest.mark.parametrize(
    ("before", "after", "seed"),
    [([1, 0, 0], [1, 1, 1], 1), ([0, 0, 0], [0, 0, 1], 2), ([1, 1, 1], [0, 1, 1], 1), ([0, 0, 0], [0, 0, 0], 0)],
)
def test_the_first_task_that_changed_for_the_better_is_chosen(before: list[int], after: list[int], seed: int) -> None:
    pair = pick_pair([finished(i, bool(x)) for i, x in enumerate(before)], [finished(i, bool(x)) for i, x in enumerate(after)])
    assert pair is not None and pair[0].seed == pair[1].seed == seed


def test_different_tasks_make_no_pair() -> None:
    assert pick_pair([finished(1, True)], [finished(2, True)]) is None
