"""The pytest plugin: `pytest --agent-env ID_OR_PATH` checks an environment, one test item per check, with no test file needed.

    pytest --agent-env AgentR1/HotpotQA-v0
    pytest --agent-env my_pkg:MyEnv --agent-env-kwargs '{"split": "test"}' -k "not render"
    pytest tests --agent-env my_env.py:MyEnv

Without a path on the command line only the environments are checked; with one, its tests run too. pytest loads this module at its start in
every project of the machine, so it imports nothing but pytest; the checks come in when the option is given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agent_gym.testing.report import Check, CheckResult
    from agent_gym.testing.subject import Subject


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options.

    Args:
        parser: pytest's.
    """
    group = parser.getgroup("agent-gym", "conformance checks of agent environments")
    group.addoption(
        "--agent-env",
        action="append",
        default=[],
        metavar="ID_OR_PATH",
        help="check this environment: a Gymnasium id, 'module:Class', 'file.py:Class' or 'module:Id-v0'; may be given again",
    )
    group.addoption("--agent-env-kwargs", default="{}", metavar="JSON", help="keywords of the environments, a JSON object")
    group.addoption("--agent-env-seed", type=int, default=0, metavar="N", help="seed of the first task (default: 0)")


def pytest_configure(config: pytest.Config) -> None:
    """Prepare for the environments that are named, and do nothing where there are none.

    Args:
        config: pytest's.

    Raises:
        pytest.UsageError: if the keywords are no JSON object.
    """
    targets = config.getoption("--agent-env")
    if not targets:
        return
    try:
        kwargs = json.loads(config.getoption("--agent-env-kwargs"))
    except ValueError as error:
        raise pytest.UsageError(f"--agent-env-kwargs is no JSON: {error}") from error
    if not isinstance(kwargs, dict):
        raise pytest.UsageError(f"--agent-env-kwargs must be a JSON object, not {kwargs!r}")
    folder = str(config.invocation_params.dir)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # `my_env:MyEnv` means the file beside the one who asks
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = []
    if not set(config.option.reportchars) & set("saA"):
        config.option.reportchars += "s"  # a check that was skipped says why
    config.pluginmanager.register(_AgentEnvItems(list(dict.fromkeys(targets)), kwargs, config.getoption("--agent-env-seed")))


class _AgentEnvItems:
    """Adds the items. Registered only where the option is given."""

    def __init__(self, targets: list[str], kwargs: dict[str, Any], seed: int) -> None:
        self.targets = targets
        self.kwargs = kwargs
        self.seed = seed

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Put the checks behind the collected tests, before `-k` and its like choose among them."""
        for target in self.targets:
            environment = AgentEnvUnderTest.from_parent(session, name=target, nodeid=target)
            environment.prepare(self.kwargs, self.seed)
            items.extend(session.genitems(environment))


class AgentEnvUnderTest(pytest.Collector):
    """One environment; its children are the checks."""

    subject: Subject
    results: dict[str, CheckResult]

    def prepare(self, kwargs: dict[str, Any], seed: int) -> None:
        """Set what the environment is made with.

        Args:
            kwargs: its keywords.
            seed: of the first task.
        """
        from agent_gym.testing.subject import Subject

        self.subject = Subject(self.name, kwargs=kwargs, seed=seed)
        self.results = {}

    def collect(self) -> Iterator[AgentEnvCheck]:
        """Yield one item per check.

        Yields:
            The items.
        """
        from agent_gym.testing.checks import CHECKS

        for name, check in CHECKS.items():
            item = AgentEnvCheck.from_parent(self, name=name)
            item.check = check
            yield item


class AgentEnvCheck(pytest.Item):
    """One check of one environment."""

    parent: AgentEnvUnderTest
    check: Check

    def runtest(self) -> None:
        """Run the check, once, with those that it needs.

        Raises:
            CheckFailure: if it failed.
            pytest.skip.Exception: if it had nothing to say.
        """
        from agent_gym.testing.report import CheckFailure, run_check

        result = run_check(self.name, self.parent.subject, self.parent.results)
        if result.outcome == "skipped":
            raise pytest.skip.Exception(f"{self.name}: {result.message}", _use_item_location=True)
        if result.outcome == "failed":
            raise CheckFailure(result.message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show what was seen, wanted and how to mend it, without a traceback through the checks.

        Args:
            excinfo: what was raised.
            style: of a traceback.

        Returns:
            The text.
        """
        from agent_gym.testing.report import CheckFailure

        if isinstance(excinfo.value, CheckFailure):
            return f"{self.parent.name}: {self.name}\n{self.check.summary}\n\n{excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the check and where it is written.

        Returns:
            Path, line (from 0) and name.
        """
        code = self.check.function.__code__
        return Path(code.co_filename), code.co_firstlineno - 1, f"{self.parent.name}: {self.name}"
