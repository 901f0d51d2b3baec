"""`BestOfN`: a worked example of `AgentFlowBase`. One trunk, several branches, the best one is kept.

Environments cannot be copied in the middle of an episode, but an episode is a function of its seed and its actions: a branch is a fresh
environment, reset with the same seed and options, to which the trunk's actions are given again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from agent_gym.core import EnvFault
from agent_gym.flows.base import AgentFlowBase, MakeEnv, Row, RowPolicy, register_flow
from agent_gym.trajectory import Generation, Trajectory

__all__ = ["BestOfN"]


@register_flow("best_of_n")
class BestOfN(AgentFlowBase):
    """Plays a trunk of some turns, then `n` branches from there at once.

    Args:
        n: the number of branches, at least 1.
        branch_turn: the branches part behind this many turns; 0 plays whole episodes.
        keep: "best" returns the branch with the highest total reward (the first among equals), "all" returns all of them.

    Raises:
        ValueError: for a setting out of range.
    """

    def __init__(self, n: int = 4, branch_turn: int = 0, keep: str = "best") -> None:
        if n < 1 or branch_turn < 0 or keep not in ("best", "all"):
            raise ValueError(
                f"BestOfN needs n of 1 or more, branch_turn of 0 or more, and keep 'best' or 'all', not {n}, {branch_turn} and {keep!r}"
            )
        self.n, self.branch_turn, self.keep = n, branch_turn, keep

    async def run(self, row: Row, policy: RowPolicy, make_env: MakeEnv) -> list[Trajectory]:
        """See `AgentFlowBase.run`.

        Args:
            row: the row.
            policy: the policy.
            make_env: gives the environments.

        Returns:
            The best branch, or all.

        Raises:
            EnvFault: if a branch does not see what the trunk saw.
        """
        trunk: list[Generation] = []
        prompts: list[np.ndarray] = []
        if self.branch_turn:
            env = make_env(row)
            await env.reset()
            policy.bind(env.env, env.session)
            while env.running and len(trunk) < self.branch_turn:
                prompts.append(env.prompt_ids)
                trunk.append(await policy.generate(env.prompt_ids, env.sampling(policy.sampling), session=env.session))
                await env.step(trunk[-1])
            if not env.running:
                return [env.trajectory]
        branches = await asyncio.gather(*(self._branch(row, policy, make_env, trunk, prompts) for _ in range(self.n)))
        return branches if self.keep == "all" else [max(branches, key=lambda branch: branch.total_reward)]

    async def _branch(
        self, row: Row, policy: RowPolicy, make_env: MakeEnv, trunk: Sequence[Generation], prompts: Sequence[np.ndarray]
    ) -> Trajectory:
        env = make_env(row)
        await env.reset()
        policy.bind(env.env, env.session)
        for generation, prompt in zip(trunk, prompts, strict=True):
            if not np.array_equal(env.prompt_ids, prompt):
                raise EnvFault(f"the environment of row {dict(row)!r:.200} showed another prompt when the same actions were given again")
            await env.step(generation)
        while env.running:
            await env.step(await policy.generate(env.prompt_ids, env.sampling(policy.sampling), session=env.session))
        return env.trajectory
