"""What the commands share: messages, names, environment keywords, and models by name.

Whatever a person can get wrong comes out as `UsageError`: one message that says what was given, what was wanted and what to do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from agent_gym._names import as_ids, nearest
from agent_gym._names import keyword_names as names_taken

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from agent_gym.runs import RunFolder

__all__ = [
    "Failed",
    "Interrupted",
    "Player",
    "UsageError",
    "baselines_of",
    "check_env_kwargs",
    "console",
    "entry_point",
    "error_console",
    "find_env",
    "keyword_names",
    "load_player",
    "loading",
    "nearest",
    "parse_env_args",
    "parse_pairs",
    "progress_bar",
    "quiet_transformers",
    "reach_hub",
    "resolve_model",
    "run_of_model",
    "splits_of",
    "user_mistakes",
    "what_to_play",
]

SCRIPTED = ("expert", "random")
_HUB_TIMEOUT = 5.0
_TINY = 5_000_000
"""Parameters below which one thread is faster than several; the embedded run measures itself with one, and sums come out to the same bit."""


class UsageError(Exception):
    """A mistake in the command or in a file that it names. Shown without a traceback; exit status 2."""


class Failed(Exception):
    """A run that could not go on, for a reason that the message gives. Exit status 1."""


class Interrupted(Exception):
    """Ctrl-C after which something is left that can go on; the message says how."""


def console() -> Console:
    """Return a console on the standard output.

    Returns:
        A rich console that is 120 columns wide where the output is no terminal, and raises BrokenPipeError when its reader has gone.
    """
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:  # rich's own ends the process with status 1
            raise BrokenPipeError

    return Screen(soft_wrap=False, width=None if sys.stdout.isatty() else 120)


def error_console() -> Console:
    """Return a console on the standard error.

    Returns:
        A rich console.
    """
    from rich.console import Console

    return Console(stderr=True)


@contextlib.contextmanager
def user_mistakes(*more: type[Exception]) -> Iterator[None]:
    """Turn the errors by which the library refuses settings into `UsageError`.

    Args:
        more: further kinds of errors that mean the same here.

    Yields:
        Nothing, for `with`.

    Raises:
        UsageError: in place of such an error, with its text.
    """
    import gymnasium

    from agent_gym.runs import RunFolderError

    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if not isinstance(error, (ValueError, ImportError, OSError, MemoryError, RunFolderError, gymnasium.error.Error, *more)):
            raise
        raise UsageError(str(error) or type(error).__name__) from error


# ---------------------------------------------------------------------------------------------------- environments


def find_env(env_id: str) -> str:
    """Check that an environment of this id is registered.

    Args:
        env_id: "Namespace/Name-v0"; "module:Namespace/Name-v0" for one that a module of yours registers; "module:Class" for a class of yours. Modules
            of the current folder are found.

    Returns:
        The id.

    Raises:
        UsageError: for an unknown id or module, with the nearest ones.
    """
    import gymnasium

    import agent_gym  # noqa: F401  # registers the ids
    from agent_gym.registration import registered_id

    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        name = registered_id(env_id)
    except (ImportError, ValueError) as error:  # "" is no module's name
        raise UsageError(f"{env_id!r} could not be found: {error}") from error
    if name not in gymnasium.registry:
        from agent_gym.registration import ENVIRONMENTS

        ours = [entry.id for entry in ENVIRONMENTS]
        hint = nearest(name, ours) or nearest(name, gymnasium.registry)
        raise UsageError(f"there is no environment {name!r}{hint or '; `agent-gym list` shows all'}")
    return name


def entry_point(env_id: str) -> Any:
    """Return the class or function that makes an environment.

    Args:
        env_id: a registered id.

    Returns:
        The class or function.

    Raises:
        UsageError: if it cannot be imported.
    """
    import gymnasium

    creator: Any = gymnasium.spec(env_id).entry_point
    if isinstance(creator, str):
        with user_mistakes():
            creator = gymnasium.envs.registration.load_env_creator(creator)
    return creator


def splits_of(env_id: str) -> tuple[str, ...]:
    """Return the splits that an environment's constructor takes.

    Args:
        env_id: a registered id.

    Returns:
        Their names; none where it takes no `split`.
    """
    names = keyword_names(env_id)
    if names is not None and "split" not in names:
        return ()
    return tuple(getattr(entry_point(env_id), "splits", ()))


def keyword_names(env_id: str) -> list[str] | None:
    """Return the keywords that an environment's constructor takes.

    Args:
        env_id: a registered id.

    Returns:
        Their names; None where the class takes anything.
    """
    return names_taken(entry_point(env_id))


def baselines_of(env_id: str) -> Mapping[str, Callable[[int], Any]]:
    """Return the players without a model that an environment names.

    Args:
        env_id: a registered id.

    Returns:
        Name -> (seed) -> script; see `AgentEnv.baselines`.
    """
    return getattr(entry_point(env_id), "baselines", None) or {}


def check_env_kwargs(env_id: str, given: Mapping[str, Any], *, where: str = "--env-arg") -> None:
    """Check the names of keywords before an environment is made of them.

    Args:
        env_id: a registered id.
        given: the keywords.
        where: they came from, for the message.

    Raises:
        UsageError: for an unknown one, with the nearest.
    """
    known = keyword_names(env_id)
    for name in given:
        if known is not None and name not in known:
            hint = nearest(name, known) or f"; it knows {', '.join(known)}"
            raise UsageError(f"{where}: {env_id} has no keyword {name!r}{hint}")


def parse_pairs(pairs: Sequence[str], *, option: str, example: str) -> dict[str, Any]:
    """Read `NAME=VALUE` pairs.

    Args:
        pairs: the value is JSON where it can be read as JSON, else text.
        option: that they came by, for the message.
        example: of a pair, for the message.

    Returns:
        The values by name.

    Raises:
        UsageError: for a pair without `=`, or a name given twice.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise UsageError(f"{option} wants NAME=VALUE ({option} {example}), not {pair!r}")
        if name in found:
            raise UsageError(f"{option} {name} was given twice")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def parse_env_args(pairs: Sequence[str]) -> dict[str, Any]:
    """Read the keywords of an environment; see `parse_pairs`.

    Args:
        pairs: as `--env-arg` gives them.

    Returns:
        The keywords.

    Raises:
        UsageError: for a pair without `=`, or a name given twice.
    """
    return parse_pairs(pairs, option="--env-arg", example="level=bridge")


