"""`AgentR1/TextWorld-v0`: text adventures, played by the real TextWorld.

    challenges.py the challenges, their settings and splits
    games.py      files with games, and the cache of those that were made
    prepare.py    making many of them beforehand
    generator.py  the process that makes games
    engine.py     the play of one game
    guide.py      the expert
    env.py        the environment

Importing this package does not import TextWorld; making an environment and playing it does.
"""

from agent_gym.envs.textworld.env import TextWorldEnv

__all__ = ["TextWorldEnv"]
