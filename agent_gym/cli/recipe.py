"""Recipes: a training run as a YAML file, read so that a mistake cannot pass.

    env: AgentR1/HotpotQA-v0            id of the environment
    env_kwargs: {level: full}           its keywords, for training
    eval_env_kwargs: {split: test}      what differs for evaluation; without a split, one that is not trained on
    model: Qwen/Qwen3-4B                folder or name
    tokenizer: ...                      default: the model's
    parameters: 4.0e9                   of the model; only for the memory estimate where its config.json is not at hand
    gpus: 8                             so many, for the estimate; what really runs is what `accelerate launch` starts
    gpu_memory_gb: 80
    sharding: fsdp                      "none", "zero2", "zero3" or "fsdp": what accelerate is configured for, for the estimate
    data: {train_file: rows.jsonl, train_tasks: 10000, eval_tasks: 200}
                                        rows: JSON lines, a JSON array or Parquet. Without an eval_file, the last tenth of the train_file (200
                                        rows and eval_tasks at most) is held out for evaluation. So are the last tasks of a data set that
                                        has the same tasks in the split of evaluation, such as a single file; eval_tasks: 0 evaluates nothing.
                                        Rows of the Agent-R1 sample schema say their environment themselves (`env` may be left out), and their
                                        reward; `judge` (address or registered name, or url and model) and `allow_functions: true` are for them
    flow: agent_env_loop                how episodes are played
    algorithm: grpo                     or ppo, which has a critic; or distill, which has a teacher
    trainer: {...}                      every field of AgentGRPOConfig; of AgentPPOConfig with ppo; of AgentDistillConfig with distill, where
                                        `teacher` is a folder, a run's folder, a Hugging Face name, or the address of a vLLM server
    lora: {r: 16, ...}                  every field of peft.LoraConfig; leave it out to train all weights

Every key is looked up where it belongs: in this table, in the environment's constructor, in the dataclasses of the trainer's settings and LoraConfig. An
unknown one is an error that names the nearest; so is one that stands twice, or a value of another type. YAML 1.1 reads `1e-6` as text; here it is
the number that was meant.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from agent_gym.cli.common import (
    SCRIPTED,
    UsageError,
    check_env_kwargs,
    find_env,
    loading,
    nearest,
    resolve_model,
    splits_of,
    user_mistakes,
)
from agent_gym.cli.sample_files import first_environment, is_sample_file
from agent_gym.trainers.distill_settings import is_address
from agent_gym.trainers.kinds import TRAINERS

__all__ = ["DATA_KEYS", "RECIPE_KEYS", "Recipe", "apply_overrides", "check_fields", "find_teacher", "read_yaml", "resolve"]

RECIPE_KEYS = (
    "env", "env_kwargs", "eval_env_kwargs", "model", "tokenizer", "parameters", "gpus", "gpu_memory_gb", "sharding", "data", "flow", "algorithm",
    "trainer", "lora", "seed", "output_dir",
)  # fmt: skip
DATA_KEYS = ("train_file", "train_tasks", "eval_file", "eval_tasks", "judge", "allow_functions")
SHARDINGS = ("none", "zero2", "zero3", "fsdp")
_SECTIONS = ("env_kwargs", "eval_env_kwargs", "data", "trainer", "lora")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+")


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses a key that stands twice and knows `1e-6` for a number."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Make a dictionary."""
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^(?:{_FLOAT.pattern})$"), list("-+0123456789."))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a recipe file.

    Args:
        path: of the file.

    Returns:
        Its content.

    Raises:
        UsageError: for a file that is missing, is no YAML, or holds no mapping.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = nearest(file.name, [one.name for one in file.parent.glob("*.y*ml")]) if file.parent.is_dir() else ""
        raise UsageError(f"there is no recipe {file}{near}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the recipe {file} could not be read: {error}") from error
    try:
        content = yaml.load(text, Loader=_Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UsageError(f"{file} holds no keys; a recipe is a mapping (env:, model:, trainer:, ...)")
    return content


def apply_overrides(content: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return the content with `--set` applied.

    Args:
        content: of a recipe.
        overrides: KEY=VALUE; the key is dotted, the value is YAML.

    Returns:
        A copy.

    Raises:
        UsageError: for a text without `=`, a value that is no YAML, or a key below something that has none.
    """
    result = {key: dict(value) if isinstance(value, dict) else value for key, value in content.items()}
    for text in overrides:
        key, equals, value_text = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set wants KEY=VALUE (--set trainer.learning_rate=1e-6), not {text!r}")
        try:
            value = yaml.load(value_text, Loader=_Loader)  # a SafeLoader
        except yaml.YAMLError as error:
            raise UsageError(f"--set {key}: {value_text!r} is no YAML value: {' '.join(str(error).split())}") from error
        *above, last = key.strip().split(".")
        place = result
        for name in above:
            below = place.setdefault(name, {})
            if below is None:
                below = place[name] = {}
            if not isinstance(below, dict):
                raise UsageError(f"--set {key}: {name!r} is no section, it holds {below!r}")
            place = below
        place[last] = value
    return result


@dataclass
class Recipe:
    """A run in which every name has been looked up.

    Attributes:
        env_id: of the environment.
        env_kwargs: its keywords for training.
        eval_env_kwargs: its keywords for evaluation: those of training and what differs.
        model: folder or name.
        tokenizer: folder or name.
        algorithm: key of `agent_gym.trainers.kinds.TRAINERS`.
        trainer: keywords of its settings.
        lora: keywords of LoraConfig, or None.
        data: see `DATA_KEYS`.
        flow: name of the flow, or None.
        parameters: of the model, if stated.
        gpus: stated for the estimate.
        gpu_memory_gb: stated for the estimate.
        sharding: stated for the estimate.
        seed: of the run.
        output_dir: of the run, if stated.
        source: the content itself, for config.yaml.
    """

    env_id: str
    model: str
    tokenizer: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    eval_env_kwargs: dict[str, Any] = field(default_factory=dict)
    trainer: dict[str, Any] = field(default_factory=dict)
    lora: dict[str, Any] | None = None
    data: dict[str, Any] = field(default_factory=dict)
    flow: str | None = None
    algorithm: str = "grpo"
    parameters: float | None = None
    gpus: int = 1
    gpu_memory_gb: float | None = None
    sharding: str = "none"
    seed: int = 0
    output_dir: str | None = None
    source: dict[str, Any] = field(default_factory=dict)


def resolve(content: Mapping[str, Any]) -> Recipe:
    """Look up every key and check every type.

    Args:
        content: of a recipe, overrides applied.

    Returns:
        The recipe.

    Raises:
        UsageError: for whatever does not belong, with the nearest that does.
    """
    _known("recipe", content, RECIPE_KEYS)
    for section in _SECTIONS:
        if content.get(section) is not None and not isinstance(content[section], Mapping):
            raise UsageError(f"{section}: wanted keys and values, not {content[section]!r}")
    for name in ("env", "model", "tokenizer", "flow", "algorithm", "output_dir", "sharding"):
        if content.get(name) is not None and not isinstance(content[name], str):
            raise UsageError(f"{name}: wanted text, not {content[name]!r}")
    if not content.get("model"):
        raise UsageError("the recipe names no model (model: Qwen/Qwen3-4B, or --model)")
    data = _data(dict(content.get("data") or {}))
    own_env = data.get("train_file") is not None and is_sample_file(data["train_file"])  # rows that say their environment themselves
    env_id = (
        first_environment(data["train_file"]) if own_env and not content.get("env") else str(content.get("env") or "AgentR1/HotpotQA-v0")
    )
    env_id = find_env(env_id)
    env_kwargs, eval_kwargs = dict(content.get("env_kwargs") or {}), dict(content.get("eval_env_kwargs") or {})
    check_env_kwargs(env_id, env_kwargs, where="env_kwargs")
    check_env_kwargs(env_id, eval_kwargs, where="eval_env_kwargs")
    for section, keywords in (("env_kwargs", env_kwargs), ("eval_env_kwargs", eval_kwargs)):
        for name in ("tokenizer", "vocab_size", "end_of_turn_ids"):
            if name in keywords:
                raise UsageError(
                    f"{section}.{name}: the trainer gives the environment the model's own; use the key `tokenizer` of the recipe"
                )
    sharding = str(content.get("sharding") or "none")
    if sharding not in SHARDINGS:
        raise UsageError(f"sharding: {sharding!r} is unknown{nearest(sharding, SHARDINGS)}; choose from {', '.join(SHARDINGS)}")
    algorithm = str(content.get("algorithm") or "grpo")
    if algorithm not in TRAINERS:
        raise UsageError(f"algorithm: {algorithm!r} is unknown{nearest(algorithm, TRAINERS)}; choose from {', '.join(TRAINERS)}")
    lora = content.get("lora")
    return Recipe(
        env_id=env_id,
        model=str(content["model"]),
        tokenizer=str(content.get("tokenizer") or content["model"]),
        env_kwargs=env_kwargs,
        eval_env_kwargs=_held_out(env_id, {**env_kwargs, **eval_kwargs}, own_env or "split" in eval_kwargs),
        trainer=_trainer(dict(content.get("trainer") or {}), algorithm),
        lora=_lora(dict(lora)) if lora is not None else None,
        data=data,
        flow=_flow(content.get("flow")),
        algorithm=algorithm,
        parameters=_number("parameters", content.get("parameters")),
        gpus=_whole("gpus", content.get("gpus"), least=1) or 1,
        gpu_memory_gb=_number("gpu_memory_gb", content.get("gpu_memory_gb")),
        sharding=sharding,
        seed=_whole("seed", content.get("seed"), least=0) or 0,
        output_dir=content.get("output_dir"),
        source=dict(content),
    )


def _data(data: dict[str, Any]) -> dict[str, Any]:
    _known("data", data, DATA_KEYS)
    for name in ("train_tasks", "eval_tasks"):
        _whole(f"data.{name}", data.get(name), least=1 if name == "train_tasks" else 0)
    for name in ("train_file", "eval_file"):
        if data.get(name) is not None and not Path(str(data[name])).is_file():
            raise UsageError(f"data.{name}: there is no file {data[name]!r}")
    files = [Path(str(data[name])).resolve() for name in ("train_file", "eval_file") if data.get(name) is not None]
    if len(files) == 2 and files[0] == files[1]:
        raise UsageError(
            "data.eval_file is the train_file: nothing would be held out; leave eval_file out, and the last rows are held out of training"
        )
    judge = data.get("judge")
    if judge is not None and not (isinstance(judge, str) or (isinstance(judge, Mapping) and isinstance(judge.get("url"), str))):
        raise UsageError(f"data.judge: wanted an address, a registered name, or url and model, not {judge!r}")
    if not isinstance(data.get("allow_functions", False), bool):
        raise UsageError(f"data.allow_functions: wanted true or false, not {data['allow_functions']!r}")
    return data


def _held_out(env_id: str, keywords: dict[str, Any], chosen: bool) -> dict[str, Any]:
    """Evaluation on the training split is never what was meant: without a word about it, another split of the environment is taken."""
    splits = splits_of(env_id)
    if not chosen and len(splits) > 1:
        trained_on = keywords.get("split", "train")
        keywords["split"] = next(
            (one for one in ("validation", "valid_unseen", "test", *splits) if one in splits and one != trained_on), trained_on
        )
    return keywords


def _known(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if str(name) not in known:
            hint = nearest(str(name), known) or f"; known: {', '.join(known)}"
            raise UsageError(f"{where}: unknown key {name!r}{hint}")


def _whole(where: str, value: Any, *, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or int(value) != value or value < least:
        raise UsageError(f"{where}: wanted a whole number of at least {least}, not {value!r}")
    return int(value)


def _number(where: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise UsageError(f"{where}: wanted a number above 0, not {value!r}")
    return float(value)


def _flow(name: Any) -> str | None:
    if name is None:
        return None
    from agent_gym.flows import flow_names

    if name not in flow_names():
        raise UsageError(f"flow: {name!r} is not registered{nearest(str(name), flow_names())}; known: {', '.join(flow_names())}")
    return str(name)


def _trainer(given: dict[str, Any], algorithm: str) -> dict[str, Any]:
    with user_mistakes(), loading("torch and TRL"):
        config = TRAINERS[algorithm].load_config()
    owned = {"output_dir": "it is the run's folder (--output-dir)", "seed": "it is the recipe's own key (seed, or --seed)"}
    for name, why in owned.items():
        if name in given:
            raise UsageError(f"trainer.{name}: {why}")
    fields = check_fields("trainer", given, config)
    if TRAINERS[algorithm].teacher:
        fields["teacher"] = find_teacher(fields.get("teacher"), "trainer.teacher")
    return fields


def find_teacher(name: str | None, option: str) -> str:
    """Find what a teacher's name means.

    Args:
        name: an address, a folder (a run's folder means its last weights), or a Hugging Face name; None where none was given.
        option: that it came by, for the message.

    Returns:
        The address, the whole path of the folder, or the name.

    Raises:
        UsageError: for a path that is not there, a run without weights, or where there is none.
    """
    if not name:
        raise UsageError(
            f"algorithm distill: which model is learned from? --teacher FOLDER or ADDRESS ({option}): a model's folder, a run's folder, a Hugging Face "
            "name, or the address of a vLLM server"
        )
    if is_address(name):
        return name
    if name in SCRIPTED:
        raise UsageError(f"{option}: {name!r} is no model, and tells no log-probabilities; give a model's folder or a Hugging Face name")
    found, _ = resolve_model(name, option=option)
    return str(Path(found).resolve()) if Path(found).exists() else found


def _lora(given: dict[str, Any]) -> dict[str, Any]:
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise UsageError(f'lora: needs peft: pip install "agentr1-gym[train]" ({error})') from error
    given.setdefault("task_type", "CAUSAL_LM")
    return check_fields("lora", given, LoraConfig)


def check_fields(where: str, given: dict[str, Any], cls: Any) -> dict[str, Any]:
    """Look each key up among a dataclass's fields, and bring its value into the field's type.

    Args:
        where: the section, for messages.
        given: keys and values.
        cls: the dataclass.

    Returns:
        The keywords.

    Raises:
        UsageError: for an unknown key, with the nearest, or a value of another type.
    """
    fields = {one.name: one for one in dataclasses.fields(cls) if one.init}
    _known(where, given, list(fields))
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):  # a library's own annotations may name what is not installed
        hints = {}
    return {name: _fit(f"{where}.{name}", value, hints.get(name, Any)) for name, value in given.items()}


def _fit(where: str, value: Any, hint: Any) -> Any:
    """Return the value if it fits the annotation; text that is a number becomes one where a number is wanted, and `no` is text where "no" is a choice."""
    options = _options(hint)
    if value is False and bool not in options and any(_is_choice(option) and _is("no", option) for option in options):
        return "no"  # YAML 1.1 reads the word `no`, a strategy of transformers, as false
    nested = next((option for option in options if dataclasses.is_dataclass(option)), None)
    if nested is not None and isinstance(value, Mapping):
        return check_fields(where, dict(value), nested)
    if value is None:
        if type(None) in options or Any in options:
            return None
        raise UsageError(f"{where}: wanted {_words(options)}, not nothing; leave the key out for its default")
    for option in options:
        if _is(value, option):
            return float(value) if option is float and not isinstance(value, str) else value
    if isinstance(value, str) and float in options and re.fullmatch(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?", value):
        return float(value)
    raise UsageError(f"{where}: wanted {_words(options)}, not {value!r}")


def _options(hint: Any) -> list[Any]:
    """The alternatives of an annotation."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return [option for part in typing.get_args(hint) for option in _options(part)]
    if origin is typing.Annotated:
        return _options(typing.get_args(hint)[0])
    return [hint]


def _is_choice(option: Any) -> bool:
    return typing.get_origin(option) is typing.Literal or (isinstance(option, type) and issubclass(option, Enum))


def _is(value: Any, option: Any) -> bool:
    origin = typing.get_origin(option)
    if option is Any or isinstance(option, (str, typing.TypeVar)):
        return True
    if origin is typing.Literal:
        return value in typing.get_args(option)
    plain = origin or option
    if plain is bool:
        return isinstance(value, bool)
    if plain is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if plain is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if not isinstance(plain, type):
        return True
    if issubclass(plain, Enum):
        return value in [member.value for member in plain]
    if plain is set:
        return isinstance(value, (list, set))
    return isinstance(value, plain)


def _words(options: Sequence[Any]) -> str:
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "keys and values",
        type(None): "nothing",
    }
    words = []
    for option in options:
        if typing.get_origin(option) is typing.Literal:
            words += [repr(one) for one in typing.get_args(option)]
        elif isinstance(option, type) and issubclass(option, Enum):
            words += [repr(member.value) for member in option][:12]
        else:
            words.append(names.get(typing.get_origin(option) or option, getattr(option, "__name__", str(option))))
    return " or ".join(dict.fromkeys(words))
