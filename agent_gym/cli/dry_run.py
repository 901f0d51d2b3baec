"""`agent-gym train --dry-run`: everything that can be found out about a run without weights, GPU or vLLM.

It builds the configuration objects, so each of their refusals is applied; opens the tokenizer; makes the environment with it and resets it with
the first and the last row of training and evaluation; plays a few episodes of the expert, where there is one, to measure tokens; and estimates
memory. Whatever would stop the run stops the dry run, with exit status 2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import SCRIPTED, UsageError, reach_hub, resolve_model, splits_of, user_mistakes
from agent_gym.cli.memory import estimate, model_numbers, teacher_memory
from agent_gym.cli.recipe import Recipe
from agent_gym.cli.sample_files import is_sample_file, load_file
from agent_gym.evaluation import EVAL_SEEDS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Checked", "Rows", "build_args", "build_rows", "check", "check_beforehand", "dry_run", "make_maker"]

_EXPERT_EPISODES = 8
DEFAULT_TRAIN_TASKS = 10_000
DEFAULT_EVAL_TASKS = 200
HELD_OUT_SHARE = 10
"""One row in so many is held out where training and evaluation share their rows."""


@dataclass
class Checked:
    """What was found out.

    Attributes:
        recipe: what was checked.
        args: the configuration.
        tokenizer: opened.
        train_rows: of the data set.
        eval_rows: of the evaluation; empty where there is none.
        notes: warnings of the libraries and things that only a real run can check.
        first_prompt: tokens of the first and the last prompt, training and evaluation.
        measured: mean tokens of an expert's episode: all, and sampled; None where there is no expert.
    """

    recipe: Recipe
    args: Any
    tokenizer: Any
    train_rows: list[dict[str, Any]] = field(default_factory=list)
    eval_rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    first_prompt: dict[str, tuple[int, int]] = field(default_factory=dict)
    measured: tuple[float, float] | None = None
    longest: int = 0


def build_args(recipe: Recipe, output_dir: str | Path, *, elsewhere: bool, notes: list[str] | None = None, **extra: Any) -> Any:
    """Build the settings of a recipe's trainer.

    Args:
        recipe: resolved.
        output_dir: where the trainer writes its checkpoints.
        elsewhere: the run will be on other hardware than this: settings that only a GPU knows are left out of the check, with a note.
        notes: gets warnings.
        extra: further keywords.

    Returns:
        The configuration.

    Raises:
        UsageError: for each refused setting.
    """
    import torch

    from agent_gym.trainers.kinds import TRAINERS

    config = TRAINERS[recipe.algorithm].load_config()
    keywords = {**recipe.trainer, "output_dir": str(output_dir), "seed": recipe.seed, **extra}
    keywords.setdefault("report_to", "none")
    if isinstance(keywords.get("deepspeed"), str) and not Path(keywords["deepspeed"]).is_file():
        raise UsageError(f"trainer.deepspeed: there is no file {keywords['deepspeed']!r}")
    if elsewhere:
        if not torch.cuda.is_available():
            keywords["use_cpu"] = True
            for name in ("tf32", "deepspeed", "fsdp", "fsdp_config"):
                if keywords.pop(name, None) and notes is not None:
                    notes.append(f"trainer.{name} can only be checked on the GPU machine itself")
        keywords["per_device_train_batch_size"] = int(keywords.get("per_device_train_batch_size", 8)) * recipe.gpus
    with warnings.catch_warnings(record=True) as caught, user_mistakes(TypeError, RuntimeError, NotImplementedError, AssertionError):
        warnings.simplefilter("always", UserWarning)
        args = config(**keywords)
    if notes is not None:
        notes += [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    return args


def make_maker(
    recipe: Recipe, tokenizer: Any, args: Any, env_kwargs: Mapping[str, Any], vocab_size: int | None = None, ends: Sequence[int] = ()
) -> Any:
    """Return what makes the run's environments, as the trainer does.

    Args:
        recipe: resolved.
        tokenizer: opened.
        args: the configuration.
        env_kwargs: of training or evaluation.
        vocab_size: rows of the embedding; None takes the tokenizer's.
        ends: ids at which the model stops, beyond what the tokenizer says.

    Returns:
        (row) -> environment.
    """
    from agent_gym.trainers.environments import EnvironmentMaker

    settings: dict[str, Any] = {"max_turns": args.max_turns, "max_action_tokens": args.max_completion_length}
    if getattr(args, "chat_template_kwargs", None):
        settings["template_kwargs"] = args.chat_template_kwargs
    return EnvironmentMaker(
        recipe.env_id,
        tokenizer=tokenizer,
        vocab_size=vocab_size or len(tokenizer),
        end_of_turn_ids=ends,
        env_kwargs=env_kwargs,
        settings=settings,
    )


@dataclass(frozen=True)
class Rows:
    """The rows of a run.

    Attributes:
        train: as the trainer takes them.
        eval: the same for evaluation; none where it was switched off.
        note: how the two were kept apart, where that was not a matter of course; else empty.
        first: the number of the first evaluated task of the environment's own, for who evaluates it again.
        place: where the held-out rows of the training file begin.
    """

    train: list[dict[str, Any]]
    eval: list[dict[str, Any]]
    note: str = ""
    first: int = 0
    place: int = 0


def build_rows(recipe: Recipe, make: Callable[..., Any]) -> Rows:
    """Return the rows of training and evaluation, which have none in common.

    Args:
        recipe: resolved.
        make: (row) -> environment, such as from `make_maker`; the row's keywords are those of training or of evaluation.

    Returns:
        The rows.

    Raises:
        UsageError: for a file that cannot be read, an environment that cannot be made, or when nothing is left to train or evaluate on.
    """
    train_file, eval_file = recipe.data.get("train_file"), recipe.data.get("eval_file")
    train_tasks, stated = recipe.data.get("train_tasks"), recipe.data.get("eval_tasks")
    eval_tasks = DEFAULT_EVAL_TASKS if stated is None else int(stated)
    note, first, place = "", 0, 0
    told: list[str] = []
    if train_file is not None:
        train, said = _file_rows(recipe, str(train_file))
        told.append(said)
    else:
        train = _own_rows(recipe, make, recipe.env_kwargs, train_tasks or DEFAULT_TRAIN_TASKS)
    held_out: list[dict[str, Any]] = []
    if eval_tasks == 0:
        pass
    elif eval_file is not None:
        held_out, said = _file_rows(recipe, str(eval_file))
        held_out = held_out[: None if stated is None else eval_tasks]
        told.append(said)
    elif train_file is not None:
        place, note = _held_out_of(train, eval_tasks, str(train_file), "give data.eval_file")
        train, held_out = train[:place], [_as_in_training(recipe, row) for row in train[place:]]
    else:
        splits = splits_of(recipe.env_id)
        first = 0 if splits else EVAL_SEEDS
        held_out = _own_rows(recipe, make, recipe.eval_env_kwargs, eval_tasks, first)
        if _same_tasks(recipe, make, train, held_out):
            what = str(recipe.env_kwargs.get("dataset") or recipe.env_id)
            first, note = _held_out_of(train, eval_tasks, what, "give a data set with a split of its own for evaluation (eval_env_kwargs)")
            train, held_out = train[:first], held_out[first:]
        held_out = held_out[:eval_tasks]
    note = "; ".join(text for text in (*told, note) if text)
    return Rows(train if train_tasks is None else train[: int(train_tasks)], held_out, note, first, place)


def _held_out_of(rows: Sequence[Any], eval_tasks: int, what: str, instead: str) -> tuple[int, str]:
    """Where the held-out rows begin, and what is said of it."""
    count = min(eval_tasks, DEFAULT_EVAL_TASKS, max(1, len(rows) // HELD_OUT_SHARE))
    if len(rows) < 2:
        raise UsageError(
            f"{what} has {len(rows)} rows, and evaluation must be held out of training: {instead}, or evaluate nothing (data.eval_tasks: 0)"
        )
    first = len(rows) - count
    return first, (
        f"{what} is all there is for training and evaluation: its last {count} of {len(rows)} rows are held out for evaluation and not trained on "
        f"({instead} to train on all)"
    )


def _as_in_training(recipe: Recipe, row: dict[str, Any]) -> dict[str, Any]:
    """A row of the training file names its task in the split of training, also when it is evaluated."""
    from agent_gym.trainers.environments import encode_row, read_row

    splits = splits_of(recipe.env_id)
    if row.get("where") or not splits or "split" in (recipe.source.get("eval_env_kwargs") or {}):
        return row
    kwargs = {"split": recipe.env_kwargs.get("split", splits[0]), **read_row(row, recipe.env_id)["env_kwargs"]}
    return encode_row({**row, "env_kwargs": kwargs})


def _own_rows(recipe: Recipe, make: Callable[..., Any], env_kwargs: Mapping[str, Any], wanted: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows of the tasks that the environment brings along: so many from the first on where they are generated, else all."""
    from agent_gym.evaluation import finite_tasks
    from agent_gym.trainers.environments import default_rows

    with user_mistakes(TypeError):
        probe = make({"env_id": recipe.env_id, "env_kwargs": dict(env_kwargs), "seed": None, "options": {}})
        try:
            finite = finite_tasks(probe.unwrapped) is not None
            rows = default_rows(probe, recipe.env_id, env_kwargs, n=wanted, first=0 if finite else first)
        finally:
            probe.close()
    if not rows:
        raise UsageError(f"{recipe.env_id} has no tasks with {dict(env_kwargs)}")
    return rows


