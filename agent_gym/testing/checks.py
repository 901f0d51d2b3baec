"""The conformance checks, each a public function of a `Subject`, and `check_agent_env`, which runs them.

They know nothing of the environment but its interface: an id, a path, a class or a factory is enough, and what does not apply (no expert,
no token spaces) is skipped with its reason. In the order in which they run:

* what Gymnasium asks for (`basic_checks`): `makes`, `gymnasium_api`, `info_keys`, `rewards`, `ends_apart`, `reset_needed`, `max_turns`,
  `render_ansi`, `close_twice`;
* seeds and isolation (`isolation_checks`): `global_generators`, `seeded_episode`, `interleaved`, `reset_leak`, `vector_env`,
  `other_process`, `other_hash_seed`, `astep`;
* the task (`task_checks`): `expert_succeeds`, `wrong_answer`;
* token exactness (`token_checks`): `token_spaces`, `observation_length`, `token_exactness`, `padding`, `end_of_turn`, `any_action`,
  `invalid_actions`, `control_tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_gym.testing.basic_checks import (
    close_twice,
    ends_apart,
    gymnasium_api,
    info_keys,
    makes,
    max_turns,
    render_ansi,
    reset_needed,
    rewards,
)
from agent_gym.testing.isolation_checks import (
    astep,
    global_generators,
    interleaved,
    other_hash_seed,
    other_process,
    reset_leak,
    seeded_episode,
    vector_env,
)
from agent_gym.testing.report import CHECKS, CheckResult, Report, run_check, selected
from agent_gym.testing.subject import Subject, Target
from agent_gym.testing.task_checks import expert_succeeds, wrong_answer
from agent_gym.testing.token_checks import (
    any_action,
    control_tokens,
    end_of_turn,
    invalid_actions,
    observation_length,
    padding,
    token_exactness,
    token_spaces,
)

__all__ = [
    "CHECKS",
    "any_action",
    "astep",
    "check_agent_env",
    "close_twice",
    "control_tokens",
    "end_of_turn",
    "ends_apart",
    "expert_succeeds",
    "global_generators",
    "gymnasium_api",
    "info_keys",
    "interleaved",
    "invalid_actions",
    "makes",
    "max_turns",
    "observation_length",
    "other_hash_seed",
    "other_process",
    "padding",
    "render_ansi",
    "reset_leak",
    "reset_needed",
    "rewards",
    "seeded_episode",
    "token_exactness",
    "token_spaces",
    "vector_env",
    "wrong_answer",
]


def check_agent_env(
    env_id_or_factory: Target,
    *,
    checks: Iterable[str] | None = None,
    seed: int = 0,
    steps: int = 8,
    kwargs: Mapping[str, Any] | None = None,
) -> Report:
    """Run the conformance checks on an environment.

        check_agent_env("AgentR1/Tool-v0").raise_if_failed()

    Args:
        env_id_or_factory: a Gymnasium id, "my_pkg:MyEnv", "folder/file.py:MyEnv", an `EnvSpec`, a class or a factory. An environment that is
            made already will not do: the checks need fresh ones.
        checks: names of checks, all when None. What they need runs too and is not reported.
        seed: of the first task and of the random actions.
        steps: the length of a replayed episode.
        kwargs: keywords of the environment.

    Returns:
        The report: one result for each check, passed, failed with what was seen, wanted and how to mend it, or skipped with a reason.

    Raises:
        ValueError: for an unknown check.
        TypeError: for an environment in place of a factory.
    """
    names = selected(checks, CHECKS)
    subject = Subject(env_id_or_factory, kwargs=kwargs, seed=seed, steps=steps)
    known: dict[str, CheckResult] = {}
    return Report(subject.name, tuple(run_check(name, subject, known) for name in names))
