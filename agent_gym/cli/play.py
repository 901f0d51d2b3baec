"""`agent-gym play`: a person in the model's place.

Each line is a reply; a backslash at its end continues it. The terminal shows what the model would see. Works with lines from a pipe as well.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from agent_gym.cli.common import UsageError, check_env_kwargs, console, find_env, keyword_names, parse_env_args, reach_hub, user_mistakes
from agent_gym.core import EnvFault
from agent_gym.report.markup import visible

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run"]

HELP = """\
Type a reply and press Enter; a backslash at the end of a line continues it. Worlds of commands take the bare command.
  :call NAME {"key": "value"}   write a tool call in the environment's own format
  :answer TEXT                  the same as <answer>TEXT</answer>
  :expert                       show what the expert would do now
  :prompt                       show the whole prompt, as the model sees it
  :ids                          show the prompt's token ids
  :tools                        show the tools
  :new [SEED]                   another task
  :help   :quit"""


def run(args: argparse.Namespace) -> int:
    """Play until the person stops or the lines end.

    Args:
        args: see `parser.py`.

    Returns:
        0.

    Raises:
        UsageError: for an environment that is not for people.
    """
    import gymnasium

    env_id = find_env(args.env)
    keywords = parse_env_args(args.env_arg)
    check_env_kwargs(env_id, keywords)
    for name in ("split", "tokenizer"):
        if getattr(args, name):
            keywords[name] = getattr(args, name)
    if args.browser:
        _open_window(env_id, keywords)
    reach_hub(str(keywords.get("tokenizer") or "default"), "tokenizer")
    with user_mistakes(TypeError, *([RuntimeError] if args.browser else [])):  # no Chromium, or no display
        env = gymnasium.make(env_id, **keywords)
    if not hasattr(env.unwrapped, "encode_action"):
        raise UsageError(
            f"{env_id} is no environment of text for people; `play` takes those of this package and others derived from AgentEnv"
        )
    try:
        return _Game(env, args, console()).run()
    finally:
        env.close()


def _open_window(env_id: str, keywords: dict[str, Any]) -> None:
    """Set the keywords by which an environment shows a browser's window; what `--env-arg browser_options=...` says comes first."""
    names = keyword_names(env_id)
    if names is not None and "browser" not in names:
        raise UsageError(f"--browser: {env_id} has no browser; leave it out")
    if keywords.setdefault("browser", True) is not True:
        raise UsageError(f"--browser together with --env-arg browser={keywords['browser']!r}; leave one of the two out")
    options = keywords.get("browser_options") or {}
    if not isinstance(options, dict):
        raise UsageError(f"--env-arg browser_options wants a JSON object, not {options!r:.200}")
    keywords["browser_options"] = {"headless": False, **options}


