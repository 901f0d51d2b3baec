"""From a row of the sample schema to what is played: which flow, which environment, which reward.

A row of the Agent-R1 schema (arXiv 2511.14460) drives everything by itself:

- `agent_name` names the flow: a registered one, or one of Agent-R1's and verl's own, which are known here (`single_step_agent`, `hotpotqa_agent`,
  `paper_search_agent`, ...) and mean an environment too.
- the environment is the row's `env_kwargs.env_id` (any registered id), else its `env_kwargs.env_type` (Agent-R1's names, such as "tool"), else what
  its `agent_name` means, else the one that the caller names, else what its `data_source` is known for.
- what else stands in `env_kwargs` are keywords of that environment. `tools_kwargs` go to the task, where tools read them (`context.task`), so that
  rows whose tools differ in nothing else share environments.
- `reward_model.style` names the reward (see `agent_gym.envs.row_rewards`).

`TABLE` (`sample_table`) holds what is known, one entry per environment; `route_samples` reads a whole file. Rows whose reward needs a gold answer that they lack can
be played and not scored: they are refused, with the reason, wherever rewards count. Nothing that a row says imports code, opens a file or names an
address to send text to, unless the caller allows it (`outside`).
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import isclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gymnasium

from agent_gym._names import keyword_names, nearest
from agent_gym.core import AgentEnv
from agent_gym.data.faults import missing_field
from agent_gym.data.samples import Sample, is_sample, message_text, parse_sample, plain_json, read_rows
from agent_gym.envs.row_rewards import RowRewards, style_of
from agent_gym.flows.base import flow_names, row_members, row_seed
from agent_gym.flows.sample_table import TABLE, Known, SampleError, outside
from agent_gym.registration import ENVIRONMENTS, register_all, registered_id

__all__ = [
    "TABLE",
    "Known",
    "Refused",
    "Route",
    "RoutedRows",
    "SampleError",
    "environment_of",
    "has_samples",
    "iter_routes",
    "route_sample",
    "route_samples",
]

DEFAULT_FLOW = "agent_env_loop"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_NOT_THE_ROWS = ("tokenizer", "vocab_size", "end_of_turn_ids", "judge", "allow_functions", "markers")
"""Keywords that belong to who plays the rows: the model's own, and what data must not decide."""
_RENAMED: Mapping[str, str] = MappingProxyType({"max_steps": "max_turns", "format": "tool_format"})
_ROLES = ("system", "developer", "user", "assistant", "tool")
_OPTIONS = ("options", "seed", "env_id", "group_id")


@dataclass(frozen=True, slots=True)
class Route:
    """How a row is played.

    Attributes:
        where: file and row.
        flow: the name of its flow.
        env_id: the id of its environment.
        env_kwargs: the environment's keywords.
        options: of the reset.
        seed: of the reset.
        reward: in words.
        unscored: why nothing can be rewarded; "" where rewards can be given.
        sample: the row itself.
        task_field: the row's field that says which task of the environment it is; "" where the row itself is the task.
    """

    where: str
    flow: str
    env_id: str
    env_kwargs: Mapping[str, Any]
    options: Mapping[str, Any]
    seed: int
    reward: str
    unscored: str
    sample: Sample
    task_field: str = ""

    def row(self) -> dict[str, Any]:
        """Return the row that `run_rows`, `evaluate` and the trainers play.

        Returns:
            A new dictionary.
        """
        return {
            "env_id": self.env_id,
            "env_kwargs": dict(self.env_kwargs),
            "seed": self.seed,
            "options": dict(self.options),
            "agent_name": self.flow,
            "where": self.where,
            "task_field": self.task_field,
        }


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that is left out where rewards count.

    Attributes:
        where: file and row.
        reason: names the field.
    """

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """The rows of a source.

    Attributes:
        routes: of the rows that are played, in order.
        refused: the others.
    """

    routes: tuple[Route, ...]
    refused: tuple[Refused, ...] = ()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows as `run_rows`, `evaluate` and the trainers play them."""
        return [route.row() for route in self.routes]


@lru_cache(maxsize=256)
def _creator(env_id: str) -> Any:
    creator: Any = gymnasium.spec(env_id).entry_point
    return gymnasium.envs.registration.load_env_creator(creator) if isinstance(creator, str) else creator


@lru_cache(maxsize=256)
def _keywords(env_id: str) -> tuple[str, ...] | None:
    names = keyword_names(_creator(env_id))
    return None if names is None else tuple(names)


