"""Recipes: each passes its dry run; a misspelt key, a refused value and a missing file do not."""

import json
from pathlib import Path

import pytest
import yaml

from agent_gym.chat import load_tokenizer
from agent_gym.cli import main
from agent_gym.cli.common import UsageError
from agent_gym.cli.dry_run import Rows, build_rows
from agent_gym.cli.memory import ModelNumbers, estimate, model_numbers
from agent_gym.cli.recipe import apply_overrides, read_yaml, resolve
from agent_gym.trainers.environments import EnvironmentMaker

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.yaml"))
SMALL = {"env": "AgentR1/HotpotQA-v0", "env_kwargs": {"level": "bridge"}, "model": "some/model", "tokenizer": "default"}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def write(content: object, name: str = "r.yaml") -> str:
    Path(name).write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return name


def test_there_are_recipes() -> None:
    assert RECIPES


def few_games(path: Path) -> list[str]:
    """Settings with which TextWorld makes a few games: each takes seconds."""
    return ["--set", "env_kwargs.num_games=4", "--set", "eval_env_kwargs.num_games=4"] if path.stem == "textworld" else []


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_passes_its_dry_run_with_the_tokenizer_of_its_model(
    path: Path, qwen3_path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--config", str(path), "--dry-run", "--set", f"tokenizer={qwen3_path}", *few_games(path)]) == 0
    shown = capsys.readouterr().out
    for part in (
        "dry run passed",
        "train rows",
        "eval rows",
        "episodes per update",
        "tokens per update",
        "memory per GPU, estimated",
        "AdamW states",
    ):
        assert part in shown, part
    assert not list(Path.cwd().iterdir()), "a dry run writes nothing"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_passes_its_dry_run_with_the_default_tokenizer(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", str(path), "--dry-run", "--set", "tokenizer=default", *few_games(path)]) == 0
    assert "dry run passed" in capsys.readouterr().out


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_key_of_a_recipe_matters(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Misspelling any one key, at any depth, is an error that names the right one."""
    content = read_yaml(path)
    for section, value in content.items():
        keys = [(section, key) for key in value] if isinstance(value, dict) and section != "eval_env_kwargs" else []
        for place in [(section,), *keys]:
            broken = {key: dict(item) if isinstance(item, dict) else item for key, item in content.items()}
            holder = broken if len(place) == 1 else broken[section]
            wrong = f"{place[-1]}x"
            holder[wrong] = holder.pop(place[-1])
            if place == ("model",):
                continue  # without it the message is another one
            with pytest.raises(UsageError, match=place[-1]) as caught:
                resolve(broken)
            assert wrong in str(caught.value)


def test_a_dry_run_says_what_the_run_wants_of_its_engine_and_refuses_what_the_run_would(capsys: pytest.CaptureFixture[str]) -> None:
    server = write({**SMALL, "trainer": {"use_vllm": True, "vllm_mode": "server"}}, "server.yaml")
    assert main(["train", "--config", server, "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "asks a vLLM server for its replies" in shown and "vLLM engine" not in shown
    inside = write({**SMALL, "trainer": {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3}}, "inside.yaml")
    assert main(["train", "--config", inside, "--dry-run"]) == 0
    assert "starts a vLLM engine in its own process" in " ".join(capsys.readouterr().out.split())
    assert main(["train", "--config", inside, "--dry-run", "--set", "gpus=2"]) == 2
    assert "an engine in each of them is not supported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainr": {}}, "did you mean 'trainer'?"),
        ({"trainer": {"learning_rte": 1e-6}}, "did you mean 'learning_rate'?"),
        ({"trainer": {"vllm_gpu_memory_utilisation": 0.3}}, "did you mean 'vllm_gpu_memory_utilization'?"),
        ({"trainer": {"learning_rate": "fast"}}, "trainer.learning_rate: wanted a number"),
        ({"trainer": {"bf16": "yes please"}}, "trainer.bf16"),
        ({"trainer": {"num_generations": 2.5}}, "trainer.num_generations"),
        ({"trainer": {"learning_rate": None}}, "trainer.learning_rate"),
        ({"trainer": {"output_dir": "x"}}, "--output-dir"),
        ({"trainer": {"loss_type": "grpo"}}, "loss_type"),
        ({"trainer": {"top_p": 0.9}}, "top_p"),
        ({"trainer": {"temperature": 0.0}}, "temperature"),
        ({"trainer": {"advantage": "grop"}}, "grop"),
        ({"trainer": {"mask_truncated_completions": True}}, "mask_truncated_steps"),
        ({"trainer": {"num_generations": 7}}, "7"),
        ({"trainer": {"deepspeed": "missing.json"}}, "missing.json"),
        ({"trainer": [1]}, "trainer"),
        ({"env": "AgentR1/HotpotQA-v1"}, "AgentR1/HotpotQA-v0"),
        ({"env_kwargs": {"levl": "bridge"}}, "did you mean 'level'?"),
        ({"env_kwargs": {"level": "brigde"}}, "brigde"),
        ({"env_kwargs": {"dataset": "missing.json"}}, "missing.json"),
        ({"env_kwargs": {"tokenizer": "x"}}, "key `tokenizer`"),
        ({"eval_env_kwargs": {"splt": "test"}}, "did you mean 'split'?"),
        ({"eval_env_kwargs": {"split": "tset"}}, "tset"),
        ({"env_kwargs": {"level": "bridge", "max_observation_tokens": 20}}, "max_observation_tokens"),
        ({"data": {"train_taks": 3}}, "did you mean 'train_tasks'?"),
        ({"data": {"train_file": "missing.jsonl"}}, "missing.jsonl"),
        ({"data": {"train_tasks": 0}}, "data.train_tasks"),
        ({"flow": "agent_env_lop"}, "did you mean 'agent_env_loop'?"),
        ({"lora": {"rank": 8}}, "lora: unknown key 'rank'"),
        ({"lora": {"r": "eight"}}, "lora.r"),
        ({"sharding": "zero4"}, "did you mean 'zero"),
        ({"gpus": 0}, "gpus"),
        ({"model": None}, "no model"),
        ({"model": "./nowhere"}, "no such folder"),
        ({"model": "expert"}, "cannot be trained"),
        ({"tokenizer": "./nowhere"}, "--set tokenizer=FOLDER"),
        ({"seed": -1}, "seed"),
    ],
)  # fmt: skip
def test_what_would_stop_a_run_stops_its_dry_run(change: dict[str, object], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", write({**SMALL, **change}), "--dry-run"]) == 2
    said = capsys.readouterr()
    assert message in " ".join(said.err.split()), said.err
    assert "Traceback" not in said.err and "dry run passed" not in said.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainer: {a: 1\n", "no YAML"),
        ("- a\n- b\n", "a recipe is a mapping"),
        ("", "a recipe is a mapping"),
        ("model: a\nmodel: b\n", "'model' stands twice"),
        ("model: a\ntrainer:\n  beta: 0.0\n  beta: 0.1\n", "'beta' stands twice"),
        ("model: !!python/object/apply:os.getcwd []\n", "no YAML"),
        ("\x00\x01", "no YAML"),
    ],
)
def test_a_file_that_is_no_recipe(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", write(text), "--dry-run"]) == 2
    assert message in capsys.readouterr().err


def test_a_mistyped_file_name(capsys: pytest.CaptureFixture[str]) -> None:
    write(SMALL, "hotpotqa.yaml")
    assert main(["train", "--config", "hotpotqa.yml", "--dry-run"]) == 2
    assert "did you mean 'hotpotqa.yaml'?" in capsys.readouterr().err


def test_numbers_are_read_as_they_are_meant() -> None:
    content = read_yaml(write("model: m\ntrainer: {learning_rate: 1e-6, beta: 5E-4, epsilon: .2, max_steps: 3, run_name: 1e3x}\n"))
    assert content["trainer"] == {"learning_rate": 1e-6, "beta": 5e-4, "epsilon": 0.2, "max_steps": 3, "run_name": "1e3x"}
    assert resolve({**SMALL, "trainer": {"learning_rate": "2e-6", "weight_decay": 0}}).trainer == {
        "learning_rate": 2e-6,
        "weight_decay": 0.0,
    }


def test_the_word_no_is_a_strategy_and_no_truth_value() -> None:
    trainer = {"save_strategy": False, "eval_strategy": False, "bf16": False}  # as YAML 1.1 reads `no`
    assert resolve({"model": "m", "trainer": trainer}).trainer == {"save_strategy": "no", "eval_strategy": "no", "bf16": False}
    with pytest.raises(UsageError, match=r"trainer\.loss_type"):
        resolve({"model": "m", "trainer": {"loss_type": False}})


def test_overrides_reach_any_depth_and_leave_the_recipe_alone() -> None:
    content = {"trainer": {"beta": 0.0}}
    changed = apply_overrides(
        content, ["trainer.beta=1e-3", "env_kwargs.top_k=5", "model=a/b", "lora=null", "trainer.model_init_kwargs.dtype=float32"]
    )
    assert changed == {
        "trainer": {"beta": 1e-3, "model_init_kwargs": {"dtype": "float32"}},
        "env_kwargs": {"top_k": 5},
        "model": "a/b",
        "lora": None,
    }
    assert content == {"trainer": {"beta": 0.0}}
    for wrong in ("beta", "=1", "trainer.beta.x=1", "a=[1"):
        with pytest.raises(UsageError, match="--set"):
            apply_overrides(content, [wrong])


def test_evaluation_is_held_out_without_a_word_about_it() -> None:
    assert resolve(SMALL).eval_env_kwargs == {"level": "bridge", "split": "validation"}
    assert resolve({**SMALL, "env_kwargs": {"split": "validation"}}).eval_env_kwargs == {"split": "test"}
    assert resolve({**SMALL, "eval_env_kwargs": {"split": "train"}}).eval_env_kwargs == {"level": "bridge", "split": "train"}


def test_rows_of_a_file_are_read_first_and_last(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"env_id": "AgentR1/HotpotQA-v0", "env_kwargs": json.dumps({"level": "bridge"}), "seed": 1}
    Path("rows.jsonl").write_text("\n".join(json.dumps({**row, "seed": seed}) for seed in range(5)))
    recipe = write({**SMALL, "data": {"train_file": "rows.jsonl", "eval_tasks": 0}})
    assert main(["train", "--config", recipe, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "5; the first prompt has" in shown and "eval rows" in shown and "none" in shown
    for broken, message in (
        ('{"seed": 1}\n{"seed"', "line 2"),
        ("[1]\n", "JSON object"),
        ("", "no rows"),
        ('{"seed": 1}\n{"env_id": "X-v0"}', "row 1 of 2"),
    ):
        Path("rows.jsonl").write_text(broken)
        assert main(["train", "--config", recipe, "--dry-run"]) == 2
        assert message in capsys.readouterr().err


def planned(content: dict[str, object]) -> Rows:
    tokenizer = load_tokenizer("default")
    recipe = resolve({**SMALL, **content})
    return build_rows(recipe, EnvironmentMaker(recipe.env_id, tokenizer=tokenizer, vocab_size=len(tokenizer)))


def official(count: int) -> str:
    rows = [
        {
            "_id": str(n),
            "question": f"Who is {n}?",
            "answer": "Ann",
            "context": [["A", ["Ann."]]],
            "supporting_facts": [["A", 0]],
            "type": "x",
        }
        for n in range(count)
    ]
    Path("official.json").write_text(json.dumps(rows))
    return "official.json"


def indices(rows: list[dict[str, object]]) -> list[int]:
    return [json.loads(str(row["options"]))["index"] for row in rows]


def test_training_and_evaluation_share_no_row_of_a_single_data_set() -> None:
    """One file has the same rows under every split; so its last tenth is kept out of training."""
    found = planned({"env_kwargs": {"dataset": official(30)}})
    assert (indices(found.train), indices(found.eval), found.first) == (list(range(27)), [27, 28, 29], 27)
    assert "last 3 of 30 rows are held out" in found.note
    assert indices(planned({"env_kwargs": {"dataset": official(30)}, "data": {"eval_tasks": 2, "train_tasks": 9}}).eval) == [28, 29]
    everything = planned({"env_kwargs": {"dataset": official(30)}, "data": {"eval_tasks": 0}})
    assert (len(everything.train), everything.eval, everything.note) == (30, [], "")
    with pytest.raises(UsageError, match="eval_tasks: 0"):
        planned({"env_kwargs": {"dataset": official(1)}})
    generated = planned({"data": {"train_tasks": 5, "eval_tasks": 4}})
    assert (len(generated.train), len(generated.eval), generated.note, generated.first) == (5, 4, "", 0)
    assert json.loads(str(generated.eval[0]["env_kwargs"]))["split"] == "validation"


def test_a_training_file_without_one_for_evaluation_is_split() -> None:
    Path("rows.jsonl").write_text("\n".join(json.dumps({"seed": seed}) for seed in range(20)))
    found = planned({"data": {"train_file": "rows.jsonl"}})
    assert [row["seed"] for row in found.train] == list(range(18)) and [row["seed"] for row in found.eval] == [18, 19]
    assert {json.loads(str(row["env_kwargs"]))["split"] for row in found.eval} == {"train"}, "a seed names its task in its own split"
    Path("other.jsonl").write_text(json.dumps({"seed": 3}))
    both = planned({"data": {"train_file": "rows.jsonl", "eval_file": "other.jsonl"}})
    assert (len(both.train), len(both.eval), both.note) == (20, 1, "")
    with pytest.raises(UsageError, match="nothing would be held out"):
        planned({"data": {"train_file": "rows.jsonl", "eval_file": "./rows.jsonl"}})


def test_a_published_file_is_read_as_rows_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write({**SMALL, "env_kwargs": {}, "data": {"train_file": official(11)}})
    assert main(["train", "--config", recipe, "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "train rows 10; the first prompt" in shown
        and "eval rows 1; the first prompt" in shown
        and "last 1 of 11 rows are held out" in shown
    )
    rows = planned({"env_kwargs": {}, "data": {"train_file": "official.json"}}).train
    assert json.loads(str(rows[4]["options"]))["task"]["question"] == "Who is 4?"


def test_an_environment_without_splits_passes_its_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = write({"env": "FrozenLake-v1", "model": "some/model", "tokenizer": "default", "data": {"train_tasks": 6, "eval_tasks": 3}})
    assert main(["train", "--config", recipe, "--dry-run"]) == 0
    assert "dry run passed" in capsys.readouterr().out
    found = planned({"env": "FrozenLake-v1", "env_kwargs": {}, "data": {"train_tasks": 2, "eval_tasks": 2}})
    assert [row["env_kwargs"] for row in (*found.train, *found.eval)] == ["{}"] * 4
    assert [row["seed"] for row in (*found.train, *found.eval)] == [0, 1, 1_000_000, 1_000_001]


def test_the_number_of_gpus_counts_for_the_batch(capsys: pytest.CaptureFixture[str]) -> None:
    """One GPU's batch holds no whole group, four do; what is checked is the run that was stated."""
    trainer = {"per_device_train_batch_size": 2, "num_generations": 8}
    assert main(["train", "--config", write({**SMALL, "trainer": trainer, "gpus": 4}), "--dry-run"]) == 0
    assert "1 tasks x 8, on 4 GPUs" in capsys.readouterr().out
    assert main(["train", "--config", write({**SMALL, "trainer": trainer, "gpus": 1}), "--dry-run"]) == 2


# ---------------------------------------------------------------------------------------------------- memory


def numbers() -> ModelNumbers:
    return ModelNumbers(4e9, 4e9, 36, 2560, 2048, 150_000, "test")


def gib(**changes: object) -> dict[str, float]:
    settings: dict[str, object] = {
        "dtype": "float32", "sharding": "fsdp", "gpus": 8, "tokens": 16384, "checkpointing": True, "reference_model": False, "vllm_share": None,
        "gpu_memory_gb": 80.0, "context_tokens": 1000, "episodes": 64,
    }  # fmt: skip
    return {name: value for name, value, _ in estimate(numbers(), **{**settings, **changes})}  # type: ignore[arg-type]


def test_the_estimate_adds_up_and_follows_its_settings() -> None:
    plain = gib()
    assert plain["weights"] == pytest.approx(4e9 * 4 / 8 / 2**30)
    assert plain["AdamW states"] == pytest.approx(2 * plain["gradients"])
    assert plain["sum"] == pytest.approx(sum(value for name, value in plain.items() if name != "sum"))
    assert gib(dtype="bfloat16")["weights"] == pytest.approx(plain["weights"] / 2)
    assert gib(sharding="none")["weights"] == pytest.approx(plain["weights"] * 8)
    assert gib(sharding="zero2")["weights"] == gib(sharding="none")["weights"] and gib(sharding="zero2")["gradients"] == plain["gradients"]
    assert gib(checkpointing=False)["activations"] > 5 * plain["activations"]
    assert gib(vllm_share=0.35)["vLLM engine"] == pytest.approx(28.0) and "cache of replies" not in gib(vllm_share=0.35)
    assert "reference model" in gib(reference_model=True)


def test_parameters_are_counted_from_config_json_without_weights(tmp_path: Path) -> None:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8
    )
    config.save_pretrained(tmp_path / "m")
    counted = model_numbers(str(tmp_path / "m"), None, 5e9, 100)
    assert counted is not None and counted.parameters == sum(one.numel() for one in Qwen3ForCausalLM(config).parameters())
    assert (counted.layers, counted.hidden, counted.kv_width) == (2, 32, 32) and "config.json" in counted.source
    lora = model_numbers(str(tmp_path / "m"), {"r": 2, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}, None, 100)
    assert lora is not None and 0 < lora.trainable < counted.parameters / 2


def test_without_config_json_the_statement_is_used_and_said() -> None:
    stated = model_numbers("no/such-model", None, 4e9, 100)
    assert stated is not None and stated.parameters == 4e9 and "guessed" in stated.source and 20 < stated.layers < 50
    assert model_numbers("no/such-model", None, None, 100) is None