def _same_tasks(
    recipe: Recipe, make: Callable[..., Any], train: Sequence[Mapping[str, Any]], held_out: Sequence[Mapping[str, Any]]
) -> bool:
    """Whether both splits of a finite data set hold the same tasks: equally many, with the same first and last prompt."""
    if len(train) != len(held_out) or "options" not in train[0] or "options" not in held_out[0]:
        return False
    return all(_first_prompt(recipe, make, train[place]) == _first_prompt(recipe, make, held_out[place]) for place in (0, -1))


def _first_prompt(recipe: Recipe, make: Callable[..., Any], row: Mapping[str, Any]) -> list[int]:
    from agent_gym.trainers.environments import read_row

    with user_mistakes(TypeError, KeyError, RuntimeError):
        read = read_row(row, recipe.env_id)
        env = make(read)
        try:
            observation, _ = env.reset(seed=read["seed"], options=read["options"] or None)
        finally:
            env.close()
    return [int(one) for one in observation]


def _file_rows(recipe: Recipe, path: str) -> tuple[list[dict[str, Any]], str]:
    """Rows of a file, in the form that Arrow keeps, and what there is to say about them."""
    from agent_gym.data.samples import read_rows
    from agent_gym.trainers.environments import encode_row, read_row

    if is_sample_file(path):
        found, notes = load_file(
            path,
            env=recipe.source.get("env"),
            env_kwargs=recipe.env_kwargs,
            judge=recipe.data.get("judge"),
            allow_functions=bool(recipe.data.get("allow_functions")),
            option="the file",
        )
        with user_mistakes():
            return [encode_row(row) for row in found.rows], "; ".join(notes)
    rows = []
    try:
        for where, row in read_rows(path):
            try:
                rows.append(encode_row(read_row(row, recipe.env_id)))
            except ValueError as error:
                raise UsageError(f"{path}: {where}: {error}") from error
    except (ValueError, ImportError, OSError) as error:
        raise UsageError(f"{path}: {error} (rows are JSON objects: JSON lines, a JSON array, or Parquet)") from error
    if not rows:
        raise UsageError(f"{path} has no rows")
    return rows, ""


