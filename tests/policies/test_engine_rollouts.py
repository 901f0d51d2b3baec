"""Whole episodes over a server (a stand-in, see `engine_servers`): several processes' worth of them at once, through the flows and the command line."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers import require

torch = require("torch")
transformers = require("transformers")

from engine_servers import FakeSGLang, FakeVLLM, serving  # noqa: E402
from small_envs import Parrot  # noqa: E402

import agent_gym  # noqa: E402
from agent_gym.chat import load_tokenizer  # noqa: E402
from agent_gym.cli import main  # noqa: E402
from agent_gym.cli.parser import build_parser  # noqa: E402
from agent_gym.flows import run_rows  # noqa: E402
from agent_gym.policies import EngineError, Sampling, SGLangPolicy, TransformersPolicy, VLLMPolicy  # noqa: E402
from agent_gym.trajectory import StopReason  # noqa: E402

CONTEXT = 512


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(5)
    config = transformers.Qwen3Config(
        vocab_size=len(load_tokenizer(None)), hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, initializer_range=0.1, max_position_embeddings=CONTEXT, tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(config).eval()


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def server(request: pytest.FixtureRequest, model: Any) -> Iterator[Any]:
    with serving({"vllm": FakeVLLM, "sglang": FakeSGLang}[request.param](model, max_model_len=CONTEXT)) as made:
        yield made


def play(policy: Any, rank: int, rows: int, turns: int, **more: Any) -> list[Any]:
    found = run_rows(
        [{"seed": 100 * rank + number} for number in range(rows)],
        policy,
        sampling=Sampling(max_tokens=5 + rank),
        env_factory=lambda row: Parrot(max_turns=turns),
        seed=rank,
        **more,
    )
    return list(found.trajectories)


def ids(trajectories: list[Any]) -> list[Any]:
    return [[(step.observation_ids.tolist(), step.action_ids.tolist()) for step in one.steps] for one in trajectories]


def test_ranks_with_unequal_episodes_and_turns_get_their_own_replies_and_do_not_wait_for_each_other(server: Any, model: Any) -> None:
    """P12: a server that answers whole batches of all ranks together mixes their replies, or hangs, once they have unequal numbers of live episodes."""
    shapes = {0: (2, 1), 1: (7, 4), 2: (3, 6)}  # rank -> episodes, turns
    kind = VLLMPolicy if isinstance(server, FakeVLLM) else SGLangPolicy
    policies = {rank: kind(server.url) for rank in shapes}
    with ThreadPoolExecutor(3) as threads:
        jobs = {rank: threads.submit(play, policies[rank], rank, *shape) for rank, shape in shapes.items()}
        together = {rank: job.result(240) for rank, job in jobs.items()}
    for rank, (episodes, turns) in shapes.items():
        assert [len(one) for one in together[rank]] == [turns] * episodes
        assert policies[rank].counts["requests"] == episodes * turns
        policies[rank].close()
        if kind is VLLMPolicy:  # whose seeds are those of the policy in this process
            alone = play(TransformersPolicy(model, pad_id=0), rank, episodes, turns)
            assert ids(together[rank]) == ids(alone)
    assert len({str(one) for trajectories in together.values() for one in ids(trajectories)}) == 12


def test_no_part_of_the_package_generates_through_trls_server_client() -> None:
    forbidden = {"vllm_generation", "VLLMGeneration", "VLLMClient", "_generate_single_turn"}
    for path in Path(agent_gym.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {getattr(node, "attr", getattr(node, "id", getattr(node, "name", None))) for node in ast.walk(tree)}
        assert not names & forbidden, path


def test_an_episode_whose_context_is_full_ends_by_the_context_limit(server: Any) -> None:
    kind = VLLMPolicy if isinstance(server, FakeVLLM) else SGLangPolicy
    policy = kind(server.url, max_context=80)
    with pytest.warns(UserWarning, match="leaves no room"):
        found = play(policy, 0, 2, 30)
    assert {one.stop_reason for one in found} == {StopReason.CONTEXT_LIMIT}
    assert all(one.steps[-1].finish_reason == "context" and not len(one.steps[-1].action_ids) for one in found)
    policy.close()


def test_a_server_that_dies_ends_the_run_and_no_episode_is_dropped_for_it(model: Any) -> None:
    with serving(FakeVLLM(model, max_model_len=CONTEXT)) as made:
        made.faults.extend([""] * 5 + ["dead"] * 50)
        policy = VLLMPolicy(made.url, retries=2, retry_delay=0.0)
        with pytest.raises(EngineError, match="tried 3 times"):
            play(policy, 0, 3, 4, on_fault="drop")
        policy.close()


# ------------------------------------------------------------------------------------------------ command line


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def engine_of(server: Any) -> tuple[str, str]:
    return ("vllm", "tiny") if isinstance(server, FakeVLLM) else ("sglang", "/models/tiny")


def test_eval_and_rollout_play_a_model_of_a_server(server: Any, named: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine, name = engine_of(server)
    common = [
        "AgentR1/FrozenLake-v0",
        "--model",
        name,
        "--tokenizer",
        "default",
        "--engine",
        engine,
        "--url",
        server.url,
        "--max-tokens",
        "4",
    ]
    common += ["--env-arg", "max_turns=2", "--env-arg", "max_observation_tokens=500"]
    assert main(["eval", *common, "--tasks", "2", "--output-dir", "out", "--save-episodes"]) == 0, capsys.readouterr().err
    told = json.loads((named / "out" / "evaluation.json").read_text())
    version = "vllm 0.30.0" if engine == "vllm" else "sglang 0.5.23"
    assert told["engine"] == version and told["model"] == name and told["asked"]["url"] == server.url
    assert set(told["arms"]) == {"sampled", "greedy"}
    assert main(["rollout", *common, "--episodes", "2", "--out", "episodes.jsonl"]) == 0, capsys.readouterr().err
    episodes = [json.loads(line) for line in (named / "episodes.jsonl").read_text().splitlines()]
    assert len(episodes) >= 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--url": None}, "wants both"),
        ({"--engine": None}, "wants both"),
        ({"--model": "expert"}, "leave --engine and --url out"),
        ({"--device": "cpu"}, "the server's own matter"),
        ({"--model": "other"}, "serves"),
        ({"--url": "http://127.0.0.1:9"}, "see that it runs"),
        ({"--engine": "vlm"}, "did you mean 'vllm'?"),
    ],
)
def test_mistakes_with_a_server_are_said_in_a_line(
    change: dict[str, str | None], words: str, model: Any, named: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_gym.policies.engine.EnginePolicy._insist", _once)
    with serving(FakeVLLM(model, max_model_len=CONTEXT)) as made:
        options: dict[str, str | None] = {"--model": "tiny", "--tokenizer": "default", "--engine": "vllm", "--url": made.url} | change
        words_of = [part for name, value in options.items() if value is not None for part in (name, value)]
        assert main(["eval", "AgentR1/FrozenLake-v0", *words_of, "--tasks", "1"]) == 2
    said = capsys.readouterr().err
    assert words in " ".join(said.split()) and "Traceback" not in said, said


async def _once(self: Any, attempt: Any) -> Any:
    return await attempt()


def test_every_command_of_the_page_parses_and_names_what_there_is() -> None:
    page = (Path(agent_gym.__file__).parents[1] / "docs" / "vllm.md").read_text(encoding="utf-8")
    commands = [line.split()[1:] for line in page.replace("\\\n", " ").splitlines() if line.startswith("agent-gym ")]
    assert [command[0] for command in commands] == ["eval", "rollout", "eval", "train"]
    for command in commands:
        args = build_parser().parse_args(command)
        if command[0] == "train":
            assert "trainer.use_vllm=true" in args.overrides and "trainer.vllm_mode=server" in args.overrides
        else:
            assert args.engine in ("vllm", "sglang") and args.url
