"""Transcripts: every action token once, in the model's colour; everything else in the environment's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_gym.chat import load_tokenizer
from agent_gym.report.episodes import episode_record, episode_summary
from agent_gym.report.transcript import contexts_of, pick_pair, pieces_of
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


def test_a_record_holds_every_token_with_what_is_known_of_it() -> None:
    tokenizer = load_tokenizer(None)
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False)  # noqa: E731
    prompt, action, turn = encode("What now?"), encode("search this"), encode("a page <b>\u202e")
    info = {"advantage": 0.5, "loss_mask": [1] * (len(action) - 1) + [0]}
    episode = Trajectory(
        steps=[Step(prompt, action, [-9.0] * len(action), info=info, reward_parts={"task": 1.0})],
        final_observation=[*prompt, *action, *turn],
    )
    record = episode_record(episode, tokenizer)
    (context,) = record["contexts"]
    assert [segment["who"] for segment in context] == ["e", "a", "e"]
    assert [segment["ids"] for segment in context] == [prompt, action, turn]
    assert context[1]["logprobs"] == [-9.0] * len(action) and context[1]["advantages"] == [0.5] * len(action)
    assert context[1]["mask"] == info["loss_mask"] and context[1]["step"] == 0 and context[2]["step"] is None
    for segment in context:
        assert sum(count for count, _ in segment["pieces"]) == len(segment["ids"])
    assert "".join(text for _, text in context[2]["pieces"]) == "a page <b>\u27e8U+202E\u27e9"
    assert record["steps"][0]["parts"] == {"task": 1.0} and contexts_of(episode)[0].trained == len(action) - 1


@pytest.mark.parametrize("given", [None, "x", [1.0] * 9, {"a": 1}, [[1], [2, 3]]])
def test_what_is_no_number_per_token_counts_as_not_recorded(given: object) -> None:
    step = Step([1], [2, 3], info={"advantage": given, "loss_mask": given})
    segment = episode_record(Trajectory(steps=[step]), None)["contexts"][0][1]
    assert segment["advantages"] is None and segment["mask"] is None


@given(episodes())
@settings(max_examples=60, deadline=None)
def test_the_summary_counts_what_the_episode_holds(episode: Trajectory) -> None:
    summary = episode_summary(episode)
    assert summary["turns"] == len(episode) and summary["sampled"] == sum(len(step.action_ids) for step in episode.steps)
    assert summary["tokens"] == max(len(step.observation_ids) + len(step.action_ids) for step in episode.steps)


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
