"""Training: trajectories become rows, rows become gradients.

`rows` (prefix merging, micro-batch planning), `advantages` (a registry of estimators) and `metrics` know neither TRL nor torch; `config` and
`grpo` hold the trainer on TRL, `ppo` and `critic` the one with a critic, `distill` and `teacher` the one with a teacher. The heavy names are imported on first use, so `import agent_gym.trainers` loads neither torch nor TRL.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if not __name__.startswith("agent_gym."):
    raise ImportError("the folder trainers/ at the repository's root is a link for people; import agent_gym.trainers instead")

if TYPE_CHECKING:
    from agent_gym.trainers.advantages import get_advantage, register_advantage
    from agent_gym.trainers.config import AgentGRPOConfig
    from agent_gym.trainers.distill import AgentDistillTrainer
    from agent_gym.trainers.distill_config import AgentDistillConfig
    from agent_gym.trainers.grpo import AgentGRPOTrainer
    from agent_gym.trainers.metrics import METRICS
    from agent_gym.trainers.ppo import AgentPPOTrainer
    from agent_gym.trainers.ppo_config import AgentPPOConfig
    from agent_gym.trainers.replay import ReplayBuffer
    from agent_gym.trainers.rows import build_rows, plan
    from agent_gym.trainers.teacher import ServerTeacher

__all__ = [
    "METRICS",
    "AgentDistillConfig",
    "AgentDistillTrainer",
    "AgentGRPOConfig",
    "AgentGRPOTrainer",
    "AgentPPOConfig",
    "AgentPPOTrainer",
    "ReplayBuffer",
    "ServerTeacher",
    "build_rows",
    "get_advantage",
    "plan",
    "register_advantage",
]

_WHERE = {
    "AgentDistillConfig": "distill_config",
    "AgentDistillTrainer": "distill",
    "AgentGRPOConfig": "config",
    "AgentGRPOTrainer": "grpo",
    "AgentPPOConfig": "ppo_config",
    "AgentPPOTrainer": "ppo",
    "METRICS": "metrics",
    "ReplayBuffer": "replay",
    "ServerTeacher": "teacher",
    "build_rows": "rows",
    "get_advantage": "advantages",
    "plan": "rows",
    "register_advantage": "advantages",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