# ---------------------------------------------------------------------------------------------------- models


@dataclass
class Player:
    """A policy with what its environments need.

    Attributes:
        name: for the record.
        engine: "scripted", "random", "transformers", or a server's own words ("vllm 0.30.0").
        policy: the policy.
        tokenizer: whose ids it speaks.
        vocab_size: rows of the model's embedding.
        end_of_turn_ids: where the model stops, beyond what the tokenizer says.
        arms: how it can be evaluated: name -> temperature.
        samples: whether its replies are drawn, so that playing a task several times tells more than playing it once.
        run: the run folder that the model lies in, if it does.
    """

    name: str
    engine: str
    policy: Any
    tokenizer: Any
    vocab_size: int
    end_of_turn_ids: tuple[int, ...] = ()
    arms: dict[str, float | None] = field(default_factory=dict)
    samples: bool = True
    run: RunFolder | None = None

    def env_factory(self, env_id: str, env_kwargs: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
        """Return the function that makes a row's environment with this model's tokenizer.

        Args:
            env_id: of the environment.
            env_kwargs: keywords for every environment; a row's own win.

        Returns:
            (row) -> environment.
        """
        from agent_gym.trainers.environments import EnvironmentMaker

        return EnvironmentMaker(
            env_id, tokenizer=self.tokenizer, vocab_size=self.vocab_size, end_of_turn_ids=self.end_of_turn_ids, env_kwargs=env_kwargs
        )


def load_player(
    model: str,
    *,
    tokenizer: str | None = None,
    temperature: float = 1.0,
    seed: int = 0,
    dtype: str = "auto",
    device: str = "auto",
    batch_size: int = 256,
    baselines: Mapping[str, Callable[[int], Any]] | None = None,
    engine: str = "transformers",
    url: str | None = None,
) -> Player:
    """Open what `--model` names.

    Args:
        model: "expert", "random", a baseline of the environment, a folder (a model's, an adapter's, or a run's), or a Hugging Face name.
        tokenizer: folder or name; None takes the model's, or the project's own for players without one.
        temperature: of the sampled arm; 0 is greedy, and leaves the greedy arm alone.
        seed: of the random policy.
        dtype: "auto" (float32 on a CPU, else that of the weights) or a name of torch.
        device: "auto" or a name of torch.
        batch_size: most replies at once.
        baselines: of the environment; see `baselines_of`.
        engine: "transformers", "vllm" or "sglang".
        url: of the server of the last two.

    Returns:
        The policy and what belongs to it.

    Raises:
        UsageError: if it cannot be opened.
    """
    from agent_gym.chat import load_tokenizer

    own = baselines or {}
    if url is not None or engine != "transformers":
        from agent_gym.cli.engines import load_served

        if model in SCRIPTED or model in own:
            raise UsageError(f"--model {model} is no model that a server could compute; leave --engine and --url out")
        return load_served(model, engine, url, tokenizer=tokenizer, temperature=temperature, seed=seed, device=device, dtype=dtype)
    if model in SCRIPTED or model in own:
        from agent_gym.policies import RandomPolicy, ScriptedPolicy

        reach_hub(tokenizer or "default", "tokenizer")
        with user_mistakes():
            opened = load_tokenizer(tokenizer)
        policy: Any = RandomPolicy(seed=seed) if model == "random" else ScriptedPolicy.expert()
        if model not in SCRIPTED:
            policy = ScriptedPolicy(own[model](seed))
        engine = "random" if model == "random" else "scripted"
        return Player(model, engine, policy, opened, len(opened), arms={model: None}, samples=model == "random")
    path, run = resolve_model(model, tuple(own))
    return _load_transformers(path, run, model, tokenizer, temperature, seed, dtype, device, batch_size)


def resolve_model(model: str, baselines: Sequence[str] = (), *, option: str = "--model") -> tuple[str, RunFolder | None]:
    """Find the folder of the weights that a name means.

    Args:
        model: a folder (a run's folder means its last weights), or a Hugging Face name.
        baselines: further names that may have been meant, for the message.
        option: that it came by, for the message.

    Returns:
        Folder or name, and the run that the folder belongs to.

    Raises:
        UsageError: for a path that is not there, or a run without weights.
    """
    from agent_gym.runs import RunFolder

    folder = Path(model)
    if not folder.exists():
        looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1 or "\\" in model
        near = nearest(model, (*SCRIPTED, *baselines)) if "/" not in model else ""
        if looks_like_path or near:
            wanted = "a model's folder, a run's folder, a Hugging Face name, " + ", ".join(f"{name!r}" for name in (*SCRIPTED, *baselines))
            raise UsageError(f"{option} {model!r}: there is no such folder{near or '.'} Wanted: {wanted}")
        return model, None
    run = RunFolder.containing(folder)
    if run is not None and run.path.resolve() == folder.resolve():
        best = run.best_model()
        if best is None:
            raise UsageError(f"{option} {model!r}: this run has no weights yet")
        return str(best), run
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        raise UsageError(f"{option} {model!r}: the folder has no config.json (a model) and no adapter_config.json (a LoRA adapter)")
    return str(folder), run


def reach_hub(name: str, what: str) -> None:
    """Check that a Hugging Face name can be opened, before the library tries for minutes.

    Args:
        name: a folder that is there is left alone.
        what: it is wanted for: "model" or "tokenizer".

    Raises:
        UsageError: if it is neither in the local cache nor in reach.
    """
    if name in ("default", "") or Path(name).exists():
        return
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    file = "config.json" if what == "model" else "tokenizer_config.json"
    try:
        cached = isinstance(try_to_load_from_cache(name, file), str)
    except HFValidationError:
        raise UsageError(f"{what} {name!r}: there is no such folder, and it is no Hugging Face name (owner/name)") from None
    if cached or any(os.environ.get(proxy) for proxy in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return
    host = urlsplit(constants.ENDPOINT)
    try:
        if constants.HF_HUB_OFFLINE:
            raise OSError("HF_HUB_OFFLINE is set")
        socket.create_connection((host.hostname or "", host.port or 443), timeout=_HUB_TIMEOUT).close()
    except OSError as error:
        raise UsageError(
            f"{what} {name!r}: there is no such folder, it is not in the local cache, and {host.hostname} cannot be reached ({error}); give a folder"
        ) from None


def _load_transformers(
    path: str,
    run: RunFolder | None,
    name: str,
    tokenizer: str | None,
    temperature: float,
    seed: int,
    dtype: str,
    device: str,
    batch_size: int,
) -> Player:
    try:
        with loading("torch"):
            import torch
            from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise UsageError(f'a model needs torch: pip install "agentr1-gym[train]" ({error})') from error
    from agent_gym.chat import load_tokenizer
    from agent_gym.policies import TransformersPolicy

    reach_hub(path, "model")
    reach_hub(tokenizer or path, "tokenizer")

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind: Any = dtype
    if dtype == "auto":
        kind = torch.float32 if device == "cpu" else "auto"
    elif not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise UsageError(f"--dtype {dtype!r} is no number format of torch; use auto, float32, bfloat16 or float16")
    with user_mistakes(RuntimeError), quiet_transformers(), error_console().status(f"opening {path} ..."):
        opened = load_tokenizer(tokenizer or path)
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=kind)
        model.to(device).eval()
    rows = int(model.get_input_embeddings().weight.shape[0])
    if device == "cpu" and model.num_parameters() < _TINY:
        torch.set_num_threads(1)
    if len(opened) > rows:
        raise UsageError(f"the tokenizer has {len(opened)} entries, the model's embedding {rows} rows; these two do not belong together")
    ends = as_ids(getattr(model.generation_config, "eos_token_id", None))
    policy = TransformersPolicy(model, tokenizer=opened, max_batch_size=batch_size, seed=seed)
    arms: dict[str, float | None] = {"sampled": temperature, "greedy": 0.0} if temperature > 0 else {"greedy": 0.0}
    return Player(name, "transformers", policy, opened, rows, ends, arms, run=run)


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers' own progress bars of weights out of the output.

    Yields:
        Nothing, for `with`.
    """
    from transformers.utils import logging

    switches: Any = logging
    was_on = switches.is_progress_bar_enabled()
    switches.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            switches.enable_progress_bar()


# ---------------------------------------------------------------------------------------------------- output


def loading(what: str) -> AbstractContextManager[Any]:
    """Return a context that says in a terminal, and nowhere else, that something takes its time.

    Args:
        what: is being loaded.

    Returns:
        The context.
    """
    return error_console().status(f"loading {what} ...")


def progress_bar(*, quiet: bool = False) -> Progress:
    """Return a progress bar on the standard error; a terminal shows it, anything else does not.

    Args:
        quiet: show nothing.

    Returns:
        The bar, to be used in `with`.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = error_console()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        console=screen,
        disable=quiet or not screen.is_terminal,
    )


