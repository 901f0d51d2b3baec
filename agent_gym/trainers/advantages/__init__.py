"""Advantage estimators: pure functions from trajectories to one number per step, in a registry. Knows neither TRL nor torch.

An estimator takes every trajectory of a generation batch (over all ranks) and keyword settings, and returns, per trajectory, one entry
per step: a number, or for estimators of level "token" an array with one number per action token. The registry keeps what a trainer must
know of each: its settings, whether it compares the members of a group with one another, its level, and whether it needs a critic.

`registry` holds the registry, `returns` what all estimators stand on, `monte_carlo` those from returns alone, `gigpo` the one that also
compares steps in equal states, `gae` those with a critic.

Notation: r_t is the reward of step t, G = sum_t gamma^t r_t the return of an episode (gamma is 1 unless given), G_t = sum_{k>=t}
gamma^(k-t) r_k the return from step t on. Standard deviations have one delta degree of freedom, and `EPSILON` stands beside them, as in TRL.

Rules that hold for all of them: an episode that ended by ENV_FAULT, that has no steps, or whose reward or return is not finite takes no part
in any statistic and gets zeros; what has no variance gets exact zeros where it is compared; a group with fewer than two members that count
gets zeros; nothing returns NaN or infinity. `screen` names what is left out and why, so that a trainer can count it and take it out of the
loss.
"""

from __future__ import annotations

from agent_gym.trainers.advantages.gae import GaeTerms, bootstraps, step_gae, step_gae_terms, token_gae, token_gae_terms
from agent_gym.trainers.advantages.gigpo import GIGPO_GAMMA, gigpo, state_groups
from agent_gym.trainers.advantages.monte_carlo import grpo, rebn, reinforce, reinforce_pp, reinforce_pp_baseline, rloo
from agent_gym.trainers.advantages.registry import (
    ADVANTAGES,
    Advantages,
    Estimator,
    FloatArray,
    check_advantage,
    get_advantage,
    register_advantage,
)
from agent_gym.trainers.advantages.returns import (
    EPSILON,
    MAX_RETURN,
    exclusion_reason,
    returns,
    returns_to_go,
    screen,
    zero_variance_groups,
)

__all__ = [
    "ADVANTAGES",
    "EPSILON",
    "GIGPO_GAMMA",
    "MAX_RETURN",
    "Advantages",
    "Estimator",
    "FloatArray",
    "GaeTerms",
    "bootstraps",
    "check_advantage",
    "exclusion_reason",
    "get_advantage",
    "gigpo",
    "grpo",
    "rebn",
    "register_advantage",
    "reinforce",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "returns",
    "returns_to_go",
    "rloo",
    "screen",
    "state_groups",
    "step_gae",
    "step_gae_terms",
    "token_gae",
    "token_gae_terms",
    "zero_variance_groups",
]
