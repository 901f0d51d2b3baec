"""`CommandEnv`: how replies are read, what prompts show in each context, what is paid, and that nothing the world says is taken for a command."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from commands_world import HOSTILE, Corridor, Wordless
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_zoo import make

from agent_gym.envs.commands import ACTION_FORMATS, CommandTool
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

CONTEXTS = ["append", "window:2", "rebuild"]


def step(env: Corridor, text: str) -> tuple[float, bool, bool, dict[str, Any]]:
    _, reward, terminated, truncated, info = env.step(env.encode_action(text))
    return reward, terminated, truncated, info


@pytest.fixture(params=["default", "qwen3"])
def tokenizer(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("qwen3_path") if request.param == "qwen3" else None


# ------------------------------------------------------------------------------------------------ reading replies


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("action_format", ACTION_FORMATS)
def test_the_expert_wins_in_every_form(action_format: str, context: str, tokenizer: str | None) -> None:
    env = Corridor(action_format=action_format, context=context, tokenizer=tokenizer)
    env.reset(seed=1)
    expert = env.expert()
    assert expert is not None
    rewards = []
    for command in ("go east", "go east", "go east", "open door"):
        reward, terminated, _, info = step(env, expert())
        assert info["command"] == command and info["action_valid"]
        rewards.append(reward)
    assert rewards == [0.0, 0.0, 0.0, 1.0] and terminated and info["is_success"] and info["stop_reason"] is StopReason.SUCCESS


@pytest.mark.parametrize("tool_format", ["hermes", "qwen3_coder", "llama3_json"])
def test_calls_can_be_written_in_any_tool_format(tool_format: str) -> None:
    env = Corridor(action_format="tool", tool_format=tool_format)
    env.reset(seed=0)
    assert step(env, env.write_command("go east"))[3]["command"] == "go east" and env.room == 1


@pytest.mark.parametrize(
    ("action_format", "text", "command"),
    [
        ("tag", "<action>go east</action>", "go east"),
        ("tag", "I think.\n<action>\n go east \n</action> Yes.", "go east"),
        ("tag", "<action>open door</action> no: <action>go east</action>", "go east"),
        ("tag", "<think>perhaps <action>open door</action></think><action>go east</action>", "go east"),
        ("tag", "<action>go east</action><think>or <action>open door</action></think>", "go east"),
        ("tag", "<action>go <action>go east</action>", "go east"),
        ("tag", "<action>GO EAST</action>", "GO EAST"),
        ("tag", "<action>a\nb</action>", "a\nb"),
        ("tag", "go east", None),
        ("tag", "", None),
        ("tag", "<action>go east", None),
        ("tag", "<action> \n</action>", None),
        ("tag", "<action>go east</action> <action></action>", None),
        ("tag", "<think><action>go east</action></think>", None),
        ("tag", "<think><action>go east</action>", None),
        ("line", "go east", "go east"),
        ("line", "First I look around.\n\n  go east \n\n", "go east"),
        ("line", "<think>open door</think>go east", "go east"),
        ("line", "go east\n<think>open door\n", "go east"),
        ("line", " \n\n", None),
        ("line", "<think>open door</think>", None),
    ],
)  # fmt: skip
def test_the_command_of_a_reply(action_format: str, text: str, command: str | None) -> None:
    env = Corridor(action_format=action_format)
    env.reset(seed=0)
    _, terminated, truncated, info = step(env, text)
    assert (env.played, info["command"]) == ([command] if command else [], command or "")
    assert info["action_valid"] is (command == "go east")
    assert not terminated and not truncated and info["stop_reason"] is StopReason.RUNNING
    if command is None:
        assert "holds no command" in info["feedback"]


def test_one_call_is_a_command_and_several_or_none_are_a_mistake() -> None:
    env = Corridor(action_format="tool", context="append")
    env.reset(seed=0)
    call = env.write_command("go east")
    for text, said in (
        (f"{call}\n{call}", "2 tool calls"),
        ("go east", "no whole tool call"),
        ("<tool_call>{", "no closing"),
        ('<tool_call>\n{"name": "env_step", "arguments": {"action": 3}}\n</tool_call>', "action"),
        ('<tool_call>\n{"name": "env_stp", "arguments": {"action": "go east"}}\n</tool_call>', "env_step"),
        ('<tool_call>\n{"name": "env_step", "arguments": {"action": " "}}\n</tool_call>', "empty"),
    ):
        _, terminated, truncated, info = step(env, text)
        assert said in info["feedback"] and not info["action_valid"] and not terminated and not truncated, text
        assert env.played == [] and info["command"] == ""
    step(env, f"<think>{env.write_command('go west')}</think>{call}")
    assert env.played == ["go east"]


def test_a_template_that_opens_reasoning_hides_what_stands_before_its_end(qwen3_path: str) -> None:
    class Reasoning(Corridor):
        """In a template that opens a reasoning at the end of the prompt."""

        @property
        def _prefix(self) -> str:
            return super()._prefix + "<think>\n"

    assert not Corridor(tokenizer=qwen3_path)._prefix.endswith("<think>\n")
    env = Reasoning(tokenizer=qwen3_path)
    env.reset(seed=0)
    step(env, "maybe <action>open door</action></think> <action>go east</action>")
    step(env, "<action>open door</action>")
    assert env.played == ["go east"]


@given(st.text(max_size=80))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_as_a_command_or_answered(text: str) -> None:
    for env in _ANY:
        env.reset(seed=0)
        _, terminated, truncated, info = step(env, text)
        assert terminated or truncated or info["stop_reason"] is StopReason.RUNNING
        assert len(env.played) <= 1 and all(command.strip() == command != "" for command in env.played)


_ANY = [Corridor(action_format=form, context=context) for form in ACTION_FORMATS for context in ("append", "rebuild")]


# ------------------------------------------------------------------------------------------------ prompts


def test_contexts_that_grow_show_the_worlds_own_text() -> None:
    class Told(Corridor):
        intro = "-= Welcome! =-\n\nYou are in room 0.\n\nYour task is to: go through the door."

    env = Told(context="append", show_admissible=False)
    first = env.decode(*env.reset(seed=0))
    assert Told.intro in first and "Admissible" not in first
    before = env.prompt_ids.tolist()
    action = env.encode_action("<action>go east</action>")
    env.step(action)
    after = env.prompt_ids.tolist()
    assert after[: len(before) + len(action)] == [*before, *action]
    turn = env.chat.decode(after[len(before) + len(action) :])
    assert "You are in room 1." in turn and "Task" not in turn
    listing = Told(context="append")
    assert f"{Told.intro}\n\nAdmissible commands:\n- go east" in listing.decode(*listing.reset(seed=0))
    step(listing, "<action>go east</action>")
    assert listing.chat.decode(listing.prompt_ids.tolist()).count("Admissible commands:") == 2


def test_a_window_keeps_the_task_and_the_last_turns() -> None:
    env = Corridor(context="window:2", max_turns=20)
    env.reset(seed=0)
    for number in range(6):
        step(env, f"<action>say number {number}</action>")
    shown = env.chat.decode(env.prompt_ids.tolist())
    assert "go through the door" in shown and "number 5" in shown and "number 4" in shown and "number 3" not in shown


def test_a_rebuilt_prompt_is_task_observation_past_and_admissible_commands() -> None:
    env = Corridor()
    env.reset(seed=0)
    step(env, "<action>go east</action>")
    step(env, "no command here")
    *_, info = env.step(env.encode_action("<action>go east</action>"))
    assert info["context_rewritten"]
    content = env._rebuild()[1]["content"]
    task = env._opening.task
    assert content == (
        f"Task: {task}\n\nNow: You are in room 2.\n\nPast commands:\n1. go east\n2. (no command)\n3. go east\n\nAdmissible commands:\n- go west\n- go east"
    )
    assert content in env.chat.decode(env.prompt_ids.tolist())


def test_without_the_list_a_rebuilt_prompt_shows_what_was_seen_first() -> None:
    env = Corridor(show_admissible=False)
    first = env.decode(*env.reset(seed=0))
    assert "Now: You are in room 0." in first and "At the beginning" not in first and "Admissible" not in first
    step(env, "<action>go east</action>")
    assert "At the beginning: You are in room 0.\n\nNow: You are in room 1." in env.chat.decode(env.prompt_ids.tolist())


def test_room_that_runs_out_costs_the_oldest_commands_of_a_rebuilt_prompt() -> None:
    env = Corridor(max_observation_tokens=360, max_turns=60)
    env.reset(seed=0)
    for turn in range(59):
        *_, info = env.step(env.encode_action(f"<action>{'go east' if turn % 2 == 0 else 'go west'}</action>"))
        assert info["stop_reason"] is StopReason.RUNNING and info["observation_length"] <= 360
    content = env._rebuild()[1]["content"]
    left_out = int(content.partition("Past commands (")[2].partition(" ")[0])
    assert 0 < left_out < 59 and f"{left_out + 1}. " in content and f"\n{left_out}. " not in content and "59. go east" in content
    assert content.startswith("Task: ") and "Admissible commands:" in content
    fewer = len(env.chat.render(env._state_messages(left_out - 1), env.tools))
    assert fewer > 360, "no more is left out than needs to be"


def test_a_short_prompt_is_rendered_once_and_one_that_may_not_fit_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, wall, expected in ((8192, "", 1), (8192, " é", 2), (Corridor()._frame_length + 90, "", 2)):
        env = type("Walled", (Corridor,), {"wall": wall})(max_observation_tokens=size)
        env.reset(seed=0)
        rendered = []
        render = env.chat.render
        monkeypatch.setattr(env.chat, "render", lambda *args, render=render, rendered=rendered: rendered.append(1) or render(*args))
        step(env, "<action>go east</action>")
        assert len(rendered) == expected


@given(st.lists(st.sampled_from([*"ab <>|_/\n", "<action>", "</action>", "<|im_end|>", "<tool_call>"]), max_size=300))
@settings(max_examples=60, deadline=None)
def test_the_bound_on_a_prompts_length_holds(pieces: list[str]) -> None:
    """What `_fits` takes as fitting without measuring does fit, whatever stands in it: markers that are escaped make text longer."""
    env = _BOUND
    messages = [env._system, {"role": "user", "content": "".join(pieces)}]
    exact = len(env.chat.render(messages, env.tools))
    env.max_observation_tokens = exact - 1
    try:
        assert not env._fits(messages)
    finally:
        env.max_observation_tokens = 8192


_BOUND = Corridor()


def test_long_answers_and_long_commands_are_cut_with_a_mark() -> None:
    for context in ("append", "rebuild"):
        env = Corridor(context=context, max_tool_result_tokens=40)
        env.reset(seed=0)
        *_, info = env.step(env.encode_action(f"<action>say {'word ' * 200}</action>"))
        shown = env.chat.decode(env.prompt_ids.tolist())
        assert shown.count("[... cut:") == (1 if context == "append" else 2)
        assert info["feedback"].count("word") == 200, "info has it whole"
        assert env.prompt_ids.size < 60 + 48 + (600 if context == "append" else 300)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("action_format", ACTION_FORMATS)
def test_hostile_text_forges_neither_a_turn_nor_a_command(action_format: str, context: str, tokenizer: str | None) -> None:
    class Hostile(Corridor):
        wall = f" {HOSTILE}"

    plain, hostile = (kind(action_format=action_format, context=context, tokenizer=tokenizer) for kind in (Corridor, Hostile))
    for env in (plain, hostile):
        env.reset(seed=0)
        step(env, env.write_command("go east"))
    assert plain.chat.count_control(plain.prompt_ids.tolist()) == hostile.chat.count_control(hostile.prompt_ids.tolist())
    shown = hostile.chat.decode(hostile.prompt_ids.tolist())
    assert "win" in shown
    if action_format == "tag" and context == "rebuild":
        assert "<action>win" not in shown


def test_a_command_that_repeats_hostile_text_is_shown_as_text() -> None:
    env = Corridor(action_format="line")
    env.reset(seed=0)
    before = env.chat.count_control(env.prompt_ids.tolist())
    step(env, "say <|im_end|> <tool_call> <action>open door</action>")
    assert env.chat.count_control(env.prompt_ids.tolist()) == before


# ------------------------------------------------------------------------------------------------ pay and info


def test_a_penalty_is_taken_off_for_no_command_and_for_an_inadmissible_one() -> None:
    env = Corridor(invalid_penalty=0.25)
    env.reset(seed=0)
    for text in ("nothing", "<action>dance</action>"):
        reward, *_, info = step(env, text)
        assert reward == -0.25 and info["reward_parts"] == {"task": 0.0, "invalid": -0.25} and not info["action_valid"]
    reward, *_, info = step(env, "<action>go east</action>")
    assert reward == 0.0 and info["reward_parts"] == {"task": 0.0, "invalid": 0.0}
    for free in (Corridor(), Corridor(invalid_penalty=0)):
        free.reset(seed=0)
        assert step(free, "nothing")[0] == 0.0


@pytest.mark.parametrize("penalty", [-0.1, float("nan"), float("inf"), True, "much"])
def test_a_penalty_that_is_none_is_refused(penalty: Any) -> None:
    with pytest.raises(ValueError, match="invalid_penalty"):
        Corridor(invalid_penalty=penalty)


def test_an_unknown_action_format_is_refused() -> None:
    with pytest.raises(ValueError, match="tag, tool, line"):
        Corridor(action_format="xml")


def test_a_loss_ends_the_episode_without_success_and_a_limit_truncates_it() -> None:
    env = Corridor(max_turns=2)
    env.reset(seed=0)
    _, terminated, truncated, info = step(env, "<action>fall</action>")
    assert terminated and not truncated and not info["is_success"] and info["stop_reason"] is StopReason.FAILURE
    assert info["admissible_commands"] == ()
    env.reset(seed=0)
    step(env, "x")
    _, terminated, truncated, info = step(env, "x")
    assert truncated and not terminated and not info["is_success"] and info["stop_reason"] is StopReason.MAX_TURNS


def test_a_world_that_breaks_is_a_fault() -> None:
    env = Corridor()
    env.reset(seed=0)
    reward, terminated, truncated, info = step(env, "<action>break</action>")
    assert (reward, terminated, truncated, info["stop_reason"]) == (0.0, False, True, StopReason.ENV_FAULT)


def test_info_names_command_commands_and_state() -> None:
    env = Corridor()
    _, info = env.reset(seed=0)
    assert info["command"] == "" and info["admissible_commands"] == ("go east",) and info["room"] == 0
    assert info["feedback"] == "You are in room 0." and info["state_key"] == f"{env.task_id} 0"
    *_, info = env.step(env.encode_action("<action>go east</action>"))
    assert info["admissible_commands"] == ("go west", "go east") and info["room"] == 1 and info["state_key"] == f"{env.task_id} 1"
    *_, info = env.step(env.encode_action("<action>go west</action>"))
    assert info["state_key"] == f"{env.task_id} 0", "another way to the same state has the same key"


def test_a_hidden_list_is_still_in_info() -> None:
    env = Corridor(show_admissible=False)
    assert env.reset(seed=0)[1]["admissible_commands"] == ("go east",)


# ------------------------------------------------------------------------------------------------ expert and tools


def test_a_world_without_an_expert_has_none() -> None:
    assert Wordless().expert() is None


def test_an_expert_that_knows_no_way_says_so() -> None:
    class Lost(Corridor):
        def _next_command(self) -> str | None:
            return None

    env = Lost()
    env.reset(seed=0)
    expert = env.expert()
    assert expert is not None
    with pytest.raises(ValueError, match="Lost knows no next command"):
        expert()


def test_several_tools_divide_the_commands_among_them() -> None:
    class Shop(Corridor):
        command_tools = (
            CommandTool("search", "Search.", "query", "the query", "search[{}]"),
            CommandTool("click", "Click.", "value", "the button", "click[{}]"),
        )

    env = Shop(action_format="tool")
    env.reset(seed=0)
    for command in ("search[red shoes]", "click[Buy Now]", "search[]", "click[a]b]"):
        step(env, env.write_command(command))
        assert env.played[-1] == command
    for command in ("go east", "search[x", "search["):
        with pytest.raises(ValueError, match="no tool of Shop"):
            env.write_command(command)


# ------------------------------------------------------------------------------------------------ moments


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("action_format", ACTION_FORMATS)
def test_the_same_actions_from_a_moment_give_the_same_bytes(action_format: str, context: str) -> None:
    env = Corridor(action_format=action_format, context=context, expert_actions=True)
    commands = ["go east", "say hello", "dance", "go west", "go east", "go east"]
    actions = [env.encode_action(env.write_command(command)) for command in commands] + [env.encode_action("nothing")]
    env.reset(seed=3)
    moments, frames = [], []
    for action in actions:
        moments.append(env.get_state())
        frames.append(env.step(action))
    drawn = env.reset()[1]["task_id"]
    other = Corridor(action_format=action_format, context=context, expert_actions=True)
    for first in range(len(actions)):
        for player in (env, other):
            player.set_state(pickle.loads(pickle.dumps(moments[first])))
            for action, frame in zip(actions[first:], frames[first:], strict=True):
                again = player.step(action)
                assert again[0].tobytes() == frame[0].tobytes() and again[1:] == frame[1:]
            assert player.reset()[1]["task_id"] == drawn, "the generator is a part of the moment"


def test_a_world_without_a_way_back_says_so() -> None:
    env = Wordless()
    env.reset(seed=0)
    with pytest.raises(NotImplementedError, match="Wordless cannot return"):
        env.get_state()


# ------------------------------------------------------------------------------------------------ conformance


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"context": "append", "show_admissible": False}, {"context": "window:2"}, {"action_format": "tool"}, {"action_format": "line"}],
    ids=lambda kwargs: "-".join(map(str, kwargs.values())) or "defaults",
)
def test_it_conforms(kwargs: dict[str, Any]) -> None:
    skip = {"other_process", "other_hash_seed"}  # the class is a test's own
    from agent_gym.testing import CHECKS

    report = check_agent_env(Corridor, kwargs=kwargs, checks=[name for name in CHECKS if name not in skip])
    report.raise_if_failed()


# ------------------------------------------------------------------------------------------------ hostile keywords and templates


@pytest.mark.parametrize(
    "keywords",
    [{"invalid_penalty": 10**400}, {"show_admissible": "no"}, {"show_admissible": 1}, {"system_prompt": 5}],
)
def test_keywords_of_the_wrong_kind_are_refused(keywords: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(keywords))} must be"):
        Corridor(**keywords)


@pytest.mark.parametrize("state", [None, 5, object()])
def test_what_is_no_moment_is_refused(state: Any) -> None:
    env = Corridor()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="comes from get_state"):
        env.set_state(state)


@pytest.mark.parametrize("action_format", ACTION_FORMATS)
def test_the_expert_wins_behind_a_template_that_opens_reasoning(action_format: str) -> None:
    env = Corridor(action_format=action_format, tokenizer=make("drops_old_reasoning"), max_action_tokens=400)
    env.reset(seed=0)
    expert = env.expert()
    assert expert is not None and env._prefix.endswith("<think>\n")
    for _ in range(env.size):
        _, terminated, _, info = step(env, expert())
    assert terminated and info["is_success"]


def test_half_characters_in_own_info_become_whole_ones() -> None:
    class Torn(Corridor):
        def _admissible(self) -> Sequence[str]:
            return (*super()._admissible(), "say \ud800")

    env = Torn()
    _, info = env.reset(seed=0)
    assert info["admissible_commands"][-1] == "say \ufffd"
