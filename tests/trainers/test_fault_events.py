"""Every fault, end to end through the trainer: its name in the records, its line in the log, and what "drop" and "stop" do with it.

Kills and full disks are in tests/test_cli_faults.py, since they belong to the run folder and the command line.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from toy_training import VOCAB, make_args, make_model, make_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from agent_gym.core import Action, AgentEnv, EnvFault, Observation, Outcome
from agent_gym.envs.hotpotqa import HotpotQAEnv
from agent_gym.flows import FAULTS, Fault, TooManyFaults
from agent_gym.policies import ScriptedPolicy
from agent_gym.runs import RunFolder
from agent_gym.search import HttpSearcher
from agent_gym.trainers.grpo import AgentGRPOTrainer, NoLearningSignalError
from agent_gym.trainers.metrics import describe
from agent_gym.trainers.resilience import STATE_FILE
from agent_gym.trainers.run_callback import RunCallback

pytestmark = pytest.mark.filterwarnings("ignore:steps_per_generation:UserWarning")
ROWS, GROUP, UPDATES = 4, 2, 2


class Even(AgentEnv):
    """One turn; pays the share of words with an even number. What the row asks for goes wrong."""

    def _begin(self, options: dict[str, Any]) -> Observation:
        self.task_id = f"t{options.get('index', 0)}"
        self.wrong = "" if int(options.get("index", 0)) % 2 else str(self.what)
        if self.wrong == "raise":
            raise KeyError("answer")
        words = {"long": 70, "longer": 600}.get(self.wrong, 2)
        return Observation(text=" ".join(["w2"] * words))

    def __init__(self, *, what: str = "", **keywords: Any) -> None:
        super().__init__(**keywords)
        self.what = what

    def _respond(self, action: Action) -> Outcome:
        words = [word for word in action.text.split() if word.startswith("w")]
        share = sum(int(word[1:]) % 2 == 0 for word in words) / max(1, len(words))
        return Outcome(Observation(text="w4"), reward={"nan": float("nan"), "inf": float("inf")}.get(self.wrong, share), terminated=True)


@dataclass
class Done:
    """A run that came to its end, or was stopped by `error`."""

    trainer: Any
    run: RunFolder
    error: Exception | None

    def counted(self, fault: Fault) -> list[float]:
        """The fault's figure in each training record."""
        return [one[f"faults/{fault}"] for one in self.run.metrics("train")]

    def records(self) -> list[tuple[str, int]]:
        """Name and number of each fault's own record."""
        return [(one["fault"], one["number"]) for one in self.run.metrics("fault")]


def train(
    folder: Path, env: Any = Even, *, on_fault: str, rows: Any = None, model: Any = None, keywords: Any = None, **settings: Any
) -> Done:
    """Train for two updates on four rows of two episodes each."""
    tokenizer = settings.pop("processing_class", None) or make_tokenizer()
    policy, resume = settings.pop("policy", None), settings.pop("resume", None)

    def make(row: Mapping[str, Any]) -> Any:
        if isinstance(env, type):
            return env(tokenizer=tokenizer, vocab_size=VOCAB, max_action_tokens=6, **{**(keywords or {}), **row["env_kwargs"]})
        return env(row)

    args = make_args(
        folder / "checkpoints",
        **{
            "per_device_train_batch_size": ROWS * GROUP,
            "num_generations": GROUP,
            "max_completion_length": 6,
            "max_steps": UPDATES,
            "max_no_signal_batches": 0,
            "max_fault_retries": 0,
            "on_fault": on_fault,
            **settings,
        },
    )
    trainer = AgentGRPOTrainer(
        make_model(dtype=torch.float32) if model is None else model,
        args,
        env=make,
        train_dataset=[{"options": {"index": number}, "seed": number} for number in range(ROWS)] if rows is None else rows,
        processing_class=tokenizer,
        policy=policy,
    )
    run = RunFolder.create(folder, {"kind": "test"})
    trainer.add_callback(RunCallback(run, faults=trainer.faults))
    try:
        trainer.train(resume_from_checkpoint=str(resume) if resume is not None else None)
    except (TooManyFaults, NoLearningSignalError) as error:
        return Done(trainer, run, error)
    return Done(trainer, run, None)


