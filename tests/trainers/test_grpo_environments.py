"""The ordinary path: data set rows, environments made with the model's tokenizer, episodes by policy and flow."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_training import VOCAB, make_args, make_model, make_tokenizer, relative_error

import agent_gym  # noqa: F401  # registers the ids
from agent_gym.chat import load_tokenizer, tokenizer_fingerprint
from agent_gym.core import Action, AgentEnv, EnvFault, Observation, Outcome
from agent_gym.flows import TooManyFaults
from agent_gym.trainers.environments import EnvironmentMaker, as_dataset, default_rows, encode_row, read_row
from agent_gym.trainers.grpo import AgentGRPOTrainer
from agent_gym.trajectory import Generation

JSON = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text("abé", max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
KWARGS = st.dictionaries(st.text("kwx", min_size=1, max_size=3), JSON, max_size=3)


class Lucky(AgentEnv):
    """Two turns; each pays the share of `w9` among the words of the reply."""

    word = "w9"

    def _begin(self, options: dict[str, Any]) -> Observation:
        self.task_id = f"{self.split}-{self.np_random.integers(1000)}"
        return Observation(text=f"w{self.np_random.integers(20)} w2")

    def _respond(self, action: Action) -> Outcome:
        words = action.text.split()
        share = sum(word == self.word for word in words) / max(1, len(words))
        return Outcome(Observation(text="w4"), reward=share, terminated=self.turn == 1)


class Finite(Lucky):
    @property
    def num_tasks(self) -> int | None:
        return 3


class Broken(Lucky):
    """Breaks in its second turn, whenever the task's number is even and the world is younger than it should be."""

    attempts: list[str] = []  # noqa: RUF012  # shared on purpose: the test counts

    def _respond(self, action: Action) -> Outcome:
        if self.turn == 1 and int(self.task_id.split("-")[1]) % 2 == 0:
            Broken.attempts.append(self.task_id)
            raise EnvFault("the search server is down")
        return super()._respond(action)


@settings(max_examples=25, deadline=None)
@given(KWARGS, KWARGS, st.integers(0, 2**31))
def test_rows_survive_arrow_which_would_mix_their_dictionaries(first: dict[str, Any], second: dict[str, Any], seed: int) -> None:
    rows = [{"env_id": "A", "env_kwargs": first, "seed": seed}, {"env_id": "B", "env_kwargs": second, "seed": 0, "options": {"index": 3}}]
    read = [read_row(row, "default") for row in as_dataset(rows)]
    assert read[0] == {"env_id": "A", "env_kwargs": first, "seed": seed, "options": {}}
    assert read[1] == {"env_id": "B", "env_kwargs": second, "seed": 0, "options": {"index": 3}}


def test_members_that_arrow_filled_with_none_are_dropped() -> None:
    mixed = Dataset.from_list([{"env_kwargs": {"level": "bridge"}}, {"env_kwargs": {"top_k": 3}}])
    assert [read_row(row, "X")["env_kwargs"] for row in mixed] == [{"level": "bridge"}, {"top_k": 3}]
    assert read_row({}, "X") == {"env_id": "X", "env_kwargs": {}, "seed": None, "options": {}}


def test_a_sample_of_the_agent_r1_schema_becomes_the_task() -> None:
    sample = {"prompt": [{"role": "user", "content": "?"}], "reward_model": {"ground_truth": "x"}, "agent_name": "loop", "env_kwargs": "{}"}
    row = read_row(sample, "X")
    assert row["options"] == {"task": {"prompt": sample["prompt"], "reward_model": sample["reward_model"]}}
    assert row["agent_name"] == "loop"


@pytest.mark.parametrize("row", [{"env_kwargs": "[1]"}, {"env_kwargs": "{"}, {"options": 3}, {"seed": -1}, {"seed": 1.5}])
def test_rows_that_cannot_be_read_say_why(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="of a data set row"):
        read_row(row, "X")


def test_rows_that_cannot_be_written_say_why() -> None:
    with pytest.raises(ValueError, match="must be JSON"):
        encode_row({"env_kwargs": {"tokenizer": object()}})