def check(recipe: Recipe, output_dir: str | Path = "run") -> Checked:
    """Check a recipe as far as can be without weights.

    Args:
        recipe: resolved.
        output_dir: named in the configuration; nothing is written.

    Returns:
        What was found out.

    Raises:
        UsageError: for whatever would stop the run.
    """
    from agent_gym.chat import load_tokenizer

    notes: list[str] = []
    if recipe.model in SCRIPTED:
        raise UsageError(f"the model {recipe.model!r} cannot be trained; give a model's folder or a Hugging Face name")
    resolve_model(recipe.model)
    args = build_args(recipe, output_dir, elsewhere=True, notes=notes)
    if recipe.lora is not None:
        from peft import LoraConfig

        with user_mistakes(TypeError):
            LoraConfig(**recipe.lora)
    try:
        reach_hub(recipe.tokenizer, "tokenizer")
        tokenizer = load_tokenizer(recipe.tokenizer)
    except (ValueError, UsageError) as error:
        raise UsageError(
            f"{str(error).rstrip('.')}. For a dry run another folder with the same tokenizer will do: --set tokenizer=FOLDER"
        ) from error
    found = Checked(recipe, args, tokenizer, notes=notes)
    make = make_maker(recipe, tokenizer, args, recipe.env_kwargs)
    rows = build_rows(recipe, make)
    found.train_rows, found.eval_rows = rows.train, rows.eval
    notes += [rows.note] if rows.note else []
    if args.replay_files:
        notes.append(_replayed(args, tokenizer))
    if getattr(args, "teacher", None):
        with user_mistakes():
            notes.append(check_beforehand(args.teacher, tokenizer))
    found.first_prompt["train"] = _reset_ends(recipe, make, rows.train)
    found.measured, found.longest = _measure(recipe, make, rows.train)
    if rows.eval:
        found.first_prompt["eval"] = _reset_ends(recipe, make_maker(recipe, tokenizer, args, recipe.eval_env_kwargs), rows.eval)
    dtype = str((args.model_init_kwargs or {}).get("dtype", "float32")) if not isinstance(args.model_init_kwargs, str) else ""
    if recipe.lora is None and dtype in ("bfloat16", "float16") and args.learning_rate < 1e-4:
        notes.append(
            f"model_init_kwargs.dtype {dtype} with learning_rate {args.learning_rate:g}: such small steps are rounded away in weights of 16 bits; "
            "load float32 (bf16: true still computes in bfloat16), or train a lora"
        )
    if args.use_vllm:
        notes.append(_engine_note(recipe, args))
    return found