def assert_it_went_on(done: Done, fault: Fault, each: int, caplog: pytest.LogCaptureFixture) -> None:
    """Every update was made, and what went wrong in it was counted by its name, logged and recorded."""
    assert done.error is None and done.trainer.state.global_step == UPDATES
    assert done.counted(fault) == [each] * UPDATES
    others = [one for one in Fault if one is not fault]
    assert all(done.counted(one) == [0.0] * UPDATES for one in others)
    assert all(describe(name) for one in done.run.metrics("train") for name in one if name != "kind")
    assert {name for name, _ in done.records()} == {str(fault)} and sum(number for _, number in done.records()) == each * UPDATES
    lines = [one.getMessage() for one in caplog.records if one.name == "agent_gym.flows.faults"]
    assert len(lines) == len(done.records()) and all(line.startswith(f"fault {fault}: ") for line in lines)


def assert_it_stopped(done: Done, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    """The run ended at the first, with the fault's name and advice, and the record of it."""
    assert isinstance(done.error, TooManyFaults) and done.trainer.state.global_step == 0
    for words in (f"fault {fault}: ", "on_fault='stop' stops at the first", FAULTS[fault].advice, "or use on_fault='drop'"):
        assert words in str(done.error)
    assert {name for name, _ in done.records()} == {str(fault)} and done.run.metrics("train") == []
    assert any(one.getMessage().startswith(f"fault {fault}: ") for one in caplog.records)


@pytest.fixture(autouse=True)
def watched(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "agent_gym")


# ---------------------------------------------------------------------------------------------------- rewards that are no numbers


@pytest.mark.parametrize("what", ["nan", "inf"])
def test_episodes_with_a_reward_that_is_no_number_are_left_out_and_counted(what: str, tmp_path: Path, caplog: Any) -> None:
    done = train(tmp_path, on_fault="drop", keywords={"what": what})
    assert_it_went_on(done, Fault.NONFINITE_REWARD, ROWS * GROUP // 2, caplog)
    assert "gave a reward that is not finite" in caplog.text
    for one in done.run.metrics("train"):
        assert one["rollout/nonfinite_rewards"] == ROWS * GROUP // 2 and 0.0 <= one["reward"] <= 1.0 and one["grad_norm"] >= 0.0


def test_a_reward_that_is_no_number_stops_the_run_where_that_is_asked_for(tmp_path: Path, caplog: Any) -> None:
    assert_it_stopped(train(tmp_path, on_fault="stop", keywords={"what": "nan"}), Fault.NONFINITE_REWARD, caplog)


# ---------------------------------------------------------------------------------------------------- a model that only ends its turn


def silent_model() -> Any:
    """Whatever it reads, its last hidden state is one vector, which means the end of the turn."""
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        max_position_embeddings=512, tie_word_embeddings=False, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    model: Any = Qwen3ForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight[:] = 1.0
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.lm_head.weight.zero_()
        model.lm_head.weight[1] = 5.0
    return model


def test_a_model_that_only_ends_its_turn_is_named_and_its_episodes_stay(tmp_path: Path, caplog: Any) -> None:
    with pytest.warns(UserWarning, match="the update is skipped"):
        done = train(tmp_path, on_fault="drop", model=silent_model())
    assert_it_went_on(done, Fault.ONLY_END_OF_TURN, ROWS * GROUP, caplog)
    assert "only ended its turn in 8 of 8 episodes" in caplog.text
    assert [one["rollout/episodes"] for one in done.run.metrics("train")] == [8.0, 8.0]
    with pytest.warns(UserWarning, match="the update is skipped"):
        ended = train(tmp_path / "bounded", on_fault="drop", model=silent_model(), max_no_signal_batches=2)
    assert isinstance(ended.error, NoLearningSignalError)


def test_a_model_that_only_ends_its_turn_stops_the_run_where_that_is_asked_for(tmp_path: Path, caplog: Any) -> None:
    assert_it_stopped(train(tmp_path, on_fault="stop", model=silent_model()), Fault.ONLY_END_OF_TURN, caplog)


class NowAndThen:
    """A policy that only ends its turn in one task, and says something in the others."""

    version = 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Any, *, session: Any = None) -> Any:
        from agent_gym.trajectory import Generation

        ids = [1] if len(prompt_ids) > 10 else [8 + len(prompt_ids) % 2, 9, 1]
        return Generation(ids, [-0.5] * len(ids), "stop", 0)

    def forget(self, session: Any) -> None:
        return None


def test_some_silent_episodes_are_counted_and_stop_nothing(tmp_path: Path, caplog: Any) -> None:
    class Wordy(Even):
        def _begin(self, options: dict[str, Any]) -> Observation:
            super()._begin(options)
            return Observation(text=" ".join(["w2"] * (20 if options["index"] == 0 else 2)))

    with pytest.warns(UserWarning, match="the update is skipped"):  # the policy does not vary
        done = train(tmp_path, Wordy, on_fault="stop", policy=NowAndThen())
    assert_it_went_on(done, Fault.ONLY_END_OF_TURN, GROUP, caplog)


# ---------------------------------------------------------------------------------------------------- prompts that are too long


@pytest.mark.parametrize("what", ["long", "longer"], ids=["for the environment", "for the model"])
def test_rows_whose_first_prompt_does_not_fit_are_dropped_and_counted(what: str, tmp_path: Path, caplog: Any) -> None:
    room = {"max_observation_tokens": 64 if what == "long" else 1024}
    with pytest.warns(UserWarning, match="of the last 200 episodes were dropped|leaves no room in the model's"):
        done = train(tmp_path, on_fault="drop", keywords={"what": what, **room}, max_steps=6 if what == "long" else UPDATES)
    if what == "long":
        assert done.error is None and done.counted(Fault.PROMPT_TOO_LONG) == [4.0] * 6 and "max_observation_tokens is 64" in caplog.text
        return
    assert_it_went_on(done, Fault.PROMPT_TOO_LONG, ROWS * GROUP // 2, caplog)
    assert "leaves no room in the model's context" in caplog.text
    assert [one["rollout/episodes"] for one in done.run.metrics("train")] == [4.0, 4.0]
    assert [one["rollout/faults"] for one in done.run.metrics("train")] == [4.0, 4.0]


@pytest.mark.filterwarnings("ignore:a prompt of")
@pytest.mark.parametrize("what", ["long", "longer"], ids=["for the environment", "for the model"])
def test_a_first_prompt_that_does_not_fit_stops_the_run_where_that_is_asked_for(what: str, tmp_path: Path, caplog: Any) -> None:
    room = {"max_observation_tokens": 64 if what == "long" else 1024}
    assert_it_stopped(train(tmp_path, on_fault="stop", keywords={"what": what, **room}), Fault.PROMPT_TOO_LONG, caplog)


def test_a_later_prompt_that_does_not_fit_is_a_truncation_and_no_fault(tmp_path: Path, caplog: Any) -> None:
    class Growing(Even):
        def _respond(self, action: Action) -> Outcome:
            outcome = super()._respond(action)
            return Outcome(Observation(text=" ".join(["w3"] * 100)), reward=outcome.reward)

    done = train(tmp_path, Growing, on_fault="stop", keywords={"max_observation_tokens": 64})
    assert done.error is None and done.records() == [] and not caplog.records
    assert [one["rollout/stop/context_limit"] for one in done.run.metrics("train")] == [1.0, 1.0]


# ---------------------------------------------------------------------------------------------------- rows that raise


def raising_rows() -> Dataset:
    """A data set whose own code raises on every other row."""

    def read(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if any(number % 2 for number in batch["seed"]):
            raise OSError("the file of this row is gone")
        return batch

    return Dataset.from_list([{"seed": number, "options": '{"index": 1}'} for number in range(ROWS)]).with_transform(read)


ROWS_THAT_RAISE: dict[str, Any] = {
    "in reset": ({"keywords": {"what": "raise"}}, "KeyError: 'answer'"),
    "in making the environment": (
        {"rows": [{"seed": n, "env_kwargs": {"max_turns": 1 - n % 2}, "options": {"index": 1}} for n in range(ROWS)]},
        "max_turns must be a positive whole number",
    ),
    "in reading": (
        {"rows": [{"seed": n if n % 2 else -1, "env_kwargs": {}, "options": {"index": 1}} for n in range(ROWS)]},
        "of a data set row",
    ),
    "in the data set": ({"rows": raising_rows()}, "OSError: the file of this row is gone"),
}


@pytest.mark.parametrize("where", ROWS_THAT_RAISE)
def test_a_row_that_raises_is_dropped_and_counted(where: str, tmp_path: Path, caplog: Any) -> None:
    settings, words = ROWS_THAT_RAISE[where]
    done = train(tmp_path, on_fault="drop", **settings)
    assert_it_went_on(done, Fault.ROW_ERROR, ROWS * GROUP // 2, caplog)
    assert words in caplog.text
    assert [one["rollout/episodes"] for one in done.run.metrics("train")] == [4.0, 4.0]
    assert [one["rollout/faults"] for one in done.run.metrics("train")] == [4.0, 4.0]
    assert [one["rollout/fault_retries"] for one in done.run.metrics("train")] == [0.0, 0.0]


@pytest.mark.parametrize("where", ROWS_THAT_RAISE)
def test_a_row_that_raises_stops_the_run_where_that_is_asked_for(where: str, tmp_path: Path, caplog: Any) -> None:
    settings, words = ROWS_THAT_RAISE[where]
    done = train(tmp_path, on_fault="stop", **settings)
    assert_it_stopped(done, Fault.ROW_ERROR, caplog)
    assert words in str(done.error)


def test_where_no_row_can_be_played_the_run_stops_at_once_with_the_reason(tmp_path: Path) -> None:
    done = train(tmp_path, on_fault="drop", rows=[{"seed": n, "env_kwargs": {"max_turns": 0}} for n in range(ROWS)])
    assert isinstance(done.error, TooManyFaults) and done.trainer.state.global_step == 0
    assert "no row of this generation batch (8 episodes) can be played" in str(done.error) and "max_turns" in str(done.error)


# ---------------------------------------------------------------------------------------------------- a server that hangs

SERVER = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        page = {"document": {"id": "7", "contents": '"Ada"\\nA page.'}, "score": 1.5}
        body = json.dumps({"result": [[page] for _ in asked["queries"]]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@contextmanager
def search_server() -> Iterator[tuple[str, int]]:
    """A search server in a process of its own: its address and its process, to be stopped by SIGSTOP."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/retrieve", process.pid
    finally:
        process.kill()
        process.communicate()


def train_with_search(folder: Path, model: str, on_fault: str, hangs: Sequence[bool]) -> Done:
    """The expert plays HotpotQA against the server, which hangs in the updates that `hangs` says."""
    from agent_gym.chat import load_tokenizer

    tokenizer = load_tokenizer(model)
    expert = ScriptedPolicy.expert()
    with search_server() as (url, process):
        searcher = HttpSearcher(url, timeout=2.0, max_retries=0, cache_size=0)
        begun: list[int] = []

        def make(row: Mapping[str, Any]) -> Any:
            env = HotpotQAEnv(tokenizer=tokenizer, corpus=searcher, level="bridge", max_turns=2)
            begin = env._begin

            def watched(options: dict[str, Any]) -> Observation:
                if len(begun) % 4 == 0:  # the first episode of an update
                    os.kill(process, signal.SIGSTOP if hangs[len(begun) // 4] else signal.SIGCONT)
                begun.append(1)
                return begin(options)

            env._begin = watched  # type: ignore[method-assign]
            return env

        try:
            return train(
                folder,
                make,
                on_fault=on_fault,
                rows=[{"seed": number} for number in range(ROWS)],
                model=model,
                processing_class=tokenizer,
                policy=expert,
                max_completion_length=64,
                per_device_train_batch_size=4,
            )
        finally:
            os.kill(process, signal.SIGCONT)


def test_episodes_whose_search_server_hangs_are_dropped_and_training_goes_on(tmp_path: Path, tiny_model: str, caplog: Any) -> None:
    with pytest.warns(UserWarning, match="the update is skipped"):
        done = train_with_search(tmp_path / "run", tiny_model, "drop", hangs=[True, False])
    assert done.error is None and done.trainer.state.global_step == UPDATES
    assert done.counted(Fault.ENV_TIMEOUT) == [4.0, 0.0] and done.counted(Fault.ENV_FAULT) == [0.0, 0.0]
    assert [one["rollout/episodes"] for one in done.run.metrics("train")] == [0.0, 4.0]  # whole again as soon as the server is
    assert done.records() == [("env_timeout", 1)] * 4
    assert caplog.text.count("fault env_timeout: ") == 4 and "no complete answer before the deadline" in caplog.text


def test_a_search_server_that_hangs_stops_the_run_where_that_is_asked_for(tmp_path: Path, tiny_model: str, caplog: Any) -> None:
    assert_it_stopped(train_with_search(tmp_path / "run", tiny_model, "stop", hangs=[True]), Fault.ENV_TIMEOUT, caplog)


# ---------------------------------------------------------------------------------------------------- checkpoints


class Flaky(Even):
    """Its world breaks in every other task."""

    def _respond(self, action: Action) -> Outcome:
        if self.wrong:
            raise EnvFault("down")
        return super()._respond(action)


def test_a_checkpoint_keeps_the_faults_and_the_figures_that_wait_for_the_next_record(tmp_path: Path) -> None:
    """Records come every third update, checkpoints every second: a record spans the checkpoint, and the window of the last episodes too."""
    common: dict[str, Any] = {"max_steps": 6, "logging_steps": 3, "save_strategy": "steps", "save_steps": 2, "keywords": {"what": "x"}}
    whole = train(tmp_path / "whole", Flaky, on_fault="drop", **common)
    again = train(tmp_path / "again", Flaky, on_fault="drop", resume=tmp_path / "whole" / "checkpoints" / "checkpoint-2", **common)
    assert whole.counted(Fault.ENV_FAULT) == [4.0, 4.0] and whole.trainer.faults.counts == again.trainer.faults.counts
    records, repeated = whole.run.metrics("train"), again.run.metrics("train")
    assert [one["step"] for one in records] == [one["step"] for one in repeated] == [3, 6]
    for one, other in zip(records, repeated, strict=True):
        assert set(one) == set(other)
        for name in (name for name in one if "seconds" not in name and name not in ("kind", "step_time")):
            assert one[name] == pytest.approx(other[name], rel=1e-6, abs=1e-6), name


def test_a_checkpoint_of_an_earlier_version_is_taken_up_as_it_is(tmp_path: Path) -> None:
    common: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    train(tmp_path / "whole", on_fault="drop", **common)
    old = tmp_path / "whole" / "checkpoints" / "checkpoint-2"
    assert sorted(one.name for one in old.parent.iterdir()) == ["checkpoint-2", "checkpoint-4"]
    (old / STATE_FILE).unlink()
    again = train(tmp_path / "again", on_fault="drop", resume=old, **common)
    assert [one["step"] for one in again.run.metrics("train")] == [3, 4]


# ---------------------------------------------------------------------------------------------------- the table


def test_every_fault_is_in_the_table_and_in_the_docs() -> None:
    assert set(FAULTS) == set(Fault)
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    for fault in Fault:
        line = next(one for one in page.splitlines() if one.startswith(f"| `{fault}` |"))
        assert describe(f"faults/{fault}") and len(line.split(" | ")) == 4
