"""OpenEnv both ways, over real servers on 127.0.0.1: our environment for its client, its environment as one of ours."""

from __future__ import annotations

import asyncio
import json
import random
import urllib.request

import gymnasium as gym
import pytest
from adapters.foreign import require_foreign
from adapters.played import SIZES, Breaks, tool_env

from agent_gym.core import EnvFault
from agent_gym.testing import check_agent_env
from agent_gym.trajectory import StopReason

require_foreign("openenv.core.env_server.http_server")

from openenv.core import GenericEnvClient  # noqa: E402
from openenv.core.env_server.http_server import HTTPEnvServer  # noqa: E402
from openenv.core.env_server.interfaces import Environment  # noqa: E402
from openenv.core.env_server.types import Action, Observation, State  # noqa: E402

from agent_gym.adapters.openenv import OpenEnvEnv, OpenEnvServer  # noqa: E402


class Guess(Action):
    message: str


class Hint(Observation):
    message: str = ""


class HigherLower(Environment):
    """An environment as authors of OpenEnv write them."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self._number, self._state = random.Random(seed).randint(1, 50), State(episode_id=episode_id)
        return Hint(message="Guess a number from 1 to 50.")

    def step(self, action, timeout_s=None, **kwargs):
        self._state.step_count += 1
        if action.message == "crash":
            raise RuntimeError("the number got lost")
        guess = int(action.message) if action.message.isdigit() else -1
        if guess == self._number:
            return Hint(message="Yes.", reward=1.0, done=True)
        return Hint(message="higher" if guess < self._number else "lower", reward=None)

    @property
    def state(self):
        return self._state


def foreign_app():
    import fastapi

    app = fastapi.FastAPI()
    HTTPEnvServer(env=HigherLower, action_cls=Guess, observation_cls=Hint, max_concurrent_envs=8).register_routes(app)
    return app


@pytest.fixture(scope="module")
def theirs():
    with OpenEnvServer(foreign_app()) as server:
        yield server


@pytest.fixture(scope="module")
def ours():
    with OpenEnvServer(tool_env, max_sessions=8) as server:
        yield server


FIELDS = {"action_field": "message", "observation_field": "message"}


def play(env, seed=0):
    """Halve the interval until the number is found."""
    low, high, seen = 1, 50, []
    observation, info = env.reset(seed=seed)
    seen.append(env.decode(observation, info))
    while True:
        guess = (low + high) // 2
        observation, reward, terminated, truncated, info = env.step(env.encode_action(str(guess)))
        seen.append((env.decode(observation, info), reward, terminated, truncated))
        if terminated or truncated:
            return seen, info
        low, high = (guess + 1, high) if info["feedback"] == "higher" else (low, guess - 1)


def test_an_environment_of_theirs_is_played_as_one_of_ours(theirs):
    env = OpenEnvEnv(base_url=theirs.url, instructions="Reply with a number alone.", **FIELDS)
    seen, info = play(env)
    assert "Reply with a number alone." in seen[0] and "Guess a number from 1 to 50." in seen[0]
    assert info["is_success"] and info["stop_reason"] is StopReason.SUCCESS and seen[-1][1:] == (1.0, True, False)
    assert play(env) == (seen, info) or play(env)[0] == seen
    assert len({play(env, seed)[0][-1][0] for seed in range(5)}) > 1
    env.close()
    env.close()


def test_an_environment_of_theirs_passes_the_conformance_checks(theirs):
    names = [
        "gymnasium_api",
        "info_keys",
        "rewards",
        "seeded_episode",
        "interleaved",
        "reset_leak",
        "token_exactness",
        "astep",
        "other_process",
    ]
    kwargs = {"base_url": theirs.url, "max_turns": 8, **FIELDS}
    report = check_agent_env("agent_gym.adapters.openenv:OpenEnvEnv", kwargs=kwargs, checks=names)
    report.raise_if_failed()
    assert [result.outcome for result in report.results] == ["passed"] * len(names)


def test_an_environment_that_raises_is_a_fault_and_the_next_episode_is_whole(theirs):
    env = OpenEnvEnv(base_url=theirs.url, **FIELDS)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.encode_action("crash"))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["stop_reason"] is StopReason.ENV_FAULT and "the number got lost" in info["feedback"]
    assert play(env)[1]["is_success"]
    env.close()


def test_an_action_that_the_server_refuses_is_the_models_mistake(theirs):
    env = OpenEnvEnv(base_url=theirs.url, action_field="colour", observation_field="message")
    env.reset(seed=0)
    *_, truncated, info = env.step(env.encode_action("red"))
    assert not truncated and not info["action_valid"] and "not valid" in info["feedback"]
    env.close()


def test_a_server_that_goes_away_is_a_fault():
    server = OpenEnvServer(foreign_app())
    env = OpenEnvEnv(base_url=server.url, timeout=5, **FIELDS)
    env.reset(seed=0)
    server.close()
    *_, truncated, info = env.step(env.encode_action("7"))
    assert truncated and info["stop_reason"] is StopReason.ENV_FAULT and server.url in info["feedback"]
    with pytest.raises(EnvFault, match="did not answer 'reset'"):
        env.reset(seed=0)
    env.close()


def test_a_full_server_is_a_fault():
    with OpenEnvServer(tool_env, max_sessions=1) as server:
        first, second = (OpenEnvEnv(base_url=server.url) for _ in range(2))
        first.reset(seed=0)
        with pytest.raises(EnvFault):
            second.reset(seed=0)
        first.close()
        second.close()


def test_our_environment_is_played_by_the_client_of_openenv(ours):
    own = tool_env()
    observation, info = own.reset(seed=3)
    expert = own.get_wrapper_attr("expert")()

    async def theirs_and_ours():
        async with GenericEnvClient(base_url=ours.url) as client:
            result = await client.reset(seed=3)
            assert result.observation["token_ids"] == observation[: info["observation_length"]].tolist()
            shown_reward = 0.0
            while not result.done:
                text = expert()
                ids = own.get_wrapper_attr("encode_action")(text)
                mine, reward, terminated, truncated, told = own.step(ids)
                by_ids = client_turn % 2 == 0
                result = await client.step({"token_ids": ids} if by_ids else {"text": text})
                assert result.observation["token_ids"] == mine[: told["observation_length"]].tolist()
                assert (result.reward, result.done) == (reward, terminated or truncated)
                assert result.observation["terminated"] == terminated
                shown_reward += result.reward
            assert (await client.state())["step_count"] == told["turn"]
            return shown_reward, result.observation["info"]

    client_turn = 0
    assert asyncio.run(theirs_and_ours())[0] == 1.0
    client_turn = 1
    observation, info = own.reset(seed=3)
    assert asyncio.run(theirs_and_ours())[1]["is_success"]


def test_our_environment_served_and_taken_back_gives_the_same_rewards(ours):
    served, own = OpenEnvEnv(base_url=ours.url, max_turns=20), tool_env()
    for index in range(3):
        observation, info = served.reset(options={"index": index})
        assert "tool" in served.decode(observation, info)
        *_, terminated, truncated, info = served.step(served.encode_action("<answer>nonsense</answer>"))
        assert terminated and not truncated and not info["is_success"]
    served.close()
    assert own.unwrapped.max_turns == 5
    env = OpenEnvEnv(base_url=ours.url, max_turns=20)  # its own limit ends it first, as a truncation
    env.reset(seed=0)
    for _ in range(5):
        *_, terminated, truncated, info = env.step(
            env.encode_action('<tool_call>\n{"name": "calculator", "arguments": {"expression": "1+1"}}\n</tool_call>')
        )
    assert (terminated, truncated, info["stop_reason"]) == (False, True, StopReason.TIME_LIMIT)
    env.close()


def test_a_fault_of_our_served_environment_arrives_as_a_fault():
    with OpenEnvServer(lambda: Breaks(**SIZES)) as server:
        env = OpenEnvEnv(base_url=server.url)
        env.reset(seed=0)
        assert env.step(env.encode_action("a"))[1] == 0.25
        *_, truncated, info = env.step(env.encode_action("b"))
        assert truncated and info["stop_reason"] is StopReason.ENV_FAULT and "the lights went out" in info["feedback"]
        env.close()


def test_the_http_side_tells_health_and_schema(ours):
    def get(path):
        with urllib.request.urlopen(ours.url + path, timeout=30) as answer:
            return json.loads(answer.read())

    assert get("/health")["status"] == "healthy"
    assert {"text", "token_ids"} <= set(get("/schema")["action"]["properties"])


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"base_url": "127.0.0.1:8000"}, "base_url"),
        ({"base_url": "http://127.0.0.1:1", "timeout": 0}, "timeout"),
        ({"base_url": "http://127.0.0.1:1", "action_field": "no_module:f"}, "cannot be imported"),
        ({"base_url": "http://127.0.0.1:1", "observation_field": 3}, "callable"),
    ],
)
def test_a_wrong_keyword_is_told(keywords, message):
    with pytest.raises(ValueError, match=message):
        OpenEnvEnv(**keywords)


def test_a_field_that_is_not_there_is_told(theirs):
    env = OpenEnvEnv(base_url=theirs.url, action_field="message", observation_field="colour")
    with pytest.raises(EnvFault, match=r"no field 'colour', but \['message'\]"):
        env.reset(seed=0)
    env.close()
    assert gym.Env in type(env).__mro__
