"""docs/train-4b-on-8-gpus.md: each command is read by the parser of the program that it starts, and each configuration by accelerate's own reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from helpers import require
from pages import commands

require("trl")

from accelerate.commands.config.config_args import load_config_from_file  # noqa: E402
from accelerate.commands.launch import launch_command_parser  # noqa: E402
from packaging.requirements import Requirement  # noqa: E402

from agent_gym.cli.parser import build_parser  # noqa: E402
from agent_gym.cli.recipe import read_yaml  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "train-4b-on-8-gpus.md").read_text(encoding="utf-8")
CONFIGURATIONS = sorted((ROOT / "recipes" / "accelerate").glob("*.yaml"))


COMMANDS = commands("\n".join(re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)))


def named(program: str) -> list[list[str]]:
    return [words[1:] for words in COMMANDS if Path(words[0]).name == program]


def test_every_command_is_one_that_is_read_below() -> None:
    assert {Path(words[0]).name for words in COMMANDS} == {"python", "pip", "vllm", "agent-gym", "accelerate"}
    assert len(named("accelerate")) == 4 and len(named("pip")) == 2 and len(named("vllm")) == 1


@pytest.mark.parametrize("words", named("accelerate"), ids=range(len(named("accelerate"))))
def test_what_is_launched_is_read_by_accelerate_and_then_by_agent_gym(words: list[str]) -> None:
    assert words[0] == "launch"
    read = launch_command_parser().parse_args(words[1:])
    assert read.module and read.training_script == "agent_gym.cli"
    ours = build_parser().parse_args(read.training_script_args)
    assert ours.output_dir, "several processes need one folder"
    if ours.config:
        assert read_yaml(str(ROOT / ours.config))["gpus"] == 4
    if read.config_file:
        assert load_config_from_file(str(ROOT / read.config_file)).num_processes == 4
    else:
        assert read.num_processes == 2 and read.multi_gpu and not read.cpu


@pytest.mark.parametrize("words", named("agent-gym"), ids=range(len(named("agent-gym"))))
def test_our_own_commands_are_read(words: list[str]) -> None:
    assert build_parser().parse_args(words).config


@pytest.mark.parametrize("words", named("pip"), ids=range(len(named("pip"))))
def test_what_is_installed_exists(words: list[str]) -> None:
    import tomllib

    assert words[0] == "install" and len(words) == 2
    wanted = Requirement(words[1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if wanted.name == project["name"]:
        assert wanted.extras <= set(project["optional-dependencies"])
    else:
        (own,) = project["optional-dependencies"][wanted.name]
        assert Requirement(own).specifier == wanted.specifier


def test_the_server_has_the_recipes_model_and_context() -> None:
    (words,) = named("vllm")
    recipe = read_yaml(str(ROOT / "recipes" / "hotpotqa.yaml"))
    assert words[:2] == ["serve", recipe["model"]]
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert int(given["--max-model-len"]) == recipe["trainer"]["vllm_max_model_length"]
    assert recipe["trainer"]["vllm_server_base_url"] == f"http://{given['--host']}:{given['--port']}"
    assert given["--logprobs-mode"] == "processed_logprobs"


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.stem)
def test_accelerate_reads_each_configuration_and_takes_every_key(path: Path) -> None:
    read = load_config_from_file(str(path))
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    options = {action.dest for action in launch_command_parser()._actions}
    for part in ("fsdp_config", "deepspeed_config"):
        assert getattr(read, part) == content.get(part, {})
        taken = {key if key in options else f"fsdp_{key}" for key in content.get(part, {})}
        assert taken <= options, taken - options
    assert read.num_processes == 4 and read.mixed_precision == "bf16"
    assert f"recipes/accelerate/{path.name}" in PAGE


@pytest.mark.parametrize(
    ("name", "sharding"), [("ddp", "none"), ("fsdp", "fsdp"), ("deepspeed-zero2", "zero2"), ("deepspeed-zero3", "zero3")]
)
def test_the_memory_table_is_that_of_the_dry_run(
    name: str, sharding: str, qwen3_path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agent_gym.cli import main

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "200")
    words = ["train", "--config", str(ROOT / "recipes" / "hotpotqa.yaml"), "--dry-run", "--set", f"tokenizer={qwen3_path}"]
    words += [] if sharding == "fsdp" else ["--set", f"sharding={sharding}", "--set", "trainer.max_tokens_per_microbatch=null"]
    assert main(words) == 0
    shown = dict(re.findall(r"^ *(weights|gradients|AdamW states|activations|logits|sum) +([\d.]+)", capsys.readouterr().out, re.MULTILINE))
    row = next(
        line
        for line in PAGE.splitlines()
        if line.startswith({"none": "| nothing", "fsdp": "| FSDP", "zero2": "| ZeRO-2", "zero3": "| ZeRO-3"}[sharding])
    )
    said = [float(cell) for cell in row.strip("| ").split("|")[1:]]
    got = [float(shown[one]) for one in ("weights", "gradients", "AdamW states")]
    got += [float(shown["activations"]) + float(shown["logits"]), float(shown["sum"])]
    assert said == pytest.approx(got, abs=0.6), (said, got)
