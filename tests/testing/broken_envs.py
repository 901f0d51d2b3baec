"""A small token environment written by hand, without `AgentEnv`, and one broken version of it for each check.

The task: the prompt names a letter, and the right answer repeats it in capitals, once. Ids are bytes, then merged pairs (so that decoding
and encoding again changes ids), then control tokens. Every class below says which check it must fail, and it must fail no other.
"""

import random
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded

from agent_gym.core import AgentEnv, Observation, Outcome
from agent_gym.spaces import TokenBox
from agent_gym.trajectory import StopReason

PAIRS = ["th", "he", "an", "aa", "bb"]
VOCABULARY = [bytes([one]) for one in range(256)] + [pair.encode() for pair in PAIRS] + [b"<|turn|>", b"<|end|>", b"<|pad|>"]
TURN, END, PAD = len(VOCABULARY) - 3, len(VOCABULARY) - 2, len(VOCABULARY) - 1


def decode(ids):
    return b"".join(VOCABULARY[one] for one in ids).decode("utf-8", errors="replace")


def encode(text):
    """Longest match first, as a tokenizer does: pairs win over their bytes."""
    raw, ids = text.encode(), []
    while raw:
        one = next((256 + index for index, pair in enumerate(PAIRS) if raw.startswith(pair.encode())), raw[0])
        ids.append(one)
        raw = raw[len(VOCABULARY[one]) :]
    return ids


class LetterEnv(gymnasium.Env):
    """Keeps to the contract. Fails nothing."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}
    end_of_turn_ids: tuple[int, ...] = (END,)
    pad = PAD

    def __init__(self, max_turns: int = 4, render_mode: str | None = None) -> None:
        self.max_turns = max_turns
        self.render_mode = render_mode
        self.observation_space = TokenBox(1024, len(VOCABULARY), self.pad)
        self.action_space = TokenBox(32, len(VOCABULARY), self.pad)
        self.prompt: list[int] = []
        self.turn = 0
        self.over = True

    # The pieces that the broken versions replace.
    def draw(self) -> str:
        return chr(ord("a") + int(self.np_random.integers(26)))

    def question(self) -> str:
        return f"Write the letter {self.letter} as a capital."

    def is_right(self, text: str) -> bool:
        return text == self.letter.upper()

    def feedback(self, text: str) -> str:
        return f"Your {len(text)} characters were not it."

    def kept(self, ids: list[int]) -> tuple[list[int], int]:
        end = ids.index(END) if END in ids else None
        kept = ids if end is None else ids[: end + 1]
        return kept, len(ids) - len(kept)

    def accepted(self, action: Any) -> list[int]:
        array = np.asarray(action)
        if array.size == 0 and array.ndim == 1:
            return []
        if array.dtype.kind not in "iu" or array.ndim != 1 or len(array) > 32 or array.min() < 0 or array.max() >= len(VOCABULARY):
            raise InvalidAction(f"ids in [0, {len(VOCABULARY) - 1}], at most 32, not {action!r}")
        return self.action_space.unpad(array).tolist()

    def extended(self, kept: list[int], turn: list[int]) -> list[int]:
        return self.prompt + kept + turn

    def parts(self, reward: float) -> dict[str, float]:
        return {"task": reward}

    def ends(self, right: bool) -> tuple[bool, bool]:
        return right, not right and self.turn >= self.max_turns

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.letter = self.draw()
        self.turn = 0
        self.over = False
        self.prompt = [TURN, *encode(self.question()), END, TURN]
        return self.observe(), self.info(self.question(), 0.0, False, StopReason.RUNNING, 0)

    def step(self, action):
        if self.over:
            raise ResetNeeded("call reset()")
        kept, dropped = self.kept(self.accepted(action))
        text = decode(kept).removesuffix("<|end|>")
        self.turn += 1
        right = self.is_right(text)
        answer = "Right." if right else self.feedback(text)
        closing = [] if END in kept else [END]
        self.prompt = self.extended(kept, [*closing, TURN, *encode(answer), END, TURN])
        terminated, truncated = self.ends(right)
        self.over = terminated or truncated
        reason = StopReason.SUCCESS if terminated else StopReason.MAX_TURNS if truncated else StopReason.RUNNING
        reward = float(right)
        return self.observe(), reward, terminated, truncated, self.info(answer, reward, right, reason, dropped)

    def observe(self):
        return self.observation_space.pad(self.prompt)

    def info(self, feedback, reward, right, reason, dropped):
        return {
            "observation_length": len(self.prompt),
            "turn": self.turn,
            "context_rewritten": False,
            "task_id": self.letter,
            "state_key": feedback,
            "feedback": feedback,
            "action_valid": True,
            "dropped_ids": dropped,
            "reward_parts": self.parts(reward),
            "is_success": right,
            "stop_reason": reason,
            "env_fault": False,
            "expert_action": "",
        }

    def render(self):
        return decode(self.prompt) if self.render_mode == "ansi" else None

    def expert(self):
        # A first try that is wrong, so that there is a turn to look at, then the answer.
        return lambda: self.letter.upper() if self.turn else "Let me think"

    def encode_action(self, text):
        return [*encode(text), END]

    async def astep(self, action):
        return self.step(action)


BROKEN: dict[str, Any] = {}


def breaks(check):
    def note(made):
        BROKEN[check] = made
        return made

    return note


@breaks("makes")
class CannotBeMade(LetterEnv):
    def __init__(self, **kwargs):
        raise FileNotFoundError("the data set is missing")


@breaks("gymnasium_api")
class SeedsOnlyItsOwn(LetterEnv):
    """Never seeds `np_random`, which is where wrappers and `check_env` look."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.own = np.random.default_rng(3)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.own = np.random.default_rng(seed)
        return super().reset(options=options)

    def draw(self):
        return chr(ord("a") + int(self.own.integers(26)))


