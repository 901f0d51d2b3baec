"""The contract: exact ids over episodes, where actions end, limits, info, and the three kinds of mistakes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_envs import Decoder, Parrot, ToolParrot
from tokenizer_zoo import GENERATED, generated

from agent_gym.chat import load_tokenizer
from agent_gym.context import rebuild, window
from agent_gym.core import AgentEnv, EnvFault, Observation, Outcome
from agent_gym.trajectory import Generation, StopReason

ALL = ["default", "qwen3", *GENERATED]


def open_tokenizer(name: str, request: pytest.FixtureRequest) -> Any:
    if name == "qwen3":
        return request.getfixturevalue("qwen3_path")
    return "default" if name == "default" else generated(name)


@pytest.fixture(params=ALL)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return open_tokenizer(request.param, request)


def random_actions(env: AgentEnv, seed: int, turns: int) -> list[np.ndarray]:
    """Random ids of the whole vocabulary, control ids and ends of turn in the middle, padded or not."""
    generator = np.random.default_rng(seed)
    control = np.array(sorted({*env.chat._control_ids, *env.end_of_turn_ids}))
    actions = []
    for _ in range(turns):
        ids = generator.integers(0, env.chat.vocab_size, size=int(generator.integers(0, 40)))
        places = generator.random(len(ids)) < 0.15
        ids[places] = generator.choice(control, size=int(places.sum()))
        if len(ids) and generator.random() < 0.5:
            ids[-1] = env.end_of_turn_ids[0]
        if generator.random() < 0.5:
            while len(ids) and ids[-1] == env.chat.pad_id:  # in a padded array a trailing pad cannot be told from padding
                ids = ids[:-1]
            ids = env.action_space.pad(ids)
        actions.append(ids)
    return actions


def check_exactness(env: AgentEnv, seed: int, turns: int) -> None:
    """Reset ids, then each action's own ids untouched, then the turn's ids."""
    observation, info = env.reset(seed=seed)
    expected = observation[: info["observation_length"]].tolist()
    for action in random_actions(env, seed, turns):
        ids = env.action_space.unpad(action).tolist()
        ends = [place for place, one in enumerate(ids) if one in env.end_of_turn_ids]
        kept = ids[: ends[0] + 1] if ends else ids
        observation, _, terminated, truncated, info = env.step(action)
        now = observation[: info["observation_length"]].tolist()
        assert now[: len(expected) + len(kept)] == [*expected, *kept], "the prompt does not hold the last prompt and the sampled ids"
        assert info["dropped_ids"] == len(ids) - len(kept)
        closing = env.chat.turn([], closed=bool(ends))
        assert env.chat.decode(now[len(expected) + len(kept) :]).startswith(env.chat.decode(closing))
        assert (observation[info["observation_length"] :] == env.chat.pad_id).all()
        assert env.history.exchanges[-1].action_ids == tuple(kept)
        assert now[len(expected) + len(kept) :] == list(env.history.exchanges[-1].turn_ids)
        expected = now
        if terminated or truncated:
            break


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**31), turns=st.integers(1, 20), tools=st.booleans())
def test_an_episode_is_the_reset_ids_and_each_actions_own_ids_and_each_turn(tokenizer: Any, seed: int, turns: int, tools: bool) -> None:
    check_exactness((ToolParrot if tools else Parrot)(tokenizer=tokenizer, max_turns=20), seed, turns)


def test_an_environment_that_decodes_and_encodes_the_action_fails_the_exactness_test(tokenizer: Any) -> None:
    with pytest.raises(AssertionError):
        for seed in range(20):
            check_exactness(Decoder(tokenizer=tokenizer, max_turns=20), seed, 10)


def test_qwen3_stopped_by_endoftext_keeps_and_closes_it(qwen3_path: str) -> None:
    env = Parrot(tokenizer=qwen3_path, end_of_turn_ids=[151645, 151643])
    _, before = env.reset(seed=0)
    action = [*env.encode_action("hello")[:-1], 151643]
    observation, _, _, _, info = env.step(action)
    start = before["observation_length"]
    assert observation[start : start + len(action)].tolist() == action
    assert env.history.exchanges[-1].action_ids[-1] == 151643
    assert info["dropped_ids"] == 0
    assert env.chat.decode(list(env.history.exchanges[-1].turn_ids)).startswith("\n<|im_start|>user")


def test_an_end_of_turn_that_was_sampled_is_trained_on(qwen3_path: str) -> None:
    from agent_gym.trainers.rows import build_rows
    from agent_gym.wrappers import StepRecorder

    recorder = StepRecorder(Parrot(tokenizer=qwen3_path, end_of_turn_ids=[151645, 151643], max_turns=2))
    recorder.reset(seed=0)
    for end in (151643, 151645):
        recorder.step(Generation([*recorder.unwrapped.encode_action("hello")[:-1], end, 5, 6]))
    (row,) = build_rows(recorder.trajectory, [1.0, 1.0])
    trained = row.ids[row.mask.astype(bool)].tolist()
    assert trained.count(151643) == 1 and trained.count(151645) == 1 and 6 not in trained


@pytest.mark.parametrize("form", ["list", "array", "padded", "generation", "tuple", "int32"])
def test_every_form_of_an_action_gives_the_same_step(form: str) -> None:
    env = Parrot()
    env.reset(seed=3)
    ids = env.encode_action("hello there")
    wanted = env.step(ids)
    env.reset(seed=3)
    action: Any = {
        "list": ids, "array": np.array(ids), "padded": env.action_space.pad(ids), "generation": Generation(ids), "tuple": tuple(ids),
        "int32": np.array(ids, dtype=np.int32),
    }[form]  # fmt: skip
    got = env.step(action)
    assert np.array_equal(wanted[0], got[0]) and wanted[1:] == got[1:]


def test_cut_off_empty_and_end_only_actions_are_defined(tokenizer: Any) -> None:
    env = Parrot(tokenizer=tokenizer)
    end = env.end_of_turn_ids[0]
    whole_close = env.chat.turn([], closed=False)
    for action, kept, closed in (
        ([], [], False),
        ([end], [end], True),
        (env.encode_action("hi")[:-1], env.encode_action("hi")[:-1], False),
    ):
        _, info = env.reset(seed=0)
        start = info["observation_length"]
        observation, _, _, _, info = env.step(action)
        behind = observation[start : info["observation_length"]].tolist()
        assert behind[: len(kept)] == kept
        rest = behind[len(kept) :]
        assert env.chat.decode(rest).startswith(env.chat.decode(env.chat.turn([], closed=closed)))
        if not closed:
            assert rest[:1] == whole_close[:1]


def test_ids_behind_the_end_of_turn_are_dropped_and_counted() -> None:
    env = Parrot()
    env.reset(seed=0)
    ids = [*env.encode_action("one"), *env.encode_action("two")]
    _, _, _, _, info = env.step(ids)
    assert info["dropped_ids"] == len(env.encode_action("two"))
    assert env.history.exchanges[-1].action_text == "one"


def test_an_array_as_long_as_the_space_is_padded_and_a_shorter_one_is_whole() -> None:
    env = Parrot(max_action_tokens=8)
    pad = env.chat.pad_id
    env.reset(seed=0)
    env.step(np.array([50, 51, pad, pad, pad, pad, pad, pad]))
    assert env.history.exchanges[-1].action_ids == (50, 51)
    env.step(np.array([50, 51, pad]))
    assert env.history.exchanges[-1].action_ids == (50, 51, pad)
    for whole in ([50, 51, *[pad] * 6], (50, 51, *[pad] * 6), Generation([50, 51, *[pad] * 6])):
        env.reset(seed=0)
        env.step(whole)
        assert env.history.exchanges[-1].action_ids == (50, 51, *[pad] * 6)


def test_ids_without_text_are_the_models_mistake_and_ids_outside_are_the_programmers() -> None:
    env = Parrot(vocab_size=len(load_tokenizer()) + 100)
    env.reset(seed=0)
    env.step([len(load_tokenizer()) + 50])
    for bad in ([env.chat.vocab_size], [-1], [10**12]):
        env.reset(seed=0)
        with pytest.raises(InvalidAction, match="must lie in"):
            env.step(bad)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.array([1.0, 2.0]), "DiscreteTokens"), ([0.5], "DiscreteTokens"), (np.zeros((2, 2), dtype=np.int64), "one-dimensional"),
        ("hello", "token ids"), (None, "token ids"), ({"a": 1}, "token ids"), (7, "one-dimensional"), (list(range(600)), "at most"),
        ([True, False], "dtype bool"), ([[1], [2, 3]], "token ids"),
    ],
)  # fmt: skip
def test_a_programmers_mistake_says_what_came_and_what_was_wanted(action: Any, message: str) -> None:
    env = Parrot()
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match=message):
        env.step(action)
    env.step([])  # nothing was lost: the episode goes on


def test_step_outside_an_episode_needs_a_reset() -> None:
    env = Parrot(max_turns=1)
    with pytest.raises(ResetNeeded):
        env.step([])
    env.reset(seed=0)
    env.step([])
    with pytest.raises(ResetNeeded):
        env.step([])


def test_the_turn_limit_truncates_and_winning_on_the_last_turn_terminates() -> None:
    env = Parrot(max_turns=2)
    env.reset(seed=0)
    assert env.step([])[2:4] == (False, False)
    *_, terminated, truncated, info = env.step([])
    assert (terminated, truncated, info["stop_reason"]) == (False, True, StopReason.MAX_TURNS)
    env.reset(seed=0)
    env.step([])
    *_, terminated, truncated, info = env.step(env.encode_action(env.word))
    assert (terminated, truncated, info["stop_reason"], info["is_success"]) == (True, False, StopReason.SUCCESS, True)


def test_a_prompt_that_would_not_fit_truncates_and_keeps_the_last_one() -> None:
    env = Parrot(max_turns=100)
    env.reset(seed=0)
    limit = env.prompt_ids.size + 60
    env = Parrot(max_turns=100, max_observation_tokens=limit)
    observation, _ = env.reset(seed=0)
    while True:
        before = observation
        observation, reward, terminated, truncated, info = env.step([60] * 10)
        if truncated or terminated:
            break
    assert info["stop_reason"] is StopReason.CONTEXT_LIMIT and truncated and not terminated and reward == 0.0
    assert info["context_rewritten"] is True  # what came back does not continue the last prompt
    assert np.array_equal(before, observation)


def test_a_first_prompt_that_does_not_fit_is_an_error_with_task_length_and_limit() -> None:
    env = Parrot(max_observation_tokens=5)
    with pytest.raises(ValueError, match=r"task 'train/\d+' has \d+ tokens, and max_observation_tokens is 5"):
        env.reset(seed=0)
    with pytest.raises(ResetNeeded):
        env.step([])


def test_a_fault_of_the_world_is_truncated_without_reward() -> None:
    env = Parrot()
    observation, _ = env.reset(seed=0)
    after, reward, terminated, truncated, info = env.step(env.encode_action("fault"))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["env_fault"] is True and info["stop_reason"] is StopReason.ENV_FAULT and "flew away" in info["feedback"]
    assert np.array_equal(observation, after)


def test_a_fault_at_reset_is_raised() -> None:
    class Broken(Parrot):
        def _begin(self, options: dict[str, Any]) -> Observation:
            raise EnvFault("no world")

    with pytest.raises(EnvFault, match="no world"):
        Broken().reset(seed=0)


def test_info_has_the_same_keys_and_types_at_every_step() -> None:
    env = Parrot(expert_actions=True, max_turns=3)
    _, info = env.reset(seed=0)
    kinds = {key: type(value) for key, value in info.items()}
    assert info["expert_action"] == env.word and None not in info.values()
    for text in ("a", "fault"):
        *_, info = env.step(env.encode_action(text))
        assert {key: type(value) for key, value in info.items()} == kinds
    assert info["expert_action"] == ""


def test_reward_parts_and_own_info_keys_are_fixed() -> None:
    class Parts(Parrot):
        reward_part_names = ("answer", "cost")
        extra_info = {"calls": 0}  # noqa: RUF012

        def _respond(self, action: Any) -> Outcome:
            info = {"reward_parts": {"answer": 1} if action.text == "a" else {"typo": 1.0}, "calls": 2 if action.text == "a" else "two"}
            return Outcome(Observation(text="x"), 1.0, info=info)

    env = Parts()
    _, info = env.reset(seed=0)
    assert info["reward_parts"] == {"answer": 0.0, "cost": 0.0} and info["calls"] == 0
    *_, info = env.step(env.encode_action("a"))
    assert info["reward_parts"] == {"answer": 1.0, "cost": 0.0} and info["calls"] == 2
    with pytest.raises(ValueError, match="typo"):
        env.step(env.encode_action("b"))


@pytest.mark.parametrize(
    ("info", "message"),
    [({"is_sucess": True}, "is_sucess"), ({"stop_reason": "max_turns"}, "a limit"), ({"stop_reason": "tired"}, "tired")],
)
def test_an_outcome_that_makes_no_sense_is_refused_by_name(info: dict[str, Any], message: str) -> None:
    class Odd(Parrot):
        def _respond(self, action: Any) -> Outcome:
            return Outcome(Observation(text="x"), terminated=True, info=info)

    env = Odd()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step([])


def test_half_surrogate_pairs_from_the_world_become_replacement_characters(tokenizer: Any) -> None:
    class Broken(Parrot):
        def _respond(self, action: Any) -> Outcome:
            return Outcome(
                Observation(messages=[{"role": "tool", "content": "a\ud83d b\udc00"}, {"role": "user", "content": "\ud83d\ude00"}])
            )

    env = Broken(tokenizer=tokenizer, max_turns=3)
    env.reset(seed=0)
    observation, *_, info = env.step(env.encode_action("hello \ud83d"))
    assert env.decode(observation, info).count("\ufffd") >= 2
    info["feedback"].encode()


def test_an_observation_is_exactly_one_of_three() -> None:
    for wrong in ({}, {"text": "a", "messages": []}, {"text": "a", "token_ids": [1]}):
        with pytest.raises(ValueError, match="exactly one"):
            Observation(**wrong)


def test_token_ids_from_the_environment_are_checked_and_taken_as_they_are() -> None:
    class Ids(Parrot):
        def _respond(self, action: Any) -> Outcome:
            return Outcome(Observation(token_ids=[7, 8, 9] if action.text == "a" else [10**9]))

    env = Ids()
    _, info = env.reset(seed=0)
    start = info["observation_length"]
    observation, *_ = env.step(env.encode_action("a"))
    assert observation[start + len(env.encode_action("a")) :][:4].tolist() == [7, 8, 9, env.chat.pad_id]
    with pytest.raises(ValueError, match="must lie in"):
        env.step(env.encode_action("b"))


def test_the_environment_may_rewrite_the_whole_prompt() -> None:
    class Rewriter(Parrot):
        def _respond(self, action: Any) -> Outcome:
            return Outcome(Observation(text=f"A summary of {action.text}.", rewrite=True))

    env = Rewriter()
    env.reset(seed=0)
    observation, _, _, _, info = env.step(env.encode_action("much"))
    assert info["context_rewritten"] is True
    assert env.prompt_ids.tolist() == env.chat.render([{"role": "user", "content": "A summary of much."}])
    assert env.decode(observation, info).count("A summary") == 1


def test_a_window_keeps_head_and_last_exchanges_with_each_kept_action_verbatim(tokenizer: Any) -> None:
    env = Parrot(tokenizer=tokenizer, context="window:2", max_turns=20)
    observation, info = env.reset(seed=0)
    head = observation[: info["observation_length"]].tolist()
    for count, action in enumerate(random_actions(env, 5, 8), start=1):
        observation, *_, info = env.step(action)
        ids = observation[: info["observation_length"]].tolist()
        wanted = list(head)
        for exchange in env.history.exchanges[-2:]:
            wanted += [*exchange.action_ids, *exchange.turn_ids]
        assert ids == wanted
        assert info["context_rewritten"] is (count > 2)


def test_rebuilding_renders_a_new_conversation_in_which_kept_actions_stand_as_ids(tokenizer: Any) -> None:
    def make(history: Any) -> list[Any]:
        last = history.exchanges[-1]
        kept = {"role": "assistant", "token_ids": last.action_ids}
        return [{"role": "user", "content": f"{len(history.exchanges)} so far."}, kept, {"role": "user", "content": "Go on."}]

    env = Parrot(tokenizer=tokenizer, context=rebuild(make), max_turns=20)
    env.reset(seed=0)
    for count, action in enumerate(random_actions(env, 6, 8), start=1):
        observation, *_, info = env.step(action)
        ids = observation[: info["observation_length"]].tolist()
        sampled = list(env.history.exchanges[-1].action_ids)
        assert any(ids[start : start + len(sampled)] == sampled for start in range(len(ids)))
        assert f"{count} so far." in env.decode(observation, info) and info["context_rewritten"] is True


def test_rebuild_by_name_needs_a_way_of_the_environments_own() -> None:
    with pytest.raises(ValueError, match="no way of its own"):
        Parrot(context="rebuild")

    class Own(Parrot):
        def _rebuild(self) -> list[Any]:
            return [{"role": "user", "content": f"Turn {self.turn} of {self.word}"}]

    env = Own(context="rebuild")
    env.reset(seed=0)
    observation, *_, info = env.step([])
    assert f"Turn 1 of {env.word}" in env.decode(observation, info)


@pytest.mark.parametrize("context", ["windo", "window", "window:0", "window:-1", "window:x", "append:3", 3])
def test_an_unknown_context_is_refused(context: Any) -> None:
    with pytest.raises(ValueError, match="context must be"):
        Parrot(context=context)


def test_a_window_of_an_object_is_shared_without_state() -> None:
    policy = window(1)
    one, two = Parrot(context=policy), Parrot(context=policy)
    one.reset(seed=0)
    two.reset(seed=0)
    one.step([60])
    observation, *_ = two.step([60])
    assert np.array_equal(observation, one._observe())


@pytest.mark.parametrize(
    "keyword",
    [
        {"split": "dev"},
        {"render_mode": "human"},
        {"max_turns": 0},
        {"max_action_tokens": 1.5},
        {"max_observation_tokens": True},
        {"vocab_size": 3},
    ],
)
def test_a_wrong_keyword_is_refused_by_name(keyword: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(keyword))):
        Parrot(**keyword)


def test_reset_options_choose_the_task_and_unknown_ones_are_refused() -> None:
    env = Parrot()
    assert env.reset(options={"index": 7})[1]["task_id"] == "train/7"
    with pytest.raises(ValueError, match="did you mean 'index'"):
        env.reset(options={"indx": 7})


def test_the_same_seed_gives_the_same_bytes_whatever_else_is_alive() -> None:
    one, two = Parrot(), Parrot()
    first = one.reset(seed=11)[0].tobytes()
    two.reset(seed=4)
    two.step([60])
    assert one.reset(seed=11)[0].tobytes() == first
    drawn = [one.reset()[1]["task_id"] for _ in range(5)]
    two.reset(seed=11)
    assert [two.reset()[1]["task_id"] for _ in range(5)] == drawn and len(set(drawn)) > 1


def test_render_shows_the_prompt_and_needs_its_mode() -> None:
    env = Parrot(render_mode="ansi")
    env.reset(seed=0)
    assert env.word in str(env.render())
    plain = Parrot()
    plain.reset(seed=0)
    assert plain.render() is None


def test_it_passes_gymnasiums_own_checker() -> None:
    check_env(Parrot(), skip_render_check=True)


def test_it_works_in_vector_environments() -> None:
    vector = gym.vector.SyncVectorEnv([Parrot, Parrot])
    observations, infos = vector.reset(seed=0)
    assert observations.shape == (2, 8192) and infos["turn"].tolist() == [0, 0]
    vector.step(vector.action_space.sample())
    vector.close()


def test_a_step_does_work_of_the_new_text_alone() -> None:
    """The ids that a step encodes do not grow with the prompt."""
    env = Parrot(max_turns=200, max_observation_tokens=20_000)
    env.reset(seed=0)
    encoded: list[int] = []
    encode = env.chat._encoder.encode

    def counting(text: str) -> list[int]:
        encoded.append(len(text))
        return encode(text)

    env.chat._encoder.encode = counting  # type: ignore[method-assign]
    sizes = []
    for turn in range(100):
        encoded.clear()
        env.step(env.encode_action(f"reply number {turn}"))
        sizes.append(sum(encoded))
    assert max(sizes[50:]) <= max(sizes[:50]) + 20


def test_the_working_example_of_the_docs_is_an_environment() -> None:
    class Echo(AgentEnv):
        def _begin(self, options: dict[str, Any]) -> Observation:
            return Observation(text="Say hello.")

        def _respond(self, action: Any) -> Outcome:
            won = "hello" in action.text
            return Outcome(Observation(text="Good." if won else "Once more."), reward=float(won), terminated=won)

    env = Echo()
    env.reset(seed=0)
    assert env.step(env.encode_action("hello"))[1:3] == (1.0, True)
    assert env.expert() is None and env.num_tasks is None and env.task_seeds(n=3) == [0, 1, 2]


async def _astep(env: AgentEnv, ids: list[int]) -> Any:
    return await env.astep(ids)


def test_astep_gives_the_same_as_step() -> None:
    import asyncio

    one, two = Parrot(), Parrot()
    one.reset(seed=0)
    two.reset(seed=0)
    for text in ("a", "b", "fault"):
        want, got = one.step(one.encode_action(text)), asyncio.run(_astep(two, two.encode_action(text)))
        assert np.array_equal(want[0], got[0]) and want[1:] == got[1:]


def test_stepping_loads_no_torch() -> None:
    code = "import sys; sys.path.insert(0, 'tests'); from small_envs import Parrot; e = Parrot(); e.reset(seed=0); e.step([5]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------------------ moments


class Returning(Parrot):
    """A parrot that knows the way back."""

    def _get_state(self) -> Any:
        return self.word

    def _set_state(self, state: Any) -> None:
        self.word = state


@pytest.mark.parametrize("context", ["append", "window:2"])
def test_a_moment_can_be_returned_to_from_anywhere(context: str) -> None:
    env, other = (Returning(context=context, max_turns=8, expert_actions=True) for _ in range(2))
    env.reset(seed=4)
    actions = [env.encode_action(text) for text in ("a", "bb", "", "no", "yes")]
    moments, frames = [], []
    for action in actions:
        moments.append(env.get_state())
        frames.append(env.step(action))
    env.step(env.encode_action(env.word))
    over = env.get_state()
    following = env.reset()[1]["task_id"]
    for player in (env, other):
        for at in reversed(range(len(actions))):
            player.set_state(moments[at])
            for action, frame in zip(actions[at:], frames[at:], strict=True):
                again = player.step(action)
                assert again[0].tobytes() == frame[0].tobytes() and again[1:] == frame[1:]
        assert player.reset()[1]["task_id"] == following
        player.set_state(over)
        with pytest.raises(ResetNeeded):
            player.step(actions[0])


def test_a_moment_fits_its_class_tokenizer_and_room(qwen3_path: str) -> None:
    env = Returning()
    env.reset(seed=0)
    moment = env.get_state()
    for other in (Returning(tokenizer=qwen3_path), Returning(max_observation_tokens=8), type("Else", (Returning,), {})()):
        with pytest.raises(ValueError, match="with the same keywords"):
            other.set_state(moment)


def test_an_environment_without_a_way_back_says_what_it_lacks() -> None:
    env = Parrot()
    env.reset(seed=0)
    with pytest.raises(NotImplementedError, match=r"Parrot cannot return .* _get_state and _set_state"):
        env.get_state()


def test_texts_in_a_tuple_are_handed_on_and_lists_are_copied() -> None:
    class Told(Parrot):
        extra_info = {"words": (), "numbers": ()}  # noqa: RUF012  # a test's own

        def _respond(self, action: Any) -> Outcome:
            return Outcome(Observation(text="."), info={"words": self.words, "numbers": ([1],)})

    env = Told()
    env.words = ("a", "b")
    env.reset(seed=0)
    info = env.step(env.encode_action("x"))[4]
    assert info["words"] is env.words
    info["numbers"][0].append(2)
    assert env.step(env.encode_action("x"))[4]["numbers"] == ([1],)
