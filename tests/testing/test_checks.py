"""The conformance checks: each finds the fault that it is for, in an environment that has no other, and none finds one where none is."""

import random
from functools import partial
from pathlib import Path

import broken_envs
import gymnasium
import numpy as np
import pytest
from broken_envs import BROKEN, EchoEnv, LetterEnv
from helpers import require
from hypothesis import given
from hypothesis import strategies as st

import agent_gym
from agent_gym.context import Rebuild
from agent_gym.core import Observation, Outcome
from agent_gym.envs.commands import CommandEnv
from agent_gym.envs.papers.env import PaperSearchEnv
from agent_gym.testing import CHECKS, CheckFailure, Report, Subject, check_agent_env
from agent_gym.testing.report import run_check
from agent_gym.testing.subject import EnvFactory, Frame, first_difference
from agent_gym.wrappers import StepRecorder, as_token_env

# ------------------------------------------------------------------------------------------------ nothing to find


def names(results):
    return [result.name for result in results]


def test_an_environment_by_hand_that_keeps_to_the_contract_fails_nothing():
    report = check_agent_env(LetterEnv).raise_if_failed()
    assert names(report.skipped) == ["control_tokens"]  # it has no tokenizer
    assert names(report.results) == list(CHECKS)


def test_an_environment_on_agent_env_passes_every_check():
    report = check_agent_env(EchoEnv)
    assert names(report.passed) == list(CHECKS), report


@pytest.mark.parametrize("env_id", [entry.id for entry in agent_gym.ENVIRONMENTS])
def test_every_built_in_environment_passes_every_check(env_id):
    kwargs = {}
    if "TextWorld" in env_id:
        require("textworld")
        kwargs = {"num_games": 4}  # each takes seconds to make
    report = check_agent_env(env_id, kwargs=kwargs).raise_if_failed()
    # a prompt that is made anew shows no action; worlds of commands and of papers repeat none in their answers, and their last one is no answer to exchange
    unwrapped = gymnasium.make(env_id).unwrapped
    not_shown = {"token_exactness"} if isinstance(unwrapped.context, Rebuild) else set()
    not_repeated = {"control_tokens", "wrong_answer"} if isinstance(unwrapped, (CommandEnv, PaperSearchEnv)) else set()
    assert set(names(report.skipped)) <= not_shown | not_repeated, report


@pytest.mark.parametrize("context", ["window:1", "rebuild"])
def test_built_in_environments_keep_to_the_contract_where_the_context_is_rewritten(context):
    report = check_agent_env("AgentR1/HotpotQA-v0", kwargs={"context": context}, checks=[*CHECKS][:-2])
    report.raise_if_failed()
    assert report["token_exactness"].outcome == ("passed" if context == "window:1" else "skipped")


def recorded():
    return StepRecorder(LetterEnv())


def told_in_words():
    return as_token_env(gymnasium.make("FrozenLake-v1"))


@pytest.mark.parametrize("factory", [recorded, told_in_words])
def test_wrapped_environments_are_checked_as_they_are(factory):
    report = check_agent_env(factory).raise_if_failed()
    assert report["token_exactness"].outcome == report["vector_env"].outcome == report["max_turns"].outcome == "passed"


def test_an_environment_without_token_spaces_is_asked_only_what_gymnasium_asks():
    report = check_agent_env("CartPole-v1").raise_if_failed()
    assert report["seeded_episode"].outcome == report["vector_env"].outcome == "passed"
    for name in ("token_exactness", "invalid_actions", "expert_succeeds", "wrong_answer", "reset_needed"):
        assert report[name].outcome == "skipped"
        assert "as_token_env" in report[name].message


def test_a_check_that_does_not_apply_is_skipped_with_its_reason():
    class NoExpert(LetterEnv):
        def expert(self):
            return None

    report = check_agent_env(NoExpert, checks=["expert_succeeds", "wrong_answer", "render_ansi"])
    assert [result.outcome for result in report.results] == ["passed", "skipped", "skipped"]
    assert "no expert" in report["expert_succeeds"].message == report["wrong_answer"].message


class Coin(EchoEnv):
    """Won by whoever says the word, if the coin falls well; silence costs something."""

    chance = True
    luck, silence = 0.5, -0.1

    def _respond(self, action):
        if action.text != self.word:
            return Outcome(Observation(text="You said nothing of use."), self.silence)
        won = bool(self.np_random.random() < self.luck)
        return Outcome(Observation(text="Over."), float(won), True, {"is_success": won})

    def expert(self):
        return lambda: str(self.word)


