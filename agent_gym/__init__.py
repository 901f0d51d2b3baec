"""agent-gym: Gymnasium environments for language-model agents, with exact token ids from the model to the loss.

    import gymnasium as gym, agent_gym
    gym.register_envs(agent_gym)

    env = gym.make("AgentR1/HotpotQA-v0")
    observation, info = env.reset(seed=0)

Importing this package registers the ids and loads neither torch nor transformers. Everything else is imported from its own room:
`agent_gym.core` (the contract), `agent_gym.wrappers`, `agent_gym.policies`, `agent_gym.flows`, `agent_gym.trainers`, `agent_gym.testing`.
"""

from agent_gym.registration import ENVIRONMENTS, register_all

__all__ = ["ENVIRONMENTS", "__version__", "register_all"]

__version__ = "0.1.0"

register_all()
