"""`TextArenaEnv`: a game of TextArena (github.com/LeonGuertler/TextArena, tested with 0.7.4) as one of ours.

    env = TextArenaEnv(game="Mastermind-v0")

What differs from playing the game by TextArena's own loop:

- The game is made anew for each episode and its observation wrappers are left out: the default one never forgets the episodes before. Our context
  policies decide what of the game's messages stays visible; the model's own moves stand in the prompt as the ids that it sampled.
- TextArena draws from Python's global generator. Here each environment has its own state of it, so that the same seed is the same game whatever
  else is alive.
- In games of several players the model has one seat, and functions play the others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from agent_gym.adapters._world import PrivateGenerators, need, resolve
from agent_gym.core import Action, AgentEnv, EnvFault, Observation, Outcome
from agent_gym.envs.whole_numbers import whole_number
from agent_gym.trajectory import StopReason

__all__ = ["Opponent", "TextArenaEnv"]

_MOST_MOVES = 1000  # of the other players, in one turn of the model
Opponent = Callable[[str, np.random.Generator], str]
"""Plays another seat: (what that player has been shown so far, a generator of its own) -> its move."""


class TextArenaEnv(AgentEnv):
    """A game of TextArena for one model.

    The reward is the game's own for the model's seat, given at the end. An episode that the game ends is terminated; success is a reward of at
    least `success_reward`. A game that raises is the world's fault (`StopReason.ENV_FAULT`).

    Args:
        game: an id of TextArena's registry, such as "Mastermind-v0".
        game_kwargs: keywords of the game, instead of those of the id.
        num_players: how many play; 1 plays alone.
        seat: the model's number among them.
        opponent: plays every other seat; `Opponent`, or "package.module:function".
        expert: gives the next right move, when asked with TextArena's own game object (without wrappers); or "package.module:function".
        success_reward: from which reward on the game counts as won.
        max_turns: see `AgentEnv`; games end themselves, mostly earlier.
        **kwargs: see `AgentEnv`.

    Raises:
        ImportError: if TextArena is not installed.
        ValueError: for a game or keywords that cannot be used.
    """

    option_names: ClassVar[tuple[str, ...]] = ("index",)
    """`{"index": i}` is the game that TextArena deals for a seed made of split and i."""
    extra_info: ClassVar[Mapping[str, Any]] = {"game": "", "reason": "", "invalid_move": False}
    """The game's id, why it ended, and whether an invalid move ended it."""
    setting_names: ClassVar[tuple[str, ...]] = ("game",)

    def __init__(
        self,
        *,
        game: str = "Mastermind-v0",
        game_kwargs: Mapping[str, Any] | None = None,
        num_players: int = 1,
        seat: int = 0,
        opponent: Opponent | str | None = None,
        expert: Callable[[Any], str] | str | None = None,
        success_reward: float = 1.0,
        max_turns: int = 50,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_turns=max_turns, **kwargs)
        self.num_players = whole_number("num_players", num_players, 1)
        self.seat = whole_number("seat", seat, 0)
        if self.seat >= self.num_players:
            raise ValueError(f"seat is {seat}, and {num_players} players have the seats 0 to {num_players - 1}")
        if self.num_players > 1 and opponent is None:
            raise ValueError(
                f"a game of {num_players} players needs opponent=..., a function (text, generator) -> move for the other seats"
            )
        self.game = game
        self.success_reward = float(success_reward)
        self._opponent = None if opponent is None else resolve("opponent", opponent)
        self._asked = None if expert is None else resolve("expert", expert)
        self._game_kwargs = dict(game_kwargs or {})
        self._generators = PrivateGenerators()
        self._rng = np.random.default_rng(0)
        self._textarena = need("textarena", "textarena")
        if game not in self._textarena.envs.registration.ENV_REGISTRY:
            raise ValueError(f"TextArena has no game {game!r}; textarena.pprint_registry_detailed() prints its ids")
        self._game: Any = None
        self._action_wrappers: list[Any] = []
        self._shown: dict[int, list[str]] = {}
        try:
            self._deal(0)
        except EnvFault as fault:
            raise ValueError(f"the game {game!r} cannot be made and dealt to {num_players} players: {fault}") from fault

    # ------------------------------------------------------------------------------------------------ the episode

    def _begin(self, options: dict[str, Any]) -> Observation:
        """Deal; see `AgentEnv._begin`."""
        number = whole_number("options['index']", options["index"], 0) if "index" in options else int(self.np_random.integers(2**53))
        entropy = np.random.SeedSequence([self.splits.index(self.split), number]).generate_state(2)
        self.task_id = f"{self.game}:{self.split}-{number}"
        self._rng = np.random.default_rng(int(entropy[1]))
        self._deal(int(entropy[0]) % 2**31)
        if self._others_move():
            raise EnvFault(f"the other players ended {self.game} before the model's first move")
        return Observation(text=self._news())

    def _deal(self, seed: int) -> None:
        """Make the game and begin it."""
        self._generators.seed(seed)
        self._shown = {player: [] for player in range(self.num_players)}
        with self._foreign():
            game, self._action_wrappers = self._textarena.make(self.game, **self._game_kwargs), []
            while isinstance(game, self._textarena.Wrapper):
                if isinstance(game, self._textarena.ActionWrapper):
                    self._action_wrappers.append(game)
                game = game.env
            game.reset(num_players=self.num_players, seed=seed)
        self._game = game

    def _respond(self, action: Action) -> Outcome:
        """Make the model's move, and those of the others; see `AgentEnv._respond`."""
        done = self._move(action.text) or self._others_move()
        admonished = self._admonished()
        text = self._news()
        info: dict[str, Any] = {"game": self.game, "action_valid": not admonished}
        if not done:
            return Outcome(Observation(text=text), info=info)
        with self._foreign():
            rewards, details = self._game.close()
        own = dict(details.get(self.seat, {}))
        reward = float((rewards or {}).get(self.seat, 0.0))
        won = reward >= self.success_reward
        info |= {
            "reason": str(own.get("reason", "")),
            "invalid_move": bool(own.get("invalid_move", False)),
            "action_valid": not (admonished or own.get("invalid_move", False)),
            "is_success": won,
            "stop_reason": StopReason.SUCCESS if won else StopReason.FAILURE,
        }
        return Outcome(Observation(text="\n".join(part for part in (text, info["reason"]) if part)), reward, True, info)

    def _info(self, feedback: str, given: Mapping[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        return super()._info(feedback, {"game": self.game, **given}, *args, **kwargs)

    def _move(self, text: str) -> bool:
        with self._foreign():
            for wrapper in self._action_wrappers:
                text = wrapper.action(text)
            done, _details = self._game.step(text)
        return bool(done)

    def _others_move(self) -> bool:
        """Let the others move until it is the model's turn; whether the game is over."""
        for _ in range(_MOST_MOVES):
            player = self._game.state.current_player_id
            if player == self.seat:
                return False
            if self._opponent is None:
                raise EnvFault(f"{self.game} gives the turn to player {player}, whom nobody plays")
            self._shown[player] += [self._told(one) for one in self._new_messages(player)]
            if self._move(str(self._opponent("\n".join(self._shown[player]), self._rng))):
                return True
        raise EnvFault(f"the other players of {self.game} made {_MOST_MOVES} moves, and it was not the model's turn")

    # ------------------------------------------------------------------------------------------------ messages

    def _new_messages(self, player: int) -> list[tuple[int, str, Any]]:
        """What the game has to say to a player, and has not said yet."""
        with self._foreign():
            if self._game.state.current_player_id == player:
                messages = self._game.get_observation()[1]
            else:
                messages, self._game.state.observations[player] = self._game.state.observations[player], []
        if isinstance(messages, str):
            return [(self._textarena.GAME_ID, messages, self._textarena.ObservationType.GAME_MESSAGE)]
        return list(messages)

    def _admonished(self) -> bool:
        """Whether the game has just told the model, and nobody else, that its move was invalid."""
        state = self._game.state
        waiting = state.observations.get(self.seat, ())
        return bool(getattr(state, "error_count", 0)) and any(one[2] is self._textarena.ObservationType.GAME_ADMIN for one in waiting)

    def _news(self) -> str:
        """The new messages for the model: of several boards the last, and its own moves not at all, since they stand in the prompt."""
        kinds = self._textarena.ObservationType
        messages = [one for one in self._new_messages(self.seat) if not (one[2] is kinds.PLAYER_ACTION and one[0] == self.seat)]
        last_board = max((place for place, one in enumerate(messages) if one[2] is kinds.GAME_BOARD), default=-1)
        return "\n".join(self._told(one) for place, one in enumerate(messages) if one[2] is not kinds.GAME_BOARD or place == last_board)

    def _told(self, message: tuple[int, str, Any]) -> str:
        sender, text, _kind = message
        name = "GAME" if sender == self._textarena.GAME_ID else self._game.state.role_mapping.get(sender, f"Player {sender}")
        return f"[{name}] {str(text).strip()}"

    def _foreign(self) -> Any:
        return _Foreign(self.game, self._generators)

    # ------------------------------------------------------------------------------------------------ experts and moments

    def expert(self) -> Callable[[], str] | None:
        """Return the function of the keyword `expert`, asked about the running game.

        Returns:
            The function, or None where none was given.
        """
        asked = self._asked
        return None if asked is None else lambda: str(asked(self._game))

    def _get_state(self) -> Any:
        return copy.deepcopy((self._game, self._shown, self._rng)), self._generators.get_state()

    def _set_state(self, state: Any) -> None:
        (self._game, self._shown, self._rng) = copy.deepcopy(state[0])
        self._generators.set_state(state[1])


class _Foreign:
    """The game's own code: with this environment's generators, and whatever it raises is a fault of the world."""

    def __init__(self, game: str, generators: PrivateGenerators) -> None:
        self._game, self._using = game, generators.using()

    def __enter__(self) -> None:
        self._using.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        # The error goes past the generators: they are put back in any case, and have nothing to say about it.
        self._using.__exit__(None, None, None)
        if isinstance(error, Exception) and not isinstance(error, EnvFault):
            raise EnvFault(f"the game {self._game} raised {type(error).__name__}: {error}") from error
