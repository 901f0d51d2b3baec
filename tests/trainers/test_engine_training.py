"""Training with replies from an engine: its weights are the model's, at every update. The servers are stand-ins (`engine_servers`), which sample for real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers import require

torch = require("torch")
transformers = require("transformers")
require("trl")

from engine_servers import FakeVLLM, serving  # noqa: E402
from small_envs import Odd  # noqa: E402
from toy_training import make_args  # noqa: E402

from agent_gym.chat import load_tokenizer  # noqa: E402
from agent_gym.cli import main  # noqa: E402
from agent_gym.policies import EngineError, VLLMPolicy  # noqa: E402
from agent_gym.trainers import (  # noqa: E402
    AgentDistillConfig,
    AgentDistillTrainer,
    AgentGRPOTrainer,
    AgentPPOConfig,
    AgentPPOTrainer,
)
from agent_gym.trainers.engine import EngineWeights, merged_state_dict  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

CONTEXT = 512
CONTROLS = ["/pause", "/collective_rpc", "/reset_prefix_cache", "/resume"]


class Deaf(FakeVLLM):
    """Says that it has loaded the weights, and has not."""

    def reload(self, folder: str) -> None:
        pass


def make_model(seed: int = 5) -> Any:
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(
        vocab_size=len(load_tokenizer(None)), hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, initializer_range=0.1, max_position_embeddings=CONTEXT, tie_word_embeddings=True,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config)


@pytest.fixture
def server() -> Iterator[FakeVLLM]:
    """A server that was started on other weights than those that are trained."""
    with serving(FakeVLLM(make_model(99), max_model_len=CONTEXT)) as made:
        yield made


def train(
    folder: Path, url: str, *, kind: Any = AgentGRPOTrainer, model: Any = None, policy: Any = None, peft: Any = None, **settings: Any
) -> Any:
    engine = {} if policy is not None else {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": url}
    config = {AgentGRPOTrainer: {}, AgentPPOTrainer: {"config": AgentPPOConfig}, AgentDistillTrainer: {"config": AgentDistillConfig}}[kind]
    defaults = {
        "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 6, "max_turns": 2, "max_steps": 3, "learning_rate": 3e-2,
        "engine_weights_dir": str(folder),
    }  # fmt: skip
    made = kind(
        make_model() if model is None else model,
        make_args(folder / "run", **config, **{**defaults, **engine, **settings}),
        env=lambda row: Odd(max_turns=2, max_action_tokens=6),
        train_dataset=[{"seed": seed} for seed in range(16)],
        processing_class=load_tokenizer(None),
        policy=policy,
        **({} if peft is None else {"peft_config": peft}),
    )
    made.seen = []
    record = made._gather_trajectories

    def gathered(local: Any, figures: Any) -> Any:
        found = record(local, figures)
        made.seen.append({step.policy_version for item in found for step in item.steps})
        return found

    made._gather_trajectories = gathered
    return made


def figures(trainer: Any, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


@pytest.mark.parametrize("kind", [AgentGRPOTrainer, AgentPPOTrainer])
def test_every_batch_is_sampled_by_the_weights_of_its_step(tmp_path: Path, server: FakeVLLM, kind: Any) -> None:
    trainer = train(tmp_path, server.url, kind=kind)
    trainer.train()
    assert trainer.seen == [{0}, {1}, {2}] and figures(trainer, "rollout/staleness_max") == [0, 0, 0]
    assert max(figures(trainer, "logp_diff/max")) < 1e-4  # the server began with other weights: the first update counts too
    assert [path for path, _ in server.controls] == CONTROLS * 3
    assert all(seconds > 0 for seconds in figures(trainer, "rollout/seconds_sync"))
    for name, value in server.model.state_dict().items():  # those of before the last update
        assert not torch.equal(value, trainer.model.state_dict()[name]) or not value.is_floating_point()
    trainer.policy.close()
    assert not list(tmp_path.glob("agent-gym-weights-*"))


def test_control_an_engine_that_does_not_load_the_weights_is_seen(tmp_path: Path) -> None:
    with serving(Deaf(make_model(), max_model_len=CONTEXT)) as deaf:
        trainer = train(tmp_path, deaf.url)
        trainer.train()
        trainer.policy.close()
    found = figures(trainer, "logp_diff/max")
    assert found[0] < 1e-4 < 0.05 < min(found[1:])


def test_weights_can_be_sent_less_often_and_their_age_is_told(tmp_path: Path, server: FakeVLLM) -> None:
    trainer = train(tmp_path, server.url, sync_every=2, max_steps=4, is_correction="token_truncate")
    trainer.train()
    assert trainer.seen == [{0}, {0}, {2}, {2}] and figures(trainer, "rollout/staleness_max") == [0, 1, 0, 1]
    trainer.policy.close()


def test_a_policy_that_is_given_is_updated_too_unless_it_is_to_be_left_alone(tmp_path: Path, server: FakeVLLM) -> None:
    for every, versions in ((1, [{0}, {1}]), (0, [{7}, {7}])):
        policy = VLLMPolicy(server.url, weights_dir=tmp_path, version=0 if every else 7)
        trainer = train(tmp_path, server.url, policy=policy, sync_every=every, max_steps=2)
        assert (trainer.engine is None) is (every == 0)
        trainer.train()
        assert trainer.seen == versions
        policy.close()


def test_adapters_reach_the_engine_and_the_model_is_left_bit_for_bit(tmp_path: Path, server: FakeVLLM) -> None:
    peft = require("peft")
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM")
    trainer = train(tmp_path, server.url, peft=lora, learning_rate=0.3)
    frozen = {name: value.clone() for name, value in trainer.model.state_dict().items() if "lora_" not in name}
    trainer.train()
    assert max(figures(trainer, "logp_diff/max")) < 1e-4 and trainer.seen == [{0}, {1}, {2}]
    assert all(torch.equal(value, trainer.model.state_dict()[name]) for name, value in frozen.items())
    trainer.policy.close()
    state = merged_state_dict(trainer.model)
    assert set(state) == set(make_model().state_dict())
    whole = trainer.model.merge_and_unload()
    moved = 0
    for name, value in whole.state_dict().items():
        assert torch.equal(state[name], value), name
        moved += not torch.equal(value, make_model().state_dict()[name])
    assert moved == 3


def test_weights_may_be_written_in_half_the_bytes(tmp_path: Path, server: FakeVLLM) -> None:
    trainer = train(tmp_path, server.url, engine_weights_dtype="bfloat16", max_steps=1)
    trainer.train()
    for name, value in server.model.state_dict().items():
        assert torch.equal(value, make_model().state_dict()[name].bfloat16().float())
    trainer.policy.close()


def test_measuring_takes_the_newest_weights(tmp_path: Path, server: FakeVLLM) -> None:
    trainer = train(tmp_path, server.url, sync_every=4, max_steps=2)
    trainer.train()
    trainer.evaluate([{"seed": 1}, {"seed": 2}])
    assert trainer.seen == [{0}, {0}, {2}]
    for name, value in server.model.state_dict().items():
        assert torch.equal(value, trainer.model.state_dict()[name])
    trainer.policy.close()


def test_an_engine_that_refuses_the_weights_ends_the_training_with_its_reason(tmp_path: Path, server: FakeVLLM) -> None:
    server.missing.add("/collective_rpc")
    trainer = train(tmp_path, server.url)
    with pytest.raises(EngineError, match=r"did not take the weights of step 0.*VLLM_SERVER_DEV_MODE=1"):
        trainer.train()
    trainer.policy.close()
    assert not list(tmp_path.glob("agent-gym-weights-*"))


def test_weights_that_cannot_be_written_end_the_training_and_leave_no_folder(tmp_path: Path, server: FakeVLLM) -> None:
    trainer = train(tmp_path, server.url)

    def save_pretrained(folder: Path, **_: Any) -> None:
        (Path(folder) / "half").write_text("x")
        raise OSError(28, "No space left on device")

    trainer.model.save_pretrained = save_pretrained
    with pytest.raises(EngineError, match=r"did not take the weights of step 0.*No space left on device"):
        trainer.train()
    trainer.policy.close()
    assert not list(tmp_path.glob("agent-gym-weights-*"))


def test_an_engine_of_each_of_several_processes_is_refused(tmp_path: Path) -> None:
    policy = VLLMPolicy("http://127.0.0.1:9")
    args, two = make_args(tmp_path), SimpleNamespace(num_processes=2)
    assert EngineWeights.of(policy, args, two) is not None
    policy.mode = "colocate"
    assert EngineWeights.of(policy, args, SimpleNamespace(num_processes=1)) is not None
    with pytest.raises(ValueError, match="with 2 processes: an engine in each of them is not supported"):
        EngineWeights.of(policy, args, two)


def test_a_teacher_at_another_server_keeps_its_weights_and_one_at_the_same_is_refused(tmp_path: Path, server: FakeVLLM) -> None:
    with pytest.raises(ValueError, match="the teacher and the engine of the student are both at"):
        train(tmp_path / "same", server.url, kind=AgentDistillTrainer, teacher=server.url.replace("127.0.0.1", "localhost"))
    with serving(FakeVLLM(make_model(7), max_model_len=CONTEXT)) as taught:
        trainer = train(tmp_path, server.url, kind=AgentDistillTrainer, teacher=taught.url, max_steps=2)
        trainer.train()
        assert trainer.seen == [{0}, {1}] and [path for path, _ in server.controls] == CONTROLS * 2
        assert "/collective_rpc" not in [path for path, _ in taught.controls] and all(
            torch.equal(one, make_model(7).state_dict()[name]) for name, one in taught.model.state_dict().items()
        )
        assert all(value > 0 for value in figures(trainer, "distill/reverse_kl"))
        trainer.close()
        assert not list(tmp_path.glob("agent-gym-weights-*"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vllm_enable_sleep_mode": True}, "vllm_enable_sleep_mode=True is not taken"),
        ({"vllm_structured_outputs_regex": "a*"}, "vllm_structured_outputs_regex"),
        ({"sync_every": -1}, "sync_every=-1 must not be negative"),
        ({"engine_weights_dtype": "int8"}, "engine_weights_dtype='int8' is unknown"),
        ({"vllm_mode": "colocate"}, "wants a model with a folder or name"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(tmp_path, "http://127.0.0.1:9", **settings)


def test_use_vllm_and_a_policy_are_two_engines(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use_vllm=True makes a policy of its own"):
        train(tmp_path, "", policy=VLLMPolicy("http://127.0.0.1:9"), use_vllm=True)


def test_a_run_from_the_command_line_measures_and_trains_with_the_server(
    tmp_path: Path, tiny_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    run = tmp_path / "run"
    with serving(FakeVLLM(model, max_model_len=1024)) as server:
        settings = {
            "use_vllm": "true", "vllm_mode": "server", "vllm_server_base_url": server.url, "max_steps": 2, "num_generations": 2,
            "per_device_train_batch_size": 4, "max_completion_length": 8, "max_turns": 2, "save_strategy": "no", "learning_rate": 1e-3,
            "max_no_signal_batches": 0,
        }  # fmt: skip
        words = ["train", "AgentR1/HotpotQA-v0", "--model", tiny_model, "--output-dir", str(run), "--set", "data.eval_tasks=2"]
        for name, value in settings.items():
            words += ["--set", f"trainer.{name}={value}"]
        assert main(words) == 0, capsys.readouterr()
        assert server.seen and [path for path, _ in server.controls].count("/collective_rpc") >= 2
    for name in ("before", "final"):
        assert json.loads((run / f"evaluation.{name}.json").read_text())["engine"] == "vllm 0.30.0"
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [record for record in records if record.get("kind") == "train"]
    assert trained and all("rollout/seconds_sync" in json.dumps(record) for record in trained)


def test_a_server_that_is_not_there_fails_the_run_with_what_to_do(
    tmp_path: Path, tiny_model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_gym.policies.engine._LONGEST_DELAY", 0.01)  # between the tries
    words = ["train", "AgentR1/HotpotQA-v0", "--model", tiny_model, "--output-dir", str(tmp_path / "run")]
    for setting in ("use_vllm=true", "vllm_mode=server", "vllm_server_base_url=http://127.0.0.1:9", "vllm_server_timeout=0", "max_steps=1",
                    "num_generations=2", "per_device_train_batch_size=4"):  # fmt: skip
        words += ["--set", f"trainer.{setting}"]
    assert main(words) == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err