def test_the_default_rows_are_the_environments_own_tasks() -> None:
    env = gymnasium.make("AgentR1/Tool-v0", split="validation")
    rows = default_rows(env, "AgentR1/Tool-v0", {"split": "validation"})
    assert len(rows) == 10_000
    assert json.loads(rows[0]["env_kwargs"]) == {"split": "validation"}
    assert [row["seed"] for row in rows] == env.unwrapped.task_seeds("validation")
    finite = default_rows(Finite(), "F", {})
    assert [read_row(row, "F")["options"] for row in finite] == [{"index": 0}, {"index": 1}, {"index": 2}]


def make_maker(env: Any, **settings: Any) -> EnvironmentMaker:
    tokenizer = load_tokenizer("default")
    return EnvironmentMaker(env, tokenizer=tokenizer, vocab_size=len(tokenizer) + 5, end_of_turn_ids=[7], **settings)


def test_environments_get_tokenizer_embedding_size_stops_and_limits() -> None:
    make = make_maker(
        "AgentR1/Tool-v0", env_kwargs={"split": "test"}, settings={"max_turns": 9, "max_action_tokens": 33, "template_kwargs": None}
    )
    env = make({"env_id": "AgentR1/Tool-v0", "env_kwargs": {"max_turns": 2}, "seed": 1, "options": {}}).unwrapped
    assert env.chat.vocab_size == len(load_tokenizer("default")) + 5
    assert 7 in env.end_of_turn_ids
    assert (env.split, env.max_turns, env.max_action_tokens) == ("test", 2, 33)


def test_an_environment_with_another_tokenizer_is_refused() -> None:
    other = make_tokenizer()
    with pytest.raises(ValueError, match=tokenizer_fingerprint(other)):
        make_maker(lambda row: Lucky(tokenizer=other))()
    with pytest.raises(ValueError, match="leave tokenizer out of env_kwargs"):
        make_maker("AgentR1/Tool-v0", env_kwargs={"tokenizer": other})()
    with pytest.raises(TypeError, match="registered id or a callable"):
        make_maker(3)


def test_any_gymnasium_environment_becomes_one_over_the_models_tokens() -> None:
    env = make_maker("FrozenLake-v1")()
    assert env.get_wrapper_attr("tokenizer_fingerprint") == tokenizer_fingerprint(load_tokenizer("default"))
    assert env.reset(seed=0)[0].dtype == np.int64


def test_an_adapted_environment_gets_the_models_ids_stops_and_limits() -> None:
    limits = {"max_turns": 3, "max_action_tokens": 77, "template_kwargs": {"enable_thinking": False}}
    env = make_maker("FrozenLake-v1", settings=limits)().unwrapped
    assert env.chat.vocab_size == env.action_space.vocab_size == len(load_tokenizer("default")) + 5
    assert 7 in env.end_of_turn_ids
    assert (env.max_turns, env.max_action_tokens) == (3, 77)
    env.reset(seed=0)
    env.step([env.chat.vocab_size - 1])  # an id of the embedding beyond the tokenizer


def made_by_a_function(tokenizer: Any = None, vocab_size: int | None = None, end_of_turn_ids: Sequence[int] = ()) -> Lucky:
    return Lucky(tokenizer=tokenizer, vocab_size=vocab_size, end_of_turn_ids=end_of_turn_ids)


def test_a_function_that_takes_the_models_ids_gets_them() -> None:
    gymnasium.register("MakerTest/Function-v0", entry_point=made_by_a_function)
    try:
        env = make_maker("MakerTest/Function-v0", settings={"max_turns": 3})().unwrapped
    finally:
        del gymnasium.registry["MakerTest/Function-v0"]
    assert env.chat.vocab_size == len(load_tokenizer("default")) + 5 and 7 in env.end_of_turn_ids


def test_an_environment_is_made_of_each_default_row() -> None:
    for env_id, keywords, split in (("FrozenLake-v1", {"is_slippery": False}, None), ("AgentR1/Tool-v0", {}, "train")):
        make = make_maker(env_id, env_kwargs=keywords)
        rows = default_rows(make(), env_id, keywords, n=2, first=5)
        assert [row["seed"] for row in rows] == [5, 6]
        read = read_row(rows[0], env_id)
        assert read["env_kwargs"] == {**keywords, **({"split": split} if split else {})}
        make(read).reset(seed=read["seed"])
    text = make_maker(lambda row: gymnasium.make("FrozenLake-v1", **row["env_kwargs"]))
    read = read_row(default_rows(text(), text.env_id, {}, n=1)[0], text.env_id)
    text(read).reset(seed=read["seed"])


