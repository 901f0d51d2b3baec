"""Public conformance checks for anyone's environment: `check_agent_env`, the named checks, and a pytest plugin.

    from agent_gym.testing import check_agent_env
    check_agent_env("my_pkg:MyEnv").raise_if_failed()

On the command line, without a line of code: `pytest --agent-env my_pkg:MyEnv`.

The names are loaded when they are asked for, so that pytest can load `agent_gym_pytest` at its start for next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_gym.testing.checks import CHECKS, check_agent_env
    from agent_gym.testing.report import Check, CheckFailure, CheckResult, Report
    from agent_gym.testing.subject import NotApplicable, Subject

__all__ = ["CHECKS", "Check", "CheckFailure", "CheckResult", "NotApplicable", "Report", "Subject", "check_agent_env"]

_HOMES = {
    "CHECKS": "checks",
    "check_agent_env": "checks",
    "Check": "report",
    "CheckFailure": "report",
    "CheckResult": "report",
    "Report": "report",
    "NotApplicable": "subject",
    "Subject": "subject",
}


def __getattr__(name: str) -> Any:
    """Load a public name on its first use.

    Args:
        name: of the attribute.

    Returns:
        The object.

    Raises:
        AttributeError: for any other name.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
