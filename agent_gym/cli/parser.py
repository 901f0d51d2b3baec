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


for _convert, _name in ((_positive, "whole number"), (_natural, "whole number"), (_port, "whole number"), (_temperature, "number")):
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
    _data(commands)
    _serve(commands)
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


def _model_options(parser: argparse.ArgumentParser, *, split: str) -> None:
    parser.add_argument("--model", required=True, metavar="M", help=_MODEL_HELP)
    parser.add_argument("--tokenizer", metavar="T", help="folder or name; default: the model's")
    parser.add_argument("--split", metavar="NAME", help=f"which tasks; default: {split}")
    parser.add_argument("--seed", type=_natural, default=0, metavar="S", help="of sampling (default 0)")
    parser.add_argument("--max-tokens", type=_positive, metavar="N", help="longest reply, in tokens; default: the environment's")
    parser.add_argument("--batch-size", type=_positive, default=256, metavar="N", help="episodes at once (default 256)")
    parser.add_argument("--device", default="auto", metavar="D", help="cpu, cuda, ...; default: cuda where there is one")
    parser.add_argument("--dtype", default="auto", metavar="D", help="float32, bfloat16, ...; default: float32 on a CPU")


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
        ],
    )
    _env_options(parser)
    _model_options(parser, split="the environment's own, mostly train")
    parser.add_argument("--episodes", type=_positive, default=20, metavar="N", help="how many (default 20)")
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
            "--model runs/first --tasks 200",
        ],
    )
    _env_options(parser, optional=True, what="; default: that of the run that --model lies in")
    _model_options(
        parser, split="held-out ones: test, else valid_seen or validation; of the run that --model lies in, those it was measured on"
    )
    parser.add_argument("--tasks", type=_positive, metavar="N", help="how many tasks (default 200, or those of the run)")
    parser.add_argument("--samples", type=_positive, default=1, metavar="K", help="sampled episodes per task (default 1)")
    parser.add_argument(
        "--temperature",
        type=_temperature,
        default=1.0,
        metavar="T",
        help="of the sampled episodes (default 1); 0 leaves the greedy ones alone",
    )
    parser.add_argument("--arms", choices=["both", "sampled", "greedy"], default="both", help="which of the two (default both)")
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
        "With them: GRPO on a model of yours.",
        [
            "--output-dir runs/first",
            "--config recipes/hotpotqa.yaml --dry-run",
            "AgentR1/Tool-v0 --model Qwen/Qwen3-0.6B --set trainer.max_steps=100",
            "AgentR1/ALFWorld-v0 --advantage gigpo --set advantage_kwargs.step_weight=0.5",
            "--output-dir runs/first --resume",
        ],
    )
    _env_options(parser, optional=True, what="; default: the recipe's, or HotpotQA")
    parser.add_argument("--model", metavar="M", help="a model's folder or a Hugging Face name")
    parser.add_argument("--config", metavar="F.yaml", help="a recipe")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="a key of the recipe, dotted (trainer.learning_rate=1e-6)",
    )
    parser.add_argument(
        "--advantage", metavar="NAME", help="the advantage estimator: grpo (default), rloo, reinforce_pp, gigpo, ... (docs/estimators.md)"
    )
    parser.add_argument("--output-dir", metavar="DIR", help="the run's folder; default: runs/ENV-MODEL-seedS")
    parser.add_argument("--seed", type=_natural, metavar="S", help="of the run (default 0)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --output-dir")
    parser.add_argument(
        "--smoke", action="store_true", help="two updates, under a minute: does everything hang together? Not with --resume"
    )
    parser.add_argument("--dry-run", action="store_true", help="check everything that can be checked without weights, and stop")


def _report(commands: Any) -> None:
    parser = _add(
        commands, "report", "make a run's report again", "Write report.html into a run's folder, also while it is running.", ["runs/first"]
    )
    parser.add_argument("run", metavar="DIR", help="the run's folder")


def _data(commands: Any) -> None:
    parser = _add(
        commands,
        "data",
        "make TextWorld and ALFWorld games beforehand",
        "Make the games of a TextWorld challenge, which otherwise are made when they are first played, or write generated ALFWorld games\n"
        "in the layout of the official ones. What is there is kept; a command that was stopped goes on where it was.",
        [
            "textworld cooking --count 200 --split train --set recipe=2 --set take=2 --set go=6",
            "alfworld --out games --count 100 --split valid_unseen",
        ],
    )
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", parser_class=_Parser, required=True)
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
    for one in (textworld, alfworld):
        one.add_argument("--count", type=_positive, default=100, metavar="N", help="games of each split, the first N (default 100)")
        one.add_argument("--split", action="append", default=[], metavar="NAME", help="which split, may be repeated; default: all")


def _serve(commands: Any) -> None:
    parser = _add(
        commands,
        "serve-search",
        "serve a search index over HTTP",
        'Serve a corpus (JSONL: {"id", "title", "text"} or {"id", "contents"}) or a saved index at POST /retrieve.',
        ["corpus.jsonl --port 8000", "index_folder --port 8000 --host 0.0.0.0"],
    )
    parser.add_argument("source", metavar="CORPUS", help="a corpus file (.jsonl, .jsonl.gz) or the folder of an index")
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default 127.0.0.1: this machine alone)")
    parser.add_argument("--port", type=_port, default=8000, metavar="P", help="0 takes a free one (default 8000)")
    parser.add_argument("--cache-dir", metavar="DIR", help="where the index of a corpus file is kept")