@pytest.mark.parametrize("settings", [{"vocab_size": None, "end_of_turn_ids": [7]}, {"end_of_turn_ids": []}], ids=["ids", "stops"])
def test_a_callable_that_leaves_the_models_ids_out_is_refused(settings: dict[str, Any]) -> None:
    size = len(load_tokenizer("default")) + 5
    with pytest.raises(ValueError, match="the model samples ids below"):
        make_maker(lambda row: Lucky(**{"vocab_size": size, **settings}))()
    make_maker(lambda row: Lucky(vocab_size=size, end_of_turn_ids=[7]))()


def test_a_row_of_a_published_data_set_becomes_the_task() -> None:
    row = {"_id": "3", "question": "?", "answer": "x", "context": None}
    assert read_row(row, "X")["options"] == {"task": {"_id": "3", "question": "?", "answer": "x"}}
    assert read_row({**row, "seed": 3}, "X")["options"] == {}


def test_a_batch_whose_every_episode_was_lost_is_skipped(tmp_path: Path) -> None:
    class Down(Lucky):
        def _respond(self, action: Action) -> Outcome:
            raise EnvFault("down")

    trainer = trainer_of(tmp_path, Down, max_steps=1, max_fault_retries=0, per_device_train_batch_size=4)
    with pytest.warns(UserWarning, match="no episode left"):
        trainer.train()
    assert trainer.faults.rate == pytest.approx(4 / 200)
    assert trainer.trajectories == []


def trainer_of(folder: Path, env: Any, model: Any = None, **settings: Any) -> AgentGRPOTrainer:
    tokenizer = make_tokenizer()
    extra = {name: settings.pop(name) for name in ("policy", "flow", "env_kwargs", "train_dataset", "eval_dataset") if name in settings}
    model = make_model(dtype=torch.float32) if model is None else model
    make = env if isinstance(env, str) else lambda row: env(tokenizer=tokenizer, vocab_size=VOCAB, max_action_tokens=6, **row["env_kwargs"])
    defaults = {"max_completion_length": 6, "per_device_train_batch_size": 16, "num_generations": 4}
    args = make_args(folder, **{**defaults, **settings})
    return AgentGRPOTrainer(model, args, env=make, processing_class=tokenizer, **extra)


def test_training_on_an_environment_raises_its_reward(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, Lucky, max_steps=15, learning_rate=3e-2, is_correction="token_truncate")
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "reward" in entry]
    rewards = [entry["reward"] for entry in entries]
    assert np.mean(rewards[-3:]) > np.mean(rewards[:2]) + 0.5
    for entry in entries:
        assert entry["logp_diff/max"] < 1e-4  # what is trained is what was sampled, by the very same weights
        assert entry["rollout/rows_per_traj"] == 1.0
        assert entry["rollout/staleness_max"] == 0.0
        assert math.isfinite(entry["is/max"])
    shown = trainer.trajectories[0]
    assert shown.env_kwargs == {"split": "train"}
    assert shown.tokenizer_fingerprint == trainer.make_env.fingerprint
    assert len({item.task_id for item in trainer.trajectories}) == len({item.group_id for item in trainer.trajectories}) == 4


def test_a_stale_policy_would_show_in_the_log(tmp_path: Path) -> None:
    """The exactness figure can fail: replies sampled by other weights than those that are trained."""

    class Other:
        version = -3

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        async def generate(self, prompt_ids: Sequence[int], sampling: Any, *, session: Any = None) -> Generation:
            return await self.inner.generate(prompt_ids, sampling, session=session)

        def forget(self, session: Any) -> None:
            self.inner.forget(session)

    from agent_gym.policies.transformers_policy import TransformersPolicy

    foreign = Other(TransformersPolicy(make_model(seed=1, dtype=torch.float32), pad_id=0))
    trainer = trainer_of(tmp_path, Lucky, policy=foreign, max_steps=1)
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    assert entry["logp_diff/max"] > 0.1
    assert entry["is/clipped_frac"] > 0
    assert entry["rollout/staleness_max"] == 0.0  # the inner policy calls its weights those of step 0
    assert foreign.version == -3
    assert trainer._is_mode == "token_truncate"