def _entries() -> list[Known]:
    register_all()
    return [entry for entry in TABLE if entry.env_id in gymnasium.registry]


def _entry_of(env_id: str) -> Known:
    return next((entry for entry in _entries() if entry.env_id == env_id), Known(env_id, scores_gold=False))


def route_sample(
    sample: Sample,
    *,
    env_id: str | None = None,
    seed: int = 0,
    judge: Any = None,
    allow_functions: bool = False,
    rewards: RowRewards | None = None,
    env_kwargs: Mapping[str, Any] = _NOTHING,
) -> Route:
    """Decide how a row is played.

    Args:
        sample: the row.
        env_id: of the environment where the row itself names none.
        seed: of the row, where it has none of its own.
        judge: of rows with the style "model"; see `agent_gym.envs.judge.as_judge`.
        allow_functions: whether rows are trusted: they may name code to import, files and addresses.
        rewards: made from these two, for who routes many rows.
        env_kwargs: that every environment gets; the row's own go before them.

    Returns:
        The route.

    Raises:
        SampleError: if the row names what is not known, or what data must not name; the text names file, row and field.
    """
    flow, implied = _flow(sample)
    chosen, field_name = _environment(sample, implied, env_id, allow_functions)
    entry = _entry_of(chosen)
    keywords, tools_kwargs = _env_kwargs(
        sample, chosen, implied if implied is not None and implied[0].env_id == chosen else None, field_name, allow_functions
    )
    style = _style(sample)
    scored_by_row = style != "rule"
    takes_rows = _takes_rows(chosen, entry)
    if takes_rows:
        _check_prompt(sample)
    if scored_by_row:
        if not takes_rows or not entry.answers or "judge" not in (_keywords(chosen) or ()):
            raise SampleError(
                f"{sample.where}: field 'reward_model.style' is {style!r}, and {chosen} gives rewards of its own alone (it has no answers to judge); "
                "use the style 'rule'"
            )
        try:
            (rewards or RowRewards(judge, allow_functions)).of(_task(sample, {}), sample.where)
        except ValueError as error:
            raise SampleError(str(error)) from error
        if style == "model" and judge is not None and "judge" not in sample.reward_model:
            keywords["judge"] = judge
        if style == "function" and allow_functions:
            keywords["allow_functions"] = True
    own = _members(sample, "options")
    task_field = ""
    if own:
        options, task_field = own, "options"
    elif not takes_rows and entry.task is None:
        options = {}
    elif entry.task is None:
        options = {"task": _task(sample, tools_kwargs)}
    else:
        options, task_field = entry.task(sample), entry.task_field
    if not allow_functions:
        _check_options(sample, options, task_field)
    unscored = ""
    free = entry.gold_free is not None and entry.gold_free({**env_kwargs, **keywords})
    if style == "rule" and takes_rows and entry.scores_gold and not free and not any(answer.strip() for answer in sample.answers):
        what = "null" if sample.ground_truth is None else "empty"
        unscored = f"field 'reward_model.ground_truth' is {what}: there is no gold answer, so nothing can be rewarded"
        if entry.without_gold:
            keywords = {**{name: value for name, value in entry.without_gold.items() if name not in env_kwargs}, **keywords}
            instead = " ".join(f"--env-arg {name}={value}" for name, value in entry.without_gold.items())
            unscored += f" ({instead} rewards without one)"
    try:
        given = row_seed(sample.other.get("seed"))
    except ValueError as error:
        raise SampleError(f"{sample.where}: field 'seed': {error}") from error
    return Route(
        where=sample.where,
        flow=flow,
        env_id=chosen,
        env_kwargs=keywords,
        options=options,
        seed=seed if given is None else given,
        reward=_reward_words(sample, style, entry, {**env_kwargs, **keywords}),
        unscored=unscored,
        sample=sample,
        task_field=task_field,
    )


def environment_of(sample: Sample, env_id: str | None = None) -> str:
    """Return the id of a row's environment.

    Args:
        sample: the row.
        env_id: where the row itself names none.

    Returns:
        The id.

    Raises:
        SampleError: if nothing names one.
    """
    return _environment(sample, _flow(sample)[1], env_id, False)[0]


def _style(sample: Sample) -> str:
    """Return the style of a row's reward; an unknown one is a `SampleError`."""
    try:
        return style_of(sample)
    except ValueError as error:
        raise SampleError(str(error)) from error


def _members(sample: Sample, name: str) -> dict[str, Any]:
    """Return a member of the row that is a dictionary or JSON text; a malformed one is a `SampleError`."""
    try:
        return row_members(name, sample.other.get(name))
    except ValueError as error:
        raise SampleError(f"{sample.where}: field {name!r}: {error}") from error


