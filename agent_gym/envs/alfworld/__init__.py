"""Household tasks in text: ALFWorld (arXiv 2010.03768).

`env` is the environment; `library` finds its games, `generator` makes them from nothing (with `rooms`), `game` reads them (with `pddl`, `domain`,
`wording` and `facts`), `simulator` plays them, `stock` plays them by the original engine, and `expert` knows what to do next.
"""

from __future__ import annotations

from agent_gym.envs.alfworld.env import ALFWorldEnv

__all__ = ["ALFWorldEnv"]
