"""The trainer's side of the environments: data set rows, and environments made with the model's own tokenizer.

A row is `{"env_id", "env_kwargs", "seed"}`, with `options` for finite data sets. Rows that are written hold `env_kwargs` and `options` as JSON
strings, because Arrow would merge the dictionaries of all rows into one structure and fill the gaps with None; rows that are read may hold
either, and members that are None in a dictionary are dropped (`agent_gym.flows.base.row_members`).
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium

from agent_gym._names import keyword_names
from agent_gym.data.samples import drop_none, is_sample, parse_sample
from agent_gym.evaluation import finite_tasks
from agent_gym.flows.base import row_members, row_seed
from agent_gym.flows.samples import has_samples, route_sample, route_samples
from agent_gym.registration import registered_id

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = [
    "EnvironmentMaker",
    "as_dataset",
    "as_datasets",
    "as_tokenizer",
    "default_rows",
    "encode_row",
    "read_row",
    "routed",
    "takes_split",
]

_STRUCTURED = ("env_kwargs", "options")
_ROW_KEYS = ("env_id", "env_kwargs", "seed", "options", "group_id", "agent_name", "where", "task_field")


def encode_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Make a row that Arrow keeps as it is: `env_kwargs` and `options` become JSON strings.

    Args:
        row: with dictionaries or JSON strings.

    Returns:
        A copy.

    Raises:
        ValueError: when one of the two cannot be written as JSON.
    """
    encoded = dict(row)
    for name in _STRUCTURED:
        if name in encoded and not isinstance(encoded[name], str):
            try:
                encoded[name] = json.dumps(dict(encoded[name] or {}), sort_keys=True)
            except TypeError as error:
                raise ValueError(f"{name} of a data set row must be JSON, and {encoded[name]!r} is not: {error}") from error
    return encoded


def read_row(row: Mapping[str, Any], env_id: str) -> dict[str, Any]:
    """Read a data set row.

    A row of the Agent-R1 sample schema is read by `agent_gym.flows.samples`, which chooses flow, environment and reward. A row that says nothing
    of environment keywords, options and seed, such as those of a published data set, becomes the task of its environment:
    `options={"task": row}`.

    Args:
        row: as the data set holds it.
        env_id: used where the row names none.

    Returns:
        `{"env_id", "env_kwargs": dict, "seed": int | None, "options": dict}`, and `agent_name` and `where` where the row has them.

    Raises:
        ValueError: when a member cannot be read.
    """
    if is_sample(row) and is_known_env(env_id):
        return route_sample(parse_sample(row), env_id=env_id).row()
    options = row_members("options", row.get("options"))
    rest = drop_none({key: value for key, value in row.items() if key not in _ROW_KEYS})
    ours = any(row.get(key) is not None for key in ("env_kwargs", "options", "seed"))
    if not options and rest and ("reward_model" in rest or not ours):
        options = {"task": rest}
    result = {
        "env_id": row.get("env_id") or env_id,
        "env_kwargs": row_members("env_kwargs", row.get("env_kwargs")),
        "seed": row_seed(row.get("seed")),
        "options": options,
    }
    for name in ("agent_name", "where", "task_field"):
        if row.get(name):
            result[name] = row[name]
    return result


def is_known_env(env_id: str) -> bool:
    """Whether a name is the id of a registered environment, and not that of a function that makes one."""
    return registered_id(env_id) in gymnasium.registry


def routed(rows: Any, env: Any, env_kwargs: Mapping[str, Any] | None = None) -> Any:
    """Choose flow, environment and reward of every row of the sample schema, before a trainer is built on them.

    Args:
        rows: a data set, a sequence of rows, a mapping from names to such, or None.
        env: as the trainer takes it: the id serves rows that name no environment. Where it is a function, rows are left as they are.
        env_kwargs: for every environment; their `judge` and `allow_functions` are those of the rows.

    Returns:
        Encoded rows; whatever holds no samples comes back as it is.

    Raises:
        agent_gym.flows.samples.SampleError: for a row that cannot be played, or if no row can be rewarded.
    """
    if isinstance(rows, Mapping):
        return {name: routed(part, env, env_kwargs) for name, part in rows.items()}
    if not isinstance(env, str) or not has_samples(rows):
        return rows
    given = env_kwargs or {}
    found = route_samples(
        rows, env_id=registered_id(env), judge=given.get("judge"), allow_functions=bool(given.get("allow_functions")), env_kwargs=given
    )
    shared = ("judge", "allow_functions")  # every environment gets them by env_kwargs already
    return [
        encode_row(
            {**row, "env_kwargs": {name: value for name, value in row["env_kwargs"].items() if name not in shared or name not in given}}
        )
        for row in found.rows
    ]