def _flow(sample: Sample) -> tuple[str, tuple[Known, Mapping[str, Any]] | None]:
    """The flow, and the environment that its name implies."""
    name = sample.agent_name
    for entry in _entries():
        if name and name in entry.agents:
            return DEFAULT_FLOW, (entry, entry.agents[name])
    if not name:
        return DEFAULT_FLOW, None
    names = flow_names()
    if name not in names:
        known = [*names, *(agent for entry in _entries() for agent in entry.agents)]
        raise SampleError(
            f"{sample.where}: field 'agent_name' is {name!r}, and no flow is registered under it{nearest(name, known)}; known: {', '.join(known)}"
        )
    return name, None


def _environment(
    sample: Sample, implied: tuple[Known, Mapping[str, Any]] | None, env_id: str | None, allow_functions: bool
) -> tuple[str, str]:
    """The id of the environment, and the field that named it."""
    for name, value in (("env_kwargs.env_id", sample.env_kwargs.get("env_id")), ("env_id", sample.other.get("env_id"))):
        if value:
            return _registered(sample, name, value, allow_functions), name
    kind = sample.env_kwargs.get("env_type")
    if kind:
        return _of_type(sample, kind), "env_kwargs.env_type"
    if implied is not None:
        return implied[0].env_id, "agent_name"
    if env_id:
        return env_id, ""
    for entry in _entries():
        if sample.data_source and sample.data_source in entry.sources:
            return entry.env_id, "data_source"
    raise SampleError(
        f"{sample.where}: field 'env_kwargs' names no environment (env_type or env_id), and neither agent_name {sample.agent_name!r} nor data_source "
        f"{sample.data_source!r} is known for one; name the environment yourself (ENV, env=)"
    )


def _registered(sample: Sample, name: str, value: Any, allow_functions: bool) -> str:
    place = f"{sample.where}: field {name!r}"
    if not isinstance(value, str):
        raise SampleError(f"{place} must be the id of an environment, not {value!r:.100}")
    register_all()
    if ":" in value:
        if not allow_functions:
            raise SampleError(
                f"{place} is {value!r}, which would import a module: code is imported for a row only where you say so (--allow-functions, "
                "allow_functions=True)"
            )
        try:
            value = registered_id(value)
        except (ImportError, ValueError) as error:
            raise SampleError(f"{place}: {error}") from error
    if value not in gymnasium.registry:
        raise SampleError(f"{place} is {value!r}, and no environment is registered under it{nearest(value, gymnasium.registry)}")
    return str(value)


def _of_type(sample: Sample, kind: Any) -> str:
    place = f"{sample.where}: field 'env_kwargs.env_type'"
    if not isinstance(kind, str):
        raise SampleError(f"{place} must be a text, not {kind!r:.100}")
    if kind == "tool" and sample.data_source:
        for entry in _entries():
            if entry.tool_rows and sample.data_source in entry.sources:
                return entry.env_id
    types = {name: entry.env_id for entry in _entries() for name in entry.env_types}
    ids = {entry.id.partition("/")[2].partition("-v")[0].lower(): entry.id for entry in ENVIRONMENTS}
    found = types.get(kind) or ids.get(kind.lower().replace("_", "")) or (kind if kind in gymnasium.registry else None)
    if found is None:
        first = {env_id: name for name, env_id in reversed(types.items())}
        known = ", ".join(first.get(env_id, name) for name, env_id in ids.items())
        raise SampleError(f"{place} is {kind!r}, which is no known kind of environment{nearest(kind, [*types, *ids])}; known: {known}")
    return found