@breaks("info_keys")
class GivesNothing(LetterEnv):
    def info(self, *args):
        return {**super().info(*args), "score": None if self.turn == 0 else 1.0}


@breaks("rewards")
class ForgetsAPart(LetterEnv):
    def parts(self, reward):
        return {"task": reward / 2}


@breaks("ends_apart")
class EndsBothWays(LetterEnv):
    def ends(self, right):
        return right, right or self.turn >= self.max_turns


@breaks("reset_needed")
class StepsAfterTheEnd(LetterEnv):
    def step(self, action):
        self.over = False if self.turn else self.over
        return super().step(action)


@breaks("max_turns")
class CountsOneTurnTooMany(LetterEnv):
    def ends(self, right):
        return right, not right and self.turn > self.max_turns


@breaks("render_ansi")
class RendersNothing(LetterEnv):
    def render(self):
        return None


@breaks("close_twice")
class ClosesOnce(LetterEnv):
    closed = False

    def close(self):
        if self.closed:
            raise RuntimeError("the browser is gone")
        self.closed = True


@breaks("token_spaces")
class PadsWithTheEndOfTurn(LetterEnv):
    pad = END


@breaks("observation_length")
class CountsItsPadding(LetterEnv):
    def info(self, *args):
        return {**super().info(*args), "observation_length": 1024}


@breaks("token_exactness")
class EncodesTheActionAgain(LetterEnv):
    def extended(self, kept, turn):
        text = b"".join(VOCABULARY[one] for one in kept if one < TURN)
        again = encode(text.decode("latin-1")) if text.isascii() else [one for one in kept if one < TURN]
        return self.prompt + again + ([END] if END in kept else []) + turn


@breaks("padding")
class TakesPaddingForText(LetterEnv):
    def accepted(self, action):
        ids = super().accepted(action)
        return np.asarray(action).tolist() if len(np.asarray(action)) == 32 else ids


@breaks("end_of_turn")
class GoesOnBehindTheEnd(LetterEnv):
    def kept(self, ids):
        return ids, 0


@breaks("any_action")
class NeedsAnId(LetterEnv):
    def kept(self, ids):
        return super().kept([ids[0], *ids[1:]])


@breaks("invalid_actions")
class ClipsIds(LetterEnv):
    def accepted(self, action):
        array = np.asarray(action)
        return super().accepted(np.clip(array, 0, len(VOCABULARY) - 1) if array.dtype.kind in "iu" else action)


@breaks("global_generators")
class SeedsTheGlobalGenerator(LetterEnv):
    """As GEM does."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            random.seed(seed)
        return super().reset(seed=seed, options=options)

    def draw(self):
        return random.choice("abcdefghijklmnopqrstuvwxyz")


class DrawsUnseeded(LetterEnv):
    """The other way: reads the global generator and seeds nothing."""

    def feedback(self, text):
        return random.choice(["No", "Wrong", "Not that", "Try again"]) + str(random.random()) if self.turn > 1 else "No."


@breaks("seeded_episode")
class HasAGeneratorOfItsOwn(LetterEnv):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.own = np.random.default_rng()

    def feedback(self, text):
        return f"No, for reason {self.own.integers(2**40)}." if self.turn > 1 else "No."


@breaks("interleaved")
class SharesItsSecret(LetterEnv):
    """The secret stands on the class: whoever was reset last has set it for all."""

    secret = ""

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed, options=options)
        SharesItsSecret.secret = self.letter
        return result

    def feedback(self, text):
        return f"No. It does not come behind {SharesItsSecret.secret}."


@breaks("reset_leak")
class RemembersItsTries(LetterEnv):
    """As TextArena's wrapper does: what an episode ended with is still there in the next one."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.tries: list[str] = []

    def ends(self, right):
        ended = super().ends(right)
        if any(ended):
            self.tries.append(self.letter)
        return ended

    def question(self):
        return super().question() + (f" Seen before: {' '.join(self.tries[-20:])}." if self.tries else "")