def takes_split(env: Any, env_id: str) -> bool:
    """Whether an environment's own constructor takes `split`. The text and token faces around it have one too, and are not meant.

    Args:
        env: one of them.
        env_id: its id; the name of a callable where there is none.

    Returns:
        True where it does.
    """
    from agent_gym.wrappers import TokenizeText

    env_id = registered_id(env_id)
    if env_id not in gymnasium.registry:
        return isinstance(getattr(env.unwrapped, "split", None), str) and not isinstance(env.unwrapped, TokenizeText)
    creator: Any = gymnasium.spec(env_id).entry_point
    if isinstance(creator, str):
        creator = gymnasium.envs.registration.load_env_creator(creator)
    names = keyword_names(creator)
    return "split" in names if names is not None else isinstance(getattr(env.unwrapped, "split", None), str)


def default_rows(env: Any, env_id: str, env_kwargs: Mapping[str, Any], n: int = 10_000, first: int = 0) -> list[dict[str, Any]]:
    """Make the rows of the data set that an environment brings along.

    Args:
        env: one made with `env_kwargs`.
        env_id: its id.
        env_kwargs: its keywords; `split` in them names the split, and is written into them where the constructor takes it.
        n: how many rows, where tasks are generated without end; a finite environment gives one row per task.
        first: the first of the tasks.

    Returns:
        Rows with JSON strings.
    """
    unwrapped = env.unwrapped
    split = {"split": unwrapped.split} if takes_split(env, env_id) else {}
    head = encode_row({"env_id": env_id, "env_kwargs": {**env_kwargs, **split}})
    known = finite_tasks(unwrapped)
    if known is not None:
        return [{**head, "seed": index, "options": json.dumps({"index": index})} for index in known[first:]]
    if hasattr(unwrapped, "task_seeds"):
        seeds: Sequence[int] = unwrapped.task_seeds(n=first + n)[first:]
    else:
        seeds = range(first, first + n)
    return [{**head, "seed": int(seed)} for seed in seeds]