def run_of_model(args: argparse.Namespace) -> RunFolder | None:
    """Find the run whose folder the model lies in.

    Args:
        args: of a command with ENV and --model.

    Returns:
        The run; None for a player without a model, or a model that belongs to no run.

    Raises:
        UsageError: for an environment or a path that is not there.
    """
    baselines = tuple(baselines_of(find_env(args.env))) if args.env is not None else ()
    if args.engine != "transformers" and not Path(args.model).exists():
        return None  # the server's name of it
    return None if args.model in (*SCRIPTED, *baselines) else resolve_model(args.model, baselines)[1]


def what_to_play(args: argparse.Namespace, run: RunFolder | None, *, evaluated: bool) -> tuple[str, dict[str, Any], Mapping[str, Any]]:
    """Find what the command says is to be played, else what the model's run was trained on.

    Args:
        args: of a command with ENV and --env-arg.
        run: the folder that the model lies in.
        evaluated: with the keywords by which that run was evaluated, such as its held-out split.

    Returns:
        The environment, its keywords, and what else the run's evaluation was made with; empty where the run does not count.

    Raises:
        UsageError: where nothing says which environment.
    """
    given = parse_env_args(args.env_arg)
    if run is not None:
        with user_mistakes():
            config = run.config
        known = config.get("evaluation") or {}
        trained_on = config.get("env_id")
        if trained_on and (args.env is None or args.env == trained_on):
            held_out = (known.get("env_kwargs") or {}) if evaluated else {}
            return find_env(str(trained_on)), {**(config.get("env_kwargs") or {}), **held_out, **given}, known
    if args.env is None:
        raise UsageError(
            f"which environment? `agent-gym {args.command} ENV --model M`; only a model inside a run's folder, or a file of rows (--data FILE), needs no ENV"
        )
    return find_env(args.env), given, {}