@breaks("vector_env")
class GivesRaggedArrays(LetterEnv):
    def info(self, *args):
        return {**super().info(*args), "hits": np.zeros(self.turn, dtype=np.int64)}


@breaks("other_hash_seed")
class HashesText(LetterEnv):
    def feedback(self, text):
        return f"No. {hash(self.letter)}"


@breaks("astep")
class ForgetsWhileAwaiting(LetterEnv):
    async def astep(self, action):
        result = self.step(action)
        self.prompt = self.prompt[:5] if self.turn > 1 else self.prompt
        return (self.observe(), *result[1:])


@breaks("expert_succeeds")
class HasAFoolForAnExpert(LetterEnv):
    def expert(self):
        return lambda: self.letter if self.turn else "Let me think"


@breaks("wrong_answer")
class BelievesEverything(LetterEnv):
    def is_right(self, text):
        return len(text) == 1 and text.isalpha() and text.isupper()


# ------------------------------------------------------------------------------------------------ on AgentEnv


class EchoEnv(AgentEnv):
    """Keeps to the contract, by AgentEnv, and repeats what the model said."""

    def _begin(self, options):
        self.word = self.np_random.choice(["red", "green", "blue", "brown", "black"])
        self.task_id = str(self.word)
        return Observation(text=f"Say the word {self.word}, and nothing else, on your second try.")

    def _respond(self, action):
        won = self.turn >= 1 and action.text == self.word
        return Outcome(Observation(text=f"You said: {action.text}"), reward=float(won), terminated=won, info={"is_success": won})

    def expert(self):
        return lambda: str(self.word) if self.turn else "Let me see."


@breaks("control_tokens")
class LetsTheWorldForge(EchoEnv):
    """Encodes an answer with the tokenizer as it comes."""

    def _respond(self, action):
        outcome = super()._respond(action)
        text = outcome.observation.text
        ids = [*self.chat.turn([], closed=True), *self.chat.tokenizer.encode(text, add_special_tokens=False), self.end_of_turn_ids[0]]
        return Outcome(Observation(token_ids=ids), outcome.reward, outcome.terminated, {**outcome.info, "feedback": text})


class RewritesAndEncodesAgain(EchoEnv):
    """Keeps the conversation as text, renders it anew at each step, and says so."""

    def _begin(self, options):
        first = super()._begin(options)
        self.said = list(first.as_messages())
        return first

    def _reply(self, action):
        return {"role": "assistant", "content": action.text}

    def _respond(self, action):
        outcome = super()._respond(action)
        self.said += [self._reply(action), *outcome.observation.as_messages()]
        return replace(outcome, observation=Observation(messages=list(self.said), rewrite=True))


class RewritesTheLastTurnAlone(RewritesAndEncodesAgain):
    """The same with a window, so that the last prompt is not the beginning of the next."""

    def _respond(self, action):
        outcome = super()._respond(action)
        return replace(outcome, observation=Observation(messages=[self.said[0], *self.said[-2:]], rewrite=True))


class RewritesAndKeepsTheIds(RewritesAndEncodesAgain):
    """Keeps to the contract."""

    def _reply(self, action):
        return {"role": "assistant", "token_ids": action.token_ids}


class RewritesWithoutActions(RewritesAndEncodesAgain):
    """Keeps to the contract: a prompt made of what the environment said."""

    def _respond(self, action):
        outcome = super()._respond(action)
        return replace(outcome, observation=Observation(messages=[self.said[0], self.said[-1]], rewrite=True))


# ------------------------------------------------------------------------------------------------ other people's factories


def registered_only_here():
    """An id that another process does not know."""
    if "OnlyHere-v0" not in gymnasium.registry:
        gymnasium.register("OnlyHere-v0", entry_point=LetterEnv)
    return "OnlyHere-v0"


def made_by_a_factory():
    return LetterEnv(max_turns=3)