def test_where_chance_decides_too_the_expert_wins_at_times_and_silence_is_not_better():
    class Cursed(Coin):
        luck, silence = 0.0, -1.0

    class PaysForNothing(Coin):
        silence = 0.5

    draw = random.Random(7)

    class Guesses(Coin):
        def expert(self):
            return lambda: str(self.word) if draw.random() < 0.5 else "who knows"

    assert check_agent_env(Coin, checks=["expert_succeeds"])["expert_succeeds"].outcome == "passed"
    assert "none of 40 tasks" in check_agent_env(Cursed, checks=["expert_succeeds"])["expert_succeeds"].message
    assert "otherwise when it is asked again" in check_agent_env(Guesses, checks=["expert_succeeds"])["expert_succeeds"].message
    assert "empty replies earn" in check_agent_env(PaysForNothing, checks=["expert_succeeds"])["expert_succeeds"].message


def test_a_task_of_costs_alone_is_not_won_by_leaving_it_unfinished():
    class Costs(EchoEnv):
        def _respond(self, action):
            outcome = super()._respond(action)
            return Outcome(outcome.observation, -1.0, outcome.terminated, outcome.info)

        def expert(self):
            return lambda: str(self.word) if self.turn > 9 else "Let me see."

    class PaysOnTheWay(Costs):
        def _respond(self, action):
            outcome = super()._respond(action)
            return Outcome(outcome.observation, 1.0 if self.turn < 9 else -50.0, outcome.terminated, outcome.info)

    assert check_agent_env(Costs, kwargs={"max_turns": 20}, checks=["expert_succeeds"])["expert_succeeds"].outcome == "passed"
    assert "earn" in check_agent_env(PaysOnTheWay, kwargs={"max_turns": 20}, checks=["expert_succeeds"])["expert_succeeds"].message


# ------------------------------------------------------------------------------------------------ one fault each

FAULTS = [(name, made) for name, made in BROKEN.items()] + [("other_process", broken_envs.registered_only_here())]


def test_there_is_a_broken_environment_for_every_check():
    assert {name for name, _ in FAULTS} == set(CHECKS)


@pytest.mark.parametrize(("check", "broken"), FAULTS, ids=[name for name, _ in FAULTS])
def test_a_broken_environment_fails_its_own_check_and_no_other(check, broken):
    report = check_agent_env(broken)
    assert names(report.failed) == [check], report
    for line in ("seen:", "wanted:", "mend:"):
        assert line in report[check].message


class RewardIsNaN(LetterEnv):
    def step(self, action):
        return (lambda result: (result[0], float("nan"), *result[2:]))(super().step(action))


class RewardIsNone(LetterEnv):
    def step(self, action):
        return (lambda result: (result[0], None, *result[2:]))(super().step(action))


class PartsChange(LetterEnv):
    def parts(self, reward):
        return {"task": reward, **({"late": 0.0} if self.turn > 1 else {})}


class TypeChanges(LetterEnv):
    def info(self, *args):
        return {**super().info(*args), "task_id": self.letter if self.turn else np.str_(self.letter)}


class KeyOnlyAtReset(LetterEnv):
    def info(self, *args):
        return super().info(*args) | ({"hint": "x"} if self.turn == 0 else {})


class ContractKeyMissing(LetterEnv):
    def info(self, *args):
        return {key: value for key, value in super().info(*args).items() if key != "observation_length"}


class LengthOneShort(LetterEnv):
    def info(self, *args):
        info = super().info(*args)
        return info | {"observation_length": info["observation_length"] - 1}


class ForgetsThePrompt(LetterEnv):
    def extended(self, kept, turn):
        return self.prompt[:-1] + kept + turn


class DropsControlTokensOfTheAction(LetterEnv):
    def extended(self, kept, turn):
        return self.prompt + [one for one in kept if one not in (broken_envs.TURN, broken_envs.PAD)] + turn


class EndsWithoutAReason(LetterEnv):
    def info(self, *args):
        return super().info(*args) | {"stop_reason": broken_envs.StopReason.MAX_TURNS}


class OwnReason(LetterEnv):
    def info(self, *args):
        return super().info(*args) | {"stop_reason": "won" if args[2] else "running"}


class TakesFloats(LetterEnv):
    def accepted(self, action):
        return super().accepted(np.asarray(action).astype(np.int64) if np.asarray(action).dtype.kind == "f" else action)


class RaisesValueErrorOutside(LetterEnv):
    def accepted(self, action):
        if np.asarray(action).size and np.asarray(action).dtype.kind in "iu" and np.asarray(action).max() >= len(broken_envs.VOCABULARY):
            raise ValueError("id")
        return super().accepted(action)


class CountsRefusedActions(LetterEnv):
    def step(self, action):
        self.turn += np.asarray(action).dtype.kind == "f"
        return super().step(action)


