"""Small environments for the tests of the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent_gym.core import Action, AgentEnv, EnvFault, EnvTimeout, Observation, Outcome


class Parrot(AgentEnv):
    """Answers every reply with a line about it, never ends by itself unless told "stop"; a word to repeat is drawn at reset."""

    def _begin(self, options: dict[str, Any]) -> Observation:
        index = options["index"] if "index" in options else int(self.np_random.integers(1000))
        self.word = f"word{index}"
        self.task_id = f"{self.split}/{index}"
        return Observation(messages=[{"role": "system", "content": "Say the word."}, {"role": "user", "content": f"It is {self.word}."}])

    def _respond(self, action: Action) -> Outcome:
        if action.text == "fault":
            raise EnvFault("the parrot flew away")
        won = self.word in action.text
        text = f'You said {len(action.text)} characters. "{self.word}"\n'
        return Outcome(Observation(text=text), reward=float(won), terminated=won, info={"is_success": won})

    def expert(self) -> Callable[[], str]:
        return lambda: self.word


class Odd(Parrot):
    """Pays for replies whose ids have an odd sum, so that batches have a signal whatever the model writes."""

    def _respond(self, action: Action) -> Outcome:
        return Outcome(super()._respond(action).observation, reward=float(sum(action.token_ids) % 2), info={"is_success": False})


class Unanswered(Parrot):
    """Its world does not answer in time."""

    def _respond(self, action: Action) -> Outcome:
        raise EnvTimeout("no answer within 2 s")


class ToolParrot(Parrot):
    """The same, answering with two tool messages."""

    def _respond(self, action: Action) -> Outcome:
        outcome = super()._respond(action)
        return Outcome(Observation(messages=[{"role": "tool", "content": outcome.observation.text}, {"role": "tool", "content": "."}]))


class Decoder(Parrot):
    """The mutant that the exactness tests must catch: it decodes the action and encodes it again."""

    def _extend(self, action_ids: Any, turn_ids: Any) -> bool:
        return super()._extend(self.chat._encoder.encode(self.chat.decode(list(action_ids))), turn_ids)
