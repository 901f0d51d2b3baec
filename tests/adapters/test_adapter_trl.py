"""Our tool environments in a plain `GRPOTrainer` of TRL."""

from __future__ import annotations

import os

import pytest
from helpers import require

require("torch")
require("trl")
require("datasets")

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import gymnasium  # noqa: E402
import torch  # noqa: E402
from transformers.utils import get_json_schema  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from agent_gym.adapters.trl import HERMES_RESPONSE, ToolEnvironments, readable  # noqa: E402
from agent_gym.chat import load_tokenizer  # noqa: E402
from agent_gym.core import EnvFault  # noqa: E402
from agent_gym.envs.tool import ToolEnv  # noqa: E402
from agent_gym.tools import tool  # noqa: E402
from agent_gym.trainers.tiny_model import build_tiny_model  # noqa: E402
from agent_gym.wrappers import as_token_env  # noqa: E402


@tool
def weigh(name: str, times: int = 1, exact: bool = False) -> str:
    """Weigh a thing.

    Args:
        name: of the thing.
        times: how often.
        exact: to the gram.
    """
    if name == "moon":
        raise EnvFault("the scales broke")
    return f"{name} x {times} ({'exact' if exact else 'about'}): 7 kg"


TASKS = [{"question": "How heavy is the box?", "answer": "7", "id": "box"}, {"question": "How heavy is the bag?", "answer": "7"}]


def make(**keywords):
    return ToolEnv(tools=[weigh], tasks=TASKS, **{"max_turns": 4, **keywords})


def test_each_tool_is_a_method_with_the_schema_of_the_tool():
    environment = ToolEnvironments(make)()
    shown = get_json_schema(environment.weigh)["function"]
    own = weigh.schema["function"]
    assert (shown["name"], shown["description"]) == (own["name"], own["description"])
    assert set(shown["parameters"]["properties"]) == set(own["parameters"]["properties"])
    assert shown["parameters"]["required"] == own["parameters"]["required"] == ["name"]
    for name, one in own["parameters"]["properties"].items():
        assert shown["parameters"]["properties"][name]["type"] == one["type"]
        assert shown["parameters"]["properties"][name]["description"] == one["description"]
    registered = ToolEnvironments("AgentR1/Tool-v0")()
    assert get_json_schema(registered.calculator)["function"]["parameters"]["required"] == ["expression"]


def test_calls_are_steps_and_the_reward_is_that_of_the_episode():
    environments = ToolEnvironments(make)
    rows = environments.dataset(2)
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    right, wrong, silent = environments(), environments(), environments()
    for environment in (right, wrong, silent):
        environment.reset(**rows[0])
    assert right.weigh(name="box", times=2) == "box x 2 (about): 7 kg"
    assert right.weigh(name="box", exact=True) == "box x 1 (exact): 7 kg"
    assert "invalid_arguments" in wrong.weigh(name=3)
    ends = [[{"role": "assistant", "content": f"It is <answer>{number}</answer>"}] for number in (7, 8)]
    unfinished = [{"role": "assistant", "content": "", "tool_calls": [{}]}, {"role": "tool", "content": "7 kg"}]
    assert environments.reward(completions=[*ends, unfinished], environments=[right, wrong, silent]) == [1.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="over"):
        right.weigh(name="box")
    right.reset(**rows[1])  # and it can be begun again
    assert "7 kg" in right.weigh(name="bag")


def test_a_broken_world_gives_no_reward_and_a_row_without_seed_is_refused():
    environments = ToolEnvironments(make)
    environment = environments()
    environment.reset(seed=0)
    assert "the scales broke" in environment.weigh(name="moon")
    assert environments.reward(completions=[[{"role": "assistant", "content": "<answer>7</answer>"}]], environments=[environment]) == [None]
    with pytest.raises(ValueError, match="different tasks"):
        environment.reset(prompt=[])


def test_what_trl_cannot_use_is_refused():
    with pytest.raises(TypeError, match="no ToolEnv"):
        ToolEnvironments(lambda: as_token_env(gymnasium.make("FrozenLake-v1")))

    @tool
    def reset(name: str) -> str:
        """Reset.

        Args:
            name: a name.
        """
        return name

    with pytest.raises(ValueError, match="'reset'"):
        ToolEnvironments(lambda: ToolEnv(tools=[reset], tasks=TASKS))
    tokenizer = load_tokenizer(None)
    strange = type("Tokenizer", (), {"chat_template": "{{ messages }}", "response_template": None, "response_schema": None})()
    with pytest.raises(ValueError, match="response_template"):
        readable(strange)
    assert readable(tokenizer) is tokenizer


def overfitted(tokenizer, rows, environments):
    """The tiny model, taught by heart to weigh and to answer, so that its own episodes call a tool."""
    model = build_tiny_model(tokenizer, seed=0)
    environment = environments()
    sequences = []
    for row in rows:
        call = {"type": "function", "function": {"name": "weigh", "arguments": {"name": "box"}}}
        messages = [*row["prompt"], {"role": "assistant", "content": "", "tool_calls": [call]}]
        messages += [
            {"role": "tool", "name": "weigh", "content": "box x 1 (about): 7 kg"},
            {"role": "assistant", "content": "<answer>7</answer>"},
        ]
        sequences.append(tokenizer.apply_chat_template(messages, tools=[environment.weigh], tokenize=True, return_dict=True)["input_ids"])
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for round_ in range(200):
        ids = torch.tensor([sequences[round_ % len(sequences)]])
        loss = model(input_ids=ids, labels=ids).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if float(loss) < 0.02:
            break
    return model


def test_a_plain_grpo_trainer_trains_two_steps_with_our_tools(tmp_path):
    tokenizer = readable(load_tokenizer(None).__class__.from_pretrained(load_tokenizer(None).name_or_path, padding_side="left"))
    assert tokenizer.response_template == HERMES_RESPONSE
    environments = ToolEnvironments(make)
    rows = environments.dataset(1)
    model = overfitted(tokenizer, rows, environments)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    seen: list[float | None] = []

    def reward(**given):
        found = environments.reward(**given)
        seen.extend(found)
        return [0.5 * index + (value or 0.0) for index, value in enumerate(found)]  # so that no group is without a gradient

    trainer = GRPOTrainer(
        model,
        args=GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=2,
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=256,
            max_tool_calling_iterations=3,
            learning_rate=1e-3,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            seed=0,
        ),
        processing_class=tokenizer,
        train_dataset=rows,
        environment_factory=environments,
        reward_funcs=reward,
    )
    trainer.train()
    logs = [log for log in trainer.state.log_history if "reward" in log]
    assert trainer.state.global_step == 2 and len(logs) == 2
    assert all(log["tools/call_frequency"] > 0 for log in logs)
    assert max(value for value in seen if value is not None) == 1.0  # episodes that called and answered right
    assert any((before[name] != parameter).any() for name, parameter in model.named_parameters())
