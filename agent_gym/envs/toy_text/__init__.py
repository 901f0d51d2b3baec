"""`AgentR1/FrozenLake-v0`, `AgentR1/Taxi-v0`, `AgentR1/Blackjack-v0`, `AgentR1/CliffWalking-v0`: Gymnasium's own toy-text tasks, told and played in words.

`words.py` has the words, which `agent_gym.wrappers.VerbalizeObservation` uses too; `planning.py` solves the tasks exactly, for the experts; `env.py` is what
they share, and `games.py` what each has of its own.
"""

from agent_gym.envs.toy_text.env import ToyTextEnv
from agent_gym.envs.toy_text.games import BlackjackTextEnv, CliffWalkingTextEnv, FrozenLakeTextEnv, TaxiTextEnv
from agent_gym.envs.toy_text.words import VERBALIZERS, Verbalizer, find_verbalizer

__all__ = [
    "VERBALIZERS",
    "BlackjackTextEnv",
    "CliffWalkingTextEnv",
    "FrozenLakeTextEnv",
    "TaxiTextEnv",
    "ToyTextEnv",
    "Verbalizer",
    "find_verbalizer",
]