class TurnsAreNotMaxTurns(LetterEnv):
    def info(self, *args):
        reason = broken_envs.StopReason.TIME_LIMIT if args[3] == "max_turns" else args[3]
        return super().info(args[0], args[1], args[2], reason, args[4])


class StepsBeforeReset(LetterEnv):
    def step(self, action):
        if self.over and not self.prompt:
            self.reset(seed=0)
        return super().step(action)


class RaisesOnControlTokens(LetterEnv):
    def kept(self, ids):
        if ids == [broken_envs.TURN, broken_envs.END]:
            raise KeyError("turn")
        return super().kept(ids)


class FirstCloseRaises(LetterEnv):
    def close(self):
        raise OSError("nothing was ever opened")


class UnpicklableInfo(LetterEnv):
    def info(self, *args):
        return super().info(*args) | {"later": (one for one in ())}


class RewritesWithoutAnyTokenizer(BROKEN["token_exactness"]):
    def info(self, *args):
        return super().info(*args) | {"context_rewritten": self.turn > 0}

    def extended(self, kept, turn):
        return super().extended([*kept[:1], *kept], turn)


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        ("rewards", RewardIsNaN),
        ("rewards", RewardIsNone),
        ("rewards", PartsChange),
        ("info_keys", TypeChanges),
        ("info_keys", KeyOnlyAtReset),
        ("info_keys", ContractKeyMissing),
        ("info_keys", OwnReason),
        ("observation_length", LengthOneShort),
        ("token_exactness", ForgetsThePrompt),
        ("token_exactness", DropsControlTokensOfTheAction),
        ("token_exactness", broken_envs.RewritesAndEncodesAgain),
        ("token_exactness", broken_envs.RewritesTheLastTurnAlone),
        ("ends_apart", EndsWithoutAReason),
        ("invalid_actions", TakesFloats),
        ("invalid_actions", RaisesValueErrorOutside),
        ("invalid_actions", CountsRefusedActions),
        ("max_turns", TurnsAreNotMaxTurns),
        ("reset_needed", StepsBeforeReset),
        ("any_action", RaisesOnControlTokens),
        ("close_twice", FirstCloseRaises),
        ("global_generators", broken_envs.DrawsUnseeded),
        ("other_process", UnpicklableInfo),
    ],
)
def test_other_faults_of_the_same_kind_are_found_too(check, broken):
    assert check_agent_env(broken, checks=[check])[check].outcome == "failed"


def test_a_rewritten_prompt_may_keep_the_ids_of_actions_or_leave_them_out():
    assert check_agent_env(broken_envs.RewritesAndKeepsTheIds, checks=["token_exactness"])["token_exactness"].outcome == "passed"
    for honest, reason in ((broken_envs.RewritesWithoutActions, "none shows its action"), (RewritesWithoutAnyTokenizer, "nobody can tell")):
        result = check_agent_env(honest, checks=["token_exactness"])["token_exactness"]
        assert result.outcome == "skipped" and reason in result.message


def test_one_fault_is_reported_once_and_what_builds_on_it_is_skipped():
    report = check_agent_env(BROKEN["global_generators"])
    for name in ("seeded_episode", "interleaved", "reset_leak", "vector_env", "other_hash_seed", "astep"):
        assert report[name].outcome == "skipped"
        assert "global_generators" in report[name].message or "needs" in report[name].message


def test_the_checks_leave_the_global_generators_as_they_were():
    import random

    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state()[1].tolist()
    check_agent_env(LetterEnv)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_the_generator_of_torch_is_watched_where_torch_is_loaded():
    torch = require("torch")

    class DrawsFromTorch(LetterEnv):
        def draw(self):
            return chr(ord("a") + int(torch.randint(26, (1,))))

    torch.manual_seed(5)
    before = torch.get_rng_state()
    check_agent_env(LetterEnv, checks=["global_generators"]).raise_if_failed()
    assert torch.equal(torch.get_rng_state(), before)
    report = check_agent_env(DrawsFromTorch, checks=["global_generators"])
    assert "global generator of torch" in report["global_generators"].message


def test_an_episode_that_a_time_limit_ended_is_not_the_environments_business():
    class NoExpert(LetterEnv):
        def expert(self):
            return None

    report = check_agent_env(lambda: gymnasium.wrappers.TimeLimit(NoExpert(max_turns=9), 3)).raise_if_failed()
    assert "TimeLimit" in report["reset_needed"].message
    assert report["ends_apart"].outcome == "passed"


def test_a_factory_that_cannot_be_sent_to_another_process_is_a_finding():
    lock = __import__("threading").Lock()
    report = check_agent_env(lambda: (lock, LetterEnv())[1], checks=["other_process"])
    assert "pickled" in report["other_process"].message


