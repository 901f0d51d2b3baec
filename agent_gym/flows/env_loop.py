"""`AgentEnvLoop`, the default flow: one policy, one environment, one episode."""

from __future__ import annotations

from agent_gym.flows.base import AgentFlowBase, DeadlineReached, MakeEnv, Row, RowPolicy, register_flow
from agent_gym.trajectory import StopReason, Trajectory

__all__ = ["AgentEnvLoop"]


@register_flow("agent_env_loop")
class AgentEnvLoop(AgentFlowBase):
    """Plays an episode of the row: prompt, reply, step, until the end.

    An episode that the deadline meets is cut behind its last finished step, with `StopReason.DEADLINE`.
    """

    async def run(self, row: Row, policy: RowPolicy, make_env: MakeEnv) -> list[Trajectory]:
        """See `AgentFlowBase.run`.

        Args:
            row: the row.
            policy: the policy.
            make_env: gives the environment.

        Returns:
            One trajectory; none where the deadline came before the first step.
        """
        env = make_env(row)
        try:
            await env.reset()
            policy.bind(env.env, env.session)
            sampling = env.sampling(policy.sampling)
            while env.running:
                await env.step(await policy.generate(env.prompt_ids, sampling, session=env.session))
        except DeadlineReached:
            env.cut(StopReason.DEADLINE)
            if not env.started or not env.trajectory.steps:
                return []
        return [env.trajectory]