class EnvironmentMaker:
    """Makes the environment of a row with the trainer's tokenizer, embedding size and end-of-turn ids, and checks that it kept them.

    Args:
        env: a registered id, or `callable(row) -> gymnasium.Env`.
        tokenizer: of the model.
        vocab_size: rows of the model's embedding.
        end_of_turn_ids: the ids at which the model's generation_config stops.
        env_kwargs: keywords for every environment; those of a row win.
        settings: keywords that only environments of this project know (`max_turns`, `max_action_tokens`, ...), and the text around others;
            `env_kwargs` win.

    Attributes:
        end_of_turn_ids: the ids at which the model, or an environment that was made, ends a turn.

    Raises:
        TypeError: for an `env` of another kind.
    """

    def __init__(
        self,
        env: str | Callable[[Mapping[str, Any]], Any],
        *,
        tokenizer: PreTrainedTokenizerBase,
        vocab_size: int,
        end_of_turn_ids: Sequence[int] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        from agent_gym.chat import tokenizer_fingerprint

        if not (isinstance(env, str) or callable(env)):
            raise TypeError(f"env must be a registered id or a callable(row) -> gymnasium.Env, not {env!r}")
        self.env = env
        self.env_id = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
        self.tokenizer = tokenizer
        self.vocab_size = int(vocab_size)
        self.end_of_turn_ids = set(end_of_turn_ids)
        self.env_kwargs = dict(env_kwargs or {})
        self.fingerprint = tokenizer_fingerprint(tokenizer)
        self._token_settings: dict[str, Any] = {"tokenizer": tokenizer, "vocab_size": vocab_size, "end_of_turn_ids": tuple(end_of_turn_ids)}
        self._settings = {key: value for key, value in dict(settings or {}).items() if value is not None}

    def __call__(self, row: Mapping[str, Any] | None = None) -> Any:
        """Make the environment of a row (None: of no row in particular).

        Args:
            row: as `read_row` returns it.

        Returns:
            A `gymnasium.Env` over token ids.

        Raises:
            ValueError: when the environment uses another tokenizer than the model, a smaller vocabulary, or other ends of turn.
        """
        row = row or {"env_id": self.env_id, "env_kwargs": {}, "seed": None, "options": {}}
        if callable(self.env):
            env = self.env(row)
        else:
            env = self._make(str(row["env_id"]), {**self.env_kwargs, **row["env_kwargs"]})
        try:
            fingerprint = env.get_wrapper_attr("tokenizer_fingerprint")
        except AttributeError:
            from agent_gym.wrappers import as_token_env

            made = as_token_env(env, **{**self._token_settings, **self._settings})
            self.end_of_turn_ids.update(getattr(made.unwrapped, "end_of_turn_ids", ()))
            return made
        if fingerprint != self.fingerprint:
            raise ValueError(
                f"environment {row['env_id']!r} speaks tokenizer {fingerprint}, the model {self.fingerprint}: its prompts would be other tokens to the "
                "model than it meant; leave tokenizer out of env_kwargs, or pass processing_class to the callable that makes the environment"
            )
        self._check_ids(env, str(row["env_id"]))
        return env

    def _check_ids(self, env: Any, env_id: str) -> None:
        """Refuse an environment that would not take an id that the model can sample, or not stop where the model does."""
        ends: Sequence[int] = self._token_settings["end_of_turn_ids"]
        size, stops = env.action_space.vocab_size, tuple(getattr(env.unwrapped, "end_of_turn_ids", ends))
        self.end_of_turn_ids.update(stops)
        if size < self._token_settings["vocab_size"] or not set(ends) <= set(stops):
            raise ValueError(
                f"environment {env_id!r} takes ids below {size} and ends actions at {stops}, the model samples ids below "
                f"{self._token_settings['vocab_size']} and stops at {tuple(ends)}; leave vocab_size and end_of_turn_ids out of env_kwargs, and have a "
                "function or callable that makes the environment take them and pass them on"
            )

    def _make(self, env_id: str, env_kwargs: dict[str, Any]) -> Any:
        from agent_gym.core import AgentEnv

        env_id = registered_id(env_id)
        creator: Any = gymnasium.spec(env_id).entry_point
        if isinstance(creator, str):
            creator = gymnasium.envs.registration.load_env_creator(creator)
        if inspect.isclass(creator) and issubclass(creator, AgentEnv):
            return gymnasium.make(env_id, **{**self._token_settings, **self._settings, **env_kwargs})
        names = keyword_names(creator) or ()
        ours = (
            {**self._token_settings, **self._settings} if "tokenizer" in names else {}
        )  # a function that makes an environment of this kind
        return gymnasium.make(env_id, **{**{name: value for name, value in ours.items() if name in names}, **env_kwargs})


def as_dataset(rows: Any) -> Any:
    """Make a data set of a sequence of rows; anything else is returned as it is.

    Args:
        rows: dictionaries, or a `datasets.Dataset`.

    Returns:
        A `datasets.Dataset`.

    Raises:
        ValueError: when there are no rows.
    """
    from datasets import Dataset

    if isinstance(rows, Sequence) and not isinstance(rows, str):
        if not rows:
            raise ValueError("the data set has no rows")
        encoded = [encode_row(row) for row in rows]
        names = dict.fromkeys(name for row in encoded for name in row)  # Dataset.from_list would take those of the first row only
        return Dataset.from_list([{name: row.get(name) for name in names} for row in encoded])
    return rows


def as_datasets(rows: Any) -> Any:
    """Do the same for evaluation sets: None, one, or several by name.

    Args:
        rows: None, rows, or a mapping from names to rows.

    Returns:
        The same with data sets.
    """
    if isinstance(rows, Mapping):
        return {name: as_dataset(part) for name, part in rows.items()}
    return None if rows is None else as_dataset(rows)


def as_tokenizer(processing_class: Any, model: Any) -> Any:
    """Open a tokenizer that is named; TRL may set its pad token, so a shared one is copied.

    Args:
        processing_class: a tokenizer, a name or path, or None for the model's.
        model: as the trainer got it.

    Returns:
        A tokenizer, or None where TRL can find the model's.

    Raises:
        ValueError: when there is nothing to find.
    """
    from agent_gym.chat import load_tokenizer

    if isinstance(processing_class, str):
        return copy.deepcopy(load_tokenizer(processing_class))
    if processing_class is None and not isinstance(model, str) and not getattr(model.config, "_name_or_path", ""):
        raise ValueError("the model was built in code and names no tokenizer; pass processing_class=")
    return processing_class