def _engine_note(recipe: Recipe, args: Any) -> str:
    """What the run will want of its engine, in words; an engine that it would refuse is refused here."""
    from agent_gym.trainers.engine import check_engine_settings

    with user_mistakes():
        check_engine_settings(args, processes=recipe.gpus)
    if args.vllm_mode == "server":
        return "use_vllm: the run asks a vLLM server for its replies and gives it the weights of each update; it has to be started first (docs/vllm.md)"
    return "use_vllm: the run starts a vLLM engine in its own process (extra vllm)"


def check_beforehand(teacher: str, tokenizer: Any) -> str:
    """Check what can be known of a teacher without weights and without its server.

    Args:
        teacher: folder, name or address.
        tokenizer: the student's.

    Returns:
        What there is to say of it.

    Raises:
        ValueError: if it reads other ids.
        UsageError: if it cannot be opened.
    """
    from agent_gym.trainers.distill_settings import is_address
    from agent_gym.trainers.teacher import check_teacher

    if is_address(teacher):
        return f"the teacher at {teacher} is asked for its vocabulary when the run begins"
    reach_hub(teacher, "model")
    check_teacher(teacher, tokenizer)
    return f"the teacher {teacher} reads the ids of the student"


def _replayed(args: Any, tokenizer: Any) -> str:
    """What the run will replay, in words; a file that cannot be replayed would stop it."""
    from agent_gym.chat import tokenizer_fingerprint
    from agent_gym.trainers.advantages import get_advantage
    from agent_gym.trainers.replay import ReplayBuffer

    with user_mistakes():
        buffer = ReplayBuffer.from_files(
            args.replay_files,
            fingerprint=tokenizer_fingerprint(tokenizer),
            correction=args.replay_correction,
            max_age=args.replay_max_age,
            base_version=args.replay_base_version,
            group_relative=get_advantage(args.advantage).group_relative,
        )
    return buffer.describe(args.replay_ratio)


