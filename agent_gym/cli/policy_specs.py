"""`--policy NAME=WHAT,KEY=VALUE...` and `--policies FILE`: what each of several policies is, checked before anything is played."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_gym.cli.common import SCRIPTED, Player, UsageError, load_player, nearest, resolve_model, user_mistakes
from agent_gym.cli.recipe import read_yaml
from agent_gym.policies.metering import Prices, read_prices

__all__ = ["PolicySpec", "read_specs"]

_SERVERS = ("openai", "vllm", "sglang")
_ANY = ("model", "tokenizer", "temperature")
_PRICES = ("price_in", "price_out", "price_cached")
_OF_OPENAI: Mapping[str, type] = {
    "api_key_env": str,
    "requests_per_minute": int,
    "tokens_per_minute": int,
    "concurrency": int,
    "timeout": float,
    "retries": int,
    "keep_reasoning": bool,
    "request": dict,
}
_NAME = re.compile(r"[^\s=,/\\|][^=,/\\|\n]{0,39}")
_EXAMPLE = "--policy mini=openai:https://api.openai.com/v1,model=gpt-4o-mini"


@dataclass(frozen=True)
class PolicySpec:
    """One policy, as it was asked for.

    Attributes:
        name: the user's name of it.
        kind: "local" (what --model takes), "openai", "vllm" or "sglang".
        what: of a local one; the address of a server.
        model: that a server serves, as it calls it; None where nothing was said.
        tokenizer: folder or name; None for the model's.
        temperature: of the sampled arm; None takes the command's.
        settings: of `OpenAIPolicy`.
        prices: of its tokens; None where they are not known.
    """

    name: str
    kind: str
    what: str
    model: str | None = None
    tokenizer: str | None = None
    temperature: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    prices: Prices | None = None

    def asked(self) -> dict[str, Any]:
        """Return it as plain values. There is no key in it: only the name of the variable that holds one.

        Returns:
            Name to value.
        """
        return dataclasses.asdict(self)

    def scripted(self, baselines: Mapping[str, Any]) -> bool:
        """Whether it is a player without a model.

        Args:
            baselines: of the environment.

        Returns:
            True for one of the package's players or the environment's own.
        """
        return self.kind == "local" and (self.what in SCRIPTED or self.what in baselines)

    def load(self, args: argparse.Namespace, baselines: Mapping[str, Callable[[int], Any]]) -> Player:
        """Open it.

        Args:
            args: of the command.
            baselines: of the environment.

        Returns:
            The policy and what belongs to it.

        Raises:
            UsageError: if it cannot be opened.
        """
        temperature = args.temperature if self.temperature is None else self.temperature
        if self.kind == "openai":
            from agent_gym.cli.engines import load_chat_server

            return load_chat_server(
                self.what, model=self.model, tokenizer=self.tokenizer, temperature=temperature, seed=args.seed, **self.settings
            )
        served = self.kind != "local"
        return load_player(
            str(self.model) if served else self.what,
            tokenizer=self.tokenizer,
            temperature=temperature,
            seed=args.seed,
            dtype="auto" if served else args.dtype,
            device="auto" if served else args.device,
            batch_size=args.batch_size,
            engine=self.kind if served else "transformers",
            url=self.what if served else None,
            baselines=baselines,
        )


def read_specs(args: argparse.Namespace, baselines: Sequence[str]) -> list[PolicySpec]:
    """Read all policies of a command: those of --policies, of --policy, and the one of --engine openai.

    Args:
        args: of `agent-gym eval`.
        baselines: the environment's players without a model.

    Returns:
        The policies, in order.

    Raises:
        UsageError: for whatever cannot be meant, before anything is played.
    """
    given: list[tuple[str, Mapping[str, Any], str]] = []
    if args.policies_file:
        _check_file("--policies", args.policies_file)
        given += [
            (str(name), _of_file(name, value), f"{args.policies_file}: {name}") for name, value in read_yaml(args.policies_file).items()
        ]
    given += [(*_of_text(text), f"--policy {text.partition('=')[0]}") for text in args.policies]
    if args.engine == "openai":
        if given or not args.url:
            raise UsageError(
                "--engine openai wants --url URL and perhaps --model M, and no --policy; several are --policy NAME=openai:URL each"
            )
        name = re.sub(r"[=,/\\|\s]+", "-", args.model or "server")[:40].strip("-") or "server"
        given.append((name, {"what": f"openai:{args.url}", "model": args.model, "tokenizer": args.tokenizer}, "--engine openai"))
    elif args.model is not None or args.url is not None or args.engine != "transformers" or args.tokenizer:
        raise UsageError(
            "--policy and --model (with its --engine, --url and --tokenizer) do not go together: give each model as --policy NAME=WHAT"
        )
    prices = _read_price_file(args.prices)
    specs = [_spec(name, value, where, args, prices) for name, value, where in given]
    twice = [name for name in dict.fromkeys(one.name for one in specs) if sum(one.name == name for one in specs) > 1]
    if twice:
        raise UsageError(f"two policies are called {twice[0]!r}; give each a name of its own")
    unused = sorted(set(prices) - {one.name for one in specs} - {one.model for one in specs if one.model})
    if unused:
        raise UsageError(
            f"--prices {args.prices}: {unused[0]!r} is neither a policy's nor a model's name{nearest(unused[0], [one.name for one in specs])}"
        )
    for spec in specs:
        if spec.kind == "local" and not spec.scripted(dict.fromkeys(baselines)):
            resolve_model(spec.what, baselines, option=f"--policy {spec.name}")
    return specs


def _of_text(text: str) -> tuple[str, dict[str, Any]]:
    """`NAME=WHAT,KEY=VALUE...`."""
    name, equals, rest = text.partition("=")
    what, *pairs = rest.split(",")
    if not equals or not what:
        raise UsageError(f"--policy wants NAME=WHAT ({_EXAMPLE}), not {text!r}")
    found: dict[str, Any] = {"what": what}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--policy {name}: wanted KEY=VALUE behind the comma, not {pair!r}; what has commas in it goes into a file (--policies FILE)"
            )
        key = key.strip().replace("-", "_")
        if key in found:
            raise UsageError(f"--policy {name}: {key} was given twice")
        try:
            found[key] = json.loads(value) if key not in ("model", "tokenizer", "api_key_env") else value
        except ValueError:
            found[key] = value
    return name.strip(), found


def _of_file(name: Any, value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        return {"what": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("what"), str):
        raise UsageError(
            f"--policies: {name} should be a text, or an object with `what` (such as openai:https://api.openai.com/v1), not {value!r:.100}"
        )
    return value


def _spec(name: str, value: Mapping[str, Any], where: str, args: argparse.Namespace, prices: Mapping[str, Prices]) -> PolicySpec:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{where}: a policy's name is 1 to 40 characters without = , / \\ and |, not {name!r}")
    kind, colon, what = str(value["what"]).partition(":")
    if kind not in _SERVERS or not colon:
        kind, what = "local", str(value["what"])
    known = ["what", *_ANY] if kind != "local" else ["what", "tokenizer", "temperature"]
    known += [*_OF_OPENAI, *_PRICES] if kind == "openai" else [*_PRICES] if kind != "local" else []
    for key in value:
        if key not in known:
            raise UsageError(
                f"{where}: {value['what']!r} takes no {key!r}{nearest(str(key), known) or '; it takes ' + ', '.join(known[1:])}"
            )
    if kind in ("vllm", "sglang") and not value.get("model"):
        raise UsageError(
            f"{where}: a {kind} server wants model=, the name under which it serves its model (and its tokenizer's, unless tokenizer=)"
        )
    temperature = value.get("temperature")
    if temperature is not None and (
        isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not 0 <= temperature < float("inf")
    ):
        raise UsageError(f"{where}: temperature should be a number of at least 0, not {temperature!r}")
    model = value.get("model")
    own = _own_prices(value, args if kind == "openai" else None, where)
    found = own or prices.get(name) or prices.get(str(model)) if model is not None else own or prices.get(name)
    return PolicySpec(
        name=name,
        kind=kind,
        what=what,
        model=None if model is None else str(model),
        tokenizer=value.get("tokenizer"),
        temperature=temperature,
        settings=_settings(value, args, where) if kind == "openai" else {},
        prices=found,
    )


def _settings(value: Mapping[str, Any], args: argparse.Namespace, where: str) -> dict[str, Any]:
    found = {name: getattr(args, name) for name in ("api_key_env", "requests_per_minute", "tokens_per_minute", "concurrency")}
    for name, kind in _OF_OPENAI.items():
        given = value.get(name)
        if given is None:
            continue
        fits = isinstance(given, kind) or (kind is float and isinstance(given, int))
        if not fits or isinstance(given, bool) != (kind is bool):
            raise UsageError(f"{where}: {name} should be of type {kind.__name__}, not {given!r}")
        found[name] = given
    settings = {name: one for name, one in found.items() if one is not None}
    from agent_gym.policies import OpenAIPolicy

    with user_mistakes():  # also a key that is not there: before any of the others is asked
        OpenAIPolicy(str(value["what"]).partition(":")[2], **settings).close()
    return settings


def _own_prices(value: Mapping[str, Any], args: argparse.Namespace | None, where: str) -> Prices | None:
    """Prices that stand with the policy, else those of the command."""
    found = {key.removeprefix("price_"): value[key] for key in _PRICES if value.get(key) is not None}
    if not found and args is not None:
        where = "--price-in and --price-out"
        found = {key.removeprefix("price_"): getattr(args, key) for key in _PRICES if getattr(args, key) is not None}
    if not found:
        return None
    try:
        return read_prices(found)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error


def _read_price_file(path: str | None) -> dict[str, Prices]:
    if path is None:
        return {}
    _check_file("--prices", path)
    try:
        return {str(name): read_prices(value) for name, value in read_yaml(path).items()}
    except ValueError as error:
        raise UsageError(f"--prices {path}: {error}") from error


def _check_file(option: str, path: str) -> None:
    if not Path(path).is_file():
        raise UsageError(f"{option} {path}: there is no such file")
