"""The options of every command, each with an example, and messages that name what was probably meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

__all__ = ["build_parser"]

_MODEL_HELP = "a model's folder, a run's folder, a Hugging Face name, 'expert', 'random', or a baseline of the environment"


class _Parser(argparse.ArgumentParser):
    """argparse with the nearest names in its messages; exit status 2 and one line, without the usage block."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; a command that knows an argument that is left over would have taken it, so what is left over is a mistake."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            from agent_gym.cli.common import nearest

            word = rest[0].partition("=")[0]
            options = [option for action in self._actions for option in action.option_strings]
            what = "option" if word.startswith("-") else "argument"
            self.error(f"unknown {what} {word!r}{nearest(word, options) if what == 'option' else ''}")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from agent_gym.cli.common import nearest

            names = [str(choice) for choice in action.choices]
            what = "command" if isinstance(action, argparse._SubParsersAction) else "/".join(action.option_strings) or action.dest
            raise argparse.ArgumentError(
                None, f"unknown {what} {value!r}{nearest(str(value), names) or '; choose from ' + ', '.join(names)}"
            )

    def error(self, message: str) -> NoReturn:
        """Print the message and end."""
        sys.stderr.write(f"{self.prog}: {message}\nTry `{self.prog} --help`.\n")
        raise SystemExit(2)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port; give one from 1 to 65535, or 0 for a free one")
    return value