def _reset_ends(recipe: Recipe, make: Callable[..., Any], rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Reset with the first and the last row; the lengths of their prompts."""
    from agent_gym.trainers.environments import read_row

    lengths = []
    for number in dict.fromkeys((0, len(rows) - 1)):
        try:
            with user_mistakes(TypeError, KeyError, RuntimeError):
                row = read_row(rows[number], recipe.env_id)
                env = make(row)
                try:
                    _, info = env.reset(seed=row["seed"], options=row["options"] or None)
                    lengths.append(int(info.get("observation_length", 0)))
                finally:
                    env.close()
        except UsageError as error:
            raise UsageError(f"row {number} of {len(rows)}: {error}") from error
    return lengths[0], lengths[-1]


def _measure(recipe: Recipe, make: Callable[..., Any], rows: Sequence[Mapping[str, Any]]) -> tuple[tuple[float, float] | None, int]:
    """Tokens of the expert's episodes, all and sampled, and the longest possible one."""
    from agent_gym.flows import run_rows
    from agent_gym.policies import ScriptedPolicy
    from agent_gym.report.transcript import contexts_of
    from agent_gym.trainers.environments import read_row

    env = make(read_row(rows[0], recipe.env_id))
    try:
        longest = int(env.observation_space.shape[0])
        row = read_row(rows[0], recipe.env_id)
        env.reset(seed=row["seed"], options=row["options"] or None)
        ask = getattr(env.unwrapped, "expert", None)
        has_expert = ask is not None and ask() is not None
    finally:
        env.close()
    if not has_expert:
        return None, longest
    chosen = [read_row(row, recipe.env_id) for row in rows[:_EXPERT_EPISODES]]
    result = run_rows(chosen, ScriptedPolicy.expert(), env_factory=make, max_concurrency=4)
    every = [sum(context.length for context in contexts_of(episode)) for episode in result.trajectories]
    sampled = [sum(len(step.action_ids) for step in episode.steps) for episode in result.trajectories]
    return (sum(every) / len(every), sum(sampled) / len(sampled)), longest


def dry_run(recipe: Recipe, screen: Console) -> None:
    """Check a recipe and print what was found.

    Args:
        recipe: resolved.
        screen: to print on.

    Raises:
        UsageError: for whatever would stop the run.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    found = check(recipe)
    args = found.args
    per_update = args.per_device_train_batch_size * args.gradient_accumulation_steps
    episodes = args.per_device_train_batch_size * args.steps_per_generation
    table = Table(box=SIMPLE_HEAD, show_header=False, title=Text(f"dry run: {recipe.env_id}, {recipe.model}"), title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")

    def line(name: str, value: str) -> None:
        table.add_row(name, Text(value))

    line("tokenizer", f"{recipe.tokenizer}: {len(found.tokenizer):,} entries")
    for which, rows in (("train", found.train_rows), ("eval", found.eval_rows)):
        if rows:
            first, last = found.first_prompt[which]
            line(f"{which} rows", f"{len(rows):,}; the first prompt has {first:,} tokens, the last {last:,}")
        else:
            line(f"{which} rows", "none")
    groups = episodes // args.num_generations
    line(
        "episodes per generation",
        f"{episodes:,}: {groups:,} tasks x {args.num_generations}, on {recipe.gpus} GPU{'s' if recipe.gpus > 1 else ''}",
    )
    line("episodes per update", f"{per_update:,}" + (f"; {episodes // per_update} updates per generation" if per_update < episodes else ""))
    if found.measured is not None:
        every, sampled = found.measured
        line(
            "tokens per episode",
            f"{every:,.0f}, of which {sampled:,.0f} sampled (mean of the expert's on the first {min(_EXPERT_EPISODES, len(found.train_rows))} rows)",
        )
        line("tokens per update", f"{every * per_update:,.0f}, of which {sampled * per_update:,.0f} trained (by that mean)")
    line("tokens per episode, most", f"{found.longest:,} in a context, {args.max_completion_length:,} per reply")
    screen.print(table)
    _print_memory(found, screen)
    for note in found.notes:
        screen.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)
    screen.print("dry run passed", style="green")


def _print_memory(found: Checked, screen: Console) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    recipe, args = found.recipe, found.args
    numbers = model_numbers(recipe.model, recipe.lora, recipe.parameters, len(found.tokenizer))
    if numbers is None:
        screen.print(Text("memory: unknown; no config.json at hand, and the recipe states no `parameters`", style="yellow"))
        return
    init = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    per_device = args.per_device_train_batch_size // recipe.gpus
    context = int(found.measured[0]) if found.measured is not None else found.longest
    tokens = args.max_tokens_per_microbatch or per_device * min(found.longest + args.max_completion_length, 2 * context)
    checkpointing = recipe.trainer.get("gradient_checkpointing", recipe.trainer.get("activation_checkpointing"))
    lines = estimate(
        numbers,
        dtype=str(init.get("dtype", init.get("torch_dtype", "float32"))),
        sharding=recipe.sharding,
        gpus=recipe.gpus,
        tokens=tokens,
        checkpointing=True if checkpointing is None else bool(checkpointing),
        reference_model=bool(args.beta) and recipe.lora is None,
        critic=bool(args.has_critic),
        teacher=teacher_memory(args.teacher, args.teacher_dtype) if getattr(args, "teacher", None) else None,
        vllm_share=args.vllm_gpu_memory_utilization if args.use_vllm and args.vllm_mode == "colocate" else (0.0 if args.use_vllm else None),
        gpu_memory_gb=recipe.gpu_memory_gb,
        context_tokens=context,
        episodes=min(128, per_device * args.steps_per_generation),
    )
    table = Table(box=SIMPLE_HEAD, header_style="bold", title=Text(f"memory per GPU, estimated ({numbers.source})"), title_justify="left")
    table.add_column("")
    table.add_column("GiB", justify="right")
    table.add_column("rests on", style="dim")
    for name, value, why in lines:
        table.add_row(name, f"{value:.1f}", Text(why), style="bold" if name == "sum" else None)
    screen.print(table)
    total = lines[-1][1]
    if recipe.gpu_memory_gb is not None and total > recipe.gpu_memory_gb:
        found.notes.append(
            f"the estimate of {total:.0f} GiB is above the stated {recipe.gpu_memory_gb:g} of a GPU; shard over more, lower max_tokens_per_microbatch, or use lora"
        )