def test_an_environment_that_stops_its_process_is_a_finding():
    class Leaves(LetterEnv):
        def reset(self, **kwargs):
            import os

            if os.environ.get("PYTHONHASHSEED") in ("4711", "4712"):
                os._exit(3)
            return super().reset(**kwargs)

    report = check_agent_env(Leaves, checks=["other_process"])
    assert "code 3" in report["other_process"].message


# ------------------------------------------------------------------------------------------------ names, reports, comparison


def test_every_check_says_what_it_protects_and_needs_only_checks_that_are():
    for check in CHECKS.values():
        assert "Protects" in (check.function.__doc__ or "")
        assert set(check.needs) <= set(CHECKS)
        assert check.name not in check.needs


def test_only_the_chosen_checks_are_reported_and_a_mistyped_one_names_the_nearest():
    assert names(check_agent_env(LetterEnv, checks=["rewards", "makes"]).results) == ["makes", "rewards"]
    assert names(check_agent_env(LetterEnv, checks="rewards").results) == ["rewards"]
    with pytest.raises(ValueError, match="did you mean 'token_exactness'"):
        check_agent_env(LetterEnv, checks=["token_exactnes"])


def test_a_report_can_be_read_raised_and_asked():
    report = check_agent_env(BROKEN["close_twice"], checks=["makes", "close_twice"])
    assert not report.ok
    assert "1 passed, 1 failed, 0 skipped" in str(report)
    with pytest.raises(CheckFailure, match="the browser is gone"):
        report.raise_if_failed()
    with pytest.raises(KeyError):
        report["rewards"]
    assert Report("x").ok


def test_a_check_runs_once_however_many_need_it():
    made = []

    def factory():
        made.append(1)
        return LetterEnv()

    known = {}
    subject = Subject(factory)
    run_check("makes", subject, known)
    count = len(made)
    run_check("makes", subject, known)
    assert len(made) == count


def test_environments_are_named_in_every_way(tmp_path):
    module = Path(broken_envs.__file__)
    for target in ("broken_envs:LetterEnv", f"{module}:LetterEnv", LetterEnv, partial(LetterEnv, max_turns=4)):
        assert type(EnvFactory(target)()).__name__ == "LetterEnv"
    gymnasium.register("Letters-v0", entry_point="broken_envs:LetterEnv")
    try:
        for target in ("Letters-v0", gymnasium.spec("Letters-v0"), "broken_envs:Letters-v0"):
            assert type(EnvFactory(target, {"max_turns": 2})().unwrapped).__name__ == "LetterEnv"
    finally:
        del gymnasium.registry["Letters-v0"]
    with pytest.raises(ValueError, match="has no 'Nothing'"):
        EnvFactory("broken_envs:Nothing")()
    with pytest.raises(ValueError, match="no Python file"):
        EnvFactory(f"{tmp_path}/none.py:Env")()
    with pytest.raises(TypeError, match="several fresh ones"):
        EnvFactory(LetterEnv())
    with pytest.raises(TypeError, match=r"no gymnasium\.Env"):
        EnvFactory(dict)()


def test_scripts_are_the_same_every_time_and_stay_in_play_where_there_is_an_expert():
    one, two = Subject(LetterEnv).scripts, Subject(LetterEnv).scripts
    assert [script.name for script in one] == ["random", "random", "expert", "repeat", "noisy"]
    assert not first_difference([script.actions for script in one], [script.actions for script in two])
    assert max(int(action.max()) for action in one[0].actions) >= 256  # control tokens and merged ids are among them


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(plain)
def test_nothing_differs_from_its_copy(value):
    import copy

    assert first_difference(value, copy.deepcopy(value), "it") is None


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.data())
def test_the_first_differing_place_of_arrays_is_named(ids, data):
    one, other = np.array(ids), np.array(ids)
    place = data.draw(st.integers(0, len(ids) - 1))
    other[place] += 1
    assert f"first at {place}:" in first_difference(one, other, "it")
    frame = partial(Frame, reward=0.0, terminated=False, truncated=False, info={})
    assert first_difference([frame(one)], [frame(other)]).startswith("step 0, observation differs at 1 places")


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), ("a", np.str_("a")), ((1,), [1]), ({}, None), ([1], [1, 2]), ({1: 1}, {2: 1})]
)
def test_types_and_sizes_are_differences(one, other):
    assert first_difference(one, other, "it")


def test_types_of_numbers_can_be_let_pass():
    assert first_difference({"a": 1, "b": True}, {"a": np.int64(1), "b": np.bool_(True)}, same_types=False) is None
    assert first_difference({"a": 1}, {"a": 2}, same_types=False)