class _Game:
    def __init__(self, env: Any, args: argparse.Namespace, screen: Console) -> None:
        self.env, self.inner, self.screen = env, env.unwrapped, screen
        self.seed, self.raw = args.seed, args.raw
        self.takes_commands = hasattr(self.inner, "write_command")
        self.running = False
        self.total = 0.0
        self.asks = sys.stdin.isatty()

    def run(self) -> int:
        """Read replies until there are no more."""
        self._say(":help shows the commands, :quit ends.", "dim")
        self._begin()
        for line in self._lines():
            if line.startswith(":") and self._command(line[1:].strip()):
                return 0
        return 0

    def _lines(self) -> Iterator[str]:
        """Whole replies: lines joined where a backslash continues them."""
        parts: list[str] = []
        while True:
            if self.asks:
                self.screen.print("[bold green]" + (". " if parts else "> ") + "[/]", end="")
            line = sys.stdin.readline()
            if not line:
                if parts:
                    yield from self._reply("\n".join(parts))
                return
            line = line.rstrip("\n")
            if line.endswith("\\"):
                parts.append(line[:-1])
                continue
            whole = "\n".join([*parts, line])
            parts = []
            if not whole.strip():
                continue
            yield from self._reply(whole)

    def _reply(self, text: str) -> Iterator[str]:
        """Commands go to the caller, anything else to the environment."""
        if text.startswith(":"):
            yield text
        elif not self.running:
            self._say("The episode is over; :new begins another, :quit ends.", "yellow")
        else:
            self._step(self._written(text))

    def _written(self, text: str) -> str:
        """A person's line as a reply: a bare command gets what the action format puts around it."""
        if not self.takes_commands or self.inner.read_command(text) is not None:
            return text
        with contextlib.suppress(ValueError):
            return str(self.inner.write_command(text.strip()))
        return text

    def _say(self, text: str, style: str = "") -> None:
        """Print text from anywhere; nothing in it can steer the terminal."""
        self.screen.print(visible(text), style=style or None, markup=False, highlight=False, soft_wrap=not self.screen.is_terminal)

    def _rule(self, text: str) -> None:
        from rich.text import Text

        self.screen.rule(Text(text, style="dim"), align="left", style="dim")

    def _begin(self) -> None:
        with user_mistakes(EnvFault):
            observation, info = self.env.reset(seed=self.seed)
        self.running, self.total = True, 0.0
        self._rule(f"task {info['task_id']}, seed {self.seed}: {info['observation_length']} tokens")
        self._say(self.inner.decode(observation, info).strip("\n"))
        self._rule("your turn")

    def _step(self, text: str) -> None:
        import gymnasium

        try:
            observation, reward, terminated, truncated, info = self.env.step(self.inner.encode_action(text))
        except gymnasium.error.InvalidAction as error:
            self._say(str(error), "yellow")
            return
        self.total += float(reward)
        if self.raw or (info["context_rewritten"] and not self.takes_commands):
            self._say(self.inner.decode(observation, info).strip("\n"))
        elif info["feedback"]:
            self._say(info["feedback"], "cyan")
        if not info["action_valid"]:
            self._say("(the environment could not use this reply)", "yellow")
        if self.takes_commands and self.inner.show_admissible and info["admissible_commands"]:
            self._say("  |  ".join(info["admissible_commands"]), "dim")
        if terminated or truncated:
            self.running = False
            self._rule(
                f"{'solved' if info['is_success'] else 'not solved'}: reward {self.total:g}, {info['turn']} turns, ended by {info['stop_reason'].value}"
            )
            extra = {name: info[name] for name in self.inner.extra_info if isinstance(info.get(name), (int, float)) and info[name]}
            if extra:
                self._say("  ".join(f"{name} {value:g}" for name, value in extra.items()), "dim")
            self._say(":new begins another, :quit ends.", "dim")
        else:
            left = self.inner.max_turns - info["turn"]
            self._rule(f"your turn, {left} left; {info['observation_length']} tokens so far")

    def _command(self, text: str) -> bool:
        """Do a command; True ends the game."""
        name, _, rest = text.partition(" ")
        rest = rest.strip()
        if name in ("quit", "q", "exit"):
            return True
        if name == "new":
            self.seed = int(rest) if rest.isdigit() else self.seed + 1
            self._begin()
        elif name == "expert":
            ask = self.inner.expert() if self.running else None
            self._say(ask() if ask is not None else "There is no expert here." if self.running else "The episode is over.", "magenta")
        elif name == "prompt":
            self._say(self.inner.chat.decode(self.inner.prompt_ids.tolist()))
        elif name == "ids":
            self._say(" ".join(str(one) for one in self.inner.prompt_ids.tolist()))
        elif name == "tools":
            tools = [one.get("function", one) for one in getattr(self.inner, "_schemas", None) or self.inner.tools or []]
            self._say("\n".join(json.dumps(one, ensure_ascii=False) for one in tools) or "There are no tools here.")
        elif name == "answer":
            list(self._reply(f"<answer>{rest}</answer>"))
        elif name == "call":
            self._call(rest)
        elif name == "help":
            self._say(HELP)
        else:
            self._say(f"unknown command :{name}; :help shows the commands", "yellow")
        return False

    def _call(self, rest: str) -> None:
        name, _, text = rest.partition(" ")
        form = getattr(self.inner, "tool_format", None)
        if form is None:
            self._say("This environment has no tools.", "yellow")
            return
        try:
            arguments = json.loads(text or "{}")
            if not isinstance(arguments, dict):
                raise ValueError("the arguments are a JSON object")
            written = form.render_call(name, arguments)
        except ValueError as error:
            self._say(f'a call looks like :call search {{"query": "..."}}; {error}', "yellow")
            return
        self._say(written, "dim")
        list(self._reply(written))
