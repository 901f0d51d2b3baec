"""`AgentR1/TextWorld-v0`: text adventures, played by the real TextWorld, one command per reply.

    env = gymnasium.make("AgentR1/TextWorld-v0", game="cooking", settings={"recipe": 2, "take": 2, "go": 6})

Games of the challenges are made when they are first asked for, at `reset` and never in `step` (`games.py`); `agent-gym data textworld` makes many beforehand.
Success is a game that was won; one that was lost ends the episode too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_gym.envs.commands import CommandEnv, Opening, Reply
from agent_gym.envs.textworld.challenges import SPLITS
from agent_gym.envs.textworld.engine import Situation, TextWorldEngine
from agent_gym.envs.textworld.games import GameError, open_games, textworld_version
from agent_gym.envs.textworld.guide import Guide
from agent_gym.envs.whole_numbers import task_index

__all__ = ["REWARDS", "TextWorldEnv"]

REWARDS = ("score", "intermediate", "sparse")


class TextWorldEnv(CommandEnv):
    """A text adventure.

    A seed draws one of the split's games; `options={"index": i}` is the i-th, `options={"task": {"file": path}}` any `.z8`.

    Args:
        game: a challenge ("coin_collector", "treasure_hunter", "cooking", "simple", "custom"), or games that are there: a `.z8` file, a folder of them,
            or a list of files, each with its `.json` beside it. Files are the same in all splits.
        settings: of the challenge; see `agent_gym.envs.textworld.challenges.CHALLENGES`.
        num_games: of the challenge, per split.
        cache_dir: where the challenge's games are kept; None: `agent-gym/textworld` in the user's cache folder.
        reward: "score": what the game's score grew by, over the highest possible one; "intermediate": TextWorld's own 1, 0 or -1 for a step that came
            nearer to winning, did nothing for it, or led away (1 for winning, -1 for losing); "sparse": 1 for winning.
        split: "train", "validation" or "test". The cooking and simple challenges have other foods in each; otherwise the seeds differ.
        show_admissible: whether prompts list the commands that would be carried out.
        **kwargs: see `CommandEnv`.

    Raises:
        ValueError: for a game, settings or keywords that cannot be used.
        FileNotFoundError: if a game's file is missing.
        ImportError: without TextWorld.
    """

    splits: ClassVar[tuple[str, ...]] = SPLITS
    setting_names: ClassVar[tuple[str, ...]] = ("dataset", "game", "settings", "engine", "split")
    """Info keys that tables of results tell."""
    extra_info: ClassVar[Mapping[str, Any]] = {
        **CommandEnv.extra_info,
        "dataset": "",
        "game": "",
        "settings": "",
        "engine": "",
        "split": "",
        "score": 0,
        "max_score": 0,
        "moves": 0,
        "won": False,
        "lost": False,
    }
    """Where the games are from; the game's own score and turns so far; and whether it was won or lost."""
    system_prompt: ClassVar[str] = (
        "You play a text adventure, one command per reply. Commands are short: look, inventory, examine THING, go north, take THING, "
        "take THING from PLACE, put THING on PLACE, insert THING into PLACE, open THING, close THING, unlock THING with KEY, drop THING, eat THING. "
        "help lists more of them, and goal tells again what is asked for."
    )

    def __init__(
        self,
        *,
        game: str | Path | Sequence[str | Path] = "coin_collector",
        settings: Mapping[str, Any] | None = None,
        num_games: int = 1000,
        cache_dir: str | Path | None = None,
        reward: str = "score",
        split: str = "train",
        show_admissible: bool = False,
        **kwargs: Any,
    ) -> None:
        if reward not in REWARDS:
            raise ValueError(f"reward must be one of {', '.join(REWARDS)}, not {reward!r}")
        super().__init__(split=split, show_admissible=show_admissible, **kwargs)
        self.reward = reward
        self.games = open_games(game, settings, split=split, num_games=num_games, cache_dir=cache_dir)
        self._engine = TextWorldEngine()
        self._guide = Guide((), Situation())
        self._path = Path()
        self._given: list[str] = []
        self._told = {
            "dataset": self.games.dataset,
            "game": self.games.game,
            "settings": self.games.settings,
            "engine": f"textworld {textworld_version()}",
            "split": split,
        }

    @property
    def num_tasks(self) -> int:
        """The number of games of this split."""
        return len(self.games)

    # ------------------------------------------------------------------------------------------------ the episode

    def _start(self, options: dict[str, Any]) -> Opening:
        """Open a game, making it if it is not there yet; see `CommandEnv._start`."""
        self._path = self._choose(options)
        text = self._open()
        objective = self._engine.objective
        return Opening(objective or "Find out what there is to do in this game, and do it.", text[len(objective) :].strip(), text)

    def _open(self) -> str:
        """Begin the chosen game, and return what it prints first."""
        self._engine.open(self._path)
        if self.reward == "score" and not self._engine.max_score:
            raise GameError(f"{self._path} has no highest score, over which reward='score' is counted; use reward='sparse'")
        text = self._engine.reset(plan=self.reward == "intermediate")
        self._guide = Guide(self._engine.walkthrough, self._engine.situation)
        self._given = []
        return text

    def _choose(self, options: Mapping[str, Any]) -> Path:
        if "task" in options:
            row = options["task"]
            if not isinstance(row, Mapping) or not isinstance(row.get("file"), (str, Path)):
                raise ValueError(f"options['task'] must be a row {{'file': path of a .z8}}, not {row!r}")
            path = Path(row["file"]).expanduser()
            self.task_id = path.stem
            return path
        if "index" in options:
            index = task_index(options, len(self.games), "games")
        else:  # a seed draws another of the same files in each split
            index = (int(self.np_random.integers(len(self.games))) + self.splits.index(self.split)) % len(self.games)
        self.task_id = self.games.name(index)
        return self.games.path(index)

    def _play(self, command: str) -> Reply:
        """Play a command; see `CommandEnv._play`."""
        before = self._engine.situation
        text = self._send(command)
        now = self._engine.situation
        return Reply(text, self._worth(before, now), now.done, now.won, now.carried_out)

    def _send(self, command: str) -> str:
        text = self._engine.step(command)
        self._given.append(command)
        self._guide.note(command, self._engine.situation)
        return text

    def _worth(self, before: Situation, now: Situation) -> float:
        """The reward of a step."""
        if self.reward == "score":
            return (now.score - before.score) / self._engine.max_score
        if self.reward == "sparse" or now.done:
            return float(now.won) - float(now.lost and self.reward == "intermediate")
        if before.plan is None:
            return 0.0
        if now.plan is None:
            return -1.0  # nothing is known that wins from here
        return float(len(before.plan) > len(now.plan)) - float(len(before.plan) < len(now.plan))

    def _admissible(self) -> Sequence[str]:
        return self._engine.situation.admissible

    def _state(self) -> str:
        return f"{self.task_id} {self._engine.situation.key}"

    def _standing(self) -> Mapping[str, Any]:
        now = self._engine.situation
        told = {"score": now.score, "max_score": self._engine.max_score, "moves": now.moves, "won": now.won, "lost": now.lost}
        return {**self._told, **told}

    def _get_world(self) -> Any:
        return self._path, tuple(self._given)

    def _set_world(self, world: Any) -> None:
        """Play the commands again: the engine knows no shorter way back."""
        self._path, given = world
        self._open()
        for command in given:
            self._send(command)

    def _next_command(self) -> str:
        return self._guide.next_command(self._engine)

    def close(self) -> None:
        """Let go of the game."""
        self._engine.close()
        super().close()