def _env_kwargs(
    sample: Sample, env_id: str, implied: tuple[Known, Mapping[str, Any]] | None, named_by: str, allow_functions: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keywords of the environment, and those of its tools."""
    keywords: dict[str, Any] = dict(implied[1]) if implied is not None else {}
    known = _keywords(env_id)
    ours = any(one.id == env_id for one in ENVIRONMENTS)
    tools_kwargs: dict[str, Any] = {}
    for name, value in sample.env_kwargs.items():
        if name in ("env_type", "env_id"):
            continue
        place = f"field 'env_kwargs.{name}'"
        if name == "tools_kwargs":
            if value is not None and not isinstance(value, Mapping):
                raise SampleError(f"{sample.where}: {place} must be an object, not {value!r:.100}")
            tools_kwargs = dict(value or {})
            continue
        name = _RENAMED.get(name, name) if known is not None and name not in known else name
        if name in _NOT_THE_ROWS:
            raise SampleError(f"{sample.where}: {place} may not stand in a row: it belongs to who plays the rows")
        if known is not None and name not in known:
            raise SampleError(
                f"{sample.where}: {place} is no keyword of {env_id}{nearest(name, known)}" + (f" (named by {named_by})" if named_by else "")
            )
        if not allow_functions and outside(name, value, ours=ours):
            raise SampleError(
                f"{sample.where}: {place} is {value!r:.100}, and a row names no address, no file and no code unless you say that it may "
                f"(--allow-functions, allow_functions=True); or give it yourself (--env-arg {name}=..., env_kwargs=) and take it out of the rows"
            )
        keywords[name] = value
    tools = keywords.get("tools")
    if tools is not None and not (isinstance(tools, (list, tuple)) and all(isinstance(one, str) for one in tools)):
        raise SampleError(f"{sample.where}: field 'env_kwargs.tools' must be a list of names of tools, not {tools!r:.100}")
    return _plain(keywords, sample, "env_kwargs"), _plain(tools_kwargs, sample, "env_kwargs.tools_kwargs")


def _check_options(sample: Sample, options: Mapping[str, Any], field: str) -> None:
    """Refuse options of a reset that lead out of the folder of the data."""
    for name, value in options.items():
        if name != "task" and outside("", value, ours=False, relative=True):
            place = f"{field}.{name}" if field == "options" else field
            raise SampleError(
                f"{sample.where}: field {place!r} is {value!r:.100}, and a row names a file below the folder of the data alone, unless you say that "
                "it may name others (--allow-functions, allow_functions=True)"
            )


def _plain(value: Mapping[str, Any], sample: Sample, name: str) -> dict[str, Any]:
    """Return an object as JSON can write it."""
    try:
        plain: dict[str, Any] = plain_json(value, where=sample.where, name=name)
        json.dumps(plain)
    except RecursionError as error:
        raise SampleError(f"{sample.where}: {f'field {name!r}' if name else 'the row'} is nested too deeply") from error
    return plain


def _takes_rows(env_id: str, entry: Known) -> bool:
    """Whether the environment's reset takes the row itself as its task.

    Those of ours that `TABLE` does not hold, and other kinds of Gymnasium, show prompts of their own.
    """
    if entry.task is not None or (entry not in TABLE and any(one.id == env_id for one in ENVIRONMENTS)):
        return False
    creator = _creator(env_id)
    return not isclass(creator) or (issubclass(creator, AgentEnv) and "task" in creator.option_names)


def _task(sample: Sample, tools_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The row as a task: what the environment reads, as plain JSON."""
    prompt = sample.prompt if isinstance(sample.prompt, str) else [dict(message) for message in sample.prompt]
    task: dict[str, Any] = {name: value for name, value in sample.other.items() if name not in _OPTIONS}
    task.setdefault("id", _id(sample))
    task.update(prompt=prompt, reward_model=dict(sample.reward_model), extra_info=dict(sample.extra_info))
    for name in ("data_source", "ability"):
        if getattr(sample, name):
            task[name] = getattr(sample, name)
    if tools_kwargs:
        task["tools_kwargs"] = dict(tools_kwargs)
    return _plain(task, sample, "")


def _check_prompt(sample: Sample) -> None:
    """Refuse a prompt that says nothing, or whose messages a chat template would leave out without a word."""
    messages = [{"role": "user", "content": sample.prompt}] if isinstance(sample.prompt, str) else sample.prompt
    for index, message in enumerate(messages):
        if message["role"] not in _ROLES:
            raise SampleError(
                f"{sample.where}: field 'prompt[{index}].role' is {message['role']!r}, and it is one of {', '.join(_ROLES)}{nearest(str(message['role']), _ROLES)}"
            )
    if not any(message_text(message).strip() for message in messages if message["role"] == "user"):
        raise SampleError(f"{sample.where}: field 'prompt' has no user message with a text in it")


def _id(sample: Sample) -> str:
    for name in ("question_id", "id", "_id", "index"):
        value = sample.extra_info.get(name)
        if value is not None:
            return str(value)
    return sample.where or "given"


def _reward_words(sample: Sample, style: str, entry: Known, keywords: Mapping[str, Any]) -> str:
    if style == "model":
        return f"model: judged by {sample.reward_model.get('judge') or 'the judge'}, 0 to 1"
    if style == "function":
        return f"function: {sample.reward_model.get('function')}"
    return f"rule: {entry.rule_words(keywords)}"


def iter_routes(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    env_id: str | None = None,
    judge: Any = None,
    allow_functions: bool = False,
    env_kwargs: Mapping[str, Any] = _NOTHING,
) -> Iterator[tuple[str, Route | ValueError]]:
    """Decide how the rows of a file or collection are played, one by one.

    Args:
        source: see `route_samples`, as for the others.
        env_id: see there.
        judge: see there.
        allow_functions: see there.
        env_kwargs: see there.

    Yields:
        File and row, and the route, or the error of a row that cannot be played.

    Raises:
        SampleError: if the first row has neither a prompt nor a `reward_model`: this is another kind of file.
        ValueError: for a file that cannot be read.
        FileNotFoundError: if there is no such file.
        ImportError: for Parquet without pyarrow.
    """
    rewards = RowRewards(judge, allow_functions)
    for number, (where, row) in enumerate(read_rows(source)):
        try:
            if not is_sample(row):
                raise _no_sample(where, row, first=number == 0)
            found: Route | ValueError = route_sample(
                parse_sample(row, where=where),
                env_id=env_id,
                seed=number,
                judge=judge,
                allow_functions=allow_functions,
                rewards=rewards,
                env_kwargs=env_kwargs,
            )
        except _NoSampleFile:
            raise
        except ValueError as error:
            found = error
        yield where, found


class _NoSampleFile(SampleError):
    """The file holds rows of another kind."""


def _no_sample(where: str, row: Mapping[str, Any], *, first: bool) -> SampleError:
    missing = [name for name in ("prompt", "reward_model") if name not in row]
    if first and len(missing) == 2:
        return _NoSampleFile(
            f"{where}: this is no file of the sample schema, whose rows have 'prompt' and 'reward_model'; this row has {sorted(map(str, row))}"
        )
    name = (missing or ["prompt"])[0]
    return SampleError(str(missing_field(where, name, row, "a sample needs 'prompt' and 'reward_model'")))


def route_samples(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    env_id: str | None = None,
    judge: Any = None,
    allow_functions: bool = False,
    scored: bool = True,
    env_kwargs: Mapping[str, Any] = _NOTHING,
) -> RoutedRows:
    """Decide how the rows of a file or collection are played.

    Args:
        source: a path to Parquet, JSON or JSON lines, a `datasets.Dataset`, or rows.
        env_id: of the environment of rows that name none themselves.
        judge: of rows with the style "model": an address, a registered name, the keywords of `ChatJudge`, or a function.
        allow_functions: whether rows are trusted: they may name code to import, files and addresses.
        scored: leave out rows whose rewards cannot be given, as training and evaluation must; else they are played like the others.
        env_kwargs: that every environment is going to get.

    Returns:
        The rows that are played and those that were left out. One warning says how many were, and why the first.

    Raises:
        SampleError: for the first row that cannot be played, or if none is left; the text names file, row and field.
        ValueError: for a file that cannot be read.
        FileNotFoundError: if there is no such file.
        ImportError: for Parquet without pyarrow.
    """
    routes: list[Route] = []
    refused: list[Refused] = []
    for where, route in iter_routes(source, env_id=env_id, judge=judge, allow_functions=allow_functions, env_kwargs=env_kwargs):
        if not isinstance(route, Route):
            raise route
        if scored and route.unscored:
            refused.append(Refused(where, route.unscored))
        else:
            routes.append(route)
    if refused:
        total = len(refused) + len(routes)
        first = f"{refused[0].where}: {refused[0].reason}"
        if not routes:
            raise SampleError(f"all {total} rows are refused, since no reward can be given; the first: {first}")
        warnings.warn(
            f"{len(refused)} of {total} rows are left out, since no reward can be given; the first: {first}", UserWarning, stacklevel=2
        )
    if not routes:
        name = source if isinstance(source, (str, Path)) else "the source"
        raise SampleError(f"{name} has no rows")
    return RoutedRows(tuple(routes), tuple(refused))


def has_samples(rows: Any) -> bool:
    """Whether a collection holds rows of the sample schema, by its columns or its first row.

    Args:
        rows: a `datasets.Dataset`, a sequence of rows, or anything else.

    Returns:
        True if it does.
    """
    columns = getattr(rows, "column_names", None)
    if isinstance(columns, list):
        return {"prompt", "reward_model"} <= set(columns)
    return isinstance(rows, Sequence) and not isinstance(rows, str) and bool(rows) and isinstance(rows[0], Mapping) and is_sample(rows[0])