def _temperature(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no temperature; 0 is greedy")
    return value


def _price(text: str) -> float:
    value = float(text)
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no price; give what a million tokens cost")
    return value


def _workers(text: str) -> int | str | None:
    from agent_gym.flows.workers import parse_workers

    try:
        return parse_workers(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


for _convert, _name in (
    (_positive, "whole number"),
    (_natural, "whole number"),
    (_port, "whole number"),
    (_temperature, "number"),
    (_price, "number"),
):
    _convert.__name__ = _name  # argparse names the type by it: "invalid whole number value: 'x'"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command.

    Returns:
        The parser; `command` in its result is None where none was given.
    """
    from agent_gym import __version__

    parser = _Parser(
        prog="agent-gym",
        description="Gymnasium environments for language-model agents, and their training.",
        epilog="examples:\n  agent-gym list\n  agent-gym play AgentR1/HotpotQA-v0\n  agent-gym train --output-dir runs/first\n\nEach command has its own --help.",
    )
    parser.add_argument("--version", action="version", version=f"agent-gym {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser)
    _list(commands)
    _play(commands)
    _rollout(commands)
    _eval(commands)
    _train(commands)
    _report(commands)
    _view(commands)
    _data(commands)
    _serve(commands)
    _serve_papers(commands)
    return parser


def _add(commands: Any, name: str, help_: str, description: str, examples: Sequence[str]) -> argparse.ArgumentParser:
    lines = "\n".join(f"  agent-gym {name} {example}".rstrip() for example in examples)
    title = "example" if len(examples) == 1 else "examples"
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_, description=description, epilog=f"{title}:\n{lines}")
    return parser


def _env_options(parser: argparse.ArgumentParser, *, optional: bool = False, what: str = "") -> None:
    parser.add_argument("env", nargs="?" if optional else None, metavar="ENV", help=f"id of the environment{what}")
    parser.add_argument(
        "--env-arg", action="append", default=[], metavar="NAME=VALUE", help="keyword of the environment, JSON or text; may be repeated"
    )


def _workers_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=_workers,
        metavar="N|ray|ADDRESS",
        help="where the environments live: N worker processes, Ray, or the Ray cluster at ADDRESS; default: this process (docs/workers.md)",
    )


def _model_options(parser: argparse.ArgumentParser, *, split: str, required: bool = True) -> None:
    parser.add_argument("--model", required=required, metavar="M", help=_MODEL_HELP)
    parser.add_argument("--tokenizer", metavar="T", help="folder or name; default: the model's")
    parser.add_argument("--split", metavar="NAME", help=f"which tasks; default: {split}")
    parser.add_argument("--seed", type=_natural, default=0, metavar="S", help="of sampling (default 0)")
    parser.add_argument("--max-tokens", type=_positive, metavar="N", help="longest reply, in tokens; default: the environment's")
    parser.add_argument("--batch-size", type=_positive, default=256, metavar="N", help="episodes at once (default 256)")
    _workers_option(parser)
    parser.add_argument("--device", default="auto", metavar="D", help="cpu, cuda, ...; default: cuda where there is one")
    parser.add_argument("--dtype", default="auto", metavar="D", help="float32, bfloat16, ...; default: float32 on a CPU")
    parser.add_argument(
        "--engine",
        choices=["transformers", "vllm", "sglang", "openai"],
        default="transformers",
        help="what computes the model: transformers in this process (default), or a server at --url: vllm, sglang (docs/vllm.md), or openai, any server of OpenAI's "
        "chat API by text (docs/evaluate.md)",
    )
    parser.add_argument(
        "--url", metavar="URL", help="of the server; then --model is the name that it serves, and the tokenizer's unless --tokenizer"
    )


def _comparison_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        dest="policies",
        metavar="NAME=WHAT[,KEY=VALUE...]",
        help="one of several on the same tasks, in one table and one figure: WHAT is what --model takes, or vllm:URL, sglang:URL, openai:URL; keys are model, tokenizer, "
        "temperature, and for openai api_key_env, price_in, price_out, price_cached, requests_per_minute, tokens_per_minute, concurrency, timeout, retries, keep_reasoning; "
        "may be repeated",
    )
    parser.add_argument(
        "--policies", dest="policies_file", metavar="FILE", help="the same as a YAML or JSON file: NAME: {what: ..., KEY: VALUE}"
    )
    parser.add_argument(
        "--api-key-env",
        metavar="VAR",
        help="the environment variable that holds the key of openai servers (default OPENAI_API_KEY); the key is written nowhere",
    )
    parser.add_argument("--price-in", type=_price, metavar="P", help="of a million prompt tokens of openai servers, in any currency")
    parser.add_argument("--price-out", type=_price, metavar="P", help="of a million tokens of replies")
    parser.add_argument(
        "--price-cached", type=_price, metavar="P", help="of a million prompt tokens that the server had kept; default: --price-in"
    )
    parser.add_argument("--prices", metavar="FILE", help="YAML or JSON, by a policy's or model's name: {in: 0.15, out: 0.6, cached: 0.075}")
    parser.add_argument("--requests-per-minute", type=_positive, metavar="N", help="at most, to each openai server")
    parser.add_argument("--tokens-per-minute", type=_positive, metavar="N", help="at most, to each openai server")
    parser.add_argument("--concurrency", type=_positive, metavar="N", help="requests at once, at most, to each openai server (default 16)")


def _file_options(parser: argparse.ArgumentParser, *, file: bool = True) -> None:
    if file:
        parser.add_argument(
            "--data",
            metavar="FILE",
            help="rows of the Agent-R1 sample schema (Parquet, JSON or JSON lines): each names its environment and reward",
        )
    parser.add_argument(
        "--judge", metavar="URL", help="of rows whose reward style is 'model': an OpenAI-compatible address (http://127.0.0.1:8000/v1)"
    )
    parser.add_argument("--judge-model", metavar="M", help="the judge's name at that address; default: the first that it serves")
    parser.add_argument(
        "--allow-functions",
        action="store_true",
        help="trust the rows: they may name code (reward functions 'module:function', environments 'module:Class'), files and addresses",
    )


def _list(commands: Any) -> None:
    parser = _add(commands, "list", "the environments", "Show the environments of this package.", ["", "--json"])
    parser.add_argument("--json", action="store_true", help="as JSON")


def _play(commands: Any) -> None:
    parser = _add(
        commands,
        "play",
        "play one in the terminal",
        "Play an environment yourself. You see what a model sees; what you type is the reply. :help shows the commands.",
        ["AgentR1/HotpotQA-v0", "AgentR1/HotpotQA-v0 --env-arg level=bridge --seed 7"],
    )
    _env_options(parser)
    parser.add_argument("--seed", type=_natural, default=0, metavar="S", help="which task (default 0)")
    parser.add_argument("--split", metavar="NAME", help="which tasks")
    parser.add_argument("--tokenizer", metavar="T", help="folder or name; default: the project's own")
    parser.add_argument("--raw", action="store_true", help="show the whole prompt at every turn, control tokens included")
    parser.add_argument("--browser", action="store_true", help="show the pages in a browser's window (WebShop; extra browser)")


def _rollout(commands: Any) -> None:
    parser = _add(
        commands,
        "rollout",
        "play episodes with a model and save them",
        "Play episodes and write them: .jsonl, .parquet, or .html (a page that shows them token by token).",
        [
            "AgentR1/HotpotQA-v0 --model expert --episodes 20 --out episodes.jsonl",
            "AgentR1/Tool-v0 --model Qwen/Qwen3-0.6B --episodes 8 --out episodes.html",
            "--data rows.parquet --model Qwen/Qwen3-0.6B --out episodes.jsonl",
        ],
    )
    _env_options(parser, optional=True, what="; default: those of the rows of --data, or what the model's run was trained on")
    _model_options(parser, split="that of the model's run, or the environment's own, mostly train")
    _file_options(parser)
    parser.add_argument("--episodes", type=_positive, metavar="N", help="how many (default 20, or one per row of --data)")
    parser.add_argument("--out", required=True, metavar="FILE", help="FILE.jsonl, FILE.parquet or FILE.html")
    parser.add_argument("--temperature", type=_temperature, default=1.0, metavar="T", help="0 is greedy (default 1)")


def _eval(commands: Any) -> None:
    parser = _add(
        commands,
        "eval",
        "measure a model",
        "Play tasks sampled and greedy, and print and save success, metrics and their intervals. Without ENV, that of the run that --model lies in.",
        [
            "AgentR1/HotpotQA-v0 --model expert --tasks 100",
            "AgentR1/HotpotQA-v0 --model Qwen/Qwen3-0.6B --tasks 200 --samples 4",
            "AgentR1/HotpotQA-v0 --model Qwen/Qwen3-0.6B --engine vllm --url http://127.0.0.1:8000",
            "--model runs/first --tasks 200",
            "--data rows.parquet --model Qwen/Qwen3-0.6B",
            "AgentR1/HotpotQA-v0 --policy mine=runs/first --policy expert=expert --policy mini=openai:https://api.openai.com/v1,model=gpt-4o-mini,price_in=0.15,price_out=0.6",
        ],
    )
    _env_options(parser, optional=True, what="; default: those of the rows of --data, or that of the run that --model lies in")
    _file_options(parser)
    _model_options(
        parser,
        split="held-out ones: test, else valid_seen or validation; of the run that --model lies in, those it was measured on",
        required=False,
    )
    _comparison_options(parser)
    parser.add_argument(
        "--tasks", type=_positive, metavar="N", help="how many tasks (default 200, those of the run, or the rows of --data)"
    )
    parser.add_argument("--samples", type=_positive, default=1, metavar="K", help="sampled episodes per task (default 1)")
    parser.add_argument(
        "--temperature",
        type=_temperature,
        default=1.0,
        metavar="T",
        help="of the sampled episodes (default 1); 0 leaves the greedy ones alone",
    )
    parser.add_argument(
        "--arms", choices=["both", "sampled", "greedy"], help="which of the two (default both; sampled with --policy and --engine openai)"
    )
    parser.add_argument(
        "--output-dir", metavar="DIR", help="where table, JSON and figure go, never over another evaluation; default: evals/..."
    )
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="play the environment's own players without a model too, and show them beside (WebShop has such)",
    )
    parser.add_argument("--save-episodes", action="store_true", help="save the episodes too")


def _train(commands: Any) -> None:
    parser = _add(
        commands,
        "train",
        "train a model",
        "Without --model and --config: the embedded run, in which a tiny model learns to search and answer in minutes on a CPU.\n"
        "With them: GRPO, PPO with a critic, or distillation from a teacher, on a model of yours.",
        [
            "--output-dir runs/first",
            "--config recipes/hotpotqa.yaml --dry-run",
            "AgentR1/Tool-v0 --model Qwen/Qwen3-0.6B --set trainer.max_steps=100",
            "AgentR1/ALFWorld-v0 --advantage gigpo --set advantage_kwargs.step_weight=0.5",
            "AgentR1/HotpotQA-v0 --algorithm ppo --advantage token_gae",
            "AgentR1/HotpotQA-v0 --algorithm distill --teacher runs/first",
            "--data rows.parquet --model Qwen/Qwen3-0.6B --output-dir runs/mine",
            "--output-dir runs/second --replay runs/first/trajectories/last_batch.jsonl --replay-max-age 4",
            "--output-dir runs/first --resume",
        ],
    )
    _env_options(parser, optional=True, what="; default: the recipe's, or HotpotQA")
    parser.add_argument("--model", metavar="M", help="a model's folder or a Hugging Face name")
    parser.add_argument("--config", metavar="F.yaml", help="a recipe")
    _file_options(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="a key of the recipe, dotted (trainer.learning_rate=1e-6)",
    )
    parser.add_argument(
        "--algorithm",
        choices=["grpo", "ppo", "distill"],
        help="the trainer: grpo (default); ppo, which has a critic (docs/ppo.md); distill, which has a teacher (docs/distill.md)",
    )
    parser.add_argument(
        "--teacher",
        metavar="T",
        help="of distill: a model's folder, a run's folder, a Hugging Face name, or the address of a vLLM server (http://127.0.0.1:8000)",
    )
    parser.add_argument(
        "--advantage",
        metavar="NAME",
        help="the advantage estimator: grpo (default), rloo, reinforce_pp, gigpo, ...; of ppo step_gae (default) or token_gae (docs/estimators.md)",
    )
    _workers_option(parser)
    parser.add_argument(
        "--replay",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="trajectory files whose episodes are trained on again beside the fresh ones",
    )
    parser.add_argument("--replay-ratio", type=float, metavar="R", help="replayed episodes per fresh one, in whole groups (default 0.5)")
    parser.add_argument(
        "--replay-max-age", type=_natural, metavar="N", help="leave out episodes that are more policy versions old; default: no limit"
    )
    parser.add_argument(
        "--replay-correction",
        choices=["token_truncate", "step_truncate", "imitation"],
        help="truncated importance weights per token (default) or per action; imitation: weight 1 for all, also without log-probabilities",
    )
    parser.add_argument(
        "--replay-base-version",
        type=_natural,
        metavar="V",
        help="policy version that the run begins with; default: the newest in the files",
    )
    parser.add_argument("--output-dir", metavar="DIR", help="the run's folder; default: runs/ENV-MODEL-seedS")
    parser.add_argument("--seed", type=_natural, metavar="S", help="of the run (default 0)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --output-dir")
    parser.add_argument(
        "--smoke", action="store_true", help="two updates, under a minute: does everything hang together? Not with --resume"
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything that can be checked without weights, and stop")
    parser.add_argument("--live", action="store_true", help="serve the run's page on 127.0.0.1 while training goes on (docs/viewer.md)")


def _report(commands: Any) -> None:
    parser = _add(
        commands, "report", "make a run's report again", "Write report.html into a run's folder, also while it is running.", ["runs/first"]
    )
    parser.add_argument("run", metavar="DIR", help="the run's folder")


def _view(commands: Any) -> None:
    parser = _add(
        commands,
        "view",
        "look at a run, or at two, token by token",
        "Show a run's folder or a file of episodes in the browser: curves, a list of episodes, and each episode token by token. Two are shown side by side.\n"
        "Served on 127.0.0.1 until Ctrl-C, or written as one HTML file that needs nothing beside it.",
        ["runs/first", "runs/first runs/second", "episodes.jsonl --no-browser --port 8080", "runs/first --output first.html"],
    )
    parser.add_argument(
        "paths", nargs="+", metavar="RUN_OR_FILE", help="a run's folder, or a trajectory file (.jsonl, .parquet); one or two"
    )
    parser.add_argument("--output", metavar="FILE.html", help="write the page with everything in it, and serve nothing")
    parser.add_argument("--limit", type=_positive, metavar="N", help="of --output: at most N episodes of each file")
    parser.add_argument("--port", type=_port, default=0, metavar="P", help="port on 127.0.0.1; default: a free one")
    parser.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    parser.add_argument("--tokenizer", metavar="T", help="folder or name; default: the one saved with the run, or the project's own")


def _data(commands: Any) -> None:
    parser = _add(
        commands,
        "data",
        "check a data file, import chat logs; make TextWorld and ALFWorld games beforehand",
        "Check a file of samples and see how each kind of row would be played; turn chat logs into trajectories; make the games of a TextWorld\n"
        "challenge, which otherwise are made when they are first played; or write generated ALFWorld games in the layout of the official ones. Games\n"
        "that are there are kept; a command that was stopped goes on where it was.",
        [
            "check rows.parquet",
            "import-chat chats.jsonl --tokenizer Qwen/Qwen3-0.6B",
            "textworld cooking --count 200 --split train --set recipe=2 --set take=2 --set go=6",
            "alfworld --out games --count 100 --split valid_unseen",
        ],
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", parser_class=_Parser, required=True)
    check = kinds.add_parser(
        "check",
        help="a file of the sample schema: is every row whole, and how would it be played?",
        description="Read every row of a file, choose its flow, environment and reward, begin its episode, and print what was chosen per kind of row.",
    )
    check.add_argument("file", metavar="FILE", help="Parquet, JSON or JSON lines")
    check.add_argument("--env", metavar="ENV", help="id of the environment of rows that name none")
    check.add_argument(
        "--env-arg", action="append", default=[], metavar="NAME=VALUE", help="keyword of the environments, JSON or text; may be repeated"
    )
    check.add_argument("--tokenizer", metavar="T", help="folder or name; default: the project's own")
    _file_options(check, file=False)
    textworld = kinds.add_parser(
        "textworld", help="games of a challenge, into the cache", description="Make the games of a TextWorld challenge."
    )
    textworld.add_argument("game", metavar="CHALLENGE", help="coin_collector, treasure_hunter, cooking, simple or custom")
    textworld.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="a setting of the challenge (level=10); may be repeated",
    )
    textworld.add_argument(
        "--cache-dir", metavar="DIR", help="where games are kept; default: agent-gym/textworld in the user's cache folder"
    )
    textworld.add_argument("--workers", type=_positive, metavar="N", help="processes; default: one per processor")
    alfworld = kinds.add_parser(
        "alfworld", help="generated games, as files", description="Write generated ALFWorld games in the official layout."
    )
    alfworld.add_argument("--out", required=True, metavar="DIR", help="the folder; ALFWORLD_DATA may name it afterwards")
    alfworld.add_argument(
        "--grammar", choices=["move", "put"], default="move", help="the wording: current, or before ALFWorld 0.4 (default move)"
    )
    alfworld.add_argument("--level", default="full", metavar="L", help="full or small rooms (default full)")
    _import_chat(kinds)
    for one in (textworld, alfworld):
        one.add_argument("--count", type=_positive, default=100, metavar="N", help="games of each split, the first N (default 100)")
        one.add_argument("--split", action="append", default=[], metavar="NAME", help="which split, may be repeated; default: all")


def _import_chat(kinds: Any) -> None:
    parser = kinds.add_parser(
        "import-chat",
        help="chat logs into trajectories",
        description="Turn conversations (OpenAI's messages with tool calls, one conversation per line) into trajectories under a tokenizer. The ids\n"
        "of every reply say that message to the character; a log of which anything would be lost is refused with line and message.",
    )
    parser.add_argument("file", metavar="FILE", help="the log, JSON lines")
    parser.add_argument("--tokenizer", metavar="T", help="folder or name; default: the project's own")
    parser.add_argument(
        "--tool-format", default="auto", metavar="F", help="how calls are written; default auto: what the tokenizer's chat template teaches"
    )
    parser.add_argument(
        "--template-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="for the chat template (enable_thinking=false); may be repeated",
    )
    parser.add_argument("--out", metavar="FILE", help=".jsonl, .parquet or .html; default: LOG.trajectories.jsonl beside the log")
    parser.add_argument("--skip-bad", action="store_true", help="leave out conversations that cannot be used, and list and count them")
    parser.add_argument(
        "--check", action="store_true", help="hold the file of --out against the log again: is anything altered in one of them?"
    )


def _serve(commands: Any) -> None:
    parser = _add(
        commands,
        "serve-search",
        "serve a search index over HTTP",
        'Serve a corpus (JSONL: {"id", "title", "text"} or {"id", "contents"}) or a saved index at POST /retrieve.',
        ["corpus.jsonl --port 8000", "index_folder --port 8000 --host 0.0.0.0"],
    )
    parser.add_argument("source", metavar="CORPUS", help="a corpus file (.jsonl, .jsonl.gz) or the folder of an index")
    _address_options(parser, 8000)
    parser.add_argument("--cache-dir", metavar="DIR", help="where the index of a corpus file is kept")


def _serve_papers(commands: Any) -> None:
    parser = _add(
        commands,
        "serve-papers",
        "serve papers over HTTP, as Semantic Scholar does",
        'Serve papers (JSON lines: {"paper_id", "title", "abstract", "year", "authors", "references"}) at GET /paper/search, /paper/ID, /paper/ID/citations\n'
        "and /paper/ID/references, for --env-arg base_url=http://127.0.0.1:4000.",
        ["papers.jsonl --port 4000"],
    )
    parser.add_argument("source", metavar="PAPERS", help="a file of papers (.jsonl, .json, .parquet)")
    _address_options(parser, 4000)


def _address_options(parser: argparse.ArgumentParser, port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default 127.0.0.1: this machine alone)")
    parser.add_argument("--port", type=_port, default=port, metavar="P", help=f"0 takes a free one (default {port})")