def test_a_rewritten_context_opens_rows(tmp_path: Path) -> None:
    class Rewriting(Lucky):
        def _respond(self, action: Action) -> Outcome:
            outcome = super()._respond(action)
            return Outcome(Observation(text="w3 w5", rewrite=True), reward=outcome.reward, terminated=outcome.terminated)

    trainer = trainer_of(tmp_path, Rewriting, max_steps=1, is_correction="none")
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    assert entry["rollout/rows_per_traj"] == 2.0
    assert entry["rollout/merge_breaks"] == 16.0
    assert entry["logp_diff/max"] < 1e-4


def test_broken_worlds_are_begun_again_then_dropped_and_counted(tmp_path: Path) -> None:
    Broken.attempts.clear()
    trainer = trainer_of(tmp_path, Broken, max_steps=1, max_fault_retries=1)
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    dropped = int(entry["rollout/faults"])
    assert 0 < dropped < 16
    assert len(Broken.attempts) == 2 * dropped == 2 * entry["rollout/fault_retries"]
    assert entry["rollout/episodes"] == 16 - dropped
    assert trainer.faults.rate == pytest.approx(dropped / 200)
    with pytest.raises(TooManyFaults, match="on_fault='stop'"):
        trainer_of(tmp_path, Broken, max_steps=1, max_fault_retries=0, on_fault="stop").train()


def test_a_resumed_run_plays_the_episodes_it_would_have_played(tmp_path: Path) -> None:
    common = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-3}
    whole = trainer_of(tmp_path / "whole", Lucky, **common)
    whole.train()
    resumed = trainer_of(tmp_path / "rest", Lucky, **common)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    assert [item.steps[0].action_ids.tolist() for item in resumed.trajectories] == [
        item.steps[0].action_ids.tolist() for item in whole.trajectories
    ]
    one, other = (torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()]) for trainer in (whole, resumed))
    assert relative_error(one.double(), other.double()) < 1e-6


def test_a_flow_with_several_episodes_per_row_trains(tmp_path: Path) -> None:
    from agent_gym.flows import AgentFlowBase

    class Twice(AgentFlowBase):
        async def run(self, row: Any, policy: Any, make_env: Any) -> list[Any]:
            episodes = []
            for _ in range(2):
                env = make_env(row)
                await env.reset()
                while env.running:
                    await env.step(await policy.generate(env.prompt_ids, env.sampling(policy.sampling), session=env.session))
                episodes.append(env.trajectory)
            return episodes

    trainer = trainer_of(tmp_path, Lucky, flow=Twice(), max_steps=1)
    trainer.train()
    assert len(trainer.trajectories) == 32
    groups = [item.group_id for item in trainer.trajectories]
    assert [groups.count(name) for name in dict.fromkeys(groups)] == [8, 8, 8, 8]


def test_evaluation_runs_on_its_own_rows(tmp_path: Path) -> None:
    rows = [{"env_id": "Lucky", "env_kwargs": {"split": "test"}, "seed": seed} for seed in range(3)]
    trainer = trainer_of(tmp_path, Lucky, max_steps=1, eval_strategy="steps", eval_steps=1, eval_dataset=rows, per_device_eval_batch_size=4)
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "eval_reward" in entry)
    assert entry["eval_rollout/episodes"] == 12 / 3
    assert {item.env_kwargs["split"] for item in trainer.trajectories} == {"test"}
    assert "reward" in trainer.state.log_history[0]


def test_the_main_job_runs_with_an_untrained_model(tmp_path: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    tokenizer = load_tokenizer("default")
    config = Qwen3Config(
        vocab_size=len(tokenizer) + 3,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=4096,
    )
    args = make_args(tmp_path, num_generations=4, max_completion_length=12, max_steps=2, max_turns=2)
    trainer = AgentGRPOTrainer(
        Qwen3ForCausalLM(config), args, env="AgentR1/HotpotQA-v0", processing_class="default", env_kwargs={"level": "bridge"}
    )
    with pytest.warns(UserWarning, match="no group of this generation batch has any variance"):
        trainer.train()
    assert len(trainer.train_dataset) == 10_000
    assert trainer.state.global_step == 2
    assert trainer.trajectories[0].env_kwargs == {"level": "bridge", "split": "train"}
    assert load_tokenizer("default") is not trainer.processing_class
