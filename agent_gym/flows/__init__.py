"""Flows: policy times environment gives trajectories, many at once."""

from agent_gym.flows.base import AgentFlowBase, DeadlineReached, RowPolicy, flow_names, get_flow, normalize_row, register_flow
from agent_gym.flows.best_of_n import BestOfN
from agent_gym.flows.env_loop import AgentEnvLoop
from agent_gym.flows.environment import EnvPool, RolloutEnv
from agent_gym.flows.faults import FAULTS, DroppedRow, Fault, FaultMonitor, TooManyFaults
from agent_gym.flows.remote import RemoteEnv, WorkerDied, Workers
from agent_gym.flows.rollout import RolloutResult, arun_rows, run_rows
from agent_gym.flows.workers import open_workers, parse_workers

__all__ = [
    "FAULTS",
    "AgentEnvLoop",
    "AgentFlowBase",
    "BestOfN",
    "DeadlineReached",
    "DroppedRow",
    "EnvPool",
    "Fault",
    "FaultMonitor",
    "RemoteEnv",
    "RolloutEnv",
    "RolloutResult",
    "RowPolicy",
    "TooManyFaults",
    "WorkerDied",
    "Workers",
    "arun_rows",
    "flow_names",
    "get_flow",
    "normalize_row",
    "open_workers",
    "parse_workers",
    "register_flow",
    "run_rows",
]
